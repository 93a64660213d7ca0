//! The answer as a page of 80 columns, and a page on a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::Address;
use super::answer::Answer;

const COLUMNS: usize = 80;

/// A cell is a label on the left and a value on the right; two of them stand side by side.
const CELL_COLUMNS: usize = 37;
const GAP: &str = "  ";

/// The last disagreements that are shown; `--json` has them all.
const RECENT_MAX: usize = 5;

/// Keys of the table of strata: what they begin with, and the heading.
const TABLE: [(&str, &str); 3] =
    [("executed:", "executed"), ("validated:", "validated"), ("share:", "share")];

struct Section {
    title: &'static str,
    entries: &'static [Entry],
}

/// What a section shows.
enum Entry {
    /// A key and what it is called.
    Key(&'static str, &'static str),
    /// A key whose value is 0 or 1.
    Flag(&'static str, &'static str),
    /// All keys that begin like this; what follows is put behind what they are called.
    Family(&'static str, &'static str),
    /// The strata, a line each.
    Table,
}

use Entry::{Family, Flag, Key, Table};

const SECTIONS: &[Section] = &[
    Section {
        title: "Protection",
        entries: &[
            Key("protect", "mode"),
            Flag("protect_sync", "replies wait for validation"),
            Key("executions_per_command", "executions per command"),
            Flag("ready", "ready"),
        ],
    },
    Section {
        title: "Validation",
        entries: &[
            Key("executed", "executed"),
            Key("recorded", "recorded"),
            Key("validated", "validated"),
            Key("share", "share validated, p"),
            Key("skipped", "skipped"),
            Key("dropped", "dropped"),
            Key("abandoned", "abandoned"),
            Table,
        ],
    },
    Section {
        title: "Latency of validation, in microseconds",
        entries: &[
            Key("validation_us_p50", "p50"),
            Key("validation_us_p99", "p99"),
            Key("validation_us_p99.9", "p99.9"),
        ],
    },
    Section {
        title: "Ring",
        entries: &[
            Key("ring_lines", "lines of 64 bytes"),
            Key("ring_lines_waiting", "lines waiting"),
            Key("held_bytes", "bytes of items held"),
        ],
    },
    Section {
        title: "Disagreements and verdicts",
        entries: &[
            Key("disagreements", "disagreements"),
            Family("disagreements:", "kind"),
            Family("verdicts:", "verdict"),
            Key("contained", "contained"),
            Key("poisoned_keys", "poisoned keys"),
            Key("looked_back", "looked back"),
        ],
    },
    Section {
        title: "Memory: scrubber",
        entries: &[
            Key("scrub_items_per_second", "limit, items per second"),
            Key("scrubbed_items", "items checked"),
            Key("scrub_passes", "passes"),
            Key("scrub_pass_seconds", "last pass, seconds"),
            Key("scrub_damaged", "damaged"),
            Key("scrub_went_with_damaged", "forgotten with damaged ones"),
            Key("crc_mismatches", "damage found by anybody"),
        ],
    },
    Section {
        title: "Shadow index",
        entries: &[
            Key("shadow_share", "share of the keys"),
            Key("shadow_keys", "keys followed"),
            Key("shadow_checked", "checked"),
            Key("shadow_lost", "lost"),
            Key("shadow_stale", "stale"),
            Key("shadow_resurrected", "resurrected"),
        ],
    },
    Section {
        title: "Cores",
        entries: &[
            Key("worker_cores", "workers on"),
            Key("validator_cores", "validators on"),
            Key("independence", "independence"),
            Key("quarantined_cores", "quarantined"),
        ],
    },
    Section {
        title: "Replica",
        entries: &[
            Key("replica", "state"),
            Key("replica_acked", "acknowledged"),
            Key("replica_lag", "lag, in records"),
        ],
    },
];

/// The page: sections with what the server sent of them, then what has no section.
pub(super) fn lines(address: &Address, answer: &Answer) -> Vec<String> {
    let mut rest = Rest {
        stats: answer.stats.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
        shown: BTreeSet::new(),
    };
    let mut lines = vec![format!("{address}: {}", summary(answer))];
    for section in SECTIONS {
        let mut body = Vec::new();
        let mut cells = Vec::new();
        for entry in section.entries {
            match entry {
                Key(key, label) => cells.extend(rest.take(key).map(|value| cell(label, &grouped(value)))),
                Flag(key, label) => cells.extend(rest.take(key).map(|value| cell(label, yes_or_no(value)))),
                Family(prefix, label) => {
                    for (name, value) in rest.take_family(answer, prefix) {
                        cells.push(cell(&format!("{label} {name}"), &grouped(value)));
                    }
                }
                Table => body.extend(table(answer, &mut rest)),
            }
        }
        body.splice(0..0, side_by_side(&cells));
        put(&mut lines, section.title, body);
    }
    let recent = answer.recent.as_deref().unwrap_or_default();
    let recent = &recent[recent.len().saturating_sub(RECENT_MAX)..];
    put(&mut lines, "Last disagreements", recent.iter().map(|line| format!("  {line}")).collect());
    let others = answer.stats.iter().filter(|(key, _)| !rest.shown.contains(key.as_str()));
    let others: Vec<String> = others.map(|(key, value)| cell(key, value)).collect();
    put(&mut lines, "Other", side_by_side(&others));
    lines.iter().flat_map(|line| folded(line)).collect()
}

/// What is to be seen at one glance.
fn summary(answer: &Answer) -> String {
    let mut text = match answer.value("disagreements") {
        None | Some("0") => "no disagreements".into(),
        Some("1") => "1 disagreement".into(),
        Some(count) => format!("{} disagreements", grouped(count)),
    };
    if let Some(cores) = answer.quarantined() {
        let cores_or_core = if cores.bytes().all(|byte| byte.is_ascii_digit()) { "core" } else { "cores" };
        let _ = write!(text, "; {cores_or_core} {cores} in quarantine");
    }
    match answer.value("crc_mismatches") {
        None | Some("0") => {}
        Some("1") => text.push_str("; 1 damaged item"),
        Some(count) => {
            let _ = write!(text, "; {} damaged items", grouped(count));
        }
    }
    text
}

/// What the server sent, and what of it was shown.
struct Rest<'a> {
    stats: BTreeMap<&'a str, &'a str>,
    shown: BTreeSet<&'a str>,
}

impl<'a> Rest<'a> {
    fn take(&mut self, key: &str) -> Option<&'a str> {
        let (key, value) = self.stats.get_key_value(key)?;
        self.shown.insert(key);
        Some(value)
    }

    /// What follows the prefix, and the values, in the order the server sent them.
    fn take_family(&mut self, answer: &'a Answer, prefix: &str) -> Vec<(&'a str, &'a str)> {
        let mut family = Vec::new();
        for (key, _) in &answer.stats {
            if let Some(name) = key.strip_prefix(prefix)
                && !self.shown.contains(key.as_str())
                && let Some(value) = self.take(key)
            {
                family.push((name, value));
            }
        }
        family
    }
}

/// A line for each stratum, in the order the server names them first.
fn table(answer: &Answer, rest: &mut Rest<'_>) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<&str, [&str; TABLE.len()]> = BTreeMap::new();
    for (column, (prefix, _)) in TABLE.iter().enumerate() {
        for (key, _) in &answer.stats {
            if let Some(name) = key.strip_prefix(prefix)
                && let Some(value) = rest.take(key)
            {
                rows.entry(name).or_insert_with(|| {
                    names.push(name);
                    ["-"; TABLE.len()]
                })[column] = value;
            }
        }
    }
    if names.is_empty() {
        return Vec::new();
    }
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max("stratum".len());
    let row = |name: &str, [executed, validated, share]: [&str; 3]| {
        format!("  {name:width$}  {:>19}  {:>19}  {share:>6}", grouped(executed), grouped(validated))
    };
    let mut lines = vec![String::new(), row("stratum", TABLE.map(|(_, heading)| heading))];
    lines.extend(names.iter().map(|name| row(name, rows[name])));
    lines
}

/// A section, if there is something in it.
fn put(lines: &mut Vec<String>, title: &str, body: Vec<String>) {
    if !body.is_empty() {
        lines.extend([String::new(), title.to_owned()]);
        lines.extend(body);
    }
}

/// A label and a value, as wide as a cell is, or wider if they don't fit.
fn cell(label: &str, value: &str) -> String {
    let width = CELL_COLUMNS.saturating_sub(label.len() + 1);
    format!("{label} {value:>width$}")
}

/// Cells in two columns, read downwards; one that is too wide has a line of its own.
fn side_by_side(cells: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for run in cells.chunk_by(|a, b| a.len() == CELL_COLUMNS && b.len() == CELL_COLUMNS) {
        let (left, right) = run.split_at(run.len().div_ceil(2));
        for (row, cell) in left.iter().enumerate() {
            let other = right.get(row).map(|other| format!("{GAP}{GAP}{other}"));
            lines.push(format!("{GAP}{cell}{}", other.unwrap_or_default()));
        }
    }
    lines
}

/// A line as lines of 80 columns at most, broken at spaces if there are any.
fn folded(line: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.len() > COLUMNS {
        let indent = rest.len() - rest.trim_start().len();
        let at_space = rest[indent..=COLUMNS].rfind(' ').map(|place| indent + place);
        let end = at_space.filter(|place| *place > indent).unwrap_or(COLUMNS);
        lines.push(rest[..end].to_owned());
        rest = format!("    {}", rest[end..].trim_start());
    }
    lines.push(rest);
    lines
}

/// A whole number with commas between its thousands; anything else as it is.
fn grouped(text: &str) -> String {
    if text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut grouped = String::new();
    for (place, digit) in text.char_indices() {
        if place > 0 && (text.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn yes_or_no(value: &str) -> &str {
    match value {
        "0" => "no",
        "1" => "yes",
        other => other,
    }
}

/// Rows and columns of the terminal, if that can be asked for.
pub(super) fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_row > 1 && size.ws_col > 0).then_some((size.ws_row.into(), size.ws_col.into()))
}

/// A page drawn over the one before. On a terminal that is too low blank lines go first, then what is at the end.
pub(super) fn screen(lines: &[String], is_first: bool, size: Option<(usize, usize)>) -> String {
    // The cursor waits in the last row, so one less can be used.
    let (rows, columns) = size.map_or((usize::MAX, usize::MAX), |(rows, columns)| (rows - 1, columns));
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    if lines.len() > rows {
        lines.retain(|line| !line.is_empty());
    }
    let hidden = lines.len().saturating_sub(rows);
    let more = format!("({} more lines: needs a higher window)", hidden + 1);
    if hidden > 0 {
        lines.truncate(rows - 1);
        lines.push(&more);
    }
    let mut text = String::from(if is_first { "\x1b[2J\x1b[H" } else { "\x1b[H" });
    for line in lines {
        let _ = write!(text, "{}\x1b[K\r\n", &line[..line.len().min(columns)]);
    }
    text.push_str("\x1b[J");
    text
}
