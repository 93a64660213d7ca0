//! A second index of a few keys, kept from records, which knows the version that a look-up has to find.
//!
//! A command repeated elsewhere starts from what was found, so it can't show that something else should have been: an
//! entry that was lost, a version that was replaced long ago. That takes the history of a key, and a history has no
//! gaps only if every command on the key is recorded. So one of [`SHARES`] shares of the keys, by hash, is followed
//! completely for [`ROTATION_SECONDS`], then the next one: every key's turn comes once in 17 minutes.
//!
//! # When a look-up is wrong
//!
//! Records of different workers arrive in any order, and readers wait for nobody. What can be relied on:
//!
//! * a version's id is used once. Replaced or removed, it doesn't come back. (Where clients choose ids that is not so;
//!   their keys are left alone, see [`Change::Unordered`].)
//! * records of one worker arrive in order;
//! * a record bears a [`Tick`] read before its look-up, and is passed on with one read after it arrived. If the first
//!   is above the second of an earlier record, then its look-up began after the other command had taken hold.
//!
//! What is known of a key is the version (or its absence) seen or written by one record, such that *every change that
//! took hold after that is in a record that did not arrive yet*. A change that can't be put in order with what is known
//! makes the key unknown, until a record comes that is younger than all that arrived. So a look-up that came later and
//! finds something else has seen a change that is on its way, or is wrong. It is a suspicion until all records have
//! arrived that are old enough to explain it, then a [`Finding`]. An entry that is missing is also explained by an
//! expiry time that passed, and by evictions and flushes in between.
//!
//! What is not found: whatever concerns keys not yet sighted in this turn, keys that several workers write at the same
//! time all the time, and, while entries are being evicted, missing ones.
//!
//! # Limits
//!
//! As many keys as it was made for, others are not followed and counted; [`SUSPICIONS_MAX`] suspicions at a time, others
//! are passed over and counted. Two keys whose 64-bit hashes are equal would be taken for one; among 2^16 keys that
//! happens once in 10^10 turns, and costs an item.

mod follower;
mod key;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasherDefault, Hasher};

use guard::{Digest, Kind, Mismatch};

use self::key::{Compared, Key, Known};
pub(crate) use follower::Follower;

/// Into how many shares the keys are divided, of which one is followed.
pub(crate) const SHARES: u8 = 64;

/// How long one share is followed: long enough for most keys in use to be asked for twice, short enough for what was
/// lost not to be forgotten before its turn.
pub(crate) const ROTATION_SECONDS: u32 = 16;

/// How many suspicions wait for records that may explain them. Each is compared with every record of the share.
pub(crate) const SUSPICIONS_MAX: usize = 64;

/// A version's cas id, as the item carries it.
pub(crate) type Version = u64;

/// A count that only grows: the store's epochs, or microseconds of one monotone clock for all cores.
pub(crate) type Tick = u64;

/// One of the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u8);

/// What one recorded command did with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The key's hash.
    pub(crate) hash: u64,
    /// Whose stream of records it comes from.
    pub(crate) worker: u16,
    /// Read by the worker before the look-up: at the latest then, at the beginning of its round at best.
    pub(crate) at: Tick,
    /// The version that the look-up saw, alive or not.
    pub(crate) found: Option<Version>,
    /// What became of it.
    pub(crate) change: Change,
    /// The expiry time that the version found, or the one written, had afterwards, in Unix seconds; 0 never.
    pub(crate) exptime: u32,
    /// Unix seconds as the command saw them.
    pub(crate) seconds: u32,
    /// A number that is another one whenever an entry with this hash went that no record tells of, by eviction or flush.
    /// Read by the worker before the look-up.
    pub(crate) vanished: u64,
}

/// What became of the entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is the same version as before, or there still is none.
    Kept,
    /// This version took its place.
    Wrote(Version),
    /// It was taken out.
    Removed,
    /// A version with an id that the client chose took its place: ids no longer say which version is meant.
    Unordered,
}

/// How far everybody has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// No command that read a tick up to this one is still to be passed on, or to begin.
    pub(crate) heard: Tick,
    /// The tick now, read while nobody passes anything on.
    pub(crate) now: Tick,
    /// Unix seconds now.
    pub(crate) seconds: u32,
}

/// A look-up that did not find what it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// [`Kind::Lost`], [`Kind::Stale`] or [`Kind::Resurrected`].
    pub(crate) kind: Kind,
    /// The key's hash.
    pub(crate) hash: u64,
    /// The version there was; none if it had been removed.
    pub(crate) expected: Option<Version>,
    /// The version that was found.
    pub(crate) found: Option<Version>,
    /// Whose look-up it was.
    pub(crate) worker: u16,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Keys of the present share that are followed.
    pub(crate) keys: u64,
    /// Look-ups that were compared with what was known.
    pub(crate) checked: u64,
    /// Versions that were not found.
    pub(crate) lost: u64,
    /// Look-ups that found another version than the last.
    pub(crate) stale: u64,
    /// Look-ups that found a removed version.
    pub(crate) resurrected: u64,
    /// Sightings of keys for which there was no room.
    pub(crate) no_room: u64,
    /// Suspicions that were passed over as too many waited.
    pub(crate) passed_over: u64,
    /// How often all that was known had to be forgotten.
    pub(crate) forgotten: u64,
}

/// The index of the share that is followed.
#[derive(Debug)]
pub(crate) struct Shadow {
    share: Share,
    /// The share that was announced to the workers and is followed as soon as all of them record it.
    next: Option<(Share, Tick)>,
    /// Records up to this tick establish nothing.
    since: Tick,
    /// The latest time anybody had, as a clock may be set back.
    seconds_max: u32,
    keys_max: usize,
    keys: HashMap<u64, Key, BuildHasherDefault<AsItIs>>,
    suspicions: Vec<Suspicion>,
    counts: Counts,
}

/// A look-up that found something else than what was known, waiting for an explanation.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    finding: Finding,
    /// When its record arrived: what explains it took hold before.
    arrived: Tick,
    vanished: u64,
    exptime_min: u32,
}

impl Share {
    /// The first of the shares.
    pub(crate) const FIRST: Share = Share(0);

    /// Which one it is: 0 up to [`SHARES`].
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The share of this number, modulo [`SHARES`].
    pub(crate) fn of_number(number: u8) -> Self {
        Share(number % SHARES)
    }

    /// The share whose turn is next.
    pub(crate) fn next(self) -> Self {
        Share((self.0 + 1) % SHARES)
    }

    /// Whether the key with this hash belongs to it.
    #[inline]
    pub(crate) fn holds(self, hash: u64) -> bool {
        // Bits that the map below uses neither for places nor for tags.
        (hash >> 32) as u8 % SHARES == self.0
    }
}

impl Shadow {
    /// Follows a share, up to `keys_max` of its keys, as soon as everybody records it: it was announced to the workers,
    /// then `now` was read.
    pub(crate) fn new(share: Share, keys_max: usize, now: Tick) -> Self {
        Shadow {
            share,
            next: Some((share, now)),
            since: now,
            seconds_max: 0,
            keys_max,
            keys: HashMap::with_capacity_and_hasher(keys_max, BuildHasherDefault::default()),
            suspicions: Vec::with_capacity(SUSPICIONS_MAX),
            counts: Counts::default(),
        }
    }

    /// The share that is followed, or will be.
    pub(crate) fn share(&self) -> Share {
        self.next.map_or(self.share, |(share, _)| share)
    }

    /// The share whose records matter: the one before as long as the next one is not followed.
    pub(crate) fn share_seen(&self) -> Share {
        self.share
    }

    /// Bytes that a shadow of so many keys takes.
    pub(crate) fn bytes(keys_max: usize) -> usize {
        // The map has places for an eighth more, and a power of two of them, each with a byte of its own.
        (keys_max * 8).div_ceil(7).next_power_of_two() * (size_of::<(u64, Key)>() + 1)
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts { keys: self.keys.len() as u64, ..self.counts }
    }

    /// Takes note of a record, which arrived before `now` was read.
    #[inline]
    pub(crate) fn see(&mut self, seen: &Seen, now: Tick) {
        if self.share.holds(seen.hash) {
            self.see_followed(seen, now);
        }
    }

    fn see_followed(&mut self, seen: &Seen, now: Tick) {
        self.seconds_max = self.seconds_max.max(seen.seconds);
        self.suspicions.retain_mut(|suspicion| !suspicion.is_explained_by(seen));
        if self.next.is_some() {
            return;
        }
        let has_room = self.keys.len() < self.keys_max;
        let key = match self.keys.entry(seen.hash) {
            Place::Occupied(key) => key.into_mut(),
            // Nothing to be known by it, so no room is taken.
            Place::Vacant(_) if seen.found.is_none() && seen.change == Change::Kept => return,
            Place::Vacant(_) if !has_room => {
                self.counts.no_room += 1;
                return;
            }
            Place::Vacant(place) => place.insert(Key::unknown(self.since)),
        };
        if key.is_early(seen) {
            key.take_early(seen, now);
            return;
        }
        let compared = key.compare(seen, self.seconds_max);
        let suspicion = key.suspicion(seen, now);
        key.take(seen, now, compared);
        self.counts.checked += u64::from(compared != Compared::Not);
        if compared == Compared::Differs {
            self.suspect(suspicion);
        }
    }

    fn suspect(&mut self, suspicion: Suspicion) {
        let hash = suspicion.finding.hash;
        if self.suspicions.iter().any(|other| other.finding.hash == hash) {
            return;
        }
        if self.suspicions.len() >= SUSPICIONS_MAX {
            self.counts.passed_over += 1;
            return;
        }
        self.suspicions.push(suspicion);
    }

    /// Ends suspicions whose explanation would have arrived, and begins with the next share when everybody records it.
    /// Drops are to be told by [`Shadow::forget_all`] first. `vanished` says for a hash what [`Seen::vanished`] would be
    /// now; whatever went by then has to be in it.
    pub(crate) fn settle(
        &mut self,
        progress: &Progress,
        vanished: impl Fn(u64) -> u64,
        mut found: impl FnMut(&Finding),
    ) {
        self.seconds_max = self.seconds_max.max(progress.seconds);
        let seconds_max = self.seconds_max;
        let mut at = 0;
        while let Some(suspicion) = self.suspicions.get(at) {
            if suspicion.arrived > progress.heard {
                at += 1;
                continue;
            }
            let suspicion = self.suspicions.swap_remove(at);
            let finding = suspicion.finding;
            if let Some(key) = self.keys.get_mut(&finding.hash)
                && key.known == Known::of(finding.expected)
            {
                key.forget(progress.now);
            }
            let is_vanished =
                suspicion.vanished != vanished(finding.hash) || is_over(suspicion.exptime_min, seconds_max);
            if finding.kind == Kind::Lost && is_vanished {
                continue;
            }
            match finding.kind {
                Kind::Lost => self.counts.lost += 1,
                Kind::Stale => self.counts.stale += 1,
                _ => self.counts.resurrected += 1,
            }
            found(&finding);
        }
        if let Some((share, announced)) = self.next
            && progress.heard >= announced
        {
            self.share = share;
            self.next = None;
            self.seconds_max = progress.seconds;
            self.clear(progress.now);
        }
    }

    /// Ends with this share: `share` was announced to the workers, then `now` was read.
    pub(crate) fn rotate(&mut self, share: Share, now: Tick) {
        self.next = Some((share, now));
    }

    /// Some records did not arrive, as was found out before `now` was read: nothing is known any more.
    pub(crate) fn forget_all(&mut self, now: Tick) {
        self.counts.forgotten += 1;
        self.clear(now);
    }

    /// A record of one key did not arrive, as was found out before `now` was read.
    pub(crate) fn forget(&mut self, hash: u64, now: Tick) {
        self.suspicions.retain(|suspicion| suspicion.finding.hash != hash);
        if let Some(key) = self.keys.get_mut(&hash) {
            key.miss(now);
        } else if self.share.holds(hash) && self.keys.len() < self.keys_max {
            self.keys.insert(hash, Key::unknown(now));
        }
    }

    fn clear(&mut self, now: Tick) {
        self.keys.clear();
        self.suspicions.clear();
        self.since = now;
    }
}

impl Finding {
    /// The same in the guard's words; no version is 0, which no version's id is.
    pub(crate) fn mismatch(&self) -> Mismatch {
        let digest = |version: Option<Version>| Digest(version.unwrap_or(0));
        Mismatch::new(self.kind, digest(self.expected), digest(self.found))
    }
}

impl Seen {
    fn is_change(&self) -> bool {
        self.change != Change::Kept
    }
}

impl Suspicion {
    /// Whether the record shows that the look-up was right. What it says of the expiry time is noted.
    fn is_explained_by(&mut self, seen: &Seen) -> bool {
        let Finding { hash, expected, found, .. } = self.finding;
        if seen.hash != hash {
            return false;
        }
        if expected.is_some() && seen.found == expected {
            self.exptime_min = earlier(self.exptime_min, seen.exptime);
        }
        match found {
            _ if seen.change == Change::Unordered => true,
            Some(found) => seen.change == Change::Wrote(found),
            None => seen.is_change() && seen.found == expected && seen.at <= self.arrived,
        }
    }
}

fn earlier(first: u32, second: u32) -> u32 {
    match (first, second) {
        (0, only) | (only, 0) => only,
        _ => first.min(second),
    }
}

/// Whether an expiry time may have passed. Clocks are read at different times, so one second more is allowed for.
fn is_over(exptime: u32, seconds: u32) -> bool {
    exptime != 0 && exptime <= seconds.saturating_add(1)
}

/// The keys of the map are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
