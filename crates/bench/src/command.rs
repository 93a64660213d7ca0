//! The commands of this crate: what they are called, and how one is run.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::inject;
use crate::interrupt;
use crate::report;
use crate::speed;

/// The names that [`run`] knows.
pub const NAMES: [&str; 3] = ["bench", "inject", "speed"];

#[derive(Debug, Parser)]
#[command(name = "veracache", disable_help_subcommand = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// Each has its options, and a `run` that takes them, in a module of its own.
#[derive(Debug, Subcommand)]
enum Command {
    /// Experiments, and reports on what was measured
    #[command(subcommand)]
    Bench(Experiment),
    /// The Memcache Speed Test: six phases, its own layout, true latencies beside it
    Speed(speed::Options),
    /// Make a server's instructions go wrong, and count what is noticed
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Inject(inject::Options),
}

/// The words after `bench`.
#[derive(Debug, Subcommand)]
enum Experiment {
    /// Show what was measured: a page for a browser, text, or Markdown
    Report(report::Options),
}

/// Runs one of [`NAMES`]; `arguments` begin with the name. What went wrong is said in one line on standard error.
pub fn run(arguments: &[String]) -> ExitCode {
    let name = std::iter::once("veracache".to_string());
    let has_single_dashes = arguments.first().is_some_and(|name| name == "speed");
    let dashed = |one: &String| if has_single_dashes { speed::double_dashes(one) } else { one.clone() };
    let program = match Program::try_parse_from(name.chain(arguments.iter().map(dashed))) {
        Ok(program) => program,
        Err(error) => {
            // Help is no failure; clap's own code for one is 2, as everywhere here.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match interrupt::watch().and_then(|()| dispatch(program.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("veracache: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<(), Error> {
    match command {
        Command::Bench(Experiment::Report(options)) => report::run(&options),
        Command::Speed(options) => speed::run(&options),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Command::Inject(options) => inject::run(&options),
    }
}
