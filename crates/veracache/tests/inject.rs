//! The injector, on this executable: faults whose outcome is known, a server that is left alone, and whom it won't touch.
//!
//! Where ptrace is not permitted these fail, and say so.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use bench::error::Error;
use bench::inject::control;
use bench::inject::mode::Mode;
use bench::inject::tracee::find_thread;

const VERACACHE: &str = env!("CARGO_BIN_EXE_veracache");

/// Commands without a fault. Each takes a debug build some tens of microseconds.
const OPERATIONS: u64 = 4_000;

#[test]
fn known_faults_come_to_what_is_known() {
    assert_eq!(control::self_test(Path::new(VERACACHE)).map_err(|error| error.to_string()), Ok(3));
}

#[test]
fn without_a_fault_nothing_is_noticed() {
    for mode in [Mode::Vanilla, Mode::Sei, Mode::Orthrus] {
        let quiet = control::quiet(Path::new(VERACACHE), mode, OPERATIONS, 1, |_| {}).expect("a server");
        assert_eq!(quiet.operations, OPERATIONS, "{mode:?}");
        assert_eq!((quiet.alarms, quiet.wrong), (0, 0), "{mode:?}");
        assert_eq!(quiet.validated > 0, mode == Mode::Orthrus, "{mode:?}");
    }
}

#[test]
fn processes_of_others_are_left_alone() {
    // Whoever started this test is no child of it, and neither is the first process.
    for process in [1, std::os::unix::process::parent_id(), std::process::id()] {
        assert!(matches!(find_thread(process, "worker 0"), Err(Error::Usage(_))), "{process}");
    }
}

#[test]
fn wrong_names_of_faults_are_refused() {
    let run = |arguments: &[&str]| {
        Command::new(VERACACHE).arg("inject").args(arguments).output().expect("a program")
    };
    for arguments in
        [&["--repeat", "17"][..], &["--role", "validator", "--modes", "vanilla"], &["--modes", "none"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}
