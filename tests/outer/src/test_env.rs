//! Home and working directory of one test, and the output of a command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time after which a command counts as hanging.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// A home, a working directory and a directory for temporary files.
pub struct TestEnv {
    folder: tempfile::TempDir,
}

/// Output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl TestEnv {
    /// Creates an environment with this configuration.
    pub fn new(config: &str) -> TestEnv {
        TestEnv::below(&std::env::temp_dir(), config)
    }

    /// Creates an environment in a new directory below this one.
    pub fn below(parent: &Path, config: &str) -> TestEnv {
        let env = TestEnv { folder: tempfile::tempdir_in(parent).unwrap() };
        for name in ["home", "work", "tmp", "out"] {
            std::fs::create_dir(env.path(name)).unwrap();
        }
        std::fs::write(env.path("home/config.toml"), config).unwrap();
        env
    }

    /// A path in this environment.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The `brigade` command with these arguments, in this environment and with no other variables.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::command(&self.path("home"));
        let path = std::env::split_paths("/usr/local/bin:/usr/bin:/bin");
        command.env_clear().env("PATH", std::env::join_paths(path).unwrap());
        command.env("BRIGADE_HOME", self.path("home")).env("HOME", self.path("home"));
        command.env("TMPDIR", self.path("tmp")).current_dir(self.path("work"));
        // Models fail on purpose here, and often.
        command.env("BRIGADE_LIMITS__RETRY_PAUSE", "20ms");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Starts a command. Its output goes to files, so that it never blocks on a full pipe.
    pub fn start(&self, command: &mut Command) -> Child {
        let file = |name| File::create(self.path(name)).unwrap();
        command.stdout(file("out/stdout")).stderr(file("out/stderr")).spawn().unwrap()
    }

    /// Waits for a command to exit, with a timeout.
    pub fn finish(&self, mut child: Child) -> CommandOutput {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the command hangs\n{}", text(&self.path("out/stderr")));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let code = status.code().unwrap_or_else(|| panic!("{status}\n{}", text(&self.path("out/stderr"))));
        CommandOutput { code, stdout: text(&self.path("out/stdout")), stderr: text(&self.path("out/stderr")) }
    }

    /// Runs `brigade` to its end.
    pub fn brigade(&self, arguments: &[&str]) -> CommandOutput {
        self.finish(self.start(&mut self.command(arguments)))
    }

    /// Runs `brigade` with a key in its environment.
    pub fn run_with_key(&self, key: &str, arguments: &[&str]) -> CommandOutput {
        self.finish(self.start(self.command(arguments).env("THE_KEY", key)))
    }

    /// The events of a whole tree, from its export.
    pub fn events(&self, root: &str) -> Vec<Value> {
        let output = self.brigade(&["sessions", "export", root]);
        assert_eq!(output.code, 0, "{output:?}");
        let lines = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line.get("event").is_some()).collect()
    }

    /// The root sessions, newest first.
    pub fn sessions(&self) -> Vec<String> {
        let output = self.brigade(&["sessions", "list", "--output-format", "json"]);
        let list: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        let rows = list.as_array().into_iter().flatten();
        rows.filter_map(|row| Some(row["session_id"].as_str()?.to_owned())).collect()
    }
}

impl CommandOutput {
    /// The report of a run. Checks that it matches the exit code.
    #[track_caller]
    pub fn report(&self) -> Value {
        let report: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
        let status = match self.code {
            0 => "done",
            1 => "failed",
            3 => "incomplete",
            code => panic!("exit code {code}: {self:?}"),
        };
        assert_eq!(report["status"], status, "{self:?}");
        let said = |key: &str| report[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(if status == "done" { said("result") } else { said("error") || said("result") }, "{self:?}");
        report
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
