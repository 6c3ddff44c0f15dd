//! Execution of the calls of a reply. This is the only place where tools are called.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::delegation_styles::{DELEGATION_TOOLS, MESSAGE_TOOL};
use brigade_core::event::{Answer, Effect};
use brigade_core::grant::{Access, Authority};
use brigade_core::message::Stop;
use brigade_core::permission::{Action, ActionKind, Mode, Subject};
use brigade_core::state::{CallProgress, Intent};
use brigade_core::{Budget, CallId, Event, SeenFile, Spent, ToolCall, ToolOutput, json};
use serde_json::Value;

use super::approvals::{Decision, Permission, denial};
use super::{Driver, DriverError, DriverMessage, ToolDone, redaction};
use crate::event_stream::RunEvent;
use crate::process::guard_tag;
use crate::sandbox::CommandSandbox;
use crate::tool::{AnyTool, EditPlan, Files, HostAsker, ProgressReporter, RemoteLoan, SeenSlot, ToolContext};

/// Time that a tool may take to end after a stop signal.
const TOOL_STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that a guard process of an earlier runner may take to end.
const ORPHAN_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A call whose intent is recorded.
pub(super) enum ReadyCall {
    Run { call: CallId, tool: Arc<dyn AnyTool>, arguments: Value, lent: Option<Budget> },
    Edit { call: CallId, plan: EditPlan, files: Files, seen: SeenFile },
}

impl Driver {
    /// Calls without a result that this driver does not process yet: those of a new reply, or those that an earlier
    /// runner left open.
    pub(super) fn calls_to_run(&self) -> Vec<CallId> {
        self.tool_calls.unprocessed(self.state())
    }

    pub(super) async fn run_calls(&mut self, calls: Vec<CallId>) -> Result<(), DriverError> {
        let mut work = Vec::new();
        for call in calls {
            work.extend(self.prepare(call).await?);
        }
        if !work.is_empty() {
            self.become_active().await?;
        }
        self.flush().await?;
        for item in work {
            self.launch(item);
        }
        self.start_pending_children().await
    }

    /// Decides how a call is handled and records its intent.
    async fn prepare(&mut self, call: CallId) -> Result<Option<ReadyCall>, DriverError> {
        let open = self.state().call(call).filter(|state| state.progress != CallProgress::Answered);
        let Some(progress) = open.map(|state| state.progress.clone()) else { return Ok(None) };
        self.tool_calls.begin(call);
        let Some(tool_call) = self.state().tool_call(call).cloned() else { return Ok(None) };
        match progress {
            CallProgress::Answered => Ok(None),
            CallProgress::Delegated { children, .. } => {
                self.reattach(call, &tool_call, children).await?;
                Ok(None)
            }
            CallProgress::Started(intent) => self.recover_started_call(call, &tool_call, intent).await,
            CallProgress::Decided(Answer::Deny { word }) => {
                self.answer(call, denial(&tool_call.name, word.as_deref()));
                Ok(None)
            }
            CallProgress::New | CallProgress::AwaitingApproval | CallProgress::Decided(_) => {
                if let Some(reason) = self.state().stop_reason() {
                    self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
                    return Ok(None);
                }
                Ok(self.start_or_refuse(call, &tool_call).await)
            }
        }
    }

    /// Starts a call, or answers it with the reason why it is not started.
    pub(super) async fn start_or_refuse(&mut self, call: CallId, tool_call: &ToolCall) -> Option<ReadyCall> {
        self.start(call, tool_call).await.unwrap_or_else(|output| {
            self.answer(call, output);
            None
        })
    }

    /// Starts a new call. The driver itself carries out delegation and messages.
    async fn start(&mut self, call: CallId, tool_call: &ToolCall) -> Result<Option<ReadyCall>, ToolOutput> {
        let redactor = &self.tree.settings().redactor;
        redaction::check_arguments(redactor, &tool_call.name, tool_call.arguments.as_str())?;
        if DELEGATION_TOOLS.contains(&tool_call.name.as_str()) {
            return self.delegate(call, tool_call).await.map(|()| None);
        }
        let arguments = json::parse(tool_call.arguments.as_str()).map_err(|cause| {
            let cut = match self.state().last_stop() {
                Some(Stop::Length) => ". Your reply was cut off at its output limit. Make the call shorter.",
                _ => "",
            };
            ToolOutput::error(format!(
                "Invalid arguments for {}: not valid JSON: {cause}{cut}",
                tool_call.name
            ))
        })?;
        if tool_call.name == MESSAGE_TOOL {
            return self.send_message(call, &arguments).map(|()| None);
        }
        if self.is_child_tool(&tool_call.name) {
            return self.run_child_tool(call, &tool_call.name, &arguments).await.map(|()| None);
        }
        let confines = self.confines(&tool_call.name).await;
        let Some(tool) = self.permit(call, &tool_call.name, &arguments, confines)? else { return Ok(None) };
        if tool.effect() == Effect::Edit {
            if !self.tool_calls.begin_edit(call) {
                return Ok(None);
            }
            return self.start_edit(call, tool, arguments).await;
        }
        let lent = tool.delegates_remotely().then(|| self.remote_share());
        let granted = self.state().ledger().granted();
        let loan = lent.map(|lent| lent.charged_to(&granted)).unwrap_or_default();
        let effect = tool.effect();
        let (before, after, lines) = (None, None, None);
        self.record(Event::ToolStarted { call, effect, before, after, lent: loan, lines });
        Ok(Some(ReadyCall::Run { call, tool, arguments, lent }))
    }

    /// The only path to a tool. Returns none if the user's approval is requested first.
    fn permit(
        &mut self,
        call: CallId,
        name: &str,
        arguments: &Value,
        confines: Confines,
    ) -> Result<Option<Arc<dyn AnyTool>>, ToolOutput> {
        let tool =
            self.tree.agents.tool(&self.resolved, name).ok_or_else(|| self.no_such_tool(name))?.clone();
        if tool.network() && self.resolved.authority.network == Access::Denied {
            let text = format!(
                "`{name}` needs network access, which this agent does not have. Continue without it."
            );
            return Err(ToolOutput::error(text));
        }
        let mut decided: Option<Decision> = None;
        let root = self.resolved.files.workspace().root();
        tool.check(arguments, &mut |action| {
            let action = confined(relative_to_root(*action, root), confines);
            let decision = self.decide(&action);
            // External agents access files themselves, and follow links.
            let real = self
                .real_path(&action)
                .map(|real| self.decide(&Action { subject: Subject::Path(&real), ..action }));
            for decision in [decision].into_iter().chain(real) {
                decided = Some(match decided.take() {
                    Some(before) => before.and(decision),
                    None => decision,
                });
            }
        })?;
        let decision = decided.unwrap_or_else(Decision::undeclared);
        let change = tool.change();
        if self.authorize(call, name, || arguments.clone(), decision.with_change(change.clone()))?
            == Permission::Pending
        {
            return Ok(None);
        }
        if let Some(change) = change {
            tool.accept(&change);
        }
        Ok(Some(tool))
    }

    /// The real path of a file that an external agent names by another path.
    fn real_path(&self, action: &Action<'_>) -> Option<String> {
        let Subject::Path(path) = action.subject else { return None };
        let path = self.resolved.is_external().then_some(path)?;
        self.resolved.files.real_path(path).filter(|real| real != path)
    }

    fn no_such_tool(&self, name: &str) -> ToolOutput {
        let known: Vec<&str> = self.resolved.specs.iter().map(|spec| spec.name.as_str()).collect();
        if DELEGATION_TOOLS.contains(&name) {
            return ToolOutput::error(format!(
                "`{name}` is not available (recursion limit or configuration). Do the task yourself."
            ));
        }
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        ToolOutput::error(format!("Unknown tool `{shown}`. Available tools: {}", known.join(", ")))
    }

    fn send_message(&mut self, call: CallId, arguments: &Value) -> Result<(), ToolOutput> {
        let authority = &self.resolved.authority;
        if !authority.tools.contains(MESSAGE_TOOL) || authority.speak == Access::Denied {
            return Err(self.no_such_tool(MESSAGE_TOOL));
        }
        let text = arguments.get("text").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| ToolOutput::error("Missing 'text' argument"))?;
        let decision =
            self.decide(&Action { tool: MESSAGE_TOOL, kind: ActionKind::Pure, subject: Subject::Nothing });
        if self.authorize(call, MESSAGE_TOOL, || arguments.clone(), decision)? == Permission::Pending {
            return Ok(());
        }
        self.record(Event::Said { call, text: text.into() });
        self.answer(call, ToolOutput::ok("Sent."));
        Ok(())
    }

    /// Handles a call that an earlier runner may have run.
    async fn recover_started_call(
        &mut self,
        call: CallId,
        tool_call: &ToolCall,
        Intent { effect, before, after, .. }: Intent,
    ) -> Result<Option<ReadyCall>, DriverError> {
        // Their connections ended with the earlier runner.
        self.close_host_questions(call);
        let unknown = |what: &str| ToolOutput::error(format!("interrupted, outcome unknown: {what}"));
        match effect {
            Effect::Pure | Effect::Keyed if self.state().stop_reason().is_none() => {
                return Ok(self.start_or_refuse(call, tool_call).await);
            }
            Effect::Pure | Effect::Keyed => self.answer(call, unknown("the session was stopped")),
            Effect::Edit => return self.recover_edit(call, tool_call, before, after).await,
            Effect::Opaque => {
                let tag = guard_tag(self.state().session(), call);
                let ended = tokio::task::spawn_blocking(move || {
                    brigade_sandbox::end_stale(&tag, ORPHAN_STOP_TIMEOUT)
                })
                .await;
                let output = match ended {
                    Ok(Ok(_)) => unknown(
                        "Brigade exited while this call was running. The call was not repeated. Check whether it took effect.",
                    ),
                    Ok(Err(error)) => unknown(&format!(
                        "Brigade exited while this call was running; {}. Check whether the call took effect.",
                        error.to_string().trim_end_matches('.')
                    )),
                    Err(error) => unknown(&error.to_string()),
                };
                self.answer(call, output);
            }
        }
        Ok(None)
    }

    /// Runs a call whose intent is durable.
    fn launch(&mut self, work: ReadyCall) {
        let seen = SeenSlot::default();
        let (call, loan, future) = match work {
            ReadyCall::Run { call, tool, arguments, lent } => {
                let loan = lent.map(RemoteLoan::new).unwrap_or_default();
                let hosts = self.host_asker(call);
                let nothing = || self.state().ledger().granted().exhausted();
                let context = ToolContext {
                    session: self.state().session().clone(),
                    call,
                    files: self.files_of_call(tool.as_ref(), &arguments),
                    shell: self.tree.settings().shell.clone(),
                    sandbox: self.command_sandbox(&hosts),
                    hosts,
                    stop: self.tool_calls.stop_signal(),
                    remote_context: self.remote_context().with_budget(lent.unwrap_or_else(nothing)),
                    loan: loan.clone(),
                    progress: self.progress_reporter(),
                    seen: seen.clone(),
                };
                let run = async move { tool.run(arguments, &context).await };
                (call, loan, futures::future::Either::Left(run))
            }
            ReadyCall::Edit { call, plan, files, seen: file } => {
                let write = self.write(plan, files, file, seen.clone());
                (call, RemoteLoan::default(), futures::future::Either::Right(write))
            }
        };
        // A conflict before the intent was durable may have shown that the session is cancelled.
        let intent_stands =
            matches!(self.state().call(call).map(|state| &state.progress), Some(CallProgress::Started(_)));
        if !intent_stands || self.state().stop_reason().is_some() {
            let output = ToolOutput::error("Not started: the session was stopped");
            self.answer_with(ToolDone { call, output, spent: Spent::default(), seen: None });
            return;
        }
        let (sender, mut stop) = (self.mailbox.sender(), self.tool_calls.stop_signal());
        self.tool_calls.spawn(call, async move {
            let stopped = async {
                // The sender lives as long as the driver, and this task does not outlive it.
                let _ = stop.wait_for(|stop| *stop).await;
                tokio::time::sleep(TOOL_STOP_TIMEOUT).await;
            };
            let safe = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(future));
            let (output, seen) = tokio::select! {
                output = safe => match output {
                    Ok(output) => (output, seen.take()),
                    Err(_) => (ToolOutput::error("The tool failed unexpectedly."), None),
                },
                () = stopped => {
                    (ToolOutput::error("interrupted, outcome unknown: the call did not stop in time"), None)
                }
            };
            let done = ToolDone { call, output, spent: loan.spent(), seen };
            let _ = sender.unbounded_send(DriverMessage::ToolDone(Box::new(done)));
        });
    }

    /// Files for one call. Protected files are among them only if the rules were applied to their names.
    pub(super) fn files_of_call(&self, tool: &dyn AnyTool, arguments: &Value) -> Files {
        let mut paths = Vec::new();
        let collect = &mut |action: &Action<'_>| {
            if let Subject::Path(path) = action.subject {
                paths.push(path.to_owned());
            }
        };
        // A call with invalid arguments is not run, and names no file.
        let _ = tool.check(arguments, collect);
        self.resolved.files.for_call(paths.iter().map(String::as_str))
    }

    /// Sandbox of the commands of a call.
    fn command_sandbox(&self, hosts: &HostAsker) -> CommandSandbox {
        let (settings, resolved) = (self.tree.settings().sandbox.clone(), self.resolved.clone());
        let sandbox = self.tree.sandbox.clone();
        let (network, access) = (settings.network.clone(), resolved.authority.network);
        CommandSandbox::with_layers(move |extra| {
            // A session can be resumed in another directory than the recorded one.
            let workspace = resolved.files.workspace().root().to_string_lossy().into_owned();
            let authority = Authority { workspace, ..resolved.authority.clone() };
            let confinement = settings.confinement(&authority, extra, &sandbox)?;
            Ok((confinement, settings.layers(&authority, &sandbox)?))
        })
        .network(&network, access)
        .deciding_hosts(hosts.decider())
    }

    /// Effect of the sandbox on the commands of a tool. In plan mode it is found by running a command.
    fn confines(&self, tool: &str) -> impl Future<Output = Confines> + use<> {
        let tool = self.tree.agents.tool(&self.resolved, tool).filter(|tool| tool.is_sandboxed()).cloned();
        let (tree, resolved) = (self.tree.clone(), self.resolved.clone());
        async move {
            let settings = tree.settings();
            if tool.is_none() || !settings.sandbox.confines(&resolved.authority) {
                return Confines::Nothing;
            }
            let Some(shell) = &settings.shell else { return Confines::Commands };
            if resolved.authority.permissions.mode == Mode::Plan
                && tree.sandbox.can_discard(&shell.guard, resolved.files.workspace().root()).await
            {
                return Confines::CommandsWithoutEffect;
            }
            Confines::Commands
        }
    }

    /// Reporter that publishes the progress of a call of this session.
    fn progress_reporter(&self) -> ProgressReporter {
        let (tree, session) = (self.tree.clone(), self.state().session().clone());
        ProgressReporter::new(move |why| tree.publish(RunEvent::Waiting { session: session.clone(), why }))
    }
}

/// Effect of the sandbox on the calls of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Confines {
    /// The tool runs no commands, or they have no sandbox.
    Nothing,
    /// Its commands run in a sandbox.
    Commands,
    /// Its commands run in a sandbox that discards what they change.
    CommandsWithoutEffect,
}

/// A command in a sandbox is less dangerous than other calls. Without a sandbox, there is none to leave.
fn confined(action: Action<'_>, confines: Confines) -> Action<'_> {
    let kind = match (action.kind, confines) {
        (ActionKind::Other, Confines::Commands) => ActionKind::Confined,
        (ActionKind::Other, Confines::CommandsWithoutEffect) => ActionKind::Discarded,
        (ActionKind::Unconfined, Confines::Nothing) => ActionKind::Other,
        (kind, _) => kind,
    };
    Action { kind, ..action }
}

/// An absolute path inside the workspace is checked as the relative path.
fn relative_to_root<'a>(action: Action<'a>, root: &std::path::Path) -> Action<'a> {
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
