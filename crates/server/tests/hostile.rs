//! Clients that are slow, broken, greedy or lost.
//!
//! `bug_classes.rs` says which of these tests looks for which class of bugs.

mod common;

use std::io::Write;

use common::{Client, Random, settings, show, start};
use server::settings::Settings;

#[test]
fn an_http_request() {
    let server = start(settings());
    for request in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.0\r\n\r\nset a 0 0 1\r\n1\r\n"] {
        let mut client = Client::to(&server);
        client.send(request);
        assert_eq!(show(&client.rest()), "", "{request:?}");
    }
    Client::to(&server).check("get a\r\n", "END\r\n");
}

#[test]
fn half_closed() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let value = "v".repeat(500_000);
    client.send(format!("set key 0 0 500000\r\n{value}\r\nget key\r\nget key\r\nget key\r\nmn\r\n"));
    client.finish();
    let hit = format!("VALUE key 0 500000\r\n{value}\r\nEND\r\n");
    let expected = format!("STORED\r\n{hit}{hit}{hit}MN\r\n");
    assert!(client.rest() == expected.as_bytes());
}

#[test]
fn quit_answers_what_came_before() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.send("mn\r\nquit\r\nmn\r\n");
    assert_eq!(client.rest(), b"MN\r\n");
}

#[test]
fn line_ends() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for (request, expected) in [
        ("version\n", "VERSION 1.6.45\r\n"),
        ("set a 0 0 1\n1\r\n", "STORED\r\n"),
        ("get a\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
        ("\n", "CLIENT_ERROR bad command line format\r\n"),
        ("\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("a\0b\r\n", "ERROR\r\n"),
        ("get a\0\r\n", "END\r\n"),
    ] {
        client.check(request, expected);
    }
}

/// Lines without an end: nobody waits for them for ever.
#[test]
fn endless_lines() {
    let server = start(settings());
    for (begin, filler) in [("set ", "x"), ("", "x"), ("", " "), ("get ", "key ")] {
        let mut client = Client::to(&server);
        client.stream.write_all(begin.as_bytes()).expect("open");
        let block = filler.repeat((64 << 10) / filler.len());
        let mut sent = 0;
        while client.stream.write_all(block.as_bytes()).is_ok() {
            sent += block.len();
            assert!(sent < 64 << 20, "{begin:?} with {filler:?} goes on for ever");
        }
    }
    Client::to(&server).check("mn\r\n", "MN\r\n");
}

#[test]
fn lengths_that_overflow() {
    let server = start(settings());
    for length in
        ["-1", "-2147483648", "2147483646", "2147483647", "4294967295", "4294967296", "18446744073709551615"]
    {
        for command in ["set k 0 0", "cas k 0 0", "append k 0 0", "ms k"] {
            let mut client = Client::to(&server);
            client.send(format!("{command} {length}\r\n"));
            let line = client.line();
            assert!(line.contains("_ERROR"), "{command} {length}: {line}");
        }
    }
    for lengths in [[0xff; 4], [0x7f, 0xff, 0xff, 0xff], [0x80, 0, 0, 0], [0x40, 0, 0, 1]] {
        for opcode in 0..=0x30 {
            for (key_len, extras) in [([0, 1], 8), ([0xff, 0xff], 255), ([0, 250], 0), ([0, 0], 0)] {
                let mut frame = [0; 24];
                frame[..4].copy_from_slice(&[0x80, opcode, key_len[0], key_len[1]]);
                frame[4] = extras;
                frame[8..12].copy_from_slice(&lengths);
                let mut client = Client::to(&server);
                client.send(frame);
                client.finish();
                client.rest();
            }
        }
    }
    Client::to(&server).check("mn\r\n", "MN\r\n");
}

#[test]
fn garbage() {
    let server = start(settings());
    let mut random = Random::new();
    for round in 0..300 {
        let mut bytes = match round % 3 {
            0 => vec![0x80, random.next() as u8],
            1 => b"mg ".to_vec(),
            _ => Vec::new(),
        };
        let count = 1 + random.below(3000) as usize;
        bytes.extend(random.bytes(count));
        let mut client = Client::to(&server);
        // The server may close the connection before it has read everything.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        client.rest();
    }
    Client::to(&server).check("mn\r\n", "MN\r\n");
}

/// Words that administration commands are made of.
const WORDS: &[&str] = &[
    "stats",
    "items",
    "slabs",
    "sizes",
    "conns",
    "detail",
    "on",
    "off",
    "dump",
    "reset",
    "cachedump",
    "lru",
    "tune",
    "mode",
    "temp_ttl",
    "lru_crawler",
    "crawl",
    "metadump",
    "mgdump",
    "tocrawl",
    "sleep",
    "enable",
    "disable",
    "reassign",
    "automove",
    "ratio",
    "window",
    "freeratio",
    "verbosity",
    "all",
    "hash",
    "noreply",
    "0",
    "1",
    "-1",
    "5",
    "2147483648",
    "18446744073709551616",
    "0.5",
    "-0.0",
    "nan",
    "1,2,3",
    "999",
    "x",
    "flush_all",
    "watch",
    "cache_memlimit",
    "refresh_certs",
    "shutdown",
    "graceful",
    "me",
    "debugtime",
    "extstore",
    "settings",
];

#[test]
fn administration_with_random_arguments() {
    let server = start(settings());
    let mut random = Random::new();
    let mut client = Client::to(&server);
    for _ in 0..2000 {
        let count = 1 + random.below(6);
        let mut line = String::new();
        for _ in 0..count {
            line += WORDS[random.below(WORDS.len() as u64) as usize];
            line += " ";
        }
        // A limit of memory near zero or a number of terabytes would be a test of something else.
        if line.starts_with("cache_memlimit") || line.starts_with("verbosity") {
            continue;
        }
        client.send(format!("{}\r\nmn\r\n", line.trim_end()));
        while client.line() != "MN" {}
    }
}

#[test]
fn a_key_repeated_very_often() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    let count = 100_000;
    client.send(format!("get{}\r\n", " k".repeat(count)));
    client.expect("VALUE k 0 1\r\nx\r\n".repeat(count) + "END\r\n");
    client.check("delete k\r\nget k\r\n", "DELETED\r\nEND\r\n");
}

#[test]
fn dumps_do_not_stall_others() {
    let server = start(settings());
    let (mut dumper, mut other) = (Client::to(&server), Client::to(&server));
    let count = 50_000;
    for number in 0..count {
        other.send(format!("set key{number} 1 0 2 noreply\r\nxy\r\n"));
    }
    other.check("mn\r\n", "MN\r\n");
    dumper.send("lru_crawler metadump all\r\n");
    assert_eq!(dumper.line(), "OK");
    // The dump is larger than all buffers on its way, and nobody reads it: others go on.
    for _ in 0..100 {
        other.check("get key7\r\n", "VALUE key7 1 2\r\nxy\r\nEND\r\n");
    }
    let mut seen = vec![false; count];
    let mut lines = String::new();
    loop {
        let line = dumper.line();
        if line == "END" {
            break;
        }
        let number =
            line.strip_prefix("key=key").and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        seen[number.unwrap_or_else(|| panic!("{line:?}"))] = true;
        lines = line;
    }
    let missing = seen.iter().filter(|seen| !**seen).count();
    assert_eq!(missing, 0, "keys that the dump left out");
    assert!(lines.contains(" exp=-1 la=") && lines.ends_with(" flags=1 "), "{lines:?}");
    dumper.check("mn\r\n", "MN\r\n");
    dumper.send("lru_crawler mgdump all\r\n");
    assert_eq!(dumper.line(), "OK");
    let mut dumped = 0;
    while dumper.line() != "EN" {
        dumped += 1;
    }
    assert_eq!(dumped, count);
}

/// Writes and reads more than there is memory for, and looks at each value; how many writes were stored.
fn churn(client: &mut Client, random: &mut Random, count: u64) -> u64 {
    let mut stored = 0;
    for number in 0..count {
        let size = if number % 100 == 0 { random.below(600_000) } else { random.below(2000) } as usize;
        let key = random.below(3000);
        let value = format!("{key:06}").repeat(size / 6 + 1);
        client.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
        let line = client.line();
        stored += u64::from(line == "STORED");
        assert!(line == "STORED" || line == "SERVER_ERROR out of memory storing object", "{line}");
        let key = random.below(3000);
        client.send(format!("get {key}\r\n"));
        let line = client.line();
        if line != "END" {
            let size: usize = line.split(' ').nth(3).and_then(|word| word.parse().ok()).expect("a length");
            let value = client.read(size + 2);
            let expected = format!("{key:06}");
            assert!(value[..size].chunks(6).all(|chunk| chunk == expected.as_bytes()), "another key's value");
            client.expect("END\r\n");
        }
    }
    stored
}

#[test]
fn two_megabytes() {
    let server = start(Settings { memory_bytes: 2 << 20, ..settings() });
    let mut client = Client::to(&server);
    let stored = churn(&mut client, &mut Random::new(), 20_000);
    assert!(stored > 19_000, "only {stored} of 20,000 could be stored");
    assert!(client.stat("evictions") > 0);
}

#[test]
fn little_memory_and_several_workers() {
    let server = start(Settings { memory_bytes: 8 << 20, threads: 3, ..settings() });
    let mut random = Random::new();
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, mut random) = (Client::to(&server), Random::from(random.next()));
            std::thread::spawn(move || churn(&mut client, &mut random, 4_000))
        })
        .collect();
    let stored: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    println!("{stored} of 24,000 stored");
    assert!(stored > 23_000, "only {stored} of 24,000 could be stored");
    assert!(Client::to(&server).stat("evictions") > 0);
}

#[test]
fn too_many_connections_are_told_so() {
    let server = start(Settings { conn_limit: 20, ..settings() });
    let mut first = Client::to(&server);
    first.check("mn\r\n", "MN\r\n");
    let mut accepted = Vec::new();
    let mut refused = 0;
    for _ in 0..40 {
        let mut client = Client::to(&server);
        let _ = client.stream.write_all(b"mn\r\n");
        let answer = client.line();
        if answer == "MN" {
            accepted.push(client);
        } else {
            assert_eq!(answer, "ERROR Too many open connections");
            refused += 1;
        }
    }
    assert!(refused >= 20, "{refused} were refused");
    assert_eq!(first.stat("rejected_connections"), refused);
    accepted.clear();
    while first.stat("curr_connections") > 1 {}
    Client::to(&server).check("mn\r\n", "MN\r\n");
}

#[test]
fn without_fast_refusal_connections_wait() {
    let server = start(Settings { conn_limit: 6, conn_limit_fast: false, ..settings() });
    let mut clients: Vec<_> = (0..4).map(|_| Client::to(&server)).collect();
    for client in &mut clients {
        client.check("mn\r\n", "MN\r\n");
    }
    let mut waiting = Client::to(&server);
    waiting.send("mn\r\n");
    while clients[0].stat("accepting_conns") == 1 {}
    assert!(clients[0].stat("listen_disabled_num") >= 1);
    clients.pop();
    waiting.expect("MN\r\n");
}
