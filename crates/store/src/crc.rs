//! CRC-32C (Castagnoli, RFC 3720 appendix B.4) by two routines: the processor's instruction, and tables.
//!
//! Two, because a value computed once by a unit that errs is best confirmed by another unit.

/// The polynomial 0x1EDC6F41, bit-reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Extends a CRC by some bytes; start with 0. Chooses the fastest routine the processor has.
#[inline]
#[must_use]
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the features were detected on this processor.
        return unsafe { by_instruction(crc, bytes) };
    }
    crc32c_by_tables(crc, bytes)
}

/// Words that each of three CRCs is extended by before they become one: the instruction takes three cycles, and can be
/// begun in each (Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", 2011).
#[cfg(target_arch = "x86_64")]
const LANE_WORDS: usize = 8;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<{ 3 * LANE_WORDS }>();
    let mut sum = u64::from(!crc);
    for block in blocks {
        let (mut second, mut third) = (0, 0);
        for at in 0..LANE_WORDS {
            sum = _mm_crc32_u64(sum, u64::from_le_bytes(block[at]));
            second = _mm_crc32_u64(second, u64::from_le_bytes(block[LANE_WORDS + at]));
            third = _mm_crc32_u64(third, u64::from_le_bytes(block[2 * LANE_WORDS + at]));
        }
        sum = third ^ _mm_crc32_u64(0, times(sum, TWO_LANES) ^ times(second, ONE_LANE));
    }
    for word in words {
        sum = _mm_crc32_u64(sum, u64::from_le_bytes(*word));
    }
    let mut sum = sum as u32;
    for byte in rest {
        sum = _mm_crc32_u8(sum, *byte);
    }
    !sum
}

/// What a CRC is multiplied by, without carries, to be that of the same bytes with the zeros of one or two lanes after
/// them. The multiplication and the instruction that reduces its result add a power of 33.
#[cfg(target_arch = "x86_64")]
const ONE_LANE: u32 = power(64 * LANE_WORDS - 33);
#[cfg(target_arch = "x86_64")]
const TWO_LANES: u32 = power(2 * 64 * LANE_WORDS - 33);

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq")]
fn times(sum: u64, factor: u32) -> u64 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64};
    let product = _mm_clmulepi64_si128::<0>(
        _mm_cvtsi64_si128(sum.cast_signed()),
        _mm_cvtsi64_si128(u64::from(factor).cast_signed()),
    );
    _mm_cvtsi128_si64(product).cast_unsigned()
}

/// This power of x modulo the polynomial, bit-reversed.
#[cfg(target_arch = "x86_64")]
const fn power(exponent: usize) -> u32 {
    let (mut result, mut left) = (1 << 31, exponent);
    while left > 0 {
        result = (result >> 1) ^ (POLYNOMIAL & (result & 1_u32).wrapping_neg());
        left -= 1;
    }
    result
}

/// The same function without the instruction: eight table look-ups for eight bytes
/// (Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC generation", 2008).
#[must_use]
pub fn crc32c_by_tables(crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = !crc;
    for word in words {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(sum);
        sum = (0..8).fold(0, |acc, lane| acc ^ TABLES[7 - lane][(mixed >> (8 * lane)) as usize & 255]);
    }
    for byte in rest {
        sum = TABLES[0][usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    }
    !sum
}

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut sum = index as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][index] = sum;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before: u32 = tables[table - 1][index];
            tables[table][index] = (before >> 8) ^ tables[0][before as usize & 255];
            index += 1;
        }
        table += 1;
    }
    tables
}

/// A digest of bytes, for comparing a reply with its repetition: the same on every machine, and told apart from every
/// other with few bits changed.
///
/// Three CRCs, of every third word each, because the processor can extend three in the time it takes for one.
#[inline]
#[must_use]
pub fn digest(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was detected on this processor.
        return unsafe { digest_by_instruction(bytes) };
    }
    digest_by(bytes, |crc, word| !crc32c_by_tables(!crc, &word.to_le_bytes()))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn digest_by_instruction(bytes: &[u8]) -> u32 {
    digest_by(bytes, |crc, word| std::arch::x86_64::_mm_crc32_u64(crc.into(), word) as u32)
}

#[inline(always)]
fn digest_by(bytes: &[u8], extend: impl Fn(u32, u64) -> u32) -> u32 {
    let mut lanes = [1_u32, 2, 3];
    let (triples, rest) = bytes.as_chunks::<24>();
    for triple in triples {
        let (words, _) = triple.as_chunks::<8>();
        lanes[0] = extend(lanes[0], u64::from_le_bytes(words[0]));
        lanes[1] = extend(lanes[1], u64::from_le_bytes(words[1]));
        lanes[2] = extend(lanes[2], u64::from_le_bytes(words[2]));
    }
    for (lane, chunk) in lanes.iter_mut().zip(rest.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        *lane = extend(*lane, u64::from_le_bytes(word));
    }
    let [first, second, third] = lanes.map(u64::from);
    let both = extend(first as u32, second << 32 | third);
    extend(both, bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: u32) {
        assert_eq!(crc32c(0, bytes), expected, "by instruction: {bytes:?}");
        assert_eq!(crc32c_by_tables(0, bytes), expected, "by tables: {bytes:?}");
    }

    #[test]
    fn known_answers() {
        // RFC 3720 appendix B.4, and the check value of the CRC catalogue.
        check(b"", 0);
        check(b"123456789", 0xE306_9283);
        check(&[0; 32], 0x8A91_36AA);
        check(&[0xFF; 32], 0x62A8_AB43);
        check(&(0..32).collect::<Vec<u8>>(), 0x46DD_794E);
        check(&(0..32).rev().collect::<Vec<u8>>(), 0x113F_DB5C);
    }

    #[test]
    fn the_routines_agree_at_every_length_and_split() {
        let bytes: Vec<u8> = (0..700_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in 0..bytes.len() {
            let whole = crc32c(0, &bytes[..length]);
            assert_eq!(whole, crc32c_by_tables(0, &bytes[..length]));
            let split = length / 3;
            assert_eq!(whole, crc32c(crc32c(0, &bytes[..split]), &bytes[split..length]));
        }
    }

    #[test]
    fn every_bit_of_a_reply_counts() {
        for length in [0, 1, 7, 8, 9, 16, 17, 40, 300] {
            let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let whole = digest(&bytes);
            for bit in 0..8 * length {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(digest(&bytes), whole, "bit {bit} of {length} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            bytes.push(0);
            assert_ne!(digest(&bytes), whole, "one zero more than {length} bytes");
        }
    }

    #[test]
    fn digests_are_the_same_by_tables() {
        let bytes: Vec<u8> = (0..200_u32).map(|at| (at * 7) as u8).collect();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            let by_tables = digest_by(bytes, |crc, word| !crc32c_by_tables(!crc, &word.to_le_bytes()));
            assert_eq!(by_tables, digest(bytes), "{length} bytes");
        }
    }
}
