//! Which keys are asked for: how many there are, what they look like, and how often each is drawn.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::random::Random;

/// The longest key of memcached's protocol.
pub const KEY_BYTES_MAX: usize = 250;

/// The most keys a workload may have; numbers of keys are kept in 40 bits.
pub const KEYS_MAX: u64 = 1 << 40;

/// How often each key is drawn. Key 0 is the most popular one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Popularity {
    /// Each equally often.
    Uniform,
    /// The key of rank r in proportion to 1 / r^exponent.
    Zipf(f64),
    /// A share of the keys gets a share of the draws; both sets are uniform in themselves.
    Hotspot {
        /// Of the keys, above 0 and below 1.
        keys: f64,
        /// Of the draws, 0 to 1.
        draws: f64,
    },
    /// One after the other. Each thread goes through its own part, so that together they draw every key once a turn.
    Sequential,
}

impl FromStr for Popularity {
    type Err = Error;

    /// `uniform`, `zipf:0.99`, `hotspot:0.1,0.9` or `sequential`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let numbers: Option<Vec<f64>> = match rest {
            "" => Some(Vec::new()),
            rest => rest.split(',').map(|word| word.parse().ok().filter(|x: &f64| x.is_finite())).collect(),
        };
        match (name, numbers.as_deref()) {
            ("uniform", Some([])) => Ok(Popularity::Uniform),
            ("sequential", Some([])) => Ok(Popularity::Sequential),
            ("zipf", Some([])) => Ok(Popularity::Zipf(0.99)),
            ("zipf", Some([exponent])) if (0.0..=20.0).contains(exponent) => Ok(Popularity::Zipf(*exponent)),
            ("hotspot", Some(&[keys, draws])) if keys > 0.0 && keys < 1.0 && (0.0..=1.0).contains(&draws) => {
                Ok(Popularity::Hotspot { keys, draws })
            }
            _ => Err(Error::Usage(format!(
                "{text:?} is no popularity; one of uniform, zipf:EXPONENT (0 to 20), \
                 hotspot:KEYS,DRAWS (shares of 1), sequential"
            ))),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => out.write_str("uniform"),
            Popularity::Zipf(exponent) => write!(out, "zipf:{exponent}"),
            Popularity::Hotspot { keys, draws } => write!(out, "hotspot:{keys},{draws}"),
            Popularity::Sequential => out.write_str("sequential"),
        }
    }
}

impl TryFrom<String> for Popularity {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Popularity> for String {
    fn from(popularity: Popularity) -> Self {
        popularity.to_string()
    }
}

/// Draws numbers of keys.
#[derive(Clone, Debug)]
pub struct Drawer {
    count: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Zipf(Zipf),
    Hotspot { hot: u64, draws: f64 },
    Sequential { next: u64, first: u64, end: u64 },
}

impl Drawer {
    /// For `count` keys, at least 1. One of `parts` drawers that work together; only sequential ones differ.
    pub fn new(popularity: Popularity, count: u64, part: u64, parts: u64) -> Self {
        assert!(count > 0);
        assert!(part < parts);
        let law = match popularity {
            Popularity::Uniform => Law::Uniform,
            Popularity::Zipf(exponent) => Law::Zipf(Zipf::new(count, exponent)),
            Popularity::Hotspot { keys, draws } => {
                // Of a single key, there is no other set.
                let hot = ((count as f64 * keys).round() as u64).clamp(1, count.max(2) - 1).min(count);
                Law::Hotspot { hot, draws }
            }
            Popularity::Sequential => {
                let (first, end) = share(count, part, parts);
                // More drawers than keys: those without a part of their own go through all.
                let (first, end) = if first == end { (0, count) } else { (first, end) };
                Law::Sequential { next: first, first, end }
            }
        };
        Drawer { count, law }
    }

    /// The next key's number, below the count.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        match &mut self.law {
            Law::Uniform => random.below(self.count),
            Law::Zipf(zipf) => zipf.draw(random),
            Law::Hotspot { hot, draws } => {
                let cold = self.count - *hot;
                match cold == 0 || random.unit() <= *draws {
                    true => random.below(*hot),
                    false => *hot + random.below(cold),
                }
            }
            Law::Sequential { next, first, end } => {
                let key = *next;
                *next = if key + 1 == *end { *first } else { key + 1 };
                key
            }
        }
    }
}

/// The part of `0..count` that one of `parts` has: equal but for one.
pub fn share(count: u64, part: u64, parts: u64) -> (u64, u64) {
    let bound = |part: u64| {
        let wide = u128::from(count) * u128::from(part) / u128::from(parts);
        u64::try_from(wide).expect("a share is no more than the whole")
    };
    (bound(part), bound(part + 1))
}

/// Ranks whose probabilities are tabulated. With a usual exponent most draws fall among them, and need no logarithm.
const HEAD: u64 = 4096;

/// Draws ranks in proportion to 1 / r^s, for any s ≥ 0: popular ones from an alias table (Walker 1977, Vose 1991), the
/// rest by rejection-inversion (Hörmann and Derflinger 1996), whose cost does not depend on how many there are.
#[derive(Clone, Debug)]
struct Zipf {
    /// The chance of a rank that is in the table.
    head: f64,
    table: Box<[Alias]>,
    tail: Option<Tail>,
}

#[derive(Clone, Copy, Debug)]
struct Alias {
    /// Keep the column's own rank below this, of 2^32.
    keep: u32,
    other: u32,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let len = count.min(HEAD);
        let weights: Vec<f64> = (1..=len).map(|rank| (rank as f64).powf(-exponent)).collect();
        let head: f64 = weights.iter().sum();
        let rest: f64 = tail_sum(len, count, exponent);
        let tail = (count > len).then(|| Tail::new(len + 1, count, exponent));
        Zipf { head: head / (head + rest), table: alias_table(&weights), tail }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        match &self.tail {
            Some(tail) if random.unit() > self.head => tail.draw(random) - 1,
            _ => {
                let word = random.word();
                let column = ((word >> 32) * self.table.len() as u64) >> 32;
                let alias = self.table[column as usize];
                match (word as u32) < alias.keep {
                    true => column,
                    false => u64::from(alias.other),
                }
            }
        }
    }
}

/// The sum of r^-s over the ranks above `len`, up to `count`: exact for the next million, then the integral with
/// Euler and Maclaurin's first terms, whose error is far below a float's precision there.
fn tail_sum(len: u64, count: u64, exponent: f64) -> f64 {
    const EXACT: u64 = 1 << 20;
    let exact_end = count.min(len + EXACT);
    let exact: f64 = (len + 1..=exact_end).map(|rank| (rank as f64).powf(-exponent)).sum();
    if exact_end == count {
        return exact;
    }
    let (a, b) = ((exact_end + 1) as f64, count as f64);
    let integral = match (exponent - 1.0).abs() < 1e-9 {
        true => (b / a).ln(),
        false => (b.powf(1.0 - exponent) - a.powf(1.0 - exponent)) / (1.0 - exponent),
    };
    exact + integral + 0.5 * (a.powf(-exponent) + b.powf(-exponent))
}

fn alias_table(weights: &[f64]) -> Box<[Alias]> {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut scaled: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..scaled.len()).partition(|column| scaled[*column] < 1.0);
    let mut table: Vec<Alias> =
        (0..scaled.len()).map(|column| Alias { keep: u32::MAX, other: column as u32 }).collect();
    while let (Some(low), Some(high)) = (small.pop(), large.last().copied()) {
        table[low] = Alias { keep: (scaled[low] * 2_f64.powi(32)) as u32, other: high as u32 };
        scaled[high] -= 1.0 - scaled[low];
        if scaled[high] < 1.0 {
            large.pop();
            small.push(high);
        }
    }
    table.into_boxed_slice()
}

/// Rejection-inversion over the ranks `first..=last`.
#[derive(Clone, Copy, Debug)]
struct Tail {
    first: f64,
    last: f64,
    exponent: f64,
    low: f64,
    high: f64,
    sure: f64,
}

impl Tail {
    fn new(first: u64, last: u64, exponent: f64) -> Self {
        let (first, last) = (first as f64, last as f64);
        let mut tail = Tail { first, last, exponent, low: 0.0, high: 0.0, sure: 0.0 };
        tail.low = tail.integral(first + 0.5) - first.powf(-exponent);
        tail.high = tail.integral(last + 0.5);
        tail.sure = first - tail.inverse(tail.low);
        tail
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(self.first, self.last);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64;
            }
        }
    }

    /// The integral of x^-s from 1; near s = 1 a form that loses no digits.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        match (1.0 - self.exponent) * log {
            t if t.abs() < 1e-9 => log,
            t => t.exp_m1() / (1.0 - self.exponent),
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        match (1.0 - self.exponent) * area {
            t if t.abs() < 1e-9 => area.exp(),
            t => (t.ln_1p() / (1.0 - self.exponent)).exp(),
        }
    }
}

/// What keys look like: a prefix, the key's number in decimal, and zeros between them up to the key's length.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Shape {
    /// In front of every key; graphic ASCII, at most 200 bytes.
    pub prefix: String,
    /// Bytes of a key, drawn once per key from its number; longer where the number needs it.
    pub bytes: crate::values::Sizes,
}

/// Decimal digits of two-digit numbers.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Appends the key of a number: `prefix`, then zeros and digits up to `bytes`.
#[inline]
pub fn push_key(out: &mut Vec<u8>, prefix: &[u8], number: u64, bytes: usize) {
    out.extend_from_slice(prefix);
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    let mut rest = number;
    while rest >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    let pair = &PAIRS[rest as usize];
    at -= 1;
    digits[at] = pair[1];
    if rest >= 10 {
        at -= 1;
        digits[at] = pair[0];
    }
    let used = digits.len() - at;
    let zeros = bytes.saturating_sub(prefix.len() + used);
    if zeros <= at {
        out.extend_from_slice(&digits[at - zeros..]);
    } else {
        out.resize(out.len() + zeros, b'0');
        out.extend_from_slice(&digits[at..]);
    }
}

/// The number of a key with this prefix; nothing if it is no such key.
#[inline]
pub fn parse_key(key: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(prefix)?;
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
