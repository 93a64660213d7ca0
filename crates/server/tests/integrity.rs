//! Checking what lies in memory, over a socket: what `stats integrity` says, and that it happens.

mod common;

use std::time::{Duration, Instant};

use common::{Client, settings, start};
use server::settings::Settings;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

const KEYS: [&str; 9] = [
    "scrub_items_per_second",
    "scrubbed_items",
    "scrub_passes",
    "scrub_pass_seconds",
    "scrub_damaged",
    "scrub_went_with_damaged",
    "crc_mismatches",
    "executions_per_command",
    "disagreements",
];

/// Some values of `stats integrity`, in the order of [`KEYS`].
fn integrity(client: &mut Client) -> [f64; 9] {
    client.send("stats integrity\r\n");
    let mut lines = Vec::new();
    loop {
        let line = client.line();
        if line == "END" {
            break;
        }
        lines.push(line);
    }
    KEYS.map(|key| {
        let begin = format!("STAT {key} ");
        let value = lines.iter().find_map(|line| line.strip_prefix(&begin));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{key}: {lines:?}"))
    })
}

/// Waits for a pass that began after now, so for the second to end from here.
fn whole_pass(client: &mut Client) -> [f64; 9] {
    let [_, _, passes, ..] = integrity(client);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = integrity(client);
        if found[2] >= passes + 2.0 {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::yield_now();
    }
}

/// A store with so many items is walked, each item at least once in a pass, and nothing is found.
fn check(settings: Settings, items: usize, value_bytes: usize) {
    let rate = settings.scrub_items_per_second;
    let server = start(settings);
    let client = &mut Client::to(&server);
    let value = "v".repeat(value_bytes);
    for number in 0..items {
        client.send(format!("set key{number} 0 0 {value_bytes} noreply\r\n{value}\r\n"));
    }
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        let held = client.stat("curr_items") as f64;
        let [_, before, ..] = integrity(client);
        let found = whole_pass(client);
        // What moves during a pass may be left out of it, and what a full store still evicts is not there any more;
        // in the end nothing moves.
        if found[1] >= before + held {
            break found;
        }
        assert!(Instant::now() < deadline, "{} items checked, {before} before, {held} there", found[1]);
    };
    let [per_second, _, passes, seconds, damaged, went_with_it, mismatches, executions, disagreements] =
        found;
    assert_eq!(per_second, f64::from(rate));
    assert!(passes >= 2.0);
    assert!(seconds > 0.0);
    assert!(seconds < PATIENCE.as_secs_f64());
    assert_eq!((damaged, went_with_it, mismatches), (0.0, 0.0, 0.0));
    assert!(executions >= 1.0);
    assert_eq!(disagreements, 0.0);
}

#[test]
fn a_store_is_checked() {
    let scrubbing = |rate| Settings { scrub_items_per_second: rate, ..settings() };
    check(scrubbing(1_000_000), 1_000, 10);
    check(scrubbing(20_000), 100, 1_000);
    check(scrubbing(1_000_000), 20, 500_000);
    // One that is full, where there is eviction and where there is none.
    let full = |evict| Settings { memory_bytes: 4 << 20, evict, ..scrubbing(1_000_000) };
    check(full(true), 10_000, 1_000);
    check(full(false), 10_000, 1_000);
}

/// Without the scrubber nothing is checked; the numbers are there all the same.
#[test]
fn a_store_is_left_alone() {
    let server = start(Settings { scrub_items_per_second: 0, ..settings() });
    let client = &mut Client::to(&server);
    client.check("set key 0 0 1\r\nv\r\n", "STORED\r\n");
    let rounds = client.stat("lru_maintainer_juggles");
    let deadline = Instant::now() + PATIENCE;
    while client.stat("lru_maintainer_juggles") < rounds + 3 {
        assert!(Instant::now() < deadline, "the janitor does nothing");
        std::thread::yield_now();
    }
    let [found @ .., executions, disagreements] = integrity(client);
    assert_eq!((found, disagreements), ([0.0; 7], 0.0));
    assert!(executions >= 1.0);
}

/// What is counted since the start stays so.
#[test]
fn a_reset_changes_nothing() {
    let server = start(Settings { scrub_items_per_second: 1_000_000, ..settings() });
    let client = &mut Client::to(&server);
    client.check("set key 0 0 1\r\nv\r\n", "STORED\r\n");
    let before = whole_pass(client);
    client.check("stats reset\r\n", "RESET\r\n");
    let after = integrity(client);
    assert!(after[1] >= before[1]);
    assert!(after[2] >= before[2]);
}
