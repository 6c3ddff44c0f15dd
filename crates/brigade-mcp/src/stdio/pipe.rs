//! The way between the streams and the protocol. One writer writes all lines: a sender that is given up never leaves
//! half a line behind, and nobody waits for a client that does not read.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::heard::{self, Heard};
use super::lines::{Line, Lines};

/// How many wrong lines are answered to a client that reads no answers.
const MOST_UNREAD: usize = 1024;

/// Both ends, for the protocol.
pub(super) struct Pipe<R> {
    lines: Lines<R>,
    out: Option<mpsc::UnboundedSender<Said>>,
    places: Arc<Semaphore>,
    /// Versions of the protocol that the server speaks.
    versions: Vec<ProtocolVersion>,
    /// Whether a request has opened the conversation. Before that there is nothing that a notification or a response
    /// could be about, and the protocol would end at one.
    is_open: bool,
}

/// A line to be written.
pub(super) struct Said {
    line: Vec<u8>,
    then: Then,
}

/// What follows when it is written.
enum Then {
    /// Who said it hears so.
    Tell(oneshot::Sender<()>),
    /// There is room for one more.
    Free(#[expect(dead_code, reason = "dropping it makes room")] OwnedSemaphorePermit),
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    /// The pipe, and what is to be written.
    pub(super) fn new(input: R, versions: Vec<ProtocolVersion>) -> (Pipe<R>, mpsc::UnboundedReceiver<Said>) {
        let (out, said) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(MOST_UNREAD));
        (Pipe { lines: Lines::new(input), out: Some(out), places, versions, is_open: false }, said)
    }

    fn say(&self, message: &impl Serialize, then: Then) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let out = self.out.as_ref().ok_or_else(gone)?;
        out.send(Said { line, then }).map_err(|_| gone())
    }

    /// Whether the protocol takes a request as the beginning of a conversation: a greeting, or one that says by itself
    /// what a greeting says.
    fn opens(&self, request: &ClientRequest) -> bool {
        match request {
            ClientRequest::InitializeRequest(_) => true,
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
            request => {
                let meta = request.get_meta();
                let version = meta.protocol_version().filter(|version| self.versions.contains(version));
                version.is_some() && meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
            }
        }
    }

    /// Never waits: an end of the input behind it could not be seen meanwhile.
    fn refuse(&self, answer: &serde_json::Value) {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            let _ = self.say(answer, Then::Free(place));
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the client reads no more")
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Pipe<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (tell, told) = oneshot::channel();
        let said = self.say(&message, Then::Tell(tell));
        async move {
            said?;
            told.await.map_err(|_| gone())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let heard = match self.lines.next().await? {
                Line::Whole(line) => heard::read(&line),
                Line::TooLong => heard::too_long(),
            };
            match heard {
                Heard::Message(message) => {
                    if let JsonRpcMessage::Request(request) = &*message {
                        self.is_open = self.is_open || self.opens(&request.request);
                        return Some(*message);
                    }
                    if self.is_open {
                        return Some(*message);
                    }
                }
                Heard::Wrong(answer) => self.refuse(&answer),
                Heard::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        Ok(())
    }
}

/// Writes what is said until nobody is left to say anything.
pub(super) async fn write(
    mut said: mpsc::UnboundedReceiver<Said>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(said) = said.recv().await {
        output.write_all(&said.line).await?;
        output.flush().await?;
        if let Then::Tell(tell) = said.then {
            let _ = tell.send(());
        }
    }
    Ok(())
}
