//! Home for one test, and the results of commands.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Home with an empty working folder.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    /// Variables of its commands.
    variables: Vec<(&'static str, String)>,
}

/// Result of a command.
pub(crate) struct CommandResult {
    /// Arguments of the command, if the result is of one command.
    pub(crate) command: Vec<String>,
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home::in_folder(tempfile::tempdir().unwrap())
    }

    /// Home that is not below a directory for temporary files, which a sandbox hides.
    pub(crate) fn outside_tmp() -> Home {
        Home::in_folder(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn in_folder(folder: tempfile::TempDir) -> Home {
        std::fs::create_dir(folder.path().join("home")).unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Home { folder, variables: Vec::new() }
    }

    /// Makes this test program and the command readable in the sandbox, also if they are below `/tmp`, which is private there.
    pub(crate) fn with_test_program(mut self) -> Home {
        let directory = Path::new(env!("CARGO_BIN_EXE_brigade")).parent().unwrap().display().to_string();
        self.variables.push(("BRIGADE_SANDBOX__READ", format!("[{directory:?}]")));
        self
    }

    /// Variables of its commands.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// All files in the home, recursively.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut folders, mut files) = (vec![self.home()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Writes a script, and returns its model name.
    pub(crate) fn script(&self, script: impl Display) -> String {
        format!("script:{}", self.write("script.toml", &script.to_string()).display())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brigade"));
        command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("BRIGADE_HOME", self.home()).current_dir(self.work());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn brigade(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::run(&mut self.command(arguments))
    }

    /// Runs a script with a task.
    pub(crate) fn run(&self, script: impl Display, arguments: &[&str]) -> CommandResult {
        let model = self.script(script);
        let mut all = vec!["run", "--model", &model, "the task"];
        all.extend(arguments);
        self.brigade(&all)
    }

    /// Runs a script and parses the report.
    pub(crate) fn report(&self, script: impl Display, arguments: &[&str]) -> Value {
        let done = self.run(script, &[&["--output-format", "json"], arguments].concat());
        done.json()
    }

    pub(crate) fn with_input(&self, arguments: &[&str], input: &str) -> CommandResult {
        CommandResult::with_input(&mut self.command(arguments), input)
    }
}

impl CommandResult {
    pub(crate) fn with_input(command: &mut Command, input: &str) -> CommandResult {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // The command may end without reading its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        CommandResult::of(child.wait_with_output().unwrap()).named(command)
    }

    pub(crate) fn run(command: &mut Command) -> CommandResult {
        CommandResult::of(command.output().unwrap()).named(command)
    }

    /// Adds the arguments of the command.
    pub(crate) fn named(self, command: &Command) -> CommandResult {
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        CommandResult { command: words.collect(), ..self }
    }

    pub(crate) fn of(output: Output) -> CommandResult {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status;
        CommandResult {
            command: Vec::new(),
            code: status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or_default()),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn exits_with(&self, code: i32) -> &CommandResult {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn stderr_contains(&self, text: &str) -> &CommandResult {
        assert!(self.stderr.contains(text), "no `{text}` in stderr: {}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn stdout_contains(&self, text: &str) -> &CommandResult {
        assert!(
            self.stdout.contains(text),
            "no `{text}` in stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {}\nstderr: {}", self.stdout, self.stderr))
    }

    /// All lines of `stream-json`.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
            .collect()
    }
}

/// Run in the background, and its session.
pub(crate) struct BackgroundRun {
    child: Child,
    pub(crate) session: String,
    stdout: BufReader<std::process::ChildStdout>,
}

impl BackgroundRun {
    /// Starts a run and waits for its first event.
    pub(crate) fn start(home: &Home, script: impl Display, arguments: &[&str]) -> BackgroundRun {
        let model = home.script(script);
        let mut all = vec!["run", "--output-format", "stream-json", "--model", &model, "the task"];
        all.extend(arguments);
        let mut child = home.command(&all).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let session = first["session"].as_str().unwrap().to_owned();
        BackgroundRun { child, session, stdout }
    }

    /// Reads up to a line of this type.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        self.read_until(|line| line["type"] == kind)
    }

    /// Reads up to a line that matches.
    #[track_caller]
    pub(crate) fn read_until(&mut self, mut is_match: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the run ended before that");
            let value: Value = serde_json::from_str(&line).unwrap();
            if is_match(&value) {
                return value;
            }
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end, and returns the elapsed time.
    pub(crate) fn end(mut self) -> (i32, Vec<Value>, Duration) {
        use std::os::unix::process::ExitStatusExt;
        let since = Instant::now();
        let mut lines = Vec::new();
        for line in (&mut self.stdout).lines() {
            lines.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        let status = self.child.wait().unwrap();
        let code = status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or_default());
        (code, lines, since.elapsed())
    }
}

impl Drop for BackgroundRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(file: impl AsRef<Path>) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}
