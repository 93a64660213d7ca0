//! A worker's way to the store: find, compute, commit.
//!
//! Plain fetches take no lock. Everything that changes more than an access word happens under the key's two stripes.
//! Whatever a command shows borrows from the worker, so each new command is a quiescent point by construction, and a
//! worker that has to make room for its own write can't hold memory back itself.

use std::sync::Arc;

use crate::CLASSES;
use crate::bucket::{Entry, Location};
use crate::crc::crc32c;
use crate::draft::Draft;
use crate::epoch::Participant;
use crate::index::{Found, Hash, Locked};
use crate::item::{Access, Facts, Item, Layout};
use crate::mapping::PAGE_BYTES;
use crate::operator::{compute, is_alive};
use crate::options::Error;
use crate::request::{
    Amend, Change, Effect, Env, NewCas, NewValue, Op, Put, Request, Spec, Status, Token, View,
};
use crate::segment::{CAS_OFFSET_BITS, Queue};
use crate::store::{Gone, RESERVED_SEGMENTS, Store};

/// How often a worker lets others run while it waits for room for one write, before it gives up.
const ROOM_ATTEMPTS: usize = 4096;

/// After so many of them it no longer trusts that what is retired comes free: somebody may have it pinned.
const PATIENT_ATTEMPTS: usize = 1024;

/// How often a write that found no room is tried again after room was made, before others take it away once more.
const TRIES_MAX: usize = 16;

/// After so many new entries a worker looks whether the index has to grow.
const GROWTH_INTERVAL: u32 = 32;

/// One thread's access to the store.
pub struct Worker {
    store: Arc<Store>,
    participant: Participant,
    core: u16,
    online: bool,
    open: [Option<Open>; CLASSES],
    inserted: u32,
    /// The flush after which no open segment is older.
    flush_seen: u64,
}

/// A segment that this worker alone appends to.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    slot: u32,
    used: usize,
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

/// Why a commit did not take place.
#[derive(Clone, Copy)]
struct NoRoom {
    bytes: usize,
}

impl Store {
    /// A worker for the calling thread; `core` is noted in the items it writes.
    ///
    /// # Errors
    /// When there are as many workers as the options allow.
    pub fn worker(self: &Arc<Self>, core: u16) -> Result<Worker, Error> {
        let participant =
            self.epochs.participant().ok_or_else(|| Error::too_many_workers(self.options.workers_max))?;
        let store = Arc::clone(self);
        Ok(Worker {
            store,
            participant,
            core,
            online: false,
            open: [None; CLASSES],
            inserted: 0,
            flush_seen: 0,
        })
    }
}

impl Worker {
    /// The store this worker works on.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A quiescent point: once per event-loop round, so that memory given up by others can be used again.
    pub fn round(&mut self) {
        self.online = true;
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
        if let Op::Fetch(_) = request.op
            && let Some(answer) = peek(store, hash, request, env)
        {
            return answer;
        }
        self.execute_locked(store, hash, request, env, None)
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
        let answer = self.execute_locked(store, self.hash(request.key), &request, env, Some(&draft));
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
            store.forget(&locked, found, Gone::Asked, false, store.counters(self.participant.place()));
        }
        found.is_some()
    }

    fn begin(&mut self) {
        if !self.online {
            self.round();
        }
        if self.inserted >= GROWTH_INTERVAL {
            self.inserted = 0;
            self.store.grow();
        }
    }

    /// The store, for as long as an answer may borrow from this worker.
    fn shared<'w>(&self) -> &'w Store {
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
            let locked = store.index.lock(hash);
            let env = &store.refreshed(env);
            let found = self.find_locked(store, &locked, request.key);
            let view = found.map(|(_, view)| view);
            let effect = compute(request, env, view);
            let commit = Commit { store, locked: &locked, found, request, env, draft };
            match self.commit(&commit, &effect) {
                Ok(answer) => return answer,
                Err(no_room) => {
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

    /// Finds a key under its stripes; an item whose words outside the checksum are damaged is forgotten.
    fn find_locked<'w>(
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

    fn commit<'w>(&mut self, at: &Commit<'_, 'w>, effect: &Effect<'_>) -> Result<Answer<'w>, NoRoom> {
        let answer = |item| Answer { status: effect.status, token: effect.token, item };
        let store = at.store;
        let counters = store.counters(self.participant.place());
        match (&effect.change, at.found) {
            (Change::None, found) => {
                Ok(answer(found.map(|(_, view)| view).filter(|_| effect.status == Status::Hit)))
            }
            (Change::Unlink, Some((found, view))) => {
                let gone = if is_alive(&view, at.env) { Gone::Asked } else { Gone::Dead };
                if let (Gone::Dead, Op::Fetch(_)) = (gone, at.request.op) {
                    let flushed = view.birth < at.env.flushed_below;
                    if flushed { &counters.fetches_flushed } else { &counters.fetches_expired }.add(1);
                }
                store.forget(at.locked, found, gone, false, counters);
                Ok(answer(None))
            }
            (Change::Amend(amend), Some((found, view))) => {
                let shown = self.amend(at, amend, found, view)?;
                Ok(answer(Some(shown).filter(|_| effect.status == Status::Hit)))
            }
            (Change::Publish(spec), _) => {
                let value_bytes = value_parts(&spec.value).iter().map(|part| part.len()).sum::<usize>();
                if value_bytes > store.options.item_bytes_max as usize {
                    return Ok(Answer { status: Status::TooLarge, token: Token::None, item: None });
                }
                let location = self.publish(at, spec)?;
                Ok(answer(store.view(location)))
            }
            (Change::Unlink | Change::Amend(_), None) => {
                unreachable!("an operator changes only what it was shown")
            }
        }
    }

    /// Changes the words outside an item's checksum; what the command is shown.
    fn amend<'w>(
        &mut self,
        at: &Commit<'_, 'w>,
        amend: &Amend,
        found: Found,
        view: View<'w>,
    ) -> Result<View<'w>, NoRoom> {
        let store = at.store;
        let location = found.entry.location();
        let item = store.item(location);
        let note = |item: Item<'_>| {
            if amend.access {
                item.note_access(store.seconds(at.env.now));
            }
            if amend.token_sent {
                item.send_token();
            }
        };
        let exptime = amend.exptime.unwrap_or(view.exptime);
        if amend.exptime.is_none_or(|exptime| item.set_exptime(exptime)) {
            note(item);
            if amend.access {
                store.index.bucket(found.bucket).count_access(found.slot, found.entry);
            }
            store.segments.at(store.segments.of(location)).note_exptime(exptime);
            return Ok(View { exptime, ..view });
        }
        // No room for an expiry time in this version: the same version, written anew.
        let spec = Spec {
            flags: view.flags,
            exptime,
            cas: NewCas::Exactly(store.cas_of(location, item)),
            stale: view.stale,
            token_sent: item.access().token_sent,
            value: NewValue::Joined(view.value, &[]),
        };
        let access = item.access();
        // Nothing else is changed before there is room for it: without, the command is executed once more.
        let moved = store.item(self.publish(at, &spec)?);
        if access.fetched {
            moved.note_access(access.seconds);
        }
        note(moved);
        Ok(View { exptime, ..view })
    }

    /// Writes a new version and puts it in the place of the one found.
    fn publish(&mut self, at: &Commit<'_, '_>, spec: &Spec<'_>) -> Result<Location, NoRoom> {
        let store = at.store;
        let counters = store.counters(self.participant.place());
        let location = self.write(at, spec)?;
        let bytes = store.item(location).layout().bytes();
        let segment = store.segments.at(store.segments.of(location));
        segment.add_live(bytes);
        segment.note_exptime(spec.exptime);
        counters.items.add(1);
        // A number counted up, or an item written anew for its expiry time, is the item it was.
        if at.found.is_none() || matches!(at.request.op, Op::Put(_)) {
            counters.total_items.add(1);
        }
        counters.live_bytes.add(bytes);
        match at.found {
            Some((found, _)) => {
                let old = store.segments.at(store.segments.of(found.entry.location()));
                // What was worth the main queue is, written again, worth coming back to it.
                let freq = found.entry.freq().max(u64::from(old.queue() == Queue::Main));
                at.locked.replace(found, Entry::live(found.entry.tag(), freq, location));
                store.account_gone(found.entry.location(), Gone::Asked, counters);
            }
            None => {
                let era = store.era.load(std::sync::atomic::Ordering::Relaxed);
                let is_back = at.locked.ghost().is_some_and(|left| era.wrapping_sub(left) <= store.items());
                let hash = store.hash(at.request.key);
                let entry = Entry::live(hash.tag(), u64::from(is_back), location);
                let inserted = at.locked.insert(entry, |location| store.hash_of(location));
                if inserted.displaced {
                    counters.displaced.add(1);
                    self.inserted = GROWTH_INTERVAL;
                }
                if let Some(evicted) = inserted.evicted {
                    store.account_gone(evicted.location(), Gone::Evicted, counters);
                }
                self.inserted += 1;
            }
        }
        if at.draft.is_none_or(|(draft, _)| draft.location() != location)
            && bytes > store.segments.shared_bytes_max()
        {
            let slot = store.segments.of(location);
            store.segments.seal(slot, bytes, Queue::Small, None, || store.epochs.retire());
        }
        Ok(location)
    }

    /// Writes a new version where nobody sees it yet: in the draft if that holds its value, else in a new place.
    fn write(&mut self, at: &Commit<'_, '_>, spec: &Spec<'_>) -> Result<Location, NoRoom> {
        let store = at.store;
        let parts = value_parts(&spec.value);
        let in_place = at.draft.filter(|(draft, _)| {
            // A draft from before a flush would be flushed with it.
            let birth = store.segments.at(store.segments.of(draft.location())).birth();
            draft.value().as_ptr() == parts[0].as_ptr()
                && parts[1].is_empty()
                && birth >= store.flushed_below()
        });
        let location = match in_place {
            Some((draft, _)) => draft.location(),
            None => {
                let class = store.class(spec.exptime, at.env.now);
                let layout = Layout {
                    klen: at.request.key.len() as u8,
                    vlen: parts.iter().map(|part| part.len() as u32).sum(),
                    has_exptime: spec.exptime != 0,
                    has_cas: !self.derives_cas(store, spec.cas, class),
                    has_flags: spec.flags != 0,
                };
                let location = self.append(store, layout, class)?;
                let address = store.segments.address(location);
                // SAFETY: the place was appended for this layout and nobody else knows of it; the parts are from
                // buffers or other items, which are never written.
                unsafe {
                    let mut target = Item::begin(address, layout, at.request.key).value_pointer();
                    for part in parts {
                        target.copy_from_nonoverlapping(std::ptr::NonNull::from(part).cast(), part.len());
                        target = target.add(part.len());
                    }
                }
                location
            }
        };
        let item = store.item(location);
        let cas = match spec.cas {
            NewCas::Exactly(cas) => cas,
            NewCas::Above(floor) => match store.segments.derived_cas(location) {
                derived if derived > floor => derived,
                _ => store.segments.next_birth().max((floor >> CAS_OFFSET_BITS) + 1) << CAS_OFFSET_BITS,
            },
        };
        let facts = Facts {
            flags: spec.flags,
            exptime: spec.exptime,
            cas,
            stale: spec.stale,
            core: self.core,
            access: Access {
                seconds: store.seconds(at.env.now),
                fetched: false,
                token_sent: spec.token_sent,
            },
        };
        // SAFETY: the item is still ours alone.
        unsafe { item.finish(&facts, in_place.map_or_else(|| crc32c(0, item.value()), |(_, crc)| crc)) };
        Ok(location)
    }

    /// Whether the cas id that follows from the next place to write will do.
    fn derives_cas(&self, store: &Store, cas: NewCas, class: usize) -> bool {
        let NewCas::Above(floor) = cas else { return false };
        let next = match &self.open[class] {
            Some(open) => store.segments.at(open.slot).birth() << CAS_OFFSET_BITS | (open.used / 8) as u64,
            // A segment opened from now on is younger than everything there is.
            None => store.segments.birth_to_come() << CAS_OFFSET_BITS,
        };
        next > floor
    }

    /// Space in the open segment of a class, or in a run of its own.
    fn append(&mut self, store: &Store, layout: Layout, class: usize) -> Result<Location, NoRoom> {
        let bytes = layout.bytes();
        let no_room = NoRoom { bytes };
        let segments = &store.segments;
        let demand = || store.demand(RESERVED_SEGMENTS);
        if bytes > segments.shared_bytes_max() {
            let slot = segments.open_run(bytes, demand()).ok_or(no_room)?;
            return Ok(segments.location(slot, 0));
        }
        let is_full = |open: &mut Open| {
            open.used + bytes > segments.segment_bytes()
                || segments.at(open.slot).birth() < store.flushed_below()
        };
        if let Some(full) = self.open[class].take_if(is_full) {
            segments.seal(full.slot, full.used, Queue::Small, None, || store.epochs.retire());
        }
        let open = match &mut self.open[class] {
            Some(open) => open,
            vacant => {
                let slot = segments.open(demand()).ok_or(no_room)?;
                vacant.insert(Open { slot, used: 0 })
            }
        };
        let location = segments.location(open.slot, open.used);
        open.used += bytes;
        Ok(location)
    }

    /// Makes room for one write, as long as others let go of what they hold; whether it may be tried again.
    fn make_room(&mut self, store: &Store, no_room: NoRoom, env: &Env) -> bool {
        store.counters(self.participant.place()).direct_reclaims.add(1);
        // As much as a run of its own would take, which is whole pages: with less, it would be tried again for ever.
        let needed = no_room.bytes.next_multiple_of(PAGE_BYTES).max(store.segments.segment_bytes()) as u64;
        let wanted = needed + RESERVED_SEGMENTS * store.segments.segment_bytes() as u64;
        if wanted > store.budget() {
            return false;
        }
        for attempt in 0..ROOM_ATTEMPTS {
            self.participant.round();
            if store.free_bytes() >= wanted {
                return true;
            }
            let is_coming = store.coming_bytes() >= wanted && attempt < PATIENT_ATTEMPTS;
            if is_coming || !store.make_room(env) {
                store.segments.reclaim(store.epochs.passed());
                if !store.options.evict && store.segments.ledger().retired_segments() == 0 {
                    // Full, and nothing is on its way.
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.participant.round();
        store.free_bytes() >= wanted
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for open in self.open.iter_mut().filter_map(Option::take) {
            let store = &self.store;
            store.segments.seal(open.slot, open.used, Queue::Small, None, || store.epochs.retire());
        }
    }
}

/// All that a commit needs to know of its command.
struct Commit<'c, 'w> {
    store: &'w Store,
    locked: &'c Locked<'c>,
    found: Option<(Found, View<'w>)>,
    request: &'c Request<'c>,
    env: &'c Env,
    /// Where the value lies already, with its CRC.
    draft: Option<(&'c Draft, u32)>,
}

/// Executes a fetch without a lock, if all it changes is the access word.
#[inline]
fn peek<'w>(store: &'w Store, hash: Hash, request: &Request<'_>, env: &Env) -> Option<Answer<'w>> {
    let found = store.index.find(hash, |location| store.has_key(location, request.key));
    let view = match found {
        Some(found) => Some(store.view(found.entry.location())?),
        None => None,
    };
    let effect = compute(request, env, view);
    match (&effect.change, found) {
        (Change::None, _) => {}
        (Change::Amend(Amend { access: true, token_sent: false, exptime: None }), Some(found)) => {
            store.item(found.entry.location()).note_access(store.seconds(env.now));
            store.index.bucket(found.bucket).count_access(found.slot, found.entry);
        }
        _ => return None,
    }
    Some(Answer { status: effect.status, token: effect.token, item: view })
}

fn value_parts<'a>(value: &'a NewValue<'_>) -> [&'a [u8]; 2] {
    match value {
        NewValue::Joined(first, second) => [first, second],
        NewValue::Number(digits) => [digits.as_bytes(), &[]],
    }
}
