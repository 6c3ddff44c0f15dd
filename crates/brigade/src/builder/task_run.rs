//! A task that is run: its events and its result.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;

use crate::lifecycle::Observer;
use crate::{Run, RunError, RunEvent, RunResult, SubagentCallbacks};

/// A task that a [`Brigade`](crate::Brigade) runs.
///
/// Awaiting it returns the result. It is also a [`Stream`] of the typed events of the whole tree. It starts when it is awaited or
/// its first event is read. If it cannot start, it has no events, and awaiting it returns the error. Dropping it stops the
/// run. The session can be resumed afterwards.
///
/// ```
/// # use brigade::model::script::Script;
/// use brigade::{Brigade, Event, RunEvent};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::parse("[[reply]]\ntext = 'Four.'")?;
/// # let folder = tempfile::tempdir()?;
/// # let brigade = Brigade::builder().custom_model("script", script).workspace(folder.path()).build()?;
/// let mut run = brigade.run("What is two and two?");
/// let mut replies = 0;
/// while let Some(event) = run.next().await {
///     match event {
///         // Text as it arrives. Provisional: a failed attempt is discarded and repeated.
///         RunEvent::Delta { text, .. } => assert!("Four.".contains(&*text)),
///         RunEvent::Discarded { .. } | RunEvent::Waiting { .. } => {}
///         // Events of the log, which are durable.
///         RunEvent::Record(record) => match &record.event {
///             Event::Replied { .. } => replies += 1,
///             _ => {}
///         },
///     }
/// }
/// let result = run.await?;
/// assert_eq!((result.text(), replies), ("Four.", 1));
/// # Ok(()) }
/// ```
#[must_use = "a task runs only if it is awaited or its events are read"]
pub struct TaskRun {
    progress: Progress,
    callbacks: Option<CallbackFeed>,
}

enum Progress {
    Starting(BoxFuture<'static, Result<Run, RunError>>),
    Running(Box<Run>),
    Failed(RunError),
}

/// Callbacks and the state that derives their events.
struct CallbackFeed {
    callbacks: Arc<Mutex<SubagentCallbacks>>,
    observer: Observer,
}

impl CallbackFeed {
    fn take(&mut self, event: &RunEvent) {
        let events = self.observer.observe(event);
        if !events.is_empty() {
            let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            events.iter().for_each(|event| callbacks.call(event));
        }
    }
}

impl TaskRun {
    pub(super) fn new(
        start: BoxFuture<'static, Result<Run, RunError>>,
        callbacks: Option<Arc<Mutex<SubagentCallbacks>>>,
    ) -> TaskRun {
        let callbacks = callbacks.map(|callbacks| CallbackFeed { callbacks, observer: Observer::new() });
        TaskRun { progress: Progress::Starting(start), callbacks }
    }

    /// Starts the run if it has not started. Returns its handle, for the session id, messages, answers and cancellation.
    pub async fn started(&mut self) -> Result<&Run, RunError> {
        std::future::poll_fn(|context| self.poll_start(context)).await;
        match &self.progress {
            Progress::Running(run) => Ok(run),
            Progress::Failed(error) => Err(error.clone()),
            Progress::Starting(_) => Err(RunError::Bug("the run did not start".to_owned())),
        }
    }

    /// Waits for the next event. Returns `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// Waits for the run to end. Its remaining events are discarded after the callbacks have read them.
    pub async fn result(mut self) -> Result<RunResult, RunError> {
        self.started().await?;
        if self.callbacks.is_some() {
            while self.next().await.is_some() {}
        }
        match self.progress {
            Progress::Running(run) => run.result().await,
            Progress::Failed(error) => Err(error),
            Progress::Starting(_) => Err(RunError::Bug("the run did not start".to_owned())),
        }
    }

    fn poll_start(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Progress::Starting(start) = &mut self.progress {
            self.progress = match ready!(start.as_mut().poll(context)) {
                Ok(run) => Progress::Running(Box::new(run)),
                Err(error) => Progress::Failed(error),
            };
        }
        Poll::Ready(())
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        ready!(self.poll_start(context));
        let Progress::Running(run) = &mut self.progress else { return Poll::Ready(None) };
        let event = ready!(Pin::new(&mut **run).poll_next(context));
        if let (Some(feed), Some(event)) = (&mut self.callbacks, &event) {
            feed.take(event);
        }
        Poll::Ready(event)
    }
}

impl Stream for TaskRun {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.poll_event(context)
    }
}

impl IntoFuture for TaskRun {
    type Output = Result<RunResult, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.result())
    }
}
