//! Faults on purpose: a server's worker is traced, one of its instructions goes wrong, and an oracle says what came of it.

pub mod code;
pub mod fault;
mod random;
pub mod tracee;
pub mod unit;
