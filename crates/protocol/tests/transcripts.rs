//! What was recorded from a real memcached: each line is understood or refused as it did, in whatever pieces it comes.

mod common;

use common::{Event, Transcript, binary_transcripts, events, transcripts};
use protocol::binary::{self, Command, Head, ReplyStep, Status, Step};
use protocol::reply::{self, Reply};

/// What is answered without a store, if that is known; `None` where the answer depends on one.
fn answer(event: &Event) -> Option<Vec<u8>> {
    let line = |text: &str| Some(format!("{text}\r\n").into_bytes());
    match event {
        Event::Reject(_, _, true) | Event::Close => Some(Vec::new()),
        Event::Reject(text, _, false) => line(text),
        Event::BadChunk(_) => line(protocol::text::BAD_DATA_CHUNK),
        Event::Command(text, _) => match &text[..] {
            b"mn\r\n" => line(protocol::text::MN),
            b"version\r\n" => line(protocol::text::VERSION),
            _ => None,
        },
    }
}

/// Walks the recorded reply along the events: what is known must be there, in this order, with nothing between two
/// known answers that stand next to each other.
fn check(transcript: &Transcript) -> Result<bool, String> {
    let mut rest = &transcript.reply[..];
    let mut may_skip = false;
    for event in events([&transcript.send[..]]) {
        if matches!(&event, Event::Command(text, _) if text == b"quit\r\n") {
            break;
        }
        let Some(answer) = answer(&event) else {
            may_skip = true;
            continue;
        };
        if answer.is_empty() {
            continue;
        }
        let start = match may_skip {
            false if rest.starts_with(&answer) => 0,
            true => match rest.windows(answer.len()).position(|window| window == answer) {
                Some(position) => position,
                None => return Err(format!("{event:?} is not what was recorded")),
            },
            false => return Err(format!("{event:?} is not what was recorded")),
        };
        rest = &rest[start + answer.len()..];
        may_skip = false;
    }
    if may_skip || rest.is_empty() { Ok(!may_skip) } else { Err(format!("more was recorded: {rest:?}")) }
}

#[test]
fn lines_are_understood_or_refused_as_recorded() {
    let (mut whole, mut failures) = (0, Vec::new());
    for transcript in transcripts() {
        match check(&transcript) {
            Ok(known_to_the_end) => whole += usize::from(known_to_the_end),
            Err(error) => failures.push(format!("{:?}: {error}", transcript.send.escape_ascii().to_string())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(whole >= 60, "only {whole} transcripts could be checked to their end");
}

#[test]
fn closing_is_as_recorded() {
    for transcript in transcripts() {
        let closes = events([&transcript.send[..]]).iter().any(|event| match event {
            Event::Close => true,
            Event::Command(text, _) => text == b"quit\r\n",
            _ => false,
        });
        assert_eq!(closes, transcript.closed, "{:?}", transcript.send.escape_ascii().to_string());
    }
}

/// Longer ones would be cut too often; where they are cut in the middle of a value makes no difference.
const CUT_BYTES_MAX: usize = 4096;

#[test]
fn pieces_make_no_difference() {
    let mut cuts = 0;
    for transcript in transcripts().iter().filter(|transcript| transcript.send.len() <= CUT_BYTES_MAX) {
        let send = &transcript.send[..];
        let whole = events([send]);
        for cut in 0..=send.len() {
            let (first, second) = send.split_at(cut);
            assert_eq!(events([first, second]), whole, "cut at {cut}: {:?}", send.escape_ascii().to_string());
            cuts += 1;
        }
        assert_eq!(events(send.chunks(1)), whole, "byte by byte: {:?}", send.escape_ascii().to_string());
    }
    assert!(cuts > 5000, "only {cuts} cuts");
}

#[test]
fn clients_understand_the_replies() {
    for transcript in transcripts() {
        let mut rest = &transcript.reply[..];
        while !rest.is_empty() {
            match reply::parse(rest) {
                reply::Step::Reply { reply: Reply::Other(line), .. } => {
                    let known = [&b"BADCLASS "[..], b"NOSPARE ", b"MEMLIMIT_TOO_SMALL "];
                    assert!(known.iter().any(|start| line.starts_with(start)), "{line:?}");
                    rest = &rest[line.len() + 2..];
                }
                reply::Step::Reply { used, .. } => rest = &rest[used..],
                step => panic!("{:?} gave {step:?}", rest.escape_ascii().to_string()),
            }
        }
    }
}

/// What each request of the binary protocol is refused with, and what the connection's end is.
fn check_binary(transcript: &Transcript) {
    let mut replies = Vec::new();
    let mut rest = &transcript.reply[..];
    while let ReplyStep::Reply { reply, used } = binary::parse_reply(rest) {
        replies.push(reply);
        rest = &rest[used..];
    }
    assert!(rest.is_empty(), "{rest:?} is left");
    let mut replies = replies.into_iter().peekable();
    let mut rest = &transcript.send[..];
    let mut closed = false;
    while !rest.is_empty() && !closed {
        let used = match binary::parse(rest) {
            Step::Command { head, command, used } => {
                // A quiet command may have no answer, so only what is answered for certain is looked at.
                if replies.peek().is_some_and(|reply| reply.head.opcode == head.opcode) {
                    replies.next();
                } else {
                    let quiet = matches!(
                        command,
                        Command::Get { quiet: true, .. }
                            | Command::Delete { quiet: true, .. }
                            | Command::Flush { quiet: true, .. }
                            | Command::Quit { quiet: true }
                    ) || matches!(command, Command::Store(store) if store.quiet);
                    assert!(quiet, "{command:?} is not answered");
                }
                closed = matches!(command, Command::Quit { .. });
                used + command.payload().unwrap_or(0) as usize
            }
            Step::Reject(reject) => {
                let Head { opcode, opaque, .. } = reject.head;
                let reply = replies.next().expect("a refusal is answered");
                assert_eq!((reply.head.opcode, reply.head.opaque), (opcode, opaque));
                assert_eq!(Status::from_code(reply.code), Some(reject.status));
                assert_eq!(reply.value, reject.status.text().as_bytes());
                closed = reject.close;
                reject.used + usize::try_from(reject.swallow).expect("64 bits")
            }
            Step::Close => {
                closed = true;
                0
            }
            Step::Incomplete => panic!("{rest:?} is not whole"),
        };
        rest = &rest[used..];
    }
    assert_eq!(replies.next(), None, "nothing else was answered");
    assert_eq!(closed, transcript.closed);
}

#[test]
fn frames_are_understood_or_refused_as_recorded() {
    for transcript in binary_transcripts() {
        println!("{:?}", transcript.send.escape_ascii().to_string());
        check_binary(&transcript);
    }
}
