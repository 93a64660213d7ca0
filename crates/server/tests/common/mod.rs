//! What the wire tests share: a server in this process, a client that reads exactly, random numbers with a seed.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use server::settings::{Listen, Port, Protect, Settings, Share};
use server::{ExitReason, Findings, Server};

/// How long a test waits for bytes that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Settings for a server at any free port of the loopback interface.
pub fn settings() -> Settings {
    let (protect, protect_sync) = protect();
    let local = Listen { host: Some("127.0.0.1".into()), port: None, binding: None, tag: None };
    Settings {
        tcp_port: Port::Any,
        listen: vec![local],
        threads: 1,
        protect,
        protect_sync,
        validate_share: Share::Fixed(1.0),
        ..Settings::default()
    }
}

/// The mode that all of these tests run in: that of `VERACACHE_PROTECT`, vanilla without; and whether replies wait.
fn protect() -> (Protect, bool) {
    match std::env::var("VERACACHE_PROTECT").as_deref() {
        Err(_) | Ok("vanilla") => (Protect::Vanilla, false),
        Ok("sei") => (Protect::Sei, false),
        Ok("orthrus") => (Protect::Orthrus, false),
        Ok("orthrus-sync") => (Protect::Orthrus, true),
        Ok("rbv") => (Protect::Rbv, false),
        Ok("rbv-sync") => (Protect::Rbv, true),
        Ok(other) => panic!("VERACACHE_PROTECT is a mode, with -sync or without, not {other}"),
    }
}

/// The address of a replica in this process, for one server.
fn replica() -> String {
    let listening = server::replica::Listening::at("127.0.0.1:0", None).expect("a free port");
    let address = listening.address().expect("it listens").to_string();
    std::thread::spawn(|| listening.serve());
    address
}

/// A server in whose executions nothing may disagree.
pub struct Sound(Option<Server>);

impl std::ops::Deref for Sound {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().expect("it is taken only in the end")
    }
}

impl Sound {
    /// Stops it.
    pub fn stop(mut self) -> ExitReason {
        let server = self.0.take().expect("it is taken only in the end");
        let findings = server.findings();
        let reason = server.stop();
        check(&findings);
        reason
    }
}

impl Drop for Sound {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            let findings = server.findings();
            drop(server);
            if !std::thread::panicking() {
                check(&findings);
            }
        }
    }
}

fn check(findings: &Findings) {
    assert_eq!(findings.disagreements(), 0, "a healthy core was found sick");
    let (executed, validated) = findings.validated();
    assert!(validated <= executed);
    // A server that lived for a moment may have shed all before its replica was there.
    let may_have_shed = protect() == (Protect::Rbv, false);
    assert!(executed == 0 || validated > 0 || may_have_shed, "nothing of {executed} commands was validated");
}

/// Starts a server.
pub fn start(mut settings: Settings) -> Sound {
    if settings.protect == Protect::Rbv && settings.replica.is_none() {
        settings.replica = Some(replica());
    }
    Sound(Some(Server::start(settings).expect("the server starts")))
}

/// The address of memcached's protocols.
pub fn address(server: &Server) -> SocketAddr {
    server.addresses()[0]
}

/// A client.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn to(server: &Server) -> Self {
        Self::at(address(server))
    }

    pub fn at(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads this many bytes.
    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let mut have = 0;
        while have < count {
            match self.stream.read(&mut bytes[have..]) {
                Ok(0) => panic!("closed after {:?}", show(&bytes[..have])),
                Ok(more) => have += more,
                Err(error) => panic!("{error} after {:?}", show(&bytes[..have])),
            }
        }
        bytes
    }

    /// Reads as many bytes as are expected and compares.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let found = self.read(expected.len());
        assert!(found == expected, "expected {:?}, found {:?}", show(expected), show(&found));
    }

    /// Sends a request and compares its answer.
    #[track_caller]
    pub fn check(&mut self, request: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(expected);
    }

    /// Reads one line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            let byte = self.read(1)[0];
            if byte == b'\n' {
                let text = line.strip_suffix(b"\r").unwrap_or(&line);
                return String::from_utf8_lossy(text).into_owned();
            }
            line.push(byte);
        }
    }

    /// Reads until the server closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {:?}", show(&bytes)),
        }
        bytes
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket");
    }

    /// Whether the server has closed the connection already.
    pub fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let closed = matches!(self.stream.peek(&mut [0]), Ok(0));
        self.stream.set_nonblocking(false).expect("a socket");
        closed
    }

    /// One number of `stats`.
    pub fn stat(&mut self, key: &str) -> u64 {
        self.send("stats\r\n");
        let mut found = None;
        loop {
            let line = self.line();
            if line == "END" {
                return found.unwrap_or_else(|| panic!("stats has {key}"));
            }
            let mut words = line.split(' ');
            if words.nth(1) == Some(key) {
                found = words.next().and_then(|word| word.parse().ok());
            }
        }
    }
}

/// Bytes as text for messages, shortened.
pub fn show(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(400)];
    let more = if shown.len() < bytes.len() { format!(" … {} bytes", bytes.len()) } else { String::new() };
    format!("{}{more}", shown.escape_ascii())
}

/// Random numbers (splitmix64) from a seed that is printed and can be given.
pub struct Random(u64);

impl Random {
    /// Takes the seed from `VERACACHE_SEED`, or a fixed one. Prints it, for the case of a failure.
    pub fn new() -> Self {
        let seed = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        println!("VERACACHE_SEED={seed}");
        Random(seed)
    }

    /// With a seed that comes from another one.
    pub fn from(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}
