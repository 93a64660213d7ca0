//! Running other people's programs with a time limit, and ending what they leave behind.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The environment variable by which the processes of one suite are known, whatever group or session they moved to.
pub(crate) const MARKER: &str = "VERACACHE_PEERS_SUITE";

/// A program that ended by itself.
pub(crate) struct Finished {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` to its end, keeping its output in `LOG.out` and `LOG.err`. Running longer than `limit` is an error.
pub(crate) fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<Finished, String> {
    let (out, err) = (log.with_extension("out"), log.with_extension("err"));
    let create = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&err)?)
        .spawn()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    let Some(status) = wait(&mut child, limit)? else {
        end(&mut child);
        return Err(format!("{name} did not end within {} s; see {}", limit.as_secs(), err.display()));
    };
    Ok(Finished { succeeded: status.success(), stdout: read(&out), stderr: read(&err) })
}

/// As [`run`], for a program that has to succeed.
pub(crate) fn run_well(command: &mut Command, log: &Path, limit: Duration) -> Result<Finished, String> {
    let name = format!("{command:?}");
    let finished = run(command, log, limit)?;
    if finished.succeeded {
        return Ok(finished);
    }
    Err(format!("{name} failed:\n{}", last_lines(&(finished.stdout + &finished.stderr), 15)))
}

/// The end of a text, for a message.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("        {line}\n")).collect()
}

/// A log's text; bytes that are not UTF-8 are replaced, for peers print what they received.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Waits for a child, at most for `limit`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a child and reaps it. One that has ended already is only reaped.
pub(crate) fn end(child: &mut Child) {
    if child.kill().is_ok() {
        // An error here means that it was reaped before, which is what is wanted.
        let _ = child.wait();
    }
}

/// Sends a signal by name to one process.
pub(crate) fn signal(pid: u32, name: &str) -> Result<(), String> {
    let status =
        Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("process {pid} is gone")),
        Err(error) => Err(format!("sh cannot be started: {error}")),
    }
}

/// Kills the processes that still carry a suite's marker; each is a problem, for a suite cleans up after itself.
///
/// A process that is ending gets two seconds to do so.
pub(crate) fn end_leftovers(marker: &str) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut left = marked(marker);
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        left = marked(marker);
    }
    left.into_iter()
        .map(|pid| {
            let name = read(Path::new(&format!("/proc/{pid}/cmdline"))).replace('\0', " ");
            // It may have ended between the look and the signal.
            let _ = signal(pid, "KILL");
            format!("left a process behind: {}", name.trim())
        })
        .collect()
}

fn marked(marker: &str) -> Vec<u32> {
    let wanted = format!("{MARKER}={marker}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found_and_ended() {
        let marker = format!("{}-leftovers", std::process::id());
        let mut child =
            Command::new("sleep").arg("60").env(MARKER, &marker).spawn().expect("sleep is everywhere");
        // Between being made and being a program of its own, a process has no environment to look at.
        let deadline = Instant::now() + Duration::from_secs(20);
        while marked(&marker).is_empty() {
            assert!(Instant::now() < deadline, "the process never came to be");
            std::thread::yield_now();
        }
        assert_eq!(end_leftovers(&marker), ["left a process behind: sleep 60"]);
        assert!(!child.wait().expect("a child can be waited for").success());
        assert!(end_leftovers(&marker).is_empty());
    }

    #[test]
    fn a_program_that_does_not_end_is_an_error() {
        let directory = std::env::temp_dir().join(format!("veracache-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let log = directory.join("limit");
        let error = run(Command::new("sleep").arg("60"), &log, Duration::from_millis(10)).err();
        assert!(error.is_some_and(|error| error.starts_with("sleep did not end within 0 s")));
        let finished = run(Command::new("echo").arg("hello"), &log, Duration::from_secs(20))
            .expect("echo is everywhere");
        assert!(finished.succeeded);
        assert_eq!(finished.stdout, "hello\n");
        std::fs::remove_dir_all(directory).expect("nobody else uses it");
    }
}
