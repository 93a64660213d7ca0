//! The classes that executions are sampled and counted in: by the protocol that was spoken, and by what was done.

use guard::Stratum;
use store::{Op, PutMode};

/// What a command was written in: each is parsed and answered by code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Dialect {
    /// Classic text commands.
    Classic,
    /// Meta commands.
    Meta,
    /// The binary protocol.
    Binary,
    /// The line protocol.
    Line,
}

const DIALECTS: [(Dialect, &str); 4] = [
    (Dialect::Classic, "classic"),
    (Dialect::Meta, "meta"),
    (Dialect::Binary, "binary"),
    (Dialect::Line, "line"),
];

/// What is done, and how much more than a fetch it deserves to be validated: what is written wrongly is handed out until
/// somebody writes again.
const OPS: [(&str, f64); 6] =
    [("fetch", 1.0), ("touch", 1.5), ("put", 2.0), ("join", 2.0), ("delete", 2.0), ("arith", 2.0)];

/// How many strata there are.
pub(crate) const STRATA: usize = DIALECTS.len() * OPS.len();

/// The stratum of an operation.
#[inline]
pub(crate) fn stratum(dialect: Dialect, op: &Op<'_>) -> Stratum {
    let op = match op {
        Op::Fetch(fetch) if fetch.touch.is_none() => 0,
        Op::Fetch(_) => 1,
        Op::Put(put) if !matches!(put.mode, PutMode::Append | PutMode::Prepend) => 2,
        Op::Put(_) => 3,
        Op::Delete(_) => 4,
        Op::Arith(_) => 5,
    };
    Stratum(dialect as u8 * OPS.len() as u8 + op)
}

/// What the commands of a stratum were written in, if there is such a stratum.
pub(crate) fn dialect(stratum: Stratum) -> Option<Dialect> {
    DIALECTS.get(usize::from(stratum.0) / OPS.len()).map(|(dialect, _)| *dialect)
}

/// Whether the commands of a stratum receive values.
pub(crate) fn receives(stratum: Stratum) -> bool {
    matches!(OPS[usize::from(stratum.0) % OPS.len()].0, "put" | "join")
}

/// The name of a stratum.
pub(crate) fn name(stratum: usize) -> String {
    match (DIALECTS.get(stratum / OPS.len()), OPS.get(stratum % OPS.len())) {
        (Some((_, dialect)), Some((op, _))) => format!("{dialect}-{op}"),
        _ => format!("{stratum}"),
    }
}

/// The risks of all strata.
pub(crate) fn risks() -> [f64; STRATA] {
    std::array::from_fn(|stratum| OPS[stratum % OPS.len()].1)
}

#[cfg(test)]
mod tests {
    use store::{Delete, Fetch, Put};

    use super::*;

    #[test]
    fn strata_have_names_and_dialects() {
        let check = |dialect, op, expected: &str| {
            let stratum = stratum(dialect, &op);
            assert_eq!(name(usize::from(stratum.0)), expected);
            assert_eq!(super::dialect(stratum), Some(dialect));
        };
        check(Dialect::Classic, Op::Fetch(Fetch::default()), "classic-fetch");
        check(Dialect::Meta, Op::Put(Put::set(b"")), "meta-put");
        check(Dialect::Line, Op::Delete(Delete::default()), "line-delete");
        assert_eq!(super::dialect(Stratum(STRATA as u8)), None);
        assert_eq!(name(STRATA - 1), "line-arith");
        assert!(receives(stratum(Dialect::Meta, &Op::Put(Put::set(b"")))));
        assert!(!receives(stratum(Dialect::Meta, &Op::Delete(Delete::default()))));
    }
}
