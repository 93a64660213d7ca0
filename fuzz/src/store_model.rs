//! What must hold for any program of commands on the store, compared with a model. `crates/store/tests/model.rs` runs
//! it, too.
//!
//! The store may forget an item, but no more of them than it has counted as evicted. It may never show a value, flags,
//! expiry time, cas id, mark or access that the model has not. Bytes are taken for programs; all bytes are one.

mod expected;
#[path = "../../crates/store/tests/common/hand.rs"]
pub mod hand;

use std::collections::BTreeMap;
use std::sync::Arc;

use expected::{Circumstances, Entry};
use hand::{Hand, Mode};
use store::{
    Answer, Arith, Cursor, Delete, Direction, Draft, Env, Exptime, Fetch, Op, Pinned, Put, PutMode, Request,
    Status, Store, StoreOptions, View,
};

const START: u32 = 1_700_000_000;
/// Access times end so long after the start.
const ACCESS_SECONDS_MAX: u32 = (1 << 24) - 1;
const WORKERS: usize = 2;
/// Commands in a row in which a worker does not let go of what it sees.
const LINGERING_MAX: u64 = 16;
const PINS_MAX: usize = 4;
const DRAFTS_MAX: usize = 3;

/// In what kind of store a program runs, and with what.
#[derive(Clone, Debug)]
pub struct Shape {
    pub options: StoreOptions,
    pub mode: Mode,
    pub keys: usize,
    pub value_bytes_max: usize,
    /// After so many commands the structures are checked.
    pub check_every: usize,
    /// Whether the memory limit changes.
    pub is_limit_moving: bool,
}

/// What became of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub commands: u64,
    pub forgotten: u64,
    pub out_of_memory: u64,
    /// Commands whose records agree.
    pub validated: u64,
}

/// Panics if something does not hold; the first bytes choose the shape.
pub fn check(data: &[u8]) {
    let mut bytes = Bytes(data);
    let memory_bytes = bytes.pick(&[1 << 20, 2 << 20, 8 << 20, 64 << 20]);
    let options = StoreOptions {
        memory_bytes,
        item_bytes_max: bytes.pick(&[1 << 20, 1 << 20, 100_000, 500]),
        evict: bytes.below(4) != 0,
        cas: bytes.below(8) != 0,
        hash_power: bytes.pick(&[None, Some(7)]),
        ..StoreOptions::default()
    };
    let shape = Shape {
        options,
        mode: bytes.pick(&[Mode::Vanilla, Mode::Sei(2), Mode::Sei(3), Mode::Orthrus]),
        keys: bytes.pick(&[3, 40, 1_000, 60_000]),
        value_bytes_max: bytes.pick(&[50, 1_000, 20_000, 300_000]),
        check_every: 64,
        is_limit_moving: memory_bytes < 64 << 20,
    };
    run(&shape, bytes.0);
}

/// Runs a program to its end.
pub fn run(shape: &Shape, program: &[u8]) -> Outcome {
    let mut bytes = Bytes(program);
    let mut run = Run::new(shape);
    while !bytes.0.is_empty() {
        run.step(&mut bytes);
        run.outcome.commands += 1;
        if run.outcome.commands.is_multiple_of(shape.check_every as u64) {
            run.check_structures();
        }
    }
    run.end();
    run.outcome
}

/// The rest of a program. Behind its end there are zeros.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        let mut drawn = usize::from(self.next());
        if bound > 1 << 8 {
            drawn |= usize::from(self.next()) << 8;
        }
        if bound > 1 << 16 {
            drawn |= usize::from(self.next()) << 16;
        }
        drawn % bound
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn value(&mut self, bytes_max: usize) -> Vec<u8> {
        const NUMBERS: [&str; 12] = [
            "0",
            "7",
            " 41",
            "99",
            "+5 x",
            "\x0B8\x0B",
            "12x",
            "-1",
            "18446744073709551615",
            "18446744073709551616",
            "5                    ",
            "                   9",
        ];
        let length = match self.below(8) {
            0 => return self.pick(&NUMBERS).as_bytes().to_vec(),
            1 => return self.below(1 << 20).to_string().into_bytes(),
            2 => self.below(4),
            3..=5 => self.below(bytes_max.min(200) + 1),
            6 => bytes_max,
            _ => self.below(bytes_max + 1),
        };
        let first = self.next();
        // No two places look alike nearby, so that bytes from elsewhere are noticed.
        (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    }

    fn exptime(&mut self, now: u32) -> Exptime {
        let now = i64::from(now);
        let never_more_often = [0, 0, 0, 1, 5, 100, 10_000, -1];
        Exptime(match self.below(16) {
            rare @ 12.. => [2_592_000, now + 50, now - 50, i64::MAX][rare - 12],
            often => never_more_often[often % never_more_often.len()],
        })
    }

    fn compare(&mut self, cas: u64) -> Option<u64> {
        self.pick(&[
            None,
            None,
            None,
            Some(cas),
            Some(cas),
            Some(cas.wrapping_add(1)),
            Some(cas.wrapping_sub(1)),
            Some(0),
        ])
    }

    fn new_cas(&mut self, cas: u64) -> Option<u64> {
        match self.below(16) {
            0 => Some(cas.wrapping_add(1)),
            1 => Some(cas / 2),
            2 => Some(1 << 62),
            3 => Some(u64::MAX),
            _ => None,
        }
    }
}

/// A value that is still arriving.
struct Arriving {
    worker: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    draft: Draft,
}

struct Run<'s> {
    shape: &'s Shape,
    store: Arc<Store>,
    workers: [Hand; WORKERS],
    entries: BTreeMap<Vec<u8>, Entry>,
    env: Env,
    /// When a flush was ordered for; 0 for never.
    flush_at: u32,
    pins: Vec<(Vec<u8>, Pinned)>,
    drafts: Vec<Arriving>,
    cursor: Cursor,
    charged: i64,
    limit: u64,
    /// Which workers have not let go of what they see.
    is_lingering: [bool; WORKERS],
    outcome: Outcome,
}

impl<'s> Run<'s> {
    fn new(shape: &'s Shape) -> Self {
        let options = StoreOptions { start_unix: START, workers_max: WORKERS, ..shape.options.clone() };
        let store = Store::new(shape.mode.options(options)).expect("address space");
        let workers = std::array::from_fn(|core| Hand::new(&store, core as u16, shape.mode));
        let env = store.env(START + 10);
        Run {
            shape,
            store,
            workers,
            entries: BTreeMap::new(),
            env,
            flush_at: 0,
            pins: Vec::new(),
            drafts: Vec::new(),
            cursor: Cursor::default(),
            charged: 0,
            limit: shape.options.memory_bytes,
            is_lingering: [false; WORKERS],
            outcome: Outcome::default(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        if self.outcome.commands.is_multiple_of(LINGERING_MAX) {
            // While one lingers, others that lack room wait for it in vain, and programs take long.
            self.workers.iter_mut().for_each(Hand::idle);
            self.is_lingering = [false; WORKERS];
        }
        let which = bytes.next();
        let worker = usize::from(which) % WORKERS;
        let key = self.key(bytes.below(self.shape.keys));
        let cas = self.entries.get(&key).map_or(1, |entry| entry.cas);
        match which / 2 {
            0..24 => self.execute(worker, &key, Op::Fetch(Fetch::default())),
            24..36 => self.execute(worker, &key, Op::Fetch(self.fetch(bytes, cas))),
            36..60 => {
                let value = bytes.value(self.shape.value_bytes_max);
                self.execute(worker, &key, Op::Put(self.put(bytes, cas, &value)));
            }
            60..68 => self.begin_draft(worker, key, bytes),
            68..74 => self.end_draft(bytes),
            74..82 => self.execute(worker, &key, Op::Delete(self.delete(bytes, cas))),
            82..92 => self.execute(worker, &key, Op::Arith(self.arith(bytes, cas))),
            92..96 => self.burst(worker, bytes),
            96..100 => self.pin(worker, &key, bytes),
            100 => self.forget(worker, &key),
            101 => self.flush(bytes),
            102..108 => self.wait(bytes),
            108..114 => _ = self.store.maintain(&self.env, 1 + bytes.below(8)),
            114..117 => assert_eq!(self.store.scrub(1 + bytes.below(64)).damages, []),
            117..120 => self.scan(worker, 1 + bytes.below(256)),
            120 => self.change_memory(bytes),
            121 => self.workers[worker].prefetch(self.workers[worker].hash(&key)),
            // The worker stays in its round, and keeps what it could see from being used again.
            122.. => {
                self.execute(worker, &key, Op::Fetch(Fetch::default()));
                self.is_lingering[worker] = true;
                return;
            }
        }
        self.workers[worker].idle();
        self.is_lingering[worker] = false;
    }

    fn key(&self, number: usize) -> Vec<u8> {
        let mut key = format!("key{number}").into_bytes();
        if number % 16 == 7 {
            key.resize(250, b'.');
        }
        key
    }

    fn fetch(&self, bytes: &mut Bytes<'_>, cas: u64) -> Fetch {
        let with = bytes.next();
        let now = self.env.now;
        Fetch {
            touch: (with & 1 != 0).then(|| bytes.exptime(now)),
            vivify: (with & 2 != 0).then(|| bytes.exptime(now)),
            recache: (with & 4 != 0).then(|| bytes.pick(&[-1, 0, 5, 60, 1_000_000])),
            new_cas: bytes.new_cas(cas),
            bump: with & 8 == 0,
            claim: with & 16 != 0,
        }
    }

    fn put<'v>(&self, bytes: &mut Bytes<'_>, cas: u64, value: &'v [u8]) -> Put<'v> {
        use PutMode::{Add, Append, Prepend, Replace, Set};
        let with = bytes.next();
        let mode = [Set, Set, Set, Set, Add, Replace, Append, Prepend][usize::from(with % 8)];
        Put {
            mode,
            flags: bytes.pick(&[0, 0, 7, u32::MAX]),
            exptime: bytes.exptime(self.env.now),
            value,
            compare: bytes.compare(cas),
            new_cas: bytes.new_cas(cas),
            invalidate: with & 8 != 0,
            vivify: (with & 16 != 0).then(|| bytes.exptime(self.env.now)),
        }
    }

    fn delete(&self, bytes: &mut Bytes<'_>, cas: u64) -> Delete {
        let with = bytes.next();
        Delete {
            compare: bytes.compare(cas),
            new_cas: bytes.new_cas(cas),
            invalidate: with & 1 != 0,
            exptime: (with & 2 != 0).then(|| bytes.exptime(self.env.now)),
            drop_value: with & 4 != 0,
        }
    }

    fn arith(&self, bytes: &mut Bytes<'_>, cas: u64) -> Arith {
        let with = bytes.next();
        let now = self.env.now;
        Arith {
            direction: if with & 1 != 0 { Direction::Incr } else { Direction::Decr },
            delta: bytes.pick(&[0, 1, 9, 100, 1 << 40, u64::MAX]),
            vivify: (with & 2 != 0).then(|| (bytes.exptime(now), bytes.pick(&[0, 5, u64::MAX]))),
            exptime: (with & 4 != 0).then(|| bytes.exptime(now)),
            compare: bytes.compare(cas),
            new_cas: bytes.new_cas(cas),
        }
    }

    fn settling(&self, worker: usize) -> Settling<'s> {
        Settling {
            shape: self.shape,
            store: Arc::clone(&self.store),
            now: self.env.now,
            may_lack_room: self.may_lack_room(worker),
        }
    }

    /// Whether a write may find no room: somebody holds what can't be evicted, or there is next to no memory.
    fn may_lack_room(&self, worker: usize) -> bool {
        let is_held = !self.pins.is_empty() || !self.drafts.is_empty() || self.is_lingering[1 - worker];
        let is_little = self.limit < self.shape.options.memory_bytes || self.charged > 0;
        // Appended to, any value may become as large as values may be.
        let is_much = u64::from(self.shape.options.item_bytes_max) > self.shape.options.memory_bytes / 16;
        !self.shape.options.evict || is_held || is_little || is_much
    }

    /// Executes a command on both sides and compares.
    fn execute(&mut self, worker: usize, key: &[u8], op: Op<'_>) {
        let request = Request { key, op };
        let settling = self.settling(worker);
        let answer = self.workers[worker].execute(&request, &self.env);
        settling.settle(&mut self.entries, &mut self.outcome, &request, &answer);
    }

    fn begin_draft(&mut self, worker: usize, key: Vec<u8>, bytes: &mut Bytes<'_>) {
        let value = bytes.value(self.shape.value_bytes_max);
        match self.workers[worker].draft(&key, value.len() as u32, &self.env) {
            Ok(draft) => self.drafts.push(Arriving { worker, key, value, draft }),
            Err(Status::TooLarge) => assert!(value.len() > self.shape.options.item_bytes_max as usize),
            Err(status) => {
                assert_eq!(status, Status::OutOfMemory);
                assert!(self.may_lack_room(worker), "no room for a draft of {} bytes", value.len());
                self.outcome.out_of_memory += 1;
            }
        }
        if self.drafts.len() > DRAFTS_MAX || bytes.below(2) == 0 {
            self.end_draft(bytes);
        }
    }

    fn end_draft(&mut self, bytes: &mut Bytes<'_>) {
        if self.drafts.is_empty() {
            return;
        }
        let which = bytes.below(self.drafts.len());
        let Arriving { worker, key, value, mut draft } = self.drafts.swap_remove(which);
        if bytes.below(5) == 0 {
            return;
        }
        draft.buffer().copy_from_slice(&value);
        let cas = self.entries.get(&key).map_or(1, |entry| entry.cas);
        let put = self.put(bytes, cas, &[]);
        let settling = self.settling(worker);
        let sent = Request { key: &key, op: Op::Put(put) };
        let answer = self.workers[worker].finish(draft, &sent, &self.env);
        let request = Request { key: &key, op: Op::Put(Put { value: &value, ..put }) };
        settling.settle(&mut self.entries, &mut self.outcome, &request, &answer);
        self.workers[worker].idle();
    }

    /// Many puts in a row: short programs fill memory, too.
    fn burst(&mut self, worker: usize, bytes: &mut Bytes<'_>) {
        let first = bytes.below(self.shape.keys);
        let value = bytes.value(self.shape.value_bytes_max.min(5_000));
        let put = self.put(bytes, 1, &value);
        for number in first..first + bytes.below(256) {
            let key = self.key(number % self.shape.keys);
            self.execute(worker, &key, Op::Put(put));
        }
    }

    fn pin(&mut self, worker: usize, key: &[u8], bytes: &mut Bytes<'_>) {
        let kept = bytes.pick(&[0, 0, 1, PINS_MAX - 1]);
        for (value, pinned) in self.pins.drain(..self.pins.len().saturating_sub(kept)) {
            assert!(*pinned == *value, "what is pinned stays as it is");
        }
        let request = Request { key, op: Op::Fetch(Fetch { bump: false, ..Fetch::default() }) };
        let settling = self.settling(worker);
        let answer = self.workers[worker].execute(&request, &self.env);
        settling.settle(&mut self.entries, &mut self.outcome, &request, &answer);
        if let Some(item) = answer.item {
            self.pins.push((item.value.to_vec(), self.store.pin(&item)));
        }
    }

    fn forget(&mut self, worker: usize, key: &[u8]) {
        let was_there = self.workers[worker].forget(key);
        let is_alive = self.entries.remove(key).is_some_and(|entry| entry.is_alive(self.env.now));
        if is_alive && !was_there {
            self.outcome.forgotten += 1;
            assert!(self.outcome.forgotten <= self.store.stats().evictions);
        }
    }

    fn flush(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(4) {
            0 => {
                self.flush_at = bytes.pick(&[0, self.env.now, self.env.now + 7]);
                self.store.flush_at(self.flush_at);
            }
            _ => {
                self.store.flush();
                self.entries.clear();
            }
        }
        self.wait_until(self.env.now);
    }

    fn wait(&mut self, bytes: &mut Bytes<'_>) {
        let seconds = bytes.pick(&[0, 1, 1, 1, 5, 30, 200, 100_000]);
        self.wait_until(self.env.now + seconds);
    }

    fn wait_until(&mut self, now: u32) {
        if self.flush_at != 0 && self.flush_at <= now {
            self.flush_at = 0;
            self.entries.clear();
        }
        self.env = self.store.env(now);
    }

    fn change_memory(&mut self, bytes: &mut Bytes<'_>) {
        if !self.shape.is_limit_moving {
            return;
        }
        let given = self.shape.options.memory_bytes;
        match bytes.below(3) {
            0 => {
                self.limit = bytes.pick(&[1 << 20, given, 2 * given]);
                self.store.set_memory_limit(self.limit).expect("within the address space");
            }
            which => {
                let charged = if which == 1 { 0 } else { given as i64 / 2 };
                self.store.charge(charged - self.charged);
                self.charged = charged;
            }
        }
    }

    /// Whether the model has what a walk shows.
    fn compare_shown(entries: &BTreeMap<Vec<u8>, Entry>, env: &Env, item: &View<'_>) -> bool {
        let is_alive = store::is_alive(item, env);
        if is_alive {
            assert_eq!(Some(&Entry::of(item)), entries.get(item.key), "a walk shows {:?}", item.key);
        }
        is_alive
    }

    fn scan(&mut self, worker: usize, buckets: usize) {
        let (entries, env) = (&self.entries, &self.env);
        let more = self.workers[worker].scan(&mut self.cursor, buckets, &mut |item| {
            Self::compare_shown(entries, env, item);
        });
        if !more {
            self.cursor = Cursor::default();
        }
    }

    fn check_structures(&self) {
        if let Err(wrong) = self.store.check() {
            panic!("after {} commands: {wrong}", self.outcome.commands);
        }
    }

    /// Everything that is there is shown by a walk, once, and intact; flushed, it is all given back.
    fn end(&mut self) {
        self.check_structures();
        let (entries, env) = (&self.entries, &self.env);
        let mut shown: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let mut cursor = Cursor::default();
        while self.workers[0].scan(&mut cursor, 16, &mut |item| {
            if Self::compare_shown(entries, env, item) {
                *shown.entry(item.key.to_vec()).or_default() += 1;
            }
        }) {}
        assert!(shown.values().all(|times| *times == 1), "a walk shows an item twice");
        let alive = entries.values().filter(|entry| entry.is_alive(env.now)).count();
        let forgotten = self.outcome.forgotten + (alive - shown.len()) as u64;
        let evictions = self.store.stats().evictions;
        assert!(forgotten <= evictions, "{forgotten} items are missing, {evictions} were evicted");
        while !self.store.scrub(16).is_complete {}
        self.drafts.clear();
        for (value, pinned) in self.pins.drain(..) {
            assert!(*pinned == *value, "what is pinned stays as it is");
        }
        self.outcome.validated = self.workers.iter_mut().map(|worker| worker.settle().agreed).sum();
        assert_eq!(self.store.stats().crc_mismatches, 0);
        assert_eq!(self.store.take_disagreements(), []);
        self.store.flush();
        self.wait_until(self.env.now + 1);
        self.workers.iter_mut().for_each(Hand::idle);
        while self.store.maintain(&self.env, 64) {}
        self.check_structures();
        assert_eq!((self.store.stats().items, self.store.stats().live_bytes), (0, 0), "all was flushed");
    }
}

/// Where an answer came from: what its comparison needs while the worker is borrowed by it.
struct Settling<'s> {
    shape: &'s Shape,
    store: Arc<Store>,
    now: u32,
    may_lack_room: bool,
}

impl Settling<'_> {
    /// Compares an answer with what the model has to say, and brings the model to where the store is.
    fn settle(
        &self,
        entries: &mut BTreeMap<Vec<u8>, Entry>,
        outcome: &mut Outcome,
        request: &Request<'_>,
        answer: &Answer<'_>,
    ) {
        let circumstances = Circumstances {
            now: self.now,
            noted_at: self.now.min(START + ACCESS_SECONDS_MAX),
            cas: self.shape.options.cas,
            item_bytes_max: self.shape.options.item_bytes_max as usize,
        };
        if answer.status == Status::OutOfMemory {
            assert!(self.may_lack_room, "no room for {request:?}");
            assert!(answer.item.is_none());
            outcome.out_of_memory += 1;
            return;
        }
        let found = entries.remove(request.key).filter(|entry| entry.is_alive(self.now));
        let as_it_was = reconcile(circumstances.expect(request, found.as_ref()), request, answer);
        let left = as_it_was.unwrap_or_else(|wrong| {
            // It may have been evicted.
            outcome.forgotten += u64::from(found.is_some());
            let evictions = self.store.stats().evictions;
            let expected = circumstances.expect(request, None);
            match reconcile(expected, request, answer) {
                Ok(left) if found.is_some() && outcome.forgotten <= evictions => left,
                _ => panic!("{request:?} found {found:?}: {wrong}; {evictions} evictions"),
            }
        });
        if let Some(left) = left {
            entries.insert(request.key.to_vec(), left);
        }
    }
}

/// What is left, if the answer is as expected; else what is wrong with it.
fn reconcile(
    expected: expected::Expected,
    request: &Request<'_>,
    answer: &Answer<'_>,
) -> Result<Option<Entry>, String> {
    let mut expected = expected;
    let shown = answer.item.as_ref();
    if let (Some(above), Some(shown)) = (expected.above, shown) {
        // Nothing is above the largest; then they begin anew.
        if shown.cas <= above && above != u64::MAX || shown.cas == 0 {
            return Err(format!("its cas id {} is not above {above}", shown.cas));
        }
        for entry in [&mut expected.shown, &mut expected.left].into_iter().flatten() {
            entry.cas = shown.cas;
        }
    }
    let is_key = shown.is_none_or(|shown| shown.key == request.key);
    let told = (answer.status, answer.token, shown.map(Entry::of));
    let to_be_told = (expected.status, expected.token, expected.shown);
    match is_key && told == to_be_told {
        true => Ok(expected.left),
        false => Err(format!("answered {told:?}, not {to_be_told:?}")),
    }
}
