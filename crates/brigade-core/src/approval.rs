//! Answers to approval requests: which choices are answers, and which answers count.

use crate::event::Answer;
use crate::host_question::QuestionId;
use crate::network::Target;
use crate::permission::{Rule, RuleError};
use crate::state::{CallProgress, State};

/// Choice of a user who is asked for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Allow this call.
    Once,
    /// Allow this call and every other call that the offered rule covers.
    Always,
    /// Deny the call.
    Deny {
        /// Message to the agent.
        reason: Option<String>,
    },
}

impl Choice {
    /// Returns the answer to a request that offers this rule. Without a rule, "always" is not an answer.
    pub fn answer(self, rule: Option<&str>) -> Option<Answer> {
        match self {
            Choice::Once => Some(Answer::Once),
            Choice::Always => rule.map(|rule| Answer::Always(rule.to_owned())),
            Choice::Deny { reason } => {
                Some(Answer::Deny { word: reason.filter(|reason| !reason.trim().is_empty()) })
            }
        }
    }
}

/// Reason why an answer does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The call has no open request: it was never asked for, was answered, or its round is over.
    #[error("the call has no open approval request")]
    NotOpen,
    /// The rule of the answer is invalid.
    #[error(transparent)]
    InvalidRule(#[from] RuleError),
    /// A permanent answer about a host names something else.
    #[error(
        "cannot always allow `{given}`: the approval request is for `{host}`. Answer `yes`, or `always` without another host."
    )]
    OtherHost {
        /// Text of the answer.
        given: String,
        /// Host and port of the request.
        host: Target,
    },
    /// The rule of the answer is for another tool.
    #[error("cannot apply the rule `{rule}`: the approval request is for `{tool}`. Use a rule for `{tool}`.")]
    OtherTool {
        /// The rule.
        rule: Rule,
        /// Tool of the call.
        tool: String,
    },
}

/// Parses a rule that allows calls of a tool.
pub fn parse_rule(rule: &str, tool: &str) -> Result<Rule, AnswerError> {
    let rule: Rule = rule.parse()?;
    match rule.names(tool) {
        true => Ok(rule),
        false => Err(AnswerError::OtherTool { rule, tool: tool.to_owned() }),
    }
}

impl State {
    /// Checks whether an answer to an approval request counts. The number of a call is not used again, so an answer to
    /// an earlier request never applies to a later one.
    pub fn check_answer(&self, question: impl Into<QuestionId>, answer: &Answer) -> Result<(), AnswerError> {
        let QuestionId { call, host } = question.into();
        let is_open = self.call(call).is_some_and(|state| match &host {
            Some(host) => state.awaits_host(host),
            None => state.progress == CallProgress::AwaitingApproval,
        });
        if !is_open || !self.is_running() {
            return Err(AnswerError::NotOpen);
        }
        match (answer, host) {
            (Answer::Once | Answer::Deny { .. }, _) => Ok(()),
            (Answer::Always(given), Some(host)) if given.parse().as_ref() == Ok(&host) => Ok(()),
            (Answer::Always(given), Some(host)) => Err(AnswerError::OtherHost { given: given.clone(), host }),
            (Answer::Always(rule), None) => {
                let tool = self.tool_call(call).map_or("", |call| call.name.as_str());
                parse_rule(rule, tool).map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_becomes_an_answer_only_if_it_is_offered() {
        let rule = Some("shell(ls)");
        let deny = |reason: &str| Choice::Deny { reason: Some(reason.to_owned()) };
        assert_eq!(Choice::Once.answer(None), Some(Answer::Once));
        assert_eq!(Choice::Always.answer(rule), Some(Answer::Always("shell(ls)".to_owned())));
        assert_eq!(Choice::Always.answer(None), None);
        assert_eq!(deny("use make").answer(rule), Some(Answer::Deny { word: Some("use make".to_owned()) }));
        assert_eq!(deny(" \n").answer(None), Some(Answer::Deny { word: None }));
    }

    #[test]
    fn rule_is_accepted_only_for_the_tool_of_the_call() {
        assert!(parse_rule("shell(git *)", "shell").is_ok());
        assert!(matches!(parse_rule("shell(", "shell"), Err(AnswerError::InvalidRule(_))));
        assert!(matches!(parse_rule("write_file(a)", "shell"), Err(AnswerError::OtherTool { .. })));
    }
}
