//! memcached bytes to requests and replies, as pure functions over slices, for servers and clients.
//!
//! Nothing here has a socket, a store, a clock or a state: a parser looks at the unread bytes of a connection and says
//! what is at their front and how many of them it takes; an encoder appends to the bytes to be sent. What comes out of
//! a parser borrows from the bytes that went in, so nothing is copied, and nothing is allocated.
//!
//! | bytes | server | client |
//! |---|---|---|
//! | text, classic and meta | [`parse`], [`payload`]; [`text`], [`meta_reply`] | [`encode`]; [`reply`] |
//! | binary | [`binary::parse`]; [`binary::success`] and others | [`binary::encode`]; [`binary::parse_reply`] |
//! | line protocol | [`line::parse`]; [`line::value`], [`line::Object`] | – |
//! | a value's own checksum | [`checked`] | [`checked`] |
//!
//! * What is understood, what is refused, with which text, and what is dropped behind it follows memcached 1.6.45 byte
//!   for byte. `testdata/README.md` lists where it does not, and why.
//! * Every parser is a function of the bytes alone: less of them give the same result or none yet. What has to be kept
//!   while there is none has a limit.
//! * Parsing again from the start when more bytes have come costs a second look at one line, and saves every state
//!   between two looks. Lines are short; for those that are not, limits are.
//!
//! ```
//! use protocol::{Command, Options, Payload, Step, parse, payload, text};
//!
//! let unread = b"set greeting 0 0 5\r\nhello\r\nget greeting\r\n";
//! let Step::Command { command: Command::Store(store), used } = parse(unread, &Options::default()) else {
//!     panic!("a storage command");
//! };
//! assert_eq!((store.key, store.len), (&b"greeting"[..], 5));
//!
//! let Payload::Complete { value, used: more } = payload(&unread[used..], store.len) else {
//!     panic!("the payload is here");
//! };
//! let Step::Command { command: Command::Get { mut keys, .. }, .. } = parse(&unread[used + more..], &Options::default())
//! else {
//!     panic!("a get");
//! };
//!
//! let mut out = Vec::new();
//! text::line(text::STORED, &mut out);
//! text::value(keys.next().unwrap(), store.flags, value, None, &mut out);
//! text::line(text::END, &mut out);
//! assert_eq!(out, b"STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n");
//! ```

#![forbid(unsafe_code)]

pub mod base64;
pub mod binary;
pub mod checked;
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
