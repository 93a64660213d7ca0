//! Faults in the memory of a running process of ours.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: usize = 4096;

/// The largest anonymous mapping of a process. That is the arena, whose address space is far larger than all else;
/// buffers, in which the value lies as well, are elsewhere.
fn arena(process: u32) -> Range<usize> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("our child");
    let anonymous = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        // Then access, offset, device, inode, and a path if it has one.
        if words.nth(4).is_some() {
            return None;
        }
        Some(usize::from_str_radix(begin, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    });
    anonymous.max_by_key(ExactSizeIterator::len).expect("a process has such mappings")
}

/// The runs of pages in a range that hold something. Reading the others would take long, and take memory.
fn populated(process: u32, range: Range<usize>) -> Vec<Range<usize>> {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let map = File::open(format!("/proc/{process}/pagemap")).expect("our child");
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut entries = vec![0; 1 << 20];
    let nothing = entries.clone();
    let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
    for first in pages.clone().step_by(entries.len() / 8) {
        let count = (entries.len() / 8).min(pages.end - first);
        let entries = &mut entries[..count * 8];
        map.read_exact_at(entries, first as u64 * 8).expect("an entry for each page");
        if *entries == nothing[..entries.len()] {
            continue;
        }
        for (number, entry) in entries.chunks_exact(8).enumerate() {
            if u64::from_le_bytes(entry.try_into().expect("eight bytes")) & PRESENT_OR_SWAPPED == 0 {
                continue;
            }
            let begin = (first + number) * PAGE_BYTES;
            match runs.last_mut() {
                Some(run) if run.end == begin => run.end += PAGE_BYTES,
                _ => runs.push(begin..begin + PAGE_BYTES),
            }
        }
    }
    runs
}

/// Flips a bit of a value wherever it lies in the arena of a process that runs a store.
pub fn flip(process: u32, value: &[u8], bit: usize) {
    let path = format!("/proc/{process}/mem");
    let memory = OpenOptions::new().read(true).write(true).open(path).expect("our child's memory");
    let mut flips = 0;
    for run in populated(process, arena(process)) {
        let mut bytes = vec![0; run.len()];
        memory.read_exact_at(&mut bytes, run.start as u64).expect("pages that are there");
        for place in (0..bytes.len()).filter(|place| bytes[*place..].starts_with(value)) {
            let byte = place + bit / 8;
            let flipped = bytes[byte] ^ 1 << (bit % 8);
            memory.write_all_at(&[flipped], (run.start + byte) as u64).expect("our child's memory");
            flips += 1;
        }
    }
    assert!(flips > 0, "the value lies in the arena");
}
