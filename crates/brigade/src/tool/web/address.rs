//! Addresses that may be asked for, as far as their text tells.

use serde::Deserialize;
use url::Url;

use super::error::{Cause, WebError, plain};

/// The longest address that is sent.
const MAX_ADDRESS: usize = 4096;

/// An http or https address with a host and without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Address(Url);

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, WebError> {
        let shown = || {
            let name = plain(text.split(['?', '#']).next().unwrap_or_default());
            // What stands before an `@` may be a password.
            format!("`{}`", name.rsplit('@').next().unwrap_or_default())
        };
        if text.len() > MAX_ADDRESS {
            return Err(WebError::new("The address", Cause::TooLong(MAX_ADDRESS)));
        }
        let url = Url::parse(text.trim())
            .map_err(|cause| WebError::new(shown(), Cause::NoAddress(cause.to_string())))?;
        Address::of(url).map_err(|cause| WebError::new(shown(), cause))
    }

    /// The address that a redirect at this one leads to.
    pub(super) fn redirect(&self, location: &str) -> Result<Address, Cause> {
        if location.len() > MAX_ADDRESS {
            return Err(Cause::TooLong(MAX_ADDRESS));
        }
        let url = self.0.join(location.trim()).map_err(|cause| Cause::Nowhere(cause.to_string()))?;
        let target = plain(url.host_str().unwrap_or(location));
        if self.0.scheme() == "https" && url.scheme() == "http" {
            return Err(Cause::Downgrade(target));
        }
        Address::of(url).map_err(|cause| Cause::Target { target, cause: Box::new(cause) })
    }

    fn of(mut url: Url) -> Result<Address, Cause> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Cause::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Cause::Credentials);
        }
        // Such addresses always have a host; without one they cannot be read.
        if url.host_str().is_none_or(str::is_empty) {
            return Err(Cause::NoAddress("there is no host".to_owned()));
        }
        url.set_fragment(None);
        Ok(Address(url))
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// The host as it stands in the address: an IPv6 address has its brackets.
    pub(super) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(0)
    }
}

impl TryFrom<String> for Address {
    type Error = WebError;

    fn try_from(text: String) -> Result<Address, WebError> {
        Address::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        let host = |text| Address::parse(text).map(|address| address.host().to_owned());
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
            ("https://", "no address"),
            ("http://exa mple.com", "no address"),
            ("", "no address"),
        ] {
            let error = host(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{text}: {error}");
        }
        assert!(host(&format!("https://example.com/{}", "a".repeat(5000))).is_err());
    }

    #[test]
    fn redirects_do_not_lose_their_encryption() {
        let address = Address::parse("https://example.com/a/b").unwrap();
        assert_eq!(address.redirect("../c").unwrap().url().as_str(), "https://example.com/c");
        assert_eq!(address.redirect("//other.example/").unwrap().host(), "other.example");
        for (location, says) in [
            ("http://example.com/a/b", "from https to http"),
            ("file:///etc/passwd", "only http and https"),
            ("https://a:b@example.com", "user name or password"),
            ("https://[", "nowhere"),
        ] {
            let error = address.redirect(location).unwrap_err().to_string();
            assert!(error.contains(says), "{location}: {error}");
        }
    }
}
