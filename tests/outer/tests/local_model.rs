//! The built command against a real small model behind a llama.cpp server. The model is a toy in wisdom, so that only
//! structure is asserted: that a run ends, that children were there, that results are paired.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::LazyLock;

use brigade_outer_tests::{Answer, Asked, LocalModel, Place, Server};
use serde_json::{Value, json};

/// One server for all tests; it ends with this process.
static MODEL: LazyLock<LocalModel> = LazyLock::new(LocalModel::start);

/// The formats that the server speaks.
const KINDS: &[&str] = &["openai", "anthropic", "responses"];

const LEAD: &str = "---\nname: Small\ndescription: The lead of these tests\ntools: [echo, delegate]\nlend: [echo]\ntemperature: 0\n\
    max_tokens: 64\n---\nYou are helpful.\n";

fn place(kind: &str, address: &str) -> Place {
    let place = Place::new(&format!(
        "model = 'it/small'\n[limits]\nmax_tokens = 16\nlead_turns = 2\nchild_turns = 1\n\
         [providers.it]\nkind = '{kind}'\nbase_url = '{address}/v1'\n"
    ));
    let folder = place.path("home/agents/small");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("AGENT.md"), LEAD).unwrap();
    place
}

const RUN: [&str; 5] = ["run", "-a", "small", "--output-format", "json"];

#[test]
fn a_plain_run_ends_with_text_and_usage() {
    for kind in KINDS {
        let place = place(kind, &MODEL.address);
        let done = place.brigade(&[&RUN[..], &["Say hello."]].concat());
        let report = done.report();
        let tokens = |key: &str| report["usage"][key].as_u64().unwrap();
        assert!(tokens("input_tokens") > 0 && tokens("output_tokens") > 0, "{kind}: {report}");
        assert_eq!(
            report["agents"][0]["turns"].as_u64().map(|turns| turns > 0),
            Some(true),
            "{kind}: {report}"
        );
    }
}

/// Hands requests on. Those of the lead offer only `delegate`, with arguments that are surely taken, and the first has to
/// be answered with a call: the server's grammar leaves no other reply.
fn forcing(kind: &'static str) -> Server {
    let address = MODEL.address.clone();
    Server::start(move |asked| {
        if !offers_delegation(asked) {
            return Answer::From(address.clone(), asked.body.clone());
        }
        let mut body = asked.json();
        body["tools"] = json!([delegate(kind)]);
        if !is_answered(asked) {
            body["tool_choice"] =
                if kind == "anthropic" { json!({ "type": "any" }) } else { "required".into() };
        }
        Answer::From(address.clone(), body.to_string().into_bytes())
    })
}

fn delegate(kind: &str) -> Value {
    let (name, description) = ("delegate", "Hand a task on.");
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["role", "task"],
        "properties": {
            "role": { "type": "string", "enum": ["Helper"] },
            "task": { "type": "string", "minLength": 3, "maxLength": 40 },
        },
    });
    match kind {
        "anthropic" => json!({ "name": name, "description": description, "input_schema": schema }),
        "responses" => {
            json!({ "type": "function", "name": name, "description": description, "parameters": schema })
        }
        _ => {
            let function = json!({ "name": name, "description": description, "parameters": schema });
            json!({ "type": "function", "function": function })
        }
    }
}

fn offers_delegation(asked: &Asked) -> bool {
    asked.json()["tools"].to_string().contains("\"delegate\"")
}

/// Whether there is a result in the request: by its role, its type or the type of a part, as the format has it.
fn is_answered(asked: &Asked) -> bool {
    let results = ["\"role\":\"tool\"", "\"type\":\"tool_result\"", "\"type\":\"function_call_output\""];
    let body = String::from_utf8_lossy(&asked.body).into_owned();
    results.iter().any(|result| body.contains(result))
}

#[test]
fn a_delegation_that_the_model_writes_runs_end_to_end() {
    for kind in KINDS {
        let server = forcing(kind);
        let place = place(kind, &server.address);
        let done = place.brigade(&[&RUN[..], &["Ask your helper to say hello."]].concat());
        let report = done.report();
        let root = report["session_id"].as_str().unwrap();
        let facts = place.facts(root);
        let ended = |session: &Value| {
            let is = |fact: &&Value| fact["session"] == *session && fact["event"]["type"] == "ended";
            facts.iter().filter(is).count()
        };
        assert_eq!(ended(&root.into()), 1, "{kind}: {report}");
        let child = &report["agents"][1];
        assert_eq!((&child["agent"], &child["parent"]), (&"Helper".into(), &root.into()), "{kind}: {report}");
        assert_eq!(ended(&child["session_id"]), 1, "{kind}: {report}");
        check_pairing(kind, &server.asked());
    }
}

/// The lead's next request has the call and its result under one id.
fn check_pairing(kind: &str, asked: &[Asked]) {
    let next = asked.iter().find(|asked| offers_delegation(asked) && is_answered(asked)).unwrap().json();
    let ids = match kind {
        "openai" => (&next["messages"][2]["tool_calls"][0]["id"], &next["messages"][3]["tool_call_id"]),
        "anthropic" => {
            let parts = next["messages"][1]["content"].as_array().unwrap();
            let call = parts.iter().find(|part| part["type"] == "tool_use").unwrap();
            (&call["id"], &next["messages"][2]["content"][0]["tool_use_id"])
        }
        _ => {
            let items = next["input"].as_array().unwrap();
            let of = |kind: &str| &items.iter().find(|item| item["type"] == kind).unwrap()["call_id"];
            (of("function_call"), of("function_call_output"))
        }
    };
    assert!(ids.0.is_string() && ids.0 == ids.1, "{kind}: {ids:?} in {next}");
    assert!(next.to_string().contains("[Helper]"), "{kind}: {next}");
}

#[test]
fn a_task_that_is_too_long_ends_with_words_about_the_window() {
    let long = "many words ".repeat(6000);
    for kind in KINDS {
        let place = place(kind, &MODEL.address);
        let done = place.brigade(&[&RUN[..], &[&long]].concat());
        assert_ne!(done.code, 0, "{kind}");
        assert!(done.stderr.contains("context window"), "{kind}: {}", done.stderr);
    }
}
