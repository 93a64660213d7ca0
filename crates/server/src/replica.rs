//! A second copy of the state in another process: every command is executed there as well, and the results compared.
//!
//! At the server:
//! * [`shipper`]: a thread that takes the place of validators; [`standing`], what everybody may know of it.
//! * [`line`]: its connection to the replica. [`crew`]: what it does with records.
//! * [`parcel`]: records, and what belongs to them.
//! * [`dial`]: starting the replica or calling it, and trying again.
//!
//! At the replica:
//! * [`service`]: a process that does nothing else.
//! * [`streams`]: records that wait for their turn.
//! * [`mirror`]: its state, and what follows from it.
//!
//! Between them: [`wire`], the frames, and [`link`], the socket.

mod crew;
mod dial;
mod line;
mod link;
mod mirror;
mod parcel;
mod service;
mod shipper;
mod standing;
mod streams;
#[cfg(test)]
mod tests;
mod wire;

use protocol::checked::Announcement;

use crate::settings::Settings;
use crate::shared::Shared;

use dial::{Caller, Dialer, Whereabouts};
use wire::{Hello, VERSION};

pub(crate) use mirror::{Made, Mirror, Occasion};
pub use service::{Listening, Place, run};
pub(crate) use shipper::Shipper;
pub(crate) use standing::{Report, Standing};

/// Both ends of what gets the replica that the settings ask for.
pub(crate) fn dialer(settings: &Settings) -> (Caller, Dialer) {
    dial::dialer(match (&settings.replica, &settings.replica_program) {
        (Some(address), _) => Whereabouts::Host { address: address.clone() },
        (None, Some(program)) => Whereabouts::Child { program: program.clone() },
        (None, None) => Whereabouts::own_child(),
    })
}

/// What is said to a replica first.
pub(crate) fn hello(shared: &Shared) -> Hello {
    let Shared { settings, store, posts, .. } = shared;
    Hello {
        version: VERSION,
        memory_bytes: settings.memory_bytes,
        item_bytes_max: settings.item_bytes_max,
        streams: posts.len() as u16,
        cas: settings.cas,
        start_unix: store.start_unix(),
        checked_flags: settings.checked_values.map_or(0, Announcement::mask),
        slabs: (settings.slabs.factor, settings.slabs.chunk_bytes_min, settings.slabs.chunk_bytes_max),
    }
}
