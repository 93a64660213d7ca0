//! `cargo xtask tidy`: the rules about the shape of the source tree, each a function over the tree.

mod banned;
mod edges;
mod lengths;
mod list;
mod modules;
mod paths;
mod tree;
mod unsafe_files;
mod words;

use std::fmt;
use std::path::Path;

use crate::error::Error;
use list::Exceptions;
use tree::Tree;

/// Where the exceptions with their reasons stand.
const EXCEPTIONS: &str = "xtask/tidy.toml";

/// One violation, shown as `path:line: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks the whole tree and prints every finding.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    if let Some(arg) = args.first() {
        return Err(Error::Usage(format!("tidy takes no arguments, not '{arg}'")));
    }
    let tree = Tree::of_checkout(Path::new("."))?;
    let mut earlier = Vec::new();
    for commit in ["HEAD", "HEAD~1"] {
        earlier.extend(tree::committed(commit, EXCEPTIONS).map(|text| Exceptions::parse(&text).0));
    }
    let findings = check(&tree, &earlier);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, no findings", tree.paths().count());
            Ok(())
        }
        count => Err(Error::Failed(format!("tidy: {count} findings"))),
    }
}

fn check(tree: &Tree, earlier: &[Exceptions]) -> Vec<Finding> {
    let (exceptions, mut findings) = Exceptions::parse(tree.text(EXCEPTIONS).unwrap_or(""));
    let modules = modules::Modules::of(tree, &mut findings);
    findings.extend(list::check_shrinking(&exceptions, earlier));
    findings.extend(modules.dead_files(tree));
    findings.extend(edges::check(tree));
    findings.extend(lengths::check(&modules, &exceptions));
    findings.extend(unsafe_files::check(&modules, &exceptions));
    findings.extend(banned::check(&modules));
    findings.extend(words::check(tree));
    findings.extend(paths::check(tree));
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_sound_tree_has_no_findings() {
        let tree = Tree::sample(&[
            ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n"),
            (
                "ARCHITECTURE.md",
                "| crate | floor | one sentence | may depend on |\n|---|---|---|---|\n| `crates/a` | 0 | A. | – |\n",
            ),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", "//! A crate.\n"),
            (EXCEPTIONS, ""),
        ]);
        assert_eq!(check(&tree, &[]), []);
    }

    #[test]
    fn findings_of_different_rules_come_sorted() {
        let tree = Tree::sample(&[
            ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", "mod missing;\n"),
            ("crates/a/src/dead.rs", "//! Dead.\n"),
        ]);
        let lines: Vec<String> = check(&tree, &[]).iter().map(Finding::to_string).collect();
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].starts_with("ARCHITECTURE.md:1: "), "{lines:#?}");
        assert!(lines[1].starts_with("crates/a/src/dead.rs:1: "), "{lines:#?}");
        assert!(lines[2].starts_with("crates/a/src/lib.rs:1: "), "{lines:#?}");
    }
}
