//! Reads parts of a file, line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};

use brigade_core::id::HashBuilder;
use brigade_core::{Extent, Hash, SeenFile};

use super::{FileError, Files, MAX_EDIT_BYTES, OpenedFile, escape_controls};

/// Maximum number of bytes that are read to find a line. Beyond it, the agent should use the shell.
const MAX_SCAN_BYTES: u64 = 128 << 20;

/// Number of bytes that are checked for binary content.
const SNIFF_BYTES: usize = 8 * 1024;

/// Range of lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Bytes of the lines, with line ends.
    pub(crate) bytes: Vec<u8>,
    /// Number of lines in `bytes`.
    pub(crate) count: u64,
    /// Whether the only line was longer than the limit and is cut.
    pub(crate) long_line: bool,
    /// Number of lines after the range.
    pub(crate) rest: Rest,
    /// Number of lines before the range; fewer than requested if the file is shorter.
    pub(crate) skipped: u64,
    /// Whether the file looks binary.
    pub(crate) binary: bool,
    /// File as seen by an agent that is shown these lines; `None` if the agent cannot change it anyway.
    pub(crate) seen: Option<SeenFile>,
}

/// Number of lines after a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Counted lines.
    Lines(u64),
    /// More lines than were counted.
    #[default]
    Unknown,
}

impl Files {
    /// Reads at most `count` lines with at most `cap` bytes in total, starting at line `first` (counted from 1).
    /// Memory use is bounded by `cap`, whatever the length of the file and its lines.
    pub(crate) fn read_lines(
        &self,
        path: &str,
        first: u64,
        count: u64,
        cap: usize,
    ) -> Result<Lines, FileError> {
        let OpenedFile { file, real, .. } = self.open(path)?;
        let fail = |cause| FileError::from_system(&escape_controls(path), cause);
        let mut reader = BufReader::with_capacity(64 * 1024, HashingReader::new(file));
        let mut lines = Lines::default();
        let start = reader.fill_buf().map_err(fail)?;
        if start.iter().take(SNIFF_BYTES).any(|byte| *byte == 0) {
            return Ok(Lines { binary: true, ..lines });
        }
        while lines.skipped + 1 < first && skip_line(&mut reader).map_err(fail)? {
            lines.skipped += 1;
        }
        while lines.count < count {
            let before = lines.bytes.len();
            let Some(whole) = take_line(&mut reader, &mut lines.bytes, cap).map_err(fail)? else { break };
            if !whole && lines.count > 0 {
                // The line that exceeds the limit is the first of the rest.
                lines.bytes.truncate(before);
                lines.rest = count_rest(&mut reader, 1).map_err(fail)?;
                lines.seen = seen(&lines, real.to_str(), reader.get_ref());
                return Ok(lines);
            }
            lines.count += 1;
            if !whole {
                lines.long_line = true;
                break;
            }
        }
        lines.rest = count_rest(&mut reader, 0).map_err(fail)?;
        if lines.count == 0 && count > 0 && lines.rest == Rest::Unknown {
            return Err(FileError::TooLarge { path: escape_controls(path), cap: MAX_SCAN_BYTES });
        }
        lines.seen = seen(&lines, real.to_str(), reader.get_ref());
        Ok(lines)
    }
}

/// Returns the file as seen by an agent that is shown these lines, once the whole file was read.
fn seen(lines: &Lines, path: Option<&str>, read: &HashingReader) -> Option<SeenFile> {
    let is_whole = lines.skipped == 0 && !lines.long_line && lines.rest == Rest::Lines(0);
    let extent = if is_whole { Extent::Whole } else { Extent::Part };
    Some(SeenFile { path: path?.to_owned(), hash: read.hash()?, extent })
}

/// File that is hashed as it is read.
struct HashingReader {
    file: Take<File>,
    pieces: HashBuilder,
}

impl HashingReader {
    fn new(file: File) -> HashingReader {
        HashingReader { file: file.take(MAX_SCAN_BYTES + 1), pieces: Hash::builder() }
    }

    fn bytes(&self) -> u64 {
        MAX_SCAN_BYTES + 1 - self.file.limit()
    }

    /// Returns the hash of the bytes read; `None` if there are more than an editable file may contain.
    fn hash(&self) -> Option<Hash> {
        (self.bytes() <= MAX_EDIT_BYTES).then(|| self.pieces.hash())
    }
}

impl Read for HashingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.pieces.add(&buffer[..length]);
        Ok(length)
    }
}

/// Skips one line; false at the end of the file.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<bool> {
    Ok(take_line(reader, &mut Vec::new(), 0)?.is_some())
}

/// Appends one line up to a total of `cap` bytes and skips the rest of it. Returns whether the whole line was
/// appended; `None` at the end of the file.
fn take_line(reader: &mut impl BufRead, into: &mut Vec<u8>, cap: usize) -> std::io::Result<Option<bool>> {
    let mut found = None;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(found);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        let fits = length.min(cap.saturating_sub(into.len()));
        into.extend_from_slice(&buffer[..fits]);
        found = Some(found.unwrap_or(true) && fits == length);
        reader.consume(length);
        if end.is_some() {
            return Ok(found);
        }
    }
}

/// Counts the lines up to the end, unless it is too far away.
fn count_rest(reader: &mut BufReader<HashingReader>, known: u64) -> std::io::Result<Rest> {
    let mut count = known;
    while skip_line(reader)? {
        count += 1;
    }
    Ok(if reader.get_ref().file.limit() == 0 { Rest::Unknown } else { Rest::Lines(count) })
}
