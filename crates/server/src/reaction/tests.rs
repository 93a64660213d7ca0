//! Disagreements that were planted, on machines with sick cores; and sound ones, on which nothing happens.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use guard::{Checksum, Kind, Mismatch, Site};

use super::counts::{KINDS, VERDICTS};
use super::evidence::verdict_word;
use super::*;

const RIGHT: Digest = Digest(0x1000);
const WRONG: Digest = Digest(0x1001);

/// The cores of most tests: A executes, B confirms.
const A: Core = Core(0);
const B: Core = Core(1);
const START: u64 = 1_795_250_000;
const DAY: u64 = 24 * 3600;

/// A machine whose cores can be sick.
#[derive(Default)]
struct Sickbay {
    cores: Vec<Core>,
    /// Cores that repeat executions wrongly, always.
    wrong: BTreeSet<Core>,
    /// Cores that don't solve known problems.
    dull: BTreeSet<Core>,
    here: Mutex<Option<Core>>,
    visits: AtomicU64,
    stays: Mutex<Vec<Vec<Core>>>,
    kept: Mutex<Vec<Vec<Core>>>,
    has_ended: AtomicBool,
}

impl Sickbay {
    fn here(&self) -> Core {
        locked(&self.here).expect("work is done during visits only")
    }
}

impl Machine for Arc<Sickbay> {
    fn allowed(&self) -> Vec<Core> {
        self.cores.clone()
    }

    fn visit(&self, core: Core, work: &mut dyn FnMut()) -> bool {
        if !self.cores.contains(&core) {
            return false;
        }
        self.visits.fetch_add(1, Relaxed);
        *locked(&self.here) = Some(core);
        work();
        *locked(&self.here) = None;
        true
    }

    fn stay_on(&self, cores: &[Core]) -> std::io::Result<()> {
        locked(&self.stays).push(cores.to_vec());
        Ok(())
    }

    fn keep_to(&self, cores: &[Core]) {
        locked(&self.kept).push(cores.to_vec());
    }

    fn solves(&self) -> bool {
        !self.dull.contains(&self.here())
    }

    fn end(&self) {
        self.has_ended.store(true, Relaxed);
    }
}

/// Whoever found the disagreement: repeats it where it is asked to, and notes what it is to do.
struct Finder<'f> {
    machine: &'f Sickbay,
    contained: Vec<Vec<u8>>,
    looked_back: Vec<Core>,
}

impl Means for Finder<'_> {
    fn repeat(&mut self) -> Option<Digest> {
        Some(if self.machine.wrong.contains(&self.machine.here()) { WRONG } else { RIGHT })
    }

    fn contain(&mut self, key: &[u8]) -> bool {
        self.contained.push(key.to_vec());
        true
    }

    fn look_back(&mut self, core: Core) -> u64 {
        self.looked_back.push(core);
        17
    }
}

/// A reaction with its machine.
struct Scene {
    machine: Arc<Sickbay>,
    reaction: Reaction,
}

impl Scene {
    fn new(machine: Sickbay) -> Self {
        Scene::with(machine, &Settings::default(), Topology::default())
    }

    fn with(machine: Sickbay, settings: &Settings, topology: Topology) -> Self {
        let machine = Arc::new(machine);
        let allowed = machine.cores.clone();
        let reaction = Reaction::with_topology(settings, Box::new(Arc::clone(&machine)), allowed, topology);
        Scene { machine, reaction }
    }

    /// Has a disagreement decided: what came of it, the keys that were forgotten and the cores that were looked back at.
    fn decide(&self, case: &Case<'_>) -> (Settled, Vec<Vec<u8>>, Vec<Core>) {
        let mut finder = Finder { machine: &self.machine, contained: Vec::new(), looked_back: Vec::new() };
        let settled = self.reaction.disagreed(case, &mut finder);
        (settled, finder.contained, finder.looked_back)
    }

    fn cores_left(&self) -> Vec<Core> {
        self.reaction.report().quarantined
    }
}

fn cores(numbers: &[u16]) -> Vec<Core> {
    numbers.iter().copied().map(Core).collect()
}

fn machine(count: u16, wrong: &[u16], dull: &[u16]) -> Sickbay {
    Sickbay {
        cores: (0..count).map(Core).collect(),
        wrong: cores(wrong).into_iter().collect(),
        dull: cores(dull).into_iter().collect(),
        ..Sickbay::default()
    }
}

/// A's execution was wrong, says B's.
fn case() -> Case<'static> {
    between(A, WRONG, B, RIGHT)
}

fn between(a: Core, a1: Digest, b: Core, b1: Digest) -> Case<'static> {
    let site = Site { stratum: Stratum(1), first_core: a, second_core: b };
    Case {
        disagreement: Disagreement::new(site, Mismatch::new(Kind::Outcome, a1, b1), 5..=5),
        stratum: "classic-put",
        command: b"set k 0 0 1",
        keys: &[b"k"],
        item_found: None,
        item_new: None,
        checksum: Checksum::Unknown,
        now: START,
    }
}

/// On such a machine such a case gets this verdict, and the key is forgotten or not.
fn check(machine: Sickbay, case: &Case<'_>, verdict: Verdict, is_contained: bool) {
    let scene = Scene::new(machine);
    let (settled, contained, _) = scene.decide(case);
    assert_eq!(settled.verdict, verdict);
    assert_eq!(contained, if is_contained { vec![b"k".to_vec()] } else { Vec::new() }, "{verdict:?}");
    assert_eq!(settled.keeps, !is_contained && verdict != Verdict::RecordDamaged);
    let report = scene.reaction.report();
    assert_eq!((report.contained, report.poisoned_keys), (u64::from(is_contained), u64::from(is_contained)));
    assert_eq!(report.disagreements(), 1);
    let at = VERDICTS.iter().position(|word| *word == verdict_word(verdict)).expect("it has a word");
    assert_eq!(report.verdicts[at], 1);
    let line = scene.reaction.recent().pop().expect("it is told");
    assert!(line.contains(&format!(" verdict={} ", verdict_word(verdict))), "{line}");
}

#[test]
fn who_was_wrong() {
    use Fault::{Intermittent, Persistent};
    // A was wrong once.
    check(machine(4, &[], &[]), &case(), Verdict::CoreA(Intermittent), true);
    // A is always wrong, a third core says.
    check(machine(4, &[0], &[]), &case(), Verdict::CoreA(Persistent), true);
    // B is always wrong, a third core says: what A did stands.
    let by_b = between(A, RIGHT, B, WRONG);
    check(machine(4, &[1], &[]), &by_b, Verdict::CoreB(Persistent), false);
    // B was wrong once.
    check(machine(4, &[], &[]), &by_b, Verdict::CoreB(Intermittent), false);
    // There are two cores: known answers decide, else the checksum, else nobody.
    check(machine(2, &[0], &[0]), &case(), Verdict::CoreA(Persistent), true);
    check(machine(2, &[1], &[1]), &by_b, Verdict::CoreB(Persistent), false);
    check(machine(2, &[0], &[]), &case(), Verdict::Undecided, true);
    let summed = Case { checksum: Checksum::ForB, ..case() };
    check(machine(2, &[0], &[]), &summed, Verdict::CoreA(Persistent), true);
    // Neither: the item's bytes have changed, or the record's.
    let at_rest = Case { checksum: Checksum::WrongNow, ..case() };
    check(machine(4, &[], &[]), &at_rest, Verdict::MemoryAtRest, true);
    let mismatch = Mismatch::new(Kind::Record, WRONG, RIGHT);
    let disagreement = Disagreement::new(Site::default(), mismatch, 1..=9);
    check(machine(4, &[], &[]), &Case { disagreement, ..case() }, Verdict::RecordDamaged, false);
    // A core that can't be reached any more.
    check(machine(2, &[], &[]), &between(Core(7), WRONG, B, RIGHT), Verdict::Undecided, true);
    check(machine(2, &[], &[]), &between(A, WRONG, Core(7), RIGHT), Verdict::Undecided, true);
}

/// Nothing is asked of the machine, counted or told as long as executions agree.
#[test]
fn nothing_happens_without_a_disagreement() {
    let scene = Scene::new(machine(4, &[0], &[0]));
    scene.reaction.tick(Instant::now());
    assert_eq!(scene.reaction.report(), Report { is_ready: true, ..Report::default() });
    assert_eq!(scene.reaction.recent(), [""; 0]);
    assert_eq!(scene.reaction.in_service(), cores(&[0, 1, 2, 3]));
    assert_eq!((scene.reaction.runs(1), scene.reaction.runs(5)), (1, 5));
    assert_eq!(scene.machine.visits.load(Relaxed), 0);
    assert!(locked(&scene.machine.stays).is_empty());
}

/// A core that shares its units with a sick one is not asked about it.
#[test]
fn a_sibling_is_no_third() {
    // 4 and 5 are siblings of 0 and 1, and as sick as they are.
    let topology = || Topology::of_cores(&[&[0, 4], &[1, 5], &[2]]);
    let settings = Settings { on_corruption: OnCorruption::Evict, ..Settings::default() };
    let sick = || Sickbay { cores: cores(&[0, 1, 4, 5]), ..machine(0, &[0, 4], &[]) };
    let scene = Scene::with(sick(), &settings, topology());
    assert_eq!(scene.decide(&case()).0.verdict, Verdict::Undecided);
    let scene = Scene::with(Sickbay { cores: cores(&[0, 1, 2, 4, 5]), ..sick() }, &settings, topology());
    assert_eq!(scene.decide(&case()).0.verdict, Verdict::CoreA(Fault::Persistent));
}

#[test]
fn a_persistent_fault_costs_the_core_its_place() {
    let scene =
        Scene::with(machine(4, &[0], &[]), &Settings::default(), Topology::of_cores(&[&[0, 3], &[1], &[2]]));
    let (settled, _, looked_back) = scene.decide(&case());
    assert_eq!(settled.action, Action::Quarantine);
    // Its sibling goes with it.
    assert_eq!(looked_back, cores(&[0, 3]));
    assert_eq!(scene.cores_left(), cores(&[0, 3]));
    assert_eq!(scene.reaction.in_service(), cores(&[1, 2]));
    assert_eq!(*locked(&scene.machine.stays), [cores(&[1, 2])]);
    let report = scene.reaction.report();
    assert_eq!((report.looked_back, report.is_ready), (2 * 17, true));
    // What comes later from a core that was left is contained, and changes nothing else.
    let (settled, contained, looked_back) = scene.decide(&case());
    assert_eq!((settled.action, contained.len(), looked_back), (Action::Contain, 1, Vec::new()));
    assert_eq!(locked(&scene.machine.stays).len(), 1);
}

#[test]
fn intermittent_faults_count_within_a_day() {
    let at = |scene: &Scene, now| scene.decide(&Case { now, ..case() }).0.action;
    let scene = Scene::new(machine(4, &[], &[]));
    assert_eq!(at(&scene, START), Action::Contain);
    assert_eq!(at(&scene, START + DAY), Action::Quarantine);
    assert_eq!(scene.cores_left(), [A]);
    let scene = Scene::new(machine(4, &[], &[]));
    assert_eq!(at(&scene, START), Action::Contain);
    assert_eq!(at(&scene, START + DAY + 1), Action::Contain);
    assert_eq!(scene.cores_left(), []);
}

/// A core that contradicts itself is left when it does so again; nobody is asked, nothing is forgotten.
#[test]
fn a_core_that_contradicts_itself() {
    let scene = Scene::new(machine(4, &[], &[]));
    let case = Case { keys: &[], ..between(B, RIGHT, B, WRONG) };
    for (action, left) in [(Action::None, &[][..]), (Action::Quarantine, &[B]), (Action::None, &[B])] {
        let settled = scene.reaction.contradicted(&case);
        assert_eq!(settled, Settled { verdict: Verdict::CoreA(Fault::Intermittent), keeps: false, action });
        assert_eq!(scene.cores_left(), left);
    }
    let report = scene.reaction.report();
    assert_eq!((report.disagreements(), report.contained, report.looked_back), (3, 0, 0));
    assert_eq!(scene.machine.visits.load(Relaxed), 0);
    // Several cores that do so at the same class of executions: a bug of ours.
    let scene = Scene::new(machine(4, &[], &[]));
    for core in [0, 1, 0, 1, 2, 3] {
        scene.reaction.contradicted(&between(Core(core), RIGHT, Core(core), WRONG));
    }
    assert_eq!((scene.cores_left(), scene.reaction.report().suspects), (Vec::new(), 5));
    // The last one.
    let scene = Scene::new(machine(1, &[], &[]));
    let actions = [0, 1].map(|_| scene.reaction.contradicted(&between(A, RIGHT, A, WRONG)).action);
    assert_eq!((actions, scene.reaction.runs(1)), ([Action::None, Action::Degrade], 3));
}

/// A thread is kept to the cores meant for it that are in service; if there are none, to nothing.
#[test]
fn threads_keep_to_cores_in_service() {
    let scene = Scene::new(machine(4, &[0], &[]));
    scene.reaction.keep_to(&cores(&[0, 1]));
    scene.decide(&case());
    for meant in [&[0, 1][..], &[0], &[], &[2, 3, 9]] {
        scene.reaction.keep_to(&cores(meant));
    }
    assert_eq!(*locked(&scene.machine.kept), [cores(&[0, 1]), cores(&[1]), cores(&[2, 3])]);
}

/// The last core stays, and is not trusted.
#[test]
fn the_last_core_degrades() {
    let scene = Scene::new(machine(2, &[], &[]));
    let disagree = |a, b, now| scene.decide(&Case { now, ..between(a, WRONG, b, RIGHT) });
    disagree(A, B, START);
    assert_eq!(disagree(A, B, START + 1).0.action, Action::Quarantine);
    // Another class of executions, so that it is no bug of ours.
    let other = |now| {
        let mut case = Case { now, ..between(B, WRONG, A, RIGHT) };
        case.disagreement.stratum = Stratum(2);
        scene.decide(&case)
    };
    assert_eq!(other(START + 2).0.action, Action::Contain);
    assert!(scene.reaction.report().is_ready);
    assert_eq!(scene.reaction.runs(1), 1);
    let (settled, _, looked_back) = other(START + 3);
    assert_eq!((settled.action, looked_back), (Action::Degrade, vec![B]));
    assert!(!scene.reaction.report().is_ready);
    assert_eq!((scene.reaction.runs(1), scene.reaction.runs(2), scene.reaction.runs(5)), (3, 3, 5));
    assert_eq!(scene.reaction.in_service(), [B]);
    // It is said, and looked back, once.
    assert_eq!(other(START + 4).2, []);
}

/// A processor with more than two faulty cores is not ready; two are allowed.
#[test]
fn a_processor_with_many_faulty_cores_is_not_ready() {
    let scene = Scene::new(machine(6, &[], &[]));
    for (core, is_ready) in [(0, true), (1, true), (2, false)] {
        // Each in a class of its own, so that it is no bug of ours.
        let mut case = between(Core(core), WRONG, Core(5), RIGHT);
        case.disagreement.stratum = Stratum(core as u8);
        scene.decide(&case);
        assert_eq!(scene.decide(&case).0.action, Action::Quarantine);
        assert_eq!(scene.reaction.report().is_ready, is_ready, "{core}");
    }
    assert_eq!(scene.reaction.in_service(), cores(&[3, 4, 5]));
}

/// The same class of executions, wrong now here and now there: that is the program, and no core is left.
#[test]
fn a_bug_of_ours_costs_no_core() {
    let scene = Scene::new(machine(4, &[], &[]));
    for round in 0..10 {
        for core in 0..3 {
            let case = Case { now: START + round, ..between(Core(core), WRONG, Core(3), RIGHT) };
            let (settled, contained, _) = scene.decide(&case);
            assert_eq!((settled.action, contained.len()), (Action::Contain, 1));
        }
    }
    assert_eq!(scene.cores_left(), []);
    assert_eq!(scene.reaction.report().suspects, 29);
    let told = scene.reaction.recent();
    assert_eq!(told.iter().filter(|line| line.contains(" suspect=software ")).count(), 29);
    // One core alone is another matter, as is a fault that doesn't go away.
    let scene = Scene::new(machine(4, &[2], &[]));
    scene.decide(&case());
    assert_eq!(scene.decide(&case()).0.action, Action::Quarantine);
    assert_eq!(scene.decide(&between(Core(2), WRONG, Core(3), RIGHT)).0.action, Action::Quarantine);
    assert_eq!(scene.reaction.report().suspects, 0);
}

#[test]
fn each_policy() {
    for (policy, action, keys, left) in [
        (OnCorruption::Log, Action::None, 0, &[][..]),
        (OnCorruption::Evict, Action::Contain, 1, &[]),
        (OnCorruption::Quarantine, Action::Quarantine, 1, &[A]),
        (OnCorruption::Exit, Action::Exit, 1, &[A]),
    ] {
        let settings = Settings { on_corruption: policy, ..Settings::default() };
        let scene = Scene::with(machine(4, &[0], &[]), &settings, Topology::default());
        let (settled, contained, _) = scene.decide(&case());
        assert_eq!((settled.action, contained.len(), scene.cores_left().as_slice()), (action, keys, left));
        // Who was wrong is found out in any case.
        assert_eq!(settled.verdict, Verdict::CoreA(Fault::Persistent));
        assert_eq!(scene.machine.has_ended.load(Relaxed), policy == OnCorruption::Exit);
    }
}

/// All keys concerned are forgotten; a disagreement without any contains nothing.
#[test]
fn keys_are_forgotten() {
    let scene = Scene::new(machine(4, &[], &[]));
    let (settled, contained, _) = scene.decide(&Case { keys: &[b"a", b"b"], ..case() });
    assert_eq!((settled.action, contained), (Action::Contain, vec![b"a".to_vec(), b"b".to_vec()]));
    let scene = Scene::new(machine(4, &[], &[]));
    let (settled, contained, _) = scene.decide(&Case { keys: &[], ..case() });
    assert_eq!((settled.action, contained), (Action::None, Vec::new()));
    assert_eq!(scene.reaction.report().contained, 0);
}

/// When disagreements come in masses, cores are not visited for each; everything else happens all the same.
#[test]
fn votes_are_rationed() {
    let settings = Settings { on_corruption: OnCorruption::Evict, ..Settings::default() };
    let scene = Scene::with(machine(4, &[], &[]), &settings, Topology::default());
    let many = 100_000;
    let began = Instant::now();
    let mut contained = 0;
    for _ in 0..many {
        contained += scene.decide(&case()).1.len() as u64;
    }
    let seconds = began.elapsed().as_secs() + 1;
    let report = scene.reaction.report();
    assert_eq!((contained, report.contained, report.disagreements()), (many, many, many));
    let voted = many - report.unvoted;
    assert!((1..=u64::from(VOTES_PER_SECOND_MAX) * seconds).contains(&voted), "{voted} votes in {seconds} s");
    // b2 and a2.
    assert_eq!(scene.machine.visits.load(Relaxed), 2 * voted);
    assert_eq!(scene.reaction.recent().len(), evidence::LINES_KEPT_MAX);
}

/// Every kind that guard has is counted under its own word.
#[test]
fn each_kind_is_counted() {
    let kinds = [
        Kind::Outcome,
        Kind::Checksum,
        Kind::Reply,
        Kind::Record,
        Kind::Lost,
        Kind::Stale,
        Kind::Resurrected,
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let scene = Scene::new(machine(2, &[], &[]));
        let mut case = case();
        case.disagreement.kind = kind;
        scene.decide(&case);
        let mut expected = [0; KINDS.len()];
        expected[at] = 1;
        assert_eq!(scene.reaction.report().kinds, expected, "{kind}");
    }
}

/// Files of this test's own, gone with it.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("veracache-reaction-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Files(path)
    }

    fn settings(&self) -> Settings {
        Settings { state_file: Some(self.path()), ..Settings::default() }
    }

    fn path(&self) -> PathBuf {
        self.0.join("cores")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect("the state file is there")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_core_stays_left_after_a_start() {
    let files = Files::new("start");
    let start = |machine| Scene::with(machine, &files.settings(), Topology::default());
    let scene = start(machine(3, &[0], &[]));
    assert_eq!(files.text(), "", "that it can be written is seen at the start");
    scene.decide(&case());
    let begin = format!("core=0 since={START} verdict=persistent microcode=");
    assert!(files.text().starts_with(&begin), "{}", files.text());

    let again = start(machine(3, &[], &[]));
    assert_eq!(again.cores_left(), [A]);
    assert_eq!(*locked(&again.machine.stays), [cores(&[1, 2])]);
    assert!(again.reaction.report().is_ready);

    // A core that isn't there now is remembered for the day it is.
    let elsewhere = start(Sickbay { cores: cores(&[1, 2]), ..machine(0, &[1], &[]) });
    assert_eq!(elsewhere.cores_left(), []);
    assert!(locked(&elsewhere.machine.stays).is_empty());
    elsewhere.decide(&Case { checksum: Checksum::ForB, ..between(B, WRONG, Core(2), RIGHT) });
    assert_eq!(elsewhere.cores_left(), [B]);
    assert_eq!(files.text().lines().count(), 2);
}

#[test]
fn the_last_core_is_used_after_a_start() {
    let files = Files::new("last");
    std::fs::write(files.path(), "core=0 since=1 verdict=persistent\ncore=1 since=1 verdict=persistent\n")
        .expect("a file");
    let scene = Scene::with(machine(2, &[], &[]), &files.settings(), Topology::default());
    assert_eq!(scene.reaction.in_service(), [B]);
    assert!(!scene.reaction.report().is_ready);
    assert_eq!(scene.reaction.runs(1), 3);
}

/// Nothing that can be wrong with a state file keeps a server from starting, or a core from being left.
#[test]
fn a_state_file_that_is_no_good() {
    let files = Files::new("bad");
    std::fs::write(files.path(), b"core=1 since=1 verdict=persistent\ncore=\xff\n").expect("a file");
    let scene = Scene::with(machine(3, &[0], &[]), &files.settings(), Topology::default());
    assert_eq!(scene.cores_left(), [B]);
    let nowhere = Settings { state_file: Some(Path::new("/proc/none/cores").into()), ..Settings::default() };
    let scene = Scene::with(machine(3, &[0], &[]), &nowhere, Topology::default());
    assert_eq!(scene.decide(&case()).0.action, Action::Quarantine);
    assert_eq!(scene.cores_left(), [A]);
}

/// Names the part that a process started by a test has to play.
const PART: &str = "VERACACHE_REACTION_PART";

/// Runs one test of this program in a process of its own, in which it plays a part: its status and what it said.
fn in_a_process(test: &str, part: &str) -> (Option<i32>, String) {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program)
        .args([&format!("reaction::tests::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .output()
        .expect("it can be started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A finder on the real machine: the core it stands on is wrong, or sound, as told.
struct OnSystem {
    wrong: Option<Core>,
}

impl Means for OnSystem {
    fn repeat(&mut self) -> Option<Digest> {
        let here = Core(u16::try_from(rustix::thread::sched_getcpu()).expect("few cores"));
        Some(if Some(here) == self.wrong { WRONG } else { RIGHT })
    }

    fn contain(&mut self, _: &[u8]) -> bool {
        true
    }

    fn look_back(&mut self, _: Core) -> u64 {
        0
    }
}

#[test]
fn exit_ends_the_process() {
    let Ok(part) = std::env::var(PART) else {
        for (part, status, is_told) in [("exit", 70, true), ("evict", 0, false)] {
            let (code, said) = in_a_process("exit_ends_the_process", part);
            assert_eq!(code, Some(status), "{said}");
            assert!(said.contains("veracache: integrity: event=disagreement kind=outcome "), "{said}");
            assert_eq!(said.contains("veracache: integrity: event=exit status=70"), is_told, "{said}");
        }
        return;
    };
    let on_corruption = if part == "exit" { OnCorruption::Exit } else { OnCorruption::Evict };
    let reaction = Reaction::new(&Settings { on_corruption, ..Settings::default() }, Box::new(System));
    reaction.disagreed(&case(), &mut OnSystem { wrong: None });
}

/// On the machine this runs on: every thread leaves a core that is always wrong, also one that was bound to it, and those
/// that are started later don't use it; where there is no other core, it stays.
#[test]
fn threads_leave_a_core() {
    if std::env::var(PART).is_err() {
        let (code, said) = in_a_process("threads_leave_a_core", "leave");
        assert_eq!(code, Some(0), "{said}");
        return;
    }
    let allowed = System.allowed();
    let reaction = Reaction::new(&Settings::default(), Box::new(System));
    let sick = allowed[0];
    let other = *allowed.last().expect("there is one");
    let (tell, bound) = std::sync::mpsc::channel();
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        System.visit(sick, &mut || {
            // While it is bound to the core it is told to leave it; what it may use later is looked at here.
            tell.send(()).expect("the test waits");
            asked.recv().expect("the test goes on");
            assert_eq!(System.allowed().contains(&sick), sick == other);
        });
    });
    bound.recv().expect("the thread is bound");
    let case = Case { checksum: Checksum::ForB, ..between(sick, WRONG, other, RIGHT) };
    let settled = reaction.disagreed(&case, &mut OnSystem { wrong: Some(sick) });
    let left = if sick == other {
        // One core alone: it said right when it was asked again, or is the last one.
        assert!(reaction.report().quarantined.is_empty(), "{settled:?}");
        Vec::new()
    } else {
        assert_eq!(
            (settled.action, settled.verdict),
            (Action::Quarantine, Verdict::CoreA(Fault::Persistent))
        );
        reaction.report().quarantined
    };
    let stay: Vec<Core> = allowed.iter().copied().filter(|core| !left.contains(core)).collect();
    assert_eq!(System.allowed(), stay);
    let later = std::thread::spawn(|| System.allowed()).join().expect("it doesn't panic");
    assert_eq!(later, stay);
    ask.send(()).expect("the thread waits");
    thread.join().expect("the bound thread saw the same");
}
