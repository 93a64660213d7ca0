//! The shadow index of a running server: which share workers have to record, how far everybody has come, and what is done
//! with what is found.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

use store::{EntryChange, Fate, Trace};

use super::{Change, Counts, Finding, Progress, ROTATION_SECONDS, Seen, Shadow, Share, Tick};
use crate::shared::{Shared, locked};

/// Keys of a share that are followed at most, with a memory limit of 64 MiB or more: a table of 3.5 MiB. With more than 1.8
/// million items, some are not followed.
const KEYS_MAX: usize = 7 << 12;

/// With a lower memory limit: 0.4 MiB.
const KEYS_MAX_SMALL: usize = 7 << 9;

/// Clocks of different cores are not more than this apart, with what a processor puts before a look at its clock.
const CLOCK_SKEW: Tick = 10_000;

/// How often suspicions are looked at.
const SETTLE_TICKS: Tick = 2_000_000;

/// A worker's tick while it sleeps: what it will execute is younger than any tick read before it wakes.
const ASLEEP: Tick = Tick::MAX;
/// A worker's tick while it wakes up.
const WAKING: Tick = 0;

/// The shadow index, shared by all validators.
#[derive(Debug)]
pub(crate) struct Follower {
    shadow: Mutex<Shadow>,
    /// The number of the share that workers record, whatever else they record.
    share: AtomicU8,
    /// The number of the share whose records matter as well: the one before while the next is not recorded by all.
    share_seen: AtomicU8,
    rotated: AtomicU32,
    settled: AtomicU64,
    /// Records that did not arrive, when that was last looked at.
    missed: AtomicU64,
    /// By worker.
    courses: Vec<Course>,
}

/// How far a worker and its validator have come.
#[derive(Debug)]
#[repr(align(128))]
struct Course {
    /// When the worker's round began.
    round: AtomicU64,
    /// Up to where all its records have been seen.
    heard: AtomicU64,
}

impl Follower {
    /// A follower for so many workers. Its memory is to be charged.
    pub(crate) fn new(workers: usize, memory_bytes: u64) -> Self {
        let course = || Course { round: AtomicU64::new(ASLEEP), heard: AtomicU64::new(0) };
        Follower {
            shadow: Mutex::new(Shadow::new(Share::FIRST, keys_max(memory_bytes), 0)),
            share: AtomicU8::new(Share::FIRST.number()),
            share_seen: AtomicU8::new(Share::FIRST.number()),
            rotated: AtomicU32::new(0),
            settled: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            courses: (0..workers).map(|_| course()).collect(),
        }
    }

    /// The share that has to be recorded. To be read after a round began.
    pub(crate) fn share(&self) -> Share {
        Share::of_number(self.share.load(Acquire))
    }

    /// A worker wakes up; after this it reads the clock for [`Follower::begin_round`].
    pub(crate) fn wake(&self, worker: usize) {
        self.courses[worker].round.store(WAKING, Relaxed);
        // Pairs with the fence in `heard`: who finds the worker asleep has read an earlier time than it will read.
        fence(SeqCst);
    }

    /// A worker's round has begun at this time; it executes nothing before the next.
    pub(crate) fn begin_round(&self, worker: usize, at: Tick) {
        // Release: who sees this sees the records of earlier rounds, and what was dropped in them.
        self.courses[worker].round.store(at.max(1), Release);
    }

    /// A worker has committed its records and is going to sleep.
    pub(crate) fn sleep(&self, worker: usize) {
        self.courses[worker].round.store(ASLEEP, Release);
    }

    /// Up to where a worker has executed everything it ever will; read before looking whether its ring is empty.
    pub(crate) fn heard(&self, worker: usize, now: Tick) -> Tick {
        fence(SeqCst);
        match self.courses[worker].round.load(Acquire) {
            ASLEEP => now,
            round => round.saturating_sub(1),
        }
    }

    /// All records of a worker up to this time were passed on.
    pub(crate) fn drained(&self, worker: usize, heard: Tick) {
        self.courses[worker].heard.fetch_max(heard, Release);
    }

    /// Takes note of a record that was abandoned.
    pub(crate) fn miss(&self, trace: &Trace, now: impl Fn() -> Tick) {
        if self.follows(trace.hash()) {
            let mut shadow = locked(&self.shadow);
            shadow.forget(trace.hash(), now() + CLOCK_SKEW);
        }
    }

    /// Whether records of a key with this hash matter.
    fn follows(&self, hash: u64) -> bool {
        // What explains a suspicion may arrive when the share's turn is over.
        self.share().holds(hash) || Share::of_number(self.share_seen.load(Relaxed)).holds(hash)
    }

    /// Takes note of a record that agrees.
    pub(crate) fn see(&self, worker: usize, trace: &Trace, fate: &Fate, now: impl Fn() -> Tick) {
        if !self.follows(trace.hash()) {
            return;
        }
        let seen = Seen {
            hash: trace.hash(),
            worker: worker as u16,
            at: trace.at_ns,
            found: fate.found,
            change: match fate.change {
                EntryChange::Kept => Change::Kept,
                EntryChange::Wrote(version) => Change::Wrote(version),
                EntryChange::WroteChosen => Change::Unordered,
                EntryChange::Removed => Change::Removed,
            },
            exptime: fate.exptime,
            seconds: trace.env().now,
            vanished: vanished(trace.vanished(), trace.env().flushed_below),
        };
        let mut shadow = locked(&self.shadow);
        shadow.see(&seen, now() + CLOCK_SKEW);
    }

    /// Looks at suspicions, and begins with the next share when its time has come. Does nothing most of the time.
    pub(crate) fn settle(&self, shared: &Shared, found: impl FnMut(&Finding)) {
        let now = shared.tick();
        let settled = self.settled.load(Relaxed);
        let is_due = now.saturating_sub(settled) >= SETTLE_TICKS;
        if !is_due || self.settled.compare_exchange(settled, now, Relaxed, Relaxed).is_err() {
            return;
        }
        let heard = self.courses.iter().map(|course| course.heard.load(Acquire)).min().unwrap_or(0);
        let mut shadow = locked(&self.shadow);
        let missed = missed(shared);
        // Behind all that was passed on, and all that was missed.
        let now = shared.tick() + CLOCK_SKEW;
        if self.missed.swap(missed, Relaxed) != missed {
            shadow.forget_all(now);
        }
        let gone = shared.store.vanished();
        if !gone.is_settled() {
            return;
        }
        let env = shared.env();
        let vanished = |hash| vanished(gone.near(hash), env.flushed_below);
        shadow.settle(&Progress { heard, now, seconds: env.now }, vanished, found);
        self.share_seen.store(shadow.share_seen().number(), Relaxed);
        let rotated = self.rotated.load(Relaxed);
        let passed = (now / 1_000_000_000) as u32;
        if passed.saturating_sub(rotated) >= ROTATION_SECONDS {
            self.rotated.store(passed, Relaxed);
            let next = shadow.share().next();
            // First announced, then the time is read.
            self.share.store(next.number(), SeqCst);
            fence(SeqCst);
            shadow.rotate(next, shared.tick() + CLOCK_SKEW);
        }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(memory_bytes: u64) -> usize {
        Shadow::bytes(keys_max(memory_bytes))
    }

    /// What was done so far, and which share is followed.
    pub(crate) fn counts(&self) -> (Counts, Share) {
        let shadow = locked(&self.shadow);
        (shadow.counts(), shadow.share())
    }
}

/// Another number whenever an entry went that no record tells of.
fn vanished(items: u32, flushed_below: u64) -> u64 {
    u64::from(items) ^ flushed_below << 32
}

fn keys_max(memory_bytes: u64) -> usize {
    if memory_bytes >= 64 << 20 { KEYS_MAX } else { KEYS_MAX_SMALL }
}

/// Executions on followed keys that left no record, or whose record was lost.
fn missed(shared: &Shared) -> u64 {
    let unrecorded = shared.coverages.iter().map(|coverage| coverage.unfollowed.read());
    let lost = shared.validations.iter().map(|validation| validation.unseen());
    unrecorded.chain(lost).fold(0, u64::wrapping_add)
}
