//! A server under observation: started by us, one of its threads traced, and a connection that commands go through.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::process::{Pid, kill_process};
use serde::{Deserialize, Serialize};

use super::code::{Code, Layout};
use super::mode::Mode;
use super::tracee::{Stop, Tracee};
use crate::error::Error;
use crate::interrupt;
use crate::oracle::{Framing, Model, Request, Sent, Verdict};
use crate::server::Server;

/// How long a server may do nothing at all before that is called a hang. One that still computes gets more time.
const ASLEEP: Duration = Duration::from_secs(2);

/// How long an answer may take in any case; a busy machine may leave a thread without a core for a while.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processor time without an answer that is called a hang, in clock ticks of a hundredth of a second.
const BUSY_TICKS: u64 = 150;

/// How often we look before we sleep in between.
const LOOKS: u32 = 400;

/// How long we sleep between two looks.
const PERIOD: Duration = Duration::from_micros(50);

/// How long validators may do nothing before what they have noticed is taken as it is.
const CATCH_UP: Duration = Duration::from_millis(250);

/// What is read at a time.
const READ_BYTES: usize = 64 << 10;

/// The most that one answer may have: the largest value, and a multiget of those.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Which thread is traced.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The one that executes commands.
    Worker,
    /// The one that executes them again.
    Validator,
}

impl Role {
    fn thread(self) -> &'static str {
        match self {
            Role::Worker => "worker 0",
            Role::Validator => "validator 0",
        }
    }
}

/// How a conversation ended before its time.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// A signal that ends the process, or the process ended itself.
    Crash(String),
    /// No answer, and none will come.
    Hang,
    /// The connection was closed.
    Closed,
    /// What came can't be taken for an answer to the command.
    Garbage(String),
}

/// What came of one command.
#[derive(Clone, Debug)]
pub enum Reply {
    /// An answer, whatever it says.
    Whole(Vec<u8>),
    /// None.
    Ended(End),
}

/// What a server says of what it checked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Findings {
    /// Executions that did not agree.
    pub disagreements: u64,
    /// Items that were damaged, whoever noticed.
    pub damaged: u64,
    /// Values refused for their checksum.
    pub refused: u64,
    /// Commands on user data.
    pub executed: u64,
    /// Of them, those executed again.
    pub validated: u64,
}

impl Findings {
    /// Whether something was noticed since.
    pub fn exceed(&self, before: &Findings) -> bool {
        self.disagreements > before.disagreements
            || self.damaged > before.damaged
            || self.refused > before.refused
    }
}

/// What is done when the traced thread stops. It says how the thread goes on: `None` if it was let run, else why it can't.
pub type OnStop<'a> = &'a mut dyn FnMut(&mut Tracee) -> Result<Option<Stop>, Error>;

/// A server with a traced thread.
pub struct Rig {
    // In this order: a thread is let go before its server is asked to end.
    pub(super) tracee: Tracee,
    server: Server,
    pub(super) layout: Layout,
    stream: TcpStream,
    space: Vec<u8>,
    pub(super) mode: Mode,
    role: Role,
}

impl Rig {
    /// Starts a server, and attaches to one of its threads.
    pub fn start(program: &Path, mode: Mode, role: Role, code: &mut Code) -> Result<Self, Error> {
        let base = ["serve", "-l", "127.0.0.1", "-U", "0", "-u", "root"];
        let server = Server::start(program, base.into_iter().chain(mode.flags()))?;
        let tracee = Tracee::attach(server.pid(), role.thread())?;
        let layout = code.layout(server.pid())?;
        let doing = || "connecting to the server";
        let stream = TcpStream::connect(server.address()).map_err(Error::io(doing()))?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(Error::io(doing()))?;
        let space = vec![0; READ_BYTES];
        Ok(Rig { tracee, server, layout, stream, space, mode, role })
    }

    /// Connects again, when a connection is of no use any more.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        let doing = || "connecting to the server again";
        let stream = TcpStream::connect(self.server.address()).map_err(Error::io(doing()))?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(Error::io(doing()))?;
        self.stream = stream;
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Which of its threads is traced.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Sends a command and waits for the end of its answer; `on_stop` is told each time the traced thread stops.
    pub fn ask(&mut self, sent: &Sent, on_stop: OnStop<'_>) -> Result<Reply, Error> {
        let request = sent.request();
        self.exchange(sent.bytes(), &|input| request.framing(input), on_stop)
    }

    fn exchange(
        &mut self,
        bytes: &[u8],
        framing: &dyn Fn(&[u8]) -> Framing,
        on_stop: OnStop<'_>,
    ) -> Result<Reply, Error> {
        let mut unsent = bytes;
        let mut input: Vec<u8> = Vec::new();
        let mut wait = Wait::begin();
        loop {
            match self.pump(on_stop)? {
                Pumped::Nothing => {}
                Pumped::Stopped => wait.note_progress(),
                Pumped::Ended(end) => return Ok(Reply::Ended(end)),
            }
            match self.transfer(&mut unsent, &mut input) {
                Ok(false) => {}
                Ok(true) => {
                    wait.note_progress();
                    match framing(&input) {
                        Framing::Whole(len) if len == input.len() => return Ok(Reply::Whole(input)),
                        Framing::Incomplete if input.len() < ANSWER_BYTES_MAX => {}
                        _ => return Ok(Reply::Ended(End::Garbage(shown(&input)))),
                    }
                }
                Err(()) => return Ok(Reply::Ended(self.closed()?)),
            }
            if interrupt::is_requested() {
                return Err(Error::Interrupted);
            }
            if wait.goes_too_far(&self.tracee) {
                return Ok(Reply::Ended(End::Hang));
            }
            wait.pause();
        }
    }

    /// Lets `on_stop` see whatever stop there is.
    fn pump(&mut self, on_stop: OnStop<'_>) -> Result<Pumped, Error> {
        let stop = match self.tracee.wait(Duration::ZERO)? {
            None => return Ok(Pumped::Nothing),
            Some(Stop::Trap) => on_stop(&mut self.tracee)?,
            fatal => fatal,
        };
        match stop {
            None => Ok(Pumped::Stopped),
            Some(Stop::Trap) => self.tracee.go().map(|()| Pumped::Stopped),
            Some(Stop::Fatal(signal)) => Ok(Pumped::Ended(crash(signal))),
            Some(Stop::Gone) => Ok(Pumped::Ended(self.closed()?)),
        }
    }

    /// Lets `on_stop` see a stop, if there is one now.
    pub fn look(&mut self, on_stop: OnStop<'_>) -> Result<Option<End>, Error> {
        Ok(match self.pump(on_stop)? {
            Pumped::Nothing => {
                thread::yield_now();
                None
            }
            Pumped::Stopped => None,
            Pumped::Ended(end) => Some(end),
        })
    }

    /// Moves bytes both ways; whether any came. An error means that the connection is of no use any more.
    fn transfer(&mut self, unsent: &mut &[u8], input: &mut Vec<u8>) -> Result<bool, ()> {
        if !unsent.is_empty() {
            match self.stream.write(unsent) {
                Ok(count) => *unsent = &unsent[count..],
                Err(error) if is_for_later(&error) => {}
                Err(_) => return Err(()),
            }
        }
        match self.stream.read(&mut self.space) {
            Ok(0) => Err(()),
            Ok(count) => {
                input.extend_from_slice(&self.space[..count]);
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Whether the connection alone has ended, or the server with it.
    fn closed(&mut self) -> Result<End, Error> {
        let began = Instant::now();
        while began.elapsed() < ASLEEP / 4 {
            match self.tracee.wait(Duration::ZERO)? {
                Some(Stop::Fatal(signal)) => return Ok(crash(signal)),
                Some(Stop::Trap) => self.tracee.go()?,
                Some(Stop::Gone) | None => {}
            }
            if let Some(how) = self.server.ended() {
                return Ok(End::Crash(how.lines().next().unwrap_or_default().to_string()));
            }
            if self.tracee.is_gone() {
                return Ok(End::Crash("the thread has ended by a panic".into()));
            }
            thread::sleep(PERIOD);
        }
        Ok(End::Closed)
    }

    /// Executes commands one after the other and has each answer judged; how it ended, if it ended too early.
    pub fn converse(
        &mut self,
        model: &mut Model,
        requests: impl IntoIterator<Item = Request>,
        on_stop: OnStop<'_>,
        mut seen: impl FnMut(&Sent, &[u8], &Verdict),
    ) -> Result<Option<End>, Error> {
        for request in requests {
            let sent = model.send(request);
            match self.ask(&sent, on_stop)? {
                Reply::Whole(answer) => {
                    let verdict = if is_refusal(&answer) {
                        // Nobody is told what isn't so: what came of the command is open, as with any other error.
                        let end = if sent.request().quiet { "MN\r\n" } else { "" };
                        model.check(&sent, format!("SERVER_ERROR refused\r\n{end}").as_bytes())
                    } else {
                        model.check(&sent, &answer)
                    };
                    seen(&sent, &answer, &verdict);
                }
                Reply::Ended(end) => return Ok(Some(end)),
            }
        }
        Ok(None)
    }

    /// Sends an administrative command whose answer is one line.
    pub fn order(&mut self, line: &str) -> Result<Option<End>, Error> {
        let is_line = |input: &[u8]| match input.ends_with(b"\r\n") {
            true => Framing::Whole(input.len()),
            false => Framing::Incomplete,
        };
        match self.exchange(format!("{line}\r\n").as_bytes(), &is_line, &mut |_| Ok(Some(Stop::Trap)))? {
            Reply::Whole(_) => Ok(None),
            Reply::Ended(end) => Ok(Some(end)),
        }
    }

    /// What the server has noticed, as soon as everything executed so far was executed again.
    pub fn findings(&mut self, on_stop: OnStop<'_>) -> Result<Result<Findings, End>, Error> {
        let (mut last, mut changed) = (Findings::default(), Instant::now());
        loop {
            let is_end = |input: &[u8]| match input.ends_with(b"END\r\n") || input.starts_with(b"ERROR") {
                true => Framing::Whole(input.len()),
                false => Framing::Incomplete,
            };
            let answer = match self.exchange(b"stats integrity\r\n", &is_end, on_stop)? {
                Reply::Whole(answer) => answer,
                Reply::Ended(end) => return Ok(Err(end)),
            };
            let (findings, is_complete) = read_findings(&answer);
            if findings != last {
                (last, changed) = (findings, Instant::now());
            }
            // After a fault the numbers may never meet again.
            if is_complete || !self.mode.has_validator() || changed.elapsed() > CATCH_UP {
                return Ok(Ok(findings));
            }
            thread::sleep(PERIOD);
        }
    }

    /// Ends the server at once, which a damaged one may not do by itself.
    pub fn kill(self) {
        if let Some(pid) = Pid::from_raw(self.server.pid().cast_signed()) {
            // It is a child that was not waited for, so the number is still its own.
            let _ = kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

enum Pumped {
    Nothing,
    Stopped,
    Ended(End),
}

/// How long something has not gone on.
struct Wait {
    progress: Instant,
    began: Instant,
    looks: u32,
    ticks: Option<u64>,
}

impl Wait {
    fn begin() -> Self {
        Wait { progress: Instant::now(), began: Instant::now(), looks: 0, ticks: None }
    }

    fn note_progress(&mut self) {
        self.progress = Instant::now();
        self.looks = 0;
        self.ticks = None;
    }

    fn pause(&mut self) {
        self.looks += 1;
        if self.looks < LOOKS { thread::yield_now() } else { thread::sleep(PERIOD) }
    }

    /// Whether this is a hang: it sleeps, or computes, for too long.
    fn goes_too_far(&mut self, tracee: &Tracee) -> bool {
        if self.progress.elapsed() < ASLEEP / 4 || !self.looks.is_multiple_of(64) {
            return false;
        }
        if self.progress.elapsed() > PATIENCE || self.began.elapsed() > 3 * PATIENCE {
            return true;
        }
        let Some((is_asleep, ticks)) = activity(tracee) else { return true };
        let since = *self.ticks.get_or_insert(ticks);
        is_asleep && self.progress.elapsed() > ASLEEP || ticks.saturating_sub(since) > BUSY_TICKS
    }
}

/// Whether a thread sleeps, and the processor time it has used, in ticks.
fn activity(tracee: &Tracee) -> Option<(bool, u64)> {
    let path = format!("/proc/{}/task/{}/stat", tracee.process(), tracee.thread());
    let text = std::fs::read_to_string(path).ok()?;
    // The name stands in parentheses and may hold blanks.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some((*fields.first()? == "S", ticks(11)? + ticks(12)?))
}

fn read_findings(answer: &[u8]) -> (Findings, bool) {
    let text = String::from_utf8_lossy(answer);
    let pairs: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.trim_end().strip_prefix("STAT ")?.split_once(' ')).collect();
    let number = |name: &str| pairs.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let seen = number("validated") + number("dropped") + number("abandoned") + number("skipped");
    let findings = Findings {
        disagreements: number("disagreements"),
        damaged: number("crc_mismatches"),
        refused: number("checked_refused"),
        executed: number("executed"),
        validated: number("validated"),
    };
    // What did not agree isn't validated.
    let is_complete =
        seen + number("repeated") + findings.disagreements >= findings.executed && number("replica_lag") == 0;
    (findings, is_complete)
}

/// Whether an answer is an error that none of our commands deserves. The only one that some do deserve is about numbers.
fn is_refusal(answer: &[u8]) -> bool {
    let is_error = answer.starts_with(b"CLIENT_ERROR ") || answer.starts_with(b"ERROR");
    is_error && !answer.starts_with(b"CLIENT_ERROR cannot increment")
}

fn crash(signal: Signal) -> End {
    End::Crash(signal.as_str().to_string())
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_complete_when_all_was_seen() {
        let answer = |validated: u64, lag: u64| {
            format!(
                "STAT executed 12\r\nSTAT validated {validated}\r\nSTAT dropped 1\r\nSTAT abandoned 0\r\nSTAT skipped 2\r\n\
                 STAT disagreements 3\r\nSTAT disagreements:reply 3\r\nSTAT crc_mismatches 1\r\nSTAT replica_lag {lag}\r\nEND\r\n"
            )
        };
        for (validated, lag, is_complete) in [(6, 0, true), (5, 0, false), (6, 1, false)] {
            let (findings, complete) = read_findings(answer(validated, lag).as_bytes());
            assert_eq!(complete, is_complete, "{validated} {lag}");
            assert_eq!((findings.disagreements, findings.damaged, findings.refused), (3, 1, 0));
        }
    }

    #[test]
    fn something_new_is_a_finding() {
        let before = Findings { disagreements: 1, ..Findings::default() };
        assert!(!before.exceed(&before));
        assert!(!Findings { executed: 9, ..before }.exceed(&before));
        assert!(Findings { damaged: 1, ..before }.exceed(&before));
        assert!(Findings { refused: 1, ..before }.exceed(&before));
    }
}
