//! Skills and project instructions: discovery, availability to agents, and the text that reaches the model.

mod discovery;
mod instructions;
mod runs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::{Event, SessionId};
use brigade::model::script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::{Models, Runtime, Settings, Skills, Store, Task, Workspace};
use brigade_testing::Script;
use futures::stream::BoxStream;

/// Folder for skills, and a workspace.
pub(crate) struct SkillHarness(tempfile::TempDir);

impl SkillHarness {
    pub(crate) fn new() -> SkillHarness {
        let harness = SkillHarness(tempfile::tempdir().unwrap());
        for name in ["skills", "work"] {
            std::fs::create_dir(harness.path(name)).unwrap();
        }
        harness
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &SkillHarness {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Creates a named pipe; opening it blocks until the other end is opened.
    pub(crate) fn pipe(&self, path: &str) {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, self.path(path), kind, mode, 0).unwrap();
    }

    /// Writes a skill into the folder.
    pub(crate) fn skill(&self, name: &str, description: &str, body: &str) -> &SkillHarness {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}\n");
        self.put(&format!("skills/{name}/SKILL.md"), text)
    }

    /// Returns the skills found, and the problems with the rest.
    pub(crate) fn discover(&self) -> (Skills, Vec<String>) {
        let (skills, problems) = Skills::discover(&[self.path("skills")]);
        (skills, problems.iter().map(ToString::to_string).collect())
    }

    pub(crate) fn skills(&self) -> Skills {
        let (skills, problems) = self.discover();
        assert_eq!(problems, Vec::<String>::new());
        skills
    }

    /// Runs a script and returns the finished run.
    pub(crate) async fn run(&self, script: Script, tweak: impl FnOnce(&mut Settings)) -> FinishedRun {
        let store = Arc::new(MemoryStore::new());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let model = RecordingModel { script: script.model(), requests: requests.clone() };
        let mut settings = Settings::new("script", Workspace::open(Path::new(&self.path("work"))).unwrap());
        tweak(&mut settings);
        let runtime = Runtime::new(store.clone(), settings, Models::default().with("script", model));
        let run = runtime.start(Task::new("the task")).await.unwrap();
        let ending = tokio::time::timeout(Duration::from_secs(20), run.result()).await.unwrap().unwrap();
        let requests = std::mem::take(&mut *requests.lock().unwrap());
        FinishedRun { session: ending.session, store, requests }
    }
}

pub(crate) struct FinishedRun {
    session: SessionId,
    store: Arc<MemoryStore>,
    requests: Vec<Request>,
}

impl FinishedRun {
    /// Returns the results of the lead's tool calls.
    pub(crate) async fn tool_outputs(&self) -> Vec<String> {
        let records = self.store.read(&self.session, 0).await.unwrap();
        let mut tool_outputs: Vec<_> = records
            .into_iter()
            .filter_map(|record| match record.event {
                Event::ToolEnded { call, output, .. } => Some((call, output.text.to_string())),
                _ => None,
            })
            .collect();
        tool_outputs.sort_by_key(|(call, _)| *call);
        tool_outputs.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the first request of a role, or of the lead.
    pub(crate) fn request(&self, who: &str) -> &Request {
        let is = |request: &&Request| request.role.as_deref().unwrap_or(&request.agent) == who;
        self.requests.iter().find(is).unwrap()
    }

    /// Returns the tools in the first request of a role, or of the lead.
    pub(crate) fn offered(&self, who: &str) -> Vec<&str> {
        self.request(who).tools.iter().map(|spec| spec.name.as_str()).collect()
    }
}

/// Scripted model that records its requests.
struct RecordingModel {
    script: script::Script,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Model for RecordingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        self.requests.lock().unwrap().push(request.clone());
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}
