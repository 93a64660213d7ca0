//! A connection of the generator: what is to be written, what is owed, and what has come of it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::ledger::Floor;
use crate::workload::Operation;

/// Bytes that wait to be written before nothing more is added; one request may go beyond.
pub(super) const OUT_BYTES_MAX: usize = 1 << 20;

/// Keys that were found missing and are to be stored again.
const RESTORE_MAX: usize = 16;

/// Which of a run's key spaces a key is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Space {
    /// Values with versions.
    Main,
    /// Numbers.
    Counter,
    /// Values that grow.
    Joined,
}

/// One key of a request that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) space: Space,
    pub(super) key: u64,
    /// What was acknowledged of it when it was sent.
    pub(super) floor: Floor,
    /// Of a counter.
    pub(super) tally: [u64; 2],
}

/// What a request changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Nothing,
    /// A version of a key in the ledger; mortal if it has a time to live.
    Version {
        mortal: bool,
    },
    /// A counter, up or down.
    Count {
        down: bool,
    },
    /// It makes a counter, or a joined value, anew.
    Renew,
}

/// A request that is under way, or a barrier behind quiet ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Its number in the mix; nothing for a barrier.
    pub(super) entry: Option<u8>,
    /// What it really is, if it is not what its entry says: a `cas` that knows no id asks for one.
    pub(super) operation: Operation,
    pub(super) change: Change,
    /// Keys in it, of which so many are still to be judged.
    pub(super) keys: u16,
    pub(super) keys_left: u16,
    pub(super) hits: u16,
    /// Ties replies to quiet meta commands.
    pub(super) opaque: u16,
    /// Without a reply on success.
    pub(super) is_quiet: bool,
    pub(super) has_failed: bool,
    /// Nanoseconds since the phase began.
    pub(super) intended: u64,
    pub(super) sent: u64,
}

impl Pending {
    pub(super) fn new(entry: Option<u8>, operation: Operation, intended: u64, sent: u64) -> Self {
        Pending {
            entry,
            operation,
            change: Change::Nothing,
            keys: 0,
            keys_left: 0,
            hits: 0,
            opaque: 0,
            is_quiet: false,
            has_failed: false,
            intended,
            sent,
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: OwnedFd,
    /// Its place in the list of servers.
    pub(super) server: u64,
    /// Its place among the connections to that server, and their number.
    pub(super) place: (u64, u64),
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// The beginning of a reply whose rest has not come.
    pub(super) partial: Vec<u8>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) asked: VecDeque<Asked>,
    /// Requests under way, without barriers.
    pub(super) under_way: u32,
    /// Quiet requests stand at the end, without a barrier behind them.
    pub(super) needs_barrier: bool,
    /// Whether it waits until it can write.
    pub(super) is_blocked: bool,
    pub(super) opaque: u16,
    pub(super) restore: Vec<(Space, u64)>,
    /// When the server last made progress on it, in nanoseconds since the phase began.
    pub(super) heard: u64,
    /// How far its part of the prefill is.
    pub(super) filled: u64,
}

impl Connection {
    pub(super) fn new(stream: OwnedFd, server: u64, place: (u64, u64)) -> Self {
        Connection {
            stream,
            server,
            place,
            out: Vec::new(),
            written: 0,
            partial: Vec::new(),
            pending: VecDeque::new(),
            asked: VecDeque::new(),
            under_way: 0,
            needs_barrier: false,
            is_blocked: false,
            opaque: 0,
            restore: Vec::new(),
            heard: 0,
            filled: 0,
        }
    }

    /// Whether another request may be added, of so many at a time.
    pub(super) fn has_room(&self, depth: u32) -> bool {
        self.under_way < depth && self.out.len() - self.written < OUT_BYTES_MAX
    }

    /// Remembers to store a key again. What does not fit is found missing another time.
    pub(super) fn restore_later(&mut self, space: Space, key: u64) {
        if self.restore.len() < RESTORE_MAX {
            self.restore.push((space, key));
        }
    }

    /// Writes what the socket takes; whether that is all.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match send(&self.stream, &self.out[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    /// Reads once into the buffer from `at`; nothing if there is nothing, 0 at the end.
    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((_, count)) => return Ok(Some(count)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
