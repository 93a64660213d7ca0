//! One fault: a conversation in which one instruction goes wrong, and what came of it.

use protocol::reply::{self, Reply as Parsed, Step as Parse};
use serde::{Deserialize, Serialize};

use super::apply::{Applied, apply, spoil_memory};
use super::code::{Place, decode};
use super::fault::{Fault, written_memory};
use super::outcome::Seen;
use super::random::Random;
use super::rig::{End, Findings, Rig};
use super::scenario::{Scenario, is_seen_wrong};
use super::tracee::{Stop, Tracee};
use super::vector::Places;
use crate::error::Error;
use crate::oracle::{Model, Sent, Verdict};

/// How often an intermittent fault shows, per execution.
const INTERMITTENT: f64 = 0.3;

/// Executions of one instruction that are looked at for a fault that lasts, of some 50 µs each.
const HITS_MAX: u32 = 1_500;

/// How the answer begins by which a value with a wrong checksum is refused.
const REFUSED: &[u8] = b"CLIENT_ERROR bad checksum";

/// How the answers begin that a server gives instead of one it can't confirm.
const UNCONFIRMED: &[u8] = b"SERVER_ERROR execution";

/// How long a fault lasts.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Lasting {
    /// For one execution of one instruction.
    Transient,
    /// From then on, in three of ten executions of this instruction.
    Intermittent,
    /// From then on, in each execution of this instruction.
    Persistent,
    /// What the instruction wrote is changed in memory when the command is done.
    AtRest,
}

impl Lasting {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Lasting::Transient => "transient",
            Lasting::Intermittent => "intermittent",
            Lasting::Persistent => "persistent",
            Lasting::AtRest => "at-rest",
        }
    }

    fn probability(self) -> f64 {
        if self == Lasting::Intermittent { INTERMITTENT } else { 1.0 }
    }

    fn is_once(self) -> bool {
        matches!(self, Lasting::Transient | Lasting::AtRest)
    }
}

/// Where, when and how.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// The instruction.
    pub place: Place,
    /// At which of its executions, from 1, since the command was sent.
    pub count: u32,
    /// What goes wrong.
    pub fault: Fault,
    /// For how long.
    pub lasting: Lasting,
}

/// Stops at an instruction, and makes it go wrong when its time has come.
struct Gun {
    shot: Shot,
    address: u64,
    vectors: Places,
    random: Random,
    hits: u32,
    applied: u32,
    changed: u32,
    /// What is to be changed when the command is done.
    at_rest: Option<(u64, usize)>,
}

impl Gun {
    fn on_stop(&mut self, tracee: &mut Tracee) -> Result<Option<Stop>, Error> {
        if tracee.next_address()? != self.address {
            return Ok(Some(Stop::Trap));
        }
        self.hits += 1;
        if self.hits < self.shot.count {
            return Ok(Some(Stop::Trap));
        }
        if self.shot.lasting.is_once() || self.hits > self.shot.count.saturating_add(HITS_MAX) {
            tracee.watch(None)?;
        }
        if self.shot.lasting == Lasting::AtRest {
            self.at_rest = target_of_store(tracee)?;
            return Ok(Some(Stop::Trap));
        }
        if !self.random.happens(self.shot.lasting.probability()) {
            return Ok(Some(Stop::Trap));
        }
        self.applied += 1;
        match apply(tracee, &self.shot.fault, self.vectors)? {
            Applied::Changed => self.changed += 1,
            Applied::Same => {}
            Applied::Ended(stop) => {
                self.changed += 1;
                return Ok(Some(stop));
            }
        }
        Ok(Some(Stop::Trap))
    }
}

/// Where the instruction that comes next writes to, unless that is the stack.
fn target_of_store(tracee: &Tracee) -> Result<Option<(u64, usize)>, Error> {
    let registers = tracee.registers()?;
    let mut bytes = [0; 15];
    let count = tracee.read(registers.rip, &mut bytes)?;
    let Some(instruction) = decode(&bytes[..count], registers.rip) else { return Ok(None) };
    let stack = registers.rsp.saturating_sub(64 << 10)..registers.rsp.saturating_add(1 << 20);
    Ok(written_memory(&instruction, &registers).filter(|(address, _)| !stack.contains(address)))
}

/// Keeps what answers were.
#[derive(Default)]
struct Judge {
    wrong: Option<String>,
    wrong_count: u32,
    unseen_by_client: u32,
    false_misses: u32,
    refused: u32,
    errors: u32,
    what: Option<String>,
}

impl Judge {
    fn see(&mut self, sent: &Sent, answer: &[u8], verdict: &Verdict) {
        match verdict {
            Verdict::Correct => {}
            Verdict::FalseMiss => self.false_misses += 1,
            Verdict::Refused if answer.starts_with(UNCONFIRMED) || answer.starts_with(REFUSED) => {
                self.refused += 1
            }
            Verdict::Refused => self.errors += 1,
            Verdict::Wrong { kind, what } => {
                self.wrong_count += 1;
                self.unseen_by_client += u32::from(!client_sees(sent, answer));
                if self.wrong.is_none() {
                    self.wrong = Some(kind.to_string());
                    self.what = Some(what.clone());
                }
            }
        }
    }
}

/// Whether a client that checks values sees that one of an answer's is wrong.
fn client_sees(sent: &Sent, answer: &[u8]) -> bool {
    let mut rest = answer;
    while let Parse::Reply { reply, used } = reply::parse(rest) {
        let is_seen = match &reply {
            Parsed::Value { key, flags, value, .. } => is_seen_wrong(key, *flags, value),
            Parsed::MetaValue { value, flags } => {
                let flags = flags.number(b'f').and_then(|flags| u32::try_from(flags).ok());
                let key = sent.request().keys.first();
                key.zip(flags).is_some_and(|(key, flags)| is_seen_wrong(key, flags, value))
            }
            _ => false,
        };
        if is_seen {
            return true;
        }
        rest = &rest[used..];
        if rest.is_empty() {
            break;
        }
    }
    false
}

/// What a trial showed, and how the first wrong answer read.
pub struct Shown {
    /// The bare facts.
    pub seen: Seen,
    /// Command, answer and what was expected.
    pub what: Option<String>,
    /// Commands on user data that were executed.
    pub commands: u64,
}

/// Why a trial says nothing.
pub enum Failed {
    /// Ask for another server, and go on.
    Harness(String),
    /// Nothing can go on.
    Fatal(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted | Error::Usage(_) => Failed::Fatal(error),
            other => Failed::Harness(other.to_string()),
        }
    }
}

/// Executes a scenario up to the command that matters; the model that has followed it, and what the server had noticed.
pub fn prepare(rig: &mut Rig, scenario: &Scenario) -> Result<(Model, Findings), Failed> {
    let mut model = Model::new(rig.mode.rules());
    let mut first = None;
    let no_stop = &mut |_: &mut Tracee| Ok(Some(Stop::Trap));
    if let Some(end) = rig.order("flush_all")? {
        return Err(Failed::Harness(format!("flush_all: {end:?}")));
    }
    let end = rig.converse(&mut model, scenario.before.iter().cloned(), no_stop, |_, _, verdict| {
        if let Verdict::Wrong { what, .. } = verdict {
            first.get_or_insert(what.clone());
        }
    })?;
    if let Some(end) = end {
        return Err(Failed::Harness(format!("before the fault: {end:?}")));
    }
    if let Some(what) = first {
        return Err(Failed::Harness(format!("before the fault: {what}")));
    }
    match rig.findings(no_stop)? {
        Ok(findings) => Ok((model, findings)),
        Err(end) => Err(Failed::Harness(format!("before the fault: {end:?}"))),
    }
}

/// Executes a scenario with a fault, or without one.
pub fn run(
    rig: &mut Rig,
    scenario: &Scenario,
    shot: Option<&Shot>,
    vectors: Places,
    seed: u64,
) -> Result<Shown, Failed> {
    let (mut model, before) = prepare(rig, scenario)?;
    let mut gun = None;
    if let Some(shot) = shot {
        let Some(address) = rig.layout.address(shot.place) else {
            return Err(Failed::Harness("the instruction is not mapped".into()));
        };
        rig.tracee.stop()?;
        rig.tracee.watch(Some(address))?;
        rig.tracee.go()?;
        let random = Random::new(seed, 1);
        gun = Some(Gun {
            shot: *shot,
            address,
            vectors,
            random,
            hits: 0,
            applied: 0,
            changed: 0,
            at_rest: None,
        });
    }
    let mut judge = Judge::default();
    let mut on_stop = |tracee: &mut Tracee| match &mut gun {
        Some(gun) => gun.on_stop(tracee),
        None => Ok(Some(Stop::Trap)),
    };
    let target = std::iter::once(scenario.target.clone());
    let mut end = rig.converse(&mut model, target, &mut on_stop, |sent, answer, verdict| {
        judge.see(sent, answer, verdict);
    })?;
    if end.is_none() && shot.is_some() {
        end = finish(rig, &mut gun)?;
    }
    let mut on_stop = |tracee: &mut Tracee| match &mut gun {
        Some(gun) => gun.on_stop(tracee),
        None => Ok(Some(Stop::Trap)),
    };
    if end.is_none() {
        let after = scenario.after.iter().cloned();
        end = rig.converse(&mut model, after, &mut on_stop, |sent, answer, verdict| {
            judge.see(sent, answer, verdict);
        })?;
    }
    let mut shown = conclude(rig, scenario, &mut model, &before, judge, end)?;
    if let Some(gun) = gun {
        shown.seen.applied = gun.applied;
        shown.seen.changed = gun.changed;
    } else {
        shown.seen.applied = 1;
        shown.seen.changed = 1;
    }
    Ok(shown)
}

/// What is done when the command that matters was answered: validators get their turn, and what lies in memory is changed.
fn finish(rig: &mut Rig, gun: &mut Option<Gun>) -> Result<Option<End>, Failed> {
    let Some(gun) = gun else { return Ok(None) };
    // A validator may come to the instruction only now.
    if let Err(end) = rig.findings(&mut |tracee| gun.on_stop(tracee))? {
        return Ok(Some(end));
    }
    if gun.shot.lasting.is_once() {
        rig.tracee.stop()?;
        rig.tracee.watch(None)?;
        rig.tracee.go()?;
    }
    if let Some((address, len)) = gun.at_rest.take() {
        gun.applied = 1;
        gun.changed = u32::from(spoil_memory(&rig.tracee, &gun.shot.fault, address, len)?);
    }
    Ok(None)
}

/// Reads all content, and asks the server what it has noticed before and after that.
fn conclude(
    rig: &mut Rig,
    scenario: &Scenario,
    model: &mut Model,
    before: &Findings,
    judge: Judge,
    end: Option<End>,
) -> Result<Shown, Failed> {
    let mut seen = Seen {
        wrong_answer: judge.wrong,
        wrong_answers: judge.wrong_count,
        false_misses: judge.false_misses,
        refused: judge.refused,
        errors: judge.errors,
        end,
        ..Seen::default()
    };
    let mut shown = Shown { seen: Seen::default(), what: judge.what, commands: 0 };
    if matches!(seen.end, Some(End::Crash(_) | End::Hang)) {
        shown.seen = seen;
        return Ok(shown);
    }
    if seen.end.is_some() {
        rig.reconnect()?;
    }
    rig.tracee.stop()?;
    rig.tracee.watch(None)?;
    rig.tracee.go()?;
    let no_stop = &mut |_: &mut Tracee| Ok(Some(Stop::Trap));
    match rig.findings(no_stop)? {
        Ok(findings) => seen.is_noticed = findings.exceed(before),
        Err(end) => seen.end = seen.end.or(Some(end)),
    }
    if seen.end.is_none() {
        let mut last = Judge::default();
        let content = model.final_content(&scenario.keys);
        seen.end =
            rig.converse(model, content, no_stop, |sent, answer, verdict| last.see(sent, answer, verdict))?;
        seen.wrong_content = last.wrong;
        seen.wrong_answers += last.wrong_count;
        seen.false_misses += last.false_misses;
        seen.refused += last.refused;
        seen.errors += last.errors;
        let unseen = judge.unseen_by_client + last.unseen_by_client;
        seen.is_noticed_by_client = rig.mode.is_checked() && unseen == 0;
        shown.what = shown.what.or(last.what);
        match rig.findings(no_stop)? {
            Ok(findings) => {
                seen.is_noticed_on_read = findings.exceed(before);
                shown.commands = findings.executed;
            }
            Err(end) => seen.end = seen.end.or(Some(end)),
        }
    }
    shown.seen = seen;
    Ok(shown)
}
