//! Words that belong to somebody's machine or to unfinished work, in any text file.

use super::Finding;
use super::tree::Tree;

/// Marks of unfinished work, put together so that this file holds none.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO")];

/// Beginnings of absolute paths that exist on one machine alone.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// The registries that everybody uses; a lock or settings file that names another host names a mirror.
const PUBLIC_HOSTS: [&str; 9] = [
    "github.com",
    "index.crates.io",
    "static.crates.io",
    "registry.npmjs.org",
    "pypi.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "repo1.maven.org",
    "deb.debian.org",
];

/// Recorded bytes and measurements are what they are.
const DATA_FOLDERS: [&str; 1] = ["testdata/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in
        tree.texts().filter(|(path, _)| !DATA_FOLDERS.iter().any(|data| path.starts_with(data)))
    {
        let names_downloads = is_lock_or_settings(path);
        for (index, line) in text.lines().enumerate() {
            let mut say = |message: String| findings.push(Finding::new(path, index + 1, message));
            // The documents name the marks where they forbid them.
            if let Some(mark) = MARKS.iter().find(|mark| !path.ends_with(".md") && has_word(line, mark)) {
                say(format!("'{mark}': finish it, or say in words how things are"));
            }
            if let Some(found) = MACHINE_PATHS.iter().find_map(|prefix| machine_path(line, prefix)) {
                say(format!("'{found}' is a path on one machine"));
            }
            if let Some(host) = foreign_host(line).filter(|_| names_downloads) {
                say(format!("'{host}' is not a public registry"));
            }
        }
    }
    findings
}

/// Whether `word` stands in the line with no letter, digit or underscore beside it.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// The path that begins with `prefix`, where it begins a path and is not the middle of one.
fn machine_path<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    let is_middle = |character: char| character.is_alphanumeric() || "_.-/~*}$)".contains(character);
    let (at, _) = line.match_indices(prefix).find(|(at, _)| !line[..*at].ends_with(is_middle))?;
    let length =
        line[at..].find(|character: char| character.is_whitespace() || "\"'`)>,;".contains(character));
    Some(&line[at..at + length.unwrap_or(line.len() - at)])
}

fn is_lock_or_settings(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".lock")
        || path.starts_with(".cargo/")
        || matches!(name, "package-lock.json" | "go.sum" | "go.mod" | ".npmrc" | "pip.conf" | "pom.xml")
        || (name.starts_with("requirements") && name.ends_with(".txt"))
}

/// The first host of a download address in the line that is not a public registry's.
fn foreign_host(line: &str) -> Option<&str> {
    let is_download = ["resolved", "source", "index", "registry", "url"].iter().any(|key| line.contains(key));
    let mut hosts = line.split("://").skip(1).map(|rest| {
        let authority = rest.split(['/', '"', '\'', ' ', '#', '?']).next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority)
    });
    hosts.find(|host| is_download && !PUBLIC_HOSTS.contains(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_line(path: &str, line: &str) -> Vec<String> {
        check(&Tree::sample(&[(path, line)])).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_found_in_code_but_not_in_documents() {
        let line = format!("// {}: later", MARKS[0]);
        let finding = format!("a.rs:1: '{}': finish it, or say in words how things are", MARKS[0]);
        assert_eq!(check_line("a.rs", &line), [finding]);
        for (path, line) in
            [("docs/style.md", line.as_str()), ("testdata/a", line.as_str()), ("a.rs", "TODOS _XXX")]
        {
            let none: [&str; 0] = [];
            assert_eq!(check_line(path, line), none);
        }
    }

    #[test]
    fn paths_on_one_machine_are_found() {
        for prefix in MACHINE_PATHS {
            let line = format!("see `{prefix}someone/file` there");
            let finding = format!("README.md:1: '{prefix}someone/file' is a path on one machine");
            assert_eq!(check_line("README.md", &line), [finding]);
            let none: [&str; 0] = [];
            assert_eq!(
                check_line("README.md", &format!("https://example.org{prefix}x and $D{prefix}x")),
                none
            );
        }
    }

    #[test]
    fn a_mirror_in_a_lock_file_is_found() {
        let line = "source = \"registry+https://mirror.example/index\"";
        assert_eq!(
            check_line("Cargo.lock", line),
            ["Cargo.lock:1: 'mirror.example' is not a public registry"]
        );
        let none: [&str; 0] = [];
        assert_eq!(check_line("README.md", line), none);
        assert_eq!(
            check_line("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\""),
            none
        );
        assert_eq!(check_line("package-lock.json", "\"funding\": \"https://example.org/give\""), none);
    }
}
