//! Seatbelt profiles: the sandbox of macOS.
//!
//! The profile is generated on every system, so that its tests run everywhere. Only macOS applies it, and that has not been
//! verified.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{Network, Sandbox};

/// Program that applies a profile and then runs a command.
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Rules that every command needs. Everything that is not allowed is denied.
const BASE: &str = "\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))
(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.membership\"))
(allow file-read*)
(allow file-ioctl (literal \"/dev/ptmx\"))
(allow file-ioctl (literal \"/dev/tty\"))
(allow file-write* (literal \"/dev/null\"))
(allow file-write* (literal \"/dev/ptmx\"))
(allow file-write* (literal \"/dev/tty\"))
(allow file-write* (literal \"/dev/zero\"))
";

/// Rules for the network: connections over IP, names and certificates. Sockets of other programs stay denied.
const NETWORK: &str = "\
(allow network-bind (local ip))
(allow network-inbound (local ip))
(allow network-outbound (remote ip))
(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))
(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\"))
(allow mach-lookup (global-name \"com.apple.trustd.agent\"))
(allow system-socket)
";

/// A profile in the language of Seatbelt. Later rules take precedence over earlier ones.
///
/// Paths are parameters, because a path in the text could contain rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeatbeltProfile {
    text: String,
    parameters: Vec<(String, PathBuf)>,
}

impl SeatbeltProfile {
    /// Generates the profile of a sandbox. `resolve` returns the real path of a path, because Seatbelt compares real paths.
    ///
    /// A discarded directory is read-only. A proxy is not available, so commands with one have no network.
    pub(crate) fn new(sandbox: &Sandbox, resolve: impl Fn(&Path) -> PathBuf) -> SeatbeltProfile {
        let real = |paths: &[OsString]| -> Vec<PathBuf> {
            paths.iter().map(|path| resolve(Path::new(path))).collect()
        };
        let mut profile = SeatbeltProfile { text: BASE.to_owned(), parameters: Vec::new() };
        let mut writable = real(&sandbox.writable);
        writable.extend(sandbox.temporary.as_deref().map(|path| resolve(Path::new(path))));
        profile.add_all("allow file-write*", "subpath", "WRITABLE", &writable);
        let mut protected = real(&sandbox.protected);
        protected.extend(real(&sandbox.forbidden));
        profile.add_all("deny file-write*", "subpath", "PROTECTED", &protected);
        let hidden = real(&sandbox.hidden);
        profile.add_all("deny file-read* file-write* process-exec", "subpath", "HIDDEN", &hidden);
        // A directory that is moved away takes what it contains out of reach of the rules above.
        let kept: BTreeSet<PathBuf> = protected
            .iter()
            .chain(&hidden)
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|above| writable.iter().any(|root| above.starts_with(root)))
            .map(Path::to_path_buf)
            .collect();
        let kept: Vec<PathBuf> = kept.into_iter().collect();
        profile.add_all("deny file-write-unlink", "literal", "ANCESTOR", &kept);
        if sandbox.network == Network::On {
            profile.text.push_str(NETWORK);
        }
        profile.add_all("allow network-outbound", "literal", "SOCKET", &real(&sandbox.sockets));
        profile
    }

    /// Adds a rule for each path.
    fn add_all(&mut self, rule: &str, filter: &str, name: &str, paths: &[PathBuf]) {
        for (number, path) in paths.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "({rule} ({filter} (param \"{name}_{number}\")))");
            self.parameters.push((format!("{name}_{number}"), path.clone()));
        }
    }

    /// Returns the program and the arguments that run a shell command under the profile.
    pub(crate) fn command_line(&self, command: &str) -> (&'static str, Vec<OsString>) {
        let mut arguments: Vec<OsString> = vec!["-p".into(), self.text.as_str().into()];
        for (name, path) in &self.parameters {
            let mut parameter = OsString::from(format!("{name}="));
            parameter.push(path);
            arguments.extend([OsString::from("-D"), parameter]);
        }
        arguments.extend(["/bin/sh", "-c", command].map(OsString::from));
        (PROGRAM, arguments)
    }
}

/// Real path of a path whose last components may be missing.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let mut missing: Vec<&OsStr> = Vec::new();
    for above in path.ancestors() {
        if let Ok(mut real) = above.canonicalize() {
            real.extend(missing.iter().rev());
            return real;
        }
        missing.extend(above.file_name());
    }
    path.to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/tmp` and `/var` are links on macOS.
    fn resolve(path: &Path) -> PathBuf {
        match path.strip_prefix("/tmp") {
            Ok(below) => Path::new("/private/tmp").join(below),
            Err(_) => path.to_path_buf(),
        }
    }

    fn sandbox() -> Sandbox {
        Sandbox {
            writable: vec!["/tmp/project".into()],
            protected: vec!["/tmp/project/.git/hooks".into(), "/tmp/project/AGENTS.md".into()],
            forbidden: vec!["/tmp/project/.git/commondir".into()],
            hidden: vec!["/tmp/project/sub/.env".into(), "/Users/me/.ssh".into()],
            temporary: Some("/Users/me/tmp".into()),
            sockets: vec!["/Users/me/docker.sock".into()],
            ..Sandbox::default()
        }
    }

    fn parameter<'a>(profile: &'a SeatbeltProfile, name: &str) -> &'a Path {
        &profile.parameters.iter().find(|(known, _)| known == name).unwrap().1
    }

    #[test]
    fn everything_is_denied_that_no_rule_allows() {
        let profile = SeatbeltProfile::new(&Sandbox::default(), resolve);
        assert_eq!(profile.text, BASE);
        assert!(profile.text.lines().nth(1) == Some("(deny default)"));
        assert!(profile.parameters.is_empty());
    }

    #[test]
    fn paths_are_resolved_and_are_parameters() {
        let mut sandbox = sandbox();
        let injected = "/tmp/\"))(allow default)(deny file-read* (literal \"";
        sandbox.writable.push(injected.into());
        let profile = SeatbeltProfile::new(&sandbox, resolve);
        assert!(!profile.text.contains("allow default") && !profile.text.contains("project"));
        assert_eq!(parameter(&profile, "WRITABLE_0"), Path::new("/private/tmp/project"));
        assert_eq!(parameter(&profile, "WRITABLE_1"), resolve(Path::new(injected)));
        assert_eq!(parameter(&profile, "WRITABLE_2"), Path::new("/Users/me/tmp"));
        assert_eq!(parameter(&profile, "HIDDEN_1"), Path::new("/Users/me/.ssh"));
        // Every parameter that the text uses is defined.
        for (index, _) in profile.text.match_indices("(param \"") {
            let name = profile.text[index + 8..].split('"').next().unwrap();
            parameter(&profile, name);
        }
        let (program, arguments) = profile.command_line("echo \"$HOME\"");
        assert_eq!(program, "/usr/bin/sandbox-exec");
        assert_eq!(arguments[arguments.len() - 3..], ["/bin/sh", "-c", "echo \"$HOME\""]);
        assert!(arguments.contains(&"WRITABLE_0=/private/tmp/project".into()), "{arguments:?}");
    }

    #[test]
    fn narrower_rules_come_after_wider_ones() {
        let text = SeatbeltProfile::new(&sandbox(), resolve).text;
        let position = |rule: &str| text.find(rule).unwrap_or_else(|| panic!("no {rule} in {text}"));
        let writable = position("(allow file-write* (subpath (param \"WRITABLE_0\")))");
        for rule in [
            "(deny file-write* (subpath (param \"PROTECTED_0\")))",
            "(deny file-write* (subpath (param \"PROTECTED_2\")))",
            "(deny file-read* file-write* process-exec (subpath (param \"HIDDEN_0\")))",
            "(deny file-write-unlink (literal (param \"ANCESTOR_0\")))",
        ] {
            assert!(position(rule) > writable, "{rule}");
        }
        assert!(position("(allow file-read*)") < position("(deny file-read*"));
    }

    #[test]
    fn directories_above_protected_and_hidden_paths_cannot_be_moved() {
        let profile = SeatbeltProfile::new(&sandbox(), resolve);
        let kept: Vec<&Path> = profile
            .parameters
            .iter()
            .filter(|(name, _)| name.starts_with("ANCESTOR"))
            .map(|(_, path)| path.as_path())
            .collect();
        let project = Path::new("/private/tmp/project");
        // The directory that contains the workspace is not writable.
        assert_eq!(kept, [project.to_path_buf(), project.join(".git"), project.join("sub")]);
    }

    #[test]
    fn network_and_sockets_are_denied_unless_granted() {
        let with = |network| SeatbeltProfile::new(&Sandbox { network, ..sandbox() }, resolve).text;
        for network in [Network::Off, Network::Proxy] {
            let text = with(network);
            assert!(!text.contains("ip)"), "{text}");
            assert!(text.contains("(allow network-outbound (literal (param \"SOCKET_0\")))"), "{text}");
        }
        assert!(with(Network::On).contains("(allow network-outbound (remote ip))"));
        let none = Sandbox { sockets: Vec::new(), ..sandbox() };
        assert!(!SeatbeltProfile::new(&none, resolve).text.contains("network"));
    }

    #[test]
    fn missing_paths_are_resolved_by_their_existing_ancestors() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        assert_eq!(real_path(&root.join("link/new/file")), root.join("real/new/file"));
        assert_eq!(real_path(Path::new("/missing/file")), Path::new("/missing/file"));
    }
}
