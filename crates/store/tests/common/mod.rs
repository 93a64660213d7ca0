//! What several tests need: a seeded generator whose seed is printed and can be given back.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// The seed from `VERACACHE_SEED`, or one from the clock; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok());
    let clock =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let seed = given.unwrap_or_else(clock);
    println!("VERACACHE_SEED={seed}");
    seed
}
