//! Which part of the server an instruction belongs to.

use serde::{Deserialize, Serialize};

/// A part of the path from the bytes read to the bytes written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// What a command decides: the operators, and the words they are written in.
    Operator,
    /// How often it is decided, and whether the decisions agree.
    Decide,
    /// Looking up an item: index, buckets, versions, epochs.
    Find,
    /// How an effect takes hold: items, segments, slots.
    Commit,
    /// CRC-32C of items and replies.
    Checksum,
    /// Hashing of keys.
    Hash,
    /// Bytes to requests.
    Parse,
    /// From requests to the store and back, per protocol.
    Dispatch,
    /// Answers to bytes.
    Reply,
    /// What an execution leaves for its repetition.
    Record,
    /// Comparing and voting.
    Guard,
    /// The event loop, connections and sockets.
    Loop,
    /// What the C library copies, compares and fills.
    Copy,
    /// The standard library and other crates, where no part of ours called them inline.
    Library,
}

/// Every unit, in the order of tables.
pub const ALL: [Unit; 14] = [
    Unit::Operator,
    Unit::Decide,
    Unit::Find,
    Unit::Commit,
    Unit::Checksum,
    Unit::Hash,
    Unit::Copy,
    Unit::Parse,
    Unit::Dispatch,
    Unit::Reply,
    Unit::Record,
    Unit::Guard,
    Unit::Loop,
    Unit::Library,
];

impl Unit {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Operator => "operator",
            Unit::Decide => "decide",
            Unit::Find => "find",
            Unit::Commit => "commit",
            Unit::Checksum => "checksum",
            Unit::Hash => "hash",
            Unit::Parse => "parse",
            Unit::Dispatch => "dispatch",
            Unit::Reply => "reply",
            Unit::Record => "record",
            Unit::Guard => "guard",
            Unit::Loop => "loop",
            Unit::Copy => "copy",
            Unit::Library => "library",
        }
    }

    /// Whether it executes operators on user data: what is between a request that was understood and its answer's content.
    /// Copying counts by who asked for it.
    pub fn is_operator_code(self) -> bool {
        matches!(
            self,
            Unit::Operator | Unit::Decide | Unit::Find | Unit::Commit | Unit::Checksum | Unit::Hash
        )
    }
}

/// The unit of source lines, the innermost first, that one instruction stands for. The first that is ours decides: a slice's
/// iterator belongs to who iterates.
pub fn of_lines<'a>(files: impl IntoIterator<Item = &'a str>) -> Unit {
    for file in files {
        if file.contains("/rapidhash") {
            return Unit::Hash;
        }
        let Some((_, path)) = file.rsplit_once("crates/") else { continue };
        if let Some((krate, source)) = path.split_once("/src/") {
            return of_source(krate, source);
        }
    }
    Unit::Library
}

fn of_source(krate: &str, source: &str) -> Unit {
    let name = source.split(['/', '.']).next().unwrap_or_default();
    match (krate, name) {
        ("store", "operator" | "request") => Unit::Operator,
        ("store", "decide") => Unit::Decide,
        ("store", "crc") => Unit::Checksum,
        ("store", "commit" | "item" | "segment" | "draft" | "mapping" | "options") => Unit::Commit,
        ("store", "trace" | "record" | "hold" | "replay" | "order" | "follow") => Unit::Record,
        ("store", _) => Unit::Find,
        ("guard", "record" | "ring" | "sample" | "tally" | "replay" | "watermark" | "replica") => {
            Unit::Record
        }
        ("guard", _) => Unit::Guard,
        ("protocol", "reply" | "meta_reply" | "encode") => Unit::Reply,
        ("protocol", _) => Unit::Parse,
        ("server", "output") => Unit::Reply,
        ("server", "recorder" | "coverage" | "strata" | "shadow" | "replica") => Unit::Record,
        ("server", "text" | "meta" | "binary" | "line" | "execute" | "session" | "replay" | "counters") => {
            Unit::Dispatch
        }
        ("server", _) => Unit::Loop,
        _ => Unit::Library,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_innermost_of_ours() {
        let cases: [(&[&str], Unit); 7] = [
            (&["/rustc/1/library/core/src/slice/mod.rs", "/w/crates/store/src/index.rs"], Unit::Find),
            (&["/w/crates/store/src/operator.rs", "/w/crates/store/src/decide.rs"], Unit::Operator),
            (&["/r/rapidhash-4.0.0/src/inner.rs", "/w/crates/store/src/index.rs"], Unit::Hash),
            (&["crates/protocol/src/meta_reply.rs"], Unit::Reply),
            (&["/w/crates/protocol/src/binary/request.rs"], Unit::Parse),
            (&["/w/crates/server/src/shadow/key.rs"], Unit::Record),
            (&["/rustc/1/library/core/src/slice/mod.rs"], Unit::Library),
        ];
        for (files, unit) in cases {
            assert_eq!(of_lines(files.iter().copied()), unit, "{files:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|unit| unit.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
