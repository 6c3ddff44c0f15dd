//! Messages to a driver, and the inbox that receives them.

use brigade_core::{CallId, Outcome, SeenFile, SessionId, Spent, ToolOutput};
use futures::StreamExt;
use futures::channel::mpsc;

use super::DriverError;
use super::host_questions::HostAsk;
use crate::concurrency::Slot;

/// Message to a driver. Kept small, because ten thousand drivers have an inbox each.
pub(crate) enum DriverMessage {
    /// The log may have external events.
    LogChanged,
    /// The caller cancels this session.
    Cancel(Box<str>),
    /// A tool call has finished.
    ToolDone(Box<ToolDone>),
    /// A running call connects to a host.
    AskHost(Box<HostAsk>),
    /// A child has ended.
    ChildDone(Box<ChildEnd>),
    /// A waiting child may start.
    Slot(Box<Slot>),
}

/// Result of a finished tool call.
pub(crate) struct ToolDone {
    pub(crate) call: CallId,
    pub(crate) output: ToolOutput,
    pub(crate) spent: Spent,
    /// File that the agent has seen through the call.
    pub(crate) seen: Option<SeenFile>,
}

pub(crate) struct ChildEnd {
    pub(crate) child: SessionId,
    pub(crate) result: Result<RoundEnd, DriverError>,
}

/// Outcome and usage of a round.
#[derive(Debug, Clone)]
pub(crate) struct RoundEnd {
    pub(crate) outcome: Outcome,
    pub(crate) spent: Spent,
}

/// Sender of messages to a driver.
pub(crate) type DriverSender = mpsc::UnboundedSender<DriverMessage>;

/// Inbox of a driver, which is its only reader.
pub(super) struct Mailbox {
    sender: DriverSender,
    inbox: mpsc::UnboundedReceiver<DriverMessage>,
}

impl Mailbox {
    pub(super) fn new() -> Mailbox {
        let (sender, inbox) = mpsc::unbounded();
        Mailbox { sender, inbox }
    }

    pub(super) fn sender(&self) -> DriverSender {
        self.sender.clone()
    }

    /// Waits for a message. There is always one in the end, because the mailbox itself holds a sender.
    pub(super) fn next(&mut self) -> impl Future<Output = Option<DriverMessage>> {
        self.inbox.next()
    }

    /// Returns the next message if one is queued.
    pub(super) fn try_next(&mut self) -> Option<DriverMessage> {
        self.inbox.try_recv().ok()
    }
}
