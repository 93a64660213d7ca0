//! What a store is made with, why it could not be made, and what it says about itself.

use std::fmt;
use std::io;

/// Smallest memory limit.
pub(crate) const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parameters of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Limit for everything the store holds and is charged for, in bytes; 1 MiB at least.
    pub memory_bytes: u64,
    /// Largest value, in bytes.
    pub item_bytes_max: u32,
    /// Whether items are evicted for lack of memory; without, puts fail.
    pub evict: bool,
    /// Whether cas ids are given out; without, every item shows 0.
    pub cas: bool,
    /// Items with one of these flags are only replaced as a whole: nothing is appended to their values, and they are no
    /// numbers. For values that end with a checksum of the client's.
    pub sealed_flags: u32,
    /// Seed of the hash function; unpredictable to clients.
    pub seed: u64,
    /// Workers at a time.
    pub workers_max: usize,
    /// Power of two of the slots the index starts with; chosen from the memory limit when not given.
    pub hash_power: Option<u8>,
    /// How often each decision is computed before it takes hold, on the same core: 1 once, 2 to 16 with comparison.
    pub redundancy: u8,
    /// Whether to ask for huge pages.
    pub huge_pages: bool,
    /// Unix seconds of the start; access times count from here.
    pub start_unix: u32,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            cas: true,
            sealed_flags: 0,
            seed: 0,
            workers_max: 4,
            hash_power: None,
            redundancy: 1,
            huge_pages: false,
            start_unix: 0,
        }
    }
}

/// Why the store could not do what was asked of it.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Reserve { bytes: usize, source: io::Error },
    TooManyWorkers { max: usize },
    MemoryLimit { bytes: u64, min: u64, max: u64 },
}

impl Error {
    pub(crate) fn reserve(bytes: usize, source: io::Error) -> Self {
        Error(Kind::Reserve { bytes, source })
    }

    pub(crate) fn too_many_workers(max: usize) -> Self {
        Error(Kind::TooManyWorkers { max })
    }

    pub(crate) fn memory_limit(bytes: u64, min: u64, max: u64) -> Self {
        Error(Kind::MemoryLimit { bytes, min, max })
    }

    /// Whether the operating system refused address space.
    #[must_use]
    pub fn is_reserve(&self) -> bool {
        matches!(self.0, Kind::Reserve { .. })
    }

    /// Whether a memory limit was out of range.
    #[must_use]
    pub fn is_memory_limit(&self) -> bool {
        matches!(self.0, Kind::MemoryLimit { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Reserve { bytes, source } => write!(
                f,
                "cannot reserve {} MiB of address space: {source}; is there a limit (ulimit -v)?",
                bytes >> 20
            ),
            Kind::TooManyWorkers { max } => write!(f, "more than {max} workers"),
            Kind::MemoryLimit { bytes, min, max } => {
                write!(f, "a memory limit of {bytes} bytes is not between {min} and {max}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Counts and sizes of a store. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items that can be found, or could be but for having expired.
    pub items: u64,
    /// Versions published since the start.
    pub total_items: u64,
    /// Bytes of the items counted in `items`, headers included.
    pub live_bytes: u64,
    /// Items evicted for lack of memory.
    pub evictions: u64,
    /// Those of them that were never fetched.
    pub evicted_unfetched: u64,
    /// Items removed because they had expired or were flushed.
    pub reclaimed: u64,
    /// Those of them that were never fetched.
    pub expired_unfetched: u64,
    /// Items dropped because their checksum was wrong when they were moved.
    pub crc_mismatches: u64,
    /// Executions of one command that did not agree.
    pub disagreements: u64,
    /// Items moved by eviction and compaction.
    pub moved_items: u64,
    /// Bytes of these.
    pub moved_bytes: u64,
    /// Items looked at by maintenance.
    pub examined: u64,
    /// Times a worker had to make room itself.
    pub direct_reclaims: u64,
    /// Puts that found no memory.
    pub out_of_memory: u64,
    /// Fetches that missed because the item had expired.
    pub fetches_expired: u64,
    /// Fetches that missed because the item was flushed.
    pub fetches_flushed: u64,
    /// Segments free, with pages resident.
    pub segments_free: u64,
    /// Segments that nothing points to, but somebody may still look at.
    pub segments_retired: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of pages that segments hold.
    pub segments_bytes: u64,
    /// Buckets of the index in use.
    pub index_buckets: u64,
    /// Bytes of these.
    pub index_bytes: u64,
    /// Entries moved to their other bucket to make room.
    pub displaced: u64,
    /// Everything that counts against the limit.
    pub memory_used: u64,
    /// The limit.
    pub memory_limit: u64,
}
