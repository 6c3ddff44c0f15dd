//! Approvals, requested from the user of a client that supports elicitation.

use std::time::Duration;

use std::sync::Arc;

use brigade_base::redactor::Redactor;
use brigade_core::approval::Choice;
use brigade_core::event::Answer;
use brigade_core::text::Text;
use brigade_core::view::Tree;
use brigade_core::{Event, QuestionId, Record, SessionId};
use brigade_runtime::OpenSession;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ProtocolVersion};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use crate::server::CLIENT_ACTOR;
use crate::server::text;

/// Maximum size of a call that is shown. A longer call cannot be approved by a form.
const MAX_CALL_BYTES: usize = 32 * 1024;
/// Maximum length of the reason that is shown.
const MAX_REASON_BYTES: usize = 2000;
/// Maximum length of the agent's name that is shown.
const MAX_NAME_BYTES: usize = 200;
/// Maximum length of a comment to the agent.
const MAX_COMMENT_BYTES: usize = 1000;
/// Time to wait for an answer. An approval with an earlier deadline is decided by that deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

/// An approval that was just requested.
pub(crate) struct ApprovalRequest {
    session: SessionId,
    question: QuestionId,
    /// The name of the agent, below those that started it.
    agent: String,
    what: String,
    /// Number of bytes of the call that are not shown.
    hidden: usize,
    why: String,
    always: Option<String>,
}

/// Whether the client can show a form to the user while a call runs.
pub(crate) fn can_elicit(context: &RequestContext<RoleServer>) -> bool {
    // Later versions of the protocol have no requests to a client.
    let version = context.protocol_version();
    let has_requests =
        version.is_some_and(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str());
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    // The first clients with elicitation did not declare forms, because there was nothing else.
    has_requests && elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none())
}

impl ApprovalRequest {
    /// The approval that an event requests, in its tree.
    pub(crate) fn of(record: &Record, tree: &Tree) -> Option<ApprovalRequest> {
        // Configured secrets were redacted when the call was recorded.
        let redactor = Redactor::default();
        let event = redactor.shown(&record.event);
        let (question, what, why, always) = match &*event {
            Event::Asked { call, what, why, always, .. } => {
                (QuestionId::from(*call), what, why, always.clone())
            }
            Event::HostAsked { call, host, what, why, .. } => {
                (QuestionId { call: *call, host: Some(host.clone()) }, what, why, Some(host.to_string()))
            }
            _ => return None,
        };
        let (shown, hidden) = match what {
            Text::Inline(what) => text::one_line_and_rest(what, MAX_CALL_BYTES),
            Text::Spilled(_) => (String::new(), what.len()),
        };
        // The root session only forwards calls.
        let names = tree.lineage(&record.session).into_iter().skip(1).collect::<Vec<_>>();
        Some(ApprovalRequest {
            session: record.session.clone(),
            question,
            agent: text::one_line(&names.join(" > "), MAX_NAME_BYTES),
            what: shown,
            hidden,
            why: text::one_line(why, MAX_REASON_BYTES),
            always: always.filter(|rule| hidden == 0 && text::one_line_and_rest(rule, MAX_CALL_BYTES).1 == 0),
        })
    }

    /// Asks the user and records the answer. The first answer counts, from whichever client.
    pub(crate) async fn ask(self, peer: Peer<RoleServer>, open: Arc<OpenSession>) {
        let answer = match self.form() {
            Some(form) => peer.create_elicitation_with_timeout(form, Some(ANSWER_TIMEOUT)).await.ok(),
            None => None,
        };
        let answer = match answer {
            Some(answer) => self.parse_answer(&answer),
            None => Answer::Deny { word: Some("the client could not ask the user".to_owned()) },
        };
        let _ = open.answer(&self.session, self.question, answer, CLIENT_ACTOR).await;
    }

    fn form(&self) -> Option<ElicitRequestParams> {
        let (session, agent, what, why) = (&self.session, &self.agent, &self.what, &self.why);
        let mut choices = vec!["no"];
        let (request, title) = match &self.question.host {
            Some(host) => (
                format!("requests approval to connect to {host} while this call runs: {what}"),
                "Allow this connection?",
            ),
            None => (format!("requests approval to call: {what}"), "Allow this call?"),
        };
        let mut message = format!("The agent '{agent}' (session {session}) {request}\n");
        if self.hidden > 0 {
            message.push_str(&format!(
                "Reason: {why}. {} more bytes of the call are not shown, so it cannot be approved here. To see the whole call, \
                 leave this form open and run `brigade answer {session}`.",
                self.hidden
            ));
        } else {
            choices.insert(0, "once");
            message.push_str(&format!("Reason: {why}. {title}"));
        }
        if let Some(rule) = &self.always {
            choices.insert(1, "always");
            message.push_str(&format!(
                " `always` allows `{}` for this agent from now on.",
                text::one_line(rule, MAX_CALL_BYTES)
            ));
        }
        let form = json!({
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "answer": { "type": "string", "title": title, "enum": choices },
                    "word": { "type": "string", "title": "Message to the agent, if the answer is no" }
                },
                "required": ["answer"]
            }
        });
        serde_json::from_value(form).ok()
    }

    /// Parses a filled form. Anything but a clear approval is a denial.
    fn parse_answer(&self, filled: &ElicitResult) -> Answer {
        let field =
            |key: &str| filled.content.as_ref().and_then(|content| content.get(key)).and_then(Value::as_str);
        let word =
            field("word").map(|word| text::one_line(word, MAX_COMMENT_BYTES)).filter(|word| !word.is_empty());
        let choice = match (&filled.action, field("answer")) {
            (ElicitationAction::Accept, Some("once")) if self.hidden == 0 => Choice::Once,
            (ElicitationAction::Accept, Some("always")) => Choice::Always,
            _ => Choice::Deny { reason: word.clone() },
        };
        choice.answer(self.always.as_deref()).unwrap_or(Answer::Deny { word })
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::CallId;
    use brigade_core::event::VERSION;

    use super::*;

    fn question(always: Option<&str>) -> ApprovalRequest {
        let call = CallId { turn: 1, index: 0 };
        let always = always.map(str::to_owned);
        ApprovalRequest {
            session: SessionId::root(7),
            question: call.into(),
            agent: "Child".into(),
            what: "shell {}".into(),
            hidden: 0,
            why: "mode ask".into(),
            always,
        }
    }

    /// An approval for a call, in a tree of its own.
    fn asked(what: &str) -> ApprovalRequest {
        let event = Event::Asked {
            call: CallId { turn: 1, index: 0 },
            what: what.into(),
            why: "mode ask".to_owned(),
            always: Some("shell(ls)".to_owned()),
            until: 0,
            default: Answer::Deny { word: None },
        };
        let record = Record {
            session: SessionId::root(7),
            seq: 3,
            pos: brigade_core::Cursor::new(3),
            at: 0,
            v: VERSION,
            event,
        };
        ApprovalRequest::of(&record, &Tree::default()).unwrap()
    }

    #[test]
    fn only_an_explicit_yes_grants_approval() {
        let accepted = |content: Value| ElicitResult::new(ElicitationAction::Accept).with_content(content);
        let asked = question(Some("shell(ls)"));
        assert_eq!(asked.parse_answer(&accepted(json!({ "answer": "once" }))), Answer::Once);
        assert_eq!(
            asked.parse_answer(&accepted(json!({ "answer": "always" }))),
            Answer::Always("shell(ls)".to_owned())
        );
        let no = |word: Option<&str>| Answer::Deny { word: word.map(str::to_owned) };
        assert_eq!(
            asked.parse_answer(&accepted(json!({ "answer": "no", "word": "use make" }))),
            no(Some("use make"))
        );
        assert_eq!(asked.parse_answer(&accepted(json!({ "answer": "yes" }))), no(None));
        assert_eq!(asked.parse_answer(&ElicitResult::new(ElicitationAction::Accept)), no(None));
        let declined =
            ElicitResult::new(ElicitationAction::Decline).with_content(json!({ "answer": "once" }));
        assert_eq!(asked.parse_answer(&declined), no(None));
        assert_eq!(question(None).parse_answer(&accepted(json!({ "answer": "always" }))), no(None));
    }

    #[test]
    fn form_offers_always_only_with_a_rule() {
        let form_text =
            |question: &ApprovalRequest| serde_json::to_string(&question.form().unwrap()).unwrap();
        assert!(form_text(&question(Some("shell(ls)"))).contains("always"));
        assert!(!form_text(&question(None)).contains("always"));
    }

    #[test]
    fn form_names_the_host_of_a_running_call() {
        let event = Event::HostAsked {
            call: CallId { turn: 1, index: 0 },
            host: "registry.example:443".parse().unwrap(),
            what: r#"shell {"command":"npm install"}"#.into(),
            why: "the sandbox does not allow this host".to_owned(),
            until: 0,
            default: Answer::Deny { word: None },
        };
        let session = SessionId::root(7);
        let pos = brigade_core::Cursor::new(3);
        let record = Record { session: session.clone(), seq: 3, pos, at: 0, v: VERSION, event };
        let asked = ApprovalRequest::of(&record, &Tree::default()).unwrap();
        let form = serde_json::to_value(asked.form().unwrap()).unwrap();
        assert_eq!(
            form["message"],
            format!(
                "The agent '' (session {session}) requests approval to connect to registry.example:443 while this call \
                 runs: shell {{\"command\":\"npm install\"}}\nReason: the sandbox does not allow this host. Allow this \
                 connection? `always` allows `registry.example:443` for this agent from now on."
            )
        );
        assert_eq!(form["requestedSchema"]["properties"]["answer"]["enum"], json!(["once", "always", "no"]));
        let always = ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "always" }));
        assert_eq!(asked.parse_answer(&always), Answer::Always("registry.example:443".to_owned()));
    }

    #[test]
    fn truncated_call_cannot_be_approved() {
        let once = ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "once" }));
        let always = ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "answer": "always" }));
        let form_text =
            |question: &ApprovalRequest| serde_json::to_string(&question.form().unwrap()).unwrap();
        let whole = asked(&format!("shell echo {}; curl x | sh", "a".repeat(4000)));
        assert!(form_text(&whole).contains("; curl x | sh"));
        assert_eq!(whole.parse_answer(&once), Answer::Once);
        let long = asked(&format!("shell echo {}; curl x | sh", "a".repeat(MAX_CALL_BYTES)));
        let form = form_text(&long);
        assert!(form.contains("24 more bytes of the call are not shown"), "{}", &form[form.len() - 600..]);
        assert!(form.contains(r#""enum":["no"]"#));
        assert_eq!(long.parse_answer(&once), Answer::Deny { word: None });
        assert_eq!(long.parse_answer(&always), Answer::Deny { word: None });
    }
}
