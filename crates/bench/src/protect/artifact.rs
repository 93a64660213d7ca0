//! The files of the Orthrus experiments on memcached: the names and layouts that their scripts read.
//!
//! `parse-throughput.py`, `parse-latency_vs_pXX.py`, `memory.py`, `throughput.py`, `tail-latency.py` and
//! `validation-latency.py` of ICTPLSys/Orthrus and aoikida/Orthrus. Keys of ours stand beside theirs in JSON, which the
//! scripts pass over. Three quantities are computed as they should be, and not as there: latency counts from the time a
//! request was meant to be sent, percentiles of two phases are those of the merged histogram and not the mean of two
//! percentiles, and a rate is of a whole phase.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::latency::Histogram;
use crate::protect::system::System;

/// What the scripts look for.
pub const THROUGHPUT: &str = "memcached-throughput-report";
/// The memory report.
pub const MEMORY: &str = "memcached-mem-report";

/// What one phase (SET, UPDATE or GET) showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Requests that were answered.
    pub requests: u64,
    /// Of all of them together.
    pub seconds: f64,
    /// Nanoseconds from when a request was meant to be sent to its answer.
    pub latency: Histogram,
}

impl Phase {
    /// Requests per second; 0 when there were none.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// What one system did in the three phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// Every pair for the first time.
    pub set: Phase,
    /// Every pair once more.
    pub update: Phase,
    /// Reads with zipf-distributed keys.
    pub get: Phase,
}

impl Phases {
    /// The throughput that the experiments report: the mean of UPDATE's and GET's rates; with a share of reads, that
    /// of both phases together.
    pub fn throughput(&self, read_share: Option<f64>) -> f64 {
        match read_share {
            None => f64::midpoint(self.update.rate(), self.get.rate()),
            Some(_) => self.both().rate(),
        }
    }

    /// UPDATE and GET as if they were one phase.
    pub fn both(&self) -> Phase {
        let mut latency = self.update.latency.clone();
        latency.merge(&self.get.latency);
        Phase {
            requests: self.update.requests + self.get.requests,
            seconds: self.update.seconds + self.get.seconds,
            latency,
        }
    }
}

/// The figures of one system as the experiments' JSON has them, microseconds for latency.
pub fn dictionary(phases: &Phases, read_share: Option<f64>, ours: impl Serialize) -> Value {
    let both = phases.both();
    let quantile = |share| both.latency.quantile(share) as f64 / 1e3;
    let mut found = json!({
        "throughput": phases.throughput(read_share),
        "duration": null,
        "latency_req": {
            "avg": both.latency.mean() / 1e3,
            "p90": quantile(0.90),
            "p95": quantile(0.95),
            "p99": quantile(0.99),
        },
        "throughput_set": phases.set.rate(),
        "throughput_update": phases.update.rate(),
        "throughput_get": phases.get.rate(),
    });
    let all = found.as_object_mut().expect("an object was made");
    if let Some(share) = read_share {
        all.insert("read_pct".to_string(), json!(share));
        all.insert("nupdates".to_string(), json!(phases.update.requests));
    }
    all.insert("veracache".to_string(), serde_json::to_value(ours).unwrap_or(Value::Null));
    found
}

/// `memcached-throughput-report.txt`.
pub fn throughput_text(systems: &[(System, f64)]) -> String {
    systems.iter().fold(String::new(), |mut text, (system, throughput)| {
        let _ = writeln!(text, "{} running\nthroughput: {throughput:.1}", system.key());
        text
    })
}

/// `memcached-throughput-report.txt.json`.
pub fn throughput_json(systems: Vec<(System, Value)>) -> String {
    let all: Map<String, Value> =
        systems.into_iter().map(|(system, found)| (system.key().to_string(), found)).collect();
    pretty(&Value::Object(all))
}

/// `memcached-latency_vs_pXX-SYSTEM.json`: a list with one entry per rate.
pub fn latency_json(rates: Vec<Value>) -> String {
    pretty(&Value::Array(rates))
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("keys are texts");
    text.push('\n');
    text
}

/// What the experiments' client writes into its log.
pub fn client_log(groups: usize, clients: usize, gets_each: u64, phases: &Phases) -> String {
    let pairs = phases.set.requests;
    let mut text = format!(
        "client setting ngroups={groups}, nclients={clients}, nsets={pairs}, ngets={gets_each}, rps=0\n"
    );
    for (name, phase) in [("SET", &phases.set), ("UPDATE", &phases.update), ("GET", &phases.get)] {
        let quantile = |share| phase.latency.quantile(share);
        let (rate, mean) = (phase.rate(), phase.latency.mean());
        let _ = writeln!(
            text,
            "{name} put {rate:.0} avg {mean:.0} p90 {} p95 {} p99 {}",
            quantile(0.90),
            quantile(0.95),
            quantile(0.99)
        );
    }
    text
}

/// `memcached-validation_latency-SYSTEM.cdf`: HdrHistogram's classic text, in microseconds. The counts are those of
/// `stats validation_latency`.
pub fn validation_cdf(counts: &[(u64, u64)]) -> (String, Histogram) {
    let mut histogram = Histogram::new();
    for (latency_ns, count) in counts {
        histogram.record(*latency_ns, *count);
    }
    (histogram.hgrm(), histogram)
}

/// Memory of one system over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// KiB, in equal distances of time.
    pub kib: Vec<u64>,
}

impl Memory {
    /// The most; 0 when nothing was sampled.
    pub fn peak_kib(&self) -> u64 {
        self.kib.iter().copied().max().unwrap_or(0)
    }

    /// The mean, rounded down as there.
    pub fn mean_kib(&self) -> u64 {
        self.kib.iter().sum::<u64>() / (self.kib.len() as u64).max(1)
    }

    /// `memcached-memory_status-SYSTEM.log`, which `memory.py` reads.
    pub fn log(&self) -> String {
        self.kib.iter().fold(String::new(), |mut text, kib| {
            let _ = writeln!(text, "VmRSS:\t{kib:>8} kB");
            text
        })
    }
}

/// `memcached-mem-report.txt`. Ratios need vanilla, which comes first if it was measured.
pub fn memory_text(systems: &[(System, Memory)]) -> String {
    let mut text = String::from("\n=== Memory Stats ===\n");
    for (system, memory) in systems {
        let _ = writeln!(text, "Processing {}\nmax mem run :  {}", system.source(), memory.peak_kib());
    }
    let base = systems.iter().find(|(system, _)| *system == System::Vanilla).map(|(_, memory)| memory);
    for (title, of) in [("peak", Memory::peak_kib as fn(&Memory) -> u64), ("avg", Memory::mean_kib)] {
        let _ = writeln!(text, "----------  results({title})  ----------");
        let Some(base) = base.map(of).filter(|kib| *kib > 0) else { continue };
        // Theirs has Orthrus before SEI, and columns that this keeps.
        let order = [System::Orthrus, System::OrthrusSync, System::Sei, System::Rbv, System::RbvSync];
        for system in order {
            let Some((_, memory)) = systems.iter().find(|(other, _)| *other == system) else { continue };
            let head = format!("ratio ({} vs Vanilla):", system.title());
            let ratio = of(memory) as f64 / base as f64;
            // Where their `print` puts them.
            let width = if head.len() < 28 { 29 } else { 36 };
            let _ = writeln!(text, "{head:<width$}{ratio:?}");
        }
    }
    text
}

#[cfg(test)]
mod tests;
