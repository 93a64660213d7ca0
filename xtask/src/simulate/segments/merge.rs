//! Segment merging: four neighbours in the queue become one that keeps what is read most per byte.

use std::cmp::Reverse;

use super::{Entry, Lane, Log, Phase, Queue, Slot};
use crate::random::mix;

const NEIGHBOURS: usize = 4;
/// Up to here every read counts, above only one in `frequency`.
const EXACT_MAX: u8 = 16;

/// The read counter after one more read: exact at first, then probabilistic, so that a byte is enough.
pub(super) fn count(frequency: u8, salt: u64) -> u8 {
    let counts =
        frequency < EXACT_MAX || mix(salt ^ u64::from(frequency)).is_multiple_of(u64::from(frequency));
    frequency.saturating_add(u8::from(counts)).min(127)
}

impl Log {
    pub(super) fn merge(&mut self, now: u32) -> bool {
        let Some(sources) = self.neighbours() else {
            return self.evict_oldest();
        };
        let first = self.segments[sources[0] as usize].order;
        self.merge_cursor = first + 1;
        let mut live: Vec<(Entry, Slot)> = Vec::new();
        for &id in &sources {
            live.append(&mut self.drain(id));
        }
        live.retain(|(entry, _)| entry.object.expiry > now);
        // Most reads per byte first; scaled so that the comparison stays in integers.
        live.sort_by_key(|(entry, slot)| Reverse((u64::from(slot.frequency) << 32) / u64::from(entry.bytes)));
        // A run that survives keeps its own place; the segment made by merging takes that of another source.
        let copied = sources.iter().find(|&&id| !self.segments[id as usize].run);
        let place = copied.map_or(first, |&id| self.segments[id as usize].order);
        self.keep_best(&live, place, now);
        for &id in &sources {
            if self.segments[id as usize].phase == Phase::Draining {
                self.release(id);
            }
        }
        true
    }

    /// The next four segments of one placement class, from where the last merge ended and around.
    fn neighbours(&self) -> Option<Vec<u32>> {
        let from_cursor = self.main.range(self.merge_cursor..).chain(self.main.range(..self.merge_cursor));
        let class_of = |id: u32| self.segments[id as usize].class;
        for (&order, &id) in from_cursor {
            let same = self
                .main
                .range(order..)
                .map(|(_, &next)| next)
                .filter(|&next| class_of(next) == class_of(id));
            let sources: Vec<u32> = same.take(NEIGHBOURS).collect();
            if sources.len() == NEIGHBOURS {
                return Some(sources);
            }
        }
        None
    }

    fn keep_best(&mut self, live: &[(Entry, Slot)], order: u64, now: u32) {
        let mut left = self.segment_bytes;
        let mut filled = None;
        for &(entry, slot) in live {
            let key = entry.object.key as usize;
            self.slots[key].frequency = slot.frequency / 2;
            if self.is_large(entry.bytes) {
                if slot.frequency > 0 {
                    let segment = &mut self.segments[slot.segment as usize];
                    segment.phase = Phase::Open;
                    self.seal(slot.segment);
                }
            } else if entry.bytes <= left {
                left -= entry.bytes;
                let class = self.segments[slot.segment as usize].class;
                self.copy(entry, Lane::Compaction(Queue::Main), class, order, now);
                filled = Some(self.slots[key].segment);
            }
        }
        if let Some(id) = filled {
            // Each merge fills a segment of its own, so that it can take its sources' place at once.
            for place in &mut self.open {
                if *place == id {
                    *place = super::NONE;
                }
            }
            self.seal(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, log, object};
    use super::super::{NONE, Policy};
    use super::*;
    use crate::simulate::cache::Cache;

    #[test]
    fn counting_is_exact_at_first_and_never_overflows() {
        assert_eq!((0..16).fold(0, count), 16);
        let many = (0..100_000).fold(0, count);
        assert!(many > 16);
        assert!(many <= 127);
    }

    #[test]
    fn merging_keeps_what_is_read_and_a_quarter_of_the_bytes() {
        let mut log = log(Policy::Merge, 0);
        let mut key = 0;
        while log.merge_cursor == 0 {
            log.write(object(key, 112), 0);
            if key % 8 == 0 {
                log.read(key, 0);
            }
            key += 1;
        }
        // The first four segments have become one; every eighth of their items had been read.
        let per_segment = (64 << 10) / 128;
        let kept: Vec<u32> = (0..4 * per_segment).filter(|&key| log.contains(key)).collect();
        assert_eq!(kept.len() as u32, per_segment);
        assert!((0..4 * per_segment).step_by(8).all(|key| log.slots[key as usize].segment != NONE));
        assert_eq!(log.traffic().moved_bytes, 64 << 10);
        check(&log);
    }

    #[test]
    fn merging_copes_with_large_items_between_small_ones() {
        let mut log = log(Policy::Merge, 0);
        for key in 0..5000 {
            log.write(object(key, if key % 50 == 0 { 20_000 } else { 112 }), 0);
            log.read(key / 100 * 100, 0);
        }
        check(&log);
    }
}
