//! Agents of others as children: OpenCode and Gemini CLI, with their model on a mock. Every line goes over a wire in
//! between, and all that we sent on it has to fit the schema of the protocol.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use brigade_outer_tests::{
    AcpSchema, Aimock, Done, Foreign, Line, Place, Side, Wire, methods, processes_with,
};
use serde_json::{Value, json};

const BOTH: [(&str, Foreign); 2] = [("opencode", Foreign::OpenCode), ("gemini", Foreign::GeminiCli)];

/// A place that knows both agents, and the mock that is the model of both.
struct Kitchen {
    place: Place,
    aimock: Aimock,
}

impl Kitchen {
    fn new() -> Kitchen {
        let place = Place::new("");
        let note = place.path("work/note.txt").display().to_string();
        // Gemini CLI can only change files that are there: it takes every error of a client as a failure.
        std::fs::write(&note, "old").unwrap();
        let usage = json!({ "prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16, "input_tokens": 11, "output_tokens": 5 });
        let writes = |foreign: Foreign| {
            let (tool, path) = foreign.write_tool();
            let call = json!({ "name": tool, "arguments": { path: note, "content": "new" } });
            let words = format!("write the note with {foreign:?}");
            json!({ "match": { "userMessage": words, "hasToolResult": false }, "response": { "toolCalls": [call], "usage": usage } })
        };
        let says = |words: &str, answer: &str| json!({ "match": { "userMessage": words }, "response": { "content": answer, "usage": usage } });
        let fixtures = json!({ "fixtures": [
            writes(Foreign::OpenCode),
            writes(Foreign::GeminiCli),
            says("write the note", "I am through with the note."),
            says("a plain question", "An answer of another agent."),
            { "match": {}, "response": { "content": "Something else.", "usage": usage } },
        ] });
        std::fs::write(place.path("fixtures.json"), fixtures.to_string()).unwrap();
        let aimock = Aimock::start(&place.path("fixtures.json"), &[]);
        Kitchen { place, aimock }
    }

    /// Runs a script for the lead, with both agents and these settings.
    fn run(&self, script: &str, settings: &str, more: &[&str]) -> Done {
        let place = &self.place;
        std::fs::write(place.path("script.toml"), script).unwrap();
        let mut config = format!("model = 'script:{}'\n{settings}", place.path("script.toml").display());
        for (name, foreign) in BOTH {
            config.push_str(&foreign.section(name, place, &self.aimock, &self.wire(name)));
        }
        std::fs::write(place.path("home/config.toml"), config).unwrap();
        place.brigade(&[&["run", "--output-format", "json", "go"], more].concat())
    }

    fn wire(&self, name: &str) -> Wire {
        Wire::new(&self.place.path(&format!("{name}-wire")))
    }

    /// What was said to an agent and by it in all, once it is sure that all that we sent is right.
    fn judged(&self, name: &str) -> Vec<Line> {
        let said = self.wire(name).said();
        let schema = AcpSchema::load();
        for process in &said {
            assert_eq!(schema.complaints(process, Side::Client), Vec::<String>::new(), "{name}");
        }
        said.concat()
    }

    fn nothing_is_left(&self) {
        let home = self.place.path("").display().to_string();
        let left = || processes_with(&home).len() - 1; // the mock, which has its fixtures there
        let begun = Instant::now();
        while left() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", processes_with(&home));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn note(&self) -> String {
        std::fs::read_to_string(self.place.path("work/note.txt")).unwrap()
    }
}

/// A lead that makes these calls and says what came of them.
fn lead(calls: &[(&str, Value)]) -> String {
    let mut script = "[[reply]]\nagent = 'lead'\nturn = 1\n".to_owned();
    for (tool, arguments) in calls {
        let pairs: Vec<String> = arguments
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        script
            .push_str(&format!("[[reply.call]]\ntool = '{tool}'\narguments = {{ {} }}\n", pairs.join(", ")));
    }
    script + "[[reply]]\nagent = 'lead'\ntext = '{results}'\n"
}

fn result(done: &Done) -> String {
    done.report()["result"].as_str().unwrap_or_else(|| panic!("{done:?}")).to_owned()
}

#[test]
fn one_generation_by_each_and_an_unknown_server_is_named() {
    let kitchen = Kitchen::new();
    let ask = |server: &str| {
        let arguments = json!({ "task": "a plain question", "description": format!("Ask {server}"), "serverName": server });
        ("subagent_delegate", arguments)
    };
    let script = lead(&[ask("opencode"), ask("gemini"), ask("nobody")]);
    let done = kitchen.run(&script, "[spawn]\n", &[]);
    let text = result(&done);
    assert_eq!(text.matches("An answer of another agent.").count(), 2, "{text}");
    assert!(text.contains("nobody") && text.contains("opencode") && text.contains("gemini"), "{text}");
    for (name, _) in BOTH {
        let said = kitchen.judged(name);
        let sent = methods(&said, Side::Client);
        for method in ["initialize", "session/new", "session/prompt"] {
            assert!(sent.iter().any(|sent| sent == method), "{name}: {sent:?}");
        }
    }
    let root = done.report()["session_id"].as_str().unwrap().to_owned();
    let tree = kitchen.place.brigade(&["sessions", "tree", &root, "--output-format", "json"]);
    let tree: Value = serde_json::from_str(&tree.stdout).unwrap();
    let children = tree["agents"].as_array().unwrap().iter().filter(|row| row["parent"] == json!(root));
    assert_eq!(children.filter(|row| row["status"] == "done").count(), 2, "{tree}");
    kitchen.nothing_is_left();
}

const ROLES: &str = "[swarm.roles.Opener]\nacp = 'opencode'\n\
    [swarm.roles.Twin]\nacp = 'gemini'\n";

/// The role of an agent, and a call that has it write.
fn writing(name: &str, foreign: Foreign) -> String {
    let role = if name == "opencode" { "Opener" } else { "Twin" };
    lead(&[("delegate", json!({ "role": role, "task": format!("write the note with {foreign:?}") }))])
}

/// The kinds of the options that we chose where the agent asked for leave.
fn chosen(said: &[Line]) -> Vec<String> {
    let asked =
        said.iter().map(Line::message).filter(|message| message["method"] == "session/request_permission");
    asked
        .map(|question| {
            let answer = said.iter().filter(|line| line.from == Side::Client).map(Line::message);
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
fn what_a_role_asks_leave_for_is_done_where_it_may_be_done() {
    for (name, foreign) in BOTH {
        let kitchen = Kitchen::new();
        let done = kitchen.run(&writing(name, foreign), ROLES, &["--mode", "edit"]);
        assert!(result(&done).contains("I am through with the note."), "{name}: {done:?}");
        let said = kitchen.judged(name);
        assert_eq!(chosen(&said), ["allow_once"], "{name}");
        assert_eq!(kitchen.note(), "new", "{name}");
        kitchen.nothing_is_left();
    }
}

#[test]
fn what_a_role_asks_leave_for_is_refused_where_nobody_can_be_asked() {
    for (name, foreign) in BOTH {
        let kitchen = Kitchen::new();
        let done = kitchen.run(&writing(name, foreign), ROLES, &["--mode", "ask"]);
        assert!(matches!(done.code, 0 | 1), "{name}: {done:?}");
        let said = kitchen.judged(name);
        assert_eq!(chosen(&said), ["reject_once"], "{name}");
        assert_eq!(kitchen.note(), "old", "{name}");
        kitchen.nothing_is_left();
    }
}
