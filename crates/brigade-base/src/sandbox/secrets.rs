//! Files with secrets, which commands of agents cannot read.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use brigade_core::permission::Permissions;

use super::SandboxError;
use super::protected::{git_files, redirection, redirections_of_submodules};

/// Maximum number of files and directories that are visited for one command.
const MAX_ENTRIES: usize = 100_000;

/// Maximum nesting of directories.
const MAX_DEPTH: usize = 64;

/// Directories whose content is installed or generated. Rules with a path hold in them only if they name the whole directory.
const GENERATED: [&str; 8] =
    [".git", ".tox", ".venv", "__pycache__", "bower_components", "node_modules", "target", "venv"];

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
const KEY_SUFFIXES: [&str; 4] = ["key", "p12", "pem", "pfx"];

/// Suffixes of examples, which contain no secrets.
const EXAMPLES: [&str; 4] = ["dist", "example", "sample", "template"];

/// Credentials of a home directory that exist.
pub(super) fn in_home(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_SECRETS.map(|name| home.join(name)).into_iter().filter(|path| path.symlink_metadata().is_ok())
}

/// Paths of a workspace with special treatment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Secrets, and paths that a rule hides.
    pub(super) hidden: Vec<PathBuf>,
    /// Paths that a rule protects.
    pub(super) protected: Vec<PathBuf>,
    /// Files of repositories that must not be created.
    pub(super) forbidden: Vec<PathBuf>,
}

/// Looks for secrets, for repositories, and for files that a rule with a path denies or asks about. Links to directories are
/// not followed: what they lead to is found at its own place.
pub(super) fn scan(workspace: &Path, permissions: &Permissions) -> Result<Scan, SandboxError> {
    let mut scan = Scan::default();
    let mut entries = 0;
    let mut pending = vec![(workspace.to_path_buf(), String::new(), 0)];
    while let Some((directory, relative, depth)) = pending.pop() {
        // A directory that cannot be listed may still be entered, and its owner can make it readable.
        let Ok(listing) = fs::read_dir(&directory) else {
            scan.hidden.push(directory);
            continue;
        };
        for entry in listing {
            let Ok(entry) = entry else {
                scan.hidden.push(directory.clone());
                break;
            };
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(SandboxError::TooManyFiles { limit: MAX_ENTRIES });
            }
            let (path, name) = (entry.path(), entry.file_name());
            let relative = match relative.as_str() {
                "" => name.to_string_lossy().into_owned(),
                relative => format!("{relative}/{}", name.to_string_lossy()),
            };
            let kind = entry.file_type();
            let is_dir = kind.as_ref().is_ok_and(fs::FileType::is_dir);
            if !permissions.may_read(&relative) || kind.is_err() || (!is_dir && is_secret(&name, &path)) {
                scan.hidden.push(path);
                continue;
            }
            if !permissions.may_edit(&relative) {
                scan.protected.push(path);
                continue;
            }
            if name == ".git" {
                scan.forbidden.extend(redirections_of_submodules(&path));
                if depth > 0 {
                    scan.protected.extend(git_files(&path));
                    scan.forbidden.push(redirection(&path));
                }
            }
            if is_dir && !GENERATED.iter().any(|generated| name == *generated) {
                match depth < MAX_DEPTH {
                    true => pending.push((path, relative, depth + 1)),
                    false => scan.hidden.push(path),
                }
            }
        }
    }
    Ok(scan)
}

fn is_secret(name: &OsStr, path: &Path) -> bool {
    let Some(name) = name.to_str().map(str::to_ascii_lowercase) else { return false };
    let name = name.as_str();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    let is_environment = (name == ".env" || name.starts_with(".env.")) && !EXAMPLES.contains(&suffix);
    is_environment
        || SECRET_NAMES.contains(&name)
        || (KEY_SUFFIXES.contains(&suffix) && is_private_key(path, suffix))
}

/// Whether a file with the suffix of a key contains a private one. Certificates and public keys are no secrets.
fn is_private_key(path: &Path, suffix: &str) -> bool {
    use std::io::Read;
    if matches!(suffix, "p12" | "pfx") {
        return true;
    }
    let mut start = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(256 << 10).read_to_end(&mut start));
    read.is_ok() && memchr::memmem::find(&start, b"PRIVATE KEY-----").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn names(root: &tempfile::TempDir, paths: &[PathBuf]) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(root.path()).unwrap().to_string_lossy().into_owned();
        let mut names: Vec<String> = paths.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn secrets_are_found_at_any_depth() {
        let root = workspace(&[
            (".env", "A=b"),
            (".env.production", "A=b"),
            (".env.example", "A="),
            ("packages/web/.env.local", "A=b"),
            ("node_modules/x/.env", "A=b"),
            ("certs/server.key", "-----BEGIN PRIVATE KEY-----"),
            ("certs/server.pem", "-----BEGIN CERTIFICATE-----"),
            ("deploy/id_ed25519", "x"),
            ("src/environment.rs", "x"),
            ("store.p12", "x"),
        ]);
        let scan = scan(root.path(), &Permissions::default()).unwrap();
        let expected = [
            ".env",
            ".env.production",
            "certs/server.key",
            "deploy/id_ed25519",
            "packages/web/.env.local",
            "store.p12",
        ];
        assert_eq!(names(&root, &scan.hidden), expected);
        assert_eq!(scan.protected, Vec::<PathBuf>::new());
    }

    #[test]
    fn links_with_the_name_of_a_secret_and_unreadable_directories_are_hidden() {
        use std::os::unix::fs::PermissionsExt;
        let root = workspace(&[
            ("vars", "A=b"),
            ("closed/x", ""),
            ("sub/.git/config", ""),
            ("B/PROD.KEY", "-----BEGIN PRIVATE KEY-----"),
        ]);
        std::os::unix::fs::symlink("vars", root.path().join(".env")).unwrap();
        fs::set_permissions(root.path().join("closed"), fs::Permissions::from_mode(0o311)).unwrap();
        let scan = scan(root.path(), &Permissions::default()).unwrap();
        let hidden = names(&root, &scan.hidden);
        assert!(
            hidden.contains(&".env".to_owned()) && hidden.contains(&"B/PROD.KEY".to_owned()),
            "{hidden:?}"
        );
        // Root can list it.
        let is_root = fs::read_dir(root.path().join("closed")).is_ok();
        assert_eq!(hidden.contains(&"closed".to_owned()), !is_root, "{hidden:?}");
        assert!(names(&root, &scan.protected).contains(&"sub/.git/hooks".to_owned()));
        assert_eq!(names(&root, &scan.forbidden), ["sub/.git/commondir"]);
        fs::set_permissions(root.path().join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn rules_with_a_path_hide_and_protect() {
        let root = workspace(&[("secrets/a", ""), ("docs/b", ""), ("src/generated/c", ""), ("src/d", "")]);
        let permissions = Permissions {
            deny: vec![
                "read_file(secrets/**)".parse().unwrap(),
                "edit_file(src/generated/**)".parse().unwrap(),
            ],
            ask: vec!["write_file(docs/b)".parse().unwrap()],
            ..Permissions::default()
        };
        let scan = scan(root.path(), &permissions).unwrap();
        assert_eq!(names(&root, &scan.hidden), ["secrets"]);
        assert_eq!(names(&root, &scan.protected), ["docs/b", "src/generated"]);
    }
}
