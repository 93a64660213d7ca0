//! The report for a terminal of 80 columns.

use std::fmt::Write;

use super::document::{Document, Run};
use super::figures::{Bars, Content, Estimate, Figure, Forest, Samples, Series, Stacks};
use super::grid::{Grid, Head, Place, estimate};
use super::page::{command_line, conditions, convention, facts, run_name};
use super::quantity::{is_usable, median, show};
use super::scale::{Scale, usize_as_f64};

const COLUMNS: usize = 80;
/// How many rows of one table are printed; the page and the records have all.
const ROWS_LIMIT: usize = 40;
const BAR_COLUMNS: usize = 36;

/// The report.
pub(super) fn text(document: &Document) -> String {
    let mut out = String::new();
    heading(&mut out, &document.title, '=');
    for (number, run) in document.runs.iter().enumerate() {
        if document.runs.len() > 1 {
            let _ = writeln!(out, "{}", run_name(document, number, run));
        }
        let indent = if document.runs.len() > 1 { "  " } else { "" };
        wrapped(&mut out, run.verdict(), indent);
        wrapped(&mut out, &format!("({})", run.validity().words()), indent);
    }
    environment(&mut out, document);
    validity(&mut out, document);
    for (number, run) in document.runs.iter().enumerate() {
        section(&mut out, document, number, run);
    }
    out.push('\n');
    heading(&mut out, "How to repeat it", '-');
    for run in &document.runs {
        let _ = writeln!(out, "{}, seed {}", run.record.began, run.record.seed);
        let _ = writeln!(out, "  {}", command_line(&run.record));
    }
    out
}

fn heading(out: &mut String, text: &str, underline: char) {
    let line: String = text.chars().map(|_| underline).take(COLUMNS).collect();
    let _ = writeln!(out, "{text}\n{line}");
}

fn wrapped(out: &mut String, text: &str, indent: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(indent);
            column = indent.chars().count();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

/// A paragraph whose first line begins further left than the others.
fn hanging(out: &mut String, first: &str, text: &str) {
    let indent = " ".repeat(first.chars().count());
    let mut paragraph = String::new();
    wrapped(&mut paragraph, text, &indent);
    out.push_str(first);
    out.push_str(paragraph.get(indent.len()..).unwrap_or("\n"));
}

fn environment(out: &mut String, document: &Document) {
    out.push('\n');
    heading(out, "Where it was measured", '-');
    for place in document.environments() {
        for (name, value) in facts(&place) {
            let _ = writeln!(out, "{name:<24}  {value}");
        }
        for server in &place.servers {
            let _ = writeln!(out, "{:<24}  {}", server.name, server.version);
            let _ = writeln!(out, "  {}", server.command);
        }
    }
}

fn validity(out: &mut String, document: &Document) {
    let (count, met) = document.gates();
    out.push('\n');
    heading(out, "Conditions", '-');
    wrapped(out, &conditions(count, met), "");
    for (number, run) in document.runs.iter().enumerate() {
        for gate in &run.record.gates {
            let state = if gate.is_met { "met    " } else { "NOT MET" };
            let name = if document.runs.len() > 1 {
                format!("{}: {}", run_name(document, number, run), gate.name)
            } else {
                gate.name.clone()
            };
            hanging(out, &format!("  {state}  "), &format!("{name}: {}", gate.found));
        }
    }
}

fn section(out: &mut String, document: &Document, number: usize, run: &Run) {
    out.push('\n');
    heading(out, &run_name(document, number, run), '-');
    if let Some(limit) = &run.record.limited_by {
        let _ = writeln!(out, "What limited it: {limit}");
    }
    for figure in &run.shown.figures {
        out.push('\n');
        wrapped(out, &figure.title, "");
        drawing(out, figure);
        table(out, &Grid::of(figure));
        for note in [Some(figure.note.clone()), convention_of_text(figure)].into_iter().flatten() {
            if !note.is_empty() {
                wrapped(out, &note, "  ");
            }
        }
    }
    for complaint in &run.complaints {
        wrapped(out, complaint, "");
    }
}

/// What is said below a picture, where the same can be seen in a terminal.
fn convention_of_text(figure: &Figure) -> Option<String> {
    match &figure.content {
        Content::Forest(forest) if forest.of == Estimate::Ratio => Some(
            "│ is 1; ● a ratio whose 95 % interval ├┤ lies beside it, ○ one whose interval contains it."
                .to_string(),
        ),
        Content::Bars(_) | Content::Forest(_) | Content::Series(_) => None,
        content => convention(content),
    }
}

fn drawing(out: &mut String, figure: &Figure) {
    match &figure.content {
        Content::Bars(bars) => draw_bars(out, bars),
        Content::Stacks(stacks) => draw_stacks(out, stacks),
        Content::Forest(forest) => draw_forest(out, forest),
        Content::Series(series) => draw_series(out, series),
        Content::Curve(_) | Content::Percentiles(_) | Content::Cdf(_) | Content::Table(_) => {}
    }
}

/// A share of the columns, in eighths of one.
fn bar(share: f64) -> String {
    let eighths = share.clamp(0.0, 1.0) * usize_as_f64(BAR_COLUMNS) * 8.0;
    let mut text = String::new();
    let mut left = eighths.round();
    while left >= 8.0 {
        text.push('█');
        left -= 8.0;
    }
    for (eighth, part) in "▏▎▍▌▋▊▉".chars().enumerate() {
        if (left - usize_as_f64(eighth + 1)).abs() < 0.5 {
            text.push(part);
        }
    }
    text
}

fn name_columns<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0).min(28)
}

fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_string();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

fn draw_bars(out: &mut String, bars: &Bars) {
    let medians = || bars.bars.iter().take(ROWS_LIMIT).map(|bar| median(&bar.rounds));
    let largest = medians().flatten().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let columns = name_columns(bars.bars.iter().map(|bar| bar.system.as_str()));
    let mut group = "";
    for (one, value) in bars.bars.iter().zip(medians()) {
        if one.group != group {
            let _ = writeln!(out, "  {}", one.group);
            group = &one.group;
        }
        let name = cut(&one.system, columns);
        let _ = match value {
            Some(value) => {
                writeln!(out, "  {name:<columns$}  {} {}", bar(value / largest), show(value, &bars.unit))
            }
            None => writeln!(out, "  {name:<columns$}  not measured"),
        };
    }
}

fn draw_stacks(out: &mut String, stacks: &Stacks) {
    let sum = |values: &[f64]| {
        values.iter().take(stacks.parts.len()).filter(|value| is_usable(**value)).sum::<f64>()
    };
    let shown = || stacks.stacks.iter().take(ROWS_LIMIT);
    let largest = shown().map(|stack| sum(&stack.values)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let columns = name_columns(shown().map(|stack| stack.system.as_str()));
    for stack in shown() {
        let (name, value) = (cut(&stack.system, columns), sum(&stack.values));
        let _ = writeln!(out, "  {name:<columns$}  {} {}", bar(value / largest), show(value, &stacks.unit));
    }
}

fn draw_forest(out: &mut String, forest: &Forest) {
    let shown = || forest.rows.iter().take(ROWS_LIMIT);
    let all = || shown().flat_map(|row| [row.low, row.value, row.high]).filter(|value| is_usable(*value));
    let scale = match forest.of {
        Estimate::Share => {
            Scale::with_ticks(all().fold(1.0, f64::min).clamp(0.0, 0.99), 1.0, false, Vec::new())
        }
        Estimate::Ratio => {
            let reach = all()
                .filter(|value| *value > 0.0)
                .map(|value| value.ln().abs())
                .fold(0.05, f64::max)
                .min(20.0);
            Scale::with_ticks((-reach).exp(), reach.exp(), true, Vec::new())
        }
    };
    let width = 30;
    let columns = name_columns(shown().map(|row| row.name.as_str()));
    // Which of the columns has a value: the one whose share is nearest.
    let column = |value: f64| {
        let wanted = scale.share(value) * usize_as_f64(width - 1);
        (0..width).find(|column| usize_as_f64(*column) + 0.5 >= wanted).unwrap_or(width - 1)
    };
    for row in shown() {
        let name = cut(&row.name, columns);
        if ![row.low, row.value, row.high].into_iter().all(is_usable) {
            let _ = writeln!(out, "  {name:<columns$}  no estimate");
            continue;
        }
        let mut line = vec![' '; width];
        let (low, high) = (column(row.low), column(row.high).max(column(row.low)));
        line[low..=high].fill('─');
        (line[low], line[high]) = ('├', '┤');
        if forest.of == Estimate::Ratio && !(low..=high).contains(&column(1.0)) {
            line[column(1.0)] = '│';
        }
        let is_open = forest.of == Estimate::Ratio && super::grid::is_open(row);
        line[column(row.value)] = if is_open { '○' } else { '●' };
        let (value, ends) = estimate(forest.of, row);
        let line: String = line.into_iter().collect();
        let _ = writeln!(out, "  {name:<columns$}  {line}  {value} {ends}");
    }
    wrapped(out, &forest.label, "  ");
}

fn draw_series(out: &mut String, series: &Series) {
    let largest = series.lines.iter().flat_map(|line| &line.points).map(|point| point[1]);
    let largest = largest.filter(|value| is_usable(*value)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let name = |line: &Samples| format!("{} {}", line.system, line.name).trim().to_string();
    let names: Vec<String> = series.lines.iter().take(ROWS_LIMIT).map(name).collect();
    let columns = name_columns(names.iter().map(String::as_str));
    for (line, name) in series.lines.iter().zip(&names) {
        let usable: Vec<f64> =
            line.points.iter().map(|point| point[1]).filter(|value| is_usable(*value)).collect();
        let run = usable.len().div_ceil(48).max(1);
        let levels: String =
            usable.chunks(run).map(|run| level(run.iter().copied().fold(0.0, f64::max) / largest)).collect();
        let _ = writeln!(out, "  {:<columns$}  {levels}", cut(name, columns));
    }
}

fn level(share: f64) -> char {
    let levels = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = (1..8).filter(|level| share * 8.0 > f64::from(*level)).count();
    levels[level]
}

/// Rows and columns; what has no room beside the first column follows below.
fn table(out: &mut String, grid: &Grid) {
    let widths: Vec<usize> = (0..grid.heads.len()).map(|column| width(grid, column)).collect();
    let mut begin = 0;
    while begin < widths.len() {
        let mut columns = if begin == 0 { vec![0] } else { vec![0, begin] };
        let mut used: usize = columns.iter().map(|column| widths[*column] + 2).sum();
        let mut next = begin + 1;
        while next < widths.len() && used + widths[next] + 2 <= COLUMNS {
            used += widths[next] + 2;
            columns.push(next);
            next += 1;
        }
        let heads = columns.iter().map(|column| (&grid.heads[*column], grid.heads[*column].text.as_str()));
        row(out, heads, &columns, &widths);
        for places in grid.rows.iter().take(ROWS_LIMIT) {
            let cells = columns.iter().map(|column| (&grid.heads[*column], places[*column].text.as_str()));
            row(out, cells, &columns, &widths);
        }
        begin = next;
    }
    if grid.rows.len() > ROWS_LIMIT {
        let _ = writeln!(out, "  and {} further rows", grid.rows.len() - ROWS_LIMIT);
    }
}

fn width(grid: &Grid, column: usize) -> usize {
    let texts = grid.rows.iter().take(ROWS_LIMIT).map(|row: &Vec<Place>| row[column].text.chars().count());
    texts.chain([grid.heads[column].text.chars().count()]).max().unwrap_or(0).min(COLUMNS - 4)
}

fn row<'a>(
    out: &mut String,
    cells: impl Iterator<Item = (&'a Head, &'a str)>,
    columns: &[usize],
    widths: &[usize],
) {
    let mut line = String::new();
    for ((head, text), column) in cells.zip(columns) {
        let (text, width) = (cut(text, widths[*column]), widths[*column]);
        let _ =
            if head.is_number { write!(line, "  {text:>width$}") } else { write!(line, "  {text:<width$}") };
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Column, Row, Table};

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0).chars().count(), BAR_COLUMNS);
        assert_eq!(bar(1.5 / usize_as_f64(BAR_COLUMNS)), "█▌");
        assert_eq!(level(0.0), '▁');
        assert_eq!(level(1.0), '█');
    }

    #[test]
    fn wide_tables_are_continued_below() {
        let columns = (0..12).map(|column| Column::plain(format!("column {column}"))).collect();
        let rows = vec![(0..12).map(|column| format!("place {column}").into()).collect()];
        let figure = Figure::new("t", "a", Content::Table(Table { columns, rows }));
        let mut out = String::new();
        table(&mut out, &Grid::of(&figure));
        assert!(out.lines().all(|line| line.chars().count() <= COLUMNS), "{out}");
        assert_eq!(out.matches("place 0").count(), 2, "{out}");
        assert_eq!(out.matches("place 11").count(), 1, "{out}");
    }

    #[test]
    fn forests_show_where_one_is() {
        let row =
            |value: f64, low, high| Row { name: "get".to_string(), value, low, high, n: 5, ..Row::default() };
        let rows = vec![row(1.2, 1.1, 1.3), row(1.0, 0.9, 1.1), row(f64::NAN, 0.0, 0.0)];
        let mut out = String::new();
        draw_forest(&mut out, &Forest { label: "a / b".to_string(), of: Estimate::Ratio, rows, floor: None });
        let lines: Vec<&str> = out.lines().collect();
        assert!(
            lines[0].contains('│') && lines[0].contains('●') && lines[0].contains("1.20 [1.10, 1.30]"),
            "{out}"
        );
        assert!(lines[1].contains('○') && !lines[1].contains('│'), "{out}");
        assert_eq!(lines[2], "  get  no estimate");
    }
}
