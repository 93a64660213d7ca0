//! Confirming in another process: batches of records one way, acknowledgements the other.
//!
//! Nothing here moves bytes. The primary puts records into a [`BatchWriter`] and sends its bytes; the other side
//! takes them apart with [`Batch::decode`], has a [`Replica`] repeat what they say, and sends back the [`Ack`]; the primary
//! gives that to its [`Remote`], which moves the same watermark a local [`Replayer`](crate::Replayer) moves.
//!
//! A batch is a head of 32 bytes and records as they lie in a ring, all little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `vgb1` |
//! | 4 | bytes that follow the head |
//! | 8, 8 | first and last sequence number |
//! | 4 | number of records |
//! | 4 | check of the head |
//!
//! Every record carries the check its writer gave it, so that it covers the whole way.

use std::fmt;

use crate::disagreement::{Disagreement, Kind, Mismatch, Site};
use crate::operator::{Core, Digest, PAYLOAD_BYTES_MAX, Seq, Stratum};
use crate::record::{Check, Head, LINE_BYTES, Record, bytes_of, line_of};
use crate::tally::Tally;
use crate::watermark::{Confirmer, TooManyRefusals};

/// Bytes of a batch's head.
const BATCH_HEAD_BYTES: usize = 32;

/// The longest batch there can be. Longer claims are refused before anything is stored for them.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// The shortest limit for batches: one record of any size fits.
pub const BATCH_BYTES_MIN: usize = BATCH_HEAD_BYTES + LINE_BYTES + PAYLOAD_BYTES_MAX;

/// Bytes of an encoded acknowledgement.
pub const ACK_BYTES: usize = 72;

const BATCH_MAGIC: [u8; 4] = *b"vgb1";
const ACK_MAGIC: [u8; 4] = *b"vga1";

/// Collects records to be sent.
#[derive(Debug)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
    first: Seq,
    last: Seq,
    count: u32,
}

/// A batch that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'b> {
    first: Seq,
    last: Seq,
    count: u32,
    body: &'b [u8],
}

/// Bytes that are no batch or acknowledgement. Where the next one begins is not known: end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadBytes {
    /// They don't begin as they should.
    Magic,
    /// They claim to be longer than [`BATCH_BYTES_MAX`].
    Length,
    /// They are damaged.
    Check,
}

/// Records between the last one applied and the one that came are missing. Nothing of it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The number that should have come.
    pub expected: Seq,
    /// The number that came.
    pub found: Seq,
}

/// Repeats what batches say, in order.
#[derive(Debug)]
pub struct Replica {
    next: Seq,
    disagreements: u64,
    record: Record,
}

/// What came of a record at a replica, unless it was a disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The execution is right.
    Agrees,
    /// Nothing can be said about it, and nothing will be.
    Unknown,
    /// Its turn has not come: something has to happen first that another ring tells of. Nothing was done.
    Later,
}

/// How far a replica has come: everything up to `confirmed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All records up to this one agree, or their disagreements were told in this or an earlier acknowledgement.
    pub confirmed: Seq,
    /// Disagreements ever told, this one included, so that none can get lost unnoticed.
    pub disagreements: u64,
    /// A disagreement right behind `confirmed`.
    pub disagreement: Option<Disagreement>,
}

/// The primary's view of a replica.
#[derive(Debug)]
pub struct Remote {
    confirmer: Confirmer,
    disagreements: u64,
}

/// An acknowledgement that can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadAck {
    /// The last disagreement is not settled; take it again afterwards.
    Open,
    /// A disagreement was told that did not arrive. What is held can't be let out on this replica's word.
    Missed,
}

impl BatchWriter {
    /// Batches of at most `bytes_max` bytes, from [`BATCH_BYTES_MIN`] to [`BATCH_BYTES_MAX`].
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        let mut bytes = Vec::with_capacity(bytes_max);
        bytes.resize(BATCH_HEAD_BYTES, 0);
        BatchWriter { bytes, bytes_max, first: 0, last: 0, count: 0 }
    }

    /// Adds a record. Returns whether it fitted; if not, the batch has to be sent and [cleared](BatchWriter::clear)
    /// first. An empty batch takes any record.
    #[must_use]
    pub fn push(&mut self, record: &Record) -> bool {
        if self.bytes.len() + LINE_BYTES + record.payload.len() > self.bytes_max {
            return false;
        }
        self.bytes.extend_from_slice(&bytes_of(&record.head()));
        self.bytes.extend_from_slice(&record.payload);
        if self.count == 0 {
            self.first = record.seq;
        }
        self.last = record.seq;
        self.count += 1;
        true
    }

    /// How many records are in it.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.count
    }

    /// What to send.
    pub fn bytes(&mut self) -> &[u8] {
        let body_bytes = (self.bytes.len() - BATCH_HEAD_BYTES) as u32;
        let mut head = [0; BATCH_HEAD_BYTES];
        head[..4].copy_from_slice(&BATCH_MAGIC);
        head[4..8].copy_from_slice(&body_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&self.first.to_le_bytes());
        head[16..24].copy_from_slice(&self.last.to_le_bytes());
        head[24..28].copy_from_slice(&self.count.to_le_bytes());
        let check = check_of(&head[..28]);
        head[28..].copy_from_slice(&check.to_le_bytes());
        self.bytes[..BATCH_HEAD_BYTES].copy_from_slice(&head);
        &self.bytes
    }

    /// Begins the next batch.
    pub fn clear(&mut self) {
        self.bytes.truncate(BATCH_HEAD_BYTES);
        self.count = 0;
    }
}

impl<'b> Batch<'b> {
    /// The batch at the beginning of `bytes` and how many bytes it takes, or nothing as long as there are not enough.
    ///
    /// # Errors
    ///
    /// When no batch can begin like that.
    pub fn decode(bytes: &'b [u8]) -> Result<Option<(Self, usize)>, BadBytes> {
        let Some((head, rest)) = bytes.split_at_checked(BATCH_HEAD_BYTES) else {
            let known = bytes.len().min(BATCH_MAGIC.len());
            return if bytes[..known] == BATCH_MAGIC[..known] { Ok(None) } else { Err(BadBytes::Magic) };
        };
        if head[..4] != BATCH_MAGIC {
            return Err(BadBytes::Magic);
        }
        if check_of(&head[..28]) != u32_at(head, 28) {
            return Err(BadBytes::Check);
        }
        let body_bytes = u32_at(head, 4) as usize;
        if body_bytes > BATCH_BYTES_MAX - BATCH_HEAD_BYTES {
            return Err(BadBytes::Length);
        }
        let (first, last) = (u64_at(head, 8), u64_at(head, 16));
        if first > last || last == Seq::MAX {
            return Err(BadBytes::Check);
        }
        let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
        let batch = Batch { first, last, count: u32_at(head, 24), body };
        Ok(Some((batch, BATCH_HEAD_BYTES + body_bytes)))
    }

    /// How many records it claims to hold.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.count
    }

    /// Takes the record at `at`, whose number is near `near`, and says where the next one begins.
    fn read(&self, at: usize, near: Seq, record: &mut Record) -> Option<usize> {
        let rest = self.body.get(at..)?;
        let (head, rest) = rest.split_at_checked(LINE_BYTES)?;
        let head = Head::new(line_of(head));
        let payload = rest.get(..head.payload_bytes())?;
        let mut check = head.start_check();
        payload.chunks(LINE_BYTES).for_each(|chunk| check.line(&line_of(chunk)));
        if check.finish() != head.check() {
            return None;
        }
        record.payload.clear();
        record.payload.extend_from_slice(payload);
        head.fill(record, head.seq(near));
        Some(at + LINE_BYTES + payload.len())
    }
}

impl Replica {
    /// A replica whose state is that before the record `next`; 1 at the beginning.
    #[must_use]
    pub fn new(next: Seq) -> Self {
        Replica { next, disagreements: 0, record: Record::with_room() }
    }

    /// Has `confirm` repeat the batch's records and say whether they are right, up to the first disagreement. Records that
    /// came before are passed over; so after an acknowledgement with a disagreement the same batch is given again, until there
    /// is none. The same holds when a record's turn has not come, [`Turn::Later`], which ends it as well.
    ///
    /// `confirm` may act on what it computed, to keep a second state in step with the first.
    ///
    /// # Errors
    ///
    /// When records are missing. The state has to be brought to that before the record that came, and
    /// [`skip_to`](Replica::skip_to) called.
    pub fn apply(
        &mut self,
        batch: &Batch<'_>,
        core: Core,
        tally: &Tally,
        mut confirm: impl FnMut(&Record) -> Result<Turn, Mismatch>,
    ) -> Result<Ack, Gap> {
        let (mut at, mut near) = (0, batch.first);
        for _ in 0..batch.count {
            let Some(next_at) = batch.read(at, near, &mut self.record) else {
                return Ok(self.lose_rest(batch.last, core, tally));
            };
            let Record { seq, stratum, core: first_core, .. } = self.record;
            (at, near) = (next_at, seq);
            if seq < self.next {
                continue;
            }
            if seq > self.next {
                return Err(Gap { expected: self.next, found: seq });
            }
            let turn = confirm(&self.record);
            if turn == Ok(Turn::Later) {
                break;
            }
            self.next += 1;
            match turn {
                Ok(Turn::Agrees) => tally.count_validated(stratum),
                Ok(_) => {}
                Err(mismatch) => {
                    tally.count_disagreement(stratum);
                    let site = Site { stratum, first_core, second_core: core };
                    return Ok(self.disagree(Disagreement::new(site, mismatch, seq..=seq)));
                }
            }
        }
        Ok(Ack {
            confirmed: self.next.saturating_sub(1),
            disagreements: self.disagreements,
            disagreement: None,
        })
    }

    /// Goes on with this record: the state is that before it.
    pub fn skip_to(&mut self, next: Seq) {
        self.next = next;
    }

    /// The record that will be applied next.
    #[must_use]
    pub fn next(&self) -> Seq {
        self.next
    }

    /// The record applied last: after a disagreement, the evidence, unless that was about a damaged record.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What follows a damaged record can't be found, so it is lost as well.
    fn lose_rest(&mut self, last: Seq, core: Core, tally: &Tally) -> Ack {
        let first = self.next;
        if last < first {
            // All of it had come before.
            return Ack {
                confirmed: first.saturating_sub(1),
                disagreements: self.disagreements,
                disagreement: None,
            };
        }
        self.next = last + 1;
        tally.count_lost(last - first + 1);
        let site = Site { second_core: core, ..Site::default() };
        let mismatch = Mismatch { kind: Kind::Record, expected: Digest(0), found: Digest(0), bit: None };
        self.disagree(Disagreement::new(site, mismatch, first..=last))
    }

    fn disagree(&mut self, disagreement: Disagreement) -> Ack {
        self.disagreements += 1;
        Ack {
            confirmed: disagreement.seq_first.saturating_sub(1),
            disagreements: self.disagreements,
            disagreement: Some(disagreement),
        }
    }
}

impl Ack {
    /// What to send.
    #[must_use]
    pub fn encode(&self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        bytes[..4].copy_from_slice(&ACK_MAGIC);
        let mut words = [self.confirmed, self.disagreements, 0, 0, 0, 0, 0, 0];
        if let Some(found) = &self.disagreement {
            words[2] = found.seq_first;
            words[3] = found.seq_last;
            words[4] = found.expected.0;
            words[5] = found.found.0;
            words[6] = found.bit.unwrap_or(u64::MAX);
            words[7] = u64::from(found.stratum.0)
                | (kind_number(found.kind) << 8)
                | (u64::from(found.first_core.0) << 16)
                | (u64::from(found.second_core.0) << 32);
        }
        bytes[8..].copy_from_slice(&bytes_of(&words));
        let check = check_of(&bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The acknowledgement that these bytes are.
    ///
    /// # Errors
    ///
    /// When they are none.
    pub fn decode(bytes: &[u8; ACK_BYTES]) -> Result<Self, BadBytes> {
        if bytes[..4] != ACK_MAGIC {
            return Err(BadBytes::Magic);
        }
        if check_of(&bytes[8..]) != u32_at(bytes, 4) {
            return Err(BadBytes::Check);
        }
        let [confirmed, disagreements, first, last, expected, found, bit, place] = line_of(&bytes[8..]);
        let disagreement = match (place >> 8) as u8 {
            0 => None,
            number => {
                let kind = kind_of(number).ok_or(BadBytes::Check)?;
                let bit = (bit != u64::MAX).then_some(bit);
                let mismatch = Mismatch { kind, expected: Digest(expected), found: Digest(found), bit };
                let site = Site {
                    stratum: Stratum(place as u8),
                    first_core: Core((place >> 16) as u16),
                    second_core: Core((place >> 32) as u16),
                };
                Some(Disagreement::new(site, mismatch, first..=last))
            }
        };
        Ok(Ack { confirmed, disagreements, disagreement })
    }
}

impl Remote {
    /// A replica that has told nothing yet.
    #[must_use]
    pub fn new(confirmer: Confirmer) -> Self {
        Remote { confirmer, disagreements: 0 }
    }

    /// Moves the watermark as far as the replica says, and hands out its disagreement, which stops it until
    /// [`release`](Remote::release) or [`refuse`](Remote::refuse).
    ///
    /// # Errors
    ///
    /// When the last disagreement is still open, or when one is missing. The watermark stays where it is.
    pub fn acknowledge(&mut self, ack: &Ack) -> Result<Option<Disagreement>, BadAck> {
        if self.confirmer.is_open() {
            return Err(BadAck::Open);
        }
        let told = self.disagreements + u64::from(ack.disagreement.is_some());
        if ack.disagreements != told {
            return Err(BadAck::Missed);
        }
        self.disagreements = told;
        self.confirmer.confirm(ack.confirmed);
        if let Some(disagreement) = &ack.disagreement {
            self.confirmer.hold(disagreement.seqs());
        }
        Ok(ack.disagreement)
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

    /// Up to where the records are confirmed.
    #[must_use]
    pub fn confirmed(&self) -> Seq {
        self.confirmer.confirmed()
    }
}

impl fmt::Display for BadBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadBytes::Magic => "not the beginning of a batch or acknowledgement",
            BadBytes::Length => "longer than any batch",
            BadBytes::Check => "damaged on its way",
        })
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} came where {} was expected", self.found, self.expected)
    }
}

impl fmt::Display for BadAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadAck::Open => "the last disagreement is not settled",
            BadAck::Missed => "a disagreement was told that did not arrive",
        })
    }
}

impl std::error::Error for BadBytes {}
impl std::error::Error for Gap {}
impl std::error::Error for BadAck {}

/// The wire's number of a kind; 0 stands for no disagreement.
fn kind_number(kind: Kind) -> u64 {
    match kind {
        Kind::Outcome => 1,
        Kind::Checksum => 2,
        Kind::Reply => 3,
        Kind::Record => 4,
        Kind::Lost => 5,
        Kind::Stale => 6,
        Kind::Resurrected => 7,
    }
}

fn kind_of(number: u8) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind_number(*kind) == u64::from(number))
}

fn check_of(bytes: &[u8]) -> u32 {
    let mut check = Check::new();
    bytes.chunks(LINE_BYTES).for_each(|chunk| check.line(&line_of(chunk)));
    check.finish()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::counter::{Add, Counter, Limit};
    use crate::execute::recorded;
    use crate::random::{Random, test_seed};
    use crate::replay::replay;
    use crate::ring::{Append, Next, Reader, ring};
    use crate::side::Diverse;
    use crate::watermark::{Holder, watermark};

    /// The records of ticks, flipped as the masks say.
    fn records(masks: &[u64]) -> Vec<Record> {
        let (mut writer, mut reader) = ring(256);
        let counter = Counter::with_faults(masks, &[]);
        for value in 0..masks.len() as u64 {
            let add = Add { value, delta: 1, reason: &[7; 70][..value as usize * 5] };
            let site = Site { stratum: Stratum(1), first_core: Core(4), ..Site::default() };
            let (_, append) = recorded(&counter, &add, &Limit(u64::MAX), site, &mut writer);
            assert_ne!(append, Append::Dropped);
        }
        writer.commit();
        std::iter::from_fn(|| next_of(&mut reader)).collect()
    }

    fn next_of(reader: &mut Reader) -> Option<Record> {
        let mut record = Record::default();
        (reader.next(&mut record) == Next::Record).then_some(record)
    }

    fn bytes_of_batch(records: &[Record]) -> Vec<u8> {
        let mut batch = BatchWriter::new(0);
        assert!(records.iter().all(|record| batch.push(record)));
        batch.bytes().to_vec()
    }

    fn confirm(record: &Record) -> Result<Turn, Mismatch> {
        replay::<_, Diverse>(&Counter::default(), record)?.agrees().map(|()| Turn::Agrees)
    }

    fn remote() -> (Remote, Holder) {
        let (confirmer, holder) = watermark();
        (Remote::new(confirmer), holder)
    }

    /// Sends ticks with faults through everything; the disagreements that arrive and what the holder sees.
    fn check(masks: &[u64], expected: &[Seq]) {
        let bytes = bytes_of_batch(&records(masks));
        let (batch, length) = Batch::decode(&bytes).expect("a batch").expect("all of it");
        assert_eq!((length, batch.records() as usize), (bytes.len(), masks.len()));
        let (mut replica, tally) = (Replica::new(1), Tally::new(2));
        let (mut remote, mut holder) = remote();
        let (mut told, mut refused) = (Vec::new(), Vec::new());
        loop {
            let ack = replica.apply(&batch, Core(9), &tally, confirm).expect("no gap");
            let ack = Ack::decode(&ack.encode()).expect("what was encoded");
            let Some(found) = remote.acknowledge(&ack).expect("in order") else { break };
            assert_eq!((found.stratum, found.kind), (Stratum(1), Kind::Outcome));
            assert_eq!((found.first_core, found.second_core), (Core(4), Core(9)));
            assert_eq!(found.bit, Some(5));
            assert_eq!(remote.confirmed(), found.seq_first - 1);
            assert_eq!(remote.acknowledge(&ack), Err(BadAck::Open));
            told.push(found.seq_first);
            assert_eq!(remote.refuse(), Ok(()));
        }
        assert_eq!(told, expected);
        assert_eq!(holder.poll(|seqs| refused.extend(seqs)), masks.len() as u64);
        assert_eq!(refused, expected);
        assert_eq!(tally.counted(Stratum(1)).disagreements, expected.len() as u64);
    }

    #[test]
    fn a_fault_is_told_and_no_fault_is_silent() {
        check(&[0, 0, 0], &[]);
        check(&[0, 32, 0], &[2]);
        check(&[32, 0, 32, 32], &[1, 3, 4]);
    }

    #[test]
    fn what_came_before_is_passed_over_and_what_is_missing_is_said() {
        let records = records(&[0; 6]);
        let (mut replica, tally) = (Replica::new(1), Tally::new(2));
        let mut apply = |from: usize, to: usize| {
            let bytes = bytes_of_batch(&records[from - 1..to]);
            let (batch, _) = Batch::decode(&bytes).expect("a batch").expect("all of it");
            let mut applied = Vec::new();
            let result = replica.apply(&batch, Core(9), &tally, |record| {
                applied.push(record.seq());
                confirm(record)
            });
            if let Err(gap) = result {
                replica.skip_to(gap.found);
            }
            (result.map(|ack| ack.confirmed), applied)
        };
        assert_eq!(apply(1, 2), (Ok(2), vec![1, 2]));
        assert_eq!(apply(1, 3), (Ok(3), vec![3]));
        assert_eq!(apply(1, 3), (Ok(3), vec![]));
        assert_eq!(apply(5, 6), (Err(Gap { expected: 4, found: 5 }), vec![]));
        assert_eq!(apply(5, 6), (Ok(6), vec![5, 6]), "the state was brought to that before it");
    }

    #[test]
    fn a_record_whose_turn_has_not_come_is_given_again() {
        let bytes = bytes_of_batch(&records(&[0; 4]));
        let (batch, _) = Batch::decode(&bytes).expect("a batch").expect("all of it");
        let (mut replica, tally) = (Replica::new(1), Tally::new(2));
        let mut seen = Vec::new();
        for (due, confirmed) in [(3, 2), (3, 2), (4, 3), (9, 4)] {
            let ack = replica.apply(&batch, Core(9), &tally, |record| {
                seen.push(record.seq());
                let turn = if record.seq() == 1 { Turn::Unknown } else { Turn::Agrees };
                Ok(if record.seq() < due { turn } else { Turn::Later })
            });
            assert_eq!(ack, Ok(Ack { confirmed, disagreements: 0, disagreement: None }));
        }
        assert_eq!(seen, [1, 2, 3, 3, 3, 4, 4]);
        assert_eq!(tally.counted(Stratum(1)).validated, 3, "of the first, nothing was known");
    }

    #[test]
    fn batches_have_a_limit_and_take_every_record() {
        let mut batch = BatchWriter::new(usize::MAX);
        let big = Record { seq: 1, payload: vec![1; PAYLOAD_BYTES_MAX], ..Record::default() };
        let fitted = (0..100).take_while(|_| batch.push(&big)).count();
        assert_eq!(fitted, BATCH_BYTES_MAX / (LINE_BYTES + PAYLOAD_BYTES_MAX));
        assert!(batch.bytes().len() <= BATCH_BYTES_MAX);
        let mut batch = BatchWriter::new(0);
        for _ in 0..3 {
            assert!(batch.push(&big));
            assert!(!batch.push(&Record::default()));
            assert_eq!(batch.records(), 1);
            batch.clear();
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = bytes_of_batch(&records(&[0; 3]));
        let whole = (Ok(3), 0);
        let apply = |bytes: &[u8]| {
            let batch = match Batch::decode(bytes) {
                Ok(Some((batch, _))) => batch,
                Ok(None) => return (Ok(0), 0),
                Err(bad) => return (Err(bad), 0),
            };
            let (mut replica, tally) = (Replica::new(1), Tally::new(2));
            let ack = replica.apply(&batch, Core(9), &tally, confirm).expect("damage is no gap");
            (Ok(ack.confirmed), ack.disagreement.map_or(0, |told| told.seq_last + 1 - told.seq_first))
        };
        assert_eq!(apply(&bytes), whole);
        for length in 0..bytes.len() {
            assert_eq!(apply(&bytes[..length]), (Ok(0), 0), "more is needed than {length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match apply(&bytes) {
                (Err(_), _) => assert!(bit < BATCH_HEAD_BYTES * 8),
                // The rest of the batch can't be trusted, whatever comes first.
                (Ok(confirmed), lost) => assert_eq!((confirmed + lost, lost > 0), (3, true), "bit {bit}"),
            }
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut random = Random::new(test_seed());
        let bytes = bytes_of_batch(&records(&[0; 4]));
        let tally = Tally::new(2);
        for _ in 0..5_000 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.below(20) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            // A sender that computes its checks right over nonsense is the worst case.
            let check = check_of(&bytes[..28]);
            bytes[28..32].copy_from_slice(&check.to_le_bytes());
            bytes.truncate(random.below(2 * bytes.len() as u64) as usize);
            if let Ok(Some((batch, length))) = Batch::decode(&bytes) {
                assert!(length <= bytes.len());
                let mut replica = Replica::new(random.below(6));
                let _ = replica.apply(&batch, Core(9), &tally, confirm);
            }
        }
    }

    #[test]
    fn an_acknowledgement_is_what_was_sent_or_refused() {
        let mismatch = Mismatch::new(Kind::Checksum, Digest(1), Digest(u64::MAX));
        let site = Site { stratum: Stratum(255), first_core: Core(65_535), second_core: Core(1) };
        for kind in Kind::ALL {
            let disagreement = Disagreement::new(site, Mismatch { kind, ..mismatch }, 6..=9);
            for disagreement in [None, Some(disagreement)] {
                let ack = Ack { confirmed: 5, disagreements: 77, disagreement };
                let bytes = ack.encode();
                assert_eq!(Ack::decode(&bytes), Ok(ack));
                for bit in 0..ACK_BYTES * 8 {
                    let mut bytes = bytes;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    assert!(Ack::decode(&bytes).is_err(), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_lost_acknowledgement_of_a_disagreement_is_noticed() {
        let bytes = bytes_of_batch(&records(&[0, 32, 0]));
        let (batch, _) = Batch::decode(&bytes).expect("a batch").expect("all of it");
        let (mut replica, tally) = (Replica::new(1), Tally::new(2));
        let lost = replica.apply(&batch, Core(9), &tally, confirm).expect("no gap");
        assert!(lost.disagreement.is_some());
        let next = replica.apply(&batch, Core(9), &tally, confirm).expect("no gap");
        let (mut remote, mut holder) = remote();
        assert_eq!(remote.acknowledge(&next), Err(BadAck::Missed));
        assert_eq!(holder.poll(|_| {}), 0, "nothing is let out");
    }
}
