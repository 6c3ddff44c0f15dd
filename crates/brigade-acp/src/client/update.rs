//! What an agent tells while it works: its words are text, all else is shown and kept in short.

use agent_client_protocol::v1::schema::{ContentBlock, Cost, SessionUpdate, ToolCallStatus, ToolCallUpdate};
use brigade::model::Chunk;

use super::aside::Aside;
use super::session::Notes;
use super::short;

/// The longest text of one reply.
const MOST_TEXT: usize = 1 << 20;
/// How many updates one prompt may have.
const MOST_UPDATES: usize = 500_000;
/// How much is kept of what is not text.
const MOST_KEPT: usize = 200;
const MOST_KEPT_BYTES: usize = 64 << 10;
/// How much of what was said is kept for a last word.
const MOST_SAID: usize = 64 << 10;

/// What was told since the last reply.
#[derive(Default)]
pub(super) struct Told {
    updates: usize,
    text: usize,
    /// Whether something was done since the last words.
    paused: bool,
    thought: String,
    kept: Vec<Aside>,
    kept_bytes: usize,
}

impl Told {
    /// Takes an update. Too much of it is an error.
    pub(super) fn take(
        &mut self,
        update: SessionUpdate,
        notes: &mut Notes,
        out: &mut Vec<Chunk>,
    ) -> Result<(), String> {
        self.updates += 1;
        if self.updates > MOST_UPDATES {
            return Err(format!("it sent more than {MOST_UPDATES} updates in one reply"));
        }
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                if let Some(text) = words(chunk.content) {
                    return self.say(&text, notes, out);
                }
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                if let Some(text) = words(chunk.content)
                    && self.thought.len() + text.len() <= MOST_KEPT_BYTES
                {
                    self.thought.push_str(&text);
                }
            }
            SessionUpdate::ToolCall(call) => {
                self.paused = true;
                let call = ToolCallUpdate::from(call);
                notes.calls.learn(&call.tool_call_id.0, &call.fields);
                let (kind, status) = (call.fields.kind, call.fields.status);
                let title = call.fields.title.as_deref().map(short).unwrap_or_default();
                out.push(Chunk::Waiting(title.clone()));
                self.keep(Aside::ToolCall { tool_call: Some(title), kind, status });
            }
            SessionUpdate::ToolCallUpdate(call) => {
                notes.calls.learn(&call.tool_call_id.0, &call.fields);
                let status = call.fields.status;
                if matches!(status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed)) {
                    let tool_call = call.fields.title.as_deref().map(short);
                    self.keep(Aside::ToolCall { tool_call, kind: None, status });
                }
            }
            SessionUpdate::Plan(plan) => {
                let plan = plan.entries.iter().take(50).map(|entry| short(&entry.content)).collect();
                self.keep(Aside::Plan { plan });
            }
            SessionUpdate::UsageUpdate(usage) => {
                if let Some(usd) = usage.cost.as_ref().and_then(nano_dollars) {
                    notes.reported.usd = notes.reported.usd.max(Some(usd));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, text: &str, notes: &mut Notes, out: &mut Vec<Chunk>) -> Result<(), String> {
        let pause = if std::mem::take(&mut self.paused) && self.text > 0 { "\n\n" } else { "" };
        let text = format!("{pause}{text}");
        self.text += text.len();
        if self.text > MOST_TEXT {
            return Err(format!("it said more than {} MB in one reply", MOST_TEXT >> 20));
        }
        if notes.said.len() + text.len() <= MOST_SAID {
            notes.said.push_str(&text);
        }
        out.push(Chunk::Text(text));
        Ok(())
    }

    /// Whether there were words.
    pub(super) fn spoke(&self) -> bool {
        self.text > 0
    }

    fn keep(&mut self, what: Aside) {
        let thought = std::mem::take(&mut self.thought);
        let thought = (!thought.is_empty()).then_some(Aside::Thought { thought });
        for what in thought.into_iter().chain([what]) {
            self.kept_bytes += what.to_string().len();
            if self.kept.len() < MOST_KEPT && self.kept_bytes <= MOST_KEPT_BYTES {
                self.kept.push(what);
            }
        }
    }

    /// What is kept of it, for the log.
    pub(super) fn finish(mut self) -> Option<Chunk> {
        if !self.thought.is_empty() {
            let thought = std::mem::take(&mut self.thought);
            self.keep(Aside::Thought { thought });
        }
        if self.kept.is_empty() { None } else { Aside::write(self.kept).map(Chunk::Opaque) }
    }
}

fn words(content: ContentBlock) -> Option<String> {
    match content {
        ContentBlock::Text(text) => Some(text.text),
        ContentBlock::ResourceLink(link) => Some(short(&link.uri)),
        _ => None,
    }
}

/// Dollars as they are reported; another currency says nothing here.
fn nano_dollars(cost: &Cost) -> Option<u64> {
    let nano = cost.amount * 1e9;
    let fits = cost.currency.eq_ignore_ascii_case("usd") && (0.0..1e18).contains(&nano);
    fits.then_some(nano.round() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn update(value: Value) -> SessionUpdate {
        serde_json::from_value(value).unwrap()
    }

    fn said(text: &str) -> SessionUpdate {
        update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
    }

    #[test]
    fn words_after_work_begin_a_paragraph() {
        let (mut told, mut notes, mut out) = (Told::default(), Notes::default(), Vec::new());
        let call =
            json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Look\u{7}", "kind": "read"});
        for step in [said("Let me "), said("look."), update(call), said("Found.")] {
            told.take(step, &mut notes, &mut out).unwrap();
        }
        assert_eq!(notes.said, "Let me look.\n\nFound.");
        assert!(out.contains(&Chunk::Waiting("Look".to_owned())));
        let Some(Chunk::Opaque(kept)) = told.finish() else { panic!("nothing was kept") };
        assert_eq!(kept, r#"{"external":[{"tool_call":"Look","kind":"read","status":"pending"}]}"#);
    }

    #[test]
    fn too_much_is_an_error_and_what_is_kept_is_bounded() {
        let (mut told, mut notes, mut out) = (Told::default(), Notes::default(), Vec::new());
        let piece = "x".repeat(MOST_TEXT / 4);
        for _ in 0..4 {
            told.take(said(&piece), &mut notes, &mut out).unwrap();
        }
        assert!(told.take(said("x"), &mut notes, &mut out).unwrap_err().contains("1 MB"));
        assert!(notes.said.len() <= MOST_SAID);
        let mut told = Told::default();
        for _ in 0..10_000 {
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "y".repeat(500)});
            told.take(update(call), &mut notes, &mut Vec::new()).unwrap();
        }
        let Some(Chunk::Opaque(kept)) = told.finish() else { panic!("nothing was kept") };
        assert!(kept.len() <= MOST_KEPT_BYTES * 2);
    }

    #[test]
    fn money_is_taken_as_reported_and_never_shrinks() {
        let (mut told, mut notes) = (Told::default(), Notes::default());
        for (amount, currency) in [(0.5, "USD"), (0.25, "usd"), (9.0, "EUR"), (-1.0, "USD")] {
            let cost = json!({"amount": amount, "currency": currency});
            let usage = json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost});
            told.take(update(usage), &mut notes, &mut Vec::new()).unwrap();
        }
        assert_eq!(notes.reported.usd, Some(500_000_000));
    }
}
