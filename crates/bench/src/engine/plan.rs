//! What a run is to do. It can be sent to another host, and done there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::keys::{KEY_BYTES_MAX, KEYS_MAX, Popularity};
use crate::target::Address;
use crate::values::{Sizes, VALUE_BYTES_MAX};
use crate::workload::{ENTRIES_MAX, Entry, Mix, Operation, Protocol};

/// Connections of one run.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Threads of one run.
pub const THREADS_MAX: u32 = 256;
/// Requests that one connection may have under way.
pub const DEPTH_MAX: u32 = 4096;
/// Keys that one request may ask for.
pub const WIDTH_MAX: u32 = 1024;
/// Keys of a run that verifies; each costs eight bytes.
pub const VERIFIED_KEYS_MAX: u64 = 1 << 27;
/// Counters that `incr` and `decr` work on, and joined values of `append` and `prepend`; no more than keys.
pub const OTHERS_MAX: u64 = 1024;
/// The highest rate that may be asked for, in requests per second.
const RATE_MAX: f64 = 1e9;
/// The longest run.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// When requests are sent.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Closed loop: as soon as a reply makes room on its connection.
    Closed,
    /// Open loop: so many per second, equally spaced, whatever the server does.
    Fixed(f64),
    /// Open loop: so many per second on average, with exponential gaps, as from many independent users.
    Poisson(f64),
}

impl Arrivals {
    /// Requests per second that are offered; nothing in a closed loop.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Arrivals::Closed => None,
            Arrivals::Fixed(rate) | Arrivals::Poisson(rate) => Some(*rate),
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// After so many requests, warm-up not counted.
    Requests(u64),
    /// After this time, warm-up not counted.
    Time(Duration),
}

/// The keys of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Keys {
    /// How many there are.
    pub count: u64,
    /// How often each is drawn.
    pub popularity: Popularity,
    /// In front of every key.
    pub prefix: String,
    /// Bytes of a key, drawn once for each from its number; more where the number needs them.
    pub bytes: Sizes,
}

/// What is to be done.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Plan {
    /// The servers. With several, each has the keys whose number modulo their count is its place in this list.
    pub addresses: Vec<Address>,
    /// Threads, each with an event loop of its own.
    pub threads: u32,
    /// Connections of all threads together, at least one for each thread and server.
    pub connections: u32,
    /// Requests that a connection may have under way.
    pub depth: u32,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Which commands.
    pub mix: Mix,
    /// Keys in one request that reads values.
    pub width: u32,
    /// Which keys.
    pub keys: Keys,
    /// Bytes of a value.
    pub values: Sizes,
    /// Seconds to live of what is stored or touched; 0: for ever.
    pub ttl: Sizes,
    /// Whether every key is stored once before anything is measured.
    pub prefill: bool,
    /// What is sent before the measurement and not counted.
    pub warmup: Duration,
    /// When it ends.
    pub length: Length,
    /// Whether every reply is compared with what was written; asks for `prefill`.
    pub verify: bool,
    /// From what all that is drawn follows.
    pub seed: u64,
    /// How long a server may be silent while it owes replies.
    pub patience: Duration,
    /// The server's process on this machine, if it is here, for its CPU time.
    pub server_pid: Option<u32>,
    /// How close to its time an arrival is waited for without sleeping; costs CPU, and spares the timer's delay.
    pub spin: Duration,
}

impl Default for Plan {
    /// 50 connections of one thread, nine gets to one set, for five seconds; the address has to be set.
    fn default() -> Self {
        Plan {
            addresses: Vec::new(),
            threads: 1,
            connections: 50,
            depth: 1,
            arrivals: Arrivals::Closed,
            mix: Mix(vec![Entry::text(Operation::Get, 9.0), Entry::text(Operation::Set, 1.0)]),
            width: 1,
            keys: Keys {
                count: 10_000,
                popularity: Popularity::Uniform,
                prefix: "key:".to_string(),
                bytes: Sizes::Fixed(16),
            },
            values: Sizes::Fixed(100),
            ttl: Sizes::Fixed(0),
            prefill: true,
            warmup: Duration::ZERO,
            length: Length::Time(Duration::from_secs(5)),
            verify: false,
            seed: 1,
            patience: Duration::from_secs(10),
            server_pid: None,
            spin: Duration::ZERO,
        }
    }
}

impl Plan {
    /// A plan for one server, otherwise the default.
    pub fn on(address: impl Into<Address>) -> Self {
        Plan { addresses: vec![address.into()], ..Plan::default() }
    }

    /// Writes every command in this protocol's form where it has one.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.mix.0.iter_mut().for_each(|entry| entry.protocol = protocol);
        self
    }

    /// The smallest number of connections that these threads and servers can do with.
    pub fn connections_min(&self) -> u64 {
        u64::from(self.threads).max(self.addresses.len() as u64)
    }

    /// Why it can't be done, in words for whoever asked for it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let within = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::Usage(format!("{name} must be {least} to {most}, not {value}"))),
        };
        let servers = self.addresses.len() as u64;
        within("servers", servers, 1, 1024)?;
        within("threads", self.threads.into(), 1, THREADS_MAX.into())?;
        within("connections", self.connections.into(), self.connections_min(), CONNECTIONS_MAX.into())?;
        within("depth", self.depth.into(), 1, DEPTH_MAX.into())?;
        within("keys in a request", self.width.into(), 1, WIDTH_MAX.into())?;
        within("keys", self.keys.count, servers, if self.verify { VERIFIED_KEYS_MAX } else { KEYS_MAX })?;
        within("commands in the mix", self.mix.0.len() as u64, 1, ENTRIES_MAX as u64)?;
        within("bytes of a value", self.values.largest(VALUE_BYTES_MAX), 0, VALUE_BYTES_MAX)?;
        let prefix = self.keys.prefix.as_bytes();
        // A letter and the digits of the largest number have room behind it.
        within("bytes of the keys' prefix", prefix.len() as u64, 0, 200)?;
        within("bytes of a key", self.keys.bytes.largest(KEY_BYTES_MAX as u64), 0, KEY_BYTES_MAX as u64)?;
        if !prefix.iter().all(u8::is_ascii_graphic) {
            return Err(Error::Usage(
                "the keys' prefix may have letters, digits and signs, no blanks".into(),
            ));
        }
        if let Some(rate) = self.arrivals.rate().filter(|rate| !(*rate > 0.0 && *rate <= RATE_MAX)) {
            return Err(Error::Usage(format!(
                "the rate must be above 0 and at most {RATE_MAX:e}, not {rate}"
            )));
        }
        if let Length::Requests(0) = self.length {
            return Err(Error::Usage("requests must be 1 or more".into()));
        }
        let time = if let Length::Time(time) = self.length { time } else { Duration::ZERO };
        if time > TIME_MAX || self.warmup > TIME_MAX || (self.length == Length::Time(time) && time.is_zero())
        {
            return Err(Error::Usage("the time must be above 0 and at most a week".into()));
        }
        if self.patience.is_zero() {
            return Err(Error::Usage("the time a server may be silent must be above 0".into()));
        }
        match self.verify && !self.prefill {
            true => Err(Error::Usage("to verify, every key must be written first: leave prefill on".into())),
            false => Ok(()),
        }
    }

    /// How many counters, and how many joined values there are.
    pub(crate) fn others(&self) -> u64 {
        // A multiple of the number of servers, so that each has its share.
        let servers = self.addresses.len() as u64;
        (self.keys.count.min(OTHERS_MAX).max(servers)) / servers * servers
    }
}
