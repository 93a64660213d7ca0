//! Asking a server for its statistics. What comes back are bytes from outside: bounded in time, lines and bytes.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::Address;

/// How long each address of the server may take to accept, and each question to be answered.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest line that is taken, and the most lines of an answer; beyond, the answer is refused.
const LINE_BYTES_MAX: usize = 64 << 10;
const LINES_MAX: usize = 10_000;

/// Bytes of an answer that is not understood which are shown.
const SHOWN_BYTES_MAX: usize = 60;

/// Keys and values in the order they came.
pub(super) type Stats = Vec<(String, String)>;

/// What a server said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// `stats integrity`. Printable ASCII only.
    pub(super) stats: Stats,
    /// `stats disagreements`: its last disagreements, a line of `name=value` pairs each, if it tells them.
    pub(super) recent: Option<Vec<String>>,
}

impl Answer {
    /// What the server said of a key; of the last one if it came several times.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.stats.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The cores the server has left, if there are any.
    pub(super) fn quarantined(&self) -> Option<&str> {
        self.value("quarantined_cores").filter(|cores| !matches!(*cores, "" | "none"))
    }

    /// Whether no executions disagreed and no core was left.
    pub(super) fn is_clean(&self) -> bool {
        self.value("disagreements").is_none_or(|count| count == "0") && self.quarantined().is_none()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// The server can't be reached.
    Unreachable(Address, io::Error),
    /// It took the question and did not answer in time, or hung up.
    Silent(Address, io::Error),
    /// It answered, but has no such statistics.
    NothingSaid(Address),
    /// It answered something else.
    Strange(Address, String),
    /// Its answer is longer than any answer can be.
    TooLong(Address),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unreachable(address, error) => {
                write!(
                    f,
                    "cannot reach {address}: {}; is the server running? --addr names another",
                    why(error)
                )
            }
            Problem::Silent(address, error) => {
                write!(f, "{address} does not answer: {}; is it a memcached port?", why(error))
            }
            Problem::NothingSaid(address) => {
                write!(f, "{address}: this server does not say anything about integrity; is it veracache?")
            }
            Problem::Strange(address, text) => {
                write!(f, "{address} answers \"{text}\" to \"stats integrity\"; is it a memcached port?")
            }
            Problem::TooLong(address) => {
                write!(
                    f,
                    "{address} answers too much: a line over {LINE_BYTES_MAX} bytes, or {LINES_MAX} lines"
                )
            }
        }
    }
}

/// What went wrong, without the number of the error.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("nothing came in {} seconds", PATIENCE.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}

/// Asks a server what it says of integrity.
pub(super) fn ask(address: &Address) -> Result<Answer, Problem> {
    let stream = connect(address).map_err(|error| Problem::Unreachable(address.clone(), error))?;
    let mut server = BufReader::new(Timed { stream, deadline: Instant::now() + PATIENCE });
    let stats = group(&mut server, "integrity", address)?;
    if stats.is_empty() {
        return Err(Problem::NothingSaid(address.clone()));
    }
    let recent = match group(&mut server, "disagreements", address) {
        // There are many ways not to know a group.
        Err(Problem::Strange(..)) => Vec::new(),
        other => other?,
    };
    let recent = (!recent.is_empty()).then(|| recent.into_iter().map(|(_, line)| line).collect());
    Ok(Answer { stats, recent })
}

/// One group of statistics; empty when the server does not have it.
fn group(server: &mut BufReader<Timed>, name: &str, address: &Address) -> Result<Stats, Problem> {
    let timed = server.get_mut();
    timed.deadline = Instant::now() + PATIENCE;
    let sent = timed.stream.write_all(format!("stats {name}\r\n").as_bytes());
    let read = sent.map_err(Failure::from).and_then(|()| read_group(server));
    read.map_err(|failure| match failure {
        Failure::Lost(error) => Problem::Silent(address.clone(), error),
        Failure::Strange(text) => Problem::Strange(address.clone(), text),
        Failure::TooLong => Problem::TooLong(address.clone()),
    })
}

/// Why a group can't be read.
#[derive(Debug)]
enum Failure {
    Lost(io::Error),
    Strange(String),
    TooLong,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Lost(error)
    }
}

/// Lines up to the end of a group. A server that does not know a group says `ERROR`, and some say `RESET` or nothing.
fn read_group(server: &mut impl BufRead) -> Result<Stats, Failure> {
    let mut stats = Vec::new();
    for _ in 0..LINES_MAX {
        let line = read_line(server)?;
        match line.as_str() {
            "END" => return Ok(stats),
            "ERROR" | "RESET" if stats.is_empty() => return Ok(stats),
            _ => {}
        }
        let Some(stat) = line.strip_prefix("STAT ") else {
            return Err(Failure::Strange(line.chars().take(SHOWN_BYTES_MAX).collect()));
        };
        let (key, value) = stat.split_once(' ').unwrap_or((stat, ""));
        stats.push((key.to_owned(), value.to_owned()));
    }
    Err(Failure::TooLong)
}

/// A line without its end. What is not printable is shown as `\xNN`: it goes to a terminal.
fn read_line(server: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = Vec::new();
    let length = server.take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    if line.pop_if(|end| *end == b'\n').is_none() {
        return Err(if length > LINE_BYTES_MAX {
            Failure::TooLong
        } else {
            Failure::Lost(io::ErrorKind::UnexpectedEof.into())
        });
    }
    line.pop_if(|end| *end == b'\r');
    let mut text = String::with_capacity(line.len());
    for byte in line {
        match byte {
            b' '..=b'~' => text.push(char::from(byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    Ok(text)
}

/// A stream of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}

/// Reads until a deadline, however many pieces the bytes come in.
struct Timed {
    stream: Stream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(left)?;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

/// Connects to the first address of the server that accepts.
fn connect(address: &Address) -> io::Result<Stream> {
    let stream = match address {
        Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        Address::Tcp(name) => {
            let mut error = io::Error::other("the name has no address");
            let connected = name.to_socket_addrs()?.find_map(|one| {
                TcpStream::connect_timeout(&one, PATIENCE).map_err(|other| error = other).ok()
            });
            Stream::Tcp(connected.ok_or(error)?)
        }
    };
    stream.set_timeouts(PATIENCE)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: impl AsRef<[u8]>) -> Result<Stats, Failure> {
        read_group(&mut bytes.as_ref())
    }

    #[test]
    fn groups() {
        for (text, expected) in [
            ("END\r\n", &[][..]),
            ("ERROR\r\n", &[]),
            ("RESET\r\n", &[]),
            ("STAT a 1\r\nEND\r\n", &[("a", "1")]),
            ("STAT a 1\nEND\n", &[("a", "1")]),
            ("STAT a b  c \r\nSTAT d\r\nSTAT e \r\nEND\r\n", &[("a", "b  c "), ("d", ""), ("e", "")]),
            ("STAT a \x1b[2J\r\nEND\r\n", &[("a", "\\x1b[2J")]),
            ("STAT a ä\r\nEND\r\n", &[("a", "\\xc3\\xa4")]),
        ] {
            let stats = read(text).expect(text);
            let stats: Vec<_> = stats.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(stats, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_group() {
        for (text, shown) in [
            ("SERVER_ERROR out of memory\r\n", "SERVER_ERROR out of memory"),
            ("ERROR Too many open connections\r\n", "ERROR Too many open connections"),
            ("CLIENT_ERROR unauthenticated\r\n", "CLIENT_ERROR unauthenticated"),
            ("STAT a 1\r\nERROR\r\n", "ERROR"),
            ("STAT\r\n", "STAT"),
            ("\r\n", ""),
            ("\x1b[2J\r\n", "\\x1b[2J"),
        ] {
            assert!(matches!(read(text), Err(Failure::Strange(other)) if other == shown), "{text}");
        }
        assert!(matches!(read("x".repeat(100) + "\r\n"), Err(Failure::Strange(text)) if text.len() == 60));
        for text in ["", "STAT a 1\r\n", "STAT a 1\r\nEN", "END"] {
            assert!(matches!(read(text), Err(Failure::Lost(_))), "{text}");
        }
    }

    #[test]
    fn what_is_too_long() {
        let line = |bytes: usize| format!("STAT a {}\r\nEND\r\n", "x".repeat(bytes - "STAT a ".len()));
        assert!(read(line(LINE_BYTES_MAX)).is_ok());
        assert!(matches!(read(line(LINE_BYTES_MAX + 1)), Err(Failure::TooLong)));
        assert!(matches!(read("x".repeat(1 << 20)), Err(Failure::TooLong)));
        let lines = |count: usize| "STAT a 1\r\n".repeat(count) + "END\r\n";
        assert_eq!(read(lines(LINES_MAX - 1)).map(|stats| stats.len()).ok(), Some(LINES_MAX - 1));
        assert!(matches!(read(lines(LINES_MAX)), Err(Failure::TooLong)));
    }

    #[test]
    fn what_is_clean() {
        for (stats, is_clean) in [
            (&[][..], true),
            (&[("disagreements", "0")], true),
            (&[("disagreements", "0"), ("quarantined_cores", "none")], true),
            (&[("disagreements", "0"), ("quarantined_cores", "3")], false),
            (&[("disagreements", "1"), ("quarantined_cores", "none")], false),
            (&[("disagreements", "1")], false),
            (&[("disagreements", "?")], false),
        ] {
            let answer = Answer {
                stats: stats.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
                recent: None,
            };
            assert_eq!(answer.is_clean(), is_clean, "{stats:?}");
        }
    }
}
