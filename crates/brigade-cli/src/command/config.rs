//! `brigade config`: shows the effective configuration, and prints its schema.

use std::collections::BTreeMap;

use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::sanitize;
use crate::settings::{self, Settings};

/// Show the configuration
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Subcommands of `config`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show all effective values and their origins
    Show,
    /// Print the JSON Schema of config.toml and config.json, for completion and checks in editors
    Schema,
}

/// Runs the command.
pub(crate) fn run(global: &Global, config: &ConfigArgs) -> Result<Exit, CliError> {
    match config.command {
        ConfigCommand::Show => show(global),
        ConfigCommand::Schema => schema(global),
    }
}

/// Prints the schema, which does not depend on the configuration.
fn schema(global: &Global) -> Result<Exit, CliError> {
    let schema = settings::schema()?;
    match global.output_format {
        OutputFormat::Text => output::text(&format!("{schema:#}"))?,
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&schema)?,
    }
    Ok(Exit::Done)
}

fn show(global: &Global) -> Result<Exit, CliError> {
    let settings = Settings::load(global)?;
    let layers = settings.layers.without_secrets();
    let config_file = settings.existing_config_file();
    match global.output_format {
        OutputFormat::Text => {
            let project = settings.project.map_or_else(String::new, |project| {
                format!("# trusted project: {}\n", sanitize::path(&project.root))
            });
            let (file, store) = (config_file.display(), settings.store);
            let head = format!("# configuration: {file}\n{project}# sessions: {store}\n\n");
            output::text(&format!("{head}{}", layers.render()))?;
        }
        OutputFormat::Json | OutputFormat::StreamJson => {
            let origins: BTreeMap<String, &str> = layers.origins().collect();
            output::json(&json!({
                "config": layers.table(),
                "origins": origins,
                "config_file": config_file,
                "project": settings.project.map(|project| project.root),
                "store": settings.store,
            }))?;
        }
    }
    Ok(Exit::Done)
}
