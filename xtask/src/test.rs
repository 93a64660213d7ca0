//! `cargo xtask test`: everything there is to test, in one run with one closing line.

use crate::error::Error;
use crate::peers;
use crate::setup;
use crate::soak;
use crate::step::{self, Count, Steps};

const HELP: &str = "\
Usage: cargo xtask test [--no-peers] [--only STEP]

Installs what the tests need (or names it), then runs every step:

  workspace  cargo test --workspace, and over the wire once more in each mode
  loom       every interleaving of the concurrent parts, as far as bounded
  build      the release executable
  soak       some hundred thousand commands in every mode, every reply compared
  inject     instructions of that executable go wrong, which has to be noticed
  peers      software nobody here wrote, against that executable, in four modes

  --no-peers   leave out the last four steps and their packages
  --only STEP  run this step alone (its packages must be installed)
";

/// The crates that have loom models; their tests with `loom` in the name run in them.
const LOOM_PACKAGES: [&str; 2] = ["veracache-guard", "veracache-store"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Setup,
    Workspace,
    Loom,
    Build,
    Soak,
    Inject,
    Peers,
}

const ALL: [(&str, Step); 7] = [
    ("setup", Step::Setup),
    ("workspace", Step::Workspace),
    ("loom", Step::Loom),
    ("build", Step::Build),
    ("soak", Step::Soak),
    ("inject", Step::Inject),
    ("peers", Step::Peers),
];

/// Runs the steps asked for, all of them by default.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if matches!(args, [arg] if arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let wanted = parse(args)?;
    let mut steps = Steps::default();
    run_steps(&wanted, &mut steps)?;
    steps.close()
}

/// Every step, for `cargo xtask ci`.
pub(crate) fn run_all(steps: &mut Steps) -> Result<(), Error> {
    run_steps(&ALL.map(|(_, step)| step), steps)
}

fn parse(args: &[String]) -> Result<Vec<Step>, Error> {
    let mut wanted: Vec<Step> = ALL.iter().map(|(_, step)| *step).collect();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--no-peers" => wanted.retain(|step| matches!(step, Step::Workspace | Step::Loom)),
            "--only" => {
                let name = args.next().ok_or_else(|| Error::Usage("--only wants a step".to_string()))?;
                let found = ALL.iter().find(|(step, _)| step == name);
                let names = ALL.map(|(step, _)| step).join(", ");
                let unknown = || Error::Usage(format!("there is no step '{name}'; there are {names}"));
                wanted = vec![found.ok_or_else(unknown)?.1];
            }
            _ => return Err(Error::Usage(format!("test does not know '{arg}'"))),
        }
    }
    Ok(wanted)
}

/// Only a failed setup ends the run: what it should have brought is missing everywhere.
fn run_steps(wanted: &[Step], steps: &mut Steps) -> Result<(), Error> {
    let mut is_built = true;
    for step in wanted {
        match step {
            Step::Setup => setup::run(&[])?,
            Step::Workspace => {
                steps.count("workspace", || step::cargo_test("workspace", &WORKSPACE, &[]));
                for mode in MODES {
                    let environment = [("VERACACHE_PROTECT", mode)];
                    let name = format!("server-{mode}");
                    steps
                        .count(&format!("server: {mode}"), || step::cargo_test(&name, &SERVER, &environment));
                }
            }
            Step::Loom => {
                for package in LOOM_PACKAGES {
                    steps.count(&format!("loom: {package}"), || loom(package));
                }
            }
            Step::Build => is_built = steps.check("build", || step::cargo("build", &BUILD, &[])),
            // Without a build there may be an older executable: its results would speak of other code.
            Step::Peers if is_built => run_peers(steps)?,
            Step::Soak if is_built => {
                soak::run_short(&step::target_dir()?.join("release").join("veracache"), steps);
            }
            Step::Inject if is_built => {
                steps.check("inject", inject);
            }
            Step::Soak | Step::Inject | Step::Peers => {
                steps.check("an executable", || {
                    Err(Error::Failed("there is no executable to test".to_string()))
                });
            }
        }
    }
    Ok(())
}

const WORKSPACE: [&str; 3] = ["test", "--workspace", "--no-fail-fast"];
/// The server's tests over the wire are run once more in each of these; its unit tests choose their modes themselves.
const MODES: [&str; 5] = ["sei", "orthrus", "orthrus-sync", "rbv", "rbv-sync"];
/// All peers are run in each of these, and find that the server has ended if executions ever disagree.
const PEER_MODES: [(&str, &[&str]); 4] = [
    ("vanilla", &["--protect", "vanilla"]),
    ("orthrus", &["--protect", "orthrus", "--validate-share", "1", "--on-corruption", "exit"]),
    ("orthrus-sync", &["--protect", "orthrus", "--protect-sync", "--on-corruption", "exit"]),
    ("rbv", &["--protect", "rbv", "--on-corruption", "exit"]),
];
const SERVER: [&str; 6] = ["test", "--package", "veracache-server", "--no-fail-fast", "--test", "*"];
const BUILD: [&str; 4] = ["build", "--release", "--package", "veracache"];

/// A small campaign, of about half a minute. It fails when a fault that is known comes to something else, when something
/// is noticed without a fault, when nothing escapes without a detector, and when too much escapes with one. How many
/// faults matter differs from run to run, as keys are hashed with another seed each time, so the limit is far below what
/// long campaigns find (docs/design/0005-escapes.md); a detector that is off finds next to nothing.
const INJECT: &str = "inject --modes vanilla,orthrus --injections 400 --seed 3 --lasting transient \
                      --quiet-operations 400000 --least-coverage 40";

fn inject() -> Result<(), Error> {
    let executable = step::target_dir()?.join("release").join("veracache");
    let arguments: Vec<&str> = INJECT.split_whitespace().collect();
    let (text, succeeded, log) = step::run(&executable, "inject", &arguments, &[])?;
    if succeeded { Ok(()) } else { Err(Error::Failed(format!("{text}\nsee {}", log.display()))) }
}

/// In a target folder of its own: `--cfg loom` changes every crate.
fn loom(package: &str) -> Result<(usize, usize), Error> {
    let target = step::target_dir()?.join("loom").display().to_string();
    let environment = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", target.as_str())];
    let arguments = ["test", "--package", package, "--lib", "--no-fail-fast", "loom"];
    step::cargo_test(&format!("loom-{package}"), &arguments, &environment)
}

fn run_peers(steps: &mut Steps) -> Result<(), Error> {
    let executable = step::target_dir()?.join("release").join("veracache");
    for (mode, arguments) in PEER_MODES {
        println!("== peers, {mode}");
        let mut server = vec![executable.display().to_string(), "serve".to_string()];
        server.extend(arguments.iter().map(ToString::to_string));
        for count in peers::run(&server, &[])? {
            let name = format!("peers, {mode}: {}", count.name);
            steps.add(Count { name, passed: count.passed, failed: count.failed, took: count.took });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Vec<Step>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_choose_the_steps() {
        for (line, steps) in [
            ("", ALL.map(|(_, step)| step).to_vec()),
            ("--no-peers", vec![Step::Workspace, Step::Loom]),
            ("--only loom", vec![Step::Loom]),
        ] {
            assert_eq!(parse_words(line), Ok(steps), "{line}");
        }
    }

    #[test]
    fn nonsense_is_said_in_one_line() {
        for (line, message) in [
            ("--only", "--only wants a step"),
            (
                "--only all",
                "there is no step 'all'; there are setup, workspace, loom, build, soak, inject, peers",
            ),
            ("fast", "test does not know 'fast'"),
        ] {
            assert_eq!(parse_words(line), Err(message.to_string()));
        }
    }

    #[test]
    fn help_fits_80_columns() {
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
    }
}
