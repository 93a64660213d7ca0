//! A second store that follows a first one: it comes to the same with everything, and says so when something was wrong.

#![cfg(not(loom))]

mod common;

#[path = "common/command.rs"]
mod command;

use std::sync::Arc;

use command::{Command, NOW, command, told};
use common::{Random, seed};
use guard::{Append, Kind, Next, Reader, Record, Stratum, ring};
use store::{
    Cursor, Env, Fetch, Followed, Follower, Inspector, NOTE_BYTES, Op, Put, PutMode, Store, StoreOptions,
    Trace, View, Worker,
};

struct Setup {
    store: Arc<Store>,
    worker: Worker,
    inspector: Inspector,
    reader: Reader,
    record: Record,
    follower: Follower,
}

/// What a follower made of an execution.
#[derive(Debug, PartialEq)]
enum Made {
    Answer(String),
    Disagreed(Kind),
    Damaged,
}

impl Setup {
    fn new(options: StoreOptions) -> Self {
        let options = StoreOptions { start_unix: NOW, ..options };
        let shows_cas = options.cas;
        let store = Store::new(options.clone()).expect("address space");
        let mut worker = store.worker(0).expect("a place");
        let (writer, reader) = ring(1 << 12);
        let inspector = worker.record_into(writer, store::Needs::default()).expect("a hold");
        let seed = options.seed ^ 0x1234_5678;
        let memory_bytes = options.memory_bytes * 2;
        let item_bytes_max = options.item_bytes_max + NOTE_BYTES;
        let own = Store::new(StoreOptions { seed, memory_bytes, item_bytes_max, cas: true, ..options });
        let follower = Follower::new(&own.expect("address space"), shows_cas).expect("a place");
        Setup { store, worker, inspector, reader, record: Record::default(), follower }
    }

    /// Executes a command in both stores; what is answered first, what the follower makes of it, and the cas id shown.
    fn execute(
        &mut self,
        command: &Command,
        value: &[u8],
        env: &Env,
        fault: impl FnOnce(&mut Command, &mut Vec<u8>),
    ) -> Option<(String, Made, Option<u64>)> {
        self.worker.trace_next(true);
        let answer = self.worker.execute(&command.request(value), env);
        let first = told(answer.status, answer.item);
        let cas = answer.item.map(|item| item.cas);
        let trace = self.worker.take_trace()?;
        assert_eq!(
            self.worker.record(&trace, Stratum(0), 0, &[&command.key]),
            Append::Recorded(self.worker.record_seq())
        );
        self.worker.commit_records();
        let mut look = self.inspector.begin().expect("there is a record");
        assert_eq!(self.reader.next(&mut self.record), Next::Record);
        let (trace, ..) = Trace::read(&self.record).expect("a trace");
        assert!(look.take(&trace));
        let facts = look.told(&trace);
        let mut value = match command.op {
            Op::Put(put) => look.received(&trace, put.mode, command.len).to_vec(),
            _ => Vec::new(),
        };
        let mut command = command.clone();
        fault(&mut command, &mut value);
        // What is gone there without a command is forgotten here.
        if facts.found.is_none()
            && let Some(own) = self.follower.own(&command.key)
        {
            // Not by the trace: the command itself may have made room, after the number was read.
            let has_vanished = self.store.has_vanished_since(&command.key, 0);
            assert!(!own.is_alive(&trace.env()) || has_vanished, "{command:?}: {own:?}");
            self.follower.forget(&command.key);
        } else if let (Some(found), Some(own)) = (facts.found, self.follower.own(&command.key)) {
            assert_eq!(found.cas, own.version.cas, "{command:?}");
        }
        let made = match self.follower.follow(&trace, &facts, &command.request(&value)) {
            Followed::Agrees(answer) => Made::Answer(told(answer.status, answer.item)),
            Followed::Disagrees(mismatch) => Made::Disagreed(mismatch.kind),
            Followed::Damaged => Made::Damaged,
            Followed::NoRoom => panic!("there is memory"),
        };
        look.end(true);
        Some((first, made, cas))
    }
}

/// The birth of a version is another when it was moved meanwhile, and nobody shows it.
fn without_birth(text: &str) -> String {
    let Some((before, after)) = text.split_once("birth: ") else { return text.to_owned() };
    let after = after.split_once(',').map_or("", |(_, after)| after);
    format!("{before}{after}")
}

fn check(options: StoreOptions, keys: usize, value_bytes_max: usize, commands: usize) {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut setup = Setup::new(StoreOptions { seed, ..options });
    let mut now = NOW;
    let mut cas = vec![1_u64; 8];
    let mut followed = 0;
    let bytes: Vec<u8> = (0..value_bytes_max).map(|at| at as u8).collect();
    for number in 0..commands {
        now += u32::from(random.below(50) == 0);
        if random.below(3_000) == 0 {
            setup.store.flush();
        }
        let env = setup.store.env(now);
        let command = command(&mut random, keys, value_bytes_max, &cas);
        let number_value = random.below(1_000_000).to_string();
        let value = if random.below(4) == 0 { number_value.as_bytes() } else { &bytes[..command.len] };
        let command = Command { len: value.len(), ..command };
        if let Some((first, made, shown)) = setup.execute(&command, value, &env, |_, _| {}) {
            followed += 1;
            let Made::Answer(second) = made else { panic!("{command:?}: {first}, then {made:?}") };
            assert_eq!(without_birth(&second), without_birth(&first), "{command:?}");
            cas[number % 8] = shown.unwrap_or(cas[number % 8]);
        }
        match random.below(200) {
            0 => drop(setup.store.maintain(&env, 1)),
            1 => setup.worker.idle(),
            2 => drop(setup.follower.store().maintain(&Env { now: 0, flushed_below: 0 }, 1)),
            _ => {}
        }
    }
    println!("{followed} of {commands} commands followed");
    assert!(followed > commands / 2);
    setup.follower.idle();
    setup.follower.store().check().expect("sound");
    same_items(&mut setup, now);
}

/// What is alive in the one store is there in the other, and the other way round.
fn same_items(setup: &mut Setup, now: u32) {
    let env = setup.store.env(now);
    let mut items: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut cursor = Cursor::default();
    let mut visit = |view: &View<'_>| {
        if store::is_alive(view, &env) {
            items.push((view.key.to_vec(), view.cas));
        }
    };
    while setup.worker.scan(&mut cursor, 100, &mut visit) {}
    let mut cursor = Cursor::default();
    while setup.follower.sweep(&mut cursor, &env) {}
    for (key, cas) in &items {
        let own = setup.follower.own(key).expect("it is there");
        assert!(*cas == 0 || own.version.cas == *cas);
    }
    if setup.store.stats().evictions == 0 {
        assert_eq!(setup.follower.store().stats().items, items.len() as u64);
    }
}

#[test]
fn random_programs() {
    check(StoreOptions::default(), 30, 300, 100_000);
}

#[test]
fn random_programs_without_cas_ids() {
    check(StoreOptions { cas: false, ..StoreOptions::default() }, 30, 300, 50_000);
}

#[test]
fn random_programs_in_little_memory() {
    let options = StoreOptions { memory_bytes: 2 << 20, item_bytes_max: 100_000, ..StoreOptions::default() };
    check(options, 2_000, 8_000, 30_000);
}

#[test]
fn planted_faults_are_found_and_nothing_else_is() {
    let set = Op::Put(Put::set(&[]));
    let append = Op::Put(Put { mode: PutMode::Append, ..Put::set(&[]) });
    let fetch = Op::Fetch(Fetch::default());
    let run = |op, fault: fn(&mut Command, &mut Vec<u8>)| {
        let mut setup = Setup::new(StoreOptions::default());
        let env = setup.store.env(NOW);
        let before = Command { key: b"key".to_vec(), op: set, len: 2 };
        setup.execute(&before, b"41", &env, |_, _| {}).expect("stored");
        let command = Command { key: b"key".to_vec(), op, len: 2 };
        setup.execute(&command, b"10", &env, fault).expect("executed").1
    };
    for op in [set, append, fetch] {
        assert!(matches!(run(op, |_, _| {}), Made::Answer(_)));
    }
    for op in [set, append] {
        assert_eq!(run(op, |_, value| value[0] ^= 1), Made::Disagreed(Kind::Checksum));
        assert_eq!(
            run(op, |command, _| command.op = Op::Put(Put { flags: 1, ..Put::set(&[]) })),
            Made::Disagreed(Kind::Outcome)
        );
        assert_eq!(
            run(op, |command, _| command.op = Op::Fetch(Fetch::default())),
            Made::Disagreed(Kind::Outcome)
        );
    }
    assert_eq!(
        run(fetch, |command, _| command.op = Op::Fetch(Fetch { bump: false, ..Fetch::default() })),
        Made::Disagreed(Kind::Outcome)
    );
}

/// A bit of what the follower itself holds is wrong: it is the follower that is to blame.
#[test]
fn damage_of_its_own_blames_nobody_else() {
    let mut setup = Setup::new(StoreOptions::default());
    let env = setup.store.env(NOW);
    let set = Command { key: b"key".to_vec(), op: Op::Put(Put::set(&[])), len: 2 };
    setup.execute(&set, b"41", &env, |_, _| {}).expect("stored");
    let own = setup.follower.store();
    let mut worker = own.worker(2).expect("a place");
    let place = worker.execute(
        &Command { key: b"key".to_vec(), op: Op::Fetch(Fetch::default()), len: 0 }.request(&[]),
        &env,
    );
    let place = place.item.expect("it is there").value.as_ptr().cast_mut();
    // SAFETY: the value lies in the arena, and nobody else uses the store; a flipped bit is the point.
    unsafe { *place ^= 1 };
    drop(worker);
    let fetch = Command { key: b"key".to_vec(), op: Op::Fetch(Fetch::default()), len: 0 };
    assert_eq!(setup.execute(&fetch, b"", &env, |_, _| {}).expect("found").1, Made::Damaged);
    assert_eq!(setup.follower.own(b"key"), None);
}
