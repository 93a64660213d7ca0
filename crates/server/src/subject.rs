//! What statistics and administration commands look at: the numbers of all threads and of the store.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use store::{Cursor, Env};

use crate::admin::{Admin, Census, Conn, Snapshot, Subject, Totals};
use crate::counters::CounterSums;
use crate::coverage;
use crate::integrity::Findings;
use crate::listener::address_text;
use crate::settings::Settings;
use crate::shared::{Face, Shared};
use crate::{connection::READ_BYTES, sys};

/// Items looked at for one answer at most; more are estimated from these.
const CENSUS_ITEMS_MAX: u64 = 100_000;

/// Buckets looked at in one step.
const CENSUS_STEP: usize = 256;

/// The server as a command on one worker sees it.
pub(crate) struct Office<'w> {
    pub(crate) shared: &'w Shared,
    pub(crate) store: &'w mut store::Worker,
    pub(crate) env: Env,
}

impl Subject for Office<'_> {
    fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    fn admin(&self) -> &Admin {
        &self.shared.admin
    }

    fn snapshot(&self) -> Snapshot {
        let shared = self.shared;
        let store = shared.store.stats();
        let (cpu_user, cpu_system) = sys::cpu_time();
        let workers = shared.posts.len() as u64;
        Snapshot {
            pid: std::process::id(),
            uptime_seconds: u64::from(self.env.now.saturating_sub(shared.started_unix)),
            now: u64::from(self.env.now),
            cpu_user,
            cpu_system,
            curr_connections: (u64::from(shared.connections()) + shared.listeners.len() as u64)
                .saturating_sub(1),
            connection_structures: shared.posts.iter().map(|post| post.places() as u64).sum::<u64>()
                + shared.listeners.len() as u64,
            read_buf_count: workers,
            read_buf_bytes: workers * READ_BYTES as u64,
            // A connection has the buffer only during its turn, and one of them is asking.
            read_buf_bytes_free: (workers - 1) * READ_BYTES as u64,
            reserved_fds: 3 * workers + 8,
            accepting: !shared.accepting.paused.load(Relaxed),
            index_slots: store.index_buckets * 8,
            index_bytes: store.index_bytes,
            bytes: store.live_bytes,
            curr_items: store.items,
            memory_used: store.memory_used,
            totals: self.totals(&store),
            ..Snapshot::default()
        }
    }

    fn census(&mut self) -> Census {
        let mut census = Census::new(self.env.now, self.shared.settings.cas);
        let mut cursor = Cursor::default();
        let env = self.env;
        let classes = &self.shared.admin.classes;
        let mut more = true;
        while more && census.seen() < CENSUS_ITEMS_MAX {
            more = self.store.scan(&mut cursor, CENSUS_STEP, &mut |item| {
                if store::is_alive(item, &env) {
                    census.add(item, classes);
                }
            });
        }
        if more {
            census.scale_to(self.items());
        }
        census
    }

    fn findings(&self) -> Findings {
        self.shared.integrity.findings(self.shared)
    }

    fn disagreements(&self) -> Vec<String> {
        self.shared.reaction.recent()
    }

    fn validation_latencies(&self) -> Vec<(u64, u64)> {
        coverage::latencies(self.shared)
    }

    fn conns(&self) -> Vec<Conn> {
        let shared = self.shared;
        let listening = shared.listeners.iter().map(|listener| Conn {
            fd: listener.socket.as_raw_fd(),
            addr: listener.text(),
            listen_addr: None,
            state: "conn_listening",
            idle_seconds: u64::from(self.env.now.saturating_sub(shared.started_unix)),
        });
        let mut conns: Vec<Conn> = listening.collect();
        for post in &shared.posts {
            post.look(|face| conns.push(self.conn(face)));
        }
        conns
    }

    fn set_memory_limit(&self, bytes: u64) -> bool {
        self.shared.store.set_memory_limit(bytes).is_ok()
    }

    fn items(&self) -> u64 {
        self.shared.store.stats().items
    }
}

impl Office<'_> {
    fn totals(&self, store: &store::Stats) -> Totals {
        let mut sums = CounterSums::default();
        for counters in &self.shared.counters {
            counters.add_to(&mut sums);
        }
        sums.get_expired += store.fetches_expired;
        sums.get_flushed += store.fetches_flushed;
        let accepting = &self.shared.accepting;
        Totals {
            workers: sums,
            connections: accepting.connections.read() + self.shared.listeners.len() as u64,
            rejected_connections: accepting.rejected.read(),
            listen_disabled: accepting.pauses.read(),
            listen_disabled_us: accepting.paused_us.read(),
            response_oom: 0,
            read_oom: 0,
            total_items: store.total_items,
            evictions: store.evictions,
            evicted_unfetched: store.evicted_unfetched,
            expired_unfetched: store.expired_unfetched,
            evicted_active: 0,
            reclaimed: store.reclaimed,
            crawler_reclaimed: 0,
            crawler_checked: store.examined,
            janitor_rounds: self.shared.janitor_rounds.read(),
            direct_reclaims: store.direct_reclaims,
        }
    }

    /// What `stats conns` shows of a connection.
    fn conn(&self, face: &Face) -> Conn {
        let socket = &face.socket;
        let text = |address: rustix::net::SocketAddrAny| match SocketAddr::try_from(address.clone()) {
            Ok(address) => address_text(address),
            Err(_) => match rustix::net::SocketAddrUnix::try_from(address) {
                Ok(unix) => {
                    format!("unix:{}", String::from_utf8_lossy(unix.path_bytes().unwrap_or_default()))
                }
                Err(_) => "<null>".into(),
            },
        };
        let peer = rustix::net::getpeername(socket).ok().flatten();
        let own = rustix::net::getsockname(socket).ok();
        Conn {
            fd: socket.as_raw_fd(),
            addr: peer.map_or_else(|| "<null>".into(), text),
            listen_addr: own.map(text),
            state: face.state_word(),
            idle_seconds: u64::from(self.env.now.saturating_sub(face.active_unix.load(Relaxed))),
        }
    }
}
