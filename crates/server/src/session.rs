//! How far a connection's client is: which protocol it speaks, and what of it was understood and not finished.
//!
//! Bytes in, answers out: nothing here knows a socket.

use store::{Draft, Status};

use crate::connection::Speaks;
use crate::dump::{Dump, Progress};
use crate::execute::Executor;
use crate::output::{Disagreed, Output};
use crate::{binary, line, text};

/// Values above this are written to their item as they arrive; smaller ones wait for their end in the input: an item
/// that is not whole keeps the segment it shares with others from being used again.
const DRAFT_BYTES_MIN: usize = 16 << 10;

/// What is answered when executions of a command don't agree: nothing was changed.
pub(crate) const DISAGREED: &str = "SERVER_ERROR executions disagree";

/// What is answered instead of a reply whose execution disagreed with its repetition, or could not be repeated.
pub(crate) const UNCONFIRMED: &str = "SERVER_ERROR execution was not confirmed";

/// Why a session stopped using its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It needs more.
    More,
    /// There is so much to send that nothing more is done before.
    Full,
    /// Others should have their turn.
    Yield,
    /// The connection is to be closed when everything is sent.
    Close,
}

/// What a protocol made of the input.
pub(crate) enum Outcome {
    /// So many bytes were used, and what there is to say was said.
    Used(usize),
    /// The same, and then this is to be done.
    Then(usize, Work),
    /// More bytes are needed. With a value, none of whose bytes has to come first.
    More {
        /// Whether a command waits for its value.
        for_value: bool,
    },
    /// Nothing was used, as there is too much to send.
    Full,
    /// The connection is to be closed.
    Close,
}

/// What is in progress.
#[derive(Default)]
pub(crate) enum Work {
    /// Nothing: a command comes next.
    #[default]
    Commands,
    /// Bytes to be ignored.
    Swallow(u64),
    /// A value arrives.
    Fill(Box<Fill>),
    /// All items are being listed.
    Dump(Box<Dump>),
}

/// A value that arrives in pieces, straight into its item.
pub(crate) struct Fill {
    pub(crate) draft: Draft,
    filled: usize,
    /// The line or header of the command, to be understood again when the value is there.
    pub(crate) command: Box<[u8]>,
}

impl Fill {
    /// Begins with what of the value is there; how much of it was taken.
    pub(crate) fn begin(draft: Draft, command: &[u8], value: &[u8]) -> (Self, usize) {
        let mut fill = Fill { draft, filled: 0, command: command.into() };
        let taken = fill.take(value);
        (fill, taken)
    }

    /// Takes bytes of the value; how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    /// Where the next bytes of the value belong.
    fn room(&mut self) -> &mut [u8] {
        &mut self.draft.buffer()[self.filled..]
    }

    fn is_complete(&mut self) -> bool {
        self.room().is_empty()
    }
}

/// Whether a value of this length, of which so much is there, should be written to its item as it arrives.
pub(crate) fn wants_draft(len: usize, there: usize) -> bool {
    len > DRAFT_BYTES_MIN && len > there
}

/// One client's conversation.
pub(crate) struct Session {
    speaks: Speaks,
    work: Work,
    /// Keys of the command at the front of the input that were answered already.
    pub(crate) keys_done: usize,
    /// Bytes at the front of the input that hold no line end.
    searched: usize,
    awaits_value: bool,
}

impl Session {
    pub(crate) fn new(speaks: Speaks) -> Self {
        Session { speaks, work: Work::Commands, keys_done: 0, searched: 0, awaits_value: false }
    }

    /// Where bytes of an arriving value may be read to directly.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        match &mut self.work {
            Work::Fill(fill) => Some(fill.room()).filter(|room| !room.is_empty()),
            _ => None,
        }
    }

    /// Notes that bytes were read to where [`Session::room`] said.
    pub(crate) fn filled(&mut self, count: usize) {
        if let Work::Fill(fill) = &mut self.work {
            fill.filled += count;
        }
    }

    /// Whether a command waits for its value.
    pub(crate) fn awaits_value(&self) -> bool {
        self.awaits_value || matches!(self.work, Work::Fill(_))
    }

    /// Uses as much of the input as can be used; how much, and why no more.
    pub(crate) fn consume(
        &mut self,
        input: &[u8],
        executor: &mut Executor<'_>,
        out: &mut Output,
    ) -> (usize, Verdict) {
        let mut used = 0;
        self.awaits_value = false;
        loop {
            let rest = &input[used..];
            let outcome = match &mut self.work {
                Work::Commands if rest.is_empty() => return (used, Verdict::More),
                Work::Commands if out.is_full() => return (used, Verdict::Full),
                Work::Commands if !executor.may_go_on() => return (used, Verdict::Yield),
                Work::Commands => {
                    executor.begin(out);
                    let outcome = self.command(rest, executor, out);
                    settle(outcome, executor, out)
                }
                Work::Swallow(bytes) => {
                    let count = usize::try_from(*bytes).unwrap_or(usize::MAX).min(rest.len());
                    *bytes -= count as u64;
                    used += count;
                    if *bytes > 0 {
                        return (used, Verdict::More);
                    }
                    Outcome::Then(0, Work::Commands)
                }
                Work::Fill(fill) => {
                    let count = fill.take(rest);
                    used += count;
                    if !fill.is_complete() {
                        return (used, Verdict::More);
                    }
                    executor.begin(out);
                    let outcome = self.finish_fill(&input[used..], executor, out);
                    settle(outcome, executor, out)
                }
                Work::Dump(dump) => match dump.go_on(executor, out) {
                    Progress::Done => Outcome::Then(0, Work::Commands),
                    Progress::Paused if out.is_full() => return (used, Verdict::Full),
                    Progress::Paused => return (used, Verdict::Yield),
                },
            };
            match outcome {
                Outcome::Used(count) => used += count,
                Outcome::Then(count, work) => {
                    used += count;
                    self.work = work;
                }
                Outcome::More { for_value } => {
                    self.awaits_value = for_value;
                    return (used, Verdict::More);
                }
                Outcome::Full => return (used, Verdict::Full),
                Outcome::Close => return (used, Verdict::Close),
            }
        }
    }

    fn command(&mut self, input: &[u8], executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
        if self.speaks == Speaks::Unknown {
            self.speaks =
                if input[0] == protocol::binary::MAGIC_REQUEST { Speaks::Binary } else { Speaks::Text };
        }
        match self.speaks {
            Speaks::Unknown | Speaks::Text => text::command(input, &mut self.keys_done, executor, out),
            Speaks::Binary => binary::command(input, executor, out),
            Speaks::Line => line::command(input, &mut self.searched, executor, out),
        }
    }

    /// The value has arrived: the command it belongs to is executed.
    fn finish_fill(&mut self, input: &[u8], executor: &mut Executor<'_>, out: &mut Output) -> Outcome {
        let needed = if self.speaks == Speaks::Binary { 0 } else { text::VALUE_END.len() };
        if input.len() < needed {
            return Outcome::More { for_value: true };
        }
        let Work::Fill(fill) = std::mem::take(&mut self.work) else { return Outcome::Used(0) };
        let Fill { draft, command, .. } = *fill;
        if self.speaks == Speaks::Binary {
            binary::finish(&command, draft, executor, out);
        } else {
            text::finish(&command, draft, &input[..needed], executor, out);
        }
        Outcome::Used(needed)
    }
}

/// Reports answers that did not agree. Where one had no majority, the client can't be told anything: it is left.
#[inline]
fn settle(outcome: Outcome, executor: &Executor<'_>, out: &mut Output) -> Outcome {
    match out.take_disagreed() {
        None => outcome,
        Some(disagreed) => {
            executor.report(guard::Kind::Reply);
            if disagreed == Disagreed::Refused { Outcome::Close } else { outcome }
        }
    }
}

/// What is to be done about a value that can't be stored.
pub(crate) fn refusal(status: Status) -> &'static str {
    match status {
        Status::TooLarge => protocol::text::TOO_LARGE,
        Status::Disagreed => DISAGREED,
        Status::BadChecksum => protocol::text::BAD_CHECKSUM,
        _ => protocol::text::NO_MEMORY_TO_STORE,
    }
}
