//! The store: what all workers share.

use std::sync::Arc;

use crate::error::Error;
use crate::pin::Pinned;
use crate::request::{Env, View};
use crate::stats::Stats;
use crate::worker::Worker;

/// What a store is made with.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Limit for everything: items, index, bookkeeping, and what is reported through `Store::charge`.
    pub memory_bytes: usize,
    /// The largest item, measured as memcached measures it (48 bytes, cas id, key, value and their terminators).
    pub item_bytes_max: usize,
    /// Whether items are evicted when memory is full; otherwise writes fail then.
    pub evict: bool,
    /// Seed of the hash; take it from the system's randomness.
    pub seed: u64,
    /// How many workers there will be at the most.
    pub workers_max: usize,
    /// Slots of the index at the start, as a power of two; a size fit for `memory_bytes` if not given.
    pub hash_power_initial: Option<u8>,
    /// Whether huge pages are wanted even where they may cost memory.
    pub huge_pages: bool,
    /// Whether items have cas ids; without, all of them are 0.
    pub cas: bool,
    /// Unix seconds now; times of access are kept relative to it.
    pub start_unix: u32,
}

/// The cache, shared by all workers.
pub struct Store {}

impl Store {
    /// Reserves address space; memory is taken as items come.
    ///
    /// # Errors
    /// When the limit is too small or the system refuses address space.
    pub fn new(options: &StoreOptions) -> Result<Arc<Store>, Error> {
        unimplemented!("{options:?}")
    }

    /// A worker; `core` is written into the items it makes.
    ///
    /// # Errors
    /// When there are `workers_max` already. Dropping a worker makes room for another one.
    pub fn worker(self: &Arc<Self>, core: u16) -> Result<Worker, Error> {
        unimplemented!("{core}")
    }

    /// The environment of commands executed at `now` (Unix seconds). Take one per round, and a new one after
    /// `flush`. A scheduled flush that is due takes place here.
    #[must_use]
    pub fn env(&self, now: u32) -> Env {
        unimplemented!("{now}")
    }

    /// Forgets everything written so far, and a flush that was scheduled.
    pub fn flush(&self) {
        unimplemented!()
    }

    /// Forgets, at that time, everything written until then. Replaces a flush scheduled before.
    pub fn flush_at(&self, unix: u32) {
        unimplemented!("{unix}")
    }

    /// Changes the memory limit. After lowering it, maintenance evicts until the store fits.
    ///
    /// # Errors
    /// When it is outside of what was reserved.
    pub fn set_memory_limit(&self, bytes: usize) -> Result<(), Error> {
        unimplemented!("{bytes}")
    }

    /// Reports memory held elsewhere (buffers), as a difference to what was reported before.
    pub fn charge(&self, delta: isize) {
        unimplemented!("{delta}")
    }

    /// Does background work: frees, expires, evicts ahead of need, compacts, grows the index; about `budget` items'
    /// worth. Callable from any thread; one at a time does the work. Returns whether there is more to do now.
    pub fn maintain(&self, env: &Env, budget: usize) -> bool {
        unimplemented!("{env:?} {budget}")
    }

    /// Keeps an item readable for longer than the worker's round: for a value that is partially sent.
    #[must_use]
    pub fn pin(self: &Arc<Self>, item: &View<'_>) -> Pinned {
        unimplemented!("{item:?}")
    }

    /// Figures, gathered without stopping anybody: they may be some operations apart.
    #[must_use]
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
}
