//! The slab classes of memcached, as a table from sizes to numbers.
//!
//! This engine has no slab classes. But dumps, `me` and several statistics carry class numbers, which tools group
//! by, so each item is given the number it would have there.

use crate::settings::Slabs;

/// Class numbers are below this; 0 is no class.
pub(super) const CLASSES_MAX: usize = 64;

/// The largest class number that is not the last one (memcached `MAX_NUMBER_OF_SLAB_CLASSES - 1`).
const NUMBER_MAX: usize = CLASSES_MAX - 1;

/// A page, from which chunks are cut.
const PAGE_BYTES: u32 = 1 << 20;

/// The header of an item there, without its cas id.
const HEADER_BYTES: u32 = 48;

/// The table of chunk sizes.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    /// Chunk sizes by class number. Invariant: rising from index 1; index 0 is unused.
    sizes: Vec<u32>,
}

impl Classes {
    /// The classes memcached makes of these settings.
    pub(crate) fn new(settings: &Slabs) -> Self {
        let mut sizes = vec![0];
        match &settings.sizes {
            Some(given) => sizes.extend(given.iter().take(NUMBER_MAX - 1)),
            None => {
                let mut size = HEADER_BYTES.saturating_add(settings.chunk_bytes_min);
                while sizes.len() < NUMBER_MAX
                    && f64::from(size) < f64::from(settings.chunk_bytes_max) / settings.factor
                {
                    size = size.next_multiple_of(8);
                    sizes.push(size);
                    size = (f64::from(size) * settings.factor) as u32;
                }
            }
        }
        sizes.push(settings.chunk_bytes_max);
        Classes { sizes }
    }

    /// The class of an item of this many bytes, by [`item_bytes`]. The last class takes all that fit nowhere else.
    pub(crate) fn of(&self, bytes: u64) -> u8 {
        let last = self.last();
        let number = self.sizes[1..last].partition_point(|size| u64::from(*size) < bytes) + 1;
        number as u8
    }

    /// The largest class number.
    pub(crate) fn last(&self) -> usize {
        self.sizes.len() - 1
    }

    /// The size of the chunks of a class.
    pub(super) fn chunk_bytes(&self, class: usize) -> u32 {
        self.sizes[class]
    }

    /// How many chunks are cut from a page.
    pub(super) fn chunks_per_page(&self, class: usize) -> u64 {
        u64::from((PAGE_BYTES / self.sizes[class].max(1)).max(1))
    }
}

/// The size memcached reports for an item: header, cas id, key and its terminator, flags if there are any, and
/// the value with its line end.
pub(crate) fn item_bytes(key_len: usize, value_len: usize, flags: u32, cas: bool) -> u64 {
    let cas_bytes = if cas { 8 } else { 0 };
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    u64::from(HEADER_BYTES) + cas_bytes + key_len as u64 + 1 + flags_bytes + value_len as u64 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &Slabs, last: usize, begin: &[u32], end: &[u32]) {
        let classes = Classes::new(settings);
        assert_eq!(classes.last(), last);
        assert_eq!(&classes.sizes[1..=begin.len()], begin);
        assert_eq!(&classes.sizes[classes.sizes.len() - end.len()..], end);
    }

    #[test]
    fn the_default_classes() {
        let all = [
            96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184, 1480, 1856, 2320, 2904, 3632, 4544,
            5680, 7104, 8880, 11104, 13880, 17352, 21696, 27120, 33904, 42384, 52984, 66232, 82792, 103_496,
            129_376, 161_720, 202_152, 252_696, 315_872, 394_840, 524_288,
        ];
        check(&Slabs::default(), 39, &all, &[]);
        let pages: Vec<u64> =
            [1, 2, 22, 37, 38, 39].map(|class| Classes::new(&Slabs::default()).chunks_per_page(class)).into();
        assert_eq!(pages, [10922, 8738, 94, 3, 2, 2]);
    }

    #[test]
    fn other_classes() {
        check(&Slabs { sizes: Some(vec![128, 512]), ..Slabs::default() }, 3, &[128, 512], &[524_288]);
        check(&Slabs { chunk_bytes_min: 24, ..Slabs::default() }, 40, &[72, 96], &[524_288]);
        let finest = Slabs { factor: 1.01, ..Slabs::default() };
        assert_eq!(Classes::new(&finest).last(), NUMBER_MAX);
        let smallest = Slabs { chunk_bytes_max: 1024, ..Slabs::default() };
        check(&smallest, 11, &[96], &[752, 1024]);
    }

    #[test]
    fn items_have_the_class_they_have_there() {
        let classes = Classes::new(&Slabs::default());
        // Key, value, flags and the `me` or metadump line that memcached 1.6.18 answered.
        for (key_len, value_len, flags, size, class) in [
            (3, 3, 0, 65, 1),
            (1, 1, 0, 61, 1),
            (3, 31, 0, 93, 1),
            (3, 34, 0, 96, 1),
            (3, 35, 0, 97, 2),
            (3, 3, 5, 69, 1),
        ] {
            let bytes = item_bytes(key_len, value_len, flags, true);
            assert_eq!((bytes, classes.of(bytes)), (size, class));
        }
        assert_eq!(classes.of(u64::MAX), 39);
        assert_eq!(classes.of(524_289), 39);
        assert_eq!(item_bytes(3, 3, 0, false), 57);
    }
}
