//! Which request a reply belongs to, and whether it can be right.

use protocol::reply::{Reply, ReplyFlags};

use super::Shared;
use super::connection::{Asked, Change, Connection, Pending, Space};
use super::issuer::{Issuer, PIECE_BYTES, piece};
use super::ledger::{Seen, Written};
use super::sheet::{End, Sheet};
use crate::keys;
use crate::values::Found;
use crate::workload::{Operation, Protocol};

/// The stream of replies can't be followed any more; what came, in words.
#[derive(Debug)]
pub(super) struct Desync(pub(super) String);

/// What a reply says of the request in front.
enum Says {
    /// There is more to come.
    More,
    /// It ended like this.
    Ends(End),
    /// It can't be its reply.
    Strange,
}

pub(super) struct Judge<'a> {
    shared: &'a Shared,
    pub(super) sheet: Sheet,
}

impl<'a> Judge<'a> {
    pub(super) fn new(shared: &'a Shared, sheet: Sheet) -> Self {
        Judge { shared, sheet }
    }

    /// Takes a reply that came `now`.
    #[inline]
    pub(super) fn take(
        &mut self,
        connection: &mut Connection,
        issuer: &mut Issuer<'_>,
        reply: &Reply<'_>,
        now: u64,
    ) -> Result<(), Desync> {
        while let Some(mut pending) = connection.pending.front().copied() {
            if pending.is_quiet && !is_of_quiet(reply, &pending) {
                self.end_silently(connection, &pending, now);
                continue;
            }
            let says = self.read(connection, issuer, &mut pending, reply);
            match says {
                Says::More => {
                    connection.pending[0] = pending;
                    return Ok(());
                }
                Says::Ends(end) => {
                    self.end(connection, &pending, end, now);
                    return Ok(());
                }
                Says::Strange => break,
            }
        }
        self.sheet.wrong.protocol += 1;
        let asked = connection.pending.front().map_or("nothing", |pending| pending.operation.name());
        let text = format!("a reply to {asked} that it can't have: {}", shown(reply));
        self.sheet.example(|| text.clone());
        Err(Desync(text))
    }

    /// What a reply says of the request in front, and whether its values are right.
    fn read(
        &mut self,
        connection: &mut Connection,
        issuer: &mut Issuer<'_>,
        pending: &mut Pending,
        reply: &Reply<'_>,
    ) -> Says {
        use Operation::{Cas, Debug, Decr, Delete, Flush, Incr, Noop, Stats, Touch, Verbosity, Version};
        let has_several = pending.keys > 1 && !pending.is_quiet;
        match (pending.operation, reply) {
            (_, Reply::Error(_) | Reply::ClientError(_) | Reply::ServerError(_)) => {
                self.fail(pending, reply, has_several)
            }
            (operation, Reply::Value { key, cas, value, .. }) if operation.reads() => {
                self.found(connection, issuer, pending, Some(key), value, *cas);
                Says::More
            }
            (operation, Reply::End) if operation.reads() => Says::Ends(End::Done),
            (operation, Reply::MetaValue { value, flags }) if operation.reads() => {
                self.found(connection, issuer, pending, flags.token(b'k'), value, flags.number(b'c'));
                if pending.keys > 1 { Says::More } else { Says::Ends(End::Done) }
            }
            (operation, Reply::MetaMiss(_)) if operation.reads() => match has_several {
                true => Says::More,
                false => Says::Ends(End::Done),
            },
            (operation, Reply::MetaNoop) if operation.reads() && has_several => Says::Ends(End::Done),
            (operation, Reply::Stored | Reply::MetaDone(_)) if operation.stores() => Says::Ends(End::Done),
            (operation, Reply::NotStored(_)) if operation.stores() => Says::Ends(End::Refused),
            (Cas | Operation::Set, Reply::Exists(_)) => Says::Ends(End::Refused),
            (Cas | Incr | Decr | Touch | Delete, Reply::NotFound(_)) => Says::Ends(End::Missed),
            (Delete, Reply::Deleted | Reply::MetaDone(_)) => Says::Ends(End::Done),
            (Touch, Reply::Touched | Reply::MetaDone(_)) | (Debug, Reply::MetaDebug { .. }) => {
                Says::Ends(End::Done)
            }
            (Touch | Debug, Reply::MetaMiss(_)) => Says::Ends(End::Missed),
            (Incr | Decr, Reply::Number(number)) => {
                self.counted(connection.asked.front().copied(), Some(*number));
                Says::Ends(End::Done)
            }
            (Incr | Decr, Reply::MetaValue { value, .. }) => {
                self.counted(connection.asked.front().copied(), number(value));
                Says::Ends(End::Done)
            }
            (Incr | Decr, Reply::MetaDone(_))
            | (Noop, Reply::MetaNoop)
            | (Version, Reply::Version(_))
            | (Verbosity | Flush, Reply::Ok)
            | (Stats, Reply::End) => Says::Ends(End::Done),
            (Stats, Reply::Stat { .. }) => Says::More,
            _ => Says::Strange,
        }
    }

    fn fail(&mut self, pending: &mut Pending, reply: &Reply<'_>, has_several: bool) -> Says {
        let counts = matches!(pending.change, Change::Count { .. });
        if counts && matches!(reply, Reply::ClientError(_)) {
            // What can't be counted up is no number any more.
            self.sheet.wrong.broken += 1;
            self.sheet.example(|| format!("a counter is no number: {}", shown(reply)));
        }
        pending.has_failed = true;
        let is_meta = pending.entry.is_some_and(|entry| self.protocol(entry) == Protocol::Meta);
        // Of several meta commands, the others are still answered, and the one that ends them.
        if has_several && is_meta && pending.operation.reads() { Says::More } else { Says::Ends(End::Failed) }
    }

    fn protocol(&self, entry: u8) -> Protocol {
        self.shared.plan.mix.0[usize::from(entry)].protocol
    }

    /// A value came: for the next key that is like this, or without a key for the only one.
    fn found(
        &mut self,
        connection: &mut Connection,
        issuer: &mut Issuer<'_>,
        pending: &mut Pending,
        key: Option<&[u8]>,
        value: &[u8],
        cas: Option<u64>,
    ) {
        let found = key.map(|key| self.shared.parse_key(key));
        while pending.keys_left > 0 {
            let Some(asked) = connection.asked.pop_front() else { break };
            pending.keys_left -= 1;
            if found.is_some_and(|found| found != Some((asked.space, asked.key))) {
                self.missed(connection, asked, false);
                continue;
            }
            pending.hits += 1;
            if let (Some(cas), Space::Main) = (cas, asked.space) {
                issuer.learn(asked.key, cas);
            }
            if self.shared.ledger.is_some() {
                self.value(asked, value);
            }
            return;
        }
        self.sheet.wrong.foreign += 1;
        let key = key.map(String::from_utf8_lossy).unwrap_or_default();
        self.sheet.example(|| format!("the value of {key:.40}, which was not asked for"));
    }

    /// Looks at a value that was found for a key.
    fn value(&mut self, asked: Asked, value: &[u8]) {
        let Some(ledger) = &self.shared.ledger else { return };
        let (key, name) = (asked.key, self.shared.name(asked.space, asked.key));
        match asked.space {
            Space::Main => {
                let found = self.shared.maker.inspect(value, key, ledger.likely(key, asked.floor));
                let wrong = &mut self.sheet.wrong;
                let what = match found {
                    Found::Version(version) => match ledger.judge(key, asked.floor, version) {
                        Seen::Right => return,
                        Seen::Stale => {
                            wrong.stale += 1;
                            format!("version {version}, older than what was acknowledged before")
                        }
                        Seen::Unwritten => {
                            wrong.broken += 1;
                            format!("version {version}, which nobody wrote yet")
                        }
                    },
                    Found::Foreign => {
                        wrong.foreign += 1;
                        "the whole value of another key".to_string()
                    }
                    Found::Truncated => {
                        wrong.truncated += 1;
                        format!("{} bytes, not as many as were written", value.len())
                    }
                    Found::Broken => {
                        wrong.broken += 1;
                        format!("{} bytes that nobody wrote", value.len())
                    }
                };
                self.sheet.example(|| format!("{name}: {what}"));
            }
            Space::Counter => self.counted(Some(asked), number(value)),
            Space::Joined => {
                let piece = piece(self.shared.plan.seed, key);
                let pieces = value.chunks(PIECE_BYTES);
                let is_cut = value.is_empty() || !value.len().is_multiple_of(PIECE_BYTES);
                let is_right = pieces.clone().all(|found| piece.starts_with(found));
                match (is_right, is_cut) {
                    (true, false) => {}
                    (true, true) => {
                        self.sheet.wrong.truncated += 1;
                        self.sheet.example(|| format!("{name}: {} bytes are no whole pieces", value.len()));
                    }
                    (false, _) => {
                        self.sheet.wrong.broken += 1;
                        self.sheet.example(|| format!("{name}: pieces that nobody wrote"));
                    }
                }
            }
        }
    }

    /// Looks at a number that was found for a counter; nothing if it was none.
    fn counted(&mut self, asked: Option<Asked>, found: Option<u64>) {
        let Some(asked) = asked else { return };
        let Some(tally) = self.shared.tally(asked.key) else { return };
        let seen = found.map(|found| tally.judge(asked.tally, found));
        let what = match seen {
            Some(Seen::Right) => return,
            Some(Seen::Stale) => {
                self.sheet.wrong.stale += 1;
                "less than what was acknowledged before"
            }
            Some(Seen::Unwritten) => {
                self.sheet.wrong.broken += 1;
                "more than was ever asked for"
            }
            None => {
                self.sheet.wrong.broken += 1;
                "no number"
            }
        };
        let name = self.shared.name(asked.space, asked.key);
        self.sheet.example(|| format!("{name}: {} is {what}", found.unwrap_or_default()));
    }

    /// A key was not there. `own` if the request that says so is the write under way.
    fn missed(&mut self, connection: &mut Connection, asked: Asked, own: bool) {
        if asked.space != Space::Main {
            connection.restore_later(asked.space, asked.key);
            if let Some(tally) = self.shared.tally(asked.key).filter(|_| asked.space == Space::Counter) {
                tally.lose();
            }
            return;
        }
        let Some(ledger) = &self.shared.ledger else { return };
        if !self.shared.may_vanish && ledger.misses(asked.key, asked.floor, own) {
            // Whether that is a fault turns out at the end: the servers may have evicted it.
            self.sheet.wrong.lost += 1;
            let name = self.shared.name(asked.space, asked.key);
            self.sheet.example(|| format!("{name}: was stored, was not deleted, and is not there"));
        }
    }

    /// Ends a quiet request of which nothing was heard.
    fn end_silently(&mut self, connection: &mut Connection, pending: &Pending, now: u64) {
        let is_text = pending.entry.is_some_and(|entry| self.protocol(entry) == Protocol::Text);
        let mut pending = *pending;
        // It may have been done or not: a quiet classic command keeps its refusal to itself, and so does a counter
        // that is not there.
        let is_unsure = match pending.operation {
            Operation::Incr | Operation::Decr => true,
            Operation::Set => false,
            operation => is_text && operation.stores(),
        };
        if is_unsure {
            if matches!(pending.change, Change::Version { .. }) {
                self.written(connection, &pending, Written::Left);
            }
            pending.change = Change::Nothing;
        }
        self.end(connection, &pending, End::Done, now);
    }

    /// Ends the request in front.
    fn end(&mut self, connection: &mut Connection, pending: &Pending, end: End, now: u64) {
        self.settle(connection, pending, end);
        for _ in 0..pending.keys_left {
            let Some(asked) = connection.asked.pop_front() else { break };
            let was_written = matches!(pending.change, Change::Version { .. });
            // A read that ends without them did not find them; of others, only the reply says so.
            let is_missed = match end {
                End::Done => pending.operation.reads() && !pending.has_failed,
                End::Missed => !was_written,
                End::Refused => asked.space == Space::Joined,
                End::Failed => false,
            };
            if is_missed {
                self.missed(connection, asked, false);
            }
        }
        connection.pending.pop_front();
        if pending.entry.is_some() {
            connection.under_way -= 1;
            let end = if pending.has_failed { End::Failed } else { end };
            self.sheet.add(pending, end, now);
        }
    }

    /// What the end of a request means for what it changes.
    fn settle(&mut self, connection: &mut Connection, pending: &Pending, end: End) {
        let asked = connection.asked.front().copied();
        match (pending.change, asked) {
            (Change::Version { mortal }, Some(asked)) => {
                let is_delete = pending.operation == Operation::Delete;
                // What they say of the key's being there is looked at before the word changes.
                let is_absent = match end {
                    End::Done => pending.operation == Operation::Add && !pending.is_quiet,
                    End::Missed => true,
                    End::Refused => pending.operation == Operation::Replace,
                    End::Failed => false,
                };
                if is_absent {
                    self.missed(connection, asked, true);
                }
                let written = match end {
                    End::Done if mortal || is_delete => Written::Removed,
                    End::Done => Written::Stored,
                    End::Missed if is_delete => Written::Removed,
                    End::Missed | End::Refused => Written::Left,
                    End::Failed => Written::Unknown,
                };
                self.written(connection, pending, written);
            }
            (Change::Count { down }, Some(asked)) => {
                if let Some(tally) = self.shared.tally(asked.key) {
                    match end {
                        End::Done => tally.end(down),
                        _ => tally.lose(),
                    }
                }
            }
            _ => {}
        }
    }

    fn written(&self, connection: &Connection, pending: &Pending, written: Written) {
        let Some(asked) = connection.asked.front() else { return };
        debug_assert!(matches!(pending.change, Change::Version { .. }));
        if let Some(ledger) = &self.shared.ledger {
            ledger.end(asked.key, written);
        }
    }
}

/// Whether a reply is to a quiet request, not to the one behind it. Meta commands carry a number; of classic ones only
/// errors are heard, and a barrier follows before anything that could fail itself.
fn is_of_quiet(reply: &Reply<'_>, pending: &Pending) -> bool {
    match reply {
        Reply::Error(_) | Reply::ClientError(_) | Reply::ServerError(_) => true,
        Reply::MetaValue { flags, .. }
        | Reply::MetaDone(flags)
        | Reply::MetaMiss(flags)
        | Reply::NotStored(flags)
        | Reply::Exists(flags)
        | Reply::NotFound(flags) => tag(flags) == Some(pending.opaque.into()),
        _ => false,
    }
}

fn tag(flags: &ReplyFlags<'_>) -> Option<u64> {
    flags.number(b'O')
}

/// A number as a counter holds it: digits, and blanks where it was longer before.
fn number(value: &[u8]) -> Option<u64> {
    keys::parse_key(value.trim_ascii_end(), b"")
}

/// A reply in a few words.
fn shown(reply: &Reply<'_>) -> String {
    let text = match reply {
        Reply::Value { key, value, .. } => {
            format!("VALUE {} with {} bytes", String::from_utf8_lossy(key), value.len())
        }
        Reply::MetaValue { value, .. } => format!("VA with {} bytes", value.len()),
        Reply::Error(text) => format!("ERROR {}", String::from_utf8_lossy(text)),
        Reply::ClientError(text) => format!("CLIENT_ERROR {}", String::from_utf8_lossy(text)),
        Reply::ServerError(text) => format!("SERVER_ERROR {}", String::from_utf8_lossy(text)),
        Reply::Other(line) => String::from_utf8_lossy(line).into_owned(),
        other => format!("{other:?}"),
    };
    text.chars().take(80).collect()
}
