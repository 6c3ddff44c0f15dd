//! Files with secrets, which commands of agents cannot read.

use std::fs;
use std::path::{Path, PathBuf};

use brigade_core::project_files::{HOME_SECRETS, SecretName, secret_name};

/// Credentials of a home directory that exist.
pub(super) fn in_home(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_SECRETS.map(|name| home.join(name)).into_iter().filter(|path| path.symlink_metadata().is_ok())
}

/// Secrets in the directories above a workspace, up to the root of its repository.
pub(super) fn above(workspace: &Path) -> Vec<PathBuf> {
    let root = workspace.ancestors().skip(1).find(|above| above.join(".git").symlink_metadata().is_ok());
    let Some(root) = root.filter(|_| workspace.join(".git").symlink_metadata().is_err()) else {
        return Vec::new();
    };
    let directories = workspace.ancestors().skip(1).take_while(|above| above.starts_with(root));
    let entries = directories.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let is_secret =
        |path: &PathBuf| match secret_name(&path.file_name().unwrap_or_default().to_string_lossy()) {
            SecretName::Yes => !path.is_dir(),
            SecretName::MaybeKey => is_private_key(path),
            SecretName::No => false,
        };
    entries.map(|entry| entry.path()).filter(is_secret).collect()
}

/// Whether a file contains a private key.
pub(super) fn is_private_key(path: &Path) -> bool {
    read_start(path, 256 << 10)
        .is_some_and(|start| memchr::memmem::find(&start, b"PRIVATE KEY-----").is_some())
}

/// Start of a regular file, at most `limit` bytes. A pipe or a device must neither block nor have no end.
pub(super) fn read_start(path: &Path, limit: u64) -> Option<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).ok()?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let mut start = Vec::new();
    file.take(limit).read_to_end(&mut start).ok()?;
    Some(start)
}

/// First line of a small file that leads git to a directory.
pub(super) fn git_link(path: &Path) -> Option<String> {
    const MAX_BYTES: u64 = 64 << 10;
    let text = String::from_utf8(read_start(path, MAX_BYTES)?).ok()?;
    text.lines().next().map(str::to_owned)
}
