//! Evidence about a run of the demo, from the log and the model's list of requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brigade::Store;
use brigade_core::event::Effect;
use brigade_core::view::Activity;
use brigade_core::{Budget, CallId, Event, Limit, Record, Resources, SessionId, State};

use crate::error::CliError;
use crate::follow::RunView;
use crate::sanitize;
use crate::units;

/// Facts of the log that the demo speaks of.
#[derive(Debug, Clone, Default)]
pub(super) struct LogFacts {
    /// Replies of the model: session and turn.
    replies: BTreeSet<(String, u32)>,
    /// Edits and commands, and how often each was started.
    effects: BTreeMap<(SessionId, CallId), u32>,
    refusals: Vec<Refusal>,
    /// Role and tools of each sub-agent whose tools the caller has named.
    grants: HashMap<SessionId, (String, Vec<String>)>,
    /// Tools of the calls.
    calls: HashMap<(SessionId, CallId), String>,
}

/// A call of a tool that the agent was not granted.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    role: String,
    granted: Vec<String>,
    tool: String,
    output: String,
}

impl Refusal {
    /// The refusal in one sentence, with the text that the model reads.
    pub(super) fn text(&self) -> String {
        let Refusal { role, granted, tool, output } = self;
        format!("{role} was granted {}. Its call to {tool} was refused: \"{output}\"", granted.join(", "))
    }
}

impl LogFacts {
    /// Takes a record into account. Returns the refusal that it contains, if it contains one.
    pub(super) fn apply(&mut self, record: &Record) -> Option<&Refusal> {
        let session = &record.session;
        match &record.event {
            Event::Delegated { child, delegation, .. } => {
                if let (Some(role), Some(tools)) = (&delegation.role, &delegation.tools) {
                    self.grants.insert(child.clone(), (role.clone(), tools.clone()));
                }
            }
            Event::Replied { turn, reply, .. } => {
                self.replies.insert((session.to_string(), *turn));
                for (index, call) in (0..).zip(&reply.calls) {
                    let id = CallId { turn: *turn, index };
                    self.calls.insert((session.clone(), id), call.name.clone());
                }
            }
            Event::ToolStarted { call, effect, .. } if *effect != Effect::Pure => {
                *self.effects.entry((session.clone(), *call)).or_default() += 1;
            }
            Event::ToolEnded { call, output, .. } if output.is_error() => {
                let (role, granted) = self.grants.get(session)?;
                let tool = self.calls.get(&(session.clone(), *call))?;
                if granted.contains(tool) {
                    return None;
                }
                self.refusals.push(Refusal {
                    role: sanitize::line(role),
                    granted: granted.clone(),
                    tool: sanitize::line(tool),
                    output: sanitize::line(output.text.as_str()),
                });
                return self.refusals.last();
            }
            _ => {}
        }
        None
    }
}

/// A kill and the resume after it.
pub(super) struct Crash {
    /// The work that was interrupted, as the end of a sentence.
    pub(super) victim: String,
    /// The log at the kill.
    pub(super) facts: LogFacts,
    /// Number of requests that had reached the model.
    pub(super) requests: usize,
}

/// Use of the run's budget.
pub(super) struct BudgetUse {
    granted: Budget,
    spent: Resources,
    /// Set aside for open model calls and for the loans of sub-agents.
    reserved: Resources,
}

impl BudgetUse {
    /// Reads the ledger of the lead, which has lent all budgets of the tree.
    pub(super) async fn read(store: &dyn Store, view: &RunView) -> Result<BudgetUse, CliError> {
        let records = store.read(&view.root, 0).await?;
        let state = State::fold(view.root.clone(), records.iter().map(|record| &record.event));
        let ledger = state.ledger();
        let spent = view.tree.spent(&view.root).amount();
        Ok(BudgetUse { granted: ledger.granted(), spent, reserved: ledger.committed().minus(spent) })
    }

    /// The budget in one sentence. The parts add up to the whole.
    pub(super) fn text(&self) -> String {
        let part = |granted: Limit, spent: u64, reserved: u64, show: &dyn Fn(u64) -> String| {
            let left = granted.number().saturating_sub(spent).saturating_sub(reserved);
            let whole = show(granted.number());
            format!("{} spent + {} reserved + {} left = {whole}", show(spent), show(reserved), show(left))
        };
        let dollars =
            part(self.granted.usd, round(self.spent.usd), round(self.reserved.usd), &units::format_dollars);
        let tokens =
            part(self.granted.tokens, self.spent.tokens, self.reserved.tokens, &|count| count.to_string());
        format!("{dollars} (invented prices); {tokens} tokens.")
    }
}

/// Rounds nano-dollars up to what is shown of them.
fn round(nano: u64) -> u64 {
    nano.next_multiple_of(100_000)
}

/// Claim that each step of the demo proved, with its name.
pub(super) fn lines(
    view: &RunView,
    facts: &LogFacts,
    budget: &BudgetUse,
    crash: Option<&Crash>,
    requests: &[(String, u32)],
) -> Vec<(&'static str, String)> {
    let mut lines = vec![("parallel", parallel(view))];
    let refusals = facts.refusals.iter();
    lines.extend(refusals.map(|refusal| {
        ("tools", format!("No agent can use a tool that it was not granted: {}", refusal.text()))
    }));
    lines.push(("budget", format!("All calls are charged to one budget: {}", budget.text())));
    if let Some(crash) = crash {
        lines.push(("crash", finished(view, crash)));
        lines.push(("resume", resume(crash, facts, requests)));
    }
    lines
}

fn parallel(view: &RunView) -> String {
    let agents = view.tree.walk(&view.root);
    let sessions = || agents.iter().map(|node| &node.session).filter(|session| **session != view.root);
    let work: u64 = sessions().map(|session| view.tree.working_time([session], None)).sum();
    let elapsed = view.tree.working_time(sessions(), None);
    let (work, elapsed) = (units::format_elapsed(work), units::format_elapsed(elapsed));
    format!(
        "Sub-agents work at the same time: {} of them did {work} of work in {elapsed}.",
        sessions().count()
    )
}

fn finished(view: &RunView, crash: &Crash) -> String {
    let status = match view.tree.node(&view.root).map(|node| &node.activity) {
        Some(Activity::Ended(outcome)) => outcome.status.as_str(),
        _ => "unfinished",
    };
    let victim = &crash.victim;
    format!(
        "A killed run can be resumed: its process was killed{victim}, and another process finished the run ({status})."
    )
}

fn resume(crash: &Crash, facts: &LogFacts, requests: &[(String, u32)]) -> String {
    let recorded = &crash.facts;
    let later = requests.get(crash.requests..).unwrap_or_default();
    let asked_again = later.iter().filter(|request| recorded.replies.contains(request)).count();
    let starts = |effect| facts.effects.get(effect).copied().unwrap_or_default();
    let run_again = recorded.effects.keys().filter(|effect| starts(effect) > 1).count();
    let claim =
        if asked_again + run_again == 0 { "Nothing is paid for or done twice" } else { "Work was repeated" };
    format!(
        "{claim}: of {} recorded replies, {} requested again; of {} edits and commands, {} run again.",
        recorded.replies.len(),
        times(asked_again),
        recorded.effects.len(),
        times(run_again),
    )
}

fn times(count: usize) -> String {
    match count {
        0 => "none was".to_owned(),
        1 => "1 was".to_owned(),
        count => format!("{count} were"),
    }
}
