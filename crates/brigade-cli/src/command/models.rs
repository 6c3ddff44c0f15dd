//! `brigade models`: lists available models and their prices.

mod print;

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::model::{Auth, ListError, ListedModel, Locality, ModelInfo, list_all};

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::settings::{ApiKey, ProviderInfo, Providers, Settings};
use crate::setup;
use crate::terminal;

const HELP: &str = "\
Examples:
  brigade models           providers, their status and their models
  brigade models openai    all models of one provider, with known prices
  brigade models ollama    the models installed on this machine

Prices are in USD per million tokens, from a built-in table. If an entry is wrong or
missing, set the price in your configuration:

  [prices.\"work/large\"]
  input = 3.00
  output = 15.00";

/// List available models and their prices
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ModelsArgs {
    /// List all models of this provider (default: query only local servers)
    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
}

/// Timeout for local servers, if no provider is named.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for the checks of `doctor`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a provider that the user names.
const NAMED_TIMEOUT: Duration = Duration::from_secs(15);

/// Provider with its availability and known models.
pub(crate) struct ProviderStatus {
    pub(crate) offer: ProviderInfo,
    pub(crate) availability: Availability,
    pub(crate) models: BTreeMap<String, ModelInfo>,
}

pub(crate) enum Availability {
    /// Its key is set, or it needs none.
    Ready,
    /// Local server with this number of models.
    Running(usize),
    /// Local server that does not respond.
    NotRunning,
    /// The variable with its key is not set.
    NoKey(String),
    /// Its model list could not be fetched.
    Failed(String),
    /// Its configuration is invalid.
    Misconfigured(String),
}

impl Availability {
    /// Whether its models can probably be used.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Availability::Ready => true,
            Availability::Running(models) => *models > 0,
            Availability::NotRunning
            | Availability::NoKey(_)
            | Availability::Failed(_)
            | Availability::Misconfigured(_) => false,
        }
    }
}

/// Runs the command.
pub(crate) fn run(global: &Global, models: &ModelsArgs) -> Result<Exit, CliError> {
    let settings = Settings::load(global)?;
    let mut offers = settings.providers.list(&settings.environment);
    if let Some(wanted) = &models.provider {
        // A complete model name is accepted, too.
        let name = wanted.split('/').next().unwrap_or_default();
        offers.retain(|offer| offer.name == name);
        if offers.is_empty() {
            return Err(CliError::usage(settings.providers.unknown(name)));
        }
    }
    let probe_scope = if models.provider.is_some() { ProbeScope::Named } else { ProbeScope::LocalOnly };
    let found = setup::current_thread_runtime()?.block_on(probe(&settings, offers, probe_scope));
    match global.output_format {
        OutputFormat::Text => {
            output::text(&print::text(&settings, &found, probe_scope, terminal::stdout_columns()))?
        }
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&print::json(&settings, &found))?,
    }
    if let Some(advice) = advice(&settings, &found, probe_scope) {
        output::note(&advice);
    }
    Ok(Exit::Done)
}

/// Scope of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    /// Only local servers are queried, with a short timeout.
    LocalOnly,
    /// All providers with a key are queried.
    WithKeys,
    /// One provider is queried.
    Named,
}

impl ProbeScope {
    /// Timeout for the response of a provider.
    fn timeout(self) -> Duration {
        match self {
            ProbeScope::LocalOnly => LOCAL_TIMEOUT,
            ProbeScope::WithKeys => CHECK_TIMEOUT,
            ProbeScope::Named => NAMED_TIMEOUT,
        }
    }
}

/// Queries providers concurrently.
pub(crate) async fn probe(
    settings: &Settings,
    offers: Vec<ProviderInfo>,
    probe_scope: ProbeScope,
) -> Vec<ProviderStatus> {
    let mut questions = Vec::new();
    let mut states = Vec::new();
    for offer in &offers {
        states.push(match plan_probe(offer, probe_scope) {
            ProbePlan::Ask(place) => match offer.endpoint(&settings.environment) {
                Ok(endpoint) => {
                    questions.push((endpoint.with_total_timeout(probe_scope.timeout()), offer.api));
                    Err(place)
                }
                Err(error) => Ok(Availability::Misconfigured(error.to_string())),
            },
            ProbePlan::Skip(availability) => Ok(availability),
        });
    }
    let mut answers = list_all(&questions).await.into_iter();
    let mut found = Vec::new();
    for (offer, availability) in offers.into_iter().zip(states) {
        let (availability, listed) = match availability {
            Ok(availability) => (availability, None),
            Err(place) => judge(place, answers.next()),
        };
        let models = known_models(settings, &offer, listed);
        found.push(ProviderStatus { offer, availability, models });
    }
    found
}

/// First step for a provider.
enum ProbePlan {
    /// Query it.
    Ask(Locality),
    /// Do not query it.
    Skip(Availability),
}

fn plan_probe(offer: &ProviderInfo, probe_scope: ProbeScope) -> ProbePlan {
    match (Locality::of(&offer.name, &offer.base_url), &offer.key) {
        (Err(error), _) => ProbePlan::Skip(Availability::Misconfigured(error.to_string())),
        (Ok(_), ApiKey::Missing(variable)) => ProbePlan::Skip(Availability::NoKey(variable.clone())),
        (Ok(Locality::Remote), _) if probe_scope == ProbeScope::LocalOnly => {
            ProbePlan::Skip(Availability::Ready)
        }
        (Ok(place), _) => ProbePlan::Ask(place),
    }
}

fn judge(
    place: Locality,
    answer: Option<Result<Vec<ListedModel>, ListError>>,
) -> (Availability, Option<Vec<ListedModel>>) {
    match (place, answer) {
        (Locality::Local, Some(Ok(listed))) => (Availability::Running(listed.len()), Some(listed)),
        (Locality::Remote, Some(Ok(listed))) => (Availability::Ready, Some(listed)),
        (Locality::Local, Some(Err(ListError::Unreachable(_)))) => (Availability::NotRunning, None),
        (_, Some(Err(error))) => (Availability::Failed(error.to_string()), None),
        (_, None) => (Availability::NotRunning, None),
    }
}

/// Models of a provider: its own list, or those in the price list and the configuration.
fn known_models(
    settings: &Settings,
    offer: &ProviderInfo,
    listed: Option<Vec<ListedModel>>,
) -> BTreeMap<String, ModelInfo> {
    let auth = if offer.key == ApiKey::NotNeeded { Auth::Keyless } else { Auth::Keyed };
    let about = |model: &str| settings.prices.model_info_at(&offer.base_url, &offer.name, model, auth);
    match listed {
        Some(listed) => {
            let with_window = |listed: ListedModel| {
                let about = about(&listed.name);
                (listed.name, ModelInfo { window: about.window.or(listed.window), ..about })
            };
            listed.into_iter().map(with_window).collect()
        }
        None => {
            let named = settings.prices.models(&offer.name);
            let models = named.filter_map(|name| name.split_once('/').map(|(_, model)| model));
            let models = models.map(|model| (model.to_owned(), about(model)));
            models.filter(|(_, about)| about.window.is_some() || about.price.is_some()).collect()
        }
    }
}

/// Provider that the user has chosen: that of the configured model, or one that only the configuration defines.
fn chosen<'a>(settings: &Settings, found: &'a [ProviderStatus]) -> Option<&'a ProviderStatus> {
    let of_model = settings.model.as_deref().and_then(|model| model.split('/').next());
    let is_used = |found: &&ProviderStatus| Some(found.offer.name.as_str()) == of_model;
    let is_own = |found: &&ProviderStatus| !Providers::is_built_in(&found.offer.name);
    found.iter().find(is_used).or_else(|| found.iter().find(is_own))
}

/// Advice if no model can be used, and the cause of a failed query.
fn advice(settings: &Settings, found: &[ProviderStatus], probe_scope: ProbeScope) -> Option<String> {
    if found.iter().any(|found| found.availability.is_usable()) {
        return None;
    }
    let ollama = found.iter().find(|found| found.offer.name == "ollama").map(|found| &found.availability);
    let start = match ollama {
        Some(Availability::Running(_)) => "install a model for Ollama (ollama pull qwen3)",
        _ => "start Ollama",
    };
    match (probe_scope, found) {
        (ProbeScope::Named, [found]) => Some(match &found.availability {
            Availability::NoKey(variable) => format!("set {variable} to use {}", found.offer.name),
            Availability::NotRunning => format!("start {} to use its models", found.offer.name),
            Availability::Running(_) => format!("{} has no models yet; install one", found.offer.name),
            Availability::Failed(cause) | Availability::Misconfigured(cause) => cause.clone(),
            Availability::Ready => return None,
        }),
        _ if let Some(chosen) = chosen(settings, found) => {
            let name = &chosen.offer.name;
            Some(match &chosen.availability {
                Availability::NoKey(variable) => {
                    format!("No model is available yet. Set {variable} to use {name}.")
                }
                Availability::NotRunning => format!(
                    "No model is available yet. Start {name}, or fix `providers.{name}.base_url` in your configuration."
                ),
                Availability::Running(_) | Availability::Ready => {
                    format!("No model is available yet: {name} has no models")
                }
                Availability::Failed(cause) | Availability::Misconfigured(cause) => {
                    format!("No model is available yet: {cause}")
                }
            })
        }
        _ => Some(format!(
            "No model is available yet. Set ANTHROPIC_API_KEY or {start}. To try Brigade without a model: brigade demo"
        )),
    }
}
