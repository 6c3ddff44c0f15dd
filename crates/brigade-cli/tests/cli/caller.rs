//! Commands that only the user can run, from commands of agents.

use std::path::Path;
use std::process::Command;

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};

/// Commands that start agents, speak to them, decide for the user, or widen what agents may do.
const USER_COMMANDS: [(&str, &str); 22] = [
    ("run", "run x"),
    ("run", "exec x"),
    ("chat", "chat"),
    ("resume", "resume"),
    ("tell", "tell last x"),
    ("cancel", "cancel last"),
    ("answer", "answer"),
    ("answer", "answer last yes all"),
    ("trust", "trust --yes"),
    ("trust", "trust --revoke"),
    ("sessions import", "sessions import -"),
    ("sessions rm", "sessions rm last"),
    ("init", "init"),
    ("demo", "demo"),
    ("eval", "eval"),
    ("mcp", "mcp"),
    ("acp", "acp"),
    ("agents new", "agents new x"),
    ("tools add", "tools add x -- y"),
    ("tools remove", "tools remove x"),
    ("tools login", "tools login x"),
    ("tools logout", "tools logout x"),
];

/// Commands that only read.
const OPEN_COMMANDS: [&str; 8] = [
    "sessions list",
    "agents list",
    "agents lint",
    "tools list",
    "config schema",
    "trust --list",
    "completions bash",
    "--version",
];

const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");

fn shell(command: &str) -> Script {
    Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")])
}

/// Command line that runs every user command and prints a line for each.
fn all_user_commands(home: &Home) -> String {
    let run = |(_, command): &(&str, &str)| {
        format!("{BRIGADE} {command} </dev/null >out.txt 2>&1; echo \"$? $(head -n1 out.txt)\"\n")
    };
    let commands: String = USER_COMMANDS.iter().map(run).collect();
    format!("export BRIGADE_HOME={}\n{commands}", home.home().display())
}

#[track_caller]
fn assert_all_refused(output: &str) {
    // A note of the sandbox may follow.
    assert!(output.lines().count() >= USER_COMMANDS.len(), "{output}");
    for ((name, command), line) in USER_COMMANDS.iter().zip(output.lines()) {
        let expected =
            format!("2 brigade: cannot run `brigade {name}` in a command of an agent: only the user can ");
        assert!(line.starts_with(&expected), "{command}: {line}");
    }
}

#[test]
fn agent_cannot_run_commands_of_the_user() {
    let home = Home::outside_tmp().with_test_program();
    let done = home.run(shell(&all_user_commands(&home)), &["--mode", "auto"]);
    assert_all_refused(&done.exits_with(0).stdout);
}

#[test]
fn agent_in_a_sandbox_cannot_run_commands_of_the_user() {
    let home = Home::outside_tmp().with_test_program();
    let arguments = ["--mode", "auto", "--set", "sandbox.mode=workspace"];
    let done = home.run(shell(&all_user_commands(&home)), &arguments);
    assert_all_refused(&done.exits_with(0).stdout);
}

/// A sandbox without namespaces, as on systems that do not allow them.
#[test]
fn agent_in_a_landlock_sandbox_cannot_run_commands_of_the_user() {
    let home = Home::outside_tmp().with_test_program();
    let model = home.script(shell(&all_user_commands(&home)));
    let plain =
        home.command(&["run", "--model", &model, "--mode", "auto", "--set", "sandbox.mode=workspace", "x"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c"]);
    command
        .arg("echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"")
        .arg("sh")
        .arg(plain.get_program());
    command.args(plain.get_args()).env_clear().current_dir(home.work());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = CommandResult::run(&mut command);
    assert_all_refused(&done.exits_with(0).stdout);
}

#[test]
fn agent_that_detaches_or_copies_the_program_is_detected() {
    let home = Home::outside_tmp().with_test_program();
    let answer = format!("{BRIGADE} answer >out.txt 2>&1; echo $? >>out.txt");
    let wait = "while ! grep -q '^[0-9]' out.txt 2>/dev/null; do sleep 0.01; done; cat out.txt; rm out.txt";
    for command in [
        format!("setsid sh -c '{answer}' & {wait}"),
        format!("(setsid setsid sh -c 'sleep 0.1; {answer}' &) ; {wait}"),
        format!("cp {BRIGADE} other; ./other answer >out.txt 2>&1; echo $? >>out.txt; {wait}"),
        format!("env -i sh -c '{answer}'; {wait}"),
        format!("ln -s {BRIGADE} __guard; ./__guard answer >out.txt 2>&1; echo $? >>out.txt; {wait}"),
    ] {
        for sandbox in ["sandbox.mode=off", "sandbox.mode=workspace"] {
            let done = home.run(shell(&command), &["--mode", "auto", "--set", sandbox]);
            done.exits_with(0).stdout_contains("in a command of an agent").stdout_contains("\n2\n");
        }
    }
}

#[test]
fn agent_can_run_commands_that_only_read() {
    let home = Home::outside_tmp().with_test_program();
    let run = |command: &&str| format!("{BRIGADE} {command} >/dev/null 2>err.txt || cat err.txt\n");
    let commands: String = OPEN_COMMANDS.iter().map(run).collect();
    let command = format!("export BRIGADE_HOME={}\n{commands}echo end", home.home().display());
    // In the sandbox, the configuration and the sessions are hidden.
    let done = home.run(shell(&command), &["--mode", "auto", "--no-sandbox"]);
    assert_eq!(done.exits_with(0).stdout, "end\n");
}

#[test]
fn program_that_the_user_configured_can_answer() {
    let home = Home::new().with_test_program();
    home.write("work/notify.sh", &format!("{BRIGADE} answer >answer.txt 2>&1; echo $? >>answer.txt\n"));
    let notify = format!("notify=\"BRIGADE_HOME={} sh notify.sh\"", home.home().display());
    let script = Script::new().reply(reply("done"));
    home.run(script, &["--set", &notify]).exits_with(0);
    assert_eq!(
        crate::cli::support::text(home.work().join("answer.txt")),
        "No pending approval requests.\n0\n"
    );
}

#[test]
fn hidden_process_table_counts_as_a_command_of_an_agent() {
    let home = Home::new().with_test_program();
    // The process table of another pid namespace does not contain this process.
    let hide = "mount -t tmpfs none /proc && exec \"$@\"";
    let plain = home.command(&["answer"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", hide, "sh", BRIGADE, "answer"]);
    command.env_clear().current_dir(home.work());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = CommandResult::run(&mut command);
    done.exits_with(2).stderr_contains("cannot determine whether an agent runs it");
    assert!(Path::new("/proc/self/stat").exists());
}
