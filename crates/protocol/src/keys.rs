//! The keys of a classic multiget.

use memchr::memchr;

/// One or more keys, separated by blanks. A copy starts from the first key that was not taken yet.
///
/// Invariant: made by the parser only, so there is at least one key at first, and none is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Takes a text without line end.
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Keys { rest }
    }

    /// The keys not taken yet, as they were sent.
    #[must_use]
    pub fn as_sent(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (word, rest) = word(self.rest)?;
        self.rest = rest;
        Some(word)
    }
}

/// Splits the first word off, skipping blanks in front of it.
#[inline]
pub(crate) fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut text = text;
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    if text.is_empty() {
        return None;
    }
    let end = memchr(b' ', text).unwrap_or(text.len());
    Some(text.split_at(end))
}
