//! `brigade run`: runs one task and prints its result.

mod input;

use std::path::{Path, PathBuf};

use brigade::agents::LoadError;
use brigade::{AgentCatalog, ResultSchema, Run, RunError, Runtime, Task};
use brigade_core::{Agent, Backend};

use super::resume::{self, ResumeArgs};
use super::tell::{self, AfterDelivery, TellArgs};
use crate::args::{Flags, Global};
use crate::error::{CliError, Exit};
use crate::follow::{self, Console, RunView, Signals};
use crate::model_hints;
use crate::progress::Progress;
use crate::sanitize;
use crate::session_ref;
use crate::settings::{LEAD_AGENT, Settings};
use crate::setup;
use crate::summary;

use input::TaskNeed;

const HELP: &str = "\
Examples:
  brigade run \"Fix the tests\"                     quotes protect special characters
  brigade run -m ollama/qwen3 --mode plan < task.txt
  git diff | brigade run \"Review this change\"     standard input is appended to the task
  brigade run -c \"Now update the changelog\"       continue the last session with another task
  brigade run -r ID                               continue any session, like brigade resume
  brigade run --json-schema report.json \"Count the TODO comments\" | jq .count

Without a terminal, the command waits for the first byte of standard input, at most 3
seconds if there is a task. Add < /dev/null to skip the wait. With --json-schema, standard
output is JSON that matches the schema, or empty. If a result does not match, the model
is asked to correct it before the run fails.";

/// Run one task with the lead agent and print its result
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RunArgs {
    /// Task; standard input is appended to it, or is the task if the argument is absent or `-`
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Continue this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    /// JSON Schema that the result must match: a file, or inline JSON that begins with {
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["last", "resume"])]
    pub(crate) json_schema: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Task of a new session, and the schema for its result.
pub(crate) struct TaskInput {
    text: String,
    schema: Option<ResultSchema>,
}

impl TaskInput {
    /// Task without a schema.
    pub(crate) fn new(text: &str) -> TaskInput {
        TaskInput { text: text.to_owned(), schema: None }
    }
}

/// Runs the command.
pub(crate) fn run(global: Global, run: RunArgs) -> Result<Exit, CliError> {
    if run.last || run.resume.is_some() {
        return continue_session(global, run);
    }
    // Errors in the schema are reported before anything is read or started.
    let schema = run.json_schema.as_deref().map(schema).transpose()?;
    let Some(text) = input::task(&run.task, TaskNeed::Required)? else {
        return Err(CliError::usage(
            "no task was given. Pass it as an argument: brigade run \"TASK\", or pipe it in.",
        ));
    };
    let settings = Settings::load_for_run(&global, &run.flags)?;
    start(&global, &run.flags, &settings, &TaskInput { text, schema })
}

/// Continues a session: with the task as the next message, or as `resume` does if there is no task.
fn continue_session(global: Global, run: RunArgs) -> Result<Exit, CliError> {
    let RunArgs { task, resume, flags, .. } = run;
    let text = input::task(&task, TaskNeed::Optional)?;
    let id = match resume {
        Some(id) => id,
        None => {
            let user_settings = Settings::load_user_only(&global)?;
            let store = setup::open_store(&user_settings)?;
            let folder = user_settings.environment.absolute(flags.cwd.as_deref().unwrap_or(Path::new(".")));
            let last = session_ref::last_in_folder(&*store, &folder, "brigade run \"TASK\"");
            setup::current_thread_runtime()?.block_on(last)?.to_string()
        }
    };
    match text {
        Some(text) => tell::deliver(global, TellArgs { id, text: vec![text], flags }, AfterDelivery::Follow),
        None => resume::run(global, ResumeArgs { id: Some(id), flags }),
    }
}

/// The schema in a file, or in the argument itself if that begins as a JSON object does.
fn schema(given: &Path) -> Result<ResultSchema, CliError> {
    let shown = sanitize::path(given);
    let text = match given.to_str().filter(|text| text.trim_start().starts_with('{')) {
        Some(json) => json.to_owned(),
        None => std::fs::read_to_string(given)
            .map_err(|error| CliError::usage(format!("cannot read the schema {shown}: {error}")))?,
    };
    ResultSchema::parse(&text).map_err(|error| {
        CliError::usage(format!("cannot use the schema {shown}: {}.", sanitize::line(&error.to_string())))
    })
}

/// Starts a task with complete settings.
pub(crate) fn start(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    assignment: &TaskInput,
) -> Result<Exit, CliError> {
    setup::multi_thread_runtime()?.block_on(async {
        // Before the session exists, an interrupt just ends the command and its servers.
        let servers = setup::start_mcp_servers(settings).await?;
        let store = setup::open_store(settings)?;
        let signals = Signals::listen(store.clone())?;
        let runtime = setup::runtime(settings, store, &servers).await?;
        let run = start_session(&runtime, settings, flags, assignment).await?;
        let view = RunView::new(run.session().clone());
        let mut progress = Progress::new(global, &settings.environment);
        let mut console = Console::new(global, flags, settings, &runtime, signals);
        let followed = follow::follow(&runtime, run, view, &mut progress, &mut console).await?;
        summary::finish(followed, global, &mut console).await
    })
}

/// Starts a new session with a task.
pub(super) async fn start_session(
    runtime: &Runtime,
    settings: &Settings,
    flags: &Flags,
    input: &TaskInput,
) -> Result<Run, CliError> {
    let task = new_task(runtime, settings, flags, input)?;
    runtime.start(task).await.map_err(|error| start_error(settings, error))
}

/// Task of a new session.
pub(super) fn new_task(
    runtime: &Runtime,
    settings: &Settings,
    flags: &Flags,
    TaskInput { text, schema }: &TaskInput,
) -> Result<Task, CliError> {
    let mut task = Task::new(text);
    if let Some(schema) = schema {
        task = task.schema(schema.clone());
    }
    let agent = selected_agent(settings, &runtime.settings().agents)?;
    if !has_model(settings, agent.as_ref()) {
        return Err(model_hints::no_model(settings, text));
    }
    if let Some(agent) = agent {
        task = task.agent(agent);
    }
    if let Some(timeout) = flags.timeout {
        task = task.timeout(timeout);
    }
    Ok(task)
}

/// Error of a session that could not be started.
pub(super) fn start_error(settings: &Settings, error: RunError) -> CliError {
    match error {
        RunError::Config(_) => match &settings.model {
            // Other parts of the configuration may be wrong, and an agent from a file may have its own model.
            Some(model) if settings.agent == LEAD_AGENT && setup::check_model(settings).is_err() => {
                model_hints::unusable_model(settings, model, error.into())
            }
            _ => error.into(),
        },
        other => other.into(),
    }
}

/// Whether a model is set: by the configuration, or by the agent for itself.
pub(super) fn has_model(settings: &Settings, agent: Option<&Agent>) -> bool {
    let is_set = |agent: &Agent| {
        agent.model.is_some() || agent.provider.is_some() || matches!(agent.backend, Backend::Acp(_))
    };
    settings.model.is_some() || agent.is_some_and(is_set)
}

/// Agent definition for the task; none for the built-in lead.
pub(super) fn selected_agent(settings: &Settings, agents: &AgentCatalog) -> Result<Option<Agent>, CliError> {
    if settings.agent == LEAD_AGENT {
        return Ok(None);
    }
    let known = agents.list().iter().map(|agent| agent.id.as_str()).chain([LEAD_AGENT]);
    // The name of a folder may differ from the id of its agent.
    let id = agents.resolve_id(&settings.agent).unwrap_or(&settings.agent);
    agents.load(id).map(Some).map_err(|error| match error {
        LoadError::NotFound(id) => CliError::usage(format!(
            "unknown agent '{}'. Available agents: {}. List them with: brigade agents list",
            sanitize::line(&id),
            known.collect::<Vec<_>>().join(", ")
        )),
        invalid => CliError::usage(invalid.to_string()),
    })
}
