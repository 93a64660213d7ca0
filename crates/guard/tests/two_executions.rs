//! In the optimised binary, two executions are two executions: of two pieces of machine code.
//!
//! The compiler merges identical functions and drops work it has done before. The example that is built here gives it
//! every reason to: both sides of its operator use the same routines, and all arguments are constants.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// The example, built as a release is.
static SIDES: LazyLock<PathBuf> = LazyLock::new(|| {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    // A folder of its own: the one these tests were built in may be locked by another build.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("two-executions");
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--quiet", "--example", "sides", "--target-dir"]).arg(&folder);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = build.status().expect("cargo runs, as it runs this test");
    assert!(status.success(), "{build:?}: {status}");
    folder.join("release").join("examples").join("sides")
});

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The addresses of every function whose symbol holds all of the words, from what `nm -S` prints.
fn ranges(symbols: &str, words: &[&str]) -> Vec<Range<u64>> {
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).expect("nm prints hexadecimal numbers");
    let range = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, size, _, name] = fields[..] else { return None };
        let start = hexadecimal(address);
        words.iter().all(|word| name.contains(word)).then(|| start..start + hexadecimal(size))
    };
    symbols.lines().filter_map(range).collect()
}

/// What is wrong with the places of the two entries.
fn complaint(symbols: &str) -> Option<&'static str> {
    let primary = ranges(symbols, &["guard", "side", "Primary", "enter"]);
    let diverse = ranges(symbols, &["guard", "side", "Diverse", "enter"]);
    let ([primary], [diverse]) = (&primary[..], &diverse[..]) else {
        return Some("there is not one of each");
    };
    if primary.is_empty() || diverse.is_empty() {
        return Some("one of them has no code");
    }
    if primary.start < diverse.end && diverse.start < primary.end {
        return Some("they overlap");
    }
    None
}

#[test]
fn the_sides_are_two_pieces_of_code() {
    let symbols = output(Command::new("nm").args(["-S", "--defined-only"]).arg(&*SIDES));
    assert_eq!(complaint(&symbols), None, "{symbols}");
}

#[test]
fn merged_and_overlapping_sides_are_noticed() {
    let symbols = |primary: &str, diverse: &str| {
        format!(
            "{primary} T _guard_side_Primary_enter\n{diverse} T _guard_side_Diverse_enter\n         U other\n"
        )
    };
    for (primary, diverse, expected) in [
        ("1000 0020", "1020 0020", None),
        ("1020 0020", "1000 0020", None),
        ("1000 0020", "1000 0020", Some("they overlap")),
        ("1000 0020", "101f 0020", Some("they overlap")),
        ("1010 0020", "1000 0011", Some("they overlap")),
        ("1000 0000", "1020 0020", Some("one of them has no code")),
    ] {
        assert_eq!(complaint(&symbols(primary, diverse)), expected, "{primary}, {diverse}");
    }
    let one = symbols("1000 0020", "1020 0020").replace("Diverse", "Other");
    assert_eq!(complaint(&one), Some("there is not one of each"));
}

#[test]
fn every_execution_takes_place_and_is_compared() {
    let run = |arguments: &[u8]| output(Command::new(&*SIDES).args(arguments.iter().map(u8::to_string)));
    const RIGHT: &str = "18157 cents after";
    for runs in [2, 3, 5, 10] {
        assert_eq!(run(&[runs]), format!("{RIGHT} {runs} executions\n"), "no fault, silence");
        for damaged in 1..=runs {
            let text = run(&[runs, damaged]);
            assert!(text.starts_with("kind=outcome stratum=0 "), "execution {damaged} of {runs}: {text}");
            assert!(text.contains(" bit=4 "), "execution {damaged} of {runs}: {text}");
            assert!(text.contains(RIGHT), "execution {damaged} of {runs}: {text}");
        }
    }
    // With nobody to compare, the same fault goes out.
    assert_eq!(run(&[1]), format!("{RIGHT} 1 executions\n"));
    assert_eq!(run(&[1, 1]), "18173 cents after 1 executions\n");
}
