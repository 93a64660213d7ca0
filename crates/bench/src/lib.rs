//! Loads servers, injects faults, keeps raw measurements, draws reports.
//!
//! Knows servers as a user does: by their sockets, their processes and their statistics.

pub mod command;
pub mod compare;
pub mod engine;
pub mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod inject;
pub mod interrupt;
pub mod keys;
pub mod latency;
pub mod oracle;
pub mod protect;
pub mod random;
pub mod record;
pub mod report;
pub mod server;
pub mod speed;
pub mod target;
pub mod values;
pub mod watch;
pub mod workload;
