//! What each worker counts: plain numbers that one thread writes and everybody may read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only one thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only for the thread the counter belongs to: two writers would lose counts.
    #[inline]
    pub(crate) fn up(&self) {
        self.add(1);
    }

    /// Adds some. Only for the thread the counter belongs to.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // A load and a store instead of a locked addition: there is one writer.
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// The number now.
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Declares a set of counters and how they are added up.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one thread. They fill cache lines of their own, so that no two threads write to one.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        /// Counters of several threads, added up.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct CounterSums {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl CounterSums {
            /// What was counted after `earlier`.
            pub(crate) fn since(&self, earlier: &CounterSums) -> CounterSums {
                CounterSums { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }

        impl Counters {
            /// Adds all of them to `sums`.
            pub(crate) fn add_to(&self, sums: &mut CounterSums) {
                $(sums.$name = sums.$name.wrapping_add(self.$name.read());)*
            }
        }
    };
}

counters! {
    /// Commands that ask for values, counted per key.
    cmd_get,
    /// Commands that store.
    cmd_set,
    /// `flush_all`
    cmd_flush,
    /// Commands that touch.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Values found.
    get_hits,
    /// Values not found.
    get_misses,
    /// Values not found because they had expired.
    get_expired,
    /// Values not found because they had been flushed.
    get_flushed,
    /// Deletes of nothing.
    delete_misses,
    /// Deletes.
    delete_hits,
    /// Increments of nothing.
    incr_misses,
    /// Increments.
    incr_hits,
    /// Decrements of nothing.
    decr_misses,
    /// Decrements.
    decr_hits,
    /// Stores with a cas id where nothing was.
    cas_misses,
    /// Stores with the right cas id.
    cas_hits,
    /// Stores with another cas id.
    cas_badval,
    /// Touches.
    touch_hits,
    /// Touches of nothing.
    touch_misses,
    /// Values that were too large.
    store_too_large,
    /// Values there was no memory for.
    store_no_memory,
    /// Checked values that were what their checksums say.
    checked_verified,
    /// Checked values that were not.
    checked_refused,
    /// Authentications.
    auth_cmds,
    /// Failed authentications.
    auth_errors,
    /// Connections closed for being idle.
    idle_kicks,
    /// Bytes from clients.
    bytes_read,
    /// Bytes to clients.
    bytes_written,
    /// Times a connection had to let others go first.
    conn_yields,
    /// Times a connection was not read because its client did not take its answers.
    slow_readers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up() {
        let (one, other) = (Counters::default(), Counters::default());
        one.get_hits.up();
        one.bytes_read.add(10);
        other.get_hits.up();
        let mut sums = CounterSums::default();
        one.add_to(&mut sums);
        other.add_to(&mut sums);
        assert_eq!(sums, CounterSums { get_hits: 2, bytes_read: 10, ..CounterSums::default() });
    }
}
