//! The model of what a cache may answer, against servers that are in order: every answer is as it expects, in every mode
//! of execution, and from a memcached where there is one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::oracle::{
    Bytes, Client, Framing, Model, Op, Request, Rules, Scope, Sent, Tally, Verdict, Workload,
};
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

/// A bit that flips in any answer is noticed, wherever it is: in the other arm nothing is, and all is correct.
#[test]
fn a_flipped_bit_is_noticed() {
    let program = Path::new(env!("CARGO_BIN_EXE_veracache"));
    let flags = "serve -l 127.0.0.1 -U 0 -u root -t 1 -m 256";
    let server = Server::start(program, flags.split(' ')).expect("it starts");
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let mut model = Model::new(Rules::default());
    let seed = seed();
    let mut place = seed;
    let mut noticed = 0;
    for request in Workload::of(Scope::Small, seed, 1_500) {
        let sent = model.send(request);
        stream.write_all(sent.bytes()).expect("it reads");
        let mut answer = Vec::new();
        while sent.request().framing(&answer) != Framing::Whole(answer.len()) {
            let mut space = [0; 4096];
            let len = stream.read(&mut space).expect("it answers");
            answer.extend_from_slice(&space[..len]);
        }
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut altered = answer.clone();
        let byte = usize::try_from(place >> 33).expect("31 bits") % altered.len();
        altered[byte] ^= 1 << (place >> 30 & 7);
        if !is_open(&sent, &answer, &altered, byte) {
            let is_whole = sent.request().framing(&altered) == Framing::Whole(altered.len());
            let verdict = model.clone().check(&sent, &altered);
            let shown = altered.escape_ascii();
            assert!(!is_whole || verdict != Verdict::Correct, "{byte}: {shown} to {sent:?}");
            noticed += 1;
        }
        assert_eq!(model.check(&sent, &answer), Verdict::Correct);
    }
    assert!(noticed > 1_000, "{noticed}");
}

/// Whether an answer may have this digit instead, as far as a client can know: in a cas id, or a time.
fn is_open(sent: &Sent, answer: &[u8], altered: &[u8], byte: usize) -> bool {
    let shows = match sent.request().op {
        Op::Get { with_cas, .. } => with_cas,
        _ => sent.request().wants.iter().any(|letter| b"ctlh".contains(letter)),
    };
    let is_digit = answer[byte].is_ascii_digit() && altered[byte].is_ascii_digit();
    let word = answer[..byte].rsplit(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let is_number = word.iter().skip(1).all(u8::is_ascii_digit);
    shows && is_digit && is_number
}
