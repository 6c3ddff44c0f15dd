//! Approval requests for calls that a rule or the mode requires the user to approve.
//!
//! A request is an event, and so is its answer, which may come from any process. Meanwhile the session continues
//! with its other calls, and so does the rest of the tree. A runner that takes over a tree repeats the unanswered
//! requests.

use brigade_core::delegation::LimitKind;
use brigade_core::event::Answer;
use brigade_core::permission::{Action, AskReason, Mode, Rule, Subject, Verdict};
use brigade_core::state::CallProgress;
use brigade_core::{CallId, Event, ToolOutput};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Driver, DriverError};
use crate::clock;
use crate::settings::ApprovalPolicy;
use crate::tool::ToolChange;

/// Recorded author of an answer to a request that was open when the rules changed.
const BY_RULES: &str = "the rules";
/// Recorded author of an answer if no user can be asked any more.
const NO_USER: &str = "the runtime, because no user is available";
/// Reason for requesting approval of a tool whose definition changed.
const DEFINITION_CHANGED: &str = "its definition has changed since it was approved";
/// Recorded author of an answer to a request that timed out.
pub(super) const BY_TIMEOUT: &str = "the time limit";

/// Recorded reason of a denial by the time limit.
pub(super) const TIMED_OUT: &str = "the approval timed out";

/// Maximum length of a rule that a refusal suggests.
const MAX_RULE_BYTES: usize = 300;

/// Verdict of the rules on a call.
pub(super) struct Decision {
    verdict: Verdict,
    /// Rule with which the user could permit the call permanently.
    always: Option<Rule>,
    /// Difference between the tool and its approved definition.
    change: Option<ToolChange>,
}

impl Decision {
    /// Decision for a call without declared effects.
    pub(super) fn undeclared() -> Decision {
        let reason = "the tool did not declare its effects".to_owned();
        Decision { verdict: Verdict::Deny { reason }, always: None, change: None }
    }

    /// Combines two verdicts and keeps the stricter one. If both require approval, no single rule permits the
    /// call permanently.
    pub(super) fn and(self, other: Decision) -> Decision {
        match (&self.verdict, &other.verdict) {
            (Verdict::Deny { .. }, _) | (_, Verdict::Allow) => self,
            (Verdict::Allow, _) | (_, Verdict::Deny { .. }) => other,
            (Verdict::Ask { reason: AskReason::Mode }, Verdict::Ask { .. }) => {
                Decision { always: None, ..other }
            }
            (Verdict::Ask { .. }, Verdict::Ask { .. }) => Decision { always: None, ..self },
        }
    }

    /// Adds a change of the tool. Rules were written for the approved definition, so the user has to see the new
    /// one, and no rule permits it permanently.
    pub(super) fn with_change(self, change: Option<ToolChange>) -> Decision {
        if change.is_none() || matches!(self.verdict, Verdict::Deny { .. }) {
            return self;
        }
        let reason = match self.verdict {
            Verdict::Ask { reason } => reason,
            Verdict::Allow | Verdict::Deny { .. } => AskReason::Mode,
        };
        Decision { verdict: Verdict::Ask { reason }, always: None, change }
    }
}

/// Result of a permission check.
#[derive(PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    /// The user's approval was requested.
    Pending,
}

impl Driver {
    /// Applies the rules to a call of this session.
    pub(super) fn decide(&self, action: &Action<'_>) -> Decision {
        let permissions = &self.resolved.authority.permissions;
        let place = self.resolved.files.protected_paths();
        let verdict = permissions.check_in(place, self.state().always_allowed(), action);
        let always = match verdict {
            // A call that an external agent does not describe may do something else each time.
            Verdict::Ask { .. } if self.resolved.is_external() && action.subject == Subject::Nothing => None,
            Verdict::Ask { .. } => permissions.exact_rule_in(place, action),
            Verdict::Allow | Verdict::Deny { .. } => None,
        };
        Decision { verdict, always, change: None }
    }

    /// Permits a call, refuses it, or requests approval.
    pub(super) fn authorize(
        &mut self,
        call: CallId,
        tool: &str,
        arguments: impl FnOnce() -> Value,
        decision: Decision,
    ) -> Result<Permission, ToolOutput> {
        let Some(state) = self.state().call(call) else {
            return Err(refusal(tool, decision.verdict, None));
        };
        let (is_permitted, was_pending) =
            (state.is_permitted, state.progress == CallProgress::AwaitingApproval);
        let Decision { verdict, always, change } = decision;
        match verdict {
            Verdict::Ask { .. } if is_permitted => match change {
                Some(change) if !self.approvals.has_shown(call, change.id) => {
                    Err(changed_while_pending(tool))
                }
                _ => Ok(Permission::Granted),
            },
            Verdict::Allow => {
                if was_pending {
                    self.record(Event::Answered { call, answer: Answer::Once, by: BY_RULES.to_owned() });
                }
                Ok(Permission::Granted)
            }
            Verdict::Ask { reason } if self.tree.settings().approval_policy == ApprovalPolicy::AskUser => {
                let (what, why) = match &change {
                    Some(change) => {
                        self.approvals.show_change(call, change.id);
                        // The call comes first, because the change is long and untrusted.
                        (
                            json!({ "call": arguments(), "changed": change.diff() }),
                            DEFINITION_CHANGED.to_owned(),
                        )
                    }
                    None => (arguments(), reason.to_string()),
                };
                if self.request_approval(call, format!("{tool} {what}"), why, always.as_ref()) {
                    return Ok(Permission::Pending);
                }
                // The call began under rules that did not require approval, and it is too late to request it.
                Err(refusal(tool, Verdict::Ask { reason }, always.as_ref()))
            }
            verdict => {
                if was_pending {
                    let answer = Answer::Deny { word: None };
                    self.record(Event::Answered { call, answer, by: NO_USER.to_owned() });
                }
                match change {
                    Some(_) => Err(changed_unapproved(tool)),
                    None => Err(refusal(tool, verdict, always.as_ref())),
                }
            }
        }
    }

    /// Requests approval. Returns whether that was possible.
    fn request_approval(&mut self, call: CallId, what: String, why: String, always: Option<&Rule>) -> bool {
        let (until, deadline) = self.approval_deadline();
        let is_requested = self.record(Event::Asked {
            call,
            what: what.into(),
            why,
            always: always.map(Rule::to_string),
            until,
            default: default_answer(),
        });
        if is_requested {
            self.approvals.add(call, deadline);
        }
        is_requested
    }

    /// Time of the default answer to a request that is made now, for users and for the driver. A wait that overflows the
    /// clock is unlimited; the session deadline ends it.
    pub(super) fn approval_deadline(&self) -> (u64, Option<Instant>) {
        let timeout = self.tree.settings().limits.question_timeout;
        // After the session's own deadline no answer would be used.
        let now = Instant::now();
        let left = self.clock.deadline(now).map(|deadline| deadline.saturating_duration_since(now));
        let timeout = left.map_or(timeout, |left| timeout.min(left));
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        (clock::now().saturating_add(millis), now.checked_add(timeout))
    }

    /// Next deadline: that of the session, or of an approval request.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of_session = self.clock.next_deadline(Instant::now());
        let of_requests = self.approvals.next_deadline().into_iter().chain(self.hosts.next_deadline());
        of_requests.chain(of_session).min()
    }

    /// Records deadlines that have passed.
    pub(super) fn fire_due(&mut self) {
        let now = Instant::now();
        if self.clock.deadline(now).is_some_and(|deadline| deadline <= now) {
            self.record(Event::limit_reached(LimitKind::Time));
            self.clock.finish();
        }
        for call in self.approvals.take_expired(now) {
            self.record(Event::Answered { call, answer: default_answer(), by: BY_TIMEOUT.to_owned() });
        }
        self.expire_host_questions(now);
    }

    /// Continues calls whose approval requests were answered. Returns whether there were any.
    pub(super) async fn resume_answered_calls(&mut self) -> Result<bool, DriverError> {
        let answered = self.approvals.take_answered(self.log.state());
        let is_any = !answered.is_empty();
        if is_any {
            self.run_calls(answered).await?;
        }
        Ok(is_any)
    }
}

/// Tool result if a tool changed after its approval was requested.
fn changed_while_pending(tool: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "`{tool}` was not called: its definition changed while the approval was pending. Call it again to request approval of the new definition."
    ))
}

/// Tool result if a tool changed and no user can review the change.
fn changed_unapproved(tool: &str) -> ToolOutput {
    ToolOutput::error(format!(
        "`{tool}` is not allowed: {DEFINITION_CHANGED}, and no user is available to approve it. Continue without it. A new \
         run uses the new definition."
    ))
}

/// Answer if the user does not reply.
pub(super) fn default_answer() -> Answer {
    Answer::Deny { word: Some(TIMED_OUT.to_owned()) }
}

/// Tool result if the user denied the call.
pub(super) fn denial(tool: &str, word: Option<&str>) -> ToolOutput {
    ToolOutput::error(match word {
        Some(TIMED_OUT) => {
            format!("The approval request for this `{tool}` call timed out. Continue without it.")
        }
        Some(word) => format!("The user denied this `{tool}` call: {word}"),
        None => format!("The user denied this `{tool}` call."),
    })
}

/// Tool result if a call is not allowed. It names the setting that would allow the call: the rule `exact`, if one
/// rule covers it.
fn refusal(tool: &str, verdict: Verdict, exact: Option<&Rule>) -> ToolOutput {
    match verdict {
        Verdict::Deny { reason } => ToolOutput::error(format!("`{tool}` is not allowed: {reason}.")),
        Verdict::Ask { reason: AskReason::Rule(rule) } => ToolOutput::error(format!(
            "`{tool}` is not allowed: the rule `{rule}` in `permissions.ask` requires approval, and no user is available. \
             Continue without it. The user can allow it by removing that rule, or by running Brigade in a terminal."
        )),
        Verdict::Ask { reason: AskReason::Mode } => {
            let permits = permitting_rule(exact);
            ToolOutput::error(format!(
                "`{tool}` is not allowed: this mode requires approval, and no user is available. Continue without it. The \
                 user can allow it with {permits}, or with --mode {}.",
                Mode::Auto
            ))
        }
        Verdict::Ask { reason: AskReason::Access } => ToolOutput::error(format!(
            "`{tool}` is not allowed: access beyond the sandbox requires approval in every mode, and no user is available. \
             Continue without it. The user can allow the access with `sandbox.write` or `sandbox.network`."
        )),
        Verdict::Ask { reason: AskReason::Protected(protected) } => {
            let permits = permitting_rule(exact);
            ToolOutput::error(format!(
                "`{tool}` is not allowed: {protected}. This requires approval in every mode, and no user is available. \
                 Continue without it. The user can allow it with {permits}."
            ))
        }
        Verdict::Allow => ToolOutput::error("allowed"),
    }
}

/// Describes the rule that would allow a call.
fn permitting_rule(exact: Option<&Rule>) -> String {
    exact
        .map(|rule| format!("the rule `{rule}` in `permissions.allow`"))
        .filter(|rule| rule.len() <= MAX_RULE_BYTES)
        .unwrap_or_else(|| "a rule in `permissions.allow` that covers the whole call".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_decision_is_the_stricter_one() {
        let decision = |what: &str| Decision {
            verdict: match what {
                "allow" => Verdict::Allow,
                "ask" => Verdict::Ask { reason: AskReason::Mode },
                reason => Verdict::Deny { reason: reason.to_owned() },
            },
            always: (what == "ask").then(|| "shell(ls)".parse().unwrap()),
            change: None,
        };
        let both = |first: &str, second: &str| {
            let both = decision(first).and(decision(second));
            (both.verdict, both.always.is_some())
        };
        let deny = |reason: &str| Verdict::Deny { reason: reason.to_owned() };
        for other in ["allow", "ask"] {
            assert_eq!(both("deny", other), (deny("deny"), false));
            assert_eq!(both(other, "deny"), (deny("deny"), false));
        }
        assert_eq!(both("first", "second"), (deny("first"), false));
        assert_eq!(both("ask", "allow"), (Verdict::Ask { reason: AskReason::Mode }, true));
        assert_eq!(both("allow", "ask"), (Verdict::Ask { reason: AskReason::Mode }, true));
        assert_eq!(both("ask", "ask"), (Verdict::Ask { reason: AskReason::Mode }, false));
        assert_eq!(both("allow", "allow"), (Verdict::Allow, false));
    }
}
