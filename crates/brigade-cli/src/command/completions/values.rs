//! Completion values that exist on this machine: sessions, agents and models.

use brigade::AgentCatalog;

use crate::args::Global;
use crate::clock;
use crate::command::models::{self, ProbeScope};
use crate::error::CliError;
use crate::model_hints;
use crate::output;
use crate::render::truncate_at_word;
use crate::sanitize;
use crate::session_ref;
use crate::settings::{LEAD_AGENT, Settings};
use crate::setup;
use crate::units;

/// Maximum number of sessions, the newest first.
const MAX_SESSIONS: usize = 100;
/// Columns of the description of a value.
const MAX_DESCRIPTION_COLUMNS: usize = 60;

/// Kind of completion values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Sessions,
    Agents,
    Models,
}

impl CompletionKind {
    pub(super) const ALL: [CompletionKind; 3] =
        [CompletionKind::Sessions, CompletionKind::Agents, CompletionKind::Models];

    fn name(self) -> &'static str {
        match self {
            CompletionKind::Sessions => "sessions",
            CompletionKind::Agents => "agents",
            CompletionKind::Models => "models",
        }
    }

    /// Placeholder for these values during the generation of a script.
    pub(super) fn marker(self) -> &'static str {
        match self {
            CompletionKind::Sessions => "BRIGADE_COMPLETES_SESSIONS",
            CompletionKind::Agents => "BRIGADE_COMPLETES_AGENTS",
            CompletionKind::Models => "BRIGADE_COMPLETES_MODELS",
        }
    }

    /// Command that lists the values.
    pub(super) fn command(self) -> String {
        format!("brigade {} {} 2>/dev/null", crate::COMPLETE_ARG, self.name())
    }

    /// Zsh function that offers the values.
    pub(super) fn function(self) -> String {
        format!("_brigade_{}", self.name())
    }
}

/// Prints the values of a kind, one per line: the value, a tab and a description. Errors are not printed, because a
/// shell cannot show them during completion.
pub(crate) fn print(kind: &str) {
    let Some(values) = CompletionKind::ALL.into_iter().find(|values| values.name() == kind) else { return };
    let listed = match values {
        CompletionKind::Sessions => sessions(),
        CompletionKind::Agents => agents(),
        CompletionKind::Models => models(),
    };
    let line = |(value, about): (String, String)| {
        format!("{}\t{}\n", sanitize::line(&value), sanitize::line(&about))
    };
    let text: String = listed.unwrap_or_default().into_iter().map(line).collect();
    let _ = output::raw(&text);
}

/// Values with their descriptions.
type CompletionList = Vec<(String, String)>;

fn sessions() -> Result<CompletionList, CliError> {
    let settings = Settings::load_user_only(&Global::default())?;
    let store = setup::open_store_read_only(&settings)?;
    let roots = setup::current_thread_runtime()?.block_on(store.roots())?;
    let now = clock::now();
    let entry = |summary: brigade::store::RootSummary| {
        let about = summary.first.ok().map(|first| {
            let age = units::format_age(now.saturating_sub(first.at));
            format!(
                "{age} ago: {}",
                truncate_at_word(&session_ref::task(&first.event), MAX_DESCRIPTION_COLUMNS)
            )
        });
        (summary.root.to_string(), about.unwrap_or_default())
    };
    Ok(roots.into_iter().take(MAX_SESSIONS).map(entry).collect())
}

fn agents() -> Result<CompletionList, CliError> {
    let settings = Settings::load(&Global::default())?;
    let (catalogue, _) = AgentCatalog::from_folders(&settings.agent_dirs());
    let defined = catalogue.list().iter();
    let defined = defined.map(|agent| {
        (agent.id.clone(), truncate_at_word(&sanitize::line(&agent.description), MAX_DESCRIPTION_COLUMNS))
    });
    Ok(defined.chain([(LEAD_AGENT.to_owned(), "the built-in agent".to_owned())]).collect())
}

/// Models that can be used now. If there are none, the suggested model of each provider.
fn models() -> Result<CompletionList, CliError> {
    let settings = Settings::load(&Global::default())?;
    let offers = settings.providers.list(&settings.environment);
    let found =
        setup::current_thread_runtime()?.block_on(models::probe(&settings, offers, ProbeScope::LocalOnly));
    let mut listed = CompletionList::new();
    for found in found.iter().filter(|found| found.availability.is_usable()) {
        listed.extend(
            found.models.keys().map(|model| (format!("{}/{model}", found.offer.name), String::new())),
        );
    }
    if listed.is_empty() {
        listed.extend(
            model_hints::providers()
                .filter_map(model_hints::suggested_model)
                .map(|model| (model, String::new())),
        );
    }
    Ok(listed)
}
