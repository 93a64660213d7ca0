//! The caches that are compared: a reference set for every workload, and variations around the chosen one where
//! the workload can tell them apart.

use super::cache::{Cache, Unlimited};
use super::memcached::Memcached;
use super::pages::Hybrid;
use super::segments::{Log, Policy, S3, Settings};
use super::workload::Workload;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Memcached,
    Unlimited,
    Log(Settings),
    /// Pages with this chunk growth in percent, beside a log.
    Hybrid(Settings, u32),
}

#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    /// Whether the report sets it apart from the row above.
    pub(super) opens_group: bool,
    kind: Kind,
}

const S3_BASE: S3 = S3 { small_percent: 10, threshold: 1, ghost_percent: 100, direct: false };
const BASE: Settings = Settings {
    policy: Policy::S3(S3_BASE),
    compact_below_percent: 75,
    ttl_classes: 1,
    workers: 4,
    sweep_seconds: 60,
};

impl Contender {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Contender { name: name.into(), opens_group: false, kind }
    }

    pub(super) fn build(&self, workload: &Workload) -> Box<dyn Cache> {
        let (limit, keys) = (workload.limit_bytes, workload.keys);
        match self.kind {
            Kind::Memcached => Box::new(Memcached::new(limit, keys)),
            Kind::Unlimited => Box::new(Unlimited::new(keys)),
            Kind::Log(settings) => Box::new(Log::new(settings, limit, keys)),
            Kind::Hybrid(settings, factor) => {
                Box::new(Hybrid::new(settings, limit, keys, factor, workload.log_percent))
            }
        }
    }
}

fn s3(change: S3) -> Settings {
    Settings { policy: Policy::S3(change), ..BASE }
}

/// The contenders of one workload; the first is what the others are compared with.
pub(super) fn for_workload(name: &str) -> Vec<Contender> {
    let mut list = references();
    match name {
        "zipf-0.99" | "zipf-0.9" => {
            group(&mut list, queue_variants());
            group(&mut list, compaction_variants(&[0, 50, 90]));
        }
        "write-85" | "write-95" | "write-flat" => {
            group(&mut list, page_variants());
            group(&mut list, queue_variants());
            group(&mut list, compaction_variants(&[0, 50, 65, 85, 90, 95]));
        }
        "mixed" => {
            group(&mut list, page_variants());
            group(&mut list, queue_variants());
            group(&mut list, compaction_variants(&[0, 50, 90]));
        }
        _ => {
            group(&mut list, compaction_variants(&[0, 50, 90]));
            group(&mut list, placement_variants());
        }
    }
    list
}

fn group(list: &mut Vec<Contender>, mut variants: Vec<Contender>) {
    if let Some(first) = variants.first_mut() {
        first.opens_group = true;
    }
    list.append(&mut variants);
}

fn references() -> Vec<Contender> {
    let plain = |policy| Kind::Log(Settings { policy, compact_below_percent: 0, ..BASE });
    vec![
        Contender::new("memcached", Kind::Memcached),
        Contender::new("no limit", Kind::Unlimited),
        Contender::new("segments, FIFO", plain(Policy::Fifo)),
        Contender::new("segments, merge", plain(Policy::Merge)),
        Contender::new("segments, S3 (base)", Kind::Log(BASE)),
    ]
}

fn page_variants() -> Vec<Contender> {
    vec![
        Contender::new("pages >= 1 KiB, step 1.25", Kind::Hybrid(BASE, 125)),
        Contender::new("pages >= 1 KiB, step 1.08", Kind::Hybrid(BASE, 108)),
    ]
}

fn queue_variants() -> Vec<Contender> {
    let mut list = Vec::new();
    for small_percent in [5, 10, 20, 30] {
        for threshold in [1, 2] {
            let name = format!("S3 small {small_percent} %, reads >= {threshold}");
            list.push(Contender::new(name, Kind::Log(s3(S3 { small_percent, threshold, ..S3_BASE }))));
        }
    }
    list.push(Contender::new("S3 no ghosts", Kind::Log(s3(S3 { ghost_percent: 0, ..S3_BASE }))));
    list.push(Contender::new("S3 half the ghosts", Kind::Log(s3(S3 { ghost_percent: 50, ..S3_BASE }))));
    list.push(Contender::new(
        "S3 known keys straight to main",
        Kind::Log(s3(S3 { direct: true, ..S3_BASE })),
    ));
    list
}

fn compaction_variants(percents: &[u32]) -> Vec<Contender> {
    let variant = |&percent: &u32| {
        let name = match percent {
            0 => "S3 no compaction".to_string(),
            _ => format!("S3 compact below {percent} % live"),
        };
        Contender::new(name, Kind::Log(Settings { compact_below_percent: percent, ..BASE }))
    };
    percents.iter().map(variant).collect()
}

fn placement_variants() -> Vec<Contender> {
    let mut list = Vec::new();
    for sweep_seconds in [60, 0] {
        for compact_below_percent in [75, 0] {
            for ttl_classes in [1, 2, 4, 8] {
                let sweep = if sweep_seconds > 0 { "sweep" } else { "no sweep" };
                let compact = if compact_below_percent > 0 { "compact" } else { "no compact" };
                let name = format!("{ttl_classes} TTL, {sweep}, {compact}");
                let settings = Settings { sweep_seconds, compact_below_percent, ttl_classes, ..BASE };
                list.push(Contender::new(name, Kind::Log(settings)));
            }
        }
    }
    for workers in [1, 16] {
        for ttl_classes in [1, 4, 8] {
            let name = format!("{ttl_classes} TTL, {workers} workers");
            list.push(Contender::new(name, Kind::Log(Settings { workers, ttl_classes, ..BASE })));
        }
    }
    list
}
