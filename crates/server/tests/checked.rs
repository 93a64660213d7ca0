//! Checked values: the client's own checksum is verified before anything is stored, in every protocol and mode.

mod common;

use common::{Client, settings, start};
use protocol::checked::Announcement;
use server::settings::{Protect, Settings};
use store::crc32c;

const BIT: u32 = 1 << 16;

/// With the bit in its flags and whatever else.
fn checked(key: &str, flags: u32, content: &[u8]) -> Vec<u8> {
    let announcement = Announcement::new(16).expect("a bit of 32");
    let trailer = announcement.trailer(key.as_bytes(), flags, content, crc32c);
    [content, &trailer].concat()
}

fn storage(verb: &str, key: &str, rest: &str, value: &[u8]) -> Vec<u8> {
    [format!("{verb} {key} {rest}\r\n").as_bytes(), value, b"\r\n"].concat()
}

fn set(key: &str, flags: u32, value: &[u8]) -> Vec<u8> {
    storage("set", key, &format!("{flags} 0 {}", value.len()), value)
}

fn shown(key: &str, flags: u32, value: &[u8]) -> Vec<u8> {
    let head = format!("VALUE {key} {flags} {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\nEND\r\n"].concat()
}

const BAD: &str = "CLIENT_ERROR bad checksum of checked value\r\n";

/// Runs a conversation with a server in every mode, with checked values switched on.
fn in_every_mode(converse: impl Fn(&mut Client)) {
    let modes = [
        Settings { protect: Protect::Vanilla, protect_sync: false, ..settings() },
        Settings { protect: Protect::Sei, redundancy: 3, protect_sync: false, ..settings() },
        Settings { protect: Protect::Orthrus, protect_sync: false, ..settings() },
        Settings { protect: Protect::Orthrus, protect_sync: true, ..settings() },
    ];
    for mode in modes {
        let server = start(Settings { checked_values: Announcement::new(16), ..mode });
        let mut client = Client::to(&server);
        converse(&mut client);
        client.check("version\r\n", "VERSION 1.6.45\r\n");
    }
}

#[test]
fn right_checksums_are_stored_and_wrong_ones_refused() {
    in_every_mode(|client| {
        for content in [&b""[..], b"hello", &[7; 100_000]] {
            let flags = BIT | 5;
            let good = checked("key", flags, content);
            client.check(set("key", flags, &good), "STORED\r\n");
            client.check("get key\r\n", shown("key", flags, &good));
            let mut bad = good.clone();
            bad[content.len() / 2] ^= 64;
            client.check(set("key", flags, &bad), BAD);
            client.check(set("kez", flags, &good), BAD);
            client.check(set("key", flags ^ 1, &good), BAD);
            client.check("get key kez\r\n", shown("key", flags, &good));
            // Without the bit they are bytes as any others.
            client.check(set("plain", 5, &bad), "STORED\r\n");
            client.check("get plain\r\n", shown("plain", 5, &bad));
        }
        for short in [&b""[..], b"1", b"123"] {
            client.check(set("key", BIT, short), BAD);
        }
    });
}

#[test]
fn every_command_that_stores_is_refused_first() {
    in_every_mode(|client| {
        let good = checked("key", BIT, b"content");
        let bad = [&good[..good.len() - 1], b"\0"].concat();
        let rest = format!("{BIT} 0 {}", good.len());
        for verb in ["set", "add", "replace"] {
            client.check(storage(verb, "key", &rest, &bad), BAD);
        }
        client.check(storage("cas", "key", &format!("{rest} 1"), &bad), BAD);
        client.check(storage("add", "key", &rest, &good), "STORED\r\n");
        client.check(storage("add", "key", &rest, &good), "NOT_STORED\r\n");
        client.check(storage("replace", "key", &rest, &good), "STORED\r\n");
        client.check(storage("set", "key", &format!("{rest} noreply"), &bad), "");
        client.check("get key\r\n", shown("key", BIT, &good));
        let meta = format!("{} F{BIT}", good.len());
        client.check(storage("ms", "key", &meta, &good), "HD\r\n");
        client.check(storage("ms", "a2V5", &format!("{meta} b"), &good), "HD\r\n");
        client.check(storage("ms", "key", &meta, &bad), BAD);
        client.check(storage("ms", "a2V5", &format!("{meta} b"), &bad), BAD);
        client.check(storage("ms", "new", &format!("{meta} MA N0"), &good), BAD);
        client.check("get new\r\n", "END\r\n");
    });
}

#[test]
fn a_checked_value_stays_whole() {
    in_every_mode(|client| {
        let good = checked("key", BIT, b"12");
        client.check(set("key", BIT, &good), "STORED\r\n");
        for verb in ["append", "prepend"] {
            client.check(storage(verb, "key", "0 0 1", b"x"), "NOT_STORED\r\n");
            client.check(storage(verb, "key", &format!("{BIT} 0 1"), b"x"), "NOT_STORED\r\n");
        }
        client.check(storage("ms", "key", "1 MA", b"x"), "NS\r\n");
        let non_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        client.check("incr key 1\r\n", non_numeric);
        client.check("decr key 1\r\n", non_numeric);
        client.check("ma key\r\n", non_numeric);
        client.check("touch key 100\r\n", "TOUCHED\r\n");
        client.check("md key I\r\n", "HD\r\n");
        client.check("get key\r\n", shown("key", BIT, &good));
        client.check("md key x\r\n", "HD\r\n");
        client.check(storage("append", "key", "0 0 1", b"1"), "STORED\r\n");
        client.check("incr key 1\r\n", "2\r\n");
        client.check(set("plain", 0, b"1"), "STORED\r\n");
        client.check(storage("append", "plain", &format!("{BIT} 0 1"), b"1"), "STORED\r\n");
        client.check("incr plain 1\r\n", "12\r\n");
    });
}

#[test]
fn binary_clients_are_told_too() {
    in_every_mode(|client| {
        let request = |key: &str, value: &[u8]| {
            let body = 8 + key.len() + value.len();
            let mut bytes = vec![0x80, 1, 0, key.len() as u8, 8, 0, 0, 0];
            bytes.extend_from_slice(&(body as u32).to_be_bytes());
            bytes.extend_from_slice(&[0; 12]);
            bytes.extend_from_slice(&BIT.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(value);
            bytes
        };
        let status = |client: &mut Client, bytes: &[u8]| {
            client.send(bytes);
            let head = client.read(24);
            let length = u32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
            client.read(length as usize);
            u16::from_be_bytes([head[6], head[7]])
        };
        let good = checked("key", BIT, b"content");
        // One connection speaks one protocol, so this one has its own.
        let mut binary = Client::at(client.stream.peer_addr().expect("an address"));
        assert_eq!(status(&mut binary, &request("key", &good)), 0);
        assert_eq!(status(&mut binary, &request("kez", &good)), 4);
        assert_eq!(status(&mut binary, &request("key", b"123")), 4);
        client.check("get key kez\r\n", shown("key", BIT, &good));
    });
}

#[test]
fn they_are_counted() {
    let server = start(Settings { checked_values: Announcement::new(16), ..settings() });
    let mut client = Client::to(&server);
    let good = checked("key", BIT, b"content");
    client.check(set("key", BIT, &good), "STORED\r\n");
    client.check(set("key", BIT, &good), "STORED\r\n");
    client.check(set("kez", BIT, &good), BAD);
    client.check(set("plain", 0, b"x"), "STORED\r\n");
    client.check("stats reset\r\n", "RESET\r\n");
    assert_eq!(integrity(&mut client, "checked_verified"), Some(2));
    assert_eq!(integrity(&mut client, "checked_refused"), Some(1));
}

#[test]
fn without_the_setting_nothing_is_verified() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.check(set("key", BIT, b"x"), "STORED\r\n");
    client.check(storage("append", "key", "0 0 1", b"y"), "STORED\r\n");
    client.check("get key\r\n", shown("key", BIT, b"xy"));
    assert_eq!(integrity(&mut client, "checked_refused"), None);
}

fn integrity(client: &mut Client, key: &str) -> Option<u64> {
    client.send("stats integrity\r\n");
    let mut found = None;
    loop {
        let line = client.line();
        if line == "END" {
            return found;
        }
        let mut words = line.split(' ');
        if words.nth(1) == Some(key) {
            found = words.next().and_then(|word| word.parse().ok());
        }
    }
}
