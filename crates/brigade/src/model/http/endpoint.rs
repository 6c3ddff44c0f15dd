//! Where a provider is, and the key to it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Uri;
use reqwest::Method;
use reqwest::header::{self, HeaderMap, HeaderValue, IntoHeaderName};
use url::{Host, Position, Url};

use super::super::rate_limit::{RateLimiter, RateLimits};
use super::super::{Auth, ModelError, ModelInfo, PriceList};
use super::pool::{ConnectionPool, HttpRequest};
use super::proxy::Proxies;
use super::timeouts::{ResolvedTimeouts, Timeouts};
use crate::secret::Secret;

/// What providers put around a request themselves, in tokens: none is known to add more.
const FRAMING_TOKENS: u64 = 512;
const USER_AGENT: &str = concat!("brigade/", env!("CARGO_PKG_VERSION"));
/// Shorter keys are those of local servers that take any word; to hide such a word would spoil messages.
const MIN_REDACTED_KEY_BYTES: usize = 6;
/// In replies a key is hidden from this length on, and only with letters and digits: a shorter one may be a word that is meant.
const MIN_REDACTED_KEY_BYTES_IN_REPLY: usize = 16;

/// Where a provider is. All clones share one gate and one pool of connections. Redirects are not followed, so that a key
/// goes to the address that the user wrote and to no other. A proxy is used only if [`Endpoint::with_proxies`] names
/// one, and sees nothing of an encrypted request but the name of its host.
#[derive(Debug, Clone)]
pub struct Endpoint(Arc<Shared>);

#[derive(Debug, Clone)]
struct Shared {
    name: String,
    base: Url,
    /// What every request says about where it goes.
    host: HeaderValue,
    key: Option<Secret>,
    timeouts: ResolvedTimeouts,
    rate_limiter: Arc<RateLimiter>,
    prices: PriceList,
    pool: Arc<ConnectionPool>,
}

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// To this machine.
    Local,
    /// To another one.
    Remote,
}

/// Why a provider cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The address is none.
    #[error(
        "the base_url of the provider '{name}' cannot be used: {cause}; write one such as https://host/v1"
    )]
    Address {
        /// The provider.
        name: String,
        /// Why.
        cause: String,
    },
    /// The key cannot be sent.
    #[error("the key of the provider '{0}' is empty or has characters that no key has; copy it again")]
    Key(String),
    /// There is no client.
    #[error("no connection to the provider '{name}' can be prepared: {cause}")]
    Client {
        /// The provider.
        name: String,
        /// Why.
        cause: String,
    },
    /// The proxy cannot be used.
    #[error(
        "cannot reach the provider '{name}' through a proxy: {cause}. Change HTTPS_PROXY, or list the host of the provider in NO_PROXY"
    )]
    Proxy {
        /// The provider.
        name: String,
        /// Why.
        cause: String,
    },
}

impl Locality {
    /// Where the address of a provider leads. Nothing is asked for that.
    pub fn of(name: &str, base_url: &str) -> Result<Locality, EndpointError> {
        let cannot = |cause| EndpointError::Address { name: name.to_owned(), cause };
        parse_base_url(base_url).map(|base| locality(&base)).map_err(cannot)
    }
}

impl Endpoint {
    /// The provider of this name at this address. Certificates of the system are read here, so make one and keep it.
    pub fn new(
        name: impl Into<String>,
        base_url: &str,
        key: Option<Secret>,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::with_limits(name, base_url, key, RateLimits::default(), Timeouts::default())
    }

    /// The same, with limits of its own.
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
        let rate_limiter = RateLimiter::new(rate_limits, timeouts.longest_wait, timeouts.first_byte);
        let pool = ConnectionPool::new(&base, None, timeouts.connect, rate_limiter.concurrency())
            .map_err(|cause| EndpointError::Client { name: name.clone(), cause })?;
        let prices = PriceList::built_in();
        Ok(Endpoint(Arc::new(Shared { name, base, host, key, timeouts, rate_limiter, prices, pool })))
    }

    /// The same provider, reached through the proxy that these settings name for it, if they name one.
    pub fn with_proxies(mut self, proxies: &Proxies) -> Result<Endpoint, EndpointError> {
        let name = || self.0.name.clone();
        let proxy = proxies.for_address(&self.0.base);
        let proxy = proxy.map_err(|cause| EndpointError::Proxy { name: name(), cause: cause.to_owned() })?;
        if let Some(proxy) = proxy {
            let Shared { base, timeouts, rate_limiter, .. } = &*self.0;
            let pool = ConnectionPool::new(base, Some(proxy), timeouts.connect, rate_limiter.concurrency())
                .map_err(|cause| EndpointError::Client { name: name(), cause })?;
            Arc::make_mut(&mut self.0).pool = pool;
        }
        Ok(self)
    }

    /// The same provider, with another limit for one whole reply.
    pub fn with_total_timeout(mut self, total: Duration) -> Endpoint {
        Arc::make_mut(&mut self.0).timeouts.total = total;
        self
    }

    /// The same provider, with another list of what models cost. At first it is the built-in one, which holds at the
    /// addresses that it was made for.
    pub fn with_prices(mut self, prices: PriceList) -> Endpoint {
        Arc::make_mut(&mut self.0).prices = prices;
        self
    }

    /// What the provider is called.
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

    /// Where its address leads.
    pub(super) fn locality(&self) -> Locality {
        locality(&self.0.base)
    }

    /// What is known of a model here.
    pub(in super::super) fn model_info(&self, model: &str) -> ModelInfo {
        let auth = if self.0.key.is_some() { Auth::Keyed } else { Auth::Keyless };
        ModelInfo {
            framing: FRAMING_TOKENS,
            ..self.0.prices.model_info_for(&self.0.base, self.name(), model, auth)
        }
    }

    /// A request for what is at a path below the address.
    pub(in super::super) fn get(&self, path: &str) -> RequestBuilder {
        let accept = HeaderValue::from_static("application/json");
        self.builder(Method::GET, path, Vec::new()).header(header::ACCEPT, accept)
    }

    /// A request to a path below the address, with this body.
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

    /// Whether the path of the address ends like this.
    pub(in super::super) fn ends_with(&self, part: &str) -> bool {
        self.0.base.path().trim_end_matches('/').ends_with(part)
    }

    /// Whether a part of the path names the version of an API, such as `v1beta`.
    pub(in super::super) fn has_version(&self) -> bool {
        let is_version = |part: &str| {
            part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        };
        self.0.base.path().split('/').any(is_version)
    }

    /// The key as the value of a header, where there is one.
    pub(in super::super) fn key_header(&self, prefix: &str) -> Option<HeaderValue> {
        sensitive_header(prefix, self.0.key.as_ref()?)
    }

    /// The text of an error without the key.
    pub(super) fn redact(&self, text: String) -> String {
        match &self.0.key {
            Some(key) if key.expose().len() >= MIN_REDACTED_KEY_BYTES => {
                replace_key(&text, key).unwrap_or(text)
            }
            Some(_) | None => text,
        }
    }

    /// A part of a reply without the key, where it is in there and nobody can have meant anything else by it.
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

/// A request that is being written.
pub(in super::super) struct RequestBuilder {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RequestBuilder {
    /// The same with one more header.
    pub(in super::super) fn header(
        mut self,
        name: impl IntoHeaderName,
        value: HeaderValue,
    ) -> RequestBuilder {
        self.headers.insert(name, value);
        self
    }

    /// The request as it is sent, or why it cannot be.
    pub(super) fn build(self) -> Result<HttpRequest, String> {
        let RequestBuilder { method, path, headers, body } = self;
        let mut request = HttpRequest::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(path).map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// A text without the key that is in it.
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
    let is_local = match base.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if is_local { Locality::Local } else { Locality::Remote }
}

fn parse_base_url(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err("it does not begin with http:// or https://".to_owned());
    }
    let url = Url::parse(text.trim()).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("it is not http or https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user name or password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a part after ? or #".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_refused_in_plain_words() {
        for text in ["127.0.0.1:8000/v1", "localhost:8000/v1", "host/v1", ""] {
            let error = Endpoint::new("mock", text, None).unwrap_err().to_string();
            assert!(
                error.contains("it does not begin with http:// or https://; write one such as"),
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
