//! `veracache integrity`: asks a server what it checked and found, and shows it as a page or as JSON.

mod answer;
mod json;
mod page;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use answer::Answer;

/// Exit code when there are disagreements or quarantined cores, as `grep` and `diff` tell what they found.
const EXIT_FOUND: u8 = 1;

/// Exit code when the server can't be asked (`EX_UNAVAILABLE` of sysexits.h).
const EXIT_UNAVAILABLE: u8 = 69;

const PORT: u16 = 11211;

/// How often `--watch` asks, unless told otherwise.
const PERIOD: Duration = Duration::from_secs(1);

/// The shortest and the longest rest between two questions that one can ask for, in seconds.
const PERIOD_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

pub(crate) const HELP: &str = "\
Shows what a running server checked, and what it found.

Usage: veracache integrity [FLAGS]

Flags:
  --addr HOST:PORT    the server; a name with a / is a Unix socket
                      (default: 127.0.0.1:11211)
  --json              one JSON object on one line: every key the server sends,
                      and \"recent\", the last disagreements, if it tells them
  --watch [SECONDS]   ask again and again (default: every second) until Ctrl-C;
                      redraws on a terminal, appends anywhere else
  -h, --help          print this help

Exit status:
   0  no disagreements; or Ctrl-C ended --watch
   1  there are disagreements, or cores in quarantine
   2  the command line can't be used
  69  the server can't be reached, or says nothing about integrity

What each key means: docs/stats.md.
";

/// Shows what the server says of integrity.
pub(crate) fn integrity(arguments: &[String]) -> ExitCode {
    match parse(arguments) {
        Ok(None) => {
            crate::print(HELP);
            ExitCode::SUCCESS
        }
        Ok(Some(Options { address, json, watch: None })) => match answer::ask(&address) {
            Ok(answer) => {
                crate::print(&shown(&address, &answer, json));
                ExitCode::from(if answer.is_clean() { 0 } else { EXIT_FOUND })
            }
            Err(problem) => unavailable(&problem),
        },
        Ok(Some(Options { address, json, watch: Some(period) })) => watch(&address, json, period),
        Err(text) => crate::refuse(&text),
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Options {
    address: Address,
    json: bool,
    watch: Option<Duration>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq)]
enum Address {
    /// Host and port, the host in brackets where it holds colons.
    Tcp(String),
    Unix(PathBuf),
}

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let is_bare_ipv6 = !text.starts_with('[') && text.matches(':').count() > 1;
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !is_bare_ipv6 && !text.ends_with(']') => (host, port.parse().ok()),
            _ => (text, Some(PORT)),
        };
        match port {
            Some(port) if port > 0 && !host.is_empty() && is_bare_ipv6 => {
                Ok(Address::Tcp(format!("[{host}]:{port}")))
            }
            Some(port) if port > 0 && !host.is_empty() => Ok(Address::Tcp(format!("{host}:{port}"))),
            _ => Err(format!("--addr takes HOST:PORT, not \"{text}\"")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The options, nothing when help is asked for, or what can't be understood.
fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options =
        Options { address: Address::Tcp(format!("127.0.0.1:{PORT}")), json: false, watch: None };
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
            _ => (argument, None),
        };
        match (flag, value) {
            ("-h" | "--help", None) => return Ok(None),
            ("--json", None) => options.json = true,
            ("--addr", value) => {
                let address = value.or_else(|| arguments.next()).ok_or("--addr takes HOST:PORT")?;
                options.address = Address::parse(address)?;
            }
            ("--watch", Some(seconds)) => options.watch = Some(period(seconds)?),
            ("--watch", None) => {
                let seconds = arguments.next_if(|next| !next.starts_with('-'));
                options.watch = Some(seconds.map_or(Ok(PERIOD), period)?);
            }
            _ => return Err(format!("integrity: there is no flag {argument}; integrity -h lists them")),
        }
    }
    Ok(Some(options))
}

fn period(seconds: &str) -> Result<Duration, String> {
    match seconds.parse() {
        Ok(number) if PERIOD_SECONDS.contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err(format!("--watch takes 0.1 to 86400 seconds, not \"{seconds}\"")),
    }
}

/// The answer as text, with its line ends.
fn shown(address: &Address, answer: &Answer, json: bool) -> String {
    if json {
        return format!("{}\n", json::object(answer));
    }
    let mut text = page::lines(address, answer).join("\n");
    text.push('\n');
    text
}

fn unavailable(problem: &answer::Problem) -> ExitCode {
    eprintln!("veracache: {problem}");
    ExitCode::from(EXIT_UNAVAILABLE)
}

/// Shows the answer time and again. A server that can't be asked at the start ends this; one that goes away later may
/// come back, so that is told once and it is asked again.
fn watch(address: &Address, json: bool, period: Duration) -> ExitCode {
    if let Err(error) = end_at_interrupt() {
        eprintln!("veracache: cannot take Ctrl-C: {error}");
        return ExitCode::from(EXIT_UNAVAILABLE);
    }
    let redraws = !json && io::stdout().is_terminal();
    let mut is_first = true;
    let mut is_told = false;
    loop {
        let began = Instant::now();
        let text = match answer::ask(address) {
            Ok(answer) if redraws => page::screen(&page::lines(address, &answer), is_first, page::size()),
            // A blank line keeps pages apart.
            Ok(answer) if !json && !is_first => format!("\n{}", shown(address, &answer, json)),
            Ok(answer) => shown(address, &answer, json),
            Err(problem) if is_first => return unavailable(&problem),
            Err(problem) => {
                if !is_told {
                    eprintln!("veracache: {problem}; asking again");
                }
                is_told = true;
                thread::sleep(period.saturating_sub(began.elapsed()));
                continue;
            }
        };
        // Whoever reads it may have seen enough, which is an end like any other.
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return ExitCode::SUCCESS;
        }
        drop(out);
        (is_first, is_told) = (false, false);
        thread::sleep(period.saturating_sub(began.elapsed()));
    }
}

/// Ctrl-C is how one leaves `--watch`, so it is no failure.
fn end_at_interrupt() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT])?;
    thread::Builder::new().name("interrupt".into()).spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(0);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn flags() {
        let tcp = |address: &str| Address::Tcp(address.into());
        for (line, address, json, watch_ms) in [
            ("", tcp("127.0.0.1:11211"), false, None),
            ("--json", tcp("127.0.0.1:11211"), true, None),
            ("--addr cache-1:7", tcp("cache-1:7"), false, None),
            ("--addr=cache-1 --json", tcp("cache-1:11211"), true, None),
            ("--addr ::1", tcp("[::1]:11211"), false, None),
            ("--addr [::1]", tcp("[::1]:11211"), false, None),
            ("--addr [::1]:7", tcp("[::1]:7"), false, None),
            ("--addr /run/cache.sock", Address::Unix("/run/cache.sock".into()), false, None),
            ("--watch", tcp("127.0.0.1:11211"), false, Some(1000)),
            ("--watch --json", tcp("127.0.0.1:11211"), true, Some(1000)),
            ("--watch 5 --json", tcp("127.0.0.1:11211"), true, Some(5000)),
            ("--watch=0.5", tcp("127.0.0.1:11211"), false, Some(500)),
        ] {
            let options = Options { address, json, watch: watch_ms.map(Duration::from_millis) };
            assert_eq!(parsed(line), Ok(Some(options)), "{line}");
        }
        for line in ["-h", "--help", "--json --help"] {
            assert_eq!(parsed(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn flags_that_cannot_be_used() {
        for (line, text) in [
            ("--addr", "--addr takes HOST:PORT"),
            ("--addr :7", "--addr takes HOST:PORT, not \":7\""),
            ("--addr=", "--addr takes HOST:PORT, not \"\""),
            ("--addr a:0", "--addr takes HOST:PORT, not \"a:0\""),
            ("--addr a:65536", "--addr takes HOST:PORT, not \"a:65536\""),
            ("--addr a:b", "--addr takes HOST:PORT, not \"a:b\""),
            ("--watch 0", "--watch takes 0.1 to 86400 seconds, not \"0\""),
            ("--watch x", "--watch takes 0.1 to 86400 seconds, not \"x\""),
            ("--watch=nan", "--watch takes 0.1 to 86400 seconds, not \"nan\""),
            ("--watch=-1", "--watch takes 0.1 to 86400 seconds, not \"-1\""),
            ("--json=1", "integrity: there is no flag --json=1; integrity -h lists them"),
            ("-x", "integrity: there is no flag -x; integrity -h lists them"),
            ("here", "integrity: there is no flag here; integrity -h lists them"),
        ] {
            assert_eq!(parsed(line), Err(text.into()), "{line}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        for line in HELP.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
