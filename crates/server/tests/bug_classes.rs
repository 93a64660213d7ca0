//! Classes of bugs that servers of this kind had, each with the tests that look for it.
//!
//! | class | seen as | looked for by |
//! |---|---|---|
//! | lengths that overflow | CVE-2016-8704, -8705, -8706, CVE-2020-10931 | `lengths_that_overflow` in `hostile.rs`; `all_combinations_of_binary_lengths` in the protocol's `hostile.rs` |
//! | reading past the end, off by one | CVE-2017-9951, CVE-2023-46852, -46853 | [`keys_around_the_limit`]; `line_ends` in both `hostile.rs`; `every_split_point` in `pipelines.rs` |
//! | missing or invalid arguments of administration | CVE-2019-11596, CVE-2019-15026, CVE-2020-22570 | [`binary_statistics_with_random_arguments`]; `administration_with_random_arguments` in `hostile.rs` |
//! | authentication | overlong tokens, CVE-2026-47783 | there is none: `-S` and `-Y` are refused, `refusals` in `settings/tests.rs` |
//! | amplification by UDP | CVE-2018-1000115 | [`udp_stays_closed`] |
//! | statistics without bound | prefixes of keys | `the_table_is_bounded` in `admin/prefixes.rs` |
//! | slow clients and dumps | overflows of the crawler's buffer, watchers used after they left | [`dumps_that_nobody_reads_to_the_end`]; `dumps_do_not_stall_others` in `hostile.rs`; `memory.rs` |
//! | references that leak | errors of `ms` | [`values_that_never_arrive_whole`] |
//! | references that overflow | CVE-2018-1000127 | `a_key_repeated_very_often` in `hostile.rs` |
//! | no memory while a value arrives | a crash | [`no_memory_while_a_value_arrives`]; `two_megabytes` in `hostile.rs` |
//! | no descriptors | a listener that spins | `descriptors.rs` |
//! | values changed by the server itself | the page mover, arithmetic on values of 0 bytes | [`arithmetic_on_nothing`]; `churn` in `hostile.rs`; the store's `model.rs` and `stress.rs` |

mod common;

use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::time::Duration;

use common::{Client, Random, address, settings, start};
use protocol::binary::{HEADER_BYTES, opcode};
use server::settings::{Port, Settings};

/// A binary request.
fn frame(opcode: u8, extras: &[u8], key: &[u8], value_bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    frame[..2].copy_from_slice(&[0x80, opcode]);
    frame[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    frame[4] = extras.len() as u8;
    frame[8..12].copy_from_slice(&((extras.len() + key.len() + value_bytes) as u32).to_be_bytes());
    [&frame, extras, key].concat()
}

/// Class: reading past the end, off by one. The longest key is a key in every command, one byte more in none, whatever
/// the line ends with.
#[test]
fn keys_around_the_limit() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let commands = [
        ("get ", "", ""),
        ("gets ", "", ""),
        ("gat 0 ", "", ""),
        ("gats 0 ", "", ""),
        ("get a ", " b", ""),
        ("set ", " 0 0 1", "1"),
        ("add ", " 0 0 1", "1"),
        ("replace ", " 0 0 1", "1"),
        ("append ", " 0 0 1", "1"),
        ("prepend ", " 0 0 1", "1"),
        ("cas ", " 0 0 1 1", "1"),
        ("incr ", " 1", ""),
        ("decr ", " 1", ""),
        ("touch ", " 0", ""),
        ("delete ", "", ""),
        ("mg ", "", ""),
        ("mg ", " s k", ""),
        ("ms ", " 1", "1"),
        ("ma ", "", ""),
        ("md ", "", ""),
        ("me ", "", ""),
    ];
    for end in ["\r\n", "\n"] {
        for (before, behind, value) in commands {
            for len in [1, 249, 250, 251, 252, 255, 256, 257, 500] {
                let value = if value.is_empty() { String::new() } else { format!("{value}\r\n") };
                let key = "k".repeat(len);
                client.send(format!("{before}{key}{behind}{end}{value}mn\r\n"));
                let first = client.line();
                let refused = first.starts_with("CLIENT_ERROR ");
                assert_eq!(refused, len > 250, "{before:?} with a key of {len} bytes gave {first:?}");
                // Nothing is left over of what was refused: the next answer is that to the next command.
                client.expect("MN\r\n");
            }
        }
    }
}

/// Class: missing or invalid arguments of administration.
#[test]
fn binary_statistics_with_random_arguments() {
    const WORDS: [&str; 14] = [
        "items",
        "slabs",
        "sizes",
        "conns",
        "detail",
        "on",
        "off",
        "dump",
        "cachedump",
        "-1",
        "0",
        "300",
        "x",
        "",
    ];
    let server = start(settings());
    let mut random = Random::new();
    let mut client = Client::to(&server);
    for _ in 0..1000 {
        let words: Vec<_> =
            (0..random.below(5)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect();
        client.send(frame(opcode::STAT, &[], words.join(" ").as_bytes(), 0));
        loop {
            let head = client.read(HEADER_BYTES);
            assert_eq!(head[..2], [0x81, opcode::STAT], "{words:?}");
            client.read(u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize);
            let (key_bytes, status) = (&head[2..4], &head[6..8]);
            if *key_bytes == [0, 0] || *status != [0, 0] {
                break;
            }
        }
    }
}

/// Class: amplification by UDP. Whatever `-U` says, nobody answers there.
#[test]
fn udp_stays_closed() {
    for udp_port in [Port::Off, Port::Any] {
        let server = start(Settings { udp_port, ..settings() });
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(address(&server)).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        socket.send(b"\0\0\0\0\0\x01\0\0stats\r\n").expect("the first one leaves");
        let refused = socket.recv(&mut [0; 1500]).expect_err("nobody is there");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

/// Class: slow clients and dumps. Clients that leave in the middle of one, while the items change.
#[test]
fn dumps_that_nobody_reads_to_the_end() {
    let server = start(Settings { line_port: Port::Any, ..settings() });
    let mut client = Client::to(&server);
    let count = 20_000;
    let fill = |client: &mut Client, value: &str| {
        for number in 0..count {
            client.send(format!("set key{number} 0 0 2 noreply\r\n{value}\r\n"));
        }
        client.check("mn\r\n", "MN\r\n");
    };
    fill(&mut client, "xy");
    for turn in 0..20 {
        let mut dumps = Vec::new();
        for request in
            ["lru_crawler metadump all\r\n", "lru_crawler mgdump all\r\n", "stats cachedump 1 0\r\n"]
        {
            let mut dumper = Client::to(&server);
            dumper.send(request);
            dumper.read(10);
            dumps.push(dumper);
        }
        let mut dumper = Client::at(server.line_addresses()[0]);
        dumper.send("GETALL\n");
        dumper.expect("{\"key");
        dumps.push(dumper);
        if turn % 10 == 0 {
            fill(&mut client, "zz");
        }
    }
    client.send("lru_crawler mgdump all\r\n");
    assert_eq!(client.line(), "OK");
    let mut dumped = 0;
    while client.line() != "EN" {
        dumped += 1;
    }
    assert_eq!(dumped, count);
}

/// Class: references that leak. Values that end wrongly or not at all give back the memory they had begun to fill.
#[test]
fn values_that_never_arrive_whole() {
    let server = start(Settings { memory_bytes: 8 << 20, evict: false, ..settings() });
    let half = vec![b'x'; 150_000];
    let ends_wrongly = [&half[..], &half, b"!!"].concat();
    let binary = frame(opcode::SET, &[0; 8], b"binary", 300_000);
    for _ in 0..100 {
        let mut client = Client::to(&server);
        for line in ["set a 0 0 300000\r\n", "ms a 300000 T0\r\n", "append a 0 0 300000\r\n"] {
            client.send([line.as_bytes(), &ends_wrongly, b"\r\nmn\r\n"].concat());
            assert_eq!(client.line(), "CLIENT_ERROR bad data chunk", "{line:?}");
            while client.line() != "MN" {}
        }
        client.send([b"ms a 300000 T-x\r\n", &half[..], &half, b"\r\nmn\r\n"].concat());
        assert!(client.line().starts_with("CLIENT_ERROR"));
        while client.line() != "MN" {}
        for begin in [b"set a 0 0 300000\r\n", b"ms a 300000 T0 q\r\n", &binary[..]] {
            let mut client = Client::to(&server);
            client.send([begin, &half].concat());
            client.finish();
            assert_eq!(client.rest(), b"");
        }
    }
    // Nothing may be evicted, so all that was ever begun would have to fit, had it not been given back.
    let mut client = Client::to(&server);
    assert_eq!(client.stat("curr_items"), 0);
    for number in 0..8 {
        let value = String::from_utf8_lossy(&half);
        client.check(format!("set {number} 0 0 150000\r\n{value}\r\n"), "STORED\r\n");
    }
}

/// Class: no memory while a value arrives. It is refused and dropped, and what comes behind it is understood.
#[test]
fn no_memory_while_a_value_arrives() {
    let server = start(Settings { memory_bytes: 4 << 20, evict: false, ..settings() });
    let mut client = Client::to(&server);
    let value = "v".repeat(100_000);
    let mut stored = Vec::new();
    loop {
        let key = format!("key{}", stored.len());
        client.send(format!("set {key} 0 0 100000\r\n"));
        // Both orders happen: the refusal before the value has arrived, and after.
        for piece in value.as_bytes().chunks(40_000) {
            client.stream.write_all(piece).expect("the server reads");
        }
        client.send("\r\n");
        match &client.line()[..] {
            "STORED" => stored.push(key),
            "SERVER_ERROR out of memory storing object" => break,
            other => panic!("{other}"),
        }
        assert!(stored.len() < 100, "the limit is 4 MB");
    }
    assert!(stored.len() > 5, "only {} found room", stored.len());
    client.check("mn\r\n", "MN\r\n");
    for key in &stored {
        client.check(format!("get {key}\r\n"), format!("VALUE {key} 0 100000\r\n{value}\r\nEND\r\n"));
        client.check(format!("delete {key}\r\n"), "DELETED\r\n");
    }
    client.check(format!("set again 0 0 100000\r\n{value}\r\n"), "STORED\r\n");
}

/// Class: values changed by the server itself. A value of no bytes is no number, and stays what it is.
#[test]
fn arithmetic_on_nothing() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let mut binary = Client::to(&server);
    client.check("set n 0 0 0\r\n\r\n", "STORED\r\n");
    let refused = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    for request in ["incr n 1\r\n", "decr n 1\r\n", "ma n\r\n", "ma n N0 J5 v\r\n", "ma n MD q\r\n"] {
        client.check(request, refused);
        client.check("get n\r\n", "VALUE n 0 0\r\n\r\nEND\r\n");
    }
    binary.send(frame(opcode::INCREMENT, &[0; 20], b"n", 0));
    assert_eq!(binary.read(HEADER_BYTES)[6..8], [0, 6]);
    client.check("append n 0 0 1\r\n7\r\nincr n 1\r\n", "STORED\r\n8\r\n");
}
