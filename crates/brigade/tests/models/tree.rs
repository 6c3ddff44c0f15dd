//! Whole trees over HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};

use brigade::core::Status;
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use serde_json::Value;

use super::recorded::ANTHROPIC_TEXT;
use super::server::{Server, body, events};
use super::streams::{delta, openai};

/// The lead delegates twice in one reply and answers with the results. A child answers with its task.
pub(super) fn openai_stream(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    let say = |text: &str| openai(&[&delta(&format!("{{\"content\":{}}}", Value::from(text)), "stop")]);
    let is_lead = messages[0]["content"].as_str().unwrap().contains("You are the lead agent");
    match (is_lead, last["role"].as_str().unwrap()) {
        (true, "user") => {
            openai(&[&delta(&call(0, "one"), ""), &delta(&call(1, "two"), ""), &delta("{}", "tool_calls")])
        }
        (true, _) => {
            let results = messages.iter().filter(|message| message["role"] == "tool");
            say(&results.map(|result| result["content"].as_str().unwrap()).collect::<Vec<_>>().join(" and "))
        }
        (false, _) => say(&format!("did {}", last["content"].as_str().unwrap())),
    }
}

fn call(index: u32, task: &str) -> String {
    let arguments = Value::from(format!(r#"{{"role":"Cook","task":"{task}"}}"#));
    format!(
        r#"{{"tool_calls":[{{"index":{index},"id":"call_{index}","type":"function","function":{{"name":"delegate","arguments":{arguments}}}}}]}}"#
    )
}

async fn run(models: Models) -> RunResult {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("mock/small", Workspace::open(folder.path()).unwrap());
    let runtime = Runtime::in_memory(settings, models);
    let run = runtime.start(Task::new("Cook something.")).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(30), run.result()).await.expect("it hangs").unwrap()
}

#[tokio::test]
async fn lead_delegates_over_openai() {
    let server = Server::start(|request| events(&openai_stream(&body(request))));
    let ending = run(Models::default().with("mock", server.openai())).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "[Cook]: did one and [Cook]: did two");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn cut_replies_are_retried_without_repeating_effects() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let whole = events(&openai_stream(&body(request)));
        let number = count.fetch_add(1, Ordering::SeqCst);
        let length = whole.bytes().len();
        if number.is_multiple_of(2) { whole.truncated(length - 20) } else { whole }
    });
    let ending = run(Models::default().with("mock", server.openai())).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "[Cook]: did one and [Cook]: did two");
    let finals =
        server.requests().iter().filter(|request| body(request)["messages"][1]["content"] == "one").count();
    assert!((1..=3).contains(&finals), "the child was asked {finals} times");
}

/// The same lead and child, over the Messages API.
fn anthropic_stream(body: &Value) -> String {
    let say = |text: &str| ANTHROPIC_TEXT.replace("Grüße, ", "").replace("cook.", text);
    let last = body["messages"].as_array().unwrap().last().unwrap()["content"].as_array().unwrap();
    let is_lead = body["system"][0]["text"].as_str().unwrap().contains("You are the lead agent");
    match (is_lead, last[0]["type"].as_str().unwrap()) {
        (true, "text") => {
            let arguments = Value::from(r#"{"role":"Cook","task":"one"}"#);
            let (head, _) = ANTHROPIC_TEXT.split_once("event: content_block_start").unwrap();
            format!(
                "{head}event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\
                 \"content_block\":{{\"type\":\"tool_use\",\"id\":\"toolu_9\",\"name\":\"delegate\",\"input\":{{}}}}}}\n\n\
                 event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
                 \"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{arguments}}}}}\n\n\
                 event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n\
                 event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"tool_use\"}}}}\n\n\
                 event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
            )
        }
        (true, _) => say(last[0]["content"].as_str().unwrap()),
        (false, _) => say(&format!("did {}", last[0]["text"].as_str().unwrap())),
    }
}

#[tokio::test]
async fn lead_delegates_over_anthropic() {
    let answer = |request: &str| events(&anthropic_stream(&body(request)));
    let server = Server::start(answer);
    let ending = run(Models::default().with("mock", server.anthropic())).await;
    assert_eq!(ending.outcome.status, Status::Done, "{}", ending.outcome.text);
    assert_eq!(ending.outcome.text.as_str(), "[Cook]: did one");
    assert_eq!(server.requests().len(), 3);
}

/// The calls and the stop reason have arrived, but the terminal event has not.
#[tokio::test]
async fn calls_of_cut_replies_never_run() {
    let server = Server::start(|request| {
        let whole = events(&openai_stream(&body(request)));
        let length = whole.bytes().len();
        whole.truncated(length - 5)
    });
    let ending = run(Models::default().with("mock", server.openai())).await;
    assert!(matches!(ending.outcome.status, Status::Failed { .. }), "{:?}", ending.outcome.status);
    let requests = server.requests();
    assert!((2..=20).contains(&requests.len()), "{} requests", requests.len());
    let first = body(&requests[0]);
    assert!(
        requests.iter().all(|request| body(request)["messages"] == first["messages"]),
        "a child was asked"
    );
}

#[tokio::test]
async fn cut_or_refused_result_has_a_warning() {
    for (finish, warning) in [("length", "cut off at its output limit"), ("content_filter", "was a refusal")]
    {
        let stream = openai(&[&delta(r#"{"content":"So far"}"#, finish)]);
        let server = Server::streaming(&stream);
        let ending = run(Models::default().with("mock", server.openai())).await;
        assert_eq!(ending.outcome.text.as_str(), "So far");
        assert!(ending.outcome.warnings.iter().any(|text| text.contains(warning)), "{:?}", ending.outcome);
    }
}

/// The estimated tokens of a request: half of its bytes.
fn estimated_tokens(body: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let messages = body["messages"].as_array().unwrap().iter().map(|message| text(&message["content"]));
    let tools = body["tools"].as_array().unwrap().iter().map(|tool| {
        let tool = &tool["function"];
        text(&tool["name"]) + text(&tool["description"]) + tool["parameters"].to_string().len()
    });
    messages.chain(tools).sum::<usize>() / 2
}

#[tokio::test]
async fn provider_overhead_above_the_reserve_gives_a_warning() {
    for (added, is_warned) in [(500, false), (600, true)] {
        let server = Server::start(move |request| {
            let body = body(request);
            let (input, output) = (estimated_tokens(&body) + added, &body["max_tokens"]);
            let usage = format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output}}}}}"#
            );
            events(&openai(&[&delta(r#"{"content":"long"}"#, "length"), &usage]))
        });
        let ending = run(Models::default().with("mock", server.openai())).await;
        assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
        let warned =
            ending.outcome.warnings.iter().any(|text| text.contains("more tokens than were reserved"));
        assert_eq!(warned, is_warned, "{:?}", ending.outcome.warnings);
    }
}
