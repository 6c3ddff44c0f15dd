//! Local HTTP listener for the OAuth redirect.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::LoginError;

/// Path of the redirect URL.
pub(super) const PATH: &str = "/callback";
/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 32;
/// Maximum size of a browser's request.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Timeout for reading a request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Parameters of the redirect.
pub(super) struct AuthResponse {
    /// The authorization code, or the error.
    pub(super) code: Result<String, LoginError>,
    /// The issuer, if given.
    pub(super) issuer: Option<String>,
}

/// Waits for the redirect with our state, and shows its outcome to the user. Other requests are rejected.
pub(super) async fn wait_for_redirect(
    listener: &TcpListener,
    state: &str,
    done: impl AsyncFn(AuthResponse) -> Result<(), LoginError>,
) -> Result<(), LoginError> {
    // Browsers open connections that they may use later. They must not block the redirect.
    let mut pending = FuturesUnordered::new();
    loop {
        let (mut stream, target) = tokio::select! {
            accepted = listener.accept(), if pending.len() < MAX_CONNECTIONS => {
                let (stream, _) = accepted.map_err(|error| format!("cannot accept a connection from the browser: {error}"))?;
                pending.push(read_request(stream));
                continue;
            }
            Some(request) = pending.next() => match request {
                (stream, Some(target)) => (stream, target),
                (_, None) => continue,
            },
        };
        let Some(answer) = parse_response(&target, state) else {
            respond(&mut stream, "404 Not Found", "This request does not match the login in progress.").await;
            continue;
        };
        let outcome = done(answer).await;
        let message = match &outcome {
            Ok(()) => "You are logged in. You can close this page.",
            Err(_) => "The login failed. See the terminal for the cause.",
        };
        respond(&mut stream, "200 OK", message).await;
        return outcome;
    }
}

/// Reads the target of a request, within a timeout.
async fn read_request(mut stream: TcpStream) -> (TcpStream, Option<String>) {
    let target = tokio::time::timeout(READ_TIMEOUT, request_target(&mut stream)).await;
    (stream, target.ok().flatten())
}

/// Reads the target of a browser's request.
async fn request_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(chunk.get(..count)?);
        if head.len() > MAX_REQUEST_BYTES {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut parts = head.lines().next()?.split(' ');
    (parts.next()? == "GET").then_some(())?;
    parts.next().map(str::to_owned)
}

/// Parses the redirect with this state.
fn parse_response(target: &str, state: &str) -> Option<AuthResponse> {
    let url = format!("http://127.0.0.1{target}");
    let is_ours = Url::parse(&url).ok()?.path() == PATH && !state.is_empty();
    (is_ours && parameter(&url, "state").as_deref() == Some(state)).then_some(())?;
    let code = match (parameter(&url, "error"), parameter(&url, "code")) {
        (Some(error), _) => Err(LoginError(parameter(&url, "error_description").unwrap_or(error))),
        (None, Some(code)) => Ok(code),
        (None, None) => Err(LoginError("the redirect has no authorization code".to_owned())),
    };
    Some(AuthResponse { code, issuer: parameter(&url, "iss") })
}

/// Returns a query parameter of a URL.
pub(super) fn parameter(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

async fn respond(stream: &mut TcpStream, status: &str, message: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Brigade</title><p>{message}</p>\n");
    let length = page.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{page}"
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_with_another_state_is_ignored() {
        let found = |target: &str| parse_response(target, "s1").map(|answer| answer.code);
        assert_eq!(found("/callback?code=c&state=s1"), Some(Ok("c".to_owned())));
        assert_eq!(
            found("/callback?error=no&error_description=not%20you&state=s1"),
            Some(Err(LoginError("not you".to_owned())))
        );
        for stranger in ["/callback?code=c&state=s2", "/callback?code=c", "/favicon.ico?state=s1", "x", ""] {
            assert_eq!(found(stranger), None, "{stranger}");
        }
        assert!(parse_response("/callback?code=c&state=", "").is_none());
    }
}
