//! Values that are held for long.

use std::ops::Deref;

/// A value that stays readable until this is dropped, whatever happens to its key. Its segment is kept meanwhile.
pub struct Pinned {
    value: Box<[u8]>,
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.value
    }
}
