//! Stores on read-only file systems.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use brigade_testing::Script;

use crate::cli::support::{CommandResult, Home};

fn hello() -> Script {
    Script::new().reply("hello")
}

/// Runs commands in a mount namespace in which the home is read-only; none if this user may not create one.
fn on_read_only_mount(home: &Home, script: &str) -> Option<CommandResult> {
    let mount = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}' || exit 77; {script}",
        home.home().display()
    );
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", &mount]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("BRIGADE_HOME", home.home());
    command.env("BRIGADE", env!("CARGO_BIN_EXE_brigade")).current_dir(home.work());
    let done = CommandResult::of(command.stdin(Stdio::null()).output().ok()?);
    (done.code != 77 && !done.stderr.contains("unshare:")).then_some(done)
}

const LOOK: &str = "\"$BRIGADE\" sessions list && \"$BRIGADE\" sessions show last && \
                    \"$BRIGADE\" sessions tree last && \"$BRIGADE\" sessions export last";

#[test]
fn sessions_on_a_read_only_mount_are_listed_shown_and_exported() {
    let home = Home::new();
    home.run(hello(), &[]).exits_with(0);
    let Some(done) = on_read_only_mount(&home, LOOK) else { return };
    done.exits_with(0)
        .stdout_contains("the task")
        .stdout_contains("hello")
        .stdout_contains("lead")
        .stdout_contains("{\"end\":");
    let model = home.script(hello());
    let run = on_read_only_mount(&home, &format!("\"$BRIGADE\" run --model {model} x")).unwrap();
    run.exits_with(1)
        .stderr_contains("cannot write to ")
        .stderr_contains("/sessions.db: ")
        .stderr_contains("--store");
    let tell = on_read_only_mount(&home, "\"$BRIGADE\" tell last more").unwrap();
    tell.exits_with(1).stderr_contains("cannot write to ").stderr_contains("/sessions.db: ");
    assert_eq!(left_over(&home.home()), ["sessions.db", "sessions.db.lock", "sessions.db.waiting"]);
}

#[test]
fn wal_commits_of_a_store_on_a_read_only_mount_are_read() {
    for keeps_index in [true, false] {
        let home = Home::new();
        home.run(hello(), &[]).exits_with(0);
        let before = std::fs::read(home.home().join("sessions.db")).unwrap();
        // An open connection keeps the commits in the log; the copy is the state after a crash.
        let other = home.home().join("other.db");
        std::fs::write(&other, before).unwrap();
        let store = brigade::store::SqliteStore::open(&other).unwrap();
        let flags = ["--store", other.to_str().unwrap()];
        home.run(Script::new().reply("only in the log"), &flags).exits_with(0);
        let ends: &[&str] = if keeps_index { &["", "-wal", "-shm"] } else { &["", "-wal"] };
        for end in ends {
            std::fs::copy(
                home.home().join(format!("other.db{end}")),
                home.home().join(format!("sessions.db{end}")),
            )
            .unwrap();
        }
        drop(store);
        let Some(done) = on_read_only_mount(&home, LOOK) else { return };
        done.exits_with(0).stdout_contains("only in the log");
    }
}

#[test]
fn sessions_of_another_user_are_listed_shown_and_exported() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    home.run(hello(), &[]).exits_with(0);
    for (path, mode) in [("sessions.db", 0o644), ("..", 0o755), (".", 0o755)] {
        std::fs::set_permissions(home.home().join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    // The program may be in a folder that others cannot enter.
    let program = home.work().join("brigade");
    // By another process: a test that forks meanwhile would hold the new file open for writing, and then it cannot be
    // executed.
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_brigade")).arg(&program).status().unwrap();
    assert!(copy.success());
    let brigade = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env_clear().env("BRIGADE_HOME", home.home()).env("PATH", "/usr/bin:/bin");
        CommandResult::run(command.uid(65_534).gid(65_534).current_dir("/").stdin(Stdio::null()))
    };
    brigade(&["sessions", "list"]).exits_with(0).stdout_contains("the task");
    brigade(&["sessions", "show", "last"]).exits_with(0).stdout_contains("hello");
    brigade(&["sessions", "export", "last"]).exits_with(0).stdout_contains("{\"end\":");
    brigade(&["cancel", "last"])
        .exits_with(1)
        .stderr_contains("cannot write to ")
        .stderr_contains("/sessions.db: ");
}

/// Store files in a folder.
fn left_over(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("sessions.db")).collect();
    names.sort();
    names
}
