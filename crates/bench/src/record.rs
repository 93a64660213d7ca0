//! What a run leaves behind: one JSON object on one line, with everything needed to judge it.
//!
//! A report is a pure function of such lines. What a run measured stands in `results`, in the form of its kind.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The version of this layout. A reader refuses lines of another one, with their version.
pub const FORMAT: u32 = 1;

/// One run of one command.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The command that measured: `load`, `speed`, `pool`, `protect`, `compare`, `inject`, `demo`.
    pub kind: String,
    /// When it began, as RFC 3339 in UTC.
    pub began: String,
    /// The command line, so that it can be repeated.
    pub command: Vec<String>,
    /// From what all that was drawn at random follows.
    pub seed: u64,
    /// Whether it came to its end; if not, why.
    pub incomplete: Option<String>,
    /// Where it ran.
    pub environment: Environment,
    /// What limited the result (`server`, `generator`, `network`, `lock-step`, `rate`), where that was looked at.
    pub limited_by: Option<String>,
    /// What must hold for the result to mean something.
    pub gates: Vec<Gate>,
    /// What was measured; each kind has a type of its own for it.
    pub results: serde_json::Value,
}

/// A condition for a result to mean something.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Gate {
    /// What is asked for, in a few words: `slip p99 below 1 ms`.
    pub name: String,
    /// Whether it holds.
    pub is_met: bool,
    /// What was found, with its unit.
    pub found: String,
}

/// The machine, and what ran on it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Environment {
    /// This program's version.
    pub version: String,
    /// The processor's own name.
    pub cpu: String,
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// Bytes of memory of the machine.
    pub memory_bytes: u64,
    /// Name and release of the system.
    pub kernel: String,
    /// The governor of CPU 0, or `unknown`, as in virtual machines.
    pub governor: String,
    /// The state of transparent huge pages.
    pub huge_pages: String,
    /// The servers that were measured, by name, each with its command or address and its version.
    pub servers: Vec<Contender>,
}

/// A server that was measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contender {
    /// As results name it.
    pub name: String,
    /// How it was started, or where it was found.
    pub command: String,
    /// What it answers to `version`.
    pub version: String,
}

impl Environment {
    /// Asks this machine.
    pub fn here() -> Self {
        let name = rustix::system::uname();
        Environment {
            version: env!("CARGO_PKG_VERSION").to_string(),
            cpu: cpu_name(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            servers: Vec::new(),
        }
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_string()
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown", |(_, name)| name.trim()).to_string()
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

impl Record {
    /// A run that begins now, as the program was called.
    pub fn begin(kind: &str, seed: u64) -> Self {
        Record {
            format: FORMAT,
            kind: kind.to_string(),
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: std::env::args().collect(),
            seed,
            incomplete: None,
            environment: Environment::here(),
            limited_by: None,
            gates: Vec::new(),
            results: serde_json::Value::Null,
        }
    }
}

/// The file that lines are added to, opened before anything is measured: a file that can't be written is found then.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Opens or makes the file; lines of earlier runs stay.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(Error::io(path.display().to_string()))?;
        Ok(Log { file, path: path.to_path_buf() })
    }

    /// Adds one line. When the disk is full, nothing or part of it is there, which [`read`] passes over.
    pub fn append(&mut self, record: &Record) -> Result<(), Error> {
        let mut line = serde_json::to_vec(record).expect("records have string keys and finite depth");
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(format!("{}: the result can't be kept", self.path.display())))
    }
}

/// Reads the records of a file. A last line that was cut off is left out; any other that can't be read is an error.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let text = fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
    let mut records = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_whole = line.ends_with('\n');
        match serde_json::from_str::<Record>(line) {
            Ok(record) if record.format == FORMAT => records.push(record),
            Ok(record) => {
                let (path, found) = (path.display(), record.format);
                let text = format!("{path}:{}: layout {found}; this program reads {FORMAT}", number + 1);
                return Err(Error::Usage(text));
            }
            Err(_) if !is_whole || line.trim().is_empty() => {}
            Err(error) => {
                let text = format!("{}:{}: not a result: {error}", path.display(), number + 1);
                return Err(Error::Usage(text));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        for seed in [1, 2] {
            Log::open(&path).expect("a file").append(&Record::begin("load", seed)).expect("a disk");
        }
        // What a full disk or a kill leaves.
        Log::open(&path).expect("a file").file.write_all(b"{\"format\":1,\"ki").expect("a disk");
        let seeds: Vec<u64> =
            read(&path).expect("two whole lines").iter().map(|record| record.seed).collect();
        assert_eq!(seeds, [1, 2]);
    }

    #[test]
    fn other_lines_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let mut other = Record::begin("load", 1);
        other.format = FORMAT + 1;
        Log::open(&path).expect("a file").append(&other).expect("a disk");
        assert!(read(&path).expect_err("another layout").to_string().contains("layout 2"));
        fs::write(&path, "no JSON\n").expect("a disk");
        assert!(read(&path).expect_err("no JSON").to_string().contains(":1: not a result"));
    }
}
