//! What a cache should answer: a workload over every command on user data, and a model that judges each answer.
//!
//! One connection sends the commands, and nobody else uses their keys. So the model knows what each key holds, but for
//! what a cache may always do, which is to forget. See [`Verdict`] for what an answer can be.

mod answer;
mod apply;
mod client;
mod model;
mod request;
mod workload;

pub use answer::Kind;
pub use client::{Broken, Client, Tally};
pub use model::{Model, Rules, Sent, Verdict};
pub use request::{Bytes, Compare, Form, Framing, Mode, Op, Put, Request};
pub use workload::{Scope, Workload};
