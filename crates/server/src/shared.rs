//! What all threads of a server share.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::{Env, Store};

use crate::admin::Admin;
use crate::clock::Clock;
use crate::connection::Newcomer;
use crate::counters::{Counter, Counters};
use crate::driver::Waker;
use crate::integrity::Integrity;
use crate::listener::Listener;
use crate::reaction::{Reaction, System};
use crate::recorder::Coverage;
use crate::replica::Standing;
use crate::settings::Settings;
use crate::shadow::Follower;
use crate::validator::Validation;

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<Store>,
    pub(crate) admin: Admin,
    pub(crate) clock: Clock,
    /// By worker.
    pub(crate) counters: Vec<Counters>,
    /// By worker.
    pub(crate) posts: Vec<Post>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) accepting: Accepting,
    pub(crate) janitor_rounds: Counter,
    pub(crate) integrity: Integrity,
    pub(crate) reaction: Reaction,
    /// By worker; empty when nothing is recorded.
    pub(crate) coverages: Vec<Coverage>,
    /// By worker; empty when nothing is recorded.
    pub(crate) validations: Vec<Validation>,
    /// Workers that may still leave records.
    pub(crate) workers_running: AtomicUsize,
    /// Keeps validators from looking at anything, for tests.
    pub(crate) validators_paused: Arc<AtomicBool>,
    pub(crate) births: Births,
    pub(crate) replica: Standing,
    /// Follows a share of the keys; there when executions are recorded.
    pub(crate) follower: Option<Follower>,
    /// When the server was started.
    pub(crate) started: Instant,
    /// The clock then.
    pub(crate) started_unix: u32,
    stop: AtomicU8,
    /// Wakes the thread that waits for signals.
    pub(crate) main: Waker,
    /// Wakes the thread that accepts connections.
    pub(crate) listening: Waker,
}

/// What the listener's thread counts, and whether it accepts.
#[derive(Debug, Default)]
pub(crate) struct Accepting {
    pub(crate) paused: AtomicBool,
    pub(crate) connections: Counter,
    pub(crate) rejected: Counter,
    pub(crate) pauses: Counter,
    pub(crate) paused_us: Counter,
}

/// One worker, as other threads see it.
#[derive(Debug)]
pub(crate) struct Post {
    /// Connections it has, those in the inbox included.
    pub(crate) connections: AtomicU32,
    inbox: Mutex<Vec<Newcomer>>,
    waker: Waker,
    /// Its connections by place.
    faces: Mutex<Vec<Option<Arc<Face>>>>,
}

/// A connection, as `stats conns` sees it.
#[derive(Debug)]
pub(crate) struct Face {
    /// Closed when neither the worker nor somebody who looks has the face any more.
    pub(crate) socket: OwnedFd,
    /// When it had its last command, by the server's clock.
    pub(crate) active_unix: AtomicU32,
    state: AtomicU8,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// It waits for a command.
    Waiting,
    /// A command is being executed.
    Executing,
    /// A value is arriving.
    Filling,
    /// It waits for its client to take answers.
    Sending,
}

/// How a server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    /// Not at all.
    Not,
    /// Soon.
    Soon,
    /// Soon, and a client or SIGUSR1 asked for it to be graceful.
    Gracefully,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<Store>,
        clock: Clock,
        posts: Vec<Post>,
        listeners: Vec<Listener>,
        validations: Vec<Validation>,
        (main, listening): (Waker, Waker),
    ) -> Self {
        let follower = settings.follows().then(|| {
            store.charge(Follower::bytes(settings.memory_bytes) as i64);
            Follower::new(posts.len(), settings.memory_bytes)
        });
        Shared {
            admin: Admin::new(&settings),
            store,
            counters: posts.iter().map(|_| Counters::default()).collect(),
            posts,
            listeners,
            accepting: Accepting::default(),
            janitor_rounds: Counter::default(),
            integrity: Integrity::default(),
            reaction: Reaction::new(&settings, Box::new(System)),
            coverages: validations.iter().map(|_| Coverage::default()).collect(),
            validations,
            workers_running: AtomicUsize::new(0),
            validators_paused: Arc::default(),
            births: Births::default(),
            replica: Standing::default(),
            follower,
            started: Instant::now(),
            started_unix: clock.now(),
            clock,
            stop: AtomicU8::new(Stop::Not as u8),
            main,
            listening,
            settings,
        }
    }

    /// What operators may know besides request and item.
    pub(crate) fn env(&self) -> Env {
        self.store.env(self.clock.now())
    }

    /// Nanoseconds since the start.
    pub(crate) fn tick(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Asks all threads to stop. The first call decides how.
    pub(crate) fn ask_to_stop(&self, how: Stop) {
        // Release and acquire, so that a thread that sees the request also sees what was done before it.
        let _ = self.stop.compare_exchange(Stop::Not as u8, how as u8, Ordering::AcqRel, Ordering::Acquire);
        self.wake_workers();
        self.listening.wake();
        self.main.wake();
    }

    /// Lets each worker have a round, even if nothing came for it.
    pub(crate) fn wake_workers(&self) {
        for post in &self.posts {
            post.waker.wake();
        }
    }

    /// Whether threads are to stop.
    pub(crate) fn stop(&self) -> Stop {
        match self.stop.load(Ordering::Acquire) {
            0 => Stop::Not,
            1 => Stop::Soon,
            _ => Stop::Gracefully,
        }
    }

    /// Open connections.
    pub(crate) fn connections(&self) -> u32 {
        self.posts.iter().map(|post| post.connections.load(Ordering::Relaxed)).sum()
    }

    /// Notes that a connection of a worker is gone, and lets the listener go on if it waits for that.
    pub(crate) fn connection_closed(&self, worker: usize) {
        self.posts[worker].connections.fetch_sub(1, Ordering::Relaxed);
        if self.accepting.paused.load(Ordering::Relaxed) {
            self.listening.wake();
        }
    }
}

impl Post {
    pub(crate) fn new(waker: Waker) -> Self {
        Post {
            connections: AtomicU32::new(0),
            inbox: Mutex::new(Vec::new()),
            waker,
            faces: Mutex::new(Vec::new()),
        }
    }

    /// Hands a connection over to the worker.
    pub(crate) fn send(&self, newcomer: Newcomer) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        locked(&self.inbox).push(newcomer);
        self.waker.wake();
    }

    /// Lets the worker have a round.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Takes the connections that were handed over.
    pub(crate) fn receive(&self) -> Vec<Newcomer> {
        std::mem::take(&mut *locked(&self.inbox))
    }

    /// Shows a connection, or that there is none any more, at a place.
    pub(crate) fn show(&self, place: usize, face: Option<Arc<Face>>) {
        let mut faces = locked(&self.faces);
        if faces.len() <= place {
            faces.resize(place + 1, None);
        }
        faces[place] = face;
    }

    /// Looks at each connection.
    pub(crate) fn look(&self, mut each: impl FnMut(&Face)) {
        for face in locked(&self.faces).iter().flatten() {
            each(face);
        }
    }

    /// Places for connections, used or not.
    pub(crate) fn places(&self) -> usize {
        locked(&self.faces).len()
    }
}

impl Face {
    pub(crate) fn new(socket: OwnedFd, now: u32) -> Self {
        Face { socket, active_unix: AtomicU32::new(now), state: AtomicU8::new(State::Waiting as u8) }
    }

    /// Notes what the connection is doing.
    #[inline]
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// memcached's word for what the connection is doing.
    pub(crate) fn state_word(&self) -> &'static str {
        const EXECUTING: u8 = State::Executing as u8;
        const FILLING: u8 = State::Filling as u8;
        const SENDING: u8 = State::Sending as u8;
        match self.state.load(Ordering::Relaxed) {
            EXECUTING => "conn_parse_cmd",
            FILLING => "conn_nread",
            SENDING => "conn_mwrite",
            _ => "conn_read",
        }
    }
}

/// How often it is noted how far the store has come.
const BIRTHS_INTERVAL: Duration = Duration::from_secs(10);

/// Notes kept: of the last ten minutes.
const BIRTHS_MAX: usize = 60;

/// Which segments the store began when, to tell what was written in a time.
#[derive(Debug, Default)]
pub(crate) struct Births(Mutex<VecDeque<(Instant, u64)>>);

impl Births {
    /// Notes how far the store is. To be called now and then.
    pub(crate) fn note(&self, now: Instant, store: &Store) {
        let mut notes = locked(&self.0);
        if notes.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= BIRTHS_INTERVAL) {
            notes.push_back((now, store.birth_to_come()));
            if notes.len() > BIRTHS_MAX {
                notes.pop_front();
            }
        }
    }

    /// The first segment that may have been begun within this time; 0 when that is not known.
    pub(crate) fn since(&self, time: Duration) -> u64 {
        let notes = locked(&self.0);
        notes.iter().rev().find(|(at, _)| at.elapsed() >= time).map_or(0, |(_, birth)| *birth)
    }
}

/// The lock's content, even if a thread died holding it: what these locks hold is whole after each step.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
