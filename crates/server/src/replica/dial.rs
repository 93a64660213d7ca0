//! Getting a replica: starting a child process or calling another machine, greeting it, and trying again later.
//!
//! That can take long, so it has a thread of its own. The one who ships records asks for a connection and goes on; there
//! is at most one request and one connection on its way.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::link::{Link, Lost};
use super::wire::{Hello, VERSION, Welcome};

/// How long a replica may take for its greeting.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a machine may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// The first and the longest rest between two attempts; each is twice as long as the one before.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);

/// A connection that lasted so long makes the next rest the shortest again.
const PROVEN: Duration = Duration::from_secs(10);

/// Where the replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// A child process that runs this program.
    Child {
        /// What to execute.
        program: PathBuf,
    },
    /// Somebody else has started it, there.
    Host {
        /// `HOST:PORT`
        address: String,
    },
}

impl Whereabouts {
    /// A child that runs the same executable as this process, even if its file was replaced since.
    pub(crate) fn own_child() -> Self {
        Whereabouts::Child { program: PathBuf::from("/proc/self/exe") }
    }
}

/// A replica that has been greeted.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) link: Link,
    pub(crate) welcome: Welcome,
    began: Instant,
    /// Ended when this is dropped.
    _process: Option<Process>,
}

/// A child process, ended and waited for when it is dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It fails only when the process has ended already; either way it is waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The end of the one who wants to be connected.
#[derive(Debug)]
pub(crate) struct Caller {
    requests: SyncSender<Option<Duration>>,
    results: Receiver<Result<Connected, String>>,
}

/// The end of the thread that connects.
#[derive(Debug)]
pub(crate) struct Dialer {
    whereabouts: Whereabouts,
    requests: Receiver<Option<Duration>>,
    results: SyncSender<Result<Connected, String>>,
    backoff: Backoff,
}

/// Both ends.
pub(crate) fn dialer(whereabouts: Whereabouts) -> (Caller, Dialer) {
    let (requests, requested) = sync_channel(1);
    let (resulted, results) = sync_channel(1);
    let dialer = Dialer { whereabouts, requests: requested, results: resulted, backoff: Backoff::default() };
    (Caller { requests, results }, dialer)
}

impl Caller {
    /// Asks for a connection; `lost` says how long the last one lasted. Asking twice is asking once.
    pub(crate) fn want(&self, lost: Option<Duration>) {
        match self.requests.try_send(lost) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// What came of it, if something did: a connection, or why there is none yet. Attempts go on by themselves.
    pub(crate) fn result(&self) -> Option<Result<Connected, String>> {
        self.results.try_recv().ok()
    }
}

impl Connected {
    /// How long it has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The process id, if it is a child.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self._process.as_ref().map(|process| process.0.id())
    }
}

impl Dialer {
    /// Connects whenever that is asked for, until nobody can ask any more or `stopping` says so.
    pub(crate) fn run(mut self, hello: impl Fn() -> Hello, stopping: impl Fn() -> bool) {
        while !stopping() {
            let lasted = match self.requests.recv_timeout(REST_MIN) {
                Ok(lasted) => lasted,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if lasted.is_some() {
                self.rest(lasted, &stopping);
            }
            self.attempts(&hello, &stopping);
        }
    }

    /// Tries until it has a connection. Only the first failure in a row is told.
    fn attempts(&mut self, hello: &impl Fn() -> Hello, stopping: &impl Fn() -> bool) {
        let mut told = false;
        // Nobody asks twice without an answer, so all that can be seen here is that nobody will ask any more.
        while !stopping() && self.requests.try_recv() != Err(TryRecvError::Disconnected) {
            match self.attempt(&hello(), stopping) {
                Ok(connected) => {
                    let _ = self.results.send(Ok(connected));
                    return;
                }
                Err(why) => {
                    if !std::mem::replace(&mut told, true) && self.results.send(Err(why)).is_err() {
                        return;
                    }
                    self.rest(None, stopping);
                }
            }
        }
    }

    fn attempt(&self, hello: &Hello, stopping: &impl Fn() -> bool) -> Result<Connected, String> {
        let failed = |error: io::Error| error.to_string();
        let (socket, process) = match &self.whereabouts {
            Whereabouts::Child { program } => {
                let (socket, process) = start(program).map_err(failed)?;
                (socket, Some(process))
            }
            Whereabouts::Host { address } => (call(address).map_err(failed)?, None),
        };
        let mut link = Link::new(socket);
        let welcome = greet(&mut link, hello, stopping).map_err(|lost| lost.to_string())?;
        Ok(Connected { link, welcome, began: Instant::now(), _process: process })
    }

    fn rest(&mut self, lasted: Option<Duration>, stopping: &impl Fn() -> bool) {
        let rest = self.backoff.next(lasted);
        let began = Instant::now();
        while let Some(left) = rest.checked_sub(began.elapsed())
            && !stopping()
        {
            std::thread::park_timeout(left.min(REST_MIN));
        }
    }
}

/// Says hello and waits for the answer.
fn greet(link: &mut Link, hello: &Hello, stopping: &impl Fn() -> bool) -> Result<Welcome, Lost> {
    hello.append(link.out());
    let welcome = match link.ask(PATIENCE, stopping, Welcome::decode) {
        Err(Lost::Bad(_)) => return Err(Lost::Stranger),
        answered => answered?,
    };
    if let Some(refused) = welcome.refused {
        return Err(Lost::Refused(refused));
    }
    if welcome.version != VERSION {
        return Err(Lost::Stranger);
    }
    link.agree(hello.body_max());
    Ok(welcome)
}

/// Starts a child process that is a replica, and our end of the socket between us, which is its standard input.
///
/// It gets a process group of its own, so that Ctrl-C in a terminal is left to this process; it ends when we do, as it
/// asks the system for that and as it sees the socket's end.
fn start(program: &std::path::Path) -> io::Result<(OwnedFd, Process)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(program)
        .arg0("veracache")
        .args(["replica", "--fd", "0"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok((ours.into(), Process(child)))
}

/// Calls a machine; the first of its addresses that answers.
fn call(address: &str) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(stream.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// How long to rest before the next attempt.
#[derive(Debug, Default)]
struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The next rest; `lasted` is how long the connection did that was lost, if one was.
    fn next(&mut self, lasted: Option<Duration>) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= PROVEN) {
            self.last = None;
        }
        let rest = self.last.map_or(REST_MIN, |last| (last * 2).min(REST_MAX));
        self.last = Some(rest);
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    use super::super::wire::Refused;
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            memory_bytes: 1 << 20,
            item_bytes_max: 1 << 20,
            streams: 1,
            cas: true,
            ..Hello::default()
        }
    }

    fn wait_for(caller: &Caller) -> Result<Connected, String> {
        loop {
            if let Some(result) = caller.result() {
                return result;
            }
            thread::yield_now();
        }
    }

    /// Runs a dialer against listeners that answer each connection with the next of `answers` and then close it.
    fn check(answers: Vec<Vec<u8>>) -> Vec<Result<Welcome, String>> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let (caller, dialer) = dialer(Whereabouts::Host { address });
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let dialing = thread::spawn(move || dialer.run(hello, || stopping.load(Relaxed)));
        let count = answers.len();
        let answering = thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().expect("accept");
                stream.set_nonblocking(true).expect("nonblocking");
                let mut link = Link::new(stream.into());
                assert_eq!(link.ask(PATIENCE, || false, Hello::decode), Ok(hello()));
                link.out().extend_from_slice(&answer);
                link.send().expect("sent");
            }
        });
        caller.want(None);
        let mut results = Vec::new();
        while results.len() < count.min(2) {
            results.push(wait_for(&caller).map(|connected| connected.welcome));
        }
        answering.join().expect("answering");
        stop.store(true, Relaxed);
        dialing.join().expect("dialing");
        results
    }

    fn welcome(welcome: &Welcome) -> Vec<u8> {
        let mut bytes = Vec::new();
        welcome.append(&mut bytes);
        bytes
    }

    #[test]
    fn the_first_failure_is_told_and_attempts_go_on() {
        let good = Welcome { version: VERSION, refused: None, memory_bytes: 9 };
        assert_eq!(check(vec![welcome(&good)]), [Ok(good)]);
        let refused = Welcome { refused: Some(Refused::Memory), ..good };
        let why = Refused::Memory.to_string();
        assert_eq!(check(vec![welcome(&refused), welcome(&good)]), [Err(why), Ok(good)]);
        let told = check(vec![b"VERSION 1.6.45\r\n".to_vec(), Vec::new(), welcome(&good)]);
        assert_eq!(told, [Err(Lost::Stranger.to_string()), Ok(good)]);
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let program = PathBuf::from("/nonexistent/program");
        let (caller, dialer) = dialer(Whereabouts::Child { program });
        let dialing = thread::spawn(move || dialer.run(hello, || false));
        caller.want(None);
        assert!(wait_for(&caller).is_err());
        drop(caller);
        dialing.join().expect("it ends when nobody can want a connection any more");
    }

    #[test]
    fn rests_grow_and_begin_anew() {
        let mut backoff = Backoff::default();
        let rests: Vec<u128> = (0..9).map(|_| backoff.next(None).as_millis()).collect();
        assert_eq!(rests, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff.next(Some(Duration::from_secs(1))), REST_MAX);
        assert_eq!(backoff.next(Some(PROVEN)), REST_MIN);
    }
}
