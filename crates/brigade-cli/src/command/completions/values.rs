//! Values that a shell completes: what exists on this machine.

use brigade::Catalogue;

use crate::args::Global;
use crate::clock;
use crate::command::models::{self, Asked};
use crate::engine;
use crate::failure::Failure;
use crate::named;
use crate::output;
use crate::render::shortened;
use crate::safe;
use crate::settings::{LEAD, Settings};
use crate::suggest;
use crate::units;

/// The most sessions that are offered, the newest first.
const MAX_SESSIONS: usize = 100;
/// Columns of the description of a value.
const MAX_DESCRIPTION: usize = 60;

/// A kind of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    Sessions,
    Agents,
    Models,
}

impl Values {
    pub(super) const ALL: [Values; 3] = [Values::Sessions, Values::Agents, Values::Models];

    fn word(self) -> &'static str {
        match self {
            Values::Sessions => "sessions",
            Values::Agents => "agents",
            Values::Models => "models",
        }
    }

    /// The text that stands for these values while a script is generated.
    pub(super) fn marker(self) -> &'static str {
        match self {
            Values::Sessions => "BRIGADE_COMPLETES_SESSIONS",
            Values::Agents => "BRIGADE_COMPLETES_AGENTS",
            Values::Models => "BRIGADE_COMPLETES_MODELS",
        }
    }

    /// The command that lists them.
    pub(super) fn command(self) -> String {
        format!("brigade {} {} 2>/dev/null", crate::COMPLETE, self.word())
    }

    /// The zsh function that offers them.
    pub(super) fn function(self) -> String {
        format!("_brigade_{}", self.word())
    }
}

/// Prints the values of a kind, one a line: the value, a tab, and a description. A shell shows no errors while the user
/// types, so there are none.
pub(crate) fn print(kind: &str) {
    let Some(values) = Values::ALL.into_iter().find(|values| values.word() == kind) else { return };
    let listed = match values {
        Values::Sessions => sessions(),
        Values::Agents => agents(),
        Values::Models => models(),
    };
    let line = |(value, about): (String, String)| format!("{}\t{}\n", safe::line(&value), safe::line(&about));
    let text: String = listed.unwrap_or_default().into_iter().map(line).collect();
    let _ = output::raw(&text);
}

/// Values with their descriptions.
type Listed = Vec<(String, String)>;

fn sessions() -> Result<Listed, Failure> {
    let settings = Settings::of_the_person(&Global::default())?;
    let store = engine::store_to_read(&settings)?;
    let roots = engine::one_thread()?.block_on(store.roots())?;
    let now = clock::now();
    let entry = |summary: brigade::store::RootSummary| {
        let about = summary.first.ok().map(|first| {
            let age = units::age(now.saturating_sub(first.at));
            format!("{age} ago: {}", shortened(&named::task(&first.event), MAX_DESCRIPTION))
        });
        (summary.root.to_string(), about.unwrap_or_default())
    };
    Ok(roots.into_iter().take(MAX_SESSIONS).map(entry).collect())
}

fn agents() -> Result<Listed, Failure> {
    let settings = Settings::to_look(&Global::default())?;
    let (catalogue, _) = Catalogue::from_places(&settings.agent_places());
    let defined = catalogue.list().iter();
    let defined =
        defined.map(|agent| (agent.id.clone(), shortened(&safe::line(&agent.description), MAX_DESCRIPTION)));
    Ok(defined.chain([(LEAD.to_owned(), "the built-in agent".to_owned())]).collect())
}

/// The models that can be used now; if there are none, one of each provider.
fn models() -> Result<Listed, Failure> {
    let settings = Settings::to_look(&Global::default())?;
    let offers = settings.providers.offers(&settings.environment);
    let found = engine::one_thread()?.block_on(models::look(&settings, offers, Asked::AtAGlance));
    let mut listed = Listed::new();
    for found in found.iter().filter(|found| found.state.is_usable()) {
        listed.extend(
            found.models.keys().map(|model| (format!("{}/{model}", found.offer.name), String::new())),
        );
    }
    if listed.is_empty() {
        listed.extend(suggest::providers().filter_map(suggest::model).map(|model| (model, String::new())));
    }
    Ok(listed)
}
