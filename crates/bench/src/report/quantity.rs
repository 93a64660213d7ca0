//! Numbers as people read them: three digits that count, in a unit that fits.

/// Values beyond this are not measurements; they are left out, so that no sum or difference overflows.
const MAGNITUDE_LIMIT: f64 = 1e30;

/// Whether a value can be drawn.
pub(super) fn is_usable(value: f64) -> bool {
    value.is_finite() && value.abs() <= MAGNITUDE_LIMIT
}

/// A unit's steps, from the smallest: how many of the given unit one of them is, and its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Steps {
    steps: Vec<(f64, String)>,
    /// Whether the name is part of the number (`195k`) rather than a unit behind it (`195 ms`).
    is_suffix: bool,
    /// What follows: `op/s` of thousands, `/op` of times.
    rest: String,
}

impl Steps {
    /// Those of a unit: of times, of bytes, of either per something, or else thousands and millions of it.
    pub(super) fn of(unit: &str) -> Self {
        let (first, rest) =
            unit.split_once('/').map_or((unit, ""), |(first, _)| (first, &unit[first.len()..]));
        let ns = match first {
            "ns" => Some(1.0),
            "us" | "µs" => Some(1e3),
            "ms" => Some(1e6),
            "s" => Some(1e9),
            _ => None,
        };
        let scaled = |steps: &[(f64, &str)], is_suffix: bool, rest: &str| Steps {
            steps: steps.iter().map(|(size, name)| (*size, (*name).to_string())).collect(),
            is_suffix,
            rest: rest.to_string(),
        };
        if let Some(ns) = ns {
            let steps = [(1.0 / ns, "ns"), (1e3 / ns, "µs"), (1e6 / ns, "ms"), (1e9 / ns, "s")];
            return scaled(&steps, false, rest);
        }
        if first == "bytes" {
            let kib = 1024.0;
            let steps = [(1.0, "B"), (kib, "KiB"), (kib * kib, "MiB"), (kib * kib * kib, "GiB")];
            return scaled(&steps, false, rest);
        }
        if unit == "%" {
            return scaled(&[(1.0, "%")], false, "");
        }
        scaled(&[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")], true, unit)
    }

    /// The largest step that the value has at least one of.
    fn fitting(&self, value: f64) -> &(f64, String) {
        // What would be shown as 1000 of a step is one of the next.
        let fits = |step: &&(f64, String)| value.abs() >= step.0 * 0.9995;
        self.steps.iter().rev().find(fits).unwrap_or(&self.steps[0])
    }

    /// One step for all values up to the largest of an axis: what to divide by, what follows each number, and what
    /// stands beside the axis.
    pub(super) fn common(&self, largest: f64) -> (f64, String, String) {
        let (size, name) = self.fitting(largest);
        if self.is_suffix {
            return (*size, name.clone(), self.rest.clone());
        }
        (*size, String::new(), format!("{name}{}", self.rest))
    }

    /// A round value with its unit, without digits that say nothing: `10 ms`.
    pub(super) fn tick(&self, value: f64) -> String {
        let (size, name) = self.fitting(value);
        let number = format!("{:.6}", value / size);
        let number = number.trim_end_matches('0').trim_end_matches('.');
        if self.is_suffix { format!("{number}{name}") } else { format!("{number} {name}{}", self.rest) }
    }

    /// The value with its unit: `153 µs`, `195k op/s`, `99.2 %`.
    pub(super) fn show(&self, value: f64) -> String {
        let (size, name) = self.fitting(value);
        // Counts are whole where they are small; quantities keep their digits, so that 4.00 stands above 4.70.
        let is_count = self.is_suffix && value.fract() == 0.0 && value.abs() < 1000.0;
        let number = if is_count { format!("{:.0}", value.abs()) } else { digits(value.abs() / size) };
        let number = if value < 0.0 { format!("-{number}") } else { number };
        let text = match (self.is_suffix, self.rest.is_empty()) {
            (true, true) => format!("{number}{name}"),
            (true, false) => format!("{number}{name} {}", self.rest),
            (false, _) => format!("{number} {name}{}", self.rest),
        };
        if name.is_empty() { text.trim_end().to_string() } else { text }
    }
}

/// [`Steps::show`] of a unit.
pub(super) fn show(value: f64, unit: &str) -> String {
    if !is_usable(value) {
        return "–".to_string();
    }
    Steps::of(unit).show(value)
}

/// A place of a table, without the unit if the column says it: counts in full, times and bytes each in a step that fits.
pub(super) fn show_in_column(value: f64, unit: &str) -> String {
    let steps = Steps::of(unit);
    if !is_usable(value) || !steps.is_suffix {
        return show(value, unit).trim_end_matches(" %").to_string();
    }
    if value.abs() >= 1000.0 || value.fract() == 0.0 { separated(value) } else { digits(value) }
}

/// What a column's heading says after its name: nothing for units that stand in every place of it.
pub(super) fn column_unit(unit: &str) -> &str {
    if unit == "%" || Steps::of(unit).is_suffix { unit } else { "" }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.9995.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A whole number with a comma between thousands.
pub(super) fn separated(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && text != "0" { format!("-{text}") } else { text }
}

/// The middle value, or the mean of the two in the middle. None if nothing can be used.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| is_usable(*value)).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit() {
        let cases = [
            (153.2, "us", "153 µs"),
            (1530.0, "us", "1.53 ms"),
            (999.96, "us", "1.00 ms"),
            (0.25, "us", "250 ns"),
            (2.0, "s", "2.00 s"),
            (0.0, "us", "0 ns"),
            (1300.0, "ns/op", "1.30 µs/op"),
            (1_288_490_188.0, "bytes", "1.20 GiB"),
            (195_432.0, "op/s", "195k op/s"),
            (12.0, "op/s", "12 op/s"),
            (99.234, "%", "99.2 %"),
            (7.0, "", "7"),
            (1e6, "", "1.00M"),
            (-1500.0, "", "-1.50k"),
            (1e300, "us", "–"),
            (f64::NAN, "", "–"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(show(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn columns_keep_counts_in_full() {
        let cases = [
            (1_000_000.0, "", "1,000,000"),
            (195_432.4, "op/s", "195,432"),
            (-1234.0, "", "-1,234"),
            (0.0123, "", "0.012"),
            (1.5, "us", "1.50 µs"),
            (99.2, "%", "99.2"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(show_in_column(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[1e31]), None);
    }
}
