//! From commands to answers: the place where requests meet the store. Nothing here knows a socket.
//!
//! Each protocol turns its commands into the store's four operations and the answers back into its own bytes; what
//! is counted is counted here, for all of them alike.

use guard::{Append, Core, Digest, Disagreement, Kind, Mismatch, Site};
use protocol::checked::Announcement;
use store::{
    Answer, Arith, Delete, Direction, Draft, Env, Fetch, Hash, Op, Put, PutMode, Request, Status, Token,
    View, crc32c,
};

use crate::admin::{Seen, item_bytes};
use crate::counters::Counters;
use crate::output::{COPY_BYTES_MAX, Mark, Output};
use crate::recorder::{COMMAND_BYTES_MAX, Coverage, Recorder};
use crate::replay::Replay;
use crate::shared::Shared;
use crate::strata::{Dialect, stratum};
use crate::subject::Office;
use crate::sys;

/// How often a command is executed at once whose reply has to be sure and whose record finds no room.
const RUNS_WITHOUT_RECORD: u8 = 2;

/// What a worker lends to whoever executes commands.
pub(crate) struct Executor<'w> {
    pub(crate) store: &'w mut store::Worker,
    pub(crate) shared: &'w Shared,
    counters: &'w Counters,
    pub(crate) env: Env,
    /// Commands that may still be executed in this turn.
    left: u32,
    /// What the command that is executed was written in.
    pub(crate) dialect: Dialect,
    /// How often commands are read, decided and answered.
    runs: u8,
    records: Option<Records<'w>>,
    replay: Option<Replay<'w>>,
}

/// Where what is executed is written down.
pub(crate) struct Records<'w> {
    pub(crate) recorder: &'w mut Recorder,
    pub(crate) coverage: &'w Coverage,
}

impl<'w> Executor<'w> {
    pub(crate) fn new(
        store: &'w mut store::Worker,
        shared: &'w Shared,
        counters: &'w Counters,
        env: Env,
    ) -> Self {
        let runs = shared.reaction.runs(shared.settings.runs());
        let dialect = Dialect::Classic;
        Executor { store, shared, counters, env, left: u32::MAX, dialect, runs, records: None, replay: None }
    }

    /// The same, writing down what is executed.
    pub(crate) fn recording(self, records: Option<Records<'w>>) -> Self {
        Executor { records, ..self }
    }

    /// The same, for one command whose execution is repeated.
    pub(crate) fn replaying(self, replay: Replay<'w>) -> Self {
        Executor { replay: Some(replay), runs: 1, ..self }
    }

    /// How often commands are read, decided and answered.
    pub(crate) fn runs(&self) -> u8 {
        self.runs
    }

    /// What is repeated, if this is a repetition.
    pub(crate) fn replay(&self) -> Option<&Replay<'w>> {
        self.replay.as_ref()
    }

    /// Ends a repetition.
    pub(crate) fn into_replay(self) -> Option<Replay<'w>> {
        self.replay
    }

    /// A command comes next, or a key of one that has several. Where replies wait to be confirmed and there is no room for
    /// another record, it is executed twice at once instead.
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut Output) {
        if let Some(records) = &self.records
            && records.recorder.is_sync
        {
            let has_room = self.store.has_record_room(COMMAND_BYTES_MAX);
            self.set_runs(if has_room { 1 } else { RUNS_WITHOUT_RECORD }, out);
        }
    }

    #[inline]
    fn set_runs(&mut self, runs: u8, out: &mut Output) {
        let runs = self.shared.reaction.runs(runs.max(self.shared.settings.runs()));
        if runs != self.runs {
            self.runs = runs;
            self.store.set_redundancy(runs);
            out.set_runs(runs);
        }
    }

    /// Completes the record of what was executed last, if there is to be one: by the command without its value, and by
    /// the reply, which begins at the mark.
    #[inline]
    pub(crate) fn record(&mut self, command: &[&[u8]], out: &mut Output, reply: Mark) {
        self.record_part(command, out, reply, true);
    }

    /// The same for one key of several.
    #[inline]
    pub(crate) fn record_part(&mut self, command: &[&[u8]], out: &mut Output, reply: Mark, is_last: bool) {
        let Some(records) = &mut self.records else { return };
        let Some(mut trace) = self.store.take_trace() else { return };
        trace.at_ns = records.recorder.at_ns();
        trace.is_last = is_last;
        let stratum = records.recorder.stratum();
        let append = self.store.record(&trace, stratum, store::digest(out.since(reply)), command);
        records.recorder.count(append, records.coverage);
        if records.recorder.is_sync
            && let Append::Recorded(seq) = append
        {
            out.hold(seq, reply, is_last && self.dialect == Dialect::Classic, self.dialect);
        }
    }

    /// Executes a request: in the store, or again from its record.
    #[inline]
    fn execute(&mut self, hash: Hash, request: &Request<'_>) -> Answer<'_> {
        if let Some(replay) = &mut self.replay {
            return replay.execute(request, self.shared.settings.checked_values);
        }
        self.decide_on_record(&request.op, hash);
        self.store.execute_hashed(hash, request, &self.env)
    }

    /// Decides whether the next execution is recorded.
    #[inline]
    fn decide_on_record(&mut self, op: &Op<'_>, hash: Hash) {
        if let Some(records) = &mut self.records {
            let wanted = records.recorder.wants(stratum(self.dialect, op), hash, records.coverage);
            if records.recorder.is_sync && self.runs > 1 {
                records.coverage.repeated.up();
                records.recorder.count_unrecorded(records.coverage);
            }
            self.store.trace_next(wanted && !(records.recorder.is_sync && self.runs > 1));
        }
    }

    pub(crate) fn counters(&self) -> &'w Counters {
        self.counters
    }

    /// Unix seconds.
    pub(crate) fn now(&self) -> u32 {
        self.env.now
    }

    /// A connection's turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.left = self.shared.settings.requests_per_event.unwrap_or(u32::MAX);
    }

    /// Takes one command from what the turn allows; false when there is none left.
    #[inline]
    pub(crate) fn may_go_on(&mut self) -> bool {
        let left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        left
    }

    /// Understands input as often as commands are executed; none when there is no majority for any reading of it.
    #[inline]
    pub(crate) fn understand<T: PartialEq>(&self, understand: impl Fn() -> T) -> Option<T> {
        let first = understand();
        for _ in 1..self.runs {
            // So that the compiler can't take an earlier reading for this one.
            let again = std::hint::black_box(&understand)();
            if again != first {
                return self.decide_reading(first, again, std::hint::black_box(&understand)());
            }
        }
        Some(first)
    }

    #[cold]
    fn decide_reading<T: PartialEq>(&self, first: T, again: T, deciding: T) -> Option<T> {
        self.report(Kind::Outcome);
        if deciding == first { Some(first) } else { (deciding == again).then_some(again) }
    }

    /// Tells the store of a disagreement about what lies outside its operators: the reading of a command, or an answer.
    #[cold]
    pub(crate) fn report(&self, kind: Kind) {
        let mismatch = Mismatch { kind, expected: Digest(0), found: Digest(0), bit: None };
        let core = Core(sys::current_cpu());
        let site = Site { first_core: core, second_core: core, ..Site::default() };
        self.shared.store.report(Disagreement::new(site, mismatch, 0..=0));
    }

    /// The server, for statistics and administration.
    pub(crate) fn office(&mut self) -> Office<'_> {
        Office { shared: self.shared, store: self.store, env: self.env }
    }

    /// Executes a fetch and counts it.
    #[inline]
    pub(crate) fn fetch(&mut self, key: &[u8], hash: Hash, fetch: Fetch) -> Answer<'_> {
        let (counters, shared) = (self.counters, self.shared);
        let counts_keys = self.counts_keys();
        let answer = self.execute(hash, &Request { key, op: Op::Fetch(fetch) });
        // What was created because nothing was there counts as found, as with memcached.
        let hit = answer.item.is_some();
        if fetch.touch.is_some() {
            counters.cmd_touch.up();
            if hit { &counters.touch_hits } else { &counters.touch_misses }.up();
        } else {
            counters.cmd_get.up();
            if hit { &counters.get_hits } else { &counters.get_misses }.up();
        }
        if counts_keys {
            shared.admin.seen(key, if hit { Seen::Hit } else { Seen::Miss });
        }
        answer
    }

    /// Looks at an item without anybody noticing.
    pub(crate) fn peek(&mut self, key: &[u8]) -> Option<View<'_>> {
        let fetch = Fetch { bump: false, ..Fetch::default() };
        let hash = self.store.hash(key);
        self.execute(hash, &Request { key, op: Op::Fetch(fetch) }).item
    }

    /// Whether it is counted by the keys' prefixes what is done to them.
    fn counts_keys(&self) -> bool {
        self.shared.admin.detail_enabled() && self.replay.is_none()
    }

    /// Asks for the memory of several keys at once.
    pub(crate) fn prefetch(&mut self, hashes: impl Iterator<Item = Hash> + Clone) {
        for hash in hashes.clone() {
            self.store.prefetch(hash);
        }
        for hash in hashes {
            self.store.prefetch_item(hash);
        }
    }

    /// Whether an item of this size is allowed, by memcached's way of counting.
    #[inline]
    pub(crate) fn fits(&self, key_len: usize, value_len: usize, flags: u32) -> bool {
        let settings = &self.shared.settings;
        item_bytes(key_len, value_len, flags, settings.cas) <= u64::from(settings.item_bytes_max)
    }

    /// Space for a value that arrives in pieces.
    pub(crate) fn draft(&mut self, key: &[u8], value_len: usize) -> Result<Draft, Status> {
        let value_len = u32::try_from(value_len).map_err(|_| Status::TooLarge)?;
        self.store.draft(key, value_len, &self.env)
    }

    /// Executes a put and counts it.
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], put: Put<'_>) -> Answer<'_> {
        let (counters, shared, counts_keys) = (self.counters, self.shared, self.counts_keys());
        if let Err(status) = self.verify(key, &put, put.value) {
            return Answer { status, token: Token::None, item: None };
        }
        let hash = self.store.hash(key);
        let answer = self.execute(hash, &Request { key, op: Op::Put(put) });
        count_put(counters, &put, answer.status);
        if counts_keys && was_put(answer.status) {
            shared.admin.seen(key, Seen::Set);
        }
        answer
    }

    /// Compares a value that is to be put with its own checksum, if it announces one and is put as it is. What is refused
    /// leaves no record, and what is repeated from one is compared where it was put.
    #[inline]
    fn verify(&self, key: &[u8], put: &Put<'_>, value: &[u8]) -> Result<(), Status> {
        let is_joined = matches!(put.mode, PutMode::Append | PutMode::Prepend) && put.vivify.is_none();
        match self.shared.settings.checked_values {
            Some(announcement) if announcement.is_in(put.flags) && !is_joined && self.replay.is_none() => {
                self.verify_checked(announcement, key, put.flags, value)
            }
            _ => Ok(()),
        }
    }

    fn verify_checked(
        &self,
        announcement: Announcement,
        key: &[u8],
        flags: u32,
        value: &[u8],
    ) -> Result<(), Status> {
        match self.understand(|| announcement.agrees(key, flags, value, crc32c)) {
            Some(true) => self.counters.checked_verified.up(),
            Some(false) => {
                self.counters.checked_refused.up();
                return Err(Status::BadChecksum);
            }
            None => return Err(Status::Disagreed),
        }
        Ok(())
    }

    /// Executes a put whose value is in a draft, and counts it.
    pub(crate) fn put_draft(&mut self, mut draft: Draft, key: &[u8], put: Put<'_>) -> Answer<'_> {
        let (counters, shared, counts_keys) = (self.counters, self.shared, self.counts_keys());
        if let Err(status) = self.verify(key, &put, draft.buffer()) {
            return Answer { status, token: Token::None, item: None };
        }
        self.decide_on_record(&Op::Put(put), self.store.hash(key));
        let answer = self.store.finish(draft, &Request { key, op: Op::Put(put) }, &self.env);
        count_put(counters, &put, answer.status);
        if counts_keys && was_put(answer.status) {
            shared.admin.seen(key, Seen::Set);
        }
        answer
    }

    /// Executes a delete and counts it.
    #[inline]
    pub(crate) fn delete(&mut self, key: &[u8], delete: Delete) -> Answer<'_> {
        let (counters, shared, counts_keys) = (self.counters, self.shared, self.counts_keys());
        let hash = self.store.hash(key);
        let answer = self.execute(hash, &Request { key, op: Op::Delete(delete) });
        match answer.status {
            Status::Deleted => counters.delete_hits.up(),
            Status::NotFound => counters.delete_misses.up(),
            // Another cas id than the one asked for, or no decision: neither, as with memcached.
            _ => {}
        }
        if counts_keys {
            shared.admin.seen(key, Seen::Delete);
        }
        answer
    }

    /// Executes an arithmetic operation and counts it.
    pub(crate) fn arith(&mut self, key: &[u8], arith: Arith) -> Answer<'_> {
        let counters = self.counters;
        let hash = self.store.hash(key);
        let answer = self.execute(hash, &Request { key, op: Op::Arith(arith) });
        let counter = match (arith.direction, answer.status) {
            (Direction::Incr, Status::NotFound) => Some(&counters.incr_misses),
            (Direction::Incr, Status::Stored) => Some(&counters.incr_hits),
            (Direction::Decr, Status::NotFound) => Some(&counters.decr_misses),
            (Direction::Decr, Status::Stored) => Some(&counters.decr_hits),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.up();
        }
        answer
    }

    /// A value that is too large or has no place: what it should have replaced is forgotten, so that nobody takes
    /// the old value for the new one.
    pub(crate) fn refuse_value(&mut self, key: &[u8], status: Status, forget: bool) {
        match status {
            Status::TooLarge => self.counters.store_too_large.up(),
            // Nothing was changed, and nothing is.
            Status::Disagreed | Status::BadChecksum => return,
            _ => self.counters.store_no_memory.up(),
        }
        if forget && self.replay.is_none() {
            self.store.forget(key);
        }
    }

    /// `flush_all`. `at` is when; now if that is not in the future.
    pub(crate) fn flush(&mut self, at: u32) {
        self.counters.cmd_flush.up();
        if at > self.env.now {
            self.shared.store.flush_at(at);
        } else {
            self.shared.store.flush();
        }
        self.env = self.shared.store.env(self.env.now);
    }

    /// The clock was moved.
    pub(crate) fn resample_time(&mut self) {
        self.env = self.shared.env();
    }
}

/// Counts a put. One that was refused for its size is counted where it is refused.
fn count_put(counters: &Counters, put: &Put<'_>, status: Status) {
    if !was_put(status) {
        return;
    }
    counters.cmd_set.up();
    if put.compare.is_some() {
        match status {
            Status::NotFound => counters.cas_misses.up(),
            Status::Stored => counters.cas_hits.up(),
            Status::Exists => counters.cas_badval.up(),
            _ => {}
        }
    }
}

/// Whether a put came so far as to be decided.
fn was_put(status: Status) -> bool {
    !matches!(status, Status::TooLarge | Status::OutOfMemory | Status::Disagreed | Status::BadChecksum)
}

/// Appends a value: by copy when it is small, otherwise from where it lies.
#[inline]
pub(crate) fn append_value(out: &mut Output, shared: &Shared, item: &View<'_>) {
    if item.value.len() <= COPY_BYTES_MAX {
        out.say(|bytes| bytes.extend_from_slice(item.value));
    } else {
        out.pinned(shared.store.pin(item));
    }
}
