//! One connection, which writes keys that no other writes, and so knows what they may hold. Now and then it reads others'.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::model::{Action, Answer, Entry};
use crate::error::Error;
use crate::random::Random;

/// Keys of one connection. The first of them hold numbers.
const KEYS: u64 = 1_500;
const NUMBERS: u64 = 150;

/// Of a batch: no more commands are added when it, or what may be answered to it, is so long. What a server is not asked
/// for can't fill the sockets while nobody reads.
const COMMANDS_MAX: u64 = 60;
const BATCH_BYTES: usize = 48 << 10;

/// A value that was appended to is written anew above this.
const VALUE_BYTES_MAX: usize = 80 << 10;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of the commands of some connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    hits: u64,
    misses: u64,
    /// Misses of what was written and not removed.
    pub(super) forgotten: u64,
    no_memory: u64,
    pub(super) unconfirmed: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.forgotten += other.forgotten;
        self.no_memory += other.no_memory;
        self.unconfirmed += other.unconfirmed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { hits, misses, forgotten, no_memory, unconfirmed } = self;
        write!(f, "{hits} hits, {misses} misses, {forgotten} of them of what was forgotten, ")?;
        write!(f, "{no_memory} without memory, {unconfirmed} unconfirmed")
    }
}

/// What a client does, and has to put up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// It makes the server forget everything now and then.
    pub(super) flushes: bool,
    /// What is not confirmed may be said not to be there.
    pub(super) is_denied: bool,
}

/// A connection.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    number: u64,
    random: Random,
    entries: Vec<Entry>,
    /// Answers that are still to come.
    asked: VecDeque<Asked>,
    request: Vec<u8>,
    /// What may be answered to the batch.
    answer_bytes: usize,
    noise: Vec<u8>,
    habits: Habits,
    /// Of pieces of values, so that no two are the same.
    pieces: u64,
    tally: Tally,
}

/// An answer that is to come.
enum Asked {
    One(u64, Action, Form),
    /// The keys of a multiget.
    Many(Vec<u64>),
    /// A value of another connection's key.
    Foreign(String),
    Flush,
    /// Nothing is answered.
    Silence(u64, Action),
}

/// How a command was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Classic,
    Meta,
}

impl Client {
    pub(super) fn connect(
        address: SocketAddr,
        number: u64,
        seed: u64,
        habits: Habits,
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
        let mut random = Random::new(seed.wrapping_add(number));
        let noise = std::iter::repeat_with(|| b'a' + (random.next() % 26) as u8).take(128 << 10).collect();
        Ok(Client {
            stream: BufReader::with_capacity(64 << 10, stream),
            number,
            random,
            entries: (0..KEYS).map(|_| Entry::default()).collect(),
            asked: VecDeque::new(),
            request: Vec::new(),
            answer_bytes: 0,
            noise,
            habits,
            pieces: 0,
            tally: Tally::default(),
        })
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Sends a batch of commands.
    pub(super) fn send(&mut self) -> Result<(), Error> {
        self.request.clear();
        self.answer_bytes = 0;
        let count = 1 + self.random.below(COMMANDS_MAX);
        for _ in 0..count {
            self.command();
            if self.request.len() + self.answer_bytes > BATCH_BYTES {
                break;
            }
        }
        self.stream.get_mut().write_all(&self.request).map_err(broken)
    }

    fn command(&mut self) {
        let key = self.random.below(KEYS);
        if key < NUMBERS {
            return self.count(key);
        }
        match self.random.below(100) {
            0..35 => self.get(key, Form::Classic),
            35..45 => self.get(key, Form::Meta),
            45..52 => self.multiget(),
            52..56 => self.foreign(),
            56..74 => self.put(key),
            74..78 => self.add_to(key),
            78..83 => self.delete(key),
            83..88 => self.touch(key),
            88..90 => self.silent(key),
            _ if self.habits.flushes && self.random.below(5_000) == 0 => {
                self.say("flush_all\r\n");
                self.asked.push_back(Asked::Flush);
            }
            _ => self.get(key, Form::Classic),
        }
    }

    fn say(&mut self, text: &str) {
        self.request.extend_from_slice(text.as_bytes());
    }

    fn ask(&mut self, key: u64, action: Action, form: Form) {
        self.asked.push_back(Asked::One(key, action, form));
    }

    fn get(&mut self, key: u64, form: Form) {
        let name = name(self.number, key);
        self.say(&match form {
            Form::Classic => format!("get {name}\r\n"),
            Form::Meta => format!("mg {name} v f k\r\n"),
        });
        self.answer_bytes += self.entries[key as usize].bytes_max();
        self.ask(key, Action::Get, form);
    }

    fn multiget(&mut self) {
        let mut keys: Vec<u64> = Vec::new();
        for _ in 0..2 + self.random.below(20) {
            let key = self.random.below(KEYS);
            self.answer_bytes += self.entries[key as usize].bytes_max();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        self.say("get");
        for key in &keys {
            self.say(&format!(" {}", name(self.number, *key)));
        }
        self.say("\r\n");
        self.asked.push_back(Asked::Many(keys));
    }

    fn foreign(&mut self) {
        let other = self.random.below(super::THREADS * super::CONNECTIONS);
        let name = name(other, NUMBERS + self.random.below(KEYS - NUMBERS));
        self.say(&format!("get {name}\r\n"));
        self.asked.push_back(Asked::Foreign(name));
    }

    /// A piece of a value: whose it is, and something no other piece begins with.
    fn piece(&mut self, key: u64) -> Vec<u8> {
        self.pieces += 1;
        let len = match self.random.below(100) {
            0..70 => self.random.below(300),
            70..97 => self.random.below(3_000),
            97..99 => self.random.below(20_000),
            _ => self.random.below(70_000),
        };
        let from = self.random.below(40_000) as usize;
        let begin = format!("{}/{}/", name(self.number, key), self.pieces);
        [begin.as_bytes(), &self.noise[from..from + len as usize]].concat()
    }

    fn put(&mut self, key: u64) {
        let (value, name, flags) = (self.piece(key), name(self.number, key), flags(key));
        let (verb, action, form) = match self.random.below(8) {
            0..4 => ("set", Action::Set(value.clone()), Form::Classic),
            4..6 => ("ms", Action::Set(value.clone()), Form::Meta),
            6 => ("add", Action::Add(value.clone()), Form::Classic),
            _ => ("replace", Action::Replace(value.clone()), Form::Classic),
        };
        self.say(&match form {
            Form::Classic => format!("{verb} {name} {flags} 0 {}\r\n", value.len()),
            Form::Meta => format!("ms {name} {} F{flags}\r\n", value.len()),
        });
        self.request.extend_from_slice(&value);
        self.say("\r\n");
        self.ask(key, action, form);
    }

    fn add_to(&mut self, key: u64) {
        if self.entries[key as usize].bytes_max() > VALUE_BYTES_MAX / 4 {
            return self.delete(key);
        }
        let (more, name) = (self.piece(key), name(self.number, key));
        let (verb, action) = match self.random.below(2) {
            0 => ("append", Action::Append(more.clone())),
            _ => ("prepend", Action::Prepend(more.clone())),
        };
        self.say(&format!("{verb} {name} 0 0 {}\r\n", more.len()));
        self.request.extend_from_slice(&more);
        self.say("\r\n");
        self.ask(key, action, Form::Classic);
    }

    fn delete(&mut self, key: u64) {
        let name = name(self.number, key);
        let form = if self.random.below(2) == 0 { Form::Classic } else { Form::Meta };
        self.say(&format!("{} {name}\r\n", if form == Form::Classic { "delete" } else { "md" }));
        self.ask(key, Action::Delete, form);
    }

    fn touch(&mut self, key: u64) {
        let name = name(self.number, key);
        let seconds = [0, 100_000][self.random.below(2) as usize];
        match self.random.below(3) {
            0 => {
                self.say(&format!("touch {name} {seconds}\r\n"));
                self.ask(key, Action::Touch, Form::Classic);
            }
            1 => {
                self.say(&format!("gat {seconds} {name}\r\n"));
                self.answer_bytes += self.entries[key as usize].bytes_max();
                self.ask(key, Action::Touch, Form::Classic);
            }
            _ => {
                self.say(&format!("mg {name} v f k T{seconds}\r\n"));
                self.answer_bytes += self.entries[key as usize].bytes_max();
                self.ask(key, Action::Touch, Form::Meta);
            }
        }
    }

    fn silent(&mut self, key: u64) {
        let (value, name, flags) = (self.piece(key), name(self.number, key), flags(key));
        if self.random.below(3) == 0 {
            self.say(&format!("delete {name} noreply\r\n"));
            return self.asked.push_back(Asked::Silence(key, Action::Delete));
        }
        self.say(&format!("set {name} {flags} 0 {} noreply\r\n", value.len()));
        self.request.extend_from_slice(&value);
        self.say("\r\n");
        self.asked.push_back(Asked::Silence(key, Action::Set(value)));
    }

    /// A command on a key that holds a number.
    fn count(&mut self, key: u64) {
        let (name, flags) = (name(self.number, key), flags(key));
        let delta = self.random.next() >> (10 * (1 + self.random.below(6)));
        match self.random.below(10) {
            0..2 => {
                let value = delta.to_string();
                self.say(&format!("set {name} {flags} 0 {}\r\n{value}\r\n", value.len()));
                self.ask(key, Action::Set(value.into()), Form::Classic);
            }
            2..4 => self.get(key, Form::Classic),
            4..7 => {
                self.say(&format!("incr {name} {delta}\r\n"));
                self.ask(key, Action::Incr(delta), Form::Classic);
            }
            7..9 => {
                self.say(&format!("decr {name} {delta}\r\n"));
                self.ask(key, Action::Decr(delta), Form::Classic);
            }
            _ => self.delete(key),
        }
    }

    /// Reads the answers to a batch; how many there were.
    pub(super) fn receive(&mut self) -> Result<u64, Error> {
        let count = self.asked.len() as u64;
        while let Some(asked) = self.asked.pop_front() {
            match asked {
                Asked::One(key, action, form) => self.one(key, &action, form)?,
                Asked::Many(keys) => self.many(&keys)?,
                Asked::Foreign(name) => self.one_of_others(&name)?,
                Asked::Flush => {
                    self.expect("OK")?;
                    self.entries.iter_mut().for_each(Entry::flush);
                }
                Asked::Silence(key, action) => self.note(key, &action, &Answer::Unconfirmed)?,
            }
        }
        if self.stream.buffer().is_empty() {
            return Ok(count);
        }
        let rest = self.stream.buffer()[..self.stream.buffer().len().min(100)].escape_ascii().to_string();
        Err(Error::Failed(format!("more was answered than asked for: {rest}")))
    }

    fn one(&mut self, key: u64, action: &Action, form: Form) -> Result<(), Error> {
        let line = self.line()?;
        if let Some(rest) = line.strip_prefix("VALUE ") {
            let value = self.value(key, rest, Form::Classic)?;
            self.expect("END")?;
            return self.note(key, action, &Answer::Value(&value));
        }
        if let Some(rest) = line.strip_prefix("VA ").filter(|_| form == Form::Meta) {
            let value = self.value(key, rest, Form::Meta)?;
            return self.note(key, action, &Answer::Value(&value));
        }
        let answer = match line.as_str() {
            "STORED" | "DELETED" | "TOUCHED" | "HD" => Answer::Done,
            "END" | "NOT_STORED" | "NS" | "NOT_FOUND" | "NF" => Answer::NotDone,
            // A meta miss repeats the key.
            line if line.starts_with("EN ") && form == Form::Meta => Answer::NotDone,
            "SERVER_ERROR execution was not confirmed" => {
                self.tally.unconfirmed += 1;
                Answer::Unconfirmed
            }
            line if line.starts_with("SERVER_ERROR out of memory") => {
                self.tally.no_memory += 1;
                Answer::NoMemory
            }
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Answer::Value(digits.as_bytes()),
            _ => return Err(self.wrong(key, &format!("{action:.40?} was answered {line:?}"))),
        };
        self.note(key, action, &answer)
    }

    fn many(&mut self, keys: &[u64]) -> Result<(), Error> {
        let mut keys = keys.iter();
        loop {
            let line = self.line()?;
            let shown = line.strip_prefix("VALUE ");
            if line != "END" && shown.is_none() {
                return Err(Error::Failed(format!("a multiget was answered {line:?}")));
            }
            // Those that were left out are not there; what is shown has to be asked for, and in order.
            let found = shown.and_then(|rest| rest.split(' ').next());
            loop {
                match (keys.next(), found) {
                    (Some(key), Some(found)) if name(self.number, *key) == found => {
                        let value = self.value(*key, shown.unwrap_or_default(), Form::Classic)?;
                        self.note(*key, &Action::Get, &Answer::Value(&value))?;
                        break;
                    }
                    (Some(key), _) => self.note(*key, &Action::Get, &Answer::NotDone)?,
                    (None, Some(found)) => {
                        return Err(Error::Failed(format!(
                            "a multiget shows {found}, which was not asked for"
                        )));
                    }
                    (None, None) => return Ok(()),
                }
            }
        }
    }

    /// Whatever another connection's key holds, it is that key's.
    fn one_of_others(&mut self, name: &str) -> Result<(), Error> {
        let line = self.line()?;
        if line == "END" {
            return Ok(());
        }
        let words: Vec<&str> = line.split(' ').collect();
        let &["VALUE", found, _, len] = &words[..] else {
            return Err(Error::Failed(format!("get {name} was answered {line:?}")));
        };
        let value = self.bytes(len)?;
        self.expect("END")?;
        if found != name || !value.starts_with(format!("{name}/").as_bytes()) {
            let begin = value[..value.len().min(60)].escape_ascii().to_string();
            return Err(Error::Failed(format!("{name} holds another key's value: {found}, {begin}")));
        }
        Ok(())
    }

    /// The value behind a line that announces it.
    fn value(&mut self, key: u64, rest: &str, form: Form) -> Result<Vec<u8>, Error> {
        let words: Vec<&str> = rest.split(' ').collect();
        let name = name(self.number, key);
        let (found, flags_found, len) = match (form, &words[..]) {
            (Form::Classic, [found, flags, len]) => (*found, *flags, *len),
            (Form::Meta, [len, flags, found]) => {
                (found.strip_prefix('k').unwrap_or(found), flags.strip_prefix('f').unwrap_or(flags), *len)
            }
            _ => return Err(self.wrong(key, &format!("the line of its value is {rest:?}"))),
        };
        if found != name || flags_found != flags(key).to_string() {
            return Err(self.wrong(key, &format!("the line of its value is {rest:?}")));
        }
        self.bytes(len)
    }

    fn note(&mut self, key: u64, action: &Action, answer: &Answer<'_>) -> Result<(), Error> {
        let entry = &mut self.entries[key as usize];
        if matches!(action, Action::Get | Action::Touch) {
            match answer {
                Answer::Value(_) | Answer::Done => self.tally.hits += 1,
                _ => self.tally.misses += 1,
            }
        }
        let may_stay_away = matches!(action, Action::Set(_) | Action::Add(_));
        self.tally.forgotten += u64::from(entry.is_sure() && *answer == Answer::NotDone && !may_stay_away);
        if self.habits.is_denied
            && *answer == Answer::NotDone
            && matches!(action, Action::Get | Action::Touch)
        {
            entry.deny();
            return Ok(());
        }
        entry.note(action, answer).map_err(|wrong| self.wrong(key, &wrong.to_string()))
    }

    fn wrong(&self, key: u64, what: &str) -> Error {
        Error::Failed(format!("{}: {what}", name(self.number, key)))
    }

    fn expect(&mut self, expected: &str) -> Result<(), Error> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(Error::Failed(format!("{line:?} was answered, not {expected:?}")))
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).map_err(broken)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(Error::Failed(format!("the server ended in {:?}", String::from_utf8_lossy(&line)))),
        }
    }

    fn bytes(&mut self, len: &str) -> Result<Vec<u8>, Error> {
        let len: usize = len.parse().map_err(|_| Error::Failed(format!("a value of {len} bytes")))?;
        let mut value = vec![0; len + 2];
        self.stream.read_exact(&mut value).map_err(broken)?;
        match value.strip_suffix(b"\r\n") {
            Some(value) => Ok(value.to_vec()),
            None => Err(Error::Failed("a value is not as long as was said".into())),
        }
    }
}

fn name(connection: u64, key: u64) -> String {
    format!("soak:{connection}:{key}")
}

/// A key's client flags, for ever.
fn flags(key: u64) -> u64 {
    key % 3
}

fn broken(error: std::io::Error) -> Error {
    Error::Failed(format!("connection to the server: {error}"))
}
