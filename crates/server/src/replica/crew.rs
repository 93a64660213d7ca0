//! The records that a server's replica is to confirm, on their way from the workers' rings to the watermarks; and how they
//! are validated here, where the replica says nothing.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use guard::{
    Confirmer, Digest, Disagreement, Finding, Kind, Mismatch, Next, Reader, Record, Seq, Site, Tally,
};
use store::{Inspector, Trace};

use super::parcel::Packer;
use super::wire::Progress;
use crate::shared::Shared;
use crate::validator::{Desk, Source};

/// Records taken from one ring before the next has its turn.
pub(super) const BATCH: usize = 128;

/// What records are handled with, whether there is a replica or not.
pub(super) struct Crew {
    pub(super) desk: Desk,
    pub(super) streams: Vec<Stream>,
}

/// One worker's records.
pub(super) struct Stream {
    pub(super) worker: usize,
    pub(super) tally: Tally,
    pub(super) inspector: Inspector,
    pub(super) intake: Intake,
    pub(super) confirmer: Confirmer,
    /// What was taken out of the ring and is not confirmed, in order.
    pub(super) flying: VecDeque<Flying>,
    /// The last record that was confirmed: what it points to can go.
    pub(super) done: Option<Trace>,
    pub(super) packer: Packer,
    /// What the replica has said and was not taken yet.
    pub(super) heard: VecDeque<Progress>,
    /// Disagreements the replica has told.
    pub(super) told: u64,
}

/// The end of a worker's ring.
pub(super) struct Intake {
    pub(super) reader: Reader,
    /// Records to be used again; [`BATCH`] at most.
    spare: Vec<Record>,
    /// Lines taken from the ring, and how many there must be before a fence is passed.
    pub(super) lines: u64,
    pub(super) fence_at: u64,
    /// How often lines of the ring were lost.
    pub(super) gaps: u64,
}

/// Taken out of the ring, and not confirmed.
pub(super) enum Flying {
    Record(Flight),
    /// Lines that were none any more.
    Lost(Seq, Seq),
}

/// A record that was taken out of the ring, and is not confirmed.
pub(super) struct Flight {
    pub(super) record: Record,
    /// How many bytes of the window it takes.
    pub(super) bytes: usize,
    /// Whether it agreed when it was validated here, because what it points to was needed.
    is_checked: bool,
}

impl Intake {
    /// What is taken out of the ring next, if there is anything.
    pub(super) fn next(&mut self) -> Option<Flying> {
        let mut record = self.spare.pop().unwrap_or_default();
        match self.reader.next(&mut record) {
            Next::Record => {
                self.lines += lines_of(&record);
                Some(Flying::Record(Flight { record, bytes: 0, is_checked: false }))
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

    /// The replica that something was sent to is gone.
    pub(super) fn forget_replica(&mut self) {
        self.packer = Packer::new();
        self.heard.clear();
        self.told = 0;
        self.intake.fence_at = 0;
    }

    /// Whether the last disagreement is settled as far as the worker is concerned.
    pub(super) fn is_settled(&mut self, shared: &Shared) -> bool {
        if self.confirmer.is_open() && self.confirmer.refuse().is_err() {
            // The worker has not looked at the earlier refusals yet.
            shared.posts[self.worker].wake();
            return false;
        }
        true
    }
}

impl Crew {
    pub(super) fn new(desk: Desk, sources: Vec<Source>) -> Self {
        let shared = &desk.shared;
        let streams = sources.into_iter().map(|source| Stream::new(shared, source)).collect();
        Crew { desk, streams }
    }

    /// Whether records were taken that are not confirmed.
    pub(super) fn is_waiting(&self) -> bool {
        self.streams.iter().any(|stream| !stream.flying.is_empty())
    }

    pub(super) fn has_records(&mut self) -> bool {
        self.streams.iter_mut().any(|stream| stream.intake.reader.waiting_lines() > 0)
    }

    /// Validates here what was sent and is not confirmed, so that what it points to can be used again.
    pub(super) fn relieve(&mut self) {
        for Stream { inspector, flying, intake, done, .. } in &mut self.streams {
            let Some(mut look) = inspector.begin() else { continue };
            if let Some(done) = done.take() {
                look.take(&done);
            }
            let mut is_over = true;
            for flying in flying.iter_mut() {
                let Flying::Record(Flight { record, is_checked, .. }) = flying else { continue };
                let Some((trace, ..)) = Trace::read(record).filter(|(trace, ..)| look.has(trace)) else {
                    continue;
                };
                if !*is_checked && self.desk.repeat(&look, record).is_err() {
                    // The evidence is kept until the replica has said what it thinks.
                    is_over = false;
                    break;
                }
                *is_checked = true;
                look.take(&trace);
            }
            look.end(is_over && intake.reader.waiting_lines() == 0);
        }
    }

    /// Validates records here; whether there were any.
    pub(super) fn validate(&mut self) -> bool {
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

    /// What is not confirmed and comes first, if it is a record up to this one.
    pub(super) fn take_up_to(&mut self, seq: Seq) -> Option<Flight> {
        let is_due =
            |flying: &mut Flying| matches!(flying, Flying::Record(flight) if flight.record.seq() <= seq);
        match self.flying.pop_front_if(is_due)? {
            Flying::Record(flight) => Some(flight),
            Flying::Lost(..) => None,
        }
    }

    pub(super) fn recycle(&mut self, record: Record) {
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
            Some(Flying::Record(flight)) => {
                self.confirm_here(stream, &flight);
                stream.recycle(flight.record);
            }
        }
        true
    }

    /// Lines of the ring were damaged.
    pub(super) fn lose_lines(&mut self, stream: &mut Stream, first: Seq, last: Seq) {
        stream.tally.count_lost(last - first + 1);
        let site = Site { second_core: self.core, ..Site::default() };
        let mismatch = Mismatch { kind: Kind::Record, expected: Digest(0), found: Digest(0), bit: None };
        let disagreement = Disagreement::new(site, mismatch, first..=last);
        stream.confirmer.hold(disagreement.seqs());
        self.settle(stream, &Record::default(), disagreement);
    }

    /// Validates a record here, if that was not done before, and settles what comes of it.
    pub(super) fn confirm_here(&mut self, stream: &mut Stream, flight: &Flight) {
        let Flight { record, is_checked, .. } = flight;
        let (seq, stratum) = (record.seq(), record.stratum());
        let found = match stream.inspector.begin() {
            _ if *is_checked => Ok(Finding::Agrees),
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
    pub(super) fn settle(&mut self, stream: &mut Stream, record: &Record, disagreement: Disagreement) {
        let trace = Trace::read(record).map(|(trace, ..)| trace);
        let look = stream.inspector.begin().filter(|look| trace.is_none_or(|trace| look.has(&trace)));
        let keeps = match (look, trace) {
            (Some(look), _) => self.disagree(&look, record, disagreement, stream.worker),
            // What it was about is gone, so nobody can be asked.
            (None, Some(trace)) => {
                let Disagreement { kind, expected, found, bit, .. } = disagreement;
                self.react(Mismatch { kind, expected, found, bit }, stream.worker, trace.hash());
                false
            }
            (None, None) => false,
        };
        if keeps {
            stream.confirmer.release();
        } else {
            // As above.
            let _ = stream.confirmer.refuse();
        }
    }

    /// Notes how long it took until a record was confirmed.
    pub(super) fn note_latency_of(&self, record: &Record, worker: usize) {
        if let Some((Trace { at_ns, .. }, ..)) = Trace::read(record) {
            self.note_latency_since(at_ns, &self.shared.validations[worker]);
        }
    }

    /// What everybody may see after some records of a stream.
    pub(super) fn after(&self, stream: &mut Stream) {
        let validation = &self.shared.validations[stream.worker];
        validation.validator_core.store(self.core.0.into(), Relaxed);
        validation.waiting_lines.store(stream.intake.reader.waiting_lines(), Relaxed);
        self.wake_worker(stream.worker, stream.confirmer.confirmed());
    }
}
