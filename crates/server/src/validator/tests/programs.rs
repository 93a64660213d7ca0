//! Random programs over all commands of all protocols: every mode gives the same answers, and nothing disagrees.

use super::bench::{Bench, Mode, Random, seed, settings};
use super::commands::{Domain, command};
use crate::connection::Speaks;
use crate::settings::Settings;

const MODES: [Mode; 4] = [Mode::Vanilla, Mode::Sei, Mode::Orthrus, Mode::Sync];

/// Runs a program; everything its clients got, then what all keys hold in the end. If it is to be prompt, replies are
/// confirmed as soon as somebody waits for them.
fn run(
    settings: Settings,
    domain: Domain,
    seed: u64,
    commands: usize,
    is_prompt: bool,
) -> (Bench, Vec<Vec<u8>>) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(settings, seed);
    let all = [Speaks::Text, Speaks::Unknown, Speaks::Binary, Speaks::Line];
    let mut wires: Vec<usize> = all.iter().map(|speaks| bench.connect(*speaks)).collect();
    let mut received = vec![Vec::new(); all.len()];
    for _ in 0..commands {
        let at = random.below(all.len());
        let mut bytes = Vec::new();
        for _ in 0..random.pick(&[1, 1, 1, 2, 3, 10]) {
            bytes.extend_from_slice(&command(&mut random, all[at], domain));
        }
        bench.send(wires[at], &bytes);
        if is_prompt && bench.is_held(wires[at]) {
            // What of its input waits, too, is executed at the time that other modes execute it.
            bench.settle();
        }
        match random.below(16) {
            0..4 => bench.round(),
            4 => bench.sleep(0),
            5 => bench.sleep(random.pick(&[0, 0, 0, 1, 2])),
            6..8 => drop(bench.validate(|_| {})),
            8 => drop(bench.shared.store.maintain(&bench.env, 1)),
            _ => {}
        }
        if random.below(8) == 0 || bench.is_held(wires[at]) {
            bench.settle();
        }
        received[at].extend(bench.received(wires[at]));
        if bench.is_closed(wires[at]) {
            wires[at] = bench.connect(all[at]);
        }
    }
    bench.sleep(0);
    bench.settle();
    for (at, wire) in wires.iter().enumerate() {
        received[at].extend(bench.received(*wire));
    }
    let reader = bench.connect(Speaks::Text);
    for number in 0..domain.keys {
        let asked = format!("mg key{number} s v f c t h l\r\n");
        bench.send(reader, asked.as_bytes());
        bench.settle();
        received.push(bench.received(reader));
    }
    (bench, received)
}

/// Nothing may have disagreed, and what was recorded agreed or was abandoned.
fn check_silence(bench: &Bench, mode: Mode) {
    assert_eq!(bench.found(), [], "{mode:?}");
    assert_eq!(bench.shared.store.stats().disagreements, 0, "{mode:?}");
    let recorded = bench.recorded();
    let (validated, abandoned) = bench.validated();
    println!("{mode:?}: {recorded} recorded, {validated} validated, {abandoned} abandoned");
    assert_eq!(validated + abandoned, recorded, "{mode:?}");
    assert!(recorded == 0 || validated > 0, "{mode:?}");
}

fn check(settings: impl Fn(Mode) -> Settings, domain: Domain, commands: usize) {
    let seed = seed();
    let (_, expected) = run(settings(Mode::Vanilla), domain, seed, commands, true);
    let total: usize = expected.iter().map(Vec::len).sum();
    assert!(total > 10 * commands, "the program does something");
    for mode in MODES {
        let (bench, found) = run(settings(mode), domain, seed, commands, true);
        check_silence(&bench, mode);
        for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
            check_same(expected, found, &format!("{mode:?}, {at}"));
        }
    }
}

fn check_same(expected: &[u8], found: &[u8], what: &str) {
    if expected == found {
        return;
    }
    let at = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let show =
        |bytes: &[u8]| bytes[at.saturating_sub(60)..bytes.len().min(at + 60)].escape_ascii().to_string();
    panic!("{what}: expected {:?}, found {:?}", show(expected), show(found));
}

#[test]
fn small_values() {
    check(settings, Domain { keys: 25, value_bytes_max: 60 }, 20_000);
}

/// Values on both sides of what is copied, written as it arrives, and given segments of its own.
#[test]
fn large_values() {
    check(settings, Domain { keys: 25, value_bytes_max: 40_000 }, 2_000);
}

#[test]
fn no_cas_ids() {
    let settings = |mode| Settings { cas: false, ..settings(mode) };
    check(settings, Domain { keys: 25, value_bytes_max: 60 }, 5_000);
}

/// So little memory that items are evicted, segments moved and records abandoned. When that happens depends on the mode,
/// so answers may differ; none may be wrong.
#[test]
fn little_memory() {
    let seed = seed();
    for mode in MODES {
        let settings = Settings { memory_bytes: 2 << 20, item_bytes_max: 100_000, ..settings(mode) };
        let domain = Domain { keys: 3_000, value_bytes_max: 12_000 };
        let (bench, _) = run(settings, domain, seed, 5_000, false);
        check_silence(&bench, mode);
        assert!(bench.shared.store.stats().evictions > 0, "{mode:?}");
    }
}
