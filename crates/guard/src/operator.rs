//! What is executed: a pure function of an input and an environment.

use std::fmt;

use crate::record::Record;
use crate::side::Side;

/// A deterministic function that can be executed again, here or elsewhere, to confirm its first execution.
///
/// # What an implementor promises
///
/// 1. **Purity.** [`execute`](Operator::execute) is determined by `input` and `env` alone. It reads no clock, draws no
///    random number, looks at no global state and no address, iterates over nothing whose order is seeded per
///    process, and changes nothing. What of the world it needs is sampled once, outside, into `Env`.
/// 2. **Equality.** `Outcome`'s `==` is an equivalence: an outcome equals itself. (Floating-point outcomes
///    compare bit patterns.) It covers all that will be acted upon.
/// 3. **Digest.** Equal outcomes have equal digests, on every machine that takes part; unequal ones have, but for
///    chance, unequal digests.
/// 4. **Sides.** `execute::<Primary>` and `execute::<Diverse>` compute the same function, and so do the two digests.
///    They may, and where they can should, use different routines.
/// 5. **Stillness.** What `input` and `env` borrow does not change while an execution, or a record of one, is alive.
///
/// # How a broken promise shows
///
/// As a disagreement without a faulty core: the operator looks sick on *every* core, in the same stratum, and a vote
/// blames now one core and now the other. [`weigh`](crate::weigh) asks a core for the same work twice, so hidden
/// non-determinism shows as "intermittent" verdicts that follow the operator and not the core. The cheapest way to find
/// it is before: run [`Repeated`](crate::Repeated) in the operator's own tests, on many inputs, and ask for silence.
pub trait Operator {
    /// What is computed from. May borrow; it is read by every execution.
    type Input<'a>;
    /// All that is determined neither by the input nor by the operator: the time, an id that was drawn.
    type Env;
    /// What was decided. Nothing has happened yet when it is compared.
    type Outcome<'a>: PartialEq;

    /// Computes the outcome, with the routines of side `S`.
    ///
    /// Mark it `#[inline(always)]`, and what it calls too as far as it should exist once per side: a function that is
    /// not generic over the side and not inlined is one piece of machine code that both sides share.
    ///
    /// Write the signature as it stands here, with `Self::Input<'a>` and `Self::Outcome<'a>`: with the types they stand for,
    /// the compiler takes `'a` for another kind of parameter and refuses it (E0195).
    fn execute<'a, S: Side>(&self, input: &Self::Input<'a>, env: &Self::Env) -> Self::Outcome<'a>;

    /// A number that stands for the outcome where the outcome itself can't be had: in another thread or process.
    fn digest<S: Side>(&self, outcome: &Self::Outcome<'_>) -> Digest;
}

/// An operator whose executions can be put into a [`Record`], to be repeated from it.
pub trait Recorded: Operator {
    /// What to record of an execution beside the outcome's digest: enough to [`restore`](Recorded::restore) it.
    ///
    /// `words` is for what has a fixed size; large immutable things are better pointed at (and kept alive until the
    /// record is validated) than copied into the payload.
    fn describe<'r>(&self, input: &'r Self::Input<'_>, env: &Self::Env) -> Description<'r>;

    /// The input and environment that [`describe`](Recorded::describe) described, or nothing if the record makes no sense.
    fn restore<'r>(&'r self, record: &'r Record) -> Option<(Self::Input<'r>, Self::Env)>;
}

/// The caller's part of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description<'r> {
    /// Anything of a fixed size.
    pub words: [u64; WORDS],
    /// Anything else, at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: &'r [u8],
}

/// How many words of a record's head belong to the caller.
pub const WORDS: usize = 5;

/// The longest payload of a record.
pub const PAYLOAD_BYTES_MAX: usize = u16::MAX as usize;

/// Stands for an outcome, an item's content, or a reply.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({:#018x})", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Names a processor core, by whatever numbering the caller uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Core(pub u16);

/// A class of executions that is sampled and reported on its own: an operator, or an operator and a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stratum(pub u8);

/// The number of a record, counted from 1 per ring; 0 stands before the first.
pub type Seq = u64;
