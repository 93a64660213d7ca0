//! Two executions that do not agree, as a value.

use std::fmt;
use std::ops::RangeInclusive;

use crate::operator::{Core, Digest, Seq, Stratum};

/// What did not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The second execution decided something else.
    Outcome,
    /// The content of an item is not what its checksum covers.
    Checksum,
    /// The reply's bytes are not those of the second execution.
    Reply,
    /// The record was damaged on its way, so nothing can be said about the execution. No core is to blame.
    Record,
    /// A look-up found nothing where a version was written and neither removed nor given up.
    Lost,
    /// A look-up found another version than the one written last.
    Stale,
    /// A look-up found a version after it was removed.
    Resurrected,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Kind; 7] = [
        Kind::Outcome,
        Kind::Checksum,
        Kind::Reply,
        Kind::Record,
        Kind::Lost,
        Kind::Stale,
        Kind::Resurrected,
    ];
}

/// Two numbers that should be equal, found by a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What did not agree.
    pub kind: Kind,
    /// What the first execution, the majority, or the checksum says.
    pub expected: Digest,
    /// What the second execution, the minority, or the content says.
    pub found: Digest,
    /// The one bit that explains the difference, counted from the lowest: of the digest, or of what
    /// [`flipped_bit`] was asked about.
    pub bit: Option<u64>,
}

/// A disagreement of two executions: everything that is known before anybody votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disagreement {
    /// The class of the execution.
    pub stratum: Stratum,
    /// What did not agree.
    pub kind: Kind,
    /// What the first execution, the majority, or the checksum says.
    pub expected: Digest,
    /// What the second execution, the minority, or the content says.
    pub found: Digest,
    /// The one bit that explains the difference, if one does.
    pub bit: Option<u64>,
    /// Where the first execution took place.
    pub first_core: Core,
    /// Where the second took place.
    pub second_core: Core,
    /// The number of the record, or the first number if several are lost; 0 if there is no record.
    pub seq_first: Seq,
    /// The number of the record, or the last number if several may be lost; 0 if there is no record.
    pub seq_last: Seq,
}

/// Where an execution belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The class of the execution.
    pub stratum: Stratum,
    /// Where the first execution took place.
    pub first_core: Core,
    /// Where the second took place.
    pub second_core: Core,
}

/// Compares two numbers that should be equal.
///
/// # Errors
///
/// When they are not.
#[inline]
pub fn compare(kind: Kind, expected: Digest, found: Digest) -> Result<(), Mismatch> {
    if expected == found { Ok(()) } else { Err(Mismatch::new(kind, expected, found)) }
}

/// The one bit of `bytes` that has to be flipped for `is_right` to hold, if there is one; the bytes are left as they were.
///
/// Bit 0 is the lowest of the first byte. It asks `is_right` once per bit, so the time grows with the square of the
/// length where `is_right` is a checksum: longer contents than `bytes_max` are not tried.
pub fn flipped_bit(
    bytes: &mut [u8],
    bytes_max: usize,
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> Option<u64> {
    if bytes.len() > bytes_max {
        return None;
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = is_right(bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if found {
            return Some(bit as u64);
        }
    }
    None
}

impl Mismatch {
    /// A difference; where the two numbers differ in one bit, it is named.
    #[must_use]
    pub fn new(kind: Kind, expected: Digest, found: Digest) -> Self {
        let difference = expected.0 ^ found.0;
        let bit = difference.is_power_of_two().then(|| u64::from(difference.trailing_zeros()));
        Mismatch { kind, expected, found, bit }
    }

    /// The same, explained by a bit that somebody looked for in what the digests stand for.
    #[must_use]
    pub fn explained_by(self, bit: Option<u64>) -> Self {
        Mismatch { bit: bit.or(self.bit), ..self }
    }
}

impl Disagreement {
    /// The only place where disagreements are made. `seqs` are the records concerned, `0..=0` for none.
    #[must_use]
    pub fn new(site: Site, mismatch: Mismatch, seqs: RangeInclusive<Seq>) -> Self {
        let Site { stratum, first_core, second_core } = site;
        let Mismatch { kind, expected, found, bit } = mismatch;
        let (seq_first, seq_last) = seqs.into_inner();
        Disagreement { stratum, kind, expected, found, bit, first_core, second_core, seq_first, seq_last }
    }

    /// The records concerned.
    #[must_use]
    pub fn seqs(&self) -> RangeInclusive<Seq> {
        self.seq_first..=self.seq_last
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Outcome => "outcome",
            Kind::Checksum => "checksum",
            Kind::Reply => "reply",
            Kind::Record => "record",
            Kind::Lost => "lost",
            Kind::Stale => "stale",
            Kind::Resurrected => "resurrected",
        })
    }
}

impl fmt::Display for Disagreement {
    /// One line of `name=value` pairs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disagreement { stratum, kind, expected, found, first_core, second_core, .. } = self;
        write!(f, "kind={kind} stratum={} expected={expected} found={found}", stratum.0)?;
        if let Some(bit) = self.bit {
            write!(f, " bit={bit}")?;
        }
        write!(f, " first_core={} second_core={} seq={}", first_core.0, second_core.0, self.seq_first)?;
        if self.seq_last != self.seq_first {
            write!(f, "-{}", self.seq_last)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_named_and_two_are_not() {
        let check = |expected, found, bit| {
            assert_eq!(Mismatch::new(Kind::Reply, Digest(expected), Digest(found)).bit, bit);
        };
        check(0, 1, Some(0));
        check(7, 5, Some(1));
        check(0, 1 << 63, Some(63));
        check(0, 3, None);
        check(5, 5, None);
        assert_eq!(compare(Kind::Outcome, Digest(5), Digest(5)), Ok(()));
        assert_eq!(
            compare(Kind::Outcome, Digest(5), Digest(4)),
            Err(Mismatch { kind: Kind::Outcome, expected: Digest(5), found: Digest(4), bit: Some(0) })
        );
    }

    #[test]
    fn a_flipped_bit_is_found_in_the_content() {
        let sum =
            |bytes: &[u8]| bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte));
        let good = *b"some content";
        let expected = sum(&good);
        for bit in 0..good.len() * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = bytes;
            assert_eq!(flipped_bit(&mut bytes, 12, |bytes| sum(bytes) == expected), Some(bit as u64));
            assert_eq!(bytes, damaged, "the evidence is left as it was");
            assert_eq!(flipped_bit(&mut bytes, 11, |bytes| sum(bytes) == expected), None, "too long to try");
        }
        let mut two = good;
        two[0] ^= 1;
        two[11] ^= 128;
        assert_eq!(flipped_bit(&mut two, 12, |bytes| sum(bytes) == expected), None);
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let mut names = Kind::ALL.map(|kind| kind.to_string()).to_vec();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn a_disagreement_is_one_line() {
        let site = Site { stratum: Stratum(3), first_core: Core(1), second_core: Core(2) };
        let mismatch = Mismatch::new(Kind::Checksum, Digest(0x10), Digest(0x11));
        let line = "kind=checksum stratum=3 expected=0000000000000010 found=0000000000000011 bit=0 \
             first_core=1 second_core=2 seq=9";
        assert_eq!(Disagreement::new(site, mismatch, 9..=9).to_string(), line);
        assert_eq!(Disagreement::new(site, mismatch, 9..=11).to_string(), format!("{line}-11"));
        let elsewhere = mismatch.explained_by(Some(77));
        assert_eq!(Disagreement::new(site, elsewhere, 9..=9).to_string(), line.replace("bit=0", "bit=77"));
        assert_eq!(mismatch.explained_by(None), mismatch);
    }
}
