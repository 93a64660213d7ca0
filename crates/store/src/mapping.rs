//! Anonymous memory reserved from the operating system: address space now, pages when they are touched.

use std::io;
use std::ptr::NonNull;

/// The unit in which pages become resident.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A private anonymous mapping, zero until written, unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is only an address range; what is done with its bytes is argued where it is done.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves this many bytes, rounded up to pages, aligned to `align` (a power of two).
    pub(crate) fn reserve(bytes: usize, align: usize) -> io::Result<Self> {
        assert!(align.is_power_of_two());
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let padded = bytes.checked_add(align).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = address as usize;
        let aligned = start.next_multiple_of(align);
        // SAFETY: both ranges are whole pages of the mapping just made, outside the part that is kept.
        unsafe {
            if aligned > start {
                libc::munmap(address, aligned - start);
            }
            let end = start + padded;
            if end > aligned + bytes {
                libc::munmap((aligned + bytes) as *mut libc::c_void, end - aligned - bytes);
            }
        }
        let base = NonNull::new(aligned as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the pages of a range back; they read as zero afterwards.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile, and nobody relies on what was in it.
    pub(crate) unsafe fn release(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES));
        assert!(offset + bytes <= self.bytes);
        // SAFETY: the range lies within the mapping (asserted); the caller guarantees it is not in use.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), bytes, libc::MADV_DONTNEED) };
    }

    /// Asks for huge pages; a kernel without them changes nothing.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: advice on the whole mapping, which stays as it is.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever holds pointers into it holds the store that owns it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
