//! Responses of the binary protocol: written by servers, read by clients.

use super::{BODY_BYTES_MAX, HEADER_BYTES, Head, Header, MAGIC_RESPONSE, Status, opcode};

/// Appends the response of a command that went well and has no content. `cas` is the cas id of the new version, or 0.
#[inline]
pub fn success(head: &Head, cas: u64, out: &mut Vec<u8>) {
    frame(head, cas, b"", b"", b"", out);
}

/// Appends the response of a command that did not go well, with memcached's text.
pub fn failure(head: &Head, status: Status, out: &mut Vec<u8>) {
    let text = status.text().as_bytes();
    header(head, status, 0, (0, 0, text.len()), out);
    out.extend_from_slice(text);
}

/// Appends the response of a Get, GAT or Touch that found something, up to its value, which has to come behind it.
/// `key` is empty unless the command repeats it, `value_len` 0 for Touch.
#[inline]
pub fn value_head(head: &Head, cas: u64, flags: u32, key: &[u8], value_len: usize, out: &mut Vec<u8>) {
    let extras = flags.to_be_bytes();
    header(head, Status::Success, cas, (extras.len(), key.len(), value_len), out);
    out.extend_from_slice(&extras);
    out.extend_from_slice(key);
}

/// Appends the response of a GetK or GATK that found nothing: unlike the others, it is the key and no text.
pub fn miss_with_key(head: &Head, key: &[u8], out: &mut Vec<u8>) {
    header(head, Status::NotFound, 0, (0, key.len(), 0), out);
    out.extend_from_slice(key);
}

/// Appends the response of arithmetic.
pub fn number(head: &Head, cas: u64, value: u64, out: &mut Vec<u8>) {
    frame(head, cas, b"", b"", &value.to_be_bytes(), out);
}

/// Appends the response of Version.
pub fn version(head: &Head, version: &str, out: &mut Vec<u8>) {
    frame(head, 0, b"", b"", version.as_bytes(), out);
}

/// Appends one of the responses of Stat.
pub fn statistic(head: &Head, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    frame(head, 0, b"", name, value, out);
}

/// Appends the last response of Stat.
pub fn statistics_end(head: &Head, out: &mut Vec<u8>) {
    success(head, 0, out);
}

#[inline]
fn frame(head: &Head, cas: u64, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    header(head, Status::Success, cas, (extras.len(), key.len(), value.len()), out);
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// `lens` are those of extras, key and value.
#[inline]
fn header(head: &Head, status: Status, cas: u64, lens: (usize, usize, usize), out: &mut Vec<u8>) {
    let (extras, key, value) = lens;
    let header = Header {
        magic: MAGIC_RESPONSE,
        opcode: head.opcode,
        key_len: u16::try_from(key).expect("names and keys are short"),
        extras_len: u8::try_from(extras).expect("extras are four bytes at most"),
        status: status.code(),
        body_len: u32::try_from(extras + key + value).expect("items are at most a gigabyte"),
        opaque: head.opaque,
        cas,
    };
    out.reserve(HEADER_BYTES + extras + key);
    header.write(out);
}

/// One response, as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What it repeats of the request, and the cas id of the item.
    pub head: Head,
    /// How the command went; as a number, because other servers have more of them than [`Status`].
    pub code: u16,
    /// The client's opaque flags, if it has such a field.
    pub flags: Option<u32>,
    /// The key, if it was repeated, or the name of a statistic.
    pub key: &'a [u8],
    /// The value, the number of arithmetic as eight bytes, or the text of an error.
    pub value: &'a [u8],
}

impl Reply<'_> {
    /// The number that arithmetic answers.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    /// Whether it ends the responses of a Stat.
    #[must_use]
    pub fn is_statistics_end(&self) -> bool {
        self.head.opcode == opcode::STAT && self.key.is_empty()
    }
}

/// One step of parsing responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStep<'a> {
    /// This many bytes at least must be there; nothing was used.
    Incomplete {
        /// Counted from the front of the input.
        needed: usize,
    },
    /// A whole response.
    Reply {
        /// What it says.
        reply: Reply<'a>,
        /// Its bytes.
        used: usize,
    },
    /// No response begins here.
    Garbage,
}

/// Takes one response off the front of a connection's unread bytes.
#[must_use]
pub fn parse_reply(input: &[u8]) -> ReplyStep<'_> {
    if input.first().is_some_and(|magic| *magic != MAGIC_RESPONSE) {
        return ReplyStep::Garbage;
    }
    let Some((header, rest)) = Header::read(input) else {
        return ReplyStep::Incomplete { needed: HEADER_BYTES };
    };
    let (key_len, extras_len) = (usize::from(header.key_len), usize::from(header.extras_len));
    let body_len = header.body_len as usize;
    if header.body_len > BODY_BYTES_MAX + BODY_BYTES_SLACK || key_len + extras_len > body_len {
        return ReplyStep::Garbage;
    }
    let used = HEADER_BYTES + body_len;
    let Some(body) = rest.get(..body_len) else { return ReplyStep::Incomplete { needed: used } };
    let (extras, rest) = body.split_at(extras_len);
    let (key, value) = rest.split_at(key_len);
    let flags = extras.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    ReplyStep::Reply { reply: Reply { head: header.head(), code: header.status, flags, key, value }, used }
}

/// A value may be as long as a request's body; key and extras come on top of it.
const BODY_BYTES_SLACK: u32 = 1 << 10;
