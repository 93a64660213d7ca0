//! memcached's own tests, from Debian's source package, unmodified.
//!
//! The tests look for `memcached-debug` and `timedrun` in the working directory, so a folder with two small scripts of these names and a
//! link to `t` is all they need to run against another server. Some want memcached's customary ports to be free, others draw ports at
//! random: each file has a network of its own, and so several can run at a time.

mod list;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use list::{Difference, List, Run, Source};

use super::outcome::{self, Outcome, Verdict};
use super::process;
use super::site::{INSTALL_LIMIT, Site, make_directory, read_source, write_script};

/// Almost all of the time these tests sleep, so more of them run at once than there are cores.
const AT_ONCE: usize = 8;

/// One file of tests may take this long.
const FILE_LIMIT: Duration = Duration::from_secs(60);

/// Runs every file of the list, several at a time.
pub(crate) fn run(site: &Site) -> Result<Outcome, String> {
    let list = List::parse(&read_source(&site.source("memcached-t.toml"))?)
        .map_err(|error| format!("memcached-t.toml: {error}"))?;
    let tests = fetch(site, &list.source)?.join("t");
    let mut total = Outcome { problems: unlisted(&list, &tests)?, ..Outcome::default() };
    let directory = lay_out(site, &tests)?;
    let (run, impossible): (Vec<&Run>, Vec<&Run>) =
        list.run.iter().partition(|run| !(run.needs_debugtime && site.executable().is_memcached_1_6_18()));
    total.notes.extend(
        impossible.iter().map(|run| format!("{}.t was not run: Debian's build has no debugtime", run.file)),
    );
    let queue: Mutex<VecDeque<&Run>> = Mutex::new(run.into());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                // The lock must not be held while the file runs, as it would be in the head of a `while let`.
                loop {
                    let next = lock(&queue).pop_front();
                    let Some(file) = next else { break };
                    let outcome = run_file(site, &directory, file);
                    lock(&outcomes).push((file.file.as_str(), outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    outcomes.sort_by_key(|(file, _)| *file);
    for (file, outcome) in outcomes {
        total.absorb(file, outcome);
    }
    Ok(total)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Gets Debian's source package with a list of sources of our own, so that the system's stays as it is, and unpacks upstream's part.
fn fetch(site: &Site, source: &Source) -> Result<PathBuf, String> {
    let directory = site.built("memcached-source");
    let unpacked = directory.join(&source.folder);
    site.install_once(&directory.join("stamp"), &source.sha256, || {
        let apt = directory.join("apt");
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            make_directory(&apt.join(folder))?;
        }
        let list = apt.join("list.sources");
        let one_line = apt.join("list.list");
        source_lists(&list, &one_line)?;
        let list = if list.exists() { list } else { one_line };
        let apt_get = |arguments: &[&str], log: &str| {
            let mut command = site.command("apt-get");
            command.arg("-q").current_dir(&directory);
            command.arg("-o").arg(format!("Dir::Etc::sourcelist={}", list.display()));
            command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root"]);
            command.arg("-o").arg(format!("Dir::State::lists={}", apt.join("state/lists").display()));
            command.arg("-o").arg(format!("Dir::Cache={}", apt.join("cache").display()));
            process::run_well(command.args(arguments), &site.log(log), INSTALL_LIMIT)
        };
        apt_get(&["update"], "apt-update")?;
        apt_get(&["source", "--download-only", &source.package], "apt-source")?;
        let mut command = site.command("sha256sum");
        command.arg(&source.archive).current_dir(&directory);
        let sum = process::run_well(&mut command, &site.log("sha256sum"), INSTALL_LIMIT)?.stdout;
        if !sum.starts_with(&source.sha256) {
            return Err(format!("{} is not the archive that the list was made for: {sum}", source.archive));
        }
        let mut command = site.command("tar");
        command.arg("-xf").arg(&source.archive).current_dir(&directory);
        process::run_well(&mut command, &site.log("tar"), INSTALL_LIMIT).map(drop)
    })?;
    Ok(unpacked)
}

/// Writes Debian's own sources with `deb-src` for `deb`, in whichever of the two formats the machine has them.
fn source_lists(stanzas: &Path, one_line: &Path) -> Result<(), String> {
    let write = |path: &Path, text: String| std::fs::write(path, text).map_err(|error| error.to_string());
    if let Ok(text) = std::fs::read_to_string("/etc/apt/sources.list.d/debian.sources") {
        return write(
            stanzas,
            text.lines()
                .map(
                    |line| {
                        if line.starts_with("Types:") {
                            "Types: deb-src\n".into()
                        } else {
                            format!("{line}\n")
                        }
                    },
                )
                .collect(),
        );
    }
    if let Ok(text) = std::fs::read_to_string("/etc/apt/sources.list") {
        let lines = text.lines().filter_map(|line| line.strip_prefix("deb "));
        return write(one_line, lines.map(|line| format!("deb-src {line}\n")).collect());
    }
    Err("neither debian.sources nor sources.list is under /etc/apt".into())
}

/// A test file that the list does not name is a problem, and so is a name that no file has.
fn unlisted(list: &List, tests: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(tests).map_err(|error| format!("{}: {error}", tests.display()))?;
    let mut present: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".t")?.to_string()))
        .collect();
    present.sort();
    let mut named: Vec<&String> = list.run.iter().map(|run| &run.file).collect();
    named.extend(list.omit.iter().flat_map(|omit| &omit.files));
    let mut problems = Vec::new();
    for file in &present {
        match named.iter().filter(|name| **name == file).count() {
            1 => {}
            0 => problems.push(format!("{file}.t is not in the list")),
            _ => problems.push(format!("{file}.t is in the list more than once")),
        }
    }
    problems.extend(
        named.iter().filter(|name| !present.contains(name)).map(|name| format!("there is no {name}.t")),
    );
    Ok(problems)
}

/// Makes the folder that the tests run in.
fn lay_out(site: &Site, tests: &Path) -> Result<PathBuf, String> {
    let directory = site.built("memcached-t");
    make_directory(&directory)?;
    let link = directory.join("t");
    // A link of an earlier run may point elsewhere.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(tests, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    let words = site.executable().shell_words();
    let body = if site.executable().is_memcached_1_6_18() {
        // Debian builds it without the sandbox that this option would loosen, and then refuses the option.
        format!(
            "for word; do shift; [ \"$word\" = relaxed_privileges ] && word=modern; set -- \"$@\" \"$word\"; done\nexec {words} \"$@\""
        )
    } else {
        format!("exec {words} --test-mode \"$@\"")
    };
    write_script(&directory.join("memcached-debug"), &format!("#!/bin/sh\n{body}\n"))?;
    write_script(&directory.join("timedrun"), "#!/bin/sh\nexec timeout --foreground \"$@\"\n")?;
    Ok(directory)
}

fn run_file(site: &Site, directory: &Path, file: &Run) -> Outcome {
    let mut command = site.isolated_command("prove");
    command.args(["--norc", "-v"]).arg(format!("t/{}.t", file.file)).current_dir(directory);
    command.env_remove("SSL_TEST").env_remove("T_MEMD_USE_DAEMON");
    command.env("PERL5OPT", format!("-I{} -MReadLimit", site.source("perl").display()));
    match process::run(&mut command, &site.log(&file.file), FILE_LIMIT) {
        Err(problem) => Outcome { problems: vec![problem], ..Outcome::default() },
        Ok(finished) => {
            let mut outcome = outcome::tap(&finished.stdout, finished.succeeded);
            if !site.executable().is_memcached_1_6_18() {
                apply(&mut outcome, &file.differences);
            }
            refuse_skips(&mut outcome, &file.may_skip);
            if !outcome.problems.is_empty() {
                outcome.problems.push(format!("it said:\n{}", process::last_lines(&finished.stderr, 6)));
            }
            outcome
        }
    }
}

/// Turns the failures that the list names into expected ones; one that did not happen is a problem.
fn apply(outcome: &mut Outcome, differences: &[Difference]) {
    for difference in differences {
        let wanted = format!("{} {}", difference.test, difference.name);
        match outcome.tests.iter_mut().find(|test| test.number == difference.test) {
            None => outcome.problems.push(format!("test {wanted} should differ and did not run")),
            Some(test) if test.name != wanted.trim_end() => {
                let name = test.name.clone();
                outcome.problems.push(format!("test {wanted} should differ, but that number is '{name}'"));
            }
            Some(test) if test.verdict == Verdict::Failed => {
                test.verdict = Verdict::Different(difference.because.clone());
            }
            Some(_) => outcome.problems.push(format!("test {wanted} should differ and passed")),
        }
    }
}

/// A test that leaves itself out has shown nothing, unless the list says why it may.
fn refuse_skips(outcome: &mut Outcome, may_skip: &[usize]) {
    for test in &outcome.tests {
        if let Verdict::Skipped(reason) = &test.verdict
            && !may_skip.contains(&test.number)
        {
            outcome.problems.push(format!("test {} was left out: {reason}", test.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, differences: &[(usize, &str)], failed: usize, problems: &[&str]) {
        let differences: Vec<Difference> = differences
            .iter()
            .map(|(test, name)| Difference { test: *test, name: name.to_string(), because: "x".into() })
            .collect();
        let mut outcome = outcome::tap(output, false);
        apply(&mut outcome, &differences);
        assert_eq!(outcome.tests.iter().filter(|test| test.verdict == Verdict::Failed).count(), failed);
        assert_eq!(outcome.problems, problems);
    }

    #[test]
    fn differences_are_matched_by_number_and_name() {
        let output = "1..2\nok 1 - a\nnot ok 2 - b\n";
        check(output, &[(2, "b")], 0, &[]);
        check(output, &[], 1, &[]);
        check(output, &[(2, "c")], 1, &["test 2 c should differ, but that number is '2 b'"]);
        check(output, &[(1, "a")], 1, &["test 1 a should differ and passed"]);
        check(output, &[(3, "d")], 1, &["test 3 d should differ and did not run"]);
    }

    #[test]
    fn a_test_that_is_left_out_is_a_problem() {
        let mut outcome = outcome::tap("1..2\nok 1 # skip in use\nok 2 # skip no TLS\n", true);
        refuse_skips(&mut outcome, &[1]);
        assert_eq!(outcome.problems, ["test 2 was left out: no TLS"]);
    }
}
