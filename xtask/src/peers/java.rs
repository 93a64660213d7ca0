//! spymemcached, as Debian has it.

use super::outcome::{self, Outcome};
use super::site::Site;

const JAR: &str = "/usr/share/java/spymemcached.jar";

/// The text protocol.
pub(crate) fn text(site: &Site) -> Result<Outcome, String> {
    run(site, "text")
}

/// The binary protocol.
pub(crate) fn binary(site: &Site) -> Result<Outcome, String> {
    run(site, "binary")
}

fn run(site: &Site, protocol: &str) -> Result<Outcome, String> {
    if !std::path::Path::new(JAR).exists() {
        return Err(format!("there is no {JAR}"));
    }
    let mut command = site.command("java");
    command.args(["-cp", JAR]).arg(site.source("java/Work.java")).arg(protocol);
    site.work(&mut command, outcome::tap)
}
