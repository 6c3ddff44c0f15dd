//! Commands of agents in a sandbox.

use std::fs;

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::{BackgroundRun, CommandResult, Home};

const ON: [&str; 4] = ["--set", "sandbox.mode=workspace", "--mode", "auto"];

fn shell(command: &str) -> Script {
    Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")])
}

/// Runs one command and returns the result that the model sees.
fn run(home: &Home, command: &str, settings: &[&str]) -> String {
    home.run(shell(command), &[&ON, settings].concat()).exits_with(0).stdout.clone()
}

fn home() -> Home {
    prepared(Home::outside_tmp())
}

fn prepared(home: Home) -> Home {
    for directory in ["work/.git/hooks", "work/src", "outside"] {
        fs::create_dir_all(home.work().join("..").join(directory)).unwrap();
    }
    home.write("work/.git/config", "[core]\n");
    home.write("work/.env", "CANARY");
    home.write("outside/file", "outside");
    home
}

#[test]
fn sandbox_confines_commands_to_the_workspace() {
    let home = home();
    let outside = home.work().join("../outside").canonicalize().unwrap();
    // The tests may run below /tmp, which is private.
    let visible = format!("sandbox.read=[\"{}\"]", outside.display());
    let output =
        run(&home, "echo in > src/new; cat src/new; echo out > ../outside/file", &["--set", &visible]);
    assert!(output.starts_with("in\n"), "{output}");
    assert!(output.contains("probably denied by the sandbox: a write outside the workspace"), "{output}");
    assert_eq!(fs::read_to_string(home.work().join("src/new")).unwrap(), "in\n");
    assert_eq!(fs::read_to_string(home.work().join("../outside/file")).unwrap(), "outside");
    let setting = format!("sandbox.write=[\"{}\"]", outside.display());
    run(&home, "echo out > ../outside/file", &["--set", &setting]);
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "out\n");
}

#[test]
fn workspace_below_tmp_is_visible_in_every_mode() {
    let home = prepared(Home::new());
    let output = run(&home, "cat .git/config; echo x > src/new; ls src", &[]);
    assert_eq!(output, "[core]\nnew\n");
    let output = run(&home, "cat .git/config; echo x > src/new", &["--set", "sandbox.mode=read-only"]);
    assert!(output.contains("[core]") && output.contains("Read-only file system"), "{output}");
}

#[test]
fn sandbox_keeps_control_files_and_leaves_nothing_behind() {
    let home = home();
    let command = "for file in .git/hooks/pre-commit .git/config .brigade/config.toml .claude/agents/a.md .mcp.json \
                   AGENTS.md; do mkdir -p $(dirname $file) 2>/dev/null; echo pwned > $file; done; ls -A";
    let output = run(&home, command, &[]);
    assert!(output.contains("src"), "{output}");
    assert_eq!(fs::read_dir(home.work().join(".git/hooks")).unwrap().count(), 0, "{output}");
    assert_eq!(fs::read_to_string(home.work().join(".git/config")).unwrap(), "[core]\n");
    let mut names: Vec<_> =
        fs::read_dir(home.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".env", ".git", "AGENTS.md.removed", "src"]);
}

#[test]
fn sandbox_hides_secrets_and_the_sessions() {
    let home = home();
    let data = home.home();
    let command = format!("cat .env; ls {0}; cat {0}/sessions.db; echo end", data.display());
    let output = run(&home, &command, &[]);
    assert!(!output.contains("CANARY") && !output.contains("sessions.db\n"), "{output}");
    assert!(output.contains("Permission denied") && output.contains("end"), "{output}");
    let secret = home.work().join(".env");
    let setting = format!("sandbox.read=[\"{}\"]", secret.canonicalize().unwrap().display());
    assert!(run(&home, "cat .env", &["--set", &setting]).contains("CANARY"));
    // Nothing grants access to what belongs to Brigade.
    let setting = format!("sandbox.read=[\"{}\"]", data.canonicalize().unwrap().display());
    assert!(
        run(&home, &format!("ls {}", data.display()), &["--set", &setting]).contains("Permission denied")
    );
}

#[test]
fn rules_with_a_path_bind_commands_in_a_sandbox() {
    let home = home();
    home.write("work/src/private", "CANARY");
    home.write("work/src/fixed", "fixed");
    let rules = ["--set", "permissions.deny=[\"read_file(src/private)\", \"write_file(src/fixed)\"]"];
    let output = run(&home, "cat src/private; echo changed > src/fixed; cat src/fixed", &rules);
    assert!(!output.contains("CANARY") && output.contains("fixed"), "{output}");
    assert_eq!(fs::read_to_string(home.work().join("src/fixed")).unwrap(), "fixed");
}

#[test]
fn role_has_a_narrower_sandbox_than_its_parent() {
    let home = home();
    let write =
        |name: &str| call("shell", json!({ "command": format!("echo x > {name}; echo wrote {name}") }));
    let script = Script::new().agent("reader", [write("child"), reply("{results}")]).turns([
        write("parent"),
        call("delegate", json!({ "role": "reader", "task": "write" })),
        reply("{results}"),
    ]);
    let role = ["--set", "swarm.roles.reader.sandbox=read-only"];
    let output = home.run(script, &[&ON[..], &role].concat());
    output.exits_with(0);
    assert!(home.work().join("parent").exists() && !home.work().join("child").exists(), "{}", output.stdout);
    assert!(output.stdout.contains("Read-only file system"), "{}", output.stdout);
}

#[test]
fn agent_file_can_narrow_the_sandbox_and_not_widen_it() {
    let home = home();
    fs::create_dir_all(home.home().join("agents")).unwrap();
    let file = |sandbox: &str| format!("---\nname: worker\ndescription: x\nsandbox: {sandbox}\n---\nWork.\n");
    home.write("home/agents/worker.md", &file("read-only"));
    let run = |settings: &[&str]| {
        let script = shell("echo x > src/by-worker");
        home.run(script, &[&["--agent", "worker", "--mode", "auto"], settings].concat())
            .exits_with(0)
            .stdout
            .clone()
    };
    let output = run(&[]);
    assert!(output.contains("Read-only file system"), "{output}");
    home.write("home/agents/worker.md", &file("off"));
    let output = run(&["--set", "sandbox.mode=read-only"]);
    assert!(output.contains("Read-only file system"), "{output}");
    assert!(!home.work().join("src/by-worker").exists());
    home.write("home/agents/worker.md", &file("tight"));
    home.brigade(&["agents", "lint"]).exits_with(1).stdout_contains("`tight` is not a sandbox mode");
}

#[test]
fn sandbox_settings_are_checked() {
    let home = Home::new();
    for (setting, problem) in [
        ("sandbox.mode=on", "sandbox.mode"),
        ("sandbox.memory=much", "a size such as"),
        ("sandbox.wriet=[]", "sandbox.write"),
    ] {
        home.brigade(&["config", "show", "--set", setting]).exits_with(2).stderr_contains(problem);
    }
    let shown =
        home.brigade(&["config", "show", "--set", "sandbox.memory=4 GiB", "--set", "sandbox.disk=1000"]);
    shown.exits_with(0).stdout_contains("4 GiB").stdout_contains("1000");
}

#[test]
fn memory_limit_of_the_sandbox_ends_a_command() {
    let home = home();
    // A shell variable of 200 MB.
    let command = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 60";
    let output = run(&home, command, &["--set", "sandbox.memory=100 MiB"]);
    assert!(output.contains("(killed: its processes used more memory than the sandbox allows)"), "{output}");
}

/// Files of a repository that an agent wrote do not make git run programs, with or without a sandbox.
#[test]
fn git_status_in_a_planted_repository_runs_nothing() {
    let home = home();
    let planted = "mkdir -p sub/objects sub/refs && echo 'ref: refs/heads/main' > sub/HEAD && \
                   printf '[core]\\nbare = false\\nworktree = ..\\nfsmonitor = touch ../ran; false\\n' > sub/config && \
                   cd sub && git status; git init -q ../own && cd ../own && git config core.fsmonitor 'touch ../ran; false' && \
                   git status; true";
    for settings in [&ON[2..], &ON] {
        let done = home.run(shell(planted), settings);
        done.exits_with(0);
        assert!(!home.work().join("ran").exists(), "{}", done.stdout);
        fs::remove_dir_all(home.work().join("own")).unwrap();
    }
}

/// A command in a sandbox needs no approval in mode `edit`. Without a terminal, every request for approval is denied.
#[test]
fn commands_in_a_sandbox_need_no_approval_in_mode_edit() {
    let home = home();
    let run = |mode: &str, settings: &[&str]| {
        let done = home.run(shell("echo ran"), &[&["--mode", mode], settings].concat());
        done.exits_with(0).stdout.contains("ran\n")
    };
    let on = &ON[..2];
    assert!(!run("edit", &["--no-sandbox"]), "a command without a sandbox needs approval");
    assert!(run("edit", on) && run("edit", &[]));
    assert!(!run("ask", on));
    assert!(
        run("plan", on) && !run("plan", &["--no-sandbox"]),
        "in plan mode, the sandbox discards what a command changes"
    );
    assert!(!run("edit", &[on, &["--set", "permissions.ask=[\"shell(echo *)\"]"]].concat()));
    assert!(!run("auto", &[on, &["--set", "permissions.deny=[\"shell(echo *)\"]"]].concat()));
}

#[test]
fn access_beyond_the_sandbox_needs_approval_in_every_mode() {
    let home = home();
    let outside = home.work().join("../outside").canonicalize().unwrap();
    let needs = json!({ "command": "echo new > ../outside/new; echo ran", "needs": { "write": [outside] } });
    let script = || Script::new().turns([call("shell", needs.clone()), reply("{results}")]);
    for mode in ["ask", "edit", "auto"] {
        let allow =
            ["--set", "sandbox.mode=workspace", "--set", "permissions.allow=[\"shell\"]", "--mode", mode];
        let done = home.run(script(), &allow);
        assert!(!done.exits_with(0).stdout.contains("ran\n"), "{mode}: {}", done.stdout);
    }
    assert!(!outside.join("new").exists());

    let mut running = BackgroundRun::start(
        &home,
        script(),
        &["--set", "sandbox.mode=workspace", "--set", "permissions.questions=wait", "--mode", "auto"],
    );
    running.wait_for("asked");
    let asked = home.brigade(&["answer", &running.session]);
    asked.exits_with(0).stdout_contains("needs").stdout_contains(outside.to_str().unwrap());
    home.brigade(&["answer", &running.session, "always"]).exits_with(2);
    home.brigade(&["answer", &running.session, "yes"]).exits_with(0);
    assert_eq!(running.end().0, 0);
    assert_eq!(fs::read_to_string(outside.join("new")).unwrap(), "new\n");
}

#[test]
fn commands_of_a_tree_share_a_private_tmp_that_is_removed() {
    let home = home();
    let mark = format!("brigade-{}", std::process::id());
    let write = json!({ "command": format!("echo shared > /tmp/{mark}") });
    let read = json!({ "command": format!("cat /tmp/{mark}; ls /tmp") });
    let script = Script::new().agent("reader", [call("shell", read), reply("{results}")]).turns([
        call("shell", write),
        call("delegate", json!({ "role": "reader", "task": "read" })),
        reply("{results}"),
    ]);
    let done = home.run(script, &ON);
    assert!(done.exits_with(0).stdout.contains(&format!("shared\n{mark}\n")), "{}", done.stdout);
    assert!(!std::path::Path::new("/tmp").join(&mark).exists());
    assert_eq!(fs::read_dir(home.home().join("tmp")).unwrap().count(), 0);
}

/// git works in a protected repository, and the files that lead it elsewhere do not survive.
#[test]
fn git_works_in_a_protected_repository() {
    let home = Home::outside_tmp();
    let git = |command: &str| {
        let output =
            std::process::Command::new("sh").args(["-c", command]).current_dir(home.work()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(
        "git init -q . && git config user.name n && git config user.email e@x && echo a > a && git add a && git commit -qm one",
    );
    let work = "echo b > b && git add b && git commit -qm two && git branch other && git checkout -q other && git log --oneline \
                | wc -l && git status --porcelain && git diff HEAD~1 --stat | tail -1";
    let output = run(&home, work, &[]);
    assert_eq!(output, "2\n 1 file changed, 1 insertion(+)\n");
    let attack = "mkdir -p evil/objects evil/refs evil/hooks; cp .git/HEAD evil/; echo ../evil > .git/commondir; \
                  printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = \"touch ../ran; false\"\\n' > evil/config";
    let output = run(&home, attack, &[]);
    assert!(
        output.contains("(the sandbox protects these files, so they were renamed to NAME.removed:")
            && output.contains("commondir"),
        "{output}"
    );
    git("git status");
    assert!(!home.work().join("../ran").exists());
    assert_eq!(git("git status --porcelain"), "?? evil/\n");
}

#[test]
fn sandbox_is_on_unless_the_user_turns_it_off() {
    let home = home();
    let shown = home.brigade(&["config", "show"]);
    shown.exits_with(0).stdout_contains("mode = \"workspace\"  # from default");
    let write = || shell("echo x > ../outside/new; ls ../outside");
    let done = home.run(write(), &["--mode", "auto"]);
    assert!(!done.exits_with(0).stderr.contains("sandbox"), "{}", done.stderr);
    assert!(!home.work().join("../outside/new").exists(), "{}", done.stdout);
    for off in [&["--no-sandbox"][..], &["--set", "sandbox.mode=off"]] {
        let done = home.run(write(), &[&["--mode", "auto"], off].concat());
        done.exits_with(0)
            .stdout_contains("new")
            .stderr_contains("warning: the sandbox is off: commands of agents run with all your permissions");
        fs::remove_file(home.work().join("../outside/new")).unwrap();
    }
    // A narrower agent stays in its sandbox.
    let script = Script::new()
        .agent("reader", [call("shell", json!({ "command": "echo x > child" })), reply("{results}")]);
    let script =
        script.turns([call("delegate", json!({ "role": "reader", "task": "write" })), reply("{results}")]);
    let role = ["--set", "swarm.roles.reader.sandbox=read-only", "--no-sandbox", "--mode", "auto"];
    home.run(script, &role).exits_with(0).stdout_contains("Read-only file system");
    assert!(!home.work().join("child").exists());
}

/// A directory without a repository and without any protected file. Other programs of the user run in it meanwhile.
#[test]
fn placeholders_are_neither_reported_nor_taken_for_files_of_the_project() {
    let home = Home::outside_tmp();
    let output = run(&home, "echo x > new; ls", &[]);
    assert_eq!(output, "new\n");
    let script = shell("echo x > started; until [ -e end ]; do sleep 0.01; done");
    let running = BackgroundRun::start(&home, script, &["--mode", "auto"]);
    while !home.work().join("started").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(home.work().join(".brigade").is_dir() && home.work().join(".git").is_dir());
    let list = Script::new().turns([call("list_dir", json!({})), reply("{results}")]);
    let other = home.run(list, &[]);
    assert_eq!(other.exits_with(0).stdout, "new\nstarted\n");
    assert!(!other.stderr.contains("warning") && !other.stderr.contains("trust"), "{}", other.stderr);
    home.write("work/end", "");
    assert_eq!(running.end().0, 0);
    assert!(!home.work().join(".brigade").exists());
    let output = run(&home, "echo pwned > AGENTS.md; cat AGENTS.md", &[]);
    assert!(
        output.contains("the sandbox protects these files, so they were renamed to NAME.removed:"),
        "{output}"
    );
    assert!(!home.work().join("AGENTS.md").exists());
    assert_eq!(fs::read_to_string(home.work().join("AGENTS.md.removed")).unwrap(), "pwned\n");
}

/// A new message to a child begins a round of its own, without the role that narrowed it.
#[test]
fn child_stays_in_its_sandbox_in_later_rounds() {
    let home = home();
    let write = call("shell", json!({ "command": "echo x > child; echo tried" }));
    let script = Script::new()
        .agent("reader", [reply("ready"), write, reply("{results}")])
        .turns([call("delegate", json!({ "role": "reader", "task": "wait" })), reply("done")]);
    let role = ["--set", "swarm.roles.reader.sandbox=read-only"];
    let report = home.report(&script, &[&ON[..], &role].concat());
    let child = format!("{}.1-0", report["session_id"].as_str().unwrap());
    let model = home.script(&script);
    let told = home.brigade(&[&["tell", &child, "write", "--model", &model], &ON[..]].concat());
    told.exits_with(0).stdout_contains("Read-only file system");
    assert!(!home.work().join("child").exists());
}

/// A kernel that refuses user namespaces, as in many containers.
#[test]
fn run_and_doctor_say_that_the_sandbox_protects_less() {
    let home = home();
    let script = home.script(shell("echo x > src/new; cat .env"));
    let without_namespaces = |arguments: &[&str]| {
        let plain = home.command(arguments);
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c"]);
        command.args(["echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" \"$@\""]);
        command.arg(plain.get_program()).args(plain.get_args()).env_clear();
        command.envs(plain.get_envs().map(|(name, value)| (name, value.unwrap_or_default())));
        command.current_dir(plain.get_current_dir().unwrap());
        CommandResult::run(command.stdin(std::process::Stdio::null()))
    };
    let done = without_namespaces(&["run", "--model", &script, "--mode", "edit", "x"]);
    done.exits_with(0).stderr_contains(
        "warning: user namespaces are not available, so the sandbox protects less. For details, run: brigade doctor",
    );
    assert!(done.stdout.contains("Permission denied") && !done.stdout.contains("CANARY"), "{}", done.stdout);
    assert!(home.work().join("src/new").exists());
    without_namespaces(&["doctor"])
        .stdout_contains("user namespaces are not available, so sandboxes use only Landlock and seccomp");
    // With namespaces, there is nothing to say.
    let done = home.brigade(&["run", "--model", &script, "--mode", "edit", "x"]);
    assert!(!done.exits_with(0).stderr.contains("namespaces"), "{}", done.stderr);
}

/// The repository of a linked worktree is outside of the workspace.
#[test]
fn git_works_in_a_linked_worktree_and_cannot_change_what_git_runs() {
    let home = Home::outside_tmp();
    let git = "git init -q main && cd main && git config user.name n && git config user.email e@x && echo a > a && git add a && \
               git commit -qm one && git worktree add -q ../work/tree";
    let output = std::process::Command::new("sh")
        .args(["-c", git])
        .current_dir(home.work().join(".."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = home.work().join("tree");
    let commit = "echo b > b && git add b && git commit -qm two && git log --oneline | wc -l";
    let output = run(&home, commit, &["--cwd", tree.to_str().unwrap()]);
    assert!(output.ends_with("2\n"), "{output}");
    let main = home.work().join("../main");
    let attack = "for file in hooks/pre-commit config HEAD worktrees/tree/commondir worktrees/tree/config.worktree; do \
                  echo evil > ../../main/.git/$file; done; git config core.pager evil";
    let output = run(&home, attack, &["--cwd", tree.to_str().unwrap()]);
    assert!(output.contains("Read-only file system"), "{output}");
    let evil =
        std::process::Command::new("grep").args(["-r", "evil", ".git"]).current_dir(&main).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&evil.stdout), "");
}

/// Brigade reads a file named `.git`, which may be a pipe or a device.
#[test]
fn pipe_or_device_in_the_place_of_a_repository_does_not_block() {
    let home = Home::outside_tmp();
    let plant = "mkdir a b; mkfifo a/.git; ln -s /dev/zero b/.git; echo planted";
    let script = Script::new().turns([
        call("shell", json!({ "command": plant })),
        call("shell", json!({ "command": "echo second" })),
        reply("{results}"),
    ]);
    home.run(script, &ON).exits_with(0).stdout_contains("second");
}
