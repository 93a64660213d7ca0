//! What a real memcached answered, replayed: every transcript in `testdata/transcripts`, byte for byte.

mod common;

use std::path::{Path, PathBuf};

use common::{Client, settings, show, start};
use serde::Deserialize;

/// One line of a transcript file; `testdata/README.md` describes it. Other members are notes for people.
#[derive(Deserialize)]
struct Transcript {
    send: String,
    reply: String,
    closed: bool,
}

/// Each byte stands as the character of the same number.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).expect("a latin-1 character")).collect()
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/transcripts");
    let entries = std::fs::read_dir(&directory).expect("testdata/transcripts is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

/// Plays one transcript against a fresh server; the difference, if there is one.
fn play(transcript: &Transcript) -> Option<String> {
    let server = start(settings());
    let mut client = Client::to(&server);
    let expected = bytes(&transcript.reply);
    let request = bytes(&transcript.send);
    client.send(&request);
    let found = if transcript.closed {
        client.rest()
    } else {
        // Half-closing the connection makes the server answer what it can and close it: nothing has to be timed.
        client.finish();
        client.rest()
    };
    (found != expected).then(|| {
        format!("{:?}\n  expected {:?}\n  found    {:?}", show(&request), show(&expected), show(&found))
    })
}

#[test]
fn every_transcript() {
    let mut played = 0;
    let mut differences = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).expect("readable");
        for (number, line) in text.lines().enumerate() {
            let transcript: Transcript = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}:{}: {error}", file.display(), number + 1));
            played += 1;
            if let Some(difference) = play(&transcript) {
                differences.push(format!("{}:{}: {difference}", file.display(), number + 1));
            }
        }
    }
    println!("{played} transcripts");
    assert!(played >= 170, "only {played} transcripts were found");
    assert!(differences.is_empty(), "{} of {played} differ:\n{}", differences.len(), differences.join("\n"));
}

/// A connection that memcached keeps open stays open.
#[test]
fn errors_do_not_close_the_connection() {
    let server = start(settings());
    let mut client = Client::to(&server);
    for request in ["get\r\n", "set k 0 0 -1\r\n", "bogus\r\n", "mg k !\r\n", "\r\n", "incr k abc\r\n"] {
        client.send(request);
        let line = client.line();
        assert!(line.starts_with("CLIENT_ERROR") || line == "ERROR", "{request:?} gave {line:?}");
        client.check("mn\r\n", "MN\r\n");
    }
    assert!(!client.is_closed());
}
