//! The servers that are measured: their addresses, connections to them, and what they say of themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// memcached's own port, where an address names none.
pub const PORT: u16 = 11211;

/// How long a server may take to accept a connection, and to answer a command that is no measurement.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Lines of statistics that are read at most; a server that sends more is not believed to end.
const STATS_LINES_MAX: usize = 100_000;

/// The longest line of a reply that is read here.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Where a server listens.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// A host or its number, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    /// `host`, `host:port`, `[::1]:port`, `unix:/path` or `/path`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            return match path.is_empty() {
                true => Err(Error::Usage(format!("{text}: name the socket's path, as unix:/run/cache.sock"))),
                false => Ok(Address::Unix(path.into())),
            };
        }
        let (host, port) = match text.rsplit_once(':') {
            // A number of IPv6 without brackets has no port.
            Some((host, _)) if host.contains(':') && !host.starts_with('[') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| port));
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port {
            Err(port) => {
                Err(Error::Usage(format!("{text}: {port:?} is no port; write host:port or unix:/path")))
            }
            Ok(_) if host.is_empty() => {
                Err(Error::Usage(format!("{text:?} names no host; write host:port or unix:/path")))
            }
            Ok(port) => Ok(Address::Tcp(host.to_string(), port)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(out, "{host}:{port}"),
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address.ip().to_string(), address.port())
    }
}

impl Address {
    /// Whether the way to it leaves this machine.
    pub fn is_remote(&self) -> bool {
        match self {
            Address::Unix(_) => false,
            Address::Tcp(host, port) => match (host.as_str(), *port).to_socket_addrs() {
                Ok(mut found) => found.any(|address| !address.ip().is_loopback()),
                Err(_) => true,
            },
        }
    }

    /// A blocking connection, without delay for small packets, that gives up after `patience`.
    pub fn connect(&self, patience: Duration) -> Result<Stream, Error> {
        let stream = match self {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(host, port) => connect_tcp(host, *port, patience).map(Stream::Tcp),
        };
        let stream = stream.and_then(|stream| {
            stream.set_patience(Some(patience))?;
            Ok(stream)
        });
        stream.map_err(|error| self.unavailable(&error))
    }

    /// Why no connection was made, and what may help.
    fn unavailable(&self, error: &io::Error) -> Error {
        let hint = match error.kind() {
            ErrorKind::ConnectionRefused => "nobody listens there; is the server running?",
            ErrorKind::NotFound => "there is no such socket; is the server running?",
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer; is the address right?",
            ErrorKind::PermissionDenied => "permission denied",
            _ => return Error::Unavailable(format!("{self} can't be reached: {error}")),
        };
        Error::Unavailable(format!("{self} can't be reached: {hint}"))
    }
}

/// Tries every address that the name has.
fn connect_tcp(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::AddrNotAvailable, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A connection to a server.
#[derive(Debug)]
pub enum Stream {
    /// Over a network, or loopback.
    Tcp(TcpStream),
    /// Within this machine.
    Unix(UnixStream),
}

impl Stream {
    /// How long a read or write may take; nothing: for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)
            }
        }
    }

    /// From here on reads and writes return at once.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

/// What a server answers to `stats <words>`, by name; `words` may be empty. A server that does not know them is
/// [`Error::Wrong`].
pub fn stats(address: &Address, words: &str) -> Result<BTreeMap<String, String>, Error> {
    let command = if words.is_empty() { "stats".to_string() } else { format!("stats {words}") };
    let mut found = BTreeMap::new();
    let mut stream = ask(address, &command)?;
    for _ in 0..STATS_LINES_MAX {
        let line = read_line(address, &mut stream)?;
        if line == "END" || line == "RESET" {
            return Ok(found);
        }
        let Some(pair) = line.strip_prefix("STAT ") else { return Err(strange(address, &command, &line)) };
        let (name, value) = pair.split_once(' ').unwrap_or((pair, ""));
        found.insert(name.to_string(), value.to_string());
    }
    Err(Error::Wrong(format!("{address} sends more than {STATS_LINES_MAX} lines to {command:?}")))
}

/// The number that one of these statistics says; nothing if there is none.
pub fn number(stats: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    stats.get(name)?.parse().ok()
}

/// What a server answers to `version`, without the word itself.
pub fn version(address: &Address) -> Result<String, Error> {
    let mut stream = ask(address, "version")?;
    let line = read_line(address, &mut stream)?;
    match line.strip_prefix("VERSION ") {
        Some(version) => Ok(version.to_string()),
        None => Err(strange(address, "version", &line)),
    }
}

fn ask(address: &Address, command: &str) -> Result<BufReader<Stream>, Error> {
    let mut stream = address.connect(PATIENCE)?;
    let sent = stream.write_all(format!("{command}\r\n").as_bytes());
    sent.map_err(|error| Error::Unavailable(format!("{address} does not take {command:?}: {error}")))?;
    Ok(BufReader::new(stream))
}

/// One line without its end.
fn read_line(address: &Address, stream: &mut BufReader<Stream>) -> Result<String, Error> {
    let mut line = Vec::new();
    let read = stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let seconds = PATIENCE.as_secs();
            Err(Error::Unavailable(format!("{address} has not answered for {seconds} s")))
        }
        Err(error) => Err(Error::Unavailable(format!("{address} ended the connection: {error}"))),
        Ok(_) if line.last() != Some(&b'\n') => {
            Err(Error::Unavailable(format!("{address} ended the connection within an answer")))
        }
        Ok(_) => Ok(String::from_utf8_lossy(&line).trim_end().to_string()),
    }
}

/// What is no answer of memcached's protocol, with its beginning.
fn strange(address: &Address, command: &str, line: &str) -> Error {
    let shown: String = line.chars().take(60).collect();
    Error::Wrong(format!("{address} answers {shown:?} to {command:?}; does it speak memcached's protocol?"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let tcp = |host: &str, port| Address::Tcp(host.to_string(), port);
        for (text, address, shown) in [
            ("10.0.0.1:5", tcp("10.0.0.1", 5), "10.0.0.1:5"),
            ("cache", tcp("cache", PORT), "cache:11211"),
            ("[::1]:5", tcp("::1", 5), "[::1]:5"),
            ("::1", tcp("::1", PORT), "[::1]:11211"),
            ("/run/x", Address::Unix("/run/x".into()), "unix:/run/x"),
            ("unix:x", Address::Unix("x".into()), "unix:x"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap(), address);
            assert_eq!(address.to_string(), shown);
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
        }
        for text in ["", ":5", "host:", "host:x", "host:70000", "unix:"] {
            let error = text.parse::<Address>().expect_err(text);
            assert_eq!(error.exit_code(), 2, "{text:?}: {error}");
        }
    }

    /// Answers one connection with these bytes and closes it.
    fn scripted(answer: &'static [u8]) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        });
        address
    }

    #[test]
    fn statistics_are_read() {
        let found = stats(&scripted(b"STAT evictions 3\r\nSTAT x y z\r\nEND\r\n"), "integrity").unwrap();
        assert_eq!(number(&found, "evictions"), Some(3));
        assert_eq!(found["x"], "y z");
        assert_eq!(number(&found, "x"), None);
        assert_eq!(version(&scripted(b"VERSION 1.6\r\n")).unwrap(), "1.6");
    }

    #[test]
    fn other_answers_are_told() {
        for (answer, code, word) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], 1, "HTTP/1.1 400"),
            (b"STAT a 1\r\nSTA", 69, "within an answer"),
            (b"", 69, "connection"),
        ] {
            let error = stats(&scripted(answer), "").expect_err("no statistics");
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn nobody_there_is_said() {
        // Bound and dropped: the port is free, and nobody else is told to use it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Address::from(address).connect(PATIENCE).expect_err("nobody listens");
        assert!(error.to_string().contains("nobody listens"), "{error}");
        let missing: Address = "unix:/nonexistent/socket".parse().unwrap();
        assert!(missing.connect(PATIENCE).expect_err("no file").to_string().contains("no such socket"));
    }
}
