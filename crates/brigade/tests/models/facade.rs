//! `Brigade::builder` against servers that speak the wire formats of Anthropic and OpenAI.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use brigade::core::delegation::LimitKind;
use brigade::model::{ModelOverrides, PriceList};
use brigade::provider::{Anthropic, OpenAi, OpenAiCompatible, OpenAiResponses, Provider};
use brigade::schemars::JsonSchema;
use brigade::{
    Agent, Brigade, BrigadeBuilder, Budget, Event, RunError, RunEvent, Status, SubagentCallbacks, Tool,
    ToolContext, ToolOutput,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{KEY, Server, body, events};

#[expect(dead_code, reason = "the test passes the provider itself")]
#[path = "../../examples/quick_start.rs"]
mod quick_start;

/// Tokens that the servers report for every request.
const INPUT_TOKENS: u64 = 1_000;
const OUTPUT_TOKENS: u64 = 100;

#[derive(Debug, Clone, Copy)]
enum Wire {
    Anthropic,
    OpenAi,
}

const WIRES: [Wire; 2] = [Wire::Anthropic, Wire::OpenAi];

/// A request, whatever its format.
struct Received {
    system: String,
    tools: Vec<String>,
    /// Result of the last call, if the request has one.
    result: Option<String>,
}

/// Reply of a model.
enum Answer {
    Text(String),
    Call(&'static str, Value),
}

impl Wire {
    /// A server whose model answers with this function.
    fn serve(self, answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Server {
        Server::start(move |request| {
            let received = self.parse(&body(request));
            events(&self.stream(&answer(&received)))
        })
    }

    /// The provider, as a user creates it, at the address of the server.
    fn provider(self, server: &Server) -> Provider {
        let price = ModelOverrides {
            input: Some(1_000_000_000),
            output: Some(10_000_000_000),
            ..ModelOverrides::default()
        };
        match self {
            Wire::Anthropic => Anthropic::new(KEY)
                .model("claude-sonnet-4-5")
                .base_url(server.url(""))
                .prices(PriceList::built_in().with("anthropic/claude-sonnet-4-5", price)),
            Wire::OpenAi => OpenAi::new(KEY)
                .model("gpt-5")
                .base_url(server.url("/v1"))
                .prices(PriceList::built_in().with("openai/gpt-5", price)),
        }
    }

    fn parse(self, body: &Value) -> Received {
        let messages = body["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        let tools = body["tools"].as_array().into_iter().flatten();
        match self {
            Wire::Anthropic => Received {
                system: body["system"][0]["text"].as_str().unwrap().to_owned(),
                tools: tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect(),
                result: last["content"][0]["content"].as_str().map(str::to_owned),
            },
            Wire::OpenAi => Received {
                system: messages[0]["content"].as_str().unwrap().to_owned(),
                tools: tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect(),
                result: (last["role"] == "tool").then(|| last["content"].as_str().unwrap().to_owned()),
            },
        }
    }

    fn stream(self, answer: &Answer) -> String {
        match self {
            Wire::Anthropic => anthropic_stream(answer),
            Wire::OpenAi => openai_stream(answer),
        }
    }
}

fn anthropic_stream(answer: &Answer) -> String {
    let (block, delta, stop) = match answer {
        Answer::Text(text) => {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }), "end_turn")
        }
        Answer::Call(name, arguments) => (
            json!({ "type": "tool_use", "id": "toolu_1", "name": name, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }),
            "tool_use",
        ),
    };
    let usage = json!({ "input_tokens": INPUT_TOKENS, "output_tokens": 1 });
    let message =
        json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage });
    let end = json!({ "stop_reason": stop, "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": OUTPUT_TOKENS } }),
        json!({ "type": "message_stop" }),
    ];
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn openai_stream(answer: &Answer) -> String {
    let (delta, finish) = match answer {
        Answer::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        Answer::Call(name, arguments) => {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
            (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
        }
    };
    let chunk = |choices: Value, usage: Value| {
        let chunk =
            json!({ "id": "c1", "object": "chat.completion.chunk", "choices": choices, "usage": usage });
        format!("data: {chunk}\n\n")
    };
    let usage = json!({ "prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS });
    [
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null),
        chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]), Value::Null),
        chunk(json!([]), usage),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}

/// The lead dispatches to the reviewer and repeats its result. The reviewer searches once.
fn review(request: &Received) -> Answer {
    let is_lead = request.system.contains("You are the lead agent");
    match (&request.result, is_lead) {
        (None, true) => {
            Answer::Call("subagent_dispatch", json!({ "agent_id": "reviewer", "task": "Review the change." }))
        }
        (None, false) => Answer::Call("grep", json!({ "pattern": "unwrap" })),
        (Some(result), true) => Answer::Text(format!("The review says: {result}")),
        (Some(_), false) => Answer::Text("No defects found.".to_owned()),
    }
}

fn builder(wire: Wire, server: &Server) -> (BrigadeBuilder, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Brigade::builder().model(wire.provider(server)).workspace(folder.path()), folder)
}

#[tokio::test]
async fn quick_start_runs_a_tree_over_both_wire_formats() {
    for wire in WIRES {
        let offered: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let seen = offered.clone();
        let server = wire.serve(move |request| {
            seen.lock().unwrap().push(request.tools.clone());
            review(request)
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("main.rs"), "let a = b.unwrap();").unwrap();
        let result = quick_start::review(wire.provider(&server), folder.path()).await.unwrap();

        assert_eq!(result.outcome.status, Status::Done, "{wire:?}: {}", result.text());
        assert!(result.text().starts_with("The review says: "), "{}", result.text());
        assert!(result.text().contains("No defects found."), "{}", result.text());
        assert_eq!(result.tokens(), 4 * (INPUT_TOKENS + OUTPUT_TOKENS));
        // 1,000 tokens for 1 dollar per million and 100 for 10 dollars per million are 0.002 dollars.
        assert!((result.cost_usd() - 4.0 * 0.002).abs() < 1e-9, "{}", result.cost_usd());
        assert_eq!(result.spent.agents, 1);

        let offered = offered.lock().unwrap();
        assert!(offered[0].contains(&"subagent_dispatch".to_owned()), "{:?}", offered[0]);
        let names =
            |tools: &[String]| tools.iter().filter(|name| *name != "message").cloned().collect::<Vec<_>>();
        assert_eq!(
            names(&offered[1]),
            ["grep", "read_file"],
            "the reviewer has only the tools of its definition"
        );

        let (path, key) = match wire {
            Wire::Anthropic => ("POST /v1/messages ", format!("x-api-key: {KEY}")),
            Wire::OpenAi => {
                ("POST /v1/chat/completions ", format!("authorization: bearer {}", KEY.to_lowercase()))
            }
        };
        for request in server.requests() {
            assert!(request.starts_with(path), "{request}");
            assert!(request.to_lowercase().contains(&key.to_lowercase()), "{request}");
        }
    }
}

#[tokio::test]
async fn budget_in_dollars_ends_the_run_before_it_is_exceeded() {
    for wire in WIRES {
        // Each call is different, so that the agent is not stopped for repeating itself.
        let count = AtomicU64::new(0);
        let server = wire.serve(move |_| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            Answer::Call("glob", json!({ "pattern": format!("{number}*.rs") }))
        });
        let (builder, _folder) = builder(wire, &server);
        let brigade = builder.budget(Budget::usd(0.05)).build().unwrap();
        let result = brigade.run("Look around").await.unwrap();
        assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Usd }, "{wire:?}");
        assert!(result.cost_usd() > 0.0 && result.cost_usd() <= 0.05, "{}", result.cost_usd());
        let calls = u64::try_from(server.requests().len()).unwrap();
        assert!((1..=25).contains(&calls), "{wire:?}: {calls} requests");
    }
}

#[tokio::test]
async fn dollars_need_a_known_price() {
    let server = Wire::OpenAi.serve(|_| Answer::Text("no".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let provider = OpenAiCompatible::new(server.url("/v1")).key(KEY).model("large");
    let builder = || Brigade::builder().model(provider.clone()).workspace(folder.path());
    let error = builder().budget(Budget::usd(1.0)).build().unwrap().run("x").await.unwrap_err();
    assert!(matches!(error, RunError::Unpriced(_)), "{error}");
    assert!(server.requests().is_empty());
    let result = builder().budget(Budget::tokens(100_000)).build().unwrap().run("x").await.unwrap();
    assert_eq!((result.text(), result.cost_usd(), result.spent.unpriced), ("no", 0.0, 1));
}

/// A tool that declares no effect.
struct Deploy(Arc<AtomicU64>);

/// Deploy the project.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "brigade::schemars")]
struct DeployInput {
    /// Name of the server
    server: String,
}

impl Tool for Deploy {
    const NAME: &'static str = "deploy";
    type Input = DeployInput;

    async fn run(&self, input: DeployInput, _context: &ToolContext) -> ToolOutput {
        self.0.fetch_add(1, Ordering::SeqCst);
        ToolOutput::ok(format!("deployed to {}", input.server))
    }
}

#[tokio::test]
async fn own_tool_needs_an_approval_unless_a_rule_allows_it() {
    for wire in WIRES {
        let server = wire.serve(|request| match &request.result {
            None => Answer::Call("deploy", json!({ "server": "blue" })),
            Some(result) => Answer::Text(result.clone()),
        });
        let calls = Arc::new(AtomicU64::new(0));

        let (refusing, _folder) = builder(wire, &server);
        let refused = refusing.tool(Deploy(calls.clone())).build().unwrap().run("Deploy").await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{}", refused.text());
        assert!(refused.text().contains("approval"), "{}", refused.text());

        let (allowing, _folder) = builder(wire, &server);
        let brigade = allowing.tool(Deploy(calls.clone())).allow("deploy").build().unwrap();
        let allowed = brigade.run("Deploy").await.unwrap();
        assert_eq!((allowed.text(), calls.load(Ordering::SeqCst)), ("deployed to blue", 1));

        let request = body(&server.requests()[0]);
        let text = request["tools"].to_string();
        assert!(text.contains("Deploy the project.") && text.contains("Name of the server"), "{text}");
    }
}

fn recording() -> (SubagentCallbacks, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = || {
        let seen = seen.clone();
        move |line: String| seen.lock().unwrap().push(line)
    };
    let (start, delta, call, result, complete, error) = (note(), note(), note(), note(), note(), note());
    let callbacks = SubagentCallbacks {
        on_start: Some(Box::new(move |info| start(format!("start {}", info.description)))),
        on_stream_delta: Some(Box::new(move |_, text| delta(format!("delta {text}")))),
        on_tool_call_start: Some(Box::new(move |_, tool| call(format!("call {}", tool.name)))),
        on_tool_call_end: Some(Box::new(move |_, tool| result(format!("result {}", tool.name)))),
        on_complete: Some(Box::new(move |_, end| complete(format!("complete {}", end.text)))),
        on_error: Some(Box::new(move |_, cause| error(format!("error {cause}")))),
    };
    (callbacks, seen)
}

#[tokio::test]
async fn callbacks_are_called_in_order_whether_the_run_is_awaited_or_read() {
    let expected = [
        "start reviewer",
        "call grep",
        "result grep",
        "delta No defects found.",
        "complete No defects found.",
    ];
    for wire in WIRES {
        let server = wire.serve(review);
        let (builder, _folder) = builder(wire, &server);
        let (callbacks, seen) = recording();
        let brigade =
            builder.agent(Agent::new("reviewer", "Reviews a change.")).callbacks(callbacks).build().unwrap();

        brigade.run("Review").await.unwrap();
        assert_eq!(*seen.lock().unwrap(), expected, "{wire:?}");

        seen.lock().unwrap().clear();
        let mut run = brigade.run("Review");
        let mut ends = 0;
        while let Some(event) = run.next().await {
            if let RunEvent::Record(record) = event
                && let Event::Ended { .. } = &record.event
            {
                ends += 1;
            }
        }
        assert_eq!(*seen.lock().unwrap(), expected, "{wire:?}");
        assert_eq!(ends, 2, "the reviewer and the lead");
        assert!(run.await.unwrap().text().contains("No defects found."));
    }
}

#[tokio::test]
async fn other_providers_use_their_own_paths() {
    let server = Server::failing("400 Bad Request", "", "{}");
    let folder = tempfile::tempdir().unwrap();
    let gemini = brigade::provider::Gemini::new(KEY).model("gemini-2.5-pro").base_url(server.url("/v1beta"));
    let responses = OpenAiResponses::new(KEY).model("gpt-5").base_url(server.url("/v1"));
    for (provider, path) in [(gemini, "/v1beta/models/gemini-2.5-pro:"), (responses, "/v1/responses")] {
        let brigade = Brigade::builder().model(provider).workspace(folder.path()).build().unwrap();
        let result = brigade.run("x").await.unwrap();
        assert!(matches!(result.outcome.status, Status::Failed { .. }), "{:?}", result.outcome);
        let request = server.requests().pop().unwrap();
        assert!(request.starts_with(&format!("POST {path}")), "{request}");
    }
}
