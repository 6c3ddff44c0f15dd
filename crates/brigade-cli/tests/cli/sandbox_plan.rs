//! Commands in plan mode: they run in a sandbox that discards what they change, or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

const PLAN: [&str; 4] = ["--set", "sandbox.mode=workspace", "--mode", "plan"];

fn home() -> Home {
    prepared(Home::outside_tmp())
}

fn prepared(home: Home) -> Home {
    let git = "git init -q . && git config user.name n && git config user.email e@x && mkdir src && echo a > src/a && \
               echo .env > .gitignore && git add . && git commit -qm first";
    let output = Command::new("sh").args(["-c", git]).current_dir(home.work()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    home.write("work/.env", "CANARY");
    home
}

/// Runs one command and returns the result that the model sees.
fn run(home: &Home, command: &str, settings: &[&str]) -> String {
    let script = Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")]);
    home.run(script, &[&PLAN, settings].concat()).exits_with(0).stdout.clone()
}

/// All files below a directory with their content.
fn files_in(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .flat_map(|path| match path.is_dir() {
            true => [vec![(path.clone(), "directory".to_owned())], files_in(&path)].concat(),
            false => vec![(path.clone(), fs::read(&path).map(|bytes| format!("{bytes:?}")).unwrap())],
        })
        .collect();
    found.sort();
    found
}

fn files(home: &Home) -> Vec<(PathBuf, String)> {
    files_in(&home.work())
}

#[test]
fn commands_work_in_plan_mode_and_change_nothing() {
    let home = home();
    let before = files(&home);
    assert!(before.len() > 5, "{before:?}");
    let work = "git log --format=%s; echo b > src/b && git add . && git commit -qm second && git log --oneline | wc -l; \
                mkdir target && echo x > target/x && rm -r src/a && ls src target; cat .env; echo evil > .git/hooks/pre-commit";
    let output = run(&home, work, &[]);
    assert!(output.starts_with("first\n2\nsrc:\nb\n\ntarget:\nx\n"), "{output}");
    assert!(output.contains("plan mode: changes to files by this command were discarded"), "{output}");
    assert!(!output.contains("CANARY") && output.contains("hooks/pre-commit: "), "{output}");
    assert_eq!(files(&home), before);
    let output = run(&home, "ls src; test -e target || echo discarded", &[]);
    assert!(output.starts_with("a\ndiscarded\n"), "{output}");
}

#[test]
fn workspace_below_tmp_is_discarded_too() {
    let home = prepared(Home::new());
    let before = files(&home);
    let output = run(&home, "git log --format=%s; echo b > src/b; cat src/b; cat .env", &[]);
    assert!(output.starts_with("first\nb\n") && !output.contains("CANARY"), "{output}");
    assert_eq!(files(&home), before);
}

#[test]
fn rules_and_requests_for_access_hold_in_plan_mode() {
    let home = home();
    let outside = home.work().join("../outside");
    fs::create_dir(&outside).unwrap();
    let denied = run(&home, "echo ran", &["--set", "permissions.deny=[\"shell(echo *)\"]"]);
    assert!(!denied.contains("ran\n"), "{denied}");
    let needs = json!({ "command": "echo ran", "needs": { "write": [outside], "hosts": ["example.com"] } });
    let script = Script::new().turns([call("shell", needs), reply("{results}")]);
    let output = home.run(script, &[&PLAN[..], &["--set", "permissions.allow=[\"shell\"]"]].concat());
    output.exits_with(0).stdout_contains("plan mode is read-only");
    // Neither the setting for the network nor one for additional directories widens the mode.
    let setting = format!("sandbox.write=[\"{}\"]", outside.canonicalize().unwrap().display());
    let settings = ["--set", setting.as_str(), "--set", "sandbox.network=true"];
    let output = run(&home, "echo x > ../outside/x && cat ../outside/x; ls /sys/class/net", &settings);
    assert!(output.starts_with("x\n"), "{output}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn plan_mode_without_a_sandbox_refuses_commands() {
    let home = home();
    let script = Script::new().turns([call("shell", json!({ "command": "echo ran" })), reply("{results}")]);
    let output = home.run(script, &["--mode", "plan", "--set", "sandbox.mode=off"]);
    output.exits_with(0).stdout_contains("plan mode is read-only");
}

/// The same command where no user namespaces can be created.
fn without_namespaces(command: &Command) -> Command {
    let refuse = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut refused = Command::new("unshare");
    refused.args(["--user", "--map-root-user", "sh", "-c", refuse]);
    refused.arg(command.get_program()).args(command.get_args()).env_clear();
    refused.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    refused.current_dir(command.get_current_dir().unwrap());
    refused.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    refused
}

/// A kernel that refuses namespaces cannot discard what a command changes.
#[test]
fn plan_mode_without_namespaces_refuses_commands() {
    let home = home();
    let before = files(&home);
    let script = Script::new()
        .turns([call("shell", json!({ "command": "echo ran; echo x > src/x" })), reply("{results}")]);
    let model = home.script(&script);
    let arguments: Vec<&str> = ["run", "x", "--model", &model].into_iter().chain(PLAN).collect();
    let output = CommandResult::run(&mut without_namespaces(&home.command(&arguments)));
    output.exits_with(0).stdout_contains("`shell` is not allowed: plan mode is read-only");
    assert!(!output.stdout.contains("ran\n"), "{}", output.stdout);
    assert_eq!(files(&home), before);
}
