//! A server that a command starts for itself, as a child process on a port that the system chooses, and ends again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::error::Error;
use crate::interrupt;

/// How long a server may take to listen, and to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often we look whether it does.
const PERIOD: Duration = Duration::from_millis(2);

/// Lines of a server's log that are shown when it did not start.
const LINES_SHOWN: usize = 5;

/// A running server; it is ended when this is dropped, and when the thread that started it ends in any way.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    /// Holds its log and the file in which it tells its port.
    folder: TempDir,
}

/// This executable, which is also the server; see [`Server::start`].
pub fn ourselves() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("finding this executable"))
}

impl Server {
    /// Starts this executable as a server on loopback, with flags of `veracache serve`.
    pub fn embedded(flags: &[&str]) -> Result<Self, Error> {
        let base = ["serve", "-l", "127.0.0.1", "-U", "0", "-u", "root"];
        Server::start(&ourselves()?, base.iter().chain(flags))
    }

    /// Starts a program with memcached's conventions: it takes `-p -1` as any free port, and tells the port it has in
    /// the file that `MEMCACHED_PORT_FILENAME` names. Arguments must not name a port.
    pub fn start<S: Into<OsString>>(
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        let any: [OsString; 2] = ["-p".into(), "-1".into()];
        let mut server = Server::spawn(program, arguments.into_iter().map(Into::into).chain(any))?;
        let port = server.wait(program, Server::told_port)?;
        server.address.set_port(port);
        Ok(server)
    }

    /// Starts any program that listens at this address because its arguments say so.
    pub fn start_at<S: Into<OsString>>(
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
        address: SocketAddr,
    ) -> Result<Self, Error> {
        let mut server = Server::spawn(program, arguments.into_iter().map(Into::into))?;
        server.address = address;
        server.wait(program, |server| TcpStream::connect(server.address).ok())?;
        Ok(server)
    }

    /// Starts the process; nobody knows yet where it listens.
    fn spawn(program: &Path, arguments: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let folder = TempDir::with_prefix("veracache-").map_err(Error::io("a folder for a server's log"))?;
        let log = folder.path().join("log");
        let output = File::create(&log).map_err(Error::io(log.display().to_string()))?;
        let errors = output.try_clone().map_err(Error::io(log.display().to_string()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("MEMCACHED_PORT_FILENAME", folder.path().join("ports"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C in a terminal is for whoever measures; the server is ended in order, behind the last request.
            .process_group(0);
        // SAFETY: the closure makes one system call and neither allocates nor takes a lock, so it may run between
        // fork and exec.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().map_err(|error| {
            Error::Unavailable(format!("{} can't be started: {error}", program.display()))
        })?;
        Ok(Server { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), folder })
    }

    /// The port that the server told, if it did.
    fn told_port(&self) -> Option<u16> {
        self.told("TCP INET: ")
    }

    fn told(&self, kind: &str) -> Option<u16> {
        let text = fs::read_to_string(self.folder.path().join("ports")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix(kind)?.trim().parse().ok())
    }

    /// Waits until the server shows that it listens.
    fn wait<T>(&mut self, program: &Path, shown: impl Fn(&Self) -> Option<T>) -> Result<T, Error> {
        let began = Instant::now();
        loop {
            // First, as somebody else may have taken the port it was given.
            if let Ok(Some(status)) = self.child.try_wait() {
                let (name, said) = (program.display(), self.last_words());
                return Err(Error::Unavailable(format!("{name} ended at its start ({status}){said}")));
            }
            if let Some(shown) = shown(self) {
                return Ok(shown);
            }
            if interrupt::is_requested() {
                return Err(Error::Interrupted);
            }
            if began.elapsed() > PATIENCE {
                let (name, said) = (program.display(), self.last_words());
                return Err(Error::Unavailable(format!("{name} does not listen{said}")));
            }
            thread::sleep(PERIOD);
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it speaks the line protocol, if it was started with `--line-port -1`.
    pub fn line_address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address.ip(), self.told("LINE INET: ")?))
    }

    /// The process, for its CPU time and memory. It may have children of its own: a replica.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{status}{}", self.last_words()))
    }

    /// What it wrote, so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        shown.iter().map(|line| format!("\n  {line}")).collect()
    }
}

impl Drop for Server {
    /// Asks it to end, as its supervisor would, and insists after a while.
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(PERIOD);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
