//! Frames from a client to commands, and back.

use super::{BODY_BYTES_MAX, HEADER_BYTES, Head, Header, MAGIC_REQUEST, Status, opcode};
use crate::command::{Direction, KEY_BYTES_MAX, Verb};

/// One step of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// More bytes are needed; nothing was used.
    Incomplete,
    /// A whole request, but for the value of a storage command, which follows without any terminator.
    Command {
        /// What the response repeats, and the cas condition.
        head: Head,
        /// What is asked.
        command: Command<'a>,
        /// Bytes of the request, without such a value.
        used: usize,
    },
    /// A request that can't be executed: answer [`failure`](super::failure) with its status.
    Reject(Reject),
    /// No frame begins here: close the connection without an answer.
    Close,
}

/// How to answer a request that can't be executed. Such an answer is never left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// What the response repeats.
    pub head: Head,
    /// The status to answer.
    pub status: Status,
    /// Bytes of the request that are here.
    pub used: usize,
    /// Bytes after these that belong to it, and are to be dropped unread.
    pub swallow: u64,
    /// Whether the connection is to be closed behind the answer: the lengths can't be trusted.
    pub close: bool,
}

/// One command of the binary protocol. Expiry times are as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Get, GetQ, GetK, GetKQ, GAT, GATQ, GATK, GATKQ.
    Get {
        /// Of what.
        key: &'a [u8],
        /// Whether the response repeats the key, of a miss too (K).
        with_key: bool,
        /// Whether a miss is not answered (Q).
        quiet: bool,
        /// The new expiry time of what is found (GAT).
        touch: Option<u32>,
    },
    /// Touch.
    Touch {
        /// Of what.
        key: &'a [u8],
        /// The new expiry time.
        exptime: u32,
    },
    /// Set, Add, Replace, Append, Prepend and their quiet forms; a value follows.
    Store(Store<'a>),
    /// Delete, DeleteQ.
    Delete {
        /// Of what.
        key: &'a [u8],
        /// Whether success is not answered.
        quiet: bool,
    },
    /// Increment, Decrement and their quiet forms.
    Arith(Arith<'a>),
    /// Flush, FlushQ.
    Flush {
        /// When it takes hold.
        delay: Option<u32>,
        /// Whether success is not answered.
        quiet: bool,
    },
    /// Noop.
    Noop,
    /// Version.
    Version,
    /// Stat.
    Stat {
        /// The name of a group, and maybe more words; empty for the general one.
        key: &'a [u8],
    },
    /// Quit, QuitQ.
    Quit {
        /// Whether it is not answered.
        quiet: bool,
    },
}

impl Command<'_> {
    /// The length of the value that follows a storage command.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> Option<u32> {
        match self {
            Command::Store(store) => Some(store.len),
            _ => None,
        }
    }
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which one.
    pub verb: Verb,
    /// Of what.
    pub key: &'a [u8],
    /// The client's opaque flags; 0 for Append and Prepend.
    pub flags: u32,
    /// The expiry time; 0 for Append and Prepend.
    pub exptime: u32,
    /// Length of the value.
    pub len: u32,
    /// Whether success is not answered.
    pub quiet: bool,
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// Up or down.
    pub direction: Direction,
    /// Of what.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// The value of a counter that has to be created.
    pub initial: u64,
    /// The expiry time of a counter that has to be created; `None`: it is not created.
    pub exptime: Option<u32>,
    /// Whether success is not answered.
    pub quiet: bool,
}

/// The expiry time that forbids to create a counter.
const DO_NOT_CREATE: u32 = u32::MAX;

/// Takes one request off the front of a connection's unread bytes.
///
/// Requests whose lengths make no sense are rejected as soon as the header is here. At most the header, 255 bytes of
/// extras and a key of 250 bytes have to be kept until more arrives.
#[inline]
#[must_use]
pub fn parse(input: &[u8]) -> Step<'_> {
    let Some((header, rest)) = Header::read(input) else {
        return if input.first().is_some_and(|magic| *magic != MAGIC_REQUEST) {
            Step::Close
        } else {
            Step::Incomplete
        };
    };
    if header.magic != MAGIC_REQUEST {
        return Step::Close;
    }
    let reject = |status, swallow, close| {
        Step::Reject(Reject { head: header.head(), status, used: HEADER_BYTES, swallow, close })
    };
    let (key_len, extras_len) = (usize::from(header.key_len), usize::from(header.extras_len));
    let Some(payload_len) = header.body_len.checked_sub((key_len + extras_len) as u32) else {
        return reject(Status::Unknown, 0, true);
    };
    if header.body_len > BODY_BYTES_MAX || key_len > KEY_BYTES_MAX {
        return reject(Status::Invalid, 0, true);
    }
    match shape(header.opcode) {
        // A server without SASL knows its commands well enough to check their lengths, and no better.
        None => return reject(Status::Unknown, u64::from(header.body_len), false),
        Some(shape) if !shape.fits(&header, payload_len) => return reject(Status::Invalid, 0, true),
        Some(_) => {}
    }
    if matches!(header.opcode, opcode::SASL_LIST | opcode::SASL_AUTH | opcode::SASL_STEP) {
        return reject(Status::Unknown, u64::from(header.body_len), false);
    }
    let used = HEADER_BYTES + extras_len + key_len;
    if input.len() < used {
        return Step::Incomplete;
    }
    let (extras, rest) = rest.split_at(extras_len);
    match command(header.opcode, extras, &rest[..key_len], payload_len) {
        Some(command) => Step::Command { head: header.head(), command, used },
        None => reject(Status::Invalid, 0, true),
    }
}

/// Which lengths a command can have.
#[derive(Clone, Copy)]
struct Shape {
    extras: &'static [u8],
    key: Part,
    payload: Part,
}

/// Whether a part of a request has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Never,
    Maybe,
    Always,
}

impl Part {
    fn fits(self, len: u32) -> bool {
        match self {
            Part::Never => len == 0,
            Part::Maybe => true,
            Part::Always => len > 0,
        }
    }
}

impl Shape {
    fn fits(self, header: &Header, payload_len: u32) -> bool {
        self.extras.contains(&header.extras_len)
            && self.key.fits(u32::from(header.key_len))
            && self.payload.fits(payload_len)
    }
}

/// `None` for an unknown opcode.
#[inline]
fn shape(opcode: u8) -> Option<Shape> {
    use opcode::*;
    let (extras, key, payload): (&[u8], _, _) = match opcode {
        GET | GETQ | GETK | GETKQ | DELETE | DELETEQ => (&[0], Part::Always, Part::Never),
        SET | SETQ | ADD | ADDQ | REPLACE | REPLACEQ => (&[8], Part::Always, Part::Maybe),
        APPEND | APPENDQ | PREPEND | PREPENDQ => (&[0], Part::Always, Part::Maybe),
        INCREMENT | INCREMENTQ | DECREMENT | DECREMENTQ => (&[20], Part::Always, Part::Never),
        TOUCH | GAT | GATQ | GATK | GATKQ => (&[4], Part::Always, Part::Never),
        FLUSH | FLUSHQ => (&[0, 4], Part::Never, Part::Never),
        NOOP | VERSION | QUIT | QUITQ | SASL_LIST => (&[0], Part::Never, Part::Never),
        STAT => (&[0], Part::Maybe, Part::Never),
        SASL_AUTH | SASL_STEP => (&[0], Part::Always, Part::Maybe),
        _ => return None,
    };
    Some(Shape { extras, key, payload })
}

/// `None` if the extras are not as long as [`shape`] says.
#[inline]
fn command<'a>(opcode: u8, extras: &[u8], key: &'a [u8], len: u32) -> Option<Command<'a>> {
    use opcode::*;
    let store = |verb, quiet| {
        let (flags, exptime) = if extras.is_empty() { (0, 0) } else { (word(extras, 0)?, word(extras, 4)?) };
        Some(Command::Store(Store { verb, key, flags, exptime, len, quiet }))
    };
    let get = |with_key, quiet, touches: bool| {
        let touch = if touches { Some(word(extras, 0)?) } else { None };
        Some(Command::Get { key, with_key, quiet, touch })
    };
    let arith = |direction, quiet| {
        let exptime = word(extras, 16)?;
        Some(Command::Arith(Arith {
            direction,
            key,
            delta: long(extras, 0)?,
            initial: long(extras, 8)?,
            exptime: (exptime != DO_NOT_CREATE).then_some(exptime),
            quiet,
        }))
    };
    match opcode {
        GET => get(false, false, false),
        GETQ => get(false, true, false),
        GETK => get(true, false, false),
        GETKQ => get(true, true, false),
        GAT => get(false, false, true),
        GATQ => get(false, true, true),
        GATK => get(true, false, true),
        GATKQ => get(true, true, true),
        TOUCH => Some(Command::Touch { key, exptime: word(extras, 0)? }),
        SET => store(Verb::Set, false),
        SETQ => store(Verb::Set, true),
        ADD => store(Verb::Add, false),
        ADDQ => store(Verb::Add, true),
        REPLACE => store(Verb::Replace, false),
        REPLACEQ => store(Verb::Replace, true),
        APPEND => store(Verb::Append, false),
        APPENDQ => store(Verb::Append, true),
        PREPEND => store(Verb::Prepend, false),
        PREPENDQ => store(Verb::Prepend, true),
        DELETE | DELETEQ => Some(Command::Delete { key, quiet: opcode == DELETEQ }),
        INCREMENT => arith(Direction::Incr, false),
        INCREMENTQ => arith(Direction::Incr, true),
        DECREMENT => arith(Direction::Decr, false),
        DECREMENTQ => arith(Direction::Decr, true),
        FLUSH | FLUSHQ => Some(Command::Flush { delay: word(extras, 0), quiet: opcode == FLUSHQ }),
        NOOP => Some(Command::Noop),
        VERSION => Some(Command::Version),
        STAT => Some(Command::Stat { key }),
        QUIT | QUITQ => Some(Command::Quit { quiet: opcode == QUITQ }),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Appends a request; the value of a storage command has to come behind it. The opcode follows from the command, so
/// the one in `head` is not used.
///
/// # Panics
///
/// If a key is longer than [`KEY_BYTES_MAX`].
pub fn encode(head: &Head, command: &Command<'_>, out: &mut Vec<u8>) {
    let mut extras = [0_u8; 20];
    let (key, extras_len, payload_len): (&[u8], usize, u32) = match command {
        Command::Get { key, touch, .. } => match touch {
            None => (key, 0, 0),
            Some(exptime) => {
                extras[..4].copy_from_slice(&exptime.to_be_bytes());
                (key, 4, 0)
            }
        },
        Command::Touch { key, exptime } => {
            extras[..4].copy_from_slice(&exptime.to_be_bytes());
            (key, 4, 0)
        }
        Command::Store(store) if matches!(store.verb, Verb::Append | Verb::Prepend) => {
            (store.key, 0, store.len)
        }
        Command::Store(store) => {
            extras[..4].copy_from_slice(&store.flags.to_be_bytes());
            extras[4..8].copy_from_slice(&store.exptime.to_be_bytes());
            (store.key, 8, store.len)
        }
        Command::Delete { key, .. } | Command::Stat { key } => (key, 0, 0),
        Command::Arith(arith) => {
            extras[..8].copy_from_slice(&arith.delta.to_be_bytes());
            extras[8..16].copy_from_slice(&arith.initial.to_be_bytes());
            extras[16..].copy_from_slice(&arith.exptime.unwrap_or(DO_NOT_CREATE).to_be_bytes());
            (arith.key, 20, 0)
        }
        Command::Flush { delay: Some(delay), .. } => {
            extras[..4].copy_from_slice(&delay.to_be_bytes());
            (b"", 4, 0)
        }
        Command::Flush { delay: None, .. } | Command::Noop | Command::Version | Command::Quit { .. } => {
            (b"", 0, 0)
        }
    };
    assert!(key.len() <= KEY_BYTES_MAX, "a key has a length that was checked");
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: code(command),
        key_len: key.len() as u16,
        extras_len: extras_len as u8,
        status: 0,
        body_len: (extras_len + key.len()) as u32 + payload_len,
        opaque: head.opaque,
        cas: head.cas,
    };
    header.write(out);
    out.extend_from_slice(&extras[..extras_len]);
    out.extend_from_slice(key);
}

/// The opcode of a command.
fn code(command: &Command<'_>) -> u8 {
    use opcode::*;
    let (loud, silent) = match command {
        Command::Get { with_key, touch, .. } => match (with_key, touch) {
            (false, None) => (GET, GETQ),
            (true, None) => (GETK, GETKQ),
            (false, Some(_)) => (GAT, GATQ),
            (true, Some(_)) => (GATK, GATKQ),
        },
        Command::Touch { .. } => (TOUCH, TOUCH),
        Command::Store(store) => match store.verb {
            Verb::Set => (SET, SETQ),
            Verb::Add => (ADD, ADDQ),
            Verb::Replace => (REPLACE, REPLACEQ),
            Verb::Append => (APPEND, APPENDQ),
            Verb::Prepend => (PREPEND, PREPENDQ),
        },
        Command::Delete { .. } => (DELETE, DELETEQ),
        Command::Arith(arith) => match arith.direction {
            Direction::Incr => (INCREMENT, INCREMENTQ),
            Direction::Decr => (DECREMENT, DECREMENTQ),
        },
        Command::Flush { .. } => (FLUSH, FLUSHQ),
        Command::Noop => (NOOP, NOOP),
        Command::Version => (VERSION, VERSION),
        Command::Stat { .. } => (STAT, STAT),
        Command::Quit { .. } => (QUIT, QUITQ),
    };
    let quiet = match command {
        Command::Get { quiet, .. }
        | Command::Delete { quiet, .. }
        | Command::Flush { quiet, .. }
        | Command::Quit { quiet } => *quiet,
        Command::Store(store) => store.quiet,
        Command::Arith(arith) => arith.quiet,
        _ => false,
    };
    if quiet { silent } else { loud }
}
