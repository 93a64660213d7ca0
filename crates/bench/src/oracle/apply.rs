//! What a command does to one key, and what it then answers: memcached's rules, written down a second time.
//!
//! Nothing of the server's is used here, so that both being wrong in the same way is unlikely. Where a rule leaves it
//! open what happens, as with cas ids that nobody was shown, there are several outcomes.

use std::sync::Arc;

use super::request::{Bytes, Form, Mode, Op, Put, Request};

/// Longest number that is counted with.
const DIGITS_MAX: usize = 20;

/// When a command was executed, in milliseconds since the model began: between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) earliest_ms: i64,
    pub(super) latest_ms: i64,
}

/// The time at which something expires; `None` for never.
pub(super) type Expiry = Option<When>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) value: Bytes,
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    /// As it was shown, or given.
    pub(super) cas: Option<u64>,
    /// Whether it was marked as out of date.
    pub(super) is_stale: bool,
    /// Whether somebody was told to write it anew.
    pub(super) is_taken: bool,
}

/// What a key holds, if it holds something.
pub(super) type State = Option<Version>;

/// Who has the right to write an item anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    None,
    Won,
    Taken,
}

/// What is answered, before it has a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A put, a delete or a touch was done. The version there is now, where there is one.
    Done(State),
    NotStored,
    Exists,
    NotFound,
    NonNumeric,
    /// A fetch found nothing.
    Miss,
    /// A fetch shows this version, or, with `expiry`, what it has become.
    Shown {
        version: Version,
        expiry: Expiry,
        token: Token,
    },
    /// A counter has this value now, in this version.
    Counted(u64, Version),
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) said: Said,
    pub(super) next: State,
}

/// Executes a command on a key that holds `state`. `compare` is the cas id that was sent.
pub(super) fn apply(request: &Request, compare: Option<u64>, when: When, state: &State) -> Vec<Outcome> {
    match &request.op {
        Op::Get { touch, .. } => vec![fetch(*touch, None, None, false, when, state)],
        Op::Fetch { touch, vivify, recache, .. } => {
            vec![fetch(*touch, *vivify, *recache, true, when, state)]
        }
        Op::Touch { exptime } => {
            let Outcome { said, next } = fetch(Some(*exptime), None, None, false, when, state);
            let said = if matches!(said, Said::Miss) { Said::NotFound } else { Said::Done(None) };
            vec![Outcome { said, next }]
        }
        Op::Put(put) => apply_put(put, request.form, compare, when, state),
        Op::Delete { invalidate, drop_value, exptime, .. } => {
            let keep = (*invalidate, *drop_value, *exptime);
            compared(compare, state, |item| Some(delete(keep, when, item)), Said::NotFound)
        }
        Op::Count { up, delta, vivify, exptime, .. } => {
            if let (None, Some((exptime, initial))) = (state, vivify) {
                let value: Bytes = initial.to_string().into_bytes().into();
                let version = fresh(value, 0, expiry(*exptime, when));
                return vec![written(version, *exptime, |version| Said::Counted(*initial, version))];
            }
            let counted = |item: &Version| Some(count(*up, *delta, *exptime, when, item));
            let mut outcomes = compared(compare, state, counted, Said::NotFound);
            // Which of two reasons not to count is told is left open; memcached looks at the value's length first.
            let is_number = state.as_ref().is_some_and(|item| number(&item.value).is_some());
            if outcomes[0].said == Said::Exists && !is_number {
                outcomes.push(Outcome { said: Said::NonNumeric, next: state.clone() });
            }
            outcomes
        }
    }
}

/// What a write that was refused without a word leaves, beside what it would have done.
pub(super) fn refused(request: &Request, state: &State) -> State {
    match &request.op {
        // The old value is forgotten, so that nobody takes it for the new one.
        Op::Put(Put { mode: Mode::Set, .. }) => None,
        Op::Put(_) if request.form == Form::Meta => None,
        _ => state.clone(),
    }
}

fn fetch(
    touch: Option<i64>,
    vivify: Option<i64>,
    recache: Option<i64>,
    can_claim: bool,
    when: When,
    state: &State,
) -> Outcome {
    let Some(item) = state else {
        let Some(exptime) = vivify else { return Outcome { said: Said::Miss, next: None } };
        let mut version = fresh([].into(), 0, expiry(exptime, when));
        version.is_taken = true;
        let shown = version.clone();
        let expiry = version.expiry;
        return Outcome {
            said: Said::Shown { version: shown, expiry, token: Token::Won },
            next: Some(version),
        };
    };
    let is_due = |below: i64| item.expiry.is_some_and(|at| (at.latest_ms - when.earliest_ms) / 1000 < below);
    let token = match (item.is_taken, can_claim && (item.is_stale || recache.is_some_and(is_due))) {
        (true, _) if can_claim => Token::Taken,
        (false, true) => Token::Won,
        _ => Token::None,
    };
    let mut next = item.clone();
    next.is_taken |= token == Token::Won;
    if let Some(exptime) = touch {
        next.expiry = expiry(exptime, when);
    }
    let said = Said::Shown { version: item.clone(), expiry: next.expiry, token };
    let is_gone = touch.is_some_and(|exptime| exptime < 0);
    Outcome { said, next: (!is_gone).then_some(next) }
}

fn apply_put(put: &Put, form: Form, compare: Option<u64>, when: When, state: &State) -> Vec<Outcome> {
    let mut version = fresh(Arc::clone(&put.value), put.flags, expiry(put.exptime, when));
    version.cas = put.new_cas;
    // `ms` with `add` compares nothing.
    let compare = compare.filter(|_| put.mode != Mode::Add);
    let unchanged = |said| vec![Outcome { said, next: state.clone() }];
    let stored = |version, exptime| vec![written(version, exptime, |version| Said::Done(Some(version)))];
    let Some(item) = state else {
        let is_joined = matches!(put.mode, Mode::Append | Mode::Prepend);
        return match (put.mode, put.vivify) {
            _ if compare.is_some() && (form == Form::Classic || !is_joined) => unchanged(Said::NotFound),
            _ if compare.is_some() => unchanged(Said::NotStored),
            (Mode::Set | Mode::Add, _) => stored(version, put.exptime),
            (Mode::Append | Mode::Prepend, Some(exptime)) => {
                version.expiry = expiry(exptime, when);
                stored(version, exptime)
            }
            _ => unchanged(Said::NotStored),
        };
    };
    let exptime = match put.mode {
        Mode::Add => return unchanged(Said::NotStored),
        Mode::Set | Mode::Replace => put.exptime,
        Mode::Append | Mode::Prepend => {
            let (first, second) = match put.mode {
                Mode::Append => (&item.value, &put.value),
                _ => (&put.value, &item.value),
            };
            version.value = [&first[..], &second[..]].concat().into();
            version.flags = item.flags;
            version.expiry = item.expiry;
            0
        }
    };
    let mut outcomes = compared(compare, state, |_| stored(version.clone(), exptime).pop(), Said::NotFound);
    let invalidates = put.invalidate && matches!(put.mode, Mode::Set | Mode::Replace);
    if let (true, Some(compare)) = (invalidates, compare)
        && item.cas.is_none_or(|cas| compare < cas)
    {
        version.is_stale = true;
        version.is_taken = true;
        version.expiry = item.expiry;
        let late = stored(version, 0);
        // If its cas id is known, this is what happens instead of a refusal.
        outcomes.retain(|outcome| item.cas.is_none() || outcome.said != Said::Exists);
        outcomes.extend(late);
    }
    outcomes
}

fn delete(keep: (bool, bool, Option<i64>), when: When, item: &Version) -> Outcome {
    let (invalidate, drop_value, exptime) = keep;
    if !invalidate && !drop_value {
        return Outcome { said: Said::Done(None), next: None };
    }
    let mut next = Version { cas: None, ..item.clone() };
    if drop_value {
        next.value = [].into();
        next.flags = 0;
    }
    if invalidate {
        next.is_stale = true;
        next.is_taken = false;
        next.expiry = exptime.map_or(item.expiry, |exptime| expiry(exptime, when));
    }
    Outcome { said: Said::Done(None), next: Some(next) }
}

fn count(up: bool, delta: u64, exptime: Option<i64>, when: When, item: &Version) -> Outcome {
    let Some(old) = number(&item.value) else {
        return Outcome { said: Said::NonNumeric, next: Some(item.clone()) };
    };
    let new = if up { old.wrapping_add(delta) } else { old.saturating_sub(delta) };
    let mut value = new.to_string().into_bytes();
    // A shorter number keeps the old length.
    value.resize(value.len().max(item.value.len()), b' ');
    let mut version = Version { value: value.into(), cas: None, ..item.clone() };
    if let Some(exptime) = exptime {
        version.expiry = expiry(exptime, when);
    }
    written(version, exptime.unwrap_or(0), |version| Said::Counted(new, version))
}

/// What happens to an item if the cas id that was sent is its own, and if it isn't, as far as that is known.
fn compared(
    compare: Option<u64>,
    state: &State,
    does: impl Fn(&Version) -> Option<Outcome>,
    missing: Said,
) -> Vec<Outcome> {
    let Some(item) = state else { return vec![Outcome { said: missing, next: None }] };
    // A cas id that was shown is the item's only if it was shown of this version.
    let is_own = compare.is_none_or(|compare| item.cas == Some(compare));
    if is_own {
        return does(item).into_iter().collect();
    }
    vec![Outcome { said: Said::Exists, next: state.clone() }]
}

fn fresh(value: Bytes, flags: u32, expiry: Expiry) -> Version {
    Version { value, flags, expiry, cas: None, is_stale: false, is_taken: false }
}

/// A new version, which is gone at once if it was expired when it was written.
fn written(version: Version, exptime: i64, said: impl Fn(Version) -> Said) -> Outcome {
    Outcome { said: said(version.clone()), next: (exptime >= 0).then_some(version) }
}

fn expiry(exptime: i64, when: When) -> Expiry {
    (exptime != 0).then(|| When {
        earliest_ms: when.earliest_ms + exptime * 1000,
        latest_ms: when.latest_ms + exptime * 1000,
    })
}

/// A stored number as `strtoull` reads it, if whatever follows begins with a blank.
fn number(value: &[u8]) -> Option<u64> {
    if value.len() > DIGITS_MAX {
        return None;
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &value[value.iter().take_while(|byte| is_blank(byte)).count()..];
    let end = text.iter().position(is_blank).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).ok()?;
    text.parse().ok()
}
