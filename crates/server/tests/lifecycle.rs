//! Beginnings and ends: sockets, workers, time, stopping.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Client, settings, start};
use server::settings::{Listen, Port, Settings};
use server::{ExitReason, Server};

#[test]
fn several_workers_share_one_store() {
    let server = start(Settings { threads: 3, ..settings() });
    let mut clients: Vec<_> = (0..9).map(|_| Client::to(&server)).collect();
    for round in 0..50 {
        for writer in 0..clients.len() {
            clients[writer].check(format!("set key{writer} 0 0 2\r\n{round:02}\r\n"), "STORED\r\n");
            for client in &mut clients {
                client.check(
                    format!("get key{writer}\r\n"),
                    format!("VALUE key{writer} 0 2\r\n{round:02}\r\nEND\r\n"),
                );
            }
        }
    }
    assert_eq!(clients[0].stat("threads"), 3);
    assert_eq!(clients[0].stat("cmd_set"), 450);
    assert_eq!(clients[0].stat("get_hits"), 4050);
}

/// One counter, many writers: every increment counts once.
#[test]
fn increments_are_not_lost() {
    let server = start(Settings { threads: 4, ..settings() });
    Client::to(&server).check("set n 0 0 1\r\n0\r\n", "STORED\r\n");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::to(&server);
            std::thread::spawn(move || {
                for _ in 0..500 {
                    client.send("incr n 1\r\n");
                    client.line();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    Client::to(&server).check("incr n 0\r\n", "2000\r\n");
}

#[test]
fn a_unix_socket() {
    let path = std::env::temp_dir().join(format!("veracache-test-{}.sock", std::process::id()));
    // One that nobody listens on any more is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let server = start(Settings { unix_socket: Some(path.clone()), unix_mask: 0o600, ..settings() });
    assert_eq!(server.addresses(), []);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("listening");
    stream.write_all(b"set a 0 0 1\r\n1\r\nget a\r\nquit\r\n").expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("open");
    assert_eq!(answer, "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    drop(server);
    // A file that is no socket is left alone.
    std::fs::remove_file(&path).expect("there");
    std::fs::write(&path, "mine").expect("writable");
    assert!(Server::start(Settings { unix_socket: Some(path.clone()), ..settings() }).is_err());
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");
    std::fs::remove_file(&path).expect("there");
}

#[test]
fn several_listeners() {
    let listen = |host: &str| Listen { host: Some(host.into()), port: None, binding: None, tag: None };
    let several = vec![listen("127.0.0.1"), listen("127.0.0.2"), listen("::1")];
    let server = start(Settings { listen: several, line_port: Port::Any, ..settings() });
    let addresses = server.addresses();
    assert!(addresses.len() >= 2, "{addresses:?}");
    for address in addresses {
        Client::at(address).check("mn\r\n", "MN\r\n");
    }
    assert_eq!(server.line_addresses().len(), server.addresses().len());
}

#[test]
fn an_address_in_use() {
    let server = start(settings());
    let taken = Port::Fixed(server.addresses()[0].port());
    let error = Server::start(Settings { tcp_port: taken, ..settings() }).err().expect("refused");
    assert!(error.is_address_in_use(), "{error}");
    assert!(error.to_string().contains("another port"), "{error}");
    assert_eq!(error.exit_code(), 71);
}

#[test]
fn nobody_has_this_name() {
    let listen = vec![Listen { host: Some("fooble.invalid".into()), port: None, binding: None, tag: None }];
    assert!(Server::start(Settings { listen, ..settings() }).is_err());
}

/// What was computed is sent, although the server is asked to stop and the client is slow.
#[test]
fn stopping_finishes_what_was_begun() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let value = "v".repeat(1_000_000);
    client.check(format!("set key 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    // The answers fit into the kernel's buffers and the server's queue only in part.
    client.send("get key\r\n".repeat(100));
    client.expect(&format!("VALUE key 0 1000000\r\n{value}\r\nEND\r\n").as_bytes()[..100]);
    let reading = std::thread::spawn(move || client.rest());
    assert_eq!(server.stop(), ExitReason::Stopped);
    let rest = reading.join().expect("no panic");
    // Whole answers only: what was begun was finished.
    let answer = format!("VALUE key 0 1000000\r\n{value}\r\nEND\r\n").len();
    assert_eq!((rest.len() + 100) % answer, 0, "{} bytes", rest.len());
}

/// A client that reads nothing cannot keep the server from stopping.
#[test]
fn stopping_takes_a_bounded_time() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let value = "v".repeat(1_000_000);
    client.check(format!("set key 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    client.send("get key\r\n".repeat(100));
    client.expect("VALUE key");
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn shutdown_by_a_client() {
    let server = start(Settings { shutdown_enabled: true, ..settings() });
    let mut client = Client::to(&server);
    client.check("shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
    client.send("mn\r\nshutdown graceful\r\nmn\r\n");
    assert_eq!(client.rest(), b"MN\r\n");
    assert_eq!(server.stop(), ExitReason::StoppedGracefully);
}

/// The clock of tests: expiry is exact to the second.
#[test]
fn time() {
    let server = start(Settings { test_mode: true, ..settings() });
    let mut client = Client::to(&server);
    client.check("debugtime p\r\n", "OK\r\n");
    client.check("set a 0 100 1\r\nx\r\nset b 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    client.check("debugtime +99\r\nget a\r\nmg a t\r\n", "OK\r\nVALUE a 0 1\r\nx\r\nEND\r\nHD t1\r\n");
    client.check("debugtime +1\r\nget a b\r\n", "OK\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    client.check("flush_all 10\r\nget b\r\n", "OK\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    client.check("debugtime +11\r\nget b\r\n", "OK\r\nEND\r\n");
    client.check("set b 0 0 1\r\nz\r\nget b\r\n", "STORED\r\nVALUE b 0 1\r\nz\r\nEND\r\n");
    client.check("debugtime r\r\n", "OK\r\n");
    let plain = start(settings());
    Client::to(&plain).check("debugtime p\r\n", "ERROR\r\n");
}

#[test]
fn silent_connections_are_closed() {
    let server = start(Settings { idle_timeout_seconds: 2, test_mode: true, ..settings() });
    let (mut silent, mut busy) = (Client::to(&server), Client::to(&server));
    silent.check("mn\r\n", "MN\r\n");
    busy.check("debugtime p\r\n", "OK\r\n");
    busy.check("debugtime +2\r\nmn\r\n", "OK\r\nMN\r\n");
    busy.check("debugtime +1\r\nmn\r\n", "OK\r\nMN\r\n");
    assert_eq!(silent.rest(), b"");
    assert_eq!(busy.stat("idle_kicks"), 1);
}

#[test]
fn connections_are_shown() {
    let server = start(settings());
    let (mut filling, mut asking) = (Client::to(&server), Client::to(&server));
    filling.send("set foo 0 0 6\r\n");
    asking.check("mn\r\n", "MN\r\n");
    asking.send("stats conns\r\n");
    let mut lines = Vec::new();
    loop {
        let line = asking.line();
        if line == "END" {
            break;
        }
        lines.push(line);
    }
    let address = server.addresses()[0];
    let count = |wanted: &str| lines.iter().filter(|line| line.ends_with(wanted)).count();
    assert_eq!(count("state conn_listening"), 1, "{lines:#?}");
    assert_eq!(count("state conn_nread"), 1, "{lines:#?}");
    assert_eq!(count("state conn_parse_cmd"), 1, "{lines:#?}");
    assert_eq!(count(&format!("addr tcp:{address}")), 3, "{lines:#?}");
}

/// Only `mg` hands out the right to recache; looking at a stale item by other means leaves it to others.
#[test]
fn only_meta_get_wins() {
    let server = start(settings());
    let mut client = Client::to(&server);
    client.check("ms k 1\r\nx\r\nmd k I T30\r\n", "HD\r\nHD\r\n");
    client.check("get k\r\ngat 30 k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n".repeat(2));
    client.send("me k\r\n");
    assert!(client.line().starts_with("ME k exp="));
    client.check("mg k v\r\nmg k v\r\n", "VA 1 X W\r\nx\r\nVA 1 Z X\r\nx\r\n");
}
