//! Compares servers in rounds, and says no more than the rounds allow.

pub mod rounds;
pub mod statistics;
