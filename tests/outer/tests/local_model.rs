//! The built command against a real small model behind a llama.cpp server. The model is too small to be
//! useful, so only structure is asserted: the run ends, children ran, and results are paired with their
//! calls.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::LazyLock;

use brigade_outer_tests::{CannedResponse, LocalModel, RecordedRequest, RecordingServer, TestEnv};
use serde_json::{Value, json};

/// One server for all tests. It ends with this process.
static MODEL: LazyLock<LocalModel> = LazyLock::new(LocalModel::start);

/// The formats that the server supports.
const KINDS: &[&str] = &["openai", "anthropic", "responses"];

const LEAD: &str = "---\nname: Small\ndescription: The lead of these tests\ntools: [echo, delegate]\nlend: [echo]\ntemperature: 0\n\
    max_tokens: 64\n---\nYou are helpful.\n";

fn test_env(kind: &str, address: &str) -> TestEnv {
    let env = TestEnv::new(&format!(
        "model = 'it/small'\n[limits]\nmax_tokens = 16\nlead_turns = 2\nchild_turns = 1\n\
         [providers.it]\nkind = '{kind}'\nbase_url = '{address}/v1'\n"
    ));
    let folder = env.path("home/agents/small");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("AGENT.md"), LEAD).unwrap();
    env
}

const RUN: [&str; 5] = ["run", "-a", "small", "--output-format", "json"];

#[test]
fn plain_run_ends_with_text_and_usage() {
    for kind in KINDS {
        let env = test_env(kind, &MODEL.address);
        let output = env.brigade(&[&RUN[..], &["Say hello."]].concat());
        let report = output.report();
        let tokens = |key: &str| report["usage"][key].as_u64().unwrap();
        assert!(tokens("input_tokens") > 0 && tokens("output_tokens") > 0, "{kind}: {report}");
        assert_eq!(
            report["agents"][0]["turns"].as_u64().map(|turns| turns > 0),
            Some(true),
            "{kind}: {report}"
        );
    }
}

/// Forwards requests. Those of the lead offer only `delegate` with a fixed schema, and the first requires a
/// call, so the server's grammar permits no other reply.
fn forcing(kind: &'static str) -> RecordingServer {
    let address = MODEL.address.clone();
    RecordingServer::start(move |request| {
        if !offers_delegation(request) {
            return CannedResponse::Forward(address.clone(), request.body.clone());
        }
        let mut body = request.json();
        body["tools"] = json!([delegate(kind)]);
        if !is_answered(request) {
            body["tool_choice"] =
                if kind == "anthropic" { json!({ "type": "any" }) } else { "required".into() };
        }
        CannedResponse::Forward(address.clone(), body.to_string().into_bytes())
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

fn offers_delegation(request: &RecordedRequest) -> bool {
    request.json()["tools"].to_string().contains("\"delegate\"")
}

/// Whether the request contains a tool result, by the role, the type or the type of a part, depending on the
/// format.
fn is_answered(request: &RecordedRequest) -> bool {
    let results = ["\"role\":\"tool\"", "\"type\":\"tool_result\"", "\"type\":\"function_call_output\""];
    let body = String::from_utf8_lossy(&request.body).into_owned();
    results.iter().any(|result| body.contains(result))
}

#[test]
fn delegation_by_a_real_model_runs_end_to_end() {
    for kind in KINDS {
        let server = forcing(kind);
        let env = test_env(kind, &server.address);
        let output = env.brigade(&[&RUN[..], &["Ask your helper to say hello."]].concat());
        let report = output.report();
        let root = report["session_id"].as_str().unwrap();
        let events = env.events(root);
        let ended = |session: &Value| {
            let is = |event: &&Value| event["session"] == *session && event["event"]["type"] == "ended";
            events.iter().filter(is).count()
        };
        assert_eq!(ended(&root.into()), 1, "{kind}: {report}");
        let child = &report["agents"][1];
        assert_eq!((&child["agent"], &child["parent"]), (&"Helper".into(), &root.into()), "{kind}: {report}");
        assert_eq!(ended(&child["session_id"]), 1, "{kind}: {report}");
        check_pairing(kind, &server.requests());
    }
}

/// Checks that the lead's next request has the call and its result under one id.
fn check_pairing(kind: &str, recorded: &[RecordedRequest]) {
    let next =
        recorded.iter().find(|recorded| offers_delegation(recorded) && is_answered(recorded)).unwrap().json();
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
fn task_over_the_context_window_is_reported() {
    let long = "many words ".repeat(6000);
    for kind in KINDS {
        let env = test_env(kind, &MODEL.address);
        let output = env.brigade(&[&RUN[..], &[&long]].concat());
        assert_ne!(output.code, 0, "{kind}");
        assert!(output.stderr.contains("context window"), "{kind}: {}", output.stderr);
    }
}
