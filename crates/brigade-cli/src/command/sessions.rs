//! `brigade sessions`: looking at sessions, moving them, removing them.

use std::io::Read;
use std::path::Path;

use brigade::store::{self, RootSummary};
use brigade::{Store, StoreError};
use brigade_core::view::Node;
use brigade_core::{Event, Record, SessionId, State};
use serde_json::{Value, json};

use crate::args::{Global, OutputFormat, Sessions, SessionsCommand};
use crate::clock;
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::follow::View;
use crate::output;
use crate::progress;
use crate::render::{self, Outputs, fit, pad};
use crate::report;
use crate::safe;
use crate::settings::Settings;
use crate::terminal::{self, Colour};
use crate::units;

/// Runs it.
pub(crate) fn run(global: &Global, sessions: Sessions) -> Result<Exit, Failure> {
    let settings = Settings::of_the_person(global)?;
    let look = Look { global, store: engine::store(&settings)? };
    engine::one_thread()?.block_on(async {
        match sessions.command {
            SessionsCommand::List => look.list().await,
            SessionsCommand::Show { id } => look.show(&engine::session(&id)?).await,
            SessionsCommand::Tree { id } => look.tree(&engine::session(&id)?).await,
            SessionsCommand::Export { id, output } => {
                look.export(&engine::session(&id)?, output.as_deref()).await
            }
            SessionsCommand::Import { file } => look.import(&file).await,
            SessionsCommand::Rm { id } => look.remove(&engine::session(&id)?).await,
        }
    })
}

struct Look<'a> {
    global: &'a Global,
    store: std::sync::Arc<dyn Store>,
}

impl Look<'_> {
    fn is_text(&self) -> bool {
        self.global.output_format == OutputFormat::Text
    }

    async fn list(&self) -> Result<Exit, Failure> {
        let mut entries = Vec::new();
        for summary in self.store.roots().await? {
            entries.push(self.entry(&summary).await);
        }
        if !self.is_text() {
            let all: Vec<Value> = entries.iter().map(Entry::json).collect();
            output::json(&all)?;
        } else if entries.is_empty() {
            output::note(
                "There are no sessions yet. Start one with: brigade run \"TASK\", or look at: brigade demo",
            );
        } else {
            let width = entries.iter().map(|entry| entry.id.as_str().len()).max().unwrap_or_default();
            let head = format!(
                "{} {} {} {} task",
                pad("id", width),
                pad("age", 4),
                pad("state", 12),
                pad("agent", 10)
            );
            let lines: Vec<String> = entries.iter().map(|entry| entry.line(width)).collect();
            output::text(&format!("{head}\n{}", lines.join("\n")))?;
        }
        Ok(Exit::Done)
    }

    async fn entry(&self, summary: &RootSummary) -> Entry {
        let mut entry = Entry {
            id: summary.root.clone(),
            at: None,
            state: self.state(summary).await,
            agent: String::new(),
            task: String::new(),
            problem: None,
        };
        match &summary.first {
            Ok(first) => {
                entry.at = Some(first.at);
                if let Event::Started { delegation, .. } = &first.event {
                    let agent = delegation.role.as_deref().or(delegation.agent.as_deref());
                    entry.agent = agent.unwrap_or("lead").to_owned();
                    entry.task = delegation.task.to_string();
                }
            }
            Err(error) => entry.problem = Some(error.to_string()),
        }
        if let Err(error) = &summary.last {
            entry.problem.get_or_insert_with(|| error.to_string());
        }
        entry
    }

    async fn state(&self, summary: &RootSummary) -> &'static str {
        if summary.runner.is_some() {
            return "running";
        }
        match &summary.last {
            Err(StoreError::Newer { .. }) => "newer",
            Err(_) => "damaged",
            Ok(Record { event: Event::Ended { outcome, .. }, .. }) => outcome.status.word(),
            Ok(last) if last.event.is_outside_word() => match self.store.read(&summary.root, 0).await {
                Ok(records) => {
                    let state = State::fold(summary.root.clone(), records.iter().map(|record| &record.event));
                    state.ended().map_or("interrupted", |outcome| outcome.status.word())
                }
                Err(_) => "damaged",
            },
            Ok(_) => "interrupted",
        }
    }

    async fn show(&self, session: &SessionId) -> Result<Exit, Failure> {
        let (records, fault) = self.store.read_prefix(session).await?;
        if records.is_empty() && fault.is_none() {
            return Err(StoreError::Unknown(session.clone()).into());
        }
        let mut view = View::new(session.clone());
        records.iter().for_each(|record| view.apply(record));
        if self.is_text() {
            let outputs = if self.global.verbose { Outputs::Whole } else { Outputs::Folded };
            output::text(&render::transcript(&records, outputs))?;
            for (key, value) in view.tree.node(session).and_then(Node::metadata).unwrap_or_default() {
                output::text(&format!("{key}: {}", safe::line(&value)))?;
            }
        } else {
            let facts: Vec<Value> = records.iter().map(|record| progress::fact(record, &view)).collect();
            let error = fault.as_ref().map(ToString::to_string);
            output::json(&json!({ "session_id": session, "records": facts, "error": error }))?;
        }
        fault.map_or(Ok(Exit::Done), |fault| Err(fault.into()))
    }

    async fn tree(&self, session: &SessionId) -> Result<Exit, Failure> {
        let (view, fault) = self.readable(session).await?;
        if view.tree.nodes().is_empty() {
            return Err(fault.unwrap_or_else(|| StoreError::Unknown(session.clone())).into());
        }
        if self.is_text() {
            output::raw(&render::costs(&view, Colour::Off, usize::MAX))?;
            for said in view.tree.said() {
                output::text(&format!("[{}]: {}", safe::line(&said.role), safe::line(&said.text)))?;
            }
        } else {
            let error = fault.as_ref().map(ToString::to_string);
            output::json(&json!({ "session_id": session, "agents": report::agents(&view), "error": error }))?;
        }
        fault.map_or(Ok(Exit::Done), |fault| Err(fault.into()))
    }

    /// What can be read of a tree, and why the rest can't.
    async fn readable(&self, root: &SessionId) -> Result<(View, Option<StoreError>), Failure> {
        let mut view = View::new(root.clone());
        let mut after = 0;
        loop {
            match self.store.tail(root, after, 10_000).await {
                Ok(page) => {
                    let Some(last) = page.last() else { return Ok((view, None)) };
                    after = last.pos;
                    page.iter().for_each(|record| view.apply(record));
                }
                Err(fault) => return Ok((view, Some(fault))),
            }
        }
    }

    async fn export(&self, session: &SessionId, file: Option<&Path>) -> Result<Exit, Failure> {
        if file.is_none() && terminal::reads_results() {
            return Err(Failure::usage("an export is not for reading: use --output FILE, or a pipe"));
        }
        let text = store::export(&*self.store, session).await?;
        match file {
            None => output::raw(&text)?,
            Some(file) => {
                write_new(file, &text)?;
                output::note(&format!("{session} is written to {}", file.display()));
            }
        }
        Ok(Exit::Done)
    }

    async fn import(&self, file: &Path) -> Result<Exit, Failure> {
        let unreadable =
            |error: std::io::Error| Failure::usage(format!("{} cannot be read: {error}", file.display()));
        let text = if file.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).map_err(unreadable)?;
            text
        } else {
            std::fs::read_to_string(file).map_err(unreadable)?
        };
        let imported = store::import(&*self.store, &text).await?;
        let (root, records, new) = (&imported.root, imported.records, imported.new);
        if self.is_text() {
            output::text(root.as_str())?;
            output::note(&format!("{records} records, of which {new} were not here before"));
        } else {
            let cut = imported.cut.as_ref().map(|cut| json!({ "line": cut.line, "cause": cut.cause }));
            output::json(&json!({ "session_id": root, "records": records, "new": new, "cut": cut }))?;
        }
        match imported.cut {
            None => Ok(Exit::Done),
            Some(cut) => Err(Failure::failed(format!(
                "{}: line {} is damaged ({}); only what stands before it was imported",
                file.display(),
                cut.line,
                cut.cause
            ))),
        }
    }

    async fn remove(&self, session: &SessionId) -> Result<Exit, Failure> {
        let root = session.root_id();
        if root != *session
            && self.store.read_prefix(&root).await.is_ok_and(|(records, _)| !records.is_empty())
        {
            return Err(Failure::usage(format!("{session} is a part of {root}; remove that one")));
        }
        self.store.remove(session).await?;
        match self.is_text() {
            true => output::note(&format!("{session} is removed")),
            false => output::json(&json!({ "session_id": session, "status": "removed" }))?,
        }
        Ok(Exit::Done)
    }
}

/// Writes a file that only its owner can read: it holds all that was said.
fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    opened
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", file.display())))
}

/// A session in the list.
struct Entry {
    id: SessionId,
    at: Option<u64>,
    state: &'static str,
    agent: String,
    task: String,
    problem: Option<String>,
}

impl Entry {
    fn line(&self, width: usize) -> String {
        let age = self.at.map(|at| units::age(clock::now().saturating_sub(at))).unwrap_or_default();
        let about = match &self.problem {
            None => safe::line(self.task.trim().lines().next().unwrap_or_default()),
            Some(problem) => safe::line(problem),
        };
        let agent = pad(&fit(&safe::line(&self.agent), 10), 10);
        let id = pad(self.id.as_str(), width);
        format!("{id} {} {} {agent} {}", pad(&age, 4), pad(self.state, 12), fit(&about, 60))
    }

    fn json(&self) -> Value {
        json!({
            "session_id": self.id,
            "at": self.at,
            "state": self.state,
            "agent": self.agent,
            "task": self.task,
            "problem": self.problem,
        })
    }
}
