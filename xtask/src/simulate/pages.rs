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

    /// Empties a page of `class` (the one with the most free chunks) and gives it back. Its items move to free
    /// chunks of the class while there are any and are evicted otherwise.
    fn drop_page(&mut self, class_id: usize) -> bool {
        let class = &mut self.classes[class_id];
        let Some(index) = (0..class.pages.len()).max_by_key(|&index| self.pages[class.pages[index]].free)
        else {
            return false;
        };
        let id = class.pages.swap_remove(index);
        (class.hand_page, class.hand_chunk) = (0, 0);
        class.free.retain(|&(page, _)| page != id);
        class.free_count -= self.pages[id].free;
        for key in std::mem::take(&mut self.pages[id].chunks).into_iter().filter(|&key| key != NONE) {
            if self.classes[class_id].free_count > 0 {
                let chunk = u64::from(self.classes[class_id].chunk);
                self.settle(key, class_id);
                self.traffic.moved_bytes += chunk;
            } else {
                self.places[key as usize].page = NONE;
                self.items -= 1;
            }
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
                class.age += (age - class.age) / 16.0;
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
            } else if !self.drop_page(self.richest()) {
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
            self.balance();
        }
    }

    fn richest(&self) -> usize {
        (0..self.classes.len()).max_by_key(|&class| self.classes[class].pages.len()).unwrap_or(0)
    }

    /// A class with two pages' worth of free chunks returns one; else the class that evicts the oldest items
    /// gives a page to the one that evicts the youngest.
    fn balance(&mut self) {
        self.evictions += 1;
        let slack = |class: &Class| class.free_count >= 2 * (PAGE_BYTES / class.chunk);
        if let Some(class) = self.classes.iter().position(slack) {
            self.drop_page(class);
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
            self.drop_page(from);
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
                if !self.pages.drop_page(self.pages.richest()) {
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
