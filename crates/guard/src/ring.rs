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

use crate::operator::{PAYLOAD_BYTES_MAX, Seq};
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
    /// Lines that are no record any more. Lost are at most the records from `first` to `last`.
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
#[cfg(test)]
pub(crate) fn flip_for_test(writer: &Writer, position: u64, bit: usize) {
    let cell = &writer.shared.at(position).0[bit / 64];
    cell.store(cell.load(Ordering::Relaxed) ^ (1 << (bit % 64)), Ordering::Relaxed);
}
