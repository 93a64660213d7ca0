//! What a campaign has come to, for people: tables in 80 columns, and progress.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use super::campaign::{Note, Results};
use super::mode::Mode;
use super::outcome::Outcome;
use super::results::{rows, share, transient};
use crate::record::Gate;

/// How often progress is shown.
const PERIOD: Duration = Duration::from_millis(300);

/// Escapes that are listed; the record has more.
const NOTES_SHOWN: usize = 60;

/// What of an answer is shown.
const ANSWER_CHARS: usize = 160;

/// Progress on standard error: a line that changes on a terminal, one line in all elsewhere.
pub struct Progress {
    what: &'static str,
    began: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// Begins a phase.
    pub fn begin(what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        if !is_terminal {
            eprintln!("veracache: {what}");
        }
        Progress { what, began: Instant::now(), shown: None, is_terminal }
    }

    /// So many of so many are done.
    pub fn show(&mut self, done: u64, all: u64) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let elapsed = self.began.elapsed().as_secs_f64();
        let left = match done {
            0 => String::new(),
            _ => format!(", {:.0} s left", elapsed * (all - done.min(all)) as f64 / done as f64),
        };
        eprint!("\r\x1b[K{}: {done} of {all}, {:.1}/s{left}", self.what, done as f64 / elapsed.max(0.001));
        let _ = std::io::stderr().flush();
    }

    /// Leaves an empty line for what comes.
    pub fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Everything, as text.
pub fn text(results: &Results, modes: &[Mode], gates: &[Gate], verdict: &str, seconds: f64) -> String {
    let mut out = String::new();
    outcomes(&mut out, results, modes);
    coverage(&mut out, results, modes);
    pairs(&mut out, results);
    escapes(&mut out, results);
    for gate in gates {
        let _ =
            writeln!(out, "{:<6}{}: {}", if gate.is_met { "ok" } else { "FAILED" }, gate.name, gate.found);
    }
    let tried = results.sum(|_| true).tried;
    let _ =
        writeln!(out, "\n{tried} faults in {seconds:.0} s, {} servers started.\n{verdict}", results.servers);
    out
}

fn outcomes(out: &mut String, results: &Results, modes: &[Mode]) {
    let heads = ["tried", "active", "masked", "miss", "error", "noticed", "crash", "hang", "escaped"];
    let _ = write!(out, "{:<15}", "mode");
    heads.iter().for_each(|head| {
        let _ = write!(out, "{head:>width$}", width = head.len().max(6) + 1);
    });
    let _ = writeln!(out);
    for mode in modes {
        let counts = results.sum(|cell| cell.mode == *mode);
        let [masked, misses, errors] = ["masked", "false miss", "error"].map(|name| counts.of(name));
        let (crash, hang, missed) = (counts.of("crash"), counts.of("hang"), counts.of("undetected"));
        let _ = write!(out, "{:<15}{:>7}{:>7}{masked:>7}", mode.name(), counts.tried, counts.activated());
        let _ = writeln!(out, "{misses:>7}{errors:>7}{:>8}{crash:>7}{hang:>7}{missed:>8}", counts.detected());
        let kinds: Vec<String> =
            counts.undetected.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let late =
            counts.of("detected late") + counts.of("detected on read") + counts.of("detected by client");
        let _ = writeln!(out, "  wrong answers left: {}; noticed late: {late}", counts.wrong_left);
        if !kinds.is_empty() {
            let _ = writeln!(out, "  escaped: {}", kinds.join(", "));
        }
    }
    let _ = writeln!(out);
}

fn coverage(out: &mut String, results: &Results, modes: &[Mode]) {
    let _ = writeln!(out, "Transient faults that were noticed, of those that mattered, in percent,");
    let _ = writeln!(out, "with the 95 % interval and how many mattered:\n");
    for modes in modes.chunks(3) {
        let _ = write!(out, "{:<11}", "");
        modes.iter().for_each(|mode| {
            let _ = write!(out, "{:>23}", mode.name());
        });
        let _ = writeln!(out);
        for (name, is_meant) in rows() {
            let shares: Vec<String> =
                modes.iter().map(|mode| share(&transient(results, *mode, &*is_meant))).collect();
            if shares.iter().all(|share| share == "-") {
                continue;
            }
            let _ = write!(out, "{name:<11}");
            shares.iter().for_each(|share| {
                let _ = write!(out, "{share:>23}");
            });
            let _ = writeln!(out);
        }
        let _ = writeln!(out);
    }
}

fn pairs(out: &mut String, results: &Results) {
    let Some(all) = results.pairs.get(&Mode::Vanilla) else { return };
    let _ =
        writeln!(out, "Of the {} faults that escaped in vanilla, the same ones:", all.values().sum::<u64>());
    for (mode, counts) in results.pairs.iter().filter(|(mode, _)| **mode != Mode::Vanilla) {
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let _ = writeln!(out, "  {:<15} {}", mode.name(), counts.join(", "));
    }
    let _ = writeln!(out);
}

fn escapes(out: &mut String, results: &Results) {
    let is_escape = |note: &&Note| note.cell.mode != Mode::Vanilla;
    let count = results.notes.iter().filter(is_escape).count();
    for note in results.notes.iter().filter(is_escape).take(NOTES_SHOWN) {
        let _ = writeln!(out, "{}", describe(note));
    }
    if count > NOTES_SHOWN {
        let _ = writeln!(out, "… and {} more, in the record (--output).\n", count - NOTES_SHOWN);
    }
}

/// One fault, in a few lines.
pub fn describe(note: &Note) -> String {
    let what = match &note.outcome {
        Outcome::Undetected(kind) => format!("undetected, wrong {kind}"),
        Outcome::HarnessError(why) => format!("harness error: {why}"),
        other => other.name().to_string(),
    };
    let mut text = format!(
        "{}: {what}\n  {} [{}] {}\n  {}\n  {}; during {}\n",
        note.cell.mode.name(),
        note.line,
        note.cell.unit.name(),
        note.assembly,
        note.fault,
        note.cell.lasting.name(),
        note.command
    );
    if let Some(answer) = &note.answer {
        let answer: String = answer.chars().take(ANSWER_CHARS).collect();
        let _ = writeln!(text, "  {answer}");
    }
    if let Some(end) = &note.seen.end {
        let _ = writeln!(text, "  {end:?}");
    }
    let _ = writeln!(text, "  --repeat {}", note.id);
    text
}
