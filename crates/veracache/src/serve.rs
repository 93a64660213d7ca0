//! `veracache serve`: settings from the command line, then a server until it is told to stop.

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use server::settings::{Outcome, Settings};

const LICENSE: &str = "\
veracache is licensed under the Apache License 2.0 or the MIT license, at your
choice. The texts are in LICENSE-APACHE and LICENSE-MIT beside the source.
No code of memcached or libevent is part of it.
";

/// Runs a server with memcached's flags.
pub(crate) fn serve(arguments: &[String]) -> ExitCode {
    match server::settings::parse(arguments) {
        Ok(Outcome::Run(settings)) => run(*settings),
        Ok(Outcome::Help) => {
            crate::print(&server::settings::help());
            ExitCode::SUCCESS
        }
        Ok(Outcome::Version) => {
            crate::print(&format!("memcached {}\n", server::settings::MEMCACHED_VERSION));
            ExitCode::SUCCESS
        }
        Ok(Outcome::License) => {
            crate::print(LICENSE);
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            eprintln!("veracache: {refusal}");
            ExitCode::from(refusal.code)
        }
    }
}

fn run(settings: Settings) -> ExitCode {
    for warning in &settings.warnings {
        eprintln!("veracache: warning: {warning}");
    }
    if settings.user.is_none() && is_root() {
        eprintln!("veracache: warning: running as root; -u USER gives that up");
    }
    match server::run(settings) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("veracache: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether this process may do everything: its directory in /proc belongs to its effective user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}
