//! The files of the checkout, in memory, so that a rule can be tested on a sample of a few lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Files larger than this are data; rules see their names only.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Path (relative to the root, with `/`) to content; `None` where the content is not text.
pub(super) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Every file that is committed or could be: what git lists, less what it ignores.
    pub(super) fn of_checkout(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
            let file = root.join(path);
            // A file that was deleted but is still in the index is not there.
            let Ok(metadata) = file.symlink_metadata() else { continue };
            let readable = metadata.is_file() && metadata.len() <= TEXT_BYTES_MAX;
            let text = if readable { std::fs::read_to_string(&file).ok() } else { None };
            files.insert(path.to_string(), text);
        }
        Ok(Tree { files })
    }

    #[cfg(test)]
    pub(super) fn sample(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| (path.to_string(), Some(text.to_string()))).collect();
        Tree { files }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Paths and contents of all text files.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    pub(super) fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether a file or a folder of that name is there.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.has_file(path) {
            return true;
        }
        let folder = format!("{path}/");
        self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }
}

/// The content of `path` in an earlier commit; `None` where there is no such commit or file.
pub(super) fn committed(commit: &str, path: &str) -> Option<String> {
    let output = Command::new("git").args(["show", &format!("{commit}:{path}")]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder part of a path, without the slash; empty at the root.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `relative` as seen from `folder`, with `.` and `..` worked out; `None` when it leaves the tree.
pub(super) fn join(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_there_when_a_file_below_is() {
        let tree = Tree::sample(&[("docs/design/one.md", ""), ("docs-old", "")]);
        for (path, there) in
            [("docs", true), ("docs/design/", true), ("doc", false), ("docs/design/o", false)]
        {
            assert_eq!(tree.has(path), there, "{path}");
        }
    }

    #[test]
    fn relative_paths_are_worked_out() {
        for (folder, relative, joined) in [
            ("docs/design", "../style.md", Some("docs/style.md")),
            ("", "./README.md", Some("README.md")),
            ("docs", "../../elsewhere", None),
        ] {
            assert_eq!(join(folder, relative).as_deref(), joined);
        }
    }

    #[test]
    fn the_checkout_holds_this_very_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        let tree = Tree::of_checkout(root).expect("tests run in a git checkout");
        assert!(tree.has_file("xtask/src/tidy/tree.rs"));
        assert!(!tree.paths().any(|path| path.starts_with("target/")));
    }
}
