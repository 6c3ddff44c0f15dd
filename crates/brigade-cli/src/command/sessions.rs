//! `brigade sessions`: lists, shows, exports, imports and removes sessions.

mod args;
mod export;
mod import;
mod list;
mod search;
mod table;

use std::io::Read;
use std::path::Path;

use brigade::store::{self, ReturnedChild};
use brigade::{Store, StoreError};
use brigade_core::view::Node;
use brigade_core::{Cursor, SessionId};
use serde_json::{Value, json};

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::follow::RunView;
use crate::output;
use crate::progress;
use crate::redaction;
use crate::render::{self, ExportedRun, OutputDetail, TreeDetail};
use crate::report;
use crate::sanitize;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::store_advice;
use crate::terminal;
use crate::units;
use args::{ExportFormat, SessionsExport, SessionsList};
use list::ListLimit;

pub(crate) use args::{SessionsArgs, SessionsCommand};

/// Runs the command.
pub(crate) fn run(global: &Global, sessions: SessionsArgs) -> Result<Exit, CliError> {
    let settings = Settings::load_user_only(global)?;
    let store = match &sessions.command {
        SessionsCommand::Import { .. } => setup::open_store(&settings)?,
        SessionsCommand::Rm { .. } => setup::open_existing_store(&settings)?,
        SessionsCommand::List(_)
        | SessionsCommand::Show { .. }
        | SessionsCommand::Tree { .. }
        | SessionsCommand::Export(_) => setup::open_store_read_only(&settings)?,
    };
    let context = SessionsContext { global, store, settings };
    setup::current_thread_runtime()?.block_on(async {
        match sessions.command {
            SessionsCommand::List(list) => context.list(&list).await,
            SessionsCommand::Show { id, full } => context.show(&context.resolve(&id).await?, full).await,
            SessionsCommand::Tree { id, full } => context.tree(&context.resolve(&id).await?, full).await,
            SessionsCommand::Export(export) => context.export(&export).await,
            SessionsCommand::Import { file } => context.import(&file).await,
            SessionsCommand::Rm { id } => context.remove(&context.resolve(&id).await?).await,
        }
    })
}

struct SessionsContext<'a> {
    global: &'a Global,
    store: std::sync::Arc<dyn Store>,
    settings: Settings,
}

impl SessionsContext<'_> {
    fn is_text(&self) -> bool {
        self.global.output_format == OutputFormat::Text
    }

    async fn resolve(&self, text: &str) -> Result<SessionId, CliError> {
        session_ref::resolve(&*self.store, text).await
    }

    async fn list(&self, list: &SessionsList) -> Result<Exit, CliError> {
        let listing = list::find(&*self.store, list, ListLimit::new(list, self.is_text())).await?;
        if !self.is_text() {
            output::json(&listing.json())?;
            return Ok(Exit::Done);
        }
        if !listing.is_empty() {
            output::text(&listing.text(terminal::stdout_columns()))?;
        }
        if let Some(remark) = listing.remark(list) {
            output::note(&remark);
        }
        Ok(Exit::Done)
    }

    async fn show(&self, session: &SessionId, full: bool) -> Result<Exit, CliError> {
        let (mut records, fault) = self.store.read_prefix(session).await?;
        redaction::records(&mut records);
        if records.is_empty() && fault.is_none() {
            return Err(StoreError::UnknownSession(session.clone()).into());
        }
        let fault = match fault {
            Some(fault) => Some(fault),
            None => self.store.verify(session, ReturnedChild::returned(&records)).await.err(),
        };
        let mut view = RunView::new(session.clone());
        records.iter().for_each(|record| view.apply(record));
        if self.is_text() {
            let outputs = if full || self.global.verbose { OutputDetail::Full } else { OutputDetail::Folded };
            let colour = terminal::stdout_colour(&self.settings.environment);
            let room = terminal::stdout_columns();
            output::raw(&redaction::text(&render::transcript(&records, outputs, colour, room)))?;
            for (key, value) in view.tree.node(session).and_then(Node::metadata).unwrap_or_default() {
                output::text(&format!("{key}: {}", sanitize::line(&value)))?;
            }
        } else {
            let records: Vec<Value> =
                records.iter().map(|record| progress::event_json(record, &view)).collect();
            let error = fault.as_ref().map(store_advice::describe);
            output::json(&json!({ "session_id": session, "records": records, "error": error }))?;
        }
        fault.map_or(Ok(Exit::Done), |fault| Err(fault.into()))
    }

    async fn tree(&self, session: &SessionId, full: bool) -> Result<Exit, CliError> {
        let (run, fault) = self.read_tree(session).await?;
        let view = &run.view;
        if self.is_text() {
            let breadth = if full { TreeDetail::Full } else { TreeDetail::Folded };
            let colour = terminal::stdout_colour(&self.settings.environment);
            let room = terminal::stdout_columns();
            output::raw(&render::subtree_totals(view, breadth, colour, room))?;
            for message in view.tree.agent_messages() {
                let line = format!("[{}]: {}", sanitize::line(&message.role), sanitize::line(&message.text));
                output::text(&render::wrap_hanging(&line, room, 4).join("\n"))?;
            }
        } else {
            let agents = agents(&run)?;
            output::json(&json!({ "session_id": session, "agents": agents, "error": run.fault }))?;
        }
        fault.map_or(Ok(Exit::Done), |fault| Err(fault.into()))
    }

    /// Readable part of a tree, and the error that ended the read.
    async fn read_tree(&self, root: &SessionId) -> Result<(ExportedRun, Option<StoreError>), CliError> {
        let view = RunView::new(root.clone());
        let mut run = ExportedRun { view, records: Vec::new(), fault: None };
        let mut after = Cursor::START;
        let fault = loop {
            match self.store.tail(root, after, 10_000).await {
                Ok(mut page) => {
                    redaction::records(&mut page);
                    let Some(last) = page.last() else { break None };
                    after = last.pos;
                    for record in &page {
                        run.view.apply(record);
                    }
                    run.records.extend(page);
                }
                Err(fault) => break Some(fault),
            }
        };
        let fault = match fault {
            Some(fault) => Some(fault),
            None => self.store.verify(root, ReturnedChild::returned(&run.records)).await.err(),
        };
        if run.view.tree.nodes().is_empty() {
            return Err(fault.unwrap_or_else(|| StoreError::UnknownSession(root.clone())).into());
        }
        run.fault = fault.as_ref().map(store_advice::describe);
        Ok((run, fault))
    }

    async fn export(&self, export: &SessionsExport) -> Result<Exit, CliError> {
        let format = export::format(export);
        let file = export::file(export);
        if file.is_none() && format != ExportFormat::Md && terminal::stdout_is_terminal() {
            return Err(CliError::usage(
                "cannot write this export to a terminal. Use --output FILE, or a pipe.",
            ));
        }
        export::check(export)?;
        let session = self.resolve(&export.id).await?;
        let (text, fault) = match format {
            ExportFormat::Jsonl => (store::export(&*self.store, &session).await?, None),
            ExportFormat::Md | ExportFormat::Html => {
                let (run, fault) = self.read_tree(&session).await?;
                let printed = if format == ExportFormat::Md {
                    render::export_markdown(&run)
                } else {
                    render::export_html(&run)
                };
                (redaction::text(&printed).into_owned(), fault)
            }
        };
        match file {
            None => output::raw(&text)?,
            Some(file) => {
                export::write(file, &text, export)?;
                let title = session_ref::title(&*self.store, &session).await;
                output::note(&format!("Wrote session {title} to {}", file.display()));
            }
        }
        fault.map_or(Ok(Exit::Done), |fault| Err(fault.into()))
    }

    async fn import(&self, file: &Path) -> Result<Exit, CliError> {
        let unreadable =
            |error: std::io::Error| CliError::usage(format!("cannot read {}: {error}", file.display()));
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
            output::note(&format!("{} read, {new} new", units::count(records, "record")));
            import::notes(&imported).iter().for_each(|note| output::note(note));
        } else {
            output::json(&import::json(&imported))?;
        }
        match imported.cut {
            None => Ok(Exit::Done),
            Some(cut) => Err(CliError::failed(format!(
                "cannot import all of {}: line {} is damaged ({}). Only the lines before it were imported.",
                file.display(),
                cut.line,
                cut.cause
            ))),
        }
    }

    async fn remove(&self, session: &SessionId) -> Result<Exit, CliError> {
        let root = session.root_id();
        if root != *session
            && self.store.read_prefix(&root).await.is_ok_and(|(records, _)| !records.is_empty())
        {
            return Err(CliError::usage(format!(
                "cannot remove {session}: it is part of {root}. Remove that session instead."
            )));
        }
        let title = session_ref::title(&*self.store, session).await;
        self.store.remove(session).await?;
        let json = json!({ "session_id": session, "status": "removed" });
        output::note_or_json(self.global.output_format, &format!("Removed {title}"), &json)
    }
}

/// Agents of a tree for JSON output: the own usage of each, and that of its subtree.
fn agents(run: &ExportedRun) -> Result<Vec<Value>, CliError> {
    let unwritable = |error| CliError::failed(format!("cannot serialize the tree: {error}"));
    let mut agents = Vec::new();
    let nodes = run.view.tree.walk(&run.view.root);
    for (node, agent) in nodes.into_iter().zip(report::agents(&run.view)) {
        let mut agent = serde_json::to_value(agent).map_err(unwritable)?;
        agent["branch"] = serde_json::to_value(run.totals(&node.session)).map_err(unwritable)?;
        agents.push(agent);
    }
    Ok(agents)
}
