//! The server under test: an executable with its first arguments, and one running instance of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::process;
use super::site::Site;

/// How long a server may take to listen, or to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// An executable with its first arguments, and what it says about itself.
#[derive(Debug)]
pub(crate) struct Executable {
    words: Vec<String>,
    version: String,
}

impl Executable {
    /// Asks the executable for its version, which also shows that it can be started.
    pub(crate) fn new(words: &[String]) -> Result<Self, String> {
        let Some((program, arguments)) = words.split_first() else {
            return Err("no server was given".into());
        };
        let path = std::fs::canonicalize(program).map_err(|error| format!("{program}: {error}"))?;
        let output = Command::new(&path)
            .args(arguments)
            .arg("-V")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{program} cannot be started: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("memcached "))
            .unwrap_or_default()
            .to_string();
        let words = std::iter::once(path.display().to_string()).chain(arguments.iter().cloned()).collect();
        Ok(Executable { words, version })
    }

    /// The absolute path with the first arguments.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The words for a shell script.
    pub(crate) fn shell_words(&self) -> String {
        self.words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Whether this is Debian's memcached, against which the suites themselves are tried out.
    pub(crate) fn is_memcached_1_6_18(&self) -> bool {
        self.version.starts_with("1.6.18")
    }
}

/// A server that was started for one suite. It ends when it is dropped.
pub(crate) struct Running {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Running {
    /// Starts a server on a port that the system chooses, with `flags` added, and waits until it listens.
    pub(crate) fn start(site: &Site, name: &str, flags: &[&str]) -> Result<Self, String> {
        let ports = site.log(&format!("{name}-ports"));
        // A file of an earlier run must not be taken for this one's.
        let _ = std::fs::remove_file(&ports);
        let log = site.log(&format!("{name}.log"));
        let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let words = site.executable().words();
        let child = site
            .command(&words[0])
            .args(&words[1..])
            .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root"])
            .args(flags)
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", words[0]))?;
        let mut running = Running { child, port: 0, log };
        running.port = running.wait_for_port(&ports)?;
        Ok(running)
    }

    fn wait_for_port(&mut self, ports: &Path) -> Result<u16, String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(port) = process::read(ports)
                .lines()
                .find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok())
            {
                return Ok(port);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = process::last_lines(&process::read(&self.log), 5);
                return Err(format!("the server ended at its start ({status}):\n{said}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the server wrote no port file within {} s", PATIENCE.as_secs()))
    }

    /// The TCP port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        process::end(&mut self.child);
    }

    /// Asks the server to end; what was wrong with it, if anything was.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.child.try_wait() {
            Ok(Some(status)) => problems.push(format!("the server ended before it was asked to ({status})")),
            _ => {
                if process::signal(self.child.id(), "TERM").is_err() {
                    problems.push("the server could not be asked to end".into());
                }
                match process::wait(&mut self.child, PATIENCE) {
                    Ok(Some(status)) if status.success() => {}
                    Ok(Some(status)) => problems.push(format!("the server did not end cleanly ({status})")),
                    _ => problems
                        .push(format!("the server did not end within {} s of TERM", PATIENCE.as_secs())),
                }
            }
        }
        let log = process::read(&self.log);
        problems.extend(
            log.lines()
                .filter(|line| line.contains("panicked"))
                .map(|line| format!("the server said: {line}")),
        );
        problems
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        process::end(&mut self.child);
    }
}
