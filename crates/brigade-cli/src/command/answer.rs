//! `brigade answer`: answers what agents ask, whoever runs them.

use std::io::BufRead;

use brigade::mcp::Servers;
use brigade::{RunError, Runtime, Store};
use brigade_core::view::{Question, Tree};
use brigade_core::{CallId, SessionId};
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
use crate::render::question;
use crate::safe;
use crate::settings::Settings;
use crate::terminal;
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
    engine::many_threads()?.block_on(async {
        let store = engine::store(&settings)?;
        let wanted = wanted(&*store, &answer.id).await?;
        if let Some(folder) =
            engine::recorded_folder(&*store, &wanted.session).await?.filter(|folder| folder.is_dir())
        {
            settings.folder = folder;
        }
        let runtime = engine::runtime(&settings, store, &Servers::default())?;
        let tree = read(&**runtime.store(), &wanted.session).await?;
        let open = open(&tree, &wanted);
        if !answer.words.is_empty() {
            return give(global, &runtime, &open, answer).await;
        }
        if global.output_format == OutputFormat::Text && terminal::can_ask() && !open.is_empty() {
            return talk(&runtime, &wanted).await;
        }
        list(global, &tree, &open, answer)
    })
}

async fn wanted(store: &dyn Store, id: &str) -> Result<Wanted, Failure> {
    let (session, call) =
        id.trim().split_once(':').map_or((id, None), |(session, call)| (session, Some(call)));
    let session = named::session(store, session).await?;
    let call = call.map(|call| call.parse().map_err(Failure::usage)).transpose()?;
    Ok(Wanted { session, call })
}

async fn read(store: &dyn Store, session: &SessionId) -> Result<Tree, Failure> {
    let records = store.tail(&session.root_id(), 0, usize::MAX).await?;
    if !records.iter().any(|record| record.session == *session) {
        // The store says best what it does not have.
        store.read(session, 0).await?;
    }
    Ok(Tree::fold(&records))
}

fn open<'a>(tree: &'a Tree, wanted: &Wanted) -> Vec<&'a Question> {
    let is_meant = |open: &&Question| match wanted.call {
        Some(call) => open.session == wanted.session && open.call == call,
        None => wanted.session.contains(&open.session),
    };
    tree.questions().filter(is_meant).collect()
}

/// Gives the answer that was typed with the command.
async fn give(
    global: &Global,
    runtime: &Runtime,
    open: &[&Question],
    answer: &Answer,
) -> Result<Exit, Failure> {
    let [first, rest @ ..] = open else {
        return Err(Failure::failed(format!(
            "nothing is asked in {}; it may have been answered already",
            safe::line(&answer.id)
        )));
    };
    let line = answer.words.join(" ");
    let (given, scope) = dialogue::answer(&line, first.always.as_deref()).map_err(Failure::usage)?;
    if !rest.is_empty() && scope == Scope::One {
        let names: Vec<String> = open.iter().map(|open| format!("  {}", named(open))).collect();
        return Err(Failure::usage(format!(
            "{} questions are open; name one of them, or answer all with `yes all` or `no all`:\n{}",
            open.len(),
            names.join("\n")
        )));
    }
    let mut answered = Vec::new();
    for open in open {
        match runtime.answer(&open.session, open.call, given.clone(), "the person").await {
            Ok(()) => answered.push(open.name()),
            // Somebody else was faster with one of several.
            Err(error @ RunError::NotAsked { .. }) if !rest.is_empty() => {
                output::note(&error.to_string());
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        if global.output_format == OutputFormat::Text {
            output::note(&format!("{} is answered", open.name()));
        }
    }
    if global.output_format != OutputFormat::Text {
        output::json(&json!({ "type": "answered", "questions": answered, "answer": given }))?;
    }
    let root = first.session.root_id();
    if !is_run(&**runtime.store(), &root).await? {
        let store = store_flag(global);
        output::note(&format!("Nobody runs {root} now; it counts from: brigade resume {root}{store}"));
    }
    Ok(Exit::Done)
}

/// Puts one question after the other, until there is none, or the person has enough.
async fn talk(runtime: &Runtime, wanted: &Wanted) -> Result<Exit, Failure> {
    let mut skipped: Vec<String> = Vec::new();
    loop {
        let tree = read(&**runtime.store(), &wanted.session).await?;
        let all = open(&tree, wanted);
        let Some(current) = all.iter().find(|open| !skipped.contains(&open.name())) else { break };
        output::note(&question::lines(current, &tree, terminal::size().0).join("\n"));
        let choices = dialogue::choices(current, all.len(), terminal::size().0);
        output::note(&format!("{}\nEnter alone leaves it open.", choices.join("\n")));
        output::paint("> ");
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| Failure::failed(format!("the answer cannot be read: {error}")))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            skipped.push(current.name());
            continue;
        }
        let (answer, scope) = match dialogue::answer(&line, current.always.as_deref()) {
            Ok(answer) => answer,
            Err(words) => {
                output::note(&words);
                continue;
            }
        };
        let meant = if scope == Scope::All { all.clone() } else { vec![*current] };
        for open in meant {
            // Somebody else may have been faster.
            if let Err(error) = runtime.answer(&open.session, open.call, answer.clone(), "the person").await {
                output::note(&error.to_string());
            }
        }
    }
    Ok(Exit::Done)
}

fn list(global: &Global, tree: &Tree, open: &[&Question], answer: &Answer) -> Result<Exit, Failure> {
    if global.output_format != OutputFormat::Text {
        let questions: Vec<Value> = open.iter().map(|open| as_json(open, tree)).collect();
        output::json(&json!({ "type": "questions", "questions": questions }))?;
        return Ok(Exit::Done);
    }
    if open.is_empty() {
        output::note(&format!("nothing is asked in {}", safe::line(&answer.id)));
    }
    for open in open {
        let left = units::elapsed(open.until.saturating_sub(clock::now()));
        output::text(&format!(
            "{}\n  brigade answer {}{} yes|always|no [WORDS]   (no in {left})",
            question::lines(open, tree, terminal::room_for_results()).join("\n"),
            open.name(),
            store_flag(global)
        ))?;
    }
    Ok(Exit::Done)
}

fn named(open: &Question) -> String {
    format!("{}  {}", open.name(), safe::line(open.tool()))
}

fn as_json(open: &Question, tree: &Tree) -> Value {
    json!({
        "question": open.name(),
        "session": open.session,
        "call": open.call,
        "lineage": tree.lineage(&open.session),
        "tool": open.tool(),
        "arguments": serde_json::from_str::<Value>(open.arguments()).unwrap_or_default(),
        "why": open.why,
        "always": open.always,
        "asked_at": open.asked_at,
        "until": open.until,
    })
}
