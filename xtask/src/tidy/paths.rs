//! Paths that the documents name exist.

use super::Finding;
use super::tree::{Tree, folder_of, join};

/// A name with such an ending is a file's, with or without a folder before it.
const ENDINGS: [&str; 14] = [
    ".rs", ".md", ".toml", ".txt", ".json", ".jsonl", ".sh", ".py", ".rb", ".go", ".java", ".js", ".lock",
    ".yml",
];

/// Folders that are made by builds and runs, not kept.
const MADE: [&str; 2] = ["target", "fuzz/corpus"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        let mut in_block = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            if in_block {
                continue;
            }
            for target in links(line).filter(|target| !link_exists(tree, path, target)) {
                findings.push(Finding::new(path, index + 1, format!("the link leads nowhere: {target}")));
            }
            for span in code_spans(line).filter(|span| !span_exists(tree, path, span)) {
                findings.push(Finding::new(path, index + 1, format!("there is no {span}")));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` that are not addresses on the web.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn link_exists(tree: &Tree, document: &str, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target);
    if file.is_empty() {
        return true;
    }
    let base = if file.starts_with('/') { "" } else { folder_of(document) };
    join(base, file).is_some_and(|path| tree.has(&path))
}

/// What stands between single backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a code span is no path of this tree, or one that exists, from the root or from the document.
fn span_exists(tree: &Tree, document: &str, span: &str) -> bool {
    let span = span.trim_start_matches("./");
    let is_path_character =
        |character: char| character.is_ascii_alphanumeric() || "._-/*".contains(character);
    let is_made = MADE.iter().any(|made| span == *made || span.starts_with(&format!("{made}/")));
    // NNNN stands for a number to be filled in.
    if span.is_empty()
        || span.starts_with('/')
        || is_made
        || span.contains("NNNN")
        || !span.chars().all(is_path_character)
    {
        return true;
    }
    let has_ending = ENDINGS.iter().any(|ending| span.ends_with(ending) && !span.starts_with('*'));
    let Some((first, _)) = span.split_once('/') else {
        return !has_ending || tree.paths().any(|path| path.rsplit('/').next() == Some(span));
    };
    if !has_ending && !tree.has(first) {
        return true;
    }
    let bases = ["", folder_of(document)];
    bases.iter().filter_map(|base| join(base, span)).any(|path| exists(tree, &path))
}

/// Whether the path, in which `*` stands for any part of a name, exists.
fn exists(tree: &Tree, path: &str) -> bool {
    if !path.contains('*') {
        return tree.has(path);
    }
    let wanted: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    tree.paths().any(|path| {
        let parts: Vec<&str> = path.split('/').collect();
        parts.len() >= wanted.len()
            && wanted.iter().zip(parts).all(|(wanted, part)| name_matches(wanted, part))
    })
}

fn name_matches(wanted: &str, name: &str) -> bool {
    match wanted.split_once('*') {
        None => wanted == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_document(text: &str) -> Vec<String> {
        let tree = Tree::sample(&[
            ("docs/design/one.md", text),
            ("docs/style.md", ""),
            ("README.md", ""),
            ("crates/a/src/lib.rs", ""),
        ]);
        check(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn what_exists_or_is_no_path_is_no_finding() {
        let none: [&str; 0] = [];
        let text = "[a](../style.md#x), [b](https://example.org/x.md), [c](#here), [d](/README.md)\n\
            `crates/a/src`, `crates/a/`, `lib.rs`, `docs/style.md`, `../style.md`, `crates/*/src/lib.rs`, `*.rs`\n\
            `and/or`, `text/plain`, `/etc/x.md`, `get k/v`, `target/release/x.md`, `docs/design/NNNN-title.md`\n\
            ```\n`docs/gone.md` [x](gone.md)\n```\n";
        assert_eq!(check_document(text), none);
    }

    #[test]
    fn what_does_not_exist_is_a_finding() {
        for (text, finding) in [
            ("[a](gone.md)", "the link leads nowhere: gone.md"),
            ("[a](../gone/)", "the link leads nowhere: ../gone/"),
            ("`crates/b`", "there is no crates/b"),
            ("see `docs/gone.md`", "there is no docs/gone.md"),
            ("`gone.rs`", "there is no gone.rs"),
            ("`elsewhere/gone.toml`", "there is no elsewhere/gone.toml"),
            ("`crates/*/gone.rs`", "there is no crates/*/gone.rs"),
        ] {
            assert_eq!(check_document(text), [format!("docs/design/one.md:1: {finding}")]);
        }
    }
}
