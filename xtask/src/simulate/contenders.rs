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

const S3_BASE: S3 = S3 { small_percent: 10, threshold: 1, ghost_percent: 25, direct: false, by_size: false };
const BASE: Settings = Settings {
    policy: Policy::S3(S3_BASE),
    compact_below_percent: 75,
    weigh_age: false,
    ttl_classes: 1,
    workers: 4,
    sweep_seconds: 60,
};

impl Contender {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Contender { name: name.into(), opens_group: false, kind }
    }

    pub(super) fn build(&self, workload: &Workload) -> Box<dyn Cache> {
        let (limit, keys) = (workload.limit_bytes, workload.keys_all());
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
        "zipf-0.99" => group(&mut list, queue_variants(&[20], &[2])),
        "zipf-0.9" => group(&mut list, queue_variants(&[5, 20, 30], &[2])),
        "once" | "drift" => group(&mut list, queue_variants(&[5, 20], &[2])),
        "write-85" | "write-flat" => {
            group(&mut list, large_variants());
            group(&mut list, compaction_variants(&[0, 50, 65, 85, 90]));
            group(&mut list, queue_variants(&[], &[]));
        }
        "write-95" | "write-4x" => {
            group(&mut list, large_variants());
            group(&mut list, compaction_variants(&[0, 50, 65, 85, 90]));
            group(&mut list, queue_variants(&[5, 20, 30], &[2]));
        }
        "mixed" | "mixed-256" => {
            group(&mut list, large_variants());
            group(&mut list, compaction_variants(&[0]));
            group(&mut list, queue_variants(&[], &[]));
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

pub(super) fn references() -> Vec<Contender> {
    let plain = |policy| Kind::Log(Settings { policy, compact_below_percent: 0, ..BASE });
    vec![
        Contender::new("memcached", Kind::Memcached),
        Contender::new("no limit", Kind::Unlimited),
        Contender::new("segments, FIFO", plain(Policy::Fifo)),
        Contender::new("segments, merge", plain(Policy::Merge)),
        Contender::new("segments, S3 (base)", Kind::Log(BASE)),
    ]
}

/// Other ways with values of 1 KiB and more.
fn large_variants() -> Vec<Contender> {
    vec![
        Contender::new("pages >= 1 KiB, step 1.25", Kind::Hybrid(BASE, 125)),
        Contender::new("pages >= 1 KiB, step 1.08", Kind::Hybrid(BASE, 108)),
        Contender::new("S3 by size", Kind::Log(s3(S3 { by_size: true, ..S3_BASE }))),
    ]
}

/// The base with one thing about its queues changed.
fn queue_variants(small_percents: &[u32], thresholds: &[u8]) -> Vec<Contender> {
    let mut list = Vec::new();
    let changes = small_percents.iter().map(|&small_percent| S3 { small_percent, ..S3_BASE });
    for change in changes.chain(thresholds.iter().map(|&threshold| S3 { threshold, ..S3_BASE })) {
        let name = format!("S3 small {} %, reads >= {}", change.small_percent, change.threshold);
        list.push(Contender::new(name, Kind::Log(s3(change))));
    }
    for ghost_percent in [0, 100] {
        let name = format!("S3 ghosts {ghost_percent} %");
        list.push(Contender::new(name, Kind::Log(s3(S3 { ghost_percent, ..S3_BASE }))));
    }
    let direct = S3 { direct: true, ..S3_BASE };
    list.push(Contender::new("S3 known keys straight to main", Kind::Log(s3(direct))));
    let neither = S3 { ghost_percent: 0, ..direct };
    list.push(Contender::new("S3 straight to main, no ghosts", Kind::Log(s3(neither))));
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
    let mut list: Vec<Contender> = percents.iter().map(variant).collect();
    list.push(Contender::new("S3 compact by age", Kind::Log(Settings { weigh_age: true, ..BASE })));
    list
}

fn placement_variants() -> Vec<Contender> {
    let mut list = Vec::new();
    let mut add = |name: String, settings| list.push(Contender::new(name, Kind::Log(settings)));
    for ttl_classes in [2, 4, 8] {
        add(format!("{ttl_classes} TTL classes"), Settings { ttl_classes, ..BASE });
    }
    for ttl_classes in [1, 4, 8] {
        let settings = Settings { ttl_classes, sweep_seconds: 0, ..BASE };
        add(format!("{ttl_classes} TTL classes, no sweep"), settings);
    }
    for ttl_classes in [1, 4, 8] {
        let settings = Settings { ttl_classes, compact_below_percent: 0, ..BASE };
        add(format!("{ttl_classes} TTL classes, no compaction"), settings);
    }
    for (workers, ttl_classes) in [(1, 4), (16, 1), (16, 4), (16, 8)] {
        let settings = Settings { workers, ttl_classes, ..BASE };
        add(format!("{ttl_classes} TTL classes, {workers} workers"), settings);
    }
    list
}
