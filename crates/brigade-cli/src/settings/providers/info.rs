//! Static information about providers.

use brigade::model::{Api, Endpoint};
use brigade::provider::BUILT_IN_PROVIDERS;

use super::super::did_you_mean::did_you_mean;
use super::{Environment, Provider, Providers};
use crate::error::CliError;

/// Provider with its configuration.
#[derive(Debug)]
pub(crate) struct ProviderInfo {
    pub(crate) name: String,
    /// Common name of its API.
    pub(crate) api_name: &'static str,
    /// API for listing its models.
    pub(crate) api: Api,
    pub(crate) base_url: String,
    pub(crate) key: ApiKey,
}

/// Whether a key is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiKey {
    /// No key is needed.
    NotNeeded,
    /// This variable contains the key.
    Set(String),
    /// This variable should contain the key, but is not set.
    Missing(String),
}

impl Providers {
    /// All providers, by name.
    pub(crate) fn list(&self, environment: &Environment) -> Vec<ProviderInfo> {
        self.0.iter().map(|(name, provider)| provider_info(name, provider, environment)).collect()
    }

    /// Whether a provider is available without configuration.
    pub(crate) fn is_built_in(name: &str) -> bool {
        BUILT_IN_PROVIDERS.iter().any(|built_in| built_in.name == name)
    }

    /// Address of the provider of this name.
    pub(crate) fn address(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|provider| provider.base_url.as_str())
    }

    /// Name that is likely meant.
    pub(crate) fn did_you_mean(&self, name: &str) -> Option<&str> {
        did_you_mean(name, self.names())
    }

    /// Error message for an unknown provider.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let near =
            self.did_you_mean(name).map_or_else(String::new, |near| format!(" Did you mean '{near}'?"));
        format!("unknown provider '{name}'.{near} List all providers with: brigade models")
    }
}

impl ProviderInfo {
    /// Endpoint of the provider, with the key from the environment.
    pub(crate) fn endpoint(&self, environment: &Environment) -> Result<Endpoint, CliError> {
        let key = match &self.key {
            ApiKey::Set(variable) => environment.secret(variable),
            ApiKey::NotNeeded | ApiKey::Missing(_) => None,
        };
        Endpoint::new(&self.name, &self.base_url, key)
            .and_then(|endpoint| endpoint.with_proxies(&environment.proxies()))
            .map_err(CliError::usage)
    }
}

fn provider_info(name: &str, provider: &Provider, environment: &Environment) -> ProviderInfo {
    let key = match provider.key.as_str() {
        "" => ApiKey::NotNeeded,
        variable if environment.secret(variable).is_some() => ApiKey::Set(variable.to_owned()),
        variable => ApiKey::Missing(variable.to_owned()),
    };
    ProviderInfo {
        name: name.to_owned(),
        api_name: provider.api.name(),
        api: provider.api.listing(),
        base_url: provider.base_url.clone(),
        key,
    }
}
