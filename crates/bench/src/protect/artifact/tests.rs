//! The layouts, as the scripts of the experiments read them.

use super::*;

/// Latencies below 2048 ns are told apart exactly.
fn phase(requests: u64, seconds: f64, latencies_ns: &[u64]) -> Phase {
    let mut latency = Histogram::new();
    latencies_ns.iter().for_each(|ns| latency.record(*ns, 1));
    Phase { requests, seconds, latency }
}

fn phases() -> Phases {
    Phases {
        set: phase(1000, 0.5, &[900, 1100]),
        update: phase(1000, 0.25, &[1000; 90]),
        get: phase(3000, 1.0, &[2000; 10]),
    }
}

#[test]
fn throughput_is_that_of_the_experiments() {
    let phases = phases();
    assert!((phases.throughput(None) - 3500.0).abs() < 1e-9);
    // All 4000 requests in 1.25 s.
    assert!((phases.throughput(Some(0.75)) - 3200.0).abs() < 1e-9);
    assert!(Phases::default().throughput(None).abs() < 1e-9);
    assert!(Phases::default().throughput(Some(0.5)).abs() < 1e-9);
}

#[test]
fn the_throughput_report() {
    let systems = [(System::Vanilla, 373_808.5), (System::OrthrusSync, 361_216.0), (System::RbvSync, 1.25)];
    let text = "vanilla running\nthroughput: 373808.5\n\
                orthrus_sync running\nthroughput: 361216.0\n\
                rbv_sync running\nthroughput: 1.2\n";
    assert_eq!(throughput_text(&systems), text);
}

#[test]
fn the_throughput_report_in_json() {
    let own = json!({ "validated_share": 1.0 });
    let found = throughput_json(vec![
        (System::Vanilla, dictionary(&phases(), None, Value::Null)),
        (System::Orthrus, dictionary(&phases(), Some(0.75), own)),
    ]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    // As `throughput.py` and `tail-latency.py` reach for it.
    assert_eq!(found["vanilla"]["throughput"], 3500.0);
    assert_eq!(found["orthrus"]["throughput"], 3200.0);
    let latency = &found["vanilla"]["latency_req"];
    // 90 times 1 µs and 10 times 2 µs, merged: the mean of two 95th percentiles would be 1.5.
    assert_eq!([&latency["p90"], &latency["p95"], &latency["p99"]], [1.0, 2.0, 2.0]);
    assert_eq!(latency["avg"], 1.1);
    assert_eq!(found["vanilla"]["duration"], Value::Null);
    assert_eq!(found["vanilla"]["throughput_update"], 4000.0);
    assert_eq!(found["vanilla"].get("read_pct"), None);
    assert_eq!(found["orthrus"]["read_pct"], 0.75);
    assert_eq!(found["orthrus"]["nupdates"], 1000);
    assert_eq!(found["orthrus"]["veracache"]["validated_share"], 1.0);
}

#[test]
fn latency_is_a_list() {
    let text = latency_json(vec![dictionary(&phases(), None, Value::Null); 2]);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found.as_array().map(Vec::len), Some(2));
    assert_eq!(found[1]["latency_req"]["p95"], 2.0);
    // The scripts open it as ASCII.
    assert!(text.is_ascii());
}

#[test]
fn the_clients_log() {
    let text = "client setting ngroups=3, nclients=32, nsets=1000, ngets=94, rps=0\n\
                SET put 2000 avg 1000 p90 1100 p95 1100 p99 1100\n\
                UPDATE put 4000 avg 1000 p90 1000 p95 1000 p99 1000\n\
                GET put 3000 avg 2000 p90 2000 p95 2000 p99 2000\n";
    assert_eq!(client_log(3, 32, 94, &phases()), text);
}

/// As `validation-latency.py` reads it: without two lines in front and three behind, the first two words of each.
#[test]
fn the_distribution_of_validation_latency() {
    let counts = [(1_007, 50), (2_047, 40), (90_111, 9), (1_000_000, 1)];
    let (text, histogram) = validation_cdf(&counts);
    assert_eq!(histogram.count(), 100);
    let lines: Vec<&str> = text.lines().collect();
    let rows: Vec<[f64; 2]> = lines[2..lines.len() - 3]
        .iter()
        .map(|line| {
            let mut words = line.split_whitespace().map(|word| word.parse().expect("a number"));
            [words.next().expect("a value"), words.next().expect("a share")]
        })
        .collect();
    assert!(rows.is_sorted());
    assert!((rows[0][0] - 1.007).abs() < 1e-9);
    let [value, share] = rows[rows.len() - 1];
    assert!((share - 1.0).abs() < 1e-9);
    assert!((value / 1000.0 - 1.0).abs() < 1e-3, "{value}");
    let below_half: Vec<f64> = rows.iter().filter(|row| row[1] <= 0.5).map(|row| row[0]).collect();
    assert!(below_half.iter().all(|value| (value - 1.007).abs() < 1e-9), "{below_half:?}");
    assert!(text.contains("Total count"));
}

#[test]
fn the_memory_report() {
    let memory = |kib: &[u64]| Memory { kib: kib.to_vec() };
    let systems = [
        (System::Vanilla, memory(&[1000, 2000])),
        (System::Sei, memory(&[2020, 2020])),
        (System::Orthrus, memory(&[1500, 2525])),
        (System::OrthrusSync, memory(&[1500, 2500])),
        (System::Rbv, memory(&[4000, 3000, 4000])),
    ];
    let text = "\n=== Memory Stats ===\n\
                Processing raw\nmax mem run :  2000\n\
                Processing sei\nmax mem run :  2020\n\
                Processing scee\nmax mem run :  2525\n\
                Processing scee(sync)\nmax mem run :  2500\n\
                Processing rbv\nmax mem run :  4000\n\
                ----------  results(peak)  ----------\n\
                ratio (Orthrus(async) vs Vanilla):  1.2625\n\
                ratio (Orthrus(sync) vs Vanilla):   1.25\n\
                ratio (SEI vs Vanilla):      1.01\n\
                ratio (RBV vs Vanilla):      2.0\n\
                ----------  results(avg)  ----------\n\
                ratio (Orthrus(async) vs Vanilla):  1.3413333333333333\n\
                ratio (Orthrus(sync) vs Vanilla):   1.3333333333333333\n\
                ratio (SEI vs Vanilla):      1.3466666666666667\n\
                ratio (RBV vs Vanilla):      2.444\n";
    assert_eq!(memory_text(&systems), text);
    // Without vanilla there is nothing to divide by; nothing sampled is no division by zero.
    assert!(!memory_text(&systems[1..]).contains("ratio"));
    assert!(!memory_text(&[(System::Vanilla, memory(&[])), systems[1].clone()]).contains("ratio"));
}

/// `memory.py` matches `VmRSS:\s+(\d+) kB` at the start of each line.
#[test]
fn samples_of_memory() {
    let memory = Memory { kib: vec![1_234_567_890, 8] };
    assert_eq!(memory.log(), "VmRSS:\t1234567890 kB\nVmRSS:\t       8 kB\n");
    assert_eq!((memory.peak_kib(), memory.mean_kib()), (1_234_567_890, 617_283_949));
    assert_eq!((Memory::default().peak_kib(), Memory::default().mean_kib()), (0, 0));
}
