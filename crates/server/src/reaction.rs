//! What happens when executions disagree: the one place where that is decided.
//!
//! 1. vote: who was wrong, asked by repeating the execution on the cores concerned and on a third;
//! 2. contain: what was written is forgotten, so that the next read is a miss;
//! 3. score: a core that is wrong too often is left by every thread, for good, and remembered in the state file; the last
//!    one can't be left, so commands are then executed three times and the server says that it is not ready;
//! 4. look back: what a core wrote that is left goes as well;
//! 5. tell: a line of evidence, whatever was done.
//!
//! Locks: `deciding` comes first and is held for a vote and what follows from it, so that there is one vote at a time;
//! `left` and `told` are taken within it or alone, for a few instructions.

mod counts;
mod evidence;
mod known_answers;
mod machine;
mod ration;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use guard::{Advice, Ask, Core, Digest, Disagreement, Evidence, Fault, KnownAnswers, Scores};
use guard::{Stratum, Third, Verdict};

use crate::placement::{self, Topology};
use crate::settings::{OnCorruption, Settings};
use crate::state_file::{self, Cause, ENTRIES_MAX, Entry, Memory};

pub(crate) use counts::Report;
pub(crate) use evidence::{Action, Case};
pub(crate) use machine::System;
pub(crate) use ration::Ration;

use counts::Counts;
use evidence::{Line, Log};
use machine::Machine;

/// The window that intermittent faults of a core are counted in, in seconds.
const WINDOW_SECONDS: u64 = 24 * 3600;

/// Lines about disagreements in one second at most; the rest is counted in one more line.
const LINES_PER_SECOND_MAX: u32 = 10;

/// Votes in one second at most. Each makes a thread visit up to four cores, whose workers wait meanwhile. Disagreements
/// above that stay undecided, and are contained like the others.
const VOTES_PER_SECOND_MAX: u32 = 50;

/// Executions of each command once the last core can't be trusted: enough to outvote one that is wrong.
const RUNS_WHEN_DEGRADED: u8 = 3;

/// Faulty cores of one processor from which on the whole of it is not to be trusted (Wang et al., "Understanding silent
/// data corruptions in a large production CPU population", SOSP 2023: such processors are taken out as a whole).
const PACKAGE_FAULTS_MAX: usize = 2;

/// Blames remembered at most, to tell a sick core from a bug of ours; the oldest goes first.
const BLAMES_MAX: usize = 64;

/// Cores that are asked for a third opinion at most before there is none.
const THIRDS_MAX: usize = 3;

/// Decides what happens when executions disagree, and knows what has happened.
pub(crate) struct Reaction {
    policy: OnCorruption,
    state_file: Option<PathBuf>,
    machine: Box<dyn Machine>,
    topology: Topology,
    /// The CPUs this process could use when it started.
    allowed: Vec<Core>,
    counts: Counts,
    /// Executions of each command that are needed at least.
    runs_min: AtomicU8,
    is_ready: AtomicBool,
    cpuinfo: OnceLock<String>,
    deciding: Mutex<Deciding>,
    /// Cores that were left, and those the state file speaks of that are not there.
    left: Mutex<Vec<Entry>>,
    told: Mutex<Told>,
}

/// What whoever found a disagreement can do about it.
pub(crate) trait Means {
    /// Repeats the execution on the calling thread, by the diverse side; nothing if that can't be done.
    fn repeat(&mut self) -> Option<Digest>;

    /// Forgets a key, whatever it holds, and keeps it from being served until it is written again; whether there was
    /// anything. Forgetting also makes up for a delete that was lost.
    fn contain(&mut self, key: &[u8]) -> bool;

    /// Checks again, else drops, what a core wrote; how many items were dropped.
    fn look_back(&mut self, core: Core) -> u64;
}

/// What came of a disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Who was wrong.
    pub(crate) verdict: Verdict,
    /// Whether what was executed first stands: a reply that is held may then be sent.
    pub(crate) keeps: bool,
    /// What was done.
    pub(crate) action: Action,
}

struct Deciding {
    scores: Scores,
    blames: VecDeque<Blame>,
    votes: Ration,
}

/// An intermittent fault that a core was blamed for.
struct Blame {
    core: Core,
    stratum: Stratum,
    at: u64,
}

struct Told {
    log: Log,
    lines: Ration,
}

/// What the scores made of a verdict.
struct Consequence {
    is_suspect: bool,
    action: Action,
    /// The cores whose writes are to be looked at again.
    suspected: Vec<Core>,
}

impl Reaction {
    /// Leaves the cores that the state file names, before any thread is started that could use them. What is wrong with
    /// the file is told in one line.
    pub(crate) fn new(settings: &Settings, machine: Box<dyn Machine>) -> Self {
        let allowed = machine.allowed();
        let topology = Topology::read(&allowed);
        Self::with_topology(settings, machine, allowed, topology)
    }

    fn with_topology(
        settings: &Settings,
        machine: Box<dyn Machine>,
        allowed: Vec<Core>,
        topology: Topology,
    ) -> Self {
        let reaction = Reaction {
            policy: settings.on_corruption,
            state_file: settings.state_file.clone(),
            machine,
            topology,
            counts: Counts::default(),
            runs_min: AtomicU8::new(1),
            is_ready: AtomicBool::new(true),
            cpuinfo: OnceLock::new(),
            deciding: Mutex::new(Deciding {
                scores: Scores::new(&allowed, WINDOW_SECONDS),
                blames: VecDeque::new(),
                votes: Ration::new(VOTES_PER_SECOND_MAX),
            }),
            allowed,
            left: Mutex::new(Vec::new()),
            told: Mutex::new(Told { log: Log::default(), lines: Ration::new(LINES_PER_SECOND_MAX) }),
        };
        reaction.remember();
        reaction
    }

    /// Decides about a disagreement, and acts. Waits for votes that others hold.
    pub(crate) fn disagreed(&self, case: &Case<'_>, means: &mut dyn Means) -> Settled {
        let mut deciding = locked(&self.deciding);
        let (verdict, keeps) = self.vote(case, means, &mut deciding);
        let is_contained = !keeps && verdict != Verdict::RecordDamaged && self.contain(case, means);
        let consequence = self.score(case, verdict, &mut deciding);
        drop(deciding);
        let action = self.conclude(case, verdict, is_contained, &consequence);
        for core in consequence.suspected {
            let dropped = means.look_back(core);
            self.counts.looked_back.fetch_add(dropped, Relaxed);
            say(&format!("event=look_back core={} dropped={dropped}", core.0));
        }
        Settled { verdict, keeps, action }
    }

    /// Decides about a core that disagreed with itself: executions that were made on it one after the other, and compared
    /// before any of them took hold. There is nobody to ask and nothing to undo: it was wrong once at least.
    pub(crate) fn contradicted(&self, case: &Case<'_>) -> Settled {
        let verdict = Verdict::CoreA(Fault::Intermittent);
        let mut deciding = locked(&self.deciding);
        let consequence = self.score(case, verdict, &mut deciding);
        drop(deciding);
        let action = self.conclude(case, verdict, false, &consequence);
        Settled { verdict, keeps: false, action }
    }

    /// Counts and tells what was decided, and ends the process if that was asked for; the most that was done.
    fn conclude(
        &self,
        case: &Case<'_>,
        verdict: Verdict,
        is_contained: bool,
        consequence: &Consequence,
    ) -> Action {
        let Consequence { is_suspect, action, .. } = *consequence;
        let action = match self.policy {
            OnCorruption::Exit => Action::Exit,
            _ if is_contained => action.max(Action::Contain),
            _ => action,
        };
        self.counts.count(case.disagreement.kind, verdict, is_suspect);
        let blamed = blamed(verdict, &case.disagreement);
        let microcode = self.microcode(blamed.unwrap_or(case.disagreement.first_core));
        let microcode = microcode.as_deref();
        self.tell(Line { case, verdict, blamed, microcode, is_suspect, action });
        if action == Action::Exit {
            say("event=exit status=70; executions disagree, and --on-corruption is exit");
            self.machine.end();
        }
        action
    }

    /// Tells what could not be told in its second. To be called now and then.
    pub(crate) fn tick(&self, now: Instant) {
        let left_out = locked(&self.told).lines.settle(now);
        tell_left_out(left_out);
    }

    /// How often each command is to be executed by a worker that would do it so often.
    pub(crate) fn runs(&self, configured: u8) -> u8 {
        configured.max(self.runs_min.load(Relaxed))
    }

    /// The CPUs that are still to be used, in order.
    pub(crate) fn in_service(&self) -> Vec<Core> {
        let left = locked(&self.left);
        let is_left = |core: &Core| left.iter().any(|entry| entry.core == *core);
        self.allowed.iter().copied().filter(|core| !is_left(core)).collect()
    }

    /// What shares what on this machine.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Has the calling thread use nothing but these CPUs, as far as they are in service.
    pub(crate) fn keep_to(&self, cores: &[Core]) {
        // So that none is left meanwhile.
        let _deciding = locked(&self.deciding);
        let mut stay = self.in_service();
        if stay.iter().any(|core| cores.contains(core)) {
            stay.retain(|core| cores.contains(core));
            self.machine.keep_to(&stay);
        }
    }

    /// The last disagreements, oldest first, a line each.
    pub(crate) fn recent(&self) -> Vec<String> {
        locked(&self.told).log.lines()
    }

    /// The numbers now.
    pub(crate) fn report(&self) -> Report {
        let left = locked(&self.left);
        let mut quarantined: Vec<Core> =
            left.iter().map(|entry| entry.core).filter(|core| self.allowed.contains(core)).collect();
        quarantined.sort();
        self.counts.report(quarantined, self.is_ready.load(Relaxed))
    }
}

/// Vote and containment.
impl Reaction {
    /// Who was wrong, and whether what was executed first stands.
    fn vote(&self, case: &Case<'_>, means: &mut dyn Means, deciding: &mut Deciding) -> (Verdict, bool) {
        let evidence = Evidence { checksum: case.checksum, ..Evidence::of(&case.disagreement) };
        let now = Instant::now();
        deciding.votes.settle(now);
        let may_vote = deciding.votes.take(now);
        let mut was_refused = false;
        let (a, b) = (case.disagreement.first_core, case.disagreement.second_core);
        let (verdict, evidence) = evidence.vote(|ask, evidence| match ask {
            _ if !may_vote => was_refused = true,
            Ask::AgainOnB => evidence.b2 = self.repeat_on(b, means),
            Ask::AgainOnA => evidence.a2 = self.repeat_on(a, means),
            Ask::OnThird => {
                let repeat = |core| self.repeat_on(core, means);
                evidence.c =
                    self.thirds(a, b).into_iter().find_map(repeat).map_or(Third::Missing, Third::Ran);
            }
            Ask::KnownAnswers => {
                evidence.known_answers = match (self.solves_on(a), self.solves_on(b)) {
                    (Some(a_passed), Some(b_passed)) => KnownAnswers::Ran { a_passed, b_passed },
                    _ => KnownAnswers::Missing,
                };
            }
        });
        self.counts.unvoted.fetch_add(u64::from(was_refused), Relaxed);
        (verdict, verdict.keeps(&evidence))
    }

    fn repeat_on(&self, core: Core, means: &mut dyn Means) -> Option<Digest> {
        let mut digest = None;
        self.machine.visit(core, &mut || digest = means.repeat());
        digest
    }

    fn solves_on(&self, core: Core) -> Option<bool> {
        let mut solves = None;
        self.machine.visit(core, &mut || solves = Some(self.machine.solves()));
        solves
    }

    /// Cores to ask for a third opinion: in service, and sharing nothing with the two. One that shares a sick unit would
    /// be wrong in the same way, and outvote the sound one.
    fn thirds(&self, a: Core, b: Core) -> Vec<Core> {
        let near = [self.topology.siblings_claimed(a), self.topology.siblings_claimed(b)].concat();
        self.in_service().into_iter().filter(|core| !near.contains(core)).take(THIRDS_MAX).collect()
    }

    /// Forgets the keys concerned; whether there were any.
    fn contain(&self, case: &Case<'_>, means: &mut dyn Means) -> bool {
        if self.policy < OnCorruption::Evict || case.keys.is_empty() {
            return false;
        }
        for key in case.keys {
            means.contain(key);
        }
        self.counts.contained.fetch_add(1, Relaxed);
        self.counts.poisoned_keys.fetch_add(case.keys.len() as u64, Relaxed);
        true
    }
}

/// Scores and quarantine.
impl Reaction {
    fn score(&self, case: &Case<'_>, verdict: Verdict, deciding: &mut Deciding) -> Consequence {
        let Disagreement { first_core, second_core, stratum, .. } = case.disagreement;
        let nothing = Consequence { is_suspect: false, action: Action::None, suspected: Vec::new() };
        let Some((core, fault)) = blamed(verdict, &case.disagreement).zip(fault(verdict)) else {
            return nothing;
        };
        if fault == Fault::Intermittent && self.is_suspect(core, stratum, case.now, deciding) {
            return Consequence { is_suspect: true, ..nothing };
        }
        if self.policy < OnCorruption::Quarantine {
            return nothing;
        }
        match deciding.scores.count(verdict, first_core, second_core, case.now) {
            Advice::Keep => nothing,
            Advice::Quarantine(core) => {
                let left = self.quarantine(core, fault, case.now, deciding);
                Consequence { action: Action::Quarantine, suspected: left, ..nothing }
            }
            Advice::Degrade(core) => {
                let is_new = self.runs_min.swap(RUNS_WHEN_DEGRADED, Relaxed) < RUNS_WHEN_DEGRADED;
                self.is_ready.store(false, Relaxed);
                if is_new {
                    say(&format!(
                        "event=degrade core={} runs={RUNS_WHEN_DEGRADED} ready=0; the last core can't be left",
                        core.0
                    ));
                }
                let suspected = if is_new { vec![core] } else { Vec::new() };
                Consequence { action: Action::Degrade, suspected, ..nothing }
            }
        }
    }

    /// Whether another core was blamed for the same within the window. Sick cores are rare, and two of them on one machine
    /// that fall ill within a day of the same thing are not to be expected: an operator that is not deterministic, or whose
    /// two sides differ, looks like that. No core is left because of it.
    fn is_suspect(&self, core: Core, stratum: Stratum, now: u64, deciding: &mut Deciding) -> bool {
        let blames = &mut deciding.blames;
        blames.retain(|blame| now.saturating_sub(blame.at) <= WINDOW_SECONDS);
        let near = self.topology.siblings_claimed(core);
        let is_suspect = blames.iter().any(|blame| blame.stratum == stratum && !near.contains(&blame.core));
        if blames.len() >= BLAMES_MAX {
            blames.pop_front();
        }
        blames.push_back(Blame { core, stratum, at: now });
        is_suspect
    }

    /// Leaves a core and those that share its execution units, as far as others remain; which were left.
    fn quarantine(&self, core: Core, fault: Fault, now: u64, deciding: &mut Deciding) -> Vec<Core> {
        let mut gone = vec![(core, Cause::Fault(fault))];
        for sibling in self.topology.siblings(core) {
            let is_out = !deciding.scores.in_service().any(|other| other == sibling);
            if sibling != core && !is_out && deciding.scores.quarantine(sibling) {
                gone.push((sibling, Cause::Sibling));
            }
        }
        let mut left = locked(&self.left);
        for &(core, cause) in &gone {
            left.retain(|entry| entry.core != core);
            if left.len() < ENTRIES_MAX {
                left.push(Entry { core, since_unix: now, cause, microcode: self.microcode(core) });
            }
        }
        let entries = left.clone();
        drop(left);
        for entry in entries.iter().filter(|entry| gone.iter().any(|(core, _)| *core == entry.core)) {
            say(&format!("event=quarantine {entry}"));
        }
        if let Some(path) = &self.state_file
            && let Err(error) = state_file::write(path, &entries)
        {
            warn(&format!("--state-file {}: can't be written: {error}", path.display()));
        }
        self.leave();
        gone.into_iter().map(|(core, _)| core).collect()
    }

    /// Has all threads use the cores in service only, and says whether the machine is still to be trusted.
    fn leave(&self) {
        let stay = self.in_service();
        if let Err(error) = self.machine.stay_on(&stay) {
            warn(&format!("not all threads could be moved to cores {}: {error}", placement::Cpus(&stay)));
        }
        let left = locked(&self.left);
        let faulty = left.iter().filter(|entry| entry.cause != Cause::Sibling);
        let packages: Vec<Option<u32>> = faulty.map(|entry| self.topology.package(entry.core)).collect();
        let most =
            packages.iter().map(|package| packages.iter().filter(|other| *other == package).count()).max();
        if most.is_some_and(|most| most > PACKAGE_FAULTS_MAX) && self.is_ready.swap(false, Relaxed) {
            say("event=unready ready=0; more than two cores of one processor are wrong");
        }
    }

    /// Leaves the cores that the state file names.
    fn remember(&self) {
        let Some(path) = &self.state_file else { return };
        let Memory { entries, warning } = Memory::read(path);
        if let Some(warning) = &warning {
            warn(warning);
        } else if !path.exists()
            && let Err(error) = state_file::write(path, &entries)
        {
            warn(&format!("--state-file {}: can't be written: {error}", path.display()));
        }
        let mut deciding = locked(&self.deciding);
        let mut is_any_left = false;
        for entry in entries {
            let is_here = self.allowed.contains(&entry.core);
            if is_here && !deciding.scores.quarantine(entry.core) {
                warn(&format!(
                    "core {} was found wrong and is the last one: it is used, and not trusted",
                    entry.core.0
                ));
                self.runs_min.store(RUNS_WHEN_DEGRADED, Relaxed);
                self.is_ready.store(false, Relaxed);
                continue;
            }
            if is_here {
                warn(&format!("core {} is not used: {entry}", entry.core.0));
                is_any_left = true;
            }
            locked(&self.left).push(entry);
        }
        drop(deciding);
        if is_any_left {
            self.leave();
        }
    }
}

/// Telling.
impl Reaction {
    fn tell(&self, line: Line<'_>) {
        let line = line.to_string();
        let now = Instant::now();
        let mut told = locked(&self.told);
        let left_out = told.lines.settle(now);
        let may_say = told.lines.take(now);
        told.log.keep(line.clone());
        drop(told);
        tell_left_out(left_out);
        if may_say {
            say(&format!("event=disagreement {line}"));
        }
    }

    /// Read once: on large machines that takes a while, and microcode changes rarely while a server runs.
    fn microcode(&self, core: Core) -> Option<String> {
        placement::microcode(self.cpuinfo.get_or_init(placement::cpuinfo), core)
    }
}

/// The core that a verdict is about.
fn blamed(verdict: Verdict, disagreement: &Disagreement) -> Option<Core> {
    match verdict {
        Verdict::CoreA(_) => Some(disagreement.first_core),
        Verdict::CoreB(_) => Some(disagreement.second_core),
        Verdict::MemoryAtRest | Verdict::RecordDamaged | Verdict::Undecided => None,
    }
}

fn fault(verdict: Verdict) -> Option<Fault> {
    match verdict {
        Verdict::CoreA(fault) | Verdict::CoreB(fault) => Some(fault),
        Verdict::MemoryAtRest | Verdict::RecordDamaged | Verdict::Undecided => None,
    }
}

fn tell_left_out(count: u64) {
    if count > 0 {
        say(&format!("event=disagreements count={count}; not told one by one"));
    }
}

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("veracache: integrity: {text}\n").as_bytes());
}

fn warn(text: &str) {
    let _ = std::io::stderr().write_all(format!("veracache: warning: {text}\n").as_bytes());
}

/// The lock's content, even if a thread died holding it: what these locks hold is whole after each step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
