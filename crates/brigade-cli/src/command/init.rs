//! `brigade init`: creates a configuration file, after two questions.

mod questions;
mod template;

use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brigade::model::Endpoint;
use brigade_core::permission::Mode;
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::command::models::{self, Availability, ProbeScope, ProviderStatus};
use crate::error::{CliError, Exit, without_temporary_path};
use crate::model_hints;
use crate::output;
use crate::private_files;
use crate::render::pad;
use crate::sanitize;
use crate::settings::{ApiKey, SCRIPT_PREFIX, Settings};
use crate::setup;
use crate::summary::shell_quoted;
use crate::terminal;
use crate::units;
use questions::{Choice, Menu, ModelAnswer, Server};

const HELP: &str = "\
Examples:
  brigade init                                       asks two questions
  brigade init --yes                                 uses the first available model, asks nothing
  brigade init --model ollama/qwen3 --mode edit      sets both, asks nothing
  brigade init --project --model ollama/qwen3 --yes  settings of this directory, for all users

The file is $BRIGADE_HOME/config.toml, or brigade/config.toml in your XDG config
directory. With --project it is .brigade/config.toml of this directory.";

/// Create a configuration file
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct InitArgs {
    /// Model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Calls that run without approval: plan (reads, and commands whose changes are discarded; all others are denied), ask
    /// (reads), edit (reads, file edits, and commands in a sandbox), auto (all calls that no deny or ask rule matches)
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Write .brigade/config.toml of this directory instead of your own configuration
    #[arg(long)]
    pub(crate) project: bool,
    /// Replace an existing configuration; a backup is kept next to it
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask nothing: use the first available model and mode edit
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Name of the provider for the user's own server.
const CUSTOM: &str = "custom";
/// Maximum number of models per server in the menu.
const MAX_MODELS_PER_SERVER: usize = 8;

/// Owner of the configuration that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigScope {
    /// The user.
    User,
    /// The project in the working folder.
    Project,
}

/// Values for the file.
struct Answers {
    model: Option<String>,
    mode: Option<Mode>,
    /// The user's own model server, if one was added.
    server: Option<Server>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, init: InitArgs) -> Result<Exit, CliError> {
    let scope = if init.project { ConfigScope::Project } else { ConfigScope::User };
    // The existing file is not loaded, so that an invalid one can be replaced too.
    let settings = match scope {
        ConfigScope::User => Settings::load_defaults(global)?,
        ConfigScope::Project => Settings::load_user_only(global)?,
    };
    let file = match scope {
        ConfigScope::User => settings.config_file.clone(),
        ConfigScope::Project => settings.folder.join(".brigade/config.toml").components().collect(),
    };
    if scope == ConfigScope::Project && is_user_home(&settings) {
        return Err(CliError::usage(format!(
            "cannot use --project in {}: it is your home directory, not a project. Change to a project directory, or omit --project.",
            settings.folder.display()
        )));
    }
    let existing = existing_files(&file);
    if let Some(existing) = existing.first().filter(|_| !init.force) {
        return Err(already_exists(existing, scope));
    }
    if let Some(model) = &init.model {
        check(&settings, model).map_err(CliError::usage)?;
    }
    let Some(mut answers) = answers(&settings, scope, &init)? else {
        output::note("Nothing was written. To try Brigade without a model: brigade demo");
        return Ok(Exit::Cancelled);
    };
    if scope == ConfigScope::User {
        // The user's file applies in every folder; that of a project is read from its root.
        answers.model = answers.model.map(|model| settings.environment.absolute_model(&model)).transpose()?;
    }
    let text = template::config(scope, answers.model.as_deref(), answers.mode, answers.server.as_ref());
    let backups = write(&file, &text, scope, &existing)?;
    report(global, &settings, scope, &file, &answers, &backups)?;
    Ok(Exit::Done)
}

/// Whether the folder is the user's home, in which no project settings are searched for.
fn is_user_home(settings: &Settings) -> bool {
    settings.folder.canonicalize().is_ok_and(|folder| settings.environment.is_user_home(&folder))
}

/// Existing configuration files of a folder: TOML and JSON.
fn existing_files(file: &Path) -> Vec<PathBuf> {
    let both = [file.to_path_buf(), file.with_extension("json")];
    both.into_iter().filter(|file| file.symlink_metadata().is_ok()).collect()
}

fn already_exists(file: &Path, scope: ConfigScope) -> CliError {
    let again = match scope {
        ConfigScope::User => "brigade init --force",
        ConfigScope::Project => "brigade init --project --force",
    };
    CliError::usage(format!(
        "cannot create a configuration: {} already exists.\n\
         Show the configuration with: brigade config show\n\
         Replace it and keep a backup with: {again}",
        file.display()
    ))
}

/// Values from flags, detection and prompts. None if the user chose no model or the input ended.
fn answers(settings: &Settings, scope: ConfigScope, init: &InitArgs) -> Result<Option<Answers>, CliError> {
    let InitArgs { model, mode, .. } = init;
    let from_flags = Answers { model: model.clone(), mode: *mode, server: None };
    if model.is_some() && mode.is_some() {
        return Ok(Some(from_flags));
    }
    let is_interactive = !init.yes && terminal::can_prompt();
    // A project does not set what was not decided for everyone.
    if scope == ConfigScope::Project && !is_interactive {
        return Ok(Some(from_flags));
    }
    let menu = if model.is_some() { Menu::default() } else { menu(settings, scope)? };
    if !is_interactive {
        if model.is_none() && !menu.is_ready {
            return Err(no_usable_model(&menu));
        }
        let first = menu.choices.into_iter().next().map(|choice| choice.model);
        return Ok(Some(Answers {
            model: model.clone().or(first),
            mode: Some(mode.unwrap_or(questions::DEFAULT_MODE)),
            server: None,
        }));
    }
    ask_user(settings, scope, from_flags, &menu)
}

/// Prompts for the values that no flag sets.
fn ask_user(
    settings: &Settings,
    scope: ConfigScope,
    mut answers: Answers,
    menu: &Menu,
) -> Result<Option<Answers>, CliError> {
    let unreadable = |error| CliError::failed(format!("cannot read the answer: {error}"));
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stderr().lock());
    if answers.model.is_none() {
        let check = |name: &str| check(settings, name);
        let picked = questions::model(menu, &check, &check_address, &mut input, &mut output);
        match picked.map_err(unreadable)? {
            Some(ModelAnswer::Model(model)) => answers.model = Some(model),
            Some(ModelAnswer::Server(server)) => {
                answers.model = Some(format!("{CUSTOM}/{}", server.model));
                answers.server = Some(server);
            }
            Some(ModelAnswer::Skipped) if scope == ConfigScope::Project => {}
            Some(ModelAnswer::Skipped) | None => return Ok(None),
        }
    }
    if answers.mode.is_none() {
        match questions::mode(terminal::stderr_columns(), &mut input, &mut output).map_err(unreadable)? {
            Some(mode) => answers.mode = Some(mode),
            None => return Ok(None),
        }
    }
    Ok(Some(answers))
}

/// Error for a setup without a usable model.
fn no_usable_model(menu: &Menu) -> CliError {
    let rows: Vec<_> = menu.choices.iter().chain(&menu.others).collect();
    let width = rows.iter().map(|row| row.model.chars().count()).max().unwrap_or(0);
    let mut text = String::from(
        "cannot choose a model: no provider key is set, and no model server is running on this machine. Set up one of these, or pass a model with --model:",
    );
    for row in rows {
        text.push_str(&format!(
            "\n  {}  {}",
            pad(&sanitize::line(&row.model), width),
            sanitize::line(&row.why)
        ));
    }
    CliError::usage(text).hint("Nothing was written. To try Brigade without a model: brigade demo")
}

/// Checks that a text can be the address of a server.
fn check_address(text: &str) -> Result<(), String> {
    Endpoint::new(CUSTOM, text, None).map(drop).map_err(|error| error.to_string())
}

/// Checks that a name can be a model name here.
fn check(settings: &Settings, name: &str) -> Result<(), String> {
    if name.starts_with(SCRIPT_PREFIX) {
        return settings.environment.absolute_model(name).map(drop).map_err(|failure| failure.to_string());
    }
    let Some((provider, _)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
        return Err(format!(
            "'{name}' is not a model name. {}",
            model_hints::hint_for_name(settings, name.trim_end_matches('/'))
        ));
    };
    if settings.providers.address(provider).is_none() {
        return Err(settings.providers.unknown(provider));
    }
    Ok(())
}

/// Models that can be used now: those of providers whose key is set, and of servers that respond. If there are none,
/// all providers with their requirements.
fn menu(settings: &Settings, scope: ConfigScope) -> Result<Menu, CliError> {
    let offers = settings.providers.list(&settings.environment);
    let found =
        setup::current_thread_runtime()?.block_on(models::probe(settings, offers, ProbeScope::LocalOnly));
    let mut menu = Menu { choices: ready(&found), ..Menu::default() };
    menu.is_ready = !menu.choices.is_empty();
    menu.columns = terminal::stderr_columns();
    // A project may not define servers.
    menu.offers_server = scope == ConfigScope::User;
    if !menu.is_ready {
        (menu.choices, menu.others) = needs(&found);
    }
    Ok(menu)
}

fn ready(found: &[ProviderStatus]) -> Vec<Choice> {
    let mut keys = Vec::new();
    let mut choices = Vec::new();
    for provider in model_hints::providers() {
        let Some(found) = found.iter().find(|found| found.offer.name == provider) else { continue };
        if let (Availability::Ready, ApiKey::Set(variable), Some(model)) =
            (&found.availability, &found.offer.key, model_hints::suggested_model(provider))
            && !keys.contains(variable)
        {
            choices.push(Choice { why: why(found, variable, &model), model });
            keys.push(variable.clone());
        }
    }
    for found in found.iter().filter(|found| matches!(found.availability, Availability::Running(_))) {
        let why = format!("on this machine, at {}", found.offer.base_url);
        let names = found.models.keys().take(MAX_MODELS_PER_SERVER);
        choices.extend(
            names.map(|name| Choice { model: format!("{}/{name}", found.offer.name), why: why.clone() }),
        );
    }
    choices
}

/// Requirements of each provider: those with a suggested model, and the others.
fn needs(found: &[ProviderStatus]) -> (Vec<Choice>, Vec<Choice>) {
    let mut keys = Vec::new();
    let (mut choices, mut others) = (Vec::new(), Vec::new());
    let rank = |found: &&ProviderStatus| model_hints::providers().position(|name| name == found.offer.name);
    let mut found: Vec<&ProviderStatus> = found.iter().collect();
    found.sort_by_key(|found| rank(found).unwrap_or(usize::MAX));
    for ProviderStatus { offer, availability, .. } in found {
        let suggested = model_hints::suggested_model(&offer.name);
        let why = match (availability, &suggested) {
            (Availability::NoKey(variable), _) if keys.contains(variable) => continue,
            (Availability::NoKey(variable), _) => {
                keys.push(variable.clone());
                format!("needs a key in {variable}")
            }
            (Availability::Running(_), _) => format!("running at {}, no model installed yet", offer.base_url),
            (Availability::NotRunning, Some(model)) => {
                let name = model.split_once('/').map_or("", |(_, name)| name);
                format!("needs a server at {} (ollama serve, then ollama pull {name})", offer.base_url)
            }
            (Availability::NotRunning, None) => format!("needs a server at {}", offer.base_url),
            (Availability::Failed(cause) | Availability::Misconfigured(cause), _) => cause.clone(),
            (Availability::Ready, _) => "ready".to_owned(),
        };
        match suggested {
            Some(model) => choices.push(Choice { model, why }),
            None => others.push(Choice { model: format!("{}/MODEL", offer.name), why }),
        }
    }
    (choices, others)
}

fn why(found: &ProviderStatus, variable: &str, model: &str) -> String {
    let name = model.split_once('/').map_or(model, |(_, name)| name);
    let price = found.models.get(name).and_then(|about| about.price);
    let price = price.map_or_else(String::new, |price| {
        let [input, output] = [price.input, price.output].map(units::format_price);
        format!("; ${input} input, ${output} output per million tokens")
    });
    format!("{variable} is set{price}")
}

/// Writes the file atomically and returns the backups of the files that it replaces. Those are moved only after the
/// new file is on disk.
fn write(
    file: &Path,
    text: &str,
    scope: ConfigScope,
    existing: &[PathBuf],
) -> Result<Vec<PathBuf>, CliError> {
    let failed = |error: std::io::Error| unwritable(file, scope, &error);
    let folder = file.parent().unwrap_or(Path::new("."));
    // A project is shared with others, so the umask decides.
    let (created, rights) = match scope {
        ConfigScope::User => (private_files::create_directory(folder), 0o600),
        ConfigScope::Project => (std::fs::create_dir_all(folder), 0o666),
    };
    created.map_err(failed)?;
    let mut new = tempfile::Builder::new()
        .prefix(".config-")
        .permissions(Permissions::from_mode(rights))
        .tempfile_in(folder)
        .map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    new.as_file().sync_all().map_err(failed)?;
    let backups = back_up(existing, scope)?;
    new.persist_noclobber(file).map_err(|error| failed(error.error))?;
    Ok(backups)
}

/// Renames existing files, and returns the new paths.
fn back_up(files: &[PathBuf], scope: ConfigScope) -> Result<Vec<PathBuf>, CliError> {
    let mut backups = Vec::new();
    for file in files {
        let mut name = file.clone().into_os_string();
        name.push(".bak");
        let backup = PathBuf::from(name);
        std::fs::rename(file, &backup).map_err(|error| unwritable(&backup, scope, &error))?;
        backups.push(backup);
    }
    Ok(backups)
}

fn unwritable(file: &Path, scope: ConfigScope, error: &std::io::Error) -> CliError {
    let fix = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Free some disk space",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "Make its directory writable",
        _ => "Check its directory",
    };
    let other = match scope {
        ConfigScope::User => ", or set BRIGADE_HOME to another directory",
        ConfigScope::Project => "",
    };
    CliError::failed(format!(
        "cannot write {}: {}. {fix}{other}.",
        file.display(),
        without_temporary_path(error)
    ))
}

fn report(
    global: &Global,
    settings: &Settings,
    scope: ConfigScope,
    file: &Path,
    answers: &Answers,
    backups: &[PathBuf],
) -> Result<(), CliError> {
    let next = next(settings, scope);
    if global.output_format != OutputFormat::Text {
        return output::json(&json!({
            "type": "init",
            "file": file,
            "model": answers.model,
            "mode": answers.mode.map(Mode::as_str),
            "kept": backups,
            "next": next,
        }));
    }
    output::text(&sanitize::path(file))?;
    for backups in backups {
        output::note(&format!("The previous configuration was saved as {}.", backups.display()));
    }
    let not_set = "set by each user".to_owned();
    let model = answers.model.as_deref().map_or_else(|| not_set.clone(), sanitize::line);
    output::note(&format!(
        "Model: {model}. Mode: {}.",
        answers.mode.map_or(not_set, |mode| mode.to_string())
    ));
    if let Some(variable) = missing_key(settings, answers) {
        output::note(&format!("This model needs a key. Before the first run: export {variable}=..."));
    }
    output::note(&format!("Next: {next}"));
    Ok(())
}

/// Variable that should hold the key of the chosen model, if it is not set.
fn missing_key(settings: &Settings, answers: &Answers) -> Option<String> {
    if let Some(server) = &answers.server {
        return server.key.clone().filter(|variable| settings.environment.secret(variable).is_none());
    }
    let (provider, _) = answers.model.as_deref()?.split_once('/')?;
    let offers = settings.providers.list(&settings.environment);
    match offers.into_iter().find(|offer| offer.name == provider)?.key {
        ApiKey::Missing(variable) => Some(variable),
        ApiKey::NotNeeded | ApiKey::Set(_) => None,
    }
}

/// Suggested next command.
fn next(settings: &Settings, scope: ConfigScope) -> String {
    match scope {
        ConfigScope::Project => {
            format!("brigade trust {}", shell_quoted(&settings.folder.display().to_string()))
        }
        ConfigScope::User => "brigade run \"What is in this directory?\"".to_owned(),
    }
}
