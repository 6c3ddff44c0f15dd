//! Handling of an agent's updates. Its messages become text, everything else is shown and stored in short
//! form.

use agent_client_protocol_schema::v1::{
    ContentBlock, Cost, MessageId, SessionUpdate, ToolCallStatus, ToolCallUpdate,
};
use brigade::external::ExternalError;
use brigade::model::Chunk;

use super::agent_update::AgentUpdate;
use super::sanitize;
use super::session::PromptState;

/// Maximum length of the text of one reply.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum number of updates per reply.
const MAX_UPDATES: usize = 500_000;
/// Maximum number of stored updates, and their maximum total size.
const MAX_KEPT: usize = 200;
const MAX_KEPT_BYTES: usize = 64 << 10;
/// Maximum length of the text that is kept for a wrap-up call.
const MAX_REPLY_TEXT_BYTES: usize = 64 << 10;
/// Separator between messages.
const SEPARATOR: &str = "\n\n";

/// Updates since the last reply.
#[derive(Default)]
pub(super) struct CollectedUpdates {
    updates: usize,
    text: usize,
    /// Whether a tool call followed the last text.
    paused: bool,
    thought: String,
    /// The message that the last reasoning belongs to.
    thought_id: Option<MessageId>,
    kept: Vec<KeyedUpdate>,
    kept_bytes: usize,
}

/// An update to store. A later update with the same key replaces it.
struct KeyedUpdate {
    key: Option<String>,
    update: AgentUpdate,
}

impl CollectedUpdates {
    /// Handles an update of the agent or of one of its sub-agents. Exceeding a limit is an error.
    pub(super) fn take(
        &mut self,
        sub_agent: Option<&str>,
        update: SessionUpdate,
        state: &mut PromptState,
        out: &mut Vec<Chunk>,
    ) -> Result<(), ExternalError> {
        self.updates += 1;
        if self.updates > MAX_UPDATES {
            return Err(ExternalError::Protocol(format!("more than {MAX_UPDATES} updates in one reply")));
        }
        match update {
            SessionUpdate::ToolCall(call) => {
                self.paused |= sub_agent.is_none();
                self.tool_call(sub_agent, ToolCallUpdate::from(call), state, out);
            }
            SessionUpdate::ToolCallUpdate(call) => self.tool_call(sub_agent, call, state, out),
            SessionUpdate::SubagentUpdate(update) => {
                let key = format!("sub-agent {}", update.session_id.0);
                if let Some((update, is_news)) = state.sub_agents.learn(update) {
                    state.reported.agents = state.reported.agents.max(state.sub_agents.count());
                    out.extend(is_news.then(|| Chunk::Waiting(update.to_string())));
                    self.keep(Some(key), update);
                }
            }
            // Text, plans and costs of a sub-agent are reported by its parent.
            _ if sub_agent.is_some() => {}
            SessionUpdate::AgentMessageChunk(chunk) => {
                if let Some(text) = content_text(chunk.content) {
                    return self.add_text(&text, chunk.message_id, state, out);
                }
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                if let Some(text) = content_text(chunk.content) {
                    self.add_thought(&text, chunk.message_id);
                }
            }
            SessionUpdate::Plan(plan) => {
                let plan = plan.entries.iter().take(50).map(|entry| sanitize(&entry.content)).collect();
                self.keep(None, AgentUpdate::Plan { plan });
            }
            SessionUpdate::UsageUpdate(usage) => {
                if let Some(usd) = usage.cost.as_ref().and_then(nano_dollars) {
                    state.reported.usd = state.reported.usd.max(Some(usd));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows and stores the latest state of a tool call that the agent runs itself.
    fn tool_call(
        &mut self,
        sub_agent: Option<&str>,
        call: ToolCallUpdate,
        state: &mut PromptState,
        out: &mut Vec<Chunk>,
    ) {
        let key = call_key(sub_agent, &call.tool_call_id.0);
        let before = state.calls.get(&key).map(|details| details.brief(&state.root));
        let details = state.calls.learn(&key, &call.fields);
        let brief = details.brief(&state.root);
        let is_news = !brief.is_empty() && before.as_ref() != Some(&brief);
        let named = (!brief.is_empty()).then(|| match sub_agent {
            Some(id) => format!("{}: {brief}", state.sub_agents.label(id)),
            None => brief,
        });
        let is_over = matches!(call.fields.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        if is_news && !is_over {
            out.extend(named.clone().map(Chunk::Waiting));
        }
        let kept =
            self.kept.iter().find(|kept| kept.key.as_ref() == Some(&key)).map(|kept| kept.update.clone());
        let update = match kept {
            // The details of a call are dropped when it ends, but further updates may still arrive.
            Some(AgentUpdate::ToolCall { tool_call, kind, status }) => AgentUpdate::ToolCall {
                tool_call: named.or(tool_call),
                kind: details.kind.or(kind),
                status: call.fields.status.or(status),
            },
            _ if before.is_some() && !is_news && !is_over => return,
            _ => AgentUpdate::ToolCall { tool_call: named, kind: details.kind, status: call.fields.status },
        };
        self.keep(Some(key), update);
    }

    fn add_text(
        &mut self,
        text: &str,
        id: Option<MessageId>,
        state: &mut PromptState,
        out: &mut Vec<Chunk>,
    ) -> Result<(), ExternalError> {
        let is_first = self.text == 0;
        let is_next =
            std::mem::take(&mut self.paused) || is_new_message(state.message_id.as_ref(), id.as_ref());
        state.message_id = id.or(state.message_id.take());
        let separator = if is_next && !is_first { SEPARATOR } else { "" };
        let text = format!("{separator}{text}");
        self.text += text.len();
        if self.text > MAX_TEXT_BYTES {
            return Err(ExternalError::Protocol(format!(
                "more than {} MiB of text in one reply",
                MAX_TEXT_BYTES >> 20
            )));
        }
        // Text from before the last request is a separate paragraph.
        let before = if is_first && !state.reply_text.is_empty() { SEPARATOR } else { "" };
        if state.reply_text.len() + before.len() + text.len() <= MAX_REPLY_TEXT_BYTES {
            state.reply_text.push_str(before);
            state.reply_text.push_str(&text);
        }
        out.push(Chunk::Text(text));
        Ok(())
    }

    fn add_thought(&mut self, text: &str, id: Option<MessageId>) {
        let is_next = !self.thought.is_empty() && is_new_message(self.thought_id.as_ref(), id.as_ref());
        let separator = if is_next { SEPARATOR } else { "" };
        self.thought_id = id.or(self.thought_id.take());
        if self.thought.len() + separator.len() + text.len() <= MAX_KEPT_BYTES {
            self.thought.push_str(separator);
            self.thought.push_str(text);
        }
    }

    /// Whether the reply contains text.
    pub(super) fn has_text(&self) -> bool {
        self.text > 0
    }

    fn keep(&mut self, key: Option<String>, update: AgentUpdate) {
        let bytes = update.to_string().len();
        if let Some(kept) = self.kept.iter_mut().find(|kept| key.is_some() && kept.key == key) {
            let less = self.kept_bytes.saturating_sub(kept.update.to_string().len());
            if less + bytes <= MAX_KEPT_BYTES {
                self.kept_bytes = less + bytes;
                kept.update = update;
            }
            return;
        }
        self.keep_thought();
        self.push(KeyedUpdate { key, update });
    }

    fn keep_thought(&mut self) {
        if !self.thought.is_empty() {
            let thought = std::mem::take(&mut self.thought);
            self.push(KeyedUpdate { key: None, update: AgentUpdate::Thought { thought } });
        }
    }

    fn push(&mut self, kept: KeyedUpdate) {
        let bytes = kept.update.to_string().len();
        if self.kept.len() < MAX_KEPT && self.kept_bytes + bytes <= MAX_KEPT_BYTES {
            self.kept_bytes += bytes;
            self.kept.push(kept);
        }
    }

    /// Returns the updates to store in the log.
    pub(super) fn finish(mut self) -> Option<Chunk> {
        self.keep_thought();
        let updates: Vec<AgentUpdate> = self.kept.into_iter().map(|kept| kept.update).collect();
        if updates.is_empty() { None } else { AgentUpdate::write(updates).map(Chunk::Opaque) }
    }
}

/// The key of a tool call. Each sub-agent numbers its own calls.
pub(super) fn call_key(sub_agent: Option<&str>, call: &str) -> String {
    match sub_agent {
        Some(sub_agent) => format!("{sub_agent} {call}"),
        None => call.to_owned(),
    }
}

/// Whether two chunks belong to different messages, according to their ids.
fn is_new_message(before: Option<&MessageId>, now: Option<&MessageId>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before != now)
}

fn content_text(content: ContentBlock) -> Option<String> {
    match content {
        ContentBlock::Text(text) => Some(text.text),
        ContentBlock::ResourceLink(link) => Some(sanitize(&link.uri)),
        _ => None,
    }
}

/// Converts a reported cost to nano-dollars. Other currencies are ignored.
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

    fn message_chunk(text: &str) -> SessionUpdate {
        update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
    }

    #[test]
    fn text_after_a_tool_call_begins_a_paragraph() {
        let (mut collected, mut state, mut out) =
            (CollectedUpdates::default(), PromptState::default(), Vec::new());
        let call =
            json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Look\u{7}", "kind": "read"});
        for step in [message_chunk("Let me "), message_chunk("look."), update(call), message_chunk("Found.")]
        {
            collected.take(None, step, &mut state, &mut out).unwrap();
        }
        assert_eq!(state.reply_text, "Let me look.\n\nFound.");
        assert!(out.contains(&Chunk::Waiting("Look".to_owned())));
        let Some(Chunk::Opaque(kept)) = collected.finish() else { panic!("nothing was kept") };
        assert_eq!(kept, r#"{"external":[{"tool_call":"Look","kind":"read","status":"pending"}]}"#);
    }

    fn message(id: &str, text: &str) -> SessionUpdate {
        update(
            json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": {"type": "text", "text": text}}),
        )
    }

    fn kept(collected: CollectedUpdates) -> Vec<String> {
        let Some(Chunk::Opaque(kept)) = collected.finish() else { return Vec::new() };
        AgentUpdate::read(&kept).iter().map(AgentUpdate::to_string).collect()
    }

    #[test]
    fn messages_with_different_ids_are_separated() {
        let (mut collected, mut state, mut out) =
            (CollectedUpdates::default(), PromptState::default(), Vec::new());
        for step in
            [message("a", "One "), message("a", "word."), message("b", "Two."), message_chunk(" More.")]
        {
            collected.take(None, step, &mut state, &mut out).unwrap();
        }
        assert_eq!(state.reply_text, "One word.\n\nTwo. More.");
        // The next reply starts a new paragraph of the whole text, but not of its own text.
        let (mut collected, mut out) = (CollectedUpdates::default(), Vec::new());
        collected.take(None, message("c", "Three."), &mut state, &mut out).unwrap();
        assert_eq!(out, [Chunk::Text("Three.".to_owned())]);
        assert_eq!(state.reply_text, "One word.\n\nTwo. More.\n\nThree.");
        for (id, text) in [("1", "hm "), ("1", "so"), ("2", "aha")] {
            let content = json!({"type": "text", "text": text});
            let thought =
                json!({"sessionUpdate": "agent_thought_chunk", "messageId": id, "content": content});
            collected.take(None, update(thought), &mut state, &mut out).unwrap();
        }
        assert_eq!(kept(collected), ["thought: hm so\n\naha"]);
    }

    #[test]
    fn tool_call_update_replaces_the_first_title() {
        let (mut collected, mut out) = (CollectedUpdates::default(), Vec::new());
        let mut state = PromptState { root: "/project".into(), ..PromptState::default() };
        let mut take = |collected: &mut CollectedUpdates, kind: &str, mut call: Value| {
            call["sessionUpdate"] = kind.into();
            collected.take(None, update(call), &mut state, &mut out).unwrap();
        };
        take(&mut collected, "tool_call", json!({"toolCallId": "1", "title": "Terminal", "kind": "execute"}));
        take(&mut collected, "tool_call", json!({"toolCallId": "2", "title": "Edit", "kind": "edit"}));
        let command = json!({"toolCallId": "1", "rawInput": {"command": "cargo test"}});
        take(&mut collected, "tool_call_update", command.clone());
        take(&mut collected, "tool_call_update", command);
        take(
            &mut collected,
            "tool_call_update",
            json!({"toolCallId": "2", "locations": [{"path": "/project/a.rs"}]}),
        );
        take(&mut collected, "tool_call_update", json!({"toolCallId": "2", "status": "failed"}));
        assert_eq!(
            kept(std::mem::take(&mut collected)),
            ["tool call: Terminal: cargo test (execute)", "tool call failed: Edit: a.rs (edit)"]
        );
        // It ends in the next reply, after a request.
        take(
            &mut collected,
            "tool_call_update",
            json!({"toolCallId": "1", "title": "`cargo test`", "status": "completed"}),
        );
        assert_eq!(kept(collected), ["tool call done: `cargo test` (execute)"]);
        let shown: Vec<String> = out
            .into_iter()
            .map(|chunk| match chunk {
                Chunk::Waiting(why) => why,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(shown, ["Terminal", "Edit", "Terminal: cargo test", "Edit: a.rs"]);
    }

    #[test]
    fn sub_agents_are_shown_and_counted_but_their_text_is_not() {
        let (mut collected, mut state, mut out) =
            (CollectedUpdates::default(), PromptState::default(), Vec::new());
        let announced = |id: &str, title: &str| {
            update(json!({"sessionUpdate": "subagent_update", "sessionId": id, "title": title}))
        };
        let call = |id: &str, title: &str| {
            update(json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title}))
        };
        collected.take(None, announced("c1", "Scout"), &mut state, &mut out).unwrap();
        collected.take(Some("c1"), announced("c2", "Helper"), &mut state, &mut out).unwrap();
        collected.take(None, call("1", "Look"), &mut state, &mut out).unwrap();
        collected.take(Some("c1"), call("1", "Read a.txt"), &mut state, &mut out).unwrap();
        collected.take(Some("c1"), message_chunk("not for you"), &mut state, &mut out).unwrap();
        assert_eq!(
            (state.reported.agents, state.reply_text.as_str(), collected.has_text()),
            (Some(2), "", false)
        );
        assert!(out.contains(&Chunk::Waiting("Scout: Read a.txt".to_owned())));
        assert_eq!(
            kept(collected),
            [
                "sub-agent Scout",
                "sub-agent Helper",
                "tool call: Look (other)",
                "tool call: Scout: Read a.txt (other)"
            ]
        );
    }

    #[test]
    fn too_much_text_is_an_error_and_kept_updates_are_bounded() {
        let (mut collected, mut state, mut out) =
            (CollectedUpdates::default(), PromptState::default(), Vec::new());
        let piece = "x".repeat(MAX_TEXT_BYTES / 4);
        for _ in 0..4 {
            collected.take(None, message_chunk(&piece), &mut state, &mut out).unwrap();
        }
        let error = collected.take(None, message_chunk("x"), &mut state, &mut out).unwrap_err();
        assert!(error.to_string().contains("1 MiB"));
        assert!(state.reply_text.len() <= MAX_REPLY_TEXT_BYTES);
        let mut collected = CollectedUpdates::default();
        for id in 0..10_000 {
            let id = id.to_string();
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "y".repeat(500)});
            collected.take(None, update(call), &mut state, &mut Vec::new()).unwrap();
        }
        let Some(Chunk::Opaque(kept)) = collected.finish() else { panic!("nothing was kept") };
        assert!(kept.len() <= MAX_KEPT_BYTES * 2);
    }

    #[test]
    fn reported_cost_never_decreases() {
        let (mut collected, mut state) = (CollectedUpdates::default(), PromptState::default());
        for (amount, currency) in [(0.5, "USD"), (0.25, "usd"), (9.0, "EUR"), (-1.0, "USD")] {
            let cost = json!({"amount": amount, "currency": currency});
            let usage = json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost});
            collected.take(None, update(usage), &mut state, &mut Vec::new()).unwrap();
        }
        assert_eq!(state.reported.usd, Some(500_000_000));
    }
}
