//! nutcracker (twemproxy) before two servers, one of which is killed in the middle.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::outcome::{Outcome, Test, Verdict};
use super::process;
use super::server::Running;
use super::site::Site;

const KEY_COUNT: usize = 1000;

/// How many keys one request asks for.
const KEYS_AT_ONCE: usize = 50;

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the scenario: each of its steps is one test.
pub(crate) fn run(site: &Site) -> Result<Outcome, String> {
    let first = Running::start(site, "first", &[])?;
    let mut second = Running::start(site, "second", &[])?;
    let proxy = Proxy::start(site, &[first.port(), second.port()])?;
    let mut steps = Steps::default();
    let mut client = Client::unix(&proxy.socket)?;

    steps.run("sets", || sets(&mut client));
    steps.run("single gets", || gets(&mut client));
    steps.run("multigets", || expect(multigets(&mut client)? == KEY_COUNT, "every key is found"));
    steps.run("every other storage command", || commands(&mut client));
    let mut owners = Vec::new();
    steps.run("both servers hold a share", || {
        owners = owners_of(&[first.port(), second.port()])?;
        let share = owners.iter().filter(|owner| **owner == 0).count();
        expect((KEY_COUNT / 10..KEY_COUNT * 9 / 10).contains(&share), "no share is tiny")
    });
    steps.run("multigets while a server is killed", || while_killed(&mut client, &mut second, &proxy.socket));
    steps.run("after the kill, misses and errors for its share alone", || {
        after_the_kill(&proxy.socket, &owners)
    });
    let mut outcome = steps.outcome;
    outcome.problems.extend(first.stop());
    Ok(outcome)
}

/// The tests so far. Once one has failed, those that build on it are not tried.
#[derive(Default)]
struct Steps {
    outcome: Outcome,
}

impl Steps {
    fn run(&mut self, name: &str, step: impl FnOnce() -> Result<(), String>) {
        let broken = self.outcome.tests.iter().any(|test| test.verdict == Verdict::Failed);
        let result = if broken { Err("not tried".to_string()) } else { step() };
        let (name, verdict) = match result {
            Ok(()) => (name.to_string(), Verdict::Passed),
            Err(reason) => (format!("{name}: {reason}"), Verdict::Failed),
        };
        self.outcome.tests.push(Test { number: self.outcome.tests.len() + 1, name, verdict });
    }
}

fn expect(condition: bool, what: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(format!("it does not hold that {what}")) }
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// The only value that a key ever has: a value says whose it is.
fn value(key: &str) -> Vec<u8> {
    let length = key.bytes().map(usize::from).sum::<usize>() * 7 % 2500;
    format!("{key}=").bytes().cycle().take(key.len() + 1 + length).collect()
}

fn sets(client: &mut Client) -> Result<(), String> {
    for number in 0..KEY_COUNT {
        let key = key(number);
        let answer = client.store("set", &key, &value(&key))?;
        expect(answer == "STORED", &format!("{key} is stored, not answered {answer}"))?;
    }
    Ok(())
}

fn gets(client: &mut Client) -> Result<(), String> {
    for number in 0..KEY_COUNT {
        let found = client.get(&[key(number)])?;
        expect(found.is_ok_and(|found| found.len() == 1), &format!("{} is found", key(number)))?;
    }
    Ok(())
}

/// Asks for all keys, many at a time; how many were found with their value.
fn multigets(client: &mut Client) -> Result<usize, Trouble> {
    let mut total = 0;
    for start in 0..KEY_COUNT / KEYS_AT_ONCE {
        // Strided, so that each request goes to both servers.
        let keys: Vec<String> =
            (0..KEYS_AT_ONCE).map(|n| key(start + n * (KEY_COUNT / KEYS_AT_ONCE))).collect();
        // An error in the place of all values is one of the proxy's honest answers while a server is gone.
        total += client.get(&keys)?.map_or(0, |found| found.len());
    }
    Ok(total)
}

fn commands(client: &mut Client) -> Result<(), String> {
    for (command, key, wanted) in [
        ("add", "other", "STORED"),
        ("add", "other", "NOT_STORED"),
        ("replace", "other", "STORED"),
        ("replace", "absent", "NOT_STORED"),
        ("append", "absent", "NOT_STORED"),
        ("prepend", "absent", "NOT_STORED"),
    ] {
        let answer = client.store(command, key, &value(key))?;
        expect(answer == wanted, &format!("{command} {key} is answered {wanted}, not {answer}"))?;
    }
    expect(client.get(&["other".into()])?.is_ok_and(|found| found.len() == 1), "what was added is found")?;
    client.store("set", "counter", b"41")?;
    for (line, wanted) in [
        ("incr counter 1", "42"),
        ("decr counter 2", "40"),
        ("incr absent 1", "NOT_FOUND"),
        ("touch counter 100", "TOUCHED"),
        ("delete other", "DELETED"),
        ("delete other", "NOT_FOUND"),
    ] {
        let answer = client.line(line)?;
        expect(answer == wanted, &format!("{line} is answered {wanted}, not {answer}"))?;
    }
    Ok(())
}

/// Which server holds each key, asked without the proxy.
fn owners_of(ports: &[u16]) -> Result<Vec<usize>, String> {
    let mut clients = ports.iter().map(|port| Client::tcp(*port)).collect::<Result<Vec<_>, _>>()?;
    (0..KEY_COUNT)
        .map(|number| {
            let mut owners = Vec::new();
            for (owner, client) in clients.iter_mut().enumerate() {
                if client.get(&[key(number)])?.is_ok_and(|found| found.len() == 1) {
                    owners.push(owner);
                }
            }
            match owners.as_slice() {
                [owner] => Ok(*owner),
                other => Err(format!("{} is held by {} servers", key(number), other.len())),
            }
        })
        .collect()
}

fn while_killed(client: &mut Client, second: &mut Running, socket: &Path) -> Result<(), String> {
    let before = multigets(client)?;
    expect(before == KEY_COUNT, "every key is found before the kill")?;
    // A request is under way when the server dies.
    let keys: Vec<String> = (0..KEY_COUNT).map(key).collect();
    client.send(format!("get {}\r\n", keys.join(" ")).as_bytes())?;
    second.kill();
    let mut result = client.values(&keys).map(drop);
    for _ in 0..20 {
        if let Err(Trouble::Wrong(what)) = result {
            return Err(what);
        }
        if result.is_err() {
            *client = Client::unix(socket)?;
        }
        result = multigets(client).map(drop);
    }
    Ok(())
}

fn after_the_kill(socket: &Path, owners: &[usize]) -> Result<(), String> {
    let mut client = Client::unix(socket)?;
    let mut lost = 0;
    for (number, owner) in owners.iter().enumerate() {
        let found = match client.get(&[key(number)]) {
            Err(Trouble::Closed(reason)) if *owner != 0 => {
                client = Client::unix(socket)?;
                Err(reason)
            }
            other => other?,
        };
        match (owner, found) {
            (0, Ok(found)) if found.len() == 1 => {}
            (0, answer) => {
                return Err(format!("{} of the living server is answered {answer:?}", key(number)));
            }
            (_, Err(_)) => lost += 1,
            (_, Ok(found)) if found.is_empty() => lost += 1,
            (_, Ok(_)) => return Err(format!("{} came from a server that is dead", key(number))),
        }
    }
    expect(
        lost == owners.iter().filter(|owner| **owner != 0).count(),
        "all of the dead server's keys are lost",
    )
}

/// A running nutcracker. It ends when it is dropped.
struct Proxy {
    child: Child,
    socket: std::path::PathBuf,
}

impl Proxy {
    fn start(site: &Site, ports: &[u16]) -> Result<Self, String> {
        let configuration = site.log("nutcracker.yml");
        // The name of a socket may not be long, and the folder of the logs can be anywhere.
        let socket = std::env::temp_dir().join(format!("veracache-nutcracker-{}", std::process::id()));
        // One may be left of an earlier process of the same number.
        let _ = std::fs::remove_file(&socket);
        let servers: String = ports.iter().map(|port| format!("   - 127.0.0.1:{port}:1\n")).collect();
        let text = format!(
            "peers:\n  listen: {} 0600\n  hash: fnv1a_64\n  distribution: ketama\n  auto_eject_hosts: false\n  \
             timeout: 2000\n  preconnect: true\n  servers:\n{servers}",
            socket.display()
        );
        std::fs::write(&configuration, text).map_err(|error| error.to_string())?;
        let mut child = site
            .command("nutcracker")
            .arg("-c")
            .arg(&configuration)
            .arg("-o")
            .arg(site.log("nutcracker.log"))
            .arg("-p")
            .arg(site.log("nutcracker.pid"))
            // Its statistics cannot be turned off, nor their port be left to the system.
            .args(["-a", "127.0.0.1", "-s", &free_port()?.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("nutcracker cannot be started: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&socket).is_err() {
            if Instant::now() > deadline || !matches!(child.try_wait(), Ok(None)) {
                process::end(&mut child);
                let log = process::read(&site.log("nutcracker.log"));
                return Err(format!("nutcracker does not listen:\n{}", process::last_lines(&log, 5)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Proxy { child, socket })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        process::end(&mut self.child);
        // Killed as it was, it could not do this itself.
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Why a request has no answer that can be used.
#[derive(Debug)]
enum Trouble {
    /// The connection ended, as it may while a server is killed.
    Closed(String),
    /// The answer is wrong, which nothing excuses.
    Wrong(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Trouble::Closed(error.to_string())
    }
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Closed(reason) => format!("the connection ended: {reason}"),
            Trouble::Wrong(what) => what,
        }
    }
}

/// What a `get` found, or the line with which it was refused.
type Found = Result<HashMap<String, Vec<u8>>, String>;

/// A client of the text protocol that takes no value but the right one.
struct Client {
    input: BufReader<Box<dyn Read>>,
    output: Box<dyn Write>,
}

impl Client {
    fn unix(path: &Path) -> Result<Self, String> {
        let open = || -> std::io::Result<Self> {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Client { input: BufReader::new(Box::new(stream.try_clone()?)), output: Box::new(stream) })
        };
        open().map_err(|error| error.to_string())
    }

    fn tcp(port: u16) -> Result<Self, String> {
        let open = || -> std::io::Result<Self> {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Client { input: BufReader::new(Box::new(stream.try_clone()?)), output: Box::new(stream) })
        };
        open().map_err(|error| error.to_string())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        Ok(self.output.write_all(bytes)?)
    }

    fn read_line(&mut self) -> Result<String, Trouble> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(String::from).ok_or_else(|| Trouble::Closed(format!("after {line:?}")))
    }

    fn line(&mut self, request: &str) -> Result<String, Trouble> {
        self.send(format!("{request}\r\n").as_bytes())?;
        self.read_line()
    }

    fn store(&mut self, command: &str, key: &str, value: &[u8]) -> Result<String, Trouble> {
        let mut request = format!("{command} {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        self.read_line()
    }

    fn get(&mut self, keys: &[String]) -> Result<Found, Trouble> {
        self.send(format!("get {}\r\n", keys.join(" ")).as_bytes())?;
        self.values(keys)
    }

    /// Reads the answer to a `get`. A value that is not its key's, or a key that nobody asked for, is the error of all errors.
    fn values(&mut self, keys: &[String]) -> Result<Found, Trouble> {
        let mut found = HashMap::new();
        loop {
            let line = self.read_line()?;
            if line == "END" {
                return Ok(Ok(found));
            }
            let words: Vec<&str> = line.split(' ').collect();
            let ["VALUE", name, "0", length] = words[..] else {
                let refused = line.starts_with("SERVER_ERROR") || line.starts_with("ERROR");
                return if refused {
                    Ok(Err(line))
                } else {
                    Err(Trouble::Wrong(format!("an answer without sense: {line}")))
                };
            };
            let length: usize =
                length.parse().map_err(|_| Trouble::Wrong(format!("a length that is none: {line}")))?;
            let mut bytes = vec![0; length + 2];
            self.input.read_exact(&mut bytes)?;
            let framed = bytes.ends_with(b"\r\n");
            bytes.truncate(length);
            let right = framed && bytes == value(name) && keys.iter().any(|key| key == name);
            if !right || found.insert(name.to_string(), bytes).is_some() {
                return Err(Trouble::Wrong(format!(
                    "{name} came with a value of another, twice, or unasked"
                )));
            }
        }
    }
}
