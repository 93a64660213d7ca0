//! The order in which contenders are measured: each once in every round, and in each round in another order.
//!
//! What changes slowly (a warmer processor, a neighbour on the same host) then meets all of them alike, and what comes
//! with a period meets none of them on purpose.

use crate::random::Random;

/// For each round, which contender is when: a permutation of `0..contenders`.
pub fn orders(contenders: usize, rounds: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let order = |random: &mut Random| {
        let mut order: Vec<usize> = (0..contenders).collect();
        for end in (1..contenders).rev() {
            let other = random.below(end as u64 + 1);
            order.swap(end, usize::try_from(other).expect("below the number of contenders"));
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
}
