//! Numbers that follow from a seed: the same on every machine and in every version.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From two numbers, so that each injection has a stream of its own.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Less than `limit`, which is not 0. Limits are small beside 2^64, so that the bias is far below what can be measured.
    pub fn below(&mut self, limit: usize) -> usize {
        assert!(limit > 0);
        (self.next() % limit as u64) as usize
    }

    /// The same, for 32 bits.
    pub fn below_u32(&mut self, limit: u32) -> u32 {
        assert!(limit > 0);
        (self.next() % u64::from(limit)) as u32
    }

    /// One of several; none of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }

    /// True with this probability, 0 to 1.
    pub fn happens(&mut self, probability: f64) -> bool {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64 <= probability && probability > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn limits_and_probabilities_are_kept() {
        let mut random = Random::new(7, 0);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!(random.pick::<u8>(&[]).is_none());
        assert!((0..1000).all(|_| random.happens(1.0)));
        assert!((0..1000).all(|_| !random.happens(0.0)));
        let hits = (0..10_000).filter(|_| random.happens(0.25)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
    }
}
