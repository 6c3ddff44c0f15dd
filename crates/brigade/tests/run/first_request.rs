//! Size of the first request of an agent: what every session costs before it does anything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::{SessionId, ToolSpec};
use brigade::model::script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::tool::{Memory, ShellSettings, WebSettings};
use brigade::{Models, Runtime, Settings, Task, Workspace};
use brigade_sandbox::GuardCommand;
use brigade_testing::{Script, delegate};
use futures::stream::BoxStream;

use crate::run::support::end;

fn one_child() -> Script {
    Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("done")
}

/// System prompt and tools of a request.
struct Fixed {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
}

impl Fixed {
    /// Tokens that the rate limiter expects for these bytes, with the JSON around each tool of an OpenAI request.
    fn tokens(&self) -> usize {
        let envelope = r#"{"type":"function","function":{"name":"","description":"","parameters":}},"#.len();
        let tools: usize = self.tools.iter().map(|spec| spec.bytes() + envelope).sum();
        (self.system.len() + tools).div_ceil(4)
    }

    /// A line for the system prompt and one for each tool, for the message of a failed assertion.
    fn breakdown(&self) -> String {
        let tools = self.tools.iter().map(|spec| format!("{:5} {}", spec.bytes() / 4, spec.name));
        let lines = [format!("{:5} system prompt", self.system.len() / 4)].into_iter().chain(tools);
        lines.collect::<Vec<_>>().join("\n")
    }
}

type Requests = Arc<Mutex<Vec<(SessionId, Fixed)>>>;

struct RecordingModel {
    script: script::Script,
    requests: Requests,
}

impl Model for RecordingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let fixed = Fixed { system: request.system.clone(), tools: request.tools.clone() };
        self.requests.lock().unwrap().push((request.session.clone(), fixed));
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}

/// First requests of a lead and of its `delegate` child, with the tools that the program offers by default.
async fn first_requests() -> (Fixed, Fixed) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
    settings.tools = settings
        .tools
        .with_web(WebSettings::default())
        .with_memory(Memory::at(&folder.path().join("memory.db")));
    settings.shell = Some(ShellSettings {
        guard: GuardCommand { program: "/bin/false".into(), arguments: Vec::new() },
        directory: folder.path().to_owned(),
        environment: Vec::new(),
        time_limit: Duration::from_secs(1),
        output_limit: 1_000,
    });
    let requests = Requests::default();
    let model = RecordingModel { script: one_child().model(), requests: requests.clone() };
    let runtime =
        Runtime::new(Arc::new(MemoryStore::new()), settings, Models::default().with("script", model));
    end(runtime.start(Task::new("x")).await.unwrap()).await.unwrap();
    let mut requests = std::mem::take(&mut *requests.lock().unwrap()).into_iter();
    let (root, lead) = requests.next().unwrap();
    let child = requests.find(|(session, _)| *session != root).unwrap().1;
    (lead, child)
}

#[tokio::test]
async fn first_request_of_a_lead_stays_within_1400_tokens() {
    let (lead, _) = first_requests().await;
    println!("lead: {} tokens, {} tools\n{}", lead.tokens(), lead.tools.len(), lead.breakdown());
    assert!(lead.tokens() <= 1_400, "{} tokens\n{}", lead.tokens(), lead.breakdown());
}

#[tokio::test]
async fn first_request_of_a_child_stays_within_1200_tokens() {
    let (_, child) = first_requests().await;
    println!("child: {} tokens, {} tools\n{}", child.tokens(), child.tools.len(), child.breakdown());
    assert!(child.tokens() <= 1_200, "{} tokens\n{}", child.tokens(), child.breakdown());
}
