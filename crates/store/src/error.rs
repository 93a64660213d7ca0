//! What can go wrong when a store is made or changed.

use std::fmt;

/// Why a store or a worker could not be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused address space or memory: how many bytes, and what it said.
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The memory limit is outside of what this store can hold.
    MemoryLimit {
        /// What was asked for.
        bytes: usize,
        /// The smallest limit.
        bytes_min: usize,
        /// The largest limit; address space is reserved when the store is made.
        bytes_max: usize,
    },
    /// More workers than `StoreOptions::workers_max`.
    TooManyWorkers {
        /// The limit.
        workers_max: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Memory { bytes, source } => write!(f, "cannot reserve {bytes} bytes of memory: {source}"),
            Error::MemoryLimit { bytes, bytes_min, bytes_max } => {
                write!(f, "a memory limit of {bytes} bytes is outside of {bytes_min} to {bytes_max}")
            }
            Error::TooManyWorkers { workers_max } => write!(f, "more than {workers_max} workers"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Memory { source, .. } => Some(source),
            _ => None,
        }
    }
}
