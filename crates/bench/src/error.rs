//! Why a command of this crate ended without what it was asked for, and the exit code that says so.

use std::fmt;
use std::io;

/// What went wrong, in one line that says what to do next where there is something to do.
#[derive(Debug)]
pub enum Error {
    /// The command line asks for something that can't be.
    Usage(String),
    /// A server gave a wrong answer, or a check that the user asked for did not hold.
    Wrong(String),
    /// A server can't be started or reached, or went away.
    Unavailable(String),
    /// A file, a process or a socket of ours did not do what it must.
    Io(String, io::Error),
    /// Ctrl-C, or a signal to end.
    Interrupted,
}

impl Error {
    /// For `map_err`: what was being done, before the system's own words.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Error::Io(doing.into(), error)
    }

    /// 1 as `grep` and `diff`, 2 as the shell, 69 and 74 of sysexits.h, 130 as a process that SIGINT ended.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Wrong(_) => 1,
            Error::Usage(_) => 2,
            Error::Unavailable(_) => 69,
            Error::Io(..) => 74,
            Error::Interrupted => 130,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Wrong(text) | Error::Unavailable(text) => out.write_str(text),
            Error::Io(doing, error) => write!(out, "{doing}: {error}"),
            Error::Interrupted => out.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {}
