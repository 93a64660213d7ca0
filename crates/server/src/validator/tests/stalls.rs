//! Validators that stand still: workers go on, memory stays within its limit, what was not validated is counted, and in the
//! end everything is as it was. Whose replies wait gets them later, and nothing unconfirmed before.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use guard::Stratum;

use super::bench::{Mode, Random, seed, settings};
use crate::Server;
use crate::settings::{Listen, Port, Settings};
use crate::shared::Shared;
use crate::strata::STRATA;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing is to come when nothing may.
const SILENCE: Duration = Duration::from_millis(200);

/// A server whose validators can be stopped.
struct Setup {
    server: Server,
}

/// What became of executions so far.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    executed: u64,
    recorded: u64,
    validated: u64,
    abandoned: u64,
    dropped: u64,
    repeated: u64,
}

impl Setup {
    fn new(settings: Settings) -> Self {
        let local = Listen { host: Some("127.0.0.1".into()), port: None, binding: None, tag: None };
        let settings = Settings { tcp_port: Port::Any, listen: vec![local], ..settings };
        Setup { server: Server::start(settings).expect("the server starts") }
    }

    fn shared(&self) -> &Arc<Shared> {
        self.server.shared()
    }

    fn pause(&self, is_paused: bool) {
        self.shared().validators_paused.store(is_paused, Relaxed);
        for validation in &self.shared().validations {
            validation.bell.ring(true);
        }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.server.addresses()[0]).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream, expected: VecDeque::new(), unread: Vec::new(), unconfirmed: 0, no_memory: 0 }
    }

    fn account(&self) -> Account {
        let shared = self.shared();
        let mut account = Account::default();
        for (coverage, validation) in shared.coverages.iter().zip(&shared.validations) {
            account.dropped += coverage.dropped.read();
            account.repeated += coverage.repeated.read();
            for (at, coverage) in coverage.strata.iter().enumerate().take(STRATA) {
                let counted = validation.tally.counted(Stratum(at as u8));
                account.executed += coverage.executed.read();
                account.recorded += coverage.recorded.read();
                account.validated += counted.validated;
                account.abandoned += counted.abandoned;
            }
        }
        account
    }

    /// Waits until all that was recorded is settled, and nothing was found wrong.
    fn settle(&self) -> Account {
        let began = Instant::now();
        loop {
            let account = self.account();
            let waiting: u64 =
                self.shared().validations.iter().map(|it| it.waiting_lines.load(Relaxed)).sum();
            if account.validated + account.abandoned == account.recorded && waiting == 0 {
                self.check_memory();
                assert_eq!(self.server.findings().disagreements(), 0);
                return account;
            }
            assert!(began.elapsed() < PATIENCE, "{account:?}, {waiting} lines wait");
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn check_memory(&self) {
        let stats = self.shared().store.stats();
        // What connections hold is counted when it is there already; the items that give way to it go after that.
        assert!(stats.memory_used <= stats.memory_limit + 4 * stats.segment_bytes, "{stats:?}");
    }
}

/// A client that knows what it asked for.
struct Client {
    stream: TcpStream,
    expected: VecDeque<Expected>,
    unread: Vec<u8>,
    /// Replies that were refused.
    unconfirmed: u64,
    /// Values that there was no memory for, because somebody was looking at what should have made room.
    no_memory: u64,
}

enum Expected {
    Stored,
    /// The value of this key, or none.
    Value(usize),
}

const VALUE_BYTES: usize = 500;

/// A key has one value, for ever.
fn value(key: usize) -> String {
    format!("{key:0>10}").repeat(VALUE_BYTES / 10)
}

impl Client {
    /// Sends some commands on any of so many keys.
    fn send(&mut self, random: &mut Random, keys: usize, commands: usize) {
        let mut request = String::new();
        for _ in 0..commands {
            let key = random.below(keys);
            if random.below(4) == 0 {
                request += &format!("set key{key} 0 0 {VALUE_BYTES}\r\n{}\r\n", value(key));
                self.expected.push_back(Expected::Stored);
            } else {
                request += &format!("get key{key}\r\n");
                self.expected.push_back(Expected::Value(key));
            }
        }
        self.stream.write_all(request.as_bytes()).expect("the server reads");
    }

    /// Reads all replies, and compares.
    fn receive(&mut self) {
        while let Some(expected) = self.expected.pop_front() {
            let line = self.line();
            match expected {
                _ if line == crate::session::UNCONFIRMED => self.unconfirmed += 1,
                Expected::Stored if line == protocol::text::NO_MEMORY_TO_STORE => self.no_memory += 1,
                Expected::Stored => assert_eq!(line, "STORED"),
                Expected::Value(_) if line == "END" => {}
                Expected::Value(key) => {
                    assert_eq!(line, format!("VALUE key{key} 0 {VALUE_BYTES}"));
                    assert_eq!(self.line(), value(key));
                    assert_eq!(self.line(), "END");
                }
            }
        }
        assert_eq!(self.unread, b"", "nothing more comes than was asked for");
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line = self.unread.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).expect("text");
            }
            let mut piece = [0; 64 << 10];
            let count = self.stream.read(&mut piece).expect("the server answers");
            assert!(count > 0, "the server closed the connection");
            self.unread.extend_from_slice(&piece[..count]);
        }
    }

    /// Nothing comes for a while.
    #[track_caller]
    fn check_silence(&mut self) {
        self.stream.set_read_timeout(Some(SILENCE)).expect("a timeout");
        let error = self.stream.read(&mut [0]).expect_err("nothing leaves unconfirmed");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
}

/// Commands in the best of the windows of this time: the one in which nobody else took the cores.
fn pace(client: &mut Client, random: &mut Random, keys: usize, time: Duration) -> usize {
    const WINDOW: Duration = Duration::from_millis(50);
    let (began, mut best) = (Instant::now(), 0);
    while began.elapsed() < time {
        let (window, mut count) = (Instant::now(), 0);
        while window.elapsed() < WINDOW {
            client.send(random, keys, 50);
            client.receive();
            count += 50;
        }
        best = best.max(count);
    }
    best
}

#[test]
fn workers_wait_for_no_validator() {
    const KEYS: usize = 100_000;
    let mut random = Random::new(seed());
    let setup = Setup::new(Settings { memory_bytes: 8 << 20, ..settings(Mode::Orthrus) });
    let mut client = setup.client();
    // Until memory is full.
    pace(&mut client, &mut random, KEYS, Duration::from_millis(1000));
    // Somebody else may have the cores for a while, and that is not to count.
    let is_kept = (0..5).any(|_| {
        let before = pace(&mut client, &mut random, KEYS, Duration::from_millis(500));
        setup.pause(true);
        let account = setup.account();
        let paused = pace(&mut client, &mut random, KEYS, Duration::from_millis(2000));
        setup.check_memory();
        let later = setup.account();
        println!("commands in 50 ms: {before}, {paused} without validators");
        assert!(later.dropped > account.dropped, "what finds the ring full is counted: {later:?}");
        assert!(later.validated < later.recorded, "nothing is validated: {later:?}");
        setup.pause(false);
        setup.settle();
        paused * 10 >= before * 7
    });
    assert!(is_kept, "workers wait for their validators");
    let account = setup.account();
    println!("{account:?}");
    assert!(account.abandoned > 0, "what points to memory that was needed is counted: {account:?}");
    let left = account.executed - account.recorded - account.dropped;
    assert_eq!(left, client.no_memory, "all of it is accounted for");
    client.send(&mut random, KEYS, 1000);
    client.receive();
    let later = setup.settle();
    assert!(later.validated > account.validated);
}

#[test]
fn replies_wait_for_a_validator() {
    let mut random = Random::new(seed());
    let setup = Setup::new(settings(Mode::Sync));
    let mut clients: Vec<Client> = (0..3).map(|_| setup.client()).collect();
    for client in &mut clients {
        client.send(&mut random, 100, 500);
        client.receive();
    }
    setup.pause(true);
    for client in &mut clients {
        client.send(&mut random, 100, 500);
    }
    clients.iter_mut().for_each(Client::check_silence);
    setup.pause(false);
    clients.iter_mut().for_each(Client::receive);
    assert!(clients.iter().all(|client| client.unconfirmed == 0));
    let account = setup.settle();
    assert_eq!((account.dropped, account.repeated), (0, 0));
    assert_eq!(account.executed, account.validated);
}

/// More replies wait than there is room for records: the rest is executed twice at once, and waits for its turn.
#[test]
fn rings_that_are_full_while_replies_wait() {
    let mut random = Random::new(seed());
    let setup = Setup::new(settings(Mode::Sync));
    let mut clients: Vec<Client> = (0..16).map(|_| setup.client()).collect();
    setup.pause(true);
    for client in &mut clients {
        client.send(&mut random, 100, 1_000);
    }
    let began = Instant::now();
    while setup.account().repeated == 0 {
        assert!(began.elapsed() < PATIENCE, "{:?}", setup.account());
        std::thread::yield_now();
    }
    // Those whose replies wait for no record at all may have theirs; the first ones fill the ring.
    clients[0].check_silence();
    setup.pause(false);
    clients.iter_mut().for_each(Client::receive);
    assert!(clients.iter().all(|client| client.unconfirmed == 0));
    let account = setup.settle();
    assert_eq!(account.dropped, 0);
    assert_eq!(account.executed, account.validated + account.repeated, "{account:?}");
}

/// Memory is needed that replies wait for: they are refused, and nothing else comes in their place.
#[test]
fn memory_that_replies_wait_for() {
    let mut random = Random::new(seed());
    let setup = Setup::new(Settings { memory_bytes: 4 << 20, ..settings(Mode::Sync) });
    let mut clients: Vec<Client> = (0..8).map(|_| setup.client()).collect();
    for _ in 0..10 {
        for client in &mut clients {
            client.send(&mut random, 100_000, 500);
            client.receive();
        }
    }
    let before: u64 = clients.iter().map(|client| client.unconfirmed).sum();
    println!("{before} refused while validators run; {:?}", setup.account());
    setup.pause(true);
    for client in &mut clients {
        client.send(&mut random, 100_000, 1_500);
    }
    clients[0].check_silence();
    setup.check_memory();
    setup.pause(false);
    clients.iter_mut().for_each(Client::receive);
    let account = setup.settle();
    let unconfirmed: u64 = clients.iter().map(|client| client.unconfirmed).sum();
    let no_memory: u64 = clients.iter().map(|client| client.no_memory).sum();
    println!("{unconfirmed} replies refused, no memory for {no_memory} values; {account:?}");
    assert!(no_memory * 100 < account.executed);
    assert!(unconfirmed <= account.abandoned);
    // What found no memory has nothing to be repeated from.
    let left = account.executed - account.validated - account.abandoned - account.repeated;
    assert!(left <= no_memory, "{account:?}");
}
