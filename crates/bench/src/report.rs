//! Shows what records say: a page for a browser, and the same for a terminal.
//!
//! A report is a pure function of records. It knows their common part and the figures in their results, and nothing
//! about how each kind of measurement comes to them.

mod document;
mod download;
mod escape;
pub mod figures;
mod grid;
mod markdown;
mod page;
mod palette;
mod plot;
mod quantity;
mod rows;
mod scale;
mod svg;
mod text;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::error::Error;
use crate::record::{self, Record};
use document::Document;

/// All files together may be so large; each is read into memory.
const FILES_BYTES_LIMIT: u64 = 256 << 20;

/// What is shown, and how.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Files that measurements added to (--output FILE)
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    /// Form of the report [default: what the name after --output ends
    /// in, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write the report to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Heading [default: follows from what was measured]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// The forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One page with pictures, for a browser
    Html,
    /// For a terminal of 80 columns
    Text,
    /// Markdown
    Md,
}

/// Reads the files and writes the report.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut records = Vec::new();
    let mut bytes = 0;
    for path in &options.files {
        bytes += fs::metadata(path).map_err(Error::io(path.display().to_string()))?.len();
        if bytes > FILES_BYTES_LIMIT {
            let (path, limit) = (path.display(), FILES_BYTES_LIMIT >> 20);
            return Err(Error::Usage(format!(
                "{path}: more than {limit} MiB of results; report on fewer files"
            )));
        }
        records.extend(record::read(path)?);
    }
    let format = options.format.unwrap_or_else(|| options.output.as_deref().map_or(Format::Text, format_of));
    let report = render(&records, format, options.title.as_deref())?;
    match &options.output {
        Some(path) => {
            refuse_to_overwrite(path, &options.files)?;
            fs::write(path, report)
                .map_err(Error::io(format!("{}: the report can't be kept", path.display())))
        }
        None => match io::stdout().write_all(report.as_bytes()) {
            // Whoever reads it may stop early (`| head`).
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::Io("standard output".to_string(), error))
            }
            _ => Ok(()),
        },
    }
}

/// A report on records, under a heading that follows from them if none is given. The same records give the same bytes.
pub fn render(records: &[Record], format: Format, title: Option<&str>) -> Result<String, Error> {
    let document = Document::of(records, title)?;
    Ok(match format {
        Format::Html => page::page(&document),
        Format::Text => text::text(&document),
        Format::Md => markdown::markdown(&document),
    })
}

fn format_of(path: &Path) -> Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => Format::Html,
        Some("md") => Format::Md,
        _ => Format::Text,
    }
}

/// Measurements append to the file after `--output`; whoever expects that here would lose them.
fn refuse_to_overwrite(path: &Path, files: &[PathBuf]) -> Result<(), Error> {
    let Ok(target) = fs::canonicalize(path) else { return Ok(()) };
    if files.iter().any(|file| fs::canonicalize(file).is_ok_and(|file| file == target)) {
        let text =
            format!("{}: holds results that the report would replace; name another file", path.display());
        return Err(Error::Usage(text));
    }
    Ok(())
}
