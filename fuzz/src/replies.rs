//! What must hold for any bytes that are taken for replies. `crates/protocol/tests/hostile.rs` runs it, too.

use protocol::{binary, reply};

/// Panics if something does not hold.
pub fn check(data: &[u8]) {
    text(data);
    frames(data);
}

fn text(data: &[u8]) {
    let mut rest = data;
    loop {
        match reply::parse(rest) {
            reply::Step::Garbage => return,
            reply::Step::Incomplete { needed } => {
                assert!(needed > rest.len(), "what is there is not enough");
                return;
            }
            reply::Step::Reply { reply, used } => {
                assert!(used > 0 && used <= rest.len());
                if let reply::Reply::MetaDone(flags) | reply::Reply::MetaValue { flags, .. } = reply {
                    assert!(flags.iter().all(|(letter, _)| flags.token(letter).is_some()));
                }
                for cut in [1, used / 2, used - 1] {
                    match reply::parse(&rest[..cut.min(used - 1)]) {
                        reply::Step::Incomplete { needed } => {
                            assert!(needed <= used, "no more than it takes")
                        }
                        step => panic!("{step:?} of a part of {reply:?}"),
                    }
                }
                rest = &rest[used..];
            }
        }
    }
}

fn frames(data: &[u8]) {
    let mut rest = data;
    loop {
        match binary::parse_reply(rest) {
            binary::ReplyStep::Garbage => return,
            binary::ReplyStep::Incomplete { needed } => {
                assert!(needed > rest.len(), "what is there is not enough");
                return;
            }
            binary::ReplyStep::Reply { reply, used } => {
                assert!(used >= binary::HEADER_BYTES && used <= rest.len());
                for cut in [0, 1, used / 2, used - 1] {
                    match binary::parse_reply(&rest[..cut]) {
                        binary::ReplyStep::Incomplete { needed } => {
                            assert!(needed <= used, "no more than it takes")
                        }
                        step => panic!("{step:?} of a part of {reply:?}"),
                    }
                }
                rest = &rest[used..];
            }
        }
    }
}
