//! The packages of `scripts/dist`, installed into a fresh Debian 11 (glibc 2.31) and used by an ordinary user.
//!
//! `scripts/test` builds the packages into `target/packages` and a root directory into the cache of tools.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "the tests start programs")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/packages").canonicalize().unwrap()
}

/// The only file of the packages whose name ends like this.
fn package(suffix: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(packages())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

/// A copy of the fresh root directory, with an ordinary user.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Root {
        let root = Root(tempfile::tempdir().unwrap());
        let fresh = brigade_outer_tests::tools("bullseye.tar");
        succeeds(
            Command::new("tar").args(["--extract", "--file"]).arg(fresh).arg("--directory").arg(root.path()),
        );
        // A temporary directory is closed to other users, and the archive may say the same of its root.
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        succeeds(root.chroot().args(["useradd", "--create-home", "user"]));
        root
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn chroot(&self) -> Command {
        let mut command = Command::new("chroot");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg(self.path());
        command
    }

    /// A command of the ordinary user, in process and mount namespaces of its own.
    fn as_user(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command.arg(format!("--mount-proc={}", self.path().join("proc").display()));
        command.args(["chroot", "--userspec=user"]).arg(self.path());
        command.args([
            "env",
            "--ignore-environment",
            "--chdir=/home/user",
            "HOME=/home/user",
            "PATH=/usr/bin:/bin",
        ]);
        command.args(arguments);
        command
    }

    fn install(&self) {
        std::fs::copy(package(".deb"), self.path().join("tmp/brigade.deb")).unwrap();
        succeeds(self.chroot().args(["dpkg", "--install", "/tmp/brigade.deb"]));
    }
}

#[test]
fn debian_package_runs_the_demo_on_debian_11() {
    let root = Root::new();
    root.install();
    let version = succeeds(&mut root.as_user(&["brigade", "--version"]));
    assert_eq!(version.trim(), concat!("brigade ", env!("CARGO_PKG_VERSION")));
    let demo = succeeds(&mut root.as_user(&["brigade", "demo"]));
    for part in ["Killed process", "resumes the run from the session log", "4 done", "0 failed"] {
        assert!(demo.contains(part), "no {part:?} in {demo}");
    }
}

#[test]
fn debian_package_has_pages_and_completions_and_leaves_nothing_when_removed() {
    let root = Root::new();
    root.install();
    let installed = succeeds(root.chroot().args(["dpkg", "--listfiles", "brigade"]));
    for path in [
        "/usr/bin/brigade",
        "/usr/share/man/man1/brigade.1.gz",
        "/usr/share/man/man1/brigade-run.1.gz",
        "/usr/share/bash-completion/completions/brigade",
        "/usr/share/zsh/vendor-completions/_brigade",
        "/usr/share/fish/vendor_completions.d/brigade.fish",
        "/usr/share/doc/brigade/copyright",
    ] {
        assert!(installed.lines().any(|line| line == path), "no {path} in {installed}");
        assert!(
            root.path().join(path.trim_start_matches('/')).metadata().unwrap().len() > 0,
            "{path} is empty"
        );
    }
    succeeds(root.chroot().args(["dpkg", "--purge", "brigade"]));
    for path in installed.lines().filter(|path| path.contains("brigade")) {
        assert!(!root.path().join(path.trim_start_matches('/')).exists(), "{path} is left");
    }
}

#[test]
fn tarball_matches_its_checksum_and_contains_the_same_executable() {
    succeeds(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(packages()));
    let folder = tempfile::tempdir().unwrap();
    let tarball = package(".tar.gz");
    succeeds(Command::new("tar").args(["-xzf"]).arg(&tarball).arg("-C").arg(folder.path()));
    let name = tarball.file_name().unwrap().to_string_lossy().trim_end_matches(".tar.gz").to_owned();
    let unpacked = folder.path().join(&name);
    for file in
        ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "Containerfile", "man/brigade.1"]
    {
        assert!(unpacked.join(file).is_file(), "no {file}");
    }
    let root = Root::new();
    root.install();
    let installed = std::fs::read(root.path().join("usr/bin/brigade")).unwrap();
    assert!(installed == std::fs::read(unpacked.join("brigade")).unwrap(), "the executables differ");

    // cargo-binstall finds the archive and the executable in it by these templates.
    let manifest = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/brigade-cli/Cargo.toml"),
    );
    let manifest: toml::Table = manifest.unwrap().parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let target = name.splitn(3, '-').nth(2).unwrap();
    let fill = |template: &toml::Value| {
        template
            .as_str()
            .unwrap()
            .replace("{ version }", env!("CARGO_PKG_VERSION"))
            .replace("{ target }", target)
            .replace("{ bin }", "brigade")
            .replace("{ binary-ext }", "")
    };
    assert!(fill(&binstall["pkg-url"]).ends_with(&format!("/{name}.tar.gz")), "{binstall}");
    assert_eq!(fill(&binstall["bin-dir"]), format!("{name}/brigade"));
}

#[test]
fn sbom_lists_dependencies_without_paths_of_the_machine() {
    let text = std::fs::read_to_string(package(".cdx.json")).unwrap();
    let sbom: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let components = sbom["components"].as_array().unwrap();
    for name in ["brigade-core", "tokio", "serde_json"] {
        let found = components.iter().find(|component| component["name"] == name);
        assert!(
            found.is_some_and(|found| found["version"].is_string() && found["licenses"].is_array()),
            "{name}"
        );
    }
    let home = packages().ancestors().nth(2).unwrap().display().to_string();
    assert!(!text.contains(&home), "the SBOM contains {home}");
}
