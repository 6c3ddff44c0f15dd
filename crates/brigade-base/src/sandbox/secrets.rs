//! Files with secrets, which commands of agents cannot read.

use std::fs;
use std::path::{Path, PathBuf};

use brigade_core::project_files::HOME_SECRETS;

/// Credentials of a home directory that exist.
pub(super) fn in_home(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_SECRETS.map(|name| home.join(name)).into_iter().filter(|path| path.symlink_metadata().is_ok())
}

/// Whether a file contains a private key.
pub(super) fn is_private_key(path: &Path) -> bool {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // A pipe with this name must not block.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let Ok(file) = file else { return false };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut start = Vec::new();
    file.take(256 << 10).read_to_end(&mut start).is_ok()
        && memchr::memmem::find(&start, b"PRIVATE KEY-----").is_some()
}
