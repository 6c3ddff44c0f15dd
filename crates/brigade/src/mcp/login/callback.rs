//! The browser comes back to this machine.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::LoginError;

/// Where it comes back to.
pub(super) const PATH: &str = "/callback";
/// The most connections at a time.
const MOST: usize = 32;
/// The longest request of a browser.
const LONGEST: usize = 16 << 10;
/// How long a browser may take to send it.
const READ_TIME: Duration = Duration::from_secs(10);

/// What the browser brings.
pub(super) struct Answer {
    /// A code, or why there is none.
    pub(super) code: Result<String, String>,
    /// Who says so, where they do.
    pub(super) issuer: Option<String>,
}

/// Waits for a browser that brings the answer to our question, and tells the person what came of it. Whoever else comes
/// is sent away.
pub(super) async fn take(
    listener: &TcpListener,
    state: &str,
    done: impl AsyncFn(Answer) -> Result<(), LoginError>,
) -> Result<(), LoginError> {
    // A browser opens connections that it may use later; nobody waits for those.
    let mut asking = FuturesUnordered::new();
    loop {
        let (mut stream, target) = tokio::select! {
            accepted = listener.accept(), if asking.len() < MOST => {
                let (stream, _) = accepted.map_err(|error| format!("nobody can be waited for: {error}"))?;
                asking.push(asked(stream));
                continue;
            }
            Some(asked) = asking.next() => match asked {
                (stream, Some(target)) => (stream, target),
                (_, None) => continue,
            },
        };
        let Some(answer) = answer(&target, state) else {
            say(&mut stream, "404 Not Found", "This is not the login that was begun.").await;
            continue;
        };
        let outcome = done(answer).await;
        let words = match &outcome {
            Ok(()) => "You are logged in. You can close this page.",
            Err(_) => "The login did not come about. The terminal says why.",
        };
        say(&mut stream, "200 OK", words).await;
        return outcome;
    }
}

/// What somebody asks for, if they do in time.
async fn asked(mut stream: TcpStream) -> (TcpStream, Option<String>) {
    let target = tokio::time::timeout(READ_TIME, target(&mut stream)).await;
    (stream, target.ok().flatten())
}

/// What a browser asks for.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(chunk.get(..count)?);
        if head.len() > LONGEST {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    (words.next()? == "GET").then_some(())?;
    words.next().map(str::to_owned)
}

/// The answer to the question with this state.
fn answer(target: &str, state: &str) -> Option<Answer> {
    let url = format!("http://127.0.0.1{target}");
    let is_ours = Url::parse(&url).ok()?.path() == PATH && !state.is_empty();
    (is_ours && parameter(&url, "state").as_deref() == Some(state)).then_some(())?;
    let code = match (parameter(&url, "error"), parameter(&url, "code")) {
        (Some(error), _) => Err(parameter(&url, "error_description").unwrap_or(error)),
        (None, Some(code)) => Ok(code),
        (None, None) => Err("it came without a code".to_owned()),
    };
    Some(Answer { code, issuer: parameter(&url, "iss") })
}

/// A parameter of an address.
pub(super) fn parameter(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

async fn say(stream: &mut TcpStream, status: &str, words: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Brigade</title><p>{words}</p>\n");
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
    fn only_the_answer_to_our_question_counts() {
        let found = |target: &str| answer(target, "s1").map(|answer| answer.code);
        assert_eq!(found("/callback?code=c&state=s1"), Some(Ok("c".to_owned())));
        assert_eq!(
            found("/callback?error=no&error_description=not%20you&state=s1"),
            Some(Err("not you".to_owned()))
        );
        for stranger in ["/callback?code=c&state=s2", "/callback?code=c", "/favicon.ico?state=s1", "x", ""] {
            assert_eq!(found(stranger), None, "{stranger}");
        }
        assert!(answer("/callback?code=c&state=", "").is_none());
    }
}
