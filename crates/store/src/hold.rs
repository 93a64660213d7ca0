//! Keeps readable what a worker's records point to, until somebody has looked at it.
//!
//! A worker leaves records of what it executed, and the items they name must not be written over before a validator has
//! seen them, although the worker itself has long moved on. So each worker that leaves records has a *hold*: an epoch
//! that counts in [`Epochs::passed`] like a participant's, but belongs to the records. It is one word:
//!
//! * the worker opens it before the first record of a round, which sets the epoch if nothing is held and forbids to let
//!   go, and closes it when the records are committed;
//! * the validator is busy between [`Lease::begin`] and [`Lease::end`]; in the end it moves the epoch to that of the
//!   last record it saw, or lets go if it has seen all and none was committed meanwhile;
//! * who finds no memory [revokes](Lease::revoke): unless the validator is busy, the epoch moves to now. Records that
//!   are older than that are abandoned, whoever stopped. A worker waits for no validator.

use std::sync::Arc;

use crate::epoch::Epochs;
use crate::sync::{AtomicU64, Ordering};

/// Nothing is held.
pub(crate) const FREE: u64 = u64::MAX;
/// Nobody has the place.
const VACANT: u64 = u64::MAX - 1;
/// The worker has records that it has not committed.
const OPEN: u64 = 1;
/// The worker committed records since the validator began.
const CAME: u64 = 2;
/// The validator looks at items.
const BUSY: u64 = 4;
const FLAG_BITS: u32 = 3;

/// One worker's hold.
pub(crate) struct Held {
    word: AtomicU64,
    /// Records of epochs before this are abandoned.
    floor: AtomicU64,
}

/// The use of a hold, by the worker and by the validator of its records. Vacated when both have dropped it.
pub(crate) struct Lease {
    epochs: Arc<Epochs>,
    place: usize,
}

impl Held {
    pub(crate) fn new() -> Self {
        Held { word: AtomicU64::new(VACANT), floor: AtomicU64::new(0) }
    }

    /// The epoch that is held, if one is.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word < VACANT).then_some(word >> FLAG_BITS)
    }
}

impl Lease {
    /// A hold that nobody has; none when all are taken.
    pub(crate) fn new(epochs: &Arc<Epochs>) -> Option<Arc<Self>> {
        let place = epochs.holds().iter().position(|held| {
            // Acquire pairs with the release in `drop`.
            held.0.word.compare_exchange(VACANT, FREE, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        Some(Arc::new(Lease { epochs: Arc::clone(epochs), place }))
    }

    fn held(&self) -> &Held {
        &self.epochs.holds()[self.place].0
    }

    /// The worker is going to leave records in this epoch, which it has announced.
    pub(crate) fn open(&self, epoch: u64) {
        self.change(|word| Some(if word == FREE { epoch << FLAG_BITS | OPEN } else { word | OPEN }));
    }

    /// The worker has committed its records.
    pub(crate) fn close(&self) {
        // Release: a validator that sees the mark sees the records.
        self.change(|word| Some((word | CAME) & !OPEN));
    }

    /// The validator begins to look; the epoch from which on records may be looked at. None when nothing is held.
    pub(crate) fn begin(&self) -> Option<u64> {
        self.change(|word| (word != FREE).then_some((word | BUSY) & !CAME))?;
        // A revocation can't come in between: it gives way to the busy.
        Some(self.held().floor.load(Ordering::Acquire))
    }

    /// The validator has looked: at records up to this epoch, or at all there were. Whether there may be more.
    pub(crate) fn end(&self, seen: u64, is_drained: bool) -> bool {
        let flags = OPEN | CAME;
        let word = self.change(|word| {
            let is_over = is_drained && word & flags == 0;
            let epoch = seen.max(word >> FLAG_BITS);
            Some(if is_over { FREE } else { epoch << FLAG_BITS | word & flags })
        });
        word.is_some_and(|word| word != FREE)
    }

    /// Gives up records that keep memory back, unless the validator is looking at them. Whether that may help.
    pub(crate) fn revoke(epochs: &Epochs) -> bool {
        let now = epochs.retire();
        let mut helps = false;
        for held in epochs.holds() {
            let word = held.0.word.load(Ordering::Acquire);
            if word >= VACANT || word & BUSY != 0 || word >> FLAG_BITS >= now {
                continue;
            }
            // First the floor: who sees the hold moved sees it.
            held.0.floor.fetch_max(now, Ordering::AcqRel);
            let moved = now << FLAG_BITS | word & (OPEN | CAME);
            helps |= held.0.word.compare_exchange(word, moved, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        }
        helps
    }

    /// Whether some validator is looking at items.
    pub(crate) fn is_any_busy(epochs: &Epochs) -> bool {
        let words = epochs.holds().iter().map(|held| held.0.word.load(Ordering::Relaxed));
        words.into_iter().any(|word| word < VACANT && word & BUSY != 0)
    }

    /// Replaces the word; the new one, or none if it stays.
    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let word = &self.held().word;
        // The closure does not depend on when it is called; acquire and release make each change see those before it.
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, &next).ok().and_then(next)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held().word.store(VACANT, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn parts() -> (Arc<Epochs>, Arc<Lease>) {
        let epochs = Arc::new(Epochs::new(1));
        let lease = Lease::new(&epochs).expect("a place");
        assert!(Lease::new(&epochs).is_none());
        (epochs, lease)
    }

    #[test]
    fn records_hold_their_epoch_until_they_were_seen() {
        let (epochs, lease) = parts();
        assert_eq!(lease.begin(), None);
        lease.open(1);
        let stamp = epochs.retire();
        assert!(epochs.passed() < stamp);
        lease.close();
        assert!(epochs.passed() < stamp);
        assert_eq!(lease.begin(), Some(0));
        assert!(lease.end(1, false), "not all was seen");
        assert!(epochs.passed() < stamp);
        assert_eq!(lease.begin(), Some(0));
        assert!(lease.end(stamp, false));
        assert!(epochs.passed() >= stamp, "the rest is younger");
        lease.begin();
        assert!(!lease.end(stamp, true));
        assert!(epochs.passed() > stamp || epochs.passed() == stamp);
        assert_eq!(lease.begin(), None);
    }

    #[test]
    fn what_comes_meanwhile_is_not_let_go() {
        let (_epochs, lease) = parts();
        lease.open(1);
        lease.close();
        lease.begin();
        lease.open(1);
        assert!(lease.end(1, true), "records are being left");
        lease.begin();
        lease.close();
        assert!(lease.end(1, true), "records came");
        lease.begin();
        assert!(!lease.end(1, true));
    }

    #[test]
    fn a_hold_is_revoked_unless_its_validator_is_busy() {
        let (epochs, lease) = parts();
        lease.open(1);
        lease.close();
        let stamp = epochs.retire();
        assert_eq!(lease.begin(), Some(0));
        assert!(!Lease::revoke(&epochs));
        assert!(epochs.passed() < stamp);
        lease.end(1, false);
        assert!(Lease::revoke(&epochs));
        assert!(epochs.passed() >= stamp);
        let floor = lease.begin().expect("still held");
        assert!(floor > stamp, "older records are abandoned");
        assert!(!lease.end(floor, true));
    }

    #[test]
    fn a_place_comes_free() {
        let (epochs, lease) = parts();
        drop(lease);
        assert!(Lease::new(&epochs).is_some());
    }
}
