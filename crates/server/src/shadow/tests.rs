//! Each fault by hand, then a model of workers, an evictor and a validator that take their steps in random order.

use super::*;

mod model;
mod server;

const KEY: u64 = 0x0123_4500_89AB_CDEF;
const PROGRESS: Progress = Progress { heard: 0, now: 0, seconds: 1_000 };
const FOUND: Seen = Seen {
    hash: KEY,
    worker: 0,
    at: 0,
    found: None,
    change: Change::Kept,
    exptime: 0,
    seconds: 1_000,
    vanished: 0,
};

/// A command of a worker: what it found and did. It began at `at` and its record arrives at `arrived`.
#[derive(Clone, Copy)]
struct Command {
    worker: u16,
    at: Tick,
    arrived: Tick,
    found: Option<Version>,
    change: Change,
}

/// One after the other in time, by one worker each.
fn in_turn(commands: &[(u16, Option<Version>, Change)]) -> Vec<Command> {
    let at = |index: usize| 10 + 10 * index as Tick;
    let command = |(index, (worker, found, change)): (usize, &(u16, Option<Version>, Change))| Command {
        worker: *worker,
        at: at(index),
        arrived: at(index) + 1,
        found: *found,
        change: *change,
    };
    commands.iter().enumerate().map(command).collect()
}

/// A shadow that follows the key's share from tick 1 on.
fn following() -> Shadow {
    let mut shadow = Shadow::new(Share::of_number(0), 8, 0);
    shadow.settle(&Progress { now: 1, ..PROGRESS }, |_| 0, |found| panic!("{found:?} from nothing"));
    shadow
}

fn settled(shadow: &mut Shadow, progress: &Progress) -> Vec<Finding> {
    settled_after(shadow, progress, 0)
}

/// The same when so many entries have vanished near each of them.
fn settled_after(shadow: &mut Shadow, progress: &Progress, vanished: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    shadow.settle(progress, |_| vanished, |found| findings.push(*found));
    findings
}

fn findings_of(commands: &[Command]) -> Vec<Finding> {
    let mut shadow = following();
    for Command { worker, at, arrived, found, change } in commands {
        shadow.see(&Seen { worker: *worker, at: *at, found: *found, change: *change, ..FOUND }, *arrived);
    }
    settled(&mut shadow, &Progress { heard: 1_000, now: 1_001, ..PROGRESS })
}

fn check(commands: &[(u16, Option<Version>, Change)], expected: &[(Kind, Option<Version>, Option<Version>)]) {
    let findings = findings_of(&in_turn(commands));
    let told: Vec<_> = findings.iter().map(|found| (found.kind, found.expected, found.found)).collect();
    assert_eq!(told, expected, "{commands:?}");
}

use Change::{Kept, Removed, Unordered, Wrote};

#[test]
fn what_was_written_is_found_or_missed() {
    for reader in [0, 1, 70] {
        check(&[(0, None, Wrote(5)), (reader, Some(5), Kept)], &[]);
        check(&[(0, None, Wrote(5)), (reader, None, Kept)], &[(Kind::Lost, Some(5), None)]);
        check(&[(0, None, Wrote(5)), (reader, None, Wrote(6))], &[(Kind::Lost, Some(5), None)]);
        check(&[(0, None, Wrote(5)), (reader, None, Removed)], &[(Kind::Lost, Some(5), None)]);
        check(&[(0, Some(5), Kept), (reader, None, Kept)], &[(Kind::Lost, Some(5), None)]);
    }
}

#[test]
fn what_was_replaced_is_not_found_again() {
    for reader in [0, 1, 70] {
        let written = [(0, None, Wrote(5)), (0, Some(5), Wrote(6))];
        let then = |found, change| [written[0], written[1], (reader, found, change)];
        check(&then(Some(6), Kept), &[]);
        check(&then(Some(6), Wrote(7)), &[]);
        check(&then(Some(5), Kept), &[(Kind::Stale, Some(6), Some(5))]);
        check(&then(Some(5), Wrote(7)), &[(Kind::Stale, Some(6), Some(5))]);
        check(&then(Some(4), Kept), &[(Kind::Stale, Some(6), Some(4))]);
    }
}

#[test]
fn what_was_removed_does_not_come_back() {
    for reader in [0, 1, 70] {
        let removed = [(0, None, Wrote(5)), (0, Some(5), Removed)];
        let then = |found, change| [removed[0], removed[1], (reader, found, change)];
        check(&then(None, Kept), &[]);
        check(&then(None, Wrote(6)), &[]);
        check(&then(Some(5), Kept), &[(Kind::Resurrected, None, Some(5))]);
        check(&then(Some(5), Removed), &[(Kind::Resurrected, None, Some(5))]);
        check(&then(Some(4), Kept), &[(Kind::Resurrected, None, Some(4))]);
        let again = [removed[0], removed[1], (0, None, Wrote(6)), (reader, Some(5), Kept)];
        check(&again, &[(Kind::Resurrected, Some(6), Some(5))]);
    }
}

#[test]
fn one_fault_is_told_once() {
    let lost = (0, None, Kept);
    check(&[(0, None, Wrote(5)), lost, lost, lost], &[(Kind::Lost, Some(5), None)]);
    let mut shadow = following();
    let seen = |at, found, change| Seen { at, found, change, ..FOUND };
    shadow.see(&seen(10, None, Wrote(5)), 11);
    shadow.see(&seen(20, None, Kept), 21);
    let progress = Progress { heard: 21, now: 22, ..PROGRESS };
    assert_eq!(settled(&mut shadow, &progress).len(), 1);
    shadow.see(&seen(30, None, Kept), 31);
    assert_eq!(settled(&mut shadow, &Progress { heard: 40, now: 41, ..progress }), []);
    assert_eq!((shadow.counts().lost, shadow.counts().checked), (1, 1));
}

#[test]
fn commands_at_the_same_time_are_not_compared() {
    let overlapping = |found, change| {
        let written = Command { worker: 0, at: 10, arrived: 20, found: None, change: Wrote(5) };
        let replaced = Command { at: 30, arrived: 40, found: Some(5), change: Wrote(6), ..written };
        let reader = Command { worker: 1, at: 35, arrived: 45, found, change };
        findings_of(&[written, replaced, reader])
    };
    assert_eq!(overlapping(Some(5), Kept), []);
    assert_eq!(overlapping(Some(6), Kept), []);
    assert_eq!(overlapping(Some(6), Wrote(7)), []);
    let twice = overlapping(Some(5), Wrote(7));
    assert_eq!(twice.iter().map(|found| found.kind).collect::<Vec<_>>(), [Kind::Stale]);
}

#[test]
fn what_arrives_late_explains() {
    let written = Command { worker: 0, at: 10, arrived: 11, found: None, change: Wrote(5) };
    let check = |seen: (Option<Version>, Change), late: &[(Option<Version>, Change)]| {
        let later = Command { worker: 1, at: 30, arrived: 31, found: seen.0, change: seen.1 };
        let late = late.iter().map(|(found, change)| Command {
            worker: 2,
            at: 20,
            arrived: 40,
            found: *found,
            change: *change,
        });
        let without = findings_of(&[written, later]);
        assert_eq!(without.len(), 1, "{seen:?} without an explanation");
        let with: Vec<_> = [written, later].into_iter().chain(late).collect();
        assert_eq!(findings_of(&with), [], "{seen:?}");
    };
    check((Some(6), Kept), &[(Some(5), Wrote(6))]);
    check((Some(6), Wrote(7)), &[(Some(5), Wrote(6))]);
    check((None, Kept), &[(Some(5), Removed)]);
    check((None, Wrote(7)), &[(Some(5), Removed)]);
    check((Some(3), Kept), &[(Some(5), Removed), (None, Wrote(3))]);
    check((Some(3), Kept), &[(Some(5), Unordered)]);
    let too_late = Command { worker: 2, at: 35, arrived: 40, found: Some(5), change: Removed };
    let missed = Command { worker: 1, at: 30, arrived: 31, found: None, change: Kept };
    assert_eq!(findings_of(&[written, missed, too_late]).len(), 1, "it was there afterwards");
}

#[test]
fn a_suspicion_waits_until_everybody_was_heard() {
    let mut shadow = following();
    shadow.see(&Seen { at: 10, change: Wrote(5), ..FOUND }, 11);
    shadow.see(&Seen { at: 20, worker: 1, ..FOUND }, 21);
    assert_eq!(settled(&mut shadow, &Progress { heard: 20, now: 30, ..PROGRESS }), []);
    assert_eq!(settled(&mut shadow, &Progress { heard: 21, now: 30, ..PROGRESS }).len(), 1);
}

#[test]
fn evictions_expiry_and_gaps_explain_what_is_missing() {
    type Step = fn(&mut Shadow);
    let check = |exptime, between: Step, missed: Seen, (seconds, vanished), expected: usize| {
        let mut shadow = following();
        shadow.see(&Seen { at: 10, change: Wrote(5), exptime, vanished: 7, ..FOUND }, 11);
        between(&mut shadow);
        shadow.see(&missed, 31);
        let progress = Progress { heard: 40, now: 41, seconds };
        assert_eq!(settled_after(&mut shadow, &progress, vanished).len(), expected);
    };
    let missed = Seen { at: 30, vanished: 7, ..FOUND };
    let after = (1_000, 7);
    check(0, |_| {}, missed, after, 1);
    check(2_000, |_| {}, missed, after, 1);
    check(0, |_| {}, Seen { vanished: 8, ..missed }, after, 0);
    check(0, |_| {}, missed, (1_000, 8), 0);
    check(2_000, |_| {}, Seen { seconds: 2_000, ..missed }, after, 0);
    check(2_000, |_| {}, missed, (2_000, 7), 0);
    let touch = |shadow: &mut Shadow| {
        shadow.see(&Seen { at: 10, worker: 3, found: Some(5), exptime: 1_000, ..FOUND }, 12);
    };
    check(0, touch, missed, after, 0);
    check(2_000, touch, missed, after, 0);
    check(0, |shadow| shadow.forget_all(20), missed, after, 0);
    check(0, |shadow| shadow.forget(KEY, 20), missed, after, 0);
    check(0, |shadow| shadow.forget(KEY + 1, 20), missed, after, 1);
    check(0, |shadow| shadow.rotate(Share::FIRST.next(), 20), missed, after, 0);
}

#[test]
fn a_touch_may_arrive_before_what_it_touched() {
    let check = |exptime, expected| {
        let mut shadow = following();
        shadow.see(&Seen { at: 5, change: Wrote(4), ..FOUND }, 6);
        shadow.see(&Seen { at: 11, worker: 1, found: Some(5), exptime, ..FOUND }, 12);
        shadow.see(&Seen { at: 10, found: Some(4), change: Wrote(5), exptime: 2_000, ..FOUND }, 13);
        shadow.see(&Seen { at: 30, ..FOUND }, 31);
        assert_eq!(settled(&mut shadow, &Progress { heard: 40, now: 41, ..PROGRESS }).len(), expected);
    };
    check(1_000, 0);
    check(1_500, 1);
}

#[test]
fn ids_that_clients_choose_are_left_alone() {
    check(&[(0, None, Unordered), (0, None, Kept), (0, Some(5), Removed), (0, Some(5), Kept)], &[]);
    check(&[(0, None, Wrote(5)), (0, Some(5), Unordered), (0, None, Kept)], &[]);
}

#[test]
fn a_share_is_followed_once_everybody_records_it() {
    let mut shadow = Shadow::new(Share::FIRST, 8, 50);
    let written = |at| Seen { at, change: Wrote(5), ..FOUND };
    let missed = |at| Seen { at, ..FOUND };
    let silent = |shadow: &mut Shadow, heard, now| {
        assert_eq!(settled(shadow, &Progress { heard, now, ..PROGRESS }), []);
    };
    shadow.see(&written(60), 61);
    shadow.see(&missed(70), 71);
    silent(&mut shadow, 49, 80);
    assert_eq!(shadow.counts().keys, 0, "not everybody was heard");
    silent(&mut shadow, 50, 90);
    shadow.see(&written(89), 100);
    shadow.see(&missed(90), 101);
    silent(&mut shadow, 102, 103);
    assert_eq!(shadow.counts().checked, 0, "what is no younger than the turn establishes nothing");
    shadow.see(&Seen { found: Some(5), ..missed(110) }, 111);
    shadow.see(&missed(120), 121);
    shadow.rotate(Share::FIRST.next(), 130);
    assert_eq!(shadow.share().number(), 1);
    assert_eq!(
        settled(&mut shadow, &Progress { heard: 130, now: 131, ..PROGRESS }).len(),
        1,
        "of the old turn"
    );
    assert_eq!(shadow.counts().keys, 0);
    shadow.see(&written(140), 141);
    assert_eq!(shadow.counts().keys, 0, "the old share's turn is over");
}

#[test]
fn every_key_belongs_to_one_share_and_turns_go_round() {
    let shares: Vec<Share> = (0..SHARES).map(Share::of_number).collect();
    for hash in (0..1_000_u64).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
        assert_eq!(shares.iter().filter(|share| share.holds(hash)).count(), 1);
    }
    let mut share = Share::FIRST;
    for number in 0..SHARES {
        assert_eq!(share, Share::of_number(number));
        share = share.next();
    }
    assert_eq!(share, Share::FIRST);
}

#[test]
fn room_and_patience_have_limits() {
    let mut shadow = Shadow::new(Share::FIRST, SUSPICIONS_MAX + 2, 0);
    shadow.settle(&Progress { now: 1, ..PROGRESS }, |_| 0, |_| {});
    let key = |index: usize| index as u64;
    let sightings = SUSPICIONS_MAX + 5;
    for index in 0..sightings {
        shadow.see(&Seen { hash: key(index), at: 10, change: Wrote(5), ..FOUND }, 11);
    }
    for index in 0..sightings {
        shadow.see(&Seen { hash: key(index), at: 20, ..FOUND }, 21);
    }
    let counts = shadow.counts();
    assert_eq!((counts.keys as usize, counts.no_room), (SUSPICIONS_MAX + 2, 3));
    assert_eq!((counts.checked as usize, counts.passed_over), (SUSPICIONS_MAX + 2, 2));
    let findings = settled(&mut shadow, &Progress { heard: 30, now: 31, ..PROGRESS });
    assert_eq!(findings.len(), SUSPICIONS_MAX);
}

#[test]
fn a_finding_is_a_mismatch_with_versions() {
    let finding = Finding { kind: Kind::Lost, hash: KEY, expected: Some(8), found: None, worker: 3 };
    let Mismatch { kind, expected, found, bit } = finding.mismatch();
    assert_eq!((kind, expected, found, bit), (Kind::Lost, Digest(8), Digest(0), Some(3)));
}
