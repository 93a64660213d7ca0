//! The time of day as commands see it, in Unix seconds; `debugtime` can stop and shift it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The server's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Added to the system's time while the clock runs; the time itself while it stands.
    seconds: AtomicI64,
    paused: AtomicBool,
}

impl Clock {
    /// A clock that runs with the system's.
    pub(crate) fn new() -> Self {
        Clock { seconds: AtomicI64::new(0), paused: AtomicBool::new(false) }
    }

    /// Unix seconds now. Before 1970 and after 2106 it stands.
    pub(crate) fn now(&self) -> u32 {
        let seconds = self.seconds.load(Relaxed);
        let now = if self.paused.load(Relaxed) { seconds } else { system_seconds().saturating_add(seconds) };
        u32::try_from(now.max(1)).unwrap_or(u32::MAX)
    }

    /// Stops the clock.
    pub(crate) fn pause(&self) {
        let now = i64::from(self.now());
        if !self.paused.swap(true, Relaxed) {
            self.seconds.store(now, Relaxed);
        }
    }

    /// Lets it run again, with the system's time.
    pub(crate) fn resume(&self) {
        if self.paused.swap(false, Relaxed) {
            self.seconds.store(0, Relaxed);
        }
    }

    /// Moves it, forward or back.
    pub(crate) fn shift(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Relaxed);
    }
}

fn system_seconds() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_clock_moves_only_when_it_is_moved() {
        let clock = Clock::new();
        clock.pause();
        let begin = clock.now();
        clock.shift(100);
        assert_eq!(clock.now(), begin + 100);
        clock.shift(-30);
        clock.pause();
        assert_eq!(clock.now(), begin + 70);
        clock.resume();
        assert!(clock.now() >= begin);
        assert!(clock.now() < begin + 70);
        clock.shift(-i64::from(u32::MAX));
        assert_eq!(clock.now(), 1);
    }
}
