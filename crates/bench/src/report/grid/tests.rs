//! What each kind of figure becomes as rows and columns.

use super::*;
use crate::report::figures::{Axis, Bar, Column, Line, Point, Samples, Stack};

fn check(content: Content, expected: &[&[&str]]) {
    let grid = Grid::of(&Figure::new("t", "a", content));
    let heads = grid.heads.iter().map(|head| head.text.as_str()).collect::<Vec<_>>();
    let mut rows = vec![heads];
    rows.extend(grid.rows.iter().map(|row| row.iter().map(|place| place.text.as_str()).collect()));
    assert_eq!(rows, expected);
}

#[test]
fn bars() {
    let ran = Bar { rounds: vec![3e5, 1e5, 2e5], interval: Some([1.5e5, 2.5e5]), ..Bar::of("a") };
    let bars = vec![ran, Bar::of("b")];
    check(
        Content::Bars(Bars { unit: "op/s".to_string(), bars }),
        &[
            &["system", "median", "95 % interval", "lowest to highest", "rounds"],
            &["a", "200k op/s", "[150k op/s, 250k op/s]", "100k op/s to 300k op/s", "3"],
            &["b", "–", "", "", "0"],
        ],
    );
}

#[test]
fn stacks() {
    let stacks = vec![Stack { system: "a".to_string(), values: vec![900.0, 600.0] }, Stack::default()];
    let parts = vec!["user".to_string(), "system".to_string()];
    check(
        Content::Stacks(Stacks { unit: "ns".to_string(), parts, stacks }),
        &[
            &["system", "user", "system", "sum"],
            &["a", "900 ns", "600 ns", "1.50 µs"],
            &["", "–", "–", "0 ns"],
        ],
    );
}

#[test]
fn curves() {
    let points =
        vec![Point { x: 1e5, y: 90.0, is_hollow: false }, Point { x: 2e5, y: 9000.0, is_hollow: true }];
    let curve = Curve {
        x: Axis::linear("achieved", "op/s"),
        y: Axis::log("latency", "us"),
        lines: vec![Line { system: "a".to_string(), name: "p99".to_string(), points }],
        marks: Vec::new(),
    };
    check(
        Content::Curve(curve),
        &[
            &["system", "line", "achieved", "latency", ""],
            &["a", "p99", "100k op/s", "90.0 µs", ""],
            &["a", "p99", "200k op/s", "9.00 ms", "hollow"],
        ],
    );
}

#[test]
fn percentiles_are_claimed_while_ten_values_lie_above() {
    let rows = vec![[0.0, 1.0], [50.0, 2.0], [90.0, 3.0], [99.0, 4.0], [99.9, 5.0], [100.0, 6.0]];
    let lines = vec![Distribution { system: "a".to_string(), count: 1000, rows, ..Distribution::default() }];
    check(
        Content::Percentiles(Percentiles { unit: "ms".to_string(), is_log: false, lines }),
        &[
            &["system", "p50", "p90", "p99", "p99.9", "p99.99", "largest", "values"],
            &["a", "2.00 ms", "3.00 ms", "4.00 ms", "–", "–", "6.00 ms", "1,000"],
        ],
    );
}

#[test]
fn series_are_divided_by_their_baseline() {
    let samples = |system: &str, values: [f64; 2]| Samples {
        system: system.to_string(),
        points: vec![[0.0, values[0]], [1.0, values[1]]],
        ..Samples::default()
    };
    let series = Series {
        label: "resident memory".to_string(),
        unit: "bytes".to_string(),
        baseline: Some("a".to_string()),
        lines: vec![samples("a", [1024.0, 3072.0]), samples("b", [2048.0, 6144.0]), Samples::default()],
        events: Vec::new(),
    };
    check(
        Content::Series(series),
        &[
            &["system", "average", "peak", "average / a", "peak / a"],
            &["a", "2.00 KiB", "3.00 KiB", "1.00", "1.00"],
            &["b", "4.00 KiB", "6.00 KiB", "2.00", "2.00"],
            &["", "–", "–", "", ""],
        ],
    );
}

#[test]
fn ratios_say_no_more_than_their_interval() {
    let row = |name: &str, value, low, high| Row {
        name: name.to_string(),
        value,
        low,
        high,
        n: 12,
        ..Row::default()
    };
    let rows = vec![
        row("get", 1.18, 1.12, 1.25),
        row("set", 1.01, 0.95, 1.064),
        row("incr", 0.98, 0.97, 0.99),
        row("delete", 0.8, 0.75, 0.85),
        row("none", f64::NAN, 0.0, 0.0),
    ];
    let floor = Some([0.97, 1.03]);
    check(
        Content::Forest(Forest { label: "a / b".to_string(), of: Estimate::Ratio, rows, floor }),
        &[
            &["", "ratio", "95 % interval", "n", "finding"],
            &["get", "1.18", "[1.12, 1.25]", "12", "18 % more"],
            &["set", "1.01", "[0.95, 1.06]", "12", "no difference larger than 7 % detected"],
            &["incr", "0.98", "[0.97, 0.99]", "12", "differs, but no more than equal servers do"],
            &["delete", "0.80", "[0.75, 0.85]", "12", "20 % less"],
            &["none", "NaN", "[0.00, 0.00]", "12", "no ratio"],
        ],
    );
}

#[test]
fn tables_keep_rows_of_any_length() {
    let columns = vec![Column::plain("operation"), Column::of("latency", "us"), Column::of("rate", "op/s")];
    let rows = vec![vec!["set".into(), 1500.0.into(), 123_456.0.into(), "more".into()], vec!["get".into()]];
    check(
        Content::Table(Table { columns, rows }),
        &[&["operation", "latency", "rate, op/s"], &["set", "1.50 ms", "123,456"], &["get", "–", "–"]],
    );
}

#[test]
fn texts_that_begin_with_numbers_are_sorted_by_them() {
    let cases = [
        ("168.86µs", Some(168.86e-6)),
        ("10.00K", Some(10e3)),
        ("99.2 % [98, 99]", Some(99.2)),
        ("1,234", Some(1234.0)),
        ("set", None),
        ("", None),
        ("-", None),
    ];
    for (text, expected) in cases {
        let found = leading_number(text);
        let is_near = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() <= expected.abs() * 1e-12,
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_near, "{text}: {found:?}");
    }
}
