//! Maintenance: expiry, compaction and eviction, one segment at a time.
//!
//! Eviction is S3-FIFO (Yang et al., SOSP'23) on whole segments: of the oldest segment of the small queue, what was
//! read moves to the main queue and the rest goes, leaving ghosts; of the oldest segment of the main queue, what was
//! read since it came there goes round again. Before anything is evicted, the segment with the least alive in it is
//! compacted if that is below [`COMPACT_PERCENT`] of what was written to it. The shares and thresholds come from
//! `cargo xtask simulate`; docs/design/0002-segments-and-eviction.md has the figures.
//!
//! One maintainer at a time holds the maintenance lock. It comes before stripes and the ledger in the lock order.

use std::sync::{MutexGuard, PoisonError};

use crate::CLASSES;
use crate::bucket::{Entry, Location};
use crate::crc::crc32c;
use crate::epoch::Participant;
use crate::index::{Found, Locked};
use crate::item::{Facts, Item, Layout};
use crate::operator::is_alive;
use crate::request::Env;
use crate::segment::Queue;
use crate::store::{Gone, Store};

/// The small queue's share of all segments.
const SMALL_PERCENT: u64 = 10;
/// A segment with less alive than this share of what was written to it is worth compacting.
const COMPACT_PERCENT: u64 = 75;

/// How many large items may go round before a step gives up; each loses one of at most three counted reads.
const REQUEUES_MAX: usize = 1 << 16;

/// The state of maintenance between two steps.
pub(crate) struct Maintenance {
    pub(crate) participant: Participant,
    /// The bucket that the scrubber looks at next.
    pub(crate) scrub_next: usize,
    outputs: [[Option<Output>; CLASSES]; 3],
    swept_at: u32,
    flush_swept: u64,
}

/// A segment that survivors are moved to.
struct Output {
    slot: u32,
    used: usize,
    rank: Option<u64>,
}

/// Where survivors of a step go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The young end of the main queue.
    Promoted = 0,
    /// The place their segment had in the small queue.
    CompactedSmall = 1,
    /// The place their segment had in the main queue.
    CompactedMain = 2,
}

/// What is done to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The dead are dropped where they are.
    Sweep,
    /// What is alive moves; the segment comes free.
    Compact,
    /// What was read moves on, the rest goes; the segment comes free.
    Evict,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// A segment came free, or is as good as free.
    Made,
    /// A large item stays for another round of its queue.
    Requeued,
    /// There is nothing to be done.
    Stuck,
}

impl Maintenance {
    pub(crate) fn new(participant: Participant) -> Self {
        Maintenance { participant, scrub_next: 0, outputs: Default::default(), swept_at: 0, flush_swept: 0 }
    }
}

impl Store {
    /// Does up to `steps` steps of what is due: sweeping what has expired, and making room up to the low watermark.
    /// Whether there may be more to do.
    pub fn maintain(&self, env: &Env, steps: usize) -> bool {
        let mut maintenance = self.lock_maintenance();
        self.segments.reclaim(self.epochs.passed());
        self.segments.shrink(self.budget());
        self.grow();
        self.close_flushed(&mut maintenance);
        for _ in 0..steps {
            let stepped = self.sweep_one(&mut maintenance, env)
                || self.coming_bytes() < self.low_watermark_bytes() && self.free_one(&mut maintenance, env);
            self.segments.reclaim(self.epochs.passed());
            if !stepped {
                return false;
            }
        }
        true
    }

    /// One step towards more free memory, for a worker that found none; whether there was one to take.
    pub(crate) fn make_room(&self, env: &Env) -> bool {
        let mut maintenance = self.lock_maintenance();
        let stepped = self.free_one(&mut maintenance, env);
        drop(maintenance);
        self.segments.reclaim(self.epochs.passed()) > 0 || stepped
    }

    pub(crate) fn lock_maintenance(&self) -> MutexGuard<'_, Maintenance> {
        // Between two items the state is consistent; a panic elsewhere must not end eviction.
        self.maintenance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compacts or evicts one segment.
    fn free_one(&self, maintenance: &mut Maintenance, env: &Env) -> bool {
        maintenance.participant.round();
        let mut progress = Progress::Requeued;
        // A large item that was read goes round without anything coming free, but at no cost either.
        for _ in 0..REQUEUES_MAX {
            progress = match self.choose() {
                Some((slot, step)) => self.step(maintenance, slot, step, env),
                None => Progress::Stuck,
            };
            if progress != Progress::Requeued {
                break;
            }
        }
        maintenance.participant.offline();
        progress != Progress::Stuck
    }

    fn choose(&self) -> Option<(u32, Step)> {
        let mut ledger = self.segments.ledger();
        let is_free_of_drafts = |slot: &u32| !self.segments.at(*slot).has_drafts();
        let alive_percent = |slot: u32| {
            let segment = self.segments.at(slot);
            segment.live() * 100 / segment.written().max(1)
        };
        let sparsest = [Queue::Small, Queue::Main]
            .into_iter()
            .flat_map(|queue| ledger.line(queue).slots().collect::<Vec<_>>())
            .filter(|slot| !self.segments.at(*slot).is_run())
            .filter(is_free_of_drafts)
            .map(|slot| (alive_percent(slot), slot))
            .min();
        if let Some((percent, slot)) = sparsest
            && percent < COMPACT_PERCENT
        {
            return Some((slot, Step::Compact));
        }
        if !self.options.evict {
            return None;
        }
        let (small, main) = (ledger.line(Queue::Small).bytes(), ledger.line(Queue::Main).bytes());
        let order = match small * 100 >= (small + main) * SMALL_PERCENT {
            true => [Queue::Small, Queue::Main],
            false => [Queue::Main, Queue::Small],
        };
        let oldest = order.into_iter().find_map(|queue| ledger.line(queue).slots().find(is_free_of_drafts));
        oldest.map(|slot| (slot, Step::Evict))
    }

    /// Drops the dead of one segment in which something has expired or was flushed.
    fn sweep_one(&self, maintenance: &mut Maintenance, env: &Env) -> bool {
        if maintenance.swept_at == env.now && maintenance.flush_swept == env.flushed_below {
            return false;
        }
        maintenance.participant.round();
        let due = |slot: &u32| {
            let segment = self.segments.at(*slot);
            let flushed = segment.birth() < env.flushed_below && segment.live() > 0;
            (flushed || segment.exptime_min() <= env.now) && !segment.has_drafts()
        };
        let mut ledger = self.segments.ledger();
        let found =
            [Queue::Small, Queue::Main].into_iter().find_map(|queue| ledger.line(queue).slots().find(due));
        drop(ledger);
        match found {
            Some(slot) => _ = self.step(maintenance, slot, Step::Sweep, env),
            None => (maintenance.swept_at, maintenance.flush_swept) = (env.now, env.flushed_below),
        }
        maintenance.participant.offline();
        found.is_some()
    }

    fn step(&self, maintenance: &mut Maintenance, slot: u32, step: Step, env: &Env) -> Progress {
        let env = &self.refreshed(env);
        let segment = self.segments.at(slot);
        if !segment.is_sealed() {
            return Progress::Made;
        }
        let counters = self.counters(maintenance.participant.place());
        let queue = segment.queue();
        if step == Step::Sweep {
            segment.reset_exptime_min();
        }
        // SAFETY: the segment was sealed after our participant announced its epoch, so it can't be used again now.
        for walked in unsafe { self.segments.items(slot) } {
            let Some((location, item)) = walked else {
                counters.crc_mismatches.add(1);
                self.condemn(maintenance, slot);
                return Progress::Made;
            };
            counters.examined.add(1);
            let locked = self.index.lock(self.hash(item.key()));
            let Some(found) = locked.find_location(location) else { continue };
            let Some(view) = self.view(location) else {
                self.forget(&locked, found, Gone::Damaged, false, counters);
                continue;
            };
            if !is_alive(&view, env) {
                self.forget(&locked, found, Gone::Dead, false, counters);
                continue;
            }
            let (target, freq) = match (step, queue, found.entry.freq()) {
                (Step::Sweep, ..) => {
                    segment.note_exptime(view.exptime);
                    continue;
                }
                (Step::Compact, Queue::Small, freq) => (Target::CompactedSmall, freq),
                (Step::Compact, Queue::Main, freq) => (Target::CompactedMain, freq),
                (Step::Evict, queue, 0) => {
                    self.forget(&locked, found, Gone::Evicted, queue == Queue::Small, counters);
                    continue;
                }
                (Step::Evict, Queue::Small, _) => (Target::Promoted, 0),
                (Step::Evict, Queue::Main, freq) => (Target::Promoted, freq - 1),
            };
            if segment.is_run() {
                // A large item moves by changing its segment's queue.
                locked.replace(found, found.entry.with_freq(freq));
                self.segments.requeue(slot, Queue::Main);
                return Progress::Requeued;
            }
            let place = Place { target, freq, rank: segment.rank() };
            if !self.move_item(maintenance, &locked, found, item, place, env) {
                return Progress::Stuck;
            }
        }
        if step != Step::Sweep && segment.is_sealed() {
            // Something in it is alive that was not found by its key: the key is damaged.
            counters.crc_mismatches.add(1);
            self.condemn(maintenance, slot);
        }
        Progress::Made
    }

    /// Moves an item, or drops it; false when there is no place for it and nothing may be evicted.
    fn move_item(
        &self,
        maintenance: &mut Maintenance,
        locked: &Locked<'_>,
        found: Found,
        item: Item<'_>,
        place: Place,
        env: &Env,
    ) -> bool {
        let counters = self.counters(maintenance.participant.place());
        let from = found.entry.location();
        let layout = Layout { has_cas: true, ..item.layout() };
        let class = self.class(item.exptime().unwrap_or(0), env.now);
        let Some(to) = self.append_survivor(maintenance, place, class, layout.bytes()) else {
            if self.options.evict {
                self.forget(locked, found, Gone::Evicted, false, counters);
            }
            return self.options.evict;
        };
        let copy = self.copy_item(item, from, to, layout);
        if copy.crc() != item.crc() {
            self.forget(locked, found, Gone::Damaged, false, counters);
            return true;
        }
        if self.segments.at(self.segments.of(from)).birth() < self.flushed_below() {
            // Flushed since it was looked at; the copy may lie in a segment that is younger than the flush.
            self.forget(locked, found, Gone::Dead, false, counters);
            return true;
        }
        let segment = self.segments.at(self.segments.of(to));
        segment.add_live(layout.bytes());
        segment.note_exptime(item.exptime().unwrap_or(0));
        locked.replace(found, Entry::live(found.entry.tag(), place.freq, to));
        counters.moved_items.add(1);
        counters.moved_bytes.add(layout.bytes());
        // The item stays, its old place goes.
        counters.items.add(1);
        counters.live_bytes.add(layout.bytes());
        self.account_gone(from, Gone::Asked, counters);
        true
    }

    /// Copies an item to a place that is ours, computing its CRC from the copy.
    fn copy_item(&self, item: Item<'_>, from: Location, to: Location, layout: Layout) -> Item<'_> {
        let facts = Facts {
            flags: item.flags(),
            exptime: item.exptime().unwrap_or(0),
            cas: self.cas_of(from, item),
            stale: item.stale(),
            core: item.core(),
            access: item.access(),
        };
        let value = item.value();
        // SAFETY: the place was appended to an output for this layout, and nobody else knows of it.
        unsafe {
            let copy = Item::begin(self.segments.address(to), layout, item.key());
            copy.value_pointer().copy_from_nonoverlapping(std::ptr::NonNull::from(value).cast(), value.len());
            copy.finish(&facts, crc32c(0, copy.value()));
            copy
        }
    }

    /// Closes the outputs from before the last flush: what is in them is dropped like everything else.
    fn close_flushed(&self, maintenance: &mut Maintenance) {
        let flushed_below = self.flushed_below();
        if maintenance.flush_swept == flushed_below {
            return;
        }
        let targets = [Target::Promoted, Target::CompactedSmall, Target::CompactedMain];
        for (target, outputs) in targets.into_iter().zip(&mut maintenance.outputs) {
            let is_flushed = |output: &mut Output| self.segments.at(output.slot).birth() < flushed_below;
            for old in outputs.iter_mut().filter_map(|output| output.take_if(is_flushed)) {
                self.close(old, target);
            }
        }
    }

    /// Ends moving to an output: it takes its place in a queue.
    fn close(&self, output: Output, target: Target) {
        let queue = if target == Target::CompactedSmall { Queue::Small } else { Queue::Main };
        self.segments.seal(output.slot, output.used, queue, output.rank, || self.epochs.retire());
    }

    /// Space for a survivor in the output for its target and class.
    fn append_survivor(
        &self,
        maintenance: &mut Maintenance,
        place: Place,
        class: usize,
        bytes: usize,
    ) -> Option<Location> {
        let output = &mut maintenance.outputs[place.target as usize][class];
        let is_full = |output: &mut Output| {
            output.used + bytes > self.segments.segment_bytes()
                || self.segments.at(output.slot).birth() < self.flushed_below()
        };
        if let Some(full) = output.take_if(is_full) {
            self.close(full, place.target);
        }
        if output.is_none() {
            let slot = self.segments.open(self.demand(0))?;
            let rank = (place.target != Target::Promoted).then_some(place.rank);
            *output = Some(Output { slot, used: 0, rank });
        }
        let output = output.as_mut()?;
        let location = self.segments.location(output.slot, output.used);
        output.used += bytes;
        Some(location)
    }
}

/// Where a survivor goes and with what.
#[derive(Clone, Copy)]
struct Place {
    target: Target,
    freq: u64,
    rank: u64,
}
