//! A scripted model for demos, tests and offline work.
//!
//! The script is stateless. The reply depends on the request alone: on the agent, the turn and the attempt. A
//! run that was killed and resumed gets the same replies.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::message::Stop;
use brigade_core::{Message, Price, Purpose, Usage};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde::Deserialize;
use serde_json::Value;

use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// A scripted model.
#[derive(Debug, Clone)]
pub struct Script {
    file: Arc<ScriptFile>,
}

/// Error for a text that is not a valid script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScriptError(String);

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptFile {
    /// A file to which a line is appended for every request: `session turn attempt`.
    journal: Option<std::path::PathBuf>,
    reply: Vec<ScriptedReply>,
    /// Maximum number of tokens in a request, estimated as a quarter of its bytes. A larger request is
    /// refused.
    window: Option<u64>,
    price: DollarsPerMillion,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DollarsPerMillion {
    input: f64,
    output: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptedReply {
    agent: Option<String>,
    turn: Option<u32>,
    attempt: Option<u32>,
    purpose: Option<Purpose>,
    task: Option<String>,
    text: String,
    call: Vec<Call>,
    delay_ms: u64,
    chunks: usize,
    chunk_delay_ms: u64,
    usage: Option<Usage>,
    fault: Option<Fault>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    #[serde(default)]
    arguments: Value,
    /// The arguments as raw text, which need not be valid JSON.
    raw: Option<String>,
    /// Repeats the call this many times, with `{n}` as the number.
    repeat: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    /// A transient error.
    Overloaded,
    /// A permanent error.
    Refused,
    /// The stream ends before its terminal event.
    Cut,
    /// The conversation exceeds the context window.
    Overflow,
    /// No reply ever arrives.
    Hang,
}

impl Script {
    /// Parses a script in TOML, or in JSON if it starts with `{`.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let file: ScriptFile = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|cause| ScriptError(cause.to_string()))?
        } else {
            toml::from_str(text).map_err(|cause| ScriptError(cause.to_string()))?
        };
        if file.reply.is_empty() {
            return Err(ScriptError(
                "the script has no [[reply]]. Add one with a `text` or a [[reply.call]].".to_owned(),
            ));
        }
        Ok(Script { file: Arc::new(file) })
    }

    /// Appends the request to the journal, if the script has one. Each line is a single write, so that lines
    /// of parallel requests do not mix.
    fn write_journal(&self, request: &Request) -> Result<(), ModelError> {
        use std::io::Write;
        let Some(journal) = &self.file.journal else { return Ok(()) };
        let line = format!("{} {} {}\n", request.session, request.turn, request.attempt);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(journal);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|cause| {
            ModelError::Fatal(format!("cannot write the script journal {}: {cause}", journal.display()))
        })
    }

    fn find_reply(&self, request: &Request) -> Result<(&ScriptedReply, Vec<Chunk>), ModelError> {
        let entry = self.file.reply.iter().find(|entry| entry.matches(request)).ok_or_else(|| {
            ModelError::Fatal(format!(
                "the script has no reply for {} at turn {}, attempt {}. Add a matching [[reply]].",
                request.role.as_deref().unwrap_or(&request.agent),
                request.turn,
                request.attempt
            ))
        })?;
        Ok((entry, entry.chunks(request)))
    }
}

impl ScriptedReply {
    fn matches(&self, request: &Request) -> bool {
        let agent_fits = self.agent.as_deref().is_none_or(|agent| {
            agent == request.agent || request.role.as_deref().is_some_and(|role| role == agent)
        });
        let first_message = user_messages(&request.messages).next().unwrap_or_default();
        agent_fits
            && self.purpose.is_none_or(|purpose| purpose == request.purpose)
            && self.turn.is_none_or(|turn| turn == request.turn)
            && self.attempt.is_none_or(|attempt| attempt == request.attempt)
            && self.task.as_deref().is_none_or(|part| first_message.contains(part))
    }

    fn chunks(&self, request: &Request) -> Vec<Chunk> {
        let text = expand(&self.text, request, 0);
        let mut output_bytes = text.len();
        let mut chunks = text_chunks(&text, self.chunks);
        for call in &self.call {
            for n in 0..call.repeat.unwrap_or(1) {
                let arguments = match &call.raw {
                    Some(raw) => expand(raw, request, n),
                    None => expand_value(&call.arguments, request, n).to_string(),
                };
                output_bytes += arguments.len() + call.tool.len();
                chunks.push(Chunk::Call { name: call.tool.clone(), provider_id: None });
                chunks.push(Chunk::Arguments(arguments));
            }
        }
        let usage = self.usage.unwrap_or_else(|| Usage {
            input: request_bytes(request).div_ceil(4),
            output: (output_bytes as u64).div_ceil(4).min(request.max_tokens),
            ..Usage::default()
        });
        chunks.push(Chunk::Usage(usage));
        if !matches!(self.fault, Some(Fault::Cut)) {
            chunks.push(Chunk::Done(if self.call.is_empty() { Stop::End } else { Stop::Calls }));
        }
        chunks
    }
}

impl Model for Script {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        if let Err(error) = self.write_journal(&request) {
            return stream::iter([Err(error)]).boxed();
        }
        let (entry, chunks) = match self.find_reply(&request) {
            Ok(answer) => answer,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        if self.file.window.is_some_and(|window| request_bytes(&request).div_ceil(4) > window) {
            return stream::iter([Err(overflow_error())]).boxed();
        }
        let delay = Duration::from_millis(entry.delay_ms);
        let chunk_delay = Duration::from_millis(entry.chunk_delay_ms);
        let items: Vec<Result<Chunk, ModelError>> = match entry.fault {
            Some(Fault::Overloaded) => {
                vec![Err(ModelError::Transient("the scripted model is overloaded".to_owned()))]
            }
            Some(Fault::Refused) => vec![Err(ModelError::Fatal("the scripted model refuses".to_owned()))],
            Some(Fault::Overflow) => vec![Err(overflow_error())],
            Some(Fault::Hang) => return stream::pending().boxed(),
            Some(Fault::Cut) | None => chunks.into_iter().map(Ok).collect(),
        };
        if delay.is_zero() && chunk_delay.is_zero() {
            return stream::iter(items).boxed();
        }
        stream::iter(items.into_iter().enumerate())
            .then(move |(index, item)| async move {
                let pause = if index == 0 { delay } else { chunk_delay };
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                item
            })
            .boxed()
    }

    fn model_info(&self, _model: &str) -> ModelInfo {
        let nano = |dollars: f64| (dollars.max(0.0) * 1e9).round() as u64;
        let (input, output) = (nano(self.file.price.input), nano(self.file.price.output));
        let price = Price { input, output, cache_read: input, cache_write: input };
        ModelInfo { price: Some(price), window: self.file.window, ..ModelInfo::default() }
    }
}

fn overflow_error() -> ModelError {
    ModelError::Overflow("the conversation exceeds the context window of the scripted model".to_owned())
}

fn text_chunks(text: &str, count: usize) -> Vec<Chunk> {
    if text.is_empty() {
        return Vec::new();
    }
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(count.max(1)).max(1);
    characters.chunks(size).map(|piece| Chunk::Text(piece.iter().collect())).collect()
}

fn user_messages(messages: &[Message]) -> impl DoubleEndedIterator<Item = &str> {
    messages.iter().filter_map(|message| match message {
        Message::User(text) => Some(text.as_str()),
        Message::Assistant(_) | Message::Results(_) => None,
    })
}

fn last_results(messages: &[Message]) -> Vec<&str> {
    let results = messages.iter().rev().find_map(|message| match message {
        Message::Results(results) => Some(results),
        Message::User(_) | Message::Assistant(_) => None,
    });
    results
        .map(|results| results.iter().map(|result| result.output.text.as_str()).collect())
        .unwrap_or_default()
}

/// Expands the placeholders in a reply: `{task}`, `{role}`, `{turn}`, `{heard}`, `{results}`, `{result:N}`,
/// `{n}`.
fn expand(template: &str, request: &Request, n: u32) -> String {
    if !template.contains('{') {
        return template.to_owned();
    }
    let mut expanded = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        expanded.push_str(&rest[..open]);
        let after = &rest[open + 1..];
        let value =
            after.find('}').and_then(|close| lookup(&after[..close], request, n).map(|value| (value, close)));
        match value {
            Some((value, close)) => {
                expanded.push_str(&value);
                rest = &after[close + 1..];
            }
            None => {
                expanded.push('{');
                rest = after;
            }
        }
    }
    expanded.push_str(rest);
    expanded
}

fn lookup(name: &str, request: &Request, n: u32) -> Option<String> {
    let results = || last_results(&request.messages);
    Some(match name {
        "task" => user_messages(&request.messages).next().unwrap_or_default().to_owned(),
        "heard" => user_messages(&request.messages).next_back().unwrap_or_default().to_owned(),
        "role" => request.role.clone().unwrap_or_else(|| request.agent.clone()),
        "turn" => request.turn.to_string(),
        "n" => n.to_string(),
        "results" => results().join("\n"),
        _ => {
            let index: usize = name.strip_prefix("result:")?.parse().ok()?;
            results().get(index).map(|text| (*text).to_owned()).unwrap_or_default()
        }
    })
}

fn expand_value(value: &Value, request: &Request, n: u32) -> Value {
    match value {
        Value::String(text) => Value::String(expand(text, request, n)),
        Value::Array(items) => items.iter().map(|item| expand_value(item, request, n)).collect(),
        Value::Object(map) => Value::Object(
            map.iter().map(|(key, item)| (key.clone(), expand_value(item, request, n))).collect(),
        ),
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    }
}

fn request_bytes(request: &Request) -> u64 {
    let messages: usize = request
        .messages
        .iter()
        .map(|message| match message {
            Message::User(text) => text.len(),
            Message::Assistant(reply) => {
                reply.text.len() + reply.calls.iter().map(|call| call.arguments.len()).sum::<usize>()
            }
            Message::Results(results) => results.iter().map(|result| result.output.text.len()).sum(),
        })
        .sum();
    (request.system.len() + messages) as u64
}
