//! `cargo xtask ci`: format, lints, tidy and dependencies, then the same tests as `cargo xtask test`.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::step::{self, Steps};
use crate::{test, tidy};

/// The version of cargo-deny that `deny.toml` is written for.
const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// Goes on after a failed check, so that one run tells everything.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if let Some(arg) = args.first() {
        return Err(Error::Usage(format!("ci takes no arguments, not '{arg}'")));
    }
    let mut steps = Steps::default();
    steps.check("format", || step::cargo("format", &["fmt", "--all", "--check"], &[]));
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.check("clippy", || step::cargo("clippy", &clippy, &[]));
    steps.check("tidy", || tidy::run(&[]));
    steps.check("dependencies", dependencies);
    if let Err(error) = test::run_all(&mut steps) {
        steps.check("test", || Err(error));
    }
    steps.close()
}

/// Licences, bans and sources; known vulnerabilities when their database can be reached.
fn dependencies() -> Result<(), Error> {
    let deny = cargo_deny()?;
    let rules = ["--locked", "check", "bans", "licenses", "sources"];
    let (text, succeeded, _) = step::run(&deny, "deny", &rules, &[])?;
    if !succeeded {
        return Err(Error::Failed(text));
    }
    let (text, succeeded, _) = step::run(&deny, "advisories", &["--locked", "check", "advisories"], &[])?;
    if succeeded {
        return Ok(());
    }
    if is_unreachable(&text) {
        println!("   advisories are not checked: their database can't be reached from here");
        return Ok(());
    }
    Err(Error::Failed(text))
}

/// Whether the output tells of a database that could not be fetched, and of nothing found in it.
fn is_unreachable(text: &str) -> bool {
    text.contains("failed to fetch advisory database")
}

/// The installed cargo-deny, or one of our own below the target folder; a debug build, which takes a minute less.
fn cargo_deny() -> Result<PathBuf, Error> {
    let works =
        |program: &Path| step::run(program, "deny-version", &["--version"], &[]).is_ok_and(|run| run.1);
    let tools = step::target_dir()?.join("tools");
    let own = tools.join("bin").join("cargo-deny");
    for program in [PathBuf::from("cargo-deny"), own.clone()] {
        if works(&program) {
            return Ok(program);
        }
    }
    println!("   installing {CARGO_DENY} into {}", tools.display());
    let (root, build) = (tools.display().to_string(), tools.join("build"));
    let arguments = ["install", "--debug", "--locked", "--no-default-features", "--root", &root, CARGO_DENY];
    step::cargo("install-deny", &arguments, &[("CARGO_TARGET_DIR", &build.display().to_string())])?;
    // The build is ten times the program's size, and not needed again.
    std::fs::remove_dir_all(&build).map_err(|error| format!("{}: {error}", build.display()))?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_out_of_reach_is_told_from_a_finding() {
        let unreachable = "[ERROR] failed to fetch advisory database https://example.org/db with cli";
        assert!(is_unreachable(unreachable));
        assert!(!is_unreachable("error[vulnerability]: out of bounds read\nadvisories FAILED"));
    }
}
