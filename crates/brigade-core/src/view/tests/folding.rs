//! Sessions, counts and messages as a tree folds them.

use super::*;

fn call(index: u32) -> CallId {
    CallId { turn: 1, index }
}

fn tool_started(index: u32, lines: Option<ChangedLines>) -> Event {
    let (before, after, lent) = (None, None, Resources::default());
    Event::ToolStarted { call: call(index), effect: Effect::Edit, before, after, lent, lines }
}

fn tool_ended(index: u32, output: ToolOutput, path: Option<&str>) -> Event {
    let seen = path.map(|path| {
        let (path, hash) = (path.to_owned(), Hash::of(b"new"));
        Box::new(SeenFile { path, hash, extent: crate::Extent::Whole })
    });
    Event::ToolEnded { call: call(index), output, spent: used(1, 0, 0), seen }
}

fn asked(index: u32) -> Event {
    let (what, why, always) = ("shell {}".into(), String::new(), None);
    Event::Asked { call: call(index), what, why, always, until: 0, default: Answer::Once }
}

fn node(log: &Log, session: &SessionId) -> Node {
    Tree::fold(&log.0).node(session).unwrap().clone()
}

#[test]
fn key_is_the_style_and_digits_or_the_number_of_a_spawn() {
    let session = SessionId::root(1);
    let digits = &Hash::of(session.as_str().as_bytes()).to_string()[..8];
    assert_eq!(key(DelegationStyle::Spawn, Some(3), &session), "sub_3");
    assert_eq!(key(DelegationStyle::Spawn, None, &session), format!("spawn:{digits}"));
    assert_eq!(key(DelegationStyle::Delegate, Some(3), &session), format!("delegate:{digits}"));
    let mut log = Log::default();
    log.start(&session, "lead");
    assert_eq!(node(&log, &session).key(), format!("run:{digits}"));
}

#[test]
fn lineage_lists_labels_from_the_root() {
    let root = SessionId::root(1);
    let (child, other) = (root.child(call(0)), root.child(call(1)));
    let grandchild = child.child(call(0));
    let mut log = Log::default();
    for (session, role) in [(&root, "lead"), (&child, "writer"), (&other, "reader"), (&grandchild, "tester")]
    {
        log.start(session, role);
    }
    let tree = Tree::fold(&log.0);
    assert_eq!(tree.lineage(&grandchild), ["lead", "writer", "tester"]);
    assert_eq!(tree.lineage(&other), ["lead", "reader"]);
    assert_eq!(tree.lineage(&SessionId::root(2)), Vec::<&str>::new());
    let walked: Vec<&str> = tree.walk(&root).iter().map(|node| node.label.as_str()).collect();
    assert_eq!(walked, ["lead", "writer", "tester", "reader"]);
    assert_eq!((tree.walk(&child).len(), tree.nodes().len()), (2, 4));
}

#[test]
fn lineage_ignores_a_parent_that_contradicts_the_id() {
    let (root, stranger) = (SessionId::root(1), SessionId::root(2));
    let mut log = Log::default();
    log.start(&stranger, "stranger");
    for parent in [&root, &stranger] {
        let (delegation, agent) =
            (Delegation { role: Some("lead".into()), ..Delegation::default() }, Hash::of(b""));
        let grant =
            Grant { authority: agent, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let (delegation, parent) = (delegation.into(), Some(parent.clone()));
        let mut wrong = Log(log.0.clone());
        wrong.add(&root, Event::Started { delegation, agent, grant, parent, depth: 1 });
        assert_eq!(Tree::fold(&wrong.0).lineage(&root), ["lead"]);
    }
}

#[test]
fn duplicate_delegation_adds_no_second_child() {
    let root = SessionId::root(1);
    let child = root.child(call(0));
    let mut log = Log::default();
    log.start(&root, "lead");
    log.start(&child, "writer");
    log.start(&child, "writer");
    let tree = Tree::fold(&log.0);
    assert_eq!(tree.node(&root).unwrap().children, std::slice::from_ref(&child));
    assert_eq!(tree.node(&root).unwrap().own_usage.agents, 2);
    assert_eq!((tree.node(&root).unwrap().depth, tree.node(&child).unwrap().depth), (0, 1));
    assert_eq!(tree.totals(&root).agents, 2);
}

#[test]
fn session_that_delegates_to_itself_is_not_its_own_child() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    log.start(&root.child(call(0)), "writer");
    for record in &mut log.0 {
        record.session = root.child(call(0));
    }
    let tree = Tree::fold(&log.0);
    assert_eq!(tree.walk(&root.child(call(0))).len(), 1);
}

#[test]
fn delegated_child_is_pending_until_it_starts() {
    let root = SessionId::root(1);
    let child = root.child(call(0));
    let mut log = Log::default();
    log.start(&root, "lead");
    log.start(&child, "writer");
    log.0.pop();
    let tree = Tree::fold(&log.0);
    let pending = tree.node(&child).unwrap();
    assert_eq!((pending.label.as_str(), pending.task.as_str()), ("writer", "Task of writer"));
    assert_eq!((&pending.activity, pending.style), (&Activity::Pending, DelegationStyle::Delegate));
    assert_eq!((pending.depth, pending.parent.as_ref()), (1, Some(&root)));
    assert_eq!(tree.node(&root).unwrap().activity, Activity::Delegating);
}

#[test]
fn tool_calls_errors_and_turns_are_counted() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    log.start(&root, "lead");
    log.reply(&root, &["grep", "shell"], used(10, 1, 5));
    assert_eq!(node(&log, &root).activity, Activity::Tool("grep".to_owned()));
    log.add(&root, tool_started(1, None));
    assert_eq!(node(&log, &root).activity, Activity::Tool("shell".to_owned()));
    log.add(&root, tool_ended(1, ToolOutput::error("denied"), None));
    log.add(&root, tool_ended(0, ToolOutput::ok(""), None));
    log.reply(&root, &[], used(20, 2, 5));
    let failed = used(4, 0, 1);
    log.add(&root, Event::call_failed(3, 1, crate::event::CallFault::Interrupted, failed));
    let node = node(&log, &root);
    assert_eq!((node.turns, node.tool_calls, node.tool_errors), (2, 2, 1));
    assert_eq!((node.own_usage.usage.input, node.own_usage.usage.output), (10 + 20 + 4 + 2, 3));
    assert_eq!((node.own_usage.usd, node.started_at, node.changed_at), (11, 1_000, 1_600));
}

#[test]
fn changed_lines_of_successful_edits_are_summed() {
    let root = SessionId::root(1);
    let lines = |added, removed| Some(ChangedLines { added, removed });
    let mut log = Log::default();
    log.start(&root, "lead");
    log.reply(&root, &["edit_file", "edit_file", "edit_file", "read_file"], Spent::default());
    log.add(&root, tool_started(0, lines(3, 1)));
    log.add(&root, tool_ended(0, ToolOutput::ok(""), Some("a.rs")));
    log.add(&root, tool_started(1, lines(4, 2)));
    log.add(&root, tool_ended(1, ToolOutput::ok(""), Some("a.rs")));
    log.add(&root, tool_started(2, lines(50, 0)));
    log.add(&root, tool_ended(2, ToolOutput::error("not found"), Some("a.rs")));
    log.add(&root, tool_started(3, None));
    log.add(&root, tool_ended(3, ToolOutput::ok(""), Some("b.rs")));
    let node = node(&log, &root);
    let expected = BTreeMap::from([("a.rs".to_owned(), ChangedLines { added: 7, removed: 3 })]);
    assert_eq!(node.changes, expected);
    assert_eq!(
        serde_json::to_value(node.file_changes()).unwrap(),
        json!([{ "path": "a.rs", "added": 7, "removed": 3 }])
    );
}

#[test]
fn resources_held_back_at_the_end_are_unconfirmed() {
    let root = SessionId::root(1);
    let held_back = Resources { tokens: 30, usd: 3, agents: 0 };
    let mut log = Log::default();
    log.start(&root, "lead");
    log.reply(&root, &[], Spent { held_back, ..used(10, 1, 0) });
    let mut called = Log(log.0.clone());
    log.end(&root, Status::Done, "");
    assert_eq!(node(&log, &root).own_usage.unconfirmed, held_back);
    // The next call takes them over.
    let (reserved, request) = (held_back, Hash::of(b"request"));
    called.add(
        &root,
        Event::Called { turn: 2, attempt: 1, purpose: Purpose::Turn, reserved, input: 0, request },
    );
    called.end(&root, Status::Done, "");
    assert_eq!(node(&called, &root).own_usage.unconfirmed, Resources::default());
}

#[test]
fn next_round_without_a_task_keeps_the_task_and_forgets_the_shortfall() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    log.start(&root, "lead");
    let needed = Resources { tokens: 900, ..Resources::default() };
    log.add(&root, Event::LimitReached { which: crate::delegation::LimitKind::Tokens, needed });
    assert_eq!(node(&log, &root).needed, needed);
    let mut next = log.0[0].clone();
    if let Event::Started { delegation, .. } = &mut next.event {
        *delegation = Delegation { role: Some("lead".to_owned()), ..Delegation::default() }.into();
    }
    log.0.push(next);
    let node = node(&log, &root);
    assert_eq!((node.task.as_str(), node.needed), ("Task of lead", Resources::default()));
}

#[test]
fn totals_cover_a_session_and_its_descendants() {
    let root = SessionId::root(1);
    let (child, sibling) = (root.child(call(0)), root.child(call(1)));
    let mut log = Log::default();
    log.start(&root, "lead");
    log.start(&child, "writer");
    log.start(&sibling, "reader");
    log.reply(&root, &[], used(100, 10, 3));
    log.reply(&child, &[], used(7, 2, 1));
    log.reply(&sibling, &[], Spent { unpriced: 1, ..used(1, 0, 0) });
    let tree = Tree::fold(&log.0);
    let totals = tree.totals(&child);
    assert_eq!((totals.agents, totals.turns, totals.spent.usage.total()), (1, 1, 9));
    assert_eq!((tree.spent(&child).usd, tree.spent(&root).usd, tree.spent(&root).agents), (1, 4, 2));
    // The log begins at 1,000 with one event per 100 milliseconds; the child starts at 1,200.
    assert_eq!((totals.time, tree.working_time([&child], Some(2_000))), (400, 800));
    let json = |session| serde_json::to_value(tree.totals(session)).unwrap();
    assert_eq!(
        (json(&child).get("cost_unknown"), json(&root).get("cost_unknown")),
        (None, Some(&json!(true)))
    );
}

#[test]
fn metadata_exists_only_for_an_ended_subagent() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    log.start(&root, "lead");
    assert_eq!(node(&log, &root).metadata(), None);
    log.reply(&root, &[], used(70, 9, 0));
    log.end(&root, Status::Done, "A result.");
    assert_eq!(node(&log, &root).metadata(), None);
    let mut helper = node(&log, &root);
    helper.style = DelegationStyle::Subagent;
    let metadata = helper.metadata().unwrap();
    insta::assert_debug_snapshot!(metadata);
    helper.title = Some("Title".to_owned());
    helper.report_bytes = Some(4);
    assert_ne!(helper.metadata().unwrap(), metadata);
    assert!(helper.metadata().unwrap().values().any(|value| value == "Title"));
    helper.activity = Activity::Thinking;
    assert_eq!(helper.metadata(), None);
}

#[test]
fn approval_is_pending_until_its_call_or_round_ends() {
    let (root, other) = (SessionId::root(1), SessionId::root(2));
    let mut log = Log::default();
    log.start(&root, "lead");
    log.start(&other, "lead");
    for (session, index) in [(&root, 0), (&root, 1), (&root, 2), (&other, 0)] {
        log.add(session, asked(index));
    }
    let pending = |log: &Log| -> Vec<String> {
        Tree::fold(&log.0).pending_approvals().map(PendingApproval::name).collect()
    };
    let name = |session: &SessionId, index: u32| format!("{session}:1-{index}");
    assert_eq!(pending(&log), [name(&root, 0), name(&root, 1), name(&root, 2), name(&other, 0)]);
    assert_eq!(Tree::fold(&log.0).pending_approval(&other).unwrap().session, other);
    assert_eq!(Tree::fold(&log.0).pending_approval(&SessionId::root(3)), None);
    // A request that is made again moves to the end.
    log.add(&root, asked(0));
    assert_eq!(pending(&log), [name(&root, 1), name(&root, 2), name(&other, 0), name(&root, 0)]);
    log.add(&root, Event::Answered { call: call(1), answer: Answer::Once, by: "the user".to_owned() });
    log.add(&root, tool_ended(2, ToolOutput::ok(""), None));
    assert_eq!(pending(&log), [name(&other, 0), name(&root, 0)]);
    log.end(&root, Status::Done, "");
    assert_eq!(pending(&log), [name(&other, 0)]);
}

#[test]
fn approval_without_arguments_names_the_tool() {
    let root = SessionId::root(1);
    let mut log = Log::default();
    let mut event = asked(0);
    if let Event::Asked { what, .. } = &mut event {
        *what = "shell".into();
    }
    log.add(&root, event);
    let tree = Tree::fold(&log.0);
    let approval = tree.pending_approval(&root).unwrap();
    assert_eq!((approval.tool(), approval.arguments()), ("shell", ""));
}

#[test]
fn status_json_has_the_cause_of_an_end() {
    let json = |status: Status| serde_json::to_value(StatusSummary::from(&status)).unwrap();
    let cause = || "no key".to_owned();
    assert_eq!(json(Status::Done), json!({ "status": "done" }));
    assert_eq!(json(Status::Failed { cause: cause() }), json!({ "status": "failed", "error": "no key" }));
    assert_eq!(json(Status::Lost { cause: cause() })["error"], "no key");
    let cancelled = json(Status::Cancelled { by: "the user".to_owned() });
    assert_eq!(cancelled["error"], "cancelled by the user");
    let failed = serde_json::to_value(StatusSummary::failed(cause())).unwrap();
    assert_eq!(failed, json!({ "status": "failed", "error": "no key" }));
    let waiting = serde_json::to_value(StatusSummary::from(&Activity::Pending)).unwrap();
    assert_eq!(waiting, json!({ "status": "waiting" }));
}

#[test]
fn cost_json_says_which_costs_are_missing() {
    let json = |spent: Spent| serde_json::to_value(CostSummary::from(&spent)).unwrap();
    let plain = json(Spent::default());
    assert_eq!((plain.get("cost_unknown"), plain["usage"].get("cost_not_reported")), (None, None));
    assert_eq!(json(Spent { unpriced: 1, ..Spent::default() })["cost_unknown"], true);
    let unreported = json(Spent { cost_unreported: 1, ..Spent::default() });
    assert_eq!(unreported["usage"]["cost_not_reported"], true);
}
