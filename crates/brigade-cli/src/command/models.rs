//! `brigade models`: which models can be used here, and what they cost.

mod print;

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::model::{Auth, ListError, ListedModel, Locality, ModelInfo, list_all};

use crate::args::{Global, Models, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::settings::{ApiKey, ProviderInfo, Providers, Settings};
use crate::setup;
use crate::terminal;

/// How long a server on this machine has to say what it has, where nobody asked for it by name.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a provider has where somebody asked whether all is well.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a provider has that somebody asked for.
const NAMED_TIMEOUT: Duration = Duration::from_secs(15);

/// A provider, whether it can be used, and what is known of its models.
pub(crate) struct ProviderStatus {
    pub(crate) offer: ProviderInfo,
    pub(crate) availability: Availability,
    pub(crate) models: BTreeMap<String, ModelInfo>,
}

/// Whether a provider can be used.
pub(crate) enum Availability {
    /// It has its key, or needs none.
    Ready,
    /// It is on this machine and has so many models.
    Running(usize),
    /// It is on this machine, and nobody answers.
    NotRunning,
    /// The variable that should hold its key does not.
    NoKey(String),
    /// It gave no list, and this is why.
    Failed(String),
    /// It cannot be used as it is configured.
    Misconfigured(String),
}

impl Availability {
    /// Whether a task can be given to one of its models, as far as one can tell.
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

/// Runs it.
pub(crate) fn run(global: &Global, models: &Models) -> Result<Exit, CliError> {
    let settings = Settings::load(global)?;
    let mut offers = settings.providers.list(&settings.environment);
    if let Some(wanted) = &models.provider {
        // What somebody copied from a model's name is understood as well.
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

/// What somebody wants to know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    /// How things are: only servers on this machine are asked, and briefly.
    LocalOnly,
    /// Whether all that have a key answer.
    WithKeys,
    /// All about one provider.
    Named,
}

impl ProbeScope {
    /// How long a provider has to answer.
    fn timeout(self) -> Duration {
        match self {
            ProbeScope::LocalOnly => LOCAL_TIMEOUT,
            ProbeScope::WithKeys => CHECK_TIMEOUT,
            ProbeScope::Named => NAMED_TIMEOUT,
        }
    }
}

/// Looks at providers, all at once.
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
                Err(cause) => Ok(Availability::Misconfigured(cause)),
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

/// What one does with a provider first.
enum ProbePlan {
    /// It is asked; this is where it is.
    Ask(Locality),
    /// It is not.
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

/// The models of a provider: those that it listed, or those that the table and the configuration speak of.
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

/// The provider that the user has decided for: that of the model in force, or one that only the configuration has.
fn chosen<'a>(settings: &Settings, found: &'a [ProviderStatus]) -> Option<&'a ProviderStatus> {
    let of_model = settings.model.as_deref().and_then(|model| model.split('/').next());
    let is_used = |found: &&ProviderStatus| Some(found.offer.name.as_str()) == of_model;
    let is_own = |found: &&ProviderStatus| !Providers::is_built_in(&found.offer.name);
    found.iter().find(is_used).or_else(|| found.iter().find(is_own))
}

/// The shortest way to get going, where nothing can be used, and what went wrong with what was asked for.
fn advice(settings: &Settings, found: &[ProviderStatus], probe_scope: ProbeScope) -> Option<String> {
    if found.iter().any(|found| found.availability.is_usable()) {
        return None;
    }
    let ollama = found.iter().find(|found| found.offer.name == "ollama").map(|found| &found.availability);
    let start = match ollama {
        Some(Availability::Running(_)) => "fetch a model for Ollama (ollama pull qwen3)",
        _ => "start Ollama",
    };
    match (probe_scope, found) {
        (ProbeScope::Named, [found]) => Some(match &found.availability {
            Availability::NoKey(variable) => format!("set {variable} to use {}", found.offer.name),
            Availability::NotRunning => format!("start {} to use its models", found.offer.name),
            Availability::Running(_) => format!("{} has no models yet; fetch one", found.offer.name),
            Availability::Failed(cause) | Availability::Misconfigured(cause) => cause.clone(),
            Availability::Ready => return None,
        }),
        _ if let Some(chosen) = chosen(settings, found) => {
            let name = &chosen.offer.name;
            Some(match &chosen.availability {
                Availability::NoKey(variable) => {
                    format!("No model can be used yet: set {variable} to use {name}")
                }
                Availability::NotRunning => format!(
                    "No model can be used yet: start {name}, or correct providers.{name}.base_url in your configuration"
                ),
                Availability::Running(_) | Availability::Ready => {
                    format!("No model can be used yet: {name} has none")
                }
                Availability::Failed(cause) | Availability::Misconfigured(cause) => {
                    format!("No model can be used yet: {cause}")
                }
            })
        }
        _ => Some(format!(
            "No model can be used yet: set ANTHROPIC_API_KEY or {start}; brigade demo works without either"
        )),
    }
}
