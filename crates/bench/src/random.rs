//! Seeded randomness: the same seed draws the same workload again.

/// Xoshiro256++ (Blackman, Vigna 2019): fast, equidistributed, and long enough for any run.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// A sequence that follows from the seed alone.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        Random(std::array::from_fn(|_| {
            word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(word)
        }))
    }

    /// A sequence for one of several drawers, such as threads, that share a seed.
    pub fn fork(seed: u64, number: u64) -> Self {
        Random::new(mix(seed ^ mix(number.wrapping_add(1))))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let word = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        word
    }

    /// A number in `0..bound`; its bias is below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.word()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half has 64 bits")
    }

    /// A number above 0, up to and with 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        // 53 bits are exact in a float.
        ((self.word() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// From the exponential law with mean 1: gaps between events that know nothing of each other.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// From the normal law with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Spreads the bits of a word; the same word always gives the same result (the finalizer of SplitMix64).
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers drawn in each test; with a fixed seed, so that a bound that holds once holds always.
    const DRAWS: usize = 100_000;

    #[test]
    fn a_seed_repeats() {
        let words = |mut random: Random| -> Vec<u64> { (0..10).map(|_| random.word()).collect() };
        assert_eq!(words(Random::new(7)), words(Random::new(7)));
        assert_ne!(words(Random::new(7)), words(Random::new(8)));
        assert_ne!(words(Random::fork(7, 0)), words(Random::fork(7, 1)));
    }

    #[test]
    fn the_laws_have_their_moments() {
        let check = |name: &str, mean: f64, variance: f64, draw: fn(&mut Random) -> f64| {
            let mut random = Random::new(1);
            let draws: Vec<f64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
            let found = draws.iter().sum::<f64>() / DRAWS as f64;
            assert!((found - mean).abs() < 5.0 * (variance / DRAWS as f64).sqrt(), "{name}: mean {found}");
            let spread = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / DRAWS as f64;
            assert!((spread / variance - 1.0).abs() < 0.05, "{name}: variance {spread}");
        };
        check("unit", 0.5, 1.0 / 12.0, Random::unit);
        check("exponential", 1.0, 1.0, Random::exponential);
        check("normal", 0.0, 1.0, Random::normal);
        check("below", 4.5, 8.25, |random| random.below(10) as f64);
    }

    /// Kolmogorov and Smirnov's distance between what was drawn and the law; 1.95 / √n is exceeded by one seed in
    /// a thousand.
    #[test]
    fn gaps_are_exponential() {
        let mut random = Random::new(3);
        let mut gaps: Vec<f64> = (0..DRAWS).map(|_| random.exponential()).collect();
        gaps.sort_by(f64::total_cmp);
        let distance = gaps.iter().enumerate().map(|(rank, gap)| {
            let law = 1.0 - (-gap).exp();
            (law - rank as f64 / DRAWS as f64).abs().max(((rank + 1) as f64 / DRAWS as f64 - law).abs())
        });
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.95 / (DRAWS as f64).sqrt(), "distance {distance}");
    }
}
