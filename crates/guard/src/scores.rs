//! Which cores are wrong too often to be used.
//!
//! The rule: one persistent fault that was voted on, or two intermittent ones within a window of time. The last core in
//! service is never advised against; who has only that one needs another way (more executions, a failing health check).

use crate::operator::Core;
use crate::verdict::{Fault, Verdict};

/// Intermittent faults within a window that are one too many.
const INTERMITTENT_MAX: usize = 2;

/// Faults per core.
#[derive(Clone, Debug)]
pub struct Scores {
    /// In the caller's unit.
    window: u64,
    cores: Vec<Score>,
}

/// What to do about a core after a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Advice {
    /// Nothing.
    Keep,
    /// Use it no longer. Said once; the core counts as out of service from now on.
    Quarantine(Core),
    /// It should not be used, but it is the last one in service.
    Degrade(Core),
}

/// What is known of one core.
#[derive(Clone, Debug)]
struct Score {
    core: Core,
    in_service: bool,
    persistent: u64,
    intermittent: u64,
    /// When the last intermittent faults were, oldest first.
    recent: [Option<u64>; INTERMITTENT_MAX],
}

impl Scores {
    /// For these cores, all in service. `window` is in the unit of the times passed later.
    #[must_use]
    pub fn new(cores: &[Core], window: u64) -> Self {
        let score = |&core| Score {
            core,
            in_service: true,
            persistent: 0,
            intermittent: 0,
            recent: [None; INTERMITTENT_MAX],
        };
        let mut scores = Scores { window, cores: Vec::new() };
        for core in cores {
            if scores.find(*core).is_none() {
                scores.cores.push(score(core));
            }
        }
        scores
    }

    /// Counts a verdict about a disagreement between two cores at a time, and says what to do. Verdicts that blame no core, or
    /// one that was not announced, count for nothing.
    pub fn count(&mut self, verdict: Verdict, core_a: Core, core_b: Core, time: u64) -> Advice {
        let (core, fault) = match verdict {
            Verdict::CoreA(fault) => (core_a, fault),
            Verdict::CoreB(fault) => (core_b, fault),
            Verdict::MemoryAtRest | Verdict::RecordDamaged | Verdict::Undecided => return Advice::Keep,
        };
        let in_service = self.in_service().count();
        let window = self.window;
        let Some(score) = self.cores.iter_mut().find(|score| score.core == core) else { return Advice::Keep };
        let is_bad = match fault {
            Fault::Persistent => {
                score.persistent += 1;
                true
            }
            Fault::Intermittent => {
                score.intermittent += 1;
                score.recent.rotate_left(1);
                score.recent[INTERMITTENT_MAX - 1] = Some(time);
                score.recent.iter().all(|at| at.is_some_and(|at| time.saturating_sub(at) <= window))
            }
        };
        if !is_bad || !score.in_service {
            return Advice::Keep;
        }
        if in_service == 1 {
            return Advice::Degrade(core);
        }
        score.in_service = false;
        Advice::Quarantine(core)
    }

    /// Takes a core out of service that was found bad earlier; never the last one. Returns whether it is out.
    pub fn quarantine(&mut self, core: Core) -> bool {
        let is_last = self.in_service().count() == 1;
        let Some(score) = self.cores.iter_mut().find(|score| score.core == core) else { return false };
        if is_last && score.in_service {
            return false;
        }
        score.in_service = false;
        true
    }

    /// Puts a core into service again, with nothing held against it.
    pub fn reinstate(&mut self, core: Core) {
        if let Some(score) = self.cores.iter_mut().find(|score| score.core == core) {
            *score = Score { in_service: true, recent: [None; INTERMITTENT_MAX], ..score.clone() };
        }
    }

    /// The cores in service.
    pub fn in_service(&self) -> impl Iterator<Item = Core> {
        self.cores.iter().filter(|score| score.in_service).map(|score| score.core)
    }

    /// How many persistent and intermittent faults a core was found to have made.
    #[must_use]
    pub fn faults(&self, core: Core) -> (u64, u64) {
        self.find(core).map_or((0, 0), |score| (score.persistent, score.intermittent))
    }

    fn find(&self, core: Core) -> Option<&Score> {
        self.cores.iter().find(|score| score.core == core)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const INTERMITTENT: Verdict = Verdict::CoreA(Fault::Intermittent);
    const PERSISTENT: Verdict = Verdict::CoreA(Fault::Persistent);
    const WINDOW: u64 = 100;

    /// Verdicts against core 1 (as A) or core 2 (as B) of cores 1 to 3, at times, and the last advice.
    fn check(counted: &[(Verdict, u64)], expected: Advice) -> Scores {
        let mut scores = Scores::new(&[Core(1), Core(2), Core(3)], WINDOW);
        let mut advice = Advice::Keep;
        for (verdict, time) in counted {
            assert_eq!(advice, Advice::Keep, "only the last verdict changes anything");
            advice = scores.count(*verdict, Core(1), Core(2), *time);
        }
        assert_eq!(advice, expected, "{counted:?}");
        scores
    }

    #[test]
    fn one_persistent_fault_or_two_intermittent_ones_are_too_many() {
        check(&[(PERSISTENT, 0)], Advice::Quarantine(Core(1)));
        check(&[(Verdict::CoreB(Fault::Persistent), 0)], Advice::Quarantine(Core(2)));
        check(&[(INTERMITTENT, 0)], Advice::Keep);
        check(&[(INTERMITTENT, 0), (INTERMITTENT, WINDOW)], Advice::Quarantine(Core(1)));
        check(&[(INTERMITTENT, 0), (INTERMITTENT, WINDOW + 1)], Advice::Keep);
        check(
            &[(INTERMITTENT, 0), (INTERMITTENT, WINDOW + 1), (INTERMITTENT, WINDOW + 2)],
            Advice::Quarantine(Core(1)),
        );
        check(&[(INTERMITTENT, 0), (Verdict::CoreB(Fault::Intermittent), 1)], Advice::Keep);
        let scores = check(&[(INTERMITTENT, 0), (PERSISTENT, 0)], Advice::Quarantine(Core(1)));
        assert_eq!(scores.faults(Core(1)), (1, 1));
        assert!(scores.in_service().eq([Core(2), Core(3)]));
    }

    #[test]
    fn verdicts_that_blame_no_known_core_count_for_nothing() {
        for verdict in [Verdict::MemoryAtRest, Verdict::RecordDamaged, Verdict::Undecided] {
            let scores = check(&[(verdict, 0), (verdict, 0), (verdict, 0)], Advice::Keep);
            assert_eq!(scores.faults(Core(1)), (0, 0));
            assert_eq!(scores.in_service().count(), 3);
        }
        let mut scores = Scores::new(&[Core(1), Core(2)], WINDOW);
        assert_eq!(scores.count(PERSISTENT, Core(9), Core(1), 0), Advice::Keep);
        assert!(!scores.quarantine(Core(9)));
    }

    #[test]
    fn the_last_core_is_never_given_up() {
        let mut scores = Scores::new(&[Core(1), Core(2), Core(1)], WINDOW);
        assert_eq!(scores.count(PERSISTENT, Core(1), Core(2), 0), Advice::Quarantine(Core(1)));
        assert_eq!(scores.count(PERSISTENT, Core(1), Core(2), 0), Advice::Keep, "said once");
        assert_eq!(scores.count(PERSISTENT, Core(2), Core(1), 0), Advice::Degrade(Core(2)));
        assert!(!scores.quarantine(Core(2)));
        assert!(scores.quarantine(Core(1)), "it is out already");
        assert!(scores.in_service().eq([Core(2)]));
        scores.reinstate(Core(1));
        assert_eq!(scores.count(INTERMITTENT, Core(1), Core(2), 5), Advice::Keep);
        assert!(scores.quarantine(Core(2)));
        assert_eq!(scores.count(INTERMITTENT, Core(1), Core(2), 5), Advice::Degrade(Core(1)));
    }
}
