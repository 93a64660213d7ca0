//! Where values lie on an axis, and which of them are named there.

use super::quantity::{Steps, is_usable};

/// An axis from its first value to its last.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    /// Values that are named, with their names, ascending.
    pub(super) ticks: Vec<(f64, String)>,
    /// What stands beside the axis: `ms`, `op/s`. Empty if the ticks say it.
    pub(super) unit: String,
}

impl Scale {
    /// From zero to a round value that is not below any of the values.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>, unit: &str, ticks_wanted: usize) -> Self {
        let largest = values.filter(|value| is_usable(*value)).fold(0.0, f64::max);
        Self::linear(0.0, if largest > 0.0 { largest } else { 1.0 }, unit, ticks_wanted)
    }

    /// From zero to the largest value, which need not be a round one: for bars, which have their values beside them.
    pub(super) fn from_zero_tight(
        values: impl Iterator<Item = f64> + Clone,
        unit: &str,
        ticks_wanted: usize,
    ) -> Self {
        let mut scale = Self::from_zero(values.clone(), unit, ticks_wanted);
        let largest = values.filter(|value| is_usable(*value)).fold(0.0, f64::max);
        if largest > 0.0 {
            scale.high = largest;
            scale.ticks.retain(|(at, _)| *at <= largest);
        }
        scale
    }

    /// Widened to round values at both ends.
    pub(super) fn linear(low: f64, high: f64, unit: &str, ticks_wanted: usize) -> Self {
        let (size, suffix, beside) = Steps::of(unit).common(high.abs().max(low.abs()));
        let (low, high) = (low / size, high / size);
        let step = round_step((high - low).max(high.abs() * 1e-9).max(1e-12), ticks_wanted.max(2));
        let first = (low / step).floor();
        let last = (high / step).ceil().max(first + 1.0);
        let decimals = decimals(step);
        let mut ticks = Vec::new();
        let mut number = first;
        // A round step leaves at most a few more ticks than were wanted.
        while number <= last && ticks.len() <= 4 * ticks_wanted + 4 {
            let value = number * step;
            let text = format!("{value:.decimals$}");
            let is_zero = text.trim_start_matches(['-', '0', '.']).is_empty();
            ticks.push((value * size, if is_zero { "0".to_string() } else { text + &suffix }));
            number += 1.0;
        }
        Scale { low: first * step * size, high: last * step * size, is_log: false, ticks, unit: beside }
    }

    /// Widened to whole decades, or to 1, 2 or 5 of one where that leaves less empty. Values that are not positive have
    /// no place on it.
    pub(super) fn log(values: impl Iterator<Item = f64>, unit: &str, ticks_wanted: usize) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| is_usable(*value) && *value > 1e-30) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        let (first, last) = (nice_below(low), nice_above(high));
        let (first, last) = if first < last { (first, last) } else { (first / 2.0, last * 2.0) };
        let decades = (last / first).log10();
        let steps = Steps::of(unit);
        let stride = (decades / usize_as_f64(ticks_wanted.max(2))).ceil().max(1.0);
        // Within a few decades 2 and 5 have lines too, and names where there is room.
        let parts: &[f64] = if decades < 4.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks = Vec::new();
        let mut power = first.log10().floor();
        while power <= last.log10().ceil() && ticks.len() < 100 {
            for part in parts {
                let value = part * 10_f64.powf(power);
                if value >= first * 0.999 && value <= last * 1.001 {
                    let is_named = *part < 1.5 || decades < 1.7;
                    ticks.push((value, if is_named { steps.tick(value) } else { String::new() }));
                }
            }
            power += stride;
        }
        Scale { low: first, high: last, is_log: true, ticks, unit: String::new() }
    }

    /// One with its ticks given.
    pub(super) fn with_ticks(low: f64, high: f64, is_log: bool, ticks: Vec<(f64, String)>) -> Self {
        Scale { low, high, is_log, ticks, unit: String::new() }
    }

    /// How far along the axis a value lies, from 0 to 1. What lies outside, or has no place, lies at the nearer end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(1e-300) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether a value has a place on it.
    pub(super) fn has(&self, value: f64) -> bool {
        let slack = (self.high - self.low) * 1e-9;
        is_usable(value) && value >= self.low - slack && value <= self.high + slack
    }
}

/// Counts of things that are drawn are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of what lies in memory")]
pub(super) fn usize_as_f64(count: usize) -> f64 {
    count as f64
}

/// 1, 2 or 5 times a power of ten, so that about so many steps cover the range.
fn round_step(range: f64, steps: usize) -> f64 {
    let raw = range / usize_as_f64(steps);
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= raw * 0.999).unwrap_or(10.0);
    factor * power
}

fn decimals(step: f64) -> usize {
    (0..12)
        .find(|count| (step * 10_f64.powi(*count)).fract().abs() < 1e-6)
        .map_or(12, |count| count.unsigned_abs() as usize)
}

fn nice_below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * power <= value * 1.001).unwrap_or(1.0);
    factor * power
}

fn nice_above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value * 0.999).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let cases: [(f64, f64, &str, &[&str], &str); 5] = [
            (0.0, 187_000.0, "op/s", &["0", "50k", "100k", "150k", "200k"], "op/s"),
            (0.0, 1200.0, "us", &["0", "0.5", "1.0", "1.5"], "ms"),
            (0.0, 7.0, "", &["0", "2", "4", "6", "8"], ""),
            (-3.0, 3.0, "%", &["-4", "-2", "0", "2", "4"], "%"),
            (0.0, 0.0, "", &["0", "0"], ""),
        ];
        for (low, high, unit, expected, beside) in cases {
            let scale = Scale::linear(low, high, unit, 4);
            if high > low {
                assert_eq!(names(&scale), expected);
                assert_eq!(scale.unit, beside);
            }
            assert!(scale.share(high) <= 1.0);
        }
    }

    #[test]
    fn logarithmic_ticks_are_decades_or_finer() {
        let scale = Scale::log([30.0, 45_000.0].into_iter(), "us", 6);
        assert_eq!(names(&scale), ["", "", "100 µs", "", "", "1 ms", "", "", "10 ms", "", ""]);
        let scale = Scale::log([30.0, 450.0].into_iter(), "us", 6);
        assert_eq!(names(&scale), ["20 µs", "50 µs", "100 µs", "200 µs", "500 µs"]);
        assert!((scale.share(100.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn every_value_has_a_place() {
        for values in [vec![], vec![0.0], vec![-1.0, 1e29], vec![1e-29, 1e29], vec![f64::NAN], vec![5.0, 5.0]]
        {
            let scales = [
                Scale::from_zero(values.iter().copied(), "bytes", 5),
                Scale::log(values.iter().copied(), "us", 5),
            ];
            for scale in scales {
                assert!(!scale.ticks.is_empty(), "{values:?}");
                assert!(scale.ticks.len() < 100, "{values:?}");
                for value in values.iter().copied().chain([f64::INFINITY, 0.0, -1e300]) {
                    assert!((0.0..=1.0).contains(&scale.share(value)), "{values:?} {value}");
                }
            }
        }
    }
}
