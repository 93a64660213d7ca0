//! What an injected fault came to, and how many came to what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rig::End;

/// What came of one fault.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The instruction was not executed, or wrote what it would have written anyway.
    NotActivated,
    /// Every answer and all content are as if nothing had happened.
    Masked,
    /// Something was not found that should be there, without a word: legal for a cache.
    FalseMiss,
    /// A command was refused with an error that it did not deserve, or its connection closed: visible to whoever asked, but
    /// not called a fault.
    Error,
    /// Noticed, and no wrong answer left.
    Detected,
    /// Noticed after a wrong answer had left.
    DetectedLate,
    /// Noticed when somebody read what it had spoiled, and not by the execution itself.
    DetectedOnRead,
    /// Noticed by nobody but the client, by its own checksum.
    DetectedByClient,
    /// The process ended.
    Crash,
    /// No answer came.
    Hang,
    /// A wrong answer or wrong content, and nobody noticed. In which way is told.
    Undetected(String),
    /// The experiment itself failed; nothing is known of the fault.
    HarnessError(String),
}

/// What was seen of one fault.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Seen {
    /// How often the instruction went wrong.
    pub applied: u32,
    /// How often that changed something.
    pub changed: u32,
    /// In which way the first wrong answer before the last reading was wrong.
    pub wrong_answer: Option<String>,
    /// The same, when all content was read at the end.
    pub wrong_content: Option<String>,
    /// How many answers were wrong, in all.
    pub wrong_answers: u32,
    /// Answers that something is missing, which should be there.
    pub false_misses: u32,
    /// Answers that say that an execution was not confirmed.
    pub refused: u32,
    /// Other errors, which nothing that was asked deserves.
    pub errors: u32,
    /// Whether the server noticed something before all content was read.
    pub is_noticed: bool,
    /// Whether it did when all content had been read.
    pub is_noticed_on_read: bool,
    /// Whether every wrong answer was seen to be one by the client's checksum.
    pub is_noticed_by_client: bool,
    /// How it ended, if it did before its time.
    pub end: Option<End>,
}

/// What it came to.
pub fn classify(seen: &Seen) -> Outcome {
    let is_noticed = seen.is_noticed || seen.is_noticed_on_read || seen.refused > 0;
    match &seen.end {
        Some(End::Crash(_)) => return Outcome::Crash,
        Some(End::Hang) => return Outcome::Hang,
        // A server closes a connection whose answer it can't confirm.
        Some(End::Closed) if is_noticed => return Outcome::Detected,
        Some(End::Closed) => return Outcome::Error,
        Some(End::Garbage(_)) if seen.is_noticed => return Outcome::DetectedLate,
        Some(End::Garbage(_)) => return Outcome::Undetected("protocol".into()),
        None => {}
    }
    if seen.applied == 0 || seen.changed == 0 {
        return Outcome::NotActivated;
    }
    let kind = seen.wrong_answer.as_ref().or(seen.wrong_content.as_ref());
    match kind {
        None if is_noticed => Outcome::Detected,
        None if seen.errors > 0 => Outcome::Error,
        None if seen.false_misses > 0 => Outcome::FalseMiss,
        None => Outcome::Masked,
        Some(_) if seen.is_noticed => Outcome::DetectedLate,
        Some(_) if seen.is_noticed_on_read => Outcome::DetectedOnRead,
        Some(_) if seen.is_noticed_by_client => Outcome::DetectedByClient,
        Some(kind) => Outcome::Undetected(kind.clone()),
    }
}

impl Outcome {
    /// As tables name it; kinds of undetected ones are told apart elsewhere.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::NotActivated => "not activated",
            Outcome::Masked => "masked",
            Outcome::FalseMiss => "false miss",
            Outcome::Error => "error",
            Outcome::Detected => "detected",
            Outcome::DetectedLate => "detected late",
            Outcome::DetectedOnRead => "detected on read",
            Outcome::DetectedByClient => "detected by client",
            Outcome::Crash => "crash",
            Outcome::Hang => "hang",
            Outcome::Undetected(_) => "undetected",
            Outcome::HarnessError(_) => "harness error",
        }
    }

    /// Whether the fault may have left something behind, so that the next one needs a new server.
    pub fn leaves_traces(&self) -> bool {
        !matches!(self, Outcome::NotActivated | Outcome::Masked)
    }
}

/// How many faults came to what.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// Those that were tried.
    pub tried: u64,
    /// By [`Outcome::name`].
    pub outcomes: BTreeMap<String, u64>,
    /// Undetected ones, by how the answer was wrong.
    pub undetected: BTreeMap<String, u64>,
    /// Faults after which a wrong answer left, noticed or not.
    pub wrong_left: u64,
}

impl Counts {
    /// Counts one.
    pub fn add(&mut self, outcome: &Outcome, seen: &Seen) {
        self.tried += 1;
        *self.outcomes.entry(outcome.name().to_string()).or_default() += 1;
        if let Outcome::Undetected(kind) = outcome {
            *self.undetected.entry(kind.clone()).or_default() += 1;
        }
        let is_result = !matches!(outcome, Outcome::HarnessError(_) | Outcome::NotActivated);
        self.wrong_left += u64::from(is_result && seen.wrong_answers > 0);
    }

    /// Adds what others counted.
    pub fn merge(&mut self, other: &Counts) {
        self.tried += other.tried;
        self.wrong_left += other.wrong_left;
        for (name, count) in &other.outcomes {
            *self.outcomes.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &other.undetected {
            *self.undetected.entry(name.clone()).or_default() += count;
        }
    }

    /// How many came to this.
    pub fn of(&self, name: &str) -> u64 {
        self.outcomes.get(name).copied().unwrap_or(0)
    }

    /// Faults that were noticed, by anybody.
    pub fn detected(&self) -> u64 {
        ["detected", "detected late", "detected on read", "detected by client"]
            .iter()
            .map(|name| self.of(name))
            .sum()
    }

    /// Faults that were noticed, or should have been.
    pub fn relevant(&self) -> u64 {
        self.detected() + self.of("undetected")
    }

    /// Faults that changed something.
    pub fn activated(&self) -> u64 {
        self.tried - self.of("not activated") - self.of("harness error")
    }

    /// The share of faults that were noticed of those that should have been, 0 to 1.
    pub fn coverage(&self) -> Option<f64> {
        let relevant = self.relevant();
        (relevant > 0).then(|| self.detected() as f64 / relevant as f64)
    }

    /// Its 95 % interval.
    pub fn interval(&self) -> Option<[f64; 2]> {
        (self.relevant() > 0).then(|| wilson(self.detected(), self.relevant()))
    }
}

/// Wilson's 95 % interval of a share: of `of` trials, `hits` succeeded (Wilson 1927; 1.96 is the normal law's quantile).
pub fn wilson(hits: u64, of: u64) -> [f64; 2] {
    assert!(of > 0);
    assert!(hits <= of);
    let (z, n) = (1.959_964, of as f64);
    let share = hits as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let spread = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    let low = if hits == 0 { 0.0 } else { (middle - spread) / scale };
    let high = if hits == of { 1.0 } else { (middle + spread) / scale };
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_wilsons() {
        // What detection campaigns of known results come to, to a tenth of a percent.
        let cases = [
            (300, 300, 0.987, 1.0),
            (997, 1000, 0.991, 0.999),
            (1990, 2000, 0.991, 0.997),
            (459, 471, 0.956, 0.985),
            (0, 10, 0.0, 0.278),
        ];
        for (hits, of, low, high) in cases {
            let found = wilson(hits, of);
            assert!((found[0] - low).abs() < 0.001, "{hits}/{of}: {found:?}");
            assert!((found[1] - high).abs() < 0.001, "{hits}/{of}: {found:?}");
        }
    }

    fn seen() -> Seen {
        Seen { applied: 1, changed: 1, ..Seen::default() }
    }

    #[test]
    fn outcomes_follow_from_what_was_seen() {
        let wrong = || Some("value".to_string());
        let end = |end| Some(end);
        let cases = [
            (Seen::default(), "not activated"),
            (Seen { changed: 0, ..seen() }, "not activated"),
            (seen(), "masked"),
            (Seen { false_misses: 2, ..seen() }, "false miss"),
            (Seen { is_noticed: true, false_misses: 2, ..seen() }, "detected"),
            (Seen { refused: 1, ..seen() }, "detected"),
            (Seen { errors: 1, false_misses: 1, ..seen() }, "error"),
            (Seen { errors: 1, is_noticed: true, ..seen() }, "detected"),
            (Seen { errors: 1, wrong_content: wrong(), ..seen() }, "undetected"),
            (Seen { wrong_answer: wrong(), is_noticed: true, ..seen() }, "detected late"),
            (Seen { wrong_content: wrong(), is_noticed_on_read: true, ..seen() }, "detected on read"),
            (Seen { wrong_answer: wrong(), is_noticed_by_client: true, ..seen() }, "detected by client"),
            (Seen { wrong_answer: wrong(), ..seen() }, "undetected"),
            (Seen { wrong_content: wrong(), ..seen() }, "undetected"),
            (Seen { wrong_answer: wrong(), refused: 1, ..seen() }, "undetected"),
            (Seen { end: end(End::Crash("SIGSEGV".into())), is_noticed: true, ..seen() }, "crash"),
            (Seen { end: end(End::Hang), ..seen() }, "hang"),
            (Seen { end: end(End::Closed), ..seen() }, "error"),
            (Seen { end: end(End::Closed), is_noticed: true, ..seen() }, "detected"),
            (Seen { end: end(End::Garbage("?".into())), ..seen() }, "undetected"),
        ];
        for (seen, name) in cases {
            assert_eq!(classify(&seen).name(), name, "{seen:?}");
        }
    }

    #[test]
    fn harness_errors_are_never_coverage() {
        let mut counts = Counts::default();
        counts
            .add(&Outcome::HarnessError("?".into()), &Seen { is_noticed: true, wrong_answers: 1, ..seen() });
        assert_eq!((counts.relevant(), counts.activated(), counts.wrong_left), (0, 0, 0));
        assert_eq!(counts.coverage(), None);
        counts.add(&Outcome::Undetected("value".into()), &Seen { wrong_answers: 1, ..seen() });
        counts.add(&Outcome::Detected, &seen());
        assert_eq!(counts.coverage(), Some(0.5));
        let mut both = counts.clone();
        both.merge(&counts);
        assert_eq!((both.relevant(), both.wrong_left, both.undetected["value"]), (4, 2, 2));
    }
}
