//! The code of a traced process: where an address lies, which instruction is there, and which source line it stands for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Loader;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Mnemonic};
use procfs::process::{MMPermissions, MMapPath, Process};

use super::tracee::Tracee;
use super::unit::{self, Unit};
use crate::error::Error;

/// The longest instruction there is.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Addresses that are remembered; a server's path has some ten thousand. Beyond that, they are found again each time.
const PLACES_MAX: usize = 1 << 18;

/// A place in a file's code. It is the same in every process that maps the file.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The number of the file in [`Code`]; 0 is the server's executable.
    pub file: u16,
    /// The address that the file itself gives it.
    pub address: u64,
}

/// What is known about a place.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its unit.
    pub unit: Unit,
    /// The instruction, as if the file were mapped where it says.
    pub instruction: Instruction,
}

/// Where an instruction comes from, for people.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The innermost function of ours.
    pub function: String,
    /// `path:line` of the innermost line of ours.
    pub line: String,
    /// In Intel's notation.
    pub assembly: String,
}

/// The code of executables and libraries; outlives the processes that run it.
#[derive(Default)]
pub struct Code {
    files: Vec<Mapped>,
    known: HashMap<Place, Rc<Known>>,
}

struct Mapped {
    path: PathBuf,
    loader: Option<Loader>,
    is_c_library: bool,
}

/// Where a process has its files.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// What is added to a file's own address.
    bias: u64,
    file: u16,
}

impl Layout {
    /// Where an address of the process belongs to.
    pub fn place(&self, address: u64) -> Option<Place> {
        let span = self.spans.iter().find(|span| (span.start..span.end).contains(&address))?;
        Some(Place { file: span.file, address: address.wrapping_sub(span.bias) })
    }

    /// Where a place is in the process.
    pub fn address(&self, place: Place) -> Option<u64> {
        self.spans.iter().filter(|span| span.file == place.file).find_map(|span| {
            let address = place.address.wrapping_add(span.bias);
            (span.start..span.end).contains(&address).then_some(address)
        })
    }
}

impl Code {
    /// Finds out where a process has the code of its files.
    pub fn layout(&mut self, process: u32) -> Result<Layout, Error> {
        let gone = |error| Error::Unavailable(format!("the server's mappings can't be read: {error}"));
        let process = Process::new(process.cast_signed()).map_err(gone)?;
        let executable = process.exe().map_err(gone)?;
        // Number 0, in every process.
        self.file(&executable)?;
        let mut layout = Layout::default();
        for map in process.maps().map_err(gone)? {
            let MMapPath::Path(path) = &map.pathname else { continue };
            if !map.perms.contains(MMPermissions::EXECUTE) {
                continue;
            }
            let file = self.file(path)?;
            let segment = executable_segment(path, map.offset)?;
            let bias = map.address.0.wrapping_sub(segment);
            layout.spans.push(Span { start: map.address.0, end: map.address.1, bias, file });
        }
        Ok(layout)
    }

    fn file(&mut self, path: &Path) -> Result<u16, Error> {
        let number = self.files.iter().position(|file| file.path == path).unwrap_or(self.files.len());
        if number == self.files.len() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_c_library =
                name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("ld-");
            let loader = if is_c_library { None } else { Loader::new(path).ok() };
            self.files.push(Mapped { path: path.to_path_buf(), loader, is_c_library });
        }
        u16::try_from(number).map_err(|_| Error::Unavailable("the server maps too many files".into()))
    }

    /// What is at a place; none when nothing is mapped there, or no instruction.
    pub fn known(&mut self, tracee: &Tracee, layout: &Layout, place: Place) -> Option<Rc<Known>> {
        if let Some(known) = self.known.get(&place) {
            return Some(Rc::clone(known));
        }
        let mut bytes = [0; INSTRUCTION_BYTES_MAX];
        let count = tracee.read(layout.address(place)?, &mut bytes).ok()?;
        let instruction = decode(&bytes[..count], place.address)?;
        let known = Rc::new(Known { unit: self.unit(place), instruction });
        if self.known.len() < PLACES_MAX {
            self.known.insert(place, Rc::clone(&known));
        }
        Some(known)
    }

    fn unit(&self, place: Place) -> Unit {
        let file = &self.files[usize::from(place.file)];
        if file.is_c_library {
            return Unit::Copy;
        }
        let mut files = Vec::new();
        self.each_line(place, |_, path, _| files.push(path.to_string()));
        unit::of_lines(files.iter().map(String::as_str))
    }

    /// Calls with function, file and line of each function that was made into one at a place, the innermost first.
    fn each_line(&self, place: Place, mut call: impl FnMut(String, &str, u32)) {
        let Some(loader) = &self.files[usize::from(place.file)].loader else { return };
        let Ok(mut frames) = loader.find_frames(place.address) else { return };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let (file, line) =
                frame.location.map_or(("", 0), |at| (at.file.unwrap_or(""), at.line.unwrap_or(0)));
            call(name.unwrap_or_default(), file, line);
        }
    }

    /// Where a place comes from.
    pub fn origin(&self, place: Place, instruction: &Instruction) -> Origin {
        let mut origin = Origin { assembly: assembly(instruction), ..Origin::default() };
        self.each_line(place, |function, file, line| {
            if origin.line.is_empty()
                && let Some((_, path)) = file.rsplit_once("crates/")
            {
                let function = function.split('<').next().unwrap_or_default();
                origin.function = function.to_string();
                origin.line = format!("crates/{path}:{line}");
            }
        });
        if origin.line.is_empty() {
            let file = &self.files[usize::from(place.file)];
            let symbol = file.loader.as_ref().and_then(|loader| loader.find_symbol(place.address));
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            origin.function = symbol.unwrap_or("?").to_string();
            origin.line = format!("{name}+{:#x}", place.address);
        }
        origin
    }
}

/// The file's own address of what is mapped from an offset of it.
fn executable_segment(path: &Path, offset: u64) -> Result<u64, Error> {
    use object::{Object, ObjectSegment};
    let doing = || path.display().to_string();
    let file = std::fs::File::open(path).map_err(Error::io(doing()))?;
    let cache = object::ReadCache::new(file);
    let parsed = object::File::parse(&cache)
        .map_err(|error| Error::Unavailable(format!("{}: not an executable: {error}", path.display())))?;
    let page = |address: u64| address & !0xfff;
    let found = parsed.segments().find(|segment| page(segment.file_range().0) == offset);
    Ok(found.map_or(offset, |segment| page(segment.address())))
}

/// The instruction that these bytes begin with.
pub fn decode(bytes: &[u8], address: u64) -> Option<Instruction> {
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// In Intel's notation.
pub fn assembly(instruction: &Instruction) -> String {
    let mut text = String::new();
    IntelFormatter::new().format(instruction, &mut text);
    text
}

/// Whether it enters the kernel.
pub fn is_system_call(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_addresses_are_each_others() {
        let layout = Layout {
            spans: vec![
                Span { start: 0x5000, end: 0x7000, bias: 0x4000, file: 0 },
                Span { start: 0x9000, end: 0xa000, bias: 0x9000, file: 1 },
            ],
        };
        for address in [0x5000, 0x6fff, 0x9000] {
            let place = layout.place(address).expect("mapped");
            assert_eq!(layout.address(place), Some(address));
        }
        assert_eq!(layout.place(0x7000), None);
        assert_eq!(layout.address(Place { file: 1, address: 0x1000 }), None);
    }

    #[test]
    fn bytes_are_instructions() {
        let cases: [(&[u8], &str); 4] = [
            (&[0x89, 0xd8], "mov eax,ebx"),
            (&[0xf2, 0x48, 0x0f, 0x38, 0xf1, 0xc1], "crc32 rax,rcx"),
            (&[0x0f, 0x11, 0x47, 0x10], "movups [rdi+10h],xmm0"),
            (&[0x0f, 0x05], "syscall"),
        ];
        for (bytes, text) in cases {
            let instruction = decode(bytes, 0x1000).expect("an instruction");
            assert_eq!(assembly(&instruction), text);
            assert_eq!(is_system_call(&instruction), text == "syscall");
        }
        assert_eq!(decode(&[0x06], 0), None);
        assert_eq!(decode(&[], 0), None);
    }
}
