//! memcached's memory: slab classes of 1 MiB pages, a hot/warm/cold list per class, page moves between classes.
//!
//! Where the model simplifies, it does so in memcached's favour: the background thread always keeps up, the
//! crawler walks everything each minute, and a page that changes class takes the coldest items of its old class
//! with it, not whatever happened to lie in the page.

use super::cache::{Cache, Holding, NONE, Object, Traffic};

pub(super) const PAGE_BYTES: u64 = 1 << 20;
/// Header 48, cas 8, NUL after the key 1, CRLF after the value 2.
const ITEM_EXTRA_BYTES: u32 = 59;
/// The hash table has 0.67 to 1.33 pointers per item; the other pointer of the chain is in the header.
const INDEX_BYTES: u64 = 8;
const CRAWL_SECONDS: u32 = 60;
const HOT_PERCENT: u32 = 20;
const WARM_PERCENT: u32 = 40;
/// Moves between lists per written item; the background thread is never this far behind.
const JUGGLE_MOVES_MAX: u32 = 8;
/// A class gives a page when another's coldest item is younger than this share of its own coldest.
const AUTOMOVE_AGE_RATIO: f64 = 0.8;

/// The chunk sizes of factor 1.25, from 96 bytes up to half a page.
pub(super) fn chunk_sizes() -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut size = 96.0_f64;
    let chunk_bytes_max = PAGE_BYTES / 2;
    while size <= chunk_bytes_max as f64 / 1.25 {
        let chunk = (size as u32).next_multiple_of(8);
        sizes.push(chunk);
        size = f64::from(chunk) * 1.25;
    }
    sizes.push(chunk_bytes_max as u32);
    sizes
}

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    prev: u32,
    payload: u32,
    expiry: u32,
    /// The second of linking, or of the last read that made it active.
    time: u32,
    class: u8,
    list: u8,
    fetched: bool,
    active: bool,
    linked: bool,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

struct Class {
    chunk: u32,
    chunks_per_page: u32,
    pages: u32,
    chunks_free: u32,
    lists: [List; 3],
    evictions: u64,
    evictions_seen: u64,
}

pub(super) struct Memcached {
    limit_bytes: u64,
    classes: Vec<Class>,
    nodes: Vec<Node>,
    pages: u64,
    items: u64,
    traffic: Traffic,
}

impl Memcached {
    pub(super) fn new(limit_bytes: u64, keys: u32) -> Self {
        let list = List { head: NONE, tail: NONE, len: 0 };
        let class = |chunk| Class {
            chunk,
            chunks_per_page: PAGE_BYTES as u32 / chunk,
            pages: 0,
            chunks_free: 0,
            lists: [list; 3],
            evictions: 0,
            evictions_seen: 0,
        };
        let node = Node {
            next: NONE,
            prev: NONE,
            payload: 0,
            expiry: 0,
            time: 0,
            class: 0,
            list: 0,
            fetched: false,
            active: false,
            linked: false,
        };
        Memcached {
            limit_bytes,
            classes: chunk_sizes().into_iter().map(class).collect(),
            nodes: vec![node; keys as usize],
            pages: 0,
            items: 0,
            traffic: Traffic::default(),
        }
    }

    fn class_of(&self, payload: u32) -> usize {
        self.classes.partition_point(|class| class.chunk < payload + ITEM_EXTRA_BYTES)
    }

    fn charged_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES + self.items * INDEX_BYTES
    }

    fn detach(&mut self, key: u32) {
        let node = self.nodes[key as usize];
        let list = &mut self.classes[node.class as usize].lists[node.list as usize];
        list.len -= 1;
        match node.prev {
            NONE => list.head = node.next,
            prev => self.nodes[prev as usize].next = node.next,
        }
        match node.next {
            NONE => list.tail = node.prev,
            next => self.nodes[next as usize].prev = node.prev,
        }
    }

    fn attach(&mut self, key: u32, list_to: usize) {
        let class = self.nodes[key as usize].class as usize;
        let list = &mut self.classes[class].lists[list_to];
        let head = std::mem::replace(&mut list.head, key);
        list.len += 1;
        if head == NONE {
            list.tail = key;
        } else {
            self.nodes[head as usize].prev = key;
        }
        let node = &mut self.nodes[key as usize];
        (node.prev, node.next, node.list) = (NONE, head, list_to as u8);
    }

    fn shift(&mut self, key: u32, list_to: usize) {
        self.detach(key);
        self.attach(key, list_to);
    }

    fn unlink(&mut self, key: u32) {
        self.detach(key);
        self.classes[self.nodes[key as usize].class as usize].chunks_free += 1;
        self.nodes[key as usize].linked = false;
        self.items -= 1;
    }

    /// How long the coldest item of `class` has not been touched.
    fn cold_age(&self, class: usize, now: u32) -> u32 {
        match self.classes[class].lists[COLD].tail {
            NONE => 0,
            key => now.saturating_sub(self.nodes[key as usize].time),
        }
    }

    /// One step of the background thread on the tail of `HOT` or `WARM`; false when there was nothing to do.
    fn pull(&mut self, class: usize, list: usize, now: u32) -> bool {
        let key = self.classes[class].lists[list].tail;
        if key == NONE {
            return false;
        }
        let node = self.nodes[key as usize];
        if node.expiry <= now {
            self.unlink(key);
            return true;
        }
        if node.active {
            self.nodes[key as usize].active = false;
            self.shift(key, WARM);
            return true;
        }
        let total: u32 = self.classes[class].lists.iter().map(|list| list.len).sum();
        let cold_age = f64::from(self.cold_age(class, now));
        let (percent, age_max) =
            if list == HOT { (HOT_PERCENT, cold_age * 0.2) } else { (WARM_PERCENT, cold_age * 2.0) };
        let crowded = self.classes[class].lists[list].len > total * percent / 100;
        if crowded || f64::from(now.saturating_sub(node.time)) > age_max {
            self.shift(key, COLD);
            return true;
        }
        false
    }

    fn juggle(&mut self, class: usize, now: u32, moves_max: u32) {
        for list in [HOT, WARM] {
            for _ in 0..moves_max {
                if !self.pull(class, list, now) {
                    break;
                }
            }
        }
    }

    /// Frees one chunk of `class` from the cold end; false when the class holds nothing.
    fn evict(&mut self, class: usize) -> bool {
        let key =
            [COLD, HOT, WARM].iter().map(|&list| self.classes[class].lists[list].tail).find(|&k| k != NONE);
        let Some(key) = key else { return false };
        self.unlink(key);
        self.classes[class].evictions += 1;
        true
    }

    fn take_chunk(&mut self, class: usize) -> bool {
        if self.classes[class].chunks_free == 0 {
            let fits = self.charged_bytes() + PAGE_BYTES <= self.limit_bytes;
            // The real one lets a class without pages exceed the limit; here it takes another's page instead.
            let stolen = !fits && self.classes[class].pages == 0 && self.steal_page(class);
            if fits || stolen {
                self.add_page(class);
            } else if !self.evict(class) {
                return false;
            }
        }
        self.classes[class].chunks_free -= 1;
        true
    }

    fn add_page(&mut self, class: usize) {
        self.pages += 1;
        let class = &mut self.classes[class];
        class.pages += 1;
        class.chunks_free += class.chunks_per_page;
    }

    fn steal_page(&mut self, for_class: usize) -> bool {
        let richest = self.richest();
        let gives = richest != for_class && self.classes[richest].pages > 1;
        if gives {
            self.drop_page(richest);
        }
        gives
    }

    fn richest(&self) -> usize {
        (0..self.classes.len()).max_by_key(|&class| self.classes[class].pages).unwrap_or(0)
    }

    fn drop_page(&mut self, class: usize) {
        while self.classes[class].chunks_free < self.classes[class].chunks_per_page {
            if !self.evict(class) {
                return;
            }
        }
        self.classes[class].chunks_free -= self.classes[class].chunks_per_page;
        self.classes[class].pages -= 1;
        self.pages -= 1;
    }

    /// At most one page a second: free pages go back to the pool, and the class with the oldest cold end gives
    /// to the evicting class with the youngest.
    fn automove(&mut self, now: u32) {
        for class in 0..self.classes.len() {
            if self.classes[class].chunks_free * 2 >= self.classes[class].chunks_per_page * 5 {
                self.drop_page(class);
                return;
            }
        }
        let mut oldest: Option<(u32, usize)> = None;
        let mut youngest: Option<(u32, usize)> = None;
        for class in 0..self.classes.len() {
            let age = self.cold_age(class, now);
            if self.classes[class].pages > 2 && oldest.is_none_or(|(best, _)| age > best) {
                oldest = Some((age, class));
            }
            let evicts = self.classes[class].evictions > self.classes[class].evictions_seen;
            self.classes[class].evictions_seen = self.classes[class].evictions;
            if evicts && youngest.is_none_or(|(best, _)| age < best) {
                youngest = Some((age, class));
            }
        }
        let (Some((age_old, from)), Some((age_young, to))) = (oldest, youngest) else { return };
        if from != to && f64::from(age_young) < f64::from(age_old) * AUTOMOVE_AGE_RATIO {
            self.drop_page(from);
            self.add_page(to);
        }
    }
}

impl Cache for Memcached {
    fn read(&mut self, key: u32, now: u32) -> bool {
        let node = &mut self.nodes[key as usize];
        if !node.linked {
            return false;
        }
        if node.expiry <= now {
            self.unlink(key);
            return false;
        }
        if !node.fetched {
            node.fetched = true;
        } else if !node.active {
            if usize::from(node.list) == COLD {
                self.shift(key, WARM);
            } else {
                node.active = true;
                node.time = now;
            }
        }
        true
    }

    fn write(&mut self, object: Object, now: u32) {
        self.traffic.written_bytes += u64::from(object.payload + ITEM_EXTRA_BYTES);
        let class = self.class_of(object.payload);
        let room = self.take_chunk(class);
        if self.nodes[object.key as usize].linked {
            self.unlink(object.key);
        }
        if !room {
            return;
        }
        self.nodes[object.key as usize] = Node {
            next: NONE,
            prev: NONE,
            payload: object.payload,
            expiry: object.expiry,
            time: now,
            class: class as u8,
            list: HOT as u8,
            fetched: false,
            active: false,
            linked: true,
        };
        self.attach(object.key, HOT);
        self.items += 1;
        self.juggle(class, now, JUGGLE_MOVES_MAX);
        if self.charged_bytes() > self.limit_bytes {
            self.drop_page(self.richest());
        }
    }

    fn tick(&mut self, now: u32) {
        for class in 0..self.classes.len() {
            self.juggle(class, now, 500);
        }
        if now.is_multiple_of(CRAWL_SECONDS) {
            for key in 0..self.nodes.len() as u32 {
                let node = self.nodes[key as usize];
                if node.linked && node.expiry <= now {
                    self.unlink(key);
                }
            }
        }
        self.automove(now);
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn holding(&self, now: u32) -> Holding {
        let mut holding = Holding { charged_bytes: self.charged_bytes(), ..Holding::default() };
        for node in self.nodes.iter().filter(|node| node.linked && node.expiry > now) {
            holding.items += 1;
            holding.payload_bytes += u64::from(node.payload);
        }
        holding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: u32, payload: u32) -> Object {
        Object { key, payload, expiry: NONE, ttl: NONE }
    }

    #[test]
    fn chunk_sizes_are_those_of_the_default_settings() {
        let sizes = chunk_sizes();
        let first =
            [96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184, 1480, 1856, 2320, 2904, 3632, 4544];
        assert_eq!(&sizes[..first.len()], first);
        assert_eq!(sizes[sizes.len() - 2..], [394_840, 524_288]);
        assert_eq!(sizes.len(), 39);
    }

    #[test]
    fn an_item_takes_the_smallest_chunk_it_fits() {
        let cache = Memcached::new(8 << 20, 1);
        let check = |payload, chunk| assert_eq!(cache.classes[cache.class_of(payload)].chunk, chunk);
        check(15 + 32, 120);
        check(30 + 32, 152);
        check(30 + 100, 192);
        check(40 + 1024, 1184);
        check(96 - 59, 96);
        check(97 - 59, 120);
    }

    #[test]
    fn a_second_read_activates_and_active_items_outlive_the_others() {
        let keys = 40_000;
        let mut cache = Memcached::new(2 * PAGE_BYTES, keys);
        for key in 2..2000 {
            cache.write(object(key, 40), 0);
        }
        cache.write(object(0, 40), 0);
        cache.write(object(1, 40), 0);
        assert!(cache.read(0, 0));
        assert!(!cache.nodes[0].active);
        assert!(cache.read(0, 0));
        assert!(cache.nodes[0].active);
        for key in 2000..20_000 {
            cache.write(object(key, 40), 0);
        }
        assert!(cache.read(0, 0));
        assert!(!cache.read(1, 0));
        assert!(cache.charged_bytes() <= cache.limit_bytes);
    }

    #[test]
    fn expired_items_are_misses_and_the_crawler_frees_them() {
        let mut cache = Memcached::new(4 * PAGE_BYTES, 3);
        cache.write(Object { key: 0, payload: 40, expiry: 10, ttl: 10 }, 0);
        cache.write(Object { key: 1, payload: 40, expiry: 10, ttl: 10 }, 0);
        assert!(cache.read(0, 9));
        assert!(!cache.read(0, 10));
        assert_eq!(cache.items, 1);
        cache.tick(60);
        assert_eq!(cache.items, 0);
    }

    #[test]
    fn pages_follow_the_demand_for_another_class() {
        let mut cache = Memcached::new(8 * PAGE_BYTES, 200_000);
        for key in 0..100_000 {
            cache.write(object(key, 40), 0);
        }
        let class = cache.class_of(1000);
        for (second, key) in (100_000..200_000).enumerate() {
            cache.write(object(key, 1000), second as u32 / 1000);
            if second % 1000 == 0 {
                cache.tick(second as u32 / 1000);
            }
        }
        assert!(cache.classes[class].pages > 2, "{}", cache.classes[class].pages);
        assert!(cache.charged_bytes() <= cache.limit_bytes);
    }
}
