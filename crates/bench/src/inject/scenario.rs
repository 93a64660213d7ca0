//! A short conversation with a server: commands that fill some keys, the one that goes wrong, and some that follow.

use std::sync::Arc;

use super::mode::CHECKED_BIT;
use super::random::Random;
use crate::oracle::{Bytes, Form, Mode as PutMode, Op, Request, Workload};

/// Commands before the one that goes wrong. So many that its keys often hold something.
const BEFORE: usize = 28;

/// Commands after it, which meet what it left.
const AFTER: usize = 10;

/// Keys of each kind: numbers, texts, and those that only meta commands can write.
const KEYS: [usize; 3] = [3, 6, 2];

/// Where the kinds begin among the workload's keys.
const KINDS: [usize; 4] = [0, 40, 240, 256];

/// A conversation; the same for the same seed and number, always.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What fills the keys.
    pub before: Vec<Request>,
    /// What goes wrong.
    pub target: Request,
    /// What follows.
    pub after: Vec<Request>,
    /// Every key that is used, and some that never are, whose absence is looked at, too.
    pub keys: Vec<Bytes>,
}

impl Scenario {
    /// With or without checksums in its values.
    pub fn new(seed: u64, number: u64, is_checked: bool) -> Self {
        let mut random = Random::new(seed, number);
        let mut workload = Workload::new(random.next(), u64::MAX);
        let all = workload.keys().to_vec();
        let mut keys: Vec<Bytes> = Vec::new();
        let kinds: Vec<Vec<Bytes>> = (0..KEYS.len())
            .map(|kind| {
                let range = &all[KINDS[kind]..KINDS[kind + 1].min(all.len())];
                let from = random.below(range.len());
                (0..KEYS[kind]).map(|place| Arc::clone(&range[(from + place) % range.len()])).collect()
            })
            .collect();
        keys.extend(kinds.iter().flatten().cloned());
        let absent = all.iter().filter(|key| !keys.contains(key)).step_by(60).cloned();
        let absent: Vec<Bytes> = absent.collect();
        keys.extend(absent);
        let mut requests = workload.by_ref().filter_map(|request| moved(request, &all, &kinds, is_checked));
        let before = requests.by_ref().take(BEFORE).collect();
        let target = requests.next().expect("a workload does not end");
        let after = requests.take(AFTER).collect();
        Scenario { before, target, after, keys }
    }

    /// The kind of command that goes wrong, and how long its value is, for people.
    pub fn title(&self) -> String {
        let op = match &self.target.op {
            Op::Get { .. } if self.target.keys.len() > 1 => format!("get of {} keys", self.target.keys.len()),
            Op::Get { touch: None, .. } => "get".into(),
            Op::Get { .. } => "gat".into(),
            Op::Fetch { .. } => "mg".into(),
            Op::Touch { .. } => "touch".into(),
            Op::Put(put) => {
                let verb = if self.target.form == Form::Meta { "ms " } else { "" };
                format!("{verb}{:?} of {} bytes", put.mode, put.value.len()).to_lowercase()
            }
            Op::Delete { .. } => "delete".into(),
            Op::Count { up, .. } => if *up { "incr" } else { "decr" }.into(),
        };
        if self.target.quiet { format!("quiet {op}") } else { op }
    }
}

/// The same command on one of few keys of the same kind; none for what can't be done with checked values.
fn moved(mut request: Request, all: &[Bytes], kinds: &[Vec<Bytes>], is_checked: bool) -> Option<Request> {
    let mut keys: Vec<Bytes> = Vec::new();
    for key in &request.keys {
        let place = all.iter().position(|other| other == key)?;
        let kind = KINDS[1..].iter().position(|end| place < *end)?;
        let few = &kinds[kind];
        let key = &few[place % few.len()];
        if !keys.contains(key) {
            keys.push(Arc::clone(key));
        }
    }
    request.keys = keys;
    // What nobody answers can't be judged; `q` of meta commands still tells what went wrong.
    request.quiet &= request.form == Form::Meta;
    if is_checked {
        check(&mut request, &kinds[0])?;
    }
    Some(request)
}

/// Puts a checksum behind the values of keys that don't hold numbers. Joined values can have none.
fn check(request: &mut Request, numbers: &[Bytes]) -> Option<()> {
    let key = Arc::clone(&request.keys[0]);
    let Op::Put(put) = &mut request.op else { return Some(()) };
    if matches!(put.mode, PutMode::Append | PutMode::Prepend) {
        return None;
    }
    if numbers.contains(&key) {
        put.flags &= !(1 << CHECKED_BIT);
        return Some(());
    }
    put.flags |= 1 << CHECKED_BIT;
    let mut value = put.value.to_vec();
    value.extend_from_slice(&checksum(&key, put.flags, &value).to_le_bytes());
    put.value = value.into();
    Some(())
}

/// The checksum of docs/checked-values.md.
pub fn checksum(key: &[u8], flags: u32, content: &[u8]) -> u32 {
    let sum = crc32c::crc32c(key);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, &flags.to_le_bytes()), content)
}

/// Whether a reader of a checked value sees that it is wrong.
pub fn is_seen_wrong(key: &[u8], flags: u32, value: &[u8]) -> bool {
    if flags >> CHECKED_BIT & 1 == 0 {
        return false;
    }
    let Some((content, sum)) = value.split_last_chunk::<4>() else { return true };
    checksum(key, flags, content) != u32::from_le_bytes(*sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_repeat_and_differ() {
        let shown = |seed, number| format!("{:?}", Scenario::new(seed, number, false).before);
        assert_eq!(shown(1, 5), shown(1, 5));
        assert_ne!(shown(1, 5), shown(1, 6));
    }

    #[test]
    fn commands_meet_on_few_keys() {
        let scenario = Scenario::new(3, 0, false);
        let used = KEYS.iter().sum::<usize>();
        assert!(scenario.keys.len() > used);
        for request in scenario.before.iter().chain(&scenario.after).chain([&scenario.target]) {
            assert!(request.keys.iter().all(|key| scenario.keys[..used].contains(key)));
        }
    }

    #[test]
    fn checked_values_are_checked() {
        // The known answer of docs/checked-values.md.
        assert_eq!(checksum(b"greeting", 1 << 16, b"hello").to_le_bytes(), [0x03, 0xf5, 0xd3, 0x3f]);
        assert!(!is_seen_wrong(b"greeting", 1 << 16, b"hello\x03\xf5\xd3\x3f"));
        assert!(is_seen_wrong(b"greeting", 1 << 16, b"hallo\x03\xf5\xd3\x3f"));
        assert!(is_seen_wrong(b"greeting", 1 << 16, b"abc"));
        assert!(!is_seen_wrong(b"greeting", 0, b"abc"));
        let is_checked = |request: &Request| match &request.op {
            Op::Put(put) => !is_seen_wrong(&request.keys[0], put.flags, &put.value),
            _ => true,
        };
        let scenario = Scenario::new(3, 0, true);
        assert!(scenario.before.iter().all(is_checked));
        let puts = scenario.before.iter().filter(|request| match &request.op {
            Op::Put(put) => put.flags >> CHECKED_BIT & 1 == 1,
            _ => false,
        });
        assert!(puts.count() > 0);
    }
}
