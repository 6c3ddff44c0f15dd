//! What is known of a provider before it is asked.

use brigade::model::{Api, Endpoint};

use super::super::nearest::near;
use super::{BUILT_IN, Environment, Kind, Provider, Providers};

/// A provider as it can be used here.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Its name.
    pub(crate) name: String,
    /// The API that it speaks, as people call it.
    pub(crate) speaks: &'static str,
    /// The API in which it lists its models.
    pub(crate) api: Api,
    /// Its address.
    pub(crate) base_url: String,
    /// Whether there is a key.
    pub(crate) key: Key,
}

/// Whether there is a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// None is needed.
    Unneeded,
    /// It stands in this variable.
    Set(String),
    /// This variable should hold it and does not.
    Missing(String),
}

impl Kind {
    fn speaks(self) -> &'static str {
        match self {
            Kind::OpenAi => "Chat Completions",
            Kind::Responses => "Responses",
            Kind::Anthropic => "Messages",
            Kind::Gemini => "Gemini",
        }
    }

    fn api(self) -> Api {
        match self {
            Kind::OpenAi | Kind::Responses => Api::OpenAi,
            Kind::Anthropic => Api::Anthropic,
            Kind::Gemini => Api::Gemini,
        }
    }
}

impl Providers {
    /// All of them, by name.
    pub(crate) fn offers(&self, environment: &Environment) -> Vec<Offer> {
        self.0.iter().map(|(name, provider)| offer(name, provider, environment)).collect()
    }

    /// Whether a provider is available without configuration.
    pub(crate) fn is_built_in(name: &str) -> bool {
        BUILT_IN.iter().any(|(built_in, ..)| *built_in == name)
    }

    /// Where the provider of this name is.
    pub(crate) fn address(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|provider| provider.base_url.as_str())
    }

    /// The name that somebody may have meant.
    pub(crate) fn near(&self, name: &str) -> Option<&str> {
        near(name, self.names())
    }

    /// What to say to somebody who names a provider that is not there.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let near = self.near(name).map_or_else(String::new, |near| format!(" the nearest is '{near}';"));
        format!("there is no provider '{name}';{near} all are listed by: brigade models")
    }
}

impl Offer {
    /// The way to it, with the key that the environment holds.
    pub(crate) fn endpoint(&self, environment: &Environment) -> Result<Endpoint, String> {
        let key = match &self.key {
            Key::Set(variable) => environment.secret(variable),
            Key::Unneeded | Key::Missing(_) => None,
        };
        Endpoint::new(&self.name, &self.base_url, key)
            .and_then(|endpoint| endpoint.with_proxies(&environment.proxies()))
            .map_err(|error| error.to_string())
    }
}

fn offer(name: &str, provider: &Provider, environment: &Environment) -> Offer {
    let key = match provider.key.as_str() {
        "" => Key::Unneeded,
        variable if environment.secret(variable).is_some() => Key::Set(variable.to_owned()),
        variable => Key::Missing(variable.to_owned()),
    };
    Offer {
        name: name.to_owned(),
        speaks: provider.kind.speaks(),
        api: provider.kind.api(),
        base_url: provider.base_url.clone(),
        key,
    }
}
