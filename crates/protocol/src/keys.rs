//! The keys of a classic multiget.

use memchr::{memchr2, memrchr};

use crate::command::KEY_BYTES_MAX;
use crate::meta::{is_word, trim};

/// One or more keys, separated by blanks. A copy starts from the first key that was not taken yet.
///
/// Invariant: there is at least one key at first, and none is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
}

impl<'a> Keys<'a> {
    /// `None` unless there is at least one key, all have a valid length, and none could break out of a line.
    #[must_use]
    pub fn new(words: &'a [u8]) -> Option<Self> {
        if memchr2(b'\r', b'\n', words).is_some() { None } else { Self::from_line(words) }
    }

    /// Takes the rest of a line.
    #[inline]
    pub(crate) fn from_line(words: &'a [u8]) -> Option<Self> {
        let words = trim(words);
        (!words.is_empty() && words_fit(words)).then_some(Keys::unchecked(words))
    }

    /// Any words at all.
    #[inline]
    pub(crate) fn unchecked(rest: &'a [u8]) -> Self {
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

/// Whether no word is longer than a key may be. Looks for one blank in each stretch of that length, not for all.
#[inline]
fn words_fit(mut words: &[u8]) -> bool {
    while words.len() > KEY_BYTES_MAX {
        match memrchr(b' ', &words[..=KEY_BYTES_MAX]) {
            Some(blank) => words = &words[blank + 1..],
            None => return false,
        }
    }
    true
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
    Some(text.split_at(blank(text)))
}

/// Where the first blank is, or the end.
///
/// Words are short: for them a call of `memchr` costs more than it finds. This looks at eight bytes at once: a byte
/// of `differs` is zero where a blank is, and the lowest byte that becomes negative is the lowest one that was zero.
#[inline]
pub(crate) fn blank(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const SIGNS: u64 = u64::from_ne_bytes([0x80; 8]);
    const BLANKS: u64 = u64::from_ne_bytes([b' '; 8]);
    let (eights, rest) = text.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        let differs = u64::from_le_bytes(*eight) ^ BLANKS;
        let zeros = differs.wrapping_sub(ONES) & !differs & SIGNS;
        if zeros != 0 {
            return index * 8 + (zeros.trailing_zeros() / 8) as usize;
        }
    }
    let found = rest.iter().position(|byte| *byte == b' ');
    eights.len() * 8 + found.unwrap_or(rest.len())
}

/// Whether these bytes can be sent as a key in text; others need base64 and the meta commands, or the binary protocol.
#[must_use]
pub fn is_text_key(key: &[u8]) -> bool {
    key.len() <= KEY_BYTES_MAX && is_word(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_fit() {
        for len in 1..600 {
            for blank in 0..len {
                let mut words = vec![b'k'; len];
                words[blank] = b' ';
                let expected = blank <= KEY_BYTES_MAX && len - blank - 1 <= KEY_BYTES_MAX;
                assert_eq!(words_fit(&words), expected, "{len} bytes, blank at {blank}");
            }
        }
    }

    #[test]
    fn the_first_blank() {
        // Bytes that differ from a blank by one bit, by one, or in the sign.
        for filler in [b'x', 0, 0x21, 0x1f, 0xa0, 0xff, 0x80, 0x7f] {
            for len in 0..40 {
                let mut text = vec![filler; len];
                assert_eq!(blank(&text), len);
                for at in (0..len).rev() {
                    text[at] = b' ';
                    assert_eq!(blank(&text), at, "{filler} {len}");
                }
            }
        }
    }
}
