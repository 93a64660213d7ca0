//! Workers, one who evicts, and a validator, each taking one small step at a time, in random order.
//!
//! A step is what another one can come in between: the look-up and its record, the announcement of an epoch and a look
//! at the share, taking an entry out and counting that. The table itself is a map, and does what it is told at once.

use std::collections::{BTreeMap, VecDeque};

use super::*;

const WORKERS: usize = 4;

/// Records that lie in a ring before one is dropped.
const RING_MAX: usize = 200;

/// What is likely, in steps out of 10 000.
#[derive(Clone, Copy, Debug)]
struct Weather {
    workers: usize,
    keys: u64,
    evictions: u64,
    flushes: u64,
    drops: u64,
    abandoned: u64,
    chosen_ids: u64,
    /// Look-ups that lie.
    lies: u64,
    /// After how many steps the next share is followed.
    turn: u64,
    /// How many records are taken at a time.
    patience: u64,
}

const CALM: Weather = Weather {
    workers: WORKERS,
    keys: 200,
    evictions: 5,
    flushes: 0,
    drops: 0,
    abandoned: 0,
    chosen_ids: 0,
    lies: 0,
    turn: 40_000,
    patience: 60,
};
const STORM: Weather = Weather { keys: 12, evictions: 300, flushes: 2, chosen_ids: 20, drops: 1, ..CALM };

#[derive(Clone, Copy)]
struct Item {
    version: Version,
    exptime: u32,
}

#[derive(Default)]
struct Worker {
    announced: Option<Tick>,
    share: Option<Share>,
    /// A command that was begun: the key, and what was read before the look-up.
    begun: Option<Seen>,
    /// One that took hold, and has no record yet.
    done: Option<Seen>,
    open: Vec<Seen>,
    ring: VecDeque<Seen>,
    drops: u64,
    drops_told: u64,
    /// Where its next version is written: ids grow along a segment, and segments are opened at different times.
    place: Version,
}

struct World {
    state: u64,
    weather: Weather,
    tick: Tick,
    seconds: u32,
    vanished: u64,
    births: u64,
    share: Share,
    items: BTreeMap<u64, Item>,
    /// What was replaced or removed last, for those who lie.
    old: BTreeMap<u64, Version>,
    workers: Vec<Worker>,
    /// An entry went, and that is not counted yet.
    is_uncounted: bool,
    shadow: Shadow,
    /// What is to be heard before suspicions are settled: the epochs seen, and how much is left of each ring.
    scan: Option<(Tick, Vec<usize>)>,
    seen: u64,
    lies: [u64; 3],
    findings: Vec<Finding>,
}

fn hash_of(key: u64) -> u64 {
    // Two shares.
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !(63 << 32) | (key % 2) << 32
}

impl World {
    fn new(seed: u64, weather: Weather) -> Self {
        World {
            state: seed,
            weather,
            tick: 1,
            seconds: 1_000,
            vanished: 0,
            births: 1,
            share: Share::FIRST,
            items: BTreeMap::new(),
            old: BTreeMap::new(),
            workers: (0..weather.workers).map(|_| Worker::default()).collect(),
            is_uncounted: false,
            shadow: Shadow::new(Share::FIRST, 1_000, 1),
            scan: None,
            seen: 0,
            lies: [0; 3],
            findings: Vec::new(),
        }
    }

    /// SplitMix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    fn happens(&mut self, chance: u64) -> bool {
        self.below(10_000) < chance
    }

    fn run(&mut self, seen: u64) {
        let mut turn = 0;
        while self.seen < seen {
            let weather = self.weather;
            match self.below(100) {
                0..=69 => self.work(),
                70..=74 => self.evict(),
                75..=76 => self.begin_scan(),
                77..=79 => self.tick += self.below(2),
                _ => self.validate(),
            }
            if self.happens(weather.flushes) {
                self.vanished += 1 << 32;
                self.items.clear();
            }
            if self.happens(2) {
                self.seconds += 1;
            }
            turn += 1;
            if turn % weather.turn == 0 {
                self.share = Share::of_number(1 - self.share.number());
                let tick = self.tick;
                self.shadow.rotate(self.share, tick);
                self.tick += 1;
            }
        }
    }

    fn work(&mut self) {
        let number = self.below(self.workers.len() as u64) as usize;
        let tick = self.tick;
        let worker = &mut self.workers[number];
        let Some(at) = worker.announced else {
            worker.announced = Some(tick);
            return;
        };
        let Some(share) = worker.share else {
            worker.share = Some(self.share);
            return;
        };
        if let Some(seen) = worker.done.take() {
            let is_full = worker.open.len() + worker.ring.len() >= RING_MAX;
            let is_dropped = share.holds(seen.hash) && self.happens(self.weather.drops);
            let is_sampled = self.below(10) == 0;
            let worker = &mut self.workers[number];
            match share.holds(seen.hash) || is_sampled {
                true if is_full || is_dropped => worker.drops += 1,
                true => worker.open.push(seen),
                false => {}
            }
        } else if let Some(seen) = worker.begun.take() {
            let done = self.execute(number, seen);
            self.workers[number].done = Some(done);
        } else if self.below(8) == 0 {
            let is_over = self.below(3) == 0;
            let worker = &mut self.workers[number];
            worker.ring.extend(worker.open.drain(..));
            worker.announced = (!is_over).then_some(tick);
            worker.share = None;
        } else {
            let hash = hash_of(self.below(self.weather.keys));
            let (vanished, seconds) = (self.vanished, self.seconds);
            let begun = Seen { hash, worker: number as u16, at, seconds, vanished, ..FOUND };
            self.workers[number].begun = Some(begun);
        }
    }

    fn execute(&mut self, number: usize, begun: Seen) -> Seen {
        let hash = begun.hash;
        let mut item = self.look_up(hash);
        let kind = self.below(100);
        if item.is_some_and(|item| item.exptime != 0 && item.exptime <= begun.seconds) {
            match self.below(3) {
                // It is missing as far as anybody is told, and may still be there.
                0 => item = None,
                1 => {
                    item = None;
                    self.items.remove(&hash);
                }
                _ => {}
            }
        }
        let found = item.map(|item| item.version);
        let exptime = if self.below(4) == 0 { self.seconds + self.below(20) as u32 } else { 0 };
        let mut seen = Seen { found, exptime: item.map_or(0, |item| item.exptime), ..begun };
        if self.happens(self.weather.chosen_ids) {
            let version = 1 + self.below(5);
            self.items.insert(hash, Item { version, exptime: 0 });
            return Seen { change: Unordered, exptime: 0, ..seen };
        }
        match (kind, item) {
            (0..=24, _) => {
                let version = self.version(number, found.unwrap_or(0));
                self.items.insert(hash, Item { version, exptime });
                self.old.extend(found.map(|version| (hash, version)));
                seen.change = Wrote(version);
                seen.exptime = exptime;
            }
            (25..=34, Some(item)) => {
                self.items.remove(&hash);
                self.old.insert(hash, item.version);
                seen.change = Removed;
            }
            (35..=44, Some(item)) => {
                self.items.insert(hash, Item { exptime, ..item });
                seen.exptime = exptime;
            }
            _ => {}
        }
        seen
    }

    /// The entry of a key, or a lie. What a liar finds is gone from the table, or comes back to it, as with a bucket
    /// that was read or written wrongly.
    fn look_up(&mut self, hash: u64) -> Option<Item> {
        let item = self.items.get(&hash).copied();
        if !self.happens(self.weather.lies) {
            return item;
        }
        let old = self.old.get(&hash).map(|version| Item { version: *version, exptime: 0 });
        let lie = match item {
            Some(_) if self.below(2) == 0 => None,
            _ => old,
        };
        match (item, lie) {
            (Some(_), None) => self.lies[0] += 1,
            (Some(_), Some(_)) => self.lies[1] += 1,
            (None, Some(_)) => self.lies[2] += 1,
            (None, None) => {}
        }
        match lie {
            Some(item) => _ = self.items.insert(hash, item),
            None => _ = self.items.remove(&hash),
        }
        lie
    }

    /// An id above the one replaced, but not above all there were.
    fn version(&mut self, number: usize, floor: Version) -> Version {
        let is_full = self.below(20) == 0;
        let worker = &mut self.workers[number];
        worker.place += 1;
        if worker.place <= floor || worker.place < 1_000 || is_full {
            self.births += 1;
            worker.place = (self.births * 1_000).max(floor.next_multiple_of(1_000) + 1_000);
            self.births = self.births.max(worker.place / 1_000);
        }
        worker.place
    }

    fn evict(&mut self) {
        if self.is_uncounted {
            self.is_uncounted = false;
            self.vanished += 1;
        } else if self.happens(self.weather.evictions * 20) {
            let victim = self.below(self.items.len() as u64 + 1) as usize;
            let victim = self.items.iter().nth(victim).map(|(hash, item)| (*hash, *item));
            if let Some((hash, item)) = victim {
                self.items.remove(&hash);
                self.is_uncounted = item.exptime == 0 || item.exptime > self.seconds;
            }
        }
    }

    fn validate(&mut self) {
        let number = self.below(self.workers.len() as u64) as usize;
        for _ in 0..self.below(self.weather.patience) {
            let worker = &mut self.workers[number];
            let Some(seen) = worker.ring.pop_front() else { break };
            if let Some((_, left)) = &mut self.scan {
                left[number] = left[number].saturating_sub(1);
            }
            self.tell_drops(number);
            self.seen += u64::from(self.shadow.share().holds(seen.hash));
            if self.happens(self.weather.abandoned) {
                self.shadow.forget(seen.hash, self.tick);
            } else {
                self.shadow.see(&seen, self.tick);
            }
            self.tick += u64::from(self.below(3) == 0);
        }
        if self.scan.as_ref().is_some_and(|(_, left)| left.iter().all(|left| *left == 0)) {
            self.settle();
        }
    }

    fn tell_drops(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if worker.drops != worker.drops_told {
            worker.drops_told = worker.drops;
            self.shadow.forget_all(self.tick);
        }
    }

    fn begin_scan(&mut self) {
        let announced = self.workers.iter().map(|worker| worker.announced);
        // Who is offline may begin in this very epoch.
        let oldest = announced.flatten().chain([self.tick]).min().unwrap_or(self.tick);
        self.scan = Some((oldest - 1, self.workers.iter().map(|worker| worker.ring.len()).collect()));
    }

    fn settle(&mut self) {
        if self.is_uncounted {
            return;
        }
        let Some((heard, _)) = self.scan.take() else { return };
        for number in 0..self.workers.len() {
            self.tell_drops(number);
        }
        let progress = Progress { heard, now: self.tick, seconds: self.seconds };
        let vanished = self.vanished;
        self.shadow.settle(&progress, |_| vanished, |finding| self.findings.push(*finding));
        self.tick += 1;
    }
}

/// From `VERACACHE_SEED`, or from the time; a failing test shows what was printed.
fn seed() -> u64 {
    let given = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_nanos() as u64)
    });
    println!("VERACACHE_SEED={seed}");
    seed
}

#[test]
fn without_a_fault_there_is_silence() {
    let seed = seed();
    let weathers = [
        CALM,
        STORM,
        Weather { workers: 1, ..CALM },
        Weather { workers: 1, ..STORM },
        Weather { keys: 3, evictions: 0, patience: 400, ..CALM },
        Weather { keys: 20, patience: 4, ..CALM },
        Weather { keys: 20, evictions: 2_000, ..CALM },
        Weather { chosen_ids: 0, flushes: 0, drops: 0, evictions: 0, ..STORM },
        Weather { chosen_ids: 200, keys: 50, ..CALM },
        Weather { chosen_ids: 20, keys: 50, patience: 400, turn: 4_000, ..CALM },
        Weather { drops: 20, keys: 50, ..CALM },
        Weather { abandoned: 100, keys: 20, ..CALM },
        Weather { abandoned: 1_000, chosen_ids: 100, keys: 20, patience: 300, ..CALM },
    ];
    for (index, weather) in weathers.into_iter().enumerate() {
        let mut world = World::new(seed ^ index as u64, weather);
        world.run(120_000);
        let counts = world.shadow.counts();
        println!("{weather:?}: {counts:?}");
        assert_eq!(world.findings, [], "{weather:?}");
        assert!(counts.checked > 1_000, "{weather:?} checks nothing: {counts:?}");
    }
}

#[test]
fn lies_are_found() {
    let seed = seed();
    for (index, workers) in [1, 2, WORKERS].into_iter().enumerate() {
        let weather = Weather { workers, lies: 6, evictions: 0, patience: 200, ..CALM };
        let mut world = World::new(seed ^ index as u64, weather);
        world.run(200_000);
        let counts = world.shadow.counts();
        println!("{weather:?}: {counts:?} of {:?}", world.lies);
        let found = [counts.lost, counts.stale, counts.resurrected];
        for (found, lies) in found.into_iter().zip(world.lies) {
            assert!(lies > 20, "{weather:?}");
            // Half of the keys are in the share that is not followed.
            assert!(found * 10 > lies, "{weather:?}: {found} of {lies}");
        }
    }
}
