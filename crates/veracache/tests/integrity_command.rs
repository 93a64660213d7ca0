//! `veracache integrity` as a user sees it, against the real server and against servers that answer anything.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veracache");

const PATIENCE: Duration = Duration::from_secs(60);

/// The keys and values of a server that has seen everything.
const STATS: &str = include_str!("../testdata/integrity_stats.txt");

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(line: &str) -> Said {
    let output = Command::new(PROGRAM)
        .arg("integrity")
        .args(line.split_whitespace())
        .output()
        .expect("the program was built for this test");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// What a server answers: to `stats integrity`, and to everything after it.
#[derive(Clone)]
struct Answers {
    first: Vec<u8>,
    then: &'static str,
}

impl Answers {
    fn of(stats: &str, then: &'static str) -> Self {
        let first: String = stats.lines().map(|line| format!("STAT {line}\r\n")).collect();
        Answers { first: format!("{first}END\r\n").into_bytes(), then }
    }

    fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Answers { first: bytes.into(), then: "ERROR\r\n" }
    }

    fn serve(&self, mut stream: impl Read + Write) {
        let mut is_first = true;
        let mut byte = [0];
        while let Ok(1) = stream.read(&mut byte) {
            if byte[0] != b'\n' {
                continue;
            }
            let answer = if is_first { self.first.as_slice() } else { self.then.as_bytes() };
            is_first = false;
            // Whoever asked may have heard enough; a server that says nothing hangs up.
            if answer.is_empty() || stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

/// A server that gives these answers to everybody, until the test is over.
fn start(answers: Answers) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            answers.serve(stream.expect("a connection"));
        }
    });
    address
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::yield_now();
    }
}

/// A path of our own, removed in the end.
struct Own(PathBuf);

impl Own {
    fn new(name: &str) -> Self {
        Own(std::env::temp_dir().join(format!("veracache-{name}-{}", std::process::id())))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A process, killed when the test fails before it ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(arguments: &[&str], ports: &Path) -> Process {
    let child = Command::new(PROGRAM)
        .arg("serve")
        .args(arguments)
        .env("MEMCACHED_PORT_FILENAME", ports)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built for this test");
    Process(child)
}

#[test]
fn the_real_server() {
    let ports = Own::new("integrity-ports");
    let _server = serve(&["-p", "-1", "-l", "127.0.0.1", "-t", "1", "--protect", "sei"], &ports.0);
    let mut port = None;
    wait("the port file", || {
        let text = fs::read_to_string(&ports.0).unwrap_or_default();
        port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse::<u16>().ok());
        port.is_some()
    });
    let address = format!("127.0.0.1:{}", port.unwrap_or(0));
    let page = run(&format!("--addr {address}"));
    assert_eq!((page.code, page.err.as_str()), (Some(0), ""));
    assert!(page.out.starts_with(&format!("{address}: no disagreements\n\nProtection\n")), "{}", page.out);
    assert!(!page.out.contains("\nOther\n"), "give new keys a section in integrity/page.rs: {}", page.out);
    let json = run(&format!("--addr {address} --json"));
    assert_eq!((json.code, json.err.as_str()), (Some(0), ""));
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["executions_per_command"], 2);
    assert_eq!(json["disagreements"], 0);
    assert_eq!(json["scrub_items_per_second"], 20_000);
    // Not one key more or less than the server has.
    let mut client = BufReader::new(TcpStream::connect(&address).expect("it listens"));
    client.get_mut().write_all(b"stats integrity\r\n").expect("it reads");
    let lines = client.lines().map(|line| line.expect("it answers")).take_while(|line| line != "END");
    let mut keys: Vec<String> = lines.map(|line| line.split(' ').nth(1).expect("a key").into()).collect();
    keys.sort();
    let mut shown: Vec<&String> = json.as_object().expect("an object").keys().collect();
    shown.retain(|key| *key != "recent");
    assert_eq!(shown, keys.iter().collect::<Vec<_>>());
}

#[test]
fn the_real_server_on_a_unix_socket() {
    let path = Own::new("integrity-socket");
    let ports = Own::new("integrity-no-ports");
    let _server = serve(&["-s", &path.0.display().to_string(), "-t", "1"], &ports.0);
    let line = format!("--addr {}", path.0.display());
    // The path is there before the server listens on it.
    wait("the server", || run(&line).code == Some(0));
    assert!(run(&line).out.starts_with(&format!("{}: no disagreements", path.0.display())));
}

#[test]
fn what_was_found_is_in_the_status() {
    for (stats, code) in [
        ("disagreements 0", 0),
        ("disagreements 0\nquarantined_cores none\nnews 1", 0),
        ("disagreements 1\nquarantined_cores none", 1),
        ("disagreements 0\nquarantined_cores 3", 1),
        (STATS, 1),
    ] {
        let address = start(Answers::of(stats, "END\r\n"));
        for flag in ["", "--json"] {
            let said = run(&format!("--addr {address} {flag}"));
            assert_eq!((said.code, said.err.as_str()), (Some(code), ""), "{flag} {stats}");
            assert!(said.out.lines().all(|line| line.len() <= 80 || flag == "--json"), "{}", said.out);
        }
    }
}

#[test]
fn the_last_disagreements() {
    let recent = |then| {
        let address = start(Answers::of("disagreements 2", then));
        let json: Value = serde_json::from_str(&run(&format!("--addr {address} --json")).out).expect("JSON");
        (
            json.get("recent").cloned(),
            run(&format!("--addr {address}")).out.contains("\nLast disagreements\n"),
        )
    };
    let told = "STAT 1 kind=reply seq=7\r\nSTAT 2 kind=lost key=a%20b\r\nEND\r\n";
    let expected = serde_json::json!([{"kind": "reply", "seq": 7}, {"kind": "lost", "key": "a%20b"}]);
    assert_eq!(recent(told), (Some(expected), true));
    for untold in ["ERROR\r\n", "RESET\r\n", "END\r\n", "CLIENT_ERROR no such group\r\n"] {
        assert_eq!(recent(untold), (None, false), "{untold}");
    }
}

/// One clear line, and the status of a service that is not there.
#[test]
fn servers_that_say_nothing() {
    let nothing = "this server does not say anything about integrity; is it veracache?";
    let too_much = "answers too much: a line over 65536 bytes, or 10000 lines";
    for (answers, text) in [
        (Answers::bytes("ERROR\r\n"), nothing),
        (Answers::bytes("RESET\r\n"), nothing),
        (Answers::bytes("END\r\n"), nothing),
        (Answers::bytes("HTTP/1.1 400 Bad Request\r\n\r\n"), "answers \"HTTP/1.1 400 Bad Request\""),
        (Answers::bytes("CLIENT_ERROR unauthenticated\r\n"), "answers \"CLIENT_ERROR unauthenticated\""),
        (Answers::bytes("\x1b[2J\r\n"), "answers \"\\x1b[2J\""),
        (Answers::bytes(""), "does not answer: it closed the connection"),
        (Answers::bytes("x".repeat(1 << 20)), too_much),
        (Answers::bytes("STAT a 1\r\n".repeat(10_001)), too_much),
    ] {
        let address = start(answers);
        for flags in ["", "--json", "--watch"] {
            let said = run(&format!("--addr {address} {flags}"));
            assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{text} {flags}");
            assert!(said.err.starts_with("veracache: "), "{}", said.err);
            assert!(said.err.contains(text), "{}", said.err);
            assert!(said.err.contains(&address.to_string()), "{}", said.err);
            assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        }
    }
}

#[test]
fn servers_that_are_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    for (flags, text) in [
        (
            format!("--addr {address}"),
            format!(
                "cannot reach {address}: Connection refused; is the server running? --addr names another"
            ),
        ),
        (
            "--addr /nonexistent/socket --watch".into(),
            "cannot reach /nonexistent/socket: No such file or directory; is the server running? --addr names \
             another"
                .into(),
        ),
    ] {
        let said = run(&flags);
        assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{}", said.err);
        assert_eq!(said.err, format!("veracache: {text}\n"));
    }
}

/// A server that is stuck, or that sends a byte now and then, does not keep anybody waiting for long.
#[test]
fn servers_that_take_their_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stuck = listener.local_addr().expect("bound");
    let slow_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let slow = slow_listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (mut stream, _) = slow_listener.accept().expect("a connection");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    for address in [stuck, slow] {
        let said = run(&format!("--addr {address}"));
        assert_eq!(said.code, Some(69));
        let text = "does not answer: nothing came in 3 seconds; is it a memcached port?\n";
        assert_eq!(said.err, format!("veracache: {address} {text}"));
    }
}

#[test]
fn mistakes() {
    for (line, text) in [
        ("-x", "integrity: there is no flag -x; integrity -h lists them"),
        ("--addr", "--addr takes HOST:PORT"),
        ("--watch 0", "--watch takes 0.1 to 86400 seconds, not \"0\""),
    ] {
        let said = run(line);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{line}");
        assert_eq!(said.err, format!("veracache: {text}\n"));
    }
    let help = run("--help");
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    assert!(help.out.contains("Usage: veracache integrity [FLAGS]"), "{}", help.out);
}

/// `--watch`, with its streams.
struct Watch {
    process: Process,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Watch {
    fn start(line: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["integrity", "--watch", "0.1"])
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let err = BufReader::new(child.stderr.take().expect("piped"));
        Watch { process: Process(child), out, err }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line
    }

    /// Its status after Ctrl-C.
    fn interrupt(&mut self) -> Option<i32> {
        let kill = format!("kill -INT {}", self.process.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        self.end()
    }

    fn end(&mut self) -> Option<i32> {
        self.process.0.wait().expect("our child").code()
    }
}

#[test]
fn watching_appends_until_ctrl_c() {
    let address = start(Answers::of(STATS, "ERROR\r\n"));
    let mut watch = Watch::start(&format!("--addr {address} --json"));
    for _ in 0..3 {
        let json: Value = serde_json::from_str(&watch.line()).expect("an object in each line");
        assert_eq!(json["disagreements"], 3);
    }
    assert_eq!(watch.interrupt(), Some(0));
    let mut watch = Watch::start(&format!("--addr {address}"));
    let head = watch.line();
    for _ in 0..2 {
        while watch.line() != head {}
    }
    assert_eq!(watch.interrupt(), Some(0));
}

#[test]
fn watching_ends_when_nobody_reads() {
    let address = start(Answers::of(STATS, "ERROR\r\n"));
    let mut watch = Watch::start(&format!("--addr {address} --json"));
    watch.line();
    let Watch { mut process, out, .. } = watch;
    drop(out);
    assert_eq!(process.0.wait().expect("our child").code(), Some(0));
}

/// A server that is started anew is watched again; that it was away is told once.
#[test]
fn watching_goes_on_when_the_server_comes_back() {
    let path = Own::new("integrity-restart");
    let answers = Answers::of("disagreements 0", "ERROR\r\n");
    let listener = UnixListener::bind(&path.0).expect("a path of our own");
    let mut watch = Watch::start(&format!("--addr {} --json", path.0.display()));
    answers.serve(listener.accept().expect("a connection").0);
    assert_eq!(watch.line(), "{\"disagreements\":0}\n");
    drop(listener);
    fs::remove_file(&path.0).expect("it is there");
    let mut told = String::new();
    watch.err.read_line(&mut told).expect("text");
    // It may have been connecting when the listener went.
    assert!(told.starts_with("veracache: "), "{told}");
    assert!(told.ends_with("; asking again\n"), "{told}");
    let listener = UnixListener::bind(&path.0).expect("a path of our own");
    answers.serve(listener.accept().expect("a connection").0);
    assert_eq!(watch.line(), "{\"disagreements\":0}\n");
    assert_eq!(watch.interrupt(), Some(0));
    let mut rest = String::new();
    watch.err.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "");
}
