//! What is known of one key, and how records change that.

use guard::Kind;

use super::{Change, Finding, Seen, Suspicion, Tick, Version, earlier, is_over};

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) known: Known,
    /// When the turn began, or a record was missed: of commands before, even the versions' ids say nothing about order.
    since: Tick,
    /// When the record arrived by which it is known. If unknown: only younger records establish anything.
    at: Tick,
    /// Workers that saw what is known, so that what comes from them is later. Workers from 64 on have no bit.
    workers: u64,
    /// As it was when the version was sighted last.
    vanished: u64,
    /// The earliest expiry time that the version ever had.
    exptime_min: u32,
    /// The same of versions that are not known yet, but were seen: a touch may arrive before what it touched.
    exptime_min_ahead: u32,
    /// What the record by which it is known has found, if that is a change.
    replaced: Option<Version>,
    /// The version known before; whoever changed that came earlier.
    former: Option<Version>,
    /// The version that was removed last.
    removed: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Unknown,
    /// For the whole turn.
    Unknowable,
    Absent,
    Version(Version),
}

/// What came of comparing a look-up with what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// It can't be compared.
    Not,
    Agrees,
    /// Nothing was found, for a reason.
    Vanished,
    Differs,
}

impl Known {
    pub(super) fn of(version: Option<Version>) -> Self {
        version.map_or(Known::Absent, Known::Version)
    }
}

impl Key {
    pub(super) fn unknown(since: Tick) -> Self {
        Key {
            known: Known::Unknown,
            since,
            at: since,
            workers: 0,
            vanished: 0,
            exptime_min: 0,
            exptime_min_ahead: 0,
            replaced: None,
            former: None,
            removed: None,
        }
    }

    /// What is known no longer holds.
    pub(super) fn forget(&mut self, now: Tick) {
        let known = if self.known == Known::Unknowable { Known::Unknowable } else { Known::Unknown };
        *self = Key { known, since: self.since, ..Key::unknown(now) };
    }

    /// A record did not arrive.
    pub(super) fn miss(&mut self, now: Tick) {
        self.forget(now);
        self.since = now;
    }

    /// Whether a command may have taken place before the turn, or before a record that did not arrive.
    pub(super) fn is_early(&self, seen: &Seen) -> bool {
        seen.at <= self.since
    }

    fn is_known(&self) -> bool {
        !matches!(self.known, Known::Unknown | Known::Unknowable)
    }

    /// Whether a look-up came after the one by which something is known.
    fn precedes(&self, seen: &Seen) -> bool {
        seen.at > self.at || self.workers & bit(seen.worker) != 0
    }

    pub(super) fn compare(&self, seen: &Seen, seconds: u32) -> Compared {
        // A version that was replaced can't be replaced again, in whatever order the two arrive.
        let is_twice = seen.is_change() && seen.found.is_some() && seen.found == self.replaced;
        let is_comparable = self.is_known() && seen.change != Change::Unordered;
        if !is_comparable || !(self.precedes(seen) || is_twice) {
            return Compared::Not;
        }
        if self.known == Known::of(seen.found) {
            return Compared::Agrees;
        }
        let is_vanished = self.vanished != seen.vanished || is_over(self.exptime_min, seconds);
        if seen.found.is_none() && is_vanished { Compared::Vanished } else { Compared::Differs }
    }

    pub(super) fn suspicion(&self, seen: &Seen, now: Tick) -> Suspicion {
        let expected = match self.known {
            Known::Version(version) => Some(version),
            _ => None,
        };
        let kind = match seen.found {
            None => Kind::Lost,
            Some(_) if expected.is_none() || seen.found == self.removed => Kind::Resurrected,
            Some(_) => Kind::Stale,
        };
        let finding = Finding { kind, hash: seen.hash, expected, found: seen.found, worker: seen.worker };
        Suspicion { finding, arrived: now, vanished: self.vanished, exptime_min: self.exptime_min }
    }

    /// A record of something early. Even the version doesn't say when: an id that a client chose before may have been there
    /// twice.
    pub(super) fn take_early(&mut self, seen: &Seen, now: Tick) {
        match seen.change {
            Change::Unordered => self.known = Known::Unknowable,
            Change::Kept => {
                self.exptime_min = earlier(self.exptime_min, seen.exptime);
                self.exptime_min_ahead = earlier(self.exptime_min_ahead, seen.exptime);
            }
            Change::Wrote(_) | Change::Removed => self.forget(now),
        }
    }

    /// What is known after this record.
    pub(super) fn take(&mut self, seen: &Seen, now: Tick, compared: Compared) {
        let result = match seen.change {
            Change::Unordered => return self.known = Known::Unknowable,
            // The same version written anew is no change.
            Change::Wrote(version) if seen.found != Some(version) => Some(version),
            Change::Removed => None,
            Change::Kept | Change::Wrote(_) => return self.sight(seen, now, compared),
        };
        if self.known == Known::Unknowable {
            return;
        }
        let is_next = match self.known {
            // A version is there once, so whoever found it came after it.
            Known::Version(version) if seen.found == Some(version) => true,
            // What arrived before took hold before.
            Known::Unknown => seen.at > self.at,
            _ => self.precedes(seen),
        };
        if is_next {
            let former = match self.known {
                Known::Version(version) => Some(version),
                _ => None,
            };
            *self = Key {
                known: Known::of(result),
                since: self.since,
                at: now,
                workers: bit(seen.worker),
                vanished: seen.vanished,
                exptime_min: earlier(seen.exptime, self.exptime_min_ahead),
                exptime_min_ahead: self.exptime_min_ahead,
                replaced: seen.found,
                former,
                removed: self.removed,
            };
        } else if !self.follows(seen.found, result) {
            let removed = self.removed;
            self.forget(now);
            self.removed = removed;
        }
        if result.is_none() {
            self.removed = seen.found.or(self.removed);
        }
    }

    /// Whether a change is known to come before the one by which something is known.
    fn follows(&self, found: Option<Version>, result: Option<Version>) -> bool {
        let is_before = result.is_some() && result == self.replaced;
        self.is_known() && (is_before || found.is_some() && found == self.former)
    }

    /// A look-up that changed nothing.
    fn sight(&mut self, seen: &Seen, now: Tick, compared: Compared) {
        match (self.known, seen.found) {
            (Known::Version(version), Some(found)) if version == found => {
                // The version was there then, however the two commands are ordered.
                self.workers |= bit(seen.worker);
                self.vanished = seen.vanished;
                self.exptime_min = earlier(self.exptime_min, seen.exptime);
            }
            (Known::Absent, None) if compared == Compared::Agrees => self.workers |= bit(seen.worker),
            (Known::Unknown, Some(version)) if seen.at > self.at => {
                *self = Key {
                    known: Known::Version(version),
                    at: now,
                    workers: bit(seen.worker),
                    vanished: seen.vanished,
                    exptime_min: earlier(seen.exptime, self.exptime_min_ahead),
                    ..*self
                };
            }
            _ if compared == Compared::Vanished => self.forget(now),
            (_, Some(_)) => self.exptime_min_ahead = earlier(self.exptime_min_ahead, seen.exptime),
            (_, None) => {}
        }
    }
}

/// The bit of a worker; none for those beyond the last.
fn bit(worker: u16) -> u64 {
    1_u64.checked_shl(worker.into()).unwrap_or(0)
}
