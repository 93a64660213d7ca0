//! Executing an operator here: once, or several times with a vote.

use std::num::NonZeroU8;

use crate::disagreement::{Disagreement, Kind, Mismatch, Site};
use crate::operator::{Operator, Recorded};
use crate::record::Draft;
use crate::ring::{Append, Writer};
use crate::side::{Diverse, Primary, Side};

/// The most executions [`Repeated`] does before it votes.
pub const RUNS_MAX: u8 = 16;

/// Executes once, on the primary side.
#[inline]
pub fn direct<'a, O: Operator>(operator: &O, input: &O::Input<'a>, env: &O::Env) -> O::Outcome<'a> {
    Primary::enter(operator, input, env)
}

/// Executes once and writes it down for another thread to repeat. Nothing waits and nothing is allocated.
#[inline]
pub fn recorded<'a, O: Recorded>(
    operator: &O,
    input: &O::Input<'a>,
    env: &O::Env,
    site: Site,
    writer: &mut Writer,
) -> (O::Outcome<'a>, Append) {
    let outcome = Primary::enter(operator, input, env);
    let digest = operator.digest::<Primary>(&outcome);
    let description = operator.describe(input, env);
    let draft = Draft { stratum: site.stratum, core: site.first_core, digest, description };
    (outcome, writer.append(&draft))
}

/// Executes several times on the core it is called on, and compares.
///
/// The first execution is the primary side's, all later ones are the diverse side's. On the first difference:
///
/// * With two runs both sides are executed once more. If these agree, theirs is the outcome; if not, there is none.
/// * With three and more the majority's outcome is taken. A majority has to hold the primary side's voice: where all the
///   diverse runs stand against the one primary, that one is executed again. If it changes its mind, it was wrong once.
///   If it stays with it, one of the two sets of routines is wrong on this core every time, and nobody here can say which:
///   there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    runs: NonZeroU8,
}

/// What several executions came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Repeat<T> {
    /// All agree.
    Agreed(T),
    /// Not all agree, but enough to know the outcome.
    Repaired(T, Disagreement),
    /// There is no outcome. Nothing has happened; what was asked for has to be refused.
    Undecided(Disagreement),
}

impl<T> Repeat<T> {
    /// The outcome, if there is one.
    pub fn outcome(self) -> Option<T> {
        match self {
            Repeat::Agreed(outcome) | Repeat::Repaired(outcome, _) => Some(outcome),
            Repeat::Undecided(_) => None,
        }
    }

    /// The disagreement, if there was one.
    pub fn disagreement(&self) -> Option<&Disagreement> {
        match self {
            Repeat::Agreed(_) => None,
            Repeat::Repaired(_, disagreement) | Repeat::Undecided(disagreement) => Some(disagreement),
        }
    }
}

impl Repeated {
    /// So many executions, from 2 to [`RUNS_MAX`].
    #[must_use]
    pub fn new(runs: u8) -> Option<Self> {
        if (2..=RUNS_MAX).contains(&runs) { NonZeroU8::new(runs).map(|runs| Repeated { runs }) } else { None }
    }

    /// Executes. Allocates only when executions differ.
    #[inline]
    pub fn run<'a, O: Operator>(
        self,
        operator: &O,
        input: &O::Input<'a>,
        env: &O::Env,
        site: Site,
    ) -> Repeat<O::Outcome<'a>> {
        let first = Primary::enter(operator, input, env);
        for agreeing in 1..self.runs.get() {
            let again = Diverse::enter(operator, input, env);
            if again != first {
                let ballot = Ballot { operator, input, env, candidates: Vec::new() };
                return ballot.decide(self.runs.get(), first, agreeing, again, site);
            }
        }
        Repeat::Agreed(first)
    }
}

/// The outcomes of executions that differ, with the voices for each.
struct Ballot<'b, 'a, O: Operator> {
    operator: &'b O,
    input: &'b O::Input<'a>,
    env: &'b O::Env,
    candidates: Vec<Candidate<O::Outcome<'a>>>,
}

struct Candidate<T> {
    outcome: T,
    primary: u32,
    diverse: u32,
}

impl<'a, O: Operator> Ballot<'_, 'a, O> {
    /// `first` was the primary outcome, `agreeing - 1` diverse ones agreed with it, then came `again`.
    #[cold]
    #[inline(never)]
    fn decide(
        mut self,
        runs: u8,
        first: O::Outcome<'a>,
        agreeing: u8,
        again: O::Outcome<'a>,
        site: Site,
    ) -> Repeat<O::Outcome<'a>> {
        let first_digest = self.operator.digest::<Primary>(&first);
        let again_digest = self.operator.digest::<Diverse>(&again);
        let operator = self.operator;
        let winner = if runs == 2 {
            let first = Primary::enter(self.operator, self.input, self.env);
            let again = Diverse::enter(self.operator, self.input, self.env);
            (first == again).then_some(first)
        } else {
            self.candidates.push(Candidate { outcome: first, primary: 1, diverse: u32::from(agreeing) - 1 });
            self.add(again, 0, 1);
            for _ in agreeing + 1..runs {
                let outcome = Diverse::enter(self.operator, self.input, self.env);
                self.add(outcome, 0, 1);
            }
            self.majority(runs)
        };
        let (expected, found) = match &winner {
            None => (first_digest, again_digest),
            Some(outcome) => match operator.digest::<Primary>(outcome) {
                right if right == first_digest => (right, again_digest),
                right => (right, first_digest),
            },
        };
        let disagreement = Disagreement::new(site, Mismatch::new(Kind::Outcome, expected, found), 0..=0);
        match winner {
            Some(outcome) => Repeat::Repaired(outcome, disagreement),
            None => Repeat::Undecided(disagreement),
        }
    }

    fn add(&mut self, outcome: O::Outcome<'a>, primary: u32, diverse: u32) {
        match self.candidates.iter_mut().find(|candidate| candidate.outcome == outcome) {
            Some(candidate) => {
                candidate.primary += primary;
                candidate.diverse += diverse;
            }
            None => self.candidates.push(Candidate { outcome, primary, diverse }),
        }
    }

    fn majority(mut self, runs: u8) -> Option<O::Outcome<'a>> {
        let has_majority = |candidate: &Candidate<O::Outcome<'a>>| {
            2 * (candidate.primary + candidate.diverse) > u32::from(runs)
        };
        let index = self.candidates.iter().position(has_majority)?;
        let mut winner = self.candidates.swap_remove(index);
        if winner.primary == 0 && Primary::enter(self.operator, self.input, self.env) == winner.outcome {
            winner.primary = 1;
        }
        (winner.primary > 0 && winner.diverse > 0).then_some(winner.outcome)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::counter::{Add, Counter, Limit};
    use crate::operator::{Core, Stratum};
    use crate::ring::ring;

    const ADD: Add<'static> = Add { value: 40, delta: 2, reason: b"answer" };
    const LIMIT: Limit = Limit(1000);
    const RIGHT: u64 = 42;
    const SITE: Site = Site { stratum: Stratum(3), first_core: Core(1), second_core: Core(1) };

    /// What `runs` executions come to when those of each side flip these bits: `=` all agree, `~` repaired, `!` none;
    /// the outcome; and what the disagreement expects and finds.
    fn check(runs: u8, primary: &[u64], diverse: &[u64], expected: &str) {
        let counter = Counter::with_faults(primary, diverse);
        let repeat = Repeated::new(runs).expect("a number in range").run(&counter, &ADD, &LIMIT, SITE);
        let told = repeat.disagreement().map_or(String::new(), |told| {
            assert_eq!((told.stratum, told.kind), (SITE.stratum, Kind::Outcome));
            format!(" expected {} found {}", told.expected.0, told.found.0)
        });
        let line = match repeat {
            Repeat::Agreed(outcome) => format!("= {outcome}"),
            Repeat::Repaired(outcome, _) => format!("~ {outcome}{told}"),
            Repeat::Undecided(_) => format!("!{told}"),
        };
        assert_eq!(line, expected, "{runs} runs, faults {primary:?} and {diverse:?}");
        assert!(counter.is_spent(), "{runs} runs did not get to all faults {primary:?} and {diverse:?}");
    }

    #[test]
    fn without_faults_there_is_silence() {
        for runs in 2..=RUNS_MAX {
            check(runs, &[], &[], "= 42");
        }
    }

    #[test]
    fn one_execution_notices_nothing() {
        assert_eq!(direct(&Counter::with_faults(&[1], &[]), &ADD, &LIMIT), RIGHT ^ 1);
        assert_eq!(direct(&Counter::default(), &ADD, &LIMIT), RIGHT);
    }

    #[test]
    fn two_runs_detect_and_try_again_once() {
        check(2, &[1], &[], "~ 42 expected 42 found 43");
        check(2, &[], &[1], "~ 42 expected 42 found 43");
        check(2, &[1, 1], &[], "! expected 43 found 42");
        check(2, &[], &[1, 4], "! expected 42 found 43");
        check(2, &[1], &[0, 1], "! expected 43 found 42");
        check(2, &[1], &[2], "~ 42 expected 42 found 43");
        // The limit of it all: the same mistake on both sides is no difference.
        check(2, &[1], &[1], "= 43");
    }

    #[test]
    fn more_runs_vote() {
        for runs in [3, 5, 10, RUNS_MAX] {
            check(runs, &[1], &[], "~ 42 expected 42 found 43");
            check(runs, &[], &[1], "~ 42 expected 42 found 43");
            let last: Vec<u64> = (2..runs).map(|_| 0).chain([8]).collect();
            check(runs, &[], &last, "~ 42 expected 42 found 34");
        }
        check(5, &[1], &[0, 2], "~ 42 expected 42 found 43");
        check(5, &[], &[1, 2], "~ 42 expected 42 found 43");
        check(10, &[], &[1, 1, 1, 2], "~ 42 expected 42 found 43");
    }

    #[test]
    fn without_a_majority_of_both_sides_there_is_no_outcome() {
        check(3, &[1], &[2], "! expected 43 found 40");
        check(4, &[], &[1, 1], "! expected 42 found 43");
        check(5, &[], &[1, 2, 4], "! expected 42 found 43");
        // A set of routines that is wrong each time can't be told from one that is right each time.
        check(3, &[1, 1], &[], "! expected 43 found 42");
        check(3, &[], &[1, 1], "! expected 42 found 43");
        check(5, &[], &[1, 1, 1, 1], "! expected 42 found 43");
    }

    #[test]
    fn runs_have_a_range() {
        for runs in [0, 1, RUNS_MAX + 1, u8::MAX] {
            assert_eq!(Repeated::new(runs), None);
        }
    }

    #[test]
    fn a_dropped_record_does_not_change_the_outcome() {
        let (mut writer, _reader) = ring(2);
        let counter = Counter::default();
        let mut run = || recorded(&counter, &ADD, &LIMIT, SITE, &mut writer);
        assert_eq!(run(), (RIGHT, Append::Recorded(1)));
        assert_eq!(run(), (RIGHT, Append::Dropped));
    }
}
