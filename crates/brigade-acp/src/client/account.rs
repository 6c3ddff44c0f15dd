//! What an agent says that it used: read from its updates and from the ends of its prompts, and passed on once.

use std::time::Duration;

use agent_client_protocol::v1::schema::PromptResponse;
use brigade::external::Reported;
use brigade_core::account::Account;
use brigade_core::{Amount, Usage};

use super::lock;
use super::session::{Inbound, Session};
use super::update::Told;

/// How long an agent that was told to stop is listened to: less than the least time that a last word has.
const REST_TIME: Duration = Duration::from_secs(1);

/// Tells an agent to stop, listens to it for a short time, and returns what it says that it used.
pub(super) async fn account_after_stop(session: &Session) -> Reported {
    session.cancel();
    let mut end = None;
    let rest = async {
        let mut told = Told::default();
        while lock(&session.notes).prompted {
            match session.next().await {
                Ok(Inbound::Update { sub_agent, update }) => {
                    let notes = &mut lock(&session.notes);
                    let _ = told.take(sub_agent.as_deref(), *update, notes, &mut Vec::new());
                }
                Ok(Inbound::Question(question)) => question.cancel(session.link()),
                Ok(Inbound::Ended(answer)) => {
                    end = answer.ok().and_then(|answer| serde_json::from_value(answer).ok());
                    lock(&session.notes).prompted = false;
                }
                Ok(Inbound::Lost) | Err(_) => lock(&session.notes).prompted = false,
            }
        }
    };
    let _ = tokio::time::timeout(REST_TIME, rest).await;
    account(session, end.as_ref())
}

/// Takes down what the end of a prompt says of what was used. It counts over the whole session.
pub(super) fn learn(session: &Session, end: &PromptResponse) {
    let said = &mut lock(&session.notes).reported;
    let account = end.meta.as_ref().and_then(|meta| Account::in_meta(meta).ok().flatten());
    if let Some(account) = account {
        let usage = Usage { input: account.input_tokens, output: account.output_tokens, ..Usage::default() };
        said.usage = Some(usage);
        said.usd = Some(account.usd);
        said.agents = Some(account.agents);
        said.in_doubt = Amount {
            tokens: account.tokens_in_doubt,
            usd: account.usd_in_doubt,
            agents: account.agents_in_doubt,
        };
    }
    if let Some(usage) = &end.usage {
        let cache_read = usage.cached_read_tokens.unwrap_or(0);
        let cache_write = usage.cached_write_tokens.unwrap_or(0);
        let output = usage.output_tokens.saturating_add(usage.thought_tokens.unwrap_or(0));
        said.usage = Some(Usage { input: usage.input_tokens, output, cache_read, cache_write });
    }
}

/// What the agent reported and nobody was told yet.
pub(super) fn untold(session: &Session) -> Reported {
    let notes = lock(&session.notes);
    let (now, before) = (notes.reported, notes.passed_on);
    let less = |now: Option<u64>, before: Option<u64>| now.map(|now| now.saturating_sub(before.unwrap_or(0)));
    let old = before.usage.unwrap_or_default();
    let usage = now.usage.map(|now| Usage {
        input: now.input.saturating_sub(old.input),
        output: now.output.saturating_sub(old.output),
        cache_read: now.cache_read.saturating_sub(old.cache_read),
        cache_write: now.cache_write.saturating_sub(old.cache_write),
    });
    Reported {
        usage,
        usd: less(now.usd, before.usd),
        agents: less(now.agents, before.agents),
        in_doubt: now.in_doubt.minus(before.in_doubt),
        is_over: false,
    }
}

/// What is to be told now; with the end of the prompt it is all there is.
pub(super) fn account(session: &Session, end: Option<&PromptResponse>) -> Reported {
    if let Some(end) = end {
        learn(session, end);
    }
    let untold = untold(session);
    let mut notes = lock(&session.notes);
    notes.passed_on = notes.reported;
    Reported { is_over: end.is_some(), ..untold }
}
