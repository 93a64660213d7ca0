//! Statistics and administration over a socket: the key set, and numbers that can be counted by hand.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{Client, settings, start};
use server::settings::{Lru, Protect, Settings};

/// A group of statistics.
fn group(client: &mut Client, name: &str) -> Vec<(String, String)> {
    client.send(format!("stats {name}\r\n"));
    let mut found = Vec::new();
    loop {
        let line = client.line();
        if line == "END" {
            return found;
        }
        let mut words = line.splitn(3, ' ');
        assert_eq!(words.next(), Some("STAT"), "stats {name}: {line}");
        let key = words.next().expect("a key").to_owned();
        found.push((key, words.next().unwrap_or("").to_owned()));
    }
}

fn numbers(client: &mut Client) -> BTreeMap<String, u64> {
    group(client, "").into_iter().filter_map(|(key, value)| Some((key, value.parse().ok()?))).collect()
}

/// A request changes exactly these of the counted keys.
#[track_caller]
fn check(client: &mut Client, request: &str, reply: &str, changes: &[(&str, i64)]) {
    let before = numbers(client);
    client.check(request, reply);
    let after = numbers(client);
    let found: BTreeMap<&str, i64> = COUNTED
        .iter()
        .map(|key| (*key, after[*key] as i64 - before[*key] as i64))
        .filter(|(_, change)| *change != 0)
        .collect();
    assert_eq!(found, changes.iter().copied().collect(), "{}", common::show(request.as_bytes()));
}

const COUNTED: &[&str] = &[
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "cmd_meta",
    "get_hits",
    "get_misses",
    "get_expired",
    "get_flushed",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "store_too_large",
    "store_no_memory",
    "rejected_connections",
    "total_items",
];

/// The changes are those that memcached 1.6.18 shows for the same commands, but for `cmd_meta`, which counts
/// every meta command here.
#[test]
fn commands_are_counted() {
    let server = start(settings());
    let client = &mut Client::to(&server);
    let large = format!("set big 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
    for (request, reply, changes) in [
        ("set a 0 0 1\r\n1\r\n", "STORED\r\n", &[("cmd_set", 1), ("total_items", 1)][..]),
        ("add a 0 0 1\r\n2\r\n", "NOT_STORED\r\n", &[("cmd_set", 1)]),
        ("append z 0 0 1\r\n2\r\n", "NOT_STORED\r\n", &[("cmd_set", 1)]),
        (
            "get a b a\r\n",
            "VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
            &[("cmd_get", 3), ("get_hits", 2), ("get_misses", 1)],
        ),
        ("cas a 0 0 1 99999999\r\nz\r\n", "EXISTS\r\n", &[("cmd_set", 1), ("cas_badval", 1)]),
        ("cas z 0 0 1 1\r\nz\r\n", "NOT_FOUND\r\n", &[("cmd_set", 1), ("cas_misses", 1)]),
        ("incr z 1\r\n", "NOT_FOUND\r\n", &[("incr_misses", 1)]),
        ("incr a 2\r\n", "3\r\n", &[("incr_hits", 1)]),
        ("decr z 1\r\n", "NOT_FOUND\r\n", &[("decr_misses", 1)]),
        ("decr a 1\r\n", "2\r\n", &[("decr_hits", 1)]),
        ("delete z\r\n", "NOT_FOUND\r\n", &[("delete_misses", 1)]),
        ("touch z 0\r\n", "NOT_FOUND\r\n", &[("cmd_touch", 1), ("touch_misses", 1)]),
        ("touch a 0\r\n", "TOUCHED\r\n", &[("cmd_touch", 1), ("touch_hits", 1)]),
        (
            "gat 0 z a\r\n",
            "VALUE a 0 1\r\n2\r\nEND\r\n",
            &[("cmd_touch", 2), ("touch_hits", 1), ("touch_misses", 1)],
        ),
        ("mg a v\r\n", "VA 1\r\n2\r\n", &[("cmd_meta", 1), ("cmd_get", 1), ("get_hits", 1)]),
        ("mg z v\r\n", "EN\r\n", &[("cmd_meta", 1), ("cmd_get", 1), ("get_misses", 1)]),
        ("mg a T30\r\n", "HD\r\n", &[("cmd_meta", 1), ("cmd_touch", 1), ("touch_hits", 1)]),
        ("md z\r\n", "NF\r\n", &[("cmd_meta", 1), ("delete_misses", 1)]),
        ("md a C1\r\n", "EX\r\n", &[("cmd_meta", 1)]),
        (&large, "SERVER_ERROR object too large for cache\r\n", &[("store_too_large", 1)]),
        ("delete a\r\n", "DELETED\r\n", &[("delete_hits", 1)]),
        ("set e 0 -1 1\r\n1\r\n", "STORED\r\n", &[("cmd_set", 1), ("total_items", 1)]),
        ("get e\r\n", "END\r\n", &[("cmd_get", 1), ("get_misses", 1), ("get_expired", 1)]),
        ("get e\r\n", "END\r\n", &[("cmd_get", 1), ("get_misses", 1)]),
        ("set f 0 0 1\r\n1\r\n", "STORED\r\n", &[("cmd_set", 1), ("total_items", 1)]),
        // At once: with time between them, the janitor may have taken the item away.
        (
            "flush_all\r\nget f\r\n",
            "OK\r\nEND\r\n",
            &[("cmd_flush", 1), ("cmd_get", 1), ("get_misses", 1), ("get_flushed", 1)],
        ),
    ] {
        check(client, request, reply, changes);
    }
    client.check("stats reset\r\n", "RESET\r\n");
    let after = numbers(client);
    for key in COUNTED {
        assert_eq!(after[*key], 0, "{key} after stats reset");
    }
}

/// What was flushed is soon not counted any more, without anybody asking for it or writing.
#[test]
fn flushed_items_go_by_themselves() {
    let server = start(Settings { threads: 2, ..settings() });
    for request in ["flush_all\r\n", "flush_all 1\r\n"] {
        let mut clients = [Client::to(&server), Client::to(&server)];
        for (number, client) in clients.iter_mut().enumerate() {
            client.check(format!("set key{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
        }
        assert_eq!(clients[0].stat("curr_items"), 2);
        clients[0].check(request, "OK\r\n");
        // Asking is what gives the other threads their time here: no sleep, and a test that hangs fails, too.
        while clients[0].stat("curr_items") > 0 {
            std::thread::yield_now();
        }
        assert_eq!(clients[0].stat("get_flushed"), 0);
    }
}

#[test]
fn the_key_set() {
    let lru = Lru { crawler: false, maintainer: false, ..Lru::default() };
    for (lru, count) in [(Lru::default(), 93), (lru, 84)] {
        let server = start(Settings { lru, ..settings() });
        assert_eq!(group(&mut Client::to(&server), "").len(), count);
    }
}

#[test]
fn items_by_class() {
    let server = start(Settings { track_sizes: true, ..settings() });
    let client = &mut Client::to(&server);
    for number in 0..1000 {
        client.send(format!("set key{number:03} 0 0 3 noreply\r\nabc\r\n"));
    }
    client.send(format!("set large 0 0 600000 noreply\r\n{}\r\n", "x".repeat(600_000)));
    let all: BTreeMap<_, _> =
        ["items", "slabs", "sizes"].iter().flat_map(|name| group(client, name)).collect();
    for (key, value) in [
        ("items:1:number", "1000"),
        ("items:1:mem_requested", "68000"),
        ("items:39:number", "1"),
        ("1:chunk_size", "96"),
        ("1:used_chunks", "1000"),
        ("39:used_chunks", "1"),
        ("active_slabs", "2"),
        ("96", "1000"),
    ] {
        assert_eq!(all.get(key).map(String::as_str), Some(value), "{key}");
    }
    client.send("stats cachedump 1 2\r\n");
    for _ in 0..2 {
        let line = client.line();
        assert!(line.starts_with("ITEM key") && line.ends_with(" [3 b; 0 s]"), "{line}");
    }
    client.expect("END\r\n");
    client.check("me large\r\n", "ME large exp=-1 la=0 ");
    assert!(client.line().ends_with(" fetch=no cls=39 size=600064"));
}

/// A limit that is changed holds, and is shown.
#[test]
fn the_memory_limit() {
    let server = start(settings());
    let client = &mut Client::to(&server);
    client.check("cache_memlimit 100\r\n", "OK\r\n");
    assert_eq!(client.stat("limit_maxbytes"), 100 << 20);
    client.check("cache_memlimit 7\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
    assert_eq!(client.stat("limit_maxbytes"), 100 << 20);
}

#[test]
fn what_flags_turn_off() {
    let closed = Settings { flush_enabled: false, dump_enabled: false, watch_enabled: false, ..settings() };
    let server = start(closed);
    let client = &mut Client::to(&server);
    client.check("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    client.check("stats cachedump 1 1\r\n", "CLIENT_ERROR stats cachedump not allowed\r\n");
    client.check("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    client.check("lru_crawler mgdump all\r\n", "ERROR key dump not allowed\r\n");
    client.check("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
    client.check("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
}

/// The binary protocol gives one packet for each key, then an empty one.
#[test]
fn binary_statistics() {
    let server = start(settings());
    let client = &mut Client::to(&server);
    for (name, expected) in [("", 93), ("settings", group(&mut Client::to(&server), "settings").len())] {
        let mut request = vec![0x80, 0x10, 0, name.len() as u8];
        request.extend([0; 4]);
        request.extend((name.len() as u32).to_be_bytes());
        request.extend([0; 12]);
        request.extend(name.as_bytes());
        client.send(request);
        let mut count = 0;
        loop {
            let header = client.read(24);
            assert_eq!(header[..2], [0x81, 0x10]);
            let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
            if body == 0 {
                break;
            }
            client.read(body as usize);
            count += 1;
        }
        assert_eq!(count, expected, "stat {name:?}");
    }
}

/// Two arms: the distribution's median is the one that `stats integrity` shows, and where nothing validates there is none.
#[test]
fn validation_latency_is_shown_as_a_whole() {
    let server = start(Settings { protect: Protect::Vanilla, protect_sync: false, ..settings() });
    let mut client = Client::to(&server);
    client.check("set a 0 0 1\r\nb\r\n", "STORED\r\n");
    assert_eq!(group(&mut client, "validation_latency"), []);

    let server = start(Settings { protect: Protect::Orthrus, protect_sync: false, ..settings() });
    let mut client = Client::to(&server);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        for _ in 0..100 {
            client.check("set a 0 0 1\r\nb\r\n", "STORED\r\n");
        }
        let rows: Vec<(u64, u64)> = group(&mut client, "validation_latency")
            .iter()
            .map(|(ns, count)| (ns.parse().expect("a time"), count.parse().expect("a number")))
            .collect();
        assert!(rows.is_sorted());
        let total: u64 = rows.iter().map(|(_, count)| count).sum();
        let mut seen = 0;
        let median = rows.iter().find(|(_, count)| {
            seen += count;
            seen * 2 >= total
        });
        let integrity: BTreeMap<String, String> = group(&mut client, "integrity").into_iter().collect();
        // More may have been validated between the two questions.
        let shown = median.map(|(ns, _)| format!("{:.3}", *ns as f64 / 1000.0));
        if shown.is_some() && shown.as_ref() == integrity.get("validation_us_p50") {
            break;
        }
        assert!(Instant::now() < deadline, "{rows:?} {integrity:?}");
    }
}
