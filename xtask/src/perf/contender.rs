//! A server under measurement: started on a free port of the loopback, pinned, asked for its statistics, and ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::system::{self, Process, unreadable};
use crate::error::Error;

/// How long a server may take to listen, to answer for its statistics, or to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that takes memcached's flags.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) command: Vec<OsString>,
    /// The cores it may run on, as `taskset` takes them. The processes it starts inherit them.
    pub(super) cores: &'static str,
    pub(super) memory_mb: u32,
}

/// A running server; it is ended when this is dropped, and so are the processes it started.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
}

/// Pins this process, and with it the generator, to one core.
pub(super) fn pin_this_process(core: usize) -> Result<(), Error> {
    let status = Command::new("taskset")
        .args(["-cp", &core.to_string(), &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Error::Failed(format!("cannot pin to core {core}: two cores and taskset are needed"))),
    }
}

impl Contender {
    /// Starts a server and ends it; if it ends by itself with a status, as one that refuses its flags does, its last
    /// words are returned.
    pub(super) fn refusal(&self) -> Result<Option<String>, Error> {
        match self.start(Stdio::piped()) {
            Ok(_) => Ok(None),
            Err(Start::Refused(words)) => Ok(Some(words)),
            Err(Start::Failed(error)) => Err(error),
        }
    }

    fn start(&self, stderr: Stdio) -> Result<Server, Start> {
        let port = free_port()?;
        let child = Command::new("taskset")
            .args(["-c", self.cores])
            .args(&self.command)
            .args(["-t", "1", "-m", &self.memory_mb.to_string(), "-U", "0", "-l", "127.0.0.1", "-u", "root"])
            .args(["-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| Error::Failed(format!("cannot start {}: {error}", self.name)))?;
        let mut server = Server { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(server.address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                if status.code().is_some() {
                    return Err(Start::Refused(server.last_words()));
                }
                return Err(Error::Failed(format!("{} ended at start: {status}", self.name)).into());
            }
            if Instant::now() > deadline {
                return Err(Error::Failed(format!("{} does not listen after 5 s", self.name)).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

/// Why a server does not run.
enum Start {
    /// It ended with a status; the last line of its standard error, if that was kept.
    Refused(String),
    Failed(Error),
}

impl From<Error> for Start {
    fn from(error: Error) -> Self {
        Start::Failed(error)
    }
}

impl Server {
    pub(super) fn start(contender: &Contender) -> Result<Self, Error> {
        contender.start(Stdio::inherit()).map_err(|start| match start {
            Start::Refused(_) => Error::Failed(format!("{} ended at start", contender.name)),
            Start::Failed(error) => error,
        })
    }

    /// The server's process and those that descend from it.
    fn processes(&self) -> Result<Vec<Process>, Error> {
        system::family(self.child.id())
    }

    /// CPU time of all threads of all its processes.
    pub(super) fn cpu(&self) -> Result<Duration, Error> {
        self.processes()?.into_iter().map(Process::cpu).sum()
    }

    /// Resident memory of all its processes, in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64, Error> {
        self.memory_bytes("VmRSS")
    }

    /// The sum of the peaks of its processes' resident memory, in bytes. What they share is counted in each.
    pub(super) fn resident_bytes_max(&self) -> Result<u64, Error> {
        self.memory_bytes("VmHWM")
    }

    fn memory_bytes(&self, name: &str) -> Result<u64, Error> {
        self.processes()?.into_iter().map(|process| process.memory_bytes(name)).sum()
    }

    /// The answer to `stats`, or to `stats GROUP`.
    pub(super) fn statistics(&self, group: &str) -> Result<HashMap<String, String>, Error> {
        let mut stream = TcpStream::connect(self.address).map_err(unreadable)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(unreadable)?;
        stream.write_all(format!("stats {group}\r\n").replace(" \r", "\r").as_bytes()).map_err(unreadable)?;
        let lines = BufReader::new(stream).lines().map(|line| line.map_err(unreadable));
        parse_statistics(lines)
    }

    /// Items the server says it holds.
    pub(super) fn curr_items(&self) -> Result<u64, Error> {
        let count = self.statistics("")?.get("curr_items").and_then(|count| count.parse().ok());
        count.ok_or_else(|| Error::Failed("no curr_items in stats".into()))
    }

    /// The last line of standard error of a server that has ended.
    fn last_words(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text.lines().last().unwrap_or("it said nothing").to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let started = self.processes().unwrap_or_default();
        // The child is ours and not yet waited for, so its id can't have been given to another process.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A replica ends when it notices that nobody feeds it. One that doesn't would disturb what is measured next.
        let deadline = Instant::now() + PATIENCE;
        for process in started.iter().skip(1) {
            while process.is_running() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            if process.is_running() {
                eprintln!("\nprocess {} outlived the server that started it; it is killed", process.id);
                let _ = Command::new("kill").args(["-KILL", &process.id.to_string()]).status();
            }
        }
    }
}

fn parse_statistics(
    lines: impl Iterator<Item = Result<String, Error>>,
) -> Result<HashMap<String, String>, Error> {
    let mut found = HashMap::new();
    for line in lines {
        let line = line?;
        if line == "END" {
            return Ok(found);
        }
        let Some(statistic) = line.strip_prefix("STAT ") else {
            return Err(Error::Failed(format!("not a statistic: {line}")));
        };
        let (key, value) = statistic.split_once(' ').unwrap_or((statistic, ""));
        found.insert(key.to_string(), value.to_string());
    }
    Err(Error::Failed("statistics without an end".into()))
}

fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unreadable)?;
    Ok(listener.local_addr().map_err(unreadable)?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_keys_and_values() {
        let parse = |text: &str| parse_statistics(text.lines().map(|line| Ok(line.to_string())));
        let found = parse(
            "STAT share 0.9876\r\nSTAT share:classic-put 1.0000\r\nSTAT cores 0 1\r\nSTAT inter\r\nEND\r\nmore\r\n",
        );
        let found = found.expect("statistics");
        assert_eq!(found["share"], "0.9876");
        assert_eq!(found["cores"], "0 1");
        assert_eq!(found["inter"], "");
        assert_eq!(found.len(), 4);
        for broken in ["STAT a 1\r\n", "ERROR\r\n", ""] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }
}
