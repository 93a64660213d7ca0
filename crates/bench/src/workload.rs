//! What is asked of a server: which commands, in which wire form, in which proportion.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::random::Random;

/// Entries that a mix may have.
pub const ENTRIES_MAX: usize = 64;

/// How commands are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Classic text: `get`, `set` and the others.
    #[default]
    Text,
    /// The meta commands: `mg`, `ms`, `md`, `ma`.
    Meta,
}

/// What is asked for. Each has a form in classic text, in meta, or in both.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A value; `mg v`.
    Get,
    /// A value with its cas id; `mg v c`.
    Gets,
    /// A value, and a new time to live; `mg v T`.
    Gat,
    /// A value with its cas id, and a new time to live; `mg v c T`.
    Gats,
    /// Store; `ms`.
    Set,
    /// Store if absent; `ms ME`.
    Add,
    /// Store if present; `ms MR`.
    Replace,
    /// Store behind what is there; `ms MA`.
    Append,
    /// Store in front of what is there; `ms MP`.
    Prepend,
    /// Store if unchanged since a `gets` of this thread; `ms C`.
    Cas,
    /// Remove; `md`.
    Delete,
    /// Add one; `ma`.
    Incr,
    /// Subtract one; `ma MD`.
    Decr,
    /// A new time to live; `mg T`.
    Touch,
    /// What the server knows of an item; `me`.
    Debug,
    /// Nothing; `mn`.
    Noop,
    /// The version.
    Version,
    /// A level of logging, which has no effect.
    Verbosity,
    /// General statistics.
    Stats,
    /// Forget everything.
    Flush,
}

impl Operation {
    const ALL: [(Operation, &'static str); 20] = [
        (Operation::Get, "get"),
        (Operation::Gets, "gets"),
        (Operation::Gat, "gat"),
        (Operation::Gats, "gats"),
        (Operation::Set, "set"),
        (Operation::Add, "add"),
        (Operation::Replace, "replace"),
        (Operation::Append, "append"),
        (Operation::Prepend, "prepend"),
        (Operation::Cas, "cas"),
        (Operation::Delete, "delete"),
        (Operation::Incr, "incr"),
        (Operation::Decr, "decr"),
        (Operation::Touch, "touch"),
        (Operation::Debug, "me"),
        (Operation::Noop, "mn"),
        (Operation::Version, "version"),
        (Operation::Verbosity, "verbosity"),
        (Operation::Stats, "stats"),
        (Operation::Flush, "flush_all"),
    ];

    /// As classic text names it, or meta where there is no other.
    pub fn name(self) -> &'static str {
        Operation::ALL.iter().find(|(operation, _)| *operation == self).map_or("", |(_, name)| name)
    }

    /// Whether it asks for values.
    pub fn reads(self) -> bool {
        matches!(self, Operation::Get | Operation::Gets | Operation::Gat | Operation::Gats)
    }

    /// Whether it sends a value.
    pub fn stores(self) -> bool {
        use Operation::{Add, Append, Cas, Prepend, Replace, Set};
        matches!(self, Set | Add | Replace | Append | Prepend | Cas)
    }

    /// Whether it is about a key at all.
    pub fn has_key(self) -> bool {
        use Operation::{Flush, Noop, Stats, Verbosity, Version};
        !matches!(self, Noop | Version | Verbosity | Stats | Flush)
    }

    /// Whether there is a form without a reply on success.
    fn can_be_quiet(self, protocol: Protocol) -> bool {
        use Operation::{Debug, Gat, Gats, Get, Gets};
        self.has_key()
            && self != Debug
            && (protocol == Protocol::Meta || !matches!(self, Get | Gets | Gat | Gats))
    }
}

/// One kind of request, and how many there are of it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// What is asked for.
    pub operation: Operation,
    /// In which form; of no meaning where there is only one.
    pub protocol: Protocol,
    /// Without a reply on success (`noreply`, `q`). A barrier follows, whose reply ends it.
    pub quiet: bool,
    /// In proportion to the others'; above 0.
    pub weight: f64,
}

impl Entry {
    /// A loud classic one.
    pub fn text(operation: Operation, weight: f64) -> Self {
        Entry { operation, protocol: Protocol::Text, quiet: false, weight }
    }

    /// As results name it: `get`, `setq` (quiet), `meta-get`.
    pub fn name(&self) -> String {
        let is_meta = self.protocol == Protocol::Meta && self.operation.has_key();
        let prefix = if is_meta && self.operation != Operation::Debug { "meta-" } else { "" };
        format!("{prefix}{}{}", self.operation.name(), if self.quiet { "q" } else { "" })
    }

    /// Reads a name; those without `meta-` are in the form of `protocol`.
    fn parse(name: &str, weight: f64, protocol: Protocol) -> Option<Entry> {
        let entry = |name: &str, quiet: bool| {
            let (name, protocol) = match name.strip_prefix("meta-") {
                Some(name) => (name, Protocol::Meta),
                None => (name, protocol),
            };
            let (name, protocol) = match name {
                "mg" => ("get", Protocol::Meta),
                "ms" => ("set", Protocol::Meta),
                "md" => ("delete", Protocol::Meta),
                "ma" => ("incr", Protocol::Meta),
                name => (name, protocol),
            };
            let (operation, _) = Operation::ALL.into_iter().find(|(_, known)| *known == name)?;
            let is_known = !quiet || operation.can_be_quiet(protocol);
            is_known.then_some(Entry { operation, protocol, quiet, weight })
        };
        entry(name, false).or_else(|| entry(name.strip_suffix('q')?, true))
    }
}

/// The proportions of requests.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Mix(pub Vec<Entry>);

impl Mix {
    /// Reads `get=9,set=1`, in the form of `protocol` where a name does not tell: `meta-get`, or `mg`.
    pub fn parse(text: &str, protocol: Protocol) -> Result<Self, Error> {
        let entries: Option<Vec<Entry>> = text
            .split(',')
            .map(|part| {
                let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
                let weight = weight.parse::<f64>().ok().filter(|weight| *weight > 0.0 && weight.is_finite());
                Entry::parse(name.trim(), weight?, protocol)
            })
            .collect();
        match entries {
            Some(entries) if entries.len() <= ENTRIES_MAX => Ok(Mix(entries)),
            _ => {
                let names: Vec<&str> = Operation::ALL.iter().map(|(_, name)| *name).collect();
                Err(Error::Usage(format!(
                    "{text:?} is no mix; write get=9,set=1 with {}; q behind a name makes it quiet, meta- in front \
                     of it a meta command",
                    names.join(" ")
                )))
            }
        }
    }

    /// Whether one of its operations is like this.
    pub fn has(&self, is_like: impl Fn(Operation) -> bool) -> bool {
        self.0.iter().any(|entry| is_like(entry.operation))
    }
}

impl FromStr for Mix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Mix::parse(text, Protocol::Text)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|entry| format!("{}={}", entry.name(), entry.weight)).collect();
        out.write_str(&parts.join(","))
    }
}

/// Draws entries of a mix.
#[derive(Clone, Debug)]
pub struct Chooser {
    /// Of 2^32, where each entry's part ends; the last is the whole.
    ends: Vec<u64>,
}

impl Chooser {
    /// For these entries, at least one.
    pub fn new(mix: &Mix) -> Self {
        let total: f64 = mix.0.iter().map(|entry| entry.weight).sum();
        let mut sum = 0.0;
        let mut ends: Vec<u64> = Vec::new();
        for entry in &mix.0 {
            sum += entry.weight;
            ends.push((sum / total * 2_f64.powi(32)).round() as u64);
        }
        *ends.last_mut().expect("a mix has an entry") = 1 << 32;
        Chooser { ends }
    }

    /// The number of an entry.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> usize {
        if self.ends.len() == 1 {
            return 0;
        }
        let word = random.word() >> 32;
        self.ends.iter().position(|end| word < *end).expect("the last end is the whole")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_come_back() {
        for (text, shown) in [
            ("get=9,set=1", "get=9,set=1"),
            ("get", "get=1"),
            ("setq=2,mg=1,mgq=0.5", "setq=2,meta-get=1,meta-getq=0.5"),
            ("meta-touchq,mn,me,flush_all", "meta-touchq=1,mn=1,me=1,flush_all=1"),
        ] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), shown);
            assert_eq!(shown.parse::<Mix>().unwrap(), text.parse::<Mix>().unwrap());
        }
        assert_eq!(Mix::parse("get", Protocol::Meta).unwrap(), "meta-get".parse().unwrap());
        for text in ["", "got", "get=0", "get=x", "getq", "mnq", "versionq", "get=1,"] {
            assert_eq!(text.parse::<Mix>().expect_err(text).exit_code(), 2);
        }
    }

    #[test]
    fn entries_are_drawn_in_proportion() {
        const DRAWS: u64 = 100_000;
        let mix: Mix = "get=8,set=1,delete=1".parse().unwrap();
        let (chooser, mut random) = (Chooser::new(&mix), Random::new(4));
        let mut counts = [0_u64; 3];
        (0..DRAWS).for_each(|_| counts[chooser.draw(&mut random)] += 1);
        for (count, share) in counts.into_iter().zip([0.8, 0.1, 0.1_f64]) {
            let deviation = (DRAWS as f64 * share * (1.0 - share)).sqrt();
            assert!((count as f64 - DRAWS as f64 * share).abs() < 4.0 * deviation, "{counts:?}");
        }
    }
}
