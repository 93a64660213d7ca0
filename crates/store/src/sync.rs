//! Atomics and locks, so that loom can take the place of std's.

#[cfg(loom)]
pub(crate) use loom::{
    sync::Mutex,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::Mutex,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// A value on a cache line of its own, so that writers of neighbours don't disturb each other.
/// 128 bytes because Intel's prefetcher fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
