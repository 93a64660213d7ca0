//! gomemcache's own tests, from the Go module proxy.

use super::outcome::{self, Outcome, Verdict};
use super::process;
use super::site::{INSTALL_LIMIT, Site, WORK_LIMIT, make_directory, write_script};

const PACKAGE: &str = "github.com/bradfitz/gomemcache/memcache";

/// The one test that may leave itself out.
const TLS: &str = "TestTLS";

/// What has to have run, for the tests leave themselves out where they find no server.
const REQUIRED: &[&str] = &["TestLocalhost", "TestUnixSocket"];

/// Starts the server on the customary port, which the tests insist on, runs them, and ends it.
const SCRIPT: &str = r#"
rm -f ports
MEMCACHED_PORT_FILENAME=ports memcached -l 127.0.0.1 &
server=$!
while [ ! -s ports ]; do
    kill -0 $server || exit 1
    sleep 0.05
done
./gomemcache.test -test.v
status=$?
kill -TERM $server
wait $server || status=1
exit $status
"#;

/// Runs the tests in a network of their own: they know no port but 11211.
///
/// They also start `memcached` from the path, and find there a script that starts the server under test.
pub(crate) fn run(site: &Site) -> Result<Outcome, String> {
    let directory = site.built("go");
    let path = directory.join("bin");
    make_directory(&path)?;
    let mut build = site.command("go");
    build
        .args(["test", "-c", "-o"])
        .arg(directory.join("gomemcache.test"))
        .arg(PACKAGE)
        .current_dir(site.source("go"));
    process::run_well(&mut build, &site.log("build"), INSTALL_LIMIT)?;
    let words = site.executable().shell_words();
    let port = "[ \"$1\" = -l ] && set -- \"$@\" -p 11211";
    write_script(&path.join("memcached"), &format!("#!/bin/sh\n{port}\nexec {words} \"$@\" -u root\n"))?;
    write_script(&directory.join("run"), &format!("#!/bin/sh\nPATH={}:$PATH\n{SCRIPT}", path.display()))?;
    let mut command = site.isolated_command("./run");
    command.current_dir(&directory);
    let finished = process::run(&mut command, &site.log("work"), WORK_LIMIT)?;
    let mut outcome = outcome::go_test(&finished.stdout, finished.succeeded);
    for test in &outcome.tests {
        if matches!(test.verdict, Verdict::Skipped(_)) && test.name != TLS {
            outcome.problems.push(format!("{} was left out", test.name));
        }
    }
    for name in REQUIRED {
        if !outcome.tests.iter().any(|test| test.name == *name) {
            outcome.problems.push(format!("{name} did not run"));
        }
    }
    if !outcome.problems.is_empty() {
        outcome
            .problems
            .push(format!("it said:\n{}", process::last_lines(&(finished.stdout + &finished.stderr), 10)));
    }
    Ok(outcome)
}
