//! Every row of the tables, in every form a flag can be given; what is refused; the help and the page.

use super::extended::EXTENDED;
use super::table::{Action, Here, flags};
use super::*;

fn arguments(line: &str) -> Vec<String> {
    line.split('|').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Reads a command line; `|` stands between arguments.
fn run(line: &str) -> Settings {
    match parse(&arguments(line)) {
        Ok(Outcome::Run(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

/// A line gives the settings that `change` makes of the defaults.
fn check(line: &str, change: impl Fn(&mut Settings)) {
    let mut expected = Settings::default();
    change(&mut expected);
    let mut got = run(line);
    got.warnings.clear();
    assert_eq!(got, expected, "{line}");
}

fn check_refused(line: &str, code: u8, begin: &str) {
    let refusal = parse(&arguments(line)).expect_err(line);
    assert_eq!(refusal.code, code, "{line}: {refusal}");
    assert!(refusal.text.starts_with(begin), "{line}: {refusal}");
    assert!(!refusal.text.contains('\n'), "{line}: more than one line: {refusal}");
}

#[test]
fn the_forms_of_a_flag() {
    for line in [
        "-m|128",
        "-m128",
        "-m 128",
        "-m|128m",
        "-m|131072k",
        "--memory-limit=128",
        "--memory-limit|128",
        "--memory-limit 128",
        "--memory-l=128",
        "-Am|128",
    ] {
        check(line, |s| {
            s.memory_bytes = 128 << 20;
            s.shutdown_enabled = line.starts_with("-A");
        });
    }
    check("-vv", |s| s.verbosity = 2);
    check("-v|-v|-v", |s| s.verbosity = 3);
    check("-o|no_lru_crawler,no_lru_maintainer|-o|track_sizes", |s| {
        s.lru.crawler = false;
        s.lru.maintainer = false;
        s.track_sizes = true;
    });
    check("--|-v", |_| {});
}

#[test]
fn what_container_charts_pass() {
    check("-m 8192|--extended=modern,track_sizes|-I 5m|-c 16384|-v|-u 11211", |s| {
        s.memory_bytes = 8192 << 20;
        s.track_sizes = true;
        s.item_bytes_max = 5 << 20;
        s.conn_limit = 16384;
        s.verbosity = 1;
        s.user = Some("11211".into());
    });
    check_refused(
        "-m 8192|--extended=modern,track_sizes,ext_path=/data/file:9G,ext_wbuf_size=16",
        64,
        "-o ext_path: ",
    );
}

#[test]
fn each_flag() {
    check("-p|11300", |s| s.tcp_port = Port::Fixed(11300));
    check("-p|-1", |s| s.tcp_port = Port::Any);
    check("-p|0", |s| s.tcp_port = Port::Off);
    assert!(run("--protect|sei|--protect-sync").warnings[0].starts_with("--protect-sync has no effect"));
    assert!(run("-p|0").warnings[0].starts_with("nobody can reach this server"));
    for line in ["-p|0|-s|/x", "-p|0|--line-port|1", "-p|0|-l|localhost:1", ""] {
        assert!(run(line).warnings.is_empty(), "{line}");
    }
    check("-s|/tmp/x.sock|-a|777", |s| {
        s.unix_socket = Some("/tmp/x.sock".into());
        s.unix_mask = 0o777;
    });
    check("-A", |s| s.shutdown_enabled = true);
    check("-d|-P|/run/x.pid", |s| {
        s.daemonize = true;
        s.pidfile = Some("/run/x.pid".into());
    });
    check("-r|-k|-L", |s| {
        s.coredumps = true;
        s.lock_memory = true;
        s.large_pages = true;
    });
    check("-u|nobody", |s| s.user = Some("nobody".into()));
    check("-M|-C|-F|-X|-W", |s| {
        s.evict = false;
        s.cas = false;
        s.flush_enabled = false;
        s.dump_enabled = false;
        s.watch_enabled = false;
    });
    check("-c|10|-b|8675|-R|1|-t|1", |s| {
        s.conn_limit = 10;
        s.backlog = 8675;
        s.requests_per_event = Some(1);
        s.threads = 1;
    });
    check("-t|1000", |s| s.threads = 64);
    check("-f|1.1|-n|24", |s| {
        s.slabs.factor = 1.1;
        s.slabs.chunk_bytes_min = 24;
    });
    check("-D|/", |s| {
        s.prefix_delimiter = b'/';
        s.detail_enabled = true;
    });
    check("-B|binary", |s| s.binding = Binding::Binary);
    check("-B|ascii", |s| s.binding = Binding::Ascii);
    check("-N|1|-t|1", |s| {
        s.napi_ids = 1;
        s.threads = 1;
    });
    check("--line-port=2318", |s| s.line_port = Port::Fixed(2318));
    check("--protect=orthrus", |_| {});
    check("--protect=vanilla", |s| s.protect = Protect::Vanilla);
    check("--validate-share|0.25", |s| s.validate_share = Share::Fixed(0.25));
    check("--validate-share=auto|--validate-budget=7", |s| s.validate_budget_percent = Some(7));
    check("--protect-sync|--validators|2", |s| (s.protect_sync, s.validators) = (true, Some(2)));
    check("--protect|sei", |s| s.protect = Protect::Sei);
    check("--protect|rbv|--replica|host:11311", |s| {
        (s.protect, s.replica) = (Protect::Rbv, Some("host:11311".into()));
    });
    check("--protect=sei|--redundancy=5", |s| (s.protect, s.redundancy) = (Protect::Sei, 5));
    check("--scrub|0", |s| s.scrub_items_per_second = 0);
    check("--scrub=100000000", |s| s.scrub_items_per_second = 100_000_000);
    check("--test-mode", |s| s.test_mode = true);
}

#[test]
fn what_is_done_about_disagreements() {
    for (word, policy) in [
        ("log", OnCorruption::Log),
        ("evict", OnCorruption::Evict),
        ("quarantine", OnCorruption::Quarantine),
        ("exit", OnCorruption::Exit),
    ] {
        check(&format!("--on-corruption={word}"), |s| s.on_corruption = policy);
    }
    check("--state-file|/var/lib/veracache/cores", |s| {
        s.state_file = Some("/var/lib/veracache/cores".into());
    });
    check("--checked-values-flag|31", |s| s.checked_values = Announcement::new(31));
}

#[test]
fn each_option() {
    check("-o|no_maxconns_fast,idle_timeout=3,hashpower=20", |s| {
        s.conn_limit_fast = false;
        s.idle_timeout_seconds = 3;
        s.hash_power_initial = Some(20);
    });
    check("-o|slab_chunk_max=4", |s| s.slabs.chunk_bytes_max = 4 << 10);
    check("-o|slab_chunk_max=16384", |s| s.slabs.chunk_bytes_max = 16384);
    check("-I|1024|-o|slab_chunk_max=1024", |s| {
        s.item_bytes_max = 1024;
        s.slabs.chunk_bytes_max = 1024;
    });
    check("-I|1024|-o|slab_chunk_max=1", |s| {
        s.item_bytes_max = 1024;
        s.slabs.chunk_bytes_max = 1024;
    });
    check("-o|slab_sizes=100-200-500", |s| s.slabs.sizes = Some(vec![104, 200, 504]));
    check("-o|slab_automove", |s| s.slabs.automove = 1);
    check(
        "-o|slab_automove=2,slab_automove_ratio=0.5,slab_automove_window=3,slab_automove_freeratio=0.1",
        |s| {
            s.slabs.automove = 2;
            s.slabs.automove_ratio = 0.5;
            s.slabs.automove_window = 3;
            s.slabs.automove_freeratio = 0.1;
        },
    );
    check("-o|lru_crawler_sleep=1,lru_crawler_tocrawl=5,hot_lru_pct=10,warm_lru_pct=20", |s| {
        s.lru.crawler_sleep_us = 1;
        s.lru.crawler_tocrawl = 5;
        s.lru.hot_pct = 10;
        s.lru.warm_pct = 20;
    });
    check("-o|hot_max_factor=0.5,warm_max_factor=3,temporary_ttl=60,tail_repair_time=10", |s| {
        s.lru.hot_max_factor = 0.5;
        s.lru.warm_max_factor = 3.0;
        s.lru.temporary_ttl = Some(60);
        s.tail_repair_seconds = 10;
    });
    check("-o|hash_algorithm=xxh3,watcher_logbuf_size=8,worker_logbuf_size=9,read_buf_mem_limit=7", |s| {
        s.hash_algorithm = HashAlgorithm::Xxh3;
        s.watcher_logbuf_bytes = 8 << 10;
        s.worker_logbuf_bytes = 9 << 10;
        s.read_buf_limit_mib = 7;
    });
    check("-o|no_modern", |s| {
        s.slabs.reassign = false;
        s.slabs.automove = 0;
        s.conn_limit_fast = false;
        s.lru.maintainer = false;
        s.lru.crawler = false;
        s.slabs.chunk_bytes_max = 1 << 20;
        s.hash_algorithm = HashAlgorithm::Jenkins;
    });
    check(
        "-o|relaxed_privileges,no_drop_privileges,no_hashexpand,no_inline_ascii_resp,resp_obj_mem_limit=1",
        |_| {},
    );
}

#[test]
fn where_to_listen() {
    let one = |line: &str| -> Vec<String> {
        let settings = run(line);
        settings
            .listen
            .iter()
            .map(|l| {
                let host = l.host.as_deref().unwrap_or("*");
                let port = l.port.map_or(String::new(), |port| format!(" {port}"));
                let binding = l.binding.map_or(String::new(), |binding| format!(" {}", binding.as_str()));
                let tag = l.tag.as_ref().map_or(String::new(), |tag| format!(" #{tag}"));
                format!("{host}{port}{binding}{tag}")
            })
            .collect()
    };
    assert_eq!(one("-l|127.0.0.1"), ["127.0.0.1"]);
    assert_eq!(one("-l|127.0.0.1:5,[::1]:6;::1"), ["127.0.0.1 5", "::1 6", "::1"]);
    assert_eq!(one("-l|*|-l|notls:localhost"), ["*", "localhost"]);
    assert_eq!(one("-l|proto[ascii]:tag[web]:127.0.0.1:7"), ["127.0.0.1 7 ascii #web"]);
    assert_eq!(one("-l|tag_web_:127.0.0.1"), ["127.0.0.1 #web"]);
    assert_eq!(run("-l|127.0.0.1|-l|::1").listen_text.as_deref(), Some("127.0.0.1,::1"));
    check_refused("-l|mtls:127.0.0.1", 64, "-l mtls:127.0.0.1: TLS is not supported");
    check_refused("-l|127.0.0.1:0", 64, "-l 127.0.0.1:0: Invalid port number");
    check_refused("-l|proto[proxy]:127.0.0.1", 64, "-l proto[proxy]");
    check_refused("-l|tag[ninechars]:127.0.0.1", 64, "-l tag[ninechars]");
}

#[test]
fn udp_is_accepted_as_off() {
    check("-U|0", |_| {});
    assert!(run("-U|0").warnings.is_empty());
    check("-p|11300|-U|11301", |s| {
        s.tcp_port = Port::Fixed(11300);
        s.udp_port = Port::Fixed(11301);
    });
    check("-U|11301", |s| {
        s.tcp_port = Port::Fixed(11301);
        s.udp_port = Port::Fixed(11301);
    });
    check("-U|-1", |s| {
        s.tcp_port = Port::Any;
        s.udp_port = Port::Any;
    });
    assert_eq!(run("-U|-1").warnings, ["-U -1: UDP is not served: only TCP and Unix sockets are open"]);
}

#[test]
fn refusals() {
    for (line, code, begin) in [
        ("-c|0", 1, "Maximum connections must be"),
        ("-c|-1", 1, "Maximum connections must be"),
        ("-t|0", 1, "Number of threads must be"),
        ("-R|0", 1, "Number of requests per event must be"),
        ("-n|0", 1, "Chunk size must be"),
        ("-f|1", 1, "Factor must be a number greater than 1"),
        ("-f|nan", 1, "Factor must be"),
        ("--validate-share|2", 1, "--validate-share must be auto, or from 0 to 1, not \"2\""),
        ("--protect|more", 1, "--protect must be vanilla, sei, orthrus or rbv, not \"more\""),
        ("--redundancy|1", 1, "--redundancy must be a number from 2 to 16"),
        ("--on-corruption|panic", 1, "--on-corruption must be log, evict, quarantine or exit, not \"panic\""),
        ("--checked-values-flag|32", 1, "--checked-values-flag must be a number from 0 to 31"),
        ("--scrub|100000001", 1, "--scrub must be a number from 0 to 100000000"),
        ("--scrub|fast", 1, "--scrub must be"),
        ("-D|", 1, "-D needs an argument"),
        ("-a|9", 1, "-a must be an octal mode"),
        ("-m|x", 1, "-m must be a size"),
        ("-m|99999999999999g", 1, "-m must be a size"),
        ("-p|65536", 64, "ERROR: Invalid port number 65536"),
        ("-B|http", 64, "Invalid value for binding protocol: http"),
        ("-I|1000", 64, "Item max size cannot be less than 1024 bytes."),
        ("-I|33m", 64, "Cannot set item size limit higher than 1/2 of memory max."),
        ("-m|8g|-I|1025m", 64, "Cannot set item size limit higher than a gigabyte."),
        ("-m|1", 64, "-m: a cache needs at least 2 megabytes"),
        ("-S", 64, "-S: SASL"),
        ("--enable-sasl", 64, "--enable-sasl: SASL"),
        ("-Y|/x", 64, "-Y: authentication"),
        ("-Z", 64, "-Z: TLS"),
        ("-e|/x", 64, "-e: "),
        ("-o|ssl_chain_cert=x", 64, "-o ssl_chain_cert: TLS"),
        ("-o|no_ext_drop_unread", 64, "-o no_ext_drop_unread: "),
        ("-o|proxy_config=x", 64, "-o proxy_config: "),
        ("-o|nonsense", 1, "Illegal suboption \"nonsense\""),
        ("-o|hashpower=11", 1, "Initial hashtable multiplier must be a number from 12 to 32"),
        ("-o|hashpower", 1, "Missing hashpower argument"),
        ("-o|slab_automove=3", 1, "slab_automove must be"),
        ("-o|slab_automove_window=2", 1, "slab_automove_window must be"),
        ("-o|slab_sizes=500-200", 64, "slab_sizes: 200 is too small"),
        ("-I|512k|-o|slab_chunk_max=1048576", 64, "slab_chunk_max (bytes: 1073741824)"),
        ("-o|hash_algorithm=md5", 1, "Unknown hash_algorithm"),
        ("-o|tail_repair_time=9", 1, "tail_repair_time must be"),
        ("-o|hot_lru_pct=50", 64, "hot_lru_pct + warm_lru_pct cannot be more than 80%"),
        ("-o|temporary_ttl=1,no_lru_maintainer", 64, "temporary_ttl requires lru_maintainer"),
        ("-t|2|-N|3", 64, "Number of napi_ids(3)"),
        ("-Q", 1, "there is no flag -Q"),
        ("--nonsense", 1, "there is no flag --nonsense"),
        ("--disable=1", 1, "--disable could be --disable-evictions or --disable-cas"),
        ("--daemon=1", 1, "--daemon takes no argument"),
        ("-p", 1, "-p needs an argument"),
    ] {
        check_refused(line, code, begin);
    }
}

#[test]
fn asking_for_words() {
    assert_eq!(parse(&arguments("-h")), Ok(Outcome::Help));
    assert_eq!(parse(&arguments("-m|64|--help")), Ok(Outcome::Help));
    assert_eq!(parse(&arguments("-V")), Ok(Outcome::Version));
    assert_eq!(parse(&arguments("--version")), Ok(Outcome::Version));
    assert_eq!(parse(&arguments("-i")), Ok(Outcome::License));
    assert_eq!(run("extra").warnings, ["\"extra\" is no flag and is ignored; -h lists the flags"]);
}

/// The defaults that the tables name are the defaults there are.
#[test]
fn defaults_are_the_defaults() {
    for flag in flags().filter(|flag| flag.short != Some('R')) {
        if let (Some(default), Action::Set(set)) = (flag.default, flag.action) {
            let mut settings = Settings::default();
            set(&mut settings, default).expect(flag.long);
            assert_eq!(settings, Settings::default(), "--{}", flag.long);
        }
    }
    assert_eq!(Settings::default().requests_per_event_or_default(), 20);
    for row in EXTENDED {
        if let Some(default) = row.default {
            let mut settings = Settings::default();
            (row.set)(&mut settings, default).expect(row.name);
            assert_eq!(settings, Settings::default(), "-o {}", row.name);
        }
    }
}

/// Every flag and option of memcached 1.6.45 is in the tables, each once.
#[test]
fn the_tables_are_complete() {
    let mut shorts: Vec<char> = flags().filter_map(|flag| flag.short).collect();
    shorts.sort_unstable();
    assert_eq!(shorts.iter().collect::<String>(), "ABCDFILMNPRSUVWXYZabcdefhiklmnoprstuv");
    let mut longs: Vec<&str> = flags().map(|flag| flag.long).collect();
    let before = longs.len();
    longs.sort_unstable();
    longs.dedup();
    assert_eq!(longs.len(), before);
    for name in "maxconns_fast hashpower no_hashexpand slab_reassign slab_automove slab_automove_ratio \
                 slab_automove_window slab_automove_freeratio tail_repair_time hash_algorithm lru_crawler \
                 lru_crawler_sleep lru_crawler_tocrawl lru_maintainer hot_lru_pct warm_lru_pct hot_max_factor \
                 warm_max_factor temporary_ttl idle_timeout watcher_logbuf_size worker_logbuf_size slab_sizes \
                 slab_chunk_max track_sizes modern no_modern inline_ascii_resp no_inline_ascii_resp \
                 no_chunked_items no_slab_reassign no_slab_automove no_maxconns_fast no_lru_crawler \
                 no_lru_maintainer drop_privileges relaxed_privileges read_buf_mem_limit resp_obj_mem_limit \
                 sock_cookie_id"
        .split_whitespace()
    {
        assert_eq!(EXTENDED.iter().filter(|row| row.name == name).count(), 1, "-o {name}");
    }
}

#[test]
fn the_help_fits_and_names_only_what_is_here() {
    let help = help();
    assert_eq!(help.lines().next(), Some("memcached 1.6.45"));
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
        assert_eq!(line.trim_end(), line, "blanks at the end");
    }
    assert!(help.contains("unix-socket"));
    let lower = help.to_lowercase();
    for word in ["sasl", "ext_path", "proxy_config", "enable-ssl", "no_drop_privileges", "test-mode"] {
        assert!(!lower.contains(word), "the help names {word}");
    }
    for flag in flags().filter(|flag| !matches!(flag.here, Here::Refused(_) | Here::Hidden)) {
        assert!(help.contains(&format!("--{}", flag.long)), "--{} is missing", flag.long);
    }
}

/// `docs/flags.md` is what the tables say. `VERACACHE_BLESS=1` in the environment writes it anew.
#[test]
fn the_page_of_flags() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md");
    let page = flags_page();
    if std::env::var_os("VERACACHE_BLESS").is_some() {
        std::fs::write(path, &page).expect("docs/flags.md can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/flags.md is not what the tables say; run this test with VERACACHE_BLESS=1");
}
