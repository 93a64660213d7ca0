//! Commands to text, as a client sends them.

use crate::command::{Command, Debugtime, Direction, Shutdown, Store, Verb};
use crate::text::{CRLF, number};

/// Appends the line of a command. Behind a storage command its payload has to come, with [`CRLF`] behind it.
///
/// What is parsed from it is the same command, as long as its fields could have come from a parser.
pub fn encode(command: &Command<'_>, out: &mut Vec<u8>) {
    let noreply = match command {
        Command::Get { keys, with_cas, touch } => {
            words(
                out,
                match (touch, with_cas) {
                    (None, false) => b"get",
                    (None, true) => b"gets",
                    (Some(_), false) => b"gat",
                    (Some(_), true) => b"gats",
                },
            );
            if let Some(exptime) = touch {
                signed(*exptime, out);
            }
            word(keys.as_sent(), out);
            false
        }
        Command::Store(command) => store(command, out),
        Command::Delete { key, noreply } => {
            words(out, b"delete");
            word(key, out);
            // The last word would be taken for the wish not to be answered.
            if *key == b"noreply" && !noreply {
                word(b"0", out);
            }
            *noreply
        }
        Command::Arith { direction, key, delta, noreply } => {
            words(
                out,
                match direction {
                    Direction::Incr => b"incr",
                    Direction::Decr => b"decr",
                },
            );
            word(key, out);
            unsigned(*delta, out);
            *noreply
        }
        Command::Touch { key, exptime, noreply } => {
            words(out, b"touch");
            word(key, out);
            signed(*exptime, out);
            *noreply
        }
        Command::FlushAll { delay, noreply } => {
            words(out, b"flush_all");
            if let Some(delay) = delay {
                signed(i64::from(*delay), out);
            }
            *noreply
        }
        Command::RefreshCerts { noreply } => {
            words(out, b"refresh_certs");
            *noreply
        }
        other => {
            without_noreply(other, out);
            false
        }
    };
    if noreply {
        word(b"noreply", out);
    }
    out.extend_from_slice(CRLF);
}

fn store(store: &Store<'_>, out: &mut Vec<u8>) -> bool {
    words(
        out,
        match (store.verb, store.cas) {
            (_, Some(_)) => b"cas",
            (Verb::Set, None) => b"set",
            (Verb::Add, None) => b"add",
            (Verb::Replace, None) => b"replace",
            (Verb::Append, None) => b"append",
            (Verb::Prepend, None) => b"prepend",
        },
    );
    word(store.key, out);
    unsigned(u64::from(store.flags), out);
    signed(store.exptime, out);
    unsigned(u64::from(store.len), out);
    if let Some(cas) = store.cas {
        unsigned(cas, out);
    }
    store.noreply
}

/// The commands that are always answered, and those whose arguments were kept as they are.
fn without_noreply(command: &Command<'_>, out: &mut Vec<u8>) {
    match command {
        Command::MetaGet(get) => meta(out, b"mg", get.key.sent(), None, get.flags.sent()),
        Command::MetaSet(set) => meta(out, b"ms", set.key.sent(), Some(set.len), set.flags.sent()),
        Command::MetaDelete(delete) => meta(out, b"md", delete.key.sent(), None, delete.flags.sent()),
        Command::MetaArith(arith) => meta(out, b"ma", arith.key.sent(), None, arith.flags.sent()),
        Command::MetaNoop => words(out, b"mn"),
        Command::MetaDebug { key } => {
            meta(out, b"me", key.sent(), None, if key.is_base64() { b"b" } else { b"" });
        }
        Command::Version => words(out, b"version"),
        Command::Quit => words(out, b"quit"),
        Command::Shutdown(Shutdown::Now) => words(out, b"shutdown"),
        Command::Shutdown(Shutdown::Graceful) => words(out, b"shutdown graceful"),
        Command::Shutdown(Shutdown::Unknown) => words(out, b"shutdown unknown"),
        Command::Debugtime(Debugtime::Pause) => words(out, b"debugtime p"),
        Command::Debugtime(Debugtime::Resume) => words(out, b"debugtime r"),
        Command::Debugtime(Debugtime::Shift(seconds)) => {
            words(out, b"debugtime");
            signed(*seconds, out);
        }
        Command::Stats(arguments) => with_arguments(out, b"stats", arguments),
        Command::Verbosity(arguments) => with_arguments(out, b"verbosity", arguments),
        Command::CacheMemlimit(arguments) => with_arguments(out, b"cache_memlimit", arguments),
        Command::Lru(arguments) => with_arguments(out, b"lru", arguments),
        Command::LruCrawler(arguments) => with_arguments(out, b"lru_crawler", arguments),
        Command::Slabs(arguments) => with_arguments(out, b"slabs", arguments),
        Command::Watch(arguments) => with_arguments(out, b"watch", arguments),
        Command::Get { .. }
        | Command::Store(_)
        | Command::Delete { .. }
        | Command::Arith { .. }
        | Command::Touch { .. }
        | Command::FlushAll { .. }
        | Command::RefreshCerts { .. } => unreachable!("these are written where their noreply is"),
    }
}

fn meta(out: &mut Vec<u8>, verb: &[u8], key: &[u8], len: Option<u32>, flags: &[u8]) {
    words(out, verb);
    word(key, out);
    if let Some(len) = len {
        unsigned(u64::from(len), out);
    }
    if !flags.is_empty() {
        word(flags, out);
    }
}

fn with_arguments(out: &mut Vec<u8>, verb: &[u8], arguments: &[u8]) {
    words(out, verb);
    if !arguments.is_empty() {
        word(arguments, out);
    }
}

fn words(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
}

fn word(text: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(text);
}

fn unsigned(value: u64, out: &mut Vec<u8>) {
    out.push(b' ');
    number(value, out);
}

fn signed(value: i64, out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
