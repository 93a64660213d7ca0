//! Whole runs against a small cache that answers rightly, or wrongly in one way: each way is found, by its kind.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::*;
use crate::values::Sizes;
use crate::workload::Mix;

/// How the server errs, once in a while.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    /// A bit of a value is another one.
    Flip,
    /// The value of another key, under this key's name.
    Foreign,
    /// A value under the name of a key that was not asked for.
    Unasked,
    /// What a key had before its last write.
    Stale,
    /// Less of the value than was written.
    Cut,
    /// What was stored is not there.
    Lose,
    /// As [`Fault::Lose`], and the statistics say that something was evicted.
    Evict,
    /// `DELETED` for a get.
    Status,
    /// Bytes that are no reply.
    Garbage,
    /// `SERVER_ERROR` for a get.
    Refuse,
    /// The connection ends.
    Close,
    /// Nothing at all.
    Silence,
}

type Items = Arc<Mutex<HashMap<String, Vec<Vec<u8>>>>>;

/// A server of `get` and `set` that errs at every 50th get, from the hundredth on.
fn serve(fault: Fault) -> target::Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let items: Items = Arc::default();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let items = Arc::clone(&items);
            thread::spawn(move || converse(&stream, &items, fault));
        }
    });
    address.into()
}

fn converse(stream: &TcpStream, items: &Items, fault: Fault) -> Option<()> {
    let (mut input, mut output) = (BufReader::new(stream), stream);
    let (mut line, mut gets) = (String::new(), 0);
    loop {
        line.clear();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["set", key, _, _, bytes] => {
                let mut value = vec![0; bytes.parse::<usize>().unwrap() + 2];
                input.read_exact(&mut value).ok()?;
                value.truncate(value.len() - 2);
                items.lock().unwrap().entry(key.to_string()).or_default().push(value);
                output.write_all(b"STORED\r\n").ok()?;
            }
            ["get", key] => {
                gets += 1;
                let errs = gets >= 100 && gets % 50 == 0;
                let reply = get(&items.lock().unwrap(), key, if errs { fault } else { Fault::None });
                match reply {
                    Some(reply) => output.write_all(&reply).ok()?,
                    None if fault == Fault::Close => return None,
                    None => return std::io::copy(&mut input, &mut std::io::sink()).ok().map(|_| ()),
                }
            }
            ["stats"] => {
                let evicted = u64::from(fault == Fault::Evict && items.lock().unwrap().len() > 1);
                output.write_all(format!("STAT evictions {evicted}\r\nEND\r\n").as_bytes()).ok()?;
            }
            _ => output.write_all(b"ERROR\r\n").ok()?,
        }
    }
}

fn get(items: &HashMap<String, Vec<Vec<u8>>>, key: &str, fault: Fault) -> Option<Vec<u8>> {
    let versions = items.get(key);
    let newest = versions.and_then(|versions| versions.last()).cloned();
    let hit = |key: &str, value: &[u8]| {
        Some([format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat())
    };
    match (fault, newest) {
        (Fault::Lose | Fault::Evict, _) | (_, None) => Some(b"END\r\n".to_vec()),
        (Fault::None, Some(value)) => hit(key, &value),
        (Fault::Flip, Some(mut value)) => {
            value[40] ^= 4;
            hit(key, &value)
        }
        (Fault::Foreign, Some(value)) => {
            let other =
                items.iter().find(|(other, _)| *other != key).map(|(_, versions)| versions[0].clone());
            hit(key, &other.unwrap_or(value))
        }
        (Fault::Unasked, Some(value)) => hit("key:999999999999", &value),
        // The prefill's version, which is the newest one of a key that was not written since.
        (Fault::Stale, Some(_)) => hit(key, &versions?[0]),
        (Fault::Cut, Some(value)) => hit(key, &value[..50]),
        (Fault::Status, Some(_)) => Some(b"DELETED\r\n".to_vec()),
        (Fault::Garbage, Some(_)) => Some(b"VALUE x y\r\n".to_vec()),
        (Fault::Refuse, Some(_)) => Some(b"SERVER_ERROR out of memory\r\n".to_vec()),
        (Fault::Close | Fault::Silence, Some(_)) => None,
    }
}

fn plan(address: target::Address) -> Plan {
    Plan {
        connections: 2,
        depth: 2,
        mix: "get=1,set=1".parse::<Mix>().unwrap(),
        keys: Keys { count: 64, ..Plan::default().keys },
        values: Sizes::Fixed(100),
        length: Length::Requests(4000),
        verify: true,
        patience: Duration::from_secs(60),
        ..Plan::on(address)
    }
}

fn check(fault: Fault, expected: fn(&Outcome) -> bool) {
    let outcome = run(&plan(serve(fault)), &|_| ()).unwrap();
    assert!(expected(&outcome), "{fault:?}: {:?}, {:?}", outcome.wrong, outcome.incomplete);
}

#[test]
fn a_right_server_is_found_right() {
    let outcome = run(&plan(serve(Fault::None)), &|_| ()).unwrap();
    assert_eq!(outcome.wrong, Wrong::default());
    assert_eq!((outcome.requests, outcome.failures, outcome.incomplete), (4000, 0, None));
    assert_eq!(outcome.response.count(), 4000);
    assert_eq!(outcome.operations.values().map(|row| row.requests).sum::<u64>(), 4000);
    assert_eq!(outcome.operations["get"].misses, 0);
    assert_eq!(outcome.evictions, Some(0));
}

#[test]
fn every_wrong_reply_is_found() {
    check(Fault::Flip, |outcome| outcome.wrong.broken > 0 && outcome.wrong.total() == outcome.wrong.broken);
    check(Fault::Foreign, |outcome| {
        outcome.wrong.foreign > 0 && outcome.wrong.total() == outcome.wrong.foreign
    });
    check(Fault::Stale, |outcome| outcome.wrong.stale > 0 && outcome.wrong.total() == outcome.wrong.stale);
    check(Fault::Cut, |outcome| outcome.wrong.truncated > 0);
    check(Fault::Lose, |outcome| outcome.wrong.lost > 0 && outcome.wrong.total() == outcome.wrong.lost);
    check(Fault::Unasked, |outcome| outcome.wrong.foreign > 0);
    check(Fault::Status, |outcome| outcome.wrong.protocol > 0 && outcome.incomplete.is_some());
    check(Fault::Garbage, |outcome| outcome.wrong.protocol > 0 && outcome.incomplete.is_some());
}

#[test]
fn what_is_no_wrong_reply_is_not_called_one() {
    check(Fault::Refuse, |outcome| outcome.wrong.total() == 0 && outcome.failures > 0);
    let says = |outcome: &Outcome, text: &str| {
        outcome.wrong.total() == 0 && outcome.incomplete.as_ref().is_some_and(|why| why.contains(text))
    };
    let closed = run(&plan(serve(Fault::Close)), &|_| ()).unwrap();
    assert!(says(&closed, "closed a connection"), "{:?}", closed.incomplete);
    let patience = Duration::from_millis(200);
    let silent = run(&Plan { patience, ..plan(serve(Fault::Silence)) }, &|_| ()).unwrap();
    assert!(says(&silent, "has not answered"), "{:?}", silent.incomplete);
}

/// Whether the server evicted anything is asked before and after; what is missing may be that.
#[test]
fn what_was_evicted_is_not_lost() {
    check(Fault::Evict, |outcome| outcome.wrong.total() == 0 && outcome.wrong.missing > 0);
}

#[test]
fn an_open_loop_sends_what_was_offered() {
    for arrivals in [Arrivals::Fixed(2000.0), Arrivals::Poisson(2000.0)] {
        let plan = Plan { arrivals, depth: 64, length: Length::Requests(1000), ..plan(serve(Fault::None)) };
        let outcome = run(&plan, &|_| ()).unwrap();
        assert_eq!((outcome.requests, outcome.unsent), (1000, 0));
        assert_eq!((outcome.slip.count(), outcome.service.count()), (1000, 1000));
        // No earlier than its schedule; how much later depends on the machine.
        let least = if arrivals == Arrivals::Fixed(2000.0) { 0.499 } else { 0.4 };
        assert!(outcome.seconds > least, "{}", outcome.seconds);
    }
}

#[test]
fn plans_that_cannot_be_are_refused() {
    let address: target::Address = "127.0.0.1:1".parse().unwrap();
    let check = |change: fn(&mut Plan)| {
        let mut plan = Plan::on(address.clone());
        change(&mut plan);
        assert_eq!(run(&plan, &|_| ()).expect_err("a plan that can't be").exit_code(), 2);
    };
    check(|plan| plan.addresses.clear());
    check(|plan| plan.threads = 0);
    check(|plan| plan.connections = 0);
    check(|plan| plan.depth = 0);
    check(|plan| plan.width = 100_000);
    check(|plan| plan.keys.count = 0);
    check(|plan| plan.keys.prefix = "a b".into());
    check(|plan| plan.mix.0.clear());
    check(|plan| plan.arrivals = Arrivals::Fixed(f64::NAN));
    check(|plan| plan.length = Length::Time(Duration::ZERO));
    check(|plan| (plan.verify, plan.prefill) = (true, false));
}
