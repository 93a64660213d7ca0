//! The server that is soaked: the executable as a child, on a port that the system chooses.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::peers::process;
use crate::step;

/// How long a server may take to listen, to come to the end of what waits to be validated, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server; it is ended when this is dropped.
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    pub(super) fn start(executable: &Path, flags: &[&str]) -> Result<Self, Error> {
        let folder = step::target_dir()?.join("xtask");
        let (log, ports) = (folder.join("soak.log"), folder.join("soak-ports"));
        let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&folder).map_err(|error| at(&folder, error))?;
        // A file of an earlier run must not be taken for this one's.
        let _ = std::fs::remove_file(&ports);
        let output = File::create(&log).map_err(|error| at(&log, error))?;
        let errors = output.try_clone().map_err(|error| at(&log, error))?;
        let child = Command::new(executable)
            .args(["serve", "-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root", "-t", "2"])
            .args(flags)
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", executable.display()))?;
        let mut server = Server { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), log };
        let port = server.wait_for_port(&ports)?;
        server.address.set_port(port);
        Ok(server)
    }

    fn wait_for_port(&mut self, ports: &Path) -> Result<u16, Error> {
        let began = Instant::now();
        loop {
            let text = process::read(ports);
            let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok());
            if let Some(port) = port {
                return Ok(port);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = process::last_lines(&process::read(&self.log), 5);
                return Err(Error::Failed(format!("the server ended at its start ({status}):\n{said}")));
            }
            if began.elapsed() > PATIENCE {
                return Err(Error::Failed("the server does not listen".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at what the server found of itself, when nothing waits to be validated any more.
    pub(super) fn check(&self, mode: &str) -> Result<(), Error> {
        let began = Instant::now();
        let found = loop {
            let found = self.integrity()?;
            let number = |key: &str| found.get(key).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            let waiting = number("ring_lines_waiting") + number("replica_lag");
            if waiting == 0 {
                break found;
            }
            if began.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("{mode}: {waiting} lines or records still wait")));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let value = |key: &str| found.get(key).map_or("none", String::as_str);
        for key in ["disagreements", "poisoned_keys", "crc_mismatches", "shadow_lost", "shadow_stale"] {
            if !matches!(value(key), "0" | "none") {
                return Err(Error::Failed(format!("{mode}: {key} is {}", value(key))));
            }
        }
        let is_repeated_elsewhere = !matches!(mode, "vanilla" | "sei");
        if is_repeated_elsewhere && matches!(value("validated"), "0" | "none") {
            return Err(Error::Failed(format!("{mode}: nothing was validated")));
        }
        Ok(())
    }

    /// What became of executions, if anything becomes of them.
    pub(super) fn account(&self) -> Result<String, Error> {
        let found = self.integrity()?;
        let keys = ["executed", "validated", "dropped", "abandoned", "repeated", "shadow_checked"];
        let told = keys.iter().filter_map(|key| Some(format!(", {key} {}", found.get(*key)?)));
        Ok(told.collect())
    }

    /// `stats integrity`.
    fn integrity(&self) -> Result<HashMap<String, String>, Error> {
        let broken = |error: std::io::Error| Error::Failed(format!("stats integrity: {error}"));
        let mut stream = TcpStream::connect(self.address).map_err(broken)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        stream.write_all(b"stats integrity\r\n").map_err(broken)?;
        let mut found = HashMap::new();
        for line in BufReader::new(stream).lines() {
            let line = line.map_err(broken)?;
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(key), Some(value)) => found.insert(key.to_string(), value.to_string()),
                (Some("END"), ..) => return Ok(found),
                _ => return Err(Error::Failed(format!("stats integrity: {line}"))),
            };
        }
        Err(Error::Failed("stats integrity: the server closed the connection".into()))
    }

    /// Asks the server to end; what was wrong with it.
    pub(super) fn stop(mut self) -> Result<(), Error> {
        let failed = |text: &str| Error::Failed(format!("{text}; see {}", self.log.display()));
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(failed("the server ended before it was asked to"));
        }
        process::signal(self.child.id(), "TERM")?;
        match process::wait(&mut self.child, PATIENCE)? {
            Some(status) if status.success() => {}
            Some(status) => return Err(failed(&format!("the server did not end cleanly ({status})"))),
            None => return Err(failed("the server does not end")),
        }
        let log = process::read(&self.log);
        match log.lines().find(|line| line.contains("panicked") || line.contains("event=disagreement")) {
            Some(line) => Err(failed(&format!("the server said: {line}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        process::end(&mut self.child);
    }
}
