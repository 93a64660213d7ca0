//! The flags: each stands here once, with its name, argument, help, default, limit and what it does here.

use std::path::PathBuf;

use super::protection::PROTECTION;
use super::value::{fraction, number, port, size};
use super::{Binding, Refusal, Settings, listen};

/// One flag of the command line.
pub(super) struct Flag {
    /// The letter after one dash, if it has one.
    pub(super) short: Option<char>,
    /// The name after two dashes.
    pub(super) long: &'static str,
    /// What its argument is called in the help; `None` when it takes none.
    pub(super) argument: Option<&'static str>,
    /// What it is for.
    pub(super) help: &'static str,
    /// What holds without it.
    pub(super) default: Option<&'static str>,
    /// Which arguments are accepted.
    pub(super) limit: Option<&'static str>,
    /// What becomes of it in this server.
    pub(super) here: Here,
    /// What it does when it is read.
    pub(super) action: Action,
}

/// What becomes of a flag or option in this server.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Here {
    /// It does what it does in memcached.
    Honoured,
    /// It is accepted and changes nothing, because of this.
    NoEffect(&'static str),
    /// It is accepted, changes nothing, and the user is told this when the server starts.
    Warned(&'static str),
    /// The server does not start; this says what to do instead.
    Refused(&'static str),
    /// It is no flag of memcached's.
    Own,
    /// It is left out of `-h`: for tests only.
    Hidden,
}

/// What a flag does when it is read.
#[derive(Clone, Copy)]
pub(super) enum Action {
    /// Writes into the settings.
    Set(fn(&mut Settings, &str) -> Result<(), Refusal>),
    /// Reads its argument as `-o` options.
    Extended,
    /// Prints the help and ends.
    Help,
    /// Prints the version and ends.
    Version,
    /// Prints the licence and ends.
    License,
    /// Nothing: the flag is refused or has no effect.
    Nothing,
}

use Action::Set;
use Here::{Hidden, Honoured, NoEffect, Own, Refused, Warned};

const U32_MAX: u64 = u32::MAX as u64;

/// A row of a flag without default or limit.
const fn flag(
    short: char,
    long: &'static str,
    argument: Option<&'static str>,
    help: &'static str,
    here: Here,
    action: Action,
) -> Flag {
    Flag { short: Some(short), long, argument, help, default: None, limit: None, here, action }
}

impl Flag {
    const fn by_default(self, default: &'static str) -> Flag {
        Flag { default: Some(default), ..self }
    }

    const fn within(self, limit: &'static str) -> Flag {
        Flag { limit: Some(limit), ..self }
    }
}

/// All flags, in the order of the help.
const FLAGS: &[Flag] = &[
    flag(
        'p',
        "port",
        Some("<num>"),
        "TCP port to listen on; 0 for none, -1 for any free one",
        Honoured,
        Set(|s, v| port("-p", v).map(|port| s.tcp_port = port)),
    )
    .by_default("11211")
    .within("-1, 0 or 1 to 65535"),
    flag(
        'U',
        "udp-port",
        Some("<num>"),
        "UDP port: accepted, never opened; without -p it names the TCP port",
        Warned("UDP is not served: only TCP and Unix sockets are open"),
        Set(|s, v| port("-U", v).map(|port| s.udp_port = port)),
    )
    .by_default("0")
    .within("-1, 0 or 1 to 65535"),
    flag(
        's',
        "unix-socket",
        Some("<file>"),
        "Unix socket to listen on (disables network support)",
        Honoured,
        Set(|s, v| {
            s.unix_socket = Some(PathBuf::from(v));
            Ok(())
        }),
    ),
    flag(
        'a',
        "unix-mask",
        Some("<mask>"),
        "access mask of the Unix socket, in octal",
        Honoured,
        Set(|s, v| match u32::from_str_radix(v.trim(), 8) {
            Ok(mask @ 0..=0o7777) => {
                s.unix_mask = mask;
                Ok(())
            }
            _ => Err(Refusal::value(format!("-a must be an octal mode such as 700, not \"{v}\""))),
        }),
    )
    .by_default("700")
    .within("0 to 7777"),
    flag(
        'A',
        "enable-shutdown",
        None,
        "enable the command \"shutdown\"",
        Honoured,
        Set(|s, _| {
            s.shutdown_enabled = true;
            Ok(())
        }),
    ),
    flag(
        'l',
        "listen",
        Some("<addr>"),
        "addresses to listen on: host, host:port or [v6]:port, separated by commas; may be repeated \
         (default: every interface)",
        Honoured,
        Set(|s, v| {
            s.listen.extend(listen::parse(v)?);
            s.listen_text = Some(match s.listen_text.take() {
                Some(before) => format!("{before},{v}"),
                None => v.to_owned(),
            });
            Ok(())
        }),
    ),
    flag(
        'd',
        "daemon",
        None,
        "run as a daemon",
        Honoured,
        Set(|s, _| {
            s.daemonize = true;
            Ok(())
        }),
    ),
    flag(
        'r',
        "enable-coredumps",
        None,
        "maximize the core file limit",
        Honoured,
        Set(|s, _| {
            s.coredumps = true;
            Ok(())
        }),
    ),
    flag(
        'u',
        "user",
        Some("<user>"),
        "become this user (only when started as root)",
        Honoured,
        Set(|s, v| {
            s.user = Some(v.to_owned());
            Ok(())
        }),
    ),
    flag(
        'm',
        "memory-limit",
        Some("<num>"),
        "memory limit in megabytes, or with a suffix: 512k, 64m, 2g. It covers items, index and buffers",
        Honoured,
        Set(|s, v| size("-m", v, 1 << 20).map(|bytes| s.memory_bytes = bytes)),
    )
    .by_default("64")
    .within("at least 2 megabytes"),
    flag(
        'M',
        "disable-evictions",
        None,
        "return an error when memory is full instead of evicting",
        Honoured,
        Set(|s, _| {
            s.evict = false;
            Ok(())
        }),
    ),
    flag(
        'c',
        "conn-limit",
        Some("<num>"),
        "max simultaneous connections",
        Honoured,
        Set(|s, v| {
            number("Maximum connections", v, 1..=10_000_000).map(|number| s.conn_limit = number as u32)
        }),
    )
    .by_default("1024")
    .within("1 to 10000000"),
    flag(
        'k',
        "lock-memory",
        None,
        "lock down all paged memory",
        Honoured,
        Set(|s, _| {
            s.lock_memory = true;
            Ok(())
        }),
    ),
    flag(
        'v',
        "verbose",
        None,
        "print errors and warnings; -vv also connections and commands; -vvv also internal state",
        Honoured,
        Set(|s, _| {
            s.verbosity = s.verbosity.saturating_add(1);
            Ok(())
        }),
    ),
    flag('h', "help", None, "print this help and exit", Honoured, Action::Help),
    flag('i', "license", None, "print the license and exit", Honoured, Action::License),
    flag('V', "version", None, "print the version and exit", Honoured, Action::Version),
    flag(
        'P',
        "pidfile",
        Some("<file>"),
        "save the process id in this file",
        Honoured,
        Set(|s, v| {
            s.pidfile = Some(PathBuf::from(v));
            Ok(())
        }),
    ),
    flag(
        'f',
        "slab-growth-factor",
        Some("<num>"),
        "growth factor of the slab classes that dumps and statistics speak of",
        NoEffect("there are no slab classes; the factor only changes the class numbers that are reported"),
        Set(|s, v| fraction("Factor", v, "a number greater than 1", |n| n > 1.0).map(|n| s.slabs.factor = n)),
    )
    .by_default("1.25")
    .within("greater than 1"),
    flag(
        'n',
        "slab-min-size",
        Some("<bytes>"),
        "smallest space for key, value and flags in those classes",
        NoEffect("there are no slab classes; the size only changes the class numbers that are reported"),
        Set(|s, v| number("Chunk size", v, 1..=(1 << 20)).map(|n| s.slabs.chunk_bytes_min = n as u32)),
    )
    .by_default("48")
    .within("1 to 1048576"),
    flag(
        'L',
        "enable-largepages",
        None,
        "try to use large memory pages (if available)",
        Honoured,
        Set(|s, _| {
            s.large_pages = true;
            Ok(())
        }),
    ),
    flag(
        'D',
        "prefix-delimiter",
        Some("<char>"),
        "delimiter between the prefix of a key and the rest. With this flag \"stats detail\" counts from \
         the start; without it after \"stats detail on\" (default: \":\")",
        Honoured,
        Set(|s, v| match v.as_bytes() {
            [] => Err(Refusal::value("No delimiter specified: -D takes one character")),
            [delimiter, ..] => {
                s.prefix_delimiter = *delimiter;
                s.detail_enabled = true;
                Ok(())
            }
        }),
    ),
    flag(
        't',
        "threads",
        Some("<num>"),
        "number of worker threads (default: 4, or the number of cores if fewer)",
        Honoured,
        Set(|s, v| {
            let threads = number("Number of threads", v, 1..=U32_MAX)?;
            s.threads = threads.min(THREADS_MAX) as u32;
            if threads > THREADS_MAX {
                s.warnings
                    .push(format!("-t {threads}: {THREADS_MAX} workers are started, more gain nothing"));
            }
            Ok(())
        }),
    )
    .within("1 or more; no more than 64 are started"),
    flag(
        'R',
        "max-reqs-per-event",
        Some("<num>"),
        "commands of one connection that are executed before others have their turn",
        Honoured,
        Set(|s, v| {
            number("Number of requests per event", v, 1..=U32_MAX)
                .map(|n| s.requests_per_event = Some(n as u32))
        }),
    )
    .by_default("20")
    .within("1 to 4294967295"),
    flag(
        'C',
        "disable-cas",
        None,
        "disable use of CAS",
        Honoured,
        Set(|s, _| {
            s.cas = false;
            Ok(())
        }),
    ),
    flag(
        'b',
        "listen-backlog",
        Some("<num>"),
        "connections that may wait to be accepted",
        Honoured,
        Set(|s, v| number("Backlog", v, 0..=i32::MAX as u64).map(|n| s.backlog = n as u32)),
    )
    .by_default("1024")
    .within("0 to 2147483647"),
    flag(
        'B',
        "protocol",
        Some("<name>"),
        "protocol: ascii, binary or auto",
        Honoured,
        Set(|s, v| {
            s.binding = match v.trim() {
                "auto" => Binding::Auto,
                "ascii" => Binding::Ascii,
                "binary" => Binding::Binary,
                _ => {
                    return Err(Refusal::usage(format!(
                        "Invalid value for binding protocol: {v} -- should be one of auto, binary, or ascii"
                    )));
                }
            };
            Ok(())
        }),
    )
    .by_default("auto")
    .within("ascii, binary, auto"),
    flag(
        'I',
        "max-item-size",
        Some("<num>"),
        "size of the largest item (min: 1k, max: 1024m, at most half of -m)",
        Honoured,
        Set(|s, v| {
            let bytes = size("-I", v, 1)?;
            s.item_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
            Ok(())
        }),
    )
    .by_default("1m")
    .within("1k to 1024m, at most half of -m"),
    flag(
        'F',
        "disable-flush-all",
        None,
        "disable the command \"flush_all\"",
        Honoured,
        Set(|s, _| {
            s.flush_enabled = false;
            Ok(())
        }),
    ),
    flag(
        'X',
        "disable-dumping",
        None,
        "disable \"stats cachedump\" and \"lru_crawler metadump\"",
        Honoured,
        Set(|s, _| {
            s.dump_enabled = false;
            Ok(())
        }),
    ),
    flag(
        'W',
        "disable-watch",
        None,
        "disable the command \"watch\" (it is refused anyway)",
        NoEffect("there is no watch log; \"watch\" is always refused"),
        Set(|s, _| {
            s.watch_enabled = false;
            Ok(())
        }),
    ),
    flag(
        'N',
        "napi-ids",
        Some("<num>"),
        "accepted, no effect",
        NoEffect("connections go to the worker that has the fewest"),
        Set(|s, v| number("Maximum number of NAPI IDs", v, 1..=U32_MAX).map(|n| s.napi_ids = n as u32)),
    )
    .within("1 to the number of threads"),
    flag(
        'o',
        "extended",
        Some("<options>"),
        "comma separated list of extended options; most have a \"no_\" form",
        Honoured,
        Action::Extended,
    ),
    Flag {
        short: None,
        long: "line-port",
        argument: Some("<num>"),
        help: "port of the line protocol (SET, GET, DEL, GETALL), customarily 2318; 0 for none, -1 for any",
        default: Some("0"),
        limit: Some("-1, 0 or 1 to 65535"),
        here: Own,
        action: Set(|s, v| port("--line-port", v).map(|port| s.line_port = port)),
    },
    Flag {
        short: None,
        long: "test-mode",
        argument: None,
        help: "the command \"debugtime\" moves the server's clock",
        default: None,
        limit: None,
        here: Hidden,
        action: Set(|s, _| {
            s.test_mode = true;
            Ok(())
        }),
    },
    flag(
        'S',
        "enable-sasl",
        None,
        "SASL authentication",
        Refused(
            "SASL authentication is not supported; leave -S out and limit access with -l, -s or a firewall",
        ),
        Action::Nothing,
    ),
    flag(
        'Y',
        "auth-file",
        Some("<file>"),
        "authentication of the text protocol",
        Refused("authentication is not supported; leave -Y out and limit access with -l, -s or a firewall"),
        Action::Nothing,
    ),
    flag(
        'Z',
        "enable-ssl",
        None,
        "TLS",
        Refused("TLS is not supported; leave -Z out and put a proxy that speaks TLS in front"),
        Action::Nothing,
    ),
    flag(
        'e',
        "memory-file",
        Some("<file>"),
        "memory that outlives the process",
        Refused("a cache that survives a restart is not supported; leave -e out and start empty"),
        Action::Nothing,
    ),
];

/// All flags, in the order of the help.
pub(super) fn flags() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().chain(PROTECTION)
}

/// More workers than this gain nothing, and each costs memory of its own. memcached warns above it.
const THREADS_MAX: u64 = 64;
