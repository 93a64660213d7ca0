//! The replica: greets a server, and does what it is sent until the connection ends. Then it knows nothing any more.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use store::{Store, StoreOptions};

use super::link::{Link, Lost};
use super::wire::{BadFrame, Counted, Fields, Frame, Hello, Refused, Tag, VERSION, Welcome};
use crate::error::Error;
use crate::sys;

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
            serve(socket, memory_bytes);
            Ok(())
        }
        Place::Listen(address) => {
            let failed = || Error::system("--listen: cannot listen there");
            let listener = listen(address).map_err(failed())?;
            let own = listener.local_addr().map_err(failed())?;
            tell(&format!("listening on {own}"));
            loop {
                let (stream, caller) =
                    listener.accept().map_err(Error::system("cannot accept connections"))?;
                if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                    let lost = serve(stream.into(), memory_bytes);
                    tell(&format!("the server at {caller} is gone: {lost}"));
                }
            }
        }
    }
}

fn listen(address: &str) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    TcpListener::bind(&addresses[..])
}

/// One line on standard error. Whoever reads it may be gone, which is no reason to stop.
fn tell(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("veracache: replica: {text}\n").as_bytes());
}

/// Is a server's replica until the connection ends; why it did.
fn serve(socket: OwnedFd, memory_bytes: Option<u64>) -> Lost {
    let mut link = Link::new(socket);
    match greet(&mut link, memory_bytes) {
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
    store: std::sync::Arc<Store>,
    counted: Counted,
    /// When the server was heard last.
    heard: Instant,
}

/// Hears the server's greeting and answers.
fn greet(link: &mut Link, memory_bytes: Option<u64>) -> Result<Session, Lost> {
    let hello = match link.ask(PATIENCE, || false, Hello::decode) {
        Err(Lost::Bad(_)) => return Err(Lost::Stranger),
        heard => heard?,
    };
    let memory_bytes = memory_bytes.unwrap_or(hello.memory_bytes);
    let mut answer = |refused| {
        Welcome { version: VERSION, refused, memory_bytes }.append(link.out());
        refused.map_or(Ok(()), |refused| Err(Lost::Refused(refused)))
    };
    if hello.version != VERSION {
        answer(Some(Refused::Version))?;
    }
    let options = StoreOptions {
        memory_bytes,
        item_bytes_max: hello.item_bytes_max,
        seed: crate::run::random_seed(),
        workers_max: 1,
        cas: hello.cas,
        sealed_flags: hello.sealed_flags,
        start_unix: hello.now,
        ..StoreOptions::default()
    };
    let Ok(store) = Store::new(options) else {
        answer(Some(Refused::Memory))?;
        return Err(Lost::Refused(Refused::Memory));
    };
    answer(None)?;
    link.agree(hello.body_max());
    Ok(Session { store, counted: Counted::default(), heard: Instant::now() })
}

impl Session {
    /// Takes what has arrived, does it, and answers; waits when there is nothing to do.
    fn turn(&mut self, link: &mut Link) -> Result<(), Lost> {
        link.send()?;
        if link.queued() < QUEUED_BYTES_MAX {
            let mut answers = Vec::new();
            while let Some(frame) = link.next()? {
                self.take(&frame, &mut answers)?;
                self.heard = Instant::now();
            }
            link.out().append(&mut answers);
            link.send()?;
            if link.receive()? > 0 {
                return Ok(());
            }
        }
        match PATIENCE.checked_sub(self.heard.elapsed()) {
            Some(left) => link.wait(left),
            None => return Err(Lost::Silent),
        }
        Ok(())
    }

    fn take(&mut self, frame: &Frame<'_>, answers: &mut Vec<u8>) -> Result<(), Lost> {
        match frame.tag {
            Tag::Ping => {
                let mut fields = Fields::new(frame.body);
                self.counted.ping = fields.u64()?;
                fields.end()?;
                let stats = self.store.stats();
                (self.counted.items, self.counted.evicted) = (stats.items, stats.evictions);
                self.counted.append(answers);
                Ok(())
            }
            _ => Err(BadFrame::Tag.into()),
        }
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
