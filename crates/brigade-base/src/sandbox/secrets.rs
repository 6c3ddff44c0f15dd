//! Files with secrets, which commands of agents cannot read.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Credentials in the home directory.
const HOME_SECRETS: [&str; 37] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/chromium",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".docker/config.json",
    ".dockercfg",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".gradle/gradle.properties",
    ".kube",
    ".local/share/keyrings",
    ".m2/settings.xml",
    ".mozilla",
    ".netrc",
    ".node_repl_history",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".python_history",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".yarnrc.yml",
    ".zsh_history",
    "_netrc",
];

/// Names of files with secrets in a workspace.
const SECRET_NAMES: [&str; 10] = [
    ".git-credentials",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "_netrc",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
];

/// Suffixes of files that contain a private key, if their content says so.
const KEY_SUFFIXES: [&str; 2] = ["key", "pem"];

/// Suffixes of files that contain a private key.
const KEY_STORE_SUFFIXES: [&str; 2] = ["p12", "pfx"];

/// Suffixes of examples, which contain no secrets.
const EXAMPLES: [&str; 4] = ["dist", "example", "sample", "template"];

/// Credentials of a home directory that exist.
pub(super) fn in_home(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_SECRETS.map(|name| home.join(name)).into_iter().filter(|path| path.symlink_metadata().is_ok())
}

/// Whether a file is secret, judging by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    None,
    Secret,
    /// Certificates and public keys have the same names as private keys.
    SecretIfPrivateKey,
}

/// Judges a file by its name.
pub(super) fn secrecy(name: &OsStr) -> Secrecy {
    let Some(name) = name.to_str().map(str::to_ascii_lowercase) else { return Secrecy::None };
    let name = name.as_str();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    let is_environment = (name == ".env" || name.starts_with(".env.")) && !EXAMPLES.contains(&suffix);
    if is_environment || SECRET_NAMES.contains(&name) || KEY_STORE_SUFFIXES.contains(&suffix) {
        Secrecy::Secret
    } else if KEY_SUFFIXES.contains(&suffix) {
        Secrecy::SecretIfPrivateKey
    } else {
        Secrecy::None
    }
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
