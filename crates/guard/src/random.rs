//! Random numbers from a seed that was passed in.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound - 1`, for bounds far below 2^64.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The seed of a random test: from `VERACACHE_SEED`, or a fresh one. A failing test shows what was printed.
#[cfg(all(test, not(loom)))]
pub(crate) fn test_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};

    let seed = match std::env::var("VERACACHE_SEED") {
        Ok(text) => text.parse().expect("VERACACHE_SEED is a decimal number"),
        Err(_) => RandomState::new().hash_one(0),
    };
    println!("VERACACHE_SEED={seed}");
    seed
}
