//! Segment merging: four neighbours in the queue become one that keeps what is read most per byte.

use std::cmp::Reverse;

use super::{Entry, Lane, Log, Phase, Queue, Slot};
use crate::simulate::random::mix;

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
