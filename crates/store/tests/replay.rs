//! What workers recorded, repeated elsewhere: agrees with the first execution whatever happens meanwhile, and does not
//! when something was wrong.

#![cfg(not(loom))]

mod common;

#[path = "common/command.rs"]
mod command;

use std::collections::VecDeque;
use std::sync::Arc;

use command::{Command, NOW, command, told};
use common::{Random, seed};
use guard::{Append, Kind, Mismatch, Next, Reader, Record, Stratum, ring};
use store::{
    Arith, Delete, Direction, Env, Exptime, Fetch, Inspector, Needs, Op, Put, PutMode, Request, Status,
    Store, StoreOptions, Trace, Worker,
};

struct Setup {
    store: Arc<Store>,
    worker: Worker,
    inspector: Inspector,
    reader: Reader,
    record: Record,
    waiting: VecDeque<(Command, String)>,
    abandoned: usize,
}

impl Setup {
    fn new(options: StoreOptions) -> Self {
        let store = Store::new(StoreOptions { start_unix: NOW, ..options }).expect("address space");
        let mut worker = store.worker(0).expect("a place");
        let (writer, reader) = ring(1 << 12);
        let inspector = worker.record_into(writer, Needs::default()).expect("a hold");
        let (record, waiting) = (Record::default(), VecDeque::new());
        Setup { store, worker, inspector, reader, record, waiting, abandoned: 0 }
    }

    /// Executes a command and writes it down; the cas id it showed.
    fn execute(&mut self, command: &Command, value: &[u8], env: &Env) -> Option<u64> {
        self.worker.trace_next(true);
        let answer = self.worker.execute(&command.request(value), env);
        let (told, cas) = (told(answer.status, answer.item), answer.item.map(|item| item.cas));
        if let Some(trace) = self.worker.take_trace() {
            match self.worker.record(&trace, Stratum(0), 0, &[&command.key]) {
                Append::Recorded(_) => self.waiting.push_back((command.clone(), told)),
                Append::Dropped => {}
            }
        }
        cas
    }

    /// Repeats what was committed, `count` records at most.
    fn repeat(&mut self, count: usize) -> Result<(), Mismatch> {
        let Some(mut look) = self.inspector.begin() else { return Ok(()) };
        let mut is_drained = false;
        for _ in 0..count {
            match self.reader.next(&mut self.record) {
                Next::Empty => {
                    is_drained = true;
                    break;
                }
                Next::Record => {}
                Next::Corrupt { .. } => panic!("nobody damaged the ring"),
            }
            let (command, told_first) = self.waiting.pop_front().expect("it was executed");
            let (trace, ..) = Trace::read(&self.record).expect("it was a trace");
            if !look.take(&trace) {
                self.abandoned += 1;
                continue;
            }
            let value = match command.op {
                Op::Put(put) => look.received(&trace, put.mode, command.len),
                _ => &[],
            };
            let (again, _) = look.repeat(&trace, &command.request(value))?;
            assert_eq!(told(again.status, again.item), told_first, "{command:?}");
        }
        look.end(is_drained);
        Ok(())
    }
}

/// A program of random commands whose records are repeated late, while others change what they are about.
fn check(options: StoreOptions, keys: usize, value_bytes_max: usize, commands: usize) -> usize {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut setup = Setup::new(StoreOptions { seed, ..options });
    let mut other = setup.store.worker(1).expect("a place");
    let mut now = NOW;
    let mut cas = vec![1_u64; 8];
    let bytes: Vec<u8> = (0..value_bytes_max).map(|at| at as u8).collect();
    for number in 0..commands {
        now += u32::from(random.below(50) == 0);
        if random.below(3_000) == 0 {
            setup.store.flush();
        }
        let env = setup.store.env(now);
        let command = command(&mut random, keys, value_bytes_max, &cas);
        let from = random.below(value_bytes_max - command.len + 1);
        let number_value = random.below(1_000_000).to_string();
        let value =
            if random.below(4) == 0 { number_value.as_bytes() } else { &bytes[from..from + command.len] };
        let command = Command { len: value.len(), ..command };
        if random.below(4) == 0 {
            other.execute(&command.request(value), &env);
            other.round();
        } else if let Some(shown) = setup.execute(&command, value, &env) {
            cas[number % 8] = shown;
        }
        match random.below(20) {
            0 => setup.worker.round(),
            1 => setup.worker.idle(),
            2 => {
                let count = random.below(100);
                setup.repeat(count).expect("they agree");
            }
            3 => drop(setup.store.maintain(&env, 1)),
            _ => {}
        }
    }
    setup.worker.idle();
    setup.repeat(usize::MAX).expect("they agree");
    assert_eq!(setup.waiting.len(), 0);
    println!("{} of {commands} commands abandoned", setup.abandoned);
    setup.abandoned
}

#[test]
fn random_programs() {
    check(StoreOptions::default(), 30, 300, 200_000);
}

#[test]
fn random_programs_without_cas_ids() {
    check(StoreOptions { cas: false, ..StoreOptions::default() }, 30, 300, 50_000);
}

#[test]
fn random_programs_in_little_memory() {
    let options = StoreOptions { memory_bytes: 2 << 20, item_bytes_max: 100_000, ..StoreOptions::default() };
    check(options, 3_000, 8_000, 60_000);
}

/// Nobody repeats anything: memory is used again all the same, and what was recorded is abandoned.
#[test]
fn a_validator_that_stands_still_keeps_no_memory() {
    let mut setup = Setup::new(StoreOptions { memory_bytes: 2 << 20, ..StoreOptions::default() });
    let env = setup.store.env(NOW);
    for number in 0..20_000 {
        let op = Op::Put(Put::set(&[]));
        let command = Command { key: format!("key{number}").into_bytes(), op, len: 1_000 };
        setup.worker.trace_next(true);
        let answer = setup.worker.execute(&command.request(&[7; 1_000]), &env);
        assert_eq!(answer.status, Status::Stored, "key {number}");
        let trace = setup.worker.take_trace().expect("it was stored");
        if let Append::Recorded(_) = setup.worker.record(&trace, Stratum(0), 0, &[&command.key]) {
            setup.waiting.push_back((command, String::new()));
        }
        if number % 10 == 9 {
            setup.worker.round();
        }
    }
    assert!(setup.worker.records_dropped() > 0, "the ring is full");
    setup.waiting.clear();
    let mut look = setup.inspector.begin().expect("there are records");
    let mut taken = 0;
    while setup.reader.next(&mut setup.record) == Next::Record {
        let (trace, ..) = Trace::read(&setup.record).expect("a trace");
        taken += usize::from(look.take(&trace));
    }
    assert_eq!(taken, 0, "all of it is older than the last eviction");
    look.end(true);
}

/// One command is executed, something is done to its record or items, and it is repeated: whether it agrees.
fn check_fault(op: Op<'static>, fault: impl FnOnce(&mut Command, &Setup)) -> Result<(), Kind> {
    let mut setup = Setup::new(StoreOptions::default());
    let env = setup.store.env(NOW);
    let before = Command { key: b"key".to_vec(), op: Op::Put(Put::set(&[])), len: 2 };
    setup.execute(&before, b"41", &env);
    let command = Command { key: b"key".to_vec(), op, len: 2 };
    setup.execute(&command, b"10", &env);
    setup.worker.idle();
    let (mut last, told) = setup.waiting.pop_back().expect("it was executed");
    fault(&mut last, &setup);
    setup.waiting.push_back((last, told));
    setup.repeat(2).map_err(|mismatch| mismatch.kind)
}

/// Flips a bit of the value that is there now.
fn damage(setup: &Setup) {
    let mut worker = setup.store.worker(2).expect("a place");
    let fetch = Fetch { bump: false, ..Fetch::default() };
    let env = setup.store.env(NOW);
    let answer = worker.execute(&Request { key: b"key", op: Op::Fetch(fetch) }, &env);
    let place = answer.item.expect("it is there").value.as_ptr().cast_mut();
    // SAFETY: the value lies in the arena, and nobody else uses the store; a flipped bit is the point.
    unsafe { *place ^= 1 };
}

#[test]
fn planted_faults_are_found_and_nothing_else_is() {
    let arith = |delta| {
        Op::Arith(Arith {
            direction: Direction::Incr,
            delta,
            vivify: None,
            exptime: None,
            compare: None,
            new_cas: None,
        })
    };
    let fetch = Op::Fetch(Fetch::default());
    let touch = Op::Fetch(Fetch { touch: Some(Exptime(60)), ..Fetch::default() });
    let set = Op::Put(Put::set(&[]));
    let put = |mode| Op::Put(Put { mode, ..Put::set(&[]) });
    let compare = |compare| Op::Put(Put { compare: Some(compare), ..Put::set(&[]) });
    let delete = Op::Delete(Delete::default());
    let other = |op| move |command: &mut Command, _: &Setup| command.op = op;
    for op in [fetch, touch, set, put(PutMode::Add), put(PutMode::Append), compare(1), delete, arith(1)] {
        assert_eq!(check_fault(op, |_, _| {}), Ok(()), "{op:?}");
        let hash = check_fault(op, |command, _| command.key = b"kez".to_vec());
        assert_eq!(hash, Err(Kind::Outcome), "{op:?}");
    }
    // The same record, understood otherwise by the second execution.
    for (op, again) in [
        (fetch, touch),
        (fetch, delete),
        (touch, Op::Fetch(Fetch { touch: Some(Exptime(61)), ..Fetch::default() })),
        (set, put(PutMode::Add)),
        (set, Op::Put(Put { flags: 1, ..Put::set(&[]) })),
        (set, Op::Put(Put { exptime: Exptime(9), ..Put::set(&[]) })),
        (put(PutMode::Append), put(PutMode::Prepend)),
        (put(PutMode::Add), set),
        (compare(1), set),
        (delete, Op::Delete(Delete { invalidate: true, ..Delete::default() })),
        (delete, fetch),
        (arith(1), arith(2)),
    ] {
        assert_eq!(check_fault(op, other(again)), Err(Kind::Outcome), "{op:?} {again:?}");
    }
    for op in [fetch, touch, set, put(PutMode::Append), put(PutMode::Add), compare(1), arith(1)] {
        let damaged = check_fault(op, |_, setup| damage(setup));
        assert_eq!(damaged, Err(Kind::Checksum), "{op:?}");
    }
}
