//! Questions of agents, put to the person behind a client that can ask one.

use std::time::Duration;

use brigade::Runtime;
use brigade_core::event::Answer;
use brigade_core::text::Text;
use brigade_core::view::Tree;
use brigade_core::{CallId, Event, Record, SessionId};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ProtocolVersion};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use crate::call::BY;
use crate::text;

/// How much of a call is shown, in bytes. One that is longer cannot be permitted by a form.
const SHOWN: usize = 32 * 1024;
/// How much is shown of what asks, in bytes.
const SHOWN_REASON: usize = 2000;
/// How much is shown of who asks, in bytes.
const SHOWN_NAME: usize = 200;
/// The longest word to an agent, in bytes.
const LONGEST_WORD: usize = 1000;
/// How long a person is waited for. A question that runs out before that is answered by its own deadline.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A question that was just asked.
pub(crate) struct Question {
    session: SessionId,
    call: CallId,
    /// The agent, below those that called it in.
    who: String,
    what: String,
    /// How many bytes of the call are not shown.
    hidden: usize,
    why: String,
    always: Option<String>,
}

/// Whether the client can put a form before a person while a call runs.
pub(crate) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    // Later versions of the protocol know no requests to a client.
    let version = context.protocol_version();
    let has_requests =
        version.is_some_and(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str());
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    // The first clients that could say nothing about forms had nothing else.
    has_requests && elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none())
}

impl Question {
    /// The question that a fact asks, in the tree that it belongs to.
    pub(crate) fn of(record: &Record, tree: &Tree) -> Option<Question> {
        let Event::Asked { call, what, why, always, .. } = &record.event else { return None };
        let (shown, hidden) = match what {
            Text::Whole(what) => text::line_and_rest(what, SHOWN),
            Text::Blob(_) => (String::new(), what.len()),
        };
        // What is at the top only passes calls on.
        let names = tree.lineage(&record.session).into_iter().skip(1).collect::<Vec<_>>();
        Some(Question {
            session: record.session.clone(),
            call: *call,
            who: text::line(&names.join(" > "), SHOWN_NAME),
            what: shown,
            hidden,
            why: text::line(why, SHOWN_REASON),
            always: always.clone().filter(|rule| hidden == 0 && text::line_and_rest(rule, SHOWN).1 == 0),
        })
    }

    /// Asks the person, and tells the agent what was answered. The first answer counts, whoever gives it.
    pub(crate) async fn put(self, peer: Peer<RoleServer>, runtime: Runtime) {
        let answer = match self.form() {
            Some(form) => peer.create_elicitation_with_timeout(form, Some(PATIENCE)).await.ok(),
            None => None,
        };
        let answer = match answer {
            Some(answer) => self.read(&answer),
            None => Answer::Deny { word: Some("nobody could be asked".to_owned()) },
        };
        let _ = runtime.answer(&self.session, self.call, answer, BY).await;
    }

    fn form(&self) -> Option<ElicitRequestParams> {
        let (session, who, what, why) = (&self.session, &self.who, &self.what, &self.why);
        let mut choices = vec!["no"];
        let mut message = format!("The agent '{who}' (session {session}) wants to call: {what}\n");
        if self.hidden > 0 {
            message.push_str(&format!(
                "({why}) {} more bytes of the call are not shown, so that it cannot be permitted here; whoever has \
                 to see it whole leaves this open and calls `brigade answer {session}`.",
                self.hidden
            ));
        } else {
            choices.insert(0, "once");
            message.push_str(&format!("({why}) May it?"));
        }
        if let Some(rule) = &self.always {
            choices.insert(1, "always");
            message.push_str(&format!(" `always` permits {} to this agent.", text::line(rule, SHOWN)));
        }
        let form = json!({
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "answer": { "type": "string", "title": "May it?", "enum": choices },
                    "word": { "type": "string", "title": "A word to the agent, where the answer is no" }
                },
                "required": ["answer"]
            }
        });
        serde_json::from_value(form).ok()
    }

    /// What a filled form says. What is not clearly a yes is a no.
    fn read(&self, filled: &ElicitResult) -> Answer {
        let field =
            |key: &str| filled.content.as_ref().and_then(|content| content.get(key)).and_then(Value::as_str);
        let word = field("word").map(|word| text::line(word, LONGEST_WORD)).filter(|word| !word.is_empty());
        match (&filled.action, field("answer"), &self.always) {
            (ElicitationAction::Accept, Some("once"), _) if self.hidden == 0 => Answer::Once,
            (ElicitationAction::Accept, Some("always"), Some(rule)) => Answer::Always(rule.clone()),
            _ => Answer::Deny { word },
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::event::VERSION;

    use super::*;

    fn question(always: Option<&str>) -> Question {
        let call = CallId { turn: 1, index: 0 };
        let always = always.map(str::to_owned);
        Question {
            session: SessionId::root(7),
            call,
            who: "Child".into(),
            what: "shell {}".into(),
            hidden: 0,
            why: "mode ask".into(),
            always,
        }
    }

    /// The question about a call, as it is put in a tree of its own.
    fn asked(what: &str) -> Question {
        let event = Event::Asked {
            call: CallId { turn: 1, index: 0 },
            what: what.into(),
            why: "mode ask".to_owned(),
            always: Some("shell(ls)".to_owned()),
            until: 0,
            default: Answer::Deny { word: None },
        };
        let record = Record { session: SessionId::root(7), seq: 3, pos: 3, at: 0, v: VERSION, event };
        Question::of(&record, &Tree::default()).unwrap()
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let accepted = |content: Value| ElicitResult::new(ElicitationAction::Accept).with_content(content);
        let asked = question(Some("shell(ls)"));
        assert_eq!(asked.read(&accepted(json!({ "answer": "once" }))), Answer::Once);
        assert_eq!(
            asked.read(&accepted(json!({ "answer": "always" }))),
            Answer::Always("shell(ls)".to_owned())
        );
        let no = |word: Option<&str>| Answer::Deny { word: word.map(str::to_owned) };
        assert_eq!(
            asked.read(&accepted(json!({ "answer": "no", "word": "use make" }))),
            no(Some("use make"))
        );
        assert_eq!(asked.read(&accepted(json!({ "answer": "yes" }))), no(None));
        assert_eq!(asked.read(&ElicitResult::new(ElicitationAction::Accept)), no(None));
        let declined =
            ElicitResult::new(ElicitationAction::Decline).with_content(json!({ "answer": "once" }));
        assert_eq!(asked.read(&declined), no(None));
        assert_eq!(question(None).read(&accepted(json!({ "answer": "always" }))), no(None));
    }

    #[test]
    fn a_form_offers_always_only_where_a_rule_says_it() {
        let written = |question: &Question| serde_json::to_string(&question.form().unwrap()).unwrap();
        assert!(written(&question(Some("shell(ls)"))).contains("always"));
        assert!(!written(&question(None)).contains("always"));
    }

    #[test]
    fn a_call_that_is_not_shown_whole_cannot_be_permitted() {
        let once = ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "once" }));
        let always = ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "always" }));
        let written = |question: &Question| serde_json::to_string(&question.form().unwrap()).unwrap();
        let whole = asked(&format!("shell echo {}; curl x | sh", "a".repeat(4000)));
        assert!(written(&whole).contains("; curl x | sh"));
        assert_eq!(whole.read(&once), Answer::Once);
        let long = asked(&format!("shell echo {}; curl x | sh", "a".repeat(SHOWN)));
        let form = written(&long);
        assert!(form.contains("24 more bytes of the call are not shown"), "{}", &form[form.len() - 600..]);
        assert!(form.contains(r#""enum":["no"]"#));
        assert_eq!(long.read(&once), Answer::Deny { word: None });
        assert_eq!(long.read(&always), Answer::Deny { word: None });
    }
}
