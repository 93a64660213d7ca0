//! Many faults: which ones, in which servers, and what they came to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::code::{Code, Place};
use super::fault::{Fault, Model};
use super::mode::Mode;
use super::outcome::{Counts, Outcome, Seen, classify};
use super::random::Random;
use super::rig::{Reply, Rig, Role};
use super::scenario::Scenario;
use super::survey::{Step, Survey};
use super::trial::{self, Failed, Lasting, Shot};
use super::unit::Unit;
use super::vector::Places;
use crate::error::Error;
use crate::interrupt;
use crate::oracle::Verdict;

/// Trials in one server, at most: faults that were masked may have left something after all.
const TRIALS_PER_SERVER: u32 = 60;

/// Faults of which everything is kept; counts go on.
const NOTES_MAX: usize = 2_000;

/// How many tries one point may take to find an instruction that can suffer from something.
const DRAWS_MAX: u64 = 20;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server's executable.
    pub program: PathBuf,
    /// From what everything follows.
    pub seed: u64,
    /// In which servers.
    pub modes: Vec<Mode>,
    /// Faults in each of them.
    pub injections: u64,
    /// Faults per conversation.
    pub per_scenario: u64,
    /// Which thread.
    pub role: Role,
    /// One model alone, or all.
    pub model: Option<Model>,
    /// One duration alone, or all: eight of ten are transient.
    pub lasting: Option<Lasting>,
    /// Only instructions of operators.
    pub operators_only: bool,
}

/// Where a count belongs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Cell {
    /// The server.
    pub mode: Mode,
    /// For how long.
    pub lasting: Lasting,
    /// How.
    pub model: Model,
    /// Where.
    pub unit: Unit,
    /// Whether it executes operators.
    pub is_operator_code: bool,
}

/// A point in a conversation's code.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The instruction.
    pub place: Place,
    /// Its unit.
    pub unit: Unit,
    /// Whether it executes operators.
    pub is_operator_code: bool,
    /// Which of its executions.
    pub count: u32,
    /// From what the fault follows.
    pub draw: u32,
    /// For how long.
    pub lasting: Lasting,
    /// Whether the same is done in the other servers.
    pub is_paired: bool,
}

/// Everything about one fault, for people.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Note {
    /// What `--repeat` takes.
    pub id: String,
    /// Where it belongs.
    pub cell: Cell,
    /// What it came to.
    pub outcome: Outcome,
    /// The command that went wrong.
    pub command: String,
    /// The function.
    pub function: String,
    /// Its line.
    pub line: String,
    /// The instruction.
    pub assembly: String,
    /// What happened to it.
    pub fault: String,
    /// What was seen.
    pub seen: Seen,
    /// The first wrong answer.
    pub answer: Option<String>,
}

/// What a campaign has come to.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// How many came to what.
    pub cells: BTreeMap<Cell, Counts>,
    /// Those that nobody noticed, that ended the process, or that say nothing.
    pub notes: Vec<Note>,
    /// Faults that corrupted in the server without detection, by place, count and fault, and what they came to elsewhere.
    pub pairs: BTreeMap<Mode, BTreeMap<String, u64>>,
    /// Conversations whose code could not be seen.
    pub surveys_failed: u64,
    /// Commands on user data that were executed.
    pub commands: u64,
    /// Servers that were started.
    pub servers: u64,
}

impl Results {
    /// The sum over all cells that are meant.
    pub fn sum(&self, is_meant: impl Fn(&Cell) -> bool) -> Counts {
        let mut sum = Counts::default();
        self.cells.iter().filter(|(cell, _)| is_meant(cell)).for_each(|(_, counts)| sum.merge(counts));
        sum
    }
}

/// A campaign that goes on.
pub struct Campaign {
    plan: Plan,
    code: Code,
    vectors: Places,
    rigs: HashMap<Mode, (Rig, u32)>,
    /// What has come of it so far.
    pub results: Results,
}

impl Campaign {
    /// Nothing is started yet.
    pub fn new(plan: Plan) -> Self {
        let vectors = Places::here();
        Campaign { plan, code: Code::default(), vectors, rigs: HashMap::new(), results: Results::default() }
    }

    /// Injects until there is enough, the time is over, or somebody wants it to stop. `progress` is told how many of how many are done.
    pub fn run(&mut self, time: Duration, mut progress: impl FnMut(u64, u64)) -> Result<(), Error> {
        let began = Instant::now();
        let all = self.plan.injections * self.plan.modes.len() as u64;
        let mut done = 0;
        // A machine on which nothing can be seen must not keep anybody waiting for ever.
        let scenarios_max = 4 * self.plan.injections.div_ceil(self.plan.per_scenario) + 20;
        for number in 0..scenarios_max {
            if done >= all || began.elapsed() > time {
                break;
            }
            done += self.scenario(number, all - done)?;
            progress(done.min(all), all);
        }
        self.rigs.drain().for_each(|(_, (rig, _))| rig.kill());
        Ok(())
    }

    /// All faults of one conversation in all servers; how many there were.
    fn scenario(&mut self, number: u64, most: u64) -> Result<u64, Error> {
        let mut reference: Option<(Vec<Point>, HashSet<Place>)> = None;
        let mut corrupting: HashSet<usize> = HashSet::new();
        let mut done = 0;
        for mode in self.modes_in_order() {
            let scenario = Scenario::new(self.plan.seed, number, mode.is_checked());
            let Some(survey) = self.survey(mode, &scenario)? else {
                self.results.surveys_failed += 1;
                continue;
            };
            let mut random = Random::new(self.plan.seed ^ 0x5eed, number);
            let points = match &reference {
                None => {
                    let points = self.draw(&survey, &mut random);
                    reference = Some((points.clone(), survey.steps.iter().map(|step| step.place).collect()));
                    points
                }
                Some((points, places)) => self.matched(points, places, &survey, &mut random),
            };
            for (index, point) in points.iter().enumerate() {
                if done >= most {
                    return Ok(done);
                }
                let Some(outcome) = self.inject(mode, number, &scenario, point)? else { continue };
                done += 1;
                if mode == Mode::Vanilla && point.is_paired && matches!(outcome, Outcome::Undetected(_)) {
                    corrupting.insert(index);
                }
                if point.is_paired && corrupting.contains(&index) {
                    let counts = self.results.pairs.entry(mode).or_default();
                    *counts.entry(outcome.name().to_string()).or_default() += 1;
                }
            }
        }
        Ok(done)
    }

    /// The reference's points come first, so that the others can do the same: `vanilla` knows least of recording, so its
    /// code is what all have in common.
    fn modes_in_order(&self) -> Vec<Mode> {
        let mut modes = self.plan.modes.clone();
        modes.sort();
        modes
    }

    /// Executes a conversation's command step by step, in a server of its own mode.
    fn survey(&mut self, mode: Mode, scenario: &Scenario) -> Result<Option<Survey>, Error> {
        self.ensure(mode)?;
        let Some((rig, _)) = self.rigs.get_mut(&mode) else { return Ok(None) };
        let code = &mut self.code;
        let found = trial::prepare(rig, scenario).and_then(|(mut model, _)| {
            let sent = model.send(scenario.target.clone());
            let (survey, reply) = Survey::of(rig, code, &sent)?;
            let is_right = match reply {
                Reply::Whole(answer) => matches!(model.check(&sent, &answer), Verdict::Correct),
                Reply::Ended(_) => false,
            };
            Ok((survey, is_right))
        });
        match found {
            Ok((survey, true)) if !survey.steps.is_empty() => Ok(Some(survey)),
            Err(Failed::Fatal(error)) => Err(error),
            _ => {
                self.discard(mode);
                Ok(None)
            }
        }
    }

    /// Points of the reference. Half of them by execution, so that loops count as often as they run; half of them by
    /// instruction, so that what runs once counts as well.
    fn draw(&self, survey: &Survey, random: &mut Random) -> Vec<Point> {
        let is_meant = |step: &&Step| !self.plan.operators_only || step.is_operator_code;
        let steps: Vec<Step> = survey.steps.iter().filter(is_meant).copied().collect();
        let mut points = Vec::new();
        if steps.is_empty() {
            return points;
        }
        let places: Vec<Place> = {
            let mut seen = HashSet::new();
            steps.iter().map(|step| step.place).filter(|place| seen.insert(*place)).collect()
        };
        for _ in 0..self.plan.per_scenario {
            let lasting = self.lasting(random);
            let index = if random.below(2) == 0 {
                random.below(steps.len())
            } else {
                let place = places[random.below(places.len())];
                let of: Vec<usize> = (0..steps.len()).filter(|index| steps[*index].place == place).collect();
                of[random.below(of.len())]
            };
            let step = steps[index];
            let earlier = steps[..=index].iter().filter(|other| other.place == step.place).count();
            let count = u32::try_from(earlier).unwrap_or(u32::MAX);
            let draw = random.below_u32(u32::MAX);
            let Step { place, unit, is_operator_code } = step;
            points.push(Point { place, unit, is_operator_code, count, draw, lasting, is_paired: true });
        }
        points
    }

    /// The reference's points, as far as there is such an execution here; for the others, points in code that the
    /// reference doesn't execute.
    fn matched(
        &self,
        points: &[Point],
        places: &HashSet<Place>,
        survey: &Survey,
        random: &mut Random,
    ) -> Vec<Point> {
        let mut own = survey.clone();
        own.steps.retain(|step| !places.contains(&step.place));
        let shared = survey.steps.len() - own.steps.len();
        let executed = |point: &Point| {
            let of = survey.steps.iter().filter(|step| step.place == point.place).count();
            of >= point.count as usize
        };
        let mut extra = self.draw(&own, random).into_iter();
        points
            .iter()
            .filter_map(|point| {
                // As often as its own code is executed, a point is moved there.
                let is_moved = random.below(survey.steps.len()) >= shared;
                if executed(point) && !is_moved {
                    return Some(*point);
                }
                let moved = extra.next().map(|extra| Point { is_paired: false, ..extra });
                moved.or(executed(point).then_some(*point))
            })
            .collect()
    }

    fn lasting(&self, random: &mut Random) -> Lasting {
        let drawn = match random.below(20) {
            0..16 => Lasting::Transient,
            16..18 => Lasting::Persistent,
            18 => Lasting::Intermittent,
            _ => Lasting::AtRest,
        };
        self.plan.lasting.unwrap_or(drawn)
    }

    /// One fault; none if no such fault is possible.
    fn inject(
        &mut self,
        mode: Mode,
        number: u64,
        scenario: &Scenario,
        point: &Point,
    ) -> Result<Option<Outcome>, Error> {
        let Some(note) = self.fire(mode, number, scenario, point)? else { return Ok(None) };
        let outcome = note.outcome.clone();
        self.results.cells.entry(note.cell).or_default().add(&outcome, &note.seen);
        let is_noted = matches!(outcome, Outcome::Undetected(_) | Outcome::HarnessError(_));
        if is_noted && self.results.notes.len() < NOTES_MAX {
            self.results.notes.push(note);
        }
        Ok(Some(outcome))
    }

    /// Makes one fault, and tells everything about it.
    fn fire(
        &mut self,
        mode: Mode,
        number: u64,
        scenario: &Scenario,
        point: &Point,
    ) -> Result<Option<Note>, Error> {
        if interrupt::is_requested() {
            return Err(Error::Interrupted);
        }
        self.ensure(mode)?;
        let Some((rig, trials)) = self.rigs.get_mut(&mode) else { return Ok(None) };
        *trials += 1;
        let is_worn = *trials >= TRIALS_PER_SERVER;
        let layout = rig.layout.clone();
        let Some(known) = self.code.known(&rig.tracee, &layout, point.place) else { return Ok(None) };
        let is_meant = |fault: &Fault| point.lasting != Lasting::AtRest || fault.is_of_memory();
        let fault = (0..DRAWS_MAX).find_map(|attempt| {
            let mut random = Random::new(point.draw.into(), attempt);
            Fault::draw(&known.instruction, self.plan.model, &mut random).filter(is_meant)
        });
        let Some(fault) = fault else { return Ok(None) };
        let shot = Shot { place: point.place, count: point.count, fault, lasting: point.lasting };
        let (outcome, seen, answer) =
            match trial::run(rig, scenario, Some(&shot), self.vectors, point.draw.into()) {
                Ok(shown) => {
                    self.results.commands += shown.commands;
                    (classify(&shown.seen), shown.seen, shown.what)
                }
                Err(Failed::Harness(why)) => (Outcome::HarnessError(why), Seen::default(), None),
                Err(Failed::Fatal(error)) => return Err(error),
            };
        let Point { unit, is_operator_code, .. } = *point;
        let cell = Cell { mode, lasting: point.lasting, model: fault.model, unit, is_operator_code };
        let origin = self.code.origin(point.place, &known.instruction);
        if outcome.leaves_traces() || is_worn {
            self.discard(mode);
        }
        Ok(Some(Note {
            id: identify(number, point),
            cell,
            outcome,
            command: scenario.title(),
            function: origin.function,
            line: origin.line,
            assembly: origin.assembly,
            fault: fault.words(),
            seen,
            answer,
        }))
    }

    /// Makes one fault again, by its name.
    pub fn repeat(&mut self, id: &str) -> Result<Vec<Note>, Error> {
        let (number, mut point) = named(id).ok_or_else(|| {
            Error::Usage(format!("{id} is no fault's name; they look like 17.0.a1b2c.3.9f3e.transient"))
        })?;
        let mut notes = Vec::new();
        for mode in self.modes_in_order() {
            let scenario = Scenario::new(self.plan.seed, number, mode.is_checked());
            self.ensure(mode)?;
            if let Some((rig, _)) = self.rigs.get(&mode)
                && let Some(known) = self.code.known(&rig.tracee, &rig.layout, point.place)
            {
                point.unit = known.unit;
                point.is_operator_code = known.unit.is_operator_code();
            }
            notes.extend(self.fire(mode, number, &scenario, &point)?);
        }
        self.rigs.drain().for_each(|(_, (rig, _))| rig.kill());
        Ok(notes)
    }

    fn ensure(&mut self, mode: Mode) -> Result<(), Error> {
        if !self.rigs.contains_key(&mode) {
            let rig = Rig::start(&self.plan.program, mode, self.plan.role, &mut self.code)?;
            self.results.servers += 1;
            self.rigs.insert(mode, (rig, 0));
        }
        Ok(())
    }

    fn discard(&mut self, mode: Mode) {
        if let Some((rig, _)) = self.rigs.remove(&mode) {
            rig.kill();
        }
    }
}

/// A name of a fault, from which it can be repeated: conversation, file, address, execution, draw, duration.
fn identify(number: u64, point: &Point) -> String {
    let Point { place, count, draw, lasting, .. } = point;
    format!("{number}.{}.{:x}.{count}.{draw:x}.{}", place.file, place.address, lasting.name())
}

/// The conversation and the point that a name stands for.
fn named(id: &str) -> Option<(u64, Point)> {
    let parts: Vec<&str> = id.split('.').collect();
    let [number, file, address, count, draw, lasting] = parts[..] else { return None };
    let place = Place { file: file.parse().ok()?, address: u64::from_str_radix(address, 16).ok()? };
    let point = Point {
        place,
        unit: Unit::Library,
        is_operator_code: false,
        count: count.parse().ok()?,
        draw: u32::from_str_radix(draw, 16).ok()?,
        lasting: Lasting::from_str(lasting, false).ok()?,
        is_paired: true,
    };
    Some((number.parse().ok()?, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_faults() {
        let id = "17.1.a1b2c.3.9f3e.at-rest";
        let (number, point) = named(id).expect("a name");
        assert_eq!(identify(number, &point), id);
        for wrong in ["", "17", "17.1.x.3.9f3e.transient", "17.1.a.3.9f3e.ever", "17.1.a.3.9f3e.transient.1"]
        {
            assert!(named(wrong).is_none(), "{wrong}");
        }
    }
}
