//! What the tests of this crate share: a connection without sockets, transcripts, and random numbers with a seed.

#![allow(dead_code, reason = "each test uses a part of it")]

use protocol::{Command, Options, Payload, Step};

/// One thing that came out of the bytes of a connection. It owns what it shows, so that different ways of cutting the
/// same bytes can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command, as text, and its payload.
    Command(Vec<u8>, Vec<u8>),
    /// A storage command whose payload does not end where it should.
    BadChunk(Vec<u8>),
    /// A line that was refused, the bytes dropped behind it, and whether it is not answered.
    Reject(&'static str, u64, bool),
    /// The connection was closed.
    Close,
}

/// A connection without sockets: bytes go in, events come out.
#[derive(Default)]
pub struct Connection {
    unread: Vec<u8>,
    swallow: u64,
    closed: bool,
    pub events: Vec<Event>,
}

impl Connection {
    /// Takes bytes that arrived.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.unread.extend_from_slice(bytes);
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        if self.swallow > 0 {
            let dropped = self.unread.len().min(usize::try_from(self.swallow).expect("64 bits"));
            self.unread.drain(..dropped);
            self.swallow -= dropped as u64;
            return dropped > 0;
        }
        let (event, used) = match protocol::parse(&self.unread, &Options::default()) {
            Step::Incomplete => return false,
            Step::Close => (Event::Close, 0),
            Step::Reject(reject) => {
                self.swallow = reject.swallow;
                (Event::Reject(reject.error, reject.swallow, reject.quiet), reject.used)
            }
            Step::Command { command, used } => {
                let mut text = Vec::new();
                protocol::encode(&command, &mut text);
                match command.payload().map(|len| protocol::payload(&self.unread[used..], len)) {
                    None => (Event::Command(text, Vec::new()), used),
                    Some(Payload::Incomplete) => return false,
                    Some(Payload::Complete { value, used: more }) => {
                        (Event::Command(text, value.to_vec()), used + more)
                    }
                    Some(Payload::Malformed { used: more }) => (Event::BadChunk(text), used + more),
                }
            }
        };
        assert!(used <= self.unread.len(), "no more is used than there is");
        self.closed = event == Event::Close;
        assert!(used > 0 || self.closed, "every step gets on");
        self.events.push(event);
        self.unread.drain(..used);
        !self.closed
    }
}

/// What comes out of these pieces.
pub fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut connection = Connection::default();
    for piece in pieces {
        connection.receive(piece);
    }
    connection.events
}

/// The first command in these bytes.
pub fn command(line: &[u8]) -> Command<'_> {
    match protocol::parse(line, &Options { debugtime: true, ..Options::default() }) {
        Step::Command { command, used } => {
            assert_eq!(used, line.len());
            command
        }
        step => panic!("{:?} gave {step:?}", line.escape_ascii().to_string()),
    }
}

/// One recorded exchange.
pub struct Transcript {
    pub send: Vec<u8>,
    pub reply: Vec<u8>,
    pub closed: bool,
}

/// The recorded exchanges in text.
pub fn transcripts() -> Vec<Transcript> {
    let mut transcripts = all_transcripts();
    transcripts.retain(|transcript| !is_binary(transcript));
    assert!(transcripts.len() >= 181, "no transcript got lost");
    transcripts
}

/// The recorded exchanges of the binary protocol.
pub fn binary_transcripts() -> Vec<Transcript> {
    let mut transcripts = all_transcripts();
    transcripts.retain(is_binary);
    assert!(transcripts.len() >= 20, "no transcript got lost");
    transcripts
}

fn is_binary(transcript: &Transcript) -> bool {
    transcript.send.first() == Some(&protocol::binary::MAGIC_REQUEST)
}

fn all_transcripts() -> Vec<Transcript> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/transcripts");
    let mut transcripts = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the transcripts are there") {
        let text = std::fs::read_to_string(entry.expect("readable").path()).expect("readable");
        transcripts.extend(text.lines().map(|line| {
            let members: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let bytes = |name: &str| {
                let text = members[name].as_str().expect("a string");
                text.chars().map(|letter| u8::try_from(letter).expect("latin-1")).collect()
            };
            Transcript {
                send: bytes("send"),
                reply: bytes("reply"),
                closed: members["closed"].as_bool().expect("a boolean"),
            }
        }));
    }
    transcripts
}

/// Random numbers from a seed (xorshift64*).
pub struct Random(u64);

impl Random {
    /// From `VERACACHE_SEED` if it is set, and printed, so that a failure can be repeated.
    pub fn new() -> Self {
        let seed = match std::env::var("VERACACHE_SEED") {
            Ok(seed) => seed.parse().expect("VERACACHE_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64,
        };
        println!("VERACACHE_SEED={seed}");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 32) as usize % end
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A coin.
    pub fn coin(&mut self) -> bool {
        self.next() >> 63 != 0
    }

    /// A number that is small, large, or near a power of two.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next() >> 60,
            1 => self.next(),
            2 => (1_u64 << self.below(64)).wrapping_sub(1),
            _ => 1 << self.below(64),
        }
    }

    /// Bytes without blanks and line ends.
    pub fn word(&mut self, len_max: usize) -> Vec<u8> {
        let len = 1 + self.below(len_max);
        std::iter::repeat_with(|| self.next() as u8)
            .filter(|byte| !b" \r\n".contains(byte))
            .take(len)
            .collect()
    }
}
