//! Keys and flags of the meta commands.

use crate::base64;
use crate::command::{Direction, KEY_BYTES_MAX, Verb};
use crate::keys::word;
use crate::number;

/// Longest opaque (flag `O`), in bytes.
pub const OPAQUE_BYTES_MAX: usize = 31;

/// More words than this on a line of `mg`, `ms` or `md` are an error.
const WORDS_MAX: usize = 20;

/// Room for a decoded key.
pub type KeySpace = [u8; KEY_BYTES_MAX];

/// A key as it was sent: bytes, or base64 of them (flag `b`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    /// Invariant: 1 to 250 bytes; with `base64`, valid.
    sent: &'a [u8],
    base64: bool,
}

impl<'a> MetaKey<'a> {
    /// `None` unless the key has a valid length and encoding.
    #[must_use]
    pub fn new(sent: &'a [u8], base64: bool) -> Option<Self> {
        let length_fits = (1..=KEY_BYTES_MAX).contains(&sent.len());
        let decodes = !base64 || base64::decode(sent, &mut [0; KEY_BYTES_MAX]).is_some();
        (length_fits && decodes).then_some(MetaKey { sent, base64 })
    }

    /// As it was sent.
    #[inline]
    #[must_use]
    pub fn sent(&self) -> &'a [u8] {
        self.sent
    }

    /// Whether it was sent as base64.
    #[inline]
    #[must_use]
    pub fn is_base64(&self) -> bool {
        self.base64
    }

    /// The key itself; `space` is only used for what has to be decoded.
    #[inline]
    #[must_use]
    pub fn bytes<'k>(&self, space: &'k mut KeySpace) -> &'k [u8]
    where
        'a: 'k,
    {
        if self.base64 { base64::decode(self.sent, space).unwrap_or(self.sent) } else { self.sent }
    }
}

/// The flags of a meta command, each at most once.
///
/// Which flags mean anything depends on the command; the others are accepted and ignored, as memcached does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    /// Bit n: the letter `A` + n is there.
    letters: u64,
    /// All of them as they were sent, without blanks around them.
    sent: &'a [u8],
    exptime: i64,
    vivify: i64,
    recache: i64,
    compare: u64,
    new_cas: u64,
    initial: u64,
    delta: u64,
    client_flags: u32,
    mode: u8,
}

/// Only these may be first in a word of flags; others spoil the line as a whole.
pub(crate) const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';

impl<'a> MetaFlags<'a> {
    /// Whether this letter was sent.
    #[inline]
    #[must_use]
    pub fn has(&self, letter: u8) -> bool {
        LETTERS.contains(&letter) && self.letters >> (letter - b'A') & 1 != 0
    }

    /// The words in the order they were sent, each a letter and maybe a token behind it.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> FlagWords<'a> {
        FlagWords { rest: self.sent }
    }

    /// All of them as they were sent.
    #[must_use]
    pub fn sent(&self) -> &'a [u8] {
        self.sent
    }

    /// `T`: expiry time as the client wrote it.
    #[inline]
    #[must_use]
    pub fn exptime(&self) -> Option<i64> {
        self.has(b'T').then_some(self.exptime)
    }

    /// `N`: create on a miss, with this expiry time.
    #[inline]
    #[must_use]
    pub fn vivify(&self) -> Option<i64> {
        self.has(b'N').then_some(self.vivify)
    }

    /// `R`: hand out the recache token below this many remaining seconds.
    #[inline]
    #[must_use]
    pub fn recache(&self) -> Option<i64> {
        self.has(b'R').then_some(self.recache)
    }

    /// `C`: the cas id to compare with.
    #[inline]
    #[must_use]
    pub fn compare(&self) -> Option<u64> {
        self.has(b'C').then_some(self.compare)
    }

    /// `E`: the cas id to give.
    #[inline]
    #[must_use]
    pub fn new_cas(&self) -> Option<u64> {
        self.has(b'E').then_some(self.new_cas)
    }

    /// `F`: the client's opaque flags; 0 when not sent.
    #[inline]
    #[must_use]
    pub fn client_flags(&self) -> u32 {
        self.client_flags
    }

    /// `J`: first value of a counter; 0 when not sent.
    #[inline]
    #[must_use]
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// `D`: by how much a counter changes; 1 when not sent.
    #[inline]
    #[must_use]
    pub fn delta(&self) -> u64 {
        self.delta
    }

    /// `q`: the common answer is not wanted.
    #[inline]
    #[must_use]
    pub fn quiet(&self) -> bool {
        self.has(b'q')
    }
}

/// Iterates over the words of meta flags.
#[derive(Clone, Copy, Debug)]
pub struct FlagWords<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for FlagWords<'a> {
    type Item = (u8, &'a [u8]);

    /// The letter, and the token behind it.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (flag, rest) = word(self.rest)?;
        self.rest = rest;
        let (letter, token) = flag.split_first()?;
        Some((*letter, token))
    }
}
