//! Figures about a store.

/// What a store holds and what it did; counters count from the store's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items in the index, those included that nobody has noticed to be expired.
    pub items: u64,
    /// Versions ever published by commands.
    pub total_items: u64,
    /// Bytes of the items in the index: headers, keys, values, padding.
    pub live_bytes: u64,
    /// Items pushed out while they were still valid.
    pub evictions: u64,
    /// Of those, never fetched.
    pub evicted_unfetched: u64,
    /// Expired or flushed items removed.
    pub reclaimed: u64,
    /// Of those, expired and never fetched.
    pub expired_unfetched: u64,
    /// Items dropped because their bytes did not fit their checksum.
    pub crc_mismatches: u64,
    /// Segments that can be handed out without evicting.
    pub segments_free: u64,
    /// Segments being appended to.
    pub segments_open: u64,
    /// Segments that are complete.
    pub segments_sealed: u64,
    /// Items in a run of their own.
    pub segments_large: u64,
    /// Segments that wait until nobody can look into them any more.
    pub segments_retired: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Buckets of the index.
    pub index_buckets: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Everything that counts against the limit.
    pub memory_used: u64,
    /// The limit.
    pub memory_limit: u64,
    /// Bytes reported through `Store::charge`.
    pub charged: u64,
    /// Buckets split to let the index grow.
    pub splits: u64,
    /// Slots moved to their other bucket to make room.
    pub displaced: u64,
    /// Items evicted because both their buckets were full.
    pub bucket_evictions: u64,
    /// Items moved by eviction and compaction.
    pub moved_items: u64,
    /// Bytes moved by eviction and compaction.
    pub moved_bytes: u64,
    /// Segments emptied by eviction.
    pub segments_evicted: u64,
    /// Segments emptied by compaction.
    pub segments_compacted: u64,
}
