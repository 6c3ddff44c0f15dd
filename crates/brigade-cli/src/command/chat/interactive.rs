//! Interactive chat on a terminal: one loop over keys, the running tree and timers.

mod approvals;
mod input;
mod plan;
mod slash_commands;
mod user_command;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use brigade::{Follow, Run, RunError, RunEvent, RunEvents, RunResult};
use brigade_core::{Cursor, SessionId, State, Status};
use crossterm::event::EventStream;
use futures::{FutureExt, StreamExt};
use tokio::signal::unix::{Signal, SignalKind};

pub(crate) use user_command::USER_COMMAND_TAG;

use super::attach::ComposedMessage;
use super::commands::{self, Command, ParsedLine};
use super::conversation::{Conversation, Sent};
use super::history::History;
use super::input_line::InputLine;
use super::screen::{Frame, Screen};
use super::transcript_writer::{self, TranscriptWriter};
use crate::clock;
use crate::error::{CliError, Exit};
use crate::follow::listen_for;
use crate::keyboard::editor::TakenInput;
use crate::output;
use crate::redaction;
use crate::render::wrap_text;
use crate::sanitize;
use crate::store_advice;
use crate::summary;
use crate::suspend;
use crate::terminal::{self, Colour};
use approvals::ApprovalPrompts;

/// Interval at which the frame is drawn.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Time within which a second Ctrl-C quits.
const DOUBLE_CTRL_C_WINDOW: Duration = Duration::from_secs(3);
/// Maximum number of lines of an incomplete text.
const MAX_PENDING_LINES: usize = 4;

/// A detached session that runs in this process.
struct DetachedSession {
    label: String,
    events: Follow,
}

/// State of the chat on a terminal.
pub(super) struct ChatUi<'a> {
    conversation: &'a mut Conversation,
    screen: Screen,
    colour: Colour,
    line: InputLine,
    writer: TranscriptWriter,
    round: Option<Round>,
    detached: HashMap<SessionId, DetachedSession>,
    /// Their pending approvals that were already announced.
    announced: HashSet<String>,
    approvals: ApprovalPrompts,
    first_ctrl_c: Option<FirstCtrlC>,
    notice: Option<String>,
    /// Running command of the user.
    command: Option<user_command::RunningCommand>,
    /// Plan that the user can approve.
    plan_shown_at: Option<Instant>,
    /// Whether the last printed line is empty.
    last_line_is_empty: bool,
}

/// Running round.
struct Round {
    run: Run,
    events: RunEvents,
}

/// State after Ctrl-C was pressed once.
struct FirstCtrlC {
    at: Instant,
    /// Exit code if it is pressed again.
    exit: Exit,
}

/// Signals from other processes.
struct ChatSignals {
    terminate: Signal,
    interrupt: Signal,
    suspend: Signal,
}

/// Event of a running round.
enum RoundEvent {
    RunEvent(RunEvent),
    Ended,
}

/// Runs the chat until the user quits.
pub(super) async fn run_chat(conversation: &mut Conversation) -> Result<Exit, CliError> {
    let colour = conversation.colour();
    let history = conversation.settings.environment.history_file().map(History::load).unwrap_or_default();
    let root = conversation.session().cloned().unwrap_or_else(|| SessionId::root(0));
    let writer = TranscriptWriter::new(root, colour, conversation.background_children.clone());
    // From here on a signal no longer ends the process, so that the terminal is always restored.
    let signals = ChatSignals {
        terminate: listen_for(SignalKind::terminate())?,
        interrupt: listen_for(SignalKind::interrupt())?,
        suspend: suspend::listen()?,
    };
    let screen = Screen::enter(colour)?;
    let line = InputLine::new(history, conversation.settings.folder.clone());
    let approvals = ApprovalPrompts::new(conversation, colour);
    let mut ui = ChatUi {
        conversation,
        screen,
        colour,
        line,
        writer,
        round: None,
        detached: HashMap::new(),
        announced: HashSet::new(),
        approvals,
        first_ctrl_c: None,
        notice: None,
        command: None,
        plan_shown_at: None,
        last_line_is_empty: true,
    };
    ui.greet().await;
    let exit = ui.run(signals).await;
    let left = std::mem::take(&mut ui.detached);
    let mut attention = std::mem::take(&mut ui.approvals.attention);
    drop(ui);
    for (session, DetachedSession { label, .. }) in left {
        output::note(&format!("{label} was still running. Resume: brigade resume {session}"));
    }
    attention.finish().await;
    Ok(exit)
}

async fn next_round_event(round: &mut Option<Round>) -> RoundEvent {
    let Some(round) = round else { return std::future::pending().await };
    round.events.next().await.map_or(RoundEvent::Ended, RoundEvent::RunEvent)
}

impl ChatUi<'_> {
    async fn run(&mut self, mut signals: ChatSignals) -> Exit {
        let mut keyboard = EventStream::new();
        let mut ticks = clock::ticks(FRAME_INTERVAL);
        loop {
            let leave = tokio::select! {
                biased;
                _ = signals.terminate.recv() => Some(self.exit()),
                _ = signals.interrupt.recv() => self.interrupt().await,
                _ = signals.suspend.recv() => {
                    self.screen.clear();
                    suspend::suspend(&**self.conversation.runtime.store());
                    self.draw();
                    None
                }
                event = keyboard.next() => match event {
                    Some(Ok(event)) => self.event(event).await,
                    // Standard input has ended.
                    Some(Err(_)) | None => Some(self.exit()),
                },
                _ = ticks.tick() => {
                    self.announce_detached().await;
                    self.tick();
                    None
                }
                finished = user_command::finished(&mut self.command) => {
                    self.command_ended(finished);
                    None
                }
                round_event = next_round_event(&mut self.round) => {
                    self.handle_round_event(round_event).await;
                    None
                }
            };
            if let Some(exit) = leave {
                return exit;
            }
        }
    }

    /// Exit code if the chat ends now.
    fn exit(&self) -> Exit {
        if self.round.is_some() { Exit::Cancelled } else { Exit::Done }
    }

    pub(super) async fn greet(&mut self) {
        let columns = self.columns();
        let mut lines = transcript_writer::recent_messages(&self.conversation.earlier, self.colour, columns);
        let model = self.conversation.model().await.map(|model| format!(", {}", sanitize::line(&model)));
        let (model, mode) = (model.unwrap_or_default(), self.conversation.mode().await);
        let who = sanitize::line(self.conversation.agent_label());
        let greeting = format!("{who}{model}, mode {mode}. /help lists the commands.");
        lines.extend(wrap_text(&greeting, columns).lines().map(|line| self.colour.paint("2", line)));
        if self.conversation.is_open() {
            let open = "The last task has not ended. It continues with your next message.";
            lines.extend(wrap_text(open, columns).lines().map(str::to_owned));
        }
        lines.push(String::new());
        self.print_lines(lines);
    }

    fn columns(&self) -> usize {
        terminal::size().0.saturating_sub(1)
    }

    /// Prints lines, which must be safe. Collapses consecutive empty lines.
    fn print_lines(&mut self, mut lines: Vec<String>) {
        lines.retain(|line| {
            let repeats = self.last_line_is_empty && line.is_empty();
            self.last_line_is_empty = line.is_empty();
            !repeats
        });
        if !lines.is_empty() {
            self.show(&lines);
        }
    }

    fn draw(&mut self) {
        self.show(&[]);
    }

    /// Draws the screen, below new lines if there are any.
    fn show(&mut self, new_lines: &[String]) {
        let columns = self.columns();
        let notice = self.current_notice();
        let view = self.conversation.view.as_ref().filter(|_| self.round.is_some());
        let question = view.and_then(|view| self.approvals.layout(&view.tree, columns));
        let frame = Frame {
            view,
            pending: self.writer.pending(MAX_PENDING_LINES),
            notice: notice.as_deref(),
            line: question.unwrap_or_else(|| self.line.layout(columns, Screen::line_rows())),
        };
        match new_lines {
            [] => self.screen.draw(frame),
            lines => self.screen.print_lines(lines, frame),
        }
    }

    /// Adds a line between blocks of the transcript.
    fn print_blank_line(&mut self) {
        let lines = self.writer.blank_line();
        self.print_lines(lines);
    }

    /// Prints lines as a block of their own.
    fn print_block(&mut self, lines: Vec<String>) {
        let lines = self.writer.note_lines(lines);
        self.print_lines(lines);
    }

    /// Untrusted text as lines that fit the screen.
    fn wrapped(&self, text: &str) -> Vec<String> {
        wrap_text(&sanitize::lines(text), self.columns()).lines().map(str::to_owned).collect()
    }

    /// Notice about the next key.
    fn current_notice(&self) -> Option<String> {
        let command = || self.command.as_ref().map(user_command::RunningCommand::notice);
        let question = || self.approvals.notice().map(str::to_owned);
        let plan =
            || self.plan_shown_at.filter(|_| self.line.is_empty()).map(|_| plan::APPROVAL_NOTICE.to_owned());
        let notice = self.notice.clone().or_else(|| self.line.notice());
        notice.or_else(command).or_else(question).or_else(plan)
    }

    fn note(&mut self, text: &str) {
        let lines = self.wrapped(text);
        self.print_block(lines);
    }

    fn tick(&mut self) {
        if self
            .first_ctrl_c
            .as_ref()
            .is_some_and(|first_ctrl_c| first_ctrl_c.at.elapsed() > DOUBLE_CTRL_C_WINDOW)
        {
            self.first_ctrl_c = None;
            self.notice = None;
        }
        self.draw();
    }

    async fn send(&mut self, taken: TakenInput) -> Option<Exit> {
        self.print_blank_line();
        let mut lines = transcript_writer::echo(&taken.shown, self.colour);
        if let Some(command) = commands::parse_user_command(&taken.text) {
            self.print_lines(lines);
            self.run_user_command(command);
            return None;
        }
        match commands::parse(&taken.text) {
            Ok(ParsedLine::Command(Command::Quit)) => return Some(self.exit()),
            Ok(ParsedLine::Command(command)) => {
                self.print_lines(lines);
                if let Err(failure) = self.run_slash_command(command).await {
                    self.fail(&failure);
                }
                self.print_blank_line();
            }
            Ok(ParsedLine::Message(message)) => {
                let ComposedMessage { text, notes } = self.conversation.compose(&message);
                if self.round.is_some() {
                    lines.push(self.colour.paint("2", "  (delivered at the next turn)"));
                }
                for note in &notes {
                    let note = wrap_text(&format!("  ({note})"), self.columns());
                    lines.extend(note.lines().map(|line| self.colour.paint("2", line)));
                }
                lines.push(String::new());
                self.print_lines(lines);
                self.message(&text).await;
            }
            Err(invalid) => {
                self.print_lines(lines);
                self.note(&invalid.to_string());
                self.print_blank_line();
            }
        }
        None
    }

    async fn message(&mut self, text: &str) {
        self.plan_shown_at = None;
        if let (Some(_), Some(session)) = (&self.round, self.conversation.session()) {
            match self.conversation.runtime.tell(session, text).await {
                Ok(()) => self.conversation.clear_pending_notes(),
                Err(error) => self.fail(&error.into()),
            }
            return;
        }
        let sent = self.conversation.send_message(text).await;
        if sent.is_ok() {
            self.conversation.clear_pending_notes();
        }
        self.begin(sent);
    }

    fn begin(&mut self, sent: Result<Sent, CliError>) {
        match sent {
            Ok(Sent::Started(run)) => self.follow(*run),
            Ok(Sent::RunningElsewhere) => {
                self.note("This session is running in another process. The agent reads the message before its next turn.");
            }
            Err(failure) => self.fail(&failure),
        }
    }

    /// Follows a round to its end.
    fn follow(&mut self, mut run: Run) {
        let background_children = std::mem::take(&mut self.conversation.background_children);
        self.writer = TranscriptWriter::new(run.session().clone(), self.colour, background_children);
        let cursor = self.conversation.view.as_ref().map_or(Cursor::START, |view| view.cursor);
        let events = run.take_events_after(cursor);
        self.round = Some(Round { run, events });
    }

    fn fail(&mut self, failure: &CliError) {
        let text = failure.message().unwrap_or_default();
        self.note(&text);
        self.print_blank_line();
    }

    async fn handle_round_event(&mut self, round_event: RoundEvent) {
        match round_event {
            RoundEvent::RunEvent(live) => self.show_event(&redaction::run_event(live)),
            RoundEvent::Ended => {
                if let Some(round) = self.round.take() {
                    self.ended(round.run.result().await).await;
                }
            }
        }
    }

    fn show_event(&mut self, live: &RunEvent) {
        self.writer.set_columns(self.columns());
        let Some(view) = &mut self.conversation.view else { return };
        view.take(live);
        let lines = self.writer.show_event(live, view);
        self.print_lines(lines);
        self.update_approvals();
    }

    async fn ended(&mut self, result: Result<RunResult, RunError>) {
        if let Some(view) = &self.conversation.view {
            self.approvals.attention.ended(view, &result);
        }
        self.notice = None;
        let mut lines = match &result {
            Ok(result) => self.writer.end(&result.outcome),
            Err(error) => {
                let lines = self.wrapped(&store_advice::describe_run(error));
                self.writer.note_lines(lines)
            }
        };
        lines.extend(self.writer.blank_line());
        self.print_lines(lines);
        for session in result.iter().flat_map(|result| result.detached.sessions()) {
            let label = self.label(session);
            self.note(&format!("{label} continues in the background as {session}"));
            let events = self.conversation.runtime.follow(session, Cursor::START);
            self.detached.insert(session.clone(), DetachedSession { label, events });
        }
        let has_answer = result
            .as_ref()
            .is_ok_and(|result| result.outcome.status == Status::Done && !result.outcome.text.is_empty());
        let was_cancelled =
            result.as_ref().is_ok_and(|result| matches!(result.outcome.status, Status::Cancelled { .. }));
        if self.conversation.has_unread_input().await {
            if was_cancelled {
                self.note("Your last message will be delivered with the next one.");
            } else if result.is_ok() {
                let sent = self.conversation.start_next_round().await;
                self.begin(sent);
            }
        } else if has_answer {
            self.offer_approval().await;
        }
        self.draw();
    }

    /// Announces the end and the approval requests of detached sessions that have new events.
    async fn announce_detached(&mut self) {
        let changed = self.detached.iter_mut().filter_map(|(session, detached)| {
            let mut has_news = false;
            while let Some(Ok(_)) = detached.events.next().now_or_never() {
                has_news = true;
            }
            has_news.then(|| session.clone())
        });
        let sessions: Vec<SessionId> = changed.collect();
        let store = self.conversation.runtime.store().clone();
        for session in sessions {
            let Ok(records) = store.read(&session, 0).await else { continue };
            let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
            if let Some(outcome) = state.ended() {
                let label = self.detached.remove(&session).map(|detached| detached.label).unwrap_or_default();
                self.note(&transcript_writer::end_notice(&label, outcome));
                continue;
            }
            let tree = summary::read_tree(&*store, &session).await;
            self.approvals.attention.alert(&tree);
            for (name, text) in summary::pending_approvals(&tree) {
                if self.announced.insert(name) {
                    self.note(&text);
                }
            }
        }
    }
}
