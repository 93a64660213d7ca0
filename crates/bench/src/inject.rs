//! Faults on purpose: a server's worker is traced, one of its instructions goes wrong, and an oracle says what came of it.

pub mod apply;
pub mod campaign;
pub mod code;
pub mod control;
mod display;
pub mod fault;
pub mod mode;
pub mod outcome;
mod random;
pub mod results;
pub mod rig;
pub mod scenario;
pub mod survey;
pub mod tracee;
pub mod trial;
pub mod unit;
pub mod vector;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::Error;
use crate::interrupt;
use crate::record::{Contender, Gate, Log, Record};
use crate::server;
use campaign::{Campaign, Plan};
use display::Progress;
use mode::Mode;
use rig::Role;
use trial::Lasting;

/// Make a server's instructions go wrong, and count what is noticed.
///
/// Starts servers of its own, traces one thread of each, and lets one of its instructions go wrong at a time while an
/// oracle looks at every answer. Touches no other process.
#[derive(Args, Debug)]
pub struct Options {
    /// Faults in each mode
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    injections: u64,
    /// Servers that get the same faults
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', value_enum,
          default_values_t = [Mode::Vanilla, Mode::Sei, Mode::Orthrus, Mode::OrthrusSync, Mode::Rbv])]
    modes: Vec<Mode>,
    /// From what all that is drawn follows
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Which thread goes wrong
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Worker)]
    role: Role,
    /// One model of faults alone
    #[arg(long, value_enum)]
    model: Option<fault::Model>,
    /// One duration of faults alone; by default 8 of 10 are transient
    #[arg(long, value_enum)]
    lasting: Option<Lasting>,
    /// Only instructions that execute operators
    #[arg(long)]
    operators_only: bool,
    /// Make one fault again, and tell all about it
    #[arg(long, value_name = "ID")]
    repeat: Option<String>,
    /// Faults in one conversation
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=1000))]
    per_scenario: u64,
    /// Commands without a fault, over all modes, that nothing may be noticed in
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    quiet_operations: u64,
    /// Fail unless the coverage of operator code is so high, in percent, by the
    /// lower end of its interval, in each mode that notices faults
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    least_coverage: Option<u8>,
    /// Inject for so many seconds at most, and keep what was measured
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    seconds: u64,
    /// The server's executable, instead of this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Add the result to this file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs a campaign, and shows what came of it.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut log = options.output.as_deref().map(Log::open).transpose()?;
    let mut record = Record::begin("inject", options.seed);
    let program = options.program.clone().map_or_else(server::ourselves, Ok)?;
    let mut campaign = Campaign::new(plan(options, program.clone()));
    if let Some(id) = &options.repeat {
        campaign.repeat(id)?.iter().for_each(|note| println!("{}", display::describe(note)));
        return Ok(());
    }
    if options.modes.iter().any(|mode| options.role == Role::Validator && !mode.has_validator()) {
        return Err(Error::Usage("only orthrus and rbv have validators; name them with --modes".into()));
    }
    let known_faults = control::self_test(&program)?;
    let mut progress = Progress::begin("injecting");
    let began = Instant::now();
    let time = Duration::from_secs(options.seconds);
    let mut ended = campaign.run(time, |done, all| progress.show(done, all));
    progress.end();
    let seconds = began.elapsed().as_secs_f64();
    let mut quiet = Vec::new();
    if ended.is_ok() {
        ended = leave_alone(options, &program, &mut quiet);
    }
    let results = &campaign.results;
    let gates = all_gates(options, results, &quiet, known_faults);
    let verdict = results::verdict(results, &options.modes);
    print!("{}", display::text(results, &options.modes, &gates, &verdict, seconds));
    if let Some(log) = &mut log {
        record.incomplete = ended.as_ref().err().map(ToString::to_string);
        record.environment.servers = servers(options, &program);
        record.gates.clone_from(&gates);
        let kept = results::keep(results, &options.modes, seconds, &quiet, known_faults);
        record.results = serde_json::to_value(kept)
            .map_err(|error| Error::Io("keeping the result".into(), error.into()))?;
        log.append(&record)?;
    }
    ended?;
    match gates.iter().find(|gate| !gate.is_met) {
        Some(gate) => Err(Error::Wrong(format!("{}: {}", gate.name, gate.found))),
        None => Ok(()),
    }
}

fn plan(options: &Options, program: PathBuf) -> Plan {
    Plan {
        program,
        seed: options.seed,
        modes: options.modes.clone(),
        injections: options.injections,
        per_scenario: options.per_scenario,
        role: options.role,
        model: options.model,
        lasting: options.lasting,
        operators_only: options.operators_only,
    }
}

/// Servers without faults, which must be quiet.
fn leave_alone(options: &Options, program: &Path, quiet: &mut Vec<control::Quiet>) -> Result<(), Error> {
    let each = options.quiet_operations.div_ceil(options.modes.len() as u64);
    let mut progress = Progress::begin("without faults");
    for (place, mode) in options.modes.iter().enumerate() {
        if interrupt::is_requested() {
            return Err(Error::Interrupted);
        }
        let before = each * place as u64;
        let show = |done| progress.show(before + done, options.quiet_operations);
        quiet.push(control::quiet(program, *mode, each, options.seed, show)?);
    }
    progress.end();
    Ok(())
}

fn all_gates(
    options: &Options,
    results: &campaign::Results,
    quiet: &[control::Quiet],
    known_faults: u32,
) -> Vec<Gate> {
    let mut gates = results::gates(results, &options.modes, quiet, known_faults);
    let Some(least) = options.least_coverage else { return gates };
    for mode in options.modes.iter().filter(|mode| **mode != Mode::Vanilla) {
        let counts = results::transient(results, *mode, &|cell| cell.is_operator_code);
        let low = counts.interval().map_or(0.0, |[low, _]| low);
        gates.push(Gate {
            name: format!("{}: coverage of operator code at least {least} %", mode.name()),
            is_met: low * 100.0 >= f64::from(least),
            found: results::share(&counts),
        });
    }
    gates
}

fn servers(options: &Options, program: &Path) -> Vec<Contender> {
    let server = |mode: &Mode| Contender {
        name: mode.name().into(),
        command: format!("{} serve {}", program.display(), mode.flags().join(" ")),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    options.modes.iter().map(server).collect()
}
