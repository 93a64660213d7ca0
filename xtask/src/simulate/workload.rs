//! The request streams, drawn once per workload and given to every cache alike.

use super::cache::{Cache, NONE, Object};
use super::zipf::{Zipf, unit};
use crate::random::{Random, mix};

/// Set in a drawn request when it is a write that happens whether or not the key is held.
const WRITE: u32 = 1 << 31;

/// Value sizes in bytes, by key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    Uniform(u32, u32),
    /// Uniform in the logarithm: as many values from 1 to 2 KiB as from 2 to 4 KiB.
    Octaves(u32, u32),
}

/// Times to live, by key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ttls {
    Never,
    /// 30 % one minute, 40 % one hour, 30 % for ever.
    ThreeKinds,
    /// 80 % uniform in the logarithm from 10 s to a day, 20 % for ever.
    Wide,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) keys: u32,
    pub(super) theta: f64,
    /// Share of the requests that go to keys nobody asks for again.
    pub(super) once_percent: u64,
    /// After how many requests popularity moves on by one key; 0 for never.
    pub(super) drift_requests: u32,
    pub(super) values: Values,
    /// Each write's value differs from the key's usual size by up to this share.
    pub(super) jitter_percent: u32,
    pub(super) write_percent: u64,
    pub(super) ttls: Ttls,
    pub(super) requests_per_second: u32,
    pub(super) limit_bytes: u64,
    pub(super) warm: usize,
    pub(super) measured: usize,
    /// Share of the memory the log starts with when it shares it with pages.
    pub(super) log_percent: u64,
}

/// A workload with its requests drawn.
pub(super) struct Trace {
    pub(super) workload: Workload,
    seed: u64,
    requests: Vec<u32>,
}

/// What one cache did with one trace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) reads: u64,
    pub(super) misses: u64,
    pub(super) written_bytes: u64,
    pub(super) moved_bytes: u64,
    /// Means over samples spread through the measured part.
    pub(super) items: f64,
    pub(super) payload_bytes: f64,
}

impl Outcome {
    pub(super) fn miss_percent(&self) -> f64 {
        100.0 * self.misses as f64 / self.reads.max(1) as f64
    }

    pub(super) fn moved_per_written(&self) -> f64 {
        self.moved_bytes as f64 / self.written_bytes.max(1) as f64
    }
}

impl Trace {
    pub(super) fn new(workload: Workload, seed: u64) -> Self {
        let seed = workload.name.bytes().fold(seed, |seed, byte| mix(seed ^ u64::from(byte)));
        let mut random = Random::new(seed);
        let zipf = Zipf::new(workload.keys, workload.theta);
        let mut once = 0;
        let draw = |turn: usize| {
            if random.below(100) < workload.once_percent {
                once += 1;
                return workload.keys + once - 1;
            }
            let moved = (turn as u32).checked_div(workload.drift_requests).unwrap_or(0);
            // Popularity wanders down the key numbers, so that the new favourite was the last in rank.
            let key = (zipf.sample(&mut random) + workload.keys - moved % workload.keys) % workload.keys;
            if random.below(100) < workload.write_percent { key | WRITE } else { key }
        };
        let requests = (0..workload.warm + workload.measured).map(draw).collect();
        Trace { workload, seed, requests }
    }

    /// The object a write at `turn` stores under `key`.
    fn object(&self, key: u32, turn: usize, now: u32) -> Object {
        let mut of_key = Random::new(self.seed ^ mix(u64::from(key)));
        let key_bytes = 15 + of_key.below(16) as u32;
        let value_bytes = match self.workload.values {
            Values::Uniform(min, max) => min + of_key.below(u64::from(max - min + 1)) as u32,
            Values::Octaves(min, max) => {
                (f64::from(min) * (f64::from(max) / f64::from(min)).powf(unit(&mut of_key))) as u32
            }
        };
        let ttl = match self.workload.ttls {
            Ttls::Never => NONE,
            Ttls::ThreeKinds => match of_key.below(100) {
                0..30 => 60,
                30..70 => 3600,
                _ => NONE,
            },
            Ttls::Wide if of_key.below(100) < 20 => NONE,
            Ttls::Wide => (10.0 * 8640.0_f64.powf(unit(&mut of_key))) as u32,
        };
        let swing = value_bytes * self.workload.jitter_percent / 100;
        let value_bytes =
            value_bytes - swing + Random::new(turn as u64).below(u64::from(2 * swing + 1)) as u32;
        Object { key, payload: key_bytes + value_bytes, expiry: now.saturating_add(ttl), ttl }
    }

    /// Fills `cache` with every key once, in an order unrelated to popularity, then replays the requests: a read
    /// that misses is followed by a write of that key.
    pub(super) fn replay(&self, cache: &mut dyn Cache) -> Outcome {
        const SAMPLES: usize = 8;
        let workload = &self.workload;
        self.fill(cache);
        let mut outcome = Outcome::default();
        let mut before = cache.traffic();
        let mut second = 0;
        let sample_every = (workload.measured / SAMPLES).max(1);
        for (turn, request) in self.requests.iter().enumerate() {
            let now = 1 + (turn as u64 / u64::from(workload.requests_per_second)) as u32;
            while second < now {
                second += 1;
                cache.tick(second);
            }
            if turn == workload.warm {
                before = cache.traffic();
            }
            let measures = turn >= workload.warm;
            let key = request & !WRITE;
            if request & WRITE != 0 {
                cache.write(self.object(key, turn, now), now);
            } else {
                let hit = cache.read(key, now);
                if !hit {
                    cache.write(self.object(key, turn, now), now);
                }
                outcome.reads += u64::from(measures);
                outcome.misses += u64::from(measures && !hit);
            }
            if measures && (turn - workload.warm) % sample_every == sample_every - 1 {
                let holding = cache.holding(now);
                assert!(holding.charged_bytes > 0);
                outcome.items += holding.items as f64 / SAMPLES as f64;
                outcome.payload_bytes += holding.payload_bytes as f64 / SAMPLES as f64;
            }
        }
        let after = cache.traffic();
        outcome.written_bytes = after.written_bytes - before.written_bytes;
        outcome.moved_bytes = after.moved_bytes - before.moved_bytes;
        outcome
    }

    fn fill(&self, cache: &mut dyn Cache) {
        let mut order: Vec<u32> = (0..self.workload.keys).collect();
        let mut random = Random::new(!self.seed);
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u64 + 1) as usize);
        }
        for key in order {
            cache.write(self.object(key, key as usize, 0), 0);
        }
    }
}

const MIB: u64 = 1 << 20;

/// Keys whose payload (a key of 22.5 bytes and a value of 2402 on average) is `percent` of the memory.
const fn keys_filling(limit_bytes: u64, percent: u64) -> u32 {
    (limit_bytes * percent * 2 / (100 * 4849)) as u32
}

const SMALL: Workload = Workload {
    name: "zipf-0.99",
    about: "zipf 0.99, values 32-64 B, reads only",
    keys: 1_000_000,
    theta: 0.99,
    once_percent: 0,
    drift_requests: 0,
    values: Values::Uniform(32, 64),
    jitter_percent: 0,
    write_percent: 0,
    ttls: Ttls::Never,
    requests_per_second: 20_000,
    limit_bytes: 32 * MIB,
    warm: 4_000_000,
    measured: 1_000_000,
    log_percent: 100,
};

const OVERWRITE: Workload = Workload {
    name: "write-85",
    about: "zipf 0.9, values 1-4 KiB, 50 % writes, data fill 85 % of the memory",
    keys: keys_filling(64 * MIB, 85),
    theta: 0.9,
    limit_bytes: 64 * MIB,
    // With the jitter, the values written are from 1024 to 4077 bytes long.
    values: Values::Uniform(1164, 3640),
    jitter_percent: 12,
    write_percent: 50,
    requests_per_second: 5_000,
    warm: 500_000,
    measured: 1_000_000,
    log_percent: 0,
    ..SMALL
};

const MIXED: Workload = Workload {
    name: "mixed",
    about: "zipf 0.9, values 64 B-64 KiB by octaves, 10 % writes",
    keys: 60_000,
    values: Values::Octaves(64, 65_536),
    jitter_percent: 5,
    write_percent: 10,
    warm: 600_000,
    measured: 1_000_000,
    log_percent: 50,
    ..OVERWRITE
};

/// Every workload, in the order of the report.
pub(super) const WORKLOADS: [Workload; 12] = [
    SMALL,
    Workload { name: "zipf-0.9", about: "zipf 0.9, values 32-64 B, reads only", theta: 0.9, ..SMALL },
    Workload {
        name: "once",
        about: "zipf 0.9, values 32-64 B, 30 % of the reads for keys asked once",
        theta: 0.9,
        once_percent: 30,
        ..SMALL
    },
    Workload {
        name: "drift",
        about: "zipf 0.9, values 32-64 B, a new most popular key every 20 requests",
        theta: 0.9,
        drift_requests: 20,
        ..SMALL
    },
    OVERWRITE,
    Workload {
        name: "write-95",
        about: "zipf 0.9, values 1-4 KiB, 50 % writes, data fill 95 % of the memory",
        keys: keys_filling(64 * MIB, 95),
        ..OVERWRITE
    },
    Workload {
        name: "write-flat",
        about: "uniform, values 1-4 KiB, 50 % writes, data fill 90 % of the memory",
        keys: keys_filling(64 * MIB, 90),
        theta: 0.0,
        ..OVERWRITE
    },
    Workload {
        name: "write-4x",
        about: "zipf 0.9, values 1-4 KiB, 50 % writes, data four times the memory",
        keys: keys_filling(64 * MIB, 400),
        ..OVERWRITE
    },
    MIXED,
    Workload {
        name: "mixed-256",
        about: "the same with 256 MiB and four times the keys",
        keys: 240_000,
        limit_bytes: 256 * MIB,
        warm: 2_400_000,
        ..MIXED
    },
    Workload {
        name: "ttl",
        about: "zipf 0.8, values 64-512 B, 30 % live 60 s, 40 % 1 h, 30 % for ever",
        limit_bytes: 64 * MIB,
        keys: 1_000_000,
        theta: 0.8,
        values: Values::Uniform(64, 512),
        write_percent: 5,
        ttls: Ttls::ThreeKinds,
        requests_per_second: 300,
        warm: 1_000_000,
        measured: 1_000_000,
        ..SMALL
    },
    Workload {
        name: "ttl-wide",
        about: "zipf 0.8, values 64-512 B, 80 % live 10 s to a day, 20 % for ever",
        limit_bytes: 64 * MIB,
        keys: 1_000_000,
        theta: 0.8,
        values: Values::Uniform(64, 512),
        write_percent: 5,
        ttls: Ttls::Wide,
        requests_per_second: 300,
        warm: 1_000_000,
        measured: 1_000_000,
        ..SMALL
    },
];

impl Workload {
    /// The number of keys a trace can name.
    pub(super) fn keys_all(&self) -> u32 {
        let requests = (self.warm + self.measured) as u64;
        // An eighth more than expected, or the draw would have to be absurdly lucky.
        let once = requests * self.once_percent / 100;
        self.keys + (once + once / 8) as u32
    }

    /// A smaller cut of the same shape, for tests.
    pub(super) fn quick(self) -> Self {
        let part = self.limit_bytes / (2 * MIB);
        Workload {
            keys: self.keys / part as u32,
            requests_per_second: (self.requests_per_second / part as u32).max(1),
            limit_bytes: 2 * MIB,
            warm: self.warm / 200,
            measured: self.measured / 200,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::Unlimited;
    use super::*;

    fn trace(workload: Workload) -> Trace {
        Trace::new(workload.quick(), 9)
    }

    fn find(name: &str) -> Workload {
        *WORKLOADS.iter().find(|workload| workload.name == name).expect("a known name")
    }

    #[test]
    fn an_object_keeps_its_size_and_life_unless_the_workload_says_otherwise() {
        let small = trace(find("zipf-0.9"));
        assert_eq!(small.object(7, 0, 0).payload, small.object(7, 99, 0).payload);
        let written = trace(find("write-85"));
        let sizes: Vec<u32> = (0..1000).map(|turn| written.object(7, turn, 0).payload).collect();
        assert!(sizes.iter().any(|&size| size != sizes[0]));
        let lives = trace(find("ttl"));
        for key in 0..1000 {
            let object = lives.object(key, 0, 5);
            assert!([60, 3600, NONE].contains(&object.ttl));
            assert_eq!(object.expiry, if object.ttl == NONE { NONE } else { 5 + object.ttl });
        }
    }

    #[test]
    fn values_written_are_from_1_to_4_kib() {
        let written = trace(find("write-95"));
        for key in 0..1000 {
            let payload = written.object(key, key as usize * 31, 0).payload;
            assert!((1024 + 15..=4096 + 30).contains(&payload), "{payload}");
        }
    }

    #[test]
    fn the_data_fills_the_memory_as_named() {
        for (name, share) in [("write-85", 0.85), ("write-95", 0.95), ("write-flat", 0.90), ("write-4x", 4.0)]
        {
            let trace = Trace::new(Workload { warm: 0, measured: 8, ..find(name) }, 1);
            let outcome = trace.replay(&mut Unlimited::new(trace.workload.keys_all()));
            let filled = outcome.payload_bytes / trace.workload.limit_bytes as f64;
            assert!((filled - share).abs() < share * 0.02, "{name}: {filled}");
        }
    }

    #[test]
    fn keys_asked_once_are_asked_once() {
        let trace = trace(find("once"));
        let mut once: Vec<u32> =
            trace.requests.iter().map(|key| key & !WRITE).filter(|&key| key >= trace.workload.keys).collect();
        let drawn = once.len();
        assert!(drawn * 100 / trace.requests.len() > 25);
        once.dedup();
        assert_eq!(once.len(), drawn);
        assert!(once.iter().all(|&key| key < trace.workload.keys_all()));
    }

    #[test]
    fn a_read_that_misses_writes_the_key() {
        let trace = Trace::new(Workload { write_percent: 0, ttls: Ttls::Never, ..find("ttl").quick() }, 1);
        let outcome = trace.replay(&mut Unlimited::new(trace.workload.keys_all()));
        assert_eq!((outcome.misses, outcome.reads), (0, trace.workload.measured as u64));
        assert_eq!(outcome.written_bytes, 0);
    }
}
