//! The line protocol: `SET key value`, `GET key`, `DEL key`, `GETALL`, one line each and one line back.
//!
//! | line | answer |
//! |---|---|
//! | `SET key value` | `OK` |
//! | `GET key` | the value, or `(nil)` |
//! | `DEL key` | `1` if there was something, or `0` |
//! | `GETALL` | a JSON object of all string entries |
//! | a command without its key | `MISSING_KEY` |
//! | `SET key` | `MISSING_ARG` |
//! | anything else | `INVALID_COMMAND` |
//!
//! * A line ends with `\n`; a `\r` in front of it is no part of the line. Answers end with `\n`.
//! * Commands are case-sensitive and stand at the very front. Words are separated by blanks; more than one is as good
//!   as one, but for the value: it is the rest of the line behind a single blank, blanks included, and may not be
//!   empty. Behind the key of `GET` and `DEL` nothing but blanks may follow.
//! * Keys are 1 to 250 bytes long; longer ones are an `INVALID_COMMAND`. Lines are at most [`Options::line_bytes_max`]
//!   long; above that the connection is closed.
//! * An entry is a *string entry* if key and value are UTF-8. Others, which only the other protocols can write, are
//!   left out of `GETALL`: JSON has no way to say them, and a replacement would say something else. `GET` answers a
//!   value as it is; one with a line end in it can't be told from two answers, and should be read with another
//!   protocol.

use memchr::memchr;

use crate::command::KEY_BYTES_MAX;
use crate::keys::{blank, word};
use crate::meta::trim;

/// Of `SET`.
pub const OK: &[u8] = b"OK\n";
/// Of `GET`, when there is no item.
pub const NIL: &[u8] = b"(nil)\n";
/// Of `DEL`, when there was an item.
pub const DELETED: &[u8] = b"1\n";
/// Of `DEL`, when there was none.
pub const NOT_FOUND: &[u8] = b"0\n";
/// Of a value that can't be stored.
pub const TOO_LARGE: &[u8] = b"TOO_LARGE\n";
/// Of a value that there is no memory for.
pub const OUT_OF_MEMORY: &[u8] = b"OUT_OF_MEMORY\n";

/// One step of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// There is no whole line yet; nothing was used.
    Incomplete,
    /// A whole line.
    Command {
        /// What is asked.
        command: Command<'a>,
        /// Bytes of the line, terminator included.
        used: usize,
    },
    /// A line that can't be executed.
    Reject {
        /// The line to answer, terminator included.
        answer: &'static [u8],
        /// Bytes of the line, terminator included.
        used: usize,
    },
    /// The line is too long: close the connection without an answer.
    Close,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Store a value.
    Set {
        /// Under which key.
        key: &'a [u8],
        /// The rest of the line; not empty.
        value: &'a [u8],
    },
    /// Tell a value.
    Get {
        /// Of which key.
        key: &'a [u8],
    },
    /// Forget a value.
    Del {
        /// Of which key.
        key: &'a [u8],
    },
    /// Tell everything.
    GetAll,
}

/// What a parser is to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest line, terminator excluded. A line holds a value, so this follows from the item size limit.
    pub line_bytes_max: usize,
}

impl Options {
    /// For values up to this many bytes, with one more for them to be found too large.
    #[must_use]
    pub fn for_values(value_bytes_max: usize) -> Self {
        Options { line_bytes_max: value_bytes_max.saturating_add(KEY_BYTES_MAX + 64) }
    }
}

const MISSING_KEY: &[u8] = b"MISSING_KEY\n";
const MISSING_ARG: &[u8] = b"MISSING_ARG\n";
const INVALID_COMMAND: &[u8] = b"INVALID_COMMAND\n";

/// Takes one line off the front of a connection's unread bytes.
///
/// `searched` bytes at the front are known to hold no line end, so that a long line which arrives in many pieces is
/// not searched again for each of them; 0 is always right.
#[inline]
#[must_use]
pub fn parse<'a>(input: &'a [u8], searched: usize, options: &Options) -> Step<'a> {
    let searched = searched.min(input.len());
    let Some(found) = memchr(b'\n', &input[searched..]) else {
        return if input.len() > options.line_bytes_max { Step::Close } else { Step::Incomplete };
    };
    let end = searched + found;
    if end > options.line_bytes_max {
        return Step::Close;
    }
    let line = &input[..end];
    let used = end + 1;
    match command(line.strip_suffix(b"\r").unwrap_or(line)) {
        Ok(command) => Step::Command { command, used },
        Err(answer) => Step::Reject { answer, used },
    }
}

#[inline]
fn command(line: &[u8]) -> Result<Command<'_>, &'static [u8]> {
    let (verb, rest) = line.split_at(blank(line));
    match verb {
        b"SET" => {
            let (key, rest) = key(rest)?;
            match rest {
                [b' ', value @ ..] if !value.is_empty() => Ok(Command::Set { key, value }),
                _ => Err(MISSING_ARG),
            }
        }
        b"GET" => Ok(Command::Get { key: only_key(rest)? }),
        b"DEL" => Ok(Command::Del { key: only_key(rest)? }),
        b"GETALL" if trim(rest).is_empty() => Ok(Command::GetAll),
        _ => Err(INVALID_COMMAND),
    }
}

#[inline]
fn key(rest: &[u8]) -> Result<(&[u8], &[u8]), &'static [u8]> {
    match word(rest) {
        None => Err(MISSING_KEY),
        Some((key, _)) if key.len() > KEY_BYTES_MAX => Err(INVALID_COMMAND),
        Some(found) => Ok(found),
    }
}

#[inline]
fn only_key(rest: &[u8]) -> Result<&[u8], &'static [u8]> {
    let (key, rest) = key(rest)?;
    if trim(rest).is_empty() { Ok(key) } else { Err(INVALID_COMMAND) }
}

/// The answer of `GET` that found something.
#[inline]
pub fn value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Writes the answer of `GETALL` piece by piece, so that it never has to be in memory as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    entries: u64,
}

impl Object {
    /// Begins.
    #[must_use]
    pub fn open(out: &mut Vec<u8>) -> Self {
        out.push(b'{');
        Object::default()
    }

    /// Adds an entry; returns whether it is a string entry and therefore was added.
    pub fn entry(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> bool {
        let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else {
            return false;
        };
        if self.entries > 0 {
            out.push(b',');
        }
        self.entries += 1;
        string(key, out);
        out.push(b':');
        string(value, out);
        true
    }

    /// Ends.
    pub fn close(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"}\n");
    }
}

/// A JSON string. Beyond what must be escaped, so are the two line separators that some readers take for line ends.
fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(plain) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20 | 0x7f | 0xe2)) {
        out.extend_from_slice(&rest[..plain]);
        let mut taken = 1;
        match &rest[plain..] {
            [b'"', ..] => out.extend_from_slice(br#"\""#),
            [b'\\', ..] => out.extend_from_slice(br"\\"),
            [b'\n', ..] => out.extend_from_slice(br"\n"),
            [b'\r', ..] => out.extend_from_slice(br"\r"),
            [b'\t', ..] => out.extend_from_slice(br"\t"),
            [0xe2, 0x80, last @ (0xa8 | 0xa9), ..] => {
                out.extend_from_slice(if *last == 0xa8 { br"\u2028" } else { br"\u2029" });
                taken = 3;
            }
            [byte @ (..0x20 | 0x7f), ..] => {
                out.extend_from_slice(br"\u00");
                for digit in [byte >> 4, byte & 15] {
                    out.push(b"0123456789abcdef"[usize::from(digit)]);
                }
            }
            other => out.extend_from_slice(&other[..1]),
        }
        rest = &rest[plain + taken..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
