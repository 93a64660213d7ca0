//! A wrong value is known as what it is.

use super::*;

fn value(maker: &Maker, key: u64, version: u32, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    maker.push(&mut out, key, version, bytes);
    assert_eq!(out.len(), bytes);
    out
}

#[test]
fn a_value_is_recognized() {
    let maker = Maker::new(5, 100_000);
    for bytes in [4, 8, 19, 20, 21, 100, 4096, 100_000] {
        let found = maker.inspect(&value(&maker, 9, 3, bytes), 9, [5, 4, 3, 2]);
        assert_eq!(found, Found::Version(3), "{bytes} bytes");
        assert_ne!(value(&maker, 9, 3, bytes), value(&maker, 9, 4, bytes));
        assert_ne!(value(&maker, 9, 3, bytes), value(&maker, 8, 3, bytes));
        assert_ne!(value(&maker, 9, 3, bytes), value(&Maker::new(6, 100_000), 9, 3, bytes));
    }
    assert_eq!(maker.inspect(b"", 9, [1]), Found::Version(1), "nothing is the same in every version");
}

#[test]
fn every_flipped_bit_is_found() {
    let maker = Maker::new(5, 100);
    for bytes in [8, 40] {
        let whole = value(&maker, 9, 3, bytes);
        for bit in 0..bytes * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(maker.inspect(&broken, 9, [3, 2]), Found::Broken, "{bytes} bytes, bit {bit}");
        }
    }
}

#[test]
fn another_keys_value_is_foreign() {
    let maker = Maker::new(5, 100);
    assert_eq!(maker.inspect(&value(&maker, 8, 3, 50), 9, [3]), Found::Foreign);
    assert_eq!(maker.inspect(&value(&Maker::new(6, 100), 9, 3, 50), 9, [3]), Found::Foreign);
    assert_eq!(maker.inspect(&value(&maker, 8, 3, 10), 9, [3]), Found::Broken, "too short to tell");
}

#[test]
fn a_cut_value_is_truncated() {
    let maker = Maker::new(5, 100);
    let whole = value(&maker, 9, 3, 60);
    for bytes in [HEADER_BYTES, 21, 59] {
        assert_eq!(maker.inspect(&whole[..bytes], 9, [3]), Found::Truncated, "{bytes} bytes");
    }
    // Spaces behind it, as a server that pads would send.
    let padded = [&whole[..], b"  "].concat();
    assert_eq!(maker.inspect(&padded, 9, [3]), Found::Truncated);
    // A length that is no length of ours.
    let mut broken = whole;
    broken[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(maker.inspect(&broken, 9, [3]), Found::Broken);
}

#[test]
fn sizes_have_their_law() {
    const DRAWS: usize = 50_000;
    let check = |text: &str, mean: f64, tolerance: f64| {
        let sizes: Sizes = text.parse().unwrap();
        assert_eq!(sizes.to_string(), text);
        let mut random = Random::new(2);
        let draws: Vec<usize> = (0..DRAWS).map(|_| sizes.draw(&mut random, 1 << 20)).collect();
        let found = draws.iter().sum::<usize>() as f64 / DRAWS as f64;
        assert!((found - mean).abs() < tolerance, "{text}: mean {found}, not {mean}");
        let largest = sizes.largest(1 << 20) as usize;
        assert!(draws.iter().all(|bytes| *bytes <= largest));
    };
    check("100", 100.0, 1e-9);
    check("0-10", 5.0, 0.1);
    check("32:9,4096:1", 438.4, 25.0);
    check("normal:500,20", 500.0, 0.5);
    // Mean of the generalized Pareto: location + scale / (1 − shape).
    check("pareto:0,214.476,0.348238", 329.1, 15.0);
    // And of the extreme value law: location + scale · (Γ(1 − shape) − 1) / shape.
    check("gev:30.7984,8.20449,0.078688", 36.2, 0.4);
}

#[test]
fn other_sizes_are_refused() {
    for text in ["", "x", "5-1", "1:0", "1:-1", "normal:1", "pareto:1,0,1", "99999999999", "1:NaN"] {
        assert_eq!(text.parse::<Sizes>().expect_err(text).exit_code(), 2);
    }
    assert_eq!(Sizes::Fixed(500).draw(&mut Random::new(1), 100), 100);
}
