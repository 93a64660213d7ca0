//! Answers that are altered in each way are called by the right name, and all others are let be.

use super::*;
use crate::oracle::{Put, Workload};

fn one(form: Form, key: &str, op: Op) -> Request {
    Request { keys: vec![key.as_bytes().into()], form, op, quiet: false, wants: Vec::new(), opaque: 7 }
}

fn get(keys: &str, with_cas: bool) -> Request {
    let mut request = one(Form::Classic, "", Op::Get { with_cas, touch: None });
    request.keys = keys.split(' ').map(|key| key.as_bytes().into()).collect();
    request
}

fn put(form: Form, mode: Mode, key: &str, value: &str) -> Request {
    let value = value.as_bytes().into();
    let put = Put {
        mode,
        value,
        flags: 5,
        exptime: 0,
        compare: None,
        vivify: None,
        invalidate: false,
        new_cas: None,
    };
    one(form, key, Op::Put(put))
}

fn set(key: &str, value: &str) -> Request {
    put(Form::Classic, Mode::Set, key, value)
}

fn cas(key: &str, value: &str) -> Request {
    let mut request = set(key, value);
    let Op::Put(put) = &mut request.op else { unreachable!("a put") };
    put.compare = Some(Compare::Last);
    request
}

fn incr(key: &str, delta: u64) -> Request {
    let op = Op::Count { up: true, delta, vivify: None, exptime: None, compare: None };
    one(Form::Classic, key, op)
}

fn delete(key: &str) -> Request {
    let op = Op::Delete { compare: None, invalidate: false, drop_value: false, exptime: None };
    one(Form::Classic, key, op)
}

fn mg(key: &str, wants: &str) -> Request {
    let op = Op::Fetch { touch: None, vivify: None, recache: None, bump: true };
    Request { wants: wants.into(), ..one(Form::Meta, key, op) }
}

fn touch(key: &str, exptime: i64) -> Request {
    one(Form::Classic, key, Op::Touch { exptime })
}

fn quiet(request: Request) -> Request {
    Request { quiet: true, ..request }
}

/// What a verdict is, in a word.
fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Correct => "correct".into(),
        Verdict::FalseMiss => "false miss".into(),
        Verdict::Refused => "refused".into(),
        Verdict::Wrong { kind, .. } => kind.to_string(),
    }
}

/// Commands that are answered correctly, then one that is answered in several ways.
fn check(rules: Rules, before: &[(Request, &str)], request: &Request, answers: &[(&str, &str)]) {
    let mut model = Model::new(rules);
    for (request, answer) in before {
        let sent = model.send(request.clone());
        let verdict = model.check(&sent, answer.as_bytes());
        assert!(!matches!(verdict, Verdict::Wrong { .. }), "{verdict:?}");
    }
    for (answer, expected) in answers {
        let mut model = model.clone();
        let sent = model.send(request.clone());
        let verdict = model.check(&sent, answer.as_bytes());
        assert_eq!(word(&verdict), *expected, "{answer:?}: {verdict:?}");
    }
}

fn strictly(before: &[(Request, &str)], request: &Request, answers: &[(&str, &str)]) {
    check(Rules::default(), before, request, answers);
}

#[test]
fn values_are_what_was_written_last() {
    let before = [
        (set("a", "first"), "STORED\r\n"),
        (set("a", "second"), "STORED\r\n"),
        (set("b", "other key's"), "STORED\r\n"),
    ];
    strictly(
        &before,
        &get("a", false),
        &[
            ("VALUE a 5 6\r\nsecond\r\nEND\r\n", "correct"),
            ("END\r\n", "false miss"),
            ("SERVER_ERROR execution was not confirmed\r\n", "refused"),
            ("VALUE a 5 6\r\nsecomd\r\nEND\r\n", "value"),
            ("VALUE a 5 5\r\nsecon\r\nEND\r\n", "size"),
            ("VALUE a 5 0\r\n\r\nEND\r\n", "size"),
            ("VALUE a 4 6\r\nsecond\r\nEND\r\n", "flags"),
            ("VALUE a 5 5\r\nfirst\r\nEND\r\n", "stale"),
            ("VALUE a 5 11\r\nother key's\r\nEND\r\n", "foreign"),
            ("VALUE b 5 6\r\nsecond\r\nEND\r\n", "foreign"),
            ("VALUE a 5 6 9\r\nsecond\r\nEND\r\n", "status"),
            ("VALUE a 5 6\r\nsecond\r\nEN\r\n", "protocol"),
            ("VALUE a 5 6\r\nsecond\r\nVALUE a 5 6\r\nsecond\r\nEND\r\n", "foreign"),
            ("STORED\r\n", "protocol"),
            ("ERROR\r\n", "status"),
            ("VALUE a 5 6\r\nsecond", "protocol"),
            ("", "protocol"),
        ],
    );
    strictly(
        &before,
        &get("a missing b", false),
        &[
            ("VALUE a 5 6\r\nsecond\r\nVALUE b 5 11\r\nother key's\r\nEND\r\n", "correct"),
            ("VALUE a 5 6\r\nsecond\r\nEND\r\n", "false miss"),
            ("VALUE b 5 11\r\nother key's\r\nVALUE a 5 6\r\nsecond\r\nEND\r\n", "foreign"),
            ("VALUE a 5 6\r\nsecond\r\nVALUE missing 5 6\r\nsecond\r\nEND\r\n", "foreign"),
            ("VALUE a 5 5\r\nfirst\r\nVALUE b 5 11\r\nother key's\r\nEND\r\n", "stale"),
        ],
    );
}

#[test]
fn what_is_gone_stays_away() {
    let gone = [(set("a", "first"), "STORED\r\n"), (delete("a"), "DELETED\r\n")];
    let answers = [
        ("END\r\n", "correct"),
        ("VALUE a 5 5\r\nfirst\r\nEND\r\n", "resurrected"),
        ("VALUE a 5 5\r\nthird\r\nEND\r\n", "value"),
    ];
    strictly(&gone, &get("a", false), &answers);
    let missed = [(set("a", "first"), "STORED\r\n"), (get("a", false), "END\r\n")];
    strictly(&missed, &get("a", false), &answers);
    let expired = [(set("a", "first"), "STORED\r\n"), (touch("a", -1), "TOUCHED\r\n")];
    strictly(&expired, &get("a", false), &answers);
    // Who answers only what is confirmed may have said so of what was not.
    let confirms = Rules { confirms: true };
    check(
        confirms,
        &missed,
        &get("a", false),
        &[
            ("END\r\n", "correct"),
            ("VALUE a 5 5\r\nfirst\r\nEND\r\n", "correct"),
            ("VALUE a 5 5\r\nthird\r\nEND\r\n", "value"),
        ],
    );
}

#[test]
fn conditions_are_those_of_the_command() {
    let there = [(set("a", "first"), "STORED\r\n")];
    strictly(
        &there,
        &put(Form::Classic, Mode::Add, "a", "x"),
        &[
            ("NOT_STORED\r\n", "correct"),
            ("STORED\r\n", "false miss"),
            ("EXISTS\r\n", "status"),
            ("NS\r\n", "status"),
        ],
    );
    strictly(
        &there,
        &put(Form::Meta, Mode::Replace, "a", "x"),
        &[("HD\r\n", "correct"), ("NS\r\n", "false miss"), ("EX\r\n", "status"), ("STORED\r\n", "protocol")],
    );
    strictly(&there, &set("a", "x"), &[("STORED\r\n", "correct"), ("NOT_STORED\r\n", "status")]);
    strictly(&there, &delete("a"), &[("DELETED\r\n", "correct"), ("NOT_FOUND\r\n", "false miss")]);
    strictly(&[], &delete("a"), &[("NOT_FOUND\r\n", "correct"), ("DELETED\r\n", "status")]);
    strictly(
        &there,
        &incr("a", 1),
        &[
            ("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n", "correct"),
            ("NOT_FOUND\r\n", "false miss"),
            ("1\r\n", "status"),
        ],
    );
    let joined = [(set("a", "1"), "STORED\r\n"), (put(Form::Classic, Mode::Append, "a", "2"), "STORED\r\n")];
    strictly(&joined, &incr("a", 3), &[("15\r\n", "correct"), ("4\r\n", "counter"), ("16\r\n", "counter")]);
}

#[test]
fn a_version_has_one_cas_id() {
    let shown = [(set("a", "first"), "STORED\r\n"), (get("a", true), "VALUE a 5 5 11\r\nfirst\r\nEND\r\n")];
    strictly(
        &shown,
        &get("a", true),
        &[
            ("VALUE a 5 5 11\r\nfirst\r\nEND\r\n", "correct"),
            ("VALUE a 5 5 10\r\nfirst\r\nEND\r\n", "cas"),
            ("VALUE a 5 5\r\nfirst\r\nEND\r\n", "status"),
        ],
    );
    strictly(&shown, &cas("a", "x"), &[("STORED\r\n", "correct"), ("EXISTS\r\n", "status")]);
    let [before, after] = [shown[0].clone(), shown[1].clone()];
    let replaced = [before, after, (set("a", "second"), "STORED\r\n")];
    strictly(
        &replaced,
        &get("a", true),
        &[
            ("VALUE a 5 6 12\r\nsecond\r\nEND\r\n", "correct"),
            ("VALUE a 5 6 11\r\nsecond\r\nEND\r\n", "cas"),
            ("VALUE a 5 5 11\r\nfirst\r\nEND\r\n", "stale"),
        ],
    );
    strictly(
        &replaced,
        &cas("a", "x"),
        &[("EXISTS\r\n", "correct"), ("STORED\r\n", "status"), ("NOT_FOUND\r\n", "false miss")],
    );
}

#[test]
fn meta_answers_tell_what_was_asked() {
    let there = [(set("a", "first"), "STORED\r\n")];
    strictly(
        &there,
        &mg("a", "vfsctkOhl"),
        &[
            ("VA 5 f5 s5 c3 t-1 ka O7 h0 l0\r\nfirst\r\n", "correct"),
            ("EN ka O7\r\n", "false miss"),
            ("VA 5 f6 s5 c3 t-1 ka O7 h0 l0\r\nfirst\r\n", "flags"),
            ("VA 5 f5 s4 c3 t-1 ka O7 h0 l0\r\nfirst\r\n", "size"),
            ("VA 5 f5 s5 c0 t-1 ka O7 h0 l0\r\nfirst\r\n", "cas"),
            ("VA 5 f5 s5 c3 t0 ka O7 h0 l0\r\nfirst\r\n", "time"),
            ("VA 5 f5 s5 c3 t-1 kb O7 h0 l0\r\nfirst\r\n", "foreign"),
            ("VA 5 f5 s5 c3 t-1 ka O6 h0 l0\r\nfirst\r\n", "protocol"),
            ("VA 5 f5 s5 c3 t-1 ka O7 h2 l0\r\nfirst\r\n", "status"),
            ("VA 5 f5 s5 c3 t-1 ka O7 h0 l9999\r\nfirst\r\n", "time"),
            ("VA 5 f5 s5 c3 t-1 ka O7 h0 l0 W\r\nfirst\r\n", "status"),
            ("HD f5 s5 c3 t-1 ka O7 h0 l0\r\n", "status"),
            ("VA 5 f5 s5 c3 t-1 ka O7 h0 l0\r\nfirsu\r\n", "value"),
        ],
    );
    let kept = [(set("a", "first"), "STORED\r\n"), (touch("a", 100), "TOUCHED\r\n")];
    strictly(
        &kept,
        &mg("a", "t"),
        &[("HD t100\r\n", "correct"), ("HD t-1\r\n", "time"), ("HD t80\r\n", "time")],
    );
    strictly(
        &there,
        &quiet(mg("b", "v")),
        &[("MN\r\n", "correct"), ("EN\r\nMN\r\n", "status"), ("\r\n", "protocol")],
    );
}

#[test]
fn what_was_refused_may_have_been_done() {
    let refusal = "SERVER_ERROR execution was not confirmed\r\n";
    let before = [(set("a", "first"), "STORED\r\n"), (set("a", "second"), refusal)];
    strictly(
        &before,
        &get("a", false),
        &[
            ("VALUE a 5 5\r\nfirst\r\nEND\r\n", "correct"),
            ("VALUE a 5 6\r\nsecond\r\nEND\r\n", "correct"),
            ("END\r\n", "correct"),
            ("VALUE a 5 5\r\nfirsx\r\nEND\r\n", "value"),
        ],
    );
    let settled =
        [before[0].clone(), before[1].clone(), (get("a", false), "VALUE a 5 5\r\nfirst\r\nEND\r\n")];
    strictly(&settled, &get("a", false), &[("VALUE a 5 6\r\nsecond\r\nEND\r\n", "stale")]);
    // Above the limit nothing is known, until it is.
    let mut many: Vec<(Request, &str)> = vec![(set("a", "0"), "STORED\r\n")];
    many.extend((0..2 * CANDIDATES_MAX).map(|number| (set("a", &format!("v{number}")), refusal)));
    let any = [("VALUE a 5 3\r\nany\r\nEND\r\n", "correct")];
    strictly(&many, &get("a", false), &any);
    many.push((set("a", "sure"), "STORED\r\n"));
    strictly(&many, &get("a", false), &[("VALUE a 5 3\r\nany\r\nEND\r\n", "size")]);
}

#[test]
fn what_is_not_answered_may_not_have_been_done() {
    let silent = quiet(put(Form::Classic, Mode::Append, "a", "x"));
    let before = [(set("a", "first"), "STORED\r\n"), (silent, "MN\r\n")];
    let old = "VALUE a 5 5\r\nfirst\r\nEND\r\n";
    strictly(&before, &get("a", false), &[(old, "stale"), ("VALUE a 5 6\r\nfirstx\r\nEND\r\n", "correct")]);
    check(Rules { confirms: true }, &before, &get("a", false), &[(old, "correct")]);
}

/// A wrong answer is told each time, until the key is written again.
#[test]
fn wrong_answers_are_all_counted() {
    let mut model = Model::new(Rules::default());
    let answers = ["STORED\r\n", "6\r\n", "7\r\n", "7\r\n", "STORED\r\n", "6\r\n"];
    let requests = [set("a", "5"), incr("a", 1), incr("a", 2), get("a", false), set("a", "5"), incr("a", 1)];
    let verdicts: Vec<String> = requests
        .into_iter()
        .zip(answers)
        .map(|(request, answer)| {
            let sent = model.send(request);
            word(&model.check(&sent, answer.as_bytes()))
        })
        .collect();
    assert_eq!(verdicts, ["correct", "correct", "counter", "protocol", "correct", "correct"]);
}

#[test]
fn a_workload_follows_from_its_seed() {
    let bytes = |seed| {
        let model = Model::new(Rules::default());
        let commands = Workload::new(seed, 2_000).map(|request| model.send(request).bytes().to_vec());
        commands.collect::<Vec<_>>().concat()
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
    let all = bytes(3);
    let has = |verb: &str| all.windows(verb.len()).any(|window| window == verb.as_bytes());
    let verbs = "set add replace append prepend cas get gets gat gats delete incr decr touch mg ms md ma mn";
    for verb in verbs.split(' ') {
        assert!(has(&format!("\n{verb}")), "{verb} is never sent");
    }
}
