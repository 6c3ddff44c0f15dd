//! `brigade run`: one task, from the words to the result.

use std::io::Read;

use brigade::agents::LoadError;
use brigade::{Catalogue, Prepared, RunError, Runtime, Task};
use brigade_core::{Agent, Place};

use crate::args::{self, Flags, Global};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::{self, Hints};
use crate::follow::{self, Interrupts, View};
use crate::progress::Progress;
use crate::safe;
use crate::settings::{LEAD, Settings};
use crate::suggest;
use crate::terminal;

/// Runs it.
pub(crate) fn run(global: Global, run: args::Run) -> Result<Exit, Failure> {
    let text = task(run.task)?;
    let settings = Settings::for_run(&global, &run.flags)?;
    start(&global, &run.flags, &settings, &text)
}

/// Runs a task with settings that are complete.
pub(crate) fn start(
    global: &Global,
    flags: &Flags,
    settings: &Settings,
    text: &str,
) -> Result<Exit, Failure> {
    let hints = Hints::new(global, flags);
    engine::many_threads()?.block_on(async {
        // Until there is a session, an interrupt just ends the command, and its servers with it.
        let servers = engine::servers(settings).await?;
        let store = engine::store(settings)?;
        let mut interrupts = Interrupts::listen(store.clone())?;
        let runtime = engine::runtime(settings, store, &servers)?;
        let run = begin(&runtime, settings, flags, text).await?.start();
        let view = View::new(run.session().clone());
        let mut progress = Progress::new(global, &settings.environment);
        let followed = follow::follow(&runtime, run, view, &mut progress, &mut interrupts, &hints).await?;
        finish::finish(
            &**runtime.store(),
            followed,
            global,
            &hints,
            terminal::colour(&settings.environment),
            &mut interrupts,
        )
        .await
    })
}

/// Makes a session with a task ready to start.
pub(super) async fn begin(
    runtime: &Runtime,
    settings: &Settings,
    flags: &Flags,
    text: &str,
) -> Result<Prepared, Failure> {
    let mut task = Task::new(text);
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
    agents.load(&settings.agent).map(Some).map_err(|error| match error {
        LoadError::NotFound(id) => Failure::usage(format!(
            "there is no agent '{}'; there are: {} (brigade agents list)",
            safe::line(&id),
            known.collect::<Vec<_>>().join(", ")
        )),
        invalid => Failure::usage(invalid.to_string()),
    })
}

fn task(words: Option<String>) -> Result<String, Failure> {
    let text = match words {
        Some(text) if text != "-" => text,
        Some(_) => standard_input()?,
        None if terminal::types_input() => {
            return Err(Failure::usage("say what is to be done: brigade run \"TASK\", or pipe the task in"));
        }
        None => standard_input()?,
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the task is empty; say what is to be done"));
    }
    Ok(text)
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("the task cannot be read from standard input: {error}")))?;
    Ok(text)
}
