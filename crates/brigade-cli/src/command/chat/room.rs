//! The chat on a terminal: one loop over keys, the running tree and time.

mod input;
mod orders;
mod own_command;
mod plan;
mod questions;

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::time::{Duration, Instant};

use brigade::{Ending, Live, Prepared, RunError, Watch};
use brigade_core::{SessionId, State, Status};
use crossterm::event::EventStream;
use futures::StreamExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::attach::Attached;
use super::commands::{self, Command, Typed};
use super::history::History;
use super::line::Line;
use super::screen::{Frame, Screen};
use super::talk::{Said, Talk};
use super::voice::{self, Voice};
use crate::failure::{Exit, Failure};
use crate::finish;
use crate::keyboard::editor::Taken;
use crate::output;
use crate::render::wrapped;
use crate::safe;
use crate::suspend;
use crate::terminal::{self, Colour};
use questions::Questions;

/// How often the frame is drawn.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked after sessions that were left to themselves, in ticks.
const GLANCE: u32 = 10;
/// Within this time a second Ctrl-C leaves.
const TWICE: Duration = Duration::from_secs(3);
/// How many lines of a text that is not complete are shown.
const PENDING: usize = 4;

/// The chat on a terminal.
pub(super) struct Room<'a> {
    talk: &'a mut Talk,
    screen: Screen,
    colour: Colour,
    line: Line,
    voice: Voice,
    round: Option<Round>,
    /// Sessions that were left to themselves and work on in this process, and who they are.
    apart: HashMap<SessionId, String>,
    /// What they ask, as far as it was said.
    told: HashSet<String>,
    questions: Questions,
    pressed: Option<Pressed>,
    notice: Option<String>,
    /// A command of the user that runs.
    command: Option<own_command::Running>,
    /// A plan that the user can approve.
    plan: Option<plan::Plan>,
    /// Whether the last line that was said is empty.
    is_spaced: bool,
}

/// A round that runs.
struct Round {
    watch: Watch,
    ending: Pin<Box<dyn Future<Output = Result<Ending, RunError>> + Send>>,
    stops: Stops,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    No,
    Asked,
}

/// Ctrl-C was pressed once.
struct Pressed {
    at: Instant,
    /// How the chat ends if it is pressed again.
    exit: Exit,
}

/// What others ask of the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    suspend: Signal,
}

/// What a running round has to tell.
enum News {
    Live(Live),
    Ended(Box<Result<Ending, RunError>>),
}

/// Talks until the person leaves.
pub(super) async fn converse(talk: &mut Talk) -> Result<Exit, Failure> {
    let colour = talk.colour();
    let history = talk.settings.environment.history_file().map(History::load).unwrap_or_default();
    let root = talk.session().cloned().unwrap_or_else(|| SessionId::root(0));
    let voice = Voice::new(root, colour, talk.beside.clone());
    // From here on a signal does not end the process any more, so that the terminal is always given back.
    let signals = Signals {
        terminate: listen(SignalKind::terminate())?,
        interrupt: listen(SignalKind::interrupt())?,
        suspend: suspend::listen()?,
    };
    let screen = Screen::enter(colour)?;
    let line = Line::new(history, talk.settings.folder.clone());
    let questions = Questions::new(talk, colour);
    let mut room = Room {
        talk,
        screen,
        colour,
        line,
        voice,
        round: None,
        apart: HashMap::new(),
        told: HashSet::new(),
        questions,
        pressed: None,
        notice: None,
        command: None,
        plan: None,
        is_spaced: true,
    };
    room.greet().await;
    let exit = room.run(signals).await;
    let left = std::mem::take(&mut room.apart);
    let mut attention = room.questions.take_attention();
    drop(room);
    for (session, label) in left {
        output::note(&format!("{label} was left at its work; to go on: brigade resume {session}"));
    }
    attention.finish().await;
    Ok(exit)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("no signals can be heard: {error}")))
}

async fn news(round: &mut Option<Round>) -> News {
    let Some(round) = round else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(live) = round.watch.next() => News::Live(live),
        ending = &mut round.ending => News::Ended(Box::new(ending)),
    }
}

impl Room<'_> {
    async fn run(&mut self, mut signals: Signals) -> Exit {
        let mut keyboard = EventStream::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut ticked: u32 = 0;
        loop {
            let leave = tokio::select! {
                biased;
                _ = signals.terminate.recv() => Some(self.exit()),
                _ = signals.interrupt.recv() => self.interrupt().await,
                _ = signals.suspend.recv() => {
                    self.screen.clear();
                    suspend::suspend(&**self.talk.runtime.store());
                    self.draw();
                    None
                }
                event = keyboard.next() => match event {
                    Some(Ok(event)) => self.event(event).await,
                    // Nobody can type any more.
                    Some(Err(_)) | None => Some(self.exit()),
                },
                _ = ticks.tick() => {
                    ticked = ticked.wrapping_add(1);
                    if ticked.is_multiple_of(GLANCE) {
                        self.look_after().await;
                    }
                    self.tick();
                    None
                }
                finished = own_command::finished(&mut self.command) => {
                    self.command_ended(finished);
                    None
                }
                news = news(&mut self.round) => {
                    self.hear(news).await;
                    None
                }
            };
            if let Some(exit) = leave {
                return exit;
            }
        }
    }

    /// How the chat ends if it ends now.
    fn exit(&self) -> Exit {
        if self.round.is_some() { Exit::Cancelled } else { Exit::Done }
    }

    pub(super) async fn greet(&mut self) {
        let columns = self.columns();
        let mut lines = voice::recalled(&self.talk.earlier, self.colour, columns);
        let model = self.talk.model().await.map(|model| format!(", {}", safe::line(&model)));
        let (model, mode) = (model.unwrap_or_default(), self.talk.mode().await);
        let who = safe::line(self.talk.who());
        let greeting = format!("{who}{model}, mode {mode}. /help lists the commands.");
        lines.extend(wrapped(&greeting, columns).lines().map(|line| self.colour.paint("2", line)));
        if self.talk.is_open() {
            let open = "Its last round is not over; it goes on with your next message.";
            lines.extend(wrapped(open, columns).lines().map(str::to_owned));
        }
        lines.push(String::new());
        self.say(lines);
    }

    fn columns(&self) -> usize {
        terminal::size().0.saturating_sub(1)
    }

    /// Says lines that are safe. Two empty ones never follow each other.
    fn say(&mut self, mut lines: Vec<String>) {
        lines.retain(|line| {
            let repeats = self.is_spaced && line.is_empty();
            self.is_spaced = line.is_empty();
            !repeats
        });
        if !lines.is_empty() {
            let notice = self.shown_notice();
            let frame =
                frame(self.talk, &self.round, &self.voice, &self.line, &self.questions, notice.as_deref());
            self.screen.say(&lines, frame);
        }
    }

    fn draw(&mut self) {
        let notice = self.shown_notice();
        let frame =
            frame(self.talk, &self.round, &self.voice, &self.line, &self.questions, notice.as_deref());
        self.screen.draw(frame);
    }

    /// The word on what the next key does.
    fn shown_notice(&self) -> Option<String> {
        let command = || self.command.as_ref().map(own_command::Running::notice);
        let question = || self.questions.notice().map(str::to_owned);
        let plan = || self.plan.as_ref().filter(|_| self.line.is_empty()).map(plan::Plan::notice);
        let notice = self.notice.clone().or_else(|| self.line.notice());
        notice.or_else(command).or_else(question).or_else(plan)
    }

    fn note(&mut self, text: &str) {
        let text = wrapped(&safe::lines(text), self.columns());
        let lines = self.voice.aside(text.lines().map(str::to_owned).collect());
        self.say(lines);
    }

    fn tick(&mut self) {
        if self.pressed.as_ref().is_some_and(|pressed| pressed.at.elapsed() > TWICE) {
            self.pressed = None;
            self.notice = None;
        }
        self.draw();
    }

    async fn send(&mut self, taken: Taken) -> Option<Exit> {
        let rest = self.voice.rest();
        self.say(rest);
        let mut lines = voice::echo(&taken.shown, self.colour);
        if let Some(command) = commands::own(&taken.text) {
            self.say(lines);
            self.run_command(command);
            return None;
        }
        match commands::parse(&taken.text) {
            Ok(Typed::Command(Command::Quit)) => return Some(self.exit()),
            Ok(Typed::Command(command)) => {
                self.say(lines);
                if let Err(failure) = self.obey(command).await {
                    self.fail(&failure);
                }
                let rest = self.voice.rest();
                self.say(rest);
            }
            Ok(Typed::Message(message)) => {
                let Attached { text, notes } = self.talk.composed(&message);
                if self.round.is_some() {
                    lines.push(self.colour.paint("2", "  (heard at the next step)"));
                }
                for note in &notes {
                    let note = wrapped(&format!("  ({note})"), self.columns());
                    lines.extend(note.lines().map(|line| self.colour.paint("2", line)));
                }
                lines.push(String::new());
                self.say(lines);
                self.message(&text).await;
            }
            Err(words) => {
                self.say(lines);
                self.note(&words);
                let rest = self.voice.rest();
                self.say(rest);
            }
        }
        None
    }

    async fn message(&mut self, text: &str) {
        self.plan = None;
        if let (Some(_), Some(session)) = (&self.round, self.talk.session()) {
            match self.talk.tell(session, text).await {
                Ok(()) => self.talk.forget_kept(),
                Err(failure) => self.fail(&failure),
            }
            return;
        }
        let said = self.talk.say(text).await;
        if said.is_ok() {
            self.talk.forget_kept();
        }
        self.begin(said);
    }

    fn begin(&mut self, said: Result<Said, Failure>) {
        match said {
            Ok(Said::Runs(round)) => self.follow(round),
            Ok(Said::Elsewhere) => {
                self.note("This session is run elsewhere and hears it there before its next turn.");
            }
            Err(failure) => self.fail(&failure),
        }
    }

    /// Starts a round. It is watched before it begins, so that nothing of it is missed.
    fn follow(&mut self, round: Prepared) {
        let beside = std::mem::take(&mut self.talk.beside);
        self.voice = Voice::new(round.session().clone(), self.colour, beside);
        let watch = round.watch();
        self.round = Some(Round { watch, ending: Box::pin(round.start().ending()), stops: Stops::No });
    }

    fn fail(&mut self, failure: &Failure) {
        let words = failure.words().unwrap_or_default();
        self.note(&words);
        let rest = self.voice.rest();
        self.say(rest);
    }

    async fn hear(&mut self, news: News) {
        match news {
            News::Live(live) => self.see(live).await,
            News::Ended(ending) => self.ended(*ending).await,
        }
    }

    async fn see(&mut self, live: Live) {
        self.voice.set_columns(self.columns());
        let Some(view) = &mut self.talk.view else { return };
        let store = self.talk.runtime.store().clone();
        let mut lines = Vec::new();
        for live in view.complete(&*store, live).await {
            view.look(&live);
            if let Live::Fact(record) = &live {
                view.apply(record);
            }
            lines.extend(self.voice.see(&live, view));
        }
        self.say(lines);
        self.look_at_questions();
    }

    async fn ended(&mut self, ending: Result<Ending, RunError>) {
        self.catch_up().await;
        if let Some(view) = &self.talk.view {
            self.questions.ended(view, &ending);
        }
        self.round = None;
        self.notice = None;
        let mut lines = match &ending {
            Ok(ending) => self.voice.end(&ending.outcome),
            Err(error) => {
                let text = wrapped(&safe::lines(&error.to_string()), self.columns());
                self.voice.aside(text.lines().map(str::to_owned).collect())
            }
        };
        lines.extend(self.voice.rest());
        self.say(lines);
        for session in ending.iter().flat_map(|ending| ending.detached.sessions()) {
            let node = self.talk.view.as_ref().and_then(|view| view.tree.node(session));
            let label = node.map_or_else(|| session.to_string(), |node| safe::line(&node.label));
            self.note(&format!("{label} goes on by itself as {session}"));
            self.apart.insert(session.clone(), label);
        }
        let has_answer = ending
            .as_ref()
            .is_ok_and(|ending| ending.outcome.status == Status::Done && !ending.outcome.text.is_empty());
        let was_cancelled =
            ending.as_ref().is_ok_and(|ending| matches!(ending.outcome.status, Status::Cancelled { .. }));
        if self.talk.has_unheard_words().await {
            if was_cancelled {
                self.note("What you said last is heard with your next message.");
            } else if ending.is_ok() {
                let said = self.talk.go_on().await;
                self.begin(said);
            }
        } else if has_answer {
            self.offer_approval().await;
        }
        self.draw();
    }

    /// What was written and not told, because it was over too soon.
    async fn catch_up(&mut self) {
        if let Some(round) = &mut self.round {
            let mut rest = Vec::new();
            while let Some(live) = round.watch.try_next() {
                rest.push(live);
            }
            for live in rest {
                self.see(live).await;
            }
        }
        let store = self.talk.runtime.store().clone();
        let Some(view) = &mut self.talk.view else { return };
        for record in view.missed(&*store).await {
            self.see(Live::Fact(record.into())).await;
        }
    }

    /// Announces the end of sessions that were left to themselves.
    async fn look_after(&mut self) {
        let sessions: Vec<SessionId> = self.apart.keys().cloned().collect();
        let store = self.talk.runtime.store().clone();
        for session in sessions {
            let Ok(records) = store.read(&session, 0).await else { continue };
            let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
            if let Some(outcome) = state.ended() {
                let label = self.apart.remove(&session).unwrap_or_default();
                self.note(&voice::announced(&label, outcome));
                continue;
            }
            let tree = finish::tree_of(&*store, &session).await;
            self.questions.call(&tree);
            for (name, words) in finish::asked(&tree) {
                if self.told.insert(name) {
                    self.note(&words);
                }
            }
        }
    }
}

/// What stands beneath the conversation now.
fn frame<'a>(
    talk: &'a Talk,
    round: &Option<Round>,
    voice: &Voice,
    line: &Line,
    questions: &Questions,
    notice: Option<&'a str>,
) -> Frame<'a> {
    let columns = terminal::size().0.saturating_sub(1);
    let view = talk.view.as_ref().filter(|_| round.is_some());
    let question = view.and_then(|view| questions.layout(&view.tree, columns));
    Frame {
        view,
        pending: voice.pending(PENDING),
        notice,
        line: question.unwrap_or_else(|| line.layout(columns, Screen::line_rows())),
    }
}
