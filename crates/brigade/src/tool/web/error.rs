//! Errors of the web tools.

use std::net::IpAddr;
use std::time::Duration;

use brigade_core::ToolOutput;

/// Failed request of a web tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host} was not fetched: {cause}")]
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
    #[error("this is no address ({0}); write one such as https://example.com/page")]
    InvalidUrl(String),
    #[error("only http and https can be fetched; use an address that starts with https://")]
    UnsupportedScheme,
    #[error("an address with a user name or password is not sent; leave them out")]
    Credentials,
    #[error("an address may have {0} bytes at most; use a shorter one")]
    UrlTooLong(usize),
    #[error("port {0} is closed to this tool; use an address without a port, which means 80 or 443")]
    BlockedPort(u16),
    #[error("the name is not known ({0}); check its spelling, or search for the page")]
    UnknownHost(String),
    #[error("{address} is {place}, which this tool never reaches; use a public address")]
    BlockedAddress {
        /// Address that the name resolves to.
        address: IpAddr,
        /// Description of its network.
        place: &'static str,
    },
    #[error(
        "{0} is this machine, which this tool does not reach; use a public address, or ask the person to set \
         web.allow_loopback = true"
    )]
    Loopback(IpAddr),
    #[error("it redirects more than {0} times; use the address that you want to reach in the end")]
    TooManyRedirects(usize),
    #[error("it redirects to nowhere ({0}); try another address of the same site")]
    InvalidRedirect(String),
    #[error(
        "it redirects from https to http at {0}, which is not followed; fetch that address if you accept it"
    )]
    InsecureRedirect(String),
    #[error("it redirects to {target}, and there: {cause}")]
    RedirectTarget {
        /// Host of the redirect target.
        target: String,
        /// Reason why the target is refused.
        cause: Box<FetchFailure>,
    },
    #[error("{0}; use a source on another host")]
    ForbiddenByRule(String),
    #[error("it did not answer in full within {}; try again later, or use another source", seconds(*.0))]
    Timeout(Duration),
    #[error("the connection failed ({0}); check the address, or try again later")]
    Connection(String),
    #[error("the answer broke off or made no sense ({0}); try again, or use another source")]
    BrokenResponse(String),
    #[error("the server answered {code}{reason}; {}", status_advice(*.code))]
    Status {
        /// Status code.
        code: u16,
        /// Reason phrase with a leading space; may be empty.
        reason: String,
    },
    #[error("it is {0}, and only HTML and text can be read; look for the same content as a page")]
    UnsupportedType(String),
    #[error("it came compressed as {0}, which was not asked for and cannot be read; use another source")]
    UnsupportedEncoding(String),
    #[error("there is no way to connect ({0}); tell the person")]
    ClientSetup(String),
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
        401 | 403 | 407 | 451 => "the page is not open to everybody, so use another source",
        404 | 410 => "there is no such page, so check the address or search for it",
        429 => "too many requests were made, so wait before you try it again",
        500.. => "the server has a problem, so try again later or use another source",
        _ => "check the address or use another source",
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
