//! The `veracache` command-line program.

mod integrity;
mod replica;
mod serve;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Exit code for a command that does not exist. `serve` has memcached's codes for everything else.
const EXIT_NO_COMMAND: u8 = 2;

const HELP: &str = "\
A memcached-compatible cache server that checks its own answers.

Usage: veracache COMMAND [FLAGS]

Commands:
  serve       run a server; takes memcached's flags (serve -h lists them)
  bench       measure in experiments, and report on what was measured
  speed       run the Memcache Speed Test
  integrity   show what a running server checked, and what it found
  inject      make a server's instructions go wrong, and count what is noticed
  replica     be the second copy of a server's state
  help        print this help; help COMMAND prints that command's flags
  version     print the version

Start with:
  veracache serve                         port 11211, 64 MB, every interface
  veracache serve -m 1024 -l 127.0.0.1    1 GB, for this machine only

Called by the name memcached, for instance through a link, it acts as serve.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = match arguments.map(OsString::into_string).collect() {
        Ok(arguments) => arguments,
        Err(argument) => {
            eprintln!("veracache: {} is not UTF-8; use names that are", argument.display());
            return ExitCode::from(server::settings::EXIT_USAGE);
        }
    };
    if Path::new(&name).file_name().is_some_and(|name| name == "memcached") {
        return serve::serve(&arguments);
    }
    let Some((command, rest)) = arguments.split_first() else {
        print(HELP);
        return ExitCode::SUCCESS;
    };
    match command.as_str() {
        "serve" => serve::serve(rest),
        "replica" => replica::replica(rest),
        "integrity" => integrity::integrity(rest),
        name if bench::command::NAMES.contains(&name) => bench::command::run(&arguments),
        "help" | "-h" | "--help" => help(rest),
        "version" | "-V" | "--version" => {
            print(&format!("{}\n", version()));
            ExitCode::SUCCESS
        }
        flag if flag.starts_with('-') => {
            refuse(&format!("{flag} is no command; to run a server: veracache serve {}", arguments.join(" ")))
        }
        other => refuse(&format!("there is no command \"{other}\"; veracache help lists them")),
    }
}

fn help(about: &[String]) -> ExitCode {
    match about.first().map(String::as_str) {
        None | Some("help" | "version") => print(HELP),
        Some("serve") => print(&server::settings::help()),
        Some("replica") => print(replica::HELP),
        Some("integrity") => print(integrity::HELP),
        Some(name) if bench::command::NAMES.contains(&name) => {
            let help = about.iter().cloned().chain(["--help".to_string()]);
            return bench::command::run(&help.collect::<Vec<_>>());
        }
        Some(other) => {
            return refuse(&format!("there is no command \"{other}\"; veracache help lists them"));
        }
    }
    ExitCode::SUCCESS
}

fn version() -> String {
    format!(
        "veracache {} (speaks as memcached {})",
        env!("CARGO_PKG_VERSION"),
        server::settings::MEMCACHED_VERSION
    )
}

fn refuse(text: &str) -> ExitCode {
    eprintln!("veracache: {text}");
    ExitCode::from(EXIT_NO_COMMAND)
}

/// Writes to standard output. Whoever reads it may stop early (`| head -1`), which is no failure.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
