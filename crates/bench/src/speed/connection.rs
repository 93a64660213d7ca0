//! One connection of a client that waits for every answer, as simple clients do.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use protocol::reply::{self, Reply, Step};

use crate::error::Error;
use crate::interrupt;

/// How long a server may take to accept, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a wait looks whether somebody wants the command to stop.
const PERIOD: Duration = Duration::from_millis(100);

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// The longest answer that is kept: a dump of a whole store as one line. A longer one is refused as no answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Characters of a strange answer that are shown.
const SHOWN_CHARS: usize = 60;

/// Where a server listens, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    text: String,
    found: SocketAddr,
}

impl Address {
    /// Takes `HOST:PORT` and looks the host up.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
            return Err(Error::Usage(format!(
                "\"{text}\" is no address; write HOST:PORT, as 127.0.0.1:11211"
            )));
        }
        let mut found = text.to_socket_addrs().map_err(|error| {
            Error::Unavailable(format!("{text} can't be looked up: {error}; check the host's name"))
        })?;
        let found = found.next().ok_or_else(|| Error::Unavailable(format!("{text} has no address")))?;
        Ok(Address { text: text.to_string(), found })
    }
}

impl From<SocketAddr> for Address {
    fn from(found: SocketAddr) -> Self {
        Address { text: found.to_string(), found }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody accepts.
    Refused(String),
    /// The connection ended before the answer did.
    Gone(String),
    /// Nothing came for [`PATIENCE`].
    Silent,
    /// What came is no answer of this protocol; its beginning.
    Garbled(String),
    /// Somebody wants the command to stop.
    Interrupted,
}

impl Failure {
    /// What it means for a command that can't go on.
    pub(crate) fn about(self, address: &Address, protocol: &str) -> Error {
        match self {
            Failure::Refused(why) => Error::Unavailable(format!(
                "{address} can't be reached ({why}); is the server running there?"
            )),
            Failure::Gone(why) => {
                Error::Unavailable(format!("{address} went away ({why}); look at the server's log"))
            }
            Failure::Silent => {
                let limit = PATIENCE.as_secs();
                Error::Unavailable(format!(
                    "{address} did not answer for {limit} s; look at the server's log"
                ))
            }
            Failure::Garbled(shown) => Error::Wrong(format!(
                "{address} does not answer as a server of {protocol}: \"{shown}\"; check the port"
            )),
            Failure::Interrupted => Error::Interrupted,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(why) => write!(out, "no connection: {why}"),
            Failure::Gone(why) => write!(out, "the connection ended: {why}"),
            Failure::Silent => write!(out, "no answer for {} s", PATIENCE.as_secs()),
            Failure::Garbled(shown) => write!(out, "no answer of this protocol: \"{shown}\""),
            Failure::Interrupted => out.write_str("interrupted"),
        }
    }
}

/// The beginning of bytes from outside, fit for one line of a terminal.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(4 * SHOWN_CHARS)];
    let text = String::from_utf8_lossy(line);
    text.trim_end().chars().take(SHOWN_CHARS).map(|one| if one.is_control() { '.' } else { one }).collect()
}

/// A connection; after a [`Failure`] it must be dropped, since nobody knows what its next bytes belong to.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// What came and was not taken yet lies from `used` to `end`.
    buffer: Vec<u8>,
    used: usize,
    end: usize,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: &Address) -> Result<Self, Failure> {
        let refused = |error: io::Error| Failure::Refused(error.to_string());
        let stream = TcpStream::connect_timeout(&address.found, PATIENCE).map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        stream.set_read_timeout(Some(PERIOD)).map_err(refused)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(refused)?;
        Ok(Connection { stream, buffer: vec![0; READ_BYTES], used: 0, end: 0 })
    }

    /// Writes a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(request).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Silent,
            _ => Failure::Gone(error.to_string()),
        })
    }

    /// Waits for one of memcached's replies and shows it.
    pub(crate) fn reply<T>(&mut self, see: impl FnOnce(Reply<'_>) -> T) -> Result<T, Failure> {
        let mut worth_a_look = 1;
        loop {
            let waiting = &self.buffer[self.used..self.end];
            if waiting.len() >= worth_a_look {
                match reply::parse(waiting) {
                    Step::Reply { reply: Reply::Other(line), .. } => {
                        return Err(Failure::Garbled(shown(line)));
                    }
                    Step::Reply { reply, used } => {
                        let seen = see(reply);
                        self.used += used;
                        return Ok(seen);
                    }
                    Step::Garbage => return Err(Failure::Garbled(shown(waiting))),
                    Step::Incomplete { needed } => worth_a_look = needed,
                }
            }
            self.read_more()?;
        }
    }

    /// Waits until there is more. An answer that is not whole when the connection ends is none.
    fn read_more(&mut self) -> Result<(), Failure> {
        self.make_room()?;
        let mut began = None;
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) if self.end == 0 => return Err(Failure::Gone("closed by the server".to_string())),
                Ok(0) => return Err(Failure::Gone("closed within an answer".to_string())),
                Ok(read) => {
                    self.end += read;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if interrupt::is_requested() {
                        return Err(Failure::Interrupted);
                    }
                    // The first period has passed already; the clock is not looked at where answers come at once.
                    if began.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(Failure::Silent);
                    }
                }
                Err(error) => return Err(Failure::Gone(error.to_string())),
            }
        }
    }

    /// Moves what is unread to the front, and doubles a buffer that is full, up to [`ANSWER_BYTES_MAX`].
    fn make_room(&mut self) -> Result<(), Failure> {
        self.buffer.copy_within(self.used..self.end, 0);
        self.end -= self.used;
        self.used = 0;
        if self.end == self.buffer.len() {
            if self.end >= ANSWER_BYTES_MAX {
                return Err(Failure::Garbled(shown(&self.buffer)));
            }
            self.buffer.resize(2 * self.end, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(Address::parse("127.0.0.1:11211").expect("an address").to_string(), "127.0.0.1:11211");
        for text in ["", "here", ":11211", "here:", "127.0.0.1:65536", "127.0.0.1:http"] {
            assert_eq!(Address::parse(text).expect_err(text).exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn what_is_shown_of_strange_bytes_is_one_short_line() {
        assert_eq!(shown(b"HTTP/1.1 400 Bad Request\r\nServer: x"), "HTTP/1.1 400 Bad Request");
        assert_eq!(shown(b"\x1b[2Jx\x07\n"), ".[2Jx.");
        assert_eq!(shown(&[b'x'; 1000]).len(), SHOWN_CHARS);
    }
}
