//! Where statistics go: into text lines here, into packets in the binary protocol.

use std::fmt;
use std::io::Write;

/// Takes one statistic after another.
pub(crate) trait Sink {
    /// Takes one statistic.
    fn stat(&mut self, key: fmt::Arguments<'_>, value: fmt::Arguments<'_>);
}

/// Writes `STAT key value` lines.
pub(crate) struct TextSink<'a>(pub(crate) &'a mut Vec<u8>);

impl Sink for TextSink<'_> {
    fn stat(&mut self, key: fmt::Arguments<'_>, value: fmt::Arguments<'_>) {
        write(self.0, format_args!("STAT {key} {value}\r\n"));
    }
}

/// Appends formatted text.
pub(super) fn write(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes every byte, and the formatters here don't fail");
}
