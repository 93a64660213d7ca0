//! Software that other people wrote, run against a server executable over real sockets.
//!
//! Each suite runs by name alone, has a time limit, counts every single test, and leaves no process behind. A peer that is missing is a
//! failure of its suite: nothing is skipped silently.

mod debian;
mod go;
mod java;
mod memcached_t;
mod memccapable;
mod node;
mod nutcracker;
mod outcome;
pub(crate) mod process;
mod python;
mod ruby;
mod rust;
mod server;
mod site;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::Error;

pub(crate) use debian::packages as debian_packages;
use outcome::Outcome;
use server::Executable;
use site::Site;

/// What one suite counted.
pub(crate) struct SuiteCount {
    /// The name that `cargo xtask peers NAME` takes.
    pub(crate) name: &'static str,
    /// Tests that did what they should, the expected differences among them.
    pub(crate) passed: usize,
    /// Tests that did not, and everything else that went wrong.
    pub(crate) failed: usize,
    /// Tests the peer itself left out, each with a reason that its suite allows.
    pub(crate) skipped: usize,
    /// How many of `passed` are differences that a data file under `tests/peers` names.
    pub(crate) differences: usize,
    /// Wall time, installing the peer included.
    pub(crate) took: Duration,
    /// One line for each failure.
    pub(crate) failures: Vec<String>,
    /// What a reader should know although nothing failed.
    pub(crate) notes: Vec<String>,
}

/// One suite: its name, what it is, and the function that runs it.
struct Suite {
    name: &'static str,
    about: &'static str,
    run: fn(&Site) -> Result<Outcome, String>,
}

/// Every suite there is. The first runs beside all the others, because it mostly sleeps.
const SUITES: &[Suite] = &[
    Suite { name: "memcached-t", about: "memcached 1.6.18's own t/, unmodified", run: memcached_t::run },
    Suite {
        name: "memccapable-text",
        about: "libmemcached's conformance tests, text",
        run: memccapable::text,
    },
    Suite {
        name: "memccapable-binary",
        about: "libmemcached's conformance tests, binary",
        run: memccapable::binary,
    },
    Suite { name: "pymemcache", about: "pymemcache's own integration tests", run: python::pymemcache },
    Suite { name: "pylibmc-text", about: "pylibmc over the text protocol", run: python::pylibmc_text },
    Suite { name: "pylibmc-binary", about: "pylibmc over the binary protocol", run: python::pylibmc_binary },
    Suite { name: "python-memcached", about: "python-memcached, text", run: python::python_memcached },
    Suite { name: "bmemcached", about: "python-binary-memcached, binary", run: python::bmemcached },
    Suite {
        name: "meta-memcache",
        about: "meta-memcache for Python, meta commands",
        run: python::meta_memcache,
    },
    Suite { name: "dalli", about: "Debian's ruby-dalli 3.0.6, binary", run: ruby::run },
    Suite { name: "gomemcache", about: "gomemcache's own tests", run: go::run },
    Suite { name: "spymemcached-text", about: "Debian's libspymemcached-java, text", run: java::text },
    Suite { name: "spymemcached-binary", about: "Debian's libspymemcached-java, binary", run: java::binary },
    Suite { name: "memjs", about: "memjs for Node.js, binary", run: node::run },
    Suite { name: "memcache-crate-text", about: "the memcache crate for Rust, text", run: rust::text },
    Suite { name: "memcache-crate-binary", about: "the memcache crate for Rust, binary", run: rust::binary },
    Suite {
        name: "memcache-crate-meta",
        about: "the memcache crate for Rust, meta commands",
        run: rust::meta,
    },
    Suite {
        name: "nutcracker",
        about: "twemproxy before two servers, one of them killed",
        run: nutcracker::run,
    },
];

/// Runs the suites named in `only` (all of them if it is empty) against `server`, an executable and its first arguments.
///
/// Prints one line for each suite as it ends, its failures below it.
pub(crate) fn run(server: &[String], only: &[String]) -> Result<Vec<SuiteCount>, String> {
    if let Some(unknown) = only.iter().find(|name| SUITES.iter().all(|suite| suite.name != name.as_str())) {
        return Err(format!("there is no suite '{unknown}'; `cargo xtask peers --list` names them"));
    }
    let executable = Executable::new(server)?;
    let root = workspace_root()?;
    let _alone = lock(&root)?;
    let wanted: Vec<&Suite> =
        SUITES.iter().filter(|suite| only.is_empty() || only.iter().any(|name| name == suite.name)).collect();
    let counts = Mutex::new(Vec::new());
    let (first, rest): (Vec<&Suite>, Vec<&Suite>) =
        wanted.iter().partition(|suite| suite.name == SUITES[0].name);
    std::thread::scope(|scope| {
        for lane in [first, rest] {
            let (executable, root, counts) = (&executable, &root, &counts);
            scope.spawn(move || {
                for suite in lane {
                    let count = run_one(suite, executable, root);
                    print(&count);
                    counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(count);
                }
            });
        }
    });
    let mut counts = counts.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    counts.sort_by_key(|count| SUITES.iter().position(|suite| suite.name == count.name));
    Ok(counts)
}

/// `cargo xtask peers [SUITE...] [--server "PATH ARGUMENT..."]`, or `--list` for the suites, `--packages` for what they need installed.
pub(crate) fn command(args: &[String]) -> Result<(), Error> {
    let mut server = None;
    let mut only = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => {
                for suite in SUITES {
                    println!("{:<23}{}", suite.name, suite.about);
                }
                return Ok(());
            }
            "--packages" => {
                println!("{}", debian_packages().join(" "));
                return Ok(());
            }
            "--server" => {
                let value = args.next().ok_or_else(|| Error::Usage("--server wants a path".into()))?;
                server = Some(value.split_whitespace().map(String::from).collect::<Vec<_>>());
            }
            flag if flag.starts_with('-') => {
                return Err(Error::Usage(format!("peers does not know '{flag}'")));
            }
            name => only.push(name.to_string()),
        }
    }
    let server = match server {
        Some(server) => server,
        None => default_server()?,
    };
    let counts = run(&server, &only)?;
    let passed: usize = counts.iter().map(|count| count.passed).sum();
    let failed: usize = counts.iter().map(|count| count.failed).sum();
    println!("{passed} passed, {failed} failed");
    if failed > 0 { Err(Error::Failed(format!("{failed} failed"))) } else { Ok(()) }
}

fn default_server() -> Result<Vec<String>, String> {
    let path = workspace_root()?.join("target/release/veracache");
    if !path.exists() {
        return Err("there is no target/release/veracache yet: cargo build --release".into());
    }
    Ok(vec![path.display().to_string(), "serve".into()])
}

fn workspace_root() -> Result<PathBuf, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(Path::to_path_buf).ok_or_else(|| "xtask has no parent directory".into())
}

/// Waits until no other run uses `target/peers`: two would write each other's scripts and logs. The lock ends with the file.
fn lock(root: &Path) -> Result<File, String> {
    let directory = root.join("target/peers");
    site::make_directory(&directory)?;
    let path = directory.join("lock");
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if file.try_lock().is_err() {
        println!("waiting for another run of the peers to end");
        file.lock().map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(file)
}

fn run_one(suite: &Suite, executable: &Executable, root: &Path) -> SuiteCount {
    let started = Instant::now();
    let mut count = SuiteCount {
        name: suite.name,
        passed: 0,
        failed: 0,
        skipped: 0,
        differences: 0,
        took: Duration::ZERO,
        failures: Vec::new(),
        notes: Vec::new(),
    };
    let outcome = Site::new(suite.name, executable, root).and_then(|site| {
        let outcome = (suite.run)(&site);
        let left = process::end_leftovers(site.marker());
        outcome.map(|mut outcome| {
            outcome.problems.extend(left);
            outcome
        })
    });
    match outcome {
        Ok(outcome) => outcome.count_into(&mut count),
        Err(reason) => count.failures.push(reason),
    }
    count.failed = count.failures.len();
    if count.passed + count.failed == 0 {
        count.failures.push("ran no test at all".into());
        count.failed = 1;
    }
    count.took = started.elapsed();
    count
}

fn print(count: &SuiteCount) {
    let mut text = format!("{:<23}{:>6} passed {:>3} failed", count.name, count.passed, count.failed);
    if count.skipped > 0 {
        text.push_str(&format!(" {:>2} skipped", count.skipped));
    }
    if count.differences > 0 {
        text.push_str(&format!(" {:>2} expected differences", count.differences));
    }
    text.push_str(&format!(" {:>6.1} s\n", count.took.as_secs_f64()));
    for line in count.failures.iter().take(40) {
        text.push_str(&format!("    FAILED {line}\n"));
    }
    if count.failures.len() > 40 {
        text.push_str(&format!("    ... and {} more\n", count.failures.len() - 40));
    }
    for line in &count.notes {
        text.push_str(&format!("    note: {line}\n"));
    }
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_different_names() {
        for (index, suite) in SUITES.iter().enumerate() {
            assert!(SUITES[index + 1..].iter().all(|other| other.name != suite.name), "{}", suite.name);
        }
    }

    #[test]
    fn an_unknown_suite_is_named() {
        let error = run(&["/bin/true".into()], &["frobnicate".into()]).err();
        assert_eq!(
            error.as_deref(),
            Some("there is no suite 'frobnicate'; `cargo xtask peers --list` names them")
        );
    }
}
