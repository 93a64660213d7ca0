//! The binary protocol over a socket, on the same port as the others.

mod common;

use common::{Client, settings, start};
use protocol::binary::{HEADER_BYTES, opcode};

/// A request.
fn request(opcode: u8, opaque: u32, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    frame[0] = 0x80;
    frame[1] = opcode;
    frame[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    frame[4] = extras.len() as u8;
    frame[8..12].copy_from_slice(&((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    frame[12..16].copy_from_slice(&opaque.to_be_bytes());
    frame[16..24].copy_from_slice(&cas.to_be_bytes());
    [&frame, extras, key, value].concat()
}

fn set(opcode: u8, key: &[u8], flags: u32, value: &[u8]) -> Vec<u8> {
    let extras = [flags.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    request(opcode, 7, 0, &extras, key, value)
}

fn arith(opcode: u8, key: &[u8], delta: u64, initial: u64, exptime: u32) -> Vec<u8> {
    let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
    request(opcode, 7, 0, &extras, key, b"")
}

/// A response, as far as the tests look at it.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    opcode: u8,
    status: u16,
    opaque: u32,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn reply(client: &mut Client) -> (Reply, u64) {
    let head = client.read(HEADER_BYTES);
    assert_eq!(head[0], 0x81);
    let number = |from: usize, len: usize| {
        head[from..from + len].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let body = client.read(number(8, 4) as usize);
    let (extras, rest) = body.split_at(usize::from(head[4]));
    let (key, value) = rest.split_at(number(2, 2) as usize);
    let reply = Reply {
        opcode: head[1],
        status: number(6, 2) as u16,
        opaque: number(12, 4) as u32,
        extras: extras.into(),
        key: key.into(),
        value: value.into(),
    };
    (reply, number(16, 8))
}

#[track_caller]
fn check(client: &mut Client, request: &[u8], status: u16, value: &[u8]) -> u64 {
    client.send(request);
    let (found, cas) = reply(client);
    let value_found = (found.status, found.opcode, found.opaque);
    assert_eq!(value_found, (status, request[1], 7), "{found:?}");
    assert_eq!(found.value, value, "{found:?}");
    cas
}

fn get(key: &[u8]) -> Vec<u8> {
    request(opcode::GET, 7, 0, b"", key, b"")
}

#[test]
fn every_command() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let c = &mut client;
    check(c, &get(b"k"), 1, b"Not found");
    let cas = check(c, &set(opcode::SET, b"k", 9, b"one"), 0, b"");
    assert_eq!(check(c, &get(b"k"), 0, b"one"), cas);
    check(c, &set(opcode::ADD, b"k", 9, b"two"), 2, b"Data exists for key.");
    check(c, &set(opcode::REPLACE, b"none", 9, b"two"), 1, b"Not found");
    check(c, &set(opcode::ADD, b"new", 9, b"two"), 0, b"");
    check(c, &set(opcode::REPLACE, b"new", 9, b"three"), 0, b"");
    check(c, &request(opcode::APPEND, 7, 0, b"", b"new", b"!"), 0, b"");
    check(c, &request(opcode::PREPEND, 7, 0, b"", b"new", b"<"), 0, b"");
    check(c, &request(opcode::APPEND, 7, 0, b"", b"none", b"!"), 5, b"Not stored.");
    check(c, &get(b"new"), 0, b"<three!");
    check(c, &request(opcode::DELETE, 7, cas + 1, b"", b"k", b""), 2, b"Data exists for key.");
    check(c, &request(opcode::DELETE, 7, cas, b"", b"k", b""), 0, b"");
    check(c, &request(opcode::DELETE, 7, 0, b"", b"k", b""), 1, b"Not found");
    check(c, &arith(opcode::INCREMENT, b"n", 1, 5, u32::MAX), 1, b"Not found");
    check(c, &arith(opcode::INCREMENT, b"n", 1, 5, 0), 0, &5_u64.to_be_bytes());
    check(c, &arith(opcode::INCREMENT, b"n", 10, 5, 0), 0, &15_u64.to_be_bytes());
    check(c, &arith(opcode::DECREMENT, b"n", 6, 5, 0), 0, &9_u64.to_be_bytes());
    check(c, &get(b"n"), 0, b"9 ");
    check(
        c,
        &arith(opcode::INCREMENT, b"new", 1, 0, 0),
        6,
        b"Non-numeric server-side value for incr or decr",
    );
    check(c, &request(opcode::TOUCH, 7, 0, &100_u32.to_be_bytes(), b"n", b""), 0, b"");
    check(c, &request(opcode::GAT, 7, 0, &100_u32.to_be_bytes(), b"n", b""), 0, b"9 ");
    check(c, &request(opcode::GAT, 7, 0, &100_u32.to_be_bytes(), b"none", b""), 1, b"Not found");
    check(c, &request(opcode::NOOP, 7, 0, b"", b"", b""), 0, b"");
    check(c, &request(opcode::VERSION, 7, 0, b"", b"", b""), 0, b"1.6.45");
    check(c, &request(opcode::SASL_LIST, 7, 0, b"", b"", b""), 0x81, b"Unknown command");
    check(c, &request(0x7f, 7, 0, b"xx", b"key", b"value"), 0x81, b"Unknown command");
    check(c, &request(opcode::FLUSH, 7, 0, b"", b"", b""), 0, b"");
    check(c, &get(b"n"), 1, b"Not found");
    check(c, &request(opcode::QUIT, 7, 0, b"", b"", b""), 0, b"");
    assert_eq!(client.rest(), b"");
}

#[test]
fn keys_and_flags_come_back() {
    let server = start(settings());
    let mut client = Client::to(&server);
    check(&mut client, &set(opcode::SET, b"k", 0xdead_beef, b"v"), 0, b"");
    client.send(request(opcode::GETK, 7, 0, b"", b"k", b""));
    let (found, _) = reply(&mut client);
    assert_eq!((&found.extras[..], &found.key[..]), (&[0xde, 0xad, 0xbe, 0xef][..], &b"k"[..]));
    client.send(request(opcode::GETK, 7, 0, b"", b"none", b""));
    let (found, _) = reply(&mut client);
    assert_eq!((found.status, &found.key[..], &found.value[..]), (1, &b"none"[..], &b""[..]));
}

/// Quiet commands answer only what is not the common case.
#[test]
fn quiet_commands() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let noop = request(opcode::NOOP, 7, 0, b"", b"", b"");
    let silent = [
        set(opcode::SETQ, b"k", 0, b"v"),
        set(opcode::REPLACEQ, b"k", 0, b"w"),
        request(opcode::APPENDQ, 7, 0, b"", b"k", b"x"),
        request(opcode::GETQ, 7, 0, b"", b"none", b""),
        request(opcode::GETKQ, 7, 0, b"", b"none", b""),
        request(opcode::GATQ, 7, 0, &1_u32.to_be_bytes(), b"none", b""),
        arith(opcode::INCREMENTQ, b"n", 1, 5, 0),
        request(opcode::DELETEQ, 7, 0, b"", b"n", b""),
    ];
    client.send(silent.concat());
    check(&mut client, &noop, 0, b"");
}

#[test]
fn statistics() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.send(request(opcode::STAT, 7, 0, b"", b"", b""));
    let mut keys = Vec::new();
    loop {
        let (found, _) = reply(&mut client);
        if found.key.is_empty() {
            break;
        }
        keys.push(String::from_utf8(found.key).expect("text"));
    }
    assert_eq!(keys.first().map(String::as_str), Some("pid"));
    assert!(keys.len() > 80, "{keys:?}");
    check(&mut client, &request(opcode::STAT, 7, 0, b"", b"bogus", b""), 1, b"Not found");
}

#[test]
fn large_values_in_pieces() {
    let server = start(settings());
    let (mut client, mut text) = (Client::to(&server), Client::to(&server));
    for size in [0, 1, 4096, 4097, 16 << 10, (16 << 10) + 1, 100_000, 1_000_000] {
        let value: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let frame = set(opcode::SET, b"k", 1, &value);
        for piece in frame.chunks(30_000) {
            client.send(piece);
            text.check("mn\r\n", "MN\r\n");
        }
        let (found, _) = reply(&mut client);
        assert_eq!(found.status, 0);
        check(&mut client, &get(b"k"), 0, &value);
    }
    let frame = set(opcode::SET, b"k", 1, &vec![0; 2 << 20]);
    check(&mut client, &frame, 3, b"Too large.");
    check(&mut client, &get(b"k"), 1, b"Not found");
}

/// Lengths that make no sense are answered, and then the connection is closed.
#[test]
fn malformed_requests() {
    let server = start(settings());
    for (opcode, extras, key) in [
        (opcode::GET, 0, 0),
        (opcode::GET, 4, 1),
        (opcode::SET, 0, 1),
        (opcode::SET, 8, 0),
        (opcode::INCREMENT, 8, 1),
        (opcode::NOOP, 0, 1),
        (opcode::QUIT, 1, 0),
        (opcode::TOUCH, 0, 1),
        (opcode::GET, 0, 251),
    ] {
        let mut client = Client::to(&server);
        client.send(request(opcode, 7, 0, &vec![0; extras], &vec![b'k'; key], b""));
        let (found, _) = reply(&mut client);
        assert_eq!(found.status, 4, "{opcode:#x} {extras} {key}");
        assert_eq!(client.rest(), b"");
    }
}
