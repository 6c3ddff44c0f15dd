//! The prompt that an open session runs.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::RemoteContext;
use brigade_core::grant::AttenuateError;
use tokio::sync::oneshot;

use super::{OpenLimits, OpenSession, RunnerExit};
use crate::runtime::{Detached, ResumeOptions, Run, RunError, RunResult, RunTask, Task, join};
use crate::store::StoreError;
use crate::task::spawn;

/// The right to run a prompt. The session is busy until the last clone is dropped.
pub struct PromptPermit<T: Send + Sync + 'static = ()> {
    active: Arc<Active<T>>,
}

struct Active<T: Send + Sync + 'static> {
    open: Arc<OpenSession<T>>,
    stop_timeout: Option<Duration>,
}

impl<T: Send + Sync + 'static> Drop for Active<T> {
    fn drop(&mut self) {
        self.open.end_prompt();
    }
}

impl<T: Send + Sync + 'static> Clone for PromptPermit<T> {
    fn clone(&self) -> PromptPermit<T> {
        PromptPermit { active: self.active.clone() }
    }
}

/// Reason why a prompt is not run.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PromptError {
    /// The caller is deeper than the session.
    #[error(
        "cannot resume the session at depth {caller}: it was started at depth {depth}. Open a new session."
    )]
    CallerTooDeep {
        /// Depth of the session.
        depth: u32,
        /// Depth of the caller.
        caller: u32,
    },
    /// The caller does not allow the depth of the session.
    #[error(transparent)]
    TooDeep(#[from] AttenuateError),
    /// The run failed to start.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Result of resuming a session.
pub enum Resumed {
    /// A run was started.
    Started(Box<Run>),
    /// Another process runs the session, and delivers its messages.
    RunningElsewhere,
}

/// Kind of a prompt.
pub(super) enum Next {
    /// The first one, which starts the session.
    Start(Box<Task>),
    /// A further one of a started session.
    Resume(ResumeOptions),
}

impl<T: Send + Sync + 'static> PromptPermit<T> {
    pub(super) fn new(open: Arc<OpenSession<T>>, limits: OpenLimits) -> PromptPermit<T> {
        PromptPermit { active: Arc::new(Active { open, stop_timeout: limits.stop_timeout }) }
    }

    /// Returns the session.
    pub fn session(&self) -> &Arc<OpenSession<T>> {
        &self.active.open
    }

    /// Sends a message to the session and runs it, with the settings of the session. Without a message, an unfinished
    /// round is resumed. Fails if another process runs the session; the message is then delivered by that process.
    pub async fn send(
        &self,
        text: Option<&str>,
        remote_context: Option<RemoteContext>,
    ) -> Result<Run, PromptError> {
        let open = self.session();
        match (open.next(text.unwrap_or_default(), remote_context)?, text) {
            (Next::Start(task), _) => Ok(self.start(*task).await?),
            (Next::Resume(options), text) => {
                let runtime = open.runtime();
                if let Some(text) = text {
                    runtime.tell(open.id(), text).await?;
                }
                Ok(self.supervise(runtime.resume(open.id(), options).await?))
            }
        }
    }

    /// Starts the session with a task.
    pub async fn start(&self, task: Task) -> Result<Run, RunError> {
        let open = self.session();
        let depth = task.depth();
        let run = open.runtime().start(task.session(open.id().clone())).await?;
        open.set_started(depth);
        Ok(self.supervise(run))
    }

    /// Resumes the session with its settings, or leaves it to the process that runs it.
    pub async fn resume(&self) -> Result<Resumed, PromptError> {
        let (open, runtime) = (self.session(), self.session().runtime());
        let root = open.id().root_id();
        if root != *open.id() && runtime.store().runner(&root).await.map_err(RunError::from)?.is_some() {
            return Ok(Resumed::RunningElsewhere);
        }
        let Next::Resume(options) = open.next("", None)? else { return Err(RunError::EmptyTask.into()) };
        let mut runner_exit = RunnerExit::new(&**runtime.store());
        loop {
            match runtime.resume(open.id(), options.clone()).await {
                Ok(run) => return Ok(Resumed::Started(Box::new(self.supervise(run)))),
                Err(RunError::Store(StoreError::Held { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            // A message may have arrived after the end of a round whose process has not exited yet.
            if !runtime.has_unread_input(open.id()).await? || !runner_exit.may_have_happened().await {
                return Ok(Resumed::RunningElsewhere);
            }
        }
    }

    /// Summarizes the conversation of the session.
    pub async fn compact(&self) -> Result<Run, PromptError> {
        let open = self.session();
        let Next::Resume(options) = open.next("", None)? else { return Err(RunError::EmptyTask.into()) };
        Ok(self.supervise(open.runtime().compact(open.id(), options).await?))
    }

    fn supervise(&self, run: Run) -> Run {
        let (permit, had_ended) = (self.clone(), run.had_ended());
        run.supervised(async move |task| {
            let result = permit.run_until_stopped(task).await;
            if let (Ok(result), false) = (&result, had_ended) {
                permit.session().charge(result.spent.amount());
            }
            // The session is idle before the result is known, unless the front end has a permit.
            drop(permit);
            result
        })
    }

    async fn run_until_stopped(&self, mut task: RunTask) -> Result<RunResult, RunError> {
        let open = self.session();
        let by = tokio::select! {
            result = join(&mut task) => return result,
            by = open.stop_requested() => by,
        };
        // If this fails, the run is aborted. It can be resumed.
        open.base_runtime().cancel(open.id(), &by).await?;
        match self.active.stop_timeout {
            None => join(&mut task).await,
            Some(timeout) => tokio::time::timeout(timeout, join(&mut task)).await.unwrap_or_else(|_| {
                let session = open.id();
                Err(RunError::Config(format!(
                    "{session} did not stop in time. Resume it with `brigade resume {session}`."
                )))
            }),
        }
    }

    /// Runs a prompt to its end in a task of its own, and then the sessions that it detached. The session is busy until
    /// all of them have ended.
    pub fn run_in_background(self, run: Run, by: &str) -> BackgroundPrompt<T> {
        let open = self.session().clone();
        let (sender, end) = oneshot::channel();
        let by = by.to_owned();
        let actor = by.clone();
        spawn(async move {
            let result = run.result().await;
            let detached = result.as_ref().ok().map(|result| result.detached.clone());
            let Some(detached) = detached.filter(|detached| !detached.sessions().is_empty()) else {
                drop(self);
                let _ = sender.send(result);
                return;
            };
            let _ = sender.send(result);
            self.wait_for_detached(&detached, &actor).await;
        });
        BackgroundPrompt { open, end, by, is_detached: false }
    }

    /// Waits for detached sessions. A stop request stops them, too.
    async fn wait_for_detached(&self, detached: &Detached, by: &str) {
        tokio::select! {
            () = detached.ended() => return,
            _ = self.session().stop_requested() => {}
        }
        let runtime = self.session().base_runtime();
        for session in detached.sessions() {
            let _ = runtime.cancel(session, by).await;
        }
        let timeout = self.active.stop_timeout.unwrap_or(Duration::MAX);
        let _ = tokio::time::timeout(timeout, detached.ended()).await;
    }
}

/// A prompt that runs in the background. Dropping it stops the prompt.
pub struct BackgroundPrompt<T: Send + Sync + 'static = ()> {
    open: Arc<OpenSession<T>>,
    end: oneshot::Receiver<Result<RunResult, RunError>>,
    by: String,
    is_detached: bool,
}

impl<T: Send + Sync + 'static> BackgroundPrompt<T> {
    /// Returns the session.
    pub fn session(&self) -> &Arc<OpenSession<T>> {
        &self.open
    }

    /// Waits for the result.
    pub async fn result(&mut self) -> Result<RunResult, RunError> {
        let lost = |_| RunError::Bug("the task of a prompt ended without a result".to_owned());
        (&mut self.end).await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Lets the prompt continue without this handle.
    pub fn detach(mut self) {
        self.is_detached = true;
    }
}

impl<T: Send + Sync + 'static> Drop for BackgroundPrompt<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.open.stop(&self.by);
        }
    }
}
