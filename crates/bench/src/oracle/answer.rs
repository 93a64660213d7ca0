//! An answer beside what should have been answered: the same bytes, or in which way they differ.

use std::fmt;

use protocol::reply::{self, Reply, ReplyFlags, Step};

use super::apply::{Expiry, Said, Token, Version, When};
use super::request::{Form, Op, Request, is_binary, write_key};

/// How far a server's clock of seconds may be from ours, in seconds.
const CLOCK_SECONDS_MAX: i64 = 3;

/// In which way an answer is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Some bytes of the value.
    Value,
    /// The value's length.
    Size,
    /// A number that was counted.
    Counter,
    /// The client's flags.
    Flags,
    /// The cas id: not that of the version, or that of another one.
    Cas,
    /// The time to live, or that of the last access.
    Time,
    /// Another key, or another key's value.
    Foreign,
    /// A value that was replaced.
    Stale,
    /// A value that was removed.
    Resurrected,
    /// Something else happened than was asked for: a condition, a recache token, an error for no reason.
    Status,
    /// No answer to the command.
    Protocol,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 11] = [
        Kind::Value,
        Kind::Size,
        Kind::Counter,
        Kind::Flags,
        Kind::Cas,
        Kind::Time,
        Kind::Foreign,
        Kind::Stale,
        Kind::Resurrected,
        Kind::Status,
        Kind::Protocol,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Value => "value",
            Kind::Size => "size",
            Kind::Counter => "counter",
            Kind::Flags => "flags",
            Kind::Cas => "cas",
            Kind::Time => "time",
            Kind::Foreign => "foreign",
            Kind::Stale => "stale",
            Kind::Resurrected => "resurrected",
            Kind::Status => "status",
            Kind::Protocol => "protocol",
        })
    }
}

/// What an answer tells that can't be known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) cas: Option<u64>,
}

/// What is known of the past of a key.
pub(super) struct Known<'a> {
    /// Whether a cas id was shown for the key before.
    pub(super) is_used: &'a dyn Fn(u64) -> bool,
    /// What a value was, if it is not what should have been shown.
    pub(super) origin: &'a dyn Fn(&[u8]) -> Option<Kind>,
    pub(super) when: When,
}

/// Compares the answer for one key, without the `mn` behind it, with what is said.
pub(super) fn compare(
    request: &Request,
    key: &[u8],
    said: &Said,
    answer: &[u8],
    known: &Known<'_>,
) -> Result<Learned, Kind> {
    let reply = match reply::parse(answer) {
        Step::Reply { reply, used } if used == answer.len() => Some(reply),
        _ if answer.is_empty() => None,
        _ => return Err(Kind::Protocol),
    };
    let shown = Shown::of(reply);
    let mut expected = Vec::with_capacity(answer.len());
    render(request, key, said, &shown, &mut expected);
    if expected != answer {
        return Err(kind(request, key, said, reply, known));
    }
    check_shown(request, said, &shown, known)
}

/// What stands in an answer and is taken over from there before it is compared, to be looked at by itself.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    cas: Option<u64>,
    ttl: Option<i64>,
    accessed_ago: Option<u64>,
    fetched: Option<u64>,
}

impl Shown {
    fn of(reply: Option<Reply<'_>>) -> Self {
        if let Some(Reply::Value { cas, .. }) = reply {
            return Shown { cas, ..Shown::default() };
        }
        let Some(flags) = reply.as_ref().and_then(flags) else { return Shown::default() };
        let ttl = flags.token(b't').and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        Shown { cas: flags.number(b'c'), ttl, accessed_ago: flags.number(b'l'), fetched: flags.number(b'h') }
    }
}

fn flags<'a>(reply: &Reply<'a>) -> Option<ReplyFlags<'a>> {
    match reply {
        Reply::MetaDone(flags)
        | Reply::MetaValue { flags, .. }
        | Reply::MetaMiss(flags)
        | Reply::NotStored(flags)
        | Reply::Exists(flags)
        | Reply::NotFound(flags) => Some(*flags),
        _ => None,
    }
}

fn check_shown(request: &Request, said: &Said, shown: &Shown, known: &Known<'_>) -> Result<Learned, Kind> {
    let (version, expiry) = match said {
        Said::Shown { version, expiry, .. } => (version, *expiry),
        Said::Counted(_, version) | Said::Done(Some(version)) => (version, version.expiry),
        _ => return Ok(Learned::default()),
    };
    if let Some(cas) = shown.cas {
        let is_right = version.cas.map_or(cas != 0 && !(known.is_used)(cas), |known| known == cas);
        if !is_right {
            return Err(Kind::Cas);
        }
    }
    let shows_time = request.form == Form::Meta && request.wants(b't');
    if shows_time && shown.ttl.is_some_and(|ttl| !fits(ttl, expiry, known.when)) {
        return Err(Kind::Time);
    }
    let run_s = known.when.latest_ms / 1000 + CLOCK_SECONDS_MAX;
    let was_accessed = |ago: u64| i64::try_from(ago).is_ok_and(|ago| ago <= run_s);
    if shown.accessed_ago.is_some_and(|ago| !was_accessed(ago)) {
        return Err(Kind::Time);
    }
    if shown.fetched.is_some_and(|fetched| fetched > 1) {
        return Err(Kind::Status);
    }
    Ok(Learned { cas: shown.cas })
}

fn fits(ttl: i64, expiry: Expiry, when: When) -> bool {
    let Some(expiry) = expiry else { return ttl == -1 };
    let least = (expiry.earliest_ms - when.latest_ms) / 1000 - CLOCK_SECONDS_MAX;
    let most = (expiry.latest_ms - when.earliest_ms) / 1000 + CLOCK_SECONDS_MAX;
    (least.max(0)..=most.max(0)).contains(&ttl)
}

/// Writes the answer as it should be, with what was shown where that can't be known.
fn render(request: &Request, key: &[u8], said: &Said, shown: &Shown, out: &mut Vec<u8>) {
    match request.form {
        Form::Classic => render_classic(request, key, said, shown, out),
        Form::Meta => render_meta(request, key, said, shown, out),
    }
}

fn render_classic(request: &Request, key: &[u8], said: &Said, shown: &Shown, out: &mut Vec<u8>) {
    if request.quiet {
        return;
    }
    let line = match (said, &request.op) {
        // Behind the last key of a `get`; see the model.
        (Said::Miss, _) => return,
        (Said::Shown { version, .. }, Op::Get { with_cas, .. }) => {
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            say(out, &format!(" {} {}", version.flags, version.value.len()));
            if *with_cas {
                say(out, &format!(" {}", shown.cas.unwrap_or(0)));
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&version.value);
            ""
        }
        (Said::Counted(number, _), _) => {
            say(out, &number.to_string());
            ""
        }
        (Said::Done(_), Op::Delete { .. }) => "DELETED",
        (Said::Done(_), Op::Touch { .. }) => "TOUCHED",
        (Said::Done(_) | Said::Shown { .. }, _) => "STORED",
        (Said::NotStored, _) => "NOT_STORED",
        (Said::Exists, _) => "EXISTS",
        (Said::NotFound, _) => "NOT_FOUND",
        (Said::NonNumeric, _) => NON_NUMERIC,
    };
    say(out, line);
    out.extend_from_slice(b"\r\n");
}

const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

fn render_meta(request: &Request, key: &[u8], said: &Said, shown: &Shown, out: &mut Vec<u8>) {
    let is_hidden = match said {
        Said::Done(_) | Said::Counted(..) | Said::Miss => request.quiet,
        _ => false,
    };
    if is_hidden {
        return;
    }
    let number;
    let (word, version, value): (&str, Option<&Version>, Option<&[u8]>) = match said {
        Said::Miss => ("EN", None, None),
        Said::Shown { version, .. } => ("HD", Some(version), Some(&version.value)),
        Said::Counted(counted, version) => {
            number = counted.to_string();
            ("HD", Some(version), Some(number.as_bytes()))
        }
        Said::Done(version) => ("HD", version.as_ref(), None),
        Said::NotStored => ("NS", None, None),
        Said::Exists => ("EX", None, None),
        Said::NotFound => ("NF", None, None),
        Said::NonNumeric => return say(out, &format!("{NON_NUMERIC}\r\n")),
    };
    let value = value.filter(|_| request.wants(b'v'));
    match value {
        Some(value) => say(out, &format!("VA {}", value.len())),
        None => say(out, word),
    }
    for letter in &request.wants {
        render_flag(*letter, request, key, version, shown, out);
    }
    if let Said::Shown { version, token, .. } = said {
        say(out, if *token == Token::Taken { " Z" } else { "" });
        say(out, if version.is_stale { " X" } else { "" });
        say(out, if *token == Token::Won { " W" } else { "" });
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn render_flag(
    letter: u8,
    request: &Request,
    key: &[u8],
    version: Option<&Version>,
    shown: &Shown,
    out: &mut Vec<u8>,
) {
    let is_put = matches!(request.op, Op::Put(_));
    match (letter, version) {
        (b'O', _) => say(out, &format!(" O{}", request.opaque)),
        (b'k', _) => {
            say(out, " k");
            write_key(key, out);
            say(out, if is_binary(key) { " b" } else { "" });
        }
        // The length of what was sent, whatever it was joined to.
        (b's', _) if is_put => {
            let Op::Put(put) = &request.op else { return };
            say(out, &format!(" s{}", put.value.len()));
        }
        // Nothing was stored, so there is none.
        (b'c', None) if is_put => say(out, " c0"),
        (b'c', Some(_)) => say(out, &format!(" c{}", shown.cas.unwrap_or(0))),
        (b's', Some(version)) => say(out, &format!(" s{}", version.value.len())),
        (b'f', Some(version)) => say(out, &format!(" f{}", version.flags)),
        (b't', Some(_)) => say(out, &format!(" t{}", shown.ttl.unwrap_or(0))),
        (b'l', Some(_)) => say(out, &format!(" l{}", shown.accessed_ago.unwrap_or(0))),
        (b'h', Some(_)) => say(out, &format!(" h{}", shown.fetched.unwrap_or(0))),
        _ => {}
    }
}

/// In which way an answer differs from what should have been said.
fn kind(request: &Request, key: &[u8], said: &Said, reply: Option<Reply<'_>>, known: &Known<'_>) -> Kind {
    let Some(reply) = reply else { return if request.quiet { Kind::Status } else { Kind::Protocol } };
    let is_right_form = match reply {
        Reply::Value { .. } | Reply::End => matches!(request.op, Op::Get { .. }),
        Reply::MetaDone(_) | Reply::MetaValue { .. } | Reply::MetaMiss(_) => request.form == Form::Meta,
        Reply::Stored | Reply::Deleted | Reply::Touched | Reply::Number(_) => request.form == Form::Classic,
        Reply::NotStored(_) | Reply::Exists(_) | Reply::NotFound(_) => true,
        Reply::ClientError(_) | Reply::Error(_) => return Kind::Status,
        _ => return Kind::Protocol,
    };
    if !is_right_form {
        return Kind::Protocol;
    }
    if let Some(kind) = echo(request, key, &reply) {
        return kind;
    }
    let (value, flags, size) = match reply {
        Reply::Value { value, flags, .. } => (Some(value), Some(u64::from(flags)), None),
        Reply::MetaValue { value, flags } => (Some(value), flags.number(b'f'), flags.number(b's')),
        Reply::MetaDone(flags) => (None, flags.number(b'f'), flags.number(b's')),
        _ => (None, None, None),
    };
    match said {
        Said::Counted(..) if matches!(reply, Reply::Number(_) | Reply::MetaValue { .. }) => Kind::Counter,
        Said::Shown { version, .. } => {
            let is_value =
                matches!(reply, Reply::Value { .. } | Reply::MetaValue { .. } | Reply::MetaDone(_));
            match value.filter(|value| *value != &version.value[..]) {
                Some(value) => (known.origin)(value).map_or_else(
                    || if value.len() == version.value.len() { Kind::Value } else { Kind::Size },
                    |kind| if kind == Kind::Resurrected { Kind::Stale } else { kind },
                ),
                None if !is_value => Kind::Status,
                None if flags.is_some_and(|flags| flags != u64::from(version.flags)) => Kind::Flags,
                None if size.is_some_and(|size| size != version.value.len() as u64) => Kind::Size,
                None => Kind::Status,
            }
        }
        _ => value.map_or(Kind::Status, |value| (known.origin)(value).unwrap_or(Kind::Value)),
    }
}

/// What an answer repeats of the command is the first thing to be right.
fn echo(request: &Request, key: &[u8], reply: &Reply<'_>) -> Option<Kind> {
    if let Reply::Value { key: found, .. } = reply {
        return (*found != key).then_some(Kind::Foreign);
    }
    let flags = flags(reply)?;
    let mut name = Vec::new();
    write_key(key, &mut name);
    if request.wants(b'O') && flags.number(b'O') != Some(u64::from(request.opaque)) {
        return Some(Kind::Protocol);
    }
    (request.wants(b'k') && flags.token(b'k') != Some(&name[..])).then_some(Kind::Foreign)
}

fn say(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}
