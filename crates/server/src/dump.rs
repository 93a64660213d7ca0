//! Answers that hold all items: `lru_crawler metadump`, `mgdump`, `stats cachedump`, `GETALL`.
//!
//! They are made piece by piece as the client takes them, so that neither memory nor time is needed for all of it at
//! once. The items are those of no single moment: what changes meanwhile may be seen or not.

use protocol::base64;
use protocol::line::Object;
use protocol::text::{self, number};
use store::{Cursor, View};

use crate::admin::{self, CACHEDUMP_BYTES_MAX, ClassSet, item_bytes};
use crate::execute::Executor;
use crate::output::Output;

/// Buckets of the index looked at in one step.
const STEP_BUCKETS: usize = 128;

/// Steps in one turn; a filter may leave little to send, and others should have their turn all the same.
const TURN_STEPS: usize = 32;

/// What is dumped.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `lru_crawler metadump`
    Metadump(ClassSet),
    /// `lru_crawler mgdump`
    Mgdump(ClassSet),
    /// `stats cachedump`, up to `limit` items (0: as many as fit) of a class.
    Cachedump { class: u8, limit: u32 },
    /// `GETALL` of the line protocol.
    GetAll,
}

/// How far a dump is.
pub(crate) struct Dump {
    kind: Kind,
    cursor: Cursor,
    begun: bool,
    object: Object,
    items: u32,
    bytes: usize,
}

/// What came of a turn of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The output is full, or others should have their turn.
    Paused,
    /// All is said.
    Done,
}

impl Dump {
    pub(crate) fn new(kind: Kind) -> Self {
        Dump { kind, cursor: Cursor::default(), begun: false, object: Object::default(), items: 0, bytes: 0 }
    }

    /// Goes on until the output is full, the turn is over, or all is said.
    pub(crate) fn go_on(&mut self, executor: &mut Executor<'_>, out: &mut Output) -> Progress {
        if !self.begun {
            self.begun = true;
            match self.kind {
                Kind::Metadump(_) | Kind::Mgdump(_) => text::line(text::OK, out.text()),
                Kind::Cachedump { .. } => {}
                Kind::GetAll => self.object = Object::open(out.text()),
            }
        }
        for _ in 0..TURN_STEPS {
            if out.is_full() {
                return Progress::Paused;
            }
            if !self.step(executor, out) {
                match self.kind {
                    Kind::Metadump(_) | Kind::Cachedump { .. } => text::line(text::END, out.text()),
                    Kind::Mgdump(_) => text::line(text::EN, out.text()),
                    Kind::GetAll => self.object.close(out.text()),
                }
                return Progress::Done;
            }
        }
        Progress::Paused
    }

    /// Looks at some more items; false when there are no more, or no more are wanted.
    fn step(&mut self, executor: &mut Executor<'_>, out: &mut Output) -> bool {
        let Dump { kind, cursor, object, items, bytes, .. } = self;
        let env = executor.env;
        let classes = &executor.shared.admin.classes;
        let cas = executor.shared.settings.cas;
        let text = out.text();
        let more = executor.store.scan(cursor, STEP_BUCKETS, &mut |item| {
            if !store::is_alive(item, &env) {
                return;
            }
            let bytes_there = item_bytes(item.key.len(), item.value.len(), item.flags, cas);
            let class = classes.of(bytes_there);
            match kind {
                Kind::Metadump(filter) if filter.contains(class) => {
                    metadump_line(item, class, bytes_there, text)
                }
                Kind::Mgdump(filter) if filter.contains(class) => mgdump_line(item.key, text),
                Kind::Cachedump { class: wanted, limit }
                    if *wanted == class
                        && (*limit == 0 || *items < *limit)
                        && *bytes < CACHEDUMP_BYTES_MAX =>
                {
                    let before = text.len();
                    admin::cachedump_line(item, text);
                    *items += 1;
                    *bytes += text.len() - before;
                }
                Kind::GetAll => {
                    object.entry(item.key, item.value, text);
                }
                _ => {}
            }
        });
        let enough = match kind {
            Kind::Cachedump { limit, .. } => {
                (*limit > 0 && *items >= *limit) || *bytes >= CACHEDUMP_BYTES_MAX
            }
            _ => false,
        };
        more && !enough
    }
}

/// `key=… exp=… la=… cas=… fetch=… cls=… size=… flags=…`, with times in Unix seconds. As with memcached, the line ends
/// with a blank and without a carriage return.
fn metadump_line(item: &View<'_>, class: u8, bytes: u64, line: &mut Vec<u8>) {
    line.extend_from_slice(b"key=");
    for byte in item.key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => line.push(*byte),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                line.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
            }
        }
    }
    line.extend_from_slice(b" exp=");
    match item.exptime {
        0 => line.extend_from_slice(b"-1"),
        exptime => number(u64::from(exptime), line),
    }
    line.extend_from_slice(b" la=");
    number(u64::from(item.accessed), line);
    line.extend_from_slice(b" cas=");
    number(item.cas, line);
    line.extend_from_slice(if item.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    number(u64::from(class), line);
    line.extend_from_slice(b" size=");
    number(bytes, line);
    line.extend_from_slice(b" flags=");
    number(u64::from(item.flags), line);
    line.extend_from_slice(b" \n");
}

/// `mg <key>`, ready to be sent back; keys that would not survive it as they are come in base64.
fn mgdump_line(key: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(b"mg ");
    if key.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        base64::encode(key, line);
        line.extend_from_slice(b" b");
    } else {
        line.extend_from_slice(key);
    }
    line.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_dumps() {
        let item = View {
            key: b"a b%/~",
            value: b"v",
            flags: 7,
            exptime: 0,
            cas: 3,
            birth: 1,
            accessed: 100,
            fetched: true,
            stale: false,
            token_sent: false,
        };
        let check = |item: &View<'_>, expected: &str| {
            let mut line = Vec::new();
            metadump_line(item, 2, 70, &mut line);
            assert_eq!(String::from_utf8_lossy(&line), expected);
        };
        check(&item, "key=a%20b%25%2F~ exp=-1 la=100 cas=3 fetch=yes cls=2 size=70 flags=7 \n");
        let other = View { key: b"\xff", exptime: 200, fetched: false, ..item };
        check(&other, "key=%FF exp=200 la=100 cas=3 fetch=no cls=2 size=70 flags=7 \n");
    }

    #[test]
    fn keys_in_base64() {
        let check = |key: &[u8], expected: &str| {
            let mut line = Vec::new();
            mgdump_line(key, &mut line);
            assert_eq!(String::from_utf8_lossy(&line), expected);
        };
        check(b"plain", "mg plain\r\n");
        check(b" ", "mg IA== b\r\n");
        check(b"a b", "mg YSBi b\r\n");
        check(b"\n\n\n\n\n", "mg CgoKCgo= b\r\n");
    }
}
