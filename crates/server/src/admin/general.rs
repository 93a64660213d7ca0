//! `stats`: the general statistics.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Sink, Subject, locked};
use crate::counters::CounterSums;
use crate::settings::{MEMCACHED_VERSION, Settings};

/// Declares counters that only grow, and how to tell what came since an earlier reading.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that only grow. `stats reset` makes them appear to start anew.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Totals {
            /// What the workers counted.
            pub(crate) workers: CounterSums,
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Totals {
            /// What came after `earlier`.
            fn since(&self, earlier: &Totals) -> Totals {
                Totals {
                    workers: self.workers.since(&earlier.workers),
                    $($name: self.$name.saturating_sub(earlier.$name),)*
                }
            }
        }
    };
}

totals! {
    /// Connections accepted.
    connections,
    /// Connections refused because there were too many.
    rejected_connections,
    /// Times the listener paused because there were too many connections.
    listen_disabled,
    /// Microseconds of those pauses.
    listen_disabled_us,
    /// Replies for which there was no memory.
    response_oom,
    /// Requests that could not be read for want of memory.
    read_oom,
    /// Items stored.
    total_items,
    /// Items evicted.
    evictions,
    /// Items evicted that nobody had asked for.
    evicted_unfetched,
    /// Items expired that nobody had asked for.
    expired_unfetched,
    /// Items evicted that were in use recently.
    evicted_active,
    /// Items whose memory was taken back after they expired.
    reclaimed,
    /// Of those, the ones the janitor found.
    crawler_reclaimed,
    /// Items the janitor looked at.
    crawler_checked,
    /// Rounds of the janitor.
    janitor_rounds,
    /// Evictions a worker had to do itself.
    direct_reclaims,
}

/// The numbers of a server at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The process.
    pub(crate) pid: u32,
    /// Seconds since the start.
    pub(crate) uptime_seconds: u64,
    /// Unix seconds.
    pub(crate) now: u64,
    /// Time the process spent computing.
    pub(crate) cpu_user: Duration,
    /// Time the system spent for it.
    pub(crate) cpu_system: Duration,
    /// Open connections.
    pub(crate) curr_connections: u64,
    /// Connections there is a structure for, used or kept.
    pub(crate) connection_structures: u64,
    /// Replies that wait to be sent.
    pub(crate) response_count: u64,
    /// Their bytes.
    pub(crate) response_bytes: u64,
    /// Read buffers.
    pub(crate) read_buf_count: u64,
    /// Their bytes.
    pub(crate) read_buf_bytes: u64,
    /// Bytes of those that no connection holds.
    pub(crate) read_buf_bytes_free: u64,
    /// Descriptors the server needs for itself.
    pub(crate) reserved_fds: u64,
    /// Whether new connections are taken.
    pub(crate) accepting: bool,
    /// Places in the index.
    pub(crate) index_slots: u64,
    /// Bytes of the index.
    pub(crate) index_bytes: u64,
    /// Bytes that all items take.
    pub(crate) bytes: u64,
    /// Items.
    pub(crate) curr_items: u64,
    /// Bytes the store has taken from the system.
    pub(crate) memory_used: u64,
    /// The memory limit, which `cache_memlimit` changes.
    pub(crate) memory_limit: u64,
    /// What only grows.
    pub(crate) totals: Totals,
}

/// When a key is shown.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Always,
    /// Only with `-o idle_timeout`.
    IdleTimeout,
    /// Not with `-o no_lru_crawler`.
    Crawler,
    /// Not with `-o no_lru_maintainer`.
    Maintainer,
}

enum Value {
    Count(u64),
    Time(Duration),
    Word(&'static str),
}

type Row = (&'static str, When, fn(&Snapshot, &Settings) -> Value);

use Value::{Count, Time, Word};
use When::{Always, Crawler, IdleTimeout, Maintainer};

/// Zero, for what cannot happen here.
const NEVER: fn(&Snapshot, &Settings) -> Value = |_, _| Count(0);

/// The keys in memcached's order.
const ROWS: &[Row] = &[
    ("pid", Always, |s, _| Count(u64::from(s.pid))),
    ("uptime", Always, |s, _| Count(s.uptime_seconds)),
    ("time", Always, |s, _| Count(s.now)),
    ("version", Always, |_, _| Word(MEMCACHED_VERSION)),
    ("libevent", Always, |_, _| Word("none")),
    ("pointer_size", Always, |_, _| Count(u64::from(usize::BITS))),
    ("rusage_user", Always, |s, _| Time(s.cpu_user)),
    ("rusage_system", Always, |s, _| Time(s.cpu_system)),
    ("max_connections", Always, |_, o| Count(u64::from(o.conn_limit))),
    ("curr_connections", Always, |s, _| Count(s.curr_connections)),
    ("total_connections", Always, |s, _| Count(s.totals.connections)),
    ("rejected_connections", Always, |s, _| Count(s.totals.rejected_connections)),
    ("connection_structures", Always, |s, _| Count(s.connection_structures)),
    ("response_obj_oom", Always, |s, _| Count(s.totals.response_oom)),
    ("response_obj_count", Always, |s, _| Count(s.response_count)),
    ("response_obj_bytes", Always, |s, _| Count(s.response_bytes)),
    ("read_buf_count", Always, |s, _| Count(s.read_buf_count)),
    ("read_buf_bytes", Always, |s, _| Count(s.read_buf_bytes)),
    ("read_buf_bytes_free", Always, |s, _| Count(s.read_buf_bytes_free)),
    ("read_buf_oom", Always, |s, _| Count(s.totals.read_oom)),
    ("reserved_fds", Always, |s, _| Count(s.reserved_fds)),
    ("cmd_get", Always, |s, _| Count(s.totals.workers.cmd_get)),
    ("cmd_set", Always, |s, _| Count(s.totals.workers.cmd_set)),
    ("cmd_flush", Always, |s, _| Count(s.totals.workers.cmd_flush)),
    ("cmd_touch", Always, |s, _| Count(s.totals.workers.cmd_touch)),
    ("cmd_meta", Always, |s, _| Count(s.totals.workers.cmd_meta)),
    ("get_hits", Always, |s, _| Count(s.totals.workers.get_hits)),
    ("get_misses", Always, |s, _| Count(s.totals.workers.get_misses)),
    ("get_expired", Always, |s, _| Count(s.totals.workers.get_expired)),
    ("get_flushed", Always, |s, _| Count(s.totals.workers.get_flushed)),
    ("delete_misses", Always, |s, _| Count(s.totals.workers.delete_misses)),
    ("delete_hits", Always, |s, _| Count(s.totals.workers.delete_hits)),
    ("incr_misses", Always, |s, _| Count(s.totals.workers.incr_misses)),
    ("incr_hits", Always, |s, _| Count(s.totals.workers.incr_hits)),
    ("decr_misses", Always, |s, _| Count(s.totals.workers.decr_misses)),
    ("decr_hits", Always, |s, _| Count(s.totals.workers.decr_hits)),
    ("cas_misses", Always, |s, _| Count(s.totals.workers.cas_misses)),
    ("cas_hits", Always, |s, _| Count(s.totals.workers.cas_hits)),
    ("cas_badval", Always, |s, _| Count(s.totals.workers.cas_badval)),
    ("touch_hits", Always, |s, _| Count(s.totals.workers.touch_hits)),
    ("touch_misses", Always, |s, _| Count(s.totals.workers.touch_misses)),
    ("store_too_large", Always, |s, _| Count(s.totals.workers.store_too_large)),
    ("store_no_memory", Always, |s, _| Count(s.totals.workers.store_no_memory)),
    ("auth_cmds", Always, |s, _| Count(s.totals.workers.auth_cmds)),
    ("auth_errors", Always, |s, _| Count(s.totals.workers.auth_errors)),
    ("idle_kicks", IdleTimeout, |s, _| Count(s.totals.workers.idle_kicks)),
    ("bytes_read", Always, |s, _| Count(s.totals.workers.bytes_read)),
    ("bytes_written", Always, |s, _| Count(s.totals.workers.bytes_written)),
    ("limit_maxbytes", Always, |s, _| Count(s.memory_limit)),
    ("accepting_conns", Always, |s, _| Count(u64::from(s.accepting))),
    ("listen_disabled_num", Always, |s, _| Count(s.totals.listen_disabled)),
    ("time_in_listen_disabled_us", Always, |s, _| Count(s.totals.listen_disabled_us)),
    ("threads", Always, |_, o| Count(u64::from(o.threads))),
    ("conn_yields", Always, |s, _| Count(s.totals.workers.conn_yields)),
    ("hash_power_level", Always, |s, _| Count(u64::from(s.index_slots.max(1).ilog2()))),
    ("hash_bytes", Always, |s, _| Count(s.index_bytes)),
    ("hash_is_expanding", Always, NEVER),
    ("slab_reassign_rescues", Always, NEVER),
    ("slab_reassign_chunk_rescues", Always, NEVER),
    ("slab_reassign_inline_reclaim", Always, NEVER),
    ("slab_reassign_busy_items", Always, NEVER),
    ("slab_reassign_busy_deletes", Always, NEVER),
    ("slab_reassign_busy_nomem", Always, NEVER),
    ("slab_reassign_last_busy_status", Always, |_, _| Word("none")),
    ("slab_reassign_running", Always, NEVER),
    ("slabs_moved", Always, NEVER),
    ("lru_crawler_running", Crawler, NEVER),
    ("lru_crawler_starts", Crawler, NEVER),
    ("lru_maintainer_juggles", Maintainer, |s, _| Count(s.totals.janitor_rounds)),
    ("malloc_fails", Always, NEVER),
    ("log_worker_dropped", Always, NEVER),
    ("log_worker_written", Always, NEVER),
    ("log_watcher_skipped", Always, NEVER),
    ("log_watcher_sent", Always, NEVER),
    ("log_watchers", Always, NEVER),
    ("unexpected_napi_ids", Always, NEVER),
    ("round_robin_fallback", Always, NEVER),
    ("bytes", Always, |s, _| Count(s.bytes)),
    ("curr_items", Always, |s, _| Count(s.curr_items)),
    ("total_items", Always, |s, _| Count(s.totals.total_items)),
    ("slab_global_page_pool", Always, NEVER),
    ("expired_unfetched", Always, |s, _| Count(s.totals.expired_unfetched)),
    ("evicted_unfetched", Always, |s, _| Count(s.totals.evicted_unfetched)),
    ("evicted_active", Maintainer, |s, _| Count(s.totals.evicted_active)),
    ("evictions", Always, |s, _| Count(s.totals.evictions)),
    ("reclaimed", Always, |s, _| Count(s.totals.reclaimed)),
    ("crawler_reclaimed", Always, |s, _| Count(s.totals.crawler_reclaimed)),
    ("crawler_items_checked", Always, |s, _| Count(s.totals.crawler_checked)),
    ("lrutail_reflocked", Always, NEVER),
    ("moves_to_cold", Maintainer, NEVER),
    ("moves_to_warm", Maintainer, NEVER),
    ("moves_within_lru", Maintainer, NEVER),
    ("direct_reclaims", Maintainer, |s, _| Count(s.totals.direct_reclaims)),
    ("lru_bumps_dropped", Maintainer, NEVER),
];

/// Gives the general statistics.
pub(super) fn give(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    let mut snapshot = subject.snapshot();
    let admin = subject.admin();
    snapshot.totals = snapshot.totals.since(&locked(&admin.baseline));
    let tuning = admin.tuning().clone();
    snapshot.memory_limit = admin.memory_bytes.load(Relaxed);
    let settings = subject.settings();
    for (key, when, read) in ROWS {
        let shown = match when {
            Always => true,
            IdleTimeout => settings.idle_timeout_seconds > 0,
            Crawler => tuning.lru.crawler,
            Maintainer => tuning.lru.maintainer,
        };
        if !shown {
            continue;
        }
        match read(&snapshot, settings) {
            Count(count) => sink.stat(format_args!("{key}"), format_args!("{count}")),
            Time(time) => {
                let (seconds, micros) = (time.as_secs(), time.subsec_micros());
                sink.stat(format_args!("{key}"), format_args!("{seconds}.{micros:06}"));
            }
            Word(word) => sink.stat(format_args!("{key}"), format_args!("{word}")),
        }
    }
}
