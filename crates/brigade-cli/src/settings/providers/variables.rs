//! Environment variables that other programs use too: addresses of providers, and variables with keys.

use toml::Value;

use super::GEMINI_KEYS;

/// Default port of Ollama.
const OLLAMA_PORT: u16 = 11434;

/// Values set by these variables, each with the variable and the configuration key. They replace defaults only; the
/// configuration overrides them.
pub(in crate::settings) fn variables(
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<(&'static str, &'static [&'static str], Value)> {
    let set = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let mut values: Vec<(&'static str, &'static [&'static str], Value)> = Vec::new();
    if let Some(url) = set("OPENAI_BASE_URL") {
        values.push(("OPENAI_BASE_URL", &["providers", "openai", "base_url"], Value::String(url.clone())));
        values.push(("OPENAI_BASE_URL", &["providers", "openai-responses", "base_url"], Value::String(url)));
    }
    if let Some(url) = set("ANTHROPIC_BASE_URL") {
        values.push(("ANTHROPIC_BASE_URL", &["providers", "anthropic", "base_url"], Value::String(url)));
    }
    if let Some(host) = set("OLLAMA_HOST") {
        let url = Value::String(ollama_url(&host));
        values.push(("OLLAMA_HOST", &["providers", "ollama", "base_url"], url));
    }
    let [preferred, other] = GEMINI_KEYS;
    if set(preferred).is_none() && set(other).is_some() {
        values.push((other, &["providers", "gemini", "api_key_env"], Value::String(other.to_owned())));
    }
    values
}

/// URL of an Ollama server from the forms that `ollama` accepts: a host, a port, both, or a URL. A wildcard listen
/// address becomes the loopback address.
fn ollama_url(host: &str) -> String {
    let host = host.trim_matches(['"', '\'']).trim();
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let default_port = if host.contains("://") { None } else { Some(OLLAMA_PORT) };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // The colons of an IPv6 address without brackets do not separate a port.
    let is_bare_ipv6 = authority.parse::<std::net::Ipv6Addr>().is_ok();
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !is_bare_ipv6 && !port.ends_with(']') => {
            (name, port.parse().ok().or(default_port))
        }
        _ => (authority, default_port),
    };
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" | "[::]" => "[::1]".to_owned(),
        name if is_bare_ipv6 => format!("[{name}]"),
        name => name.to_owned(),
    };
    let port = port.map_or_else(String::new, |port: u16| format!(":{port}"));
    let path = path.trim_matches('/');
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    format!("{scheme}://{name}{port}{path}/v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variables_set: &[(&str, &str)]) -> Vec<(String, String)> {
        let variable = |name: &str| {
            variables_set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        };
        let values = variables(variable).into_iter();
        values.map(|(_, path, value)| (path.join("."), value.as_str().unwrap().to_owned())).collect()
    }

    #[test]
    fn ollama_host_is_parsed_as_ollama_does() {
        for (host, url) in [
            ("gpu", "http://gpu:11434/v1"),
            ("gpu:8080", "http://gpu:8080/v1"),
            (":8080", "http://127.0.0.1:8080/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
            ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
            ("::1", "http://[::1]:11434/v1"),
            ("[::1]:8080", "http://[::1]:8080/v1"),
            ("[::]", "http://[::1]:11434/v1"),
            ("http://gpu:8080/", "http://gpu:8080/v1"),
            ("https://gpu.example/ollama", "https://gpu.example/ollama/v1"),
            ("\"gpu\"", "http://gpu:11434/v1"),
            ("gpu:no", "http://gpu:11434/v1"),
        ] {
            assert_eq!(ollama_url(host), url, "{host}");
        }
    }

    #[test]
    fn google_api_key_is_used_if_gemini_api_key_is_not_set() {
        let key = ("providers.gemini.api_key_env".to_owned(), "GOOGLE_API_KEY".to_owned());
        assert_eq!(set(&[("GOOGLE_API_KEY", "k")]), std::slice::from_ref(&key));
        assert_eq!(set(&[("GOOGLE_API_KEY", "k"), ("GEMINI_API_KEY", " ")]), [key]);
        assert_eq!(set(&[("GOOGLE_API_KEY", "k"), ("GEMINI_API_KEY", "l")]), []);
        assert_eq!(set(&[("GOOGLE_API_KEY", "")]), []);
    }

    #[test]
    fn base_url_variables_apply_to_all_providers_of_a_vendor() {
        let found =
            set(&[("OPENAI_BASE_URL", " https://a.test/v1 "), ("ANTHROPIC_BASE_URL", "https://b.test")]);
        let pair = |key: &str, url: &str| (key.to_owned(), url.to_owned());
        assert_eq!(
            found,
            [
                pair("providers.openai.base_url", "https://a.test/v1"),
                pair("providers.openai-responses.base_url", "https://a.test/v1"),
                pair("providers.anthropic.base_url", "https://b.test"),
            ]
        );
    }
}
