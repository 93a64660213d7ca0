//! The flags about how executions are confirmed, and about what is done when they disagree.

use std::path::PathBuf;

use protocol::checked::Announcement;

use super::table::Action::Set;
use super::table::Flag;
use super::table::Here::Own;
use super::value::{fraction, number};
use super::{OnCorruption, Protect, Share};

/// Flags that only this server has.
pub(super) const PROTECTION: &[Flag] = &[
    Flag {
        short: None,
        long: "protect",
        argument: Some("<mode>"),
        help: "how commands on user data are executed: vanilla, once; sei, several times on the same core, later \
               ones by other routines, compared and voted on before anything is changed or sent; orthrus, once, \
               and again by a validator on another core; rbv, once, and again by a replica, another process with a \
               second copy of the cache",
        default: Some("orthrus"),
        limit: Some("vanilla, sei, orthrus or rbv"),
        here: Own,
        action: Set(|s, v| Protect::parse(v).map(|protect| s.protect = protect)),
    },
    Flag {
        short: None,
        long: "redundancy",
        argument: Some("<num>"),
        help: "executions of each command with --protect sei; 2 notice a fault, 3 and more also know who is right",
        default: Some("2"),
        limit: Some("2 to 16"),
        here: Own,
        action: Set(|s, v| number("--redundancy", v, 2..=16).map(|runs| s.redundancy = runs as u8)),
    },
    Flag {
        short: None,
        long: "replica",
        argument: Some("<host:port>"),
        help: "with --protect rbv, where veracache replica --listen runs; by default, a child process is started",
        default: None,
        limit: None,
        here: Own,
        action: Set(|s, v| {
            s.replica = Some(v.to_owned());
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "protect-sync",
        argument: None,
        help: "with --protect orthrus or rbv, replies wait until their executions are confirmed, so that no wrong one leaves",
        default: None,
        limit: None,
        here: Own,
        action: Set(|s, _| {
            s.protect_sync = true;
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "validators",
        argument: Some("<num>"),
        help: "threads that repeat executions, with --protect orthrus; by default one for four workers, as far as there are cores for them",
        default: None,
        limit: Some("1 to 64"),
        here: Own,
        action: Set(|s, v| number("--validators", v, 1..=64).map(|count| s.validators = Some(count as u32))),
    },
    Flag {
        short: None,
        long: "validate-share",
        argument: Some("<share>"),
        help: "which share of executions is validated; auto for as much as --validate-budget allows, some of each \
               kind",
        default: Some("auto"),
        limit: Some("auto, or from 0 to 1"),
        here: Own,
        action: Set(|s, v| {
            s.validate_share = match v.trim() {
                "auto" => Share::Auto,
                text => {
                    let fits = |share: f64| (0.0..=1.0).contains(&share);
                    Share::Fixed(fraction("--validate-share", text, "auto, or from 0 to 1", fits)?)
                }
            };
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "validate-budget",
        argument: Some("<percent>"),
        help: "what validation may take with --validate-share auto, in percent of one core; by default 50 where \
               validators have a core of their own, else 8",
        default: None,
        limit: Some("1 to 6400"),
        here: Own,
        action: Set(|s, v| {
            number("--validate-budget", v, 1..=6400)
                .map(|percent| s.validate_budget_percent = Some(percent as u32))
        }),
    },
    Flag {
        short: None,
        long: "on-corruption",
        argument: Some("<action>"),
        help: "what is done about executions that disagree: log, tell and count it; evict, also forget what was \
               written; quarantine, also use a core no longer that is wrong too often; exit, tell, forget and end \
               with status 70",
        default: Some("quarantine"),
        limit: Some("log, evict, quarantine or exit"),
        here: Own,
        action: Set(|s, v| OnCorruption::parse(v).map(|policy| s.on_corruption = policy)),
    },
    Flag {
        short: None,
        long: "state-file",
        argument: Some("<file>"),
        help: "where it is written which cores are used no longer, so that the next start leaves them, too",
        default: None,
        limit: None,
        here: Own,
        action: Set(|s, v| {
            s.state_file = Some(PathBuf::from(v));
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "checked-values-flag",
        argument: Some("<bit>"),
        help: "values whose client flags have this bit end with a checksum of the client's, and are refused when it is \
               wrong; see docs/checked-values.md",
        default: None,
        limit: Some("0 to 31"),
        here: Own,
        action: Set(|s, v| {
            number("--checked-values-flag", v, 0..=31)
                .map(|bit| s.checked_values = Announcement::new(bit as u32))
        }),
    },
    Flag {
        short: None,
        long: "scrub",
        argument: Some("<items>"),
        help: "check so many items in memory per second against their checksums, whether anybody reads them or \
               not; 0 for none. Fewer while memory is short; what takes longer than 2 us counts as several. Never \
               takes more than a tenth of a core",
        default: Some("20000"),
        limit: Some("0 to 100000000"),
        here: Own,
        action: Set(|s, v| {
            number("--scrub", v, 0..=100_000_000).map(|items| s.scrub_items_per_second = items as u32)
        }),
    },
];
