//! The janitor: a thread that lets the store expire, evict, compact and check what it holds, in small steps.

use std::time::{Duration, Instant};

use crate::integrity::{Scrubber, pass_on_disagreements};
use crate::shared::{Shared, Stop};

/// How long it rests after having worked, and at most when there is nothing to do for long.
const RESTS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(64)];

/// How much it does at once, in segments swept, compacted or evicted. Maintenance is locked meanwhile, and a worker
/// that finds no memory waits for it; between two steps others may take its core.
const STEP: usize = 2;

/// Keeps house until the server stops.
pub(crate) fn run(shared: &Shared) {
    let mut flushed_below = 0;
    let [short, long] = RESTS;
    let mut rest = short;
    let mut scrubber = Scrubber::new(&shared.settings);
    while shared.stop() == Stop::Not {
        let env = shared.env();
        if env.flushed_below != flushed_below {
            // A worker closes the segment it writes to only in a round of its own, and before that nothing comes free.
            flushed_below = env.flushed_below;
            shared.wake_workers();
        }
        shared.births.note(Instant::now(), &shared.store);
        let more = shared.store.maintain(&env, STEP);
        shared.janitor_rounds.up();
        if more {
            rest = short;
            std::thread::yield_now();
            continue;
        }
        pass_on_disagreements(&shared.store, &shared.integrity, &shared.reaction, env.now);
        match scrubber.stretch(&shared.store, &shared.integrity) {
            Some(soon) if soon < rest => std::thread::park_timeout(soon.max(short)),
            _ => {
                std::thread::park_timeout(rest);
                rest = (rest * 2).min(long);
            }
        }
    }
    scrubber.finish();
}
