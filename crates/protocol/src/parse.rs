//! Text from a client to commands.

use memchr::memchr;

use crate::command::{
    Command, Debugtime, Direction, KEY_BYTES_MAX, MetaArith, MetaDelete, MetaGet, MetaSet, Options, Reject,
    Shutdown, Step, Store, Verb,
};
use crate::keys::{Keys, blank, word};
use crate::meta::{self, BAD_FORMAT, BadFlags, MetaFlags, MetaKey};
use crate::number;

/// A line may be this long, without its terminator.
const LINE_BYTES_MAX: usize = 2048;

/// Blanks in front of a multiget that may be longer than that.
const BLANKS_MAX: usize = 100;

/// Shorter lines, terminator included, are no commands, even if they read `mn`.
const LINE_BYTES_MIN: usize = 4;

/// Longest payload that can be announced; its terminator still fits a signed number of 32 bits.
const PAYLOAD_BYTES_MAX: i32 = i32::MAX - 2;

/// Bytes behind a payload.
const TERMINATOR: &[u8; 2] = b"\r\n";

const UNKNOWN: &str = "ERROR";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_META_ARITH: &str = "CLIENT_ERROR invalid or duplicate flag";

/// Why a line is no command.
enum Fault {
    Reject { error: &'static str, swallow: u64, quiet: bool },
    Close,
}

impl Fault {
    fn text(error: &'static str) -> Self {
        Fault::Reject { error, swallow: 0, quiet: false }
    }

    fn maybe_quiet(error: &'static str, quiet: bool) -> Self {
        Fault::Reject { error, swallow: 0, quiet }
    }

    /// The payload that was announced goes with the line.
    fn with_payload(error: &'static str, len: u32, quiet: bool) -> Self {
        Fault::Reject { error, swallow: u64::from(len) + TERMINATOR.len() as u64, quiet }
    }
}

type Parsed<'a> = Result<Command<'a>, Fault>;

/// Takes one command line off the front of a connection's unread bytes.
///
/// The result depends on the bytes alone, not on how many of them have arrived: a line that is too long is refused
/// whether or not its end is here already.
#[inline]
#[must_use]
pub fn parse<'a>(input: &'a [u8], options: &Options) -> Step<'a> {
    let Some(end) = memchr(b'\n', input) else {
        return if is_too_long(input, input.len(), options) { Step::Close } else { Step::Incomplete };
    };
    if is_too_long(input, end, options) {
        return Step::Close;
    }
    let used = end + 1;
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if used < LINE_BYTES_MIN {
        return Step::Reject(Reject { error: BAD_FORMAT, used, swallow: 0, quiet: false });
    }
    match command(line, options) {
        Ok(command) => Step::Command { command, used },
        Err(Fault::Reject { error, swallow, quiet }) => Step::Reject(Reject { error, used, swallow, quiet }),
        Err(Fault::Close) => Step::Close,
    }
}

/// Whether a line of which `len` bytes are known can't be borne.
#[inline]
fn is_too_long(line: &[u8], len: usize, options: &Options) -> bool {
    len > LINE_BYTES_MAX && (len > options.multiget_bytes_max.max(LINE_BYTES_MAX) || !is_multiget(line))
}

/// memcached bears long lines of `get` and `gets` alone, but others too if they arrive at once; which of them do, is
/// chance. Here the commands with any number of keys are the ones that may be long.
fn is_multiget(line: &[u8]) -> bool {
    let blanks = line.iter().take_while(|byte| **byte == b' ').count();
    let line = &line[blanks..];
    let verbs = [&b"get "[..], b"gets ", b"gat ", b"gats "];
    blanks <= BLANKS_MAX && verbs.iter().any(|verb| line.starts_with(verb))
}

/// The payload of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// It has not arrived as a whole.
    Incomplete,
    /// It is here.
    Complete {
        /// The value, without terminator.
        value: &'a [u8],
        /// Bytes it takes, terminator included.
        used: usize,
    },
    /// It does not end where it should: answer [`text::BAD_DATA_CHUNK`](crate::text::BAD_DATA_CHUNK). What was
    /// announced is used up all the same, and the bytes behind it are taken for a command.
    Malformed {
        /// Bytes it takes.
        used: usize,
    },
}

/// Takes the payload of a storage command off the front of the bytes behind its line.
#[inline]
#[must_use]
pub fn payload(input: &[u8], len: u32) -> Payload<'_> {
    let len = len as usize;
    let used = len + TERMINATOR.len();
    match input.get(..used) {
        None => Payload::Incomplete,
        Some(bytes) if bytes[len..] == *TERMINATOR => Payload::Complete { value: &bytes[..len], used },
        Some(_) => Payload::Malformed { used },
    }
}

#[inline]
fn command<'a>(line: &'a [u8], options: &Options) -> Parsed<'a> {
    let (verb, rest) = line.split_at(blank(line));
    match verb {
        b"get" => get(rest, false),
        b"set" => store(rest, Verb::Set, false),
        b"mg" => {
            let (key, flags) = meta(rest, Some(2))?;
            Ok(Command::MetaGet(MetaGet { key, flags: with_opaque(flags)? }))
        }
        b"ms" => meta_set(rest),
        b"gets" => get(rest, true),
        b"delete" => delete(rest),
        b"md" => {
            let (key, flags) = meta(rest, Some(2))?;
            Ok(Command::MetaDelete(MetaDelete { key, flags: with_opaque(flags)? }))
        }
        b"add" => store(rest, Verb::Add, false),
        b"replace" => store(rest, Verb::Replace, false),
        b"append" => store(rest, Verb::Append, false),
        b"prepend" => store(rest, Verb::Prepend, false),
        b"cas" => store(rest, Verb::Set, true),
        b"incr" => arith(rest, Direction::Incr),
        b"decr" => arith(rest, Direction::Decr),
        b"touch" => touch(rest),
        b"gat" => get_and_touch(rest, false),
        b"gats" => get_and_touch(rest, true),
        b"ma" => meta_arith(rest),
        b"mn" => Ok(Command::MetaNoop),
        b"me" => meta_debug(rest),
        b"stats" => Ok(Command::Stats(meta::trim(rest))),
        b"watch" => Ok(Command::Watch(meta::trim(rest))),
        b"version" => Ok(Command::Version),
        b"quit" => Ok(Command::Quit),
        _ => rare(line, options),
    }
}

/// The commands that are also recognised behind blanks, and what is none at all.
#[cold]
fn rare<'a>(line: &'a [u8], options: &Options) -> Parsed<'a> {
    let Some((verb, rest)) = word(line) else { return Err(Fault::text(UNKNOWN)) };
    let words = meta::trim(rest);
    let last = Keys::unchecked(words).last();
    let noreply = ends_with_noreply(words);
    match verb {
        b"flush_all" => flush_all(words, noreply),
        b"verbosity" => Ok(Command::Verbosity(words)),
        b"cache_memlimit" => Ok(Command::CacheMemlimit(words)),
        b"lru" => Ok(Command::Lru(words)),
        b"lru_crawler" => Ok(Command::LruCrawler(words)),
        b"slabs" => Ok(Command::Slabs(words)),
        b"refresh_certs" => Ok(Command::RefreshCerts { noreply }),
        b"shutdown" => Ok(Command::Shutdown(match words {
            b"" => Shutdown::Now,
            b"graceful" => Shutdown::Graceful,
            _ => Shutdown::Unknown,
        })),
        b"debugtime" if options.debugtime => match words {
            b"p" => Ok(Command::Debugtime(Debugtime::Pause)),
            b"r" => Ok(Command::Debugtime(Debugtime::Resume)),
            shift => match number::signed(shift) {
                Some(seconds) => Ok(Command::Debugtime(Debugtime::Shift(seconds))),
                None => Err(Fault::text(UNKNOWN)),
            },
        },
        _ if last.is_some_and(|last| last.starts_with(b"HTTP/")) => Err(Fault::Close),
        _ => Err(Fault::maybe_quiet(UNKNOWN, noreply)),
    }
}

#[inline]
fn keys(words: &[u8]) -> Result<Keys<'_>, Fault> {
    Keys::from_line(words).ok_or(Fault::text(BAD_FORMAT))
}

#[inline]
fn get(rest: &[u8], with_cas: bool) -> Parsed<'_> {
    Ok(Command::Get { keys: keys(rest)?, with_cas, touch: None })
}

fn get_and_touch(rest: &[u8], with_cas: bool) -> Parsed<'_> {
    let Some((exptime, rest)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let rest = meta::trim(rest);
    if rest.is_empty() {
        return Err(Fault::text(BAD_FORMAT));
    }
    let Some(exptime) = number::strict_i32(exptime) else { return Err(Fault::text(BAD_EXPTIME)) };
    Ok(Command::Get { keys: keys(rest)?, with_cas, touch: Some(i64::from(exptime)) })
}

/// The length that a storage command announces for its payload.
#[inline]
fn payload_len(word: &[u8]) -> Result<u32, Fault> {
    match number::strict_i32(word) {
        Some(len @ 0..=PAYLOAD_BYTES_MAX) => Ok(len.unsigned_abs()),
        _ => Err(Fault::text(BAD_FORMAT)),
    }
}

/// `<key> <flags> <exptime> <len> [<cas>] [noreply]`
#[inline]
fn store(rest: &[u8], verb: Verb, with_cas: bool) -> Parsed<'_> {
    let mut words = Keys::unchecked(rest);
    let mut next = || words.next().ok_or(Fault::text(BAD_FORMAT));
    let (key, flags, exptime, len) = (next()?, next()?, next()?, next()?);
    let len = payload_len(len)?;
    // What comes next is the cas id or `noreply`; memcached looks for `noreply` in the last place only.
    let extra = words.next();
    let noreply = extra.is_some() && ends_with_noreply(rest);
    // From here on the payload is known to come.
    let bad = || Fault::with_payload(BAD_FORMAT, len, noreply);
    if key.len() > KEY_BYTES_MAX {
        return Err(bad());
    }
    // memcached takes 64 bits and keeps 32 of them.
    let flags = number::unsigned(flags).ok_or_else(bad)? as u32;
    let exptime = number::signed(exptime).ok_or_else(bad)?;
    let cas = match with_cas {
        true => Some(extra.and_then(number::unsigned).ok_or_else(bad)?),
        false => None,
    };
    Ok(Command::Store(Store { verb, key, flags, exptime, len, cas, noreply }))
}

/// Whether the last word is `noreply`.
#[inline]
fn ends_with_noreply(words: &[u8]) -> bool {
    match meta::trim(words).strip_suffix(b"noreply") {
        Some(front) => front.is_empty() || front.ends_with(b" "),
        None => false,
    }
}

/// The key of a command, the words behind it, and whether the last word is `noreply`.
#[inline]
fn key_and_noreply(rest: &[u8], arguments_min: usize) -> Result<(&[u8], Keys<'_>, bool), Fault> {
    let Some((key, arguments)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let arguments = meta::trim(arguments);
    if arguments_min > 0 && arguments.is_empty() {
        return Err(Fault::text(BAD_FORMAT));
    }
    let noreply = ends_with_noreply(if arguments.is_empty() { key } else { arguments });
    if key.len() > KEY_BYTES_MAX {
        return Err(Fault::maybe_quiet(BAD_FORMAT, noreply));
    }
    Ok((key, Keys::unchecked(arguments), noreply))
}

/// `<key> [<ignored>] [noreply]`
///
/// Old clients send a number behind the key. More words than that are a mistake, which memcached has stopped to
/// report; conformance tests still want it to.
fn delete(rest: &[u8]) -> Parsed<'_> {
    let (key, words, noreply) = key_and_noreply(rest, 0)?;
    if words.count() > 2 {
        return Err(Fault::maybe_quiet(BAD_FORMAT, noreply));
    }
    Ok(Command::Delete { key, noreply })
}

/// `<key> <delta> [noreply]`
fn arith(rest: &[u8], direction: Direction) -> Parsed<'_> {
    let (key, mut words, noreply) = key_and_noreply(rest, 1)?;
    match words.next().and_then(number::unsigned) {
        Some(delta) => Ok(Command::Arith { direction, key, delta, noreply }),
        None => Err(Fault::maybe_quiet(BAD_DELTA, noreply)),
    }
}

/// `<key> <exptime> [noreply]`
fn touch(rest: &[u8]) -> Parsed<'_> {
    let (key, mut words, noreply) = key_and_noreply(rest, 1)?;
    match words.next().and_then(number::signed) {
        Some(exptime) => Ok(Command::Touch { key, exptime, noreply }),
        None => Err(Fault::maybe_quiet(BAD_EXPTIME, noreply)),
    }
}

/// `[<delay>] [noreply]`
fn flush_all(words: &[u8], noreply: bool) -> Parsed<'_> {
    let mut each = Keys::unchecked(words);
    let delay = match (each.next(), each.next()) {
        (None, _) => None,
        (Some(_), None) if noreply => None,
        (Some(delay), _) => match number::strict_i32(delay) {
            Some(delay) => Some(delay),
            None => return Err(Fault::maybe_quiet(BAD_EXPTIME, noreply)),
        },
    };
    Ok(Command::FlushAll { delay, noreply })
}

impl From<BadFlags> for Fault {
    fn from(bad: BadFlags) -> Self {
        match bad {
            BadFlags::Spoilt => Fault::text(BAD_FORMAT),
            BadFlags::Text(error) => Fault::text(error),
        }
    }
}

/// `<key> <flag>*`
#[inline]
fn meta(rest: &[u8], words: Option<usize>) -> Result<(MetaKey<'_>, MetaFlags<'_>), Fault> {
    let Some((key, flags)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    Ok(meta::parse(key, flags, words)?)
}

#[inline]
fn with_opaque(flags: MetaFlags<'_>) -> Result<MetaFlags<'_>, Fault> {
    flags.check_opaque().map_err(Fault::text)?;
    Ok(flags)
}

/// `<key> <len> <flag>*`
#[inline]
fn meta_set(rest: &[u8]) -> Parsed<'_> {
    let Some((key, rest)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let Some((len, flags)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let len = payload_len(len)?;
    let bad = |error| Fault::with_payload(error, len, false);
    let (key, flags) = meta::parse(key, flags, Some(3)).map_err(|error| match error {
        BadFlags::Spoilt => Fault::text(BAD_FORMAT),
        BadFlags::Text(error) => bad(error),
    })?;
    let verb = flags.verb().map_err(bad)?;
    flags.check_opaque().map_err(bad)?;
    Ok(Command::MetaSet(MetaSet { key, len, verb, flags }))
}

/// `<key> <flag>*`; whatever is wrong with the flags, memcached calls it the same.
fn meta_arith(rest: &[u8]) -> Parsed<'_> {
    let Some((key, flags)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let (key, flags) = meta::parse(key, flags, None).map_err(|error| match error {
        BadFlags::Spoilt => Fault::text(BAD_FORMAT),
        BadFlags::Text(_) => Fault::text(BAD_META_ARITH),
    })?;
    let direction = flags.direction().map_err(Fault::text)?;
    Ok(Command::MetaArith(MetaArith { key, direction, flags: with_opaque(flags)? }))
}

/// `<key> [b]`
fn meta_debug(rest: &[u8]) -> Parsed<'_> {
    let Some((key, flags)) = word(rest) else { return Err(Fault::text(BAD_FORMAT)) };
    let base64 = Keys::unchecked(flags).any(|flag| flag == b"b");
    match MetaKey::from_line(key, base64) {
        Some(key) => Ok(Command::MetaDebug { key }),
        None => Err(Fault::text(BAD_FORMAT)),
    }
}
