//! A worker in one of the modes of execution: what is tested once has to hold in all of them.
//!
//! With records, the hand is its own validator: it repeats what it recorded, late and some at a time, and panics if
//! anything does not agree.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use guard::{Append, Next, Reader, Record, Stratum, ring};
use store::{
    Answer, Cursor, Draft, Env, Inspector, Needs, Op, Put, Request, Status, Store, StoreOptions, Token,
    Trace, View, Worker, crc32c,
};

/// Lines in the ring of a hand that leaves records: some hundred records.
const RING_LINES: usize = 1 << 10;

/// How commands are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Once.
    #[default]
    Vanilla,
    /// So often at once.
    Sei(u8),
    /// Once, and again from a record.
    Orthrus,
}

impl Mode {
    /// Options for a store whose commands are executed so.
    pub fn options(self, options: StoreOptions) -> StoreOptions {
        let redundancy = if let Mode::Sei(runs) = self { runs } else { 1 };
        StoreOptions { redundancy, ..options }
    }
}

/// Makes a test of each body in each mode.
#[macro_export]
macro_rules! in_every_mode {
    ($($body:ident),* $(,)?) => {
        $(
            mod $body {
                use super::hand::Mode;

                #[test]
                fn vanilla() {
                    super::$body(Mode::Vanilla);
                }

                #[test]
                fn sei_twice() {
                    super::$body(Mode::Sei(2));
                }

                #[test]
                fn sei_thrice() {
                    super::$body(Mode::Sei(3));
                }

                #[test]
                fn orthrus() {
                    super::$body(Mode::Orthrus);
                }
            }
        )*
    };
}

/// A worker, and whoever repeats what it records.
pub struct Hand {
    worker: Worker,
    ledger: Option<Ledger>,
}

struct Ledger {
    inspector: Inspector,
    reader: Reader,
    record: Record,
    /// What was executed last, and is not recorded yet.
    last: Option<Command>,
    waiting: VecDeque<Command>,
    /// How often the hand came to the end of a round.
    rounds: usize,
    count: Count,
}

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub agreed: u64,
    pub abandoned: u64,
    pub dropped: u64,
}

/// A command without its value, as a record has it, and what was told.
struct Command {
    key: Vec<u8>,
    op: Op<'static>,
    len: usize,
    told: Told,
}

/// What was told, without the value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    status: Status,
    token: Token,
    item: Option<(View<'static>, usize, u32)>,
}

impl Told {
    fn new(answer: &Answer<'_>) -> Self {
        let item = answer.item.map(|view| {
            let View { value, flags, exptime, cas, birth, accessed, fetched, stale, token_sent, .. } = view;
            let words = View {
                key: &[],
                value: &[],
                flags,
                exptime,
                cas,
                birth,
                accessed,
                fetched,
                stale,
                token_sent,
            };
            (words, value.len(), crc32c(0, value))
        });
        Told { status: answer.status, token: answer.token, item }
    }
}

impl Hand {
    pub fn new(store: &Arc<Store>, core: u16, mode: Mode) -> Self {
        let mut worker = store.worker(core).expect("a place");
        let ledger = (mode == Mode::Orthrus).then(|| {
            let (writer, reader) = ring(RING_LINES);
            Ledger {
                inspector: worker.record_into(writer, Needs::default()).expect("a hold"),
                reader,
                record: Record::default(),
                last: None,
                waiting: VecDeque::new(),
                rounds: 0,
                count: Count::default(),
            }
        });
        Hand { worker, ledger }
    }

    pub fn execute<'h>(&'h mut self, request: &Request<'_>, env: &Env) -> Answer<'h> {
        self.begin();
        let answer = self.worker.execute(request, env);
        note(&mut self.ledger, request, None, &answer);
        answer
    }

    pub fn finish<'h>(&'h mut self, mut draft: Draft, request: &Request<'_>, env: &Env) -> Answer<'h> {
        self.begin();
        let len = draft.buffer().len();
        let answer = self.worker.finish(draft, request, env);
        note(&mut self.ledger, request, Some(len), &answer);
        answer
    }

    pub fn draft(&mut self, key: &[u8], value_bytes: u32, env: &Env) -> Result<Draft, Status> {
        self.write_down();
        self.worker.draft(key, value_bytes, env)
    }

    pub fn forget(&mut self, key: &[u8]) -> bool {
        self.write_down();
        self.worker.forget(key)
    }

    pub fn scan(&mut self, cursor: &mut Cursor, buckets: usize, show: &mut dyn FnMut(&View<'_>)) -> bool {
        self.write_down();
        self.worker.scan(cursor, buckets, show)
    }

    pub fn round(&mut self) {
        self.write_down();
        self.worker.round();
        self.repeat_some();
    }

    pub fn idle(&mut self) {
        self.write_down();
        self.worker.idle();
        self.repeat_some();
    }

    /// Repeats everything, and says what became of it.
    pub fn settle(&mut self) -> Count {
        self.write_down();
        self.worker.idle();
        self.repeat(usize::MAX);
        self.ledger.as_ref().map_or_else(Count::default, |ledger| {
            assert_eq!(ledger.waiting.len(), 0, "nothing is lost");
            ledger.count
        })
    }

    fn begin(&mut self) {
        self.write_down();
        self.worker.trace_next(self.ledger.is_some());
    }

    /// Records what was executed last: while its answer was in use, the worker could not.
    fn write_down(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        let (Some(last), Some(trace)) = (ledger.last.take(), self.worker.take_trace()) else { return };
        match self.worker.record(&trace, Stratum(0), 0, &[&last.key]) {
            Append::Recorded(_) => ledger.waiting.push_back(last),
            Append::Dropped => ledger.count.dropped += 1,
        }
    }

    /// At the end of every third round, up to some dozens of records.
    fn repeat_some(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        ledger.rounds += 1;
        if ledger.rounds.is_multiple_of(3) {
            let count = ledger.rounds % 64;
            self.repeat(count);
        }
    }

    fn repeat(&mut self, count: usize) {
        let Some(ledger) = &mut self.ledger else { return };
        let Some(mut look) = ledger.inspector.begin() else { return };
        let mut is_drained = false;
        for _ in 0..count {
            match ledger.reader.next(&mut ledger.record) {
                Next::Empty => {
                    is_drained = true;
                    break;
                }
                Next::Record => {}
                Next::Corrupt { .. } => panic!("nobody damaged the ring"),
            }
            let Command { key, op, len, told } = ledger.waiting.pop_front().expect("it was executed");
            let (trace, ..) = Trace::read(&ledger.record).expect("it was a trace");
            if !look.take(&trace) {
                ledger.count.abandoned += 1;
                continue;
            }
            let op = match op {
                Op::Put(put) => Op::Put(Put { value: look.received(&trace, put.mode, len), ..put }),
                other => other,
            };
            let request = Request { key: &key, op };
            match look.repeat(&trace, &request) {
                Ok((answer, _)) => assert_eq!(Told::new(&answer), told, "{request:?}"),
                Err(mismatch) => panic!("{request:?}: {mismatch:?}"),
            }
            ledger.count.agreed += 1;
        }
        look.end(is_drained);
    }
}

/// What asks and changes nothing.
impl Deref for Hand {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.settle();
        }
    }
}

fn note(ledger: &mut Option<Ledger>, request: &Request<'_>, len: Option<usize>, answer: &Answer<'_>) {
    let Some(ledger) = ledger else { return };
    let (op, value_len) = match request.op {
        Op::Put(Put { mode, flags, exptime, value, compare, new_cas, invalidate, vivify }) => (
            Op::Put(Put { mode, flags, exptime, value: &[], compare, new_cas, invalidate, vivify }),
            value.len(),
        ),
        Op::Fetch(fetch) => (Op::Fetch(fetch), 0),
        Op::Delete(delete) => (Op::Delete(delete), 0),
        Op::Arith(arith) => (Op::Arith(arith), 0),
    };
    let len = len.unwrap_or(value_len);
    ledger.last = Some(Command { key: request.key.to_vec(), op, len, told: Told::new(answer) });
}
