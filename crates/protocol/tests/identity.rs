//! Parse, encode, parse is the identity, and so is encode, parse.

mod common;

use common::{Random, command, transcripts};
use protocol::{
    Command, Debugtime, Direction, Keys, MetaArith, MetaDelete, MetaGet, MetaKey, MetaSet, Options, Shutdown,
    Step, Store, Verb, binary,
};

const ROUNDS: usize = 20_000;

const VERBS: [Verb; 5] = [Verb::Set, Verb::Add, Verb::Replace, Verb::Append, Verb::Prepend];
const DIRECTIONS: [Direction; 2] = [Direction::Incr, Direction::Decr];

/// Parsing what was encoded gives the same command, and encoding that gives the same bytes.
fn check(original: &Command<'_>) {
    let mut line = Vec::new();
    protocol::encode(original, &mut line);
    let parsed = command(&line);
    assert_eq!(parsed, *original, "{:?}", line.escape_ascii().to_string());
    let mut again = Vec::new();
    protocol::encode(&parsed, &mut again);
    assert_eq!(again, line);
}

/// Flags of a meta command that are valid, each at most once, in random order.
fn flags(random: &mut Random) -> Vec<u8> {
    let mut letters = *b"TNRCEFMJDOqkvtcfhlsuxIPL";
    for last in (1..letters.len()).rev() {
        letters.swap(last, random.below(last + 1));
    }
    let mut flags = Vec::new();
    for letter in &letters[..random.below(12)] {
        flags.extend_from_slice(if flags.is_empty() { b"" } else { b" " });
        flags.push(*letter);
        match letter {
            b'T' | b'N' | b'R' => flags.extend(format!("{}", random.number() as i64).bytes()),
            b'C' | b'E' | b'J' | b'D' => flags.extend(format!("{}", random.number()).bytes()),
            b'F' => flags.extend(format!("{}", random.number() as u32).bytes()),
            b'O' | b'P' | b'L' => flags.extend(random.word(protocol::OPAQUE_BYTES_MAX)),
            _ => {}
        }
    }
    flags
}

/// Adds `word` to flags.
fn with(mut flags: Vec<u8>, word: &[u8]) -> Vec<u8> {
    flags.extend_from_slice(if flags.is_empty() { b"" } else { b" " });
    flags.extend_from_slice(word);
    flags
}

fn without_mode(flags: Vec<u8>) -> Vec<u8> {
    let words = flags.split(|byte| *byte == b' ').filter(|word| !word.starts_with(b"M"));
    words.collect::<Vec<_>>().join(&b' ')
}

fn check_meta(random: &mut Random) {
    let (key, flags) = match random.coin() {
        true => (random.word(250), flags(random)),
        false => (b"bW0="[..].into(), with(flags(random), b"b")),
    };
    let mode = |random: &mut Random, modes: &[&[u8]]| with(without_mode(flags.clone()), random.pick(modes));
    check(&Command::MetaGet(MetaGet::new(&key, &flags).expect("valid")));
    check(&Command::MetaDelete(MetaDelete::new(&key, &flags).expect("valid")));
    let set = mode(random, &[b"ME", b"MA", b"MP", b"MR", b"MS", b"MSet"]);
    let len = random.below(1 << 20) as u32;
    check(&Command::MetaSet(MetaSet::new(&key, len, &set).expect("valid")));
    let arith = mode(random, &[b"MI", b"M+", b"MD", b"M-"]);
    check(&Command::MetaArith(MetaArith::new(&key, &arith).expect("valid")));
    check(&Command::MetaDebug { key: MetaKey::new(&key, false).expect("valid") });
    check(&Command::MetaDebug { key: MetaKey::new(b"bW0=", true).expect("valid") });
}

fn check_classic(random: &mut Random) {
    let noreply = random.coin();
    let key = if random.below(8) == 0 { b"noreply".to_vec() } else { random.word(250) };
    let mut keys = key.clone();
    for _ in 0..random.below(4) {
        keys.push(b' ');
        keys.extend(random.word(20));
    }
    let keys = Keys::new(&keys).expect("valid");
    let touch = random.coin().then(|| i64::from(random.number() as i32));
    check(&Command::Get { keys, with_cas: random.coin(), touch });
    let cas = random.coin().then(|| random.number());
    let store = Store {
        verb: if cas.is_some() { Verb::Set } else { random.pick(&VERBS) },
        key: &key,
        flags: random.number() as u32,
        exptime: random.number() as i64,
        len: random.below(i32::MAX as usize - 2) as u32,
        cas,
        noreply,
    };
    check(&Command::Store(store));
    check(&Command::Delete { key: &key, noreply });
    let direction = random.pick(&DIRECTIONS);
    check(&Command::Arith { direction, key: &key, delta: random.number(), noreply });
    check(&Command::Touch { key: &key, exptime: random.number() as i64, noreply });
    check(&Command::FlushAll { delay: random.coin().then(|| random.number() as i32), noreply });
    check(&Command::RefreshCerts { noreply });
    check(&Command::Debugtime(Debugtime::Shift(random.number() as i64)));
    for words in [&b""[..], b"a", b"detail on", b"1 2 3 noreply", &key] {
        for command in [
            Command::Stats,
            Command::Verbosity,
            Command::CacheMemlimit,
            Command::Lru,
            Command::LruCrawler,
            Command::Slabs,
            Command::Watch,
        ] {
            check(&command(words));
        }
    }
}

#[test]
fn random_commands() {
    let mut random = Random::new();
    for _ in 0..ROUNDS / 20 {
        check_classic(&mut random);
        check_meta(&mut random);
    }
}

#[test]
fn commands_without_arguments() {
    for command in [
        Command::MetaNoop,
        Command::Version,
        Command::Quit,
        Command::Shutdown(Shutdown::Now),
        Command::Shutdown(Shutdown::Graceful),
        Command::Shutdown(Shutdown::Unknown),
        Command::Debugtime(Debugtime::Pause),
        Command::Debugtime(Debugtime::Resume),
    ] {
        check(&command);
    }
}

/// Nothing can be built that would be read as two commands.
#[test]
fn nothing_breaks_out_of_a_line() {
    for bytes in [&b"k\nflush_all"[..], b"k\r", b"\n", b""] {
        assert!(!protocol::is_text_key(bytes));
        assert_eq!(MetaKey::new(bytes, false), None);
        assert_eq!(Keys::new(bytes), None);
        assert_eq!(MetaGet::new(bytes, b"v"), None);
    }
    assert_eq!(MetaKey::new(b"a b", false), None);
    assert_eq!(MetaSet::new(b"k", 1, b"T0\nflush_all"), None);
    assert_eq!(MetaDelete::new(b"k", b"q\r"), None);
    assert_eq!(MetaArith::new(b"k l", b""), None);
    assert_eq!(MetaGet::new(b"k", b"O23456789012345678901234567890123"), None);
    assert!(MetaGet::new(b"k", b"O2345678901234567890123456789012").is_some());
}

/// Lines that were recorded, with a byte changed here and there: most are refused, and those that are not must keep
/// their meaning.
#[test]
fn changed_lines() {
    let mut random = Random::new();
    let transcripts = transcripts();
    let lines: Vec<&[u8]> = transcripts
        .iter()
        .filter(|transcript| transcript.send.len() < 4096)
        .flat_map(|transcript| transcript.send.split_inclusive(|byte| *byte == b'\n'))
        .collect();
    let mut understood = 0;
    for _ in 0..ROUNDS {
        let mut line = random.pick(&lines).to_vec();
        for _ in 0..random.below(3) {
            let at = random.below(line.len());
            match random.below(3) {
                0 => line[at] = random.pick(b" kvq01-+bOMNT\r\x00\xff"),
                1 => line.insert(at, random.pick(b" kvq01-+bOMNT\r\x00\xff")),
                _ => drop(line.remove(at)),
            }
            if line.is_empty() {
                break;
            }
        }
        let options = Options { debugtime: true, ..Options::default() };
        if let Step::Command { command, used } = protocol::parse(&line, &options) {
            assert!(used <= line.len());
            check(&command);
            understood += 1;
        }
    }
    assert!(understood > ROUNDS / 10, "only {understood} of {ROUNDS}");
}

#[test]
fn random_binary_commands() {
    let mut random = Random::new();
    for _ in 0..ROUNDS / 4 {
        let key = random.word(250);
        let (key, quiet) = (&key[..], random.coin());
        let number = random.number() as u32;
        let verb = random.pick(&VERBS);
        let (flags, exptime) = if matches!(verb, Verb::Append | Verb::Prepend) {
            (0, 0)
        } else {
            (number, random.number() as u32)
        };
        // The greatest expiry time means that a counter is not created.
        let life = random.coin().then_some(number & 0x7fff_ffff);
        let arith = binary::Arith {
            direction: random.pick(&DIRECTIONS),
            key,
            delta: random.number(),
            initial: random.number(),
            exptime: life,
            quiet,
        };
        let store = binary::Store { verb, key, flags, exptime, len: number >> 3, quiet };
        for command in [
            binary::Command::Get { key, with_key: random.coin(), quiet, touch: life },
            binary::Command::Touch { key, exptime: number },
            binary::Command::Store(store),
            binary::Command::Delete { key, quiet },
            binary::Command::Arith(arith),
            binary::Command::Flush { delay: life, quiet },
            binary::Command::Noop,
            binary::Command::Version,
            binary::Command::Stat { key },
            binary::Command::Stat { key: b"" },
            binary::Command::Quit { quiet },
        ] {
            let sent = binary::Head { opcode: 0, opaque: random.number() as u32, cas: random.number() };
            let mut frame = Vec::new();
            binary::encode(&sent, &command, &mut frame);
            let binary::Step::Command { head, command: parsed, used } = binary::parse(&frame) else {
                panic!("{command:?} gave {:?}", binary::parse(&frame));
            };
            assert_eq!((parsed, used), (command, frame.len()));
            assert_eq!(head, binary::Head { opcode: frame[1], ..sent });
            let mut again = Vec::new();
            binary::encode(&head, &parsed, &mut again);
            assert_eq!(again, frame);
        }
    }
}
