//! memcached bytes to requests and replies, as pure functions over slices, for servers and clients.

#![forbid(unsafe_code)]

mod base64;
pub mod binary;
mod command;
mod encode;
mod keys;
pub mod line;
mod meta;
pub mod meta_reply;
mod number;
mod parse;
pub mod reply;
pub mod text;

pub use command::{
    Command, Debugtime, Direction, KEY_BYTES_MAX, MetaArith, MetaDelete, MetaGet, MetaSet, Options, Reject,
    Shutdown, Step, Store, Verb,
};
pub use encode::encode;
pub use keys::{Keys, is_text_key};
pub use meta::{FlagWords, KeySpace, MetaFlags, MetaKey, OPAQUE_BYTES_MAX};
pub use parse::{Payload, parse, payload};
