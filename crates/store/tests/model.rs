//! Random programs over all operations, compared with a map, in stores of several shapes. The body is that of the fuzz
//! target.

#![cfg(not(loom))]

mod common;

#[path = "../../../fuzz/src/store_model.rs"]
mod store_model;

use common::{Random, seed};
use store::StoreOptions;
use store_model::hand::{self, Mode};
use store_model::{Outcome, Shape};

fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    std::iter::repeat_with(|| random.next() as u8).take(length).collect()
}

fn check(shape: Shape, program_bytes: usize) -> Outcome {
    let seed = seed();
    let program = random_bytes(&mut Random::new(seed), program_bytes);
    let options = StoreOptions { seed, ..shape.options };
    let mode = shape.mode;
    let outcome = store_model::run(&Shape { options, ..shape }, &program);
    println!("{outcome:?}");
    assert_eq!(outcome.validated > 0, mode == Mode::Orthrus);
    assert!(outcome.commands > program_bytes as u64 / 20);
    outcome
}

fn shape(mode: Mode, keys: usize, value_bytes_max: usize, check_every: usize) -> Shape {
    Shape {
        options: StoreOptions::default(),
        mode,
        keys,
        value_bytes_max,
        check_every,
        is_limit_moving: false,
    }
}

/// With values of up to a twentieth of the memory, room is only lacking while something is held.
fn scarce(memory_bytes: u64, shape: Shape) -> Shape {
    let item_bytes_max = (memory_bytes / 20) as u32;
    let options = StoreOptions { memory_bytes, item_bytes_max, ..shape.options };
    Shape { options, is_limit_moving: true, ..shape }
}

in_every_mode!(
    few_keys_every_step_checked,
    many_keys_and_a_growing_index,
    little_memory,
    little_memory_and_no_eviction,
    large_items,
    without_cas_ids,
);

fn few_keys_every_step_checked(mode: Mode) {
    let outcome = check(shape(mode, 10, 2_000, 1), 50_000);
    assert_eq!(outcome.forgotten, 0);
}

fn many_keys_and_a_growing_index(mode: Mode) {
    let shape = shape(mode, 30_000, 200, 20_000);
    check(Shape { options: StoreOptions { hash_power: Some(7), ..shape.options }, ..shape }, 700_000);
}

fn little_memory(mode: Mode) {
    check(scarce(2 << 20, shape(mode, 3_000, 8_000, 2_000)), 400_000);
}

fn little_memory_and_no_eviction(mode: Mode) {
    let shape = scarce(2 << 20, shape(mode, 1_000, 8_000, 1_000));
    let outcome = check(Shape { options: StoreOptions { evict: false, ..shape.options }, ..shape }, 50_000);
    assert_eq!(outcome.forgotten, 0);
}

fn large_items(mode: Mode) {
    check(scarce(8 << 20, shape(mode, 60, 300_000, 50)), 24_000);
}

fn without_cas_ids(mode: Mode) {
    let shape = shape(mode, 20, 100, 100);
    check(Shape { options: StoreOptions { cas: false, ..shape.options }, ..shape }, 60_000);
}

/// Short programs in stores of every shape that the fuzzer tries.
#[test]
fn any_bytes() {
    let mut random = Random::new(seed());
    for number in 0..300 {
        let length = random.below(1_000);
        let program = random_bytes(&mut random, length);
        println!("program {number}");
        store_model::check(&program);
    }
}
