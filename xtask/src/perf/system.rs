//! What a system of processes takes, read from /proc: a server, the processes it started, and the cores they share.

use std::fs;
use std::time::Duration;

use crate::error::Error;

/// A process, by its id and the time it was started at, so that the id's next owner is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    parent: u32,
    started: u64,
}

/// Times of one core since the machine was started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoreTimes {
    idle: u64,
    total: u64,
}

/// A process and what descends from it, the process itself first.
pub(super) fn family(root: u32) -> Result<Vec<Process>, Error> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.parse().ok()) {
            all.extend(process(id));
        }
    }
    match family_among(root, &all) {
        found if found.is_empty() => Err(Error::Failed("the server has ended".into())),
        found => Ok(found),
    }
}

impl Process {
    /// Whether it still runs: neither gone, nor ended and waiting for its parent to ask for its status.
    pub(super) fn is_running(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        parse_stat(&stat).is_some_and(|(state, process)| process.started == self.started && state != "Z")
    }

    /// CPU time of all its threads. It is exact, where the times in `stat` are in ticks of 10 ms; threads that have
    /// ended are left out.
    pub(super) fn cpu(self) -> Result<Duration, Error> {
        let mut sum_ns = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.id)).map_err(unreadable)? {
            // A thread may end between the listing and the reading.
            let path = task.map_err(unreadable)?.path().join("schedstat");
            let text = fs::read_to_string(path).unwrap_or_default();
            sum_ns += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(sum_ns))
    }

    /// A quantity of memory by its name in `status`, in bytes: `VmRSS` for what is resident, `VmHWM` for its peak.
    pub(super) fn memory_bytes(self, name: &str) -> Result<u64, Error> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).map_err(unreadable)?;
        kib_of(&status, name)
            .map(|kib| kib * 1024)
            .ok_or_else(|| Error::Failed(format!("no {name} of process {} in /proc", self.id)))
    }
}

impl CoreTimes {
    pub(super) fn now(core: usize) -> Result<Self, Error> {
        let text = fs::read_to_string("/proc/stat").map_err(unreadable)?;
        Self::parse(&text, core).ok_or_else(|| Error::Failed(format!("no core {core} in /proc/stat")))
    }

    fn parse(text: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core}");
        let mut fields = text.lines().map(str::split_whitespace).find_map(|mut fields| {
            let is_it = fields.next() == Some(name.as_str());
            is_it.then_some(fields)
        })?;
        // user nice system idle iowait irq softirq steal; what follows is contained in user and nice.
        let mut times = [0; 8];
        for time in &mut times {
            *time = fields.next()?.parse().ok()?;
        }
        Some(CoreTimes { idle: times[3] + times[4], total: times.iter().sum() })
    }

    /// The share of the time since `earlier` in which the core was not idle. That it had been given to another virtual
    /// machine counts as busy.
    pub(super) fn busy_since(self, earlier: Self) -> f64 {
        let total = (self.total - earlier.total).max(1) as f64;
        // The kernel's idle time may go back by a tick.
        1.0 - self.idle.saturating_sub(earlier.idle) as f64 / total
    }
}

/// The processor's name and the kernel's version; what is not known is `?`.
pub(super) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("?", |(_, model)| model.trim());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.split('-').next().map(str::trim).filter(|release| !release.is_empty());
    let is_virtual = cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    let kind = if is_virtual { " (virtual)" } else { "" };
    format!("{model}{kind}, Linux {}", release.unwrap_or("?"))
}

/// The cores that are one physical core with this one, as the kernel lists them.
pub(super) fn siblings(core: usize) -> String {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map_or("?".into(), |text| text.trim().into())
}

fn process(id: u32) -> Option<Process> {
    // It may have ended since it was listed.
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    parse_stat(&stat).map(|(_, process)| process)
}

/// State and process of one line of `stat`. The name, which may hold anything, ends at the last parenthesis.
fn parse_stat(text: &str) -> Option<(&str, Process)> {
    let id = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let parent = fields.get(1)?.parse().ok()?;
    let started = fields.get(19)?.parse().ok()?;
    Some((fields[0], Process { id, parent, started }))
}

fn family_among(root: u32, all: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = all.iter().copied().filter(|process| process.id == root).collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|process| process.parent == parent.id));
        next += 1;
    }
    found
}

fn kib_of(status: &str, name: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse().ok())
}

pub(super) fn unreadable(error: std::io::Error) -> Error {
    Error::Failed(format!("while watching the server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let check = |name: &str| {
            let text = format!("42 ({name}) S 7 {} 900 0 0", ["1"; 17].join(" "));
            assert_eq!(parse_stat(&text), Some(("S", Process { id: 42, parent: 7, started: 900 })), "{text}");
        };
        check("veracache");
        check("a b) R 1 (c");
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("42 (x) S 7"), None);
    }

    #[test]
    fn a_family_is_the_process_and_its_descendants() {
        let process = |(id, parent)| Process { id, parent, started: 0 };
        let all: Vec<Process> = [(1, 0), (9, 5), (5, 1), (6, 1), (7, 9), (8, 6)].map(process).to_vec();
        let check = |root: u32, expected: &[u32]| {
            let ids: Vec<u32> = family_among(root, &all).iter().map(|process| process.id).collect();
            assert_eq!(ids, expected, "of {root}");
        };
        check(5, &[5, 9, 7]);
        check(8, &[8]);
        check(77, &[]);
    }

    #[test]
    fn this_process_is_running_and_has_used_memory_and_time() {
        let me = family(std::process::id()).unwrap()[0];
        assert!(me.is_running());
        assert!(!Process { started: me.started + 1, ..me }.is_running());
        assert!(me.memory_bytes("VmHWM").unwrap() >= me.memory_bytes("VmRSS").unwrap() / 2);
        assert!(me.cpu().unwrap() > Duration::ZERO);
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        let check = |before: &str, after: &str, expected: f64| {
            let text =
                |times: &str| format!("cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 {times} 0 0\ncpu10 1 1 1 1 1 1 1 1\n");
            let times = |line: &str| CoreTimes::parse(&text(line), 1).unwrap();
            assert_eq!(times(after).busy_since(times(before)), expected, "{before} to {after}");
        };
        check("10 0 0 100 0 0 0 0", "20 0 40 140 10 0 0 0", 0.5);
        check("10 0 0 100 0 0 0 0", "70 0 15 100 0 0 0 25", 1.0);
        check("10 0 0 100 0 0 0 0", "20 0 0 99 0 0 0 0", 1.0);
        assert_eq!(CoreTimes::parse("cpu0 1 2\n", 0), None);
        assert_eq!(CoreTimes::parse("cpu0 1 2\n", 1), None);
    }

    #[test]
    fn memory_is_found_by_its_whole_name() {
        let status = "VmHWMx:\t 1 kB\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(kib_of(status, "VmHWM"), Some(2048));
        assert_eq!(kib_of(status, "VmRSS"), Some(1024));
        assert_eq!(kib_of(status, "VmSwap"), None);
    }
}
