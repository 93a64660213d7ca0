//! From arguments to settings, the way `getopt_long` reads them.
//!
//! What container charts pass is understood, too: one argument that holds a flag, a blank and its value, such
//! as `"-m 8192"`.

use super::extended::{EXTENDED, REFUSED, UNNAMED};
use super::table::{Action, Flag, Here, flags};
use super::{MIB, Port, Refusal, Settings, Slabs};

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Run a server.
    Run(Box<Settings>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Print the licence.
    License,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// A flag that does not exist, is refused, or has an argument that cannot be used.
pub fn parse(arguments: &[String]) -> Result<Outcome, Refusal> {
    let mut reader = Reader { rest: arguments.iter(), settings: Settings::default(), tcp_given: false };
    while let Some(argument) = reader.rest.next() {
        let outcome = match argument.strip_prefix('-') {
            Some("-") => break,
            Some(letters) => match letters.strip_prefix('-') {
                Some(long) => reader.long(long)?,
                None if !letters.is_empty() => reader.short(letters)?,
                None => reader.operand(argument),
            },
            None => reader.operand(argument),
        };
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
    }
    for argument in reader.rest.clone() {
        reader.operand(argument);
    }
    finish(reader.settings, reader.tcp_given).map(|settings| Outcome::Run(Box::new(settings)))
}

struct Reader<'a> {
    rest: std::slice::Iter<'a, String>,
    settings: Settings,
    tcp_given: bool,
}

impl Reader<'_> {
    /// `--name`, `--name=value`, `--name value` in one argument or two. A name may be cut short.
    fn long(&mut self, text: &str) -> Result<Option<Outcome>, Refusal> {
        let (name, attached) = match text.find(|c: char| c == '=' || c.is_whitespace()) {
            Some(end) => (&text[..end], Some(text[end + 1..].trim_start())),
            None => (text, None),
        };
        let flag = find_long(name)?;
        let shown = format!("--{}", flag.long);
        match (flag.argument, attached) {
            (None, None) => self.apply(flag, &shown, ""),
            (None, Some(_)) => Err(Refusal::value(format!("{shown} takes no argument"))),
            (Some(_), Some(value)) => self.apply(flag, &shown, value),
            (Some(_), None) => {
                let value = self.following(&shown)?;
                self.apply(flag, &shown, value)
            }
        }
    }

    /// One or more letters after a dash; the first that takes an argument ends them.
    fn short(&mut self, letters: &str) -> Result<Option<Outcome>, Refusal> {
        for (at, letter) in letters.char_indices() {
            let Some(flag) = flags().find(|flag| flag.short == Some(letter)) else {
                return Err(Refusal::value(format!("there is no flag -{letter}; -h lists them all")));
            };
            let shown = format!("-{letter}");
            if flag.argument.is_none() {
                if let Some(outcome) = self.apply(flag, &shown, "")? {
                    return Ok(Some(outcome));
                }
                continue;
            }
            let attached = letters[at + letter.len_utf8()..].trim_start();
            let value = if attached.is_empty() { self.following(&shown)? } else { attached };
            return self.apply(flag, &shown, value);
        }
        Ok(None)
    }

    fn following<'b>(&mut self, shown: &str) -> Result<&'b str, Refusal>
    where
        Self: 'b,
    {
        match self.rest.next() {
            Some(value) => Ok(value),
            None => Err(Refusal::value(format!("{shown} needs an argument; -h says which"))),
        }
    }

    fn apply(&mut self, flag: &Flag, shown: &str, value: &str) -> Result<Option<Outcome>, Refusal> {
        match flag.here {
            Here::Refused(why) => return Err(Refusal::usage(format!("{shown}: {why}"))),
            Here::Warned(why) if !matches!(value, "" | "0") => {
                self.settings.warnings.push(format!("{shown} {value}: {why}"));
            }
            _ => {}
        }
        self.tcp_given |= flag.short == Some('p');
        match flag.action {
            Action::Set(set) => set(&mut self.settings, value)?,
            Action::Extended => self.extended(value)?,
            Action::Help => return Ok(Some(Outcome::Help)),
            Action::Version => return Ok(Some(Outcome::Version)),
            Action::License => return Ok(Some(Outcome::License)),
            Action::Nothing => {}
        }
        Ok(None)
    }

    /// The comma-separated options of `-o`.
    fn extended(&mut self, text: &str) -> Result<(), Refusal> {
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            if UNNAMED.contains(&name) {
                continue;
            }
            let bare = name.strip_prefix("no_").unwrap_or(name);
            if let Some((_, why)) = REFUSED.iter().find(|(family, _)| bare.starts_with(family)) {
                return Err(Refusal::usage(format!("-o {name}: {why}")));
            }
            let Some(row) = EXTENDED.iter().find(|row| row.name == name) else {
                return Err(Refusal::value(format!(
                    "Illegal suboption \"{option}\"; -h lists those there are"
                )));
            };
            if let (Some(argument), None) = (row.argument, value)
                && !argument.starts_with('[')
            {
                return Err(Refusal::value(format!("Missing {name} argument: -o {name}={argument}")));
            }
            if let Here::Warned(why) = row.here {
                self.settings.warnings.push(format!("-o {name}: {why}"));
            }
            (row.set)(&mut self.settings, value.unwrap_or("").trim())?;
        }
        Ok(())
    }

    /// memcached ignores what is no flag; so do we, but not silently.
    fn operand(&mut self, argument: &str) -> Option<Outcome> {
        self.settings.warnings.push(format!("\"{argument}\" is no flag and is ignored; -h lists the flags"));
        None
    }
}

/// A long name, or the beginning of exactly one.
fn find_long(name: &str) -> Result<&'static Flag, Refusal> {
    if let Some(flag) = flags().find(|flag| flag.long == name) {
        return Ok(flag);
    }
    let mut begun = flags().filter(|flag| !name.is_empty() && flag.long.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(flag), None) => Ok(flag),
        (None, _) => Err(Refusal::value(format!("there is no flag --{name}; -h lists them all"))),
        (Some(one), Some(other)) => {
            Err(Refusal::value(format!("--{name} could be --{} or --{}; write it out", one.long, other.long)))
        }
    }
}

/// The checks that look at more than one flag.
fn finish(mut settings: Settings, tcp_given: bool) -> Result<Settings, Refusal> {
    if settings.udp_port != Port::Off && !tcp_given {
        settings.tcp_port = settings.udp_port;
    }
    let is_reachable = settings.unix_socket.is_some()
        || settings.tcp_port != Port::Off
        || settings.line_port != Port::Off
        || settings.listen.iter().any(|listen| listen.port.is_some());
    if !is_reachable {
        // memcached starts all the same, and so do we.
        settings
            .warnings
            .push("nobody can reach this server: -p is 0, and there is no -s and no port in -l".into());
    }
    if settings.protect_sync && !settings.records() {
        let name = settings.protect.name();
        settings.warnings.push(format!(
            "--protect-sync has no effect with --protect {name}: no executions are repeated elsewhere"
        ));
    }
    let item_bytes = u64::from(settings.item_bytes_max);
    if item_bytes < 1024 {
        return Err(Refusal::usage("Item max size cannot be less than 1024 bytes. Give -I 1k or more."));
    }
    if settings.memory_bytes < MEMORY_BYTES_MIN {
        return Err(Refusal::usage("-m: a cache needs at least 2 megabytes"));
    }
    if item_bytes > 1024 * MIB {
        return Err(Refusal::usage(
            "Cannot set item size limit higher than a gigabyte. Give -I 1024m or less.",
        ));
    }
    if item_bytes > settings.memory_bytes / 2 {
        return Err(Refusal::usage(
            "Cannot set item size limit higher than 1/2 of memory max. Lower -I or raise -m.",
        ));
    }
    settings.slabs.chunk_bytes_max = chunk_bytes_max(&settings.slabs, settings.item_bytes_max)?;
    if settings.lru.hot_pct + settings.lru.warm_pct > 80 {
        return Err(Refusal::usage("hot_lru_pct + warm_lru_pct cannot be more than 80% combined"));
    }
    if settings.lru.temporary_ttl.is_some() && !settings.lru.maintainer {
        return Err(Refusal::usage("temporary_ttl requires lru_maintainer to be enabled"));
    }
    if settings.napi_ids > settings.threads {
        return Err(Refusal::usage(format!(
            "Number of napi_ids({}) cannot be greater than number of threads({})",
            settings.napi_ids, settings.threads
        )));
    }
    Ok(settings)
}

/// Below this the table, the index and one segment for each worker leave no room for items.
const MEMORY_BYTES_MIN: u64 = 2 * MIB;

/// The largest chunk, which cannot be larger than the largest item or a page.
///
/// The argument is in kilobytes. Older versions took bytes, so what is too large for the one is read as the other.
fn chunk_bytes_max(slabs: &Slabs, item_bytes_max: u32) -> Result<u32, Refusal> {
    let limit = item_bytes_max.min(MIB as u32);
    let asked = slabs.chunk_bytes_max;
    if asked == Slabs::default().chunk_bytes_max || asked <= limit {
        return Ok(asked.min(limit));
    }
    let in_bytes = asked >> 10;
    if in_bytes <= limit {
        return Ok(in_bytes);
    }
    Err(Refusal::usage(format!(
        "slab_chunk_max (bytes: {asked}) cannot be larger than -I (item_size_max {item_bytes_max})"
    )))
}
