//! What a suite's tests came to, and the ways in which peers print it.

use super::SuiteCount;

/// The end of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// Left out by the peer, which says why.
    Skipped(String),
    /// Failed, as a data file says it must: the reason given there.
    Different(String),
}

/// One test of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
}

/// All tests of a suite, with whatever else went wrong.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tests: Vec<Test>,
    pub(crate) problems: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// Adds this outcome's numbers to a suite's count.
    pub(crate) fn count_into(self, count: &mut SuiteCount) {
        for test in self.tests {
            match test.verdict {
                Verdict::Passed => count.passed += 1,
                Verdict::Different(_) => {
                    count.passed += 1;
                    count.differences += 1;
                }
                Verdict::Skipped(_) => count.skipped += 1,
                Verdict::Failed => count.failures.push(test.name),
            }
        }
        count.failures.extend(self.problems);
        count.notes.extend(self.notes);
    }

    /// Takes in another outcome whose tests are told apart by `prefix`.
    pub(crate) fn absorb(&mut self, prefix: &str, other: Outcome) {
        self.tests.extend(
            other.tests.into_iter().map(|test| Test { name: format!("{prefix}: {}", test.name), ..test }),
        );
        self.problems.extend(other.problems.into_iter().map(|problem| format!("{prefix}: {problem}")));
        self.notes.extend(other.notes.into_iter().map(|note| format!("{prefix}: {note}")));
    }

    fn failed_count(&self) -> usize {
        self.tests.iter().filter(|test| test.verdict == Verdict::Failed).count()
    }
}

/// Reads the Test Anything Protocol: a missing or broken plan is a problem, and so is an exit status that the tests do not explain.
pub(crate) fn tap(output: &str, succeeded: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let mut plan = None;
    for line in output.lines() {
        if let Some(rest) = line.strip_prefix("1..") {
            let (number, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
            plan = number.trim().parse::<usize>().ok();
            if plan == Some(0) {
                outcome.problems.push(format!("the whole file was left out: {directive}"));
            }
        } else if let Some(reason) = line.strip_prefix("Bail out!") {
            outcome.problems.push(format!("bailed out:{reason}"));
        } else if let Some(test) = tap_test(line) {
            outcome.tests.push(test);
        }
    }
    match plan {
        None => outcome.problems.push(format!("ended without a plan after {} tests", outcome.tests.len())),
        Some(plan) if plan != outcome.tests.len() => {
            outcome.problems.push(format!("ran {} of {plan} planned tests", outcome.tests.len()));
        }
        Some(_) => {}
    }
    if !succeeded && outcome.failed_count() == 0 && outcome.problems.is_empty() {
        outcome.problems.push("all tests passed, and yet it ended with a failure".into());
    }
    outcome
}

fn tap_test(line: &str) -> Option<Test> {
    let (passed, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest[..digits].parse().ok()?;
    let text = rest[digits..].trim();
    let text = text.strip_prefix("- ").unwrap_or(text);
    let (name, skipped) = match text.split_once("# skip") {
        Some((name, reason)) => (name.trim(), Some(reason.trim().to_string())),
        None => (text, None),
    };
    let verdict = match (passed, skipped) {
        (true, None) => Verdict::Passed,
        (true, Some(reason)) => Verdict::Skipped(reason),
        (false, _) => Verdict::Failed,
    };
    Some(Test { number, name: format!("{number} {name}").trim_end().to_string(), verdict })
}

/// Reads what `pytest -v` prints: `FILE::NAME VERDICT [ n%]`.
pub(crate) fn pytest(output: &str, succeeded: bool) -> Outcome {
    named_verdicts(output, succeeded, |line| {
        let (name, rest) = line.split_once(' ')?;
        let name = name.split_once("::")?.1;
        let verdict = match rest.split_whitespace().next()? {
            "PASSED" => Verdict::Passed,
            "FAILED" | "ERROR" => Verdict::Failed,
            "SKIPPED" => Verdict::Skipped(rest.to_string()),
            _ => return None,
        };
        Some((name.to_string(), verdict))
    })
}

/// Reads what `go test -v` prints: `--- PASS: NAME (0.00s)`, indented for a test within a test.
pub(crate) fn go_test(output: &str, succeeded: bool) -> Outcome {
    named_verdicts(output, succeeded, |line| {
        let (verdict, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        let name = rest.split_whitespace().next()?.to_string();
        let verdict = match verdict {
            "PASS" => Verdict::Passed,
            "FAIL" => Verdict::Failed,
            "SKIP" => Verdict::Skipped(rest.to_string()),
            _ => return None,
        };
        Some((name, verdict))
    })
}

/// Reads what `memccapable` prints: `NAME   [pass]`.
pub(crate) fn memccapable(output: &str, succeeded: bool) -> Outcome {
    named_verdicts(output, succeeded, |line| {
        let (name, verdict) = line.trim_end().strip_suffix(']')?.rsplit_once('[')?;
        let verdict = match verdict {
            "pass" => Verdict::Passed,
            "FAIL" => Verdict::Failed,
            other => Verdict::Skipped(other.to_string()),
        };
        Some((name.trim().to_string(), verdict))
    })
}

fn named_verdicts(
    output: &str,
    succeeded: bool,
    read: impl Fn(&str) -> Option<(String, Verdict)>,
) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, verdict) in output.lines().filter_map(read) {
        outcome.tests.push(Test { number: outcome.tests.len() + 1, name, verdict });
    }
    if !succeeded && outcome.failed_count() == 0 {
        outcome.problems.push("no test failed, and yet it ended with a failure".into());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcome: Outcome, passed: usize, failed: &[&str], skipped: usize, problems: &[&str]) {
        let count =
            |wanted: fn(&Verdict) -> bool| outcome.tests.iter().filter(|test| wanted(&test.verdict)).count();
        let names: Vec<&str> = outcome
            .tests
            .iter()
            .filter(|test| test.verdict == Verdict::Failed)
            .map(|test| test.name.as_str())
            .collect();
        assert_eq!(count(|verdict| *verdict == Verdict::Passed), passed, "{outcome:?}");
        assert_eq!(names, failed);
        assert_eq!(count(|verdict| matches!(verdict, Verdict::Skipped(_))), skipped, "{outcome:?}");
        assert_eq!(outcome.problems, problems);
    }

    #[test]
    fn tap_is_counted() {
        check(tap("1..2\nok 1 - a\nok 2\n", true), 2, &[], 0, &[]);
        check(
            tap("t/x.t .. \n1..3\nok 1 - a\nnot ok 2 - b c\nok 3 # skip no TLS\nok\n", false),
            1,
            &["2 b c"],
            1,
            &[],
        );
        check(tap("ok 1\n1..1\n", true), 1, &[], 0, &[]);
    }

    #[test]
    fn tap_that_does_not_add_up_is_a_problem() {
        check(tap("1..2\nok 1\n", true), 1, &[], 0, &["ran 1 of 2 planned tests"]);
        check(tap("ok 1\n", true), 1, &[], 0, &["ended without a plan after 1 tests"]);
        check(tap("1..1\nok 1\n", false), 1, &[], 0, &["all tests passed, and yet it ended with a failure"]);
        check(tap("1..0 # SKIP no\n", true), 0, &[], 0, &["the whole file was left out: SKIP no"]);
        check(tap("1..1\nok 1\nBail out! x\n", false), 1, &[], 0, &["bailed out: x"]);
    }

    #[test]
    fn pytest_is_counted() {
        let output =
            "a.py::test_x[1] PASSED [ 5%]\na.py::test_y FAILED [ 9%]\na.py::test_z SKIPPED (no) [ 9%]\n";
        check(pytest(output, false), 1, &["test_y"], 1, &[]);
        check(
            pytest("no tests ran\n", false),
            0,
            &[],
            0,
            &["no test failed, and yet it ended with a failure"],
        );
    }

    #[test]
    fn go_is_counted() {
        let output = "=== RUN TestA\n--- PASS: TestA (0.1s)\n    --- FAIL: TestB/x (0.0s)\n--- SKIP: TestC (0.0s)\nok\n";
        check(go_test(output, false), 1, &["TestB/x"], 1, &[]);
    }

    #[test]
    fn memccapable_is_counted() {
        check(memccapable("ascii get   [pass]\nascii delete  [FAIL]\n", false), 1, &["ascii delete"], 0, &[]);
    }
}
