//! What an execution leaves behind so that it can be repeated elsewhere: a trace, and how it lies in a record.
//!
//! A trace never holds a value. It names the items concerned, which a [`Hold`](crate::Inspector) keeps readable, and the
//! words of them that may have changed since. In a record of the guard it takes the caller's five words and the first
//! 32 bytes of the payload; the command itself follows.
//!
//! | word | content |
//! |---|---|
//! | 0 | hash |
//! | 1 | location of the item found (40 bits, all ones for none), fetched, token sent, last of its command |
//! | 2 | location of the item published (40 bits, all ones for none) |
//! | 3 | the time, and the expiry time of the item found |
//! | 4 | last access of the item found, and the CRC of the value received |
//! | payload | flush mark (8 bytes), epoch (8), expiry time of the item published (4), items that vanished before (4), when (8) |
//!
//! Where it is recorded in which order workers change things, word 2 says so, and the [`Order`] comes before the command.

use guard::{Description, Digest, Record, WORDS};

use crate::bucket::Location;
use crate::order::{ORDER_BYTES, Order, part_of};
use crate::request::{Amend, Change, Effect, Env, NewCas, NewValue, Spec, View};

/// Bytes of a record's payload that belong to the trace.
pub(crate) const TRACE_BYTES: usize = 32;

const NOWHERE: u64 = (1 << 40) - 1;
const FETCHED: u64 = 1 << 61;
const TOKEN_SENT: u64 = 1 << 62;
const IS_LAST: u64 = 1 << 63;
const HAS_ORDER: u64 = 1 << 63;

/// What an execution leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    pub(crate) hash: u64,
    pub(crate) env: Env,
    pub(crate) found: Option<Seen>,
    pub(crate) published: Option<Location>,
    /// What was written next to the published item.
    pub(crate) published_exptime: u32,
    /// Of the value that was received, when it was put into an item.
    pub(crate) received: u32,
    pub(crate) effect: u32,
    pub(crate) vanished: u32,
    pub(crate) epoch: u64,
    /// When it was executed, by the caller's clock.
    pub at_ns: u64,
    /// Whether the answer's end belongs to it, as with the last key of several.
    pub is_last: bool,
    /// If that is recorded.
    pub(crate) order: Option<Order>,
}

/// An item that was found, and the words of it that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) location: Location,
    pub(crate) exptime: u32,
    pub(crate) accessed: u32,
    pub(crate) fetched: bool,
    pub(crate) token_sent: bool,
}

impl Seen {
    pub(crate) fn new(location: Location, view: &View<'_>) -> Self {
        let View { exptime, accessed, fetched, token_sent, .. } = *view;
        Seen { location, exptime, accessed, fetched, token_sent }
    }
}

impl Trace {
    /// Unix seconds at which it was executed, and the flush mark.
    #[must_use]
    pub fn env(&self) -> Env {
        self.env
    }

    /// Where it belongs among the executions of other workers, if that was recorded.
    #[must_use]
    pub fn order(&self) -> Option<Order> {
        self.order
    }

    /// The part of the keys in which that counts.
    #[must_use]
    pub fn part(&self) -> usize {
        part_of(self.hash)
    }

    /// The key's hash.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// What [`Vanished::near`](crate::Vanished::near) said before the look-up.
    #[must_use]
    pub fn vanished(&self) -> u32 {
        self.vanished
    }

    /// Both digests of an execution in one: of its effect, and of its reply.
    pub(crate) fn digest(&self, reply: u32) -> Digest {
        Digest(u64::from(self.effect) << 32 | u64::from(reply))
    }

    pub(crate) fn words(&self) -> [u64; WORDS] {
        let found = self.found.map_or(NOWHERE, |seen| {
            let bits = [(seen.fetched, FETCHED), (seen.token_sent, TOKEN_SENT)];
            bits.iter().fold(seen.location.0, |word, (is_set, bit)| word | if *is_set { *bit } else { 0 })
        });
        let exptime = self.found.map_or(0, |seen| seen.exptime);
        let accessed = self.found.map_or(0, |seen| seen.accessed);
        [
            self.hash,
            found | if self.is_last { IS_LAST } else { 0 },
            self.published.map_or(NOWHERE, |location| location.0)
                | if self.order.is_some() { HAS_ORDER } else { 0 },
            u64::from(self.env.now) | u64::from(exptime) << 32,
            u64::from(accessed) | u64::from(self.received) << 32,
        ]
    }

    /// What goes into the payload.
    pub(crate) fn bytes(&self) -> [u8; TRACE_BYTES] {
        let mut bytes = [0; TRACE_BYTES];
        bytes[..8].copy_from_slice(&self.env.flushed_below.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.published_exptime.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.vanished.to_le_bytes());
        bytes[24..].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes
    }

    /// The trace in a record, the digest of its reply, and the command behind it. None when it makes no sense.
    #[must_use]
    pub fn read(record: &Record) -> Option<(Self, u32, &[u8])> {
        let (head, command) = record.payload().split_first_chunk::<TRACE_BYTES>()?;
        let [hash, found, published, times, access] = *record.words();
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let eight = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (flushed_below, epoch, rest) = (eight(0)?, eight(8)?, eight(16)?);
        let location = |word: u64| (word & NOWHERE != NOWHERE).then_some(Location(word & NOWHERE));
        let found_seen = location(found).map(|location| Seen {
            location,
            exptime: high(times),
            accessed: low(access),
            fetched: found & FETCHED != 0,
            token_sent: found & TOKEN_SENT != 0,
        });
        let (order, command) = if published & HAS_ORDER == 0 {
            (None, command)
        } else {
            let (order, command) = command.split_first_chunk::<ORDER_BYTES>()?;
            (Some(Order::read(*order)), command)
        };
        let trace = Trace {
            hash,
            env: Env { now: low(times), flushed_below },
            found: found_seen,
            published: location(published),
            published_exptime: low(rest),
            received: high(access),
            effect: high(record.digest().0),
            vanished: high(rest),
            epoch,
            at_ns: eight(24)?,
            is_last: found & IS_LAST != 0,
            order,
        };
        Some((trace, low(record.digest().0), command))
    }
}

/// Where the item found lies, by a record's words.
pub(crate) fn found(words: &[u64; WORDS]) -> Option<Location> {
    let location = words[1] & NOWHERE;
    (location != NOWHERE).then_some(Location(location))
}

/// A trace as part of a record.
pub(crate) fn description<'p>(trace: &Trace, payload: &'p [u8]) -> Description<'p> {
    Description { words: trace.words(), payload }
}

/// A number that stands for an effect. Of values only the lengths count: what they say is in items, and those have a
/// checksum.
pub(crate) fn digest_of(effect: &Effect<'_>) -> u32 {
    let mut sum = Sum(0x9E37_79B9_7F4A_7C15);
    sum.add(effect.status as u64 | (effect.token as u64) << 8);
    match &effect.change {
        Change::None => sum.add(1),
        Change::Unlink => sum.add(2),
        Change::Amend(Amend { access, token_sent, exptime }) => {
            sum.add(3 | u64::from(*access) << 8 | u64::from(*token_sent) << 9);
            sum.add(exptime.map_or(u64::MAX, u64::from));
        }
        Change::Publish(Spec { flags, exptime, cas, stale, token_sent, value }) => {
            sum.add(4 | u64::from(*stale) << 8 | u64::from(*token_sent) << 9);
            sum.add(u64::from(*flags) << 32 | u64::from(*exptime));
            let (NewCas::Above(id) | NewCas::Exactly(id)) = *cas;
            sum.add(id);
            sum.add(u64::from(matches!(cas, NewCas::Exactly(_))));
            match value {
                NewValue::Joined(first, second) => {
                    sum.add(first.len() as u64);
                    sum.add(second.len() as u64);
                }
                NewValue::Number(digits) => {
                    for chunk in digits.as_bytes().chunks(8) {
                        let mut word = [0; 8];
                        word[..chunk.len()].copy_from_slice(chunk);
                        sum.add(u64::from_le_bytes(word));
                    }
                }
            }
        }
    }
    sum.finish()
}

/// Mixes words by folded multiplication, as wyhash does (Wang, <https://github.com/wangyi-fudan/wyhash>).
struct Sum(u64);

impl Sum {
    #[inline(always)]
    fn add(&mut self, word: u64) {
        // The odd constant keeps a word of zeros from swallowing what was there.
        let product = u128::from(self.0 ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.0 = (product as u64) ^ ((product >> 64) as u64).rotate_left(29) ^ self.0.rotate_left(17);
    }

    fn finish(mut self) -> u32 {
        self.add(0x1656_67B1_9E37_79F9);
        (self.0 ^ self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use guard::{Append, Draft, Next, ring};

    use super::*;
    use crate::request::{Digits, Status, Token};

    #[test]
    fn a_trace_survives_its_record() {
        let seen = Seen {
            location: Location(12_345),
            exptime: 77,
            accessed: 1_700_000_000,
            fetched: true,
            token_sent: false,
        };
        let trace = Trace {
            hash: 0x0123_4567_89AB_CDEF,
            env: Env { now: 1_700_000_001, flushed_below: 9 },
            found: Some(seen),
            published: Some(Location(NOWHERE - 1)),
            published_exptime: 5,
            received: 0xDEAD_BEEF,
            effect: 3,
            vanished: 8,
            epoch: 1 << 40,
            at_ns: 1 << 50,
            is_last: true,
            order: None,
        };
        let other = Seen { fetched: false, token_sent: true, ..seen };
        for trace in [
            trace,
            Trace { found: None, published: None, is_last: false, ..trace },
            Trace { found: Some(other), ..trace },
            Trace { order: Some(Order { number: 1 << 50, is_change: true }), ..trace },
            Trace { order: Some(Order { number: 7, is_change: false }), published: None, ..trace },
        ] {
            let mut payload = trace.bytes().to_vec();
            payload.extend(trace.order.iter().flat_map(|order| order.bytes()));
            payload.extend_from_slice(b"get key\r\n");
            let (mut writer, mut reader) = ring(16);
            let description = description(&trace, &payload);
            let draft = Draft { digest: trace.digest(4), description, ..Draft::default() };
            assert_eq!(writer.append(&draft), Append::Recorded(1));
            writer.commit();
            let mut record = Record::default();
            assert_eq!(reader.next(&mut record), Next::Record);
            assert_eq!(Trace::read(&record), Some((trace, 4, &b"get key\r\n"[..])));
        }
        assert_eq!(Trace::read(&Record::default()), None);
    }

    #[test]
    fn effects_are_told_apart() {
        let spec = Spec {
            flags: 1,
            exptime: 2,
            cas: NewCas::Above(3),
            stale: false,
            token_sent: false,
            value: NewValue::Joined(b"ab", b"c"),
        };
        let number =
            |number| Change::Publish(Spec { value: NewValue::Number(Digits::new(number, 0)), ..spec });
        let amend = Amend { access: true, token_sent: false, exptime: None };
        let changes = [
            Change::None,
            Change::Unlink,
            Change::Amend(amend),
            Change::Amend(Amend { token_sent: true, ..amend }),
            Change::Amend(Amend { exptime: Some(0), ..amend }),
            Change::Publish(spec),
            Change::Publish(Spec { flags: 0, ..spec }),
            Change::Publish(Spec { exptime: 3, ..spec }),
            Change::Publish(Spec { cas: NewCas::Exactly(3), ..spec }),
            Change::Publish(Spec { cas: NewCas::Above(4), ..spec }),
            Change::Publish(Spec { stale: true, ..spec }),
            Change::Publish(Spec { token_sent: true, ..spec }),
            Change::Publish(Spec { value: NewValue::Joined(b"a", b"bc"), ..spec }),
            number(1),
            number(2),
            number(123_456_789),
            number(123_456_780),
        ];
        let mut digests = std::collections::BTreeSet::new();
        for change in changes {
            for status in [Status::Hit, Status::Miss] {
                for token in [Token::None, Token::Won] {
                    let effect = Effect { status, token, change };
                    assert!(digests.insert(digest_of(&effect)), "{effect:?}");
                    assert_eq!(digest_of(&effect), digest_of(&effect));
                }
            }
        }
    }
}
