//! Vector registers as `xsave` lays them out: the lower 16 bytes in one place, and what wider ones add in others.

use std::arch::x86_64::__cpuid_count;
use std::ops::Range;

/// Where the first vector register lies in what `fxsave` already saved.
const XMM: usize = 160;

/// The word that says which parts are not in their initial state.
const PRESENT: usize = 512;

/// Numbers of the parts, as in `XCR0`: SSE, AVX, upper halves of ZMM0 to 15, and ZMM16 to 31.
const SSE: u32 = 1;
const AVX: u32 = 2;
const ZMM_HIGH: u32 = 6;
const ZMM_MORE: u32 = 7;

/// Where this processor puts the parts that not every processor has.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    avx: usize,
    zmm_high: usize,
    zmm_more: usize,
}

impl Places {
    /// Asks the processor.
    pub fn here() -> Self {
        let place = |part| __cpuid_count(0xd, part).ebx as usize;
        Places { avx: place(AVX), zmm_high: place(ZMM_HIGH), zmm_more: place(ZMM_MORE) }
    }

    /// Where the bytes of a register lie, the lowest first, with the number of the part each belongs to.
    fn spans(self, number: u8, bytes: usize) -> Vec<(u32, Range<usize>)> {
        let index = usize::from(number % 32);
        if index >= 16 {
            let from = self.zmm_more + (index - 16) * 64;
            return vec![(ZMM_MORE, from..from + bytes.min(64))];
        }
        let parts = [
            (SSE, XMM + index * 16, 16),
            (AVX, self.avx + index * 16, 16),
            (ZMM_HIGH, self.zmm_high + index * 32, 32),
        ];
        let mut left = bytes;
        let mut spans = Vec::new();
        for (part, from, len) in parts {
            let len = len.min(left);
            left -= len;
            if len > 0 {
                spans.push((part, from..from + len));
            }
        }
        spans
    }

    /// A register's lowest bytes; none if the state has no such register.
    pub fn read(self, state: &[u8], number: u8, bytes: usize) -> Option<Vec<u8>> {
        let mut found = Vec::with_capacity(bytes);
        for (part, span) in self.spans(number, bytes) {
            let is_present = present(state)? >> part & 1 == 1;
            let part = state.get(span)?;
            // What is not present is 0, whatever lies there.
            found.extend(part.iter().map(|byte| if is_present { *byte } else { 0 }));
        }
        Some(found)
    }

    /// Replaces a register's lowest bytes; whether there is such a register.
    pub fn write(self, state: &mut [u8], number: u8, bytes: &[u8]) -> bool {
        let spans = self.spans(number, bytes.len());
        if spans.iter().any(|(_, span)| span.end > state.len()) {
            return false;
        }
        let Some(mut word) = present(state) else { return false };
        let mut rest = bytes;
        for (part, span) in spans {
            let (now, later) = rest.split_at(span.len().min(rest.len()));
            state[span].copy_from_slice(now);
            word |= 1 << part;
            rest = later;
        }
        state[PRESENT..PRESENT + 8].copy_from_slice(&word.to_le_bytes());
        true
    }
}

fn present(state: &[u8]) -> Option<u64> {
    let word = state.get(PRESENT..PRESENT + 8)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places { avx: 576, zmm_high: 1152, zmm_more: 1664 };

    #[test]
    fn registers_come_back() {
        for (number, bytes) in [(0, 16), (15, 16), (3, 32), (7, 64), (16, 64), (31, 16)] {
            let mut state = vec![0; 2688];
            let value: Vec<u8> = (1..=bytes).collect();
            assert!(PLACES.write(&mut state, number, &value));
            assert_eq!(PLACES.read(&state, number, usize::from(bytes)).as_ref(), Some(&value), "{number}");
            let others = (0..32).filter(|other| *other != number);
            for other in others {
                let found = PLACES.read(&state, other, 64).expect("there is room");
                assert!(found.iter().all(|byte| *byte == 0), "{number} and {other}");
            }
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut state = vec![0; 600];
        assert!(PLACES.read(&state, 3, 32).is_none());
        assert!(!PLACES.write(&mut state, 20, &[1; 64]));
        assert!(PLACES.read(&[], 0, 16).is_none());
    }

    #[test]
    fn parts_in_their_initial_state_are_zero() {
        let mut state = vec![0xff; 2688];
        state[PRESENT..PRESENT + 8].copy_from_slice(&(1_u64 << SSE).to_le_bytes());
        let found = PLACES.read(&state, 2, 32).expect("there is room");
        assert!(found[..16].iter().all(|byte| *byte == 0xff));
        assert!(found[16..].iter().all(|byte| *byte == 0));
    }
}
