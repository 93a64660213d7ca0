//! The boundary between a worker and the kernel: which sockets can go on, and moving bytes.
//!
//! Sockets are registered once, for both directions, edge-triggered: there is no further call until the connection
//! is closed. A worker must therefore remember which sockets it left before they were drained.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// The token of the driver's own wake-up.
const WAKE: u64 = u64::MAX;

/// One socket that can go on: there is something to read, or room to write, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// What it was registered with.
    pub(crate) token: u64,
    /// There is something to read, or the end of it.
    pub(crate) readable: bool,
    /// The other side has finished or is gone: reading comes to an end.
    pub(crate) ended: bool,
}

/// What came of moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This many, at least one.
    Bytes(usize),
    /// None for now.
    Blocked,
    /// None any more: the other side has finished.
    End,
    /// None any more: the connection is broken.
    Broken,
}

/// An epoll instance with a way to wake it up.
#[derive(Debug)]
pub(crate) struct Driver {
    epoll: OwnedFd,
    wake: Waker,
}

/// Wakes a driver from other threads.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    fn new() -> rustix::io::Result<Self> {
        Ok(Waker(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Makes the driver's current or next wait return.
    pub(crate) fn wake(&self) {
        // The only failure is a counter that is full, and then the driver is about to wake up anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// A second handle on the same wake-up.
    pub(crate) fn try_clone(&self) -> rustix::io::Result<Self> {
        Ok(Waker(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }
}

impl Driver {
    /// A driver that watches nothing but its own wake-up.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Waker::new()?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &wake.0, epoll::EventData::new_u64(WAKE), flags)?;
        Ok(Driver { epoll, wake })
    }

    /// A handle that wakes this driver up.
    pub(crate) fn waker(&self) -> rustix::io::Result<Waker> {
        self.wake.try_clone()
    }

    /// Watches a socket in both directions until it is closed.
    pub(crate) fn watch(&self, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags)
    }

    /// Watches for something to read, and reports it for as long as it is there.
    pub(crate) fn watch_level(&self, source: impl AsFd, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// Watches no longer.
    pub(crate) fn forget(&self, source: impl AsFd) {
        // It fails when the source was not watched, which is what is wanted.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Waits until a socket can go on, somebody wakes the driver up, or the time is over. Fills `ready`; returns
    /// whether somebody woke it up.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> bool {
        ready.clear();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        // An error is an interruption by a signal: nothing is ready then.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout.as_ref()) else { return false };
        let mut woken = false;
        for event in events {
            let token = event.data.u64();
            if token == WAKE {
                woken = true;
                let _ = rustix::io::read(&self.wake.0, &mut [0_u8; 8]);
                continue;
            }
            let flags = event.flags;
            let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
            let ended = flags.intersects(epoll::EventFlags::RDHUP | failed);
            let readable = ended || flags.contains(epoll::EventFlags::IN);
            ready.push(Ready { token, readable, ended });
        }
        woken
    }
}

/// Reads once into a buffer that has room.
pub(crate) fn read(socket: impl AsFd, buffer: &mut [u8]) -> Moved {
    moved_in(rustix::net::recv(socket, buffer, RecvFlags::empty()).map(|(count, _)| count))
}

/// Reads once into several buffers of which one has room.
pub(crate) fn read_vectored(socket: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> Moved {
    moved_in(rustix::io::readv(socket, buffers))
}

/// Writes once from a buffer that is not empty.
pub(crate) fn write(socket: impl AsFd, buffer: &[u8]) -> Moved {
    moved_out(rustix::net::send(socket, buffer, SendFlags::NOSIGNAL))
}

/// Writes once from several buffers of which one is not empty.
pub(crate) fn write_vectored(socket: impl AsFd, buffers: &[IoSlice<'_>]) -> Moved {
    // The process ignores SIGPIPE, which writev can't be told to leave out.
    moved_out(rustix::io::writev(socket, buffers))
}

fn moved_in(result: rustix::io::Result<usize>) -> Moved {
    match result {
        Ok(0) => Moved::End,
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
        Err(_) => Moved::Broken,
    }
}

fn moved_out(result: rustix::io::Result<usize>) -> Moved {
    match result {
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Blocked,
        Err(_) => Moved::Broken,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn edges_are_reported_once() {
        let driver = Driver::new().expect("epoll");
        let (ours, theirs) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        driver.watch(&ours, 7).expect("watch");
        let mut ready = Vec::new();
        let zero = Some(Duration::ZERO);
        assert!(!driver.wait(zero, &mut ready));
        assert_eq!(ready, [Ready { token: 7, readable: false, ended: false }]);
        assert_eq!(write(&theirs, b"ab"), Moved::Bytes(2));
        driver.wait(zero, &mut ready);
        assert!(ready[0].readable);
        driver.wait(zero, &mut ready);
        assert_eq!(ready, []);
        let mut first = [0; 1];
        let mut rest = [0; 8];
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)];
        assert_eq!(read_vectored(&ours, &mut buffers), Moved::Bytes(2));
        assert_eq!(read(&ours, &mut rest), Moved::Blocked);
        drop(theirs);
        driver.wait(zero, &mut ready);
        assert!(ready[0].ended);
        assert_eq!(read(&ours, &mut rest), Moved::End);
    }

    #[test]
    fn a_waker_ends_a_wait() {
        let driver = Driver::new().expect("epoll");
        let waker = driver.waker().expect("waker");
        let mut ready = Vec::new();
        waker.wake();
        waker.wake();
        assert!(driver.wait(None, &mut ready));
        assert_eq!(ready, []);
        assert!(!driver.wait(Some(Duration::ZERO), &mut ready));
    }
}
