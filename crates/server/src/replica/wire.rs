//! What goes between a server and its replica: frames, and how their contents are written.
//!
//! A frame is a head of 16 bytes and a body, all numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | what it is ([`Tag`]) |
//! | 1 | zero |
//! | 2 | the stream (worker) it belongs to |
//! | 4 | bytes of the body |
//! | 4 | CRC-32C of the body |
//! | 4 | CRC-32C of the twelve bytes before |
//!
//! The body's length is believed only when the head's checksum is right and the length is within the limit that both
//! sides agreed on, so damaged bytes can't make anybody wait for, or make room for, what never comes.

use std::fmt;

use guard::{ACK_BYTES, Ack, Seq};
use store::{Copy, Env, ORDERS, Store, View, crc32c};

/// The version of everything here. Both sides must have the same: a replica is updated together with its server.
pub(crate) const VERSION: u32 = 2;

/// What the server sends before it sees some of it acknowledged: so much, and one parcel more.
pub(crate) const WINDOW_BYTES: usize = 4 << 20;

/// Bytes in front of every body.
pub(crate) const HEAD_BYTES: usize = 16;

/// The longest body before both sides have agreed on another limit.
pub(crate) const GREETING_BYTES_MAX: usize = 256;

const HELLO_MAGIC: [u8; 8] = *b"veracach";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// To the replica: who calls, and what it needs. Once, first.
    Hello = 1,
    /// To the replica: records of one stream, and what belongs to them.
    Parcel = 2,
    /// To the replica: items as they are at the server, to bring the replica up to date.
    Load = 3,
    /// To the replica: all items follow, among other things.
    Walk = 4,
    /// To the replica: how far the server's records have been sent, for all streams together.
    Fence = 5,
    /// To the replica: it should say that it is there.
    Ping = 6,
    /// To the server: the answer to `Hello`.
    Welcome = 16,
    /// To the server: how far the replica has come in one stream.
    Ack = 17,
    /// To the server: the answer to `Ping`, with what the replica has counted.
    Status = 18,
    /// To the server: keys the replica should be told about.
    Want = 19,
    /// To the server: an item that it did not find and should have.
    Lost = 20,
}

const TAGS: [Tag; 11] = [
    Tag::Hello,
    Tag::Parcel,
    Tag::Load,
    Tag::Walk,
    Tag::Fence,
    Tag::Ping,
    Tag::Welcome,
    Tag::Ack,
    Tag::Status,
    Tag::Want,
    Tag::Lost,
];

/// One frame that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'b> {
    pub(crate) tag: Tag,
    pub(crate) stream: u16,
    pub(crate) body: &'b [u8],
}

/// Why bytes are no frame. Where the next one begins is not known: the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// The head is damaged.
    Head,
    /// The body is damaged.
    Body,
    /// The body is longer than agreed.
    Length,
    /// A frame of that kind doesn't exist, or does not belong here.
    Tag,
    /// The body does not hold what its kind says.
    Content,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadFrame::Head => "a frame's head was damaged on its way",
            BadFrame::Body => "a frame was damaged on its way",
            BadFrame::Length => "a frame was longer than agreed",
            BadFrame::Tag => "a frame of a kind that is not known",
            BadFrame::Content => "a frame that makes no sense",
        })
    }
}

impl<'b> Frame<'b> {
    /// The frame at the beginning of `bytes` and how many bytes it takes; none as long as there are not enough.
    pub(crate) fn decode(bytes: &'b [u8], body_max: usize) -> Result<Option<(Self, usize)>, BadFrame> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let mut fields = Fields::new(head);
        let (tag, zero, stream) = (fields.u8()?, fields.u8()?, fields.u16()?);
        let (length, body_sum, head_sum) = (fields.u32()? as usize, fields.u32()?, fields.u32()?);
        if crc32c(0, &head[..HEAD_BYTES - 4]) != head_sum || zero != 0 {
            return Err(BadFrame::Head);
        }
        if length > body_max {
            return Err(BadFrame::Length);
        }
        let tag = TAGS.into_iter().find(|known| *known as u8 == tag).ok_or(BadFrame::Tag)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        if crc32c(0, body) != body_sum {
            return Err(BadFrame::Body);
        }
        Ok(Some((Frame { tag, stream, body }, HEAD_BYTES + length)))
    }
}

/// Appends a frame whose body `fill` writes.
pub(crate) fn append(out: &mut Vec<u8>, tag: Tag, stream: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    fill(out);
    let body = &out[start + HEAD_BYTES..];
    let length = u32::try_from(body.len()).expect("bodies are shorter than the limit, which is below 4 GiB");
    let sum = crc32c(0, body);
    let head = &mut out[start..start + HEAD_BYTES];
    head[0] = tag as u8;
    head[2..4].copy_from_slice(&stream.to_le_bytes());
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..12].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c(0, &head[..12]);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Takes numbers and bytes off the front of a body.
pub(crate) struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Fields(body)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'b [u8], BadFrame> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(BadFrame::Content)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadFrame> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(BadFrame::Content)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BadFrame> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BadFrame> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BadFrame> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BadFrame> {
        self.array().map(u64::from_le_bytes)
    }

    /// There must be nothing left.
    pub(crate) fn end(self) -> Result<(), BadFrame> {
        if self.is_empty() { Ok(()) } else { Err(BadFrame::Content) }
    }
}

/// What a server says first. No secret is in it: a replica has its own store with its own seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// The server's memory limit, which the replica takes for its own unless it was given another.
    pub(crate) memory_bytes: u64,
    pub(crate) item_bytes_max: u32,
    /// How many streams there will be, numbered from 0.
    pub(crate) streams: u16,
    /// Whether items have cas ids.
    pub(crate) cas: bool,
    /// When the server's store was opened, by its clock: access times count from there.
    pub(crate) start_unix: u32,
    /// Flags of values that end with a checksum of the client's; 0 for none.
    pub(crate) checked_flags: u32,
    /// What slab classes are made up from, which one answer shows: growth factor, smallest and largest chunk.
    pub(crate) slabs: (f64, u32, u32),
}

const HAS_CAS: u8 = 1;

impl Hello {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Hello, 0, |body| {
            body.extend_from_slice(&HELLO_MAGIC);
            body.extend_from_slice(&self.version.to_le_bytes());
            body.extend_from_slice(&self.memory_bytes.to_le_bytes());
            body.extend_from_slice(&self.item_bytes_max.to_le_bytes());
            body.extend_from_slice(&self.streams.to_le_bytes());
            body.push(if self.cas { HAS_CAS } else { 0 });
            body.extend_from_slice(&self.start_unix.to_le_bytes());
            body.extend_from_slice(&self.checked_flags.to_le_bytes());
            let (factor, chunk_bytes_min, chunk_bytes_max) = self.slabs;
            body.extend_from_slice(&factor.to_le_bytes());
            body.extend_from_slice(&chunk_bytes_min.to_le_bytes());
            body.extend_from_slice(&chunk_bytes_max.to_le_bytes());
        });
    }

    /// Of a version that is not known only the number is believed.
    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        if frame.tag != Tag::Hello {
            return Err(BadFrame::Tag);
        }
        let mut fields = Fields::new(frame.body);
        if fields.bytes(HELLO_MAGIC.len())? != HELLO_MAGIC {
            return Err(BadFrame::Content);
        }
        let version = fields.u32()?;
        if version != VERSION {
            return Ok(Hello { version, ..Hello::default() });
        }
        let (memory_bytes, item_bytes_max, streams) = (fields.u64()?, fields.u32()?, fields.u16()?);
        let (bits, start_unix, checked_flags) = (fields.u8()?, fields.u32()?, fields.u32()?);
        let slabs = (f64::from_bits(fields.u64()?), fields.u32()?, fields.u32()?);
        fields.end()?;
        let cas = bits & HAS_CAS != 0;
        Ok(Hello { version, memory_bytes, item_bytes_max, streams, cas, start_unix, checked_flags, slabs })
    }

    /// The longest body after the greeting: a batch and one value of any size.
    pub(crate) fn body_max(&self) -> usize {
        guard::BATCH_BYTES_MAX + self.item_bytes_max as usize + 4096
    }
}

/// What a replica answers to [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) version: u32,
    pub(crate) refused: Option<Refused>,
    /// The replica's memory limit.
    pub(crate) memory_bytes: u64,
}

/// Why a replica does not want to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refused {
    /// It speaks another version.
    Version = 1,
    /// It can't have the memory.
    Memory = 2,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Version => "it is another version of this program; use the same on both sides",
            Refused::Memory => "it can't have the memory asked for; give it less with -m",
        })
    }
}

impl Welcome {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Welcome, 0, |body| {
            body.extend_from_slice(&self.version.to_le_bytes());
            body.push(self.refused.map_or(0, |refused| refused as u8));
            body.extend_from_slice(&self.memory_bytes.to_le_bytes());
        });
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        if frame.tag != Tag::Welcome {
            return Err(BadFrame::Tag);
        }
        let mut fields = Fields::new(frame.body);
        let version = fields.u32()?;
        let refused = match fields.u8()? {
            0 => None,
            2 => Some(Refused::Memory),
            _ => Some(Refused::Version),
        };
        let memory_bytes = fields.u64()?;
        fields.end()?;
        Ok(Welcome { version, refused, memory_bytes })
    }
}

/// How far one stream has come at the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) stream: u16,
    pub(crate) ack: Ack,
    /// Records up to the confirmed one about which nothing could be said, since the last progress.
    pub(crate) unknown: Vec<Seq>,
}

impl Progress {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Ack, self.stream, |body| {
            body.extend_from_slice(&self.ack.encode());
            self.unknown.iter().for_each(|seq| body.extend_from_slice(&seq.to_le_bytes()));
        });
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        let (ack, unknown) = frame.body.split_first_chunk::<ACK_BYTES>().ok_or(BadFrame::Content)?;
        let ack = Ack::decode(ack).map_err(|_| BadFrame::Content)?;
        let (unknown, rest) = unknown.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(BadFrame::Content);
        }
        let unknown = unknown.iter().map(|seq| Seq::from_le_bytes(*seq)).collect();
        Ok(Progress { stream: frame.stream, ack, unknown })
    }
}

/// A moment that records before are told from records after; see [`super::mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Counts from 1.
    pub(crate) number: u64,
    pub(crate) what: FenceEvent,
}

/// What happened to a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceEvent {
    /// It was set up.
    Open,
    /// Every worker has begun a new round since, and all earlier records were sent.
    Passed {
        /// Whether all items and all records were sent.
        is_complete: bool,
    },
}

impl Fence {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Fence, 0, |body| {
            body.extend_from_slice(&self.number.to_le_bytes());
            if let FenceEvent::Passed { is_complete } = self.what {
                body.push(is_complete.into());
            }
        });
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        let mut fields = Fields::new(frame.body);
        let number = fields.u64()?;
        if fields.is_empty() {
            return Ok(Fence { number, what: FenceEvent::Open });
        }
        let is_complete = fields.u8()? != 0;
        fields.end()?;
        Ok(Fence { number, what: FenceEvent::Passed { is_complete } })
    }
}

const IS_STALE: u8 = 1;
const IS_TOKEN_SENT: u8 = 2;
const IS_ABSENT: u8 = 4;

/// Appends an item to the body of a `Load`.
pub(crate) fn append_copy(body: &mut Vec<u8>, item: &Copy<'_>) {
    let copy = &item.view;
    let bits = [(copy.stale, IS_STALE), (copy.token_sent, IS_TOKEN_SENT)];
    body.push(bits.iter().map(|(is_set, bit)| if *is_set { *bit } else { 0 }).sum());
    append_key(body, copy.key);
    body.extend_from_slice(&(item.part as u16).to_le_bytes());
    body.extend_from_slice(&item.vanished.to_le_bytes());
    body.extend_from_slice(&copy.flags.to_le_bytes());
    body.extend_from_slice(&copy.exptime.to_le_bytes());
    body.extend_from_slice(&copy.cas.to_le_bytes());
    body.extend_from_slice(&copy.birth.to_le_bytes());
    // Values are shorter than the largest item, which is shorter than 4 GiB.
    body.extend_from_slice(&(copy.value.len() as u32).to_le_bytes());
    body.extend_from_slice(copy.value);
}

/// Appends to the body of a `Load` that there is nothing under a key.
pub(crate) fn append_absence(body: &mut Vec<u8>, key: &[u8]) {
    body.push(IS_ABSENT);
    append_key(body, key);
}

/// Appends a key with its length. Keys have at most 250 bytes.
pub(crate) fn append_key(body: &mut Vec<u8>, key: &[u8]) {
    body.push(key.len() as u8);
    body.extend_from_slice(key);
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded<'b> {
    /// An item.
    Item(Copy<'b>),
    /// There is nothing under this key.
    Absence(&'b [u8]),
}

/// Takes the next one off the body of a `Load`.
pub(crate) fn loaded<'b>(fields: &mut Fields<'b>) -> Result<Loaded<'b>, BadFrame> {
    let bits = fields.u8()?;
    let key = key(fields)?;
    if bits == IS_ABSENT {
        return Ok(Loaded::Absence(key));
    }
    if bits & !(IS_STALE | IS_TOKEN_SENT) != 0 {
        return Err(BadFrame::Content);
    }
    let (part, vanished) = (usize::from(fields.u16()?), fields.u32()?);
    if part >= ORDERS {
        return Err(BadFrame::Content);
    }
    let (flags, exptime, cas, birth) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
    let length = fields.u32()? as usize;
    let view = View {
        key,
        value: fields.bytes(length)?,
        flags,
        exptime,
        cas,
        birth,
        accessed: 0,
        fetched: false,
        stale: bits & IS_STALE != 0,
        token_sent: bits & IS_TOKEN_SENT != 0,
    };
    Ok(Loaded::Item(Copy { view, part, vanished }))
}

/// The body of a `Walk`: the changes that were made so far, by part.
pub(crate) fn append_orders(body: &mut Vec<u8>, orders: &[u64]) {
    orders.iter().for_each(|order| body.extend_from_slice(&order.to_le_bytes()));
}

pub(crate) fn orders(body: &[u8]) -> Result<Vec<u64>, BadFrame> {
    match body.as_chunks::<8>() {
        (orders, []) if orders.len() == ORDERS => {
            Ok(orders.iter().map(|order| u64::from_le_bytes(*order)).collect())
        }
        _ => Err(BadFrame::Content),
    }
}

/// Takes a key with its length off a body.
pub(crate) fn key<'b>(fields: &mut Fields<'b>) -> Result<&'b [u8], BadFrame> {
    let length = fields.u8()?;
    fields.bytes(length.into())
}

/// An item that the server did not find and should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Whose look-up it was.
    pub(crate) stream: u16,
    /// The version there was.
    pub(crate) cas: u64,
    /// What orders that against flush_all, and its time of expiry in Unix seconds, 0 for never.
    pub(crate) birth: u64,
    pub(crate) exptime: u32,
    /// What the server said of items that vanish when it was there; see [`store::Store::has_vanished_since`].
    pub(crate) vanished: u32,
    pub(crate) key: Vec<u8>,
}

impl Missed {
    /// Whether the server, whose environment this is by now, knows why it is missing. The look-up's own environment is as
    /// old as its round: what has expired or was flushed since may have been swept before it looked.
    pub(crate) fn is_explained(&self, store: &Store, env: &Env) -> bool {
        let is_flushed = self.birth < env.flushed_below;
        let is_expired = self.exptime != 0 && self.exptime <= env.now;
        is_flushed || is_expired || store.has_vanished_since(&self.key, self.vanished)
    }

    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Lost, self.stream, |body| {
            body.extend_from_slice(&self.cas.to_le_bytes());
            body.extend_from_slice(&self.birth.to_le_bytes());
            body.extend_from_slice(&self.exptime.to_le_bytes());
            body.extend_from_slice(&self.vanished.to_le_bytes());
            append_key(body, &self.key);
        });
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        let mut fields = Fields::new(frame.body);
        let (cas, birth) = (fields.u64()?, fields.u64()?);
        let (exptime, vanished, key) = (fields.u32()?, fields.u32()?, key(&mut fields)?.to_vec());
        fields.end()?;
        Ok(Missed { stream: frame.stream, cas, birth, exptime, vanished, key })
    }
}

/// What a replica has counted since it was greeted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Which `Ping` this answers; 0 for none.
    pub(crate) ping: u64,
    /// Records repeated in full.
    pub(crate) repeated: u64,
    /// Records about a version older than the replica's, as others had changed the key meanwhile.
    pub(crate) overtaken: u64,
    /// Records about a version that the replica had not been told of in time.
    pub(crate) unordered: u64,
    /// Records about a key the replica knows nothing of, which says nothing: it may have had to forget it.
    pub(crate) unknown: u64,
    /// Items taken over from the server.
    pub(crate) loaded: u64,
    /// Items the replica had to evict.
    pub(crate) evicted: u64,
    /// Items the replica has.
    pub(crate) items: u64,
    /// Items of its own that the replica found damaged.
    pub(crate) damaged: u64,
    /// Whether it knows of all items, so that one that is missing there means something: 1 or 0.
    pub(crate) is_complete: u64,
}

impl Counted {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append(out, Tag::Status, 0, |body| {
            for number in self.numbers() {
                body.extend_from_slice(&number.to_le_bytes());
            }
        });
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Self, BadFrame> {
        let mut fields = Fields::new(frame.body);
        let counted = Counted {
            ping: fields.u64()?,
            repeated: fields.u64()?,
            overtaken: fields.u64()?,
            unordered: fields.u64()?,
            unknown: fields.u64()?,
            loaded: fields.u64()?,
            evicted: fields.u64()?,
            items: fields.u64()?,
            damaged: fields.u64()?,
            is_complete: fields.u64()?,
        };
        fields.end()?;
        Ok(counted)
    }

    fn numbers(&self) -> [u64; 10] {
        let Counted { ping, repeated, overtaken, unordered, unknown, .. } = *self;
        let Counted { loaded, evicted, items, damaged, is_complete, .. } = *self;
        [ping, repeated, overtaken, unordered, unknown, loaded, evicted, items, damaged, is_complete]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            streams: 4,
            cas: true,
            start_unix: 77,
            checked_flags: 1 << 31,
            slabs: (1.25, 48, 512),
        }
    }

    fn whole(bytes: &[u8]) -> Frame<'_> {
        let (frame, length) = Frame::decode(bytes, GREETING_BYTES_MAX).expect("a frame").expect("all of it");
        assert_eq!(length, bytes.len());
        frame
    }

    #[test]
    fn what_is_written_is_read() {
        for cas in [false, true] {
            let mut bytes = Vec::new();
            let hello = Hello { cas, ..hello() };
            hello.append(&mut bytes);
            assert_eq!(Hello::decode(&whole(&bytes)), Ok(hello));
        }
        for refused in [None, Some(Refused::Version), Some(Refused::Memory)] {
            let mut bytes = Vec::new();
            let welcome = Welcome { version: VERSION, refused, memory_bytes: 5 };
            welcome.append(&mut bytes);
            assert_eq!(Welcome::decode(&whole(&bytes)), Ok(welcome));
        }
        let counted = Counted {
            ping: 1,
            repeated: 2,
            overtaken: 3,
            unordered: 4,
            unknown: 5,
            loaded: 6,
            evicted: 7,
            items: u64::MAX,
            damaged: 8,
            is_complete: 1,
        };
        let mut bytes = Vec::new();
        counted.append(&mut bytes);
        assert_eq!(Counted::decode(&whole(&bytes)), Ok(counted));
    }

    #[test]
    fn what_is_loaded_and_told_is_read() {
        let view = View {
            key: b"key",
            value: b"value",
            flags: 7,
            exptime: 8,
            cas: 9,
            birth: 10,
            accessed: 0,
            fetched: false,
            stale: true,
            token_sent: false,
        };
        let copy = Copy { view, part: 1023, vanished: 5 };
        let view = View { stale: false, token_sent: true, value: b"", ..view };
        let other = Copy { view, part: 0, vanished: 0 };
        let mut body = Vec::new();
        append_copy(&mut body, &copy);
        append_absence(&mut body, b"none");
        append_copy(&mut body, &other);
        let mut fields = Fields::new(&body);
        for expected in [Loaded::Item(copy), Loaded::Absence(b"none"), Loaded::Item(other)] {
            assert_eq!(loaded(&mut fields), Ok(expected));
        }
        fields.end().expect("that was all");
        for length in 0..body.len() {
            let mut fields = Fields::new(&body[..length]);
            while loaded(&mut fields).is_ok() {}
        }
        let numbers: Vec<u64> = (0..ORDERS as u64).collect();
        let mut body = Vec::new();
        append_orders(&mut body, &numbers);
        assert_eq!(orders(&body), Ok(numbers));
        assert!(orders(&body[8..]).is_err());
        for what in [FenceEvent::Open, FenceEvent::Passed { is_complete: true }] {
            let mut bytes = Vec::new();
            let fence = Fence { number: 3, what };
            fence.append(&mut bytes);
            assert_eq!(Fence::decode(&whole(&bytes)), Ok(fence));
        }
        let missed = Missed { stream: 2, cas: 3, birth: 5, exptime: 6, vanished: 4, key: b"key".to_vec() };
        let mut bytes = Vec::new();
        missed.append(&mut bytes);
        assert_eq!(Missed::decode(&whole(&bytes)), Ok(missed));
        let ack = Ack { confirmed: 5, disagreements: 0, disagreement: None };
        let progress = Progress { stream: 1, ack, unknown: vec![4, 5] };
        let mut bytes = Vec::new();
        progress.append(&mut bytes);
        assert_eq!(Progress::decode(&whole(&bytes)), Ok(progress));
    }

    #[test]
    fn another_version_is_told_by_its_number_alone() {
        let mut bytes = Vec::new();
        append(&mut bytes, Tag::Hello, 0, |body| {
            body.extend_from_slice(&HELLO_MAGIC);
            body.extend_from_slice(&(VERSION + 1).to_le_bytes());
            body.extend_from_slice(b"whatever stands there then");
        });
        assert_eq!(Hello::decode(&whole(&bytes)).map(|hello| hello.version), Ok(VERSION + 1));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = Vec::new();
        hello().append(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(Frame::decode(&bytes[..length], GREETING_BYTES_MAX), Ok(None));
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < HEAD_BYTES * 8 { BadFrame::Head } else { BadFrame::Body };
            assert_eq!(Frame::decode(&bytes, GREETING_BYTES_MAX), Err(expected), "bit {bit}");
        }
        assert_eq!(Frame::decode(&bytes, 8), Err(BadFrame::Length));
    }

    #[test]
    fn contents_that_make_no_sense_are_refused() {
        let check = |tag: Tag, body: &[u8]| {
            let mut bytes = Vec::new();
            append(&mut bytes, tag, 0, |out| out.extend_from_slice(body));
            let frame = whole(&bytes);
            assert!(Hello::decode(&frame).is_err());
            assert!(Welcome::decode(&frame).is_err());
            assert!(Counted::decode(&frame).is_err());
        };
        check(Tag::Hello, b"");
        check(Tag::Hello, b"veracach");
        check(Tag::Hello, b"elephant and more");
        check(Tag::Welcome, &[1; 14]);
        check(Tag::Welcome, &[1; 3]);
        check(Tag::Status, &[1; 81]);
        check(Tag::Parcel, &[0; 13]);
    }
}
