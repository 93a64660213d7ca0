//! Who was wrong: a vote over further executions.
//!
//! Two executions that differ, A's `a1` and B's `b1`, say that somebody was wrong and not who. [`weigh`] says what to execute
//! next, until it can tell. It never executes anything itself: where core A is, and how to get work there, is the caller's
//! knowledge.

use crate::disagreement::{Disagreement, Kind};
use crate::operator::Digest;

/// What is known of a disagreement. Begin with [`Evidence::of`] and add what [`weigh`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The first execution on the first core, A.
    pub a1: Digest,
    /// The first execution on the second core, B.
    pub b1: Digest,
    /// A repetition on B by the diverse side, once it was made.
    pub b2: Option<Digest>,
    /// A repetition on A by the diverse side, once it was made.
    pub a2: Option<Digest>,
    /// An execution on a third core.
    pub c: Third,
    /// How the two cores did on problems whose answers were computed when the program was built.
    pub known_answers: KnownAnswers,
    /// What the checksum of the data concerned says.
    pub checksum: Checksum,
    /// Whether only the record was damaged, so that there is nothing to vote on.
    pub is_record_damaged: bool,
}

/// An execution on a third core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Third {
    /// Not yet tried.
    #[default]
    Untried,
    /// There is no third core.
    Missing,
    /// It came to this.
    Ran(Digest),
}

/// Known-answer tests on both cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KnownAnswers {
    /// Not yet tried.
    #[default]
    Untried,
    /// There are none that exercise this operator.
    Missing,
    /// Which cores passed.
    Ran {
        /// A did.
        a_passed: bool,
        /// B did.
        b_passed: bool,
    },
}

/// What an item's checksum, computed at publication, says about the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// There is no such data, or nobody looked.
    #[default]
    Unknown,
    /// It was right at publication and is wrong now.
    WrongNow,
    /// It confirms what A says.
    ForA,
    /// It confirms what B says.
    ForB,
}

/// How often a core is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It was wrong, and not in the same way when asked again.
    Intermittent,
    /// It is wrong in the same way each time.
    Persistent,
}

/// Who was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Core A, which executed first.
    CoreA(Fault),
    /// Core B, which confirmed. What A executed stands, if [`keeps`](Verdict::keeps) says so.
    CoreB(Fault),
    /// Neither core: what lay in memory has changed.
    MemoryAtRest,
    /// Neither core: the record was damaged on its way.
    RecordDamaged,
    /// It can't be told.
    Undecided,
}

/// What to find out next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Execute again on B, by the diverse side: [`Evidence::b2`].
    AgainOnB,
    /// Execute again on A, by the diverse side: [`Evidence::a2`].
    AgainOnA,
    /// Execute on a third core, or say that there is none: [`Evidence::c`].
    OnThird,
    /// Run the known-answer tests on both, or say that there are none: [`Evidence::known_answers`].
    KnownAnswers,
}

/// What the evidence amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weighed {
    /// More has to be known.
    Ask(Ask),
    /// It is decided.
    Decided(Verdict),
}

impl Evidence {
    /// What a disagreement says by itself.
    #[must_use]
    pub fn of(disagreement: &Disagreement) -> Self {
        Evidence {
            a1: disagreement.expected,
            b1: disagreement.found,
            b2: None,
            a2: None,
            c: Third::Untried,
            known_answers: KnownAnswers::Untried,
            checksum: Checksum::Unknown,
            is_record_damaged: disagreement.kind == Kind::Record,
        }
    }

    /// Has `find_out` answer what is asked until there is a verdict. It gets the evidence to put the answer into.
    ///
    /// An answer that is not given counts as the one that can't be had, so it ends after four questions at most.
    pub fn vote(mut self, mut find_out: impl FnMut(Ask, &mut Evidence)) -> (Verdict, Evidence) {
        loop {
            match weigh(&self) {
                Weighed::Decided(verdict) => return (verdict, self),
                Weighed::Ask(ask) => {
                    find_out(ask, &mut self);
                    match ask {
                        Ask::AgainOnB if self.b2.is_none() => return (Verdict::Undecided, self),
                        Ask::AgainOnA if self.a2.is_none() => return (Verdict::Undecided, self),
                        Ask::OnThird if self.c == Third::Untried => self.c = Third::Missing,
                        Ask::KnownAnswers if self.known_answers == KnownAnswers::Untried => {
                            self.known_answers = KnownAnswers::Missing;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Weighs what is known. `a1` and `b1` differ, and:
///
/// | | verdict |
/// |---|---|
/// | the data's checksum was right at publication and is wrong now | memory at rest |
/// | `b2 != b1` | core B, intermittent |
/// | `b2 == b1`, `a2 == b1` | core A, intermittent: it was wrong once |
/// | `b2 == b1`, `a2` is neither | core A, intermittent: it was wrong twice, differently |
/// | `b2 == b1`, `a2 == a1` | persistent, on A or B: a third core decides; else the known answers; else the data's checksum |
#[must_use]
pub fn weigh(evidence: &Evidence) -> Weighed {
    use Weighed::{Ask as Asks, Decided};
    let Evidence { a1, b1, .. } = *evidence;
    if evidence.is_record_damaged {
        return Decided(Verdict::RecordDamaged);
    }
    if evidence.checksum == Checksum::WrongNow {
        return Decided(Verdict::MemoryAtRest);
    }
    match evidence.b2 {
        None => return Asks(Ask::AgainOnB),
        Some(b2) if b2 != b1 => return Decided(Verdict::CoreB(Fault::Intermittent)),
        Some(_) => {}
    }
    match evidence.a2 {
        None => return Asks(Ask::AgainOnA),
        Some(a2) if a2 != a1 => return Decided(Verdict::CoreA(Fault::Intermittent)),
        Some(_) => {}
    }
    let (a_is_wrong, b_is_wrong) = (Verdict::CoreA(Fault::Persistent), Verdict::CoreB(Fault::Persistent));
    match evidence.c {
        Third::Untried => return Asks(Ask::OnThird),
        Third::Ran(c) if c == b1 => return Decided(a_is_wrong),
        Third::Ran(c) if c == a1 => return Decided(b_is_wrong),
        // A third opinion helps nobody.
        Third::Ran(_) | Third::Missing => {}
    }
    match evidence.known_answers {
        KnownAnswers::Untried => return Asks(Ask::KnownAnswers),
        KnownAnswers::Ran { a_passed: false, b_passed: true } => return Decided(a_is_wrong),
        KnownAnswers::Ran { a_passed: true, b_passed: false } => return Decided(b_is_wrong),
        KnownAnswers::Ran { .. } | KnownAnswers::Missing => {}
    }
    Decided(match evidence.checksum {
        Checksum::ForB => a_is_wrong,
        Checksum::ForA => b_is_wrong,
        Checksum::Unknown | Checksum::WrongNow => Verdict::Undecided,
    })
}

impl Verdict {
    /// Whether what A executed may stand: only where B is to blame, and something beside A itself says the same as A. An
    /// unstable B by itself confirms nothing.
    #[must_use]
    pub fn keeps(self, evidence: &Evidence) -> bool {
        match self {
            // Decided by a third core, known answers or the checksum, and A said the same twice.
            Verdict::CoreB(Fault::Persistent) => true,
            Verdict::CoreB(Fault::Intermittent) => {
                evidence.b2 == Some(evidence.a1) || evidence.checksum == Checksum::ForA
            }
            Verdict::CoreA(_) | Verdict::MemoryAtRest | Verdict::RecordDamaged | Verdict::Undecided => false,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::disagreement::{Mismatch, Site};

    const A: Digest = Digest(0xa);
    const B: Digest = Digest(0xb);
    const OTHER: Digest = Digest(0xff);

    fn disagreement(kind: Kind) -> Disagreement {
        Disagreement::new(Site::default(), Mismatch::new(kind, A, B), 1..=1)
    }

    /// What the cores say when they are asked, in the order of the questions.
    #[derive(Clone, Copy)]
    struct World {
        b2: Digest,
        a2: Digest,
        c: Third,
        known_answers: KnownAnswers,
        checksum: Checksum,
    }

    const WORLD: World = World {
        b2: B,
        a2: A,
        c: Third::Missing,
        known_answers: KnownAnswers::Missing,
        checksum: Checksum::Unknown,
    };

    fn check(world: World, expected: Verdict, keeps: bool, asked: &[Ask]) {
        let mut questions = Vec::new();
        let evidence = Evidence { checksum: world.checksum, ..Evidence::of(&disagreement(Kind::Outcome)) };
        let (verdict, evidence) = evidence.vote(|ask, evidence| {
            questions.push(ask);
            match ask {
                Ask::AgainOnB => evidence.b2 = Some(world.b2),
                Ask::AgainOnA => evidence.a2 = Some(world.a2),
                Ask::OnThird => evidence.c = world.c,
                Ask::KnownAnswers => evidence.known_answers = world.known_answers,
            }
        });
        assert_eq!((verdict, verdict.keeps(&evidence)), (expected, keeps));
        assert_eq!(questions, asked);
        // It ends as well when nobody answers.
        let (silent, _) = Evidence { checksum: world.checksum, ..Evidence::of(&disagreement(Kind::Outcome)) }
            .vote(|_, _| {});
        let is_at_rest = world.checksum == Checksum::WrongNow;
        assert_eq!(silent, if is_at_rest { Verdict::MemoryAtRest } else { Verdict::Undecided });
    }

    #[test]
    fn every_row_of_the_table() {
        use Ask::{AgainOnA, AgainOnB, KnownAnswers as Answers, OnThird};
        use Fault::{Intermittent, Persistent};
        let all = [AgainOnB, AgainOnA, OnThird, Answers];
        check(WORLD, Verdict::Undecided, false, &all);
        check(World { checksum: Checksum::WrongNow, ..WORLD }, Verdict::MemoryAtRest, false, &[]);
        check(World { b2: A, ..WORLD }, Verdict::CoreB(Intermittent), true, &[AgainOnB]);
        check(World { b2: OTHER, ..WORLD }, Verdict::CoreB(Intermittent), false, &[AgainOnB]);
        let for_a = Checksum::ForA;
        check(World { b2: OTHER, checksum: for_a, ..WORLD }, Verdict::CoreB(Intermittent), true, &[AgainOnB]);
        check(World { a2: B, ..WORLD }, Verdict::CoreA(Intermittent), false, &all[..2]);
        check(World { a2: OTHER, ..WORLD }, Verdict::CoreA(Intermittent), false, &all[..2]);
        check(World { c: Third::Ran(B), ..WORLD }, Verdict::CoreA(Persistent), false, &all[..3]);
        check(World { c: Third::Ran(A), ..WORLD }, Verdict::CoreB(Persistent), true, &all[..3]);
        check(World { c: Third::Ran(OTHER), ..WORLD }, Verdict::Undecided, false, &all);
        let known =
            |a_passed, b_passed| World { known_answers: KnownAnswers::Ran { a_passed, b_passed }, ..WORLD };
        check(known(false, true), Verdict::CoreA(Persistent), false, &all);
        check(known(true, false), Verdict::CoreB(Persistent), true, &all);
        check(known(true, true), Verdict::Undecided, false, &all);
        check(known(false, false), Verdict::Undecided, false, &all);
        check(World { checksum: Checksum::ForB, ..WORLD }, Verdict::CoreA(Persistent), false, &all);
        check(World { checksum: Checksum::ForA, ..WORLD }, Verdict::CoreB(Persistent), true, &all);
        check(
            World { checksum: Checksum::ForA, ..known(false, true) },
            Verdict::CoreA(Persistent),
            false,
            &all,
        );
    }

    #[test]
    fn a_damaged_record_needs_no_vote() {
        let (verdict, evidence) =
            Evidence::of(&disagreement(Kind::Record)).vote(|ask, _| panic!("{ask:?} was asked"));
        assert_eq!((verdict, verdict.keeps(&evidence)), (Verdict::RecordDamaged, false));
    }
}
