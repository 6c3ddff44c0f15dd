//! Usage that an external agent reports in its updates and prompt responses. Each amount is passed on once.

use std::time::Duration;

use agent_client_protocol_schema::v1::PromptResponse;
use brigade::external::ReportedUsage;
use brigade_core::Usage;
use brigade_core::usage_report::UsageReport;

use super::lock;
use super::session::{ExternalSession, Inbound};
use super::update::CollectedUpdates;

/// Time to wait for a cancelled agent. It is less than the shortest timeout of a wrap-up call.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Cancels the prompt, waits shortly for the agent, and returns the usage that it reported.
pub(super) async fn usage_after_stop(session: &ExternalSession) -> ReportedUsage {
    session.cancel();
    let mut end = None;
    let rest = async {
        let mut collected = CollectedUpdates::default();
        while lock(&session.state).prompted {
            match session.next().await {
                Ok(Inbound::Update { sub_agent, update }) => {
                    let state = &mut lock(&session.state);
                    let _ = collected.take(sub_agent.as_deref(), *update, state, &mut Vec::new());
                }
                Ok(Inbound::Request(request)) => request.cancel(session.connection()),
                Ok(Inbound::Ended(answer)) => {
                    end = answer.ok().and_then(|answer| serde_json::from_value(answer).ok());
                    lock(&session.state).prompted = false;
                }
                Ok(Inbound::Lost) | Err(_) => lock(&session.state).prompted = false,
            }
        }
    };
    let _ = tokio::time::timeout(STOP_TIMEOUT, rest).await;
    account(session, end.as_ref())
}

/// Records the usage in a prompt response. It is a total over the whole session.
pub(super) fn learn(session: &ExternalSession, end: &PromptResponse) {
    let reported = &mut lock(&session.state).reported;
    let account = end.meta.as_ref().and_then(|meta| UsageReport::from_meta(meta).ok().flatten());
    if let Some(account) = account {
        *reported = ReportedUsage::from(&account);
    }
    if let Some(usage) = &end.usage {
        let cache_read = usage.cached_read_tokens.unwrap_or(0);
        let cache_write = usage.cached_write_tokens.unwrap_or(0);
        let output = usage.output_tokens.saturating_add(usage.thought_tokens.unwrap_or(0));
        reported.usage = Some(Usage { input: usage.input_tokens, output, cache_read, cache_write });
    }
}

/// Usage that was reported but not passed on yet.
pub(super) fn unreported(session: &ExternalSession) -> ReportedUsage {
    let state = lock(&session.state);
    let (now, before) = (state.reported, state.passed_on);
    let less = |now: Option<u64>, before: Option<u64>| now.map(|now| now.saturating_sub(before.unwrap_or(0)));
    let old = before.usage.unwrap_or_default();
    let usage = now.usage.map(|now| Usage {
        input: now.input.saturating_sub(old.input),
        output: now.output.saturating_sub(old.output),
        cache_read: now.cache_read.saturating_sub(old.cache_read),
        cache_write: now.cache_write.saturating_sub(old.cache_write),
    });
    ReportedUsage {
        usage,
        usd: less(now.usd, before.usd),
        agents: less(now.agents, before.agents),
        unconfirmed: now.unconfirmed.minus(before.unconfirmed),
        is_over: false,
    }
}

/// Returns the usage to pass on now. With a prompt response the report is final.
pub(super) fn account(session: &ExternalSession, end: Option<&PromptResponse>) -> ReportedUsage {
    if let Some(end) = end {
        learn(session, end);
    }
    let unreported = unreported(session);
    let mut state = lock(&session.state);
    state.passed_on = state.reported;
    ReportedUsage { is_over: end.is_some(), ..unreported }
}
