//! Questions to a person about calls that a rule or the mode wants to be asked about.
//!
//! A question is a fact, and so is its answer, which may come from any process. The session goes on with its other
//! calls meanwhile, and so does the rest of the tree. Whoever takes a tree over asks again what was not answered.

use brigade_core::delegation::Which;
use brigade_core::event::Answer;
use brigade_core::permission::{Action, Mode, Rule, Subject, Verdict};
use brigade_core::state::CallProgress;
use brigade_core::{CallId, Event, ToolOutput};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Driver, Fatal};
use crate::clock;
use crate::settings::Asks;
use crate::tool::Change;

/// Who answers a question that was open when the rules changed.
const RULES: &str = "the rules";
/// Who answers a question when there is nobody any more to ask.
const NOBODY: &str = "nobody is there to ask";
/// Why a call of a tool is asked about that is not what it was.
const CHANGED: &str = "its definition has changed since it was approved";
/// Who answers a question that waited too long.
const CLOCK: &str = "the time limit";

/// Length up to which a refusal names the rule that would permit the call.
const MOST_RULE_BYTES: usize = 300;

/// What the rules say to a call.
pub(super) struct Judgement {
    verdict: Verdict,
    /// The rule by which a person could permit it for good.
    always: Option<Rule>,
    /// How the tool differs from what was approved.
    change: Option<Change>,
}

impl Judgement {
    /// A call that its tool said nothing about.
    pub(super) fn unspoken() -> Judgement {
        let reason = "the tool did not say what it would do".to_owned();
        Judgement { verdict: Verdict::Deny { reason }, always: None, change: None }
    }

    /// What the rules say to a call that does both: the worse of the two. Where both are asked about, no one rule
    /// permits the call for good.
    pub(super) fn and(self, other: Judgement) -> Judgement {
        match (&self.verdict, &other.verdict) {
            (Verdict::Deny { .. }, _) | (_, Verdict::Allow) => self,
            (Verdict::Allow, _) | (_, Verdict::Deny { .. }) => other,
            (Verdict::Ask { rule: None }, Verdict::Ask { .. }) => Judgement { always: None, ..other },
            (Verdict::Ask { .. }, Verdict::Ask { .. }) => Judgement { always: None, ..self },
        }
    }

    /// The same, of a tool that may differ from what was approved. Rules were written for what it was, so a person has
    /// to see what it is, and no rule permits it for good.
    pub(super) fn given(self, change: Option<Change>) -> Judgement {
        if change.is_none() || matches!(self.verdict, Verdict::Deny { .. }) {
            return self;
        }
        let rule = match self.verdict {
            Verdict::Ask { rule } => rule,
            Verdict::Allow | Verdict::Deny { .. } => None,
        };
        Judgement { verdict: Verdict::Ask { rule }, always: None, change }
    }
}

/// What becomes of a call now.
#[derive(PartialEq, Eq)]
pub(super) enum Leave {
    /// It may go on.
    Given,
    /// A person is asked.
    Asked,
}

impl Driver {
    /// What the rules say to a call of this session.
    pub(super) fn judge(&self, action: &Action<'_>) -> Judgement {
        let permissions = &self.kit.authority.permissions;
        let verdict = permissions.check_with(self.state.always(), action);
        let always = match verdict {
            // What an external agent does not show may be another thing each time.
            Verdict::Ask { .. } if self.kit.terms.is_some() && action.subject == Subject::Nothing => None,
            Verdict::Ask { .. } => permissions.exact_rule(action),
            Verdict::Allow | Verdict::Deny { .. } => None,
        };
        Judgement { verdict, always, change: None }
    }

    /// Lets a call go on, refuses it, or asks a person about it.
    pub(super) fn allow(
        &mut self,
        call: CallId,
        tool: &str,
        arguments: impl FnOnce() -> Value,
        judgement: Judgement,
    ) -> Result<Leave, ToolOutput> {
        let Some(state) = self.state.call(call) else { return Err(refusal(tool, judgement.verdict, None)) };
        let (is_permitted, was_asked) = (state.is_permitted, state.progress == CallProgress::Asked);
        let Judgement { verdict, always, change } = judgement;
        match verdict {
            Verdict::Ask { .. } if is_permitted => match change {
                Some(change) if self.shown.get(&call) != Some(&change.id) => Err(changed_meanwhile(tool)),
                _ => Ok(Leave::Given),
            },
            Verdict::Allow => {
                if was_asked {
                    self.record(Event::Answered { call, answer: Answer::Once, by: RULES.to_owned() });
                }
                Ok(Leave::Given)
            }
            Verdict::Ask { rule } if self.tree.settings().asks == Asks::Person => {
                let (what, why) = match &change {
                    Some(change) => {
                        self.shown.insert(call, change.id);
                        // What is called comes first: what changed is long, and a stranger wrote it.
                        (json!({ "call": arguments(), "changed": change.what() }), CHANGED.to_owned())
                    }
                    None => (arguments(), why(rule.as_ref())),
                };
                if self.put_question(call, format!("{tool} {what}"), why, always.as_ref()) {
                    return Ok(Leave::Asked);
                }
                // It had begun under rules that did not ask, and nobody can be asked about that any more.
                Err(refusal(tool, Verdict::Ask { rule }, always.as_ref()))
            }
            verdict => {
                if was_asked {
                    let answer = Answer::Deny { word: None };
                    self.record(Event::Answered { call, answer, by: NOBODY.to_owned() });
                }
                match change {
                    Some(_) => Err(changed_unseen(tool)),
                    None => Err(refusal(tool, verdict, always.as_ref())),
                }
            }
        }
    }

    /// Asks; whether that could be done.
    fn put_question(&mut self, call: CallId, what: String, why: String, always: Option<&Rule>) -> bool {
        let patience = self.tree.settings().limits.question_timeout;
        // When the session's own time is up, nobody waits for an answer.
        let now = Instant::now();
        let left = self.clock.deadline(now).map(|deadline| deadline.saturating_duration_since(now));
        let patience = left.map_or(patience, |left| patience.min(left));
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let asked = self.record(Event::Asked {
            call,
            what: what.into(),
            why,
            always: always.map(Rule::to_string),
            until: clock::now().saturating_add(millis),
            default: unanswered(),
        });
        if asked {
            // A wait that cannot be reckoned is one for ever: the deadline of the session ends it.
            self.asking.insert(call, now.checked_add(patience));
        }
        asked
    }

    /// When something is due: the end of the session's time, or the default answer to a question.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.asking.values().copied().flatten().chain(self.clock.alarm(Instant::now())).min()
    }

    /// Records what is due.
    pub(super) fn ring(&mut self) {
        let now = Instant::now();
        if self.clock.deadline(now).is_some_and(|deadline| deadline <= now) {
            self.record(Event::limit_reached(Which::Time));
            self.clock.finish();
        }
        let due = |at: &Option<Instant>| at.is_some_and(|at| at <= now);
        let late: Vec<CallId> = self.asking.iter().filter(|(_, at)| due(at)).map(|(call, _)| *call).collect();
        for call in late {
            self.asking.insert(call, None);
            self.record(Event::Answered { call, answer: unanswered(), by: CLOCK.to_owned() });
        }
    }

    /// Goes on with calls whose questions were answered; whether there were any.
    pub(super) async fn take_up_answers(&mut self) -> Result<bool, Fatal> {
        let is_decided = |call: &CallId| {
            let progress = self.state.call(*call).map(|state| &state.progress);
            !matches!(progress, Some(CallProgress::Asked))
        };
        let decided: Vec<CallId> = self.asking.keys().copied().filter(is_decided).collect();
        for call in &decided {
            self.asking.remove(call);
            self.in_flight.remove(call);
        }
        let is_any = !decided.is_empty();
        if is_any {
            self.run_calls(decided).await?;
        }
        Ok(is_any)
    }
}

/// What the model reads when a tool changed after a person was asked about it.
fn changed_meanwhile(tool: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "'{tool}' was not called: {CHANGED}, while the question about it was open. Call it again, and the person is \
         shown what changed"
    ))
}

/// What the model reads when a tool changed and nobody can be shown how.
fn changed_unseen(tool: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "'{tool}' is not allowed: {CHANGED}, and nobody can be asked here. A new run reads and shows the new one"
    ))
}

/// What is answered when nobody does.
fn unanswered() -> Answer {
    Answer::Deny { word: Some("nobody answered in time".to_owned()) }
}

/// What the model reads when the answer was no.
pub(super) fn denial(tool: &str, word: Option<&str>) -> ToolOutput {
    ToolOutput::error(match word {
        Some(word) => format!("'{tool}' was not allowed. The answer was no: {word}"),
        None => format!("'{tool}' was not allowed: the answer was no"),
    })
}

fn why(rule: Option<&Rule>) -> String {
    rule.map_or_else(
        || "this mode asks before it".to_owned(),
        |rule| format!("the rule `{rule}` asks before it"),
    )
}

/// What the model reads when a call is not allowed, with the setting that would allow it: the rule `exact`, if one rule
/// covers the call.
fn refusal(tool: &str, verdict: Verdict, exact: Option<&Rule>) -> ToolOutput {
    match verdict {
        Verdict::Deny { reason } => ToolOutput::error(format!("'{tool}' is not allowed: {reason}")),
        Verdict::Ask { rule: Some(rule) } => ToolOutput::error(format!(
            "'{tool}' is not allowed: the rule `{rule}` in permissions.ask asks before it, and nobody can be asked here. \
             The user can permit it by removing that rule, or by running this in a terminal"
        )),
        Verdict::Ask { rule: None } => {
            let exact = exact.map(|rule| format!("the rule `{rule}` in permissions.allow"));
            let permits = exact
                .filter(|rule| rule.len() <= MOST_RULE_BYTES)
                .unwrap_or_else(|| "a rule in permissions.allow that covers the whole call".to_owned());
            ToolOutput::error(format!(
                "'{tool}' is not allowed: this mode asks before it, and nobody can be asked here. The user can permit it \
                 with {permits}, or with --mode {}",
                Mode::Auto
            ))
        }
        Verdict::Allow => ToolOutput::error("allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_judgements_the_worse_one_counts() {
        let judgement = |what: &str| Judgement {
            verdict: match what {
                "allow" => Verdict::Allow,
                "ask" => Verdict::Ask { rule: None },
                reason => Verdict::Deny { reason: reason.to_owned() },
            },
            always: (what == "ask").then(|| "shell(ls)".parse().unwrap()),
            change: None,
        };
        let both = |first: &str, second: &str| {
            let both = judgement(first).and(judgement(second));
            (both.verdict, both.always.is_some())
        };
        let deny = |reason: &str| Verdict::Deny { reason: reason.to_owned() };
        for other in ["allow", "ask"] {
            assert_eq!(both("deny", other), (deny("deny"), false));
            assert_eq!(both(other, "deny"), (deny("deny"), false));
        }
        assert_eq!(both("first", "second"), (deny("first"), false));
        assert_eq!(both("ask", "allow"), (Verdict::Ask { rule: None }, true));
        assert_eq!(both("allow", "ask"), (Verdict::Ask { rule: None }, true));
        assert_eq!(both("ask", "ask"), (Verdict::Ask { rule: None }, false));
        assert_eq!(both("allow", "allow"), (Verdict::Allow, false));
    }
}
