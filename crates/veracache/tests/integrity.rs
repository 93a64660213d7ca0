//! A bit of a stored value flips in the memory of a running server. It is found and the value forgotten; without the
//! flip nothing is found, and without the scrubber the damaged value is served.

#[path = "common/memory.rs"]
mod memory;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use memory::flip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veracache");

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Found nowhere else in the arena of a server that holds it.
const VALUE: &[u8] = b"<one bit of this value is going to flip in memory>";

/// Which, counted from the lowest of the first byte.
const BIT: usize = 203;

/// A directory of our own, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("veracache-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory of our own");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server process, killed when the test fails before it is stopped.
struct Server {
    process: Child,
    directory: Directory,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(name: &str, scrub: &str, protect: &[&str]) -> Self {
        let directory = Directory::new(name);
        let log = File::create(directory.0.join("log")).expect("a file of our own");
        let process = Command::new(PROGRAM)
            .args(["serve", "-A", "-p", "-1", "-l", "127.0.0.1", "-t", "1", "--scrub", scrub])
            .args(protect)
            .env("MEMCACHED_PORT_FILENAME", directory.0.join("ports"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program was built for this test");
        Server { process, directory }
    }

    fn client(&self) -> Client {
        let ports = self.directory.0.join("ports");
        let mut port = None;
        wait("the port file", || {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok());
            port.is_some()
        });
        let stream = TcpStream::connect(("127.0.0.1", port.unwrap_or(0))).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client(BufReader::new(stream))
    }

    /// Stops it; what it wrote to standard error about damage.
    fn stop(mut self, mut client: Client) -> Vec<String> {
        client.send(b"shutdown\r\n");
        wait("the end of the server", || self.process.try_wait().expect("our child").is_some());
        let log = fs::read_to_string(self.directory.0.join("log")).expect("it is there");
        log.lines().filter(|line| line.contains("integrity")).map(str::to_owned).collect()
    }
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::yield_now();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, request: &[u8]) {
        self.0.get_mut().write_all(request).expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        self.send(&[format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat());
        assert_eq!(self.line(), "STORED");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.send(format!("get {key}\r\n").as_bytes());
        let head = self.line();
        if head == "END" {
            return None;
        }
        let bytes = head.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a length");
        let mut value = vec![0; bytes];
        self.0.read_exact(&mut value).expect("the server answers");
        assert_eq!((self.line(), self.line()), (String::new(), "END".into()));
        Some(value)
    }

    /// A number of a group of statistics.
    fn stat(&mut self, group: &str, key: &str) -> u64 {
        self.send(format!("stats {group}\r\n").as_bytes());
        let mut found = None;
        loop {
            let line = self.line();
            if line == "END" {
                return found.unwrap_or_else(|| panic!("stats {group} has {key}"));
            }
            let words: Vec<&str> = line.split(' ').collect();
            if words[1] == key {
                found = words[2].parse().ok();
            }
        }
    }
}

/// What `get` finds after a pass.
#[derive(Debug, PartialEq)]
enum Found {
    Stored,
    Damaged,
    Nothing,
}

/// A server with this `--scrub`, a flip or none: what is read then, and how many items were found damaged.
fn check(name: &str, scrub: &str, is_flipped: bool, found: Found, damaged: u64) {
    // Executed once: else the read would be noticed, too.
    let server = Server::start(name, scrub, &["--protect", "vanilla"]);
    let mut client = server.client();
    client.set("before", b"something else");
    client.set("key/1", VALUE);
    client.set("after", b"something else");
    assert_eq!(client.get("key/1").as_deref(), Some(VALUE));
    if is_flipped {
        flip(server.process.id(), VALUE, BIT);
    }
    let passes = client.stat("integrity", "scrub_passes");
    let rounds = client.stat("", "lru_maintainer_juggles");
    // The second pass to end from here began after the flip. With the scrubber off the janitor has its rounds too.
    wait("a pass", || match scrub {
        "0" => client.stat("", "lru_maintainer_juggles") >= rounds + 3,
        _ => client.stat("integrity", "scrub_passes") >= passes + 2,
    });
    let mut flipped = VALUE.to_vec();
    flipped[BIT / 8] ^= 1 << (BIT % 8);
    let read = match client.get("key/1") {
        None => Found::Nothing,
        Some(value) if value == VALUE => Found::Stored,
        Some(value) if value == flipped => Found::Damaged,
        Some(value) => panic!("{name}: {}", value.escape_ascii()),
    };
    assert_eq!(read, found, "{name}");
    for key in ["before", "after"] {
        assert_eq!(client.get(key).as_deref(), Some(&b"something else"[..]), "{name}: {key}");
    }
    for key in ["scrub_damaged", "crc_mismatches"] {
        assert_eq!(client.stat("integrity", key), damaged, "{name}: {key}");
    }
    assert_eq!(client.stat("", "curr_items"), 3 - damaged, "{name}");
    let begin = format!(
        "veracache: integrity: item damaged in memory: key=key%2F1 part=content bit={BIT} value_bytes={} core=",
        VALUE.len()
    );
    let told = server.stop(client);
    assert_eq!(told.len(), damaged as usize, "{name}: {told:?}");
    for line in told {
        // Whatever CPU the item was written on.
        let end = line.strip_prefix(&begin).unwrap_or_else(|| panic!("{name}: {line}"));
        assert_eq!(
            end.trim_start_matches(|c: char| c.is_ascii_digit()),
            " with_it=0; forgotten",
            "{name}: {line}"
        );
    }
}

/// Without the scrubber, a read of a damaged item is noticed by whoever repeats it: that one may still have seen the
/// damage, the next finds nothing. Where replies wait, nobody sees it.
#[test]
fn a_damaged_item_that_is_read_is_forgotten() {
    for (name, flags) in [("read", &["--protect", "orthrus"][..]), ("waits", &["--protect-sync"])] {
        let flags = [flags, &["--validate-share", "1"]].concat();
        let server = Server::start(name, "0", &flags);
        let mut client = server.client();
        client.set("key/1", VALUE);
        assert_eq!(client.get("key/1").as_deref(), Some(VALUE));
        assert_eq!(client.stat("integrity", "disagreements"), 0, "{name}");
        flip(server.process.id(), VALUE, BIT);
        let seen = client.get("key/1");
        assert_eq!(seen.is_some(), name == "read", "{name}");
        wait("the disagreement", || client.stat("integrity", "disagreements:checksum") == 1);
        wait("what is done about it", || client.stat("integrity", "contained") == 1);
        assert_eq!(client.get("key/1"), None, "{name}");
        assert_eq!(client.stat("integrity", "verdicts:memory"), 1, "{name}");
        let told = server.stop(client);
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        assert!(told[0].contains("kind=checksum stratum=classic-fetch key=key%2F1"), "{name}: {told:?}");
        assert!(told[0].contains("verdict=memory"), "{name}: {told:?}");
    }
}

#[test]
fn a_flipped_bit_is_found() {
    check("flipped", "1000000", true, Found::Nothing, 1);
}

#[test]
fn a_flipped_bit_is_found_at_the_default_rate() {
    check("flipped-default", "20000", true, Found::Nothing, 1);
}

#[test]
fn without_a_flip_there_is_silence() {
    check("sound", "1000000", false, Found::Stored, 0);
}

/// The flip hits what is served, and it is the scrubber that finds it.
#[test]
fn without_the_scrubber_the_damaged_value_is_served() {
    check("alone", "0", true, Found::Damaged, 0);
}
