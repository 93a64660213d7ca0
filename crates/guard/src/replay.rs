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

/// What was found of a record, unless it was a disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The execution is right.
    Agrees,
    /// What it was computed from is gone.
    Abandoned,
}

/// What a [`Replayer`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Nothing waits in the ring.
    Idle,
    /// An execution can't be repeated any more, and the replayer waits for that to be settled.
    Abandoned {
        /// Its number.
        seq: Seq,
    },
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

    /// The two ends it holds, for somebody who confirms in another way.
    #[must_use]
    pub fn into_parts(self) -> (Reader, Confirmer) {
        (self.reader, self.confirmer)
    }

    /// Takes the next record and has `confirm` say whether it is right: with [`replay`], and whatever else there is to check
    /// in the record (an item's checksum, the reply). `core` is where that happens.
    ///
    /// What it comes to is counted in `tally`. Never allocates.
    pub fn step(
        &mut self,
        core: Core,
        tally: &Tally,
        confirm: impl FnOnce(&Record) -> Result<Finding, Mismatch>,
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
                    Ok(Finding::Agrees) => {
                        tally.count_validated(stratum);
                        self.confirmer.confirm(seq);
                        Step::Agrees { stratum, seq }
                    }
                    Ok(Finding::Abandoned) => {
                        tally.count_abandoned(stratum);
                        self.confirmer.hold(seq..=seq);
                        Step::Abandoned { seq }
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

    /// The record of the open disagreement, or the last one: the evidence. After one about a damaged record
    /// ([`Kind::Record`]) it may be another, or nonsense.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::counter::{Add, Counter, Limit};
    use crate::execute::{Repeated, direct, recorded};
    use crate::random::{Random, test_seed};
    use crate::replica::{Batch, BatchWriter, Replica, Turn};
    use crate::ring::{Append, Writer, flip_for_test, ring};
    use crate::side::Diverse;
    use crate::tally::Counted;
    use crate::watermark::{Holder, watermark};

    const SITE: Site = Site { stratum: Stratum(1), first_core: Core(4), second_core: Core(0) };

    fn parts(lines: usize) -> (Writer, Replayer, Holder, Tally) {
        let (writer, reader) = ring(lines);
        let (confirmer, holder) = watermark();
        (writer, Replayer::new(reader, confirmer), holder, Tally::new(2))
    }

    fn execute(counter: &Counter, writer: &mut Writer, value: u64) -> u64 {
        let add = Add { value, delta: 1, reason: b"tick" };
        let (outcome, append) = recorded(counter, &add, &Limit(u64::MAX), SITE, writer);
        assert_ne!(append, Append::Dropped);
        outcome
    }

    fn confirm(counter: &Counter, record: &Record) -> Result<Finding, Mismatch> {
        let again = replay::<_, Diverse>(counter, record)?;
        assert_eq!(again.input.reason, b"tick");
        assert_eq!(again.env, Limit(u64::MAX));
        again.agrees().map(|()| Finding::Agrees)
    }

    fn seen(holder: &mut Holder) -> (Seq, Vec<Seq>) {
        let mut refused = Vec::new();
        let confirmed = holder.poll(|seqs| refused.extend(seqs));
        (confirmed, refused)
    }

    /// Five ticks, faults on both sides; the disagreements found, as `seq bit`, and what the holder sees in the end.
    fn check(primary: &[u64], diverse: &[u64], found: &[(Seq, Option<u64>)]) {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        let (worker, validator) = (Counter::with_faults(primary, &[]), Counter::with_faults(&[], diverse));
        for value in 0..5 {
            execute(&worker, &mut writer, value);
        }
        assert_eq!(
            replayer.step(Core(7), &tally, |_| Ok(Finding::Agrees)),
            Step::Idle,
            "nothing is committed"
        );
        writer.commit();
        let mut disagreements = Vec::new();
        loop {
            match replayer.step(Core(7), &tally, |record| confirm(&validator, record)) {
                Step::Idle => break,
                Step::Agrees { stratum, seq } => {
                    assert_eq!((stratum, seq), (SITE.stratum, replayer.confirmed()));
                }
                Step::Disagrees(told) => {
                    assert_eq!((told.stratum, told.kind), (SITE.stratum, Kind::Outcome));
                    assert_eq!((told.first_core, told.second_core), (Core(4), Core(7)));
                    assert_eq!((told.seq_first, told.seq_last), (replayer.record().seq(), told.seq_first));
                    assert_eq!(replayer.confirmed(), told.seq_first - 1, "nothing wrong is let out");
                    disagreements.push((told.seq_first, told.bit));
                    assert_eq!(replayer.step(Core(7), &tally, |_| Ok(Finding::Agrees)), Step::Open);
                    assert_eq!(replayer.refuse(), Ok(()));
                }
                Step::Abandoned { .. } | Step::Open => panic!("every disagreement was settled"),
            }
        }
        assert_eq!(disagreements, found);
        assert_eq!(seen(&mut holder), (5, found.iter().map(|(seq, _)| *seq).collect()));
        let count = found.len() as u64;
        let counted = Counted { validated: 5 - count, disagreements: count, ..Counted::default() };
        assert_eq!(tally.counted(SITE.stratum), counted);
    }

    #[test]
    fn a_fault_of_either_core_is_found_and_no_fault_is_silent() {
        check(&[], &[], &[]);
        check(&[0, 0, 16], &[], &[(3, Some(4))]);
        check(&[], &[0, 3], &[(2, None)]);
        check(&[1, 0, 0, 0, 1 << 63], &[], &[(1, Some(0)), (5, Some(63))]);
        check(&[1, 1, 1, 1, 1], &[], &[1, 2, 3, 4, 5].map(|seq| (seq, Some(0))));
        // Both wrong, differently.
        check(&[1], &[2], &[(1, None)]);
    }

    #[test]
    fn with_the_detector_off_the_same_fault_goes_out() {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        assert_eq!(execute(&Counter::with_faults(&[16], &[]), &mut writer, 0), 17);
        writer.commit();
        assert_eq!(
            replayer.step(Core(7), &tally, |_| Ok(Finding::Agrees)),
            Step::Agrees { stratum: SITE.stratum, seq: 1 }
        );
        assert_eq!(seen(&mut holder), (1, vec![]));
    }

    #[test]
    fn a_released_disagreement_is_not_refused() {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        execute(&Counter::default(), &mut writer, 0);
        writer.commit();
        let sick = Counter::with_faults(&[], &[1]);
        assert!(matches!(
            replayer.step(Core(7), &tally, |record| confirm(&sick, record)),
            Step::Disagrees(_)
        ));
        assert!(confirm(&sick, replayer.record()).is_ok(), "the evidence can be voted on");
        replayer.release();
        assert_eq!(seen(&mut holder), (1, vec![]));
    }

    #[test]
    fn a_damaged_record_blames_nobody_and_is_refused() {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        for value in 0..3 {
            execute(&Counter::default(), &mut writer, value);
        }
        flip_for_test(&writer, 2, 200);
        writer.commit();
        let healthy = Counter::default();
        let mut step = || replayer.step(Core(7), &tally, |record| confirm(&healthy, record));
        assert_eq!(step(), Step::Agrees { stratum: SITE.stratum, seq: 1 });
        let Step::Disagrees(told) = step() else { panic!("the damage is found") };
        assert_eq!((told.kind, told.seq_first, told.seq_last), (Kind::Record, 2, 2));
        assert_eq!(replayer.refuse(), Ok(()));
        assert!(matches!(
            replayer.step(Core(7), &tally, |record| confirm(&healthy, record)),
            Step::Agrees { seq: 3, .. }
        ));
        assert_eq!(seen(&mut holder), (3, vec![2]));
        assert_eq!(tally.lost(), 1);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_a_disagreement() {
        let mut record = Record { words: [1, 2, 3, 4, 5], ..Record::default() };
        let counter = Counter::default();
        let told = replay::<_, Diverse>(&counter, &record).err().expect("word 3 is not 0");
        assert_eq!(told.kind, Kind::Record);
        record.words = [1, 2, 3, 0, 0];
        assert_eq!(replay::<_, Diverse>(&counter, &record).expect("it does now").digest(), Digest(3));
    }

    #[test]
    fn what_can_not_be_repeated_is_counted_and_never_confirmed() {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        execute(&Counter::default(), &mut writer, 0);
        writer.commit();
        let step = replayer.step(Core(7), &tally, |_| Ok(Finding::Abandoned));
        assert_eq!(step, Step::Abandoned { seq: 1 });
        assert_eq!(replayer.step(Core(7), &tally, |_| Ok(Finding::Agrees)), Step::Open);
        assert_eq!(seen(&mut holder), (0, vec![]));
        assert_eq!(replayer.refuse(), Ok(()));
        assert_eq!(seen(&mut holder), (1, vec![1]));
        assert_eq!(tally.counted(SITE.stratum), Counted { abandoned: 1, ..Counted::default() });
    }

    #[test]
    fn what_is_abandoned_is_counted_and_never_confirmed() {
        let (mut writer, mut replayer, mut holder, tally) = parts(64);
        assert!(!replayer.abandon(&tally));
        for value in 0..20 {
            execute(&Counter::default(), &mut writer, value);
        }
        writer.commit();
        assert_eq!(replayer.load(), (40, 64));
        let abandoned = (0..20).take_while(|_| replayer.abandon(&tally)).count();
        assert_eq!(abandoned, 16, "the holder has room for so many refusals");
        assert_eq!(seen(&mut holder), (16, (1..=16).collect()));
        assert_eq!(replayer.refuse(), Ok(()));
        assert_eq!(seen(&mut holder), (17, vec![17]));
        assert_eq!(tally.counted(SITE.stratum).abandoned, 17);
    }

    #[test]
    fn all_ways_to_execute_agree_on_random_programs() {
        let mut random = Random::new(test_seed());
        let (mut writer, mut replayer, _holder, tally) = parts(16);
        let counter = Counter::default();
        let (mut replica, mut batch) = (Replica::new(1), BatchWriter::new(0));
        for seq in 1..=2000 {
            let shift = random.below(64) as u32;
            let (value, delta, limit) = (random.next() >> shift, random.next() >> shift, random.next());
            let add = Add { value, delta, reason: b"tick" };
            let expected = direct(&counter, &add, &Limit(limit));
            for runs in [2, 3, 5, 10] {
                let repeated =
                    Repeated::new(runs).expect("in range").run(&counter, &add, &Limit(limit), SITE);
                assert_eq!(repeated, crate::execute::Repeat::Agreed(expected));
            }
            let recorded = recorded(&counter, &add, &Limit(limit), SITE, &mut writer);
            assert_eq!(recorded, (expected, Append::Recorded(seq)));
            writer.commit();
            let again = |record: &Record| replay::<_, Diverse>(&counter, record)?.agrees();
            let step = replayer.step(Core(7), &tally, |record| again(record).map(|()| Finding::Agrees));
            assert_eq!(step, Step::Agrees { stratum: SITE.stratum, seq });
            batch.clear();
            assert!(batch.push(replayer.record()));
            let (batch, _) = Batch::decode(batch.bytes()).expect("a batch").expect("all of it");
            let confirm = |record: &Record| again(record).map(|()| Turn::Agrees);
            let ack = replica.apply(&batch, Core(9), &tally, confirm).expect("no gap");
            assert_eq!((ack.confirmed, ack.disagreement), (seq, None));
        }
    }
}
