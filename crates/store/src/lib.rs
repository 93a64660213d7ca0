//! The cache engine: index, segments, expiry, eviction; operators written once.

mod answer;
mod draft;
mod error;
mod operator;
mod pin;
mod request;
mod stats;
mod store;
mod worker;

pub use answer::Answer;
pub use draft::Draft;
pub use error::Error;
pub use operator::{absolute, compute, is_alive};
pub use pin::Pinned;
pub use request::{
    Amend, Arith, Change, Delete, Digits, Direction, Effect, Env, Exptime, Fetch, NewCas, NewValue, Op, Put,
    PutMode, Request, Spec, Status, Token, View,
};
pub use stats::Stats;
pub use store::{Store, StoreOptions};
pub use worker::{Cursor, Hash, Worker};
