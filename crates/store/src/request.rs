//! The words operators are written in: what a command asks of one key, what it sees, what it does.
//!
//! Nothing here knows a protocol. Classic, meta, binary and line commands all become one of four
//! operations, whose options are the union of what the protocols can say.

/// One command on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// 1 to 250 bytes; the store compares them and nothing else.
    pub key: &'a [u8],
    /// What is asked.
    pub op: Op<'a>,
}

/// The four operations on user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// get, gets, gat, gats, touch, mg.
    Fetch(Fetch),
    /// set, add, replace, append, prepend, cas, ms.
    Put(Put<'a>),
    /// delete, md.
    Delete(Delete),
    /// incr, decr, ma.
    Arith(Arith),
}

/// An expiry time as the client wrote it: 0 never, negative at once, up to 30 days relative to now,
/// above that Unix seconds (memcached `realtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exptime(pub i64);

/// Options of a fetch. The default is a plain `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// New expiry time for a hit (gat, touch, mg `T`).
    pub touch: Option<Exptime>,
    /// Create an empty item on a miss, with this expiry time (mg `N`).
    pub vivify: Option<Exptime>,
    /// Hand out the recache token when fewer seconds than this remain (mg `R`).
    pub recache: Option<i64>,
    /// The cas id of a vivified item (mg `E`).
    pub new_cas: Option<u64>,
    /// Whether the access is noted in the item (all but mg `u`).
    pub bump: bool,
    /// Whether the recache token is handed out if it is due and nobody has it (mg; others don't know it).
    pub claim: bool,
}

impl Default for Fetch {
    fn default() -> Self {
        Fetch { touch: None, vivify: None, recache: None, new_cas: None, bump: true, claim: false }
    }
}

/// How a put treats what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Whatever is there is replaced.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// The value is written behind the one that is there; its flags and expiry time stay.
    Append,
    /// The value is written in front of the one that is there; its flags and expiry time stay.
    Prepend,
}

/// Options of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// Treatment of what is there.
    pub mode: PutMode,
    /// The client's opaque flags.
    pub flags: u32,
    /// Expiry time of the new item.
    pub exptime: Exptime,
    /// The bytes sent.
    pub value: &'a [u8],
    /// Only if the item found has this cas id (cas, ms `C`).
    pub compare: Option<u64>,
    /// The cas id of the new item (ms `E`).
    pub new_cas: Option<u64>,
    /// With a `compare` older than the item found: store all the same, marked stale (ms `I`).
    pub invalidate: bool,
    /// For append and prepend on a miss: store the value with this expiry time (ms `N`).
    pub vivify: Option<Exptime>,
}

impl<'a> Put<'a> {
    /// A plain set: no flags, no expiry, no conditions.
    #[must_use]
    pub fn set(value: &'a [u8]) -> Self {
        Put {
            mode: PutMode::Set,
            flags: 0,
            exptime: Exptime(0),
            value,
            compare: None,
            new_cas: None,
            invalidate: false,
            vivify: None,
        }
    }
}

/// Options of a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Only if the item found has this cas id (md `C`).
    pub compare: Option<u64>,
    /// The cas id of what remains (md `E`).
    pub new_cas: Option<u64>,
    /// Keep the item, marked stale, with a new cas id (md `I`).
    pub invalidate: bool,
    /// The expiry time of an item that is kept (md `T`).
    pub exptime: Option<Exptime>,
    /// Keep the item, but empty its value and reset its flags (md `x`).
    pub drop_value: bool,
}

/// Direction of an arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Wraps at 2^64.
    Incr,
    /// Stops at zero.
    Decr,
}

/// Options of an arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith {
    /// Up or down.
    pub direction: Direction,
    /// By how much.
    pub delta: u64,
    /// Create a counter on a miss: its expiry time and first value (ma `N` and `J`, binary).
    pub vivify: Option<(Exptime, u64)>,
    /// New expiry time for a hit (ma `T`).
    pub exptime: Option<Exptime>,
    /// Only if the item found has this cas id (ma `C`).
    pub compare: Option<u64>,
    /// The cas id of the new version (ma `E`).
    pub new_cas: Option<u64>,
}

/// Everything that is not determined by the request and the view, sampled once outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Env {
    /// Unix seconds.
    pub now: u32,
    /// Versions born before this are gone (flush_all); 0 when nothing was flushed.
    pub flushed_below: u64,
}

/// One immutable item version as a command sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'v> {
    /// The key stored with the item.
    pub key: &'v [u8],
    /// The value.
    pub value: &'v [u8],
    /// The client's opaque flags.
    pub flags: u32,
    /// Unix seconds of expiry; 0 never.
    pub exptime: u32,
    /// Grows from version to version of one key.
    pub cas: u64,
    /// Birth number of the segment the version was first written to; orders versions against flush_all.
    pub birth: u64,
    /// Unix seconds of the last noted access.
    pub accessed: u32,
    /// Whether it was fetched since it was written.
    pub fetched: bool,
    /// Whether an invalidation marked it as out of date.
    pub stale: bool,
    /// Whether some client holds its recache token.
    pub token_sent: bool,
}

/// What a command answers, before any protocol gives it a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Fetch: the item is shown.
    Hit,
    /// Fetch: nothing is there.
    Miss,
    /// Put, Arith: the new version is in place.
    Stored,
    /// Put: the mode's condition did not hold.
    NotStored,
    /// The cas id differs.
    Exists,
    /// Put with a cas id, Delete, Arith: nothing is there.
    NotFound,
    /// Delete: it is gone (or marked stale, if that was asked).
    Deleted,
    /// Arith: the value is not a decimal number of up to 20 digits.
    NonNumeric,
    /// The item would exceed the item size limit.
    TooLarge,
    /// No memory could be had for the new version.
    OutOfMemory,
    /// Put: the value is not what its own checksum says. Found in front of the store, which knows no such checksums.
    BadChecksum,
    /// Executions of the command don't agree, and there is no majority: nothing was changed.
    Disagreed,
}

/// Who holds the right to recache an item (mg `N`, `R`, stale items).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Token {
    /// Nobody needs it.
    #[default]
    None,
    /// This client got it just now (`W`).
    Won,
    /// Another client has it (`Z`).
    Taken,
}

/// The outcome of one execution of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// What to answer.
    pub status: Status,
    /// Recache token to answer with a hit.
    pub token: Token,
    /// What to change.
    pub change: Change<'a>,
}

/// What an effect does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Nothing.
    None,
    /// The item found is forgotten.
    Unlink,
    /// Words outside the item's checksum change; the version stays.
    Amend(Amend),
    /// A new version takes the place of the item found, if any.
    Publish(Spec<'a>),
}

/// Changes to the words of an item that are outside its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amend {
    /// Note the access at `env.now`.
    pub access: bool,
    /// The recache token is given away.
    pub token_sent: bool,
    /// The expiry time, in Unix seconds, becomes this.
    pub exptime: Option<u32>,
}

/// A new item version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The client's opaque flags.
    pub flags: u32,
    /// Unix seconds of expiry; 0 never.
    pub exptime: u32,
    /// Its cas id.
    pub cas: NewCas,
    /// Marked as out of date from the start.
    pub stale: bool,
    /// Its recache token is given away from the start.
    pub token_sent: bool,
    /// Its value.
    pub value: NewValue<'a>,
}

/// The cas id of a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewCas {
    /// Any id above this one.
    Above(u64),
    /// The id the client asked for.
    Exactly(u64),
}

/// The value of a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue<'a> {
    /// The first part followed by the second; one of them may be empty.
    Joined(&'a [u8], &'a [u8]),
    /// A decimal number, padded with blanks to a length.
    Number(Digits),
}

/// A decimal number as it is stored: digits, then blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    bytes: [u8; Digits::LEN_MAX],
    len: u8,
}

impl Digits {
    /// Digits of 2^64 − 1.
    pub const LEN_MAX: usize = 20;

    /// Writes `number`, with blanks behind it up to `pad_to` bytes (20 at most).
    #[must_use]
    pub fn new(number: u64, pad_to: usize) -> Self {
        assert!(pad_to <= Self::LEN_MAX);
        let mut reversed = [0_u8; Self::LEN_MAX];
        let mut rest = number;
        let mut count = 0;
        loop {
            reversed[count] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        let mut bytes = [b' '; Self::LEN_MAX];
        for (digit, byte) in reversed[..count].iter().rev().zip(&mut bytes) {
            *byte = *digit;
        }
        Digits { bytes, len: count.max(pad_to) as u8 }
    }

    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
