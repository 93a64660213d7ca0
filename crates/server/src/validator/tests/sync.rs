//! Replies that wait to be confirmed: none leaves before it is, and a refused one never does.

use guard::{Kind, REFUSALS_MAX};
use protocol::binary::opcode;

use super::bench::{Bench, Mode, settings};
use super::commands::frame;
use crate::connection::Speaks;
use crate::settings::Settings;

/// What is answered instead.
const UNCONFIRMED: &str = "SERVER_ERROR execution was not confirmed\r\n";

/// Sends a pipeline of which the records at these places go wrong; what the client gets, and whether it is left.
fn answer(bench: &mut Bench, speaks: Speaks, pipeline: &[u8], wrong: &[usize]) -> (Vec<u8>, bool) {
    let wire = bench.connect(speaks);
    bench.send(wire, pipeline);
    assert_eq!(bench.received(wire), b"", "nothing leaves before it is confirmed");
    assert!(bench.is_held(wire));
    bench.round();
    bench.release();
    assert_eq!(bench.received(wire), b"", "nothing leaves before it is confirmed");
    let mut at = 0;
    bench.validate(|slip| {
        slip.digest ^= u64::from(wrong.contains(&at)) << 3;
        at += 1;
    });
    bench.settle();
    assert!(!bench.is_held(wire));
    (bench.received(wire), bench.is_closed(wire))
}

/// Some items to ask for: of a few bytes, and of so many that they are sent from where they lie.
fn bench() -> Bench {
    let mut bench = Bench::new(settings(Mode::Sync), 1);
    let wire = bench.connect(Speaks::Text);
    let large = "x".repeat(20_000);
    let sets = ["a", "key", "b"].map(|key| format!("set {key} 0 0 1\r\n{key:.1}\r\n")).concat();
    bench.send(wire, format!("{sets}set large 0 0 20000\r\n{large}\r\n").as_bytes());
    bench.settle();
    assert_eq!(bench.received(wire), b"STORED\r\n".repeat(4));
    bench
}

fn check(speaks: Speaks, pipeline: impl AsRef<[u8]>, wrong: &[usize], expected: impl AsRef<[u8]>) {
    let (pipeline, expected) = (pipeline.as_ref(), expected.as_ref());
    let mut bench = bench();
    let (found, _) = answer(&mut bench, speaks, pipeline, wrong);
    let is_left = expected.ends_with(b"<closed>");
    let expected = expected.strip_suffix(b"<closed>").unwrap_or(expected);
    let shown = pipeline.escape_ascii().to_string();
    assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{shown}");
    assert_eq!(bench.is_closed(1), is_left, "{shown}");
    assert_eq!(bench.found(), [(Kind::Reply, wrong.len() as u64)]);
    // Without the fault the same pipeline is answered, nothing is refused, and nobody is left.
    let mut bench = self::bench();
    let (found, is_closed) = answer(&mut bench, speaks, pipeline, &[]);
    assert!(!String::from_utf8_lossy(&found).contains("not confirmed"), "{shown}");
    assert_ne!(found, expected, "{shown}");
    assert!(!is_closed, "{shown}");
    assert_eq!(bench.found(), []);
}

const A: &str = "VALUE a 0 1\r\na\r\n";
const KEY: &str = "VALUE key 0 1\r\nk\r\n";
const B: &str = "VALUE b 0 1\r\nb\r\n";
const END: &str = "END\r\n";

fn large() -> String {
    format!("VALUE large 0 20000\r\n{}\r\n", "x".repeat(20_000))
}

#[test]
fn refused_replies_never_leave() {
    let text = |pipeline: &str, wrong, expected: &[&str]| {
        check(Speaks::Text, pipeline, wrong, expected.concat());
    };
    text("get a\r\nget key\r\nget b\r\n", &[1], &[A, END, END, B, END]);
    text("get a\r\nget key\r\nget b\r\n", &[0], &[END, KEY, END, B, END]);
    text("get a\r\nget key\r\nget b\r\n", &[0, 1, 2], &[END, END, END]);
    // Of several keys, one is a miss: in front, between, and last.
    text("get a key b\r\nmn\r\n", &[0], &[KEY, B, END, "MN\r\n"]);
    text("get a key b\r\nmn\r\n", &[1], &[A, B, END, "MN\r\n"]);
    text("get a key b\r\nmn\r\n", &[2], &[A, KEY, END, "MN\r\n"]);
    text("gats 0 key\r\nget a\r\n", &[0], &[END, A, END]);
    // What was done can't be undone, but nobody is told that it was done.
    text("get a\r\nset key 0 0 1\r\n2\r\nget b\r\n", &[1], &[A, END, UNCONFIRMED, B, END]);
    text("delete key\r\nincr none 1\r\ntouch a 0\r\n", &[0], &[UNCONFIRMED, "NOT_FOUND\r\nTOUCHED\r\n"]);
    text("delete key\r\nincr none 1\r\ntouch a 0\r\n", &[1, 2], &["DELETED\r\n", UNCONFIRMED, UNCONFIRMED]);
    text("mg key v\r\nmg a v\r\n", &[0], &[UNCONFIRMED, "VA 1\r\na\r\n"]);
    text("mg a v\r\nms key 1 c\r\n1\r\nmn\r\n", &[1], &["VA 1\r\na\r\n", UNCONFIRMED, "MN\r\n"]);
    // Large values, sent from where they lie, in front, between and behind.
    let large = &large();
    text("get large\r\nget key\r\nget large\r\n", &[1], &[large, END, END, large, END]);
    text("get large key large\r\nmn\r\n", &[1], &[large, large, END, "MN\r\n"]);
    text("get a\r\nget large\r\nget b\r\n", &[1], &[A, END, END, B, END]);
    text("get a large b\r\n", &[1], &[A, B, END]);
    text("get large large large\r\nmn\r\n", &[0], &[large, large, END, "MN\r\n"]);
    text("get large large large\r\nmn\r\n", &[1], &[large, large, END, "MN\r\n"]);
    text("get large large large\r\nmn\r\n", &[2], &[large, large, END, "MN\r\n"]);
    text("get large\r\nget large\r\nget b\r\n", &[0, 2], &[END, large, END, END]);
    text("mg large v\r\nget a\r\nget large\r\n", &[0], &[UNCONFIRMED, A, END, large, END]);
}

/// A client that doesn't expect an answer gets none, and those it does expect are the right ones. A miss is a miss.
#[test]
fn quiet_commands() {
    let check = |pipeline: &str, wrong: &[usize], expected: &[&str]| {
        let mut bench = bench();
        let (found, is_closed) = answer(&mut bench, Speaks::Text, pipeline.as_bytes(), wrong);
        assert_eq!(String::from_utf8_lossy(&found), expected.concat(), "{pipeline:?}");
        assert!(!is_closed, "{pipeline:?}");
        assert_eq!(bench.found(), [(Kind::Reply, wrong.len() as u64)]);
    };
    let pipeline = "set key 0 0 1 noreply\r\n1\r\nmg none v q\r\nget a\r\ndelete b noreply\r\nmn\r\n";
    check(pipeline, &[0, 1, 3], &[A, END, "MN\r\n"]);
    check("get none\r\nget a\r\n", &[0], &[END, A, END]);
    check("get a none b\r\nget a\r\n", &[1], &[A, B, END, A, END]);
    check("get a none\r\nget a\r\n", &[1], &[A, END, A, END]);
}

/// There is nothing in these protocols to be said instead.
#[test]
fn other_protocols_leave_the_client() {
    let get = |key: &[u8]| frame(opcode::GETK, 0, &[], key, &[]);
    let hit = |key: &str| {
        let mut hit = vec![0x81, opcode::GETK, 0, key.len() as u8, 4, 0, 0, 0, 0, 0, 0, 5 + key.len() as u8];
        hit.extend_from_slice(&[1, 2, 3, 4]);
        hit
    };
    let mut bench = bench();
    let pipeline = [get(b"a"), get(b"key"), get(b"b")].concat();
    let (whole, is_closed) = answer(&mut bench, Speaks::Unknown, &pipeline, &[]);
    assert!(!is_closed);
    assert!(whole.starts_with(&hit("a")));
    let (first, _) = whole.split_at(24 + 4 + 1 + 1);
    let (found, is_closed) = answer(&mut bench, Speaks::Unknown, &pipeline, &[1]);
    assert_eq!(found.escape_ascii().to_string(), first.escape_ascii().to_string());
    assert!(is_closed);
    check(Speaks::Line, "GET a\nGET key\nGET b\n", &[1], "a\n<closed>");
    check(Speaks::Line, "GET a\nSET key 2\nGET b\n", &[1], "a\n<closed>");
    check(Speaks::Line, "GET a\nGET key\nDEL b\n", &[0], "<closed>");
}

/// More refusals than can be noted at a time: the validator waits for the worker to look at them.
#[test]
fn many_refusals() {
    let count = 5 * REFUSALS_MAX;
    let wrong: Vec<usize> = (0..count).filter(|at| at % 2 == 1).collect();
    let mut bench = bench();
    let (found, _) = answer(&mut bench, Speaks::Text, "get a\r\n".repeat(count).as_bytes(), &wrong);
    // The first of them costs the key, but what was executed before that is answered as it was.
    assert_eq!(String::from_utf8_lossy(&found), [A, END, END].concat().repeat(count / 2));
    assert_eq!(bench.found(), [(Kind::Reply, wrong.len() as u64)]);
}

/// What is abandoned for lack of memory is refused, too: nobody says that it is right.
#[test]
fn abandoned_replies_never_leave() {
    let settings = Settings { memory_bytes: 2 << 20, ..settings(Mode::Sync) };
    let mut bench = Bench::new(settings, 1);
    let (reader, writer) = (bench.connect(Speaks::Text), bench.connect(Speaks::Text));
    bench.send(writer, b"set a 0 0 1\r\na\r\n");
    bench.settle();
    bench.send(reader, b"get a\r\ntouch a 0\r\n");
    let value = "x".repeat(1000);
    for number in 0..4000 {
        // Meanwhile the other's replies are held, and so is what they tell of.
        bench.execute(format!("key{number}").as_bytes(), value.as_bytes());
        bench.sleep(0);
    }
    bench.settle();
    assert!(bench.validated().1 >= 2, "they are abandoned");
    assert_eq!(String::from_utf8_lossy(&bench.received(reader)), [END, UNCONFIRMED].concat());
    assert_eq!(bench.found(), []);
}

/// Where there is no room for a record, a command is executed twice at once, and its reply waits only for those before it.
#[test]
fn a_full_ring() {
    let mut bench = bench();
    let count = 4_000;
    let mut wires = Vec::new();
    for _ in 0..4 {
        let wire = bench.connect(Speaks::Text);
        bench.send(wire, "get a\r\n".repeat(count).as_bytes());
        wires.push(wire);
    }
    assert!(bench.repeated() > 0, "the ring is full");
    assert_eq!(bench.dropped(), 0, "nothing goes out unconfirmed");
    bench.settle();
    for wire in wires {
        assert!(bench.received(wire) == [A, END].concat().repeat(count).as_bytes());
    }
    assert_eq!(bench.found(), []);
}

/// Thousands of commands in one go, read and answered in order, whatever is confirmed when.
#[test]
fn long_pipelines_stay_in_order() {
    let mut bench = bench();
    let wire = bench.connect(Speaks::Text);
    let count = 6_000;
    let (mut request, mut expected) = (String::new(), String::new());
    for number in 0..count {
        request += &format!("set n{number} 0 0 5\r\n{number:05}\r\nget n{number} none n{number}\r\n");
        let value = format!("VALUE n{number} 0 5\r\n{number:05}\r\n");
        expected += &format!("STORED\r\n{value}{value}END\r\n");
    }
    let mut found = Vec::new();
    for piece in request.as_bytes().chunks(30_000) {
        bench.send(wire, piece);
        bench.settle();
        found.extend(bench.received(wire));
    }
    assert!(found == expected.as_bytes());
    assert_eq!(bench.found(), []);
}
