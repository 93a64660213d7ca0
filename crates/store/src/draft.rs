//! Items that outlive a command: values still arriving, and values being sent in pieces.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::bucket::Location;
use crate::item::{Item, Layout};
use crate::request::View;
use crate::segment::Queue;
use crate::store::Store;

/// An item that nobody sees, whose value is written in pieces.
pub struct Draft {
    store: Arc<Store>,
    location: Location,
    layout: Layout,
    value: NonNull<u8>,
}

// SAFETY: the draft alone knows its place in the arena, which lives as long as the store that it holds.
unsafe impl Send for Draft {}

impl Draft {
    /// Begins an item at a place appended for its layout.
    pub(crate) fn begin(store: &Arc<Store>, location: Location, layout: Layout, key: &[u8]) -> Self {
        store.segments.at(store.segments.of(location)).begin_draft();
        // SAFETY: the place was appended for this layout, and nobody else knows of it.
        let item = unsafe { Item::begin(store.segments.address(location), layout, key) };
        Draft { store: Arc::clone(store), location, layout, value: item.value_pointer() }
    }

    pub(crate) fn location(&self) -> Location {
        self.location
    }

    /// The value's bytes; what is not written to them is whatever was there before.
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: the value lies in the draft's place, which is initialised memory that nobody else writes or reads.
        unsafe { slice::from_raw_parts_mut(self.value.as_ptr(), self.layout.vlen as usize) }
    }

    /// The value as it stands. Published by [`crate::Worker::finish`], it is not written any more.
    pub(crate) fn value<'a>(&self) -> &'a [u8] {
        // SAFETY: as in `buffer`; the worker uses it only while it owns the draft, and with it the store.
        unsafe { slice::from_raw_parts(self.value.as_ptr(), self.layout.vlen as usize) }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let segments = &self.store.segments;
        let slot = segments.of(self.location);
        segments.at(slot).end_draft();
        if self.layout.bytes() > segments.shared_bytes_max() {
            segments.seal(slot, self.layout.bytes(), Queue::Small, None, || self.store.epochs.retire());
        } else {
            segments.retire_if_empty(slot, || self.store.epochs.retire());
        }
    }
}

/// A value kept readable for longer than a round.
pub struct Pinned {
    store: Arc<Store>,
    slot: u32,
    value: NonNull<[u8]>,
}

// SAFETY: what is pinned is immutable and lives as long as the pin.
unsafe impl Send for Pinned {}

impl Pinned {
    /// The item is in view, so its segment can't be used again before the pin is seen.
    pub(crate) fn new(store: &Arc<Store>, item: &View<'_>) -> Self {
        // By the key, which is never empty: an empty value at the end of a segment has the next one's address.
        let slot = store.segments.holding(item.key.as_ptr());
        store.segments.at(slot).pin();
        Pinned { store: Arc::clone(store), slot, value: NonNull::from(item.value) }
    }
}

impl Store {
    /// An owned view of an item's value that outlives the round, for sending it in pieces. It keeps the item's
    /// segment from being used again, so it is to be held as short as possible.
    #[must_use]
    pub fn pin(self: &Arc<Self>, item: &View<'_>) -> Pinned {
        Pinned::new(self, item)
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the segment was pinned while the value was in view, and stays so as long as `self` lives.
        unsafe { self.value.as_ref() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.store.segments.at(self.slot).unpin();
    }
}
