//! What is done in which phase: the requests, and which replies they must have.

use protocol::reply::Reply;

use crate::speed::connection::{Connection, Failure, shown};

/// The value of the Memcache Speed Test.
const VALUE: &[u8] = b"benchmark-value-0123456789";

/// The large value of its successor: 10 KiB of zeros.
const LARGE_VALUE: &[u8] = &[0; 10 << 10];

/// How many items an operation of a `multi` phase has.
const ITEMS: u64 = 10;

/// How requests are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// mg, ms, md, ma
    #[default]
    Meta,
    /// get, set, delete, incr
    Text,
}

/// A list of phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// The Memcache Speed Test: six phases
    #[default]
    Speed,
    /// Its successor cmd/bench: ten phases, TTL 1 min, one counter for all workers
    CmdBench,
}

/// What one phase does with every key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) action: Action,
    /// Per operation; they go in one write, their replies are awaited together.
    pub(crate) items: u64,
    value: &'static [u8],
    /// Seconds; 0 is for ever.
    ttl: u32,
}

/// What is done, with what it must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get { finds: bool },
    Set,
    Delete { finds: bool },
    Increment { is_shared: bool },
}

impl Preset {
    /// In this order.
    pub(crate) fn phases(self) -> Vec<Phase> {
        let phase = |name, action| Phase { name, action, items: 1, value: VALUE, ttl: 0 };
        match self {
            Preset::Speed => vec![
                phase("Get (miss)", Action::Get { finds: false }),
                phase("Set", Action::Set),
                phase("Get (hit)", Action::Get { finds: true }),
                phase("Delete (found)", Action::Delete { finds: true }),
                phase("Delete (miss)", Action::Delete { finds: false }),
                phase("Increment", Action::Increment { is_shared: false }),
            ],
            Preset::CmdBench => {
                let phase = |name, action| Phase { ttl: 60, ..phase(name, action) };
                let multi = |name, action| Phase { items: ITEMS, ..phase(name, action) };
                let large = |name, action| Phase { value: LARGE_VALUE, ..phase(name, action) };
                vec![
                    phase("get-miss", Action::Get { finds: false }),
                    phase("set", Action::Set),
                    multi("multi-set-10", Action::Set),
                    phase("get-hit", Action::Get { finds: true }),
                    multi("multi-get-hit-10", Action::Get { finds: true }),
                    large("set-10kb", Action::Set),
                    large("get-hit-10kb", Action::Get { finds: true }),
                    phase("delete-found", Action::Delete { finds: true }),
                    phase("delete-miss", Action::Delete { finds: false }),
                    phase("increment", Action::Increment { is_shared: true }),
                ]
            }
        }
    }

    /// Uids are below this.
    pub(crate) fn uids(self) -> u64 {
        match self {
            Preset::Speed => 1_000_000,
            Preset::CmdBench => 1_000_000_000,
        }
    }
}

/// How many answers were not as they must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaws {
    /// Errors the server answered, and requests without an answer.
    pub(crate) errors: u64,
    /// Found where nothing must be, or the other way round: an eviction, a restart, somebody else's keys.
    pub(crate) unexpected: u64,
    /// A value that nobody stored there.
    pub(crate) wrong: u64,
    /// The first of them in words: a wrong value if there is one, which is the most important thing to know.
    pub(crate) first: Option<String>,
}

impl Flaws {
    /// Takes note of an error.
    pub(crate) fn error(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        self.first.get_or_insert_with(text);
    }

    /// Takes note of a value that can't be.
    pub(crate) fn wrong(&mut self, text: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.wrong == 1 {
            self.first = Some(text());
        }
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: Flaws) {
        if self.first.is_none() || (other.wrong > 0 && self.wrong == 0) {
            self.first = other.first;
        }
        self.errors += other.errors;
        self.unexpected += other.unexpected;
        self.wrong += other.wrong;
    }
}

/// One worker of one phase: it writes requests and judges replies.
#[derive(Debug)]
pub(crate) struct Worker {
    phase: Phase,
    protocol: Protocol,
    uid: u64,
    number: usize,
    request: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// The counter's last value that was seen, since nothing went wrong.
    counter: Option<u64>,
    pub(crate) flaws: Flaws,
}

impl Worker {
    pub(crate) fn new(phase: Phase, protocol: Protocol, uid: u64, number: usize) -> Self {
        let (request, keys) = (Vec::new(), Vec::new());
        Worker { phase, protocol, uid, number, request, keys, counter: None, flaws: Flaws::default() }
    }

    /// Makes the request of one operation, and its keys.
    pub(crate) fn prepare(&mut self, operation: u64) {
        let (uid, number) = (self.uid, self.number);
        self.keys.clear();
        match self.phase.action {
            Action::Increment { is_shared: true } => {
                self.keys.push(format!("test-{uid}-counter").into_bytes())
            }
            Action::Increment { is_shared: false } => {
                self.keys.push(format!("test-{uid}-{number}-counter").into_bytes());
            }
            _ if self.phase.items == 1 => {
                self.keys.push(format!("test-{uid}-{number}-{operation}").into_bytes());
            }
            _ => {
                let key = |item| format!("test-{uid}-{number}-{operation}-{item}").into_bytes();
                self.keys.extend((0..self.phase.items).map(key));
            }
        }
        self.request.clear();
        if self.protocol == Protocol::Text && matches!(self.phase.action, Action::Get { .. }) {
            self.request.extend_from_slice(b"get");
            for key in &self.keys {
                self.request.push(b' ');
                self.request.extend_from_slice(key);
            }
            self.request.extend_from_slice(b"\r\n");
            return;
        }
        for key in &self.keys {
            write_request(&self.phase, self.protocol, key, &mut self.request);
        }
    }

    /// Takes note of a connection that was lost, and with it of what is known about the counter.
    pub(crate) fn lose(&mut self, failure: &Failure) {
        self.counter = None;
        self.flaws.error(|| failure.to_string());
    }

    /// Sends what was prepared, and awaits and judges the replies.
    pub(crate) fn exchange(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        connection.send(&self.request)?;
        match (self.phase.action, self.protocol) {
            (Action::Get { .. }, Protocol::Text) => self.await_values(connection),
            (Action::Increment { .. }, Protocol::Text) => self.await_number(connection),
            _ => {
                let (phase, flaws, counter) = (&self.phase, &mut self.flaws, &mut self.counter);
                for _ in &self.keys {
                    connection.reply(|reply| judge(phase, reply, counter, flaws))?;
                }
                Ok(())
            }
        }
    }

    /// The replies to a `get`: values in the order of their keys, without those that are missing, and an `END`.
    fn await_values(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let (phase, flaws, keys) = (&self.phase, &mut self.flaws, &self.keys);
        let mut next = 0;
        let mut found = 0;
        loop {
            let more = connection.reply(|reply| match reply {
                Reply::Value { key, value, .. } => {
                    match keys[next..].iter().position(|asked| asked == key) {
                        Some(skipped) => next += skipped + 1,
                        None => flaws.wrong(|| format!("{} was answered out of turn", shown(key))),
                    }
                    if value != phase.value {
                        flaws.wrong(|| format!("{} has the value \"{}\"", shown(key), shown(value)));
                    }
                    found += 1;
                    Some(true)
                }
                Reply::End => Some(false),
                other => {
                    flaws.error(|| said(other));
                    None
                }
            })?;
            match more {
                Some(true) => {}
                Some(false) => break,
                None => return Ok(()),
            }
        }
        let finds = phase.action == Action::Get { finds: true };
        flaws.unexpected += if finds { phase.items.saturating_sub(found) } else { found };
        Ok(())
    }

    /// The reply to an `incr`, which does not make a counter: one that is missing is added.
    fn await_number(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if self.was_counted(connection)? {
            return Ok(());
        }
        if self.counter.take().is_some() {
            self.flaws.unexpected += 1;
        }
        let key = std::str::from_utf8(&self.keys[0]).expect("made of digits and letters");
        connection.send(format!("add {key} 0 {} 1\r\n1\r\n", self.phase.ttl).as_bytes())?;
        let (flaws, counter) = (&mut self.flaws, &mut self.counter);
        let is_taken = connection.reply(|reply| match reply {
            Reply::Stored => {
                *counter = Some(1);
                false
            }
            Reply::NotStored(_) => true,
            other => {
                flaws.error(|| said(other));
                false
            }
        })?;
        if is_taken {
            // Another worker added it in between.
            connection.send(&self.request)?;
            if !self.was_counted(connection)? {
                self.flaws.unexpected += 1;
            }
        }
        Ok(())
    }

    /// Judges the reply to an `incr`, unless there is no such counter.
    fn was_counted(&mut self, connection: &mut Connection) -> Result<bool, Failure> {
        let (phase, flaws, counter) = (&self.phase, &mut self.flaws, &mut self.counter);
        connection.reply(|reply| {
            let is_there = !matches!(reply, Reply::NotFound(_));
            if is_there {
                judge(phase, reply, counter, flaws);
            }
            is_there
        })
    }
}

fn write_request(phase: &Phase, protocol: Protocol, key: &[u8], out: &mut Vec<u8>) {
    let (value, ttl) = (phase.value, phase.ttl);
    let (verb, rest) = match (phase.action, protocol) {
        (Action::Get { .. }, _) => ("mg", " v".to_string()),
        (Action::Set, Protocol::Meta) if ttl == 0 => ("ms", format!(" {}", value.len())),
        (Action::Set, Protocol::Meta) => ("ms", format!(" {} T{ttl}", value.len())),
        (Action::Set, Protocol::Text) => ("set", format!(" 0 {ttl} {}", value.len())),
        (Action::Delete { .. }, Protocol::Meta) => ("md", String::new()),
        (Action::Delete { .. }, Protocol::Text) => ("delete", String::new()),
        (Action::Increment { .. }, Protocol::Meta) => ("ma", format!(" v N{ttl} J1 D1")),
        (Action::Increment { .. }, Protocol::Text) => ("incr", " 1".to_string()),
    };
    out.extend_from_slice(verb.as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(b"\r\n");
    if phase.action == Action::Set {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// What a reply says about the server.
fn judge(phase: &Phase, reply: Reply<'_>, counter: &mut Option<u64>, flaws: &mut Flaws) {
    match (phase.action, reply) {
        (Action::Get { finds }, Reply::MetaValue { value, .. }) => {
            if value != phase.value {
                flaws.wrong(|| format!("the value \"{}\" instead of the one that was set", shown(value)));
            } else if !finds {
                flaws.unexpected += 1;
            }
        }
        (Action::Get { finds }, Reply::MetaMiss(_)) => flaws.unexpected += u64::from(finds),
        (Action::Set, Reply::MetaDone(_) | Reply::Stored) => {}
        (Action::Set, Reply::NotStored(_)) => flaws.unexpected += 1,
        (Action::Delete { finds }, Reply::MetaDone(_) | Reply::Deleted) => {
            flaws.unexpected += u64::from(!finds);
        }
        (Action::Delete { finds }, Reply::NotFound(_)) => flaws.unexpected += u64::from(finds),
        (Action::Increment { is_shared }, Reply::MetaValue { value, .. }) => {
            match std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse().ok()) {
                Some(number) => count(is_shared, number, counter, flaws),
                None => flaws.wrong(|| format!("\"{}\" as the value of a counter", shown(value))),
            }
        }
        (Action::Increment { is_shared }, Reply::Number(number)) => count(is_shared, number, counter, flaws),
        (_, other) => flaws.error(|| said(other)),
    }
}

/// A counter of one's own goes up by one, a shared one by at least one; one that begins again was evicted.
fn count(is_shared: bool, number: u64, counter: &mut Option<u64>, flaws: &mut Flaws) {
    if let Some(last) = *counter {
        let is_next = if is_shared { number > last } else { number == last.wrapping_add(1) };
        if !is_next && number == 1 {
            flaws.unexpected += 1;
        } else if !is_next {
            flaws.wrong(|| format!("a counter went from {last} to {number}"));
        }
    }
    *counter = Some(number);
}

/// An error in the server's own words, any other reply by its kind.
pub(crate) fn said(reply: Reply<'_>) -> String {
    match reply {
        Reply::Error(text) => format!("ERROR {}", shown(text)).trim_end().to_string(),
        Reply::ClientError(text) => format!("CLIENT_ERROR {}", shown(text)),
        Reply::ServerError(text) => format!("SERVER_ERROR {}", shown(text)),
        other => shown(format!("an answer to something else: {other:?}").as_bytes()),
    }
}
