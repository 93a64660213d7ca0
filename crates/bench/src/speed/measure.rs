//! Runs one phase: every worker has a thread, a connection and one outstanding request.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::error::Error;
use crate::interrupt;
use crate::speed::connection::{Address, Connection, Failure};
use crate::speed::phases::{Flaws, Phase, Protocol, Worker};

/// The longest latency that is told apart from longer ones; no answer takes longer than a connection's patience.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// How often progress is shown.
const PERIOD: Duration = Duration::from_millis(200);

/// Connections that a worker may lose one after the other before it gives up.
const LOSSES_MAX: u32 = 3;

/// What a phase came to.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Operations done, those without an answer included.
    pub(crate) count: u64,
    /// From before the first worker starts until the last one has ended.
    pub(crate) duration: Duration,
    /// Nanoseconds from before the write to behind the last reply, connecting included; answered operations only.
    pub(crate) latency: Histogram<u64>,
    pub(crate) flaws: Flaws,
}

/// A histogram for nanoseconds.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("constants within the library's limits")
}

/// Adds one value; longer ones than can be told apart count as the longest.
pub(crate) fn record(histogram: &mut Histogram<u64>, taken: Duration) {
    histogram.saturating_record(u64::try_from(taken.as_nanos()).unwrap_or(LATENCY_NS_MAX).max(1));
}

/// Who does it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew<'a> {
    pub(crate) address: &'a Address,
    pub(crate) protocol: Protocol,
    pub(crate) workers: usize,
    /// Of each worker.
    pub(crate) operations: u64,
    pub(crate) uid: u64,
}

/// Why a phase ends before its time; the first reason counts.
#[derive(Debug, Default)]
struct Stop {
    is_set: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl Stop {
    fn set(&self, why: Error) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.is_set.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Relaxed) || interrupt::is_requested()
    }
}

/// What was measured, and the error that ended it early.
pub(crate) fn phase(
    crew: Crew<'_>,
    phase: Phase,
    connections: &mut [Option<Connection>],
) -> (Measured, Result<(), Error>) {
    let stop = Stop::default();
    let done = AtomicU64::new(0);
    let mut sum = Measured {
        count: 0,
        duration: Duration::ZERO,
        latency: latency_histogram(),
        flaws: Flaws::default(),
    };
    thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let total = crew.operations * crew.workers as u64;
        let (end, ended) = mpsc::channel::<()>();
        if io::stderr().is_terminal() {
            scope.spawn(move || show_progress(phase.name, done, total, &ended));
        }
        let began = Instant::now();
        let threads: Vec<_> = connections
            .iter_mut()
            .enumerate()
            .map(|(number, connection)| {
                let worker = Worker::new(phase, crew.protocol, crew.uid, number);
                thread::Builder::new().spawn_scoped(scope, move || work(crew, worker, connection, done, stop))
            })
            .collect();
        for thread in threads {
            let thread = match thread {
                Ok(thread) => thread,
                Err(error) => {
                    stop.set(Error::Io(
                        "starting a worker; ask for fewer with --concurrency".to_string(),
                        error,
                    ));
                    continue;
                }
            };
            let (worker, latency) = thread.join().expect("workers do not panic");
            sum.latency.add(latency).expect("of the same bounds");
            sum.flaws.add(worker.flaws);
        }
        sum.duration = began.elapsed();
        drop(end);
    });
    sum.count = done.load(Relaxed);
    let why = stop.why.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is_whole = sum.count == crew.operations * crew.workers as u64;
    (sum, why.map_or(if is_whole { Ok(()) } else { Err(Error::Interrupted) }, Err))
}

fn work(
    crew: Crew<'_>,
    mut worker: Worker,
    slot: &mut Option<Connection>,
    done: &AtomicU64,
    stop: &Stop,
) -> (Worker, Histogram<u64>) {
    let mut latency = latency_histogram();
    let mut losses = 0;
    for operation in 0..crew.operations {
        if stop.is_set() {
            break;
        }
        worker.prepare(operation);
        let began = Instant::now();
        let outcome = operate(crew.address, &mut worker, slot);
        match outcome {
            Ok(()) => {
                record(&mut latency, began.elapsed());
                losses = 0;
            }
            Err(Failure::Interrupted) => break,
            Err(failure) => {
                *slot = None;
                losses += 1;
                worker.lose(&failure);
                if losses == LOSSES_MAX || matches!(failure, Failure::Refused(_) | Failure::Silent) {
                    stop.set(failure.about(crew.address, "memcached"));
                }
            }
        }
        done.fetch_add(1, Relaxed);
    }
    (worker, latency)
}

/// Connections are opened when they are first needed, as a pool does.
fn operate(address: &Address, worker: &mut Worker, slot: &mut Option<Connection>) -> Result<(), Failure> {
    let connection = match slot {
        Some(connection) => connection,
        None => slot.insert(Connection::open(address)?),
    };
    worker.exchange(connection)
}

/// One line that is overwritten, until the other end of the channel is dropped.
fn show_progress(name: &str, done: &AtomicU64, total: u64, ended: &mpsc::Receiver<()>) {
    let began = Instant::now();
    while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let done = done.load(Relaxed);
        let rate = done as f64 / began.elapsed().as_secs_f64();
        let percent = 100.0 * done as f64 / total as f64;
        let line = format!("\r\x1b[K  {name}: {percent:.0} %, {done} of {total}, {rate:.0} ops/sec");
        let _ = io::stderr().write_all(line.as_bytes());
    }
    let _ = io::stderr().write_all(b"\r\x1b[K");
}
