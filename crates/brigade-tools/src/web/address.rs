//! Validation of URLs by their text.

use serde::Deserialize;
use url::Url;

use super::error::{FetchFailure, WebError, sanitize_line};

/// Maximum length of a URL.
const MAX_URL_BYTES: usize = 4096;

/// http or https URL with a host and without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WebUrl(Url);

impl WebUrl {
    pub(super) fn parse(text: &str) -> Result<WebUrl, WebError> {
        let shown = || {
            let name = sanitize_line(text.split(['?', '#']).next().unwrap_or_default());
            // The part before an `@` may contain a password.
            format!("`{}`", name.rsplit('@').next().unwrap_or_default())
        };
        if text.len() > MAX_URL_BYTES {
            return Err(WebError::new("The address", FetchFailure::UrlTooLong(MAX_URL_BYTES)));
        }
        let url = Url::parse(text.trim())
            .map_err(|cause| WebError::new(shown(), FetchFailure::InvalidUrl(cause.to_string())))?;
        WebUrl::from_url(url).map_err(|cause| WebError::new(shown(), cause))
    }

    /// Resolves the target of a redirect from this URL.
    pub(super) fn redirect(&self, location: &str) -> Result<WebUrl, FetchFailure> {
        if location.len() > MAX_URL_BYTES {
            return Err(FetchFailure::UrlTooLong(MAX_URL_BYTES));
        }
        let url =
            self.0.join(location.trim()).map_err(|cause| FetchFailure::InvalidRedirect(cause.to_string()))?;
        let target = sanitize_line(url.host_str().unwrap_or(location));
        if self.0.scheme() == "https" && url.scheme() == "http" {
            return Err(FetchFailure::InsecureRedirect(target));
        }
        WebUrl::from_url(url).map_err(|cause| FetchFailure::RedirectTarget { target, cause: Box::new(cause) })
    }

    fn from_url(mut url: Url) -> Result<WebUrl, FetchFailure> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchFailure::UnsupportedScheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchFailure::Credentials);
        }
        // Such URLs always have a host; without one they cannot be parsed.
        if url.host_str().is_none_or(str::is_empty) {
            return Err(FetchFailure::InvalidUrl("it has no host".to_owned()));
        }
        url.set_fragment(None);
        Ok(WebUrl(url))
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// Returns the host as written in the URL: an IPv6 address has its brackets.
    pub(super) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(0)
    }
}

impl TryFrom<String> for WebUrl {
    type Error = WebError;

    fn try_from(text: String) -> Result<WebUrl, WebError> {
        WebUrl::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_url_refuses_other_schemes_and_credentials() {
        let host = |text| WebUrl::parse(text).map(|address| address.host().to_owned());
        assert_eq!(host("https://Example.COM/a#b").unwrap(), "example.com");
        assert_eq!(host(" http://0x7f.1/ ").unwrap(), "127.0.0.1");
        assert_eq!(host("http://2130706433").unwrap(), "127.0.0.1");
        assert_eq!(host("http://[::FFFF:7f00:1]").unwrap(), "[::ffff:7f00:1]");
        for (text, says) in [
            ("example.com", "https://example.com/page"),
            ("file:///etc/passwd", "only http and https"),
            ("data:text/html,x", "only http and https"),
            ("ftp://example.com", "only http and https"),
            ("https://user@example.com", "user name or password"),
            ("https://:hunter2@example.com", "user name or password"),
            ("https://", "invalid URL"),
            ("http://exa mple.com", "invalid URL"),
            ("", "invalid URL"),
        ] {
            let error = host(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{text}: {error}");
        }
        assert!(host(&format!("https://example.com/{}", "a".repeat(5000))).is_err());
    }

    #[test]
    fn redirect_from_https_to_http_is_refused() {
        let address = WebUrl::parse("https://example.com/a/b").unwrap();
        assert_eq!(address.redirect("../c").unwrap().url().as_str(), "https://example.com/c");
        assert_eq!(address.redirect("//other.example/").unwrap().host(), "other.example");
        for (location, says) in [
            ("http://example.com/a/b", "from https to http"),
            ("file:///etc/passwd", "only http and https"),
            ("https://a:b@example.com", "user name or password"),
            ("https://[", "invalid redirect"),
        ] {
            let error = address.redirect(location).unwrap_err().to_string();
            assert!(error.contains(says), "{location}: {error}");
        }
    }
}
