//! Known instructions: what they write, what they can suffer, and what becomes of registers and bytes.

use nix::libc::user_regs_struct;

use super::*;
use crate::inject::code::decode;

fn instruction(bytes: &[u8]) -> Instruction {
    decode(bytes, 0x1000).expect("an instruction")
}

fn registers() -> user_regs_struct {
    user_regs_struct {
        r15: 15,
        r14: 14,
        r13: 13,
        r12: 12,
        rbp: 5,
        rbx: 3,
        r11: 11,
        r10: 10,
        r9: 9,
        r8: 8,
        rax: 0xffff_ffff_ffff_0000,
        rcx: 1,
        rdx: 2,
        rsi: 0x2000,
        rdi: 0x3000,
        orig_rax: 0,
        rip: 0x1000,
        cs: 0,
        eflags: 0x246,
        rsp: 0x7000,
        ss: 0,
        fs_base: 0x10_0000,
        gs_base: 0,
        ds: 0,
        es: 0,
        fs: 0,
        gs: 0,
    }
}

const ARITHMETIC: u32 = 1 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 11;

#[test]
fn what_an_instruction_writes() {
    let rsp = Target::General { number: 4, shift: 0, bits: 64 };
    let cases: [(&str, &[u8], Vec<Target>); 11] = [
        ("mov eax, ebx", &[0x89, 0xd8], vec![Target::General { number: 0, shift: 0, bits: 32 }]),
        ("mov ah, bl", &[0x88, 0xdc], vec![Target::General { number: 0, shift: 8, bits: 8 }]),
        (
            "add r9, rcx",
            &[0x49, 0x01, 0xc9],
            vec![Target::General { number: 9, shift: 0, bits: 64 }, Target::Flags { mask: ARITHMETIC }],
        ),
        ("cmp rax, rcx", &[0x48, 0x39, 0xc8], vec![Target::Flags { mask: ARITHMETIC }]),
        ("movups [rdi+10h], xmm0", &[0x0f, 0x11, 0x47, 0x10], vec![Target::Memory { bytes: 16 }]),
        ("movdqa xmm9, xmm1", &[0x66, 0x44, 0x0f, 0x6f, 0xc9], vec![Target::Vector { number: 9, bytes: 16 }]),
        ("vpxor ymm1, ymm2, ymm3", &[0xc5, 0xed, 0xef, 0xcb], vec![Target::Vector { number: 1, bytes: 32 }]),
        ("mov [rsp+8], rax", &[0x48, 0x89, 0x44, 0x24, 0x08], vec![Target::Memory { bytes: 8 }]),
        ("push rbx", &[0x53], vec![rsp]),
        ("nop", &[0x90], vec![]),
        ("jne", &[0x75, 0x10], vec![]),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(targets(&instruction(bytes)), expected, "{name}");
    }
}

#[test]
fn what_an_instruction_can_suffer_from() {
    use Model::{Bit, Flag, Lane, Load, Mask, Skip, StuckAt0, StuckAt1};
    let cases: [(&str, &[u8], &[Model]); 6] = [
        ("jne", &[0x75, 0x10], &[Skip]),
        ("ret", &[0xc3], &[Bit, Mask, StuckAt0, StuckAt1]),
        ("cmp rax, rcx", &[0x48, 0x39, 0xc8], &[Skip, Flag]),
        ("mov eax, [rsi]", &[0x8b, 0x06], &[Bit, Mask, StuckAt0, StuckAt1, Skip, Load]),
        ("mov eax, [rsp]", &[0x8b, 0x04, 0x24], &[Bit, Mask, StuckAt0, StuckAt1, Skip]),
        ("movups xmm0, [rsi]", &[0x0f, 0x10, 0x06], &[Bit, Mask, StuckAt0, StuckAt1, Skip, Load, Lane]),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(models(&instruction(bytes)), expected, "{name}");
    }
}

fn fault(model: Model, target: Option<Target>, choice: u32) -> Fault {
    Fault { model, target, choice }
}

#[test]
fn registers_are_spoiled() {
    let eax = Some(Target::General { number: 0, shift: 0, bits: 32 });
    let ah = Some(Target::General { number: 0, shift: 8, bits: 8 });
    let flags = Some(Target::Flags { mask: ARITHMETIC });
    let cases = [
        (fault(Model::Bit, eax, 3), 0xffff_ffff_ffff_0008, 0x246, true),
        (fault(Model::Bit, eax, 35), 0xffff_ffff_ffff_0008, 0x246, true),
        (fault(Model::StuckAt0, eax, 3), 0xffff_ffff_ffff_0000, 0x246, false),
        (fault(Model::StuckAt0, eax, 16), 0xffff_ffff_fffe_0000, 0x246, true),
        (fault(Model::StuckAt1, eax, 16), 0xffff_ffff_ffff_0000, 0x246, false),
        (fault(Model::Mask, eax, 0), 0xffff_ffff_fffb_0081, 0x246, true),
        (fault(Model::Bit, ah, 0), 0xffff_ffff_ffff_0100, 0x246, true),
        (fault(Model::Flag, flags, 2), 0xffff_ffff_ffff_0000, 0x206, true),
        (fault(Model::Skip, None, 2), 0xffff_ffff_ffff_0000, 0x246, false),
    ];
    for (fault, rax, eflags, is_changed) in cases {
        let mut registers = registers();
        assert_eq!(fault.spoil_registers(&mut registers), is_changed, "{}", fault.words());
        assert_eq!(registers.rax, rax, "{}", fault.words());
        assert_eq!(registers.eflags, eflags, "{}", fault.words());
    }
}

#[test]
fn lanes_are_spoiled_alone() {
    let mut bytes = [0; 32];
    let xmm = Some(Target::Vector { number: 0, bytes: 32 });
    assert!(fault(Model::Lane, xmm, 10).spoil(&mut bytes));
    assert_eq!(bytes[8..12], MASK.to_le_bytes()[..4]);
    assert!(bytes[..8].iter().chain(&bytes[12..]).all(|byte| *byte == 0));
    assert!(!fault(Model::Bit, xmm, 1).spoil(&mut []));
}

/// A name, an instruction, and where and how much it writes.
type Store<'a> = (&'a str, &'a [u8], Option<(u64, usize)>);

#[test]
fn memory_that_is_written_is_found() {
    let cases: [Store<'_>; 4] = [
        ("movups [rdi+10h], xmm0", &[0x0f, 0x11, 0x47, 0x10], Some((0x3010, 16))),
        ("mov [rsi+rcx*8], al", &[0x88, 0x04, 0xce], Some((0x2008, 1))),
        ("mov fs:[0], rax", &[0x64, 0x48, 0x89, 0x04, 0x25, 0, 0, 0, 0], Some((0x10_0000, 8))),
        ("mov rax, [rsi]", &[0x48, 0x8b, 0x06], None),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(written_memory(&instruction(bytes), &registers()), expected, "{name}");
    }
}

#[test]
fn faults_are_drawn_that_fit() {
    let samples: [&[u8]; 4] = [&[0x89, 0xd8], &[0x48, 0x39, 0xc8], &[0x75, 0x10], &[0x0f, 0x10, 0x06]];
    let mut random = Random::new(1, 2);
    for bytes in samples {
        let instruction = instruction(bytes);
        for _ in 0..200 {
            let fault = Fault::draw(&instruction, None, &mut random).expect("a fault");
            assert!(models(&instruction).contains(&fault.model));
            assert!(fault.target.is_none_or(|target| targets(&instruction).contains(&target)));
            assert_eq!(fault.target.is_none(), matches!(fault.model, Model::Skip | Model::Load));
            assert!(!fault.words().is_empty());
        }
    }
    assert_eq!(Fault::draw(&instruction(&[0x75, 0x10]), Some(Model::Lane), &mut random), None);
}
