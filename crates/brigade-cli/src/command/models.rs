//! `brigade models`: which models can be used here, and what they cost.

mod print;

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::model::{About, Auth, ListError, Listed, Place, list_all};

use crate::args::{Global, Models, OutputFormat};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::settings::{Key, Offer, Providers, Settings};
use crate::terminal;

/// How long a server on this machine has to say what it has, where nobody asked for it by name.
const GLANCE: Duration = Duration::from_secs(1);
/// How long a provider has where somebody asked whether all is well.
const CHECK: Duration = Duration::from_secs(5);
/// How long a provider has that somebody asked for.
const PATIENCE: Duration = Duration::from_secs(15);

/// A provider, whether it can be used, and what is known of its models.
pub(crate) struct Found {
    pub(crate) offer: Offer,
    pub(crate) state: State,
    pub(crate) models: BTreeMap<String, About>,
}

/// Whether a provider can be used.
pub(crate) enum State {
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
    Wrong(String),
}

impl State {
    /// Whether a task can be given to one of its models, as far as one can tell.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            State::Ready => true,
            State::Running(models) => *models > 0,
            State::NotRunning | State::NoKey(_) | State::Failed(_) | State::Wrong(_) => false,
        }
    }
}

/// Runs it.
pub(crate) fn run(global: &Global, models: &Models) -> Result<Exit, Failure> {
    let settings = Settings::to_look(global)?;
    let mut offers = settings.providers.offers(&settings.environment);
    if let Some(wanted) = &models.provider {
        // What somebody copied from a model's name is understood as well.
        let name = wanted.split('/').next().unwrap_or_default();
        offers.retain(|offer| offer.name == name);
        if offers.is_empty() {
            return Err(Failure::usage(settings.providers.unknown(name)));
        }
    }
    let asked = if models.provider.is_some() { Asked::ByName } else { Asked::AtAGlance };
    let found = engine::one_thread()?.block_on(look(&settings, offers, asked));
    match global.output_format {
        OutputFormat::Text => {
            output::text(&print::text(&settings, &found, asked, terminal::room_for_results()))?
        }
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&print::json(&settings, &found))?,
    }
    if let Some(advice) = advice(&settings, &found, asked) {
        output::note(&advice);
    }
    Ok(Exit::Done)
}

/// What somebody wants to know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// How things are: only servers on this machine are asked, and briefly.
    AtAGlance,
    /// Whether all that have a key answer.
    Closely,
    /// All about one provider.
    ByName,
}

impl Asked {
    /// How long a provider has to answer.
    fn limit(self) -> Duration {
        match self {
            Asked::AtAGlance => GLANCE,
            Asked::Closely => CHECK,
            Asked::ByName => PATIENCE,
        }
    }
}

/// Looks at providers, all at once.
pub(crate) async fn look(settings: &Settings, offers: Vec<Offer>, asked: Asked) -> Vec<Found> {
    let mut questions = Vec::new();
    let mut states = Vec::new();
    for offer in &offers {
        states.push(match first_look(offer, asked) {
            Look::At(place) => match offer.endpoint(&settings.environment) {
                Ok(endpoint) => {
                    questions.push((endpoint.with_total_limit(asked.limit()), offer.api));
                    Err(place)
                }
                Err(cause) => Ok(State::Wrong(cause)),
            },
            Look::No(state) => Ok(state),
        });
    }
    let mut answers = list_all(&questions).await.into_iter();
    let mut found = Vec::new();
    for (offer, state) in offers.into_iter().zip(states) {
        let (state, listed) = match state {
            Ok(state) => (state, None),
            Err(place) => judged(place, answers.next()),
        };
        let models = known(settings, &offer, listed);
        found.push(Found { offer, state, models });
    }
    found
}

/// What one does with a provider first.
enum Look {
    /// It is asked; this is where it is.
    At(Place),
    /// It is not.
    No(State),
}

fn first_look(offer: &Offer, asked: Asked) -> Look {
    match (Place::of(&offer.name, &offer.base_url), &offer.key) {
        (Err(error), _) => Look::No(State::Wrong(error.to_string())),
        (Ok(_), Key::Missing(variable)) => Look::No(State::NoKey(variable.clone())),
        (Ok(Place::Elsewhere), _) if asked == Asked::AtAGlance => Look::No(State::Ready),
        (Ok(place), _) => Look::At(place),
    }
}

fn judged(place: Place, answer: Option<Result<Vec<Listed>, ListError>>) -> (State, Option<Vec<Listed>>) {
    match (place, answer) {
        (Place::Here, Some(Ok(listed))) => (State::Running(listed.len()), Some(listed)),
        (Place::Elsewhere, Some(Ok(listed))) => (State::Ready, Some(listed)),
        (Place::Here, Some(Err(ListError::Unreachable(_)))) => (State::NotRunning, None),
        (_, Some(Err(error))) => (State::Failed(error.to_string()), None),
        (_, None) => (State::NotRunning, None),
    }
}

/// The models of a provider: those that it listed, or those that the table and the configuration speak of.
fn known(settings: &Settings, offer: &Offer, listed: Option<Vec<Listed>>) -> BTreeMap<String, About> {
    let auth = if offer.key == Key::Unneeded { Auth::Keyless } else { Auth::Keyed };
    let about = |model: &str| settings.prices.about_at(&offer.base_url, &offer.name, model, auth);
    match listed {
        Some(listed) => {
            let with_window = |listed: Listed| {
                let about = about(&listed.name);
                (listed.name, About { window: about.window.or(listed.window), ..about })
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
fn chosen<'a>(settings: &Settings, found: &'a [Found]) -> Option<&'a Found> {
    let of_model = settings.model.as_deref().and_then(|model| model.split('/').next());
    let is_used = |found: &&Found| Some(found.offer.name.as_str()) == of_model;
    let is_own = |found: &&Found| !Providers::is_built_in(&found.offer.name);
    found.iter().find(is_used).or_else(|| found.iter().find(is_own))
}

/// The shortest way to get going, where nothing can be used, and what went wrong with what was asked for.
fn advice(settings: &Settings, found: &[Found], asked: Asked) -> Option<String> {
    if found.iter().any(|found| found.state.is_usable()) {
        return None;
    }
    let ollama = found.iter().find(|found| found.offer.name == "ollama").map(|found| &found.state);
    let start = match ollama {
        Some(State::Running(_)) => "fetch a model for Ollama (ollama pull qwen3)",
        _ => "start Ollama",
    };
    match (asked, found) {
        (Asked::ByName, [found]) => Some(match &found.state {
            State::NoKey(variable) => format!("set {variable} to use {}", found.offer.name),
            State::NotRunning => format!("start {} to use its models", found.offer.name),
            State::Running(_) => format!("{} has no models yet; fetch one", found.offer.name),
            State::Failed(cause) | State::Wrong(cause) => cause.clone(),
            State::Ready => return None,
        }),
        _ if let Some(chosen) = chosen(settings, found) => {
            let name = &chosen.offer.name;
            Some(match &chosen.state {
                State::NoKey(variable) => format!("No model can be used yet: set {variable} to use {name}"),
                State::NotRunning => format!(
                    "No model can be used yet: start {name}, or correct providers.{name}.base_url in your configuration"
                ),
                State::Running(_) | State::Ready => format!("No model can be used yet: {name} has none"),
                State::Failed(cause) | State::Wrong(cause) => format!("No model can be used yet: {cause}"),
            })
        }
        _ => Some(format!(
            "No model can be used yet: set ANTHROPIC_API_KEY or {start}; brigade demo works without either"
        )),
    }
}
