//! Sockets, workers, settings, statistics: the only crate that knows both bytes and the store.

#[allow(dead_code, unused_imports, reason = "the event loop that asks is not in place yet")]
mod admin;
pub mod settings;
