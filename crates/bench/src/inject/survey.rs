//! Which instructions a command is executed with: its thread is stepped once through all of them.

use std::time::{Duration, Instant};

use iced_x86::{FlowControl, Instruction};

use super::code::{Code, Layout, Place, is_system_call};
use super::rig::{Reply, Rig, Role};
use super::tracee::{Stop, Tracee};
use super::unit::Unit;
use crate::error::Error;
use crate::oracle::Sent;

/// Steps that are taken at most, of about 20 µs each; what comes behind them is not seen.
const STEPS_MAX: usize = 30_000;

/// How long a thread may wait in the kernel while it is stepped.
const WAIT: Duration = Duration::from_secs(3);

/// System calls by which bytes are read: `read`, `readv`, `recvfrom`, `recvmsg`.
const READS: [u64; 4] = [0, 19, 45, 47];

/// System calls by which they are written: `write`, `writev`, `sendto`, `sendmsg`.
const WRITES: [u64; 4] = [1, 20, 44, 46];

/// System calls by which a thread goes to sleep: `nanosleep`, `futex`, `clock_nanosleep`, `epoll_wait`, `epoll_pwait`,
/// `epoll_pwait2`.
const SLEEPS: [u64; 6] = [35, 202, 230, 232, 281, 441];

/// One instruction that was executed.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where.
    pub place: Place,
    /// Which unit it belongs to.
    pub unit: Unit,
    /// Whether it executes operators; what the C library copies counts by who called it.
    pub is_operator_code: bool,
}

/// The instructions between the bytes read and the bytes written, in their order.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Each that can go wrong. A string instruction counts once.
    pub steps: Vec<Step>,
    /// Whether it was too long to be seen to its end.
    pub is_cut: bool,
}

/// What a step is to the window that is looked at.
enum Edge {
    None,
    Read,
    Write,
    Sleep,
}

impl Survey {
    /// Executes a command step by step, with whatever answer comes of it.
    pub fn of(rig: &mut Rig, code: &mut Code, sent: &Sent) -> Result<(Survey, Reply), Error> {
        Survey::until(rig, code, sent, &mut |_| Ok(()))
    }

    /// The same; `at_end` sees the thread before the system call by which the answer leaves.
    pub fn until(
        rig: &mut Rig,
        code: &mut Code,
        sent: &Sent,
        at_end: &mut dyn FnMut(&Tracee) -> Result<(), Error>,
    ) -> Result<(Survey, Reply), Error> {
        let mut walk = Walk::new(rig.role());
        let layout = rig.layout.clone();
        rig.tracee.stop()?;
        rig.tracee.step()?;
        let mut on_stop = |tracee: &mut Tracee| {
            if walk.is_done {
                return Ok(Some(Stop::Trap));
            }
            let stop = walk.go_on(tracee, &layout, code)?;
            if walk.is_done && !walk.survey.is_cut {
                at_end(tracee)?;
            }
            Ok(stop)
        };
        let reply = rig.ask(sent, &mut on_stop)?;
        // A validator comes after the answer.
        let began = Instant::now();
        while began.elapsed() < WAIT && rig.role() == Role::Validator && !walk.is_done {
            let mut on_stop = |tracee: &mut Tracee| walk.go_on(tracee, &layout, code);
            rig.look(&mut on_stop)?;
        }
        rig.tracee.stop()?;
        rig.tracee.go()?;
        Ok((walk.survey, reply))
    }
}

struct Walk {
    survey: Survey,
    role: Role,
    /// Whether bytes were read and none written yet.
    is_open: bool,
    /// Whether a validator has repeated something.
    has_worked: bool,
    is_done: bool,
    /// Whose code ran before the C library's.
    caller: Unit,
}

impl Walk {
    fn new(role: Role) -> Self {
        Walk {
            survey: Survey::default(),
            role,
            is_open: role == Role::Validator,
            has_worked: false,
            is_done: false,
            caller: Unit::Library,
        }
    }

    /// Takes steps until there is nothing more to see, or the thread waits in the kernel.
    fn go_on(
        &mut self,
        tracee: &mut Tracee,
        layout: &Layout,
        code: &mut Code,
    ) -> Result<Option<Stop>, Error> {
        loop {
            let address = tracee.next_address()?;
            let place = layout.place(address);
            let known = place.and_then(|place| Some((place, code.known(tracee, layout, place)?)));
            let mut edge = Edge::None;
            if let Some((place, known)) = known {
                if is_system_call(&known.instruction) {
                    edge = edge_of(tracee.registers()?.rax);
                } else {
                    self.note(place, known.unit, &known.instruction);
                }
            }
            if self.is_over(&edge) || self.survey.is_cut {
                self.is_done = true;
                return Ok(Some(Stop::Trap));
            }
            tracee.step()?;
            if matches!(edge, Edge::Sleep) {
                return Ok(None);
            }
            match tracee.wait(WAIT)? {
                Some(Stop::Trap) => {}
                Some(stop) => return Ok(Some(stop)),
                None => return Ok(None),
            }
            if matches!(edge, Edge::Read) && tracee.registers()?.rax.cast_signed() > 0 {
                self.is_open = true;
            }
        }
    }

    fn is_over(&self, edge: &Edge) -> bool {
        match self.role {
            Role::Worker => self.is_open && matches!(edge, Edge::Write),
            Role::Validator => self.has_worked && matches!(edge, Edge::Sleep),
        }
    }

    fn note(&mut self, place: Place, unit: Unit, instruction: &Instruction) {
        if unit != Unit::Copy {
            self.caller = unit;
        }
        self.has_worked |= matches!(unit, Unit::Operator | Unit::Parse);
        if !self.is_open {
            return;
        }
        let steps = &mut self.survey.steps;
        let is_same = steps.last().is_some_and(|last| last.place == place);
        if is_same && has_repetition(instruction) {
            return;
        }
        if steps.len() >= STEPS_MAX {
            self.survey.is_cut = true;
            return;
        }
        let is_operator_code = if unit == Unit::Copy { self.caller } else { unit }.is_operator_code();
        if instruction.flow_control() != FlowControl::Interrupt {
            steps.push(Step { place, unit, is_operator_code });
        }
    }
}

fn has_repetition(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repne_prefix()
}

fn edge_of(number: u64) -> Edge {
    match number {
        number if READS.contains(&number) => Edge::Read,
        number if WRITES.contains(&number) => Edge::Write,
        number if SLEEPS.contains(&number) => Edge::Sleep,
        _ => Edge::None,
    }
}
