//! Follows a running tree: delivers every event in order, and handles signals of the user.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use brigade::{Run, RunError, RunEvent, RunEvents, RunResult, Runtime, Store};
use brigade_core::delegation_styles::DELEGATION_TOOLS;
use brigade_core::event::CallFault;
use brigade_core::view::Tree;
use brigade_core::{CallId, Cursor, Event, Grant, Record, SessionId, Text, ToolCall};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::approval_prompt::RunAction;
use crate::args::{Flags, Global};
use crate::attention::Attention;
use crate::clock;
use crate::error::{CliError, Exit};
use crate::output;
use crate::progress::Progress;
use crate::redaction;
use crate::render::truncate_at_word;
use crate::sanitize;
use crate::settings::Settings;
use crate::store_advice;
use crate::summary::CommandHints;
use crate::suspend;
use crate::terminal::{self, Colour};

/// Interval at which a live tree is drawn.
pub(crate) const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Columns of the arguments of a call.
const MAX_ARGUMENT_COLUMNS: usize = 60;

/// State of a tree, from its log and live events.
pub(crate) struct RunView {
    /// Session at the top of the view, which may be a sub-agent.
    pub(crate) root: SessionId,
    /// Projection of the log.
    pub(crate) tree: Tree,
    /// Grant of the root's current round, and the time at which it began.
    pub(crate) grant: Option<(Grant, u64)>,
    /// JSON Schema that the result of the root's current round must match, if there is one.
    pub(crate) schema: Option<Text>,
    /// Position of the last event that was applied.
    pub(crate) cursor: Cursor,
    /// Whether the root's last model call failed for a reason that a retry does not fix.
    pub(crate) has_fatal_fault: bool,
    sessions: HashMap<SessionId, SessionProgress>,
}

/// Calls and waits of one session.
#[derive(Default)]
struct SessionProgress {
    /// Calls of the last turn.
    calls: HashMap<CallId, String>,
    /// Delegation calls of the last turn that have no child yet.
    queued_calls: HashSet<CallId>,
    /// Calls of the last turn that were started.
    started_calls: HashSet<CallId>,
    current_call: Option<String>,
    last_call: Option<String>,
    wait_reason: Option<String>,
    /// Last fault of the current turn, while it has no reply.
    fault: Option<String>,
}

impl RunView {
    /// Creates an empty view.
    pub(crate) fn new(root: SessionId) -> RunView {
        RunView {
            root,
            tree: Tree::default(),
            grant: None,
            schema: None,
            cursor: Cursor::START,
            has_fatal_fault: false,
            sessions: HashMap::new(),
        }
    }

    /// Loads the view of a tree from the store.
    pub(crate) async fn load(
        store: &dyn Store,
        root: &SessionId,
    ) -> Result<(RunView, Vec<Record>), CliError> {
        let mut records = store.tail(root, Cursor::START, usize::MAX).await?;
        redaction::records(&mut records);
        let mut view = RunView::new(root.clone());
        records.iter().for_each(|record| view.apply(record));
        Ok((view, records))
    }

    /// Current call of a session, with its most significant argument.
    pub(crate) fn doing(&self, session: &SessionId) -> Option<&str> {
        self.sessions.get(session)?.current_call.as_deref()
    }

    /// Last call of a session.
    pub(crate) fn last_call(&self, session: &SessionId) -> Option<&str> {
        self.sessions.get(session)?.last_call.as_deref()
    }

    /// Reason why the request of a session waits.
    pub(crate) fn wait_reason(&self, session: &SessionId) -> Option<&str> {
        self.sessions.get(session)?.wait_reason.as_deref()
    }

    /// Role or agent of a session, on one line. Empty if the session is unknown.
    pub(crate) fn label(&self, session: &SessionId) -> String {
        self.tree.node(session).map(|node| sanitize::line(&node.label)).unwrap_or_default()
    }

    /// Number of delegation calls of a session without a child yet. They wait for a slot or for budget.
    pub(crate) fn queued_delegations(&self, session: &SessionId) -> usize {
        self.sessions.get(session).map_or(0, |session| session.queued_calls.len())
    }

    /// Applies an event of a stream.
    pub(crate) fn take(&mut self, live: &RunEvent) {
        self.observe(live);
        if let RunEvent::Record(record) = live {
            self.apply(record);
        }
    }

    /// Applies what is not in the log. A request counts as waiting until the next event of its session.
    fn observe(&mut self, live: &RunEvent) {
        let session = self.sessions.entry(live.session().clone()).or_default();
        session.wait_reason = None;
        match live {
            RunEvent::Waiting { why, .. } => session.wait_reason = Some(sanitize::line(why)),
            RunEvent::Delta { .. } | RunEvent::Discarded { .. } => {}
            RunEvent::Record(record) => session.observe_attempt(&record.event),
        }
    }

    /// Tool of a call, with its most significant argument.
    pub(crate) fn call_label(&self, session: &SessionId, call: CallId) -> &str {
        self.sessions.get(session).map_or("", |session| session.call_label(call))
    }

    /// Whether a call of the session's last turn was started.
    pub(crate) fn has_started(&self, session: &SessionId, call: CallId) -> bool {
        self.sessions.get(session).is_some_and(|session| session.started_calls.contains(&call))
    }

    /// Applies an event of the log.
    pub(crate) fn apply(&mut self, record: &Record) {
        self.tree.apply(record);
        self.cursor = record.pos;
        if record.session == self.root {
            match &record.event {
                Event::Started { grant, delegation, .. } => {
                    self.grant = Some((*grant, record.at));
                    self.schema.clone_from(&delegation.schema);
                    self.has_fatal_fault = false;
                }
                Event::CallFailed { cause, .. } => {
                    self.has_fatal_fault = matches!(cause, CallFault::Fatal { .. });
                }
                Event::Called { .. } => self.has_fatal_fault = false,
                _ => {}
            }
        }
        self.sessions.entry(record.session.clone()).or_default().apply(&record.event);
    }
}

impl SessionProgress {
    fn call_label(&self, call: CallId) -> &str {
        self.calls.get(&call).map_or("", String::as_str)
    }

    /// Shows the fault of a failed attempt until a reply arrives. The model may be unreachable.
    fn observe_attempt(&mut self, event: &Event) {
        match event {
            Event::CallFailed { cause: CallFault::Transient { message }, .. } => {
                self.fault = Some(sanitize::line(message));
            }
            Event::Called { .. } => {
                self.wait_reason = self.fault.as_ref().map(|fault| format!("retrying after: {fault}"));
            }
            Event::Replied { .. } | Event::CallFailed { .. } | Event::Ended { .. } => self.fault = None,
            _ => {}
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Replied { turn, reply, .. } => {
                let calls =
                    (0..).zip(&reply.calls).map(|(index, call)| (CallId { turn: *turn, index }, call));
                let delegates = |call: &ToolCall| DELEGATION_TOOLS.contains(&call.name.as_str());
                self.queued_calls =
                    calls.clone().filter(|(_, call)| delegates(call)).map(|(id, _)| id).collect();
                self.calls = calls.map(|(id, call)| (id, summarize_call(call))).collect();
                self.started_calls.clear();
                self.current_call = None;
            }
            Event::ToolStarted { call, .. } => {
                self.current_call = Some(self.call_label(*call).to_owned());
                self.started_calls.insert(*call);
            }
            Event::Delegated { call, .. } => {
                self.queued_calls.remove(call);
            }
            Event::ToolEnded { call, output, .. } => {
                self.queued_calls.remove(call);
                let how = if output.is_error() { "failed: " } else { "after " };
                self.last_call = Some(format!("{how}{}", self.call_label(*call)));
            }
            Event::Called { .. } | Event::Ended { .. } => self.current_call = None,
            _ => {}
        }
    }
}

/// Short form of a call: the tool and its most significant argument.
pub(crate) fn summarize_call(call: &ToolCall) -> String {
    let arguments: serde_json::Value = serde_json::from_str(call.arguments.as_str()).unwrap_or_default();
    let main_arguments = ["command", "path", "pattern", "role", "text", "task"];
    let argument = main_arguments.iter().find_map(|key| arguments.get(key)?.as_str()).unwrap_or_default();
    let argument = truncate_at_word(&sanitize::line(argument), MAX_ARGUMENT_COLUMNS);
    let name = sanitize::line(&call.name);
    if argument.is_empty() { name } else { format!("{name} {argument}") }
}

/// Signals that the user sends to the process.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    suspend: Signal,
    store: Arc<dyn Store>,
}

impl Signals {
    /// Installs the signal handlers. Ctrl-Z does not stop the process during a write to the store.
    pub(crate) fn listen(store: Arc<dyn Store>) -> Result<Signals, CliError> {
        Ok(Signals {
            interrupt: listen_for(SignalKind::interrupt())?,
            terminate: listen_for(SignalKind::terminate())?,
            suspend: suspend::listen()?,
            store,
        })
    }

    /// Waits for a signal that ends the run.
    pub(crate) async fn next(&mut self) {
        while self.signal().await == Interrupt::Suspend {
            self.suspend();
        }
    }

    /// Waits for any signal.
    async fn signal(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::End,
            _ = self.terminate.recv() => Interrupt::End,
            _ = self.suspend.recv() => Interrupt::Suspend,
        }
    }

    fn suspend(&self) {
        suspend::suspend(&*self.store);
    }

    /// Store that the signals do not interrupt.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Installs the handler of a signal.
pub(crate) fn listen_for(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed(format!("cannot install the signal handlers: {error}")))
}

/// User request to the process.
#[derive(PartialEq, Eq)]
enum Interrupt {
    End,
    Suspend,
}

/// Connection of a command to its user while it follows runs.
pub(crate) struct Console {
    pub(crate) signals: Signals,
    pub(crate) attention: Attention,
    /// Commands that the output suggests.
    pub(crate) hints: CommandHints,
    /// Colours of standard error.
    pub(crate) colour: Colour,
}

impl Console {
    pub(crate) fn new(
        global: &Global,
        flags: &Flags,
        settings: &Settings,
        runtime: &Runtime,
        signals: Signals,
    ) -> Console {
        Console {
            signals,
            attention: Attention::new(settings, runtime),
            hints: CommandHints::new(global, flags),
            colour: terminal::stderr_colour(&settings.environment),
        }
    }
}

/// Result of a run that was followed.
pub(crate) struct FollowedRun {
    pub(crate) result: Result<RunResult, RunError>,
    pub(crate) view: RunView,
}

/// Whether the user has asked the run to stop.
#[derive(PartialEq, Eq)]
enum CancelState {
    NotRequested,
    Requested,
}

/// Follows a run to its end. The first Ctrl-C cancels the run; a second one leaves before the agents have stopped.
pub(crate) async fn follow(
    runtime: &Runtime,
    mut run: Run,
    mut view: RunView,
    progress: &mut Progress,
    console: &mut Console,
) -> Result<FollowedRun, CliError> {
    let Console { signals, attention, hints, .. } = console;
    let root = run.session().clone();
    let mut events = run.take_events_after(view.cursor);
    show_queued(&mut events, &mut view, progress)?;
    let mut ticks = clock::ticks(DRAW_INTERVAL);
    let mut cancel_state = CancelState::NotRequested;
    let mut listener = progress.prompt_input(runtime.settings());
    listener.look(&view, progress)?;
    attention.look(&view.tree);
    let result = loop {
        let wish = tokio::select! {
            biased;
            interrupt = signals.signal() => match interrupt {
                Interrupt::End => RunAction::Interrupt,
                Interrupt::Suspend => {
                    progress.end();
                    signals.suspend();
                    RunAction::Continue
                }
            },
            typed = listener.next() => listener.take(typed, runtime, &view, progress).await?,
            // Drawn before events are handled. Otherwise a busy tree would never be drawn.
            _ = ticks.tick() => {
                listener.show(&view, progress);
                progress.tick(&view);
                RunAction::Continue
            }
            live = events.next() => {
                let Some(live) = live else { break run.result().await };
                on_event(live, &mut view, progress)?;
                show_queued(&mut events, &mut view, progress)?;
                listener.look(&view, progress)?;
                attention.look(&view.tree);
                RunAction::Continue
            }
        };
        if wish == RunAction::Continue {
            continue;
        }
        if cancel_state == CancelState::Requested {
            listener.close();
            progress.end();
            attention.restore_title();
            output::note(&format!("Exited before all agents had stopped. Resume: {}", hints.resume(&root)));
            crate::exit_process(Exit::Cancelled.code());
        }
        cancel_state = CancelState::Requested;
        progress.announce(&view, "Stopping. The partial result follows. Press Ctrl-C again to exit at once.");
        if let Err(error) = run.cancel("the user").await {
            progress.say(&view, &store_advice::describe_run(&error));
        }
    };
    listener.close();
    progress.end();
    attention.ended(&view, &result);
    Ok(FollowedRun { result, view })
}

/// Handles the events that are already queued.
fn show_queued(events: &mut RunEvents, view: &mut RunView, progress: &mut Progress) -> Result<(), CliError> {
    while let Some(live) = events.try_next() {
        on_event(live, view, progress)?;
    }
    progress.flush()
}

/// Handles an event of a stream.
pub(crate) fn on_event(live: RunEvent, view: &mut RunView, progress: &mut Progress) -> Result<(), CliError> {
    let live = redaction::run_event(live);
    view.take(&live);
    progress.on_event(&live, view)
}
