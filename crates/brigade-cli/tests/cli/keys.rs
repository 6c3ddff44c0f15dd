//! API keys are not readable by other processes.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

const NOBODY_UID: u32 = 65_534;
const KEY: &str = "sk-canary-of-the-runner";

/// Searches the environment of every process that the command can see.
fn snoop() -> Script {
    let command = r"echo snooped; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep canary; true";
    Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")])
}

/// Command that runs as an ordinary user, even if root runs the tests: root can read everything.
fn as_ordinary_user(plain: &Command) -> Command {
    let mut command = if rustix::process::getuid().is_root() {
        let (id, mut command) = (NOBODY_UID.to_string(), Command::new("setpriv"));
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(plain.get_program());
        command
    } else {
        Command::new(plain.get_program())
    };
    command.args(plain.get_args()).env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.current_dir(plain.get_current_dir().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Gives the folders of a home to the ordinary user.
fn give_away(home: &Home) {
    let top = home.home().parent().unwrap().to_owned();
    for folder in [top, home.home(), home.work()] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        if rustix::process::getuid().is_root() {
            chown(&folder, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        }
    }
}

#[test]
fn command_of_an_agent_cannot_read_keys_from_the_runner() {
    let home = Home::new();
    let model = home.script(snoop());
    give_away(&home);
    let mut command = as_ordinary_user(&home.command(&[
        "run",
        "--model",
        &model,
        "--mode",
        "auto",
        "--no-sandbox",
        "look",
    ]));
    let done = CommandResult::run(command.env("ANTHROPIC_API_KEY", KEY));
    // The command ran under its guard, so an ordinary user can still use everything.
    done.exits_with(0).stdout_contains("snooped");
    assert!(!done.stdout.contains(KEY), "{}", done.stdout);
}

/// The search itself works: it finds a key in an unprotected process.
#[test]
fn command_of_an_agent_sees_the_environment_of_an_unprotected_process() {
    let home = Home::new();
    let model = home.script(snoop());
    give_away(&home);
    let mut sleeper = Command::new("sleep");
    sleeper.arg("30").env("OPEN_KEY", "canary-in-the-open").current_dir(home.work());
    let mut sleeper = as_ordinary_user(&sleeper).spawn().unwrap();
    let mut command = as_ordinary_user(&home.command(&[
        "run",
        "--model",
        &model,
        "--mode",
        "auto",
        "--no-sandbox",
        "look",
    ]));
    let done = CommandResult::run(&mut command);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    done.exits_with(0).stdout_contains("canary-in-the-open");
}
