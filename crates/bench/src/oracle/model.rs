//! What a cache may answer to somebody who is alone with its keys.
//!
//! A cache may forget everything at any time, and that is all it may do. So each key holds what the last command left,
//! or nothing. An answer that is only right if it was forgotten is a false miss, and the model goes on from there: what
//! was seen to be gone must not come back.
//!
//! An answer `SERVER_ERROR` says nothing of what was done, so that a key may hold one of several things afterwards.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use protocol::reply::{self, Reply, Step};

use super::answer::{self, Kind, Known, Learned};
use super::apply::{Outcome, Said, State, Version, When, apply, refused};
use super::request::{Bytes, CAS_NEVER, Compare, Form, Framing, Mode, Op, Request};

/// What a key may hold, in so many different ways at most; above, anything is taken for right until a command leaves no
/// doubt.
const CANDIDATES_MAX: usize = 16;

/// Old values of a key, and cas ids it had, that are remembered. Older ones are not told from others.
const PAST_MAX: usize = 64;

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What should have been answered.
    Correct,
    /// Nothing was found where something should be: legal for a cache.
    FalseMiss,
    /// `SERVER_ERROR`: legal as well.
    Refused,
    /// This can't be.
    Wrong {
        /// In which way.
        kind: Kind,
        /// Command, answer and what was expected, in one line.
        what: String,
    },
}

/// A command that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    request: Request,
    bytes: Vec<u8>,
    compare: Option<u64>,
    at_ms: i64,
}

impl Sent {
    /// What to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The command.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }
}

/// How strict a model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The server answers only what it has confirmed (`sei`, `--protect-sync`): for what it hasn't, `get` says nothing is
    /// there, though it may be, and a command with `noreply` may not be done without a word.
    pub confirms: bool,
}

/// What all keys hold.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    entries: HashMap<Bytes, Entry>,
    began: Instant,
}

/// What one key may hold. Invariant: at least one candidate; all are different.
#[derive(Clone, Debug)]
struct Entry {
    candidates: Vec<State>,
    /// Whether it may hold anything else.
    is_unknown: bool,
    /// The cas id that was shown last.
    cas: Option<u64>,
    cas_past: VecDeque<u64>,
    /// Digests of what it held.
    past: VecDeque<u64>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            candidates: vec![None],
            is_unknown: false,
            cas: None,
            cas_past: VecDeque::new(),
            past: VecDeque::new(),
        }
    }
}

impl Model {
    /// An empty cache.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Model { rules, entries: HashMap::new(), began: Instant::now() }
    }

    /// A command that is going to be sent now. Answers are to be checked in the order in which commands were sent.
    #[must_use]
    pub fn send(&self, request: Request) -> Sent {
        let last = || self.entries.get(&request.keys[0]).and_then(|entry| entry.cas);
        let compare = request.compare().map(|compare| match compare {
            Compare::Last => last().unwrap_or(CAS_NEVER),
            Compare::Never => CAS_NEVER,
        });
        let mut bytes = Vec::new();
        request.encode(compare, &mut bytes);
        Sent { request, bytes, compare, at_ms: self.now_ms() }
    }

    /// How many bytes the answer may have, about: what keeps both sides from waiting for each other.
    #[must_use]
    pub fn answer_bytes(&self, request: &Request) -> usize {
        let values = request.keys.iter().filter_map(|key| self.entries.get(key)).map(|entry| {
            entry.candidates.iter().flatten().map(|version| version.value.len()).max().unwrap_or(0)
        });
        values.map(|bytes| bytes + 400).sum::<usize>()
    }

    /// Checks an answer, which [`Request::framing`] has found the end of.
    pub fn check(&mut self, sent: &Sent, answer: &[u8]) -> Verdict {
        let when = When { earliest_ms: sent.at_ms, latest_ms: self.now_ms() };
        let answer = match sent.request.quiet {
            true => answer.strip_suffix(b"MN\r\n"),
            false => Some(answer),
        };
        let Some(answer) = answer.filter(|_| is_one(&sent.request, answer)) else {
            return wrong(Kind::Protocol, sent, answer.unwrap_or_default(), None);
        };
        if matches!(reply::parse(answer), Step::Reply { reply: Reply::ServerError(_), .. }) {
            self.refuse(sent, when);
            return Verdict::Refused;
        }
        match sent.request.op {
            Op::Get { .. } => self.check_all(sent, answer, when),
            _ => self.check_one(sent, &sent.request.keys[0], answer, when),
        }
    }

    /// Commands that show everything there should be, and that nothing is there where nothing should be.
    #[must_use]
    pub fn final_content(&self, keys: &[Bytes]) -> Vec<Request> {
        let op = || Op::Fetch { touch: None, vivify: None, recache: None, bump: false };
        let show = |key: &Bytes| Request {
            keys: vec![Bytes::clone(key)],
            form: Form::Meta,
            op: op(),
            quiet: false,
            wants: b"vfsctkO".to_vec(),
            opaque: 0,
        };
        keys.iter().map(show).collect()
    }

    /// How many keys hold something, as far as that is known.
    #[must_use]
    pub fn items(&self) -> usize {
        let holds = |entry: &&Entry| entry.candidates.iter().any(Option::is_some);
        self.entries.values().filter(holds).count()
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX / 2)
    }

    /// The answer to `get`: what was found of the keys, in their order, and `END`.
    fn check_all(&mut self, sent: &Sent, answer: &[u8], when: When) -> Verdict {
        let mut rest = answer;
        let mut worst = Verdict::Correct;
        for key in &sent.request.keys {
            let part = match reply::parse(rest) {
                Step::Reply { reply: Reply::Value { key: found, .. }, used } if found == &key[..] => used,
                _ => 0,
            };
            let verdict = self.check_one(sent, key, &rest[..part], when);
            rest = &rest[part..];
            let is_worse = match worst {
                Verdict::Wrong { .. } => false,
                Verdict::Correct => true,
                _ => matches!(verdict, Verdict::Wrong { .. }),
            };
            if is_worse {
                worst = verdict;
            }
        }
        match reply::parse(rest) {
            _ if rest == b"END\r\n" => worst,
            Step::Reply { reply: Reply::Value { .. }, .. } => wrong(Kind::Foreign, sent, answer, None),
            Step::Reply { reply: Reply::ClientError(_) | Reply::Error(_), .. } => {
                wrong(Kind::Status, sent, answer, None)
            }
            _ => wrong(Kind::Protocol, sent, answer, None),
        }
    }

    fn check_one(&mut self, sent: &Sent, key: &Bytes, answer: &[u8], when: When) -> Verdict {
        let mut entry = self.entries.remove(key).unwrap_or_default();
        let verdict = self.judge(&mut entry, sent, key, answer, when);
        self.entries.insert(Bytes::clone(key), entry);
        verdict
    }

    fn judge(&self, entry: &mut Entry, sent: &Sent, key: &Bytes, answer: &[u8], when: When) -> Verdict {
        let request = &sent.request;
        let run = |state: &State| apply(request, sent.compare, when, state);
        let mut expected: Vec<Outcome> = entry.candidates.iter().flat_map(&run).collect();
        let found = self.explained(entry, sent, key, answer, when, &expected);
        let first_kind = match found {
            Ok(found) => {
                entry.follow(found, request, self.rules);
                return Verdict::Correct;
            }
            Err(kind) => kind,
        };
        if let Ok(found) = self.explained(entry, sent, key, answer, when, &run(&None)) {
            let before = self.rules.confirms.then(|| entry.candidates.clone());
            entry.follow(found, request, self.rules);
            before.into_iter().flatten().for_each(|state| entry.may_hold(state));
            return Verdict::FalseMiss;
        }
        if entry.is_unknown {
            return Verdict::Correct;
        }
        // What should be there is still expected, so that the next wrong answer is told as well.
        expected.truncate(1);
        let should = expected.first().map(|outcome| format!("{:?}", outcome.said));
        let nexts = expected.into_iter().map(|outcome| (outcome, Learned::default())).collect();
        entry.follow(nexts, request, Rules::default());
        wrong(first_kind, sent, answer, should)
    }

    /// Those of the outcomes that explain an answer; in which way the first one doesn't, if none does.
    fn explained(
        &self,
        entry: &Entry,
        sent: &Sent,
        key: &Bytes,
        answer: &[u8],
        when: When,
        outcomes: &[Outcome],
    ) -> Result<Vec<(Outcome, Learned)>, Kind> {
        let origin = |value: &[u8]| self.origin(entry, value);
        let is_used = |cas: u64| entry.cas_past.contains(&cas);
        let known = Known { is_used: &is_used, origin: &origin, when };
        let mut found = Vec::new();
        let mut kind = None;
        for outcome in outcomes {
            match answer::compare(&sent.request, key, &outcome.said, answer, &known) {
                Ok(learned) => found.push((outcome.clone(), learned)),
                Err(other) => kind = kind.or(Some(other)),
            }
        }
        if found.is_empty() { Err(kind.unwrap_or(Kind::Status)) } else { Ok(found) }
    }

    /// Whose value this was: the key's own, some time ago, or another one's.
    fn origin(&self, entry: &Entry, value: &[u8]) -> Option<Kind> {
        let digest = digest(value);
        if entry.past.contains(&digest) {
            return Some(Kind::Resurrected);
        }
        // What is so short may be the same by chance.
        let is_others = value.len() >= 4 && self.entries.values().any(|other| other.past.contains(&digest));
        is_others.then_some(Kind::Foreign)
    }

    /// Nothing is known of what came of a command, for any of its keys.
    fn refuse(&mut self, sent: &Sent, when: When) {
        for key in &sent.request.keys {
            let entry = self.entries.entry(Bytes::clone(key)).or_default();
            let before = entry.candidates.clone();
            for state in &before {
                for outcome in apply(&sent.request, sent.compare, when, state) {
                    entry.note_past(&outcome.next);
                    entry.may_hold(outcome.next);
                }
            }
            entry.may_hold(None);
        }
    }
}

impl Entry {
    /// Goes on from what explains an answer.
    fn follow(&mut self, found: Vec<(Outcome, Learned)>, request: &Request, rules: Rules) {
        let is_silent = request.quiet && request.form == Form::Classic;
        let before = std::mem::take(&mut self.candidates);
        self.is_unknown &= !found.iter().all(|(outcome, _)| settles(request, &outcome.said));
        for (outcome, learned) in found {
            let mut next = outcome.next;
            if let Some(cas) = learned.cas.or(next.as_ref().and_then(|version| version.cas)) {
                self.note_cas(cas);
                next = next.map(|version| Version { cas: Some(cas), ..version });
            }
            self.note_past(&next);
            self.may_hold(next);
        }
        if is_silent && rules.confirms {
            before.iter().for_each(|state| self.may_hold(refused(request, state)));
        }
    }

    /// It may hold this, beside what is known already.
    fn may_hold(&mut self, state: State) {
        if self.candidates.contains(&state) {
            return;
        }
        if self.candidates.len() == CANDIDATES_MAX {
            self.is_unknown = true;
            return;
        }
        self.candidates.push(state);
    }

    fn note_cas(&mut self, cas: u64) {
        self.cas = Some(cas);
        remember(&mut self.cas_past, cas);
    }

    fn note_past(&mut self, state: &State) {
        if let Some(version) = state {
            remember(&mut self.past, digest(&version.value));
        }
    }
}

/// Whether an answer leaves no doubt of what is there now, whatever it was before.
fn settles(request: &Request, said: &Said) -> bool {
    let is_set = matches!(&request.op, Op::Put(put) if put.mode == Mode::Set && put.compare.is_none());
    match said {
        Said::Done(_) => is_set && !request.quiet,
        Said::Miss | Said::NotFound => !request.quiet,
        _ => false,
    }
}

/// Keeps what is not among the last ones already.
fn remember(past: &mut VecDeque<u64>, number: u64) {
    if past.contains(&number) {
        return;
    }
    if past.len() == PAST_MAX {
        past.pop_front();
    }
    past.push_back(number);
}

fn digest(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether these bytes are one answer, and nothing behind it.
fn is_one(request: &Request, answer: Option<&[u8]>) -> bool {
    let Some(answer) = answer else { return false };
    match request.quiet {
        true => {
            answer.is_empty()
                || matches!(reply::parse(answer), Step::Reply { used, .. } if used == answer.len())
        }
        false => request.framing(answer) == Framing::Whole(answer.len()),
    }
}

fn wrong(kind: Kind, sent: &Sent, answer: &[u8], should: Option<String>) -> Verdict {
    let show = |bytes: &[u8]| bytes[..bytes.len().min(100)].escape_ascii().to_string();
    let mut what = format!("{} was answered {}", show(&sent.bytes), show(answer));
    if let Some(should) = should {
        what += &format!(", not {:.200}", should);
    }
    Verdict::Wrong { kind, what }
}

#[cfg(test)]
mod tests;
