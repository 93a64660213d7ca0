//! Log-structured segments: bump allocation into open segments, eviction and compaction by whole segments.
//!
//! Not modelled: the grace period before a freed segment is reused, contiguity of the address space for
//! large items, and false ghost hits by short tags.

mod merge;
mod s3;

use std::collections::{BTreeMap, VecDeque};

use super::cache::{Cache, Holding, NONE, Object, Traffic};

/// Item header; the item is rounded up to 8 bytes.
const ITEM_HEADER_BYTES: u32 = 16;
/// A slot of the index at the load it is kept at, 80 %.
pub(super) const INDEX_BYTES: u64 = 10;
/// Ghosts live in slots too. Those that fit the slots left free by that load, one for four items, cost nothing
/// (a new item takes a ghost's slot as it takes a free one); more of them are charged like items.
const GHOSTS_FREE_PART: u64 = 4;
/// Items larger than a quarter segment get a run of this granularity for themselves.
const GRANULE_BYTES: u32 = 4096;
/// Segments kept back so that eviction and compaction can always copy.
const RESERVE_SEGMENTS: u64 = 2;
const FREQUENCY_MAX: u8 = 3;
/// Upper limits in seconds of the placement classes; the last class has no limit.
const TTL_LIMITS: [(u8, &[u32]); 3] =
    [(2, &[1800]), (4, &[300, 7200, 172_800]), (8, &[30, 120, 480, 1920, 7680, 30_720, 122_880])];

pub(super) fn segment_bytes(limit_bytes: u64) -> u32 {
    (limit_bytes / 1024).clamp(64 << 10, 2 << 20) as u32
}

pub(super) fn item_bytes(payload: u32) -> u32 {
    (payload + ITEM_HEADER_BYTES).next_multiple_of(8)
}

/// Which of `classes` placement classes an item with `ttl` seconds to live belongs to.
fn ttl_class(classes: u8, ttl: u32) -> usize {
    let limits = TTL_LIMITS.iter().find(|(count, _)| *count == classes).map_or(&[][..], |(_, limits)| limits);
    limits.partition_point(|&limit| limit < ttl)
}

/// How a segment is chosen and what survives of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Policy {
    /// The oldest segment, nothing survives.
    Fifo,
    /// Four neighbours become one that keeps the most frequently read bytes.
    Merge,
    S3(S3),
}

/// S3-FIFO at item granularity, executed per segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct S3 {
    pub(super) small_percent: u32,
    /// Reads an item needs while in the small queue to be copied to the main one.
    pub(super) threshold: u8,
    /// Ghosts per hundred items held.
    pub(super) ghost_percent: u32,
    /// Where a key that is a ghost or already in the main queue is written: straight into a main segment, or
    /// into the small queue with a mark that promotes it if it is still alive at the end.
    pub(super) direct: bool,
    /// Larger items need more reads to be promoted, and lose more of them each time the main queue comes round.
    pub(super) by_size: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) policy: Policy,
    /// Before evicting, compact the segment with the least live bytes if fewer than this share are live.
    pub(super) compact_below_percent: u32,
    /// Which of those segments to take: by live bytes alone, or weighed with the age of what lives in it, since
    /// old items are less likely to die soon (Rosenblum and Ousterhout's cost-benefit).
    pub(super) weigh_age: bool,
    pub(super) ttl_classes: u8,
    /// Threads that each keep their own open segments.
    pub(super) workers: usize,
    /// How often expired items are looked for; 0 for never (they are then found by reads and evictions).
    pub(super) sweep_seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Queue {
    Small,
    Main,
}

/// What an open segment is being filled with.
#[derive(Clone, Copy, Debug)]
enum Lane {
    Worker(usize, Queue),
    /// Survivors of eviction.
    Survivors,
    /// Live items of compacted segments; the segment inherits the place of its first source.
    Compaction(Queue),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Free,
    Open,
    Sealed,
    /// Its entries are being moved or dropped; it is released afterwards.
    Draining,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Object,
    bytes: u32,
}

struct Segment {
    entries: Vec<Entry>,
    capacity: u32,
    used: u32,
    live_bytes: u32,
    live_items: u32,
    queue: Queue,
    class: usize,
    /// Place in the queue, oldest first; set at sealing unless compaction has set it.
    order: u64,
    /// The second from which everything in it is expired.
    expiry_max: u32,
    phase: Phase,
    /// Made for one large item.
    run: bool,
    /// Value of `Log::writes` at opening, for comparing ages with other kinds of memory.
    born: u64,
}

/// What the index knows of a key.
#[derive(Clone, Copy)]
struct Slot {
    segment: u32,
    entry: u32,
    /// Identifies the live ghost entry of this key; 0 when there is none.
    ghost: u32,
    frequency: u8,
    promoted: bool,
}

pub(super) struct Log {
    settings: Settings,
    pub(super) limit_bytes: u64,
    segment_bytes: u32,
    segments: Vec<Segment>,
    free: Vec<u32>,
    slots: Vec<Slot>,
    open: Vec<u32>,
    /// Sealed segments by age.
    small: BTreeMap<u64, u32>,
    main: BTreeMap<u64, u32>,
    order_next: u64,
    small_bytes: u64,
    allocated_bytes: u64,
    items: u64,
    ghosts: VecDeque<(u32, u32)>,
    ghosts_live: u64,
    ghost_next: u32,
    turn: usize,
    merge_cursor: u64,
    writes: u64,
    /// Moving average of how many writes ago evicted segments were opened.
    pub(super) eviction_age: f64,
    traffic: Traffic,
}

impl Log {
    pub(super) fn new(settings: Settings, limit_bytes: u64, keys: u32) -> Self {
        let slot = Slot { segment: NONE, entry: 0, ghost: 0, frequency: 0, promoted: false };
        let lanes = settings.workers * 2 + 3;
        Log {
            settings,
            limit_bytes,
            segment_bytes: segment_bytes(limit_bytes),
            segments: Vec::new(),
            free: Vec::new(),
            slots: vec![slot; keys as usize],
            open: vec![NONE; lanes * usize::from(settings.ttl_classes)],
            small: BTreeMap::new(),
            main: BTreeMap::new(),
            order_next: 1,
            small_bytes: 0,
            allocated_bytes: 0,
            items: 0,
            ghosts: VecDeque::new(),
            ghosts_live: 0,
            ghost_next: 0,
            turn: 0,
            merge_cursor: 0,
            writes: 0,
            eviction_age: 0.0,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn charged_bytes(&self) -> u64 {
        let ghosts_charged = self.ghosts_live.saturating_sub(self.items / GHOSTS_FREE_PART);
        self.allocated_bytes + (self.items + ghosts_charged) * INDEX_BYTES
    }

    fn is_large(&self, bytes: u32) -> bool {
        bytes > self.segment_bytes / 4
    }

    /// Evicts until `bytes` more fit beside the reserve, or nothing is left to evict. When all memory is in open
    /// segments, the fullest of them is closed early.
    pub(super) fn make_room(&mut self, bytes: u64, now: u32) {
        let reserve = RESERVE_SEGMENTS * u64::from(self.segment_bytes);
        while self.charged_bytes() + bytes + reserve > self.limit_bytes {
            if !self.reclaim(now) && !self.close_fullest() {
                break;
            }
        }
    }

    fn close_fullest(&mut self) -> bool {
        let used = |place: &usize| match self.open[*place] {
            NONE => 0,
            id => self.segments[id as usize].used,
        };
        let Some(place) = (0..self.open.len()).filter(|place| used(place) > 0).max_by_key(used) else {
            return false;
        };
        let id = std::mem::replace(&mut self.open[place], NONE);
        self.seal(id);
        true
    }

    /// Gains free memory by one step: compaction of a mostly dead segment, else eviction.
    fn reclaim(&mut self, now: u32) -> bool {
        if self.settings.compact_below_percent > 0 && self.compact(now) {
            return true;
        }
        match self.settings.policy {
            Policy::Fifo => self.evict_oldest(),
            Policy::Merge => self.merge(now),
            Policy::S3(s3) => self.evict_s3(s3, now),
        }
    }

    fn evict_oldest(&mut self) -> bool {
        let Some((_, &id)) = self.main.first_key_value() else { return false };
        self.note_eviction(id);
        self.drain(id);
        self.release(id);
        true
    }

    fn compact(&mut self, now: u32) -> bool {
        let percent = u64::from(self.settings.compact_below_percent);
        // Measured against the bytes used, not the capacity: what was lost at the end of a segment because the
        // next item did not fit is lost again by copying, and would be compacted for ever.
        let mostly_dead = |segment: &Segment| {
            segment.phase == Phase::Sealed
                && !segment.run
                && u64::from(segment.live_bytes) * 100 < u64::from(segment.used) * percent
        };
        let candidates = self.segments.iter().enumerate().filter(|(_, segment)| mostly_dead(segment));
        let gain = |segment: &Segment| {
            let live = f64::from(segment.live_bytes) / f64::from(segment.capacity);
            let age = if self.settings.weigh_age { (self.writes - segment.born) as f64 } else { 1.0 };
            (1.0 - live) * age / (1.0 + live)
        };
        let best = candidates.max_by(|(_, a), (_, b)| gain(a).total_cmp(&gain(b)));
        let Some((source, segment)) = best else { return false };
        let born = segment.born;
        let (queue, class, order) = (segment.queue, segment.class, segment.order);
        for (entry, _) in self.drain(source as u32) {
            if entry.object.expiry > now {
                self.copy(entry, Lane::Compaction(queue), class, order, now);
                let target = self.slots[entry.object.key as usize].segment as usize;
                self.segments[target].born = self.segments[target].born.min(born);
            } else {
                self.forget(entry.object.key);
            }
        }
        self.release(source as u32);
        true
    }

    /// Takes a segment out of its queue and gives its live entries with their frequency. The caller moves or
    /// forgets every one of them (or leaves it to `release`) and then releases the segment.
    fn drain(&mut self, id: u32) -> Vec<(Entry, Slot)> {
        let segment = &mut self.segments[id as usize];
        assert_eq!(segment.phase, Phase::Sealed);
        segment.phase = Phase::Draining;
        let order = segment.order;
        let entries = std::mem::take(&mut segment.entries);
        match segment.queue {
            Queue::Small => self.small.remove(&order),
            Queue::Main => self.main.remove(&order),
        };
        let mut live = Vec::with_capacity(self.segments[id as usize].live_items as usize);
        for (index, entry) in entries.iter().enumerate() {
            let slot = self.slots[entry.object.key as usize];
            if slot.segment == id && slot.entry == index as u32 {
                live.push((*entry, slot));
            }
        }
        self.segments[id as usize].entries = entries;
        live
    }

    /// Frees a drained segment with all that still lives in it.
    fn release(&mut self, id: u32) {
        assert_eq!(self.segments[id as usize].phase, Phase::Draining);
        let mut entries = std::mem::take(&mut self.segments[id as usize].entries);
        for (index, entry) in entries.iter().enumerate() {
            let slot = self.slots[entry.object.key as usize];
            if slot.segment == id && slot.entry == index as u32 {
                self.forget(entry.object.key);
            }
        }
        entries.clear();
        let segment = &mut self.segments[id as usize];
        assert_eq!(segment.live_items, 0);
        segment.entries = entries;
        segment.phase = Phase::Free;
        self.allocated_bytes -= u64::from(segment.capacity);
        if segment.queue == Queue::Small {
            self.small_bytes -= u64::from(segment.capacity);
        }
        self.free.push(id);
    }

    /// Removes a key from the index; a sealed segment without live items is freed at once.
    pub(super) fn forget(&mut self, key: u32) {
        let slot = &mut self.slots[key as usize];
        let (id, index) = (slot.segment, slot.entry);
        slot.segment = NONE;
        self.items -= 1;
        let segment = &mut self.segments[id as usize];
        if segment.phase == Phase::Draining {
            segment.live_items -= 1;
            return;
        }
        segment.live_bytes -= segment.entries[index as usize].bytes;
        segment.live_items -= 1;
        if segment.live_items == 0 && segment.phase == Phase::Sealed {
            self.drain(id);
            self.release(id);
        }
    }

    pub(super) fn contains(&self, key: u32) -> bool {
        self.slots[key as usize].segment != NONE
    }

    fn note_eviction(&mut self, id: u32) {
        let age = (self.writes - self.segments[id as usize].born) as f64;
        self.eviction_age += (age - self.eviction_age) / 16.0;
    }

    /// Moves an entry of a draining segment to the open segment of `lane`.
    fn copy(&mut self, entry: Entry, lane: Lane, class: usize, order: u64, now: u32) {
        let slot = self.slots[entry.object.key as usize];
        self.forget(entry.object.key);
        self.append(entry, lane, class, order, now);
        let moved = &mut self.slots[entry.object.key as usize];
        (moved.frequency, moved.promoted) = (slot.frequency, slot.promoted);
        self.traffic.moved_bytes += u64::from(entry.bytes);
    }

    /// Puts an entry into the open segment of `lane`, or into a run of its own, and points the index at it.
    fn append(&mut self, entry: Entry, lane: Lane, class: usize, order: u64, now: u32) {
        let queue = match lane {
            Lane::Worker(_, queue) | Lane::Compaction(queue) => queue,
            Lane::Survivors => Queue::Main,
        };
        let is_worker = matches!(lane, Lane::Worker(..));
        let id = if self.is_large(entry.bytes) {
            let capacity = entry.bytes.next_multiple_of(GRANULE_BYTES);
            self.make_room(u64::from(capacity), now);
            let id = self.allocate(capacity, queue, class, order);
            self.segments[id as usize].run = true;
            id
        } else {
            self.open_segment(entry.bytes, lane, queue, class, order, now)
        };
        if is_worker && self.contains(entry.object.key) {
            // The old version dies only now: making room may have moved or evicted it.
            self.forget(entry.object.key);
        }
        let segment = &mut self.segments[id as usize];
        let slot = &mut self.slots[entry.object.key as usize];
        (slot.segment, slot.entry) = (id, segment.entries.len() as u32);
        segment.entries.push(entry);
        segment.used += entry.bytes;
        segment.live_bytes += entry.bytes;
        segment.live_items += 1;
        segment.expiry_max = segment.expiry_max.max(entry.object.expiry);
        self.items += 1;
        if self.is_large(entry.bytes) {
            self.seal(id);
        }
    }

    fn open_segment(
        &mut self,
        bytes: u32,
        lane: Lane,
        queue: Queue,
        class: usize,
        order: u64,
        now: u32,
    ) -> u32 {
        let lane_index = match lane {
            Lane::Worker(worker, Queue::Small) => worker,
            Lane::Worker(worker, Queue::Main) => self.settings.workers + worker,
            Lane::Survivors => self.settings.workers * 2,
            Lane::Compaction(Queue::Small) => self.settings.workers * 2 + 1,
            Lane::Compaction(Queue::Main) => self.settings.workers * 2 + 2,
        };
        let place = lane_index * usize::from(self.settings.ttl_classes) + class;
        let current = self.open[place];
        if current != NONE && self.segments[current as usize].used + bytes <= self.segment_bytes {
            return current;
        }
        if current != NONE {
            self.open[place] = NONE;
            self.seal(current);
        }
        if matches!(lane, Lane::Worker(..)) {
            self.make_room(u64::from(self.segment_bytes), now);
        }
        let id = self.allocate(self.segment_bytes, queue, class, order);
        self.open[place] = id;
        id
    }

    /// `order` 0 means: behind all others, decided at sealing.
    fn allocate(&mut self, capacity: u32, queue: Queue, class: usize, order: u64) -> u32 {
        let id = self.free.pop().unwrap_or(self.segments.len() as u32);
        let entries = match self.segments.get_mut(id as usize) {
            Some(segment) => std::mem::take(&mut segment.entries),
            None => Vec::new(),
        };
        let segment = Segment {
            entries,
            capacity,
            used: 0,
            live_bytes: 0,
            live_items: 0,
            queue,
            class,
            order,
            expiry_max: 0,
            phase: Phase::Open,
            run: false,
            born: self.writes,
        };
        match self.segments.get_mut(id as usize) {
            Some(place) => *place = segment,
            None => self.segments.push(segment),
        }
        self.allocated_bytes += u64::from(capacity);
        assert!(self.charged_bytes() <= self.limit_bytes, "the reserve was too small");
        if queue == Queue::Small {
            self.small_bytes += u64::from(capacity);
        }
        id
    }

    fn seal(&mut self, id: u32) {
        let segment = &mut self.segments[id as usize];
        assert_eq!(segment.phase, Phase::Open);
        segment.phase = Phase::Sealed;
        if segment.order == 0 {
            segment.order = self.order_next;
            self.order_next += 1;
        }
        let queue = if segment.queue == Queue::Small { &mut self.small } else { &mut self.main };
        let replaced = queue.insert(segment.order, id);
        assert!(replaced.is_none(), "two segments with one place in the queue");
        if segment.live_items == 0 {
            self.drain(id);
            self.release(id);
        }
    }

    fn sweep(&mut self, now: u32) {
        for id in 0..self.segments.len() {
            if !matches!(self.segments[id].phase, Phase::Open | Phase::Sealed) {
                continue;
            }
            let expired: Vec<u32> = self.segments[id]
                .entries
                .iter()
                .enumerate()
                .filter(|(index, entry)| {
                    let slot = self.slots[entry.object.key as usize];
                    entry.object.expiry <= now && slot.segment == id as u32 && slot.entry == *index as u32
                })
                .map(|(_, entry)| entry.object.key)
                .collect();
            for key in expired {
                self.forget(key);
            }
        }
    }
}

impl Cache for Log {
    fn read(&mut self, key: u32, now: u32) -> bool {
        let slot = self.slots[key as usize];
        if slot.segment == NONE {
            return false;
        }
        let entry = &self.segments[slot.segment as usize].entries[slot.entry as usize];
        if entry.object.expiry <= now {
            self.forget(key);
            return false;
        }
        self.slots[key as usize].frequency = match self.settings.policy {
            Policy::Fifo => 0,
            Policy::Merge => merge::count(slot.frequency, self.writes),
            Policy::S3(_) => (slot.frequency + 1).min(FREQUENCY_MAX),
        };
        true
    }

    fn write(&mut self, object: Object, now: u32) {
        self.writes += 1;
        let entry = Entry { object, bytes: item_bytes(object.payload) };
        self.traffic.written_bytes += u64::from(entry.bytes);
        self.turn = (self.turn + 1) % self.settings.workers;
        let class = ttl_class(self.settings.ttl_classes, object.ttl);
        let slot = self.slots[object.key as usize];
        let held = slot.segment != NONE;
        let in_main = held && self.segments[slot.segment as usize].queue == Queue::Main;
        let promoted = slot.ghost != 0 || in_main || (held && slot.promoted);
        let queue = match self.settings.policy {
            Policy::S3(s3) if !(s3.direct && promoted) => Queue::Small,
            _ => Queue::Main,
        };
        if slot.ghost != 0 {
            self.slots[object.key as usize].ghost = 0;
            self.ghosts_live -= 1;
        }
        self.append(entry, Lane::Worker(self.turn, queue), class, 0, now);
        let new = &mut self.slots[object.key as usize];
        new.promoted = promoted;
        new.frequency = if held { slot.frequency } else { 0 };
        self.make_room(0, now);
        assert!(self.charged_bytes() <= self.limit_bytes, "the log holds more than its limit");
    }

    fn tick(&mut self, now: u32) {
        for id in 0..self.segments.len() as u32 {
            let segment = &self.segments[id as usize];
            if segment.phase == Phase::Sealed && segment.expiry_max <= now {
                self.drain(id);
                self.release(id);
            }
        }
        if self.settings.sweep_seconds > 0 && now.is_multiple_of(self.settings.sweep_seconds) {
            self.sweep(now);
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn holding(&self, now: u32) -> Holding {
        let mut holding = Holding { charged_bytes: self.charged_bytes(), ..Holding::default() };
        for slot in self.slots.iter().filter(|slot| slot.segment != NONE) {
            let object = self.segments[slot.segment as usize].entries[slot.entry as usize].object;
            if object.expiry > now {
                holding.items += 1;
                holding.payload_bytes += u64::from(object.payload);
            }
        }
        holding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const S3_PLAIN: S3 =
        S3 { small_percent: 10, threshold: 1, ghost_percent: 100, direct: false, by_size: false };

    pub(super) const MIB: u64 = 1 << 20;

    pub(super) fn log(policy: Policy, compact_below_percent: u32) -> Log {
        let settings = Settings {
            policy,
            compact_below_percent,
            weigh_age: false,
            ttl_classes: 1,
            workers: 1,
            sweep_seconds: 0,
        };
        Log::new(settings, 2 * MIB, 100_000)
    }

    pub(super) fn object(key: u32, payload: u32) -> Object {
        Object { key, payload, expiry: NONE, ttl: NONE }
    }

    /// The counters against what they count.
    pub(super) fn check(log: &Log) {
        let held = |segment: &&Segment| segment.phase != Phase::Free;
        let capacity: u64 = log.segments.iter().filter(held).map(|segment| u64::from(segment.capacity)).sum();
        assert_eq!(log.allocated_bytes, capacity);
        let mut live = vec![(0, 0); log.segments.len()];
        for slot in log.slots.iter().filter(|slot| slot.segment != NONE) {
            let segment = &log.segments[slot.segment as usize];
            live[slot.segment as usize].0 += 1;
            live[slot.segment as usize].1 += segment.entries[slot.entry as usize].bytes;
        }
        for (segment, (items, bytes)) in log.segments.iter().zip(&live).filter(|(segment, _)| held(segment)) {
            assert_eq!((segment.live_items, segment.live_bytes), (*items, *bytes));
            assert!(segment.used <= segment.capacity);
        }
        assert_eq!(log.items, live.iter().map(|(items, _)| u64::from(*items)).sum());
        assert_eq!(log.ghosts_live, log.slots.iter().filter(|slot| slot.ghost != 0).count() as u64);
        let sealed = log.segments.iter().filter(|segment| segment.phase == Phase::Sealed).count();
        assert_eq!(log.small.len() + log.main.len(), sealed);
        assert!(log.charged_bytes() <= log.limit_bytes);
    }

    #[test]
    fn sizes_are_rounded_as_the_store_rounds_them() {
        assert_eq!(item_bytes(15 + 32), 64);
        assert_eq!(item_bytes(30 + 100), 152);
        assert_eq!(segment_bytes(64 * MIB), 64 << 10);
        assert_eq!(segment_bytes(256 * MIB), 256 << 10);
        assert_eq!(segment_bytes(16 << 30), 2 << 20);
    }

    #[test]
    fn ttl_classes_split_at_their_limits() {
        let classes = |count, ttls: [u32; 4]| ttls.map(|ttl| ttl_class(count, ttl));
        assert_eq!(classes(1, [1, 60, 3600, NONE]), [0, 0, 0, 0]);
        assert_eq!(classes(2, [60, 1800, 1801, NONE]), [0, 0, 1, 1]);
        assert_eq!(classes(4, [60, 3600, 86_400, NONE]), [0, 1, 2, 3]);
        assert_eq!(classes(8, [30, 60, 3600, NONE]), [0, 1, 4, 7]);
    }

    #[test]
    fn fifo_forgets_in_the_order_of_writing() {
        let mut log = log(Policy::Fifo, 0);
        for key in 0..20_000 {
            log.write(object(key, 112), 0);
            log.read(0, 0);
        }
        let oldest = (0..20_000).find(|&key| log.contains(key)).expect("something is held");
        assert!(oldest > 0);
        assert!((oldest..20_000).all(|key| log.contains(key)));
        assert_eq!(log.traffic().moved_bytes, 0);
        check(&log);
    }

    #[test]
    fn overwriting_leaves_dead_bytes_that_compaction_regains_and_eviction_does_not() {
        let lost = |compact_below_percent| {
            let mut log = log(Policy::S3(S3_PLAIN), compact_below_percent);
            for key in 0..1600 {
                log.write(object(key, 1000), 0);
            }
            // Every second key is written again and again: half of each early segment stays alive.
            for _ in 0..10 {
                for key in (0..1600).step_by(2) {
                    log.write(object(key, 1000), 0);
                }
            }
            check(&log);
            (0..1600).filter(|&key| !log.contains(key)).count()
        };
        assert_eq!(lost(90), 0);
        assert!(lost(0) > 100, "{}", lost(0));
    }

    #[test]
    fn a_large_item_gets_a_run_of_whole_granules_and_frees_it_when_it_dies() {
        let mut log = log(Policy::S3(S3_PLAIN), 75);
        log.write(object(1, 20_000), 0);
        assert_eq!(log.allocated_bytes, 20_480);
        log.write(object(1, 30_000), 0);
        assert_eq!(log.allocated_bytes, 32_768);
        log.forget(1);
        assert_eq!(log.allocated_bytes, 0);
        check(&log);
    }

    #[test]
    fn expiry_is_exact_and_whole_segments_go_at_once() {
        let mut log = log(Policy::S3(S3_PLAIN), 75);
        for key in 0..2000 {
            log.write(Object { key, payload: 112, expiry: 10, ttl: 10 }, 0);
        }
        assert!(log.read(0, 9));
        assert!(!log.read(0, 10));
        let before = log.allocated_bytes;
        log.tick(10);
        // What is left is the open segment.
        assert!(before > log.allocated_bytes);
        assert_eq!(log.allocated_bytes, 64 << 10);
        check(&log);
    }

    #[test]
    fn a_sweep_finds_expired_items_among_living_ones() {
        let mut log = log(Policy::S3(S3_PLAIN), 75);
        log.settings.sweep_seconds = 60;
        for key in 0..2000 {
            let expiry = if key % 2 == 0 { 10 } else { NONE };
            log.write(Object { key, payload: 112, expiry, ttl: expiry }, 0);
        }
        log.tick(59);
        assert_eq!(log.items, 2000);
        log.tick(60);
        assert_eq!(log.items, 1000);
        check(&log);
    }

    #[test]
    fn memory_all_in_open_segments_is_reclaimed_by_closing_one() {
        let mut log = log(Policy::S3(S3_PLAIN), 0);
        log.settings.workers = 64;
        log.open = vec![NONE; 64 * 2 + 3];
        for key in 0..10_000 {
            log.write(object(key, 112), 0);
        }
        assert!(log.items > 0);
        check(&log);
    }
}
