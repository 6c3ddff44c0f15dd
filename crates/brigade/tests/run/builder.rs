//! `Brigade::builder`: typed errors, approvals, stores and agents.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade::core::event::Answer;
use brigade::provider::{Anthropic, Ollama, OpenAi};
use brigade::store::SqliteStore;
use brigade::{
    Agent, ApprovalPolicy, Brigade, BrigadeBuilder, Budget, BuildError, Event, Mode, Observation, Observer,
    RunError, RunEvent, Secret, Status, Task, Tool, ToolContext, ToolOutput,
};
use brigade_core::{Cursor, DelegationStyle};
use brigade_testing::{Script, call, reply};
use serde_json::json;
use tempfile::TempDir;

/// A builder with a model and a workspace.
fn builder(script: Script) -> (BrigadeBuilder, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Brigade::builder().custom_model("script", script.model()).workspace(folder.path()), folder)
}

fn one() -> Script {
    Script::new().reply("one")
}

/// A tool whose name is a parameter of its type.
macro_rules! tool {
    ($type:ident, $name:literal) => {
        struct $type;

        impl Tool for $type {
            const NAME: &'static str = $name;
            type Input = serde_json::Value;

            fn description(&self) -> std::borrow::Cow<'static, str> {
                "Does nothing.".into()
            }

            async fn run(&self, _input: serde_json::Value, _context: &ToolContext) -> ToolOutput {
                ToolOutput::ok("ran")
            }
        }
    };
}

tool!(Own, "own");
tool!(Delegate, "delegate");
tool!(Loud, "Loud Tool");

/// Builds with one more option and returns the error.
fn error(option: impl FnOnce(BrigadeBuilder) -> BrigadeBuilder) -> BuildError {
    let (builder, _folder) = builder(one());
    option(builder).build().err().expect("it was built")
}

#[tokio::test]
async fn secrets_of_the_builder_and_keys_are_redacted_and_refused() {
    let key = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    let secret = "sesame-of-the-tool-7";
    let script = Script::new().turns([
        call("read_file", json!({ "path": "notes.txt" }))
            .call("write_file", json!({ "path": "out.txt", "content": secret })),
        reply("{results}"),
    ]);
    let (builder, folder) = builder(script);
    std::fs::write(folder.path().join("notes.txt"), format!("{key} and {secret}")).unwrap();
    let brigade = builder.secrets([Secret::new(secret)]).build().unwrap();
    let result = brigade.run("x").await.unwrap();
    let text = result.outcome.text.as_str();
    assert!(text.contains("[redacted: GitHub token] and [redacted: configured secret]"), "{text}");
    assert!(text.contains("`write_file` refused: its arguments contain a configured secret"), "{text}");
    assert!(!folder.path().join("out.txt").exists());
    let log = brigade.runtime().store().tail(&result.session, Cursor::START, usize::MAX).await.unwrap();
    let log = serde_json::to_string(&log).unwrap();
    assert!(!log.contains(secret) && !log.contains(&key), "{log}");
}

#[tokio::test]
async fn key_of_a_provider_is_redacted_in_results() {
    let key = "key-of-the-provider-12";
    let script = Script::new().turns([call("read_file", json!({ "path": "notes.txt" })), reply("{results}")]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), key).unwrap();
    let builder = Brigade::builder().provider(OpenAi::new(key)).custom_model("script", script.model());
    let result = builder.workspace(folder.path()).build().unwrap().run("x").await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "[redacted: configured secret]");
}

#[test]
fn model_and_workspace_are_required() {
    let folder = tempfile::tempdir().unwrap();
    let build = |builder: BrigadeBuilder| builder.build().err().unwrap();
    let error = build(Brigade::builder().workspace(folder.path()));
    assert!(matches!(error, BuildError::NoModel), "{error}");
    assert_eq!(
        error.to_string(),
        "cannot build the runtime: no model is set. Set one with `model` or `custom_model`."
    );
    let error = build(Brigade::builder().model(Anthropic::new("sk-1")).workspace(folder.path()));
    assert!(matches!(&error, BuildError::NoModelName(name) if name == "anthropic"), "{error}");
    let error = build(Brigade::builder().custom_model("script", one().model()));
    assert!(matches!(error, BuildError::NoWorkspace), "{error}");
    let missing = folder.path().join("missing");
    let error = build(Brigade::builder().custom_model("script", one().model()).workspace(&missing));
    assert!(matches!(&error, BuildError::NotAWorkspace(path) if *path == missing), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot open the workspace {}: it does not exist or is not a directory. Choose an existing directory.",
            missing.display()
        )
    );
}

#[test]
fn agents_have_valid_and_different_ids() {
    let agent = |id: &str| Agent::new(id, "Reads.");
    for ids in [["reader", "reader"], ["reader", "lead"]] {
        let error = error(|builder| builder.agent(agent(ids[0])).agent(agent(ids[1])));
        assert!(matches!(&error, BuildError::DuplicateAgent(id) if id == ids[1]), "{error}");
    }
    for id in ["", "My Agent", "../x"] {
        let error = error(|builder| builder.agent(agent(id)));
        assert!(matches!(&error, BuildError::AgentId(wrong) if wrong == id), "{error}");
    }
}

#[test]
fn names_of_tools_and_models_must_exist() {
    let error1 = error(|builder| builder.agent(Agent::new("reader", "Reads.").tools(["read_file", "gerp"])));
    assert!(matches!(&error1, BuildError::UnknownTool { tool, .. } if tool == "gerp"), "{error1}");
    assert!(
        error1
            .to_string()
            .starts_with("cannot use the tool 'gerp' of the agent 'reader': it does not exist."),
        "{error1}"
    );
    let error2 = error(|builder| builder.deny("raed_file"));
    assert!(matches!(&error2, BuildError::UnknownTool { tool, .. } if tool == "raed_file"), "{error2}");
    // Rules match exact names, so a rule with the name of another program would protect nothing.
    for (rule, instead) in [("bash(rm *)", "`shell(rm *)`"), ("edit", "`edit_file`"), ("web", "")] {
        let error = error(|builder| builder.deny(rule));
        assert!(matches!(&error, BuildError::UnknownTool { .. }), "{error}");
        assert!(error.to_string().contains(instead), "{error}");
    }
    let error3 = error(|builder| builder.agent(Agent::new("reader", "Reads.").model("openai/gpt-5")));
    assert!(matches!(&error3, BuildError::Model { .. }), "{error3}");
    let error4 = error(|builder| builder.fallback("openai/gpt-5"));
    assert!(matches!(&error4, BuildError::Model { .. }), "{error4}");
    let (builder, _folder) = builder(one());
    let agent = Agent::new("reader", "Reads.").model("openai/gpt-5").tools(["Read", "own", "mcp__git__*"]);
    let built =
        builder.provider(OpenAi::new("sk-1")).tool(Own).agent(agent).fallback("openai/gpt-5-mini").build();
    assert!(built.is_ok(), "{:?}", built.err());
}

#[test]
fn tools_have_valid_and_different_names() {
    let error1 = error(|builder| builder.tool(Own).tool(Own));
    assert!(matches!(&error1, BuildError::DuplicateTool(name) if name == "own"), "{error1}");
    for error in [error(|builder| builder.tool(Delegate)), error(|builder| builder.tool(Loud))] {
        assert!(matches!(&error, BuildError::ToolName(_)), "{error}");
    }
}

#[test]
fn invalid_budgets_rules_and_folders_are_errors() {
    for usd in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
        let error = error(|builder| builder.budget(Budget::usd(usd)));
        assert!(matches!(error, BuildError::Budget(_)), "{error}");
    }
    let error1 = error(|builder| builder.allow("shell("));
    assert!(matches!(error1, BuildError::Rule { .. }), "{error1}");
    let error2 = error(|builder| builder.agents_from("/nonexistent/agents"));
    assert!(matches!(error2, BuildError::AgentFolder(_)), "{error2}");
}

#[test]
fn invalid_providers_are_errors_without_the_key() {
    let key = "sk-planted-0123456789abcdef";
    let invalid = OpenAi::new(key).model("m").base_url("localhost:80");
    let error1 = error(|builder| builder.model(invalid));
    assert!(matches!(error1, BuildError::Provider(_)), "{error1}");
    let error2 = error(|builder| builder.model(Anthropic::new(format!("{key}\n")).model("m")));
    assert!(matches!(error2, BuildError::Provider(_)), "{error2}");
    let error3 = error(|builder| builder.provider(OpenAi::new(key)).provider(OpenAi::new(key)));
    assert!(matches!(&error3, BuildError::DuplicateProvider(name) if name == "openai"), "{error3}");
    let error4 = error(|builder| builder.provider(OpenAi::new(key).name("a/b")));
    assert!(matches!(error4, BuildError::ProviderName(_)), "{error4}");
    for error in [error1, error2, error3, error4] {
        assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
    }
    let (builder, _folder) = builder(one());
    let two =
        builder.provider(OpenAi::new(key)).provider(OpenAi::new(key).name("work")).provider(Ollama::new());
    assert!(two.build().is_ok());
}

#[tokio::test]
async fn limits_of_the_budget_that_are_not_named_keep_their_defaults() {
    let (builder, _folder) = builder(one());
    let brigade = builder.budget(Budget::usd(2.50)).build().unwrap();
    let budget = brigade.runtime().settings().budget;
    assert_eq!(budget.usd, brigade::core::Limit::AtMost(2_500_000_000));
    assert_eq!(
        (budget.tokens, budget.agents),
        (brigade::DEFAULT_BUDGET.tokens, brigade::DEFAULT_BUDGET.agents)
    );
}

fn asks() -> Script {
    Script::new().turns([call("own", json!({})), reply("{result:0}")])
}

#[tokio::test]
async fn user_can_approve_a_call_while_the_events_are_read() {
    for (answer, expected) in [(Answer::Once, "ran"), (Answer::Deny { word: None }, "denied")] {
        let (builder, _folder) = builder(asks());
        let brigade = builder.tool(Own).approvals(ApprovalPolicy::AskUser).build().unwrap();
        let mut run = brigade.run("Use the tool");
        while let Some(event) = run.next().await {
            if let RunEvent::Record(record) = &event
                && let Event::Asked { call, .. } = &record.event
            {
                let run = run.started().await.unwrap();
                run.answer(&record.session, *call, answer.clone(), "a test").await.unwrap();
            }
        }
        let result = run.await.unwrap();
        assert!(result.text().contains(expected), "{}", result.text());
    }
}

#[tokio::test]
async fn mode_decides_which_calls_need_an_approval() {
    for (mode, expected) in [(Mode::Auto, "ran"), (Mode::Edit, "approval"), (Mode::Plan, "plan")] {
        let (builder, _folder) = builder(asks());
        let result = builder.tool(Own).mode(mode).build().unwrap().run("Use the tool").await.unwrap();
        assert!(result.text().contains(expected), "{mode}: {}", result.text());
    }
}

#[tokio::test]
async fn session_is_resumed_by_another_process_from_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let build = |script: Script| {
        let store = SqliteStore::open(&folder.path().join("sessions.db")).unwrap();
        let builder = Brigade::builder().custom_model("script", script.model()).workspace(folder.path());
        builder.store(Arc::new(store)).build().unwrap()
    };
    let session = build(one()).run("Count").await.unwrap().session;
    let second = build(Script::new().reply(reply("after {heard}").turn(2)));
    second.runtime().tell(&session, "one").await.unwrap();
    assert_eq!(second.resume(&session).await.unwrap().text(), "after one");
}

#[tokio::test]
async fn run_that_cannot_start_has_no_events_and_returns_the_error() {
    let (builder, _folder) = builder(one());
    let brigade = builder.build().unwrap();
    let mut run = brigade.run("  ");
    assert!(run.next().await.is_none());
    assert!(matches!(run.started().await.map(|_| ()), Err(RunError::EmptyTask)));
    assert!(matches!(run.await, Err(RunError::EmptyTask)));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "programs that use the library spawn tasks with tokio")]
async fn runs_can_be_spawned_and_share_a_brigade() {
    let (builder, _folder) = builder(one());
    let brigade = builder.build().unwrap();
    let spawn = |brigade: Brigade| tokio::task::spawn(async move { brigade.run("Count").await });
    let (first, second) = (spawn(brigade.clone()), spawn(brigade));
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!((first.text(), second.text()), ("one", "one"));
    assert_ne!(first.session, second.session);
}

#[tokio::test]
async fn options_of_a_task_apply_to_one_run() {
    let (builder, _folder) = builder(asks());
    let brigade = builder.tool(Own).allow("own").build().unwrap();
    let result = brigade.run(Task::new("Use the tool").turns(1)).await.unwrap();
    assert!(matches!(result.outcome.status, Status::Incomplete { .. }), "{:?}", result.outcome);
    assert_eq!(brigade.run(String::from("Use the tool")).await.unwrap().outcome.status, Status::Done);
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn agent_files_are_loaded_and_their_problems_reported() {
    let script = Script::new()
        .agent("lead", [call("subagent_dispatch", json!({ "agent_id": "poet", "task": "Write." })).turn(1)])
        .agent("poet", [reply("A verse.")])
        .reply("{result:0}");
    let files = tempfile::tempdir().unwrap();
    put(
        &files.path().join("poet/AGENT.md"),
        "---\nname: Poet\ndescription: Writes verse.\n---\nYou write verse.\n",
    );
    put(&files.path().join("broken/AGENT.md"), "---\nname: [\n---\nx\n");
    let (builder, _folder) = builder(script);
    let brigade = builder.agents_from(files.path()).delegation([DelegationStyle::Dispatch]).build().unwrap();
    assert_eq!(brigade.agent_problems().len(), 1, "{:?}", brigade.agent_problems());
    let result = brigade.run("Write").await.unwrap();
    assert!(result.text().contains("A verse."), "{}", result.text());
    let error = error(|builder| builder.agents_from(files.path()).agent(Agent::new("poet", "Another.")));
    assert!(matches!(error, BuildError::DuplicateAgent(_)), "{error}");
}

struct Count(Arc<AtomicUsize>);

impl Observer for Count {
    fn observe(&mut self, observation: Observation) {
        if let Observation::ModelRequest(_) = observation {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(100, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn observer_and_configure_change_the_settings() {
    let count = Arc::new(AtomicUsize::new(0));
    let (builder, _folder) = builder(one());
    let builder = builder.observer(Count(count.clone())).configure(|settings| settings.limits.lead_turns = 7);
    let brigade = builder.build().unwrap();
    assert_eq!(brigade.runtime().settings().limits.lead_turns, 7);
    brigade.run("Count").await.unwrap();
    drop(brigade);
    while count.load(Ordering::SeqCst) < 100 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 101);
}
