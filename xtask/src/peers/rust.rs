//! The `memcache` crate, through a program that is no member of this workspace.

use super::outcome::{self, Outcome};
use super::process;
use super::site::{INSTALL_LIMIT, Site};

/// The established client, text protocol.
pub(crate) fn text(site: &Site) -> Result<Outcome, String> {
    run(site, "text")
}

/// The established client, binary protocol.
pub(crate) fn binary(site: &Site) -> Result<Outcome, String> {
    run(site, "binary")
}

/// The newer client, which speaks meta commands.
pub(crate) fn meta(site: &Site) -> Result<Outcome, String> {
    run(site, "meta")
}

fn run(site: &Site, protocol: &str) -> Result<Outcome, String> {
    let target = site.built("rust");
    let mut build = site.command("cargo");
    build.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(site.source("rust/Cargo.toml"));
    build.arg("--target-dir").arg(&target);
    process::run_well(&mut build, &site.log("build"), INSTALL_LIMIT)?;
    let mut command = site.command(target.join("debug/veracache-peers-rust"));
    command.arg(protocol);
    site.work(&mut command, outcome::tap)
}
