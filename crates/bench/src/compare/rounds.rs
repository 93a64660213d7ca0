//! The order in which contenders are measured: each once in every round, and in each round in another order.
//!
//! What changes slowly (a warmer processor, a neighbour on the same host) then meets all of them alike, and what comes
//! with a period meets none of them on purpose.

/// Numbers of a seed: Steele, Lea and Flood's SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// All values alike.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub fn share(&mut self) -> f64 {
        // 53 bits are what the type tells apart.
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below a limit, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        assert!(limit > 0);
        // The bias of the multiplication is below 2^-32 for the handful of places that are drawn here.
        let drawn = (u128::from(self.draw()) * limit as u128) >> 64;
        usize::try_from(drawn).expect("below the limit")
    }
}

/// For each round, which contender is when: a permutation of `0..contenders`.
pub fn orders(contenders: usize, rounds: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let order = |random: &mut Random| {
        let mut order: Vec<usize> = (0..contenders).collect();
        for end in (1..contenders).rev() {
            order.swap(end, random.below(end + 1));
        }
        order
    };
    (0..rounds).map(|_| order(random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_there_once_in_each_round() {
        for contenders in [1, 2, 5] {
            for mut order in orders(contenders, 20, &mut Random::new(3)) {
                order.sort_unstable();
                assert_eq!(order, (0..contenders).collect::<Vec<usize>>());
            }
        }
    }

    #[test]
    fn every_order_comes_and_the_seed_repeats_it() {
        let once = orders(3, 600, &mut Random::new(7));
        assert_eq!(once, orders(3, 600, &mut Random::new(7)));
        assert_ne!(once, orders(3, 600, &mut Random::new(8)));
        let mut sorted = once.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 6);
        for order in &sorted {
            let count = once.iter().filter(|it| *it == order).count();
            assert!((60..140).contains(&count), "{order:?} came {count} times of 600");
        }
    }

    #[test]
    fn numbers_are_splitmix() {
        // Of the reference implementation, with seed 1234567.
        let mut random = Random::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.share())));
    }
}
