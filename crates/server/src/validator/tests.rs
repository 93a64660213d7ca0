//! That validation works: healthy executions agree whatever they are, and planted faults are found.

mod bench;
mod commands;
mod faults;
mod programs;
mod stalls;
mod sync;
