//! A small test server, and helpers for requests.

use std::time::Duration;

use brigade::Secret;
use brigade::core::message::Category;
use brigade::core::{Message, Purpose, Reply, SessionId, ToolSpec, Usage};
use brigade::model::anthropic::Anthropic;
use brigade::model::gemini::Gemini;
use brigade::model::openai::OpenAi;
use brigade::model::responses::Responses;
use brigade::model::{Endpoint, Ingest, Model, ModelError, RateLimits, Request, Timeouts};
use brigade_testing::{AfterResponse, HttpRequest, HttpResponse, HttpServer};
use futures::StreamExt;
use serde_json::{Value, json};

/// The key in every test.
pub(super) const KEY: &str = "sk-planted-0123456789abcdef";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A server of a model API.
pub(super) struct Server(HttpServer);

impl Server {
    /// Starts a server. `answer` gets the text of each request.
    pub(super) fn start(answer: impl Fn(&str) -> HttpResponse + Send + Sync + 'static) -> Server {
        Server(HttpServer::start(move |request| answer(&request.text())))
    }

    /// A server that answers every request with the same stream.
    pub(super) fn streaming(stream: &str) -> Server {
        Server(HttpServer::always(events(stream)))
    }

    /// A server that always fails in the same way.
    pub(super) fn failing(status: &str, headers: &str, body: &str) -> Server {
        Server(HttpServer::always(reply(status, headers, body)))
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.0.url(path)
    }

    /// Returns the requests received.
    pub(super) fn requests(&self) -> Vec<String> {
        self.0.requests().iter().map(HttpRequest::text).collect()
    }

    /// Returns the number of connections that were opened.
    pub(super) fn connections(&self) -> usize {
        self.0.connections()
    }

    /// Returns the body of the only request.
    pub(super) fn body(&self) -> Value {
        let requests = self.requests();
        assert_eq!(requests.len(), 1);
        body(&requests[0])
    }

    pub(super) fn endpoint(&self, path: &str) -> Endpoint {
        Endpoint::new("mock", &self.url(path), Some(Secret::new(KEY))).unwrap()
    }

    pub(super) fn openai(&self) -> OpenAi {
        OpenAi::compatible(self.endpoint("/v1"))
    }

    pub(super) fn anthropic(&self) -> Anthropic {
        Anthropic::new(self.endpoint(""))
    }

    pub(super) fn responses(&self) -> Responses {
        Responses::compatible(self.endpoint("/v1"))
    }

    pub(super) fn gemini(&self) -> Gemini {
        Gemini::new(self.endpoint("/v1beta"))
    }
}

/// Parses the JSON body of a request.
pub(super) fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A complete HTTP response, after which the connection is closed.
pub(crate) fn reply(status: &str, headers: &str, body: impl AsRef<[u8]>) -> HttpResponse {
    let headers = format!("{headers}Connection: close\r\n");
    HttpResponse::with_headers(status, &headers, body).then(AfterResponse::Close)
}

/// A complete event stream as an HTTP response.
pub(super) fn events(stream: &str) -> HttpResponse {
    reply("200 OK", "Content-Type: text/event-stream\r\n", stream)
}

/// A model of this server with these limits.
pub(super) fn limited_openai(server: &HttpServer, rate_limits: RateLimits, timeouts: Timeouts) -> OpenAi {
    let key = Some(Secret::new(KEY));
    let endpoint = Endpoint::with_limits("mock", &server.url("/v1"), key, rate_limits, timeouts);
    OpenAi::compatible(endpoint.unwrap())
}

/// A request that uses every feature.
pub(super) fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        schema: json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
        category: Category::Read,
    };
    Request {
        session: SessionId::root(7),
        agent: "lead".to_owned(),
        role: None,
        turn: 1,
        attempt: 1,
        purpose: Purpose::Turn,
        model: "small".to_owned(),
        system: "You help.".into(),
        tools: [tool("read"), tool("write")].into(),
        messages,
        max_tokens: 321,
        temperature: Some(0.5),
        remote_context: None,
    }
}

pub(super) fn question() -> Request {
    request(vec![Message::User("What is in it?".into())])
}

/// Sends a request and assembles the reply as the driver does.
pub(super) async fn ask(model: &impl Model, request: Request) -> Result<(Reply, Usage), ModelError> {
    let mut stream = model.stream(request);
    let mut ingest = Ingest::default();
    let whole = async {
        while let Some(chunk) = stream.next().await {
            ingest.take(chunk?)?;
        }
        ingest.finish()
    };
    tokio::time::timeout(TEST_TIMEOUT, whole).await.expect("the stream hangs")
}

/// Sends a request to a server that answers with this stream.
pub(super) async fn reply_from(stream: &str) -> Result<(Reply, Usage), ModelError> {
    ask(&Server::streaming(stream).openai(), question()).await
}

/// Returns the calls of a reply: name, arguments and id.
pub(super) fn calls(reply: &Reply) -> Vec<(&str, &str, Option<&str>)> {
    let calls = reply.calls.iter();
    calls.map(|call| (call.name.as_str(), call.arguments.as_str(), call.provider_id.as_deref())).collect()
}
