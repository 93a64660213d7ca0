//! A server under measurement: started on a free port of the loopback, pinned, observed through /proc, and ended.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// A server that takes memcached's flags.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) command: Vec<OsString>,
}

/// A running server; it is ended when this is dropped.
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

impl Server {
    pub(super) fn start(contender: &Contender) -> Result<Self, Error> {
        let port = free_port()?;
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .args(&contender.command)
            .args([
                "-t",
                "1",
                "-m",
                "1024",
                "-U",
                "0",
                "-l",
                "127.0.0.1",
                "-u",
                "root",
                "-p",
                &port.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Error::Failed(format!("cannot start {}: {error}", contender.name)))?;
        let mut server = Server { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
        let deadline = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(server.address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Error::Failed(format!("{} ended at start: {status}", contender.name)));
            }
            if Instant::now() > deadline {
                return Err(Error::Failed(format!("{} does not listen after 5 s", contender.name)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// CPU time of all the server's threads, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id())).map_err(unreadable)? {
            let path = task.map_err(unreadable)?.path().join("schedstat");
            let text = fs::read_to_string(path).map_err(unreadable)?;
            sum += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Resident memory, in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64, Error> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).map_err(unreadable)?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.parse::<u64>().ok())
            .map(|kib| kib * 1024)
            .ok_or_else(|| Error::Failed("no VmRSS in /proc".into()))
    }

    /// Items the server says it holds.
    pub(super) fn curr_items(&self) -> Result<u64, Error> {
        let mut stream = TcpStream::connect(self.address).map_err(unreadable)?;
        stream.write_all(b"stats\r\n").map_err(unreadable)?;
        for line in BufReader::new(stream).lines() {
            let line = line.map_err(unreadable)?;
            if let Some(count) = line.strip_prefix("STAT curr_items ") {
                return count.parse().map_err(|_| Error::Failed(format!("not a count: {line}")));
            }
            if line == "END" {
                break;
            }
        }
        Err(Error::Failed("no curr_items in stats".into()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child is ours and not yet waited for, so its id can't have been given to another process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unreadable)?;
    Ok(listener.local_addr().map_err(unreadable)?.port())
}

fn unreadable(error: std::io::Error) -> Error {
    Error::Failed(format!("while watching the server: {error}"))
}
