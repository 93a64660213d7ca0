//! A campaign as a record keeps it: counts, what escaped, controls, and figures for reports.

use std::collections::BTreeMap;

use serde::Serialize;

use super::campaign::{Cell, Note, Results};
use super::control::Quiet;
use super::mode::Mode;
use super::outcome::Counts;
use super::trial::Lasting;
use super::unit;
use crate::record::Gate;
use crate::report::figures::{Cell as Place, Column, Content, Figure, Shown, Table};

/// What stands in a record of the kind `inject`.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Seconds that injecting took.
    pub seconds: f64,
    /// Servers that were started.
    pub servers: u64,
    /// Conversations whose code could not be seen.
    pub surveys_failed: u64,
    /// Faults with a known outcome that came to it.
    pub known_faults: u32,
    /// What servers without faults did.
    pub quiet: Vec<Quiet>,
    /// How many came to what, where and how.
    pub cells: Vec<Counted>,
    /// What came, elsewhere, of the faults that corrupted `vanilla`.
    pub pairs: BTreeMap<Mode, BTreeMap<String, u64>>,
    /// Those that nobody noticed, or that say nothing.
    pub notes: Vec<Note>,
    /// For reports.
    #[serde(flatten)]
    pub shown: Shown,
}

/// One kind of fault in one place.
#[derive(Debug, Serialize)]
pub struct Counted {
    #[serde(flatten)]
    cell: Cell,
    #[serde(flatten)]
    counts: Counts,
}

/// A record's results.
pub fn keep(results: &Results, modes: &[Mode], seconds: f64, quiet: &[Quiet], known_faults: u32) -> Kept {
    let cells = results.cells.iter().map(|(cell, counts)| Counted { cell: *cell, counts: counts.clone() });
    Kept {
        seconds,
        servers: results.servers,
        surveys_failed: results.surveys_failed,
        known_faults,
        quiet: quiet.to_vec(),
        cells: cells.collect(),
        pairs: results.pairs.clone(),
        notes: results.notes.clone(),
        shown: Shown {
            verdict: verdict(results, modes),
            figures: vec![outcomes(results, modes), coverage(results, modes)],
        },
    }
}

/// One sentence: the coverage of operator code in the mode that is the default, or in the last one.
pub fn verdict(results: &Results, modes: &[Mode]) -> String {
    let Some(mode) = modes.iter().find(|mode| **mode == Mode::Orthrus).or(modes.last()) else {
        return String::new();
    };
    let counts =
        results.sum(|cell| cell.mode == *mode && cell.lasting == Lasting::Transient && cell.is_operator_code);
    match (counts.coverage(), counts.interval()) {
        (Some(share), Some([low, high])) => format!(
            "{}: {:.1} % of transient faults in operator code that matter were noticed [{:.1}, {:.1}], n = {}.",
            mode.name(),
            share * 100.0,
            low * 100.0,
            high * 100.0,
            counts.relevant()
        ),
        _ => format!("{}: no fault in operator code mattered.", mode.name()),
    }
}

/// What must hold for the rest to mean something.
pub fn gates(results: &Results, modes: &[Mode], quiet: &[Quiet], known_faults: u32) -> Vec<Gate> {
    let operations: u64 = quiet.iter().map(|quiet| quiet.operations).sum();
    let noise: u64 = quiet.iter().map(|quiet| quiet.alarms + quiet.wrong).sum();
    let all = results.sum(|_| true);
    let errors = all.of("harness error");
    let mut gates = vec![
        gate("known faults come to what is known", known_faults > 0, format!("{known_faults} did")),
        gate("no fault, no alarm", noise == 0 && operations > 0, format!("{noise} in {operations} commands")),
        gate("harness errors below 2 %", errors * 50 <= all.tried, format!("{errors} of {}", all.tried)),
    ];
    if modes.contains(&Mode::Vanilla) {
        let missed = results.sum(|cell| cell.mode == Mode::Vanilla).of("undetected");
        gates.push(gate("without a detector, faults escape", missed > 0, format!("{missed} did")));
    }
    gates
}

fn gate(name: &str, is_met: bool, found: String) -> Gate {
    Gate { name: name.into(), is_met, found }
}

fn outcomes(results: &Results, modes: &[Mode]) -> Figure {
    let names = OUTCOMES.map(|(name, _)| name);
    let columns = ["mode", "tried"].into_iter().chain(names).chain(["wrong answers left"]);
    let row = |mode: &Mode| {
        let counts = results.sum(|cell| cell.mode == *mode);
        let numbers = OUTCOMES.iter().map(|(_, of)| of(&counts));
        let numbers = std::iter::once(counts.tried).chain(numbers).chain([counts.wrong_left]);
        std::iter::once(Place::from(mode.name()))
            .chain(numbers.map(|number| Place::from(number as f64)))
            .collect()
    };
    let table =
        Table { columns: columns.map(Column::plain).collect(), rows: modes.iter().map(row).collect() };
    Figure::new("What came of the faults", "A row per mode, a column per outcome.", Content::Table(table))
}

/// The columns of outcomes.
type Count = (&'static str, fn(&Counts) -> u64);
const OUTCOMES: [Count; 9] = [
    ("active", Counts::activated),
    ("masked", |counts| counts.of("masked")),
    ("false miss", |counts| counts.of("false miss")),
    ("error", |counts| counts.of("error")),
    ("noticed", Counts::detected),
    ("crash", |counts| counts.of("crash")),
    ("hang", |counts| counts.of("hang")),
    ("undetected", |counts| counts.of("undetected")),
    ("harness error", |counts| counts.of("harness error")),
];

/// A row of coverage: its name, and which cells it sums.
pub type Row = (&'static str, Box<dyn Fn(&Cell) -> bool>);

/// Rows of coverage: every unit, and the sums.
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for unit in unit::ALL {
        rows.push((unit.name(), Box::new(move |cell| cell.unit == unit)));
    }
    rows.push(("operators", Box::new(|cell| cell.is_operator_code)));
    rows.push(("whole path", Box::new(|_| true)));
    rows
}

/// Counts of transient faults, in one mode.
pub fn transient(results: &Results, mode: Mode, is_meant: &dyn Fn(&Cell) -> bool) -> Counts {
    results.sum(|cell| cell.mode == mode && cell.lasting == Lasting::Transient && is_meant(cell))
}

fn coverage(results: &Results, modes: &[Mode]) -> Figure {
    let columns = std::iter::once("unit").chain(modes.iter().map(|mode| mode.name())).map(Column::plain);
    let mut table = Table { columns: columns.collect(), rows: Vec::new() };
    for (name, is_meant) in rows() {
        let mut row = vec![Place::from(name)];
        row.extend(modes.iter().map(|mode| Place::from(share(&transient(results, *mode, &*is_meant)))));
        table.rows.push(row);
    }
    Figure::new(
        "Coverage of transient faults by unit",
        "Per unit and mode: the share of faults that were noticed of those that mattered, and how many those are.",
        Content::Table(table),
    )
    .with_note("Noticed of those noticed or wrong, in percent, with Wilson's 95 % interval and their number.")
}

/// A share with its interval and number: `99.1 [97.2, 99.7] 330`.
pub fn share(counts: &Counts) -> String {
    match (counts.coverage(), counts.interval()) {
        (Some(share), Some([low, high])) => {
            let percent = |share: f64| share * 100.0;
            format!("{:.1} [{:.1}, {:.1}] {}", percent(share), percent(low), percent(high), counts.relevant())
        }
        _ => "-".into(),
    }
}
