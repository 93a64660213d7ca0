//! Runs a deterministic operator once, several times, or again elsewhere, and says whether the executions agree.

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
pub use replay::{Replayed, Replayer, Step, replay};
pub use replica::{
    ACK_BYTES, Ack, BATCH_BYTES_MAX, BATCH_BYTES_MIN, BadAck, BadBytes, Batch, BatchWriter, Gap, Remote,
    Replica,
};
pub use ring::{Append, Next, Reader, Writer, ring};
pub use sample::{Budget, Coverage, Sampler, Sampling};
pub use scores::{Advice, Scores};
pub use side::{Diverse, Primary, Side};
pub use tally::{Counted, Tally};
pub use verdict::{Ask, Checksum, Evidence, Fault, KnownAnswers, Third, Verdict, Weighed, weigh};
pub use watermark::{Confirmer, Holder, REFUSALS_MAX, TooManyRefusals, watermark};
