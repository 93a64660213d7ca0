//! Any bytes as a program of commands on a store.

#![no_main]

#[path = "../src/store_model.rs"]
mod store_model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| store_model::check(data));
