//! Random commands in all the protocols, as bytes.

use protocol::binary::opcode;

use super::bench::Random;
use crate::connection::Speaks;

/// What a random program is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    pub(super) keys: usize,
    pub(super) value_bytes_max: usize,
}

/// A command, or some bytes that are none.
pub(super) fn command(random: &mut Random, speaks: Speaks, domain: Domain) -> Vec<u8> {
    match speaks {
        Speaks::Binary => binary(random, domain),
        Speaks::Line => line(random, domain),
        Speaks::Text | Speaks::Unknown if random.below(5) < 3 => classic(random, domain),
        Speaks::Text | Speaks::Unknown => meta(random, domain),
    }
}

fn key(random: &mut Random, domain: Domain) -> String {
    format!("key{}", random.below(domain.keys))
}

fn value(random: &mut Random, domain: Domain) -> Vec<u8> {
    match random.below(8) {
        0..3 => random.below(1_000_000).to_string().into_bytes(),
        3 => b"18446744073709551615".to_vec(),
        _ => {
            let (len, first) = (random.below(domain.value_bytes_max), random.next() as usize);
            (first..first + len).map(|at| b'a' + (at % 26) as u8).collect()
        }
    }
}

fn exptime(random: &mut Random) -> i64 {
    random.pick(&[0, 0, 0, 0, -1, 1, 5, 100, 2_592_001, 1_700_000_010, 3_000_000_000])
}

/// Cas ids begin with small numbers.
fn cas(random: &mut Random) -> u64 {
    random.below(12) as u64
}

fn classic(random: &mut Random, domain: Domain) -> Vec<u8> {
    let key = key(random, domain);
    let noreply = random.pick(&["", "", "", " noreply"]);
    match random.below(24) {
        0..6 => {
            let verb = random.pick(&["get", "gets", "gat 5", "gats 0", "gat -1", "gats 100"]);
            let count = random.pick(&[1, 1, 1, 2, 5, 17, 40]);
            let keys: Vec<String> = (0..count).map(|_| self::key(random, domain)).collect();
            format!("{verb} {}\r\n", keys.join(" ")).into_bytes()
        }
        6..15 => {
            let verb =
                random.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas", "cas"]);
            let id = if verb == "cas" { format!(" {}", cas(random)) } else { String::new() };
            let (flags, exptime) = (random.below(3) * 77, exptime(random));
            storage(random, domain, |len| format!("{verb} {key} {flags} {exptime} {len}{id}{noreply}"))
        }
        15..18 => {
            let (verb, delta) = (random.pick(&["incr", "decr"]), number(random));
            format!("{verb} {key} {delta}{noreply}\r\n").into_bytes()
        }
        18..20 => format!("touch {key} {}{noreply}\r\n", exptime(random)).into_bytes(),
        20..22 => format!("delete {key}{noreply}\r\n").into_bytes(),
        22 if random.below(domain.keys * 4) == 0 => {
            random.pick(&["flush_all\r\n", "flush_all 3\r\n", "flush_all -1 noreply\r\n"]).into()
        }
        _ => random
            .pick(&[
                "version\r\n",
                "mn\r\n",
                "nonsense key\r\n",
                "get\r\n",
                "incr key0 x\r\n",
                "set key0 a 0 1\r\n",
                "delete key0 0 0\r\n",
                "verbosity 0\r\n",
                "touch key1\r\n",
                "\r\n",
            ])
            .into(),
    }
}

fn number(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.next(),
        1 => u64::MAX,
        _ => random.below(1_000) as u64,
    }
}

/// A command with a value, whose end is missing now and then.
fn storage(random: &mut Random, domain: Domain, line: impl FnOnce(usize) -> String) -> Vec<u8> {
    let value = value(random, domain);
    let end: &[u8] = if random.below(40) == 0 { b"xx" } else { b"\r\n" };
    [line(value.len()).as_bytes(), b"\r\n", &value, end].concat()
}

fn meta(random: &mut Random, domain: Domain) -> Vec<u8> {
    // As base64, three bytes are four letters.
    let is_base64 = random.below(8) == 0;
    let key = if is_base64 { random.pick(&["a2V5", "a2V5MQ==", "!!!"]).into() } else { key(random, domain) };
    let mut flags = if is_base64 { " b".to_string() } else { String::new() };
    let (numbers, letters): (&[&str], &[&str]) = match random.below(16) {
        0..6 => (&["T", "N", "R", "E"], &["v", "f", "s", "c", "k", "t", "l", "h", "O12", "q", "u", "v"]),
        6..11 => {
            let modes = ["MS", "MS", "MS", "ME", "MA", "MP", "MR", "ma", "MX"];
            (&["T", "F", "C", "E"], &["c", "k", "s", "q", "I", "b", "Oab", "N10", random.pick(&modes)])
        }
        11..13 => (&["T", "C", "E"], &["k", "q", "I", "x", "O9"]),
        13..15 => (
            &["T", "N", "J", "D", "C", "E"],
            &["v", "t", "c", "k", "q", "MI", "MD", "Mi", "M+", "M-", "MZ", "Ox"],
        ),
        _ => return format!("{} {key}\r\n", random.pick(&["me", "mn", "mx"])).into_bytes(),
    };
    for _ in 0..random.below(5) {
        flags += " ";
        if random.below(3) == 0 {
            flags += random.pick(numbers);
            flags +=
                random.pick(&["0", "1", "2", "3", "5", "30", "-1", "2592001", "18446744073709551615", "x"]);
        } else {
            flags += random.pick(letters);
        }
    }
    match letters.len() {
        9 => storage(random, domain, |len| format!("ms {key} {len}{flags}")),
        5 => format!("md {key}{flags}\r\n").into_bytes(),
        12 if numbers.len() == 6 => format!("ma {key}{flags}\r\n").into_bytes(),
        _ => format!("mg {key}{flags}\r\n").into_bytes(),
    }
}

/// A request of the binary protocol.
pub(super) fn frame(opcode: u8, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, opcode];
    frame.extend_from_slice(&(key.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    frame.extend_from_slice(&((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    frame.extend_from_slice(&[1, 2, 3, 4]);
    frame.extend_from_slice(&cas.to_be_bytes());
    [&frame, extras, key, value].concat()
}

fn binary(random: &mut Random, domain: Domain) -> Vec<u8> {
    use opcode::*;
    let key = key(random, domain);
    let key = key.as_bytes();
    let exptime = (exptime(random) as u32).to_be_bytes();
    let cas = if random.below(4) == 0 { cas(random) } else { 0 };
    match random.below(16) {
        0..4 => frame(random.pick(&[GET, GETQ, GETK, GETKQ]), 0, &[], key, &[]),
        4..8 => {
            let opcode = random.pick(&[SET, SETQ, ADD, ADDQ, REPLACE, REPLACEQ]);
            frame(opcode, cas, &[&[0, 0, 0, 7][..], &exptime].concat(), key, &value(random, domain))
        }
        8..10 => {
            let opcode = random.pick(&[APPEND, APPENDQ, PREPEND, PREPENDQ]);
            frame(opcode, cas, &[], key, &value(random, domain))
        }
        10..12 => {
            let opcode = random.pick(&[INCREMENT, INCREMENTQ, DECREMENT, DECREMENTQ]);
            let (delta, initial) = (number(random).to_be_bytes(), number(random).to_be_bytes());
            let exptime = if random.below(3) == 0 { [0xff; 4] } else { exptime };
            frame(opcode, cas, &[&delta[..], &initial, &exptime].concat(), key, &[])
        }
        12..14 => frame(random.pick(&[TOUCH, GAT, GATQ, GATK, GATKQ]), 0, &exptime, key, &[]),
        14 => frame(random.pick(&[DELETE, DELETEQ]), cas, &[], key, &[]),
        _ if random.below(domain.keys * 4) == 0 => frame(random.pick(&[FLUSH, FLUSHQ]), 0, &[], &[], &[]),
        _ => frame(random.pick(&[NOOP, VERSION, 0x30]), 0, &[], &[], &[]),
    }
}

fn line(random: &mut Random, domain: Domain) -> Vec<u8> {
    let key = key(random, domain);
    match random.below(12) {
        0..5 => format!("GET {key}\r\n").into_bytes(),
        5..10 => {
            let value = value(random, domain);
            [format!("SET {key} ").as_bytes(), &value, random.pick(&[&b"\n"[..], b"\r\n"])].concat()
        }
        10 => format!("DEL {key}\n").into_bytes(),
        _ => random.pick(&["GETALL\n", "SET key0\n", "GET\n", "nonsense\n"]).into(),
    }
}
