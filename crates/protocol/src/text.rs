//! Replies of the classic text protocol.
//!
//! Every function appends to the bytes a connection has to send. Texts are those of memcached 1.6.45.

/// Two bytes behind each line and each value.
pub const CRLF: &[u8; 2] = b"\r\n";

/// Of a storage command.
pub const STORED: &str = "STORED";
/// Of a storage command whose condition does not hold.
pub const NOT_STORED: &str = "NOT_STORED";
/// Of `cas`, when the item has another cas id.
pub const EXISTS: &str = "EXISTS";
/// Of `cas`, `delete`, `incr`, `decr` and `touch`, when there is no item.
pub const NOT_FOUND: &str = "NOT_FOUND";
/// Of `delete`.
pub const DELETED: &str = "DELETED";
/// Of `touch`.
pub const TOUCHED: &str = "TOUCHED";
/// Of administration commands.
pub const OK: &str = "OK";
/// Behind all values of a `get`, and behind lists.
pub const END: &str = "END";
/// Behind the list of `lru_crawler mgdump`.
pub const EN: &str = "EN";
/// Of `mn`.
pub const MN: &str = "MN";
/// The version of memcached that is followed, as `version` tells it.
pub const VERSION: &str = "VERSION 1.6.45";

/// An unknown command.
pub const ERROR: &str = "ERROR";
/// Of a connection that is one too many.
pub const TOO_MANY_CONNECTIONS: &str = "ERROR Too many open connections";
/// The payload does not end where it should.
pub const BAD_DATA_CHUNK: &str = "CLIENT_ERROR bad data chunk";
/// A checked value is not what its checksum says; memcached has none.
pub const BAD_CHECKSUM: &str = "CLIENT_ERROR bad checksum of checked value";
/// The line can't be understood.
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
/// Of `incr`, `decr` and `ma` on a value that is no number.
pub const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
/// Of `flush_all`, if it was disabled.
pub const FLUSH_REFUSED: &str = "CLIENT_ERROR flush_all not allowed";
/// Of `shutdown` with an unknown word.
pub const BAD_SHUTDOWN: &str = "CLIENT_ERROR invalid shutdown mode";
/// Of `shutdown`, unless it was enabled.
pub const SHUTDOWN_REFUSED: &str = "SERVER_ERROR: shutdown not enabled";
/// Of a storage command with a value above the item size limit.
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
/// Of a storage command when there is no memory.
pub const NO_MEMORY_TO_STORE: &str = "SERVER_ERROR out of memory storing object";
/// Of arithmetic when there is no memory.
pub const NO_MEMORY: &str = "SERVER_ERROR out of memory";
/// Of a fetch when there is no memory for the reply.
pub const NO_MEMORY_TO_REPLY: &str = "SERVER_ERROR out of memory writing get response";

/// A line of text.
#[inline]
pub fn line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(CRLF);
}

/// The line in front of a value; the value and [`CRLF`] come behind it.
#[inline]
pub fn value_line(key: &[u8], flags: u32, len: usize, cas: Option<u64>, out: &mut Vec<u8>) {
    // One reservation, so that no piece has to look for room.
    out.reserve(VALUE_LINE_BYTES_MAX + key.len());
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(u64::from(flags), out);
    out.push(b' ');
    number(len as u64, out);
    if let Some(cas) = cas {
        out.push(b' ');
        number(cas, out);
    }
    out.extend_from_slice(CRLF);
}

/// Longest [`value_line`], without its key: the word, three numbers and four separators.
const VALUE_LINE_BYTES_MAX: usize = 6 + 10 + 20 + 20 + 3 + 2;

/// A whole value with its line.
#[inline]
pub fn value(key: &[u8], flags: u32, value: &[u8], cas: Option<u64>, out: &mut Vec<u8>) {
    value_line(key, flags, value.len(), cas, out);
    out.reserve(value.len() + CRLF.len());
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// The line of a number, as `incr` and `decr` answer it.
#[inline]
pub fn number_line(value: u64, out: &mut Vec<u8>) {
    number(value, out);
    out.extend_from_slice(CRLF);
}

/// A number.
#[inline]
pub fn number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
