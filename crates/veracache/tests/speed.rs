//! `veracache speed` as a user meets it: tiny runs on a server of its own, and servers that answer wrongly, stop or lie.

#[path = "common/scripted.rs"]
mod scripted;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use scripted::{Answer, ClosedPort, Scripted, left_behind};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veracache");

fn speed(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("speed").args(arguments).stdin(Stdio::null()).output().expect("it was built")
}

/// What it wrote, after a look at its exit code.
fn check(arguments: &[&str], code: i32) -> (String, String) {
    let output = speed(arguments);
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
    (out, err)
}

/// Numbers and units replaced, so that a layout can be compared.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive([' ', '\n', '(']) {
        let bare = word.trim_end_matches([' ', '\n', '(', ',', ')']);
        let is_number = bare.starts_with(|first: char| first.is_ascii_digit());
        out.push_str(&if is_number { word.replacen(bare, "#", 1) } else { word.to_string() });
    }
    // How wide a number is decides how many blanks stand before it.
    out.split('\n').map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn classic_layout_and_nothing_else() {
    let (out, err) = check(&["-count", "50", "-concurrency=2", "--classic"], 0);
    let phases = ["Get (miss)", "Set", "Get (hit)", "Delete (found)", "Delete (miss)", "Increment"];
    let mut expected =
        "Memcache Speed Test\n===================\nServer: #\nConcurrency: #\nTarget: # operations\n\n"
            .to_string();
    for phase in phases {
        expected += &format!("Running: {phase} with # operations...\n");
        expected += "Completed: # ops in # (# ops/sec, # avg latency)\n\n";
    }
    expected += "\nSummary\n=======\nOperation Count Duration Ops/sec Avg Latency\n";
    expected += "───────── ───── ──────── ─────── ───────────\n";
    for phase in phases {
        expected += &format!("{phase} # # # #\n");
    }
    assert_eq!(without_numbers(&out), expected + "\n", "{out}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("No --addr: measuring a server of our own on 127.0.0.1:"), "{err}");
}

#[test]
fn every_preset_and_protocol_finds_what_it_must() {
    let folder = tempfile();
    let file = folder.join("results.jsonl");
    let cases =
        [("speed", "meta", 6), ("speed", "text", 6), ("cmd-bench", "meta", 10), ("cmd-bench", "text", 10)];
    for (preset, protocol, phases) in cases {
        let output = file.to_str().expect("UTF-8");
        let arguments = ["--preset", preset, "--protocol", protocol, "--count", "31", "--concurrency", "3"];
        let more = ["--format", "json", "--seed", "7", "--output", output];
        let (out, _) = check(&[&arguments[..], &more].concat(), 0);
        let record: Value = serde_json::from_str(&out).expect("one object");
        assert_eq!(record["kind"], "speed");
        assert_eq!(record["incomplete"], Value::Null);
        assert!(
            record["gates"].as_array().expect("gates").iter().all(|gate| gate["is_met"] == true),
            "{out}"
        );
        let found = record["results"]["phases"].as_array().expect("phases");
        assert_eq!(found.len(), phases);
        for phase in found {
            // What does not divide by the workers is dropped.
            assert_eq!(phase["count"], 30, "{phase}");
            let (mean, max) = (&phase["latency_ns"]["mean"], &phase["latency_ns"]["max"]);
            assert!(mean.as_f64().expect("a number") > 0.0 && mean.as_f64() <= max.as_f64(), "{phase}");
        }
        let kept = fs::read_to_string(&file).expect("the record");
        assert!(kept.ends_with(&out), "the same line is kept");
    }
    assert_eq!(fs::read_to_string(&file).expect("records").lines().count(), cases.len());
    fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn tables_for_documents_and_programs() {
    let (out, _) = check(&["--count", "20", "--format", "md"], 0);
    assert_eq!(out.lines().filter(|line| line.starts_with("| ")).count(), 8, "{out}");
    let (out, _) = check(&["--count", "20", "--format", "csv"], 0);
    let rows: Vec<usize> = out.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(rows, [15; 7], "{out}");
}

#[test]
fn impossible_wishes() {
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--addr", "here"], 2, "HOST:PORT"),
        (&["--count", "3", "--concurrency", "4"], 2, "without work"),
        (&["--concurrency", "0"], 2, "1..=1024"),
        (&["--count", "many"], 2, "many"),
        (&["--classic", "--format", "json"], 2, "--classic"),
        (&["--preset", "other"], 2, "other"),
        (&["-bogus"], 2, "--bogus"),
        (&["--output", "/there/is/no/such/file"], 74, "/there/is/no/such/file"),
    ];
    for (arguments, code, part) in cases {
        let (out, err) = check(arguments, code);
        assert!(out.is_empty() && err.contains(part), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_the_table_is_shown_still() {
    let (out, err) = check(&["--count", "10", "--output", "/dev/full"], 74);
    assert!(out.contains("Latency of single operations"), "{out}");
    assert!(err.contains("veracache: /dev/full: the result can't be kept: No space left"), "{err}");
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let child =
        Command::new(PROGRAM).args(["speed", "--count", "10"]).stdout(full).output().expect("it was built");
    let err = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(74), "{err}");
    assert!(err.contains("veracache: standard output: No space left"), "{err}");
}

#[test]
fn nobody_there() {
    let port = ClosedPort::new();
    let address = port.address();
    let (out, err) = check(&["--addr", &address], 69);
    assert!(out.is_empty() && err.lines().count() == 1, "{out}{err}");
    assert!(err.contains(&format!("veracache: {address} can't be reached (Connection refused")), "{err}");
}

#[test]
fn another_protocol_on_the_port() {
    let server =
        Scripted::start(|_, _| Answer::last("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
    let (out, err) = check(&["--addr", server.address()], 1);
    assert!(out.is_empty() && err.lines().count() == 1, "{out}{err}");
    assert!(err.contains("does not answer as a server of memcached: \"HTTP/1.1 400 Bad Request\""), "{err}");
}

/// Answers a speed test as a server would, for the commands that a case does not care for.
fn good(line: &str) -> Answer {
    let answer = match line.split(' ').next().unwrap_or_default() {
        "version" => "VERSION 1.6\r\n",
        "mn" => "MN\r\n",
        "mg" => "EN\r\n",
        "ms" => return Answer::skip_line("HD\r\n"),
        "md" => "NF\r\n",
        "ma" => "VA 1\r\n1\r\n",
        _ => "ERROR\r\n",
    };
    Answer::more(answer)
}

#[test]
fn flaws_are_counted_and_shown() {
    type Script = fn(&str, u64) -> Answer;
    // Each has its script, the exit code, what stands in the table, and what is said at the end.
    let cases: [(Script, i32, &str, &str); 6] = [
        // What is missing may have been evicted, which no cache is to be blamed for.
        (|line, _| good(line), 0, "Get (hit): 8 found or missing where they must not be", ""),
        (
            |line, _| if line.starts_with("ma") { Answer::more("VA 1\r\n7\r\n") } else { good(line) },
            1,
            "Increment: 7 wrong values; first: a counter went from 7 to 7",
            "Increment: 7 wrong values",
        ),
        (
            |line, _| {
                if line.starts_with("ms") {
                    Answer::skip_line("SERVER_ERROR out of memory\r\n")
                } else {
                    good(line)
                }
            },
            1,
            "Set: 8 errors; first: SERVER_ERROR out of memory",
            "Set: 8 errors",
        ),
        (
            |line, _| if line.starts_with("mg") { Answer::more("VA 5\r\nwrong\r\n") } else { good(line) },
            1,
            "Get (miss): 8 wrong values; first: the value \"wrong\"",
            "Get (hit): 8 wrong values",
        ),
        (
            |line, _| {
                if line.starts_with("mg") { Answer::last("VA 26\r\nbenchmark-val") } else { good(line) }
            },
            69,
            "Get (miss): 3 errors; first: the connection ended: closed within an answer",
            "went away (closed within an answer)",
        ),
        (
            |line, _| {
                if line.starts_with("mg") { Answer::last("220 mail.example ESMTP\r\n") } else { good(line) }
            },
            1,
            "Get (miss): 3 errors; first: no answer of this protocol: \"220 mail.example ESMTP\"",
            "does not answer as a server of memcached",
        ),
    ];
    for (script, code, shown, said) in cases {
        let server = Scripted::start(script);
        let (out, err) = check(&["--addr", server.address(), "--count", "8"], code);
        assert!(out.contains(shown) && err.contains(said), "{shown}: {out}{err}");
        assert_eq!(err.lines().count(), usize::from(code != 0), "{err}");
    }
}

#[test]
fn a_server_that_goes_away_leaves_what_was_measured() {
    let folder = tempfile();
    let file = folder.join("results.jsonl");
    let server = Scripted::start(|line, number| if number < 30 { good(line) } else { Answer::end() });
    let output = file.to_str().expect("UTF-8");
    let (out, err) = check(&["--addr", server.address(), "--count", "20", "--output", output], 69);
    assert!(out.contains("\nGet (miss)  ") && out.contains("\nSet  "), "{out}");
    assert!(!out.contains("\nGet (hit)  ") && out.contains("\nIncomplete: "), "{out}");
    assert!(err.contains("went away"), "{err}");
    let record: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("it is kept")).expect("one line");
    assert!(record["incomplete"].is_string());
    let counts = record["results"]["phases"].as_array().expect("phases").iter().map(|phase| &phase["count"]);
    let counts: Vec<u64> = counts.map(|count| count.as_u64().expect("a count")).collect();
    assert!(counts.len() == 2 && counts[0] == 20 && counts[1] < 20, "{counts:?}");
    fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn an_interrupted_run_is_kept_and_leaves_no_server() {
    let folder = tempfile();
    let file = folder.join("results.jsonl");
    let mut child = Command::new(PROGRAM)
        .args(["speed", "--count", "1000000000", "--output"])
        .arg(&file)
        .env("TMPDIR", &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a pipe");
    assert!(!left_behind(&folder).is_empty(), "a server runs now: {line}");
    let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
    while !output.next().expect("it runs").expect("UTF-8").starts_with("Running: ") {}
    // The phase has begun, but whether the first answer was seen can't be known from here: both are fine.
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let rest: Vec<String> = output.map(|line| line.expect("UTF-8")).collect();
    assert_eq!(child.wait().expect("ours").code(), Some(130));
    assert!(rest.contains(&"Incomplete: interrupted".to_string()), "{rest:?}");
    let mut said = String::new();
    errors.read_to_string(&mut said).expect("a pipe");
    assert_eq!(said, "veracache: interrupted\n");
    let record: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("it is kept")).expect("one line");
    assert_eq!(record["incomplete"], "interrupted");
    assert_eq!(left_behind(&folder), [""; 0]);
    fs::remove_dir_all(folder).expect("ours");
}

/// A folder of our own; the test's name keeps those of several apart.
fn tempfile() -> std::path::PathBuf {
    let name = std::thread::current().name().unwrap_or("test").to_string();
    let folder = std::env::temp_dir().join(format!("veracache-speed-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    folder
}
