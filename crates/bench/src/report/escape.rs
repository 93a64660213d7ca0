//! Texts from files on their way into a page, a terminal or a link: none of them may become anything but text.

use std::fmt::Write;

use serde_json::Value;

/// How many characters of one text are kept.
const TEXT_LIMIT: usize = 2000;

/// Replaces what moves a terminal's cursor or turns the direction of writing, and cuts what is too long.
pub(super) fn clean(text: &str) -> String {
    let is_odd = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut kept: String = text
        .chars()
        .take(TEXT_LIMIT)
        .map(|character| if is_odd(character) { ' ' } else { character })
        .collect();
    if text.chars().nth(TEXT_LIMIT).is_some() {
        kept.push('…');
    }
    kept
}

/// [`clean`] for every text within a value. The depth is limited by whoever parsed it.
pub(super) fn clean_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(values) => values.iter_mut().for_each(clean_all),
        Value::Object(fields) => {
            let before = std::mem::take(fields);
            for (name, mut value) in before {
                clean_all(&mut value);
                fields.insert(clean(&name), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// For text and attribute values of HTML and SVG.
pub(super) fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// JSON that can stand in a script element: with no `<` there is no end of the element in it, and no comment.
pub(super) fn json_in_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// For a `data:` link.
pub(super) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 3 / 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~,".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// For a place of a Markdown table.
pub(super) fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(character);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// For a place of a file of comma-separated values. A text that a spreadsheet would take for a formula gets a quote.
pub(super) fn csv(text: &str) -> String {
    let is_formula =
        text.starts_with(['=', '+', '@']) || (text.starts_with('-') && text.parse::<f64>().is_err());
    let text = if is_formula { format!("'{text}") } else { text.to_string() };
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_but_text_remains() {
        let hostile = "</script><script>alert('1')</script>&\"\u{1b}[2J\u{202e}";
        let cleaned = clean(hostile);
        assert!(!cleaned.contains(['\u{1b}', '\u{202e}']));
        assert!(!html(&cleaned).contains(['<', '>', '"', '\'']));
        assert!(!json_in_html(&json!(hostile).to_string()).contains('<'));
        let back: String =
            serde_json::from_str(&json_in_html(&json!(hostile).to_string())).expect("still JSON");
        assert_eq!(back, hostile);
        assert!(percent(hostile).is_ascii());
        assert!(!percent(hostile).contains(['<', '"', '\'', ' ']));
        assert_eq!(markdown("a|b<c"), "a\\|b&lt;c");
        assert_eq!(csv("=1+1,\"x\""), "\"'=1+1,\"\"x\"\"\"");
        assert_eq!(csv("-1.5"), "-1.5");
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "é".repeat(TEXT_LIMIT + 1);
        assert_eq!(clean(&long).chars().count(), TEXT_LIMIT + 1);
        assert!(clean(&long).ends_with('…'));
        let mut value = json!({ "a\u{7}": ["b\u{7}", { "c": "\r\n" }] });
        clean_all(&mut value);
        assert_eq!(value, json!({ "a ": ["b ", { "c": "  " }] }));
    }
}
