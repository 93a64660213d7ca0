//! The alternative for values of 1 KiB and more: 64 KiB pages of equal chunks, reused in place, CLOCK per class.
//!
//! `Hybrid` puts smaller values, and those larger than a quarter page, into a log and lets memory flow between
//! the two and between the size classes towards whoever evicts the younger items.

use super::cache::{Cache, Holding, NONE, Object, Traffic};
use super::segments::{INDEX_BYTES, Log, Settings, item_bytes};

const PAGE_BYTES: u32 = 64 << 10;
/// Payloads from here on live in pages.
const PAYLOAD_MIN: u32 = 1024;
const FREQUENCY_MAX: u8 = 3;
/// Evictions the moving average of a class's age looks back.
const AGE_WINDOW: f64 = 256.0;
/// Evictions between two looks at the balance of classes.
const BALANCE_EVERY: u64 = 64;
const BALANCE_AGE_RATIO: f64 = 0.8;

/// Chunk sizes that divide a page, each at least `factor_percent` of the one before.
pub(super) fn chunk_sizes(factor_percent: u32) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut per_page = PAGE_BYTES / PAYLOAD_MIN - 1;
    while per_page >= 4 {
        sizes.push(PAGE_BYTES / per_page / 8 * 8);
        per_page = (per_page * 100 / factor_percent).min(per_page - 1);
    }
    sizes
}

struct Page {
    class: usize,
    /// Keys by chunk; `NONE` where free.
    chunks: Vec<u32>,
    free: u32,
}

struct Class {
    chunk: u32,
    pages: Vec<usize>,
    /// Free chunks, by page and position. Those of pages that have left the class are skipped when met.
    free: Vec<(usize, u32)>,
    free_count: u32,
    hand_page: usize,
    hand_chunk: u32,
    /// Moving average of how many writes ago evicted items were written.
    age: f64,
    evictions: u64,
}

#[derive(Clone, Copy)]
struct Place {
    page: u32,
    chunk: u32,
    payload: u32,
    expiry: u32,
    written: u32,
    frequency: u8,
}

struct Pages {
    limit_bytes: u64,
    classes: Vec<Class>,
    pages: Vec<Page>,
    pages_spare: Vec<usize>,
    pages_used: u64,
    places: Vec<Place>,
    items: u64,
    writes: u32,
    evictions: u64,
    traffic: Traffic,
}

impl Pages {
    fn new(limit_bytes: u64, keys: u32, factor_percent: u32) -> Self {
        let class = |chunk| Class {
            chunk,
            pages: Vec::new(),
            free: Vec::new(),
            free_count: 0,
            hand_page: 0,
            hand_chunk: 0,
            age: 0.0,
            evictions: 0,
        };
        let place = Place { page: NONE, chunk: 0, payload: 0, expiry: 0, written: 0, frequency: 0 };
        Pages {
            limit_bytes,
            classes: chunk_sizes(factor_percent).into_iter().map(class).collect(),
            pages: Vec::new(),
            pages_spare: Vec::new(),
            pages_used: 0,
            places: vec![place; keys as usize],
            items: 0,
            writes: 0,
            evictions: 0,
            traffic: Traffic::default(),
        }
    }

    fn charged_bytes(&self) -> u64 {
        self.pages_used * u64::from(PAGE_BYTES) + self.items * INDEX_BYTES
    }

    /// A page may be added while one more page of room remains, which the index grows into.
    fn has_room(&self) -> bool {
        self.charged_bytes() + 2 * u64::from(PAGE_BYTES) <= self.limit_bytes
    }

    fn contains(&self, key: u32) -> bool {
        self.places[key as usize].page != NONE
    }

    fn forget(&mut self, key: u32) {
        let place = &mut self.places[key as usize];
        let (id, chunk) = (place.page as usize, place.chunk);
        place.page = NONE;
        self.items -= 1;
        let page = &mut self.pages[id];
        page.chunks[chunk as usize] = NONE;
        page.free += 1;
        let class = &mut self.classes[page.class];
        class.free.push((id, chunk));
        class.free_count += 1;
    }

    fn add_page(&mut self, class_id: usize) {
        let class = &mut self.classes[class_id];
        let count = PAGE_BYTES / class.chunk;
        let page = Page { class: class_id, chunks: vec![NONE; count as usize], free: count };
        let id = self.pages_spare.pop().unwrap_or(self.pages.len());
        match self.pages.get_mut(id) {
            Some(place) => *place = page,
            None => self.pages.push(page),
        }
        class.pages.push(id);
        class.free.extend((0..count).map(|chunk| (id, chunk)));
        class.free_count += count;
        self.pages_used += 1;
    }

    /// Empties a page of `class` (the one with the most free chunks) and gives it back. The hand first evicts as
    /// many items as the class then has too many; what is left in the page moves to free chunks elsewhere.
    fn drop_page(&mut self, class_id: usize, now: u32) -> bool {
        let class = &self.classes[class_id];
        if class.pages.is_empty() {
            return false;
        }
        while self.classes[class_id].free_count < PAGE_BYTES / self.classes[class_id].chunk {
            self.evict(class_id, now);
        }
        let class = &mut self.classes[class_id];
        let emptiest = (0..class.pages.len()).max_by_key(|&index| self.pages[class.pages[index]].free);
        let id = class.pages.swap_remove(emptiest.expect("the class has pages"));
        (class.hand_page, class.hand_chunk) = (class.hand_page.min(class.pages.len()), 0);
        class.free.retain(|&(page, _)| page != id);
        class.free_count -= self.pages[id].free;
        for key in std::mem::take(&mut self.pages[id].chunks).into_iter().filter(|&key| key != NONE) {
            self.settle(key, class_id);
            self.traffic.moved_bytes += u64::from(self.classes[class_id].chunk);
        }
        self.pages_spare.push(id);
        self.pages_used -= 1;
        true
    }

    /// Puts `key` into a free chunk of the class, which must have one.
    fn settle(&mut self, key: u32, class_id: usize) {
        let class = &mut self.classes[class_id];
        let (page, chunk) = class.free.pop().expect("the caller saw a free chunk");
        class.free_count -= 1;
        self.pages[page].free -= 1;
        self.pages[page].chunks[chunk as usize] = key;
        let place = &mut self.places[key as usize];
        (place.page, place.chunk) = (page as u32, chunk);
    }

    /// CLOCK: the hand frees the first item that was not read since it last came by.
    fn evict(&mut self, class_id: usize, now: u32) {
        loop {
            let class = &mut self.classes[class_id];
            if class.hand_page >= class.pages.len() {
                class.hand_page = 0;
            }
            let page = &self.pages[class.pages[class.hand_page]];
            let key = page.chunks[class.hand_chunk as usize];
            class.hand_chunk += 1;
            if class.hand_chunk as usize == page.chunks.len() {
                (class.hand_page, class.hand_chunk) = (class.hand_page + 1, 0);
            }
            if key == NONE {
                return;
            }
            let place = &mut self.places[key as usize];
            if place.frequency == 0 || place.expiry <= now {
                let age = f64::from(self.writes - place.written);
                class.age += (age - class.age) / AGE_WINDOW;
                class.evictions += 1;
                self.evictions += 1;
                self.forget(key);
                return;
            }
            place.frequency -= 1;
        }
    }

    fn write(&mut self, object: Object, now: u32) {
        self.writes += 1;
        let bytes = item_bytes(object.payload);
        self.traffic.written_bytes += u64::from(bytes);
        let class_id = self.classes.partition_point(|class| class.chunk < bytes);
        while self.classes[class_id].free_count == 0 {
            if self.has_room() {
                self.add_page(class_id);
            } else if !self.classes[class_id].pages.is_empty() {
                self.evict(class_id, now);
            } else if !self.drop_page(self.richest(), now) {
                return;
            }
        }
        let key = object.key;
        let mut frequency = 0;
        if self.contains(key) {
            frequency = self.places[key as usize].frequency;
        }
        // The new version is complete before the old one's chunk is free.
        let old = self.places[key as usize];
        self.settle(key, class_id);
        let new = self.places[key as usize];
        if old.page != NONE {
            self.places[key as usize] = old;
            self.forget(key);
        }
        self.places[key as usize] =
            Place { payload: object.payload, expiry: object.expiry, written: self.writes, frequency, ..new };
        self.items += 1;
        if self.evictions.is_multiple_of(BALANCE_EVERY) {
            self.balance(now);
        }
    }

    fn richest(&self) -> usize {
        (0..self.classes.len()).max_by_key(|&class| self.classes[class].pages.len()).unwrap_or(0)
    }

    /// A class with two pages' worth of free chunks returns one; else the class that evicts the oldest items
    /// gives a page to the one that evicts the youngest.
    fn balance(&mut self, now: u32) {
        self.evictions += 1;
        let slack = |class: &Class| class.free_count >= 2 * (PAGE_BYTES / class.chunk);
        if let Some(class) = self.classes.iter().position(slack) {
            self.drop_page(class, now);
            return;
        }
        let age = |class: &usize| self.classes[*class].age;
        let evicting = || (0..self.classes.len()).filter(|&class| self.classes[class].evictions > 0);
        let giving = evicting().filter(|&class| self.classes[class].pages.len() > 1);
        let (Some(from), Some(to)) = (
            giving.max_by(|a, b| age(a).total_cmp(&age(b))),
            evicting().min_by(|a, b| age(a).total_cmp(&age(b))),
        ) else {
            return;
        };
        if from != to && age(&to) < age(&from) * BALANCE_AGE_RATIO {
            self.drop_page(from, now);
            self.add_page(to);
        }
    }

    fn eviction_age(&self) -> f64 {
        let evictions: u64 = self.classes.iter().map(|class| class.evictions).sum();
        let weighted: f64 = self.classes.iter().map(|class| class.age * class.evictions as f64).sum();
        weighted / evictions.max(1) as f64
    }
}

/// A log for the small and the very large, pages for what is between.
pub(super) struct Hybrid {
    log: Log,
    pages: Pages,
    quarter_page: u32,
    sweep_seconds: u32,
    writes_log: f64,
    writes_pages: f64,
}

impl Hybrid {
    /// The log starts with as much as `log_percent` of the memory.
    pub(super) fn new(
        settings: Settings,
        limit_bytes: u64,
        keys: u32,
        factor_percent: u32,
        log_percent: u64,
    ) -> Self {
        let log_bytes = limit_bytes * log_percent / 100;
        Hybrid {
            log: Log::new(settings, log_bytes, keys),
            pages: Pages::new(limit_bytes - log_bytes, keys, factor_percent),
            quarter_page: PAGE_BYTES / 4,
            sweep_seconds: settings.sweep_seconds,
            writes_log: 0.0,
            writes_pages: 0.0,
        }
    }

    /// Moves one page of budget a second towards the side that evicts younger items. Ages are compared in
    /// writes to the whole cache.
    fn balance(&mut self, now: u32) {
        let writes = self.writes_log + self.writes_pages;
        let age_log = self.log.eviction_age * writes / self.writes_log.max(1.0);
        let age_pages = self.pages.eviction_age() * writes / self.writes_pages.max(1.0);
        let page = u64::from(PAGE_BYTES);
        // A side that never evicted has more than it needs.
        let log_rich = self.log.eviction_age == 0.0 || age_log * BALANCE_AGE_RATIO > age_pages;
        let pages_rich = self.pages.evictions < BALANCE_EVERY || age_pages * BALANCE_AGE_RATIO > age_log;
        if log_rich && self.writes_pages > 0.0 && self.log.limit_bytes > 32 * page && self.pages.evictions > 0
        {
            self.log.limit_bytes -= page;
            self.log.make_room(0, now);
            self.pages.limit_bytes += page;
        } else if pages_rich && self.log.eviction_age > 0.0 && self.pages.limit_bytes > 32 * page {
            self.pages.limit_bytes -= page;
            while self.pages.charged_bytes() > self.pages.limit_bytes {
                if !self.pages.drop_page(self.pages.richest(), now) {
                    break;
                }
            }
            self.log.limit_bytes += page;
        }
    }
}

impl Cache for Hybrid {
    fn read(&mut self, key: u32, now: u32) -> bool {
        if !self.pages.contains(key) {
            return self.log.read(key, now);
        }
        let place = &mut self.pages.places[key as usize];
        if place.expiry <= now {
            self.pages.forget(key);
            return false;
        }
        place.frequency = (place.frequency + 1).min(FREQUENCY_MAX);
        true
    }

    fn write(&mut self, object: Object, now: u32) {
        if object.payload >= PAYLOAD_MIN && item_bytes(object.payload) <= self.quarter_page {
            self.writes_pages += 1.0;
            if self.log.contains(object.key) {
                self.log.forget(object.key);
            }
            self.pages.write(object, now);
        } else {
            self.writes_log += 1.0;
            if self.pages.contains(object.key) {
                self.pages.forget(object.key);
            }
            self.log.write(object, now);
        }
    }

    fn tick(&mut self, now: u32) {
        self.log.tick(now);
        if self.sweep_seconds > 0 && now.is_multiple_of(self.sweep_seconds) {
            for key in 0..self.pages.places.len() as u32 {
                if self.pages.contains(key) && self.pages.places[key as usize].expiry <= now {
                    self.pages.forget(key);
                }
            }
        }
        self.balance(now);
    }

    fn traffic(&self) -> Traffic {
        let (log, pages) = (self.log.traffic(), self.pages.traffic);
        Traffic {
            written_bytes: log.written_bytes + pages.written_bytes,
            moved_bytes: log.moved_bytes + pages.moved_bytes,
        }
    }

    fn holding(&self, now: u32) -> Holding {
        let mut holding = self.log.holding(now);
        holding.charged_bytes += self.pages.charged_bytes();
        for place in self.pages.places.iter().filter(|place| place.page != NONE && place.expiry > now) {
            holding.items += 1;
            holding.payload_bytes += u64::from(place.payload);
        }
        holding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn object(key: u32, payload: u32) -> Object {
        Object { key, payload, expiry: NONE, ttl: NONE }
    }

    fn check(pages: &Pages) {
        let held = pages.places.iter().filter(|place| place.page != NONE).count() as u64;
        assert_eq!(pages.items, held);
        let used: usize = pages.classes.iter().map(|class| class.pages.len()).sum();
        assert_eq!(pages.pages_used, used as u64);
        for class in &pages.classes {
            let free: u32 = class.pages.iter().map(|&page| pages.pages[page].free).sum();
            assert_eq!(class.free_count, free);
            assert_eq!(class.free.len() as u32, free);
        }
        assert!(pages.charged_bytes() <= pages.limit_bytes);
    }

    #[test]
    fn chunks_divide_a_page_and_grow_by_the_step() {
        let sizes = chunk_sizes(125);
        assert_eq!(sizes[0], 1040);
        assert_eq!(sizes[sizes.len() - 1], 16_384);
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(chunk_sizes(108).len() > 2 * sizes.len());
        assert!(sizes.iter().all(|size| size % 8 == 0));
    }

    #[test]
    fn the_hand_spares_what_was_read() {
        let mut pages = Hybrid::new(settings(), 2 * MIB, 10_000, 125, 0);
        pages.write(object(0, 1500), 0);
        let mut written = 1;
        while pages.pages.evictions < 100 {
            pages.write(object(written, 1500), 0);
            assert!(pages.read(0, 0));
            written += 1;
        }
        assert!(!(1..written).all(|key| pages.pages.contains(key)));
        check(&pages.pages);
    }

    #[test]
    fn pages_follow_the_demand_for_another_size() {
        let mut pages = Pages::new(4 * MIB, 20_000, 108);
        for key in 0..5000 {
            pages.write(object(key, 1200), 0);
        }
        for key in 5000..20_000 {
            pages.write(object(key, 3000), 0);
        }
        let large = pages.classes.partition_point(|class| class.chunk < item_bytes(3000));
        assert!(pages.classes[large].pages.len() > 20, "{}", pages.classes[large].pages.len());
        check(&pages);
    }

    #[test]
    fn a_key_lives_on_one_side_only() {
        let mut hybrid = Hybrid::new(settings(), 8 * MIB, 10, 108, 50);
        for payload in [1500, 100, 40_000, 2000] {
            hybrid.write(object(1, payload), 0);
            assert!(hybrid.read(1, 0));
            assert!(hybrid.log.contains(1) != hybrid.pages.contains(1));
            assert_eq!(hybrid.holding(0).payload_bytes, u64::from(payload));
        }
    }

    fn settings() -> Settings {
        use super::super::segments::{Policy, S3};
        let s3 = S3 { small_percent: 10, threshold: 1, ghost_percent: 0, direct: false, by_size: false };
        Settings {
            policy: Policy::S3(s3),
            compact_below_percent: 75,
            weigh_age: false,
            ttl_classes: 1,
            workers: 1,
            sweep_seconds: 60,
        }
    }
}
