//! What each command must do to one entry of a map: the model of the store, written apart from its operators.

use store::{Arith, Delete, Direction, Exptime, Fetch, Op, Put, PutMode, Request, Status, Token, View};

/// An item as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub flags: u32,
    pub exptime: u32,
    pub cas: u64,
    pub stale: bool,
    pub token_sent: bool,
    pub fetched: bool,
    pub accessed: u32,
}

impl Entry {
    pub fn of(view: &View<'_>) -> Self {
        Entry {
            value: view.value.to_vec(),
            flags: view.flags,
            exptime: view.exptime,
            cas: view.cas,
            stale: view.stale,
            token_sent: view.token_sent,
            fetched: view.fetched,
            accessed: view.accessed,
        }
    }

    pub fn is_alive(&self, now: u32) -> bool {
        self.exptime == 0 || self.exptime > now
    }

    fn accessed_at(self, noted_at: u32) -> Self {
        Entry { fetched: true, accessed: noted_at, ..self }
    }
}

/// What a command must answer, and what it must leave behind.
#[derive(Clone, Debug)]
pub struct Expected {
    pub status: Status,
    pub token: Token,
    pub shown: Option<Entry>,
    pub left: Option<Entry>,
    /// The cas id of a new version is the store's choice, but above this one.
    pub above: Option<u64>,
}

impl Expected {
    fn nothing_done(status: Status, found: Option<&Entry>) -> Self {
        Expected { status, token: Token::None, shown: None, left: found.cloned(), above: None }
    }
}

/// What all commands of a program have in common.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    pub now: u32,
    /// Unix seconds that an access now is noted at: access times end 194 days after the start.
    pub noted_at: u32,
    pub cas: bool,
    pub item_bytes_max: usize,
}

impl Circumstances {
    /// What a request must do to what it finds.
    pub fn expect(&self, request: &Request<'_>, found: Option<&Entry>) -> Expected {
        let mut expected = match &request.op {
            Op::Fetch(fetch) => self.fetch(fetch, found),
            Op::Put(put) => self.put(put, found),
            Op::Delete(delete) => self.delete(delete, found),
            Op::Arith(arith) => self.arith(arith, found),
        };
        if expected.left.as_ref().is_some_and(|left| left.value.len() > self.item_bytes_max) {
            return Expected::nothing_done(Status::TooLarge, found);
        }
        if !self.cas {
            expected.above = None;
        }
        expected
    }

    /// Unix seconds of an expiry time: 30 days and less are relative.
    pub fn absolute(&self, exptime: Exptime) -> u32 {
        if exptime.0 < 0 {
            1
        } else if exptime.0 > 2_592_000 {
            exptime.0.min(i64::from(u32::MAX)) as u32
        } else if exptime.0 > 0 {
            self.now + exptime.0 as u32
        } else {
            0
        }
    }

    /// A new version in the place of what was found.
    fn new_version(
        &self,
        status: Status,
        entry: Entry,
        asked: Option<u64>,
        found: Option<&Entry>,
    ) -> Expected {
        let cas = if self.cas { asked.unwrap_or(0) } else { 0 };
        let entry = Entry { cas, fetched: false, accessed: self.noted_at, ..entry };
        let above = asked.is_none().then(|| found.map_or(0, |found| found.cas));
        Expected { status, token: Token::None, shown: Some(entry.clone()), left: Some(entry), above }
    }

    fn fresh(&self, value: &[u8], flags: u32, exptime: Exptime) -> Entry {
        Entry {
            value: value.to_vec(),
            flags,
            exptime: self.absolute(exptime),
            cas: 0,
            stale: false,
            token_sent: false,
            fetched: false,
            accessed: self.noted_at,
        }
    }

    fn fetch(&self, fetch: &Fetch, found: Option<&Entry>) -> Expected {
        let Some(found) = found else {
            let Some(exptime) = fetch.vivify else { return Expected::nothing_done(Status::Miss, None) };
            let entry = Entry { token_sent: true, ..self.fresh(&[], 0, exptime) };
            let new = self.new_version(Status::Miss, entry, fetch.new_cas, None);
            return Expected { token: Token::Won, ..new };
        };
        let seconds_left = i64::from(found.exptime) - i64::from(self.now);
        let is_due =
            found.stale || fetch.recache.is_some_and(|below| found.exptime != 0 && seconds_left < below);
        let token = if found.token_sent {
            Token::Taken
        } else if fetch.claim && is_due {
            Token::Won
        } else {
            Token::None
        };
        let mut shown = found.clone();
        if let Some(exptime) = fetch.touch {
            shown.exptime = self.absolute(exptime);
        }
        let mut left = shown.clone();
        if fetch.bump {
            left = left.accessed_at(self.noted_at);
        }
        left.token_sent |= token == Token::Won;
        Expected { status: Status::Hit, token, shown: Some(shown), left: Some(left), above: None }
    }

    fn put(&self, put: &Put<'_>, found: Option<&Entry>) -> Expected {
        let fresh = self.fresh(put.value, put.flags, put.exptime);
        let Some(old) = found else {
            let mut fresh = fresh;
            let is_joined = matches!(put.mode, PutMode::Append | PutMode::Prepend);
            if put.compare.is_some() {
                return Expected::nothing_done(Status::NotFound, None);
            }
            if let (true, Some(exptime)) = (is_joined, put.vivify) {
                fresh.exptime = self.absolute(exptime);
            } else if is_joined || put.mode == PutMode::Replace {
                return Expected::nothing_done(Status::NotStored, None);
            }
            return self.new_version(Status::Stored, fresh, put.new_cas, None);
        };
        if put.mode == PutMode::Add {
            let left = Some(old.clone().accessed_at(self.noted_at));
            return Expected { left, ..Expected::nothing_done(Status::NotStored, found) };
        }
        let is_outdated = put.compare.is_some_and(|compare| compare < old.cas);
        if put.compare.is_some_and(|compare| compare != old.cas) && !(put.invalidate && is_outdated) {
            return Expected::nothing_done(Status::Exists, found);
        }
        let joined = match put.mode {
            PutMode::Append => Some([&old.value, put.value].concat()),
            PutMode::Prepend => Some([put.value, &old.value].concat()),
            _ => None,
        };
        let mut entry = match joined {
            Some(value) => Entry { value, flags: old.flags, exptime: old.exptime, ..fresh },
            None => fresh,
        };
        if is_outdated {
            entry = Entry { stale: true, token_sent: true, exptime: old.exptime, ..entry };
        }
        self.new_version(Status::Stored, entry, put.new_cas, found)
    }

    fn delete(&self, delete: &Delete, found: Option<&Entry>) -> Expected {
        let Some(old) = found else { return Expected::nothing_done(Status::NotFound, None) };
        if delete.compare.is_some_and(|compare| compare != old.cas) {
            return Expected::nothing_done(Status::Exists, found);
        }
        if !delete.invalidate && !delete.drop_value {
            return Expected::nothing_done(Status::Deleted, None);
        }
        let mut entry = old.clone();
        if delete.invalidate {
            entry.stale = true;
            entry.token_sent = false;
            entry.exptime = delete.exptime.map_or(old.exptime, |exptime| self.absolute(exptime));
        }
        if delete.drop_value {
            entry.value.clear();
            entry.flags = 0;
        }
        self.new_version(Status::Deleted, entry, delete.new_cas, found)
    }

    fn arith(&self, arith: &Arith, found: Option<&Entry>) -> Expected {
        let Some(old) = found else {
            let Some((exptime, first)) = arith.vivify else {
                return Expected::nothing_done(Status::NotFound, None);
            };
            let entry = self.fresh(first.to_string().as_bytes(), 0, exptime);
            return self.new_version(Status::Stored, entry, arith.new_cas, None);
        };
        if arith.compare.is_some_and(|compare| compare != old.cas) {
            return Expected::nothing_done(Status::Exists, found);
        }
        let Some(number) = number(&old.value) else {
            return Expected::nothing_done(Status::NonNumeric, found);
        };
        let counted = match arith.direction {
            Direction::Incr => number.wrapping_add(arith.delta),
            Direction::Decr => number.saturating_sub(arith.delta),
        };
        let value = format!("{counted:<width$}", width = old.value.len()).into_bytes();
        let exptime = arith.exptime.map_or(old.exptime, |exptime| self.absolute(exptime));
        self.new_version(Status::Stored, Entry { value, exptime, ..old.clone() }, arith.new_cas, found)
    }
}

/// What `strtoull` makes of a stored value of up to 20 bytes, if a blank or nothing follows the digits.
fn number(value: &[u8]) -> Option<u64> {
    if value.len() > 20 {
        return None;
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let mut text = value;
    while let [b' ' | 9..=13, rest @ ..] = text {
        text = rest;
    }
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = std::str::from_utf8(text.split(is_blank).next()?).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
