//! `cargo xtask perf`: server CPU per request and resident bytes per item, against Debian's memcached.
//!
//! Rounds are interleaved: each contender gets a fresh server in each round, in random order. A row's result is the
//! median over rounds of each contender and the ratio of the two within a round. The server is pinned to core 0, the
//! generator to core 1; what that can and can't say stands in docs/bias.md.

mod contender;
mod generator;
mod protect;
mod report;
mod system;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::random::Random;
use contender::{Contender, Server};
use generator::{Generator, Items, Shape, Until};
use report::{Row, Sample};

const HELP: &str = "\
Usage: cargo xtask perf [--rounds N] [--seed N] [--ours PATH] [--peer PATH] [--quick]
       cargo xtask perf protect [--help]

Compares `veracache serve` with memcached in interleaved rounds, one worker each:
server CPU per request at depth 1, 16, 64 and multiget of 100, and resident
memory per item. Ends with status 1 when a limit is missed. `perf protect` compares
the modes of protection with each other instead.

  --rounds N   rounds to run (default 5)
  --seed N     order of contenders and choice of keys (default: from the clock)
  --ours PATH  our executable (default: built from this workspace)
  --peer PATH  the memcached to compare with (default: memcached from PATH)
  --quick      tiny amounts, to see that it works; its figures mean nothing
";

/// Connections of the generator.
const CONNECTIONS: usize = 50;

/// No run takes longer than this; a round that would is not begun.
const TOTAL_SECONDS_MAX: u64 = 120;

struct Options {
    rounds: usize,
    seed: u64,
    ours: Option<PathBuf>,
    peer: PathBuf,
    quick: bool,
}

/// One kind of load whose server CPU per request is measured.
const LOADS: &[(&str, Shape)] = &[
    ("CPU per request, depth 1", Shape::Mixed { depth: 1 }),
    ("CPU per request, depth 16", Shape::Mixed { depth: 16 }),
    ("CPU per request, depth 64", Shape::Mixed { depth: 64 }),
    ("CPU per key, multiget of 100", Shape::Multiget { keys: 100 }),
];

/// Key bytes, value bytes, items, and the largest ratio that passes.
const FILLS: &[(usize, usize, u64, f64)] =
    &[(15, 32, 1_000_000, 0.65), (30, 100, 500_000, 1.0), (40, 1024, 100_000, 1.0)];

pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if let Some((first, rest)) = args.split_first()
        && first == "protect"
    {
        return protect::run(rest);
    }
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{HELP}");
        return Ok(());
    }
    let options = parse(args)?;
    let ours = match &options.ours {
        Some(path) => path.clone(),
        None => build()?,
    };
    contender::pin_this_process(1)?;
    let contenders = [
        contender("ours", vec![ours.into(), "serve".into(), "--protect".into(), "vanilla".into()]),
        contender("memcached", vec![options.peer.clone().into()]),
    ];
    println!("seed {}, {CONNECTIONS} connections, server on core 0, generator on core 1", options.seed);
    let rows = measure(&options, &contenders)?;
    let missed = report::print(&rows, &contenders.map(|contender| contender.name));
    match missed {
        0 => Ok(()),
        count if options.quick => {
            println!("{count} rows above their limit; with --quick that means nothing");
            Ok(())
        }
        count => Err(Error::Failed(format!("{count} rows are above their limit"))),
    }
}

fn parse(args: &[String]) -> Result<Options, Error> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |elapsed| elapsed.as_secs());
    let mut options = Options { rounds: 5, seed: clock, ours: None, peer: "memcached".into(), quick: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| Error::Usage(format!("perf: {arg} needs a value")));
        let number = |text: &String| {
            text.parse::<u64>().map_err(|_| Error::Usage(format!("perf: {arg} takes a number, not '{text}'")))
        };
        match arg.as_str() {
            "--rounds" => options.rounds = number(value()?)?.max(1) as usize,
            "--seed" => options.seed = number(value()?)?,
            "--ours" => options.ours = Some(value()?.into()),
            "--peer" => options.peer = value()?.into(),
            "--quick" => options.quick = true,
            _ => {
                return Err(Error::Usage(format!(
                    "perf: unknown argument '{arg}'; see `cargo xtask perf --help`"
                )));
            }
        }
    }
    Ok(options)
}

fn build() -> Result<PathBuf, Error> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--package", "veracache"])
        .status()
        .map_err(|error| Error::Failed(format!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(Error::Failed("the release build failed".into()));
    }
    Ok("target/release/veracache".into())
}

fn contender(name: &'static str, command: Vec<OsString>) -> Contender {
    Contender { name, command, cores: "0", memory_mb: 1024 }
}

fn measure(options: &Options, contenders: &[Contender; 2]) -> Result<Vec<Row>, Error> {
    let started = Instant::now();
    let mut random = Random::new(options.seed);
    let mut rows: Vec<Row> = LOADS.iter().map(|(name, _)| Row::new((*name).into(), "us", 1.0)).collect();
    rows.extend(
        FILLS
            .iter()
            .map(|(key, value, _, limit)| Row::new(format!("RSS per item, {key} + {value}"), "B", *limit)),
    );
    let mut longest = Duration::ZERO;
    for round in 0..options.rounds {
        if started.elapsed() + longest > Duration::from_secs(TOTAL_SECONDS_MAX) {
            println!("stopped after {round} of {} rounds: the time is up", options.rounds);
            break;
        }
        let round_started = Instant::now();
        let first = random.below(2) as usize;
        for which in [first, 1 - first] {
            eprint!("\rround {}/{}: {:<12}", round + 1, options.rounds, contenders[which].name);
            for (row, sample) in rows.iter_mut().zip(measure_one(options, &contenders[which], &mut random)?) {
                row.push(which, sample);
            }
        }
        longest = longest.max(round_started.elapsed());
    }
    eprintln!("\r{:<40}\r", "");
    Ok(rows)
}

/// One contender in one round: every row's figure, in the order of the rows.
fn measure_one(options: &Options, contender: &Contender, random: &mut Random) -> Result<Vec<Sample>, Error> {
    let (warm, timed, count) = match options.quick {
        true => (Duration::from_millis(20), Duration::from_millis(60), 1_000),
        false => (Duration::from_millis(250), Duration::from_millis(1_250), 100_000),
    };
    let mut samples = Vec::new();
    let server = Server::start(contender)?;
    let items = Items { count, key_bytes: 16, value_bytes: 32 };
    generator::fill(server.address, items)?;
    for (name, shape) in LOADS {
        let mut generator = Generator::connect(server.address, CONNECTIONS, *shape, items, random.next())
            .map_err(|error| Error::Failed(format!("{}: {name}: {error}", contender.name)))?;
        generator.run(Until::Elapsed(warm))?;
        let cpu_before = server.cpu()?;
        let answered = generator.run(Until::Elapsed(timed))?.answered;
        let cpu = server.cpu()? - cpu_before;
        samples.push(cpu.as_secs_f64() * 1e6 / answered as f64);
    }
    drop(server);
    for &(key_bytes, value_bytes, items, _) in FILLS {
        let count = if options.quick { items / 100 } else { items };
        let server = Server::start(contender)?;
        let before = server.resident_bytes()?;
        generator::fill(server.address, Items { count, key_bytes, value_bytes })?;
        let held = server.curr_items()?;
        if held != count {
            return Err(Error::Failed(format!("{}: holds {held} items of {count} stored", contender.name)));
        }
        samples.push((server.resident_bytes()? - before) as f64 / count as f64);
    }
    Ok(samples)
}
