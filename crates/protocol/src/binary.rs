//! memcached's binary protocol: frames with a header of 24 bytes. Deprecated, but all that some clients speak.
//!
//! A connection speaks it if its first byte is [`MAGIC_REQUEST`], which begins no line of text that is a command.

mod request;
mod response;

pub use request::{Arith, Command, Reject, Step, Store, encode, parse};
pub use response::{
    Reply, ReplyStep, failure, miss_with_key, number, parse_reply, statistic, statistics_end, success,
    value_head, version,
};

/// First byte of a request.
pub const MAGIC_REQUEST: u8 = 0x80;

/// First byte of a response.
pub const MAGIC_RESPONSE: u8 = 0x81;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// Longest body; memcached's upper limit for the size of an item, too.
const BODY_BYTES_MAX: u32 = 1 << 30;

/// The opcodes of the commands that memcached has.
pub mod opcode {
    #![expect(missing_docs, reason = "the names are the protocol's own; Q answers less, K repeats the key")]
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;
}

/// The fields of a request's header that its response repeats or the command depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Which command.
    pub opcode: u8,
    /// Chosen by the client, to know the response by.
    pub opaque: u32,
    /// Only if the item has this cas id; 0 for no condition.
    pub cas: u64,
}

/// How a command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Success,
    /// There is no item.
    NotFound,
    /// There is an item, or one with another cas id.
    Exists,
    /// The item would exceed the item size limit.
    TooLarge,
    /// The request makes no sense.
    Invalid,
    /// The item was not stored.
    NotStored,
    /// The value is no number.
    NonNumeric,
    /// Not allowed.
    Auth,
    /// There is no such command.
    Unknown,
    /// There is no memory for it.
    OutOfMemory,
}

impl Status {
    const ALL: [Status; 10] = [
        Status::Success,
        Status::NotFound,
        Status::Exists,
        Status::TooLarge,
        Status::Invalid,
        Status::NotStored,
        Status::NonNumeric,
        Status::Auth,
        Status::Unknown,
        Status::OutOfMemory,
    ];

    /// As it stands in a header.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Status::Success => 0x00,
            Status::NotFound => 0x01,
            Status::Exists => 0x02,
            Status::TooLarge => 0x03,
            Status::Invalid => 0x04,
            Status::NotStored => 0x05,
            Status::NonNumeric => 0x06,
            Status::Auth => 0x20,
            Status::Unknown => 0x81,
            Status::OutOfMemory => 0x82,
        }
    }

    /// The status with this code, if it is one of these.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    /// What memcached writes into the body.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Status::Success => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumeric => "Non-numeric server-side value for incr or decr",
            Status::Auth => "Auth failure.",
            Status::Unknown => "Unknown command",
            Status::OutOfMemory => "Out of memory",
        }
    }
}

/// A header as it stands in front of every frame; requests have a reserved field where responses have a status.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    magic: u8,
    opcode: u8,
    key_len: u16,
    extras_len: u8,
    status: u16,
    body_len: u32,
    opaque: u32,
    cas: u64,
}

impl Header {
    /// Reads the header at the front of `input`, if it is there as a whole.
    fn read(input: &[u8]) -> Option<(Header, &[u8])> {
        let (bytes, rest) = input.split_first_chunk::<HEADER_BYTES>()?;
        let [magic, opcode, k0, k1, extras_len, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        let header = Header {
            magic,
            opcode,
            key_len: u16::from_be_bytes([k0, k1]),
            extras_len,
            status: u16::from_be_bytes([s0, s1]),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
        };
        Some((header, rest))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut bytes = [0_u8; HEADER_BYTES];
        bytes[0] = self.magic;
        bytes[1] = self.opcode;
        bytes[2..4].copy_from_slice(&self.key_len.to_be_bytes());
        bytes[4] = self.extras_len;
        bytes[6..8].copy_from_slice(&self.status.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body_len.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.cas.to_be_bytes());
        out.extend_from_slice(&bytes);
    }

    fn head(&self) -> Head {
        Head { opcode: self.opcode, opaque: self.opaque, cas: self.cas }
    }
}
