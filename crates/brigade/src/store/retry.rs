//! Retries of operations on a store that cannot be reached for a moment, and appends with an unknown outcome.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::{Event, SessionId};
use tokio::time::Instant;

use super::owner::REMOTE_OWNER_TIMEOUT_MS;
use super::{Append, Appended, Expect, Store, StoreError};
use crate::clock;
use crate::jitter::jitter;

/// Time for which an operation is retried. Half the life of a lease: if the lease was renewed shortly before, the
/// tree still has no other runner.
const MAX_RETRY_TIME: Duration = Duration::from_millis(REMOTE_OWNER_TIMEOUT_MS / 2);
/// First pause between two attempts, unless the store asks for a longer one. Every pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause, unless the store asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Appends events. Retries while the store cannot be reached, and reads the log if the outcome is unknown, so that
/// the events of a leased append are written exactly once or not at all.
pub(crate) async fn append(store: &dyn Store, make: impl Fn() -> Append) -> Result<Appended, StoreError> {
    match store.append(make()).await {
        Err(error @ (StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. })) => {
            // Rare, and boxed because the future of every session contains this one.
            Box::pin(append_again(store, make(), error)).await
        }
        result => result,
    }
}

/// Appends an external event now, with retries.
pub(crate) async fn append_external(
    store: &dyn Store,
    session: &SessionId,
    event: Event,
) -> Result<Appended, StoreError> {
    let append_event = Append {
        session: session.clone(),
        expect: Expect::Exists,
        events: Arc::new(vec![event]),
        blobs: Vec::new(),
        lease: None,
        at: clock::now(),
    };
    append(store, || append_event.clone()).await
}

/// Runs an operation that changes nothing or may run twice. Retries while the store cannot be reached.
pub(crate) async fn while_unavailable<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::begin();
    loop {
        match attempt().await {
            Err(StoreError::Unavailable { retry: Some(pause), .. }) if backoff.wait(pause).await => {}
            result => return result,
        }
    }
}

async fn append_again(
    store: &dyn Store,
    append: Append,
    mut error: StoreError,
) -> Result<Appended, StoreError> {
    let mut backoff = Backoff::begin();
    let mut doubt = None;
    loop {
        let pause = match (&error, append.expect) {
            (StoreError::OutcomeUnknown { .. }, Expect::Length(_)) => {
                doubt = Some(error.clone());
                Duration::ZERO
            }
            (StoreError::Unavailable { retry: Some(pause), .. }, _) => *pause,
            _ => return Err(error),
        };
        if !backoff.wait(pause).await {
            return Err(doubt.unwrap_or(error));
        }
        let attempt = match doubt {
            None => store.append(append.clone()).await,
            Some(_) => append_unless_written(store, &append).await,
        };
        error = match attempt {
            Err(error) => error,
            appended => return appended,
        };
    }
}

/// Appends events that an earlier attempt may have appended, or may still append.
async fn append_unless_written(store: &dyn Store, append: &Append) -> Result<Appended, StoreError> {
    if let Some(appended) = find(store, append).await? {
        return Ok(appended);
    }
    match store.append(append.clone()).await {
        // The earlier attempt, or another writer.
        Err(conflict @ StoreError::Conflict { .. }) => find(store, append).await?.ok_or(conflict),
        result => result,
    }
}

/// Place of the events of an append in the log, if they are there.
async fn find(store: &dyn Store, append: &Append) -> Result<Option<Appended>, StoreError> {
    let Expect::Length(first_seq) = append.expect else { return Ok(None) };
    let records = store.read(&append.session, first_seq).await?;
    let has_all = records.len() >= append.events.len();
    let mut pairs = records.iter().zip(append.events.iter());
    let is_same = has_all && pairs.all(|(record, event)| record.at == append.at && record.event == *event);
    Ok(records.first().filter(|_| is_same).map(|first| Appended { first_seq, first_pos: first.pos }))
}

/// Pauses between attempts, within a bounded time.
struct Backoff {
    deadline: Instant,
    pause: Duration,
}

impl Backoff {
    fn begin() -> Backoff {
        Backoff { deadline: Instant::now() + MAX_RETRY_TIME, pause: FIRST_PAUSE }
    }

    /// Waits before the next attempt. Returns false at once if there is no time for one.
    async fn wait(&mut self, at_least: Duration) -> bool {
        let pause = self.pause.mul_f64(0.5 + jitter() / 2.0).max(at_least);
        if Instant::now() + pause > self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}
