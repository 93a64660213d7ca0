//! Replies of a server that speaks text, classic and meta, as a client reads them.
//!
//! Which replies a command has is for the client to know: `get` has values and an `END`, a quiet meta command may
//! have none. This parser takes one reply after the other off the bytes that came.

use memchr::memchr;

use crate::keys::{Keys, blank, word};
use crate::meta::{FlagWords, trim};
use crate::number::digits;
use crate::text::CRLF;

/// Longest line of a reply. Keys, flags and errors are far shorter; statistics may hold paths.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Longest value; memcached's upper limit for the size of an item.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `STORED`
    Stored,
    /// `NOT_STORED`, or `NS`.
    NotStored(ReplyFlags<'a>),
    /// `EXISTS`, or `EX`.
    Exists(ReplyFlags<'a>),
    /// `NOT_FOUND`, or `NF`.
    NotFound(ReplyFlags<'a>),
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `RESET`
    Reset,
    /// `END`
    End,
    /// `VERSION …`
    Version(&'a [u8]),
    /// A number alone.
    Number(u64),
    /// `VALUE …`
    Value {
        /// The key.
        key: &'a [u8],
        /// The client's opaque flags.
        flags: u32,
        /// The cas id, if it was asked for.
        cas: Option<u64>,
        /// The value.
        value: &'a [u8],
    },
    /// `STAT …`
    Stat {
        /// The name.
        name: &'a [u8],
        /// The rest of the line.
        value: &'a [u8],
    },
    /// `HD`
    MetaDone(ReplyFlags<'a>),
    /// `VA`
    MetaValue {
        /// The value.
        value: &'a [u8],
        /// What else was asked for.
        flags: ReplyFlags<'a>,
    },
    /// `EN`: a miss, or the end of a list.
    MetaMiss(ReplyFlags<'a>),
    /// `MN`
    MetaNoop,
    /// `ME …`: the key, and the rest of the line.
    MetaDebug {
        /// The key as it was sent.
        key: &'a [u8],
        /// Pairs `name=value`.
        facts: &'a [u8],
    },
    /// `ERROR`, maybe with a text.
    Error(&'a [u8]),
    /// `CLIENT_ERROR …`
    ClientError(&'a [u8]),
    /// `SERVER_ERROR …`
    ServerError(&'a [u8]),
    /// Any other line.
    Other(&'a [u8]),
}

/// What a meta reply tells beside its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyFlags<'a>(&'a [u8]);

impl<'a> ReplyFlags<'a> {
    /// The token behind a letter, if the letter was sent.
    #[must_use]
    pub fn token(&self, letter: u8) -> Option<&'a [u8]> {
        self.iter().find_map(|(found, token)| (found == letter).then_some(token))
    }

    /// The number behind a letter.
    #[must_use]
    pub fn number(&self, letter: u8) -> Option<u64> {
        self.token(letter).and_then(digits)
    }

    /// All of them in the order they were sent.
    #[must_use]
    pub fn iter(&self) -> FlagWords<'a> {
        FlagWords::new(self.0)
    }
}

/// One step of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// More must come; nothing was used.
    Incomplete {
        /// At least this many bytes, counted from the front of the input, are worth waiting for.
        needed: usize,
    },
    /// A whole reply.
    Reply {
        /// What it says.
        reply: Reply<'a>,
        /// Its bytes.
        used: usize,
    },
    /// What is there is no reply, so nothing behind it can be trusted: close the connection.
    Garbage,
}

/// Takes one reply off the front of a connection's unread bytes.
#[must_use]
pub fn parse(input: &[u8]) -> Step<'_> {
    let Some(end) = memchr(b'\n', input) else {
        let too_long = input.len() > LINE_BYTES_MAX;
        return if too_long { Step::Garbage } else { Step::Incomplete { needed: input.len() + 1 } };
    };
    if end > LINE_BYTES_MAX {
        return Step::Garbage;
    }
    let used = end + 1;
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (verb, rest) = line.split_at(blank(line));
    match verb {
        b"VALUE" => classic_value(rest, input, used),
        b"VA" => meta_value(rest, input, used),
        _ => match single_line(verb, rest, line) {
            Some(reply) => Step::Reply { reply, used },
            None => Step::Garbage,
        },
    }
}

/// `VALUE <key> <flags> <len> [<cas>]`
fn classic_value<'a>(rest: &'a [u8], input: &'a [u8], used: usize) -> Step<'a> {
    let mut words = Keys::unchecked(rest);
    let key = words.next();
    let flags = words.next().and_then(digits).and_then(|flags| u32::try_from(flags).ok());
    let len = words.next().and_then(digits);
    let cas = words.next();
    let (Some(key), Some(flags), Some(len)) = (key, flags, len) else { return Step::Garbage };
    let cas = match cas.map(digits) {
        Some(None) => return Step::Garbage,
        Some(some) => some,
        None => None,
    };
    with_value(input, used, len, |value| Reply::Value { key, flags, cas, value })
}

/// `VA <len> <flag>*`
fn meta_value<'a>(rest: &'a [u8], input: &'a [u8], used: usize) -> Step<'a> {
    let Some((len, flags)) = word(rest) else { return Step::Garbage };
    let Some(len) = digits(len) else { return Step::Garbage };
    let flags = ReplyFlags(trim(flags));
    with_value(input, used, len, |value| Reply::MetaValue { value, flags })
}

/// A reply with a value of `len` bytes behind its line.
fn with_value<'a>(
    input: &'a [u8],
    line: usize,
    len: u64,
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
) -> Step<'a> {
    if len > VALUE_BYTES_MAX {
        return Step::Garbage;
    }
    let end = line + len as usize;
    let used = end + CRLF.len();
    match input.get(end..used) {
        None => Step::Incomplete { needed: used },
        Some(terminator) if terminator == CRLF => Step::Reply { reply: reply(&input[line..end]), used },
        Some(_) => Step::Garbage,
    }
}

/// Every reply that has no value; `None` if it is garbage.
fn single_line<'a>(verb: &'a [u8], rest: &'a [u8], line: &'a [u8]) -> Option<Reply<'a>> {
    let text = rest.strip_prefix(b" ").unwrap_or(rest);
    let flags = ReplyFlags(trim(rest));
    let reply = match verb {
        b"STORED" => Reply::Stored,
        b"NOT_STORED" | b"NS" => Reply::NotStored(flags),
        b"EXISTS" | b"EX" => Reply::Exists(flags),
        b"NOT_FOUND" | b"NF" => Reply::NotFound(flags),
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"OK" => Reply::Ok,
        b"RESET" => Reply::Reset,
        b"END" => Reply::End,
        b"VERSION" => Reply::Version(text),
        b"STAT" => {
            let (name, value) = word(rest)?;
            Reply::Stat { name, value: value.strip_prefix(b" ").unwrap_or(value) }
        }
        b"HD" => Reply::MetaDone(flags),
        b"EN" => Reply::MetaMiss(flags),
        b"MN" => Reply::MetaNoop,
        b"ME" => {
            let (key, facts) = word(rest)?;
            Reply::MetaDebug { key, facts: trim(facts) }
        }
        b"ERROR" => Reply::Error(text),
        b"CLIENT_ERROR" => Reply::ClientError(text),
        b"SERVER_ERROR" | b"SERVER_ERROR:" => Reply::ServerError(text),
        _ => digits(line).map_or(Reply::Other(line), Reply::Number),
    };
    Some(reply)
}
