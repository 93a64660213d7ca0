//! Sockets, workers, settings, statistics: the only crate that knows both bytes and the store.

mod admin;
mod clock;
mod counters;
pub mod settings;
