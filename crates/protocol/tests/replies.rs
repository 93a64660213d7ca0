//! Replies: what servers write, and that clients read the same out of it.

mod common;

use common::{Random, command};
use protocol::meta_reply::{self, CounterFacts, DebugFacts, ItemFacts, MetaStatus, Token};
use protocol::reply::{self, Reply};
use protocol::{Command, binary, line, text};

/// The one reply in these bytes.
fn read(bytes: &[u8]) -> Reply<'_> {
    match reply::parse(bytes) {
        reply::Step::Reply { reply, used } => {
            assert_eq!(used, bytes.len());
            reply
        }
        step => panic!("{:?} gave {step:?}", bytes.escape_ascii().to_string()),
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn classic() {
    assert_eq!(written(|out| text::line(text::STORED, out)), "STORED\r\n");
    assert_eq!(written(|out| text::number_line(u64::MAX, out)), "18446744073709551615\r\n");
    assert_eq!(written(|out| text::value(b"k", 7, b"\r\n", None, out)), "VALUE k 7 2\r\n\r\n\r\n");
    let longest = written(|out| text::value_line(&[b'k'; 250], u32::MAX, 1 << 30, Some(u64::MAX), out));
    assert!(longest.ends_with("k 4294967295 1073741824 18446744073709551615\r\n"));
}

#[test]
fn clients_read_classic_replies() {
    for (bytes, expected) in [
        ("STORED\r\n", Reply::Stored),
        ("NOT_STORED\r\n", Reply::NotStored(Default::default())),
        ("EXISTS\r\n", Reply::Exists(Default::default())),
        ("NOT_FOUND\r\n", Reply::NotFound(Default::default())),
        ("DELETED\r\n", Reply::Deleted),
        ("TOUCHED\r\n", Reply::Touched),
        ("OK\r\n", Reply::Ok),
        ("RESET\r\n", Reply::Reset),
        ("END\r\n", Reply::End),
        ("VERSION 1.6.45\r\n", Reply::Version(b"1.6.45")),
        ("12\r\n", Reply::Number(12)),
        ("VALUE k 1 2\r\nab\r\n", Reply::Value { key: b"k", flags: 1, cas: None, value: b"ab" }),
        ("VALUE k 1 0 9\r\n\r\n", Reply::Value { key: b"k", flags: 1, cas: Some(9), value: b"" }),
        ("STAT pid 1 2\r\n", Reply::Stat { name: b"pid", value: b"1 2" }),
        ("STAT empty \r\n", Reply::Stat { name: b"empty", value: b"" }),
        ("MN\r\n", Reply::MetaNoop),
        ("ERROR\r\n", Reply::Error(b"")),
        ("ERROR Too many open connections\r\n", Reply::Error(b"Too many open connections")),
        ("CLIENT_ERROR bad data chunk\r\n", Reply::ClientError(b"bad data chunk")),
        ("SERVER_ERROR: shutdown not enabled\r\n", Reply::ServerError(b"shutdown not enabled")),
        ("BUSY currently\r\n", Reply::Other(b"BUSY currently")),
        ("key=a exp=-1 \n", Reply::Other(b"key=a exp=-1 ")),
    ] {
        assert_eq!(read(bytes.as_bytes()), expected, "{bytes:?}");
    }
    for garbage in [
        "VALUE k 1 2\r\nabc\r\n",
        "VALUE k 1\r\n",
        "VALUE k x 1\r\n",
        "VALUE k 1 1 x\r\n",
        "VALUE k 1 99999999999999999999\r\n",
        "VALUE k 4294967296 1\r\n",
        "VALUE k 1 1073741825\r\n",
        "VA x\r\n",
        "VA\r\n",
        "STAT\r\n",
    ] {
        assert_eq!(reply::parse(garbage.as_bytes()), reply::Step::Garbage, "{garbage:?}");
    }
    assert_eq!(reply::parse(b"VALUE k 0 10\r\nab"), reply::Step::Incomplete { needed: 14 + 12 });
    assert_eq!(reply::parse(&vec![b'x'; 70_000]), reply::Step::Garbage);
}

const ITEM: ItemFacts<'_> = ItemFacts {
    key: b"mm",
    key_base64: false,
    value_len: 2,
    flags: 9,
    cas: 77,
    ttl_before: Some(100),
    ttl: Some(30),
    created: false,
    accessed_ago: 5,
    fetched: true,
    stale: false,
    token: Token::None,
};

/// What `mg` with these flags answers for this item.
fn get(flags: &str, item: &ItemFacts<'_>) -> String {
    let line = format!("mg mm {flags}\r\n");
    let Command::MetaGet(request) = command(line.as_bytes()) else { panic!("mg") };
    written(|out| {
        let with_value = meta_reply::get_hit(&request, item, out);
        assert_eq!(with_value, out.starts_with(b"VA "));
    })
}

#[test]
fn meta_get() {
    for (flags, expected) in [
        ("", "HD\r\n"),
        ("v", "VA 2\r\n"),
        ("v C77", "HD\r\n"),
        ("v C78", "VA 2\r\n"),
        ("s t c f l h k Oab q", "HD s2 t100 c77 f9 l5 h1 kmm Oab\r\n"),
        ("O", "HD O\r\n"),
        ("T30 t", "HD t30\r\n"),
        ("t T30", "HD t100\r\n"),
        ("N30 t", "HD t100\r\n"),
        ("k P1 L2 E5 R9 u x I", "HD kmm\r\n"),
    ] {
        assert_eq!(get(flags, &ITEM), expected, "{flags}");
    }
    let item = |change: fn(&mut ItemFacts<'_>)| {
        let mut item = ITEM;
        change(&mut item);
        item
    };
    assert_eq!(get("k v", &item(|item| item.key_base64 = true)), "VA 2 kbW0= b\r\n");
    assert_eq!(get("t", &item(|item| item.ttl_before = None)), "HD t-1\r\n");
    assert_eq!(get("s", &item(|item| item.stale = true)), "HD s2 X\r\n");
    let won = item(|item| (item.stale, item.token) = (true, Token::Won));
    assert_eq!(get("v", &won), "VA 2 X W\r\n");
    let taken = item(|item| (item.stale, item.token) = (true, Token::Taken));
    assert_eq!(get("v", &taken), "VA 2 Z X\r\n");
    let created = item(|item| {
        (item.created, item.ttl_before, item.token, item.value_len) = (true, None, Token::Won, 0);
    });
    assert_eq!(get("t N30 v", &created), "VA 0 t-1 W\r\n");
    assert_eq!(get("N30 t v", &created), "VA 0 t30 W\r\n");

    for (flags, expected) in [("", "EN\r\n"), ("k Oab s t c f v", "EN kmm Oab\r\n"), ("q k", "")] {
        let line = format!("mg mm {flags}\r\n");
        let Command::MetaGet(request) = command(line.as_bytes()) else { panic!("mg") };
        assert_eq!(written(|out| meta_reply::get_miss(&request, out)), expected, "{flags}");
    }
    let Command::MetaGet(request) = command(b"mg bW0= b O1 k\r\n") else { panic!("mg") };
    assert_eq!(written(|out| meta_reply::get_miss(&request, out)), "EN O1 kbW0= b\r\n");
}

#[test]
fn meta_set_and_delete() {
    for (flags, status, expected) in [
        ("", MetaStatus::Done, "HD\r\n"),
        ("q", MetaStatus::Done, ""),
        ("q k", MetaStatus::NotStored, "NS kmm\r\n"),
        ("s O1 c k t f", MetaStatus::Done, "HD s4 O1 c8 kmm\r\n"),
        ("c", MetaStatus::Exists, "EX c8\r\n"),
        ("q", MetaStatus::NotFound, "NF\r\n"),
    ] {
        let line = format!("ms mm 2 {flags}\r\n");
        let Command::MetaSet(request) = command(line.as_bytes()) else { panic!("ms") };
        assert_eq!(written(|out| meta_reply::set(&request, status, 8, 4, out)), expected, "{flags}");
    }
    for (flags, status, expected) in [
        ("", MetaStatus::Done, "HD\r\n"),
        ("q O1", MetaStatus::Done, ""),
        ("q O1 k c s", MetaStatus::NotFound, "NF O1 kmm\r\n"),
        ("C1", MetaStatus::Exists, "EX\r\n"),
    ] {
        let line = format!("md mm {flags}\r\n");
        let Command::MetaDelete(request) = command(line.as_bytes()) else { panic!("md") };
        assert_eq!(written(|out| meta_reply::delete(&request, status, out)), expected, "{flags}");
    }
}

#[test]
fn meta_arith() {
    let counter = CounterFacts { value: 105, cas: 3, ttl_before: Some(9), ttl: None, created: false };
    let created = CounterFacts { created: true, ..counter };
    for (flags, counter, expected) in [
        ("", counter, "HD\r\n"),
        ("v", counter, "VA 3\r\n105\r\n"),
        ("q v", counter, ""),
        ("k N0 t O1 c v s f", counter, "VA 3 kmm t9 O1 c3\r\n105\r\n"),
        ("N0 t", created, "HD t-1\r\n"),
        ("t T0", counter, "HD t9\r\n"),
        ("T0 t", counter, "HD t-1\r\n"),
    ] {
        let line = format!("ma mm {flags}\r\n");
        let Command::MetaArith(request) = command(line.as_bytes()) else { panic!("ma") };
        assert_eq!(written(|out| meta_reply::arith_done(&request, &counter, out)), expected, "{flags}");
    }
    let Command::MetaArith(request) = command(b"ma mm q k c O1 v\r\n") else { panic!("ma") };
    let failed = |status| written(|out| meta_reply::arith_failed(&request, status, out));
    assert_eq!(failed(MetaStatus::NotFound), "NF kmm O1\r\n");
    assert_eq!(failed(MetaStatus::Exists), "EX kmm O1\r\n");
}

#[test]
fn meta_debug() {
    let mut item =
        DebugFacts { key: b"mm", cas: 17, class: 1, bytes: 63, accessed_ago: 1, ..Default::default() };
    let shown = written(|out| meta_reply::debug(&item, out));
    assert_eq!(shown, "ME mm exp=-1 la=1 cas=17 fetch=no cls=1 size=63\r\n");
    let facts = b"exp=-1 la=1 cas=17 fetch=no cls=1 size=63";
    assert_eq!(read(shown.as_bytes()), Reply::MetaDebug { key: b"mm", facts });
    (item.key_base64, item.ttl, item.fetched) = (true, Some(9), true);
    let shown = written(|out| meta_reply::debug(&item, out));
    assert_eq!(shown, "ME bW0= exp=9 la=1 cas=17 fetch=yes cls=1 size=63\r\n");
}

#[test]
fn clients_read_meta_replies() {
    let mut bytes = get("v s c t O1 k", &ITEM).into_bytes();
    bytes.extend_from_slice(b"hi\r\n");
    let Reply::MetaValue { value, flags } = read(&bytes) else { panic!("a value") };
    assert_eq!(value, b"hi");
    assert_eq!((flags.number(b's'), flags.number(b'c'), flags.number(b't')), (Some(2), Some(77), Some(100)));
    assert_eq!(
        (flags.token(b'O'), flags.token(b'k'), flags.token(b'W')),
        (Some(&b"1"[..]), Some(&b"mm"[..]), None)
    );
    let Reply::MetaDone(flags) = read(b"HD t-1 W\r\n") else { panic!("done") };
    assert_eq!((flags.token(b't'), flags.number(b't')), (Some(&b"-1"[..]), None));
    assert!(flags.token(b'W').is_some());
    let Reply::MetaMiss(flags) = read(b"EN Oab\r\n") else { panic!("a miss") };
    assert_eq!(flags.token(b'O'), Some(&b"ab"[..]));
    assert!(matches!(read(b"NF k1\r\n"), Reply::NotFound(flags) if flags.token(b'k') == Some(b"1")));
    assert!(matches!(read(b"NS\r\n"), Reply::NotStored(_)));
    assert!(matches!(read(b"EX\r\n"), Reply::Exists(_)));
}

/// The reply in what `write` appends.
fn frame(write: impl FnOnce(&mut Vec<u8>), check: impl FnOnce(binary::Reply<'_>)) {
    let mut out = Vec::new();
    write(&mut out);
    match binary::parse_reply(&out) {
        binary::ReplyStep::Reply { reply, used } => {
            assert_eq!(used, out.len());
            check(reply);
        }
        step => panic!("{out:?} gave {step:?}"),
    }
}

#[test]
fn binary_replies() {
    let head = binary::Head { opcode: binary::opcode::GETKQ, opaque: 0xdead_beef, cas: 5 };
    let same = |reply: &binary::Reply<'_>| {
        assert_eq!((reply.head.opcode, reply.head.opaque), (head.opcode, head.opaque));
    };
    frame(
        |out| binary::success(&head, 9, out),
        |reply| {
            same(&reply);
            assert_eq!(
                (reply.code, reply.head.cas, reply.flags, reply.key, reply.value),
                (0, 9, None, &b""[..], &b""[..])
            );
        },
    );
    let with_value = |out: &mut Vec<u8>| {
        binary::value_head(&head, 9, 7, b"key", 2, out);
        out.extend_from_slice(b"hi");
    };
    frame(with_value, |reply| {
        same(&reply);
        assert_eq!(
            (reply.head.cas, reply.flags, reply.key, reply.value),
            (9, Some(7), &b"key"[..], &b"hi"[..])
        );
    });
    frame(
        |out| binary::miss_with_key(&head, b"key", out),
        |reply| {
            assert_eq!((reply.code, reply.key, reply.value), (1, &b"key"[..], &b""[..]));
        },
    );
    frame(|out| binary::number(&head, 9, 1 << 40, out), |reply| assert_eq!(reply.number(), Some(1 << 40)));
    frame(|out| binary::version(&head, "1.6.45", out), |reply| assert_eq!(reply.value, b"1.6.45"));
    let stat = binary::Head { opcode: binary::opcode::STAT, ..head };
    frame(
        |out| binary::statistic(&stat, b"pid", b"1", out),
        |reply| {
            assert_eq!((reply.key, reply.value, reply.is_statistics_end()), (&b"pid"[..], &b"1"[..], false));
        },
    );
    frame(|out| binary::statistics_end(&stat, out), |reply| assert!(reply.is_statistics_end()));
    for (status, code, text) in [
        (binary::Status::NotFound, 0x01, "Not found"),
        (binary::Status::Exists, 0x02, "Data exists for key."),
        (binary::Status::TooLarge, 0x03, "Too large."),
        (binary::Status::Invalid, 0x04, "Invalid arguments"),
        (binary::Status::NotStored, 0x05, "Not stored."),
        (binary::Status::NonNumeric, 0x06, "Non-numeric server-side value for incr or decr"),
        (binary::Status::Auth, 0x20, "Auth failure."),
        (binary::Status::Unknown, 0x81, "Unknown command"),
        (binary::Status::OutOfMemory, 0x82, "Out of memory"),
    ] {
        frame(
            |out| binary::failure(&head, status, out),
            |reply| {
                same(&reply);
                assert_eq!((reply.code, reply.value, reply.head.cas), (code, text.as_bytes(), 0));
                assert_eq!(binary::Status::from_code(code), Some(status));
            },
        );
    }
    // A value may not be longer than its frame, and a frame not longer than an item can be.
    let mut long = Vec::new();
    binary::value_head(&head, 0, 0, b"k", (1 << 30) + 2048, &mut long);
    assert_eq!(binary::parse_reply(&long), binary::ReplyStep::Garbage);
    assert_eq!(binary::parse_reply(b"HD\r\n"), binary::ReplyStep::Garbage);
}

#[test]
fn line_protocol() {
    use line::{Command, Options, Step};
    let options = Options::for_values(1000);
    let parse = |bytes| line::parse(bytes, 0, &options);
    let long = [b"GET ", &[b'k'; 250][..], b"\n"].concat();
    for (bytes, command) in [
        (&b"SET key value\n"[..], Command::Set { key: b"key", value: b"value" }),
        (b"SET  key   two  words \r\n", Command::Set { key: b"key", value: b"  two  words " }),
        (b"SET key \xff\x00\n", Command::Set { key: b"key", value: b"\xff\x00" }),
        (b"GET key\n", Command::Get { key: b"key" }),
        (b"GET key \r\n", Command::Get { key: b"key" }),
        (b"DEL key\n", Command::Del { key: b"key" }),
        (b"GETALL\n", Command::GetAll),
        (b"GETALL  \r\n", Command::GetAll),
        (&long, Command::Get { key: &long[4..254] }),
    ] {
        assert_eq!(parse(bytes), Step::Command { command, used: bytes.len() }, "{bytes:?}");
    }
    let too_long = [b"GET ", &[b'k'; 251][..], b"\n"].concat();
    for (bytes, answer) in [
        (&b"SET\n"[..], &b"MISSING_KEY\n"[..]),
        (b"SET  \r\n", b"MISSING_KEY\n"),
        (b"SET key\n", b"MISSING_ARG\n"),
        (b"SET key \n", b"MISSING_ARG\n"),
        (b"GET\n", b"MISSING_KEY\n"),
        (b"GET  \n", b"MISSING_KEY\n"),
        (b"DEL\r\n", b"MISSING_KEY\n"),
        (b"GET a b\n", b"INVALID_COMMAND\n"),
        (b"GETALL x\n", b"INVALID_COMMAND\n"),
        (b"get key\n", b"INVALID_COMMAND\n"),
        (b" GET key\n", b"INVALID_COMMAND\n"),
        (b"\n", b"INVALID_COMMAND\n"),
        (b"GETA\n", b"INVALID_COMMAND\n"),
        (b"\x80\x00\n", b"INVALID_COMMAND\n"),
        (&too_long, b"INVALID_COMMAND\n"),
    ] {
        assert_eq!(parse(bytes), Step::Reject { answer, used: bytes.len() }, "{bytes:?}");
    }
    let endless = vec![b'x'; options.line_bytes_max + 1];
    assert_eq!(parse(&endless[1..]), Step::Incomplete);
    assert_eq!(parse(&endless), Step::Close);
}

/// What a JSON reader makes of the object that holds these entries.
fn object(entries: &[(&[u8], &[u8])]) -> serde_json::Value {
    let mut out = Vec::new();
    let mut object = line::Object::open(&mut out);
    for (key, value) in entries {
        object.entry(key, value, &mut out);
    }
    object.close(&mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    assert!(!out.contains(&b'\n'), "one line");
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn all_entries_as_json() {
    assert_eq!(object(&[]), serde_json::json!({}));
    let odd = "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{2028}\u{2029}\u{2027}\u{202a}âé漢😀".as_bytes();
    let odd_text = std::str::from_utf8(odd).expect("UTF-8");
    let expected = serde_json::json!({ "a": "1", odd_text: odd_text, "": "x" });
    assert_eq!(
        object(&[(b"a", b"1"), (b"\xff", b"not a string"), (odd, odd), (b"k", b"\xe2\x80"), (b"", b"x")]),
        expected
    );
    let mut random = Random::new();
    for _ in 0..2000 {
        let text: String = (0..random.below(20))
            .filter_map(|_| char::from_u32((random.next() >> (43 + random.below(20))) as u32))
            .collect();
        assert_eq!(object(&[(b"k", text.as_bytes())])["k"], text, "{text:?}");
    }
}
