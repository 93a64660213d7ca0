//! Who gets which CPUs, how many worker threads, and which port.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Error;
use crate::protect::system::System;
use crate::random::Random;

/// Ports of a range that are tried before it is called full.
const PORT_ATTEMPTS: usize = 200;

/// More worker threads than this are a slip of the finger.
const GROUPS_MAX: usize = 1024;

/// Whose CPUs are whose.
#[derive(Clone, Debug, Args)]
pub struct Placing {
    /// How CPUs and worker threads are given to systems
    #[arg(long, value_enum, default_value_t = Preset::Fair)]
    pub preset: Preset,
    /// Worker threads of every system [default: of the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=GROUPS_MAX as i64))]
    pub groups: Option<u16>,
    /// Worker threads of one system; may be repeated
    #[arg(long, value_name = "SYSTEM=N")]
    pub groups_of: Vec<GroupsOf>,
    /// CPUs of every server, as 0-3,6 [default: of the preset]
    #[arg(long, value_name = "LIST")]
    pub server_cpus: Option<Cpus>,
    /// CPUs of the load generator [default: of the preset]
    #[arg(long, value_name = "LIST")]
    pub client_cpus: Option<Cpus>,
    /// Let the system decide who runs where
    #[arg(long)]
    pub no_pin: bool,
    /// Servers listen on a free port from here on [default: any free port]
    #[arg(long, value_name = "PORT", requires = "port_end", value_parser = clap::value_parser!(u16).range(1..))]
    pub port_start: Option<u16>,
    /// ... and before this one
    #[arg(long, value_name = "PORT", requires = "port_start", value_parser = clap::value_parser!(u16).range(2..))]
    pub port_end: Option<u16>,
}

/// Ways to share CPUs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Preset {
    /// The same CPUs for all processes of every system, up to 4, one worker each; the generator has others
    Fair,
    /// As the experiments' fair4c: 4 CPUs for every server, 8, 8, 6 and 4 workers
    Fair4c,
    /// As published: validators and the replica have CPUs beside those of vanilla; 3 workers
    Artifact,
}

/// CPUs by their numbers, ascending.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cpus(pub Vec<usize>);

/// The value of `--groups-of`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupsOf {
    system: System,
    groups: u16,
}

/// What one system gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Who.
    pub system: System,
    /// For all its processes.
    pub server: Cpus,
    /// For whoever loads it.
    pub client: Cpus,
    /// Worker threads.
    pub groups: usize,
}

impl Cpus {
    /// Those this process may use.
    pub fn available() -> Self {
        let all =
            sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect());
        let cpus: Vec<usize> = all.unwrap_or_default();
        Cpus(if cpus.is_empty() { vec![0] } else { cpus })
    }

    /// This thread, and what it starts from here on, runs nowhere else.
    pub fn pin_this_thread(&self) -> Result<(), Error> {
        let mut set = CpuSet::new();
        self.0.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set).map_err(|error| {
            Error::Usage(format!(
                "the generator can't run on CPUs {self}: {error}; there are {}",
                Cpus::available()
            ))
        })
    }

    fn first(&self, count: usize) -> Self {
        Cpus(self.0.iter().copied().take(count.max(1)).collect())
    }

    /// The others; all if there are none.
    fn without(&self, taken: &Cpus) -> Self {
        let rest: Vec<usize> = self.0.iter().copied().filter(|cpu| !taken.0.contains(cpu)).collect();
        if rest.is_empty() { self.clone() } else { Cpus(rest) }
    }
}

impl fmt::Display for Cpus {
    /// As `taskset` takes it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|one, next| one + 1 == *next);
        for (number, run) in runs.enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match run {
                [one] => write!(out, "{comma}{one}")?,
                _ => write!(out, "{comma}{}-{}", run[0], run[run.len() - 1])?,
            }
        }
        Ok(())
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no list of CPUs; write it as 0-3,6");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong())?;
            let last: usize = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last >= CpuSet::MAX_CPU {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Cpus(cpus))
    }
}

impl FromStr for GroupsOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, count) = text.split_once('=').ok_or("write it as rbv=4")?;
        let system = System::from_str(name, true)?;
        let count: u16 = count.parse().map_err(|_| format!("'{count}' is no number of threads"))?;
        if count == 0 || usize::from(count) > GROUPS_MAX {
            return Err(format!("from 1 to {GROUPS_MAX} threads"));
        }
        Ok(GroupsOf { system, groups: count })
    }
}

impl Placing {
    /// What each system gets on a machine with these CPUs.
    pub fn layouts(&self, systems: &[System], all: &Cpus) -> Vec<Layout> {
        systems.iter().map(|system| self.layout(*system, all)).collect()
    }

    fn layout(&self, system: System, all: &Cpus) -> Layout {
        let (server, client, groups) = self.preset.place(system, all);
        let server = self.server_cpus.clone().unwrap_or(server);
        // The generator keeps off CPUs that were asked for by name.
        let client = match (&self.client_cpus, &self.server_cpus) {
            (Some(client), _) => client.clone(),
            (None, Some(_)) => all.without(&server),
            (None, None) => client,
        };
        let own = self.groups_of.iter().rev().find(|of| of.system == system).map(|of| of.groups);
        let groups = own.or(self.groups).map_or(groups.unwrap_or(server.0.len()), usize::from);
        Layout { system, server, client, groups }
    }

    /// Whether servers and generator are kept on their CPUs.
    pub fn pins(&self) -> bool {
        !self.no_pin
    }

    /// A port for a server, if a range was asked for: one that is free on loopback now.
    pub fn port(&self, random: &mut Random) -> Result<Option<u16>, Error> {
        let (Some(start), Some(end)) = (self.port_start, self.port_end) else { return Ok(None) };
        if start >= end {
            return Err(Error::Usage(format!("no port from {start} on is before {end}")));
        }
        for _ in 0..PORT_ATTEMPTS {
            let offset = u16::try_from(random.below(u64::from(end - start))).unwrap_or(0);
            if TcpListener::bind((Ipv4Addr::LOCALHOST, start + offset)).is_ok() {
                return Ok(Some(start + offset));
            }
        }
        Err(Error::Unavailable(format!("no free port found from {start} to {end}; widen the range")))
    }
}

impl Preset {
    /// CPUs of server and client, and worker threads where they are not as many as CPUs.
    fn place(self, system: System, all: &Cpus) -> (Cpus, Cpus, Option<usize>) {
        let count = all.0.len();
        match self {
            Preset::Fair => {
                let server = all.first(4.min(count / 2));
                (server.clone(), all.without(&server), None)
            }
            Preset::Fair4c => {
                let server = all.first(4.min(count));
                let groups = match system {
                    System::Vanilla | System::Sei => 8,
                    System::Orthrus | System::OrthrusSync => 6,
                    System::Rbv | System::RbvSync => 4,
                };
                (server.clone(), all.without(&server), Some(groups))
            }
            Preset::Artifact => {
                let few = 4.min((count / 4).max(1));
                let many = 8.min(count / 2).max(few);
                let server = match system {
                    System::Vanilla | System::Sei => all.first(few),
                    System::Orthrus | System::OrthrusSync => all.first(many),
                    System::Rbv | System::RbvSync => all.first(2 * few),
                };
                let taken = all.first(many.max(2 * few));
                (server, all.without(&taken), Some(3))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        placing: Placing,
    }

    fn placing(arguments: &str) -> Placing {
        use clap::Parser;
        Only::try_parse_from(std::iter::once("x").chain(arguments.split_whitespace()))
            .expect("arguments")
            .placing
    }

    fn places(arguments: &str, cpus: usize) -> Vec<String> {
        let all = Cpus((0..cpus).collect());
        let systems = [System::Vanilla, System::Orthrus, System::Rbv];
        let layouts = placing(arguments).layouts(&systems, &all);
        let text = |it: &Layout| format!("{} x{} from {}", it.server, it.groups, it.client);
        layouts.iter().map(text).collect()
    }

    #[test]
    fn presets() {
        let check = |arguments: &str, cpus, expected: [&str; 3]| {
            assert_eq!(places(arguments, cpus), expected, "{arguments} on {cpus}");
        };
        check("", 1, ["0 x1 from 0"; 3]);
        check("", 2, ["0 x1 from 1"; 3]);
        check("", 6, ["0-2 x3 from 3-5"; 3]);
        check("", 48, ["0-3 x4 from 4-47"; 3]);
        check("--preset fair4c", 8, ["0-3 x8 from 4-7", "0-3 x6 from 4-7", "0-3 x4 from 4-7"]);
        check("--preset fair4c", 2, ["0-1 x8 from 0-1", "0-1 x6 from 0-1", "0-1 x4 from 0-1"]);
        check("--preset artifact", 48, ["0-3 x3 from 8-47", "0-7 x3 from 8-47", "0-7 x3 from 8-47"]);
        check("--preset artifact", 2, ["0 x3 from 0-1", "0 x3 from 0-1", "0-1 x3 from 0-1"]);
        check("--groups 2 --groups-of rbv=5", 4, ["0-1 x2 from 2-3", "0-1 x2 from 2-3", "0-1 x5 from 2-3"]);
        check("--server-cpus 1,3", 4, ["1,3 x2 from 0,2"; 3]);
        check("--server-cpus 1 --client-cpus 1-2", 4, ["1 x1 from 1-2"; 3]);
    }

    #[test]
    fn lists_of_cpus() {
        for (text, shown) in [("0", "0"), ("3,1,2", "1-3"), ("0-2,5,7-8,1", "0-2,5,7-8"), ("0, 2", "0,2")] {
            assert_eq!(text.parse::<Cpus>().expect(text).to_string(), shown);
        }
        for text in ["", "a", "2-1", "1-", "-1", "0,,1", "0-99999999999", "1023-1024"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        for text in ["rbv", "rbv=0", "rbv=x", "paxos=1", "rbv=9999"] {
            assert!(text.parse::<GroupsOf>().is_err(), "{text}");
        }
    }

    #[test]
    fn ports_are_in_their_range_and_free() {
        let mut random = Random::new(1);
        assert_eq!(placing("").port(&mut random).expect("none asked for"), None);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let only = format!("--port-start {port} --port-end {}", u32::from(port) + 1);
        if port < u16::MAX {
            let error = placing(&only).port(&mut random).expect_err("it is taken");
            assert_eq!(error.exit_code(), 69, "{error}");
        }
        let error = placing("--port-start 9 --port-end 8").port(&mut random).expect_err("empty");
        assert_eq!(error.exit_code(), 2, "{error}");
        let found = placing("--port-start 20000 --port-end 60000").port(&mut random).expect("one is free");
        assert!(found.is_some_and(|port| (20_000..60_000).contains(&port)), "{found:?}");
    }
}
