//! `brigade answer`: answers approval requests, in whichever process the agents run.

mod interactive;

use brigade::{RunError, Runtime, Store, Workspace};
use brigade_core::event::Answer as UserAnswer;
use brigade_core::view::{PendingApproval, Tree};
use brigade_core::{Cursor, Event, QuestionId, Record, SessionId};
use serde_json::{Value, json};

use super::tell::is_running;
use crate::approval_prompt::{self, Scope};
use crate::args::{Global, OutputFormat};
use crate::clock;
use crate::error::{CliError, Exit};
use crate::output;
use crate::preview::{self, Preview};
use crate::render::approval_view::{self, DiffDetail, ViewOptions};
use crate::sanitize;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::summary::store_flag;
use crate::terminal::{self, Colour};
use crate::units;

const HELP: &str = "\
Examples:
  brigade answer ID                         show pending requests and answer each with one key
  brigade answer ID yes                     allow this call once
  brigade answer ID always                  always allow it for this agent, by the rule shown
  brigade answer ID always 'shell(git *)'   always allow it by your own rule
  brigade answer ID no use make instead     deny it, with a reason for the agent
  brigade answer ID yes all                 allow all pending requests

A request that is not answered within `limits.question_timeout` is denied. Without a
terminal, requests are denied at once. To let a run wait for answers from another
terminal, pass --set permissions.questions=wait.";

/// Answer approval requests of agents, even in another process
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct AnswerArgs {
    /// Session, to answer its pending requests and those of its sub-agents, or SESSION:CALL or SESSION:CALL:HOST:PORT for one request (default:
    /// list the pending requests of all sessions)
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// yes, always, always RULE, no or no REASON (default: prompt at a terminal, otherwise list the pending requests)
    #[arg(value_name = "ANSWER", trailing_var_arg = true)]
    pub(crate) words: Vec<String>,
}

/// Selection of approval requests.
struct ApprovalFilter {
    session: SessionId,
    /// A call selects its own request and those about its connections.
    question: Option<QuestionId>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, answer: &AnswerArgs) -> Result<Exit, CliError> {
    let settings = Settings::load_user_only(global)?;
    setup::multi_thread_runtime()?.block_on(async {
        let store = setup::open_existing_store(&settings)?;
        let Some(id) = &answer.id else { return list_all(global, &*store, &settings).await };
        let filter = parse_filter(&*store, id).await?;
        let environment = settings.environment.clone();
        let runtime = setup::control_runtime(settings, store, &filter.session).await?;
        let tree = read(&**runtime.store(), &filter).await?;
        if !answer.words.is_empty() {
            return submit(global, &runtime, &tree, &filter.session, &answer.words).await;
        }
        let is_open = tree.pending_approvals().next().is_some();
        if global.output_format == OutputFormat::Text && terminal::can_prompt() && is_open {
            return interactive::answer_at_terminal(&runtime, &filter, &environment).await;
        }
        let workspace = &runtime.settings().workspace;
        if global.output_format != OutputFormat::Text {
            return list_as_json(questions_as_json(&tree, workspace));
        }
        if !is_open {
            output::note(&format!("No pending approval requests in {}.", filter.session));
        }
        list(global, &tree, workspace)
    })
}

/// Lists the pending approval requests of all sessions.
async fn list_all(global: &Global, store: &dyn Store, settings: &Settings) -> Result<Exit, CliError> {
    let mut listed = Vec::new();
    for summary in store.roots().await? {
        // A tree that has ended has no pending requests. A tree that cannot be read does not hide the others.
        if matches!(&summary.last, Ok(Record { event: Event::Ended { .. }, .. })) {
            continue;
        }
        let Ok(records) = store.tail(&summary.root, Cursor::START, usize::MAX).await else { continue };
        let tree = Tree::fold(&records);
        if tree.pending_approvals().next().is_none() {
            continue;
        }
        let folder = setup::session_folder(store, &summary.root).await?.filter(|folder| folder.is_dir());
        let folder = folder.unwrap_or_else(|| settings.folder.clone());
        listed.push((tree, setup::open_workspace(&folder)?));
    }
    if global.output_format != OutputFormat::Text {
        return list_as_json(
            listed.iter().flat_map(|(tree, workspace)| questions_as_json(tree, workspace)).collect(),
        );
    }
    if listed.is_empty() {
        output::note("No pending approval requests.");
    }
    for (tree, workspace) in &listed {
        list(global, tree, workspace)?;
    }
    Ok(Exit::Done)
}

async fn parse_filter(store: &dyn Store, id: &str) -> Result<ApprovalFilter, CliError> {
    let (session, question) =
        id.trim().split_once(':').map_or((id, None), |(session, question)| (session, Some(question)));
    let session = session_ref::resolve(store, session).await?;
    let question = question.map(|question| question.parse().map_err(CliError::usage)).transpose()?;
    Ok(ApprovalFilter { session, question })
}

/// Tree of a session, with only the selected requests.
async fn read(store: &dyn Store, filter: &ApprovalFilter) -> Result<Tree, CliError> {
    let mut records = store.tail(&filter.session.root_id(), Cursor::START, usize::MAX).await?;
    if !records.iter().any(|record| record.session == filter.session) {
        // The error of the store for a missing session is the clearest.
        store.read(&filter.session, 0).await?;
    }
    records.retain(|record| matches_filter(record, filter));
    Ok(Tree::fold(&records))
}

/// Whether a record is not an approval request, or is a selected one.
fn matches_filter(record: &Record, filter: &ApprovalFilter) -> bool {
    let (call, host) = match &record.event {
        Event::Asked { call, .. } => (call, None),
        Event::HostAsked { call, host, .. } => (call, Some(host)),
        _ => return true,
    };
    match &filter.question {
        Some(meant) => {
            let is_meant = meant.host.is_none() || meant.host.as_ref() == host;
            record.session == filter.session && *call == meant.call && is_meant
        }
        None => filter.session.contains(&record.session),
    }
}

/// Submits the answer from the command line.
async fn submit(
    global: &Global,
    runtime: &Runtime,
    tree: &Tree,
    session: &SessionId,
    words: &[String],
) -> Result<Exit, CliError> {
    let open: Vec<&PendingApproval> = tree.pending_approvals().collect();
    let [first, rest @ ..] = open.as_slice() else {
        return Err(CliError::failed(format!(
            "no pending approval requests in {session}. They may have been answered already."
        )));
    };
    let line = words.join(" ");
    let (given, scope) = approval_prompt::answer(&line, first.always.as_deref())
        .map_err(|error| CliError::usage(error.for_command()))?;
    if !rest.is_empty() && scope == Scope::One {
        let name =
            |open: &&PendingApproval| format!("  {}  {}", open.name(), approval_view::headline(open, tree));
        let names: Vec<String> = open.iter().map(name).collect();
        return Err(CliError::usage(format!(
            "{} approval requests are pending. Specify one, or answer all with `yes all` or `no all`:\n{}",
            open.len(),
            names.join("\n")
        )));
    }
    let mut answered = Vec::new();
    for open in &open {
        match runtime.answer(&open.session, open.question(), given.clone(), "the user").await {
            Ok(()) => answered.push(open.name()),
            Err(RunError::NoSuchApproval { .. }) if !rest.is_empty() => {
                output::note(&already_answered(open, tree));
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
    if !is_running(&**runtime.store(), &root).await? {
        let store = store_flag(global);
        output::note(&format!(
            "The session is not running. The answer takes effect when you resume it: brigade resume {root}{store}"
        ));
    }
    Ok(Exit::Done)
}

/// Confirmation of an answer.
fn confirmation(open: &PendingApproval, tree: &Tree, given: &UserAnswer) -> String {
    let (who, action) = (approval_view::lineage(open, tree), approval_view::action(open));
    match given {
        UserAnswer::Once if open.host.is_some() => format!("{who} may {action} during this call."),
        UserAnswer::Once => format!("{who} may {action} once."),
        UserAnswer::Always(rule) => {
            format!("{who} may {action}. Always allowed from now on: {}.", sanitize::line(rule))
        }
        UserAnswer::Deny { word: None } => format!("{who} may not {action}."),
        UserAnswer::Deny { word: Some(word) } => format!("{who} may not {action}: {}", sanitize::line(word)),
    }
}

/// Message for an approval request that was already answered.
fn already_answered(open: &PendingApproval, tree: &Tree) -> String {
    format!("{}: already answered.", approval_view::headline(open, tree))
}

fn questions_as_json(tree: &Tree, workspace: &Workspace) -> Vec<Value> {
    tree.pending_approvals().map(|open| as_json(open, tree, workspace)).collect()
}

fn list_as_json(questions: Vec<Value>) -> Result<Exit, CliError> {
    output::json(&json!({ "type": "questions", "questions": questions }))?;
    Ok(Exit::Done)
}

fn list(global: &Global, tree: &Tree, workspace: &Workspace) -> Result<Exit, CliError> {
    let columns = terminal::stdout_columns();
    let look = ViewOptions {
        columns,
        colour: Colour::Off,
        workspace: Some(workspace),
        diff_detail: DiffDetail::Full,
    };
    for open in tree.pending_approvals() {
        let left = units::format_elapsed(open.until.saturating_sub(clock::now()));
        let mut lines = approval_view::render(open, tree, look).lines;
        let always = if open.always.is_some() { "always|" } else { "" };
        let (name, store) = (open.name(), store_flag(global));
        lines.push(format!(
            "  brigade answer {name}{store} yes|{always}no [REASON]   (denied automatically in {left})"
        ));
        if let Some(rule) = &open.always {
            lines.push(format!("  \"always\" allows {}", sanitize::line(rule)));
        }
        output::text(&lines.join("\n"))?;
    }
    Ok(Exit::Done)
}

fn as_json(open: &PendingApproval, tree: &Tree, workspace: &Workspace) -> Value {
    let diff = match preview::preview_edit(open, workspace) {
        Some(Preview::Changes { change, .. }) => Some(change.diff),
        Some(Preview::Fails { .. }) | None => None,
    };
    json!({
        "question": open.name(),
        "session": open.session,
        "call": open.call,
        "host": open.host,
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
