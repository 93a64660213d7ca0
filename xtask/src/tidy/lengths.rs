//! How long a function and a file may be.

use proc_macro2::Span;
use syn::visit::{self, Visit};

use super::list::{Exceptions, Long};
use super::modules::{Modules, Source, is_test_only};
use super::{EXCEPTIONS, Finding};

/// Lines of a function from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 600;

/// A function or a file, and how long it is.
struct Measured {
    path: String,
    function: Option<String>,
    line: usize,
    lines: usize,
}

pub(super) fn check(modules: &Modules, exceptions: &Exceptions) -> Vec<Finding> {
    let measured: Vec<Measured> = modules.iter().flat_map(measure).collect();
    let mut findings = Vec::new();
    for one in &measured {
        let listed = exceptions.long.iter().any(|long| long.is_for(one));
        if !listed && one.lines > one.limit() {
            let what = one.function.as_ref().map_or("the file".to_string(), |name| format!("fn {name}"));
            let message = format!("{what} has {} lines; the limit is {}", one.lines, one.limit());
            findings.push(Finding::new(&one.path, one.line, message));
        }
    }
    findings.extend(exceptions.long.iter().filter_map(|long| check_exception(long, &measured)));
    findings
}

/// An exception states exactly what is: slack would let the code grow again.
fn check_exception(long: &Long, measured: &[Measured]) -> Option<Finding> {
    let longest = measured.iter().filter(|one| long.is_for(one)).max_by_key(|one| one.lines);
    let message = match longest {
        None => format!("there is nothing of that name in {}", long.path),
        Some(one) if one.lines <= one.limit() => "no longer needed: remove the exception".to_string(),
        Some(one) if one.lines < long.lines => format!("lower the number to {}", one.lines),
        Some(one) if one.lines > long.lines => {
            format!("{} has grown to {} lines; {} are allowed", long.path, one.lines, long.lines)
        }
        Some(_) => return None,
    };
    Some(Finding::new(EXCEPTIONS, long.at, message))
}

impl Long {
    fn is_for(&self, one: &Measured) -> bool {
        self.path == one.path && self.function == one.function
    }
}

impl Measured {
    fn limit(&self) -> usize {
        if self.function.is_some() { FUNCTION_LINES_MAX } else { FILE_LINES_MAX }
    }
}

fn measure(source: &Source) -> Vec<Measured> {
    let mut visitor = Visitor { path: &source.path, functions: Vec::new(), test_lines: 0 };
    visitor.visit_file(&source.syntax);
    let mut measured = visitor.functions;
    if !source.test_only {
        let lines = source.lines - visitor.test_lines;
        measured.push(Measured { path: source.path.clone(), function: None, line: 1, lines });
    }
    measured
}

struct Visitor<'a> {
    path: &'a str,
    functions: Vec<Measured>,
    test_lines: usize,
}

impl Visitor<'_> {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line - first + 1;
        let function = Some(signature.ident.to_string());
        self.functions.push(Measured { path: self.path.to_string(), function, line: first, lines });
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let end: Option<Span> = item.content.as_ref().map(|(brace, _)| brace.span.close());
        if let (true, Some(end)) = (is_test_only(&item.attrs), end) {
            let first = item.attrs.first().map_or(item.mod_token.span, |first| first.pound_token.span);
            self.test_lines += end.end().line - first.start().line + 1;
        }
        visit::visit_item_mod(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    /// A file whose one function has `function` lines and whose whole has `file`, before a test module.
    fn sample(function: usize, file: usize) -> String {
        let body = "\n".repeat(function - 1);
        let rest = "//\n".repeat(file - function);
        let tests = "//\n".repeat(700);
        format!("fn long() {{{body}}}\n{rest}#[cfg(test)]\nmod tests {{\n{tests}}}\n")
    }

    fn check_sample(function: usize, file: usize, list: &str) -> Vec<String> {
        let text = sample(function, file);
        let tree = Tree::sample(&[
            ("Cargo.toml", "[package]\n"),
            ("src/lib.rs", &text),
            ("tests/t.rs", &"//\n".repeat(700)),
        ]);
        let modules = Modules::of(&tree, &mut Vec::new());
        let (exceptions, findings) = Exceptions::parse(list);
        assert_eq!(findings, []);
        check(&modules, &exceptions).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn only_what_is_over_the_limit_is_said() {
        let none: [&str; 0] = [];
        assert_eq!(check_sample(70, 600, ""), none);
        assert_eq!(check_sample(71, 600, ""), ["src/lib.rs:1: fn long has 71 lines; the limit is 70"]);
        assert_eq!(check_sample(70, 601, ""), ["src/lib.rs:1: the file has 601 lines; the limit is 600"]);
    }

    #[test]
    fn an_exception_states_the_exact_number() {
        let list = "[[function]]\npath = \"src/lib.rs\"\nname = \"long\"\nlines = 80\nreason = \"a sample in a test\"\n";
        for (lines, finding) in [
            (80, None),
            (79, Some("xtask/tidy.toml:1: lower the number to 79")),
            (81, Some("xtask/tidy.toml:1: src/lib.rs has grown to 81 lines; 80 are allowed")),
            (70, Some("xtask/tidy.toml:1: no longer needed: remove the exception")),
        ] {
            assert_eq!(check_sample(lines, 600, list), Vec::from_iter(finding), "{lines}");
        }
        let gone = list.replace("long", "other");
        assert_eq!(
            check_sample(70, 600, &gone),
            ["xtask/tidy.toml:1: there is nothing of that name in src/lib.rs"]
        );
    }
}
