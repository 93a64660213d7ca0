//! A lean closed-loop generator: one thread, many connections, every byte of every reply compared.
//!
//! A connection sends a batch of requests, waits for all replies, and sends the next. Values follow from their keys,
//! so the expected replies are known before they arrive.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::error::Error;
use crate::random::{Random, mix};

/// What a batch consists of.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Nine gets to one set, `depth` requests in a batch.
    Mixed { depth: usize },
    /// One get of this many keys; each key counts as a request.
    Multiget { keys: usize },
}

pub(super) struct Generator {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    shape: Shape,
    keys: u64,
    random: Random,
    received: Box<[u8]>,
}

struct Connection {
    stream: TcpStream,
    requests: Vec<u8>,
    sent: usize,
    expected: Vec<u8>,
    matched: usize,
    batch: u64,
}

impl Generator {
    pub(super) fn connect(
        address: SocketAddr,
        connections: usize,
        shape: Shape,
        keys: u64,
        seed: u64,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let connections = (0..connections)
            .map(|index| {
                let stream = std::net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut stream = TcpStream::from_std(stream);
                poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
                Ok(Connection {
                    stream,
                    requests: Vec::new(),
                    sent: 0,
                    expected: Vec::new(),
                    matched: 0,
                    batch: 0,
                })
            })
            .collect::<io::Result<_>>()?;
        let received = vec![0; 256 * 1024].into_boxed_slice();
        let events = Events::with_capacity(1024);
        Ok(Generator { poll, events, connections, shape, keys, random: Random::new(seed), received })
    }

    /// Loads the server for this long; the number of requests answered. Ends with every reply received.
    pub(super) fn run(&mut self, time: Duration) -> Result<u64, Error> {
        let deadline = Instant::now() + time;
        let mut answered = 0;
        let mut busy = 0;
        for index in 0..self.connections.len() {
            self.send_batch(index)?;
            busy += 1;
        }
        while busy > 0 {
            self.poll.poll(&mut self.events, Some(Duration::from_secs(5))).map_err(broken)?;
            if self.events.is_empty() {
                return Err(Error::Failed("the server has not answered for 5 s".into()));
            }
            let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
            let go_on = Instant::now() < deadline;
            for index in ready {
                let connection = &mut self.connections[index];
                if connection.batch == 0 || !connection.receive(&mut self.received)? {
                    continue;
                }
                answered += std::mem::take(&mut connection.batch);
                if go_on {
                    self.send_batch(index)?;
                } else {
                    busy -= 1;
                }
            }
        }
        Ok(answered)
    }

    fn send_batch(&mut self, index: usize) -> Result<(), Error> {
        let connection = &mut self.connections[index];
        connection.requests.clear();
        connection.expected.clear();
        connection.sent = 0;
        connection.matched = 0;
        let (requests, expected) = (&mut connection.requests, &mut connection.expected);
        match self.shape {
            Shape::Mixed { depth } => {
                for _ in 0..depth {
                    let key = self.random.below(self.keys);
                    if self.random.below(10) == 0 {
                        push_set(requests, 16, 32, key, false);
                        expected.extend_from_slice(b"STORED\r\n");
                    } else {
                        requests.extend_from_slice(b"get ");
                        push_key(requests, 16, key);
                        requests.extend_from_slice(b"\r\n");
                        push_hit(expected, key);
                        expected.extend_from_slice(b"END\r\n");
                    }
                }
                connection.batch = depth as u64;
            }
            Shape::Multiget { keys } => {
                requests.extend_from_slice(b"get");
                for _ in 0..keys {
                    let key = self.random.below(self.keys);
                    requests.push(b' ');
                    push_key(requests, 16, key);
                    push_hit(expected, key);
                }
                requests.extend_from_slice(b"\r\n");
                expected.extend_from_slice(b"END\r\n");
                connection.batch = keys as u64;
            }
        }
        connection.send()
    }
}

impl Connection {
    fn send(&mut self) -> Result<(), Error> {
        while self.sent < self.requests.len() {
            match self.stream.write(&self.requests[self.sent..]) {
                Ok(count) => self.sent += count,
                // A batch is far smaller than a socket buffer, and the last one was answered.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Takes what has arrived and compares it; whether the whole batch is answered.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<bool, Error> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(Error::Failed("the server closed a connection".into())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(broken(error)),
            };
            let rest = &self.expected[self.matched..];
            if rest.get(..count) != Some(&buffer[..count]) {
                let got = String::from_utf8_lossy(&buffer[..count.min(200)]).into_owned();
                let wanted = String::from_utf8_lossy(&rest[..rest.len().min(200)]).into_owned();
                return Err(Error::Failed(format!("wrong reply: {got:?} instead of {wanted:?}")));
            }
            self.matched += count;
            if self.matched == self.expected.len() {
                return Ok(true);
            }
        }
    }
}

/// Stores `items` items with quiet sets, and waits until the server has done the last.
pub(super) fn fill(
    address: SocketAddr,
    key_bytes: usize,
    value_bytes: usize,
    items: u64,
) -> Result<(), Error> {
    let mut stream = std::net::TcpStream::connect(address).map_err(broken)?;
    let mut batch = Vec::with_capacity(128 * 1024);
    for key in 0..items {
        push_set(&mut batch, key_bytes, value_bytes, key, true);
        if batch.len() > 64 * 1024 {
            stream.write_all(&batch).map_err(broken)?;
            batch.clear();
        }
    }
    batch.extend_from_slice(b"mn\r\n");
    stream.write_all(&batch).map_err(broken)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).map_err(broken)?;
    match &reply == b"MN\r\n" {
        true => Ok(()),
        false => Err(Error::Failed(format!("wrong reply to mn: {:?}", String::from_utf8_lossy(&reply)))),
    }
}

/// `k`, then the number in decimal with leading zeros.
fn push_key(out: &mut Vec<u8>, key_bytes: usize, key: u64) {
    out.push(b'k');
    let start = out.len();
    out.resize(start + key_bytes - 1, b'0');
    let mut rest = key;
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Sixteen hexadecimal digits that follow from the key, over and over.
fn push_value(out: &mut Vec<u8>, value_bytes: usize, key: u64) {
    let mut word = mix(key);
    for index in 0..value_bytes {
        if index % 16 == 0 {
            word = mix(key ^ index as u64);
        }
        out.push(b"0123456789abcdef"[(word >> (index % 16 * 4)) as usize & 15]);
    }
}

fn push_set(out: &mut Vec<u8>, key_bytes: usize, value_bytes: usize, key: u64, quiet: bool) {
    out.extend_from_slice(b"set ");
    push_key(out, key_bytes, key);
    out.extend_from_slice(format!(" 0 0 {value_bytes}").as_bytes());
    out.extend_from_slice(if quiet { b" noreply\r\n" } else { b"\r\n" });
    push_value(out, value_bytes, key);
    out.extend_from_slice(b"\r\n");
}

fn push_hit(out: &mut Vec<u8>, key: u64) {
    out.extend_from_slice(b"VALUE ");
    push_key(out, 16, key);
    out.extend_from_slice(b" 0 32\r\n");
    push_value(out, 32, key);
    out.extend_from_slice(b"\r\n");
}

fn broken(error: io::Error) -> Error {
    Error::Failed(format!("connection to the server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_they_should_be() {
        let mut out = Vec::new();
        push_set(&mut out, 6, 4, 42, true);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("set k00042 0 0 4 noreply\r\n"), "{text}");
        assert_eq!(text.len(), "set k00042 0 0 4 noreply\r\n".len() + 4 + 2);
    }

    #[test]
    fn a_value_follows_from_its_key() {
        let value = |key| {
            let mut out = Vec::new();
            push_value(&mut out, 40, key);
            out
        };
        assert_eq!(value(7), value(7));
        assert_ne!(value(7), value(8));
        assert_ne!(value(7)[..16], value(7)[16..32]);
    }
}
