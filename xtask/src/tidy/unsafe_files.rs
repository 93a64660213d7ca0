//! The word `unsafe` stands in listed files only.

use proc_macro2::{TokenStream, TokenTree};

use super::list::Exceptions;
use super::modules::Modules;
use super::{EXCEPTIONS, Finding};

pub(super) fn check(modules: &Modules, exceptions: &Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in modules.iter() {
        let listed = exceptions.unsafe_files.iter().find(|file| file.path == source.path);
        match (listed, first_unsafe(source.tokens.clone())) {
            (None, Some(line)) => {
                let message = format!("`unsafe` in a file that {EXCEPTIONS} does not list for it");
                findings.push(Finding::new(&source.path, line, message));
            }
            (Some(file), None) => {
                let message = format!("{} holds no `unsafe`: remove it from the list", file.path);
                findings.push(Finding::new(EXCEPTIONS, file.at, message));
            }
            _ => {}
        }
    }
    for file in &exceptions.unsafe_files {
        if !modules.iter().any(|source| source.path == file.path) {
            findings.push(Finding::new(EXCEPTIONS, file.at, format!("there is no {}", file.path)));
        }
    }
    findings
}

/// The line of the first `unsafe` keyword; comments and strings hold none.
fn first_unsafe(tokens: TokenStream) -> Option<usize> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(name) if name == "unsafe" => Some(name.span().start().line),
        TokenTree::Group(group) => first_unsafe(group.stream()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn check_sample(text: &str, list: &str) -> Vec<String> {
        let tree = Tree::sample(&[("Cargo.toml", "[package]\n"), ("src/lib.rs", text)]);
        let modules = Modules::of(&tree, &mut Vec::new());
        let (exceptions, findings) = Exceptions::parse(list);
        assert_eq!(findings, []);
        check(&modules, &exceptions).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn unsafe_needs_a_place_in_the_list_and_the_list_a_need() {
        const LIST: &str = "[[unsafe]]\npath = \"src/lib.rs\"\nreason = \"calls the system\"\n";
        let none: [&str; 0] = [];
        let with = "//! A.\nfn f() {\n    m!(unsafe { g() })\n}\n";
        let without = "//! Nothing unsafe.\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert_eq!(check_sample(with, LIST), none);
        assert_eq!(check_sample(without, ""), none);
        assert_eq!(
            check_sample(with, ""),
            ["src/lib.rs:3: `unsafe` in a file that xtask/tidy.toml does not list for it"]
        );
        assert_eq!(
            check_sample(without, LIST),
            ["xtask/tidy.toml:1: src/lib.rs holds no `unsafe`: remove it from the list"]
        );
        let gone = LIST.replace("lib.rs", "gone.rs");
        assert_eq!(check_sample(without, &gone), ["xtask/tidy.toml:1: there is no src/gone.rs"]);
    }
}
