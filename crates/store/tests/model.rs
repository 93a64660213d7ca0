//! Random programs over all operations, compared with a map, with a check of the structures after each step.
//!
//! The store may forget: an item that the map has and the store has not is dropped from the map when the store says so.
//! It may never show a value, flags, expiry time or cas id that the map has not.

#![cfg(not(loom))]

mod common;

use std::collections::BTreeMap;

use common::{Random, seed};
use store::{
    Answer, Arith, Delete, Direction, Env, Exptime, Fetch, Op, Put, PutMode, Request, Status, Store,
    StoreOptions, Worker,
};

const START: u32 = 1_700_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    exptime: u32,
    cas: u64,
}

struct Model {
    entries: BTreeMap<Vec<u8>, Entry>,
    env: Env,
}

impl Model {
    fn found(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.exptime == 0 || entry.exptime > self.env.now)
    }

    fn absolute(&self, exptime: i64) -> u32 {
        store::absolute(Exptime(exptime), self.env.now)
    }
}

/// What the program does in one step.
#[derive(Clone, Debug)]
enum Step {
    Get,
    Gat(i64),
    Put(PutMode, Vec<u8>, u32, i64, Option<u64>),
    Draft(Vec<u8>, u32, i64),
    Delete(Option<u64>),
    Arith(Direction, u64, Option<u64>),
    Flush,
    Wait(u32),
    Maintain,
}

fn draw(random: &mut Random, value_bytes_max: usize, cas: u64) -> Step {
    let exptime = [0, 0, 0, 5, 100, -1, 10_000][random.below(7)];
    let flags = [0, 0, 7, u32::MAX][random.below(4)];
    let compare = [None, None, Some(cas), Some(cas + 1)][random.below(4)];
    let mut value = || {
        let length = [0, 1, 8, 30, 100, value_bytes_max][random.below(6)];
        let byte = random.below(256) as u8;
        if random.below(5) == 0 {
            random.below(1_000_000).to_string().into_bytes()
        } else {
            vec![byte; length]
        }
    };
    let value = value();
    match random.below(100) {
        0..30 => Step::Get,
        30..35 => Step::Gat(exptime),
        35..60 => Step::Put(PutMode::Set, value, flags, exptime, compare),
        60..64 => Step::Put(PutMode::Add, value, flags, exptime, None),
        64..68 => Step::Put(PutMode::Replace, value, flags, exptime, compare),
        68..72 => Step::Put(PutMode::Append, value, flags, exptime, compare),
        72..76 => Step::Put(PutMode::Prepend, value, flags, exptime, compare),
        76..80 => Step::Draft(value, flags, exptime),
        80..85 => Step::Delete(compare),
        85..90 => Step::Arith(Direction::Incr, random.below(1000) as u64, None),
        90..94 => Step::Arith(Direction::Decr, random.below(1000) as u64, Some(5)),
        94..95 => Step::Flush,
        95..98 => Step::Wait(random.below(20) as u32),
        _ => Step::Maintain,
    }
}

/// Takes one step on both sides and compares.
fn step(store: &Store, worker: &mut Worker, model: &mut Model, key: &[u8], step: &Step) {
    let env = model.env;
    let fetch = |fetch| Request { key, op: Op::Fetch(fetch) };
    match step {
        Step::Get => compare_fetch(model, key, worker.execute(&fetch(Fetch::default()), &env), None),
        Step::Gat(exptime) => {
            let op = Fetch { touch: Some(Exptime(*exptime)), ..Fetch::default() };
            compare_fetch(model, key, worker.execute(&fetch(op), &env), Some(model.absolute(*exptime)));
        }
        Step::Put(mode, value, flags, exptime, compare) => {
            let put = Put {
                mode: *mode,
                flags: *flags,
                exptime: Exptime(*exptime),
                value,
                compare: *compare,
                new_cas: None,
                invalidate: false,
                vivify: None,
            };
            let answer = worker.execute(&Request { key, op: Op::Put(put) }, &env);
            compare_put(model, key, &put, answer);
        }
        Step::Draft(value, flags, exptime) => {
            let put = Put {
                mode: PutMode::Set,
                flags: *flags,
                exptime: Exptime(*exptime),
                value,
                compare: None,
                new_cas: None,
                invalidate: false,
                vivify: None,
            };
            let mut draft = worker.draft(key, value.len() as u32, &env).expect("room for a draft");
            draft.buffer().copy_from_slice(value);
            let answer = worker.finish(draft, &Request { key, op: Op::Put(Put { value: &[], ..put }) }, &env);
            compare_put(model, key, &put, answer);
        }
        Step::Delete(compare) => {
            let op = Op::Delete(Delete { compare: *compare, ..Delete::default() });
            let answer = worker.execute(&Request { key, op }, &env);
            let expected = match (model.found(key), compare) {
                (None, _) => Status::NotFound,
                (Some(entry), Some(compare)) if entry.cas != *compare => Status::Exists,
                _ => Status::Deleted,
            };
            assert!(answer.status == expected || answer.status == Status::NotFound, "{answer:?}");
            if answer.status != Status::Exists {
                model.entries.remove(key);
            }
        }
        Step::Arith(direction, delta, initial) => {
            let op = Op::Arith(Arith {
                direction: *direction,
                delta: *delta,
                vivify: initial.map(|initial| (Exptime(0), initial)),
                exptime: None,
                compare: None,
                new_cas: None,
            });
            compare_arith(
                model,
                key,
                (*direction, *delta, *initial),
                worker.execute(&Request { key, op }, &env),
            );
        }
        Step::Flush => {
            store.flush();
            model.entries.clear();
            model.env = store.env(env.now);
        }
        Step::Wait(seconds) => model.env = store.env(env.now + seconds),
        Step::Maintain => {
            store.maintain(&env, 8);
        }
    }
}

fn compare_fetch(model: &mut Model, key: &[u8], answer: Answer<'_>, touched: Option<u32>) {
    match (answer.status, answer.item) {
        (Status::Miss, None) => {
            model.entries.remove(key);
        }
        (Status::Hit, Some(item)) => {
            let mut expected = model.found(key).cloned().expect("only what was put is found");
            expected.exptime = touched.unwrap_or(expected.exptime);
            let shown =
                Entry { value: item.value.to_vec(), flags: item.flags, exptime: item.exptime, cas: item.cas };
            assert_eq!((item.key, &shown), (key, &expected));
            model.entries.insert(key.to_vec(), expected);
        }
        other => panic!("a fetch answered {other:?}"),
    }
}

fn compare_put(model: &mut Model, key: &[u8], put: &Put<'_>, answer: Answer<'_>) {
    if answer.status == Status::NotStored && put.mode != PutMode::Add || answer.status == Status::NotFound {
        // It was not there: it never was, or it was forgotten.
        model.entries.remove(key);
        return;
    }
    let found = model.found(key).cloned();
    match answer.status {
        Status::NotStored => return assert!(found.is_some(), "an add was refused without reason"),
        Status::Exists => return assert_ne!(found.map(|entry| entry.cas), put.compare),
        Status::Stored => {}
        other => panic!("a put answered {other:?}"),
    }
    let item = answer.item.expect("what was stored is shown");
    let fresh = Entry {
        value: put.value.to_vec(),
        flags: put.flags,
        exptime: model.absolute(put.exptime.0),
        cas: item.cas,
    };
    let expected = match (put.mode, &found) {
        (PutMode::Append, Some(old)) => {
            Entry { value: [&old.value, put.value].concat(), cas: item.cas, ..*old }
        }
        (PutMode::Prepend, Some(old)) => {
            Entry { value: [put.value, &old.value].concat(), cas: item.cas, ..*old }
        }
        _ => fresh,
    };
    if let (Some(old), Some(compare)) = (&found, put.compare) {
        assert_eq!(old.cas, compare);
    }
    if let Some(old) = &found {
        assert!(item.cas > old.cas, "cas ids of a key grow");
    }
    let shown = Entry { value: item.value.to_vec(), flags: item.flags, exptime: item.exptime, cas: item.cas };
    assert_eq!((item.key, &shown), (key, &expected));
    model.entries.insert(key.to_vec(), expected);
}

fn compare_arith(
    model: &mut Model,
    key: &[u8],
    (direction, delta, initial): (Direction, u64, Option<u64>),
    answer: Answer<'_>,
) {
    let found = model.found(key).cloned();
    let number = found.as_ref().and_then(|entry| {
        // Blanks before, a plus sign, and anything behind a blank are let through, as memcached does.
        let text = entry.value.trim_ascii_start();
        let text = text.strip_prefix(b"+").unwrap_or(text);
        let digits = text.split(u8::is_ascii_whitespace).next()?;
        let is_number = entry.value.len() <= 20 && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| std::str::from_utf8(digits).ok()?.parse::<u64>().ok()).flatten()
    });
    match answer.status {
        Status::NotFound => {
            assert_eq!(initial, None);
            model.entries.remove(key);
        }
        Status::NonNumeric => assert_eq!(number, None),
        Status::Stored => {
            let item = answer.item.expect("what was stored is shown");
            let shown = std::str::from_utf8(item.value).expect("digits").trim_end();
            let shown: u64 = shown.parse().expect("a number");
            let counted = number.map(|number| match direction {
                Direction::Incr => number.wrapping_add(delta),
                Direction::Decr => number.saturating_sub(delta),
            });
            assert!(counted == Some(shown) || initial == Some(shown), "{shown} from {number:?}");
            let (flags, exptime) = match counted == Some(shown) {
                true => found.map_or((0, 0), |entry| (entry.flags, entry.exptime)),
                false => (0, 0),
            };
            assert_eq!((item.flags, item.exptime), (flags, exptime));
            let entry = Entry { value: item.value.to_vec(), flags, exptime, cas: item.cas };
            model.entries.insert(key.to_vec(), entry);
        }
        other => panic!("an arithmetic command answered {other:?}"),
    }
}

fn check(options: StoreOptions, keys: usize, value_bytes_max: usize, steps: usize, check_every: usize) {
    let seed = seed();
    let mut random = Random::new(seed);
    let store = Store::new(StoreOptions { seed, start_unix: START, ..options }).expect("address space");
    let mut workers = [store.worker(0).expect("a place"), store.worker(1).expect("a place")];
    let mut model = Model { entries: BTreeMap::new(), env: store.env(START + 10) };
    for number in 0..steps {
        let key = format!("key{}", random.below(keys)).into_bytes();
        let cas = model.entries.get(&key).map_or(1, |entry| entry.cas);
        let drawn = draw(&mut random, value_bytes_max, cas);
        let worker = &mut workers[random.below(2)];
        step(&store, worker, &mut model, &key, &drawn);
        worker.idle();
        if number % check_every == 0 {
            store.check().unwrap_or_else(|wrong| panic!("step {number}, {drawn:?}: {wrong}"));
        }
    }
    store.check().expect("the structures agree");
}

#[test]
fn few_keys_every_step_checked() {
    check(StoreOptions::default(), 10, 2_000, 20_000, 1);
}

#[test]
fn many_keys_and_a_growing_index() {
    check(StoreOptions { hash_power: Some(7), ..StoreOptions::default() }, 30_000, 200, 150_000, 20_000);
}

#[test]
fn little_memory() {
    check(StoreOptions { memory_bytes: 2 << 20, ..StoreOptions::default() }, 3_000, 8_000, 60_000, 2_000);
}

#[test]
fn large_items() {
    check(StoreOptions { memory_bytes: 8 << 20, ..StoreOptions::default() }, 60, 300_000, 4_000, 50);
}
