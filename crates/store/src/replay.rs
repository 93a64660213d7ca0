//! Repeating what a worker executed, from its trace and from the items, which are immutable.
//!
//! The operator is the one the worker executed, entered through the diverse side: the key is hashed by the compact form
//! and compared byte by byte, and checksums are computed anew. What has changed in an item since (its expiry time, its
//! last access) is taken from the trace; everything else is read where it lies.

use std::sync::Arc;

use guard::{Digest, Diverse, Kind, Mismatch, Record, Side, WORDS};

use crate::bucket::Location;
use crate::crc::crc32c;
use crate::decide::{Case, Decision, Sight, sum};
use crate::hold::Lease;
use crate::item::Item;
use crate::request::{Change, Effect, NewCas, NewValue, Op, PutMode, Request, Spec, Status, Token, View};
use crate::store::Store;
use crate::trace::{self, Seen, Trace, digest_of};
use crate::worker::Answer;

/// Nothing is summed from tables when a trace is repeated: that it happens on another core says more than that it happens
/// by other instructions, and tables take several times as long.
pub(crate) const TABLES_BYTES_MAX: usize = 0;

/// Cache lines of an item that are asked for before it is looked at; the processor finds the rest by itself.
const PREFETCHED_LINES: u64 = 4;

/// Looks at what a worker's records point to.
pub struct Inspector {
    store: Arc<Store>,
    lease: Arc<Lease>,
}

/// What became of the entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The cas id of the version that the look-up saw, alive or not.
    pub found: Option<u64>,
    /// What was done with it.
    pub change: EntryChange,
    /// The expiry time that the version found, or the one written, has afterwards; 0 for never or none.
    pub exptime: u32,
}

/// What was done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It leads to the same version as before, or there still is none.
    Kept,
    /// It leads to a version with this cas id, which no version had before.
    Wrote(u64),
    /// It leads to a version whose cas id the client chose.
    WroteChosen,
    /// It was taken out.
    Removed,
}

/// A time during which items that records point to stay as they are.
pub struct Look<'i> {
    inspector: &'i Inspector,
    floor: u64,
    seen: u64,
}

impl Inspector {
    pub(crate) fn new(store: &Arc<Store>, lease: Arc<Lease>) -> Self {
        Inspector { store: Arc::clone(store), lease }
    }

    /// The store that it looks at.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Begins to look; none when there are no records. Workers that find no memory can't have back what is held
    /// meanwhile, so it is to be short: some dozens of records.
    pub fn begin(&mut self) -> Option<Look<'_>> {
        let floor = self.lease.begin()?;
        Some(Look { inspector: self, floor, seen: 0 })
    }
}

impl Look<'_> {
    /// Notes that a record's turn has come; false when it was abandoned, because what it points to was needed.
    pub fn take(&mut self, trace: &Trace) -> bool {
        self.seen = self.seen.max(trace.epoch);
        trace.epoch >= self.floor
    }

    /// Asks for the memory of the item that a record with these words leads to, which comes next.
    #[inline]
    pub fn prefetch(&self, words: &[u64; WORDS]) {
        if let Some(location) = trace::found(words) {
            let segments = &self.store().segments;
            (0..PREFETCHED_LINES).for_each(|line| segments.prefetch(Location(location.0 + 8 * line)));
        }
    }

    /// Whether what a record points to can be read, although its turn has not come.
    #[must_use]
    pub fn has(&self, trace: &Trace) -> bool {
        trace.epoch >= self.floor
    }

    /// Ends it, with all records seen or not. Whether there may be more.
    pub fn end(self, is_drained: bool) -> bool {
        let more = self.inspector.lease.end(self.seen, is_drained);
        std::mem::forget(self);
        more
    }

    /// The value that a recorded put received, as it lies in the item it was put into: the whole of it, or the `len`
    /// bytes that were added. Empty when it was put into none.
    pub fn received(&self, trace: &Trace, mode: PutMode, len: usize) -> &[u8] {
        let Some(Ok(item)) = trace.published.map(|location| self.item(location)) else { return &[] };
        part_received(item.value(), mode, len)
    }

    /// The value of the item that was published, if one was.
    #[must_use]
    pub fn published_value(&self, trace: &Trace) -> &[u8] {
        trace.published.and_then(|location| self.item(location).ok()).map_or(&[], Item::value)
    }

    /// The keys of the items that were found and published.
    pub fn keys(&self, trace: &Trace) -> impl Iterator<Item = &[u8]> {
        let locations = [trace.found.map(|seen| seen.location), trace.published];
        locations.into_iter().flatten().filter_map(|location| self.item(location).ok()).map(Item::key)
    }

    /// The cas ids of the items that were found and published; 0 for none.
    #[must_use]
    pub fn versions(&self, trace: &Trace) -> [u64; 2] {
        [trace.found.map(|seen| seen.location), trace.published].map(|location| {
            let item = location.and_then(|location| Some((location, self.item(location).ok()?)));
            item.map_or(0, |(location, item)| self.store().cas_of(location, item))
        })
    }

    /// The checksums that the items carry which were found and published, to stand for them as evidence.
    #[must_use]
    pub fn checksums(&self, trace: &Trace) -> [Option<Digest>; 2] {
        let locations = [trace.found.map(|seen| seen.location), trace.published];
        locations.map(|location| Some(Digest(self.item(location?).ok()?.crc().into())))
    }

    /// Whether the item found does not say any more what was once written.
    #[must_use]
    pub fn is_found_damaged(&self, trace: &Trace) -> bool {
        let Some(Seen { location, .. }) = trace.found else { return false };
        let is_intact = |item: Item<'_>| {
            let cas = self.store().cas_of(location, item);
            item.is_intact(cas) || item.checksum(cas, crate::crc::crc32c_by_tables) == item.crc()
        };
        !self.item(location).is_ok_and(is_intact)
    }

    /// Executes a request again and says what it answers.
    ///
    /// # Errors
    /// What does not agree with the trace, or with itself.
    pub fn repeat<'a>(
        &'a self,
        trace: &Trace,
        request: &Request<'_>,
    ) -> Result<(Answer<'a>, Fate), Mismatch> {
        let store = self.store();
        let found = trace.found.map(|seen| self.sight(&seen)).transpose()?;
        let decision = Decision { store, tables_bytes_max: TABLES_BYTES_MAX };
        let case = Case { request: *request, sight: found };
        let decided = Diverse::enter(&decision, &case, &trace.env);
        guard::compare(Kind::Outcome, Digest(trace.hash), Digest(decided.hash.0))?;
        agree(Kind::Outcome, decided.is_key)?;
        if let (Some(sum), Some(sight)) = (decided.checksum, found) {
            compare_sums(sight.item.crc(), sum)?;
        }
        let effect = decided.effect;
        guard::compare(Kind::Outcome, Digest(trace.effect.into()), Digest(digest_of(&effect).into()))?;
        let answer = self.answer(trace, request, found.map(|sight| sight.view), &effect)?;
        Ok((answer, self.fate(trace, found.as_ref(), &effect)))
    }

    fn fate(&self, trace: &Trace, found: Option<&Sight<'_>>, effect: &Effect<'_>) -> Fate {
        let exptime = found.map_or(0, |sight| sight.view.exptime);
        let (change, exptime) = match &effect.change {
            Change::None => (EntryChange::Kept, exptime),
            Change::Amend(amend) => (EntryChange::Kept, amend.exptime.unwrap_or(exptime)),
            Change::Unlink => (EntryChange::Removed, 0),
            Change::Publish(Spec { cas: NewCas::Exactly(_), exptime, .. }) => {
                (EntryChange::WroteChosen, *exptime)
            }
            Change::Publish(spec) => (EntryChange::Wrote(self.versions(trace)[1]), spec.exptime),
        };
        Fate { found: found.map(|sight| sight.cas), change, exptime }
    }

    /// What the effect left behind, compared with what it says; then what is answered.
    fn answer<'a>(
        &'a self,
        trace: &Trace,
        request: &Request<'_>,
        found: Option<View<'a>>,
        effect: &Effect<'_>,
    ) -> Result<Answer<'a>, Mismatch> {
        agree(Kind::Outcome, trace.published.is_some() == self.publishes(trace, effect)?)?;
        let shown = |item: Option<View<'a>>| item.filter(|_| effect.status == Status::Hit);
        let item = match (&effect.change, found) {
            (Change::None, found) => shown(found),
            (Change::Unlink, _) => None,
            (Change::Amend(amend), Some(view)) => {
                let exptime = amend.exptime.unwrap_or(view.exptime);
                if let Some(location) = trace.published {
                    // The same version, written anew where there is room for an expiry time.
                    let spec = Spec {
                        flags: view.flags,
                        exptime,
                        cas: NewCas::Exactly(self.real_cas(trace, view.cas)),
                        stale: view.stale,
                        token_sent: view.token_sent,
                        value: NewValue::Joined(view.value, &[]),
                    };
                    self.published(trace, location, request, &spec)?;
                }
                shown(Some(View { exptime, ..view }))
            }
            (Change::Publish(spec), _) => {
                let location = trace.published.ok_or_else(|| flaw(Kind::Outcome, 1, 0))?;
                Some(self.published(trace, location, request, spec)?)
            }
            // An operator changes only what it was shown.
            (Change::Amend(_), None) => None,
        };
        Ok(Answer { status: effect.status, token: effect.token, item })
    }

    /// Whether an effect leaves a version behind.
    fn publishes(&self, trace: &Trace, effect: &Effect<'_>) -> Result<bool, Mismatch> {
        Ok(match (&effect.change, trace.found) {
            (Change::Publish(_), _) => true,
            // The same version is written anew where it has no room for an expiry time.
            (Change::Amend(amend), Some(seen)) if amend.exptime.is_some_and(|exptime| exptime != 0) => {
                !self.item(seen.location)?.layout().has_exptime
            }
            (Change::None | Change::Unlink | Change::Amend(_), _) => false,
        })
    }

    /// Looks at a version that was published: whether it says what it should. What its command shows of it.
    fn published<'a>(
        &'a self,
        trace: &Trace,
        location: Location,
        request: &Request<'_>,
        spec: &Spec<'_>,
    ) -> Result<View<'a>, Mismatch> {
        let store = self.store();
        // Nothing is written over what it follows from.
        agree(Kind::Outcome, trace.found.is_none_or(|seen| seen.location != location))?;
        let item = self.item(location)?;
        let cas = store.cas_of(location, item);
        compare_sums(
            item.crc(),
            item.checksum(cas, |crc, bytes| sum::<Diverse>(crc, bytes, TABLES_BYTES_MAX)),
        )?;
        let (value, parts) = (item.value(), parts_of(&spec.value));
        let [first, second] = parts;
        agree(Kind::Outcome, item.key() == request.key)?;
        agree(Kind::Outcome, value.len() == first.len() + second.len())?;
        agree(Kind::Outcome, is_same(&value[..first.len()], first))?;
        agree(Kind::Outcome, is_same(&value[first.len()..], second))?;
        agree(Kind::Outcome, (item.flags(), item.stale()) == (spec.flags, spec.stale))?;
        agree(Kind::Outcome, trace.published_exptime == spec.exptime)?;
        agree(
            Kind::Outcome,
            match spec.cas {
                // Above the largest there is none: ids begin anew.
                NewCas::Above(floor) => cas > floor || floor == u64::MAX || !store.options.cas,
                NewCas::Exactly(asked) => cas == asked,
            },
        )?;
        if let Op::Put(put) = &request.op {
            let sum = crc32c(0, put.value);
            guard::compare(Kind::Checksum, Digest(trace.received.into()), Digest(sum.into()))?;
        }
        Ok(View {
            key: item.key(),
            value,
            flags: spec.flags,
            exptime: spec.exptime,
            cas: if store.options.cas { cas } else { 0 },
            birth: store.segments.at(store.segments.of(location)).birth(),
            accessed: store.noted(trace.env.now),
            fetched: false,
            stale: spec.stale,
            token_sent: spec.token_sent,
        })
    }

    /// The cas id of the item found, also where the store shows none.
    fn real_cas(&self, trace: &Trace, shown: u64) -> u64 {
        let location = trace.found.map(|seen| seen.location);
        let item = location.and_then(|location| Some((location, self.item(location).ok()?)));
        item.map_or(shown, |(location, item)| self.store().cas_of(location, item))
    }

    fn sight<'a>(&'a self, seen: &Seen) -> Result<Sight<'a>, Mismatch> {
        let store = self.store();
        let item = self.item(seen.location)?;
        let cas = store.cas_of(seen.location, item);
        let view = View {
            key: item.key(),
            value: item.value(),
            flags: item.flags(),
            exptime: seen.exptime,
            cas: if store.options.cas { cas } else { 0 },
            birth: store.segments.at(store.segments.of(seen.location)).birth(),
            accessed: seen.accessed,
            fetched: seen.fetched,
            stale: item.stale(),
            token_sent: seen.token_sent,
        };
        Ok(Sight { item, cas, view })
    }

    /// The item at a location that a trace names, if one can lie there at all.
    pub(crate) fn item(&self, location: Location) -> Result<Item<'_>, Mismatch> {
        let segments = &self.store().segments;
        if !segments.is_sound(location) {
            return Err(flaw(Kind::Checksum, 0, location.0));
        }
        Ok(self.store().item(location))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inspector.store
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.inspector.lease.end(self.seen, false);
    }
}

/// The part of an item's value that a put of so many bytes has added to it.
#[must_use]
pub fn part_received(value: &[u8], mode: PutMode, len: usize) -> &[u8] {
    match mode {
        PutMode::Append => &value[value.len().saturating_sub(len)..],
        PutMode::Prepend => &value[..len.min(value.len())],
        PutMode::Set | PutMode::Add | PutMode::Replace => value,
    }
}

/// A record that can't be repeated, as its bytes make no sense.
#[must_use]
pub fn senseless(record: &Record) -> Mismatch {
    flaw(Kind::Record, record.digest().0, 0)
}

pub(crate) fn parts_of<'a>(value: &'a NewValue<'_>) -> [&'a [u8]; 2] {
    match value {
        NewValue::Joined(first, second) => [first, second],
        NewValue::Number(digits) => [digits.as_bytes(), &[]],
    }
}

/// Compares what was to be written with what lies there; what was put is looked at where it lies, and the same.
fn is_same(there: &[u8], wanted: &[u8]) -> bool {
    std::ptr::eq(there, wanted) || there == wanted
}

fn agree(kind: Kind, agrees: bool) -> Result<(), Mismatch> {
    if agrees { Ok(()) } else { Err(flaw(kind, 1, 0)) }
}

fn compare_sums(stored: u32, found: u32) -> Result<(), Mismatch> {
    guard::compare(Kind::Checksum, Digest(stored.into()), Digest(found.into()))
}

pub(crate) fn flaw(kind: Kind, expected: u64, found: u64) -> Mismatch {
    Mismatch::new(kind, Digest(expected), Digest(found))
}

/// What is answered where nothing can be said, because the repetition disagrees.
#[must_use]
pub fn nothing<'a>() -> Answer<'a> {
    Answer { status: Status::Disagreed, token: Token::None, item: None }
}
