//! One round of a session, from the prompt to its answer.

use agent_client_protocol::v1::schema as acp;
use brigade::{Ending, Live, Prepared, RunError, Runtime};
use brigade_core::account::Account;
use brigade_core::delegation::Which;
use brigade_core::message::Stop;
use brigade_core::view::Doing;
use brigade_core::{Event, Hop, SessionId, Spent, Status};
use serde_json::Map;
use tokio::sync::watch;

use super::narrator::{Narrator, When};
use super::office::{Client, Office};
use super::questions::Questions;
use super::seat::{Beginning, Turn};
use super::{calls, refusal};

/// What the client wants of a round.
pub(super) struct Prompt {
    /// What it says. Without words a round that is not over goes on.
    pub(super) text: Option<String>,
    /// Where the words come from.
    pub(super) hop: Option<Hop>,
}

/// Runs a round and answers the prompt.
pub(super) async fn run(
    office: &Office,
    client: &Client,
    turn: Turn,
    prompt: Prompt,
) -> Result<acp::PromptResponse, acp::Error> {
    let runtime = turn.seat.runtime();
    let session = turn.seat.session.clone();
    let title = prompt.text.as_deref().filter(|_| !turn.seat.has_begun()).map(calls::brief);
    let prepared = prepare(&runtime, &turn, prompt).await?;
    if let Some(title) = title {
        let title = acp::SessionUpdate::SessionInfoUpdate(acp::SessionInfoUpdate::new().title(title));
        office.peer().update(&acp::SessionNotification::new(session.as_str().to_owned(), title)).await;
    }
    let workspace = runtime.settings().workspace.root().to_path_buf();
    let window = runtime.about(&turn.seat.model()).and_then(|about| about.window);
    // Updates that an earlier round sent are not read again.
    let narrator = turn.seat.take_narrator();
    let narrator =
        narrator.unwrap_or_else(|| Narrator::new(session.clone(), workspace, client.children, When::Now));
    let mut narrator = narrator.with_window(window);
    let recalled = narrator.recall(&**runtime.store()).await.map_err(RunError::from);
    recalled.map_err(|error| refusal::run(&error))?;
    let questions = Questions::new(office.peer().clone());
    let going = Going { office, client, runtime, session, narrator, questions, stopping: Stopping::No };
    going.follow(turn, prepared).await
}

/// Makes the round ready: starts the session, or says the words and goes on with it.
async fn prepare(runtime: &Runtime, turn: &Turn, prompt: Prompt) -> Result<Prepared, acp::Error> {
    let failed = |error: RunError| refusal::run(&error);
    let seat = &turn.seat;
    match seat.beginning(prompt.text.as_deref().unwrap_or_default(), prompt.hop)? {
        Beginning::First(task) => runtime.prepare(*task).await.map_err(failed),
        Beginning::Next(more) => {
            if let Some(text) = &prompt.text {
                runtime.tell(&seat.session, text).await.map_err(failed)?;
            }
            runtime.prepare_resume(&seat.session, more).await.map_err(failed)
        }
    }
}

/// A round that is going on.
struct Going<'a> {
    office: &'a Office,
    client: &'a Client,
    runtime: Runtime,
    session: SessionId,
    narrator: Narrator,
    questions: Questions,
    stopping: Stopping,
}

/// Whether the round is to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// It is to, as soon as it has begun.
    Wanted,
    Told,
}

impl Going<'_> {
    async fn follow(mut self, turn: Turn, prepared: Prepared) -> Result<acp::PromptResponse, acp::Error> {
        let mut watch = prepared.watch();
        let mut stop = turn.stop.clone();
        let mut ending = std::pin::pin!(prepared.start().ending());
        let ending = loop {
            tokio::select! {
                biased;
                () = wanted(&mut stop), if self.stopping == Stopping::No => {
                    self.stopping = Stopping::Wanted;
                    self.stop().await;
                }
                Some(live) = watch.next() => self.see(live, &turn).await,
                Some(given) = self.questions.next() => given.pass_on(&self.runtime, &self.client.name).await,
                ending = &mut ending => break ending,
            }
        };
        while let Some(live) = watch.try_next() {
            self.see(live, &turn).await;
        }
        for update in self.narrator.rest(&**self.runtime.store()).await {
            self.office.peer().update(&update).await;
        }
        let spent = match &ending {
            Ok(_) => self.narrator.spent,
            Err(_) => Spent::default(),
        };
        let answer = self.answer(ending, spent);
        turn.seat.keep_narrator(self.narrator);
        answer
    }

    async fn see(&mut self, live: Live, turn: &Turn) {
        let is_fact = matches!(live, Live::Fact(_));
        if let Live::Fact(record) = &live
            && record.session == self.session
        {
            match &record.event {
                Event::Started { depth, .. } => turn.seat.set_begun(*depth),
                Event::Ended { spent, .. } => turn.seat.book(spent.amount()),
                _ => {}
            }
        }
        for update in self.narrator.see(live, &**self.runtime.store()).await {
            self.office.peer().update(&update).await;
        }
        if is_fact {
            self.questions.follow(&self.narrator);
            if self.stopping == Stopping::Wanted {
                self.stop().await;
            }
        }
    }

    /// Tells the tree to stop. Before the round has begun there is nobody to tell: it would not hear what was said
    /// before.
    async fn stop(&mut self) {
        let node = self.narrator.tree.node(&self.session);
        let has_begun = node.is_some_and(|node| !matches!(node.doing, Doing::Ended(_)));
        if has_begun && self.runtime.cancel(&self.session, &self.client.name).await.is_ok() {
            self.stopping = Stopping::Told;
        }
    }

    fn answer(
        &self,
        ending: Result<Ending, RunError>,
        spent: Spent,
    ) -> Result<acp::PromptResponse, acp::Error> {
        let ending = ending.map_err(|error| refusal::run(&error))?;
        let mut meta = Map::new();
        Account::from(&spent).put(&mut meta);
        let mut response = match &ending.outcome.status {
            Status::Done | Status::Detached => acp::PromptResponse::new(match self.narrator.last_stop {
                Stop::Refusal => acp::StopReason::Refusal,
                Stop::Length => acp::StopReason::MaxTokens,
                Stop::End | Stop::Calls | Stop::Denied => acp::StopReason::EndTurn,
            }),
            Status::Incomplete { limit } => {
                meta.insert("brigade/limit".to_owned(), limit.to_string().into());
                acp::PromptResponse::new(limit_reason(*limit))
            }
            Status::Cancelled { .. } => acp::PromptResponse::new(acp::StopReason::Cancelled),
            Status::Failed { cause } => return Err(refusal::failed(cause.clone())),
            Status::Lost { cause } => return Err(refusal::failed(format!("the round was lost: {cause}"))),
        };
        response.usage = Some(usage(&spent));
        Ok(response.meta(meta))
    }
}

/// Waits until somebody wants the round to stop.
async fn wanted(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

/// What the protocol calls a limit of ours. Time, agents and permissions have no name there.
pub(super) fn limit_reason(limit: Which) -> acp::StopReason {
    match limit {
        Which::Tokens | Which::Usd => acp::StopReason::MaxTokens,
        Which::Turns | Which::Time | Which::Agents | Which::Loop | Which::Permission => {
            acp::StopReason::MaxTurnRequests
        }
    }
}

/// Tokens as the protocol counts them.
pub(super) fn usage(spent: &Spent) -> acp::Usage {
    let usage = spent.usage;
    let known = |number: u64| (number > 0).then_some(number);
    acp::Usage::new(usage.total(), usage.input, usage.output)
        .cached_read_tokens(known(usage.cache_read))
        .cached_write_tokens(known(usage.cache_write))
}
