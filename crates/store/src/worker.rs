//! A worker's hold on the store: commands are executed through it.

use crate::answer::Answer;
use crate::draft::Draft;
use crate::request::{Env, Request, Status, View};

/// A key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub(crate) u64);

/// Position of a scan through all items. The default is the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    pub(crate) buckets: u64,
    pub(crate) next: u64,
}

/// One thread's hold on the store. What it hands out can be read until its next method is called.
pub struct Worker {}

impl Worker {
    /// A quiescent point: what was handed out before may be reused from now on. Once per event-loop round;
    /// also what ends `idle`.
    pub fn round(&mut self) {
        unimplemented!()
    }

    /// Before blocking: memory need not wait for this worker until its next `round`.
    /// Executing a command ends it, too.
    pub fn idle(&mut self) {
        unimplemented!()
    }

    /// The key's hash, for `prefetch` and `execute_hashed`.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> Hash {
        unimplemented!("{key:?}")
    }

    /// Asks the processor for the key's buckets.
    pub fn prefetch(&self, hash: Hash) {
        unimplemented!("{hash:?}")
    }

    /// Asks the processor for the key's item; after `prefetch` had time to work.
    pub fn prefetch_item(&self, hash: Hash) {
        unimplemented!("{hash:?}")
    }

    /// Executes a command: find, compute, commit. A put that fails with `TooLarge` or `OutOfMemory` leaves the old version
    /// in place; see `forget`.
    pub fn execute<'w>(&'w mut self, request: &Request<'_>, env: &Env) -> Answer<'w> {
        self.execute_hashed(self.hash(request.key), request, env)
    }

    /// `execute`, with the hash of `request.key` known already.
    pub fn execute_hashed<'w>(&'w mut self, hash: Hash, request: &Request<'_>, env: &Env) -> Answer<'w> {
        unimplemented!("{hash:?} {request:?} {env:?}")
    }

    /// Space for a value of `value_len` bytes that arrives in pieces.
    ///
    /// # Errors
    /// `Status::TooLarge` or `Status::OutOfMemory`.
    pub fn draft(&mut self, key: &[u8], value_len: usize) -> Result<Draft, Status> {
        unimplemented!("{key:?} {value_len}")
    }

    /// Executes a put whose value is the draft's; `request` is a put of the draft's key with an empty value.
    pub fn finish<'w>(&'w mut self, draft: Draft, request: &Request<'_>, env: &Env) -> Answer<'w> {
        unimplemented!("{request:?} {env:?} {}", { draft }.value_mut().len())
    }

    /// Removes a key, if it is there.
    pub fn forget(&mut self, key: &[u8]) {
        unimplemented!("{key:?}")
    }

    /// Shows the living items of the next `buckets` buckets; returns whether there are more.
    /// An item that is in the store during the whole scan and not written to is shown once, growth of the index notwithstanding
    /// (an item that another write pushes to its other bucket just then may be missed or shown again).
    pub fn scan(&mut self, cursor: &mut Cursor, buckets: usize, visit: &mut dyn FnMut(&View<'_>)) -> bool {
        unimplemented!("{cursor:?} {buckets} {}", std::ptr::from_mut(visit).is_null())
    }
}
