//! What no Rust file may hold: unfinished work, tests that are skipped, or a first line without a purpose.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use super::Finding;
use super::modules::{Modules, Source};

const MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
const ATTRIBUTES: [&str; 2] = ["ignore", "should_panic"];

pub(super) fn check(modules: &Modules) -> Vec<Finding> {
    modules.iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !begins_with_purpose(source) {
        findings.push(Finding::new(&source.path, 1, "begins without a `//!` line that says what it is for"));
    }
    scan(source.tokens.clone(), &mut |name, what| {
        let line = name.span().start().line;
        findings.push(Finding::new(&source.path, line, what));
    });
    findings
}

/// Whether an inner doc comment is the file's first token.
fn begins_with_purpose(source: &Source) -> bool {
    let Some(first) = source.syntax.attrs.first() else { return false };
    let is_inner = matches!(first.style, syn::AttrStyle::Inner(_));
    is_inner && first.path().is_ident("doc") && first.pound_token.span.start().line == 1
}

/// Tells `found` of every banned macro call and attribute, with what to say about it.
fn scan(tokens: TokenStream, found: &mut impl FnMut(&Ident, String)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &tokens[before]);
        match token {
            TokenTree::Ident(name) if MACROS.iter().any(|banned| name == banned) => {
                // `todo != 1` is a comparison; a call has its arguments behind the mark.
                let is_call = matches!(tokens.get(index + 2), Some(TokenTree::Group(_)));
                if is_call && is_punct(&tokens[index + 1], '!') {
                    found(name, format!("`{name}!` is unfinished work"));
                }
            }
            TokenTree::Group(group) => {
                let is_attribute = group.delimiter() == Delimiter::Bracket
                    && before.is_some_and(|token| is_punct(token, '#') || is_punct(token, '!'));
                if is_attribute {
                    check_attribute(group.stream(), found);
                }
                scan(group.stream(), found);
            }
            _ => {}
        }
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// The attribute itself, or one that `cfg_attr` puts in its place.
fn check_attribute(attribute: TokenStream, found: &mut impl FnMut(&Ident, String)) {
    let mut tokens = attribute.into_iter();
    let Some(TokenTree::Ident(name)) = tokens.next() else { return };
    if ATTRIBUTES.iter().any(|banned| name == banned) {
        found(&name, format!("`#[{name}]` hides a test's result"));
    }
    if name == "cfg_attr" {
        let Some(TokenTree::Group(arguments)) = tokens.next() else { return };
        for token in arguments.stream() {
            if let TokenTree::Ident(inner) = &token
                && ATTRIBUTES.iter().any(|banned| inner == banned)
            {
                found(inner, format!("`#[{inner}]` hides a test's result"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn check_text(text: &str) -> Vec<String> {
        let tree = Tree::sample(&[("src/a.rs", text)]);
        let modules = Modules::of(&tree, &mut Vec::new());
        check(&modules).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_begins_with_its_purpose() {
        let none: [&str; 0] = [];
        assert_eq!(check_text("//! What it is for.\n\nfn f() {}\n"), none);
        for text in
            ["fn f() {}\n", "\n//! Late.\n", "// Plain.\n", "#![forbid(unsafe_code)]\n//! Late.\n", ""]
        {
            let finding = "src/a.rs:1: begins without a `//!` line that says what it is for";
            assert_eq!(check_text(text), [finding], "{text}");
        }
    }

    #[test]
    fn unfinished_work_and_skipped_tests_are_findings() {
        for (line, what) in [
            ("fn f() { dbg!(1); }", "`dbg!` is unfinished work"),
            ("fn f() { todo!() }", "`todo!` is unfinished work"),
            ("fn f() { m! { std::unimplemented!(\"x\") } }", "`unimplemented!` is unfinished work"),
            ("#[test] #[ignore] fn f() {}", "`#[ignore]` hides a test's result"),
            ("#[ignore = \"slow\"] fn f() {}", "`#[ignore]` hides a test's result"),
            ("#[should_panic(expected = \"x\")] fn f() {}", "`#[should_panic]` hides a test's result"),
            ("#[cfg_attr(loom, ignore)] fn f() {}", "`#[ignore]` hides a test's result"),
        ] {
            assert_eq!(check_text(&format!("//! A.\n{line}\n")), [format!("src/a.rs:2: {what}")]);
        }
    }

    #[test]
    fn words_in_strings_comments_and_names_are_no_findings() {
        let none: [&str; 0] = [];
        let text = "//! Bans `todo!`.\n// dbg!(1)\nfn ignore() { let todo = \"dbg!(1)\"; f(todo != \"\", [ignore]); }\n";
        assert_eq!(check_text(text), none);
    }
}
