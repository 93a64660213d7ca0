//! What must hold for any bytes that are taken for requests. `crates/protocol/tests/hostile.rs` runs it, too.

use protocol::{Options, Step, binary, line};

/// Panics if something does not hold.
pub fn check(data: &[u8]) {
    text(data);
    frames(data);
    lines(data);
}

/// Walks over `data` as a server would, and calls `step` on what is left: it returns how much to go on by, or `None`
/// at the end.
fn walk(data: &[u8], step: impl Fn(&[u8]) -> Option<u64>) {
    let mut rest = data;
    while let Some(used) = step(rest) {
        assert!(used > 0, "every step gets on");
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(rest.len());
        rest = &rest[used..];
    }
}

/// Where to cut `len` bytes, to see whether less of them make a difference.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    [0, 1, 2, len / 2, len.saturating_sub(2), len.saturating_sub(1)].into_iter().filter(move |cut| *cut < len)
}

fn text(data: &[u8]) {
    let options = Options { debugtime: true, multiget_bytes_max: 4096 };
    walk(data, |rest| {
        let step = protocol::parse(rest, &options);
        for cut in cuts(rest.len()) {
            let less = protocol::parse(&rest[..cut], &options);
            assert!(less == step || less == Step::Incomplete, "{less:?}, later {step:?}");
        }
        match step {
            Step::Incomplete => {
                assert!(rest.len() <= options.multiget_bytes_max, "what has to be kept is bounded");
                None
            }
            Step::Close => None,
            Step::Reject(reject) => {
                assert!(reject.used <= rest.len());
                assert_eq!(rest[reject.used - 1], b'\n', "a line is used as a whole");
                Some(reject.used as u64 + reject.swallow)
            }
            Step::Command { command, used } => {
                assert!(used <= rest.len());
                assert_eq!(rest[used - 1], b'\n', "a line is used as a whole");
                let mut encoded = Vec::new();
                protocol::encode(&command, &mut encoded);
                let expected = Step::Command { command, used: encoded.len() };
                let unlimited = Options { multiget_bytes_max: usize::MAX, ..options };
                assert_eq!(
                    protocol::parse(&encoded, &unlimited),
                    expected,
                    "parse, encode, parse is the identity"
                );
                let payload = command.payload().map_or(0, |len| u64::from(len) + 2);
                Some(used as u64 + payload)
            }
        }
    });
}

fn frames(data: &[u8]) {
    walk(data, |rest| {
        let step = binary::parse(rest);
        for cut in cuts(rest.len()) {
            let less = binary::parse(&rest[..cut]);
            assert!(less == step || less == binary::Step::Incomplete, "{less:?}, later {step:?}");
        }
        match step {
            binary::Step::Incomplete => {
                let kept_max = binary::HEADER_BYTES + 255 + protocol::KEY_BYTES_MAX;
                assert!(rest.len() < kept_max, "what has to be kept is bounded");
                None
            }
            binary::Step::Close => None,
            binary::Step::Reject(reject) => {
                assert!(reject.used <= rest.len());
                (!reject.close).then_some(reject.used as u64 + reject.swallow)
            }
            binary::Step::Command { head, command, used } => {
                assert!(used <= rest.len());
                let mut encoded = Vec::new();
                binary::encode(&head, &command, &mut encoded);
                let expected = binary::Step::Command { head, command, used: encoded.len() };
                assert_eq!(binary::parse(&encoded), expected, "parse, encode, parse is the identity");
                Some(used as u64 + u64::from(command.payload().unwrap_or(0)))
            }
        }
    });
}

fn lines(data: &[u8]) {
    let options = line::Options { line_bytes_max: 1000 };
    walk(data, |rest| {
        let step = line::parse(rest, 0, &options);
        for cut in cuts(rest.len()) {
            let less = line::parse(&rest[..cut], 0, &options);
            assert!(less == step || less == line::Step::Incomplete, "{less:?}, later {step:?}");
            if less == line::Step::Incomplete {
                assert_eq!(line::parse(rest, cut, &options), step, "what was searched need not be again");
            }
        }
        match step {
            line::Step::Incomplete | line::Step::Close => None,
            line::Step::Reject { used, .. } => Some(used as u64),
            line::Step::Command { command, used } => {
                if let line::Command::Set { key, value } = command {
                    let mut out = Vec::new();
                    let mut object = line::Object::open(&mut out);
                    object.entry(key, value, &mut out);
                    object.close(&mut out);
                    let control = |byte: &u8| *byte < b' ';
                    assert_eq!(
                        out.iter().position(control),
                        Some(out.len() - 1),
                        "one line, and nothing raw in it"
                    );
                }
                Some(used as u64)
            }
        }
    });
}
