//! Problems whose answers were computed when the program was built, by another machine and in another way.
//!
//! They ask for what commands ask for: checksums, the arithmetic of hashing, decimal numbers, comparing and copying
//! bytes. A core that always gets one of these wrong is told from one that doesn't; what happens rarely, or with other
//! operands, they can't tell.

use std::hint::black_box;

/// Bytes that are summed, compared and copied: as many as a common item has.
const BYTES: usize = 512;

/// How often all problems are posed. Takes less than a millisecond.
const ROUNDS: usize = 16;

/// What is asked of a core.
pub(super) struct Routines {
    pub(super) crc: fn(u32, &[u8]) -> u32,
    pub(super) crc_by_tables: fn(u32, &[u8]) -> u32,
    pub(super) mix: fn(u64, u64) -> u64,
    pub(super) parse: fn(&str) -> Option<u64>,
    pub(super) divide: fn(u64, u64) -> u64,
    pub(super) is_same: fn(&[u8], &[u8]) -> bool,
}

/// Those that commands use, where they can be had.
pub(super) const ROUTINES: Routines = Routines {
    crc: store::crc32c,
    crc_by_tables: store::crc32c_by_tables,
    mix,
    parse: |text| text.parse().ok(),
    divide: |number, by| number / by,
    is_same: |one, other| one == other,
};

/// Computed by the compiler.
const PATTERN: [u8; BYTES] = pattern();
const PATTERN_CRC: u32 = crc_by_bits(&PATTERN);
const MIXED: u64 = mix_chain();
const QUOTIENT: u64 = 18_446_744_073_709_551_557 / 4_294_967_291;

/// Decimal numbers around the places where carries happen.
const DECIMALS: [(&str, u64); 8] = [
    ("0", 0),
    ("9", 9),
    ("10", 10),
    ("65535", u16::MAX as u64),
    ("4294967296", 1 << 32),
    ("9999999999999999999", 9_999_999_999_999_999_999),
    ("12345678901234567890", 12_345_678_901_234_567_890),
    ("18446744073709551615", u64::MAX),
];

/// Whether this core has every answer right, every time.
pub(super) fn solves(routines: &Routines) -> bool {
    (0..ROUNDS).all(|_| sums(routines) && mixes(routines) && numbers(routines) && compares(routines))
}

fn sums(routines: &Routines) -> bool {
    let bytes = black_box(&PATTERN);
    let (head, tail) = bytes.split_at(BYTES / 3);
    let in_two = |crc: fn(u32, &[u8]) -> u32| crc(crc(0, head), tail);
    [routines.crc, routines.crc_by_tables]
        .into_iter()
        .all(|crc| crc(0, bytes) == PATTERN_CRC && in_two(crc) == PATTERN_CRC)
}

fn mixes(routines: &Routines) -> bool {
    let mut mixed = black_box(SEED);
    for step in 0..STEPS {
        mixed = (routines.mix)(mixed ^ step, black_box(SECRET));
    }
    mixed == MIXED
}

fn numbers(routines: &Routines) -> bool {
    let are_read = DECIMALS.iter().all(|(text, number)| (routines.parse)(black_box(text)) == Some(*number));
    let are_written = DECIMALS.iter().all(|(text, number)| black_box(*number).to_string() == **text);
    let quotient = (routines.divide)(black_box(18_446_744_073_709_551_557), black_box(4_294_967_291));
    are_read && are_written && quotient == QUOTIENT
}

/// A copy is the same; with any one bit flipped it isn't.
fn compares(routines: &Routines) -> bool {
    let mut copy = black_box(PATTERN);
    if !(routines.is_same)(black_box(&PATTERN), &copy) {
        return false;
    }
    (0..BYTES).all(|at| {
        copy[at] ^= 1 << (at % 8);
        let differs = !(routines.is_same)(black_box(&PATTERN), black_box(&copy));
        copy[at] ^= 1 << (at % 8);
        differs
    })
}

const SEED: u64 = 0x2d35_8dcc_aa6c_78a5;
const SECRET: u64 = 0x8bb8_4b93_962e_acc9;
const STEPS: u64 = 64;

/// The step that hashes of this family are made of: a wide product, folded.
const fn mix(one: u64, other: u64) -> u64 {
    let product = one as u128 * other as u128;
    product as u64 ^ (product >> 64) as u64
}

const fn mix_chain() -> u64 {
    let mut mixed = SEED;
    let mut step = 0;
    while step < STEPS {
        mixed = mix(mixed ^ step, SECRET);
        step += 1;
    }
    mixed
}

const fn pattern() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut state = SEED;
    let mut at = 0;
    while at < BYTES {
        // Knuth's multiplier; the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes[at] = (state >> 56) as u8;
        at += 1;
    }
    bytes
}

/// CRC32C by its definition, bit by bit (RFC 3720, appendix B.4).
const fn crc_by_bits(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let mut at = 0;
    while at < bytes.len() {
        crc ^= bytes[at] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        at += 1;
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_core_solves_them() {
        assert!(solves(&ROUTINES));
        // The check value of the checksum's definition.
        assert_eq!(crc_by_bits(b"123456789"), 0xe306_9283);
    }

    /// Each kind of problem, done wrong in the way a sick unit would: for some operands only.
    #[test]
    fn a_sick_core_does_not() {
        let sick = [
            ("crc", Routines { crc: |crc, bytes| store::crc32c(crc, bytes) ^ 1, ..ROUTINES }),
            (
                "crc of short pieces",
                Routines {
                    crc: |crc, bytes| store::crc32c(crc, bytes) ^ u32::from(bytes.len() < BYTES / 2),
                    ..ROUTINES
                },
            ),
            (
                "tables",
                Routines {
                    crc_by_tables: |crc, bytes| store::crc32c_by_tables(crc, bytes) ^ 1 << 31,
                    ..ROUTINES
                },
            ),
            ("product", Routines { mix: |one, other| mix(one, other) ^ (one >> 63 & 1), ..ROUTINES }),
            (
                "carry",
                Routines {
                    parse: |text| text.parse().ok().map(|number: u64| number ^ (number >> 32 & 1)),
                    ..ROUTINES
                },
            ),
            ("division", Routines { divide: |number, by| number / by + 1, ..ROUTINES }),
            ("never the same", Routines { is_same: |_, _| false, ..ROUTINES }),
            (
                "all but the last byte",
                Routines { is_same: |one, other| one[..511] == other[..511], ..ROUTINES },
            ),
        ];
        for (what, routines) in sick {
            assert!(!solves(&routines), "{what}");
        }
    }
}
