//! The same bytes give the same answers however they are cut, and noreply gives none.

mod common;

use common::{Client, settings, show, start};
use server::Server;

/// Requests and their answers, independent of what was sent before.
const PIPELINES: &[(&str, &str)] = &[
    ("set a 1 0 3\r\nabc\r\nget a\r\n", "STORED\r\nVALUE a 1 3\r\nabc\r\nEND\r\n"),
    (
        "set a 0 0 0\r\n\r\nget a a\r\ndelete a\r\ndelete a\r\n",
        "STORED\r\nVALUE a 0 0\r\n\r\nVALUE a 0 0\r\n\r\nEND\r\nDELETED\r\nNOT_FOUND\r\n",
    ),
    ("ms m 2 T0 F5\r\nhi\r\nmg m v f s k Oq1\r\nmn\r\n", "HD\r\nVA 2 f5 s2 km Oq1\r\nhi\r\nMN\r\n"),
    ("set n 0 0 1\r\n9\r\nincr n 1\r\ndecr n 11\r\n", "STORED\r\n10\r\n0\r\n"),
    ("set a 0 0 3\r\nabcdefg\r\nversion\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION 1.6.45\r\n"),
    ("set a x 0 3\r\nabc\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"),
    ("mg miss v q\r\nmg miss v k\r\nmd miss q\r\nmn\r\n", "EN kmiss\r\nNF\r\nMN\r\n"),
    ("set e 0 -1 1\r\nx\r\nget e\r\ntouch e 5\r\n", "STORED\r\nEND\r\nNOT_FOUND\r\n"),
];

/// Requests that are executed without an answer, and how it shows.
const SILENT: &[(&str, &str)] = &[
    ("set a 0 0 1 noreply\r\n1\r\nget a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
    ("set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nget a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
    (
        "set a 0 0 1\r\n1\r\nappend a 0 0 1 noreply\r\n2\r\nget a\r\n",
        "STORED\r\nVALUE a 0 2\r\n12\r\nEND\r\n",
    ),
    (
        "set a 0 0 1\r\n1\r\nprepend a 0 0 1 noreply\r\n2\r\nget a\r\n",
        "STORED\r\nVALUE a 0 2\r\n21\r\nEND\r\n",
    ),
    (
        "set a 0 0 1\r\n1\r\nreplace a 0 0 1 noreply\r\n2\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n2\r\nEND\r\n",
    ),
    ("set a 0 0 1\r\n1\r\nincr a 1 noreply\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n2\r\nEND\r\n"),
    ("set a 0 0 1\r\n1\r\ndecr a 1 noreply\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n0\r\nEND\r\n"),
    ("set a 0 0 1\r\n1\r\ndelete a noreply\r\nget a\r\n", "STORED\r\nEND\r\n"),
    ("set a 0 0 1\r\n1\r\ntouch a -1 noreply\r\nget a\r\n", "STORED\r\nEND\r\n"),
    ("set a 0 0 1\r\n1\r\nflush_all noreply\r\nget a\r\n", "STORED\r\nEND\r\n"),
    ("verbosity 0 noreply\r\nmn\r\n", "MN\r\n"),
    ("ms a 1 q\r\n1\r\nmg a q v\r\nmd a q\r\nmg a q v\r\nmn\r\n", "VA 1\r\n1\r\nMN\r\n"),
    ("ma a q N0 J5\r\nma a q\r\nmg a v\r\n", "VA 1\r\n6\r\n"),
];

#[track_caller]
fn check_in_pieces(server: &Server, request: &str, pieces: &[&[u8]], expected: &str) {
    let mut client = Client::to(server);
    client.check("flush_all\r\n", "OK\r\n");
    for piece in pieces {
        client.send(piece);
        // The answer to a command without effect shows that the server has read the piece, but it must not be in
        // the middle of the pipeline: so the pieces of one connection are kept apart by asking on another.
        Client::to(server).check("mn\r\n", "MN\r\n");
    }
    client.finish();
    let found = client.rest();
    assert!(found == expected.as_bytes(), "{request:?} in {pieces:?} gave {:?}", show(&found));
}

#[test]
fn every_split_point() {
    let server = start(settings());
    for (request, expected) in PIPELINES {
        for at in 0..=request.len() {
            let (begin, end) = request.as_bytes().split_at(at);
            check_in_pieces(&server, request, &[begin, end], expected);
        }
    }
}

#[test]
fn byte_by_byte() {
    let server = start(settings());
    for (request, expected) in PIPELINES.iter().chain(SILENT) {
        let pieces: Vec<&[u8]> = request.as_bytes().chunks(1).collect();
        check_in_pieces(&server, request, &pieces, expected);
    }
}

#[test]
fn noreply() {
    let server = start(settings());
    for (request, expected) in SILENT {
        check_in_pieces(&server, request, &[request.as_bytes()], expected);
    }
}

/// More in one packet than is executed in one turn.
#[test]
fn long_pipelines() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let count = 20_000;
    let mut request = String::new();
    let mut expected = String::new();
    for number in 0..count {
        request += &format!("set key{number} 7 0 5\r\nv{:04}\r\nget key{number}\r\n", number % 10_000);
        expected += &format!("STORED\r\nVALUE key{number} 7 5\r\nv{:04}\r\nEND\r\n", number % 10_000);
    }
    let mut writer = client.stream.try_clone().expect("a second handle");
    let writing = std::thread::spawn(move || std::io::Write::write_all(&mut writer, request.as_bytes()));
    client.expect(&expected);
    writing.join().expect("no panic").expect("the server reads");
}

/// A multiget longer than any buffer, with an answer longer than any buffer.
#[test]
fn large_multigets() {
    let server = start(settings());
    let mut client = Client::to(&server);
    let value = "v".repeat(1000);
    let mut request = String::from("get");
    let mut expected = String::new();
    for number in 0..5000 {
        let key = format!("key{number:0>40}");
        if number % 2 == 0 {
            client.check(format!("set {key} 0 0 1000\r\n{value}\r\n"), "STORED\r\n");
            expected += &format!("VALUE {key} 0 1000\r\n{value}\r\n");
        }
        request += " ";
        request += &key;
    }
    request += "\r\n";
    expected += "END\r\n";
    assert!(request.len() > 200_000);
    client.check(&request, &expected);
    client.check("mn\r\n", "MN\r\n");
    assert_eq!(client.stat("cmd_get"), 5000);
    assert_eq!(client.stat("get_hits"), 2500);
    assert_eq!(client.stat("get_misses"), 2500);
}

/// `-R` makes long pipelines let others go first, and says so.
#[test]
fn requests_per_event() {
    let server = start(server::settings::Settings { requests_per_event: Some(1), ..settings() });
    let mut client = Client::to(&server);
    client.check("mn\r\n".repeat(6), "MN\r\n".repeat(6));
    assert!(client.stat("conn_yields") >= 5);
}
