//! Hearing that the tools of a server changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, ServerNotification, SubscriptionFilter};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;

use super::close_reason::CloseReason;

/// How long is waited before a subscription that ended is asked for again; twice as long each time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// What a server said about changes, and how much of that was followed.
#[derive(Default)]
pub(super) struct ToolChanges {
    announced: AtomicU64,
    handled: AtomicU64,
    notify: Notify,
}

/// How far news had come when what they are about was asked for.
#[derive(Clone, Copy)]
pub(super) struct ChangeMark(u64);

impl ToolChanges {
    /// Something changed, or may have.
    pub(super) fn announce(&self) {
        self.announced.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_one();
    }

    /// How far they have come. Whoever asks the server after this and is answered knows all of them.
    pub(super) fn mark(&self) -> ChangeMark {
        ChangeMark(self.announced.load(Ordering::SeqCst))
    }

    /// The same, where there are some that nobody followed. They stay due until somebody did.
    pub(super) fn pending(&self) -> Option<ChangeMark> {
        let mark = self.mark();
        (mark.0 != self.handled.load(Ordering::SeqCst)).then_some(mark)
    }

    /// The server said what there is now.
    pub(super) fn mark_handled(&self, mark: ChangeMark) {
        self.handled.fetch_max(mark.0, Ordering::SeqCst);
    }

    /// Waits for news, and leaves them.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }
}

/// A way to a server on which news are heard in their place: before the answer that comes after them.
pub(super) struct NotifyingTransport<T> {
    pub(super) inner: T,
    pub(super) changes: Arc<ToolChanges>,
    pub(super) close_reason: CloseReason,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for NotifyingTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.close_reason.message_sent();
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        if let JsonRpcMessage::Notification(notification) = &message
            && matches!(notification.notification, ServerNotification::ToolListChangedNotification(_))
        {
            self.changes.announce();
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// Asks to hear of changes where the protocol wants that, and again where it ended. What changed meanwhile is news.
pub(super) async fn listen(peer: Peer<RoleClient>, changes: Arc<ToolChanges>) {
    let mut delay = RETRY_DELAY;
    let filter = || SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut subscription) = peer.listen(filter()).await else { return };
    loop {
        while let Ok(Some(_)) = subscription.next().await {}
        subscription = loop {
            changes.announce();
            tokio::time::sleep(delay).await;
            delay = MAX_RETRY_DELAY.min(delay * 2);
            match peer.listen(filter()).await {
                Ok(again) => break again,
                Err(_) if peer.is_transport_closed() => return,
                Err(_) => {}
            }
        };
        changes.announce();
    }
}
