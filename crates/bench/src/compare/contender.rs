//! The servers that are compared: how each is named, started and found on this machine.

use std::env;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;

use crate::error::Error;
use crate::protect::system::System;
use crate::server::{self, Server};

/// A server that takes part, as it was asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Contender {
    /// As results name it.
    pub name: String,
    /// Program and arguments, with placeholders.
    words: Vec<String>,
}

/// What placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Worker threads.
    pub threads: usize,
    /// MiB for items.
    pub memory_mib: u64,
}

/// Names that need no command: program and arguments as everybody starts it, listening on loopback only.
const KNOWN: &[(&str, &str)] = &[
    ("memcached", "memcached -l 127.0.0.1 -U 0 -u root -t {threads} -m {memory}"),
    ("twemcache", "twemcache -a 127.0.0.1 -p {port} -U 0 -t {threads} -m {memory}"),
    (
        "dragonfly",
        "dragonfly --bind 127.0.0.1 --port 0 --memcached_port {port} --proactor_threads {threads} \
         --maxmemory {memory}mb --dbfilename=",
    ),
];

/// This program in its default mode of protection; beside it, the names of all modes.
const OURS: &str = "veracache";

impl Contender {
    /// This program, with flags of `veracache serve` beside those that all contenders have.
    pub fn ours(name: &str, flags: &[String]) -> Result<Self, Error> {
        let program = server::ourselves()?.to_string_lossy().into_owned();
        let base = "serve -l 127.0.0.1 -U 0 -u root -t {threads} -m {memory}";
        let base = base.split(' ').map(str::to_string);
        let words = std::iter::once(program).chain(base).chain(flags.iter().cloned()).collect();
        Ok(Contender { name: name.to_string(), words })
    }

    /// Those that are there when none is asked for: this program and every other server that is installed; and the
    /// names of those that aren't.
    pub fn installed() -> Result<(Vec<Self>, Vec<&'static str>), Error> {
        let mut found = vec![Contender::ours(OURS, &[])?];
        let mut absent = Vec::new();
        for (name, command) in KNOWN {
            match path_of(command.split(' ').next().unwrap_or(name)) {
                Some(_) => found.push(Contender::with(name, command)?),
                None => absent.push(*name),
            }
        }
        Ok((found, absent))
    }

    fn with(name: &str, command: &str) -> Result<Self, Error> {
        match shlex::split(command) {
            Some(words) if !words.is_empty() => Ok(Contender { name: name.to_string(), words }),
            Some(_) => Err(Error::Usage(format!("contender {name} has no command; write NAME=COMMAND"))),
            None => Err(Error::Usage(format!("contender {name}: a quote in its command has no end"))),
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn again(&self, name: &str) -> Self {
        Contender { name: name.to_string(), words: self.words.clone() }
    }

    /// How it is started, for people.
    pub fn command(&self, amounts: Amounts) -> String {
        self.fill(amounts, None).join(" ")
    }

    /// Whether it can be told a port only by an argument.
    fn takes_port(&self) -> bool {
        self.words.iter().any(|word| word.contains("{port}"))
    }

    fn fill(&self, amounts: Amounts, port: Option<u16>) -> Vec<String> {
        let fill = |word: &String| {
            let word = word.replace("{threads}", &amounts.threads.to_string());
            let word = word.replace("{memory}", &amounts.memory_mib.to_string());
            match port {
                Some(port) => word.replace("{port}", &port.to_string()),
                None => word,
            }
        };
        self.words.iter().map(fill).collect()
    }

    /// Whether its program can be run, before anything is measured.
    pub fn check(&self) -> Result<(), Error> {
        let program = &self.words[0];
        match path_of(program) {
            Some(_) => Ok(()),
            None => Err(Error::Unavailable(format!(
                "{}: there is no program {program}; install it or name another with NAME=COMMAND",
                self.name
            ))),
        }
    }

    /// A fresh server.
    pub fn start(&self, amounts: Amounts) -> Result<Server, Error> {
        let started = if self.takes_port() {
            // Nobody can keep it for the server; one that loses it ends at its start, which is said.
            let port = free_port()?;
            let words = self.fill(amounts, Some(port));
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Server::start_at(Path::new(&words[0]), &words[1..], address)
        } else {
            let words = self.fill(amounts, None);
            Server::start(Path::new(&words[0]), &words[1..])
        };
        started.map_err(|error| match error {
            Error::Unavailable(text) => Error::Unavailable(format!("{}: {text}", self.name)),
            other => other,
        })
    }
}

impl FromStr for Contender {
    type Err = String;

    /// `NAME=COMMAND`, or one of the names that need no command.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, command)) = text.split_once('=').filter(|(name, _)| !name.contains(' ')) {
            if name.is_empty() {
                return Err("a contender needs a name; write NAME=COMMAND".to_string());
            }
            return Contender::with(name, command).map_err(|error| error.to_string());
        }
        let ours = match System::from_str(text, false) {
            Ok(system) => Some(system.flags("auto", 2)),
            Err(_) => (text == OURS).then(Vec::new),
        };
        if let Some(flags) = ours {
            return Contender::ours(text, &flags).map_err(|error| error.to_string());
        }
        let known = KNOWN.iter().find(|(name, _)| *name == text);
        let (name, command) = known.ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            let modes: Vec<&str> = System::ALL.iter().map(|system| system.name()).collect();
            format!(
                "'{text}' is not known; write NAME=COMMAND, or one of {OURS}, {}, {}",
                modes.join(", "),
                names.join(", ")
            )
        })?;
        Contender::with(name, command).map_err(|error| error.to_string())
    }
}

/// Where a program is, as a shell finds it.
fn path_of(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn free_port() -> Result<u16, Error> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("looking for a free port"))?;
    Ok(listener.local_addr().map_err(Error::io("looking for a free port"))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNTS: Amounts = Amounts { threads: 3, memory_mib: 64 };

    #[test]
    fn commands_are_filled_in() {
        let check = |text: &str, name: &str, command: &str| {
            let contender: Contender = text.parse().expect(text);
            assert_eq!(contender.name, name);
            assert_eq!(contender.command(AMOUNTS), command);
        };
        check("a=prog -t {threads} -m{memory}", "a", "prog -t 3 -m64");
        check("b=prog --opt='x y'", "b", "prog --opt=x y");
        check("memcached", "memcached", "memcached -l 127.0.0.1 -U 0 -u root -t 3 -m 64");
        let ours: Contender = "orthrus-sync".parse().expect("a mode");
        assert!(ours.command(AMOUNTS).ends_with("-t 3 -m 64 --protect orthrus --protect-sync"));
        let ours: Contender = "veracache".parse().expect("ours");
        assert!(ours.command(AMOUNTS).ends_with(" serve -l 127.0.0.1 -U 0 -u root -t 3 -m 64"));
        let given: Contender = "c=prog --port={port}".parse().expect("a port");
        assert!(given.takes_port());
        assert_eq!(given.fill(AMOUNTS, Some(7)), ["prog", "--port=7"]);
    }

    #[test]
    fn what_is_no_contender() {
        for text in ["", "=x", "a=", "a=  ", "a=b 'c", "redis", "a b"] {
            assert!(text.parse::<Contender>().is_err(), "{text:?}");
        }
        let absent: Contender = "x=/nonexistent/program".parse().expect("a command");
        assert_eq!(absent.check().expect_err("it isn't there").exit_code(), 69);
        let empty: Contender = "x=true".parse().expect("a command");
        assert!(empty.check().is_ok());
        let error = empty.start(AMOUNTS).expect_err("it ends at once").to_string();
        assert!(error.starts_with("x: true ended at its start"), "{error}");
    }
}
