//! The program as a user sees it: help, version, mistakes.

use std::os::unix::process::CommandExt;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veracache");

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(name: &str, line: &str) -> Said {
    let output = Command::new(PROGRAM)
        .arg0(name)
        .args(line.split_whitespace())
        .output()
        .expect("the program was built for this test");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A line ends with this code, its first line on standard output and all of standard error begin like this.
fn check(line: &str, code: i32, out: &str, err: &str) {
    check_as("veracache", line, code, out, err);
}

fn check_as(name: &str, line: &str, code: i32, out: &str, err: &str) {
    let said = run(name, line);
    assert_eq!(said.code, Some(code), "{line}: {}", said.err);
    assert!(said.out.starts_with(out), "{line}: {}", said.out);
    assert!(said.err.starts_with(err), "{line}: {}", said.err);
    assert_eq!(said.out.is_empty(), out.is_empty(), "{line}: {}", said.out);
    assert_eq!(said.err.is_empty(), err.is_empty(), "{line}: {}", said.err);
    assert!(said.err.lines().count() <= 1, "{line}: more than one line: {}", said.err);
    for text in said.out.lines().chain(said.err.lines().filter(|_| code == 2)) {
        assert!(text.chars().count() <= 80, "{line}: wider than 80 columns: {text}");
    }
}

#[test]
fn words() {
    let help = "A memcached-compatible cache server that checks its own answers.\n";
    for line in ["", "help", "-h", "--help", "help version"] {
        check(line, 0, help, "");
    }
    for line in ["help serve", "serve -h", "serve --help", "serve -m 64 -h"] {
        check(line, 0, "memcached 1.6.45\n-p, --port=<num>", "");
    }
    for line in ["serve -V", "serve --version"] {
        check(line, 0, "memcached 1.6.45\n", "");
    }
    for line in ["version", "-V", "--version"] {
        check(line, 0, "veracache 0.1.0 (speaks as memcached 1.6.45)\n", "");
    }
    for line in ["help integrity", "integrity -h"] {
        check(line, 0, "Shows what a running server checked, and what it found.\n", "");
    }
    check("serve -i", 0, "veracache is licensed under", "");
}

#[test]
fn by_the_name_of_memcached() {
    check_as("/usr/bin/memcached", "-V", 0, "memcached 1.6.45\n", "");
    check_as("memcached", "-h", 0, "memcached 1.6.45\n", "");
    check_as("memcached", "-S", 64, "", "veracache: -S: SASL authentication is not supported");
}

#[test]
fn mistakes() {
    check("sevre", 2, "", "veracache: there is no command \"sevre\"; veracache help lists them\n");
    check("help sevre", 2, "", "veracache: there is no command \"sevre\"; veracache help lists them\n");
    check("-m 64", 2, "", "veracache: -m is no command; to run a server: veracache serve -m 64\n");
    check("serve -Q", 1, "", "veracache: there is no flag -Q; -h lists them all\n");
    check("serve -c 0", 1, "", "veracache: Maximum connections must be");
    check("serve -I 1000", 64, "", "veracache: Item max size cannot be less than 1024 bytes.");
    check("serve -o ext_path=/x:1G", 64, "", "veracache: -o ext_path: storage on flash is not supported");
}

/// What keeps a daemon from starting is told by the command that starts it.
#[test]
fn a_daemon_tells_its_mistakes() {
    let line = "serve -d -p -1 -l 127.0.0.1 -u root";
    let unwritable = "veracache: cannot write /nonexistent/pid: No such file or directory";
    check(&format!("{line} -P /nonexistent/pid"), 73, "", unwritable);
    check(&format!("{line} -m 100000000"), 71, "", "veracache: cannot have the memory asked for");
}

/// The command that starts a daemon ends when the daemon runs; everything it opened is there, its streams are free.
#[test]
fn a_daemon_runs_when_its_command_ends() {
    let pidfile = std::env::temp_dir().join(format!("veracache-daemon-{}", std::process::id()));
    check(&format!("serve -d -p -1 -l 127.0.0.1 -u root -P {}", pidfile.display()), 0, "", "");
    let pid = std::fs::read_to_string(&pidfile).expect("it was written");
    let kill = format!("kill {}", pid.trim());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while pidfile.exists() {
        assert!(std::time::Instant::now() < deadline, "the daemon goes on");
        std::thread::yield_now();
    }
}

/// Each address in use comes with the flag that can change it.
#[test]
fn ports_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let port = address.port();
    for (flags, advice) in [
        (format!("-p {port} -l 127.0.0.1"), "choose another port with -p, or -p -1 for any"),
        (format!("-l {address}"), "choose another port in -l"),
        (
            format!("-p -1 --line-port {port} -l 127.0.0.1"),
            "choose another port with --line-port, or --line-port -1 for any",
        ),
    ] {
        let expected = format!("veracache: cannot listen on {address}: another program has it; {advice}\n");
        check(&format!("serve -u root {flags}"), 71, "", &expected);
    }
}

/// A script's background job has SIGINT ignored, and whoever sees the port file may send one at once.
#[test]
fn it_stops_as_soon_as_it_can_be_seen() {
    let ports = std::env::temp_dir().join(format!("veracache-ports-{}", std::process::id()));
    for signal in ["INT", "TERM"] {
        let mut server = Command::new("sh")
            .args(["-c", "trap '' INT; exec \"$0\" serve -p -1 -l 127.0.0.1", PROGRAM])
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a shell");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !ports.exists() {
            assert!(std::time::Instant::now() < deadline, "no port file");
            std::thread::yield_now();
        }
        let kill = format!("kill -{signal} {}", server.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        while server.try_wait().expect("our child").is_none() {
            assert!(std::time::Instant::now() < deadline, "{signal} was not heard");
            std::thread::yield_now();
        }
        std::fs::remove_file(&ports).expect("it is there");
    }
}
