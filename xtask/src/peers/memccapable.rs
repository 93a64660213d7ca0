//! `memccapable`, libmemcached's conformance tests.

use super::outcome::{self, Outcome, Verdict};
use super::process;
use super::server::Running;
use super::site::{Site, WORK_LIMIT, read_source};

/// Both protocols have this many tests in the libmemcached of Debian 12.
const TEST_COUNT: usize = 27;

/// The text protocol.
pub(crate) fn text(site: &Site) -> Result<Outcome, String> {
    run(site, "-a")
}

/// The binary protocol.
pub(crate) fn binary(site: &Site) -> Result<Outcome, String> {
    run(site, "-b")
}

fn run(site: &Site, protocol: &str) -> Result<Outcome, String> {
    let allowed = allowed(&read_source(&site.source("memccapable.toml"))?)?;
    let server = Running::start(site, "server", &[])?;
    let port = server.port().to_string();
    let mut command = site.command("memccapable");
    command.args(["-h", "127.0.0.1", "-p", &port, "-t", "5", protocol]);
    let finished = process::run(&mut command, &site.log("work"), WORK_LIMIT)?;
    let mut outcome = outcome::memccapable(&finished.stdout, finished.succeeded);
    if outcome.tests.len() != TEST_COUNT {
        outcome.problems.push(format!("ran {} of {TEST_COUNT} tests", outcome.tests.len()));
    }
    outcome.problems.extend(server.stop());
    apply(&mut outcome, &allowed);
    Ok(outcome)
}

/// The tests that may fail, with the reason for each.
fn allowed(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error| format!("memccapable.toml: {error}"))?;
    let entries =
        table.get("may_fail").and_then(toml::Value::as_array).ok_or("memccapable.toml: no may_fail")?;
    entries
        .iter()
        .map(|entry| {
            let text = |key: &str| entry.get(key).and_then(toml::Value::as_str).map(String::from);
            text("name")
                .zip(text("because"))
                .ok_or_else(|| "memccapable.toml: name and because are needed".to_string())
        })
        .collect()
}

fn apply(outcome: &mut Outcome, allowed: &[(String, String)]) {
    for (name, because) in allowed {
        for test in outcome.tests.iter_mut().filter(|test| test.name == *name) {
            match test.verdict {
                Verdict::Failed => test.verdict = Verdict::Different(because.clone()),
                Verdict::Passed => outcome.notes.push(format!("'{name}' may fail and passed")),
                _ => {}
            }
        }
    }
    // A test that is left out has shown nothing.
    for test in &outcome.tests {
        if let Verdict::Skipped(reason) = &test.verdict {
            outcome.problems.push(format!("'{}' was left out: {reason}", test.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_list_names_may_fail() {
        let list = "[[may_fail]]\nname = \"ascii delete\"\nbecause = \"x\"\n";
        let allowed = allowed(list).expect("a valid list");
        let mut outcome =
            outcome::memccapable("ascii delete [FAIL]\nascii get [FAIL]\nascii set [pass]\n", false);
        apply(&mut outcome, &allowed);
        let verdicts: Vec<&Verdict> = outcome.tests.iter().map(|test| &test.verdict).collect();
        assert_eq!(verdicts, [&Verdict::Different("x".into()), &Verdict::Failed, &Verdict::Passed]);
        let mut outcome = outcome::memccapable("ascii delete [pass]\n", true);
        apply(&mut outcome, &allowed);
        assert_eq!(outcome.notes, ["'ascii delete' may fail and passed"]);
    }
}
