//! The answer as one JSON object.

use serde_json::{Map, Number, Value};

use super::answer::Answer;

/// Keys whose values are lists of cores: an array, also when it has one member or none.
const CORES: [&str; 3] = ["worker_cores", "validator_cores", "quarantined_cores"];

/// The highest number of a core that a range may name.
const CORE_MAX: u32 = 65_535;

/// Words of a disagreement that are numbers. All others are strings, whatever they look like: a digest may have no
/// letter among its digits, and so may a key.
const NUMBERS: [&str; 8] =
    ["bit", "core", "first_core", "second_core", "seq", "time", "value_bytes", "with_it"];

/// One object on one line, its keys sorted.
pub(super) fn object(answer: &Answer) -> String {
    let mut object = Map::new();
    for (key, text) in &answer.stats {
        let value = match key.as_str() {
            key if CORES.contains(&key) => cores(text).unwrap_or_else(|| text.as_str().into()),
            _ => number(text).map_or_else(|| text.as_str().into(), Value::Number),
        };
        object.insert(key.clone(), value);
    }
    if let Some(recent) = &answer.recent {
        object.insert("recent".into(), recent.iter().map(|line| disagreement(line)).collect());
    }
    Value::Object(object).to_string()
}

/// A decimal number as JSON has it, that loses nothing by being one.
fn number(text: &str) -> Option<Number> {
    if text.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'.')) {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    (text.contains('.') || !number.is_f64()).then_some(number)
}

/// `none`, `3`, `1,3` or `0-3,8`.
fn cores(text: &str) -> Option<Value> {
    let mut cores = Vec::new();
    if text != "none" {
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last > CORE_MAX || cores.len() > CORE_MAX as usize {
                return None;
            }
            cores.extend(first..=last);
        }
    }
    Some(cores.into())
}

/// The `name=value` pairs of a line; what stands between them is `text`.
fn disagreement(line: &str) -> Value {
    let mut object = Map::new();
    let mut text = Vec::new();
    for word in words(line) {
        match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                let number = if NUMBERS.contains(&name) { number(value) } else { None };
                object.insert(name.into(), number.map_or_else(|| value.into(), Value::Number));
            }
            _ => text.push(word),
        }
    }
    if !text.is_empty() {
        object.insert("text".into(), text.join(" ").into());
    }
    Value::Object(object)
}

/// Words between spaces. Quotes hold a word with spaces together; within them `\` takes what follows as it is.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => word.extend(letters.next()),
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stats: &[(&str, &str)], recent: Option<&[&str]>) -> Answer {
        Answer {
            stats: stats.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            recent: recent.map(|lines| lines.iter().map(|line| (*line).into()).collect()),
        }
    }

    #[test]
    fn values() {
        for (text, json) in [
            ("0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "\"18446744073709551616\""),
            ("-1", "-1"),
            ("0.9963", "0.9963"),
            ("0.000000", "0.0"),
            ("007", "\"007\""),
            ("1.2.3", "\"1.2.3\""),
            ("12e4", "\"12e4\""),
            (".5", "\".5\""),
            ("-", "\"-\""),
            ("", "\"\""),
            ("none", "\"none\""),
            ("a \"b\" \\", "\"a \\\"b\\\" \\\\\""),
        ] {
            assert_eq!(object(&answer(&[("key", text)], None)), format!("{{\"key\":{json}}}"));
        }
    }

    #[test]
    fn lists_of_cores() {
        for (text, json) in [
            ("none", "[]"),
            ("3", "[3]"),
            ("1,3", "[1,3]"),
            ("0-2,8", "[0,1,2,8]"),
            ("0-65536", "\"0-65536\""),
            ("unknown", "\"unknown\""),
            ("", "\"\""),
        ] {
            let expected = format!("{{\"quarantined_cores\":{json}}}");
            assert_eq!(object(&answer(&[("quarantined_cores", text)], None)), expected);
        }
    }

    #[test]
    fn keys_are_sorted_and_the_last_value_counts() {
        let stats = [("z", "1"), ("a:b", "x"), ("z", "2")];
        assert_eq!(object(&answer(&stats, Some(&[]))), r#"{"a:b":"x","recent":[],"z":2}"#);
    }

    #[test]
    fn disagreements() {
        for (line, json) in [
            (
                "kind=reply stratum=3 expected=0000000000000012 found=1234567890123456 first_core=0 seq=7-9 bit=?",
                r#"{"bit":"?","expected":"0000000000000012","first_core":0,"found":"1234567890123456","kind":"reply","seq":"7-9","stratum":"3"}"#,
            ),
            ("key=a%20b=c seq=7", r#"{"key":"a%20b=c","seq":7}"#),
            ("executions disagree: kind=reply =x", r#"{"kind":"reply","text":"executions disagree: =x"}"#),
            (r#"why="two \"words\"" kind=reply"#, r#"{"kind":"reply","why":"two \"words\""}"#),
            (r#"why="open"#, r#"{"why":"open"}"#),
            ("", "{}"),
        ] {
            assert_eq!(object(&answer(&[], Some(&[line]))), format!("{{\"recent\":[{json}]}}"));
        }
    }
}
