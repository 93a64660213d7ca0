//! What is known about the items as a whole: how many of which size and age.
//!
//! No statistics are kept per class while commands run. When they are asked for, items are looked at, and when there
//! are more than fit into the time that may take, the rest is estimated from those that were seen.

use std::collections::BTreeMap;

use store::View;

use super::classes::{CLASSES_MAX, Classes, item_bytes};

/// Sizes are counted in steps of this many bytes.
const SIZE_STEP: u64 = 32;

/// The result of looking at items.
#[derive(Clone, Debug)]
pub(crate) struct Census {
    now: u32,
    cas: bool,
    seen: u64,
    classes: [Class; CLASSES_MAX],
    sizes: BTreeMap<u64, u64>,
}

/// What is known of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    /// How many items.
    pub(super) items: u64,
    /// The bytes memcached would have asked for.
    pub(super) bytes: u64,
    /// Seconds since the access that is longest ago.
    pub(super) age_seconds: u32,
}

impl Census {
    /// Nothing seen yet. `now` is in Unix seconds; `cas` says whether items have cas ids.
    pub(crate) fn new(now: u32, cas: bool) -> Self {
        Census { now, cas, seen: 0, classes: [Class::default(); CLASSES_MAX], sizes: BTreeMap::new() }
    }

    /// Looks at one item.
    pub(crate) fn add(&mut self, item: &View<'_>, classes: &Classes) {
        let bytes = item_bytes(item.key.len(), item.value.len(), item.flags, self.cas);
        let class = &mut self.classes[usize::from(classes.of(bytes))];
        class.items += 1;
        class.bytes += bytes;
        class.age_seconds = class.age_seconds.max(self.now.saturating_sub(item.accessed));
        *self.sizes.entry(bytes.next_multiple_of(SIZE_STEP)).or_default() += 1;
        self.seen += 1;
    }

    /// Items seen so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Makes the numbers speak of `items` items, of which those that were seen are a sample.
    pub(crate) fn scale_to(&mut self, items: u64) {
        if self.seen == 0 || items <= self.seen {
            return;
        }
        let scale = |count: u64| (u128::from(count) * u128::from(items) / u128::from(self.seen)) as u64;
        for class in &mut self.classes {
            class.items = scale(class.items);
            class.bytes = scale(class.bytes);
        }
        for count in self.sizes.values_mut() {
            *count = scale(*count);
        }
    }

    /// The classes that hold items, with their numbers.
    pub(super) fn classes(&self) -> impl Iterator<Item = (usize, &Class)> {
        self.classes.iter().enumerate().filter(|(_, class)| class.items > 0)
    }

    /// Counts by size, rounded up to steps of 32 bytes.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.sizes.iter().map(|(size, count)| (*size, *count))
    }
}
