//! Questions about hosts: whether a call that has started may connect to a host that its sandbox does not allow.

use std::fmt;
use std::str::FromStr;

use crate::event::Answer;
use crate::id::{CallId, IdError};
use crate::network::{HostError, Target};

/// Maximum number of open questions of one call. Further hosts are denied without a question.
pub const MAX_OPEN_HOST_QUESTIONS: usize = 16;
/// Maximum number of questions of one call, answered ones included.
pub const MAX_HOST_QUESTIONS: usize = 64;

/// Approval request of a session: for a call that has not started, or for a host that a started call connects to.
/// Written as the call, or as the call, a colon and the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId {
    /// The call.
    pub call: CallId,
    /// Host that the call connects to, if the request is about one.
    pub host: Option<Target>,
}

impl From<CallId> for QuestionId {
    fn from(call: CallId) -> QuestionId {
        QuestionId { call, host: None }
    }
}

/// A text is not the id of an approval request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionIdError {
    /// The part before the host is not a call.
    #[error(transparent)]
    Call(#[from] IdError),
    /// The part after the call is not a host with a port.
    #[error("invalid host in the id of an approval request: {0}")]
    Host(#[from] HostError),
}

impl FromStr for QuestionId {
    type Err = QuestionIdError;

    fn from_str(text: &str) -> Result<QuestionId, QuestionIdError> {
        match text.split_once(':') {
            Some((call, host)) => Ok(QuestionId { call: call.parse()?, host: Some(host.parse()?) }),
            None => Ok(QuestionId { call: text.parse()?, host: None }),
        }
    }
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{}:{host}", self.call),
            None => write!(f, "{}", self.call),
        }
    }
}

/// Question of a started call about a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostQuestion {
    /// Host that the call connects to.
    pub host: Target,
    /// The first answer; `None` while the question is open.
    pub answer: Option<Answer>,
}

/// Questions of one call about hosts, at most one for each host and port.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostQuestions(Vec<HostQuestion>);

impl HostQuestions {
    /// Returns all questions, in the order in which they were asked.
    pub fn all(&self) -> &[HostQuestion] {
        &self.0
    }

    /// Returns the question about a host.
    pub fn get(&self, host: &Target) -> Option<&HostQuestion> {
        self.all().iter().find(|question| question.host == *host)
    }

    /// Returns the hosts of the questions without an answer.
    pub fn open(&self) -> impl Iterator<Item = &Target> {
        self.all().iter().filter(|question| question.answer.is_none()).map(|question| &question.host)
    }

    /// Whether a question about this host is open.
    pub fn is_open(&self, host: &Target) -> bool {
        self.open().any(|open| open == host)
    }

    /// Whether a question about this host may be asked.
    pub(crate) fn may_ask(&self, host: &Target) -> bool {
        self.get(host).is_none()
            && self.all().len() < MAX_HOST_QUESTIONS
            && self.open().count() < MAX_OPEN_HOST_QUESTIONS
    }

    pub(crate) fn ask(&mut self, host: &Target) {
        if self.may_ask(host) {
            self.0.push(HostQuestion { host: host.clone(), answer: None });
        }
    }

    /// Records an answer; false if no question about this host is open.
    pub(crate) fn answer(&mut self, host: &Target, answer: &Answer) -> bool {
        let is_open = |question: &&mut HostQuestion| question.host == *host && question.answer.is_none();
        let open = self.0.iter_mut().find(is_open);
        open.is_some_and(|question| {
            question.answer = Some(answer.clone());
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn question_is_named_by_its_call_and_host() {
        let call = CallId { turn: 3, index: 1 };
        for (text, question) in [
            ("3-1", QuestionId::from(call)),
            ("3-1:a.example:443", QuestionId { call, host: Some(host("a.example:443")) }),
            ("3-1:[::1]:443", QuestionId { call, host: Some(host("[::1]:443")) }),
        ] {
            assert_eq!(text.parse(), Ok(question.clone()));
            assert_eq!(question.to_string(), text);
        }
        for text in ["", "3", "3-1:", "3-1:a", "3:a.example:443", "a.example:443"] {
            assert!(text.parse::<QuestionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn first_answer_to_a_question_counts() {
        let mut questions = HostQuestions::default();
        let a = host("a.example:1");
        assert!(!questions.answer(&a, &Answer::Once));
        questions.ask(&a);
        questions.ask(&a);
        assert_eq!(questions.open().collect::<Vec<_>>(), [&a]);
        assert!(!questions.answer(&host("a.example:2"), &Answer::Once), "another port is another question");
        assert!(questions.answer(&a, &Answer::Deny { word: None }));
        assert!(!questions.answer(&a, &Answer::Once) && !questions.is_open(&a));
        assert!(!questions.may_ask(&a), "a question is asked once in a call");
        assert_eq!(questions.get(&a).unwrap().answer, Some(Answer::Deny { word: None }));
    }

    #[test]
    fn number_of_questions_is_bounded() {
        let mut questions = HostQuestions::default();
        let numbered = |number: usize| host(&format!("h{number}.example:1"));
        for number in 0..2 * MAX_OPEN_HOST_QUESTIONS {
            questions.ask(&numbered(number));
        }
        assert_eq!(questions.open().count(), MAX_OPEN_HOST_QUESTIONS);
        for number in 0..2 * MAX_HOST_QUESTIONS {
            questions.ask(&numbered(number));
            questions.answer(&numbered(number), &Answer::Once);
        }
        assert_eq!(questions.all().len(), MAX_HOST_QUESTIONS);
        assert_eq!(questions.open().count(), 0);
    }
}
