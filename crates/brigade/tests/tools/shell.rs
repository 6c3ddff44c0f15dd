//! `shell`, with this test binary as the guard program.

use std::time::{Duration, Instant};

use brigade::sandbox::CommandSandbox;
use brigade::tool::{ShellSettings, ToolContext, Toolbox};
use brigade_core::ToolOutput;
use brigade_sandbox::{Confinement, Sandbox};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::support::ToolHarness;

brigade_testing::guard_entry!();

fn context(harness: &ToolHarness, stop: watch::Receiver<bool>) -> ToolContext {
    let settings = ShellSettings {
        guard: guard(),
        directory: harness.path(""),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("GREETING".into(), "hello".into())],
        time_limit: Duration::from_secs(20),
        output_limit: 1_000,
    };
    ToolContext { shell: Some(settings), stop, ..harness.context() }
}

fn shell(harness: &ToolHarness, arguments: Value, stop: watch::Receiver<bool>) -> ToolOutput {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let toolbox = Toolbox::standard();
    runtime.block_on(toolbox.get("shell").unwrap().run(arguments, &context(harness, stop)))
}

fn run(harness: &ToolHarness, arguments: Value) -> (String, bool) {
    let output = shell(harness, arguments, watch::channel(false).1);
    (output.text.to_string(), output.is_error())
}

#[test]
fn shell_without_a_guard_is_unavailable() {
    let harness = ToolHarness::new();
    assert!(harness.error("shell", json!({ "command": "true" })).contains("not available"));
}

#[test]
fn shell_runs_in_the_workspace_and_reports_the_exit() {
    let harness = ToolHarness::new();
    harness.put("file", "");
    let run = |command: &str| run(&harness, json!({ "command": command }));
    assert_eq!(run("ls; echo $GREETING"), ("file\nhello\n".into(), false));
    assert_eq!(run("true"), ("(no output)".into(), false));
    assert_eq!(run("echo a; echo b >&2; exit 3"), ("a\nb\n(exit code 3)".into(), true));
    assert_eq!(run("printf '\\377'; kill -9 $$"), ("\u{fffd}\n(killed by signal 9)".into(), true));
    let (text, failed) = run("yes | head -c 100000");
    assert!(!failed && text.len() < 1_200 && text.contains("99000 bytes of output omitted"), "{text}");
    assert!(run(" ").0.contains("The command is empty"));
}

#[test]
fn shell_ends_on_timeout_and_cancel() {
    let harness = ToolHarness::new();
    let start = Instant::now();
    let (text, failed) = run(&harness, json!({ "command": "echo begun; sleep 60", "timeout_seconds": 1 }));
    assert_eq!((text.as_str(), failed), ("begun\n(timed out after 1 seconds)", true));
    assert!(run(&harness, json!({ "command": "true", "timeout_seconds": 0 })).1);

    let (asker, stop) = watch::channel(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            asker.send(true)
        });
        shell(&harness, json!({ "command": "sleep 60" }), stop)
    });
    assert_eq!((output.text.as_str(), output.is_error()), ("(cancelled)", true));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn shell_with_an_unenforceable_confinement_runs_nothing() {
    let harness = ToolHarness::new();
    let sandbox = Sandbox { writable: vec!["relative".into()], ..Sandbox::default() };
    let sandbox = CommandSandbox::new(move |_| Ok(Confinement::Sandbox(Box::new(sandbox.clone()))));
    let context = ToolContext { sandbox, ..context(&harness, watch::channel(false).1) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let toolbox = Toolbox::standard();
    let arguments = json!({ "command": "touch trace" });
    let output = runtime.block_on(toolbox.get("shell").unwrap().run(arguments, &context));
    assert!(
        output.is_error() && output.text.as_str().contains("in a sandbox: `relative` must be"),
        "{}",
        output.text
    );
    assert!(!harness.path("trace").exists());
}
