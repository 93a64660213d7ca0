//! One test for each bug that was found, by what has to hold.

#![cfg(not(loom))]

#[path = "common/hand.rs"]
mod hand;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hand::{Hand, Mode};
use store::{Delete, Env, Exptime, Fetch, Op, Put, PutMode, Request, Status, Store, StoreOptions, Token};

const NOW: u32 = 1_700_000_000;

/// A hang is a failure; nothing here takes nearly as long.
const HANG: Duration = Duration::from_secs(60);

fn store(mode: Mode, megabytes: u64, evict: bool) -> (Arc<Store>, Hand, Env) {
    let options = mode.options(StoreOptions {
        memory_bytes: megabytes << 20,
        evict,
        start_unix: NOW,
        seed: 7,
        ..StoreOptions::default()
    });
    let store = Store::new(options).expect("address space");
    let worker = Hand::new(&store, 0, mode);
    let env = store.env(NOW + 1);
    (store, worker, env)
}

fn put(value: &[u8]) -> Op<'_> {
    Op::Put(Put {
        mode: PutMode::Set,
        flags: 0,
        exptime: Exptime(0),
        value,
        compare: None,
        new_cas: None,
        invalidate: false,
        vivify: None,
    })
}

fn set(worker: &mut Hand, key: &str, value: &[u8], env: &Env) -> Status {
    worker.execute(&Request { key: key.as_bytes(), op: put(value) }, env).status
}

fn has(worker: &mut Hand, key: &str, env: &Env) -> bool {
    let get = Request { key: key.as_bytes(), op: Op::Fetch(Fetch::default()) };
    worker.execute(&get, env).status == Status::Hit
}

in_every_mode!(
    a_flush_is_not_undone_by_maintenance,
    an_item_as_large_as_a_segment_stays_within_it,
    large_puts_end_at_every_charge,
    large_items_that_were_all_read_make_room,
    large_appends_of_drafts_do_not_leak,
    without_eviction_everything_stored_stays,
    a_put_that_ends_after_a_flush_survives_it,
    a_token_is_won_by_the_first_also_when_memory_is_full,
    a_pinned_empty_value_holds_its_own_segment,
    an_expiry_time_given_without_a_trace_leaves_the_last_access,
    the_cas_id_after_the_largest_is_not_zero,
    a_flush_is_not_undone_by_a_command_on_its_way,
    what_is_flushed_is_given_back,
);

/// Maintenance moved what was flushed, by an environment from before the flush, to a segment younger than the flush.
fn a_flush_is_not_undone_by_maintenance(mode: Mode) {
    let (store, mut worker, before) = store(mode, 2, true);
    let keys: Vec<String> = (0..100_000)
        .map(|number| format!("key{number}"))
        .take_while(|key| {
            assert_eq!(set(&mut worker, key, &[1; 100], &before), Status::Stored);
            has(&mut worker, key, &before) && !store.is_pressed()
        })
        .collect();
    store.flush();
    worker.idle();
    for _ in 0..20 {
        store.maintain(&before, 8);
    }
    let after = store.env(NOW + 1);
    assert_eq!(keys.iter().filter(|key| has(&mut worker, key, &after)).count(), 0, "of {}", keys.len());
}

/// A large item of exactly a segment was moved like a small one, grew by a cas id, and wrote into its neighbour.
fn an_item_as_large_as_a_segment_stays_within_it(mode: Mode) {
    let (store, mut worker, env) = store(mode, 64, true);
    let mut put_and_read = |key: String, bytes: usize| {
        assert_eq!(set(&mut worker, &key, &vec![7; bytes], &env), Status::Stored);
        has(&mut worker, &key, &env);
        worker.idle();
    };
    for number in 100..900 {
        // 16 bytes of header and 4 of key.
        put_and_read(format!("k{number}"), (64 << 10) - 20);
    }
    for number in 0..3000 {
        put_and_read(format!("other{number}"), 15_000);
        if number % 50 == 0 {
            store.maintain(&env, 4);
            store.check().expect("the structures agree");
        }
    }
}

/// Room was made for the bytes of a large item, but taken for the bytes of its pages: a put could wait for ever.
fn large_puts_end_at_every_charge(mode: Mode) {
    for charge in [0, 1000, 2000, 3000, 4000] {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let (store, mut worker, env) = store(mode, 8, true);
            store.charge(charge);
            for number in 0..1500 {
                let value = vec![1; 66_000 + number * 977 % 100_000];
                assert_eq!(set(&mut worker, &format!("key{number}"), &value, &env), Status::Stored);
            }
            done.send(())
        });
        assert_eq!(is_done.recv_timeout(HANG), Ok(()), "charge {charge}");
    }
}

/// Large items that were all read went round one by one, and there were more of them than attempts to make room.
fn large_items_that_were_all_read_make_room(mode: Mode) {
    let (_store, mut worker, env) = store(mode, 64, true);
    for number in 0..3000 {
        let key = format!("key{number}");
        assert_eq!(set(&mut worker, &key, &[1; 66_000], &env), Status::Stored, "{key}");
        (0..4).for_each(|_| assert!(has(&mut worker, &key, &env)));
    }
}

/// The run that an append with a draft wrote to was never sealed: nothing could evict it, and nothing freed it.
fn large_appends_of_drafts_do_not_leak(mode: Mode) {
    let (store, mut worker, env) = store(mode, 64, true);
    for number in 0..2000 {
        let key = format!("key{}", number % 10);
        assert_eq!(set(&mut worker, &key, &[1; 100], &env), Status::Stored);
        let mut draft = worker.draft(key.as_bytes(), 100_000, &env).expect("room");
        draft.buffer().fill(2);
        let Op::Put(put) = put(&[]) else { unreachable!("a put is a put") };
        let append = Request { key: key.as_bytes(), op: Op::Put(Put { mode: PutMode::Append, ..put }) };
        assert_eq!(worker.finish(draft, &append, &env).status, Status::Stored, "append {number}");
    }
    assert_eq!(store.stats().evictions, 0);
}

/// Compaction evicted where nothing may be evicted.
fn without_eviction_everything_stored_stays(mode: Mode) {
    let (store, mut worker, env) = store(mode, 8, false);
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("key{number}");
        if set(&mut worker, &key, &[1; 1000], &env) != Status::Stored {
            break;
        }
        if number % 3 == 0 {
            // Holes for compaction.
            worker.forget(key.as_bytes());
        } else {
            keys.push(key);
        }
    }
    assert!(keys.len() > 5000);
    for _ in 0..100 {
        assert_eq!(set(&mut worker, "one more", &[1; 3000], &env), Status::OutOfMemory);
        worker.idle();
        store.maintain(&env, 4);
    }
    assert_eq!(store.stats().evictions, 0);
    assert!(keys.iter().all(|key| has(&mut worker, key, &env)));
}

/// A draft was written to a segment from before the flush, and flushed with it.
fn a_put_that_ends_after_a_flush_survives_it(mode: Mode) {
    for bytes in [5_000, 100_000] {
        let (store, mut worker, env) = store(mode, 8, true);
        let mut draft = worker.draft(b"key", bytes, &env).expect("room");
        draft.buffer().fill(3);
        store.flush();
        let after = store.env(NOW + 1);
        let request = Request { key: b"key", op: put(&[]) };
        assert_eq!(worker.finish(draft, &request, &after).status, Status::Stored);
        let get = Request { key: b"key", op: Op::Fetch(Fetch::default()) };
        let item = worker.execute(&get, &after).item.expect("it was stored");
        assert_eq!(item.value, vec![3; bytes as usize]);
    }
}

/// The token was given away before there was room for the item's new place, and once more after.
fn a_token_is_won_by_the_first_also_when_memory_is_full(mode: Mode) {
    let (_store, mut worker, env) = store(mode, 2, true);
    for number in 0..40_000 {
        let key = format!("key{number}");
        assert_eq!(set(&mut worker, &key, &[1; 100], &env), Status::Stored);
        let invalidate = Op::Delete(Delete { invalidate: true, ..Delete::default() });
        let deleted = worker.execute(&Request { key: key.as_bytes(), op: invalidate }, &env).status;
        let touch = Op::Fetch(Fetch { claim: true, touch: Some(Exptime(1000)), ..Fetch::default() });
        let answer = worker.execute(&Request { key: key.as_bytes(), op: touch }, &env);
        if deleted == Status::Deleted && answer.status == Status::Hit {
            assert_eq!(answer.token, Token::Won, "{key}");
        }
    }
}

/// An empty value at the end of a segment has the address of the next segment, which must not be the one pinned.
fn a_pinned_empty_value_holds_its_own_segment(mode: Mode) {
    let (store, mut worker, env) = store(mode, 8, true);
    let mut pins = Vec::new();
    // 16 bytes of header and 16 of key: segments are filled to the last byte.
    for number in 0..5000 {
        let key = format!("key{number:013}");
        let request = Request { key: key.as_bytes(), op: put(&[]) };
        let item = worker.execute(&request, &env).item.expect("it was stored");
        pins.push(store.pin(&item));
    }
    for number in 0..2000 {
        assert_eq!(set(&mut worker, &format!("large{number}"), &[1; 10_000], &env), Status::Stored);
    }
}

/// An item that had never been fetched, written anew for an expiry time by a fetch that leaves no trace, had one: its
/// last access was said to be then.
fn an_expiry_time_given_without_a_trace_leaves_the_last_access(mode: Mode) {
    let (store, mut worker, env) = store(mode, 8, true);
    assert_eq!(set(&mut worker, "key", b"value", &env), Status::Stored);
    let later = store.env(env.now + 100);
    for touch in [Some(Exptime(1000)), None] {
        let op = Op::Fetch(Fetch { bump: false, touch, ..Fetch::default() });
        let item = worker.execute(&Request { key: b"key", op }, &later).item.expect("it was stored");
        assert_eq!((item.accessed, item.fetched), (env.now, false), "touch {touch:?}");
    }
}

/// After the largest cas id, which a client may ask for, came 0: the id that the binary protocol takes for none.
fn the_cas_id_after_the_largest_is_not_zero(mode: Mode) {
    let (_store, mut worker, env) = store(mode, 8, true);
    let mut put_above = |largest: u64| {
        let Op::Put(options) = put(b"value") else { unreachable!("it is a put") };
        let asking = Op::Put(Put { new_cas: Some(largest), ..options });
        assert_eq!(worker.execute(&Request { key: b"key", op: asking }, &env).status, Status::Stored);
        let answer = worker.execute(&Request { key: b"key", op: put(b"value") }, &env);
        answer.item.expect("it was stored").cas
    };
    for largest in [5, 1 << 40, u64::MAX - (1 << 18), u64::MAX - 1] {
        assert!(put_above(largest) > largest, "{largest}");
    }
    assert_ne!(put_above(u64::MAX), 0);
}

/// An append, or a touch that writes the item anew, saw the item before a flush and wrote it after: to a segment younger
/// than the flush, where it was alive again.
fn a_flush_is_not_undone_by_a_command_on_its_way(mode: Mode) {
    let touched = Op::Fetch(Fetch { touch: Some(Exptime(1000)), ..Fetch::default() });
    let Op::Put(options) = put(b"more") else { unreachable!("it is a put") };
    for op in [Op::Put(Put { mode: PutMode::Append, ..options }), touched] {
        let (store, mut worker, _env) = store(mode, 8, true);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Hand::new(&store, 1, mode);
                while !done.load(Ordering::Relaxed) {
                    other.execute(&Request { key: b"key", op }, &store.env(NOW + 1));
                    other.idle();
                }
            });
            let rounds = 10_000;
            let undone = (0..rounds).find(|_| {
                set(&mut worker, "key", b"value", &store.env(NOW + 1));
                store.flush();
                let is_there = has(&mut worker, "key", &store.env(NOW + 1));
                worker.idle();
                is_there
            });
            done.store(true, Ordering::Relaxed);
            assert_eq!(undone, None, "the first of {rounds} rounds in which {op:?} undid the flush");
        });
    }
}

/// Maintenance kept the segments open that it moves survivors to; what was flushed in them stayed, and was counted.
fn what_is_flushed_is_given_back(mode: Mode) {
    let (store, mut worker, env) = store(mode, 2, true);
    for number in 0..40_000 {
        let key = format!("key{number}");
        assert_eq!(set(&mut worker, &key, &[1; 100], &env), Status::Stored);
        has(&mut worker, &format!("key{}", number / 2), &env);
    }
    assert!(store.stats().moved_items > 0);
    store.flush();
    worker.idle();
    while store.maintain(&store.env(NOW + 2), 8) {}
    assert_eq!((store.stats().items, store.stats().live_bytes), (0, 0));
}
