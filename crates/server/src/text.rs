//! The classic text protocol: what each command does, and what it answers.

use std::hint::black_box;

use protocol::{Command, Debugtime, Keys, Options, Reject, Shutdown, Step, Verb, text as say};
use store::{Arith, Delete, Draft, Exptime, Fetch, Hash, Put, PutMode, Status, View, absolute};

use crate::admin::{self, ClassSet, Next};
use crate::dump::{Dump, Kind};
use crate::execute::{Executor, append_value};
use crate::meta;
use crate::output::Output;
use crate::replay::Replay;
use crate::session::{DISAGREED, Fill, Outcome, Work, refusal, wants_draft};
use crate::shared::{Shared, Stop};
use crate::strata::Dialect;

/// What stands behind a value.
pub(crate) const VALUE_END: &[u8] = say::CRLF;

/// Keys that are looked up together, so that the waits for memory overlap.
const KEYS_AT_ONCE: usize = 16;

/// Longest line of a multiget. memcached has no limit here; this one holds 30,000 keys of the largest size.
const MULTIGET_BYTES_MAX: usize = 8 << 20;

/// Uses the command at the front of the input. `keys_done` says how many keys of it were answered already.
pub(crate) fn command(
    input: &[u8],
    keys_done: &mut usize,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> Outcome {
    let options = options(executor);
    let Some(step) = executor.understand(|| protocol::parse(black_box(input), &options)) else {
        line(out, DISAGREED);
        return Outcome::Close;
    };
    match step {
        Step::Incomplete => Outcome::More { for_value: false },
        Step::Close => Outcome::Close,
        Step::Reject(Reject { error, used, swallow, quiet }) => {
            if !quiet {
                line(out, error);
            }
            Outcome::Then(used, Work::Swallow(swallow))
        }
        Step::Command { command, used } => match (command, command.payload()) {
            (Command::Get { keys, with_cas, touch }, _) => {
                let get = Get { line: &input[..used], with_cas, touch };
                if multiget(&get, keys, keys_done, executor, out) {
                    Outcome::Used(used)
                } else {
                    Outcome::Full
                }
            }
            (_, payload) => {
                let reply = out.mark();
                let outcome = match payload {
                    Some(len) => storage(&command, input, used, len, executor, out),
                    None => other(&command, used, executor, out),
                };
                executor.record(&[&input[..used]], out, reply);
                outcome
            }
        },
    }
}

/// Executes a command again whose line was recorded.
pub(crate) fn repeat(line: &[u8], executor: &mut Executor<'_>, out: &mut Output) {
    let options = options(executor);
    let Step::Command { command, used } = protocol::parse(line, &options) else { return };
    match (command, command.payload()) {
        (Command::Get { mut keys, with_cas, touch }, _) => {
            let is_last = executor.replay().is_some_and(Replay::is_last);
            if let Some(key) = keys.next() {
                let hash = executor.store.hash(key);
                one_key(key, hash, &Get { line, with_cas, touch }, is_last, executor, out);
            }
        }
        (_, Some(len)) => {
            let mode = match command {
                Command::Store(store) => put_mode(store.verb),
                Command::MetaSet(set) => put_mode(set.verb),
                _ => unreachable!("only storage commands have values"),
            };
            let value = executor.replay().map_or(&[][..], |replay| replay.received(mode, len as usize));
            execute_storage(&command, (value, VALUE_END), executor, out);
        }
        (_, None) => drop(other(&command, used, executor, out)),
    }
}

/// Executes a storage command whose value has arrived in a draft.
pub(crate) fn finish(
    line_bytes: &[u8],
    draft: Draft,
    end: &[u8],
    executor: &mut Executor<'_>,
    out: &mut Output,
) {
    let options = options(executor);
    let step = executor.understand(|| protocol::parse(black_box(line_bytes), &options));
    let Some(Step::Command { command, .. }) = step else {
        // It was a command when its value was still to come.
        return out.refuse();
    };
    let reply = out.mark();
    if end != VALUE_END {
        return bad_chunk(&command, out);
    }
    match &command {
        Command::Store(store) => {
            let put = put(store, &[]);
            executor.dialect = Dialect::Classic;
            let status = executor.put_draft(draft, store.key, put).status;
            stored(store, status, executor, out);
        }
        Command::MetaSet(set) => meta::set(set, meta::Value::Draft(draft), executor, out),
        _ => unreachable!("only storage commands have values"),
    }
    executor.record(&[line_bytes], out, reply);
}

fn options(executor: &Executor<'_>) -> Options {
    Options { multiget_bytes_max: MULTIGET_BYTES_MAX, debugtime: executor.shared.settings.test_mode }
}

/// A storage command: its value is there, or begins to arrive, or can't be stored.
fn storage(
    command: &Command<'_>,
    input: &[u8],
    used: usize,
    len: u32,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> Outcome {
    let mut space = [0; protocol::KEY_BYTES_MAX];
    let (key, flags, forget) = match command {
        // memcached forgets the old value for `set` alone, and for every mode of `ms`.
        Command::Store(store) => (store.key, store.flags, store.verb == Verb::Set && store.cas.is_none()),
        Command::MetaSet(set) => (set.key.bytes(&mut space), set.flags.client_flags(), true),
        _ => unreachable!("only storage commands have values"),
    };
    let len = len as usize;
    let with_end = len + VALUE_END.len();
    let status = if !executor.fits(key.len(), len, flags) {
        Status::TooLarge
    } else if let Some(value) = input.get(used..used + with_end) {
        execute_storage(command, value.split_at(len), executor, out);
        return Outcome::Used(used + with_end);
    } else if wants_draft(len, input.len() - used) {
        match executor.draft(key, len) {
            Ok(draft) => {
                let value = &input[used..];
                let (fill, taken) = Fill::begin(draft, &input[..used], &value[..len.min(value.len())]);
                return Outcome::Then(used + taken, Work::Fill(Box::new(fill)));
            }
            Err(status) => status,
        }
    } else {
        return Outcome::More { for_value: true };
    };
    executor.refuse_value(key, status, forget);
    if !matches!(command, Command::Store(store) if store.noreply) {
        line(out, refusal(status));
    }
    Outcome::Then(used, Work::Swallow(with_end as u64))
}

fn execute_storage(
    command: &Command<'_>,
    (value, end): (&[u8], &[u8]),
    executor: &mut Executor<'_>,
    out: &mut Output,
) {
    if end != VALUE_END {
        return bad_chunk(command, out);
    }
    match command {
        Command::Store(store) => {
            executor.dialect = Dialect::Classic;
            let status = executor.put(store.key, put(store, value)).status;
            stored(store, status, executor, out);
        }
        Command::MetaSet(set) => meta::set(set, meta::Value::Bytes(value), executor, out),
        _ => unreachable!("only storage commands have values"),
    }
}

/// The value is not as long as was said. Meta commands tell that even when they are to be quiet.
fn bad_chunk(command: &Command<'_>, out: &mut Output) {
    if !matches!(command, Command::Store(store) if store.noreply) {
        line(out, say::BAD_DATA_CHUNK);
    }
}

fn put<'a>(store: &protocol::Store<'_>, value: &'a [u8]) -> Put<'a> {
    Put {
        mode: put_mode(store.verb),
        flags: store.flags,
        exptime: Exptime(store.exptime),
        value,
        compare: store.cas,
        new_cas: None,
        invalidate: false,
        vivify: None,
    }
}

pub(crate) fn put_mode(verb: Verb) -> PutMode {
    match verb {
        Verb::Set => PutMode::Set,
        Verb::Add => PutMode::Add,
        Verb::Replace => PutMode::Replace,
        Verb::Append => PutMode::Append,
        Verb::Prepend => PutMode::Prepend,
    }
}

fn stored(store: &protocol::Store<'_>, status: Status, executor: &mut Executor<'_>, out: &mut Output) {
    let text = match status {
        Status::Stored => say::STORED,
        Status::Exists => say::EXISTS,
        Status::NotFound => say::NOT_FOUND,
        Status::TooLarge | Status::OutOfMemory | Status::Disagreed | Status::BadChecksum => {
            let forget = store.verb == Verb::Set && store.cas.is_none();
            executor.refuse_value(store.key, status, forget);
            refusal(status)
        }
        _ => say::NOT_STORED,
    };
    if !store.noreply {
        line(out, text);
    }
}

/// What is asked of each key of a multiget.
struct Get<'a> {
    line: &'a [u8],
    with_cas: bool,
    touch: Option<i64>,
}

/// Answers the keys of a multiget from `keys_done` on; false when it had to stop because the output is full.
fn multiget(
    get: &Get<'_>,
    keys: Keys<'_>,
    keys_done: &mut usize,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> bool {
    // The line up to its first key: with one key behind it, it is a line again.
    let verb = &get.line[..get.line.len() - rest_of_line(get.line, keys)];
    let mut keys = keys.skip(*keys_done);
    let mut batch: [Option<(&[u8], Hash)>; KEYS_AT_ONCE] = [None; KEYS_AT_ONCE];
    loop {
        let mut count = 0;
        while count < KEYS_AT_ONCE
            && let Some(key) = keys.next()
        {
            let hash = executor.store.hash(key);
            batch[count] = Some((key, hash));
            count += 1;
        }
        if count > 1 {
            executor.prefetch(batch[..count].iter().flatten().map(|(_, hash)| *hash));
        }
        for (index, (key, hash)) in batch[..count].iter().flatten().enumerate() {
            if out.is_full() {
                return false;
            }
            let is_last = index + 1 == count && (count < KEYS_AT_ONCE || keys.clone().next().is_none());
            executor.begin(out);
            let reply = out.mark();
            one_key(key, *hash, get, is_last, executor, out);
            executor.record_part(&[verb, key, say::CRLF], out, reply, is_last);
            *keys_done += 1;
        }
        if count < KEYS_AT_ONCE || keys.clone().next().is_none() {
            *keys_done = 0;
            return true;
        }
    }
}

/// How much of a line comes from its first key on.
fn rest_of_line(line: &[u8], keys: Keys<'_>) -> usize {
    // The keys lie in the line, so their addresses tell.
    let from = keys.as_sent().as_ptr() as usize - line.as_ptr() as usize;
    line.len() - from
}

/// Answers one key of a multiget, and behind the last one that there are no more.
#[inline]
fn one_key(
    key: &[u8],
    hash: Hash,
    get: &Get<'_>,
    is_last: bool,
    executor: &mut Executor<'_>,
    out: &mut Output,
) {
    let fetch = Fetch { touch: get.touch.map(Exptime), ..Fetch::default() };
    let shared = executor.shared;
    executor.dialect = Dialect::Classic;
    if let Some(item) = executor.fetch(key, hash, fetch).item {
        value(out, shared, &item, get.with_cas);
    }
    if is_last {
        line(out, say::END);
    }
}

/// A value with its line.
#[inline]
fn value(out: &mut Output, shared: &Shared, item: &View<'_>, with_cas: bool) {
    let cas = with_cas.then_some(item.cas);
    out.say(|bytes| say::value_line(item.key, item.flags, item.value.len(), cas, bytes));
    append_value(out, shared, item);
    out.say(|bytes| bytes.extend_from_slice(say::CRLF));
}

/// Appends a line.
pub(crate) fn line(out: &mut Output, text: &str) {
    out.say(|bytes| say::line(text, bytes));
}

/// Every command that is neither a multiget nor a storage command.
fn other(command: &Command<'_>, used: usize, executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
    executor.dialect = Dialect::Classic;
    match command {
        Command::Delete { key, noreply } => {
            let status = executor.delete(key, Delete::default()).status;
            let text = match status {
                Status::Deleted => say::DELETED,
                Status::Disagreed => DISAGREED,
                _ => say::NOT_FOUND,
            };
            line_unless(*noreply, text, out);
        }
        Command::Arith { direction, key, delta, noreply } => {
            let arith = Arith {
                direction: meta::direction(*direction),
                delta: *delta,
                vivify: None,
                exptime: None,
                compare: None,
                new_cas: None,
            };
            arithmetic(key, arith, *noreply, executor, out);
        }
        Command::Touch { key, exptime, noreply } => {
            let fetch = Fetch { touch: Some(Exptime(*exptime)), ..Fetch::default() };
            let hash = executor.store.hash(key);
            let status = executor.fetch(key, hash, fetch).status;
            let text = match status {
                Status::Hit => say::TOUCHED,
                Status::Disagreed => DISAGREED,
                _ => say::NOT_FOUND,
            };
            line_unless(*noreply, text, out);
        }
        Command::MetaGet(get) => meta::get(get, executor, out),
        Command::MetaDelete(delete) => meta::delete(delete, executor, out),
        Command::MetaArith(arith) => meta::arith(arith, executor, out),
        Command::MetaNoop => line(out, say::MN),
        Command::MetaDebug { key } => meta::debug(key, executor, out),
        // Nothing else was ever recorded.
        _ if executor.replay().is_some() => {}
        _ => return administration(command, used, executor, out),
    }
    Outcome::Used(used)
}

fn arithmetic(key: &[u8], arith: Arith, noreply: bool, executor: &mut Executor<'_>, out: &mut Output) {
    let answer = executor.arith(key, arith);
    match (answer.status, answer.item) {
        (Status::Stored, Some(item)) if !noreply => {
            out.say(|bytes| {
                bytes.extend_from_slice(item.value.trim_ascii_end());
                bytes.extend_from_slice(say::CRLF);
            });
        }
        (Status::Stored, _) => {}
        (Status::NotFound, _) => line_unless(noreply, say::NOT_FOUND, out),
        (Status::OutOfMemory, _) => line_unless(noreply, say::NO_MEMORY, out),
        (Status::Disagreed, _) => line_unless(noreply, DISAGREED, out),
        _ => line_unless(noreply, say::NON_NUMERIC, out),
    }
}

fn line_unless(noreply: bool, text: &str, out: &mut Output) {
    if !noreply {
        line(out, text);
    }
}

/// Commands that are about the server and not about a key.
fn administration(
    command: &Command<'_>,
    used: usize,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> Outcome {
    let shared = executor.shared;
    match command {
        Command::Stats(words) => {
            if let Next::Cachedump { class, limit } = admin::stats(words, &mut executor.office(), out.text())
            {
                let dump = Dump::new(Kind::Cachedump { class, limit });
                return Outcome::Then(used, Work::Dump(Box::new(dump)));
            }
        }
        Command::LruCrawler(words) => return lru_crawler(words, used, executor, out),
        Command::FlushAll { delay, noreply } => {
            if !shared.settings.flush_enabled {
                line_unless(*noreply, say::FLUSH_REFUSED, out);
            } else {
                let delay = delay.unwrap_or(0).max(0);
                executor.flush(absolute(Exptime(delay.into()), executor.now()));
                line_unless(*noreply, say::OK, out);
            }
        }
        Command::Version => line(out, say::VERSION),
        Command::Quit => return Outcome::Close,
        Command::Shutdown(how) => return shutdown(*how, used, executor, out),
        Command::Verbosity(words) => admin::verbosity(words, &shared.admin, out.text()),
        Command::CacheMemlimit(words) => {
            admin::cache_memlimit(words, &executor.office(), out.text());
        }
        Command::Lru(words) => admin::lru(words, &shared.admin, out.text()),
        Command::Slabs(words) => admin::slabs(words, &shared.admin, out.text()),
        Command::Watch(_) => line(out, admin::WATCH_REFUSED),
        Command::RefreshCerts { noreply } => line_unless(*noreply, admin::REFRESH_CERTS_REFUSED, out),
        Command::Debugtime(what) => {
            match what {
                Debugtime::Pause => shared.clock.pause(),
                Debugtime::Resume => shared.clock.resume(),
                Debugtime::Shift(seconds) => shared.clock.shift(*seconds),
            }
            executor.resample_time();
            line(out, say::OK);
        }
        _ => unreachable!("commands on keys are executed elsewhere"),
    }
    Outcome::Used(used)
}

fn shutdown(how: Shutdown, used: usize, executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
    let stop = match how {
        _ if !executor.shared.settings.shutdown_enabled => {
            line(out, say::SHUTDOWN_REFUSED);
            return Outcome::Used(used);
        }
        Shutdown::Unknown => {
            line(out, say::BAD_SHUTDOWN);
            return Outcome::Used(used);
        }
        Shutdown::Now => Stop::Soon,
        Shutdown::Graceful => Stop::Gracefully,
    };
    executor.shared.ask_to_stop(stop);
    Outcome::Close
}

/// `lru_crawler`: the two dumps are made here, everything else is a setting.
fn lru_crawler(words: &[u8], used: usize, executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
    let shared = executor.shared;
    let mut split = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (name, classes) = (split.next().unwrap_or(b""), split.next());
    let kind: fn(ClassSet) -> Kind = match name {
        b"metadump" => Kind::Metadump,
        b"mgdump" => Kind::Mgdump,
        _ => {
            admin::lru_crawler(words, &executor.office(), out.text());
            return Outcome::Used(used);
        }
    };
    let Some(classes) = classes else {
        line(out, say::ERROR);
        return Outcome::Used(used);
    };
    let refused = if !shared.settings.dump_enabled {
        Some(if name == b"metadump" { "ERROR metadump not allowed" } else { "ERROR key dump not allowed" })
    } else if !out.is_empty() && name == b"metadump" {
        Some("ERROR cannot pipeline other commands before metadump")
    } else if !out.is_empty() {
        Some("ERROR cannot pipeline other commands before mgdump")
    } else {
        admin::crawl_refused(&shared.admin)
    };
    match (refused, ClassSet::parse(classes)) {
        (Some(text), _) => line(out, text),
        (None, None) => line(out, admin::BAD_CLASS),
        (None, Some(classes)) => {
            return Outcome::Then(used, Work::Dump(Box::new(Dump::new(kind(classes)))));
        }
    }
    Outcome::Used(used)
}
