//! Counts what was confirmed, shared by the thread that executes and the one that confirms.

use crate::operator::Stratum;
use crate::sync::{Arc, AtomicU64, Ordering};

/// Counters per stratum, and their costs. Clones count into the same ones.
///
/// They are statistics: relaxed, and each exact on its own.
#[derive(Clone, Debug)]
pub struct Tally {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    strata: Box<[Counters]>,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Counters {
    validated: AtomicU64,
    disagreements: AtomicU64,
    abandoned: AtomicU64,
    cost: AtomicU64,
}

/// What was counted for one stratum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Second executions that agreed.
    pub validated: u64,
    /// Second executions that did not.
    pub disagreements: u64,
    /// Records that were given up.
    pub abandoned: u64,
    /// What the second executions cost, in the caller's unit.
    pub cost: u64,
}

impl Tally {
    /// For strata 0 to `strata - 1`. Higher ones are not counted.
    #[must_use]
    pub fn new(strata: usize) -> Self {
        let counters = || Counters {
            validated: AtomicU64::new(0),
            disagreements: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            cost: AtomicU64::new(0),
        };
        let strata = (0..strata).map(|_| counters()).collect();
        Tally { shared: Arc::new(Shared { strata, lost: AtomicU64::new(0) }) }
    }

    /// A second execution agreed.
    #[inline]
    pub fn count_validated(&self, stratum: Stratum) {
        self.add(stratum, |counters| &counters.validated, 1);
    }

    /// A second execution did not agree.
    pub fn count_disagreement(&self, stratum: Stratum) {
        self.add(stratum, |counters| &counters.disagreements, 1);
    }

    /// A record was given up.
    pub fn count_abandoned(&self, stratum: Stratum) {
        self.add(stratum, |counters| &counters.abandoned, 1);
    }

    /// A second execution cost so much, in whatever unit the budget of the [`Sampler`](crate::Sampler) has.
    #[inline]
    pub fn count_cost(&self, stratum: Stratum, cost: u64) {
        self.add(stratum, |counters| &counters.cost, cost);
    }

    /// Records were lost with their strata.
    pub fn count_lost(&self, records: u64) {
        self.shared.lost.fetch_add(records, Ordering::Relaxed);
    }

    /// What was counted for a stratum so far.
    #[must_use]
    pub fn counted(&self, stratum: Stratum) -> Counted {
        let Some(counters) = self.shared.strata.get(usize::from(stratum.0)) else {
            return Counted::default();
        };
        Counted {
            validated: counters.validated.load(Ordering::Relaxed),
            disagreements: counters.disagreements.load(Ordering::Relaxed),
            abandoned: counters.abandoned.load(Ordering::Relaxed),
            cost: counters.cost.load(Ordering::Relaxed),
        }
    }

    /// How many records were lost at most, with their strata.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    fn add(&self, stratum: Stratum, which: impl FnOnce(&Counters) -> &AtomicU64, count: u64) {
        if let Some(counters) = self.shared.strata.get(usize::from(stratum.0)) {
            which(counters).fetch_add(count, Ordering::Relaxed);
        }
    }
}
