//! Sockets, workers, settings, statistics: the only crate that knows both bytes and the store.

pub mod settings;
