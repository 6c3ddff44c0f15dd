//! `brigade answer`: answers what agents ask, whoever runs them.

mod talk;

use brigade::mcp::Servers;
use brigade::{RunError, Runtime, Store, Workspace};
use brigade_core::event::Answer as Given;
use brigade_core::view::{Question, Tree};
use brigade_core::{CallId, Event, Record, SessionId};
use serde_json::{Value, json};

use super::tell::is_run;
use crate::args::{Answer, Global, OutputFormat};
use crate::clock;
use crate::dialogue::{self, Scope};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::finish::store_flag;
use crate::named;
use crate::output;
use crate::preview::{self, Preview};
use crate::render::question::{self, Length, Look};
use crate::safe;
use crate::settings::{Instructions, Settings};
use crate::terminal::{self, Colour};
use crate::units;

/// Which questions are meant.
struct Wanted {
    session: SessionId,
    call: Option<CallId>,
}

/// Runs it.
pub(crate) fn run(global: &Global, answer: &Answer) -> Result<Exit, Failure> {
    if brigade_sandbox::runs_under(crate::GUARD) {
        return Err(Failure::usage(
            "an agent runs this command, and what is asked is for a person to answer",
        ));
    }
    let mut settings = Settings::of_the_person(global)?;
    // No agent is told anything here.
    settings.instructions = Instructions::None;
    engine::many_threads()?.block_on(async {
        let store = engine::store_of_sessions(&settings)?;
        let Some(id) = &answer.id else { return list_all(global, &*store, &settings).await };
        let wanted = wanted(&*store, id).await?;
        if let Some(folder) =
            engine::recorded_folder(&*store, &wanted.session).await?.filter(|folder| folder.is_dir())
        {
            settings.folder = folder;
        }
        let runtime = engine::runtime(&settings, store, &Servers::default()).await?;
        let tree = read(&**runtime.store(), &wanted).await?;
        if !answer.words.is_empty() {
            return give(global, &runtime, &tree, &wanted.session, &answer.words).await;
        }
        let is_open = tree.questions().next().is_some();
        if global.output_format == OutputFormat::Text && terminal::can_ask() && is_open {
            return talk::talk(&runtime, &wanted, &settings.environment).await;
        }
        let workspace = &runtime.settings().workspace;
        if global.output_format != OutputFormat::Text {
            return list_as_json(questions_as_json(&tree, workspace));
        }
        if !is_open {
            output::note(&format!("No question is open in {}.", wanted.session));
        }
        list(global, &tree, workspace)
    })
}

/// Lists the open questions of all sessions.
async fn list_all(global: &Global, store: &dyn Store, settings: &Settings) -> Result<Exit, Failure> {
    let mut listed = Vec::new();
    for summary in store.roots().await? {
        // An ended tree asks nothing, and a tree that cannot be read does not hide the others.
        if matches!(&summary.last, Ok(Record { event: Event::Ended { .. }, .. })) {
            continue;
        }
        let Ok(records) = store.tail(&summary.root, 0, usize::MAX).await else { continue };
        let tree = Tree::fold(&records);
        if tree.questions().next().is_none() {
            continue;
        }
        let folder = engine::recorded_folder(store, &summary.root).await?.filter(|folder| folder.is_dir());
        let folder = folder.unwrap_or_else(|| settings.folder.clone());
        let workspace = Workspace::open(&folder)
            .map_err(|error| Failure::usage(format!("{} cannot be worked in: {error}", folder.display())))?;
        listed.push((tree, workspace));
    }
    if global.output_format != OutputFormat::Text {
        return list_as_json(
            listed.iter().flat_map(|(tree, workspace)| questions_as_json(tree, workspace)).collect(),
        );
    }
    if listed.is_empty() {
        output::note("No question is open.");
    }
    for (tree, workspace) in &listed {
        list(global, tree, workspace)?;
    }
    Ok(Exit::Done)
}

async fn wanted(store: &dyn Store, id: &str) -> Result<Wanted, Failure> {
    let (session, call) =
        id.trim().split_once(':').map_or((id, None), |(session, call)| (session, Some(call)));
    let session = named::session(store, session).await?;
    let call = call.map(|call| call.parse().map_err(Failure::usage)).transpose()?;
    Ok(Wanted { session, call })
}

/// The tree around a session, with no other questions than those that are meant.
async fn read(store: &dyn Store, wanted: &Wanted) -> Result<Tree, Failure> {
    let mut records = store.tail(&wanted.session.root_id(), 0, usize::MAX).await?;
    if !records.iter().any(|record| record.session == wanted.session) {
        // The store says best what it does not have.
        store.read(&wanted.session, 0).await?;
    }
    records.retain(|record| is_meant(record, wanted));
    Ok(Tree::fold(&records))
}

/// Whether a record is anything but a question that is not meant.
fn is_meant(record: &Record, wanted: &Wanted) -> bool {
    match (&record.event, wanted.call) {
        (Event::Asked { call, .. }, Some(meant)) => record.session == wanted.session && *call == meant,
        (Event::Asked { .. }, None) => wanted.session.contains(&record.session),
        _ => true,
    }
}

/// Gives the answer that was typed with the command.
async fn give(
    global: &Global,
    runtime: &Runtime,
    tree: &Tree,
    session: &SessionId,
    words: &[String],
) -> Result<Exit, Failure> {
    let open: Vec<&Question> = tree.questions().collect();
    let [first, rest @ ..] = open.as_slice() else {
        return Err(Failure::failed(format!(
            "no question is open in {session}; it may have been answered already"
        )));
    };
    let line = words.join(" ");
    let (given, scope) = dialogue::answer(&line, first.always.as_deref())
        .map_err(|error| Failure::usage(error.for_command()))?;
    if !rest.is_empty() && scope == Scope::One {
        let name = |open: &&Question| format!("  {}  {}", open.name(), question::headline(open, tree));
        let names: Vec<String> = open.iter().map(name).collect();
        return Err(Failure::usage(format!(
            "{} questions are open; name one of them, or answer all with `yes all` or `no all`:\n{}",
            open.len(),
            names.join("\n")
        )));
    }
    let mut answered = Vec::new();
    for open in &open {
        match runtime.answer(&open.session, open.call, given.clone(), "the person").await {
            Ok(()) => answered.push(open.name()),
            Err(RunError::NotAsked { .. }) if !rest.is_empty() => {
                output::note(&too_late(open, tree));
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        if global.output_format == OutputFormat::Text {
            output::note(&confirmation(open, tree, &given));
        }
    }
    if global.output_format != OutputFormat::Text {
        output::json(&json!({ "type": "answered", "questions": answered, "answer": given }))?;
    }
    let root = first.session.root_id();
    if !is_run(&**runtime.store(), &root).await? {
        let store = store_flag(global);
        output::note(&format!(
            "The run is not active. The answer takes effect with: brigade resume {root}{store}"
        ));
    }
    Ok(Exit::Done)
}

/// What an answer means for the agent that asked.
fn confirmation(open: &Question, tree: &Tree, given: &Given) -> String {
    let (who, action) = (question::lineage(open, tree), question::action(open));
    match given {
        Given::Once => format!("{who} may {action} this once."),
        Given::Always(rule) => format!("{who} may {action}, and is always allowed {}.", safe::line(rule)),
        Given::Deny { word: None } => format!("{who} may not {action}."),
        Given::Deny { word: Some(word) } => format!("{who} may not {action}: {}", safe::line(word)),
    }
}

/// Said if another answer came first.
fn too_late(open: &Question, tree: &Tree) -> String {
    format!("{}: this was answered already.", question::headline(open, tree))
}

fn questions_as_json(tree: &Tree, workspace: &Workspace) -> Vec<Value> {
    tree.questions().map(|open| as_json(open, tree, workspace)).collect()
}

fn list_as_json(questions: Vec<Value>) -> Result<Exit, Failure> {
    output::json(&json!({ "type": "questions", "questions": questions }))?;
    Ok(Exit::Done)
}

fn list(global: &Global, tree: &Tree, workspace: &Workspace) -> Result<Exit, Failure> {
    let columns = terminal::room_for_results();
    let look = Look { columns, colour: Colour::Off, workspace: Some(workspace), length: Length::Whole };
    for open in tree.questions() {
        let left = units::elapsed(open.until.saturating_sub(clock::now()));
        let mut lines = question::lines(open, tree, look).lines;
        let always = if open.always.is_some() { "always|" } else { "" };
        let (name, store) = (open.name(), store_flag(global));
        lines.push(format!("  brigade answer {name}{store} yes|{always}no [REASON]   (denied in {left})"));
        if let Some(rule) = &open.always {
            lines.push(format!("  always allows {}", safe::line(rule)));
        }
        output::text(&lines.join("\n"))?;
    }
    Ok(Exit::Done)
}

fn as_json(open: &Question, tree: &Tree, workspace: &Workspace) -> Value {
    let diff = match preview::of(open, workspace) {
        Some(Preview::Changes { change, .. }) => Some(change.diff),
        Some(Preview::Fails { .. }) | None => None,
    };
    json!({
        "question": open.name(),
        "session": open.session,
        "call": open.call,
        "lineage": tree.lineage(&open.session),
        "tool": open.tool(),
        "arguments": serde_json::from_str::<Value>(open.arguments()).unwrap_or_default(),
        "diff": diff,
        "why": open.why,
        "always": open.always,
        "asked_at": open.asked_at,
        "until": open.until,
    })
}
