//! A server and its replica as processes: they agree under load, and the loss of the replica is no more than a line in
//! the log.

#[path = "common/memory.rs"]
mod memory;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memory::flip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veracache");

/// Found nowhere else in the arena of a process that holds it, and the bit of it that flips.
const VALUE: &str = "<one bit of this value is going to flip in some memory>";
const BIT: usize = 203;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process, killed when the test fails before it ends.
struct Process {
    child: Child,
    directory: PathBuf,
}

impl Process {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("veracache-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory of our own");
        let log = File::create(directory.join("log")).expect("a file of our own");
        let child = Command::new(PROGRAM)
            .args(arguments)
            .env("MEMCACHED_PORT_FILENAME", directory.join("ports"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program was built for this test");
        Process { child, directory }
    }

    fn server(name: &str, more: &[&str]) -> Self {
        let arguments = ["serve", "-A", "-p", "-1", "-l", "127.0.0.1", "--scrub", "0", "--protect", "rbv"];
        Self::start(name, &[&arguments, more].concat())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).expect("it is there")
    }

    fn lines(&self, what: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }

    fn port(&self) -> u16 {
        let ports = self.directory.join("ports");
        let mut port = None;
        wait("the port file", || {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok());
            port.is_some()
        });
        port.unwrap_or(0)
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Client(BufReader::new(stream))
    }

    /// The processes it has started.
    fn children(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let children = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        children
            .flat_map(|text| {
                text.split_whitespace().map(|id| id.parse().expect("a number")).collect::<Vec<_>>()
            })
            .collect()
    }

    fn replica(&self) -> u32 {
        let mut children = Vec::new();
        wait("the replica", || {
            children = self.children();
            !children.is_empty()
        });
        assert_eq!(children.len(), 1);
        children[0]
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([name, &process.to_string()]).status().expect("kill is there");
    assert!(status.success());
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
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

    /// All lines up to the answer of `mn`.
    fn ask(&mut self, request: &str) -> Vec<String> {
        self.send(format!("{request}mn\r\n").as_bytes());
        std::iter::repeat_with(|| self.line()).take_while(|line| line != "MN").collect()
    }

    fn statistics(&mut self) -> BTreeMap<String, String> {
        self.send(b"stats integrity\r\n");
        let lines = std::iter::repeat_with(|| self.line()).take_while(|line| line != "END");
        lines
            .filter_map(|line| {
                let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
                Some((name.to_owned(), value.to_owned()))
            })
            .collect()
    }

    fn number(&mut self, name: &str) -> u64 {
        self.statistics().get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn wait_for(&mut self, name: &str, value: &str) {
        wait(&format!("{name} {value}"), || self.statistics().get(name).is_some_and(|it| it == value));
    }

    /// Waits until everything is validated; nothing disagreed.
    fn wait_for_silence(&mut self) {
        wait("the end of validation", || {
            let all = self.statistics();
            let number = |name: &str| all.get(name).and_then(|value| value.parse().ok()).unwrap_or(0_u64);
            number("executed")
                == number("validated") + number("abandoned") + number("dropped") + number("repeated")
        });
        let all = self.statistics();
        for (name, value) in &all {
            let is_bad = name.starts_with("disagreements") || name == "contained" || name == "replica_alone";
            assert!(!is_bad || value == "0", "{name} {value}: {all:?}");
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn seed() -> u64 {
    let given = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let seed = given.unwrap_or_else(clock);
    println!("VERACACHE_SEED={seed}");
    seed
}

/// Any command on a few keys.
fn command(random: &mut Random, keys: u64) -> String {
    let key = format!("key{}", random.below(keys));
    let exptime = [0, 0, 0, 1, 100, -1][random.below(6) as usize];
    let value = match random.below(20) {
        0 => "x".repeat(random.below(100_000) as usize),
        1..5 => random.below(1_000_000).to_string(),
        _ => "v".repeat(random.below(200) as usize),
    };
    let len = value.len();
    let flags = random.below(3);
    match random.below(24) {
        0..5 => format!("get {key}\r\n"),
        5 => format!("gets {key} key{} key{}\r\n", random.below(keys), random.below(keys)),
        6..10 => format!("set {key} {flags} {exptime} {len}\r\n{value}\r\n"),
        10 => format!("add {key} {flags} {exptime} {len}\r\n{value}\r\n"),
        11 => format!("replace {key} {flags} {exptime} {len}\r\n{value}\r\n"),
        12 => format!("append {key} 0 0 {len}\r\n{value}\r\n"),
        13 => format!("prepend {key} 0 0 {len}\r\n{value}\r\n"),
        14 => format!("cas {key} 0 0 {len} {}\r\n{value}\r\n", random.below(1000)),
        15 => format!("delete {key}\r\n"),
        16 => format!("incr {key} {}\r\n", random.below(100)),
        17 => format!("decr {key} {} noreply\r\n", random.below(100)),
        18 => format!("touch {key} {exptime}\r\n"),
        19 => format!("gat {exptime} {key}\r\n"),
        20 => format!("mg {key} v f t c h l s N{} R30\r\n", random.below(3) * 30),
        21 => format!(
            "ms {key} {len} c T{exptime} M{} I\r\n{value}\r\n",
            ["S", "A", "P", "E", "R"][random.below(5) as usize]
        ),
        22 => format!("md {key} I T30 q\r\n"),
        _ => format!("ma {key} N30 J{} D2 v t c\r\n", random.below(100)),
    }
}

/// So slow that the replica keeps up also where others have the cores, and no records are dropped.
const SLOWLY: Duration = Duration::from_millis(2);

/// Clients that send random commands until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(server: &Process, clients: u64, keys: u64, pace: Duration) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let seed = seed();
        let threads = (0..clients)
            .map(|number| {
                let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
                let mut client = server.client();
                let mut random = Random(seed ^ number << 32);
                thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        let commands: String =
                            (0..1 + random.below(8)).map(|_| command(&mut random, keys)).collect();
                        client.ask(&commands);
                        sent.fetch_add(1, Relaxed);
                        thread::sleep(pace);
                    }
                })
            })
            .collect();
        Load { stop, sent, threads }
    }

    /// Waits until so many more requests were answered.
    fn go_on(&self, count: u64) {
        let until = self.sent.load(Relaxed) + count;
        wait("answers", || self.sent.load(Relaxed) >= until);
    }

    fn stop(self) {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("all was answered"));
    }
}

/// Bursts of commands that fit into the workers' rings; what is recorded of them is repeated by the replica.
fn check_silence(name: &str, more: &[&str]) {
    let server = Process::server(name, more);
    let mut client = server.client();
    client.wait_for("replica", "connected");
    for _ in 0..15 {
        let load = Load::start(&server, 4, 20, Duration::ZERO);
        load.go_on(150);
        load.stop();
        client.wait_for_silence();
    }
    let all = client.statistics();
    assert_eq!(all["replica_unordered"], "0", "{all:?}");
    assert_eq!(all["replica_losses"], "0", "{all:?}");
    wait("what the replica counts", || {
        let all = client.statistics();
        let number = |name: &str| all[name].parse::<u64>().expect("a number");
        number("replica_repeated") + number("replica_overtaken") + number("replica_unknown")
            == number("recorded")
    });
    // Where others have the cores some records find the ring full, and what follows on their keys is not known.
    let (repeated, recorded) = (client.number("replica_repeated"), client.number("recorded"));
    assert!(repeated > recorded / 2, "{repeated} of {recorded}");
    assert_eq!(server.lines("integrity"), [""; 0]);
}

#[test]
fn random_programs_agree() {
    check_silence("rbv-one", &["-t", "1"]);
    check_silence("rbv-three", &["-t", "3"]);
    check_silence("rbv-no-cas", &["-t", "2", "-C"]);
}

/// Items go without any command all the time, at the server and at its replica, and nothing is missed.
#[test]
fn random_programs_agree_while_items_are_evicted() {
    let server = Process::server("rbv-evict", &["-t", "2", "-m", "4"]);
    let mut client = server.client();
    client.wait_for("replica", "connected");
    for _ in 0..10 {
        let load = Load::start(&server, 4, 2_000, Duration::ZERO);
        load.go_on(200);
        load.stop();
        client.wait_for_silence();
    }
    client.send(b"stats\r\n");
    let lines = std::iter::repeat_with(|| client.line()).take_while(|line| line != "END");
    let evictions = lines.filter(|line| line.starts_with("STAT evictions ")).collect::<Vec<_>>();
    assert_ne!(evictions, ["STAT evictions 0"]);
    assert_eq!(server.lines("integrity"), [""; 0]);
}

#[test]
fn random_programs_agree_before_they_are_answered() {
    check_silence("rbv-sync", &["-t", "2", "--protect-sync"]);
}

/// The replica goes under load; another one takes its place, and knows everything.
fn check_loss(name: &str, more: &[&str]) {
    let server = Process::server(name, more);
    let mut client = server.client();
    client.wait_for("replica", "connected");
    let load = Load::start(&server, 3, 200, SLOWLY);
    load.go_on(500);
    for lost in 1..=2 {
        let replica = server.replica();
        signal("-KILL", replica);
        wait("the loss", || client.number("replica_losses") == lost);
        load.go_on(500);
        client.wait_for("replica", "connected");
        assert_ne!(server.replica(), replica);
        load.go_on(500);
    }
    load.stop();
    client.wait_for_silence();
    assert_eq!(server.lines("event=replica_lost").len(), 2, "{}", server.log());
    assert_eq!(server.lines("event=replica_found").len(), 2, "{}", server.log());
    assert_eq!(server.lines("integrity").len(), 4, "{}", server.log());
}

#[test]
fn the_loss_of_a_replica_is_a_line_in_the_log() {
    check_loss("rbv-loss", &["-t", "2"]);
}

#[test]
fn the_loss_of_a_replica_holds_no_reply_back() {
    check_loss("rbv-loss-sync", &["-t", "2", "--protect-sync"]);
}

#[test]
fn a_replica_that_says_nothing_is_lost() {
    let server = Process::server("rbv-stop", &["-t", "1"]);
    let mut client = server.client();
    client.wait_for("replica", "connected");
    let load = Load::start(&server, 2, 50, SLOWLY);
    load.go_on(200);
    signal("-STOP", server.replica());
    wait("the loss", || client.number("replica_losses") == 1);
    load.go_on(200);
    client.wait_for("replica", "connected");
    load.stop();
    client.wait_for_silence();
}

#[test]
fn a_replica_ends_with_its_server() {
    let mut server = Process::server("rbv-end", &["-t", "1"]);
    server.client().wait_for("replica", "connected");
    let replica = server.replica();
    server.child.kill().expect("it runs");
    server.child.wait().expect("our child");
    wait("the end of the replica", || fs::metadata(format!("/proc/{replica}")).is_err());
}

#[test]
fn a_replica_may_be_elsewhere_and_come_late() {
    let replica = Process::start("rbv-elsewhere", &["replica", "--listen", "127.0.0.1:0"]);
    let mut address = String::new();
    wait("the replica", || {
        address = replica
            .log()
            .lines()
            .find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()))
            .unwrap_or_default();
        !address.is_empty()
    });
    for name in ["rbv-first", "rbv-second"] {
        let server = Process::server(name, &["-t", "2", "--replica", &address]);
        let mut client = server.client();
        client.wait_for("replica", "connected");
        let load = Load::start(&server, 3, 50, SLOWLY);
        load.go_on(500);
        load.stop();
        client.wait_for_silence();
        assert_eq!(client.number("replica_losses"), 0);
        client.send(b"shutdown\r\n");
        assert_eq!(server.children(), [0; 0]);
    }
}

#[test]
fn a_replica_that_can_not_be_had_is_told_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    drop(listener);
    let server = Process::server("rbv-none", &["-t", "1", "--replica", &address]);
    let load = Load::start(&server, 1, 50, SLOWLY);
    load.go_on(500);
    let mut client = server.client();
    assert_eq!(client.statistics()["replica"], "lost");
    load.stop();
    client.wait_for_silence();
    assert_eq!(server.lines("event=replica_missing").len(), 1, "{}", server.log());
}

/// A bit flips in the memory of the server, in that of the replica, or in none: what is answered then, and counted.
fn check_flip(name: &str, more: &[&str], flips_in: &str) {
    let server = Process::server(name, &[&["-t", "1"], more].concat());
    let mut client = server.client();
    client.wait_for("replica", "connected");
    let set = format!("set key 0 0 {}\r\n{VALUE}\r\n", VALUE.len());
    assert_eq!(client.ask(&set), ["STORED"]);
    client.wait_for_silence();
    match flips_in {
        "server" => flip(server.child.id(), VALUE.as_bytes(), BIT),
        "replica" => flip(server.replica(), VALUE.as_bytes(), BIT),
        _ => {}
    }
    let whole = [format!("VALUE key 0 {}", VALUE.len()), VALUE.into(), "END".into()];
    let first = client.ask("get key\r\n");
    wait("the repetition", || client.number("validated") + client.number("disagreements") >= 2);
    if flips_in == "server" {
        wait("the end of the reaction", || client.number("contained") == 1);
        let is_sync = more.contains(&"--protect-sync");
        assert!(if is_sync { first == ["END"] } else { first != whole }, "{first:?}");
        assert_eq!(client.ask("get key\r\n"), ["END"]);
        assert_eq!(client.number("verdicts:memory"), 1);
        assert_eq!(client.ask(&set), ["STORED"]);
        assert_eq!(client.ask("get key\r\n"), whole);
        wait("the validation of the rest", || client.number("validated") >= 4);
        assert_eq!(client.number("disagreements"), 1, "{}", server.log());
    } else {
        assert_eq!(first, whole);
        wait("what the replica counts", || {
            client.number("replica_damaged") == u64::from(flips_in == "replica")
        });
        for _ in 0..5 {
            assert_eq!(client.ask("get key\r\n"), whole);
        }
        client.wait_for_silence();
        assert_eq!(server.lines("integrity"), [""; 0]);
    }
}

#[test]
fn a_flipped_bit_is_found_and_blamed_on_the_right_one() {
    for more in [&[][..], &["--protect-sync"]] {
        check_flip("rbv-flip-server", more, "server");
        check_flip("rbv-flip-replica", more, "replica");
        check_flip("rbv-flip-none", more, "none");
    }
}
