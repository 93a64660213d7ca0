//! The layout of the Memcache Speed Test, with its units, and the same numbers as Markdown and CSV.

use std::fmt::Write;

use crate::speed::phases::{Phase, Preset};
use crate::speed::results::{PhaseResult, Results};

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, as upstream's
    #[default]
    Text,
    /// The record as one line, as --output adds it to a file
    Json,
    /// One line per phase, nanoseconds
    Csv,
    /// A table for a document
    Md,
}

/// A count or a rate, in upstream's units.
pub(crate) fn number(count: u64) -> String {
    match count {
        1_000_000.. => format!("{:.2}M", count as f64 / 1e6),
        1_000.. => format!("{:.2}K", count as f64 / 1e3),
        _ => count.to_string(),
    }
}

/// A time in upstream's units. Milliseconds are cut to whole microseconds first, as upstream does.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        1_000_000_000.. => format!("{:.2}s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.2}ms", (ns / 1_000) as f64 / 1e3),
        _ => format!("{:.2}µs", ns as f64 / 1e3),
    }
}

/// What stands above the phases.
pub(crate) fn head(server: &str, concurrency: usize, count: u64) -> String {
    let count = number(count);
    format!(
        "Memcache Speed Test\n===================\nServer:      {server}\nConcurrency: {concurrency}\n\
         Target:      {count} operations\n\n"
    )
}

/// What is said before a phase.
pub(crate) fn running(phase: &Phase, count: u64) -> String {
    format!("Running: {} with {} operations...\n", phase.name, number(count))
}

/// What is said after a phase.
pub(crate) fn completed(phase: &PhaseResult) -> String {
    format!(
        "  Completed: {} ops in {} ({:.0} ops/sec, {} avg latency)\n\n",
        number(phase.count),
        duration(phase.duration_ns),
        phase.rate(),
        duration(phase.upstream_average_ns)
    )
}

/// Upstream's table.
pub(crate) fn summary(preset: Preset, phases: &[PhaseResult]) -> String {
    let mut out = String::new();
    let mut row = |cells: [&str; 5]| {
        let [name, second, third, fourth, fifth] = cells;
        let third_width = if preset == Preset::Speed { 10 } else { 12 };
        let _ = writeln!(out, "{name:<20} {second:>12} {third:>third_width$} {fourth:>12} {fifth:>12}");
    };
    match preset {
        Preset::Speed => {
            row(["Operation", "Count", "Duration", "Ops/sec", "Avg Latency"]);
            row(["─────────", "─────", "────────", "───────", "───────────"]);
        }
        Preset::CmdBench => row(["Operation", "Count", "Ops/sec", "Items/sec", "Avg Latency"]),
    }
    for phase in phases {
        let (count, average) = (number(phase.count), duration(phase.upstream_average_ns));
        let rate = number(phase.rate() as u64);
        match preset {
            Preset::Speed => row([&phase.name, &count, &duration(phase.duration_ns), &rate, &average]),
            Preset::CmdBench => {
                let items = number((phase.rate() * phase.items_per_operation as f64) as u64);
                row([&phase.name, &count, &rate, &items, &average]);
            }
        }
    }
    match preset {
        Preset::Speed => format!("\nSummary\n=======\n{out}"),
        Preset::CmdBench => format!("\n{out}"),
    }
}

/// Our further columns: latencies of single operations, and what was wrong.
pub(crate) fn latencies(phases: &[PhaseResult]) -> String {
    let mut out = "\nLatency of single operations\n============================\n".to_string();
    let mut row = |cells: [&str; 7]| {
        let [name, mean, p50, p99, p99_9, max, errors] = cells;
        let _ = writeln!(out, "{name:<16} {mean:>10} {p50:>10} {p99:>10} {p99_9:>10} {max:>10} {errors:>7}");
    };
    row(["Operation", "Mean", "p50", "p99", "p99.9", "Max", "Errors"]);
    row(["─────────", "────", "───", "───", "─────", "───", "──────"]);
    for phase in phases {
        let latency = &phase.latency_ns;
        let [p50, p99, p99_9, max] = [latency.p50, latency.p99, latency.p99_9, latency.max].map(duration);
        let errors = number(phase.errors);
        row([&phase.name, &duration(latency.mean as u64), &p50, &p99, &p99_9, &max, &errors]);
    }
    out
}

/// One line for each phase in which something was not as it must be; nothing where all was well.
pub(crate) fn flaws(phases: &[PhaseResult]) -> String {
    let mut out = String::new();
    for phase in phases {
        let kinds = [
            (phase.errors, "errors"),
            (phase.unexpected, "found or missing where they must not be"),
            (phase.wrong, "wrong values"),
        ];
        let kinds = kinds.iter().filter(|(count, _)| *count > 0);
        let kinds: Vec<String> = kinds.map(|(count, name)| format!("{count} {name}")).collect();
        if !kinds.is_empty() {
            let first = phase.first_flaw.as_ref().map_or(String::new(), |text| format!("; first: {text}"));
            let _ = writeln!(out, "{}: {}{first}", phase.name, kinds.join(", "));
        }
    }
    out
}

/// A table with the columns of both.
pub(crate) fn markdown(results: &Results, incomplete: Option<&str>) -> String {
    let (server, workers, count) = (&results.server, results.concurrency, number(results.count));
    let mut out =
        format!("**Server**: {server} | **Concurrency**: {workers} | **Target**: {count} operations\n\n");
    out.push_str(
        "| Operation | Count | Duration | Ops/sec | Avg Latency | Mean | p50 | p99 | p99.9 | Max | Errors |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for phase in &results.phases {
        let latency = &phase.latency_ns;
        let times = [phase.upstream_average_ns, latency.mean as u64, latency.p50, latency.p99];
        let times = times.into_iter().chain([latency.p99_9, latency.max]).map(duration);
        let times = times.collect::<Vec<_>>().join(" | ");
        let (name, count, errors) = (&phase.name, number(phase.count), phase.errors);
        let (taken, rate) = (duration(phase.duration_ns), number(phase.rate() as u64));
        let _ = writeln!(out, "| {name} | {count} | {taken} | {rate} | {times} | {errors} |");
    }
    for line in flaws(&results.phases).lines() {
        let _ = writeln!(out, "\n{line}");
    }
    if let Some(why) = incomplete {
        let _ = writeln!(out, "\nIncomplete: {why}");
    }
    out
}

/// One line per phase.
pub(crate) fn csv(results: &Results) -> String {
    let mut out =
        "operation,items_per_operation,count,duration_ns,ops_per_sec,upstream_average_ns,mean_ns,p50_ns,\
                   p90_ns,p99_ns,p99_9_ns,max_ns,errors,unexpected,wrong\n"
            .to_string();
    for phase in &results.phases {
        let (name, items, count, taken) =
            (&phase.name, phase.items_per_operation, phase.count, phase.duration_ns);
        let (rate, average, latency) = (phase.rate(), phase.upstream_average_ns, &phase.latency_ns);
        let _ = write!(out, "{name},{items},{count},{taken},{rate:.1},{average},{:.0}", latency.mean);
        let numbers = [latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max];
        for number in numbers.into_iter().chain([phase.errors, phase.unexpected, phase.wrong]) {
            let _ = write!(out, ",{number}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::results::Latency;

    /// The first lines of upstream's own sample, with what its numbers follow from.
    fn sample() -> Vec<PhaseResult> {
        let phase = |name: &str, duration_ns: u64| PhaseResult {
            name: name.to_string(),
            items_per_operation: 1,
            count: 10_000,
            duration_ns,
            upstream_average_ns: duration_ns / 10_000,
            latency_ns: Latency {
                mean: 675_440.4,
                p50: 601_000,
                p90: 700_000,
                p99: 1_250_999,
                p99_9: 9_999_999,
                max: 1_005_000_000,
            },
            ..PhaseResult::default()
        };
        vec![
            phase("Get (miss)", 1_688_619_000),
            phase("Set", 1_791_501_000),
            phase("Increment", 2_261_701_000),
        ]
    }

    #[test]
    fn upstreams_sample_byte_for_byte() {
        let phases = sample();
        let running = running(&Preset::Speed.phases()[0], 10_000);
        let text = head("127.0.0.1:11211", 4, 10_000)
            + &running
            + &completed(&phases[0])
            + &summary(Preset::Speed, &phases);
        let expected = "\
Memcache Speed Test
===================
Server:      127.0.0.1:11211
Concurrency: 4
Target:      10.00K operations

Running: Get (miss) with 10.00K operations...
  Completed: 10.00K ops in 1.69s (5922 ops/sec, 168.86µs avg latency)


Summary
=======
Operation                   Count   Duration      Ops/sec  Avg Latency
─────────                   ─────   ────────      ───────  ───────────
Get (miss)                 10.00K      1.69s        5.92K     168.86µs
Set                        10.00K      1.79s        5.58K     179.15µs
Increment                  10.00K      2.26s        4.42K     226.17µs
";
        assert_eq!(text, expected);
    }

    #[test]
    fn further_columns_fit_a_terminal() {
        let text = latencies(&sample());
        let expected = "
Latency of single operations
============================
Operation              Mean        p50        p99      p99.9        Max  Errors
─────────              ────        ───        ───      ─────        ───  ──────
Get (miss)         675.44µs   601.00µs     1.25ms    10.00ms      1.00s       0
Set                675.44µs   601.00µs     1.25ms    10.00ms      1.00s       0
Increment          675.44µs   601.00µs     1.25ms    10.00ms      1.00s       0
";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn units_change_where_upstreams_do() {
        let numbers = [(0, "0"), (999, "999"), (1_000, "1.00K"), (999_999, "1000.00K"), (1_000_000, "1.00M")];
        for (count, text) in numbers {
            assert_eq!(number(count), text);
        }
        let times = [
            (1, "0.00µs"),
            (999_999, "1000.00µs"),
            (1_000_000, "1.00ms"),
            (1_009_999, "1.01ms"),
            (999_999_999, "1000.00ms"),
            (1_000_000_000, "1.00s"),
        ];
        for (ns, text) in times {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_every_layout() {
        let mut phases = sample();
        phases[1].errors = 3;
        phases[1].wrong = 1;
        phases[1].first_flaw = Some("SERVER_ERROR out of memory".to_string());
        let line = "Set: 3 errors, 1 wrong values; first: SERVER_ERROR out of memory\n";
        assert_eq!(flaws(&phases), line);
        let mut results = Results {
            preset: "speed".to_string(),
            protocol: "meta".to_string(),
            server: "127.0.0.1:11211".to_string(),
            concurrency: 4,
            count: 10_000,
            uid: 1,
            phases,
            shown: crate::report::figures::Shown::default(),
        };
        let markdown = markdown(&results, Some("interrupted"));
        assert!(markdown.contains("| Set | 10.00K | 1.79s | 5.58K | 179.15µs | 675.44µs |"), "{markdown}");
        assert!(markdown.ends_with("\nIncomplete: interrupted\n") && markdown.contains(line), "{markdown}");
        assert!(csv(&results).contains("\nSet,1,10000,1791501000,5581.9,179150,675440,601000,"));
        assert!(csv(&results).contains(",1005000000,3,0,1\n"));
        results.draw();
        let met: Vec<bool> = results.gates().iter().map(|gate| gate.is_met).collect();
        assert_eq!(met, [false, true, false]);
        assert_eq!(results.shown.figures.len(), 3);
    }
}
