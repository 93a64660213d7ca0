//! Does one program of real work through the memcache crate: PROTOCOL HOST PORT. Prints the Test Anything Protocol.

mod classic;
mod meta;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a test ends.
pub type Outcome = Result<(), Box<dyn Error>>;

/// The largest value of a server with default settings, with the item's own fields.
pub const MEBIBYTE: usize = 1 << 20;

/// Sizes around the places where servers change how they store a value.
pub const SIZES: &[usize] =
    &[1, 2, 30, 100, 1000, 1023, 1024, 1025, 4096, 16384, 65535, 65536, 250_000, 524_288, MEBIBYTE - 600];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, host, port] = arguments.as_slice() else {
        eprintln!("usage: PROTOCOL HOST PORT");
        return ExitCode::from(2);
    };
    let results = match protocol.as_str() {
        "meta" => meta::run(&format!("{host}:{port}")),
        "text" => {
            classic::run(&format!("memcache://{host}:{port}?protocol=ascii&timeout=10&tcp_nodelay=true"))
        }
        _ => classic::run(&format!("memcache://{host}:{port}?timeout=10&tcp_nodelay=true")),
    };
    println!("# seed {}\n1..{}", seed(), results.len());
    let mut failed = false;
    for (number, (name, outcome)) in (1..).zip(results) {
        match outcome {
            Ok(()) => println!("ok {number} - {name}"),
            Err(error) => {
                failed = true;
                println!("not ok {number} - {name}: {error}");
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn seed() -> u64 {
    std::env::var("VERACACHE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20)
}

/// Bytes that follow from a number: xorshift over the seed.
pub fn bytes(name: usize, length: usize) -> Vec<u8> {
    let mut state = (seed() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (name as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Fails with `what` unless `condition` holds.
pub fn check(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}

/// Asks until `gone` answers true; a second of life may take two to end.
pub fn until(gone: impl Fn() -> Result<bool, Box<dyn Error>>) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(4);
    while !gone()? {
        check(Instant::now() < deadline, "it does not expire")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
