//! Decides, before any work is done for it, whether an execution will be confirmed.
//!
//! The caller divides time into windows (of 100 ms, say) and says when one begins. Within a window every stratum has a
//! share p; whether one execution is taken is drawn with that share. At the beginning of each window the shares are set so
//! that what was executed in the last one would have cost just the budget. A stratum that was not confirmed for too many
//! windows gets its next execution confirmed whatever the budget says.

use crate::operator::Stratum;
use crate::random::Random;
use crate::tally::{Counted, Tally};

/// How much may be confirmed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// Nothing, not even one execution per stratum now and then.
    Nothing,
    /// Everything.
    Everything,
    /// This share, from 0 to 1, of the executions of every stratum.
    Share(f64),
    /// Second executions of this cost per window, as counted by [`Tally::count_cost`]: a share of a core, if the unit is
    /// time. Where it isn't enough for all, strata are served in proportion to their risk and to how long ago they were
    /// confirmed.
    Cost(u64),
}

/// How to sample.
#[derive(Clone, Copy, Debug)]
pub struct Sampling<'r> {
    /// How much may be confirmed.
    pub budget: Budget,
    /// For each stratum, how much more than others it deserves to be confirmed; 1.0 for all alike. Strata are numbered as
    /// this slice is.
    pub risks: &'r [f64],
    /// Every stratum in use is confirmed at least once in so many windows; at least 1.
    pub floor_windows: u64,
    /// Where the draws begin.
    pub seed: u64,
}

/// Decides for one thread that executes.
#[derive(Debug)]
pub struct Sampler {
    budget: Budget,
    floor_windows: u64,
    random: Random,
    strata: Vec<State>,
    tally: Tally,
    window: u64,
    /// What this window has cost so far, by the costs that are known.
    spent: f64,
    insist_until: u64,
}

/// What became of the executions of one stratum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Executions that a decision was asked for.
    pub executed: u64,
    /// Of those, the ones that were to be confirmed and had their record taken.
    pub chosen: u64,
    /// Of those, the ones that were not chosen, or whose record was dropped.
    pub skipped: u64,
    /// Second executions so far, what they cost, and how they ended. Shared by all who use the same [`Tally`].
    pub counted: Counted,
    /// The share with which executions are chosen in this window.
    pub share: f64,
}

impl Coverage {
    /// The share of all executions so far that were chosen and recorded: the p to show beside a figure. 1 before the first.
    #[must_use]
    pub fn share_so_far(&self) -> f64 {
        if self.executed == 0 { 1.0 } else { self.chosen as f64 / self.executed as f64 }
    }
}

#[derive(Debug)]
struct State {
    risk: f64,
    share: f64,
    /// `share` of 2^64.
    threshold: u64,
    executed: u64,
    chosen: u64,
    dropped: u64,
    /// `executed` at the beginning of the window.
    executed_before: u64,
    /// Executions per window, smoothed.
    demand: f64,
    /// Of one second execution, smoothed.
    cost: f64,
    counted_before: Counted,
    /// The last window in which one was chosen.
    chosen_in: u64,
    /// One is owed, whatever the budget says.
    is_owed: bool,
}

/// How much a window's figures count against those before it.
const SMOOTHING: f64 = 0.25;

impl Sampler {
    /// The first window is number 0. Costs and ends of second executions are taken from `tally`.
    ///
    /// # Panics
    ///
    /// When a share, a risk or the floor is out of range, or when there are no strata or more than 256.
    #[must_use]
    pub fn new(sampling: &Sampling<'_>, tally: Tally) -> Self {
        assert!((1..=256).contains(&sampling.risks.len()));
        assert!(sampling.floor_windows >= 1);
        if let Budget::Share(share) = sampling.budget {
            assert!((0.0..=1.0).contains(&share));
        }
        let state = |risk: &f64| {
            assert!(risk.is_finite() && *risk > 0.0);
            State {
                risk: *risk,
                share: 0.0,
                threshold: 0,
                executed: 0,
                chosen: 0,
                dropped: 0,
                executed_before: 0,
                demand: 0.0,
                cost: 0.0,
                counted_before: Counted::default(),
                chosen_in: 0,
                is_owed: sampling.budget != Budget::Nothing,
            }
        };
        let mut sampler = Sampler {
            budget: sampling.budget,
            floor_windows: sampling.floor_windows,
            random: Random::new(sampling.seed),
            strata: sampling.risks.iter().map(state).collect(),
            tally,
            window: 0,
            spent: 0.0,
            insist_until: 0,
        };
        sampler.set_shares();
        sampler
    }

    /// Whether the next execution of a stratum is to be confirmed. Strata that were not announced always are.
    #[inline]
    pub fn decide(&mut self, stratum: Stratum) -> bool {
        let Some(state) = self.strata.get_mut(usize::from(stratum.0)) else { return true };
        state.executed += 1;
        let is_drawn = state.threshold == u64::MAX || self.random.next() < state.threshold;
        if !is_drawn && !state.is_owed {
            return false;
        }
        if let Budget::Cost(budget) = self.budget
            && self.window >= self.insist_until
        {
            // The shares were set for the last window's load; this holds the budget when there is more.
            if self.spent >= budget as f64 && !state.is_owed {
                return false;
            }
            self.spent += state.cost;
        }
        state.is_owed = false;
        state.chosen += 1;
        state.chosen_in = self.window;
        true
    }

    /// What was chosen last in this stratum could not be recorded.
    pub fn count_dropped(&mut self, stratum: Stratum) {
        if let Some(state) = self.strata.get_mut(usize::from(stratum.0)) {
            state.dropped += 1;
            // A floor that was only decided on is no floor.
            state.is_owed = true;
        }
    }

    /// Begins a window, unless it has begun: sets the shares by what happened in those before.
    pub fn begin_window(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        let passed = (window - self.window) as f64;
        self.window = window;
        self.spent = 0.0;
        for (index, state) in self.strata.iter_mut().enumerate() {
            state.learn(passed, self.tally.counted(Stratum(index as u8)));
            let is_starved = window - state.chosen_in >= self.floor_windows;
            state.is_owed |= is_starved && self.budget != Budget::Nothing;
        }
        self.set_shares();
    }

    /// Takes everything until a window begins: after a disagreement, to learn quickly whether it was the only one. It has
    /// no effect on a budget of nothing.
    pub fn insist_until(&mut self, window: u64) {
        self.insist_until = self.insist_until.max(window);
        self.set_shares();
    }

    /// The window that began last.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The share with which executions of a stratum are chosen now.
    #[must_use]
    pub fn share(&self, stratum: Stratum) -> f64 {
        self.strata.get(usize::from(stratum.0)).map_or(1.0, |state| state.share)
    }

    /// What became of a stratum's executions.
    #[must_use]
    pub fn coverage(&self, stratum: Stratum) -> Coverage {
        let Some(state) = self.strata.get(usize::from(stratum.0)) else { return Coverage::default() };
        let chosen = state.chosen.saturating_sub(state.dropped);
        Coverage {
            executed: state.executed,
            chosen,
            skipped: state.executed - chosen,
            counted: self.tally.counted(stratum),
            share: state.share,
        }
    }

    fn set_shares(&mut self) {
        let insists = self.window < self.insist_until;
        match self.budget {
            Budget::Nothing => self.strata.iter_mut().for_each(|state| state.set(0.0)),
            _ if insists => self.strata.iter_mut().for_each(|state| state.set(1.0)),
            Budget::Everything => self.strata.iter_mut().for_each(|state| state.set(1.0)),
            Budget::Share(share) => self.strata.iter_mut().for_each(|state| state.set(share)),
            Budget::Cost(budget) => self.divide(budget as f64),
        }
    }

    /// Shares in proportion to the weights, none above 1, that cost the budget together.
    ///
    /// What a stratum that reaches 1 leaves over is divided among the others; each turn settles one at least.
    fn divide(&mut self, budget: f64) {
        let window = self.window;
        let weight = |state: &State| state.risk * (1 + window - state.chosen_in) as f64;
        let mut left = budget;
        let mut open: Vec<usize> = (0..self.strata.len()).collect();
        while !open.is_empty() {
            let needed: f64 =
                open.iter().map(|&index| &self.strata[index]).map(|s| weight(s) * s.need()).sum();
            // Without load or known costs there is nothing to save.
            let factor = if needed > 0.0 { left / needed } else { f64::INFINITY };
            let (full, partly): (Vec<usize>, Vec<usize>) =
                open.iter().partition(|&&index| factor * weight(&self.strata[index]) >= 1.0);
            for &index in &full {
                self.strata[index].set(1.0);
                left -= self.strata[index].need();
            }
            if full.is_empty() {
                for &index in &partly {
                    let share = factor * weight(&self.strata[index]);
                    self.strata[index].set(share);
                }
                break;
            }
            left = left.max(0.0);
            open = partly;
        }
    }
}

impl State {
    /// What confirming all of the stratum would cost in a window.
    fn need(&self) -> f64 {
        self.demand * self.cost
    }

    fn set(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
        // 2^64 as a float; the cast saturates, which makes a share of 1 the highest threshold.
        self.threshold = (self.share * 18_446_744_073_709_551_616.0) as u64;
    }

    fn learn(&mut self, windows: f64, counted: Counted) {
        let demand = (self.executed - self.executed_before) as f64 / windows;
        self.demand = smoothed(self.demand, demand);
        self.executed_before = self.executed;
        let ended = |counted: &Counted| counted.validated + counted.disagreements;
        let executions = ended(&counted) - ended(&self.counted_before);
        if executions > 0 {
            let cost = (counted.cost - self.counted_before.cost) as f64 / executions as f64;
            self.cost = smoothed(self.cost, cost);
            self.counted_before = counted;
        }
    }
}

/// The first figure counts whole.
fn smoothed(before: f64, now: f64) -> f64 {
    if before == 0.0 { now } else { before + SMOOTHING * (now - before) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::random::test_seed;

    fn sampler(budget: Budget, risks: &[f64], floor_windows: u64, seed: u64) -> (Sampler, Tally) {
        let tally = Tally::new(risks.len());
        (Sampler::new(&Sampling { budget, risks, floor_windows, seed }, tally.clone()), tally)
    }

    /// How many of `executions` are chosen in a window.
    fn chosen(sampler: &mut Sampler, stratum: u8, executions: u64) -> u64 {
        (0..executions).filter(|_| sampler.decide(Stratum(stratum))).count() as u64
    }

    #[test]
    fn everything_and_nothing_are_exact() {
        for (budget, expected) in [
            (Budget::Everything, 1000),
            (Budget::Share(1.0), 1000),
            (Budget::Nothing, 0),
            // Only what the floor asks for.
            (Budget::Share(0.0), 1),
        ] {
            let (mut sampler, _) = sampler(budget, &[1.0], 10, 1);
            assert_eq!(chosen(&mut sampler, 0, 1000), expected, "{budget:?}");
            let coverage = sampler.coverage(Stratum(0));
            assert_eq!((coverage.executed, coverage.chosen), (1000, expected));
            assert_eq!(coverage.skipped, 1000 - expected);
            assert_eq!(coverage.share_so_far(), expected as f64 / 1000.0);
        }
    }

    #[test]
    fn a_share_is_kept_in_every_stratum() {
        let seed = test_seed();
        let (mut sampler, _) = sampler(Budget::Share(0.25), &[1.0, 5.0], 10, seed);
        for stratum in 0..2 {
            // 40,000 draws have a standard deviation of 87; six of them are one false alarm in 500 million.
            let found = chosen(&mut sampler, stratum, 40_000);
            assert!(found.abs_diff(10_000) < 520, "{found} in stratum {stratum}");
            assert!((sampler.coverage(Stratum(stratum)).share - 0.25).abs() < 1e-9);
        }
    }

    #[test]
    fn a_seed_gives_the_same_decisions_again() {
        let decide = |seed| {
            let (mut sampler, _) = sampler(Budget::Share(0.5), &[1.0], 10, seed);
            (0..64).map(|_| sampler.decide(Stratum(0))).collect::<Vec<_>>()
        };
        assert_eq!(decide(7), decide(7));
        assert_ne!(decide(7), decide(8));
    }

    #[test]
    fn no_stratum_starves() {
        let (mut sampler, _) = sampler(Budget::Share(0.0), &[1.0, 1.0], 3, 1);
        let mut found = Vec::new();
        for window in 0..10 {
            sampler.begin_window(window);
            found.push(chosen(&mut sampler, 0, 50));
        }
        assert_eq!(found, [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
        assert_eq!(chosen(&mut sampler, 1, 50), 1, "its first was owed from the start");
        sampler.begin_window(100);
        assert_eq!(chosen(&mut sampler, 0, 50), 1);
    }

    #[test]
    fn a_floor_that_was_dropped_is_still_owed() {
        let (mut sampler, _) = sampler(Budget::Share(0.0), &[1.0], 3, 1);
        assert_eq!(chosen(&mut sampler, 0, 50), 1);
        sampler.count_dropped(Stratum(0));
        assert_eq!(sampler.coverage(Stratum(0)).chosen, 0);
        assert_eq!(chosen(&mut sampler, 0, 50), 1);
        assert_eq!(sampler.coverage(Stratum(0)).skipped, 99);
    }

    /// Runs windows in which each stratum has some executions, each second execution of which has a cost; returns the mean cost
    /// per window of the last half and the last shares.
    fn spend(budget: u64, risks: &[f64], load: &[(u64, u64)], seed: u64) -> (f64, Vec<f64>) {
        const WINDOWS: u64 = 200;
        let (mut sampler, tally) = sampler(Budget::Cost(budget), risks, 10, seed);
        let mut spent = 0;
        for window in 0..WINDOWS {
            sampler.begin_window(window);
            for (index, (executions, cost)) in load.iter().enumerate() {
                let stratum = Stratum(index as u8);
                for _ in 0..chosen(&mut sampler, index as u8, *executions) {
                    tally.count_validated(stratum);
                    tally.count_cost(stratum, *cost);
                    spent += if window >= WINDOWS / 2 { *cost } else { 0 };
                }
            }
        }
        let shares = (0..load.len()).map(|index| sampler.coverage(Stratum(index as u8)).share).collect();
        (spent as f64 / (WINDOWS / 2) as f64, shares)
    }

    #[test]
    fn a_budget_is_used_and_kept() {
        let seed = test_seed();
        let (spent, shares) = spend(10_000, &[1.0, 1.0], &[(1000, 20), (1000, 80)], seed);
        assert!((9_000.0..=10_200.0).contains(&spent), "{spent} of 10000");
        assert!(shares.iter().all(|share| (0.08..0.12).contains(share)), "{shares:?}");
        // More than enough for all.
        let (spent, shares) = spend(1_000_000, &[1.0, 1.0], &[(1000, 20), (1000, 80)], seed);
        assert_eq!((spent, shares), (100_000.0, vec![1.0, 1.0]));
        // Risk counts; what a stratum at its limit leaves over goes to the other.
        let (spent, shares) = spend(10_000, &[4.0, 1.0], &[(1000, 10), (1000, 10)], seed);
        assert!((9_000.0..=10_200.0).contains(&spent), "{spent} of 10000");
        assert!((0.75..0.85).contains(&shares[0]) && (0.15..0.25).contains(&shares[1]), "{shares:?}");
        let (_, shares) = spend(10_000, &[1.0, 1.0], &[(100, 10), (1_000, 20)], seed);
        assert!((0.4..0.6).contains(&shares[0]) && (0.4..0.6).contains(&shares[1]), "{shares:?}");
        let (_, shares) = spend(10_000, &[100.0, 1.0], &[(100, 10), (1_000, 20)], seed);
        assert!(shares[0] == 1.0 && (0.4..0.6).contains(&shares[1]), "{shares:?}");
    }

    #[test]
    fn more_load_than_before_does_not_break_the_budget() {
        let (mut sampler, tally) = sampler(Budget::Cost(1000), &[1.0], 10, 1);
        for window in 0..20 {
            sampler.begin_window(window);
            for _ in 0..chosen(&mut sampler, 0, 10) {
                tally.count_validated(Stratum(0));
                tally.count_cost(Stratum(0), 10);
            }
        }
        sampler.begin_window(20);
        assert_eq!(chosen(&mut sampler, 0, 100_000), 100);
    }

    #[test]
    fn it_can_insist_for_some_time() {
        let (mut sampler, _) = sampler(Budget::Share(0.0), &[1.0], 100, 1);
        assert_eq!(chosen(&mut sampler, 0, 50), 1);
        sampler.insist_until(3);
        assert_eq!(chosen(&mut sampler, 0, 50), 50);
        sampler.begin_window(2);
        assert_eq!(chosen(&mut sampler, 0, 50), 50);
        sampler.begin_window(3);
        assert_eq!(chosen(&mut sampler, 0, 50), 0);
    }

    #[test]
    fn an_unknown_stratum_is_always_confirmed() {
        let (mut sampler, tally) = sampler(Budget::Nothing, &[1.0], 1, 1);
        assert!(sampler.decide(Stratum(1)));
        sampler.count_dropped(Stratum(1));
        tally.count_validated(Stratum(1));
        assert_eq!(sampler.coverage(Stratum(1)), Coverage::default());
    }
}
