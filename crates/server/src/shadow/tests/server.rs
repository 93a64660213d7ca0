//! A running server whose table is changed behind its back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use guard::Stratum;
use store::{Delete, Op, Put, Request};

use super::*;
use crate::Server;
use crate::settings::{Listen, Port, Protect, Settings};
use crate::shared::Shared;
use crate::strata::STRATA;

/// A finding takes milliseconds; a machine that is busy with other things may need more.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a client, and somebody who changes its table without leaving records.
struct Setup {
    server: Server,
    client: TcpStream,
    rogue: store::Worker,
    key: String,
}

impl Setup {
    fn new() -> Self {
        let local = Listen { host: Some("127.0.0.1".into()), port: None, binding: None, tag: None };
        let server = Server::start(Settings {
            tcp_port: Port::Any,
            listen: vec![local],
            // There are as many places for those who use the store as it takes twice as many workers.
            threads: 2,
            validators: Some(1),
            memory_bytes: 16 << 20,
            protect: Protect::Orthrus,
            ..Settings::default()
        })
        .expect("the server starts");
        let client = TcpStream::connect(server.addresses()[0]).expect("the server listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let rogue = server.shared().store.worker(0).expect("a place");
        let share = server.shared().follower.as_ref().expect("validators follow").share();
        let is_followed = |key: &String| share.holds(rogue.hash(key.as_bytes()).0);
        let key = (0..).map(|number| format!("key{number}")).find(is_followed).expect("one of 64");
        Setup { server, client, rogue, key }
    }

    fn say(&mut self, request: &str, answer: &str) {
        self.client.write_all(request.as_bytes()).expect("the server reads");
        let mut found = vec![0; answer.len()];
        self.client.read_exact(&mut found).expect("the server answers");
        let request = &request[..request.len().min(80)];
        assert_eq!(String::from_utf8_lossy(&found), answer, "{request}");
    }

    fn set(&mut self) {
        self.say(&format!("set {} 0 0 1\r\nx\r\n", self.key), "STORED\r\n");
    }

    /// Looks it up, whatever comes of it.
    fn look(&mut self) {
        self.client.write_all(format!("mg {}\r\n", self.key).as_bytes()).expect("the server reads");
        self.client.read_exact(&mut [0; 4]).expect("HD or EN, and the end of the line");
    }

    fn behind_its_back(&mut self, op: Op<'_>) {
        let env = self.server.shared().env();
        self.rogue.execute(&Request { key: self.key.as_bytes(), op }, &env);
        self.rogue.idle();
    }

    fn counts(&self) -> Counts {
        self.server.shared().follower.as_ref().expect("validators follow").counts().0
    }

    /// Repeats something until the counts are as they should be.
    #[track_caller]
    fn until(&mut self, mut repeat: impl FnMut(&mut Self), is_done: impl Fn(&Counts) -> bool) {
        let begin = Instant::now();
        while !is_done(&self.counts()) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.counts());
            repeat(self);
        }
    }

    /// All that was recorded has been looked at.
    fn catch_up(&self) {
        let Shared { coverages, validations, .. } = &**self.server.shared();
        let strata = || (0..STRATA).map(|at| Stratum(at as u8));
        let validated = || {
            validations.iter().flat_map(|it| strata().map(|at| it.tally.counted(at).validated)).sum::<u64>()
        };
        let recorded =
            || coverages.iter().flat_map(|it| &it.strata).map(|it| it.recorded.read()).sum::<u64>();
        let begin = Instant::now();
        while recorded() != validated() {
            assert!(begin.elapsed() < PATIENCE, "{} of {}", validated(), recorded());
            std::thread::yield_now();
        }
    }

    /// What was written is known.
    fn write_and_know(&mut self) {
        self.catch_up();
        let checked = self.counts().checked;
        self.set();
        self.until(Self::look, |counts| counts.checked > checked);
    }

    fn found(&self) -> [u64; 3] {
        let Counts { lost, stale, resurrected, .. } = self.counts();
        [lost, stale, resurrected]
    }
}

#[test]
fn entries_changed_behind_its_back_are_found_and_forgotten_ones_are_not() {
    let mut setup = Setup::new();
    let key = setup.key.clone();

    // What is forgotten with the store's knowledge explains itself.
    setup.write_and_know();
    assert!(setup.rogue.forget(key.as_bytes()));
    setup.rogue.idle();
    setup.look();

    setup.write_and_know();
    setup.behind_its_back(Op::Delete(Delete::default()));
    setup.until(Setup::look, |counts| counts.lost > 0);
    assert_eq!(setup.found(), [1, 0, 0]);

    setup.write_and_know();
    setup.behind_its_back(Op::Put(Put::set(b"x")));
    setup.until(Setup::look, |counts| counts.stale > 0);
    assert_eq!(setup.found(), [1, 1, 0]);

    setup.write_and_know();
    setup.say(&format!("delete {key}\r\n"), "DELETED\r\n");
    setup.behind_its_back(Op::Put(Put::set(b"x")));
    setup.until(Setup::look, |counts| counts.resurrected > 0);
    assert_eq!(setup.found(), [1, 1, 1]);
}

#[test]
fn after_a_finding_memory_is_used_again() {
    let mut setup = Setup::new();
    setup.write_and_know();
    setup.behind_its_back(Op::Delete(Delete::default()));
    setup.until(Setup::look, |counts| counts.lost > 0);
    let value = "x".repeat(100_000);
    for number in 0..1_000 {
        setup.say(&format!("set large{number} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
}
