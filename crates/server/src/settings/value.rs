//! The arguments of flags: numbers, sizes, ports.

use super::{Port, Refusal};

/// A whole number in a range. `what` begins the sentence that is shown when it is none.
pub(super) fn number(what: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Refusal> {
    match text.trim().parse::<u64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Refusal::value(format!(
            "{what} must be a number from {} to {}, not \"{text}\"",
            range.start(),
            range.end()
        ))),
    }
}

/// A number with a fraction for which `fits` holds; `limit` says in words when that is.
pub(super) fn fraction(
    what: &str,
    text: &str,
    limit: &str,
    fits: impl Fn(f64) -> bool,
) -> Result<f64, Refusal> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && fits(number) => Ok(number),
        _ => Err(Refusal::value(format!("{what} must be {limit}, not \"{text}\""))),
    }
}

/// A size in bytes: a number with one of the suffixes k, m, g, or a bare number of `unit`s.
pub(super) fn size(what: &str, text: &str, unit: u64) -> Result<u64, Refusal> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, unit),
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(|| {
        Refusal::value(format!("{what} must be a size such as 64, 512k, 64m or 2g, not \"{text}\""))
    })
}

/// A port: `0` for none, `-1` for one the system chooses.
pub(super) fn port(what: &str, text: &str) -> Result<Port, Refusal> {
    match text.trim() {
        "0" => Ok(Port::Off),
        "-1" => Ok(Port::Any),
        digits => digits.parse().map(Port::Fixed).map_err(|_| {
            Refusal::usage(format!(
                "ERROR: Invalid port number {digits}. {what} takes 1 to 65535, 0 for none, -1 for any free one."
            ))
        }),
    }
}
