//! The environment block in the prompt of the lead: recorded when the session begins, and the same in every later request.

use std::sync::{Arc, Mutex};

use brigade::core::delegation::Environment;
use brigade::core::permission::Mode;
use brigade::core::{Event, SessionId};
use brigade::model::script::Script;
use brigade::model::{About, Chunk, Model, ModelError, Request};
use brigade::store::memory::MemoryStore;
use brigade::{ModeOrigin, Models, More, Runtime, Settings, Task, Workspace};
use futures::stream::BoxStream;

use crate::support::{CrashStore, dead_holder, end};

const DELEGATE: &str = "
[[reply]]
agent = 'lead'
turn = 1
[[reply.call]]
tool = 'delegate'
arguments = { role = 'Helper', task = 'help' }
[[reply]]
text = 'done'
";

/// The system prompts that a model was sent, each with the agent.
type Prompts = Arc<Mutex<Vec<(String, String)>>>;

struct Recording {
    script: Script,
    prompts: Prompts,
}

impl Model for Recording {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let who = request.role.clone().unwrap_or_else(|| request.agent.clone());
        self.prompts.lock().unwrap().push((who, request.system.to_string()));
        self.script.stream(request)
    }

    fn about(&self, model: &str) -> About {
        self.script.about(model)
    }
}

struct World {
    folder: tempfile::TempDir,
    store: Arc<CrashStore>,
    prompts: Prompts,
}

impl World {
    fn new() -> World {
        let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
        World { folder: tempfile::tempdir().unwrap(), store, prompts: Prompts::default() }
    }

    /// A process on some day, in a repository with this state.
    fn process(&self, date: &str, git: &str, mode: Mode) -> Runtime {
        let mut settings = Settings::new("script", Workspace::open(self.folder.path()).unwrap());
        settings.permissions.mode = mode;
        settings.mode_origin = ModeOrigin::Configuration;
        settings.instructions = Some("Use tabs.".into());
        settings.environment =
            Some(Environment { system: "linux".into(), date: date.into(), git: Some(git.into()) });
        let model = Recording { script: Script::parse(DELEGATE).unwrap(), prompts: self.prompts.clone() };
        let runtime = Runtime::new(self.store.clone(), settings, Models::default().with("script", model));
        runtime.held_by(dead_holder())
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
async fn the_lead_is_told_where_it_works_and_its_children_are_not() {
    let world = World::new();
    let run = world.process("2026-11-17", "branch main, clean", Mode::Edit).start(Task::new("x")).await;
    end(run.unwrap()).await.unwrap();
    let prompts = std::mem::take(&mut *world.prompts.lock().unwrap());
    let (_, lead) = prompts.iter().find(|(who, _)| who == "lead").unwrap();
    let (_, helper) = prompts.iter().find(|(who, _)| who == "Helper").unwrap();
    let folder = world.folder.path().canonicalize().unwrap();
    let block = format!(
        "\n\n# Environment\n\nDate and git state are those of the moment when this session began.\n\n\
         Working folder: {}\nSystem: linux\nDate: 2026-11-17\nGit: branch main, clean\n\
         Permission mode: edit (files can be edited; commands need approval)\n\n# Instructions of the project",
        folder.display()
    );
    assert!(lead.contains(&block), "{lead}");
    assert!(lead.ends_with("\n\nUse tabs.\n"), "{lead}");
    assert!(!helper.contains("# Environment") && helper.contains("Use tabs."), "{helper}");
}

/// Providers reuse what they have cached of a request that begins alike, so a chat must not change its own beginning.
#[tokio::test]
async fn later_rounds_of_a_session_send_the_same_prompt() {
    let world = World::new();
    let first = world.process("2026-11-17", "branch main, clean", Mode::Edit);
    let session = end(first.start(Task::new("x")).await.unwrap()).await.unwrap().session;
    let then = world.lead_prompts();
    for git in ["branch main, 3 files changed", "branch other, clean"] {
        let later = world.process("2026-11-17", git, Mode::Edit);
        later.tell(&session, "more").await.unwrap();
        end(later.resume(&session, More::default()).await.unwrap()).await.unwrap();
        assert_eq!(world.lead_prompts().last(), then.last());
    }
    // A new day is a new beginning: nothing is cached that long.
    let next = world.process("2026-11-18", "branch other, clean", Mode::Edit);
    next.tell(&session, "more").await.unwrap();
    end(next.resume(&session, More::default()).await.unwrap()).await.unwrap();
    let told = world.lead_prompts().pop().unwrap();
    assert!(told.contains("Date: 2026-11-18\nGit: branch other, clean"), "{told}");
    let dates: Vec<String> =
        world.recorded(&session).await.into_iter().map(|recorded| recorded.unwrap().date).collect();
    assert_eq!(dates, ["2026-11-17", "2026-11-17", "2026-11-17", "2026-11-18"]);
}

#[tokio::test]
async fn a_round_that_is_resumed_after_a_crash_keeps_its_prompt() {
    for appends in 1..6 {
        let world = World::new();
        world.store.crash_after(appends);
        let first = world.process("2026-11-17", "branch main, clean", Mode::Edit);
        let run = first.start(Task::new("x")).await.unwrap();
        let session = run.session().clone();
        end(run).await.unwrap_err();
        let then = world.lead_prompts();
        world.store.mend();
        let second = world.process("2026-11-18", "branch other, clean", Mode::Edit);
        end(second.resume(&session, More::default()).await.unwrap()).await.unwrap();
        let now = world.lead_prompts();
        assert!(!now.is_empty());
        for prompt in then.iter().chain(&now) {
            assert!(prompt.contains("Date: 2026-11-17\nGit: branch main, clean"), "{appends}: {prompt}");
            assert_eq!(prompt, now.last().unwrap());
        }
    }
}

#[tokio::test]
async fn the_mode_in_the_prompt_is_the_one_in_force() {
    let world = World::new();
    let first = world.process("2026-11-17", "branch main, clean", Mode::Auto);
    let session = end(first.start(Task::new("x")).await.unwrap()).await.unwrap().session;
    assert!(world.lead_prompts().pop().unwrap().contains("Permission mode: auto"));
    first.tell(&session, "more").await.unwrap();
    let more = More { mode: Some(Mode::Plan), ..More::default() };
    end(first.resume(&session, more).await.unwrap()).await.unwrap();
    assert!(world.lead_prompts().pop().unwrap().contains("Permission mode: plan"));
}

#[tokio::test]
async fn without_an_environment_the_prompt_and_the_log_have_no_block() {
    let world = World::new();
    let runtime = world.process("x", "y", Mode::Edit);
    let settings = Settings { environment: None, ..runtime.settings().clone() };
    let run = runtime.with_settings(settings).start(Task::new("x")).await.unwrap();
    let session = end(run).await.unwrap().session;
    assert!(!world.lead_prompts().pop().unwrap().contains("# Environment"));
    assert_eq!(world.recorded(&session).await, [None]);
}
