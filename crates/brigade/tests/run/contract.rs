//! The parts of contracts B, C and D that need a run. A test named `c` and a number covers that point of the
//! checklist.

mod crash;
mod ends;
mod equipment;
mod events;
mod prompts;
mod stories;
mod subagent;

use std::sync::{Arc, Mutex};

use brigade::core::delegation_styles::spawn::SpawnConfig;
use brigade::core::delegation_styles::subagent::SubagentConfig;
use brigade::core::{Agent, Cursor, Event, Purpose, Record, SessionId, view};
use brigade::lifecycle::{Lifecycle, Observer};
use brigade::model::script::Script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use futures::stream::BoxStream;
use serde_json::{Value, json};

use crate::run::support::{check_laws, end};

fn script(replies: &[Value]) -> String {
    json!({ "reply": replies }).to_string()
}

/// A reply with calls.
fn calls(agent: &str, turn: u32, calls: &[(&str, Value)]) -> Value {
    let call = |(tool, arguments): &(&str, Value)| json!({ "tool": tool, "arguments": arguments });
    json!({ "agent": agent, "turn": turn, "call": calls.iter().map(call).collect::<Vec<_>>() })
}

/// Default reply of an agent.
fn says(agent: &str, text: &str) -> Value {
    json!({ "agent": agent, "text": text })
}

/// Summary of a `subagent` child.
fn reports(agent: &str, text: &str) -> Value {
    json!({ "agent": agent, "purpose": "summary", "text": text })
}

fn helper(label: &str) -> (&'static str, Value) {
    ("subagent", json!({ "label": label, "task_prompt": "go" }))
}

fn dispatch(id: &str) -> (&'static str, Value) {
    ("subagent_dispatch", json!({ "agent_id": id, "task": "go" }))
}

fn spawn(description: &str) -> (&'static str, Value) {
    ("subagent_spawn", json!({ "task": "go", "description": description }))
}

/// One call for each of the styles B, C and D, for a child with this name.
fn call_each_style(name: &str) -> [(&'static str, Value); 3] {
    [helper(name), dispatch(name), spawn(name)]
}

fn agent(id: &str) -> Agent {
    Agent {
        id: id.to_owned(),
        name: id.to_owned(),
        description: format!("Does {id}"),
        prompt: format!("You are {id}."),
        ..Agent::default()
    }
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn enable_all_styles(settings: &mut Settings) {
    settings.delegation_styles.subagent = Some(SubagentConfig::default());
    settings.delegation_styles.spawn = Some(SpawnConfig::default());
}

/// A request as a model received it.
#[derive(Debug, Clone)]
struct SeenRequest {
    /// Provider that received it.
    provider: &'static str,
    instance: usize,
    agent: String,
    role: Option<String>,
    model: String,
    purpose: Purpose,
    tools: Vec<String>,
    system: String,
    max_tokens: u64,
    temperature: Option<f64>,
}

/// Scripted model that records its requests.
struct RecordingModel {
    provider: &'static str,
    script: Script,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl Model for RecordingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        assert_ne!(request.agent, "panics", "as it was told to");
        self.seen.lock().unwrap().push(SeenRequest {
            provider: self.provider,
            instance: std::ptr::from_ref(self).addr(),
            agent: request.agent.clone(),
            role: request.role.clone(),
            model: request.model.clone(),
            purpose: request.purpose,
            tools: request.tools.iter().map(|spec| spec.name.clone()).collect(),
            system: request.system.to_string(),
            max_tokens: request.max_tokens,
            temperature: request.temperature,
        });
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}

/// A runtime with two providers, `one` and `two`, all delegation styles, and a record of all requests.
struct ContractHarness {
    runtime: Runtime,
    folder: tempfile::TempDir,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl ContractHarness {
    fn new(replies: &[Value]) -> ContractHarness {
        ContractHarness::with(replies, |_| {})
    }

    fn with(replies: &[Value], tweak: impl Fn(&mut Settings)) -> ContractHarness {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new("one/base", Workspace::open(folder.path()).unwrap());
        enable_all_styles(&mut settings);
        tweak(&mut settings);
        let seen = Arc::<Mutex<Vec<SeenRequest>>>::default();
        let probe = |provider| RecordingModel {
            provider,
            script: Script::parse(&script(replies)).unwrap(),
            seen: seen.clone(),
        };
        let models = Models::default().with("one", probe("one")).with("two", probe("two"));
        ContractHarness { runtime: Runtime::in_memory(settings, models), folder, seen }
    }

    async fn run(&self) -> RunResult {
        self.run_task(Task::new("the task")).await
    }

    async fn run_task(&self, task: Task) -> RunResult {
        let result = end(self.runtime.start(task).await.unwrap()).await.unwrap();
        check_laws(&self.log(&result.session).await);
        result
    }

    async fn log(&self, root: &SessionId) -> Vec<Record> {
        self.runtime.store().tail(root, Cursor::START, usize::MAX).await.unwrap()
    }

    async fn tree(&self, root: &SessionId) -> view::Tree {
        view::Tree::fold(&self.log(root).await)
    }

    /// Results of the calls of a session, in call order.
    async fn answers(&self, session: &SessionId) -> Vec<String> {
        let records = self.runtime.store().read(session, 0).await.unwrap();
        let mut answers: Vec<_> = records
            .into_iter()
            .filter_map(|record| match record.event {
                Event::ToolEnded { call, output, .. } => Some((call, output.text.to_string())),
                _ => None,
            })
            .collect();
        answers.sort_by_key(|(call, _)| *call);
        answers.into_iter().map(|(_, text)| text).collect()
    }

    /// Requests of an agent.
    fn requests(&self, agent: &str) -> Vec<SeenRequest> {
        let seen = self.seen.lock().unwrap();
        let is_of = |seen: &&SeenRequest| seen.agent == agent || seen.role.as_deref() == Some(agent);
        seen.iter().filter(is_of).cloned().collect()
    }

    /// Runs the task and returns the lifecycle events of its sub-agents.
    async fn run_with_events(&self) -> (RunResult, Vec<Lifecycle>) {
        let mut run = self.runtime.start(Task::new("the task")).await.unwrap();
        let (mut watch, mut observer, mut events) = (run.take_events(), Observer::new(), Vec::new());
        while let Some(live) = watch.next().await {
            events.extend(observer.observe(&live));
        }
        (end(run).await.unwrap(), events)
    }
}

/// The only session with this label.
fn session_of(tree: &view::Tree, label: &str) -> SessionId {
    let mut found = tree.nodes().values().filter(|node| node.label == label);
    let node = found.next().unwrap();
    assert!(found.next().is_none(), "{label} is there twice");
    node.session.clone()
}
