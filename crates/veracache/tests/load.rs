//! The load generator against this server: every command in every form, and nothing is found wrong.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bench::engine::{self, Arrivals, Keys, Length, Outcome, Plan};
use bench::server::Server;
use bench::values::Sizes;
use bench::workload::Mix;

fn server() -> Server {
    let flags = ["serve", "-l", "127.0.0.1", "-U", "0", "-u", "root", "-m", "64", "-t", "2"];
    Server::start(Path::new(env!("CARGO_BIN_EXE_veracache")), flags).expect("a server")
}

fn plan(server: &Server, mix: &str) -> Plan {
    Plan {
        connections: 4,
        depth: 4,
        mix: mix.parse::<Mix>().expect("a mix"),
        keys: Keys { count: 500, ..Plan::default().keys },
        values: Sizes::Uniform(0, 400),
        length: Length::Requests(5000),
        verify: true,
        patience: Duration::from_secs(60),
        server_pid: Some(server.pid()),
        ..Plan::on(server.address())
    }
}

fn run(plan: &Plan) -> Outcome {
    let outcome = engine::run(plan, &|_| ()).expect("a run");
    assert_eq!(outcome.wrong.total(), 0, "{}: {:?}", plan.mix, outcome.wrong);
    assert_eq!(outcome.incomplete, None, "{}", plan.mix);
    assert_eq!(outcome.failures, 0, "{}", plan.mix);
    outcome
}

#[test]
fn every_command_is_answered_rightly() {
    let server = server();
    for mix in [
        "get=4,gets=1,set=2,add=1,replace=1,append=1,prepend=1,cas=1,delete=1,incr=1,decr=1,touch=1,gat=1,gats=1,\
         mn=1,me=1,version=1,verbosity=1",
        "mg=4,meta-gets=1,ms=2,meta-add=1,meta-replace=1,meta-append=1,meta-prepend=1,meta-cas=1,md=1,ma=1,\
         meta-decr=1,meta-touch=1,meta-gat=1,meta-gats=1,mn=1,me=1",
        "get=4,setq=2,addq=1,replaceq=1,appendq=1,prependq=1,casq=1,deleteq=1,incrq=1,decrq=1,touchq=1",
        "mgq=4,meta-getsq=1,msq=2,meta-addq=1,meta-replaceq=1,meta-appendq=1,meta-casq=1,mdq=1,maq=1,meta-decrq=1,\
         meta-touchq=1,mg=1,set=1,get=1",
        "get=8,set=2,flush_all=0.01,stats=0.05",
    ] {
        let plan = plan(&server, mix);
        let outcome = run(&plan);
        assert_eq!(outcome.requests, 5000, "{mix}");
        for entry in &plan.mix.0 {
            assert!(outcome.operations[&entry.name()].requests > 0, "{}", entry.name());
        }
    }
}

#[test]
fn several_keys_at_once_are_matched() {
    let server = server();
    for mix in ["get=3,set=1,delete=1", "mg=3,ms=1,md=1", "mgq=3,msq=1,mdq=1"] {
        let outcome = run(&Plan { width: 10, length: Length::Requests(2000), ..plan(&server, mix) });
        assert!(outcome.keys > outcome.requests * 5, "{} keys", outcome.keys);
        let misses: u64 = outcome.operations.values().map(|row| row.misses).sum();
        assert!(misses > 0, "{mix}: deleted keys are missing");
    }
}

#[test]
fn several_servers_have_their_own_keys() {
    let servers = [server(), server(), server()];
    let addresses = servers.iter().map(|server| server.address().into()).collect();
    let base = plan(&servers[0], "get=4,set=1,incr=1,append=1");
    let outcome = run(&Plan { addresses, connections: 7, threads: 2, ..base });
    assert_eq!(outcome.operations["get"].misses, 0);
}

/// While the server stands still for a while, arrivals go on: each of them waits for what is left of it. Only what
/// arithmetic gives at least is asked for, since a busy machine adds to it.
#[test]
fn a_server_that_stops_shows_in_the_response() {
    const STOP: Duration = Duration::from_millis(300);
    let server = server();
    let signal = |name: &str| {
        let command = format!("kill -{name} {}", server.pid());
        let status = Command::new("sh").args(["-c", &command]).status();
        assert!(status.expect("every system has a shell").success());
    };
    // One request a millisecond: of 3000, 300 meet the stop, the first of them for all of it. There is time enough for
    // the stop to come late.
    let plan = Plan {
        arrivals: Arrivals::Fixed(1000.0),
        depth: 1000,
        length: Length::Requests(3000),
        ..plan(&server, "get=9,set=1")
    };
    let outcome = thread::scope(|scope| {
        let told = std::sync::Mutex::new(false);
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            receiver.recv().expect("the run tells that it goes on");
            signal("STOP");
            thread::sleep(STOP);
            signal("CONT");
        });
        let outcome = engine::run(&plan, &|progress| {
            let mut told = told.lock().expect("nobody panics");
            if progress.stage == engine::Stage::Measure && progress.requests > 0 && !*told {
                *told = true;
                sender.send(()).expect("somebody waits");
            }
        });
        outcome.expect("a run")
    });
    assert_eq!(outcome.requests, 3000);
    // They wait from 300 ms down to 0: a hundred more than 200 ms, and the thirty that are 1 % more than 270 ms.
    let longer = outcome.response.count_above(200_000_000);
    assert!(longer >= 95, "{longer} waited longer than 200 ms");
    assert!(outcome.response.quantile(0.99) >= 265_000_000, "{}", outcome.response.quantile(0.99));
}
