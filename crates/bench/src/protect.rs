//! The Orthrus experiments on memcached, for every way to protect executions that this program has.

pub mod artifact;
pub mod layout;
pub mod system;
