//! Notifications about changed tools of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, ServerNotification, SubscriptionFilter};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;

use brigade_base::process::CloseReason;

/// Delay before a lost subscription is renewed. It doubles each time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Number of announced and of handled changes.
#[derive(Default)]
pub(super) struct ToolChanges {
    announced: AtomicU64,
    handled: AtomicU64,
    notify: Notify,
}

/// The number of changes that had been announced before a tool list was requested.
#[derive(Clone, Copy)]
pub(super) struct ChangeMark(u64);

impl ToolChanges {
    /// Announces a change, or a possible one.
    pub(super) fn announce(&self) {
        self.announced.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_one();
    }

    /// Returns the current mark. A tool list that is requested after this includes all changes up to it.
    pub(super) fn mark(&self) -> ChangeMark {
        ChangeMark(self.announced.load(Ordering::SeqCst))
    }

    /// Returns the current mark if there are unhandled changes. They stay pending until they are handled.
    pub(super) fn pending(&self) -> Option<ChangeMark> {
        let mark = self.mark();
        (mark.0 != self.handled.load(Ordering::SeqCst)).then_some(mark)
    }

    /// Marks changes as handled, because the server has listed its tools.
    pub(super) fn mark_handled(&self, mark: ChangeMark) {
        self.handled.fetch_max(mark.0, Ordering::SeqCst);
    }

    /// Waits for a change, without handling it.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }
}

/// A transport that records change notifications in order, before any answer that follows them.
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

/// Subscribes to changes if the protocol requires it, and renews a lost subscription. Changes in the meantime
/// are announced.
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
