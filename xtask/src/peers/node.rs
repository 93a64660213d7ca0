//! memjs, from the npm registry.

use super::outcome::{self, Outcome};
use super::process;
use super::site::{INSTALL_LIMIT, Site, make_directory, read_source};

/// memjs speaks the binary protocol alone.
pub(crate) fn run(site: &Site) -> Result<Outcome, String> {
    let directory = site.built("node");
    let lock = read_source(&site.source("node/package-lock.json"))?;
    make_directory(&directory)?;
    site.install_once(&directory.join("stamp"), &lock, || {
        for file in ["package.json", "package-lock.json"] {
            let source = site.source("node").join(file);
            std::fs::copy(&source, directory.join(file))
                .map_err(|error| format!("{}: {error}", source.display()))?;
        }
        let mut install = site.command("npm");
        install.args(["ci", "--no-audit", "--no-fund"]).current_dir(&directory);
        process::run_well(&mut install, &site.log("npm"), INSTALL_LIMIT).map(drop)
    })?;
    let mut command = site.command("node");
    command.arg(site.source("node/work.js")).current_dir(&directory);
    site.work(&mut command, outcome::tap)
}
