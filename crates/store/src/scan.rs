//! Walking over all items in pieces, and checking that the store's structures agree.

use std::collections::BTreeMap;

use crate::bucket::Entry;
use crate::request::View;
use crate::store::Store;
use crate::worker::Worker;

/// Where a walk over all items stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    bucket: usize,
    /// Buckets when the walk began; those made later are visited with the ones they were split from.
    count: usize,
}

impl Worker {
    /// Shows the items of the next few buckets; false when the walk is over.
    ///
    /// An item that is there all the time is shown once, unless an insertion moves it to its other bucket meanwhile,
    /// which is rare: then it may be shown twice or not at all. Expired items are shown.
    pub fn scan(&mut self, cursor: &mut Cursor, buckets: usize, visit: &mut dyn FnMut(&View<'_>)) -> bool {
        self.round();
        let store = self.store();
        if cursor.count == 0 {
            cursor.count = store.index.count();
        }
        let end = cursor.count.min(cursor.bucket + buckets);
        let mut entries: Vec<Entry> = Vec::new();
        for bucket in cursor.bucket..end {
            store.index.visit(bucket, cursor.count, |entry| entries.push(entry));
            // Shown outside the stripe: what this worker saw in its epoch stays readable.
            for entry in entries.drain(..) {
                if let Some(view) = store.view(entry.location()) {
                    visit(&view);
                }
            }
        }
        cursor.bucket = end;
        end < cursor.count
    }
}

impl Worker {
    /// Forgets what a core wrote: all of it in segments that were begun from this one on, and of what is older that whose
    /// checksum is wrong. How many items that were.
    pub fn look_back(&mut self, core: u16, since_birth: u64) -> u64 {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut dropped = 0;
        let count = self.store().index.count();
        for bucket in 0..count {
            self.round();
            let store = self.store();
            store.index.visit(bucket, count, |entry| {
                let location = entry.location();
                let item = store.item(location);
                if item.core() == core && item.has_sound_lengths() {
                    let birth = store.segments.at(store.segments.of(location)).birth();
                    if birth >= since_birth || !item.is_intact(store.cas_of(location, item)) {
                        keys.push(item.key().to_vec());
                    }
                }
            });
            for key in keys.drain(..) {
                dropped += u64::from(self.forget(&key));
            }
        }
        dropped
    }
}

impl Store {
    /// The number of the segment that is begun next, to tell later what was written before now.
    #[must_use]
    pub fn birth_to_come(&self) -> u64 {
        self.segments.birth_to_come()
    }

    /// Compares index, segments and counts with each other. For tests: nobody else uses the store meanwhile.
    ///
    /// # Errors
    /// The first disagreement found.
    pub fn check(&self) -> Result<(), String> {
        let (mut items, mut bytes) = (0, 0);
        let mut alive: BTreeMap<u32, u64> = BTreeMap::new();
        let count = self.index.count();
        let mut wrong = None;
        for bucket in 0..count {
            self.index.visit(bucket, count, |entry| {
                let location = entry.location();
                let item = self.item(location);
                let hash = self.hash(item.key());
                let size = item.layout().bytes() as u64;
                items += 1;
                bytes += size;
                *alive.entry(self.segments.of(location)).or_default() += size;
                let found = self.index.find(hash, |other| self.item(other).key() == item.key());
                if found.map(|found| found.entry.location()) != Some(location) {
                    wrong = Some(format!("bucket {bucket}: {:?} is not where it is looked for", item.key()));
                }
                if !item.is_intact(self.cas_of(location, item)) {
                    wrong = Some(format!("bucket {bucket}: {:?} has a wrong checksum", item.key()));
                }
            });
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let stats = self.stats();
        if (stats.items, stats.live_bytes) != (items, bytes) {
            return Err(format!(
                "counted {} items of {} bytes, found {items} of {bytes}",
                stats.items, stats.live_bytes
            ));
        }
        for (slot, bytes) in alive {
            let live = self.segments.at(slot).live();
            if live != bytes {
                return Err(format!("segment {slot}: {live} bytes alive by count, {bytes} found"));
            }
        }
        Ok(())
    }
}
