//! File edits: planned on content that the agent has seen, and written after their intent is durable.

use std::future::Future;
use std::sync::Arc;

use brigade_core::event::Effect;
use brigade_core::state::CallProgress;
use brigade_core::{CallId, Event, Extent, Hash, Resources, SeenFile, Spent, ToolCall, ToolOutput, json};
use serde_json::Value;

use super::tool_calls::ReadyCall;
use super::{Driver, DriverError, ToolDone, redaction};
use crate::tool::{
    AnyTool, EditPlan, FileError, Files, ReadFile, SeenSlot, Tool, escape_controls, show_file,
};
use crate::tree::Tree;
use crate::undo::MAX_KEPT_BYTES;
use crate::writes::FileWrite;

/// Writer of content that no session of the tree left.
const ANOTHER_PROGRAM: &str = "another program";

/// Reason to refuse an edit.
enum Objection {
    /// The agent has not read the file.
    Unread,
    /// The agent has read only a part of the file and would replace all of it.
    Partial,
    /// The file has changed since the agent read it.
    Changed {
        /// The writer.
        by: String,
    },
}

impl Objection {
    /// The reason, for the model.
    fn reason(&self, path: &str) -> String {
        match self {
            Objection::Unread => format!("{path} exists, but you have not read it"),
            Objection::Partial => format!("You have read only part of {path}"),
            Objection::Changed { by } => format!("{path} was changed by {by} since you read it"),
        }
    }

    /// Refusal for an agent that can read the file itself.
    fn refusal(&self, path: &str) -> String {
        let advice = match self {
            Objection::Unread => "Read it first.",
            Objection::Partial => "Read all of it before you replace it, or use `edit_file`.",
            Objection::Changed { .. } => "Read it again.",
        };
        format!("{}. {advice}", self.reason(path))
    }
}

impl Driver {
    /// Continues edits that waited for another one.
    pub(super) async fn run_deferred(&mut self) -> Result<(), DriverError> {
        while let Some(call) = self.tool_calls.next_edit() {
            self.run_calls(vec![call]).await?;
        }
        Ok(())
    }

    /// Plans an edit and records its intent, or answers the call with a refusal.
    pub(super) async fn start_edit(
        &mut self,
        call: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
    ) -> Result<Option<ReadyCall>, ToolOutput> {
        let (path, tree) = (path_of(&arguments), self.tree.clone());
        let files = self.files_of_call(tool.as_ref(), &arguments);
        let of_call = files.clone();
        let planned = move || {
            let text = arguments.to_string();
            let plan =
                tool.plan(arguments, &files).map_err(|output| redaction::explain_marker(&text, output))?;
            redaction::check_edit(&plan, &files)?;
            Ok::<_, ToolOutput>((old_content(&plan, &files, &tree), plan))
        };
        let planned = tokio::task::spawn_blocking(planned).await;
        let planned =
            planned.map_err(|error| ToolOutput::error(format!("cannot prepare the edit: {error}")))?;
        let (old, plan) = match planned {
            Ok(planned) => planned,
            // The text to replace is missing now, but was there when the agent read the file.
            Err(output) => {
                let (now, objection) = self.change_since_read(path).await.ok_or(output)?;
                self.refuse(call, now, &objection).await;
                return Ok(None);
            }
        };
        if !self.is_admitted(call, &plan)
            && let Some((now, objection)) = self.objection(&plan).await
        {
            self.refuse(call, now, &objection).await;
            return Ok(None);
        }
        let hash = Hash::of(&plan.content);
        let extent = match plan.needs {
            // An agent that replaces a file has seen all of it.
            Extent::Whole => Extent::Whole,
            Extent::Part | Extent::Inherited => self.extent_of_edit(&plan.path, plan.before),
        };
        let seen = SeenFile { path: plan.path.clone(), hash, extent };
        let (effect, before, after, lent) = (Effect::Edit, plan.before, Some(hash), Resources::default());
        if self.record(Event::ToolStarted { call, effect, before, after, lent, lines: plan.lines })
            && let Some((before, old)) = before.zip(old)
        {
            self.log.add_content(before, old);
        }
        Ok(Some(ReadyCall::Edit { call, plan, files: of_call, seen }))
    }

    /// Whether an earlier runner recorded the intent of this edit of the same content, and so admitted it.
    fn is_admitted(&self, call: CallId, plan: &EditPlan) -> bool {
        let progress = self.state().call(call).map(|state| &state.progress);
        matches!(progress, Some(CallProgress::Started(intent)) if intent.before == plan.before)
    }

    /// Reason to refuse an edit and the current content, if the agent has not seen content that the edit would
    /// overwrite.
    async fn objection(&self, plan: &EditPlan) -> Option<(SeenFile, Objection)> {
        let before = plan.before.filter(|before| *before != Hash::of(&plan.content))?;
        let (seen, session) = (self.state().seen(&plan.path), self.state().session());
        let is_known = seen.is_some_and(|seen| seen.hash == before);
        let objection = match (&self.external_session, seen) {
            (Some(_), _) if is_known => return None,
            // An external agent reads files itself. Only what this tree wrote meanwhile is known to be new to it.
            (Some(external_session), _) => {
                let writer =
                    self.tree.writes.writer_since(&plan.path, before, session, external_session.since)?;
                Objection::Changed { by: writer_name(Some(writer), self.label()) }
            }
            (None, None) => Objection::Unread,
            (None, Some(seen)) if is_known && seen.extent >= plan.needs => return None,
            (None, Some(_)) if is_known => Objection::Partial,
            (None, Some(_)) => {
                let writer = self.tree.writer(&plan.path, before, session).await;
                Objection::Changed { by: writer_name(writer, self.label()) }
            }
        };
        Some((SeenFile { path: plan.path.clone(), hash: before, extent: Extent::Part }, objection))
    }

    /// Same check for an edit that cannot be planned, if the file has changed since the agent read it.
    async fn change_since_read(&self, path: String) -> Option<(SeenFile, Objection)> {
        let files = self.resolved.files.clone();
        let found = tokio::task::spawn_blocking(move || files.load_for_edit(&path)).await;
        let now = found.ok()?.ok()??.seen(Extent::Part)?;
        self.state().seen(&now.path).filter(|seen| seen.hash != now.hash && !self.resolved.is_external())?;
        let writer = self.tree.writer(&now.path, now.hash, self.state().session()).await;
        Some((now, Objection::Changed { by: writer_name(writer, self.label()) }))
    }

    /// Refuses an edit of a file whose current content the agent has not seen.
    async fn refuse(&mut self, call: CallId, now: SeenFile, objection: &Objection) {
        let (output, seen) = self.refusal(now, objection).await;
        self.answer_with(ToolDone { call, output, spent: Spent::default(), seen });
    }

    /// Refusal text, and the file state that the agent knows from it.
    async fn refusal(&self, now: SeenFile, objection: &Objection) -> (ToolOutput, Option<SeenFile>) {
        let path = escape_controls(&now.path);
        let refusal = ToolOutput::error(objection.refusal(&path));
        if self.resolved.is_external() {
            // The refusal asks for a read. Whether the agent reads the file is not visible, so its next write is
            // accepted.
            return (refusal, Some(now));
        }
        let can_read = self.resolved.specs.iter().any(|spec| spec.name == ReadFile::NAME);
        if can_read {
            return (refusal, None);
        }
        if matches!(objection, Objection::Partial) {
            let text = format!(
                "{path} is too large to be shown in full, so you cannot replace it. Write to another path."
            );
            return (ToolOutput::error(text), None);
        }
        let (files, slot) = (self.resolved.files.clone(), SeenSlot::default());
        let seen = slot.clone();
        let content = tokio::task::spawn_blocking(move || show_file(&files, &now.path, &slot)).await;
        let content = content.map_or_else(|error| error.to_string(), |output| output.text.to_string());
        let (reason, seen) = (objection.reason(&path), seen.take());
        let text = match &seen {
            Some(_) => format!(
                "{reason}. Nothing was written. Repeat the change if it still applies to the current content:\n{content}"
            ),
            None => format!("{reason}. Its content cannot be shown: {content}"),
        };
        (ToolOutput::error(text), seen)
    }

    /// Writes a file whose intent is durable. The file must still have the content that the edit was planned on.
    pub(super) fn write(
        &self,
        plan: EditPlan,
        files: Files,
        seen: SeenFile,
        slot: SeenSlot,
    ) -> impl Future<Output = ToolOutput> + Send + use<> {
        let tree = self.tree.clone();
        let (session, label) = (self.state().session().clone(), self.label().to_owned());
        async move {
            let path = plan.path.clone();
            let write = FileWrite {
                path: Some(path.clone()),
                after: seen.hash,
                session: session.clone(),
                label: label.clone(),
            };
            let number = tree.writes.begin(write);
            let writer_files = files.clone();
            let replace =
                move || writer_files.replace(&plan.path, &plan.content, plan.before).map(|()| plan.report);
            let error = match tokio::task::spawn_blocking(replace).await {
                Ok(Ok(report)) => {
                    slot.put(seen);
                    return ToolOutput::ok(report);
                }
                Ok(Err(error)) => error,
                Err(error) => {
                    return ToolOutput::error(format!("cannot write {}: {error}", escape_controls(&path)));
                }
            };
            tree.writes.withdraw(number);
            if !matches!(error, FileError::Changed { .. }) {
                return ToolOutput::error(error.to_string());
            }
            let place = path.clone();
            let now = tokio::task::spawn_blocking(move || files.hash(&place)).await;
            let writer = match now {
                Ok(Ok(Some(now))) => tree.writer(&path, now, &session).await,
                _ => None,
            };
            let objection = Objection::Changed { by: writer_name(writer, &label) };
            ToolOutput::error(objection.refusal(&escape_controls(&path)))
        }
    }

    /// Answers an edit that an earlier runner may have made. The content of the file decides whether it happened.
    pub(super) async fn recover_edit(
        &mut self,
        call: CallId,
        tool_call: &ToolCall,
        before: Option<Hash>,
        after: Option<Hash>,
    ) -> Result<Option<ReadyCall>, DriverError> {
        let files = self.resolved.files.clone();
        let path =
            json::parse(tool_call.arguments.as_str()).map_or_else(|_| String::new(), |it| path_of(&it));
        let shown = path.clone();
        let found = tokio::task::spawn_blocking(move || files.load_for_edit(&path)).await;
        let now = match &found {
            Ok(Ok(found)) => Ok(found.as_ref().map(|found| Hash::of(&found.content))),
            _ => Err(()),
        };
        match now {
            Ok(now) if now.is_some() && now == after => {
                let text = format!("{shown} has the new content (Brigade exited right after writing it)");
                let seen =
                    found.ok().and_then(Result::ok).flatten().and_then(|found| found.seen(Extent::Part));
                let seen =
                    seen.map(|seen| SeenFile { extent: self.extent_of_edit(&seen.path, before), ..seen });
                let (output, spent) = (ToolOutput::ok(text), Spent::default());
                self.answer_with(ToolDone { call, output, spent, seen });
            }
            Ok(now) if now == before && self.state().stop_reason().is_none() => {
                return Ok(self.start_or_refuse(call, tool_call).await);
            }
            Ok(now) if now == before => {
                self.answer(
                    call,
                    ToolOutput::error(
                        "interrupted: the file was not changed. Repeat the edit if it is still needed.",
                    ),
                );
            }
            Err(()) => {
                let text = format!(
                    "interrupted, outcome unknown: cannot read {shown}. Check whether the edit was made."
                );
                self.answer(call, ToolOutput::error(text));
            }
            Ok(_) => {
                let text = format!(
                    "interrupted, outcome unknown: {shown} contains neither the old nor the new content. Read it again."
                );
                self.answer(call, ToolOutput::error(text));
            }
        }
        Ok(None)
    }

    /// Part of a file that the agent knows after its edit: all of a new file, otherwise what it knew of the old
    /// content.
    fn extent_of_edit(&self, path: &str, before: Option<Hash>) -> Extent {
        let Some(before) = before else { return Extent::Whole };
        let is_known = self.state().seen(path).is_some_and(|seen| seen.hash == before);
        if is_known { Extent::Inherited } else { Extent::Part }
    }

    /// Display name of this session.
    fn label(&self) -> &str {
        self.state().round().map_or("lead", |round| round.delegation.label())
    }
}

/// Old content to keep for an undo. An undo restores the content before the first edit of the run, so later
/// versions are not kept. Neither is content that is too long or not UTF-8.
fn old_content(plan: &EditPlan, files: &Files, tree: &Tree) -> Option<Arc<str>> {
    let before = plan.before.filter(|before| !tree.writes.has_written(&plan.path, *before))?;
    let content = files.read(&plan.path, MAX_KEPT_BYTES).ok()?;
    let content = (Hash::of(&content) == before).then_some(content)?;
    String::from_utf8(content).ok().map(Arc::from)
}

/// Path argument of an edit call.
fn path_of(arguments: &Value) -> String {
    arguments.get("path").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Name of a writer as shown to an agent labelled `own_label`.
fn writer_name(writer: Option<String>, own_label: &str) -> String {
    match writer {
        Some(writer) if writer == own_label => format!("another {writer}"),
        Some(writer) => writer,
        None => ANOTHER_PROGRAM.to_owned(),
    }
}
