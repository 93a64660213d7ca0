//! A Zipf sampler.

use crate::random::Random;

/// Ranks `0..n` with probability proportional to `(rank + 1)^-theta`, by rejection-inversion
/// (Hörmann and Derflinger, 1996): constant time and no table, for any `theta >= 0`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    theta: f64,
    ranks: f64,
    area_first: f64,
    area_all: f64,
    shortcut: f64,
}

impl Zipf {
    pub(super) fn new(ranks: u32, theta: f64) -> Self {
        assert!(ranks > 0);
        assert!(theta >= 0.0);
        let mut zipf = Zipf { theta, ranks: f64::from(ranks), area_first: 0.0, area_all: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(zipf.ranks + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    pub(super) fn sample(&self, random: &mut Random) -> u32 {
        loop {
            let area = self.area_all + unit(random) * (self.area_first - self.area_all);
            let x = self.area_inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u32 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of `weight`, zero at 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.theta) * log;
        log * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        (area * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }
}

/// A number in `0.0..1.0` with 53 random bits.
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_zipf(ranks: u32, theta: f64) {
        const DRAWS: u32 = 100_000;
        let zipf = Zipf::new(ranks, theta);
        let mut random = Random::new(42);
        let mut seen = vec![0u32; ranks as usize];
        for _ in 0..DRAWS {
            seen[zipf.sample(&mut random) as usize] += 1;
        }
        let total: f64 = (1..=ranks).map(|rank| f64::from(rank).powf(-theta)).sum();
        for rank in [0, 1, 2, 9, ranks as usize - 1] {
            let expected = f64::from(DRAWS) * (rank as f64 + 1.0).powf(-theta) / total;
            // Six standard deviations of a binomial count, plus one for the rarest ranks.
            let allowed = 6.0 * expected.sqrt() + 1.0;
            let difference = (f64::from(seen[rank]) - expected).abs();
            assert!(difference <= allowed, "theta {theta} rank {rank}: {} {expected}", seen[rank]);
        }
    }

    #[test]
    fn zipf_frequencies_follow_the_power_law() {
        for theta in [0.0, 0.5, 0.9, 0.99, 1.0, 1.2] {
            check_zipf(100, theta);
            check_zipf(10_000, theta);
        }
    }
}
