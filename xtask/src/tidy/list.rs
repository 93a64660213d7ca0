//! The exceptions file: what may be longer than the rule says, and which files may hold `unsafe`.

use toml::{Table, Value};

use super::{EXCEPTIONS, Finding};

/// Shortest reason that can be one.
const REASON_CHARS_MIN: usize = 15;

/// A function or file that is longer than the rule allows, by a number that only shrinks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Long {
    pub(super) path: String,
    /// The function's name; `None` for a file.
    pub(super) function: Option<String>,
    pub(super) lines: usize,
    /// Line in the exceptions file.
    pub(super) at: usize,
}

/// A file that may hold `unsafe`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnsafeFile {
    pub(super) path: String,
    /// Line in the exceptions file.
    pub(super) at: usize,
}

/// The parsed exceptions file.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    pub(super) long: Vec<Long>,
    pub(super) unsafe_files: Vec<UnsafeFile>,
}

impl Exceptions {
    /// Takes what can be read and reports the rest.
    pub(super) fn parse(text: &str) -> (Exceptions, Vec<Finding>) {
        let mut exceptions = Exceptions::default();
        let mut findings = Vec::new();
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| line_at(text, span.start));
                findings.push(Finding::new(EXCEPTIONS, line, error.message()));
                return (exceptions, findings);
            }
        };
        for (kind, entries) in &table {
            if !matches!(kind.as_str(), "file" | "function" | "unsafe") {
                findings.push(Finding::new(EXCEPTIONS, 1, format!("unknown kind of exception '{kind}'")));
                continue;
            }
            for (at, entry) in headers(text, kind).zip(entries.as_array().into_iter().flatten()) {
                if let Err(message) = exceptions.add(kind, entry, at) {
                    findings.push(Finding::new(EXCEPTIONS, at, message));
                }
            }
        }
        (exceptions, findings)
    }

    fn add(&mut self, kind: &str, entry: &Value, at: usize) -> Result<(), String> {
        let text = |key: &str| {
            let found = entry.get(key).and_then(Value::as_str);
            found.map(str::to_string).ok_or(format!("the exception needs a text '{key}'"))
        };
        let path = text("path")?;
        if text("reason")?.chars().count() < REASON_CHARS_MIN {
            return Err(format!("the reason for {path} says too little"));
        }
        if kind == "unsafe" {
            self.unsafe_files.push(UnsafeFile { path, at });
            return Ok(());
        }
        let function = if kind == "function" { Some(text("name")?) } else { None };
        let lines = entry.get("lines").and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let lines = lines.ok_or("the exception needs a number 'lines'")?;
        self.long.push(Long { path, function, lines, at });
        Ok(())
    }

    fn long(&self, path: &str, function: Option<&str>) -> Option<&Long> {
        self.long.iter().find(|long| long.path == path && long.function.as_deref() == function)
    }
}

/// The lines of the `[[kind]]` headers, in order.
fn headers(text: &str, kind: &str) -> impl Iterator<Item = usize> {
    let header = format!("[[{kind}]]");
    text.lines().enumerate().filter(move |(_, line)| line.trim() == header).map(|(index, _)| index + 1)
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// A number in the exceptions file never grows against the commits before.
pub(super) fn check_shrinking(now: &Exceptions, earlier: &[Exceptions]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for long in &now.long {
        let before = earlier.iter().filter_map(|list| list.long(&long.path, long.function.as_deref()));
        if let Some(least) = before.map(|long| long.lines).min().filter(|least| *least < long.lines) {
            let message = format!("the number only shrinks: {} lines were enough before", least);
            findings.push(Finding::new(EXCEPTIONS, long.at, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[[file]]\npath = \"a.rs\"\nlines = 700\nreason = \"a table of all commands\"\n";

    fn parse(text: &str) -> Exceptions {
        let (exceptions, findings) = Exceptions::parse(text);
        assert_eq!(findings, []);
        exceptions
    }

    #[test]
    fn entries_are_read_with_their_line() {
        let exceptions = parse(&format!(
            "{FILE}\n[[function]]\npath = \"b.rs\"\nname = \"f\"\nlines = 80\nreason = \"one match over all\"\n\
             [[unsafe]]\npath = \"c.rs\"\nreason = \"calls the system\"\n"
        ));
        let function = Long { path: "b.rs".into(), function: Some("f".into()), lines: 80, at: 6 };
        let file = Long { path: "a.rs".into(), function: None, lines: 700, at: 1 };
        assert_eq!(exceptions.long, [file, function]);
        assert_eq!(exceptions.unsafe_files, [UnsafeFile { path: "c.rs".into(), at: 11 }]);
    }

    #[test]
    fn an_entry_without_a_reason_or_a_number_is_a_finding() {
        for (text, message) in [
            ("[[file]]\npath = \"a.rs\"\nlines = 700\n", "the exception needs a text 'reason'"),
            (
                "[[file]]\npath = \"a.rs\"\nlines = 700\nreason = \"big\"\n",
                "the reason for a.rs says too little",
            ),
            (
                "[[file]]\npath = \"a.rs\"\nreason = \"a table of all commands\"\n",
                "the exception needs a number 'lines'",
            ),
            ("[[flie]]\n", "unknown kind of exception 'flie'"),
        ] {
            let (_, findings) = Exceptions::parse(text);
            assert_eq!(findings, [Finding::new(EXCEPTIONS, 1, message)]);
        }
    }

    #[test]
    fn a_number_may_shrink_but_not_grow() {
        let grown = parse(&FILE.replace("700", "701"));
        let found = check_shrinking(&grown, &[parse(FILE)]);
        let message = "the number only shrinks: 700 lines were enough before";
        assert_eq!(found, [Finding::new(EXCEPTIONS, 1, message)]);
        assert_eq!(check_shrinking(&parse(FILE), &[grown]), []);
    }
}
