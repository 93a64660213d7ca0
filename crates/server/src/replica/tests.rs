//! A server's store with several workers and a replica, in one thread: what happens when is up to a generator, so that
//! records arrive in every order there can be.

#[path = "../../../store/tests/common/command.rs"]
mod command;
#[path = "../../../store/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use guard::{Append, Core, Disagreement, Kind, Mismatch, Next as Read, Reader, Record, Stratum, Turn, ring};
use store::{
    Copy, Cursor, Delete, Env, Exptime, Fence as Moment, Fetch, Follower, Inspector, NOTE_BYTES, Needs, Op,
    Put, Request, Store, StoreOptions, Trace, View, Worker,
};

use self::command::{Command, NOW, command, told};
use self::common::{Random, seed};
use super::mirror::{Made, Mirror, Occasion};
use super::parcel::{Facts, Packer, Parcel};
use super::streams::{Next, Run, Streams};
use super::wire::Missed;

/// Changes what is sent of a record.
type Fault = Box<dyn FnMut(&mut Facts<'_>, &Command)>;

/// What is on its way to the replica.
enum Sent {
    Parcel(u16, Vec<u8>),
    Load(Vec<Owned>),
    Absence(Vec<u8>),
    Walk(Vec<u64>),
    Open(u64),
    Passed(u64, bool),
}

/// An item as it was when it was sent.
struct Owned {
    key: Vec<u8>,
    value: Vec<u8>,
    /// The rest; its key and value are empty.
    copy: Copy<'static>,
}

struct Recording {
    worker: Worker,
    /// As it was when the worker's round began, if it is in one.
    env: Option<Env>,
    inspector: Inspector,
    reader: Reader,
    packer: Packer,
}

struct World {
    store: Arc<Store>,
    workers: Vec<Recording>,
    copier: Worker,
    /// What records stand for, and what was answered.
    commands: Vec<(Command, String)>,
    sent: VecDeque<Sent>,
    walk: Option<Cursor>,
    has_walked: bool,
    fence: Option<(Moment, bool)>,
    fences: u64,
    mirror: Mirror,
    follower_store: Arc<Store>,
    streams: Streams,
    now: u32,
    clock: Duration,
    disagreements: Vec<Disagreement>,
    missed: Vec<Missed>,
    /// Those of them that the server can't explain, when it is told.
    lost: Vec<Missed>,
    unknown: usize,
    confirmed: usize,
    fault: Option<Fault>,
}

impl World {
    fn new(workers: usize, options: StoreOptions) -> Self {
        let options = StoreOptions { start_unix: NOW, workers_max: workers + 1, ..options };
        let store = Store::new(options.clone()).expect("address space");
        let recording = |number| {
            let mut worker = store.worker(number as u16).expect("a place");
            let (writer, reader) = ring(1 << 14);
            let inspector =
                worker.record_into(writer, Needs { order: true, ..Needs::default() }).expect("a hold");
            Recording { worker, env: None, inspector, reader, packer: Packer::new() }
        };
        let own = StoreOptions {
            seed: options.seed ^ 0x1234_5678,
            memory_bytes: options.memory_bytes * 2,
            item_bytes_max: options.item_bytes_max + NOTE_BYTES,
            cas: true,
            ..options
        };
        let follower_store = Store::new(own).expect("address space");
        let follower = Follower::new(&follower_store, true).expect("a place");
        World {
            workers: (0..workers).map(recording).collect(),
            copier: store.worker(99).expect("a place"),
            store,
            commands: Vec::new(),
            sent: VecDeque::new(),
            walk: None,
            has_walked: false,
            fence: None,
            fences: 0,
            mirror: Mirror::new(follower, NOW),
            follower_store,
            streams: Streams::new(workers as u16, 1),
            now: NOW,
            clock: Duration::ZERO,
            disagreements: Vec::new(),
            missed: Vec::new(),
            lost: Vec::new(),
            unknown: 0,
            confirmed: 0,
            fault: None,
        }
    }

    fn env(&self) -> Env {
        self.store.env(self.now)
    }

    /// A worker begins another round.
    fn round(&mut self, number: usize) {
        self.workers[number].worker.round();
        self.workers[number].env = Some(self.env());
    }

    /// All workers wait for something to do.
    fn idle(&mut self) {
        for Recording { worker, env, .. } in &mut self.workers {
            worker.idle();
            *env = None;
        }
    }

    fn execute(&mut self, number: usize, command: &Command, value: &[u8]) -> Option<u64> {
        let fresh = self.env();
        let Recording { worker, env, .. } = &mut self.workers[number];
        let env = *env.get_or_insert(fresh);
        worker.trace_next(true);
        let answer = worker.execute(&command.request(value), &env);
        let (told, cas) = (told(answer.status, answer.item), answer.item.map(|item| item.cas));
        if let Some(trace) = worker.take_trace() {
            let name = (self.commands.len() as u64).to_le_bytes();
            assert_ne!(worker.record(&trace, Stratum(0), 0, &[&name]), Append::Dropped);
            self.commands.push((command.clone(), told));
        }
        cas
    }

    /// Sends what a worker has committed.
    fn ship(&mut self, number: usize) {
        let World { workers, commands, sent, fault, .. } = self;
        let Recording { inspector, reader, packer, .. } = &mut workers[number];
        let Some(mut look) = inspector.begin() else { return };
        let mut record = Record::default();
        let mut pack = |packer: &mut Packer| {
            let mut body = Vec::new();
            packer.pack(&mut body);
            sent.push_back(Sent::Parcel(number as u16, body));
        };
        while reader.next(&mut record) == Read::Record {
            let (trace, ..) = Trace::read(&record).expect("a trace");
            assert!(look.take(&trace), "there is memory enough");
            let (command, _) = &commands[name_of(&record)];
            let received = match command.op {
                Op::Put(put) => look.received(&trace, put.mode, command.len),
                _ => &[],
            };
            let mut facts = Facts { told: look.told(&trace), received };
            if let Some(fault) = fault {
                fault(&mut facts, command);
            }
            if !packer.push(&record, Some(&facts)) {
                pack(packer);
                assert!(packer.push(&record, Some(&facts)));
            }
        }
        if !packer.is_empty() {
            pack(packer);
        }
        look.end(true);
    }

    fn ship_all(&mut self) {
        (0..self.workers.len()).for_each(|number| self.ship(number));
    }

    /// Sets up a fence, or finds that it was passed.
    fn fence(&mut self) {
        match self.fence {
            None => {
                self.fences += 1;
                self.sent.push_back(Sent::Open(self.fences));
                self.fence = Some((self.store.fence(), self.has_walked));
            }
            Some((moment, is_complete)) => {
                self.copier.idle();
                if self.store.has_passed(moment) {
                    self.fence = None;
                    self.ship_all();
                    self.sent.push_back(Sent::Passed(self.fences, is_complete));
                }
            }
        }
    }

    /// Sends some of all items.
    fn walk(&mut self, buckets: usize) {
        if self.has_walked {
            return;
        }
        let cursor = self.walk.get_or_insert_with(|| {
            self.sent.push_back(Sent::Walk(self.store.changes()));
            Cursor::default()
        });
        let env = self.store.env(self.now);
        let mut copies = Vec::new();
        let mut visit = |copy: &Copy<'_>| {
            if store::is_alive(&copy.view, &env) {
                copies.push(copy_of(copy));
            }
        };
        self.has_walked = !self.copier.copies(cursor, buckets, &mut visit);
        self.copier.idle();
        self.sent.push_back(Sent::Load(copies));
    }

    /// Delivers some of what was sent, and lets the replica do what it can.
    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some(sent) = self.sent.pop_front() else { break };
            match sent {
                Sent::Parcel(stream, body) => {
                    let parcel = Parcel::unpack(&body).expect("a parcel");
                    self.streams.receive(stream, parcel, self.mirror.opened()).expect("a stream");
                }
                Sent::Load(copies) => {
                    for Owned { key, value, copy } in &copies {
                        let view = View { key, value, ..copy.view };
                        self.mirror.load(&Copy { view, ..*copy });
                    }
                }
                Sent::Absence(key) => self.mirror.load_nothing(&key),
                Sent::Walk(base) => self.mirror.begin_loads(base),
                Sent::Open(fence) => self.mirror.open(fence),
                Sent::Passed(fence, is_complete) => {
                    self.mirror.passed(is_complete);
                    self.streams.pass(fence, is_complete);
                }
            }
            self.run();
        }
        for key in std::mem::take(&mut self.mirror.asks) {
            let copy = self.copier.copy(&key).map(|copy| copy_of(&copy));
            self.copier.idle();
            self.sent.push_back(copy.map_or(Sent::Absence(key), |copy| Sent::Load(vec![copy])));
        }
        assert!(!self.mirror.asks_all, "there is room for what is asked");
    }

    fn run(&mut self) {
        let World { mirror, streams, commands, disagreements, unknown, confirmed, .. } = self;
        let mut confirm = |mirror: &mut Mirror, next: &Next<'_>| repeat(mirror, next, commands);
        let mut tell = |progress: super::wire::Progress| {
            disagreements.extend(progress.ack.disagreement);
            *unknown += progress.unknown.len();
            *confirmed += 1;
        };
        let (now, core) = (self.clock, Core(7));
        streams.run(&mut Run { now, core, mirror, confirm: &mut confirm, tell: &mut tell });
        mirror.settle();
        let missed = std::mem::take(&mut self.mirror.missed);
        let env = self.env();
        self.lost.extend(missed.iter().filter(|missed| !missed.is_explained(&self.store, &env)).cloned());
        self.missed.extend(missed);
    }

    /// Everything arrives, and every fence is passed.
    fn finish(&mut self) {
        while !self.has_walked {
            self.walk(1000);
        }
        for _ in 0..6 {
            self.idle();
            self.ship_all();
            self.fence();
            self.deliver(usize::MAX);
        }
    }

    /// What is alive in the one store is there in the other, and the other way round.
    fn assert_same(&mut self) {
        let env = self.env();
        let mut items: Vec<(Vec<u8>, u64, Vec<u8>)> = Vec::new();
        let mut cursor = Cursor::default();
        let mut visit = |Copy { view, .. }: &Copy<'_>| {
            if store::is_alive(view, &env) {
                items.push((view.key.to_vec(), view.cas, view.value.to_vec()));
            }
        };
        while self.copier.copies(&mut cursor, 100, &mut visit) {}
        let mut worker = self.follower_store.worker(9).expect("a place");
        for (key, cas, value) in &items {
            let own = worker.copy(key);
            let own = own.map(|Copy { view, .. }| {
                (view.cas, view.value[..view.value.len() - NOTE_BYTES as usize].to_vec())
            });
            assert_eq!(own, Some((*cas, value.clone())), "{}", String::from_utf8_lossy(key));
        }
        let mut alive = 0;
        let mut cursor = Cursor::default();
        let mut visit = |Copy { view, .. }: &Copy<'_>| {
            let note = &view.value[view.value.len() - NOTE_BYTES as usize..];
            let birth = u64::from_le_bytes(*note.first_chunk().expect("a birth"));
            alive += usize::from(store::is_alive(&View { birth, ..*view }, &env));
        };
        while worker.copies(&mut cursor, 100, &mut visit) {}
        assert_eq!(alive, items.len());
        self.mirror.idle();
        drop(worker);
        self.follower_store.check().expect("sound");
    }
}

fn copy_of(copy: &Copy<'_>) -> Owned {
    let (key, value) = (copy.view.key.to_vec(), copy.view.value.to_vec());
    let View { flags, exptime, cas, birth, accessed, fetched, stale, token_sent, .. } = copy.view;
    let view =
        View { key: &[], value: &[], flags, exptime, cas, birth, accessed, fetched, stale, token_sent };
    Owned { key, value, copy: Copy { view, part: copy.part, vanished: copy.vanished } }
}

fn name_of(record: &Record) -> usize {
    let (_, _, name) = Trace::read(record).expect("a trace");
    u64::from_le_bytes(name.try_into().expect("a name")) as usize
}

/// Executes what a record stands for again, and compares the answers.
fn repeat(mirror: &mut Mirror, next: &Next<'_>, commands: &[(Command, String)]) -> Result<Turn, Mismatch> {
    let (trace, ..) = Trace::read(next.record).expect("a trace");
    let (command, first) = &commands[name_of(next.record)];
    let facts = next.facts.expect("everything can be read");
    let at =
        Occasion { trace: &trace, told: Some(&facts.told), stream: next.stream, patience: next.patience };
    let request: Request<'_> = command.request(facts.received);
    match mirror.execute(&at, &request) {
        Made::Answer(answer) => {
            assert_eq!(told(answer.status, answer.item), *first, "{command:?}");
            Ok(Turn::Agrees)
        }
        Made::Later => Ok(Turn::Later),
        Made::Unknown => Ok(Turn::Unknown),
        Made::Disagrees(mismatch) => Err(mismatch),
    }
}

/// A random program with several workers; the world in the end.
fn check(workers: usize, keys: usize, commands: usize, options: StoreOptions) -> World {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut world = World::new(workers, StoreOptions { seed, ..options });
    let mut cas = vec![1_u64; 8];
    let bytes = [7_u8; 100];
    for number in 0..commands {
        let mut command = command(&mut random, keys, 100, &cas);
        // Ids that clients choose come again.
        match &mut command.op {
            Op::Fetch(fetch) => fetch.new_cas = None,
            Op::Put(put) => put.new_cas = None,
            _ => {}
        }
        let digits = random.below(1_000_000).to_string();
        let value = if random.below(4) == 0 { digits.as_bytes() } else { &bytes[..command.len] };
        let command = Command { len: value.len(), ..command };
        let worker = random.below(workers);
        if let Some(shown) = world.execute(worker, &command, value) {
            cas[number % 8] = shown;
        }
        match random.below(40) {
            0..8 => {
                let worker = random.below(workers);
                world.round(worker);
            }
            8..14 => {
                let worker = random.below(workers);
                world.ship(worker);
            }
            14..20 => world.deliver(1 + random.below(5)),
            20..23 => world.fence(),
            23..25 if number > commands / 10 => world.walk(1 + random.below(50)),
            25 => world.now += 1,
            26 => drop(world.store.maintain(&world.env(), 1)),
            27 => world.clock += Duration::from_millis(1),
            28 if random.below(40) == 0 => world.store.flush(),
            29 if random.below(10) == 0 => drop(world.mirror.maintain()),
            _ => {}
        }
        assert_eq!(world.disagreements, [], "after {number}");
        assert_eq!(world.lost, []);
    }
    world.finish();
    assert_eq!(world.disagreements, []);
    assert_eq!(world.lost, []);
    println!("{:?}", world.mirror.counted());
    world
}

#[test]
fn one_worker_leaves_nothing_unknown() {
    let mut world = check(1, 20, 20_000, StoreOptions::default());
    assert_eq!(world.mirror.counted().is_complete, 1);
    world.assert_same();
}

#[test]
fn several_workers_and_few_keys() {
    for workers in [2, 3, 5] {
        let mut world = check(workers, 6, 20_000, StoreOptions::default());
        let counted = world.mirror.counted();
        assert_eq!((counted.is_complete, counted.unordered), (1, 0));
        world.assert_same();
    }
}

#[test]
fn several_workers_and_many_keys() {
    let mut world = check(4, 3_000, 60_000, StoreOptions::default());
    let counted = world.mirror.counted();
    assert_eq!((counted.is_complete, counted.unordered), (1, 0));
    assert!(counted.repeated > 45_000, "{counted:?}");
    world.assert_same();
}

/// A world with one item that everybody knows of, and nothing on its way.
fn settled(workers: usize) -> World {
    let mut world = World::new(workers, StoreOptions::default());
    world.walk(usize::MAX >> 1);
    world.finish();
    world.now += 2;
    let set = Command { key: b"key".to_vec(), op: Op::Put(Put::set(&[])), len: 5 };
    world.execute(0, &set, b"value");
    world.finish();
    assert_eq!(world.mirror.counted().is_complete, 1);
    world.now += 2;
    world
}

const FETCHING: Fetch =
    Fetch { touch: None, vivify: None, recache: None, new_cas: None, bump: true, claim: false };
const FETCH: Op<'static> = Op::Fetch(FETCHING);

fn kinds(world: &World) -> Vec<Kind> {
    world.disagreements.iter().map(|disagreement| disagreement.kind).collect()
}

#[test]
fn an_item_that_went_without_a_command_is_missed() {
    for reader in [0, 1] {
        let mut world = settled(2);
        let fetch = Command { key: b"key".to_vec(), op: FETCH, len: 0 };
        // Behind everybody's back.
        world.copier.forget(b"key");
        world.copier.idle();
        world.execute(reader, &fetch, b"");
        world.finish();
        assert_eq!(kinds(&world), []);
        let missed = world.missed.iter().map(|missed| (missed.stream as usize, &missed.key[..]));
        assert_eq!(missed.collect::<Vec<_>>(), [(reader, &b"key"[..])]);
        assert_eq!(world.lost, [], "and the server knows why");
        let later = Missed { vanished: world.missed[0].vanished + 1, ..world.missed[0].clone() };
        assert!(!later.is_explained(&world.store, &world.env()), "but not if it was there afterwards");
    }
}

/// What took it away was done in an environment that the look-up's round did not know of yet.
#[test]
fn what_is_dead_by_now_may_have_been_swept_before_it_was_looked_for() {
    let touch = |seconds| Op::Fetch(Fetch { touch: Some(Exptime(seconds)), ..FETCHING });
    for (what, exptime, op, flushes) in [
        ("flushed", 0, None, true),
        ("expired", 1, None, false),
        ("touched, then expired", 0, Some(touch(1)), false),
        ("touched", 0, Some(touch(-1)), false),
    ] {
        let mut world = settled(3);
        let put = Op::Put(Put { exptime: Exptime(exptime), ..Put::set(&[]) });
        // So large that it has a segment of its own: those that are still written to are not swept.
        let value = vec![7; 500_000];
        world.execute(0, &Command { key: b"key".to_vec(), op: put, len: value.len() }, &value);
        world.finish();
        // The reader's round begins.
        let other = Command { key: b"other".to_vec(), op: FETCH, len: 0 };
        world.execute(1, &other, b"");
        if let Some(op) = op {
            world.execute(2, &Command { key: b"key".to_vec(), op, len: 0 }, b"");
        }
        if flushes {
            world.store.flush();
        }
        world.now += 1;
        let env = world.env();
        while world.store.maintain(&env, 10) {}
        world.execute(1, &Command { key: b"key".to_vec(), op: FETCH, len: 0 }, b"");
        let (_, answer) = world.commands.last().expect("recorded");
        assert!(answer.starts_with("Miss"), "{what}: {answer}");
        // The reader's record comes first.
        world.workers[1].worker.idle();
        world.ship(1);
        world.deliver(usize::MAX);
        world.finish();
        assert_eq!((kinds(&world), &world.lost[..]), (vec![], &[][..]), "{what}");
    }
}

#[test]
fn a_removal_that_comes_late_is_no_loss() {
    let mut world = settled(2);
    let delete = Command { key: b"key".to_vec(), op: Op::Delete(Delete::default()), len: 0 };
    let fetch = Command { key: b"key".to_vec(), op: FETCH, len: 0 };
    world.execute(0, &delete, b"");
    world.execute(1, &fetch, b"");
    world.idle();
    world.ship(1);
    world.deliver(usize::MAX);
    world.finish();
    assert_eq!((kinds(&world), world.missed.len()), (vec![], 0));
    world.assert_same();
}

/// A look-up is told to have found a version that is not there any more.
fn check_old(op: Op<'static>, reader: usize, is_late: bool) -> Vec<Kind> {
    let mut world = settled(2);
    let fetch = Command { key: b"key".to_vec(), op: FETCH, len: 0 };
    let change = Command { key: b"key".to_vec(), op, len: 5 };
    world.execute(0, &fetch, b"");
    let old = Arc::new(std::sync::Mutex::new(None));
    let noted = Arc::clone(&old);
    world.fault = Some(Box::new(move |facts, _| *noted.lock().expect("unpoisoned") = Some(facts.told)));
    world.finish();
    world.fault = None;
    world.execute(0, &change, b"other");
    if is_late {
        world.finish();
    }
    // What the reader finds is replaced by what there was.
    world.execute(reader, &fetch, b"");
    world.fault = Some(Box::new(move |facts, command| {
        if command.op == FETCH {
            facts.told = old.lock().expect("unpoisoned").expect("noted");
        }
    }));
    world.finish();
    kinds(&world)
}

#[test]
fn a_look_up_of_what_had_gone_before_is_found() {
    let set = Op::Put(Put::set(&[]));
    let delete = Op::Delete(Delete::default());
    for (op, kind) in [(set, Kind::Stale), (delete, Kind::Resurrected)] {
        assert_eq!(check_old(op, 0, true), [kind]);
        assert_eq!(check_old(op, 1, true), [kind]);
        assert_eq!(check_old(op, 0, false), [kind]);
        assert_eq!(check_old(op, 1, false), [kind]);
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let mut world = settled(1);
    world.fault = Some(Box::new(|facts, _| facts.told.value_crc ^= 1));
    let set = Command { key: b"key".to_vec(), op: Op::Put(Put::set(&[])), len: 5 };
    world.execute(0, &set, b"other");
    world.finish();
    assert_eq!(kinds(&world), [Kind::Checksum]);
    world.fault = None;
    world.finish();
    world.assert_same();
}
