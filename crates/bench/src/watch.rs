//! What processes cost, as the system counts it: CPU time, memory, and what was stolen from the machine.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Samples of memory that are kept; beyond them every second one is dropped and the period doubles.
const SAMPLES_MAX: usize = 4096;

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CpuTime {
    /// In the program's own code.
    pub user: f64,
    /// In the kernel on its behalf.
    pub system: f64,
}

impl CpuTime {
    /// Both together.
    pub fn total(&self) -> f64 {
        self.user + self.system
    }

    /// What was used since an earlier moment.
    pub fn since(&self, earlier: CpuTime) -> CpuTime {
        CpuTime { user: (self.user - earlier.user).max(0.0), system: (self.system - earlier.system).max(0.0) }
    }

    /// The sum of two.
    pub fn plus(&self, other: CpuTime) -> CpuTime {
        CpuTime { user: self.user + other.user, system: self.system + other.system }
    }
}

/// A process and all that it started, seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    pid: u32,
}

impl Processes {
    /// The process with this number and its children, their children, and so on.
    pub fn of(pid: u32) -> Result<Self, Error> {
        let processes = Processes { pid };
        match stat(pid) {
            Some(_) => Ok(processes),
            None => Err(Error::Unavailable(format!("there is no process {pid}"))),
        }
    }

    /// The numbers of those that run now, the first one in front.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.pid];
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            next += 1;
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                pids.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            }
        }
        pids
    }

    /// CPU time of all of them since they began, in steps of the system's tick (10 ms as a rule). A child that has
    /// ended counts once its parent has waited for it.
    pub fn cpu(&self) -> CpuTime {
        let times = self.pids().into_iter().filter_map(stat);
        times.fold(CpuTime::default(), |sum, stat| sum.plus(stat.cpu))
    }

    /// CPU time of each thread of the first process alone, by its number.
    pub fn threads(&self) -> Vec<(u32, CpuTime)> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        let numbers = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter_map(|thread| Some((thread, thread_cpu(self.pid, thread)?))).collect()
    }

    /// Bytes of memory that all of them have now; pages that they share count for each.
    pub fn rss_bytes(&self) -> u64 {
        self.pids().into_iter().filter_map(stat).map(|stat| stat.rss_bytes).sum()
    }

    /// Begins to note their memory every so often, until the sampler is asked for it.
    pub fn sample_rss(self, period: Duration) -> Result<RssSampler, Error> {
        let shared = Arc::new(Shared { ends: AtomicBool::new(false), samples: Mutex::default() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("rss".to_string());
        let thread = thread.spawn(move || sample(self, period, &theirs));
        Ok(RssSampler { shared, thread: Some(thread.map_err(Error::io("starting a thread"))?) })
    }
}

/// CPU time of one thread of a process.
pub fn thread_cpu(pid: u32, thread: u32) -> Option<CpuTime> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?).map(|stat| stat.cpu)
}

struct Stat {
    cpu: CpuTime,
    rss_bytes: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14, 15 and 24 of proc(5)'s table. The name in field 2 may hold blanks and brackets itself.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| words.get(field - 3)?.parse::<u64>().ok();
    let ticks = procfs::ticks_per_second() as f64;
    let cpu = CpuTime { user: number(14)? as f64 / ticks, system: number(15)? as f64 / ticks };
    Some(Stat { cpu, rss_bytes: number(24)? * procfs::page_size() })
}

/// Memory at a moment.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct RssSample {
    /// Seconds since sampling began.
    pub at: f64,
    /// Bytes.
    pub bytes: u64,
}

struct Shared {
    ends: AtomicBool,
    samples: Mutex<Vec<RssSample>>,
}

/// Notes the memory of processes in the background.
#[derive(Debug)]
pub struct RssSampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Shared")
    }
}

impl RssSampler {
    /// Ends sampling. The first and the last moment are among the samples, whatever the period is.
    pub fn finish(mut self) -> Vec<RssSample> {
        self.end();
        std::mem::take(&mut self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, what it noted is still there.
            let _ = thread.join();
        }
    }
}

impl Drop for RssSampler {
    fn drop(&mut self) {
        self.end();
    }
}

fn sample(processes: Processes, mut period: Duration, shared: &Shared) {
    let began = Instant::now();
    loop {
        let ends = shared.ends.load(Ordering::Relaxed);
        let taken = RssSample { at: began.elapsed().as_secs_f64(), bytes: processes.rss_bytes() };
        let mut samples = shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(taken);
        if samples.len() >= SAMPLES_MAX {
            let mut number = 0_usize;
            samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            period *= 2;
        }
        drop(samples);
        if ends {
            return;
        }
        thread::park_timeout(period);
    }
}

/// What the machine's CPUs did since it was started, in seconds of CPU.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    /// All together.
    pub total: f64,
    /// Nothing, or waiting for disks.
    pub idle: f64,
    /// Kept from this machine by the one that hosts it.
    pub steal: f64,
}

impl Machine {
    /// Now. All zero where the system does not tell.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let Some(line) = text.lines().next().and_then(|line| line.strip_prefix("cpu ")) else {
            return Machine::default();
        };
        let ticks = procfs::ticks_per_second() as f64;
        let numbers: Vec<f64> =
            line.split_whitespace().filter_map(|word| Some(word.parse::<f64>().ok()? / ticks)).collect();
        let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; what guests get is part of user.
        Machine { total: numbers.iter().take(8).sum(), idle: at(3) + at(4), steal: at(7) }
    }

    /// What was done since an earlier moment.
    pub fn since(&self, earlier: Machine) -> Machine {
        Machine {
            total: self.total - earlier.total,
            idle: self.idle - earlier.idle,
            steal: self.steal - earlier.steal,
        }
    }

    /// The share of all CPU time that was stolen, 0 to 1.
    pub fn steal_share(&self) -> f64 {
        if self.total > 0.0 { self.steal / self.total } else { 0.0 }
    }

    /// The share of all CPU time in which there was nothing to do, 0 to 1.
    pub fn idle_share(&self) -> f64 {
        if self.total > 0.0 { self.idle / self.total } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_line_of_proc_is_read() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 99 4096 12 0";
        let stat = parse_stat(&format!("7 (a) b) {rest}")).unwrap();
        let ticks = procfs::ticks_per_second() as f64;
        assert_eq!(stat.cpu, CpuTime { user: 250.0 / ticks, system: 50.0 / ticks });
        assert_eq!(stat.rss_bytes, 12 * procfs::page_size());
        assert!(parse_stat("7 (a) S 1").is_none());
    }

    #[test]
    fn our_own_cpu_time_grows() {
        let own = Processes::of(std::process::id()).unwrap();
        let before = own.cpu();
        let mut word = 1_u64;
        while own.cpu().since(before).total() < 0.05 {
            (0..100_000).for_each(|_| word = black_box(word.wrapping_mul(3)));
        }
        assert!(own.threads().iter().any(|(_, cpu)| cpu.total() > 0.0));
        assert!(Machine::now().total > 0.0);
    }

    #[test]
    fn children_count() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pids = Processes::of(std::process::id()).unwrap().pids();
        assert!(pids.contains(&child.id()), "{pids:?}");
        let theirs = Processes::of(child.id()).unwrap();
        assert_eq!(theirs.pids(), [child.id()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Processes::of(child.id()).is_err());
    }

    #[test]
    fn memory_is_sampled() {
        let own = Processes::of(std::process::id()).unwrap();
        let sampler = own.sample_rss(Duration::from_micros(100)).unwrap();
        let held = vec![1_u8; 64 << 20];
        let now = own.rss_bytes();
        let samples = sampler.finish();
        assert!(held.iter().all(|byte| *byte == 1));
        assert!(now > 64 << 20);
        assert!(samples.len() >= 2, "the first and the last moment");
        assert!(samples.len() < SAMPLES_MAX);
        assert!(samples.last().unwrap().bytes > 64 << 20);
    }
}
