//! A worker's way to the store: find, compute, commit.
//!
//! Plain fetches take no lock. Everything that changes more than an access word happens under the key's two stripes.
//! Whatever a command shows borrows from the worker, so each new command is a quiescent point by construction, and a
//! worker that has to make room for its own write can't hold memory back itself.

use std::sync::Arc;

use guard::{Core, Repeated};

use crate::CLASSES;
use crate::commit::{Commit, Failed, NoRoom};
use crate::crc::crc32c;
use crate::decide::{Case, Refused};
use crate::draft::Draft;
use crate::epoch::Participant;
use crate::index::{Found, Hash, Locked};
use crate::item::Layout;
use crate::mapping::PAGE_BYTES;
use crate::options::Error;
use crate::record::Recorder;
use crate::request::{Amend, Change, Effect, Env, Op, Put, Request, Status, Token, View};
use crate::segment::Queue;
use crate::store::{Gone, RESERVED_SEGMENTS, Store};

/// How often a worker lets others run while it waits for room for one write, before it gives up.
const ROOM_ATTEMPTS: usize = 4096;

/// After so many of them it no longer trusts that what is retired comes free: somebody may have it pinned.
const PATIENT_ATTEMPTS: usize = 1024;

/// From then on it makes room for itself now and then, and not all the time: what is made free comes late, too.
const IMPATIENT_ATTEMPTS: usize = 32;

/// How often a write that found no room is tried again after room was made, before others take it away once more.
pub(crate) const TRIES_MAX: usize = 16;

/// After so many new entries a worker looks whether the index has to grow.
pub(crate) const GROWTH_INTERVAL: u32 = 32;

/// One thread's access to the store.
pub struct Worker {
    store: Arc<Store>,
    pub(crate) participant: Participant,
    pub(crate) core: u16,
    online: bool,
    pub(crate) open: [Option<Open>; CLASSES],
    pub(crate) inserted: u32,
    /// The flush after which no open segment is older.
    flush_seen: u64,
    /// How often decisions are made, if more than once.
    pub(crate) redundancy: Option<Repeated>,
    /// Where traces of executions go.
    pub(crate) recorder: Option<Recorder>,
}

/// A segment that this worker alone appends to.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) slot: u32,
    pub(crate) used: usize,
}

/// What a command answers.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'w> {
    /// The outcome.
    pub status: Status,
    /// The recache token, for a hit or a vivified miss.
    pub token: Token,
    /// Fetch: the item as it was before this access, but with its new expiry time if that was touched. Everything that
    /// makes a new version: that version.
    pub item: Option<View<'w>>,
}

/// What a command answers whose executions don't agree.
const DISAGREED: Answer<'_> = Answer { status: Status::Disagreed, token: Token::None, item: None };

impl Store {
    /// A worker for the calling thread; `core` is noted in the items it writes.
    ///
    /// # Errors
    /// When there are as many workers as the options allow.
    pub fn worker(self: &Arc<Self>, core: u16) -> Result<Worker, Error> {
        let participant =
            self.epochs.participant().ok_or_else(|| Error::too_many_workers(self.options.workers_max))?;
        let store = Arc::clone(self);
        let redundancy = Repeated::new(self.options.redundancy);
        Ok(Worker {
            store,
            participant,
            core,
            online: false,
            open: [None; CLASSES],
            inserted: 0,
            flush_seen: 0,
            redundancy,
            recorder: None,
        })
    }
}

impl Worker {
    /// The store this worker works on.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A quiescent point: once per event-loop round, so that memory given up by others can be used again. Records that
    /// were left are committed.
    pub fn round(&mut self) {
        self.online = true;
        self.quiesce();
    }

    /// How often decisions are made from now on: once, or 2 to 16 times on this core with comparison.
    pub fn set_redundancy(&mut self, runs: u8) {
        self.redundancy = Repeated::new(runs);
    }

    /// The core that is noted in items from now on, and in records.
    pub fn set_core(&mut self, core: u16) {
        self.core = core;
    }

    /// Lets go of everything seen, but for what records point to.
    fn quiesce(&mut self) {
        self.commit_records();
        self.participant.round();
    }

    /// Says that this worker sees nothing until its next command, before it blocks. Segments that were flushed since
    /// the last time are closed, so that maintenance can drop their items without waiting for this worker's next write.
    pub fn idle(&mut self) {
        let store = &self.store;
        let flushed_below = store.flushed_below();
        if flushed_below > self.flush_seen {
            self.flush_seen = flushed_below;
            for open in &mut self.open {
                let is_flushed = |open: &mut Open| store.segments.at(open.slot).birth() < flushed_below;
                if let Some(old) = open.take_if(is_flushed) {
                    store.segments.seal(old.slot, old.used, Queue::Small, None, || store.epochs.retire());
                }
            }
        }
        self.online = false;
        self.commit_records();
        self.participant.offline();
    }

    /// The hash of a key, for [`Worker::prefetch`] and [`Worker::execute_hashed`].
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.store.hash(key)
    }

    /// Asks for the buckets of a key.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        self.store.index.prefetch(hash);
    }

    /// Asks for the item of a key whose buckets have arrived.
    #[inline]
    pub fn prefetch_item(&self, hash: Hash) {
        if let Some(entry) = self.store.index.first_candidate(hash) {
            self.store.segments.prefetch(entry.location());
        }
    }

    /// Executes a command: find, compute, commit.
    #[inline]
    pub fn execute<'w>(&'w mut self, request: &Request<'_>, env: &Env) -> Answer<'w> {
        self.execute_hashed(self.hash(request.key), request, env)
    }

    /// The same for a key whose hash is known.
    #[inline]
    pub fn execute_hashed<'w>(&'w mut self, hash: Hash, request: &Request<'_>, env: &Env) -> Answer<'w> {
        self.begin();
        let store = self.shared();
        self.begin_trace(hash);
        if let Op::Fetch(_) = request.op
            && let Some(answer) = self.peek(store, hash, request, env)
        {
            return answer;
        }
        self.execute_locked(store, hash, request, env, None)
    }

    /// Executes a fetch without a lock, if all it changes is the access word.
    #[inline]
    fn peek<'w>(
        &mut self,
        store: &'w Store,
        hash: Hash,
        request: &Request<'_>,
        env: &Env,
    ) -> Option<Answer<'w>> {
        let order = self.is_ordering().then(|| store.orders.before(hash));
        let found = store.index.find(hash, |location| store.has_key(location, request.key));
        let view = match found {
            Some(found) => Some(store.view(found.entry.location())?),
            None => None,
        };
        let sight = found.zip(view).map(|(found, view)| store.sight(found.entry.location(), view));
        // What is refused here is looked at again under the stripes.
        let case = Case { request: *request, sight };
        let effect = store.decide(self.redundancy, Core(self.core), &case, env, hash).ok()?;
        match (&effect.change, found) {
            (Change::None, _) => {}
            (Change::Amend(Amend { access: true, token_sent: false, exptime: None }), Some(found)) => {
                store.item(found.entry.location()).note_access(store.seconds(env.now));
                store.index.bucket(found.bucket).count_access(found.slot, found.entry);
            }
            _ => return None,
        }
        if self.is_tracing() {
            let seen = found.zip(view).map(|(found, view)| (found.entry.location(), view));
            self.trace(hash, env, seen, &effect, order);
        }
        Some(Answer { status: effect.status, token: effect.token, item: view })
    }

    /// Space for an item whose value comes in pieces. The value is to be written to [`Draft::buffer`]; then
    /// [`Worker::finish`] executes the put it belongs to. A draft that is dropped gives its space back.
    ///
    /// # Errors
    /// `TooLarge` when the value is above the limit, `OutOfMemory` when no room could be made.
    pub fn draft(&mut self, key: &[u8], value_bytes: u32, env: &Env) -> Result<Draft, Status> {
        self.begin();
        let store = self.shared();
        if value_bytes > store.options.item_bytes_max {
            return Err(Status::TooLarge);
        }
        let klen = u8::try_from(key.len()).map_err(|_| Status::TooLarge)?;
        let layout = Layout { klen, vlen: value_bytes, has_exptime: true, has_cas: true, has_flags: true };
        for _ in 0..TRIES_MAX {
            match self.append(store, layout, CLASSES - 1) {
                Ok(location) => return Ok(Draft::begin(&self.store, location, layout, key)),
                Err(no_room) if !self.make_room(store, no_room, env) => break,
                Err(_) => {}
            }
        }
        Err(Status::OutOfMemory)
    }

    /// Executes a put whose value was written to a draft; the put's own value is not looked at.
    pub fn finish<'w>(&'w mut self, draft: Draft, request: &Request<'_>, env: &Env) -> Answer<'w> {
        self.begin();
        let store = self.shared();
        let Op::Put(put) = request.op else { panic!("a draft belongs to a put, not to {:?}", request.op) };
        let put = Put { value: draft.value(), ..put };
        let request = Request { op: Op::Put(put), ..*request };
        let hash = self.hash(request.key);
        self.begin_trace(hash);
        let answer = self.execute_locked(store, hash, &request, env, Some(&draft));
        drop(draft);
        answer
    }

    /// Forgets a key, whatever it holds; whether there was anything.
    pub fn forget(&mut self, key: &[u8]) -> bool {
        self.begin();
        let store = self.shared();
        let locked = store.index.lock(store.hash(key));
        let found = locked.find(|location| store.has_key(location, key));
        if let Some(found) = found {
            store.forget(&locked, found, Gone::ByHand, false, store.counters(self.participant.place()));
        }
        found.is_some()
    }

    /// Forgets whatever keys have this hash; whether there were any.
    pub fn forget_hash(&mut self, hash: u64) -> bool {
        self.begin();
        let store = self.shared();
        let locked = store.index.lock(Hash(hash));
        let mut has_found = false;
        while let Some(found) = locked.find(|location| store.hash_of(location) == Hash(hash)) {
            store.forget(&locked, found, Gone::ByHand, false, store.counters(self.participant.place()));
            has_found = true;
        }
        has_found
    }

    pub(crate) fn begin(&mut self) {
        if !self.online {
            self.round();
        }
        if self.inserted >= GROWTH_INTERVAL {
            self.inserted = 0;
            self.store.grow();
        }
    }

    /// The store, for as long as an answer may borrow from this worker.
    pub(crate) fn shared<'w>(&self) -> &'w Store {
        // SAFETY: the worker holds the `Arc` as long as it lives and never replaces it, and all that is made from this
        // reference is given out with the lifetime of a mutable borrow of the worker.
        unsafe { &*Arc::as_ptr(&self.store) }
    }

    fn execute_locked<'w>(
        &mut self,
        store: &'w Store,
        hash: Hash,
        request: &Request<'_>,
        env: &Env,
        draft: Option<&Draft>,
    ) -> Answer<'w> {
        // Summed before the stripes are held: a large value takes a while.
        let draft = draft.map(|draft| (draft, crc32c(0, draft.value())));
        for _ in 0..TRIES_MAX {
            self.forget_written();
            let locked = store.index.lock(hash);
            let env = &store.refreshed(env);
            let found = self.find_locked(store, &locked, request.key);
            let sight = found.map(|(found, view)| store.sight(found.entry.location(), view));
            let case = Case { request: *request, sight };
            let effect = match (store.decide(self.redundancy, Core(self.core), &case, env, hash), found) {
                (Ok(effect), _) => effect,
                (Err(Refused::Damaged), Some((found, _))) => {
                    let counters = store.counters(self.participant.place());
                    store.forget(&locked, found, Gone::Damaged, false, counters);
                    continue;
                }
                (Err(_), _) => return DISAGREED,
            };
            let commit = Commit { store, locked: &locked, found, request, env, draft };
            match self.commit(&commit, &effect) {
                Ok(answer) => {
                    self.trace_locked(&commit, hash, &effect, answer.status);
                    return answer;
                }
                Err(Failed::Disagreed) => return DISAGREED,
                Err(Failed::Flushed) => {}
                Err(Failed::NoRoom(no_room)) => {
                    drop(locked);
                    if !self.make_room(store, no_room, env) {
                        break;
                    }
                }
            }
        }
        store.counters(self.participant.place()).out_of_memory.add(1);
        Answer { status: Status::OutOfMemory, token: Token::None, item: None }
    }

    /// Leaves a trace of what was decided and took hold.
    fn trace_locked(&mut self, commit: &Commit<'_, '_>, hash: Hash, effect: &Effect<'_>, status: Status) {
        // What was found too large in the end was decided otherwise.
        if self.is_tracing() && status == effect.status {
            let seen = commit.found.map(|(found, view)| (found.entry.location(), view));
            let order = self.is_ordering().then(|| commit.store.orders.after(hash, effect));
            self.trace(hash, commit.env, seen, effect, order);
            self.trace_written(commit.request);
        }
    }

    /// Finds a key under its stripes; an item whose words outside the checksum are damaged is forgotten.
    pub(crate) fn find_locked<'w>(
        &self,
        store: &'w Store,
        locked: &Locked<'_>,
        key: &[u8],
    ) -> Option<(Found, View<'w>)> {
        let found = locked.find(|location| store.has_key(location, key))?;
        let view = store.view(found.entry.location());
        if view.is_none() {
            store.forget(locked, found, Gone::Damaged, false, store.counters(self.participant.place()));
        }
        view.map(|view| (found, view))
    }

    /// Makes room for one write, as long as others let go of what they hold; whether it may be tried again.
    pub(crate) fn make_room(&mut self, store: &Store, no_room: NoRoom, env: &Env) -> bool {
        store.counters(self.participant.place()).direct_reclaims.add(1);
        // As much as a run of its own would take, which is whole pages: with less, it would be tried again for ever.
        let needed = no_room.bytes.next_multiple_of(PAGE_BYTES).max(store.segments.segment_bytes()) as u64;
        let wanted = needed + RESERVED_SEGMENTS * store.segments.segment_bytes() as u64;
        if wanted > store.budget() {
            return false;
        }
        for attempt in 0..ROOM_ATTEMPTS {
            self.quiesce();
            if store.free_bytes() >= wanted {
                return true;
            }
            let nap = self.need_memory(attempt);
            let is_coming = store.coming_bytes() >= wanted
                && (attempt < PATIENT_ATTEMPTS || attempt % IMPATIENT_ATTEMPTS > 0);
            if is_coming || !store.make_room(env) {
                store.segments.reclaim(store.epochs.passed());
                if !store.options.evict && store.segments.ledger().retired_segments() == 0 {
                    // Full, and nothing is on its way.
                    break;
                }
                match nap {
                    Some(nap) => std::thread::sleep(nap),
                    None => std::thread::yield_now(),
                }
            }
        }
        self.quiesce();
        store.free_bytes() >= wanted
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commit_records();
        for open in self.open.iter_mut().filter_map(Option::take) {
            let store = &self.store;
            store.segments.seal(open.slot, open.used, Queue::Small, None, || store.epochs.retire());
        }
    }
}
