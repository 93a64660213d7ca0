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
    /// All other keys that begin like this; what follows is put behind what they are called.
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
            Family("ring_", ""),
        ],
    },
    Section {
        title: "Disagreements and verdicts",
        entries: &[
            Key("disagreements", "disagreements"),
            Family("disagreements:", "kind"),
            Family("verdicts:", "verdict"),
            Key("unvoted", "without a vote"),
            Key("suspected_software", "suspected: software"),
            Key("contained", "contained"),
            Key("poisoned_keys", "poisoned keys"),
            Key("looked_back", "forgotten on looking back"),
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
            Family("shadow_", ""),
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
            Family("replica_", ""),
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
                        cells.push(cell(format!("{label} {name}").trim_start(), &grouped(value)));
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
    let is_executed_once = match answer.value("protect") {
        Some(mode) => mode == "vanilla",
        None => answer.value("executions_per_command") == Some("1"),
    };
    let mut text = match answer.value("disagreements") {
        // Nothing that could disagree is no good news.
        None | Some("0") if is_executed_once => "commands are executed once, none is compared".into(),
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
    let more = format!("({} more lines: in a taller window)", hidden + 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stats: &str, recent: Option<&[&str]>) -> Answer {
        let stats = stats.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        Answer {
            stats: stats.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            recent: recent.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect()),
        }
    }

    fn page(answer: &Answer) -> String {
        lines(&Address::Tcp("127.0.0.1:11211".into()), answer).join("\n")
    }

    const STATS: &str = include_str!("../../testdata/integrity_stats.txt");
    const PAGE: &str = include_str!("../../testdata/integrity_page.txt");

    /// Two of a server's last disagreements, one of them longer than a line.
    const RECENT: [&str; 2] = [
        "kind=outcome stratum=classic-fetch key=user%3A1048576 expected=91d2c3aa0f17b2e4 \
         found=91d2c3aa0f17b2e0 bit=2 first_core=3 second_core=4 seq=88120345 verdict=core_persistent",
        "kind=checksum stratum=classic-put key=k expected=1 found=2",
    ];

    #[test]
    fn everything() {
        assert_eq!(page(&answer(STATS, Some(&RECENT))), PAGE.trim_end());
        for line in PAGE.lines() {
            assert!(line.len() <= COLUMNS, "{line}");
        }
    }

    /// Of what the server doesn't send nothing is shown, not even a title.
    #[test]
    fn what_is_not_there_is_not_shown() {
        let page = page(&answer("executions_per_command 2\ndisagreements 0", None));
        let expected = "127.0.0.1:11211: no disagreements\n\n\
                        Protection\n  executions per command              2\n\n\
                        Disagreements and verdicts\n  disagreements                       0";
        assert_eq!(page, expected);
    }

    /// Each line of the answer can be found on the page, known or not.
    #[test]
    fn nothing_is_hidden() {
        let mut stats = STATS.to_owned();
        for number in 0..50 {
            stats.push_str(&format!("unknown_{number} value_{number}\n"));
        }
        let values = stats.lines().enumerate().map(|(number, line)| {
            let (key, _) = line.split_once(' ').expect("a key and a value");
            format!("{key} {}\n", 100 + number)
        });
        let stats: String = values.collect();
        let page = page(&answer(&stats, None));
        for number in 0..stats.lines().count() {
            assert!(page.contains(&format!(" {}", 100 + number)), "{number}: {page}");
        }
        for number in 0..50 {
            assert!(page.contains(&format!("  unknown_{number} ")), "{number}: {page}");
        }
    }

    #[test]
    fn at_one_glance() {
        for (stats, expected) in [
            ("disagreements 0\nquarantined_cores none\ncrc_mismatches 0", "no disagreements"),
            ("disagreements 1", "1 disagreement"),
            ("protect orthrus\nexecutions_per_command 1\ndisagreements 0", "no disagreements"),
            ("executions_per_command 1\ndisagreements 0", "commands are executed once, none is compared"),
            (
                "protect vanilla\ndisagreements 0\ncrc_mismatches 2",
                "commands are executed once, none is compared; 2 damaged items",
            ),
            (
                "disagreements 1234\nquarantined_cores 3\ncrc_mismatches 1",
                "1,234 disagreements; core 3 in quarantine; 1 damaged item",
            ),
            (
                "disagreements 0\nquarantined_cores 1,3\ncrc_mismatches 1000",
                "no disagreements; cores 1,3 in quarantine; 1,000 damaged items",
            ),
        ] {
            assert_eq!(summary(&answer(stats, None)), expected);
        }
    }

    /// Whatever the server sends, a line has 80 columns at most, and nothing gets lost.
    #[test]
    fn long_texts_are_folded() {
        let long = "Q".repeat(500);
        let spaced = "word ".repeat(100);
        let stats = format!(
            "protect {long}\nexecuted:{long} 1\nshare {spaced}\n{long} 5\nnew {spaced}\ndisagreements:{long} 18446744073709551615"
        );
        let page = page(&answer(&stats, Some(&[&long, &spaced, ""])));
        for line in page.lines() {
            assert!(line.len() <= COLUMNS, "{line}");
        }
        assert_eq!(page.matches('Q').count(), 5 * 500);
        assert_eq!(page.matches("word").count(), 3 * 100);
        let lines = folded(&format!("  {}", "a b ".repeat(20)));
        assert_eq!(lines, [format!("  {}a", "a b ".repeat(19)), "    b ".into()]);
    }

    #[test]
    fn numbers() {
        for (text, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("18446744073709551615", "18,446,744,073,709,551,615"),
            ("0.0100", "0.0100"),
            ("none", "none"),
            ("", ""),
        ] {
            assert_eq!(grouped(text), expected);
        }
    }

    #[test]
    fn on_a_terminal() {
        let lines: Vec<String> = ["one", "", "two", "three", "", "four"].map(String::from).into();
        let drawn = |size| screen(&lines, false, size);
        let rows = |rows: &[&str]| {
            let rows: String = rows.iter().map(|row| format!("{row}\x1b[K\r\n")).collect();
            format!("\x1b[H{rows}\x1b[J")
        };
        let all = rows(&["one", "", "two", "three", "", "four"]);
        assert_eq!(drawn(None), all);
        assert_eq!(drawn(Some((7, 80))), all);
        assert_eq!(screen(&lines, true, None), format!("\x1b[2J{all}"));
        for height in [5, 6] {
            assert_eq!(drawn(Some((height, 80))), rows(&["one", "two", "three", "four"]));
        }
        assert_eq!(drawn(Some((4, 80))), rows(&["one", "two", "(2 more lines: in a taller window)"]));
        assert_eq!(drawn(Some((2, 10))), rows(&["(4 more li"]));
        assert_eq!(drawn(Some((7, 2))), rows(&["on", "", "tw", "th", "", "fo"]));
    }
}
