//! Runs a deterministic operator once, several times, or again elsewhere, and says whether the executions agree.

mod operator;
mod record;
mod ring;
mod side;
mod sync;

pub use operator::{Core, Description, Digest, Operator, PAYLOAD_BYTES_MAX, Recorded, Seq, Stratum, WORDS};
pub use record::{Draft, Record};
pub use ring::{Append, Next, Reader, Writer, ring};
pub use side::{Diverse, Primary, Side};
