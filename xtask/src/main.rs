//! Setup, test, ci, tidy, peers, simulate, soak and perf for this workspace.

mod ci;
mod error;
mod peers;
mod perf;
mod random;
mod setup;
mod simulate;
mod soak;
mod step;
mod test;
mod tidy;

use std::process::ExitCode;

use error::Error;

/// One subcommand: a line in the help and the function behind it.
struct Command {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<(), Error>,
}

/// Every subcommand there is, in the order the help shows them.
const COMMANDS: &[Command] = &[
    command("setup", "Install the Debian packages the tests need, or name them", setup::run),
    command("test", "Set up, then run every test there is, real peers included", test::run),
    command("ci", "Check format, lints, tidy and dependencies, then test", ci::run),
    command("peers", "Run clients and test suites that nobody here wrote", peers::command),
    command("perf", "Measure CPU per request and memory per item against memcached", perf::run),
    command("simulate", "Compare segments, eviction and placement with slab classes", simulate::run),
    command("soak", "Execute many commands in every mode, and compare every reply", soak::run),
    command("tidy", "Check crate edges, lengths, unsafe files, dead files, paths, words", tidy::run),
];

const fn command(name: &'static str, help: &'static str, run: fn(&[String]) -> Result<(), Error>) -> Command {
    Command { name, help, run }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::Reported) {
                eprintln!("xtask: {error}");
            }
            ExitCode::from(error.exit_status())
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Error> {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", help());
        return Ok(());
    };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        print!("{}", help());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => Err(Error::Usage(format!("there is no '{name}' command; `cargo xtask` lists them"))),
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask COMMAND [ARGUMENT...]\n\nCommands:\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:<10}{}\n", command.name, command.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        for line in help().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn an_unknown_command_is_a_usage_error() {
        let error = dispatch(&["frobnicate".to_string()]).expect_err("no such command");
        assert_eq!(error.exit_status(), 2);
        assert_eq!(error.to_string(), "there is no 'frobnicate' command; `cargo xtask` lists them");
    }
}
