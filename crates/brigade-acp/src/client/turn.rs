//! One reply: from a request of the driver to what the agent says, asks or ends with.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ContentBlock, PromptRequest, PromptResponse, StopReason, TextContent,
};
use brigade::external::{INTERRUPTED, Reported};
use brigade::model::{Chunk, ModelError, Request};
use brigade_core::message::Stop;
use brigade_core::permission::Mode;
use brigade_core::{Message, Purpose};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;

use super::account::{account, account_after_stop, learn, untold};
use super::ask::Question;
use super::calls::Doing;
use super::lock;
use super::mask::Mask;
use super::pool::{Opened, Pool, Target};
use super::session::{Inbound, Session};
use super::update::{Told, call_key};

/// The stream of one reply.
pub(super) fn stream(
    pool: Arc<Pool>,
    target: Target,
    request: Request,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    // Until the prompt is sent, nothing has happened.
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
    target: Target,
    request: Request,
    out: VecDeque<Result<Chunk, ModelError>>,
    step: Step,
}

enum Step {
    Open,
    Listen(Box<Listening>),
    Over,
}

/// An agent that works on a prompt. Dropped before its reply is whole, it is told to stop.
struct Listening {
    session: Arc<Session>,
    told: Told,
    /// Words that came while it worked: they are its next prompt.
    later: Option<String>,
    is_whole: bool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !self.is_whole {
            self.session.cancel();
        }
    }
}

impl Turn {
    fn fail(&mut self, cause: &str) {
        let cause = Mask::of(&self.target.server).hide(cause);
        let cause = format!("the external agent '{}' failed: {cause}", self.target.place);
        self.out.push_back(Err(ModelError::Fatal(cause)));
    }

    /// Fails with what the agent had reported as used until then.
    fn fail_at_work(&mut self, session: &Session, cause: &str) {
        self.out.push_back(Ok(Chunk::Reported(account(session, None))));
        self.fail(cause);
    }

    /// It has accounted for its work, and there is no result.
    fn ended_badly(&mut self, reported: Reported, cause: &str) {
        self.out.push_back(Ok(Chunk::Reported(reported)));
        self.fail(cause);
    }

    async fn open(&mut self) {
        let known = self.pool.session(&self.request.session);
        if self.request.purpose != Purpose::Turn {
            return self.last_word(known).await;
        }
        let users = users(&self.request.messages);
        let is_prompted = known.as_ref().is_some_and(|session| lock(&session.notes).prompted);
        let (session, later) = match known {
            Some(session) if is_prompted => {
                self.answer(&session);
                let later = undelivered(&session, &users);
                (session, later)
            }
            Some(session) => {
                let words = undelivered(&session, &users).unwrap_or_default();
                self.prompt(&session, words);
                (session, None)
            }
            // What it had asked for was seen to, and it is not there any more to be told.
            None if matches!(self.request.messages.last(), Some(Message::Results(_))) => {
                self.out.push_back(Err(ModelError::Fatal(INTERRUPTED.to_owned())));
                return;
            }
            None => match self.pool.open(&self.request.session, &self.target, self.mode()).await {
                Ok(Opened { session, warning }) => {
                    self.out.extend(warning.map(|warning| Ok(Chunk::Waiting(warning))));
                    lock(&session.notes).delivered = users.len();
                    self.prompt(&session, first_words(&self.request));
                    (session, None)
                }
                Err(cause) => return self.fail(&cause),
            },
        };
        self.out.push_back(Ok(Chunk::Sent));
        let listening = Listening { session, told: Told::default(), later, is_whole: false };
        self.step = Step::Listen(Box::new(listening));
    }

    /// The mode that the session works in; the narrowest if the request does not say.
    fn mode(&self) -> Mode {
        self.request.hop.as_ref().and_then(|hop| hop.mode).unwrap_or_default()
    }

    /// Answers what the agent asked, as the calls went.
    fn answer(&self, session: &Session) {
        let open = std::mem::take(&mut lock(&session.notes).open);
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
        for (name, question) in open {
            match results.iter().find(|result| result.provider_id.as_ref() == Some(&name)) {
                Some(result) => {
                    if result.output.is_error() {
                        note_denial(session, &question, result.output.text.as_str());
                    }
                    question.settle(session.link(), &result.output);
                }
                None => question.refuse(session.link(), "it was not seen to"),
            }
        }
    }

    fn prompt(&self, session: &Arc<Session>, words: String) {
        let content = vec![ContentBlock::Text(TextContent::new(words))];
        let hop = self.request.hop.as_ref().and_then(|hop| serde_json::to_value(hop).ok());
        let meta: Option<serde_json::Map<String, Value>> =
            hop.map(|hop| [(brigade_core::hop::KEY.to_owned(), hop)].into_iter().collect());
        session.prompt(&PromptRequest::new(session.id.clone(), content).meta(meta));
    }

    /// There is no further prompt: the agent is told to stop, and what it has said is what there is.
    async fn last_word(&mut self, known: Option<Arc<Session>>) {
        let mut said = String::new();
        if let Some(session) = known {
            let reported = account_after_stop(&session).await;
            self.out.push_back(Ok(Chunk::Reported(reported)));
            said = lock(&session.notes).said.trim().to_owned();
        }
        if said.is_empty() {
            said = "(the external agent had said nothing when it was stopped)".to_owned();
        }
        self.out.extend([Ok(Chunk::Text(said)), Ok(Chunk::Done(Stop::End))]);
    }

    async fn listen(&mut self, mut listening: Box<Listening>) {
        match listening.session.next().await {
            Err(cause) => self.fail_at_work(&listening.session, &cause),
            Ok(Inbound::Update { sub_agent, update }) => {
                let mut chunks = Vec::new();
                let taken = {
                    let notes = &mut lock(&listening.session.notes);
                    listening.told.take(sub_agent.as_deref(), *update, notes, &mut chunks)
                };
                self.out.extend(chunks.into_iter().map(Ok));
                match taken {
                    Ok(()) => self.step = Step::Listen(listening),
                    Err(cause) => self.fail_at_work(&listening.session, &cause),
                }
            }
            Ok(Inbound::Question(question)) if self.request.tools.is_empty() => {
                note_denial(&listening.session, &question, NO_TOOLS);
                question.refuse(listening.session.link(), "this agent was lent no tools");
                self.step = Step::Listen(listening);
            }
            Ok(Inbound::Question(question)) => self.ask(listening, *question),
            Ok(Inbound::Ended(answer)) => self.end(listening, answer),
            Ok(Inbound::Lost) => {
                let cause = listening.session.link().fate.last_words().await;
                lock(&listening.session.notes).prompted = false;
                self.fail_at_work(&listening.session, &cause);
            }
        }
    }

    /// Ends the reply with calls: what the agent asks, and what else it has asked by now.
    fn ask(&mut self, mut listening: Box<Listening>, first: Question) {
        let session = listening.session.clone();
        let mut questions = vec![first];
        loop {
            match session.try_next() {
                Some(Inbound::Question(question)) => questions.push(*question),
                Some(other) => {
                    lock(&session.notes).held = Some(other);
                    break;
                }
                None => break,
            }
        }
        let mut is_any = false;
        for question in questions {
            is_any |= self.put(&session, question);
        }
        if !is_any {
            self.step = Step::Listen(listening);
            return;
        }
        listening.is_whole = true;
        self.out.extend(std::mem::take(&mut listening.told).finish().map(Ok));
        self.out.push_back(Ok(Chunk::Reported(account(&session, None))));
        self.out.push_back(Ok(Chunk::Done(Stop::Calls)));
    }

    /// Makes a call of a question; whether that could be done.
    fn put(&mut self, session: &Session, question: Question) -> bool {
        let server = &self.target.server;
        let (name, doing, directory, asker) = {
            let notes = &mut *lock(&session.notes);
            notes.asked += 1;
            let doing = question.about().map(|call| {
                let key = call_key(question.sub_agent(), &call.tool_call_id.0);
                // A call that was not told of before may be another one each time, whatever its id.
                match notes.calls.get(&key) {
                    Some(_) => notes.calls.learn(&key, &call.fields),
                    None => Doing::of(&call.fields),
                }
            });
            let directory = question.sub_agent().and_then(|id| notes.sub_agents.directory(id));
            let directory = directory.unwrap_or(&server.workspace).to_owned();
            let asker = question.sub_agent().map(|id| notes.sub_agents.label(id));
            (format!("q{}", notes.asked), doing, directory, asker)
        };
        match question.call(&server.name, &name, &directory, doing, asker) {
            Ok((tool, arguments)) => {
                self.out.push_back(Ok(Chunk::Call { name: tool, provider_id: Some(name.clone()) }));
                self.out.push_back(Ok(Chunk::Arguments(arguments.to_string())));
                lock(&session.notes).open.insert(name, question);
                true
            }
            Err(cause) => {
                note_denial(session, &question, &cause);
                question.refuse(session.link(), &cause);
                false
            }
        }
    }

    fn end(&mut self, mut listening: Box<Listening>, answer: Result<Value, String>) {
        let session = listening.session.clone();
        lock(&session.notes).prompted = false;
        listening.is_whole = true;
        let denied = lock(&session.notes).denied.note();
        let answer = match answer.map(serde_json::from_value::<PromptResponse>) {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => {
                let cause = session.link().mask.short(&cause.to_string());
                return self.fail_at_work(&session, &format!("the end of its reply cannot be read: {cause}"));
            }
            Err(cause) if let Some(denied) = denied => {
                let words = format!("{denied}\n(then the external agent failed: {cause})");
                return self.conclude(*listening, Stop::Denied, Some(words), account(&session, None));
            }
            Err(cause) => return self.fail_at_work(&session, &cause),
        };
        if answer.stop_reason == StopReason::EndTurn
            && let Some(words) = listening.later.take()
        {
            learn(&session, &answer);
            let used = untold(&session).amount();
            self.request.hop = self.request.hop.take().map(|hop| Box::new(hop.less(used)));
            self.prompt(&session, words);
            listening.is_whole = false;
            self.step = Step::Listen(listening);
            return;
        }
        let reported = account(&session, Some(&answer));
        let (stop, words) = match answer.stop_reason {
            // An agent that was lent no tools was not meant to do more.
            StopReason::EndTurn => (Stop::End, denied.filter(|_| !self.request.tools.is_empty())),
            StopReason::Refusal | StopReason::Cancelled if denied.is_some() => (Stop::Denied, denied),
            StopReason::MaxTokens => (Stop::Length, None),
            StopReason::Refusal => (Stop::Refusal, None),
            StopReason::MaxTurnRequests => {
                let words = "(incomplete: the external agent reached its own limit of requests)";
                (Stop::End, Some(words.to_owned()))
            }
            StopReason::Cancelled => return self.ended_badly(reported, "it says that it was cancelled"),
            _ => return self.ended_badly(reported, "it stopped for a reason that is not known here"),
        };
        self.conclude(*listening, stop, words, reported);
    }

    /// Ends the reply with what the agent said and with our own words about that.
    fn conclude(&mut self, mut listening: Listening, stop: Stop, words: Option<String>, reported: Reported) {
        let mut text = String::new();
        if !listening.told.spoke() {
            text = lock(&listening.session.notes).said.trim().to_owned();
            if text.is_empty() && words.is_none() {
                SILENT.clone_into(&mut text);
            }
        }
        if let Some(words) = words {
            let separator = if listening.told.spoke() || !text.is_empty() { "\n\n" } else { "" };
            text.push_str(separator);
            text.push_str(&words);
        }
        if !text.is_empty() {
            self.out.push_back(Ok(Chunk::Text(text)));
        }
        self.out.extend(std::mem::take(&mut listening.told).finish().map(Ok));
        self.out.push_back(Ok(Chunk::Reported(reported)));
        self.out.push_back(Ok(Chunk::Done(stop)));
    }
}

/// What stands for an answer without a word.
const SILENT: &str = "(the external agent ended without a word)";

/// Why a single answer has no permissions, and what gives them.
const NO_TOOLS: &str = "this agent was lent no tools. Delegate to it with a role or an agent file that has `acp`, which lends it \
                        tools";

/// Remembers a permission that the agent is denied.
fn note_denial(session: &Session, question: &Question, why: &str) {
    let notes = &mut *lock(&session.notes);
    if let Some(call) = question.about() {
        let key = call_key(question.sub_agent(), &call.tool_call_id.0);
        let told = notes.calls.get(&key).cloned().unwrap_or_default();
        let brief = told.and_then(Doing::of(&call.fields)).brief(&notes.root);
        notes.denied.add(&brief, why);
    }
}

fn users(messages: &[Message]) -> Vec<&str> {
    let users = messages.iter().filter_map(|message| match message {
        Message::User(text) => Some(text.as_str()),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    users.collect()
}

/// What the caller has said and the agent was not given yet.
fn undelivered(session: &Session, users: &[&str]) -> Option<String> {
    let mut notes = lock(&session.notes);
    let new = users.get(notes.delivered..).unwrap_or_default();
    notes.delivered = users.len();
    (!new.is_empty()).then(|| new.join("\n\n"))
}

/// What an agent is told first: who it is to be, and the task. One that takes over is told what was said before.
fn first_words(request: &Request) -> String {
    let mut words: Vec<String> = Vec::new();
    let system = request.system.trim();
    if !system.is_empty() {
        words.push(system.to_owned());
    }
    for message in &request.messages {
        match message {
            Message::User(text) => words.push(text.as_str().to_owned()),
            Message::Assistant(reply) if !reply.text.as_str().trim().is_empty() => {
                words.push(format!("(Your answer to that was:)\n{}", reply.text.as_str().trim()));
            }
            Message::Assistant(_) | Message::Results(_) => {}
        }
    }
    words.join("\n\n")
}
