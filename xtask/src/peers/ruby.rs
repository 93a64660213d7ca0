//! Dalli, as Debian has it.

use super::outcome::{self, Outcome};
use super::site::Site;

/// Dalli 3.0 speaks the binary protocol alone.
pub(crate) fn run(site: &Site) -> Result<Outcome, String> {
    let mut command = site.command("ruby");
    command.arg(site.source("ruby/work.rb"));
    site.work(&mut command, outcome::tap)
}
