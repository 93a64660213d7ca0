//! Any bytes as replies of a server, in text and binary.

#![no_main]

#[path = "../src/replies.rs"]
mod replies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| replies::check(data));
