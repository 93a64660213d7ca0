//! Shows what records say: a page for a browser, and the same for a terminal.
//!
//! A report is a pure function of records. It knows their common part and the figures in their results, and nothing
//! about how each kind of measurement comes to them.

pub mod figures;
