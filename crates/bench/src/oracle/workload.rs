//! A sequence of commands that follows from a seed: every command on user data, few enough keys that they meet items.

use std::sync::Arc;

use super::request::{Bytes, Compare, Form, Mode, Op, Put, Request};

/// Keys that mostly hold numbers, all others that can stand on a line, and those that meta commands write as base64.
const NUMBERS: u64 = 40;
const TEXTS: u64 = 200;
const BINARIES: u64 = 16;

/// Expiry times that nothing reaches while a workload runs.
const LATER: [i64; 2] = [100_000, 2_000_000];

/// What is appended to has at most so many bytes; above, it is written anew.
const GROWN_BYTES_MAX: usize = 100_000;

/// The longest value, which fits below memcached's limit of a mebibyte with the longest key.
const VALUE_BYTES_MAX: u64 = 1_000_000;

/// What the values are cut out of.
const NOISE_BYTES: usize = 1 << 20;

/// Keys of one multiget at most.
const KEYS_AT_ONCE_MAX: u64 = 24;

/// What a workload is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Full,
    /// Without what memcached 1.6.18 does otherwise than 1.6.45: `E`, `s` and `N` of `ms`, `x` of `md`, keys as base64,
    /// `ma` with both `N` and `q`, `t` of what has just expired, items that were marked as out of date, counting down
    /// and up to the largest numbers, numbers that expire.
    Old,
    /// Everything, with values of up to 100 bytes, so that many commands are executed in little time.
    Small,
}

/// An iterator over commands.
#[derive(Clone, Debug)]
pub struct Workload {
    random: Random,
    scope: Scope,
    remaining: u64,
    keys: Vec<Bytes>,
    /// How long the value of each key is at most.
    bytes_max: Vec<usize>,
    noise: Bytes,
    /// Of pieces of values, of opaque tokens and of cas ids, so that no two are the same.
    pieces: u32,
}

impl Workload {
    /// So many commands; the same for the same seed, always.
    #[must_use]
    pub fn new(seed: u64, commands: u64) -> Self {
        Self::of(Scope::Full, seed, commands)
    }

    /// The same, of some of the commands.
    #[must_use]
    pub fn of(scope: Scope, seed: u64, commands: u64) -> Self {
        let mut random = Random(seed);
        let keys: Vec<Bytes> = (0..NUMBERS + TEXTS + BINARIES).map(key).collect();
        let noise = (0..NOISE_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        let bytes_max = vec![0; keys.len()];
        Workload { random, scope, remaining: commands, keys, bytes_max, noise, pieces: 0 }
    }

    /// All keys there are.
    #[must_use]
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    fn draw(&mut self) -> Request {
        let binaries = if self.scope == Scope::Old { 0 } else { BINARIES };
        let index = self.random.below(NUMBERS + TEXTS + binaries);
        let mut request = match index {
            0..NUMBERS => self.on_number(index),
            _ if index < NUMBERS + TEXTS => self.on_text(index),
            _ => self.meta(index),
        };
        if self.scope == Scope::Old && index < NUMBERS {
            never_expires(&mut request.op);
        }
        request.quiet = self.random.below(20) == 0 && self.can_be_quiet(&request.op);
        if request.form == Form::Meta {
            request.wants = self.wants(&request.op);
        }
        self.pieces = self.pieces.wrapping_add(1);
        request.opaque = self.pieces;
        request
    }

    fn on_number(&mut self, index: u64) -> Request {
        let delta = self.delta();
        match self.random.below(100) {
            0..20 => {
                let form = self.form();
                let value = delta.to_string().into_bytes().into();
                let flags = self.flags();
                let put = Put { flags, exptime: self.exptime(), ..plain(Mode::Set, value) };
                self.one(index, form, Op::Put(put))
            }
            20..55 => {
                let up = self.up();
                let op = Op::Count { up, delta, vivify: None, exptime: None, compare: None };
                self.one(index, Form::Classic, op)
            }
            55..80 => self.count(index, delta),
            80..95 => self.get_or_fetch(index),
            _ => self.delete(index),
        }
    }

    fn on_text(&mut self, index: u64) -> Request {
        match self.random.below(100) {
            0..14 => self.get(index, false),
            14..20 => self.get(index, true),
            20..24 => self.multiget(),
            24..44 => self.meta(index),
            44..50 => self.get_or_fetch(index),
            50..66 => self.put(index, Mode::Set, Form::Classic),
            66..69 => self.put(index, Mode::Add, Form::Classic),
            69..72 => self.put(index, Mode::Replace, Form::Classic),
            72..77 => self.put(index, Mode::Append, Form::Classic),
            77..82 => self.put(index, Mode::Prepend, Form::Classic),
            82..89 => self.cas(index),
            89..93 => self.one(index, Form::Classic, plain_delete()),
            93..98 => {
                let exptime = self.exptime();
                self.one(index, Form::Classic, Op::Touch { exptime })
            }
            _ => {
                let delta = self.delta();
                self.count(index, delta)
            }
        }
    }

    fn meta(&mut self, index: u64) -> Request {
        match self.random.below(100) {
            0..40 => self.fetch(index),
            40..80 => {
                let mode = match self.random.below(10) {
                    0..6 => Mode::Set,
                    6 => Mode::Add,
                    7 => Mode::Replace,
                    8 => Mode::Append,
                    _ => Mode::Prepend,
                };
                self.put(index, mode, Form::Meta)
            }
            80..92 => self.delete(index),
            _ => {
                let delta = self.delta();
                self.count(index, delta)
            }
        }
    }

    fn get_or_fetch(&mut self, index: u64) -> Request {
        if self.random.below(2) == 0 { self.get(index, false) } else { self.fetch(index) }
    }

    fn get(&mut self, index: u64, with_cas: bool) -> Request {
        let touch = (self.random.below(4) == 0).then(|| self.exptime());
        self.one(index, Form::Classic, Op::Get { with_cas, touch })
    }

    fn multiget(&mut self) -> Request {
        let mut keys: Vec<Bytes> = Vec::new();
        for _ in 0..2 + self.random.below(KEYS_AT_ONCE_MAX - 1) {
            let key = &self.keys[index_of(self.random.below(NUMBERS + TEXTS))];
            if !keys.contains(key) {
                keys.push(Arc::clone(key));
            }
        }
        let touch = (self.random.below(8) == 0 && self.scope != Scope::Old).then_some(LATER[0]);
        let op = Op::Get { with_cas: self.random.below(3) == 0, touch };
        Request { keys, form: Form::Classic, op, quiet: false, wants: Vec::new(), opaque: 0 }
    }

    fn fetch(&mut self, index: u64) -> Request {
        let touch = (self.random.below(6) == 0).then(|| self.new_exptime());
        let vivify = (self.random.below(8) == 0).then_some(LATER[0]);
        let recache = (self.random.below(6) == 0).then(|| [30, 2_500_000][index_of(self.random.below(2))]);
        let bump = self.random.below(8) != 0;
        self.one(index, Form::Meta, Op::Fetch { touch, vivify, recache, bump })
    }

    fn put(&mut self, index: u64, mode: Mode, form: Form) -> Request {
        let is_joined = matches!(mode, Mode::Append | Mode::Prepend);
        let value = self.piece(index);
        let bytes_max = &mut self.bytes_max[index_of(index)];
        // Both together have to fit, too.
        let is_too_long = *bytes_max > GROWN_BYTES_MAX || *bytes_max + value.len() > VALUE_BYTES_MAX as usize;
        let mode = if is_joined && is_too_long { Mode::Set } else { mode };
        *bytes_max = match mode {
            Mode::Set => value.len(),
            Mode::Append | Mode::Prepend => *bytes_max + value.len(),
            Mode::Add | Mode::Replace => value.len().max(*bytes_max),
        };
        let mut put = Put { flags: self.flags(), exptime: self.exptime(), ..plain(mode, value) };
        if form == Form::Meta {
            put.compare = self.compare(4);
            put.invalidate = self.invalidates();
            put.vivify = (self.random.below(3) == 0 && self.scope != Scope::Old).then_some(LATER[1]);
            if self.scope != Scope::Old && self.random.below(10) == 0 {
                // Far above all that a server has counted up to since the last one.
                put.new_cas = Some(u64::from(self.pieces) << 32);
            }
        }
        if put.compare.is_some() {
            // It may not be done.
            self.bytes_max[index_of(index)] += 2 * GROWN_BYTES_MAX;
        }
        self.one(index, form, Op::Put(put))
    }

    fn cas(&mut self, index: u64) -> Request {
        let mut request = self.put(index, Mode::Set, Form::Classic);
        if let Op::Put(put) = &mut request.op {
            put.compare = Some(if self.random.below(8) == 0 { Compare::Never } else { Compare::Last });
        }
        self.bytes_max[index_of(index)] += 2 * GROWN_BYTES_MAX;
        request
    }

    fn delete(&mut self, index: u64) -> Request {
        if self.random.below(3) == 0 && index < NUMBERS + TEXTS {
            return self.one(index, Form::Classic, plain_delete());
        }
        let op = Op::Delete {
            compare: self.compare(4),
            invalidate: self.invalidates(),
            drop_value: self.random.below(4) == 0 && self.scope != Scope::Old,
            exptime: (self.random.below(4) == 0).then_some(LATER[1]),
        };
        self.one(index, Form::Meta, op)
    }

    fn count(&mut self, index: u64, delta: u64) -> Request {
        let op = Op::Count {
            up: self.up(),
            delta,
            vivify: (self.random.below(3) == 0).then_some((LATER[0], delta >> 7)),
            exptime: (self.random.below(6) == 0).then(|| self.new_exptime()),
            compare: self.compare(8),
        };
        self.one(index, Form::Meta, op)
    }

    /// One of so many commands compares.
    fn compare(&mut self, one_of: u64) -> Option<Compare> {
        if self.random.below(one_of) != 0 {
            return None;
        }
        Some(if self.random.below(4) == 0 { Compare::Never } else { Compare::Last })
    }

    fn one(&mut self, index: u64, form: Form, op: Op) -> Request {
        let keys = vec![Arc::clone(&self.keys[index_of(index)])];
        Request { keys, form, op, quiet: false, wants: Vec::new(), opaque: 0 }
    }

    /// What a meta command asks to be told, each of it every other time.
    fn wants(&mut self, op: &Op) -> Vec<u8> {
        let letters: &[u8] = match op {
            Op::Fetch { .. } => b"vfsctkOhl",
            Op::Put(_) if self.scope == Scope::Old => b"kOc",
            Op::Put(_) => b"kOcs",
            Op::Delete { .. } => b"kO",
            _ => b"vtckO",
        };
        let chosen = self.random.next();
        let is_chosen = |place: &usize| chosen >> place & 1 == 1;
        (0..letters.len()).filter(is_chosen).map(|place| letters[place]).collect()
    }

    fn can_be_quiet(&self, op: &Op) -> bool {
        match op {
            Op::Get { .. } => false,
            Op::Count { vivify: Some(_), .. } => self.scope != Scope::Old,
            _ => true,
        }
    }

    fn form(&mut self) -> Form {
        if self.random.below(2) == 0 { Form::Classic } else { Form::Meta }
    }

    fn flags(&mut self) -> u32 {
        let flags = self.random.below(1 << 32);
        if self.random.below(2) == 0 { 0 } else { u32::try_from(flags).unwrap_or(0) }
    }

    fn exptime(&mut self) -> i64 {
        match self.random.below(20) {
            0..12 => 0,
            12..16 => LATER[0],
            16..19 => LATER[1],
            _ => -1,
        }
    }

    /// For a meta command, which may ask for it at once.
    fn new_exptime(&mut self) -> i64 {
        let exptime = self.exptime();
        if self.scope == Scope::Old { exptime.max(0) } else { exptime }
    }

    /// Numbers of all lengths.
    fn delta(&mut self) -> u64 {
        let shift = self.random.below(64);
        let least = if self.scope == Scope::Old { 8 } else { 0 };
        self.random.next() >> shift.max(least)
    }

    fn up(&mut self) -> bool {
        self.random.below(2) == 0 || self.scope == Scope::Old
    }

    /// Whether a command marks an item as out of date.
    fn invalidates(&mut self) -> bool {
        self.random.below(3) == 0 && self.scope != Scope::Old
    }

    /// A piece of a value. It begins with a letter, so that joined to a number it makes none, and says whose it is where
    /// there is room for that.
    fn piece(&mut self, index: u64) -> Bytes {
        let len = match (self.scope, self.random.below(1000)) {
            (Scope::Small, _) | (_, 0..650) => self.random.below(101),
            (_, 650..900) => self.random.below(2_000),
            (_, 900..980) => self.random.below(17_000),
            (_, 980..998) => self.random.below((64 << 10) + 1),
            _ => VALUE_BYTES_MAX - self.random.below(50_000),
        };
        let len = index_of(len);
        self.pieces = self.pieces.wrapping_add(1);
        let mut value = format!("v{index}/{}/", self.pieces).into_bytes();
        if len < value.len() {
            // Too short to say so: what tells it from others stands behind the letter.
            let from = index_of(self.random.below(1 << 19));
            value.truncate(1);
            value.extend_from_slice(&self.noise[from..from + len]);
        } else {
            let from = index_of(self.random.below(1 << 15));
            value.extend_from_slice(&self.noise[from..from + len - value.len()]);
        }
        value.truncate(len);
        value.into()
    }
}

impl Iterator for Workload {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(self.draw())
    }
}

fn plain(mode: Mode, value: Bytes) -> Put {
    Put { mode, value, flags: 0, exptime: 0, compare: None, vivify: None, invalidate: false, new_cas: None }
}

fn never_expires(op: &mut Op) {
    match op {
        Op::Get { touch, .. } => *touch = touch.map(|_| 0),
        Op::Fetch { touch, vivify, .. } => {
            *touch = touch.map(|_| 0);
            *vivify = vivify.map(|_| 0);
        }
        Op::Touch { exptime } => *exptime = 0,
        Op::Put(put) => put.exptime = 0,
        Op::Delete { exptime, .. } => *exptime = exptime.map(|_| 0),
        Op::Count { vivify, exptime, .. } => {
            *exptime = exptime.map(|_| 0);
            *vivify = vivify.map(|(_, initial)| (0, initial));
        }
    }
}

fn plain_delete() -> Op {
    Op::Delete { compare: None, invalidate: false, drop_value: false, exptime: None }
}

/// A key by its number: of various lengths up to the longest; the last ones are no text.
fn key(index: u64) -> Bytes {
    if index >= NUMBERS + TEXTS {
        let mut key = vec![0, b' ', b'\r', b'\n', 0xFF];
        key.extend_from_slice(&index.to_le_bytes());
        return key.into();
    }
    let len = match index % 10 {
        0 => 250,
        1 => 100,
        2 => 33,
        _ => 0,
    };
    let name = format!("oracle:{index}:");
    format!("{name:k<len$}").into_bytes().into()
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("drawn below the length of what lies in memory")
}

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number in `0..bound`.
    fn below(&mut self, bound: u64) -> u64 {
        let wide = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u64::try_from(wide).expect("below bound")
    }
}
