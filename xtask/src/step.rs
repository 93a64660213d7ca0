//! The steps of `cargo xtask test` and `cargo xtask ci`: run one after the other, timed, counted, in one table.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;

/// A step that takes longer than this in CI hangs.
const STEP_SECONDS_MAX: u64 = 900;

/// Lines of a failed step's output that are shown; the rest stands in its log.
const LINES_SHOWN: usize = 60;

/// What one step counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) took: Duration,
}

/// All steps so far.
#[derive(Default)]
pub(crate) struct Steps {
    counts: Vec<Count>,
}

impl Steps {
    /// Runs a step that says itself how many tests passed and failed; an error is one failure.
    pub(crate) fn count(&mut self, name: &str, work: impl FnOnce() -> Result<(usize, usize), Error>) -> bool {
        println!("== {name}");
        let started = Instant::now();
        let (passed, failed) = work().unwrap_or_else(|error| {
            if !matches!(error, Error::Reported) {
                println!("{error}");
            }
            (0, 1)
        });
        let count = Count { name: name.to_string(), passed, failed, took: started.elapsed() };
        println!("   {passed} passed, {failed} failed, {:.1} s", count.took.as_secs_f64());
        self.counts.push(count);
        failed == 0
    }

    /// Runs a step that is one test by itself.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<(), Error>) -> bool {
        self.count(name, || work().map(|()| (1, 0)))
    }

    /// Takes in a step that has printed its own progress.
    pub(crate) fn add(&mut self, count: Count) {
        self.counts.push(count);
    }

    /// Prints the table and the closing line.
    pub(crate) fn close(&self) -> Result<(), Error> {
        print!("\n{}", table(&self.counts));
        let failed: usize = self.counts.iter().map(|count| count.failed).sum();
        if failed > 0 { Err(Error::Reported) } else { Ok(()) }
    }
}

fn table(counts: &[Count]) -> String {
    let mut text = format!("{:<40}{:>9}{:>9}{:>11}\n", "step", "passed", "failed", "seconds");
    for Count { name, passed, failed, took } in counts {
        text.push_str(&format!("{name:<40}{passed:>9}{failed:>9}{:>11.1}\n", took.as_secs_f64()));
    }
    let passed: usize = counts.iter().map(|count| count.passed).sum();
    let failed: usize = counts.iter().map(|count| count.failed).sum();
    text.push_str(&format!("\n{passed} passed, {failed} failed\n"));
    text
}

/// Runs cargo quietly, its output in a log that is shown only when it fails. The log's text, and whether it succeeded.
pub(crate) fn cargo(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), Error> {
    let (text, succeeded, log) = run(&cargo_program(), name, arguments, environment)?;
    if succeeded {
        return Ok(());
    }
    Err(Error::Failed(failure(&text, &log)))
}

/// As [`cargo`], for `cargo test`: the tests that passed and failed.
pub(crate) fn cargo_test(
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<(usize, usize), Error> {
    let (text, succeeded, log) = run(&cargo_program(), name, arguments, environment)?;
    let (passed, failed) = test_results(&text);
    if !succeeded {
        println!("{}", failure(&text, &log));
    } else if passed == 0 {
        return Err(Error::Failed(format!("no test was run; see {}", log.display())));
    }
    // A build that fails, or a test that ends its process, has no result line.
    Ok((passed, if succeeded { failed } else { failed.max(1) }))
}

/// The cargo that runs this program.
fn cargo_program() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// The log's text, whether the program succeeded, and the log.
pub(crate) fn run(
    program: &Path,
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<(String, bool, PathBuf), String> {
    let folder = target_dir()?.join("xtask");
    let log = folder.join(name).with_extension("log");
    let at_log = |error: std::io::Error| format!("{}: {error}", log.display());
    std::fs::create_dir_all(&folder).map_err(at_log)?;
    let output = File::create(&log).map_err(at_log)?;
    let mut command = with_limit(program);
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
    command.stderr(output.try_clone().map_err(at_log)?).stdout(output);
    let status = command.status().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = std::fs::read(&log).map_err(at_log)?;
    Ok((String::from_utf8_lossy(&text).into_owned(), status.success(), log))
}

/// In CI nobody is there to interrupt what hangs; elsewhere `timeout` would keep the keyboard's interrupt from its child.
fn with_limit(program: &Path) -> Command {
    if std::env::var_os("CI").is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(STEP_SECONDS_MAX.to_string()).arg(program);
    command
}

/// What failed tests said, or the end of the output where no test did.
fn failure(text: &str, log: &Path) -> String {
    let mut shown: Vec<&str> = failures(text);
    if shown.is_empty() {
        let lines: Vec<&str> = text.lines().collect();
        shown.extend(&lines[lines.len().saturating_sub(LINES_SHOWN)..]);
    }
    shown.truncate(LINES_SHOWN);
    format!("{}\nthe whole output: {}", shown.join("\n"), log.display())
}

/// The part of each test program's output between its `failures:` and its result.
fn failures(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        is_inside |= line == "failures:";
        is_inside &= !line.starts_with("test result: ");
        if is_inside && !line.is_empty() {
            lines.push(line);
        }
    }
    lines
}

/// Sums the `test result:` lines of a log.
fn test_results(text: &str) -> (usize, usize) {
    let mut sums = (0, 0);
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |word: &str| {
            let before = line.split(word).next().filter(|before| before.len() < line.len())?;
            before.split_whitespace().last()?.parse::<usize>().ok()
        };
        sums.0 += number(" passed;").unwrap_or(0);
        sums.1 += number(" failed;").unwrap_or(0);
    }
    sums
}

/// The folder cargo builds into: this program lies two floors below it.
pub(crate) fn target_dir() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let folder = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    folder.map(Path::to_path_buf).ok_or_else(|| format!("{} lies in no target folder", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed() {
        let text = "running 3 tests\ntest a ... ok\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1s\n";
        assert_eq!(test_results(text), (13, 2));
        assert_eq!(test_results("error: could not compile\n"), (0, 0));
    }

    #[test]
    fn what_failed_is_shown_without_what_passed() {
        let log = Path::new("x.log");
        let failed = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nleft: 1\n\n\
            test result: FAILED. 1 passed; 1 failed\n   Doc-tests c\n";
        let expected = "failures:\n---- b stdout ----\nleft: 1\nthe whole output: x.log";
        assert_eq!(failure(failed, log), expected);
        let broken = "error: could not compile\n";
        assert_eq!(failure(broken, log), "error: could not compile\nthe whole output: x.log");
    }

    #[test]
    fn an_error_is_a_failure() {
        let mut steps = Steps::default();
        assert!(steps.check("sound", || Ok(())));
        assert!(steps.close().is_ok());
        assert!(!steps.check("broken", || Err(Error::Failed("broken".to_string()))));
        assert!(!steps.count("counted", || Ok((4, 1))));
        assert!(steps.close().is_err());
    }

    #[test]
    fn the_table_fits_80_columns_and_ends_with_the_closing_line() {
        let count = |name: &str, passed, failed| Count {
            name: name.to_string(),
            passed,
            failed,
            took: Duration::from_millis(1234),
        };
        let text = table(&[count("workspace", 400, 0), count("peers: memcached-t", 1_000, 2)]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.lines().last(), Some("1400 passed, 2 failed"));
    }
}
