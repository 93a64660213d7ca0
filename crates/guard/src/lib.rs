//! Runs a deterministic operator once, several times, or again elsewhere, and says whether the executions agree.
//!
//! Some processors compute wrong results now and then, without any error signal: about one machine in one to three
//! thousand ([Cores that don't count](https://dl.acm.org/doi/10.1145/3458336.3465297),
//! [Silent data corruptions at scale](https://arxiv.org/abs/2102.11245)). A program can't see that by looking at a result;
//! it can by computing it again. This crate has what that takes when the program's decisions are pure functions:
//! write the decision as an [`Operator`], act on its outcome outside, and choose how it is executed:
//!
//! | how | what it costs | what it finds |
//! |---|---|---|
//! | [`direct`] | nothing | nothing |
//! | [`Repeated`], N times here | N executions | what doesn't happen every time; with other routines on the [`Diverse`] side, also what one unit of the core does every time |
//! | [`recorded`], and a [`Replayer`] on another core | 20 to 40 ns and 64 to 128 bytes per execution here, one execution there | also what this core does every time |
//! | the same through a [`BatchWriter`], and a [`Replica`] elsewhere | also moving the bytes | also what goes wrong in a second copy of the state, if the replica keeps one |
//!
//! An operator doesn't know how it is executed. [`Sampler`] decides which executions are worth a second one;
//! [`watermark`] lets a program hold a reply back until its execution is confirmed. When executions differ there is a
//! [`Disagreement`]; [`weigh`] says who was wrong, and [`Scores`] when a core should no longer be used.
//!
//! # What it can't do
//!
//! * Two executions that are wrong in the same way agree. Other routines and another core make that unlikely, no more.
//! * What happens before the input is sampled and after the outcome is compared is not executed twice: reading a socket, acting
//!   on the outcome. Compare what that leaves behind ([`compare`], [`Kind`]), or end it with a checksum.
//! * Executions that are not sampled, and records that were dropped by a full ring, are not confirmed. Both are counted.
//! * An operator that is not pure looks like a sick core, on every core. [`Operator`] says how to tell.
//!
//! The crate knows no keys, sockets, clocks or threads. Where cores are, when a window of time begins and how bytes get
//! somewhere is told by the caller. It depends on nothing but std. Queues have fixed sizes and never make the executing
//! thread wait.
//!
//! # A ledger that notices
//!
//! Transfers between accounts are decided by an operator, which leaves a record. A second thread confirms them, and nobody
//! is told that a transfer took place before that. In the second ledger the core that executes transfers flips one bit.
//!
//! ```
//! use guard::{
//!     Append, Core, Description, Digest, Diverse, Finding, Operator, Record, Recorded, Replayer, Side, Site, Step, Stratum,
//!     Tally, recorded, replay, ring, watermark,
//! };
//!
//! /// Decides what becomes of two balances. `flips` is what a sick core does to the second.
//! struct Transfer {
//!     flips: u64,
//! }
//!
//! /// All that is decided from: the balances as they are, and the amount.
//! struct Order {
//!     from: u64,
//!     to: u64,
//!     cents: u64,
//! }
//!
//! impl Operator for Transfer {
//!     type Input<'a> = Order;
//!     type Env = (); // nothing else matters: not even the time
//!     type Outcome<'a> = Option<(u64, u64)>; // the new balances, unless it is refused
//!
//!     #[inline(always)]
//!     fn execute<'a, S: Side>(&self, order: &Self::Input<'a>, _: &()) -> Self::Outcome<'a> {
//!         if S::IS_DIVERSE {
//!             // The same by other instructions: wide and signed.
//!             let from = i128::from(order.from) - i128::from(order.cents);
//!             let to = i128::from(order.to) + i128::from(order.cents);
//!             Some((u64::try_from(from).ok()?, u64::try_from(to).ok()?))
//!         } else {
//!             let from = order.from.checked_sub(order.cents)?;
//!             let to = order.to.checked_add(order.cents)?;
//!             Some((from, to ^ self.flips))
//!         }
//!     }
//!
//!     #[inline(always)]
//!     fn digest<S: Side>(&self, outcome: &Self::Outcome<'_>) -> Digest {
//!         Digest(outcome.map_or(u64::MAX, |(from, to)| from.rotate_left(32) ^ to))
//!     }
//! }
//!
//! impl Recorded for Transfer {
//!     fn describe<'r>(&self, order: &'r Order, _: &()) -> Description<'r> {
//!         Description { words: [order.from, order.to, order.cents, 0, 0], payload: b"" }
//!     }
//!
//!     fn restore<'r>(&'r self, record: &'r Record) -> Option<(Order, ())> {
//!         let [from, to, cents, 0, 0] = *record.words() else { return None };
//!         Some((Order { from, to, cents }, ()))
//!     }
//! }
//!
//! /// Moves 30 cents three times; returns the numbers of the transfers that were announced, and what was noticed.
//! fn run(flips: u64) -> (Vec<u64>, Vec<String>) {
//!     let (mut writer, reader) = ring(1024);
//!     let (confirmer, mut holder) = watermark();
//!
//!     // The thread that executes.
//!     let transfer = Transfer { flips };
//!     let site = Site { stratum: Stratum(0), first_core: Core(0), ..Site::default() };
//!     let mut balances = (100, 0);
//!     let mut held = Vec::new();
//!     for _ in 0..3 {
//!         let order = Order { from: balances.0, to: balances.1, cents: 30 };
//!         let (outcome, append) = recorded(&transfer, &order, &(), site, &mut writer);
//!         match append {
//!             Append::Recorded(seq) => held.push(seq),
//!             Append::Dropped => unreachable!("the ring has room; else: execute twice, at once"),
//!         }
//!         balances = outcome.unwrap_or(balances);
//!     }
//!     writer.commit(); // once per batch
//!
//!     // The thread that confirms.
//!     let confirming = std::thread::spawn(move || {
//!         let healthy = Transfer { flips: 0 };
//!         let tally = Tally::new(1);
//!         let mut replayer = Replayer::new(reader, confirmer);
//!         let mut noticed = Vec::new();
//!         loop {
//!             let confirm = |record: &Record| {
//!                 replay::<_, Diverse>(&healthy, record)?.agrees().map(|()| Finding::Agrees)
//!             };
//!             match replayer.step(Core(1), &tally, confirm) {
//!                 Step::Idle => return noticed,
//!                 Step::Agrees { .. } | Step::Abandoned { .. } => {}
//!                 Step::Disagrees(disagreement) => noticed.push(disagreement.to_string()),
//!                 Step::Open => replayer.refuse().expect("there are fewer than 16"),
//!             }
//!         }
//!     });
//!     let noticed = confirming.join().expect("it doesn't panic");
//!
//!     // The thread that executes again, when it likes: what is confirmed and not refused may be told.
//!     let mut refused = Vec::new();
//!     let confirmed = holder.poll(|seqs| refused.extend(seqs));
//!     held.retain(|seq| *seq <= confirmed && !refused.contains(seq));
//!     (held, noticed)
//! }
//!
//! let (announced, noticed) = run(0);
//! assert_eq!(announced, [1, 2, 3]);
//! assert!(noticed.is_empty());
//!
//! let (announced, noticed) = run(1 << 7);
//! assert!(announced.is_empty(), "no wrong balance was told to anybody");
//! assert_eq!(noticed.len(), 3);
//! assert_eq!(
//!     noticed[0],
//!     "kind=outcome stratum=0 expected=000000460000009e found=000000460000001e bit=7 \
//!      first_core=0 second_core=1 seq=1"
//! );
//! ```

#[cfg(all(test, not(loom)))]
mod counter;
mod disagreement;
mod execute;
mod operator;
mod random;
mod record;
mod replay;
mod replica;
mod ring;
mod sample;
mod scores;
mod side;
mod sync;
mod tally;
mod verdict;
mod watermark;

pub use disagreement::{Disagreement, Kind, Mismatch, Site, compare, flipped_bit};
pub use execute::{RUNS_MAX, Repeat, Repeated, direct, recorded};
pub use operator::{Core, Description, Digest, Operator, PAYLOAD_BYTES_MAX, Recorded, Seq, Stratum, WORDS};
pub use record::{Draft, Record};
pub use replay::{Finding, Replayed, Replayer, Step, replay};
pub use replica::{
    ACK_BYTES, Ack, BATCH_BYTES_MAX, BATCH_BYTES_MIN, BadAck, BadBytes, Batch, BatchWriter, Gap, Remote,
    Replica, Turn,
};
pub use ring::{Append, Next, Reader, Writer, ring};
pub use sample::{Budget, Coverage, Sampler, Sampling};
pub use scores::{Advice, Scores};
pub use side::{Diverse, Primary, Side};
pub use tally::{Counted, Tally};
pub use verdict::{Ask, Checksum, Evidence, Fault, KnownAnswers, Third, Verdict, Weighed, weigh};
pub use watermark::{Confirmer, Holder, REFUSALS_MAX, TooManyRefusals, watermark};
