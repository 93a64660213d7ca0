//! `cargo xtask perf protect`: what each mode of protection costs, in one table.
//!
//! All threads and processes of a system share core 0, so that what validators and replicas take is paid for within
//! the figure; the generator has core 1. Rounds are interleaved: each contender gets a fresh server in each round, in
//! random order, and a ratio is that of two contenders within a round. What this layout can and can't say stands in
//! docs/bias.md.

mod row;
mod table;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::CONNECTIONS;
use super::contender::{self, Contender, Server};
use super::generator::{self, Generator, Items, Shape, Until};
use super::system::{self, CoreTimes};
use crate::error::Error;
use crate::random::Random;
use row::{LATENCY, LOADS, Latency, Load, MEMORY, Sample, Selection};
use table::{Figures, Outcome};

const HELP: &str = "\
Usage: cargo xtask perf protect [--rounds N] [--seed N] [--ours PATH]
                                [--only ROW] [--quick]

Compares the modes of protection in interleaved rounds: requests per second and
CPU per request with all processes of a system on core 0, peak memory, and how
long validation takes. Ends with status 1 when a row has not reached its goal,
or may have only seemed to. A mode that the executable doesn't have is named and
left out.

  --rounds N   rounds to run (default 5)
  --seed N     order of contenders and choice of keys (default: from the clock)
  --ours PATH  our executable (default: built from this workspace)
  --only ROW   measure this row, and what it is compared with; may be repeated
  --quick      tiny amounts, to see that it works; its figures mean nothing
";

/// The core of the system under measurement, and the generator's.
const SYSTEM_CORE: usize = 0;
const GENERATOR_CORE: usize = 1;

/// No run takes longer than this; a round that would is not begun.
const TOTAL_SECONDS_MAX: u64 = 900;

struct Options {
    rounds: usize,
    seed: u64,
    ours: Option<PathBuf>,
    selection: Selection,
    quick: bool,
}

/// How much is measured.
struct Amounts {
    warm: Duration,
    timed: Duration,
    /// The items of the loads, and of the row of memory.
    items: Items,
    many_items: Items,
    /// Overwritten items in the row of memory. They leave room below the limit of memory: at the limit every system
    /// takes just that.
    updates: u64,
}

impl Amounts {
    fn new(quick: bool) -> Self {
        let items = |count| Items { count, key_bytes: 64, value_bytes: 256 };
        let (warm_ms, timed_ms, scale) = if quick { (20, 100, 100) } else { (500, 2_000, 1) };
        Amounts {
            warm: Duration::from_millis(warm_ms),
            timed: Duration::from_millis(timed_ms),
            items: items(100_000 / scale),
            many_items: items(3_000_000 / scale),
            updates: 1_500_000 / scale,
        }
    }
}

pub(super) fn run(args: &[String]) -> Result<(), Error> {
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{HELP}");
        return Ok(());
    }
    let options = parse(args)?;
    let ours = match &options.ours {
        Some(path) => path.clone(),
        None => super::build()?,
    };
    contender::pin_this_process(GENERATOR_CORE)?;
    let amounts = Amounts::new(options.quick);
    print!("{}", table::heading(options.seed, amounts.items));
    let mut figures = Figures::new();
    find_what_is_missing(&ours, &options.selection, &mut figures)?;
    let rounds = measure(&options, &amounts, &ours, &mut figures);
    print!("{}", figures.table(&options.selection, rounds));
    match figures.failures(&options.selection) {
        0 => Ok(()),
        count if options.quick && !figures.has_errors() => {
            println!("rows that have not reached their goals: {count}; with --quick that means nothing");
            Ok(())
        }
        count => Err(Error::Failed(format!("rows that have not reached their goals: {count}"))),
    }
}

fn parse(args: &[String]) -> Result<Options, Error> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |elapsed| elapsed.as_secs());
    let (mut rounds, mut seed, mut ours, mut only, mut quick) = (5, clock, None, Vec::new(), false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value =
            || args.next().ok_or_else(|| Error::Usage(format!("perf protect: {arg} needs a value")));
        let number = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| Error::Usage(format!("perf protect: {arg} takes a number, not '{text}'")))
        };
        match arg.as_str() {
            "--rounds" => rounds = number(value()?)?.max(1) as usize,
            "--seed" => seed = number(value()?)?,
            "--ours" => ours = Some(PathBuf::from(value()?)),
            "--only" => only.push(value()?.clone()),
            "--quick" => quick = true,
            _ => {
                return Err(Error::Usage(format!(
                    "perf protect: unknown argument '{arg}'; see `cargo xtask perf protect --help`"
                )));
            }
        }
    }
    Ok(Options { rounds, seed, ours, selection: Selection::parse(only)?, quick })
}

/// Starts each system once, so that the modes this executable doesn't have are known before anything is measured.
fn find_what_is_missing(ours: &Path, selection: &Selection, figures: &mut Figures) -> Result<(), Error> {
    let rows = LOADS.iter().map(|load| (load.row, load.flags));
    let rows = rows.chain([(MEMORY.0, MEMORY.1[0]), (LATENCY.0, LATENCY.1)]);
    for (row, flags) in rows.filter(|(row, _)| selection.has(row)) {
        if let Some(words) = system(ours, row, flags).refusal()? {
            figures.leave_out(row, Outcome::NotThere(words));
        }
    }
    Ok(())
}

fn system(ours: &Path, name: &'static str, flags: &[&str]) -> Contender {
    let mut command: Vec<OsString> = vec![ours.into(), "serve".into()];
    command.extend(flags.iter().map(OsString::from));
    Contender { name, command, cores: "0", memory_mb: 2048 }
}

/// One thing to measure in a round.
#[derive(Clone, Copy)]
enum Task {
    Load(&'static Load),
    /// The protected system, 0, or the other, 1.
    Memory(usize),
    Latency,
}

impl Task {
    fn row(self) -> &'static str {
        match self {
            Task::Load(load) => load.row,
            Task::Memory(_) => MEMORY.0,
            Task::Latency => LATENCY.0,
        }
    }
}

/// Fills in the figures; the number of rounds that were run. What fails is left out of later rounds, and said.
fn measure(options: &Options, amounts: &Amounts, ours: &Path, figures: &mut Figures) -> usize {
    let started = Instant::now();
    let mut random = Random::new(options.seed);
    let mut tasks: Vec<Task> = LOADS.iter().map(Task::Load).collect();
    tasks.extend([Task::Memory(0), Task::Memory(1), Task::Latency]);
    tasks.retain(|task| options.selection.has(task.row()));
    let mut longest = Duration::ZERO;
    for round in 0..options.rounds {
        if started.elapsed() + longest > Duration::from_secs(TOTAL_SECONDS_MAX) {
            return round;
        }
        let round_started = Instant::now();
        shuffle(&mut tasks, &mut random);
        figures.begin_round();
        for task in &tasks {
            let row = task.row();
            if figures.is_left_out(row) {
                continue;
            }
            eprint!("\rround {}/{}: {row:<16}", round + 1, options.rounds);
            if let Err(error) = measure_one(*task, amounts, ours, random.next(), figures) {
                figures.leave_out(row, Outcome::Failed(format!("round {}: {error}", round + 1)));
            }
        }
        longest = longest.max(round_started.elapsed());
    }
    eprint!("\r{:<40}\r", "");
    options.rounds
}

fn measure_one(
    task: Task,
    amounts: &Amounts,
    ours: &Path,
    seed: u64,
    figures: &mut Figures,
) -> Result<(), Error> {
    match task {
        Task::Load(load) => figures.load(load.row, load_once(load, amounts, ours, seed)?),
        Task::Memory(which) => figures.memory(which, memory_once(MEMORY.1[which], amounts, ours, seed)?),
        Task::Latency => figures.latency(latency_once(amounts, ours, seed)?),
    }
    Ok(())
}

fn load_once(load: &Load, amounts: &Amounts, ours: &Path, seed: u64) -> Result<Sample, Error> {
    let server = Server::start(&system(ours, load.row, load.flags))?;
    generator::fill(server.address, amounts.items)?;
    let mut generator = connect(&server, Shape::Mixed { depth: load.depth }, amounts.items, seed)?;
    generator.run(Until::Elapsed(amounts.warm))?;
    let counts_before = counts(&server.statistics("integrity")?);
    let cpu_before = server.cpu()?;
    let cores_before = [CoreTimes::now(SYSTEM_CORE)?, CoreTimes::now(GENERATOR_CORE)?];
    let done = generator.run(Until::Elapsed(amounts.timed))?;
    let cores = [CoreTimes::now(SYSTEM_CORE)?, CoreTimes::now(GENERATOR_CORE)?];
    let cpu = server.cpu()? - cpu_before;
    let statistics = server.statistics("integrity")?;
    none_disagreed(&statistics)?;
    // `share` is of everything since the start of the server, of which the filling is a large part.
    let share = match (counts_before, counts(&statistics)) {
        (Some(before), Some(after)) if load.is_recorded() => row::share_between(before, after),
        _ => None,
    };
    let busy = cores[0].busy_since(cores_before[0]);
    Ok(Sample {
        rate: done.answered as f64 / done.elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / done.answered as f64,
        busy,
        generator_busy: cores[1].busy_since(cores_before[1]),
        taken: (busy - cpu.as_secs_f64() / done.elapsed.as_secs_f64()).max(0.0),
        share,
    })
}

/// The peak of resident memory, in bytes, after all items were stored and half of them were overwritten.
fn memory_once(flags: &[&str], amounts: &Amounts, ours: &Path, seed: u64) -> Result<f64, Error> {
    let server = Server::start(&system(ours, MEMORY.0, flags))?;
    generator::fill(server.address, amounts.many_items)?;
    connect(&server, Shape::Updates { depth: 16 }, amounts.many_items, seed)?
        .run(Until::Answered(amounts.updates))?;
    none_disagreed(&server.statistics("integrity")?)?;
    let (held, stored) = (server.curr_items()?, amounts.many_items.count);
    if held != stored {
        return Err(Error::Failed(format!("holds {held} items of {stored} stored")));
    }
    Ok(server.resident_bytes_max()? as f64)
}

/// The server may use both cores. The generator shares the worker's, which waits for it anyway, so that the validator
/// has one of its own.
fn latency_once(amounts: &Amounts, ours: &Path, seed: u64) -> Result<Latency, Error> {
    let server = Server::start(&Contender { cores: "0,1", ..system(ours, LATENCY.0, LATENCY.1) })?;
    let statistics = server.statistics("integrity")?;
    let said = |key| statistics.get(key).map_or("unknown", String::as_str);
    let (workers, validators) = (said("worker_cores"), said("validator_cores"));
    let core = generator_core(workers, validators);
    contender::pin_this_process(core)?;
    let result = run_for_latency(&server, amounts, seed);
    contender::pin_this_process(GENERATOR_CORE)?;
    let independence = said("independence");
    let place =
        format!("workers {workers}, validators {validators} (independence {independence}), generator {core}");
    Ok(Latency { us: result?, place })
}

/// The worker's core, if there is one that validators leave alone.
fn generator_core(workers: &str, validators: &str) -> usize {
    let validators: Vec<&str> = validators.split(',').collect();
    let core = workers.split(',').find(|core| !validators.contains(core)).and_then(|core| core.parse().ok());
    core.unwrap_or(GENERATOR_CORE)
}

fn run_for_latency(server: &Server, amounts: &Amounts, seed: u64) -> Result<[f64; 2], Error> {
    // The server's figure is of everything since its start. Filled at once, it would be that of a pipeline.
    generator::fill_in_steps(server.address, amounts.items, CONNECTIONS as u64)?;
    connect(server, Shape::Mixed { depth: 1 }, amounts.items, seed)?.run(Until::Elapsed(amounts.timed))?;
    let statistics = server.statistics("integrity")?;
    none_disagreed(&statistics)?;
    Ok([number(&statistics, "validation_us_p50")?, number(&statistics, "validation_us_p99")?])
}

fn connect(server: &Server, shape: Shape, items: Items, seed: u64) -> Result<Generator, Error> {
    Generator::connect(server.address, CONNECTIONS, shape, items, seed)
        .map_err(|error| Error::Failed(format!("cannot connect: {error}")))
}

/// Requests executed and validated since the server was started, if it counts them.
fn counts(statistics: &HashMap<String, String>) -> Option<(u64, u64)> {
    let count = |key| statistics.get(key).and_then(|count: &String| count.parse().ok());
    Some((count("executed")?, count("validated")?))
}

/// No fault is injected here, so whatever is noticed is a false alarm, and no figure of such a run counts.
fn none_disagreed(statistics: &HashMap<String, String>) -> Result<(), Error> {
    for key in ["disagreements", "crc_mismatches"] {
        if let Some(count) = statistics.get(key).filter(|count| *count != "0") {
            return Err(Error::Failed(format!("{key} {count} without any fault")));
        }
    }
    Ok(())
}

fn number(statistics: &HashMap<String, String>, key: &str) -> Result<f64, Error> {
    let number = statistics.get(key).and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::Failed(format!("no {key} in stats integrity")))
}

fn shuffle<T>(values: &mut [T], random: &mut Random) {
    for end in (1..values.len()).rev() {
        values.swap(end, random.below(end as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn arguments() {
        let options =
            parse(&args("--rounds 3 --seed 7 --ours x/y --only sei --only memory --quick")).unwrap();
        assert_eq!((options.rounds, options.seed, options.quick), (3, 7, true));
        assert_eq!(options.ours, Some("x/y".into()));
        assert!(options.selection.has("sei") && options.selection.has("memory"));
        assert!(!options.selection.has("rbv"));
        assert!(parse(&[]).unwrap().selection.has("rbv"));
    }

    #[test]
    fn wrong_arguments_are_usage_errors() {
        for wrong in ["--only", "--only sej", "--rounds many", "--peer memcached", "sei"] {
            let error = parse(&args(wrong)).err().map(|error| error.exit_status());
            assert_eq!(error, Some(2), "{wrong}");
        }
    }

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        for line in HELP.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn alarms_without_a_fault_are_errors() {
        let check = |text: &str, is_fine: bool| {
            let statistics = text.split(' ').map(|pair| pair.split_once('=').unwrap());
            let statistics = statistics.map(|(key, value)| (key.to_string(), value.to_string())).collect();
            assert_eq!(none_disagreed(&statistics).is_ok(), is_fine, "{text}");
        };
        check("disagreements=0 crc_mismatches=0", true);
        check("executed=5", true);
        check("disagreements=1 crc_mismatches=0", false);
        check("disagreements=0 crc_mismatches=2", false);
    }

    #[test]
    fn the_generator_leaves_the_validator_alone() {
        let check = |workers, validators, expected| {
            assert_eq!(generator_core(workers, validators), expected, "{workers} {validators}");
        };
        check("0", "1", 0);
        check("1", "0", 1);
        check("0,2", "0,1", 2);
        check("0,1", "0,1", GENERATOR_CORE);
        check("none", "none", GENERATOR_CORE);
        check("unknown", "unknown", GENERATOR_CORE);
    }

    #[test]
    fn shuffling_keeps_everything_and_repeats_with_its_seed() {
        let shuffled = |seed| {
            let mut values: Vec<u32> = (0..20).collect();
            shuffle(&mut values, &mut Random::new(seed));
            values
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<u32>>());
    }
}
