//! The two sides of an operator: two pieces of machine code that must compute the same.
//!
//! Compilers remove repeated work and merge identical functions, and two executions that became one confirm nothing.
//! So each side is entered through a function of its own that is never inlined and holds an `asm!` comment of its own:
//! the text keeps the two from being merged, and as the compiler has to assume that the assembly does something, no
//! call can be dropped or replaced by the result of another. This is the one file of the crate that holds `unsafe`.

use crate::operator::Operator;

/// Which of an operator's two sets of routines is used. There are two: [`Primary`] and [`Diverse`].
pub trait Side: sealed::Sealed {
    /// Whether this is [`Diverse`].
    const IS_DIVERSE: bool;

    /// Executes the operator through this side's own entry; every call is an execution of its own.
    fn enter<'a, O: Operator>(operator: &O, input: &O::Input<'a>, env: &O::Env) -> O::Outcome<'a>;
}

/// The fastest routines; the first execution uses them.
#[derive(Clone, Copy, Debug)]
pub struct Primary;

/// Other routines for the same results: executions that confirm use them.
#[derive(Clone, Copy, Debug)]
pub struct Diverse;

mod sealed {
    /// Two sides are what the executors know how to tell apart.
    pub trait Sealed {}
    impl Sealed for super::Primary {}
    impl Sealed for super::Diverse {}
}

impl Side for Primary {
    const IS_DIVERSE: bool = false;

    #[inline(never)]
    fn enter<'a, O: Operator>(operator: &O, input: &O::Input<'a>, env: &O::Env) -> O::Outcome<'a> {
        let (input, env) = (opaque!("primary", input), opaque!("primary", env));
        operator.execute::<Self>(input, env)
    }
}

impl Side for Diverse {
    const IS_DIVERSE: bool = true;

    #[inline(never)]
    fn enter<'a, O: Operator>(operator: &O, input: &O::Input<'a>, env: &O::Env) -> O::Outcome<'a> {
        let (input, env) = (opaque!("diverse", input), opaque!("diverse", env));
        operator.execute::<Self>(input, env)
    }
}

/// The same reference, of which the compiler no longer knows where it leads.
///
/// Without that, arguments that are constants at every call could be propagated into both sides and computed once,
/// by the compiler.
macro_rules! opaque {
    ($side:literal, $reference:expr) => {{
        #[cfg(not(miri))]
        {
            let reference = $reference;
            let mut pointer: *const _ = reference;
            // SAFETY: the assembly is a comment: it changes no register, flag or memory, and leaves the stack alone. That
            // it claims to read and write the pointer and (by the absence of `nomem` and `pure`) memory only forbids
            // the compiler to assume anything across it.
            unsafe {
                std::arch::asm!(
                    concat!("/* guard side: ", $side, " {pointer} */"),
                    pointer = inout(reg) pointer,
                    options(nostack, preserves_flags)
                );
            }
            // SAFETY: `pointer` was made from a reference, which the comment above left as it was; so it is aligned,
            // not null, and valid for as long as `reference` is. `same` gives the result that lifetime and type.
            same(reference, unsafe { &*pointer })
        }
        // The interpreter executes no assembly. It doesn't merge functions either.
        #[cfg(miri)]
        std::hint::black_box($reference)
    }};
}
use opaque;

/// `second`, with the lifetime and type of `first`.
#[cfg(not(miri))]
#[inline(always)]
fn same<'a, T>(_first: &'a T, second: &'a T) -> &'a T {
    second
}
