//! `stats items`, `slabs`, `sizes`, `conns`, `integrity`, `disagreements` and `validation_latency`.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use super::census::Class;
use super::{Admin, Sink, Subject, Tuning};
use crate::integrity::Findings;

/// Keys of `stats items` after the ones that are known per class. Evictions and the like are counted for the whole
/// cache only, where no class is to blame; `stats` shows them.
const ITEMS_UNKNOWN_BY_CLASS: &[(&str, bool)] = &[
    ("evicted", false),
    ("evicted_nonzero", false),
    ("evicted_time", false),
    ("outofmemory", false),
    ("tailrepairs", false),
    ("reclaimed", false),
    ("expired_unfetched", false),
    ("evicted_unfetched", false),
    ("evicted_active", true),
    ("crawler_reclaimed", false),
    ("crawler_items_checked", false),
    ("lrutail_reflocked", false),
    ("moves_to_cold", true),
    ("moves_to_warm", true),
    ("moves_within_lru", true),
    ("direct_reclaims", true),
    ("hits_to_hot", true),
    ("hits_to_warm", true),
    ("hits_to_cold", true),
    ("hits_to_temp", true),
];

/// Keys of `stats slabs` that memcached counts per class and this server for the whole cache only.
const SLABS_UNKNOWN_BY_CLASS: &[&str] =
    &["get_hits", "cmd_set", "delete_hits", "incr_hits", "decr_hits", "cas_hits", "cas_badval", "touch_hits"];

/// `stats items`: for each class that holds items, what is known of them.
pub(super) fn items(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    let census = subject.census();
    let tuning = subject.admin().tuning().clone();
    for (number, class) in census.classes() {
        let mut put =
            |key: &str, value: u64| sink.stat(format_args!("items:{number}:{key}"), format_args!("{value}"));
        items_of(class, &tuning, &mut put);
        for (key, of_maintainer) in ITEMS_UNKNOWN_BY_CLASS {
            if !of_maintainer || tuning.lru.maintainer {
                put(key, 0);
            }
        }
    }
}

fn items_of(class: &Class, tuning: &Tuning, put: &mut dyn FnMut(&str, u64)) {
    put("number", class.items);
    if tuning.lru.maintainer {
        // One queue as far as a client can tell: everything is where memcached's tail would be.
        put("number_hot", 0);
        put("number_warm", 0);
        put("number_cold", class.items);
        if tuning.lru.temporary_ttl.is_some() {
            put("number_temp", 0);
        }
        put("age_hot", 0);
        put("age_warm", 0);
    }
    put("age", u64::from(class.age_seconds));
    put("mem_requested", class.bytes);
}

/// `stats slabs`: for each class that holds items, the pages they would fill.
pub(super) fn slabs(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    let census = subject.census();
    let memory_used = subject.snapshot().memory_used;
    let classes = &subject.admin().classes;
    let mut active = 0_u32;
    for (number, class) in census.classes() {
        let per_page = classes.chunks_per_page(number);
        let pages = class.items.div_ceil(per_page);
        let mut put =
            |key: &str, value: u64| sink.stat(format_args!("{number}:{key}"), format_args!("{value}"));
        put("chunk_size", u64::from(classes.chunk_bytes(number)));
        put("chunks_per_page", per_page);
        put("total_pages", pages);
        put("total_chunks", pages * per_page);
        put("used_chunks", class.items);
        put("free_chunks", pages * per_page - class.items);
        put("free_chunks_end", 0);
        for key in SLABS_UNKNOWN_BY_CLASS {
            put(key, 0);
        }
        active += 1;
    }
    sink.stat(format_args!("active_slabs"), format_args!("{active}"));
    sink.stat(format_args!("total_malloced"), format_args!("{memory_used}"));
}

/// `stats sizes`: how many items there are of each size, in steps of 32 bytes.
pub(super) fn sizes(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    if !subject.admin().track_sizes.load(Relaxed) {
        return status(sink, "disabled");
    }
    for (size, count) in subject.census().sizes() {
        sink.stat(format_args!("{size}"), format_args!("{count}"));
    }
}

/// `stats sizes_enable` and `stats sizes_disable`.
pub(super) fn sizes_switch(admin: &Admin, on: bool, sink: &mut dyn Sink) {
    admin.track_sizes.store(on, Relaxed);
    status(sink, if on { "enabled" } else { "disabled" });
}

fn status(sink: &mut dyn Sink, word: &str) {
    sink.stat(format_args!("sizes_status"), format_args!("{word}"));
}

/// `stats conns`: the open sockets.
pub(super) fn conns(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    for conn in subject.conns() {
        let fd = conn.fd;
        let mut put = |key: &str, value: fmt::Arguments<'_>| sink.stat(format_args!("{fd}:{key}"), value);
        put("addr", format_args!("{}", conn.addr));
        if let Some(listen_addr) = &conn.listen_addr {
            put("listen_addr", format_args!("{listen_addr}"));
        }
        put("state", format_args!("{}", conn.state));
        put("secs_since_last_cmd", format_args!("{}", conn.idle_seconds));
    }
}

/// `stats integrity`: what was checked in memory, and what was found. memcached has no such group.
pub(super) fn integrity(findings: &Findings, sink: &mut dyn Sink) {
    let mut put = |key: &str, value: fmt::Arguments<'_>| sink.stat(format_args!("{key}"), value);
    put("scrub_items_per_second", format_args!("{}", findings.items_per_second));
    put("scrubbed_items", format_args!("{}", findings.items));
    put("scrub_passes", format_args!("{}", findings.passes));
    let pass = findings.pass;
    put("scrub_pass_seconds", format_args!("{}.{:06}", pass.as_secs(), pass.subsec_micros()));
    put("scrub_damaged", format_args!("{}", findings.damaged));
    put("scrub_went_with_damaged", format_args!("{}", findings.went_with_it));
    put("crc_mismatches", format_args!("{}", findings.crc_mismatches));
    if let Some([verified, refused]) = findings.checked {
        put("checked_verified", format_args!("{verified}"));
        put("checked_refused", format_args!("{refused}"));
    }
    put("executions_per_command", format_args!("{}", findings.executions));
    put("disagreements", format_args!("{}", findings.disagreements));
    findings.validation.each(&mut put);
    findings.reaction.each(&mut put);
}

/// `stats disagreements`: the last of them, numbered, with all that is known. memcached has no such group.
pub(super) fn disagreements(subject: &dyn Subject, sink: &mut dyn Sink) {
    for (at, line) in subject.disagreements().iter().enumerate() {
        sink.stat(format_args!("{}", at + 1), format_args!("{line}"));
    }
}

/// `stats validation_latency`: the whole distribution, of which `stats integrity` has three percentiles. memcached has no
/// such group. The histogram tells some 4000 values apart, so there are no more lines than that.
pub(super) fn validation_latency(subject: &dyn Subject, sink: &mut dyn Sink) {
    for (latency_ns, count) in subject.validation_latencies() {
        sink.stat(format_args!("{latency_ns}"), format_args!("{count}"));
    }
}
