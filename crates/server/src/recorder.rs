//! Which executions of a worker are recorded, and what became of them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use guard::{Append, Budget, Sampler, Sampling, Seq, Stratum, Tally};
use store::Hash;

use crate::counters::Counter;
use crate::settings::{self, Protect, Settings};
use crate::shadow::{Follower, Share};
use crate::strata::{STRATA, risks};

/// A window of the sampler.
const WINDOW: Duration = Duration::from_millis(100);

/// Of so many records, one says exactly when it was made; the others, when their round began.
const TIMED_EVERY: u32 = 8;

/// Every stratum in use is validated once in so many windows at least.
const FLOOR_WINDOWS: u64 = 1;

/// A validator serves so many workers, where there is nothing else to go by.
const WORKERS_PER_VALIDATOR: usize = 4;

/// What validation may take by default, in percent of one core, where validators have one of their own and where not.
const BUDGET_PERCENT_OWN: u32 = 50;
const BUDGET_PERCENT_SHARED: u32 = 8;

/// Room in a ring for one record of any command that is recorded: the longest line, and then some.
pub(crate) const COMMAND_BYTES_MAX: usize = 4 << 10;

/// What is known of one worker's executions. The worker writes, everybody reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Coverage {
    /// By stratum.
    pub(crate) strata: [StratumCoverage; STRATA],
    /// Records that found the ring full.
    pub(crate) dropped: Counter,
    /// Commands that were executed twice at once, as there was no room for their records and somebody wants to be sure.
    pub(crate) repeated: Counter,
    /// Commands on keys that the shadow index follows that left no record.
    pub(crate) unfollowed: Counter,
}

/// What is known of one stratum.
#[derive(Debug, Default)]
pub(crate) struct StratumCoverage {
    pub(crate) executed: Counter,
    pub(crate) recorded: Counter,
    /// The share that is recorded now, as the bits of a float.
    share: AtomicU32,
}

impl StratumCoverage {
    pub(crate) fn share(&self) -> f32 {
        f32::from_bits(self.share.load(Relaxed))
    }
}

/// Who validates, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How many validators there are.
    pub(crate) validators: usize,
    /// Whether there are cores for them that workers don't need.
    pub(crate) has_own_core: bool,
    /// What validation of one worker's executions may cost in a window, with a share of `auto`.
    pub(crate) budget_ns: u64,
}

impl Plan {
    /// For so many CPUs that may be used.
    pub(crate) fn new(settings: &Settings, cpus: usize) -> Self {
        let workers = settings.threads.max(1) as usize;
        let spare = cpus.saturating_sub(workers);
        let wanted = workers.div_ceil(WORKERS_PER_VALIDATOR).min(spare.max(1));
        let validators = match settings.validators {
            // One sends everything to the replica.
            _ if settings.protect == Protect::Rbv => 1,
            Some(count) => (count as usize).min(workers),
            None => wanted,
        };
        let has_own_core = spare >= validators;
        let percent = settings.validate_budget_percent.unwrap_or(if has_own_core {
            BUDGET_PERCENT_OWN
        } else {
            BUDGET_PERCENT_SHARED
        });
        let budget_ns = WINDOW.as_nanos() as u64 * u64::from(percent) / 100 / workers as u64;
        Plan { validators, has_own_core, budget_ns }
    }
}

/// One worker's decisions about what is recorded.
pub(crate) struct Recorder {
    sampler: Sampler,
    /// Of the last execution.
    stratum: Stratum,
    /// Whether every execution is recorded or made twice, because replies wait for that.
    pub(crate) is_sync: bool,
    /// Whether the validator has a core of its own, so that it is worth waking at once.
    pub(crate) is_urgent: bool,
    /// The last record that the validator was woken for.
    pub(crate) rung: Seq,
    /// The share of keys that is recorded in any case, to be followed by the shadow index.
    followed: Option<Share>,
    /// Whether the last execution was on one of them.
    is_followed: bool,
    started: Instant,
    round_ns: u64,
    /// When the next execution takes place, or its round began.
    at_ns: u64,
    untimed: u32,
}

impl Recorder {
    pub(crate) fn new(settings: &Settings, plan: &Plan, seed: u64, started: Instant, tally: Tally) -> Self {
        let Plan { has_own_core: is_urgent, budget_ns, .. } = *plan;
        let budget = match settings.validate_share {
            // A replica needs all of it to have the same state.
            _ if settings.protect_sync || settings.protect == Protect::Rbv => Budget::Everything,
            settings::Share::Auto => Budget::Cost(budget_ns),
            settings::Share::Fixed(share) if share >= 1.0 => Budget::Everything,
            settings::Share::Fixed(share) if share <= 0.0 => Budget::Nothing,
            settings::Share::Fixed(share) => Budget::Share(share),
        };
        let sampling = Sampling { budget, risks: &risks(), floor_windows: FLOOR_WINDOWS, seed };
        Recorder {
            sampler: Sampler::new(&sampling, tally),
            stratum: Stratum(0),
            is_sync: settings.protect_sync,
            is_urgent,
            rung: 0,
            started,
            followed: None,
            is_followed: false,
            round_ns: 0,
            at_ns: 0,
            untimed: 0,
        }
    }

    /// A round begins.
    pub(crate) fn begin_round(&mut self, coverage: &Coverage, follower: Option<(&Follower, usize)>) {
        let passed = self.started.elapsed();
        // Even: not exact.
        self.round_ns = passed.as_nanos() as u64 & !1;
        if let Some((follower, worker)) = follower {
            follower.begin_round(worker, self.round_ns);
            self.followed = Some(follower.share());
        }
        let window = (passed.as_millis() / WINDOW.as_millis()) as u64;
        if self.sampler.window() != window {
            self.sampler.begin_window(window);
            for (stratum, coverage) in coverage.strata.iter().enumerate() {
                let share = self.sampler.share(Stratum(stratum as u8)) as f32;
                coverage.share.store(share.to_bits(), Relaxed);
            }
        }
    }

    /// Everything is recorded for a while: somebody was wrong just now.
    pub(crate) fn insist(&mut self, duration: Duration) {
        let windows = (duration.as_millis() / WINDOW.as_millis()) as u64;
        self.sampler.insist_until(self.sampler.window() + windows);
    }

    /// Whether the execution that comes next is to be recorded.
    #[inline]
    pub(crate) fn wants(&mut self, stratum: Stratum, hash: Hash, coverage: &Coverage) -> bool {
        self.stratum = stratum;
        if let Some(coverage) = coverage.strata.get(usize::from(stratum.0)) {
            coverage.executed.up();
        }
        self.is_followed = self.followed.is_some_and(|share| share.holds(hash.0));
        let is_wanted = self.sampler.decide(stratum) || self.is_followed;
        if is_wanted {
            self.at_ns = self.time();
        }
        is_wanted
    }

    /// The stratum of the last execution.
    pub(crate) fn stratum(&self) -> Stratum {
        self.stratum
    }

    /// When the execution that was decided on last took place: just before it, or when its round began.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    #[inline]
    fn time(&mut self) -> u64 {
        self.untimed += 1;
        if self.untimed < TIMED_EVERY {
            return self.round_ns;
        }
        self.untimed = 0;
        self.started.elapsed().as_nanos() as u64 | 1
    }

    /// The last execution leaves no record.
    pub(crate) fn count_unrecorded(&self, coverage: &Coverage) {
        if self.is_followed {
            coverage.unfollowed.up();
        }
    }

    /// Counts what became of a record.
    #[inline]
    pub(crate) fn count(&mut self, append: Append, coverage: &Coverage) {
        match append {
            Append::Recorded(_) => {
                if let Some(coverage) = coverage.strata.get(usize::from(self.stratum.0)) {
                    coverage.recorded.up();
                }
            }
            Append::Dropped => {
                self.sampler.count_dropped(self.stratum);
                coverage.dropped.up();
                self.count_unrecorded(coverage);
            }
        }
    }
}

/// Whether a record's time is exact, so that it can be told how long validation took.
pub(crate) fn is_timed(at_ns: u64) -> bool {
    at_ns & 1 == 1
}
