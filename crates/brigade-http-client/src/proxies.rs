//! HTTP proxies for requests to providers, MCP servers and search engines.

use brigade_base::Secret;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use url::{Host, Url};

/// Proxy settings in the format of the variables `HTTPS_PROXY` and `NO_PROXY`. They apply to `https`
/// addresses. A server on this machine is always reached directly.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// Address of the proxy for `https`, such as `http://user:password@host:3128`. It may contain a password.
    pub https: Option<Secret>,
    /// Hosts that are reached directly, separated by commas: domains with their subdomains, IP addresses,
    /// networks such as `10.0.0.0/8`, or `*` for all.
    pub exempt: String,
}

impl Proxies {
    /// Converts the settings for `reqwest`. Returns `None` if the server at this address is reached directly.
    #[cfg(feature = "reqwest")]
    pub fn for_reqwest(&self, server: &Url) -> Result<Option<reqwest::Proxy>, &'static str> {
        match (self.for_address(server)?, &self.https) {
            (Some(_), Some(address)) => reqwest::Proxy::https(address.expose().trim())
                .map(Some)
                .map_err(|_| "the proxy address is not a URL such as http://host:3128"),
            _ => Ok(None),
        }
    }

    /// Returns the proxy for a provider at this address, or `None` if the provider is reached directly.
    pub fn for_address(&self, base: &Url) -> Result<Option<Proxy>, &'static str> {
        let Some(address) = self.https.as_ref().map(|address| address.expose().trim()) else {
            return Ok(None);
        };
        if address.is_empty() || base.scheme() != "https" || is_local(base) {
            return Ok(None);
        }
        let to = Uri::try_from(base.as_str()).map_err(|_| "the server address is not valid")?;
        let proxy = |exempt: &str| Matcher::builder().https(address).no(exempt).build().intercept(&to);
        // An invalid proxy address and an exempt host both yield no proxy, so they are checked separately.
        let all = proxy("").ok_or("the proxy address is not a URL such as http://host:3128")?;
        if proxy(&self.exempt).is_none() {
            return Ok(None);
        }
        match all.uri().scheme_str() {
            Some("http") => Ok(Some(Proxy(all))),
            _ => Err("only proxies with an http:// address are supported"),
        }
    }
}

/// A proxy that opens tunnels with the CONNECT method.
#[derive(Debug, Clone)]
pub struct Proxy(Intercept);

impl Proxy {
    /// Returns the address of the proxy.
    pub fn uri(&self) -> &Uri {
        self.0.uri()
    }

    /// Returns the value of the header `Proxy-Authorization`, if the address has a user name.
    pub fn basic_auth(&self) -> Option<&HeaderValue> {
        self.0.basic_auth()
    }

    /// Returns the address without user name and password.
    pub fn display_address(&self) -> String {
        self.0.uri().authority().map(ToString::to_string).unwrap_or_default()
    }
}

/// Whether a server is on this machine, by its address alone.
pub fn is_local(address: &Url) -> bool {
    match address.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(https: &str, exempt: &str, base: &str) -> Result<Option<String>, &'static str> {
        let https = Some(https).filter(|https| !https.is_empty()).map(Secret::new);
        let proxies = Proxies { https, exempt: exempt.to_owned() };
        let found = proxies.for_address(&Url::parse(base).unwrap())?;
        Ok(found.map(|proxy| proxy.display_address()))
    }

    #[test]
    fn only_remote_https_addresses_use_the_proxy() {
        let through = |base: &str| proxy("http://proxy.test:3128", "", base).unwrap();
        assert_eq!(through("https://api.example.com/v1").as_deref(), Some("proxy.test:3128"));
        for direct in [
            "http://api.example.com/v1",
            "https://localhost:8000/v1",
            "https://127.0.0.1:8000/v1",
            "https://127.8.9.10/v1",
            "https://[::1]:8000/v1",
        ] {
            assert_eq!(through(direct), None, "{direct}");
        }
        assert_eq!(proxy("", "", "https://api.example.com"), Ok(None));
        assert_eq!(
            proxy("proxy.test:3128", "", "https://api.example.com").unwrap().as_deref(),
            Some("proxy.test:3128")
        );
    }

    #[test]
    fn exempt_hosts_are_reached_directly() {
        let is_direct =
            |exempt: &str, base: &str| proxy("http://proxy.test:3128", exempt, base).unwrap().is_none();
        for (exempt, base) in [
            ("example.com", "https://api.example.com"),
            (".example.com", "https://api.example.com"),
            ("other.test, API.example.com", "https://api.example.com"),
            ("10.0.0.0/8", "https://10.1.2.3:8443/v1"),
            ("*", "https://api.example.com"),
        ] {
            assert!(is_direct(exempt, base), "{exempt} {base}");
        }
        for (exempt, base) in [
            ("", "https://api.example.com"),
            ("ample.com", "https://api.example.com"),
            ("api.example.com", "https://example.com"),
            ("10.0.0.0/8", "https://11.1.2.3/v1"),
        ] {
            assert!(!is_direct(exempt, base), "{exempt} {base}");
        }
    }

    #[test]
    fn unusable_proxy_address_is_refused() {
        for wrong in
            ["http://", "not a url", "ftp://proxy.test", "socks5://proxy.test:1080", "https://proxy.test"]
        {
            assert!(proxy(wrong, "", "https://api.example.com").is_err(), "{wrong}");
            assert_eq!(proxy(wrong, "", "http://127.0.0.1:8000"), Ok(None), "no proxy is needed here");
        }
    }
}
