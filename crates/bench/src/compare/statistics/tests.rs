//! Estimates and intervals against known ones, and against their promise.

use super::*;
use crate::random::Random;

fn about(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

/// Critical values of the signed-rank test, two-sided at 5 %, as tables have them; the bound is the next rank.
#[test]
fn bounds_are_those_of_tables() {
    let table = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (13, 17), (14, 21), (15, 25)];
    for (rounds, critical) in table.into_iter().chain([(16, 29), (20, 52), (25, 89), (30, 137)]) {
        assert_eq!(rank_of_bound(rounds), Some(critical + 1), "{rounds} rounds");
    }
    for rounds in 0..ROUNDS_MIN {
        assert_eq!(rank_of_bound(rounds), None, "{rounds} rounds");
    }
}

#[test]
fn probabilities_are_a_distribution() {
    for rounds in [1, 5, 12, 60, ROUNDS_MAX] {
        let distribution = signed_rank_distribution(rounds);
        about(distribution.iter().sum(), 1.0);
        about(distribution[0], 0.5f64.powi(i32::try_from(rounds).expect("small")));
    }
}

/// Darwin's pairs of plants, an example of many textbooks, taken as percents of a logarithm: the median of the 120
/// averages, and of them the 26th from either end.
#[test]
fn estimate_and_interval_are_those_of_all_averages() {
    let percents = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48];
    let pairs: Vec<(f64, f64)> = percents.iter().map(|it| ((f64::from(*it) / 100.0).exp(), 1.0)).collect();
    let ratio = Ratio::of(&pairs).expect("pairs");
    let mut averages: Vec<f64> = Vec::new();
    for (index, one) in percents.iter().enumerate() {
        averages.extend(percents[..=index].iter().map(|other| f64::from(one + other) / 200.0));
    }
    averages.sort_by(f64::total_cmp);
    about(ratio.ratio.ln(), (averages[59] + averages[60]) / 2.0);
    let [low, high] = ratio.interval.expect("15 rounds");
    about(low.ln(), averages[25]);
    about(high.ln(), averages[94]);
}

#[test]
fn what_can_be_done_by_hand() {
    let check = |ratios: &[f64], ratio: f64, interval: Option<[f64; 2]>| {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (ratio * 3.0, 3.0)).collect();
        let found = Ratio::of(&pairs).expect("pairs");
        about(found.ratio, ratio);
        assert_eq!(found.rounds, ratios.len());
        assert_eq!(found.interval.is_some(), interval.is_some());
        if let (Some(found), Some(expected)) = (found.interval, interval) {
            about(found[0], expected[0]);
            about(found[1], expected[1]);
        }
    };
    check(&[2.0], 2.0, None);
    check(&[1.0, 4.0], 2.0, None);
    check(&[0.5, 2.0, 1.0], 1.0, None);
    // With six, the interval is from the least to the most.
    check(&[1.1, 1.2, 1.1, 1.1, 1.3, 1.1], (1.1f64 * 1.2).sqrt(), Some([1.1, 1.3]));
}

#[test]
fn what_has_no_logarithm_is_left_out() {
    let pairs = [(2.0, 1.0), (0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (2.0, 1.0)];
    let ratio = Ratio::of(&pairs).expect("two are left");
    assert_eq!((ratio.ratio, ratio.rounds), (2.0, 2));
    assert_eq!(Ratio::of(&[(0.0, 0.0)]), None);
    assert_eq!(Ratio::of(&[]), None);
}

#[test]
fn words() {
    let check = |ratio: f64, interval: Option<[f64; 2]>, rounds: usize, expected: &str| {
        let words = Ratio { ratio, interval, rounds }.words("A", "B", "throughput");
        assert_eq!(words, expected);
        assert!(!words.contains("faster"));
    };
    check(1.18, Some([1.12, 1.25]), 12, "A is 1.18x B [1.12, 1.25] in throughput, 12 rounds");
    check(0.8, Some([0.7, 0.95]), 6, "A is 0.80x B [0.70, 0.95] in throughput, 6 rounds");
    let none = "A and B: no difference larger than 7 % detected in throughput, 12 rounds";
    check(1.02, Some([0.97, 1.07]), 12, none);
    check(0.98, Some([1.0 / 1.065, 1.01]), 12, none);
    let few = "A and B: 3 rounds are too few to compare throughput; 6 give an interval";
    check(1.5, None, 3, few);
}

/// Two arms: of rounds without a difference about 1 in 20 is said to have one, and a slowdown of 5 % in noise of
/// 2 % is nearly always found.
#[test]
fn intervals_hold_what_they_promise() {
    let seed = std::env::var("VERACACHE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_24);
    println!("VERACACHE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut differing = |slowdown: f64| {
        let trial = |random: &mut Random| {
            let mut noise = || (0..12).map(|_| random.unit()).sum::<f64>().mul_add(0.02, -0.12).exp();
            let pairs: Vec<(f64, f64)> = (0..12).map(|_| (slowdown * noise(), noise())).collect();
            Ratio::of(&pairs).expect("pairs").differs()
        };
        (0..1000).filter(|_| trial(&mut random)).count()
    };
    // Exactly 4.2 % for 12 rounds; the bounds are five standard deviations away.
    let wrong = differing(1.0);
    assert!((12..75).contains(&wrong), "{wrong} of 1000");
    let found = differing(1.05);
    assert!(found > 950, "{found} of 1000");
}
