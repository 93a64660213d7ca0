//! A socket that frames go over, with what waits on both sides of it. It never blocks but where it says so.
//!
//! Limits: what arrives is at most one frame of the agreed length and [`READ_BYTES`]; what waits to be sent is for the
//! owner to limit, by looking at [`Link::queued`] before adding to it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{BadFrame, Frame, GREETING_BYTES_MAX, Refused};
use crate::driver::{self, Moved};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// With less room than this, more is made.
const ROOM_MIN: usize = 64 << 10;

/// A buffer larger than this is given back when it is empty.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// How long somebody who waits for a frame may overlook that it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// Why there is no connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The other side has ended it.
    Ended,
    /// The system says it is broken.
    Broken,
    /// What arrived can't be understood.
    Bad(BadFrame),
    /// The other side said nothing for too long.
    Silent,
    /// The other side is another program, or another version of this one.
    Stranger,
    /// The replica does not want to be one.
    Refused(Refused),
    /// This side is about to stop.
    Stopping,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Ended => f.write_str("it has ended the connection"),
            Lost::Broken => f.write_str("the connection is broken"),
            Lost::Bad(bad) => bad.fmt(f),
            Lost::Silent => f.write_str("it says nothing"),
            Lost::Stranger => f.write_str("it is another program, or another version of this one"),
            Lost::Refused(refused) => refused.fmt(f),
            Lost::Stopping => f.write_str("this side stops"),
        }
    }
}

impl From<BadFrame> for Lost {
    fn from(bad: BadFrame) -> Self {
        Lost::Bad(bad)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    out: Vec<u8>,
    /// How many bytes of `out` were sent.
    sent: usize,
    /// Room for what arrives; what of it has arrived lies between the two marks.
    input: Vec<u8>,
    /// Up to where it was given out as frames.
    used: usize,
    /// Up to where it was read.
    filled: usize,
    body_max: usize,
}

impl Link {
    /// For a socket that does not block. Only a greeting is understood until [`Link::agree`].
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let (out, input) = (Vec::new(), Vec::new());
        Link { socket, out, sent: 0, input, used: 0, filled: 0, body_max: GREETING_BYTES_MAX }
    }

    /// From now on frames may be so long.
    pub(crate) fn agree(&mut self, body_max: usize) {
        self.body_max = body_max;
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Where frames are appended.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// How many bytes wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Memory it holds.
    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.out.capacity() + self.input.capacity()
    }

    /// Sends what the socket takes; how many bytes.
    pub(crate) fn send(&mut self) -> Result<usize, Lost> {
        let mut total = 0;
        while self.sent < self.out.len() {
            match driver::write(&self.socket, &self.out[self.sent..]) {
                Moved::Bytes(count) => {
                    self.sent += count;
                    total += count;
                }
                Moved::Blocked => {
                    // So that a slow reader doesn't make the buffer grow for ever.
                    if self.sent > self.out.len() / 2 {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(total);
                }
                Moved::End => return Err(Lost::Ended),
                Moved::Broken => return Err(Lost::Broken),
            }
        }
        self.sent = 0;
        self.out.clear();
        give_back(&mut self.out);
        Ok(total)
    }

    /// Reads once what has arrived; how many bytes. All frames that are there should have been taken before.
    pub(crate) fn receive(&mut self) -> Result<usize, Lost> {
        self.make_room();
        match driver::read(&self.socket, &mut self.input[self.filled..]) {
            Moved::Bytes(count) => {
                self.filled += count;
                Ok(count)
            }
            Moved::Blocked => Ok(0),
            Moved::End => Err(Lost::Ended),
            Moved::Broken => Err(Lost::Broken),
        }
    }

    /// Makes room for [`ROOM_MIN`] bytes to be read at least.
    fn make_room(&mut self) {
        if self.used == self.filled {
            (self.used, self.filled) = (0, 0);
            give_back(&mut self.input);
        }
        if self.input.len() - self.filled < ROOM_MIN {
            self.input.copy_within(self.used..self.filled, 0);
            (self.used, self.filled) = (0, self.filled - self.used);
        }
        if self.input.len() - self.filled < ROOM_MIN {
            self.input.resize(self.filled + READ_BYTES, 0);
        }
    }

    /// The next frame that has arrived as a whole.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, Lost> {
        let Some((frame, length)) = Frame::decode(&self.input[self.used..self.filled], self.body_max)? else {
            return Ok(None);
        };
        self.used += length;
        Ok(Some(frame))
    }

    /// Waits until something arrives, or there is room to send what waits, or the time is over.
    pub(crate) fn wait(&self, timeout: Duration) {
        let wanted = if self.queued() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut sockets = [PollFd::new(&self.socket, wanted)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An error is an interruption by a signal: the caller looks and waits again.
        let _ = poll(&mut sockets, Some(&timeout));
    }

    /// Sends what waits and waits for a frame that `decode` makes something of. Blocks up to `patience`.
    pub(crate) fn ask<T>(
        &mut self,
        patience: Duration,
        stopping: impl Fn() -> bool,
        decode: impl FnOnce(&Frame<'_>) -> Result<T, BadFrame>,
    ) -> Result<T, Lost> {
        let began = Instant::now();
        loop {
            self.send()?;
            if let Some(frame) = self.next()? {
                return Ok(decode(&frame)?);
            }
            if self.receive()? > 0 {
                continue;
            }
            if stopping() {
                return Err(Lost::Stopping);
            }
            let Some(left) = patience.checked_sub(began.elapsed()) else { return Err(Lost::Silent) };
            self.wait(left.min(LOOK));
        }
    }
}

/// Gives a buffer back that is large and not needed.
fn give_back(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::super::wire::{Hello, Tag, VERSION, append};
    use super::*;

    fn pair() -> (Link, Link) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        theirs.set_nonblocking(true).expect("nonblocking");
        (Link::new(ours.into()), Link::new(theirs.into()))
    }

    #[test]
    fn frames_of_any_size_arrive_in_order() {
        let (mut ours, mut theirs) = pair();
        theirs.agree(8 << 20);
        let sizes: Vec<usize> = (0..200).map(|number| (number * number * 37) % (1 << 20)).collect();
        let expected = sizes.clone();
        let reader = thread::spawn(move || {
            for (number, size) in expected.into_iter().enumerate() {
                loop {
                    if let Some(frame) = theirs.next().expect("sound") {
                        assert_eq!(
                            (frame.tag, frame.stream, frame.body.len()),
                            (Tag::Load, number as u16, size)
                        );
                        assert!(frame.body.iter().all(|byte| *byte == number as u8));
                        break;
                    }
                    if theirs.receive().expect("open") == 0 {
                        theirs.wait(Duration::from_secs(1));
                    }
                }
            }
            theirs.held_bytes()
        });
        for (number, size) in sizes.into_iter().enumerate() {
            append(ours.out(), Tag::Load, number as u16, |body| body.resize(body.len() + size, number as u8));
            while ours.queued() > 2 << 20 {
                if ours.send().expect("open") == 0 {
                    ours.wait(Duration::from_secs(1));
                }
            }
        }
        while ours.queued() > 0 {
            ours.send().expect("open");
            ours.wait(Duration::from_millis(1));
        }
        let held = reader.join().expect("the reader");
        assert!(held <= KEPT_BYTES_MAX + READ_BYTES, "{held}");
    }

    #[test]
    fn who_does_not_read_only_fills_a_buffer() {
        let (mut ours, _theirs) = pair();
        let mut rounds = 0;
        while ours.queued() < 1 << 20 {
            append(ours.out(), Tag::Ping, 0, |body| body.resize(body.len() + 1000, 0));
            ours.send().expect("open");
            rounds += 1;
        }
        assert!(rounds > 1000);
        assert_eq!(ours.send(), Ok(0));
    }

    #[test]
    fn an_end_and_a_silence_are_noticed() {
        let (mut ours, theirs) = pair();
        let nothing = |_: &Frame<'_>| Ok(());
        assert_eq!(ours.ask(Duration::from_millis(1), || false, nothing), Err(Lost::Silent));
        assert_eq!(ours.ask(Duration::from_secs(9), || true, nothing), Err(Lost::Stopping));
        drop(theirs);
        assert_eq!(ours.receive(), Err(Lost::Ended));
        append(ours.out(), Tag::Ping, 0, |_| {});
        assert!(ours.send().is_err());
    }

    #[test]
    fn only_a_greeting_is_understood_at_first() {
        let (mut ours, mut theirs) = pair();
        append(ours.out(), Tag::Parcel, 0, |body| body.resize(body.len() + GREETING_BYTES_MAX + 1, 0));
        ours.send().expect("open");
        let asked = theirs.ask(Duration::from_secs(9), || false, |_| Ok(()));
        assert_eq!(asked, Err(Lost::Bad(BadFrame::Length)));
        let (mut ours, mut theirs) = pair();
        let hello =
            Hello { version: VERSION, memory_bytes: 1, item_bytes_max: 2, streams: 3, ..Hello::default() };
        hello.append(ours.out());
        ours.send().expect("open");
        assert_eq!(theirs.ask(Duration::from_secs(9), || false, Hello::decode), Ok(hello));
    }
}
