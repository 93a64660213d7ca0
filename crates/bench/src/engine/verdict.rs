//! What the threads' reports come to: sums, what limited the run, and whether its result means something.

use std::collections::BTreeMap;

use super::outcome::{Cpu, Interval, Operations, Outcome, Wrong, merge_series};
use super::plan::Plan;
use super::worker::{Phase, Report};
use super::{Watched, outcome};
use crate::error::Error;
use crate::latency::Histogram;
use crate::record::Gate;
use crate::watch::CpuTime;

/// A thread, or a server, that ran for this share of the time had no more to give.
const BUSY: f64 = 0.85;
/// What is offered was reached if at least this share of it was done.
const REACHED: f64 = 0.99;
/// Of the machine's CPU time, the share that may be taken by its host.
const STEAL_MAX: f64 = 0.02;
/// The p99 of the slip that may be, in nanoseconds.
const SLIP_NS_MAX: u64 = 1_000_000;

/// Whether every key was stored.
pub(super) fn check_prefill(reports: &[Report]) -> Result<(), Error> {
    let mut wrong = Wrong::default();
    reports.iter().for_each(|report| wrong.merge(&report.sheet.wrong));
    if wrong.total() > 0 {
        let example = wrong.examples.first().cloned().unwrap_or_default();
        return Err(Error::Wrong(format!("storing the keys: {example}")));
    }
    if let Some(failure) = reports.iter().find_map(|report| report.failure.clone()) {
        return Err(Error::Unavailable(format!("storing the keys: {failure}")));
    }
    let (refused, all) = reports.iter().fold((0, 0), |(refused, all), report| {
        (refused + report.sheet.failures, all + report.sheet.requests)
    });
    match refused {
        0 => Ok(()),
        refused => Err(Error::Unavailable(format!(
            "storing the keys: the server refused {refused} of {all} items; give it more memory or smaller values"
        ))),
    }
}

/// Adds the threads' sheets.
pub(super) fn sum_up(plan: &Plan, reports: Vec<Report>, phase: &Phase, watched: &Watched) -> Outcome {
    let names: Vec<String> = plan.mix.0.iter().map(|entry| entry.name()).collect();
    let mut operations: BTreeMap<String, Operations> = BTreeMap::new();
    let mut outcome = Outcome { offered: plan.arrivals.rate(), ..Outcome::default() };
    let (mut last, mut generator) = (phase.counts_from, CpuTime::default());
    let mut series: Vec<Interval> = Vec::new();
    for report in reports {
        let sheet = report.sheet;
        for (name, row) in names.iter().zip(&sheet.rows) {
            operations.entry(name.clone()).or_default().merge(&Operations {
                requests: row.requests,
                keys: row.keys,
                hits: row.hits,
                misses: row.misses,
                refused: row.refused,
                failures: row.failures,
                response: row.response.clone(),
            });
        }
        outcome.service.merge(&sheet.service);
        outcome.slip.merge(&sheet.slip);
        outcome.wrong.merge(&sheet.wrong);
        outcome.unsent += report.unsent;
        merge_series(&mut series, &sheet.series);
        last = last.max(sheet.last);
        generator = generator.plus(scaled(report.cpu, report.cpu_seconds));
        outcome.incomplete = outcome.incomplete.or(report.failure);
    }
    for operations in operations.values() {
        outcome.requests += operations.requests;
        outcome.keys += operations.keys;
        outcome.failures += operations.failures;
        outcome.response.merge(&operations.response);
    }
    if plan.arrivals.rate().is_none() {
        outcome.service = outcome.response.clone();
        outcome.slip = Histogram::new();
    }
    outcome.seconds = (last - phase.counts_from) as f64 / 1e9;
    outcome.operations = operations;
    outcome.series = series;
    outcome.cpu = Cpu {
        generator,
        generator_limit: outcome.seconds * f64::from(plan.threads),
        server: watched.server,
        server_busiest: watched.server_busiest,
        steal: watched.machine.steal_share(),
        idle: watched.machine.idle_share(),
    };
    outcome
}

/// The exact sum of a thread's time, with the proportions that the system's ticks tell.
fn scaled(ticks: CpuTime, seconds: f64) -> CpuTime {
    match ticks.total() {
        total if total > 0.0 => {
            CpuTime { user: seconds * ticks.user / total, system: seconds * ticks.system / total }
        }
        _ => CpuTime { user: 0.0, system: seconds },
    }
}

/// What limited the run, and whether its result means something. `evicted` items were lost rightly.
pub(super) fn conclude(plan: &Plan, outcome: &mut Outcome, evicted: Option<u64>) {
    outcome.evictions = evicted;
    if evicted != Some(0) {
        // Each item that is missing may be one of those.
        outcome.wrong.missing += std::mem::take(&mut outcome.wrong.lost);
        outcome.wrong.examples.retain(|example| !example.ends_with("is not there"));
    }
    outcome.limited_by = limit(plan, outcome).map(str::to_string);
    outcome.gates = gates(plan, outcome);
}

fn limit(plan: &Plan, outcome: &Outcome) -> Option<&'static str> {
    if outcome.seconds <= 0.0 {
        return None;
    }
    let generator = outcome.cpu.generator.total() / outcome.cpu.generator_limit.max(1e-9);
    if plan.arrivals.rate().is_some() && outcome.achieved() >= 0.999 {
        return Some("rate");
    }
    let is_remote = plan.addresses.iter().any(crate::target::Address::is_remote);
    // A server on this machine that is known to be idle is not the limit; of others, nothing is known.
    match (generator, outcome.cpu.server_busiest) {
        (generator, Some(server)) if server >= BUSY && server >= generator => Some("server"),
        (generator, _) if generator >= BUSY => Some("generator"),
        (_, None) if !is_remote => None,
        _ if is_remote => Some("network"),
        _ => Some("lock-step"),
    }
}

fn gates(plan: &Plan, outcome: &Outcome) -> Vec<Gate> {
    let gate = |name: &str, is_met: bool, found: String| Gate { name: name.to_string(), is_met, found };
    let generator = outcome.cpu.generator.total() / outcome.cpu.generator_limit.max(1e-9);
    let mut gates = vec![
        gate("requests were answered", outcome.requests > 0, outcome.requests.to_string()),
        gate("no errors", outcome.failures == 0, outcome.failures.to_string()),
        gate("no wrong replies", outcome.wrong.total() == 0, outcome.wrong.total().to_string()),
        gate("generator below 85 % of its CPUs", generator < BUSY, percent(generator)),
        gate("steal below 2 %", outcome.cpu.steal < STEAL_MAX, percent(outcome.cpu.steal)),
        gate(
            "came to its end",
            outcome.incomplete.is_none(),
            outcome.incomplete.clone().unwrap_or_else(|| "yes".to_string()),
        ),
    ];
    if plan.arrivals.rate().is_some() {
        let achieved = outcome.achieved();
        let slip = outcome.slip.quantile(0.99);
        gates.push(gate("99 % of the offered rate", achieved >= REACHED, percent(achieved)));
        gates.push(gate("slip p99 below 1 ms", slip < SLIP_NS_MAX, format!("{:.1} µs", slip as f64 / 1e3)));
    }
    if outcome.series.len() >= outcome::SERIES_MAX {
        gates.push(gate("a second in each interval", false, format!("{} intervals", outcome.series.len())));
    }
    gates
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
