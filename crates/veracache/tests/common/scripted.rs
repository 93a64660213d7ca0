//! A server that answers each line as a script says: too little, too much, something else, or not at all; a port
//! where nobody listens; and a look at what a command left behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// What is done about one line.
#[derive(Clone, Debug)]
pub struct Answer {
    bytes: String,
    /// Lines behind this one that belong to it: a value.
    skipped: usize,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    GoOn,
    Close,
    End,
}

#[allow(dead_code, reason = "not every test needs every kind")]
impl Answer {
    /// Answers, and waits for the next line.
    pub fn more(bytes: &str) -> Self {
        Answer { bytes: bytes.to_string(), skipped: 0, then: Then::GoOn }
    }

    /// Answers a line that has a value behind it.
    pub fn skip_line(bytes: &str) -> Self {
        Answer { skipped: 1, ..Answer::more(bytes) }
    }

    /// Answers and closes the connection.
    pub fn last(bytes: &str) -> Self {
        Answer { then: Then::Close, ..Answer::more(bytes) }
    }

    /// Closes the connection and every later one.
    pub fn end() -> Self {
        Answer { then: Then::End, ..Answer::more("") }
    }
}

/// A listening server; its threads end with the test's process.
pub struct Scripted {
    address: String,
}

#[allow(dead_code, reason = "not every test needs all of it")]
impl Scripted {
    /// The script sees a line, without its end, and how many came before it on all connections.
    pub fn start(script: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let script = Arc::new(script);
        let (number, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, number, is_over) =
                    (Arc::clone(&script), Arc::clone(&number), Arc::clone(&is_over));
                let stream = stream.expect("accepted");
                if is_over.load(SeqCst) {
                    // Whoever comes from now on is closed at once. The port stays ours, so nobody else answers there.
                    continue;
                }
                thread::spawn(move || serve(&stream, &*script, &number, &is_over));
            }
        });
        Scripted { address }
    }

    /// HOST:PORT
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// A port where nobody listens and nobody else can: it is the near end of a connection.
pub struct ClosedPort {
    _listener: TcpListener,
    stream: TcpStream,
}

#[allow(dead_code, reason = "not every test needs it")]
impl ClosedPort {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        ClosedPort { _listener: listener, stream }
    }

    /// HOST:PORT
    pub fn address(&self) -> String {
        self.stream.local_addr().expect("connected").to_string()
    }
}

/// The processes that have this folder in their environment, as those have that were started with it as `TMPDIR`.
#[allow(dead_code, reason = "not every test needs it")]
pub fn left_behind(folder: &Path) -> Vec<String> {
    let needle = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").expect("every Linux has it").flatten();
    let holds = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.windows(needle.len()).any(|window| window == needle)
    };
    processes
        .map(|entry| entry.path())
        .filter(|path| holds(path))
        .map(|path| path.display().to_string())
        .collect()
}

fn serve(stream: &TcpStream, script: &dyn Fn(&str, u64) -> Answer, number: &AtomicU64, is_over: &AtomicBool) {
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let line = String::from_utf8_lossy(&line).trim_end().to_string();
        let answer = script(&line, number.fetch_add(1, SeqCst));
        for _ in 0..answer.skipped {
            let _ = lines.next();
        }
        let mut out = stream;
        let written = out.write_all(answer.bytes.as_bytes());
        if answer.then == Then::End {
            is_over.store(true, SeqCst);
        }
        if written.is_err() || answer.then != Then::GoOn {
            return;
        }
    }
}
