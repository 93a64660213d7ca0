//! The operator of this crate's tests: a counter with a limit, and faults on purpose.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::operator::{Description, Digest, Operator, Recorded};
use crate::record::Record;
use crate::side::Side;

/// Adds to a counter. Each execution takes the next mask of its side and flips these bits of its result, as a sick core
/// would; without masks it is healthy.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    primary: RefCell<VecDeque<u64>>,
    diverse: RefCell<VecDeque<u64>>,
}

/// What is added to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Add<'a> {
    pub(crate) value: u64,
    pub(crate) delta: u64,
    pub(crate) reason: &'a [u8],
}

/// The environment: counters don't go beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) u64);

impl Counter {
    /// Execution `n` of a side flips the `n`th mask; those after the last are right.
    pub(crate) fn with_faults(primary: &[u64], diverse: &[u64]) -> Self {
        Counter {
            primary: RefCell::new(primary.iter().copied().collect()),
            diverse: RefCell::new(diverse.iter().copied().collect()),
        }
    }

    /// Whether all faults have taken place.
    pub(crate) fn is_spent(&self) -> bool {
        self.primary.borrow().is_empty() && self.diverse.borrow().is_empty()
    }
}

impl Operator for Counter {
    type Input<'a> = Add<'a>;
    type Env = Limit;
    type Outcome<'a> = u64;

    fn execute<'a, S: Side>(&self, input: &Self::Input<'a>, env: &Limit) -> Self::Outcome<'a> {
        let masks = if S::IS_DIVERSE { &self.diverse } else { &self.primary };
        let sum = if S::IS_DIVERSE {
            (u128::from(input.value) + u128::from(input.delta)).min(u128::from(env.0)) as u64
        } else {
            input.value.saturating_add(input.delta).min(env.0)
        };
        sum ^ masks.borrow_mut().pop_front().unwrap_or(0)
    }

    fn digest<S: Side>(&self, outcome: &u64) -> Digest {
        Digest(*outcome)
    }
}

impl Recorded for Counter {
    fn describe<'r>(&self, input: &'r Add<'_>, env: &Limit) -> Description<'r> {
        Description { words: [input.value, input.delta, env.0, 0, 0], payload: input.reason }
    }

    fn restore<'r>(&'r self, record: &'r Record) -> Option<(Add<'r>, Limit)> {
        let [value, delta, limit, 0, 0] = *record.words() else { return None };
        Some((Add { value, delta, reason: record.payload() }, Limit(limit)))
    }
}
