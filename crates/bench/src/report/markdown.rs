//! The report as Markdown: for a pull request, or a page of documentation.

use std::fmt::Write;

use super::document::Document;
use super::escape::markdown as escaped;
use super::figures::Figure;
use super::grid::Grid;
use super::page::{command_line, conditions, convention, facts, run_name};

/// How many rows of one table are written; the page and the records have all.
const ROWS_LIMIT: usize = 200;

/// The report.
pub(super) fn markdown(document: &Document) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}\n", escaped(&document.title));
    for (number, run) in document.runs.iter().enumerate() {
        let name = escaped(&run_name(document, number, run));
        let (verdict, validity) = (escaped(run.verdict()), escaped(&run.validity().words()));
        let _ = if document.runs.len() > 1 {
            writeln!(out, "* **{name}**: {verdict} ({validity})")
        } else {
            writeln!(out, "**{verdict}** ({validity})")
        };
    }
    out.push_str("\n## Where it was measured\n");
    for place in document.environments() {
        let rows = facts(&place).map(|(name, value)| vec![name.to_string(), value]);
        table(&mut out, &["", ""].map(|head| (head.to_string(), false)), &rows);
        if !place.servers.is_empty() {
            let heads = ["server", "version", "started as"].map(|head| (head.to_string(), false));
            let rows = place
                .servers
                .iter()
                .map(|server| vec![server.name.clone(), server.version.clone(), server.command.clone()]);
            table(&mut out, &heads, &rows.collect::<Vec<_>>());
        }
    }
    validity(&mut out, document);
    for (number, run) in document.runs.iter().enumerate() {
        let _ = write!(out, "\n## {}\n", escaped(&run_name(document, number, run)));
        if let Some(limit) = &run.record.limited_by {
            let _ = write!(out, "\nWhat limited it: {}.\n", escaped(limit));
        }
        for one in &run.shown.figures {
            figure(&mut out, one);
        }
        for complaint in &run.complaints {
            let _ = write!(out, "\n{}\n", escaped(complaint));
        }
    }
    out.push_str("\n## How to repeat it\n");
    let heads = [("began".to_string(), false), ("seed".to_string(), true), ("command".to_string(), false)];
    let rows = document
        .runs
        .iter()
        .map(|run| vec![run.record.began.clone(), run.record.seed.to_string(), command_line(&run.record)]);
    table(&mut out, &heads, &rows.collect::<Vec<_>>());
    out
}

fn validity(out: &mut String, document: &Document) {
    let (count, met) = document.gates();
    let _ = write!(out, "\n## Conditions\n\n{}\n", escaped(&conditions(count, met)));
    if count == 0 {
        return;
    }
    let mut rows = Vec::new();
    for (number, run) in document.runs.iter().enumerate() {
        for gate in &run.record.gates {
            let state = if gate.is_met { "met" } else { "not met" };
            rows.push(vec![
                run_name(document, number, run),
                gate.name.clone(),
                state.to_string(),
                gate.found.clone(),
            ]);
        }
    }
    table(out, &["run", "condition", "state", "found"].map(|head| (head.to_string(), false)), &rows);
}

fn figure(out: &mut String, figure: &Figure) {
    let _ = write!(out, "\n### {}\n", escaped(&figure.title));
    let grid = Grid::of(figure);
    let heads: Vec<(String, bool)> =
        grid.heads.iter().map(|head| (head.text.clone(), head.is_number)).collect();
    let rows = grid.rows.iter().map(|row| row.iter().map(|place| place.text.clone()).collect());
    table(out, &heads, &rows.collect::<Vec<Vec<String>>>());
    if !figure.note.is_empty() {
        let _ = write!(out, "\n{}\n", escaped(&figure.note));
    }
    // Pictures are for the page; what is said of distributions holds for tables as well.
    if let (super::figures::Content::Percentiles(_), Some(text)) =
        (&figure.content, convention(&figure.content))
    {
        let text = text.replace("A line ends", "Nothing is shown").replace(": nothing is claimed beyond", "");
        let _ = write!(out, "\n{}\n", escaped(&text));
    }
}

fn table(out: &mut String, heads: &[(String, bool)], rows: &[Vec<String>]) {
    let line = |out: &mut String, cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    out.push('\n');
    line(out, &mut heads.iter().map(|(text, _)| escaped(text)));
    line(out, &mut heads.iter().map(|(_, is_number)| if *is_number { "--:" } else { "---" }.to_string()));
    for row in rows.iter().take(ROWS_LIMIT) {
        line(out, &mut row.iter().map(|text| escaped(text)));
    }
    if rows.len() > ROWS_LIMIT {
        let _ = write!(out, "\nand {} further rows\n", rows.len() - ROWS_LIMIT);
    }
}
