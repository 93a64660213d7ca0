//! The machine below, as far as a reaction needs it: being on one of its CPUs, and leaving one.

use std::io;

use guard::Core;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::known_answers;
use crate::placement::CPUS_MAX;

/// Looks at the threads of the process until nothing has to be changed any more, but so often at most: a process that
/// starts threads without end is not waited for.
const PASSES_MAX: u32 = 16;

/// Exit code of a process that ends because executions disagree (`EX_SOFTWARE` of sysexits.h).
const EXIT_CORRUPTION: i32 = 70;

/// What a reaction asks of the machine. A test has one whose cores are sick.
pub(crate) trait Machine: Send + Sync {
    /// The CPUs this process may use.
    fn allowed(&self) -> Vec<Core>;

    /// Does something on a CPU and comes back; false if it can't get there, and nothing was done.
    fn visit(&self, core: Core, work: &mut dyn FnMut()) -> bool;

    /// Has every thread of the process use nothing but these CPUs, and those that will be started, too.
    fn stay_on(&self, cores: &[Core]) -> io::Result<()>;

    /// Has the calling thread use nothing but these CPUs; where that can't be, it goes on as it is.
    fn keep_to(&self, cores: &[Core]);

    /// Whether the core this runs on solves problems whose answers are known.
    fn solves(&self) -> bool;

    /// Ends the process.
    fn end(&self);
}

/// The machine this process runs on.
pub(crate) struct System;

impl Machine for System {
    fn allowed(&self) -> Vec<Core> {
        sched_getaffinity(None).map_or_else(|_| Vec::new(), |mask| cores(&mask))
    }

    fn visit(&self, core: Core, work: &mut dyn FnMut()) -> bool {
        let Ok(home) = sched_getaffinity(None) else { return false };
        if sched_setaffinity(None, &mask(&[core])).is_err() {
            return false;
        }
        // Comes back also when the work panics.
        let _home = Home(home);
        // The call moves the thread before it returns; unless the CPU was taken away meanwhile.
        let is_there = sched_getcpu() == usize::from(core.0);
        if is_there {
            work();
        }
        is_there
    }

    fn stay_on(&self, cores: &[Core]) -> io::Result<()> {
        let stay = mask(cores);
        // A thread that was not seen may be started by one that was not yet changed, so all are looked at again.
        for _ in 0..PASSES_MAX {
            if !stay_once(&stay, cores)? {
                return Ok(());
            }
        }
        Err(io::Error::other("threads are started faster than they can be moved"))
    }

    fn keep_to(&self, cores: &[Core]) {
        let _ = sched_setaffinity(None, &mask(cores));
    }

    fn solves(&self) -> bool {
        known_answers::solves(&known_answers::ROUTINES)
    }

    fn end(&self) {
        std::process::exit(EXIT_CORRUPTION);
    }
}

/// Where a thread may run when it has come back.
struct Home(CpuSet);

impl Drop for Home {
    fn drop(&mut self) {
        // If all these CPUs went offline meanwhile the thread stays where it is, which does no harm.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Changes the threads that may run elsewhere; whether there was one.
fn stay_once(stay: &CpuSet, cores: &[Core]) -> io::Result<bool> {
    let mut changed = false;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // A thread that has ended meanwhile has nowhere to stay.
        let Ok(now) = sched_getaffinity(Some(thread)) else { continue };
        let Some(reduced) = reduce(&now, stay, cores) else { continue };
        match sched_setaffinity(Some(thread), &reduced) {
            Ok(()) => changed = true,
            Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(changed)
}

/// The part of a mask that stays; all that stays if that is none. Nothing if no change is needed.
fn reduce(now: &CpuSet, stay: &CpuSet, cores: &[Core]) -> Option<CpuSet> {
    let mut reduced = CpuSet::new();
    let mut leaves = false;
    for cpu in 0..usize::from(CPUS_MAX) {
        match (now.is_set(cpu), stay.is_set(cpu)) {
            (true, true) => reduced.set(cpu),
            (true, false) => leaves = true,
            (false, _) => {}
        }
    }
    leaves.then(|| if reduced.count() == 0 { mask(cores) } else { reduced })
}

fn mask(cores: &[Core]) -> CpuSet {
    let mut mask = CpuSet::new();
    for core in cores.iter().filter(|core| core.0 < CPUS_MAX) {
        mask.set(usize::from(core.0));
    }
    mask
}

fn cores(mask: &CpuSet) -> Vec<Core> {
    (0..CPUS_MAX).filter(|cpu| mask.is_set(usize::from(*cpu))).map(Core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allowed_core_is_visited() {
        let before = System.allowed();
        assert!(!before.is_empty());
        for &core in &before {
            let mut seen = None;
            assert!(System.visit(core, &mut || seen = Some(sched_getcpu())));
            assert_eq!(seen, Some(usize::from(core.0)));
            assert_eq!(System.allowed(), before);
        }
        let missing = (0..CPUS_MAX).rev().map(Core).find(|core| !before.contains(core)).expect("never all");
        assert!(!System.visit(missing, &mut || panic!("there is no such core")));
        assert!(!System.visit(Core(CPUS_MAX), &mut || panic!("there is no such core")));
        assert_eq!(System.allowed(), before);
    }

    #[test]
    fn a_panic_comes_back_too() {
        let before = System.allowed();
        let result = std::panic::catch_unwind(|| System.visit(before[0], &mut || panic!("on purpose")));
        assert!(result.is_err());
        assert_eq!(System.allowed(), before);
    }

    #[test]
    fn masks_are_reduced() {
        let set = |numbers: &[u16]| numbers.iter().copied().map(Core).collect::<Vec<_>>();
        let check = |now: &[u16], stay: &[u16], expected: Option<&[u16]>| {
            let stay = set(stay);
            let reduced = reduce(&mask(&set(now)), &mask(&stay), &stay);
            assert_eq!(reduced.map(|mask| cores(&mask)), expected.map(set), "{now:?} {stay:?}");
        };
        check(&[0, 1, 2], &[0, 2], Some(&[0, 2]));
        check(&[0, 2], &[0, 2], None);
        check(&[0], &[0, 2], None);
        // A thread that was bound to a core that is left may use all others.
        check(&[1], &[0, 2], Some(&[0, 2]));
    }

    /// Nothing has to be changed where all CPUs may be used, whatever other tests do meanwhile.
    #[test]
    fn all_cores_may_stay() {
        System.stay_on(&System.allowed()).expect("threads can be looked at");
    }
}
