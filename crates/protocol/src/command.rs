//! What a client asks for: the classic and the meta commands of the text protocol, as they come out of the parser.
//!
//! Everything borrows from the bytes that were parsed; nothing here owns memory or knows what a command does.

use crate::keys::Keys;
use crate::meta::{MetaFlags, MetaKey};

/// Longest key, in bytes, in whichever protocol.
pub const KEY_BYTES_MAX: usize = 250;

/// One step of parsing: looks at the unread bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// There is no whole line yet; nothing was used. The bytes that stay unread are bounded by [`Options`].
    Incomplete,
    /// A whole command line. Behind a storage command ([`Command::payload`]) comes a payload that was not looked at.
    Command {
        /// What is asked.
        command: Command<'a>,
        /// Bytes of the line, terminator included.
        used: usize,
    },
    /// A line that can't be executed.
    Reject(Reject),
    /// The other side does not speak this protocol or broke a limit: close the connection without an answer.
    Close,
}

/// How to answer a line that can't be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The text to answer, without `\r\n`.
    pub error: &'static str,
    /// Bytes of the line, terminator included.
    pub used: usize,
    /// Bytes after the line that belong to it, and are to be dropped unread: a payload with its terminator.
    pub swallow: u64,
    /// Whether the client asked not to be answered (`noreply`).
    pub quiet: bool,
}

/// What a parser is to recognise and to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A line of `get`, `gets`, `gat` or `gats` may be this long; above that the connection is closed.
    pub multiget_bytes_max: usize,
    /// Whether `debugtime` is a command.
    pub debugtime: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { multiget_bytes_max: 1 << 20, debugtime: false }
    }
}

/// One command of the text protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        /// At least one key, each of a valid length.
        keys: Keys<'a>,
        /// Whether cas ids are shown (`gets`, `gats`).
        with_cas: bool,
        /// The new expiry time of what is found (`gat`, `gats`).
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`; a payload follows.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// Of what.
        key: &'a [u8],
        /// No answer is wanted.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arith {
        /// Up or down.
        direction: Direction,
        /// Of what.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Of what.
        key: &'a [u8],
        /// The new expiry time, as the client wrote it.
        exptime: i64,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `mg`.
    MetaGet(MetaGet<'a>),
    /// `ms`; a payload follows.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(MetaDelete<'a>),
    /// `ma`.
    MetaArith(MetaArith<'a>),
    /// `mn`.
    MetaNoop,
    /// `me`.
    MetaDebug {
        /// Of what.
        key: MetaKey<'a>,
    },
    /// `stats`, with the words after it.
    Stats(&'a [u8]),
    /// `flush_all`.
    FlushAll {
        /// When it takes hold, as the client wrote it; not above zero, or nothing: at once.
        delay: Option<i32>,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// `shutdown`.
    Shutdown(Shutdown),
    /// `verbosity`, with the words after it.
    Verbosity(&'a [u8]),
    /// `cache_memlimit`, with the words after it.
    CacheMemlimit(&'a [u8]),
    /// `lru`, with the words after it.
    Lru(&'a [u8]),
    /// `lru_crawler`, with the words after it.
    LruCrawler(&'a [u8]),
    /// `slabs`, with the words after it.
    Slabs(&'a [u8]),
    /// `watch`, with the words after it.
    Watch(&'a [u8]),
    /// `refresh_certs`.
    RefreshCerts {
        /// No answer is wanted.
        noreply: bool,
    },
    /// `debugtime`, only with [`Options::debugtime`].
    Debugtime(Debugtime),
}

impl Command<'_> {
    /// The length of the payload that follows a storage command, without its terminator of two bytes.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> Option<u32> {
        match self {
            Command::Store(store) => Some(store.len),
            Command::MetaSet(set) => Some(set.len),
            _ => None,
        }
    }
}

/// A classic storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which one; [`Verb::Set`] for `cas`, too.
    pub verb: Verb,
    /// Of what.
    pub key: &'a [u8],
    /// The client's opaque flags.
    pub flags: u32,
    /// The expiry time as the client wrote it.
    pub exptime: i64,
    /// Length of the payload, without its terminator.
    pub len: u32,
    /// Store only if the item has this cas id (`cas`).
    pub cas: Option<u64>,
    /// No answer is wanted.
    pub noreply: bool,
}

/// How a storage command treats what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Whatever is there is replaced.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// Behind what is there.
    Append,
    /// In front of what is there.
    Prepend,
}

/// Direction of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Wraps at 2^64.
    Incr,
    /// Stops at zero.
    Decr,
}

/// `mg`: with the flags `C E N R T` as values, `b c f h k l q s t u v` as requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet<'a> {
    /// Of what.
    pub key: MetaKey<'a>,
    /// Everything else.
    pub flags: MetaFlags<'a>,
}

/// `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// Of what.
    pub key: MetaKey<'a>,
    /// Length of the payload, without its terminator.
    pub len: u32,
    /// The mode (flag `M`).
    pub verb: Verb,
    /// Everything else.
    pub flags: MetaFlags<'a>,
}

/// `md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDelete<'a> {
    /// Of what.
    pub key: MetaKey<'a>,
    /// Everything else.
    pub flags: MetaFlags<'a>,
}

/// `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArith<'a> {
    /// Of what.
    pub key: MetaKey<'a>,
    /// The mode (flag `M`).
    pub direction: Direction,
    /// Everything else.
    pub flags: MetaFlags<'a>,
}

/// What `shutdown` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Stop.
    Now,
    /// Stop, having finished what was begun.
    Graceful,
    /// Some other word; memcached answers `CLIENT_ERROR invalid shutdown mode` where shutdown is allowed at all.
    Unknown,
}

/// What `debugtime` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugtime {
    /// `p`: the clock stands still.
    Pause,
    /// `r`: it runs again.
    Resume,
    /// It jumps by this many seconds.
    Shift(i64),
}
