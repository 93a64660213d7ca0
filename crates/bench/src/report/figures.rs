//! What a record shows: pictures and tables as data, in a form that every kind of measurement has in common.
//!
//! A report knows these, not the kinds. A command that measured puts them into its results, beside its own fields:
//!
//! ```
//! use serde::Serialize;
//! use veracache_bench::report::figures::{Bar, Bars, Content, Figure, Shown};
//!
//! #[derive(Serialize)]
//! struct Results {
//!     rounds: u32,
//!     #[serde(flatten)]
//!     shown: Shown,
//! }
//!
//! let bars = [("vanilla", [1.9e5, 2.0e5]), ("orthrus", [1.7e5, 1.8e5])];
//! let bars = bars.map(|(system, rounds)| Bar { rounds: rounds.to_vec(), ..Bar::of(system) });
//! let figure = Figure::new(
//!     "orthrus serves 10 % fewer sets than vanilla",
//!     "Two bars: vanilla at 195 thousand and orthrus at 175 thousand operations per second.",
//!     Content::Bars(Bars { unit: "op/s".to_string(), bars: bars.to_vec() }),
//! );
//! let shown = Shown { verdict: "Validation costs 10 % of throughput.".to_string(), figures: vec![figure] };
//! let results = serde_json::to_value(Results { rounds: 2, shown }).unwrap();
//! assert_eq!(results["figures"][0]["draws"], "bars");
//! ```
//!
//! Values are finite. JSON has no other numbers; what is not finite or not there is left out by whoever builds a figure.
//!
//! Units are `s`, `ms`, `us`, `ns` for times, `bytes` for memory, `%`, or a word: `op/s`, `ns/op`. A report scales times,
//! bytes and big numbers by itself, so values stand in the unit given, unscaled.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many figures of one record are shown; a report says how many it left out.
pub const FIGURES_LIMIT: usize = 64;

/// The part of a record's results that a report shows, to be flattened into a kind's own struct.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Shown {
    /// What was found, in one sentence, with its interval where it has one.
    #[serde(default)]
    pub verdict: String,
    /// In the order in which they are read.
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// A picture or a table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Figure {
    /// What can be seen, as a sentence where there is a finding: `orthrus costs 10 % of throughput`.
    pub title: String,
    /// What somebody who can't see the picture must know. One or two sentences with the important values.
    #[serde(default)]
    pub alt: String,
    /// What must be known to read it right, below the picture: how it was measured, how many rounds. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it is made of.
    #[serde(flatten)]
    pub content: Content,
}

impl Figure {
    /// Without a note.
    pub fn new(title: impl Into<String>, alt: impl Into<String>, content: Content) -> Self {
        Figure { title: title.into(), alt: alt.into(), note: String::new(), content }
    }

    /// The same with a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// The forms of figures.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "draws", rename_all = "lowercase")]
pub enum Content {
    /// One value per system, from zero, with every round as a dot: throughput, CPU per request, bytes per item.
    Bars(Bars),
    /// Parts that add up, per system: user and system CPU per request.
    Stacks(Stacks),
    /// One quantity against another: latency against achieved throughput.
    Curve(Curve),
    /// Latency by percentile, as HdrHistogram draws it.
    Percentiles(Percentiles),
    /// The share of values up to a value.
    Cdf(Cdf),
    /// A quantity over time, with its average and peak per system: memory, operations per second.
    Series(Series),
    /// Estimates with their intervals, one per row: ratios, coverage.
    Forest(Forest),
    /// Rows and columns.
    Table(Table),
}

/// See [`Content::Bars`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Bars {
    /// Of every value.
    pub unit: String,
    /// From left to right; bars of one group stand together.
    pub bars: Vec<Bar>,
}

/// One bar, as high as the median of its rounds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Bar {
    /// Which has the same colour in every picture: `vanilla`, `memcached`.
    pub system: String,
    /// What was done, where there are several: `SET`, `GET`. Empty where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// One value per round; a bar with none is named as not measured.
    pub rounds: Vec<f64>,
    /// The ends of the 95 % interval of the median, where there are enough rounds for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Bar {
    /// Of a system, without rounds yet.
    pub fn of(system: impl Into<String>) -> Self {
        Bar { system: system.into(), ..Bar::default() }
    }
}

/// See [`Content::Stacks`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Stacks {
    /// Of every value.
    pub unit: String,
    /// From the bottom up: `user`, `system`.
    pub parts: Vec<String>,
    /// From left to right.
    pub stacks: Vec<Stack>,
}

/// One system's parts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Stack {
    /// As in [`Bar`].
    pub system: String,
    /// One for each of the parts.
    pub values: Vec<f64>,
}

/// See [`Content::Curve`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Curve {
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// In order of the legend.
    pub lines: Vec<Line>,
    /// A limit that was asked for, a knee that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// What an axis counts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Axis {
    /// `achieved rate`.
    pub label: String,
    /// `op/s`.
    pub unit: String,
    /// Whether it is logarithmic, which a report then says beside the label.
    #[serde(default)]
    pub is_log: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { label: label.into(), unit: unit.into(), is_log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { label: label.into(), unit: unit.into(), is_log: true }
    }
}

/// One line of a curve.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Line {
    /// As in [`Bar`]; decides the colour.
    pub system: String,
    /// Which of the system's lines: `p50`, `p99`. Decides the dashes. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Joined in this order.
    pub points: Vec<Point>,
}

/// One point of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Point {
    /// In the unit of its axis.
    pub x: f64,
    /// In the unit of its axis.
    pub y: f64,
    /// Whether it must be read with care: less was achieved than offered, a gate was not met.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hollow: bool,
}

/// A line across a curve.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Mark {
    /// Which axis it crosses.
    pub on: Side,
    /// Where, in the unit of that axis.
    pub at: f64,
    /// `p99 limit`, `capacity`.
    pub text: String,
}

/// An axis of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// A vertical line.
    X,
    /// A horizontal line.
    Y,
}

/// See [`Content::Percentiles`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Percentiles {
    /// Of every value.
    pub unit: String,
    /// Whether the axis of values is logarithmic.
    #[serde(default)]
    pub is_log: bool,
    /// In order of the legend.
    pub lines: Vec<Distribution>,
}

/// See [`Content::Cdf`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Cdf {
    /// Of every value.
    pub unit: String,
    /// What the values are: `validation latency`.
    pub label: String,
    /// Whether the axis of values is logarithmic.
    #[serde(default)]
    pub is_log: bool,
    /// In order of the legend.
    pub lines: Vec<Distribution>,
}

/// One distribution.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Distribution {
    /// As in [`Bar`].
    pub system: String,
    /// As in [`Line`]: `response`, `service`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How many values were recorded: a percentile that fewer than ten of them lie above is not drawn.
    pub count: u64,
    /// Percentile (0 to 100) and value at it, both ascending: the rows of an `.hgrm` file.
    pub rows: Vec<[f64; 2]>,
}

/// See [`Content::Series`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Series {
    /// What is shown: `resident memory`.
    pub label: String,
    /// Of every value.
    pub unit: String,
    /// The system that averages and peaks of the others are divided by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// In order of the legend.
    pub lines: Vec<Samples>,
    /// What happened meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// One system over time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Samples {
    /// As in [`Bar`].
    pub system: String,
    /// As in [`Line`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Seconds since the start, ascending, and the value then.
    pub points: Vec<[f64; 2]>,
}

/// Something that happened at one time.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Event {
    /// Seconds since the start.
    pub seconds: f64,
    /// In a word or two.
    pub text: String,
}

/// See [`Content::Forest`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Forest {
    /// What is estimated: `requests per second, veracache / memcached`.
    pub label: String,
    /// What the estimates are.
    pub of: Estimate,
    /// From top to bottom.
    pub rows: Vec<Row>,
    /// The ends of what equal things are found to differ by, where that was measured: an A/A run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<[f64; 2]>,
}

/// What a forest's estimates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Estimate {
    /// Positive, on a logarithmic axis about 1.
    Ratio,
    /// From 0 to 1, on a linear axis, shown in percent.
    Share,
}

/// One estimate with its 95 % interval.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// What it is of: `get, 16 deep`, `store, orthrus`.
    pub name: String,
    /// As in [`Bar`]; empty where rows don't belong to systems.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The estimate.
    pub value: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where the interval ends.
    pub high: f64,
    /// How many rounds or trials it rests on.
    pub n: u64,
}

/// See [`Content::Table`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Table {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Each as long as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// Of numbers in it; empty for counts and for texts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

impl Column {
    /// Of texts or counts.
    pub fn plain(name: impl Into<String>) -> Self {
        Column { name: name.into(), unit: String::new() }
    }

    /// Of quantities.
    pub fn of(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Column { name: name.into(), unit: unit.into() }
    }
}

/// One place in a table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// In the column's unit; scaled and aligned by the report.
    Number(f64),
    /// As it is, where a layout is given by somebody else's document, or there is no number.
    Text(String),
    /// Nothing was measured.
    Empty,
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Cell::Number(value)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_string())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

/// A record's verdict and those of its figures that can be read, and what is wrong with the others, one line each.
pub fn shown(results: &Value) -> (Shown, Vec<String>) {
    let verdict = results.get("verdict").and_then(Value::as_str).unwrap_or_default().to_string();
    let list = results.get("figures").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut figures = Vec::new();
    let mut complaints = Vec::new();
    for (number, value) in list.iter().take(FIGURES_LIMIT).enumerate() {
        match Figure::deserialize(value) {
            Ok(figure) => figures.push(figure),
            Err(error) => complaints.push(format!("figure {} can't be shown: {error}", number + 1)),
        }
    }
    if list.len() > FIGURES_LIMIT {
        complaints.push(format!("{} further figures are left out", list.len() - FIGURES_LIMIT));
    }
    (Shown { verdict, figures }, complaints)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_come_back() {
        let table = Table {
            columns: vec![Column::plain("operation"), Column::of("latency", "us")],
            rows: vec![vec!["set".into(), 1.5.into()], vec!["get".into(), Cell::Empty]],
        };
        let curve = Curve {
            x: Axis::linear("achieved", "op/s"),
            y: Axis::log("latency", "us"),
            lines: vec![Line { points: vec![Point { x: 1.0, y: 2.0, is_hollow: true }], ..Line::default() }],
            marks: vec![Mark { on: Side::Y, at: 1000.0, text: "limit".to_string() }],
        };
        let figures = [Content::Table(table), Content::Curve(curve)];
        let figures =
            figures.map(|content| Figure::new("a title", "an alternative", content).with_note("why"));
        let before = Shown { verdict: "a verdict".to_string(), figures: figures.to_vec() };
        let (after, complaints) = shown(&serde_json::to_value(&before).expect("finite numbers"));
        assert_eq!(after, before);
        assert!(complaints.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let bad = json!({ "verdict": 7, "figures": [{ "title": "t", "draws": "a cake" }, 5] });
        let (found, complaints) = shown(&bad);
        assert_eq!(found, Shown::default());
        assert_eq!(complaints.len(), 2);
        assert!(complaints[0].starts_with("figure 1 can't be shown: unknown variant"), "{complaints:?}");
        let many = json!({ "figures": vec![json!({}); FIGURES_LIMIT + 3] });
        assert_eq!(shown(&many).1.last().map(String::as_str), Some("3 further figures are left out"));
    }
}
