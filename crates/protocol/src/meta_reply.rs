//! Replies of the meta commands: a status, then what the flags of the request asked for, in their order.

use crate::base64;
use crate::command::{KEY_BYTES_MAX, MetaArith, MetaDelete, MetaGet, MetaSet};
use crate::meta::{MetaFlags, MetaKey};
use crate::text::{CRLF, number};

/// Who has the right to recache an item.
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

/// What `mg` can tell of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFacts<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Whether the key is shown as base64: it is if the item was stored with flag `b`.
    pub key_base64: bool,
    /// Length of its value.
    pub value_len: usize,
    /// The client's opaque flags.
    pub flags: u32,
    /// Its cas id.
    pub cas: u64,
    /// Seconds until it expires, before this command; `None`: never.
    pub ttl_before: Option<u32>,
    /// Seconds until it expires, after this command; shown by a `t` behind the `T` or `N` that took effect.
    pub ttl: Option<u32>,
    /// Whether this command created it (`N`).
    pub created: bool,
    /// Seconds since it was last accessed, before this command.
    pub accessed_ago: u32,
    /// Whether it was fetched before.
    pub fetched: bool,
    /// Whether it is out of date (`X`).
    pub stale: bool,
    /// The recache token.
    pub token: Token,
}

impl MetaGet<'_> {
    /// Whether the value of an item with this cas id is sent along.
    #[inline]
    #[must_use]
    pub fn wants_value(&self, cas: u64) -> bool {
        self.flags.has(b'v') && self.flags.compare() != Some(cas)
    }
}

/// Status of `ms`, `md` and `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStatus {
    /// `HD`: done.
    Done,
    /// `NS`: the mode's condition did not hold.
    NotStored,
    /// `EX`: the item has another cas id.
    Exists,
    /// `NF`: there is no item.
    NotFound,
}

impl MetaStatus {
    fn word(self) -> &'static [u8; 2] {
        match self {
            MetaStatus::Done => b"HD",
            MetaStatus::NotStored => b"NS",
            MetaStatus::Exists => b"EX",
            MetaStatus::NotFound => b"NF",
        }
    }
}

/// The line for an item that `mg` found; returns whether its value and [`CRLF`] have to come behind it.
#[inline]
pub fn get_hit(request: &MetaGet<'_>, item: &ItemFacts<'_>, out: &mut Vec<u8>) -> bool {
    let with_value = request.wants_value(item.cas);
    if with_value {
        out.extend_from_slice(b"VA ");
        number(item.value_len as u64, out);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut ttl = item.ttl_before;
    for (letter, token) in request.flags.iter() {
        match letter {
            b'T' => ttl = item.ttl,
            b'N' if item.created => ttl = item.ttl,
            b's' => flag_number(b's', item.value_len as u64, out),
            b't' => flag_ttl(ttl, out),
            b'c' => flag_number(b'c', item.cas, out),
            b'f' => flag_number(b'f', u64::from(item.flags), out),
            b'l' => flag_number(b'l', u64::from(item.accessed_ago), out),
            b'h' => flag_number(b'h', u64::from(item.fetched), out),
            b'O' => opaque(token, out),
            b'k' => key(item.key, item.key_base64, out),
            _ => {}
        }
    }
    if item.token == Token::Taken {
        out.extend_from_slice(b" Z");
    }
    if item.stale {
        out.extend_from_slice(b" X");
    }
    if item.token == Token::Won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(CRLF);
    with_value
}

/// The line for an item that `mg` did not find; nothing with flag `q`.
#[inline]
pub fn get_miss(request: &MetaGet<'_>, out: &mut Vec<u8>) {
    if !request.flags.quiet() {
        out.extend_from_slice(b"EN");
        opaque_and_key(&request.flags, &request.key, out);
        out.extend_from_slice(CRLF);
    }
}

/// The line of `ms`; nothing if it is done and flag `q` was sent.
///
/// `cas` is the cas id of the new version, 0 if there is none; `value_len` its length, or of what was sent.
#[inline]
pub fn set(request: &MetaSet<'_>, status: MetaStatus, cas: u64, value_len: usize, out: &mut Vec<u8>) {
    if status == MetaStatus::Done && request.flags.quiet() {
        return;
    }
    out.extend_from_slice(status.word());
    for (letter, token) in request.flags.iter() {
        match letter {
            b'O' => opaque(token, out),
            b'k' => request_key(&request.key, out),
            b'c' => flag_number(b'c', cas, out),
            b's' => flag_number(b's', value_len as u64, out),
            _ => {}
        }
    }
    out.extend_from_slice(CRLF);
}

/// The line of `md`; nothing if it is done and flag `q` was sent.
#[inline]
pub fn delete(request: &MetaDelete<'_>, status: MetaStatus, out: &mut Vec<u8>) {
    if status == MetaStatus::Done && request.flags.quiet() {
        return;
    }
    out.extend_from_slice(status.word());
    opaque_and_key(&request.flags, &request.key, out);
    out.extend_from_slice(CRLF);
}

/// What `ma` can tell of the counter it changed or created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterFacts {
    /// Its new value.
    pub value: u64,
    /// The cas id of the new version.
    pub cas: u64,
    /// Seconds until it expires, before this command; `None`: never.
    pub ttl_before: Option<u32>,
    /// Seconds until it expires, after this command; shown by a `t` behind the `T` or `N` that took effect.
    pub ttl: Option<u32>,
    /// Whether this command created it (`N`).
    pub created: bool,
}

/// The reply of `ma` that changed or created a counter, value included; nothing with flag `q`.
pub fn arith_done(request: &MetaArith<'_>, counter: &CounterFacts, out: &mut Vec<u8>) {
    if request.flags.quiet() {
        return;
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(counter.value).as_bytes();
    let with_value = request.flags.has(b'v');
    if with_value {
        out.extend_from_slice(b"VA ");
        number(digits.len() as u64, out);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut ttl = counter.ttl_before;
    for (letter, token) in request.flags.iter() {
        match letter {
            b'T' => ttl = counter.ttl,
            b'N' if counter.created => ttl = counter.ttl,
            b't' => flag_ttl(ttl, out),
            b'c' => flag_number(b'c', counter.cas, out),
            b'O' => opaque(token, out),
            b'k' => request_key(&request.key, out),
            _ => {}
        }
    }
    out.extend_from_slice(CRLF);
    if with_value {
        out.extend_from_slice(digits);
        out.extend_from_slice(CRLF);
    }
}

/// The line of `ma` that changed nothing. These are never hidden.
pub fn arith_failed(request: &MetaArith<'_>, status: MetaStatus, out: &mut Vec<u8>) {
    out.extend_from_slice(status.word());
    opaque_and_key(&request.flags, &request.key, out);
    out.extend_from_slice(CRLF);
}

/// What `me` tells of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugFacts<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Whether the key is shown as base64: it is if the item was stored with flag `b`.
    pub key_base64: bool,
    /// Seconds until it expires; `None`: never.
    pub ttl: Option<u32>,
    /// Seconds since it was last accessed.
    pub accessed_ago: u32,
    /// Its cas id.
    pub cas: u64,
    /// Whether it was fetched.
    pub fetched: bool,
    /// The number of its class.
    pub class: u8,
    /// Bytes it takes in memory.
    pub bytes: usize,
}

/// The line for an item that `me` found; the other is [`text::EN`](crate::text::EN).
pub fn debug(item: &DebugFacts<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ME ");
    if item.key_base64 {
        base64::encode(item.key, out)
    } else {
        out.extend_from_slice(item.key)
    }
    out.extend_from_slice(b" exp=");
    seconds(item.ttl, out);
    out.extend_from_slice(b" la=");
    number(u64::from(item.accessed_ago), out);
    out.extend_from_slice(b" cas=");
    number(item.cas, out);
    out.extend_from_slice(if item.fetched { b" fetch=yes" } else { b" fetch=no" });
    out.extend_from_slice(b" cls=");
    number(u64::from(item.class), out);
    out.extend_from_slice(b" size=");
    number(item.bytes as u64, out);
    out.extend_from_slice(CRLF);
}

/// What is told where there is no item to tell of.
#[inline]
fn opaque_and_key(flags: &MetaFlags<'_>, key: &MetaKey<'_>, out: &mut Vec<u8>) {
    for (letter, token) in flags.iter() {
        match letter {
            b'O' => opaque(token, out),
            b'k' => request_key(key, out),
            _ => {}
        }
    }
}

#[inline]
fn opaque(token: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b" O");
    out.extend_from_slice(token);
}

#[inline]
fn key(key: &[u8], base64: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    if base64 {
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

#[inline]
fn request_key(request: &MetaKey<'_>, out: &mut Vec<u8>) {
    key(request.bytes(&mut [0; KEY_BYTES_MAX]), request.is_base64(), out);
}

#[inline]
fn flag_number(letter: u8, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b' ', letter]);
    number(value, out);
}

#[inline]
fn flag_ttl(ttl: Option<u32>, out: &mut Vec<u8>) {
    out.extend_from_slice(b" t");
    seconds(ttl, out);
}

#[inline]
fn seconds(ttl: Option<u32>, out: &mut Vec<u8>) {
    match ttl {
        Some(seconds) => number(u64::from(seconds), out),
        None => out.extend_from_slice(b"-1"),
    }
}
