//! Records: what a worker writes down of its executions, for somebody else to repeat.
//!
//! A worker that is given a ring traces the executions it is told to. What becomes of the command around it (its reply
//! and its bytes) is the caller's knowledge, so the caller completes the trace to a record. Records are committed at each
//! quiescent point, before the worker lets go of what they point to; see [`crate::hold`].

use std::sync::Arc;
use std::time::Duration;

use guard::{Append, Core, Draft, Stratum, Writer};

use crate::bucket::Location;
use crate::crc::crc32c;
use crate::hold::Lease;
use crate::index::Hash;
use crate::item::Item;
use crate::options::Error;
use crate::order::{ORDER_BYTES, Order};
use crate::replay::Inspector;
use crate::request::{Effect, Env, Op, PutMode, Request, View};
use crate::trace::{Seen, TRACE_BYTES, Trace, description, digest_of};
use crate::worker::Worker;

/// How often a worker without memory lets others run before it sleeps for them.
const YIELDS: usize = 16;

/// How much longer it sleeps each time, and how long at most.
const NAP: Duration = Duration::from_micros(1);
const NAP_MAX: Duration = Duration::from_micros(500);

/// How long a validator on another core looks at some records, unless the system keeps it from going on.
const LOOK: Duration = Duration::from_micros(20);

/// A worker's end of its ring, and what is known of the execution that is under way.
pub(crate) struct Recorder {
    writer: Writer,
    lease: Arc<Lease>,
    /// Whether there are records that were not committed.
    is_open: bool,
    is_tracing: bool,
    trace: Option<Trace>,
    /// As it was before the look-up.
    vanished: u32,
    written: Option<Written>,
    payload: Vec<u8>,
    needs: Needs,
}

/// What is done when records keep memory back that their worker needs.
pub struct Needs {
    /// Tells whoever looks at the records to hurry. Called at most once for each write that finds no room.
    pub hurry: Box<dyn Fn() + Send>,
    /// How often the worker lets others run before the records are abandoned. After the first few times it sleeps
    /// meanwhile, longer each time, up to half a millisecond.
    pub patience: usize,
    /// Whether it is recorded in which order workers change things; see [`Order`].
    pub order: bool,
}

impl Default for Needs {
    /// Nobody is told, and nobody waited for for long.
    fn default() -> Self {
        Needs { hurry: Box::new(|| {}), patience: 16, order: false }
    }
}

/// A version that was written.
#[derive(Clone, Copy)]
struct Written {
    location: Location,
    /// Read back from where it was written.
    exptime: u32,
    /// The checksum of the value that was received for it.
    received: u32,
}

impl Worker {
    /// From now on records are left in this ring. Who looks at what they point to has to do it with the inspector.
    ///
    /// # Errors
    /// When more rings are in use than the options allow workers.
    pub fn record_into(&mut self, writer: Writer, needs: Needs) -> Result<Inspector, Error> {
        let store = self.store();
        let lease =
            Lease::new(&store.epochs).ok_or_else(|| Error::too_many_workers(store.options.workers_max))?;
        let inspector = Inspector::new(store, Arc::clone(&lease));
        self.recorder = Some(Recorder {
            writer,
            lease,
            is_open: false,
            is_tracing: false,
            trace: None,
            vanished: 0,
            written: None,
            payload: Vec::new(),
            needs,
        });
        Ok(inspector)
    }

    /// Whether the next execution is to be traced.
    #[inline]
    pub fn trace_next(&mut self, wanted: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.is_tracing = wanted;
            recorder.trace = None;
        }
    }

    /// The trace of the last execution, if one was wanted and there is anything to repeat: what failed for lack of memory
    /// leaves none.
    #[inline]
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.recorder.as_mut()?.trace.take()
    }

    /// Writes a record: of an execution, the digest of its reply, and the command as it came (without its value).
    pub fn record(&mut self, trace: &Trace, stratum: Stratum, reply: u32, command: &[&[u8]]) -> Append {
        let core = Core(self.core);
        let epoch = self.participant.epoch();
        let Some(recorder) = &mut self.recorder else { return Append::Dropped };
        if !recorder.is_open {
            recorder.is_open = true;
            recorder.lease.open(epoch);
        }
        let trace = Trace { epoch, ..*trace };
        recorder.payload.clear();
        recorder.payload.extend_from_slice(&trace.bytes());
        if let Some(order) = trace.order {
            recorder.payload.extend_from_slice(&order.bytes());
        }
        for part in command {
            recorder.payload.extend_from_slice(part);
        }
        let description = description(&trace, &recorder.payload);
        recorder.writer.append(&Draft { stratum, core, digest: trace.digest(reply), description })
    }

    /// Hands the records over that were written so far. Happens by itself at every quiescent point.
    pub fn commit_records(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && recorder.is_open
        {
            recorder.is_open = false;
            recorder.writer.commit();
            recorder.lease.close();
        }
    }

    /// Hands the records over that were written so far, but keeps what they point to by itself: the worker has not let go
    /// of it yet.
    #[inline]
    pub fn publish_records(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && recorder.is_open
        {
            recorder.writer.commit();
        }
    }

    /// Whether a record of a command of this length would find room now.
    #[must_use]
    pub fn has_record_room(&mut self, command_bytes: usize) -> bool {
        self.recorder
            .as_mut()
            .is_some_and(|recorder| recorder.writer.has_room_for(TRACE_BYTES + ORDER_BYTES + command_bytes))
    }

    /// The number of the last record written, 0 before the first.
    #[must_use]
    pub fn record_seq(&self) -> u64 {
        self.recorder.as_ref().map_or(0, |recorder| recorder.writer.seq())
    }

    /// How many records found the ring full.
    #[must_use]
    pub fn records_dropped(&self) -> u64 {
        self.recorder.as_ref().map_or(0, |recorder| recorder.writer.dropped())
    }

    /// There is no memory, and this is the `attempt`th look whether there is. How long to sleep before the next, where
    /// more is known to come only from a validator's work.
    pub(crate) fn need_memory(&self, attempt: usize) -> Option<Duration> {
        let Some(Recorder { needs, .. }) = &self.recorder else { return None };
        if attempt == 0 {
            (needs.hurry)();
        }
        if attempt % needs.patience.max(1) == needs.patience.saturating_sub(1) {
            Lease::revoke(&self.store().epochs);
        }
        if (YIELDS..needs.patience).contains(&attempt) {
            return Some((NAP * attempt as u32).min(NAP_MAX));
        }
        // Somebody is looking at items right now: what they hold can't be had back.
        Lease::is_any_busy(&self.store().epochs).then_some(LOOK)
    }

    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.is_tracing)
    }

    /// A look-up comes next.
    #[inline]
    pub(crate) fn begin_trace(&mut self, hash: Hash) {
        if self.is_tracing() {
            let vanished = self.store().vanished().near(hash.0);
            if let Some(recorder) = &mut self.recorder {
                recorder.vanished = vanished;
            }
        }
    }

    pub(crate) fn trace(
        &mut self,
        hash: Hash,
        env: &Env,
        found: Option<(Location, View<'_>)>,
        effect: &Effect<'_>,
        order: Option<Order>,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.trace = Some(Trace {
            hash: hash.0,
            env: *env,
            found: found.map(|(location, view)| Seen::new(location, &view)),
            published: None,
            published_exptime: 0,
            received: 0,
            effect: digest_of(effect),
            vanished: recorder.vanished,
            epoch: 0,
            at_ns: 0,
            is_last: false,
            order,
        });
    }

    /// Whether the order of the next execution is to be recorded.
    #[inline]
    pub(crate) fn is_ordering(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.is_tracing && recorder.needs.order)
    }

    /// Adds to the trace what was written.
    pub(crate) fn trace_written(&mut self, request: &Request<'_>) {
        let Some(recorder) = &mut self.recorder else { return };
        let (Some(trace), Some(written)) = (&mut recorder.trace, recorder.written) else { return };
        trace.published = Some(written.location);
        trace.published_exptime = written.exptime;
        trace.received = match request.op {
            Op::Put(put) if matches!(put.mode, PutMode::Append | PutMode::Prepend) => crc32c(0, put.value),
            _ => written.received,
        };
    }

    pub(crate) fn forget_written(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.written = None;
        }
    }

    pub(crate) fn note_written(&mut self, location: Location, item: Item<'_>, received: u32) {
        if let Some(recorder) = &mut self.recorder {
            // An expiry time that fails its own check is none that was asked for.
            let exptime = item.exptime().unwrap_or(u32::MAX);
            recorder.written = Some(Written { location, exptime, received });
        }
    }
}
