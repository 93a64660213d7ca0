//! Following another store: executing what it executed, on the versions it saw, and giving new versions the ids it gave.
//!
//! The follower has a table, memory and hash seed of its own, so what was lost or misplaced in one store is still right
//! in the other. It takes over only what can't be computed a second time: the time, the words of an item that change,
//! and the ids of versions. Everything else is computed from its own items, and compared.
//!
//! A version is known by its cas id. A store without cas ids has them too, but shows none. What else is known of a version
//! in the store that is followed stands behind each value ([`Note`]).

use std::sync::Arc;

use guard::{Digest, Diverse, Kind, Mismatch, Side};

use crate::commit::{Commit, Failed};
use crate::crc::crc32c;
use crate::decide::{Case, Decision, Sight};
use crate::options::Error;
use crate::order::part_of;
use crate::replay::{Look, TABLES_BYTES_MAX, flaw, parts_of};
use crate::request::{
    Change, Effect, Env, NewCas, NewValue, Op, Put, PutMode, Request, Spec, Status, Token, View,
};
use crate::scan::Cursor;
use crate::store::{Gone, Store};
use crate::trace::{Trace, digest_of};
use crate::worker::{Answer, TRIES_MAX, Worker};

/// Bytes a follower keeps behind each value.
pub const NOTE_BYTES: u32 = 20;

/// Values up to this long are part of the replies that are compared.
pub const SMALL_BYTES_MAX: usize = 16 << 10;

/// Buckets looked at in one step of a sweep.
const SWEEP_BUCKETS: usize = 256;

/// A version as the store that is followed knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its cas id, also where none is shown.
    pub cas: u64,
    /// Orders it against flush_all.
    pub birth: u64,
}

/// What a follower keeps behind each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    birth: u64,
    order: u64,
    vanished: u32,
}

/// What is told of an execution beside its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The version that was found.
    pub found: Option<Version>,
    /// The version that was published.
    pub published: Option<Version>,
    /// CRC-32C of the value found, as it lies in memory there, if it is longer than [`SMALL_BYTES_MAX`]: replies that hold
    /// it are compared without it.
    pub found_crc: u32,
    /// CRC-32C of the value published, as it lies in memory there.
    pub value_crc: u32,
}

/// An item as it is in the store that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'v> {
    /// What is seen of it, with its real cas id.
    pub view: View<'v>,
    /// The part of the keys that its key belongs to; see [`crate::Order`].
    pub part: usize,
    /// What [`crate::Order`] said before of what had vanished.
    pub vanished: u32,
}

/// A store that follows another.
pub struct Follower {
    worker: Worker,
    shows_cas: bool,
    /// The value being written.
    value: Vec<u8>,
}

/// What came of following an execution.
#[derive(Clone, Copy, Debug)]
pub enum Followed<'f> {
    /// It came to the same, and this is what is answered.
    Agrees(Answer<'f>),
    /// It came to something else; nothing was changed.
    Disagrees(Mismatch),
    /// The follower's own item is damaged, and was forgotten: nothing can be said.
    Damaged,
    /// The follower has no memory for the new version, and forgot the old one.
    NoRoom,
}

/// What the follower has under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The version, as the store that is followed knows it.
    pub version: Version,
    /// The change that has made it, or that was the last one when it was taken over; see [`crate::Order`].
    pub order: u64,
    /// What [`crate::Order`] said then of what had vanished.
    pub vanished: u32,
    /// Unix seconds of expiry as far as is known here; 0 never.
    pub exptime: u32,
    /// Unix seconds of the last time it was written or found.
    pub accessed: u32,
}

impl Own {
    /// Whether it can be seen at all: not expired, not flushed.
    #[must_use]
    pub fn is_alive(&self, env: &Env) -> bool {
        (self.exptime == 0 || self.exptime > env.now) && self.version.birth >= env.flushed_below
    }
}

impl Look<'_> {
    /// What a follower has to be told of an execution beside its trace.
    #[must_use]
    pub fn told(&self, trace: &Trace) -> Told {
        let store = self.store();
        let version = |location| {
            let item = self.item(location).ok()?;
            let birth = store.segments.at(store.segments.of(location)).birth();
            Some(Version { cas: store.cas_of(location, item), birth })
        };
        let crc = |location, least| {
            let value = self.item(location).ok()?.value();
            (value.len() > least).then(|| crc32c(0, value))
        };
        let found = trace.found.map(|seen| seen.location);
        Told {
            found: found.and_then(version),
            published: trace.published.and_then(version),
            found_crc: found.and_then(|location| crc(location, SMALL_BYTES_MAX)).unwrap_or(0),
            value_crc: trace.published.and_then(|location| crc(location, 0)).unwrap_or(0),
        }
    }
}

/// A moment that separates what workers did before from what they do after: passed when each of them has begun a round
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence(u64);

impl Store {
    /// From when access times count, in Unix seconds.
    #[must_use]
    pub fn start_unix(&self) -> u32 {
        self.options.start_unix
    }

    /// How many changes each part of the keys has seen; see [`crate::Order`].
    #[must_use]
    pub fn changes(&self) -> Vec<u64> {
        self.orders.numbers()
    }

    /// Whether an item with this key may have gone without a command that was recorded, since the number was this one.
    #[must_use]
    pub fn has_vanished_since(&self, key: &[u8], number: u32) -> bool {
        let vanished = self.vanished();
        !vanished.is_settled() || vanished.near(self.hash(key).0) != number
    }

    /// The hash of a key.
    #[must_use]
    pub fn number_of(&self, key: &[u8]) -> u64 {
        self.hash(key).0
    }

    /// Sets up a fence: now.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence(self.epochs.retire())
    }

    /// Whether no worker is any more in a round that it had begun before. Records of those rounds are committed then.
    #[must_use]
    pub fn has_passed(&self, fence: Fence) -> bool {
        self.epochs.all_have_begun(fence.0)
    }
}

impl Worker {
    /// Shows items for a follower to take over, as [`Worker::scan`] does.
    pub fn copies(&mut self, cursor: &mut Cursor, buckets: usize, visit: &mut dyn FnMut(&Copy<'_>)) -> bool {
        let store = Arc::clone(self.store());
        self.scan(cursor, buckets, &mut |view| {
            if let Some(copy) = copy(&store, view) {
                visit(&copy);
            }
        })
    }

    /// The item under a key, for a follower to take over; nobody notices the access.
    pub fn copy(&mut self, key: &[u8]) -> Option<Copy<'_>> {
        self.begin();
        let store = self.shared();
        let found = store.index.find(store.hash(key), |location| store.has_key(location, key))?;
        copy(store, &store.view(found.entry.location())?)
    }
}

/// An item as it is shown; none if it was replaced or went meanwhile.
fn copy<'v>(store: &Store, view: &View<'v>) -> Option<Copy<'v>> {
    let hash = store.hash(view.key);
    // First the number, then the look whether the item is still there: else the number could tell of the item itself.
    let vanished = store.vanished().near(hash.0);
    let found = store.index.find(hash, |location| store.has_key(location, view.key))?;
    let item = store.item(found.entry.location());
    let view = View { cas: store.cas_of(found.entry.location(), item), ..*view };
    std::ptr::eq(item.value(), view.value).then_some(Copy { view, part: part_of(hash.0), vanished })
}

impl Trace {
    /// Whether the version published was expired from the start.
    #[must_use]
    pub fn is_published_dead(&self) -> bool {
        self.published_exptime != 0 && self.published_exptime <= self.env.now
    }

    /// Whether the version found could be seen: not expired, not flushed.
    #[must_use]
    pub fn is_found_alive(&self, version: Version) -> bool {
        let exptime = self.found.map_or(0, |seen| seen.exptime);
        let own = Own { version, order: 0, vanished: 0, exptime, accessed: 0 };
        own.is_alive(&self.env)
    }
}

impl Follower {
    /// Follows with a store of its own, whose items may be [`BIRTH_BYTES`] longer than those of the other.
    ///
    /// # Errors
    /// When the store has no place for another worker.
    pub fn new(store: &Arc<Store>, shows_cas: bool) -> Result<Self, Error> {
        Ok(Follower { worker: store.worker(0)?, shows_cas, value: Vec::new() })
    }

    /// The follower's store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        self.worker.store()
    }

    /// The core that is noted in its items.
    pub fn set_core(&mut self, core: u16) {
        self.worker.set_core(core);
    }

    /// A quiescent point.
    pub fn round(&mut self) {
        self.worker.round();
    }

    /// Nothing is looked at until the next call.
    pub fn idle(&mut self) {
        self.worker.idle();
    }

    /// What it has under a key.
    pub fn own(&mut self, key: &[u8]) -> Option<Own> {
        self.worker.begin();
        let store = self.worker.shared();
        let found = store.index.find(store.hash(key), |location| store.has_key(location, key))?;
        let view = store.view(found.entry.location())?;
        let cas = store.cas_of(found.entry.location(), store.item(found.entry.location()));
        Some(own_of(&view, cas))
    }

    /// Forgets a key; whether there was anything.
    pub fn forget(&mut self, key: &[u8]) -> bool {
        self.worker.forget(key)
    }

    /// Executes what was executed elsewhere, on the version that was found there: the follower's own, or none, or one
    /// that was dead and of which nothing is left here.
    pub fn follow<'f>(&'f mut self, trace: &Trace, told: &Told, request: &Request<'_>) -> Followed<'f> {
        let Follower { worker, shows_cas, value } = self;
        worker.begin();
        let store: &'f Store = worker.shared();
        let hash = worker.hash(request.key);
        for _ in 0..TRIES_MAX {
            let locked = store.index.lock(hash);
            let found = worker.find_locked(store, &locked, request.key);
            let seen = told_view(trace, told, *shows_cas, found.map(|(_, view)| view));
            let sight = found.zip(seen).map(|((found, _), view)| {
                let sight = store.sight(found.entry.location(), view);
                Sight { view, ..sight }
            });
            let effect = match decide(store, trace, told, request, sight, seen) {
                Ok(effect) => effect,
                Err(None) => {
                    let counters = store.counters(worker.participant.place());
                    if let Some((found, _)) = found {
                        store.forget(&locked, found, Gone::Damaged, false, counters);
                    }
                    return Followed::Damaged;
                }
                Err(Some(mismatch)) => return Followed::Disagrees(mismatch),
            };
            value.clear();
            let change = match own_change(trace, told, request, &effect, value) {
                Ok(change) => change,
                Err(mismatch) => return Followed::Disagrees(mismatch),
            };
            let env = Env { now: trace.env.now, flushed_below: 0 };
            let commit = Commit { store, locked: &locked, found, request, env: &env, draft: None };
            // Of an item that is dead there may be nothing here to change.
            let nothing_here = found.is_none() && matches!(change, Change::Unlink | Change::Amend(_));
            let change = if nothing_here { Change::None } else { change };
            match worker.commit(&commit, &Effect { change, ..effect }) {
                Ok(answer) => {
                    let item = shown(store, trace, told, *shows_cas, &effect, seen, answer.item);
                    return Followed::Agrees(Answer { status: effect.status, token: effect.token, item });
                }
                Err(Failed::NoRoom(no_room)) => {
                    drop(locked);
                    if !worker.make_room(store, no_room, &env) {
                        break;
                    }
                }
                Err(Failed::Disagreed | Failed::Flushed) => break,
            }
        }
        worker.forget(request.key);
        Followed::NoRoom
    }

    /// Takes over a version that a put has published, whatever was found; false when it can't be known from the put
    /// alone what it published, or there is no memory for it: then nothing is left under the key.
    pub fn take_put(&mut self, trace: &Trace, told: &Told, request: &Request<'_>) -> bool {
        let (Some(published), Op::Put(put)) = (told.published, request.op) else {
            self.forget(request.key);
            return false;
        };
        let is_plain = matches!(put.mode, PutMode::Set | PutMode::Add | PutMode::Replace) && !put.invalidate;
        if !is_plain || crc32c(0, put.value) != trace.received {
            self.forget(request.key);
            return false;
        }
        let view = View {
            key: request.key,
            value: put.value,
            flags: put.flags,
            exptime: trace.published_exptime,
            cas: published.cas,
            birth: published.birth,
            accessed: trace.env.now,
            fetched: false,
            stale: false,
            token_sent: false,
        };
        let copy = Copy { view, part: trace.part(), vanished: trace.vanished() };
        self.take_over(&copy, order_of(trace), trace.env.now)
    }

    /// Takes over an item as it is elsewhere, or was right after a change; whether there was memory for it.
    pub fn take_over(&mut self, copy: &Copy<'_>, order: u64, now: u32) -> bool {
        let Follower { worker, value, .. } = self;
        worker.begin();
        let store = worker.shared();
        let Copy { view: copy, vanished, .. } = copy;
        value.clear();
        join(value, [copy.value, &[]], &Note { birth: copy.birth, order, vanished: *vanished });
        let spec = Spec {
            flags: copy.flags,
            exptime: copy.exptime,
            cas: NewCas::Exactly(copy.cas),
            stale: copy.stale,
            token_sent: copy.token_sent,
            value: NewValue::Joined(value, &[]),
        };
        let effect = Effect { status: Status::Stored, token: Token::None, change: Change::Publish(spec) };
        let request = Request { key: copy.key, op: Op::Put(Put::set(&[])) };
        let env = Env { now, flushed_below: 0 };
        for _ in 0..TRIES_MAX {
            let locked = store.index.lock(worker.hash(copy.key));
            let found = worker.find_locked(store, &locked, copy.key);
            let commit = Commit { store, locked: &locked, found, request: &request, env: &env, draft: None };
            match worker.commit(&commit, &effect) {
                Ok(answer) if answer.status == Status::Stored => return true,
                Err(Failed::NoRoom(no_room)) => {
                    drop(locked);
                    if !worker.make_room(store, no_room, &env) {
                        break;
                    }
                }
                _ => break,
            }
        }
        worker.forget(copy.key);
        false
    }

    /// Forgets items that were flushed or have expired elsewhere, some buckets at a time; false when the walk is over.
    pub fn sweep(&mut self, cursor: &mut Cursor, env: &Env) -> bool {
        let mut dead: Vec<Vec<u8>> = Vec::new();
        let more = self.worker.scan(cursor, SWEEP_BUCKETS, &mut |view| {
            if !own_of(view, view.cas).is_alive(env) {
                dead.push(view.key.to_vec());
            }
        });
        for key in dead {
            self.worker.forget(&key);
        }
        more
    }

    /// A number that stands for a key in this store.
    #[must_use]
    pub fn number_of(&self, key: &[u8]) -> u64 {
        self.worker.hash(key).0
    }
}

/// What the other store saw under the key, as far as it can be had: the value is the follower's own. Of an item that
/// was dead there the value doesn't matter.
fn told_view<'a>(trace: &Trace, told: &Told, shows_cas: bool, own: Option<View<'a>>) -> Option<View<'a>> {
    let (seen, version) = (trace.found?, told.found?);
    let value = own.map_or(&[][..], |own| split(own.value).0);
    Some(View {
        key: own.map_or(&[], |own| own.key),
        value,
        flags: own.map_or(0, |own| own.flags),
        exptime: seen.exptime,
        cas: if shows_cas { version.cas } else { 0 },
        birth: version.birth,
        accessed: seen.accessed,
        fetched: seen.fetched,
        stale: own.is_some_and(|own| own.stale),
        token_sent: seen.token_sent,
    })
}

/// The effect, if it is the one in the trace; no mismatch when the follower's own item is to blame.
fn decide<'a>(
    store: &Store,
    trace: &Trace,
    told: &Told,
    request: &Request<'a>,
    sight: Option<Sight<'a>>,
    seen: Option<View<'a>>,
) -> Result<Effect<'a>, Option<Mismatch>> {
    let effect = if let Some(sight) = sight {
        let decision = Decision { store, tables_bytes_max: TABLES_BYTES_MAX };
        let case = Case { request: *request, sight: Some(sight) };
        let decided = Diverse::enter(&decision, &case, &trace.env);
        if !decided.is_key || decided.checksum.is_some_and(|sum| sum != sight.item.crc()) {
            return Err(None);
        }
        decided.effect
    } else {
        crate::operator::compute(request, &trace.env, seen, store.options.sealed_flags)
    };
    guard::compare(Kind::Outcome, Digest(trace.effect.into()), Digest(digest_of(&effect).into()))?;
    if let Some(own) = seen.filter(|own| own.value.len() > SMALL_BYTES_MAX) {
        let crc = crc32c(0, own.value);
        guard::compare(Kind::Checksum, Digest(told.found_crc.into()), Digest(crc.into()))?;
    }
    Ok(effect)
}

/// What changes in the follower: the same, but with the ids that were given elsewhere, and the birth behind the value.
fn own_change<'a>(
    trace: &Trace,
    told: &Told,
    request: &Request<'_>,
    effect: &Effect<'a>,
    value: &'a mut Vec<u8>,
) -> Result<Change<'a>, Mismatch> {
    let Change::Publish(spec) = effect.change else { return Ok(effect.change) };
    let published = told.published.ok_or_else(|| flaw(Kind::Outcome, 1, 0))?;
    if trace.published_exptime != spec.exptime {
        return Err(flaw(Kind::Outcome, trace.published_exptime.into(), spec.exptime.into()));
    }
    match spec.cas {
        // Above the largest there is none: ids begin anew.
        NewCas::Above(floor) if published.cas <= floor && floor != u64::MAX => {
            return Err(flaw(Kind::Outcome, published.cas, floor));
        }
        NewCas::Exactly(asked) if published.cas != asked => {
            return Err(flaw(Kind::Outcome, published.cas, asked));
        }
        _ => {}
    }
    if let Op::Put(put) = &request.op {
        let received = crc32c(0, put.value);
        guard::compare(Kind::Checksum, Digest(trace.received.into()), Digest(received.into()))?;
    }
    let note = Note { birth: published.birth, order: order_of(trace), vanished: trace.vanished() };
    let length = join(value, parts_of(&spec.value), &note);
    let crc = crc32c(0, &value[..length]);
    guard::compare(Kind::Checksum, Digest(told.value_crc.into()), Digest(crc.into()))?;
    let cas = NewCas::Exactly(published.cas);
    Ok(Change::Publish(Spec { cas, value: NewValue::Joined(value, &[]), ..spec }))
}

/// What the command shows of the item found or published.
fn shown<'a>(
    store: &Store,
    trace: &Trace,
    told: &Told,
    shows_cas: bool,
    effect: &Effect<'_>,
    seen: Option<View<'a>>,
    written: Option<View<'a>>,
) -> Option<View<'a>> {
    match &effect.change {
        Change::None => seen.filter(|_| effect.status == Status::Hit),
        Change::Unlink => None,
        Change::Amend(amend) => {
            let shown = seen.map(|view| View { exptime: amend.exptime.unwrap_or(view.exptime), ..view });
            shown.filter(|_| effect.status == Status::Hit)
        }
        Change::Publish(spec) => written.zip(told.published).map(|(view, version)| View {
            value: split(view.value).0,
            exptime: spec.exptime,
            cas: if shows_cas { version.cas } else { 0 },
            birth: version.birth,
            accessed: store.noted(trace.env.now),
            fetched: false,
            token_sent: spec.token_sent,
            ..view
        }),
    }
}

fn order_of(trace: &Trace) -> u64 {
    trace.order.map_or(0, |order| order.number)
}

fn own_of(view: &View<'_>, cas: u64) -> Own {
    let (_, Note { birth, order, vanished }) = split(view.value);
    let version = Version { cas, birth };
    Own { version, order, vanished, exptime: view.exptime, accessed: view.accessed }
}

/// Writes a value and a note; how long the value is.
fn join(out: &mut Vec<u8>, parts: [&[u8]; 2], note: &Note) -> usize {
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let length = out.len();
    out.extend_from_slice(&note.birth.to_le_bytes());
    out.extend_from_slice(&note.order.to_le_bytes());
    out.extend_from_slice(&note.vanished.to_le_bytes());
    length
}

/// A follower's value, and the note behind it.
fn split(value: &[u8]) -> (&[u8], Note) {
    let Some((value, note)) = value.split_last_chunk::<{ NOTE_BYTES as usize }>() else {
        return (value, Note::default());
    };
    let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| note[at + index]));
    let vanished = u32::from_le_bytes(std::array::from_fn(|index| note[16 + index]));
    (value, Note { birth: eight(0), order: eight(8), vanished })
}
