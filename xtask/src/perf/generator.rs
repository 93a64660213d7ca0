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
    /// Sets only, `depth` requests in a batch.
    Updates { depth: usize },
    /// One get of this many keys; each key counts as a request.
    Multiget { keys: usize },
}

/// The items a server is filled with: how many, and how large. All keys are equally long, and so are all values.
#[derive(Clone, Copy)]
pub(super) struct Items {
    pub(super) count: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

/// When a run ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Elapsed(Duration),
    Answered(u64),
}

/// What a run did.
pub(super) struct Done {
    pub(super) answered: u64,
    pub(super) elapsed: Duration,
}

pub(super) struct Generator {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    shape: Shape,
    writer: Writer,
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
        items: Items,
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
        let (writer, random) = (Writer::new(items), Random::new(seed));
        Ok(Generator { poll, events, connections, shape, writer, random, received })
    }

    /// Loads the server until then. Ends with every reply received.
    pub(super) fn run(&mut self, until: Until) -> Result<Done, Error> {
        let started = Instant::now();
        let mut answered = 0;
        let mut busy = self.connections.len();
        let mut ready = Vec::with_capacity(busy);
        for index in 0..busy {
            self.send_batch(index)?;
        }
        while busy > 0 {
            self.poll.poll(&mut self.events, Some(Duration::from_secs(5))).map_err(broken)?;
            if self.events.is_empty() {
                return Err(Error::Failed("the server has not answered for 5 s".into()));
            }
            ready.clear();
            ready.extend(self.events.iter().map(|event| event.token().0));
            let go_on = match until {
                Until::Elapsed(time) => started.elapsed() < time,
                Until::Answered(count) => answered < count,
            };
            for &index in &ready {
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
        Ok(Done { answered, elapsed: started.elapsed() })
    }

    fn send_batch(&mut self, index: usize) -> Result<(), Error> {
        let connection = &mut self.connections[index];
        connection.requests.clear();
        connection.expected.clear();
        connection.sent = 0;
        connection.matched = 0;
        let (requests, expected) = (&mut connection.requests, &mut connection.expected);
        let (writer, keys) = (&self.writer, self.writer.items.count);
        match self.shape {
            Shape::Mixed { depth } => {
                for _ in 0..depth {
                    let key = self.random.below(keys);
                    if self.random.below(10) == 0 {
                        writer.push_set(requests, key, false);
                        expected.extend_from_slice(b"STORED\r\n");
                    } else {
                        requests.extend_from_slice(b"get ");
                        writer.push_key(requests, key);
                        requests.extend_from_slice(b"\r\n");
                        writer.push_hit(expected, key);
                        expected.extend_from_slice(b"END\r\n");
                    }
                }
                connection.batch = depth as u64;
            }
            Shape::Updates { depth } => {
                for _ in 0..depth {
                    writer.push_set(requests, self.random.below(keys), false);
                    expected.extend_from_slice(b"STORED\r\n");
                }
                connection.batch = depth as u64;
            }
            Shape::Multiget { keys: count } => {
                requests.extend_from_slice(b"get");
                for _ in 0..count {
                    let key = self.random.below(keys);
                    requests.push(b' ');
                    writer.push_key(requests, key);
                    writer.push_hit(expected, key);
                }
                requests.extend_from_slice(b"\r\n");
                expected.extend_from_slice(b"END\r\n");
                connection.batch = count as u64;
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

/// Stores every item once with quiet sets, and waits until the server has done the last.
pub(super) fn fill(address: SocketAddr, items: Items) -> Result<(), Error> {
    fill_in_steps(address, items, u64::MAX)
}

/// As [`fill`], waiting for the server each time so many were sent.
pub(super) fn fill_in_steps(address: SocketAddr, items: Items, step: u64) -> Result<(), Error> {
    let writer = Writer::new(items);
    let mut stream = std::net::TcpStream::connect(address).map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let mut batch = Vec::with_capacity(128 * 1024);
    for key in 0..items.count {
        writer.push_set(&mut batch, key, true);
        let is_step = (key + 1) % step == 0;
        if is_step || batch.len() > 64 * 1024 {
            stream.write_all(&batch).map_err(broken)?;
            batch.clear();
        }
        if is_step {
            wait_until_done(&mut stream)?;
        }
    }
    stream.write_all(&batch).map_err(broken)?;
    wait_until_done(&mut stream)
}

/// Waits until the server has done everything that was sent on this connection.
fn wait_until_done(stream: &mut std::net::TcpStream) -> Result<(), Error> {
    stream.write_all(b"mn\r\n").map_err(broken)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).map_err(broken)?;
    match &reply == b"MN\r\n" {
        true => Ok(()),
        false => Err(Error::Failed(format!("wrong reply to mn: {:?}", String::from_utf8_lossy(&reply)))),
    }
}

/// Bytes of the noise that values are cut from.
const NOISE_BYTES: usize = 1 << 16;

/// Writes requests and the replies expected to them. It copies rather than computes, to leave the server behind.
struct Writer {
    items: Items,
    /// Between the key of a set and its value, with `noreply` and without.
    set_tails: [String; 2],
    /// Between the key of a hit and its value.
    hit_tail: String,
    noise: Vec<u8>,
}

impl Writer {
    fn new(items: Items) -> Self {
        let Items { key_bytes, value_bytes, .. } = items;
        assert!(key_bytes > 1);
        let mut noise = Vec::with_capacity(NOISE_BYTES + value_bytes + 16);
        let mut word = 0;
        while noise.len() < NOISE_BYTES + value_bytes {
            word += 1;
            push_digits(&mut noise, mix(word));
        }
        Writer {
            items,
            set_tails: [format!(" 0 0 {value_bytes}\r\n"), format!(" 0 0 {value_bytes} noreply\r\n")],
            hit_tail: format!(" 0 {value_bytes}\r\n"),
            noise,
        }
    }

    /// `k`, then the number in decimal with leading zeros.
    fn push_key(&self, out: &mut Vec<u8>, key: u64) {
        out.push(b'k');
        let start = out.len();
        out.resize(start + self.items.key_bytes - 1, b'0');
        let mut rest = key;
        for digit in out[start..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// Sixteen hexadecimal digits that only this key has, then noise from a place that follows from the key.
    fn push_value(&self, out: &mut Vec<u8>, key: u64) {
        let end = out.len() + self.items.value_bytes;
        let word = mix(key);
        push_digits(out, word);
        if let Some(rest) = end.checked_sub(out.len()) {
            let place = word as usize % NOISE_BYTES;
            out.extend_from_slice(&self.noise[place..place + rest]);
        }
        out.truncate(end);
    }

    fn push_set(&self, out: &mut Vec<u8>, key: u64, quiet: bool) {
        out.extend_from_slice(b"set ");
        self.push_key(out, key);
        out.extend_from_slice(self.set_tails[usize::from(quiet)].as_bytes());
        self.push_value(out, key);
        out.extend_from_slice(b"\r\n");
    }

    fn push_hit(&self, out: &mut Vec<u8>, key: u64) {
        out.extend_from_slice(b"VALUE ");
        self.push_key(out, key);
        out.extend_from_slice(self.hit_tail.as_bytes());
        self.push_value(out, key);
        out.extend_from_slice(b"\r\n");
    }
}

/// Sixteen hexadecimal digits, the lowest first.
fn push_digits(out: &mut Vec<u8>, word: u64) {
    let digits: [u8; 16] =
        std::array::from_fn(|index| b"0123456789abcdef"[(word >> (index * 4)) as usize & 15]);
    out.extend_from_slice(&digits);
}

fn broken(error: io::Error) -> Error {
    Error::Failed(format!("connection to the server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(key_bytes: usize, value_bytes: usize) -> Writer {
        Writer::new(Items { count: 100, key_bytes, value_bytes })
    }

    #[test]
    fn requests_are_what_they_should_be() {
        let check = |quiet, start: &str| {
            let mut out = Vec::new();
            writer(6, 4).push_set(&mut out, 42, quiet);
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(start), "{text}");
            assert_eq!(text.len(), start.len() + 4 + 2);
        };
        check(true, "set k00042 0 0 4 noreply\r\n");
        check(false, "set k00042 0 0 4\r\n");
    }

    #[test]
    fn a_hit_has_the_value_of_the_set() {
        for value_bytes in [4, 16, 17, 256] {
            let (mut set, mut hit) = (Vec::new(), Vec::new());
            writer(64, value_bytes).push_set(&mut set, 99, false);
            writer(64, value_bytes).push_hit(&mut hit, 99);
            assert_eq!(set[set.len() - value_bytes - 2..], hit[hit.len() - value_bytes - 2..]);
            let start = format!("VALUE k{:063} 0 {value_bytes}\r\n", 99);
            assert!(hit.starts_with(start.as_bytes()));
            assert_eq!(hit.len(), start.len() + value_bytes + 2);
        }
    }

    #[test]
    fn a_value_follows_from_its_key() {
        let value = |key| {
            let mut out = Vec::new();
            writer(16, 40).push_value(&mut out, key);
            out
        };
        assert_eq!(value(7).len(), 40);
        assert_eq!(value(7), value(7));
        assert_ne!(value(7)[..16], value(8)[..16]);
        assert_ne!(value(7)[..16], value(7)[16..32]);
    }
}
