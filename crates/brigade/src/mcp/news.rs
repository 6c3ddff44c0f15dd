//! Hearing that the tools of a server changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, ServerNotification, SubscriptionFilter};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;

use super::fate::Fate;

/// How long is waited before a subscription that ended is asked for again; twice as long each time.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a server said about changes, and how much of that was followed.
#[derive(Default)]
pub(super) struct News {
    said: AtomicU64,
    followed: AtomicU64,
    heard: Notify,
}

/// How far news had come when what they are about was asked for.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl News {
    /// Something changed, or may have.
    pub(super) fn come(&self) {
        self.said.fetch_add(1, Ordering::SeqCst);
        self.heard.notify_one();
    }

    /// How far they have come. Whoever asks the server after this and is answered knows all of them.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.said.load(Ordering::SeqCst))
    }

    /// The same, where there are some that nobody followed. They stay due until somebody did.
    pub(super) fn due(&self) -> Option<Mark> {
        let mark = self.mark();
        (mark.0 != self.followed.load(Ordering::SeqCst)).then_some(mark)
    }

    /// The server said what there is now.
    pub(super) fn follow(&self, mark: Mark) {
        self.followed.fetch_max(mark.0, Ordering::SeqCst);
    }

    /// Waits for news, and leaves them.
    pub(super) async fn heard(&self) {
        self.heard.notified().await;
    }
}

/// A way to a server on which news are heard in their place: before the answer that comes after them.
pub(super) struct Attentive<T> {
    pub(super) inner: T,
    pub(super) news: Arc<News>,
    pub(super) fate: Fate,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Attentive<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.fate.message_sent();
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        if let JsonRpcMessage::Notification(said) = &message
            && matches!(said.notification, ServerNotification::ToolListChangedNotification(_))
        {
            self.news.come();
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// Asks to hear of changes where the protocol wants that, and again where it ended. What changed meanwhile is news.
pub(super) async fn listen(peer: Peer<RoleClient>, news: Arc<News>) {
    let mut pause = PAUSE;
    let filter = || SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut subscription) = peer.listen(filter()).await else { return };
    loop {
        while let Ok(Some(_)) = subscription.next().await {}
        subscription = loop {
            news.come();
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            match peer.listen(filter()).await {
                Ok(again) => break again,
                Err(_) if peer.is_transport_closed() => return,
                Err(_) => {}
            }
        };
        news.come();
    }
}
