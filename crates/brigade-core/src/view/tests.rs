mod folding;

use serde_json::json;

use super::*;
use crate::event::{Answer, Effect};
use crate::{Budget, Cursor, Delegation, Grant, Limit, Reply, SeenFile, Status, ToolCall, ToolOutput, Usage};

const NANO_USD: u64 = 1_000_000_000;

/// Log of one tree, with one event per 100 milliseconds.
#[derive(Default)]
struct Log(Vec<Record>);

impl Log {
    fn add(&mut self, session: &SessionId, event: Event) {
        let number = self.0.len() as u64;
        let pos = Cursor::new(number);
        self.0.push(Record { session: session.clone(), seq: 0, pos, at: 1_000 + 100 * number, v: 1, event });
    }

    /// Starts a session. A child is delegated by its parent first.
    fn start(&mut self, session: &SessionId, role: &str) {
        let delegation = Delegation {
            style: if session.is_root() { DelegationStyle::Run } else { DelegationStyle::Delegate },
            role: Some(role.to_owned()),
            task: format!("Task of {role}").into(),
            ..Delegation::default()
        };
        let (delegation, agent) = (std::sync::Arc::new(delegation), Hash::of(b"agent"));
        let grant =
            Grant { authority: agent, budget: Budget::UNLIMITED, turns: 8, deadline: Limit::Unlimited };
        let (parent, depth) = (session.parent(), u32::from(!session.is_root()));
        if let (Some(parent), Some((call, _))) = (&parent, session.call()) {
            let (child, delegation) = (session.clone(), delegation.clone());
            self.add(parent, Event::Delegated { call, child, delegation, agent, grant });
        }
        self.add(session, Event::Started { delegation, agent, grant, parent, depth });
    }

    fn reply(&mut self, session: &SessionId, tools: &[&str], spent: Spent) {
        let calls = tools.iter().map(|tool| ToolCall {
            name: (*tool).to_owned(),
            arguments: "{}".into(),
            provider_id: None,
        });
        let reply = Reply { calls: calls.collect(), ..Reply::default() };
        self.add(
            session,
            Event::Replied { turn: 1, reply, spent: Spent { turns: 1, ..spent }, waited_ms: 0 },
        );
    }

    fn end(&mut self, session: &SessionId, status: Status, text: &str) {
        let outcome = Outcome::new(status, text);
        self.add(session, Event::Ended { outcome, spent: Spent::default() });
    }
}

fn used(input: u64, output: u64, usd: u64) -> Spent {
    Spent { usage: Usage { input, output, ..Usage::default() }, usd, ..Spent::default() }
}

/// A lead with a child that is done, one that failed, and one that waits for an approval.
fn tree(root: &SessionId) -> Tree {
    let mut log = Log::default();
    let call = CallId { turn: 1, index: 0 };
    let [done, failed, running] = [0, 1, 2].map(|index| root.child(CallId { turn: 1, index }));
    log.start(root, "lead");
    log.reply(root, &["delegate", "delegate", "delegate"], used(1_000, 50, NANO_USD / 4));
    log.start(&done, "writer");
    log.start(&failed, "reader");
    log.start(&running, "tester");
    log.reply(&done, &["edit_file"], used(200, 20, NANO_USD / 8));
    let lines = Some(ChangedLines { added: 3, removed: 1 });
    let (lent, effect) = (Resources::default(), Effect::Edit);
    log.add(&done, Event::ToolStarted { call, effect, before: None, after: None, lent, lines });
    let seen =
        SeenFile { path: "src/lib.rs".to_owned(), hash: Hash::of(b"new"), extent: crate::Extent::Whole };
    let (output, spent) = (ToolOutput::ok("Edited."), Spent::default());
    log.add(&done, Event::ToolEnded { call, output, spent, seen: Some(Box::new(seen)) });
    log.add(&done, Event::Said { call, text: "The file is written.".into() });
    log.end(&done, Status::Done, "Written.");
    log.reply(&failed, &[], Spent { unpriced: 1, ..used(7, 0, 0) });
    log.end(&failed, Status::Failed { cause: "the model is not available".to_owned() }, "");
    log.reply(&running, &["shell"], used(300, 30, 0));
    let asked = Event::Asked {
        call,
        what: r#"shell {"command":"cargo test"}"#.into(),
        why: "mode `ask`".to_owned(),
        always: Some("shell(cargo test)".to_owned()),
        until: 90_000,
        default: Answer::Deny { word: None },
    };
    log.add(&running, asked);
    Tree::fold(&log.0)
}

#[test]
fn views_of_a_running_tree_have_stable_json() {
    let root = SessionId::root(1);
    let tree = tree(&root);
    let approvals: Vec<&PendingApproval> = tree.pending_approvals().collect();
    let (nodes, totals, messages) = (tree.walk(&root), tree.totals(&root), tree.agent_messages());
    // As text, so that the order of the keys counts.
    let mut lines: Vec<String> =
        nodes.iter().map(|node| serde_json::to_string_pretty(node).unwrap()).collect();
    lines.push(serde_json::to_string_pretty(&totals).unwrap());
    lines.push(serde_json::to_string_pretty(messages).unwrap());
    lines.push(serde_json::to_string_pretty(&approvals).unwrap());
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn sessions_that_are_done_or_failed_have_ended() {
    let root = SessionId::root(1);
    let ended: Vec<bool> = tree(&root).walk(&root).iter().map(|node| node.has_ended()).collect();
    assert_eq!(ended, [false, true, true, false]);
}

#[test]
fn node_json_names_the_activity_and_what_a_budget_did_not_cover() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    log.start(&root, "lead");
    let needed = Resources { tokens: 900, usd: NANO_USD / 2, agents: 0 };
    log.add(&root, Event::LimitReached { which: crate::delegation::LimitKind::Tokens, needed });
    let request = Hash::of(b"request");
    let reserved = Resources::default();
    for (purpose, activity) in [
        (Purpose::Turn, "thinking"),
        (Purpose::Grace, "wrapping_up"),
        (Purpose::Summary, "wrapping_up"),
        (Purpose::Compaction, "compacting"),
    ] {
        log.add(&root, Event::Called { turn: 1, attempt: 1, purpose, reserved, input: 0, request });
        let node = serde_json::to_value(Tree::fold(&log.0).node(&root)).unwrap();
        assert_eq!((&node["activity"], &node["status"]), (&json!(activity), &json!("unfinished")));
        assert_eq!(node["needed"], json!({ "tokens": 900, "cost_usd": 0.5, "agents": 0 }));
    }
    let limit = crate::delegation::LimitKind::Tokens;
    log.end(&root, Status::Incomplete { limit }, "A part.");
    let node = serde_json::to_value(Tree::fold(&log.0).node(&root)).unwrap();
    let ended = json!(["ended", "incomplete", "tokens", "A part."]);
    assert_eq!(json!([node["activity"], node["status"], node["limit"], node["result"]]), ended);
}

#[test]
fn approval_json_has_no_arguments_if_they_are_not_json() {
    let approval = PendingApproval {
        session: SessionId::root(1),
        call: CallId { turn: 1, index: 0 },
        host: None,
        what: "shell {cut".into(),
        why: String::new(),
        always: None,
        asked_at: 1,
        until: 2,
        default: Answer::Once,
    };
    let approval = serde_json::to_value(approval).unwrap();
    let shown = json!([approval["tool"], approval["arguments"], approval["always"], approval["default"]]);
    assert_eq!(shown, json!(["shell", null, null, "once"]));
    assert_eq!(approval.get("host"), None, "the request is about the call itself");
}
