//! `cargo xtask soak`: many commands in every mode of execution, every reply compared with what it has to be.
//!
//! What must hold in the end: no reply was wrong, and no executions disagreed. The machine under it may still be sick, so
//! a disagreement is a reason to look, not proof of a bug; see `docs/design/` on verdicts.

mod client;
mod model;
mod server;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::step::{self, Steps};
use client::{Client, Habits, Tally};
use server::Server;

const USAGE: &str = "\
Usage: cargo xtask soak [--mode MODE] [--operations N] [--seed N]
                        [--server PATH]

Starts the release executable in every mode, first with little memory and then
with plenty, and compares every reply with what it has to be. Ends with an
error if one was wrong, or if executions disagreed.

  --mode MODE      vanilla, sei, orthrus, orthrus-sync, rbv, rbv-sync or all
  --operations N   commands in each mode, as 20000000 or 2e7; 1e7 by default
  --seed N         repeats a run, as far as threads can be repeated
  --server PATH    an executable that is there already; else one is built
";

/// A mode, as it is named here and as the server is told.
const MODES: [(&str, &[&str]); 6] = [
    ("vanilla", &["--protect", "vanilla"]),
    ("sei", &["--protect", "sei"]),
    ("orthrus", &["--protect", "orthrus", "--validate-share", "1"]),
    ("orthrus-sync", &["--protect", "orthrus", "--protect-sync"]),
    ("rbv", &["--protect", "rbv", "--validate-share", "1"]),
    ("rbv-sync", &["--protect", "rbv", "--protect-sync"]),
];

/// The memory of a server in MiB: so little that it evicts all the time, and so much that it never does; then it is not
/// told to forget everything, either, and has to have all of it.
const MEMORY: [(&str, &str, bool); 2] = [("little", "6", true), ("plenty", "512", false)];

/// Threads that ask, and connections of each.
const THREADS: u64 = 2;
const CONNECTIONS: u64 = 4;

/// Commands in each mode when it is a part of all tests: some seconds.
const OPERATIONS_SHORT: u64 = 200_000;

struct Options {
    modes: Vec<(&'static str, &'static [&'static str])>,
    operations: u64,
    seed: u64,
    server: Option<PathBuf>,
}

/// Builds the release executable if none is given, and soaks it as asked for.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if matches!(args, [arg] if arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return Ok(());
    }
    let Options { modes, operations, seed, server } = parse(args)?;
    let executable = match server {
        Some(server) => server,
        None => {
            step::cargo("build", &["build", "--release", "--package", "veracache"], &[])?;
            step::target_dir()?.join("release").join("veracache")
        }
    };
    for (name, flags) in modes {
        soak(&executable, name, flags, operations, seed)?;
    }
    Ok(())
}

/// A short one of each mode, as steps of all tests.
pub(crate) fn run_short(executable: &Path, steps: &mut Steps) {
    for (name, flags) in MODES {
        steps.check(&format!("soak: {name}"), || {
            soak(executable, name, flags, OPERATIONS_SHORT, seed_of_the_clock())
        });
    }
}

fn parse(args: &[String]) -> Result<Options, Error> {
    let seed = seed_of_the_clock();
    let mut options = Options { modes: MODES.to_vec(), operations: 10_000_000, seed, server: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| Error::Usage(format!("{arg} wants a value")));
        match arg.as_str() {
            "--mode" => {
                let name = value()?;
                options.modes.retain(|(mode, _)| name == "all" || mode == name);
                if options.modes.is_empty() {
                    let names = MODES.map(|(mode, _)| mode).join(", ");
                    return Err(Error::Usage(format!("there is no mode '{name}'; there are {names}, all")));
                }
            }
            "--operations" => options.operations = count(value()?)?,
            "--seed" => {
                options.seed = value()?
                    .parse()
                    .map_err(|error| Error::Usage(format!("--seed wants a number: {error}")))?;
            }
            "--server" => options.server = Some(PathBuf::from(value()?)),
            _ => return Err(Error::Usage(format!("soak does not know '{arg}'"))),
        }
    }
    Ok(options)
}

/// A count, as digits or as a power of ten.
fn count(text: &str) -> Result<u64, Error> {
    let refused = || Error::Usage(format!("--operations wants a number up to 1e15, not '{text}'"));
    let number: f64 = text.parse().map_err(|_| refused())?;
    if (1.0..=1e15).contains(&number) { Ok(number as u64) } else { Err(refused()) }
}

fn seed_of_the_clock() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(1, |elapsed| elapsed.as_nanos() as u64)
}

/// One mode, with little memory and with plenty.
fn soak(executable: &Path, mode: &str, flags: &[&str], operations: u64, seed: u64) -> Result<(), Error> {
    println!("   {mode}: {operations} operations, seed {seed}");
    for (memory, megabytes, flushes) in MEMORY {
        let server = Server::start(executable, &[flags, &["-m", megabytes]].concat())?;
        let name = format!("{mode}, {memory} memory");
        let operations = operations / MEMORY.len() as u64;
        let habits = Habits { flushes, is_denied: mode.ends_with("-sync") };
        let mut result = load(&server, &name, operations, seed, habits);
        if result.is_ok() {
            result = server.check(mode).and(result);
        }
        let account = server.account().unwrap_or_default();
        let said = server.stop();
        let told = result.as_ref().map_or_else(|_| "something was wrong".to_string(), Tally::to_string);
        println!("   {name}: {told}{account}");
        let tally = result?;
        said?;
        if !flushes && tally.forgotten + tally.unconfirmed > 0 {
            return Err(Error::Failed(format!("{name}: there was no reason to forget anything")));
        }
    }
    Ok(())
}

/// All clients' commands; what came of them.
fn load(server: &Server, name: &str, operations: u64, seed: u64, habits: Habits) -> Result<Tally, Error> {
    let done = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, is_over) = (&done, &is_over);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let result = ask(server, thread, operations / THREADS, (seed, habits), done, is_over);
                    // Where one has found something wrong, the others need not go on.
                    is_over.fetch_or(result.is_err(), Relaxed);
                    result
                })
            })
            .collect();
        progress(name, operations, done, || threads.iter().all(thread::ScopedJoinHandle::is_finished));
        let mut total = Tally::default();
        for thread in threads {
            let result = thread.join().unwrap_or_else(|_| Err(Error::Failed("a client panicked".into())));
            total.add(&result.map_err(|error| Error::Failed(format!("{name}, seed {seed}: {error}")))?);
        }
        Ok(total)
    })
}

/// The part of one thread: sends on all its connections, then reads from all of them.
fn ask(
    server: &Server,
    thread: u64,
    operations: u64,
    (seed, habits): (u64, Habits),
    done: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<Tally, Error> {
    let mut clients = Vec::new();
    for number in thread * CONNECTIONS..(thread + 1) * CONNECTIONS {
        clients.push(Client::connect(server.address(), number, seed, habits)?);
    }
    let mut count = 0;
    while count < operations && !is_over.load(Relaxed) {
        for client in &mut clients {
            client.send()?;
        }
        let mut answered = 0;
        for client in &mut clients {
            answered += client.receive()?;
        }
        count += answered;
        done.fetch_add(answered, Relaxed);
    }
    let mut total = Tally::default();
    clients.iter().for_each(|client| total.add(client.tally()));
    Ok(total)
}

/// Says every few seconds how far it is, until it is over.
fn progress(name: &str, operations: u64, done: &AtomicU64, is_over: impl Fn() -> bool) {
    const EVERY: Duration = Duration::from_secs(5);
    let began = Instant::now();
    let mut told = began;
    while !is_over() {
        thread::sleep(Duration::from_millis(20));
        if told.elapsed() >= EVERY {
            told = Instant::now();
            let count = done.load(Relaxed);
            let rate = count as f64 / began.elapsed().as_secs_f64() / 1000.0;
            let percent = count as f64 * 100.0 / operations.max(1) as f64;
            eprintln!("   {name}: {percent:.1} %, {rate:.0} thousand operations a second");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_read_or_refused_in_one_line() {
        let options = parse_words("--mode sei --operations 2e5 --seed 7 --server x").expect("valid");
        assert_eq!((options.modes.len(), options.operations, options.seed), (1, 200_000, 7));
        assert_eq!(options.server.as_deref(), Some(Path::new("x")));
        assert_eq!(parse_words("--mode all").expect("valid").modes.len(), MODES.len());
        for bad in
            ["--mode", "--mode none", "--operations 0", "--operations x", "--seed x", "--server", "--fast"]
        {
            let Err(message) = parse_words(bad) else { panic!("'{bad}' was accepted") };
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn help_fits_80_columns() {
        assert!(USAGE.lines().all(|line| line.chars().count() <= 80));
    }
}
