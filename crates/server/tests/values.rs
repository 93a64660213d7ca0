//! Values of every size, however they arrive and leave.

mod common;

use std::time::Duration;

use common::{Client, Random, settings, show, start};
use server::settings::Settings;

const KIB: usize = 1 << 10;

/// Around every threshold: copying, drafts, segments, buffers, and the item size limit.
const SIZES: &[usize] = &[
    0,
    1,
    4 * KIB - 1,
    4 * KIB,
    4 * KIB + 1,
    16 * KIB - 1,
    16 * KIB,
    16 * KIB + 1,
    64 * KIB - 1,
    64 * KIB,
    64 * KIB + 1,
    256 * KIB,
    1000 * KIB,
    1024 * KIB - 100,
];

fn value(size: usize) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at % 23) as u8).collect()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 5 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 5 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

#[test]
fn all_at_once() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for size in SIZES {
        let value = value(*size);
        client.check(set("key", &value), "STORED\r\n");
        client.check("get key\r\n", hit("key", &value));
    }
}

#[test]
fn in_pieces_of_random_size() {
    let server = start(settings());
    let mut random = Random::new();
    let mut client = Client::to(&server);
    let mut other = Client::to(&server);
    for size in SIZES.iter().chain(SIZES) {
        let value = value(*size);
        let mut request = set("key", &value);
        request.extend_from_slice(b"get key\r\nmn\r\n");
        let mut rest = &request[..];
        while !rest.is_empty() {
            let count = (1 + random.below(1 + *size as u64 / 3 + 20)) as usize;
            let (piece, later) = rest.split_at(count.min(rest.len()));
            client.send(piece);
            other.check("mn\r\n", "MN\r\n");
            rest = later;
        }
        client.expect("STORED\r\n");
        client.expect(hit("key", &value));
        client.expect("MN\r\n");
    }
}

#[test]
fn by_meta_commands() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for size in SIZES {
        let value = value(*size);
        let request = [format!("ms key {size} F7 c k\r\n").as_bytes(), &value, b"\r\n"].concat();
        client.send(request);
        let line = client.line();
        assert!(line.starts_with("HD c") && line.ends_with(" kkey"), "{line}");
        let expected = [format!("VA {size} f7 s{size}\r\n").as_bytes(), &value, b"\r\n"].concat();
        client.check("mg key v f s\r\n", expected);
    }
}

#[test]
fn joined() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for (first, second) in [(0, 0), (1, 70_000), (70_000, 1), (100_000, 100_000), (5_000, 5_000)] {
        let (front, back) = (value(first), value(second).to_ascii_uppercase());
        client.check(set("key", &front), "STORED\r\n");
        let append = [format!("append key 0 0 {second}\r\n").as_bytes(), &back, b"\r\n"].concat();
        client.check(append, "STORED\r\n");
        client.check("get key\r\n", hit("key", &[&front[..], &back[..]].concat()));
        let prepend = [format!("prepend key 0 0 {second}\r\n").as_bytes(), &back, b"\r\n"].concat();
        client.check(prepend, "STORED\r\n");
        client.check("get key\r\n", hit("key", &[&back[..], &front[..], &back[..]].concat()));
    }
}

/// A value that is too large is read to its end, and what it should have replaced is gone.
#[test]
fn too_large() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for size in [1024 * KIB, 1024 * KIB + 1, 3 * 1024 * KIB] {
        client.check("set key 5 0 3\r\nold\r\n", "STORED\r\n");
        let mut request = set("key", &value(size));
        request.extend_from_slice(b"get key\r\nmn\r\n");
        client.check(request, "SERVER_ERROR object too large for cache\r\nEND\r\nMN\r\n");
        client.check("set key 5 0 3\r\nold\r\n", "STORED\r\n");
        let request = [format!("append key 0 0 {size}\r\n").as_bytes(), &value(size), b"\r\n"].concat();
        client.check(request, "SERVER_ERROR object too large for cache\r\n");
        client.check("get key\r\n", hit("key", b"old"));
    }
    assert_eq!(client.stat("store_too_large"), 6);
}

/// The announced length is wrong: the value is refused, and what is behind it is taken for a command.
#[test]
fn a_large_value_without_its_end() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.check("set key 5 0 3\r\nold\r\n", "STORED\r\n");
    let mut request = set("key", &value(100_000));
    let last = request.len() - 2;
    request[last..].copy_from_slice(b"xx");
    request.extend_from_slice(b"\r\nmn\r\n");
    client.check(request, "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nMN\r\n");
    client.check("get key\r\n", hit("key", b"old"));
}

/// While a large value arrives, the old one can be read; the new one shows as a whole.
#[test]
fn readers_see_whole_values() {
    let server = start(settings());
    let (mut writer, mut reader) = (Client::to(&server), Client::to(&server));
    let (old, new) = (value(300_000), value(300_000).to_ascii_uppercase());
    writer.check(set("key", &old), "STORED\r\n");
    let request = set("key", &new);
    for piece in request.chunks(50_000) {
        reader.check("get key\r\n", hit("key", &old));
        writer.send(piece);
    }
    writer.expect("STORED\r\n");
    reader.check("get key\r\n", hit("key", &new));
}

/// A connection that goes away in the middle of a value leaves nothing behind.
#[test]
fn half_a_value() {
    let server = start(settings());
    let mut reader = Client::to(&server);
    reader.check(set("key", b"old"), "STORED\r\n");
    let connections = reader.stat("curr_connections");
    for _ in 0..200 {
        let mut writer = Client::to(&server);
        let request = set("key", &value(900_000));
        writer.send(&request[..500_000]);
        drop(writer);
        // All at once they would be more than there is memory for, and a miss of the old value legal.
        while reader.stat("curr_connections") > connections {
            std::thread::yield_now();
        }
    }
    reader.check("get key\r\n", hit("key", b"old"));
    // 200 drafts of 900 kB are more than the 64 MB there are, if they were not given back.
    reader.check(set("other", &value(900_000)), "STORED\r\n");
    reader.check("get other\r\n", hit("other", &value(900_000)));
}

/// A reader that takes its time gets the value it asked for, although the key has another one by then.
#[test]
fn slow_readers_get_what_they_asked_for() {
    let server = start(settings());
    let (mut slow, mut writer) = (Client::to(&server), Client::to(&server));
    let old = value(1_000_000);
    writer.check(set("key", &old), "STORED\r\n");
    let count = 20;
    slow.send("get key\r\n".repeat(count));
    slow.expect(&hit("key", &old)[..1000]);
    for turn in 0..200_u8 {
        let new = vec![b'0' + turn % 10; 1_000_000];
        writer.check(set("key", &new), "STORED\r\n");
    }
    let mut first = hit("key", &old);
    first.drain(..1000);
    slow.expect(first);
    for _ in 1..count {
        let found = slow.read(hit("key", &old).len());
        let begin = b"VALUE key 5 1000000\r\n".len();
        let body = &found[begin..begin + 1_000_000];
        let whole = body == &old[..] || body.iter().all(|byte| *byte == body[0]);
        assert!(whole, "a mixture of values: {}", show(&found));
    }
}

/// A large limit for items, and items near it.
#[test]
fn very_large_values() {
    let large = Settings { item_bytes_max: 32 << 20, memory_bytes: 256 << 20, ..settings() };
    let server = start(large);
    let mut client = Client::to(&server);
    client.stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let value = value(31 << 20);
    client.check(set("key", &value), "STORED\r\n");
    client.check("get key\r\n", hit("key", &value));
    client.check(set("key", &value), "STORED\r\n");
}
