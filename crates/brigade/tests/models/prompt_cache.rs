//! Requests only append to their predecessors, so that provider caches apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade::core::message::CallResult;
use brigade::core::{CallId, Message, Reply, ToolOutput};
use brigade::model::{Model, Request};
use serde_json::value::RawValue;

use super::recorded::{
    ANTHROPIC_CALLS, ANTHROPIC_TEXT, GEMINI_CALLS, GEMINI_TEXT, OPENAI_CALLS, OPENAI_TEXT, RESPONSES_CALLS,
    RESPONSES_TEXT,
};
use super::server::{Server, ask, question, request};

/// Anthropic's cache breakpoint moves with the end of the conversation.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// The bytes of each top-level key of a request.
fn keys(request: &str) -> BTreeMap<String, String> {
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let keys: BTreeMap<String, &RawValue> = serde_json::from_str(body).unwrap();
    keys.into_iter().map(|(key, bytes)| (key, bytes.get().replace(MARK, ""))).collect()
}

/// Builds a conversation from these replies. Returns it and the ends of its turns.
fn conversation(said: [Reply; 2]) -> (Vec<Message>, Vec<usize>) {
    let mut messages = vec![Message::User("Look.".into())];
    let mut ends = vec![1];
    for (turn, reply) in said.into_iter().cycle().take(5).enumerate() {
        let result = |index: usize| CallResult {
            call: CallId { turn: 1, index: u32::try_from(index).unwrap() },
            provider_id: None,
            name: reply.calls[index].name.clone(),
            output: ToolOutput::ok(format!("{turn} and {index}")),
        };
        let results: Vec<_> = (0..reply.calls.len()).map(result).collect();
        let is_called = !results.is_empty();
        messages.push(Message::Assistant(Arc::new(reply)));
        if is_called {
            messages.push(Message::Results(results));
            ends.push(messages.len());
        }
        messages.push(Message::User(format!("Go on, {turn}.").into()));
        ends.push(messages.len());
    }
    (messages, ends)
}

/// Sends the conversation turn by turn, with the API's own replies and with replies of another API.
async fn assert_requests_only_append<M: Model>(
    streams: [&str; 2],
    model: fn(&Server) -> M,
    list: &str,
    fixed: &[&str],
) {
    let own = async |stream: &str| ask(&model(&Server::streaming(stream)), question()).await.unwrap().0;
    let mut foreign = ask(&Server::streaming(RESPONSES_CALLS).responses(), question()).await.unwrap().0;
    // Generated ids must stay the same, too.
    foreign.calls[1].provider_id = None;
    let (called, said) = (own(streams[0]).await, own(streams[1]).await);
    for replies in [[called, said.clone()], [foreign, said]] {
        let server = Server::streaming(streams[1]);
        let model = model(&server);
        let (messages, ends) = conversation(replies);
        for end in ends {
            ask(&model, request(messages[..end].to_vec())).await.unwrap();
        }
        let sent: Vec<_> = server.requests().iter().map(|request| keys(request)).collect();
        assert!(sent.len() > 6);
        for pair in sent.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            for key in fixed {
                assert!(before.contains_key(*key) && before[*key] == after[*key], "{key}");
            }
            // Strips the end of the list, and for some APIs of its last message.
            let open = before[list].trim_end_matches([']', '}']);
            assert!(after[list].starts_with(open), "{open}\n{}", after[list]);
            assert!(after[list].len() > before[list].len());
        }
    }
}

/// Sends requests of agents with the same definition and different tasks.
async fn assert_siblings_share_prefix<M: Model>(stream: &str, model: fn(&Server) -> M, list: &str) {
    let server = Server::streaming(stream);
    for task in ["One.", "Two."] {
        let asked = Request { agent: task.to_owned(), ..request(vec![Message::User(task.into())]) };
        ask(&model(&server), asked).await.unwrap();
    }
    let mut sent: Vec<_> = server.requests().iter().map(|request| keys(request)).collect();
    let (mut second, mut first) = (sent.pop().unwrap(), sent.pop().unwrap());
    let (one, two) = (first.remove(list).unwrap(), second.remove(list).unwrap());
    assert_eq!(first, second);
    let same = one.bytes().zip(two.bytes()).take_while(|(one, two)| one == two).count();
    assert!(one.len() > same && one[..same].ends_with('"'), "{one} {two}");
}

#[tokio::test]
async fn chat_completions_requests_only_append() {
    let thinking =
        OPENAI_CALLS.replace(r#""content":null"#, r#""content":null,"reasoning_content":"Two files.""#);
    assert_ne!(thinking, OPENAI_CALLS);
    assert_requests_only_append([&thinking, OPENAI_TEXT], Server::openai, "messages", &["model", "tools"])
        .await;
    assert_siblings_share_prefix(OPENAI_TEXT, Server::openai, "messages").await;
}

#[tokio::test]
async fn messages_requests_only_append() {
    let fixed = ["model", "system", "tools"];
    assert_requests_only_append([ANTHROPIC_CALLS, ANTHROPIC_TEXT], Server::anthropic, "messages", &fixed)
        .await;
    assert_siblings_share_prefix(ANTHROPIC_TEXT, Server::anthropic, "messages").await;
}

#[tokio::test]
async fn responses_requests_only_append() {
    let fixed = ["model", "instructions", "tools"];
    assert_requests_only_append([RESPONSES_CALLS, RESPONSES_TEXT], Server::responses, "input", &fixed).await;
    assert_siblings_share_prefix(RESPONSES_TEXT, Server::responses, "input").await;
}

#[tokio::test]
async fn gemini_requests_only_append() {
    let fixed = ["systemInstruction", "tools"];
    assert_requests_only_append([GEMINI_CALLS, GEMINI_TEXT], Server::gemini, "contents", &fixed).await;
    assert_siblings_share_prefix(GEMINI_TEXT, Server::gemini, "contents").await;
}
