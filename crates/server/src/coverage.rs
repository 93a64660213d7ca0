//! How much of what was executed was validated: the numbers that `stats integrity` shows of it.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use guard::{Core, Stratum};
use hdrhistogram::Histogram;

use crate::placement::Cpus;
use crate::replica;
use crate::shadow::{Counts, Follower, SHARES, Share};
use crate::shared::{Shared, locked};
use crate::strata::{self, STRATA};
use crate::validator::RING_LINES;

/// What is known of validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    protect: &'static str,
    is_sync: bool,
    total: Part,
    /// By stratum.
    parts: Vec<Part>,
    dropped: u64,
    repeated: u64,
    lost: u64,
    ring_lines: u64,
    ring_lines_waiting: u64,
    /// p50, p99 and p99.9, in nanoseconds; none before there was any.
    latency_ns: Option<[u64; 3]>,
    workers: Vec<Core>,
    validators: Vec<Core>,
    independence: String,
    shadow: Option<(Counts, Share)>,
    replica: replica::Report,
}

/// What is known of some executions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    executed: u64,
    recorded: u64,
    validated: u64,
    abandoned: u64,
    disagreed: u64,
    share_now: f32,
}

impl Report {
    pub(crate) fn of(shared: &Shared) -> Self {
        let parts: Vec<Part> = (0..STRATA).map(|stratum| part(shared, stratum)).collect();
        let total = parts.iter().fold(Part::default(), |sum, part| Part {
            executed: sum.executed + part.executed,
            recorded: sum.recorded + part.recorded,
            validated: sum.validated + part.validated,
            abandoned: sum.abandoned + part.abandoned,
            disagreed: sum.disagreed + part.disagreed,
            share_now: 0.0,
        });
        let validations = &shared.validations;
        let cores = |of: fn(&crate::validator::Validation) -> u64| {
            let mut cores: Vec<Core> = validations.iter().map(|it| Core(of(it) as u16)).collect();
            cores.sort();
            cores.dedup();
            cores
        };
        let workers = cores(|validation| validation.worker_core.load(Relaxed));
        let validators = cores(|validation| validation.validator_core.load(Relaxed));
        let independence = match validations.is_empty() {
            true => "none".to_string(),
            false => shared.reaction.topology().independence(&workers, &validators).to_string(),
        };
        Report {
            protect: shared.settings.protect.name(),
            is_sync: shared.settings.protect_sync && shared.settings.records(),
            total,
            parts,
            dropped: shared.coverages.iter().map(|coverage| coverage.dropped.read()).sum(),
            repeated: shared.coverages.iter().map(|coverage| coverage.repeated.read()).sum(),
            lost: validations.iter().map(|validation| validation.tally.lost()).sum(),
            ring_lines: (validations.len() * RING_LINES) as u64,
            ring_lines_waiting: validations.iter().map(|it| it.waiting_lines.load(Relaxed)).sum(),
            latency_ns: latency(shared),
            workers,
            validators,
            independence,
            shadow: shared.follower.as_ref().map(Follower::counts),
            replica: shared.replica.report(),
        }
    }

    /// Calls `put` with each statistic.
    pub(crate) fn each(&self, put: &mut dyn FnMut(&str, fmt::Arguments<'_>)) {
        put("protect", format_args!("{}", self.protect));
        put("protect_sync", format_args!("{}", u8::from(self.is_sync)));
        if self.ring_lines == 0 {
            return;
        }
        let total = &self.total;
        put("executed", format_args!("{}", total.executed));
        put("recorded", format_args!("{}", total.recorded));
        put("validated", format_args!("{}", total.validated));
        let skipped = total.executed.saturating_sub(total.recorded + self.dropped + self.repeated);
        put("skipped", format_args!("{skipped}"));
        put("dropped", format_args!("{}", self.dropped));
        put("abandoned", format_args!("{}", total.abandoned + self.lost));
        put("repeated", format_args!("{}", self.repeated));
        put("share", format_args!("{:.4}", total.share()));
        for (stratum, part) in self.parts.iter().enumerate().filter(|(_, part)| part.executed > 0) {
            let name = strata::name(stratum);
            put(&format!("executed:{name}"), format_args!("{}", part.executed));
            put(&format!("validated:{name}"), format_args!("{}", part.validated));
            put(&format!("share:{name}"), format_args!("{:.4}", part.share()));
            put(&format!("share_now:{name}"), format_args!("{:.4}", part.share_now));
        }
        for (name, at) in [("p50", 0), ("p99", 1), ("p99.9", 2)] {
            if let Some(latency) = &self.latency_ns {
                put(&format!("validation_us_{name}"), format_args!("{:.3}", latency[at] as f64 / 1000.0));
            }
        }
        put("ring_lines", format_args!("{}", self.ring_lines));
        put("ring_lines_waiting", format_args!("{}", self.ring_lines_waiting));
        if let Some((counts, share)) = &self.shadow {
            put("shadow_share", format_args!("{:.4}", 1.0 / f64::from(SHARES)));
            put("shadow_turn", format_args!("{}", share.number()));
            put("shadow_keys", format_args!("{}", counts.keys));
            put("shadow_checked", format_args!("{}", counts.checked));
            put("shadow_lost", format_args!("{}", counts.lost));
            put("shadow_stale", format_args!("{}", counts.stale));
            put("shadow_resurrected", format_args!("{}", counts.resurrected));
            put("shadow_no_room", format_args!("{}", counts.no_room + counts.passed_over));
            put("shadow_forgotten", format_args!("{}", counts.forgotten));
        }
        self.replica.each(put);
        put("independence", format_args!("{}", self.independence));
        put("worker_cores", format_args!("{}", Cpus(&self.workers)));
        put("validator_cores", format_args!("{}", Cpus(&self.validators)));
    }
}

impl Part {
    /// The share of what was executed that was validated; 1 when nothing was executed.
    fn share(&self) -> f64 {
        if self.executed == 0 {
            return 1.0;
        }
        (self.validated + self.disagreed) as f64 / self.executed as f64
    }
}

fn part(shared: &Shared, stratum: usize) -> Part {
    let mut part = Part::default();
    for (coverage, validation) in shared.coverages.iter().zip(&shared.validations) {
        let counted = validation.tally.counted(Stratum(stratum as u8));
        let coverage = &coverage.strata[stratum];
        part.executed += coverage.executed.read();
        part.recorded += coverage.recorded.read();
        part.validated += counted.validated;
        part.abandoned += counted.abandoned;
        part.disagreed += counted.disagreements;
        part.share_now = part.share_now.max(coverage.share());
    }
    part
}

/// How long validations took, since the start: nanoseconds, rounded up as the histogram does it, and how many took that.
pub(crate) fn latencies(shared: &Shared) -> Vec<(u64, u64)> {
    let Some(merged) = merged_latency(shared) else { return Vec::new() };
    let rows = merged.iter_recorded();
    rows.map(|row| (row.value_iterated_to(), row.count_since_last_iteration())).collect()
}

fn latency(shared: &Shared) -> Option<[u64; 3]> {
    let merged = merged_latency(shared)?;
    Some([0.5, 0.99, 0.999].map(|quantile| merged.value_at_quantile(quantile)))
}

/// That of all validators: histograms are merged, and percentiles never averaged. None before there is any.
fn merged_latency(shared: &Shared) -> Option<Histogram<u64>> {
    let mut merged: Option<Histogram<u64>> = None;
    for validation in &shared.validations {
        let latency = locked(&validation.latency_ns);
        match &mut merged {
            Some(merged) => merged.add(&*latency).ok()?,
            None => merged = Some(latency.clone()),
        }
    }
    merged.filter(|merged| !merged.is_empty())
}
