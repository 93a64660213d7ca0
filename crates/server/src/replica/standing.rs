//! What everybody may know of a server's replica.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use super::wire::Counted;
use crate::shared::locked;

/// What everybody may know of the replica.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    state: AtomicU8,
    pub(super) sent: AtomicU64,
    pub(super) acked: AtomicU64,
    pub(super) losses: AtomicU64,
    /// Disagreements of a replica on another machine that a repetition here did not confirm.
    pub(super) alone: AtomicU64,
    /// The replica's memory limit.
    pub(super) memory_bytes: AtomicU64,
    pub(super) counted: Mutex<Counted>,
}

/// What `stats integrity` shows of the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    state: State,
    sent: u64,
    acked: u64,
    losses: u64,
    alone: u64,
    memory_bytes: u64,
    counted: Counted,
}

/// How it is with the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// There is to be none.
    #[default]
    None,
    /// It has everything.
    Connected,
    /// There is none, and there should be.
    Lost,
    /// It is being brought up to date.
    Resynchronising,
}

impl State {
    const ALL: [State; 4] = [State::None, State::Connected, State::Lost, State::Resynchronising];

    fn word(self) -> &'static str {
        match self {
            State::None => "none",
            State::Connected => "connected",
            State::Lost => "lost",
            State::Resynchronising => "resynchronising",
        }
    }
}

impl Standing {
    pub(super) fn set(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Relaxed)) % State::ALL.len()]
    }

    pub(crate) fn report(&self) -> Report {
        let (acked, sent) = (self.acked.load(Relaxed), self.sent.load(Relaxed));
        Report {
            state: self.state(),
            sent,
            acked,
            losses: self.losses.load(Relaxed),
            alone: self.alone.load(Relaxed),
            memory_bytes: self.memory_bytes.load(Relaxed),
            counted: *locked(&self.counted),
        }
    }
}

impl Report {
    /// Calls `put` with each statistic.
    pub(crate) fn each(&self, put: &mut dyn FnMut(&str, fmt::Arguments<'_>)) {
        put("replica", format_args!("{}", self.state.word()));
        if self.state == State::None {
            return;
        }
        put("replica_acked", format_args!("{}", self.acked));
        put("replica_lag", format_args!("{}", self.sent.saturating_sub(self.acked)));
        put("replica_losses", format_args!("{}", self.losses));
        let Counted { repeated, overtaken, unordered, unknown, loaded, evicted, items, damaged, .. } =
            self.counted;
        put("replica_repeated", format_args!("{repeated}"));
        put("replica_overtaken", format_args!("{overtaken}"));
        put("replica_unordered", format_args!("{unordered}"));
        put("replica_unknown", format_args!("{unknown}"));
        put("replica_alone", format_args!("{}", self.alone));
        put("replica_limit_maxbytes", format_args!("{}", self.memory_bytes));
        put("replica_items", format_args!("{items}"));
        put("replica_loaded", format_args!("{loaded}"));
        put("replica_evicted", format_args!("{evicted}"));
        put("replica_damaged", format_args!("{damaged}"));
    }
}
