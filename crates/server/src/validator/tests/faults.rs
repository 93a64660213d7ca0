//! Planted faults: each is found, as what it is, and the same execution without it is not.
//!
//! What a sick worker would have left is made by changing the record of a healthy one; what memory does, by flipping
//! bits of items where they lie.
//!
//! | where something goes wrong | looked for by |
//! |---|---|
//! | parser, dispatch | [`another_command_was_executed`] |
//! | hash, look-up, key comparison, predicates, arithmetic, reply | [`every_command`] |
//! | value on its way into the item, item where it lies | [`every_command`], [`every_bit_of_an_item`] |
//! | what the kernel copied, before the server saw it | [`a_value_with_its_own_checksum`] |
//! | an item written over another | [`an_item_written_over_another`] |
//! | items that nobody reads | [`what_nobody_reads`] |
//! | the ring | [`every_command`]; the bits of its lines in guard's `replay.rs` |
//! | the index: lost, stale and resurrected entries | `shadow/tests.rs` |
//! | the validator itself | [`every_command`]: it costs the item that the command was about, and no other |
//! | replies after they were digested | nobody: that is beyond what the server can see |

use std::ptr;

use guard::{Kind, Stratum};
use protocol::binary::opcode;
use protocol::checked::Announcement;
use store::{Fetch, Op, Put, Request};

use super::bench::{Bench, Mode, Slip, settings};
use super::commands::frame;
use crate::connection::Speaks;
use crate::settings::{Settings, Share};
use crate::strata::STRATA;

/// A location that is none, in the low bits of a word.
const NOWHERE: u64 = (1 << 40) - 1;
/// Where locations stand in a record.
const FOUND: usize = 1;
const PUBLISHED: usize = 2;
/// Of the word with the location found: the answer's end belongs to it.
const IS_LAST: u64 = 1 << 63;
/// Where the trace ends in a payload, and the command begins.
const COMMAND: usize = 32;
/// The expiry time of the item published, in a payload.
const PUBLISHED_EXPTIME: usize = 16;

/// Every bench has this item, too, which nothing is to happen to.
const BYSTANDER: (&[u8], &[u8]) =
    (b"set other 3 0 9\r\nbystander\r\n", b"VALUE other 3 9\r\nbystander\r\nEND\r\n");

/// A command to which something happens.
struct Row {
    speaks: Speaks,
    /// Text commands that come first.
    before: &'static str,
    command: Vec<u8>,
    /// Whether it is recorded with the value's checksum.
    is_put: bool,
}

fn row(before: &'static str, command: &str) -> Row {
    let is_put = ["set ", "add ", "replace ", "append ", "prepend ", "cas ", "ms "];
    Row {
        speaks: Speaks::Text,
        before,
        command: command.as_bytes().to_vec(),
        is_put: is_put.iter().any(|verb| command.starts_with(verb)),
    }
}

const SET: &str = "set key 5 0 3\r\n100\r\n";
const LATER: &str = "set key 5 1000 3\r\n100\r\n";

fn text_rows() -> Vec<Row> {
    const STALE: &str = "set key 5 0 3\r\n100\r\nmd key I T30\r\n";
    vec![
        row(SET, "get key\r\n"),
        row(SET, "gets key\r\n"),
        row("", "get key\r\n"),
        row("set key 0 -1 1\r\n1\r\n", "get key\r\n"),
        row(SET, "get key key\r\n"),
        row(SET, "gat 50 key\r\n"),
        row(LATER, "gats 50 key\r\n"),
        row(LATER, "touch key -1\r\n"),
        row("", "touch key 9\r\n"),
        row("", "set key 5 0 3\r\nabc\r\n"),
        row(SET, "set key 6 90 3\r\nabc\r\n"),
        row(SET, "set key 5 0 3 noreply\r\n100\r\n"),
        row("", "add key 0 0 1\r\n1\r\n"),
        row(SET, "add key 0 0 1\r\n1\r\n"),
        row(SET, "replace key 0 0 1\r\n1\r\n"),
        row("", "replace key 0 0 1\r\n1\r\n"),
        row(SET, "append key 0 0 2\r\nxy\r\n"),
        row(LATER, "prepend key 0 0 2\r\nxy\r\n"),
        row("", "append key 0 0 2\r\nxy\r\n"),
        row("ms key 3 E7\r\nabc\r\n", "cas key 0 0 2 7\r\nxy\r\n"),
        row(SET, "cas key 0 0 2 7000\r\nxy\r\n"),
        row("", "cas key 0 0 2 7\r\nxy\r\n"),
        row(SET, "incr key 900\r\n"),
        row(SET, "decr key 1\r\n"),
        row("set key 0 0 20\r\n18446744073709551615\r\n", "incr key 2\r\n"),
        row("set key 0 0 1\r\nx\r\n", "incr key 2\r\n"),
        row("", "decr key 2\r\n"),
        row(SET, "delete key\r\n"),
        row("", "delete key\r\n"),
        row(SET, "mg key v f s c k t l h O9\r\n"),
        row(LATER, "mg key t T90\r\n"),
        row("", "mg key v N30\r\n"),
        row(LATER, "mg key v R2000\r\n"),
        row(STALE, "mg key v\r\n"),
        row(SET, "mg a2V5 b k s q\r\n"),
        row("", "ms key 2 T9 F3 c\r\nxy\r\n"),
        row(SET, "ms key 2 C9999\r\nxy\r\n"),
        row("ms key 2 E9\r\nab\r\n", "ms key 2 C3 I c\r\nxy\r\n"),
        row(SET, "ms key 2 MA\r\nxy\r\n"),
        row(SET, "ma key v c D10\r\n"),
        row("", "ma key N0 J5 v\r\n"),
        row(SET, "ma key MD q\r\n"),
        row(SET, "md key q\r\n"),
        row(SET, "md key I x T9\r\n"),
        row(SET, "me key\r\n"),
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = text_rows();
    let mut of = |speaks, before, is_put, command: Vec<u8>| {
        rows.push(Row { speaks, before, command, is_put });
    };
    let binary = |opcode, extras: &[u8], value: &[u8]| frame(opcode, 0, extras, b"key", value);
    let later = 90_u32.to_be_bytes();
    let mut flags = [[0; 4], later].concat();
    of(Speaks::Binary, SET, false, binary(opcode::GETK, &[], &[]));
    of(Speaks::Binary, "", false, binary(opcode::GET, &[], &[]));
    of(Speaks::Binary, SET, true, binary(opcode::SETQ, &flags, b"abcde"));
    of(Speaks::Binary, "", true, binary(opcode::ADD, &flags, b""));
    of(Speaks::Binary, SET, true, binary(opcode::PREPEND, &[], b"abc"));
    of(Speaks::Binary, SET, false, binary(opcode::DELETE, &[], &[]));
    of(Speaks::Binary, SET, false, binary(opcode::GATK, &later, &[]));
    of(Speaks::Binary, LATER, false, binary(opcode::TOUCH, &later, &[]));
    flags.splice(..0, [[0; 7], [1; 7]].concat());
    flags.extend_from_slice(&[0, 0]);
    of(Speaks::Binary, SET, false, binary(opcode::INCREMENT, &flags[..20], &[]));
    of(Speaks::Binary, "", false, binary(opcode::DECREMENT, &flags[..20], &[]));
    of(Speaks::Line, SET, false, b"GET key\n".to_vec());
    of(Speaks::Line, "", false, b"GET key\n".to_vec());
    of(Speaks::Line, SET, true, b"SET key one two\n".to_vec());
    of(Speaks::Line, SET, false, b"DEL key\n".to_vec());
    rows
}

/// What the row's command found or made, where it lies.
struct Laid {
    found: Option<Place>,
    made: Option<Place>,
}

/// An item's key and value, where they lie.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    key: *mut u8,
    value: *mut u8,
    value_len: usize,
}

fn place(bench: &Bench, key: &[u8]) -> Option<Place> {
    let mut worker = bench.shared.store.worker(2).expect("a place");
    let fetch = Fetch { bump: false, ..Fetch::default() };
    let item = worker.execute(&Request { key, op: Op::Fetch(fetch) }, &bench.env).item?;
    Some(Place {
        key: item.key.as_ptr().cast_mut(),
        value: item.value.as_ptr().cast_mut(),
        value_len: item.value.len(),
    })
}

fn flip(byte: *mut u8, bit: usize) {
    // SAFETY: the byte lies in the arena of a store that nobody else uses now; that it is not what was written is the
    // point.
    unsafe { *byte ^= 1 << bit };
}

/// Executes a row's command, and changes its last record, or where its items lie. What is found then.
fn run(row: &Row, share: f64, fault: impl FnOnce(&mut Slip, &Laid) -> bool) -> Option<Vec<(Kind, u64)>> {
    let settings = Settings { validate_share: Share::Fixed(share), ..settings(Mode::Orthrus) };
    let mut bench = Bench::new(settings, 1);
    let before = bench.connect(Speaks::Text);
    let wire = bench.connect(row.speaks);
    bench.send(before, BYSTANDER.0);
    bench.send(before, row.before.as_bytes());
    bench.sleep(1);
    bench.validate(|_| {});
    assert_eq!(bench.found(), [], "before the command");
    let found = place(&bench, b"key");
    bench.send(wire, &row.command);
    let made = place(&bench, b"key").filter(|made| found != Some(*made));
    let laid = Laid { found, made };
    bench.received(before);
    let (mut fault, mut is_planted) = (Some(fault), share == 0.0);
    bench.validate(|slip| {
        if let Some(fault) = fault.take() {
            is_planted = fault(slip, &laid);
        }
    });
    let found = bench.found();
    assert_eq!(bench.ask(before, b"get other\r\n"), BYSTANDER.1, "whatever happened, it is there");
    if found.iter().any(|(kind, _)| *kind != Kind::Record) {
        assert_eq!(bench.ask(before, b"mg key s\r\n"), b"EN\r\n", "the key is forgotten");
    }
    is_planted.then_some(found)
}

/// A fault in a row's record, or in its items; none says that there is nothing it could happen to.
type Fault = fn(&mut Slip, &Laid) -> bool;

/// Whether there was something it could happen to; then it is found as one of the kinds, by everybody who sees it.
fn check(row: &Row, name: &str, fault: Fault, expected: &[Kind]) -> bool {
    let Some(found) = run(row, 1.0, fault) else { return false };
    let is_expected = match found[..] {
        [] => expected.is_empty(),
        [(kind, _)] => expected.contains(&kind),
        _ => false,
    };
    let command = row.command.escape_ascii().to_string();
    assert!(is_expected, "{name}: {command:?} after {:?} is {found:?}, not {expected:?}", row.before);
    // A detector that is off finds nothing.
    assert_eq!(run(row, 0.0, fault), Some(vec![]), "{name}");
    true
}

fn has(slip: &Slip, word: usize) -> bool {
    slip.words[word] & NOWHERE != NOWHERE
}

fn set_location(slip: &mut Slip, word: usize, location: u64) -> bool {
    let had = has(slip, word);
    slip.words[word] = slip.words[word] & !NOWHERE | location;
    had
}

/// Replaces the first occurrence in the command.
fn rewrite(slip: &mut Slip, from: &[u8], to: &[u8]) -> bool {
    let command = &slip.payload[COMMAND..];
    let Some(at) = command.windows(from.len()).position(|part| part == from) else { return false };
    slip.payload.splice(COMMAND + at..COMMAND + at + from.len(), to.iter().copied());
    true
}

#[test]
fn every_command() {
    // Where a value should have been received, there is none, and that is another command.
    const NOWHERE_MADE: &[Kind] = &[Kind::Checksum, Kind::Outcome];
    let faults: &[(&str, Fault, &[Kind])] = &[
        ("reply", |slip, _| flipped(&mut slip.digest, 7), &[Kind::Reply]),
        ("effect", |slip, _| flipped(&mut slip.digest, 40), &[Kind::Outcome]),
        ("hash", |slip, _| flipped(&mut slip.words[0], 20), &[Kind::Outcome]),
        ("key", |slip, _| rewrite(slip, b"key", b"kez") || rewrite(slip, b"a2V5", b"a2V6"), &[Kind::Outcome]),
        ("nothing found", |slip, _| set_location(slip, FOUND, NOWHERE), &[Kind::Outcome]),
        ("nowhere found", |slip, _| set_location(slip, FOUND, NOWHERE - 1), &[Kind::Checksum]),
        ("nothing published", |slip, _| set_location(slip, PUBLISHED, NOWHERE), &[Kind::Outcome]),
        ("nowhere published", |slip, _| set_location(slip, PUBLISHED, NOWHERE - 1), NOWHERE_MADE),
        (
            "predecessor published",
            |slip, _| {
                let found = slip.words[FOUND] & NOWHERE;
                has(slip, FOUND) && set_location(slip, PUBLISHED, found)
            },
            &[Kind::Outcome],
        ),
        (
            "expiry time",
            |slip, _| {
                slip.payload[PUBLISHED_EXPTIME] ^= 1;
                has(slip, PUBLISHED)
            },
            &[Kind::Outcome],
        ),
        ("found, at rest", |_, laid| damage(laid.found), &[Kind::Checksum]),
        ("made, at rest", |_, laid| damage(laid.made), &[Kind::Checksum]),
        ("no command", |slip, _| cut(slip, COMMAND - 1), &[Kind::Record]),
        (
            "no stratum",
            |slip, _| {
                slip.stratum = Stratum(STRATA as u8);
                true
            },
            &[Kind::Record],
        ),
    ];
    let rows = rows();
    for row in &rows {
        assert!(check(row, "none", |_, _| true, &[]));
    }
    for (name, fault, kind) in faults {
        let planted = rows.iter().filter(|row| check(row, name, *fault, kind)).count();
        println!("{name}: planted in {planted} of {} commands", rows.len());
        assert!(planted >= 20, "{name}");
    }
    // What was received is only noted where something was published.
    for row in rows.iter().filter(|row| row.is_put) {
        let fault: Fault = |slip, _| {
            slip.words[4] ^= 1 << 50;
            has(slip, PUBLISHED)
        };
        check(row, "value received", fault, &[Kind::Checksum]);
    }
}

fn flipped(word: &mut u64, bit: u32) -> bool {
    *word ^= 1 << bit;
    true
}

fn damage(place: Option<Place>) -> bool {
    let Some(Place { key, value, value_len }) = place else { return false };
    flip(if value_len > 0 { value } else { key }, 2);
    true
}

fn cut(slip: &mut Slip, len: usize) -> bool {
    slip.payload.truncate(len);
    true
}

/// The worker took a command for another one.
#[test]
fn another_command_was_executed() {
    let check = |before, command: &str, from: &'static [u8], to: &'static [u8], kind| {
        let row = row(before, command);
        assert_eq!(run(&row, 1.0, |_, _| true), Some(vec![]), "{command:?}");
        let found = run(&row, 1.0, |slip, _| rewrite(slip, from, to));
        assert_eq!(found, Some(vec![(kind, 1)]), "{command:?}, {:?}", to.escape_ascii().to_string());
    };
    check(SET, "get key\r\n", b"get", b"gets", Kind::Reply);
    check(SET, "get key\r\n", b"get", b"delete", Kind::Outcome);
    check(SET, "get key\r\n", b"get", b"gat 5", Kind::Outcome);
    check(SET, "get key\r\n", b"get key", b"version", Kind::Outcome);
    check(SET, "get key\r\n", b"get key", b"nonsense", Kind::Outcome);
    check(SET, "get key\r\n", b"get key\r\n", b"set key 0 0 1\r\n", Kind::Outcome);
    check(SET, "gat 50 key\r\n", b"50", b"51", Kind::Outcome);
    check(SET, "gat 50 key\r\n", b"gat", b"gats", Kind::Reply);
    check(SET, "touch key 50\r\n", b"50", b"-1", Kind::Outcome);
    check(SET, "delete key\r\n", b"delete key", b"delete key noreply", Kind::Reply);
    check(SET, "delete key\r\n", b"delete key", b"touch key 0", Kind::Outcome);
    check(SET, "incr key 1\r\n", b"incr", b"decr", Kind::Outcome);
    check(SET, "incr key 1\r\n", b"1", b"11", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"set", b"add", Kind::Outcome);
    check("", "set key 0 0 2\r\n12\r\n", b"set", b"replace", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"set", b"append", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"set key 0", b"set key 1", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"0 0 2", b"0 7 2", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"0 0 2", b"0 0 3", Kind::Outcome);
    check(SET, "set key 0 0 2\r\n12\r\n", b"0 0 2", b"0 0 2 noreply", Kind::Reply);
    check(SET, "append key 0 0 2\r\n12\r\n", b"append", b"prepend", Kind::Outcome);
    check(SET, "append key 0 0 2\r\n12\r\n", b"0 0 2", b"0 0 1", Kind::Outcome);
    check("ms key 1 E7\r\n1\r\n", "cas key 0 0 2 7\r\n12\r\n", b"7", b"8", Kind::Outcome);
    check(SET, "mg key v\r\n", b"key v", b"key v k", Kind::Reply);
    check(SET, "mg key v\r\n", b"key v", b"key v u", Kind::Outcome);
    check(SET, "mg key s f\r\n", b"s f", b"f s", Kind::Reply);
    check(SET, "mg key s\r\n", b"mg", b"md", Kind::Outcome);
    check("", "mg key\r\n", b"key", b"key q", Kind::Reply);
    check("", "mg key N9\r\n", b"N9", b"N8", Kind::Outcome);
    check(SET, "ms key 2\r\n12\r\n", b"2", b"2 k", Kind::Reply);
    check(SET, "ma key v D2\r\n", b"D2", b"D3", Kind::Outcome);
    check(SET, "ma key v D2\r\n", b" v", b"", Kind::Reply);
    check(SET, "md key\r\n", b"key", b"key I", Kind::Outcome);
    check(SET, "me key\r\n", b"me", b"mg", Kind::Outcome);
}

/// The end of a multiget's answer belongs to its last key.
#[test]
fn an_end_too_many() {
    let row = row("set key 0 0 1\r\n1\r\n", "get key key key\r\n");
    assert_eq!(run(&row, 1.0, |_, _| true), Some(vec![]));
    let found = run(&row, 1.0, |slip, _| {
        slip.words[FOUND] ^= IS_LAST;
        true
    });
    assert_eq!(found, Some(vec![(Kind::Reply, 1)]));
}

/// Every bit of an item is covered, but for the number of the core that wrote it and the word of its last access, which
/// has a check of its own. With another key it is, first of all, another item.
#[test]
fn every_bit_of_an_item() {
    let row = row("set key 0 0 3\r\nabc\r\n", "get key\r\n");
    for bit in 0..8 * (16 + 6) {
        let expected = match bit {
            48..64 | 96..128 => vec![],
            128..152 => vec![(Kind::Outcome, 1)],
            _ => vec![(Kind::Checksum, 1)],
        };
        let found = run(&row, 1.0, |_, laid| {
            let key = laid.found.expect("it was set").key;
            // SAFETY: the key lies behind the header, which has no optional fields here.
            flip(unsafe { key.sub(16).add(bit / 8) }, bit % 8);
            true
        });
        assert_eq!(found, Some(expected), "bit {bit}");
    }
}

/// A value that was changed before the server saw it, by the kernel or a network card, announces its own checksum. That
/// the worker overlooks it is planted by writing it behind the worker's back.
#[test]
fn a_value_with_its_own_checksum() {
    let announcement = Announcement::new(16).expect("a bit of 32");
    let flags = announcement.mask();
    let content = [&b"content"[..], &announcement.trailer(b"key", flags, b"content", store::crc32c)].concat();
    let check = |is_known, is_damaged: bool, expected: &[(Kind, u64)]| {
        let checked_values = if is_known { Some(announcement) } else { None };
        let mut bench = Bench::new(Settings { checked_values, ..settings(Mode::Orthrus) }, 1);
        let wire = bench.connect(Speaks::Text);
        let mut value = content.clone();
        value[3] ^= u8::from(is_damaged);
        let set = [format!("set key {flags} 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        let refused = b"CLIENT_ERROR bad checksum of checked value\r\n";
        let is_refused = bench.ask(wire, &set) == refused;
        assert_eq!(is_refused, is_known && is_damaged);
        let put = Put { flags, ..Put::set(&value) };
        bench.store.execute(&Request { key: b"key", op: Op::Put(put) }, &bench.env);
        bench.send(wire, b"get key\r\n");
        bench.validate(|_| {});
        assert_eq!(bench.found(), expected, "known {is_known}, damaged {is_damaged}");
    };
    check(true, false, &[]);
    check(true, true, &[(Kind::Checksum, 1)]);
    check(false, true, &[]);
}

/// An item that a sick allocator gave the place of another one. Who reads the first gets nothing, and never the second's
/// value; the record of the first's writer tells, if that comes later, and so does the scrubber.
#[test]
fn an_item_written_over_another() {
    let check = |is_planted: bool, is_late: bool, expected: &[(Kind, u64)]| {
        let mut bench = Bench::new(settings(Mode::Orthrus), 1);
        let wire = bench.connect(Speaks::Text);
        bench.send(wire, b"set key 0 0 3\r\nabc\r\nset kez 0 0 3\r\nxyz\r\n");
        bench.sleep(0);
        if !is_late {
            bench.validate(|_| {});
        }
        let (to, from) = (place(&bench, b"key").expect("set"), place(&bench, b"kez").expect("set"));
        if is_planted {
            // SAFETY: both items have the same layout, lie in the arena, and nobody else uses the store.
            unsafe { ptr::copy_nonoverlapping(from.key.sub(16), to.key.sub(16), 16 + 6) };
        }
        bench.received(wire);
        let hit: &[u8] = if is_planted { b"END\r\n" } else { b"VALUE key 0 3\r\nabc\r\nEND\r\n" };
        assert_eq!(bench.ask(wire, b"get key\r\n"), hit);
        bench.validate(|_| {});
        assert_eq!(bench.found(), expected, "planted {is_planted}, late {is_late}");
        if !is_late {
            let damages = bench.shared.store.scrub(usize::MAX).damages;
            assert_eq!(damages.len(), usize::from(is_planted));
        }
    };
    check(false, false, &[]);
    check(false, true, &[]);
    check(true, false, &[]);
    check(true, true, &[(Kind::Checksum, 1)]);
}

/// Nobody reads it, so nobody validates it: the scrubber finds it.
#[test]
fn what_nobody_reads() {
    let check = |is_planted: bool| {
        let mut bench = Bench::new(settings(Mode::Orthrus), 1);
        let wire = bench.connect(Speaks::Text);
        bench.send(wire, BYSTANDER.0);
        bench.send(wire, b"set key 0 0 3\r\nabc\r\n");
        bench.settle();
        if is_planted {
            damage(place(&bench, b"key"));
        }
        bench.sleep(1);
        bench.settle();
        assert_eq!(bench.found(), []);
        let damages = bench.shared.store.scrub(usize::MAX).damages;
        assert_eq!(damages.len(), usize::from(is_planted));
        bench.received(wire);
        assert_eq!(bench.ask(wire, b"get other\r\n"), BYSTANDER.1);
        let hit = if is_planted { "EN\r\n" } else { "HD s3\r\n" };
        assert_eq!(bench.ask(wire, b"mg key s\r\n"), hit.as_bytes());
    };
    check(false);
    check(true);
}
