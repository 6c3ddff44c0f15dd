//! Reads untrusted files: bounded in size and without blocking.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use brigade_base::pinned_files::PinnedFiles;
use brigade_core::Hash;
use rustix::fs::{FileType, Mode, OFlags};

use super::problem::DefinitionError;

/// Maximum size of a definition file.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// Reads the text of a file, without its byte order mark and with LF line ends. A pinned file must have the pinned
/// content.
pub(super) fn read(path: &Path, pinned: &PinnedFiles) -> Result<String, DefinitionError> {
    let bytes = bytes(path)?;
    pinned
        .check(path, Some(Hash::of(&bytes)))
        .map_err(|changed| DefinitionError::new(format!("is not used: {changed}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        DefinitionError::at(
            u32::try_from(line).unwrap_or(u32::MAX),
            "is not valid UTF-8. Save the file as UTF-8.",
        )
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_owned() })
}

fn bytes(path: &Path) -> Result<Vec<u8>, DefinitionError> {
    let unreadable = |error: std::io::Error| DefinitionError::new(format!("cannot read the file: {error}"));
    // Opening a pipe without a writer would block, and a terminal would become the controlling terminal.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unreadable(errno.into()))?;
    let stat = rustix::fs::fstat(&opened).map_err(|errno| unreadable(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(DefinitionError::new("is not a regular file"));
    }
    let too_large = || DefinitionError::new(format!("is larger than the limit of {MAX_BYTES} bytes"));
    if u64::try_from(stat.st_size).unwrap_or(0) > MAX_BYTES {
        return Err(too_large());
    }
    let mut content = Vec::new();
    File::from(opened).take(MAX_BYTES + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > MAX_BYTES { Err(too_large()) } else { Ok(content) }
}
