//! One connection: its socket, what was read and not used, what is to be sent, and how far its client is.
//!
//! A connection without anything in progress holds no buffers: it reads into one that its worker has for all.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use guard::Seq;

use crate::driver::{self, Moved};
use crate::execute::Executor;
use crate::output::Output;
use crate::session::{Session, Verdict};
use crate::shared::{Face, State};

/// Bytes read for one connection before others have their turn.
const TURN_BYTES_READ: usize = 64 << 10;

/// Bytes sent for one connection before others have their turn.
const TURN_BYTES_SENT: usize = 1 << 20;

/// The buffer that connections of a worker share.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Up to this much unused input is copied to the front of the shared buffer; above that, the connection reads into
/// its own.
const INPUT_COPY_MAX: usize = 16 << 10;

/// Bytes of a value read in one call.
const FILL_BYTES_MAX: usize = 256 << 10;

/// A connection that was accepted and has no worker yet.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    /// The number of the listener it came from.
    pub(crate) listener: usize,
}

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// The first byte will tell.
    Unknown,
    /// Classic and meta commands.
    Text,
    /// The binary protocol.
    Binary,
    /// The line protocol.
    Line,
}

impl Speaks {
    /// memcached's words for it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Speaks::Unknown => "auto-negotiating",
            Speaks::Text => "ascii",
            Speaks::Binary => "binary",
            Speaks::Line => "line",
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    /// Holds the socket.
    pub(crate) face: Arc<Face>,
    session: Session,
    /// What was read and not used.
    input: Vec<u8>,
    /// Whether `input` can be used without reading more.
    usable: bool,
    /// What was not sent.
    unsent: Option<Box<Output>>,
    /// Whether the socket may hold something to read.
    pub(crate) readable: bool,
    /// Whether the other side has finished sending, so that reading will come to an end.
    pub(crate) ended: bool,
    /// Whether nothing is done any more but sending what waits.
    closing: bool,
    /// Whether the worker has it in its queue.
    pub(crate) queued: bool,
    /// Whether the worker has it among those that wait to be confirmed.
    pub(crate) holding: bool,
}

/// What becomes of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It waits for its socket.
    Wait,
    /// It can go on when others had their turn.
    Again,
    /// It waits until what it has to send is confirmed.
    Hold,
    /// It is finished.
    Close,
}

/// What a worker lends a connection for a turn.
pub(crate) struct Desk<'w> {
    pub(crate) executor: Executor<'w>,
    /// [`READ_BYTES`] to read into.
    pub(crate) buffer: &'w mut [u8],
    /// Empty before and after each turn.
    pub(crate) output: &'w mut Output,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, speaks: Speaks, now: u32) -> Self {
        Connection {
            face: Arc::new(Face::new(socket, now)),
            session: Session::new(speaks),
            input: Vec::new(),
            usable: false,
            unsent: None,
            readable: false,
            ended: false,
            closing: false,
            queued: false,
            holding: false,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.face.socket
    }

    /// Memory this connection holds, besides the structure itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.capacity() + self.unsent.as_ref().map_or(0, |output| output.held_bytes())
    }

    /// Makes it do nothing any more but send what waits; returns whether anything does.
    pub(crate) fn begin_closing(&mut self) -> bool {
        self.closing = true;
        self.unsent.is_some()
    }

    /// The record that has to be confirmed before anything is sent; 0 for none.
    pub(crate) fn awaits(&self) -> Seq {
        self.unsent.as_ref().map_or(0, |unsent| unsent.awaits())
    }

    /// Takes replies back whose records were refused.
    pub(crate) fn retract(&mut self, is_refused: impl Fn(Seq) -> bool) {
        if let Some(unsent) = &mut self.unsent
            && !unsent.retract(is_refused)
        {
            self.closing = true;
        }
    }

    /// What was held may be sent.
    pub(crate) fn release(&mut self) {
        if let Some(unsent) = &mut self.unsent {
            unsent.release();
        }
    }

    /// Goes on as far as it may: sends what waits, then reads, executes and sends.
    pub(crate) fn turn(&mut self, desk: &mut Desk<'_>) -> After {
        if let Some(unsent) = self.unsent.take() {
            *desk.output = *unsent;
            if let Some(after) = self.send(desk) {
                return after;
            }
        }
        if self.closing {
            return self.close();
        }
        self.face.set_state(State::Executing);
        self.face.active_unix.store(desk.executor.now(), Relaxed);
        desk.executor.begin_turn();
        desk.output.set_runs(desk.executor.runs());
        let mut after = self.work(desk);
        if let Some(interrupted) = self.send(desk) {
            after = interrupted;
        } else if self.closing {
            after = self.close();
        }
        let state = match after {
            After::Wait if self.unsent.is_some() => State::Sending,
            _ if self.session.awaits_value() => State::Filling,
            _ => State::Waiting,
        };
        self.face.set_state(state);
        after
    }

    /// Reads and executes until the socket is empty, or others should have their turn.
    fn work(&mut self, desk: &mut Desk<'_>) -> After {
        let mut read = 0;
        let mut sent = 0;
        loop {
            let verdict = if self.usable {
                self.use_input(desk)
            } else if !self.readable {
                return After::Wait;
            } else if read >= TURN_BYTES_READ {
                desk.executor.counters().conn_yields.up();
                return After::Again;
            } else {
                match self.read(desk) {
                    Ok((count, verdict)) => {
                        read += count;
                        desk.executor.counters().bytes_read.add(count as u64);
                        verdict
                    }
                    Err(Moved::Blocked | Moved::Bytes(_)) => {
                        self.readable = false;
                        return After::Wait;
                    }
                    Err(Moved::End) => {
                        self.closing = true;
                        return After::Wait;
                    }
                    Err(Moved::Broken) => return After::Close,
                }
            };
            self.usable = false;
            match verdict {
                Verdict::More => {}
                Verdict::Full => {
                    self.usable = true;
                    sent += desk.output.queued();
                    if let Some(after) = self.send(desk) {
                        return after;
                    }
                    if sent >= TURN_BYTES_SENT {
                        desk.executor.counters().conn_yields.up();
                        return After::Again;
                    }
                }
                Verdict::Yield => {
                    self.usable = true;
                    desk.executor.counters().conn_yields.up();
                    return After::Again;
                }
                Verdict::Close => {
                    self.closing = true;
                    return After::Wait;
                }
            }
        }
    }

    /// Executes what was read before.
    fn use_input(&mut self, desk: &mut Desk<'_>) -> Verdict {
        let mut input = std::mem::take(&mut self.input);
        let (used, verdict) = self.session.consume(&input, &mut desk.executor, desk.output);
        input.drain(..used);
        if !input.is_empty() {
            self.input = input;
        }
        verdict
    }

    /// Reads once and executes what came.
    fn read(&mut self, desk: &mut Desk<'_>) -> Result<(usize, Verdict), Moved> {
        if self.input.is_empty() && self.session.room().is_some() {
            return self.read_value(desk);
        }
        let before = self.input.len();
        if before > INPUT_COPY_MAX {
            return self.read_own(desk);
        }
        desk.buffer[..before].copy_from_slice(&self.input);
        let count =
            self.note_read(driver::read(&self.face.socket, &mut desk.buffer[before..]), READ_BYTES - before)?;
        let input = &desk.buffer[..before + count];
        let (used, verdict) = self.session.consume(input, &mut desk.executor, desk.output);
        keep(&mut self.input, &input[used..]);
        Ok((count, verdict))
    }

    /// Reads behind much input that could not be used yet.
    fn read_own(&mut self, desk: &mut Desk<'_>) -> Result<(usize, Verdict), Moved> {
        let mut input = std::mem::take(&mut self.input);
        let before = input.len();
        input.resize(before + READ_BYTES, 0);
        let moved = self.note_read(driver::read(&self.face.socket, &mut input[before..]), READ_BYTES);
        input.truncate(before + moved.unwrap_or(0));
        self.input = input;
        let count = moved?;
        Ok((count, self.use_input(desk)))
    }

    /// Reads a value straight to where it will lie, and what comes behind it as usual.
    fn read_value(&mut self, desk: &mut Desk<'_>) -> Result<(usize, Verdict), Moved> {
        let room = self.session.room().unwrap_or_default();
        let wanted = room.len().min(FILL_BYTES_MAX);
        let complete = wanted == room.len();
        let moved = if complete {
            let mut buffers = [IoSliceMut::new(room), IoSliceMut::new(desk.buffer)];
            driver::read_vectored(&self.face.socket, &mut buffers)
        } else {
            driver::read(&self.face.socket, &mut room[..wanted])
        };
        let asked = if complete { wanted + READ_BYTES } else { wanted };
        let count = self.note_read(moved, asked)?;
        self.session.filled(count.min(wanted));
        let input = &desk.buffer[..count.saturating_sub(wanted)];
        let (used, verdict) = self.session.consume(input, &mut desk.executor, desk.output);
        keep(&mut self.input, &input[used..]);
        Ok((count, verdict))
    }

    /// Less than was asked for means that the socket is empty, and that the kernel will tell when it is not, unless
    /// the end is near: that was told already.
    fn note_read(&mut self, moved: Moved, asked: usize) -> Result<usize, Moved> {
        match moved {
            Moved::Bytes(count) => {
                self.readable = self.ended || count == asked;
                Ok(count)
            }
            other => Err(other),
        }
    }

    /// Sends what is in the output. `None` when all is sent.
    fn send(&mut self, desk: &mut Desk<'_>) -> Option<After> {
        if desk.output.awaits() > 0 {
            self.unsent = Some(Box::new(std::mem::take(desk.output)));
            return Some(After::Hold);
        }
        let before = desk.output.queued();
        let moved = if before == 0 { Moved::Bytes(0) } else { desk.output.send(&self.face.socket) };
        desk.executor.counters().bytes_written.add((before - desk.output.queued()) as u64);
        match moved {
            Moved::Bytes(_) => None,
            Moved::Blocked => {
                if desk.output.is_full() {
                    desk.executor.counters().slow_readers.up();
                }
                self.unsent = Some(Box::new(std::mem::take(desk.output)));
                Some(After::Wait)
            }
            Moved::End | Moved::Broken => {
                *desk.output = Output::default();
                Some(After::Close)
            }
        }
    }

    /// Everything was sent. What the client sent too much is read, as closing a socket with unread bytes makes the
    /// kernel throw away answers that are still on their way.
    fn close(&mut self) -> After {
        let _ = rustix::net::shutdown(&self.face.socket, rustix::net::Shutdown::Write);
        let mut rest = [0; 4096];
        for _ in 0..16 {
            if !matches!(driver::read(&self.face.socket, &mut rest), Moved::Bytes(_)) {
                break;
            }
        }
        After::Close
    }
}

/// Replaces what is kept by `rest`. Nothing to keep needs no memory.
fn keep(kept: &mut Vec<u8>, rest: &[u8]) {
    if rest.is_empty() {
        if kept.capacity() > 0 {
            *kept = Vec::new();
        }
    } else {
        kept.clear();
        kept.extend_from_slice(rest);
    }
}
