//! Following a tree while it runs: every fact in order, whoever else watches, and what the person does meanwhile.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade::store::Pos;
use brigade::{Ending, Live, Run, RunError, Runtime, Store};
use brigade_core::event::CallFault;
use brigade_core::faces::DELEGATION_TOOLS;
use brigade_core::view::Tree;
use brigade_core::{CallId, Event, Grant, Record, SessionId, Text, ToolCall};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::attention::Attention;
use crate::dialogue::Wish;
use crate::failure::{Exit, Failure};
use crate::finish::Hints;
use crate::output;
use crate::progress::Progress;
use crate::render::shortened;
use crate::safe;
use crate::suspend;

/// How often a live tree is drawn.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// How much of a call's arguments is shown.
const BRIEF: usize = 60;

/// What is known of a tree.
pub(crate) struct View {
    /// The session at the top of what is looked at.
    pub(crate) root: SessionId,
    /// The projection of its log.
    pub(crate) tree: Tree,
    /// What the current round of the top session was granted, and when.
    pub(crate) grant: Option<(Grant, u64)>,
    /// JSON Schema that the result of the top session's current round has to fit, if it has one.
    pub(crate) schema: Option<Text>,
    seen: HashMap<SessionId, u64>,
    /// Position up to which all facts of the tree were seen.
    seen_until: Pos,
    /// The last turn of each session whose reply is known whole.
    replied: HashMap<SessionId, u32>,
    calls: HashMap<SessionId, HashMap<CallId, String>>,
    doing: HashMap<SessionId, String>,
    after: HashMap<SessionId, String>,
    waiting: HashMap<SessionId, String>,
    /// Whether the last model call of the top session failed for a reason that a retry does not remove.
    pub(crate) has_fatal_fault: bool,
    /// The fault of the last attempt of a session whose turn has no reply yet.
    faults: HashMap<SessionId, String>,
    in_line: HashMap<SessionId, HashSet<CallId>>,
}

impl View {
    /// Nothing seen yet.
    pub(crate) fn new(root: SessionId) -> View {
        View {
            root,
            tree: Tree::default(),
            grant: None,
            schema: None,
            seen: HashMap::new(),
            seen_until: 0,
            replied: HashMap::new(),
            calls: HashMap::new(),
            doing: HashMap::new(),
            after: HashMap::new(),
            waiting: HashMap::new(),
            has_fatal_fault: false,
            faults: HashMap::new(),
            in_line: HashMap::new(),
        }
    }

    /// All that the store has of a tree.
    pub(crate) async fn load(store: &dyn Store, root: &SessionId) -> Result<(View, Vec<Record>), Failure> {
        let records = store.tail(root, 0, usize::MAX).await?;
        let mut view = View::new(root.clone());
        for record in &records {
            view.apply(record);
            view.seen_until = record.pos;
        }
        Ok((view, records))
    }

    /// What a session is calling, with the most telling argument.
    pub(crate) fn doing(&self, session: &SessionId) -> Option<&str> {
        self.doing.get(session).map(String::as_str)
    }

    /// What a session did last.
    pub(crate) fn after(&self, session: &SessionId) -> Option<&str> {
        self.after.get(session).map(String::as_str)
    }

    /// What the request of a session waits for.
    pub(crate) fn waiting(&self, session: &SessionId) -> Option<&str> {
        self.waiting.get(session).map(String::as_str)
    }

    /// How many calls of a session that delegate have no child yet: they wait for a slot, or for a loan.
    pub(crate) fn in_line(&self, session: &SessionId) -> usize {
        self.in_line.get(session).map_or(0, HashSet::len)
    }

    /// Takes into account what is not a fact: a request that waits does so until something else is heard of it.
    pub(crate) fn look(&mut self, live: &Live) {
        match live {
            Live::Waiting { session, why } => {
                self.waiting.insert(session.clone(), safe::line(why));
            }
            Live::Delta { session, .. } | Live::Discarded { session, .. } => {
                self.waiting.remove(session);
            }
            Live::Fact(record) => {
                self.waiting.remove(&record.session);
                self.look_at_attempt(record);
            }
        }
    }

    /// Keeps the fault of a failed attempt in sight until there is a reply: the model may not even be reached.
    fn look_at_attempt(&mut self, record: &Record) {
        let session = &record.session;
        match &record.event {
            Event::CallFailed { cause: CallFault::Transient { message }, .. } => {
                self.faults.insert(session.clone(), safe::line(message));
            }
            Event::Called { .. } => {
                if let Some(fault) = self.faults.get(session) {
                    self.waiting.insert(session.clone(), format!("trying again after: {fault}"));
                }
            }
            Event::Replied { .. } | Event::CallFailed { .. } | Event::Ended { .. } => {
                self.faults.remove(session);
            }
            _ => {}
        }
    }

    /// What a call is, with the most telling argument.
    pub(crate) fn call(&self, session: &SessionId, call: CallId) -> &str {
        self.calls.get(session).and_then(|calls| calls.get(&call)).map_or("", String::as_str)
    }

    /// Takes a fact into account.
    pub(crate) fn apply(&mut self, record: &Record) {
        self.tree.apply(record);
        self.seen.insert(record.session.clone(), record.seq + 1);
        if record.session == self.root {
            match &record.event {
                Event::CallFailed { cause, .. } => {
                    self.has_fatal_fault = matches!(cause, CallFault::Fatal { .. });
                }
                Event::Started { .. } | Event::Called { .. } => self.has_fatal_fault = false,
                _ => {}
            }
        }
        match &record.event {
            Event::Started { grant, delegation, .. } if record.session == self.root => {
                self.grant = Some((*grant, record.at));
                self.schema.clone_from(&delegation.schema);
            }
            Event::Replied { turn, reply, .. } => {
                let calls = self.calls.entry(record.session.clone()).or_default();
                calls.clear();
                let mut in_line = HashSet::new();
                for (index, call) in (0..).zip(&reply.calls) {
                    let id = CallId { turn: *turn, index };
                    calls.insert(id, brief(call));
                    if DELEGATION_TOOLS.contains(&call.name.as_str()) {
                        in_line.insert(id);
                    }
                }
                self.in_line.insert(record.session.clone(), in_line);
                self.doing.remove(&record.session);
                self.replied.insert(record.session.clone(), *turn);
            }
            Event::ToolStarted { call, .. } => {
                let brief = self.call(&record.session, *call).to_owned();
                self.doing.insert(record.session.clone(), brief);
            }
            Event::Delegated { call, .. } => self.leave_line(&record.session, *call),
            Event::ToolEnded { call, output, .. } => {
                self.leave_line(&record.session, *call);
                let how = if output.is_error() { "failed: " } else { "after " };
                let after = format!("{how}{}", self.call(&record.session, *call));
                self.after.insert(record.session.clone(), after);
            }
            Event::Called { .. } | Event::Ended { .. } => {
                self.doing.remove(&record.session);
            }
            _ => {}
        }
    }

    fn leave_line(&mut self, session: &SessionId, call: CallId) {
        if let Some(in_line) = self.in_line.get_mut(session) {
            in_line.remove(&call);
        }
    }

    /// What happened, in order and without gaps: facts from before the watch began are read from the store.
    pub(crate) async fn complete(&self, store: &dyn Store, live: Live) -> Vec<Live> {
        // Its log may have told of a reply before the watch told its parts.
        if let Live::Delta { session, turn, .. } | Live::Discarded { session, turn } = &live
            && self.replied.get(session).is_some_and(|replied| replied >= turn)
        {
            return Vec::new();
        }
        let (session, until) = match &live {
            Live::Fact(record) => (&record.session, Some(record.seq)),
            Live::Delta { session, .. } | Live::Discarded { session, .. } | Live::Waiting { session, .. } => {
                (session, None)
            }
        };
        let next = self.seen.get(session).copied();
        let missed = match (next, until) {
            (next, Some(seq)) if seq < next.unwrap_or(0) => return Vec::new(),
            (next, Some(seq)) if seq > next.unwrap_or(0) => next.unwrap_or(0),
            (None, None) => 0,
            _ => return vec![live],
        };
        // What cannot be read shows when the run ends.
        let mut records = store.read(session, missed).await.unwrap_or_default();
        if let Some(seq) = until {
            records.retain(|record| record.seq < seq);
        }
        let mut all: Vec<Live> = records.into_iter().map(|record| Live::Fact(record.into())).collect();
        all.push(live);
        all
    }

    /// Reads the facts of a run that ended before watching began. Facts that were already seen may be included.
    pub(crate) async fn missed(&mut self, store: &dyn Store) -> Vec<Record> {
        // What cannot be read now was written, and can be looked at later.
        let records = store.tail(&self.root, self.seen_until, usize::MAX).await.unwrap_or_default();
        self.seen_until = records.last().map_or(self.seen_until, |record| record.pos);
        records
    }
}

/// A call in few words: the tool, and the argument that says most.
pub(crate) fn brief(call: &ToolCall) -> String {
    let arguments: serde_json::Value = serde_json::from_str(call.arguments.as_str()).unwrap_or_default();
    let telling = ["command", "path", "pattern", "role", "text", "task"];
    let argument = telling.iter().find_map(|key| arguments.get(key)?.as_str()).unwrap_or_default();
    let argument = shortened(&safe::line(argument), BRIEF);
    let name = safe::line(&call.name);
    if argument.is_empty() { name } else { format!("{name} {argument}") }
}

/// What the person does with the process.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    suspend: Signal,
    store: Arc<dyn Store>,
}

impl Interrupts {
    /// Begins to listen. The process is not stopped by Ctrl-Z while it writes to the store.
    pub(crate) fn listen(store: Arc<dyn Store>) -> Result<Interrupts, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("no signals can be heard: {error}")));
        Ok(Interrupts {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            suspend: suspend::listen()?,
            store,
        })
    }

    /// Waits for one that asks for the end.
    pub(crate) async fn next(&mut self) {
        while self.signal().await == Interrupt::Suspend {
            self.suspend();
        }
    }

    /// Waits for any.
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
}

/// Request of the user to the process.
#[derive(PartialEq, Eq)]
enum Interrupt {
    End,
    Suspend,
}

/// What became of a run that was followed.
pub(crate) struct Followed {
    /// How it ended.
    pub(crate) ending: Result<Ending, RunError>,
    /// What is known of the tree.
    pub(crate) view: View,
}

/// Whether the person has asked for the end.
#[derive(PartialEq, Eq)]
enum Asked {
    NotYet,
    Once,
}

/// Follows a run to its end. The first Ctrl-C cancels it, a second one leaves it.
pub(crate) async fn follow(
    runtime: &Runtime,
    run: Run,
    mut view: View,
    progress: &mut Progress,
    interrupts: &mut Interrupts,
    hints: &Hints,
    attention: &mut Attention,
) -> Result<Followed, Failure> {
    let root = run.session().clone();
    let store = runtime.store().clone();
    let mut watch = run.watch();
    // The run has begun: what it wrote before the watch is told by its log.
    catch_up(&*store, &mut view, progress).await?;
    progress.flush()?;
    let mut ending = pin!(run.ending());
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asked = Asked::NotYet;
    let mut listener = progress.listener(runtime.settings());
    listener.look(&view, progress)?;
    attention.look(&view.tree);
    let ending = loop {
        let wish = tokio::select! {
            biased;
            interrupt = interrupts.signal() => match interrupt {
                Interrupt::End => Wish::Interrupt,
                Interrupt::Suspend => {
                    progress.end();
                    interrupts.suspend();
                    Wish::GoOn
                }
            },
            typed = listener.next() => listener.take(typed, runtime, &view, progress).await?,
            // Before the facts: a tree that is busy would otherwise never be drawn.
            _ = ticks.tick() => {
                listener.show(&view, progress);
                progress.tick(&view);
                Wish::GoOn
            }
            Some(live) = watch.next() => {
                see(&*store, live, &mut view, progress).await?;
                while let Some(live) = watch.try_next() {
                    see(&*store, live, &mut view, progress).await?;
                }
                listener.look(&view, progress)?;
                attention.look(&view.tree);
                progress.flush()?;
                Wish::GoOn
            }
            ending = &mut ending => break ending,
        };
        if wish == Wish::GoOn {
            continue;
        }
        if asked == Asked::Once {
            listener.close();
            progress.end();
            attention.restore_title();
            output::note(&format!(
                "Left before all agents had stopped. To continue: {}",
                hints.resume(&root)
            ));
            crate::leave(Exit::Cancelled.code());
        }
        asked = Asked::Once;
        progress
            .announce(&view, "Stopping; what there is so far follows. Press Ctrl-C again to leave at once.");
        if let Err(error) = runtime.cancel(&root, "the person").await {
            progress.say(&view, &error.to_string());
        }
    };
    listener.close();
    while let Some(live) = watch.try_next() {
        see(&*store, live, &mut view, progress).await?;
    }
    catch_up(&*store, &mut view, progress).await?;
    progress.flush()?;
    progress.end();
    attention.ended(&view, &ending);
    Ok(Followed { ending, view })
}

/// Sees what the watch has not told.
pub(crate) async fn catch_up(
    store: &dyn Store,
    view: &mut View,
    progress: &mut Progress,
) -> Result<(), Failure> {
    for record in view.missed(store).await {
        see(store, Live::Fact(record.into()), view, progress).await?;
    }
    Ok(())
}

async fn see(store: &dyn Store, live: Live, view: &mut View, progress: &mut Progress) -> Result<(), Failure> {
    for live in view.complete(store, live).await {
        view.look(&live);
        if let Live::Fact(record) = &live {
            view.apply(record);
        }
        progress.see(&live, view)?;
    }
    Ok(())
}
