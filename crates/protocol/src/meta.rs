//! Keys and flags of the meta commands.

use memchr::{memchr2, memchr3};

use crate::base64;
use crate::command::{Direction, KEY_BYTES_MAX, MetaArith, MetaDelete, MetaGet, MetaSet, Verb};
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
    /// `None` unless the key has a valid length and encoding, and can stand on a line.
    #[must_use]
    pub fn new(sent: &'a [u8], base64: bool) -> Option<Self> {
        if is_word(sent) { Self::from_line(sent, base64) } else { None }
    }

    /// Takes a word of a line.
    #[inline]
    pub(crate) fn from_line(sent: &'a [u8], base64: bool) -> Option<Self> {
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
    opaque_fits: bool,
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
        FlagWords::new(self.sent)
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

impl<'a> MetaGet<'a> {
    /// `None` unless key and flags are valid. With flag `b` the key is base64.
    #[must_use]
    pub fn new(key: &'a [u8], flags: &'a [u8]) -> Option<Self> {
        let (key, flags) = parse_parts(key, flags, Some(2))?;
        Some(MetaGet { key, flags })
    }
}

impl<'a> MetaSet<'a> {
    /// `None` unless key and flags are valid. With flag `b` the key is base64.
    #[must_use]
    pub fn new(key: &'a [u8], len: u32, flags: &'a [u8]) -> Option<Self> {
        let (key, flags) = parse_parts(key, flags, Some(3))?;
        let verb = flags.verb().ok()?;
        Some(MetaSet { key, len, verb, flags })
    }
}

impl<'a> MetaDelete<'a> {
    /// `None` unless key and flags are valid. With flag `b` the key is base64.
    #[must_use]
    pub fn new(key: &'a [u8], flags: &'a [u8]) -> Option<Self> {
        let (key, flags) = parse_parts(key, flags, Some(2))?;
        Some(MetaDelete { key, flags })
    }
}

impl<'a> MetaArith<'a> {
    /// `None` unless key and flags are valid. With flag `b` the key is base64.
    #[must_use]
    pub fn new(key: &'a [u8], flags: &'a [u8]) -> Option<Self> {
        let (key, flags) = parse_parts(key, flags, None)?;
        let direction = flags.direction().ok()?;
        Some(MetaArith { key, direction, flags })
    }
}

/// Whether these bytes can stand on a line as one word. A `\r` is refused as well: it could be the last one there.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    !bytes.is_empty() && memchr3(b' ', b'\r', b'\n', bytes).is_none()
}

/// Key and flags that do not come from a line, and must not break out of one.
fn parse_parts<'a>(
    key: &'a [u8],
    flags: &'a [u8],
    words: Option<usize>,
) -> Option<(MetaKey<'a>, MetaFlags<'a>)> {
    if !is_word(key) || memchr2(b'\r', b'\n', flags).is_some() {
        return None;
    }
    let parsed = parse(key, flags, words).ok()?;
    parsed.1.check_opaque().is_ok().then_some(parsed)
}

/// Why flags are no flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadFlags {
    /// The line is spoilt as a whole: even a payload that was announced is not taken for one.
    Spoilt,
    /// This is to be answered.
    Text(&'static str),
}

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const INVALID: &str = "CLIENT_ERROR invalid flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const TOO_MANY: &str = "CLIENT_ERROR options flags are too long";
const BAD_INITIAL: &str = "CLIENT_ERROR invalid numeric initial value";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta value";
pub(crate) const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";
const BAD_SET_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
const BAD_ARITH_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";

/// Reads the key and the flags of a meta command; `words` is how many words stand in front of the flags, or `None`
/// where their number has no limit.
#[inline]
pub(crate) fn parse<'a>(
    key: &'a [u8],
    flags: &'a [u8],
    words: Option<usize>,
) -> Result<(MetaKey<'a>, MetaFlags<'a>), BadFlags> {
    let mut parsed = MetaFlags::none(trim(flags));
    let mut count = 0;
    for (letter, token) in parsed.iter() {
        count += 1;
        if !parsed.is_new(letter) || parsed.read(letter, token).is_err() {
            return Err(fault(key, parsed.sent, words));
        }
    }
    match MetaKey::from_line(key, parsed.has(b'b')) {
        Some(key) if words.is_none_or(|words| words + count <= WORDS_MAX) => Ok((key, parsed)),
        _ => Err(fault(key, parsed.sent, words)),
    }
}

/// Which of several faults is told. memcached looks at the line several times; this does so once it is at fault.
#[cold]
fn fault(key: &[u8], flags: &[u8], words: Option<usize>) -> BadFlags {
    let mut parsed = MetaFlags::none(flags);
    if parsed.iter().any(|(letter, _)| !LETTERS.contains(&letter)) {
        return BadFlags::Spoilt;
    }
    if key.len() > KEY_BYTES_MAX {
        return BadFlags::Text(BAD_FORMAT);
    }
    if words.is_some_and(|words| words + parsed.iter().count() > WORDS_MAX) {
        return BadFlags::Text(TOO_MANY);
    }
    // A flag that can't be read is told of after the ones behind it were looked at; the last one's text wins.
    let mut error = None;
    for (letter, token) in parsed.iter() {
        if !parsed.is_new(letter) {
            return BadFlags::Text(DUPLICATE);
        }
        let read = match letter {
            b'b' if MetaKey::from_line(key, true).is_none() => Err(BAD_KEY),
            _ => parsed.read(letter, token),
        };
        match read {
            Ok(()) => {}
            Err(INVALID) => return BadFlags::Text(INVALID),
            // For client flags memcached leaves the text of the error before it.
            Err(BAD_FORMAT) => error = error.or(Some(BAD_FORMAT)),
            Err(text) => error = Some(text),
        }
    }
    BadFlags::Text(error.unwrap_or(BAD_FORMAT))
}

impl<'a> MetaFlags<'a> {
    /// Before any was read.
    #[inline]
    fn none(sent: &'a [u8]) -> Self {
        MetaFlags {
            letters: 0,
            sent,
            exptime: 0,
            vivify: 0,
            recache: 0,
            compare: 0,
            new_cas: 0,
            initial: 0,
            delta: 1,
            client_flags: 0,
            mode: 0,
            opaque_fits: true,
        }
    }
}

impl MetaFlags<'_> {
    /// Notes a letter; false if it is none, or was there before.
    #[inline]
    fn is_new(&mut self, letter: u8) -> bool {
        let new = LETTERS.contains(&letter) && !self.has(letter);
        if new {
            self.letters |= 1 << (letter - b'A');
        }
        new
    }

    /// Keeps what stands behind a letter.
    #[inline]
    fn read(&mut self, letter: u8, token: &[u8]) -> Result<(), &'static str> {
        match letter {
            b'b' | b'c' | b'f' | b'h' | b'k' | b'l' | b'q' | b's' | b't' | b'u' | b'v' | b'x' | b'I'
            | b'L' | b'P' => {}
            b'O' => self.opaque_fits = token.len() <= OPAQUE_BYTES_MAX,
            b'T' => self.exptime = number::signed(token).ok_or(BAD_TOKEN)?,
            b'N' => self.vivify = number::signed(token).ok_or(BAD_TOKEN)?,
            b'R' => self.recache = number::signed(token).ok_or(BAD_TOKEN)?,
            b'C' => self.compare = number::unsigned(token).ok_or(BAD_TOKEN)?,
            b'E' => self.new_cas = number::unsigned(token).ok_or(BAD_TOKEN)?,
            b'J' => self.initial = number::unsigned(token).ok_or(BAD_INITIAL)?,
            b'D' => self.delta = number::unsigned(token).ok_or(BAD_DELTA)?,
            b'F' => {
                let flags = number::unsigned(token).and_then(|flags| u32::try_from(flags).ok());
                self.client_flags = flags.ok_or(BAD_FORMAT)?;
            }
            b'M' => self.mode = token.first().copied().unwrap_or(b' '),
            _ => return Err(INVALID),
        }
        Ok(())
    }

    /// What `M` means to `ms`.
    pub(crate) fn verb(&self) -> Result<Verb, &'static str> {
        match self.mode {
            0 | b'S' => Ok(Verb::Set),
            b'E' => Ok(Verb::Add),
            b'R' => Ok(Verb::Replace),
            b'A' => Ok(Verb::Append),
            b'P' => Ok(Verb::Prepend),
            _ => Err(BAD_SET_MODE),
        }
    }

    /// What `M` means to `ma`.
    pub(crate) fn direction(&self) -> Result<Direction, &'static str> {
        match self.mode {
            0 | b'I' | b'+' => Ok(Direction::Incr),
            b'D' | b'-' => Ok(Direction::Decr),
            _ => Err(BAD_ARITH_MODE),
        }
    }

    /// Whether the opaque is short enough to be repeated.
    pub(crate) fn check_opaque(&self) -> Result<(), &'static str> {
        if self.opaque_fits { Ok(()) } else { Err(LONG_OPAQUE) }
    }
}

#[inline]
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

/// Iterates over the words of meta flags.
#[derive(Clone, Copy, Debug)]
pub struct FlagWords<'a> {
    rest: &'a [u8],
}

impl<'a> FlagWords<'a> {
    /// The flags in `words`, which holds no line end.
    #[must_use]
    pub fn new(words: &'a [u8]) -> Self {
        FlagWords { rest: words }
    }
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
