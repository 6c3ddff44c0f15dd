//! Errors of the web tools.

use std::net::IpAddr;
use std::time::Duration;

use brigade_core::ToolOutput;

/// Failed request of a web tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch {host}: {cause}")]
pub(super) struct WebError {
    /// Host, or the text in its place.
    pub(super) host: String,
    /// Cause, with a hint.
    pub(super) cause: FetchFailure,
}

impl WebError {
    pub(super) fn new(host: impl Into<String>, cause: FetchFailure) -> WebError {
        WebError { host: host.into(), cause }
    }
}

impl From<WebError> for ToolOutput {
    fn from(error: WebError) -> ToolOutput {
        ToolOutput::error(error.to_string())
    }
}

/// Cause of a failed request, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchFailure {
    #[error("invalid URL ({0}). Use a URL such as https://example.com/page.")]
    InvalidUrl(String),
    #[error("only http and https are supported. Use a URL that starts with https://.")]
    UnsupportedScheme,
    #[error("a user name or password in a URL is not allowed. Remove it.")]
    Credentials,
    #[error("the URL is longer than {0} bytes. Use a shorter one.")]
    UrlTooLong(usize),
    #[error("port {0} is not allowed. Use port 80 or 443.")]
    BlockedPort(u16),
    #[error("unknown host ({0}). Check the spelling, or search for the page.")]
    UnknownHost(String),
    #[error("{address} is {place}, which is not allowed. Use a public address.")]
    BlockedAddress {
        /// Address that the name resolves to.
        address: IpAddr,
        /// Description of its network.
        place: &'static str,
    },
    #[error(
        "{0} is this machine, which is not allowed. Use a public address, or ask the user to set \
         `web.allow_loopback = true`."
    )]
    Loopback(IpAddr),
    #[error("more than {0} redirects. Try another URL.")]
    TooManyRedirects(usize),
    #[error("invalid redirect ({0}). Try another URL on the same site.")]
    InvalidRedirect(String),
    #[error("it redirects from https to http, which is not followed. To accept this, fetch {0}.")]
    InsecureRedirect(String),
    #[error("it redirects to {target}: {cause}")]
    RedirectTarget {
        /// Host of the redirect target.
        target: String,
        /// Reason why the target is refused.
        cause: Box<FetchFailure>,
    },
    #[error("{0}. Use a source on another host.")]
    ForbiddenByRule(String),
    #[error("no complete response within {}. Try again later, or use another source.", seconds(*.0))]
    Timeout(Duration),
    #[error("the connection failed ({0}). Check the URL, or try again later.")]
    Connection(String),
    #[error("the response was incomplete or invalid ({0}). Try again, or use another source.")]
    BrokenResponse(String),
    #[error("the server returned {code}{reason}. {}", status_advice(*.code))]
    Status {
        /// Status code.
        code: u16,
        /// Reason phrase with a leading space; may be empty.
        reason: String,
    },
    #[error(
        "the content type is {0}, and only HTML and text are supported. Look for the same content as a web page."
    )]
    UnsupportedType(String),
    #[error("unsupported content encoding {0}. Use another source.")]
    UnsupportedEncoding(String),
    #[error("cannot set up the connection ({0}). Tell the user.")]
    ClientSetup(String),
}

impl FetchFailure {
    pub(super) fn status(status: reqwest::StatusCode) -> FetchFailure {
        let reason = status.canonical_reason().map(|reason| format!(" {reason}"));
        FetchFailure::Status { code: status.as_u16(), reason: reason.unwrap_or_default() }
    }
}

pub(super) fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

fn status_advice(code: u16) -> &'static str {
    match code {
        401 | 403 | 407 | 451 => "The page is not public. Use another source.",
        404 | 410 => "The page does not exist. Check the URL, or search for it.",
        429 => "There were too many requests. Wait before you try again.",
        500.. => "The server failed. Try again later, or use another source.",
        _ => "Check the URL, or use another source.",
    }
}

/// Returns the innermost cause of an error, which is the informative one.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    sanitize_line(&error.to_string())
}

/// Sanitizes a server's text for display in one line.
pub(super) fn sanitize_line(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(120).collect()
}
