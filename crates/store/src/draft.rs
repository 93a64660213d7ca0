//! Items whose value is still arriving.

/// Space for a value that arrives in pieces. Dropped without being finished, it gives the space back.
pub struct Draft {
    value: Box<[u8]>,
}

impl Draft {
    /// The space to fill, as long as was asked for.
    pub fn value_mut(&mut self) -> &mut [u8] {
        &mut self.value
    }
}
