//! What a report says, before it is decided in which form: runs in order, their validity, their figures.

use serde_json::Value;

use super::escape::clean_all;
use super::figures::{Cell, Column, Content, Figure, Shown, Table, shown};
use super::palette::Palette;
use crate::error::Error;
use crate::record::{Environment, Record};

/// How many runs one report may have.
const RUNS_LIMIT: usize = 500;
/// How many values are listed of results without figures.
const PLAIN_LIMIT: usize = 60;

/// The kinds in the order in which they are told of, with what each is headed by and asks.
const KINDS: [(&str, &str, &str); 7] = [
    (
        "compare",
        "Comparison of servers",
        "Which server does more, and is the difference larger than what chance makes?",
    ),
    (
        "protect",
        "What protection costs",
        "What does checking every answer cost in throughput, latency and memory?",
    ),
    (
        "inject",
        "Faults on purpose",
        "Which share of corrupting faults is found before a wrong answer leaves?",
    ),
    ("demo", "A sick core", "How long does it take until a core that computes wrong results is left?"),
    ("load", "Load", "How long do answers take, and at which rate?"),
    ("speed", "Memcache Speed Test", "How long do six simple phases take?"),
    ("pool", "A pool of connections", "How long do requests take that share a few connections?"),
];

/// A report.
#[derive(Debug)]
pub(super) struct Document {
    /// What it is about.
    pub(super) title: String,
    /// By kind, and in the order of the files within one.
    pub(super) runs: Vec<Run>,
    /// Colours for all pictures.
    pub(super) palette: Palette,
    /// The records as they were read, one per line.
    pub(super) raw: String,
}

/// One record.
#[derive(Debug)]
pub(super) struct Run {
    /// Without anything in its texts that is not text.
    pub(super) record: Record,
    /// What it shows.
    pub(super) shown: Shown,
    /// What of it can't be shown.
    pub(super) complaints: Vec<String>,
}

/// Whether a run's results mean what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    /// All its conditions are met.
    Valid(usize),
    /// It has none.
    Unknown,
    /// Some are not met.
    Doubtful(usize),
    /// It did not come to its end.
    Incomplete(String),
}

impl Document {
    /// Of records, under a title of the caller's or one that follows from the kinds.
    pub(super) fn of(records: &[Record], title: Option<&str>) -> Result<Self, Error> {
        if records.is_empty() {
            return Err(Error::Usage(
                "the files hold no results; a measurement with --output FILE adds one".to_string(),
            ));
        }
        if records.len() > RUNS_LIMIT {
            let text =
                format!("{} results are too many for one report; the limit is {RUNS_LIMIT}", records.len());
            return Err(Error::Usage(text));
        }
        let mut raw = String::new();
        for record in records {
            raw.push_str(&serde_json::to_string(record).expect("records have string keys and finite depth"));
            raw.push('\n');
        }
        let mut runs = records.iter().map(Run::of).collect::<Result<Vec<_>, _>>()?;
        runs.sort_by_key(|run| place(&run.record.kind));
        let palette = Palette::of(runs.iter().flat_map(|run| &run.shown.figures));
        let is_one_kind = runs.iter().all(|run| run.record.kind == runs[0].record.kind);
        let title = match title {
            Some(title) => super::escape::clean(title),
            None if is_one_kind => runs[0].heading().to_string(),
            None => "Measurements".to_string(),
        };
        Ok(Document { title, runs, palette, raw })
    }

    /// The places where it was measured, each once.
    pub(super) fn environments(&self) -> Vec<Environment> {
        let mut places: Vec<Environment> = Vec::new();
        for run in &self.runs {
            let here = &run.record.environment;
            match places.iter_mut().find(|known| is_same_place(known, here)) {
                Some(known) => {
                    for server in &here.servers {
                        let is_known = known.servers.iter().any(|other| {
                            (&other.name, &other.command, &other.version)
                                == (&server.name, &server.command, &server.version)
                        });
                        if !is_known {
                            known.servers.push(server.clone());
                        }
                    }
                }
                None => places.push(here.clone()),
            }
        }
        places
    }

    /// How many conditions there are, and how many of them are met.
    pub(super) fn gates(&self) -> (usize, usize) {
        let gates = || self.runs.iter().flat_map(|run| &run.record.gates);
        (gates().count(), gates().filter(|gate| gate.is_met).count())
    }
}

fn place(kind: &str) -> usize {
    KINDS.iter().position(|(name, ..)| *name == kind).unwrap_or(KINDS.len())
}

fn is_same_place(one: &Environment, other: &Environment) -> bool {
    let machine =
        |place: &Environment| (place.cpu.clone(), place.cpus, place.memory_bytes, place.kernel.clone());
    let state =
        |place: &Environment| (place.version.clone(), place.governor.clone(), place.huge_pages.clone());
    machine(one) == machine(other) && state(one) == state(other)
}

impl Run {
    fn of(record: &Record) -> Result<Self, Error> {
        let mut value = serde_json::to_value(record).expect("records have string keys and finite depth");
        clean_all(&mut value);
        let record: Record = serde_json::from_value(value)
            .map_err(|error| Error::Usage(format!("a result can't be shown: {error}")))?;
        let (mut shown, mut complaints) = shown(&record.results);
        if shown.figures.is_empty() {
            match plain(&record.results) {
                Some(figure) => shown.figures.push(figure),
                None if complaints.is_empty() => {
                    complaints.push("there is nothing in it to show".to_string())
                }
                None => {}
            }
        }
        Ok(Run { record, shown, complaints })
    }

    /// What its kind is headed by.
    pub(super) fn heading(&self) -> &str {
        KINDS.get(place(&self.record.kind)).map_or(&self.record.kind, |(_, heading, _)| heading)
    }

    /// What its kind asks.
    pub(super) fn question(&self) -> &'static str {
        KINDS.get(place(&self.record.kind)).map_or("", |(.., question)| question)
    }

    /// Its verdict, or that it has none.
    pub(super) fn verdict(&self) -> &str {
        if self.shown.verdict.is_empty() { "Measured; no verdict was drawn." } else { &self.shown.verdict }
    }

    /// Whether its results mean what they say.
    pub(super) fn validity(&self) -> Validity {
        if let Some(why) = &self.record.incomplete {
            return Validity::Incomplete(why.clone());
        }
        let missed = self.record.gates.iter().filter(|gate| !gate.is_met).count();
        match (self.record.gates.len(), missed) {
            (0, _) => Validity::Unknown,
            (count, 0) => Validity::Valid(count),
            (_, missed) => Validity::Doubtful(missed),
        }
    }
}

impl Validity {
    /// In a few words.
    pub(super) fn words(&self) -> String {
        match self {
            Validity::Valid(1) => "valid: its one condition is met".to_string(),
            Validity::Valid(count) => format!("valid: all {count} conditions are met"),
            Validity::Unknown => "no conditions were checked".to_string(),
            Validity::Doubtful(1) => "doubtful: 1 condition is not met".to_string(),
            Validity::Doubtful(count) => format!("doubtful: {count} conditions are not met"),
            Validity::Incomplete(why) => format!("incomplete: {why}"),
        }
    }
}

/// The plain values of results that have no figures.
fn plain(results: &Value) -> Option<Figure> {
    let fields =
        results.as_object()?.iter().filter(|(name, _)| !["figures", "verdict"].contains(&name.as_str()));
    let cell = |value: &Value| match value {
        Value::Number(number) => number.as_f64().map(Cell::Number),
        Value::String(text) => Some(Cell::Text(text.clone())),
        Value::Bool(value) => Some(Cell::Text(value.to_string())),
        _ => None,
    };
    let rows = fields.filter_map(|(name, value)| Some(vec![name.replace('_', " ").into(), cell(value)?]));
    let rows: Vec<Vec<Cell>> = rows.take(PLAIN_LIMIT).collect();
    if rows.is_empty() {
        return None;
    }
    let columns = vec![Column::plain("what"), Column::plain("value")];
    Some(Figure::new("Results", "", Content::Table(Table { columns, rows })))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::{Contender, Gate};

    fn record(kind: &str, results: Value) -> Record {
        Record { results, ..Record::begin(kind, 1) }
    }

    #[test]
    fn runs_come_by_kind() {
        let kinds = ["pool", "later", "load", "compare", "load"];
        let records = kinds.map(|kind| record(kind, json!({ "verdict": kind })));
        let document = Document::of(&records, None).expect("five records");
        let order: Vec<&str> = document.runs.iter().map(|run| run.record.kind.as_str()).collect();
        assert_eq!(order, ["compare", "load", "load", "pool", "later"]);
        assert_eq!(document.title, "Measurements");
        assert_eq!(document.runs[4].heading(), "later");
        assert_eq!(document.raw.lines().count(), 5);
        assert!(Document::of(&[], None).expect_err("none").to_string().contains("no results"));
        assert!(Document::of(&vec![records[0].clone(); RUNS_LIMIT + 1], None).is_err());
    }

    #[test]
    fn results_without_figures_are_listed() {
        let results = json!({ "requests": 5, "mean_us": 1.5, "name": "x", "list": [1] });
        let document = Document::of(&[record("load", results)], None).expect("a record");
        let Content::Table(table) = &document.runs[0].shown.figures[0].content else { panic!("no table") };
        assert_eq!(table.rows.len(), 3);
        let nothing = Document::of(&[record("load", json!(null))], None).expect("a record");
        assert_eq!(nothing.runs[0].complaints, ["there is nothing in it to show"]);
    }

    #[test]
    fn validity_is_that_of_the_gates() {
        let gate = |is_met| Gate { name: "g".to_string(), is_met, found: "f".to_string() };
        let mut one = record("load", json!({}));
        let validity = |record: &Record| Run::of(record).expect("a record").validity().words();
        assert_eq!(validity(&one), "no conditions were checked");
        one.gates = vec![gate(true), gate(true)];
        assert_eq!(validity(&one), "valid: all 2 conditions are met");
        one.gates.push(gate(false));
        assert_eq!(validity(&one), "doubtful: 1 condition is not met");
        one.incomplete = Some("interrupted".to_string());
        assert_eq!(validity(&one), "incomplete: interrupted");
    }

    #[test]
    fn a_place_is_told_of_once_with_all_its_servers() {
        let server =
            |name: &str| Contender { name: name.to_string(), command: String::new(), version: String::new() };
        let mut records = [record("load", json!({})), record("pool", json!({})), record("speed", json!({}))];
        records[0].environment.servers = vec![server("a")];
        records[1].environment.servers = vec![server("b"), server("a")];
        records[2].environment.kernel = "another".to_string();
        let places = Document::of(&records, None).expect("records").environments();
        assert_eq!(places.iter().map(|place| place.servers.len()).collect::<Vec<_>>(), [2, 0]);
    }
}
