//! Counts items that go without any command having taken them out, so that who looks for one later knows why it is missing.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Items are counted by so many parts of the hashes: 64 KiB. With 10 000 evictions in a second, about every second part
/// has none.
const PARTS: usize = 1 << 14;

/// Items that went of which no trace tells. Any thread may note and read them.
pub struct Vanished {
    /// By part of the hashes.
    parts: Box<[AtomicU32]>,
    /// Those whose hash is not known; they count in every part.
    anywhere: AtomicU32,
    /// All that began to go.
    begun: AtomicU64,
    /// All that have gone, and are counted above.
    done: AtomicU64,
}

impl Default for Vanished {
    fn default() -> Self {
        Vanished {
            parts: (0..PARTS).map(|_| AtomicU32::new(0)).collect(),
            anywhere: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }
}

impl Vanished {
    /// Another number than before, if an item with this hash went since and [`Vanished::is_settled`]. Numbers come again
    /// after 2^32 items.
    #[inline]
    #[must_use]
    pub fn near(&self, hash: u64) -> u32 {
        // Acquire pairs with the release in `note`, as with all loads here.
        let here = self.parts[part(hash)].load(Ordering::Acquire);
        // Both only grow, so another number of one is another sum.
        here.wrapping_add(self.anywhere.load(Ordering::Acquire))
    }

    /// Whether every item that is missing now, as somebody saw, is counted. While items go it is not, for an instant.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        // In this order: what had begun when the second was read was done when the first was read.
        let done = self.done.load(Ordering::Acquire);
        done == self.begun.load(Ordering::Acquire)
    }

    /// Has an item go, whose hash may be known, and counts it.
    ///
    /// Counted afterwards, so that a number that was read before the item was found is another one; and announced before,
    /// so that who missed it knows that the number is on its way.
    pub(crate) fn note<T>(&self, hash: Option<u64>, go: impl FnOnce() -> T) -> T {
        // Sequentially consistent: announced before the item goes.
        self.begun.fetch_add(1, Ordering::SeqCst);
        let result = go();
        match hash {
            Some(hash) => self.parts[part(hash)].fetch_add(1, Ordering::Release),
            None => self.anywhere.fetch_add(1, Ordering::Release),
        };
        self.done.fetch_add(1, Ordering::Release);
        result
    }
}

/// The part of the hashes that an item counts in.
fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_goes_is_counted_afterwards_and_announced_before() {
        let vanished = Vanished::default();
        let (here, there) = (1 << 40, 2 << 40);
        let near = || [vanished.near(here), vanished.near(here + 1), vanished.near(there)];
        assert!(vanished.is_settled());
        assert_eq!(near(), [0, 0, 0]);
        vanished.note(Some(here), || {
            assert!(!vanished.is_settled());
            assert_eq!(near(), [0, 0, 0]);
        });
        assert!(vanished.is_settled());
        assert_eq!(near(), [1, 1, 0]);
        vanished.note(None, || {});
        assert_eq!(near(), [2, 2, 1]);
    }
}
