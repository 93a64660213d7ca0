//! One execution, written down: a 64-byte head and a payload, covered by a check.
//!
//! The head is eight words, little-endian where it leaves the process:
//!
//! | word | content |
//! |---|---|
//! | 0 | sequence number (low 48 bits), core (high 16 bits) |
//! | 1 | stratum (8 bits), drops just before (8), payload bytes (16), check (32) |
//! | 2 | digest of the outcome |
//! | 3 to 7 | the caller's |
//!
//! The payload follows, filled up with zeros to whole words where it is checked. Sequence numbers are consecutive, so
//! their upper bits are known to the reader.

use crate::operator::{Core, Description, Digest, PAYLOAD_BYTES_MAX, Seq, Stratum, WORDS};

/// Words of a line, the unit in which records are stored; a head is one line.
pub(crate) const LINE_WORDS: usize = 8;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 8 * LINE_WORDS;

/// One line of a record.
pub(crate) type Words = [u64; LINE_WORDS];

const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
const CHECK_SHIFT: u32 = 32;
const CHECK_WORD: usize = 1;

/// What goes into a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draft<'r> {
    /// The class of the execution.
    pub stratum: Stratum,
    /// Where it took place.
    pub core: Core,
    /// What it came to.
    pub digest: Digest,
    /// How to repeat it.
    pub description: Description<'r>,
}

/// An execution as it was written down by the one who executed, copied out of the ring or the batch it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub(crate) seq: Seq,
    pub(crate) stratum: Stratum,
    pub(crate) core: Core,
    pub(crate) digest: Digest,
    pub(crate) dropped_before: u8,
    pub(crate) words: [u64; WORDS],
    pub(crate) payload: Vec<u8>,
    /// As the writer computed it, and carried along, so that it covers the whole way.
    pub(crate) check: u32,
    pub(crate) upcoming: Option<[u64; WORDS]>,
}

impl Record {
    /// The number of the record in its ring.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The class of the execution.
    #[must_use]
    pub fn stratum(&self) -> Stratum {
        self.stratum
    }

    /// Where the execution took place.
    #[must_use]
    pub fn core(&self) -> Core {
        self.core
    }

    /// What the execution came to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How many executions just before this one found the ring full; 255 stands for 255 or more.
    #[must_use]
    pub fn dropped_before(&self) -> u8 {
        self.dropped_before
    }

    /// The caller's words.
    #[must_use]
    pub fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// The caller's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The caller's words of the record behind this one in its ring, if that was there already: not checked yet, so good for
    /// asking for the memory that they lead to and for nothing else.
    #[inline]
    #[must_use]
    pub fn upcoming(&self) -> Option<&[u64; WORDS]> {
        self.upcoming.as_ref()
    }

    /// Room for every payload there can be, so that reading never allocates.
    pub(crate) fn with_room() -> Self {
        Record { payload: Vec::with_capacity(PAYLOAD_BYTES_MAX + LINE_BYTES), ..Record::default() }
    }

    /// The head as the writer wrote it, its check included.
    pub(crate) fn head(&self) -> Words {
        let description = Description { words: self.words, payload: &self.payload };
        let draft = Draft { stratum: self.stratum, core: self.core, digest: self.digest, description };
        let mut words = head(self.seq, self.dropped_before, &draft);
        set_check(&mut words, self.check);
        words
    }
}

/// The head of a record, without its check.
#[inline]
pub(crate) fn head(seq: Seq, dropped_before: u8, draft: &Draft<'_>) -> Words {
    let Description { words: [a, b, c, d, e], payload } = draft.description;
    let place = (seq & SEQ_MASK) | (u64::from(draft.core.0) << SEQ_BITS);
    let shape = u64::from(draft.stratum.0)
        | (u64::from(dropped_before) << 8)
        | (((payload.len() & 0xffff) as u64) << 16);
    [place, shape, draft.digest.0, a, b, c, d, e]
}

#[inline]
pub(crate) fn set_check(head: &mut Words, check: u32) {
    head[CHECK_WORD] = (head[CHECK_WORD] & u64::from(u32::MAX)) | (u64::from(check) << CHECK_SHIFT);
}

/// A head taken apart, not yet believed.
pub(crate) struct Head {
    words: Words,
}

impl Head {
    pub(crate) fn new(words: Words) -> Self {
        Head { words }
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        ((self.words[CHECK_WORD] >> 16) & 0xffff) as usize
    }

    /// The number that is nearest to `near` among those with the head's low bits.
    pub(crate) fn seq(&self, near: Seq) -> Seq {
        let ahead = (self.words[0].wrapping_sub(near)) & SEQ_MASK;
        let behind = SEQ_MASK + 1 - ahead;
        if ahead < behind { near.wrapping_add(ahead) } else { near.wrapping_sub(behind) }
    }

    /// A check that has seen the head and is ready for the payload.
    pub(crate) fn start_check(&self) -> Check {
        let mut words = self.words;
        set_check(&mut words, 0);
        let mut check = Check::new();
        check.line(&words);
        check
    }

    pub(crate) fn check(&self) -> u32 {
        (self.words[CHECK_WORD] >> CHECK_SHIFT) as u32
    }

    /// Moves the head's fields into a record whose payload is already there.
    pub(crate) fn fill(&self, record: &mut Record, seq: Seq) {
        let [place, shape, digest, a, b, c, d, e] = self.words;
        record.seq = seq;
        record.core = Core((place >> SEQ_BITS) as u16);
        record.stratum = Stratum(shape as u8);
        record.dropped_before = (shape >> 8) as u8;
        record.check = self.check();
        record.digest = Digest(digest);
        record.words = [a, b, c, d, e];
    }
}

/// Up to 64 bytes as a line, filled up with zeros.
#[inline]
pub(crate) fn line_of(bytes: &[u8]) -> Words {
    // Word by word: filled into a buffer first and read from there, each word would wait for the wide stores before it.
    let mut words = [0; LINE_WORDS];
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*chunk);
    }
    if let Some(word) = words.get_mut(whole.len()) {
        *word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

/// The bytes of a line.
#[inline]
pub(crate) fn bytes_of(words: &Words) -> [u8; LINE_BYTES] {
    let mut bytes = [0; LINE_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Notices damage to a record on its way. Four lanes, so that the multiplications of one line overlap.
///
/// Every step is a bijection of its lane for a given word and of the word for a given lane, so a single changed word always
/// changes the 256 bits of state; what can escape is only what the final folding to 32 bits happens to lose.
pub(crate) struct Check {
    lanes: [u64; 4],
}

/// Odd, with well-mixed bits: the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Check {
    #[inline]
    pub(crate) fn new() -> Self {
        Check { lanes: [1, 2, 3, 4] }
    }

    #[inline]
    pub(crate) fn line(&mut self, line: &Words) {
        for (lane, pair) in self.lanes.iter_mut().zip(line.chunks_exact(2)) {
            for word in pair {
                // The multiplication carries a change upwards only; the shift brings it down, so that the next word can't
                // undo it with one bit.
                let product = (*lane ^ word).wrapping_mul(MULTIPLIER);
                *lane = product ^ (product >> 32);
            }
        }
    }

    #[inline]
    pub(crate) fn finish(&self) -> u32 {
        let mut state = 0_u64;
        for lane in self.lanes {
            state = (state ^ lane ^ (lane >> 32)).wrapping_mul(MULTIPLIER);
            state ^= state >> 29;
        }
        (state.wrapping_mul(MULTIPLIER) >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn check_of(lines: &[Words]) -> u32 {
        let mut check = Check::new();
        lines.iter().for_each(|line| check.line(line));
        check.finish()
    }

    #[test]
    fn every_single_and_double_bit_of_a_head_is_noticed() {
        let line = line_of(b"a head of some record that was written by someone, and its words");
        let good = check_of(&[line]);
        let flip = |line: &Words, bit: usize| {
            let mut line = *line;
            line[bit / 64] ^= 1 << (bit % 64);
            line
        };
        for first in 0..512 {
            let once = flip(&line, first);
            assert_ne!(check_of(&[once]), good, "bit {first}");
            for second in 0..first {
                assert_ne!(check_of(&[flip(&once, second)]), good, "bits {first} and {second}");
            }
        }
        assert_eq!(check_of(&[line]), good);
    }

    #[test]
    fn a_head_says_what_was_drafted() {
        let check = |seq: Seq, near: Seq, length: usize| {
            let payload = vec![7; length];
            let description = Description { words: [1, 2, 3, 4, u64::MAX], payload: &payload };
            let draft =
                Draft { stratum: Stratum(200), core: Core(65_535), digest: Digest(u64::MAX), description };
            let mut words = head(seq, 255, &draft);
            set_check(&mut words, 0xdead_beef);
            let taken = Head::new(words);
            assert_eq!(taken.payload_bytes(), length);
            let mut record = Record { payload: payload.clone(), ..Record::default() };
            taken.fill(&mut record, taken.seq(near));
            let expected = Record {
                seq,
                stratum: draft.stratum,
                core: draft.core,
                digest: draft.digest,
                dropped_before: 255,
                words: description.words,
                payload: payload.clone(),
                check: 0xdead_beef,
                upcoming: None,
            };
            assert_eq!(record, expected);
            assert_eq!(record.head(), words);
        };
        check(1, 1, 0);
        check(1, 0, PAYLOAD_BYTES_MAX);
        check((1 << 48) - 1, 1 << 48, 1);
        check(1 << 48, (1 << 48) - 1, 1);
        check((5 << 48) + 3, (5 << 48) - 100, 64);
    }

    #[test]
    fn lines_keep_bytes() {
        for length in 0..=LINE_BYTES {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            let mut filled = bytes.clone();
            filled.resize(LINE_BYTES, 0);
            assert_eq!(bytes_of(&line_of(&bytes))[..], filled[..]);
        }
    }
}
