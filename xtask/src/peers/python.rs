//! Client libraries for Python, in a virtual environment that `requirements.txt` pins by hash.

use std::path::PathBuf;

use super::outcome::{self, Outcome, Verdict};
use super::process;
use super::site::{INSTALL_LIMIT, Site, read_source};

/// pymemcache's integration tests, which its wheel contains. Three of them want TLS.
pub(crate) fn pymemcache(site: &Site) -> Result<Outcome, String> {
    let python = environment(site)?;
    let find = "import pymemcache.test as t, os; print(os.path.dirname(t.__file__))";
    let found =
        process::run_well(site.command(&python).args(["-c", find]), &site.log("find"), INSTALL_LIMIT)?;
    let tests = PathBuf::from(found.stdout.trim()).join("test_integration.py");
    let mut command = site.command("sh");
    // It takes the address as options, not as the words that other peers take.
    command.args([
        "-c",
        "exec \"$1\" -m pytest \"$2\" $OPTIONS -k 'not test_tls' --server \"$3\" --port \"$4\"",
        "sh",
    ]);
    command.arg(&python).arg(tests).env(
        "OPTIONS",
        "-v --tb=short -W ignore -p no:cacheprovider --noconftest -p pymemcache.test.conftest -m integration",
    );
    let mut outcome = site.work(&mut command, outcome::pytest)?;
    for test in outcome.tests.iter().filter(|test| matches!(test.verdict, Verdict::Skipped(_))) {
        outcome.problems.push(format!("{} was left out", test.name));
    }
    Ok(outcome)
}

/// pylibmc over the text protocol.
pub(crate) fn pylibmc_text(site: &Site) -> Result<Outcome, String> {
    work(site, "pylibmc-text")
}

/// pylibmc over the binary protocol.
pub(crate) fn pylibmc_binary(site: &Site) -> Result<Outcome, String> {
    work(site, "pylibmc-binary")
}

/// python-memcached.
pub(crate) fn python_memcached(site: &Site) -> Result<Outcome, String> {
    work(site, "python-memcached")
}

/// python-binary-memcached.
pub(crate) fn bmemcached(site: &Site) -> Result<Outcome, String> {
    work(site, "bmemcached")
}

/// meta-memcache.
pub(crate) fn meta_memcache(site: &Site) -> Result<Outcome, String> {
    work(site, "meta-memcache")
}

fn work(site: &Site, client: &str) -> Result<Outcome, String> {
    let python = environment(site)?;
    let mut command = site.command(python);
    command.arg("-B").arg(site.source("python/work.py")).arg(client);
    site.work(&mut command, outcome::tap)
}

/// Makes the environment if it is not there yet; the path of its interpreter.
fn environment(site: &Site) -> Result<PathBuf, String> {
    let directory = site.built("python");
    let requirements = site.source("python/requirements.txt");
    let python = directory.join("bin/python");
    site.install_once(&directory.join("stamp"), &read_source(&requirements)?, || {
        let mut make = site.command("python3");
        make.args(["-m", "venv", "--clear"]).arg(&directory);
        process::run_well(&mut make, &site.log("venv"), INSTALL_LIMIT)?;
        let mut install = site.command(&python);
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--no-compile",
            "--require-hashes",
            "--no-deps",
            "-r",
        ]);
        // Wheels built on this machine have other hashes than those of the registry.
        install.arg(&requirements).env_remove("PIP_FIND_LINKS");
        process::run_well(&mut install, &site.log("pip"), INSTALL_LIMIT).map(drop)
    })?;
    Ok(python)
}
