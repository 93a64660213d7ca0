//! The cache engine: index, segments, expiry, eviction; operators written once.

mod operator;
mod request;

pub use operator::{absolute, compute, is_alive};
pub use request::{
    Amend, Arith, Change, Delete, Digits, Direction, Effect, Env, Exptime, Fetch, NewCas, NewValue, Op, Put,
    PutMode, Request, Spec, Status, Token, View,
};
