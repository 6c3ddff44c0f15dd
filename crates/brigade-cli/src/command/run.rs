//! `brigade run`: one task, from the words to the result.

mod input;

use std::path::Path;

use brigade::agents::LoadError;
use brigade::{Catalogue, Prepared, ResultSchema, RunError, Runtime, Task};
use brigade_core::{Agent, Place};

use super::resume;
use super::tell::{self, Then};
use crate::args::{self, Flags, Global};
use crate::attention::Attention;
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::{self, Hints};
use crate::follow::{self, Interrupts, View};
use crate::named;
use crate::progress::Progress;
use crate::safe;
use crate::settings::{LEAD, Settings};
use crate::suggest;
use crate::terminal;

use input::Need;

/// Task of a new session, and the schema that its result has to fit.
pub(crate) struct Assignment {
    text: String,
    schema: Option<ResultSchema>,
}

impl Assignment {
    /// A task whose result is free.
    pub(crate) fn new(text: &str) -> Assignment {
        Assignment { text: text.to_owned(), schema: None }
    }
}

/// Runs it.
pub(crate) fn run(global: Global, run: args::Run) -> Result<Exit, Failure> {
    if run.last || run.resume.is_some() {
        return continued(global, run);
    }
    // What is wrong with the schema is said before anything is read or started.
    let schema = run.json_schema.as_deref().map(schema).transpose()?;
    let Some(text) = input::task(&run.task, Need::Required)? else {
        return Err(Failure::usage(
            "no task is given. Write it after the command: brigade run \"TASK\", or pipe it in.",
        ));
    };
    let settings = Settings::for_run(&global, &run.flags)?;
    start(&global, &run.flags, &settings, &Assignment { text, schema })
}

/// Continues a session: with the task as the next message, or as `resume` does if there is no task.
fn continued(global: Global, run: args::Run) -> Result<Exit, Failure> {
    let args::Run { task, resume, flags, .. } = run;
    let text = input::task(&task, Need::Optional)?;
    let id = match resume {
        Some(id) => id,
        None => {
            let person = Settings::of_the_person(&global)?;
            let store = engine::store(&person)?;
            let folder = person.environment.absolute(flags.cwd.as_deref().unwrap_or(Path::new(".")));
            let last = named::last_in_folder(&*store, &folder, "brigade run \"TASK\"");
            engine::one_thread()?.block_on(last)?.to_string()
        }
    };
    match text {
        Some(text) => tell::deliver(global, args::Tell { id, text: vec![text], flags }, Then::Follow),
        None => resume::run(global, args::Resume { id: Some(id), flags }),
    }
}

/// The schema in a file, or in the argument itself if that begins as a JSON object does.
fn schema(given: &Path) -> Result<ResultSchema, Failure> {
    let shown = safe::line(&given.display().to_string());
    let text = match given.to_str().filter(|text| text.trim_start().starts_with('{')) {
        Some(json) => json.to_owned(),
        None => std::fs::read_to_string(given)
            .map_err(|error| Failure::usage(format!("cannot read the schema {shown}: {error}")))?,
    };
    ResultSchema::parse(&text).map_err(|error| {
        Failure::usage(format!("cannot use the schema {shown}: {}.", safe::line(&error.to_string())))
    })
}

/// Runs a task with settings that are complete.
pub(crate) fn start(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    assignment: &Assignment,
) -> Result<Exit, Failure> {
    let hints = Hints::new(global, flags);
    engine::many_threads()?.block_on(async {
        // Until there is a session, an interrupt just ends the command, and its servers with it.
        let servers = engine::servers(settings).await?;
        let store = engine::store(settings)?;
        let mut interrupts = Interrupts::listen(store.clone())?;
        let runtime = engine::runtime(settings, store, &servers).await?;
        let run = begin(&runtime, settings, flags, assignment).await?.start();
        let view = View::new(run.session().clone());
        let mut progress = Progress::new(global, &settings.environment);
        let mut attention = Attention::new(settings, &runtime);
        let followed =
            follow::follow(&runtime, run, view, &mut progress, &mut interrupts, &hints, &mut attention)
                .await?;
        finish::finish(
            &**runtime.store(),
            followed,
            global,
            &hints,
            terminal::colour(&settings.environment),
            &mut interrupts,
            &mut attention,
        )
        .await
    })
}

/// Makes a session with a task ready to start.
pub(super) async fn begin(
    runtime: &Runtime,
    settings: &Settings,
    flags: &Flags,
    Assignment { text, schema }: &Assignment,
) -> Result<Prepared, Failure> {
    let mut task = Task::new(text);
    if let Some(schema) = schema {
        task = task.schema(schema.clone());
    }
    let agent = named_agent(settings, &runtime.settings().agents)?;
    let has_model = agent.as_ref().is_some_and(|agent| {
        agent.model.is_some() || agent.provider.is_some() || matches!(agent.place, Place::Acp(_))
    });
    if settings.model.is_none() && !has_model {
        return Err(suggest::no_model(settings, text));
    }
    if let Some(agent) = agent {
        task = task.agent(agent);
    }
    if let Some(timeout) = flags.timeout {
        task = task.timeout(timeout);
    }
    runtime.prepare(task).await.map_err(|error| match error {
        RunError::Setup(_) => {
            // An agent of a file may have a model of its own.
            let model = settings.model.as_deref().filter(|_| settings.agent == LEAD).unwrap_or_default();
            Failure::from(error).hint(suggest::instead(settings, model))
        }
        other => other.into(),
    })
}

/// The definition that is to take the task; nothing for the built-in lead.
pub(super) fn named_agent(settings: &Settings, agents: &Catalogue) -> Result<Option<Agent>, Failure> {
    if settings.agent == LEAD {
        return Ok(None);
    }
    let known = agents.list().iter().map(|agent| agent.id.as_str()).chain([LEAD]);
    // A folder may be named otherwise than the id that it has.
    let id = agents.id_of(&settings.agent).unwrap_or(&settings.agent);
    agents.load(id).map(Some).map_err(|error| match error {
        LoadError::NotFound(id) => Failure::usage(format!(
            "there is no agent '{}'; there are: {} (brigade agents list)",
            safe::line(&id),
            known.collect::<Vec<_>>().join(", ")
        )),
        invalid => Failure::usage(invalid.to_string()),
    })
}
