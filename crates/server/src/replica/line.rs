//! A server's connection to its replica: what is sent, what is heard, and what follows from it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use guard::{Digest, Disagreement, Kind, Mismatch, Record, Site};
use store::{Cursor, Look, Trace};

use super::crew::{BATCH, Crew, Flying, Stream};
use super::dial::Connected;
use super::link::{Link, Lost};
use super::parcel::{Facts, Packer};
use super::service::ELSEWHERE;
use super::shipper::tell;
use super::standing::State;
use super::wire::{self, BadFrame, Counted, Fence, FenceEvent, Fields, Frame, Missed, Progress};
use super::wire::{Tag, WINDOW_BYTES};
use crate::shared::{Shared, locked};
use crate::strata;
use crate::validator::Desk;

/// Workers that find no memory can't have back what is looked at, so a look is not to take longer than this. It is only
/// seen every so many records.
const LOOK_MAX: Duration = Duration::from_micros(200);
const LOOK_RECORDS: usize = 8;

/// What a record takes of the window beside its payload and value.
const RECORD_BYTES: usize = 256;

/// Above this much that waits to be sent, no more is added.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Above this much, no items are added, so that records come first.
const WALK_QUEUED_MAX: usize = 256 << 10;

/// How many buckets are looked at in one step of a walk, and how many bytes of items make a frame. A single item may be
/// larger.
const WALK_BUCKETS: usize = 32;
const LOAD_BYTES: usize = 128 << 10;

/// How long it rests between two walks at least and at most: twice as long each time, while records are lost all the
/// time.
const WALK_REST: Duration = Duration::from_secs(1);
const WALK_REST_MAX: Duration = Duration::from_secs(32);

/// How long it rests between two fences at least: a look-up that may be wrong waits for two.
const FENCE_REST: Duration = Duration::from_millis(2);

/// Keys the replica may ask for before it has seen answers.
const ASKS_MAX: usize = 4096;

/// How often the replica is asked how it is.
const PING: Duration = Duration::from_millis(100);

/// A replica that was sent something and says nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// A connection to the replica.
pub(super) struct Line {
    pub(super) connected: Connected,
    /// Bytes of the window that are taken.
    flying_bytes: usize,
    /// Fences ever set up.
    fences: u64,
    fence: Option<Standard>,
    fenced: Instant,
    /// How many fences have to be set up for what was sent.
    fences_due: u8,
    /// Where the walk over all items stands, if one is under way.
    walk: Option<Cursor>,
    /// Whether there has to be another one.
    wants_walk: bool,
    walked: Instant,
    walk_rest: Duration,
    /// Records that had been lost when the last walk began.
    gaps: u64,
    asks: VecDeque<Vec<u8>>,
    pings: u64,
    pinged: Instant,
    /// When the replica was heard last, or was sent something after it had answered everything.
    heard: Instant,
    is_complete: bool,
}

/// A fence that was set up.
struct Standard {
    moment: store::Fence,
    /// Whether all items had been sent before.
    had_all: bool,
    /// Passed, but earlier records may still be in the rings; records that were lost until then.
    passed: Option<u64>,
}

impl Line {
    pub(super) fn new(connected: Connected) -> Self {
        let now = Instant::now();
        Line {
            connected,
            flying_bytes: 0,
            fences: 0,
            fence: None,
            fenced: now,
            fences_due: 0,
            walk: None,
            wants_walk: true,
            walked: now,
            // Nothing is there yet.
            walk_rest: Duration::ZERO,
            gaps: 0,
            asks: VecDeque::new(),
            pings: 0,
            pinged: now,
            heard: now,
            is_complete: false,
        }
    }

    /// Whether there is something to do that does not come from outside.
    pub(super) fn is_busy(&self) -> bool {
        let has_more = self.walk.is_some() || self.fence.is_some() || self.fences_due > 0;
        has_more || self.connected.link.queued() > 0
    }

    /// Takes what the replica says, and sends what there is; whether anything was done.
    pub(super) fn turn(&mut self, shared: &Shared, crew: &mut Crew) -> Result<bool, Lost> {
        let mut has_moved = self.receive(shared, crew)?;
        for stream in &mut crew.streams {
            has_moved |= self.take(stream, &mut crew.desk)?;
        }
        for stream in &mut crew.streams {
            has_moved |= self.ship(shared, stream);
            crew.desk.after(stream);
        }
        has_moved |= self.raise_fence(shared, crew);
        has_moved |= self.load(shared, crew);
        self.flush(crew);
        self.ping();
        let waits = self.connected.link.queued() > 0;
        has_moved |= self.connected.link.send()? > 0;
        let is_owed = waits || self.flying_bytes > 0 || self.pings > locked(&shared.replica.counted).ping;
        if !is_owed {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > SILENCE_MAX {
            return Err(Lost::Silent);
        }
        Ok(has_moved)
    }

    /// Takes frames off the socket; whether there were any.
    fn receive(&mut self, shared: &Shared, crew: &mut Crew) -> Result<bool, Lost> {
        let mut has_moved = false;
        loop {
            while let Some(frame) = self.connected.link.next()? {
                let heard = Heard::of(&frame)?;
                self.hear(heard, shared, crew)?;
                has_moved = true;
            }
            if self.connected.link.receive()? == 0 {
                break;
            }
            self.heard = Instant::now();
        }
        Ok(has_moved)
    }

    fn hear(&mut self, heard: Heard, shared: &Shared, crew: &mut Crew) -> Result<(), BadFrame> {
        match heard {
            Heard::Progress(progress) => {
                let stream = crew.streams.get_mut(usize::from(progress.stream)).ok_or(BadFrame::Content)?;
                stream.heard.push_back(progress);
                if stream.heard.len() > stream.flying.len() + BATCH {
                    // It acknowledges what was never sent.
                    return Err(BadFrame::Content);
                }
            }
            Heard::Counted(counted) => self.note(&counted, shared),
            Heard::Want { all, keys } => {
                self.wants_walk |= all;
                self.asks.extend(keys);
                if self.asks.len() > ASKS_MAX {
                    return Err(BadFrame::Content);
                }
            }
            Heard::Missed(missed) => {
                let stream = usize::from(missed.stream);
                if stream >= crew.streams.len() {
                    return Err(BadFrame::Content);
                }
                // Only here it is known whether it went by eviction.
                if !missed.is_explained(&shared.store, &shared.env()) {
                    let mismatch = Mismatch::new(Kind::Lost, Digest(missed.cas), Digest(0));
                    let hash = shared.store.number_of(&missed.key);
                    crew.desk.react(mismatch, stream, hash);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, counted: &Counted, shared: &Shared) {
        *locked(&shared.replica.counted) = *counted;
        let is_complete = counted.is_complete != 0 && self.walk.is_none() && !self.wants_walk;
        if is_complete != self.is_complete {
            self.is_complete = is_complete;
            self.walk_rest = WALK_REST;
            shared.replica.set(if is_complete { State::Connected } else { State::Resynchronising });
        }
    }

    /// Takes what the replica has said about a worker's records; whether it said anything.
    fn take(&mut self, stream: &mut Stream, desk: &mut Desk) -> Result<bool, Lost> {
        let mut has_moved = skip_lost(stream, desk);
        while stream.is_settled(&desk.shared)
            && let Some(progress) = stream.heard.pop_front()
        {
            let Progress { ack, mut unknown, .. } = progress;
            has_moved = true;
            stream.told += u64::from(ack.disagreement.is_some());
            if ack.disagreements != stream.told {
                return Err(BadFrame::Content.into());
            }
            unknown.reverse();
            while let Some(flight) = stream.take_up_to(ack.confirmed) {
                self.flying_bytes -= flight.bytes.min(self.flying_bytes);
                let record = &flight.record;
                desk.shared.replica.acked.fetch_add(1, Relaxed);
                if unknown.last() == Some(&record.seq()) {
                    unknown.pop();
                    desk.confirm_here(stream, &flight);
                } else {
                    stream.tally.count_validated(record.stratum());
                    stream.confirmer.confirm(record.seq());
                    desk.note_latency_of(record, stream.worker);
                }
                stream.recycle(flight.record);
                if !stream.is_settled(&desk.shared) {
                    // The rest of it is taken when the worker has looked at its refusals.
                    unknown.reverse();
                    stream.told -= u64::from(ack.disagreement.is_some());
                    stream.heard.push_front(Progress { ack, unknown, ..progress });
                    return Ok(true);
                }
            }
            if let Some(disagreement) = ack.disagreement {
                self.disagree(stream, desk, disagreement);
            }
            skip_lost(stream, desk);
        }
        Ok(has_moved)
    }

    /// The replica disagrees about the first records that are not confirmed.
    #[cold]
    fn disagree(&mut self, stream: &mut Stream, desk: &mut Desk, disagreement: Disagreement) {
        let mut first: Option<Record> = None;
        while let Some(flight) = stream.take_up_to(disagreement.seq_last) {
            self.flying_bytes -= flight.bytes.min(self.flying_bytes);
            desk.shared.replica.acked.fetch_add(1, Relaxed);
            if disagreement.kind == Kind::Record {
                // The record was damaged on its way to the replica; here it is whole.
                desk.confirm_here(stream, &flight);
            } else {
                stream.done = Trace::read(&flight.record).map(|(trace, ..)| trace).or(stream.done);
                first = first.or(Some(flight.record));
            }
        }
        let Some(record) = first else { return };
        stream.confirmer.hold(disagreement.seqs());
        if matches!(disagreement.kind, Kind::Stale | Kind::Resurrected) {
            stream.tally.count_disagreement(record.stratum());
            let mismatch = Mismatch::new(disagreement.kind, disagreement.expected, disagreement.found);
            let hash = Trace::read(&record).map_or(0, |(trace, ..)| trace.hash());
            desk.react(mismatch, stream.worker, hash);
            let _ = stream.confirmer.refuse();
            return;
        }
        let trace = Trace::read(&record).map(|(trace, ..)| trace);
        let look = stream.inspector.begin().filter(|look| trace.is_some_and(|trace| look.has(&trace)));
        let again = look.map(|look| desk.repeat(&look, &record).map(drop));
        let is_here = disagreement.second_core != ELSEWHERE;
        match again {
            // A core of another machine can't be asked, so this one decides.
            Some(Ok(())) if !is_here => {
                stream.tally.count_validated(record.stratum());
                desk.shared.replica.alone.fetch_add(1, Relaxed);
                tell(format_args!(
                    "event=replica_alone; {disagreement}; a repetition here agrees with the first"
                ));
                stream.confirmer.release();
            }
            Some(Err(mismatch)) if !is_here => {
                stream.tally.count_disagreement(record.stratum());
                let Disagreement { stratum, first_core, .. } = disagreement;
                let site = Site { stratum, first_core, second_core: desk.core };
                desk.settle(stream, &record, Disagreement::new(site, mismatch, disagreement.seqs()));
            }
            _ => {
                stream.tally.count_disagreement(record.stratum());
                desk.settle(stream, &record, disagreement);
            }
        }
    }

    /// Takes records of a worker and puts them into parcels; whether there were any.
    fn ship(&mut self, shared: &Shared, stream: &mut Stream) -> bool {
        let Stream { worker, inspector, intake, flying, done, packer, .. } = stream;
        let Some(mut look) = inspector.begin() else { return false };
        if let Some(done) = done.take() {
            look.take(&done);
        }
        let began = Instant::now();
        let (mut count, mut is_drained) = (0, false);
        while count < BATCH
            && self.flying_bytes < WINDOW_BYTES
            && self.connected.link.queued() < QUEUED_BYTES_MAX
            && (count % LOOK_RECORDS != LOOK_RECORDS - 1 || began.elapsed() < LOOK_MAX)
        {
            let Some(next) = intake.next() else {
                is_drained = flying.is_empty();
                break;
            };
            flying.push_back(match next {
                Flying::Record(mut flight) => {
                    flight.bytes = self.pack(&look, packer, *worker, &flight.record);
                    self.flying_bytes += flight.bytes;
                    Flying::Record(flight)
                }
                lost @ Flying::Lost(..) => lost,
            });
            count += 1;
        }
        look.end(is_drained);
        shared.replica.sent.fetch_add(count as u64, Relaxed);
        if count > 0 {
            self.fences_due = 2;
        }
        count > 0
    }

    /// Puts a record into a parcel, and sends that when it is full; how many bytes of the window it takes.
    fn pack(&mut self, look: &Look<'_>, packer: &mut Packer, worker: usize, record: &Record) -> usize {
        let trace = Trace::read(record).map(|(trace, ..)| trace).filter(|trace| look.has(trace));
        let facts = trace.map(|trace| {
            let receives = strata::receives(record.stratum());
            let received = if receives { look.published_value(&trace) } else { &[] };
            Facts { told: look.told(&trace), received }
        });
        if !packer.push(record, facts.as_ref()) {
            send_parcel(&mut self.connected.link, worker, packer);
            // An empty one takes every record.
            let _ = packer.push(record, facts.as_ref());
        }
        RECORD_BYTES + record.payload().len() + facts.map_or(0, |facts| facts.received.len())
    }

    /// Puts the parcels on their way.
    fn flush(&mut self, crew: &mut Crew) {
        for stream in crew.streams.iter_mut().filter(|stream| !stream.packer.is_empty()) {
            send_parcel(&mut self.connected.link, stream.worker, &mut stream.packer);
        }
    }

    /// Sets up a fence when one is due, and sees whether it is passed; whether anything was done.
    fn raise_fence(&mut self, shared: &Shared, crew: &mut Crew) -> bool {
        crew.desk.store.idle();
        let lost = lost_records(shared, crew);
        let Some(fence) = &mut self.fence else {
            if self.fences_due == 0 || self.fenced.elapsed() < FENCE_REST {
                return false;
            }
            self.flush(crew);
            (self.fenced, self.fences_due, self.fences) =
                (Instant::now(), self.fences_due - 1, self.fences + 1);
            Fence { number: self.fences, what: FenceEvent::Open }.append(self.connected.link.out());
            let had_all = self.walk.is_none() && !self.wants_walk;
            self.fence = Some(Standard { moment: shared.store.fence(), had_all, passed: None });
            return true;
        };
        if fence.passed.is_none() {
            if !shared.store.has_passed(fence.moment) {
                return false;
            }
            fence.passed = Some(lost_records(shared, crew));
            for stream in &mut crew.streams {
                stream.intake.fence_at = stream.intake.lines + stream.intake.reader.waiting_lines();
            }
        }
        if crew.streams.iter().any(|stream| stream.intake.lines < stream.intake.fence_at) {
            return false;
        }
        let is_complete = fence.had_all && fence.passed == Some(self.gaps);
        self.fence = None;
        self.flush(crew);
        self.wants_walk |= lost != self.gaps && self.walk.is_none();
        let what = FenceEvent::Passed { is_complete };
        Fence { number: self.fences, what }.append(self.connected.link.out());
        if is_complete != self.is_complete {
            self.ask_how_it_is();
        }
        true
    }

    /// Sends items: those the replica has asked for, and some of all if it is to have all. Whether it did.
    fn load(&mut self, shared: &Shared, crew: &mut Crew) -> bool {
        if self.connected.link.queued() >= WALK_QUEUED_MAX {
            return false;
        }
        let has_asked = self.answer(&mut crew.desk.store);
        if self.walk.is_none() && self.wants_walk && self.walked.elapsed() >= self.walk_rest {
            self.wants_walk = false;
            self.walk_rest = (self.walk_rest * 2).clamp(WALK_REST, WALK_REST_MAX);
            self.walk = Some(Cursor::default());
            // First what was lost: what is lost from now on is not in the walk.
            self.gaps = lost_records(shared, crew);
            let orders = shared.store.changes();
            self.flush(crew);
            wire::append(self.connected.link.out(), Tag::Walk, 0, |body| wire::append_orders(body, &orders));
        }
        let has_walked = self.walk(shared, &mut crew.desk.store);
        crew.desk.store.idle();
        has_asked || has_walked
    }

    /// Sends items that the replica has asked for, as far as there is room; whether it did.
    fn answer(&mut self, store: &mut store::Worker) -> bool {
        let mut has_asked = false;
        while self.connected.link.queued() < WALK_QUEUED_MAX && !self.asks.is_empty() {
            let (asks, store) = (&mut self.asks, &mut *store);
            wire::append(self.connected.link.out(), Tag::Load, 0, |body| {
                let start = body.len();
                while body.len() - start < LOAD_BYTES
                    && let Some(key) = asks.pop_front()
                {
                    match store.copy(&key) {
                        Some(copy) => wire::append_copy(body, &copy),
                        None => wire::append_absence(body, &key),
                    }
                }
            });
            (has_asked, self.fences_due) = (true, 2);
        }
        has_asked
    }

    /// One step of the walk over all items, if one is under way.
    fn walk(&mut self, shared: &Shared, store: &mut store::Worker) -> bool {
        let Some(cursor) = &mut self.walk else { return false };
        let env = shared.env();
        let mut body = Vec::new();
        let out = self.connected.link.out();
        let has_more = store.copies(cursor, WALK_BUCKETS, &mut |copy| {
            if store::is_alive(&copy.view, &env) {
                wire::append_copy(&mut body, copy);
            }
            if body.len() >= LOAD_BYTES {
                wire::append(out, Tag::Load, 0, |out| out.append(&mut body));
            }
        });
        if !body.is_empty() {
            wire::append(out, Tag::Load, 0, |out| out.append(&mut body));
        }
        if !has_more {
            (self.walk, self.walked, self.fences_due) = (None, Instant::now(), 2);
        }
        true
    }

    fn ping(&mut self) {
        if self.pinged.elapsed() >= PING {
            self.pinged = Instant::now();
            self.ask_how_it_is();
        }
    }

    fn ask_how_it_is(&mut self) {
        self.pings += 1;
        let number = self.pings;
        wire::append(self.connected.link.out(), Tag::Ping, 0, |body| {
            body.extend_from_slice(&number.to_le_bytes());
        });
    }
}

/// Puts a parcel on its way.
fn send_parcel(link: &mut Link, worker: usize, packer: &mut Packer) {
    wire::append(link.out(), Tag::Parcel, worker as u16, |body| packer.pack(body));
}

/// Settles lines that were lost in a ring, when all that came before them is settled; whether there were any.
fn skip_lost(stream: &mut Stream, desk: &mut Desk) -> bool {
    let mut has_moved = false;
    while stream.is_settled(&desk.shared)
        && let Some(Flying::Lost(first, last)) = stream.flying.front()
    {
        let (first, last) = (*first, *last);
        stream.flying.pop_front();
        desk.lose_lines(stream, first, last);
        has_moved = true;
    }
    has_moved
}

/// Executions that left no record although they should have.
fn lost_records(shared: &Shared, crew: &Crew) -> u64 {
    let unrecorded = shared.coverages.iter().map(|it| it.dropped.read() + it.repeated.read()).sum::<u64>();
    unrecorded + crew.streams.iter().map(|stream| stream.intake.gaps).sum::<u64>()
}

/// What a replica says.
enum Heard {
    Progress(Progress),
    Counted(Counted),
    Want { all: bool, keys: Vec<Vec<u8>> },
    Missed(Missed),
}

impl Heard {
    fn of(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        Ok(match frame.tag {
            Tag::Ack => Heard::Progress(Progress::decode(frame)?),
            Tag::Status => Heard::Counted(Counted::decode(frame)?),
            Tag::Lost => Heard::Missed(Missed::decode(frame)?),
            Tag::Want => {
                let mut fields = Fields::new(frame.body);
                let all = fields.u8()? != 0;
                let mut keys = Vec::new();
                while !fields.is_empty() {
                    keys.push(wire::key(&mut fields)?.to_vec());
                }
                Heard::Want { all, keys }
            }
            _ => return Err(BadFrame::Tag),
        })
    }
}
