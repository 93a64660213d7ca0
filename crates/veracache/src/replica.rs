//! `veracache replica`: the second copy of a server's state, which executes every command again.

use std::process::ExitCode;

use server::replica::Place;

/// What `veracache help replica` prints.
pub(crate) const HELP: &str = "\
The second copy of a server's state: executes every command again and says
whether the results agree. A server with --protect rbv starts its own; on
another machine, start one by hand and tell the server with --replica.

Usage: veracache replica [FLAGS]

Flags:
  --listen HOST:PORT   where the server calls; one at a time, and nothing is
                       asked of who calls, so let only servers reach it
                       (default: 127.0.0.1:11311)
  -m, --memory-limit MEGABYTES
                       memory limit (default: that of the server)
  --fd NUMBER          use this inherited socket, as a server's child does,
                       and end with the server
  -h, --help           print this help

Start with:
  veracache replica --listen 192.0.2.7:11311
  veracache serve --protect rbv --replica 192.0.2.7:11311
";

const LISTEN_DEFAULT: &str = "127.0.0.1:11311";

/// Runs a replica.
pub(crate) fn replica(arguments: &[String]) -> ExitCode {
    match parse(arguments) {
        Ok(None) => {
            crate::print(HELP);
            ExitCode::SUCCESS
        }
        Ok(Some((place, memory_bytes))) => match server::replica::run(&place, memory_bytes) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("veracache: replica: {error}");
                ExitCode::from(error.exit_code())
            }
        },
        Err(refusal) => {
            eprintln!("veracache: replica: {refusal}");
            ExitCode::from(server::settings::EXIT_USAGE)
        }
    }
}

/// Where and with how much memory; none when help is wanted.
fn parse(arguments: &[String]) -> Result<Option<(Place, Option<u64>)>, String> {
    let mut place = None;
    let mut memory_bytes = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
            _ => (argument.as_str(), None),
        };
        if matches!(flag, "-h" | "--help") {
            return Ok(None);
        }
        if !matches!(flag, "--listen" | "--fd" | "-m" | "--memory-limit") {
            return Err(format!("there is no flag {flag}; veracache help replica lists them"));
        }
        let value = value.or_else(|| rest.next().map(String::as_str));
        let value = value.ok_or_else(|| format!("{flag} needs an argument"))?;
        if matches!(flag, "-m" | "--memory-limit") {
            let megabytes: u64 = value.parse().map_err(|_| format!("{flag}: \"{value}\" is no number"))?;
            memory_bytes = Some(megabytes.saturating_mul(1 << 20));
            continue;
        }
        let new = if flag == "--fd" {
            Place::Inherited(value.parse().map_err(|_| format!("--fd: \"{value}\" is no descriptor"))?)
        } else {
            Place::Listen(value.to_owned())
        };
        if place.replace(new).is_some() {
            return Err("it can be in one place only; give --listen or --fd once".into());
        }
    }
    Ok(Some((place.unwrap_or_else(|| Place::Listen(LISTEN_DEFAULT.into())), memory_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Option<(Place, Option<u64>)>, &str>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(parse(&arguments), expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn flags() {
        let listen = |address: &str| Place::Listen(address.into());
        check("", Ok(Some((listen(LISTEN_DEFAULT), None))));
        check("--listen 127.0.0.1:5 -m 7", Ok(Some((listen("127.0.0.1:5"), Some(7 << 20)))));
        check("--listen=host:5 --memory-limit=7", Ok(Some((listen("host:5"), Some(7 << 20)))));
        check("--fd 3", Ok(Some((Place::Inherited(3), None))));
        check("--fd 3 --help", Ok(None));
        check("-m", Err("-m needs an argument"));
        check("-m x", Err("-m: \"x\" is no number"));
        check("--fd x", Err("--fd: \"x\" is no descriptor"));
        check("--fd 3 --listen y:1", Err("it can be in one place only; give --listen or --fd once"));
        check("--port 3", Err("there is no flag --port; veracache help replica lists them"));
    }
}
