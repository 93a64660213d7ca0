//! What threads share, under every interleaving that loom can find (with two slots in a bucket).

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::bucket::{Entry, Location};
use crate::epoch::Epochs;
use crate::hold::Lease;
use crate::index::{Hash, Index};
use crate::sync::{AtomicU64, Ordering};

/// Explores with at most this many preemptions, which finds all but contrived faults (Musuvathi and Qadeer, PLDI 2007).
fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(test);
}

/// A hash whose candidates among `count` buckets are these.
fn hash_for(count: usize, pair: [usize; 2]) -> Hash {
    let mut hashes = (1_u64..).map(|number| Hash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    hashes.find(|hash| crate::index::pair(*hash, count) == pair).expect("there are many hashes")
}

/// Hashes by location, so that an entry's key is its number.
#[derive(Clone)]
struct Keys(Vec<Hash>);

impl Keys {
    fn entry(&self, key: usize) -> Entry {
        Entry::live(self.0[key].tag(), 0, Location(key as u64))
    }

    fn hash_of(&self, location: Location) -> Hash {
        self.0[location.0 as usize]
    }

    fn insert(&self, index: &Index, key: usize) -> bool {
        let locked = index.lock(self.0[key]);
        let found = locked.find_location(Location(key as u64));
        if found.is_none() {
            let inserted = locked.insert(self.entry(key), |location| self.hash_of(location));
            assert_eq!(inserted.evicted, None);
        }
        found.is_none()
    }

    fn has(&self, index: &Index, key: usize) -> bool {
        index.find(self.0[key], |location| location.0 as usize == key).is_some()
    }
}

/// Memory is written again only when nobody can still read it.
#[test]
fn what_is_retired_is_not_used_while_it_is_seen() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1));
        let current = loom::sync::Arc::new(AtomicU64::new(0));
        let places = loom::sync::Arc::new([UnsafeCell::new(1_u64), UnsafeCell::new(2)]);
        let mut reader = epochs.participant().expect("a place");
        let reading = {
            let (current, places) = (current.clone(), places.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    reader.round();
                    let place = current.load(Ordering::Acquire) as usize;
                    places[place].with(|value| {
                        // SAFETY: read-only; loom reports a concurrent write, which is what this test is about.
                        assert_ne!(unsafe { *value }, 0);
                    });
                    reader.offline();
                }
            })
        };
        current.store(1, Ordering::Release);
        let stamp = epochs.retire();
        if epochs.passed() >= stamp {
            places[0].with_mut(|value| {
                // SAFETY: nobody can see place 0 any more; loom reports it if somebody does.
                unsafe { *value = 0 };
            });
        }
        reading.join().expect("the reader");
    });
}

/// A reader sees a key all the time while an insertion moves it to its other bucket.
#[test]
fn a_displaced_entry_is_always_found() {
    model(|| {
        // Keys 0 and 1 can be in buckets 0 and 1 or 0 and 2; key 2 finds 0 and 1 full, and displaces one of them.
        let keys = Keys(vec![hash_for(4, [0, 2]), hash_for(4, [0, 1]), hash_for(4, [1, 0])]);
        let index = loom::sync::Arc::new(Index::new(4, 4, false).expect("a small table"));
        let fill = |bucket: usize, slot: usize, key: usize| index.bucket(bucket).store(slot, keys.entry(key));
        fill(0, 0, 0);
        fill(0, 1, 1);
        let blocker = Keys(vec![hash_for(4, [1, 1])]);
        index.bucket(1).store(0, Entry::live(blocker.0[0].tag() ^ (1 << 41), 3, Location(1)));
        index.bucket(1).store(1, Entry::live(blocker.0[0].tag() ^ (1 << 42), 3, Location(1)));
        let reading = {
            let (index, keys) = (index.clone(), keys.clone());
            thread::spawn(move || assert!(keys.has(&index, 0)))
        };
        let locked = index.lock(keys.0[2]);
        let inserted = locked.insert(keys.entry(2), |location| keys.hash_of(location));
        assert!(inserted.displaced);
        drop(locked);
        reading.join().expect("the reader");
        assert!(keys.has(&index, 0));
        assert!(keys.has(&index, 2));
    });
}

/// A reader sees every key all the time while its bucket is split.
#[test]
fn a_split_hides_nothing() {
    model(|| {
        let keys = Keys(vec![hash_for(3, [0, 2]), hash_for(3, [2, 2])]);
        let index = loom::sync::Arc::new(Index::new(2, 4, false).expect("a small table"));
        for key in 0..2 {
            assert!(keys.insert(&index, key));
        }
        let reading = {
            let (index, keys) = (index.clone(), keys.clone());
            thread::spawn(move || assert!(keys.has(&index, 1)))
        };
        assert!(index.split(|location| keys.hash_of(location)));
        reading.join().expect("the reader");
        assert!(keys.has(&index, 0));
        assert!(keys.has(&index, 1));
    });
}

/// Of two writers that insert one key if it is absent, one does.
#[test]
fn a_key_is_inserted_once() {
    model(|| {
        let keys = Keys(vec![hash_for(2, [0, 1])]);
        let index = loom::sync::Arc::new(Index::new(2, 2, false).expect("a small table"));
        let other = {
            let (index, keys) = (index.clone(), keys.clone());
            thread::spawn(move || keys.insert(&index, 0))
        };
        let mine = keys.insert(&index, 0);
        let theirs = other.join().expect("the other writer");
        assert!(mine ^ theirs);
        assert!(keys.has(&index, 0));
    });
}

/// What is inserted while its bucket is split is found where it is looked for afterwards.
#[test]
fn an_insertion_notices_a_split() {
    model(|| {
        let keys = Keys(vec![hash_for(3, [2, 2])]);
        let index = loom::sync::Arc::new(Index::new(2, 4, false).expect("a small table"));
        let splitting = {
            let (index, keys) = (index.clone(), keys.clone());
            thread::spawn(move || index.split(|location| keys.hash_of(location)))
        };
        assert!(keys.insert(&index, 0));
        assert!(splitting.join().expect("the splitter"));
        assert!(keys.has(&index, 0));
    });
}

/// A reader of a key that is replaced sees the old entry or the new one.
#[test]
fn a_replaced_entry_is_never_missing() {
    model(|| {
        let keys = Keys(vec![hash_for(2, [0, 1])]);
        let index = loom::sync::Arc::new(Index::new(2, 2, false).expect("a small table"));
        assert!(keys.insert(&index, 0));
        let reading = {
            let (index, keys) = (index.clone(), keys.clone());
            thread::spawn(move || {
                let found = index.find(keys.0[0], |_| true).expect("one of both");
                index.bucket(found.bucket).count_access(found.slot, found.entry);
                found.entry.location().0
            })
        };
        let locked = index.lock(keys.0[0]);
        let found = locked.find(|_| true).expect("it was inserted");
        locked.replace(found, Entry::live(keys.0[0].tag(), 0, Location(1)));
        drop(locked);
        assert!(reading.join().expect("the reader") <= 1);
        let found = index.find(keys.0[0], |_| true).expect("the new one");
        assert_eq!(found.entry.location(), Location(1));
    });
}

/// What a record points to is not written over before its validator has seen it, although the worker that left the record
/// has moved on; unless the record is abandoned, which the validator sees.
#[test]
fn what_records_point_to_is_kept_for_the_validator() {
    for revokes in [false, true] {
        model(move || {
            let epochs = Arc::new(Epochs::new(1));
            let lease = Lease::new(&epochs).expect("a place");
            let committed = loom::sync::Arc::new(AtomicU64::new(0));
            let place = loom::sync::Arc::new(UnsafeCell::new(1_u64));
            let mut worker = epochs.participant().expect("a place");
            worker.round();
            // A record of what the worker sees.
            let epoch = worker.epoch();
            lease.open(epoch);
            let validating = {
                let (lease, committed, place) = (Arc::clone(&lease), committed.clone(), place.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let Some(floor) = lease.begin() else { continue };
                        let is_there = committed.load(Ordering::Acquire) > 0;
                        if is_there && epoch >= floor {
                            place.with(|value| {
                                // SAFETY: read-only; loom reports a concurrent write, which is what this is about.
                                assert_eq!(unsafe { *value }, 1);
                            });
                        }
                        lease.end(epoch, is_there);
                    }
                })
            };
            let stamp = epochs.retire();
            committed.store(1, Ordering::Release);
            lease.close();
            worker.round();
            if revokes {
                Lease::revoke(&epochs);
            }
            if epochs.passed() >= stamp {
                place.with_mut(|value| {
                    // SAFETY: nobody reads it any more; loom checks that.
                    unsafe { *value = 0 };
                });
            }
            validating.join().expect("it doesn't panic");
        });
    }
}
