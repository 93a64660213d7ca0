//! The store: what all workers share, and what is known about it.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use guard::Disagreement;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

use crate::bucket::{ARENA_BYTES_MAX, Bucket, Entry, Location, SLOTS};
use crate::decide::Sight;
use crate::epoch::Epochs;
use crate::index::{Found, Hash, Index, Locked};
use crate::item::{ACCESS_SECONDS_MAX, Item};
use crate::maintain::Maintenance;
use crate::options::{Error, MEMORY_BYTES_MIN, Stats, StoreOptions};
use crate::order::Orders;
use crate::request::{Env, View};
use crate::segment::{Demand, Segments};
use crate::sync::Padded;
use crate::vanished::Vanished;

const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 2 << 20;

/// Address space reserved for items at least; it costs nothing until it is used.
const ARENA_BYTES_MIN: u64 = 64 << 30;

/// Epoch places beyond those of the workers: maintenance, and holders of long views.
const PARTICIPANTS_BESIDES: usize = 4;

/// Segments that only maintenance may take, so that there is always a place to move survivors to.
pub(crate) const RESERVED_SEGMENTS: u64 = 3;

/// Disagreements kept until somebody takes them.
const DISAGREEMENTS_MAX: usize = 64;

/// With fewer segments than this in the limit, items are not sorted by expiry time: open segments would hold too much.
const SEGMENTS_FOR_CLASSES: u64 = 512;

/// A cache of items in memory, shared by all workers.
pub struct Store {
    pub(crate) options: StoreOptions,
    pub(crate) segments: Segments,
    pub(crate) index: Index,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) maintenance: Mutex<Maintenance>,
    /// Evictions so far; the age of ghosts is counted in them.
    pub(crate) era: AtomicU64,
    /// Items of which no trace tells that they went.
    pub(crate) vanished: Vanished,
    secrets: RapidSecrets,
    pub(crate) orders: Orders,
    /// What was not taken yet; [`DISAGREEMENTS_MAX`] at most, later ones are only counted.
    disagreements: Mutex<Vec<Disagreement>>,
    disagreed: AtomicU64,
    /// One for each epoch place; written by whoever holds the place.
    counters: Box<[Padded<Counters>]>,
    memory_bytes: AtomicU64,
    charged: AtomicI64,
    flushed_below: AtomicU64,
    flush_at: AtomicU32,
}

/// What one participant counts. Only its owner writes; sums wrap, so that differences may be negative.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) items: Counter,
    pub(crate) total_items: Counter,
    pub(crate) live_bytes: Counter,
    pub(crate) evictions: Counter,
    pub(crate) evicted_unfetched: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) expired_unfetched: Counter,
    pub(crate) crc_mismatches: Counter,
    pub(crate) moved_items: Counter,
    pub(crate) moved_bytes: Counter,
    pub(crate) examined: Counter,
    pub(crate) direct_reclaims: Counter,
    pub(crate) out_of_memory: Counter,
    pub(crate) fetches_expired: Counter,
    pub(crate) fetches_flushed: Counter,
    pub(crate) displaced: Counter,
}

/// A number with one writer and many readers.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, number: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(number as u64), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, number: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(number as u64), Ordering::Relaxed);
    }
}

/// Why an item is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// A command said so, or a new version is in its place.
    Asked,
    /// Its time was over, or it was flushed.
    Dead,
    /// For lack of memory.
    Evicted,
    /// Its checksum, or that of a word outside it, is wrong.
    Damaged,
    /// Somebody said so who executes no command.
    ByHand,
}

impl Store {
    /// Reserves address space for a store; memory comes with use.
    ///
    /// # Errors
    /// When the memory limit is too small, or the operating system refuses the address space.
    pub fn new(options: StoreOptions) -> Result<Arc<Self>, Error> {
        let segment_bytes =
            (options.memory_bytes / 1024).next_power_of_two().clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let arena_bytes = (options.memory_bytes.saturating_mul(8)).max(ARENA_BYTES_MIN);
        let arena_bytes = arena_bytes.min(ARENA_BYTES_MAX as u64);
        if !(MEMORY_BYTES_MIN..=arena_bytes).contains(&options.memory_bytes) {
            return Err(Error::memory_limit(options.memory_bytes, MEMORY_BYTES_MIN, arena_bytes));
        }
        let reserve = |bytes: u64| move |source| Error::reserve(bytes as usize, source);
        let segments = Segments::new(segment_bytes as usize, arena_bytes as usize, options.huge_pages)
            .map_err(reserve(arena_bytes))?;
        // The smallest items take 24 bytes; a table for so many at the load it grows at is never outgrown.
        let buckets_max = (arena_bytes / 256).next_power_of_two().min(1 << 31);
        let buckets = match options.hash_power {
            Some(power) => (1_u64 << power.clamp(7, 34)) / SLOTS as u64,
            None => (options.memory_bytes / (64 * 64)).next_power_of_two().clamp(256, 8192),
        };
        let index = Index::new(buckets as usize, buckets_max as usize, options.huge_pages)
            .map_err(reserve(buckets_max * size_of::<Bucket>() as u64))?;
        let participants = options.workers_max + PARTICIPANTS_BESIDES;
        let epochs = Arc::new(Epochs::new(participants));
        let own = epochs.participant().ok_or_else(|| Error::too_many_workers(options.workers_max))?;
        Ok(Arc::new(Store {
            secrets: RapidSecrets::seed(options.seed),
            orders: Orders::default(),
            disagreements: Mutex::new(Vec::new()),
            disagreed: AtomicU64::new(0),
            segments,
            index,
            maintenance: Mutex::new(Maintenance::new(own)),
            era: AtomicU64::new(0),
            vanished: Vanished::default(),
            counters: (0..participants).map(|_| Padded::default()).collect(),
            epochs,
            memory_bytes: AtomicU64::new(options.memory_bytes),
            charged: AtomicI64::new(0),
            flushed_below: AtomicU64::new(0),
            flush_at: AtomicU32::new(0),
            options,
        }))
    }

    /// The environment of commands executed at this Unix second. A flush that is due takes place.
    #[must_use]
    pub fn env(&self, now: u32) -> Env {
        let due = self.flush_at.load(Ordering::Relaxed);
        if due != 0
            && due <= now
            && self.flush_at.compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.flush();
        }
        Env { now, flushed_below: self.flushed_below() }
    }

    /// Forgets all items. Environments made before don't know of it.
    pub fn flush(&self) {
        // Births are given under the ledger's lock: nobody opens a younger segment without knowing of the flush.
        let _ledger = self.segments.ledger();
        self.flushed_below.fetch_max(self.segments.next_birth(), Ordering::AcqRel);
    }

    /// The environment with the flushes that took place since it was made. What an older one shows as alive would,
    /// written or moved, come back to life: in a segment that is younger than the flush.
    pub(crate) fn refreshed(&self, env: &Env) -> Env {
        Env { flushed_below: env.flushed_below.max(self.flushed_below()), ..*env }
    }

    /// Forgets all items that are there at that Unix second; 0 takes an earlier order back.
    pub fn flush_at(&self, unix: u32) {
        self.flush_at.store(unix, Ordering::Relaxed);
    }

    pub(crate) fn flushed_below(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Items that went of which no trace tells: evicted, found damaged, or forgotten by [`Worker::forget`].
    ///
    /// [`Worker::forget`]: crate::Worker::forget
    #[must_use]
    pub fn vanished(&self) -> &Vanished {
        &self.vanished
    }

    /// Changes the memory limit; maintenance gives back what is above it.
    ///
    /// # Errors
    /// When the limit is below 1 MiB or above the address space reserved.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), Error> {
        let max =
            self.options.memory_bytes.saturating_mul(8).max(ARENA_BYTES_MIN).min(ARENA_BYTES_MAX as u64);
        if !(MEMORY_BYTES_MIN..=max).contains(&bytes) {
            return Err(Error::memory_limit(bytes, MEMORY_BYTES_MIN, max));
        }
        self.memory_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts bytes held elsewhere (buffers of connections) against the limit; negative when they are let go.
    pub fn charge(&self, bytes: i64) {
        self.charged.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Largest value, in bytes.
    #[must_use]
    pub fn item_bytes_max(&self) -> u32 {
        self.options.item_bytes_max
    }

    /// Whether maintenance has something to do at once: memory is short.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.free_bytes() < self.low_watermark_bytes()
    }

    /// What is known of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let sum = |of: fn(&Counters) -> &Counter| {
            let values = self.counters.iter().map(|counters| of(&counters.0).0.load(Ordering::Relaxed));
            values.fold(0, u64::wrapping_add)
        };
        let ledger = self.segments.ledger();
        let (free, retired, resident) =
            (ledger.free_segments(), ledger.retired_segments(), ledger.resident());
        drop(ledger);
        Stats {
            items: sum(|c| &c.items),
            total_items: sum(|c| &c.total_items),
            live_bytes: sum(|c| &c.live_bytes),
            evictions: sum(|c| &c.evictions),
            evicted_unfetched: sum(|c| &c.evicted_unfetched),
            reclaimed: sum(|c| &c.reclaimed),
            expired_unfetched: sum(|c| &c.expired_unfetched),
            crc_mismatches: sum(|c| &c.crc_mismatches),
            disagreements: self.disagreed.load(Ordering::Relaxed),
            moved_items: sum(|c| &c.moved_items),
            moved_bytes: sum(|c| &c.moved_bytes),
            examined: sum(|c| &c.examined),
            direct_reclaims: sum(|c| &c.direct_reclaims),
            out_of_memory: sum(|c| &c.out_of_memory),
            fetches_expired: sum(|c| &c.fetches_expired),
            fetches_flushed: sum(|c| &c.fetches_flushed),
            segments_free: free as u64,
            segments_retired: retired as u64,
            segment_bytes: self.segments.segment_bytes() as u64,
            segments_bytes: resident,
            index_buckets: self.index.count() as u64,
            index_bytes: self.index_bytes(),
            displaced: sum(|c| &c.displaced),
            memory_used: resident + self.overhead_bytes(),
            memory_limit: self.memory_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn counters(&self, place: usize) -> &Counters {
        &self.counters[place].0
    }

    /// Items, roughly: cheap enough to ask now and then.
    pub(crate) fn items(&self) -> u64 {
        let values = self.counters.iter().map(|counters| counters.0.items.0.load(Ordering::Relaxed));
        values.fold(0, u64::wrapping_add)
    }

    fn index_bytes(&self) -> u64 {
        (self.index.count() * size_of::<Bucket>()) as u64
    }

    fn overhead_bytes(&self) -> u64 {
        let charged = self.charged.load(Ordering::Relaxed).max(0) as u64;
        self.index_bytes() + charged
    }

    /// What segments may hold: the limit less everything else; a few segments in any case.
    pub(crate) fn budget(&self) -> u64 {
        let rest = self.memory_bytes.load(Ordering::Relaxed).saturating_sub(self.overhead_bytes());
        rest.max(8 * self.segments.segment_bytes() as u64)
    }

    pub(crate) fn demand(&self, reserved_segments: u64) -> Demand {
        let reserve = reserved_segments * self.segments.segment_bytes() as u64;
        Demand { budget: self.budget(), reserve }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let budget = self.budget();
        self.segments.ledger().free_bytes(budget)
    }

    /// Free memory, and what will be free when everybody has passed a quiescent point.
    pub(crate) fn coming_bytes(&self) -> u64 {
        let budget = self.budget();
        self.segments.ledger().coming_bytes(budget)
    }

    /// Below this much free memory, maintenance makes room.
    pub(crate) fn low_watermark_bytes(&self) -> u64 {
        let segment = self.segments.segment_bytes() as u64;
        let workers = self.options.workers_max as u64;
        (self.budget() / 64)
            .clamp((RESERVED_SEGMENTS + 2) * segment, (RESERVED_SEGMENTS + 4 * workers + 8) * segment)
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> Hash {
        Hash(rapidhash_v3_inline::<true, false, false>(key, &self.secrets))
    }

    /// The same by other instructions.
    #[inline]
    pub(crate) fn hash_compactly(&self, key: &[u8]) -> Hash {
        Hash(rapidhash_v3_inline::<true, true, false>(key, &self.secrets))
    }

    /// Notes a disagreement, for [`Store::take_disagreements`].
    #[cold]
    pub fn report(&self, disagreement: Disagreement) {
        self.disagreed.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.disagreements.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < DISAGREEMENTS_MAX {
            waiting.push(disagreement);
        }
    }

    /// The disagreements since the last time; more than 64 are counted only.
    pub fn take_disagreements(&self) -> Vec<Disagreement> {
        std::mem::take(&mut *self.disagreements.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn hash_of(&self, location: Location) -> Hash {
        self.hash(self.item(location).key())
    }

    /// The item at a location that was loaded from the index in the caller's epoch, or is protected otherwise.
    #[inline]
    pub(crate) fn item<'a>(&'a self, location: Location) -> Item<'a> {
        // SAFETY: a location gets into the index only with a finished item behind it, and its segment is not used
        // again before everybody who could have loaded it has passed a quiescent point.
        unsafe { Item::at(self.segments.address(location)) }
    }

    /// Whether a location holds an item with this key. One whose lengths are damaged has no key, and no value either:
    /// it would show its neighbours'.
    #[inline]
    pub(crate) fn has_key(&self, location: Location, key: &[u8]) -> bool {
        let item = self.item(location);
        item.has_sound_lengths() && item.key() == key
    }

    #[inline]
    pub(crate) fn cas_of(&self, location: Location, item: Item<'_>) -> u64 {
        item.explicit_cas().unwrap_or_else(|| self.segments.derived_cas(location))
    }

    /// What a decision is made from besides the request.
    #[inline]
    pub(crate) fn sight<'a>(&'a self, location: Location, view: View<'a>) -> Sight<'a> {
        let item = self.item(location);
        Sight { item, cas: self.cas_of(location, item), view }
    }

    /// What a command sees of an item; none when its expiry time is damaged.
    #[inline]
    pub(crate) fn view<'a>(&'a self, location: Location) -> Option<View<'a>> {
        let item = self.item(location);
        let access = item.access();
        Some(View {
            key: item.key(),
            value: item.value(),
            flags: item.flags(),
            exptime: item.exptime()?,
            cas: if self.options.cas { self.cas_of(location, item) } else { 0 },
            birth: self.segments.at(self.segments.of(location)).birth(),
            accessed: self.options.start_unix.saturating_add(access.seconds),
            fetched: access.fetched,
            stale: item.stale(),
            token_sent: access.token_sent,
        })
    }

    /// Seconds since the start, as access words count them.
    #[inline]
    pub(crate) fn seconds(&self, now: u32) -> u32 {
        now.saturating_sub(self.options.start_unix)
    }

    /// The TTL class of an item: to 5 minutes, to 2 hours, to 2 days, longer or never.
    pub(crate) fn class(&self, exptime: u32, now: u32) -> usize {
        let segments = self.memory_bytes.load(Ordering::Relaxed) / self.segments.segment_bytes() as u64;
        if exptime == 0 || segments < SEGMENTS_FOR_CLASSES {
            return crate::CLASSES - 1;
        }
        match exptime.saturating_sub(now) {
            0..=300 => 0,
            301..=7_200 => 1,
            7_201..=172_800 => 2,
            _ => 3,
        }
    }

    /// The Unix second that an access word says when an access at this one was noted in it.
    pub(crate) fn noted(&self, now: u32) -> u32 {
        self.options.start_unix.saturating_add(self.seconds(now).min(ACCESS_SECONDS_MAX))
    }

    /// Takes an item out of the index, under its stripes; `ghost` leaves a trace of it.
    pub(crate) fn forget(
        &self,
        locked: &Locked<'_>,
        found: Found,
        gone: Gone,
        ghost: bool,
        counters: &Counters,
    ) {
        let left = if ghost { found.entry.ghost(self.era.load(Ordering::Relaxed)) } else { Entry::EMPTY };
        let location = found.entry.location();
        let hash = || self.hash_of(location).0;
        match gone {
            Gone::Asked | Gone::Dead => locked.replace(found, left),
            Gone::Evicted => self.vanished.note(Some(hash()), || locked.replace(found, left)),
            // Its key may be what is damaged.
            Gone::Damaged => self.vanished.note(None, || locked.replace(found, left)),
            Gone::ByHand => self.vanished.note(Some(hash()), || locked.replace(found, left)),
        }
        self.account_gone(location, gone, counters);
    }

    /// Counts an item that the index points to no more.
    pub(crate) fn account_gone(&self, location: Location, gone: Gone, counters: &Counters) {
        let item = self.item(location);
        let bytes = item.layout().bytes();
        let unfetched = usize::from(!item.access().fetched);
        match gone {
            Gone::Asked | Gone::ByHand => {}
            Gone::Dead => {
                counters.reclaimed.add(1);
                counters.expired_unfetched.add(unfetched);
            }
            Gone::Evicted => {
                counters.evictions.add(1);
                counters.evicted_unfetched.add(unfetched);
                self.era.fetch_add(1, Ordering::Relaxed);
            }
            Gone::Damaged => counters.crc_mismatches.add(1),
        }
        counters.items.sub(1);
        counters.live_bytes.sub(bytes);
        self.segments.unlink(location, bytes, || self.epochs.retire());
    }

    /// Grows the index as long as it is too full, a bounded number of steps at a time.
    pub(crate) fn grow(&self) {
        for _ in 0..64 {
            if !self.index.wants_growth(self.items()) || !self.index.split(|location| self.hash_of(location))
            {
                break;
            }
        }
    }
}
