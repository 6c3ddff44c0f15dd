//! MCP servers and external agents in a sandbox. Those here are hostile: they run every command that they are sent.

use std::fs;
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use brigade_testing::{Script, TestProgram, call, reply};
use serde_json::{Value, json};

use crate::cli::support::{BackgroundRun, CommandResult, Home};

const SERVER: TestProgram = TestProgram::new(module_path!(), "server_entry");

#[test]
#[ignore = "the entry point of a server, not a test"]
fn server_entry() {
    if SERVER.is_running() {
        serve();
    }
}

/// An MCP server and an ACP agent in one, with their common transport. Both run commands: the tool `sh`, and a prompt.
fn serve() {
    let mut output = fs::File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut send = |message: Value| output.write_all(format!("{message}\n").as_bytes()).unwrap();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message: Value = serde_json::from_str(&line).unwrap();
        let (id, params) = (&message["id"], &message["params"]);
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if params["protocolVersion"] == 1 => json!({ "protocolVersion": 1 }),
            "initialize" => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "hostile", "version": "1" } }),
            "tools/list" => {
                json!({ "tools": [{ "name": "sh", "inputSchema": { "type": "object" } }] })
            }
            "tools/call" => {
                let text = output_of(params["arguments"]["command"].as_str().unwrap());
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            "session/new" => {
                let modes = ["plan", "ask"].map(|mode| json!({ "id": mode, "name": mode }));
                json!({ "sessionId": "s", "modes": { "currentModeId": "ask", "availableModes": modes } })
            }
            "session/prompt" => {
                let prompt = params["prompt"][0]["text"].as_str().unwrap();
                let command = prompt.lines().find_map(|line| line.trim().strip_prefix('!')).unwrap();
                let content = json!({ "type": "text", "text": output_of(command) });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                send(json!({ "jsonrpc": "2.0", "method": "session/update",
                    "params": { "sessionId": params["sessionId"], "update": update } }));
                json!({ "stopReason": "end_turn" })
            }
            "session/set_mode" => json!({}),
            _ if id.is_null() => continue,
            _ => {
                send(
                    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "unknown" } }),
                );
                continue;
            }
        };
        send(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
}

fn output_of(command: &str) -> String {
    let output = Command::new("/bin/sh").args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A home with a project, secrets and a directory outside, none of them below `/tmp`.
struct Place {
    home: Home,
}

impl Place {
    fn new() -> Place {
        let home = Home::outside_tmp().with_test_program();
        for directory in ["work/.git/hooks", "user/.ssh", "outside"] {
            fs::create_dir_all(home.work().join("..").join(directory)).unwrap();
        }
        home.write("work/.git/config", "[core]\n");
        home.write("work/.env", "CANARY");
        home.write("user/.ssh/id", "CANARY");
        home.write("user/.bashrc", "# start\n");
        Place { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.work().parent().unwrap().canonicalize().unwrap().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The MCP server `bad` and the agent `bad`, with this sandbox.
    fn config(&self, sandbox: Value) -> Value {
        let (command, arguments) = SERVER.command();
        let server = json!({ "command": command, "args": arguments, "sandbox": sandbox });
        json!({ "mcpServers": { "bad": server }, "acp": { "servers": { "bad": server } }, "spawn": {} })
    }

    fn configure(&self, sandbox: Value) {
        self.home.write("home/config.json", &self.config(sandbox).to_string());
    }

    fn run(&self, script: Script, settings: &[&str]) -> CommandResult {
        let model = self.home.script(script);
        let mut command = self.home.command(&["run", "--model", &model, "the task"]);
        command.args(settings).env("HOME", self.path("user"));
        CommandResult::run(&mut command)
    }

    /// Runs a command in the MCP server and returns what it printed.
    fn mcp(&self, command: &str, settings: &[&str]) -> String {
        let script =
            Script::new().turns([call("mcp__bad__sh", json!({ "command": command })), reply("{results}")]);
        let settings = [&ON[..], &["--mode", "auto"], settings].concat();
        let done = self.run(script, &settings);
        let has_other_warning =
            done.stderr.lines().any(|line| line.contains("warning") && !line.contains("the sandbox is off"));
        assert!(!has_other_warning, "{}", done.stderr);
        done.exits_with(0).stdout.clone()
    }

    /// Runs a command in the external agent and returns what it printed.
    fn acp(&self, command: &str, settings: &[&str]) -> String {
        self.run(delegating(command), &[&ON[..], settings].concat()).exits_with(0).stdout.clone()
    }
}

fn delegating(command: &str) -> Script {
    let task = format!("!{command}");
    let arguments = json!({ "task": task, "description": "Run it", "serverName": "bad" });
    Script::new().agent("lead", [call("subagent_delegate", arguments), reply("{results}")])
}

const ON: [&str; 2] = ["--set", "sandbox.mode=workspace"];

const ATTACK: &str = "echo in > new; echo hook > .git/hooks/pre-commit; echo x >> .git/config; echo x >> ~/.bashrc; \
                      cat .env ~/.ssh/id; echo out > ../outside/file; mv .git other; kill -9 1; echo end";

fn assert_confined(place: &Place, output: &str) {
    assert!(output.contains("end"), "{output}");
    assert!(!output.contains("CANARY"), "{output}");
    assert_eq!(fs::read_dir(place.path("work/.git/hooks")).unwrap().count(), 0, "{output}");
    assert_eq!(place.read("work/.git/config"), "[core]\n");
    assert_eq!(place.read("user/.bashrc"), "# start\n");
    assert!(!place.path("outside/file").exists());
}

#[test]
fn hostile_mcp_server_changes_only_the_workspace() {
    let place = Place::new();
    place.configure(json!({}));
    assert_confined(&place, &place.mcp(ATTACK, &[]));
    assert_eq!(place.read("work/new"), "in\n");
    // It leaves nothing behind.
    let mut names: Vec<_> =
        fs::read_dir(place.path("work")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".env", ".git", "new"]);
    assert_eq!(fs::read_dir(place.path("home/tmp")).unwrap().count(), 0);
}

#[test]
fn mcp_server_without_a_sandbox_has_the_rights_of_the_user() {
    let place = Place::new();
    place.configure(json!({ "mode": "off" }));
    let output = place.mcp("cat .env; echo x > ../outside/file", &[]);
    assert!(output.contains("CANARY") && place.path("outside/file").exists(), "{output}");
    place.configure(json!({}));
    let output = place.mcp("cat .env", &["--set", "sandbox.mode=off"]);
    assert!(output.contains("CANARY"), "{output}");
    place.configure(json!({ "mode": "workspace" }));
    let output = place.mcp("cat .env; echo end", &["--set", "sandbox.mode=off"]);
    assert!(!output.contains("CANARY"), "the entry decides: {output}");
}

#[test]
fn server_does_not_see_the_sessions() {
    let place = Place::new();
    place.configure(json!({ "read": [place.path("home")] }));
    let output =
        place.mcp(&format!("ls {0}; cat {0}/config.json; echo end", place.path("home").display()), &[]);
    assert!(
        output.contains("end") && !output.contains("sessions.db") && !output.contains("mcpServers"),
        "{output}"
    );
}

#[test]
fn entry_of_the_user_grants_access() {
    let place = Place::new();
    let (outside, state) = (place.path("outside"), place.path("user/.tool/state"));
    place.configure(json!({ "write": [outside], "state": [state], "read": ["~/.ssh"] }));
    let attack = "cat ~/.ssh/id; echo out > ../outside/file; echo s > ~/.tool/state/file; echo in > new";
    let output = place.mcp(attack, &[]);
    assert!(output.contains("CANARY"), "{output}");
    assert_eq!(
        (place.read("outside/file"), place.read("user/.tool/state/file")),
        ("out\n".into(), "s\n".into())
    );
    fs::remove_file(place.path("work/new")).unwrap();
    place.configure(json!({ "mode": "read-only", "write": [outside], "state": [state] }));
    place.mcp("echo 2 > ../outside/file; echo 2 > ~/.tool/state/file; echo in > new", &[]);
    assert_eq!(
        (place.read("outside/file"), place.read("user/.tool/state/file")),
        ("out\n".into(), "2\n".into())
    );
    assert!(!place.path("work/new").exists());
}

/// Attempts a connection to a listener on this machine.
fn connecting(listener: &TcpListener) -> String {
    let port = listener.local_addr().unwrap().port();
    format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected || echo refused")
}

#[test]
fn server_of_the_user_has_the_network_unless_it_is_set_off() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = format!("bash -c '{}'", connecting(&listener));
    place.configure(json!({}));
    assert!(place.mcp(&command, &[]).contains("connected"));
    place.configure(json!({ "network": false }));
    assert!(place.mcp(&command, &[]).contains("refused"));
}

#[test]
fn server_of_a_project_has_no_network_and_cannot_widen_its_sandbox() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = format!("bash -c '{}'; {ATTACK}", connecting(&listener));
    let define = |sandbox: Value| {
        let config = json!({ "mcpServers": place.config(sandbox)["mcpServers"] });
        place.home.write("work/.mcp.json", &config.to_string());
        place.home.brigade(&["trust", "--yes"]).exits_with(0);
    };
    define(json!({}));
    let output = place.mcp(&command, &[]);
    assert!(output.contains("refused"), "{output}");
    assert_confined(&place, &output);
    define(json!({ "mode": "read-only" }));
    let output = place.mcp("echo x > narrow; echo end", &[]);
    assert!(output.contains("end") && !place.path("work/narrow").exists(), "{output}");
    for (key, value) in [
        ("mode", json!("off")),
        ("network", json!(true)),
        ("read", json!(["~/.ssh"])),
        ("write", json!(["~"])),
        ("state", json!(["~"])),
        ("sockets", json!(["/run/docker.sock"])),
    ] {
        define(json!({ key: value }));
        let done = place.run(Script::new().reply("fine"), &ON);
        let refused = format!("a project cannot widen the sandbox of a server with `sandbox.{key}`");
        done.exits_with(0).stdout_contains("fine").stderr_contains(&refused);
    }
}

#[test]
fn server_whose_sandbox_cannot_be_enforced_is_not_started() {
    let place = Place::new();
    place.configure(json!({ "write": ["/usr"] }));
    let refused = "warning: MCP server 'bad': cannot start the server: it cannot run in a sandbox: `/usr` contains system";
    place.run(Script::new().reply("fine"), &ON).exits_with(0).stderr_contains(refused);
    let done = place.run(delegating("echo ran"), &[&ON[..], &["--mode", "auto"]].concat());
    assert!(
        done.stdout.contains("it cannot run in a sandbox") && !done.stdout.contains("ran\n"),
        "{}",
        done.stdout
    );
    // The home directory is the workspace.
    place.configure(json!({}));
    let mut command =
        place.home.command(&["run", "--model", &place.home.script(Script::new().reply("fine")), "task"]);
    let done = CommandResult::run(command.args(ON).env("HOME", place.path("work")));
    done.exits_with(0).stderr_contains("because the workspace contains your home directory");
}

#[test]
fn hostile_agent_cannot_write_the_workspace_in_plan_and_ask() {
    let place = Place::new();
    place.configure(json!({}));
    let write = "echo x > written; cat .env; echo end";
    for (mode, writes) in [("plan", false), ("ask", false), ("edit", true), ("auto", true)] {
        let output = place.acp(write, &["--mode", mode]);
        assert!(output.contains("end") && !output.contains("CANARY"), "{mode}: {output}");
        assert_eq!(fs::remove_file(place.path("work/written")).is_ok(), writes, "{mode}: {output}");
    }
    // The user trusts the agent to ask, but not in mode plan.
    place.configure(json!({ "mode": "workspace" }));
    for (mode, writes) in [("plan", false), ("ask", true)] {
        let output = place.acp(write, &["--mode", mode]);
        assert_eq!(fs::remove_file(place.path("work/written")).is_ok(), writes, "{mode}: {output}");
    }
    assert_confined(&place, &place.acp(ATTACK, &["--mode", "auto"]));
}

#[test]
fn role_with_a_narrower_sandbox_gets_another_process_of_an_agent() {
    let place = Place::new();
    let mut config = place.config(json!({}));
    config["swarm"]["roles"] =
        json!({ "wide": { "acp": "bad" }, "narrow": { "acp": "bad", "sandbox": "read-only" } });
    place.home.write("home/config.json", &config.to_string());
    let task = |role: &str| {
        call("delegate", json!({ "role": role, "task": format!("!echo x > {role}; echo {role} is done") }))
    };
    let script = Script::new().agent("lead", [task("wide"), task("narrow"), reply("{results}")]);
    let done = place.run(script, &[&ON[..], &["--mode", "auto"]].concat());
    done.exits_with(0);
    assert!(place.path("work/wide").exists() && !place.path("work/narrow").exists(), "{}", done.stdout);
}

/// A program may use a sandbox of its own, which does not undo ours.
#[test]
fn agent_can_use_namespaces_and_uncovers_nothing() {
    let place = Place::new();
    place.configure(json!({}));
    let attack = "unshare -Um sh -c 'echo inside; umount .env; umount .git/hooks; umount -l .git; mount -o remount,rw /; \
                  mount --bind . /mnt; cat .env /mnt/.env; echo x > .git/hooks/post-commit; echo x >> .git/config; \
                  echo x >> ~/.bashrc'; echo end";
    let output = place.acp(attack, &["--mode", "auto"]);
    assert!(output.contains("inside\n"), "{output}");
    assert_confined(&place, &output);
}

#[test]
fn variables_that_lead_to_hidden_sockets_are_removed() {
    let place = Place::new();
    let mut config = place.config(json!({}));
    config["mcpServers"]["bad"]["env"] = json!({ "SSH_AUTH_SOCK": "/run/agent", "KEPT": "yes" });
    place.home.write("home/config.json", &config.to_string());
    let output = place.mcp("env", &[]);
    assert!(output.contains("KEPT=yes") && !output.contains("SSH_AUTH_SOCK"), "{output}");
}

#[test]
fn doctor_lists_servers_with_their_sandbox() {
    let place = Place::new();
    place.configure(json!({}));
    for arguments in [&["doctor"][..], &["doctor", "--offline"]] {
        let arguments = [arguments, &ON[..]].concat();
        let done = place.home.brigade(&arguments);
        done.stdout_contains(", sandbox workspace, network\n")
            .stdout_contains("sandbox workspace, network (read-only in mode plan, read-only in mode ask)");
    }
    place.home.brigade(&["doctor", "--set", "sandbox.mode=off"]).stdout_contains("bad: 1 tool, no sandbox");
}

/// Brigade needs its store, and confines its own agents.
#[test]
fn brigade_as_a_server_runs_without_a_sandbox_and_within_that_of_its_caller() {
    let place = Place::new();
    let inner = Script::new()
        .turns([call("shell", json!({ "command": "echo x > inner; cat .env" })), reply("{results}")]);
    let inner = format!("script:{}", place.home.write("inner.toml", &inner.to_string()).display());
    let server = json!({ "command": env!("CARGO_BIN_EXE_brigade"), "args": ["mcp", "--model", inner],
        "env": { "BRIGADE_HOME": place.home.home() } });
    let define = |server: &Value| {
        let config = json!({ "mcpServers": { "inner": server }, "permissions": { "mode": "auto" } });
        place.home.write("home/config.json", &config.to_string());
    };
    let tool = "mcp__inner__delegate";
    let script = || {
        let arguments = json!({ "role": "worker", "task": "work", "description": "d" });
        Script::new().turns([call(tool, arguments), reply("{results}")])
    };
    define(&server);
    let done = place.run(script(), &["--mode", "auto", "--set", "sandbox.mode=read-only"]);
    assert!(done.stdout.contains("Read-only file system"), "{}\n{}", done.stdout, done.stderr);
    assert!(!place.path("work/inner").exists() && !done.stdout.contains("CANARY"), "{}", done.stdout);
    // With an older caller, or without a sandbox of the caller, its own settings apply.
    let done = place.run(script(), &["--mode", "auto"]);
    assert!(place.path("work/inner").exists(), "{}\n{}", done.stdout, done.stderr);
    let mut confined = server;
    confined["sandbox"] = json!({ "mode": "workspace" });
    define(&confined);
    let done = place.run(Script::new().reply("fine"), &ON);
    done.exits_with(0).stderr_contains("MCP server 'inner': cannot run brigade in the sandbox of a server");
    // The server of a project cannot leave its sandbox either.
    let mut of_project = confined;
    of_project.as_object_mut().unwrap().remove("sandbox");
    place.home.write("home/config.json", "{}");
    place.home.write("work/.mcp.json", &json!({ "mcpServers": { "inner": of_project } }).to_string());
    place.home.brigade(&["trust", "--yes"]).exits_with(0);
    let done = place.run(Script::new().reply("fine"), &ON);
    done.exits_with(0).stderr_contains("Define the server in your own configuration");
}

/// A role narrows the sandbox of the Brigade that works for it, and of all its agents.
#[test]
fn brigade_as_an_agent_keeps_within_the_sandbox_of_its_role() {
    let place = Place::new();
    let write =
        |name: &str| call("shell", json!({ "command": format!("echo x > {name}; echo {name} ends") }));
    let inner = Script::new().agent("child", [write("grandchild"), reply("{results}")]).turns([
        write("inner"),
        call("delegate", json!({ "role": "child", "task": "write" })),
        reply("{results}"),
    ]);
    let inner = format!("script:{}", place.home.write("inner.toml", &inner.to_string()).display());
    let config = json!({
        "permissions": { "mode": "auto" },
        "swarm": { "max_depth": 3, "roles": {
            "narrow": { "acp": "inner", "sandbox": "read-only" },
            "wide": { "acp": "inner" },
        } },
        "acp": { "servers": { "inner": {
            "command": env!("CARGO_BIN_EXE_brigade"), "args": ["acp", "--model", inner], "max_agents": 1,
            "env": { "BRIGADE_HOME": place.home.home(), "HOME": place.path("user") },
        } } },
    });
    place.home.write("home/config.json", &config.to_string());
    for (role, writes) in [("narrow", false), ("wide", true)] {
        let arguments = json!({ "role": role, "task": "work", "description": "d" });
        let script = Script::new().agent("lead", [call("delegate", arguments), reply("{results}")]);
        let done = place.run(script, &ON);
        assert!(done.stdout.contains("grandchild ends"), "{}\n{}", done.stdout, done.stderr);
        for name in ["inner", "grandchild"] {
            assert_eq!(place.path("work").join(name).exists(), writes, "{role}: {}", done.stdout);
        }
    }
}

/// Whether a process with this argument is running, in whatever process namespace.
fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_runner_leaves_no_process_of_a_server() {
    let place = Place::new();
    place.configure(json!({}));
    // The fraction makes the process recognisable.
    let seconds = |number: u32| format!("300.{}{number}", std::process::id());
    let mcp = json!({ "command": format!("setsid sleep {} & sleep {}", seconds(1), seconds(2)) });
    let mcp = Script::new().turns([call("mcp__bad__sh", mcp), reply("done")]);
    let acp = delegating(&format!("setsid sleep {} & sleep {}", seconds(3), seconds(4)));
    for (script, own) in [(mcp, [seconds(1), seconds(2)]), (acp, [seconds(3), seconds(4)])] {
        let running = BackgroundRun::start(&place.home, script, &[&ON[..], &["--mode", "auto"]].concat());
        wait_until("the server works", || own.iter().all(|argument| is_running(argument)));
        running.signal(rustix::process::Signal::KILL);
        wait_until("the server is gone", || !own.iter().any(|argument| is_running(argument)));
    }
}
