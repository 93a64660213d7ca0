//! The operators: (request, env, view) to effect, written once for every mode of execution.
//!
//! They are pure. They read no clock, hold no state and touch no memory but their arguments, so that
//! they can be executed as often as one likes, and any two executions must agree.
//! Behaviour follows memcached 1.6.45 (`items.c`, `proto_text.c`, `memcached.c`).

use crate::request::{
    Amend, Arith, Change, Delete, Digits, Direction, Effect, Env, Exptime, Fetch, NewCas, NewValue, Op, Put,
    PutMode, Request, Spec, Status, Token, View,
};

/// Relative expiry times end here; larger ones are Unix seconds (memcached `REALTIME_MAXDELTA`).
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// Unix seconds of an item that is expired from the start.
const LONG_AGO: u32 = 1;

/// Executes a request against what it found. `found` is the item under the request's key, if there is one.
#[inline(always)]
#[must_use]
pub fn compute<'a>(request: &Request<'a>, env: &Env, found: Option<View<'a>>) -> Effect<'a> {
    let dead = found.is_some_and(|item| !is_alive(&item, env));
    let item = if dead { None } else { found };
    let mut effect = match &request.op {
        Op::Fetch(fetch) => compute_fetch(fetch, env, item),
        Op::Put(put) => compute_put(put, env, item),
        Op::Delete(delete) => compute_delete(delete, env, item),
        Op::Arith(arith) => compute_arith(arith, env, item),
    };
    if dead {
        match &mut effect.change {
            Change::None => effect.change = Change::Unlink,
            // A version that is gone still orders the ids of those that come after it.
            Change::Publish(Spec { cas: NewCas::Above(floor), .. }) => {
                *floor = (*floor).max(found.map_or(0, |item| item.cas));
            }
            _ => {}
        }
    }
    effect
}

/// Whether an item can be seen at all: not expired, not flushed.
#[inline(always)]
#[must_use]
pub fn is_alive(item: &View<'_>, env: &Env) -> bool {
    (item.exptime == 0 || item.exptime > env.now) && item.birth >= env.flushed_below
}

/// The Unix second at which an item with this expiry time is gone; 0 for never.
///
/// Negative times and times in the past give an item that is expired from the start. Times beyond 2106 end there.
#[inline]
#[must_use]
pub fn absolute(exptime: Exptime, now: u32) -> u32 {
    match exptime.0 {
        0 => 0,
        i64::MIN..0 => LONG_AGO,
        1..=RELATIVE_SECONDS_MAX => now.saturating_add(exptime.0 as u32),
        unix => u32::try_from(unix).unwrap_or(u32::MAX),
    }
}

#[inline(always)]
fn compute_fetch<'a>(fetch: &Fetch, env: &Env, item: Option<View<'a>>) -> Effect<'a> {
    let Some(item) = item else {
        return match fetch.vivify {
            None => unchanged(Status::Miss),
            Some(exptime) => Effect {
                status: Status::Miss,
                token: Token::Won,
                change: Change::Publish(Spec {
                    flags: 0,
                    exptime: absolute(exptime, env.now),
                    cas: new_cas(fetch.new_cas, None),
                    stale: false,
                    token_sent: true,
                    value: NewValue::Joined(&[], &[]),
                }),
            },
        };
    };
    let recache = fetch
        .recache
        .is_some_and(|below| item.exptime != 0 && i64::from(item.exptime) - i64::from(env.now) < below);
    let token = match (item.token_sent, item.stale || recache) {
        (true, _) => Token::Taken,
        (false, true) => Token::Won,
        (false, false) => Token::None,
    };
    let amend = Amend {
        access: fetch.bump,
        token_sent: token == Token::Won,
        exptime: fetch.touch.map(|exptime| absolute(exptime, env.now)),
    };
    let change = if amend == Amend::default() { Change::None } else { Change::Amend(amend) };
    Effect { status: Status::Hit, token, change }
}

#[inline(always)]
fn compute_put<'a>(put: &Put<'a>, env: &Env, item: Option<View<'a>>) -> Effect<'a> {
    let mut fresh = Spec {
        flags: put.flags,
        exptime: absolute(put.exptime, env.now),
        cas: new_cas(put.new_cas, item),
        stale: false,
        token_sent: false,
        value: NewValue::Joined(put.value, &[]),
    };
    let Some(item) = item else {
        return match (put.mode, put.vivify) {
            (_, _) if put.compare.is_some() => unchanged(Status::NotFound),
            (PutMode::Set | PutMode::Add, _) => publish(fresh),
            (PutMode::Append | PutMode::Prepend, Some(exptime)) => {
                fresh.exptime = absolute(exptime, env.now);
                publish(fresh)
            }
            (PutMode::Replace | PutMode::Append | PutMode::Prepend, _) => unchanged(Status::NotStored),
        };
    };
    if put.mode == PutMode::Add {
        // As memcached does, a refused add counts as an access.
        let change = Change::Amend(Amend { access: true, ..Amend::default() });
        return Effect { status: Status::NotStored, token: Token::None, change };
    }
    match put.compare {
        Some(compare) if compare != item.cas => {
            if !(put.invalidate && compare < item.cas) {
                return unchanged(Status::Exists);
            }
            fresh.stale = true;
            fresh.exptime = item.exptime;
        }
        _ => {}
    }
    match put.mode {
        PutMode::Append => fresh.value = NewValue::Joined(item.value, put.value),
        PutMode::Prepend => fresh.value = NewValue::Joined(put.value, item.value),
        PutMode::Set | PutMode::Add | PutMode::Replace => return publish(fresh),
    }
    fresh.flags = item.flags;
    fresh.exptime = item.exptime;
    publish(fresh)
}

#[inline(always)]
fn compute_delete<'a>(delete: &Delete, env: &Env, item: Option<View<'a>>) -> Effect<'a> {
    let Some(item) = item else { return unchanged(Status::NotFound) };
    if delete.compare.is_some_and(|compare| compare != item.cas) {
        return unchanged(Status::Exists);
    }
    let change = if delete.invalidate || delete.drop_value {
        let exptime = match delete.exptime {
            Some(exptime) if delete.invalidate => absolute(exptime, env.now),
            _ => item.exptime,
        };
        Change::Publish(Spec {
            flags: if delete.drop_value { 0 } else { item.flags },
            exptime,
            cas: new_cas(delete.new_cas, Some(item)),
            stale: delete.invalidate || item.stale,
            token_sent: item.token_sent && !delete.invalidate,
            value: NewValue::Joined(if delete.drop_value { &[] } else { item.value }, &[]),
        })
    } else {
        Change::Unlink
    };
    Effect { status: Status::Deleted, token: Token::None, change }
}

#[inline(always)]
fn compute_arith<'a>(arith: &Arith, env: &Env, item: Option<View<'a>>) -> Effect<'a> {
    let Some(item) = item else {
        let Some((exptime, initial)) = arith.vivify else { return unchanged(Status::NotFound) };
        return publish(Spec {
            flags: 0,
            exptime: absolute(exptime, env.now),
            cas: new_cas(arith.new_cas, None),
            stale: false,
            token_sent: false,
            value: NewValue::Number(Digits::new(initial, 0)),
        });
    };
    if arith.compare.is_some_and(|compare| compare != item.cas) {
        return unchanged(Status::Exists);
    }
    let Some(old) = number(item.value) else { return unchanged(Status::NonNumeric) };
    let new = match arith.direction {
        Direction::Incr => old.wrapping_add(arith.delta),
        Direction::Decr => old.saturating_sub(arith.delta),
    };
    publish(Spec {
        flags: item.flags,
        exptime: arith.exptime.map_or(item.exptime, |exptime| absolute(exptime, env.now)),
        cas: new_cas(arith.new_cas, Some(item)),
        stale: item.stale,
        token_sent: item.token_sent,
        // A shorter number keeps the old length, as memcached's in-place update does.
        value: NewValue::Number(Digits::new(new, item.value.len().min(Digits::LEN_MAX))),
    })
}

/// Reads a stored number the way memcached does (`strtoull`): blanks before and behind, a plus sign.
fn number(value: &[u8]) -> Option<u64> {
    if value.len() > Digits::LEN_MAX {
        return None;
    }
    let text = value.trim_ascii();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

fn new_cas(asked: Option<u64>, predecessor: Option<View<'_>>) -> NewCas {
    match asked {
        Some(cas) => NewCas::Exactly(cas),
        None => NewCas::Above(predecessor.map_or(0, |item| item.cas)),
    }
}

fn unchanged<'a>(status: Status) -> Effect<'a> {
    Effect { status, token: Token::None, change: Change::None }
}

fn publish(spec: Spec<'_>) -> Effect<'_> {
    Effect { status: Status::Stored, token: Token::None, change: Change::Publish(spec) }
}
