//! Wakes a validator, when it is worth it.
//!
//! A sleeping thread costs a call to the system to wake, and on a core that it shares with workers a change of threads.
//! So a validator says how it sleeps: in a nap it wakes by itself soon, and is only woken if somebody waits for it or much
//! has come; in deep sleep anything wakes it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::driver::Waker;

const AWAKE: u8 = 0;
const NAP: u8 = 1;
const DEEP: u8 = 2;

/// How a validator sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It looks again soon.
    Nap,
    /// Until it is woken.
    Deep,
}

/// One validator's bell.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: AtomicU8,
    thread: OnceLock<Thread>,
    /// Whether somebody needs what records point to.
    is_hurried: AtomicBool,
    /// Rung as well, where the thread sleeps in a driver, because it waits for a socket, too.
    waker: OnceLock<Waker>,
}

impl Bell {
    /// Records came. Wakes the validator if it sleeps deeply, or naps and the matter is urgent.
    #[inline]
    pub(crate) fn ring(&self, is_urgent: bool) {
        // Pairs with the fence in `sleep`: either this sees that it sleeps, or it sees what came.
        fence(Ordering::SeqCst);
        match self.state.load(Ordering::Relaxed) {
            AWAKE => {}
            NAP if !is_urgent => {}
            _ => self.wake(),
        }
    }

    /// Somebody needs the memory that records keep from being used again.
    pub(crate) fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
        self.ring(true);
    }

    /// Whether somebody has asked to hurry since the last time.
    pub(crate) fn take_hurry(&self) -> bool {
        self.is_hurried.load(Ordering::Relaxed) && self.is_hurried.swap(false, Ordering::Relaxed)
    }

    #[cold]
    fn wake(&self) {
        if self.state.swap(AWAKE, Ordering::AcqRel) == AWAKE {
            return;
        }
        match (self.waker.get(), self.thread.get()) {
            (Some(waker), _) => waker.wake(),
            (None, Some(thread)) => thread.unpark(),
            (None, None) => {}
        }
    }

    /// The calling thread sleeps until the bell rings or the time is over, unless something has come.
    pub(crate) fn sleep(&self, how: Sleep, time: Duration, has_come: impl FnMut() -> bool) {
        self.thread.get_or_init(thread::current);
        self.sleep_in(how, has_come, || thread::park_timeout(time));
    }

    /// From now on this waker is used. Once, before the first sleep.
    pub(crate) fn use_waker(&self, waker: Waker) {
        // There is only one who sleeps by a bell, and it does this first.
        let _ = self.waker.set(waker);
    }

    /// The same, sleeping in `wait`, which has to end when the waker in use says so.
    pub(crate) fn sleep_in(&self, how: Sleep, mut has_come: impl FnMut() -> bool, wait: impl FnOnce()) {
        let state = if how == Sleep::Nap { NAP } else { DEEP };
        self.state.store(state, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_come() {
            wait();
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    /// Sleeps for a minute, is rung; whether that was in time.
    fn check(how: Sleep, is_urgent: bool) {
        let bell = Arc::new(Bell::default());
        let has_come = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (bell, has_come) = (Arc::clone(&bell), Arc::clone(&has_come));
            thread::spawn(move || {
                while !has_come.load(Ordering::Acquire) {
                    bell.sleep(how, Duration::from_secs(60), || has_come.load(Ordering::Acquire));
                }
            })
        };
        let began = Instant::now();
        has_come.store(true, Ordering::Release);
        bell.ring(is_urgent);
        sleeper.join().expect("it doesn't panic");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn no_ring_is_lost() {
        for _ in 0..200 {
            check(Sleep::Deep, false);
            check(Sleep::Deep, true);
            check(Sleep::Nap, true);
        }
    }
}
