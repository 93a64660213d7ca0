//! Every figure as rows and columns of text: under a picture, in a terminal, in Markdown.

use super::figures::{
    Bars, Cdf, Cell, Content, Curve, Distribution, Estimate, Figure, Forest, Percentiles, Row, Series,
    Stacks, Table,
};
use super::quantity::{column_unit, is_usable, median, separated, show, show_in_column};
use super::scale::usize_as_f64;

/// How many values must lie above a percentile for it to be claimed.
pub(super) const VALUES_ABOVE: u64 = 10;

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grid {
    /// The headings.
    pub(super) heads: Vec<Head>,
    /// Each as long as there are headings.
    pub(super) rows: Vec<Vec<Place>>,
}

/// A heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    /// With its unit.
    pub(super) text: String,
    /// Whether the column is of numbers, which stand to the right.
    pub(super) is_number: bool,
}

/// One place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Place {
    /// What is shown.
    pub(super) text: String,
    /// What it is sorted by, if it is a number.
    pub(super) value: Option<f64>,
}

impl Place {
    fn text(text: impl Into<String>) -> Self {
        Place { text: text.into(), value: None }
    }

    fn quantity(value: f64, unit: &str) -> Self {
        Place { text: show(value, unit), value: Some(value) }
    }

    fn count(count: f64) -> Self {
        Place { text: separated(count), value: Some(count) }
    }

    fn none() -> Self {
        Place::text("–")
    }
}

impl Grid {
    /// A figure's.
    pub(super) fn of(figure: &Figure) -> Self {
        let (heads, rows) = match &figure.content {
            Content::Bars(bars) => of_bars(bars),
            Content::Stacks(stacks) => of_stacks(stacks),
            Content::Curve(curve) => of_curve(curve),
            Content::Percentiles(Percentiles { unit, lines, .. }) => {
                of_distributions(unit, lines, &[50.0, 90.0, 99.0, 99.9, 99.99])
            }
            Content::Cdf(Cdf { unit, lines, .. }) => {
                of_distributions(unit, lines, &[10.0, 50.0, 90.0, 95.0, 99.0])
            }
            Content::Series(series) => of_series(series),
            Content::Forest(forest) => of_forest(forest),
            Content::Table(table) => return of_table(table),
        };
        let is_number = |column: usize| {
            let mut places = rows.iter().filter_map(|row| row.get(column)).filter(|place| place.text != "–");
            places.clone().next().is_some() && places.all(|place| place.value.is_some())
        };
        let heads =
            heads.into_iter().enumerate().map(|(column, text)| Head { text, is_number: is_number(column) });
        Grid { heads: heads.collect(), rows }.without_empty_columns()
    }

    /// Leaves out columns that say nothing, such as the group of bars that have none.
    fn without_empty_columns(self) -> Self {
        let says = |column: usize| self.rows.iter().any(|row| !row[column].text.is_empty());
        let keep: Vec<usize> =
            (0..self.heads.len()).filter(|column| self.rows.is_empty() || says(*column)).collect();
        let heads = keep.iter().map(|column| self.heads[*column].clone()).collect();
        let rows = self.rows.iter().map(|row| keep.iter().map(|column| row[*column].clone()).collect());
        Grid { heads, rows: rows.collect() }
    }
}

type Parts = (Vec<String>, Vec<Vec<Place>>);

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn of_bars(bars: &Bars) -> Parts {
    let rows = bars.bars.iter().map(|bar| {
        let usable = || bar.rounds.iter().copied().filter(|value| is_usable(*value));
        let ends = match (usable().min_by(f64::total_cmp), usable().max_by(f64::total_cmp)) {
            (Some(low), Some(high)) if usable().count() > 1 => {
                Place::text(format!("{} to {}", show(low, &bars.unit), show(high, &bars.unit)))
            }
            _ => Place::text(""),
        };
        let interval = bar.interval.map_or(String::new(), |ends| interval(ends, &bars.unit));
        vec![
            Place::text(&bar.group),
            Place::text(&bar.system),
            median(&bar.rounds).map_or_else(Place::none, |value| Place::quantity(value, &bars.unit)),
            Place::text(interval),
            ends,
            Place::count(usize_as_f64(bar.rounds.len())),
        ]
    });
    (headings(&["", "system", "median", "95 % interval", "lowest to highest", "rounds"]), rows.collect())
}

fn interval([low, high]: [f64; 2], unit: &str) -> String {
    format!("[{}, {}]", show(low, unit), show(high, unit))
}

fn of_stacks(stacks: &Stacks) -> Parts {
    let mut heads = headings(&["system"]);
    heads.extend(stacks.parts.iter().cloned());
    heads.push("sum".to_string());
    let rows =
        stacks.stacks.iter().map(|stack| {
            let value = |part: usize| stack.values.get(part).copied().filter(|value| is_usable(*value));
            let mut row = vec![Place::text(&stack.system)];
            let parts = 0..stacks.parts.len();
            row.extend(parts.clone().map(|part| {
                value(part).map_or_else(Place::none, |value| Place::quantity(value, &stacks.unit))
            }));
            row.push(Place::quantity(parts.filter_map(value).sum(), &stacks.unit));
            row
        });
    (heads, rows.collect())
}

fn of_curve(curve: &Curve) -> Parts {
    let heads = vec![
        "system".to_string(),
        "line".to_string(),
        curve.x.label.clone(),
        curve.y.label.clone(),
        String::new(),
    ];
    let rows = curve.lines.iter().flat_map(|line| {
        line.points.iter().map(|point| {
            vec![
                Place::text(&line.system),
                Place::text(&line.name),
                Place::quantity(point.x, &curve.x.unit),
                Place::quantity(point.y, &curve.y.unit),
                Place::text(if point.is_hollow { "hollow" } else { "" }),
            ]
        })
    });
    (heads, rows.collect())
}

/// The value at a percentile, if enough values lie above it.
pub(super) fn value_at(distribution: &Distribution, percentile: f64) -> Option<f64> {
    let is_claimed = percentile <= last_percentile(distribution.count);
    let row = distribution.rows.iter().find(|row| row[0] >= percentile - 1e-9);
    row.filter(|row| is_claimed && is_usable(row[1])).map(|row| row[1])
}

/// The last percentile that enough values lie above.
#[expect(clippy::cast_precision_loss, reason = "a percentile needs no more digits than a double has")]
pub(super) fn last_percentile(count: u64) -> f64 {
    100.0 * (1.0 - VALUES_ABOVE as f64 / (count.max(VALUES_ABOVE) as f64))
}

fn of_distributions(unit: &str, lines: &[Distribution], percentiles: &[f64]) -> Parts {
    let mut heads = headings(&["system", "line"]);
    heads.extend(percentiles.iter().map(|percentile| format!("p{percentile}")));
    heads.extend(headings(&["largest", "values"]));
    let rows = lines.iter().map(|line| {
        let mut row = vec![Place::text(&line.system), Place::text(&line.name)];
        let quantity =
            |value: Option<f64>| value.map_or_else(Place::none, |value| Place::quantity(value, unit));
        row.extend(percentiles.iter().map(|percentile| quantity(value_at(line, *percentile))));
        row.push(quantity(line.rows.last().map(|row| row[1]).filter(|value| is_usable(*value))));
        #[expect(clippy::cast_precision_loss, reason = "shown with its first digits")]
        row.push(Place::count(line.count as f64));
        row
    });
    (heads, rows.collect())
}

/// Average and peak of the values that can be used, and when the peak was.
pub(super) fn average_and_peak(points: &[[f64; 2]]) -> Option<(f64, [f64; 2])> {
    let usable = || points.iter().filter(|point| is_usable(point[0]) && is_usable(point[1]));
    let peak = usable().max_by(|one, other| one[1].total_cmp(&other[1]))?;
    let sum: f64 = usable().map(|point| point[1]).sum();
    Some((sum / usize_as_f64(usable().count()), *peak))
}

fn of_series(series: &Series) -> Parts {
    let base =
        series.baseline.as_ref().and_then(|name| series.lines.iter().find(|line| line.system == *name));
    let base = base.and_then(|line| average_and_peak(&line.points)).filter(|(average, _)| *average > 0.0);
    let mut heads = headings(&["system", "line", "average", "peak", "", ""]);
    if let (Some(name), Some(_)) = (&series.baseline, base) {
        heads[4] = format!("average / {name}");
        heads[5] = format!("peak / {name}");
    }
    let rows = series.lines.iter().map(|line| {
        let mut row = vec![Place::text(&line.system), Place::text(&line.name)];
        let Some((average, [_, peak])) = average_and_peak(&line.points) else {
            row.extend([Place::none(), Place::none(), Place::text(""), Place::text("")]);
            return row;
        };
        row.extend([Place::quantity(average, &series.unit), Place::quantity(peak, &series.unit)]);
        match base {
            Some((base_average, [_, base_peak])) => {
                row.extend([ratio(average / base_average), ratio(peak / base_peak)]);
            }
            None => row.extend([Place::text(""), Place::text("")]),
        }
        row
    });
    (heads, rows.collect())
}

fn ratio(value: f64) -> Place {
    Place { text: format!("{value:.2}"), value: Some(value) }
}

fn of_forest(forest: &Forest) -> Parts {
    let rows = forest.rows.iter().map(|row| {
        let (value, ends) = estimate(forest.of, row);
        #[expect(clippy::cast_precision_loss, reason = "shown with its first digits")]
        let n = Place::count(row.n as f64);
        let finding = if forest.of == Estimate::Ratio { finding(row, forest.floor) } else { String::new() };
        vec![
            Place::text(&row.name),
            Place { text: value, value: Some(row.value) },
            Place::text(ends),
            n,
            Place::text(finding),
        ]
    });
    let value = if forest.of == Estimate::Ratio { "ratio" } else { "share" };
    (headings(&["", value, "95 % interval", "n", "finding"]), rows.collect())
}

/// An estimate and its interval, as texts.
pub(super) fn estimate(of: Estimate, row: &Row) -> (String, String) {
    match of {
        Estimate::Ratio => (format!("{:.2}", row.value), format!("[{:.2}, {:.2}]", row.low, row.high)),
        Estimate::Share => {
            let percent = |share: f64| format!("{:.1}", share * 100.0);
            (format!("{} %", percent(row.value)), format!("[{}, {}] %", percent(row.low), percent(row.high)))
        }
    }
}

/// Whether an interval leaves open that there is no difference.
pub(super) fn is_open(row: &Row) -> bool {
    row.low <= 1.0 && row.high >= 1.0
}

/// What a ratio lets one say, and no more.
fn finding(row: &Row, floor: Option<[f64; 2]>) -> String {
    if ![row.value, row.low, row.high].into_iter().all(|value| is_usable(value) && value > 0.0) {
        return "no ratio".to_string();
    }
    if is_open(row) {
        let largest = (row.high - 1.0).max(1.0 / row.low - 1.0);
        return format!("no difference larger than {:.0} % detected", (largest * 100.0).ceil());
    }
    match floor {
        Some([low, high]) if row.value >= low && row.value <= high => {
            "differs, but no more than equal servers do".to_string()
        }
        _ if row.value > 1.0 => format!("{:.0} % more", (row.value - 1.0) * 100.0),
        _ => format!("{:.0} % less", (1.0 - row.value) * 100.0),
    }
}

fn of_table(table: &Table) -> Grid {
    let place = |cell: &Cell, unit: &str| match cell {
        Cell::Number(value) => Place { text: show_in_column(*value, unit), value: Some(*value) },
        Cell::Text(text) => Place { text: text.clone(), value: leading_number(text) },
        Cell::Empty => Place::none(),
    };
    let rows: Vec<Vec<Place>> = table
        .rows
        .iter()
        .map(|cells| {
            // A row that is too short or too long is no reason to lose the others.
            let cell = |number: usize| cells.get(number).unwrap_or(&Cell::Empty);
            table
                .columns
                .iter()
                .enumerate()
                .map(|(number, column)| place(cell(number), &column.unit))
                .collect()
        })
        .collect();
    let heads = table.columns.iter().enumerate().map(|(number, column)| {
        let unit = column_unit(&column.unit);
        let text = if unit.is_empty() { column.name.clone() } else { format!("{}, {unit}", column.name) };
        let mut places = rows.iter().map(|row: &Vec<Place>| &row[number]).filter(|place| place.text != "–");
        Head { text, is_number: places.clone().next().is_some() && places.all(|place| place.value.is_some()) }
    });
    Grid { heads: heads.collect(), rows }
}

/// The number that a text begins with, so that `99.2 % [98.1, 99.7]` and `168.86µs` are sorted as numbers.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text.find(|character: char| !character.is_ascii_digit() && !"+-.,".contains(character));
    let (number, rest) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = number.replace(',', "").parse().ok()?;
    let factor = match rest.trim_start() {
        rest if rest.starts_with("ns") => 1e-9,
        rest if rest.starts_with("µs") || rest.starts_with("us") => 1e-6,
        rest if rest.starts_with("ms") => 1e-3,
        rest if rest.starts_with('K') || rest.starts_with('k') => 1e3,
        rest if rest.starts_with('M') => 1e6,
        _ => 1.0,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests;
