//! What may be said of samples, and how it looks.

use super::*;

fn sample(round: usize, contender: &str, cpu_us: f64, rate: f64) -> Sample {
    Sample {
        round,
        contender: contender.to_string(),
        workload: "depth 1".to_string(),
        requests: 1_000_000,
        seconds: 1e6 / rate,
        cpu_user: cpu_us * 0.25,
        cpu_system: cpu_us * 0.75,
        p50_us: 20.0,
        p99_us: 90.0,
        ..Sample::default()
    }
}

/// Eight rounds with a little noise that is the same in all tests.
fn results(factors: &[(&str, f64)]) -> Results {
    let mut results =
        Results { rounds: 8, base: "base".to_string(), method: "Somehow.".to_string(), ..Results::default() };
    for round in 0..8 {
        for (number, (name, factor)) in factors.iter().enumerate() {
            let noise = 1.0 + 0.01 * (((round * 5 + number * 3) % 8) as f64 / 8.0 - 0.5);
            results.samples.push(sample(round, name, 4.0 * factor * noise, 2e5 / factor / noise));
        }
    }
    results
}

#[test]
fn a_difference_is_found_and_none_is_not() {
    let mut results = results(&[("base", 1.0), ("base-again", 1.0), ("other", 0.8)]);
    results.again = Some("base-again".to_string());
    results.conclude();
    assert_eq!(results.contenders(), ["base", "base-again", "other"]);
    let other = results.comparison("depth 1", "other", Quantity::Cpu).expect("compared");
    assert!(other.words.starts_with("other is 0.80x base [0."), "{}", other.words);
    assert!(other.words.ends_with(" in server CPU per request, 8 rounds"), "{}", other.words);
    let again = results.comparison("depth 1", "base-again", Quantity::Cpu).expect("compared");
    assert!(again.words.contains("no difference larger than 1 % detected"), "{}", again.words);
    let [low, high] = results.floor("depth 1", Quantity::Rate).expect("a floor");
    assert!(low < 1.0);
    assert!(high > 1.0);
    assert!(results.shown.verdict.starts_with("depth 1: other is 0.80x base"), "{}", results.shown.verdict);
    assert!(!results.shown.verdict.contains("again"));
    assert_eq!(results.slowdown_is_found(), None);
}

/// Both arms of the positive control.
#[test]
fn a_slowdown_is_found_when_there_is_one() {
    let check = |factor: f64, expected: bool| {
        let mut results = results(&[("base", 1.0), ("base-slowed", factor)]);
        results.slowed = Some("base-slowed".to_string());
        results.conclude();
        assert_eq!(results.slowdown_is_found(), Some(expected), "{factor}");
    };
    check(1.05, true);
    check(1.0, false);
    check(0.9, false);
    let mut empty = Results { slowed: Some("x".to_string()), ..Results::default() };
    empty.conclude();
    assert_eq!(empty.slowdown_is_found(), Some(false));
}

#[test]
fn rounds_without_both_are_left_out() {
    let mut results = results(&[("base", 1.0), ("other", 0.5)]);
    results.samples.truncate(11);
    results.conclude();
    let ratio =
        results.comparison("depth 1", "other", Quantity::Cpu).and_then(|it| it.ratio).expect("a ratio");
    assert_eq!((ratio.rounds, ratio.interval), (5, None));
    assert!(
        results.text().contains("5 rounds are too few to compare server CPU per request; 6 give an interval")
    );
    results.samples.clear();
    results.conclude();
    assert_eq!(results.shown.verdict, "Nothing was measured.");
}

#[test]
fn text_fits_a_terminal_and_never_says_faster() {
    let long = "a-very-long-name-of-a-server";
    let mut results = results(&[("base", 1.0), (long, 0.654), ("base-again", 1.0)]);
    results.again = Some("base-again".to_string());
    results.absent = vec!["dragonfly".to_string()];
    results.conclude();
    let text = results.text();
    for line in text.lines().take_while(|line| !line.contains(": ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("a-very-long-name~"), "{text}");
    assert!(text.contains("0.65 ["), "{text}");
    assert!(text.contains("Not installed: dragonfly."));
    assert!(!text.contains("faster"));
}

#[test]
fn results_come_back_and_hold_only_numbers() {
    let mut results = results(&[("base", 1.0), ("other", 0.5)]);
    results.conclude();
    let value = serde_json::to_value(&results).expect("JSON");
    assert_eq!(value["verdict"].as_str(), Some(results.shown.verdict.as_str()));
    assert_eq!(value["figures"][0]["draws"], "forest");
    let back: Results = serde_json::from_value(value).expect("the same");
    assert_eq!(back.shown, results.shown);
    assert_eq!(back.samples.len(), 16);
}
