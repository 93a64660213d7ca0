//! A second copy of the state in another process: every command is executed there as well, and the results compared.
//!
//! At the server:
//! * [`dial`]: starting the replica or calling it, and trying again.
//! * [`parcel`]: records, and what belongs to them.
//!
//! At the replica:
//! * [`service`]: a process that does nothing else.
//! * [`streams`]: records that wait for their turn.
//! * [`mirror`]: its state, and what follows from it.
//!
//! Between them: [`wire`], the frames, and [`link`], the socket.

#[allow(dead_code, reason = "nobody ships records yet")]
mod dial;
#[allow(dead_code, reason = "nobody ships records yet")]
mod link;
mod mirror;
#[allow(dead_code, reason = "nobody ships records yet")]
mod parcel;
mod service;
mod streams;
#[cfg(test)]
mod tests;
#[allow(dead_code, reason = "nobody ships records yet")]
mod wire;

pub(crate) use mirror::{Made, Mirror, Occasion};
pub use service::{Place, run};
