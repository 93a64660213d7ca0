//! The tables, 80 columns wide.

use std::fmt::Write;

use super::contenders::Contender;
use super::workload::{Outcome, Workload};

/// One workload's table: a row per contender, groups apart, misses also as a ratio to the first row's.
pub(super) fn table(workload: &Workload, contenders: &[Contender], outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let limit_mib = workload.limit_bytes as f64 / f64::from(1 << 20);
    let _ = writeln!(text, "\n{}: {}", workload.name, workload.about);
    let _ = writeln!(text, "{} keys, {limit_mib:.0} MiB in all", workload.keys);
    let _ =
        writeln!(text, "{:<35}{:>8}{:>8}{:>9}{:>8}{:>9}", "", "miss %", "ratio", "moved", "live %", "items");
    let reference = outcomes.first().map_or(0.0, Outcome::miss_percent);
    for (contender, outcome) in contenders.iter().zip(outcomes) {
        if contender.opens_group {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{:<35}{:>8.3}{:>8.3}{:>9.3}{:>8.1}{:>9.0}",
            contender.name,
            outcome.miss_percent(),
            outcome.miss_percent() / reference,
            outcome.moved_per_written(),
            100.0 * outcome.payload_bytes / workload.limit_bytes as f64,
            outcome.items,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::contenders;
    use crate::simulate::workload::WORKLOADS;

    #[test]
    fn tables_fit_a_terminal_of_80_columns() {
        for workload in WORKLOADS {
            let contenders = contenders::for_workload(workload.name);
            let outcome = Outcome {
                reads: 1,
                misses: 1,
                written_bytes: 1,
                moved_bytes: 9999,
                items: 99_999_999.0,
                payload_bytes: workload.limit_bytes as f64,
            };
            let text = table(&workload, &contenders, &vec![outcome; contenders.len()]);
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
