//! Histograms of times in nanoseconds: three significant digits, merged and never averaged.

use std::io::Cursor;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// The longest time that is told apart; what takes longer counts as this.
pub const NANOSECONDS_MAX: u64 = 3_600_000_000_000;

/// Significant decimal digits of a time.
const DIGITS: u8 = 3;

/// Counts of times, as HdrHistogram keeps them. In JSON it is the base64 text of HdrHistogram's V2 layout, which
/// other programs read, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty one. It grows with the longest time that it holds, to some 250 KiB at most.
    pub fn new() -> Self {
        let mut counts = hdrhistogram::Histogram::new(DIGITS).expect("three digits are allowed");
        counts.auto(true);
        Histogram(counts)
    }

    /// Adds a time in nanoseconds, `times` times.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64, times: u64) {
        let nanoseconds = nanoseconds.min(NANOSECONDS_MAX);
        self.0.record_n(nanoseconds, times).expect("it grows to the longest time");
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("it grows to the longest time");
    }

    /// Forgets everything; keeps its memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many times it holds.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time in nanoseconds that this share of all times (0.99) does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The shortest, in nanoseconds; 0 if there are none.
    pub fn min(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// The longest, in nanoseconds; 0 if there are none.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The mean, in nanoseconds; 0 if there are none.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The standard deviation, in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.0.stdev()
    }

    /// How many times are longer than so many nanoseconds, to the histogram's precision.
    pub fn count_above(&self, nanoseconds: u64) -> u64 {
        let below = self.0.count_between(0, nanoseconds.min(NANOSECONDS_MAX));
        self.count() - below
    }

    /// What plotters of HdrHistogram read (`.hgrm`): a line for each step towards 100 %, values in microseconds.
    pub fn hgrm(&self) -> String {
        use std::fmt::Write;
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        for step in self.0.iter_quantiles(5) {
            let value = step.value_iterated_to() as f64 / 1e3;
            let share = step.quantile_iterated_to();
            let total = self.0.count_between(0, step.value_iterated_to());
            let _ = match share < 1.0 {
                true => writeln!(text, "{value:12.3} {share:2.12} {total:10} {:14.2}", 1.0 / (1.0 - share)),
                false => writeln!(text, "{value:12.3} {share:2.12} {total:10}"),
            };
        }
        let (mean, deviation, max) = (self.mean() / 1e3, self.deviation() / 1e3, self.max() as f64 / 1e3);
        let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
        let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", self.count());
        let (buckets, parts) = (self.0.buckets(), 2048);
        let _ = writeln!(text, "#[Buckets = {buckets:12}, SubBuckets     = {parts:12}]");
        text
    }

    /// HdrHistogram's V2 layout as base64, which lines of an `.hlog` end with.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("a vector takes all bytes");
        BASE64.encode(&bytes)
    }

    /// Reads [`Self::to_base64`]; nothing if it is something else.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = BASE64.decode(text).ok()?;
        let counts: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut Cursor::new(&bytes)).ok()?;
        let mut histogram = Histogram::new();
        histogram.0.add(counts).ok()?;
        Some(histogram)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_base64())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Histogram::from_base64(&text).ok_or_else(|| serde::de::Error::custom("no HdrHistogram in base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 µs to 1 ms, each once.
    fn thousand() -> Histogram {
        let mut histogram = Histogram::new();
        for micros in 1..=1000 {
            histogram.record(micros * 1000, 1);
        }
        histogram
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let histogram = thousand();
        for (share, micros) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share) as f64 / 1e3;
            assert!((found / micros - 1.0).abs() < 1e-3, "{share}: {found} µs");
        }
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.count_above(900_000), 100);
        assert!((histogram.mean() / 500_500.0 - 1.0).abs() < 1e-3);
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.quantile(0.99), empty.min(), empty.max()), (0, 0, 0, 0));
    }

    #[test]
    fn merged_is_as_if_recorded_together() {
        let mut merged = thousand();
        merged.merge(&thousand());
        let mut twice = Histogram::new();
        (1..=1000).for_each(|micros| twice.record(micros * 1000, 2));
        assert_eq!(merged, twice);
    }

    #[test]
    fn text_comes_back() {
        let mut long = thousand();
        long.record(u64::MAX, 3);
        for histogram in [Histogram::new(), thousand(), long] {
            let json = serde_json::to_string(&histogram).unwrap();
            assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
        }
        assert!(thousand().to_base64().starts_with("HISTE"), "V2, as other programs begin it");
        for text in ["", "HISTEw", "no base64", "AAAA"] {
            assert_eq!(Histogram::from_base64(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_plotter_finds_its_columns() {
        let text = thousand().hgrm();
        let row: Vec<f64> = text
            .lines()
            .find(|line| line.contains(" 0.500000000000 "))
            .unwrap()
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(row[1..], [0.5, 500.0, 2.0]);
        assert!((row[0] - 500.0).abs() < 0.5, "{row:?}");
        assert!(text.contains("Total count    =         1000"));
    }
}
