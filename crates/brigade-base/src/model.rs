//! Models: the `Model` trait, its requests and its streamed replies.

pub mod passthrough;
pub mod script;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::external_limits::ReportedUsage;
use brigade_core::message::Stop;
use brigade_core::{
    Message, Price, Purpose, RemoteContext, Reply, SessionId, Text, ToolCall, ToolSpec, Usage,
};
use futures::stream::BoxStream;

use crate::secret::Secret;

/// A request to a model.
#[derive(Debug, Clone)]
pub struct Request {
    /// The session that sends the request.
    pub session: SessionId,
    /// The id of the session's agent.
    pub agent: String,
    /// The agent's role, if it has one.
    pub role: Option<String>,
    /// The turn, counted over all rounds of the session.
    pub turn: u32,
    /// The attempt at this turn.
    pub attempt: u32,
    /// The purpose of the call.
    pub purpose: Purpose,
    /// The model's name at its provider.
    pub model: String,
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools offered to the model.
    pub tools: Arc<[ToolSpec]>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The maximum number of output tokens, as reserved from the budget.
    pub max_tokens: u64,
    /// Sampling temperature, if the agent sets one. Not sent to a model that rejects it.
    pub temperature: Option<f64>,
    /// Context sent along if the request goes to an agent in another program.
    pub remote_context: Option<Box<RemoteContext>>,
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// More text.
    Text(String),
    /// A tool call starts.
    Call {
        /// The tool name.
        name: String,
        /// The provider's id for the call.
        provider_id: Option<String>,
    },
    /// More arguments of the most recently started call.
    Arguments(String),
    /// A block that must be sent back to the provider unchanged.
    Opaque(String),
    /// Number of tokens in the usage that are estimated, because the provider reported none or implausibly
    /// few.
    Estimated(u64),
    /// Token usage so far. The last one counts.
    Usage(Usage),
    /// Usage reported by an external agent. The last one counts.
    Reported(ReportedUsage),
    /// The request is queued. Nothing is billed until [`Chunk::Sent`].
    Queued,
    /// The request has been sent.
    Sent,
    /// The provider answered with this HTTP status.
    Status(u16),
    /// Nothing has arrived yet, for this reason.
    Waiting(String),
    /// The terminal event. A stream without it is not a reply.
    Done(Stop),
}

/// Reasons why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A retry may succeed.
    #[error("{0}")]
    Transient(String),
    /// A retry would not help.
    #[error("{0}")]
    Fatal(String),
    /// The conversation exceeds the model's context window. A shorter one may succeed.
    #[error("{0}")]
    Overflow(String),
}

/// Price and limits of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelInfo {
    /// The price of its tokens.
    pub price: Option<Price>,
    /// The maximum number of tokens in a request and its reply together.
    pub window: Option<u64>,
    /// The maximum number of tokens in a reply.
    pub max_output: Option<u64>,
    /// The maximum number of tokens that the provider itself adds to a request, such as message framing and
    /// tool instructions.
    pub framing: u64,
}

/// A provider of models: streams the reply to a request.
///
/// # Contract
///
/// * The stream ends after [`Chunk::Done`] or an error. A stream that ends without either was truncated.
/// * Dropping the stream cancels the request.
/// * An error never contains a key or a whole request.
pub trait Model: Send + Sync + 'static {
    /// Sends one request and streams its reply.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Returns the price and limits of one of the provider's models.
    fn model_info(&self, model: &str) -> ModelInfo;
}

/// Models by provider name. A model is named `provider/model`.
#[derive(Clone, Default)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Model>>,
    lazy: Option<Arc<LazyProviders>>,
    resolver: Option<Arc<ModelResolver>>,
}

/// Providers that are created when they are first used.
struct LazyProviders {
    names: Vec<String>,
    make: Box<ProviderFactory>,
    providers: Mutex<Vec<LazyProvider>>,
}

/// A created provider, and the endpoint override it was created for.
struct LazyProvider {
    name: String,
    endpoint_override: EndpointOverride,
    model: Arc<dyn Model>,
}

/// Creates a provider, or returns the reason why it cannot be used.
type ProviderFactory =
    dyn Fn(&str, &EndpointOverride) -> Result<Arc<dyn Model>, ModelUnavailable> + Send + Sync;

/// An agent's own endpoint settings for its provider. If only the address is overridden, no key is sent
/// there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOverride {
    /// Overrides the base URL.
    pub base_url: Option<String>,
    /// Overrides the API key.
    pub key: Option<Secret>,
}

/// Resolves a full model name that does not belong to a provider. Returns `None` for names it does not know.
type ModelResolver = dyn Fn(&str) -> Option<Result<Arc<dyn Model>, ModelUnavailable>> + Send + Sync;

/// Reason why a model that was found cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelUnavailable(String);

impl<T: Into<String>> From<T> for ModelUnavailable {
    fn from(cause: T) -> ModelUnavailable {
        ModelUnavailable(cause.into())
    }
}

/// Error for a name that does not resolve to a usable model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownModel {
    /// No provider matches the name.
    #[error("unknown model '{name}': expected PROVIDER/MODEL (known providers: {known})")]
    Name {
        /// The name.
        name: String,
        /// The configured providers.
        known: String,
    },
    /// The model was found but cannot be used.
    #[error("cannot use the model '{name}': {cause}")]
    Unusable {
        /// The name.
        name: String,
        /// The cause.
        #[source]
        cause: ModelUnavailable,
    },
}

/// A model chosen for a session: its provider, and its name there.
#[derive(Clone)]
pub struct ModelHandle {
    /// The provider.
    pub provider: Arc<dyn Model>,
    /// The model's name at the provider.
    pub name: String,
}

impl Models {
    /// Adds a provider.
    pub fn with(mut self, provider: impl Into<String>, model: impl Model) -> Models {
        self.providers.insert(provider.into(), Arc::new(model));
        self
    }

    /// Adds providers that are created when one of their models is first used, such as those that need a key.
    pub fn with_providers(
        mut self,
        names: impl IntoIterator<Item = String>,
        make: impl Fn(&str, &EndpointOverride) -> Result<Arc<dyn Model>, ModelUnavailable> + Send + Sync + 'static,
    ) -> Models {
        let names = names.into_iter().collect();
        self.lazy =
            Some(Arc::new(LazyProviders { names, make: Box::new(make), providers: Mutex::default() }));
        self
    }

    /// Adds a resolver for full model names, such as paths of script files.
    pub fn with_resolver(
        mut self,
        resolver: impl Fn(&str) -> Option<Result<Arc<dyn Model>, ModelUnavailable>> + Send + Sync + 'static,
    ) -> Models {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Whether a name refers to something on this machine, such as a file, rather than to a provider's model.
    pub fn is_local_name(&self, name: &str) -> bool {
        self.resolver.as_ref().is_some_and(|resolver| resolver(name).is_some())
    }

    /// Returns the model with this name.
    pub fn choose(&self, name: &str) -> Result<ModelHandle, UnknownModel> {
        self.choose_for(name, &EndpointOverride::default())
    }

    /// Returns the model with this name for an agent that may override its provider's endpoint.
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
            Some(_) if model.is_empty() => Err(unusable(format!("expected {provider}/MODEL").into())),
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
        // This provider serves calls from other programs. Users never choose it.
        known.retain(|name| *name != passthrough::PROVIDER);
        known.sort_unstable();
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    }
}

impl LazyProviders {
    /// Returns the provider with this name. It is always the same one, so that its connections are shared.
    fn provider(
        &self,
        name: &str,
        endpoint_override: &EndpointOverride,
    ) -> Result<Arc<dyn Model>, ModelUnavailable> {
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

/// Assembles a reply from its chunks. Streamed and whole replies both take this path.
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
    /// Takes the next chunk. Returns new text, for observers.
    pub fn take(&mut self, chunk: Chunk) -> Result<Option<String>, ModelError> {
        if self.stop.is_some() {
            return Err(ModelError::Transient("the model sent data after the end of its reply".to_owned()));
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
                    return Err(ModelError::Transient(
                        "the model sent tool arguments before a tool call".to_owned(),
                    ));
                }
            },
            Chunk::Opaque(block) => self.opaque.push(block.into()),
            Chunk::Usage(usage) => self.usage = usage,
            Chunk::Estimated(tokens) => self.estimated = tokens,
            Chunk::Reported(reported) => self.reported = reported,
            Chunk::Queued | Chunk::Sent | Chunk::Status(_) | Chunk::Waiting(_) => {}
            Chunk::Done(stop) => self.stop = Some(stop),
        }
        Ok(None)
    }

    /// Returns the text received so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the usage reported by an external agent.
    pub fn reported(&self) -> ReportedUsage {
        self.reported
    }

    /// Returns the number of tokens in the usage that are estimated.
    pub fn estimated(&self) -> u64 {
        self.estimated
    }

    /// Whether the terminal event has arrived.
    pub fn is_done(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns the whole reply if the terminal event has arrived. Tools of a truncated reply never run.
    pub fn finish(self) -> Result<(Reply, Usage), ModelError> {
        let Some(stop) = self.stop else {
            return Err(ModelError::Transient("the stream ended before the reply was complete".to_owned()));
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
