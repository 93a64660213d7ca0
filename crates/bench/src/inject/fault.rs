//! What goes wrong in one instruction: which of the things it writes, and how. Pure functions over registers and bytes.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, MemorySize, OpAccess, OpKind, Register, RflagsBits,
    UsedRegister,
};
use nix::libc::user_regs_struct;
use serde::{Deserialize, Serialize};

use super::random::Random;

/// The bits that a processor with a fault in several lines flips together; fixed, as faulty processors' masks are.
pub const MASK: u64 = 0x0000_2100_0004_0081;

/// How far beside a wrong load may read, in bytes.
const OFFSETS: [i64; 8] = [-64, -16, -8, -4, 4, 8, 16, 64];

/// Bytes of a vector register's lane, as a sick vector unit spoils them.
const LANE_BYTES: usize = 4;

/// How an instruction goes wrong.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// One bit of what it writes is flipped.
    Bit,
    /// [`MASK`] is flipped in what it writes.
    Mask,
    /// One bit of what it writes is 0.
    StuckAt0,
    /// One bit of what it writes is 1.
    StuckAt1,
    /// It is not executed.
    Skip,
    /// It reads memory beside what it should read.
    Load,
    /// One lane of a vector is flipped by [`MASK`].
    Lane,
    /// One flag of those it writes is flipped.
    Flag,
}

/// Every model, in the order of tables.
pub const MODELS: [Model; 8] = [
    Model::Bit,
    Model::Mask,
    Model::StuckAt0,
    Model::StuckAt1,
    Model::Skip,
    Model::Load,
    Model::Lane,
    Model::Flag,
];

impl Model {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Model::Bit => "bit",
            Model::Mask => "mask",
            Model::StuckAt0 => "stuck-at-0",
            Model::StuckAt1 => "stuck-at-1",
            Model::Skip => "skip",
            Model::Load => "load",
            Model::Lane => "lane",
            Model::Flag => "flag",
        }
    }
}

/// Something that an instruction writes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Target {
    /// A general register: its number as in machine code, and which bits of it.
    General {
        /// 0 is `rax`, 15 is `r15`.
        number: u8,
        /// The lowest bit that is written: 8 for `ah`.
        shift: u8,
        /// How many bits are written.
        bits: u8,
    },
    /// A vector register.
    Vector {
        /// 0 to 31.
        number: u8,
        /// How many bytes are written.
        bytes: u8,
    },
    /// Memory; where, is known when it is executed.
    Memory {
        /// How many bytes are written.
        bytes: u8,
    },
    /// Flags.
    Flags {
        /// Their bits.
        mask: u32,
    },
}

/// A fault: what will be done to an instruction when it is executed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// How it goes wrong.
    pub model: Model,
    /// What of it; none for models that concern the whole instruction.
    pub target: Option<Target>,
    /// Which bit, lane or flag of the target, or which of the offsets. Taken modulo how many there are.
    pub choice: u32,
}

/// What an instruction writes, flags and the instruction pointer apart from what they are to it.
pub fn targets(instruction: &Instruction) -> Vec<Target> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let mut targets: Vec<Target> = Vec::new();
    for used in info.used_registers() {
        if let Some(target) = register_target(instruction, used)
            && !targets.contains(&target)
        {
            targets.push(target);
        }
    }
    for used in info.used_memory() {
        let bytes = used.memory_size().size().min(64);
        // What a push or a call leaves on the stack is no operand, and counts as the stack pointer's.
        if writes(used.access()) && bytes > 0 && has_memory_operand(instruction) {
            let target = Target::Memory { bytes: u8::try_from(bytes).unwrap_or(64) };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    if flags(instruction) != 0 {
        targets.push(Target::Flags { mask: flags(instruction) });
    }
    targets
}

fn has_memory_operand(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|number| instruction.op_kind(number) == OpKind::Memory)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn register_target(instruction: &Instruction, used: &UsedRegister) -> Option<Target> {
    if !writes(used.access()) {
        return None;
    }
    // `mov eax, 1` writes all of rax, and a fault in the adder concerns the lower half.
    let named = (0..instruction.op_count())
        .filter(|number| instruction.op_kind(*number) == OpKind::Register)
        .map(|number| instruction.op_register(number))
        .find(|register| register.full_register() == used.register().full_register());
    let register = named.unwrap_or(used.register());
    if register.is_gpr() {
        let number = u8::try_from(register.full_register().number()).ok()?;
        let shift = if is_high_byte(register) { 8 } else { 0 };
        let bits = u8::try_from(register.size() * 8).ok()?;
        return Some(Target::General { number, shift, bits });
    }
    if register.is_vector_register() {
        let number = u8::try_from(register.number()).ok()?;
        return Some(Target::Vector { number, bytes: u8::try_from(register.size()).ok()? });
    }
    None
}

fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// The flags it writes that anybody looks at.
fn flags(instruction: &Instruction) -> u32 {
    let written = instruction.rflags_modified();
    let pairs = [
        (RflagsBits::CF, 1 << 0),
        (RflagsBits::PF, 1 << 2),
        (RflagsBits::ZF, 1 << 6),
        (RflagsBits::SF, 1 << 7),
        (RflagsBits::OF, 1 << 11),
    ];
    pairs.iter().filter(|(bit, _)| written & bit != 0).map(|(_, mask)| mask).sum()
}

/// Whether it reads memory at an address that a register gives.
fn has_load(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let reads = |access| {
        matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    has_memory_operand(instruction)
        && base(instruction).is_some()
        && factory.info(instruction).used_memory().iter().any(|used| reads(used.access()))
}

/// The general register that its memory operand begins with.
fn base(instruction: &Instruction) -> Option<u8> {
    let base = instruction.memory_base();
    let is_stack = matches!(base, Register::RSP | Register::ESP);
    (base.is_gpr() && !is_stack).then(|| u8::try_from(base.full_register().number()).ok())?
}

/// The models that an instruction can suffer from.
pub fn models(instruction: &Instruction) -> Vec<Model> {
    let targets = targets(instruction);
    let has = |is_meant: fn(&Target) -> bool| targets.iter().any(is_meant);
    let has_data = has(|target| !matches!(target, Target::Flags { .. }));
    let can_skip = !matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception
    );
    MODELS
        .into_iter()
        .filter(|model| match model {
            Model::Bit | Model::Mask | Model::StuckAt0 | Model::StuckAt1 => has_data,
            Model::Skip => can_skip,
            Model::Load => has_load(instruction),
            Model::Lane => has(|target| matches!(target, Target::Vector { .. })),
            Model::Flag => has(|target| matches!(target, Target::Flags { .. })),
        })
        .collect()
}

impl Fault {
    /// A fault that this instruction can suffer from; none for one that writes nothing and can't be left out.
    pub fn draw(instruction: &Instruction, only: Option<Model>, random: &mut Random) -> Option<Fault> {
        let mut models = models(instruction);
        models.retain(|model| only.is_none_or(|only| only == *model));
        let model = *random.pick(&models)?;
        let fits = |target: &Target| match model {
            Model::Flag => matches!(target, Target::Flags { .. }),
            Model::Lane => matches!(target, Target::Vector { .. }),
            Model::Skip | Model::Load => false,
            _ => !matches!(target, Target::Flags { .. }),
        };
        let targets: Vec<Target> = targets(instruction).into_iter().filter(fits).collect();
        Some(Fault { model, target: random.pick(&targets).copied(), choice: random.below_u32(1 << 16) })
    }

    /// Whether it concerns what is written to memory.
    pub fn is_of_memory(&self) -> bool {
        matches!(self.target, Some(Target::Memory { .. }))
    }

    /// Changes bytes of a target as the model says, the lowest first; whether that makes a difference.
    pub fn spoil(&self, bytes: &mut [u8]) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let before: Vec<u8> = bytes.to_vec();
        let bit = self.choice as usize % (bytes.len() * 8);
        let (byte, mask) = (bit / 8, 1_u8 << (bit % 8));
        match self.model {
            Model::Bit | Model::Flag => bytes[byte] ^= mask,
            Model::StuckAt0 => bytes[byte] &= !mask,
            Model::StuckAt1 => bytes[byte] |= mask,
            Model::Mask => flip_mask(&mut bytes[..before.len().min(8)]),
            Model::Lane => {
                let lanes = bytes.len().div_ceil(LANE_BYTES);
                let from = self.choice as usize % lanes * LANE_BYTES;
                let to = bytes.len().min(from + LANE_BYTES);
                flip_mask(&mut bytes[from..to]);
            }
            Model::Skip | Model::Load => {}
        }
        bytes != before
    }

    /// How far beside a load reads.
    pub fn offset(&self) -> i64 {
        OFFSETS[self.choice as usize % OFFSETS.len()]
    }

    /// Changes a general register or flags; whether that makes a difference.
    pub fn spoil_registers(&self, registers: &mut user_regs_struct) -> bool {
        match self.target {
            Some(Target::General { number, shift, bits }) => {
                let word = general(registers, number);
                let mut bytes = (*word >> shift).to_le_bytes();
                let is_changed = self.spoil(&mut bytes[..usize::from(bits / 8)]);
                let mask = if bits >= 64 { u64::MAX } else { ((1 << bits) - 1) << shift };
                *word = *word & !mask | u64::from_le_bytes(bytes) << shift & mask;
                is_changed
            }
            Some(Target::Flags { mask }) => {
                let set: Vec<u32> = (0..32).filter(|bit| mask >> bit & 1 == 1).collect();
                let Some(bit) = set.get(self.choice as usize % set.len().max(1)) else { return false };
                registers.eflags ^= 1 << bit;
                true
            }
            _ => false,
        }
    }

    /// In a few words, for people: `bit 17 of rax`.
    pub fn words(&self) -> String {
        let choice = self.choice as usize;
        match (self.model, self.target) {
            (Model::Skip, _) => "not executed".into(),
            (Model::Load, _) => format!("read {:+} bytes beside", self.offset()),
            (Model::Flag, Some(Target::Flags { mask })) => {
                let set: Vec<usize> = (0..32).filter(|bit| mask >> bit & 1 == 1).collect();
                let bit = set.get(choice % set.len().max(1)).copied().unwrap_or(0);
                format!("flag {} flipped", flag_name(bit))
            }
            (model, Some(target)) => {
                let (name, bytes) = described(target);
                match model {
                    Model::Mask => format!("mask {MASK:#x} flipped in {name}"),
                    Model::Lane => {
                        format!("lane {} of {name} flipped", choice % (bytes / LANE_BYTES).max(1))
                    }
                    _ => format!("bit {} of {name} {}", choice % (bytes.max(1) * 8), verb(model)),
                }
            }
            (model, None) => model.name().into(),
        }
    }
}

fn verb(model: Model) -> &'static str {
    match model {
        Model::StuckAt0 => "stuck at 0",
        Model::StuckAt1 => "stuck at 1",
        _ => "flipped",
    }
}

fn described(target: Target) -> (String, usize) {
    match target {
        Target::General { number, bits, .. } => {
            (GENERAL[usize::from(number % 16)].into(), usize::from(bits / 8))
        }
        Target::Vector { number, bytes } => {
            let kind = match bytes {
                0..=16 => "xmm",
                17..=32 => "ymm",
                _ => "zmm",
            };
            (format!("{kind}{number}"), usize::from(bytes))
        }
        Target::Memory { bytes } => ("the memory written".into(), usize::from(bytes)),
        Target::Flags { .. } => ("flags".into(), 4),
    }
}

fn flag_name(bit: usize) -> &'static str {
    match bit {
        0 => "CF",
        2 => "PF",
        6 => "ZF",
        7 => "SF",
        11 => "OF",
        _ => "?",
    }
}

const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

fn flip_mask(bytes: &mut [u8]) {
    for (byte, mask) in bytes.iter_mut().zip(MASK.to_le_bytes()) {
        *byte ^= mask;
    }
}

/// A general register by its number in machine code.
pub fn general(registers: &mut user_regs_struct, number: u8) -> &mut u64 {
    match number & 15 {
        0 => &mut registers.rax,
        1 => &mut registers.rcx,
        2 => &mut registers.rdx,
        3 => &mut registers.rbx,
        4 => &mut registers.rsp,
        5 => &mut registers.rbp,
        6 => &mut registers.rsi,
        7 => &mut registers.rdi,
        8 => &mut registers.r8,
        9 => &mut registers.r9,
        10 => &mut registers.r10,
        11 => &mut registers.r11,
        12 => &mut registers.r12,
        13 => &mut registers.r13,
        14 => &mut registers.r14,
        _ => &mut registers.r15,
    }
}

/// The register that a wrong load's address begins with, if the instruction has one.
pub fn load_base(instruction: &Instruction) -> Option<u8> {
    has_load(instruction).then(|| base(instruction)).flatten()
}

/// Whether it writes this general register.
pub fn writes_general(instruction: &Instruction, number: u8) -> bool {
    targets(instruction)
        .iter()
        .any(|target| matches!(target, Target::General { number: other, .. } if *other == number))
}

/// Where its memory operand that is written lies, and its length in bytes, by registers before it is executed. The
/// instruction must be decoded at the address it is executed at.
pub fn written_memory(instruction: &Instruction, registers: &user_regs_struct) -> Option<(u64, usize)> {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory().iter().find(|used| writes(used.access()))?.to_owned();
    let mut registers = *registers;
    let address = used.virtual_address(0, |register, _, _| {
        if register.is_gpr() {
            let number = u8::try_from(register.full_register().number()).ok()?;
            return Some(*general(&mut registers, number));
        }
        Some(match register {
            Register::FS => registers.fs_base,
            Register::GS => registers.gs_base,
            Register::RIP => registers.rip,
            _ => 0,
        })
    })?;
    let bytes = if used.memory_size() == MemorySize::Unknown { 1 } else { used.memory_size().size() };
    Some((address, bytes.clamp(1, 64)))
}

#[cfg(test)]
mod tests;
