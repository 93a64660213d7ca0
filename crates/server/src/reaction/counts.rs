//! What is counted of disagreements, and how `stats integrity` shows it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use guard::{Core, Kind, Verdict};

use super::evidence::verdict_word;
use crate::placement::Cpus;

/// The words for kinds of disagreements, as guard writes them.
pub(super) const KINDS: [&str; 7] =
    ["outcome", "checksum", "reply", "record", "lost", "stale", "resurrected"];

/// The words for verdicts.
pub(super) const VERDICTS: [&str; 5] =
    ["core_intermittent", "core_persistent", "memory", "record", "undecided"];

/// What `stats integrity` shows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Disagreements by kind.
    pub(crate) kinds: [u64; KINDS.len()],
    /// Disagreements by verdict.
    pub(crate) verdicts: [u64; VERDICTS.len()],
    /// Disagreements on which no vote was held, because there were too many.
    pub(crate) unvoted: u64,
    /// Verdicts about a core that are better explained by a bug of ours.
    pub(crate) suspects: u64,
    /// Disagreements because of which keys were forgotten.
    pub(crate) contained: u64,
    /// Keys that were forgotten.
    pub(crate) poisoned_keys: u64,
    /// Items dropped because of the core that wrote them.
    pub(crate) looked_back: u64,
    /// Cores that were left.
    pub(crate) quarantined: Vec<Core>,
    /// Whether the server should be used.
    pub(crate) is_ready: bool,
}

/// The numbers, which any thread adds to.
#[derive(Default)]
pub(super) struct Counts {
    kinds: [AtomicU64; KINDS.len()],
    verdicts: [AtomicU64; VERDICTS.len()],
    pub(super) unvoted: AtomicU64,
    suspects: AtomicU64,
    pub(super) contained: AtomicU64,
    pub(super) poisoned_keys: AtomicU64,
    pub(super) looked_back: AtomicU64,
}

impl Counts {
    /// Counts a disagreement.
    pub(super) fn count(&self, kind: Kind, verdict: Verdict, is_suspect: bool) {
        let kind = kind.to_string();
        if let Some(at) = KINDS.iter().position(|word| *word == kind) {
            self.kinds[at].fetch_add(1, Relaxed);
        }
        if let Some(at) = VERDICTS.iter().position(|word| *word == verdict_word(verdict)) {
            self.verdicts[at].fetch_add(1, Relaxed);
        }
        self.suspects.fetch_add(u64::from(is_suspect), Relaxed);
    }

    /// The numbers now, with what is not counted here.
    pub(super) fn report(&self, quarantined: Vec<Core>, is_ready: bool) -> Report {
        let Counts { kinds, verdicts, unvoted, suspects, contained, poisoned_keys, looked_back } = self;
        Report {
            kinds: std::array::from_fn(|at| kinds[at].load(Relaxed)),
            verdicts: std::array::from_fn(|at| verdicts[at].load(Relaxed)),
            unvoted: unvoted.load(Relaxed),
            suspects: suspects.load(Relaxed),
            contained: contained.load(Relaxed),
            poisoned_keys: poisoned_keys.load(Relaxed),
            looked_back: looked_back.load(Relaxed),
            quarantined,
            is_ready,
        }
    }
}

impl Report {
    /// The names and values that `stats integrity` shows.
    pub(crate) fn each(&self, put: &mut dyn FnMut(&str, fmt::Arguments<'_>)) {
        for (word, count) in KINDS.iter().zip(self.kinds) {
            put(&format!("disagreements:{word}"), format_args!("{count}"));
        }
        for (word, count) in VERDICTS.iter().zip(self.verdicts) {
            put(&format!("verdicts:{word}"), format_args!("{count}"));
        }
        put("unvoted", format_args!("{}", self.unvoted));
        put("suspected_software", format_args!("{}", self.suspects));
        put("contained", format_args!("{}", self.contained));
        put("poisoned_keys", format_args!("{}", self.poisoned_keys));
        put("looked_back", format_args!("{}", self.looked_back));
        put("quarantined_cores", format_args!("{}", Cpus(&self.quarantined)));
        put("ready", format_args!("{}", u8::from(self.is_ready)));
    }

    /// All disagreements.
    pub(crate) fn disagreements(&self) -> u64 {
        self.verdicts.iter().sum()
    }
}
