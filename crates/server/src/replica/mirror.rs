//! The state of a replica: its own items, and what it can and can't conclude from them about those of its server.
//!
//! Keys are divided into parts, and the server numbers the changes in each part ([`store::Order`]). A replica makes them
//! in that order, whichever worker told them, so that it has the state that every one of them was made in. A look-up says
//! which changes it has seen at least; it may have seen more, and others may have been made since.
//!
//! So, where nothing is missing:
//!
//! * a change that found another version than the replica has, is wrong, unless what it missed went without a command:
//!   by eviction, above all, which the server can tell;
//! * a look-up that found another version than the replica has, and the replica's is one it must have seen, has seen a
//!   change that is on its way, or is wrong. Which, shows when a *fence* was passed: the server says when it is set up
//!   ([`Mirror::open`]), and when every worker has begun a new round since and all earlier records have been sent.
//!
//! What is wrong is [`Kind::Stale`] or [`Kind::Resurrected`] if a version was found, or [`Kind::Lost`] if none was.
//!
//! Where the replica can't know, it takes the server's word: about keys that it has asked the server for, about all keys
//! until all of them were sent, and after records were lost, until everything is sent once more.
//!
//! Limits: [`SUSPECTS_MAX`], above which nothing more is suspected, and [`WANTED_MAX`], above which the server is asked for
//! everything.

use std::collections::{BTreeMap, VecDeque};

use guard::{Digest, Kind, Mismatch};
use store::{
    Answer, Copy, Cursor, Env, Followed, Follower, ORDERS, Op, Order, Own, Request, Told, Trace, Version,
};

use super::wire::{Counted, Missed};

/// Items that may have been lost and wait for their fence.
const SUSPECTS_MAX: usize = 1024;

/// Keys the server was asked about.
const WANTED_MAX: usize = 1024;

/// Fences whose flush mark is noted; what is flushed is forgotten later if there are more.
const FLUSHES_MAX: usize = 64;

/// Expired items are forgotten so many seconds late: a record of somebody who still saw them may be on its way.
const EXPIRY_MARGIN_SECONDS: u32 = 60;

/// How much of the store is maintained at once, in segments.
const MAINTENANCE_STEP: usize = 2;

/// The state of a replica.
pub(crate) struct Mirror {
    follower: Follower,
    /// By part: the change made last.
    made: Vec<u64>,
    /// By part: the last change that took something away.
    removed: Vec<u64>,
    /// By part: what was made up to this one the server has sent, or will.
    base: Vec<u64>,
    /// Whether all changes since then have come, so that the next one can be waited for.
    is_ordered: bool,
    /// Whether all items have come as well, so that one that is missing here is missing there.
    is_complete: bool,
    /// Whether items are missing here that will not come by themselves.
    is_lacking: bool,
    /// Whether an item could not be kept for lack of memory.
    had_no_room: bool,
    suspects: Vec<Suspect>,
    wanted: BTreeMap<Vec<u8>, Wanted>,
    /// To be forgotten when nobody looks at it any more.
    distrusted: Option<Vec<u8>>,
    /// Keys the server is to be asked about.
    pub(crate) asks: Vec<Vec<u8>>,
    /// Whether it is to be asked for all.
    pub(crate) asks_all: bool,
    /// To be told to the server.
    pub(crate) missed: Vec<Missed>,
    /// The fence set up last.
    opened: u64,
    /// The latest time and flush mark that any record had.
    now: u32,
    flushed_below: u64,
    /// The flush mark when a fence was set up, for those that are not passed.
    flushes: VecDeque<(u64, u64)>,
    /// The flush mark that everybody has seen whose record is still to come.
    swept_below: u64,
    sweep: Option<Cursor>,
    counted: Counted,
}

/// An item that its server did not find.
#[derive(Debug)]
struct Suspect {
    missed: Missed,
    /// The fence that was the last one set up then.
    opened: u64,
    /// Whether a change on its way may explain it: it has if the item is not here any more.
    may_be_overtaken: bool,
}

/// A key the server was asked about.
#[derive(Debug)]
enum Wanted {
    Asked,
    /// The answer came; the fence that was the last one set up then.
    Answered(u64),
}

/// What is known of a record's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// What it waits for may come.
    Waits,
    /// All that precedes it has come.
    NothingComes,
    /// It has waited for too long.
    TimeIsUp,
}

/// One execution at the server.
#[derive(Clone, Copy)]
pub(crate) struct Occasion<'o> {
    pub(crate) trace: &'o Trace,
    /// None if what the record points to is gone.
    pub(crate) told: Option<&'o Told>,
    pub(crate) stream: u16,
    pub(crate) patience: Patience,
}

/// What came of it here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Made<'m> {
    /// The same, so far, and this is answered.
    Answer(Answer<'m>),
    /// Its turn has not come.
    Later,
    /// Nothing can be said about it.
    Unknown,
    /// Something else.
    Disagrees(Mismatch),
}

/// How what was found there compares with what is here.
enum Compared {
    /// It is the same.
    Same,
    /// Here it is as it was made there later.
    Past,
    /// Nothing was found there.
    Missed(Own),
    /// Another version was found there.
    Other(Version, Option<Own>),
}

impl Mirror {
    pub(crate) fn new(follower: Follower, now: u32) -> Self {
        Mirror {
            follower,
            made: vec![0; ORDERS],
            removed: vec![0; ORDERS],
            base: vec![0; ORDERS],
            is_ordered: false,
            is_complete: false,
            is_lacking: false,
            had_no_room: false,
            suspects: Vec::new(),
            wanted: BTreeMap::new(),
            distrusted: None,
            asks: Vec::new(),
            asks_all: false,
            missed: Vec::new(),
            opened: 0,
            now,
            flushed_below: 0,
            flushes: VecDeque::new(),
            swept_below: 0,
            sweep: None,
            counted: Counted::default(),
        }
    }

    /// Executes what was executed at the server.
    pub(crate) fn execute<'m>(&'m mut self, at: &Occasion<'_>, request: &Request<'_>) -> Made<'m> {
        self.settle();
        let env = at.trace.env();
        let (Some(order), part) = (at.trace.order(), at.trace.part()) else {
            return Made::Disagrees(Mismatch::new(Kind::Record, Digest(1), Digest(0)));
        };
        let made = self.made[part];
        let is_due = order.number <= if order.is_change { made + 1 } else { made };
        if !is_due && self.is_ordered {
            match at.patience {
                Patience::Waits => return Made::Later,
                Patience::NothingComes => {}
                Patience::TimeIsUp => self.counted.unordered += 1,
            }
            // Changes are missing.
            self.doubt();
        }
        if order.is_change && order.number <= made {
            return self.pass_over();
        }
        self.now = self.now.max(env.now);
        self.flushed_below = self.flushed_below.max(env.flushed_below);
        let Some(told) = at.told else {
            self.counted.unknown += 1;
            if order.is_change {
                self.made[part] = order.number;
                self.removed[part] = order.number;
                self.ask_again(request.key);
            }
            return Made::Unknown;
        };
        if order.is_change {
            self.change(at, told, request, order.number)
        } else {
            self.look(at, told, request, order)
        }
    }

    /// Makes a change whose turn it is.
    fn change<'m>(
        &'m mut self,
        at: &Occasion<'_>,
        told: &Told,
        request: &Request<'_>,
        number: u64,
    ) -> Made<'m> {
        let (key, part) = (request.key, at.trace.part());
        self.made[part] = number;
        // A version that is expired from the start may be swept at any time.
        if told.published.is_none() || at.trace.is_published_dead() {
            self.removed[part] = number;
        }
        match self.compare(at.trace, told, key) {
            Compared::Same => self.follow(at, told, request),
            Compared::Past => self.pass_over(),
            Compared::Missed(own) => {
                if own.is_alive(&at.trace.env()) && !self.is_uncertain(key) {
                    self.suspect(key, own, at.stream, false);
                }
                self.follower.forget(key);
                self.follow(at, told, request)
            }
            Compared::Other(_, own) if self.is_uncertain(key) || self.may_lack(own) => {
                self.place(at, told, request);
                Made::Unknown
            }
            Compared::Other(found, own) => self.disagree(key, found, own),
        }
    }

    /// Looks for what was looked for, when all is made that was seen at least.
    fn look<'m>(
        &'m mut self,
        at: &Occasion<'_>,
        told: &Told,
        request: &Request<'_>,
        order: Order,
    ) -> Made<'m> {
        let (key, part) = (request.key, at.trace.part());
        match self.compare(at.trace, told, key) {
            Compared::Same => self.follow(at, told, request),
            Compared::Past => self.pass_over(),
            Compared::Missed(own) if own.order > order.number => self.pass_over(),
            Compared::Missed(own) => {
                if own.is_alive(&at.trace.env()) && !self.is_uncertain(key) {
                    self.suspect(key, own, at.stream, true);
                }
                // The answer can be compared all the same.
                self.follow(at, told, request)
            }
            Compared::Other(_, Some(own)) if own.order > order.number => self.pass_over(),
            Compared::Other(_, None) if self.removed[part] > order.number => self.pass_over(),
            Compared::Other(_, own) if self.is_uncertain(key) || self.may_lack(own) => {
                self.counted.unknown += 1;
                Made::Unknown
            }
            Compared::Other(found, own) => match at.patience {
                Patience::Waits => Made::Later,
                Patience::NothingComes => self.disagree(key, found, own),
                Patience::TimeIsUp => {
                    self.counted.unordered += 1;
                    self.ask_again(key);
                    Made::Unknown
                }
            },
        }
    }

    fn compare(&mut self, trace: &Trace, told: &Told, key: &[u8]) -> Compared {
        let mut own = self.follower.own(key);
        // What is older, and was not sent again, may be there no more.
        if own.take_if(|own| own.order < self.base[trace.part()]).is_some() {
            self.follower.forget(key);
        }
        match (told.found, own) {
            (None, None) => Compared::Same,
            (Some(found), Some(own)) if found.cas == own.version.cas => Compared::Same,
            (_, Some(own)) if told.published.is_some_and(|version| version.cas == own.version.cas) => {
                Compared::Past
            }
            (None, Some(own)) => Compared::Missed(own),
            (Some(found), None) if !trace.is_found_alive(found) => Compared::Same,
            (Some(found), own) => Compared::Other(found, own),
        }
    }

    /// Executes it on the version that was found, which is the own one.
    fn follow<'m>(&'m mut self, at: &Occasion<'_>, told: &Told, request: &Request<'_>) -> Made<'m> {
        match self.follower.follow(at.trace, told, request) {
            Followed::Agrees(answer) => {
                self.counted.repeated += 1;
                Made::Answer(answer)
            }
            Followed::Disagrees(mismatch) => {
                self.distrusted = Some(request.key.to_vec());
                Made::Disagrees(mismatch)
            }
            Followed::Damaged => {
                self.counted.unknown += 1;
                self.counted.damaged += 1;
                self.distrusted = Some(request.key.to_vec());
                Made::Unknown
            }
            Followed::NoRoom => {
                self.had_no_room = true;
                self.counted.unknown += 1;
                Made::Unknown
            }
        }
    }

    /// Does what a change says that can't be executed.
    fn place(&mut self, at: &Occasion<'_>, told: &Told, request: &Request<'_>) {
        self.counted.unknown += 1;
        let is_placed = match (told.published, &request.op) {
            (Some(_), _) => self.follower.take_put(at.trace, told, request),
            (None, Op::Delete(_)) => {
                self.follower.forget(request.key);
                true
            }
            (None, _) => false,
        };
        if !is_placed {
            self.ask_again(request.key);
        }
    }

    fn disagree<'m>(&mut self, key: &[u8], found: Version, own: Option<Own>) -> Made<'m> {
        let kind = if own.is_some() { Kind::Stale } else { Kind::Resurrected };
        self.ask_again(key);
        let expected = own.map_or(0, |own| own.version.cas);
        Made::Disagrees(Mismatch::new(kind, Digest(expected), Digest(found.cas)))
    }

    /// It belongs to the past of what is known already.
    fn pass_over<'m>(&mut self) -> Made<'m> {
        self.counted.overtaken += 1;
        Made::Unknown
    }

    /// Whether it is not known which version of a key is the last one.
    fn is_uncertain(&self, key: &[u8]) -> bool {
        !self.is_complete || self.wanted.contains_key(key)
    }

    /// Whether an item may be missing here because there was no memory for it.
    fn may_lack(&self, own: Option<Own>) -> bool {
        own.is_none() && (self.had_no_room || self.follower.store().stats().evictions > 0)
    }

    /// The answer to the last execution was not the server's: its key is not to be trusted.
    pub(crate) fn distrust(&mut self, key: &[u8]) {
        self.distrusted = Some(key.to_vec());
    }

    /// Nobody looks at the last answer any more.
    pub(crate) fn settle(&mut self) {
        if let Some(key) = self.distrusted.take() {
            self.ask_again(&key);
        }
    }

    /// Notes that the server did not find what is here.
    fn suspect(&mut self, key: &[u8], own: Own, stream: u16, may_be_overtaken: bool) {
        if self.suspects.len() < SUSPECTS_MAX {
            let Own { version: Version { cas, birth }, exptime, vanished, .. } = own;
            let missed = Missed { stream, cas, birth, exptime, vanished, key: key.to_vec() };
            self.suspects.push(Suspect { missed, opened: self.opened, may_be_overtaken });
        } else {
            self.counted.unknown += 1;
        }
    }

    /// Forgets a key and asks the server what there is.
    fn ask_again(&mut self, key: &[u8]) {
        self.follower.forget(key);
        if matches!(self.wanted.get(key), Some(Wanted::Asked)) {
            return;
        }
        if self.wanted.len() < WANTED_MAX {
            self.wanted.insert(key.to_vec(), Wanted::Asked);
            self.asks.push(key.to_vec());
        } else {
            self.is_lacking = true;
            self.is_complete = false;
            self.asks_all = true;
        }
    }

    /// From now on the server sends all its items, and all changes that come after these, by part.
    pub(crate) fn begin_loads(&mut self, base: Vec<u64>) {
        self.made.clone_from(&base);
        self.base = base;
        self.is_ordered = true;
        self.is_complete = false;
        self.is_lacking = false;
        self.suspects.clear();
    }

    /// Takes over an item as it is at the server: no record that came is younger, as all come the same way.
    pub(crate) fn load(&mut self, copy: &Copy<'_>) {
        self.settle();
        let key = copy.view.key;
        self.answered(key);
        let (order, base) = (self.made[copy.part], self.base[copy.part]);
        let own = self.follower.own(key);
        let is_known = own.is_some_and(|own| own.version.cas == copy.view.cas && own.order >= base);
        // Also if it is dead by now: a record of somebody who still saw it may be on its way.
        if !is_known {
            self.had_no_room |= !self.follower.take_over(copy, order, self.now);
            self.counted.loaded += 1;
        }
    }

    /// The server has nothing under a key it was asked about.
    pub(crate) fn load_nothing(&mut self, key: &[u8]) {
        self.settle();
        self.answered(key);
        self.follower.forget(key);
    }

    fn answered(&mut self, key: &[u8]) {
        if let Some(wanted) = self.wanted.get_mut(key) {
            *wanted = Wanted::Answered(self.opened);
        }
    }

    /// The server has set up a fence.
    pub(crate) fn open(&mut self, fence: u64) {
        self.opened = fence;
        if self.flushes.len() < FLUSHES_MAX {
            self.flushes.push_back((fence, self.flushed_below));
        }
    }

    /// The fence set up last.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// A fence has been passed at the server. Records that were sent before may still wait here. `is_complete` says
    /// whether all items and records were sent.
    pub(crate) fn passed(&mut self, is_complete: bool) {
        self.is_complete &= is_complete;
    }

    /// Nothing waits any more that came before a fence was passed.
    pub(crate) fn close(&mut self, fence: u64, is_complete: bool) {
        self.settle();
        let due: Vec<Suspect> = self.suspects.extract_if(.., |suspect| suspect.opened < fence).collect();
        for Suspect { mut missed, may_be_overtaken, .. } in due {
            if may_be_overtaken {
                let own = self.follower.own(&missed.key).filter(|own| own.version.cas == missed.cas);
                let Some(own) = own else { continue };
                // What gave it less time came first as well.
                (missed.birth, missed.exptime) = (own.version.birth, own.exptime);
            }
            if self.is_uncertain(&missed.key) {
                self.counted.unknown += 1;
                continue;
            }
            if may_be_overtaken {
                self.follower.forget(&missed.key);
            }
            self.missed.push(missed);
        }
        while let Some((_, flushed_below)) = self.flushes.pop_front_if(|(opened, _)| *opened <= fence) {
            self.swept_below = flushed_below;
        }
        self.wanted.retain(|_, wanted| !matches!(wanted, Wanted::Answered(opened) if *opened < fence));
        if is_complete && self.is_ordered && !self.is_lacking {
            self.is_complete = true;
        }
    }

    /// Records are missing: nothing is certain until the server has sent everything again.
    pub(crate) fn doubt(&mut self) {
        self.is_ordered = false;
        self.is_complete = false;
        self.asks_all = true;
    }

    /// What it has counted.
    pub(crate) fn counted(&self) -> Counted {
        let stats = self.follower.store().stats();
        let (items, evicted) = (stats.items, stats.evictions);
        Counted { items, evicted, is_complete: self.is_complete.into(), ..self.counted }
    }

    /// Forgets what is dead, and makes room. Whether there is more to do.
    pub(crate) fn maintain(&mut self) -> bool {
        self.settle();
        let seconds = self.now.saturating_sub(EXPIRY_MARGIN_SECONDS);
        let more = self.follower.store().maintain(&Env { now: seconds, flushed_below: 0 }, MAINTENANCE_STEP);
        let cursor = self.sweep.get_or_insert_default();
        let env = Env { now: seconds, flushed_below: self.swept_below };
        if !self.follower.sweep(cursor, &env) {
            self.sweep = None;
        }
        more
    }

    /// Nothing is looked at until the next call.
    pub(crate) fn idle(&mut self) {
        self.settle();
        self.follower.idle();
    }
}
