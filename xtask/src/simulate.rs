//! `cargo xtask simulate`: how log-structured segments compare with slab classes, by simulation.
//!
//! Every cache gets the same requests and the same memory, with all it needs (headers, rounding, index, ghosts,
//! open segments) charged against it. `docs/design/0002-segments-and-eviction.md` has the conclusions.

mod cache;
mod contenders;
mod memcached;
mod pages;
mod report;
mod segments;
mod workload;
mod zipf;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::error::Error;
use contenders::Contender;
use workload::{Outcome, Trace, WORKLOADS};

const SEED_DEFAULT: u64 = 1;

const USAGE: &str = "usage: cargo xtask simulate [--seed N] [--workload NAME] [--quick]";

struct Options {
    seed: u64,
    workload: Option<String>,
    quick: bool,
}

/// Runs the simulation and prints its tables.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    let options = parse(args)?;
    let start = Instant::now();
    println!("seed {}, {} scale", options.seed, if options.quick { "quick" } else { "full" });
    for workload in WORKLOADS {
        if options.workload.as_ref().is_some_and(|name| name != workload.name) {
            continue;
        }
        let workload = if options.quick { workload.quick() } else { workload };
        let trace = Trace::new(workload, options.seed);
        let contenders = contenders::for_workload(workload.name);
        let outcomes = replay_all(&trace, &contenders);
        print!("{}", report::table(&trace.workload, &contenders, &outcomes));
    }
    eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, Error> {
    let mut options = Options { seed: SEED_DEFAULT, workload: None, quick: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match (arg.as_str(), &mut args) {
            ("--quick", _) => options.quick = true,
            ("--seed", rest) => {
                let seed = rest.next().and_then(|seed| seed.parse().ok());
                options.seed = seed.ok_or_else(|| Error::Usage("--seed takes a number".to_string()))?;
            }
            ("--workload", rest) => {
                let known = |name: &&String| WORKLOADS.iter().any(|workload| workload.name == **name);
                let names = WORKLOADS.map(|workload| workload.name).join(", ");
                let name = rest.next().filter(known);
                options.workload = Some(
                    name.cloned().ok_or_else(|| Error::Usage(format!("--workload takes one of {names}")))?,
                );
            }
            _ => return Err(Error::Usage(format!("unknown argument '{arg}'; {USAGE}"))),
        }
    }
    Ok(options)
}

/// Replays the trace for every contender, as many at a time as there are cores. The outcomes do not depend on it.
fn replay_all(trace: &Trace, contenders: &[Contender]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Outcome::default(); contenders.len()]);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: the counter only hands out numbers; results are published by the lock and the join.
                while let Some((index, contender)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| Some((index, contenders.get(index)?)))
                {
                    let start = Instant::now();
                    let outcome = trace.replay(contender.build(&trace.workload).as_mut());
                    let seconds = start.elapsed().as_secs_f64();
                    eprintln!("{}: {} ({seconds:.1} s)", trace.workload.name, contender.name);
                    outcomes.lock().expect("no thread panics while it holds the lock")[index] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().expect("no thread panicked while it held the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn arguments_are_read_or_refused_in_one_line() {
        let options = parse(&args("--seed 7 --quick --workload ttl")).expect("valid");
        assert_eq!((options.seed, options.quick, options.workload.as_deref()), (7, true, Some("ttl")));
        for bad in ["--seed", "--seed x", "--workload", "--workload none", "--fast"] {
            let Err(Error::Usage(message)) = parse(&args(bad)) else { panic!("'{bad}' was accepted") };
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_table() {
        let table = || {
            let workload = WORKLOADS[2].quick();
            let trace = Trace::new(workload, 5);
            let contenders = contenders::for_workload(workload.name);
            report::table(&workload, &contenders, &replay_all(&trace, &contenders))
        };
        assert_eq!(table(), table());
    }

    #[test]
    fn no_cache_misses_less_than_one_without_limit() {
        for workload in WORKLOADS.map(workload::Workload::quick) {
            let trace = Trace::new(workload, 3);
            let contenders = contenders::references();
            let outcomes = replay_all(&trace, &contenders);
            let unlimited = contenders.iter().position(|contender| contender.name == "no limit");
            let floor = outcomes[unlimited.expect("a row")].misses;
            for (contender, outcome) in contenders.iter().zip(&outcomes) {
                assert!(outcome.misses >= floor, "{} {}", workload.name, contender.name);
            }
        }
    }
}
