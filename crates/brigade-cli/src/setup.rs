//! Builds the parts of a run from the settings: store, models, tools and runtime.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade::agents::{AgentCatalog, ProblemKind};
use brigade::mcp::{DEFAULT_START_TIMEOUT, ServerProblem, Servers};
use brigade::model::ModelUnavailable;
use brigade::model::passthrough::{self, Passthrough};
use brigade::model::script::Script;
use brigade::sandbox::SandboxMode;
use brigade::store::{MemoryStore, SqliteStore};
use brigade::tool::{Memory, SandboxedShell, ShellSettings};
use brigade::{
    Model, Models, ResumeOptions, Runtime, SessionInfo, Store, Toolbox, Workspace, known_tools,
    unmatched_rule,
};
use brigade_acp::client::Acp;
use brigade_core::SessionId;
use brigade_core::permission::Permissions;
use brigade_sandbox::GuardCommand;

use crate::args::{Flags, Global};
use crate::environment_context;
use crate::error::CliError;
use crate::output;
use crate::presets;
use crate::project_context;
use crate::redaction;
use crate::sanitize;
use crate::settings::{Instructions, SCRIPT_PREFIX, Settings, StoreAddress, StoreOrigin, did_you_mean};
use crate::units;

/// Maximum bytes of command output that a model reads.
const MAX_SHELL_OUTPUT_BYTES: usize = 32 * 1024;
/// Maximum number of unusable agent files that are reported before a run.
const MAX_SHOWN_PROBLEMS: usize = 3;
/// Time that MCP servers may take to start before the user is told about the wait.
const START_NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Opens or creates the store. Reports a new store, unless it is at the default path.
pub(crate) fn open_store(settings: &Settings) -> Result<Arc<dyn Store>, CliError> {
    let is_new = is_missing(&settings.store);
    let store = open_address(&settings.store, StoreAccess::Write)?;
    if is_new && settings.store_origin == StoreOrigin::Named {
        output::note(&format!("Created a new session store: {}", settings.store));
    }
    Ok(store)
}

/// Opens the store for a command that needs an existing session. Does not create it.
pub(crate) fn open_existing_store(settings: &Settings) -> Result<Arc<dyn Store>, CliError> {
    if !is_missing(&settings.store) {
        return open_store(settings);
    }
    match settings.store_origin {
        StoreOrigin::Default => Ok(Arc::new(MemoryStore::new())),
        StoreOrigin::Named => Err(CliError::usage(format!(
            "cannot open the session store {}: it does not exist. Check --store, or `store` in the configuration.",
            settings.store
        ))),
    }
}

/// Opens the store read-only, so that it can be read without write permission, or while a writing process is stopped. A
/// store that does not exist yet is empty.
pub(crate) fn open_store_read_only(settings: &Settings) -> Result<Arc<dyn Store>, CliError> {
    redaction::set(redaction::of_settings(settings));
    let is_missing = is_missing(&settings.store);
    if is_missing && settings.store_origin == StoreOrigin::Named {
        output::note(&format!("warning: the session store {} does not exist", settings.store));
    }
    match is_missing {
        true => Ok(Arc::new(MemoryStore::new())),
        false => open_address(&settings.store, StoreAccess::Read),
    }
}

/// Use of a store by a command.
#[derive(Debug, Clone, Copy)]
enum StoreAccess {
    /// Reads and writes. A missing store is created.
    Write,
    /// Only reads an existing store.
    Read,
}

/// Opens the store at an address.
fn open_address(address: &StoreAddress, access: StoreAccess) -> Result<Arc<dyn Store>, CliError> {
    let StoreAddress::File(path) = address;
    match access {
        StoreAccess::Write => Ok(Arc::new(SqliteStore::open(path)?)),
        StoreAccess::Read => match SqliteStore::open_read_only(path)? {
            Some(store) => Ok(Arc::new(store)),
            None => Ok(Arc::new(MemoryStore::new())),
        },
    }
}

fn is_missing(address: &StoreAddress) -> bool {
    let StoreAddress::File(path) = address;
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Settings of the folder that a session works in, unless the user names another folder.
pub(crate) async fn settings_for_session(
    global: &Global,
    flags: &Flags,
    store: &dyn Store,
    session: &SessionId,
) -> Result<Settings, CliError> {
    if flags.cwd.is_none()
        && let Some(folder) = session_folder(store, session).await?
    {
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(CliError::usage(format!(
                "cannot continue {session}: its directory {folder} no longer exists. Choose another with --cwd."
            )));
        }
        let flags = Flags { cwd: Some(folder), ..flags.clone() };
        return Settings::load_for_run(global, &flags);
    }
    Settings::load_for_run(global, flags)
}

/// Folder of the session's last round. The folder of an imported round is ignored.
pub(crate) async fn session_folder(
    store: &dyn Store,
    session: &SessionId,
) -> Result<Option<PathBuf>, CliError> {
    Ok(SessionInfo::read(store, session).await?.and_then(|info| info.workspace()))
}

/// Creates a runtime with its store, settings, models and MCP tools.
pub(crate) async fn runtime(
    settings: &Settings,
    store: Arc<dyn Store>,
    servers: &Servers,
) -> Result<Runtime, CliError> {
    let mut library = run_settings(settings, &*store).await?;
    library.tools = library.tools.with_servers(servers);
    Ok(Runtime::new(store, library, models(settings)))
}

/// Runtime for a command that controls a stored session, in the directory of that session if it still exists.
pub(crate) async fn control_runtime(
    mut settings: Settings,
    store: Arc<dyn Store>,
    session: &SessionId,
) -> Result<Runtime, CliError> {
    // Nothing is sent to an agent here.
    settings.instructions = Instructions::None;
    // A session can be controlled even if its folder no longer exists.
    if let Some(folder) = session_folder(&*store, session).await?.filter(|folder| folder.is_dir()) {
        settings.folder = folder;
    }
    runtime(&settings, store, &Servers::default()).await
}

/// Opens a directory as a workspace.
pub(crate) fn open_workspace(folder: &Path) -> Result<Workspace, CliError> {
    Workspace::open(folder)
        .map_err(|error| CliError::usage(format!("cannot use the directory {}: {error}", folder.display())))
}

/// Library settings with instructions, environment and external agents.
pub(crate) async fn run_settings(
    settings: &Settings,
    store: &dyn Store,
) -> Result<brigade::Settings, CliError> {
    let mut library = library_settings(settings)?;
    if settings.instructions == Instructions::Project {
        let instructions = project_context::instructions(settings, store).await?;
        instructions.warn_once();
        library.instructions = instructions.text;
        library.environment = Some(environment_context::environment(settings).await);
        warn_if_unconfined(settings);
    }
    if !settings.acp.is_empty() {
        let (acp, problems) = external_agents(settings)?;
        for (name, what) in problems {
            output::note(&sanitize::line(&format!(
                "warning: cannot use the external agent '{name}': {what}"
            )));
        }
        library.external = Some(Arc::new(acp));
    }
    Ok(library)
}

/// Warns about a run whose commands are not confined, or confined less than usual.
fn warn_if_unconfined(settings: &Settings) {
    if settings.sandbox.mode == SandboxMode::Off {
        output::warn_once(
            "the sandbox is off: commands of agents run with all your permissions (`sandbox.mode`)",
        );
        return;
    }
    // Trying takes a millisecond, which the run does not wait for.
    tokio::task::spawn_blocking(|| {
        if !brigade_sandbox::namespaces_work() {
            output::warn_once(
                "user namespaces are not available, so the sandbox protects less. For details, run: brigade doctor",
            );
        }
    });
}

/// External agents, and the problems of those that cannot be used. Does not start them.
pub(crate) fn external_agents(settings: &Settings) -> Result<(Acp, Vec<(String, String)>), CliError> {
    let (servers, problems) = settings.acp_servers(&guard_command()?);
    Ok((Acp::redacting(servers, redaction::of_settings(settings)), problems))
}

/// Starts the MCP servers. Problems are reported, and the run continues without the affected servers.
pub(crate) async fn start_mcp_servers(settings: &Settings) -> Result<Servers, CliError> {
    let (servers, problems) = try_start_mcp_servers(settings).await?;
    for problem in problems {
        output::note(&sanitize::line(&format!("warning: {problem}")));
    }
    Ok(servers)
}

/// Starts the MCP servers. Returns them with all problems.
pub(crate) async fn try_start_mcp_servers(
    settings: &Settings,
) -> Result<(Servers, Vec<ServerProblem>), CliError> {
    if settings.servers.is_empty() {
        return Ok((Servers::default(), Vec::new()));
    }
    let (definitions, mut problems) = settings.mcp_definitions(&guard_command()?);
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
    let waiting = format!(
        "waiting up to {} seconds for MCP servers to start: {}",
        DEFAULT_START_TIMEOUT.as_secs(),
        names.join(", ")
    );
    let mut starting = std::pin::pin!(Servers::start(definitions));
    let servers = match tokio::time::timeout(START_NOTICE_DELAY, &mut starting).await {
        Ok(servers) => servers,
        Err(_) => {
            output::note(&sanitize::line(&waiting));
            starting.await
        }
    };
    problems.extend(servers.problems().iter().cloned());
    Ok((servers, problems))
}

/// Library settings without instructions, environment and external agents.
pub(crate) fn library_settings(settings: &Settings) -> Result<brigade::Settings, CliError> {
    if !settings.folder.is_dir() {
        let folder = settings.folder.display();
        return Err(CliError::usage(format!(
            "{folder} does not exist or is not a directory. Choose another with --cwd."
        )));
    }
    let workspace = open_workspace(&settings.folder)?;
    let shell = ShellSettings {
        guard: guard_command()?,
        directory: workspace.root().to_path_buf(),
        environment: settings.command_environment(),
        time_limit: settings.shell_timeout,
        output_limit: MAX_SHELL_OUTPUT_BYTES,
    };
    let mut library = brigade::Settings::new(settings.model.clone().unwrap_or_default(), workspace);
    library.fallbacks.clone_from(&settings.fallbacks);
    library.tools = library.tools.with_web(settings.web.to_web_settings(&settings.environment)?);
    check_rules(&settings.permissions, &library.tools)?;
    if let Some(file) = &settings.memory {
        library.tools = library.tools.with_memory(Memory::at(file));
    }
    library.skills = project_context::skills(settings);
    library.delegation_styles = settings.delegation_styles.clone();
    let unknown = presets::unknown_tools(settings, &library.tools);
    for warning in library.delegation_styles.warnings().into_iter().chain(unknown) {
        output::note(&format!("warning: {}", sanitize::line(&warning)));
    }
    library.limits = settings.limits.clone();
    library.budget = settings.budget;
    library.permissions = settings.permissions.clone();
    library.mode_origin = settings.mode_origin();
    library.approval_policy = settings.approval_policy;
    library.shell = Some(shell);
    library.sandbox = settings.sandbox.clone();
    if settings.sandbox.mode != SandboxMode::Off {
        library.tools = library.tools.with(SandboxedShell);
    }
    library.agents = agents(settings);
    library.redactor = redaction::of_settings(settings);
    redaction::set(library.redactor.clone());
    Ok(library)
}

/// Loads the agent definitions. Unusable files are reported and skipped.
fn agents(settings: &Settings) -> AgentCatalog {
    let pinned = settings.pinned_files();
    let (catalogue, mut problems) = AgentCatalog::from_pinned_folders(&settings.agent_dirs(), pinned);
    problems.retain(|problem| problem.kind != ProblemKind::Shadowed);
    for problem in problems.iter().take(MAX_SHOWN_PROBLEMS) {
        output::note(&format!("warning: {problem}"));
    }
    if problems.len() > MAX_SHOWN_PROBLEMS {
        let more = problems.len() - MAX_SHOWN_PROBLEMS;
        let files = units::count(more, "more agent file");
        output::note(&format!(
            "warning: {files} cannot be used. List all problems with: brigade agents list"
        ));
    }
    catalogue
}

/// Checks that every permission rule names a known tool. A rule for an unknown tool would silently protect nothing.
pub(crate) fn check_rules(permissions: &Permissions, tools: &Toolbox) -> Result<(), CliError> {
    let Some((list, rule)) = unmatched_rule(permissions, tools) else { return Ok(()) };
    let known = known_tools(tools);
    let near = did_you_mean(rule.tool(), known.iter().copied());
    let fix = match (rule.builtin_equivalent(), near) {
        (Some(instead), _) => format!("Use {instead}."),
        (None, Some(near)) => format!("Did you mean `{near}`?"),
        (None, None) => format!("Known tools: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(CliError::usage(format!("permissions.{list}: unknown tool in the rule `{rule}`. {fix}")))
}

/// Command line that starts this executable as a guard.
pub(crate) fn guard_command() -> Result<GuardCommand, CliError> {
    let program: PathBuf = std::env::current_exe().map_err(|error| {
        CliError::failed(format!("cannot determine the path of the brigade executable: {error}"))
    })?;
    Ok(GuardCommand { program, arguments: vec![OsString::from(crate::GUARD_ARG)] })
}

/// Models by name: those of providers, scripts and the demo.
pub(crate) fn models(settings: &Settings) -> Models {
    let (providers, environment) = (settings.providers.clone(), settings.environment.clone());
    let prices = settings.prices.clone();
    let names: Vec<String> = providers.names().map(str::to_owned).collect();
    let models = Models::default().with(passthrough::PROVIDER, Passthrough).with_providers(
        names,
        move |name, endpoint_override| {
            let model = providers.model(name, endpoint_override, &environment, &prices);
            model.map_err(|error| error.to_string().into())
        },
    );
    let loaded: Mutex<HashMap<String, Arc<dyn Model>>> = Mutex::default();
    models.with_resolver(move |name| {
        let file = name.strip_prefix(SCRIPT_PREFIX)?;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = loaded.get(name) {
            return Some(Ok(model.clone()));
        }
        let script = load_script(Path::new(file)).map(|script| {
            let model: Arc<dyn Model> = Arc::new(script);
            loaded.insert(name.to_owned(), model.clone());
            model
        });
        Some(script.map_err(ModelUnavailable::from))
    })
}

/// Checks that the configured model can be resolved. Sends no request.
pub(crate) fn check_model(settings: &Settings) -> Result<(), CliError> {
    let Some(name) = &settings.model else { return Ok(()) };
    models(settings).choose(name).map(|_| ()).map_err(CliError::usage)
}

fn load_script(file: &Path) -> Result<Script, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read the script {}: {error}", file.display()))?;
    Script::parse(&text).map_err(|error| format!("cannot parse the script {}: {error}", file.display()))
}

/// Limits of the next round.
pub(crate) fn resume_options(settings: &Settings, flags: &Flags) -> ResumeOptions {
    ResumeOptions {
        budget: Some(settings.budget),
        turns: Some(settings.limits.lead_turns),
        timeout: flags.timeout,
        model: flags.model.as_ref().and(settings.model.clone()),
        mode: flags.mode,
        remote_context: None,
        continue_cancelled: false,
    }
}

/// Parses a session id.
pub(crate) fn parse_session_id(text: &str) -> Result<SessionId, CliError> {
    text.trim().parse().map_err(CliError::usage)
}

/// Creates a multi-threaded async runtime, for commands that run agents.
pub(crate) fn multi_thread_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    checked_runtime(tokio::runtime::Builder::new_multi_thread().enable_all().build())
}

/// Creates a single-threaded async runtime, for commands that only read.
pub(crate) fn current_thread_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    checked_runtime(tokio::runtime::Builder::new_current_thread().enable_all().build())
}

fn checked_runtime(
    runtime: std::io::Result<tokio::runtime::Runtime>,
) -> Result<tokio::runtime::Runtime, CliError> {
    runtime.map_err(|error| CliError::failed(format!("cannot start the async runtime: {error}")))
}
