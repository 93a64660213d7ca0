//! A worker: a thread with an event loop, its connections, and its own way into the store.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use guard::{Holder, Seq};
use store::Env;

use crate::bell::Bell;
use crate::connection::{After, Connection, Desk, READ_BYTES};
use crate::driver::{Driver, Ready};
use crate::execute::{Executor, Records};
use crate::output::Output;
use crate::recorder::Recorder;
use crate::shared::{Shared, Stop};
use crate::sys;
use crate::validator::{INSISTENCE, RING_LINES};

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
    /// How often commands are executed.
    runs: u8,
    ledger: Option<Ledger>,
}

/// What a worker needs to leave records.
pub(crate) struct Ledger {
    pub(crate) recorder: Recorder,
    /// Sees what is confirmed, when replies wait for that.
    pub(crate) holder: Option<Holder>,
    pub(crate) bell: Arc<Bell>,
    /// Places of connections whose replies wait.
    holding: Vec<usize>,
    /// Disagreements when it last looked.
    disagreements: u64,
    /// Whether the validator is to be woken with the round's first record.
    may_ring: bool,
}

impl Ledger {
    pub(crate) fn new(recorder: Recorder, holder: Option<Holder>, bell: Arc<Bell>) -> Self {
        Ledger { recorder, holder, bell, holding: Vec::new(), disagreements: 0, may_ring: false }
    }
}

/// A worker that may still leave records.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.workers_running.fetch_sub(1, SeqCst);
        for validation in &self.0.validations {
            validation.bell.ring(true);
        }
    }
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        shared: Arc<Shared>,
        driver: Driver,
        store: store::Worker,
        ledger: Option<Ledger>,
    ) -> Self {
        Worker {
            runs: shared.settings.runs(),
            ledger,
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
        let running = Running(Arc::clone(&self.shared));
        while self.shared.stop() == Stop::Not {
            self.round(&mut ready);
        }
        self.stop(&mut ready);
        drop(running);
    }

    /// One round: waits for events, and gives each connection that can go on its turn.
    fn round(&mut self, ready: &mut Vec<Ready>) {
        let timeout = if self.again.is_empty() {
            self.store.idle();
            (self.shared.settings.idle_timeout_seconds > 0).then_some(SWEEP)
        } else {
            self.store.commit_records();
            Some(Duration::ZERO)
        };
        let can_release = self.announce(timeout != Some(Duration::ZERO));
        let timeout = if can_release { Some(Duration::ZERO) } else { timeout };
        let follower = self.shared.follower.as_ref().filter(|_| timeout != Some(Duration::ZERO));
        if let Some(follower) = follower {
            follower.sleep(self.number);
        }
        let woken = self.driver.wait(timeout, ready);
        if let Some(follower) = follower {
            follower.wake(self.number);
        }
        self.store.round();
        let env = self.shared.env();
        self.begin_records();
        self.release(&env);
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
        let records = self.ledger.as_mut().map(|ledger| Records {
            recorder: &mut ledger.recorder,
            coverage: &self.shared.coverages[self.number],
        });
        let counters = &self.shared.counters[self.number];
        let mut desk = Desk {
            executor: Executor::new(&mut self.store, &self.shared, counters, *env).recording(records),
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
            After::Hold => {
                if !std::mem::replace(&mut connection.holding, true)
                    && let Some(ledger) = &mut self.ledger
                {
                    ledger.holding.push(place);
                }
            }
            After::Close => self.close(place),
        }
        self.store.publish_records();
        // The validator takes a while to wake up, and can begin before the round ends; one that is awake stays so.
        if let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.may_ring)
            && self.store.record_seq() != ledger.recorder.rung
        {
            ledger.may_ring = false;
            ledger.bell.ring(true);
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

    /// Tells the validator what was left, and asks to be woken when what is waited for is confirmed; whether some of it is
    /// already.
    fn announce(&mut self, will_sleep: bool) -> bool {
        let Some(ledger) = &mut self.ledger else { return false };
        let validation = &self.shared.validations[self.number];
        let is_waited_for = !ledger.holding.is_empty();
        let is_much = self.store.record_seq().wrapping_sub(ledger.recorder.rung) > RING_LINES as u64 / 16;
        if self.store.record_seq() != ledger.recorder.rung {
            if is_much || is_waited_for || ledger.recorder.is_urgent {
                ledger.recorder.rung = self.store.record_seq();
            }
            ledger.bell.ring(is_much || is_waited_for || ledger.recorder.is_urgent);
        }
        let Some(holder) = ledger.holder.as_mut().filter(|_| is_waited_for && will_sleep) else {
            return false;
        };
        let connections = &self.connections;
        let awaits = |place: &usize| connections[*place].as_ref().map_or(0, |connection| connection.awaits());
        validation.awaited.store(ledger.holding.iter().map(awaits).max().unwrap_or(0), Relaxed);
        // Pairs with the fence of the validator: either it sees what is awaited, or this sees that it is confirmed.
        fence(SeqCst);
        let confirmed = holder.confirmed();
        ledger.holding.iter().any(|place| awaits(place) <= confirmed)
    }

    /// A round begins: the time, the core, and how much is to be recorded.
    fn begin_records(&mut self) {
        let runs = self.shared.reaction.runs(self.shared.settings.runs());
        if runs != self.runs {
            self.runs = runs;
            self.store.set_redundancy(runs);
        }
        let cpu = sys::current_cpu();
        self.store.set_core(cpu);
        let Some(ledger) = &mut self.ledger else { return };
        let validation = &self.shared.validations[self.number];
        validation.worker_core.store(cpu.into(), Relaxed);
        let follower = self.shared.follower.as_ref().map(|follower| (follower, self.number));
        ledger.recorder.begin_round(&self.shared.coverages[self.number], follower);
        ledger.may_ring = ledger.recorder.is_urgent;
        let disagreements = validation.disagreements.load(Relaxed);
        if disagreements != ledger.disagreements {
            ledger.disagreements = disagreements;
            ledger.recorder.insist(INSISTENCE);
        }
    }

    /// Lets out what is confirmed.
    fn release(&mut self, env: &Env) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(holder) = &mut ledger.holder else { return };
        self.shared.validations[self.number].awaited.store(0, Relaxed);
        let mut refused: Vec<RangeInclusive<Seq>> = Vec::new();
        let confirmed = holder.poll(|seqs| refused.push(seqs));
        let is_refused = |seq: Seq| refused.iter().any(|seqs| seqs.contains(&seq));
        let mut free: Vec<usize> = Vec::new();
        let connections = &mut self.connections;
        ledger.holding.retain(|place| {
            let Some(connection) = &mut connections[*place] else { return false };
            connection.retract(is_refused);
            let is_free = connection.awaits() <= confirmed;
            if is_free {
                connection.holding = false;
                free.push(*place);
            }
            !is_free
        });
        for place in free {
            if let Some(connection) = &mut self.connections[place] {
                connection.release();
                self.turn(place, env);
            }
        }
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
            let can_release = self.announce(true);
            self.driver.wait(Some(if can_release { Duration::ZERO } else { left.min(SWEEP) }), ready);
            self.store.round();
            self.release(&env);
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
