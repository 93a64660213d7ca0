//! The meta commands: what each does to an item, and what of it is told.

use protocol::meta_reply::{self as reply, CounterFacts, DebugFacts, ItemFacts, MetaStatus};
use protocol::{KEY_BYTES_MAX, MetaArith, MetaDelete, MetaGet, MetaKey, MetaSet, Verb, text};
use store::{Answer, Arith, Delete, Direction, Draft, Exptime, Fetch, Put, Status, Token, View};

use crate::admin::item_bytes;
use crate::execute::{Executor, append_value};
use crate::output::Output;
use crate::session::DISAGREED;
use crate::strata::Dialect;
use crate::text::put_mode;

/// The value of `ms`.
pub(crate) enum Value<'a> {
    /// It was in the input as a whole.
    Bytes(&'a [u8]),
    /// It arrived in pieces.
    Draft(Draft),
}

pub(crate) fn direction(direction: protocol::Direction) -> Direction {
    match direction {
        protocol::Direction::Incr => Direction::Incr,
        protocol::Direction::Decr => Direction::Decr,
    }
}

/// `mg`
pub(crate) fn get(get: &MetaGet<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let MetaGet { key, flags } = get;
    let mut space = [0; KEY_BYTES_MAX];
    let fetch = Fetch {
        touch: flags.exptime().map(Exptime),
        vivify: flags.vivify().map(Exptime),
        recache: flags.recache(),
        new_cas: flags.new_cas(),
        bump: !flags.has(b'u'),
        claim: true,
    };
    executor.dialect = Dialect::Meta;
    executor.counters().cmd_meta.up();
    let now = executor.now();
    let shared = executor.shared;
    let bytes = key.bytes(&mut space);
    let hash = executor.store.hash(bytes);
    let Answer { status, item, token } = executor.fetch(bytes, hash, fetch);
    let Some(item) = item else { return out.say(|bytes| reply::get_miss(get, bytes)) };
    let ttl = ttl(&item, now);
    let facts = ItemFacts {
        key: item.key,
        key_base64: key.is_base64(),
        value_len: item.value.len(),
        flags: item.flags,
        cas: item.cas,
        ttl_before: ttl,
        ttl,
        created: status == Status::Miss,
        accessed_ago: now.saturating_sub(item.accessed),
        fetched: item.fetched,
        stale: item.stale,
        token: match token {
            Token::None => reply::Token::None,
            Token::Won => reply::Token::Won,
            Token::Taken => reply::Token::Taken,
        },
    };
    if out.say(|bytes| reply::get_hit(get, &facts, bytes)) {
        append_value(out, shared, &item);
        out.say(|bytes| bytes.extend_from_slice(text::CRLF));
    }
}

/// `ms`
pub(crate) fn set(set: &MetaSet<'_>, value: Value<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let MetaSet { key, verb, flags, len } = set;
    let mut space = [0; KEY_BYTES_MAX];
    // As memcached has it: no comparison with `add`, and invalidation only where a set would compare.
    let compare = flags.compare().filter(|_| *verb != Verb::Add);
    let compares_as_set = matches!(verb, Verb::Set | Verb::Replace) && compare.is_some();
    let put = Put {
        mode: put_mode(*verb),
        flags: flags.client_flags(),
        exptime: Exptime(flags.exptime().unwrap_or(0)),
        value: if let Value::Bytes(bytes) = &value { bytes } else { &[] },
        compare,
        new_cas: flags.new_cas(),
        invalidate: compares_as_set && flags.has(b'I'),
        vivify: flags.vivify().map(Exptime),
    };
    executor.dialect = Dialect::Meta;
    executor.counters().cmd_meta.up();
    let key_bytes = key.bytes(&mut space);
    let answer = match value {
        Value::Bytes(_) => executor.put(key_bytes, put),
        Value::Draft(draft) => executor.put_draft(draft, key_bytes, put),
    };
    let status = match answer.status {
        Status::Stored => MetaStatus::Done,
        Status::Exists => MetaStatus::Exists,
        Status::NotFound if compares_as_set => MetaStatus::NotFound,
        status @ (Status::TooLarge | Status::OutOfMemory | Status::Disagreed | Status::BadChecksum) => {
            executor.refuse_value(key_bytes, status, true);
            return out.say(|bytes| text::line(crate::session::refusal(status), bytes));
        }
        _ => MetaStatus::NotStored,
    };
    let cas = answer.item.map_or(0, |item| item.cas);
    out.say(|bytes| reply::set(set, status, cas, *len as usize, bytes));
}

/// `md`
pub(crate) fn delete(request: &MetaDelete<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let MetaDelete { key, flags } = request;
    let mut space = [0; KEY_BYTES_MAX];
    let delete = Delete {
        compare: flags.compare(),
        new_cas: flags.new_cas(),
        invalidate: flags.has(b'I'),
        exptime: flags.exptime().map(Exptime),
        drop_value: flags.has(b'x'),
    };
    executor.dialect = Dialect::Meta;
    executor.counters().cmd_meta.up();
    let status = match executor.delete(key.bytes(&mut space), delete).status {
        Status::Deleted => MetaStatus::Done,
        Status::Exists => MetaStatus::Exists,
        Status::OutOfMemory => return out.say(|bytes| text::line(text::NO_MEMORY, bytes)),
        Status::Disagreed => return out.say(|bytes| text::line(DISAGREED, bytes)),
        _ => MetaStatus::NotFound,
    };
    out.say(|bytes| reply::delete(request, status, bytes));
}

/// `ma`
pub(crate) fn arith(request: &MetaArith<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let MetaArith { key, flags, .. } = request;
    let mut space = [0; KEY_BYTES_MAX];
    let arith = Arith {
        direction: direction(request.direction),
        delta: flags.delta(),
        vivify: flags.vivify().map(|exptime| (Exptime(exptime), flags.initial())),
        exptime: flags.exptime().map(Exptime),
        compare: flags.compare(),
        new_cas: flags.new_cas(),
    };
    executor.dialect = Dialect::Meta;
    executor.counters().cmd_meta.up();
    let now = executor.now();
    let Answer { status, item, .. } = executor.arith(key.bytes(&mut space), arith);
    let item = match (status, item) {
        (Status::Stored, Some(item)) => item,
        (Status::OutOfMemory, _) => return out.say(|bytes| text::line(text::NO_MEMORY, bytes)),
        (Status::Disagreed, _) => return out.say(|bytes| text::line(DISAGREED, bytes)),
        (Status::NonNumeric, _) => return out.say(|bytes| text::line(text::NON_NUMERIC, bytes)),
        (Status::Exists, _) => {
            return out.say(|bytes| reply::arith_failed(request, MetaStatus::Exists, bytes));
        }
        _ => return out.say(|bytes| reply::arith_failed(request, MetaStatus::NotFound, bytes)),
    };
    let ttl = ttl(&item, now);
    let counter = CounterFacts { value: counter(&item), cas: item.cas, ttl_before: ttl, ttl, created: false };
    out.say(|bytes| reply::arith_done(request, &counter, bytes));
}

/// The number in a version that arithmetic has written: digits, then blanks.
pub(crate) fn counter(item: &View<'_>) -> u64 {
    let digits = item.value.trim_ascii_end();
    digits.iter().fold(0, |sum: u64, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

/// `me`
pub(crate) fn debug(key: &MetaKey<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let mut space = [0; KEY_BYTES_MAX];
    executor.dialect = Dialect::Meta;
    executor.counters().cmd_meta.up();
    let (now, shared) = (executor.now(), executor.shared);
    let cas_enabled = shared.settings.cas;
    let Some(item) = executor.peek(key.bytes(&mut space)) else {
        return out.say(|bytes| text::line(text::EN, bytes));
    };
    let bytes = item_bytes(item.key.len(), item.value.len(), item.flags, cas_enabled);
    let facts = DebugFacts {
        key: item.key,
        key_base64: key.is_base64(),
        ttl: ttl(&item, now),
        accessed_ago: now.saturating_sub(item.accessed),
        cas: item.cas,
        fetched: item.fetched,
        class: shared.admin.classes.of(bytes),
        bytes: bytes as usize,
    };
    out.say(|bytes| reply::debug(&facts, bytes));
}

/// Seconds until an item expires; `None` for never.
fn ttl(item: &View<'_>, now: u32) -> Option<u32> {
    (item.exptime != 0).then(|| item.exptime.saturating_sub(now))
}
