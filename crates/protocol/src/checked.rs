//! Checked values: values that end with a checksum of their own, made by the client.
//!
//! ```text
//!  content … | CRC-32C of (key, client flags, content), 4 bytes, little-endian
//! ```
//!
//! The flags are those of the command, as 4 bytes, little-endian. One bit of them announces the checksum; which one is
//! agreed between the clients and the server (`--checked-values-flag`). For anybody else the value is bytes as any
//! others. The checksum is made where the value is, and says so wherever it gets: that key, flags and content belong
//! together, across sockets, kernels, proxies and caches.
//!
//! The routine is passed in, so that the server can use another one for the second look: `sum(crc, bytes)` extends a
//! CRC-32C (Castagnoli, RFC 3720 appendix B.4), beginning with 0.
//!
//! ```
//! # fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
//! #     !bytes.iter().fold(!crc, |sum, byte| {
//! #         (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg()))
//! #     })
//! # }
//! use protocol::checked::{Announcement, TRAILER_BYTES};
//!
//! let announcement = Announcement::new(31).expect("a bit of 32");
//! let flags = announcement.mask() | 7;
//! let mut value = b"hello".to_vec();
//! value.extend_from_slice(&announcement.trailer(b"greeting", flags, b"hello", crc32c));
//! assert_eq!(value.len(), 5 + TRAILER_BYTES);
//! assert!(announcement.agrees(b"greeting", flags, &value, crc32c));
//! assert!(!announcement.agrees(b"meeting", flags, &value, crc32c));
//! ```

/// Bytes that a checked value ends with.
pub const TRAILER_BYTES: usize = 4;

/// The bit of the client flags by which checked values are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Invariant: one bit is set.
    mask: u32,
}

impl Announcement {
    /// The bit of this number, from 0 for the lowest; none above 31.
    #[must_use]
    pub fn new(bit: u32) -> Option<Self> {
        1_u32.checked_shl(bit).map(|mask| Announcement { mask })
    }

    /// Flags with this bit alone.
    #[must_use]
    pub fn mask(self) -> u32 {
        self.mask
    }

    /// Whether flags announce a checksum.
    #[inline]
    #[must_use]
    pub fn is_in(self, flags: u32) -> bool {
        flags & self.mask != 0
    }

    /// What a client appends to `content` before it sends it with these flags, which are to have the bit.
    #[must_use]
    pub fn trailer(
        self,
        key: &[u8],
        flags: u32,
        content: &[u8],
        sum: impl Fn(u32, &[u8]) -> u32,
    ) -> [u8; TRAILER_BYTES] {
        let head = sum(sum(0, key), &flags.to_le_bytes());
        sum(head, content).to_le_bytes()
    }

    /// Whether a value is what its checksum says, or announces none. `key` is the key itself, not its base64.
    #[inline]
    #[must_use]
    pub fn agrees(self, key: &[u8], flags: u32, value: &[u8], sum: impl Fn(u32, &[u8]) -> u32) -> bool {
        if !self.is_in(flags) {
            return true;
        }
        let Some((content, trailer)) = value.split_last_chunk::<TRAILER_BYTES>() else { return false };
        self.trailer(key, flags, content, sum) == *trailer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the RFC describes it.
    fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
        let step = |sum: u32, _| (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg());
        !bytes.iter().fold(!crc, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
    }

    fn checked(key: &[u8], flags: u32, content: &[u8]) -> Vec<u8> {
        let announcement = Announcement::new(16).expect("a bit");
        let trailer = announcement.trailer(key, flags, content, crc32c);
        [content, &trailer].concat()
    }

    #[test]
    fn known_answers() {
        // The check value of the CRC catalogue, over "123456789" however it is divided into key and content, when the
        // flags are the four bytes in the middle.
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        let flags = u32::from_le_bytes(*b"4567");
        assert_eq!(checked(b"123", flags, b"89"), [&b"89"[..], &0xE306_9283_u32.to_le_bytes()].concat());
        // The example of docs/checked-values.md.
        assert_eq!(checked(b"greeting", 1 << 16, b"hello"), b"hello\x03\xF5\xD3\x3F");
        assert_eq!(checked(b"empty", 1 << 16, b""), b"\xFE\x41\x6A\xF8");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let announcement = Announcement::new(16).expect("a bit");
        let (key, flags) = (*b"some key", 1 << 16 | 0x0305);
        for content in [&b""[..], b"x", b"some content that is longer"] {
            let value = checked(&key, flags, content);
            let agrees = |key: &[u8], flags, value: &[u8]| announcement.agrees(key, flags, value, crc32c);
            assert!(agrees(&key, flags, &value));
            for bit in 0..8 * value.len() {
                let mut value = value.clone();
                value[bit / 8] ^= 1 << (bit % 8);
                assert!(!agrees(&key, flags, &value), "bit {bit} of the value");
            }
            for bit in 0..8 * key.len() {
                let mut key = key;
                key[bit / 8] ^= 1 << (bit % 8);
                assert!(!agrees(&key, flags, &value), "bit {bit} of the key");
            }
            for bit in (0..32).filter(|bit| *bit != 16) {
                assert!(!agrees(&key, flags ^ 1 << bit, &value), "bit {bit} of the flags");
            }
            assert!(agrees(&key, flags ^ 1 << 16, &value), "without the bit nothing is announced");
            assert!(!agrees(&key, flags, &value[..value.len() - 1]));
            assert!(!agrees(&key, flags, &[&value[..], b"\0"].concat()));
        }
    }

    #[test]
    fn what_is_too_short_for_a_checksum_is_wrong() {
        let announcement = Announcement::new(0).expect("a bit");
        for length in 0..TRAILER_BYTES {
            assert!(!announcement.agrees(b"key", 1, &[0; TRAILER_BYTES][..length], crc32c));
            assert!(announcement.agrees(b"key", 2, &[0; TRAILER_BYTES][..length], crc32c));
        }
    }

    #[test]
    fn there_are_32_bits() {
        assert!((0..32).all(|bit| Announcement::new(bit).is_some_and(|bits| bits.mask() == 1 << bit)));
        assert_eq!(Announcement::new(32), None);
    }
}
