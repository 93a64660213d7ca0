//! The cache engine: index, segments, expiry, eviction; operators written once.

mod bucket;
mod commit;
mod crc;
mod decide;
mod draft;
mod epoch;
mod follow;
mod hold;
mod index;
mod item;
#[cfg(all(test, loom))]
mod loom_tests;
mod maintain;
mod mapping;
mod operator;
mod options;
mod order;
mod record;
mod replay;
mod request;
mod scan;
mod scrub;
mod segment;
mod store;
mod sync;
mod trace;
mod vanished;
mod worker;

pub use crc::{crc32c, crc32c_by_tables, digest};
pub use draft::{Draft, Pinned};
pub use follow::{Copy, Fence, Followed, Follower, NOTE_BYTES, Own, SMALL_BYTES_MAX, Told, Version};
pub use index::Hash;
pub use operator::{absolute, compute, is_alive};
pub use options::{Error, Stats, StoreOptions};
pub use order::{ORDERS, Order};
pub use record::Needs;
pub use replay::{EntryChange, Fate, Inspector, Look, nothing, part_received, senseless};
pub use request::{
    Amend, Arith, Change, Delete, Digits, Direction, Effect, Env, Exptime, Fetch, NewCas, NewValue, Op, Put,
    PutMode, Request, Spec, Status, Token, View,
};
pub use scan::Cursor;
pub use scrub::{Damage, Part, Scrubbed};
pub use store::Store;
pub use trace::Trace;
pub use vanished::Vanished;
pub use worker::{Answer, Worker};

/// TTL classes that items are sorted into.
pub(crate) const CLASSES: usize = 4;
