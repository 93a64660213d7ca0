//! The `veracache` command-line program.

fn main() {}
