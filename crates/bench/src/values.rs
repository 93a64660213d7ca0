//! What values are made of, so that a wrong one is known at sight: they follow from key, version, length and seed.
//!
//! A value of at least [`HEADER_BYTES`] begins with the number of its key, its version, its length and a CRC32C of all
//! that and of the body, which is cut from a table of noise. A shorter one is the beginning of a digest of the same
//! facts: right or wrong can be told, but not whose it is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::random::{Random, mix};

/// Bytes of a value before its body: key 8, version 4, length 4, checksum 4.
pub const HEADER_BYTES: usize = 20;

/// The largest value that may be asked for.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of noise that bodies are cut from, beside the longest body.
const NOISE_BYTES: usize = 1 << 16;

/// The law of sizes in bytes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sizes {
    /// Always this.
    Fixed(u64),
    /// From the first to the second, each equally often.
    Uniform(u64, u64),
    /// One of these, each with its weight.
    Weighted(Vec<(u64, f64)>),
    /// Mean and standard deviation.
    Normal(f64, f64),
    /// Generalized Pareto: location, scale, shape; Facebook's values are `pareto:0,214.476,0.348238`
    /// (Atikoglu 2012).
    Pareto(f64, f64, f64),
    /// Generalized extreme value: location, scale, shape; Facebook's keys are `gev:30.7984,8.20449,0.078688`.
    Extreme(f64, f64, f64),
}

impl FromStr for Sizes {
    type Err = Error;

    /// `100`, `64-1024`, `32:9,4096:1`, `normal:100,20`, `pareto:0,214.476,0.348238` or `gev:30.8,8.2,0.08`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Usage(format!(
                "{text:?} is no size; one of BYTES, FIRST-LAST, BYTES:WEIGHT,…, normal:MEAN,DEVIATION, \
                 pareto:LOCATION,SCALE,SHAPE, gev:LOCATION,SCALE,SHAPE; at most {VALUE_BYTES_MAX} bytes"
            ))
        };
        let size = |word: &str| word.parse::<u64>().ok().filter(|size| *size <= VALUE_BYTES_MAX);
        let law = |rest: &str| -> Option<Vec<f64>> {
            rest.split(',').map(|word| word.parse().ok().filter(|x: &f64| x.is_finite())).collect()
        };
        let found = match text.split_once(':') {
            Some(("normal", rest)) => match law(rest).as_deref() {
                Some(&[mean, deviation]) if deviation >= 0.0 => Some(Sizes::Normal(mean, deviation)),
                _ => None,
            },
            Some(("pareto", rest)) => match law(rest).as_deref() {
                Some(&[at, scale, shape]) if scale > 0.0 => Some(Sizes::Pareto(at, scale, shape)),
                _ => None,
            },
            Some(("gev", rest)) => match law(rest).as_deref() {
                Some(&[at, scale, shape]) if scale > 0.0 => Some(Sizes::Extreme(at, scale, shape)),
                _ => None,
            },
            Some(_) => text
                .split(',')
                .map(|pair| {
                    let (bytes, weight) = pair.split_once(':')?;
                    let weight =
                        weight.parse::<f64>().ok().filter(|weight| *weight > 0.0 && weight.is_finite());
                    Some((size(bytes)?, weight?))
                })
                .collect::<Option<Vec<_>>>()
                .map(Sizes::Weighted),
            None => match text.split_once('-') {
                Some((first, last)) => match (size(first), size(last)) {
                    (Some(first), Some(last)) if first <= last => Some(Sizes::Uniform(first, last)),
                    _ => None,
                },
                None => size(text).map(Sizes::Fixed),
            },
        };
        found.ok_or_else(wrong)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(out, "{bytes}"),
            Sizes::Uniform(first, last) => write!(out, "{first}-{last}"),
            Sizes::Weighted(pairs) => {
                let pairs: Vec<String> =
                    pairs.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
                out.write_str(&pairs.join(","))
            }
            Sizes::Normal(mean, deviation) => write!(out, "normal:{mean},{deviation}"),
            Sizes::Pareto(at, scale, shape) => write!(out, "pareto:{at},{scale},{shape}"),
            Sizes::Extreme(at, scale, shape) => write!(out, "gev:{at},{scale},{shape}"),
        }
    }
}

impl TryFrom<String> for Sizes {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> Self {
        sizes.to_string()
    }
}

impl Sizes {
    /// Draws a size up to `max` bytes; what the law has beyond counts as `max`.
    #[inline]
    pub fn draw(&self, random: &mut Random, max: u64) -> usize {
        let bytes = match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform(first, last) => first + random.below(last - first + 1),
            _ => self.draw_law(random),
        };
        usize::try_from(bytes.min(max)).unwrap_or(usize::MAX)
    }

    fn draw_law(&self, random: &mut Random) -> u64 {
        let bytes = match self {
            Sizes::Fixed(bytes) => *bytes as f64,
            Sizes::Uniform(first, last) => (first + random.below(last - first + 1)) as f64,
            Sizes::Weighted(pairs) => {
                let mut left = random.unit() * pairs.iter().map(|(_, weight)| weight).sum::<f64>();
                let chosen = pairs.iter().find(|(_, weight)| {
                    left -= weight;
                    left <= 0.0
                });
                chosen.or(pairs.last()).map_or(0.0, |(bytes, _)| *bytes as f64)
            }
            Sizes::Normal(mean, deviation) => mean + deviation * random.normal(),
            Sizes::Pareto(at, scale, shape) => at + scale * power(random.unit(), *shape),
            Sizes::Extreme(at, scale, shape) => at + scale * power(random.exponential(), *shape),
        };
        // A float beyond the range becomes its nearest end, and what is no number 0.
        bytes.round() as u64
    }

    /// The largest size that can be drawn, up to `max`.
    pub fn largest(&self, max: u64) -> u64 {
        match self {
            Sizes::Fixed(bytes) | Sizes::Uniform(_, bytes) => (*bytes).min(max),
            Sizes::Weighted(pairs) => pairs.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0).min(max),
            Sizes::Normal(..) | Sizes::Pareto(..) | Sizes::Extreme(..) => max,
        }
    }
}

/// (u^-shape − 1) / shape, which becomes −ln u as the shape goes to 0.
fn power(u: f64, shape: f64) -> f64 {
    if shape.abs() < 1e-9 { -u.ln() } else { (u.powf(-shape) - 1.0) / shape }
}

/// What a value turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// Whole, and of this key: its version.
    Version(u32),
    /// Whole, but of another key.
    Foreign,
    /// Not as long as it says itself.
    Truncated,
    /// Neither.
    Broken,
}

/// Makes values and recognizes them.
#[derive(Clone, Debug)]
pub struct Maker {
    seed: u64,
    noise: Vec<u8>,
}

impl Maker {
    /// For values up to this size. Two makers with the same seed know each other's values.
    pub fn new(seed: u64, bytes_max: u64) -> Self {
        let bytes = NOISE_BYTES + usize::try_from(bytes_max.min(VALUE_BYTES_MAX)).unwrap_or(NOISE_BYTES);
        let mut random = Random::fork(seed, u64::from(u32::MAX));
        let mut noise = Vec::with_capacity(bytes + 8);
        while noise.len() < bytes {
            noise.extend_from_slice(&random.word().to_le_bytes());
        }
        Maker { seed, noise }
    }

    /// Appends the value of `bytes` bytes that this version of this key has.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>, key: u64, version: u32, bytes: usize) {
        let word = self.word(key, version);
        let Some(body) = bytes.checked_sub(HEADER_BYTES) else {
            out.extend_from_slice(&self.digest(word)[..bytes]);
            return;
        };
        let head = self.head(key, version, bytes);
        let body = self.body(word, body);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), body);
        out.extend_from_slice(&head);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(body);
    }

    /// Appends bytes without meaning, for values that nobody looks at; `word` says which.
    #[inline]
    pub fn push_noise(&self, out: &mut Vec<u8>, word: u64, bytes: usize) {
        out.extend_from_slice(self.body(word, bytes));
    }

    /// Looks at a value that came for a key. One without a header is compared with each version of `likely` (from the
    /// newest to the oldest), of which a caller keeps the number small.
    #[inline]
    pub fn inspect(&self, value: &[u8], key: u64, likely: impl IntoIterator<Item = u32>) -> Found {
        let Some((head, rest)) = value.split_first_chunk::<16>() else {
            return self.inspect_short(value, key, likely);
        };
        let Some((sum, body)) = rest.split_first_chunk::<4>() else {
            return self.inspect_short(value, key, likely);
        };
        let [tag, facts] = [0, 8].map(|at| u64_at(head, at));
        let (version, length) = (facts as u32, facts >> 32);
        let is_ours = tag == self.tag(key);
        let is_whole = length == value.len() as u64;
        let found = crc32c::crc32c_append(crc32c::crc32c(head), body);
        if found == u32::from_le_bytes(*sum) {
            // The length is part of what is summed up, so a value cut off has another sum.
            return if is_ours { Found::Version(version) } else { Found::Foreign };
        }
        match is_whole {
            false if self.is_beginning(value, key, version, length) => Found::Truncated,
            _ => Found::Broken,
        }
    }

    /// Whether a value's bytes are those that the whole one begins with (or, of a longer one, all that it has).
    fn is_beginning(&self, value: &[u8], key: u64, version: u32, length: u64) -> bool {
        let Ok(length) = usize::try_from(length) else { return false };
        if length < HEADER_BYTES || length - HEADER_BYTES > self.noise.len() - NOISE_BYTES {
            return false;
        }
        let mut whole = Vec::with_capacity(length);
        self.push(&mut whole, key, version, length);
        let shared = whole.len().min(value.len());
        whole[..shared] == value[..shared]
    }

    fn inspect_short(&self, value: &[u8], key: u64, likely: impl IntoIterator<Item = u32>) -> Found {
        let version =
            likely.into_iter().find(|version| self.digest(self.word(key, *version))[..value.len()] == *value);
        version.map_or(Found::Broken, Found::Version)
    }

    fn tag(&self, key: u64) -> u64 {
        key ^ mix(self.seed)
    }

    fn word(&self, key: u64, version: u32) -> u64 {
        mix(self.seed ^ key.rotate_left(24) ^ mix(u64::from(version) + 1))
    }

    fn head(&self, key: u64, version: u32, bytes: usize) -> [u8; 16] {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&self.tag(key).to_le_bytes());
        head[8..].copy_from_slice(&(u64::from(version) | (bytes as u64) << 32).to_le_bytes());
        head
    }

    fn body(&self, word: u64, bytes: usize) -> &[u8] {
        let place = (word % NOISE_BYTES as u64) as usize;
        &self.noise[place..place + bytes]
    }

    fn digest(&self, word: u64) -> [u8; 24] {
        let mut digest = [0; 24];
        for (number, bytes) in (0..).zip(digest.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&mix(word ^ number).to_le_bytes());
        }
        digest
    }
}

fn u64_at(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
