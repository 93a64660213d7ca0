//! Carries records from the thread that executed to the one that confirms.
//!
//! One writer, one reader, a fixed number of 64-byte lines. A record is its head's line and as many as its payload
//! needs; one that reaches the end of the ring goes on at its beginning. Lines are made of relaxed atomics, which cost
//! what plain stores cost and make a race impossible by type; what orders them is two counters:
//!
//! * `committed`: lines the reader may read. The writer stores it with release, once per batch; the reader loads it with
//!   acquire.
//! * `taken`: lines the writer may overwrite. The reader stores it with release when it has copied a record out; the
//!   writer loads it with acquire, and only when the ring looks full by what it remembers.
//!
//! A full ring never makes the writer wait: the record is dropped and counted, and the next one that fits says so.

use crate::operator::{PAYLOAD_BYTES_MAX, Seq, WORDS};
use crate::record::{Draft, Head, LINE_BYTES, LINE_WORDS, Record, Words, bytes_of, head, line_of, set_check};
use crate::sync::{Arc, AtomicU64, Ordering};

/// A ring of `lines` lines of 64 bytes each, rounded up to a power of two; records without payload need one.
///
/// # Panics
///
/// When `lines` is 0 or more than 2^32.
#[must_use]
pub fn ring(lines: usize) -> (Writer, Reader) {
    assert!(lines > 0);
    assert!(lines <= 1 << 32);
    let lines = lines.next_power_of_two();
    let shared = Arc::new(Shared {
        lines: (0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect(),
        committed: Counter(AtomicU64::new(0)),
        taken: Counter(AtomicU64::new(0)),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        seq_next: 1,
        position: 0,
        taken: 0,
        dropped: 0,
        dropped_recently: 0,
    };
    let reader = Reader { shared, seq_next: 1, slack: 0, position: 0, committed: 0 };
    (writer, reader)
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an execution whose record was dropped is confirmed by nobody else"]
pub enum Append {
    /// It will be confirmed; this is its number.
    Recorded(Seq),
    /// The ring was full, or the payload too long. It has no number, so nothing can wait for it: who promised a confirmed
    /// result has to execute twice at once.
    Dropped,
}

/// The end of a ring that belongs to the thread that executes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    seq_next: Seq,
    /// Lines ever written, committed or not.
    position: u64,
    /// Invariant: not more than what the reader has taken.
    taken: u64,
    dropped: u64,
    dropped_recently: u8,
}

/// The end of a ring that belongs to the thread that confirms.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    seq_next: Seq,
    /// By how much the next number may be ahead of `seq_next`: not 0 only after lines were lost.
    slack: u64,
    /// Lines ever read.
    position: u64,
    /// Invariant: not more than what the writer has committed.
    committed: u64,
}

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing has been committed that was not read.
    Empty,
    /// A record, now in the reader's hand.
    Record,
    /// Lines that are no record any more. Lost are at most the records from `first` to `last`; what the reader has in its
    /// hand means nothing.
    Corrupt {
        /// The first number lost.
        first: Seq,
        /// The last number that may be lost.
        last: Seq,
    },
}

#[derive(Debug)]
struct Shared {
    lines: Box<[Line]>,
    committed: Counter,
    taken: Counter,
}

/// Aligned so that a head is one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// 128 bytes, because processors fetch cache lines in pairs: the two ends don't take their counters from each other.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Writer {
    /// Writes a record down. The reader sees it after the next [`commit`](Writer::commit).
    #[inline]
    pub fn append(&mut self, draft: &Draft<'_>) -> Append {
        let payload = draft.description.payload;
        let lines = lines_of(payload.len());
        if payload.len() > PAYLOAD_BYTES_MAX || !self.has_room(lines) {
            self.dropped += 1;
            self.dropped_recently = self.dropped_recently.saturating_add(1);
            return Append::Dropped;
        }
        let seq = self.seq_next;
        let mut words = head(seq, self.dropped_recently, draft);
        let mut check = Head::new(words).start_check();
        for (index, bytes) in payload.chunks(LINE_BYTES).enumerate() {
            let line = line_of(bytes);
            check.line(&line);
            self.shared.store(self.position + 1 + index as u64, &line);
        }
        set_check(&mut words, check.finish());
        self.shared.store(self.position, &words);
        self.position += lines;
        self.seq_next = seq + 1;
        self.dropped_recently = 0;
        Append::Recorded(seq)
    }

    /// Hands all that was appended to the reader: once per batch, not per record.
    #[inline]
    pub fn commit(&mut self) {
        // Pairs with the acquire in `Reader::refresh`: who sees the counter sees the lines below it.
        self.shared.committed.0.store(self.position, Ordering::Release);
    }

    /// Whether a record with a payload of this length would fit now.
    #[must_use]
    pub fn has_room_for(&mut self, payload_bytes: usize) -> bool {
        payload_bytes <= PAYLOAD_BYTES_MAX && self.has_room(lines_of(payload_bytes))
    }

    /// How many records were dropped since the ring was made.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number of the last record, 0 before the first.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq_next - 1
    }

    #[inline]
    fn has_room(&mut self, lines: u64) -> bool {
        let needed = (self.position + lines).saturating_sub(self.shared.lines.len() as u64);
        if needed > self.taken {
            // Pairs with the release in `Reader::advance`: what was taken has been copied.
            self.taken = self.shared.taken.0.load(Ordering::Acquire);
        }
        needed <= self.taken
    }
}

impl Drop for Writer {
    /// What was appended is not lost with the writer.
    fn drop(&mut self) {
        self.commit();
    }
}

impl Reader {
    /// Copies the next record out of the ring, which gives its lines back to the writer.
    ///
    /// After damage it goes on with the next record that is whole.
    pub fn next(&mut self, record: &mut Record) -> Next {
        if self.position == self.committed {
            self.refresh();
        }
        if self.position == self.committed {
            return Next::Empty;
        }
        if let Some(lines) = self.parse(record) {
            self.seq_next = record.seq + 1;
            self.slack = 0;
            self.advance(lines);
            record.upcoming = self.peek();
            return Next::Record;
        }
        let first = self.seq_next;
        let last = loop {
            self.advance(1);
            self.slack += 1;
            if self.position == self.committed {
                // Every record has a line at least, so no more can be lost than lines.
                break first + (self.slack - 1);
            }
            if self.parse(record).is_some() {
                break record.seq.saturating_sub(1).max(first);
            }
        };
        Next::Corrupt { first, last }
    }

    /// The caller's words of the record that comes next, if it is known to be committed.
    fn peek(&self) -> Option<[u64; WORDS]> {
        (self.position < self.committed).then(|| {
            let [_, _, _, words @ ..] = self.shared.load(self.position);
            words
        })
    }

    /// How many lines wait to be read: the load of the one who confirms.
    #[must_use]
    pub fn waiting_lines(&mut self) -> u64 {
        self.refresh();
        self.committed - self.position
    }

    /// How many lines there are.
    #[must_use]
    pub fn capacity_lines(&self) -> u64 {
        self.shared.lines.len() as u64
    }

    /// The number of the last record read, 0 before the first.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq_next - 1
    }

    fn refresh(&mut self) {
        // Pairs with the release in `Writer::commit`.
        self.committed = self.shared.committed.0.load(Ordering::Acquire);
    }

    fn advance(&mut self, lines: u64) {
        self.position += lines;
        // Pairs with the acquire in `Writer::has_room`.
        self.shared.taken.0.store(self.position, Ordering::Release);
    }

    /// The record at the reader's position and its lines, if there is a whole one of a number that can be there.
    fn parse(&self, record: &mut Record) -> Option<u64> {
        let head = Head::new(self.shared.load(self.position));
        let seq = head.seq(self.seq_next);
        if seq < self.seq_next || seq > self.seq_next + self.slack {
            return None;
        }
        let length = head.payload_bytes();
        let lines = lines_of(length);
        if lines > self.committed - self.position {
            return None;
        }
        let mut check = head.start_check();
        record.payload.clear();
        for index in 1..lines {
            let line = self.shared.load(self.position + index);
            check.line(&line);
            record.payload.extend_from_slice(&bytes_of(&line));
        }
        record.payload.truncate(length);
        if check.finish() != head.check() {
            return None;
        }
        head.fill(record, seq);
        Some(lines)
    }
}

impl Shared {
    #[inline]
    fn store(&self, position: u64, words: &Words) {
        for (cell, word) in self.at(position).0.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
    }

    fn load(&self, position: u64) -> Words {
        std::array::from_fn(|index| self.at(position).0[index].load(Ordering::Relaxed))
    }

    #[inline]
    fn at(&self, position: u64) -> &Line {
        &self.lines[position as usize & (self.lines.len() - 1)]
    }
}

#[inline]
fn lines_of(payload_bytes: usize) -> u64 {
    1 + payload_bytes.div_ceil(LINE_BYTES) as u64
}

/// Damages one bit of the ring, as a fault would.
#[cfg(all(test, not(loom)))]
pub(crate) fn flip_for_test(writer: &Writer, position: u64, bit: usize) {
    let cell = &writer.shared.at(position).0[bit / 64];
    cell.store(cell.load(Ordering::Relaxed) ^ (1 << (bit % 64)), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::thread;

    use super::*;
    use crate::operator::{Core, Description, Digest, Stratum};
    use crate::random::{Random, test_seed};

    /// A record whose every part follows from `number`.
    fn append(writer: &mut Writer, number: u64, bytes: &mut Vec<u8>) -> Append {
        bytes.clear();
        bytes.extend((0..number % 200).map(|at| (number + at) as u8));
        let words = [number, !number, number << 32, 0, u64::MAX];
        let draft = Draft {
            stratum: Stratum(number as u8),
            core: Core(number as u16),
            digest: Digest(number.wrapping_mul(7)),
            description: Description { words, payload: bytes },
        };
        writer.append(&draft)
    }

    fn assert_is(record: &Record, number: u64) {
        assert_eq!(record.words(), &[number, !number, number << 32, 0, u64::MAX]);
        assert_eq!(record.stratum(), Stratum(number as u8));
        assert_eq!(record.core(), Core(number as u16));
        assert_eq!(record.digest(), Digest(number.wrapping_mul(7)));
        assert_eq!(record.payload().len() as u64, number % 200);
        assert!(record.payload().iter().zip(0..).all(|(byte, at)| *byte == (number + at) as u8));
    }

    #[test]
    fn random_programs_agree_with_a_queue() {
        let mut random = Random::new(test_seed());
        let mut bytes = Vec::new();
        for _ in 0..200 {
            let lines = 1 + random.below(40);
            let (mut writer, mut reader) = ring(lines as usize);
            let capacity = reader.capacity_lines();
            let (mut queue, mut committed, mut used) = (VecDeque::new(), 0, 0);
            let (mut dropped, mut record) = (0, Record::default());
            for _ in 0..300 {
                match random.below(8) {
                    0..=3 => {
                        let number = random.next();
                        let needed = lines_of((number % 200) as usize);
                        match append(&mut writer, number, &mut bytes) {
                            Append::Recorded(seq) => {
                                assert_eq!(seq, writer.seq());
                                used += needed;
                                queue.push_back((seq, number, needed, dropped));
                                dropped = 0;
                            }
                            Append::Dropped => {
                                assert!(
                                    used + needed > capacity,
                                    "{used} of {capacity} used, {needed} needed"
                                );
                                dropped += 1;
                            }
                        }
                    }
                    4 => {
                        writer.commit();
                        committed = queue.len();
                    }
                    _ if committed == 0 => assert_eq!(reader.next(&mut record), Next::Empty),
                    _ => {
                        let (seq, number, lines, dropped) = queue.pop_front().expect("committed > 0");
                        assert_eq!(reader.next(&mut record), Next::Record);
                        assert_eq!((record.seq(), u64::from(record.dropped_before())), (seq, dropped));
                        assert_is(&record, number);
                        committed -= 1;
                        used -= lines;
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_ring_drops_counts_and_goes_on() {
        let (mut writer, mut reader) = ring(4);
        let mut record = Record::default();
        for lap in 0..3 {
            for _ in 0..4 {
                assert!(matches!(writer.append(&Draft::default()), Append::Recorded(_)));
            }
            for _ in 0..300 {
                assert_eq!(writer.append(&Draft::default()), Append::Dropped);
            }
            writer.commit();
            assert_eq!((reader.waiting_lines(), writer.dropped()), (4, 300 * (lap + 1)));
            for index in 0..4 {
                assert_eq!(reader.next(&mut record), Next::Record);
                let expected = if lap > 0 && index == 0 { 255 } else { 0 };
                assert_eq!(record.dropped_before(), expected, "lap {lap}, record {index}");
            }
            assert_eq!(reader.next(&mut record), Next::Empty);
        }
    }

    #[test]
    fn a_payload_has_a_limit() {
        let (mut writer, mut reader) = ring(2048);
        let bytes = vec![9; PAYLOAD_BYTES_MAX + 1];
        let draft = |length| Draft {
            description: Description { words: [0; 5], payload: &bytes[..length] },
            ..Draft::default()
        };
        assert_eq!(writer.append(&draft(PAYLOAD_BYTES_MAX + 1)), Append::Dropped);
        assert_eq!(writer.append(&draft(PAYLOAD_BYTES_MAX)), Append::Recorded(1));
        drop(writer);
        let mut record = Record::with_room();
        assert_eq!(reader.next(&mut record), Next::Record, "what was appended is not lost with the writer");
        assert_eq!(record.payload(), &bytes[..PAYLOAD_BYTES_MAX]);
    }

    /// Five records, the third and its payload flipped in one bit (or none), read to the end.
    fn read_with_flip(flip: Option<usize>) -> Vec<(Next, Seq)> {
        let (mut writer, mut reader) = ring(16);
        let mut bytes = Vec::new();
        for number in [3, 1, 70, 64, 0] {
            assert_ne!(append(&mut writer, number, &mut bytes), Append::Dropped);
        }
        if let Some(bit) = flip {
            flip_for_test(&writer, 4 + bit as u64 / 512, bit % 512);
        }
        writer.commit();
        let (mut record, mut found) = (Record::default(), Vec::new());
        loop {
            match reader.next(&mut record) {
                Next::Empty => return found,
                next @ Next::Record => found.push((next, record.seq())),
                next @ Next::Corrupt { .. } => found.push((next, 0)),
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed_and_costs_that_record() {
        let whole = |seq| (Next::Record, seq);
        assert_eq!(read_with_flip(None), [1, 2, 3, 4, 5].map(whole));
        let lost = (Next::Corrupt { first: 3, last: 3 }, 0);
        // The third record has a head and two lines of payload.
        for bit in 0..3 * 512 {
            assert_eq!(
                read_with_flip(Some(bit)),
                [whole(1), whole(2), lost, whole(4), whole(5)],
                "bit {bit}"
            );
        }
    }

    #[test]
    fn damage_at_the_end_is_told_at_once_and_the_next_record_is_found() {
        let (mut writer, mut reader) = ring(8);
        let mut record = Record::default();
        for _ in 0..2 {
            assert_ne!(writer.append(&Draft::default()), Append::Dropped);
        }
        flip_for_test(&writer, 0, 77);
        flip_for_test(&writer, 1, 5);
        writer.commit();
        assert_eq!(reader.next(&mut record), Next::Corrupt { first: 1, last: 2 });
        assert_eq!(reader.next(&mut record), Next::Empty);
        assert_eq!(writer.append(&Draft::default()), Append::Recorded(3));
        writer.commit();
        assert_eq!((reader.next(&mut record), record.seq()), (Next::Record, 3));
    }

    #[test]
    fn a_lap_old_record_is_not_taken_for_a_new_one() {
        let (mut writer, mut reader) = ring(2);
        let mut record = Record::default();
        assert_ne!(writer.append(&Draft::default()), Append::Dropped);
        assert_ne!(writer.append(&Draft::default()), Append::Dropped);
        writer.commit();
        let old = writer.shared.load(0);
        assert_eq!(reader.next(&mut record), Next::Record);
        assert_eq!(writer.append(&Draft::default()), Append::Recorded(3));
        // The stores of the third record are lost: its line still holds the first.
        writer.shared.store(2, &old);
        writer.commit();
        assert_eq!(reader.next(&mut record), Next::Record);
        assert_eq!(reader.next(&mut record), Next::Corrupt { first: 3, last: 3 });
    }

    #[test]
    fn two_threads_lose_nothing_but_what_is_dropped() {
        const ATTEMPTS: u64 = 100_000;
        let (mut writer, mut reader) = ring(64);
        let thread = thread::spawn(move || {
            let (mut bytes, mut taken) = (Vec::new(), 0);
            for number in 0..ATTEMPTS {
                taken += u64::from(append(&mut writer, number, &mut bytes) != Append::Dropped);
                if number % 7 == 0 {
                    writer.commit();
                }
                if number % 512 == 0 {
                    thread::yield_now();
                }
            }
            assert_eq!(taken + writer.dropped(), ATTEMPTS);
            taken
        });
        let (mut record, mut read, mut last) = (Record::with_room(), 0, None);
        loop {
            let is_over = thread.is_finished();
            match reader.next(&mut record) {
                Next::Record => {
                    read += 1;
                    assert_eq!(record.seq(), read);
                    assert_is(&record, record.words()[0]);
                    assert!(last < Some(record.words()[0]));
                    last = Some(record.words()[0]);
                }
                Next::Empty if is_over => break,
                Next::Empty => thread::yield_now(),
                corrupt @ Next::Corrupt { .. } => panic!("{corrupt:?}"),
            }
        }
        assert_eq!(thread.join().expect("the writer's asserts hold"), read);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::operator::{Description, Digest};

    /// Appends a record with a payload whose every part follows from its number.
    fn append(writer: &mut Writer, number: u64) -> Append {
        let description = Description { words: [number; 5], payload: &[number as u8; 3] };
        writer.append(&Draft { digest: Digest(number), description, ..Draft::default() })
    }

    #[test]
    fn what_is_committed_is_read_whole() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(4);
            let thread = thread::spawn(move || {
                assert_eq!(append(&mut writer, 11), Append::Recorded(1));
                writer.commit();
                assert_eq!(append(&mut writer, 12), Append::Recorded(2));
                writer.commit();
            });
            let (mut record, mut read) = (Record::default(), 0);
            let mut look = |read: &mut u64| match reader.next(&mut record) {
                Next::Empty => false,
                Next::Record => {
                    *read += 1;
                    assert_eq!((record.seq(), record.digest()), (*read, Digest(10 + *read)));
                    assert_eq!(record.words(), &[10 + *read; 5]);
                    assert_eq!(record.payload(), &[10 + *read as u8; 3]);
                    true
                }
                Next::Corrupt { first, last } => panic!("{first} to {last} are lost"),
            };
            look(&mut read);
            thread.join().expect("the writer's asserts hold");
            while look(&mut read) {}
            assert_eq!(read, 2);
        });
    }

    #[test]
    fn lines_are_used_again_only_when_they_were_read() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(2);
            assert_eq!(append(&mut writer, 11), Append::Recorded(1));
            writer.commit();
            let thread = thread::spawn(move || {
                let append = append(&mut writer, 12);
                writer.commit();
                append
            });
            let mut record = Record::default();
            assert_eq!(reader.next(&mut record), Next::Record);
            assert_eq!(record.words(), &[11; 5]);
            let append = thread.join().expect("the writer's asserts hold");
            match append {
                Append::Dropped => assert_eq!(reader.next(&mut record), Next::Empty),
                Append::Recorded(_) => {
                    assert_eq!(reader.next(&mut record), Next::Record);
                    assert_eq!(record.words(), &[12; 5]);
                }
            }
        });
    }
}
