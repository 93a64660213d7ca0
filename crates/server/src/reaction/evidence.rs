//! What is kept and told of a disagreement: one line of `name=value` pairs each.

use std::collections::VecDeque;
use std::fmt;

use guard::{Core, Digest, Disagreement, Fault, Verdict};

use crate::integrity::Encoded;

/// Lines kept for `stats disagreements`; the oldest goes when another comes.
pub(crate) const LINES_KEPT_MAX: usize = 64;

/// What is known of a disagreement before anybody votes. Evidence only: nothing is decided by it but which keys are
/// forgotten.
#[derive(Clone, Copy)]
pub(crate) struct Case<'c> {
    /// The CPUs in it are numbered as the system does.
    pub(crate) disagreement: Disagreement,
    /// The name of the class of the execution.
    pub(crate) stratum: &'c str,
    /// The command, without its value; empty if that is not known.
    pub(crate) command: &'c [u8],
    /// The keys concerned: the command's, and those of the items it saw and wrote, as far as they differ.
    pub(crate) keys: &'c [&'c [u8]],
    /// Stands for the item that was seen.
    pub(crate) item_found: Option<Digest>,
    /// Stands for the item that was written.
    pub(crate) item_new: Option<Digest>,
    /// What the item's checksum says about who is right.
    pub(crate) checksum: guard::Checksum,
    /// Unix seconds.
    pub(crate) now: u64,
}

/// What was done, the most that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// It was told and counted.
    None,
    /// Keys were forgotten.
    Contain,
    /// A core was left.
    Quarantine,
    /// The last core can't be left, so commands are executed three times from now on.
    Degrade,
    /// The process ends.
    Exit,
}

/// A case with what came of it.
pub(super) struct Line<'l> {
    pub(super) case: &'l Case<'l>,
    pub(super) verdict: Verdict,
    /// The core that is to blame, if one is.
    pub(super) blamed: Option<Core>,
    /// What the system said of the microcode of that core, else of the first.
    pub(super) microcode: Option<&'l str>,
    /// Whether a bug of ours is the better explanation.
    pub(super) is_suspect: bool,
    pub(super) action: Action,
}

/// The last lines.
#[derive(Debug, Default)]
pub(super) struct Log {
    lines: VecDeque<String>,
}

impl Log {
    pub(super) fn keep(&mut self, line: String) {
        if self.lines.len() >= LINES_KEPT_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// The word for a verdict, as in `stats integrity`.
pub(super) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CoreA(Fault::Intermittent) | Verdict::CoreB(Fault::Intermittent) => "core_intermittent",
        Verdict::CoreA(Fault::Persistent) | Verdict::CoreB(Fault::Persistent) => "core_persistent",
        Verdict::MemoryAtRest => "memory",
        Verdict::RecordDamaged => "record",
        Verdict::Undecided => "undecided",
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { disagreement, stratum, command, keys, item_found, item_new, now, .. } = self.case;
        let Disagreement { kind, expected, found, bit, first_core, second_core, .. } = disagreement;
        write!(f, "kind={kind} stratum={stratum}")?;
        for (at, key) in keys.iter().enumerate() {
            // A comma is encoded within a key.
            write!(f, "{}{}", if at == 0 { " key=" } else { "," }, Encoded(key))?;
        }
        if !command.is_empty() {
            write!(f, " command={}", Encoded(command))?;
        }
        write!(f, " expected={expected} found={found}")?;
        if let Some(bit) = bit {
            write!(f, " bit={bit}")?;
        }
        if let Some(digest) = item_found {
            write!(f, " item_found={digest}")?;
        }
        if let Some(digest) = item_new {
            write!(f, " item_new={digest}")?;
        }
        write!(f, " first_core={} second_core={}", first_core.0, second_core.0)?;
        let (first, last) = disagreement.seqs().into_inner();
        if last != first {
            write!(f, " seq={first}-{last}")?;
        } else if first != 0 {
            write!(f, " seq={first}")?;
        }
        write!(f, " verdict={}", verdict_word(self.verdict))?;
        if let Some(core) = self.blamed {
            write!(f, " core={}", core.0)?;
        }
        if let Some(microcode) = self.microcode {
            write!(f, " microcode={microcode}")?;
        }
        if self.is_suspect {
            f.write_str(" suspect=software")?;
        }
        write!(f, " action={} time={now}", self.action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::None => "none",
            Action::Contain => "contain",
            Action::Quarantine => "quarantine",
            Action::Degrade => "degrade",
            Action::Exit => "exit",
        })
    }
}

#[cfg(test)]
mod tests {
    use guard::{Kind, Mismatch, Site, Stratum};

    use super::*;

    #[test]
    fn what_a_line_says() {
        let site = Site { stratum: Stratum(1), first_core: Core(3), second_core: Core(4) };
        let mismatch = Mismatch::new(Kind::Outcome, Digest(0xff), Digest(0xfb));
        let case = Case {
            disagreement: Disagreement::new(site, mismatch, 7..=7),
            stratum: "classic-put",
            command: b"set a,b 0 0 1",
            keys: &[b"a,b", b"a=\xff"],
            item_found: None,
            item_new: Some(Digest(0x10)),
            checksum: guard::Checksum::Unknown,
            now: 1_795_250_000,
        };
        let line = Line {
            case: &case,
            verdict: Verdict::CoreA(Fault::Persistent),
            blamed: Some(Core(3)),
            microcode: Some("0x1000065"),
            is_suspect: false,
            action: Action::Quarantine,
        };
        assert_eq!(
            line.to_string(),
            "kind=outcome stratum=classic-put key=a%2Cb,a%3D%FF command=set%20a%2Cb%200%200%201 \
             expected=00000000000000ff found=00000000000000fb bit=2 item_new=0000000000000010 \
             first_core=3 second_core=4 seq=7 verdict=core_persistent core=3 microcode=0x1000065 \
             action=quarantine time=1795250000"
        );
        let mismatch = Mismatch::new(Kind::Record, Digest(0), Digest(0));
        let case = Case {
            disagreement: Disagreement::new(Site::default(), mismatch, 7..=9),
            command: b"",
            keys: &[],
            item_new: None,
            ..case
        };
        let line = Line {
            case: &case,
            verdict: Verdict::RecordDamaged,
            blamed: None,
            microcode: None,
            is_suspect: true,
            action: Action::None,
        };
        assert_eq!(
            line.to_string(),
            "kind=record stratum=classic-put expected=0000000000000000 found=0000000000000000 \
             first_core=0 second_core=0 seq=7-9 verdict=record suspect=software action=none time=1795250000"
        );
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut log = Log::default();
        assert!(log.lines().is_empty());
        for number in 0..LINES_KEPT_MAX + 3 {
            log.keep(number.to_string());
        }
        let lines = log.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (LINES_KEPT_MAX, "3"));
    }
}
