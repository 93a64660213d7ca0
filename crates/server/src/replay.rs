//! A command executed again from its record, by the same code that executed it first: this takes the store's place.

use guard::{Kind, Mismatch};
use store::{Answer, Look, PutMode, Request, Trace};

/// What a validator lends to whoever executes commands again.
pub(crate) struct Replay<'l> {
    look: &'l Look<'l>,
    trace: &'l Trace,
    /// The key it was understood to be about.
    key: &'l mut Vec<u8>,
    /// Whether the command came so far as to be executed.
    was_executed: bool,
    mismatch: Option<Mismatch>,
}

impl<'l> Replay<'l> {
    pub(crate) fn new(look: &'l Look<'l>, trace: &'l Trace, key: &'l mut Vec<u8>) -> Self {
        key.clear();
        Replay { look, trace, key, was_executed: false, mismatch: None }
    }

    /// Repeats the execution of what the command was understood to be.
    pub(crate) fn execute(&mut self, request: &Request<'_>) -> Answer<'l> {
        self.was_executed = true;
        self.key.clear();
        self.key.extend_from_slice(request.key);
        self.look.repeat(self.trace, request).unwrap_or_else(|mismatch| {
            self.mismatch = Some(mismatch);
            store::nothing()
        })
    }

    /// The value that the command received.
    pub(crate) fn received(&self, mode: PutMode, len: usize) -> &'l [u8] {
        self.look.received(self.trace, mode, len)
    }

    /// Whether the answer's end belongs to the record.
    pub(crate) fn is_last(&self) -> bool {
        self.trace.is_last
    }

    /// What did not agree so far.
    pub(crate) fn finish(self) -> Result<(), Mismatch> {
        match self.mismatch {
            Some(mismatch) => Err(mismatch),
            // Understood as something that is not executed at all.
            None if !self.was_executed => {
                Err(Mismatch::new(Kind::Outcome, guard::Digest(1), guard::Digest(0)))
            }
            None => Ok(()),
        }
    }
}
