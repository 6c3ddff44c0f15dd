//! Imported trees, and modes that were narrowed since a round started: no resume widens anything.

use std::sync::Arc;
use std::time::Duration;

use brigade::core::event::Answer;
use brigade::core::grant::Grant;
use brigade::core::permission::Mode;
use brigade::core::{Agent, Authority, Budget, Cursor, Delegation, Event, Limit, Record, SessionId, Status};
use brigade::store::{MemoryStore, SqliteStore, export, import};
use brigade::{AgentCatalog, ApprovalPolicy, ModeOrigin, ResumeOptions, Settings, Store};
use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::run::crash::run_until_crash;
use crate::run::support::{Harness, check_import, check_laws, end};

/// A tool of each effect, at every level of the tree.
fn work() -> Script {
    Script::new()
        .agent(
            "lead",
            [reply("begin")
                .delegate("Child", "work")
                .call("write_file", json!({ "path": "lead.txt", "content": "x" }))
                .call("echo", json!({ "text": "pure" }))
                .turn(1)],
        )
        .agent(
            "Child",
            [delegate("Leaf", "work")
                .call("write_file", json!({ "path": "child.txt", "content": "x" }))
                .turn(1)],
        )
        .agent(
            "Leaf",
            [call("write_file", json!({ "path": "leaf.txt", "content": "x" }))
                .call("echo", json!({ "text": "pure" }))
                .turn(1)],
        )
        .reply("over")
}

fn harness(mode: Mode) -> Harness {
    Harness::with(work(), move |settings| {
        settings.permissions.mode = mode;
        settings.delegation_styles.swarm.max_depth = 3;
        settings.budget = Budget { tokens: Limit::AtMost(100_000), ..settings.budget };
    })
}

/// Imports the tree into another store.
async fn export_to(from: &Harness, root: &SessionId, to: &Harness) -> Cursor {
    let text = export(&*from.store.inner, root).await.unwrap();
    import(&*to.store.inner, &text).await.unwrap();
    to.store.inner.imported(root).await.unwrap().unwrap()
}

#[tokio::test]
async fn imported_tree_that_is_resumed_runs_no_open_call() {
    let mut closed = 0;
    for appends in 1.. {
        let from = harness(Mode::Auto);
        let (result, root) = run_until_crash(&from, None, appends).await;
        if result.is_some() {
            break;
        }
        let Some(root) = root else { continue };
        if from.store.inner.read(&root, 0).await.unwrap().is_empty() {
            continue;
        }
        let to = harness(Mode::Plan);
        let mark = export_to(&from, &root, &to).await;
        let run = to.runtime().resume(&root, ResumeOptions::default()).await.unwrap();
        let result = end(run).await.unwrap();
        assert_eq!(result.outcome.status, Status::Done, "after {appends} appends");
        for name in ["lead.txt", "child.txt", "leaf.txt"] {
            assert!(!to.path().join(name).exists(), "{name} was written after {appends} appends");
        }
        check_import(&*to.store.inner, &root, mark, to.runtime().settings()).await;
        let log = to.log(&root).await;
        check_laws(&log);
        let interrupted = "interrupted, outcome unknown: it was open when this session was imported";
        let is_closed = |event: &Event| matches!(event, Event::ToolEnded { output, .. } if output.text.as_str().starts_with(interrupted));
        closed += log.iter().filter(|record| is_closed(&record.event)).count();
    }
    assert!(closed > 10, "{closed}");
}

/// The same tree resumed in its own store, where open calls run.
#[tokio::test]
async fn tree_that_was_not_imported_runs_its_open_calls() {
    let harness = harness(Mode::Auto);
    let (_, root) = run_until_crash(&harness, None, 2).await;
    assert_eq!(harness.store.inner.imported(&root.clone().unwrap()).await.unwrap(), None);
    let (result, _) = run_until_crash(&harness, root.as_ref(), i64::MAX).await;
    assert!(result.is_some() && harness.path().join("leaf.txt").exists());
}

#[tokio::test]
async fn imported_tree_closes_approvals_and_forgets_always_rules() {
    let script = Script::new().turns([
        call("write_file", json!({ "path": "a.txt", "content": "x" })),
        call("write_file", json!({ "path": "b.txt", "content": "x" })),
        reply("{results}"),
    ]);
    let asking = |settings: &mut Settings| {
        settings.permissions.mode = Mode::Ask;
        settings.approval_policy = ApprovalPolicy::AskUser;
        settings.limits.question_timeout = Duration::from_millis(200);
    };
    let from = Harness::with(&script, move |settings| {
        asking(settings);
        settings.limits.question_timeout = Duration::from_secs(60);
    });
    let run = from.start().await;
    let root = run.session().clone();
    let call = brigade::core::CallId { turn: 1, index: 0 };
    loop {
        let answer = Answer::Always("write_file".to_owned());
        if from.runtime().answer(&root, call, answer, "somebody").await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The answer is recorded, and perhaps the call. Then the runner is gone.
    drop(run);
    let to = Harness::with(&script, asking);
    export_to(&from, &root, &to).await;
    let result = end(to.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    assert!(!to.path().join("a.txt").exists() && !to.path().join("b.txt").exists());
}

#[tokio::test]
async fn imported_agent_drops_api_base_and_key_of_others() {
    let from = Harness::with(Script::new().turns([fault(Fault::Hang), reply("over")]), |settings| {
        settings.agents = AgentCatalog::new().with(Agent { id: "victim".to_owned(), ..Agent::default() });
    });
    let crafted = Agent {
        model: Some("script".to_owned()),
        api_base: Some("http://elsewhere.example".to_owned()),
        ..Settings::lead()
    };
    let root = {
        let run = from.runtime().start(brigade::Task::new("x").agent(crafted)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        run.session().clone()
    };
    let to = Harness::new(Script::new().reply("over"));
    let mark = export_to(&from, &root, &to).await;
    end(to.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    for record in to.log(&root).await.iter().filter(|record| to.store.is_after(record.pos, mark)) {
        if let Event::Started { agent, .. } = &record.event {
            let body = to.store.inner.blob(*agent).await.unwrap().unwrap();
            let agent: Agent = serde_json::from_str(&body).unwrap();
            assert_eq!((agent.api_base, agent.key_of), (None, None));
        }
    }
}

/// Sessions that start here in an imported tree are ordinary: their open calls run after a crash.
#[tokio::test]
async fn round_that_began_after_the_import_is_resumed_like_any_other() {
    let (from, to) = (harness(Mode::Auto), harness(Mode::Auto));
    let root = from.run().await.session;
    export_to(&from, &root, &to).await;
    to.runtime().tell(&root, "again").await.unwrap();
    let (result, _) = run_until_crash(&to, Some(&root), 1).await;
    assert!(result.is_none());
    let (result, _) = run_until_crash(&to, Some(&root), i64::MAX).await;
    assert_eq!(result.unwrap().outcome.status, Status::Done);
    check_laws(&to.log(&root).await);
}

#[tokio::test]
async fn stores_mark_imported_trees_until_removed() {
    let from = harness(Mode::Auto);
    let root = from.run().await.session;
    let text = export(&*from.store.inner, &root).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::new()), Arc::new(SqliteStore::open(&file).unwrap())];
    for store in stores {
        assert_eq!(store.imported(&root).await.unwrap(), None);
        let done = import(&*store, &text).await.unwrap();
        assert!(done.pending.is_empty() && done.round.unwrap().mode == Mode::Auto);
        let last = store.tail(&root, Cursor::START, usize::MAX).await.unwrap().pop().unwrap().pos;
        assert_eq!(store.imported(&root).await.unwrap(), Some(last));
        // A repeated import adds nothing.
        import(&*store, &text).await.unwrap();
        assert_eq!(store.imported(&root).await.unwrap(), Some(last));
        store.remove(&root).await.unwrap();
        assert_eq!(store.imported(&root).await.unwrap(), None);
    }
}

/// A round that stopped before its only call ran, started and resumed under these settings.
async fn written(
    begun: impl Fn(&mut Settings) + 'static,
    resumed: impl Fn(&mut Settings) + 'static,
    modes: &[Option<Mode>],
) -> bool {
    let script = Script::new()
        .turns([fault(Fault::Hang).attempt(1), fault(Fault::Hang).turn(1).attempt(2)])
        .reply(call("write_file", json!({ "path": "a.txt", "content": "x" })));
    let first = Harness::with(&script, begun);
    let run = first.start().await;
    let session = run.session().clone();
    tokio::time::sleep(Duration::from_millis(60)).await;
    drop(run);
    let mut second = Harness::with(&script, resumed);
    second.store = first.store.clone();
    for (mode, is_last) in modes.iter().zip((0..modes.len()).map(|at| at + 1 == modes.len())) {
        let more = ResumeOptions { mode: *mode, turns: Some(3), ..ResumeOptions::default() };
        let run = second.runtime().resume(&session, more).await.unwrap();
        let limit = if is_last { 3_000 } else { 60 };
        let _ = tokio::time::timeout(Duration::from_millis(limit), async {
            while !second.path().join("a.txt").exists()
                && second.log(&session).await.iter().all(|record| record.event.kind() != "tool_ended")
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        drop(run);
    }
    second.path().join("a.txt").exists()
}

#[tokio::test]
async fn configured_mode_that_is_narrower_now_binds_an_open_round() {
    let (auto, plan) = (
        |settings: &mut Settings| settings.permissions.mode = Mode::Auto,
        |settings: &mut Settings| settings.permissions.mode = Mode::Plan,
    );
    let chosen = |settings: &mut Settings| {
        settings.permissions.mode = Mode::Auto;
        settings.mode_origin = ModeOrigin::Choice;
    };
    let default = |settings: &mut Settings| {
        settings.permissions.mode = Mode::Plan;
        settings.mode_origin = ModeOrigin::Default;
    };
    let none = None;
    assert!(written(auto, auto, &[none, none]).await);
    assert!(!written(auto, plan, &[none, none]).await, "the configuration became narrower");
    assert!(written(auto, default, &[none, none]).await, "nobody configured anything");
    assert!(written(chosen, plan, &[none, none]).await, "a mode that was chosen for the run is remembered");
    assert!(
        written(auto, plan, &[Some(Mode::Auto), none]).await,
        "a mode that was chosen when the round was resumed is remembered"
    );
    assert!(!written(auto, auto, &[Some(Mode::Plan), none]).await, "also if it is narrower");
}

#[tokio::test]
async fn next_round_takes_the_narrower_mode_unless_the_user_chose_one() {
    let mode_of_last_round = async |origin: ModeOrigin, now: ModeOrigin, more: Option<Mode>| {
        let first = Harness::with(Script::new().reply("over"), move |settings| {
            settings.permissions.mode = Mode::Auto;
            settings.mode_origin = origin;
        });
        let session = first.run().await.session;
        let mut second = Harness::with(Script::new().reply("over"), move |settings| {
            settings.permissions.mode = Mode::Ask;
            settings.mode_origin = now;
        });
        second.store = first.store.clone();
        second.runtime().tell(&session, "more").await.unwrap();
        let more = ResumeOptions { mode: more, ..ResumeOptions::default() };
        end(second.runtime().resume(&session, more).await.unwrap()).await.unwrap();
        let events = second.events(&session).await;
        let grant = events.iter().rev().find_map(|event| match event {
            Event::Started { grant, .. } => Some(*grant),
            _ => None,
        });
        let body = second.store.inner.blob(grant.unwrap().authority).await.unwrap().unwrap();
        serde_json::from_str::<Authority>(&body).unwrap().permissions.mode
    };
    use ModeOrigin::{Choice, Configuration, Default};
    assert_eq!(mode_of_last_round(Configuration, Configuration, None).await, Mode::Ask);
    assert_eq!(mode_of_last_round(Choice, Configuration, None).await, Mode::Auto);
    assert_eq!(mode_of_last_round(Configuration, Configuration, Some(Mode::Edit)).await, Mode::Edit);
    let removed = mode_of_last_round(Configuration, Default, None).await;
    assert_eq!(removed, Mode::Edit, "the mode was removed from the configuration");
    assert_eq!(mode_of_last_round(Choice, Default, None).await, Mode::Auto);
}

/// A child does not resume an imported log that has its id.
#[tokio::test]
async fn imported_log_with_the_id_of_a_new_child_is_not_resumed() {
    let script =
        Script::new().agent("lead", [reply("first"), delegate("Child", "work").turn(2)]).reply("{results}");
    let auto = |settings: &mut Settings| settings.permissions.mode = Mode::Auto;
    let to = Harness::with(script, auto);
    let root = to.run().await.session;
    let planted = Script::new().reply(call("write_file", json!({ "path": "a.txt", "content": "x" })));
    let from = Harness::with(planted, auto);
    let (_, other) = run_until_crash(&from, None, 2).await;
    let mut records = from.store.inner.read(&other.unwrap(), 0).await.unwrap();
    records.retain(|record| record.event.kind() != "tool_started");
    assert_eq!(records.last().unwrap().event.kind(), "replied");
    let mut blobs = Vec::new();
    for record in &mut records {
        record.session = format!("{root}.2-0").parse().unwrap();
        if let Event::Started { agent, grant, .. } = &record.event {
            for hash in [*agent, grant.authority] {
                blobs.push(from.store.inner.blob(hash).await.unwrap().unwrap());
            }
        }
    }
    to.store.restore(records, blobs).await.unwrap();
    to.runtime().tell(&root, "delegate").await.unwrap();
    let result = end(to.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert!(!to.path().join("a.txt").exists());
    let text = result.outcome.text.as_str();
    assert!(text.contains("the imported tree already contains the session"), "{text}");
}

/// The definition of an imported agent is untrusted: it neither makes a call by itself nor widens a limit.
#[tokio::test]
async fn imported_agent_brings_no_passthrough_model_and_no_wider_limits() {
    let to = harness(Mode::Auto);
    let agent = Agent {
        id: "x".to_owned(),
        name: "x".to_owned(),
        model: Some("relay/script".to_owned()),
        max_turns: Some(u32::MAX),
        max_tokens: Some(u64::MAX),
        ..Agent::default()
    };
    let (authority, root) = (Authority::default(), SessionId::root(77));
    let grant = Grant {
        authority: authority.hash(),
        budget: Budget::UNLIMITED,
        turns: u32::MAX,
        deadline: Limit::Unlimited,
    };
    let task = r#"write_file {"path": "planted.txt", "content": "x"}"#;
    let delegation = Delegation { agent: Some("x".to_owned()), task: task.into(), ..Delegation::default() };
    let (delegation, definition) = (delegation.into(), agent.hash());
    let event = Event::Started { delegation, agent: definition, grant, parent: None, depth: 0 };
    let record = Record { session: root.clone(), seq: 0, pos: Cursor::new(1), at: 1, v: 1, event };
    let blobs = vec![agent.encoded().into(), authority.encoded().into()];
    to.store.inner.restore(vec![record], blobs).await.unwrap();
    let result = end(to.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "over");
    assert!(!to.path().join("planted.txt").exists());
    let rounds = to.events(&root).await.into_iter().filter_map(|event| match event {
        Event::Started { agent, grant, .. } => Some((agent, grant.turns)),
        _ => None,
    });
    let (definition, turns) = rounds.last().unwrap();
    let now: Agent = serde_json::from_str(&to.store.inner.blob(definition).await.unwrap().unwrap()).unwrap();
    assert_eq!((now.model.as_deref(), turns, now.max_tokens), (Some("script"), 50, Some(32_000)));
}
