//! What a command comes to.

use crate::request::{Status, Token, View};

/// The outcome of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'w> {
    /// What to say.
    pub status: Status,
    /// Recache token.
    pub token: Token,
    /// Of a hit: the version found, as it was before this access, but with the expiry time a touch gave it.
    /// Of anything that was written (put, arith, vivify, a delete that keeps the item): the new version.
    pub item: Option<View<'w>>,
}
