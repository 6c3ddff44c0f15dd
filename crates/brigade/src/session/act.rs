//! Seeing to the calls of a reply: the one place where tools are called.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::event::{Answer, Effect};
use brigade_core::faces::{DELEGATION_TOOLS, MESSAGE};
use brigade_core::grant::Access;
use brigade_core::message::Stop;
use brigade_core::permission::{Action, Kind, Subject};
use brigade_core::state::{CallProgress, Intent};
use brigade_core::{Budget, CallId, Event, SeenFile, Spent, ToolCall, ToolOutput, json};
use serde_json::Value;

use super::ask::{Judgement, Leave, denial};
use super::{Driver, Fatal, Inbox, ToolDone};
use crate::live::Live;
use crate::tool::{AnyTool, EditPlan, Purse, SeenSlot, Teller, ToolContext};

/// How long a tool may take to end after it was told to stop.
const STOP_TIME: Duration = Duration::from_secs(1);
/// How long a guard that an earlier runner left may take to end.
const STALE_TIME: Duration = Duration::from_secs(10);

/// What is to happen with a call once its intent is durable.
pub(super) enum Work {
    Run { call: CallId, tool: Arc<dyn AnyTool>, arguments: Value, lent: Option<Budget> },
    Write { call: CallId, plan: EditPlan, seen: SeenFile },
}

impl Driver {
    pub(super) async fn run_calls(&mut self, calls: Vec<CallId>) -> Result<(), Fatal> {
        let mut work = Vec::new();
        for call in calls {
            // A state that was folded anew names calls that this driver already sees to.
            if !self.in_flight.contains(&call) {
                work.extend(self.prepare(call).await?);
            }
        }
        if !work.is_empty() {
            self.become_active().await?;
        }
        self.flush().await?;
        for item in work {
            self.launch(item);
        }
        self.lend().await
    }

    /// Decides what becomes of a call and records the intent.
    async fn prepare(&mut self, call: CallId) -> Result<Option<Work>, Fatal> {
        let Some(progress) = self.state.call(call).map(|state| state.progress.clone()) else {
            return Ok(None);
        };
        let Some(written) = self.state.tool_call(call).cloned() else { return Ok(None) };
        match progress {
            CallProgress::Answered => Ok(None),
            CallProgress::Delegated { children, .. } => {
                self.in_flight.insert(call);
                self.reattach(call, &written, children).await?;
                Ok(None)
            }
            CallProgress::Started(intent) => {
                self.in_flight.insert(call);
                self.in_doubt(call, &written, intent).await
            }
            CallProgress::Decided(Answer::Deny { word }) => {
                self.answer(call, denial(&written.name, word.as_deref()));
                Ok(None)
            }
            CallProgress::New | CallProgress::Asked | CallProgress::Decided(_) => {
                if let Some(reason) = self.state.stopping() {
                    self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
                    return Ok(None);
                }
                self.in_flight.insert(call);
                match self.start(call, &written).await {
                    Ok(work) => Ok(work),
                    Err(output) => {
                        self.answer(call, output);
                        Ok(None)
                    }
                }
            }
        }
    }

    /// A call that is new. Delegation and messages are things that the driver itself knows how to do.
    pub(super) async fn start(
        &mut self,
        call: CallId,
        written: &ToolCall,
    ) -> Result<Option<Work>, ToolOutput> {
        if DELEGATION_TOOLS.contains(&written.name.as_str()) {
            return self.ask_for_children(call, written).await.map(|()| None);
        }
        let arguments = json::parse(written.arguments.as_str()).map_err(|cause| {
            let cut = match self.state.last_stop() {
                Some(Stop::Length) => {
                    "; your reply was cut off at its output limit, so make the call shorter"
                }
                _ => "",
            };
            ToolOutput::error(format!("The arguments of {} are no JSON: {cause}{cut}", written.name))
        })?;
        if written.name == MESSAGE {
            return self.say(call, &arguments).map(|()| None);
        }
        if self.is_kin_tool(&written.name) {
            return self.act_on_kin(call, &written.name, &arguments).await.map(|()| None);
        }
        let Some(tool) = self.permit(call, &written.name, &arguments)? else { return Ok(None) };
        if tool.effect() == Effect::Edit {
            // Edits of one session happen one after the other: the next is planned on what the last one left.
            if self.editing.is_some_and(|other| other != call) {
                self.deferred.push_back(call);
                return Ok(None);
            }
            self.editing = Some(call);
            return self.start_edit(call, tool, arguments).await;
        }
        let lent = tool.hands_on().then(|| self.far_share());
        let granted = self.state.ledger().granted();
        let loan = lent.map(|lent| lent.counted_by(&granted)).unwrap_or_default();
        let effect = tool.effect();
        let (before, after, lines) = (None, None, None);
        self.record(Event::ToolStarted { call, effect, before, after, lent: loan, lines });
        Ok(Some(Work::Run { call, tool, arguments, lent }))
    }

    /// The choke point: no tool runs that does not pass here. None where a person is asked first.
    fn permit(
        &mut self,
        call: CallId,
        name: &str,
        arguments: &Value,
    ) -> Result<Option<Arc<dyn AnyTool>>, ToolOutput> {
        let tool = self.tree.tool(&self.kit, name).ok_or_else(|| self.no_such_tool(name))?.clone();
        if tool.network() && self.kit.authority.network == Access::Denied {
            let text =
                format!("'{name}' needs the network, and this agent may not reach it; work without it");
            return Err(ToolOutput::error(text));
        }
        let mut judged: Option<Judgement> = None;
        let root = self.kit.files.workspace().root();
        tool.check(arguments, &mut |action| {
            let judgement = self.judge(&beneath(*action, root));
            judged = Some(match judged.take() {
                Some(before) => before.and(judgement),
                None => judgement,
            });
        })?;
        let judgement = judged.unwrap_or_else(Judgement::unspoken);
        let change = tool.change();
        if self.allow(call, name, || arguments.clone(), judgement.given(change.clone()))? == Leave::Asked {
            return Ok(None);
        }
        if let Some(change) = change {
            tool.accept(&change);
        }
        Ok(Some(tool))
    }

    fn no_such_tool(&self, name: &str) -> ToolOutput {
        let known: Vec<&str> = self.kit.specs.iter().map(|spec| spec.name.as_str()).collect();
        if DELEGATION_TOOLS.contains(&name) {
            return ToolOutput::error(format!(
                "'{name}' is not available here (recursion limit or configuration)"
            ));
        }
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        ToolOutput::error(format!("There is no tool '{shown}'. You have: {}", known.join(", ")))
    }

    fn say(&mut self, call: CallId, arguments: &Value) -> Result<(), ToolOutput> {
        let authority = &self.kit.authority;
        if !authority.tools.contains(MESSAGE) || authority.speak == Access::Denied {
            return Err(self.no_such_tool(MESSAGE));
        }
        let text = arguments.get("text").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| ToolOutput::error("Missing 'text' argument"))?;
        let judgement = self.judge(&Action { tool: MESSAGE, kind: Kind::Pure, subject: Subject::Nothing });
        if self.allow(call, MESSAGE, || arguments.clone(), judgement)? == Leave::Asked {
            return Ok(());
        }
        self.record(Event::Said { call, text: text.into() });
        self.answer(call, ToolOutput::ok("Sent."));
        Ok(())
    }

    /// A call that an earlier runner may have run.
    async fn in_doubt(
        &mut self,
        call: CallId,
        written: &ToolCall,
        Intent { effect, before, after, .. }: Intent,
    ) -> Result<Option<Work>, Fatal> {
        let unknown = |what: &str| ToolOutput::error(format!("interrupted, outcome unknown: {what}"));
        match effect {
            Effect::Pure | Effect::Keyed if self.state.stopping().is_none() => {
                match self.start(call, written).await {
                    Ok(work) => return Ok(work),
                    Err(output) => self.answer(call, output),
                }
                return Ok(None);
            }
            Effect::Pure | Effect::Keyed => self.answer(call, unknown("the session was stopped")),
            Effect::Edit => return self.edit_in_doubt(call, written, before, after).await,
            Effect::Opaque => {
                let mark = mark(self.state.session(), call);
                let ended =
                    tokio::task::spawn_blocking(move || brigade_sandbox::end_stale(&mark, STALE_TIME)).await;
                let output = match ended {
                    Ok(Ok(_)) => unknown("the runner ended while this call ran; it is not run again"),
                    Ok(Err(error)) => unknown(&format!("the runner ended while this call ran, and {error}")),
                    Err(error) => unknown(&error.to_string()),
                };
                self.answer(call, output);
            }
        }
        Ok(None)
    }

    /// Runs a call whose intent is durable.
    fn launch(&mut self, work: Work) {
        let seen = SeenSlot::default();
        let (call, purse, future) = match work {
            Work::Run { call, tool, arguments, lent } => {
                let purse = lent.map(Purse::new).unwrap_or_default();
                let nothing = || self.state.ledger().granted().used_up();
                let context = ToolContext {
                    session: self.state.session().clone(),
                    call,
                    files: self.kit.files.clone(),
                    shell: self.tree.settings().shell.clone(),
                    stop: self.stop_signal(),
                    hop: self.hop().lending(lent.unwrap_or_else(nothing)),
                    purse: purse.clone(),
                    teller: self.teller(),
                    seen: seen.clone(),
                };
                let run = async move { tool.run(arguments, &context).await };
                (call, purse, futures::future::Either::Left(run))
            }
            Work::Write { call, plan, seen: file } => {
                let write = self.write(plan, file, seen.clone());
                (call, Purse::default(), futures::future::Either::Right(write))
            }
        };
        // A conflict may have shown, before the intent was durable, that the session is stopped.
        let intent_stands =
            matches!(self.state.call(call).map(|state| &state.progress), Some(CallProgress::Started(_)));
        if !intent_stands || self.state.stopping().is_some() {
            let output = ToolOutput::error("Not started: the session was stopped");
            self.answer_with(ToolDone { call, output, spent: Spent::default(), seen: None });
            return;
        }
        self.running_tools += 1;
        let (sender, mut stop) = (self.sender.clone(), self.stop_signal());
        self.spawn(async move {
            let told_to_stop = async {
                // The sender lives as long as the driver, and this task does not outlive it.
                let _ = stop.wait_for(|stop| *stop).await;
                tokio::time::sleep(STOP_TIME).await;
            };
            let safe = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(future));
            let (output, seen) = tokio::select! {
                output = safe => match output {
                    Ok(output) => (output, seen.take()),
                    Err(_) => (ToolOutput::error("The tool failed in an unexpected way"), None),
                },
                () = told_to_stop => {
                    (ToolOutput::error("interrupted, outcome unknown: it did not stop in time"), None)
                }
            };
            let done = ToolDone { call, output, spent: purse.spent(), seen };
            let _ = sender.unbounded_send(Inbox::ToolDone(Box::new(done)));
        });
    }

    /// Tells watchers how far a call of this session is.
    fn teller(&self) -> Teller {
        let (tree, session) = (self.tree.clone(), self.state.session().clone());
        Teller::new(move |why| tree.watchers.send(Live::Waiting { session: session.clone(), why }))
    }

    /// Starts a task that ends with this driver.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        // Finished tasks are forgotten here, so that the set does not grow with the session.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
    }
}

/// A path that is given from the root of the file system is judged as the path in the workspace that it is.
fn beneath<'a>(action: Action<'a>, root: &std::path::Path) -> Action<'a> {
    match action.subject {
        Subject::Path(path) => {
            match std::path::Path::new(path).strip_prefix(root).ok().and_then(|path| path.to_str()) {
                Some(relative) => Action { subject: Subject::Path(relative), ..action },
                None => action,
            }
        }
        Subject::Nothing | Subject::Command(_) | Subject::Host(_) => action,
    }
}

/// How the guard of a call is named in the process table.
pub(crate) fn mark(session: &brigade_core::SessionId, call: CallId) -> String {
    format!("{session}:{call}")
}
