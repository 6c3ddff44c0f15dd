//! Approvals of agents, sent to the client as permission requests.

use std::collections::{HashMap, HashSet};

use agent_client_protocol_schema::v1 as acp;
use brigade_core::approval::Choice;
use brigade_core::event::Answer;
use brigade_core::text;
use brigade_core::view::PendingApproval;
use brigade_core::{QuestionId, SessionId};
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::Value;

use super::calls;
use super::open_session::OpenSession;
use super::peer::Peer;
use super::update_mapper::UpdateMapper;

const ONCE: &str = "once";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// Permission requests that the client has not answered.
pub(super) struct PermissionRequests {
    peer: Peer,
    open: HashMap<String, AbortHandle>,
    pending: FuturesUnordered<Abortable<BoxFuture<'static, PermissionAnswer>>>,
}

/// The client's answer to a permission request.
pub(super) struct PermissionAnswer {
    session: SessionId,
    question: QuestionId,
    answer: Answer,
}

impl PermissionRequests {
    pub(super) fn new(peer: Peer) -> PermissionRequests {
        PermissionRequests { peer, open: HashMap::new(), pending: FuturesUnordered::new() }
    }

    /// Requests new approvals, and cancels requests that were answered elsewhere or no longer apply.
    pub(super) fn sync(&mut self, mapper: &UpdateMapper) {
        let open: HashSet<String> = mapper.tree.pending_approvals().map(PendingApproval::name).collect();
        self.open.retain(|name, abort_handle| {
            let is_open = open.contains(name);
            if !is_open {
                abort_handle.abort();
            }
            is_open
        });
        for question in mapper.tree.pending_approvals() {
            if !self.open.contains_key(&question.name()) {
                let (abort_handle, registration) = AbortHandle::new_pair();
                let request = request_permission(self.peer.clone(), question, mapper);
                self.pending.push(Abortable::new(request, registration));
                self.open.insert(question.name(), abort_handle);
            }
        }
    }

    /// The next answer, or `None` while no request is open.
    pub(super) async fn next(&mut self) -> Option<PermissionAnswer> {
        loop {
            if let Ok(answer) = self.pending.next().await? {
                return Some(answer);
            }
        }
    }
}

impl PermissionAnswer {
    /// Records the answer. If another process answered first, that answer counts.
    pub(super) async fn submit(self, open_session: &OpenSession, by: &str) {
        let _ = open_session.answer(&self.session, self.question, self.answer, by).await;
    }
}

fn request_permission(
    peer: Peer,
    question: &PendingApproval,
    mapper: &UpdateMapper,
) -> BoxFuture<'static, PermissionAnswer> {
    let request = request(question, mapper);
    let (session, always) = (question.session.clone(), question.always.clone());
    let question = question.question();
    async move {
        let pending_request = peer.request("session/request_permission", &request).await;
        let answer = answer(pending_request.answer().await, always);
        PermissionAnswer { session, question, answer }
    }
    .boxed()
}

fn request(question: &PendingApproval, mapper: &UpdateMapper) -> acp::RequestPermissionRequest {
    let session = &question.session;
    let mut fields = acp::ToolCallUpdateFields::new();
    if let Some(call) = mapper.call(session, question.call) {
        let whole = acp::ToolCallUpdate::from(mapper.tool_call(session, question.call, call));
        fields = whole.fields;
        fields.status = None;
        let why = match &question.host {
            // The client shows the call as running, with its title. Only the connection is new.
            Some(host) => {
                format!("{} wants to connect to {host}: {}.", mapper.label(session), question.why)
            }
            None => format!("Requested by {}: {}.", mapper.label(session), question.why),
        };
        fields.content.get_or_insert_default().push(why.as_str().into());
    } else {
        let host = question.host.as_ref().map(|host| format!("Connect to {host}: "));
        fields = fields.title(calls::brief(&format!("{}{}", host.unwrap_or_default(), question.what)));
    }
    let option = |id: &str, name: &str, kind| acp::PermissionOption::new(id.to_owned(), name, kind);
    let allow =
        question.host.as_ref().map_or("Allow".to_owned(), |host| format!("Allow {host} for this call"));
    let mut options = vec![option(ONCE, &allow, acp::PermissionOptionKind::AllowOnce)];
    if let Some(rule) = &question.always {
        let name = format!("Always allow {} for {}", calls::brief(rule), mapper.label(session));
        options.push(option(ALWAYS, &name, acp::PermissionOptionKind::AllowAlways));
    }
    options.push(option(REJECT, "Reject", acp::PermissionOptionKind::RejectOnce));
    let call = acp::ToolCallUpdate::new(calls::id(session, question.call), fields);
    acp::RequestPermissionRequest::new(mapper.target_session(session).as_str().to_owned(), call, options)
}

/// Converts a response of the client to an answer.
fn answer(result: Result<Value, acp::Error>, always: Option<String>) -> Answer {
    let deny = |word: &str| Answer::Deny { word: Some(word.to_owned()) };
    let value = match result {
        Ok(value) => value,
        Err(error) if error.code == acp::ErrorCode::MethodNotFound => {
            return deny("the client does not support permission requests");
        }
        // A client that cannot show the request cannot approve it, so the call is denied at once.
        Err(error) => {
            return deny(&format!(
                "the client failed to ask the user: {}",
                text::truncate_bytes(&error.message, 200)
            ));
        }
    };
    let Ok(response) = serde_json::from_value::<acp::RequestPermissionResponse>(value) else {
        return deny("the client sent an invalid response");
    };
    match response.outcome {
        acp::RequestPermissionOutcome::Selected(selected) => {
            let choice = match &*selected.option_id.0 {
                ONCE => Some(Choice::Once),
                ALWAYS => Some(Choice::Always),
                REJECT => Some(Choice::Deny { reason: None }),
                _ => None,
            };
            let answer = choice.and_then(|choice| choice.answer(always.as_deref()));
            answer.unwrap_or_else(|| deny("the client selected an unknown option"))
        }
        // The user dismissed the request, or the turn is being cancelled and the approval with it.
        _ => deny("the request was dismissed"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selected(option: &str) -> Result<Value, acp::Error> {
        Ok(json!({"outcome": {"outcome": "selected", "optionId": option}}))
    }

    #[test]
    fn only_an_offered_option_grants_permission() {
        let rule = || Some("shell(ls)".to_owned());
        assert_eq!(answer(selected("once"), None), Answer::Once);
        assert_eq!(answer(selected("always"), rule()), Answer::Always("shell(ls)".to_owned()));
        assert_eq!(answer(selected("reject"), rule()), Answer::Deny { word: None });
        for other in [selected("always"), selected("yes"), Ok(json!({})), Ok(json!(true))] {
            assert!(matches!(answer(other, None), Answer::Deny { word: Some(_) }));
        }
        assert!(matches!(answer(Err(acp::Error::method_not_found()), None), Answer::Deny { .. }));
        for refused in [Ok(json!({"outcome": {"outcome": "cancelled"}})), Err(acp::Error::internal_error())] {
            assert!(matches!(answer(refused, rule()), Answer::Deny { word: Some(_) }));
        }
    }
}
