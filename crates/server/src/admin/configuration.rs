//! `stats settings`.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use super::{Sink, Subject, Tuning};
use crate::settings::Settings;

/// Gives the settings, as they are now, in memcached's order.
pub(super) fn give(subject: &mut dyn Subject, sink: &mut dyn Sink) {
    let admin = subject.admin();
    let settings = subject.settings();
    let tuning = admin.tuning().clone();
    let mut put = |key: &str, value: fmt::Arguments<'_>| sink.stat(format_args!("{key}"), value);
    put("maxbytes", format_args!("{}", admin.memory_bytes.load(Relaxed)));
    put("maxconns", format_args!("{}", settings.conn_limit));
    put("tcpport", format_args!("{}", settings.tcp_port));
    // Whatever -U asked for: none is open.
    put("udpport", format_args!("0"));
    put("inter", format_args!("{}", settings.listen_text.as_deref().unwrap_or("NULL")));
    put("verbosity", format_args!("{}", admin.verbosity()));
    put("oldest", format_args!("0"));
    put("evictions", format_args!("{}", if settings.evict { "on" } else { "off" }));
    match &settings.unix_socket {
        Some(path) => put("domain_socket", format_args!("{}", path.display())),
        None => put("domain_socket", format_args!("NULL")),
    }
    put("umask", format_args!("{:o}", settings.unix_mask));
    put("shutdown_command", yes(settings.shutdown_enabled));
    put("growth_factor", format_args!("{:.2}", settings.slabs.factor));
    put("chunk_size", format_args!("{}", settings.slabs.chunk_bytes_min));
    put("num_threads", format_args!("{}", settings.threads));
    put("num_threads_per_udp", format_args!("{}", settings.threads));
    put("stat_key_prefix", format_args!("{}", char::from(settings.prefix_delimiter)));
    put("detail_enabled", yes(admin.detail_enabled()));
    put("reqs_per_event", format_args!("{}", settings.requests_per_event_or_default()));
    put("cas_enabled", yes(settings.cas));
    put("tcp_backlog", format_args!("{}", settings.backlog));
    put("binding_protocol", format_args!("{}", settings.binding.as_str()));
    put("auth_enabled_sasl", yes(false));
    put("auth_enabled_ascii", yes(false));
    put("item_size_max", format_args!("{}", settings.item_bytes_max));
    put("maxconns_fast", yes(settings.conn_limit_fast));
    put("hashpower_init", format_args!("{}", settings.hash_power_initial.unwrap_or(0)));
    slabs_and_lru(settings, &tuning, &mut put);
    put("idle_timeout", format_args!("{}", settings.idle_timeout_seconds));
    put("watcher_logbuf_size", format_args!("{}", settings.watcher_logbuf_bytes));
    put("worker_logbuf_size", format_args!("{}", settings.worker_logbuf_bytes));
    put("read_buf_mem_limit", format_args!("{}", u64::from(settings.read_buf_limit_mib) << 20));
    put("track_sizes", yes(admin.track_sizes.load(Relaxed)));
    put("inline_ascii_response", yes(false));
    for (key, value) in EXTERNAL_STORAGE {
        put(key, format_args!("{value}"));
    }
    put("slab_automove_freeratio", format_args!("{:.3}", tuning.slabs.automove_freeratio));
    put("ext_drop_unread", yes(false));
    match settings.napi_ids {
        0 => put("num_napi_ids", format_args!("(null)")),
        count => put("num_napi_ids", format_args!("{count}")),
    }
    put("memory_file", format_args!("(null)"));
    put("client_flags_size", format_args!("4"));
}

/// What a memcached shows that was started without external storage.
const EXTERNAL_STORAGE: &[(&str, &str)] = &[
    ("ext_item_size", "512"),
    ("ext_item_age", "4294967295"),
    ("ext_low_ttl", "0"),
    ("ext_recache_rate", "2000"),
    ("ext_wbuf_size", "4194304"),
    ("ext_compact_under", "0"),
    ("ext_drop_under", "0"),
    ("ext_max_sleep", "1000000"),
    ("ext_max_frag", "0.80"),
];

fn slabs_and_lru(settings: &Settings, tuning: &Tuning, put: &mut dyn FnMut(&str, fmt::Arguments<'_>)) {
    let Tuning { slabs, lru, segmented } = tuning;
    put("slab_reassign", yes(slabs.reassign));
    put("slab_automove", format_args!("{}", slabs.automove));
    put("slab_automove_ratio", format_args!("{:.2}", slabs.automove_ratio));
    put("slab_automove_window", format_args!("{}", slabs.automove_window));
    put("slab_chunk_max", format_args!("{}", slabs.chunk_bytes_max));
    put("lru_crawler", yes(lru.crawler));
    put("lru_crawler_sleep", format_args!("{}", lru.crawler_sleep_us));
    put("lru_crawler_tocrawl", format_args!("{}", lru.crawler_tocrawl));
    put("tail_repair_time", format_args!("{}", settings.tail_repair_seconds));
    put("flush_enabled", yes(settings.flush_enabled));
    put("dump_enabled", yes(settings.dump_enabled));
    put("hash_algorithm", format_args!("{}", settings.hash_algorithm.as_str()));
    put("lru_maintainer_thread", yes(lru.maintainer));
    put("lru_segmented", yes(*segmented));
    put("hot_lru_pct", format_args!("{}", lru.hot_pct));
    put("warm_lru_pct", format_args!("{}", lru.warm_pct));
    put("hot_max_factor", format_args!("{:.2}", lru.hot_max_factor));
    put("warm_max_factor", format_args!("{:.2}", lru.warm_max_factor));
    put("temp_lru", yes(lru.temporary_ttl.is_some()));
    put("temporary_ttl", format_args!("{}", lru.temporary_ttl.unwrap_or(61)));
}

fn yes(value: bool) -> fmt::Arguments<'static> {
    if value { format_args!("yes") } else { format_args!("no") }
}
