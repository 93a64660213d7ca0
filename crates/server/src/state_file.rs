//! What a server remembers of cores it left: a text file, a line per core, that people can read and edit.
//!
//! ```text
//! core=3 since=1795250000 verdict=persistent microcode=0x1000065
//! ```
//!
//! A line that is taken out puts its core into service again at the next start. Whatever is wrong with the file is a
//! warning: a cache that doesn't start because of what it should remember would be the worse failure.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use guard::{Core, Fault};

/// What a file may hold: many times what a line for each core there can be takes.
const BYTES_MAX: u64 = 256 << 10;

/// Cores remembered at most; later ones are not written.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// A core that was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) core: Core,
    /// When, in Unix seconds.
    pub(crate) since_unix: u64,
    pub(crate) cause: Cause,
    /// What the system said of the core's microcode then.
    pub(crate) microcode: Option<String>,
}

/// Why a core was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was found wrong.
    Fault(Fault),
    /// It shares its execution units with one that was.
    Sibling,
}

/// What was read at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) entries: Vec<Entry>,
    /// What was wrong with the file, and what that means, in one line.
    pub(crate) warning: Option<String>,
}

impl Memory {
    /// Reads a file. One that isn't there remembers nothing.
    pub(crate) fn read(path: &Path) -> Self {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut text));
        let wrong = match read {
            Ok(_) if text.len() as u64 > BYTES_MAX => format!("is longer than {BYTES_MAX} bytes"),
            Ok(_) => {
                let (entries, wrong) = parse(&String::from_utf8_lossy(&text));
                let warning = wrong.map(|number| {
                    let known = entries.len();
                    told(path, &format!("line {number} is not understood; {known} other lines are used"))
                });
                return Memory { entries, warning };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Memory::default(),
            Err(error) => format!("can't be read: {error}"),
        };
        let warning = told(path, &format!("{wrong}; no core is left because of it"));
        Memory { entries: Vec::new(), warning: Some(warning) }
    }
}

/// Replaces the file by one with these lines. Whoever reads it, and a machine that fails meanwhile, finds the old lines or
/// the new ones.
pub(crate) fn write(path: &Path, entries: &[Entry]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    let mut file = File::create(&unfinished)?;
    for entry in entries.iter().take(ENTRIES_MAX) {
        writeln!(file, "{entry}")?;
    }
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn told(path: &Path, wrong: &str) -> String {
    format!("--state-file {}: {wrong}", path.display())
}

/// The lines, and the number of the first that makes no sense.
fn parse(text: &str) -> (Vec<Entry>, Option<usize>) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut wrong = None;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match Entry::parse(line) {
            Some(entry) if entries.iter().any(|known| known.core == entry.core) => {}
            Some(entry) if entries.len() < ENTRIES_MAX => entries.push(entry),
            _ => wrong = wrong.or(Some(at + 1)),
        }
    }
    (entries, wrong)
}

impl Entry {
    /// Reads a line. Names that later versions may add are passed over.
    fn parse(line: &str) -> Option<Self> {
        let (mut core, mut since_unix, mut cause, mut microcode) = (None, None, None, None);
        for word in line.split_ascii_whitespace() {
            let (name, value) = word.split_once('=')?;
            match name {
                "core" => core = Some(Core(value.parse().ok()?)),
                "since" => since_unix = Some(value.parse().ok()?),
                "verdict" => cause = Some(Cause::parse(value)?),
                "microcode" if value != "?" => microcode = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(Entry { core: core?, since_unix: since_unix?, cause: cause?, microcode })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { core, since_unix, cause, microcode } = self;
        let microcode = microcode.as_deref().unwrap_or("?");
        write!(f, "core={} since={since_unix} verdict={cause} microcode={microcode}", core.0)
    }
}

impl Cause {
    fn parse(word: &str) -> Option<Self> {
        let all = [Cause::Fault(Fault::Persistent), Cause::Fault(Fault::Intermittent), Cause::Sibling];
        all.into_iter().find(|cause| cause.to_string() == word)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Fault(Fault::Persistent) => "persistent",
            Cause::Fault(Fault::Intermittent) => "intermittent",
            Cause::Sibling => "sibling",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    /// A directory of this test's own, gone with it.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!("veracache-state-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).expect("a new directory");
            Directory(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("cores")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entry(core: u16, cause: Cause, microcode: Option<&str>) -> Entry {
        Entry { core: Core(core), since_unix: 1_795_250_000, cause, microcode: microcode.map(str::to_owned) }
    }

    const PERSISTENT: Cause = Cause::Fault(Fault::Persistent);

    #[test]
    fn what_is_written_is_read() {
        let directory = Directory::new();
        let entries = [
            entry(3, PERSISTENT, Some("0x1000065")),
            entry(7, Cause::Sibling, None),
            entry(65535, Cause::Fault(Fault::Intermittent), Some("0xb000040")),
        ];
        for entries in [&entries[..], &entries[1..], &[]] {
            write(&directory.file(), entries).expect("a file");
            let read = Memory::read(&directory.file());
            assert_eq!((read.entries.as_slice(), read.warning), (entries, None));
            let names: Vec<_> = std::fs::read_dir(&directory.0).expect("it is there").collect();
            assert_eq!(names.len(), 1, "nothing unfinished stays: {names:?}");
        }
        assert_eq!(entries[0].to_string(), "core=3 since=1795250000 verdict=persistent microcode=0x1000065");
    }

    /// What is in a file, what is understood of it, and whether there is a warning.
    fn check(text: &[u8], cores: &[u16], wrong: Option<&str>) {
        let directory = Directory::new();
        std::fs::write(directory.file(), text).expect("a file");
        let Memory { entries, warning } = Memory::read(&directory.file());
        let found: Vec<u16> = entries.iter().map(|entry| entry.core.0).collect();
        assert_eq!(found, cores, "{}", String::from_utf8_lossy(text));
        match (wrong, &warning) {
            (None, None) => {}
            (Some(wrong), Some(warning)) => {
                assert!(warning.contains(wrong), "{warning}");
                assert!(!warning.contains('\n'), "{warning}");
            }
            _ => panic!("{warning:?}, and not {wrong:?}"),
        }
    }

    #[test]
    fn damage_is_a_warning() {
        let good = b"core=3 since=1 verdict=persistent microcode=0x1\n";
        check(good, &[3], None);
        check(b"", &[], None);
        check(b"# by hand\n\ncore=1 verdict=sibling since=2 color=red\n", &[1], None);
        check(&[&good[..], good].concat(), &[3], None);
        check(
            &[&good[..], b"core=x\n", b"core=4 since=1 verdict=intermittent\n"].concat(),
            &[3, 4],
            Some("line 2 "),
        );
        check(b"core=3 since=1 verdict=tired\n", &[], Some("line 1 "));
        check(b"core=3 verdict=persistent\n", &[], Some("line 1 "));
        check(b"core=70000 since=1 verdict=persistent\n", &[], Some("line 1 "));
        check(b"\0\xff\xfe\n", &[], Some("line 1 "));
        check(&vec![b'x'; BYTES_MAX as usize + 1], &[], Some("longer than"));
        let many: String = (0..=ENTRIES_MAX).map(|n| format!("core={n} since=1 verdict=sibling\n")).collect();
        let all: Vec<u16> = (0..ENTRIES_MAX as u16).collect();
        check(many.as_bytes(), &all, Some("line 1025 "));
    }

    #[test]
    fn a_file_that_is_missing_or_none() {
        let directory = Directory::new();
        assert_eq!(Memory::read(&directory.file()), Memory::default());
        let warning = Memory::read(&directory.0).warning.expect("a directory is no file");
        assert!(warning.contains("can't be read"), "{warning}");
        assert!(write(&directory.0.join("none/cores"), &[]).is_err());
    }
}
