//! Buckets of eight slots in one cache line, and the memory they live in.
//!
//! ```text
//!  63 62 61 60 59        40 39                     0
//! |state|freq |    tag     |  location, or era      |
//! ```

use crate::sync::{AtomicU64, Ordering};

/// Slots of a bucket; two for loom, which tries every order of every access.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

const LOCATION_BITS: u32 = 40;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const TAG_BITS: u32 = 20;
const TAG_MASK: u64 = ((1 << TAG_BITS) - 1) << LOCATION_BITS;
const FREQ_SHIFT: u32 = 60;
const FREQ_MASK: u64 = 3 << FREQ_SHIFT;
const STATE_MASK: u64 = 3 << 62;
const LIVE: u64 = 1 << 62;
const GHOST: u64 = 2 << 62;

/// Where an item lies: its offset in the arena in units of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(pub(crate) u64);

/// The largest arena that locations can address.
pub(crate) const ARENA_BYTES_MAX: usize = 8 << LOCATION_BITS;

/// The content of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u64);

impl Entry {
    pub(crate) const EMPTY: Entry = Entry(0);
    pub(crate) const FREQ_MAX: u64 = 3;

    pub(crate) fn live(tag: u64, freq: u64, location: Location) -> Self {
        assert!(location.0 <= LOCATION_MASK);
        Entry(LIVE | freq.min(Self::FREQ_MAX) << FREQ_SHIFT | tag | location.0)
    }

    /// Remembers that the key was evicted in this era.
    pub(crate) fn ghost(self, era: u64) -> Self {
        Entry(GHOST | self.0 & TAG_MASK | era & LOCATION_MASK)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 & STATE_MASK == 0
    }

    pub(crate) fn is_live(self) -> bool {
        self.0 & STATE_MASK == LIVE
    }

    pub(crate) fn is_ghost(self) -> bool {
        self.0 & STATE_MASK == GHOST
    }

    /// The part of a hash that is kept in the entry, in place.
    pub(crate) fn tag_of(hash: u64) -> u64 {
        hash >> (64 - TAG_BITS) << LOCATION_BITS
    }

    pub(crate) fn tag(self) -> u64 {
        self.0 & TAG_MASK
    }

    pub(crate) fn is_live_with(self, tag: u64) -> bool {
        self.0 & (STATE_MASK | TAG_MASK) == LIVE | tag
    }

    pub(crate) fn freq(self) -> u64 {
        (self.0 & FREQ_MASK) >> FREQ_SHIFT
    }

    pub(crate) fn with_freq(self, freq: u64) -> Self {
        Entry(self.0 & !FREQ_MASK | freq.min(Self::FREQ_MAX) << FREQ_SHIFT)
    }

    pub(crate) fn location(self) -> Location {
        Location(self.0 & LOCATION_MASK)
    }

    pub(crate) fn era(self) -> u64 {
        self.0 & LOCATION_MASK
    }
}

/// One cache line of the index.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    slots: [AtomicU64; SLOTS],
}

impl Bucket {
    #[inline]
    pub(crate) fn load(&self, slot: usize) -> Entry {
        // Acquire pairs with the release in `store`: whoever sees a location sees the item.
        Entry(self.slots[slot].load(Ordering::Acquire))
    }

    /// Writes a slot; the caller holds the bucket's stripe.
    pub(crate) fn store(&self, slot: usize, entry: Entry) {
        if cfg!(loom) {
            // A reader's exchange that came first is overwritten and one that comes later fails; loom would let one
            // be both, unless told by an exchange here as well.
            self.slots[slot].swap(entry.0, Ordering::AcqRel);
        } else {
            self.slots[slot].store(entry.0, Ordering::Release);
        }
    }

    /// Counts an access, unless the slot changed meanwhile.
    #[inline]
    pub(crate) fn count_access(&self, slot: usize, entry: Entry) {
        if entry.freq() < Entry::FREQ_MAX {
            let counted = entry.with_freq(entry.freq() + 1);
            let _ =
                self.slots[slot].compare_exchange(entry.0, counted.0, Ordering::Release, Ordering::Relaxed);
        }
    }

    pub(crate) fn free_slots(&self) -> usize {
        (0..SLOTS).filter(|slot| !self.load(*slot).is_live()).count()
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::Buckets;
#[cfg(loom)]
pub(crate) use modelled::Buckets;

/// Address space for as many buckets as there may ever be; pages come when a bucket is first written.
#[cfg(not(loom))]
mod mapped {
    use std::io;

    use super::Bucket;
    use crate::mapping::Mapping;

    pub(crate) struct Buckets {
        mapping: Mapping,
        count: usize,
    }

    impl Buckets {
        pub(crate) fn reserve(count: usize, huge_pages: bool) -> io::Result<Self> {
            let mapping = Mapping::reserve(count * size_of::<Bucket>(), 2 << 20)?;
            if huge_pages {
                mapping.prefer_huge_pages();
            }
            Ok(Buckets { mapping, count })
        }

        pub(crate) fn len(&self) -> usize {
            self.count
        }

        #[inline]
        pub(crate) fn at(&self, index: usize) -> &Bucket {
            assert!(index < self.count);
            // SAFETY: the index is within the mapping (asserted), which is aligned beyond a bucket's alignment and
            // starts as zeros, a valid bucket of empty slots; it is only ever accessed through its atomics.
            unsafe { self.mapping.base().cast::<Bucket>().add(index).as_ref() }
        }

        #[inline]
        pub(crate) fn prefetch(&self, index: usize) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing, whatever the address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.mapping.base().cast::<Bucket>().add(index).as_ptr().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = index;
        }
    }
}

/// The same without memory mapping, for loom.
#[cfg(loom)]
mod modelled {
    use std::io;

    use super::{AtomicU64, Bucket};

    pub(crate) struct Buckets(Vec<Bucket>);

    impl Buckets {
        pub(crate) fn reserve(count: usize, _huge_pages: bool) -> io::Result<Self> {
            let empty = || Bucket { slots: std::array::from_fn(|_| AtomicU64::new(0)) };
            Ok(Buckets((0..count).map(|_| empty()).collect()))
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn at(&self, index: usize) -> &Bucket {
            &self.0[index]
        }

        pub(crate) fn prefetch(&self, _index: usize) {}
    }
}
