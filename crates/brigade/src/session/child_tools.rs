//! Tools for a session's own children: send a message, stop, read a long result in full.
//!
//! These tools are added after all others when there is a child to use them on, and then stay. They reach only
//! the session's own subtree.

use std::sync::Arc;

use brigade_core::event::Speaker;
use brigade_core::message::Category;
use brigade_core::{CallId, Event, SessionId, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::Driver;
use crate::store::retry;

const TELL: &str = "tell";
const STOP: &str = "stop";
const READ_RESULT: &str = "read_result";

/// Maximum number of bytes of a result that one call reads.
const MAX_READ_BYTES: usize = 16_384;
/// Maximum number of lines that a pattern returns.
const MAX_MATCHING_LINES: usize = 200;

impl Driver {
    /// Tools of the next request.
    pub(super) fn offered_tools(&self) -> Arc<[ToolSpec]> {
        let (background, reads) = (self.state().longest_result_before_background(), self.has_long_results());
        if background.is_none() && !reads {
            return self.resolved.specs.clone();
        }
        let mut specs = self.resolved.specs.to_vec();
        // The order of first appearance is kept, so that the provider's prompt cache stays valid.
        let reads_came_first = background.is_some_and(|longest| self.is_long(longest));
        if reads && reads_came_first {
            specs.push(read_spec());
        }
        if background.is_some() {
            specs.extend([tell_spec(), stop_spec()]);
        }
        if reads && !reads_came_first {
            specs.push(read_spec());
        }
        specs.into()
    }

    fn has_long_results(&self) -> bool {
        self.is_long(self.state().longest_result())
    }

    fn is_long(&self, bytes: usize) -> bool {
        bytes > self.tree.settings().limits.result_bytes
    }

    /// Whether this is one of these tools and there is a child to use it on.
    pub(super) fn is_child_tool(&self, name: &str) -> bool {
        match name {
            TELL | STOP => self.state().longest_result_before_background().is_some(),
            READ_RESULT => self.has_long_results(),
            _ => false,
        }
    }

    pub(super) async fn run_child_tool(
        &mut self,
        call: CallId,
        name: &str,
        arguments: &Value,
    ) -> Result<(), ToolOutput> {
        let text = |key: &str| {
            let text =
                arguments.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
            text.ok_or_else(|| ToolOutput::error(format!("Missing '{key}' argument")))
        };
        let output = match name {
            READ_RESULT => self.read_result(text("handle")?, arguments).await?,
            TELL => self.tell_child(text("session_id")?, text("text")?).await?,
            _ => self.stop_child(text("session_id")?)?,
        };
        self.answer(call, output);
        Ok(())
    }

    /// Finds a running background child by its id.
    fn running_child(&self, id: &str) -> Result<SessionId, ToolOutput> {
        let child = id.parse::<SessionId>().ok().filter(|child| self.children.is_running(child));
        child.ok_or_else(|| {
            let known: Vec<&str> = self.children.running().map(SessionId::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let shown: String = id.chars().filter(|c| !c.is_control()).take(80).collect();
            ToolOutput::error(format!("'{shown}' is not a running sub-agent of yours. Running: {known}"))
        })
    }

    async fn tell_child(&self, id: &str, text: &str) -> Result<ToolOutput, ToolOutput> {
        let child = self.running_child(id)?;
        let heard = Event::Heard { from: Speaker::Parent, text: text.into() };
        let appended = retry::append_external(self.tree.store(), &child, heard).await;
        appended.map_err(|error| ToolOutput::error(format!("cannot send the message: {error}")))?;
        self.tree.notify([&child]);
        Ok(ToolOutput::ok("Sent. The sub-agent reads it before its next turn."))
    }

    fn stop_child(&self, id: &str) -> Result<ToolOutput, ToolOutput> {
        let child = self.running_child(id)?;
        self.children.cancel(&child, "its caller");
        Ok(ToolOutput::ok("Stopping. You get its partial result when it has ended."))
    }

    async fn read_result(&self, handle: &str, arguments: &Value) -> Result<ToolOutput, ToolOutput> {
        let refuse = || {
            ToolOutput::error(
                "The handle is not a session of one of your sub-agents. Use the handle from the truncated result.",
            )
        };
        let session: SessionId = handle.parse().map_err(|_| refuse())?;
        if !self.state().session().contains(&session) || session == *self.state().session() {
            return Err(refuse());
        }
        let records = self.tree.read(&session, 0).await;
        let records = records.map_err(|error| ToolOutput::error(error.to_string()))?;
        let ended = records.iter().rev().find_map(|record| match &record.event {
            Event::Ended { outcome, .. } => Some(outcome.text.clone()),
            _ => None,
        });
        let result = ended.ok_or_else(|| ToolOutput::error("That sub-agent has no result yet."))?;
        let number = |key: &str| arguments.get(key).and_then(Value::as_u64);
        match arguments.get("pattern").and_then(Value::as_str) {
            Some(pattern) => lines_with(result.as_str(), pattern),
            None => Ok(range(result.as_str(), number("offset").unwrap_or(0), number("limit"))),
        }
    }
}

fn lines_with(result: &str, pattern: &str) -> Result<ToolOutput, ToolOutput> {
    let matcher = grep_regex::RegexMatcher::new_line_matcher(pattern)
        .map_err(|error| ToolOutput::error(format!("Invalid regular expression: {error}")))?;
    let mut found = String::new();
    let mut count = 0;
    for (number, line) in (1..).zip(result.lines()) {
        if grep_matcher::Matcher::is_match(&matcher, line.as_bytes()).unwrap_or(false) {
            count += 1;
            let room = MAX_READ_BYTES.saturating_sub(found.len());
            if count <= MAX_MATCHING_LINES && room > 0 {
                found.push_str(&format!("{number}: {}\n", brigade_core::text::truncate_bytes(line, room)));
            }
        }
    }
    if count == 0 {
        return Ok(ToolOutput::ok("No line matches."));
    }
    Ok(ToolOutput::ok(format!("{found}(matching lines: {count})")))
}

fn range(result: &str, offset: u64, limit: Option<u64>) -> ToolOutput {
    let mut from = usize::try_from(offset).unwrap_or(usize::MAX).min(result.len());
    while !result.is_char_boundary(from) {
        from -= 1;
    }
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(MAX_READ_BYTES)
        .clamp(4, MAX_READ_BYTES);
    let excerpt = brigade_core::text::truncate_bytes(&result[from..], limit);
    let end = from + excerpt.len();
    if end == result.len() {
        return ToolOutput::ok(format!("{excerpt}\n(end of the result, {} bytes in total)", result.len()));
    }
    ToolOutput::ok(format!(
        "{excerpt}\n(bytes {from} to {end} of {}; continue with offset {end})",
        result.len()
    ))
}

fn child_tool_spec(name: &str, description: &str, schema: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema,
        category: Category::Subagent,
    }
}

fn tell_spec() -> ToolSpec {
    child_tool_spec(
        TELL,
        "Send a message to a background sub-agent. The sub-agent reads it before its next turn.",
        json!({
            "type": "object",
            "properties": {
                "session_id": { "type": "string", "description": "Session id of the sub-agent" },
                "text": { "type": "string", "description": "The message" }
            },
            "required": ["session_id", "text"]
        }),
    )
}

fn stop_spec() -> ToolSpec {
    child_tool_spec(
        STOP,
        "Stop a background sub-agent. You get its partial result.",
        json!({
            "type": "object",
            "properties": { "session_id": { "type": "string", "description": "Session id of the sub-agent" } },
            "required": ["session_id"]
        }),
    )
}

fn read_spec() -> ToolSpec {
    child_tool_spec(
        READ_RESULT,
        "Read more of a truncated sub-agent result: a range of bytes, or the lines that match a pattern.",
        json!({
            "type": "object",
            "properties": {
                "handle": { "type": "string", "description": "Handle from the truncated result" },
                "offset": { "type": "integer", "minimum": 0, "description": "First byte (default 0)" },
                "limit": { "type": "integer", "minimum": 1, "description": "Number of bytes (maximum 16384)" },
                "pattern": { "type": "string", "description": "Regular expression; returns matching lines instead of a range" }
            },
            "required": ["handle"]
        }),
    )
}
