//! A process without descriptors left. One test in a process of its own, as the limit is the process's.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::{Client, settings, start};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::settings::{Protect, Settings};

fn allow(current: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).expect("allowed");
}

/// Time that all threads of this process have spent.
fn cpu_time(stat: &File) -> Duration {
    let mut bytes = [0; 1024];
    let count = stat.read_at(&mut bytes, 0).expect("Linux");
    let text = String::from_utf8_lossy(&bytes[..count]);
    let (_, fields) = text.rsplit_once(')').expect("a name in parentheses");
    let ticks: u64 =
        fields.split(' ').skip(12).take(2).map(|word| word.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn no_descriptors_left() {
    // A replica needs descriptors as well, which would be another shortage.
    let server = start(Settings { protect: Protect::Vanilla, ..settings() });
    let mut first = Client::to(&server);
    first.check("mn\r\n", "MN\r\n");
    let usual = getrlimit(Resource::Nofile).current.expect("a limit");
    // Descriptors are given out from the lowest: room for the client's end of a connection, and not for the server's.
    let stat = File::open("/proc/self/stat").expect("Linux");
    let next = File::open("/dev/null").expect("there").as_raw_fd() as u64;
    allow(next + 1);
    let mut waiting = Client::to(&server);
    waiting.send("mn\r\n");
    while first.stat("accepting_conns") == 1 {}
    assert!(first.stat("listen_disabled_num") >= 1);
    let (begin, spent) = (Instant::now(), cpu_time(&stat));
    let pauses = first.stat("listen_disabled_num");
    // A server that polls its listener all the time would use up a core meanwhile.
    while begin.elapsed() < Duration::from_millis(300) {
        std::thread::park_timeout(Duration::from_millis(300));
    }
    let spent = cpu_time(&stat) - spent;
    assert!(spent < Duration::from_millis(150), "{spent:?} for waiting");
    assert_eq!(first.stat("listen_disabled_num"), pauses, "one shortage is one pause");
    allow(usual);
    waiting.expect("MN\r\n");
    assert_eq!(first.stat("accepting_conns"), 1);
    Client::to(&server).check("mn\r\n", "MN\r\n");
}
