//! A home and a workspace in which an agent makes calls, as root or as an ordinary user.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brigade_testing::{Script, call, reply};
use serde_json::Value;

use crate::counterpart::{cache, node};
use crate::{TestEnv, processes_with};

/// Time after which a run counts as hanging.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// The user that runs the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user of the tests, which is often root.
    OfTests,
    /// A user without any privilege. In its user namespace, the user of the tests has the id 1000.
    Ordinary,
}

/// A home of a user, `user`, and a workspace, `work`. They are not below `/tmp`, which is private in a sandbox, and not in
/// a workspace of cargo.
pub struct AgentWorkplace {
    env: TestEnv,
    user: User,
}

/// A tool call of an agent, from the store.
#[derive(Debug)]
pub struct AgentCall {
    /// Text of its result.
    pub text: String,
    /// Whether the result is an error.
    pub is_error: bool,
    /// Whether the user was asked.
    pub was_asked: bool,
}

impl AgentWorkplace {
    /// Creates a workplace with an empty workspace, and caches of tools in the home.
    pub fn new(user: User) -> AgentWorkplace {
        let config = "[limits]\nlead_turns = 200\nloop_limit = 0\nloop_warning = 0\n";
        let workplace = AgentWorkplace { env: TestEnv::below(&cache(), config), user };
        for folder in [".cache", ".cargo", ".npm"] {
            std::fs::create_dir_all(workplace.path("user").join(folder)).unwrap();
        }
        workplace
    }

    /// A path in this workplace, such as `work/README.md`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.env.path(name).canonicalize().unwrap_or_else(|_| self.env.path(name))
    }

    /// Runs a shell command in the workspace, outside any sandbox.
    pub fn prepare(&self, command: &str) {
        let mut shell = self.as_user("/bin/sh");
        let output = shell.args(["-euc", command]).current_dir(self.path("work")).output().unwrap();
        assert!(output.status.success(), "{command}\n{output:?}");
    }

    /// Makes these calls one after the other, in mode `edit`, and answers the questions about them. The calls are a tool
    /// and its arguments.
    pub fn make_calls(
        &self,
        settings: &[&str],
        calls: &[(String, Value)],
        is_allowed: impl Fn(&Value) -> bool,
    ) -> Vec<AgentCall> {
        let turns = calls.iter().map(|(tool, arguments)| call(tool, arguments.clone()));
        let script = Script::new().turns(turns.chain([reply("All calls are made.")]));
        std::fs::write(self.path("script.toml"), script.to_string()).unwrap();
        let model = format!("script:{}", self.path("script.toml").display());
        let mut run = self.brigade(&["run", "--mode", "edit", "--output-format", "json", "--model", &model]);
        run.args(["--set", "permissions.questions=wait"]);
        run.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let child = self.env.start(run.arg("Work."));
        self.answer_questions(child, is_allowed);
        let [session] = &self.env.sessions()[..] else { unreachable!("one run per workplace") };
        let made = self.calls_of(session);
        assert_eq!(made.len(), calls.len(), "{made:?}");
        made
    }

    fn answer_questions(&self, mut child: Child, is_allowed: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + RUN_TIMEOUT;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                unreachable!("the run hangs");
            }
            std::thread::sleep(Duration::from_millis(10));
            let list = self.brigade(&["answer", "--output-format", "json"]).output().unwrap();
            let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
            for open in list["questions"].as_array().into_iter().flatten() {
                let answer = if is_allowed(&open["arguments"]) { "yes" } else { "no" };
                let question = open["question"].as_str().unwrap_or_default();
                let answered = self.brigade(&["answer", question, answer]).output().unwrap();
                assert!(answered.status.success(), "{answered:?}");
            }
        }
        let finished = self.env.finish(child);
        assert_eq!(finished.code, 0, "{finished:?}");
    }

    /// The calls of a session, in the order in which they were made.
    fn calls_of(&self, session: &str) -> Vec<AgentCall> {
        let shown = self.brigade(&["sessions", "show", session, "--output-format", "json"]).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let records = shown["records"].as_array().unwrap();
        let of_type = |kind: &'static str| records.iter().filter(move |record| record["type"] == kind);
        let calls = of_type("tool_ended").map(|ended| AgentCall {
            text: ended["output"]["text"].as_str().unwrap_or_default().to_owned(),
            is_error: ended["output"]["status"] != "ok",
            was_asked: of_type("asked").any(|asked| asked["call"] == ended["call"]),
        });
        calls.collect()
    }

    /// The `brigade` command of this user, in the workspace.
    fn brigade(&self, arguments: &[&str]) -> Command {
        let given = self.env.command(arguments);
        let mut command = self.as_user(given.get_program());
        command.args(given.get_args()).env("BRIGADE_HOME", self.env.path("home"));
        command.current_dir(self.env.path("work")).stdin(Stdio::null());
        command
    }

    #[expect(clippy::disallowed_methods, reason = "the tests start the command")]
    fn as_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = match self.user {
            User::OfTests => Command::new(program),
            User::Ordinary => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-user=1000", "--map-group=1000", "--"]).arg(program);
                command
            }
        };
        command
            .env_clear()
            .env("HOME", self.path("user"))
            .env("PATH", path_of_tools())
            .env("LANG", "C.UTF-8");
        command
    }
}

/// Commands of the system, after those of Rust and Node.js that the tests use themselves.
#[expect(clippy::disallowed_methods, reason = "the tests start the compiler")]
fn path_of_tools() -> std::ffi::OsString {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let rust = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim()).join("bin");
    let node = node().parent().map(PathBuf::from).unwrap_or_default();
    let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::join_paths([rust, node].into_iter().chain(system)).unwrap()
}

impl Drop for AgentWorkplace {
    /// A test that failed may have left processes behind.
    fn drop(&mut self) {
        for pid in processes_with(&self.env.path("script.toml").display().to_string()) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
