//! The numbers behind a picture, as files that other programs read.

use std::fmt::Write;

use super::escape::csv;
use super::figures::{Content, Distribution, Figure};
use super::grid::Grid;

/// How many rows one file has at most; the records themselves have all.
const ROWS_LIMIT: usize = 5000;

/// All values of a figure as comma-separated values with a heading, in the units that it gives.
pub(super) fn table(figure: &Figure) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    match &figure.content {
        Content::Bars(bars) => {
            rows.push(heads(&["group", "system", "round", &bars.unit]));
            for bar in &bars.bars {
                for (number, round) in bar.rounds.iter().enumerate() {
                    rows.push(vec![
                        bar.group.clone(),
                        bar.system.clone(),
                        (number + 1).to_string(),
                        round.to_string(),
                    ]);
                }
            }
        }
        Content::Stacks(stacks) => {
            rows.push(heads(&["system", "part", &stacks.unit]));
            for stack in &stacks.stacks {
                for (part, value) in stacks.parts.iter().zip(&stack.values) {
                    rows.push(vec![stack.system.clone(), part.clone(), value.to_string()]);
                }
            }
        }
        Content::Curve(curve) => {
            let axis = |label: &str, unit: &str| format!("{label} {unit}");
            let (x, y) = (axis(&curve.x.label, &curve.x.unit), axis(&curve.y.label, &curve.y.unit));
            rows.push(heads(&["system", "line", &x, &y, "hollow"]));
            for line in &curve.lines {
                for point in &line.points {
                    let numbers = [point.x.to_string(), point.y.to_string(), point.is_hollow.to_string()];
                    rows.push([line.system.clone(), line.name.clone()].into_iter().chain(numbers).collect());
                }
            }
        }
        Content::Percentiles(percentiles) => distributions(&mut rows, &percentiles.unit, &percentiles.lines),
        Content::Cdf(cdf) => distributions(&mut rows, &cdf.unit, &cdf.lines),
        Content::Series(series) => {
            rows.push(heads(&["system", "line", "seconds", &series.unit]));
            for line in &series.lines {
                for [seconds, value] in &line.points {
                    rows.push(vec![
                        line.system.clone(),
                        line.name.clone(),
                        seconds.to_string(),
                        value.to_string(),
                    ]);
                }
            }
        }
        Content::Forest(forest) => {
            rows.push(heads(&["name", "system", "value", "low", "high", "n"]));
            for row in &forest.rows {
                let numbers = [row.value, row.low, row.high].map(|value| value.to_string());
                let names = [row.name.clone(), row.system.clone()];
                rows.push(names.into_iter().chain(numbers).chain([row.n.to_string()]).collect());
            }
        }
        Content::Table(_) => {
            let grid = Grid::of(figure);
            rows.push(grid.heads.into_iter().map(|head| head.text).collect());
            rows.extend(grid.rows.into_iter().map(|row| row.into_iter().map(|place| place.text).collect()));
        }
    }
    let lines = rows.iter().take(ROWS_LIMIT + 1);
    lines.map(|row| row.iter().map(|text| csv(text)).collect::<Vec<_>>().join(",") + "\n").collect()
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn distributions(rows: &mut Vec<Vec<String>>, unit: &str, lines: &[Distribution]) {
    rows.push(heads(&["system", "line", "percentile", unit]));
    for line in lines {
        for [percentile, value] in &line.rows {
            rows.push(vec![
                line.system.clone(),
                line.name.clone(),
                percentile.to_string(),
                value.to_string(),
            ]);
        }
    }
}

/// A distribution in the columns that HdrHistogram's own plotters read.
#[expect(clippy::cast_precision_loss, reason = "a count of values, rounded to one")]
pub(super) fn hgrm(distribution: &Distribution) -> String {
    let mut text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n".to_string();
    for [percentile, value] in distribution.rows.iter().take(ROWS_LIMIT) {
        let share = (percentile / 100.0).clamp(0.0, 1.0);
        let count = share * distribution.count as f64;
        let _ = write!(text, "{value:12.3} {share:2.12} {count:10.0}");
        let _ = if share < 1.0 { writeln!(text, " {:14.2}", 1.0 / (1.0 - share)) } else { writeln!(text) };
    }
    let _ = writeln!(
        text,
        "#[Max     = {:12.3}, Total count    = {:12}]",
        distribution.rows.last().map_or(0.0, |row| row[1]),
        distribution.count
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Bar, Bars};

    #[test]
    fn files_have_all_values() {
        let bar = Bar { rounds: vec![1.25, 2.0], group: "SET, GET".to_string(), ..Bar::of("=a") };
        let bars = Bars { unit: "op/s".to_string(), bars: vec![bar] };
        let figure = Figure::new("t", "a", Content::Bars(bars));
        let expected = "group,system,round,op/s\n\"SET, GET\",'=a,1,1.25\n\"SET, GET\",'=a,2,2\n";
        assert_eq!(table(&figure), expected);
    }

    #[test]
    fn percentiles_as_others_write_them() {
        let rows = vec![[0.0, 10.0], [50.0, 20.5], [100.0, 30.0]];
        let text = hgrm(&Distribution { count: 100, rows, ..Distribution::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>(),
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
        );
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>(),
            ["20.500", "0.500000000000", "50", "2.00"]
        );
        assert_eq!(lines[4].split_whitespace().count(), 3);
    }
}
