//! The table from keys to items: buckets of eight slots, two candidates per key, growing bucket by bucket.
//!
//! Growth is linear hashing (Litwin, VLDB 1980): with `n` buckets and `L` the largest power of two up to `n`, a hash
//! goes to its value modulo `2L` if that is below `n`, else modulo `L`. Bucket number `n` is made by splitting bucket
//! `n − L`; nothing else moves, and the load stays where it is at every size.
//!
//! Readers take no lock. What they see in a slot is final. A reader that found nothing looks whether the number of
//! buckets, or the move counter of one of its stripes, changed meanwhile, and if so looks again: every move publishes
//! the copy, then changes the number or the counter, then clears the source.
//!
//! Writers hold the stripes of both candidates, in ascending order. A bucket and the one split from it share a stripe,
//! because the number of stripes is a power of two and never above the number of buckets.
//!
//! Limits: when both candidates are full, up to [`DISPLACED_MAX`] entries are moved to their other buckets; if that
//! does not help, the entry with the lowest frequency of the sixteen makes room.

use std::io;

use crate::bucket::{Buckets, Entry, Location, SLOTS};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, Padded, fence, yield_now};

const STRIPES_MAX: usize = 1024;
const LOCKED: u32 = 1 << 31;

/// Entries per hundred slots above which the table grows.
///
/// Buckets not yet split in a round of growth get twice as many keys as the others. Filling a table to a million
/// entries, with up to three moves per insertion: at 80 % 4,000 entries find no room, at 75 % and below none; at 75 %
/// three insertions of ten move something, at 70 % two.
const LOAD_PERCENT_MAX: u64 = 70;

/// Entries moved at most to make room for one.
const DISPLACED_MAX: usize = 3;

/// The hash of a key, from which candidates and tag follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub u64);

impl Hash {
    fn first(self) -> u32 {
        self.0 as u32
    }

    fn second(self) -> u32 {
        (self.0.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as u32
    }

    pub(crate) fn tag(self) -> u64 {
        Entry::tag_of(self.0)
    }
}

/// The table.
pub(crate) struct Index {
    buckets: Buckets,
    count: Padded<AtomicU64>,
    stripes: Box<[Padded<AtomicU32>]>,
    growth: Mutex<()>,
}

/// An entry found, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) bucket: usize,
    pub(crate) slot: usize,
    pub(crate) entry: Entry,
}

/// Both stripes of a key, held.
pub(crate) struct Locked<'i> {
    index: &'i Index,
    hash: Hash,
    pair: [usize; 2],
    stripes: [usize; 2],
}

/// Stripes held on the way of a displacement.
struct Held {
    stripes: [usize; DISPLACED_MAX + 2],
    count: usize,
}

impl Held {
    fn push(&mut self, stripe: usize) {
        self.stripes[self.count] = stripe;
        self.count += 1;
    }

    fn pop(&mut self) {
        self.count -= 1;
    }

    fn has(&self, stripe: usize) -> bool {
        self.stripes[..self.count].contains(&stripe)
    }
}

/// What an insertion did besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// An entry that had to go for lack of room.
    pub(crate) evicted: Option<Entry>,
    /// Whether some entry was moved to its other bucket.
    pub(crate) displaced: bool,
}

impl Index {
    /// A table of `buckets` buckets (a power of two) that can grow to `buckets_max`.
    pub(crate) fn new(buckets: usize, buckets_max: usize, huge_pages: bool) -> io::Result<Self> {
        assert!(buckets.is_power_of_two());
        assert!(buckets <= buckets_max);
        let stripes = (0..buckets.min(STRIPES_MAX)).map(|_| Padded(AtomicU32::new(0))).collect();
        Ok(Index {
            buckets: Buckets::reserve(buckets_max, huge_pages)?,
            count: Padded(AtomicU64::new(buckets as u64)),
            stripes,
            growth: Mutex::new(()),
        })
    }

    /// Buckets in use.
    pub(crate) fn count(&self) -> usize {
        // Acquire pairs with the release in `split`: whoever sees the new bucket sees what was copied to it.
        self.count.0.load(Ordering::Acquire) as usize
    }

    pub(crate) fn bucket(&self, index: usize) -> &crate::bucket::Bucket {
        self.buckets.at(index)
    }

    #[inline]
    pub(crate) fn prefetch(&self, hash: Hash) {
        for bucket in pair(hash, self.count()) {
            self.buckets.prefetch(bucket);
        }
    }

    /// The first entry with the hash's tag, for prefetching the item behind it.
    #[inline]
    pub(crate) fn first_candidate(&self, hash: Hash) -> Option<Entry> {
        pair(hash, self.count()).into_iter().find_map(|bucket| {
            let bucket = self.buckets.at(bucket);
            (0..SLOTS).map(|slot| bucket.load(slot)).find(|entry| entry.is_live_with(hash.tag()))
        })
    }

    /// Finds a key's entry without a lock; `is_key` tells whether the item at a location has the key.
    #[inline]
    pub(crate) fn find(&self, hash: Hash, mut is_key: impl FnMut(Location) -> bool) -> Option<Found> {
        loop {
            let count = self.count();
            let pair = pair(hash, count);
            let moves = pair.map(|bucket| self.moves(bucket));
            if let Some(found) = self.scan(pair, hash, &mut is_key) {
                return Some(found);
            }
            // The slots were read before this; what follows tells whether an entry moved past us.
            fence(Ordering::Acquire);
            if self.count() == count && pair.map(|bucket| self.moves(bucket)) == moves {
                return None;
            }
            #[cfg(loom)]
            yield_now();
        }
    }

    /// Takes both stripes of a key.
    pub(crate) fn lock(&self, hash: Hash) -> Locked<'_> {
        loop {
            let chosen = pair(hash, self.count());
            let mut stripes = chosen.map(|bucket| self.stripe_of(bucket));
            stripes.sort_unstable();
            self.lock_stripe(stripes[0]);
            if stripes[1] != stripes[0] {
                self.lock_stripe(stripes[1]);
            }
            let locked = Locked { index: self, hash, pair: chosen, stripes };
            // Under the stripes the key's buckets can't be split any more; they may have been before.
            if pair(hash, self.count()) == chosen {
                return locked;
            }
        }
    }

    /// Whether so many entries are too many for the table as it is.
    pub(crate) fn wants_growth(&self, entries: u64) -> bool {
        let count = self.count();
        count < self.buckets.len() && entries * 100 > count as u64 * SLOTS as u64 * LOAD_PERCENT_MAX
    }

    /// Adds a bucket by splitting one; false when the table has its largest size or somebody else is at it.
    /// `hash_of` gives the hash of the key of the item at a location.
    pub(crate) fn split(&self, mut hash_of: impl FnMut(Location) -> Hash) -> bool {
        let Ok(_growing) = self.growth.try_lock() else { return false };
        let count = self.count();
        if count == self.buckets.len() {
            return false;
        }
        let source = count - largest_power(count);
        let stripe = self.stripe_of(source);
        assert_eq!(stripe, self.stripe_of(count));
        self.lock_stripe(stripe);
        let (from, to) = (self.buckets.at(source), self.buckets.at(count));
        let mut moved = [false; SLOTS];
        for (slot, moves) in moved.iter_mut().enumerate() {
            let entry = from.load(slot);
            // A ghost has no key to hash; it is forgotten.
            *moves = entry.is_ghost();
            if entry.is_live() && !pair(hash_of(entry.location()), count + 1).contains(&source) {
                *moves = true;
                to.store(slot, entry);
            }
        }
        self.count.0.store(count as u64 + 1, Ordering::Release);
        for slot in (0..SLOTS).filter(|slot| moved[*slot]) {
            from.store(slot, Entry::EMPTY);
        }
        self.unlock_stripe(stripe);
        true
    }

    /// Takes the entry with this location out of a bucket; false if it is no longer there.
    pub(crate) fn remove(&self, bucket: usize, location: Location) -> bool {
        let stripe = self.stripe_of(bucket);
        self.lock_stripe(stripe);
        let place = self.buckets.at(bucket);
        let found = (0..SLOTS).find(|slot| {
            let entry = place.load(*slot);
            entry.is_live() && entry.location() == location
        });
        if let Some(slot) = found {
            place.store(slot, Entry::EMPTY);
        }
        self.unlock_stripe(stripe);
        found.is_some()
    }

    /// All live entries of what was one bucket when there were `count` buckets, under its stripe.
    pub(crate) fn visit(&self, bucket: usize, count: usize, mut each: impl FnMut(Entry)) {
        let stripe = self.stripe_of(bucket);
        self.lock_stripe(stripe);
        let now = self.count();
        for descendant in (bucket..now).step_by(largest_power(count)) {
            if address(descendant as u32, count) != bucket {
                continue;
            }
            let place = self.buckets.at(descendant);
            (0..SLOTS).map(|slot| place.load(slot)).filter(|entry| entry.is_live()).for_each(&mut each);
        }
        self.unlock_stripe(stripe);
    }

    #[inline]
    fn scan(&self, pair: [usize; 2], hash: Hash, is_key: &mut impl FnMut(Location) -> bool) -> Option<Found> {
        for bucket in pair {
            let place = self.buckets.at(bucket);
            for slot in 0..SLOTS {
                let entry = place.load(slot);
                if entry.is_live_with(hash.tag()) && is_key(entry.location()) {
                    return Some(Found { bucket, slot, entry });
                }
            }
        }
        None
    }

    /// Makes a slot of a bucket vacant by at most so many moves; its stripe and those on the way are held.
    fn vacate(
        &self,
        source: usize,
        moves: usize,
        held: &mut Held,
        hash_of: &mut impl FnMut(Location) -> Hash,
    ) -> Option<usize> {
        let from = self.buckets.at(source);
        if moves == 0 {
            return (0..SLOTS).find(|slot| !from.load(*slot).is_live());
        }
        (0..SLOTS).find(|slot| {
            let entry = from.load(*slot);
            entry.is_live() && self.move_away((source, *slot, entry), moves, held, hash_of)
        })
    }

    /// Moves an entry to its other bucket, if a slot can be made vacant there.
    fn move_away(
        &self,
        (source, slot, entry): (usize, usize, Entry),
        moves: usize,
        held: &mut Held,
        hash_of: &mut impl FnMut(Location) -> Hash,
    ) -> bool {
        let hash = hash_of(entry.location());
        let other = || {
            let pair = pair(hash, self.count());
            if pair[0] == source { pair[1] } else { pair[0] }
        };
        let target = other();
        let stripe = self.stripe_of(target);
        let is_new = !held.has(stripe);
        // Out of the ascending order, so without waiting.
        if target == source || is_new && !self.try_lock_stripe(stripe) {
            return false;
        }
        held.push(stripe);
        // The target may have been split before its stripe was ours.
        let vacant = (other() == target).then(|| self.vacate(target, moves - 1, held, hash_of)).flatten();
        // What was to move may have moved already, on the way.
        let vacant = vacant.filter(|_| self.buckets.at(source).load(slot) == entry);
        if let Some(vacant) = vacant {
            self.buckets.at(target).store(vacant, entry);
            self.count_move(self.stripe_of(source));
            self.buckets.at(source).store(slot, Entry::EMPTY);
        }
        held.pop();
        if is_new {
            self.unlock_stripe(stripe);
        }
        vacant.is_some()
    }

    fn stripe_of(&self, bucket: usize) -> usize {
        bucket & (self.stripes.len() - 1)
    }

    fn moves(&self, bucket: usize) -> u32 {
        self.stripes[self.stripe_of(bucket)].0.load(Ordering::Acquire) & !LOCKED
    }

    fn try_lock_stripe(&self, stripe: usize) -> bool {
        let word = &self.stripes[stripe].0;
        let seen = word.load(Ordering::Relaxed);
        seen & LOCKED == 0
            && word.compare_exchange(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn lock_stripe(&self, stripe: usize) {
        let mut tries = 0_u32;
        while !self.try_lock_stripe(stripe) {
            tries += 1;
            // The holder may have been descheduled; on a machine with few cores spinning would keep it so.
            if tries.is_multiple_of(64) || cfg!(loom) {
                yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn unlock_stripe(&self, stripe: usize) {
        self.stripes[stripe].0.fetch_and(!LOCKED, Ordering::Release);
    }

    /// Tells readers that an entry has a second place before its first one is cleared.
    fn count_move(&self, stripe: usize) {
        let word = &self.stripes[stripe].0;
        let seen = word.load(Ordering::Relaxed);
        word.store(LOCKED | (seen & !LOCKED).wrapping_add(1) & !LOCKED, Ordering::Release);
    }
}

impl Locked<'_> {
    /// Finds the key's entry.
    pub(crate) fn find(&self, mut is_key: impl FnMut(Location) -> bool) -> Option<Found> {
        self.index.scan(self.pair, self.hash, &mut is_key)
    }

    /// Finds the entry with this very location.
    pub(crate) fn find_location(&self, location: Location) -> Option<Found> {
        self.find(|found| found == location)
    }

    /// Replaces an entry found under this lock.
    pub(crate) fn replace(&self, found: Found, entry: Entry) {
        self.index.buckets.at(found.bucket).store(found.slot, entry);
    }

    /// The era of the key's ghost, if it has one.
    pub(crate) fn ghost(&self) -> Option<u64> {
        self.pair.into_iter().find_map(|bucket| {
            let place = self.index.buckets.at(bucket);
            (0..SLOTS)
                .map(|slot| place.load(slot))
                .find(|entry| entry.is_ghost() && entry.tag() == self.hash.tag())
                .map(Entry::era)
        })
    }

    /// Inserts an entry for a key that has none; `hash_of` gives the hash behind a location.
    pub(crate) fn insert(&self, entry: Entry, mut hash_of: impl FnMut(Location) -> Hash) -> Inserted {
        let [first, second] = self.pair.map(|bucket| self.index.buckets.at(bucket));
        let order = if second.free_slots() > first.free_slots() { [1, 0] } else { [0, 1] };
        let place = self.vacant(order, |e| e.is_ghost() && e.tag() == self.hash.tag());
        let place = place.or_else(|| self.vacant(order, Entry::is_empty));
        let place = place.or_else(|| self.vacant(order, Entry::is_ghost));
        let mut inserted = Inserted::default();
        let (which, slot) = place.unwrap_or_else(|| match self.displace(&mut hash_of) {
            Some(place) => {
                inserted.displaced = true;
                place
            }
            None => {
                let (which, slot, coldest) = self.coldest();
                inserted.evicted = Some(coldest);
                (which, slot)
            }
        });
        self.index.buckets.at(self.pair[which]).store(slot, entry);
        inserted
    }

    fn vacant(&self, order: [usize; 2], is_vacant: impl Fn(Entry) -> bool) -> Option<(usize, usize)> {
        order.into_iter().find_map(|which| {
            let place = self.index.buckets.at(self.pair[which]);
            (0..SLOTS).find(|slot| is_vacant(place.load(*slot))).map(|slot| (which, slot))
        })
    }

    /// Moves entries to their other buckets, the fewest first; the slot that came free.
    fn displace(&self, hash_of: &mut impl FnMut(Location) -> Hash) -> Option<(usize, usize)> {
        for moves in 1..=DISPLACED_MAX {
            for which in [0, 1] {
                let mut held = Held { stripes: [self.stripes[0]; DISPLACED_MAX + 2], count: 1 };
                held.push(self.stripes[1]);
                if let Some(slot) = self.index.vacate(self.pair[which], moves, &mut held, hash_of) {
                    return Some((which, slot));
                }
            }
        }
        None
    }

    fn coldest(&self) -> (usize, usize, Entry) {
        let slots = (0..2).flat_map(|which| (0..SLOTS).map(move |slot| (which, slot)));
        slots
            .map(|(which, slot)| (which, slot, self.index.buckets.at(self.pair[which]).load(slot)))
            .min_by_key(|(_, _, entry)| entry.freq())
            .expect("two buckets have sixteen slots")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.index.unlock_stripe(self.stripes[0]);
        if self.stripes[1] != self.stripes[0] {
            self.index.unlock_stripe(self.stripes[1]);
        }
    }
}

/// Both candidates of a hash.
#[inline]
pub(crate) fn pair(hash: Hash, count: usize) -> [usize; 2] {
    [address(hash.first(), count), address(hash.second(), count)]
}

/// The bucket of one of a key's two hash values.
#[inline]
fn address(hash: u32, count: usize) -> usize {
    let power = largest_power(count);
    let wide = hash as usize & (2 * power - 1);
    if wide < count { wide } else { wide & (power - 1) }
}

/// The largest power of two that is not above `count`.
#[inline]
fn largest_power(count: usize) -> usize {
    1 << count.ilog2()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash_of(location: Location) -> Hash {
        Hash(
            location
                .0
                .wrapping_add(1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(31)
                .wrapping_mul(0xBF58_476D_1CE4_E5B9),
        )
    }

    fn insert(index: &Index, id: u64) -> Inserted {
        let hash = hash_of(Location(id));
        let locked = index.lock(hash);
        locked.insert(Entry::live(hash.tag(), 0, Location(id)), hash_of)
    }

    #[test]
    fn addresses_are_linear_hashing() {
        let check = |hash, count, expected| assert_eq!(address(hash, count), expected, "{hash} of {count}");
        check(5, 4, 1);
        check(5, 5, 1);
        check(5, 6, 5);
        check(7, 6, 3);
        check(7, 8, 7);
        check(u32::MAX, 8, 7);
    }

    #[test]
    fn every_entry_finds_room_and_is_found_at_every_size() {
        const ENTRIES: u64 = 300_000;
        let index = Index::new(4, 1 << 16, false).expect("a small table");
        for id in 0..ENTRIES {
            assert_eq!(insert(&index, id).evicted, None, "entry {id}");
            while index.wants_growth(id + 1) {
                assert!(index.split(hash_of));
            }
        }
        for id in 0..ENTRIES {
            assert!(index.find(hash_of(Location(id)), |location| location.0 == id).is_some(), "entry {id}");
        }
        let mut visited = vec![0; ENTRIES as usize];
        let count = index.count();
        for bucket in 0..count {
            index.visit(bucket, count, |entry| visited[entry.location().0 as usize] += 1);
        }
        assert!(visited.iter().all(|times| *times == 1));
    }

    #[test]
    fn a_visit_that_began_before_a_growth_sees_everything_once() {
        let index = Index::new(16, 1024, false).expect("a small table");
        (0..100).for_each(|id| assert_eq!(insert(&index, id).evicted, None));
        let count = index.count();
        let mut visited = [0; 100];
        for bucket in 0..count {
            index.visit(bucket, count, |entry| visited[entry.location().0 as usize] += 1);
            (0..5).for_each(|_| assert!(index.split(hash_of)));
        }
        assert_eq!(visited, [1; 100]);
    }

    #[test]
    fn a_full_pair_makes_room() {
        let index = Index::new(1, 1, false).expect("a small table");
        (0..8).for_each(|id| assert_eq!(insert(&index, id), Inserted::default()));
        let ninth = insert(&index, 8);
        assert!(ninth.evicted.is_some());
    }
}
