//! What was measured, round by round, and the table made of it, in 80 columns.

use std::collections::HashMap;
use std::fmt::Write;

use super::row::{LATENCY, LOADS, Latency, Load, MEMORY, Sample, Selection, Verdict};
use super::{CONNECTIONS, GENERATOR_CORE, Items, SYSTEM_CORE, system};
use crate::perf::report::median;

/// A system whose core is idle for more than this share of the time is not what limits the rate.
const BUSY_MIN: f64 = 0.95;

/// More of the system's core than this taken by others spoils a figure.
const TAKEN_MAX: f64 = 0.05;

/// Why a row has no figures.
pub(super) enum Outcome {
    /// The executable refuses the flags, with these words.
    NotThere(String),
    Failed(String),
}

/// Everything that was measured.
pub(super) struct Figures {
    rounds: Vec<Round>,
    left_out: Vec<(&'static str, Outcome)>,
}

/// What was measured in one round; a figure can only be compared with those of its round.
#[derive(Default)]
struct Round {
    loads: HashMap<&'static str, Sample>,
    /// Peak bytes of the protected system and of the other.
    memory: [Option<f64>; 2],
    latency: Option<Latency>,
}

/// The first lines: what is measured, and on what.
pub(super) fn heading(seed: u64, items: Items) -> String {
    let siblings = match super::system::siblings(SYSTEM_CORE) {
        alone if alone == SYSTEM_CORE.to_string() => "none".into(),
        list => list,
    };
    format!(
        "seed {seed}, {CONNECTIONS} connections, {}-byte keys, {}-byte values, 90 % get\n\
         {}, hardware siblings of core {SYSTEM_CORE}: {siblings}\n\
         all processes of a system on core {SYSTEM_CORE}, generator on core {GENERATOR_CORE}, one worker\n",
        items.key_bytes,
        items.value_bytes,
        system::machine(),
    )
}

impl Figures {
    pub(super) fn new() -> Self {
        Figures { rounds: Vec::new(), left_out: Vec::new() }
    }

    pub(super) fn begin_round(&mut self) {
        self.rounds.push(Round::default());
    }

    pub(super) fn load(&mut self, row: &'static str, sample: Sample) {
        self.round().loads.insert(row, sample);
    }

    pub(super) fn memory(&mut self, which: usize, bytes: f64) {
        self.round().memory[which] = Some(bytes);
    }

    pub(super) fn latency(&mut self, latency: Latency) {
        self.round().latency = Some(latency);
    }

    fn round(&mut self) -> &mut Round {
        self.rounds.last_mut().expect("a round was begun before anything was measured in it")
    }

    pub(super) fn leave_out(&mut self, row: &'static str, outcome: Outcome) {
        self.left_out.push((row, outcome));
    }

    pub(super) fn is_left_out(&self, row: &str) -> bool {
        self.left_out.iter().any(|(left_out, _)| *left_out == row)
    }

    /// Whether something failed, which is worse than a goal that is missed.
    pub(super) fn has_errors(&self) -> bool {
        self.left_out.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
    }

    /// Rows that failed, or can't be said to have reached a goal. A mode that is not there has missed nothing.
    pub(super) fn failures(&self, selection: &Selection) -> usize {
        let loads = LOADS.iter().filter(|load| selection.has(load.row)).map(|load| self.verdict(load));
        let others = [self.memory_line().map(|(_, verdict)| verdict), self.latency_line().map(|(_, v)| v)];
        let missed = loads.chain(others.into_iter().flatten()).filter(|verdict| verdict.is_failure());
        let failed = self.left_out.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        missed.count() + failed.count()
    }

    pub(super) fn table(&self, selection: &Selection, rounds: usize) -> String {
        let mut text = format!(
            "\n{:<14}{:>7}{:>7}{:>14}{:>8}{:>7}{:>6}{:>7}{:>5}{:>5}\n",
            "", "kreq/s", "ratio", "min .. max", "goal", "", "p", "CPU us", "", "busy"
        );
        for load in LOADS.iter().filter(|load| selection.has(load.row)) {
            text.extend(self.load_line(load));
        }
        text.push('\n');
        text.extend([self.memory_line(), self.latency_line()].into_iter().flatten().map(|(line, _)| line));
        text.push_str(&self.missing());
        for load in LOADS {
            text.extend(self.notes(load));
        }
        let _ = writeln!(
            text,
            "rounds, interleaved: {rounds}; medians of them, ratios within them. p: share of\n\
             requests that were validated. CPU us: of all processes of the system, per\n\
             request; beside it the ratio. busy: of the system's core."
        );
        text
    }

    /// Rows without figures; those that have the same reason stand together.
    fn missing(&self) -> String {
        let mut text = String::new();
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (row, outcome) in &self.left_out {
            match outcome {
                Outcome::Failed(words) => {
                    let _ = writeln!(text, "{row}: FAILED: {words}");
                }
                Outcome::NotThere(words) => match reasons.iter_mut().find(|(reason, _)| reason == words) {
                    Some((_, rows)) => rows.push(row),
                    None => reasons.push((words, vec![row])),
                },
            }
        }
        for (words, rows) in reasons {
            let _ = writeln!(text, "not there: {}\n  {words}", rows.join(", "));
        }
        text
    }

    fn samples(&self, row: &str) -> Vec<Sample> {
        self.rounds.iter().filter_map(|round| round.loads.get(row).copied()).collect()
    }

    /// A quantity of a load divided by that of what it is compared with, for each round that has both.
    fn ratios(&self, load: &Load, of: fn(&Sample) -> f64) -> Vec<f64> {
        let Some(against) = load.against else { return Vec::new() };
        let ratio = |round: &Round| Some(of(round.loads.get(load.row)?) / of(round.loads.get(against)?));
        self.rounds.iter().filter_map(ratio).collect()
    }

    /// The median of a quantity of a row.
    fn median(&self, row: &str, of: fn(&Sample) -> f64) -> f64 {
        median(&self.samples(row).iter().map(of).collect::<Vec<f64>>())
    }

    fn share(&self, row: &str) -> Option<f64> {
        let shares: Vec<f64> = self.samples(row).iter().filter_map(|sample| sample.share).collect();
        (!shares.is_empty()).then(|| median(&shares))
    }

    fn verdict(&self, load: &Load) -> Verdict {
        let ratios = self.ratios(load, rate);
        if ratios.is_empty() {
            return Verdict::None;
        }
        // A base that is held back flatters what is compared with it.
        let is_spoilt = load.against.is_some_and(|against| {
            self.median(against, |sample| sample.busy) < BUSY_MIN
                || [against, load.row].iter().any(|row| self.median(row, |sample| sample.taken) > TAKEN_MAX)
        });
        match load.verdict(median(&ratios), self.share(load.row)) {
            Verdict::Met if is_spoilt => Verdict::Unsure,
            verdict => verdict,
        }
    }

    fn load_line(&self, load: &Load) -> Option<String> {
        if self.samples(load.row).is_empty() {
            return None;
        }
        let ratios = self.ratios(load, rate);
        let (ratio, range, cpu_ratio) = match ratios.is_empty() {
            true => (String::new(), String::new(), String::new()),
            false => (
                format!("{:.3}", median(&ratios)),
                range(&ratios),
                format!("{:.2}", median(&self.ratios(load, cpu_us))),
            ),
        };
        let goal = load.ratio_min().map_or(String::new(), |goal| format!(">= {goal:.2}"));
        let share = self.share(load.row).map_or(String::new(), |share| format!("{share:.2}"));
        Some(format!(
            "{:<14}{:>7.1}{ratio:>7}{range:>14}{goal:>8}{:>7}{share:>6}{:>7.2}{cpu_ratio:>5}{:>5.2}\n",
            load.row,
            self.median(load.row, rate) / 1e3,
            word(self.verdict(load)),
            self.median(load.row, cpu_us),
            self.median(load.row, |sample| sample.busy),
        ))
    }

    /// What makes a load's figures mean less than they seem to.
    fn notes(&self, load: &Load) -> Option<String> {
        if self.samples(load.row).is_empty() {
            return None;
        }
        let of = |quantity| self.median(load.row, quantity);
        let (busy, taken) = (of(|sample| sample.busy), of(|sample| sample.taken));
        let mut text = String::new();
        if busy < BUSY_MIN {
            let generator_is_busy = of(|sample| sample.generator_busy) >= BUSY_MIN;
            let limit = if generator_is_busy { "the generator" } else { "waiting" };
            let percent = busy * 100.0;
            let _ = writeln!(
                text,
                "{}: core {SYSTEM_CORE} was busy {percent:.0} % only; {limit} limits",
                load.row
            );
        }
        if taken > TAKEN_MAX {
            let percent = taken * 100.0;
            let _ = writeln!(text, "{}: others took {percent:.0} % of core {SYSTEM_CORE}", load.row);
        }
        Some(text)
    }

    fn memory_line(&self) -> Option<(String, Verdict)> {
        let pairs: Vec<[f64; 2]> =
            self.rounds.iter().filter_map(|round| Some([round.memory[0]?, round.memory[1]?])).collect();
        if pairs.is_empty() {
            return None;
        }
        let ratios: Vec<f64> = pairs.iter().map(|[ours, base]| ours / base).collect();
        let (row, _, ratio_max) = MEMORY;
        let verdict = verdict_of(median(&ratios) <= ratio_max);
        let mib =
            |which: usize| median(&pairs.iter().map(|pair| pair[which]).collect::<Vec<f64>>()) / 1048576.0;
        let line = format!(
            "{row:<14}peak MiB: {:.1} with orthrus, {:.1} with vanilla\n{:<14}{:>7}{:>7.3}{:>14}{:>8}{:>7}\n",
            mib(0),
            mib(1),
            "",
            "",
            median(&ratios),
            range(&ratios),
            format!("<= {ratio_max:.2}"),
            word(verdict),
        );
        Some((line, verdict))
    }

    fn latency_line(&self) -> Option<(String, Verdict)> {
        let measured: Vec<&Latency> = self.rounds.iter().filter_map(|round| round.latency.as_ref()).collect();
        let place = &measured.first()?.place;
        let (row, _, goals) = LATENCY;
        let mut text = format!("{row:<14}{place}\n");
        let mut all_met = true;
        for (which, name) in ["p50", "p99"].into_iter().enumerate() {
            let values: Vec<f64> = measured.iter().map(|latency| latency.us[which]).collect();
            let (value, goal) = (median(&values), goals[which]);
            all_met &= value <= goal;
            let (least, most) = extremes(&values);
            let _ = writeln!(
                text,
                "{:<14}{name} of validation, us: {value:.1} ({least:.1} .. {most:.1}), <= {goal:.0} {}",
                "",
                word(verdict_of(value <= goal)),
            );
        }
        Some((text, verdict_of(all_met)))
    }
}

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

fn cpu_us(sample: &Sample) -> f64 {
    sample.cpu_us
}

fn verdict_of(met: bool) -> Verdict {
    if met { Verdict::Met } else { Verdict::Missed }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::None => "",
        Verdict::Met => "ok",
        Verdict::Missed => "MISSED",
        Verdict::Unsure => "unsure",
    }
}

fn extremes(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (least, most)
}

fn range(values: &[f64]) -> String {
    let (least, most) = extremes(values);
    format!("{least:.2} .. {most:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, share: Option<f64>) -> Sample {
        Sample { rate, cpu_us: 5.0, busy: 1.0, generator_busy: 0.9, taken: 0.0, share }
    }

    fn all() -> Selection {
        Selection::parse(Vec::new()).unwrap()
    }

    /// Rounds of vanilla and orthrus, by their rates; 0 where it was not measured.
    fn figures(rounds: &[(f64, f64)]) -> Figures {
        let mut figures = Figures::new();
        for &(vanilla, orthrus) in rounds {
            figures.begin_round();
            for (row, rate) in [("vanilla", vanilla), ("orthrus", orthrus)] {
                if rate > 0.0 {
                    figures.load(row, sample(rate, (row == "orthrus").then_some(1.0)));
                }
            }
        }
        figures
    }

    #[test]
    fn ratios_are_those_within_a_round() {
        let orthrus = LOADS.iter().find(|load| load.row == "orthrus").unwrap();
        let check = |rounds: &[(f64, f64)], ratios: &[f64], verdict| {
            let figures = figures(rounds);
            assert_eq!(figures.ratios(orthrus, rate), ratios);
            assert_eq!(figures.verdict(orthrus), verdict);
            assert_eq!(figures.failures(&all()), usize::from(verdict == Verdict::Missed));
        };
        check(&[(2.0, 2.0), (1.0, 0.5), (4.0, 4.0)], &[1.0, 0.5, 1.0], Verdict::Met);
        check(&[(2.0, 1.0), (1.0, 0.0), (0.0, 1.0)], &[0.5], Verdict::Missed);
        check(&[(1.0, 0.0)], &[], Verdict::None);
    }

    #[test]
    fn what_is_not_there_is_named_and_no_failure() {
        let mut figures = figures(&[(1000.0, 1000.0)]);
        figures.leave_out("rbv", Outcome::NotThere("no such mode".into()));
        assert!(figures.is_left_out("rbv"));
        assert_eq!((figures.failures(&all()), figures.has_errors()), (0, false));
        assert!(figures.table(&all(), 1).contains("not there: rbv\n  no such mode\n"));
        figures.leave_out("sei", Outcome::Failed("round 1: it ended".into()));
        assert_eq!((figures.failures(&all()), figures.has_errors()), (1, true));
        assert!(figures.table(&all(), 1).contains("sei: FAILED: round 1: it ended"));
    }

    #[test]
    fn memory_and_latency_have_goals() {
        let check = |memory: [f64; 2], latency: [f64; 2], failures| {
            let mut figures = Figures::new();
            figures.begin_round();
            figures.memory(0, memory[0]);
            figures.memory(1, memory[1]);
            figures.latency(Latency { us: latency, place: "somewhere".into() });
            assert_eq!(figures.failures(&all()), failures, "{memory:?} {latency:?}");
        };
        check([105.0, 100.0], [20.0, 1000.0], 0);
        check([106.0, 100.0], [20.0, 1000.0], 1);
        check([100.0, 100.0], [21.0, 100.0], 1);
        check([100.0, 100.0], [2.0, 1001.0], 1);
    }

    #[test]
    fn what_spoils_a_figure_is_said() {
        let check = |busy, generator_busy, taken, expected: &str| {
            let mut figures = Figures::new();
            figures.begin_round();
            figures.load("vanilla", Sample { busy, generator_busy, taken, ..sample(1.0, None) });
            assert_eq!(figures.notes(&LOADS[0]).unwrap(), expected);
        };
        check(0.99, 0.99, 0.05, "");
        check(0.8, 0.99, 0.0, "vanilla: core 0 was busy 80 % only; the generator limits\n");
        check(0.8, 0.7, 0.0, "vanilla: core 0 was busy 80 % only; waiting limits\n");
        check(1.0, 0.9, 0.7, "vanilla: others took 70 % of core 0\n");
    }

    #[test]
    fn what_is_spoilt_is_not_met() {
        let orthrus = LOADS.iter().find(|load| load.row == "orthrus").unwrap();
        let check = |rate: f64, spoil: fn(&mut Sample), expected| {
            for row in ["vanilla", "orthrus"] {
                let mut figures = figures(&[(1.0, rate)]);
                spoil(figures.rounds[0].loads.get_mut(row).unwrap());
                let is_flattered = row == "vanilla" || figures.rounds[0].loads[row].taken > 0.0;
                let expected = if is_flattered { expected } else { Verdict::Met };
                assert_eq!(figures.verdict(orthrus), expected, "{row} spoilt");
                assert_eq!(figures.failures(&all()), usize::from(expected != Verdict::Met));
            }
        };
        check(1.0, |_| (), Verdict::Met);
        check(1.0, |sample| sample.busy = 0.9, Verdict::Unsure);
        check(1.0, |sample| sample.taken = 0.2, Verdict::Unsure);
        check(0.5, |sample| sample.taken = 0.2, Verdict::Missed);
    }

    #[test]
    fn the_table_fits_a_terminal_of_80_columns() {
        let mut figures = figures(&[(1e6, 1e6), (1e6, 0.9e6)]);
        figures.load("vanilla-16", sample(1_234_567.0, Some(0.25)));
        figures.load("orthrus-16", sample(1_134_567.0, Some(0.25)));
        figures.memory(0, 2e9);
        figures.memory(1, 2e9);
        let place = "workers 0, validators 1 (independence unknown), generator 0".into();
        figures.latency(Latency { us: [12.3, 1234.5], place });
        let items = Items { count: 1, key_bytes: 64, value_bytes: 256 };
        for line in (heading(u64::MAX >> 20, items) + &figures.table(&all(), 5)).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
