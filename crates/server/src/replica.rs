//! A second copy of the state in another process: every command is executed there as well, and the results compared.
//!
//! * [`wire`]: the frames that go over the socket between the two.
//! * [`link`]: the socket, with what waits on both sides of it.
//! * [`dial`]: starting the replica or calling it, and trying again.
//! * [`service`]: the replica itself, a process that does nothing else.

#[allow(dead_code, reason = "nobody ships records yet")]
mod dial;
#[allow(dead_code, reason = "nobody ships records yet")]
mod link;
mod service;
#[allow(dead_code, reason = "nobody ships records yet")]
mod wire;

pub use service::{Place, run};
