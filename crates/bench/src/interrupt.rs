//! Ctrl-C and SIGTERM: the first asks the command to stop and keep what it measured, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::Error;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on signals set a flag; a command calls it once, before it starts servers.
pub fn watch() -> Result<(), Error> {
    let requested = REQUESTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: a second signal finds the flag set.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(requested))
            .map_err(Error::io("watching for signals"))?;
        flag::register(signal, Arc::clone(requested)).map_err(Error::io("watching for signals"))?;
    }
    Ok(())
}

/// Whether somebody wants the command to stop.
pub fn is_requested() -> bool {
    REQUESTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
