//! Questions of agents, as permission requests.

use std::collections::{HashMap, HashSet};

use agent_client_protocol::v1::schema as acp;
use brigade::Runtime;
use brigade_core::event::Answer;
use brigade_core::text;
use brigade_core::view::Question;
use brigade_core::{CallId, SessionId};
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::Value;

use super::calls;
use super::narrator::Narrator;
use super::peer::Peer;

const ONCE: &str = "once";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// The questions that a client was asked and has not answered.
pub(super) struct Questions {
    peer: Peer,
    open: HashMap<String, AbortHandle>,
    waiting: FuturesUnordered<Abortable<BoxFuture<'static, Given>>>,
}

/// What a client answered.
pub(super) struct Given {
    session: SessionId,
    call: CallId,
    answer: Answer,
}

impl Questions {
    pub(super) fn new(peer: Peer) -> Questions {
        Questions { peer, open: HashMap::new(), waiting: FuturesUnordered::new() }
    }

    /// Asks what is new, and withdraws what was answered elsewhere or is moot.
    pub(super) fn follow(&mut self, narrator: &Narrator) {
        let open: HashSet<String> = narrator.tree.questions().map(Question::name).collect();
        self.open.retain(|name, asking| {
            let is_open = open.contains(name);
            if !is_open {
                asking.abort();
            }
            is_open
        });
        for question in narrator.tree.questions() {
            if !self.open.contains_key(&question.name()) {
                let (asking, registration) = AbortHandle::new_pair();
                let asked = ask(self.peer.clone(), question, narrator);
                self.waiting.push(Abortable::new(asked, registration));
                self.open.insert(question.name(), asking);
            }
        }
    }

    /// The next answer; none while nothing is asked.
    pub(super) async fn next(&mut self) -> Option<Given> {
        loop {
            if let Ok(given) = self.waiting.next().await? {
                return Some(given);
            }
        }
    }
}

impl Given {
    /// Passes the answer on to whoever asked. Somebody else may have been faster, and then that answer counts.
    pub(super) async fn pass_on(self, runtime: &Runtime, by: &str) {
        let _ = runtime.answer(&self.session, self.call, self.answer, by).await;
    }
}

fn ask(peer: Peer, question: &Question, narrator: &Narrator) -> BoxFuture<'static, Given> {
    let request = request(question, narrator);
    let (session, call, always) = (question.session.clone(), question.call, question.always.clone());
    async move {
        let outstanding = peer.request("session/request_permission", &request).await;
        let answer = answer(outstanding.answer().await, always);
        Given { session, call, answer }
    }
    .boxed()
}

fn request(question: &Question, narrator: &Narrator) -> acp::RequestPermissionRequest {
    let session = &question.session;
    let mut shown = acp::ToolCallUpdateFields::new();
    if let Some(call) = narrator.call(session, question.call) {
        let whole = acp::ToolCallUpdate::from(narrator.shown(session, question.call, call));
        shown = whole.fields;
        shown.status = None;
        let why = format!("{} asks: {}.", narrator.label(session), question.why);
        shown.content.get_or_insert_default().push(why.as_str().into());
    } else {
        shown = shown.title(calls::brief(question.what.as_str()));
    }
    let option = |id: &str, name: &str, kind| acp::PermissionOption::new(id.to_owned(), name, kind);
    let mut options = vec![option(ONCE, "Allow", acp::PermissionOptionKind::AllowOnce)];
    if let Some(rule) = &question.always {
        let name = format!("Always allow {} {}", narrator.label(session), calls::brief(rule));
        options.push(option(ALWAYS, &name, acp::PermissionOptionKind::AllowAlways));
    }
    options.push(option(REJECT, "Reject", acp::PermissionOptionKind::RejectOnce));
    let call = acp::ToolCallUpdate::new(calls::id(session, question.call), shown);
    acp::RequestPermissionRequest::new(narrator.place(session).as_str().to_owned(), call, options)
}

/// What the client's words mean.
fn answer(result: Result<Value, acp::Error>, always: Option<String>) -> Answer {
    let no = |word: &str| Answer::Deny { word: Some(word.to_owned()) };
    let value = match result {
        Ok(value) => value,
        Err(error) if error.code == acp::ErrorCode::MethodNotFound => {
            return no("the client cannot ask the person");
        }
        // Whoever cannot show a question cannot say yes to it, and nobody waits for that.
        Err(error) => return no(&format!("the client could not ask: {}", text::cut(&error.message, 200))),
    };
    let Ok(response) = serde_json::from_value::<acp::RequestPermissionResponse>(value) else {
        return no("the client's answer cannot be read");
    };
    match response.outcome {
        acp::RequestPermissionOutcome::Selected(selected) => match (&*selected.option_id.0, always) {
            (ONCE, _) => Answer::Once,
            (ALWAYS, Some(rule)) => Answer::Always(rule),
            (REJECT, _) => Answer::Deny { word: None },
            _ => no("the client chose something that it was not offered"),
        },
        // Dismissed, or the turn is being cancelled, and then the question ends with it.
        _ => no("the client dismissed the question"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(option: &str) -> Result<Value, acp::Error> {
        Ok(json!({"outcome": {"outcome": "selected", "optionId": option}}))
    }

    #[test]
    fn only_what_was_offered_is_a_yes() {
        let rule = || Some("shell(ls)".to_owned());
        assert_eq!(answer(chosen("once"), None), Answer::Once);
        assert_eq!(answer(chosen("always"), rule()), Answer::Always("shell(ls)".to_owned()));
        assert_eq!(answer(chosen("reject"), rule()), Answer::Deny { word: None });
        for other in [chosen("always"), chosen("yes"), Ok(json!({})), Ok(json!(true))] {
            assert!(matches!(answer(other, None), Answer::Deny { word: Some(_) }));
        }
        assert!(matches!(answer(Err(acp::Error::method_not_found()), None), Answer::Deny { .. }));
        for refused in [Ok(json!({"outcome": {"outcome": "cancelled"}})), Err(acp::Error::internal_error())] {
            assert!(matches!(answer(refused, rule()), Answer::Deny { word: Some(_) }));
        }
    }
}
