//! How an effect takes hold: words amended, a new version written and put in the place of the old one.
//!
//! All of this happens under the key's two stripes. A version is written where nobody sees it, then published by one
//! store to its slot. What can't be done for lack of memory has changed nothing and is tried again from the look-up.

use guard::{Core, Digest, Disagreement, Diverse, Kind, Mismatch, Site};

use crate::bucket::{Entry, Location};
use crate::crc::crc32c;
use crate::decide::{TABLES_BYTES_MAX, stratum, sum};
use crate::draft::Draft;
use crate::index::{Found, Locked};
use crate::item::{Access, Facts, Item, Layout};
use crate::operator::is_alive;
use crate::request::{Amend, Change, Effect, Env, NewCas, NewValue, Op, Request, Spec, Status, Token, View};
use crate::segment::{CAS_OFFSET_BITS, Queue};
use crate::store::{Gone, RESERVED_SEGMENTS, Store};
use crate::worker::{Answer, GROWTH_INTERVAL, Open, Worker};

/// All that a commit needs to know of its command.
pub(crate) struct Commit<'c, 'w> {
    pub(crate) store: &'w Store,
    pub(crate) locked: &'c Locked<'c>,
    pub(crate) found: Option<(Found, View<'w>)>,
    pub(crate) request: &'c Request<'c>,
    pub(crate) env: &'c Env,
    /// Where the value lies already, with its CRC.
    pub(crate) draft: Option<(&'c Draft, u32)>,
}

/// Why a commit did not take place.
pub(crate) enum Failed {
    /// There is no memory for it.
    NoRoom(NoRoom),
    /// What was written is not what was received.
    Disagreed,
    /// What it follows from was flushed meanwhile.
    Flushed,
}

impl From<NoRoom> for Failed {
    fn from(no_room: NoRoom) -> Self {
        Failed::NoRoom(no_room)
    }
}

/// Too little memory for an item of so many bytes.
#[derive(Clone, Copy)]
pub(crate) struct NoRoom {
    pub(crate) bytes: usize,
}

impl Worker {
    pub(crate) fn commit<'w>(
        &mut self,
        at: &Commit<'_, 'w>,
        effect: &Effect<'_>,
    ) -> Result<Answer<'w>, Failed> {
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
                // As it was written: others can already find it, and what they note of that is not this command's.
                let written = store.view(location).map(|view| View {
                    accessed: store.noted(at.env.now),
                    fetched: false,
                    token_sent: spec.token_sent,
                    ..view
                });
                Ok(answer(written))
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
    ) -> Result<View<'w>, Failed> {
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
        moved.set_access(access);
        note(moved);
        Ok(View { exptime, ..view })
    }

    /// Writes a new version and puts it in the place of the one found.
    fn publish(&mut self, at: &Commit<'_, '_>, spec: &Spec<'_>) -> Result<Location, Failed> {
        let store = at.store;
        let counters = store.counters(self.participant.place());
        let location = self.write(at, spec)?;
        // Read after the place was taken: in a segment that is older than the flush the version is flushed with what
        // it follows from, in a younger one it would bring that back.
        if at.found.is_some() && store.flushed_below() > at.env.flushed_below {
            self.abandon(at, location);
            return Err(Failed::Flushed);
        }
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
                    store.vanished.note(Some(store.hash_of(evicted.location()).0), || {});
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
    fn write(&mut self, at: &Commit<'_, '_>, spec: &Spec<'_>) -> Result<Location, Failed> {
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
            None => self.place(at, spec, parts)?,
        };
        let item = store.item(location);
        let cas = match spec.cas {
            NewCas::Exactly(cas) => cas,
            NewCas::Above(floor) => match store.segments.derived_cas(location) {
                derived if derived > floor => derived,
                _ => above(floor, store.segments.next_birth()),
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
        // Of what was received, not of what was written: what went wrong on the way shows in every later look.
        let crc_value = in_place.map_or_else(|| received(parts), |(_, crc)| crc);
        #[cfg(all(test, not(loom)))]
        let crc_value = crc_value ^ crate::decide::sick_copy();
        if self.redundancy.is_some()
            && let Err(mismatch) = compare_copy(item, crc_value)
        {
            store.report(Disagreement::new(self.site(at.request), mismatch, 0..=0));
            self.abandon(at, location);
            return Err(Failed::Disagreed);
        }
        // SAFETY: the item is still ours alone.
        unsafe { item.finish(&facts, crc_value) };
        self.note_written(location, item, crc_value);
        Ok(location)
    }

    /// Gives up what was written and is not to be published.
    fn abandon(&self, at: &Commit<'_, '_>, location: Location) {
        let store = at.store;
        let bytes = store.item(location).layout().bytes();
        let is_draft = at.draft.is_some_and(|(draft, _)| draft.location() == location);
        if !is_draft && bytes > store.segments.shared_bytes_max() {
            // Nobody else will: a run that is open is never looked at.
            let slot = store.segments.of(location);
            store.segments.seal(slot, bytes, Queue::Small, None, || store.epochs.retire());
        }
    }

    /// Writes key and value to a new place.
    fn place(&mut self, at: &Commit<'_, '_>, spec: &Spec<'_>, parts: [&[u8]; 2]) -> Result<Location, NoRoom> {
        let store = at.store;
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
        Ok(location)
    }

    fn site(&self, request: &Request<'_>) -> Site {
        let core = Core(self.core);
        Site { stratum: stratum(request), first_core: core, second_core: core }
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
    pub(crate) fn append(&mut self, store: &Store, layout: Layout, class: usize) -> Result<Location, NoRoom> {
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
}

/// An id that no version has had, above `floor`, unless a client asked for one so large that there is none above it.
fn above(floor: u64, fresh_birth: u64) -> u64 {
    let fresh = fresh_birth << CAS_OFFSET_BITS;
    match (floor >> CAS_OFFSET_BITS) + 1 {
        birth if birth <= u64::MAX >> CAS_OFFSET_BITS => fresh.max(birth << CAS_OFFSET_BITS),
        _ => floor.checked_add(1).unwrap_or(fresh),
    }
}

/// The checksum of a value's parts, one behind the other.
fn received(parts: [&[u8]; 2]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c(crc, part))
}

/// Whether the value lies in memory as it was received.
fn compare_copy(item: Item<'_>, crc_value: u32) -> Result<(), Mismatch> {
    let written = sum::<Diverse>(0, item.value(), TABLES_BYTES_MAX);
    guard::compare(Kind::Checksum, Digest(crc_value.into()), Digest(written.into()))
}

fn value_parts<'a>(value: &'a NewValue<'_>) -> [&'a [u8]; 2] {
    match value {
        NewValue::Joined(first, second) => [first, second],
        NewValue::Number(digits) => [digits.as_bytes(), &[]],
    }
}
