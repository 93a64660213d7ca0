//! Up to where the records of a ring have been confirmed, for those who hold something back until then.
//!
//! The one who confirms holds a [`Confirmer`], the one who executed a [`Holder`]. The watermark is one counter, stored with
//! release and loaded with acquire, so that what was written before a record was confirmed (a refusal, most of all) is
//! seen by who sees it confirmed. Nobody waits: the holder asks when it likes.

use std::ops::RangeInclusive;

use crate::operator::Seq;
use crate::sync::{Arc, AtomicU64, Ordering};

/// How many refusals can wait for the holder to look at them.
pub const REFUSALS_MAX: usize = 16;

/// A watermark at 0: nothing is confirmed.
#[must_use]
pub fn watermark() -> (Confirmer, Holder) {
    let shared = Arc::new(Shared {
        confirmed: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        refusals: std::array::from_fn(|_| [AtomicU64::new(0), AtomicU64::new(0)]),
    });
    let confirmer = Confirmer { shared: Arc::clone(&shared), confirmed: 0, deferred: 0, open: None };
    (confirmer, Holder { shared, taken: 0 })
}

/// Moves the watermark.
///
/// A disagreement stops it: [`hold`](Confirmer::hold) leaves it just below the records concerned until somebody has decided
/// what becomes of them: [`release`](Confirmer::release) or [`refuse`](Confirmer::refuse).
#[derive(Debug)]
pub struct Confirmer {
    shared: Arc<Shared>,
    confirmed: Seq,
    /// What was confirmed while a disagreement was open.
    deferred: Seq,
    open: Option<(Seq, Seq)>,
}

/// Sees the watermark.
#[derive(Debug)]
pub struct Holder {
    shared: Arc<Shared>,
    taken: u64,
}

/// The refusals can't be stored, as the holder has not yet looked at the earlier ones: try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRefusals;

#[derive(Debug)]
struct Shared {
    confirmed: AtomicU64,
    /// Refusals ever stored; slot `n % REFUSALS_MAX` holds the `n`th.
    refused: AtomicU64,
    /// Refusals ever taken by the holder.
    taken: AtomicU64,
    refusals: [[AtomicU64; 2]; REFUSALS_MAX],
}

impl Confirmer {
    /// All records up to this one agree, or nobody objects to them. Never moves the watermark back.
    #[inline]
    pub fn confirm(&mut self, seq: Seq) {
        if self.open.is_some() {
            self.deferred = self.deferred.max(seq);
        } else if seq > self.confirmed {
            self.confirmed = seq;
            // Pairs with the acquire in `Holder::poll`.
            self.shared.confirmed.store(seq, Ordering::Release);
        }
    }

    /// These records disagree: the watermark stays below them until it is decided what becomes of them.
    ///
    /// # Panics
    ///
    /// When an earlier disagreement is still open.
    pub fn hold(&mut self, seqs: RangeInclusive<Seq>) {
        assert!(self.open.is_none(), "one disagreement at a time: settle the open one first");
        let (first, last) = seqs.into_inner();
        self.confirm(first.saturating_sub(1));
        self.open = Some((first, last));
    }

    /// Whether a disagreement waits to be settled.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Settles the open disagreement: what was executed is right after all.
    pub fn release(&mut self) {
        if let Some((_, last)) = self.open.take() {
            let deferred = std::mem::take(&mut self.deferred);
            self.confirm(last.max(deferred));
        }
    }

    /// Settles the open disagreement: the holder must not let out what it holds for these records. Without a holder that is
    /// the same as [`release`](Confirmer::release); who holds nothing back drops it.
    ///
    /// # Errors
    ///
    /// When the holder has [`REFUSALS_MAX`] refusals to look at; the disagreement stays open.
    pub fn refuse(&mut self) -> Result<(), TooManyRefusals> {
        let Some((first, last)) = self.open else { return Ok(()) };
        // A holder can't come back: only this confirmer is left.
        if Arc::strong_count(&self.shared) == 1 {
            self.release();
            return Ok(());
        }
        let stored = self.shared.refused.load(Ordering::Relaxed);
        // Pairs with the release in `Holder::poll`: the slot has been read.
        if stored - self.shared.taken.load(Ordering::Acquire) == REFUSALS_MAX as u64 {
            return Err(TooManyRefusals);
        }
        let [from, to] = &self.shared.refusals[stored as usize % REFUSALS_MAX];
        from.store(first, Ordering::Relaxed);
        to.store(last, Ordering::Relaxed);
        // Pairs with the acquire in `Holder::poll`. The watermark moves after it, so who sees the records confirmed sees
        // them refused as well.
        self.shared.refused.store(stored + 1, Ordering::Release);
        self.release();
        Ok(())
    }

    /// The watermark.
    #[must_use]
    pub fn confirmed(&self) -> Seq {
        self.confirmed
    }
}

impl Holder {
    /// The watermark, leaving refusals for the next [`poll`](Holder::poll).
    #[must_use]
    pub fn confirmed(&self) -> Seq {
        self.shared.confirmed.load(Ordering::Acquire)
    }

    /// The watermark: what is held for records up to it may be let out, but for the refused ones.
    ///
    /// `refused` is called first, with every range of records that was refused since the last call. A range may reach over
    /// records that nobody holds anything for.
    #[inline]
    pub fn poll(&mut self, mut refused: impl FnMut(RangeInclusive<Seq>)) -> Seq {
        let confirmed = self.shared.confirmed.load(Ordering::Acquire);
        let stored = self.shared.refused.load(Ordering::Acquire);
        if stored != self.taken {
            while self.taken != stored {
                let [from, to] = &self.shared.refusals[self.taken as usize % REFUSALS_MAX];
                refused(from.load(Ordering::Relaxed)..=to.load(Ordering::Relaxed));
                self.taken += 1;
            }
            self.shared.taken.store(stored, Ordering::Release);
        }
        confirmed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn poll(holder: &mut Holder) -> (Seq, Vec<RangeInclusive<Seq>>) {
        let mut refused = Vec::new();
        let confirmed = holder.poll(|seqs| refused.push(seqs));
        (confirmed, refused)
    }

    #[test]
    fn a_disagreement_stops_the_watermark_until_it_is_settled() {
        let (mut confirmer, mut holder) = watermark();
        assert_eq!(poll(&mut holder), (0, vec![]));
        confirmer.confirm(5);
        confirmer.confirm(3);
        assert_eq!(poll(&mut holder), (5, vec![]));
        confirmer.hold(8..=9);
        confirmer.confirm(20);
        assert_eq!(poll(&mut holder), (7, vec![]));
        assert_eq!(confirmer.refuse(), Ok(()));
        assert_eq!(poll(&mut holder), (20, vec![8..=9]));
        assert_eq!(poll(&mut holder), (20, vec![]));
        confirmer.hold(21..=21);
        assert!(confirmer.is_open());
        assert_eq!(poll(&mut holder), (20, vec![]));
        confirmer.release();
        assert_eq!(poll(&mut holder), (21, vec![]));
        confirmer.release();
        assert_eq!(confirmer.refuse(), Ok(()));
        assert_eq!(poll(&mut holder), (21, vec![]), "there was nothing to settle");
    }

    #[test]
    fn refusals_have_a_limit_that_stops_the_watermark_and_nobody_else() {
        let (mut confirmer, mut holder) = watermark();
        for seq in 1..=REFUSALS_MAX as u64 {
            confirmer.hold(seq..=seq);
            assert_eq!(confirmer.refuse(), Ok(()));
        }
        confirmer.hold(17..=17);
        assert_eq!(confirmer.refuse(), Err(TooManyRefusals));
        assert!(confirmer.is_open());
        let (confirmed, refused) = poll(&mut holder);
        assert_eq!((confirmed, refused.len()), (16, REFUSALS_MAX));
        assert_eq!(confirmer.refuse(), Ok(()));
        assert_eq!(poll(&mut holder), (17, vec![17..=17]));
    }

    #[test]
    fn without_a_holder_nothing_is_refused_to_nobody() {
        let (mut confirmer, _) = watermark();
        for seq in 1..=3 * REFUSALS_MAX as u64 {
            confirmer.hold(seq..=seq);
            assert_eq!(confirmer.refuse(), Ok(()));
            assert_eq!(confirmer.confirmed(), seq);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::atomic::AtomicU64 as Evidence;
    use loom::thread;

    use super::*;

    #[test]
    fn who_sees_a_record_confirmed_sees_what_was_written_before() {
        loom::model(|| {
            let (mut confirmer, mut holder) = watermark();
            let evidence = Arc::new(Evidence::new(0));
            let written = Arc::clone(&evidence);
            let thread = thread::spawn(move || {
                written.store(1, Ordering::Relaxed);
                confirmer.confirm(1);
                written.store(2, Ordering::Relaxed);
                confirmer.confirm(2);
            });
            let confirmed = holder.poll(|_| panic!("nothing was refused"));
            assert!(evidence.load(Ordering::Relaxed) >= confirmed);
            thread.join().expect("nothing panics");
            assert_eq!(holder.poll(|_| panic!("nothing was refused")), 2);
        });
    }

    #[test]
    fn who_sees_a_record_confirmed_sees_it_refused() {
        loom::model(|| {
            let (mut confirmer, mut holder) = watermark();
            let thread = thread::spawn(move || {
                confirmer.hold(2..=3);
                assert_eq!(confirmer.refuse(), Ok(()));
                confirmer.confirm(4);
            });
            let mut refused = 0;
            for _ in 0..2 {
                let confirmed = holder.poll(|seqs| {
                    assert_eq!(seqs, 2..=3);
                    refused += 1;
                });
                assert!(confirmed < 2 || refused == 1, "record 2 would be let out");
            }
            thread.join().expect("nothing panics");
            assert_eq!((holder.poll(|_| refused += 1), refused), (4, 1));
        });
    }
}
