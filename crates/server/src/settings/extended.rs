//! The options of `-o`: each stands here once, as the flags do in `table.rs`.

use super::table::Here;
use super::value::{fraction, number};
use super::{HashAlgorithm, Refusal, Settings};

/// One option of `-o`.
pub(super) struct Extended {
    /// Its name, before the equals sign.
    pub(super) name: &'static str,
    /// What its value is called; `None` when it takes none. In brackets when it may be left out.
    pub(super) argument: Option<&'static str>,
    /// What it is for.
    pub(super) help: &'static str,
    /// What holds without it.
    pub(super) default: Option<&'static str>,
    /// What becomes of it in this server.
    pub(super) here: Here,
    /// Writes it into the settings.
    pub(super) set: Set,
}

/// How an option is written into the settings.
type Set = fn(&mut Settings, &str) -> Result<(), Refusal>;

use Here::{Honoured, NoEffect, Warned};

const fn switch(name: &'static str, help: &'static str, here: Here, set: Set) -> Extended {
    Extended { name, argument: None, help, default: None, here, set }
}

const fn valued(
    name: &'static str,
    argument: &'static str,
    help: &'static str,
    default: &'static str,
    here: Here,
    set: Set,
) -> Extended {
    Extended { name, argument: Some(argument), help, default: Some(default), here, set }
}

const NO_SLABS: Here = NoEffect("there are no slab classes and no pages to move");
const NO_LRU: Here = NoEffect("eviction follows S3-FIFO, not a segmented LRU");
const NO_CRAWLER: Here = NoEffect("the janitor walks for expired items at a pace of its own");
const NO_LOG: Here = NoEffect("there is no watch log");
const NOTHING: Set = |_, _| Ok(());
const U32_MAX: u64 = u32::MAX as u64;

/// Options that begin with one of these belong to a part of memcached that is not here.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "ext_",
        "storage on flash is not supported; leave the ext_ options out and give -m what the cache needs",
    ),
    ("ssl_", "TLS is not supported; leave the ssl_ options out and put a proxy that speaks TLS in front"),
    (
        "proxy_",
        "routing to other servers is not supported; leave the proxy_ options out and run a proxy in front",
    ),
];

/// All options, in the order of the help.
pub(super) const EXTENDED: &[Extended] = &[
    switch(
        "maxconns_fast",
        "tell connections above the limit so and close them at once (default: enabled)",
        Honoured,
        |s, _| {
            s.conn_limit_fast = true;
            Ok(())
        },
    ),
    switch("no_maxconns_fast", "let connections above the limit wait instead", Honoured, |s, _| {
        s.conn_limit_fast = false;
        Ok(())
    }),
    valued(
        "idle_timeout",
        "<seconds>",
        "close connections that are silent this long; 0 for never",
        "0",
        Honoured,
        |s, v| number("idle_timeout", v, 0..=U32_MAX).map(|n| s.idle_timeout_seconds = n as u32),
    ),
    Extended {
        name: "hashpower",
        argument: Some("<12..32>"),
        help: "size of the index at the start, as a power of two (it grows by itself)",
        default: None,
        here: Honoured,
        set: |s, v| {
            number("Initial hashtable multiplier", v, 12..=32).map(|n| s.hash_power_initial = Some(n as u8))
        },
    },
    switch("track_sizes", "enable \"stats sizes\"", Honoured, |s, _| {
        s.track_sizes = true;
        Ok(())
    }),
    valued(
        "slab_chunk_max",
        "<kilobytes>",
        "largest chunk of the reported slab classes",
        "512",
        NoEffect("there are no slab classes; the size only changes the class numbers that are reported"),
        // Whether it is kilobytes depends on -I, which may come later: `parse` settles it at the end.
        |s, v| {
            number("slab_chunk_max", v, 1..=(1 << 20))
                .map(|kib| s.slabs.chunk_bytes_max = (kib << 10).min(U32_MAX) as u32)
        },
    ),
    Extended {
        name: "slab_sizes",
        argument: Some("<a-b-c>"),
        help: "sizes of the reported slab classes, separated by dashes",
        default: None,
        here: NoEffect(
            "there are no slab classes; the sizes only change the class numbers that are reported",
        ),
        set: slab_sizes,
    },
    switch(
        "modern",
        "the defaults of the future: today's",
        NoEffect("today's defaults are the modern ones"),
        NOTHING,
    ),
    switch(
        "no_modern",
        "the defaults of memcached 1.4",
        NoEffect("they concern slab classes, LRU and hash, of which this engine has its own"),
        |s, _| {
            s.slabs.reassign = false;
            s.slabs.automove = 0;
            s.conn_limit_fast = false;
            s.lru.maintainer = false;
            s.lru.crawler = false;
            s.slabs.chunk_bytes_max = 1 << 20;
            s.hash_algorithm = HashAlgorithm::Jenkins;
            Ok(())
        },
    ),
    switch(
        "no_hashexpand",
        "keep the index at its first size",
        NoEffect("the index grows bucket by bucket without a pause"),
        NOTHING,
    ),
    valued(
        "hash_algorithm",
        "<name>",
        "jenkins, murmur3 or xxh3",
        "murmur3",
        NoEffect("keys are hashed with rapidhash under a random seed"),
        |s, v| {
            s.hash_algorithm = match v {
                "jenkins" => HashAlgorithm::Jenkins,
                "murmur3" => HashAlgorithm::Murmur3,
                "xxh3" => HashAlgorithm::Xxh3,
                _ => return Err(Refusal::value("Unknown hash_algorithm option (jenkins, murmur3, xxh3)")),
            };
            Ok(())
        },
    ),
    switch("slab_reassign", "accepted", NO_SLABS, |s, _| {
        s.slabs.reassign = true;
        Ok(())
    }),
    switch("no_slab_reassign", "accepted", NO_SLABS, |s, _| {
        s.slabs.reassign = false;
        Ok(())
    }),
    valued("slab_automove", "[0..2]", "accepted", "1", NO_SLABS, |s, v| {
        let mode = if v.is_empty() { "1" } else { v };
        number("slab_automove", mode, 0..=2).map(|n| s.slabs.automove = n as u32)
    }),
    switch("no_slab_automove", "accepted", NO_SLABS, |s, _| {
        s.slabs.automove = 0;
        Ok(())
    }),
    valued("slab_automove_ratio", "<num>", "accepted", "0.8", NO_SLABS, |s, v| {
        fraction("slab_automove_ratio", v, "greater than 0 and at most 1", |n| n > 0.0 && n <= 1.0)
            .map(|n| s.slabs.automove_ratio = n)
    }),
    valued("slab_automove_window", "<3..1800>", "accepted", "30", NO_SLABS, |s, v| {
        number("slab_automove_window", v, 3..=1800).map(|n| s.slabs.automove_window = n as u32)
    }),
    valued("slab_automove_freeratio", "<num>", "accepted", "0.01", NO_SLABS, |s, v| {
        fraction("slab_automove_freeratio", v, "from 0 to 1", |n| (0.0..=1.0).contains(&n))
            .map(|n| s.slabs.automove_freeratio = n)
    }),
    switch("no_chunked_items", "accepted", NO_SLABS, NOTHING),
    switch("lru_crawler", "accepted", NO_CRAWLER, |s, _| {
        s.lru.crawler = true;
        Ok(())
    }),
    switch("no_lru_crawler", "accepted", NO_CRAWLER, |s, _| {
        s.lru.crawler = false;
        Ok(())
    }),
    valued("lru_crawler_sleep", "<us>", "accepted", "100", NO_CRAWLER, |s, v| {
        number("LRU crawler sleep", v, 0..=1_000_000).map(|n| s.lru.crawler_sleep_us = n as u32)
    }),
    valued("lru_crawler_tocrawl", "<num>", "accepted", "0", NO_CRAWLER, |s, v| {
        number("lru_crawler_tocrawl", v, 0..=U32_MAX).map(|n| s.lru.crawler_tocrawl = n as u32)
    }),
    switch("lru_maintainer", "accepted", NO_LRU, |s, _| {
        s.lru.maintainer = true;
        Ok(())
    }),
    switch("no_lru_maintainer", "accepted", NO_LRU, |s, _| {
        s.lru.maintainer = false;
        Ok(())
    }),
    valued("hot_lru_pct", "<1..79>", "accepted", "20", NO_LRU, |s, v| {
        number("hot_lru_pct", v, 1..=79).map(|n| s.lru.hot_pct = n as u32)
    }),
    valued("warm_lru_pct", "<1..79>", "accepted", "40", NO_LRU, |s, v| {
        number("warm_lru_pct", v, 1..=79).map(|n| s.lru.warm_pct = n as u32)
    }),
    valued("hot_max_factor", "<num>", "accepted", "0.2", NO_LRU, |s, v| {
        fraction("hot_max_factor", v, "greater than 0", |n| n > 0.0).map(|n| s.lru.hot_max_factor = n)
    }),
    valued("warm_max_factor", "<num>", "accepted", "2.0", NO_LRU, |s, v| {
        fraction("warm_max_factor", v, "greater than 0", |n| n > 0.0).map(|n| s.lru.warm_max_factor = n)
    }),
    Extended {
        name: "temporary_ttl",
        argument: Some("<seconds>"),
        help: "accepted",
        default: None,
        here: NO_LRU,
        set: |s, v| number("temporary_ttl", v, 0..=U32_MAX).map(|n| s.lru.temporary_ttl = Some(n as u32)),
    },
    Extended {
        name: "tail_repair_time",
        argument: Some("<seconds>"),
        help: "accepted, at least 10",
        default: None,
        here: NO_LRU,
        set: |s, v| number("tail_repair_time", v, 10..=U32_MAX).map(|n| s.tail_repair_seconds = n as u32),
    },
    valued("watcher_logbuf_size", "<kilobytes>", "accepted", "256", NO_LOG, |s, v| {
        number("watcher_logbuf_size", v, 0..=U32_MAX).map(|kib| s.watcher_logbuf_bytes = kib << 10)
    }),
    valued("worker_logbuf_size", "<kilobytes>", "accepted", "64", NO_LOG, |s, v| {
        number("worker_logbuf_size", v, 0..=U32_MAX).map(|kib| s.worker_logbuf_bytes = kib << 10)
    }),
    valued(
        "read_buf_mem_limit",
        "<megabytes>",
        "accepted",
        "0",
        NoEffect("buffers count towards -m and every connection's are bounded"),
        |s, v| number("read_buf_mem_limit", v, 0..=U32_MAX).map(|n| s.read_buf_limit_mib = n as u32),
    ),
    Extended {
        name: "resp_obj_mem_limit",
        argument: Some("<megabytes>"),
        help: "accepted",
        default: None,
        here: NoEffect("buffers count towards -m and every connection's are bounded"),
        set: |_, v| number("resp_obj_mem_limit", v, 0..=U32_MAX).map(drop),
    },
    switch("inline_ascii_resp", "accepted", NoEffect("items hold no reply text"), NOTHING),
    switch("no_inline_ascii_resp", "accepted", NoEffect("items hold no reply text"), NOTHING),
    switch(
        "drop_privileges",
        "accepted with a warning",
        Warned("there is no system call filter to turn on"),
        NOTHING,
    ),
    switch("relaxed_privileges", "accepted", NoEffect("there is no system call filter to relax"), NOTHING),
    Extended {
        name: "sock_cookie_id",
        argument: Some("<num>"),
        help: "accepted with a warning",
        default: None,
        here: Warned("sockets are not marked for packet filters"),
        set: |_, v| number("sock_cookie_id", v, 0..=U32_MAX).map(drop),
    },
];

/// Accepted, but not to be named in the help: memcached's test harness takes the word for support.
pub(super) const UNNAMED: &[&str] = &["no_drop_privileges"];

fn slab_sizes(settings: &mut Settings, text: &str) -> Result<(), Refusal> {
    let wrong =
        |why: &str| Refusal::usage(format!("slab_sizes: {why}; give rising sizes such as 128-512-1024"));
    let mut sizes: Vec<u32> = Vec::new();
    for part in text.split('-') {
        let size: u32 = part.trim().parse().map_err(|_| wrong(&format!("\"{part}\" is no size")))?;
        // memcached rounds sizes up to multiples of eight and wants at least that much between two.
        let size = size.saturating_add(7) & !7;
        if size < SLAB_SIZE_MIN || sizes.last().is_some_and(|last| size <= *last) {
            return Err(wrong(&format!("{part} is too small")));
        }
        sizes.push(size);
    }
    if sizes.len() > SLAB_SIZES_MAX {
        return Err(wrong("too many"));
    }
    settings.slabs.sizes = Some(sizes);
    Ok(())
}

const SLAB_SIZE_MIN: u32 = 48;
const SLAB_SIZES_MAX: usize = 61;
