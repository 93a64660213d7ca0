//! What a command does, decided once or several times before it takes hold.
//!
//! With redundancy, the decision is computed again on the same core by other routines: the key is hashed by the compact
//! form of the hash function and compared byte by byte, and the checksum of the item found is computed from tables.
//! What the executions must agree on is the effect, the hash, whether it is the right item, and its checksum.

use guard::{Core, Digest, Operator, Repeat, Repeated, Side, Site, Stratum};

use crate::crc::{crc32c, crc32c_by_tables};
use crate::index::Hash;
use crate::item::Item;
use crate::operator::compute;
use crate::request::{Effect, Env, Op, Request, View};
use crate::store::Store;

/// Values up to this long are summed from tables when a decision is made again on the same core; longer ones would
/// take milliseconds.
pub(crate) const TABLES_BYTES_MAX: usize = 4 << 10;

/// An item that a command found.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) item: Item<'a>,
    /// The cas id its checksum covers; a store without cas ids shows another one.
    pub(crate) cas: u64,
    pub(crate) view: View<'a>,
}

/// What a decision is made from.
pub(crate) struct Case<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) sight: Option<Sight<'a>>,
}

/// Why there is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The item found does not say what was written.
    Damaged,
    /// The executions don't agree, and there is no majority.
    Disagreed,
}

/// The decision, as guard executes it.
pub(crate) struct Decision<'s> {
    pub(crate) store: &'s Store,
    /// Up to this length, values are summed from tables on the diverse side.
    pub(crate) tables_bytes_max: usize,
}

/// What executions of a decision must agree on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decided<'a> {
    pub(crate) effect: Effect<'a>,
    pub(crate) hash: Hash,
    pub(crate) is_key: bool,
    pub(crate) checksum: Option<u32>,
}

impl Operator for Decision<'_> {
    type Input<'a> = Case<'a>;
    type Env = Env;
    type Outcome<'a> = Decided<'a>;

    #[inline(always)]
    fn execute<'a, S: Side>(&self, case: &Self::Input<'a>, env: &Env) -> Self::Outcome<'a> {
        let key = case.request.key;
        let found = case.sight.map(|sight| sight.view);
        let decided = Decided {
            effect: compute(&case.request, env, found, self.store.options.sealed_flags),
            hash: if S::IS_DIVERSE { self.store.hash_compactly(key) } else { self.store.hash(key) },
            is_key: found.is_none_or(|item| is_same_key::<S>(item.key, key)),
            checksum: case.sight.map(|sight| {
                sight.item.checksum(sight.cas, |crc, bytes| sum::<S>(crc, bytes, self.tables_bytes_max))
            }),
        };
        #[cfg(all(test, not(loom)))]
        let decided = tests::sicken(decided);
        decided
    }

    fn digest<S: Side>(&self, decided: &Self::Outcome<'_>) -> Digest {
        // Only asked for when executions differ, so it may allocate.
        Digest(crc32c(0, format!("{decided:?}").as_bytes()).into())
    }
}

impl Store {
    /// Decides a command that was looked up by `hash`, on a core.
    #[inline]
    pub(crate) fn decide<'a>(
        &self,
        redundancy: Option<Repeated>,
        core: Core,
        case: &Case<'a>,
        env: &Env,
        hash: Hash,
    ) -> Result<Effect<'a>, Refused> {
        match redundancy {
            None => {
                let found = case.sight.map(|sight| sight.view);
                Ok(compute(&case.request, env, found, self.options.sealed_flags))
            }
            Some(redundancy) => self.decide_again(redundancy, core, case, env, hash),
        }
    }

    fn decide_again<'a>(
        &self,
        redundancy: Repeated,
        core: Core,
        case: &Case<'a>,
        env: &Env,
        hash: Hash,
    ) -> Result<Effect<'a>, Refused> {
        let site = Site { stratum: stratum(&case.request), first_core: core, second_core: core };
        let decision = Decision { store: self, tables_bytes_max: TABLES_BYTES_MAX };
        let repeat = redundancy.run(&decision, case, env, site);
        if let Some(disagreement) = repeat.disagreement() {
            self.report(*disagreement);
        }
        let (Repeat::Agreed(decided) | Repeat::Repaired(decided, _)) = repeat else {
            return Err(Refused::Disagreed);
        };
        if decided.hash != hash || !decided.is_key {
            // They agree with each other, and not with the look-up.
            return Err(Refused::Disagreed);
        }
        if decided.checksum.is_some_and(|sum| case.sight.is_some_and(|sight| sight.item.crc() != sum)) {
            return Err(Refused::Damaged);
        }
        Ok(decided.effect)
    }
}

/// The class a command is counted in.
pub(crate) fn stratum(request: &Request<'_>) -> Stratum {
    Stratum(match request.op {
        Op::Fetch(_) => 0,
        Op::Put(_) => 1,
        Op::Delete(_) => 2,
        Op::Arith(_) => 3,
    })
}

#[cfg(all(test, not(loom)))]
pub(crate) use tests::sick_copy;

#[inline(always)]
fn is_same_key<S: Side>(stored: &[u8], asked: &[u8]) -> bool {
    if !S::IS_DIVERSE {
        return stored == asked;
    }
    let differing = stored.iter().zip(asked).fold(0, |bits, (a, b)| bits | (a ^ b));
    differing == 0 && stored.len() == asked.len()
}

#[inline(always)]
pub(crate) fn sum<S: Side>(crc: u32, bytes: &[u8], tables_bytes_max: usize) -> u32 {
    if S::IS_DIVERSE && bytes.len() <= tables_bytes_max {
        crc32c_by_tables(crc, bytes)
    } else {
        crc32c(crc, bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::options::StoreOptions;
    use crate::request::{Delete, Fetch, Put, Status};
    use crate::worker::Worker;

    thread_local! {
        /// The executions of this thread that go wrong, by number from now: one bit each.
        static SICK: Cell<u64> = const { Cell::new(0) };
        /// Flipped in the checksum of what is written next.
        static SICK_COPY: Cell<u32> = const { Cell::new(0) };
    }

    /// What a sick core makes of a decision.
    pub(super) fn sicken(mut decided: Decided<'_>) -> Decided<'_> {
        let sick = SICK.get();
        SICK.set(sick >> 1);
        if sick & 1 != 0 {
            decided.effect.status = match decided.effect.status {
                Status::Hit => Status::Miss,
                _ => Status::Hit,
            };
        }
        decided
    }

    pub(crate) fn sick_copy() -> u32 {
        SICK_COPY.take()
    }

    fn store(redundancy: u8) -> (Arc<Store>, Worker) {
        let store =
            Store::new(StoreOptions { redundancy, ..StoreOptions::default() }).expect("address space");
        let worker = store.worker(0).expect("a place");
        (store, worker)
    }

    fn set(value: &[u8]) -> Request<'_> {
        Request { key: b"k", op: Op::Put(Put::set(value)) }
    }

    const GET: Request<'_> = Request {
        key: b"k",
        op: Op::Fetch(Fetch {
            touch: None,
            vivify: None,
            recache: None,
            new_cas: None,
            bump: false,
            claim: false,
        }),
    };

    /// Sets, then sets again while the executions named by `sick` go wrong; what that answers, what is there then, and
    /// how many disagreements there were.
    fn check(redundancy: u8, sick: u64, status: Status, value: &[u8], disagreements: usize) {
        let (store, mut worker) = store(redundancy);
        let env = store.env(1_000);
        assert_eq!(worker.execute(&set(b"old"), &env).status, Status::Stored);
        worker.set_core(7);
        SICK.set(sick);
        let answer = worker.execute(&set(b"new"), &env).status;
        SICK.set(0);
        let what = format!("redundancy {redundancy}, sick {sick:b}");
        assert_eq!(answer, status, "{what}");
        let there = worker.execute(&GET, &env).item.map(|item| item.value.to_vec());
        assert_eq!(there.as_deref(), Some(value), "{what}");
        let reported = store.take_disagreements();
        // Where it happened, and not where the item was written.
        assert!(reported.iter().all(|disagreement| disagreement.first_core == Core(7)), "{what}");
        assert_eq!(
            (reported.len(), store.stats().disagreements as usize),
            (disagreements, disagreements),
            "{what}"
        );
        store.check().expect("the structures agree");
    }

    /// With one execution nothing is noticed: the answer is wrong. With two, the one that went wrong is repeated; what
    /// can't be settled changes nothing. With three and more the majority counts.
    #[test]
    fn executions_that_go_wrong() {
        for redundancy in [2, 3, 5, 10] {
            check(redundancy, 0b0, Status::Stored, b"new", 0);
            check(redundancy, 0b1, Status::Stored, b"new", 1);
            check(redundancy, 0b10, Status::Stored, b"new", 1);
        }
        check(2, 0b101, Status::Disagreed, b"old", 1);
        check(2, 0b1001, Status::Disagreed, b"old", 1);
        check(5, 0b110, Status::Stored, b"new", 1);
    }

    /// The detector's other arm: the same fault with the detector off.
    #[test]
    fn without_redundancy_a_fault_is_not_seen() {
        let (store, mut worker) = store(1);
        let env = store.env(1_000);
        SICK.set(0b1);
        assert_eq!(worker.execute(&set(b"new"), &env).status, Status::Stored);
        assert_eq!(SICK.take(), 0b1, "the decision is not made through the detector");
        assert_eq!(store.take_disagreements(), []);
    }

    /// What lies in memory otherwise than it was received is not published.
    #[test]
    fn a_value_that_was_copied_wrongly_is_refused() {
        for length in [3, 100_000] {
            let (store, mut worker) = store(2);
            let env = store.env(1_000);
            let value = vec![b'v'; length];
            for sick in [0, 1 << 9, 0] {
                SICK_COPY.set(sick);
                let status = worker.execute(&set(&value), &env).status;
                assert_eq!(status == Status::Stored, sick == 0);
                assert_eq!(worker.execute(&GET, &env).status, Status::Hit);
            }
            assert_eq!(store.take_disagreements().len(), 1);
            assert_eq!(store.stats().crc_mismatches, 0);
            store.check().expect("the structures agree");
        }
    }

    /// A fetch of a damaged item is a miss with redundancy, and shows the damage without.
    #[test]
    fn a_damaged_item_is_not_shown() {
        for (redundancy, expected) in [(1, Status::Hit), (2, Status::Miss), (3, Status::Miss)] {
            let (store, mut worker) = store(redundancy);
            let env = store.env(1_000);
            let shown = worker.execute(&set(b"value"), &env).item.expect("what was stored is shown");
            let place = shown.value.as_ptr().cast_mut();
            // SAFETY: the value lies in the arena, and nobody else uses the store; a flipped bit is the point.
            unsafe { *place ^= 4 };
            assert_eq!(worker.execute(&GET, &env).status, expected, "redundancy {redundancy}");
            let mismatches = u64::from(redundancy > 1);
            assert_eq!(store.stats().crc_mismatches, mismatches, "redundancy {redundancy}");
        }
    }

    /// A delete that can't be decided leaves the item, and says so.
    #[test]
    fn a_delete_that_is_refused_deletes_nothing() {
        let (store, mut worker) = store(2);
        let env = store.env(1_000);
        worker.execute(&set(b"value"), &env);
        SICK.set(0b101);
        let delete = Request { key: b"k", op: Op::Delete(Delete::default()) };
        assert_eq!(worker.execute(&delete, &env).status, Status::Disagreed);
        SICK.set(0);
        assert_eq!(worker.execute(&GET, &env).status, Status::Hit);
        assert_eq!(worker.execute(&delete, &env).status, Status::Deleted);
    }
}
