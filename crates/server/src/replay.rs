//! A command executed again from its record, by the same code that executed it first: this takes the store's place.

use guard::{Digest, Kind, Mismatch, Turn};
use protocol::checked::Announcement;
use store::{Answer, Fate, Look, PutMode, Request, Trace, View, crc32c_by_tables};

use crate::execute::Executor;
use crate::output::Output;
use crate::replica::{Made, Mirror, Occasion};
use crate::strata::Dialect;
use crate::{binary, line, text};

/// What a validator or a replica lends to whoever executes commands again.
pub(crate) struct Replay<'l> {
    source: Source<'l>,
    trace: &'l Trace,
    /// The key it was understood to be about.
    key: &'l mut Vec<u8>,
    /// What came of it; none before the command came so far as to be executed.
    found: Option<Result<Found, Mismatch>>,
}

/// Where the items are.
enum Source<'l> {
    /// Where the first execution found and left them.
    Items(&'l Look<'l>),
    /// In a store of its own. It is lent to the one execution there is.
    Mirror { mirror: Option<&'l mut Mirror>, at: Occasion<'l>, received: &'l [u8] },
}

/// What was found, unless something did not agree.
enum Found {
    /// What became of the key's entry.
    Fate(Fate),
    /// What came of it in a store of its own.
    Turn(Turn),
}

impl<'l> Replay<'l> {
    pub(crate) fn new(look: &'l Look<'l>, trace: &'l Trace, key: &'l mut Vec<u8>) -> Self {
        key.clear();
        Replay { source: Source::Items(look), trace, key, found: None }
    }

    /// `received` is the value that was put, or that it became a part of.
    pub(crate) fn mirrored(
        mirror: &'l mut Mirror,
        at: Occasion<'l>,
        received: &'l [u8],
        key: &'l mut Vec<u8>,
    ) -> Self {
        key.clear();
        let source = Source::Mirror { mirror: Some(mirror), at, received };
        Replay { source, trace: at.trace, key, found: None }
    }

    /// Repeats the execution of what the command was understood to be. A checked value that is shown or was put is
    /// verified once more, where it lies and for the key that was asked for.
    pub(crate) fn execute(&mut self, request: &Request<'_>, checked: Option<Announcement>) -> Answer<'l> {
        self.key.clear();
        self.key.extend_from_slice(request.key);
        let repeated = self.repeat(request).and_then(|(answer, found)| match (checked, answer.item) {
            (Some(announcement), Some(item)) => {
                verify(announcement, request.key, &item).map(|()| (answer, found))
            }
            _ => Ok((answer, found)),
        });
        match repeated {
            Ok((answer, found)) => {
                self.found = Some(Ok(found));
                answer
            }
            Err(mismatch) => {
                self.found = Some(Err(mismatch));
                store::nothing()
            }
        }
    }

    fn repeat(&mut self, request: &Request<'_>) -> Result<(Answer<'l>, Found), Mismatch> {
        let made = match &mut self.source {
            Source::Items(look) => {
                let (answer, fate) = look.repeat(self.trace, request)?;
                return Ok((answer, Found::Fate(fate)));
            }
            Source::Mirror { mirror, at, .. } => match mirror.take() {
                Some(mirror) => mirror.execute(at, request),
                None => Made::Unknown,
            },
        };
        match made {
            Made::Answer(answer) => Ok((answer, Found::Turn(Turn::Agrees))),
            Made::Later => Ok((store::nothing(), Found::Turn(Turn::Later))),
            Made::Unknown => Ok((store::nothing(), Found::Turn(Turn::Unknown))),
            Made::Disagrees(mismatch) => Err(mismatch),
        }
    }

    /// The value that the command received, which it says to have this length; none of another length.
    pub(crate) fn received(&self, mode: PutMode, len: usize) -> &'l [u8] {
        let value = self.part_received(mode, len);
        if value.len() == len { value } else { &[] }
    }

    /// The value that a command received which doesn't say how long it is.
    pub(crate) fn received_all(&self) -> &'l [u8] {
        self.part_received(PutMode::Set, 0)
    }

    fn part_received(&self, mode: PutMode, len: usize) -> &'l [u8] {
        match &self.source {
            Source::Items(look) => look.received(self.trace, mode, len),
            Source::Mirror { received, .. } => store::part_received(received, mode, len),
        }
    }

    /// Whether the answer's end belongs to the record.
    pub(crate) fn is_last(&self) -> bool {
        self.trace.is_last
    }

    /// What became of the key's entry, unless something did not agree.
    pub(crate) fn fate(self) -> Result<Fate, Mismatch> {
        match self.found {
            Some(Ok(Found::Fate(fate))) => Ok(fate),
            Some(Err(mismatch)) => Err(mismatch),
            // Understood as something that is not executed at all.
            _ => Err(Mismatch::new(Kind::Outcome, Digest(1), Digest(0))),
        }
    }

    /// What came of it in a store of its own.
    pub(crate) fn turn(self) -> Result<Turn, Mismatch> {
        match self.found {
            Some(Ok(Found::Turn(turn))) => Ok(turn),
            Some(Err(mismatch)) => Err(mismatch),
            _ => Err(Mismatch::new(Kind::Outcome, Digest(1), Digest(0))),
        }
    }
}

/// Executes a recorded command again.
pub(crate) fn execute(dialect: Dialect, command: &[u8], executor: &mut Executor<'_>, out: &mut Output) {
    match dialect {
        Dialect::Classic | Dialect::Meta => text::repeat(command, executor, out),
        Dialect::Binary => binary::repeat(command, executor, out),
        Dialect::Line => line::repeat(command, executor, out),
    }
}

/// By another routine than the worker's.
fn verify(announcement: Announcement, key: &[u8], item: &View<'_>) -> Result<(), Mismatch> {
    let agrees = announcement.agrees(key, item.flags, item.value, crc32c_by_tables);
    guard::compare(Kind::Checksum, Digest(1), Digest(u64::from(agrees)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checked_value_is_verified_where_it_lies() {
        let announcement = Announcement::new(16).expect("a bit of 32");
        let check = |key: &[u8], flags, value: &[u8], expected| {
            let item = View {
                key,
                value,
                flags,
                exptime: 0,
                cas: 1,
                birth: 1,
                accessed: 0,
                fetched: false,
                stale: false,
                token_sent: false,
            };
            let found = verify(announcement, b"key", &item).map_err(|mismatch| mismatch.kind);
            assert_eq!(found, expected, "{value:?}");
        };
        let flags = announcement.mask();
        let trailer = announcement.trailer(b"key", flags, b"content", store::crc32c);
        let value = [b"content", &trailer[..]].concat();
        check(b"key", flags, &value, Ok(()));
        // What was found under another key is compared for the one that was asked for.
        check(b"kez", flags, &value, Ok(()));
        for bit in 0..8 * value.len() {
            let mut value = value.clone();
            value[bit / 8] ^= 1 << (bit % 8);
            check(b"key", flags, &value, Err(Kind::Checksum));
            check(b"key", 0, &value, Ok(()));
        }
        check(b"key", flags | 1, &value, Err(Kind::Checksum));
    }
}
