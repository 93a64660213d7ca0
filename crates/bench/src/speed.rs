//! `veracache speed`: the Memcache Speed Test, as `cmd/speed` of the memcache library by pior does it.
//!
//! Phases, keys, values, layout and units are upstream's. What it prints as average latency is one over the
//! throughput; what single operations took is measured, too, and stands below.

pub(crate) mod connection;
pub(crate) mod layout;
pub(crate) mod measure;
mod phases;
mod results;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use clap::Args;
use protocol::reply::Reply;

use crate::error::Error;
use crate::interrupt;
use crate::record::{Contender, Log, Record};
use crate::server::Server;
use crate::speed::connection::{Address, Connection, Failure};
use crate::speed::measure::Crew;

pub use crate::speed::layout::Format;
pub use crate::speed::phases::{Preset, Protocol};
pub use crate::speed::results::{Latency, PhaseResult, Results};

/// Workers at most: each has a thread and a connection.
const WORKERS_MAX: u64 = 1024;

/// Operations of a phase at most.
const OPERATIONS_MAX: u64 = 10_000_000_000;

/// What `veracache speed` takes. Upstream's options may have one dash, as there.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Server, as HOST:PORT; without it, one is started and ended again
    #[arg(long, value_name = "HOST:PORT")]
    pub addr: Option<String>,
    /// Workers, each with one request at a time (1 to 1024)
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX))]
    pub concurrency: u64,
    /// Operations per phase, all workers together
    #[arg(long, default_value_t = 1_000_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=OPERATIONS_MAX))]
    pub count: u64,
    /// How requests are written
    #[arg(long, default_value = "meta")]
    pub protocol: Protocol,
    /// Which phases
    #[arg(long, default_value = "speed")]
    pub preset: Preset,
    /// Upstream's text, byte for byte, and no more
    #[arg(long)]
    pub classic: bool,
    /// How results are written
    #[arg(long, default_value = "text")]
    pub format: Format,
    /// Adds the record of the run to this file, as one line of JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What the random part of the keys follows from; random without it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Upstream's way of writing options, `-addr`, as the one we have for all commands: `--addr`.
pub fn double_dashes(argument: &str) -> String {
    match argument.strip_prefix('-') {
        Some(name) if name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            format!("-{argument}")
        }
        _ => argument.to_string(),
    }
}

/// A number nobody has foreseen.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Writes to standard output. Whoever reads it may stop early, which is no failure; a full disk is one.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Io("standard output".to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Runs it. An error comes after what was measured until then was shown and kept.
pub fn run(options: &Options) -> Result<(), Error> {
    let workers = usize::try_from(options.concurrency).unwrap_or(usize::MAX);
    if options.count < options.concurrency {
        let (count, workers) = (options.count, options.concurrency);
        let text =
            format!("--count {count} leaves some of {workers} workers without work; take --count {workers}");
        return Err(Error::Usage(text));
    }
    if options.classic && options.format != Format::Text {
        return Err(Error::Usage("--classic is a layout of text; leave out --format".to_string()));
    }
    let seed = options.seed.unwrap_or_else(random_seed);
    let mut log = options.output.as_deref().map(Log::open).transpose()?;
    let mut server = None;
    let address = match &options.addr {
        Some(text) => Address::parse(text)?,
        None => Address::from(start(&mut server, &["-m", "1024"], options.concurrency)?),
    };
    let version = greet(&address, options.protocol)?;
    let mut record = Record::begin("speed", seed);
    let command =
        server.as_ref().map_or(address.to_string(), |_| "veracache serve, started for this".to_string());
    record.environment.servers.push(Contender { name: address.to_string(), command, version });
    let mut results = Results {
        preset: value_name(options.preset),
        protocol: value_name(options.protocol),
        server: address.to_string(),
        concurrency: workers,
        count: options.count,
        uid: seed % options.preset.uids(),
        phases: Vec::new(),
        shown: Default::default(),
    };
    let ended = measure_all(options, &address, &mut results);
    let ended = ended.map_err(|error| explain(error, server.as_mut()));
    results.draw();
    record.incomplete = ended.as_ref().err().map(ToString::to_string);
    record.limited_by = Some("lock-step".to_string());
    record.gates = results.gates();
    record.results = serde_json::to_value(&results).expect("results have string keys and finite numbers");
    let shown = show(options, &results, &record);
    let kept = log.as_mut().map_or(Ok(()), |log| log.append(&record));
    ended.and(kept).and(shown).and_then(|()| judge(&results))
}

/// Starts a server with room for that many connections, and says so.
pub(crate) fn start(
    server: &mut Option<Server>,
    flags: &[&str],
    connections: u64,
) -> Result<std::net::SocketAddr, Error> {
    let connections = (connections + 64).to_string();
    let flags: Vec<&str> = flags.iter().copied().chain(["-c", &connections]).collect();
    let started = Server::embedded(&flags)?;
    let address = started.address();
    let line =
        format!("No --addr: measuring a server of our own on {address}, started with {}\n", flags.join(" "));
    let _ = io::stderr().write_all(line.as_bytes());
    *server = Some(started);
    Ok(address)
}

/// If a server of ours went away, what it said.
pub(crate) fn explain(error: Error, server: Option<&mut Server>) -> Error {
    match (error, server.and_then(Server::ended)) {
        (Error::Unavailable(text), Some(how)) => Error::Unavailable(format!("{text}; it ended with {how}")),
        (error, _) => error,
    }
}

fn value_name(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Asks for the version before anything is measured, so that a wrong port is one line and no table.
pub(crate) fn greet(address: &Address, protocol: Protocol) -> Result<String, Error> {
    let about = |failure: Failure| failure.about(address, "memcached");
    let mut connection = Connection::open(address).map_err(about)?;
    connection.send(b"version\r\n").map_err(about)?;
    let version = connection.reply(|reply| match reply {
        Reply::Version(version) => Ok(String::from_utf8_lossy(version).into_owned()),
        other => Err(phases::said(other)),
    });
    let version = version.map_err(about)?.map_err(|text| {
        Error::Wrong(format!("{address} does not tell its version but \"{text}\"; check the port"))
    })?;
    if protocol == Protocol::Meta {
        connection.send(b"mn\r\n").map_err(about)?;
        let knows = connection.reply(|reply| matches!(reply, Reply::MetaNoop)).map_err(about)?;
        if !knows {
            let text = format!("{address} ({version}) does not know meta commands; take --protocol text");
            return Err(Error::Wrong(text));
        }
    }
    Ok(version)
}

fn measure_all(options: &Options, address: &Address, results: &mut Results) -> Result<(), Error> {
    let crew = Crew {
        address,
        protocol: options.protocol,
        workers: results.concurrency,
        operations: options.count / options.concurrency,
        uid: results.uid,
    };
    let is_text = options.format == Format::Text;
    let say = |text: String| if is_text { print(&text) } else { Ok(()) };
    say(layout::head(&results.server, crew.workers, options.count))?;
    let mut connections: Vec<Option<Connection>> = (0..crew.workers).map(|_| None).collect();
    for phase in options.preset.phases() {
        if interrupt::is_requested() {
            return Err(Error::Interrupted);
        }
        say(layout::running(&phase, options.count))?;
        let (measured, ended) = measure::phase(crew, phase, &mut connections);
        let divisor = match options.preset {
            Preset::Speed => measured.count,
            Preset::CmdBench => measured.count / options.concurrency,
        };
        if measured.count > 0 {
            results.phases.push(PhaseResult::new(&phase, &measured, divisor));
            say(layout::completed(&results.phases[results.phases.len() - 1]))?;
        }
        ended?;
    }
    Ok(())
}

fn show(options: &Options, results: &Results, record: &Record) -> Result<(), Error> {
    let incomplete = record.incomplete.as_deref();
    match options.format {
        Format::Text => {
            let mut text = layout::summary(options.preset, &results.phases);
            if !options.classic {
                text.push_str(&layout::latencies(&results.phases));
                text.push_str(&layout::flaws(&results.phases));
            }
            if let Some(why) = incomplete {
                text.push_str(&format!("\nIncomplete: {why}\n"));
            }
            print(&text)
        }
        Format::Json => print(&(serde_json::to_string(record).expect("as above") + "\n")),
        Format::Csv => print(&layout::csv(results)),
        Format::Md => print(&layout::markdown(results, incomplete)),
    }
}

/// Errors are not passed over in silence, in no layout: whoever only reads a table takes them for speed.
fn judge(results: &Results) -> Result<(), Error> {
    let flawed = results.phases.iter().filter(|phase| phase.errors + phase.wrong > 0);
    let flaws = layout::flaws(&flawed.cloned().collect::<Vec<_>>());
    if flaws.is_empty() { Ok(()) } else { Err(Error::Wrong(flaws.trim_end().replace('\n', " | "))) }
}
