//! Where one suite works: its folders, the server it is about, and how it starts programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::outcome::Outcome;
use super::process;
use super::server::{Executable, Running};

/// How long fetching or building a peer may take.
pub(crate) const INSTALL_LIMIT: Duration = Duration::from_secs(240);

/// How long a suite's own work may take.
pub(crate) const WORK_LIMIT: Duration = Duration::from_secs(120);

/// One suite's surroundings.
pub(crate) struct Site<'a> {
    executable: &'a Executable,
    sources: PathBuf,
    built: PathBuf,
    logs: PathBuf,
    marker: String,
}

impl<'a> Site<'a> {
    /// Makes the folders that the suite called `name` works in.
    pub(crate) fn new(name: &str, executable: &'a Executable, root: &Path) -> Result<Self, String> {
        let built = root.join("target/peers");
        let logs = built.join("logs").join(name);
        make_directory(&logs)?;
        let marker = format!("{}-{name}", std::process::id());
        Ok(Site { executable, sources: root.join("tests/peers"), built, logs, marker })
    }

    /// The server under test.
    pub(crate) fn executable(&self) -> &Executable {
        self.executable
    }

    /// By what the suite's processes are known.
    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// A file or folder under `tests/peers`.
    pub(crate) fn source(&self, name: &str) -> PathBuf {
        self.sources.join(name)
    }

    /// A file or folder under `target/peers`, where peers are unpacked and built.
    pub(crate) fn built(&self, name: &str) -> PathBuf {
        self.built.join(name)
    }

    /// A file among this suite's logs.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    /// A command whose processes are known as this suite's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(process::MARKER, &self.marker);
        command
    }

    /// As [`Site::command`], with a network of its own in which only the loopback device is up.
    ///
    /// Peers that insist on a fixed port find it free there, whatever else runs on the machine.
    pub(crate) fn isolated_command(&self, program: &str) -> Command {
        let mut command = self.command("unshare");
        // Without the privilege to make a network, a user namespace gives it.
        command.args(if is_root() { &["--net"][..] } else { &["--map-root-user", "--net"] });
        command.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh", program]);
        command
    }

    /// Starts a server with default settings, runs `command HOST PORT` against it, and reads its output with `reader`.
    ///
    /// That the server then ends cleanly when it is asked to is part of the outcome.
    pub(crate) fn work(
        &self,
        command: &mut Command,
        reader: fn(&str, bool) -> Outcome,
    ) -> Result<Outcome, String> {
        let server = Running::start(self, "server", &[])?;
        command.arg("127.0.0.1").arg(server.port().to_string());
        let finished = process::run(command, &self.log("work"), WORK_LIMIT)?;
        let mut outcome = reader(&finished.stdout, finished.succeeded);
        if !outcome.problems.is_empty() && !finished.stderr.is_empty() {
            outcome.problems.push(format!("it said:\n{}", process::last_lines(&finished.stderr, 10)));
        }
        outcome.problems.extend(server.stop());
        Ok(outcome)
    }

    /// Does `install` unless it was done before for the same `recipe`: `stamp` holds the recipe of what is there.
    pub(crate) fn install_once(
        &self,
        stamp: &Path,
        recipe: &str,
        install: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        if std::fs::read_to_string(stamp).is_ok_and(|present| present == recipe) {
            return Ok(());
        }
        install()?;
        std::fs::write(stamp, recipe).map_err(|error| format!("{}: {error}", stamp.display()))
    }
}

/// Whether this process may do everything; programs are then told which user to run as.
pub(crate) fn is_root() -> bool {
    process::read(Path::new("/proc/self/status")).lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Makes a folder with its parents.
pub(crate) fn make_directory(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file that belongs to the project.
pub(crate) fn read_source(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a shell script that can be executed.
pub(crate) fn write_script(path: &Path, text: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::write(path, text).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(failed)
}
