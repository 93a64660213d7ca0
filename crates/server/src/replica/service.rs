//! The replica: greets a server, and does what it is sent until the connection ends. Then it knows nothing any more.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use guard::{Core, Digest, Kind, Mismatch, Turn};
use protocol::checked::Announcement;
use store::{Follower, Store, StoreOptions, Trace};

use super::link::{Link, Lost};
use super::mirror::{Mirror, Occasion};
use super::parcel::Parcel;
use super::streams::{Next, Run, Streams};
use super::wire::{self, BadFrame, Counted, Fence, FenceEvent, Fields, Frame, Hello, Loaded, Refused, Tag};
use super::wire::{VERSION, WINDOW_BYTES, Welcome};
use crate::clock::Clock;
use crate::counters::Counters;
use crate::driver::Driver;
use crate::error::Error;
use crate::execute::Executor;
use crate::output::{Mark, Output};
use crate::replay::{self, Replay};
use crate::settings::{Protect, Settings, Slabs};
use crate::shared::Shared;
use crate::{strata, sys};

/// Stands for the cores of a replica on another machine, whose numbers mean nothing to its server.
pub(super) const ELSEWHERE: Core = Core(u16::MAX);

/// How often memory is looked after.
const MAINTENANCE: Duration = Duration::from_millis(100);

/// How long a server may take for its greeting, and later may say nothing: it pings more often than that.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nothing more is taken in while so much waits to be sent: a server that does not read gets no answers.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Where a replica finds its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a socket that was inherited; the process that has started this one is the server, and this one ends with it.
    Inherited(i32),
    /// At an address, `HOST:PORT`, where servers call, one after the other.
    Listen(String),
}

/// Runs a replica as the whole process. `memory_bytes` is its memory limit; the server's if none is given.
///
/// # Errors
/// When the socket can't be had.
pub fn run(place: &Place, memory_bytes: Option<u64>) -> Result<(), Error> {
    match place {
        Place::Inherited(descriptor) => {
            sys::die_with_parent().map_err(Error::system("cannot be told of the server's end"))?;
            let socket = sys::inherited(*descriptor).map_err(Error::system("--fd: cannot use the socket"))?;
            let lost = serve(socket, memory_bytes, true);
            if let Lost::Bad(bad) = lost {
                tell(&format!("what the server sent: {bad}"));
            }
            Ok(())
        }
        Place::Listen(address) => {
            let listening = Listening::at(address, memory_bytes)?;
            let own = listening.address().map_err(Error::system("--listen: cannot listen there"))?;
            tell(&format!("listening on {own}"));
            Err(listening.serve())
        }
    }
}

/// A replica that servers call, one after the other.
pub struct Listening {
    listener: TcpListener,
    memory_bytes: Option<u64>,
}

impl Listening {
    /// Listens at an address, `HOST:PORT`. `memory_bytes` is as with [`run`].
    ///
    /// # Errors
    /// When that is not possible.
    pub fn at(address: &str, memory_bytes: Option<u64>) -> Result<Self, Error> {
        let addresses = address.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
        let listener = addresses.and_then(|addresses| TcpListener::bind(&addresses[..]));
        let listener = listener.map_err(Error::system("--listen: cannot listen there"))?;
        Ok(Listening { listener, memory_bytes })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Is the replica of whoever calls, until nobody can call any more; why that is.
    pub fn serve(self) -> Error {
        loop {
            let (stream, caller) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => return Error::system("cannot accept connections")(error),
            };
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                let lost = serve(stream.into(), self.memory_bytes, false);
                tell(&format!("the server at {caller} is gone: {lost}"));
            }
        }
    }
}

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
fn tell(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("veracache: replica: {text}\n").as_bytes());
}

/// Is a server's replica until the connection ends; why it did.
fn serve(socket: OwnedFd, memory_bytes: Option<u64>, is_here: bool) -> Lost {
    let mut link = Link::new(socket);
    match greet(&mut link, memory_bytes, is_here) {
        Ok(mut session) => loop {
            if let Err(lost) = session.turn(&mut link) {
                return lost;
            }
        },
        Err(lost) => {
            // So that the answer arrives before the end.
            let _ = link.send();
            lost
        }
    }
}

/// What a replica knows while a server is connected.
struct Session {
    mirror: Mirror,
    streams: Streams,
    desk: Desk,
    ping: u64,
    /// Whether the server is on this machine.
    is_here: bool,
    /// What may wait in the streams at most.
    held_bytes_max: usize,
    began: Instant,
    /// When the server was heard last.
    heard: Instant,
    maintained: Instant,
}

/// The flag of checked values that a mask stands for, if it stands for one.
fn announcement(mask: u32) -> Option<Announcement> {
    Announcement::new(mask.trailing_zeros()).filter(|announcement| announcement.mask() == mask)
}

/// What commands are executed with.
struct Desk {
    shared: Shared,
    /// For hashes only.
    store: store::Worker,
    counters: Counters,
    output: Output,
    key: Vec<u8>,
}

/// Hears the server's greeting and answers.
fn greet(link: &mut Link, memory_bytes: Option<u64>, is_here: bool) -> Result<Session, Lost> {
    let hello = match link.ask(PATIENCE, || false, Hello::decode) {
        Err(Lost::Bad(_)) => return Err(Lost::Stranger),
        heard => heard?,
    };
    let memory_bytes = memory_bytes.unwrap_or(hello.memory_bytes.saturating_add(hello.memory_bytes / 8));
    let mut answer = |refused| {
        Welcome { version: VERSION, refused, memory_bytes }.append(link.out());
        refused.map_or(Ok(()), |refused| Err(Lost::Refused(refused)))
    };
    if hello.version != VERSION {
        answer(Some(Refused::Version))?;
    }
    let Some(session) = Session::new(&hello, memory_bytes, is_here) else {
        answer(Some(Refused::Memory))?;
        return Err(Lost::Refused(Refused::Memory));
    };
    answer(None)?;
    link.agree(hello.body_max());
    Ok(session)
}

impl Session {
    /// None when the memory can't be had.
    fn new(hello: &Hello, memory_bytes: u64, is_here: bool) -> Option<Self> {
        let options = StoreOptions {
            memory_bytes,
            item_bytes_max: hello.item_bytes_max.checked_add(store::NOTE_BYTES)?,
            seed: crate::run::random_seed(),
            workers_max: 2,
            // It follows the server's ids, whether they are shown or not.
            cas: true,
            sealed_flags: hello.checked_flags,
            start_unix: hello.start_unix,
            ..StoreOptions::default()
        };
        let store = Store::new(options).ok()?;
        let follower = Follower::new(&store, hello.cas).ok()?;
        let own = store.worker(0).ok()?;
        let (factor, chunk_bytes_min, chunk_bytes_max) = hello.slabs;
        let settings = Settings {
            memory_bytes,
            item_bytes_max: hello.item_bytes_max,
            cas: hello.cas,
            // Nothing is recorded here, and nothing followed.
            protect: Protect::Vanilla,
            checked_values: announcement(hello.checked_flags),
            slabs: Slabs { factor, chunk_bytes_min, chunk_bytes_max, ..Slabs::default() },
            ..Settings::default()
        };
        let driver = Driver::new().ok()?;
        let wakers = (driver.waker().ok()?, driver.waker().ok()?);
        let shared = Shared::new(settings, store, Clock::new(), Vec::new(), Vec::new(), Vec::new(), wakers);
        let now = Instant::now();
        Some(Session {
            mirror: Mirror::new(follower, hello.start_unix),
            streams: Streams::new(hello.streams, strata::STRATA),
            desk: Desk {
                shared,
                store: own,
                counters: Counters::default(),
                output: Output::default(),
                key: Vec::new(),
            },
            ping: 0,
            is_here,
            // Twice for what is not full, and the one parcel that may be larger than the window.
            held_bytes_max: 2 * WINDOW_BYTES + 2 * hello.body_max(),
            began: now,
            heard: now,
            maintained: now,
        })
    }

    /// Takes what has arrived, does it, and answers; waits when there is nothing to do.
    fn turn(&mut self, link: &mut Link) -> Result<(), Lost> {
        link.send()?;
        let mut retry = None;
        if link.queued() < QUEUED_BYTES_MAX {
            let mut answers = Vec::new();
            while let Some(frame) = link.next()? {
                self.take(&frame, &mut answers)?;
                self.heard = Instant::now();
            }
            retry = self.execute(&mut answers);
            self.ask(&mut answers);
            link.out().append(&mut answers);
            link.send()?;
            if link.receive()? > 0 {
                return Ok(());
            }
        }
        if self.maintained.elapsed() >= MAINTENANCE && !self.mirror.maintain() {
            self.maintained = Instant::now();
        }
        self.mirror.idle();
        let Some(left) = PATIENCE.checked_sub(self.heard.elapsed()) else { return Err(Lost::Silent) };
        link.wait(left.min(MAINTENANCE).min(retry.unwrap_or(MAINTENANCE)));
        Ok(())
    }

    fn take(&mut self, frame: &Frame<'_>, answers: &mut Vec<u8>) -> Result<(), Lost> {
        match frame.tag {
            Tag::Parcel => {
                let parcel = Parcel::unpack(frame.body)?;
                if self.streams.held_bytes() + parcel.held_bytes() > self.held_bytes_max {
                    return Err(BadFrame::Length.into());
                }
                self.streams.receive(frame.stream, parcel, self.mirror.opened())?;
            }
            Tag::Load => {
                let mut fields = Fields::new(frame.body);
                while !fields.is_empty() {
                    match wire::loaded(&mut fields)? {
                        Loaded::Item(copy) => self.mirror.load(&copy),
                        Loaded::Absence(key) => self.mirror.load_nothing(key),
                    }
                }
            }
            Tag::Walk => self.mirror.begin_loads(wire::orders(frame.body)?),
            Tag::Fence => {
                let Fence { number, what } = Fence::decode(frame)?;
                match what {
                    FenceEvent::Open => self.mirror.open(number),
                    FenceEvent::Passed { is_complete } => {
                        self.mirror.passed(is_complete);
                        self.streams.pass(number, is_complete);
                    }
                }
            }
            Tag::Ping => {
                let mut fields = Fields::new(frame.body);
                self.ping = fields.u64()?;
                fields.end()?;
                Counted { ping: self.ping, ..self.mirror.counted() }.append(answers);
            }
            _ => return Err(BadFrame::Tag.into()),
        }
        Ok(())
    }

    /// Executes what can be executed, and says how far that is; how long until it should be tried again.
    fn execute(&mut self, answers: &mut Vec<u8>) -> Option<Duration> {
        let Session { mirror, streams, desk, is_here, .. } = self;
        let retry = streams.run(&mut Run {
            now: self.began.elapsed(),
            core: if *is_here { Core(sys::current_cpu()) } else { ELSEWHERE },
            mirror,
            confirm: &mut |mirror, next| desk.confirm(mirror, next),
            tell: &mut |progress| progress.append(answers),
        });
        mirror.settle();
        retry
    }

    /// Tells the server what was missed, and asks it for what is missing here.
    fn ask(&mut self, answers: &mut Vec<u8>) {
        for missed in self.mirror.missed.drain(..) {
            missed.append(answers);
        }
        let all = std::mem::take(&mut self.mirror.asks_all);
        let keys = std::mem::take(&mut self.mirror.asks);
        if all || !keys.is_empty() {
            wire::append(answers, Tag::Want, 0, |body| {
                body.push(all.into());
                keys.iter().for_each(|key| wire::append_key(body, key));
            });
        }
    }
}

impl Desk {
    /// Executes a record's command again and compares.
    fn confirm(&mut self, mirror: &mut Mirror, next: &Next<'_>) -> Result<Turn, Mismatch> {
        let confirmed = self.repeat(mirror, next);
        if confirmed.is_err() {
            if self.key.is_empty() {
                // Nobody knows what it was about.
                mirror.doubt();
            } else {
                mirror.distrust(&self.key);
            }
        }
        confirmed
    }

    fn repeat(&mut self, mirror: &mut Mirror, next: &Next<'_>) -> Result<Turn, Mismatch> {
        let record = next.record;
        self.key.clear();
        let (trace, reply, command) = Trace::read(record).ok_or_else(|| store::senseless(record))?;
        let dialect = strata::dialect(record.stratum()).ok_or_else(|| store::senseless(record))?;
        let (told, received) = match &next.facts {
            Some(facts) => (Some(&facts.told), facts.received),
            None => (None, &b""[..]),
        };
        let at = Occasion { trace: &trace, told, stream: next.stream, patience: next.patience };
        let Desk { shared, store, counters, output, key } = self;
        output.clear();
        let mut executor = Executor::new(store, shared, counters, trace.env())
            .replaying(Replay::mirrored(mirror, at, received, key));
        replay::execute(dialect, command, &mut executor, output);
        let turn = executor.into_replay().map_or(Ok(Turn::Unknown), Replay::turn)?;
        if turn == Turn::Agrees {
            let found = store::digest(output.since(Mark::START));
            guard::compare(Kind::Reply, Digest(reply.into()), Digest(found.into()))?;
        }
        Ok(turn)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Inherited(descriptor) => write!(f, "descriptor {descriptor}"),
            Place::Listen(address) => f.write_str(address),
        }
    }
}
