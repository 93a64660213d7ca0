//! Any bytes as requests of a client, in each protocol.

#![no_main]

#[path = "../src/requests.rs"]
mod requests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| requests::check(data));
