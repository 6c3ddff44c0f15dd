//! Files that the command creates in its own directories: only the user can access them, whatever the umask.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

/// Home whose commands run with a umask.
struct Masked {
    home: Home,
    umask: &'static str,
}

impl Masked {
    fn command(&self, arguments: &[&str]) -> Command {
        let plain = self.home.command(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {}; exec \"$@\"", self.umask), "sh"]).arg(plain.get_program());
        command.args(plain.get_args()).env_clear().current_dir(self.home.work());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
            .env("BRIGADE_HOME", self.folder())
            .env("BRIGADE_LOG", "debug")
            .env("BRIGADE_LOG_FILE", self.log());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn log(&self) -> PathBuf {
        self.home.home().join("log")
    }

    /// Folder that does not exist before the first command.
    fn folder(&self) -> PathBuf {
        self.home.home().join("new/brigade")
    }

    fn run(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::run(&mut self.command(arguments))
    }
}

fn entries(folder: PathBuf) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.clone()], vec![folder]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

#[test]
fn files_and_directories_are_private_with_every_umask() {
    for umask in ["000", "022"] {
        let masked = Masked { home: Home::new(), umask };
        let model = masked.home.script(Script::new().turns([
            call("memory_put", json!({ "key": "a", "text": "b" })),
            call("shell", json!({ "command": "echo x > made.txt" })),
            reply("done"),
        ]));
        masked.run(&["init", "--yes", "--model", &model]);
        let sandboxed = ["--mode", "auto", "--set", "sandbox.mode=workspace"];
        masked.run(&[&["run", "--model", &model, "x"], &sandboxed[..]].concat()).exits_with(0);
        let mut chat = masked.command(&["chat", "--model", &model, "--mode", "auto"]);
        CommandResult::with_input(&mut chat, "hello\n").exits_with(0);
        masked.run(&["agents", "new", "mine"]).exits_with(0);
        masked.run(&["tools", "add", "x", "--", "true"]).exits_with(0);
        std::fs::create_dir(masked.home.work().join(".brigade")).unwrap();
        masked.home.write("work/.brigade/config.toml", "model = 'script:x'\n");
        masked.run(&["trust", "--yes"]).exits_with(0);
        let export = masked.home.work().join("export.html");
        masked.run(&["sessions", "export", "last", "-o", export.to_str().unwrap()]).exits_with(0);
        let mut all = entries(masked.home.home().join("new"));
        all.extend([export, masked.log()]);
        let names: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
        for expected in ["config.toml", "sessions.db", "memory.db", "trusted.json", "AGENT.md", "/log"] {
            assert!(names.iter().any(|name| name.ends_with(expected)), "no {expected} in {names:?}");
        }
        for path in all {
            let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
            let allowed = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode & !allowed, 0, "umask {umask}: {} has mode {mode:o}", path.display());
        }
    }
}

/// A project is shared with others, so its files follow the umask.
#[test]
fn files_of_a_project_follow_the_umask() {
    let masked = Masked { home: Home::new(), umask: "022" };
    masked.run(&["agents", "new", "shared", "--project"]).exits_with(0);
    let file = masked.home.work().join(".brigade/agents/shared/AGENT.md");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o644);
}
