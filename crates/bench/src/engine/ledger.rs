//! What was written, and what of it the server acknowledged: from this follows which replies may come.
//!
//! Each key has a word of atomic bits, shared by all threads. A key has at most one write under way, so that the order
//! of its versions is known; who wants to write a key that is being written draws another one. A read remembers what
//! was acknowledged when it was sent: it may find that version or any later one that was sent before its reply came.

use std::sync::atomic::{AtomicU64, Ordering};

/// Versions that a key may have; one with more is not written any more.
const VERSION_MAX: u64 = (1 << 28) - 1;

/// Where the version sent last begins; the one acknowledged last stands below it.
const SENT: u32 = 28;
/// A write is under way.
const BUSY: u64 = 1 << 56;
/// What was acknowledged last may be absent: never written, deleted, mortal, or the server refused a write.
const ABSENT: u64 = 1 << 57;
/// The write under way may leave the key absent.
const REMOVES: u64 = 1 << 58;

/// What was known of a key when a request was sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Floor(u64);

/// What became of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The server did it; the key is there.
    Stored,
    /// The server did it; the key is not there, or will not be at some time.
    Removed,
    /// The server did not do it, by the command's own rules.
    Left,
    /// The server said that it could not, or did not say.
    Unknown,
}

/// Whether a version may be seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    /// It may.
    Right,
    /// A later one was acknowledged before this was asked for.
    Stale,
    /// Nobody wrote it yet.
    Unwritten,
}

/// The words of all keys.
#[derive(Debug)]
pub(super) struct Ledger {
    words: Box<[AtomicU64]>,
}

fn acknowledged(word: u64) -> u64 {
    word & VERSION_MAX
}

fn sent(word: u64) -> u64 {
    word >> SENT & VERSION_MAX
}

// Relaxed throughout: that a write was acknowledged and that a read is sent afterwards is ordered by one thread, or by
// the server's sockets between two; a word is judged by itself alone. A reader on another thread that sees a word late
// has a lower floor, so it judges more mildly, never more harshly. The upper bound is read after the reply came, which
// the server could only send after the write was sent, after the word was changed.
impl Ledger {
    pub(super) fn new(keys: u64) -> Self {
        Ledger { words: (0..keys).map(|_| AtomicU64::new(ABSENT)).collect() }
    }

    fn word(&self, key: u64) -> &AtomicU64 {
        &self.words[usize::try_from(key).expect("keys of a run that verifies are few")]
    }

    /// What a request that is sent now may find.
    pub(super) fn floor(&self, key: u64) -> Floor {
        Floor(self.word(key).load(Ordering::Relaxed))
    }

    /// The version that a write gets which is sent now; nothing if another is under way.
    pub(super) fn begin(&self, key: u64, removes: bool) -> Option<u32> {
        let word = self.word(key);
        let old = word.load(Ordering::Relaxed);
        if old & BUSY != 0 || sent(old) == VERSION_MAX {
            return None;
        }
        let new = (old & ABSENT)
            | acknowledged(old)
            | (sent(old) + 1) << SENT
            | BUSY
            | if removes { REMOVES } else { 0 };
        // Acquire and release: the write that ended before happened before this one.
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        u32::try_from(sent(new)).ok()
    }

    /// Ends the write that is under way.
    pub(super) fn end(&self, key: u64, written: Written) {
        let word = self.word(key);
        let old = word.load(Ordering::Relaxed);
        debug_assert!(old & BUSY != 0);
        let (version, absent) = match written {
            Written::Stored => (sent(old), 0),
            Written::Removed => (sent(old), ABSENT),
            Written::Left => (acknowledged(old), old & ABSENT),
            Written::Unknown => (acknowledged(old), ABSENT),
        };
        word.store(version | sent(old) << SENT | absent, Ordering::Release);
    }

    /// Whether this version may have been found by a request with that floor.
    pub(super) fn judge(&self, key: u64, floor: Floor, version: u32) -> Seen {
        let word = self.word(key).load(Ordering::Acquire);
        match u64::from(version) {
            version if version > sent(word) => Seen::Unwritten,
            version if version < acknowledged(floor.0) => Seen::Stale,
            _ => Seen::Right,
        }
    }

    /// The versions that may have been found, newest first, and the few before them.
    pub(super) fn likely(&self, key: u64, floor: Floor) -> impl Iterator<Item = u32> + use<> {
        const BEFORE: u64 = 64;
        const MANY: usize = 256;
        let newest = sent(self.word(key).load(Ordering::Acquire));
        let oldest = acknowledged(floor.0).saturating_sub(BEFORE);
        (oldest..=newest).rev().take(MANY).filter_map(|version| u32::try_from(version).ok())
    }

    /// Whether a key's absence contradicts what was acknowledged; says so once, until it is written again. `own` if
    /// whoever asks is the write under way.
    pub(super) fn misses(&self, key: u64, floor: Floor, own: bool) -> bool {
        let word = self.word(key);
        let now = word.load(Ordering::Acquire);
        let may_vanish = |word: u64| word & ABSENT != 0 || (word & REMOVES != 0 && !own);
        if may_vanish(floor.0) || may_vanish(now) || acknowledged(floor.0) != acknowledged(now) {
            return false;
        }
        word.fetch_or(ABSENT, Ordering::Relaxed) & ABSENT == 0
    }
}

/// Bounds of a counter: what was sent and acknowledged in both directions.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: [AtomicU64; 2],
    acknowledged: [AtomicU64; 2],
    /// It was absent, or a command failed: its value follows from nothing any more.
    lost: std::sync::atomic::AtomicBool,
}

/// What counters start with, high enough never to reach zero, low enough to keep their length.
pub(super) const COUNTER_START: u64 = 1_000_000_000_000;

impl Tally {
    /// What was acknowledged in both directions, for a request that is sent now.
    pub(super) fn floor(&self) -> [u64; 2] {
        [0, 1].map(|way| self.acknowledged[way].load(Ordering::Relaxed))
    }

    /// A command is sent, up or down.
    pub(super) fn begin(&self, down: bool) {
        self.sent[usize::from(down)].fetch_add(1, Ordering::Relaxed);
    }

    /// It was done.
    pub(super) fn end(&self, down: bool) {
        self.acknowledged[usize::from(down)].fetch_add(1, Ordering::Release);
    }

    /// From here on its value is not judged.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether a value may be seen by a request with that floor. Below: something acknowledged is missing.
    pub(super) fn judge(&self, [up, down]: [u64; 2], value: u64) -> Seen {
        let [up_sent, down_sent] = [0, 1].map(|way| self.sent[way].load(Ordering::Acquire));
        if self.lost.load(Ordering::Acquire) {
            return Seen::Right;
        }
        let lowest = (COUNTER_START + up).saturating_sub(down_sent);
        let highest = (COUNTER_START + up_sent).saturating_sub(down);
        match value {
            value if value < lowest => Seen::Stale,
            value if value > highest => Seen::Unwritten,
            _ => Seen::Right,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_may_find_what_was_sent_since() {
        let ledger = Ledger::new(1);
        assert_eq!(ledger.begin(0, false), Some(1));
        assert_eq!(ledger.begin(0, false), None, "one write at a time");
        ledger.end(0, Written::Stored);
        let floor = ledger.floor(0);
        assert_eq!(ledger.judge(0, floor, 2), Seen::Unwritten);
        assert_eq!(ledger.begin(0, false), Some(2));
        for (version, seen) in [(0, Seen::Stale), (1, Seen::Right), (2, Seen::Right), (3, Seen::Unwritten)] {
            assert_eq!(ledger.judge(0, floor, version), seen, "version {version}");
        }
        ledger.end(0, Written::Stored);
        assert_eq!(ledger.judge(0, floor, 1), Seen::Right, "asked for before the second was acknowledged");
        assert_eq!(ledger.judge(0, ledger.floor(0), 1), Seen::Stale);
        assert_eq!(ledger.likely(0, floor).collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn a_write_that_did_not_take_hold_changes_no_floor() {
        for written in [Written::Left, Written::Unknown] {
            let ledger = Ledger::new(1);
            ledger.begin(0, false);
            ledger.end(0, Written::Stored);
            assert_eq!(ledger.begin(0, false), Some(2));
            ledger.end(0, written);
            assert_eq!(ledger.judge(0, ledger.floor(0), 1), Seen::Right);
            assert_eq!(ledger.judge(0, ledger.floor(0), 2), Seen::Right, "it may be done late");
            assert_eq!(ledger.misses(0, ledger.floor(0), false), written == Written::Left);
            assert_eq!(ledger.begin(0, false), Some(3));
        }
    }

    #[test]
    fn absence_is_right_or_a_loss() {
        let ledger = Ledger::new(1);
        assert!(!ledger.misses(0, ledger.floor(0), false), "never written");
        ledger.begin(0, false);
        let during = ledger.floor(0);
        ledger.end(0, Written::Stored);
        assert!(!ledger.misses(0, during, false), "asked for before it was acknowledged");
        let floor = ledger.floor(0);
        ledger.begin(0, true);
        assert!(!ledger.misses(0, floor, false), "a delete is under way");
        ledger.end(0, Written::Removed);
        assert!(!ledger.misses(0, floor, false), "deleted");
        ledger.begin(0, false);
        ledger.end(0, Written::Stored);
        assert!(!ledger.misses(0, floor, false), "written after the question");
        assert!(ledger.misses(0, ledger.floor(0), false), "lost");
        assert!(!ledger.misses(0, ledger.floor(0), false), "which is said once");
    }

    #[test]
    fn a_counter_has_bounds() {
        let tally = Tally::default();
        let floor = tally.floor();
        tally.begin(false);
        let value = |step: i64| COUNTER_START.strict_add_signed(step);
        for (step, seen) in [(-1, Seen::Stale), (0, Seen::Right), (1, Seen::Right), (2, Seen::Unwritten)] {
            assert_eq!(tally.judge(floor, value(step)), seen, "{step}");
        }
        tally.end(false);
        assert_eq!(tally.judge(tally.floor(), value(0)), Seen::Stale, "an increment was lost");
        tally.begin(true);
        assert_eq!(tally.judge(tally.floor(), value(0)), Seen::Right);
        tally.lose();
        assert_eq!(tally.judge(tally.floor(), 7), Seen::Right);
    }
}
