//! The model of what a cache may answer, against servers that are in order: every answer is as it expects, in every mode
//! of execution, and from a memcached where there is one.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::oracle::{Bytes, Client, Model, Request, Rules, Scope, Tally, Verdict, Workload};
use bench::server::Server;

/// How long an answer may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands sent one by one, and as many sent many at a time.
const COMMANDS: u64 = 3_000;
const DEPTH: usize = 16;

fn seed() -> u64 {
    let given = std::env::var("VERACACHE_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos().into());
    let seed = given.unwrap_or_else(clock);
    println!("VERACACHE_SEED={seed}");
    seed
}

/// Sends the workload and asks for all that should be there then; every answer has to be the expected one.
fn check(server: &Server, scope: Scope, depths: [usize; 2]) {
    let seed = seed();
    let mut model = Model::new(Rules::default());
    let mut client = Client::connect(server.address(), PATIENCE).expect("it listens");
    let mut tally = Tally::default();
    let mut send = |model: &mut Model, requests: &mut dyn Iterator<Item = Request>, depth| {
        let result = client.run(model, requests, depth, |sent, verdict| {
            tally.add(verdict);
            let asked = || sent.bytes()[..sent.bytes().len().min(100)].escape_ascii().to_string();
            assert_eq!(*verdict, Verdict::Correct, "{}", asked());
            true
        });
        result.unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    };
    let mut keys: Vec<Bytes> = Vec::new();
    for (depth, seed) in depths.into_iter().zip(seed..) {
        let mut workload = Workload::of(scope, seed, COMMANDS);
        keys = workload.keys().to_vec();
        send(&mut model, &mut workload, depth);
    }
    assert!(model.items() > keys.len() / 4, "commands meet items");
    let content = model.final_content(&keys);
    send(&mut model, &mut content.into_iter(), DEPTH);
    assert_eq!(tally.correct, 2 * COMMANDS + keys.len() as u64);
}

#[test]
fn every_mode_answers_as_expected() {
    for protect in ["vanilla", "sei", "orthrus", "orthrus --protect-sync", "rbv"] {
        println!("{protect}");
        let flags = format!("serve -l 127.0.0.1 -U 0 -u root -t 1 -m 256 --protect {protect}");
        let program = Path::new(env!("CARGO_BIN_EXE_veracache"));
        let server = Server::start(program, flags.split(' ')).expect("it starts");
        check(&server, Scope::Full, [1, DEPTH]);
    }
}

/// What was written down here is what memcached does, not only what we do.
#[test]
fn memcached_answers_as_expected() {
    let program = Path::new("/usr/bin/memcached");
    if !program.exists() {
        println!("there is no memcached here to compare with; transcripts of one are in testdata");
        return;
    }
    let flags = "-l 127.0.0.1 -U 0 -u root -t 1 -m 1024";
    let server = Server::start(program, flags.split(' ')).expect("it starts");
    check(&server, Scope::Old, [1, 1]);
}
