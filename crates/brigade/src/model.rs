//! Models: whatever answers a request.

pub mod anthropic;
#[cfg(test)]
mod fuzz;
pub mod gemini;
mod http;
mod list;
pub mod openai;
pub mod passthrough;
mod prices;
mod quirks;
mod rate_limit;
pub mod responses;
pub mod script;
pub mod sse;
mod tool_cache;
mod usage_estimate;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::message::Stop;
use brigade_core::{
    Message, Price, Purpose, RemoteContext, Reply, SessionId, Text, ToolCall, ToolSpec, Usage,
};
use futures::stream::BoxStream;

use crate::external::ReportedUsage;
use crate::secret::Secret;

pub use http::{Endpoint, EndpointError, Locality, Proxies, Timeouts};
pub use list::{Api, ListError, ListedModel, list, list_all};
pub use prices::{Auth, ModelOverrides, PriceList};
pub use rate_limit::RateLimits;

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The session that asks.
    pub session: SessionId,
    /// The id of its agent.
    pub agent: String,
    /// The role that it plays, where it has one.
    pub role: Option<String>,
    /// The turn, over all rounds of the session.
    pub turn: u32,
    /// The attempt at this turn.
    pub attempt: u32,
    /// What the call is for.
    pub purpose: Purpose,
    /// The model, as its provider names it.
    pub model: String,
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools on offer.
    pub tools: Arc<[ToolSpec]>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The most output tokens that were paid for.
    pub max_tokens: u64,
    /// How freely the model is to choose its words, where the agent says so. Not sent to a model that refuses it.
    pub temperature: Option<f64>,
    /// What travels with the request to an agent of another program.
    pub remote_context: Option<Box<RemoteContext>>,
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// More text.
    Text(String),
    /// A tool call begins.
    Call {
        /// The tool.
        name: String,
        /// The provider's id of the call.
        provider_id: Option<String>,
    },
    /// More of the arguments of the call that began last.
    Arguments(String),
    /// A block that the provider wants back unchanged.
    Opaque(String),
    /// Tokens of the usage that are an estimate, because the provider reported none or implausibly few.
    Estimated(u64),
    /// Tokens so far; the last one counts.
    Usage(Usage),
    /// What an external agent says that it used up; the last one counts.
    Reported(ReportedUsage),
    /// The request stands in line: until it is [`Chunk::Sent`], nothing of it costs anything.
    Queued,
    /// The request is on its way.
    Sent,
    /// There is nothing to hear yet, and this says why.
    Waiting(String),
    /// The terminal event. Without it there is no reply.
    Done(Stop),
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// It may work when asked again.
    #[error("{0}")]
    Transient(String),
    /// Asking again would not help.
    #[error("{0}")]
    Fatal(String),
    /// The conversation is longer than the model can read: a shorter one may work.
    #[error("{0}")]
    Overflow(String),
}

/// What is known of a model before it is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelInfo {
    /// What tokens cost.
    pub price: Option<Price>,
    /// How many tokens a request and its reply may have together.
    pub window: Option<u64>,
    /// How many tokens a reply may have.
    pub max_output: Option<u64>,
    /// How many tokens the provider adds to a request by itself, at most: frames around messages, words about tools.
    pub framing: u64,
}

/// Something that answers requests.
///
/// # Contract
///
/// * The stream ends after [`Chunk::Done`] or an error. A stream that ends without either was cut.
/// * Dropping the stream ends the request.
/// * An error never carries a key or a whole request.
pub trait Model: Send + Sync + 'static {
    /// Answers one request.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// What is known of one of its models.
    fn model_info(&self, model: &str) -> ModelInfo;
}

/// Models by the name of their provider. `provider/model` names one.
#[derive(Clone, Default)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Model>>,
    lazy: Option<Arc<LazyProviders>>,
    resolver: Option<Arc<ModelResolver>>,
}

/// Providers that are made when they are first used.
struct LazyProviders {
    names: Vec<String>,
    make: Box<ProviderFactory>,
    providers: Mutex<Vec<LazyProvider>>,
}

/// A provider, and for whom it was made.
struct LazyProvider {
    name: String,
    endpoint_override: EndpointOverride,
    model: Arc<dyn Model>,
}

/// Makes a provider, or says why it cannot be used.
type ProviderFactory = dyn Fn(&str, &EndpointOverride) -> Result<Arc<dyn Model>, String> + Send + Sync;

/// What an agent has of its own to reach its provider. Where the address is another and the key is not, no key goes there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOverride {
    /// Another address.
    pub base_url: Option<String>,
    /// Another key.
    pub key: Option<Secret>,
}

/// Finds a model by its whole name where no provider has it; `None` where the name means nothing to it.
type ModelResolver = dyn Fn(&str) -> Option<Result<Arc<dyn Model>, String>> + Send + Sync;

/// A name that leads to no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownModel {
    /// No provider has it.
    #[error("there is no model '{name}': expected provider/model with a provider out of: {known}")]
    Name {
        /// The name.
        name: String,
        /// The providers there are.
        known: String,
    },
    /// It was found and cannot be used.
    #[error("the model '{name}' cannot be used: {cause}")]
    Unusable {
        /// The name.
        name: String,
        /// Why.
        cause: String,
    },
}

/// A model that a session uses: the provider and the name that it knows.
#[derive(Clone)]
pub struct ModelHandle {
    /// Who answers.
    pub provider: Arc<dyn Model>,
    /// What the provider calls it.
    pub name: String,
}

impl Models {
    /// Adds a provider.
    pub fn with(mut self, provider: impl Into<String>, model: impl Model) -> Models {
        self.providers.insert(provider.into(), Arc::new(model));
        self
    }

    /// Adds providers that are made when one of their models is first used, such as those that need a key.
    pub fn with_providers(
        mut self,
        names: impl IntoIterator<Item = String>,
        make: impl Fn(&str, &EndpointOverride) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Models {
        let names = names.into_iter().collect();
        self.lazy =
            Some(Arc::new(LazyProviders { names, make: Box::new(make), providers: Mutex::default() }));
        self
    }

    /// Adds a way to find models by their whole names, such as those that stand in a file.
    pub fn with_resolver(
        mut self,
        resolver: impl Fn(&str) -> Option<Result<Arc<dyn Model>, String>> + Send + Sync + 'static,
    ) -> Models {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Whether a name stands for something on this machine, such as a file, and not for a model of a provider.
    pub(crate) fn is_local_name(&self, name: &str) -> bool {
        self.resolver.as_ref().is_some_and(|resolver| resolver(name).is_some())
    }

    /// The model of this name.
    pub fn choose(&self, name: &str) -> Result<ModelHandle, UnknownModel> {
        self.choose_for(name, &EndpointOverride::default())
    }

    /// The model of this name, for an agent that may reach its provider by ways of its own.
    pub fn choose_for(
        &self,
        name: &str,
        endpoint_override: &EndpointOverride,
    ) -> Result<ModelHandle, UnknownModel> {
        match self.resolver.as_ref().and_then(|resolver| resolver(name)) {
            Some(Ok(provider)) => return Ok(ModelHandle { provider, name: name.to_owned() }),
            Some(Err(cause)) => return Err(UnknownModel::Unusable { name: name.to_owned(), cause }),
            None => {}
        }
        let (provider, model) = name.split_once('/').unwrap_or((name, ""));
        if let Some(found) = self.providers.get(provider) {
            return Ok(ModelHandle { provider: found.clone(), name: model.to_owned() });
        }
        let unusable = |cause| UnknownModel::Unusable { name: name.to_owned(), cause };
        match self.lazy.as_ref().filter(|lazy| lazy.names.iter().any(|known| known == provider)) {
            Some(_) if model.is_empty() => Err(unusable(format!("write {provider}/MODEL"))),
            Some(lazy) => {
                let provider = lazy.provider(provider, endpoint_override).map_err(unusable)?;
                Ok(ModelHandle { provider, name: model.to_owned() })
            }
            None => Err(UnknownModel::Name { name: name.to_owned(), known: self.provider_names() }),
        }
    }

    fn provider_names(&self) -> String {
        let lazy = self.lazy.iter().flat_map(|lazy| &lazy.names);
        let mut known: Vec<&str> = self.providers.keys().chain(lazy).map(String::as_str).collect();
        // It stands for the call of another program: no person names it.
        known.retain(|name| *name != passthrough::PROVIDER);
        known.sort_unstable();
        if known.is_empty() { "none is set up".to_owned() } else { known.join(", ") }
    }
}

impl LazyProviders {
    /// The provider of this name: the same one each time, so that its connections are shared.
    fn provider(&self, name: &str, endpoint_override: &EndpointOverride) -> Result<Arc<dyn Model>, String> {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = providers
            .iter()
            .find(|existing| existing.name == name && existing.endpoint_override == *endpoint_override)
        {
            return Ok(existing.model.clone());
        }
        let model = (self.make)(name, endpoint_override)?;
        providers.push(LazyProvider {
            name: name.to_owned(),
            endpoint_override: endpoint_override.clone(),
            model: model.clone(),
        });
        Ok(model)
    }
}

/// Puts a reply together from its pieces: the one path for streamed and whole replies.
#[derive(Debug, Default)]
pub struct Ingest {
    text: String,
    calls: Vec<(String, String, Option<String>)>,
    opaque: Vec<Text>,
    usage: Usage,
    estimated: u64,
    reported: ReportedUsage,
    stop: Option<Stop>,
}

impl Ingest {
    /// Takes the next piece; text that is new is given back for whoever watches.
    pub fn take(&mut self, chunk: Chunk) -> Result<Option<String>, ModelError> {
        if self.stop.is_some() {
            return Err(ModelError::Transient("the model went on after the end of its reply".to_owned()));
        }
        match chunk {
            Chunk::Text(text) => {
                self.text.push_str(&text);
                return Ok(Some(text));
            }
            Chunk::Call { name, provider_id } => self.calls.push((name, String::new(), provider_id)),
            Chunk::Arguments(more) => match self.calls.last_mut() {
                Some((_, arguments, _)) => arguments.push_str(&more),
                None => {
                    return Err(ModelError::Transient("the model sent arguments before any call".to_owned()));
                }
            },
            Chunk::Opaque(block) => self.opaque.push(block.into()),
            Chunk::Usage(usage) => self.usage = usage,
            Chunk::Estimated(tokens) => self.estimated = tokens,
            Chunk::Reported(reported) => self.reported = reported,
            Chunk::Queued | Chunk::Sent | Chunk::Waiting(_) => {}
            Chunk::Done(stop) => self.stop = Some(stop),
        }
        Ok(None)
    }

    /// The text that has arrived so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What an external agent says that it used up.
    pub fn reported(&self) -> ReportedUsage {
        self.reported
    }

    /// Tokens of the usage that are an estimate.
    pub fn estimated(&self) -> u64 {
        self.estimated
    }

    /// Whether the terminal event has come.
    pub fn is_done(&self) -> bool {
        self.stop.is_some()
    }

    /// The whole reply, if the terminal event has come; no tool of a cut reply ever runs.
    pub fn finish(self) -> Result<(Reply, Usage), ModelError> {
        let Some(stop) = self.stop else {
            return Err(ModelError::Transient("the reply was cut off before its end".to_owned()));
        };
        let call = |(name, arguments, provider_id): (String, String, Option<String>)| ToolCall {
            name,
            arguments: if arguments.trim().is_empty() { "{}".into() } else { arguments.into() },
            provider_id,
        };
        let calls = self.calls.into_iter().map(call).collect();
        Ok((Reply { text: self.text.into(), calls, opaque: self.opaque, stop }, self.usage))
    }
}
