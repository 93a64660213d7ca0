//! What a key may hold, as far as the only client that writes it can know.
//!
//! A cache may forget everything at any time, and that is all it may do: what is not forgotten is what was written last.
//! Once a key was seen not to be there, it stays away until it is written again.

use std::fmt;

/// Values that are told apart at most; if there could be more, any is taken for right until the next one is sure.
const CANDIDATES_MAX: usize = 4;

/// What one key may hold, besides nothing at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    candidates: Vec<Vec<u8>>,
    /// Whether it may hold anything.
    is_unknown: bool,
    /// Whether it may have been deleted.
    is_doubtful: bool,
}

/// A command on one key, as far as what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    Touch,
    Set(Vec<u8>),
    Add(Vec<u8>),
    Replace(Vec<u8>),
    Append(Vec<u8>),
    Prepend(Vec<u8>),
    Delete,
    Incr(u64),
    Decr(u64),
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A value was found.
    Value(&'a [u8]),
    /// It was done.
    Done,
    /// It was not done, as nothing, or something, was there.
    NotDone,
    /// There was no memory, which forgets what a `set` should have replaced.
    NoMemory,
    /// It may have been done.
    Unconfirmed,
}

/// An answer that can't be.
#[derive(Debug)]
pub(super) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Entry {
    /// Everything is forgotten.
    pub(super) fn flush(&mut self) {
        *self = Entry::default();
    }

    /// A look-up was answered with nothing, which may be said instead of what is not confirmed.
    pub(super) fn deny(&mut self) {
        self.is_doubtful = true;
    }

    /// Takes note of an answer.
    pub(super) fn note(&mut self, action: &Action, answer: &Answer<'_>) -> Result<(), Wrong> {
        let before = self.clone();
        let is_possible = match answer {
            Answer::Unconfirmed => {
                self.may_have_been_done(action);
                true
            }
            Answer::NoMemory => self.was_refused(action),
            Answer::Value(value) => self.has_answered(action, value),
            Answer::Done => self.was_done(action),
            Answer::NotDone => self.was_not_done(action),
        };
        if is_possible { Ok(()) } else { Err(Wrong(told(&before, action, answer))) }
    }

    /// Whether it has to hold something, unless that was forgotten.
    pub(super) fn is_sure(&self) -> bool {
        !self.is_unknown && !self.is_doubtful && self.candidates.len() == 1
    }

    /// How long what it holds may be.
    pub(super) fn bytes_max(&self) -> usize {
        self.candidates.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn is_there(&self) -> bool {
        self.is_unknown || !self.candidates.is_empty()
    }

    fn has_answered(&mut self, action: &Action, value: &[u8]) -> bool {
        let found: Vec<Vec<u8>> = match action {
            Action::Get | Action::Touch => {
                let is_possible = self.is_unknown || self.candidates.iter().any(|it| it == value);
                is_possible.then(|| value.to_vec()).into_iter().collect()
            }
            // The number there is now.
            Action::Incr(_) | Action::Decr(_) => {
                self.candidates.iter().filter_map(|it| counted(it, action, value)).collect()
            }
            _ => return false,
        };
        let is_possible = self.is_unknown || !found.is_empty();
        self.is_unknown = found.is_empty();
        self.is_doubtful = false;
        self.candidates = found;
        is_possible
    }

    fn was_done(&mut self, action: &Action) -> bool {
        let was_there = self.is_there();
        match action {
            Action::Set(value) | Action::Add(value) | Action::Replace(value) => {
                *self = Entry { candidates: vec![value.clone()], ..Entry::default() };
                was_there || !matches!(action, Action::Replace(_))
            }
            Action::Append(_) | Action::Prepend(_) => {
                self.candidates = self.candidates.iter().map(|it| joined(it, action)).collect();
                was_there
            }
            Action::Delete => {
                self.flush();
                was_there
            }
            Action::Touch => was_there,
            Action::Get | Action::Incr(_) | Action::Decr(_) => false,
        }
    }

    fn was_not_done(&mut self, action: &Action) -> bool {
        match action {
            // Something was there.
            Action::Add(_) => self.is_there(),
            Action::Set(_) => false,
            _ => {
                self.flush();
                true
            }
        }
    }

    fn was_refused(&mut self, action: &Action) -> bool {
        match action {
            Action::Set(_) => self.flush(),
            Action::Delete | Action::Get => return false,
            _ => {}
        }
        true
    }

    fn may_have_been_done(&mut self, action: &Action) {
        self.is_doubtful |= *action == Action::Delete;
        let more: Vec<Vec<u8>> = match action {
            Action::Get | Action::Touch | Action::Delete => Vec::new(),
            Action::Set(value) | Action::Add(value) | Action::Replace(value) => vec![value.clone()],
            Action::Append(_) | Action::Prepend(_) => {
                self.candidates.iter().map(|it| joined(it, action)).collect()
            }
            Action::Incr(_) | Action::Decr(_) => {
                self.is_unknown = true;
                Vec::new()
            }
        };
        self.candidates.extend(more);
        if self.candidates.len() > CANDIDATES_MAX {
            self.is_unknown = true;
        }
        if self.is_unknown {
            self.candidates.clear();
        }
    }
}

fn joined(value: &[u8], action: &Action) -> Vec<u8> {
    match action {
        Action::Append(more) => [value, more].concat(),
        Action::Prepend(more) => [more, value].concat(),
        _ => value.to_vec(),
    }
}

/// What is stored when counting makes this number of a value, if it does: blanks fill up what it is shorter.
fn counted(before: &[u8], action: &Action, number: &[u8]) -> Option<Vec<u8>> {
    let counted: u64 = std::str::from_utf8(before).ok()?.trim_end().parse().ok()?;
    let next = match action {
        Action::Incr(delta) => counted.wrapping_add(*delta),
        Action::Decr(delta) => counted.saturating_sub(*delta),
        _ => return None,
    };
    let mut value = next.to_string().into_bytes();
    if value != number {
        return None;
    }
    value.resize(before.len().max(number.len()), b' ');
    Some(value)
}

fn told(before: &Entry, action: &Action, answer: &Answer<'_>) -> String {
    let show = |bytes: &[u8]| bytes[..bytes.len().min(60)].escape_ascii().to_string();
    let could: Vec<String> = before.candidates.iter().map(|it| show(it)).collect();
    let answer = match answer {
        Answer::Value(value) => format!("{} bytes, {}", value.len(), show(value)),
        other => format!("{other:?}"),
    };
    let action: String = format!("{action:?}").chars().take(80).collect();
    format!("{action} was answered {answer}; there could be nothing, or one of {could:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be answered after some commands that were confirmed.
    fn check(before: &[Action], action: &Action, answer: &Answer<'_>, is_possible: bool) {
        let mut entry = Entry::default();
        for action in before {
            let done = if matches!(action, Action::Get) { Answer::NotDone } else { Answer::Done };
            entry.note(action, &done).expect("possible");
        }
        assert_eq!(entry.note(action, answer).is_ok(), is_possible, "{before:?} {action:?} {answer:?}");
    }

    #[test]
    fn a_cache_may_forget_and_nothing_else() {
        let set = |value: &str| Action::Set(value.into());
        let (one, two) = (set("1"), set("2"));
        check(&[], &Action::Get, &Answer::NotDone, true);
        check(&[], &Action::Get, &Answer::Value(b"1"), false);
        let get = |before: &[Action], value: &[u8], is_possible| {
            check(before, &Action::Get, &Answer::NotDone, true);
            check(before, &Action::Get, &Answer::Value(value), is_possible);
        };
        get(std::slice::from_ref(&one), b"1", true);
        get(std::slice::from_ref(&one), b"11", false);
        get(&[one.clone(), two.clone()], b"2", true);
        get(&[one.clone(), two.clone()], b"1", false);
        get(&[one.clone(), Action::Delete], b"1", false);
        // It was seen not to be there.
        get(&[one.clone(), Action::Get], b"1", false);
        get(&[one.clone(), Action::Append("x".into())], b"1x", true);
        get(&[one.clone(), Action::Prepend("x".into())], b"x1", true);
        check(&[], &Action::Delete, &Answer::Done, false);
        check(&[], &Action::Replace("3".into()), &Answer::Done, false);
        check(&[], &Action::Add("3".into()), &Answer::NotDone, false);
        check(std::slice::from_ref(&one), &Action::Add("3".into()), &Answer::NotDone, true);
        check(std::slice::from_ref(&one), &two, &Answer::NotDone, false);
        check(std::slice::from_ref(&one), &Action::Incr(9), &Answer::Value(b"10"), true);
        check(std::slice::from_ref(&one), &Action::Incr(9), &Answer::Value(b"9"), false);
    }

    #[test]
    fn numbers_keep_their_length_when_counted_down() {
        let mut entry = Entry::default();
        entry.note(&Action::Set("10".into()), &Answer::Done).expect("possible");
        entry.note(&Action::Decr(1), &Answer::Value(b"9")).expect("possible");
        assert!(entry.clone().note(&Action::Get, &Answer::Value(b"9")).is_err());
        entry.note(&Action::Get, &Answer::Value(b"9 ")).expect("possible");
        entry.note(&Action::Incr(1), &Answer::Value(b"10")).expect("possible");
        // Whichever it was, it is nothing now, of one length or the other.
        entry.note(&Action::Set("7000".into()), &Answer::Unconfirmed).expect("possible");
        entry.note(&Action::Decr(9000), &Answer::Value(b"0")).expect("possible");
        for value in ["0   ", "0 "] {
            entry.clone().note(&Action::Get, &Answer::Value(value.as_bytes())).expect("possible");
        }
        assert!(entry.note(&Action::Get, &Answer::Value(b"0")).is_err());
    }

    #[test]
    fn what_was_denied_may_still_be_there() {
        let mut entry = Entry::default();
        entry.note(&Action::Set("1".into()), &Answer::Done).expect("possible");
        assert!(entry.is_sure());
        entry.deny();
        assert!(!entry.is_sure());
        entry.note(&Action::Add("2".into()), &Answer::NotDone).expect("possible");
        assert!(entry.clone().note(&Action::Get, &Answer::Value(b"2")).is_err());
        entry.note(&Action::Get, &Answer::Value(b"1")).expect("possible");
        assert!(entry.is_sure());
    }

    #[test]
    fn what_is_not_confirmed_may_have_been_done() {
        let mut entry = Entry::default();
        entry.note(&Action::Set("1".into()), &Answer::Done).expect("possible");
        entry.note(&Action::Set("2".into()), &Answer::Unconfirmed).expect("possible");
        for value in [b"1", b"2"] {
            entry.clone().note(&Action::Get, &Answer::Value(value)).expect("possible");
        }
        assert!(entry.clone().note(&Action::Get, &Answer::Value(b"3")).is_err());
        entry.note(&Action::Get, &Answer::Value(b"2")).expect("possible");
        assert!(entry.note(&Action::Get, &Answer::Value(b"1")).is_err());
        for number in 0..2 * CANDIDATES_MAX {
            let action = Action::Set(number.to_string().into());
            entry.note(&action, &Answer::Unconfirmed).expect("possible");
        }
        entry.note(&Action::Get, &Answer::Value(b"any")).expect("possible");
        assert!(entry.note(&Action::Get, &Answer::Value(b"other")).is_err());
    }
}
