//! Validators: threads that repeat what workers executed, from the records these leave, and compare.
//!
//! A validator serves one worker or several. It takes some records at a time from each in turn; while it does, what they
//! point to can't be used again, so it is short. Between them it spins for a while if it has a core of its own, and
//! sleeps. What does not agree is settled in [`crate::reaction`], and nothing else of that worker's is looked at before.
//!
//! Limits: a worker's ring has [`RING_LINES`] lines. A validator that lags makes nobody wait: what finds the ring full is
//! not recorded, and what points to memory that is needed is abandoned. Both are counted.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use guard::{
    Core, Digest, Disagreement, Finding, Kind, Mismatch, Record, Replayer, Seq, Site, Step, Stratum, Tally,
};
use hdrhistogram::Histogram;
use store::{Env, Fate, Inspector, Look, Trace};

use crate::bell::{Bell, Sleep};
use crate::counters::Counters;
use crate::execute::Executor;
use crate::output::{Mark, Output};
use crate::reaction::{Case, Means};
use crate::recorder::is_timed;
use crate::replay::{self, Replay};
use crate::shared::{Shared, Stop, locked};
use crate::strata;
use crate::sys;

/// Lines of 64 bytes in one worker's ring: 512 KiB, some thousand records.
pub(crate) const RING_LINES: usize = 8192;

/// Records taken from one ring before the next has its turn.
const BATCH: usize = 64;

/// Workers that find no memory can't have back what is looked at, so a look is not to take longer than this. It is only
/// seen every so many records; the largest take less than a millisecond each.
const LOOK_MAX: Duration = Duration::from_micros(100);
const LOOK_RECORDS: usize = 4;

/// Of so many records, the time of one is taken. It is that of the thread, as others may have the core in between, and asking
/// for it takes as long as a record.
const TIMED_EVERY: u32 = 64;

/// How long a validator with a core of its own looks for records before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// The nap of one that shares its core with workers: as many records as come in that time are validated at once.
const NAP: Duration = Duration::from_millis(1);

/// After so many naps without any record, it sleeps until it is woken.
const NAPS_MAX: u32 = 16;

/// It looks whether it should end at least so often.
const DEEP_SLEEP: Duration = Duration::from_millis(200);

/// After a disagreement, everything of that worker is recorded for so long.
pub(crate) const INSISTENCE: Duration = Duration::from_secs(60);

/// What a core has written in this time is not trusted once the core isn't.
const LOOK_BACK: Duration = Duration::from_secs(60);

/// The largest latency that is told apart from others, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What everybody may know about a worker's validation.
#[derive(Debug)]
pub(crate) struct Validation {
    pub(crate) tally: Tally,
    /// Lines that wait in the ring, when somebody last looked.
    pub(crate) waiting_lines: AtomicU64,
    /// Disagreements ever; the worker records everything for a while when there are more.
    pub(crate) disagreements: AtomicU64,
    /// The CPUs that the worker and its validator were last on.
    pub(crate) worker_core: AtomicU64,
    pub(crate) validator_core: AtomicU64,
    /// From the execution to its confirmation.
    pub(crate) latency_ns: Mutex<Histogram<u64>>,
    /// Records that did not agree, or were lost with the ring's lines.
    unseen: AtomicU64,
    /// The record that the worker waits for, asleep; 0 for none.
    pub(crate) awaited: AtomicU64,
    pub(crate) bell: Arc<Bell>,
}

impl Validation {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2);
        Validation {
            tally: Tally::new(strata::STRATA),
            waiting_lines: AtomicU64::new(0),
            disagreements: AtomicU64::new(0),
            worker_core: AtomicU64::new(0),
            validator_core: AtomicU64::new(0),
            latency_ns: Mutex::new(latency_ns.expect("the bounds are in order")),
            unseen: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            bell,
        }
    }

    /// How many records were not seen as they were written.
    pub(crate) fn unseen(&self) -> u64 {
        self.unseen.load(Relaxed)
    }
}

/// The records of one worker.
pub(crate) struct Source {
    /// The worker's number.
    pub(crate) worker: usize,
    pub(crate) replayer: Replayer,
    pub(crate) inspector: Inspector,
}

/// A validator.
pub(crate) struct Validator {
    shared: Arc<Shared>,
    sources: Vec<Source>,
    bell: Arc<Bell>,
    /// Whether it may spin.
    has_own_core: bool,
    desk: Desk,
    /// Set to keep it from looking at anything, in tests.
    paused: Arc<AtomicBool>,
}

/// What an execution is repeated with.
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    /// Only for what is forgotten, and for a replica's items.
    pub(crate) store: store::Worker,
    counters: Counters,
    output: Output,
    /// The key that the last command was about.
    key: Vec<u8>,
    pub(crate) core: Core,
    /// When the last execution that was repeated took place.
    at_ns: u64,
    /// What asking for the thread's time takes, which is about as much as a record.
    asking: Duration,
    untimed: u32,
}

impl Validator {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sources: Vec<Source>,
        bell: Arc<Bell>,
        store: store::Worker,
        has_own_core: bool,
    ) -> Self {
        let desk = Desk::new(Arc::clone(&shared), store);
        let paused = Arc::clone(&shared.validators_paused);
        Validator { shared, sources, bell, has_own_core, desk, paused }
    }

    /// Validates until the workers have stopped and nothing is left.
    pub(crate) fn run(mut self) {
        let mut naps = 0;
        loop {
            let is_last = self.shared.stop() != Stop::Not && self.shared.workers_running.load(SeqCst) == 0;
            if self.look() > 0 {
                naps = 0;
            } else if is_last {
                return;
            } else if self.has_own_core && naps == 0 && self.spin() {
                continue;
            } else {
                naps += 1;
                self.sleep(naps);
            }
        }
    }

    /// Goes once through all rings; how many records there were.
    fn look(&mut self) -> usize {
        if self.paused.load(Relaxed) && self.shared.stop() == Stop::Not {
            return 0;
        }
        self.desk.core = Core(sys::current_cpu());
        for source in &self.sources {
            let validation = &self.shared.validations[source.worker];
            validation.validator_core.store(self.desk.core.0.into(), Relaxed);
        }
        let desk = &mut self.desk;
        let count = self.sources.iter_mut().map(|source| desk.batch(source)).sum();
        if let Some(follower) = &self.shared.follower {
            let mut findings = Vec::new();
            follower.settle(&self.shared, |finding| findings.push(*finding));
            for finding in &findings {
                desk.react(finding.mismatch(), usize::from(finding.worker), finding.hash);
            }
        }
        count
    }

    /// Waits with the core for records to come; whether there are some.
    fn spin(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < SPIN {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if self.sources.iter_mut().any(|source| source.replayer.load().0 > 0) {
                return true;
            }
        }
        false
    }

    fn sleep(&mut self, naps: u32) {
        let is_paused = self.paused.load(Relaxed);
        let (how, time) =
            if naps < NAPS_MAX && !is_paused { (Sleep::Nap, NAP) } else { (Sleep::Deep, DEEP_SLEEP) };
        let sources = &mut self.sources;
        self.bell
            .sleep(how, time, || !is_paused && sources.iter_mut().any(|source| source.replayer.load().0 > 0));
    }
}

impl Desk {
    pub(crate) fn new(shared: Arc<Shared>, store: store::Worker) -> Self {
        Desk {
            shared,
            store,
            counters: Counters::default(),
            output: Output::default(),
            key: Vec::new(),
            core: Core::default(),
            at_ns: 0,
            asking: asking_time(),
            untimed: 0,
        }
    }

    /// Validates some records of a worker; how many.
    fn batch(&mut self, source: &mut Source) -> usize {
        let shared = Arc::clone(&self.shared);
        let follower = shared.follower.as_ref();
        let heard = follower.map_or(0, |follower| follower.heard(source.worker, shared.tick()));
        let drained = || follower.iter().for_each(|follower| follower.drained(source.worker, heard));
        let Some(mut look) = source.inspector.begin() else {
            drained();
            return 0;
        };
        let looked = Instant::now();
        let validation = &shared.validations[source.worker];
        let (core, mut count, mut is_drained) = (self.core, 0, false);
        while count < BATCH && (count % LOOK_RECORDS != LOOK_RECORDS - 1 || looked.elapsed() < LOOK_MAX) {
            let began = self.is_timed().then(sys::thread_time);
            let confirm = |record: &Record| self.confirm(&mut look, record, source.worker);
            let step = source.replayer.step(core, &validation.tally, confirm);
            match step {
                Step::Idle => {
                    is_drained = true;
                    break;
                }
                Step::Agrees { stratum, .. } => {
                    if let Some(began) = began {
                        let cost = (sys::thread_time() - began).saturating_sub(self.asking);
                        let cost_ns = cost.as_nanos() as u64 * u64::from(TIMED_EVERY);
                        validation.tally.count_cost(stratum, cost_ns);
                    }
                    self.note_latency(validation);
                }
                Step::Disagrees(disagreement) => {
                    validation.unseen.fetch_add(1, Relaxed);
                    let record = source.replayer.record().clone();
                    if self.disagree(&look, &record, disagreement, source.worker) {
                        source.replayer.release();
                    } else if source.replayer.refuse().is_err() {
                        // It stays open, and is tried again with the next batch.
                    }
                }
                Step::Abandoned { .. } | Step::Open => {
                    if source.replayer.refuse().is_err() {
                        // The worker has not looked at the earlier refusals yet.
                        self.shared.posts[source.worker].wake();
                        break;
                    }
                }
            }
            count += 1;
        }
        look.end(is_drained);
        if is_drained {
            drained();
        }
        validation.waiting_lines.store(source.replayer.load().0, Relaxed);
        self.wake_worker(source.worker, source.replayer.confirmed());
        count
    }

    /// The worker may sleep because it waits for what was just confirmed.
    pub(crate) fn wake_worker(&self, worker: usize, confirmed: Seq) {
        // Pairs with the fence of a worker that is going to sleep.
        fence(SeqCst);
        let awaited = &self.shared.validations[worker].awaited;
        let seq = awaited.load(Relaxed);
        if seq != 0 && confirmed >= seq && awaited.swap(0, Relaxed) != 0 {
            self.shared.posts[worker].wake();
        }
    }

    fn is_timed(&mut self) -> bool {
        self.untimed = (self.untimed + 1) % TIMED_EVERY;
        self.untimed == 0
    }

    fn note_latency(&self, validation: &Validation) {
        self.note_latency_since(self.at_ns, validation);
    }

    pub(crate) fn note_latency_since(&self, at_ns: u64, validation: &Validation) {
        if is_timed(at_ns) {
            let latency_ns = self.shared.tick().saturating_sub(at_ns);
            locked(&validation.latency_ns).saturating_record(latency_ns.max(1));
        }
    }

    /// Repeats what a record says and compares.
    pub(crate) fn confirm(
        &mut self,
        look: &mut Look<'_>,
        record: &Record,
        worker: usize,
    ) -> Result<Finding, Mismatch> {
        let (trace, reply, command) = Trace::read(record).ok_or_else(|| store::senseless(record))?;
        self.at_ns = trace.at_ns;
        if let Some(words) = record.upcoming() {
            look.prefetch(words);
        }
        if !look.take(&trace) {
            if let Some(follower) = &self.shared.follower {
                follower.miss(&trace, || self.shared.tick());
            }
            return Ok(Finding::Abandoned);
        }
        let fate = self.execute(look, record, &trace, reply, command)?;
        if let Some(follower) = &self.shared.follower {
            follower.see(worker, &trace, &fate, || self.shared.tick());
        }
        Ok(Finding::Agrees)
    }

    pub(crate) fn repeat(&mut self, look: &Look<'_>, record: &Record) -> Result<Fate, Mismatch> {
        let (trace, reply, command) = Trace::read(record).ok_or_else(|| store::senseless(record))?;
        self.execute(look, record, &trace, reply, command)
    }

    fn execute(
        &mut self,
        look: &Look<'_>,
        record: &Record,
        trace: &Trace,
        reply: u32,
        command: &[u8],
    ) -> Result<Fate, Mismatch> {
        let dialect = strata::dialect(record.stratum()).ok_or_else(|| store::senseless(record))?;
        let out = &mut self.output;
        out.clear();
        let env: Env = trace.env();
        let mut executor = Executor::new(&mut self.store, &self.shared, &self.counters, env)
            .replaying(Replay::new(look, trace, &mut self.key));
        replay::execute(dialect, command, &mut executor, out);
        let replay = executor.into_replay().ok_or_else(|| store::senseless(record))?;
        let fate = replay.fate()?;
        let found = store::digest(out.since(Mark::START));
        guard::compare(Kind::Reply, Digest(reply.into()), Digest(found.into())).map(|()| fate)
    }

    /// A look-up did not find what it had to. There is no execution that could be repeated to vote on it.
    #[cold]
    pub(crate) fn react(&mut self, mismatch: Mismatch, worker: usize, key_hash: u64) {
        let shared = Arc::clone(&self.shared);
        let first_core = Core(shared.validations[worker].worker_core.load(Relaxed) as u16);
        let site = Site { stratum: Stratum(0), first_core, second_core: self.core };
        let hash = key_hash.to_le_bytes();
        let case = Case {
            disagreement: Disagreement::new(site, mismatch, 0..=0),
            stratum: "index",
            command: b"",
            keys: &[&hash],
            item_found: None,
            item_new: None,
            checksum: guard::Checksum::Unknown,
            now: shared.clock.now().into(),
        };
        let mut entry = Entry { store: &mut self.store, hash: key_hash };
        shared.reaction.disagreed(&case, &mut entry);
        self.store.idle();
        shared.validations[worker].disagreements.fetch_add(1, Relaxed);
    }

    /// Settles a disagreement: who was wrong, what is forgotten. Whether what was executed first stands, so that the reply
    /// may leave.
    #[cold]
    pub(crate) fn disagree(
        &mut self,
        look: &Look<'_>,
        record: &Record,
        disagreement: Disagreement,
        worker: usize,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let (trace, command) = match Trace::read(record) {
            Some((trace, _, command)) if disagreement.kind != Kind::Record => (Some(trace), command),
            _ => (None, &b""[..]),
        };
        let understood = self.key.clone();
        let mut keys: Vec<&[u8]> = Vec::new();
        if trace.is_some() && !understood.is_empty() {
            keys.push(&understood);
        }
        for key in trace.iter().flat_map(|trace| look.keys(trace)) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let [item_found, item_new] = trace.map_or([None; 2], |trace| look.checksums(&trace));
        let is_damaged = trace.is_some_and(|trace| look.is_found_damaged(&trace));
        let stratum = strata::name(usize::from(disagreement.stratum.0));
        let case = Case {
            disagreement,
            stratum: &stratum,
            command,
            keys: &keys,
            item_found,
            item_new,
            checksum: if is_damaged { guard::Checksum::WrongNow } else { guard::Checksum::Unknown },
            now: shared.clock.now().into(),
        };
        let mut again = Again { desk: self, look, record, expected: disagreement.expected };
        let settled = shared.reaction.disagreed(&case, &mut again);
        // What was forgotten is to be used again, although nothing more is executed here.
        self.store.idle();
        shared.validations[worker].disagreements.fetch_add(1, Relaxed);
        settled.keeps
    }
}

/// The least that lies between two questions for the thread's time.
fn asking_time() -> Duration {
    let asked = || {
        let began = sys::thread_time();
        sys::thread_time() - began
    };
    (0..16).map(|_| asked()).min().unwrap_or_default()
}

/// What can be done about an entry of the index that is wrong: it is taken out.
struct Entry<'a> {
    store: &'a mut store::Worker,
    hash: u64,
}

impl Means for Entry<'_> {
    fn repeat(&mut self) -> Option<Digest> {
        None
    }

    fn contain(&mut self, _hash: &[u8]) -> bool {
        self.store.forget_hash(self.hash)
    }

    fn look_back(&mut self, _core: Core) -> u64 {
        0
    }
}

/// What can be done about a disagreement.
struct Again<'a, 'l> {
    desk: &'a mut Desk,
    look: &'a Look<'l>,
    record: &'a Record,
    expected: Digest,
}

impl Means for Again<'_, '_> {
    fn repeat(&mut self) -> Option<Digest> {
        Some(match self.desk.repeat(self.look, self.record) {
            Ok(_) => self.expected,
            Err(mismatch) => mismatch.found,
        })
    }

    fn contain(&mut self, key: &[u8]) -> bool {
        self.desk.store.forget(key)
    }

    fn look_back(&mut self, core: Core) -> u64 {
        let since = self.desk.shared.births.since(LOOK_BACK);
        self.desk.store.look_back(core.0, since)
    }
}
