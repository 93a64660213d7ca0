//! The table of medians and ratios, in 80 columns.

/// One figure: microseconds or bytes, as its row says.
pub(super) type Sample = f64;

/// What was measured of both contenders, round by round.
pub(super) struct Row {
    name: String,
    unit: &'static str,
    /// The largest median ratio that passes.
    limit: f64,
    /// Ours first, the peer second.
    samples: [Vec<Sample>; 2],
}

impl Row {
    pub(super) fn new(name: String, unit: &'static str, limit: f64) -> Self {
        Row { name, unit, limit, samples: [Vec::new(), Vec::new()] }
    }

    pub(super) fn push(&mut self, contender: usize, sample: Sample) {
        self.samples[contender].push(sample);
    }

    /// Ours divided by the peer's, within each round.
    fn ratios(&self) -> Vec<f64> {
        self.samples[0].iter().zip(&self.samples[1]).map(|(ours, peer)| ours / peer).collect()
    }
}

/// Prints the table; the number of rows whose median ratio is above the limit.
pub(super) fn print(rows: &[Row], names: &[&str; 2]) -> usize {
    println!(
        "{:<30}{:>9} {:>10}  {:>5} {:>13}  limit",
        "median of rounds", names[0], names[1], "ratio", "min .. max"
    );
    let mut missed = 0;
    for row in rows {
        let ratios = row.ratios();
        let ratio = median(&ratios);
        let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = ratios.iter().copied().fold(0.0, f64::max);
        let met = ratio <= row.limit;
        missed += usize::from(!met);
        let digits = if row.unit == "us" { 3 } else { 1 };
        println!(
            "{:<30}{:>9.digits$} {:>7.digits$} {:<2}  {:>5.2}  {:>4.2} .. {:>4.2}  {:.2} {}",
            row.name,
            median(&row.samples[0]),
            median(&row.samples[1]),
            row.unit,
            ratio,
            smallest,
            largest,
            row.limit,
            if met { "ok" } else { "MISSED" },
        );
    }
    println!("{} rounds, interleaved; ratio: median of the ratios within a round", rows[0].samples[0].len());
    missed
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let check = |values: &[f64], expected: f64| assert_eq!(median(values), expected, "{values:?}");
        check(&[3.0], 3.0);
        check(&[3.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let mut row = Row::new("x".into(), "us", 1.0);
        for (ours, peer) in [(1.0, 2.0), (3.0, 2.0)] {
            row.push(0, ours);
            row.push(1, peer);
        }
        assert_eq!(row.ratios(), [0.5, 1.5]);
    }
}
