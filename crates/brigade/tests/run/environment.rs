//! The environment block in the lead's prompt: recorded when the session starts, and identical in every later
//! request.

use std::sync::{Arc, Mutex};

use brigade::core::delegation::Environment;
use brigade::core::permission::Mode;
use brigade::core::{Event, SessionId};
use brigade::model::script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::{ModeOrigin, Models, ResumeOptions, Runtime, Settings, Task, Workspace};
use brigade_testing::{Script, delegate};
use futures::stream::BoxStream;

use crate::run::support::{CrashStore, dead_owner, end};

fn one_child() -> Script {
    Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("done")
}

/// System prompts that a model received, each with the agent.
type Prompts = Arc<Mutex<Vec<(String, String)>>>;

struct RecordingModel {
    script: script::Script,
    prompts: Prompts,
}

impl Model for RecordingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let who = request.role.clone().unwrap_or_else(|| request.agent.clone());
        self.prompts.lock().unwrap().push((who, request.system.to_string()));
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    store: Arc<CrashStore>,
    prompts: Prompts,
}

impl Fixture {
    fn new() -> Fixture {
        let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
        Fixture { folder: tempfile::tempdir().unwrap(), store, prompts: Prompts::default() }
    }

    /// A process on a given day, in a repository with this state.
    fn process(&self, date: &str, git: &str, mode: Mode) -> Runtime {
        let mut settings = Settings::new("script", Workspace::open(self.folder.path()).unwrap());
        settings.permissions.mode = mode;
        settings.mode_origin = ModeOrigin::Configuration;
        settings.instructions = Some("Use tabs.".into());
        settings.environment =
            Some(Environment { system: "linux".into(), date: date.into(), git: Some(git.into()) });
        let model = RecordingModel { script: one_child().model(), prompts: self.prompts.clone() };
        let runtime = Runtime::new(self.store.clone(), settings, Models::default().with("script", model));
        runtime.with_owner(dead_owner())
    }

    fn lead_prompts(&self) -> Vec<String> {
        let prompts = std::mem::take(&mut *self.prompts.lock().unwrap());
        prompts.into_iter().filter(|(who, _)| who == "lead").map(|(_, system)| system).collect()
    }

    async fn recorded(&self, session: &SessionId) -> Vec<Option<Box<Environment>>> {
        let records = self.store.inner.read(session, 0).await.unwrap();
        let rounds = records.into_iter().filter_map(|record| match record.event {
            Event::Started { delegation, .. } => Some(delegation.environment.clone()),
            _ => None,
        });
        rounds.collect()
    }
}

#[tokio::test]
async fn environment_block_is_in_the_prompt_of_the_lead_only() {
    let fixture = Fixture::new();
    let run = fixture.process("2026-11-17", "branch main, clean", Mode::Edit).start(Task::new("x")).await;
    end(run.unwrap()).await.unwrap();
    let prompts = std::mem::take(&mut *fixture.prompts.lock().unwrap());
    let (_, lead) = prompts.iter().find(|(who, _)| who == "lead").unwrap();
    let (_, helper) = prompts.iter().find(|(who, _)| who == "Helper").unwrap();
    let folder = fixture.folder.path().canonicalize().unwrap();
    let block = format!(
        "\n\n# Environment (as of the start of this session)\n\n\
         Working directory: {}\nSystem: linux\nDate: 2026-11-17\nGit: branch main, clean\n\
         Permission mode: edit (edits are allowed; commands outside a sandbox need approval)\n\n# Project instructions",
        folder.display()
    );
    assert!(lead.contains(&block), "{lead}");
    assert!(lead.ends_with("\n\nUse tabs.\n"), "{lead}");
    assert!(!helper.contains("# Environment") && helper.contains("Use tabs."), "{helper}");
}

/// Providers cache the prefix of a request, so a conversation must not change its own beginning.
#[tokio::test]
async fn later_rounds_of_a_session_send_the_same_prompt() {
    let fixture = Fixture::new();
    let first = fixture.process("2026-11-17", "branch main, clean", Mode::Edit);
    let session = end(first.start(Task::new("x")).await.unwrap()).await.unwrap().session;
    let then = fixture.lead_prompts();
    for git in ["branch main, 3 files changed", "branch other, clean"] {
        let later = fixture.process("2026-11-17", git, Mode::Edit);
        later.tell(&session, "more").await.unwrap();
        end(later.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
        assert_eq!(fixture.lead_prompts().last(), then.last());
    }
    // On a new day the block changes. No cache lives that long.
    let next = fixture.process("2026-11-18", "branch other, clean", Mode::Edit);
    next.tell(&session, "more").await.unwrap();
    end(next.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    let told = fixture.lead_prompts().pop().unwrap();
    assert!(told.contains("Date: 2026-11-18\nGit: branch other, clean"), "{told}");
    let dates: Vec<String> =
        fixture.recorded(&session).await.into_iter().map(|recorded| recorded.unwrap().date).collect();
    assert_eq!(dates, ["2026-11-17", "2026-11-17", "2026-11-17", "2026-11-18"]);
}

#[tokio::test]
async fn round_that_is_resumed_after_a_crash_keeps_its_prompt() {
    for appends in 1..6 {
        let fixture = Fixture::new();
        fixture.store.crash_after(appends);
        let first = fixture.process("2026-11-17", "branch main, clean", Mode::Edit);
        let run = first.start(Task::new("x")).await.unwrap();
        let session = run.session().clone();
        end(run).await.unwrap_err();
        let then = fixture.lead_prompts();
        fixture.store.repair();
        let second = fixture.process("2026-11-18", "branch other, clean", Mode::Edit);
        end(second.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
        let now = fixture.lead_prompts();
        assert!(!now.is_empty());
        for prompt in then.iter().chain(&now) {
            assert!(prompt.contains("Date: 2026-11-17\nGit: branch main, clean"), "{appends}: {prompt}");
            assert_eq!(prompt, now.last().unwrap());
        }
    }
}

#[tokio::test]
async fn mode_in_the_prompt_is_the_one_in_force() {
    let fixture = Fixture::new();
    let first = fixture.process("2026-11-17", "branch main, clean", Mode::Auto);
    let session = end(first.start(Task::new("x")).await.unwrap()).await.unwrap().session;
    assert!(fixture.lead_prompts().pop().unwrap().contains("Permission mode: auto"));
    first.tell(&session, "more").await.unwrap();
    let more = ResumeOptions { mode: Some(Mode::Plan), ..ResumeOptions::default() };
    end(first.resume(&session, more).await.unwrap()).await.unwrap();
    assert!(fixture.lead_prompts().pop().unwrap().contains("Permission mode: plan"));
}

#[tokio::test]
async fn without_an_environment_the_prompt_and_the_log_have_no_block() {
    let fixture = Fixture::new();
    let runtime = fixture.process("x", "y", Mode::Edit);
    let settings = Settings { environment: None, ..runtime.settings().clone() };
    let run = runtime.with_settings(settings).start(Task::new("x")).await.unwrap();
    let session = end(run).await.unwrap().session;
    assert!(!fixture.lead_prompts().pop().unwrap().contains("# Environment"));
    assert_eq!(fixture.recorded(&session).await, [None]);
}
