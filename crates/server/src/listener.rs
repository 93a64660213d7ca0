//! The sockets that connections come from, and the thread that accepts them.
//!
//! There are as many connections as `-c` allows at most. Above that a connection is told so and closed; without
//! `maxconns_fast` it waits in the kernel's queue, as it does when the process has no descriptor left.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::connection::{Newcomer, Speaks};
use crate::driver::{Driver, Ready};
use crate::error::{Error, Flag, Kind};
use crate::settings::{Binding, Listen, Port, Settings};
use crate::shared::{Shared, Stop};

/// While nothing is accepted, how long until that is tried again; memcached waits as long.
const PAUSE: Duration = Duration::from_millis(10);

/// Connections accepted before the other listeners have their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 64;

/// Descriptors the process needs besides connections: listeners, files, a few per worker.
const DESCRIPTORS_EXTRA: u64 = 64;

/// One socket that connections come from.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// What a connection from here speaks.
    pub(crate) speaks: Speaks,
    /// The address it is bound to; `None` for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    /// The path of a Unix socket.
    pub(crate) path: Option<PathBuf>,
}

impl Listener {
    /// The address as memcached writes it.
    pub(crate) fn text(&self) -> String {
        match (&self.address, &self.path) {
            (Some(address), _) => address_text(*address),
            (None, Some(path)) => format!("unix:{}", path.display()),
            (None, None) => "<null>".into(),
        }
    }
}

/// An address as memcached writes it.
pub(crate) fn address_text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format!("tcp:{address}"),
        SocketAddr::V6(address) => format!("tcp6:{address}"),
    }
}

/// Opens everything the settings ask for.
pub(crate) fn bind_all(settings: &Settings) -> Result<Vec<Listener>, Error> {
    let everywhere = [Listen { host: None, port: None, binding: None, tag: None }];
    let hosts = if settings.listen.is_empty() { &everywhere[..] } else { &settings.listen };
    let mut listeners = Vec::new();
    if let Some(path) = &settings.unix_socket {
        listeners.push(bind_unix(path, settings)?);
    } else {
        for listen in hosts {
            let port = listen.port.map_or(settings.tcp_port, Port::Fixed);
            let speaks = Speaks::from(listen.binding.unwrap_or(settings.binding));
            bind_tcp(listen, port, speaks, settings, &mut listeners)?;
        }
    }
    for listen in hosts {
        bind_tcp(listen, settings.line_port, Speaks::Line, settings, &mut listeners)?;
    }
    Ok(listeners)
}

impl From<Binding> for Speaks {
    fn from(binding: Binding) -> Self {
        match binding {
            Binding::Auto => Speaks::Unknown,
            Binding::Ascii => Speaks::Text,
            Binding::Binary => Speaks::Binary,
        }
    }
}

/// Opens a port on all addresses of a host. One address is enough to go on with, as with memcached.
fn bind_tcp(
    listen: &Listen,
    port: Port,
    speaks: Speaks,
    settings: &Settings,
    listeners: &mut Vec<Listener>,
) -> Result<(), Error> {
    let mut number = match port {
        Port::Off => return Ok(()),
        Port::Any => 0,
        Port::Fixed(number) => number,
    };
    let addresses: Vec<SocketAddr> = match &listen.host {
        None => vec![(Ipv4Addr::UNSPECIFIED, number).into(), (Ipv6Addr::UNSPECIFIED, number).into()],
        Some(host) => (host.as_str(), number)
            .to_socket_addrs()
            .map_err(|error| Error::new(Kind::Resolve { host: host.clone(), error }))?
            .collect(),
    };
    let flag = match speaks {
        Speaks::Line => Flag::LinePort,
        _ if listen.port.is_some() => Flag::Listen,
        _ => Flag::Port,
    };
    let mut first_error = None;
    let before = listeners.len();
    for mut address in addresses {
        address.set_port(number);
        match bind_address(address, speaks, settings) {
            Ok(listener) => {
                // The other address family gets the same port if it can be had.
                number = listener.address.map_or(number, |bound| bound.port());
                listeners.push(listener);
            }
            Err(error) => {
                let error = error.into();
                first_error.get_or_insert(Kind::Listen { address: address.to_string(), flag, error });
            }
        }
    }
    match first_error {
        Some(error) if listeners.len() == before => Err(Error::new(error)),
        _ => Ok(()),
    }
}

fn bind_address(address: SocketAddr, speaks: Speaks, settings: &Settings) -> rustix::io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Accepted sockets inherit these.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, settings.backlog.min(i32::MAX as u32) as i32)?;
    let bound = net::getsockname(&socket)?;
    let address = SocketAddr::try_from(bound).unwrap_or(address);
    Ok(Listener { socket, speaks, address: Some(address), path: None })
}

/// Opens a Unix socket. A socket of that name is replaced, as a dead server leaves one behind (memcached, too, does not
/// ask whether somebody still listens there); anything else of that name is left alone.
fn bind_unix(path: &Path, settings: &Settings) -> Result<Listener, Error> {
    let refused = |error: Errno| {
        let (address, flag) = (path.display().to_string(), Flag::UnixSocket);
        Error::new(Kind::Listen { address, flag, error: error.into() })
    };
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refused)?;
    let address = net::SocketAddrUnix::new(path).map_err(refused)?;
    // The mode has to be right from the first moment, so it is the mask that is changed and not the file.
    let mask = rustix::process::umask(Mode::from_bits_truncate(!settings.unix_mask & 0o777));
    let bound = net::bind(&socket, &address);
    rustix::process::umask(mask);
    bound.map_err(refused)?;
    net::listen(&socket, settings.backlog.min(i32::MAX as u32) as i32).map_err(refused)?;
    let speaks = Speaks::from(settings.binding);
    Ok(Listener { socket, speaks, address: None, path: Some(path.to_owned()) })
}

/// Tells the ports in the file that tests and tools ask for with `MEMCACHED_PORT_FILENAME`.
pub(crate) fn write_ports(path: &Path, listeners: &[Listener]) -> Result<(), Error> {
    let failed = |error| Error::new(Kind::Write { path: path.to_owned(), error });
    let mut text = Vec::new();
    for listener in listeners {
        let Some(address) = listener.address else { continue };
        let kind = if listener.speaks == Speaks::Line { "LINE" } else { "TCP" };
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        writeln!(text, "{kind} {family}: {}", address.port()).map_err(failed)?;
    }
    // Whoever waits for the file must not find half of it.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".lck");
    std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, path)).map_err(failed)
}

/// Makes the process allowed to have as many descriptors as the settings need.
pub(crate) fn allow_descriptors(settings: &Settings) -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = u64::from(settings.conn_limit) + DESCRIPTORS_EXTRA + 4 * u64::from(settings.threads);
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.current.unwrap_or(u64::MAX);
    if allowed >= wanted {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    let raised = Rlimit { current: Some(wanted), maximum };
    let within = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, within)
        .or_else(|_| setrlimit(Resource::Nofile, raised))
        .map_err(|_| Error::new(Kind::Descriptors { wanted, allowed: limit.maximum.unwrap_or(allowed) }))
}

/// The thread that accepts connections.
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    driver: Driver,
    paused_since: Option<Instant>,
}

impl Acceptor {
    /// Watches all listeners with a driver whose waker is `shared.listening`.
    pub(crate) fn new(shared: Arc<Shared>, driver: Driver) -> Result<Self, Error> {
        let acceptor = Acceptor { shared, driver, paused_since: None };
        acceptor.watch().map_err(Error::errno("cannot watch the listening sockets"))?;
        Ok(acceptor)
    }

    fn watch(&self) -> rustix::io::Result<()> {
        for (number, listener) in self.shared.listeners.iter().enumerate() {
            self.driver.watch_level(&listener.socket, number as u64)?;
        }
        Ok(())
    }

    /// Accepts until the server stops.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        while self.shared.stop() == Stop::Not {
            self.driver.wait(self.paused_since.map(|_| PAUSE), &mut ready);
            if self.paused_since.is_some() {
                self.resume();
                continue;
            }
            for Ready { token, .. } in &ready {
                self.accept(*token as usize);
            }
        }
    }

    fn accept(&mut self, number: usize) {
        let shared = Arc::clone(&self.shared);
        let listener = &shared.listeners[number];
        for _ in 0..ACCEPTED_AT_ONCE_MAX {
            let full = self.is_full();
            if full && !shared.settings.conn_limit_fast {
                return self.pause();
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match net::accept_with(&listener.socket, flags) {
                Ok(socket) if full => {
                    shared.accepting.rejected.up();
                    let text = b"ERROR Too many open connections\r\n";
                    let _ = net::send(&socket, text, net::SendFlags::NOSIGNAL);
                }
                Ok(socket) => {
                    shared.accepting.connections.up();
                    self.hand_over(socket, number);
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => return self.pause(),
                Err(Errno::AGAIN) => return,
                // The client has gone again; the next one is waiting.
                Err(_) => {}
            }
        }
    }

    /// memcached counts its listeners and keeps one place free.
    fn is_full(&self) -> bool {
        let used = self.shared.connections() as usize + self.shared.listeners.len();
        used >= self.shared.settings.conn_limit.saturating_sub(1).max(1) as usize
    }

    /// Gives a connection to the worker with the fewest.
    fn hand_over(&self, socket: OwnedFd, listener: usize) {
        let posts = &self.shared.posts;
        let fewest = posts.iter().min_by_key(|post| post.connections.load(Relaxed));
        let post = fewest.expect("a server has at least one worker");
        if self.shared.admin.verbosity() > 0 {
            let kind = self.shared.listeners[listener].speaks.words();
            eprintln!("<{} new {kind} client connection.", socket.as_raw_fd());
        }
        post.send(Newcomer { socket, listener });
    }

    /// Lets new connections wait in the kernel's queue.
    fn pause(&mut self) {
        if self.paused_since.is_none() {
            self.paused_since = Some(Instant::now());
            self.shared.accepting.paused.store(true, Relaxed);
            self.shared.accepting.pauses.up();
            for listener in &self.shared.listeners {
                self.driver.forget(&listener.socket);
            }
        }
    }

    /// Takes new connections again, if there is room and a descriptor for at least one.
    fn resume(&mut self) {
        if self.is_full() || rustix::io::dup(&self.shared.listeners[0].socket).is_err() {
            return;
        }
        let Some(since) = self.paused_since.take() else { return };
        self.shared.accepting.paused_us.add(since.elapsed().as_micros() as u64);
        self.shared.accepting.paused.store(false, Relaxed);
        if self.watch().is_err() {
            self.pause();
        }
    }
}
