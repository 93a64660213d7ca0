//! Why an `xtask` command ended without success, and the exit status that says so.

use std::fmt;

/// The end of a command that did not succeed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line makes no sense: one line, exit status 2.
    Usage(String),
    /// The work was done and its result is bad, or it could not be done: exit status 1.
    Failed(String),
    /// As `Failed`, when what there is to say stands in the output already.
    Reported,
}

impl Error {
    /// The process's exit status for this error.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Failed(_) | Error::Reported => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(message) | Error::Failed(message) => f.write_str(message),
            Error::Reported => f.write_str("failed; see above"),
        }
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Error::Failed(message)
    }
}
