//! Which cores the threads of a server use: those that validate others than those that execute, and none that was found
//! wrong earlier.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with a state file, and a directory that go with it.
struct Server {
    child: Child,
    directory: PathBuf,
    stats: Vec<String>,
}

impl Server {
    /// Starts one with this state file, if any, and asks it for `stats integrity`.
    fn start(name: &str, state: Option<&str>, flags: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("veracache-{name}-{}", std::process::id()));
        fs::create_dir(&directory).expect("a new directory");
        if let Some(state) = state {
            fs::write(directory.join("cores"), state).expect("a file");
        }
        let child = Command::new(env!("CARGO_BIN_EXE_veracache"))
            .args("serve -u root -p -1 -l 127.0.0.1".split(' '))
            .args(flags.split_whitespace())
            .arg("--state-file")
            .arg(directory.join("cores"))
            .env("MEMCACHED_PORT_FILENAME", directory.join("ports"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let mut server = Server { child, directory, stats: Vec::new() };
        server.stats = server.ask();
        server
    }

    fn ask(&mut self) -> Vec<String> {
        let ports = self.directory.join("ports");
        let deadline = Instant::now() + PATIENCE;
        let port = loop {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            if let Some(port) = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")) {
                break port.parse().expect("a port");
            }
            assert!(Instant::now() < deadline, "the server doesn't start");
            assert!(self.child.try_wait().expect("a child").is_none(), "the server has ended");
            std::thread::yield_now();
        };
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        client.write_all(b"stats integrity\r\n").expect("it reads");
        let lines = BufReader::new(client).lines().map(|line| line.expect("text"));
        lines.take_while(|line| line != "END").collect()
    }

    fn stat(&self, key: &str) -> &str {
        let begin = format!("STAT {key} ");
        let found = self.stats.iter().find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("no {key}: {:?}", self.stats))
    }

    /// The CPUs that each thread may use: one set, if they agree.
    fn cpus(&self) -> BTreeSet<String> {
        self.cpus_of("")
    }

    /// The CPUs that each thread may use whose name begins like this.
    fn cpus_of(&self, name: &str) -> BTreeSet<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let paths = tasks.map(|task| task.expect("a thread").path());
        let meant =
            paths.filter(|path| fs::read_to_string(path.join("comm")).expect("a name").starts_with(name));
        meant.map(|path| cpus_of(&path.join("status"))).collect()
    }

    /// Ends it: what it said.
    fn end(mut self) -> String {
        self.child.kill().expect("it runs");
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn cpus_of(status: &Path) -> String {
    let text = fs::read_to_string(status).expect("a thread");
    let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the system tells").trim().to_owned()
}

/// The CPUs this test may use, which the server inherits.
fn allowed() -> Vec<u16> {
    listed(&cpus_of("/proc/thread-self/status".as_ref()))
}

/// The CPUs of a list such as `0-2,7`.
fn listed(list: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u16>().expect("a number")..=last.parse().expect("a number")
    };
    list.split(',').flat_map(range).collect()
}

#[test]
fn cores_that_were_left_stay_so() {
    let cpus = allowed();
    let first = cpus[0];
    let state = format!("core={first} since=1795250000 verdict=persistent microcode=0x1\n");
    let server = Server::start("left", Some(&state), "");
    if cpus.len() == 1 {
        assert_eq!((server.stat("quarantined_cores"), server.stat("ready")), ("none", "0"));
        return;
    }
    assert_eq!((server.stat("quarantined_cores"), server.stat("ready")), (first.to_string().as_str(), "1"));
    let used = server.cpus();
    assert_eq!(used.len(), 1, "each thread may use the same: {used:?}");
    assert!(!used.contains(&cpus_of("/proc/thread-self/status".as_ref())), "{used:?}");
    let said = server.end();
    assert!(said.contains(&format!("veracache: warning: core {first} is not used: core={first} ")), "{said}");
}

/// The other arm: without such a line nothing is left, and nothing is said.
#[test]
fn no_core_is_left_without_a_reason() {
    for (name, state) in [("empty", Some("")), ("none", None)] {
        let server = Server::start(name, state, "");
        assert_eq!((server.stat("quarantined_cores"), server.stat("ready")), ("none", "1"));
        assert_eq!(server.stat("disagreements"), "0");
        assert_eq!(server.cpus(), BTreeSet::from([cpus_of("/proc/thread-self/status".as_ref())]));
        let said = server.end();
        assert!(!said.contains("core"), "{said}");
    }
}

/// A server starts with whatever it finds where its state file should be, and says so in one line.
#[test]
fn a_damaged_state_file_keeps_nobody_from_starting() {
    for (name, state) in [("words", "who knows\n"), ("zeros", "\0\0\0\0")] {
        let server = Server::start(name, Some(state), "");
        assert_eq!((server.stat("quarantined_cores"), server.stat("ready")), ("none", "1"));
        let said = server.end();
        let told: Vec<&str> = said.lines().filter(|line| line.contains("--state-file")).collect();
        assert_eq!(told.len(), 1, "{said}");
        assert!(told[0].contains("line 1 is not understood"), "{said}");
    }
}

/// Where there is a CPU for each, what executes and what validates share none; where there isn't, all may use all.
#[test]
fn validators_keep_to_cores_of_their_own() {
    let cpus = allowed();
    let server = Server::start("validators", None, "--protect orthrus -t 1");
    let keep_apart = || {
        let [workers, validators] = ["worker", "validator"].map(|name| {
            let lists = server.cpus_of(name);
            assert_eq!(lists.len(), 1, "there is one {name}");
            listed(lists.first().expect("one"))
        });
        workers.iter().all(|cpu| !validators.contains(cpu))
    };
    // Each thread sees to it when it begins to run.
    let deadline = Instant::now() + PATIENCE;
    while cpus.len() > 1 && !keep_apart() {
        assert!(Instant::now() < deadline, "they may use the same: {:?}", server.cpus());
        std::thread::yield_now();
    }
    if cpus.len() == 1 {
        assert!(!keep_apart());
    }
    // More threads than CPUs, and nothing to validate.
    for (name, flags) in [("many", "--protect orthrus -t 64"), ("vanilla", "--protect vanilla -t 1")] {
        let server = Server::start(name, None, flags);
        let used = server.cpus();
        assert!(cpus.len() > 64 || used.len() == 1, "{flags}: {used:?}");
    }
}
