//! Observation of all trees of a process, for metrics and traces: their events, and the facts of their model requests.
//!
//! Each observer has a thread and a bounded queue of its own. A run only tries to put an observation into the queue,
//! so that no observer can delay it or make it fail.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brigade_core::event::CallFault;
use brigade_core::message::Stop;
use brigade_core::{Event, Purpose, SessionId, Spent};
use tokio::sync::{mpsc, oneshot};

use crate::event_stream::RunEvent;
use crate::store::Appended;

/// Default length of an observer's queue.
pub const DEFAULT_QUEUE_LENGTH: usize = 8192;

/// Receiver of observations.
///
/// # Contract
///
/// * Calls come one after the other, from one thread that belongs to this observer.
/// * Observations of one session arrive in order. Those of different sessions may be interleaved in any way.
/// * An observation that does not fit into the queue is dropped, and so is one during which the observer panics. The
///   observer is told their number with [`Observation::Lost`].
/// * The observer is dropped after the last observation, when no [`Observers`] contain it any more. Settings, runtimes and
///   running trees hold such clones.
pub trait Observer: Send + 'static {
    /// Takes the next observation.
    fn observe(&mut self, observation: Observation);

    /// Returns the number of observations that may wait. Provisional events are dropped when half of it is used. It is
    /// read once, when the observer is added.
    fn queue_length(&self) -> usize {
        DEFAULT_QUEUE_LENGTH
    }
}

/// Something that happened in a running tree.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Observation {
    /// This process runs the session from now on, because it was started or resumed.
    SessionStarted(SessionId),
    /// This process no longer runs the session: its round has ended, or the run failed or was dropped.
    SessionStopped(SessionId),
    /// An event of a running session.
    Event(RunEvent),
    /// A model request has ended, with or without a reply. A request whose run is dropped is not reported.
    ModelRequest(Arc<ModelRequestFacts>),
    /// Observations were lost since the last report.
    Lost(LostObservations),
}

/// Numbers of lost observations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostObservations {
    /// Provisional events: [`RunEvent::Delta`] and [`RunEvent::Waiting`].
    pub provisional: u64,
    /// All others.
    pub other: u64,
}

/// One model request, from the wait for a slot to the end of the reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequestFacts {
    /// The session.
    pub session: SessionId,
    /// The id of its agent.
    pub agent: String,
    /// The provider. For an agent that another program runs, the name of that program.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The turn, counted over all rounds of the session.
    pub turn: u32,
    /// The attempt at this turn. Each attempt is a request with its own facts.
    pub attempt: u32,
    /// Result at the transport level.
    pub exchange: ModelExchange,
    /// Waits and durations.
    pub timing: ModelRequestTiming,
    /// The reason why the reply ended, or the fault.
    pub outcome: Result<Stop, CallFault>,
    /// Tokens and cost.
    pub spent: Spent,
}

/// Transport of a model request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelExchange {
    /// Number of times that the request was sent. It is above 1 if the provider refused it because of a rate limit,
    /// and 0 if it never left the queue.
    pub sends: u32,
    /// HTTP status of the response to the last of them. None without a response, or without HTTP.
    pub status: Option<u16>,
}

/// Waits and durations of a model request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelRequestTiming {
    /// UTC time in milliseconds at which the request entered the provider's queue.
    pub started_at: u64,
    /// Wait of the session for a slot of its tree before that. For the first request of a child, this includes the wait
    /// for its budget.
    pub slot_wait: Duration,
    /// Time in the provider's queue, because of rate limits or the concurrency limit.
    pub queue_wait: Duration,
    /// Time from the last send to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time from `started_at` to the end of the request. It contains `queue_wait`.
    pub total: Duration,
}

/// Observers of all trees that are run with certain [`Settings`](crate::Settings). Clones share the observers that were
/// added before.
///
/// ```
/// # use brigade::{Observation, Observer, Observers};
/// struct RequestCount(u64);
///
/// impl Observer for RequestCount {
///     fn observe(&mut self, observation: Observation) {
///         if let Observation::ModelRequest(_) = observation {
///             self.0 += 1;
///         }
///     }
/// }
///
/// let mut observers = Observers::default();
/// observers.add(RequestCount(0))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Observers(Vec<ObserverQueue>);

#[derive(Clone)]
struct ObserverQueue {
    sender: mpsc::Sender<QueueItem>,
    lost: Arc<LostCounts>,
}

enum QueueItem {
    Observation(Observation),
    /// Answered when all earlier observations have been delivered.
    Flush(oneshot::Sender<()>),
}

#[derive(Default)]
struct LostCounts {
    provisional: AtomicU64,
    other: AtomicU64,
}

impl Observers {
    /// Adds an observer and starts its thread. Fails if no thread can be started.
    pub fn add(&mut self, observer: impl Observer) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel(observer.queue_length().max(1));
        let lost = Arc::new(LostCounts::default());
        let counts = lost.clone();
        std::thread::Builder::new()
            .name("brigade-observer".to_owned())
            .spawn(move || deliver(observer, receiver, &counts))?;
        self.0.push(ObserverQueue { sender, lost });
        Ok(())
    }

    /// Whether there is no observer. In that case, no observation is prepared.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes an observation to all observers without waiting.
    pub(crate) fn observe(&self, observation: &Observation) {
        for queue in &self.0 {
            queue.push(observation.clone());
        }
    }

    /// Passes an event to all observers.
    pub(crate) fn observe_event(&self, event: &RunEvent) {
        if !self.is_empty() {
            self.observe(&Observation::Event(event.clone()));
        }
    }

    /// Passes the events of an append to all observers.
    pub(crate) fn observe_append(
        &self,
        session: &SessionId,
        events: Arc<Vec<Event>>,
        appended: &Appended,
        at: u64,
    ) {
        if self.is_empty() {
            return;
        }
        for record in appended.records(session.clone(), at, events) {
            self.observe_event(&RunEvent::Record(Arc::new(record)));
        }
    }

    /// Waits until all earlier observations have been delivered, for example before the process exits. A slow observer
    /// makes this slow.
    pub async fn flush(&self) {
        for queue in &self.0 {
            let (sender, receiver) = oneshot::channel();
            if queue.sender.send(QueueItem::Flush(sender)).await.is_ok() {
                let _ = receiver.await;
            }
        }
    }

    /// Reports that this process runs a session, until the guard is dropped.
    pub(crate) fn session_guard(&self, session: &SessionId) -> Option<Box<ObservedSession>> {
        if self.is_empty() {
            return None;
        }
        self.observe(&Observation::SessionStarted(session.clone()));
        Some(Box::new(ObservedSession { observers: self.clone(), session: session.clone() }))
    }
}

/// A session that observers were told about. Dropping it reports that the session stopped, however it ended.
pub(crate) struct ObservedSession {
    observers: Observers,
    session: SessionId,
}

impl Drop for ObservedSession {
    fn drop(&mut self) {
        self.observers.observe(&Observation::SessionStopped(self.session.clone()));
    }
}

impl ObserverQueue {
    fn push(&self, observation: Observation) {
        let is_provisional =
            matches!(&observation, Observation::Event(RunEvent::Delta { .. } | RunEvent::Waiting { .. }));
        let lost = if is_provisional { &self.lost.provisional } else { &self.lost.other };
        // The other half is kept free for events that are not repeated.
        let has_room = !is_provisional || self.sender.capacity() > self.sender.max_capacity() / 2;
        if !has_room || self.sender.try_send(QueueItem::Observation(observation)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LostCounts {
    /// Takes the numbers since the last report, if any are not zero.
    fn take(&self) -> Option<LostObservations> {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let lost = LostObservations { provisional: take(&self.provisional), other: take(&self.other) };
        (lost != LostObservations::default()).then_some(lost)
    }
}

/// Delivers observations until no sender is left.
fn deliver(mut observer: impl Observer, mut receiver: mpsc::Receiver<QueueItem>, lost: &LostCounts) {
    let mut deliver = |observation| catch_unwind(AssertUnwindSafe(|| observer.observe(observation))).is_ok();
    while let Some(item) = receiver.blocking_recv() {
        let flushed = match item {
            QueueItem::Observation(observation) => {
                if !deliver(observation) {
                    lost.other.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
            QueueItem::Flush(sender) => Some(sender),
        };
        if let Some(lost) = lost.take() {
            // If the observer panics on the report as well, the numbers are lost too.
            deliver(Observation::Lost(lost));
        }
        if let Some(sender) = flushed {
            let _ = sender.send(());
        }
    }
}
