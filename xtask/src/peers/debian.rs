//! The Debian packages that the suites need.

use std::path::Path;

/// Packages that are needed whatever else is on the machine.
pub(crate) const DEBIAN_PACKAGES: &[&str] = &[
    "dpkg-dev",
    "iproute2",
    "libmemcached-dev",
    "libmemcached-tools",
    "libspymemcached-java",
    "nutcracker",
    "perl",
    "ruby-dalli",
    "util-linux",
];

/// Commands that are needed, with the package that has them on a machine where they are not installed in another way.
const COMMANDS: &[(&str, &str)] = &[
    ("javac", "default-jdk-headless"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("python3", "python3"),
    ("ruby", "ruby"),
    ("xz", "xz-utils"),
];

/// What has to be installed before the suites can run.
pub(crate) fn packages() -> Vec<&'static str> {
    let mut packages = DEBIAN_PACKAGES.to_vec();
    // Debian's own interpreter makes virtual environments with a package of its own; any other brings the module along.
    if find("python3").is_none_or(|path| path == Path::new("/usr/bin/python3")) {
        packages.push("python3-venv");
    }
    packages
        .extend(COMMANDS.iter().filter(|(command, _)| find(command).is_none()).map(|(_, package)| package));
    packages
}

/// The path of a command, as a shell would find it.
pub(crate) fn find(command: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(command))
        .find(|candidate| candidate.is_file())
}
