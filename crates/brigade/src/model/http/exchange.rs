//! One request and its reply: the wait at the gate, the head, the stream.

use std::mem;
use std::pin::{Pin, pin};
use std::time::Duration;

use brigade_core::Usage;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Bytes;
use reqwest::{Version, header};
use tokio::time::{Instant, Sleep};

use super::super::gate::{Hints, Passed, Permit, Place};
use super::super::sse::{Event, Parser};
use super::super::{Chunk, ModelError};
use super::endpoint::{Draft, Endpoint};
use super::failure::Instead;
use super::wire::{Outgoing, Reply, WireError};
use super::{Decoder, Pieces, cut, failure};
use crate::clock;

/// The most bytes of one reply.
const REPLY_BYTES: usize = 64 << 20;
/// The most bytes of an error that are read.
const ERROR_BYTES: usize = 64 << 10;
/// How long an error's text is waited for.
const ERROR_TIME: Duration = Duration::from_secs(10);
/// How long the end of the body is waited for after the terminal event, so that the connection serves again.
const LINGER: Duration = Duration::from_millis(50);
/// How often one request may be refused.
const MOST_REFUSALS: u32 = 8;
/// A wait that the provider asks for is worth a word when it is longer than this.
const WORTH_A_WORD: Duration = Duration::from_secs(1);
/// How often a wait at the gate, and one for the provider, is told.
const WAIT_NEWS: Duration = Duration::from_secs(10);
const SILENCE_NEWS: Duration = Duration::from_secs(30);
/// How many pieces of a body are taken at a stretch.
const MOST_AT_ONCE: usize = 64;

/// Writes a request, and makes who reads its reply.
type Write<D> = Box<dyn Fn() -> serde_json::Result<(Draft, D)> + Send>;

pub(super) struct Exchange<D> {
    endpoint: Endpoint,
    write: Write<D>,
    /// About how large the request is.
    bytes: usize,
    place: Option<Place>,
    permit: Option<Permit>,
    phase: Phase,
    refusals: u32,
    /// Whether whoever listens was told that nothing is sent yet.
    is_in_line: bool,
    parser: Parser,
    /// None until the request is sent.
    decoder: Option<Box<D>>,
    chunks: Pieces,
    failed: Option<ModelError>,
    framing: Framing,
    received: usize,
    /// When something came last, and when those who wait are told that nothing does.
    heard: Instant,
    news: Instant,
    /// When the reply has to be whole.
    ends: Instant,
    alarm: Alarm,
}

enum Phase {
    Queued,
    Sent(Coming),
    Reading(Box<Reply>),
    Over,
}

type Coming = BoxFuture<'static, Result<Box<Reply>, WireError>>;

/// Whether the end of a body can be told from a cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Known,
    None,
}

/// What came of waiting for a part of the reply.
enum Part<T> {
    Came(T),
    /// Nothing yet, which is worth a word.
    Quiet,
    /// Nothing within the limit.
    Late,
    /// The whole reply takes too long.
    Endless,
}

impl<D: Decoder> Exchange<D> {
    pub(super) fn new(endpoint: Endpoint, bytes: usize, write: Write<D>) -> Exchange<D> {
        let now = Instant::now();
        Exchange {
            endpoint,
            write,
            bytes,
            place: None,
            permit: None,
            phase: Phase::Queued,
            refusals: 0,
            is_in_line: false,
            parser: Parser::default(),
            decoder: None,
            chunks: Pieces::default(),
            failed: None,
            framing: Framing::None,
            received: 0,
            heard: now,
            news: now,
            ends: now,
            alarm: Alarm::default(),
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        loop {
            if let Some(chunk) = self.chunks.next() {
                return Some(Ok(self.give(chunk).await));
            }
            if let Some(error) = self.failed.take() {
                self.phase = Phase::Over;
                self.permit = None;
                return Some(Err(self.endpoint.without_key(error)));
            }
            if let Phase::Reading(_) = self.phase {
                self.read().await;
                continue;
            }
            match mem::replace(&mut self.phase, Phase::Over) {
                Phase::Queued => self.queue().await,
                Phase::Sent(reply) => self.hear(reply).await,
                Phase::Reading(_) | Phase::Over => return None,
            }
        }
    }

    async fn give(&mut self, chunk: Chunk) -> Chunk {
        match &chunk {
            Chunk::Done(_) => {
                self.linger().await;
                self.permit = None;
                self.chunks.clear();
                self.failed = None;
            }
            Chunk::Usage(usage) if usage.total() > 0 => {
                if let Some(permit) = &mut self.permit {
                    permit.used(usage.total(), usage.output);
                }
            }
            _ => {}
        }
        chunk
    }

    /// Waits at the gate. Nobody stands in line who is not listened to.
    async fn queue(&mut self) {
        if !self.is_in_line {
            self.is_in_line = true;
            self.chunks.push(Chunk::Queued);
            self.phase = Phase::Queued;
            return;
        }
        if self.place.is_none() {
            self.place = Some(self.endpoint.gate().enter(self.bytes));
            self.expect_wait(self.endpoint.gate().closed_for());
        }
        let Some(place) = &mut self.place else { return };
        match place.pass(self.news).await {
            Passed::Through(permit) => {
                self.permit = Some(permit);
                self.is_in_line = false;
                self.chunks.push(Chunk::Sent);
                self.heard = Instant::now();
                self.news = self.heard + SILENCE_NEWS;
                self.ends = self.heard + self.endpoint.limits().total;
                self.send();
            }
            Passed::Still(why) => {
                self.news = Instant::now() + WAIT_NEWS;
                self.chunks.push(Chunk::Waiting(failure::waits(&self.endpoint, why)));
                self.phase = Phase::Queued;
            }
            Passed::TooLong(wait) => {
                self.failed = Some(ModelError::Transient(failure::asks_too_much(&self.endpoint, wait)));
            }
        }
    }

    fn send(&mut self) {
        match self.written() {
            Ok((request, decoder)) => {
                self.decoder = Some(Box::new(decoder));
                self.phase = Phase::Sent(self.endpoint.wire().clone().send(request).boxed());
            }
            Err(cause) => self.failed = Some(failure::unwritable(&self.endpoint, &cause)),
        }
    }

    fn written(&self) -> Result<(Outgoing, D), String> {
        let (draft, decoder) = (self.write)().map_err(|error| error.to_string())?;
        Ok((draft.build()?, decoder))
    }

    fn expect_wait(&mut self, wait: Duration) {
        let now = Instant::now();
        self.news = if wait > WORTH_A_WORD { now } else { now + WAIT_NEWS };
    }

    /// Waits for the head of the reply.
    async fn hear(&mut self, mut reply: Coming) {
        let limit = self.endpoint.limits().first_byte;
        let limits = self.until(limit);
        match self.alarm.wait_for(&mut reply, limits).await {
            Part::Came(Ok(reply)) => self.head(reply).await,
            Part::Came(Err(error)) => {
                if matches!(error, WireError::Broken(_)) {
                    self.may_have_begun();
                }
                self.fail(failure::broken(&self.endpoint, error));
            }
            Part::Quiet => {
                self.say_quiet();
                self.phase = Phase::Sent(reply);
            }
            Part::Late => {
                self.may_have_begun();
                self.fail(failure::no_answer(&self.endpoint, limit));
            }
            Part::Endless => {
                self.may_have_begun();
                self.fail(failure::too_long(&self.endpoint));
            }
        }
    }

    /// How long the next part is waited for, which is late after this time.
    fn until(&self, limit: Duration) -> Until {
        Until { late: self.heard + limit, news: self.news, ends: self.ends }
    }

    async fn head(&mut self, response: Box<Reply>) {
        let hints = Hints::read(response.headers(), clock::now());
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("text/event-stream").to_ascii_lowercase();
        if !response.status().is_success() {
            let status = response.status().as_u16();
            // Boxed, here and below, is what few replies need and would make the future of all of them large.
            let error = Box::pin(failed_reply(&self.endpoint, response)).await;
            return self.turned_away(status, error, &hints);
        }
        if !kind.starts_with("text/event-stream") {
            return Box::pin(self.no_stream(response, &kind)).await;
        }
        if let Some(permit) = &mut self.permit {
            permit.accepted(&hints);
        }
        let chunked = response.headers().contains_key(header::TRANSFER_ENCODING);
        if chunked || response.length().is_some() || response.version() >= Version::HTTP_2 {
            self.framing = Framing::Known;
        }
        self.may_have_begun();
        self.heard = Instant::now();
        self.phase = Phase::Reading(response);
    }

    /// The reply is a failure. One that says no more than "later" is not shown to anybody: the request waits and is sent
    /// again, since nobody worked on it.
    fn turned_away(&mut self, status: u16, error: ModelError, hints: &Hints) {
        let ModelError::Transient(said) = &error else { return self.failed = Some(error) };
        let is_refusal = status == 429 || (matches!(status, 503 | 529) && hints.ask_to_wait());
        if !is_refusal {
            return if status >= 500 { self.fail(error) } else { self.failed = Some(error) };
        }
        let wait = self.permit.take().map_or(Duration::ZERO, |permit| permit.refused(hints));
        self.refusals += 1;
        if wait > self.endpoint.gate().longest_wait() {
            let wait = failure::asks_too_much(&self.endpoint, wait);
            self.failed = Some(ModelError::Transient(format!("{said}; {wait}")));
        } else if self.refusals < MOST_REFUSALS {
            self.expect_wait(wait);
            if let Some(place) = &mut self.place {
                place.again();
            }
            self.phase = Phase::Queued;
        } else {
            let refused = format!("{said}; it refused the request {} times", self.refusals);
            self.failed = Some(ModelError::Transient(refused));
        }
    }

    async fn no_stream(&mut self, mut response: Box<Reply>, kind: &str) {
        let text = error_text(&self.endpoint, &mut response).await;
        self.failed = Some(match failure::no_stream(&self.endpoint, kind, &text) {
            Instead::Failure(error) => error,
            Instead::Work(error) => {
                self.may_have_begun();
                error
            }
        });
    }

    /// Tells whoever pays that the provider may have worked, whatever comes.
    fn may_have_begun(&mut self) {
        self.chunks.push(Chunk::Usage(Usage::default()));
    }

    /// The provider failed, and is asked for less at once.
    fn fail(&mut self, error: ModelError) {
        if let (ModelError::Transient(_), Some(permit)) = (&error, &mut self.permit) {
            permit.overloaded();
        }
        self.failed = Some(error);
    }

    async fn read(&mut self) {
        let limits = self.endpoint.limits();
        let limit = if self.received == 0 { limits.first_byte } else { limits.idle };
        let until = self.until(limit);
        let Phase::Reading(response) = &mut self.phase else { return };
        match self.alarm.wait_for(response.chunk(), until).await {
            Part::Came(came) => {
                self.heard = Instant::now();
                self.came(came);
                self.take_ready();
            }
            Part::Quiet => self.say_quiet(),
            Part::Late if self.received == 0 => self.fail(failure::no_answer(&self.endpoint, limit)),
            Part::Late => self.fail(failure::stalled(&self.endpoint, limit)),
            Part::Endless => self.fail(failure::too_long(&self.endpoint)),
        }
    }

    /// Takes what has come already too, so that whoever listens goes on once for all of it.
    fn take_ready(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            if self.failed.is_some() || self.chunks.are_done() {
                return;
            }
            let Phase::Reading(response) = &mut self.phase else { return };
            let Some(came) = response.chunk().now_or_never() else { return };
            self.came(came);
        }
    }

    fn came(&mut self, came: Result<Option<Bytes>, WireError>) {
        let taken = match came {
            Ok(Some(bytes)) => self.take(&bytes),
            Ok(None) if self.framing == Framing::Known => {
                self.phase = Phase::Over;
                self.decoder.as_mut().map_or(Ok(()), |decoder| decoder.end(&mut self.chunks))
            }
            Ok(None) => Err(cut(&self.endpoint)),
            Err(error) => Err(failure::broken(&self.endpoint, error)),
        };
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// A provider that is slow is not dead: whoever waits is told so, and goes on waiting.
    fn say_quiet(&mut self) {
        let now = Instant::now();
        self.news = now + SILENCE_NEWS;
        let quiet = now.saturating_duration_since(self.heard);
        self.chunks.push(Chunk::Waiting(failure::quiet(&self.endpoint, quiet)));
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let transient = |cause: String| ModelError::Transient(format!("{}: {cause}", self.endpoint.name()));
        if self.received == 0
            && let Some(permit) = &mut self.permit
        {
            permit.heard();
        }
        self.received = self.received.saturating_add(bytes.len());
        if self.received > REPLY_BYTES {
            return Err(transient(format!("the reply is larger than {REPLY_BYTES} bytes")));
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let mut rest = bytes;
        while let Some(event) = self.parser.next(&mut rest).map_err(|error| transient(error.to_string()))? {
            // Whoever says the key in a reply would have it stored and shown.
            match self.endpoint.hidden_in_reply(&event.data) {
                None => decoder.take(event, &mut self.chunks)?,
                Some(data) => {
                    let event = Event { name: event.name.clone(), data };
                    decoder.take(&event, &mut self.chunks)?;
                }
            }
            if self.chunks.are_done() {
                break;
            }
        }
        if !self.chunks.is_empty() {
            self.news = self.heard + SILENCE_NEWS;
        }
        Ok(())
    }

    /// A connection serves again only once its body was read to the end.
    async fn linger(&mut self) {
        let Phase::Reading(mut response) = mem::replace(&mut self.phase, Phase::Over) else { return };
        // Most often the end came together with the terminal event.
        for _ in 0..MOST_AT_ONCE {
            match response.chunk().now_or_never() {
                Some(Ok(Some(_))) => {}
                Some(_) => return,
                None => break,
            }
        }
        let rest = async move { while let Ok(Some(_)) = response.chunk().await {} };
        // Whoever goes on sending loses the connection, and nothing else.
        let _ = Box::pin(tokio::time::timeout(LINGER, rest)).await;
    }
}

/// Until when a part of a reply is waited for.
struct Until {
    late: Instant,
    news: Instant,
    ends: Instant,
}

/// One timer for all parts of a reply. Parts come far more often than a limit is reached, so it is set anew only when it
/// has gone off, or would go off too late.
#[derive(Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits for a part of the reply, until it is late or its absence is worth a word.
    async fn wait_for<T>(&mut self, part: impl Future<Output = T>, until: Until) -> Part<T> {
        let Until { late, news, ends } = until;
        let due = late.min(news).min(ends);
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        let mut part = pin!(part);
        loop {
            tokio::select! {
                biased;
                part = &mut part => return Part::Came(part),
                () = sleep.as_mut() => {}
            }
            match Instant::now() {
                now if now >= ends => return Part::Endless,
                now if now >= late => return Part::Late,
                now if now >= news => return Part::Quiet,
                _ => sleep.as_mut().reset(due),
            }
        }
    }
}

pub(super) async fn failed_reply(endpoint: &Endpoint, mut response: Box<Reply>) -> ModelError {
    let text = error_text(endpoint, &mut response).await;
    let retry = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    failure::status(endpoint, response.status().as_u16(), retry, &text)
}

/// The beginning of a body, without the key.
async fn error_text(endpoint: &Endpoint, response: &mut Reply) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            let room = ERROR_BYTES.saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if body.len() >= ERROR_BYTES {
                break;
            }
        }
    };
    // What came in time is enough for a message.
    let _ = tokio::time::timeout(ERROR_TIME, read).await;
    endpoint.hide(String::from_utf8_lossy(&body).into_owned())
}
