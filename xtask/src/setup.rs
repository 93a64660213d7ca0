//! `cargo xtask setup`: the Debian packages that the tests and the measurements need.

use std::process::{Command, Stdio};

use crate::error::Error;
use crate::peers;

/// What `cargo xtask perf` compares with.
const PERF_PACKAGES: [&str; 1] = ["memcached"];

/// Installs what is missing when that is possible; otherwise names it and the command that does.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if let Some(arg) = args.first() {
        return Err(Error::Usage(format!("setup takes no arguments, not '{arg}'")));
    }
    let missing = missing(&wanted(), is_installed);
    if missing.is_empty() {
        println!("setup: every package is installed");
        return Ok(());
    }
    if !may_install() {
        return Err(Error::Failed(advice(&missing)));
    }
    println!("setup: installing {}", missing.join(" "));
    apt_get(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt_get(&arguments)
}

fn wanted() -> Vec<&'static str> {
    let mut wanted = peers::debian_packages();
    wanted.extend(PERF_PACKAGES);
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

fn missing<'a>(wanted: &[&'a str], is_installed: impl Fn(&str) -> bool) -> Vec<&'a str> {
    wanted.iter().copied().filter(|package| !is_installed(package)).collect()
}

fn advice(missing: &[&str]) -> String {
    let packages = missing.join(" ");
    format!(
        "the tests need Debian packages that are not installed; as root:\n  \
         apt-get update && apt-get install --no-install-recommends {packages}"
    )
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    query.is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Whether this is root on a machine with apt-get.
fn may_install() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let has_apt =
        Command::new("apt-get").arg("--version").output().is_ok_and(|output| output.status.success());
    is_root && has_apt
}

fn apt_get(arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("apt-get")
        .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed(format!("apt-get {} failed:\n{}", arguments.join(" "), said.trim_end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_named() {
        let missing = missing(&["memcached", "perl", "ruby-dalli"], |package| package == "perl");
        assert_eq!(missing, ["memcached", "ruby-dalli"]);
        let advice = advice(&missing);
        assert!(advice.ends_with("--no-install-recommends memcached ruby-dalli"), "{advice}");
    }

    #[test]
    fn tests_and_measurements_name_their_packages() {
        let wanted = wanted();
        for package in ["libmemcached-tools", "memcached", "nutcracker"] {
            assert!(wanted.contains(&package), "{wanted:?}");
        }
    }
}
