//! Executes an operator with one set of routines on both sides, several times, and damages one execution on request.
//!
//! `sides RUNS` is silent but for the outcome; `sides RUNS N` flips a bit of execution N and shows the disagreement.
//! With `RUNS` 1 nobody compares. The test of the optimised binary builds this program: here nothing but the library keeps
//! the two sides apart.

use std::cell::Cell;
use std::process::ExitCode;

use guard::{Digest, Operator, Repeated, Side, Site, direct};

/// Interest over some years, in cents.
struct Interest {
    executed: Cell<u32>,
    /// Which execution is damaged, counted from 1; 0 for none.
    damaged: u32,
}

impl Operator for Interest {
    type Input<'a> = u64;
    type Env = u32;
    type Outcome<'a> = u64;

    #[inline(always)]
    fn execute<'a, S: Side>(&self, cents: &Self::Input<'a>, years: &u32) -> Self::Outcome<'a> {
        self.executed.set(self.executed.get() + 1);
        let grown = (0..*years).fold(*cents, |cents, _| cents + cents / 33);
        if self.executed.get() == self.damaged { grown ^ 16 } else { grown }
    }

    #[inline(always)]
    fn digest<S: Side>(&self, outcome: &u64) -> Digest {
        Digest(*outcome)
    }
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u8>());
    let (Some(Ok(runs)), damaged) = (numbers.next(), numbers.next().and_then(Result::ok).unwrap_or(0)) else {
        eprintln!("Usage: sides RUNS [N]");
        return ExitCode::from(2);
    };
    let interest = Interest { executed: Cell::new(0), damaged: damaged.into() };
    let (cents, years) = (&10_000, &20);
    let outcome = match Repeated::new(runs) {
        None => Some(direct(&interest, cents, years)),
        Some(repeated) => {
            let repeat = repeated.run(&interest, cents, years, Site::default());
            if let Some(disagreement) = repeat.disagreement() {
                println!("{disagreement}");
            }
            repeat.outcome()
        }
    };
    println!("{} cents after {} executions", outcome.unwrap_or(0), interest.executed.get());
    ExitCode::SUCCESS
}
