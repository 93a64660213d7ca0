//! Walking over what lies in memory, whether anybody reads it or not, and checking it.
//!
//! An item whose checksum is wrong, or that of a word outside it, is forgotten: the next read is a miss. Where a
//! length is wrong, nothing says where in its segment the next item begins, so the whole segment is given up.
//!
//! A walk goes over the index bucket by bucket. Entries that an insertion moves meanwhile may be left out of one walk;
//! the next one has them.

use std::ops::Range;

use crate::bucket::{Entry, SLOTS};
use crate::maintain::Maintenance;
use crate::store::{Gone, Store};

/// Values up to this long are searched for a single flipped bit that explains their damage; it takes the square.
const EXPLAINED_BYTES_MAX: usize = 1 << 10;

/// What one stretch of a walk came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Items checked.
    pub items: u64,
    /// Whether the walk reached its end; the next stretch begins another.
    pub is_complete: bool,
    /// What was found damaged, and forgotten.
    pub damages: Vec<Damage>,
}

/// An item that no longer said what it said when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The key as it was found; it may be what is damaged.
    pub key: Vec<u8>,
    /// What was wrong.
    pub part: Part,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// The one bit of the value that explains it, counted from the lowest of its first byte; none if there is no
    /// such bit, or the value is longer than a KiB.
    pub bit: Option<u64>,
    /// The core whose worker wrote the item.
    pub core: u16,
    /// Items that went with it, because they lay in the same segment.
    pub with_it: u64,
}

/// Which part of an item was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the checksum covers: value, key, lengths, flags, cas id.
    Content,
    /// The expiry time.
    Exptime,
    /// The lengths, so that where the item ends is not known.
    Lengths,
}

impl Store {
    /// Checks the items of the next `buckets` buckets of the index.
    pub fn scrub(&self, buckets: usize) -> Scrubbed {
        let mut maintenance = self.lock_maintenance();
        maintenance.participant.round();
        let count = self.index.count();
        let begin = if maintenance.scrub_next < count { maintenance.scrub_next } else { 0 };
        let end = count.min(begin + buckets);
        let mut scrubbed = self.scrub_buckets(&maintenance, begin..end);
        maintenance.participant.offline();
        scrubbed.is_complete = end == count;
        maintenance.scrub_next = if scrubbed.is_complete { 0 } else { end };
        scrubbed
    }

    fn scrub_buckets(&self, maintenance: &Maintenance, buckets: Range<usize>) -> Scrubbed {
        let mut scrubbed = Scrubbed::default();
        for bucket in buckets {
            for slot in 0..SLOTS {
                let entry = self.index.bucket(bucket).load(slot);
                if !entry.is_live() {
                    continue;
                }
                scrubbed.items += 1;
                if let Some(part) = self.damaged_part(entry) {
                    scrubbed.damages.extend(self.drop_damaged(maintenance, bucket, entry, part));
                }
            }
        }
        scrubbed
    }

    fn damaged_part(&self, entry: Entry) -> Option<Part> {
        let location = entry.location();
        if !self.segments.is_sound(location) {
            return Some(Part::Lengths);
        }
        let item = self.item(location);
        if !item.is_intact(self.cas_of(location, item)) {
            return Some(Part::Content);
        }
        item.exptime().is_none().then_some(Part::Exptime)
    }

    /// Takes a damaged item out of the index; nothing if it was gone already.
    fn drop_damaged(
        &self,
        maintenance: &Maintenance,
        bucket: usize,
        entry: Entry,
        part: Part,
    ) -> Option<Damage> {
        let location = entry.location();
        let item = self.item(location);
        let counters = self.counters(maintenance.participant.place());
        let mut damage =
            Damage { key: Vec::new(), part, value_bytes: 0, bit: None, core: item.core(), with_it: 0 };
        if part == Part::Lengths {
            let slot = self.segments.of(location);
            if !self.vanished.note(None, || self.index.remove(bucket, location)) {
                return None;
            }
            counters.items.sub(1);
            counters.crc_mismatches.add(1);
            damage.with_it = self.condemn(maintenance, slot);
            return Some(damage);
        }
        damage.key = item.key().to_vec();
        damage.value_bytes = item.value().len();
        if part == Part::Content {
            let cas = self.cas_of(location, item);
            damage.bit = guard::flipped_bit(&mut item.value().to_vec(), EXPLAINED_BYTES_MAX, |value| {
                item.is_intact_with(cas, value)
            });
        }
        // Not by the key's hash: the key may be what is damaged.
        if !self.vanished.note(None, || self.index.remove(bucket, location)) {
            return None;
        }
        self.account_gone(location, Gone::Damaged, counters);
        Some(damage)
    }

    /// Gives up a sealed segment in which a length is damaged; how many items went with it.
    ///
    /// It is never used again: its memory is suspect, and an entry that was moved past this walk still finds its item.
    /// In a segment that is still open, whoever walks it later finds the same.
    pub(crate) fn condemn(&self, maintenance: &Maintenance, slot: u32) -> u64 {
        if !self.segments.condemn(slot) {
            return 0;
        }
        let counters = self.counters(maintenance.participant.place());
        let mut gone = 0;
        for bucket in 0..self.index.count() {
            for place in 0..SLOTS {
                let entry = self.index.bucket(bucket).load(place);
                let location = entry.location();
                if !entry.is_live()
                    || self.segments.of(location) != slot
                    || !self.vanished.note(None, || self.index.remove(bucket, location))
                {
                    continue;
                }
                gone += 1;
                match self.segments.is_sound(location) {
                    true => self.account_gone(location, Gone::Evicted, counters),
                    false => counters.items.sub(1),
                }
            }
        }
        // What is left by count are the items whose lengths are not known.
        counters.live_bytes.sub(self.segments.at(slot).live() as usize);
        gone
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::options::StoreOptions;
    use crate::request::{Env, Exptime, Fetch, Op, Put, Request, Status};
    use crate::worker::Worker;

    fn put<'a>(key: &'a [u8], value: &'a [u8], exptime: i64) -> Request<'a> {
        let put = Put { flags: 7, exptime: Exptime(exptime), ..Put::set(value) };
        Request { key, op: Op::Put(put) }
    }

    fn get(worker: &mut Worker, key: &[u8], env: &Env) -> Status {
        worker.execute(&Request { key, op: Op::Fetch(Fetch::default()) }, env).status
    }

    /// Walks once over everything.
    fn walk(store: &Store) -> Scrubbed {
        let mut all = Scrubbed::default();
        while !all.is_complete {
            let stretch = store.scrub(7);
            all.items += stretch.items;
            all.damages.extend(stretch.damages);
            all.is_complete = stretch.is_complete;
        }
        all
    }

    /// Flips a bit of key 50 of 100, counted from the start of its header, and walks.
    fn check(bit: Option<usize>, part: Option<Part>, explained: Option<u64>) {
        let store = Store::new(StoreOptions::default()).expect("address space");
        let mut worker = store.worker(3).expect("a place");
        let env = store.env(1_000);
        for number in 0..100 {
            let key = format!("key{number:02}");
            assert_eq!(worker.execute(&put(key.as_bytes(), b"value", 50), &env).status, Status::Stored);
        }
        let found = store.index.find(store.hash(b"key50"), |location| store.item(location).key() == b"key50");
        let location = found.expect("it was stored").entry.location();
        if let Some(bit) = bit {
            // SAFETY: the item is in the arena and nobody else uses the store; a flipped bit is the point.
            unsafe { *store.segments.address(location).add(bit / 8).as_ptr() ^= 1 << (bit % 8) };
        }
        let scrubbed = walk(&store);
        assert_eq!(scrubbed.items, 100);
        let damage = scrubbed.damages.first();
        assert_eq!(damage.map(|damage| damage.part), part, "bit {bit:?}");
        assert_eq!(scrubbed.damages.len(), usize::from(part.is_some()));
        if let Some(damage) = damage {
            assert_eq!((damage.bit, damage.core), (explained, 3), "bit {bit:?}");
        }
        let is_there = get(&mut worker, b"key50", &env) == Status::Hit;
        assert_eq!(is_there, part.is_none(), "bit {bit:?}");
        assert_eq!(get(&mut worker, b"key49", &env), Status::Hit);
        assert_eq!(walk(&store).damages, []);
        assert_eq!(store.stats().items, scrubbed.items - u64::from(part.is_some()));
    }

    /// Lengths 0, header 8, expiry time 16, flags 24, key 28, value 33.
    #[test]
    fn what_is_damaged_is_found_and_forgotten() {
        check(None, None, None);
        for bit in [8 * 33, 8 * 33 + 39, 8 * 35 + 3] {
            check(Some(bit), Some(Part::Content), Some(bit as u64 - 8 * 33));
        }
        for bit in [8 * 28 + 1, 8 * 24, 8 * 8 + 5] {
            check(Some(bit), Some(Part::Content), None);
        }
        check(Some(8 * 16 + 9), Some(Part::Exptime), None);
        for bit in [0, 13, 31, 8 * 4, 8 * 5] {
            check(Some(bit), Some(Part::Lengths), None);
        }
    }

    /// With a damaged length nothing says where the next item begins, and with a damaged key nothing finds the item:
    /// when its segment is to be evicted, it goes as a whole.
    #[test]
    fn a_segment_with_a_damaged_length_is_given_up() {
        // Header 16 bytes, flags 4, then the key.
        for bit in [None, Some(7), Some(8 * 23)] {
            let store = Store::new(StoreOptions { memory_bytes: 4 << 20, ..StoreOptions::default() })
                .expect("address space");
            let mut worker = store.worker(0).expect("a place");
            let env = store.env(1_000);
            let value = [b'v'; 1_000];
            for number in 0..300 {
                worker.execute(&put(format!("key{number}").as_bytes(), &value, 0), &env);
            }
            let found =
                store.index.find(store.hash(b"key5"), |location| store.item(location).key() == b"key5");
            let location = found.expect("it was stored").entry.location();
            if let Some(bit) = bit {
                // SAFETY: as above.
                unsafe { *store.segments.address(location).add(bit / 8).as_ptr() ^= 1 << (bit % 8) };
            }
            for number in 300..20_000 {
                worker.execute(&put(format!("key{number}").as_bytes(), &value, 0), &env);
            }
            assert_eq!(walk(&store).damages, []);
            assert_eq!(store.stats().crc_mismatches, u64::from(bit.is_some()), "bit {bit:?}");
            store.check().expect("the structures agree");
        }
    }
}
