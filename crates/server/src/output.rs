//! What a connection has to send: bytes, and large values between them that are sent from where they lie.
//!
//! Where replies have to be confirmed before they leave, each is noted with the number of its record; nothing is sent
//! before all of them are confirmed, and what is refused is replaced.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;

use guard::Seq;
use store::Pinned;

use crate::driver::{self, Moved};
use crate::session::UNCONFIRMED;
use crate::strata::Dialect;

/// Values above this are not copied: they are sent from the item, which stays pinned until then.
pub(crate) const COPY_BYTES_MAX: usize = 16 << 10;

/// Above this much that was not sent yet, nothing more is executed for the connection. One command can add at most
/// one value to it (16 KiB copied, or a pinned item of any size), as commands for several keys stop between keys.
pub(crate) const QUEUED_BYTES_MAX: usize = 256 << 10;

/// Replies that wait to be confirmed at most; above that, nothing more is executed either.
const HELD_MAX: usize = 4096;

/// Pieces given to the kernel in one call.
const PIECES_MAX: usize = 64;

/// A buffer larger than this is given back when it has been sent.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes that wait to be sent.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` were sent.
    sent: usize,
    /// Values to be sent in front of the byte at their position. Invariant: positions don't fall.
    large: VecDeque<Large>,
    /// What of `large` was not sent.
    large_bytes: usize,
    /// How often answers are made; see [`Output::say`].
    runs: u8,
    /// Answers that did not agree, since the last look, and whether one was refused.
    disagreed: Option<Disagreed>,
    /// Replies that wait to be confirmed, in order; [`HELD_MAX`] at most.
    held: Vec<Held>,
}

/// Where a reply begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    bytes: usize,
    large: usize,
}

impl Mark {
    /// Before everything.
    pub(crate) const START: Mark = Mark { bytes: 0, large: 0 };
}

/// A reply that waits to be confirmed.
struct Held {
    seq: Seq,
    from: Mark,
    to: Mark,
    is_last_key: bool,
    dialect: Dialect,
}

/// What became of an answer whose makings did not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disagreed {
    /// The majority's was taken.
    Repaired,
    /// There was no majority, and nothing is said.
    Refused,
}

struct Large {
    position: usize,
    value: Pinned,
    sent: usize,
}

impl Output {
    /// Where text is appended.
    #[inline]
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes an answer: once, or with redundancy several times, comparing. The majority's is said.
    #[inline]
    pub(crate) fn say<R: PartialEq>(&mut self, make: impl Fn(&mut Vec<u8>) -> R) -> R {
        let start = self.bytes.len();
        let made = make(&mut self.bytes);
        if self.runs < 2 { made } else { self.say_again(start, made, make) }
    }

    /// The end of what was said so far.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), large: self.large.len() }
    }

    /// What was said since the mark, without large values.
    #[inline]
    pub(crate) fn since(&self, mark: Mark) -> &[u8] {
        &self.bytes[mark.bytes..]
    }

    /// Forgets everything, held or not.
    pub(crate) fn clear(&mut self) {
        self.reset();
        self.large.clear();
        self.large_bytes = 0;
    }

    /// The reply since the mark is not to leave before this record is confirmed. With the last of several keys, it holds the
    /// end of the answer.
    pub(crate) fn hold(&mut self, seq: Seq, from: Mark, is_last_key: bool, dialect: Dialect) {
        self.held.push(Held { seq, from, to: self.mark(), is_last_key, dialect });
    }

    /// The record that has to be confirmed before anything is sent; 0 for none.
    pub(crate) fn awaits(&self) -> Seq {
        self.held.last().map_or(0, |held| held.seq)
    }

    /// Everything that was held may be sent.
    pub(crate) fn release(&mut self) {
        self.held.clear();
    }

    /// Replaces the replies of refused records. Whether the connection can go on; if not, nothing is left in it from the
    /// first reply on that can't be replaced.
    pub(crate) fn retract(&mut self, is_refused: impl Fn(Seq) -> bool) -> bool {
        let mut can_go_on = true;
        for index in (0..self.held.len()).rev() {
            if !is_refused(self.held[index].seq) {
                continue;
            }
            if let Some(instead) = self.instead_of(&self.held[index]) {
                self.replace(index, &instead);
            } else {
                self.cut(self.held[index].from);
                self.held.truncate(index);
                can_go_on = false;
            }
        }
        can_go_on
    }

    /// What a client can live with instead of a reply, if there is such a thing.
    fn instead_of(&self, held: &Held) -> Option<Vec<u8>> {
        let reply = &self.bytes[held.from.bytes..held.to.bytes];
        let is_value = reply.starts_with(b"VALUE ") || reply == b"END\r\n";
        match held.dialect {
            // Who expects no answer gets none; a key of several that was a miss has none, either.
            Dialect::Classic | Dialect::Meta if reply.is_empty() => Some(Vec::new()),
            // A key of several: a miss.
            Dialect::Classic if is_value && held.is_last_key => Some(b"END\r\n".into()),
            Dialect::Classic if is_value => Some(Vec::new()),
            Dialect::Classic | Dialect::Meta => Some(format!("{UNCONFIRMED}\r\n").into_bytes()),
            Dialect::Binary | Dialect::Line => None,
        }
    }

    fn replace(&mut self, index: usize, instead: &[u8]) {
        let Held { from, to, .. } = self.held[index];
        for large in self.large.drain(from.large..to.large) {
            self.large_bytes -= large.value.len() - large.sent;
        }
        self.bytes.splice(from.bytes..to.bytes, instead.iter().copied());
        let moved = |position: usize| position - to.bytes + from.bytes + instead.len();
        for large in self.large.iter_mut().skip(from.large) {
            large.position = moved(large.position);
        }
        let moved = |mark: Mark| Mark { bytes: moved(mark.bytes), large: mark.large - to.large + from.large };
        self.held[index].to = moved(to);
        for held in &mut self.held[index + 1..] {
            held.from = moved(held.from);
            held.to = moved(held.to);
        }
    }

    /// Forgets everything from a mark on.
    fn cut(&mut self, from: Mark) {
        self.bytes.truncate(from.bytes);
        self.large.truncate(from.large);
        self.large_bytes = self.large.iter().map(|large| large.value.len() - large.sent).sum();
    }

    /// From now on answers are made so often.
    #[inline]
    pub(crate) fn set_runs(&mut self, runs: u8) {
        self.runs = runs;
    }

    /// Says nothing, because nobody knows what was asked.
    pub(crate) fn refuse(&mut self) {
        self.disagreed = Some(Disagreed::Refused);
    }

    /// What disagreed since the last look.
    #[inline]
    pub(crate) fn take_disagreed(&mut self) -> Option<Disagreed> {
        self.disagreed.take()
    }

    #[inline(never)]
    fn say_again<R: PartialEq>(&mut self, start: usize, made: R, make: impl Fn(&mut Vec<u8>) -> R) -> R {
        let run = |answer: &mut Vec<u8>| {
            answer.clear();
            // So that the compiler can't take an earlier run's answer for this one's.
            std::hint::black_box(&make)(std::hint::black_box(answer))
        };
        let (mut second, mut third) = (Vec::new(), Vec::new());
        for _ in 1..self.runs {
            let again = run(&mut second);
            if again == made && second == self.bytes[start..] {
                continue;
            }
            let deciding = run(&mut third);
            if deciding == made && third == self.bytes[start..] {
                self.disagreed = self.disagreed.or(Some(Disagreed::Repaired));
                continue;
            }
            self.bytes.truncate(start);
            if deciding == again && third == second {
                self.disagreed = self.disagreed.or(Some(Disagreed::Repaired));
                self.bytes.extend_from_slice(&second);
            } else {
                self.disagreed = Some(Disagreed::Refused);
            }
            return again;
        }
        made
    }

    /// Appends a value without copying it.
    pub(crate) fn pinned(&mut self, value: Pinned) {
        if !value.is_empty() {
            self.large_bytes += value.len();
            self.large.push_back(Large { position: self.bytes.len(), value, sent: 0 });
        }
    }

    /// How many bytes wait.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.bytes.len() - self.sent + self.large_bytes
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.large.is_empty()
    }

    /// Whether so much waits that nothing should be added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.queued() >= QUEUED_BYTES_MAX || self.held.len() >= HELD_MAX
    }

    /// The memory this holds, without the values, which belong to the store.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.large.capacity() * size_of::<Large>()
            + self.held.capacity() * size_of::<Held>()
    }

    /// Sends what the socket takes. `Bytes` when all was sent.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> Moved {
        let mut total = 0;
        loop {
            if self.is_empty() {
                self.reset();
                return Moved::Bytes(total);
            }
            let moved = if self.large.is_empty() {
                driver::write(&socket, &self.bytes[self.sent..])
            } else {
                self.send_pieces(&socket)
            };
            match moved {
                Moved::Bytes(count) => {
                    self.advance(count);
                    total += count;
                }
                other => {
                    self.compact();
                    return other;
                }
            }
        }
    }

    /// Forgets what was sent, so that a reader that is always a little late does not make the buffer grow for ever.
    fn compact(&mut self) {
        if self.sent < QUEUED_BYTES_MAX {
            return;
        }
        self.bytes.drain(..self.sent);
        for large in &mut self.large {
            large.position -= self.sent;
        }
        self.sent = 0;
    }

    fn send_pieces(&self, socket: impl AsFd) -> Moved {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut from = self.sent;
        for large in &self.large {
            if count + 2 > PIECES_MAX {
                return driver::write_vectored(socket, &pieces[..count]);
            }
            if from < large.position {
                pieces[count] = IoSlice::new(&self.bytes[from..large.position]);
                from = large.position;
                count += 1;
            }
            pieces[count] = IoSlice::new(&large.value[large.sent..]);
            count += 1;
        }
        if from < self.bytes.len() && count < PIECES_MAX {
            pieces[count] = IoSlice::new(&self.bytes[from..]);
            count += 1;
        }
        driver::write_vectored(socket, &pieces[..count])
    }

    /// Notes that `count` more bytes were sent.
    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(large) = self.large.front_mut() else {
                self.sent += count;
                assert!(self.sent <= self.bytes.len(), "no more is sent than there was");
                return;
            };
            if self.sent < large.position {
                let step = count.min(large.position - self.sent);
                self.sent += step;
                count -= step;
                continue;
            }
            let step = count.min(large.value.len() - large.sent);
            large.sent += step;
            self.large_bytes -= step;
            count -= step;
            if large.sent == large.value.len() {
                self.large.pop_front();
            }
        }
    }

    fn reset(&mut self) {
        self.held.clear();
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Makes an answer several times, of which the makings named by `sick` go wrong; what is said then.
    fn check(runs: u8, sick: u32, said: &str, disagreed: Option<Disagreed>) {
        let mut out = Output::default();
        out.set_runs(runs);
        out.text().extend_from_slice(b"before ");
        let number = Cell::new(0);
        out.say(|bytes| {
            let is_sick = sick >> number.get() & 1 != 0;
            let wrong = if number.get() == 0 { b"first!" } else { b"wrong!" };
            number.set(number.get() + 1);
            bytes.extend_from_slice(if is_sick { wrong } else { b"answer" });
        });
        assert_eq!(out.take_disagreed(), disagreed, "{runs} runs, sick {sick:b}");
        assert_eq!(std::str::from_utf8(&out.bytes), Ok(said), "{runs} runs, sick {sick:b}");
        assert_eq!(out.take_disagreed(), None);
    }

    #[test]
    fn answers_are_compared() {
        check(1, 0b0, "before answer", None);
        check(1, 0b1, "before first!", None);
        check(2, 0b0, "before answer", None);
        check(2, 0b1, "before answer", Some(Disagreed::Repaired));
        check(2, 0b10, "before answer", Some(Disagreed::Repaired));
        check(2, 0b101, "before ", Some(Disagreed::Refused));
        check(5, 0b10, "before answer", Some(Disagreed::Repaired));
        check(5, 0b0, "before answer", None);
    }
}
