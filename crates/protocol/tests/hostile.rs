//! Bytes that nobody should send. The checks are those of the fuzz targets.

mod common;

#[path = "../../../fuzz/src/replies.rs"]
mod replies;

#[path = "../../../fuzz/src/requests.rs"]
mod requests;

use common::{Random, binary_transcripts, transcripts};
use protocol::binary::{self, Status, Step};

fn check(data: &[u8]) {
    requests::check(data);
    replies::check(data);
}

#[test]
fn transcripts_and_parts_of_them() {
    for transcript in transcripts().into_iter().chain(binary_transcripts()) {
        for bytes in [&transcript.send[..], &transcript.reply] {
            check(bytes);
            for start in 0..bytes.len().min(200) {
                check(&bytes[start..bytes.len().min(start + 500)]);
            }
        }
    }
}

#[test]
fn random_bytes() {
    let mut random = Random::new();
    for _ in 0..20_000 {
        let len = random.below(200);
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.next() as u8).take(len).collect();
        check(&bytes);
        // Random lengths are absurd as a rule; small ones reach further.
        if let [magic, _, _, _, _, _, _, _, high @ .., _, _] = &mut bytes[..] {
            *magic = random.pick(&[binary::MAGIC_REQUEST, binary::MAGIC_RESPONSE]);
            for byte in high.iter_mut().take(2) {
                *byte = 0;
            }
            for at in [2, 10] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 0;
                }
            }
            check(&bytes);
        }
    }
}

/// Words of the protocols in random order.
#[test]
fn random_words() {
    const WORDS: [&[u8]; 40] = [
        b"get",
        b"gets",
        b"gat",
        b"set",
        b"cas",
        b"ms",
        b"mg",
        b"ma",
        b"md",
        b"me",
        b"mn",
        b"delete",
        b"incr",
        b"touch",
        b"flush_all",
        b"k",
        b"0",
        b"1",
        b"-1",
        b"99999999999999999999",
        b" ",
        b"  ",
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b"noreply",
        b"HTTP/1.1",
        b"v",
        b"k",
        b"Oabc",
        b"b",
        b"N1",
        b"T",
        b"VALUE",
        b"VA",
        b"STAT",
        b"END",
        b"SET",
        b"GETALL",
    ];
    let mut random = Random::new();
    for _ in 0..50_000 {
        let mut bytes = Vec::new();
        for _ in 0..random.below(12) {
            bytes.extend_from_slice(random.pick(&WORDS));
            bytes.extend_from_slice(random.pick(&[&b" "[..], b" ", b" ", b"\r\n", b""]));
        }
        bytes.extend_from_slice(b"\r\n");
        check(&bytes);
    }
}

/// A binary header with these lengths.
fn header(opcode: u8, key_len: u16, extras_len: u8, body_len: u32) -> [u8; binary::HEADER_BYTES] {
    let mut header = [0; binary::HEADER_BYTES];
    header[0] = binary::MAGIC_REQUEST;
    header[1] = opcode;
    header[2..4].copy_from_slice(&key_len.to_be_bytes());
    header[4] = extras_len;
    header[8..12].copy_from_slice(&body_len.to_be_bytes());
    header
}

/// Integer overflow and over-read of lengths (CVE-2016-8704, -8705, -8706, CVE-2017-9951, CVE-2020-10931): no
/// combination of opcode and lengths is taken for a command whose parts do not fit into its body.
#[test]
fn all_combinations_of_binary_lengths() {
    let keys = [0, 1, 249, 250, 251, 255, 256, 0x7fff, 0x8000, 0xffff];
    let extras = [0, 1, 3, 4, 5, 7, 8, 9, 19, 20, 21, 255];
    let around = [0_i64, 1, -1, 2, -2];
    let mut commands = 0;
    for opcode in 0..=255 {
        for key in keys {
            for extra in extras {
                let exact = i64::from(key) + i64::from(extra);
                let bodies = around.map(|delta| exact + delta).into_iter().chain([
                    0,
                    0x7fff_ffff,
                    0x8000_0000,
                    0xffff_ffff,
                    0xffff_fffe,
                    1 << 30,
                    (1 << 30) + 1,
                ]);
                for body in bodies.filter_map(|body| u32::try_from(body).ok()) {
                    let mut frame = header(opcode, key, extra, body).to_vec();
                    frame.resize(frame.len() + 600, b'x');
                    match binary::parse(&frame) {
                        Step::Command { command, used, .. } => {
                            commands += 1;
                            assert_eq!(used, binary::HEADER_BYTES + usize::from(key) + usize::from(extra));
                            let payload = command.payload().unwrap_or(0);
                            assert_eq!(
                                u64::from(payload),
                                u64::from(body) - exact as u64,
                                "nothing is left over"
                            );
                            assert!(body <= 1 << 30);
                        }
                        Step::Reject(reject) if reject.close => {
                            let expected =
                                if i64::from(body) < exact { Status::Unknown } else { Status::Invalid };
                            assert_eq!(reject.status, expected);
                        }
                        Step::Reject(reject) => {
                            assert_eq!((reject.status, reject.swallow), (Status::Unknown, u64::from(body)));
                        }
                        step => panic!("{step:?} of a whole frame"),
                    }
                }
            }
        }
    }
    assert!(commands > 100, "only {commands}");
}

/// A quiet fetch that found nothing, an unknown command with a body, and a noop behind them all (a GETK that hangs).
#[test]
fn unknown_binary_commands_keep_the_connection() {
    for opcode in [0x1b, 0x1f, 0x20, 0x25, 0x40, 0xff] {
        let mut frame = header(opcode, 0, 0, 0).to_vec();
        frame.extend_from_slice(&header(binary::opcode::NOOP, 0, 0, 0));
        let Step::Reject(reject) = binary::parse(&frame) else { panic!("opcode {opcode}") };
        assert_eq!((reject.status, reject.swallow, reject.close), (Status::Unknown, 0, false));
        assert!(matches!(
            binary::parse(&frame[reject.used..]),
            Step::Command { command: binary::Command::Noop, .. }
        ));
    }
    // SASL with a mechanism and a password: all of it goes.
    let Step::Reject(reject) = binary::parse(&header(binary::opcode::SASL_AUTH, 5, 0, 20)) else {
        panic!("sasl")
    };
    assert_eq!((reject.status, reject.swallow, reject.close), (Status::Unknown, 20, false));
}

/// Bare line ends, NUL bytes, blanks alone (memcached's over-run on lines of blanks; CVE-2023-46852, -46853).
#[test]
fn line_ends() {
    for end in ["\n", "\r\n", "\r", "\r\r\n", "\n\r", "\0\n", " \n", " \r\n", "\r \n", ""] {
        for start in [
            "get k",
            "set k 0 0 1",
            "mg k v",
            "ms k 1 T0",
            "",
            " ",
            "    ",
            "get",
            "mg",
            "gat 0",
            "\0",
            "get \0",
        ] {
            check(format!("{start}{end}").as_bytes());
            check(format!("{start}{end}{start}{end}").as_bytes());
        }
    }
}
