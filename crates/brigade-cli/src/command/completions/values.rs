//! Values that a shell completes: what exists on this machine.

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

/// The most sessions that are offered, the newest first.
const MAX_SESSIONS: usize = 100;
/// Columns of the description of a value.
const MAX_DESCRIPTION_COLUMNS: usize = 60;

/// A kind of values.
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

    /// The text that stands for these values while a script is generated.
    pub(super) fn marker(self) -> &'static str {
        match self {
            CompletionKind::Sessions => "BRIGADE_COMPLETES_SESSIONS",
            CompletionKind::Agents => "BRIGADE_COMPLETES_AGENTS",
            CompletionKind::Models => "BRIGADE_COMPLETES_MODELS",
        }
    }

    /// The command that lists them.
    pub(super) fn command(self) -> String {
        format!("brigade {} {} 2>/dev/null", crate::COMPLETE_ARG, self.name())
    }

    /// The zsh function that offers them.
    pub(super) fn function(self) -> String {
        format!("_brigade_{}", self.name())
    }
}

/// Prints the values of a kind, one a line: the value, a tab, and a description. A shell shows no errors while the user
/// types, so there are none.
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

/// The models that can be used now; if there are none, one of each provider.
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
