//! The help and the page of flags, both made from the tables.

use std::fmt::Write;

use super::MEMCACHED_VERSION;
use super::extended::{EXTENDED, REFUSED};
use super::table::{Flag, Here, flags};

const WIDTH: usize = 80;

/// A blank at which no line ends.
const NO_BREAK: char = '\u{a0}';
const FLAG_COLUMN: usize = 26;
const OPTION_COLUMN: usize = 29;

/// The help of `-h`. Its first line and its words are read by test harnesses of memcached and its clients, so it
/// names no feature that is not here.
pub fn help() -> String {
    let mut out = format!("memcached {MEMCACHED_VERSION}\n");
    for flag in flags() {
        if !matches!(flag.here, Here::Refused(_) | Here::Hidden) {
            let text = with_default(flag.help, shown_default(flag));
            entry(&mut out, &names(flag), &text, FLAG_COLUMN);
        }
    }
    out.push_str("\nOptions of -o that do something here:\n");
    for row in EXTENDED.iter().filter(|row| row.here == Here::Honoured) {
        let name = match row.argument {
            Some(argument) => format!("   - {}={argument}", row.name),
            None => format!("   - {}", row.name),
        };
        entry(&mut out, &name, &with_default(row.help, row.default), OPTION_COLUMN);
    }
    out.push_str("\nOptions of -o that are accepted and change nothing but what statistics say:\n");
    let others = EXTENDED.iter().filter(|row| row.here != Here::Honoured).map(|row| row.name);
    wrap(&mut out, &others.collect::<Vec<_>>().join(" "), 3, 3);
    out.push('\n');
    let families = REFUSED.iter().map(|(family, _)| *family).collect::<Vec<_>>().join(" ");
    let refused = format!(
        "Refused with a message, because they are not supported: -e -S -Y -Z and the options of -o that begin \
         with {families}. docs/flags.md says more about every flag."
    );
    wrap(&mut out, &refused, 0, 0);
    out
}

/// The page `docs/flags.md`.
pub fn flags_page() -> String {
    let mut out = String::from(
        "# Flags of `veracache serve`\n\n\
         Every flag of memcached 1.6.45 is understood: `-m 64`, `-m64`, `--memory-limit=64` and\n\
         `--memory-limit 64` are the same, long names may be cut short, and one argument may hold flag, blank and\n\
         value (`\"-m 64\"`), as charts for containers pass them. `serve -h` prints a shorter form of this page.\n\
         Both are made from the table that parses the flags.\n\n\
         | flag | default | accepts | what it is for | here |\n|---|---|---|---|---|\n",
    );
    for flag in flags().filter(|flag| flag.here != Here::Hidden) {
        let default = flag.default.map_or(String::new(), |text| format!("`{text}`"));
        let _ = writeln!(
            out,
            "| `{}` | {default} | {} | {} | {} |",
            names(flag),
            flag.limit.unwrap_or(""),
            flag.help,
            here(flag.here),
        );
    }
    out.push_str(
        "\n## Options of `-o`\n\n\
         They stand in a comma-separated list, and `-o` may be repeated.\n\n\
         | option | default | what it is for | here |\n|---|---|---|---|\n",
    );
    for row in EXTENDED {
        let name = row.argument.map_or(row.name.to_owned(), |argument| format!("{}={argument}", row.name));
        let default = row.default.map_or(String::new(), |text| format!("`{text}`"));
        let _ = writeln!(out, "| `{name}` | {default} | {} | {} |", row.help, here(row.here));
    }
    for (family, why) in REFUSED {
        let _ = writeln!(out, "| `{family}…` | | | refused: {why} |");
    }
    out.push_str(DIFFERENCES);
    out
}

const DIFFERENCES: &str = "
## Where this differs from memcached on purpose

* As root without `-u` memcached refuses to start. This server warns and goes on, so that it can be tried in a
  container with one command.
* `-m` is the limit of everything the cache holds: items, index and buffers. memcached's is the limit of item
  memory alone.
* `-m` and `-I` take the suffixes k, m and g. A bare number means megabytes for `-m` and bytes for `-I`, as there.
* `-t` has 4 for its default only when there are four cores.
* `-I` need not be a multiple of `slab_chunk_max`.
* A word that is no flag is ignored, as there, but with a warning.
* Every refusal is one line on standard error and exit code 64 (71 for the system's own reasons, 67 for a user
  that does not exist, 1 for a value out of range), the codes that memcached ends with.
";

fn here(here: Here) -> String {
    match here {
        Here::Honoured => "honoured".into(),
        Here::Own => "honoured; not a flag of memcached's".into(),
        Here::NoEffect(why) => format!("no effect: {why}"),
        Here::Warned(why) => format!("no effect, with a warning: {why}"),
        Here::Refused(why) => format!("refused: {why}"),
        Here::Hidden => "for tests".into(),
    }
}

fn names(flag: &Flag) -> String {
    let mut names = match flag.short {
        Some(short) => format!("-{short}, --{}", flag.long),
        None => format!("--{}", flag.long),
    };
    if let Some(argument) = flag.argument {
        names.push('=');
        names.push_str(argument);
    }
    names
}

/// The default is shown where the help does not name it.
fn shown_default(flag: &Flag) -> Option<&'static str> {
    flag.default.filter(|_| !flag.help.contains("default"))
}

fn with_default(help: &str, default: Option<&str>) -> String {
    match default {
        Some(default) => format!("{help} (default:{NO_BREAK}{default})"),
        None => help.to_owned(),
    }
}

/// Two columns: a name, and a text that is wrapped beside it.
fn entry(out: &mut String, name: &str, text: &str, column: usize) {
    out.push_str(name);
    let used = name.chars().count();
    if used + 1 > column {
        out.push('\n');
        wrap(out, text, column, column);
    } else {
        out.extend(std::iter::repeat_n(' ', column - used));
        wrap(out, text, 0, column);
    }
}

/// Words in lines of at most `WIDTH` columns. The first line has `first` blanks before it, which are missing
/// when it continues a line that is `indent` wide already.
fn wrap(out: &mut String, text: &str, first: usize, indent: usize) {
    out.extend(std::iter::repeat_n(' ', first));
    let mut column = indent;
    let mut fresh = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !fresh && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.extend(word.chars().map(|c| if c == NO_BREAK { ' ' } else { c }));
        column += length;
        fresh = false;
    }
    out.push('\n');
}
