//! A connection that sends a workload and has each answer judged.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Kind;
use super::model::{Model, Sent, Verdict};
use super::request::{Framing, Request};

/// No more commands are sent before answers came, when what was sent, or what is to be answered, is so long. So it all
/// fits into the sockets' buffers, and neither side waits for the other one to read.
const FLIGHT_BYTES: usize = 48 << 10;

/// What is read at a time.
const READ_BYTES: usize = 64 << 10;

/// How many answers there were of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As they should be.
    pub correct: u64,
    /// Legal, and not as expected.
    pub false_misses: u64,
    /// `SERVER_ERROR`
    pub refused: u64,
    /// By kind, in the order of [`Kind::ALL`].
    pub wrong: [u64; Kind::ALL.len()],
}

impl Tally {
    /// Counts one.
    pub fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Correct => self.correct += 1,
            Verdict::FalseMiss => self.false_misses += 1,
            Verdict::Refused => self.refused += 1,
            Verdict::Wrong { kind, .. } => {
                let place = Kind::ALL.iter().position(|it| it == kind).expect("all kinds are there");
                self.wrong[place] += 1;
            }
        }
    }

    /// All answers that can't be.
    #[must_use]
    pub fn wrong_in_all(&self) -> u64 {
        self.wrong.iter().sum()
    }

    /// All answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.correct + self.false_misses + self.refused + self.wrong_in_all()
    }
}

/// Why a connection is of no use any more.
#[derive(Debug)]
pub enum Broken {
    /// Nothing came for as long as was agreed.
    Silent,
    /// The server closed it, or ended.
    Closed,
    /// What came is no answer; what would come behind it is for nobody to know.
    Garbage(String),
    /// The system's own words.
    Io(io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Silent => out.write_str("the server does not answer"),
            Broken::Closed => out.write_str("the server closed the connection"),
            Broken::Garbage(text) => write!(out, "the server answers what is no answer: {text}"),
            Broken::Io(error) => write!(out, "connection to the server: {error}"),
        }
    }
}

impl std::error::Error for Broken {}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    flight: VecDeque<Sent>,
    unread: Vec<u8>,
    space: Vec<u8>,
}

impl Client {
    /// Connects; `patience` is how long anything may take, from then on.
    pub fn connect(address: SocketAddr, patience: Duration) -> Result<Self, Broken> {
        let stream = TcpStream::connect_timeout(&address, patience).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        stream.set_read_timeout(Some(patience)).map_err(broken)?;
        stream.set_write_timeout(Some(patience)).map_err(broken)?;
        Ok(Client { stream, flight: VecDeque::new(), unread: Vec::new(), space: vec![0; READ_BYTES] })
    }

    /// Sends commands, up to `depth` of them before an answer has come, and has the answers judged. `seen` is told of
    /// each verdict, and ends it all by `false`; what was sent by then is answered first.
    ///
    /// What was asked and not answered when this fails may have been done or not: a model that has seen it is of no
    /// further use.
    pub fn run(
        &mut self,
        model: &mut Model,
        requests: impl IntoIterator<Item = Request>,
        depth: usize,
        mut seen: impl FnMut(&Sent, &Verdict) -> bool,
    ) -> Result<(), Broken> {
        let mut requests = requests.into_iter().peekable();
        let mut goes_on = true;
        loop {
            let mut bytes = Vec::new();
            let mut to_answer: usize = self.flight.iter().map(|it| model.answer_bytes(it.request())).sum();
            while goes_on && self.flight.len() < depth.max(1) {
                let Some(request) = requests.next_if(|request| {
                    to_answer += model.answer_bytes(request);
                    self.flight.is_empty() || bytes.len().max(to_answer) < FLIGHT_BYTES
                }) else {
                    break;
                };
                let sent = model.send(request);
                bytes.extend_from_slice(sent.bytes());
                self.flight.push_back(sent);
            }
            self.stream.write_all(&bytes).map_err(broken)?;
            if self.flight.is_empty() {
                return Ok(());
            }
            self.receive(model, &mut |sent, verdict| goes_on &= seen(sent, verdict))?;
        }
    }

    /// Takes one answer at least, and what else has come.
    fn receive(&mut self, model: &mut Model, seen: &mut dyn FnMut(&Sent, &Verdict)) -> Result<(), Broken> {
        let mut used = 0;
        loop {
            while let Some(sent) = self.flight.front() {
                let input = &self.unread[used..];
                let len = match sent.request().framing(input) {
                    Framing::Incomplete => break,
                    Framing::Garbage => return Err(Broken::Garbage(shown(input))),
                    Framing::Whole(len) => len,
                };
                let verdict = model.check(sent, &input[..len]);
                seen(sent, &verdict);
                used += len;
                self.flight.pop_front();
            }
            if used > 0 {
                self.unread.drain(..used);
                let is_more = self.flight.is_empty() && !self.unread.is_empty();
                return if is_more { Err(Broken::Garbage(shown(&self.unread))) } else { Ok(()) };
            }
            match self.stream.read(&mut self.space).map_err(broken)? {
                0 => return Err(Broken::Closed),
                len => self.unread.extend_from_slice(&self.space[..len]),
            }
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(100)].escape_ascii().to_string()
}

fn broken(error: io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Broken::Silent,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            Broken::Closed
        }
        _ => Broken::Io(error),
    }
}
