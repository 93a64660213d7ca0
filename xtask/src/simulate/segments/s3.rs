//! S3-FIFO over segments: a small probationary queue, a main queue, and ghosts of what left the small one unread.

use super::{Entry, Lane, Log, Phase, Queue, S3};

impl Log {
    /// Evicts one segment: from the small queue while it is over its share, else from the main queue.
    pub(super) fn evict_s3(&mut self, s3: S3, now: u32) -> bool {
        let share = self.limit_bytes * u64::from(s3.small_percent) / 100;
        let small = self.small.first_key_value().map(|(_, &id)| id);
        let main = self.main.first_key_value().map(|(_, &id)| id);
        match (small, main) {
            (Some(id), _) if self.small_bytes > share => self.evict_small(id, s3, now),
            (_, Some(id)) => self.evict_main(id, now),
            (Some(id), None) => self.evict_small(id, s3, now),
            (None, None) => return false,
        }
        true
    }

    fn evict_small(&mut self, id: u32, s3: S3, now: u32) {
        let class = self.segments[id as usize].class;
        for (entry, slot) in self.drain(id) {
            if entry.object.expiry <= now {
                continue;
            }
            if slot.promoted || slot.frequency >= s3.threshold {
                let slot = &mut self.slots[entry.object.key as usize];
                (slot.frequency, slot.promoted) = (0, false);
                self.survive(id, entry, class, now);
            } else {
                self.forget(entry.object.key);
                self.haunt(entry.object.key, s3);
            }
        }
        self.finish(id);
    }

    fn evict_main(&mut self, id: u32, now: u32) {
        self.note_eviction(id);
        let class = self.segments[id as usize].class;
        for (entry, slot) in self.drain(id) {
            if entry.object.expiry > now && slot.frequency > 0 {
                self.slots[entry.object.key as usize].frequency -= 1;
                self.survive(id, entry, class, now);
            }
        }
        self.finish(id);
    }

    /// A run moves to the main queue as it is; anything else is copied.
    fn survive(&mut self, id: u32, entry: Entry, class: usize, now: u32) {
        if !self.is_large(entry.bytes) {
            self.copy(entry, Lane::Survivors, class, 0, now);
            return;
        }
        let segment = &mut self.segments[id as usize];
        if segment.queue == Queue::Small {
            self.small_bytes -= u64::from(segment.capacity);
        }
        (segment.queue, segment.order, segment.phase) = (Queue::Main, 0, Phase::Open);
        self.seal(id);
    }

    fn finish(&mut self, id: u32) {
        if self.segments[id as usize].phase == Phase::Draining {
            self.release(id);
        }
    }

    fn haunt(&mut self, key: u32, s3: S3) {
        let ghosts_max = self.items * u64::from(s3.ghost_percent) / 100;
        if ghosts_max > 0 {
            self.ghost_next = self.ghost_next % (u32::MAX - 1) + 1;
            self.ghosts.push_back((key, self.ghost_next));
            self.slots[key as usize].ghost = self.ghost_next;
            self.ghosts_live += 1;
        }
        while self.ghosts_live > ghosts_max {
            let Some((key, stamp)) = self.ghosts.pop_front() else { break };
            let slot = &mut self.slots[key as usize];
            if slot.ghost == stamp {
                slot.ghost = 0;
                self.ghosts_live -= 1;
            }
        }
    }
}
