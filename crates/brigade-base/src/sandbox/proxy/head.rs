//! Heads of the requests to the proxy. Parsing has no side effects.

use brigade_core::network::{HostError, Target};

/// Maximum size of a head.
pub(super) const MAX_HEAD_BYTES: usize = 32 << 10;
/// Maximum number of header fields.
const MAX_HEADERS: usize = 100;

/// End of a head.
const END: &[u8] = b"\r\n\r\n";

/// Request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// Connects to the target and transfers bytes both ways.
    Connect(Target),
    /// Sends one request to the target.
    Forward(ForwardRequest),
}

/// Plain HTTP request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForwardRequest {
    pub(super) target: Target,
    /// Head as it is sent to the target.
    pub(super) head: Vec<u8>,
    /// Length of the body that follows.
    pub(super) body_bytes: u64,
}

/// Reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadError {
    pub(super) status: u16,
    /// One or two sentences.
    pub(super) problem: &'static str,
}

const fn bad(problem: &'static str) -> HeadError {
    HeadError { status: 400, problem }
}

pub(super) const TOO_LARGE: HeadError = HeadError {
    status: 431,
    problem: "the request header is too large. Send fewer or shorter header fields.",
};
const MALFORMED: HeadError = bad("the request to the proxy is not valid HTTP/1.1. Use an HTTP client.");
const NOT_ABSOLUTE: HeadError =
    bad("the request to the proxy does not name a host. Send a URL with `http://`, or use CONNECT.");
const HOST_HEADER: HeadError =
    bad("the `Host` header is missing, repeated or not the host of the URL. Send one.");
const LENGTH: HeadError =
    bad("the length of the request body is ambiguous. Send one `Content-Length` header with a number.");
const CHUNKED: HeadError = HeadError {
    status: 411,
    problem: "the request has no `Content-Length`. Send it instead of `Transfer-Encoding`.",
};

pub(super) const TRAILING: HeadError =
    bad("the client sent data after the request. Wait for the response before you send another request.");

impl From<HostError> for HeadError {
    fn from(error: HostError) -> HeadError {
        bad(match error {
            HostError::Address => {
                "the IP address has an unusual form. Write four decimal numbers, or IPv6 in brackets."
            }
            HostError::Port | HostError::MissingPort => "the port is missing or invalid. Use 1 to 65535.",
            HostError::Empty | HostError::TooLong | HostError::Character | HostError::Label => {
                "the host is not a valid name. Use letters, digits, `-` and `.` only."
            }
        })
    }
}

/// Length of the head at the start of these bytes, once it is complete.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, END).map(|at| at + END.len())
}

/// Parses a complete head.
pub(super) fn parse(head: &[u8]) -> Result<ProxyRequest, HeadError> {
    if !has_plain_lines(head) {
        return Err(MALFORMED);
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Ok(_) | Err(_) => return Err(MALFORMED),
    }
    let (Some(method), Some(uri), Some(version)) = (request.method, request.path, request.version) else {
        return Err(MALFORMED);
    };
    let fields = Fields(request.headers);
    if method.eq_ignore_ascii_case("CONNECT") {
        if method != "CONNECT" || fields.has("content-length") || fields.has("transfer-encoding") {
            return Err(MALFORMED);
        }
        return Ok(ProxyRequest::Connect(Target::parse(uri, None)?));
    }
    let (target, path) = split_uri(uri)?;
    check_host_header(&fields, &target, version)?;
    let length = fields.body_length()?;
    let head = forwarded_head(method, path, &target, length, &fields)?;
    Ok(ProxyRequest::Forward(ForwardRequest { target, head, body_bytes: length.unwrap_or(0) }))
}

/// Whether all lines end in CR LF and nothing else is a control character. Servers disagree about the others.
fn has_plain_lines(head: &[u8]) -> bool {
    let Some(lines) = head.strip_suffix(END) else { return false };
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    let mut rest = lines;
    while let Some(at) = rest.iter().position(|byte| !is_plain(byte)) {
        match rest.get(at..).and_then(|end| end.strip_prefix(b"\r\n")) {
            Some(next) if at > 0 => rest = next,
            _ => return false,
        }
    }
    !rest.is_empty()
}

/// Splits an absolute `http` URL into its target and the rest.
fn split_uri(uri: &str) -> Result<(Target, &str), HeadError> {
    let is_plain = uri.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b'#');
    let (scheme, rest) = uri.split_once("://").ok_or(NOT_ABSOLUTE)?;
    if !is_plain {
        return Err(MALFORMED);
    }
    if scheme.eq_ignore_ascii_case("https") {
        return Err(bad("an `https://` URL requires a tunnel. Send a CONNECT request to the proxy."));
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(NOT_ABSOLUTE);
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Ok((Target::parse(authority, Some(80))?, path))
}

fn check_host_header(fields: &Fields<'_>, target: &Target, version: u8) -> Result<(), HeadError> {
    let mut values = fields.values("host");
    match (values.next(), values.next()) {
        (None, _) if version == 0 => Ok(()),
        (Some(value), None) => {
            let value = std::str::from_utf8(value).map_err(|_| HOST_HEADER)?;
            let host = Target::parse(value.trim_matches([' ', '\t']), Some(80)).map_err(|_| HOST_HEADER)?;
            if host == *target { Ok(()) } else { Err(HOST_HEADER) }
        }
        _ => Err(HOST_HEADER),
    }
}

/// Fields that are about the connection to the proxy, and those that are written anew.
const DROPPED: [&str; 13] = [
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Writes the head of a request that closes its connection, so that nothing can follow it.
fn forwarded_head(
    method: &str,
    path: &str,
    target: &Target,
    length: Option<u64>,
    fields: &Fields<'_>,
) -> Result<Vec<u8>, HeadError> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let host = match target {
        Target { host, port: 80 } => host.to_string(),
        target => target.to_string(),
    };
    let mut head =
        format!("{method} {slash}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    if let Some(length) = length {
        head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
    }
    let named = fields.connection_options()?;
    for field in fields.0 {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if DROPPED.iter().any(|name| is(name)) || named.iter().any(|name| is(name)) {
            continue;
        }
        for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Header fields of a request.
struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    fn values(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    fn has(&self, name: &'static str) -> bool {
        self.values(name).next().is_some()
    }

    /// Length of the body, if it has one.
    fn body_length(&self) -> Result<Option<u64>, HeadError> {
        let mut lengths = self.values("content-length");
        match (lengths.next(), lengths.next(), self.has("transfer-encoding")) {
            (None, None, false) => Ok(None),
            (None, None, true) => Err(CHUNKED),
            (Some(length), None, false) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(length)
                    .ok()
                    .and_then(|digits| digits.parse().ok())
                    .map(Some)
                    .ok_or(LENGTH)
            }
            _ => Err(LENGTH),
        }
    }

    /// Names of the fields that `Connection` declares to be about this connection only.
    fn connection_options(&self) -> Result<Vec<&'a str>, HeadError> {
        let mut names = Vec::new();
        for value in self.values("connection") {
            let value = std::str::from_utf8(value).map_err(|_| MALFORMED)?;
            names.extend(value.split(',').map(|name| name.trim_matches([' ', '\t'])));
        }
        Ok(names)
    }
}
