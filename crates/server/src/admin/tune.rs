//! Commands that change settings at run time: `verbosity`, `cache_memlimit`, `lru`, `slabs`, `lru_crawler`.
//!
//! Each takes the words after its name as one slice, and appends its answer unless `noreply` was asked for. Most of
//! them tune parts of memcached that this engine has not: they are checked, kept and shown in `stats settings`.

use std::sync::atomic::Ordering::Relaxed;

use super::classes::CLASSES_MAX;
use super::{Admin, Subject, line};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const OK: &str = "OK";
const ERROR: &str = "ERROR";

/// memcached knows three levels.
const VERBOSITY_MAX: u32 = 2;

/// More arguments than any of these commands has.
const WORDS_MAX: usize = 8;

/// The words of a command line.
struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
    noreply: bool,
}

impl<'a> Words<'a> {
    fn new(arguments: &'a [u8]) -> Self {
        let mut words = Words { words: [b""; WORDS_MAX], count: 0, noreply: false };
        for word in arguments.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
            words.noreply = word == b"noreply";
            if words.count < WORDS_MAX {
                words.words[words.count] = word;
                words.count += 1;
            }
        }
        words
    }

    fn all(&self) -> &[&'a [u8]] {
        &self.words[..self.count]
    }

    fn answer(&self, text: &str, out: &mut Vec<u8>) {
        if !self.noreply {
            line(out, text);
        }
    }
}

/// A number below 2^32, as memcached's `strtoul` takes it.
pub(super) fn unsigned(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn signed(word: &[u8]) -> Option<i32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn fraction(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `verbosity <level>`
pub(crate) fn verbosity(arguments: &[u8], admin: &Admin, out: &mut Vec<u8>) {
    let words = Words::new(arguments);
    let text = match words.all().first().and_then(|word| unsigned(word)) {
        Some(level) => {
            admin.verbosity.store(level.min(VERBOSITY_MAX), Relaxed);
            OK
        }
        None => BAD_FORMAT,
    };
    words.answer(text, out);
}

/// `cache_memlimit <megabytes>`
pub(crate) fn cache_memlimit(arguments: &[u8], subject: &dyn Subject, out: &mut Vec<u8>) {
    let words = Words::new(arguments);
    let text = match words.all().first().and_then(|word| unsigned(word)) {
        None => ERROR,
        Some(..8) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        Some(1_000_000_001..) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        Some(megabytes) => {
            let bytes = u64::from(megabytes) << 20;
            if subject.set_memory_limit(bytes) {
                subject.admin().memory_bytes.store(bytes, Relaxed);
                OK
            } else {
                "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"
            }
        }
    };
    words.answer(text, out);
}

/// `lru tune|mode|temp_ttl …`
pub(crate) fn lru(arguments: &[u8], admin: &Admin, out: &mut Vec<u8>) {
    let words = Words::new(arguments);
    let text = match words.all() {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            lru_tune(hot, warm, hot_factor, warm_factor, admin)
        }
        [b"mode", mode, ..] if admin.tuning().lru.maintainer => match *mode {
            b"flat" | b"segmented" => {
                admin.tuning().segmented = *mode == b"segmented";
                OK
            }
            _ => ERROR,
        },
        [b"temp_ttl", ttl, ..] if admin.tuning().lru.maintainer => match signed(ttl) {
            Some(ttl) => {
                admin.tuning().lru.temporary_ttl = u32::try_from(ttl).ok();
                OK
            }
            None => ERROR,
        },
        _ => ERROR,
    };
    words.answer(text, out);
}

fn lru_tune(hot: &[u8], warm: &[u8], hot_factor: &[u8], warm_factor: &[u8], admin: &Admin) -> &'static str {
    let (Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)) =
        (unsigned(hot), unsigned(warm), fraction(hot_factor), fraction(warm_factor))
    else {
        return ERROR;
    };
    if u64::from(hot) + u64::from(warm) > 80 {
        return "ERROR hot and warm pcts must not exceed 80";
    }
    if hot_factor <= 0.0 || warm_factor <= 0.0 {
        return "ERROR hot/warm age factors must be greater than 0";
    }
    let lru = &mut admin.tuning().lru;
    lru.hot_pct = hot;
    lru.warm_pct = warm;
    lru.hot_max_factor = hot_factor;
    lru.warm_max_factor = warm_factor;
    OK
}

/// `slabs reassign|automove …`
pub(crate) fn slabs(arguments: &[u8], admin: &Admin, out: &mut Vec<u8>) {
    let words = Words::new(arguments);
    let text = match words.all() {
        [b"reassign", from, to] => slabs_reassign(from, to, admin),
        [b"automove", rest @ ..] if !rest.is_empty() => slabs_automove(rest, admin),
        _ => ERROR,
    };
    words.answer(text, out);
}

/// There is never a page to move, which memcached says of a class that has no second page.
fn slabs_reassign(from: &[u8], to: &[u8], admin: &Admin) -> &'static str {
    if !admin.tuning().slabs.reassign {
        return "CLIENT_ERROR slab reassignment disabled";
    }
    let (Some(from), Some(to)) = (signed(from), signed(to)) else { return BAD_FORMAT };
    let known = |class: i32| usize::try_from(class).is_ok_and(|class| class <= admin.classes.last());
    if from == to {
        "SAME src and dst class are identical"
    } else if !known(from) || !known(to) {
        "BADCLASS invalid src or dst class id"
    } else {
        "NOSPARE source class has no spare pages"
    }
}

fn slabs_automove(words: &[&[u8]], admin: &Admin) -> &'static str {
    let slabs = &mut admin.tuning().slabs;
    match words {
        [b"ratio", ratio, ..] => match fraction(ratio) {
            Some(ratio) => slabs.automove_ratio = ratio,
            None => return ERROR,
        },
        [b"freeratio", ratio, ..] => match fraction(ratio) {
            Some(ratio) => slabs.automove_freeratio = ratio,
            None => return ERROR,
        },
        [b"window", window, ..] => match unsigned(window) {
            Some(window @ 3..=1800) => slabs.automove_window = window,
            Some(_) => return "CLIENT_ERROR automove window too low or too high",
            None => return ERROR,
        },
        [b"ratio" | b"freeratio" | b"window"] => return ERROR,
        [level, ..] => match unsigned(level) {
            Some(level @ 0..=2) => slabs.automove = level,
            Some(_) => return ERROR,
            None => return BAD_FORMAT,
        },
        [] => return ERROR,
    }
    OK
}

/// `lru_crawler enable|disable|sleep|tocrawl|crawl …`; its dumps are answered elsewhere.
pub(crate) fn lru_crawler(arguments: &[u8], subject: &dyn Subject, out: &mut Vec<u8>) {
    let words = Words::new(arguments);
    let admin = subject.admin();
    let text = match words.all() {
        [b"crawl", classes] => lru_crawler_crawl(classes, subject),
        [b"tocrawl", count] => match unsigned(count) {
            Some(count) => {
                admin.tuning().lru.crawler_tocrawl = count;
                OK
            }
            None => BAD_FORMAT,
        },
        [b"sleep", micros] => match unsigned(micros) {
            Some(micros @ 0..=1_000_000) => {
                admin.tuning().lru.crawler_sleep_us = micros;
                OK
            }
            Some(_) => "CLIENT_ERROR sleep must be one second or less",
            None => BAD_FORMAT,
        },
        [b"enable"] => {
            let lru = &mut admin.tuning().lru;
            if lru.crawler {
                "ERROR failed to start lru crawler thread"
            } else {
                lru.crawler = true;
                OK
            }
        }
        [b"disable"] => {
            admin.tuning().lru.crawler = false;
            OK
        }
        _ => ERROR,
    };
    words.answer(text, out);
}

/// The janitor takes expired items out by itself, so there is nothing left to start.
fn lru_crawler_crawl(classes: &[u8], subject: &dyn Subject) -> &'static str {
    if let Some(refusal) = crawl_refused(subject.admin()) {
        return refusal;
    }
    if ClassSet::parse(classes).is_none() {
        BAD_CLASS
    } else if subject.items() == 0 {
        "NOTSTARTED no items to crawl"
    } else {
        OK
    }
}

/// What a crawl or a dump of classes that do not exist is answered with.
pub(crate) const BAD_CLASS: &str = "BADCLASS invalid class id";

/// The answer to a crawl or a dump while the crawler is turned off.
pub(crate) fn crawl_refused(admin: &Admin) -> Option<&'static str> {
    (!admin.tuning().lru.crawler).then_some("CLIENT_ERROR lru crawler disabled")
}

/// The classes that a crawl or a dump is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassSet(u64);

impl ClassSet {
    /// Reads `all`, `hash`, or class numbers separated by commas; `None` if it is neither.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if matches!(text, b"all" | b"hash") {
            return Some(ClassSet(u64::MAX));
        }
        let mut set = 0;
        for word in text.split(|byte| *byte == b',') {
            match unsigned(word) {
                Some(class) if class >= 1 && (class as usize) < CLASSES_MAX => set |= 1 << class,
                _ => return None,
            }
        }
        Some(ClassSet(set))
    }

    /// Whether a class, by [`super::Classes::of`], is one of them.
    pub(crate) fn contains(self, class: u8) -> bool {
        self.0 >> class & 1 == 1
    }
}
