//! What clients cost in memory. One test in a process of its own, as it is the process that is measured.

mod common;

use std::io::Write;
use std::net::TcpStream;

use common::{Client, address, resident_bytes, settings, start};
use server::settings::Settings;

/// Raises the limit of descriptors as far as possible; what it is then.
fn raise_descriptors(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    let current = limit.current.unwrap_or(u64::MAX).max(wanted.min(maximum));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum }).expect("allowed");
    current
}

#[test]
fn memory_is_bounded() {
    ten_thousand_idle_connections();
    a_reader_that_never_reads();
}

/// A client that asks for much and reads nothing costs bounded memory, and costs others nothing.
fn a_reader_that_never_reads() {
    let server = start(settings());
    let mut other = Client::to(&server);
    let value = "v".repeat(10_000);
    other.check(format!("set key 0 0 10000\r\n{value}\r\n"), "STORED\r\n");
    let before = resident_bytes();
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let client = Client::to(&server);
        client.stream.set_nonblocking(true).expect("a socket");
        let mut stream = client.stream;
        // Until neither side's kernel takes more: the server has stopped reading.
        let request = "get key key key key key key key key\r\n".repeat(1000);
        let mut quiet = 0;
        while quiet < 20 {
            match stream.write(request.as_bytes()) {
                // Half a request does no harm: the next one begins in the middle of its line.
                Ok(1..) => quiet = 0,
                Ok(0) => panic!("a socket that takes nothing"),
                Err(_) => {
                    quiet += 1;
                    other.check("mn\r\n", "MN\r\n");
                }
            }
        }
        greedy.push(stream);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("20 readers that never read: {} KiB", grown >> 10);
    assert!(grown < 40 << 20, "{grown} bytes for 20 clients");
    other.check("get key\r\n", format!("VALUE key 0 10000\r\n{value}\r\nEND\r\n"));
    drop(greedy);
    other.check("mn\r\n", "MN\r\n");
}

fn ten_thousand_idle_connections() {
    // Both ends are in this process.
    let allowed = raise_descriptors(20_200);
    let count = 10_000.min((allowed - 200) / 2);
    let server = start(Settings { conn_limit: 20_000, threads: 2, ..settings() });
    let mut client = Client::to(&server);
    client.check("mn\r\n", "MN\r\n");
    let before = resident_bytes();
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(TcpStream::connect(address(&server)).expect("accepted"));
    }
    while client.stat("curr_connections") < count + 1 {}
    let grown = resident_bytes().saturating_sub(before);
    println!("{count} idle connections (descriptors allowed: {allowed}): {} bytes each", grown / count);
    assert!(grown / count < 1024, "{} bytes each", grown / count);
    for (number, stream) in idle.into_iter().enumerate().step_by(97) {
        let mut client = Client { stream };
        client.check(
            format!("set {number} 0 0 1\r\n1\r\nget {number}\r\n"),
            format!("STORED\r\nVALUE {number} 0 1\r\n1\r\nEND\r\n"),
        );
    }
    client.check("mn\r\n", "MN\r\n");
}
