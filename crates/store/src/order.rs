//! In which order workers change things, for somebody who has to make the same changes elsewhere.
//!
//! Keys are divided by their hash into [`ORDERS`] parts. In each part, changes are numbered from 1 in the order in which
//! they took hold, as that happens under the key's stripes. A look-up notes the number before it looks: it sees that
//! change and all before it, and maybe later ones. Nothing is counted before somebody asks for it.

use std::sync::OnceLock;

use crate::index::Hash;
use crate::request::{Amend, Change, Effect};
use crate::sync::{AtomicU64, Ordering, Padded};

/// Into how many parts keys are divided: so many that two workers rarely count in the same one.
pub const ORDERS: usize = 1024;

/// Bytes of an order in a record.
pub(crate) const ORDER_BYTES: usize = 8;

/// Where an execution belongs among those of other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Of a change, its number; else that of the last change that was seen for sure.
    pub number: u64,
    /// Whether anything was changed, beyond the note of an access.
    pub is_change: bool,
}

/// How many changes each part has seen.
#[derive(Default)]
pub(crate) struct Orders(OnceLock<Box<[Padded<AtomicU64>]>>);

/// The part that a key belongs to, by its hash.
#[inline]
pub(crate) fn part_of(hash: u64) -> usize {
    // The upper bits: the lower ones choose buckets, which lie behind the same stripes.
    (hash >> 54) as usize
}

impl Orders {
    /// The order of a look-up that comes next.
    pub(crate) fn before(&self, hash: Hash) -> Order {
        Order { number: self.part(hash).load(Ordering::Acquire), is_change: false }
    }

    /// The order of what has taken hold under the key's stripes, which are still held.
    pub(crate) fn after(&self, hash: Hash, effect: &Effect<'_>) -> Order {
        let is_change = match &effect.change {
            Change::None => false,
            Change::Amend(Amend { token_sent, exptime, .. }) => *token_sent || exptime.is_some(),
            Change::Unlink | Change::Publish(_) => true,
        };
        if !is_change {
            return self.before(hash);
        }
        // Release: who sees the number sees the change. Acquire: changes of one key are counted as they were made.
        Order { number: self.part(hash).fetch_add(1, Ordering::AcqRel) + 1, is_change }
    }

    /// How many changes each part has seen.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.parts().iter().map(|part| part.0.load(Ordering::Acquire)).collect()
    }

    fn part(&self, hash: Hash) -> &AtomicU64 {
        &self.parts()[part_of(hash.0)].0
    }

    fn parts(&self) -> &[Padded<AtomicU64>] {
        self.0.get_or_init(|| (0..ORDERS).map(|_| Padded(AtomicU64::new(0))).collect())
    }
}

impl Order {
    pub(crate) fn bytes(self) -> [u8; ORDER_BYTES] {
        (self.number << 1 | u64::from(self.is_change)).to_le_bytes()
    }

    pub(crate) fn read(bytes: [u8; ORDER_BYTES]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Order { number: word >> 1, is_change: word & 1 != 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::request::{Status, Token};

    fn effect(change: Change<'_>) -> Effect<'_> {
        Effect { status: Status::Hit, token: Token::None, change }
    }

    #[test]
    fn changes_are_numbered_by_part() {
        let orders = Orders::default();
        let (here, there) = (Hash(5 << 54 | 77), Hash(6 << 54));
        let access = Change::Amend(Amend { access: true, ..Amend::default() });
        let touch = Change::Amend(Amend { exptime: Some(5), ..Amend::default() });
        let after = |hash, change| {
            let order = orders.after(hash, &effect(change));
            assert_eq!(Order::read(order.bytes()), order);
            (order.number, order.is_change)
        };
        assert_eq!(after(here, Change::None), (0, false));
        assert_eq!(after(here, Change::Unlink), (1, true));
        assert_eq!(after(here, access), (1, false));
        assert_eq!(after(here, touch), (2, true));
        assert_eq!(after(there, Change::Unlink), (1, true));
        assert_eq!(orders.before(here), Order { number: 2, is_change: false });
        assert_eq!(orders.numbers()[4..8], [0, 2, 1, 0]);
    }
}
