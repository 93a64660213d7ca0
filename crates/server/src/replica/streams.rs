//! The replica's queues: one for each worker of the server, and the fences between them.
//!
//! Limit: what the server has sent and not seen acknowledged, which it bounds ([`super::wire::WINDOW_BYTES`]).

use std::collections::VecDeque;
use std::time::Duration;

use guard::{Core, Kind, Mismatch, Record, Replica, Tally, Turn};

use super::mirror::{Mirror, Patience};
use super::parcel::{Facts, Parcel};
use super::wire::{BadFrame, Progress};

/// A record waits so long for others, if none of them comes, before the server's word is taken. Fences usually say
/// sooner that nothing will come.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// All streams.
pub(crate) struct Streams {
    streams: Vec<Stream>,
    fences: VecDeque<Passed>,
    /// Parcels ever received.
    received: u64,
    /// The fence that was passed last, as far as was heard.
    heard: u64,
    /// When anything was done last, by the caller's clock.
    progressed: Duration,
    tally: Tally,
}

/// One worker's records.
#[derive(Default)]
struct Stream {
    /// None before the first parcel.
    replica: Option<Replica>,
    parcels: VecDeque<Queued>,
    /// Since when its first record waits for others.
    blocked: Option<Duration>,
}

struct Queued {
    parcel: Parcel,
    /// Which of all parcels it was.
    number: u64,
    /// The fence that was set up last when it came.
    opened: u64,
}

/// A fence that was passed at the server.
struct Passed {
    fence: u64,
    /// Parcels that were received before.
    received: u64,
    is_complete: bool,
}

/// A record whose turn it may be.
pub(crate) struct Next<'n> {
    pub(crate) record: &'n Record,
    pub(crate) facts: Option<Facts<'n>>,
    pub(crate) stream: u16,
    pub(crate) patience: Patience,
}

/// What is lent for a run.
pub(crate) struct Run<'r> {
    /// The caller's clock.
    pub(crate) now: Duration,
    /// Where it happens.
    pub(crate) core: Core,
    pub(crate) mirror: &'r mut Mirror,
    /// What follows from a record.
    pub(crate) confirm: &'r mut dyn FnMut(&mut Mirror, &Next<'_>) -> Result<Turn, Mismatch>,
    /// Is told how far each stream came.
    pub(crate) tell: &'r mut dyn FnMut(Progress),
}

impl Streams {
    pub(crate) fn new(count: u16, strata: usize) -> Self {
        Streams {
            streams: (0..count).map(|_| Stream::default()).collect(),
            fences: VecDeque::new(),
            received: 0,
            heard: 0,
            progressed: Duration::ZERO,
            tally: Tally::new(strata),
        }
    }

    /// Takes a parcel of a stream.
    pub(crate) fn receive(&mut self, stream: u16, parcel: Parcel, opened: u64) -> Result<(), BadFrame> {
        let queue = self.streams.get_mut(usize::from(stream)).ok_or(BadFrame::Content)?;
        let (first, _) = parcel.seqs();
        queue.replica.get_or_insert_with(|| Replica::new(first));
        self.received += 1;
        queue.parcels.push_back(Queued { parcel, number: self.received, opened });
        Ok(())
    }

    /// A fence was passed at the server.
    pub(crate) fn pass(&mut self, fence: u64, is_complete: bool) {
        self.heard = fence;
        self.fences.push_back(Passed { fence, received: self.received, is_complete });
    }

    /// Memory that waiting parcels hold.
    pub(crate) fn held_bytes(&self) -> usize {
        let parcels = self.streams.iter().flat_map(|stream| &stream.parcels);
        parcels.map(|queued| queued.parcel.held_bytes()).sum()
    }

    /// Does what can be done. How long until it should be tried again at the latest, if something waits.
    pub(crate) fn run(&mut self, run: &mut Run<'_>) -> Option<Duration> {
        loop {
            let mut has_moved = false;
            for stream in 0..self.streams.len() {
                has_moved |= self.advance(stream, Patience::Waits, run);
            }
            self.close_fences(run.mirror);
            if has_moved {
                self.progressed = run.now;
                continue;
            }
            // What came first can only wait for what came before it, which is nothing.
            let parcels = self.streams.iter().enumerate();
            let (stream, front) = parcels
                .filter_map(|(number, stream)| Some((number, stream.parcels.front()?)))
                .min_by_key(|(_, front)| front.number)?;
            let since = self.streams[stream].blocked.unwrap_or(run.now).max(self.progressed);
            let patience = if front.opened < self.heard {
                Patience::NothingComes
            } else if run.now >= since + WAIT_MAX {
                Patience::TimeIsUp
            } else {
                return Some(since + WAIT_MAX - run.now);
            };
            if !self.advance(stream, patience, run) {
                return Some(WAIT_MAX);
            }
            self.progressed = run.now;
        }
    }

    /// Goes on with one stream, its first record with this patience; whether anything was done.
    fn advance(&mut self, number: usize, mut patience: Patience, run: &mut Run<'_>) -> bool {
        let Stream { replica, parcels, blocked } = &mut self.streams[number];
        let Some(replica) = replica else { return false };
        let mut has_moved = false;
        while let Some(Queued { parcel, .. }) = parcels.front() {
            let mut unknown = Vec::new();
            let before = replica.next();
            let (mirror, confirm) = (&mut *run.mirror, &mut *run.confirm);
            let applied = replica.apply(&parcel.batch(), run.core, &self.tally, |record| {
                let facts = parcel.facts(record.seq());
                let patience = std::mem::replace(&mut patience, Patience::Waits);
                let turn = confirm(mirror, &Next { record, facts, stream: number as u16, patience })?;
                if turn == Turn::Unknown {
                    unknown.push(record.seq());
                }
                Ok(turn)
            });
            let ack = match applied {
                Ok(ack) => ack,
                Err(gap) => {
                    replica.skip_to(gap.found);
                    run.mirror.doubt();
                    continue;
                }
            };
            if ack.disagreement.is_some_and(|disagreement| disagreement.kind == Kind::Record) {
                run.mirror.doubt();
            }
            if replica.next() != before {
                (has_moved, *blocked) = (true, None);
                (run.tell)(Progress { stream: number as u16, ack, unknown });
            }
            if replica.next() > parcel.seqs().1 {
                parcels.pop_front();
            } else if ack.disagreement.is_none() {
                blocked.get_or_insert(run.now);
                break;
            }
        }
        has_moved
    }

    /// Closes the fences that nothing waits in front of any more.
    fn close_fences(&mut self, mirror: &mut Mirror) {
        let oldest = self.streams.iter().filter_map(|stream| Some(stream.parcels.front()?.number)).min();
        while let Some(passed) = self.fences.front() {
            if oldest.is_some_and(|oldest| oldest <= passed.received) {
                return;
            }
            mirror.close(passed.fence, passed.is_complete);
            self.fences.pop_front();
        }
    }
}
