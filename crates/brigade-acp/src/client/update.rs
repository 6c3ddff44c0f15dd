//! What an agent tells while it works: its words are text, all else is shown and kept in short.

use agent_client_protocol::v1::schema::{
    ContentBlock, Cost, MessageId, SessionUpdate, ToolCallStatus, ToolCallUpdate,
};
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
/// What separates one message from the next.
const SEPARATOR: &str = "\n\n";

/// What was told since the last reply.
#[derive(Default)]
pub(super) struct Told {
    updates: usize,
    text: usize,
    /// Whether something was done since the last words.
    paused: bool,
    thought: String,
    /// The message that the last thought belongs to.
    thought_id: Option<MessageId>,
    kept: Vec<Kept>,
    kept_bytes: usize,
}

/// Something that is kept for the record. One with a key is replaced when more is told of the same thing.
struct Kept {
    key: Option<String>,
    aside: Aside,
}

impl Told {
    /// Takes an update of the session, or of one of its sub-agents. Too much of it is an error.
    pub(super) fn take(
        &mut self,
        sub_agent: Option<&str>,
        update: SessionUpdate,
        notes: &mut Notes,
        out: &mut Vec<Chunk>,
    ) -> Result<(), String> {
        self.updates += 1;
        if self.updates > MOST_UPDATES {
            return Err(format!("it sent more than {MOST_UPDATES} updates in one reply"));
        }
        match update {
            SessionUpdate::ToolCall(call) => {
                self.paused |= sub_agent.is_none();
                self.tool_call(sub_agent, ToolCallUpdate::from(call), notes, out);
            }
            SessionUpdate::ToolCallUpdate(call) => self.tool_call(sub_agent, call, notes, out),
            SessionUpdate::SubagentUpdate(update) => {
                let key = format!("sub-agent {}", update.session_id.0);
                if let Some((aside, is_news)) = notes.sub_agents.learn(update) {
                    notes.reported.agents = notes.reported.agents.max(notes.sub_agents.count());
                    out.extend(is_news.then(|| Chunk::Waiting(aside.to_string())));
                    self.keep(Some(key), aside);
                }
            }
            // The words, plans and costs of a sub-agent are its parent's affair.
            _ if sub_agent.is_some() => {}
            SessionUpdate::AgentMessageChunk(chunk) => {
                if let Some(text) = words(chunk.content) {
                    return self.say(&text, chunk.message_id, notes, out);
                }
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                if let Some(text) = words(chunk.content) {
                    self.think(&text, chunk.message_id);
                }
            }
            SessionUpdate::Plan(plan) => {
                let plan = plan.entries.iter().take(50).map(|entry| short(&entry.content)).collect();
                self.keep(None, Aside::Plan { plan });
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

    /// Shows and keeps a call that the agent makes by itself, by the latest that it told of it.
    fn tool_call(
        &mut self,
        sub_agent: Option<&str>,
        call: ToolCallUpdate,
        notes: &mut Notes,
        out: &mut Vec<Chunk>,
    ) {
        let key = call_key(sub_agent, &call.tool_call_id.0);
        let before = notes.calls.get(&key).map(|doing| doing.brief(&notes.root));
        let doing = notes.calls.learn(&key, &call.fields);
        let brief = doing.brief(&notes.root);
        let is_news = !brief.is_empty() && before.as_ref() != Some(&brief);
        let named = (!brief.is_empty()).then(|| match sub_agent {
            Some(id) => format!("{}: {brief}", notes.sub_agents.label(id)),
            None => brief,
        });
        let is_over = matches!(call.fields.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        if is_news && !is_over {
            out.extend(named.clone().map(Chunk::Waiting));
        }
        let kept =
            self.kept.iter().find(|kept| kept.key.as_ref() == Some(&key)).map(|kept| kept.aside.clone());
        let aside = match kept {
            // What is known of a call is forgotten when it is over; more may be told of it all the same.
            Some(Aside::ToolCall { tool_call, kind, status }) => Aside::ToolCall {
                tool_call: named.or(tool_call),
                kind: doing.kind.or(kind),
                status: call.fields.status.or(status),
            },
            _ if before.is_some() && !is_news && !is_over => return,
            _ => Aside::ToolCall { tool_call: named, kind: doing.kind, status: call.fields.status },
        };
        self.keep(Some(key), aside);
    }

    fn say(
        &mut self,
        text: &str,
        id: Option<MessageId>,
        notes: &mut Notes,
        out: &mut Vec<Chunk>,
    ) -> Result<(), String> {
        let is_first = self.text == 0;
        let is_next = std::mem::take(&mut self.paused) || differs(notes.message.as_ref(), id.as_ref());
        notes.message = id.or(notes.message.take());
        let separator = if is_next && !is_first { SEPARATOR } else { "" };
        let text = format!("{separator}{text}");
        self.text += text.len();
        if self.text > MOST_TEXT {
            return Err(format!("it said more than {} MB in one reply", MOST_TEXT >> 20));
        }
        // What was said before the last question is another paragraph.
        let before = if is_first && !notes.said.is_empty() { SEPARATOR } else { "" };
        if notes.said.len() + before.len() + text.len() <= MOST_SAID {
            notes.said.push_str(before);
            notes.said.push_str(&text);
        }
        out.push(Chunk::Text(text));
        Ok(())
    }

    fn think(&mut self, text: &str, id: Option<MessageId>) {
        let is_next = !self.thought.is_empty() && differs(self.thought_id.as_ref(), id.as_ref());
        let separator = if is_next { SEPARATOR } else { "" };
        self.thought_id = id.or(self.thought_id.take());
        if self.thought.len() + separator.len() + text.len() <= MOST_KEPT_BYTES {
            self.thought.push_str(separator);
            self.thought.push_str(text);
        }
    }

    /// Whether there were words.
    pub(super) fn spoke(&self) -> bool {
        self.text > 0
    }

    fn keep(&mut self, key: Option<String>, aside: Aside) {
        let bytes = aside.to_string().len();
        if let Some(kept) = self.kept.iter_mut().find(|kept| key.is_some() && kept.key == key) {
            let less = self.kept_bytes.saturating_sub(kept.aside.to_string().len());
            if less + bytes <= MOST_KEPT_BYTES {
                self.kept_bytes = less + bytes;
                kept.aside = aside;
            }
            return;
        }
        self.keep_thought();
        self.push(Kept { key, aside });
    }

    fn keep_thought(&mut self) {
        if !self.thought.is_empty() {
            let thought = std::mem::take(&mut self.thought);
            self.push(Kept { key: None, aside: Aside::Thought { thought } });
        }
    }

    fn push(&mut self, kept: Kept) {
        let bytes = kept.aside.to_string().len();
        if self.kept.len() < MOST_KEPT && self.kept_bytes + bytes <= MOST_KEPT_BYTES {
            self.kept_bytes += bytes;
            self.kept.push(kept);
        }
    }

    /// What is kept of it, for the log.
    pub(super) fn finish(mut self) -> Option<Chunk> {
        self.keep_thought();
        let asides: Vec<Aside> = self.kept.into_iter().map(|kept| kept.aside).collect();
        if asides.is_empty() { None } else { Aside::write(asides).map(Chunk::Opaque) }
    }
}

/// The key of a tool call: sub-agents number their calls by themselves.
pub(super) fn call_key(sub_agent: Option<&str>, call: &str) -> String {
    match sub_agent {
        Some(sub_agent) => format!("{sub_agent} {call}"),
        None => call.to_owned(),
    }
}

/// Whether two pieces belong to different messages, as far as they say.
fn differs(before: Option<&MessageId>, now: Option<&MessageId>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before != now)
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
            told.take(None, step, &mut notes, &mut out).unwrap();
        }
        assert_eq!(notes.said, "Let me look.\n\nFound.");
        assert!(out.contains(&Chunk::Waiting("Look".to_owned())));
        let Some(Chunk::Opaque(kept)) = told.finish() else { panic!("nothing was kept") };
        assert_eq!(kept, r#"{"external":[{"tool_call":"Look","kind":"read","status":"pending"}]}"#);
    }

    fn message(id: &str, text: &str) -> SessionUpdate {
        update(
            json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": {"type": "text", "text": text}}),
        )
    }

    fn kept(told: Told) -> Vec<String> {
        let Some(Chunk::Opaque(kept)) = told.finish() else { return Vec::new() };
        Aside::read(&kept).iter().map(Aside::to_string).collect()
    }

    #[test]
    fn messages_with_different_ids_are_separated() {
        let (mut told, mut notes, mut out) = (Told::default(), Notes::default(), Vec::new());
        for step in [message("a", "One "), message("a", "word."), message("b", "Two."), said(" More.")] {
            told.take(None, step, &mut notes, &mut out).unwrap();
        }
        assert_eq!(notes.said, "One word.\n\nTwo. More.");
        // The next reply of the same prompt begins a paragraph of what was said in all, and none of its own text.
        let (mut told, mut out) = (Told::default(), Vec::new());
        told.take(None, message("c", "Three."), &mut notes, &mut out).unwrap();
        assert_eq!(out, [Chunk::Text("Three.".to_owned())]);
        assert_eq!(notes.said, "One word.\n\nTwo. More.\n\nThree.");
        for (id, text) in [("1", "hm "), ("1", "so"), ("2", "aha")] {
            let content = json!({"type": "text", "text": text});
            let thought =
                json!({"sessionUpdate": "agent_thought_chunk", "messageId": id, "content": content});
            told.take(None, update(thought), &mut notes, &mut out).unwrap();
        }
        assert_eq!(kept(told), ["thought: hm so\n\naha"]);
    }

    #[test]
    fn what_is_told_later_of_a_call_replaces_its_first_title() {
        let (mut told, mut out) = (Told::default(), Vec::new());
        let mut notes = Notes { root: "/project".into(), ..Notes::default() };
        let mut take = |told: &mut Told, kind: &str, mut call: Value| {
            call["sessionUpdate"] = kind.into();
            told.take(None, update(call), &mut notes, &mut out).unwrap();
        };
        take(&mut told, "tool_call", json!({"toolCallId": "1", "title": "Terminal", "kind": "execute"}));
        take(&mut told, "tool_call", json!({"toolCallId": "2", "title": "Edit", "kind": "edit"}));
        let command = json!({"toolCallId": "1", "rawInput": {"command": "cargo test"}});
        take(&mut told, "tool_call_update", command.clone());
        take(&mut told, "tool_call_update", command);
        take(
            &mut told,
            "tool_call_update",
            json!({"toolCallId": "2", "locations": [{"path": "/project/a.rs"}]}),
        );
        take(&mut told, "tool_call_update", json!({"toolCallId": "2", "status": "failed"}));
        assert_eq!(
            kept(std::mem::take(&mut told)),
            ["does by itself: Terminal: cargo test (execute)", "failed by itself: Edit: a.rs (edit)"]
        );
        // It ends after a question, in the next reply.
        take(
            &mut told,
            "tool_call_update",
            json!({"toolCallId": "1", "title": "`cargo test`", "status": "completed"}),
        );
        assert_eq!(kept(told), ["done by itself: `cargo test` (execute)"]);
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
    fn sub_agents_are_shown_counted_and_keep_their_words_to_themselves() {
        let (mut told, mut notes, mut out) = (Told::default(), Notes::default(), Vec::new());
        let announced = |id: &str, title: &str| {
            update(json!({"sessionUpdate": "subagent_update", "sessionId": id, "title": title}))
        };
        let call = |id: &str, title: &str| {
            update(json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title}))
        };
        told.take(None, announced("c1", "Scout"), &mut notes, &mut out).unwrap();
        told.take(Some("c1"), announced("c2", "Helper"), &mut notes, &mut out).unwrap();
        told.take(None, call("1", "Look"), &mut notes, &mut out).unwrap();
        told.take(Some("c1"), call("1", "Read a.txt"), &mut notes, &mut out).unwrap();
        told.take(Some("c1"), said("not for you"), &mut notes, &mut out).unwrap();
        assert_eq!((notes.reported.agents, notes.said.as_str(), told.spoke()), (Some(2), "", false));
        assert!(out.contains(&Chunk::Waiting("Scout: Read a.txt".to_owned())));
        assert_eq!(
            kept(told),
            [
                "sub-agent Scout",
                "sub-agent Helper",
                "does by itself: Look (other)",
                "does by itself: Scout: Read a.txt (other)"
            ]
        );
    }

    #[test]
    fn too_much_is_an_error_and_what_is_kept_is_bounded() {
        let (mut told, mut notes, mut out) = (Told::default(), Notes::default(), Vec::new());
        let piece = "x".repeat(MOST_TEXT / 4);
        for _ in 0..4 {
            told.take(None, said(&piece), &mut notes, &mut out).unwrap();
        }
        assert!(told.take(None, said("x"), &mut notes, &mut out).unwrap_err().contains("1 MB"));
        assert!(notes.said.len() <= MOST_SAID);
        let mut told = Told::default();
        for id in 0..10_000 {
            let id = id.to_string();
            let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "y".repeat(500)});
            told.take(None, update(call), &mut notes, &mut Vec::new()).unwrap();
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
            told.take(None, update(usage), &mut notes, &mut Vec::new()).unwrap();
        }
        assert_eq!(notes.reported.usd, Some(500_000_000));
    }
}
