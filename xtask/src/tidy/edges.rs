//! The edges between crates: the manifests against the table in ARCHITECTURE.md.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Tree, folder_of, join};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const COLUMNS: [&str; 4] = ["crate", "floor", "one sentence", "may depend on"];
const DEPENDENCY_KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// One row of the table.
struct Row {
    folder: String,
    /// `None` for a crate outside the building, which nobody may depend on.
    floor: Option<u32>,
    may_depend_on: Vec<String>,
    line: usize,
}

/// One crate of the workspace and the folders of the crates it depends on, with the manifest's line.
struct Crate {
    folder: String,
    manifest: String,
    edges: Vec<(String, usize)>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let rows = match tree.text(ARCHITECTURE).map(rows) {
        None | Some(None) => {
            let message = format!("no table with the columns {}", COLUMNS.join(" | "));
            return vec![Finding::new(ARCHITECTURE, 1, message)];
        }
        Some(Some(rows)) => rows,
    };
    let mut findings = check_rows(&rows);
    let crates = crates(tree, &mut findings);
    for row in &rows {
        if !crates.iter().any(|one| one.folder == row.folder) {
            let message = format!("{} is in the table but not in the workspace", row.folder);
            findings.push(Finding::new(ARCHITECTURE, row.line, message));
        }
    }
    for one in &crates {
        let Some(row) = rows.iter().find(|row| row.folder == one.folder) else {
            let message = format!("{} is not in the table of {ARCHITECTURE}", one.folder);
            findings.push(Finding::new(&one.manifest, 1, message));
            continue;
        };
        for (target, line) in &one.edges {
            if !row.may_depend_on.contains(target) {
                let message = format!("{} may not depend on {target}", one.folder);
                findings.push(Finding::new(&one.manifest, *line, message));
            }
        }
    }
    findings
}

/// Every allowed edge leads to a row on a lower floor.
fn check_rows(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        for target in &row.may_depend_on {
            let message = match rows.iter().find(|row| row.folder == *target) {
                None => format!("{target} is no crate of the table"),
                Some(below) if below.floor.is_none() => {
                    format!("{target} has no floor: nobody depends on it")
                }
                Some(below) if row.floor.is_some_and(|floor| below.floor >= Some(floor)) => {
                    format!("{target} does not lie on a lower floor than {}", row.folder)
                }
                Some(_) => continue,
            };
            findings.push(Finding::new(ARCHITECTURE, row.line, message));
        }
    }
    findings
}

/// The rows below the first table header with the columns asked for.
fn rows(text: &str) -> Option<Vec<Row>> {
    let mut lines = text.lines().enumerate();
    lines.find(|(_, line)| cells(line) == COLUMNS)?;
    let table = lines.skip(1).take_while(|(_, line)| line.trim_start().starts_with('|'));
    Some(table.filter_map(|(index, line)| row(line, index + 1)).collect())
}

fn row(line: &str, number: usize) -> Option<Row> {
    let cells = cells(line);
    let [name, floor, _, may_depend_on] = cells.as_slice() else { return None };
    let may_depend_on = may_depend_on.split(',').map(unquoted).filter(|name| !is_none(name));
    Some(Row {
        folder: unquoted(name).to_string(),
        floor: floor.parse().ok(),
        may_depend_on: may_depend_on.map(str::to_string).collect(),
        line: number,
    })
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn unquoted(cell: &str) -> &str {
    cell.trim().trim_matches('`')
}

fn is_none(cell: &str) -> bool {
    matches!(cell, "" | "–" | "-" | "—" | "none")
}

/// The crates of the root workspace; a manifest with a workspace of its own, or excluded, is not one.
fn crates(tree: &Tree, findings: &mut Vec<Finding>) -> Vec<Crate> {
    let root = tree.text("Cargo.toml").and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    let workspace = root.get("workspace");
    let excluded = workspace.and_then(|workspace| workspace.get("exclude")).and_then(Value::as_array);
    let excluded: Vec<&str> = excluded.into_iter().flatten().filter_map(Value::as_str).collect();
    let shared = workspace.and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    let mut crates = Vec::new();
    for (manifest, text) in tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let folder = folder_of(manifest);
        let is_below = |outer: &&str| folder == *outer || folder.starts_with(&format!("{outer}/"));
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => {
                findings.push(Finding::new(manifest, 1, error.message()));
                continue;
            }
        };
        if table.contains_key("package") && !table.contains_key("workspace") && !excluded.iter().any(is_below)
        {
            let edges = edges(&table, folder, shared, text);
            crates.push(Crate { folder: folder.to_string(), manifest: manifest.to_string(), edges });
        }
    }
    crates
}

/// The folders of the path dependencies of every kind and for every target.
fn edges(manifest: &Table, folder: &str, shared: Option<&Table>, text: &str) -> Vec<(String, usize)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut edges = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        let kinds = DEPENDENCY_KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table());
        for (name, dependency) in kinds.flatten() {
            let path = dependency.get("path").and_then(Value::as_str);
            let target = match path {
                Some(path) => join(folder, path),
                None if dependency.get("workspace").is_some() => {
                    let shared = shared.and_then(|shared| shared.get(name));
                    shared.and_then(|shared| shared.get("path")).and_then(Value::as_str).map(str::to_string)
                }
                None => None,
            };
            let line = text.lines().position(|line| line.trim_start().starts_with(name.as_str()));
            edges.extend(target.map(|target| (target, line.map_or(1, |index| index + 1))));
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Map\n\n| crate | floor | one sentence | may depend on |\n|---|---|---|---|\n\
        | `crates/a` | 0 | A. | – |\n| `crates/b` | 1 | B. | `crates/a` |\n| `xtask` | – | X. | none |\n\nText.\n";
    const ROOT: &str = "[workspace]\nmembers = [\"crates/*\", \"xtask\"]\nexclude = [\"fuzz\"]\n\
        [workspace.dependencies]\na = { path = \"crates/a\" }\nb = { path = \"crates/b\" }\nsyn = \"3\"\n";

    /// The findings with `a`'s and `b`'s manifests ending as given.
    fn check_manifests(table: &str, a: &str, b: &str) -> Vec<String> {
        let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}");
        let tree = Tree::sample(&[
            (ARCHITECTURE, table),
            ("Cargo.toml", ROOT),
            ("crates/a/Cargo.toml", &manifest("a", a)),
            ("crates/b/Cargo.toml", &manifest("b", b)),
            ("xtask/Cargo.toml", &manifest("xtask", "[dependencies]\nsyn.workspace = true\n")),
            ("fuzz/Cargo.toml", &manifest("fuzz", "[dependencies]\nb = { path = \"../crates/b\" }\n")),
        ]);
        check(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn edges_of_the_table_are_allowed() {
        let none: [&str; 0] = [];
        assert_eq!(check_manifests(TABLE, "", "[dependencies]\na.workspace = true\n"), none);
        assert_eq!(check_manifests(TABLE, "", "[dependencies]\na = { path = \"../a\" }\n"), none);
        assert_eq!(check_manifests(TABLE, "", ""), none);
    }

    #[test]
    fn every_other_edge_is_a_finding() {
        for dependency in [
            "[dependencies]\nb.workspace = true\n",
            "[dev-dependencies]\nb = { workspace = true }\n",
            "[build-dependencies]\nb = { path = \"../b\" }\n",
            "[target.'cfg(unix)'.dependencies]\nb = { path = \"../b\" }\n",
        ] {
            let found = check_manifests(TABLE, dependency, "");
            assert_eq!(found, ["crates/a/Cargo.toml:4: crates/a may not depend on crates/b"]);
        }
    }

    #[test]
    fn table_and_workspace_name_the_same_crates() {
        let missing = TABLE.replace("| `xtask` | – | X. | none |\n", "");
        let found = check_manifests(&missing, "", "");
        assert_eq!(found, ["xtask/Cargo.toml:1: xtask is not in the table of ARCHITECTURE.md"]);
        let extra = TABLE.replace("X. | none |\n", "X. | none |\n| `crates/c` | 2 | C. | – |\n");
        let found = check_manifests(&extra, "", "");
        assert_eq!(found, ["ARCHITECTURE.md:8: crates/c is in the table but not in the workspace"]);
        let found = check_manifests("no table", "", "");
        assert!(found[0].starts_with("ARCHITECTURE.md:1: no table"), "{found:?}");
    }

    #[test]
    fn an_edge_leads_to_a_lower_floor() {
        for (cell, message) in [
            ("`crates/b`", "crates/b does not lie on a lower floor than crates/b"),
            ("`crates/z`", "crates/z is no crate of the table"),
            ("`xtask`", "xtask has no floor: nobody depends on it"),
        ] {
            let table = TABLE.replace("B. | `crates/a`", &format!("B. | {cell}"));
            assert_eq!(check_manifests(&table, "", ""), [format!("ARCHITECTURE.md:6: {message}")]);
        }
    }
}
