//! The server's side: takes the place of its validators. Records go to the replica, and what it says moves the watermarks.
//!
//! A record stays with the shipper, and what it points to stays readable, until the replica has acknowledged it: what the
//! replica says nothing about is validated here, from the items themselves, and so is everything while there is no
//! replica. So the loss of a replica is no more than a line in the log, and a smaller independence.
//!
//! A replica begins with nothing: all items are sent to it, between the records of what is executed meanwhile
//! ([`Line::walk`]). The same is done again when records were lost.
//!
//! Limits: unacknowledged records of [`WINDOW_BYTES`] for all workers together, and one more; then records stay in the
//! workers' rings, which drop and count what they have no room for. What waits to be sent has [`QUEUED_BYTES_MAX`], and
//! one frame.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use guard::{
    Confirmer, Core, Digest, Disagreement, Finding, Kind, Mismatch, Next, Reader, Record, Seq, Site, Tally,
};
use store::{Cursor, Inspector, Look, Trace};

use super::dial::{Caller, Connected};
use super::link::{Link, Lost};
use super::parcel::{Facts, Packer};
use super::wire::{
    self, BadFrame, Counted, Fence, FenceEvent, Fields, Frame, Missed, Progress, Tag, WINDOW_BYTES,
};
use crate::bell::{Bell, Sleep};
use crate::shared::{Shared, Stop, locked};
use crate::strata;
use crate::sys;
use crate::validator::{Desk, Source};

/// Records taken from one ring before the next has its turn.
const BATCH: usize = 128;

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

/// How long it rests between two walks at least.
const WALK_REST: Duration = Duration::from_secs(1);

/// How long it rests between two fences at least: a look-up that may be wrong waits for two.
const FENCE_REST: Duration = Duration::from_millis(2);

/// Keys the replica may ask for before it has seen answers.
const ASKS_MAX: usize = 4096;

/// How often the replica is asked how it is.
const PING: Duration = Duration::from_millis(100);

/// A replica that was sent something and says nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How long it looks for records before it sleeps, with a core of its own.
const SPIN: Duration = Duration::from_micros(20);

/// The nap when nothing came, and how many follow each other before it sleeps until it is woken.
const NAP: Duration = Duration::from_millis(1);
const NAPS_MAX: u32 = 16;

/// It looks whether it should end, or say something, at least so often.
const DEEP_SLEEP: Duration = Duration::from_millis(100);

/// What everybody may know of the replica.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    state: AtomicU8,
    sent: AtomicU64,
    acked: AtomicU64,
    losses: AtomicU64,
    /// Disagreements of a replica on another machine that a repetition here did not confirm.
    alone: AtomicU64,
    /// The replica's memory limit.
    memory_bytes: AtomicU64,
    counted: Mutex<Counted>,
}

/// What `stats integrity` shows of the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    state: State,
    sent: u64,
    acked: u64,
    losses: u64,
    alone: u64,
    memory_bytes: u64,
    counted: Counted,
}

/// How it is with the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// There is to be none.
    #[default]
    None,
    /// It has everything.
    Connected,
    /// There is none, and there should be.
    Lost,
    /// It is being brought up to date.
    Resynchronising,
}

impl State {
    const ALL: [State; 4] = [State::None, State::Connected, State::Lost, State::Resynchronising];

    fn word(self) -> &'static str {
        match self {
            State::None => "none",
            State::Connected => "connected",
            State::Lost => "lost",
            State::Resynchronising => "resynchronising",
        }
    }
}

impl Standing {
    fn set(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Relaxed)) % State::ALL.len()]
    }

    pub(crate) fn report(&self) -> Report {
        let (acked, sent) = (self.acked.load(Relaxed), self.sent.load(Relaxed));
        Report {
            state: self.state(),
            sent,
            acked,
            losses: self.losses.load(Relaxed),
            alone: self.alone.load(Relaxed),
            memory_bytes: self.memory_bytes.load(Relaxed),
            counted: *locked(&self.counted),
        }
    }
}

impl Report {
    /// Calls `put` with each statistic.
    pub(crate) fn each(&self, put: &mut dyn FnMut(&str, fmt::Arguments<'_>)) {
        put("replica", format_args!("{}", self.state.word()));
        if self.state == State::None {
            return;
        }
        put("replica_acked", format_args!("{}", self.acked));
        put("replica_lag", format_args!("{}", self.sent.saturating_sub(self.acked)));
        put("replica_losses", format_args!("{}", self.losses));
        let Counted { repeated, overtaken, unordered, unknown, loaded, evicted, items, damaged, .. } =
            self.counted;
        put("replica_repeated", format_args!("{repeated}"));
        put("replica_overtaken", format_args!("{overtaken}"));
        put("replica_unordered", format_args!("{unordered}"));
        put("replica_unknown", format_args!("{unknown}"));
        put("replica_alone", format_args!("{}", self.alone));
        put("replica_limit_maxbytes", format_args!("{}", self.memory_bytes));
        put("replica_items", format_args!("{items}"));
        put("replica_loaded", format_args!("{loaded}"));
        put("replica_evicted", format_args!("{evicted}"));
        put("replica_damaged", format_args!("{damaged}"));
    }
}

/// Sends records to the replica.
pub(crate) struct Shipper {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    has_own_core: bool,
    caller: Caller,
    line: Option<Line>,
    crew: Crew,
}

/// What records are handled with, whether there is a replica or not.
struct Crew {
    desk: Desk,
    streams: Vec<Stream>,
}

/// One worker's records.
struct Stream {
    worker: usize,
    tally: Tally,
    inspector: Inspector,
    intake: Intake,
    confirmer: Confirmer,
    /// What was taken out of the ring and is not confirmed, in order.
    flying: VecDeque<Flying>,
    /// The last record that was confirmed: what it points to can go.
    done: Option<Trace>,
    packer: Packer,
    /// What the replica has said and was not taken yet.
    heard: VecDeque<Progress>,
    /// Disagreements the replica has told.
    told: u64,
}

/// The end of a worker's ring.
struct Intake {
    reader: Reader,
    /// Records to be used again; [`BATCH`] at most.
    spare: Vec<Record>,
    /// Lines taken from the ring, and how many there must be before a fence is passed.
    lines: u64,
    fence_at: u64,
    /// How often lines of the ring were lost.
    gaps: u64,
}

/// Taken out of the ring, and not confirmed.
enum Flying {
    /// A record, and how many bytes of the window it takes.
    Record(Record, usize),
    /// Lines that were none any more.
    Lost(Seq, Seq),
}

/// A connection to the replica.
struct Line {
    connected: Connected,
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

impl Shipper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sources: Vec<Source>,
        bell: Arc<Bell>,
        store: store::Worker,
        has_own_core: bool,
        caller: Caller,
    ) -> Self {
        let desk = Desk::new(Arc::clone(&shared), store);
        let streams = sources.into_iter().map(|source| Stream::new(&shared, source)).collect();
        shared.replica.set(State::Lost);
        Shipper { shared, bell, has_own_core, caller, line: None, crew: Crew { desk, streams } }
    }

    /// Ships until the workers have stopped and nothing is left.
    pub(crate) fn run(mut self) {
        self.caller.want(None);
        let (mut naps, mut is_known_lost) = (0, false);
        loop {
            let is_last = self.shared.stop() != Stop::Not && self.shared.workers_running.load(SeqCst) == 0;
            if self.line.is_none() {
                self.connect(&mut is_known_lost);
            }
            self.crew.desk.core = Core(sys::current_cpu());
            let is_paused = self.shared.validators_paused.load(Relaxed) && self.shared.stop() == Stop::Not;
            let has_moved = !is_paused && self.turn();
            let is_waiting = self.crew.streams.iter().any(|stream| !stream.flying.is_empty());
            if has_moved {
                naps = 0;
            } else if is_last && !is_waiting {
                return;
            } else {
                naps += 1;
                self.sleep(naps, is_paused);
            }
        }
    }

    /// One turn; whether anything was done.
    fn turn(&mut self) -> bool {
        let Some(line) = &mut self.line else { return self.crew.validate() };
        match line.turn(&self.shared, &mut self.crew) {
            Ok(has_moved) => has_moved,
            Err(lost) => {
                self.lose(lost);
                true
            }
        }
    }

    /// Takes the connection that was asked for, if it is there.
    fn connect(&mut self, is_known_lost: &mut bool) {
        match self.caller.result() {
            None => {}
            Some(Ok(connected)) => {
                *is_known_lost = false;
                let which = connected.process_id().map_or(String::new(), |id| format!(" pid={id}"));
                self.shared.replica.memory_bytes.store(connected.welcome.memory_bytes, Relaxed);
                *locked(&self.shared.replica.counted) = Counted::default();
                if self.shared.replica.losses.load(Relaxed) > 0 {
                    tell(format_args!("event=replica_found{which}; it is brought up to date"));
                }
                self.shared.replica.set(State::Resynchronising);
                self.line = Some(Line::new(connected));
            }
            Some(Err(_)) if *is_known_lost => {}
            Some(Err(why)) => {
                *is_known_lost = true;
                tell(format_args!("event=replica_missing; {why}; trying again, validating here meanwhile"));
            }
        }
    }

    /// The connection is gone: everything is validated here until there is another one.
    #[cold]
    fn lose(&mut self, why: Lost) {
        let Some(line) = self.line.take() else { return };
        let standing = &self.shared.replica;
        standing.set(State::Lost);
        standing.losses.fetch_add(1, Relaxed);
        tell(format_args!("event=replica_lost; {why}; validating here meanwhile"));
        self.caller.want(Some(line.connected.age()));
        for stream in &mut self.crew.streams {
            stream.packer = Packer::new();
            stream.heard.clear();
            stream.told = 0;
            stream.intake.fence_at = 0;
        }
        let flying = self.crew.streams.iter().map(|stream| stream.flying.len() as u64).sum::<u64>();
        standing.sent.fetch_sub(flying.min(standing.sent.load(Relaxed)), Relaxed);
    }

    fn sleep(&mut self, naps: u32, is_paused: bool) {
        let is_waiting = self.crew.streams.iter().any(|stream| !stream.flying.is_empty());
        if let Some(line) = self.line.as_ref().filter(|line| is_waiting || line.is_busy())
            && !is_paused
        {
            line.connected.link.wait(NAP);
            return;
        }
        let began = Instant::now();
        while self.has_own_core && naps == 1 && began.elapsed() < SPIN {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if self.crew.has_records() {
                return;
            }
        }
        let (how, time) =
            if naps < NAPS_MAX && !is_paused { (Sleep::Nap, NAP) } else { (Sleep::Deep, DEEP_SLEEP) };
        let crew = &mut self.crew;
        self.bell.sleep(how, time, || !is_paused && crew.has_records());
    }
}

impl Intake {
    /// What is taken out of the ring next, if there is anything.
    fn next(&mut self) -> Option<Flying> {
        let mut record = self.spare.pop().unwrap_or_default();
        match self.reader.next(&mut record) {
            Next::Record => {
                self.lines += lines_of(&record);
                Some(Flying::Record(record, 0))
            }
            Next::Corrupt { first, last } => {
                self.gaps += 1;
                // How many they were is not known, and the fence is not complete anyway.
                self.lines = self.lines.max(self.fence_at);
                self.spare.push(record);
                Some(Flying::Lost(first, last))
            }
            Next::Empty => {
                self.spare.push(record);
                None
            }
        }
    }

    fn recycle(&mut self, record: Record) {
        if self.spare.len() < BATCH {
            self.spare.push(record);
        }
    }
}

/// Lines of the ring that a record took.
fn lines_of(record: &Record) -> u64 {
    1 + record.payload().len().div_ceil(64) as u64
}

impl Stream {
    fn new(shared: &Shared, source: Source) -> Self {
        let Source { worker, replayer, inspector } = source;
        let (reader, confirmer) = replayer.into_parts();
        Stream {
            worker,
            tally: shared.validations[worker].tally.clone(),
            inspector,
            intake: Intake { reader, spare: Vec::new(), lines: 0, fence_at: 0, gaps: 0 },
            confirmer,
            flying: VecDeque::new(),
            done: None,
            packer: Packer::new(),
            heard: VecDeque::new(),
            told: 0,
        }
    }

    /// Whether the last disagreement is settled as far as the worker is concerned.
    fn is_settled(&mut self, shared: &Shared) -> bool {
        if self.confirmer.is_open() && self.confirmer.refuse().is_err() {
            // The worker has not looked at the earlier refusals yet.
            shared.posts[self.worker].wake();
            return false;
        }
        true
    }
}

impl Crew {
    fn has_records(&mut self) -> bool {
        self.streams.iter_mut().any(|stream| stream.intake.reader.waiting_lines() > 0)
    }

    /// Validates records here; whether there were any.
    fn validate(&mut self) -> bool {
        let mut has_moved = false;
        for stream in &mut self.streams {
            let mut count = 0;
            while count < BATCH && stream.is_settled(&self.desk.shared) {
                if stream.flying.is_empty() {
                    stream.flying.extend(stream.intake.next());
                }
                if !self.desk.confirm_first(stream) {
                    break;
                }
                count += 1;
            }
            has_moved |= count > 0;
            stream.let_go();
            self.desk.after(stream);
        }
        has_moved
    }
}

impl Stream {
    /// Lets go of what nobody will ask about any more.
    fn let_go(&mut self) {
        if let Some(mut look) = self.inspector.begin() {
            if let Some(done) = self.done.take() {
                look.take(&done);
            }
            let is_drained = self.flying.is_empty() && self.intake.reader.waiting_lines() == 0;
            look.end(is_drained);
        }
    }

    fn recycle(&mut self, record: Record) {
        self.done = Trace::read(&record).map(|(trace, ..)| trace).or(self.done);
        self.intake.recycle(record);
    }
}

impl Desk {
    /// Validates here what was taken out of the ring first; whether there was anything.
    fn confirm_first(&mut self, stream: &mut Stream) -> bool {
        match stream.flying.pop_front() {
            None => return false,
            Some(Flying::Lost(first, last)) => self.lose_lines(stream, first, last),
            Some(Flying::Record(record, _)) => {
                self.confirm_here(stream, &record);
                stream.recycle(record);
            }
        }
        true
    }

    /// Lines of the ring were damaged.
    fn lose_lines(&mut self, stream: &mut Stream, first: Seq, last: Seq) {
        stream.tally.count_lost(last - first + 1);
        let site = Site { second_core: self.core, ..Site::default() };
        let mismatch = Mismatch { kind: Kind::Record, expected: Digest(0), found: Digest(0), bit: None };
        let disagreement = Disagreement::new(site, mismatch, first..=last);
        stream.confirmer.hold(disagreement.seqs());
        self.settle(stream, &Record::default(), disagreement);
    }

    /// Validates a record here, and settles what comes of it.
    fn confirm_here(&mut self, stream: &mut Stream, record: &Record) {
        let (seq, stratum) = (record.seq(), record.stratum());
        let found = match stream.inspector.begin() {
            Some(mut look) => self.confirm(&mut look, record, stream.worker),
            None => Ok(Finding::Abandoned),
        };
        match found {
            Ok(Finding::Agrees) => {
                stream.tally.count_validated(stratum);
                stream.confirmer.confirm(seq);
                self.note_latency_of(record, stream.worker);
            }
            Ok(Finding::Abandoned) => {
                stream.tally.count_abandoned(stratum);
                stream.confirmer.hold(seq..=seq);
                // If that is too many, it is tried again before anything else is done with the stream.
                let _ = stream.confirmer.refuse();
            }
            Err(mismatch) => {
                stream.tally.count_disagreement(stratum);
                let site = Site { stratum, first_core: record.core(), second_core: self.core };
                stream.confirmer.hold(seq..=seq);
                self.settle(stream, record, Disagreement::new(site, mismatch, seq..=seq));
            }
        }
    }

    /// Settles a disagreement that holds the watermark.
    #[cold]
    fn settle(&mut self, stream: &mut Stream, record: &Record, disagreement: Disagreement) {
        let keeps = match stream.inspector.begin() {
            Some(look) => self.disagree(&look, record, disagreement, stream.worker),
            None => false,
        };
        if keeps {
            stream.confirmer.release();
        } else {
            // As above.
            let _ = stream.confirmer.refuse();
        }
    }

    /// Notes how long it took until a record was confirmed.
    fn note_latency_of(&self, record: &Record, worker: usize) {
        if let Some((Trace { at_ns, .. }, ..)) = Trace::read(record) {
            self.note_latency_since(at_ns, &self.shared.validations[worker]);
        }
    }

    /// What everybody may see after some records of a stream.
    fn after(&self, stream: &mut Stream) {
        let validation = &self.shared.validations[stream.worker];
        validation.validator_core.store(self.core.0.into(), Relaxed);
        validation.waiting_lines.store(stream.intake.reader.waiting_lines(), Relaxed);
        self.wake_worker(stream.worker, stream.confirmer.confirmed());
    }
}

impl Line {
    fn new(connected: Connected) -> Self {
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
            walked: now.checked_sub(WALK_REST).unwrap_or(now),
            gaps: 0,
            asks: VecDeque::new(),
            pings: 0,
            pinged: now,
            heard: now,
            is_complete: false,
        }
    }

    /// Whether there is something to do that does not come from outside.
    fn is_busy(&self) -> bool {
        let has_more = self.walk.is_some() || self.fence.is_some() || self.fences_due > 0;
        has_more || self.connected.link.queued() > 0
    }

    /// Takes what the replica says, and sends what there is; whether anything was done.
    fn turn(&mut self, shared: &Shared, crew: &mut Crew) -> Result<bool, Lost> {
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
                let Missed { stream, cas, vanished, key } = missed;
                if usize::from(stream) >= crew.streams.len() {
                    return Err(BadFrame::Content);
                }
                // Only here it is known whether it went by eviction.
                if !shared.store.has_vanished_since(&key, vanished) {
                    let mismatch = Mismatch::new(Kind::Lost, Digest(cas), Digest(0));
                    let hash = shared.store.number_of(&key);
                    crew.desk.react(mismatch, usize::from(stream), hash);
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
            while let Some(Flying::Record(record, _)) = stream.flying.front()
                && record.seq() <= ack.confirmed
            {
                let Some(Flying::Record(record, bytes)) = stream.flying.pop_front() else { break };
                self.flying_bytes -= bytes.min(self.flying_bytes);
                desk.shared.replica.acked.fetch_add(1, Relaxed);
                if unknown.last() == Some(&record.seq()) {
                    unknown.pop();
                    desk.confirm_here(stream, &record);
                } else {
                    stream.tally.count_validated(record.stratum());
                    stream.confirmer.confirm(record.seq());
                    desk.note_latency_of(&record, stream.worker);
                }
                stream.recycle(record);
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
        while let Some(Flying::Record(record, _)) = stream.flying.front()
            && record.seq() <= disagreement.seq_last
        {
            let Some(Flying::Record(record, bytes)) = stream.flying.pop_front() else { break };
            self.flying_bytes -= bytes.min(self.flying_bytes);
            desk.shared.replica.acked.fetch_add(1, Relaxed);
            if disagreement.kind == Kind::Record {
                // The record was damaged on its way to the replica; here it is whole.
                desk.confirm_here(stream, &record);
            } else {
                stream.done = Trace::read(&record).map(|(trace, ..)| trace).or(stream.done);
                first = first.or(Some(record));
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
        let again = stream.inspector.begin().map(|look| desk.repeat(&look, &record).map(drop));
        let is_here = disagreement.second_core != super::service::ELSEWHERE;
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
                Flying::Record(record, _) => {
                    let bytes = self.pack(&look, packer, *worker, &record);
                    self.flying_bytes += bytes;
                    Flying::Record(record, bytes)
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
        if self.walk.is_none() && self.wants_walk && self.walked.elapsed() >= WALK_REST {
            self.wants_walk = false;
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

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
fn tell(text: fmt::Arguments<'_>) {
    let line = format!("veracache: integrity: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
