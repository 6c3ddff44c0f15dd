//! A model without reasoning: it makes the one call that its task names, and returns the result as its text.
//!
//! It makes a call from another program a session like any other, with a tree, a budget and a depth, which
//! can be resumed. Its replies depend on the request alone. Agents below it use the model that follows the
//! prefix: agents below `relay/ollama/qwen3` use `ollama/qwen3`.

use brigade_core::delegation_styles::PASSTHROUGH_PREFIX;
use brigade_core::message::Stop;
use brigade_core::{Agent, Hash, Message, Price, ToolCall, Usage};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::{Chunk, Model, ModelError, ModelInfo, Request};
use crate::store::{Store, StoreError};

/// The provider name in [`Models`](super::Models).
pub const PROVIDER: &str = "relay";

/// The passthrough model. It is free of charge.
#[derive(Debug, Clone, Copy)]
pub struct Passthrough;

/// Returns the name of the passthrough model in front of this model.
pub fn in_front_of(model: &str) -> String {
    format!("{PASSTHROUGH_PREFIX}{model}")
}

/// Returns the task of a session that makes this call.
pub fn task(tool: &str, arguments: &str) -> String {
    format!("{tool} {arguments}")
}

/// Whether an agent only makes calls for other programs.
pub async fn is_passthrough_agent(store: &dyn Store, definition: Hash) -> Result<bool, StoreError> {
    let agent: Option<Agent> =
        store.blob(definition).await?.and_then(|definition| serde_json::from_str(&definition).ok());
    Ok(agent.and_then(|agent| agent.model).is_some_and(|model| model.starts_with(PASSTHROUGH_PREFIX)))
}

/// Parses the call that a task names.
fn parse_call(task: &str) -> Option<ToolCall> {
    let (name, arguments) = task.split_once(' ')?;
    Some(ToolCall { name: name.to_owned(), arguments: arguments.into(), provider_id: None })
}

/// Returns the result of the call, or the latest message since.
fn latest_text(messages: &[Message]) -> Option<String> {
    let first_reply = messages.iter().position(|message| matches!(message, Message::Assistant(_)))?;
    let mut texts = messages.iter().skip(first_reply).filter_map(|message| match message {
        Message::Results(results) => results.first().map(|result| result.output.text.to_string()),
        Message::User(text) => Some(text.to_string()),
        Message::Assistant(_) => None,
    });
    Some(texts.next_back().unwrap_or_default())
}

fn reply(messages: &[Message]) -> Result<Vec<Chunk>, ModelError> {
    let (mut chunks, stop) = match (latest_text(messages), messages.first()) {
        (Some(text), _) => (vec![Chunk::Text(text)], Stop::End),
        (None, Some(Message::User(task))) => {
            let call = parse_call(task.as_str())
                .ok_or_else(|| ModelError::Fatal("the task does not contain a tool call".to_owned()))?;
            let begin = Chunk::Call { name: call.name, provider_id: None };
            (vec![begin, Chunk::Arguments(call.arguments.to_string())], Stop::Calls)
        }
        (None, _) => {
            return Err(ModelError::Fatal("the conversation does not contain a tool call".to_owned()));
        }
    };
    chunks.extend([Chunk::Usage(Usage::default()), Chunk::Done(stop)]);
    Ok(chunks)
}

impl Model for Passthrough {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let chunks: Vec<Result<Chunk, ModelError>> = match reply(&request.messages) {
            Ok(chunks) => chunks.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(chunks).boxed()
    }

    fn model_info(&self, _model: &str) -> ModelInfo {
        // It has no billable output.
        ModelInfo { price: Some(Price::default()), max_output: Some(1), ..ModelInfo::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brigade_core::message::CallResult;
    use brigade_core::{CallId, Reply, ToolOutput};

    use super::*;

    fn result(text: &str) -> Message {
        let call = CallId { turn: 1, index: 0 };
        let name = "delegate".to_owned();
        Message::Results(vec![CallResult { call, provider_id: None, name, output: ToolOutput::ok(text) }])
    }

    #[test]
    fn passthrough_makes_its_call_and_repeats_the_result() {
        let task = Message::User(super::task("delegate", r#"{"role": "a b"}"#).into());
        let first = reply(std::slice::from_ref(&task)).unwrap();
        assert_eq!(first[0], Chunk::Call { name: "delegate".to_owned(), provider_id: None });
        assert_eq!(first[1], Chunk::Arguments(r#"{"role": "a b"}"#.to_owned()));
        let made = Message::Assistant(Arc::new(Reply::default()));
        let mut messages = vec![task, made, result("Found.")];
        assert_eq!(reply(&messages).unwrap()[0], Chunk::Text("Found.".to_owned()));
        messages.push(Message::User("the one in the background is done".into()));
        assert_eq!(reply(&messages).unwrap()[0], Chunk::Text("the one in the background is done".to_owned()));
    }

    #[test]
    fn passthrough_task_without_a_call_is_refused() {
        assert!(reply(&[Message::User("delegate".into())]).is_err());
        assert!(reply(&[]).is_err());
    }
}
