//! Segments: the pieces of the arena that items are appended to, and the ledger of which is used for what.
//!
//! The arena is address space cut into equal slots. A segment is one slot; an item larger than a quarter of that gets
//! a run of slots of its own, of which only the pages it needs become resident. Address space is several times the
//! memory limit, so a run is found without moving anything.
//!
//! ```text
//! cold ──take──▶ open ──seal──▶ sealed ──nothing alive, or emptied──▶ retired ──epoch passed──▶ warm or cold
//! ```
//!
//! The ledger's lock is taken once per segment or large item, never per small item. It comes last in the lock order.
//!
//! Limits: what segments hold resident stays within the budget given by the store; warm runs are kept up to
//! [`WARM_RUNS_MAX`], beyond which the one unused longest is given back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bucket::Location;
use crate::item::{ALIGN, Item};
use crate::mapping::{Mapping, PAGE_BYTES};

/// Bits of a cas id that say where in its segment an item was written; a segment has at most 2 MiB.
pub(crate) const CAS_OFFSET_BITS: u32 = 18;

const WARM_RUNS_MAX: usize = 8;

/// Metadata of a slot that begins a segment or a run; all zero for one never used.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Segment {
    /// Grows from segment to segment; orders versions against each other and against flush_all.
    birth: AtomicU64,
    /// Bytes of items that the index points to.
    live: AtomicU64,
    /// Bytes appended, valid once sealed.
    written: AtomicU64,
    /// Bytes of pages that are charged for it.
    resident: AtomicU64,
    /// Its place in the queue, by age.
    rank: AtomicU64,
    state: AtomicU32,
    /// Slots it spans.
    slots: AtomicU32,
    /// Owned views of items in it.
    pins: AtomicU32,
    /// Items in it whose value is still arriving.
    drafts: AtomicU32,
    /// The earliest expiry time of an item in it; `u32::MAX` when none expires.
    exptime_min: AtomicU32,
    /// Which queue it is in, once sealed: 0 small, 1 main.
    queue: AtomicU32,
    /// Whether it was opened as a run, for one large item: 0 or 1. A run may have the size of a segment.
    run: AtomicU32,
}

const OPEN: u32 = 1;
const SEALED: u32 = 2;
const RETIRED: u32 = 3;
/// Never used again: its memory is suspect.
const CONDEMNED: u32 = 4;

/// The two queues of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// What is new.
    Small,
    /// What was read while it was new.
    Main,
}

/// The arena, its segments, and the ledger.
pub(crate) struct Segments {
    memory: Mapping,
    metadata: Mapping,
    shift: u32,
    slots: u32,
    births: AtomicU64,
    ledger: Mutex<Ledger>,
}

/// Which slots are used for what.
pub(crate) struct Ledger {
    /// Runs of slots without resident pages: start to length.
    cold: BTreeMap<u32, u32>,
    /// Segments with resident pages, free to use.
    warm: Vec<u32>,
    /// Runs with resident pages, free to use: start; the one unused longest first.
    warm_runs: VecDeque<u32>,
    /// Segments that nothing points to any more, and the epoch that has to pass.
    retired: VecDeque<(u64, u32)>,
    /// Sealed segments by age.
    small: Line,
    main: Line,
    /// Bytes of pages charged: of free, open, sealed and retired segments.
    resident: u64,
    /// Those of them that are free to use.
    warm_bytes: u64,
    /// Those of them that will be, once an epoch has passed.
    retired_bytes: u64,
}

/// One queue: segments by rank, the oldest first.
#[derive(Default)]
pub(crate) struct Line {
    by_age: BTreeSet<(u64, u32)>,
    bytes: u64,
}

/// What to take, and what has to stay free.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    /// Bytes that all segments together may hold resident.
    pub(crate) budget: u64,
    /// Bytes of it that this caller may not touch.
    pub(crate) reserve: u64,
}

impl Segments {
    pub(crate) fn new(segment_bytes: usize, arena_bytes: usize, huge_pages: bool) -> io::Result<Self> {
        assert!(segment_bytes.is_power_of_two());
        let slots = u32::try_from(arena_bytes / segment_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let memory = Mapping::reserve(slots as usize * segment_bytes, segment_bytes.max(2 << 20))?;
        if huge_pages {
            memory.prefer_huge_pages();
        }
        let ledger = Ledger {
            cold: BTreeMap::from([(0, slots)]),
            warm: Vec::new(),
            warm_runs: VecDeque::new(),
            retired: VecDeque::new(),
            small: Line::default(),
            main: Line::default(),
            resident: 0,
            warm_bytes: 0,
            retired_bytes: 0,
        };
        Ok(Segments {
            memory,
            metadata: Mapping::reserve(slots as usize * size_of::<Segment>(), 64)?,
            shift: segment_bytes.ilog2(),
            slots,
            births: AtomicU64::new(1),
            ledger: Mutex::new(ledger),
        })
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        1 << self.shift
    }

    /// The largest item that is appended to a segment shared with others.
    pub(crate) fn shared_bytes_max(&self) -> usize {
        self.segment_bytes() / 4
    }

    /// A number above all births so far.
    pub(crate) fn next_birth(&self) -> u64 {
        self.births.fetch_add(1, Ordering::AcqRel)
    }

    /// No segment opened from now on has a lower birth.
    pub(crate) fn birth_to_come(&self) -> u64 {
        self.births.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn at(&self, slot: u32) -> &Segment {
        assert!(slot < self.slots);
        // SAFETY: within the mapping (asserted), which is aligned to 64 and starts as zeros, a valid value; it is only
        // ever accessed through its atomics.
        unsafe { self.metadata.base().cast::<Segment>().add(slot as usize).as_ref() }
    }

    /// The segment a location lies in.
    #[inline]
    pub(crate) fn of(&self, location: Location) -> u32 {
        ((location.0 * ALIGN as u64) >> self.shift) as u32
    }

    /// The address of a location.
    #[inline]
    pub(crate) fn address(&self, location: Location) -> NonNull<u8> {
        let offset = location.0 as usize * ALIGN;
        assert!(offset < (self.slots as usize) << self.shift);
        // SAFETY: within the mapping (asserted).
        unsafe { self.memory.base().add(offset) }
    }

    #[inline]
    pub(crate) fn prefetch(&self, location: Location) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let offset = location.0 as usize * ALIGN;
            _mm_prefetch::<_MM_HINT_T0>(self.memory.base().as_ptr().wrapping_add(offset).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = location;
    }

    /// The segment that holds this address; it lies in the arena.
    pub(crate) fn holding(&self, address: *const u8) -> u32 {
        let offset = address as usize - self.memory.base().as_ptr() as usize;
        (offset >> self.shift) as u32
    }

    pub(crate) fn location(&self, slot: u32, offset: usize) -> Location {
        Location((((slot as usize) << self.shift) + offset) as u64 / ALIGN as u64)
    }

    /// The cas id of an item that carries none: where it was written, in order of time.
    #[inline]
    pub(crate) fn derived_cas(&self, location: Location) -> u64 {
        let offset = location.0 & ((1 << (self.shift - ALIGN.ilog2())) - 1);
        self.at(self.of(location)).birth() << CAS_OFFSET_BITS | offset
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // The ledger is consistent between statements that can panic; a panic elsewhere must not stop the cache.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty open segment.
    pub(crate) fn open(&self, demand: Demand) -> Option<u32> {
        let bytes = self.segment_bytes() as u64;
        let mut ledger = self.ledger();
        if !ledger.has_free(bytes, demand) {
            return None;
        }
        let slot = match ledger.warm.pop() {
            Some(slot) => {
                ledger.warm_bytes -= bytes;
                slot
            }
            None => self.take_cold(&mut ledger, 1, bytes, demand)?,
        };
        self.begin(&ledger, slot, false);
        Some(slot)
    }

    /// An open run of slots with room for one item of this size.
    pub(crate) fn open_run(&self, item_bytes: usize, demand: Demand) -> Option<u32> {
        let bytes = item_bytes.next_multiple_of(PAGE_BYTES) as u64;
        let slots = item_bytes.div_ceil(self.segment_bytes()) as u32;
        let mut ledger = self.ledger();
        if !ledger.has_free(bytes, demand) {
            return None;
        }
        let fitting = ledger.warm_runs.iter().position(|run| {
            let resident = self.at(*run).resident.load(Ordering::Relaxed);
            self.at(*run).slots.load(Ordering::Relaxed) == slots
                && bytes <= resident
                && resident <= bytes + bytes / 8
        });
        let run = match fitting.and_then(|place| ledger.warm_runs.remove(place)) {
            Some(run) => {
                ledger.warm_bytes -= self.at(run).resident.load(Ordering::Relaxed);
                run
            }
            None => self.take_cold(&mut ledger, slots, bytes, demand)?,
        };
        self.begin(&ledger, run, true);
        Some(run)
    }

    /// Fresh slots, after giving so many free pages back that the budget is met.
    fn take_cold(&self, ledger: &mut Ledger, slots: u32, bytes: u64, demand: Demand) -> Option<u32> {
        while ledger.resident + bytes > demand.budget {
            self.chill_one(ledger)?;
        }
        let slot = ledger.take_cold(slots)?;
        ledger.resident += bytes;
        self.at(slot).slots.store(slots, Ordering::Relaxed);
        self.at(slot).resident.store(bytes, Ordering::Relaxed);
        Some(slot)
    }

    /// Under the ledger's lock, so that whoever opens a segment younger than a flush knows of the flush.
    fn begin(&self, _ledger: &Ledger, slot: u32, is_run: bool) {
        let segment = self.at(slot);
        segment.run.store(u32::from(is_run), Ordering::Relaxed);
        assert_eq!(segment.live.load(Ordering::Relaxed), 0);
        assert_eq!(segment.pins.load(Ordering::Relaxed), 0);
        segment.written.store(0, Ordering::Relaxed);
        segment.exptime_min.store(u32::MAX, Ordering::Relaxed);
        segment.birth.store(self.next_birth(), Ordering::Relaxed);
        segment.state.store(OPEN, Ordering::Release);
    }

    /// Ends appending to a segment: it takes its place in a queue, by its birth or by a rank inherited.
    pub(crate) fn seal(
        &self,
        slot: u32,
        written: usize,
        queue: Queue,
        rank: Option<u64>,
        retire: impl FnOnce() -> u64,
    ) {
        let segment = self.at(slot);
        segment.written.store(written as u64, Ordering::Relaxed);
        segment.rank.store(rank.unwrap_or_else(|| segment.birth()), Ordering::Relaxed);
        self.enqueue(&mut self.ledger(), slot, queue);
        // SeqCst pairs with `unlink`: one of the two sees that nothing is alive in a sealed segment.
        segment.state.store(SEALED, Ordering::SeqCst);
        self.retire_if_empty(slot, retire);
    }

    /// Moves a sealed segment to the young end of a queue, as it is.
    pub(crate) fn requeue(&self, slot: u32, queue: Queue) {
        let mut ledger = self.ledger();
        if self.at(slot).is_sealed() {
            self.dequeue(&mut ledger, slot);
            self.at(slot).rank.store(self.next_birth(), Ordering::Relaxed);
            self.enqueue(&mut ledger, slot, queue);
        }
    }

    fn enqueue(&self, ledger: &mut Ledger, slot: u32, queue: Queue) {
        let segment = self.at(slot);
        segment.queue.store(queue as u32, Ordering::Relaxed);
        let line = ledger.line(queue);
        line.by_age.insert((segment.rank.load(Ordering::Relaxed), slot));
        line.bytes += segment.written();
    }

    fn dequeue(&self, ledger: &mut Ledger, slot: u32) {
        let segment = self.at(slot);
        let line = ledger.line(segment.queue());
        if line.by_age.remove(&(segment.rank.load(Ordering::Relaxed), slot)) {
            line.bytes -= segment.written();
        }
    }

    /// Notes that the index points to an item no more; an empty sealed segment is retired.
    pub(crate) fn unlink(&self, location: Location, bytes: usize, retire: impl FnOnce() -> u64) {
        let slot = self.of(location);
        let before = self.at(slot).live.fetch_sub(bytes as u64, Ordering::SeqCst);
        assert!(before >= bytes as u64);
        if before == bytes as u64 {
            self.retire_if_empty(slot, retire);
        }
    }

    /// Retires a sealed segment with nothing alive in it; `retire` gives the stamp.
    pub(crate) fn retire_if_empty(&self, slot: u32, retire: impl FnOnce() -> u64) {
        let segment = self.at(slot);
        let is_empty = segment.state.load(Ordering::SeqCst) == SEALED
            && segment.live.load(Ordering::SeqCst) == 0
            && segment.drafts.load(Ordering::SeqCst) == 0;
        // One of several who see it empty does the rest.
        if is_empty
            && segment.state.compare_exchange(SEALED, RETIRED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            let mut ledger = self.ledger();
            self.dequeue(&mut ledger, slot);
            ledger.retired_bytes += segment.resident.load(Ordering::Relaxed);
            ledger.retired.push_back((retire(), slot));
        }
    }

    /// Takes a sealed segment out of use for ever; false if it is not sealed.
    pub(crate) fn condemn(&self, slot: u32) -> bool {
        let state = &self.at(slot).state;
        if state.compare_exchange(SEALED, CONDEMNED, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        self.dequeue(&mut self.ledger(), slot);
        true
    }

    /// Whether an item can lie at this location: its lengths agree with their check, and it ends within its segment.
    pub(crate) fn is_sound(&self, location: Location) -> bool {
        let slot = self.of(location);
        if slot >= self.slots {
            return false;
        }
        let span = (self.at(slot).slots.load(Ordering::Relaxed) as usize) << self.shift;
        let offset = location.0 as usize * ALIGN - ((slot as usize) << self.shift);
        // SAFETY: its header lies in the arena, whatever it says, and nobody writes there while the caller looks.
        let item = unsafe { Item::at(self.address(location)) };
        offset + ALIGN * 3 <= span && item.has_sound_lengths() && offset + item.layout().bytes() <= span
    }

    /// Makes retired segments free that nobody can see any more; how many.
    pub(crate) fn reclaim(&self, passed: u64) -> usize {
        let mut ledger = self.ledger();
        let (mut freed, mut pinned) = (0, Vec::new());
        // Stamps are given under the ledger's lock: they only grow along the queue.
        while let Some((stamp, slot)) = ledger.retired.pop_front_if(|(stamp, _)| *stamp <= passed) {
            let segment = self.at(slot);
            if segment.pins.load(Ordering::SeqCst) > 0 {
                pinned.push((stamp, slot));
                continue;
            }
            freed += 1;
            let resident = segment.resident.load(Ordering::Relaxed);
            ledger.retired_bytes -= resident;
            ledger.warm_bytes += resident;
            if resident == self.segment_bytes() as u64 && segment.slots.load(Ordering::Relaxed) == 1 {
                ledger.warm.push(slot);
            } else {
                ledger.warm_runs.push_back(slot);
            }
            if ledger.warm_runs.len() > WARM_RUNS_MAX {
                self.chill_one(&mut ledger);
            }
        }
        pinned.into_iter().rev().for_each(|held| ledger.retired.push_front(held));
        freed
    }

    /// Gives the pages of free segments back until the budget is met.
    pub(crate) fn shrink(&self, budget: u64) {
        let mut ledger = self.ledger();
        while ledger.resident > budget && self.chill_one(&mut ledger).is_some() {}
    }

    /// Gives the pages of one free segment back, a run's first.
    fn chill_one(&self, ledger: &mut Ledger) -> Option<()> {
        let slot = ledger.warm_runs.pop_front().or_else(|| ledger.warm.pop())?;
        let segment = self.at(slot);
        let bytes = segment.resident.swap(0, Ordering::Relaxed);
        // SAFETY: the slots are free: nothing points to them, no epoch or pin holds them, and the ledger is locked.
        unsafe { self.memory.release((slot as usize) << self.shift, bytes as usize) };
        ledger.resident -= bytes;
        ledger.warm_bytes -= bytes;
        ledger.give_cold(slot, segment.slots.load(Ordering::Relaxed));
        Some(())
    }

    /// The items of a sealed segment in the order they were written, dead ones included; the last one is none where a
    /// length is damaged, so that there is no telling where the next one begins.
    ///
    /// # Safety
    /// The segment was sealed and can't be used again while the iterator or one of its items is used.
    pub(crate) unsafe fn items(&self, slot: u32) -> impl Iterator<Item = Option<(Location, Item<'_>)>> {
        let written = self.at(slot).written.load(Ordering::Acquire) as usize;
        let mut offset = 0;
        std::iter::from_fn(move || {
            (offset < written).then(|| {
                let location = self.location(slot, offset);
                if !self.is_sound(location) {
                    offset = usize::MAX;
                    return None;
                }
                // SAFETY: items were appended one behind the other up to `written`, each begun when its space was taken.
                let item = unsafe { Item::at(self.address(location)) };
                offset += item.layout().bytes();
                Some((location, item))
            })
        })
    }
}

impl Segment {
    #[inline]
    pub(crate) fn birth(&self) -> u64 {
        self.birth.load(Ordering::Relaxed)
    }

    pub(crate) fn queue(&self) -> Queue {
        if self.queue.load(Ordering::Relaxed) == Queue::Small as u32 { Queue::Small } else { Queue::Main }
    }

    /// Age in its queue; what is compacted keeps it.
    pub(crate) fn rank(&self) -> u64 {
        self.rank.load(Ordering::Relaxed)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(crate) fn is_run(&self) -> bool {
        self.run.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.state.load(Ordering::Acquire) == SEALED
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn add_live(&self, bytes: usize) {
        self.live.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(crate) fn exptime_min(&self) -> u32 {
        self.exptime_min.load(Ordering::Relaxed)
    }

    /// Notes that an item in it expires then.
    pub(crate) fn note_exptime(&self, exptime: u32) {
        if exptime != 0 {
            self.exptime_min.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset_exptime_min(&self) {
        self.exptime_min.store(u32::MAX, Ordering::Relaxed);
    }

    pub(crate) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn begin_draft(&self) {
        self.drafts.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_draft(&self) {
        self.drafts.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn has_drafts(&self) -> bool {
        self.drafts.load(Ordering::SeqCst) > 0
    }
}

impl Ledger {
    /// Bytes that could be taken within the budget.
    pub(crate) fn free_bytes(&self, budget: u64) -> u64 {
        (budget + self.warm_bytes).saturating_sub(self.resident)
    }

    /// Bytes that could be taken once the epochs have passed.
    pub(crate) fn coming_bytes(&self, budget: u64) -> u64 {
        self.free_bytes(budget) + self.retired_bytes
    }

    fn has_free(&self, bytes: u64, demand: Demand) -> bool {
        self.free_bytes(demand.budget) >= bytes + demand.reserve
    }

    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    pub(crate) fn free_segments(&self) -> usize {
        self.warm.len()
    }

    pub(crate) fn retired_segments(&self) -> usize {
        self.retired.len()
    }

    pub(crate) fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    fn take_cold(&mut self, slots: u32) -> Option<u32> {
        let (start, length) =
            self.cold.iter().find(|(_, length)| **length >= slots).map(|(s, l)| (*s, *l))?;
        self.cold.remove(&start);
        if length > slots {
            self.cold.insert(start + slots, length - slots);
        }
        Some(start)
    }

    fn give_cold(&mut self, start: u32, slots: u32) {
        let (mut start, mut slots) = (start, slots);
        if let Some((before, length)) = self.cold.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + length == start
        {
            self.cold.remove(&before);
            (start, slots) = (before, slots + length);
        }
        if let Some(length) = self.cold.remove(&(start + slots)) {
            slots += length;
        }
        self.cold.insert(start, slots);
    }
}

impl Line {
    /// All segments, the oldest first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.by_age.iter().map(|(_, slot)| *slot)
    }

    /// Bytes appended to its segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
