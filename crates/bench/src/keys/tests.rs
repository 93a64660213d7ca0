//! What is drawn follows its law, by tests of what is really drawn.

use super::*;

/// With a fixed seed, so that a bound that holds once holds always.
const SEED: u64 = 11;
const DRAWS: u64 = 400_000;

/// How often each key is drawn.
fn counts(popularity: Popularity, keys: u64) -> Vec<u64> {
    let (mut drawer, mut random) = (Drawer::new(popularity, keys, 0, 1), Random::new(SEED));
    let mut counts = vec![0; usize::try_from(keys).unwrap()];
    (0..DRAWS).for_each(|_| counts[usize::try_from(drawer.draw(&mut random)).unwrap()] += 1);
    counts
}

/// Pearson's statistic over classes in each of which at least 20 draws are expected, as a number of standard
/// deviations above what chance gives.
fn surprise(counts: &[u64], law: impl Fn(u64) -> f64) -> f64 {
    let total: f64 = (0..counts.len() as u64).map(&law).sum();
    let (mut expected, mut found, mut statistic, mut classes) = (0.0, 0.0, 0.0, 0.0);
    for (key, count) in (0..).zip(counts) {
        expected += law(key) / total * DRAWS as f64;
        found += *count as f64;
        if expected >= 20.0 {
            statistic += (found - expected) * (found - expected) / expected;
            (expected, found, classes) = (0.0, 0.0, classes + 1.0);
        }
    }
    assert!(classes > 1.0);
    (statistic - (classes - 1.0)) / (2.0 * (classes - 1.0_f64)).sqrt()
}

#[test]
fn uniform_is_uniform() {
    assert!(surprise(&counts(Popularity::Uniform, 1000), |_| 1.0) < 3.5);
}

#[test]
fn zipf_has_its_exponent() {
    for exponent in [0.0, 0.5, 0.99, 1.0, 1.16, 2.5] {
        // Within the table, and far beyond it.
        for keys in [1, 2, 100, 4096, 4097, 50_000] {
            let counts = counts(Popularity::Zipf(exponent), keys);
            if keys == 1 {
                assert_eq!(counts, [DRAWS]);
                continue;
            }
            let found = surprise(&counts, |key| ((key + 1) as f64).powf(-exponent));
            assert!(found < 3.5, "exponent {exponent}, {keys} keys: {found} deviations");
        }
    }
}

/// The second arm: the statistic tells a law from its neighbour, and from a uniform one called zipf.
#[test]
fn another_law_is_found() {
    let drawn = counts(Popularity::Zipf(0.99), 50_000);
    assert!(surprise(&drawn, |key| ((key + 1) as f64).powf(-0.95)) > 10.0);
    assert!(surprise(&counts(Popularity::Uniform, 1000), |key| 1.0 / (key + 1) as f64) > 10.0);
}

#[test]
fn a_tail_of_billions_has_its_weight() {
    let (mut drawer, mut random) = (Drawer::new(Popularity::Zipf(1.0), KEYS_MAX, 0, 1), Random::new(SEED));
    // Half of the harmonic sum lies below this rank: H(n) is ln n + 0.5772.
    let half = ((((KEYS_MAX as f64).ln() + 0.577_215_7) / 2.0 - 0.577_215_7).exp()) as u64;
    let below = (0..DRAWS).filter(|_| drawer.draw(&mut random) < half).count() as f64;
    assert!((below / DRAWS as f64 - 0.5).abs() < 0.004, "{below}");
}

#[test]
fn a_hotspot_has_its_share() {
    let counts = counts(Popularity::Hotspot { keys: 0.1, draws: 0.9 }, 1000);
    assert!(surprise(&counts, |key| if key < 100 { 9.0 } else { 1.0 / 9.0 * 1.0 }) < 3.5);
    assert_eq!(
        Drawer::new(Popularity::Hotspot { keys: 0.5, draws: 0.0 }, 1, 0, 1).draw(&mut Random::new(1)),
        0
    );
}

#[test]
fn a_sequence_covers_all_once_a_turn() {
    for (keys, parts) in [(10, 1), (10, 3), (3, 7)] {
        let mut random = Random::new(SEED);
        let mut drawn = Vec::new();
        for part in 0..parts {
            let (first, end) = share(keys, part, parts);
            let mut drawer = Drawer::new(Popularity::Sequential, keys, part, parts);
            drawn.extend((first..end).map(|_| drawer.draw(&mut random)));
        }
        assert_eq!(drawn, (0..keys).collect::<Vec<_>>());
    }
    let mut drawer = Drawer::new(Popularity::Sequential, 3, 0, 1);
    let drawn: Vec<u64> = (0..7).map(|_| drawer.draw(&mut Random::new(1))).collect();
    assert_eq!(drawn, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn names_come_back() {
    for text in ["uniform", "sequential", "zipf:0.99", "zipf:0", "hotspot:0.1,0.9"] {
        assert_eq!(text.parse::<Popularity>().unwrap().to_string(), text);
    }
    for text in ["", "zip", "zipf:x", "zipf:-1", "zipf:NaN", "hotspot", "hotspot:1,1", "uniform:1"] {
        assert_eq!(text.parse::<Popularity>().expect_err(text).exit_code(), 2);
    }
}

#[test]
fn keys_are_written_and_read() {
    for (number, bytes, key) in [
        (0, 0, "k0"),
        (7, 5, "k0007"),
        (42, 3, "k42"),
        (12345, 3, "k12345"),
        (u64::MAX, 30, "k00000000018446744073709551615"),
        (5, 40, "k000000000000000000000000000000000000005"),
    ] {
        let mut out = Vec::new();
        push_key(&mut out, b"k", number, bytes);
        assert_eq!(String::from_utf8(out.clone()).unwrap(), key);
        assert_eq!(parse_key(&out, b"k"), Some(number));
    }
    for key in ["", "k", "x1", "k1x", "k99999999999999999999999"] {
        assert_eq!(parse_key(key.as_bytes(), b"k"), None, "{key}");
    }
}
