//! A command on user data, the bytes it is sent as, and where its answer ends.

use std::sync::Arc;

use protocol::base64;
use protocol::reply::{self, Reply, Step};

/// A key, or a value.
pub type Bytes = Arc<[u8]>;

/// No version has this cas id. It is sent as well where no cas id was ever shown.
pub(super) const CAS_NEVER: u64 = u64::MAX - 1;

/// How a command is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `get`, `set`, `incr` and so on.
    Classic,
    /// `mg`, `ms`, `md`, `ma`.
    Meta,
}

/// How a put treats what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replaces whatever is there.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// Behind what is there.
    Append,
    /// In front of what is there.
    Prepend,
}

/// With which cas id a command compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The one that was shown last for the key, which a later version may have made old.
    Last,
    /// One that no version has.
    Never,
}

/// A put: `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
#[derive(Clone, Debug)]
pub struct Put {
    /// What becomes of what is there.
    pub mode: Mode,
    /// The value sent.
    pub value: Bytes,
    /// The client's flags.
    pub flags: u32,
    /// Seconds; 0 never, negative at once.
    pub exptime: i64,
    /// With a cas id.
    pub compare: Option<Compare>,
    /// `ms N`: append and prepend make an item where there is none.
    pub vivify: Option<i64>,
    /// `ms I`
    pub invalidate: bool,
    /// `ms E`
    pub new_cas: Option<u64>,
}

/// What is asked of a key.
#[derive(Clone, Debug)]
pub enum Op {
    /// `get`, `gets`, `gat`, `gats`, of one or several keys.
    Get {
        /// With the cas id.
        with_cas: bool,
        /// `gat`: the new expiry time.
        touch: Option<i64>,
    },
    /// `mg`
    Fetch {
        /// `T`
        touch: Option<i64>,
        /// `N`
        vivify: Option<i64>,
        /// `R`
        recache: Option<i64>,
        /// Without `u`.
        bump: bool,
    },
    /// `touch`
    Touch {
        /// The new expiry time.
        exptime: i64,
    },
    /// See [`Put`].
    Put(Put),
    /// `delete`, `md`
    Delete {
        /// `C`
        compare: Option<Compare>,
        /// `I`
        invalidate: bool,
        /// `x`
        drop_value: bool,
        /// `T`
        exptime: Option<i64>,
    },
    /// `incr`, `decr`, `ma`
    Count {
        /// Up, else down.
        up: bool,
        /// By how much.
        delta: u64,
        /// `N` and `J`: the expiry time and the first value.
        vivify: Option<(i64, u64)>,
        /// `T`
        exptime: Option<i64>,
        /// `C`
        compare: Option<Compare>,
    },
}

/// A command, with what has to be told of it.
#[derive(Clone, Debug)]
pub struct Request {
    /// One, or several for [`Op::Get`]; none twice.
    pub keys: Vec<Bytes>,
    /// How it is written; [`Op::Get`] and [`Op::Touch`] are classic, [`Op::Fetch`] is meta.
    pub form: Form,
    /// What is asked.
    pub op: Op,
    /// `noreply` or `q`; an `mn` stands behind it, so that there is an answer in any case.
    pub quiet: bool,
    /// Letters of flags by which a meta command asks to be told something, in this order.
    pub wants: Vec<u8>,
    /// The token behind `O`.
    pub opaque: u32,
}

/// Whether a key can't stand on a line as it is.
pub(super) fn is_binary(key: &[u8]) -> bool {
    !key.iter().all(u8::is_ascii_graphic)
}

/// A key as a meta command writes it.
pub(super) fn write_key(key: &[u8], out: &mut Vec<u8>) {
    if is_binary(key) {
        base64::encode(key, out);
    } else {
        out.extend_from_slice(key);
    }
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// More has to come.
    Incomplete,
    /// It has this many bytes.
    Whole(usize),
    /// This is no answer to the command.
    Garbage,
}

impl Request {
    /// The comparison it asks for.
    pub(super) fn compare(&self) -> Option<Compare> {
        match &self.op {
            Op::Put(put) => put.compare,
            Op::Delete { compare, .. } | Op::Count { compare, .. } => *compare,
            Op::Get { .. } | Op::Fetch { .. } | Op::Touch { .. } => None,
        }
    }

    /// Whether it asks to be told this.
    pub(super) fn wants(&self, letter: u8) -> bool {
        self.wants.contains(&letter)
    }

    /// Appends what is sent; `compare` is the cas id of a comparison.
    pub(super) fn encode(&self, compare: Option<u64>, out: &mut Vec<u8>) {
        match self.form {
            Form::Classic => self.encode_classic(compare, out),
            Form::Meta => self.encode_meta(compare, out),
        }
        if let Op::Put(put) = &self.op {
            out.extend_from_slice(&put.value);
            out.extend_from_slice(b"\r\n");
        }
        if self.quiet {
            out.extend_from_slice(b"mn\r\n");
        }
    }

    fn encode_classic(&self, compare: Option<u64>, out: &mut Vec<u8>) {
        let key = |out: &mut Vec<u8>| {
            out.push(b' ');
            out.extend_from_slice(&self.keys[0]);
        };
        match &self.op {
            Op::Get { with_cas, touch } => {
                let verb: &[u8] = match (touch, with_cas) {
                    (None, false) => b"get",
                    (None, true) => b"gets",
                    (Some(_), false) => b"gat",
                    (Some(_), true) => b"gats",
                };
                out.extend_from_slice(verb);
                if let Some(exptime) = touch {
                    say(out, &format!(" {exptime}"));
                }
                for key in &self.keys {
                    out.push(b' ');
                    out.extend_from_slice(key);
                }
            }
            Op::Touch { exptime } => {
                say(out, "touch");
                key(out);
                say(out, &format!(" {exptime}"));
            }
            Op::Put(put) => {
                say(out, if compare.is_some() { "cas" } else { put.mode.verb() });
                key(out);
                say(out, &format!(" {} {} {}", put.flags, put.exptime, put.value.len()));
                if let Some(cas) = compare {
                    say(out, &format!(" {cas}"));
                }
            }
            Op::Delete { .. } => {
                say(out, "delete");
                key(out);
            }
            Op::Count { up, delta, .. } => {
                say(out, if *up { "incr" } else { "decr" });
                key(out);
                say(out, &format!(" {delta}"));
            }
            Op::Fetch { .. } => unreachable!("mg has no classic form"),
        }
        say(out, if self.quiet { " noreply\r\n" } else { "\r\n" });
    }

    fn encode_meta(&self, compare: Option<u64>, out: &mut Vec<u8>) {
        say(
            out,
            match &self.op {
                Op::Fetch { .. } => "mg ",
                Op::Put(_) => "ms ",
                Op::Delete { .. } => "md ",
                Op::Count { .. } => "ma ",
                Op::Get { .. } | Op::Touch { .. } => unreachable!("these have no meta form"),
            },
        );
        write_key(&self.keys[0], out);
        let number = |out: &mut Vec<u8>, letter: char, number: Option<i64>| {
            if let Some(number) = number {
                say(out, &format!(" {letter}{number}"));
            }
        };
        match &self.op {
            Op::Fetch { touch, vivify, recache, bump } => {
                // In this order, `R` looks at the time there was before `T`, for memcached as well.
                number(out, 'R', *recache);
                number(out, 'T', *touch);
                number(out, 'N', *vivify);
                say(out, if *bump { "" } else { " u" });
            }
            Op::Put(put) => {
                say(
                    out,
                    &format!(" {} M{} F{} T{}", put.value.len(), put.mode.letter(), put.flags, put.exptime),
                );
                number(out, 'N', put.vivify);
                say(out, if put.invalidate { " I" } else { "" });
                if let Some(cas) = put.new_cas {
                    say(out, &format!(" E{cas}"));
                }
            }
            Op::Delete { invalidate, drop_value, exptime, .. } => {
                say(out, if *invalidate { " I" } else { "" });
                say(out, if *drop_value { " x" } else { "" });
                number(out, 'T', *exptime);
            }
            Op::Count { up, delta, vivify, exptime, .. } => {
                say(out, &format!(" M{} D{delta}", if *up { 'I' } else { 'D' }));
                // In this order: memcached lets the later of the two decide where it makes an item.
                number(out, 'T', *exptime);
                if let Some((exptime, initial)) = vivify {
                    say(out, &format!(" N{exptime} J{initial}"));
                }
            }
            Op::Get { .. } | Op::Touch { .. } => {}
        }
        if let Some(cas) = compare {
            say(out, &format!(" C{cas}"));
        }
        say(out, if is_binary(&self.keys[0]) { " b" } else { "" });
        for letter in &self.wants {
            out.extend_from_slice(&[b' ', *letter]);
            if *letter == b'O' {
                say(out, &self.opaque.to_string());
            }
        }
        say(out, if self.quiet { " q\r\n" } else { "\r\n" });
    }

    /// Where the answer at the front of the input ends.
    #[must_use]
    pub fn framing(&self, input: &[u8]) -> Framing {
        let mut end = 0;
        loop {
            match reply::parse(&input[end..]) {
                Step::Incomplete { .. } => return Framing::Incomplete,
                Step::Garbage => return Framing::Garbage,
                Step::Reply { reply, used } => {
                    end += used;
                    let is_last = match (reply, &self.op) {
                        (Reply::MetaNoop, _) => true,
                        _ if self.quiet => false,
                        (Reply::Value { .. }, Op::Get { .. }) => false,
                        _ => true,
                    };
                    if is_last {
                        return Framing::Whole(end);
                    }
                }
            }
        }
    }
}

impl Mode {
    fn verb(self) -> &'static str {
        match self {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        }
    }

    fn letter(self) -> char {
        match self {
            Mode::Set => 'S',
            Mode::Add => 'E',
            Mode::Replace => 'R',
            Mode::Append => 'A',
            Mode::Prepend => 'P',
        }
    }
}

fn say(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}
