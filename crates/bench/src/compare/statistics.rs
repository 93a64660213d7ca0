//! From rounds to a ratio with its interval.
//!
//! In each round every contender was measured once, so a round gives one ratio. Their logarithms are taken, so that 2x
//! and 0.5x are equally far from 1. The estimate is Hodges and Lehmann's: the median of the means of all pairs of rounds
//! (each with itself, too). Its interval is the exact one of Wilcoxon's signed-rank distribution: it assumes that rounds
//! are independent and their noise symmetric, but nothing of its shape. A bootstrap would need more rounds than anybody
//! waits for, and draws random numbers. (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd ed., 3.2, 3.3.)

use serde::{Deserialize, Serialize};

/// What an interval misses at most, as a share of such intervals, on both sides together.
const MISSES: f64 = 0.05;

/// With fewer rounds there is no interval of 95 %: even if all say the same, that is chance in 2 of 2^5 cases.
pub const ROUNDS_MIN: usize = 6;

/// More than this would not make an interval narrower than what a machine drifts, and the distribution is computed in
/// quadratic memory.
pub const ROUNDS_MAX: usize = 500;

/// A quantity of one contender divided by that of another.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ratio {
    /// The estimate.
    pub ratio: f64,
    /// The interval of 95 %; none with fewer than [`ROUNDS_MIN`] rounds.
    pub interval: Option<[f64; 2]>,
    /// Rounds in which both were measured.
    pub rounds: usize,
}

impl Ratio {
    /// The ratio of pairs, one per round. Pairs that have no logarithm (of zero, or of what is no number) are left out,
    /// which `rounds` shows; none if no pair is left.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let mut logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
        logs.retain(|log| log.is_finite());
        logs.truncate(ROUNDS_MAX);
        let averages = walsh_averages(&logs);
        let ratio = median_of_sorted(&averages)?.exp();
        let interval = rank_of_bound(logs.len())
            .map(|rank| [averages[rank - 1].exp(), averages[averages.len() - rank].exp()]);
        Some(Ratio { ratio, interval, rounds: logs.len() })
    }

    /// Whether the interval says that there is a difference.
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 1.0 || high < 1.0)
    }

    /// How far from 1 the interval reaches, as a share: with 0.96 to 1.05 it is 0.05.
    pub fn reach(&self) -> Option<f64> {
        self.interval.map(|[low, high]| high.max(1.0 / low).max(1.0 / high).max(low) - 1.0)
    }

    /// The sentence that may be said of it, of two names and what was compared.
    pub fn words(&self, name: &str, base: &str, quantity: &str) -> String {
        let rounds = self.rounds;
        match (self.interval, self.reach()) {
            (Some([low, high]), _) if self.differs() => {
                let ratio = self.ratio;
                format!("{name} is {ratio:.2}x {base} [{low:.2}, {high:.2}] in {quantity}, {rounds} rounds")
            }
            (_, Some(reach)) => {
                // Up, but not for the last bit of a binary fraction.
                let percent = (reach * 100.0 - 1e-6).ceil();
                format!(
                    "{name} and {base}: no difference larger than {percent:.0} % detected in {quantity}, \
                     {rounds} rounds"
                )
            }
            _ => format!(
                "{name} and {base}: {rounds} rounds are too few to compare {quantity}; \
                 {ROUNDS_MIN} give an interval"
            ),
        }
    }
}

/// The median of some values; none of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let count = sorted.len();
    match count % 2 {
        _ if count == 0 => None,
        1 => Some(sorted[count / 2]),
        _ => Some(f64::midpoint(sorted[count / 2 - 1], sorted[count / 2])),
    }
}

/// The means of all pairs, each with itself too, sorted.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, value) in values.iter().enumerate() {
        averages.extend(values[index..].iter().map(|other| f64::midpoint(*value, *other)));
    }
    averages.sort_by(f64::total_cmp);
    averages
}

/// Which of the sorted averages, counted from 1 and from both ends, bounds the interval.
fn rank_of_bound(rounds: usize) -> Option<usize> {
    let mut cumulated = 0.0;
    let mut rank = 0;
    for probability in signed_rank_distribution(rounds) {
        cumulated += probability;
        if cumulated > MISSES / 2.0 {
            break;
        }
        rank += 1;
    }
    (rank > 0).then_some(rank)
}

/// How probable each value of Wilcoxon's statistic is (0 to n (n + 1) / 2) where there is no difference.
fn signed_rank_distribution(rounds: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; rounds * (rounds + 1) / 2 + 1];
    probabilities[0] = 1.0;
    let mut largest = 0;
    for rank in 1..=rounds {
        // Each rank counts or doesn't, with equal chance.
        largest += rank;
        for value in (0..=largest).rev() {
            let with = if value >= rank { probabilities[value - rank] } else { 0.0 };
            probabilities[value] = f64::midpoint(probabilities[value], with);
        }
    }
    probabilities
}

#[cfg(test)]
mod tests;
