//! A machine in miniature: a user's home, a workspace, a directory outside of it, and canaries everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cli::support::Home;
use crate::hostile::probe;

/// Text of every secret.
pub(crate) const SECRET: &str = "SECRET-CANARY";
/// Files of the workspace that programs of the user act upon, whether or not they exist.
const PROTECTED: [&str; 28] = [
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/info/attributes",
    ".brigade",
    ".mcp.json",
    ".claude",
    ".codex",
    ".copilot",
    ".cursor",
    ".factory",
    ".gemini",
    ".husky",
    ".idea",
    ".opencode",
    ".vscode",
    ".zed",
    ".envrc",
    ".env",
    "deploy.key",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "sub/.git/config",
    "sub/.git/hooks",
    "sub/.git/commondir",
    "link-out",
];

pub(crate) struct Place {
    pub(crate) home: Home,
    root: PathBuf,
    connections: Arc<AtomicUsize>,
    tcp_port: u16,
    udp: UdpSocket,
    bait: Child,
    tag: String,
    before: BTreeMap<PathBuf, String>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let home = Home::outside_tmp();
        let root = home.work().join("..").canonicalize().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        fill(&root);
        let docker = UnixListener::bind(root.join("user/run/docker.sock")).unwrap();
        let counter = connections.clone();
        std::thread::spawn(move || docker.incoming().for_each(|_| count(&counter)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp_port = listener.local_addr().unwrap().port();
        let counter = connections.clone();
        std::thread::spawn(move || listener.incoming().for_each(|_| count(&counter)));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let bait = Command::new("sleep").arg("600").env("BAIT", SECRET).stdin(Stdio::null()).spawn().unwrap();
        let tag = format!("brigade-hostile-{}", bait.id());
        let mut place = Place { home, root, connections, tcp_port, udp, bait, tag, before: BTreeMap::new() };
        place.before = place.snapshot();
        place
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(crate) fn user(&self) -> PathBuf {
        self.root.join("user")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    pub(crate) fn tcp_port(&self) -> u16 {
        self.tcp_port
    }

    /// A command of the program with the home of the user, and with a key in its environment.
    pub(crate) fn brigade(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        command.env("HOME", self.user()).env("ANTHROPIC_API_KEY", SECRET).env("PLAIN", "visible");
        command.env("DOCKER_HOST", format!("unix://{}", self.user().join("run/docker.sock").display()));
        command
    }

    /// Replaces the placeholders of a case by the names of this place.
    pub(crate) fn fill_in(&self, text: &str, id: &str) -> String {
        let path = |name: &str| self.root.join(name).display().to_string();
        let udp = self.udp.local_addr().unwrap().port().to_string();
        [
            ("@ID", id),
            ("@TAG", &format!("{}-{id}", self.tag)),
            ("@WORK", &path("work")),
            ("@OUT", &path("outside")),
            ("@USER", &path("user")),
            ("@DATA", &path("home")),
            ("@SOCKET", &path("user/run/docker.sock")),
            ("@TCP", &self.tcp_port.to_string()),
            ("@UDP", &udp),
            ("@BAIT", &self.bait.id().to_string()),
            ("@BRIGADE", env!("CARGO_BIN_EXE_brigade")),
            ("@PROBE", &probe::command()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Takes everything as it is now for the state before an attack.
    pub(crate) fn accept(&mut self) {
        self.before = self.snapshot();
    }

    /// Canaries that an attack reached.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        let after = self.snapshot();
        let mut found = Vec::new();
        for (path, text) in &after {
            if self.before.get(path) != Some(text) {
                found.push(format!("{} is now {text:?}", path.display()));
            }
        }
        let gone = self.before.keys().filter(|path| !after.contains_key(*path));
        found.extend(gone.map(|path| format!("{} has gone", path.display())));
        if let Some(status) = self.bait.try_wait().unwrap() {
            found.push(format!("the process outside ended: {status}"));
        }
        let connections = self.connections.swap(0, Ordering::SeqCst);
        if connections > 0 {
            found.push(format!("{connections} connections to a port or a socket of the host"));
        }
        let mut datagram = [0; 512];
        while let Ok(length) = self.udp.recv(&mut datagram) {
            found.push(format!("datagram {:?}", String::from_utf8_lossy(&datagram[..length])));
        }
        for directory in
            ["/etc", "/etc/cron.d", "/etc/profile.d", "/usr/local/bin", "/var/tmp", "/tmp", "/dev/shm"]
        {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&self.tag)) {
                found.push(format!("{} exists", entry.path().display()));
                let _ = fs::remove_file(entry.path());
            }
        }
        found
    }

    /// All files that no attack may change, with their contents.
    fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let protected = PROTECTED.map(|name| self.work().join(name));
        let mut pending: Vec<PathBuf> = protected.into_iter().chain([self.user(), self.outside()]).collect();
        pending.extend(
            ["config.toml", "trusted.json", "agents", "skills"].map(|name| self.root.join("home").join(name)),
        );
        while let Some(path) = pending.pop() {
            let Ok(kind) = path.symlink_metadata().map(|found| found.file_type()) else { continue };
            let text = if kind.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                let entries = fs::read_dir(&path).unwrap();
                pending.extend(entries.map(|entry| entry.unwrap().path()));
                continue;
            } else if kind.is_file() {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            } else {
                "special".to_owned()
            };
            found.insert(path, text);
        }
        found
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.bait.kill();
        let _ = self.bait.wait();
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn fill(root: &Path) {
    for directory in ["user/run", "user/.cargo", "outside", "work/src"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let key = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n");
    for (name, text) in [
        ("user/.ssh/id_ed25519", SECRET),
        ("user/.aws/credentials", SECRET),
        ("user/.netrc", SECRET),
        ("user/.bashrc", "# mine\n"),
        ("user/.gitconfig", "[user]\nname = n\nemail = e@x\n"),
        ("user/.config/gh/hosts.yml", SECRET),
        ("outside/file", "outside\n"),
        ("outside/tool", "#!/bin/sh\n"),
        ("home/config.toml", "# mine\n"),
        ("work/src/main.rs", "fn main() {}\n"),
        ("work/src/private.txt", SECRET),
        ("work/.env", SECRET),
        ("work/deploy.key", &key),
        ("work/AGENTS.md", "Be kind.\n"),
    ] {
        put(&root.join(name), text);
    }
    for directory in ["work", "work/sub"] {
        git(
            root,
            &format!(
                "git init -q {directory} && cd {directory} && git config user.name n && git config user.email e@x && echo one > one && git add one && git commit -qm one"
            ),
        );
    }
    symlink(root.join("outside"), root.join("work/link-out")).unwrap();
    for (link, target) in
        [("link-file", "../outside/file"), ("link-env", ".env"), ("zero", "/dev/zero"), ("link-git", ".git")]
    {
        symlink(target, root.join("work").join(link)).unwrap();
    }
    git(root, "mkfifo work/pipe");
    fs::File::create(root.join("work/sparse")).unwrap().set_len(10 << 30).unwrap();
}

/// Runs a command of the test itself.
fn git(root: &Path, command: &str) {
    let done = Command::new("sh")
        .args(["-ec", command])
        .current_dir(root)
        .env("HOME", root.join("user"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}
