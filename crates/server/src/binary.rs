//! The binary protocol: what each command does, and what it answers.

use std::fmt;
use std::hint::black_box;
use std::io::Write;

use protocol::binary::{self as wire, Command, Head, Reject, Status, Step};
use protocol::{Direction, Verb};
use store::{Arith, Delete, Draft, Exptime, Fetch, Put, PutMode, absolute};

use crate::admin::{self, Sink};
use crate::execute::{Executor, append_value};
use crate::meta;
use crate::output::Output;
use crate::session::{Fill, Outcome, Work, wants_draft};
use crate::settings::MEMCACHED_VERSION;
use crate::strata::Dialect;
use crate::text::put_mode;

/// Uses the command at the front of the input.
pub(crate) fn command(input: &[u8], executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
    let Some(step) = executor.understand(|| wire::parse(black_box(input))) else { return Outcome::Close };
    match step {
        Step::Incomplete => Outcome::More { for_value: false },
        Step::Close => Outcome::Close,
        Step::Reject(Reject { head, status, used, swallow, close }) => {
            out.say(|bytes| wire::failure(&head, status, bytes));
            if close { Outcome::Close } else { Outcome::Then(used, Work::Swallow(swallow)) }
        }
        Step::Command { head, command, used } => {
            let reply = out.mark();
            executor.dialect = Dialect::Binary;
            let outcome = match command {
                Command::Store(store) => storage(&head, &store, input, used, executor, out),
                Command::Quit { quiet } => {
                    if !quiet {
                        out.say(|bytes| wire::success(&head, 0, bytes));
                    }
                    Outcome::Close
                }
                _ => {
                    execute(&head, &command, executor, out);
                    Outcome::Used(used)
                }
            };
            executor.record(&[&input[..used]], out, reply);
            outcome
        }
    }
}

/// Executes a request again that was recorded without its value.
pub(crate) fn repeat(request: &[u8], executor: &mut Executor<'_>, out: &mut Output) {
    executor.dialect = Dialect::Binary;
    match wire::parse(request) {
        Step::Command { head, command: Command::Store(store), .. } => {
            let mode = put_mode(store.verb);
            let value = executor.replay().map_or(&[][..], |replay| replay.received(mode, store.len as usize));
            let answer = executor.put(store.key, put(&head, &store, value));
            let (status, cas) = (answer.status, answer.item.map_or(0, |item| item.cas));
            stored(&head, &store, status, cas, executor, out);
        }
        Step::Command {
            head,
            command:
                command @ (Command::Get { .. }
                | Command::Touch { .. }
                | Command::Delete { .. }
                | Command::Arith(_)),
            ..
        } => execute(&head, &command, executor, out),
        // Nothing else was ever recorded.
        _ => {}
    }
}

/// Executes a storage command whose value has arrived in a draft.
pub(crate) fn finish(request: &[u8], draft: Draft, executor: &mut Executor<'_>, out: &mut Output) {
    let step = executor.understand(|| wire::parse(black_box(request)));
    let Some(Step::Command { head, command: Command::Store(store), .. }) = step else {
        // It was a storage command when its value was still to come.
        return out.refuse();
    };
    let reply = out.mark();
    executor.dialect = Dialect::Binary;
    let answer = executor.put_draft(draft, store.key, put(&head, &store, &[]));
    let (status, cas) = (answer.status, answer.item.map_or(0, |item| item.cas));
    stored(&head, &store, status, cas, executor, out);
    executor.record(&[request], out, reply);
}

/// A storage command: its value is there, or begins to arrive, or can't be stored.
fn storage(
    head: &Head,
    store: &wire::Store<'_>,
    input: &[u8],
    used: usize,
    executor: &mut Executor<'_>,
    out: &mut Output,
) -> Outcome {
    let len = store.len as usize;
    let status = if !executor.fits(store.key.len(), len, store.flags) {
        store::Status::TooLarge
    } else if let Some(value) = input.get(used..used + len) {
        let answer = executor.put(store.key, put(head, store, value));
        let (status, cas) = (answer.status, answer.item.map_or(0, |item| item.cas));
        stored(head, store, status, cas, executor, out);
        return Outcome::Used(used + len);
    } else if wants_draft(len, input.len() - used) {
        match executor.draft(store.key, len) {
            Ok(draft) => {
                let (fill, taken) = Fill::begin(draft, &input[..used], &input[used..]);
                return Outcome::Then(used + taken, Work::Fill(Box::new(fill)));
            }
            Err(status) => status,
        }
    } else {
        return Outcome::More { for_value: true };
    };
    stored(head, store, status, 0, executor, out);
    Outcome::Then(used, Work::Swallow(u64::from(store.len)))
}

fn put<'a>(head: &Head, store: &wire::Store<'_>, value: &'a [u8]) -> Put<'a> {
    let compare = (head.cas != 0).then_some(head.cas);
    // With a cas id, memcached takes `add` and `replace` for `cas`.
    let mode = match put_mode(store.verb) {
        mode @ (PutMode::Append | PutMode::Prepend) => mode,
        _ if compare.is_some() => PutMode::Set,
        mode => mode,
    };
    Put {
        mode,
        flags: store.flags,
        exptime: Exptime(store.exptime.into()),
        value,
        compare,
        new_cas: None,
        invalidate: false,
        vivify: None,
    }
}

fn stored(
    head: &Head,
    store: &wire::Store<'_>,
    status: store::Status,
    cas: u64,
    executor: &mut Executor<'_>,
    out: &mut Output,
) {
    use store::Status as Found;
    let status = match (status, store.verb) {
        (Found::Stored, _) if store.quiet => return,
        (Found::Stored, _) => return out.say(|bytes| wire::success(head, cas, bytes)),
        (Found::Exists, _) => Status::Exists,
        (Found::NotFound, Verb::Append | Verb::Prepend) => Status::NotStored,
        (Found::NotFound, _) => Status::NotFound,
        (Found::BadChecksum, _) => Status::Invalid,
        (Found::TooLarge | Found::OutOfMemory | Found::Disagreed, verb) => {
            executor.refuse_value(store.key, status, verb == Verb::Set);
            if status == Found::TooLarge { Status::TooLarge } else { Status::OutOfMemory }
        }
        (_, Verb::Add) => Status::Exists,
        (_, Verb::Replace) => Status::NotFound,
        _ => Status::NotStored,
    };
    out.say(|bytes| wire::failure(head, status, bytes));
}

/// Every command that needs no value and leaves the connection open.
fn execute(head: &Head, command: &Command<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    match *command {
        Command::Get { key, with_key, quiet, touch } => get(head, key, with_key, quiet, touch, executor, out),
        Command::Touch { key, exptime } => {
            let fetch = Fetch { touch: Some(Exptime(exptime.into())), ..Fetch::default() };
            let hash = executor.store.hash(key);
            match executor.fetch(key, hash, fetch).item {
                Some(item) => out.say(|bytes| wire::value_head(head, item.cas, item.flags, b"", 0, bytes)),
                None => out.say(|bytes| wire::failure(head, Status::NotFound, bytes)),
            }
        }
        Command::Delete { key, quiet } => {
            let compare = (head.cas != 0).then_some(head.cas);
            match executor.delete(key, Delete { compare, ..Delete::default() }).status {
                store::Status::Deleted if quiet => {}
                store::Status::Deleted => out.say(|bytes| wire::success(head, 0, bytes)),
                store::Status::Disagreed => out.say(|bytes| wire::failure(head, Status::OutOfMemory, bytes)),
                store::Status::Exists => out.say(|bytes| wire::failure(head, Status::Exists, bytes)),
                _ => out.say(|bytes| wire::failure(head, Status::NotFound, bytes)),
            }
        }
        Command::Arith(arith) => arithmetic(head, &arith, executor, out),
        Command::Flush { delay, quiet } => {
            if !executor.shared.settings.flush_enabled {
                return out.say(|bytes| wire::failure(head, Status::Auth, bytes));
            }
            executor.flush(absolute(Exptime(delay.unwrap_or(0).into()), executor.now()));
            if !quiet {
                out.say(|bytes| wire::success(head, 0, bytes));
            }
        }
        Command::Noop => out.say(|bytes| wire::success(head, 0, bytes)),
        Command::Version => out.say(|bytes| wire::version(head, MEMCACHED_VERSION, bytes)),
        Command::Stat { key } => statistics(head, key, executor, out),
        Command::Store(_) | Command::Quit { .. } => unreachable!("these are executed elsewhere"),
    }
}

fn get(
    head: &Head,
    key: &[u8],
    with_key: bool,
    quiet: bool,
    touch: Option<u32>,
    executor: &mut Executor<'_>,
    out: &mut Output,
) {
    let fetch = Fetch { touch: touch.map(|exptime| Exptime(exptime.into())), ..Fetch::default() };
    let shared = executor.shared;
    let hash = executor.store.hash(key);
    match executor.fetch(key, hash, fetch).item {
        Some(item) => {
            let shown: &[u8] = if with_key { item.key } else { b"" };
            out.say(|bytes| wire::value_head(head, item.cas, item.flags, shown, item.value.len(), bytes));
            append_value(out, shared, &item);
        }
        None if quiet => {}
        None if with_key => out.say(|bytes| wire::miss_with_key(head, key, bytes)),
        None => out.say(|bytes| wire::failure(head, Status::NotFound, bytes)),
    }
}

fn arithmetic(head: &Head, request: &wire::Arith<'_>, executor: &mut Executor<'_>, out: &mut Output) {
    let arith = Arith {
        direction: match request.direction {
            Direction::Incr => store::Direction::Incr,
            Direction::Decr => store::Direction::Decr,
        },
        delta: request.delta,
        vivify: request.exptime.map(|exptime| (Exptime(exptime.into()), request.initial)),
        exptime: None,
        compare: (head.cas != 0).then_some(head.cas),
        new_cas: None,
    };
    let answer = executor.arith(request.key, arith);
    let status = match (answer.status, answer.item) {
        (store::Status::Stored, _) if request.quiet => return,
        (store::Status::Stored, Some(item)) => {
            return out.say(|bytes| wire::number(head, item.cas, meta::counter(&item), bytes));
        }
        (store::Status::Exists, _) => Status::Exists,
        (store::Status::NonNumeric, _) => Status::NonNumeric,
        (store::Status::NotFound, _) => Status::NotFound,
        _ => Status::OutOfMemory,
    };
    out.say(|bytes| wire::failure(head, status, bytes));
}

/// Writes each statistic as a response of its own.
struct Packets<'a> {
    head: &'a Head,
    out: &'a mut Vec<u8>,
}

impl Sink for Packets<'_> {
    fn stat(&mut self, key: fmt::Arguments<'_>, value: fmt::Arguments<'_>) {
        let mut text = Vec::with_capacity(64);
        text.write_fmt(key).expect("a vector takes every byte, and the formatters here don't fail");
        let name_len = text.len();
        text.write_fmt(value).expect("a vector takes every byte, and the formatters here don't fail");
        let (name, value) = text.split_at(name_len);
        wire::statistic(self.head, name, value, self.out);
    }
}

/// `stats`, by the same words as in text.
fn statistics(head: &Head, key: &[u8], executor: &mut Executor<'_>, out: &mut Output) {
    let mut office = executor.office();
    let out = out.text();
    let known = match key {
        b"reset" => {
            admin::reset(&office);
            true
        }
        b"detail on" | b"detail off" => {
            admin::stats(key, &mut office, &mut Vec::new());
            true
        }
        b"detail dump" => {
            let mut text = Vec::new();
            admin::stats(key, &mut office, &mut text);
            wire::statistic(head, b"detailed", &text, out);
            true
        }
        _ => admin::group_stats(key, &mut office, &mut Packets { head, out }),
    };
    if known {
        wire::statistics_end(head, out);
    } else {
        wire::failure(head, Status::NotFound, out);
    }
}
