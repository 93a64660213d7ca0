//! The server's side: takes the place of its validators. Records go to the replica, and what it says moves the watermarks.
//!
//! A record stays with the shipper, and what it points to stays readable, until the replica has acknowledged it: what the
//! replica says nothing about is validated here, from the items themselves, and so is everything while there is no
//! replica. So the loss of a replica is no more than a line in the log, and a smaller independence.
//!
//! A replica begins with nothing: all items are sent to it, between the records of what is executed meanwhile
//! (`Line::walk`). The same is done again when records were lost.
//!
//! Limits: unacknowledged records of [`WINDOW_BYTES`] for all workers together, and one more; then records stay in the
//! workers' rings, which drop and count what they have no room for. What waits to be sent has [`QUEUED_BYTES_MAX`], and
//! one frame.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use guard::Core;
use rustix::io::Errno;

use super::crew::{Crew, Stream};
use super::dial::Caller;
use super::line::Line;
use super::link::Lost;
use super::standing::State;
use super::wire::Counted;
use crate::bell::{Bell, Sleep};
use crate::driver::{Driver, Ready};
use crate::shared::{Shared, Stop, locked};
use crate::sys;
use crate::validator::{Desk, Source};

/// How long it looks for records before it sleeps, with a core of its own.
const SPIN: Duration = Duration::from_micros(20);

/// The nap when nothing came, and how many follow each other before it sleeps until it is woken.
const NAP: Duration = Duration::from_millis(1);
const NAPS_MAX: u32 = 16;

/// It looks whether it should end, or say something, at least so often.
const DEEP_SLEEP: Duration = Duration::from_millis(100);

/// Sends records to the replica.
pub(crate) struct Shipper {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    /// What it sleeps in: the bell wakes it up, and what the replica says.
    driver: Driver,
    ready: Vec<Ready>,
    has_own_core: bool,
    caller: Caller,
    line: Option<Line>,
    crew: Crew,
}

impl Shipper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sources: Vec<Source>,
        bell: Arc<Bell>,
        store: store::Worker,
        has_own_core: bool,
        caller: Caller,
    ) -> Result<Self, Errno> {
        let driver = Driver::new()?;
        bell.use_waker(driver.waker()?);
        let crew = Crew::new(Desk::new(Arc::clone(&shared), store), sources);
        shared.replica.set(State::Lost);
        let ready = Vec::new();
        Ok(Shipper { shared, bell, driver, ready, has_own_core, caller, line: None, crew })
    }

    /// Ships until the workers have stopped and nothing is left.
    pub(crate) fn run(mut self) {
        self.caller.want(None);
        let (mut naps, mut is_known_lost) = (0, false);
        loop {
            let is_last = self.shared.stop() != Stop::Not && self.shared.workers_running.load(SeqCst) == 0;
            // What was sent to the last replica is validated here before there is another one.
            if self.line.is_none() && !self.crew.is_waiting() {
                self.connect(&mut is_known_lost);
            }
            self.crew.desk.core = Core(sys::current_cpu());
            let is_paused = self.shared.validators_paused.load(Relaxed) && self.shared.stop() == Stop::Not;
            let has_moved = !is_paused && self.turn();
            let is_waiting = self.crew.is_waiting();
            if has_moved {
                naps = 0;
            } else if is_last && !is_waiting {
                return;
            } else {
                naps += 1;
                self.sleep(naps, is_paused);
            }
        }
    }

    /// One turn; whether anything was done.
    fn turn(&mut self) -> bool {
        if self.bell.take_hurry() && self.line.is_some() {
            self.crew.relieve();
        }
        let Some(line) = &mut self.line else { return self.crew.validate() };
        match line.turn(&self.shared, &mut self.crew) {
            Ok(has_moved) => has_moved,
            Err(lost) => {
                self.lose(lost);
                true
            }
        }
    }

    /// Takes the connection that was asked for, if it is there.
    fn connect(&mut self, is_known_lost: &mut bool) {
        match self.caller.result() {
            None => {}
            Some(Ok(connected)) => {
                *is_known_lost = false;
                let which = connected.process_id().map_or(String::new(), |id| format!(" pid={id}"));
                self.shared.replica.memory_bytes.store(connected.welcome.memory_bytes, Relaxed);
                *locked(&self.shared.replica.counted) = Counted::default();
                if self.shared.replica.losses.load(Relaxed) > 0 {
                    tell(format_args!("event=replica_found{which}; it is brought up to date"));
                }
                self.shared.replica.set(State::Resynchronising);
                // If that fails, what it says is seen a nap later.
                let _ = self.driver.watch(connected.link.socket(), 0);
                self.line = Some(Line::new(connected));
            }
            Some(Err(_)) if *is_known_lost => {}
            Some(Err(why)) => {
                *is_known_lost = true;
                tell(format_args!("event=replica_missing; {why}; trying again, validating here meanwhile"));
            }
        }
    }

    /// The connection is gone: everything is validated here until there is another one.
    #[cold]
    fn lose(&mut self, why: Lost) {
        let Some(line) = self.line.take() else { return };
        let standing = &self.shared.replica;
        standing.set(State::Lost);
        standing.losses.fetch_add(1, Relaxed);
        tell(format_args!("event=replica_lost; {why}; validating here meanwhile"));
        self.caller.want(Some(line.connected.age()));
        self.crew.streams.iter_mut().for_each(Stream::forget_replica);
        let flying = self.crew.streams.iter().map(|stream| stream.flying.len() as u64).sum::<u64>();
        standing.sent.fetch_sub(flying.min(standing.sent.load(Relaxed)), Relaxed);
    }

    fn sleep(&mut self, naps: u32, is_paused: bool) {
        let began = Instant::now();
        while self.has_own_core && naps == 1 && began.elapsed() < SPIN {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if self.crew.has_records() {
                return;
            }
        }
        let is_busy = self.line.as_ref().is_some_and(Line::is_busy);
        let (how, time) = match naps < NAPS_MAX && !is_paused {
            // A replica is waited for on a core of our own: then all that comes is welcome at once.
            true if !self.has_own_core => (Sleep::Nap, NAP),
            true => (Sleep::Deep, NAP),
            false if is_busy => (Sleep::Deep, NAP),
            false => (Sleep::Deep, DEEP_SLEEP),
        };
        let (crew, driver, ready) = (&mut self.crew, &self.driver, &mut self.ready);
        let has_come = || !is_paused && crew.has_records();
        self.bell.sleep_in(how, has_come, || {
            driver.wait(Some(time), ready);
        });
    }
}

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
pub(super) fn tell(text: fmt::Arguments<'_>) {
    let line = format!("veracache: integrity: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
