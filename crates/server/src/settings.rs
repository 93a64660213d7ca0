//! Everything that is decided before the server starts: one struct, filled from the command line.
//!
//! The flags stand in two tables, `settings/table.rs` and `settings/extended.rs`. Parsing, `-h` and the page
//! `docs/flags.md` all come from them.

mod extended;
mod help;
mod listen;
mod parse;
mod protection;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;

use protocol::checked::Announcement;

pub use help::{flags_page, help};
pub use listen::Listen;
pub use parse::{Outcome, parse};

/// The memcached whose behaviour, texts and statistics this server follows, and whose version it answers with.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// Exit code for a command line that cannot be used (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;

/// Exit code memcached ends with when the value of a flag is out of range.
pub const EXIT_VALUE: u8 = 1;

const MIB: u64 = 1 << 20;

/// What a server runs with. The defaults are memcached's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `-p`: the TCP port.
    pub tcp_port: Port,
    /// `-U`: the UDP port asked for. None is ever opened.
    pub udp_port: Port,
    /// `--line-port`: the port of the line protocol.
    pub line_port: Port,
    /// `-l`: where to listen; empty for every interface.
    pub listen: Vec<Listen>,
    /// `-l` as it was given, for `stats settings`.
    pub listen_text: Option<String>,
    /// `-s`: a Unix socket to listen on instead of the network.
    pub unix_socket: Option<PathBuf>,
    /// `-a`: the access mode of that socket.
    pub unix_mask: u32,
    /// `-b`: how many connections may wait to be accepted.
    pub backlog: u32,
    /// `-c`: how many connections there may be at once.
    pub conn_limit: u32,
    /// `-o maxconns_fast`: connections above the limit are told so and closed, instead of waiting.
    pub conn_limit_fast: bool,
    /// `-o idle_timeout`: seconds after which a silent connection is closed; 0 for never.
    pub idle_timeout_seconds: u32,
    /// `-B`: which protocols a connection may speak.
    pub binding: Binding,
    /// `-u`: the user to become when started as root.
    pub user: Option<String>,
    /// `-d`: run in the background.
    pub daemonize: bool,
    /// `-P`: where the process id is written.
    pub pidfile: Option<PathBuf>,
    /// `-r`: raise the limit for core files.
    pub coredumps: bool,
    /// `-k`: keep all memory resident.
    pub lock_memory: bool,
    /// `-L`: ask for large pages.
    pub large_pages: bool,
    /// `-m`: the memory limit.
    pub memory_bytes: u64,
    /// `-M` turns this off: a full cache then refuses instead of forgetting.
    pub evict: bool,
    /// `-I`: the largest item.
    pub item_bytes_max: u32,
    /// `-C` turns this off: items then have no cas id.
    pub cas: bool,
    /// `-o hashpower`: how large the index is made at the start, as a power of two of items.
    pub hash_power_initial: Option<u8>,
    /// `-t`: how many workers serve connections.
    pub threads: u32,
    /// `-R`: commands of one connection before others have their turn; `None` when it was not given.
    pub requests_per_event: Option<u32>,
    /// `-v`: how much is told on standard error.
    pub verbosity: u32,
    /// `-F` turns this off.
    pub flush_enabled: bool,
    /// `-X` turns this off.
    pub dump_enabled: bool,
    /// `-W` turns this off.
    pub watch_enabled: bool,
    /// `-A`.
    pub shutdown_enabled: bool,
    /// `-D`: the byte between the prefix of a key and the rest, for `stats detail`.
    pub prefix_delimiter: u8,
    /// Whether `stats detail` counts from the start (`-D` was given).
    pub detail_enabled: bool,
    /// `-o track_sizes`.
    pub track_sizes: bool,
    /// What is said about slab classes. There are none in this engine: it is kept for the tools that ask.
    pub slabs: Slabs,
    /// What is said about the segmented LRU. There is none in this engine.
    pub lru: Lru,
    /// `-o hash_algorithm`: kept for `stats settings` only.
    pub hash_algorithm: HashAlgorithm,
    /// `-o tail_repair_time`: kept for `stats settings` only.
    pub tail_repair_seconds: u32,
    /// `-o watcher_logbuf_size`: kept for `stats settings` only.
    pub watcher_logbuf_bytes: u64,
    /// `-o worker_logbuf_size`: kept for `stats settings` only.
    pub worker_logbuf_bytes: u64,
    /// `-o read_buf_mem_limit` in megabytes: kept for `stats settings` only.
    pub read_buf_limit_mib: u32,
    /// `-N`: kept for `stats settings` only.
    pub napi_ids: u32,
    /// `--protect`: how commands are executed so that a second execution can confirm the first.
    pub protect: Protect,
    /// `--redundancy`: executions of each command with `--protect sei`.
    pub redundancy: u8,
    /// `--replica`: where the replica is, with `--protect rbv`; a child process when not given.
    pub replica: Option<String>,
    /// What is executed as a replica; this program when not given.
    pub replica_program: Option<PathBuf>,
    /// `--protect-sync`: replies wait until their executions are confirmed.
    pub protect_sync: bool,
    /// `--validators`: threads that repeat executions; `None` for as many as there is room for.
    pub validators: Option<u32>,
    /// `--validate-share`: which share of executions is validated.
    pub validate_share: Share,
    /// `--validate-budget`: with a share of `auto`, what validation may take, in percent of one core; `None` for what suits
    /// the machine.
    pub validate_budget_percent: Option<u32>,
    /// `--on-corruption`: what is done about executions that disagree.
    pub on_corruption: OnCorruption,
    /// `--state-file`: where it is written which cores were left.
    pub state_file: Option<PathBuf>,
    /// `--checked-values-flag`: the client flag that announces a value's own checksum; `None` when none does.
    pub checked_values: Option<Announcement>,
    /// `--scrub`: how many items in memory are checked in a second; 0 for none.
    pub scrub_items_per_second: u32,
    /// `--test-mode`: the command `debugtime` exists.
    pub test_mode: bool,
    /// What the user should know before the server starts, one line each.
    pub warnings: Vec<String>,
}

impl Settings {
    /// The commands a connection may have executed before others have their turn.
    pub fn requests_per_event_or_default(&self) -> u32 {
        self.requests_per_event.unwrap_or(20)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tcp_port: Port::Fixed(11211),
            udp_port: Port::Off,
            line_port: Port::Off,
            listen: Vec::new(),
            listen_text: None,
            unix_socket: None,
            unix_mask: 0o700,
            backlog: 1024,
            conn_limit: 1024,
            conn_limit_fast: true,
            idle_timeout_seconds: 0,
            binding: Binding::Auto,
            user: None,
            daemonize: false,
            pidfile: None,
            coredumps: false,
            lock_memory: false,
            large_pages: false,
            memory_bytes: 64 * MIB,
            evict: true,
            item_bytes_max: MIB as u32,
            cas: true,
            hash_power_initial: None,
            threads: threads_default(),
            requests_per_event: None,
            verbosity: 0,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            prefix_delimiter: b':',
            detail_enabled: false,
            track_sizes: false,
            slabs: Slabs::default(),
            lru: Lru::default(),
            hash_algorithm: HashAlgorithm::Murmur3,
            tail_repair_seconds: 0,
            watcher_logbuf_bytes: 256 << 10,
            worker_logbuf_bytes: 64 << 10,
            read_buf_limit_mib: 0,
            napi_ids: 0,
            protect: Protect::Orthrus,
            redundancy: 2,
            replica: None,
            replica_program: None,
            protect_sync: false,
            validators: None,
            validate_share: Share::Auto,
            validate_budget_percent: None,
            on_corruption: OnCorruption::Quarantine,
            state_file: None,
            checked_values: None,
            scrub_items_per_second: 20_000,
            test_mode: false,
            warnings: Vec::new(),
        }
    }
}

/// Four workers, as memcached has, but never more than there are cores.
fn threads_default() -> u32 {
    std::thread::available_parallelism().map_or(4, NonZero::get).min(4) as u32
}

/// A port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// None (`0`).
    Off,
    /// One that the system chooses (`-1`).
    Any,
    /// This one.
    Fixed(u16),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Off => f.write_str("0"),
            Port::Any => f.write_str("-1"),
            Port::Fixed(port) => port.fmt(f),
        }
    }
}

/// How commands are executed, so that a second execution can confirm the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// Once.
    Vanilla,
    /// Several times on the same core.
    Sei,
    /// Once, leaving a record, from which a validator on another core repeats it.
    Orthrus,
    /// Once, leaving a record, from which another process repeats it on a store of its own.
    Rbv,
}

/// Which share of executions is validated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// As much as the budget allows.
    Auto,
    /// This share, from 0 to 1.
    Fixed(f64),
}

impl Protect {
    fn parse(text: &str) -> Result<Self, Refusal> {
        match text.trim() {
            "vanilla" => Ok(Protect::Vanilla),
            "sei" => Ok(Protect::Sei),
            "orthrus" => Ok(Protect::Orthrus),
            "rbv" => Ok(Protect::Rbv),
            other => {
                let modes = "vanilla, sei, orthrus or rbv";
                Err(Refusal::value(format!("--protect must be {modes}, not \"{other}\"")))
            }
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Protect::Vanilla => "vanilla",
            Protect::Sei => "sei",
            Protect::Orthrus => "orthrus",
            Protect::Rbv => "rbv",
        }
    }
}

impl Settings {
    /// How often each command is executed.
    pub(crate) fn runs(&self) -> u8 {
        match self.protect {
            Protect::Sei => self.redundancy,
            Protect::Vanilla | Protect::Orthrus | Protect::Rbv => 1,
        }
    }

    /// Whether a share of the keys is followed by the shadow index: not where nothing is to be recorded, and not where a
    /// replica follows all of them.
    pub(crate) fn follows(&self) -> bool {
        self.protect == Protect::Orthrus && self.validate_share != Share::Fixed(0.0)
    }

    /// Whether executions leave records.
    pub(crate) fn records(&self) -> bool {
        matches!(self.protect, Protect::Orthrus | Protect::Rbv)
    }
}

/// What is done about executions that disagree. Each includes what stands before it, but for the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnCorruption {
    /// It is told and counted.
    Log,
    /// What was written is forgotten.
    Evict,
    /// A core that is wrong too often is used no longer.
    Quarantine,
    /// What was written is forgotten, and the process ends.
    Exit,
}

impl OnCorruption {
    const ALL: [(&str, OnCorruption); 4] = [
        ("log", OnCorruption::Log),
        ("evict", OnCorruption::Evict),
        ("quarantine", OnCorruption::Quarantine),
        ("exit", OnCorruption::Exit),
    ];

    fn parse(text: &str) -> Result<Self, Refusal> {
        let word = text.trim();
        let found = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, policy)| *policy);
        let refused = || format!("--on-corruption must be log, evict, quarantine or exit, not \"{word}\"");
        found.ok_or_else(|| Refusal::value(refused()))
    }
}

/// Which protocols a connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The first byte decides.
    Auto,
    /// Text only.
    Ascii,
    /// Binary only.
    Binary,
}

impl Binding {
    /// The word `stats settings` has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Binding::Auto => "auto-negotiate",
            Binding::Ascii => "ascii",
            Binding::Binary => "binary",
        }
    }
}

/// The hash functions memcached can be told to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// `jenkins`
    Jenkins,
    /// `murmur3`
    Murmur3,
    /// `xxh3`
    Xxh3,
}

impl HashAlgorithm {
    /// Its name on the command line and in `stats settings`.
    pub fn as_str(self) -> &'static str {
        match self {
            HashAlgorithm::Jenkins => "jenkins",
            HashAlgorithm::Murmur3 => "murmur3",
            HashAlgorithm::Xxh3 => "xxh3",
        }
    }
}

/// The slab classes that class numbers in dumps and statistics are computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Slabs {
    /// `-f`: how much larger each class is than the one before.
    pub factor: f64,
    /// `-n`: the space for key, value and flags in the smallest class.
    pub chunk_bytes_min: u32,
    /// `-o slab_chunk_max`: the largest chunk.
    pub chunk_bytes_max: u32,
    /// `-o slab_sizes`: the sizes of all classes but the last, instead of `-f` and `-n`.
    pub sizes: Option<Vec<u32>>,
    /// `-o slab_reassign`
    pub reassign: bool,
    /// `-o slab_automove`
    pub automove: u32,
    /// `-o slab_automove_ratio`
    pub automove_ratio: f64,
    /// `-o slab_automove_window`
    pub automove_window: u32,
    /// `-o slab_automove_freeratio`
    pub automove_freeratio: f64,
}

impl Default for Slabs {
    fn default() -> Self {
        Slabs {
            factor: 1.25,
            chunk_bytes_min: 48,
            chunk_bytes_max: 512 << 10,
            sizes: None,
            reassign: true,
            automove: 1,
            automove_ratio: 0.8,
            automove_window: 30,
            automove_freeratio: 0.01,
        }
    }
}

/// The settings of memcached's LRU, which are kept and shown and change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Lru {
    /// `-o lru_crawler`
    pub crawler: bool,
    /// `-o lru_crawler_sleep`, in microseconds
    pub crawler_sleep_us: u32,
    /// `-o lru_crawler_tocrawl`
    pub crawler_tocrawl: u32,
    /// `-o lru_maintainer`
    pub maintainer: bool,
    /// `-o hot_lru_pct`
    pub hot_pct: u32,
    /// `-o warm_lru_pct`
    pub warm_pct: u32,
    /// `-o hot_max_factor`
    pub hot_max_factor: f64,
    /// `-o warm_max_factor`
    pub warm_max_factor: f64,
    /// `-o temporary_ttl`; `None` when it was not given
    pub temporary_ttl: Option<u32>,
}

impl Default for Lru {
    fn default() -> Self {
        Lru {
            crawler: true,
            crawler_sleep_us: 100,
            crawler_tocrawl: 0,
            maintainer: true,
            hot_pct: 20,
            warm_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temporary_ttl: None,
        }
    }
}

/// Why a command line was refused: one line for the user, and the exit code memcached has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong and what to do.
    pub text: String,
    /// The exit code of the process.
    pub code: u8,
}

impl Refusal {
    fn value(text: impl Into<String>) -> Self {
        Refusal { text: text.into(), code: EXIT_VALUE }
    }

    fn usage(text: impl Into<String>) -> Self {
        Refusal { text: text.into(), code: EXIT_USAGE }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}
