//! One thread of the generator: an event loop over its connections.
//!
//! A turn waits for replies, reads each connection that has some, judges them in place, adds the next requests, and
//! writes what was added. Only a connection that can't be written is watched for that, so that a request costs two
//! system calls and its part of the wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use protocol::reply::{Step, parse};
use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::connection::{Connection, Pending};
use super::issuer::Issuer;
use super::judge::Judge;
use super::plan::{Arrivals, Length};
use super::sheet::Sheet;
use super::{Counters, Shared};
use crate::keys::share;
use crate::watch::{CpuTime, thread_cpu};

/// Bytes that are read at once; a longer reply makes the buffer grow.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest reply.
const REPLY_BYTES_MAX: usize = 128 << 20;
/// Events taken in one turn.
const EVENTS_MAX: usize = 1024;
/// How often a thread looks at least whether it should stop.
const TURN: Duration = Duration::from_millis(50);
/// Requests that a connection has under way while items are stored before the measurement.
const FILL_DEPTH: u32 = 64;
/// What is due when the time is over may still be sent for so long.
const GRACE_NS: u64 = 1_000_000_000;
/// The token of the timer.
const TIMER: u64 = u64::MAX;

/// What a thread does: from `began` on, in nanoseconds since then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) began: Instant,
    /// Whether items are stored, instead of what the plan says.
    pub(super) fills: bool,
    pub(super) counts_from: u64,
    pub(super) interval_ns: u64,
}

/// What a thread found.
pub(super) struct Report {
    pub(super) sheet: Sheet,
    pub(super) cpu_seconds: f64,
    pub(super) cpu: CpuTime,
    pub(super) unsent: u64,
    /// Why it ended early.
    pub(super) failure: Option<String>,
}

pub(super) struct Worker<'s, 't> {
    pub(super) shared: &'s Shared,
    pub(super) counters: &'t Counters,
    pub(super) part: u64,
    pub(super) connections: &'t mut [Connection],
    pub(super) issuer: &'t mut Issuer<'s>,
}

/// The arrivals of one thread.
struct Schedule {
    arrivals: Arrivals,
    /// Nanoseconds between two, on average.
    gap: f64,
    next: f64,
    /// Requests that it may still send.
    left: u64,
    ends: u64,
}

impl Schedule {
    fn new(shared: &Shared, part: u64, phase: &Phase) -> Self {
        let plan = &shared.plan;
        let threads = u64::from(plan.threads);
        let gap = plan.arrivals.rate().map_or(0.0, |rate| threads as f64 * 1e9 / rate);
        let (left, ends) = match plan.length {
            _ if phase.fills => (u64::MAX, u64::MAX),
            Length::Time(time) => (u64::MAX, phase.counts_from.saturating_add(nanoseconds(time))),
            Length::Requests(count) => {
                let (first, end) = share(count, part, threads);
                (end - first, u64::MAX)
            }
        };
        let arrivals = if phase.fills { Arrivals::Closed } else { plan.arrivals };
        // Threads take turns.
        Schedule { arrivals, gap, next: gap * part as f64 / threads as f64, left, ends }
    }

    fn is_open(&self) -> bool {
        self.arrivals != Arrivals::Closed
    }

    /// When the next request is due; nothing if there is none any more.
    fn due(&self) -> Option<u64> {
        let due = self.next as u64;
        (self.left > 0 && due < self.ends).then_some(due)
    }

    /// That request is sent.
    fn advance(&mut self, issuer: &mut Issuer<'_>, counts_from: u64) {
        if self.next as u64 >= counts_from {
            self.left = self.left.saturating_sub(1);
        }
        self.next += match self.arrivals {
            Arrivals::Poisson(_) => self.gap * issuer.gap(),
            _ => self.gap,
        };
    }

    /// How many were due before the end and not sent.
    fn unsent(&self, now: u64) -> u64 {
        if !self.is_open() || self.gap <= 0.0 {
            return 0;
        }
        let until = (self.ends.min(now) as f64 - self.next).max(0.0);
        ((until / self.gap) as u64).min(self.left)
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of the calling thread, in seconds, exactly.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of the calling thread, split, in ticks.
fn thread_split() -> CpuTime {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    u32::try_from(thread).ok().and_then(|thread| thread_cpu(std::process::id(), thread)).unwrap_or_default()
}

impl Worker<'_, '_> {
    /// Does what the phase asks for, and waits for what the servers owe then.
    pub(super) fn run(self, phase: &Phase) -> Report {
        let schedule = Schedule::new(self.shared, self.part, phase);
        let rows = self.shared.plan.mix.0.len();
        let sheet = Sheet::new(rows, schedule.is_open(), phase.counts_from, phase.interval_ns);
        let mut turns = Turns {
            judge: Judge::new(self.shared, sheet),
            shared: self.shared,
            counters: self.counters,
            connections: self.connections,
            issuer: self.issuer,
            schedule,
            began: phase.began,
            fills: phase.fills,
            buffer: vec![0; BUFFER_BYTES],
            ready: Vec::with_capacity(EVENTS_MAX),
            next_connection: 0,
            cpu_from: None,
            depth: if phase.fills { FILL_DEPTH.max(self.shared.plan.depth) } else { self.shared.plan.depth },
        };
        let failure = turns.run().err();
        let (seconds, split) = turns.cpu_from.unwrap_or_else(|| (thread_seconds(), thread_split()));
        let now = turns.now();
        let mut sheet = turns.judge.sheet;
        sheet.finish();
        Report {
            sheet,
            cpu_seconds: thread_seconds() - seconds,
            cpu: thread_split().since(split),
            unsent: turns.schedule.unsent(now),
            failure,
        }
    }
}

/// An event loop, while it runs.
struct Turns<'s, 't> {
    shared: &'s Shared,
    counters: &'t Counters,
    connections: &'t mut [Connection],
    issuer: &'t mut Issuer<'s>,
    judge: Judge<'s>,
    schedule: Schedule,
    began: Instant,
    fills: bool,
    buffer: Vec<u8>,
    /// Connections to which something was added in this turn.
    ready: Vec<usize>,
    /// Which connection the next arrival takes if it has room.
    next_connection: usize,
    /// CPU time when the warm-up ended.
    cpu_from: Option<(f64, CpuTime)>,
    depth: u32,
}

impl Turns<'_, '_> {
    #[inline]
    fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    fn run(&mut self) -> Result<(), String> {
        let broken = |error: rustix::io::Errno| format!("waiting for replies: {error}");
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(broken)?;
        for (index, connection) in self.connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poll, &connection.stream, data, epoll::EventFlags::IN).map_err(broken)?;
        }
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        let timer = timer.map_err(broken)?;
        if self.schedule.is_open() {
            let data = epoll::EventData::new_u64(TIMER);
            epoll::add(&poll, &timer, data, epoll::EventFlags::IN).map_err(broken)?;
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut checked = 0;
        self.begin(&poll)?;
        loop {
            let now = self.now();
            if self.cpu_from.is_none() && now >= self.judge.sheet.counts_from {
                self.cpu_from = Some((thread_seconds(), thread_split()));
            }
            if now >= checked + nanoseconds(TURN) || self.ended(now) {
                checked = now;
                self.counters.note(&self.judge.sheet);
                if self.ended(now) || self.shared.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.check_silence(now)?;
            }
            let timeout = self.arm(&timer, now).map_err(|error| format!("setting a timer: {error}"))?;
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&poll, buffer, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(broken(error)),
            }
            for event in events.drain(..) {
                let token = event.data.u64();
                if token != TIMER {
                    self.serve(&poll, token as usize, event.flags)?;
                }
            }
            if self.schedule.is_open() {
                self.send_due(&poll)?;
            }
        }
    }

    /// Whether nothing is to be sent and nothing is owed any more, or it took too long to send what was due.
    fn ended(&self, now: u64) -> bool {
        let is_idle = self.connections.iter().all(|connection| connection.pending.is_empty());
        let may_send = match self.schedule.is_open() {
            true => self.schedule.due().is_some() && now < self.schedule.ends.saturating_add(GRACE_NS),
            false => !self.fills && self.schedule.left > 0 && now < self.schedule.ends,
        };
        is_idle && !may_send
    }

    /// A server that owes replies and says nothing for too long has failed.
    fn check_silence(&self, now: u64) -> Result<(), String> {
        let patience = nanoseconds(self.shared.plan.patience);
        let silent = self
            .connections
            .iter()
            .find(|connection| !connection.pending.is_empty() && now > connection.heard + patience);
        silent.map_or(Ok(()), |connection| {
            let address = self.address(connection);
            Err(format!("{address} has not answered for {} s", self.shared.plan.patience.as_secs_f64()))
        })
    }

    fn address(&self, connection: &Connection) -> String {
        let address = self.shared.plan.addresses.get(connection.server as usize);
        address.map(ToString::to_string).unwrap_or_default()
    }

    /// Sends the first requests of a closed loop.
    fn begin(&mut self, poll: &OwnedFd) -> Result<(), String> {
        for index in 0..self.connections.len() {
            self.connections[index].heard = self.now();
            if !self.schedule.is_open() {
                self.refill(index);
                self.write(poll, index)?;
            }
        }
        Ok(())
    }

    /// How long to wait: for the next arrival by the timer, which is exact, in any case for one turn.
    fn arm(&self, timer: &OwnedFd, now: u64) -> io::Result<Timespec> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let turn = Timespec { tv_sec: 0, tv_nsec: i64::from(TURN.subsec_nanos()) };
        if !self.schedule.is_open() {
            return Ok(turn);
        }
        let has_room = self.connections.iter().any(|connection| connection.has_room(self.depth));
        let (Some(due), true) = (self.schedule.due(), has_room) else { return Ok(turn) };
        let left = due.saturating_sub(now);
        if left <= nanoseconds(self.shared.plan.spin) {
            return Ok(zero);
        }
        if left >= nanoseconds(TURN) {
            return Ok(turn);
        }
        let value = Timespec { tv_sec: 0, tv_nsec: i64::try_from(left).unwrap_or(i64::MAX) };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &spec)?;
        Ok(turn)
    }

    /// Takes what a connection has to say, and sends the next in a closed loop.
    fn serve(&mut self, poll: &OwnedFd, index: usize, flags: epoll::EventFlags) -> Result<(), String> {
        if flags.contains(epoll::EventFlags::OUT) {
            self.write(poll, index)?;
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read(index)?;
            if !self.schedule.is_open() {
                self.refill(index);
                self.write(poll, index)?;
            }
        }
        Ok(())
    }

    /// Adds requests to a connection until it has no room.
    #[inline]
    fn refill(&mut self, index: usize) {
        let now = self.now();
        let connection = &mut self.connections[index];
        if self.fills {
            while connection.has_room(self.depth) && self.issuer.fill(connection, now) {}
            return;
        }
        if now >= self.schedule.ends || self.shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let is_warm = now >= self.judge.sheet.counts_from;
        while connection.has_room(self.depth) && self.schedule.left > 0 {
            self.issuer.issue(connection, now, now);
            self.schedule.left -= u64::from(is_warm);
        }
        if connection.needs_barrier {
            self.issuer.barrier(connection);
        }
    }

    /// Sends what is due in an open loop, as far as connections have room.
    fn send_due(&mut self, poll: &OwnedFd) -> Result<(), String> {
        if self.shared.stop.load(Ordering::Relaxed) {
            self.schedule.left = 0;
        }
        let counts_from = self.judge.sheet.counts_from;
        let mut now = self.now();
        let all = self.connections.len();
        let mut free = all;
        while let Some(due) = self.schedule.due().filter(|due| *due <= now && free > 0) {
            let index = self.next_connection;
            self.next_connection = if index + 1 == all { 0 } else { index + 1 };
            let connection = &mut self.connections[index];
            if !connection.has_room(self.depth) {
                free -= 1;
                continue;
            }
            free = all;
            if connection.pending.is_empty() {
                connection.heard = now;
            }
            if connection.written == connection.out.len() && connection.out.is_empty() {
                self.ready.push(index);
            }
            self.issuer.issue(connection, due, now);
            self.schedule.advance(self.issuer, counts_from);
            now = nanoseconds(self.began.elapsed());
        }
        while let Some(index) = self.ready.pop() {
            if self.connections[index].needs_barrier {
                self.issuer.barrier(&mut self.connections[index]);
            }
            self.write(poll, index)?;
        }
        Ok(())
    }

    /// Writes what can be written, and watches for the rest.
    #[inline]
    fn write(&mut self, poll: &OwnedFd, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        if connection.out.is_empty() {
            return Ok(());
        }
        let is_done = match connection.flush() {
            Ok(is_done) => is_done,
            Err(error) => return Err(format!("{}: {error}", self.address(&self.connections[index]))),
        };
        if connection.is_blocked == is_done {
            connection.is_blocked = !is_done;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, !is_done);
            let data = epoll::EventData::new_u64(index as u64);
            let changed = epoll::modify(poll, &connection.stream, data, flags);
            changed.map_err(|error| format!("waiting for replies: {error}"))?;
        }
        Ok(())
    }

    /// Reads once and judges every whole reply.
    #[inline]
    fn read(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let begun = connection.partial.len();
        if begun + BUFFER_BYTES / 2 > self.buffer.len() {
            self.buffer.resize((begun * 2).max(BUFFER_BYTES), 0);
        }
        self.buffer[..begun].copy_from_slice(&connection.partial);
        let count = match connection.receive(&mut self.buffer[begun..]) {
            Ok(Some(0)) => {
                let address = self.address(&self.connections[index]);
                return Err(format!("{address} closed a connection"));
            }
            Ok(Some(count)) => count,
            Ok(None) => return Ok(()),
            Err(error) => return Err(format!("{}: {error}", self.address(&self.connections[index]))),
        };
        let now = nanoseconds(self.began.elapsed());
        connection.heard = now;
        let came = &self.buffer[..begun + count];
        let mut used = 0;
        while used < came.len() {
            let (reply, bytes) = match parse(&came[used..]) {
                Step::Reply { reply, used } => (reply, used),
                Step::Incomplete { needed } if needed <= REPLY_BYTES_MAX => break,
                Step::Incomplete { .. } | Step::Garbage => {
                    let start = &came[used..came.len().min(used + 60)];
                    let text = format!("no reply: {:?}", String::from_utf8_lossy(start));
                    self.judge.sheet.wrong.protocol += 1;
                    self.judge.sheet.example(|| text.clone());
                    return Err(format!("{} sent {text}", self.address(&self.connections[index])));
                }
            };
            let taken = self.judge.take(connection, self.issuer, &reply, now);
            if let Err(desync) = taken {
                return Err(format!("{} sent {}", self.address(&self.connections[index]), desync.0));
            }
            used += bytes;
        }
        connection.partial.clear();
        connection.partial.extend_from_slice(&came[used..]);
        Ok(())
    }
}

// A connection may have thousands of them.
const _: () = assert!(size_of::<Pending>() <= 40);
