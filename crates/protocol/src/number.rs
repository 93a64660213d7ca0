//! Numbers as memcached reads them from a command line.
//!
//! It has two ways. Where C's `strtol` and its relatives are used (expiry times, client flags, cas ids, deltas), a
//! sign `+` is fine. Where its own tokenizer is used (lengths, the expiry time of `gat`, the delay of `flush_all`),
//! it is not.

/// An unsigned number of digits alone.
#[inline]
pub(crate) fn digits(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    // Nineteen digits always fit, so only longer words pay for checking.
    let (plain, rest) = word.split_at(word.len().min(19));
    let mut number = 0_u64;
    for byte in plain {
        number = number * 10 + u64::from(digit(*byte)?);
    }
    for byte in rest {
        number = number.checked_mul(10)?.checked_add(u64::from(digit(*byte)?))?;
    }
    Some(number)
}

#[inline]
fn digit(byte: u8) -> Option<u8> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(digit)
}

/// As `strtoull` reads it, but with no sign `-`.
#[inline]
pub(crate) fn unsigned(word: &[u8]) -> Option<u64> {
    digits(word.strip_prefix(b"+").unwrap_or(word))
}

/// As `strtol` reads it.
#[inline]
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(magnitude) => 0_i64.checked_sub_unsigned(digits(magnitude)?),
        None => i64::try_from(unsigned(word)?).ok(),
    }
}

/// A number of 32 bits as the tokenizer reads it.
#[inline]
pub(crate) fn strict_i32(word: &[u8]) -> Option<i32> {
    match word {
        [b'+', ..] => None,
        _ => i32::try_from(signed(word)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers() {
        for (word, number) in [
            (&b"0"[..], Some(0)),
            (b"007", Some(7)),
            (b"+7", Some(7)),
            (b"9999999999999999999", Some(9_999_999_999_999_999_999)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"00000000000000000000000018446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"99999999999999999999999", None),
            (b"", None),
            (b"+", None),
            (b"-1", None),
            (b"1x", None),
            (b"1.5", None),
            (b"++1", None),
            (b"\xff", None),
        ] {
            assert_eq!(unsigned(word), number, "{word:?}");
        }
    }

    #[test]
    fn signed_numbers() {
        for (word, number, strict) in [
            (&b"0"[..], Some(0), Some(0)),
            (b"+5", Some(5), None),
            (b"-5", Some(-5), Some(-5)),
            (b"2147483647", Some(i64::from(i32::MAX)), Some(i32::MAX)),
            (b"2147483648", Some(1 << 31), None),
            (b"-2147483648", Some(i64::from(i32::MIN)), Some(i32::MIN)),
            (b"9223372036854775807", Some(i64::MAX), None),
            (b"9223372036854775808", None, None),
            (b"-9223372036854775808", Some(i64::MIN), None),
            (b"-9223372036854775809", None, None),
            (b"-", None, None),
            (b"-+1", None, None),
            (b"+-1", None, None),
            (b"", None, None),
        ] {
            assert_eq!(signed(word), number, "{word:?}");
            assert_eq!(strict_i32(word), strict, "{word:?}");
        }
    }
}
