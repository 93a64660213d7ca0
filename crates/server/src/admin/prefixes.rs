//! Commands counted by the prefix of their keys: `stats detail`.
//!
//! The table has a limit, which memcached's has not: prefixes that come when it is full are not counted.

use std::collections::HashMap;

use super::sink;

/// The most prefixes that are counted. Each takes up to 250 bytes and its counters, so a full table is below 2 MB.
const PREFIXES_MAX: usize = 4096;

/// The table.
pub(crate) struct Prefixes {
    delimiter: u8,
    rows: Vec<Row>,
    places: HashMap<Box<[u8]>, usize>,
}

struct Row {
    prefix: Box<[u8]>,
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It asked for a value and there was none.
    Miss,
    /// It asked for a value and got it.
    Hit,
    /// It stored.
    Set,
    /// It deleted.
    Delete,
}

impl Prefixes {
    pub(super) fn new(delimiter: u8) -> Self {
        Prefixes { delimiter, rows: Vec::new(), places: HashMap::new() }
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.places.clear();
    }

    /// Counts a command under the part of the key in front of the delimiter; keys without one are not counted.
    pub(super) fn count(&mut self, key: &[u8], what: Seen) {
        let Some(end) = key.iter().position(|byte| *byte == self.delimiter) else { return };
        let prefix = &key[..end];
        let place = match self.places.get(prefix) {
            Some(place) => *place,
            None if self.rows.len() == PREFIXES_MAX => return,
            None => {
                let prefix: Box<[u8]> = prefix.into();
                self.rows.push(Row { prefix: prefix.clone(), gets: 0, hits: 0, sets: 0, deletes: 0 });
                self.places.insert(prefix, self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        let row = &mut self.rows[place];
        match what {
            Seen::Miss => row.gets += 1,
            Seen::Hit => {
                row.gets += 1;
                row.hits += 1;
            }
            Seen::Set => row.sets += 1,
            Seen::Delete => row.deletes += 1,
        }
    }

    /// `stats detail dump`, with its terminator.
    pub(super) fn dump(&self, out: &mut Vec<u8>) {
        for row in &self.rows {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(&row.prefix);
            let Row { gets, hits, sets, deletes, .. } = row;
            sink::write(out, format_args!(" get {gets} hit {hits} set {sets} del {deletes}\r\n"));
        }
        out.extend_from_slice(b"END\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefixes: &Prefixes, expected: &str) {
        let mut out = Vec::new();
        prefixes.dump(&mut out);
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn counts_by_prefix() {
        let mut prefixes = Prefixes::new(b':');
        prefixes.count(b"foo:1", Seen::Set);
        prefixes.count(b"foo:1", Seen::Hit);
        prefixes.count(b"foo:2:3", Seen::Miss);
        prefixes.count(b"bar:1", Seen::Delete);
        prefixes.count(b"plain", Seen::Hit);
        prefixes.count(b":x", Seen::Set);
        check(
            &prefixes,
            "PREFIX foo get 2 hit 1 set 1 del 0\r\nPREFIX bar get 0 hit 0 set 0 del 1\r\n\
             PREFIX  get 0 hit 0 set 1 del 0\r\nEND\r\n",
        );
        prefixes.clear();
        check(&prefixes, "END\r\n");
    }

    /// The bug class "unbounded prefix statistics".
    #[test]
    fn the_table_is_bounded() {
        let mut prefixes = Prefixes::new(b'/');
        for number in 0..PREFIXES_MAX + 100 {
            prefixes.count(format!("{number}/x").as_bytes(), Seen::Set);
        }
        assert_eq!(prefixes.rows.len(), PREFIXES_MAX);
        prefixes.count(b"0/x", Seen::Set);
        assert_eq!(prefixes.rows[0].sets, 2);
    }
}
