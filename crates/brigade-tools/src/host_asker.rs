//! Questions of a running call to the user: whether it may connect to a host.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brigade_base::sandbox::{HostDecider, HostRequest};
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// Asks the user whether a running call may connect to a host that no setting allows. The default denies every host.
///
/// Each host and port of a call is asked for once. The question stays open until the user answers, its deadline passes or
/// the call ends. The answer holds for the rest of the call.
#[derive(Clone, Default)]
pub struct HostAsker {
    decider: HostDecider,
    /// Number of requests without an answer.
    open: Option<Arc<watch::Sender<usize>>>,
}

impl HostAsker {
    /// Creates an asker from a function that decides about one host. The request counts as open until its second argument
    /// is dropped, whether the answer is read or not.
    pub fn new(
        decide: impl Fn(HostRequest, OpenRequest) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> HostAsker {
        let open = Arc::new(watch::Sender::new(0));
        let counted = open.clone();
        let decider = HostDecider::new(move |request| decide(request, OpenRequest::new(counted.clone())));
        HostAsker { decider, open: Some(open) }
    }

    /// Denies every host.
    pub fn deny() -> HostAsker {
        HostAsker::default()
    }

    /// Whether hosts can be allowed at all.
    pub fn can_allow(&self) -> bool {
        self.decider.can_allow()
    }

    /// Decides about one host. A request that is dropped has no effect on the question.
    pub async fn ask(&self, host: &str, port: u16) -> bool {
        self.decider.decide(HostRequest::new(host, port)).await
    }

    /// Returns the same decisions for the proxy of a command.
    pub fn decider(&self) -> HostDecider {
        self.decider.clone()
    }

    /// Waits until this much time has passed without an open request. The time that the user takes to answer does not count
    /// towards the time limit of a command.
    pub async fn time_without_questions(&self, limit: Duration) {
        let Some(open) = &self.open else { return tokio::time::sleep(limit).await };
        let (mut open, mut left) = (open.subscribe(), limit);
        loop {
            // The sender lives as long as this asker.
            let _ = open.wait_for(|count| *count == 0).await;
            let since = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = open.wait_for(|count| *count > 0) => left = left.saturating_sub(since.elapsed()),
            }
        }
    }
}

impl fmt::Debug for HostAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.can_allow() { "HostAsker(..)" } else { "HostAsker::deny()" })
    }
}

/// Request without an answer. While there is one, the time limit of the call does not run.
pub struct OpenRequest(Arc<watch::Sender<usize>>);

impl OpenRequest {
    fn new(open: Arc<watch::Sender<usize>>) -> OpenRequest {
        open.send_modify(|count| *count += 1);
        OpenRequest(open)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::Poll;

    use futures::FutureExt;
    use futures::channel::oneshot;

    use super::*;

    /// Requests without an answer.
    type Requests = Arc<Mutex<Vec<(oneshot::Sender<bool>, OpenRequest)>>>;

    fn asker() -> (HostAsker, Requests) {
        let requests = Requests::default();
        let added = requests.clone();
        let asker = HostAsker::new(move |_, open| {
            let (reply, answer) = oneshot::channel();
            added.lock().unwrap().push((reply, open));
            async move { answer.await.unwrap_or(false) }.boxed()
        });
        (asker, requests)
    }

    fn allow_first(requests: &Requests) {
        let (reply, _open) = requests.lock().unwrap().remove(0);
        let _ = reply.send(true);
    }

    /// Whether a future is pending after one poll.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|context| Poll::Ready(future.poll_unpin(context).is_pending())).await
    }

    #[tokio::test]
    async fn time_of_open_questions_does_not_count() {
        let (asker, requests) = asker();
        let mut limit = pin!(asker.time_without_questions(Duration::ZERO));
        let mut first = pin!(asker.ask("a.example", 1));
        let mut second = pin!(asker.ask("b.example", 1));
        assert!(is_pending(&mut first).await && is_pending(&mut second).await);
        assert!(is_pending(&mut limit).await, "two questions are open");
        allow_first(&requests);
        assert!(first.await);
        assert!(is_pending(&mut limit).await, "one question is open");
        allow_first(&requests);
        assert!(second.await);
        limit.await;
    }

    #[tokio::test]
    async fn time_before_a_question_counts_once() {
        let (asker, requests) = asker();
        let begin = Instant::now();
        let questions = async {
            let answering = async {
                tokio::time::sleep(Duration::from_millis(60)).await;
                allow_first(&requests);
            };
            tokio::join!(asker.ask("a.example", 1), answering)
        };
        tokio::join!(asker.time_without_questions(Duration::from_millis(40)), questions);
        assert!(begin.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn answer_that_nobody_reads_ends_the_request() {
        let (asker, requests) = asker();
        let mut limit = pin!(asker.time_without_questions(Duration::ZERO));
        let mut request = Box::pin(asker.ask("a.example", 1));
        assert!(is_pending(&mut request).await && is_pending(&mut limit).await);
        drop(request);
        // The question is still shown to the user.
        assert!(is_pending(&mut limit).await);
        allow_first(&requests);
        limit.await;
    }

    #[tokio::test]
    async fn asker_without_a_user_denies() {
        let asker = HostAsker::deny();
        assert!(!asker.can_allow() && !asker.ask("a.example", 1).await);
        asker.time_without_questions(Duration::ZERO).await;
    }
}
