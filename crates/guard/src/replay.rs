//! Repeating executions from their records, and comparing.

use crate::disagreement::{Disagreement, Kind, Mismatch, Site, compare};
use crate::operator::{Core, Digest, Recorded, Seq, Stratum};
use crate::record::Record;
use crate::ring::{Next, Reader};
use crate::side::Side;
use crate::tally::Tally;
use crate::watermark::{Confirmer, TooManyRefusals};

/// An execution that was repeated from a record.
pub struct Replayed<'r, O: Recorded> {
    /// What was computed from.
    pub input: O::Input<'r>,
    /// The environment of the first execution.
    pub env: O::Env,
    /// What the second execution came to.
    pub outcome: O::Outcome<'r>,
    expected: Digest,
    found: Digest,
}

impl<O: Recorded> Replayed<'_, O> {
    /// Whether both executions came to the same.
    ///
    /// # Errors
    ///
    /// When they did not.
    #[inline]
    pub fn agrees(&self) -> Result<(), Mismatch> {
        compare(Kind::Outcome, self.expected, self.found)
    }

    /// What the second execution came to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.found
    }
}

/// Repeats a recorded execution with the routines of side `S`, usually [`Diverse`](crate::Diverse).
///
/// # Errors
///
/// When the operator can't make sense of the record.
#[inline]
pub fn replay<'r, O: Recorded, S: Side>(
    operator: &'r O,
    record: &'r Record,
) -> Result<Replayed<'r, O>, Mismatch> {
    let Some((input, env)) = operator.restore(record) else {
        return Err(Mismatch { kind: Kind::Record, expected: record.digest, found: Digest(0), bit: None });
    };
    let outcome = S::enter(operator, &input, &env);
    let found = operator.digest::<S>(&outcome);
    Ok(Replayed { input, env, outcome, expected: record.digest, found })
}

/// Takes records out of a ring, has each repeated, and moves the watermark.
///
/// Each disagreement stops it until [`release`](Replayer::release) or [`refuse`](Replayer::refuse) has been called, so
/// that none can be overlooked.
#[derive(Debug)]
pub struct Replayer {
    reader: Reader,
    record: Record,
    confirmer: Confirmer,
}

/// What a [`Replayer`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Nothing waits in the ring.
    Idle,
    /// An execution is confirmed.
    Agrees {
        /// Its class, to tell what the second execution cost.
        stratum: Stratum,
        /// Its number.
        seq: Seq,
    },
    /// An execution is not confirmed, and the replayer waits for it to be settled.
    Disagrees(Disagreement),
    /// The last disagreement is still open: nothing was done.
    Open,
}

impl Replayer {
    /// For the records of one ring.
    #[must_use]
    pub fn new(reader: Reader, confirmer: Confirmer) -> Self {
        Replayer { reader, record: Record::with_room(), confirmer }
    }

    /// Takes the next record and has `confirm` say whether it is right: with [`replay`], and whatever else there is to check
    /// in the record (an item's checksum, the reply). `core` is where that happens.
    ///
    /// What it comes to is counted in `tally`. Never allocates.
    pub fn step(
        &mut self,
        core: Core,
        tally: &Tally,
        confirm: impl FnOnce(&Record) -> Result<(), Mismatch>,
    ) -> Step {
        if self.confirmer.is_open() {
            return Step::Open;
        }
        match self.reader.next(&mut self.record) {
            Next::Empty => Step::Idle,
            Next::Corrupt { first, last } => {
                let site = Site { second_core: core, ..Site::default() };
                let mismatch =
                    Mismatch { kind: Kind::Record, expected: Digest(0), found: Digest(0), bit: None };
                tally.count_lost(last - first + 1);
                self.stop(Disagreement::new(site, mismatch, first..=last))
            }
            Next::Record => {
                let Record { seq, stratum, core: first_core, .. } = self.record;
                match confirm(&self.record) {
                    Ok(()) => {
                        tally.count_validated(stratum);
                        self.confirmer.confirm(seq);
                        Step::Agrees { stratum, seq }
                    }
                    Err(mismatch) => {
                        tally.count_disagreement(stratum);
                        let site = Site { stratum, first_core, second_core: core };
                        self.stop(Disagreement::new(site, mismatch, seq..=seq))
                    }
                }
            }
        }
    }

    /// The record of the open disagreement, or the last one: the evidence.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Settles the open disagreement: what was executed is right, or nobody waits for it.
    pub fn release(&mut self) {
        self.confirmer.release();
    }

    /// Settles the open disagreement: who holds a reply for it must not let it out.
    ///
    /// # Errors
    ///
    /// When the holder has too many refusals to look at; the disagreement stays open.
    pub fn refuse(&mut self) -> Result<(), TooManyRefusals> {
        self.confirmer.refuse()
    }

    /// Gives up the oldest record without repeating it, because the ring is too full: counted, and refused to whoever
    /// waits for it. Returns whether there was one and it could be given up.
    pub fn abandon(&mut self, tally: &Tally) -> bool {
        if self.confirmer.is_open() {
            return false;
        }
        let seqs = match self.reader.next(&mut self.record) {
            Next::Empty => return false,
            Next::Record => {
                tally.count_abandoned(self.record.stratum);
                self.record.seq..=self.record.seq
            }
            Next::Corrupt { first, last } => {
                tally.count_lost(last - first + 1);
                first..=last
            }
        };
        self.confirmer.hold(seqs);
        self.confirmer.refuse().is_ok()
    }

    /// How many lines wait in the ring, and how many it has.
    #[must_use]
    pub fn load(&mut self) -> (u64, u64) {
        (self.reader.waiting_lines(), self.reader.capacity_lines())
    }

    /// Up to where the records are confirmed.
    #[must_use]
    pub fn confirmed(&self) -> Seq {
        self.confirmer.confirmed()
    }

    fn stop(&mut self, disagreement: Disagreement) -> Step {
        self.confirmer.hold(disagreement.seqs());
        Step::Disagrees(disagreement)
    }
}
