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
