//! The argument of `-l`: addresses to listen on, each with its own port and protocol if need be.

use super::{Binding, Refusal};

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A name or a numerical address; `None` stands for every interface.
    pub host: Option<String>,
    /// Its own port, instead of the one of `-p`.
    pub port: Option<u16>,
    /// Its own choice of protocols, instead of the one of `-B`.
    pub binding: Option<Binding>,
    /// The name given to it by `tag[…]:`.
    pub tag: Option<String>,
}

/// Reads a list separated by commas or semicolons.
pub(super) fn parse(text: &str) -> Result<Vec<Listen>, Refusal> {
    text.split([',', ';']).map(str::trim).filter(|one| !one.is_empty()).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<Listen, Refusal> {
    let mut listen = Listen { host: None, port: None, binding: None, tag: None };
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix("notls:") {
            rest = after;
        } else if rest.starts_with("btls:") || rest.starts_with("mtls:") {
            return Err(Refusal::usage(format!(
                "-l {text}: TLS is not supported; listen without it and put a proxy that speaks TLS in front"
            )));
        } else if let Some((name, after)) = bracketed(rest, "proto[") {
            listen.binding = Some(binding(name)?);
            rest = after;
        } else if let Some((name, after)) = bracketed(rest, "tag[").or_else(|| tag_between_bars(rest)) {
            if name.is_empty() || name.len() > TAG_LEN_MAX {
                return Err(Refusal::usage(format!("-l {text}: a tag has 1 to {TAG_LEN_MAX} characters")));
            }
            listen.tag = Some(name.to_owned());
            rest = after;
        } else {
            break;
        }
    }
    let (host, port) = host_and_port(rest);
    listen.host = match host {
        "" | "*" => None,
        host => Some(host.to_owned()),
    };
    if let Some(port) = port {
        match port.parse() {
            Ok(port @ 1..) => listen.port = Some(port),
            _ => {
                return Err(Refusal::usage(format!("-l {text}: Invalid port number: \"{port}\"")));
            }
        }
    }
    Ok(listen)
}

const TAG_LEN_MAX: usize = 8;

/// `[v6]:port`, `host:port`, a bare host, or a bare IPv6 address.
fn host_and_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, after)) = text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return (host, after.strip_prefix(':'));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Splits `word[name]:rest` into name and rest.
fn bracketed<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(word)?.split_once("]:")
}

/// Splits `tag_name_:rest` into name and rest.
fn tag_between_bars(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("tag_")?.split_once("_:")
}

fn binding(name: &str) -> Result<Binding, Refusal> {
    match name {
        "ascii" => Ok(Binding::Ascii),
        "binary" => Ok(Binding::Binary),
        "negotiating" => Ok(Binding::Auto),
        _ => Err(Refusal::usage(format!(
            "-l proto[{name}]: not a protocol of this server; use ascii, binary or negotiating"
        ))),
    }
}
