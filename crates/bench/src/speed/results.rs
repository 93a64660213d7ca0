//! What a speed test leaves in its record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::Gate;
use crate::report::figures::{
    Bar, Bars, Cell, Column, Content, Distribution, Figure, Percentiles, Shown, Table,
};
use crate::speed::layout;
use crate::speed::measure::Measured;
use crate::speed::phases::Phase;

/// Percentiles of the picture; the axis is logarithmic in what is left to 100.
const PERCENTILES: [f64; 9] = [0.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// What was asked for, and what every phase came to.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Results {
    /// `speed` or `cmd-bench`.
    pub preset: String,
    /// `meta` or `text`.
    pub protocol: String,
    /// Where the server listened.
    pub server: String,
    /// Workers, each with one outstanding request.
    pub concurrency: usize,
    /// Operations asked for per phase; what does not divide by the workers is dropped, as upstream does.
    pub count: u64,
    /// The random part of all keys.
    pub uid: u64,
    /// In the order they ran. The last one may be cut short.
    pub phases: Vec<PhaseResult>,
    /// What a report shows.
    #[serde(flatten)]
    pub shown: Shown,
}

/// One phase.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PhaseResult {
    /// As upstream calls it.
    pub name: String,
    /// Keys of one operation.
    pub items_per_operation: u64,
    /// Operations done, those without an answer included.
    pub count: u64,
    /// From before the first worker started until the last one had ended.
    pub duration_ns: u64,
    /// Upstream's column: `duration_ns / count` (`speed`), which is one over the throughput and no latency, or
    /// `duration_ns` over the operations of one worker (`cmd-bench`).
    pub upstream_average_ns: u64,
    /// Of single operations.
    pub latency_ns: Latency,
    /// Errors the server answered, and requests without an answer.
    pub errors: u64,
    /// Found where nothing must be, or the other way round.
    pub unexpected: u64,
    /// Values that nobody stored there.
    pub wrong: u64,
    /// The first of these, in words.
    pub first_flaw: Option<String>,
    /// Percentile and nanoseconds at it.
    pub percentiles: Vec<[f64; 2]>,
}

/// Nanoseconds from before the write to behind the reply.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[allow(missing_docs, reason = "the fields are the words for them")]
pub struct Latency {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl PhaseResult {
    /// Judges nothing; turns what was measured into numbers. `divisor` is what upstream divides by.
    pub(crate) fn new(phase: &Phase, measured: &Measured, divisor: u64) -> Self {
        let latency = &measured.latency;
        let duration_ns = nanoseconds(measured.duration);
        PhaseResult {
            name: phase.name.to_string(),
            items_per_operation: phase.items,
            count: measured.count,
            duration_ns,
            upstream_average_ns: duration_ns / divisor.max(1),
            latency_ns: Latency {
                mean: latency.mean(),
                p50: latency.value_at_quantile(0.5),
                p90: latency.value_at_quantile(0.9),
                p99: latency.value_at_quantile(0.99),
                p99_9: latency.value_at_quantile(0.999),
                max: latency.max(),
            },
            errors: measured.flaws.errors,
            unexpected: measured.flaws.unexpected,
            wrong: measured.flaws.wrong,
            first_flaw: measured.flaws.first.clone(),
            percentiles: PERCENTILES
                .map(|percentile| [percentile, latency.value_at_percentile(percentile) as f64])
                .to_vec(),
        }
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / (self.duration_ns.max(1) as f64 / 1e9)
    }
}

/// Whole nanoseconds; 584 years are enough.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Results {
    /// What must hold for the numbers to mean something.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let gate = |name: &str, of: fn(&PhaseResult) -> u64, total: u64| {
            let found: u64 = self.phases.iter().map(of).sum();
            Gate { name: name.to_string(), is_met: found == 0, found: format!("{found} of {total}") }
        };
        let total = self.phases.iter().map(|phase| phase.count).sum();
        vec![
            gate("no errors", |phase| phase.errors, total),
            gate("found what its phase says", |phase| phase.unexpected, total),
            gate("every value as it was set", |phase| phase.wrong, total),
        ]
    }

    /// Fills in what a report shows.
    pub(crate) fn draw(&mut self) {
        let verdict =
            self.phases.iter().find(|phase| ["Get (hit)", "get-hit"].contains(&phase.name.as_str()));
        let verdict = verdict.or(self.phases.first()).map_or_else(
            || "Nothing was measured.".to_string(),
            |phase| {
                let (rate, workers) = (phase.rate(), self.concurrency);
                let p99 = layout::duration(phase.latency_ns.p99);
                format!("{}: {rate:.0} operations per second with {workers} workers, p99 {p99}.", phase.name)
            },
        );
        let figures = if self.phases.is_empty() {
            Vec::new()
        } else {
            vec![self.bars(&verdict), self.percentiles(), self.table()]
        };
        self.shown = Shown { verdict, figures };
    }

    fn bars(&self, verdict: &str) -> Figure {
        let bar = |phase: &PhaseResult| Bar {
            group: phase.name.clone(),
            rounds: vec![phase.rate()],
            ..Bar::of(self.server.clone())
        };
        let bars = self.phases.iter().map(bar).collect();
        Figure::new(
            "Operations per second by phase",
            format!("One bar per phase. {verdict}"),
            Content::Bars(Bars { unit: "op/s".to_string(), bars }),
        )
        .with_note("One run. Every worker waits for each answer before it asks again.")
    }

    fn percentiles(&self) -> Figure {
        let line = |phase: &PhaseResult| Distribution {
            system: phase.name.clone(),
            name: String::new(),
            count: phase.count - phase.errors.min(phase.count),
            rows: phase.percentiles.clone(),
        };
        let lines = self.phases.iter().map(line).collect();
        let slowest = self.phases.iter().max_by_key(|phase| phase.latency_ns.p99);
        let slowest = slowest.map_or(String::new(), |phase| {
            format!("{} has the highest p99: {}.", phase.name, layout::duration(phase.latency_ns.p99))
        });
        Figure::new(
            "Latency of single operations by phase",
            format!("One line per phase. {slowest}"),
            Content::Percentiles(Percentiles { unit: "ns".to_string(), is_log: true, lines }),
        )
        .with_note("From before the write to behind the reply; the first phase pays for connecting.")
    }

    fn table(&self) -> Figure {
        let columns = ["Operation", "Count", "Duration", "Ops/sec", "Avg Latency"].map(Column::plain);
        let further = ["Mean", "p50", "p99", "p99.9", "Max"].map(|name| Column::of(name, "ns"));
        let flaws = ["Errors", "Unexpected", "Wrong"].map(Column::plain);
        let row = |phase: &PhaseResult| {
            let latency = &phase.latency_ns;
            let mut row: Vec<Cell> = vec![
                phase.name.clone().into(),
                layout::number(phase.count).into(),
                layout::duration(phase.duration_ns).into(),
                layout::number(phase.rate() as u64).into(),
                layout::duration(phase.upstream_average_ns).into(),
                latency.mean.into(),
            ];
            let numbers = [
                latency.p50,
                latency.p99,
                latency.p99_9,
                latency.max,
                phase.errors,
                phase.unexpected,
                phase.wrong,
            ];
            row.extend(numbers.map(|number| Cell::Number(number as f64)));
            row
        };
        let rows = self.phases.iter().map(row).collect();
        let columns = columns.into_iter().chain(further).chain(flaws).collect();
        Figure::new(
            "Memcache Speed Test",
            "The table of the Memcache Speed Test, with latencies and flaws.",
            Content::Table(Table { columns, rows }),
        )
        .with_note("Avg Latency is upstream's column: duration by count, so one over the throughput; Mean is measured.")
    }
}
