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

/// Executes a request against what it found. `found` is the item under the request's key, if there is one; with one of
/// the `sealed_flags` (see [`StoreOptions::sealed_flags`](crate::StoreOptions::sealed_flags)) its value stays whole.
#[inline(always)]
#[must_use]
pub fn compute<'a>(
    request: &Request<'a>,
    env: &Env,
    found: Option<View<'a>>,
    sealed_flags: u32,
) -> Effect<'a> {
    let dead = found.is_some_and(|item| !is_alive(&item, env));
    let item = if dead { None } else { found };
    let is_sealed = item.is_some_and(|item| item.flags & sealed_flags != 0);
    let mut effect = match &request.op {
        Op::Fetch(fetch) => compute_fetch(fetch, env, item),
        Op::Put(Put { mode: PutMode::Append | PutMode::Prepend, .. }) if is_sealed => {
            unchanged(Status::NotStored)
        }
        Op::Put(put) => compute_put(put, env, item),
        Op::Delete(delete) => compute_delete(delete, env, item),
        Op::Arith(_) if is_sealed => unchanged(Status::NonNumeric),
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
    let token = match (item.token_sent, fetch.claim && (item.stale || recache)) {
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
            // Somebody else is about to write the newer value: no fetch is told to recache.
            fresh.stale = true;
            fresh.token_sent = true;
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

/// Reads a stored number the way memcached does (`strtoull`): blanks before it, a plus sign, and whatever
/// follows a blank behind it.
fn number(value: &[u8]) -> Option<u64> {
    if value.len() > Digits::LEN_MAX {
        return None;
    }
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let text = &value[start..];
    let unsigned = text.strip_prefix(b"+").unwrap_or(text);
    let end = unsigned.iter().position(is_blank).unwrap_or(unsigned.len());
    let digits = &unsigned[..end];
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// C's `isspace`.
fn is_blank(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0x0B
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_000_000_000;
    const ENV: Env = Env { now: NOW, flushed_below: 0 };

    fn item(value: &'static str) -> View<'static> {
        View {
            key: b"k",
            value: value.as_bytes(),
            flags: 7,
            exptime: 0,
            cas: 10,
            birth: 5,
            accessed: NOW - 9,
            fetched: false,
            stale: false,
            token_sent: false,
        }
    }

    fn put(mode: PutMode) -> Put<'static> {
        Put {
            mode,
            flags: 3,
            exptime: Exptime(0),
            value: b"new",
            compare: None,
            new_cas: None,
            invalidate: false,
            vivify: None,
        }
    }

    fn arith(direction: Direction, delta: u64) -> Arith {
        Arith { direction, delta, vivify: None, exptime: None, compare: None, new_cas: None }
    }

    /// What an effect comes to, in one line: status, token, and the change.
    fn line(effect: &Effect<'_>) -> String {
        let token = match effect.token {
            Token::None => "",
            Token::Won => " W",
            Token::Taken => " Z",
        };
        let change = match &effect.change {
            Change::None => String::new(),
            Change::Unlink => " unlink".into(),
            Change::Amend(amend) => {
                let mut text = String::from(" amend");
                if amend.access {
                    text += " access";
                }
                if amend.token_sent {
                    text += " token";
                }
                if let Some(exptime) = amend.exptime {
                    text += &format!(" exp={exptime}");
                }
                text
            }
            Change::Publish(spec) => {
                let value = match &spec.value {
                    NewValue::Joined(first, second) => [*first, *second].concat(),
                    NewValue::Number(digits) => digits.as_bytes().to_vec(),
                };
                let cas = match spec.cas {
                    NewCas::Above(cas) => format!(">{cas}"),
                    NewCas::Exactly(cas) => format!("={cas}"),
                };
                let mut text = format!(
                    " publish {:?} f={} exp={} cas{cas}",
                    String::from_utf8_lossy(&value),
                    spec.flags,
                    spec.exptime
                );
                if spec.stale {
                    text += " stale";
                }
                if spec.token_sent {
                    text += " token";
                }
                text
            }
        };
        format!("{:?}{token}{change}", effect.status)
    }

    fn check(op: Op<'_>, found: Option<View<'_>>, expected: &str) {
        check_at(op, &ENV, found, expected);
    }

    fn check_at(op: Op<'_>, env: &Env, found: Option<View<'_>>, expected: &str) {
        check_sealed(op, env, found, 8, expected);
    }

    fn check_sealed(op: Op<'_>, env: &Env, found: Option<View<'_>>, sealed_flags: u32, expected: &str) {
        let request = Request { key: b"k", op };
        let first = compute(&request, env, found, sealed_flags);
        assert_eq!(first, compute(&request, env, found, sealed_flags), "an operator is a function: {op:?}");
        assert_eq!(line(&first), expected, "{op:?} on {found:?}");
    }

    #[test]
    fn fetches() {
        let get = Fetch { claim: true, ..Fetch::default() };
        let quiet = Fetch { bump: false, ..get };
        let recache = Fetch { recache: Some(30), ..get };
        let stale = View { stale: true, ..item("v") };
        let taken = View { token_sent: true, ..item("v") };
        let ending = View { exptime: NOW + 29, ..item("v") };
        check(Op::Fetch(get), None, "Miss");
        check(Op::Fetch(get), Some(item("v")), "Hit amend access");
        check(Op::Fetch(quiet), Some(item("v")), "Hit");
        check(
            Op::Fetch(Fetch { touch: Some(Exptime(60)), ..get }),
            Some(item("v")),
            "Hit amend access exp=1000000060",
        );
        check(Op::Fetch(Fetch { touch: Some(Exptime(60)), ..get }), None, "Miss");
        check(
            Op::Fetch(Fetch { vivify: Some(Exptime(30)), ..get }),
            None,
            "Miss W publish \"\" f=0 exp=1000000030 cas>0 token",
        );
        check(
            Op::Fetch(Fetch { vivify: Some(Exptime(0)), new_cas: Some(9), ..get }),
            None,
            "Miss W publish \"\" f=0 exp=0 cas=9 token",
        );
        check(Op::Fetch(get), Some(stale), "Hit W amend access token");
        check(Op::Fetch(Fetch::default()), Some(stale), "Hit amend access");
        check(Op::Fetch(quiet), Some(stale), "Hit W amend token");
        check(Op::Fetch(get), Some(taken), "Hit Z amend access");
        check(Op::Fetch(recache), Some(ending), "Hit W amend access token");
        check(Op::Fetch(recache), Some(View { exptime: NOW + 30, ..ending }), "Hit amend access");
        check(Op::Fetch(recache), Some(item("v")), "Hit amend access");
        check(Op::Fetch(recache), Some(View { token_sent: true, ..ending }), "Hit Z amend access");
    }

    #[test]
    fn puts() {
        let found = Some(View { exptime: NOW + 5, ..item("old") });
        check(Op::Put(put(PutMode::Set)), None, "Stored publish \"new\" f=3 exp=0 cas>0");
        check(Op::Put(put(PutMode::Set)), found, "Stored publish \"new\" f=3 exp=0 cas>10");
        check(Op::Put(put(PutMode::Add)), None, "Stored publish \"new\" f=3 exp=0 cas>0");
        check(Op::Put(put(PutMode::Add)), found, "NotStored amend access");
        check(Op::Put(put(PutMode::Replace)), None, "NotStored");
        check(Op::Put(put(PutMode::Replace)), found, "Stored publish \"new\" f=3 exp=0 cas>10");
        check(Op::Put(put(PutMode::Append)), None, "NotStored");
        check(Op::Put(put(PutMode::Prepend)), None, "NotStored");
        check(Op::Put(put(PutMode::Append)), found, "Stored publish \"oldnew\" f=7 exp=1000000005 cas>10");
        check(Op::Put(put(PutMode::Prepend)), found, "Stored publish \"newold\" f=7 exp=1000000005 cas>10");
        check(
            Op::Put(Put { vivify: Some(Exptime(100)), ..put(PutMode::Append) }),
            None,
            "Stored publish \"new\" f=3 exp=1000000100 cas>0",
        );
    }

    #[test]
    fn puts_with_a_cas_id() {
        let found = Some(View { exptime: NOW + 5, ..item("old") });
        let cas = |compare| Put { compare: Some(compare), ..put(PutMode::Set) };
        check(Op::Put(cas(10)), None, "NotFound");
        check(Op::Put(cas(10)), found, "Stored publish \"new\" f=3 exp=0 cas>10");
        check(Op::Put(cas(9)), found, "Exists");
        check(Op::Put(cas(11)), found, "Exists");
        check(
            Op::Put(Put { invalidate: true, ..cas(9) }),
            found,
            "Stored publish \"new\" f=3 exp=1000000005 cas>10 stale token",
        );
        check(Op::Put(Put { invalidate: true, ..cas(11) }), found, "Exists");
        check(
            Op::Put(Put { new_cas: Some(77), ..cas(10) }),
            found,
            "Stored publish \"new\" f=3 exp=0 cas=77",
        );
    }

    #[test]
    fn deletes() {
        let found = Some(View { token_sent: true, ..item("old") });
        let stale = Delete { invalidate: true, ..Delete::default() };
        check(Op::Delete(Delete::default()), None, "NotFound");
        check(Op::Delete(Delete::default()), found, "Deleted unlink");
        check(Op::Delete(Delete { compare: Some(9), ..Delete::default() }), found, "Exists");
        check(Op::Delete(Delete { compare: Some(10), ..Delete::default() }), found, "Deleted unlink");
        check(Op::Delete(stale), found, "Deleted publish \"old\" f=7 exp=0 cas>10 stale");
        check(
            Op::Delete(Delete { exptime: Some(Exptime(30)), ..stale }),
            found,
            "Deleted publish \"old\" f=7 exp=1000000030 cas>10 stale",
        );
        check(
            Op::Delete(Delete { drop_value: true, ..Delete::default() }),
            found,
            "Deleted publish \"\" f=0 exp=0 cas>10 token",
        );
    }

    #[test]
    fn numbers() {
        let incr = |delta| Op::Arith(arith(Direction::Incr, delta));
        let decr = |delta| Op::Arith(arith(Direction::Decr, delta));
        check(incr(1), None, "NotFound");
        check(
            Op::Arith(Arith { vivify: Some((Exptime(0), 13)), ..arith(Direction::Incr, 1) }),
            None,
            "Stored publish \"13\" f=0 exp=0 cas>0",
        );
        check(incr(1), Some(item("99")), "Stored publish \"100\" f=7 exp=0 cas>10");
        check(
            incr(1),
            Some(item("18446744073709551615")),
            "Stored publish \"0                   \" f=7 exp=0 cas>10",
        );
        check(decr(1), Some(item("10")), "Stored publish \"9 \" f=7 exp=0 cas>10");
        check(decr(11), Some(item("10")), "Stored publish \"0 \" f=7 exp=0 cas>10");
        check(incr(1), Some(item(" 10")), "Stored publish \"11 \" f=7 exp=0 cas>10");
        check(incr(1), Some(item("+10")), "Stored publish \"11 \" f=7 exp=0 cas>10");
        check(incr(1), Some(item("9 x")), "Stored publish \"10 \" f=7 exp=0 cas>10");
        check(incr(1), Some(item("9 ")), "Stored publish \"10\" f=7 exp=0 cas>10");
        for wrong in ["", " ", "+", "-1", "1x", "x", "18446744073709551616", "000000000000000000001"] {
            check(incr(1), Some(item(wrong)), "NonNumeric");
        }
        check(Op::Arith(Arith { compare: Some(9), ..arith(Direction::Incr, 1) }), Some(item("1")), "Exists");
    }

    #[test]
    fn what_is_sealed_stays_whole() {
        // The item's flags are 7.
        fn check(op: Op<'_>, expected_sealed: &str, expected: &str) {
            let found = Some(item("1"));
            check_sealed(op, &ENV, found, 2, expected_sealed);
            check_sealed(op, &ENV, found, 8, expected);
            let dead = Some(View { exptime: NOW, ..item("1") });
            let on_dead = |sealed_flags| {
                let effect = compute(&Request { key: b"k", op }, &ENV, dead, sealed_flags);
                line(&effect)
            };
            assert_eq!(on_dead(2), on_dead(8), "nothing is there to be sealed: {op:?}");
        }
        for mode in [PutMode::Append, PutMode::Prepend] {
            let joined = if mode == PutMode::Append { "1new" } else { "new1" };
            let expected = format!("Stored publish \"{joined}\" f=7 exp=0 cas>10");
            check(Op::Put(put(mode)), "NotStored", &expected);
        }
        let incr = Op::Arith(arith(Direction::Incr, 1));
        check(incr, "NonNumeric", "Stored publish \"2\" f=7 exp=0 cas>10");
        let set = "Stored publish \"new\" f=3 exp=0 cas>10";
        check(Op::Put(put(PutMode::Set)), set, set);
        check(Op::Delete(Delete::default()), "Deleted unlink", "Deleted unlink");
    }

    #[test]
    fn the_dead_are_not_seen() {
        let expired = Some(View { exptime: NOW, ..item("1") });
        let last_second = Some(View { exptime: NOW + 1, ..item("1") });
        let flushed = Env { flushed_below: 6, ..ENV };
        let get = Op::Fetch(Fetch::default());
        check(get, expired, "Miss unlink");
        check(get, last_second, "Hit amend access");
        check_at(get, &flushed, Some(item("1")), "Miss unlink");
        check_at(get, &Env { flushed_below: 5, ..ENV }, Some(item("1")), "Hit amend access");
        check(Op::Put(put(PutMode::Add)), expired, "Stored publish \"new\" f=3 exp=0 cas>10");
        check(Op::Put(put(PutMode::Replace)), expired, "NotStored unlink");
        check(Op::Delete(Delete::default()), expired, "NotFound unlink");
        check(Op::Arith(arith(Direction::Incr, 1)), expired, "NotFound unlink");
    }

    #[test]
    fn expiry_times() {
        let check = |exptime, expected| {
            assert_eq!(absolute(Exptime(exptime), NOW), expected, "exptime {exptime}");
        };
        check(0, 0);
        check(-1, LONG_AGO);
        check(i64::MIN, LONG_AGO);
        check(1, NOW + 1);
        check(2_592_000, NOW + 2_592_000);
        check(2_592_001, 2_592_001);
        check(4_294_967_295, u32::MAX);
        check(4_294_967_296, u32::MAX);
        check(i64::MAX, u32::MAX);
    }
}
