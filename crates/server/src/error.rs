//! Why a server does not start, or does not go on.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Which flag an address comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flag {
    Port,
    Listen,
    LinePort,
    UnixSocket,
}

/// Why a server does not start or go on, with what to do about it.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    /// An address can't be listened on.
    Listen { address: String, flag: Flag, error: io::Error },
    /// A name is not known.
    Resolve { host: String, error: io::Error },
    /// A file can't be written.
    Write { path: PathBuf, error: io::Error },
    /// There is no such user.
    NoSuchUser { name: String },
    /// The process may not become that user.
    User { name: String, error: io::Error },
    /// The process may not have that many descriptors.
    Descriptors { wanted: u64, allowed: u64 },
    /// A thread ended by a panic, which it has described on standard error.
    Panicked,
    /// The store can't be had.
    Store { error: store::Error },
    /// Something the system has refused that has no better explanation.
    System { what: &'static str, error: io::Error },
}

impl Error {
    pub(crate) fn new(kind: Kind) -> Self {
        Error(kind)
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Error(Kind::System { what, error })
    }

    pub(crate) fn errno(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Error(Kind::System { what, error: error.into() })
    }

    /// Whether somebody else has the address.
    pub fn is_address_in_use(&self) -> bool {
        matches!(&self.0, Kind::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse)
    }

    /// The exit code memcached has for it (sysexits.h).
    pub fn exit_code(&self) -> u8 {
        match self.0 {
            Kind::Listen { .. } | Kind::Resolve { .. } | Kind::Descriptors { .. } => 71,
            Kind::NoSuchUser { .. } => 67,
            Kind::User { .. } => 71,
            Kind::Write { .. } => 73,
            Kind::Panicked => 70,
            Kind::Store { .. } | Kind::System { .. } => 71,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Listen { address, flag, error } if error.kind() == io::ErrorKind::AddrInUse => {
                let advice = match flag {
                    Flag::Port => "choose another port with -p, or -p -1 for any",
                    Flag::Listen => "choose another port in -l",
                    Flag::LinePort => "choose another port with --line-port, or --line-port -1 for any",
                    Flag::UnixSocket => "choose another file with -s",
                };
                write!(f, "cannot listen on {address}: another program has it; {advice}")
            }
            Kind::Listen { address, error, .. } => write!(f, "cannot listen on {address}: {error}"),
            Kind::Resolve { host, error } => write!(f, "cannot listen on {host}: no such address ({error})"),
            Kind::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Kind::NoSuchUser { name } => {
                write!(f, "can't find the user {name} to switch to; give another with -u")
            }
            Kind::User { name, error } => write!(f, "failed to assume identity of user {name}: {error}"),
            Kind::Descriptors { wanted, allowed } => write!(
                f,
                "failed to set rlimit for open files: {wanted} are needed and {allowed} allowed; \
                 start as root, raise the limit, or ask for fewer connections with -c"
            ),
            Kind::Store { error } => {
                write!(f, "cannot have the memory asked for: {error}; ask for less with -m")
            }
            Kind::Panicked => f.write_str("a thread has panicked; please report what it said"),
            Kind::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
