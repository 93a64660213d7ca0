//! What must be so for a campaign to mean something: faults whose outcome is known come to it, and without a fault
//! nothing is noticed.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::mode::Mode;
use super::rig::{End, Reply, Rig, Role};
use super::survey::Survey;
use super::tracee::{Stop, Tracee};
use crate::error::Error;
use crate::interrupt;
use crate::oracle::{Client, Form, Kind, Mode as PutMode, Model, Op, Put, Request, Scope, Verdict, Workload};

/// How long an answer may take on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands sent before answers came.
const DEPTH: usize = 16;

/// The most of an answer that is looked through, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;

const KEY: &[u8] = b"self-test";
const VALUE: &[u8] = b"known";

/// What a server without faults did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Quiet {
    /// The server.
    pub mode: String,
    /// Commands executed.
    pub operations: u64,
    /// Of them, those executed a second time.
    pub validated: u64,
    /// What it took for faults.
    pub alarms: u64,
    /// Wrong answers.
    pub wrong: u64,
}

/// Sends so many commands to a server whose thread is traced and left alone.
pub fn quiet(
    program: &Path,
    mode: Mode,
    operations: u64,
    seed: u64,
    mut progress: impl FnMut(u64),
) -> Result<Quiet, Error> {
    let mut rig = Rig::start(program, mode, Role::Worker, &mut Code::default())?;
    let lost = |error| Error::Unavailable(format!("without a fault, {}: {error}", mode.name()));
    let mut client = Client::connect(rig.address(), PATIENCE).map_err(lost)?;
    let mut model = Model::new(mode.rules());
    let (mut wrong, mut done) = (0, 0);
    let workload = Workload::of(Scope::Small, seed, operations);
    client
        .run(&mut model, workload, DEPTH, |_, verdict| {
            done += 1;
            wrong += u64::from(matches!(verdict, Verdict::Wrong { .. }));
            if done % 1024 == 0 {
                progress(done);
            }
            !interrupt::is_requested()
        })
        .map_err(lost)?;
    let found = rig.findings(&mut |_: &mut Tracee| Ok(Some(Stop::Trap)))?;
    let found =
        found.map_err(|end| Error::Unavailable(format!("without a fault, {}: {end:?}", mode.name())))?;
    let alarms = found.disagreements + found.damaged + found.refused;
    rig.kill();
    Ok(Quiet { mode: mode.name().into(), operations: done, validated: found.validated, alarms, wrong })
}

/// Faults whose outcome is known: a byte of the answer on its way out, and a jump to nowhere.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// A bit of the value: that value is wrong, by that bit, and nothing else.
    Value,
    /// A bit of the key: it is another key's value.
    Key,
    /// The next instruction lies at address 0.
    Jump,
}

/// Makes known faults; an error says which did not come to what is known.
pub fn self_test(program: &Path) -> Result<u32, Error> {
    let cases = [Known::Value, Known::Key, Known::Jump];
    for known in cases {
        let mut code = Code::default();
        let mut rig = Rig::start(program, Mode::Vanilla, Role::Worker, &mut code)?;
        let found = make(&mut rig, &mut code, known)?;
        rig.kill();
        let is_right = match known {
            Known::Value => found == format!("{} {}", Kind::Value, "jnown"),
            Known::Key => found == format!("{} {}", Kind::Foreign, "known"),
            Known::Jump => found == "SIGSEGV",
        };
        if !is_right {
            return Err(Error::Wrong(format!("a known fault ({known:?}) was found to be: {found}")));
        }
    }
    Ok(u32::try_from(cases.len()).unwrap_or(u32::MAX))
}

fn make(rig: &mut Rig, code: &mut Code, known: Known) -> Result<String, Error> {
    let mut model = Model::new(Mode::Vanilla.rules());
    let put = Put {
        mode: PutMode::Set,
        value: VALUE.into(),
        flags: 0,
        exptime: 0,
        compare: None,
        vivify: None,
        invalidate: false,
        new_cas: None,
    };
    let set = request(Op::Put(put));
    let no_stop = &mut |_: &mut Tracee| Ok(Some(Stop::Trap));
    if let Some(end) = rig.converse(&mut model, [set], no_stop, |_, _, _| {})? {
        return Ok(format!("before the fault: {end:?}"));
    }
    let get = model.send(request(Op::Get { with_cas: false, touch: None }));
    let (_, reply) = Survey::until(rig, code, &get, &mut |tracee| spoil(tracee, known))?;
    Ok(match reply {
        Reply::Ended(End::Crash(signal)) => signal,
        Reply::Ended(end) => format!("{end:?}"),
        Reply::Whole(answer) => {
            let value = String::from_utf8_lossy(answer.split(|byte| *byte == b'\n').nth(1).unwrap_or(b""))
                .into_owned();
            match model.check(&get, &answer) {
                Verdict::Wrong { kind, .. } => format!("{kind} {}", value.trim_end()),
                other => format!("{other:?}"),
            }
        }
    })
}

fn request(op: Op) -> Request {
    Request { keys: vec![KEY.into()], form: Form::Classic, op, quiet: false, wants: Vec::new(), opaque: 0 }
}

/// The thread is about to send: `sendto(socket, bytes, length, …)`.
fn spoil(tracee: &Tracee, known: Known) -> Result<(), Error> {
    let mut registers = tracee.registers()?;
    let wanted = match known {
        Known::Value => VALUE,
        Known::Key => KEY,
        Known::Jump => {
            registers.rip = 0;
            return tracee.set_registers(registers);
        }
    };
    let mut answer = vec![0; usize::try_from(registers.rdx.min(ANSWER_BYTES_MAX)).unwrap_or(0)];
    tracee.read(registers.rsi, &mut answer)?;
    let Some(at) = answer.windows(wanted.len()).position(|window| window == wanted) else {
        return Err(Error::Wrong("the answer is not where it is sent from".into()));
    };
    tracee.write(registers.rsi + at as u64, &[wanted[0] ^ 1])
}
