//! Third-party agents as children: OpenCode and Gemini CLI, with a mock model. All messages are recorded, and
//! those that we sent are validated against the protocol schema.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use brigade_outer_tests::{
    AcpSchema, Aimock, CommandOutput, ExternalAgent, Side, TestEnv, WireLine, WireLog, methods,
    processes_with,
};
use brigade_testing::{Reply, Script, reply};
use serde_json::{Value, json};

const BOTH: [(&str, ExternalAgent); 2] =
    [("opencode", ExternalAgent::OpenCode), ("gemini", ExternalAgent::GeminiCli)];

/// An environment with both agents, and the mock model that they share.
struct ChildAgentsTest {
    env: TestEnv,
    aimock: Aimock,
}

impl ChildAgentsTest {
    fn new() -> ChildAgentsTest {
        let env = TestEnv::new("");
        let note = env.path("work/note.txt").display().to_string();
        // Gemini CLI can only change existing files, because it treats every client error as a failure.
        std::fs::write(&note, "old").unwrap();
        let usage = json!({ "prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16, "input_tokens": 11, "output_tokens": 5 });
        let writes = |agent: ExternalAgent| {
            let (tool, path) = agent.write_tool();
            let call = json!({ "name": tool, "arguments": { path: note, "content": "new" } });
            let words = format!("write the note with {agent:?}");
            json!({ "match": { "userMessage": words, "hasToolResult": false }, "response": { "toolCalls": [call], "usage": usage } })
        };
        let says = |words: &str, answer: &str| json!({ "match": { "userMessage": words }, "response": { "content": answer, "usage": usage } });
        let fixtures = json!({ "fixtures": [
            writes(ExternalAgent::OpenCode),
            writes(ExternalAgent::GeminiCli),
            says("write the note", "I am through with the note."),
            says("a plain question", "An answer of another agent."),
            { "match": {}, "response": { "content": "Something else.", "usage": usage } },
        ] });
        std::fs::write(env.path("fixtures.json"), fixtures.to_string()).unwrap();
        let aimock = Aimock::start(&env.path("fixtures.json"), &[]);
        ChildAgentsTest { env, aimock }
    }

    /// Runs a script for the lead, with both agents and these settings.
    fn run(&self, script: &Script, settings: &str, more: &[&str]) -> CommandOutput {
        let env = &self.env;
        std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
        let mut config = format!("model = 'script:{}'\n{settings}", env.path("script.toml").display());
        for (name, agent) in BOTH {
            config.push_str(&agent.config_section(name, env, &self.aimock, &self.wire(name)));
        }
        std::fs::write(env.path("home/config.toml"), config).unwrap();
        env.brigade(&[&["run", "--output-format", "json", "go"], more].concat())
    }

    fn wire(&self, name: &str) -> WireLog {
        WireLog::new(&self.env.path(&format!("{name}-wire")))
    }

    /// All recorded lines of an agent, after validation of those that we sent.
    fn checked_lines(&self, name: &str) -> Vec<WireLine> {
        let lines = self.wire(name).recorded();
        let schema = AcpSchema::load();
        for process in &lines {
            assert_eq!(schema.violations(process, Side::Client), Vec::<String>::new(), "{name}");
        }
        lines.concat()
    }

    fn wait_until_no_process_is_left(&self) {
        let home = self.env.path("").display().to_string();
        let left = || processes_with(&home).len() - 1; // except for the mock, whose fixtures are there
        let started = Instant::now();
        while left() > 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", processes_with(&home));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn note(&self) -> String {
        std::fs::read_to_string(self.env.path("work/note.txt")).unwrap()
    }
}

/// A lead that makes these calls and returns their results.
fn lead<const N: usize>(calls: [(&str, Value); N]) -> Script {
    let calls =
        calls.into_iter().fold(Reply::default(), |reply, (tool, arguments)| reply.call(tool, arguments));
    Script::new().agent("lead", [calls, reply("{results}")])
}

fn result(output: &CommandOutput) -> String {
    output.report()["result"].as_str().unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[test]
fn each_agent_answers_once_and_an_unknown_server_is_named() {
    let test = ChildAgentsTest::new();
    let ask = |server: &str| {
        let arguments = json!({ "task": "a plain question", "description": format!("Ask {server}"), "serverName": server });
        ("subagent_delegate", arguments)
    };
    let script = lead([ask("opencode"), ask("gemini"), ask("nobody")]);
    let output = test.run(&script, "[spawn]\n", &[]);
    let text = result(&output);
    assert_eq!(text.matches("An answer of another agent.").count(), 2, "{text}");
    assert!(text.contains("nobody") && text.contains("opencode") && text.contains("gemini"), "{text}");
    for (name, _) in BOTH {
        let lines = test.checked_lines(name);
        let sent = methods(&lines, Side::Client);
        for method in ["initialize", "session/new", "session/prompt"] {
            assert!(sent.iter().any(|sent| sent == method), "{name}: {sent:?}");
        }
    }
    let root = output.report()["session_id"].as_str().unwrap().to_owned();
    let tree = test.env.brigade(&["sessions", "tree", &root, "--output-format", "json"]);
    let tree: Value = serde_json::from_str(&tree.stdout).unwrap();
    let children = tree["agents"].as_array().unwrap().iter().filter(|row| row["parent"] == json!(root));
    assert_eq!(children.filter(|row| row["status"] == "done").count(), 2, "{tree}");
    test.wait_until_no_process_is_left();
}

const ROLES: &str = "[swarm.roles.Opener]\nacp = 'opencode'\n\
    [swarm.roles.Twin]\nacp = 'gemini'\n";

/// The role of an agent, and a call that makes it write.
fn writing(name: &str, agent: ExternalAgent) -> Script {
    let role = if name == "opencode" { "Opener" } else { "Twin" };
    lead([("delegate", json!({ "role": role, "task": format!("write the note with {agent:?}") }))])
}

/// The kinds of the options that we selected when the agent requested permission.
fn chosen(lines: &[WireLine]) -> Vec<String> {
    let asked = lines
        .iter()
        .map(WireLine::message)
        .filter(|message| message["method"] == "session/request_permission");
    asked
        .map(|question| {
            let answer = lines.iter().filter(|line| line.from == Side::Client).map(WireLine::message);
            let mut answer =
                answer.filter(|answer| answer["id"] == question["id"] && answer.get("method").is_none());
            let option =
                answer.find_map(|answer| Some(answer["result"]["outcome"]["optionId"].as_str()?.to_owned()));
            let options = question["params"]["options"].as_array().unwrap();
            let found = options.iter().find(|one| one["optionId"].as_str() == option.as_deref());
            found.map_or_else(String::new, |one| one["kind"].as_str().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn role_permission_is_granted_in_edit_mode() {
    for (name, agent) in BOTH {
        let test = ChildAgentsTest::new();
        let output = test.run(&writing(name, agent), ROLES, &["--mode", "edit"]);
        assert!(result(&output).contains("I am through with the note."), "{name}: {output:?}");
        let lines = test.checked_lines(name);
        assert_eq!(chosen(&lines), ["allow_once"], "{name}");
        assert_eq!(test.note(), "new", "{name}");
        test.wait_until_no_process_is_left();
    }
}

/// In mode `ask`, the sandbox of an agent is read-only, so an approved edit goes through Brigade.
#[test]
fn approved_edit_of_an_agent_in_a_sandbox_goes_through_brigade() {
    for (name, agent) in BOTH {
        let test = ChildAgentsTest::new();
        let allow = "permissions.allow=['write_file', 'edit_file']";
        let settings = ["--mode", "ask", "--set", allow, "--set", "sandbox.mode=workspace"];
        let output = test.run(&writing(name, agent), ROLES, &settings);
        assert!(result(&output).contains("I am through with the note."), "{name}: {output:?}");
        let lines = test.checked_lines(name);
        assert_eq!(chosen(&lines), ["allow_once"], "{name}");
        let sent = methods(&lines, Side::Agent);
        assert!(sent.iter().any(|sent| sent == "fs/write_text_file"), "{name}: {sent:?}");
        assert_eq!(test.note(), "new", "{name}");
        test.wait_until_no_process_is_left();
    }
}

#[test]
fn role_permission_is_denied_without_a_user() {
    for (name, agent) in BOTH {
        let test = ChildAgentsTest::new();
        let output = test.run(&writing(name, agent), ROLES, &["--mode", "ask"]);
        assert!(matches!(output.code, 0 | 1), "{name}: {output:?}");
        let lines = test.checked_lines(name);
        assert_eq!(chosen(&lines), ["reject_once"], "{name}");
        assert_eq!(test.note(), "old", "{name}");
        test.wait_until_no_process_is_left();
    }
}
