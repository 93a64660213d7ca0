//! What operators of a server ask and change at run time: statistics and administration commands.
//!
//! Texts, key sets and orders are those of memcached 1.6.45. Where the engine has nothing that a key speaks of (slab
//! pages, the LRU crawler), the key is shown with the value of a memcached in which that never happened.

mod census;
mod classes;
mod configuration;
mod general;
mod groups;
mod prefixes;
mod sink;
mod tune;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use census::Census;
pub(crate) use classes::{Classes, item_bytes};
pub(crate) use general::{Snapshot, Totals};
pub(crate) use prefixes::{Prefixes, Seen};
pub(crate) use sink::{Sink, TextSink};
pub(crate) use tune::{
    BAD_CLASS, ClassSet, cache_memlimit, crawl_refused, lru, lru_crawler, slabs, verbosity,
};

use crate::integrity::Findings;
use crate::settings::{Lru, Settings, Slabs};

/// What `watch` is answered with: this server keeps no log that could be watched.
pub(crate) const WATCH_REFUSED: &str = "CLIENT_ERROR watch commands not allowed";

/// What `refresh_certs` is answered with: there are no certificates.
pub(crate) const REFRESH_CERTS_REFUSED: &str = "ERROR";

/// What can change at run time, and what is kept between two questions.
pub(crate) struct Admin {
    /// The slab classes whose numbers are reported.
    pub(crate) classes: Classes,
    verbosity: AtomicU32,
    memory_bytes: AtomicU64,
    detail: AtomicBool,
    track_sizes: AtomicBool,
    tuning: Mutex<Tuning>,
    prefixes: Mutex<Prefixes>,
    /// Totals at the last `stats reset`. Counters are written by one thread each and never set back, so what is
    /// shown is what came since.
    baseline: Mutex<Totals>,
}

/// The settings that commands change and that change nothing but `stats settings`.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    slabs: Slabs,
    lru: Lru,
    segmented: bool,
}

impl Admin {
    /// The state at the start.
    pub(crate) fn new(settings: &Settings) -> Self {
        Admin {
            classes: Classes::new(&settings.slabs),
            verbosity: AtomicU32::new(settings.verbosity),
            memory_bytes: AtomicU64::new(settings.memory_bytes),
            detail: AtomicBool::new(settings.detail_enabled),
            track_sizes: AtomicBool::new(settings.track_sizes),
            tuning: Mutex::new(Tuning {
                slabs: settings.slabs.clone(),
                lru: settings.lru.clone(),
                segmented: settings.lru.maintainer,
            }),
            prefixes: Mutex::new(Prefixes::new(settings.prefix_delimiter)),
            baseline: Mutex::new(Totals::default()),
        }
    }

    /// How much is told on standard error.
    pub(crate) fn verbosity(&self) -> u32 {
        self.verbosity.load(Relaxed)
    }

    /// Whether commands are to be counted by prefix with [`Admin::seen`].
    #[inline]
    pub(crate) fn detail_enabled(&self) -> bool {
        self.detail.load(Relaxed)
    }

    /// Counts a command on a key under the key's prefix.
    #[cold]
    pub(crate) fn seen(&self, key: &[u8], what: Seen) {
        locked(&self.prefixes).count(key, what);
    }

    fn tuning(&self) -> MutexGuard<'_, Tuning> {
        locked(&self.tuning)
    }
}

/// The lock's content, even if a thread died holding it: what these locks hold is whole after each step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server, as far as its administration looks at it.
pub(crate) trait Subject {
    /// What it was started with.
    fn settings(&self) -> &Settings;
    /// What can change.
    fn admin(&self) -> &Admin;
    /// Its numbers now, since the start.
    fn snapshot(&self) -> Snapshot;
    /// Looks at items, as many as fit into a bounded time.
    fn census(&mut self) -> Census;
    /// What was checked in memory, and found.
    fn findings(&self) -> Findings;
    /// The last disagreements, oldest first, a line each.
    fn disagreements(&self) -> Vec<String>;
    /// How long validations took: nanoseconds, ascending, and how many took that.
    fn validation_latencies(&self) -> Vec<(u64, u64)>;
    /// Its sockets.
    fn conns(&self) -> Vec<Conn>;
    /// Changes the memory limit; false when that is impossible.
    fn set_memory_limit(&self, bytes: u64) -> bool;
    /// How many items there are.
    fn items(&self) -> u64;
}

/// One open socket, as `stats conns` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conn {
    /// Its descriptor.
    pub(crate) fd: i32,
    /// The peer's address, or for a listener its own: `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`, `unix:/path`.
    pub(crate) addr: String,
    /// The address it was accepted at; `None` for a listener.
    pub(crate) listen_addr: Option<String>,
    /// memcached's word for what it does: `conn_listening`, `conn_parse_cmd`, `conn_nread`, `conn_read`, `conn_waiting`.
    pub(crate) state: &'static str,
    /// Seconds since its last command.
    pub(crate) idle_seconds: u64,
}

/// What remains to be done after [`stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the answer is complete.
    Done,
    /// Up to `limit` items (0: as many as fit) of a class are to be listed, a line of [`cachedump_line`] each.
    Cachedump {
        /// The class number.
        class: u8,
        /// How many.
        limit: u32,
    },
}

/// Answers `stats` with these arguments, in text, terminator included.
pub(crate) fn stats(arguments: &[u8], subject: &mut dyn Subject, out: &mut Vec<u8>) -> Next {
    let mut words = arguments.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    match words.next() {
        Some(b"reset") => {
            reset(subject);
            line(out, "RESET");
        }
        Some(b"detail") => detail(words.next().unwrap_or(b""), subject.admin(), out),
        Some(b"cachedump") => match cachedump(words.next(), words.next(), subject.settings()) {
            Ok(next) => return next,
            Err(text) => line(out, text),
        },
        group => {
            let group = group.unwrap_or(b"");
            if group_stats(group, subject, &mut TextSink(out)) {
                line(out, "END");
            } else {
                line(out, "ERROR");
            }
        }
    }
    Next::Done
}

/// Gives the statistics of a group (empty: the general ones); false when there is no such group.
///
/// The binary protocol gives each to its client as a packet, so the terminator is the caller's.
pub(crate) fn group_stats(group: &[u8], subject: &mut dyn Subject, sink: &mut dyn Sink) -> bool {
    match group {
        b"" => general::give(subject, sink),
        b"settings" => configuration::give(subject, sink),
        b"items" => groups::items(subject, sink),
        b"slabs" => groups::slabs(subject, sink),
        b"sizes" => groups::sizes(subject, sink),
        b"sizes_enable" => groups::sizes_switch(subject.admin(), true, sink),
        b"sizes_disable" => groups::sizes_switch(subject.admin(), false, sink),
        b"integrity" => groups::integrity(&subject.findings(), sink),
        b"disagreements" => groups::disagreements(subject, sink),
        b"validation_latency" => groups::validation_latency(subject, sink),
        b"conns" => groups::conns(subject, sink),
        // What a memcached without external storage says about it: nothing.
        b"extstore" => {}
        _ => return false,
    }
    true
}

/// `stats reset`: from here on counters are shown from zero.
pub(crate) fn reset(subject: &dyn Subject) {
    let totals = subject.snapshot().totals;
    let admin = subject.admin();
    *locked(&admin.baseline) = totals;
    locked(&admin.prefixes).clear();
}

/// `stats detail on|off|dump`.
fn detail(word: &[u8], admin: &Admin, out: &mut Vec<u8>) {
    match word {
        b"on" => {
            admin.detail.store(true, Relaxed);
            line(out, "OK");
        }
        b"off" => {
            admin.detail.store(false, Relaxed);
            line(out, "OK");
        }
        b"dump" => locked(&admin.prefixes).dump(out),
        _ => line(out, "CLIENT_ERROR usage: stats detail on|off|dump"),
    }
}

fn cachedump(class: Option<&[u8]>, limit: Option<&[u8]>, settings: &Settings) -> Result<Next, &'static str> {
    if !settings.dump_enabled {
        return Err("CLIENT_ERROR stats cachedump not allowed");
    }
    let (Some(class), Some(limit)) = (class, limit) else {
        return Err("CLIENT_ERROR bad command line");
    };
    let (Some(class), Some(limit)) = (tune::unsigned(class), tune::unsigned(limit)) else {
        return Err("CLIENT_ERROR bad command line format");
    };
    match u8::try_from(class) {
        Ok(class) if usize::from(class) < classes::CLASSES_MAX => Ok(Next::Cachedump { class, limit }),
        _ => Err("CLIENT_ERROR Illegal slab id"),
    }
}

/// How many bytes `stats cachedump` answers at most.
pub(crate) const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// One line of `stats cachedump`.
pub(crate) fn cachedump_line(item: &store::View<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(item.key);
    sink::write(out, format_args!(" [{} b; {} s]\r\n", item.value.len(), item.exptime));
}

/// A line with its terminator.
fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
