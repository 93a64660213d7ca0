//! A command executed again from its record, by the same code that executed it first: this takes the store's place.

use guard::{Digest, Kind, Mismatch};
use protocol::checked::Announcement;
use store::{Answer, Fate, Look, PutMode, Request, Trace, View, crc32c_by_tables};

/// What a validator lends to whoever executes commands again.
pub(crate) struct Replay<'l> {
    look: &'l Look<'l>,
    trace: &'l Trace,
    /// The key it was understood to be about.
    key: &'l mut Vec<u8>,
    fate: Option<Fate>,
    mismatch: Option<Mismatch>,
}

impl<'l> Replay<'l> {
    pub(crate) fn new(look: &'l Look<'l>, trace: &'l Trace, key: &'l mut Vec<u8>) -> Self {
        key.clear();
        Replay { look, trace, key, fate: None, mismatch: None }
    }

    /// Repeats the execution of what the command was understood to be. A checked value that is shown or was put is
    /// verified once more, where it lies and for the key that was asked for.
    pub(crate) fn execute(&mut self, request: &Request<'_>, checked: Option<Announcement>) -> Answer<'l> {
        self.key.clear();
        self.key.extend_from_slice(request.key);
        let repeated =
            self.look.repeat(self.trace, request).and_then(|(answer, fate)| match (checked, answer.item) {
                (Some(announcement), Some(item)) => {
                    verify(announcement, request.key, &item).map(|()| (answer, fate))
                }
                _ => Ok((answer, fate)),
            });
        match repeated {
            Ok((answer, fate)) => {
                self.fate = Some(fate);
                answer
            }
            Err(mismatch) => {
                self.mismatch = Some(mismatch);
                store::nothing()
            }
        }
    }

    /// The value that the command received, which it says to have this length; none of another length.
    pub(crate) fn received(&self, mode: PutMode, len: usize) -> &'l [u8] {
        let value = self.look.received(self.trace, mode, len);
        if value.len() == len { value } else { &[] }
    }

    /// The value that a command received which doesn't say how long it is.
    pub(crate) fn received_all(&self) -> &'l [u8] {
        self.look.received(self.trace, PutMode::Set, 0)
    }

    /// Whether the answer's end belongs to the record.
    pub(crate) fn is_last(&self) -> bool {
        self.trace.is_last
    }

    /// What became of the key's entry, unless something did not agree.
    pub(crate) fn finish(self) -> Result<Fate, Mismatch> {
        match (self.mismatch, self.fate) {
            (Some(mismatch), _) => Err(mismatch),
            (None, Some(fate)) => Ok(fate),
            // Understood as something that is not executed at all.
            (None, None) => Err(Mismatch::new(Kind::Outcome, Digest(1), Digest(0))),
        }
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
