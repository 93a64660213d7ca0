//! When memory may be used again: quiescent-state based reclamation.
//!
//! Every participant (a worker, a validator) announces an epoch once per round and goes offline before it
//! blocks. Memory that was made unreachable is stamped with the epoch that began then; it may be used again when no
//! participant announces an older one. Announcing costs one store per round and nothing per operation.
//! (Hart et al., "Performance of memory reclamation for lockless synchronization", JPDC 2007.)
//!
//! Limits: `participants_max` at a time; one more is refused. A participant that stays in one round keeps everything
//! retired since then from being reused, and nothing else.

use std::sync::Arc;

use crate::hold::Held;
use crate::sync::{AtomicU64, Ordering, Padded, fence};

/// Announced by a participant that holds nothing.
const OFFLINE: u64 = u64::MAX;
/// Announced by nobody: the place is free.
const VACANT: u64 = u64::MAX - 1;

/// The clock of reclamation and what each participant announces.
pub(crate) struct Epochs {
    global: Padded<AtomicU64>,
    announced: Box<[Padded<AtomicU64>]>,
    /// What records of what was executed point to; see [`crate::hold`].
    holds: Box<[Padded<Held>]>,
}

/// One participant's place; vacated when dropped.
pub(crate) struct Participant {
    epochs: Arc<Epochs>,
    place: usize,
}

impl Epochs {
    pub(crate) fn new(participants_max: usize) -> Self {
        let announced = (0..participants_max).map(|_| Padded(AtomicU64::new(VACANT))).collect();
        let holds = (0..participants_max).map(|_| Padded(Held::new())).collect();
        Epochs { global: Padded(AtomicU64::new(1)), announced, holds }
    }

    pub(crate) fn holds(&self) -> &[Padded<Held>] {
        &self.holds
    }

    /// A new participant, offline; none when all places are taken.
    pub(crate) fn participant(self: &Arc<Self>) -> Option<Participant> {
        let place = self.announced.iter().position(|place| {
            // Acquire pairs with the release in `drop`: what the last participant here did is over.
            place.0.compare_exchange(VACANT, OFFLINE, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        Some(Participant { epochs: Arc::clone(self), place })
    }

    /// Begins a new epoch, after something was made unreachable; the stamp for it.
    pub(crate) fn retire(&self) -> u64 {
        // Release: whoever announces this epoch has seen what was unlinked before.
        self.global.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Everything with a stamp up to this one may be used again.
    pub(crate) fn passed(&self) -> u64 {
        // Read first: what is retired after the scan may be seen by a participant that came online after it, so it
        // has not passed even if nobody was online. Acquire: what has a stamp up to this was unlinked before.
        let begun = self.global.0.load(Ordering::Acquire);
        // Pairs with the fence in `online`: either this scan sees the announcement of a participant that came
        // online, or that participant sees everything that was unlinked before this scan.
        fence(Ordering::SeqCst);
        let oldest = self
            .announced
            .iter()
            .map(|place| place.0.load(Ordering::Acquire))
            .filter(|epoch| *epoch < VACANT)
            .min();
        // After the participants: who sees that a worker has moved on sees what it held before.
        let held = self.holds.iter().filter_map(|held| held.0.epoch()).min();
        oldest.into_iter().chain(held).min().unwrap_or(begun)
    }
}

impl Epochs {
    /// Whether every participant has begun an epoch that began with this stamp, or is offline: what it did before, it
    /// has done. Records that were left are no matter.
    pub(crate) fn all_have_begun(&self, stamp: u64) -> bool {
        // Pairs with the fence in `round`, as in `passed`.
        fence(Ordering::SeqCst);
        self.announced.iter().all(|place| place.0.load(Ordering::Acquire) >= stamp)
    }
}

impl Participant {
    /// A quiescent point: everything seen before is let go.
    pub(crate) fn round(&mut self) {
        let place = &self.epochs.announced[self.place].0;
        // Acquire: what was unlinked before this epoch began is seen from here on.
        let epoch = self.epochs.global.0.load(Ordering::Acquire);
        let before = place.load(Ordering::Relaxed);
        if before == epoch {
            return;
        }
        // Release: reads of the round that ends are done.
        place.store(epoch, Ordering::Release);
        if before == OFFLINE {
            fence(Ordering::SeqCst);
        }
    }

    /// The epoch it announces.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs.announced[self.place].0.load(Ordering::Relaxed)
    }

    /// Which of the places it has: 0 up to `participants_max`.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Nothing is held until the next `round`.
    pub(crate) fn offline(&mut self) {
        self.epochs.announced[self.place].0.store(OFFLINE, Ordering::Release);
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        self.epochs.announced[self.place].0.store(VACANT, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_passes_when_every_participant_has_moved_on() {
        let epochs = Arc::new(Epochs::new(2));
        let mut first = epochs.participant().expect("two places");
        let mut second = epochs.participant().expect("two places");
        assert!(epochs.participant().is_none());
        first.round();
        second.round();
        let stamp = epochs.retire();
        assert!(epochs.passed() < stamp);
        first.round();
        assert!(epochs.passed() < stamp);
        second.offline();
        assert!(epochs.passed() >= stamp);
        second.round();
        assert!(epochs.passed() >= stamp);
        drop(first);
        assert!(epochs.participant().is_some());
    }

    #[test]
    fn a_participant_in_an_old_round_has_not_begun_the_new_epoch() {
        let epochs = Arc::new(Epochs::new(2));
        let mut first = epochs.participant().expect("two places");
        first.round();
        let stamp = epochs.retire();
        assert!(!epochs.all_have_begun(stamp));
        first.round();
        assert!(epochs.all_have_begun(stamp));
        let stamp = epochs.retire();
        assert!(!epochs.all_have_begun(stamp));
        first.offline();
        assert!(epochs.all_have_begun(stamp));
    }

    #[test]
    fn what_is_retired_after_the_scan_has_not_passed() {
        let epochs = Arc::new(Epochs::new(1));
        let mut reader = epochs.participant().expect("a place");
        let passed = epochs.passed();
        reader.round();
        assert!(epochs.retire() > passed);
    }
}
