//! Makes one instruction of a stopped thread go wrong.

use iced_x86::Instruction;

use super::code::{INSTRUCTION_BYTES_MAX, decode};
use super::fault::{Fault, Model, Target, general, load_base, writes_general, written_memory};
use super::tracee::{Stop, Tracee};
use super::vector::Places;
use crate::error::Error;

/// What became of the instruction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Applied {
    /// It went wrong.
    Changed,
    /// It wrote what it would have written anyway.
    Same,
    /// It ended the thread.
    Ended(Stop),
}

/// Executes the instruction at which the thread is stopped, wrongly.
pub fn apply(tracee: &mut Tracee, fault: &Fault, vectors: Places) -> Result<Applied, Error> {
    let mut before = tracee.registers()?;
    let mut bytes = [0; INSTRUCTION_BYTES_MAX];
    let count = tracee.read(before.rip, &mut bytes)?;
    let Some(instruction) = decode(&bytes[..count], before.rip) else {
        return Err(Error::Unavailable(format!("there is no instruction at {:x}", before.rip)));
    };
    if fault.model == Model::Skip {
        before.rip = instruction.next_ip();
        tracee.set_registers(before)?;
        return Ok(Applied::Changed);
    }
    let base = load_base(&instruction).filter(|_| fault.model == Model::Load);
    if let Some(number) = base {
        let word = general(&mut before, number);
        *word = word.wrapping_add_signed(fault.offset());
        tracee.set_registers(before)?;
    }
    let memory = written_memory(&instruction, &before);
    match tracee.step_over()? {
        Stop::Trap => {}
        stop => return Ok(Applied::Ended(stop)),
    }
    let is_changed = match (base, fault.target) {
        (Some(number), _) => repair_base(tracee, &instruction, fault, number)?,
        (None, Some(Target::Memory { .. })) => match memory {
            Some((address, bytes)) => spoil_memory(tracee, fault, address, bytes)?,
            None => false,
        },
        (None, Some(Target::Vector { number, bytes })) => {
            let mut state = tracee.extended_state()?;
            let mut value = vectors.read(&state, number, usize::from(bytes)).unwrap_or_default();
            let is_changed = fault.spoil(&mut value) && vectors.write(&mut state, number, &value);
            if is_changed {
                tracee.set_extended_state(&mut state)?;
            }
            is_changed
        }
        (None, _) => {
            let mut after = tracee.registers()?;
            let is_changed = fault.spoil_registers(&mut after);
            tracee.set_registers(after)?;
            is_changed
        }
    };
    Ok(if is_changed { Applied::Changed } else { Applied::Same })
}

/// The address was wrong for the one load only.
fn repair_base(tracee: &Tracee, instruction: &Instruction, fault: &Fault, number: u8) -> Result<bool, Error> {
    if !writes_general(instruction, number) {
        let mut after = tracee.registers()?;
        let word = general(&mut after, number);
        *word = word.wrapping_add_signed(-fault.offset());
        tracee.set_registers(after)?;
    }
    Ok(true)
}

/// Changes what lies in memory; whether that makes a difference.
pub fn spoil_memory(tracee: &Tracee, fault: &Fault, address: u64, len: usize) -> Result<bool, Error> {
    let mut value = vec![0; len];
    if tracee.read(address, &mut value)? != len {
        return Ok(false);
    }
    let is_changed = fault.spoil(&mut value);
    if is_changed {
        tracee.write(address, &value)?;
    }
    Ok(is_changed)
}
