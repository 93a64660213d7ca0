//! A worker, its connections and its validator on one thread, so that a test decides when each of them goes on, and can
//! change what is recorded before it is validated.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use guard::{Append, Core, Description, Digest, Draft, Holder, Kind, Next, Reader, Record, Stratum, Writer};
use store::{Env, Needs, Op, Put, Request, Store, StoreOptions};

use crate::bell::Bell;
use crate::clock::Clock;
use crate::connection::{self, After, Connection, READ_BYTES, Speaks};
use crate::driver::Driver;
use crate::execute::{Executor, Records};
use crate::output::Output;
use crate::recorder::{Plan, Recorder};
use crate::settings::{OnCorruption, Protect, Settings, Share};
use crate::shared::{Post, Shared};
use crate::validator::{Desk, RING_LINES, Source, Validation};

/// When all of this takes place.
pub(super) const NOW: u32 = 1_700_000_000;

/// How commands are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Vanilla,
    Sei,
    Orthrus,
    Sync,
}

/// Settings for a mode.
pub(super) fn settings(mode: Mode) -> Settings {
    Settings {
        threads: 1,
        protect: match mode {
            Mode::Vanilla => Protect::Vanilla,
            Mode::Sei => Protect::Sei,
            Mode::Orthrus | Mode::Sync => Protect::Orthrus,
        },
        protect_sync: mode == Mode::Sync,
        validate_share: Share::Fixed(1.0),
        // The cores of whoever runs the tests are to stay in use.
        on_corruption: OnCorruption::Evict,
        ..Settings::default()
    }
}

/// Random numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// The seed from `VERACACHE_SEED`, or one from the clock; printed, so that a failure can be repeated.
pub(super) fn seed() -> u64 {
    let given = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| UNIX_EPOCH.elapsed().map_or(1, |elapsed| elapsed.as_nanos() as u64));
    println!("VERACACHE_SEED={seed}");
    seed
}

/// A record that can be changed, as a sick worker would have left it.
#[derive(Clone, Debug)]
pub(super) struct Slip {
    pub(super) stratum: Stratum,
    pub(super) core: Core,
    pub(super) digest: u64,
    pub(super) words: [u64; 5],
    pub(super) payload: Vec<u8>,
}

pub(super) struct Bench {
    pub(super) shared: Arc<Shared>,
    pub(super) store: store::Worker,
    pub(super) env: Env,
    ring: Option<Ring>,
    output: Output,
    buffer: Box<[u8]>,
    wires: Vec<Wire>,
}

/// What becomes of records.
struct Ring {
    recorder: Recorder,
    holder: Option<Holder>,
    /// What the worker wrote.
    reader: Reader,
    /// What the validator gets.
    writer: Writer,
    source: Source,
    desk: Desk,
    record: Record,
}

/// A connection with both its ends.
struct Wire {
    connection: Box<Connection>,
    client: UnixStream,
    /// What the client got.
    received: Vec<u8>,
    is_holding: bool,
    is_closed: bool,
}

impl Bench {
    pub(super) fn new(settings: Settings, seed: u64) -> Self {
        let clock = Clock::new();
        clock.pause();
        clock.shift(i64::from(NOW) - i64::from(clock.now()));
        let options = StoreOptions {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            seed,
            workers_max: 4,
            cas: settings.cas,
            redundancy: settings.runs(),
            start_unix: NOW,
            ..StoreOptions::default()
        };
        let store = Store::new(options).expect("address space");
        let driver = Driver::new().expect("an epoll instance");
        let waker = || driver.waker().expect("a waker");
        let records = settings.records();
        let validations = records.then(|| Validation::new(Arc::new(Bell::default()))).into_iter().collect();
        let posts = vec![Post::new(waker())];
        let wakers = (waker(), waker());
        let shared = Arc::new(Shared::new(
            settings,
            Arc::clone(&store),
            clock,
            posts,
            Vec::new(),
            validations,
            wakers,
        ));
        let mut store = store.worker(0).expect("a place");
        let ring = records.then(|| Ring::new(&shared, &mut store, seed));
        let (output, buffer) = (Output::default(), vec![0; READ_BYTES].into_boxed_slice());
        let env = shared.env();
        let mut bench = Bench { shared, store, env, ring, output, buffer, wires: Vec::new() };
        bench.round();
        bench
    }

    /// A new connection's number.
    pub(super) fn connect(&mut self, speaks: Speaks) -> usize {
        let (server, client) = UnixStream::pair().expect("two sockets");
        for end in [&server, &client] {
            end.set_nonblocking(true).expect("a socket");
        }
        let connection = Box::new(Connection::new(OwnedFd::from(server), speaks, self.env.now));
        self.wires.push(Wire {
            connection,
            client,
            received: Vec::new(),
            is_holding: false,
            is_closed: false,
        });
        self.wires.len() - 1
    }

    /// Ends the worker's round and begins another, as if it had slept for so many seconds.
    pub(super) fn sleep(&mut self, seconds: u32) {
        self.store.idle();
        self.shared.clock.shift(i64::from(seconds));
        self.round();
    }

    /// The same, but going on at once.
    pub(super) fn round(&mut self) {
        self.store.commit_records();
        self.store.round();
        self.env = self.shared.env();
        if let Some(ring) = &mut self.ring {
            ring.recorder.begin_round(&self.shared.coverages[0], None);
        }
    }

    /// Sends a client's bytes and has the worker do what it can about them.
    pub(super) fn send(&mut self, at: usize, bytes: &[u8]) {
        // Nobody else has seen a flush before.
        self.env = self.shared.env();
        let mut rest = bytes;
        while !rest.is_empty() && !self.wires[at].is_closed {
            match self.wires[at].client.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            self.wires[at].connection.readable = true;
            self.go_on(at);
            assert!(!self.wires[at].is_holding || rest.is_empty(), "the worker takes no more");
        }
    }

    /// What a client got since the last look.
    pub(super) fn received(&mut self, at: usize) -> Vec<u8> {
        std::mem::take(&mut self.wires[at].received)
    }

    /// Sends and says what came back.
    pub(super) fn ask(&mut self, at: usize, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.send(at, bytes.as_ref());
        self.received(at)
    }

    /// Whether it has replies that wait to be confirmed.
    pub(super) fn is_held(&self, at: usize) -> bool {
        self.wires[at].is_holding
    }

    pub(super) fn is_closed(&self, at: usize) -> bool {
        self.wires[at].is_closed
    }

    /// Turns of a connection until it waits for something.
    fn go_on(&mut self, at: usize) {
        if self.wires[at].is_holding || self.wires[at].is_closed {
            return;
        }
        loop {
            let after = self.turn(at);
            let wire = &mut self.wires[at];
            let got = wire.read();
            match after {
                After::Wait if got == 0 => return,
                After::Wait | After::Again => {}
                After::Hold => return wire.is_holding = true,
                After::Close => return wire.is_closed = true,
            }
        }
    }

    fn turn(&mut self, at: usize) -> After {
        let Bench { shared, store, env, ring, output, buffer, wires } = self;
        let records = ring
            .as_mut()
            .map(|ring| Records { recorder: &mut ring.recorder, coverage: &shared.coverages[0] });
        let executor = Executor::new(store, shared, &shared.counters[0], *env).recording(records);
        let mut desk = connection::Desk { executor, buffer, output };
        let after = wires[at].connection.turn(&mut desk);
        store.publish_records();
        after
    }

    /// Lets out what was confirmed, as the worker does when a round begins.
    pub(super) fn release(&mut self) {
        let Some(holder) = self.ring.as_mut().and_then(|ring| ring.holder.as_mut()) else { return };
        let mut refused = Vec::new();
        let confirmed = holder.poll(|seqs| refused.push(seqs));
        for at in 0..self.wires.len() {
            let wire = &mut self.wires[at];
            if !wire.is_holding {
                continue;
            }
            wire.connection.retract(|seq| refused.iter().any(|seqs| seqs.contains(&seq)));
            if wire.connection.awaits() <= confirmed {
                wire.is_holding = false;
                wire.connection.release();
                self.go_on(at);
            }
        }
    }

    /// Validates all that was recorded, each record as `change` leaves it; how many there were.
    pub(super) fn validate(&mut self, mut change: impl FnMut(&mut Slip)) -> usize {
        self.store.commit_records();
        let mut count = 0;
        let Some(ring) = &mut self.ring else { return 0 };
        loop {
            let before = count;
            ring.relay(&mut change, &mut count);
            if ring.desk.batch(&mut ring.source) == 0 && count == before {
                break;
            }
        }
        self.release();
        count
    }

    /// Validates and lets out until nothing waits any more.
    pub(super) fn settle(&mut self) {
        loop {
            self.validate(|_| {});
            let is_waiting = self.ring.as_mut().is_some_and(|ring| ring.source.replayer.load().0 > 0);
            if !is_waiting && !self.wires.iter().any(|wire| wire.is_holding) {
                return;
            }
            self.round();
        }
    }

    /// Stores a value without any connection or record.
    pub(super) fn execute(&mut self, key: &[u8], value: &[u8]) {
        let request = Request { key, op: Op::Put(Put::set(value)) };
        self.store.trace_next(false);
        self.store.execute(&request, &self.env);
    }

    /// How many records found the ring full.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.coverages.iter().map(|coverage| coverage.dropped.read()).sum()
    }

    /// How many commands were executed twice at once, as there was no room for their records.
    pub(super) fn repeated(&self) -> u64 {
        self.shared.coverages.iter().map(|coverage| coverage.repeated.read()).sum()
    }

    /// How many disagreements of each kind there were, other than none.
    pub(super) fn found(&self) -> Vec<(Kind, u64)> {
        let kinds = Kind::ALL.into_iter().zip(self.shared.reaction.report().kinds);
        kinds.filter(|(_, count)| *count > 0).collect()
    }

    /// How many records there were.
    pub(super) fn recorded(&self) -> u64 {
        let strata = self.shared.coverages.iter().flat_map(|coverage| &coverage.strata);
        strata.map(|stratum| stratum.recorded.read()).sum()
    }

    /// How many records agreed, and how many were abandoned.
    pub(super) fn validated(&self) -> (u64, u64) {
        let tallies = self.shared.validations.iter().map(|validation| &validation.tally);
        let strata = (0..crate::strata::STRATA).map(|at| Stratum(at as u8));
        tallies
            .flat_map(|tally| strata.clone().map(|stratum| tally.counted(stratum)))
            .fold((0, 0), |(validated, abandoned), counted| {
                (validated + counted.validated, abandoned + counted.abandoned)
            })
    }
}

impl Ring {
    fn new(shared: &Arc<Shared>, store: &mut store::Worker, seed: u64) -> Self {
        let (writer, reader) = guard::ring(RING_LINES);
        let inspector = store.record_into(writer, Needs::default()).expect("a hold");
        let (writer, forged) = guard::ring(RING_LINES);
        let (confirmer, holder) = guard::watermark();
        let plan = Plan::new(&shared.settings, 2);
        let tally = shared.validations[0].tally.clone();
        let recorder = Recorder::new(&shared.settings, &plan, seed, shared.started, tally);
        let source = Source { worker: 0, replayer: guard::Replayer::new(forged, confirmer), inspector };
        let desk = Desk::new(Arc::clone(shared), shared.store.worker(1).expect("a place"));
        let holder = shared.settings.protect_sync.then_some(holder);
        Ring { recorder, holder, reader, writer, source, desk, record: Record::default() }
    }

    /// Hands records on to the validator, as many as it has room for.
    fn relay(&mut self, change: &mut impl FnMut(&mut Slip), count: &mut usize) {
        // As the largest record is, so that none finds the validator's ring full.
        while self.writer.has_room_for(guard::PAYLOAD_BYTES_MAX) {
            match self.reader.next(&mut self.record) {
                Next::Empty => break,
                Next::Record => {}
                Next::Corrupt { .. } => panic!("nobody damaged the ring"),
            }
            *count += 1;
            let record = &self.record;
            let mut slip = Slip {
                stratum: record.stratum(),
                core: record.core(),
                digest: record.digest().0,
                words: *record.words(),
                payload: record.payload().to_vec(),
            };
            change(&mut slip);
            let Slip { stratum, core, digest, words, payload } = slip;
            let description = Description { words, payload: &payload };
            let append = self.writer.append(&Draft { stratum, core, digest: Digest(digest), description });
            assert_eq!(append, Append::Recorded(record.seq()));
        }
        self.writer.commit();
    }
}

impl Wire {
    /// Reads what the worker sent; how much.
    fn read(&mut self) -> usize {
        let before = self.received.len();
        let mut piece = [0; 64 << 10];
        loop {
            match self.client.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.received.len() - before
    }
}
