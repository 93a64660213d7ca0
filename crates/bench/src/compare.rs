//! Compares servers in rounds, and says no more than the rounds allow.

pub mod contender;
pub mod results;
pub mod rounds;
pub mod statistics;
