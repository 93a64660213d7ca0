//! The parsed Rust files, how `mod` items connect them, and which of them are only tests.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use toml::{Table, Value};

use super::Finding;
use super::tree::{Tree, folder_of, join};

/// One Rust file of the tree.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) lines: usize,
    pub(super) syntax: syn::File,
    pub(super) tokens: TokenStream,
    /// Whether it is compiled for tests, benches or examples alone.
    pub(super) test_only: bool,
    reached: bool,
}

/// All Rust files that can be parsed.
pub(super) struct Modules {
    sources: BTreeMap<String, Source>,
}

/// A `mod name;` and what decides where its file is.
struct Declaration {
    name: String,
    line: usize,
    /// `#[path = "…"]`.
    explicit: Option<String>,
    /// Inline modules around it.
    inside: Vec<String>,
    test_only: bool,
}

impl Modules {
    /// Parses every file and follows the modules from every crate root.
    pub(super) fn of(tree: &Tree, findings: &mut Vec<Finding>) -> Modules {
        let mut modules = Modules { sources: BTreeMap::new() };
        for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
            match parse(path, text) {
                Ok(source) => {
                    modules.sources.insert(path.to_string(), source);
                }
                Err(error) => {
                    let line = error.span().start().line;
                    findings.push(Finding::new(path, line, format!("cannot be parsed: {error}")));
                }
            }
        }
        for root in crate_roots(tree) {
            modules.follow(&root, true, is_test_target(&root), findings);
        }
        modules
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.sources.values()
    }

    /// Rust files that no `mod` leads to.
    pub(super) fn dead_files(&self, tree: &Tree) -> Vec<Finding> {
        let dead = self.iter().filter(|source| !source.reached);
        // A file that was taken in as text is data.
        let dead = dead.filter(|source| !tree.texts().any(|(path, text)| includes(path, text, &source.path)));
        dead.map(|source| Finding::new(&source.path, 1, "no `mod` leads to this file")).collect()
    }

    /// Marks `path` and everything below it as reached.
    fn follow(&mut self, path: &str, is_root: bool, test_only: bool, findings: &mut Vec<Finding>) {
        let Some(source) = self.sources.get_mut(path) else { return };
        if source.reached && (test_only || !source.test_only) {
            return;
        }
        source.reached = true;
        source.test_only = test_only;
        let mut declarations = Declarations::default();
        declarations.visit_file(&source.syntax);
        for declaration in declarations.found {
            let candidates = declaration.candidates(path, is_root);
            match candidates.iter().find(|candidate| self.sources.contains_key(*candidate)) {
                Some(file) => {
                    let below_is_root = declaration.explicit.is_some() || file.ends_with("/mod.rs");
                    self.follow(file, below_is_root, test_only || declaration.test_only, findings);
                }
                None => {
                    let message = format!("mod {}: there is no such file", declaration.name);
                    findings.push(Finding::new(path, declaration.line, message));
                }
            }
        }
    }
}

impl Declaration {
    /// The files it can mean, when it stands in `path`.
    fn candidates(&self, path: &str, is_root: bool) -> Vec<String> {
        let folder = folder_of(path);
        let below = if is_root { folder } else { path.trim_end_matches(".rs") };
        let inside = self.inside.join("/");
        if let Some(explicit) = &self.explicit {
            let base = if inside.is_empty() { folder.to_string() } else { format!("{below}/{inside}") };
            return join(&base, explicit).into_iter().collect();
        }
        let stem = join(below, &format!("{inside}/{}", self.name)).unwrap_or_default();
        vec![format!("{stem}.rs"), format!("{stem}/mod.rs")]
    }
}

#[derive(Default)]
struct Declarations {
    found: Vec<Declaration>,
    inside: Vec<String>,
    test_depth: usize,
}

impl<'ast> Visit<'ast> for Declarations {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let test_only = is_test_only(&item.attrs);
        let name = item.ident.to_string().trim_start_matches("r#").to_string();
        if item.content.is_none() {
            self.found.push(Declaration {
                name,
                line: item.mod_token.span.start().line,
                explicit: path_attribute(&item.attrs),
                inside: self.inside.clone(),
                test_only: test_only || self.test_depth > 0,
            });
            return;
        }
        self.inside.push(name);
        self.test_depth += usize::from(test_only);
        visit::visit_item_mod(self, item);
        self.test_depth -= usize::from(test_only);
        self.inside.pop();
    }
}

fn parse(path: &str, text: &str) -> syn::Result<Source> {
    Ok(Source {
        path: path.to_string(),
        lines: text.lines().count(),
        syntax: syn::parse_file(text)?,
        tokens: text.parse()?,
        test_only: false,
        reached: false,
    })
}

/// Whether `#[cfg(test)]`, alone or in an `all`, stands before an item.
pub(super) fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    let cfgs = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let mut lists = cfgs.filter_map(|attribute| attribute.meta.require_list().ok());
    lists.any(|list| requires_test(list.tokens.clone()))
}

/// Whether a cfg predicate can only hold in tests: `test`, or `all(…)` with such a part.
fn requires_test(predicate: TokenStream) -> bool {
    let mut before: Option<String> = None;
    for token in predicate {
        match &token {
            TokenTree::Ident(name) if name == "test" => return true,
            TokenTree::Ident(name) => before = Some(name.to_string()),
            TokenTree::Group(group) if before.as_deref() == Some("all") => {
                if requires_test(group.stream()) {
                    return true;
                }
            }
            _ => before = None,
        }
    }
    false
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The files cargo compiles as the root of a crate: by its conventions, and by `path` in a manifest.
fn crate_roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for (manifest, text) in tree.texts().filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml")) {
        let Ok(table) = text.parse::<Table>() else { continue };
        if !table.contains_key("package") {
            continue;
        }
        let folder = folder_of(manifest);
        roots.extend(explicit_targets(&table).iter().filter_map(|path| join(folder, path)));
        for path in tree.paths().filter(|path| path.ends_with(".rs")) {
            let inside = if folder.is_empty() { Some(path) } else { strip_folder(path, folder) };
            if inside.is_some_and(is_conventional_target) {
                roots.push(path.to_string());
            }
        }
    }
    roots
}

fn strip_folder<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn is_conventional_target(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["tests" | "benches" | "examples", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
    )
}

fn explicit_targets(manifest: &Table) -> Vec<String> {
    let single = ["lib"].iter().filter_map(|kind| manifest.get(*kind));
    let lists = ["bin", "test", "bench", "example"].iter().filter_map(|kind| manifest.get(*kind)?.as_array());
    let build = manifest.get("package").and_then(|package| package.get("build"));
    let paths = single.chain(lists.flatten()).filter_map(|target| target.get("path"));
    paths.chain(build).filter_map(Value::as_str).map(str::to_string).collect()
}

fn is_test_target(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"))
}

/// Whether the file at `path` takes `target` in with one of the `include` macros.
fn includes(path: &str, text: &str, target: &str) -> bool {
    let Some(name) = target.rsplit('/').next() else { return false };
    path.ends_with(".rs") && path != target && text.contains("include") && {
        let mut quoted = text.split('"').skip(1).step_by(2).filter(|text| text.ends_with(name));
        quoted.any(|relative| join(folder_of(path), relative).as_deref() == Some(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> (Modules, Vec<Finding>) {
        let mut files = files.to_vec();
        files.push(("a/Cargo.toml", "[package]\nname = \"a\"\n[[bin]]\nname = \"x\"\npath = \"odd/x.rs\"\n"));
        let tree = Tree::sample(&files);
        let mut findings = Vec::new();
        let modules = Modules::of(&tree, &mut findings);
        findings.extend(modules.dead_files(&tree));
        (modules, findings)
    }

    #[test]
    fn every_way_to_reach_a_file_is_followed() {
        let (_, findings) = modules(&[
            ("a/src/lib.rs", "mod b; mod c; mod d { mod e; } #[path = \"other/p.rs\"] mod q; fn f() {}"),
            ("a/src/b.rs", "mod below;"),
            ("a/src/b/below.rs", ""),
            ("a/src/c/mod.rs", "mod beside;"),
            ("a/src/c/beside.rs", ""),
            ("a/src/d/e.rs", ""),
            ("a/src/other/p.rs", ""),
            ("a/tests/one.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
            ("a/odd/x.rs", "const T: &str = include_str!(\"text.rs\");"),
            ("a/odd/text.rs", ""),
        ]);
        assert_eq!(findings, []);
    }

    #[test]
    fn a_file_without_a_mod_is_dead_and_a_mod_without_a_file_is_said() {
        let (_, findings) = modules(&[("a/src/lib.rs", "\nmod gone;"), ("a/src/dead.rs", "")]);
        assert_eq!(
            findings,
            [
                Finding::new("a/src/lib.rs", 2, "mod gone: there is no such file"),
                Finding::new("a/src/dead.rs", 1, "no `mod` leads to this file"),
            ]
        );
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_a_finding() {
        let (_, findings) = modules(&[("a/src/lib.rs", "fn f( {}\n")]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.starts_with("cannot be parsed"), "{findings:?}");
    }

    #[test]
    fn test_files_are_told_from_others() {
        let (modules, findings) = modules(&[
            (
                "a/src/lib.rs",
                "#[cfg(test)] mod tests; #[cfg(all(test, not(loom)))] mod more; mod real;\n#[cfg(not(test))] mod live; #[cfg(any(test, loom))] mod both;",
            ),
            ("a/src/tests.rs", "mod deep;"),
            ("a/src/tests/deep.rs", ""),
            ("a/src/more.rs", ""),
            ("a/src/real.rs", ""),
            ("a/src/live.rs", ""),
            ("a/src/both.rs", ""),
            ("a/tests/t.rs", ""),
        ]);
        assert_eq!(findings, []);
        let tests: Vec<&str> = modules.iter().filter(|s| s.test_only).map(|s| s.path.as_str()).collect();
        assert_eq!(tests, ["a/src/more.rs", "a/src/tests.rs", "a/src/tests/deep.rs", "a/tests/t.rs"]);
    }
}
