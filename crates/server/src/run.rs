//! Starting and stopping: threads in a process, or a whole process that does nothing else.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle};

use guard::Core;
use protocol::checked::Announcement;
use store::{Store, StoreOptions};

use crate::bell::Bell;
use crate::clock::Clock;
use crate::connection::Speaks;
use crate::driver::Driver;
use crate::error::{Error, Kind};
use crate::listener::{self, Acceptor, Listener};
use crate::placement::Division;
use crate::recorder::{Plan, Recorder};
use crate::replica::{self, Shipper};
use crate::settings::{Protect, Settings};
use crate::shared::{Post, Shared, Stop};
use crate::strata::STRATA;
use crate::sys::{self, Signal, Signals, User};
use crate::validator::{RING_LINES, Source, Validation, Validator};
use crate::worker::Ledger;
use crate::{janitor, worker};

/// How often a worker without memory lets its validator run before it abandons what that has not seen yet.
const PATIENCE: usize = 16;

/// The same where replies wait for what would be abandoned: about a second, most of it asleep.
const PATIENCE_SYNC: usize = 2048;

/// What a worker's ring takes.
const RING_BYTES: i64 = 64 * RING_LINES as i64;

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal or a client asked for it.
    Stopped,
    /// SIGUSR1 or a client asked for it to be graceful.
    StoppedGracefully,
}

/// A running server, inside a process that may do other things too.
pub struct Server {
    shared: Arc<Shared>,
    /// Woken when the server is asked to stop.
    main: Driver,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// What its threads share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens the sockets and starts the threads. Nothing is changed that concerns the whole process.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        let listeners = listener::bind_all(&settings)?;
        Self::start_with(settings, listeners)
    }

    fn start_with(settings: Settings, listeners: Vec<Listener>) -> Result<Self, Error> {
        let failed = || Error::errno("cannot watch sockets");
        let clock = Clock::new();
        let store = open_store(&settings, clock.now())?;
        let main = Driver::new().map_err(failed())?;
        let accepting = Driver::new().map_err(failed())?;
        let mut drivers = Vec::new();
        let mut posts = Vec::new();
        for _ in 0..settings.threads.max(1) {
            let driver = Driver::new().map_err(failed())?;
            posts.push(Post::new(driver.waker().map_err(failed())?));
            drivers.push(driver);
        }
        let plan = Plan::new(&settings, available_cpus());
        let bells: Vec<Arc<Bell>> = (0..plan.validators).map(|_| Arc::default()).collect();
        let validations = (0..if settings.records() { posts.len() } else { 0 })
            .map(|number| Validation::new(Arc::clone(&bells[number % bells.len()])))
            .collect();
        let wakers = (main.waker().map_err(failed())?, accepting.waker().map_err(failed())?);
        let shared = Arc::new(Shared::new(settings, store, clock, posts, listeners, validations, wakers));
        let mut server = Server { shared, main, threads: Vec::new() };
        let division = server.divide(plan.validators);
        // From here on, whatever fails, dropping the server ends the threads that run already.
        let mut sources: Vec<Vec<Source>> = bells.iter().map(|_| Vec::new()).collect();
        for (number, driver) in drivers.into_iter().enumerate() {
            let shared = Arc::clone(&server.shared);
            let mut store = shared.store.worker(number as u16).map_err(failed_store)?;
            let records = shared.validations.get(number).map(|validation| {
                let (ledger, source) = records(&shared, number, validation, &plan, &mut store)?;
                sources[number % bells.len()].push(source);
                Ok(ledger)
            });
            let worker = worker::Worker::new(number, shared, driver, store, records.transpose()?);
            server.shared.workers_running.fetch_add(1, SeqCst);
            let cores = division.as_ref().map(|division| division.workers.clone());
            server.spawn_on(cores, format!("worker {number}"), move || worker.run())?;
        }
        for (number, (sources, bell)) in sources.into_iter().zip(&bells).enumerate() {
            if sources.is_empty() {
                continue;
            }
            let shared = Arc::clone(&server.shared);
            let store = shared.store.worker(u16::MAX).map_err(failed_store)?;
            let cores = division.as_ref().map(|division| division.validators.clone());
            if shared.settings.protect == Protect::Rbv {
                server.ship(sources, bell, store, plan.has_own_core, cores)?;
                continue;
            }
            let validator = Validator::new(shared, sources, Arc::clone(bell), store, plan.has_own_core);
            server.spawn_on(cores, format!("validator {number}"), move || validator.run())?;
        }
        let shared = Arc::clone(&server.shared);
        server.spawn("janitor".into(), move || janitor::run(&shared))?;
        // Only now, so that no client is told yes by a server that then doesn't start.
        let acceptor = Acceptor::new(Arc::clone(&server.shared), accepting)?;
        server.spawn("listener".into(), move || acceptor.run())?;
        Ok(server)
    }

    /// Starts what takes the place of validators where there is a replica.
    fn ship(
        &mut self,
        sources: Vec<Source>,
        bell: &Arc<Bell>,
        store: store::Worker,
        has_own_core: bool,
        cores: Option<Vec<Core>>,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let (caller, dialer) = replica::dialer(&shared.settings);
        let shipper = Shipper::new(shared, sources, Arc::clone(bell), store, has_own_core, caller)
            .map_err(Error::errno("cannot watch sockets"))?;
        self.spawn_on(cores.clone(), "shipper".into(), move || shipper.run())?;
        // A child runs where the thread does that starts it.
        let shared = Arc::clone(&self.shared);
        let is_stopping =
            move |shared: &Shared| shared.stop() != Stop::Not && shared.workers_running.load(SeqCst) == 0;
        self.spawn_on(cores, "dialer".into(), move || {
            dialer.run(|| replica::hello(&shared), || is_stopping(&shared));
        })
    }

    /// Who is to run where, if that is to be said: validators on cores that no worker uses.
    fn divide(&self, validators: usize) -> Option<Division> {
        let Shared { reaction, validations, .. } = &*self.shared;
        let workers = validations.len();
        if workers == 0 {
            return None;
        }
        reaction.topology().divide(&reaction.in_service(), workers, validators)
    }

    fn spawn_on(
        &mut self,
        cores: Option<Vec<Core>>,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.spawn(name, move || {
            if let Some(cores) = cores {
                shared.reaction.keep_to(&cores);
            }
            body();
        })
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let alarm = Alarm(Arc::clone(&self.shared));
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _alarm = alarm;
            body();
        });
        self.threads.push(thread.map_err(Error::system("cannot start a thread"))?);
        Ok(())
    }

    /// The addresses that memcached's protocols are spoken at.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses_where(|listener| listener.speaks != Speaks::Line)
    }

    /// The addresses that the line protocol is spoken at.
    pub fn line_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_where(|listener| listener.speaks == Speaks::Line)
    }

    fn addresses_where(&self, is_meant: impl Fn(&Listener) -> bool) -> Vec<SocketAddr> {
        let meant = self.shared.listeners.iter().filter(|listener| is_meant(listener));
        meant.filter_map(|listener| listener.address).collect()
    }

    /// What was compared so far; outlives the server.
    pub fn findings(&self) -> Findings {
        Findings { shared: Arc::clone(&self.shared) }
    }

    /// Tells somebody who sits in front of a terminal where the server is. Scripts and logs see what they see of
    /// memcached: nothing.
    fn greet(&self) {
        if std::io::stderr().is_terminal() {
            let places: Vec<String> = self.shared.listeners.iter().map(Listener::text).collect();
            let megabytes = self.shared.settings.memory_bytes >> 20;
            eprintln!("veracache: {megabytes} MB on {}; Ctrl-C stops it", places.join(", "));
        }
    }

    /// Stops, after sending the answers that were computed already, for a bounded time.
    pub fn stop(mut self) -> ExitReason {
        self.stop_threads();
        self.reason()
    }

    /// Waits until the server is asked to stop, by a client or by one of the signals, and stops.
    fn wait(mut self, signals: &Signals) -> Result<ExitReason, Error> {
        let failed = Error::errno("cannot wait for signals");
        self.main.watch_level(signals.fd(), 0).map_err(failed)?;
        let mut ready = Vec::new();
        while self.shared.stop() == Stop::Not {
            self.main.wait(None, &mut ready);
            while let Some(signal) = signals.next() {
                match signal {
                    Signal::Stop => self.shared.ask_to_stop(Stop::Soon),
                    Signal::StopGracefully => self.shared.ask_to_stop(Stop::Gracefully),
                    // There is nothing yet that can be read again.
                    Signal::Reload => {}
                }
            }
        }
        if self.stop_threads() { Ok(self.reason()) } else { Err(Error::new(Kind::Panicked)) }
    }

    /// Ends all threads; whether none of them had panicked.
    fn stop_threads(&mut self) -> bool {
        self.shared.ask_to_stop(Stop::Soon);
        let mut sound = true;
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            sound &= thread.join().is_ok();
        }
        sound
    }

    fn reason(&self) -> ExitReason {
        match self.shared.stop() {
            Stop::Gracefully => ExitReason::StoppedGracefully,
            Stop::Not | Stop::Soon => ExitReason::Stopped,
        }
    }
}

/// What a server's executions came to when they were compared.
pub struct Findings {
    shared: Arc<Shared>,
}

impl Findings {
    /// Executions that did not agree.
    pub fn disagreements(&self) -> u64 {
        let between_threads: u64 = self.shared.reaction.report().kinds.iter().sum();
        between_threads.max(self.shared.store.stats().disagreements)
    }

    /// Commands on user data that could have been validated, and those that were.
    pub fn validated(&self) -> (u64, u64) {
        let strata = self.shared.coverages.iter().flat_map(|coverage| &coverage.strata);
        let executed = strata.map(|stratum| stratum.executed.read()).sum();
        let tallies = self.shared.validations.iter().map(|validation| &validation.tally);
        let counted = tallies.flat_map(|tally| (0..STRATA).map(|at| tally.counted(guard::Stratum(at as u8))));
        (executed, counted.map(|counted| counted.validated).sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// Asks all threads to stop when the one that holds it panics: half a server would leave its clients waiting.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.ask_to_stop(Stop::Soon);
        }
    }
}

fn failed_store(error: store::Error) -> Error {
    Error::new(Kind::Store { error })
}

/// A worker's ring, with an end for it and an end for its validator.
fn records(
    shared: &Shared,
    number: usize,
    validation: &Validation,
    plan: &Plan,
    store: &mut store::Worker,
) -> Result<(Ledger, Source), Error> {
    let (writer, reader) = guard::ring(RING_LINES);
    shared.store.charge(RING_BYTES);
    let settings = &shared.settings;
    let bell = Arc::clone(&validation.bell);
    let patience = if settings.protect_sync { PATIENCE_SYNC } else { PATIENCE };
    let needs = store::Needs {
        hurry: Box::new(move || bell.hurry()),
        patience,
        order: settings.protect == Protect::Rbv,
    };
    let inspector = store.record_into(writer, needs).map_err(failed_store)?;
    let (confirmer, holder) = guard::watermark();
    let tally = validation.tally.clone();
    let recorder = Recorder::new(settings, plan, random_seed(), shared.started, tally);
    let holder = settings.protect_sync.then_some(holder);
    let ledger = Ledger::new(recorder, holder, Arc::clone(&validation.bell));
    let replayer = guard::Replayer::new(reader, confirmer);
    Ok((ledger, Source { worker: number, replayer, inspector }))
}

/// CPUs that this process may use.
fn available_cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn open_store(settings: &Settings, now: u32) -> Result<Arc<Store>, Error> {
    Store::new(StoreOptions {
        memory_bytes: settings.memory_bytes,
        item_bytes_max: settings.item_bytes_max,
        evict: settings.evict,
        seed: random_seed(),
        // Validators forget items, as workers do.
        workers_max: 2 * settings.threads.max(1) as usize,
        hash_power: settings.hash_power_initial,
        huge_pages: settings.large_pages,
        cas: settings.cas,
        sealed_flags: settings.checked_values.map_or(0, Announcement::mask),
        redundancy: settings.runs(),
        start_unix: now,
    })
    .map_err(|error| Error::new(Kind::Store { error }))
}

/// A number that a client cannot guess: the standard library's hash tables are keyed with one.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Runs a server as the whole process: limits, user, background, pid file, signals.
pub fn run(settings: Settings) -> Result<ExitReason, Error> {
    // First: whoever sees a port or a file of ours may send a signal.
    let signals = Signals::new().map_err(Error::system("cannot take signals"))?;
    let user = wanted_user(&settings)?;
    listener::allow_descriptors(&settings)?;
    if settings.coredumps {
        allow_coredumps()?;
    }
    let listeners = listener::bind_all(&settings)?;
    if let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        listener::write_ports(Path::new(&path), &listeners)?;
    }
    if settings.lock_memory
        && let Err(error) = sys::lock_memory()
    {
        eprintln!("warning: -k: failed to keep the memory resident: {error}");
    }
    if let Some((name, user)) = user {
        user.become_it().map_err(|error| Error::new(Kind::User { name, error }))?;
    }
    let failed = || Error::system("cannot go into the background");
    let background =
        settings.daemonize.then(|| sys::daemonize(settings.coredumps)).transpose().map_err(failed())?;
    let pidfile = PidFile::write(settings.pidfile.as_deref())?;
    let unix_socket = settings.unix_socket.clone();
    let server = Server::start_with(settings, listeners)?;
    if let Some(background) = background {
        background.ready().map_err(failed())?;
    }
    server.greet();
    let reason = server.wait(&signals);
    drop(pidfile);
    if let Some(path) = unix_socket {
        let _ = std::fs::remove_file(path);
    }
    reason
}

/// The user to become: only root can, so others' `-u` is no matter.
fn wanted_user(settings: &Settings) -> Result<Option<(String, User)>, Error> {
    match &settings.user {
        Some(name) if rustix::process::geteuid().is_root() => {
            let user = User::named(name).map_err(Error::system("cannot look up the user of -u"))?;
            match user {
                Some(user) => Ok(Some((name.clone(), user))),
                None => Err(Error::new(Kind::NoSuchUser { name: name.clone() })),
            }
        }
        _ => Ok(None),
    }
}

fn allow_coredumps() -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let unlimited = Rlimit { current: None, maximum: None };
    let maximum = getrlimit(Resource::Core).maximum;
    let within = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, within))
        .map_err(Error::errno("failed to ensure corefile creation"))
}

/// The file that tells the process id, while the server runs.
struct PidFile(Option<PathBuf>);

impl PidFile {
    fn write(path: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = path {
            // Whoever waits for the file must not find it empty.
            let mut unfinished = path.as_os_str().to_owned();
            unfinished.push(".tmp");
            std::fs::write(&unfinished, format!("{}\n", std::process::id()))
                .and_then(|()| std::fs::rename(&unfinished, path))
                .map_err(|error| Error::new(Kind::Write { path: path.to_owned(), error }))?;
        }
        Ok(PidFile(path.map(Path::to_owned)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
