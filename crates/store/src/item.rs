//! How an item lies in memory, and its checksum.
//!
//! ```text
//!  0        4    5    6      8       12       16
//!  | vlen   |klen|kind| core | crc32c| access | [exptime u64] [cas u64] [flags u32] key value, padded to 8
//! ```
//!
//! An item is immutable once it can be found, but for two words that carry a check of their own: `access` (last
//! access, fetched, token sent) and `exptime` (seconds and their complement). `kind` says which of the optional fields
//! there are. The CRC-32C covers what the item says, not how it is laid out (value, key, lengths, flags, cas id, stale
//! mark), so an item keeps its CRC when it moves.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::crc::crc32c;

/// Items start at multiples of this.
pub(crate) const ALIGN: usize = 8;
/// Bytes before the optional fields.
const HEADER_BYTES: usize = 16;

/// `kind`: an expiry time follows.
const HAS_EXPTIME: u8 = 1;
/// `kind`: a cas id follows; without, it is derived from where the item was first written.
const HAS_CAS: u8 = 2;
/// `kind`: client flags follow; without, they are zero.
const HAS_FLAGS: u8 = 4;
/// `kind`: the item was invalidated.
const STALE: u8 = 8;
/// `kind`: the rest is a check over the lengths and the bits below, which say where the item ends.
const KIND_BITS: u32 = 4;

/// `access`: seconds since the store's start of the last access, in the low bits.
pub(crate) const ACCESS_SECONDS_MAX: u32 = (1 << 24) - 1;
const FETCHED: u32 = 1 << 24;
const TOKEN_SENT: u32 = 1 << 25;
const ACCESS_BITS: u32 = 26;

#[repr(C)]
struct Header {
    vlen: u32,
    klen: u8,
    kind: u8,
    core: u16,
    crc: u32,
    access: AtomicU32,
}

/// Which optional fields an item has, and how long its parts are: what decides its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) klen: u8,
    pub(crate) vlen: u32,
    pub(crate) has_exptime: bool,
    pub(crate) has_cas: bool,
    pub(crate) has_flags: bool,
}

impl Layout {
    fn key_offset(&self) -> usize {
        HEADER_BYTES
            + 8 * usize::from(self.has_exptime)
            + 8 * usize::from(self.has_cas)
            + 4 * usize::from(self.has_flags)
    }

    /// Bytes of the whole item, padding included.
    pub(crate) fn bytes(&self) -> usize {
        (self.key_offset() + usize::from(self.klen) + self.vlen as usize).next_multiple_of(ALIGN)
    }
}

/// What an item says besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) flags: u32,
    pub(crate) exptime: u32,
    pub(crate) cas: u64,
    pub(crate) stale: bool,
    pub(crate) core: u16,
    pub(crate) access: Access,
}

/// The access word, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Seconds since the store's start, saturating after 194 days.
    pub(crate) seconds: u32,
    pub(crate) fetched: bool,
    pub(crate) token_sent: bool,
}

impl Access {
    fn pack(self) -> u32 {
        let mut word = self.seconds.min(ACCESS_SECONDS_MAX);
        if self.fetched {
            word |= FETCHED;
        }
        if self.token_sent {
            word |= TOKEN_SENT;
        }
        word | access_check(word) << ACCESS_BITS
    }

    /// None when the word's check fails.
    fn unpack(word: u32) -> Option<Self> {
        let bits = word & ((1 << ACCESS_BITS) - 1);
        (word >> ACCESS_BITS == access_check(bits)).then_some(Access {
            seconds: bits & ACCESS_SECONDS_MAX,
            fetched: bits & FETCHED != 0,
            token_sent: bits & TOKEN_SENT != 0,
        })
    }
}

/// Six bits, exactly one of which changes with any single bit of the low 26.
fn access_check(bits: u32) -> u32 {
    (bits ^ bits >> 6 ^ bits >> 12 ^ bits >> 18 ^ bits >> 24 ^ 0x2A) & 0x3F
}

/// A published item, or one that is being written by its only owner.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    base: NonNull<u8>,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// # Safety
    /// `base` is aligned to [`ALIGN`] and points to an item written by [`Item::begin`] that stays readable for `'a`.
    pub(crate) unsafe fn at(base: NonNull<u8>) -> Self {
        Item { base, life: PhantomData }
    }

    /// Writes header and key of a new item whose value comes later; until `finish` nobody else sees it.
    ///
    /// # Safety
    /// `base` is aligned to [`ALIGN`] and the `layout.bytes()` bytes behind it belong to the caller alone for `'a`.
    pub(crate) unsafe fn begin(base: NonNull<u8>, layout: Layout, key: &[u8]) -> Self {
        assert!(key.len() == usize::from(layout.klen));
        let mut kind = 0;
        for (has, bit) in
            [(layout.has_exptime, HAS_EXPTIME), (layout.has_cas, HAS_CAS), (layout.has_flags, HAS_FLAGS)]
        {
            kind |= if has { bit } else { 0 };
        }
        let kind = checked_kind(layout.vlen, layout.klen, kind);
        let header =
            Header { vlen: layout.vlen, klen: layout.klen, kind, core: 0, crc: 0, access: AtomicU32::new(0) };
        // SAFETY: the caller owns the bytes; header and key lie within them by `Layout::bytes`.
        unsafe {
            base.cast::<Header>().write(header);
            let target = base.add(layout.key_offset());
            target.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            Item::at(base)
        }
    }

    /// Where the value is to be written.
    pub(crate) fn value_pointer(self) -> NonNull<u8> {
        let layout = self.layout();
        // SAFETY: the value lies within the item by `Layout::bytes`.
        unsafe { self.base.add(layout.key_offset() + usize::from(layout.klen)) }
    }

    /// Fills in all but key and value, whose CRC is given. The layout has room for what `facts` need.
    ///
    /// # Safety
    /// The caller still owns the item alone.
    pub(crate) unsafe fn finish(self, facts: &Facts, crc_value: u32) {
        let layout = self.layout();
        assert!(layout.has_exptime || facts.exptime == 0);
        assert!(layout.has_flags || facts.flags == 0);
        let mut field = HEADER_BYTES;
        let crc = crc_of(facts, self.key(), layout.vlen, crc_value);
        // SAFETY: the fields lie between header and key because the layout has them; the caller owns the item.
        unsafe {
            if layout.has_exptime {
                self.base.add(field).cast::<u64>().write(pack_exptime(facts.exptime));
                field += 8;
            }
            if layout.has_cas {
                self.base.add(field).cast::<u64>().write(facts.cas);
                field += 8;
            }
            if layout.has_flags {
                self.base.add(field).cast::<u32>().write(facts.flags);
            }
            let header = self.base.cast::<Header>().as_mut();
            let stale = if facts.stale { STALE } else { 0 };
            header.kind = checked_kind(header.vlen, header.klen, header.kind | stale);
            header.core = facts.core;
            header.crc = crc;
            header.access = AtomicU32::new(facts.access.pack());
        }
    }

    fn header(self) -> &'a Header {
        // SAFETY: guaranteed by `at`; the header is only written through its atomic once the item is published.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    pub(crate) fn layout(self) -> Layout {
        let header = self.header();
        Layout {
            klen: header.klen,
            vlen: header.vlen,
            has_exptime: header.kind & HAS_EXPTIME != 0,
            has_cas: header.kind & HAS_CAS != 0,
            has_flags: header.kind & HAS_FLAGS != 0,
        }
    }

    pub(crate) fn key(self) -> &'a [u8] {
        let layout = self.layout();
        // SAFETY: the key lies within the item, which is readable for 'a.
        unsafe {
            slice::from_raw_parts(self.base.add(layout.key_offset()).as_ptr(), usize::from(layout.klen))
        }
    }

    pub(crate) fn value(self) -> &'a [u8] {
        // SAFETY: the value lies within the item, which is readable for 'a.
        unsafe { slice::from_raw_parts(self.value_pointer().as_ptr(), self.header().vlen as usize) }
    }

    pub(crate) fn stale(self) -> bool {
        self.header().kind & STALE != 0
    }

    pub(crate) fn core(self) -> u16 {
        self.header().core
    }

    pub(crate) fn crc(self) -> u32 {
        self.header().crc
    }

    pub(crate) fn flags(self) -> u32 {
        let layout = self.layout();
        if !layout.has_flags {
            return 0;
        }
        // SAFETY: the layout has flags, right before the key.
        unsafe { self.base.add(layout.key_offset() - 4).cast::<u32>().read() }
    }

    /// The cas id if the item carries one.
    pub(crate) fn explicit_cas(self) -> Option<u64> {
        let layout = self.layout();
        let offset = HEADER_BYTES + 8 * usize::from(layout.has_exptime);
        // SAFETY: the layout has a cas id at this place.
        layout.has_cas.then(|| unsafe { self.base.add(offset).cast::<u64>().read() })
    }

    fn exptime_word(self) -> Option<&'a AtomicU64> {
        // SAFETY: the layout has an expiry time right behind the header, aligned to 8; it is only accessed
        // atomically once the item is published.
        self.layout().has_exptime.then(|| unsafe { self.base.add(HEADER_BYTES).cast::<AtomicU64>().as_ref() })
    }

    /// Unix seconds of expiry, 0 never; none when the word's check fails.
    pub(crate) fn exptime(self) -> Option<u32> {
        let Some(word) = self.exptime_word() else { return Some(0) };
        let word = word.load(Ordering::Relaxed);
        let seconds = word as u32;
        (pack_exptime(seconds) == word).then_some(seconds)
    }

    /// Whether the expiry time could be changed in place.
    pub(crate) fn set_exptime(self, seconds: u32) -> bool {
        match self.exptime_word() {
            Some(word) => {
                word.store(pack_exptime(seconds), Ordering::Relaxed);
                true
            }
            None => seconds == 0,
        }
    }

    /// The access word; a word that fails its check counts as never accessed.
    pub(crate) fn access(self) -> Access {
        Access::unpack(self.header().access.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Notes an access. Gives way to a concurrent change of the word: one of two accesses in a second is enough.
    #[inline]
    pub(crate) fn note_access(self, seconds: u32) {
        let word = self.header().access.load(Ordering::Relaxed);
        let access = Access::unpack(word).unwrap_or_default();
        let noted = Access { seconds, fetched: true, ..access }.pack();
        if noted != word {
            let _ = self.header().access.compare_exchange(word, noted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives a copy the access word of the item it was made from, under the key's stripes.
    pub(crate) fn set_access(self, access: Access) {
        self.header().access.store(access.pack(), Ordering::Relaxed);
    }

    /// Gives the recache token away, under the key's stripes.
    pub(crate) fn send_token(self) {
        let word = &self.header().access;
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            Some(Access { token_sent: true, ..Access::unpack(word).unwrap_or_default() }.pack())
        });
    }

    /// Whether the words that say where the item ends agree with each other; if not, nothing else is to be looked at.
    pub(crate) fn has_sound_lengths(self) -> bool {
        let header = self.header();
        header.klen > 0 && header.kind == checked_kind(header.vlen, header.klen, header.kind)
    }

    /// The checksum of what the item says now, by a routine that extends a CRC.
    #[inline(always)]
    pub(crate) fn checksum(self, cas: u64, sum: impl Fn(u32, &[u8]) -> u32) -> u32 {
        let header = self.header();
        let rest = rest_of(header.vlen, self.flags(), cas, self.key().len(), self.stale());
        sum(sum(sum(0, self.value()), self.key()), &rest)
    }

    /// Whether the item still says what it said when it was written.
    pub(crate) fn is_intact(self, cas: u64) -> bool {
        self.is_intact_with(cas, self.value())
    }

    /// Whether it would with this value.
    pub(crate) fn is_intact_with(self, cas: u64, value: &[u8]) -> bool {
        let facts = Facts {
            flags: self.flags(),
            exptime: 0,
            cas,
            stale: self.stale(),
            core: 0,
            access: Access::default(),
        };
        crc_of(&facts, self.key(), self.header().vlen, crc32c(0, value)) == self.crc()
    }
}

/// The low bits of a kind with their check: four bits, exactly one of which changes with any single bit of the lengths.
fn checked_kind(vlen: u32, klen: u8, kind: u8) -> u8 {
    let low = kind & ((1 << KIND_BITS) - 1);
    let mut bits = vlen ^ u32::from(klen) ^ u32::from(low) ^ 0xA;
    bits ^= bits >> 16;
    bits ^= bits >> 8;
    bits ^= bits >> 4;
    low | (bits as u8) << KIND_BITS
}

/// The CRC of what an item says, from the CRC of its value.
fn crc_of(facts: &Facts, key: &[u8], vlen: u32, crc_value: u32) -> u32 {
    let rest = rest_of(vlen, facts.flags, facts.cas, key.len(), facts.stale);
    crc32c(crc32c(crc_value, key), &rest)
}

/// What the checksum covers besides value and key.
fn rest_of(vlen: u32, flags: u32, cas: u64, klen: usize, stale: bool) -> [u8; 18] {
    let mut rest = [0; 18];
    rest[0..4].copy_from_slice(&vlen.to_le_bytes());
    rest[4..8].copy_from_slice(&flags.to_le_bytes());
    rest[8..16].copy_from_slice(&cas.to_le_bytes());
    rest[16] = klen as u8;
    rest[17] = u8::from(stale);
    rest
}

fn pack_exptime(seconds: u32) -> u64 {
    u64::from(seconds) | u64::from(!seconds) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts { flags: 0, exptime: 0, cas: 77, stale: false, core: 3, access: Access::default() }
    }

    fn check(key: &[u8], value: &[u8], facts: Facts, has_cas: bool) {
        let layout = Layout {
            klen: key.len() as u8,
            vlen: value.len() as u32,
            has_exptime: facts.exptime != 0,
            has_cas,
            has_flags: facts.flags != 0,
        };
        let mut memory = vec![0_u64; layout.bytes() / 8];
        let base = NonNull::new(memory.as_mut_ptr().cast::<u8>()).expect("a vector's pointer");
        // SAFETY: the memory is aligned to 8, large enough, and outlives the item.
        let item = unsafe {
            let item = Item::begin(base, layout, key);
            item.value_pointer().copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
            item.finish(&facts, crc32c(0, value));
            item
        };
        assert_eq!((item.key(), item.value(), item.layout()), (key, value, layout));
        assert_eq!(
            (item.flags(), item.exptime(), item.core()),
            (facts.flags, Some(facts.exptime), facts.core)
        );
        assert_eq!(item.explicit_cas(), has_cas.then_some(facts.cas));
        assert_eq!((item.stale(), item.access().token_sent), (facts.stale, facts.access.token_sent));
        assert!(item.is_intact(facts.cas));
        assert!(!item.is_intact(facts.cas + 1));
        item.note_access(9);
        item.send_token();
        assert_eq!(item.access(), Access { seconds: 9, fetched: true, token_sent: true });
        assert!(item.is_intact(facts.cas));
        for bit in 0..8 * value.len() {
            // SAFETY: as above.
            let byte = unsafe { item.value_pointer().add(bit / 8).as_mut() };
            *byte ^= 1 << (bit % 8);
            assert!(!item.is_intact(facts.cas), "bit {bit}");
            // SAFETY: as above.
            unsafe { *item.value_pointer().add(bit / 8).as_mut() ^= 1 << (bit % 8) };
        }
    }

    #[test]
    fn items_say_what_was_written() {
        check(b"k", b"", facts(), false);
        check(b"k", b"value", facts(), true);
        check(&[b'k'; 250], &[7; 100], Facts { flags: u32::MAX, exptime: 5, ..facts() }, true);
        check(
            b"key",
            b"v",
            Facts {
                stale: true,
                access: Access { token_sent: true, ..Access::default() },
                exptime: u32::MAX,
                ..facts()
            },
            false,
        );
        check(b"key", b"v", Facts { flags: 1, ..facts() }, false);
    }

    #[test]
    fn a_flipped_bit_of_the_access_word_is_seen() {
        for access in [Access::default(), Access { seconds: 123_456, fetched: true, token_sent: true }] {
            let word = access.pack();
            assert_eq!(Access::unpack(word), Some(access));
            for bit in 0..32 {
                assert_eq!(Access::unpack(word ^ 1 << bit), None, "bit {bit}");
            }
        }
    }
}
