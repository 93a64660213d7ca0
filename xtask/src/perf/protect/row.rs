//! The rows of the table of protection modes: what each is measured with, against what, and what it should reach.

use crate::error::Error;

/// A system under a closed loop of requests.
pub(super) struct Load {
    /// Its name in the table and for `--only`.
    pub(super) row: &'static str,
    pub(super) flags: &'static [&'static str],
    /// Requests in flight per connection.
    pub(super) depth: usize,
    /// The row its rate is divided by.
    pub(super) against: Option<&'static str>,
    /// The smallest median ratio that passes.
    ratio_min: Option<f64>,
    /// The smallest median share of validated requests that passes.
    share_min: Option<f64>,
}

/// Every load, in the order of the table. A row that others are compared with stands before them.
pub(super) const LOADS: &[Load] = &[
    base("vanilla", 1),
    // The same program again shows what a ratio of 1 looks like on this machine.
    Load { ratio_min: None, ..against("vanilla", "vanilla-again", VANILLA, 1, 0.0) },
    Load {
        // Less would be another experiment: all of it is to be validated.
        share_min: Some(0.99),
        ..against("vanilla", "orthrus", &["--protect", "orthrus", "--validate-share", "1"], 1, 0.95)
    },
    against("vanilla", "orthrus-sync", &["--protect", "orthrus", "--protect-sync"], 1, 0.85),
    against("vanilla", "sei", &["--protect", "sei", "--redundancy", "2"], 1, 0.93),
    against("vanilla", "rbv", &["--protect", "rbv"], 1, 0.60),
    against("vanilla", "rbv-sync", &["--protect", "rbv", "--protect-sync"], 1, 0.50),
    base("vanilla-16", 16),
    Load { share_min: Some(0.2), ..against("vanilla-16", "orthrus-16", &["--protect", "orthrus"], 16, 0.93) },
];

const VANILLA: &[&str] = &["--protect", "vanilla"];

/// The row of peak memory: a protected system beside an unprotected one, and the largest ratio that passes.
pub(super) const MEMORY: (&str, [&[&str]; 2], f64) = ("memory", [&["--protect", "orthrus"], VANILLA], 1.05);

/// The row of validation latency, and the largest median and 99th percentile that pass, in microseconds.
pub(super) const LATENCY: (&str, &[&str], [f64; 2]) =
    ("latency", &["--protect", "orthrus", "--validate-share", "1"], [20.0, 1000.0]);

const fn base(row: &'static str, depth: usize) -> Load {
    Load { row, flags: VANILLA, depth, against: None, ratio_min: None, share_min: None }
}

const fn against(
    against: &'static str,
    row: &'static str,
    flags: &'static [&'static str],
    depth: usize,
    ratio_min: f64,
) -> Load {
    Load { row, flags, depth, against: Some(against), ratio_min: Some(ratio_min), share_min: None }
}

/// The rows to measure.
pub(super) struct Selection(Vec<String>);

impl Selection {
    /// Those named, with what they are compared with; all of them if none is named.
    pub(super) fn parse(names: Vec<String>) -> Result<Self, Error> {
        let known: Vec<&str> = names_of_rows();
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => {
                let known = known.join(", ");
                Err(Error::Usage(format!("perf protect: there is no row '{unknown}'; there are {known}")))
            }
            None => Ok(Selection(names)),
        }
    }

    pub(super) fn has(&self, row: &str) -> bool {
        let is_named = |row: &str| self.0.iter().any(|name| name == row);
        self.0.is_empty()
            || is_named(row)
            || LOADS.iter().any(|load| load.against == Some(row) && is_named(load.row))
    }
}

fn names_of_rows() -> Vec<&'static str> {
    LOADS.iter().map(|load| load.row).chain([MEMORY.0, LATENCY.0]).collect()
}

/// What one load in one round showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Requests per second.
    pub(super) rate: f64,
    /// CPU time of all processes of the system, in microseconds per request.
    pub(super) cpu_us: f64,
    /// The share of the time in which the system's core was busy, and the generator's.
    pub(super) busy: f64,
    pub(super) generator_busy: f64,
    /// The share of the time in which other processes, or other virtual machines, had the system's core.
    pub(super) taken: f64,
    /// The share of requests that were validated, for a system that says so.
    pub(super) share: Option<f64>,
}

/// What the row of validation latency showed in one round.
pub(super) struct Latency {
    /// Median and 99th percentile of the time from execution to validation, in microseconds.
    pub(super) us: [f64; 2],
    /// Which cores everybody had.
    pub(super) place: String,
}

/// Whether a row reached its goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no goal.
    None,
    Met,
    Missed,
    /// It seems to have reached them, but something held back what it is compared with, or took the core.
    Unsure,
}

impl Verdict {
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Verdict::Missed | Verdict::Unsure)
    }
}

impl Load {
    pub(super) fn ratio_min(&self) -> Option<f64> {
        self.ratio_min
    }

    /// Whether executions leave records that are validated elsewhere, so that there is a share of them.
    pub(super) fn is_recorded(&self) -> bool {
        self.flags.iter().any(|flag| matches!(*flag, "orthrus" | "rbv"))
    }

    pub(super) fn verdict(&self, ratio: f64, share: Option<f64>) -> Verdict {
        let Some(ratio_min) = self.ratio_min else {
            return Verdict::None;
        };
        // A share that is asked for and not shown has not been reached.
        let share_is_met = self.share_min.is_none_or(|least| share.is_some_and(|share| share >= least));
        match ratio >= ratio_min && share_is_met {
            true => Verdict::Met,
            false => Verdict::Missed,
        }
    }
}

/// The share of requests validated between two looks at `stats integrity`, each as (executed, validated).
pub(super) fn share_between(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let executed = after.0.checked_sub(before.0)?;
    let validated = after.1.checked_sub(before.1)?;
    // What was executed before the first look may be validated after it.
    (executed > 0).then(|| (validated as f64 / executed as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_with_rows_before_them_at_the_same_depth() {
        for (index, load) in LOADS.iter().enumerate() {
            let Some(against) = load.against else { continue };
            let base = LOADS[..index].iter().find(|base| base.row == against);
            assert_eq!(base.map(|base| base.depth), Some(load.depth), "{}", load.row);
        }
    }

    #[test]
    fn a_selection_takes_along_what_rows_are_compared_with() {
        let check = |only: &[&str], expected: &[&str]| {
            let selection = Selection::parse(only.iter().map(|name| name.to_string()).collect()).unwrap();
            let found: Vec<&str> = names_of_rows().into_iter().filter(|row| selection.has(row)).collect();
            assert_eq!(found, expected, "--only {only:?}");
        };
        check(&["sei"], &["vanilla", "sei"]);
        check(&["orthrus-16", "memory"], &["vanilla-16", "orthrus-16", "memory"]);
        check(&["vanilla"], &["vanilla"]);
        check(&[], &names_of_rows());
        assert!(Selection::parse(vec!["sej".into()]).is_err());
    }

    #[test]
    fn verdicts() {
        let check = |row: &str, ratio, share, expected| {
            let load = LOADS.iter().find(|load| load.row == row).unwrap();
            assert_eq!(load.verdict(ratio, share), expected, "{row} {ratio} {share:?}");
        };
        check("vanilla-again", 0.5, None, Verdict::None);
        check("sei", 0.93, None, Verdict::Met);
        check("sei", 0.92, None, Verdict::Missed);
        check("orthrus", 0.96, Some(1.0), Verdict::Met);
        check("orthrus", 0.96, Some(0.9), Verdict::Missed);
        check("orthrus", 0.96, None, Verdict::Missed);
        check("orthrus-16", 0.92, Some(0.5), Verdict::Missed);
        check("orthrus-16", 0.94, Some(0.2), Verdict::Met);
    }

    #[test]
    fn shares_are_of_what_was_executed_meanwhile() {
        let check = |before, after, expected| assert_eq!(share_between(before, after), expected);
        check((100, 0), (300, 50), Some(0.25));
        check((100, 90), (200, 200), Some(1.0));
        check((100, 90), (100, 90), None);
        check((100, 90), (50, 90), None);
    }
}
