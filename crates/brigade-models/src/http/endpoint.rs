//! Address and key of a provider.

use std::sync::Arc;
use std::time::Duration;

use brigade_base::Secret;
use brigade_http_client::{Proxies, is_local};
use http_body_util::Full;
use hyper::Method;
use hyper::Uri;
use hyper::header::{self, HeaderMap, HeaderValue, IntoHeaderName};
use hyper::http::uri::InvalidUri;
use url::{Position, Url};

use super::super::rate_limit::{RateLimiter, RateLimits};
use super::super::{Auth, ModelError, ModelInfo, PriceList};
use super::failure::root_cause;
use super::pool::{ConnectionPool, HttpRequest};
use super::timeouts::{ResolvedTimeouts, Timeouts};

/// Maximum number of tokens that a provider adds to a request. None is known to add more.
const FRAMING_TOKENS: u64 = 512;
const USER_AGENT: &str = concat!("brigade/", env!("CARGO_PKG_VERSION"));
/// Shorter keys are placeholders for local servers that accept any key. Redacting such a word would garble
/// messages.
const MIN_REDACTED_KEY_BYTES: usize = 6;
/// Minimum length for redaction in replies. The key must also contain letters and digits. A shorter one may
/// be an ordinary word.
const MIN_REDACTED_KEY_BYTES_IN_REPLY: usize = 16;

/// A provider's address, key, connections and rate limits. Clones share the connection pool and the rate
/// limiter. Redirects are not followed, so that the key is sent only to the configured address. A proxy is
/// used only if [`Endpoint::with_proxies`] names one. It learns only the host name of an encrypted request.
#[derive(Debug, Clone)]
pub struct Endpoint(Arc<Shared>);

#[derive(Debug, Clone)]
struct Shared {
    name: String,
    base: Url,
    /// The `Host` header of every request.
    host: HeaderValue,
    key: Option<Secret>,
    timeouts: ResolvedTimeouts,
    rate_limiter: Arc<RateLimiter>,
    prices: PriceList,
    pool: Arc<ConnectionPool>,
}

/// Reasons why a provider cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The base URL is invalid.
    #[error("invalid `base_url` for the provider '{name}': {cause}. Use a URL such as https://host/v1.")]
    Address {
        /// The provider.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The key cannot be sent in a header.
    #[error("the API key of the provider '{0}' is empty or contains invalid characters. Copy it again.")]
    Key(String),
    /// The HTTP client cannot be created.
    #[error("cannot create an HTTP client for the provider '{name}': {cause}")]
    Client {
        /// The provider.
        name: String,
        /// The cause.
        cause: String,
    },
    /// The proxy cannot be used.
    #[error(
        "cannot reach the provider '{name}' through a proxy: {cause}. Change HTTPS_PROXY, or add the provider's host to NO_PROXY."
    )]
    Proxy {
        /// The provider.
        name: String,
        /// The cause.
        cause: String,
    },
}

/// Whether an address refers to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// This machine.
    Local,
    /// Another machine.
    Remote,
}

impl Locality {
    /// Returns the locality of a provider's base URL, without network access.
    pub fn of(name: &str, base_url: &str) -> Result<Locality, EndpointError> {
        let cannot = |cause| EndpointError::Address { name: name.to_owned(), cause };
        parse_base_url(base_url).map(|base| locality(&base)).map_err(cannot)
    }
}

impl Endpoint {
    /// Creates the provider with this name at this address. This loads the system's certificates, so create
    /// it once and keep it.
    pub fn new(
        name: impl Into<String>,
        base_url: &str,
        key: Option<Secret>,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::with_limits(name, base_url, key, RateLimits::default(), Timeouts::default())
    }

    /// Creates a provider with its own timeouts and rate limits.
    pub fn with_limits(
        name: impl Into<String>,
        base_url: &str,
        key: Option<Secret>,
        rate_limits: RateLimits,
        timeouts: Timeouts,
    ) -> Result<Endpoint, EndpointError> {
        let name = name.into();
        let cannot = |cause| EndpointError::Address { name: name.clone(), cause };
        let base = parse_base_url(base_url).map_err(cannot)?;
        let host = HeaderValue::from_str(&base[Position::BeforeHost..Position::AfterPort])
            .map_err(|error| cannot(error.to_string()))?;
        if key.as_ref().is_some_and(|key| key.expose().is_empty() || sensitive_header("", key).is_none()) {
            return Err(EndpointError::Key(name));
        }
        let timeouts = timeouts.resolve();
        let rate_limiter = RateLimiter::new(&name, rate_limits, timeouts.longest_wait, timeouts.first_byte);
        let pool = ConnectionPool::new(&base, None, timeouts.connect, rate_limiter.concurrency())
            .map_err(|error| EndpointError::Client { name: name.clone(), cause: root_cause(&error) })?;
        let prices = PriceList::built_in();
        Ok(Endpoint(Arc::new(Shared { name, base, host, key, timeouts, rate_limiter, prices, pool })))
    }

    /// Reaches the provider through the proxy that these settings name for it, if any.
    pub fn with_proxies(mut self, proxies: &Proxies) -> Result<Endpoint, EndpointError> {
        let name = || self.0.name.clone();
        let proxy = proxies.for_address(&self.0.base);
        let proxy = proxy.map_err(|cause| EndpointError::Proxy { name: name(), cause: cause.to_owned() })?;
        if let Some(proxy) = proxy {
            let Shared { base, timeouts, rate_limiter, .. } = &*self.0;
            let pool = ConnectionPool::new(base, Some(proxy), timeouts.connect, rate_limiter.concurrency())
                .map_err(|error| EndpointError::Client { name: name(), cause: root_cause(&error) })?;
            Arc::make_mut(&mut self.0).pool = pool;
        }
        Ok(self)
    }

    /// Sets the timeout for a whole reply.
    pub fn with_total_timeout(mut self, total: Duration) -> Endpoint {
        Arc::make_mut(&mut self.0).timeouts.total = total;
        self
    }

    /// Sets the price list. The default is the built-in one, which applies only at the addresses it was made
    /// for.
    pub fn with_prices(mut self, prices: PriceList) -> Endpoint {
        Arc::make_mut(&mut self.0).prices = prices;
        self
    }

    /// Returns the provider's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn timeouts(&self) -> &ResolvedTimeouts {
        &self.0.timeouts
    }

    pub(super) fn rate_limiter(&self) -> &Arc<RateLimiter> {
        &self.0.rate_limiter
    }

    pub(super) fn pool(&self) -> &Arc<ConnectionPool> {
        &self.0.pool
    }

    /// Returns the locality of the address.
    pub(super) fn locality(&self) -> Locality {
        locality(&self.0.base)
    }

    /// Returns the price and limits of a model.
    pub(in super::super) fn model_info(&self, model: &str) -> ModelInfo {
        let auth = if self.0.key.is_some() { Auth::Keyed } else { Auth::Keyless };
        ModelInfo {
            framing: FRAMING_TOKENS,
            ..self.0.prices.model_info_for(&self.0.base, self.name(), model, auth)
        }
    }

    /// Starts a GET request to a path below the base URL.
    pub(in super::super) fn get(&self, path: &str) -> RequestBuilder {
        let accept = HeaderValue::from_static("application/json");
        self.builder(Method::GET, path, Vec::new()).header(header::ACCEPT, accept)
    }

    /// Starts a POST request to a path below the base URL.
    pub(in super::super) fn post(&self, path: &str, body: Vec<u8>) -> RequestBuilder {
        self.builder(Method::POST, path, body)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::ACCEPT, HeaderValue::from_static("text/event-stream"))
    }

    fn builder(&self, method: Method, path: &str, body: Vec<u8>) -> RequestBuilder {
        let path = format!("{}{path}", self.0.base.path().trim_end_matches('/'));
        let builder = RequestBuilder { method, path, headers: HeaderMap::with_capacity(8), body };
        builder
            .header(header::HOST, self.0.host.clone())
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
    }

    /// Whether the path of the base URL ends with `part`.
    pub(in super::super) fn ends_with(&self, part: &str) -> bool {
        self.0.base.path().trim_end_matches('/').ends_with(part)
    }

    /// Whether a segment of the path is an API version such as `v1beta`.
    pub(in super::super) fn has_version(&self) -> bool {
        let is_version = |part: &str| {
            part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        };
        self.0.base.path().split('/').any(is_version)
    }

    /// Returns the key as a header value, if there is one.
    pub(in super::super) fn key_header(&self, prefix: &str) -> Option<HeaderValue> {
        sensitive_header(prefix, self.0.key.as_ref()?)
    }

    /// Redacts the key in the text of an error.
    pub(super) fn redact(&self, text: String) -> String {
        match &self.0.key {
            Some(key) if key.expose().len() >= MIN_REDACTED_KEY_BYTES => {
                replace_key(&text, key).unwrap_or(text)
            }
            Some(_) | None => text,
        }
    }

    /// Redacts the key in a part of a reply. Returns `None` if it does not occur, or could be an ordinary
    /// word.
    pub(super) fn redact_reply(&self, text: &str) -> Option<String> {
        let key = self.0.key.as_ref().filter(|key| is_random_looking(key.expose()))?;
        replace_key(text, key)
    }

    pub(super) fn redact_error(&self, error: ModelError) -> ModelError {
        match error {
            ModelError::Transient(text) => ModelError::Transient(self.redact(text)),
            ModelError::Fatal(text) => ModelError::Fatal(self.redact(text)),
            ModelError::Overflow(text) => ModelError::Overflow(self.redact(text)),
        }
    }
}

/// A request under construction.
pub(in super::super) struct RequestBuilder {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RequestBuilder {
    /// Adds a header, if it has a value.
    pub(in super::super) fn header(
        mut self,
        name: impl IntoHeaderName,
        value: impl Into<Option<HeaderValue>>,
    ) -> RequestBuilder {
        if let Some(value) = value.into() {
            self.headers.insert(name, value);
        }
        self
    }

    /// Builds the request.
    pub(super) fn build(self) -> Result<HttpRequest, InvalidUri> {
        let RequestBuilder { method, path, headers, body } = self;
        let mut request = HttpRequest::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(path)?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Replaces the key in a text. Returns `None` if it does not occur.
fn replace_key(text: &str, key: &Secret) -> Option<String> {
    text.contains(key.expose()).then(|| text.replace(key.expose(), "(key)"))
}

fn is_random_looking(key: &str) -> bool {
    let has = |kind: fn(&char) -> bool| key.chars().any(|letter| kind(&letter));
    key.len() >= MIN_REDACTED_KEY_BYTES_IN_REPLY
        && has(char::is_ascii_alphabetic)
        && has(char::is_ascii_digit)
}

fn sensitive_header(prefix: &str, key: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub(in super::super) fn locality(base: &Url) -> Locality {
    if is_local(base) { Locality::Local } else { Locality::Remote }
}

fn parse_base_url(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err("it does not start with http:// or https://".to_owned());
    }
    let url = Url::parse(text.trim()).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("it is not an http or https URL".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it contains a query or a fragment".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_scheme_is_refused_in_plain_words() {
        for text in ["127.0.0.1:8000/v1", "localhost:8000/v1", "host/v1", ""] {
            let error = Endpoint::new("mock", text, None).unwrap_err().to_string();
            assert!(
                error.contains("it does not start with http:// or https://. Use a URL such as"),
                "{error}"
            );
        }
    }

    #[test]
    fn request_has_host_header_and_path_below_base_url() {
        for (base, host, path) in [
            ("https://api.example.com/v1/", "api.example.com", "/v1/models?limit=1"),
            ("https://api.example.com:443", "api.example.com", "/models?limit=1"),
            ("http://[::1]:8080/a%20b", "[::1]:8080", "/a%20b/models?limit=1"),
        ] {
            let endpoint = Endpoint::new("mock", base, None).unwrap();
            let request = endpoint.get("/models?limit=1").build().unwrap();
            assert_eq!(request.headers().get(header::HOST).unwrap(), host);
            assert_eq!(request.uri(), path);
        }
    }
}
