//! A worker: a thread with an event loop, its connections, and its own way into the store.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use store::Env;

use crate::connection::{After, Connection, Desk, READ_BYTES};
use crate::driver::{Driver, Ready};
use crate::execute::Executor;
use crate::output::Output;
use crate::shared::{Shared, Stop};

/// How often a worker looks for silent connections, and whether it should stop for real.
const SWEEP: Duration = Duration::from_secs(1);

/// After being asked to stop, how long answers may take to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// A worker.
pub(crate) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    driver: Driver,
    store: store::Worker,
    /// Invariant: a place that is `None` stands in `free`.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Places of connections that can go on without an event.
    again: VecDeque<usize>,
    buffer: Box<[u8]>,
    output: Output,
    /// Memory that connections hold, as last told to the store.
    charged_bytes: i64,
    held_bytes: i64,
    swept: Instant,
}

impl Worker {
    pub(crate) fn new(number: usize, shared: Arc<Shared>, driver: Driver, store: store::Worker) -> Self {
        Worker {
            number,
            shared,
            driver,
            store,
            connections: Vec::new(),
            free: Vec::new(),
            again: VecDeque::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            output: Output::default(),
            charged_bytes: 0,
            held_bytes: 0,
            swept: Instant::now(),
        }
    }

    /// Serves its connections until the server stops.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        while self.shared.stop() == Stop::Not {
            self.round(&mut ready);
        }
        self.stop(&mut ready);
    }

    /// One round: waits for events, and gives each connection that can go on its turn.
    fn round(&mut self, ready: &mut Vec<Ready>) {
        let timeout = if self.again.is_empty() {
            self.store.idle();
            (self.shared.settings.idle_timeout_seconds > 0).then_some(SWEEP)
        } else {
            Some(Duration::ZERO)
        };
        let woken = self.driver.wait(timeout, ready);
        self.store.round();
        let env = self.shared.env();
        // Only those that are waiting now: whoever gets into the queue in this round has had its turn.
        for _ in 0..self.again.len() {
            let Some(place) = self.again.pop_front() else { break };
            if let Some(connection) = &mut self.connections[place]
                && std::mem::take(&mut connection.queued)
            {
                self.turn(place, &env);
            }
        }
        for event in &*ready {
            let place = event.token as usize;
            let Some(connection) = &mut self.connections[place] else { continue };
            connection.readable |= event.readable;
            connection.ended |= event.ended;
            self.turn(place, &env);
        }
        if woken {
            self.take_newcomers(&env);
        }
        self.sweep(&env);
        self.charge();
    }

    fn turn(&mut self, place: usize, env: &Env) {
        let Some(connection) = &mut self.connections[place] else { return };
        let before = connection.held_bytes();
        let mut desk = Desk {
            executor: Executor::new(&mut self.store, &self.shared, &self.shared.counters[self.number], *env),
            buffer: &mut self.buffer,
            output: &mut self.output,
        };
        let after = connection.turn(&mut desk);
        self.held_bytes += connection.held_bytes() as i64 - before as i64;
        match after {
            After::Wait => {}
            After::Again if connection.queued => {}
            After::Again => {
                connection.queued = true;
                self.again.push_back(place);
            }
            After::Close => self.close(place),
        }
    }

    fn take_newcomers(&mut self, env: &Env) {
        for newcomer in self.shared.posts[self.number].receive() {
            let speaks = self.shared.listeners[newcomer.listener].speaks;
            let connection = Box::new(Connection::new(newcomer.socket, speaks, env.now));
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let watched = self.driver.watch(connection.socket(), place as u64);
            self.shared.posts[self.number].show(place, Some(Arc::clone(&connection.face)));
            self.held_bytes += size_of::<Connection>() as i64;
            self.connections[place] = Some(connection);
            if watched.is_err() {
                self.close(place);
            }
        }
    }

    fn close(&mut self, place: usize) {
        let Some(connection) = self.connections[place].take() else { return };
        if self.shared.admin.verbosity() > 1 {
            eprintln!("<{} connection closed.", connection.socket().as_raw_fd());
        }
        self.held_bytes -= (connection.held_bytes() + size_of::<Connection>()) as i64;
        self.free.push(place);
        self.shared.posts[self.number].show(place, None);
        drop(connection);
        self.shared.connection_closed(self.number);
    }

    /// Once in a while closes connections that had no command for too long.
    fn sweep(&mut self, env: &Env) {
        let limit = self.shared.settings.idle_timeout_seconds;
        if limit == 0 || self.swept.elapsed() < SWEEP {
            return;
        }
        self.swept = Instant::now();
        for place in 0..self.connections.len() {
            let Some(connection) = &self.connections[place] else { continue };
            let silent = env.now.saturating_sub(connection.face.active_unix.load(Relaxed));
            if silent > limit {
                self.shared.counters[self.number].idle_kicks.up();
                self.close(place);
            }
        }
    }

    /// Tells the store how much memory connections hold, so that its limit covers them.
    fn charge(&mut self) {
        let delta = self.held_bytes - self.charged_bytes;
        if delta != 0 {
            self.shared.store.charge(delta);
            self.charged_bytes = self.held_bytes;
        }
    }

    /// Sends the answers that were computed, for a bounded time, and closes everything.
    fn stop(mut self, ready: &mut Vec<Ready>) {
        let begin = Instant::now();
        let env = self.shared.env();
        for place in 0..self.connections.len() {
            let sending =
                self.connections[place].as_mut().is_some_and(|connection| connection.begin_closing());
            if !sending {
                self.close(place);
            }
        }
        while self.free.len() < self.connections.len() {
            let Some(left) = FLUSH.checked_sub(begin.elapsed()) else { break };
            self.store.idle();
            self.driver.wait(Some(left.min(SWEEP)), ready);
            self.store.round();
            for event in &*ready {
                self.turn(event.token as usize, &env);
            }
        }
        for place in 0..self.connections.len() {
            self.close(place);
        }
        self.charge();
        self.store.idle();
    }
}
