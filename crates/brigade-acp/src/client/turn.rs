//! One reply of an external agent, from the driver's request to text, calls or the end of the prompt.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, PromptRequest, PromptResponse, StopReason, TextContent,
};
use brigade::external::{ExternalError, INTERRUPTED, ReportedUsage};
use brigade::model::{Chunk, ModelError, Request};
use brigade::sandbox::SandboxMode;
use brigade_core::message::Stop;
use brigade_core::permission::Mode;
use brigade_core::{Message, Purpose};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tracing::debug;

use super::account::{account, learn, unreported, usage_after_stop};
use super::agent_request::AgentRequest;
use super::calls::CallDetails;
use super::lock;
use super::pool::{AgentTarget, OpenedSession, Pool};
use super::process;
use super::session::{ExternalSession, Inbound};
use super::update::{CollectedUpdates, call_key};

/// Streams one reply.
pub(super) fn stream(
    pool: Arc<Pool>,
    target: AgentTarget,
    request: Request,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    // The agent has done nothing until the prompt is sent.
    let out = VecDeque::from([Ok(Chunk::Queued)]);
    let turn = Turn { pool, target, request, out, step: Step::Open };
    stream::unfold(turn, |mut turn| async move {
        loop {
            if let Some(chunk) = turn.out.pop_front() {
                return Some((chunk, turn));
            }
            match std::mem::replace(&mut turn.step, Step::Over) {
                Step::Open => turn.open().await,
                Step::Listen(listening) => turn.listen(listening).await,
                Step::Over => return None,
            }
        }
    })
    .boxed()
}

struct Turn {
    pool: Arc<Pool>,
    target: AgentTarget,
    request: Request,
    out: VecDeque<Result<Chunk, ModelError>>,
    step: Step,
}

enum Step {
    Open,
    Listen(Box<Listening>),
    Over,
}

/// An agent that is working on a prompt. Dropping this before the reply is complete cancels the prompt.
struct Listening {
    session: Arc<ExternalSession>,
    collected: CollectedUpdates,
    /// Messages that arrived while it was working. They are its next prompt.
    next_prompt: Option<String>,
    is_complete: bool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.is_complete {
            self.session.cancel();
        }
    }
}

impl Turn {
    fn fail(&mut self, cause: &str) {
        // The cause may quote the agent. It is reported to the user anyway.
        let (server, session_id) = (&self.target.server.name, self.request.session.as_str());
        debug!(target: "brigade::acp", server, session = session_id, "prompt failed");
        let cause = process::redactor(&self.target.server).redact(cause);
        let cause = format!("the external agent '{}' failed: {cause}", self.target.place);
        self.out.push_back(Err(ModelError::Fatal(cause)));
    }

    /// Fails with the usage that the agent has reported so far.
    fn fail_with_usage(&mut self, session: &ExternalSession, cause: &str) {
        self.out.push_back(Ok(Chunk::Reported(account(session, None))));
        self.fail(cause);
    }

    /// Fails after a final usage report, without a result.
    fn fail_after_report(&mut self, reported: ReportedUsage, cause: &str) {
        self.out.push_back(Ok(Chunk::Reported(reported)));
        self.fail(cause);
    }

    async fn open(&mut self) {
        let known = self.pool.session(&self.request.session);
        if self.request.purpose != Purpose::Turn {
            return self.wrap_up(known).await;
        }
        let user_messages = user_messages(&self.request.messages);
        let is_prompted = known.as_ref().is_some_and(|session| lock(&session.state).prompted);
        let (session, next_prompt) = match known {
            Some(session) if is_prompted => {
                self.answer(&session);
                let next_prompt = undelivered(&session, &user_messages);
                (session, next_prompt)
            }
            Some(session) => {
                let text = undelivered(&session, &user_messages).unwrap_or_default();
                self.prompt(&session, text);
                (session, None)
            }
            // The agent's requests were carried out, but it is gone and cannot receive the results.
            None if matches!(self.request.messages.last(), Some(Message::Results(_))) => {
                self.out.push_back(Err(ModelError::Fatal(INTERRUPTED.to_owned())));
                return;
            }
            None => {
                match self.pool.open(&self.request.session, &self.target, self.mode(), self.sandbox()).await {
                    Ok(OpenedSession { session, warning }) => {
                        self.out.extend(warning.map(|warning| Ok(Chunk::Waiting(warning))));
                        lock(&session.state).delivered = user_messages.len();
                        self.prompt(&session, first_prompt(&self.request));
                        (session, None)
                    }
                    Err(cause) => return self.fail(&cause.to_string()),
                }
            }
        };
        let (server, session_id) = (&self.target.server.name, self.request.session.as_str());
        debug!(target: "brigade::acp", server, session = session_id, turn = self.request.turn, "prompt sent");
        self.out.push_back(Ok(Chunk::Sent));
        let listening =
            Listening { session, collected: CollectedUpdates::default(), next_prompt, is_complete: false };
        self.step = Step::Listen(Box::new(listening));
    }

    /// The mode of the session, or the strictest one if the request does not contain it.
    fn mode(&self) -> Mode {
        self.request
            .remote_context
            .as_ref()
            .and_then(|remote_context| remote_context.mode)
            .unwrap_or_default()
    }

    /// Widest sandbox of the session, if it has one.
    fn sandbox(&self) -> Option<SandboxMode> {
        self.request.remote_context.as_ref().and_then(|remote_context| remote_context.sandbox)
    }

    /// Answers the agent's requests with the results of their calls.
    fn answer(&self, session: &ExternalSession) {
        let open = std::mem::take(&mut lock(&session.state).open_requests);
        let mut results = Vec::new();
        for message in self.request.messages.iter().rev() {
            match message {
                Message::User(_) => {}
                Message::Results(list) => {
                    results.extend(list);
                    break;
                }
                Message::Assistant(_) => break,
            }
        }
        for (name, request) in open {
            match results.iter().find(|result| result.provider_id.as_ref() == Some(&name)) {
                Some(result) => {
                    if result.output.is_error() {
                        note_denial(session, &request, result.output.text.as_str());
                    }
                    request.respond(session.connection(), &result.output);
                }
                None => request.refuse(session.connection(), "the request was not handled"),
            }
        }
    }

    fn prompt(&self, session: &Arc<ExternalSession>, text: String) {
        let content = vec![ContentBlock::Text(TextContent::new(text))];
        let meta = self.request.remote_context.as_ref().map(|remote_context| {
            let mut meta = serde_json::Map::new();
            remote_context.write_meta(&mut meta);
            meta
        });
        session.prompt(&PromptRequest::new(session.id.clone(), content).meta(meta));
    }

    /// Replaces the wrap-up call: cancels the agent and returns the text that it has sent so far.
    async fn wrap_up(&mut self, known: Option<Arc<ExternalSession>>) {
        let mut text = String::new();
        if let Some(session) = known {
            let reported = usage_after_stop(&session).await;
            self.out.push_back(Ok(Chunk::Reported(reported)));
            text = lock(&session.state).reply_text.trim().to_owned();
        }
        if text.is_empty() {
            text = "(the external agent was stopped before it sent any text)".to_owned();
        }
        self.out.extend([Ok(Chunk::Text(text)), Ok(Chunk::Done(Stop::End))]);
    }

    async fn listen(&mut self, mut listening: Box<Listening>) {
        match listening.session.next().await {
            Err(cause) => self.fail_with_usage(&listening.session, &cause.to_string()),
            Ok(Inbound::Update { sub_agent, update }) => {
                let mut chunks = Vec::new();
                let taken = {
                    let state = &mut lock(&listening.session.state);
                    listening.collected.take(sub_agent.as_deref(), *update, state, &mut chunks)
                };
                self.out.extend(chunks.into_iter().map(Ok));
                match taken {
                    Ok(()) => self.step = Step::Listen(listening),
                    Err(cause) => self.fail_with_usage(&listening.session, &cause.to_string()),
                }
            }
            Ok(Inbound::Request(request)) if self.request.tools.is_empty() => {
                note_denial(&listening.session, &request, NO_TOOLS);
                request.refuse(listening.session.connection(), "this agent may not use tools");
                self.step = Step::Listen(listening);
            }
            Ok(Inbound::Request(request)) => self.ask(listening, *request),
            Ok(Inbound::Ended(answer)) => self.end(listening, answer),
            Ok(Inbound::Lost) => {
                let cause = listening.session.connection().lost_reason().await;
                lock(&listening.session.state).prompted = false;
                self.fail_with_usage(&listening.session, &cause);
            }
        }
    }

    /// Ends the reply with calls: this request and all others that are queued.
    fn ask(&mut self, mut listening: Box<Listening>, first: AgentRequest) {
        let session = listening.session.clone();
        let mut requests = vec![first];
        loop {
            match session.try_next() {
                Some(Inbound::Request(request)) => requests.push(*request),
                Some(other) => {
                    lock(&session.state).put_back = Some(other);
                    break;
                }
                None => break,
            }
        }
        let mut has_calls = false;
        for request in requests {
            has_calls |= self.add_call(&session, request);
        }
        if !has_calls {
            self.step = Step::Listen(listening);
            return;
        }
        listening.is_complete = true;
        self.out.extend(std::mem::take(&mut listening.collected).finish().map(Ok));
        self.out.push_back(Ok(Chunk::Reported(account(&session, None))));
        self.out.push_back(Ok(Chunk::Done(Stop::Calls)));
    }

    /// Converts a request to a call. Returns whether that succeeded.
    fn add_call(&mut self, session: &ExternalSession, request: AgentRequest) -> bool {
        let server = &self.target.server;
        let (name, details, directory, requester) = {
            let state = &mut *lock(&session.state);
            state.last_request += 1;
            let details = request.about().map(|call| {
                let key = call_key(request.sub_agent(), &call.tool_call_id.0);
                // A call that was not announced may be a different one each time, whatever its id.
                match state.calls.get(&key) {
                    Some(_) => state.calls.learn(&key, &call.fields),
                    None => CallDetails::of(&call.fields),
                }
            });
            let directory = request.sub_agent().and_then(|id| state.sub_agents.directory(id));
            let directory = directory.unwrap_or(&server.workspace).to_owned();
            let requester = request.sub_agent().map(|id| state.sub_agents.label(id));
            (format!("q{}", state.last_request), details, directory, requester)
        };
        match request.call(&server.name, &name, &directory, details, requester) {
            Ok((tool, arguments)) => {
                self.out.push_back(Ok(Chunk::Call { name: tool, provider_id: Some(name.clone()) }));
                self.out.push_back(Ok(Chunk::Arguments(arguments.to_string())));
                lock(&session.state).open_requests.insert(name, request);
                true
            }
            Err(refusal) => {
                note_denial(session, &request, &refusal.to_string());
                request.refuse(session.connection(), &refusal.to_string());
                false
            }
        }
    }

    fn end(&mut self, mut listening: Box<Listening>, answer: Result<Value, ExternalError>) {
        let session = listening.session.clone();
        lock(&session.state).prompted = false;
        listening.is_complete = true;
        let denied = lock(&session.state).denied.note();
        let answer = match answer.map(serde_json::from_value::<PromptResponse>) {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => {
                let cause = session.connection().redactor.sanitize(&cause.to_string());
                return self
                    .fail_with_usage(&session, &format!("invalid response to `session/prompt`: {cause}"));
            }
            Err(cause) if let Some(denied) = denied => {
                let text = format!("{denied}\n(then the external agent failed: {cause})");
                return self.conclude(*listening, Stop::Denied, Some(text), account(&session, None));
            }
            Err(cause) => return self.fail_with_usage(&session, &cause.to_string()),
        };
        if answer.stop_reason == StopReason::EndTurn
            && let Some(text) = listening.next_prompt.take()
        {
            learn(&session, &answer);
            let used = unreported(&session).amount();
            self.request.remote_context =
                self.request.remote_context.take().map(|remote_context| Box::new(remote_context.minus(used)));
            self.prompt(&session, text);
            listening.is_complete = false;
            self.step = Step::Listen(listening);
            return;
        }
        let reported = account(&session, Some(&answer));
        let (stop, text) = match answer.stop_reason {
            // An agent without tools was not expected to do more.
            StopReason::EndTurn => (Stop::End, denied.filter(|_| !self.request.tools.is_empty())),
            StopReason::Refusal | StopReason::Cancelled if denied.is_some() => (Stop::Denied, denied),
            StopReason::MaxTokens => (Stop::Length, None),
            StopReason::Refusal => (Stop::Refusal, None),
            StopReason::MaxTurnRequests => {
                let text = "(incomplete: the external agent reached its own request limit)";
                (Stop::End, Some(text.to_owned()))
            }
            StopReason::Cancelled => {
                return self.fail_after_report(reported, "the agent reported that it was cancelled");
            }
            _ => return self.fail_after_report(reported, "unknown stop reason"),
        };
        self.conclude(*listening, stop, text, reported);
    }

    /// Ends the reply with the agent's text and a note of the runtime.
    fn conclude(
        &mut self,
        mut listening: Listening,
        stop: Stop,
        note: Option<String>,
        reported: ReportedUsage,
    ) {
        let mut text = String::new();
        if !listening.collected.has_text() {
            text = lock(&listening.session.state).reply_text.trim().to_owned();
            if text.is_empty() && note.is_none() {
                EMPTY_REPLY.clone_into(&mut text);
            }
        }
        if let Some(note) = note {
            let separator = if listening.collected.has_text() || !text.is_empty() { "\n\n" } else { "" };
            text.push_str(separator);
            text.push_str(&note);
        }
        if !text.is_empty() {
            self.out.push_back(Ok(Chunk::Text(text)));
        }
        self.out.extend(std::mem::take(&mut listening.collected).finish().map(Ok));
        self.out.push_back(Ok(Chunk::Reported(reported)));
        self.out.push_back(Ok(Chunk::Done(stop)));
    }
}

/// Replaces an empty reply.
const EMPTY_REPLY: &str = "(the external agent ended without a reply)";

/// Reason for refusals to an agent without tools, and the fix.
const NO_TOOLS: &str = "this agent may not use tools. To give it tools, delegate to it through a role or an agent file that sets `acp`.";

/// Records a denied permission.
fn note_denial(session: &ExternalSession, request: &AgentRequest, why: &str) {
    let state = &mut *lock(&session.state);
    if let Some(call) = request.about() {
        let key = call_key(request.sub_agent(), &call.tool_call_id.0);
        let known = state.calls.get(&key).cloned().unwrap_or_default();
        let brief = known.and_then(CallDetails::of(&call.fields)).brief(&state.root);
        state.denied.add(&brief, why);
    }
}

fn user_messages(messages: &[Message]) -> Vec<&str> {
    let user_messages = messages.iter().filter_map(|message| match message {
        Message::User(text) => Some(text.as_str()),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    user_messages.collect()
}

/// Messages of the caller that the agent has not received yet.
fn undelivered(session: &ExternalSession, user_messages: &[&str]) -> Option<String> {
    let mut state = lock(&session.state);
    let new = user_messages.get(state.delivered..).unwrap_or_default();
    state.delivered = user_messages.len();
    (!new.is_empty()).then(|| new.join("\n\n"))
}

/// The first prompt: the system prompt and the task. An agent that takes over also receives the earlier
/// conversation.
fn first_prompt(request: &Request) -> String {
    let mut parts: Vec<String> = Vec::new();
    let system = request.system.trim();
    if !system.is_empty() {
        parts.push(system.to_owned());
    }
    for message in &request.messages {
        match message {
            Message::User(text) => parts.push(text.as_str().to_owned()),
            Message::Assistant(reply) if !reply.text.as_str().trim().is_empty() => {
                parts.push(format!("Your earlier reply:\n{}", reply.text.as_str().trim()));
            }
            Message::Assistant(_) | Message::Results(_) => {}
        }
    }
    parts.join("\n\n")
}
