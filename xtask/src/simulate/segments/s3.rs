//! S3-FIFO over segments: a small probationary queue, a main queue, and ghosts of what left the small one unread.

use super::{Entry, Lane, Log, Phase, Queue, S3};

/// How many reads it takes to keep an item of this size.
fn weight(bytes: u32, s3: S3) -> u8 {
    match bytes {
        _ if !s3.by_size => 1,
        0..1024 => 1,
        1024..8192 => 2,
        _ => 3,
    }
}

impl Log {
    /// Evicts one segment: from the small queue while it is over its share, else from the main queue.
    pub(super) fn evict_s3(&mut self, s3: S3, now: u32) -> bool {
        let share = self.limit_bytes * u64::from(s3.small_percent) / 100;
        let small = self.small.first_key_value().map(|(_, &id)| id);
        let main = self.main.first_key_value().map(|(_, &id)| id);
        match (small, main) {
            (Some(id), _) if self.small_bytes > share => self.evict_small(id, s3, now),
            (_, Some(id)) => self.evict_main(id, s3, now),
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
            if slot.promoted || slot.frequency >= s3.threshold + weight(entry.bytes, s3) - 1 {
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

    fn evict_main(&mut self, id: u32, s3: S3, now: u32) {
        self.note_eviction(id);
        let class = self.segments[id as usize].class;
        for (entry, slot) in self.drain(id) {
            if entry.object.expiry > now && slot.frequency >= weight(entry.bytes, s3) {
                self.slots[entry.object.key as usize].frequency -= weight(entry.bytes, s3);
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

#[cfg(test)]
mod tests {
    use super::super::tests::{S3_PLAIN, check, log, object};
    use super::super::{NONE, Policy};
    use super::*;
    use crate::random::Random;
    use crate::simulate::cache::Cache;

    fn queue(log: &Log, key: u32) -> Option<Queue> {
        let segment = log.slots[key as usize].segment;
        (segment != NONE).then(|| log.segments[segment as usize].queue)
    }

    /// Writes keys nobody reads until the segment that holds `key` has been evicted from the small queue.
    fn push_out(log: &mut Log, key: u32, fillers: &mut std::ops::Range<u32>) {
        while queue(log, key) == Some(Queue::Small) {
            log.write(object(fillers.next().expect("enough fillers"), 112), 0);
        }
    }

    #[test]
    fn unread_items_leave_the_small_queue_as_ghosts_and_read_ones_are_promoted() {
        let mut log = log(Policy::S3(S3_PLAIN), 0);
        let mut fillers = 10..50_000;
        for key in [1, 2] {
            log.write(object(key, 112), 0);
        }
        assert!(log.read(1, 0));
        push_out(&mut log, 1, &mut fillers);
        assert_eq!(queue(&log, 1), Some(Queue::Main));
        assert_eq!(log.slots[1].frequency, 0);
        assert_eq!(queue(&log, 2), None);
        assert!(log.slots[2].ghost != 0);
        assert_eq!(log.traffic().moved_bytes, 128);
        check(&log);
    }

    #[test]
    fn the_threshold_counts_reads() {
        let mut log = log(Policy::S3(S3 { threshold: 2, ..S3_PLAIN }), 0);
        let mut fillers = 10..50_000;
        for (key, reads) in [(1, 1), (2, 2), (3, 9)] {
            log.write(object(key, 112), 0);
            for _ in 0..reads {
                assert!(log.read(key, 0));
            }
        }
        push_out(&mut log, 2, &mut fillers);
        assert_eq!([1, 2, 3].map(|key| queue(&log, key)), [None, Some(Queue::Main), Some(Queue::Main)]);
    }

    #[test]
    fn a_ghost_that_comes_back_is_promoted_without_being_read() {
        let mut log = log(Policy::S3(S3_PLAIN), 0);
        let mut fillers = 10..50_000;
        log.write(object(1, 112), 0);
        push_out(&mut log, 1, &mut fillers);
        assert!(log.slots[1].ghost != 0);
        log.write(object(1, 112), 0);
        assert_eq!(log.slots[1].ghost, 0);
        push_out(&mut log, 1, &mut fillers);
        assert_eq!(queue(&log, 1), Some(Queue::Main));
        check(&log);
    }

    #[test]
    fn known_keys_can_be_written_straight_to_the_main_queue() {
        let mut log = log(Policy::S3(S3 { direct: true, ..S3_PLAIN }), 0);
        let mut fillers = 10..50_000;
        log.write(object(1, 112), 0);
        push_out(&mut log, 1, &mut fillers);
        log.write(object(1, 112), 0);
        assert_eq!(queue(&log, 1), Some(Queue::Main));
        log.write(object(1, 112), 0);
        assert_eq!(queue(&log, 1), Some(Queue::Main));
        check(&log);
    }

    #[test]
    fn the_main_queue_gives_as_many_chances_as_reads_up_to_three() {
        let mut log = log(Policy::S3(S3_PLAIN), 0);
        let mut fillers = 10..50_000;
        log.write(object(1, 112), 0);
        assert!(log.read(1, 0));
        push_out(&mut log, 1, &mut fillers);
        for _ in 0..9 {
            assert!(log.read(1, 0));
        }
        let mut copies = 0;
        while log.slots[1].segment != NONE {
            let open = log.slots[1].segment;
            for place in &mut log.open {
                if *place == open {
                    *place = NONE;
                }
            }
            if log.segments[open as usize].phase == Phase::Open {
                log.seal(open);
            }
            log.evict_main(open, S3_PLAIN, 0);
            copies += 1;
        }
        // Three copies, and the fourth eviction finds no reads left.
        assert_eq!(copies, 4);
        check(&log);
    }

    #[test]
    fn larger_items_need_more_reads_when_size_counts() {
        let by_size = S3 { by_size: true, ..S3_PLAIN };
        assert_eq!([128, 1024, 8191, 8192].map(|bytes| weight(bytes, by_size)), [1, 2, 2, 3]);
        assert_eq!([128, 1024, 8192].map(|bytes| weight(bytes, S3_PLAIN)), [1, 1, 1]);
    }

    #[test]
    fn a_promoted_run_is_not_copied() {
        let mut log = log(Policy::S3(S3_PLAIN), 0);
        let mut fillers = 10..50_000;
        log.write(object(1, 20_000), 0);
        assert!(log.read(1, 0));
        push_out(&mut log, 1, &mut fillers);
        assert_eq!(queue(&log, 1), Some(Queue::Main));
        assert_eq!(log.traffic().moved_bytes, 0);
        check(&log);
    }

    #[test]
    fn the_counters_survive_any_mixture() {
        let seed = std::env::var("VERACACHE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
        println!("VERACACHE_SEED={seed}");
        let mut random = Random::new(seed);
        for (direct, compact, ghost_percent) in [(false, 75, 25), (true, 0, 100), (true, 90, 0)] {
            let mut log = log(Policy::S3(S3 { direct, ghost_percent, ..S3_PLAIN }), compact);
            for turn in 0..20_000 {
                let key = random.below(3000) as u32;
                let now = turn / 500;
                if !log.read(key, now) || random.below(3) == 0 {
                    let payload = 16 << random.below(11);
                    let ttl = if random.below(2) == 0 { 5 } else { NONE };
                    let expiry = now.saturating_add(ttl);
                    log.write(super::super::Object { key, payload, expiry, ttl }, now);
                    assert!(log.read(key, now));
                }
                if turn % 500 == 0 {
                    log.tick(now);
                    check(&log);
                }
            }
        }
    }
}
