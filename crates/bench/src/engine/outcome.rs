//! What a run found. Outcomes of several hosts are merged: counts are added, histograms joined, nothing is averaged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latency::Histogram;
use crate::record::Gate;
use crate::watch::CpuTime;

/// Examples of wrong replies that are kept.
pub(super) const EXAMPLES_MAX: usize = 10;

/// Intervals of a series at most; what comes later counts in the last.
pub(super) const SERIES_MAX: usize = 3600;

/// What was measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Outcome {
    /// Requests answered, warm-up not counted.
    pub requests: u64,
    /// Keys in them; more than requests if one asks for several.
    pub keys: u64,
    /// From the end of the warm-up to the last reply.
    pub seconds: f64,
    /// Requests per second that were asked for; nothing in a closed loop.
    pub offered: Option<f64>,
    /// Requests whose time came but that could not be sent before the end.
    pub unsent: u64,
    /// Requests that the server refused with an error.
    pub failures: u64,
    /// Each kind of request, by the name of its entry in the mix.
    pub operations: BTreeMap<String, Operations>,
    /// From the time a request was meant to be sent to its reply. In a closed loop the same as `service`.
    pub response: Histogram,
    /// From the time a request was written to its reply.
    pub service: Histogram,
    /// From the time a request was meant to be sent to when it was written: the generator's own delay, and the wait
    /// for a connection. Empty in a closed loop, which has no intentions.
    pub slip: Histogram,
    /// What it cost.
    pub cpu: Cpu,
    /// Replies that can't be right.
    pub wrong: Wrong,
    /// What kept the result from being higher: `rate`, `server`, `generator`, `network`, `lock-step`.
    pub limited_by: Option<String>,
    /// What must hold for the result to mean something.
    pub gates: Vec<Gate>,
    /// Second by second.
    pub series: Vec<Interval>,
    /// Why it ended early, if it did.
    pub incomplete: Option<String>,
    /// Items that the servers evicted meanwhile, where they tell.
    pub evictions: Option<u64>,
    /// Seconds that storing every key once took.
    pub prefill_seconds: f64,
}

/// One kind of request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Operations {
    /// How many were answered.
    pub requests: u64,
    /// Keys in them.
    pub keys: u64,
    /// Keys that were found, or commands that were done.
    pub hits: u64,
    /// Keys that were not found.
    pub misses: u64,
    /// Refused by the command's own rules: `NOT_STORED`, `EXISTS`.
    pub refused: u64,
    /// Refused with an error.
    pub failures: u64,
    /// From the intended time to the reply.
    pub response: Histogram,
}

/// CPU time during the measurement.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Cpu {
    /// Of the generator's threads.
    pub generator: CpuTime,
    /// The most that the generator's threads could have used.
    pub generator_limit: f64,
    /// Of the server with its children, where it runs here and its process is known.
    pub server: Option<CpuTime>,
    /// The share of the time in which the server's busiest thread ran, 0 to 1.
    pub server_busiest: Option<f64>,
    /// The share of the machine's CPU time that its host took, 0 to 1.
    pub steal: f64,
    /// The share of the machine's CPU time in which there was nothing to do, 0 to 1.
    pub idle: f64,
}

/// Replies that can't be right. Only a run that verifies finds all kinds of them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Wrong {
    /// Values that nobody wrote.
    pub broken: u64,
    /// Values of another key, or a key that was not asked for.
    pub foreign: u64,
    /// Whole values that were overwritten, or deleted, before they were asked for.
    pub stale: u64,
    /// Values that are shorter or longer than what was written.
    pub truncated: u64,
    /// Keys that were stored, are not there, and were neither deleted nor may have expired or been evicted.
    pub lost: u64,
    /// Replies that the command can't have, or that nobody asked for.
    pub protocol: u64,
    /// Keys that are missing, which is no fault: the servers evicted some, or do not tell.
    pub missing: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
}

impl Wrong {
    /// All that is a fault.
    pub fn total(&self) -> u64 {
        self.broken + self.foreign + self.stale + self.truncated + self.lost + self.protocol
    }

    /// Each kind that is a fault, with its name.
    pub fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("wrong value", self.broken),
            ("foreign value", self.foreign),
            ("stale version", self.stale),
            ("truncated", self.truncated),
            ("lost write", self.lost),
            ("wrong reply", self.protocol),
        ]
    }

    /// Adds those of another one.
    pub fn merge(&mut self, other: &Wrong) {
        self.broken += other.broken;
        self.foreign += other.foreign;
        self.stale += other.stale;
        self.truncated += other.truncated;
        self.lost += other.lost;
        self.protocol += other.protocol;
        self.missing += other.missing;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }
}

/// A second of a run, as a rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Interval {
    /// Seconds from the end of the warm-up to its beginning.
    pub at: f64,
    /// Requests answered in it.
    pub requests: u64,
    /// Of these, refused with an error.
    pub failures: u64,
    /// From the intended times to the replies that came in it.
    pub response: Histogram,
}

impl Operations {
    /// Adds those of another one.
    pub fn merge(&mut self, other: &Operations) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.hits += other.hits;
        self.misses += other.misses;
        self.refused += other.refused;
        self.failures += other.failures;
        self.response.merge(&other.response);
    }
}

impl Outcome {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }

    /// The share of what was offered that was done; 1 in a closed loop.
    pub fn achieved(&self) -> f64 {
        let all = self.requests + self.unsent;
        match self.offered {
            Some(_) if all > 0 => self.requests as f64 / all as f64,
            _ => 1.0,
        }
    }

    /// Adds what another generator found at the same time, on the same servers. What limited them is kept if they
    /// agree, and the gates of both are kept.
    pub fn merge(&mut self, other: &Outcome) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.seconds = self.seconds.max(other.seconds);
        self.offered = match (self.offered, other.offered) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        self.unsent += other.unsent;
        self.failures += other.failures;
        for (name, operations) in &other.operations {
            self.operations.entry(name.clone()).or_default().merge(operations);
        }
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
        self.cpu.merge(&other.cpu);
        self.wrong.merge(&other.wrong);
        if self.limited_by != other.limited_by {
            self.limited_by = None;
        }
        self.gates.extend(other.gates.iter().cloned());
        merge_series(&mut self.series, &other.series);
        if self.incomplete.is_none() {
            self.incomplete.clone_from(&other.incomplete);
        }
        // They asked the same servers, whose evictions both saw.
        self.evictions = self.evictions.max(other.evictions);
        self.prefill_seconds = self.prefill_seconds.max(other.prefill_seconds);
    }
}

impl Cpu {
    fn merge(&mut self, other: &Cpu) {
        self.generator = self.generator.plus(other.generator);
        self.generator_limit += other.generator_limit;
        self.server = self.server.or(other.server);
        self.server_busiest = self.server_busiest.or(other.server_busiest);
        self.steal = self.steal.max(other.steal);
        self.idle = self.idle.min(other.idle);
    }
}

/// Adds interval by interval; they begin at the same times.
pub(super) fn merge_series(series: &mut Vec<Interval>, other: &[Interval]) {
    for (number, interval) in other.iter().enumerate() {
        match series.get_mut(number) {
            Some(ours) => {
                ours.requests += interval.requests;
                ours.failures += interval.failures;
                ours.response.merge(&interval.response);
            }
            None => series.push(interval.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(latency_ns: u64, times: u64) -> Outcome {
        let mut response = Histogram::new();
        response.record(latency_ns, times);
        let operations = Operations { requests: times, response: response.clone(), ..Operations::default() };
        let series = vec![Interval { requests: times, response: response.clone(), ..Interval::default() }];
        Outcome {
            requests: times,
            seconds: 2.0,
            offered: Some(100.0),
            unsent: times,
            operations: BTreeMap::from([("get".to_string(), operations)]),
            response,
            wrong: Wrong { stale: 1, examples: vec!["one".to_string(); 7], ..Wrong::default() },
            limited_by: Some("rate".to_string()),
            series,
            ..Outcome::default()
        }
    }

    #[test]
    fn merged_histograms_are_joined() {
        let mut merged = outcome(1000, 99);
        merged.merge(&outcome(1_000_000, 1));
        assert_eq!((merged.requests, merged.offered), (100, Some(200.0)));
        assert_eq!(merged.response.quantile(0.99), 1000);
        assert!(merged.response.quantile(0.999) > 999_000);
        assert_eq!(merged.operations["get"].requests, 100);
        assert_eq!(merged.series[0].requests, 100);
        assert_eq!((merged.wrong.total(), merged.wrong.examples.len()), (2, EXAMPLES_MAX));
        assert_eq!(merged.limited_by.as_deref(), Some("rate"));
        assert!((merged.rate() - 50.0).abs() < 1e-9);
        assert!((merged.achieved() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn an_outcome_comes_back() {
        let json = serde_json::to_string(&outcome(1000, 99)).unwrap();
        let back: Outcome = serde_json::from_str(&json).unwrap();
        assert_eq!(back.response, outcome(1000, 99).response);
        assert_eq!(serde_json::to_string(&back).unwrap(), json);
    }
}
