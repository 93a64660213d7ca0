//! Random commands, as a worker gets them and a record has them.

use store::{Arith, Delete, Direction, Exptime, Fetch, Op, Put, PutMode, Request, Status};

use super::common::Random;

pub const NOW: u32 = 1_700_000_000;

/// A command without its value, as a record has it.
#[derive(Clone, Debug)]
pub struct Command {
    pub key: Vec<u8>,
    pub op: Op<'static>,
    pub len: usize,
}

impl Command {
    /// The request, with a value if it takes one.
    pub fn request<'a>(&'a self, value: &'a [u8]) -> Request<'a> {
        let op = match self.op {
            Op::Put(put) => Op::Put(Put { value, ..put }),
            other => other,
        };
        Request { key: &self.key, op }
    }
}

fn exptime(random: &mut Random) -> Exptime {
    Exptime([0, 0, 0, -1, 1, 100, 3_000_000_000][random.below(7)])
}

fn maybe<T>(random: &mut Random, one_in: usize, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (random.below(one_in) == 0).then(|| value(random))
}

/// Any command on any of so many keys; `cas` are ids that it may compare with or ask for.
pub fn command(random: &mut Random, keys: usize, value_bytes_max: usize, cas: &[u64]) -> Command {
    let key = format!("key{}", random.below(keys)).into_bytes();
    let known = |random: &mut Random| cas[random.below(cas.len())];
    let op = match random.below(10) {
        0..3 => Op::Fetch(Fetch {
            touch: maybe(random, 4, exptime),
            vivify: maybe(random, 8, exptime),
            recache: maybe(random, 8, |_| 1_000),
            new_cas: maybe(random, 20, known),
            bump: random.below(4) > 0,
            claim: random.below(2) > 0,
        }),
        3..7 => {
            use PutMode::{Add, Append, Prepend, Replace, Set};
            Op::Put(Put {
                mode: [Set, Set, Set, Add, Replace, Append, Prepend][random.below(7)],
                flags: random.below(2) as u32 * 7,
                exptime: exptime(random),
                compare: maybe(random, 4, known),
                new_cas: maybe(random, 20, known),
                invalidate: random.below(4) == 0,
                vivify: maybe(random, 4, exptime),
                ..Put::set(&[])
            })
        }
        7 => Op::Delete(Delete {
            compare: maybe(random, 4, known),
            invalidate: random.below(3) == 0,
            exptime: maybe(random, 3, exptime),
            drop_value: random.below(3) == 0,
            ..Delete::default()
        }),
        _ => Op::Arith(Arith {
            direction: if random.below(2) == 0 { Direction::Incr } else { Direction::Decr },
            delta: random.below(1_000) as u64,
            vivify: maybe(random, 2, |random| (exptime(random), 12)),
            exptime: maybe(random, 4, exptime),
            compare: maybe(random, 6, known),
            new_cas: None,
        }),
    };
    Command { key, op, len: random.below(value_bytes_max) }
}

/// What a command answered, for comparing it with its repetition.
pub fn told(status: Status, item: Option<store::View<'_>>) -> String {
    // Of the value, enough to tell it from others; texts of whole values would take most of the time.
    let item = item.map(|view| store::View { value: &view.value[..view.value.len().min(16)], ..view });
    format!("{status:?} {item:?}")
}
