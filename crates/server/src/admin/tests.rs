//! Statistics and tuning commands against a server made up of fixed numbers.

use std::time::Duration;

use guard::Core;
use store::View;

use super::*;
use crate::counters::CounterSums;
use crate::reaction::Report;
use crate::settings::{Outcome, parse};

struct Fixed {
    settings: Settings,
    admin: Admin,
    snapshot: Snapshot,
    values: Vec<usize>,
    items: u64,
    limit_refused: bool,
}

impl Fixed {
    fn new(line: &str) -> Self {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Ok(Outcome::Run(settings)) = parse(&arguments) else { panic!("{line}") };
        let totals = Totals {
            workers: CounterSums { cmd_get: 7, ..CounterSums::default() },
            evictions: 3,
            ..Totals::default()
        };
        let snapshot = Snapshot {
            pid: 42,
            cpu_user: Duration::from_micros(1_000_002),
            index_slots: 1 << 12,
            memory_used: 5 << 20,
            accepting: true,
            totals,
            ..Snapshot::default()
        };
        Fixed {
            admin: Admin::new(&settings),
            settings: *settings,
            snapshot,
            values: vec![3, 3, 40],
            items: 3,
            limit_refused: false,
        }
    }

    fn ask(&mut self, arguments: &str) -> String {
        let mut out = Vec::new();
        assert_eq!(stats(arguments.as_bytes(), self, &mut out), Next::Done, "stats {arguments}");
        String::from_utf8(out).expect("text")
    }

    fn check(&mut self, arguments: &str, expected: &str) {
        assert_eq!(self.ask(arguments), expected, "stats {arguments}");
    }

    /// Keys of a group, in order.
    fn keys(&mut self, arguments: &str) -> Vec<String> {
        self.ask(arguments)
            .lines()
            .filter_map(|l| Some(l.strip_prefix("STAT ")?.split(' ').next()?.to_owned()))
            .collect()
    }

    fn value(&mut self, arguments: &str, key: &str) -> String {
        let text = self.ask(arguments);
        let begin = format!("STAT {key} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("stats {arguments} has no {key}")).to_owned()
    }
}

impl Subject for Fixed {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn admin(&self) -> &Admin {
        &self.admin
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    fn census(&mut self) -> Census {
        let mut census = Census::new(NOW, true);
        for len in &self.values {
            let value = vec![b'x'; *len];
            census.add(&item(&value), &self.admin.classes);
        }
        census.scale_to(self.items);
        census
    }

    fn findings(&self) -> Findings {
        Findings {
            items_per_second: 20_000,
            items: 17,
            passes: 2,
            pass: Duration::from_micros(1_000_002),
            damaged: 3,
            went_with_it: 4,
            crc_mismatches: 5,
            checked: Some([18, 19]),
            executions: 2,
            disagreements: 6,
            reaction: Report {
                kinds: [1, 2, 3, 4, 5, 6, 7],
                verdicts: [8, 9, 10, 11, 12],
                unvoted: 13,
                suspects: 14,
                contained: 15,
                poisoned_keys: 16,
                looked_back: 17,
                quarantined: vec![Core(1), Core(3)],
                is_ready: true,
            },
            ..Findings::default()
        }
    }

    fn disagreements(&self) -> Vec<String> {
        vec!["kind=outcome key=a".into(), "kind=reply key=b".into()]
    }

    fn validation_latencies(&self) -> Vec<(u64, u64)> {
        vec![(2_047, 5), (60_129_542_143, 1)]
    }

    fn conns(&self) -> Vec<Conn> {
        vec![
            Conn {
                fd: 5,
                addr: "tcp:127.0.0.1:1".into(),
                listen_addr: None,
                state: "conn_listening",
                idle_seconds: 9,
            },
            Conn {
                fd: 6,
                addr: "tcp:127.0.0.1:2".into(),
                listen_addr: Some("tcp:127.0.0.1:1".into()),
                state: "conn_parse_cmd",
                idle_seconds: 0,
            },
        ]
    }

    fn set_memory_limit(&self, _bytes: u64) -> bool {
        !self.limit_refused
    }

    fn items(&self) -> u64 {
        self.items
    }
}

const NOW: u32 = 1_000_000;

fn item(value: &[u8]) -> View<'_> {
    View {
        key: b"a:b",
        value,
        flags: 0,
        exptime: 0,
        cas: 1,
        birth: 1,
        accessed: NOW - 7,
        fetched: false,
        stale: false,
        token_sent: false,
    }
}

/// The keys of 1.6.45, of which these are switched on.
fn listed(switched_on: &[&str]) -> Vec<String> {
    include_str!("../../../../testdata/stats_keys_1.6.45.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| match line.split_once(' ') {
            Some((key, switch)) => switched_on.contains(&switch).then(|| key.to_owned()),
            None => Some(line.to_owned()),
        })
        .collect()
}

#[test]
fn the_general_keys_are_those_of_memcached() {
    for (line, switched_on, count) in [
        ("", &["crawler", "maintainer"][..], 93),
        ("-o no_lru_crawler,no_lru_maintainer", &[], 84),
        ("-o idle_timeout=1", &["crawler", "maintainer", "idle_timeout"], 94),
    ] {
        let keys = Fixed::new(line).keys("");
        assert_eq!(keys.len(), count, "{line}");
        assert_eq!(keys, listed(switched_on), "{line}");
    }
}

#[test]
fn general_values() {
    let mut server = Fixed::new("-m 100 -c 5 -t 1");
    for (key, value) in [
        ("pid", "42"),
        ("version", "1.6.45"),
        ("pointer_size", "64"),
        ("rusage_user", "1.000002"),
        ("max_connections", "5"),
        ("cmd_get", "7"),
        ("limit_maxbytes", "104857600"),
        ("accepting_conns", "1"),
        ("threads", "1"),
        ("hash_power_level", "12"),
        ("slab_reassign_last_busy_status", "none"),
        ("evictions", "3"),
    ] {
        assert_eq!(server.value("", key), value, "{key}");
    }
}

#[test]
fn reset_shows_what_came_since() {
    let mut server = Fixed::new("-D :");
    server.admin.seen(b"a:1", Seen::Hit);
    server.check("detail dump", "PREFIX a get 1 hit 1 set 0 del 0\r\nEND\r\n");
    server.check("reset", "RESET\r\n");
    assert_eq!(server.value("", "cmd_get"), "0");
    assert_eq!(server.value("", "evictions"), "0");
    assert_eq!(server.value("", "pid"), "42");
    server.snapshot.totals.workers.cmd_get += 2;
    assert_eq!(server.value("", "cmd_get"), "2");
    server.check("detail dump", "END\r\n");
}

/// They speak of the machine, not of a period: `stats reset` leaves them as they are.
#[test]
fn integrity_values_are_not_reset() {
    let mut server = Fixed::new("");
    let expected = "STAT scrub_items_per_second 20000\r\nSTAT scrubbed_items 17\r\nSTAT scrub_passes 2\r\n\
                    STAT scrub_pass_seconds 1.000002\r\nSTAT scrub_damaged 3\r\n\
                    STAT scrub_went_with_damaged 4\r\nSTAT crc_mismatches 5\r\n\
                    STAT checked_verified 18\r\nSTAT checked_refused 19\r\n\
                    STAT executions_per_command 2\r\nSTAT disagreements 6\r\n\
                    STAT protect \r\nSTAT protect_sync 0\r\n\
                    STAT disagreements:outcome 1\r\nSTAT disagreements:checksum 2\r\n\
                    STAT disagreements:reply 3\r\nSTAT disagreements:record 4\r\n\
                    STAT disagreements:lost 5\r\nSTAT disagreements:stale 6\r\n\
                    STAT disagreements:resurrected 7\r\nSTAT verdicts:core_intermittent 8\r\n\
                    STAT verdicts:core_persistent 9\r\nSTAT verdicts:memory 10\r\n\
                    STAT verdicts:record 11\r\nSTAT verdicts:undecided 12\r\nSTAT unvoted 13\r\n\
                    STAT suspected_software 14\r\nSTAT contained 15\r\nSTAT poisoned_keys 16\r\n\
                    STAT looked_back 17\r\nSTAT quarantined_cores 1,3\r\nSTAT ready 1\r\nEND\r\n";
    server.check("validation_latency", "STAT 2047 5\r\nSTAT 60129542143 1\r\nEND\r\n");
    server.check("disagreements", "STAT 1 kind=outcome key=a\r\nSTAT 2 kind=reply key=b\r\nEND\r\n");
    server.check("integrity", expected);
    server.check("reset", "RESET\r\n");
    server.check("integrity", expected);
}

#[test]
fn settings_values() {
    let mut server = Fixed::new("-m 100 -s /tmp/x -a 777 -B ascii -b 8675 -C -R 1 -D / -f 1.1");
    for (key, value) in [
        ("maxbytes", "104857600"),
        ("tcpport", "11211"),
        ("udpport", "0"),
        ("inter", "NULL"),
        ("domain_socket", "/tmp/x"),
        ("umask", "777"),
        ("growth_factor", "1.10"),
        ("stat_key_prefix", "/"),
        ("detail_enabled", "yes"),
        ("reqs_per_event", "1"),
        ("cas_enabled", "no"),
        ("tcp_backlog", "8675"),
        ("binding_protocol", "ascii"),
        ("item_size_max", "1048576"),
        ("client_flags_size", "4"),
        ("hash_algorithm", "murmur3"),
    ] {
        assert_eq!(server.value("settings", key), value, "{key}");
    }
    assert_eq!(Fixed::new("-l 127.0.0.1 -p -1").value("settings", "inter"), "127.0.0.1");
    assert_eq!(Fixed::new("-p -1").value("settings", "tcpport"), "-1");
    assert_eq!(Fixed::new("").value("settings", "binding_protocol"), "auto-negotiate");
    let keys = Fixed::new("").keys("settings");
    let mut distinct = keys.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), keys.len(), "a key stands twice");
}

#[test]
fn items_and_slabs() {
    let mut server = Fixed::new("");
    for (key, value) in [
        ("items:1:number", "2"),
        ("items:1:number_cold", "2"),
        ("items:1:age", "7"),
        ("items:1:mem_requested", "130"),
        ("items:2:number", "1"),
        ("items:2:mem_requested", "102"),
        ("items:2:outofmemory", "0"),
    ] {
        assert_eq!(server.value("items", key), value, "{key}");
    }
    assert_eq!(server.keys("items").len(), 2 * 28);
    assert_eq!(Fixed::new("-o no_lru_maintainer").keys("items").len(), 2 * 14);
    for (key, value) in [
        ("1:chunk_size", "96"),
        ("1:chunks_per_page", "10922"),
        ("1:total_pages", "1"),
        ("1:used_chunks", "2"),
        ("1:free_chunks", "10920"),
        ("2:chunk_size", "120"),
        ("active_slabs", "2"),
        ("total_malloced", "5242880"),
    ] {
        assert_eq!(server.value("slabs", key), value, "{key}");
    }
    server.values.clear();
    server.items = 0;
    server.check("items", "END\r\n");
    server.check("items foo", "END\r\n");
    server.check("slabs", "STAT active_slabs 0\r\nSTAT total_malloced 5242880\r\nEND\r\n");
}

/// What was not looked at is estimated.
#[test]
fn a_sample_stands_for_all() {
    let mut server = Fixed::new("-o track_sizes");
    server.items = 3_000_000;
    assert_eq!(server.value("items", "items:1:number"), "2000000");
    assert_eq!(server.value("items", "items:2:mem_requested"), "102000000");
    server.check("sizes", "STAT 96 2000000\r\nSTAT 128 1000000\r\nEND\r\n");
}

#[test]
fn sizes() {
    let mut server = Fixed::new("");
    server.check("sizes", "STAT sizes_status disabled\r\nEND\r\n");
    server.check("sizes_enable", "STAT sizes_status enabled\r\nEND\r\n");
    server.check("sizes", "STAT 96 2\r\nSTAT 128 1\r\nEND\r\n");
    assert_eq!(server.value("settings", "track_sizes"), "yes");
    server.check("sizes_disable", "STAT sizes_status disabled\r\nEND\r\n");
}

#[test]
fn conns() {
    Fixed::new("").check(
        "conns",
        "STAT 5:addr tcp:127.0.0.1:1\r\nSTAT 5:state conn_listening\r\nSTAT 5:secs_since_last_cmd 9\r\n\
         STAT 6:addr tcp:127.0.0.1:2\r\nSTAT 6:listen_addr tcp:127.0.0.1:1\r\nSTAT 6:state conn_parse_cmd\r\n\
         STAT 6:secs_since_last_cmd 0\r\nEND\r\n",
    );
}

#[test]
fn other_arguments() {
    let mut server = Fixed::new("");
    for (arguments, expected) in [
        ("foo", "ERROR\r\n"),
        ("Settings", "ERROR\r\n"),
        ("proxy", "ERROR\r\n"),
        ("extstore", "END\r\n"),
        ("detail", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        ("detail foo", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        ("detail on", "OK\r\n"),
        ("detail off", "OK\r\n"),
        ("cachedump", "CLIENT_ERROR bad command line\r\n"),
        ("cachedump 1", "CLIENT_ERROR bad command line\r\n"),
        ("cachedump a 1", "CLIENT_ERROR bad command line format\r\n"),
        ("cachedump 1 -1", "CLIENT_ERROR bad command line format\r\n"),
        ("cachedump 200 0", "CLIENT_ERROR Illegal slab id\r\n"),
        ("cachedump 64 0", "CLIENT_ERROR Illegal slab id\r\n"),
    ] {
        server.check(arguments, expected);
    }
    let mut out = Vec::new();
    assert_eq!(stats(b"cachedump 1 0 0", &mut server, &mut out), Next::Cachedump { class: 1, limit: 0 });
    assert_eq!(out, b"");
    cachedump_line(&item(b"abc"), &mut out);
    assert_eq!(out, b"ITEM a:b [3 b; 0 s]\r\n");
    Fixed::new("-X").check("cachedump 1 1", "CLIENT_ERROR stats cachedump not allowed\r\n");
}

/// Runs tuning commands in order, each with its answer.
fn check_tuning(line: &str, steps: &[(&str, &str)]) -> Fixed {
    let server = Fixed::new(line);
    for (command, expected) in steps {
        let (word, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let arguments = arguments.as_bytes();
        let mut out = Vec::new();
        match word {
            "verbosity" => verbosity(arguments, &server.admin, &mut out),
            "cache_memlimit" => cache_memlimit(arguments, &server, &mut out),
            "lru" => lru(arguments, &server.admin, &mut out),
            "slabs" => slabs(arguments, &server.admin, &mut out),
            "lru_crawler" => lru_crawler(arguments, &server, &mut out),
            _ => panic!("{word}"),
        }
        assert_eq!(String::from_utf8_lossy(&out).trim_end(), *expected, "{command}");
    }
    server
}

/// Commands and their answers, in order.
const STEPS: &[(&str, &str)] = &[
    ("verbosity", "CLIENT_ERROR bad command line format"),
    ("verbosity x", "CLIENT_ERROR bad command line format"),
    ("verbosity 1 noreply", ""),
    ("verbosity 9", "OK"),
    ("cache_memlimit", "ERROR"),
    ("cache_memlimit x", "ERROR"),
    ("cache_memlimit 4", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"),
    ("cache_memlimit 1000000001", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"),
    ("cache_memlimit 128", "OK"),
    ("lru", "ERROR"),
    ("lru foo", "ERROR"),
    ("lru tune 10 20 0.5", "ERROR"),
    ("lru tune a 20 0.5 2.0", "ERROR"),
    ("lru tune 4294967295 4294967295 1 1", "ERROR hot and warm pcts must not exceed 80"),
    ("lru tune 10 20 0 2.0", "ERROR hot/warm age factors must be greater than 0"),
    ("lru tune 10 20 0.5 3.0", "OK"),
    ("lru mode flat", "OK"),
    ("lru mode foo", "ERROR"),
    ("lru temp_ttl x", "ERROR"),
    ("lru temp_ttl -1", "OK"),
    ("lru temp_ttl 30", "OK"),
    ("slabs", "ERROR"),
    ("slabs foo bar", "ERROR"),
    ("slabs automove", "ERROR"),
    ("slabs automove 5", "ERROR"),
    ("slabs automove x", "CLIENT_ERROR bad command line format"),
    ("slabs automove 2", "OK"),
    ("slabs automove ratio", "ERROR"),
    ("slabs automove ratio 0.7", "OK"),
    ("slabs automove freeratio 0.02", "OK"),
    ("slabs automove window 2", "CLIENT_ERROR automove window too low or too high"),
    ("slabs automove window 1800", "OK"),
    ("slabs reassign 1 1", "SAME src and dst class are identical"),
    ("slabs reassign 1 2", "NOSPARE source class has no spare pages"),
    ("slabs reassign -1 200", "BADCLASS invalid src or dst class id"),
    ("slabs reassign x 2", "CLIENT_ERROR bad command line format"),
    ("lru_crawler", "ERROR"),
    ("lru_crawler enable", "ERROR failed to start lru crawler thread"),
    ("lru_crawler sleep 1000001", "CLIENT_ERROR sleep must be one second or less"),
    ("lru_crawler sleep 7", "OK"),
    ("lru_crawler tocrawl x", "CLIENT_ERROR bad command line format"),
    ("lru_crawler tocrawl 8", "OK"),
    ("lru_crawler crawl 999", "BADCLASS invalid class id"),
    ("lru_crawler crawl 0", "BADCLASS invalid class id"),
    ("lru_crawler crawl 1,2", "OK"),
    ("lru_crawler crawl all", "OK"),
    ("lru_crawler disable", "OK"),
    ("lru_crawler crawl all", "CLIENT_ERROR lru crawler disabled"),
    ("lru_crawler enable", "OK"),
];

#[test]
fn tuning() {
    let mut server = check_tuning("", STEPS);
    for (key, value) in [
        ("verbosity", "2"),
        ("maxbytes", "134217728"),
        ("hot_lru_pct", "10"),
        ("warm_max_factor", "3.00"),
        ("lru_segmented", "no"),
        ("temp_lru", "yes"),
        ("temporary_ttl", "30"),
        ("slab_automove", "2"),
        ("slab_automove_ratio", "0.70"),
        ("slab_automove_freeratio", "0.020"),
        ("slab_automove_window", "1800"),
        ("lru_crawler", "yes"),
        ("lru_crawler_sleep", "7"),
        ("lru_crawler_tocrawl", "8"),
    ] {
        assert_eq!(server.value("settings", key), value, "{key}");
    }
    assert_eq!(server.value("", "limit_maxbytes"), "134217728");
}

#[test]
fn tuning_what_is_off() {
    check_tuning(
        "-o no_lru_maintainer,no_slab_reassign",
        &[
            ("lru mode flat", "ERROR"),
            ("lru temp_ttl 30", "ERROR"),
            ("slabs reassign 1 2", "CLIENT_ERROR slab reassignment disabled"),
        ],
    );
    let mut server = Fixed::new("");
    server.items = 0;
    server.limit_refused = true;
    let mut out = Vec::new();
    lru_crawler(b"crawl all", &server, &mut out);
    cache_memlimit(b"64", &server, &mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        "NOTSTARTED no items to crawl\r\nMEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
    );
}

#[test]
fn class_sets() {
    let contained =
        |text: &str| ClassSet::parse(text.as_bytes()).map(|set| [1, 2, 63].map(|class| set.contains(class)));
    assert_eq!(contained("all"), Some([true; 3]));
    assert_eq!(contained("hash"), Some([true; 3]));
    assert_eq!(contained("1,63"), Some([true, false, true]));
    for wrong in ["", "0", "64", "1,", ",", "x", "-1", "4294967297"] {
        assert_eq!(contained(wrong), None, "{wrong}");
    }
}

/// The bug class "invalid arguments of administration commands": none of them may do more than answer.
#[test]
fn made_up_arguments_are_answered() {
    let words = [
        "",
        "tune",
        "mode",
        "reassign",
        "automove",
        "ratio",
        "crawl",
        "-1",
        "99999999999",
        "\u{fffd}",
        "a",
        ",",
    ];
    let mut server = Fixed::new("");
    for first in words {
        for second in words {
            for third in words {
                let arguments = format!("{first} {second} {third} x x x x x x x x x");
                let arguments = arguments.as_bytes();
                let mut out = Vec::new();
                verbosity(arguments, &server.admin, &mut out);
                cache_memlimit(arguments, &server, &mut out);
                lru(arguments, &server.admin, &mut out);
                slabs(arguments, &server.admin, &mut out);
                lru_crawler(arguments, &server, &mut out);
                let lines = out.split(|byte| *byte == b'\n').count() - 1;
                assert_eq!(lines, 5, "{first} {second} {third}");
                stats(arguments, &mut server, &mut out);
            }
        }
    }
}
