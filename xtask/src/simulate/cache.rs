//! What every modelled cache offers, and the reference that never evicts.

use std::mem::size_of;

/// "Nowhere": the list end, the free slot, the absent key.
pub(super) const NONE: u32 = u32::MAX;

/// One value as a client writes it. Keys are dense numbers, so that models index arrays by them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) key: u32,
    /// Bytes of key and value together: what the user asked to keep.
    pub(super) payload: u32,
    /// The second from which the object no longer exists; `NONE` when it never expires.
    pub(super) expiry: u32,
    /// Seconds to live at the time of writing; `NONE` when it never expires.
    pub(super) ttl: u32,
}

/// What a cache has moved and written since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) written_bytes: u64,
    /// Bytes of items that the cache copied on its own account (promotion, compaction).
    pub(super) moved_bytes: u64,
}

/// What a cache holds at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holding {
    /// Items that a read would find now.
    pub(super) items: u64,
    /// Key and value bytes of those.
    pub(super) payload_bytes: u64,
    /// All memory the cache answers for: data, free space, index, ghosts.
    pub(super) charged_bytes: u64,
}

/// A cache under simulation.
pub(super) trait Cache {
    /// Whether `key` is found at second `now`.
    fn read(&mut self, key: u32, now: u32) -> bool;
    /// Stores `object`, replacing what was under its key.
    fn write(&mut self, object: Object, now: u32);
    /// Called once for every second that has passed.
    fn tick(&mut self, now: u32);
    fn traffic(&self) -> Traffic;
    fn holding(&self, now: u32) -> Holding;
}

/// Keeps everything until it expires: its misses are those no amount of memory avoids.
pub(super) struct Unlimited {
    objects: Vec<(u32, u32)>,
    traffic: Traffic,
}

impl Unlimited {
    pub(super) fn new(keys: u32) -> Self {
        Unlimited { objects: vec![(0, 0); keys as usize], traffic: Traffic::default() }
    }
}

impl Cache for Unlimited {
    fn read(&mut self, key: u32, now: u32) -> bool {
        self.objects[key as usize].1 > now
    }

    fn write(&mut self, object: Object, _now: u32) {
        self.objects[object.key as usize] = (object.payload, object.expiry);
        self.traffic.written_bytes += u64::from(object.payload);
    }

    fn tick(&mut self, _now: u32) {}

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn holding(&self, now: u32) -> Holding {
        let mut holding = Holding {
            charged_bytes: (self.objects.len() * size_of::<(u32, u32)>()) as u64,
            ..Holding::default()
        };
        for &(payload, _) in self.objects.iter().filter(|&&(_, expiry)| expiry > now) {
            holding.items += 1;
            holding.payload_bytes += u64::from(payload);
        }
        holding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_forgets_only_by_expiry() {
        let mut cache = Unlimited::new(2);
        assert!(!cache.read(0, 0));
        cache.write(Object { key: 0, payload: 10, expiry: 5, ttl: 5 }, 0);
        cache.write(Object { key: 1, payload: 20, expiry: NONE, ttl: NONE }, 0);
        assert!(cache.read(0, 4));
        assert!(!cache.read(0, 5));
        assert!(cache.read(1, NONE - 1));
        assert_eq!(cache.holding(5).payload_bytes, 20);
        assert_eq!(cache.traffic().written_bytes, 30);
    }
}
