//! One request and its reply: waiting for a permit, the response head and the stream.

use std::mem;
use std::pin::{Pin, pin};
use std::time::Duration;

use brigade_base::clock;
use brigade_core::Usage;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Bytes;
use hyper::header;
use tokio::time::{Instant, Sleep};
use tracing::debug;

use super::super::rate_limit::{Admission, Permit, RateLimitHeaders, Ticket};
use super::super::sse::{SseEvent, SseParser};
use super::super::{Chunk, ModelError};
use super::endpoint::{Endpoint, RequestBuilder};
use super::failure::NonStreamReply;
use super::pool::{ConnectionError, HttpRequest, HttpResponse};
use super::{ChunkBuffer, Decoder, failure, truncated};

/// Maximum size of a reply.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// Maximum number of bytes read from an error response.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Maximum time to read the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for the end of the body after the terminal event, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Maximum number of refusals per request.
const MAX_REFUSALS: u32 = 8;
/// Longer waits that the provider asks for are reported at once.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(1);
/// Interval of notices while a request is queued, and while the provider is silent.
const WAIT_NOTICE_INTERVAL: Duration = Duration::from_secs(10);
const SILENCE_NOTICE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of body chunks read without yielding.
const MAX_CHUNKS_PER_READ: usize = 64;

/// Builds a request and the decoder of its reply.
type WriteRequest<D> = Box<dyn Fn() -> serde_json::Result<(RequestBuilder, D)> + Send>;

pub(super) struct Exchange<D> {
    endpoint: Endpoint,
    write: WriteRequest<D>,
    /// Approximate size of the request.
    bytes: usize,
    ticket: Option<Ticket>,
    permit: Option<Permit>,
    phase: Phase,
    refusals: u32,
    /// Whether the consumer was told that the request is queued.
    is_queued: bool,
    parser: SseParser,
    /// None until the request is sent.
    decoder: Option<Box<D>>,
    chunks: ChunkBuffer,
    failed: Option<ModelError>,
    framing: Framing,
    received_bytes: usize,
    /// Time of the last received data, and of the next notice about silence.
    last_received: Instant,
    next_notice: Instant,
    /// Deadline for the whole reply.
    total_deadline: Instant,
    timer: DeadlineTimer,
}

enum Phase {
    Queued,
    Sent(PendingResponse),
    Reading(Box<HttpResponse>),
    Done,
}

type PendingResponse = BoxFuture<'static, Result<Box<HttpResponse>, ConnectionError>>;

/// Whether a complete body can be distinguished from a truncated one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Known,
    None,
}

/// Outcome of waiting for a part of the reply.
enum WaitOutcome<T> {
    Arrived(T),
    /// Nothing has arrived yet, and a notice is due.
    NoticeDue,
    /// Nothing arrived within the limit.
    TimedOut,
    /// The whole reply takes too long.
    TotalTimedOut,
}

impl<D: Decoder> Exchange<D> {
    pub(super) fn new(endpoint: Endpoint, bytes: usize, write: WriteRequest<D>) -> Exchange<D> {
        let now = Instant::now();
        Exchange {
            endpoint,
            write,
            bytes,
            ticket: None,
            permit: None,
            phase: Phase::Queued,
            refusals: 0,
            is_queued: false,
            parser: SseParser::default(),
            decoder: None,
            chunks: ChunkBuffer::default(),
            failed: None,
            framing: Framing::None,
            received_bytes: 0,
            last_received: now,
            next_notice: now,
            total_deadline: now,
            timer: DeadlineTimer::default(),
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        loop {
            if let Some(chunk) = self.chunks.next() {
                return Some(Ok(self.emit(chunk).await));
            }
            if let Some(error) = self.failed.take() {
                // The message may quote the response, so only its kind is logged.
                let kind = error_kind(&error);
                debug!(target: "brigade::http", provider = self.endpoint.name(), kind, "request failed");
                self.phase = Phase::Done;
                self.permit = None;
                return Some(Err(self.endpoint.redact_error(error)));
            }
            if let Phase::Reading(_) = self.phase {
                self.read().await;
                continue;
            }
            match mem::replace(&mut self.phase, Phase::Done) {
                Phase::Queued => self.queue().await,
                Phase::Sent(reply) => self.receive_head(reply).await,
                Phase::Reading(_) | Phase::Done => return None,
            }
        }
    }

    async fn emit(&mut self, chunk: Chunk) -> Chunk {
        match &chunk {
            Chunk::Done(_) => {
                let bytes = self.received_bytes;
                debug!(target: "brigade::http", provider = self.endpoint.name(), bytes, "reply complete");
                self.drain().await;
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

    /// Waits for a permit. The request enters the queue only when its stream is polled.
    async fn queue(&mut self) {
        if !self.is_queued {
            self.is_queued = true;
            self.chunks.push(Chunk::Queued);
            self.phase = Phase::Queued;
            return;
        }
        if self.ticket.is_none() {
            self.ticket = Some(self.endpoint.rate_limiter().enqueue(self.bytes));
            self.schedule_notice(self.endpoint.rate_limiter().closed_for());
        }
        let Some(ticket) = &mut self.ticket else { return };
        match ticket.acquire(self.next_notice).await {
            Admission::Granted(permit) => {
                self.permit = Some(permit);
                self.is_queued = false;
                let send = self.refusals + 1;
                debug!(target: "brigade::http", provider = self.endpoint.name(), send, "sending request");
                self.chunks.push(Chunk::Sent);
                self.last_received = Instant::now();
                self.next_notice = self.last_received + SILENCE_NOTICE_INTERVAL;
                self.total_deadline = self.last_received + self.endpoint.timeouts().total;
                self.send();
            }
            Admission::Waiting(reason) => {
                self.next_notice = Instant::now() + WAIT_NOTICE_INTERVAL;
                self.chunks.push(Chunk::Waiting(failure::wait_message(&self.endpoint, reason)));
                self.phase = Phase::Queued;
            }
            Admission::TooLong(wait) => {
                self.failed = Some(ModelError::Transient(failure::wait_too_long(&self.endpoint, wait)));
            }
        }
    }

    fn send(&mut self) {
        match self.write_request() {
            Ok((request, decoder)) => {
                self.decoder = Some(Box::new(decoder));
                self.phase = Phase::Sent(self.endpoint.pool().clone().send(request).boxed());
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn write_request(&self) -> Result<(HttpRequest, D), ModelError> {
        let endpoint = &self.endpoint;
        let (builder, decoder) =
            (self.write)().map_err(|error| failure::invalid_request(endpoint, &error))?;
        let request = builder.build().map_err(|error| failure::invalid_request(endpoint, &error))?;
        Ok((request, decoder))
    }

    fn schedule_notice(&mut self, wait: Duration) {
        let now = Instant::now();
        self.next_notice = if wait > MIN_REPORTED_WAIT { now } else { now + WAIT_NOTICE_INTERVAL };
    }

    /// Waits for the response head.
    async fn receive_head(&mut self, mut reply: PendingResponse) {
        let limit = self.endpoint.timeouts().first_byte;
        let deadlines = self.deadlines(limit);
        match self.timer.wait_for(&mut reply, deadlines).await {
            WaitOutcome::Arrived(Ok(reply)) => self.handle_head(reply).await,
            WaitOutcome::Arrived(Err(error)) => {
                if matches!(error, ConnectionError::Broken(_)) {
                    self.mark_billable();
                }
                self.fail(failure::connection_error(&self.endpoint, error));
            }
            WaitOutcome::NoticeDue => {
                self.push_silence_notice();
                self.phase = Phase::Sent(reply);
            }
            WaitOutcome::TimedOut => {
                self.mark_billable();
                self.fail(failure::first_byte_timeout(&self.endpoint, limit));
            }
            WaitOutcome::TotalTimedOut => {
                self.mark_billable();
                self.fail(failure::total_timeout(&self.endpoint));
            }
        }
    }

    /// Returns the deadlines for the next part of the reply, which times out after `limit`.
    fn deadlines(&self, limit: Duration) -> Deadlines {
        Deadlines {
            part_deadline: self.last_received + limit,
            next_notice: self.next_notice,
            total_deadline: self.total_deadline,
        }
    }

    async fn handle_head(&mut self, response: Box<HttpResponse>) {
        let status = response.head.status().as_u16();
        let elapsed_ms = self.last_received.elapsed().as_millis() as u64;
        debug!(target: "brigade::http", provider = self.endpoint.name(), status, elapsed_ms, "response received");
        self.chunks.push(Chunk::Status(status));
        let headers = RateLimitHeaders::read(response.head.headers(), clock::now());
        let kind = response.head.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("text/event-stream").to_ascii_lowercase();
        if !response.head.status().is_success() {
            // Boxed here and below, because few replies need it and it would enlarge the future of all of
            // them.
            let error = Box::pin(response_error(&self.endpoint, response)).await;
            return self.handle_error_status(status, error, &headers);
        }
        if !kind.starts_with("text/event-stream") {
            return Box::pin(self.non_stream_reply(response, &kind)).await;
        }
        if let Some(permit) = &mut self.permit {
            permit.accepted(&headers);
        }
        let chunked = response.head.headers().contains_key(header::TRANSFER_ENCODING);
        if chunked || response.length().is_some() {
            self.framing = Framing::Known;
        }
        self.mark_billable();
        self.last_received = Instant::now();
        self.phase = Phase::Reading(response);
    }

    /// Handles an error status. A request that was only deferred is queued and sent again without an error,
    /// because the provider did no work for it.
    fn handle_error_status(&mut self, status: u16, error: ModelError, headers: &RateLimitHeaders) {
        let ModelError::Transient(message) = &error else { return self.failed = Some(error) };
        let is_refusal = status == 429 || (matches!(status, 503 | 529) && headers.has_wait());
        if !is_refusal {
            return if status >= 500 { self.fail(error) } else { self.failed = Some(error) };
        }
        let wait = self.permit.take().map_or(Duration::ZERO, |permit| permit.refused(headers));
        self.refusals += 1;
        if wait > self.endpoint.rate_limiter().longest_wait() {
            let wait = failure::wait_too_long(&self.endpoint, wait);
            self.failed = Some(ModelError::Transient(format!("{message}; {wait}")));
        } else if self.refusals < MAX_REFUSALS {
            let wait_ms = wait.as_millis() as u64;
            debug!(target: "brigade::http", provider = self.endpoint.name(), status, wait_ms, "request is retried");
            self.schedule_notice(wait);
            if let Some(ticket) = &mut self.ticket {
                ticket.requeue();
            }
            self.phase = Phase::Queued;
        } else {
            let refused = format!("{message} (refused {} times)", self.refusals);
            self.failed = Some(ModelError::Transient(refused));
        }
    }

    async fn non_stream_reply(&mut self, mut response: Box<HttpResponse>, kind: &str) {
        let text = read_error_body(&self.endpoint, &mut response).await;
        self.failed = Some(match failure::non_stream_reply(&self.endpoint, kind, &text) {
            NonStreamReply::Failure(error) => error,
            NonStreamReply::Billable(error) => {
                self.mark_billable();
                error
            }
        });
    }

    /// Marks the request as possibly billed, whatever its outcome.
    fn mark_billable(&mut self) {
        self.chunks.push(Chunk::Usage(Usage::default()));
    }

    /// Fails the request and lowers the concurrency.
    fn fail(&mut self, error: ModelError) {
        if let (ModelError::Transient(_), Some(permit)) = (&error, &mut self.permit) {
            permit.overloaded();
        }
        self.failed = Some(error);
    }

    async fn read(&mut self) {
        let timeouts = self.endpoint.timeouts();
        let limit = if self.received_bytes == 0 { timeouts.first_byte } else { timeouts.idle };
        let deadlines = self.deadlines(limit);
        let Phase::Reading(response) = &mut self.phase else { return };
        match self.timer.wait_for(response.chunk(), deadlines).await {
            WaitOutcome::Arrived(received) => {
                self.last_received = Instant::now();
                self.handle_body(received);
                self.read_ready();
            }
            WaitOutcome::NoticeDue => self.push_silence_notice(),
            WaitOutcome::TimedOut if self.received_bytes == 0 => {
                self.fail(failure::first_byte_timeout(&self.endpoint, limit))
            }
            WaitOutcome::TimedOut => self.fail(failure::idle_timeout(&self.endpoint, limit)),
            WaitOutcome::TotalTimedOut => self.fail(failure::total_timeout(&self.endpoint)),
        }
    }

    /// Reads the data that has already arrived, so that the consumer is woken once for all of it.
    fn read_ready(&mut self) {
        for _ in 0..MAX_CHUNKS_PER_READ {
            if self.failed.is_some() || self.chunks.is_done() {
                return;
            }
            let Phase::Reading(response) = &mut self.phase else { return };
            let Some(received) = response.chunk().now_or_never() else { return };
            self.handle_body(received);
        }
    }

    fn handle_body(&mut self, received: Result<Option<Bytes>, ConnectionError>) {
        let taken = match received {
            Ok(Some(bytes)) => self.take(&bytes),
            Ok(None) if self.framing == Framing::Known => {
                self.phase = Phase::Done;
                self.decoder.as_mut().map_or(Ok(()), |decoder| decoder.end(&mut self.chunks))
            }
            Ok(None) => Err(truncated(&self.endpoint)),
            Err(error) => Err(failure::connection_error(&self.endpoint, error)),
        };
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// Reports that the provider is silent. The wait continues: a slow provider is not a dead one.
    fn push_silence_notice(&mut self) {
        let now = Instant::now();
        self.next_notice = now + SILENCE_NOTICE_INTERVAL;
        let quiet = now.saturating_duration_since(self.last_received);
        self.chunks.push(Chunk::Waiting(failure::silence_message(&self.endpoint, quiet)));
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let transient = |cause: String| ModelError::Transient(format!("{}: {cause}", self.endpoint.name()));
        if self.received_bytes == 0
            && let Some(permit) = &mut self.permit
        {
            permit.first_byte_received();
        }
        self.received_bytes = self.received_bytes.saturating_add(bytes.len());
        if self.received_bytes > MAX_REPLY_BYTES {
            return Err(transient(format!("the reply is larger than {MAX_REPLY_BYTES} bytes")));
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let mut rest = bytes;
        while let Some(event) = self.parser.next(&mut rest).map_err(|error| transient(error.to_string()))? {
            // A key in a reply would be stored and displayed.
            match self.endpoint.redact_reply(&event.data) {
                None => decoder.take(event, &mut self.chunks)?,
                Some(data) => {
                    let event = SseEvent { name: event.name.clone(), data };
                    decoder.take(&event, &mut self.chunks)?;
                }
            }
            if self.chunks.is_done() {
                break;
            }
        }
        if !self.chunks.is_empty() {
            self.next_notice = self.last_received + SILENCE_NOTICE_INTERVAL;
        }
        Ok(())
    }

    /// Reads the body to its end, so that the connection can be reused.
    async fn drain(&mut self) {
        let Phase::Reading(mut response) = mem::replace(&mut self.phase, Phase::Done) else { return };
        // The end usually arrives together with the terminal event.
        for _ in 0..MAX_CHUNKS_PER_READ {
            match response.chunk().now_or_never() {
                Some(Ok(Some(_))) => {}
                Some(_) => return,
                None => break,
            }
        }
        let rest = async move { while let Ok(Some(_)) = response.chunk().await {} };
        // A server that keeps sending only loses the connection.
        let _ = Box::pin(tokio::time::timeout(DRAIN_TIMEOUT, rest)).await;
    }
}

fn error_kind(error: &ModelError) -> &'static str {
    match error {
        ModelError::Transient(_) => "transient",
        ModelError::Fatal(_) => "fatal",
        ModelError::Overflow(_) => "overflow",
    }
}

/// Deadlines while waiting for a part of a reply.
struct Deadlines {
    part_deadline: Instant,
    next_notice: Instant,
    total_deadline: Instant,
}

/// One timer for all parts of a reply. Parts arrive far more often than deadlines pass, so the timer is reset
/// only when it has fired or would fire too late.
#[derive(Default)]
struct DeadlineTimer(Option<Pin<Box<Sleep>>>);

impl DeadlineTimer {
    /// Waits for a part of the reply, until it times out or a notice is due.
    async fn wait_for<T>(&mut self, part: impl Future<Output = T>, deadlines: Deadlines) -> WaitOutcome<T> {
        let Deadlines { part_deadline, next_notice, total_deadline } = deadlines;
        let due = part_deadline.min(next_notice).min(total_deadline);
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        let mut part = pin!(part);
        loop {
            tokio::select! {
                biased;
                part = &mut part => return WaitOutcome::Arrived(part),
                () = sleep.as_mut() => {}
            }
            match Instant::now() {
                now if now >= total_deadline => return WaitOutcome::TotalTimedOut,
                now if now >= part_deadline => return WaitOutcome::TimedOut,
                now if now >= next_notice => return WaitOutcome::NoticeDue,
                _ => sleep.as_mut().reset(due),
            }
        }
    }
}

pub(super) async fn response_error(endpoint: &Endpoint, mut response: Box<HttpResponse>) -> ModelError {
    let text = read_error_body(endpoint, &mut response).await;
    let retry = response.head.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    failure::status(endpoint, response.head.status().as_u16(), retry, &text)
}

/// Reads the start of a body and redacts the key.
async fn read_error_body(endpoint: &Endpoint, response: &mut HttpResponse) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            let room = MAX_ERROR_BYTES.saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if body.len() >= MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // Whatever arrived in time is enough for a message.
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await;
    endpoint.redact(String::from_utf8_lossy(&body).into_owned())
}
