//! Base64 with padding, as the meta commands use it for binary keys.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks a byte that is no digit.
const NONE: u8 = 0xff;

/// The value of each byte as a digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NONE; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        digits[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// The bytes that `text` stands for, written to the front of `out`; `None` if it is not base64 with padding, stands
/// for no byte at all, or for more than `out` holds.
pub(crate) fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let len = text.len() / 4 * 3 - padding;
    let out = out.get_mut(..len)?;
    for (quad, triple) in text.chunks(4).zip(out.chunks_mut(3)) {
        let mut bits = 0_u32;
        for (index, byte) in quad.iter().enumerate() {
            let digit = match DIGITS[usize::from(*byte)] {
                // Padding stands behind as many digits as the bytes of this group need, so only there.
                NONE if *byte == b'=' && index > triple.len() => 0,
                NONE => return None,
                digit => digit,
            };
            bits = bits << 6 | u32::from(digit);
        }
        triple.copy_from_slice(&bits.to_be_bytes()[1..=triple.len()]);
    }
    Some(out)
}

/// Appends `bytes` as base64.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for triple in bytes.chunks(3) {
        let mut padded = [0_u8; 4];
        padded[1..=triple.len()].copy_from_slice(triple);
        let bits = u32::from_be_bytes(padded);
        for index in 0..4_usize {
            let digit = bits >> (18 - 6 * index) & 0x3f;
            out.push(if index <= triple.len() { ALPHABET[digit as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], text: &[u8]) {
        let mut encoded = Vec::new();
        encode(bytes, &mut encoded);
        assert_eq!(encoded, text);
        let mut space = [0_u8; 32];
        assert_eq!(decode(text, &mut space), Some(bytes));
    }

    #[test]
    fn known_pairs() {
        check(b"f", b"Zg==");
        check(b"fo", b"Zm8=");
        check(b"foo", b"Zm9v");
        check(b"foob", b"Zm9vYg==");
        check(b"\x00\xff\xfe>", b"AP/+Pg==");
    }

    #[test]
    fn no_base64() {
        let mut space = [0_u8; 32];
        for text in [&b""[..], b"a", b"YQ", b"YQ=", b"????", b"Y===", b"====", b"YQ==YQ==", b"Y=Q=", b"YQ=A"]
        {
            assert_eq!(decode(text, &mut space), None, "{text:?}");
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), None, "no room");
    }

    #[test]
    fn all_lengths() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 1..=bytes.len() {
            let mut text = Vec::new();
            encode(&bytes[..len], &mut text);
            assert_eq!(decode(&text, &mut [0; 256]), Some(&bytes[..len]));
        }
    }
}
