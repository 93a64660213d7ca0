//! The line protocol on its own port, over the same items as the other protocols.

mod common;

use common::{Client, Sound, settings, start};
use server::settings::{Port, Settings};

fn server() -> (Sound, Client, Client) {
    let server = start(Settings { line_port: Port::Any, ..settings() });
    let (line, text) = (Client::at(server.line_addresses()[0]), Client::to(&server));
    (server, line, text)
}

#[test]
fn four_commands() {
    let (_server, mut line, mut text) = server();
    for (request, expected) in [
        ("GET a\n", "(nil)\n"),
        ("SET a hello big world\n", "OK\n"),
        ("GET a\r\n", "hello big world\n"),
        ("DEL a\n", "1\n"),
        ("DEL a\n", "0\n"),
        ("SET\n", "MISSING_KEY\n"),
        ("SET a\n", "MISSING_ARG\n"),
        ("GET\n", "MISSING_KEY\n"),
        ("DEL\n", "MISSING_KEY\n"),
        ("set a 1\n", "INVALID_COMMAND\n"),
        ("\n", "INVALID_COMMAND\n"),
        ("PING\n", "INVALID_COMMAND\n"),
        ("GETALL\n", "{}\n"),
        ("SET a 1\nSET b 2\nGET a\nGET b\n", "OK\nOK\n1\n2\n"),
    ] {
        line.check(request, expected);
    }
    text.check("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    text.check("set c 0 0 4\r\n\"x\\y\r\n", "STORED\r\n");
    line.check("GET c\n", "\"x\\y\n");
}

#[test]
fn everything_as_one_object() {
    let (_server, mut line, mut other) = server();
    let count = 20_000;
    for number in 0..count {
        other.send(format!("set key{number} 0 0 9 noreply\r\n\"v{number:06}\"\r\n"));
    }
    other.check("mn\r\n", "MN\r\n");
    line.send("GETALL\n");
    for _ in 0..50 {
        other.check("mn\r\n", "MN\r\n");
    }
    let text = line.line();
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(object.len(), count);
    for (key, value) in object {
        let number: u32 = key.strip_prefix("key").and_then(|rest| rest.parse().ok()).expect("one of ours");
        assert_eq!(value, format!("\"v{number:06}\""));
    }
    line.check("GET key1\n", "\"v000001\"\n");
}

#[test]
fn long_values() {
    let (_server, mut line, _text) = server();
    for size in [1, 5000, 70_000, 1_000_000] {
        let value = "v".repeat(size);
        let request = format!("SET k {value}\n");
        for piece in request.as_bytes().chunks(40_000) {
            line.send(piece);
        }
        line.expect("OK\n");
        line.check("GET k\n", format!("{value}\n"));
    }
    line.check(format!("SET k {}\n", "v".repeat((1 << 20) - 10)), "TOO_LARGE\n");
    line.check("GET k\n", "(nil)\n");
}
