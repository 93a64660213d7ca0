//! Single lines of text: what each is understood as, or refused with.

mod common;

use common::command;
use protocol::{Command, Debugtime, Direction, Options, Reject, Shutdown, Step, Store, Verb, parse};

const BAD: &str = "CLIENT_ERROR bad command line format";

/// `line` is refused with `error`; `swallow` bytes go with it.
fn refused(line: &str, error: &'static str, swallow: u64, quiet: bool) {
    let line = format!("{line}\r\n");
    let expected = Step::Reject(Reject { error, used: line.len(), swallow, quiet });
    assert_eq!(parse(line.as_bytes(), &Options::default()), expected, "{line:?}");
}

fn key_of(len: usize) -> String {
    "k".repeat(len)
}

#[test]
fn keys_up_to_250_bytes() {
    let (longest, too_long) = (key_of(250), key_of(251));
    for line in [
        "get K",
        "gets a K",
        "gat 0 K",
        "delete K",
        "incr K 1",
        "touch K 0",
        "mg K v",
        "md K",
        "ma K",
        "me K",
    ] {
        command(format!("{}\r\n", line.replace('K', &longest)).as_bytes());
        let error = if line == "ma K" { "CLIENT_ERROR invalid or duplicate flag" } else { BAD };
        refused(&line.replace('K', &too_long), error, 0, false);
    }
    for (line, swallow) in [("set K 0 0 10", 12), ("cas K 0 0 0 1", 2), ("ms K 3", 5)] {
        command(format!("{}\r\n", line.replace('K', &longest)).as_bytes());
        refused(&line.replace('K', &too_long), BAD, swallow, false);
    }
    refused(&format!("set {too_long} 0 0 1 noreply"), BAD, 3, true);
    refused(&format!("delete {too_long} noreply"), BAD, 0, true);
    refused(&format!("mg {} b", "YQ==".repeat(63)), BAD, 0, false);
}

#[test]
fn storage_lines() {
    let store = |verb, cas, noreply| {
        Command::Store(Store { verb, key: b"k", flags: 5, exptime: -1, len: 2, cas, noreply })
    };
    for (line, expected) in [
        ("set k 5 -1 2\r\n", store(Verb::Set, None, false)),
        ("add k 5 -1 2 noreply\r\n", store(Verb::Add, None, true)),
        ("replace  k  5  -1  2  \r\n", store(Verb::Replace, None, false)),
        ("append k +5 -1 2 noreply extra\r\n", store(Verb::Append, None, false)),
        ("prepend k 4294967301 -1 002\n", store(Verb::Prepend, None, false)),
        ("cas k 5 -1 2 7\r\n", store(Verb::Set, Some(7), false)),
        ("cas k 5 -1 2 7 noreply\r\n", store(Verb::Set, Some(7), true)),
        ("cas k 5 -1 2 7 x noreply\r\n", store(Verb::Set, Some(7), true)),
    ] {
        assert_eq!(command(line.as_bytes()), expected, "{line:?}");
    }
    // A length that can't be read announces nothing.
    for len in ["-1", "2x", "+2", "", "2147483646", "99999999999999999999", "noreply"] {
        refused(&format!("set k 0 0 {len}"), BAD, 0, false);
    }
    refused("set k 0 0 2x noreply", BAD, 0, false);
    command(b"set k 0 0 2147483645\r\n");
    for line in
        ["set k -1 0 3", "set k a 0 3", "set k 0 1.5 3", "set k 99999999999999999999 0 3", "cas k 0 0 3"]
    {
        refused(line, BAD, 5, false);
    }
    refused("set k a 0 3 noreply", BAD, 5, true);
    refused("cas k 0 0 3 noreply", BAD, 5, true);
    refused("cas k 0 0 3 -1", BAD, 5, false);
}

#[test]
fn other_classic_lines() {
    let delete = |key, noreply| Command::Delete { key, noreply };
    for (line, expected) in [
        ("delete k\r\n", delete(b"k", false)),
        ("delete k 0\r\n", delete(b"k", false)),
        ("delete k 0 noreply\r\n", delete(b"k", true)),
        ("delete noreply\r\n", delete(b"noreply", true)),
        ("incr k 5\r\n", Command::Arith { direction: Direction::Incr, key: b"k", delta: 5, noreply: false }),
        (
            "decr k 18446744073709551615 noreply\r\n",
            Command::Arith { direction: Direction::Decr, key: b"k", delta: u64::MAX, noreply: true },
        ),
        ("touch k -1 2 3\r\n", Command::Touch { key: b"k", exptime: -1, noreply: false }),
        ("flush_all\r\n", Command::FlushAll { delay: None, noreply: false }),
        ("flush_all noreply\r\n", Command::FlushAll { delay: None, noreply: true }),
        ("flush_all -5 noreply\r\n", Command::FlushAll { delay: Some(-5), noreply: true }),
        ("  flush_all 10 11\r\n", Command::FlushAll { delay: Some(10), noreply: false }),
        ("stats\r\n", Command::Stats(b"")),
        ("stats  detail on \r\n", Command::Stats(b"detail on")),
        ("verbosity 1 noreply\r\n", Command::Verbosity(b"1 noreply")),
        ("shutdown graceful \r\n", Command::Shutdown(Shutdown::Graceful)),
        ("shutdown now\r\n", Command::Shutdown(Shutdown::Unknown)),
        ("lru_crawler metadump all\r\n", Command::LruCrawler(b"metadump all")),
        ("mn whatever\r\n", Command::MetaNoop),
        ("version foo\n", Command::Version),
        ("quit foo\r\n", Command::Quit),
        ("debugtime p\r\n", Command::Debugtime(Debugtime::Pause)),
        ("debugtime +3\r\n", Command::Debugtime(Debugtime::Shift(3))),
        ("debugtime -3\r\n", Command::Debugtime(Debugtime::Shift(-3))),
    ] {
        assert_eq!(command(line.as_bytes()), expected, "{line:?}");
    }
    refused("delete a b c d e", BAD, 0, false);
    refused("delete a b c d noreply", BAD, 0, true);
    refused("incr k", BAD, 0, false);
    refused("incr k x noreply", "CLIENT_ERROR invalid numeric delta argument", 0, true);
    refused("incr k noreply", "CLIENT_ERROR invalid numeric delta argument", 0, true);
    refused("touch k x", "CLIENT_ERROR invalid exptime argument", 0, false);
    refused("gat +1 k", "CLIENT_ERROR invalid exptime argument", 0, false);
    refused("flush_all x noreply", "CLIENT_ERROR invalid exptime argument", 0, true);
    refused("bogus", "ERROR", 0, false);
    refused("bogus noreply", "ERROR", 0, true);
    refused("debugtime p", "ERROR", 0, false);
    refused(" version", "ERROR", 0, false);
    refused("gett k", "ERROR", 0, false);
}

#[test]
fn short_lines_are_no_commands() {
    for line in [&b"\n"[..], b"\r\n", b" \r\n", b"a\r\n", b"mn\n", b"ab\n"] {
        let expected = Step::Reject(Reject { error: BAD, used: line.len(), swallow: 0, quiet: false });
        assert_eq!(parse(line, &Options::default()), expected, "{line:?}");
    }
    assert_eq!(parse(b"", &Options::default()), Step::Incomplete);
    assert_eq!(parse(b"mn\r", &Options::default()), Step::Incomplete);
}

#[test]
fn multigets() {
    let Command::Get { keys, with_cas, touch } = command(b"gats -1  a\tb  c\r \r\n") else { panic!("a get") };
    assert!(with_cas);
    assert_eq!(touch, Some(-1));
    assert_eq!(keys.collect::<Vec<_>>(), [&b"a\tb"[..], b"c\r"]);
}

#[test]
fn meta_lines() {
    let Command::MetaGet(get) = command(b"mg key  v Oabc  T-1 N30 R5 C1 E2 q \r\n") else { panic!("mg") };
    assert_eq!(get.flags.sent(), b"v Oabc  T-1 N30 R5 C1 E2 q");
    assert_eq!((get.flags.exptime(), get.flags.vivify(), get.flags.recache()), (Some(-1), Some(30), Some(5)));
    assert_eq!((get.flags.compare(), get.flags.new_cas(), get.flags.quiet()), (Some(1), Some(2), true));
    assert_eq!(get.flags.iter().nth(1), Some((b'O', &b"abc"[..])));
    assert!(get.wants_value(2));
    assert!(!get.wants_value(1), "the client has this version");

    let Command::MetaSet(set) = command(b"ms bW0= 3 b MA F4294967295 I x\r\n") else { panic!("ms") };
    assert_eq!((set.key.bytes(&mut [0; 250]), set.key.sent(), set.len), (&b"mm"[..], &b"bW0="[..], 3));
    assert_eq!((set.verb, set.flags.client_flags()), (Verb::Append, u32::MAX));
    assert!(set.flags.has(b'I'));
    assert_eq!((set.flags.exptime(), set.flags.has(b'T')), (None, false));

    let Command::MetaArith(arith) = command(b"ma n M- D7 J9\r\n") else { panic!("ma") };
    assert_eq!((arith.direction, arith.flags.delta(), arith.flags.initial()), (Direction::Decr, 7, 9));
    let Command::MetaArith(arith) = command(b"ma n\r\n") else { panic!("ma") };
    assert_eq!((arith.direction, arith.flags.delta(), arith.flags.initial()), (Direction::Incr, 1, 0));
}

#[test]
fn meta_faults() {
    for (flags, error) in [
        ("v v", "CLIENT_ERROR duplicate flag"),
        ("Nx v v", "CLIENT_ERROR duplicate flag"),
        ("S1", "CLIENT_ERROR invalid flag"),
        ("Nx S", "CLIENT_ERROR invalid flag"),
        ("N", "CLIENT_ERROR bad token in command line format"),
        ("T1x", "CLIENT_ERROR bad token in command line format"),
        ("C-1", "CLIENT_ERROR bad token in command line format"),
        ("E18446744073709551616", "CLIENT_ERROR bad token in command line format"),
        ("Dx", "CLIENT_ERROR invalid numeric delta value"),
        ("J", "CLIENT_ERROR invalid numeric initial value"),
        ("F-1", BAD),
        ("Nx F-1", "CLIENT_ERROR bad token in command line format"),
        ("O2345678901234567890123456789012x", "CLIENT_ERROR opaque token too long"),
        ("Mx", "CLIENT_ERROR invalid mode for ms M token"),
        ("M", "CLIENT_ERROR invalid mode for ms M token"),
        ("Ma", "CLIENT_ERROR invalid mode for ms M token"),
        ("b", "CLIENT_ERROR error decoding key"),
        ("b c f h k l q s t u v x I L O P T1 N1", "CLIENT_ERROR options flags are too long"),
    ] {
        refused(&format!("ms kkkkk 3 {flags}"), error, 5, false);
        if !flags.starts_with('M') {
            // The longest line of flags is one word shorter with a length in it.
            let flags =
                if flags.len() > 30 && flags.starts_with('b') { format!("{flags} R1") } else { flags.into() };
            refused(&format!("mg kkkkk {flags}"), error, 0, false);
            refused(&format!("md kkkkk {flags}"), error, 0, false);
        }
    }
    // A word that begins with no letter spoils the line, and what was announced is taken for commands.
    for line in ["ms k 3 !", "ms k 3 v 1", "mg k 1", "md k q ~", "ma k {", "mg k \x7f"] {
        refused(line, BAD, 0, false);
    }
    for flags in ["q q", "S", "Nx", "Dx", "b"] {
        refused(&format!("ma kkkkk {flags}"), "CLIENT_ERROR invalid or duplicate flag", 0, false);
    }
    refused("ma k Mz", "CLIENT_ERROR invalid mode for ma M token", 0, false);
    refused("me kkkkk b", BAD, 0, false);
    refused("ms k", BAD, 0, false);
    refused("ms k 2147483646", BAD, 0, false);
    refused("mg", BAD, 0, false);
}

/// Of a line that does not end, no more is kept than the limits say, and where it is cut makes no difference.
#[test]
fn lines_without_end() {
    let options = Options { multiget_bytes_max: 10_000, ..Options::default() };
    let check = |start: &str, limit: usize| {
        let mut line = start.as_bytes().to_vec();
        line.resize(20_000, b'x');
        assert_eq!(parse(&line[..limit], &options), Step::Incomplete, "{start:?}");
        assert_eq!(parse(&line[..=limit], &options), Step::Close, "{start:?}");
        line[limit] = b'\n';
        assert_ne!(parse(&line, &options), Step::Close, "{start:?} ending at the limit");
        line[limit] = b'x';
        line[limit + 1] = b'\n';
        assert_eq!(parse(&line, &options), Step::Close, "{start:?} ending behind the limit");
    };
    for start in [
        "",
        "set k 0 0 1 ",
        "GET ",
        "getx",
        "mg ",
        "\0",
        &" ".repeat(101),
        &format!("{}get ", " ".repeat(101)),
    ] {
        check(start, 2048);
    }
    for start in ["get ", "gets ", "gat 0 ", "gats 0 ", &format!("{}get ", " ".repeat(100))] {
        check(start, 10_000);
    }
}

#[test]
fn http_is_closed() {
    for line in ["GET / HTTP/1.1\r\n", "DELETE HTTP/1.1\r\n", "PUT /a HTTP/1.0\n", "x HTTP/\r\n"] {
        assert_eq!(parse(line.as_bytes(), &Options::default()), Step::Close, "{line:?}");
    }
    refused("HTTP/1.1", "ERROR", 0, false);
    command(b"get / HTTP/1.1\r\n");
}
