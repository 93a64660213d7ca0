//! The load generator: connections, threads and arrivals, and what comes of them.
//!
//! [`run`] does what a [`Plan`] says and returns an [`Outcome`]. In a closed loop every connection sends its next
//! request as soon as a reply makes room; in an open loop requests have times of their own, whatever the server does,
//! and latency counts from these (`response`) as well as from the write (`service`). What lies between the two is the
//! `slip`. An arrival that finds every connection full waits, and its wait is part of its response time.

mod connection;
mod issuer;
mod judge;
mod ledger;
mod outcome;
mod plan;
mod sheet;
mod verdict;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use connection::{Connection, Space};
use issuer::Issuer;
use ledger::{Ledger, Tally};
use sheet::Sheet;
use worker::{Phase, Report, Worker};

use crate::error::Error;
use crate::interrupt;
use crate::keys::parse_key;
use crate::target;
use crate::values::{Maker, VALUE_BYTES_MAX};
use crate::watch::{Machine, Processes};
use crate::workload::Operation;

pub use outcome::{Cpu, Interval, Operations, Outcome, Wrong};
pub use plan::{Arrivals, CONNECTIONS_MAX, DEPTH_MAX, Keys, Length, Plan, THREADS_MAX, WIDTH_MAX};

/// How often progress is told.
const PERIOD: Duration = Duration::from_millis(100);

/// How often it is looked whether the threads are done.
const LOOK: Duration = Duration::from_millis(5);

/// What a run is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Every key is stored once.
    Prefill,
    /// Requests are sent and not counted.
    Warmup,
    /// Requests are counted.
    Measure,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Seconds since that began.
    pub seconds: f64,
    /// How much of it is done, 0 to 1.
    pub share: f64,
    /// Requests answered in the measurement, or items stored in the prefill.
    pub requests: u64,
    /// Of these, refused with an error.
    pub failures: u64,
    /// Replies that can't be right.
    pub wrong: u64,
}

/// What all threads use and none changes, but for atomics.
#[derive(Debug)]
struct Shared {
    plan: Plan,
    maker: Maker,
    /// What was written, if replies are verified.
    ledger: Option<Ledger>,
    tallies: Box<[Tally]>,
    /// Counters, and joined values.
    others: u64,
    counts: bool,
    joins: bool,
    /// Whether an item may vanish without anybody's fault.
    may_vanish: bool,
    prefix: Vec<u8>,
    counter_prefix: Vec<u8>,
    joined_prefix: Vec<u8>,
    stop: AtomicBool,
}

impl Shared {
    fn new(plan: &Plan) -> Self {
        let mix = &plan.mix;
        let counts = mix.has(|operation| matches!(operation, Operation::Incr | Operation::Decr));
        let joins = mix.has(|operation| matches!(operation, Operation::Append | Operation::Prepend));
        let touches = |operation| matches!(operation, Operation::Touch | Operation::Gat | Operation::Gats);
        let is_mortal = plan.ttl.largest(u64::MAX) > 0;
        let others = plan.others();
        let tallies = if plan.verify && counts { others } else { 0 };
        let prefix = plan.keys.prefix.as_bytes();
        Shared {
            maker: Maker::new(plan.seed, plan.values.largest(VALUE_BYTES_MAX)),
            ledger: plan.verify.then(|| Ledger::new(plan.keys.count)),
            tallies: (0..tallies).map(|_| Tally::default()).collect(),
            others,
            counts,
            joins,
            may_vanish: (is_mortal && mix.has(touches)) || mix.has(|operation| operation == Operation::Flush),
            prefix: prefix.to_vec(),
            counter_prefix: [prefix, b"c"].concat(),
            joined_prefix: [prefix, b"j"].concat(),
            stop: AtomicBool::new(false),
            plan: plan.clone(),
        }
    }

    /// What is known of a counter, if it is verified.
    fn tally(&self, key: u64) -> Option<&Tally> {
        self.tallies.get(usize::try_from(key).ok()?)
    }

    /// Which key this is; nothing if it is none of the run's.
    #[inline]
    fn parse_key(&self, key: &[u8]) -> Option<(Space, u64)> {
        if let Some(number) = parse_key(key, &self.prefix) {
            return Some((Space::Main, number));
        }
        let counter = || Some((Space::Counter, parse_key(key, &self.counter_prefix)?));
        counter().or_else(|| Some((Space::Joined, parse_key(key, &self.joined_prefix)?)))
    }

    /// A key in words, for examples.
    fn name(&self, space: Space, key: u64) -> String {
        match space {
            Space::Main => format!("key {key}"),
            Space::Counter => format!("counter {key}"),
            Space::Joined => format!("joined value {key}"),
        }
    }
}

/// What one thread has done so far, for progress.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    wrong: AtomicU64,
}

impl Counters {
    fn note(&self, sheet: &Sheet) {
        self.requests.store(sheet.requests, Ordering::Relaxed);
        self.failures.store(sheet.failures, Ordering::Relaxed);
        // What is lost may yet turn out to have been evicted.
        self.wrong.store(sheet.wrong.total() - sheet.wrong.lost, Ordering::Relaxed);
    }
}

/// Does what the plan says; `progress` is told how far it is, several times a second.
///
/// An error means that nothing was measured: the plan can't be done, or a server not be reached. A run that was
/// interrupted or whose server failed has an outcome, which says so in `incomplete`.
pub fn run(plan: &Plan, progress: &dyn Fn(&Progress)) -> Result<Outcome, Error> {
    plan.check()?;
    let shared = Shared::new(plan);
    let mut connections = connect(plan)?;
    let evictions = evictions(plan);
    let mut issuers: Vec<Issuer<'_>> =
        (0..plan.threads).map(|part| Issuer::new(&shared, part.into())).collect();
    let mut prefill_seconds = 0.0;
    if plan.prefill {
        let phase = Phase { began: Instant::now(), fills: true, counts_from: 0, interval_ns: u64::MAX / 2 };
        let reports = run_phase(&shared, &mut connections, &mut issuers, &phase, progress).0;
        prefill_seconds = phase.began.elapsed().as_secs_f64();
        verdict::check_prefill(&reports)?;
        if interrupt::is_requested() {
            return Err(Error::Interrupted);
        }
    }
    let phase = Phase {
        began: Instant::now(),
        fills: false,
        counts_from: worker::nanoseconds(plan.warmup),
        interval_ns: interval_ns(plan),
    };
    let (reports, watched) = run_phase(&shared, &mut connections, &mut issuers, &phase, progress);
    let mut outcome = verdict::sum_up(plan, reports, &phase, &watched);
    outcome.prefill_seconds = prefill_seconds;
    if interrupt::is_requested() {
        outcome.incomplete = Some("interrupted".to_string());
    }
    let evicted = evictions.zip(self::evictions(plan)).map(|(before, after)| after.saturating_sub(before));
    verdict::conclude(plan, &mut outcome, evicted);
    Ok(outcome)
}

/// Opens all connections; those of a thread follow each other, and servers take turns.
fn connect(plan: &Plan) -> Result<Vec<Connection>, Error> {
    let servers = plan.addresses.len() as u64;
    let all = u64::from(plan.connections);
    (0..all)
        .map(|number| {
            if interrupt::is_requested() {
                return Err(Error::Interrupted);
            }
            let server = number % servers;
            let address = &plan.addresses[server as usize];
            let stream = address.connect(plan.patience)?;
            let ready = stream.set_nonblocking();
            ready.map_err(Error::io(format!("a connection to {address}")))?;
            let places = (all - server).div_ceil(servers);
            Ok(Connection::new(stream.into(), server, (number / servers, places)))
        })
        .collect()
}

/// Items that all servers have evicted, by their own account; nothing if one does not tell.
fn evictions(plan: &Plan) -> Option<u64> {
    if !plan.verify {
        return None;
    }
    let count = |address| target::number(&target::stats(address, "").ok()?, "evictions");
    plan.addresses.iter().map(count).sum()
}

/// A second; more in a long run, so that the intervals stay few.
fn interval_ns(plan: &Plan) -> u64 {
    let seconds = match plan.length {
        Length::Time(time) => time.as_secs().div_ceil(outcome::SERIES_MAX as u64).max(1),
        Length::Requests(_) => 1,
    };
    seconds * 1_000_000_000
}

/// What was seen of processes and machine between the end of the warm-up and that of the phase.
#[derive(Debug, Default)]
struct Watched {
    machine: Machine,
    server: Option<crate::watch::CpuTime>,
    server_busiest: Option<f64>,
}

/// What processes and the machine had used at a moment.
struct Moment {
    at: Instant,
    machine: Machine,
    server: Option<(crate::watch::CpuTime, Vec<(u32, crate::watch::CpuTime)>)>,
}

impl Moment {
    fn now(server: Option<Processes>) -> Self {
        let server = server.map(|server| (server.cpu(), server.threads()));
        Moment { at: Instant::now(), machine: Machine::now(), server }
    }

    fn until(&self, later: &Moment) -> Watched {
        let seconds = (later.at - self.at).as_secs_f64();
        let both = self.server.as_ref().zip(later.server.as_ref());
        let busiest = both.map(|((_, before), (_, after))| {
            let used = after.iter().map(|(thread, cpu)| {
                let earlier = before.iter().find(|(known, _)| known == thread);
                cpu.since(earlier.map(|(_, cpu)| *cpu).unwrap_or_default()).total()
            });
            used.fold(0.0, f64::max) / seconds.max(1e-3)
        });
        Watched {
            machine: later.machine.since(self.machine),
            server: both.map(|((before, _), (after, _))| after.since(*before)),
            server_busiest: busiest,
        }
    }
}

/// Runs all threads through a phase, and watches them.
fn run_phase<'s>(
    shared: &'s Shared,
    connections: &mut [Connection],
    issuers: &mut [Issuer<'s>],
    phase: &Phase,
    progress: &dyn Fn(&Progress),
) -> (Vec<Report>, Watched) {
    let threads = issuers.len();
    let counters: Vec<Counters> = (0..threads).map(|_| Counters::default()).collect();
    let server = shared.plan.server_pid.and_then(|pid| Processes::of(pid).ok());
    let mut rest = connections;
    thread::scope(|scope| {
        let mut running = Vec::new();
        let mut taken = 0;
        for (part, (issuer, counters)) in issuers.iter_mut().zip(&counters).enumerate() {
            let end = (shared.plan.connections as usize) * (part + 1) / threads;
            let (own, others) = rest.split_at_mut(end - taken);
            (rest, taken) = (others, end);
            running.push(scope.spawn(move || {
                Worker { shared, counters, part: part as u64, connections: own, issuer }.run(phase)
            }));
        }
        let mut first = Moment::now(server);
        let mut is_warm = phase.counts_from == 0;
        let mut told = Instant::now();
        while !running.iter().all(|thread| thread.is_finished()) {
            if interrupt::is_requested() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let now = worker::nanoseconds(phase.began.elapsed());
            if !is_warm && now >= phase.counts_from {
                (first, is_warm) = (Moment::now(server), true);
            }
            if told.elapsed() >= PERIOD {
                told = Instant::now();
                progress(&how_far(shared, phase, &counters, now));
            }
            thread::sleep(LOOK);
        }
        let watched = first.until(&Moment::now(server));
        let reports = running.into_iter().map(|thread| match thread.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (reports.collect(), watched)
    })
}

fn how_far(shared: &Shared, phase: &Phase, counters: &[Counters], now: u64) -> Progress {
    let sum = |count: fn(&Counters) -> &AtomicU64| -> u64 {
        counters.iter().map(|counters| count(counters).load(Ordering::Relaxed)).sum()
    };
    let requests = sum(|counters| &counters.requests);
    let stage = match () {
        () if phase.fills => Stage::Prefill,
        () if now < phase.counts_from => Stage::Warmup,
        () => Stage::Measure,
    };
    let began = if stage == Stage::Measure { phase.counts_from } else { 0 };
    let seconds = (now - began) as f64 / 1e9;
    let share = match (stage, shared.plan.length) {
        (Stage::Prefill, _) => requests as f64 / shared.plan.keys.count as f64,
        (Stage::Warmup, _) => now as f64 / phase.counts_from as f64,
        (Stage::Measure, Length::Time(time)) => seconds / time.as_secs_f64(),
        (Stage::Measure, Length::Requests(count)) => requests as f64 / count as f64,
    };
    Progress {
        stage,
        seconds,
        share: share.clamp(0.0, 1.0),
        requests,
        failures: sum(|counters| &counters.failures),
        wrong: sum(|counters| &counters.wrong),
    }
}

#[cfg(test)]
mod tests;
