//! Several threads at once: every value read is the one its key and number give, in pins held for long as well.

#![cfg(not(loom))]

mod common;

#[path = "common/hand.rs"]
mod hand;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Random, seed};
use hand::{Hand, Mode};
use store::{Cursor, Delete, Exptime, Fetch, Op, Pinned, Put, PutMode, Request, Status, Store, StoreOptions};

const START: u32 = 1_700_000_000;

/// Bytes that tell whose they are: key and number, then a pattern that follows from both.
fn value(key: u64, number: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 24);
    bytes.extend_from_slice(&key.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    let mut random = Random::new(key ^ number.rotate_left(32));
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length.max(16));
    bytes
}

fn check_value(key: u64, bytes: &[u8]) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(word(0), key, "another key's value");
    assert!(bytes == value(key, word(8), bytes.len()), "a value of key {key} that nobody wrote");
}

struct Load {
    keys: usize,
    value_bytes_max: usize,
    operations: usize,
    flushes: bool,
}

struct Thread<'a> {
    worker: Hand,
    random: Random,
    load: &'a Load,
    clock: &'a AtomicU64,
    pins: Vec<(u64, Pinned)>,
    hits: u64,
}

impl Thread<'_> {
    fn run(&mut self, store: &Arc<Store>) {
        for number in 0..self.load.operations {
            let key = self.random.below(self.load.keys) as u64;
            let env = store.env(START + self.clock.load(Ordering::Relaxed) as u32);
            let name = format!("key:{key}");
            match self.random.below(100) {
                0..45 => self.get(store, key, name.as_bytes(), env),
                45..80 => self.put(key, name.as_bytes(), number as u64, env),
                80..88 => self.draft(key, name.as_bytes(), number as u64, env),
                88..94 => {
                    let op = Op::Delete(Delete::default());
                    self.worker.execute(&Request { key: name.as_bytes(), op }, &env);
                }
                94..96 => self.scan(),
                96..98 => {
                    self.clock.fetch_add(1, Ordering::Relaxed);
                }
                98 if self.load.flushes && self.random.below(50) == 0 => store.flush(),
                _ => self.worker.idle(),
            }
            if self.random.below(16) == 0 {
                self.worker.round();
            }
        }
        self.pins.drain(..).for_each(|(key, pinned)| check_value(key, &pinned));
    }

    fn get(&mut self, store: &Arc<Store>, key: u64, name: &[u8], env: store::Env) {
        let touch = (self.random.below(8) == 0).then_some(Exptime(20));
        let op = Op::Fetch(Fetch { touch, ..Fetch::default() });
        let answer = self.worker.execute(&Request { key: name, op }, &env);
        let Some(item) = answer.item else { return };
        assert_eq!(item.key, name);
        check_value(key, item.value);
        self.hits += 1;
        if self.random.below(20) == 0 {
            let pinned = store.pin(&item);
            self.pins.push((key, pinned));
        }
        if self.pins.len() > 3 {
            let (key, pinned) = self.pins.swap_remove(self.random.below(4));
            check_value(key, &pinned);
        }
    }

    fn put(&mut self, key: u64, name: &[u8], number: u64, env: store::Env) {
        let value = value(key, number, self.random.below(self.load.value_bytes_max));
        let put = self.options(&value);
        let answer = self.worker.execute(&Request { key: name, op: Op::Put(put) }, &env);
        assert!(matches!(answer.status, Status::Stored | Status::OutOfMemory), "{answer:?}");
        if let Some(item) = answer.item {
            assert!(item.value == value);
        }
    }

    fn draft(&mut self, key: u64, name: &[u8], number: u64, env: store::Env) {
        let value = value(key, number, self.random.below(self.load.value_bytes_max));
        let Ok(mut draft) = self.worker.draft(name, value.len() as u32, &env) else { return };
        draft.buffer().copy_from_slice(&value);
        if self.random.below(5) == 0 {
            return;
        }
        let put = self.options(&[]);
        let answer = self.worker.finish(draft, &Request { key: name, op: Op::Put(put) }, &env);
        assert_eq!(answer.status, Status::Stored);
    }

    fn options<'v>(&mut self, value: &'v [u8]) -> Put<'v> {
        let exptime = Exptime([0, 0, 5, 100_000][self.random.below(4)]);
        Put {
            mode: PutMode::Set,
            flags: self.random.below(2) as u32,
            exptime,
            value,
            compare: None,
            new_cas: None,
            invalidate: false,
            vivify: None,
        }
    }

    fn scan(&mut self) {
        let mut cursor = Cursor::default();
        self.worker.scan(&mut cursor, 64, &mut |item| {
            let text = std::str::from_utf8(&item.key[4..]).expect("digits");
            check_value(text.parse().expect("a number"), item.value);
        });
    }
}

fn check(mode: Mode, options: StoreOptions, load: &Load) {
    let seed = seed();
    let threads = 4;
    let options = StoreOptions { seed, start_unix: START, workers_max: threads, ..options };
    let store = Store::new(mode.options(options)).expect("address space");
    let clock = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..threads)
            .map(|thread| {
                let (store, clock, hits) = (&store, &clock, &hits);
                scope.spawn(move || {
                    let worker = Hand::new(store, thread as u16, mode);
                    let random = Random::new(seed.wrapping_add(thread as u64));
                    let mut hand = Thread { worker, random, load, clock, pins: Vec::new(), hits: 0 };
                    hand.run(store);
                    hits.fetch_add(hand.hits, Ordering::Relaxed);
                    println!("{:?}", hand.worker.settle());
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let env = store.env(START + clock.load(Ordering::Relaxed) as u32);
                if !store.maintain(&env, 4) {
                    std::thread::yield_now();
                }
            }
        });
        let failed = hands.into_iter().filter_map(|hand| hand.join().err()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    store.check().expect("the structures agree");
    let stats = store.stats();
    println!("{} hits, {stats:?}", hits.load(Ordering::Relaxed));
    assert!(hits.load(Ordering::Relaxed) > 0);
    assert_eq!(stats.crc_mismatches, 0);
    assert_eq!(stats.disagreements, 0);
}

in_every_mode!(
    plenty_of_memory_and_a_growing_index,
    eviction_and_compaction,
    two_megabytes_and_large_items,
    few_keys_that_everybody_wants,
);

fn plenty_of_memory_and_a_growing_index(mode: Mode) {
    let options = StoreOptions { hash_power: Some(7), ..StoreOptions::default() };
    check(mode, options, &Load { keys: 50_000, value_bytes_max: 200, operations: 100_000, flushes: false });
}

fn eviction_and_compaction(mode: Mode) {
    let options = StoreOptions { memory_bytes: 4 << 20, ..StoreOptions::default() };
    check(mode, options, &Load { keys: 20_000, value_bytes_max: 1_000, operations: 60_000, flushes: true });
}

fn two_megabytes_and_large_items(mode: Mode) {
    let options = StoreOptions { memory_bytes: 2 << 20, ..StoreOptions::default() };
    check(mode, options, &Load { keys: 300, value_bytes_max: 30_000, operations: 3_000, flushes: true });
}

fn few_keys_that_everybody_wants(mode: Mode) {
    check(
        mode,
        StoreOptions::default(),
        &Load { keys: 3, value_bytes_max: 300, operations: 60_000, flushes: true },
    );
}
