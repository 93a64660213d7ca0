//! Sockets, workers, settings, statistics: the only crate that knows both bytes and the store.

mod admin;
mod bell;
mod binary;
mod clock;
mod connection;
mod counters;
mod coverage;
mod driver;
mod dump;
mod error;
mod execute;
mod integrity;
mod janitor;
mod line;
mod listener;
mod meta;
mod output;
mod placement;
mod reaction;
mod recorder;
mod replay;
pub mod replica;
mod run;
mod session;
pub mod settings;
mod shadow;
mod shared;
mod state_file;
mod strata;
mod subject;
mod sys;
mod text;
mod validator;
mod worker;

pub use error::Error;
pub use run::{ExitReason, Findings, Server, run};
