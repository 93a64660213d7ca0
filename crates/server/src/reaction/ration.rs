//! How often something may still be done in this second.

use std::time::{Duration, Instant};

/// A limit per second, and what was left out because of it.
#[derive(Debug)]
pub(crate) struct Ration {
    per_second_max: u32,
    second: Option<Instant>,
    taken: u32,
    left_out: u64,
}

impl Ration {
    pub(crate) fn new(per_second_max: u32) -> Self {
        Ration { per_second_max, second: None, taken: 0, left_out: 0 }
    }

    /// Whether it may be done once more. Comes after [`Ration::settle`].
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.second.get_or_insert(now);
        if self.taken < self.per_second_max {
            self.taken += 1;
            return true;
        }
        self.left_out += 1;
        false
    }

    /// Begins anew when the second is over; how much was left out in it.
    pub(crate) fn settle(&mut self, now: Instant) -> u64 {
        match self.second {
            Some(second) if now.saturating_duration_since(second) >= Duration::from_secs(1) => {
                let left_out = self.left_out;
                *self = Ration::new(self.per_second_max);
                left_out
            }
            _ => 0,
        }
    }

    /// How much was left out and not yet told.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let start = Instant::now();
        let mut ration = Ration::new(10);
        let taken = (0..25).filter(|_| ration.take(start)).count();
        assert_eq!(taken, 10);
        assert_eq!(ration.settle(start + Duration::from_millis(999)), 0);
        assert_eq!(ration.left_out(), 15);
        assert_eq!(ration.settle(start + Duration::from_secs(1)), 15);
        assert_eq!(ration.settle(start + Duration::from_secs(2)), 0);
        assert!(ration.take(start + Duration::from_secs(2)));
    }
}
