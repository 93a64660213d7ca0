//! What is sent next, and its bytes. They are copied together in a buffer that is used again, without formatting.

use super::Shared;
use super::connection::{Asked, Change, Connection, Pending, Space};
use super::ledger::{COUNTER_START, Floor};
use crate::keys::{self, Drawer, KEY_BYTES_MAX, Popularity};
use crate::random::{Random, mix};
use crate::values::{Sizes, VALUE_BYTES_MAX};
use crate::workload::{Chooser, Entry, Operation, Protocol};

/// Cas ids that a thread remembers.
const CAS_MAX: usize = 64;
/// One read in so many is of a counter or a joined value, if the mix has commands for them.
const OTHERS_READ: u64 = 8;
/// One `append` or `prepend` in so many stores the value anew, which bounds it.
const RENEWED: u64 = 64;
/// Draws until a key is searched that is not being written.
const DRAWS_MAX: usize = 64;
/// Bytes of a piece that joined values consist of.
pub(super) const PIECE_BYTES: usize = 8;
/// The longest time to live, in seconds: above a month it would be a date.
const TTL_MAX: u64 = 30 * 24 * 3600;

/// The piece of which a joined value consists.
pub(super) fn piece(seed: u64, key: u64) -> [u8; PIECE_BYTES] {
    mix(seed ^ mix(key ^ 0x6a6f_696e)).to_le_bytes()
}

/// The line of a storage command, but for the length of its value.
struct Line {
    /// Its wire form, loud or quiet.
    entry: Entry,
    operation: Operation,
    space: Space,
    key: u64,
    /// Seconds; 0: for ever.
    ttl: u64,
    cas: Option<u64>,
    opaque: u16,
}

/// Draws requests and writes them.
#[derive(Debug)]
pub(super) struct Issuer<'a> {
    shared: &'a Shared,
    random: Random,
    drawer: Drawer,
    chooser: Chooser,
    /// Keys with cas ids, most recent last.
    known: Vec<(u64, u64)>,
}

impl<'a> Issuer<'a> {
    pub(super) fn new(shared: &'a Shared, part: u64) -> Self {
        let plan = &shared.plan;
        Issuer {
            shared,
            random: Random::fork(plan.seed, part),
            drawer: Drawer::new(plan.keys.popularity, plan.keys.count, part, plan.threads.into()),
            chooser: Chooser::new(&plan.mix),
            known: Vec::new(),
        }
    }

    /// The gap to the next of arrivals that come independently, in means.
    pub(super) fn gap(&mut self) -> f64 {
        self.random.exponential()
    }

    /// Remembers what a `gets` told.
    pub(super) fn learn(&mut self, key: u64, cas: u64) {
        if self.known.len() == CAS_MAX {
            self.known.remove(0);
        }
        self.known.push((key, cas));
    }

    /// Adds a request that was meant for `intended` and is written `now`.
    #[inline]
    pub(super) fn issue(&mut self, connection: &mut Connection, intended: u64, now: u64) {
        let number = self.chooser.draw(&mut self.random);
        let entry = self.shared.plan.mix.0[number];
        if connection.needs_barrier && !entry.quiet {
            self.barrier(connection);
        }
        let mut pending = Pending::new(Some(number as u8), entry.operation, intended, now);
        if entry.quiet {
            pending.is_quiet = true;
            connection.opaque = connection.opaque.wrapping_add(1);
            pending.opaque = connection.opaque;
        }
        if let Some((space, key)) = connection.restore.pop() {
            // The same entry, loud or quiet, stores what was found missing.
            pending.operation = Operation::Set;
            self.renew(connection, &mut pending, entry, space, key);
        } else {
            self.push(connection, &mut pending, entry);
        }
        pending.keys_left = pending.keys;
        connection.pending.push_back(pending);
        connection.under_way += 1;
        connection.needs_barrier |= entry.quiet;
    }

    /// Adds what asks for a reply, whatever the ones before it do.
    pub(super) fn barrier(&mut self, connection: &mut Connection) {
        connection.needs_barrier = false;
        let last = connection.pending.back().and_then(|pending| pending.entry);
        let is_meta =
            last.is_some_and(|last| self.shared.plan.mix.0[usize::from(last)].protocol == Protocol::Meta);
        connection.out.extend_from_slice(if is_meta { b"mn\r\n" } else { b"version\r\n" });
        let operation = if is_meta { Operation::Noop } else { Operation::Version };
        connection.pending.push_back(Pending::new(None, operation, 0, 0));
    }

    /// Adds the next item of the connection's part of all keys; whether there was one.
    pub(super) fn fill(&mut self, connection: &mut Connection, now: u64) -> bool {
        let plan = &self.shared.plan;
        let servers = plan.addresses.len() as u64;
        let others = self.shared.others;
        let (place, places) = connection.place;
        let main = plan.keys.count;
        // All spaces one after the other, each a multiple of the servers but for the end of the first.
        let first = main.div_ceil(servers) * servers;
        let (space, key) = loop {
            let at = connection.server + servers * (place + places * connection.filled);
            connection.filled += 1;
            match at {
                at if at < main => break (Space::Main, at),
                at if at < first => {}
                at if at < first + others && self.shared.counts => break (Space::Counter, at - first),
                at if at < first + others => {}
                at if at < first + 2 * others && self.shared.joins => {
                    break (Space::Joined, at - first - others);
                }
                at if at < first + 2 * others => {}
                _ => return false,
            }
        };
        let entry = Entry::text(Operation::Set, 1.0);
        let mut pending = Pending::new(Some(0), Operation::Set, now, now);
        match space {
            Space::Main => {
                let ttl = plan.ttl.draw(&mut self.random, TTL_MAX) as u64;
                let version = self.begin(&mut pending, key, ttl > 0).unwrap_or_default();
                self.ask(connection, &mut pending, Space::Main, key);
                let line = Line { entry, operation: Operation::Set, space, key, ttl, cas: None, opaque: 0 };
                self.store(connection, &line, version);
            }
            space => self.renew(connection, &mut pending, entry, space, key),
        }
        pending.keys_left = pending.keys;
        connection.pending.push_back(pending);
        connection.under_way += 1;
        true
    }

    fn push(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        match entry.operation {
            Operation::Get | Operation::Gets | Operation::Gat | Operation::Gats => {
                self.push_read(connection, pending, entry);
            }
            Operation::Set | Operation::Add | Operation::Replace | Operation::Delete => {
                self.push_write(connection, pending, entry);
            }
            Operation::Cas => self.push_cas(connection, pending, entry),
            Operation::Append | Operation::Prepend => self.push_join(connection, pending, entry),
            Operation::Incr | Operation::Decr => self.push_count(connection, pending, entry),
            Operation::Touch => self.push_touch(connection, pending, entry),
            Operation::Debug => {
                let key = self.draw(connection.server);
                self.ask(connection, pending, Space::Main, key);
                connection.out.extend_from_slice(b"me ");
                self.push_key(&mut connection.out, Space::Main, key);
                connection.out.extend_from_slice(b"\r\n");
            }
            Operation::Noop => connection.out.extend_from_slice(b"mn\r\n"),
            Operation::Version => connection.out.extend_from_slice(b"version\r\n"),
            Operation::Verbosity => connection.out.extend_from_slice(b"verbosity 1\r\n"),
            Operation::Stats => connection.out.extend_from_slice(b"stats\r\n"),
            Operation::Flush => connection.out.extend_from_slice(b"flush_all\r\n"),
        }
    }

    fn push_read(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let plan = &self.shared.plan;
        let touches = matches!(entry.operation, Operation::Gat | Operation::Gats);
        let ttl = if touches { self.ttl() } else { 0 };
        let width = plan.width;
        if entry.protocol == Protocol::Text {
            let out = &mut connection.out;
            out.extend_from_slice(entry.operation.name().as_bytes());
            if touches {
                out.push(b' ');
                push_number(out, ttl);
            }
            for _ in 0..width {
                let (space, key) = self.draw_any(connection.server);
                self.ask(connection, pending, space, key);
                connection.out.push(b' ');
                self.push_key(&mut connection.out, space, key);
            }
            connection.out.extend_from_slice(b"\r\n");
            return;
        }
        for _ in 0..width {
            let (space, key) = self.draw_any(connection.server);
            self.ask(connection, pending, space, key);
            let out = &mut connection.out;
            out.extend_from_slice(b"mg ");
            self.push_key(out, space, key);
            out.extend_from_slice(b" v");
            if matches!(entry.operation, Operation::Gets | Operation::Gats) {
                out.extend_from_slice(b" c");
            }
            if touches {
                push_flag(out, b'T', ttl);
            }
            if width > 1 {
                // The keys of those that are found tell which are not.
                out.extend_from_slice(b" k");
            }
            match entry.quiet {
                true => push_quiet(out, pending.opaque),
                false if width > 1 => out.extend_from_slice(b" q"),
                false => {}
            }
            out.extend_from_slice(b"\r\n");
        }
        if width > 1 && !entry.quiet {
            connection.out.extend_from_slice(b"mn\r\n");
        }
    }

    fn push_write(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let removes = entry.operation == Operation::Delete;
        let ttl = if removes { 0 } else { self.ttl() };
        let (key, version) = self.draw_free(connection.server, pending, removes || ttl > 0);
        self.ask(connection, pending, Space::Main, key);
        if !removes {
            let (operation, opaque) = (entry.operation, pending.opaque);
            let line = Line { entry, operation, space: Space::Main, key, ttl, cas: None, opaque };
            self.store(connection, &line, version);
            return;
        }
        let out = &mut connection.out;
        out.extend_from_slice(if entry.protocol == Protocol::Text { b"delete " } else { b"md " });
        self.push_key(out, Space::Main, key);
        end_line(out, entry, pending.opaque);
    }

    fn push_cas(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let servers = self.shared.plan.addresses.len() as u64;
        let ttl = self.ttl();
        while let Some((key, cas)) = self.known.pop() {
            if key % servers != connection.server {
                continue;
            }
            let Some(version) = self.begin(pending, key, ttl > 0) else { continue };
            self.ask(connection, pending, Space::Main, key);
            let (operation, opaque) = (entry.operation, pending.opaque);
            let line = Line { entry, operation, space: Space::Main, key, ttl, cas: Some(cas), opaque };
            self.store(connection, &line, version);
            return;
        }
        pending.operation = Operation::Gets;
        let key = self.draw(connection.server);
        self.ask(connection, pending, Space::Main, key);
        let out = &mut connection.out;
        match entry.protocol {
            Protocol::Text => {
                // Without a reply there would be no id, so this one is loud.
                pending.is_quiet = false;
                out.extend_from_slice(b"gets ");
                self.push_key(out, Space::Main, key);
            }
            Protocol::Meta => {
                out.extend_from_slice(b"mg ");
                self.push_key(out, Space::Main, key);
                out.extend_from_slice(b" v c");
                if entry.quiet {
                    push_quiet(out, pending.opaque);
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn push_join(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let key = self.draw_other(connection.server);
        if self.random.below(RENEWED) == 0 {
            pending.operation = Operation::Set;
            self.renew(connection, pending, entry, Space::Joined, key);
            return;
        }
        self.ask(connection, pending, Space::Joined, key);
        let piece = piece(self.shared.plan.seed, key);
        let (operation, opaque) = (entry.operation, pending.opaque);
        let line = Line { entry, operation, space: Space::Joined, key, ttl: 0, cas: None, opaque };
        self.head(&mut connection.out, &line, PIECE_BYTES);
        connection.out.extend_from_slice(&piece);
        connection.out.extend_from_slice(b"\r\n");
    }

    fn push_count(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let key = self.draw_other(connection.server);
        let down = entry.operation == Operation::Decr;
        self.ask(connection, pending, Space::Counter, key);
        if let Some(tally) = self.shared.tally(key) {
            tally.begin(down);
            pending.change = Change::Count { down };
        }
        let out = &mut connection.out;
        match entry.protocol {
            Protocol::Text => {
                out.extend_from_slice(if down { b"decr " } else { b"incr " });
                self.push_key(out, Space::Counter, key);
                out.extend_from_slice(b" 1");
            }
            Protocol::Meta => {
                out.extend_from_slice(b"ma ");
                self.push_key(out, Space::Counter, key);
                out.extend_from_slice(if down { b" MD v" } else { b" v" });
            }
        }
        end_line(out, entry, pending.opaque);
    }

    fn push_touch(&mut self, connection: &mut Connection, pending: &mut Pending, entry: Entry) {
        let (key, ttl) = (self.draw(connection.server), self.ttl());
        self.ask(connection, pending, Space::Main, key);
        let out = &mut connection.out;
        match entry.protocol {
            Protocol::Text => {
                out.extend_from_slice(b"touch ");
                self.push_key(out, Space::Main, key);
                out.push(b' ');
                push_number(out, ttl);
            }
            Protocol::Meta => {
                out.extend_from_slice(b"mg ");
                self.push_key(out, Space::Main, key);
                push_flag(out, b'T', ttl);
            }
        }
        end_line(out, entry, pending.opaque);
    }

    /// Stores a counter's first value, or a joined value's first piece.
    fn renew(
        &mut self,
        connection: &mut Connection,
        pending: &mut Pending,
        entry: Entry,
        space: Space,
        key: u64,
    ) {
        self.ask(connection, pending, space, key);
        pending.change = Change::Renew;
        let mut value = Vec::with_capacity(20);
        match space {
            Space::Counter => push_number(&mut value, COUNTER_START),
            _ => value.extend_from_slice(&piece(self.shared.plan.seed, key)),
        }
        let (operation, opaque) = (Operation::Set, pending.opaque);
        let line = Line { entry, operation, space, key, ttl: 0, cas: None, opaque };
        self.head(&mut connection.out, &line, value.len());
        connection.out.extend_from_slice(&value);
        connection.out.extend_from_slice(b"\r\n");
    }

    /// A storage command with a value of this version.
    fn store(&mut self, connection: &mut Connection, line: &Line, version: u32) {
        let bytes = self.shared.plan.values.draw(&mut self.random, VALUE_BYTES_MAX);
        self.head(&mut connection.out, line, bytes);
        match self.shared.ledger {
            Some(_) => self.shared.maker.push(&mut connection.out, line.key, version, bytes),
            None => self.shared.maker.push_noise(&mut connection.out, self.random.word(), bytes),
        }
        connection.out.extend_from_slice(b"\r\n");
    }

    /// The line of a storage command.
    fn head(&self, out: &mut Vec<u8>, line: &Line, bytes: usize) {
        let Line { entry, operation, space, key, ttl, cas, opaque } = *line;
        match entry.protocol {
            Protocol::Text => {
                out.extend_from_slice(operation.name().as_bytes());
                out.push(b' ');
                self.push_key(out, space, key);
                out.extend_from_slice(b" 0 ");
                push_number(out, ttl);
                out.push(b' ');
                push_number(out, bytes as u64);
                if let Some(cas) = cas {
                    out.push(b' ');
                    push_number(out, cas);
                }
            }
            Protocol::Meta => {
                out.extend_from_slice(b"ms ");
                self.push_key(out, space, key);
                out.push(b' ');
                push_number(out, bytes as u64);
                if ttl > 0 {
                    push_flag(out, b'T', ttl);
                }
                let mode: &[u8] = match operation {
                    Operation::Add => b" ME",
                    Operation::Replace => b" MR",
                    Operation::Append => b" MA",
                    Operation::Prepend => b" MP",
                    _ => b"",
                };
                out.extend_from_slice(mode);
                if let Some(cas) = cas {
                    push_flag(out, b'C', cas);
                }
            }
        }
        end_line(out, entry, opaque);
    }

    #[inline]
    fn push_key(&self, out: &mut Vec<u8>, space: Space, key: u64) {
        let prefix = match space {
            Space::Main => &self.shared.prefix,
            Space::Counter => &self.shared.counter_prefix,
            Space::Joined => &self.shared.joined_prefix,
        };
        let bytes = match &self.shared.plan.keys.bytes {
            Sizes::Fixed(bytes) => *bytes as usize,
            law => law.draw(&mut Random::fork(self.shared.plan.seed, key), KEY_BYTES_MAX as u64),
        };
        keys::push_key(out, prefix, key, bytes);
    }

    /// Notes a key of a request, with what is known of it.
    #[inline]
    fn ask(&self, connection: &mut Connection, pending: &mut Pending, space: Space, key: u64) {
        let (mut floor, mut tally) = (Floor::default(), [0; 2]);
        if let Some(ledger) = &self.shared.ledger {
            match space {
                Space::Main => floor = ledger.floor(key),
                Space::Counter => tally = self.shared.tally(key).map_or([0; 2], super::ledger::Tally::floor),
                Space::Joined => {}
            }
        }
        connection.asked.push_back(Asked { space, key, floor, tally });
        pending.keys += 1;
    }

    fn ttl(&mut self) -> u64 {
        self.shared.plan.ttl.draw(&mut self.random, TTL_MAX) as u64
    }

    /// A key that this server has.
    #[inline]
    fn draw(&mut self, server: u64) -> u64 {
        let key = self.drawer.draw(&mut self.random);
        self.fit(key, server, self.shared.plan.keys.count)
    }

    /// The neighbour of a key that this server has.
    #[inline]
    fn fit(&self, key: u64, server: u64, count: u64) -> u64 {
        let servers = self.shared.plan.addresses.len() as u64;
        if servers == 1 {
            return key;
        }
        let key = key - key % servers + server;
        if key < count { key } else { key - servers }
    }

    fn draw_other(&mut self, server: u64) -> u64 {
        let key = self.random.below(self.shared.others);
        self.fit(key, server, self.shared.others)
    }

    /// A key to read, of any space.
    #[inline]
    fn draw_any(&mut self, server: u64) -> (Space, u64) {
        if (self.shared.counts || self.shared.joins) && self.random.below(OTHERS_READ) == 0 {
            let is_counter = self.shared.counts && (!self.shared.joins || self.random.below(2) == 0);
            let space = if is_counter { Space::Counter } else { Space::Joined };
            return (space, self.draw_other(server));
        }
        (Space::Main, self.draw(server))
    }

    /// A key that nobody is writing, with its next version.
    fn draw_free(&mut self, server: u64, pending: &mut Pending, removes: bool) -> (u64, u32) {
        let count = self.shared.plan.keys.count;
        for attempt in 0..DRAWS_MAX {
            // Popular keys are often taken, and a few draws more keep most of their popularity.
            let is_sequential = self.shared.plan.keys.popularity == Popularity::Sequential;
            let key = match attempt < 8 || is_sequential {
                true => self.draw(server),
                false => {
                    let key = self.random.below(count);
                    self.fit(key, server, count)
                }
            };
            if let Some(version) = self.begin(pending, key, removes) {
                return (key, version);
            }
        }
        // There are several times more keys than requests under way, so one of them is free, unless it was written as
        // often as versions can tell.
        let servers = self.shared.plan.addresses.len() as u64;
        let free = (server..count).step_by(servers as usize).find_map(|key| {
            let version = self.begin(pending, key, removes)?;
            Some((key, version))
        });
        free.unwrap_or((server, 0))
    }

    /// The version of a write that begins; nothing if another one is under way.
    fn begin(&self, pending: &mut Pending, key: u64, removes: bool) -> Option<u32> {
        let Some(ledger) = &self.shared.ledger else { return Some(0) };
        let version = ledger.begin(key, removes)?;
        pending.change = Change::Version { mortal: removes };
        Some(version)
    }
}

/// Appends a number in decimal.
#[inline]
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    keys::push_key(out, b"", number, 0);
}

fn push_flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    push_number(out, number);
}

fn push_quiet(out: &mut Vec<u8>, opaque: u16) {
    out.extend_from_slice(b" q");
    push_flag(out, b'O', opaque.into());
}

/// What makes a command quiet, and the end of its line.
fn end_line(out: &mut Vec<u8>, entry: Entry, opaque: u16) {
    match (entry.quiet, entry.protocol) {
        (false, _) => {}
        (true, Protocol::Text) => out.extend_from_slice(b" noreply"),
        (true, Protocol::Meta) => push_quiet(out, opaque),
    }
    out.extend_from_slice(b"\r\n");
}
