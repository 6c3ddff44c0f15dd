//! Questions about hosts: whether a call that runs may connect to a host that its sandbox does not allow.
//!
//! The connection waits for the answer, and the call continues meanwhile. A question ends with its call, because a
//! later answer would have no effect. An answer holds for the rest of the call, so that each host and port is asked for once.

use std::collections::BTreeMap;

use brigade_core::event::Answer;
use brigade_core::grant::Access;
use brigade_core::host_question::HostQuestion;
use brigade_core::network::Target;
use brigade_core::permission::{Action, ActionKind, Mode, Subject, Verdict};
use brigade_core::state::CallProgress;
use brigade_core::{CallId, Event, State, ToolCall, ToolOutput, json};
use futures::FutureExt;
use futures::channel::oneshot;
use tokio::time::Instant;

use super::Driver;
use super::approvals::{BY_TIMEOUT, TIMED_OUT, default_answer};
use super::mailbox::DriverMessage;
use crate::settings::ApprovalPolicy;
use crate::tool::{HostAsker, OpenRequest};

/// Recorded author of the answer to a question whose call ended first.
const BY_CALL_END: &str = "the end of the call";
/// Recorded author of the answer to a question of a session that was stopped.
const BY_STOP: &str = "the stop of the session";
/// Reason for asking.
const NOT_ALLOWED: &str = "the sandbox does not allow this host";

/// Question of a running call.
pub(crate) struct HostAsk {
    call: CallId,
    host: Target,
    reply: Reply,
}

/// Connection that waits for an answer.
struct Reply {
    sender: oneshot::Sender<bool>,
    /// Dropped with the reply, so that the time limit of the call continues.
    _open: OpenRequest,
}

impl Reply {
    fn send(self, is_allowed: bool) {
        // A connection that was closed meanwhile needs no answer.
        let _ = self.sender.send(is_allowed);
    }
}

/// Questions of a session that have no answer, and the connections that wait for it.
#[derive(Default)]
pub(super) struct OpenHostQuestions(BTreeMap<(CallId, Target), Waiting>);

/// Connections that wait for one answer.
struct Waiting {
    /// When the default answer applies.
    deadline: Option<Instant>,
    replies: Vec<Reply>,
}

impl OpenHostQuestions {
    /// Adds a question. Without a deadline, only the end of its call and the session's own deadline end it.
    fn add(&mut self, ask: HostAsk, deadline: Option<Instant>) {
        let waiting = Waiting { deadline, replies: vec![ask.reply] };
        self.0.insert((ask.call, ask.host), waiting);
    }

    /// Adds a connection to an open question. Returns the connection if there is no such question.
    fn join(&mut self, ask: HostAsk) -> Option<HostAsk> {
        let key = (ask.call, ask.host);
        match self.0.get_mut(&key) {
            Some(waiting) => {
                waiting.replies.push(ask.reply);
                None
            }
            None => Some(HostAsk { call: key.0, host: key.1, reply: ask.reply }),
        }
    }

    /// Deadline of the question that expires first.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(|waiting| waiting.deadline).min()
    }

    /// Takes the deadlines that have passed. Their questions stay open until they are answered.
    fn take_expired(&mut self, now: Instant) -> Vec<(CallId, Target)> {
        let mut expired = Vec::new();
        for (question, waiting) in &mut self.0 {
            if waiting.deadline.take_if(|at| *at <= now).is_some() {
                expired.push(question.clone());
            }
        }
        expired
    }

    /// Tells the connections of all questions that are no longer open. The answers must be durable.
    pub(super) fn settle(&mut self, state: &State) {
        let answered = |call: CallId, host: &Target| match question(state, call, host) {
            Some(HostQuestion { answer: None, .. }) => None,
            Some(HostQuestion { answer: Some(answer), .. }) => Some(is_allowed(answer)),
            // The question was withdrawn, or could not be recorded.
            None => Some(false),
        };
        self.0.retain(|(call, host), waiting| {
            let Some(allowed) = answered(*call, host) else { return true };
            waiting.replies.drain(..).for_each(|reply| reply.send(allowed));
            false
        });
    }
}

/// Decision about a host before a question.
#[derive(Debug, PartialEq, Eq)]
enum HostDecision {
    Allowed,
    Denied,
    /// The user decides.
    Ask,
}

impl Driver {
    /// Asker for a call of this session. It denies everything if no host can be allowed.
    pub(super) fn host_asker(&self, call: CallId) -> HostAsker {
        let authority = &self.resolved.authority;
        let can_ask = self.tree.settings().approval_policy == ApprovalPolicy::AskUser;
        if authority.network == Access::Denied
            || authority.permissions.mode == Mode::Plan
            || !(can_ask || self.state().has_allowed_hosts())
        {
            return HostAsker::deny();
        }
        let mailbox = self.mailbox.sender();
        HostAsker::new(move |request, open| {
            let mailbox = mailbox.clone();
            async move {
                let Ok(host) = Target::parse(&request.to_string(), None) else { return false };
                let (sender, answer) = oneshot::channel();
                let reply = Reply { sender, _open: open };
                let ask = Box::new(HostAsk { call, host, reply });
                // Without a driver there is no answer.
                mailbox.unbounded_send(DriverMessage::AskHost(ask)).is_ok() && answer.await.unwrap_or(false)
            }
            .boxed()
        })
    }

    /// Decides about a host that a running call connects to, or requests approval.
    pub(super) fn ask_host(&mut self, ask: HostAsk) {
        match self.decide_host(ask.call, &ask.host) {
            HostDecision::Allowed => ask.reply.send(true),
            HostDecision::Denied => ask.reply.send(false),
            HostDecision::Ask => {
                let Some(ask) = self.hosts.join(ask) else { return };
                match self.request_host(&ask) {
                    Some(deadline) => self.hosts.add(ask, deadline),
                    None => ask.reply.send(false),
                }
            }
        }
    }

    fn decide_host(&self, call: CallId, host: &Target) -> HostDecision {
        let state = self.state();
        let runs = state.call(call).is_some_and(|call| matches!(call.progress, CallProgress::Started(_)));
        if !runs || state.stop_reason().is_some() {
            return HostDecision::Denied;
        }
        match question(state, call, host).map(|question| &question.answer) {
            Some(Some(answer)) if is_allowed(answer) => return HostDecision::Allowed,
            Some(Some(_)) => return HostDecision::Denied,
            Some(None) => return HostDecision::Ask,
            // The user is not there. One question after the other would keep the call running.
            None if has_expired(state, call) => return HostDecision::Denied,
            None => {}
        }
        let authority = &self.resolved.authority;
        let tool = state.tool_call(call).map_or("", |call| call.name.as_str());
        let name = host.host.to_string();
        let action = Action { tool, kind: ActionKind::Unconfined, subject: Subject::Host(&name) };
        if authority.network == Access::Denied
            || matches!(authority.permissions.check(&action), Verdict::Deny { .. })
        {
            return HostDecision::Denied;
        }
        match self.tree.settings().approval_policy {
            _ if state.allows_host(host) => HostDecision::Allowed,
            ApprovalPolicy::AskUser => HostDecision::Ask,
            ApprovalPolicy::Deny => HostDecision::Denied,
        }
    }

    /// Records a question, unless the call has too many. Returns its deadline, if it has one.
    fn request_host(&mut self, ask: &HostAsk) -> Option<Option<Instant>> {
        let what = request_text(self.state().tool_call(ask.call)?);
        let (until, deadline) = self.approval_deadline();
        let is_requested = self.record(Event::HostAsked {
            call: ask.call,
            host: ask.host.clone(),
            what: what.into(),
            why: NOT_ALLOWED.to_owned(),
            until,
            default: default_answer(),
        });
        is_requested.then_some(deadline)
    }

    /// Answers questions whose deadline has passed.
    pub(super) fn expire_host_questions(&mut self, now: Instant) {
        for (call, host) in self.hosts.take_expired(now) {
            let by = BY_TIMEOUT.to_owned();
            self.record(Event::HostAnswered { call, host, answer: default_answer(), by });
        }
    }

    /// Denies the open questions of a call that ends or runs again.
    pub(super) fn close_host_questions(&mut self, call: CallId) {
        self.deny_open_hosts(call, BY_CALL_END);
    }

    /// Denies the open questions of all calls, because the session stops.
    pub(super) fn close_all_host_questions(&mut self) {
        for call in self.state().unanswered() {
            self.deny_open_hosts(call, BY_STOP);
        }
    }

    fn deny_open_hosts(&mut self, call: CallId, by: &str) {
        let open = self.state().call(call).into_iter().flat_map(|call| call.hosts.open());
        for host in open.cloned().collect::<Vec<_>>() {
            let (answer, by) = (Answer::Deny { word: None }, by.to_owned());
            self.record(Event::HostAnswered { call, host, answer, by });
        }
    }

    /// Adds the connections that the user denied to the result of a call.
    pub(super) fn with_denied_hosts(&self, call: CallId, output: ToolOutput) -> ToolOutput {
        let questions = self.state().call(call).map_or(&[][..], |call| call.hosts.all());
        let denied: Vec<String> = questions.iter().filter_map(denial).collect();
        // A stop denies what the user did not decide.
        if denied.is_empty() || self.state().stop_reason().is_some() {
            return output;
        }
        let text = output.text.as_str().trim_end_matches('\n');
        let line = format!("({})", denied.join("; "));
        let text = if text.is_empty() { line } else { format!("{text}\n{line}") };
        ToolOutput { text: text.into(), ..output }
    }
}

/// Complete call: the tool, a space, and its arguments as JSON.
fn request_text(call: &ToolCall) -> String {
    let arguments = json::parse(call.arguments.as_str()).map(|arguments| arguments.to_string());
    format!("{} {}", call.name, arguments.as_deref().unwrap_or(call.arguments.as_str()))
}

fn question<'a>(state: &'a State, call: CallId, host: &Target) -> Option<&'a HostQuestion> {
    state.call(call)?.hosts.get(host)
}

/// Whether a question of the call timed out.
fn has_expired(state: &State, call: CallId) -> bool {
    let default = Some(default_answer());
    state.call(call).is_some_and(|call| call.hosts.all().iter().any(|question| question.answer == default))
}

fn is_allowed(answer: &Answer) -> bool {
    matches!(answer, Answer::Once | Answer::Always(_))
}

/// Text for the agent about a connection that was denied. `None` if it was allowed, or if the call ended first.
fn denial(question: &HostQuestion) -> Option<String> {
    let Some(Answer::Deny { word }) = &question.answer else { return None };
    let host = &question.host;
    Some(match word.as_deref() {
        Some(TIMED_OUT) => format!("the request to connect to {host} timed out"),
        Some(word) => format!("the user denied the connection to {host}: {word}"),
        None => format!("the user denied the connection to {host}"),
    })
}
