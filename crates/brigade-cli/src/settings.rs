//! Resolution of the environment, configuration files and flags into [`Settings`], in which nothing is optional any
//! more.
//!
//! This is the only part of Brigade that reads the environment, the home folder and the current folder.

mod acp;
mod agents;
mod diagnose;
mod did_you_mean;
mod environment;
mod keys;
mod layers;
mod prices;
mod project;
mod providers;
mod raw;
mod sandbox;
mod schema;
mod server_sandbox;
mod servers;
mod shell;
mod store_address;
mod values;
mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade::model::PriceList;
use brigade::pinned_files::PinnedFiles;
use brigade::project_files::SKILL_DIRS;
use brigade::sandbox::{SandboxMode, SandboxSettings};
use brigade::{ApprovalPolicy, Limits, ModeOrigin};
use brigade_core::Budget;
use brigade_core::delegation_styles::DelegationStyles;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::permission::Permissions;
use toml::{Table, Value};

use crate::args::{Flags, Global};
use crate::error::CliError;
use crate::trust::{self, TrustedProject};
use crate::units;

use environment::no_home_error;
use raw::{DEFAULT_STORE, QuestionsSetting, RawAgents, RawConfig, RawMemory, RawSkills};

pub(crate) use acp::AcpServer;
pub(crate) use agents::{AgentFolders, PROJECT_AGENTS, agent_dirs};
pub(crate) use diagnose::{Layer, LayerKind, State as LayerState};
pub(crate) use did_you_mean::{closest, did_you_mean};
pub(crate) use environment::{Environment, LogVariables};
pub(crate) use layers::Layers;
pub(crate) use project::ProjectConfig;
pub(crate) use providers::{ApiKey, ProviderInfo, Providers};
pub(crate) use schema::schema;
pub(crate) use servers::Server as McpServer;
pub(crate) use shell::{ShellEnv, Withheld, is_secret_variable};
pub(crate) use store_address::StoreAddress;
pub(crate) use web::Web;

/// Prefix of scripted models, which are read from a file.
pub(crate) const SCRIPT_PREFIX: &str = "script:";
/// Sections of the user's configuration that `eval` uses.
const EVAL_SECTIONS: [&str; 3] = ["model", "providers", "prices"];
/// Built-in agent.
pub(crate) const LEAD_AGENT: &str = "lead";

/// Resolved settings of a command.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Model of agents that do not name one, if it is set.
    pub(crate) model: Option<String>,
    pub(crate) fallbacks: Vec<String>,
    /// Model providers.
    pub(crate) providers: Providers,
    /// Prices and limits of their models.
    pub(crate) prices: PriceList,
    /// Address of the session store.
    pub(crate) store: StoreAddress,
    /// Whether the user chose that address.
    pub(crate) store_origin: StoreOrigin,
    /// Agent that receives the task.
    pub(crate) agent: String,
    /// Delegation styles.
    pub(crate) delegation_styles: DelegationStyles,
    /// Limits of sessions and of the tree.
    pub(crate) limits: Limits,
    /// Maximum duration of a `shell` command.
    pub(crate) shell_timeout: Duration,
    /// Environment of commands.
    pub(crate) shell: ShellEnv,
    /// Sandbox of commands.
    pub(crate) sandbox: Arc<SandboxSettings>,
    /// Budget of a tree.
    pub(crate) budget: Budget,
    /// Permission mode and rules.
    pub(crate) permissions: Permissions,
    /// Policy for approval requests.
    pub(crate) approval_policy: ApprovalPolicy,
    /// Whether approval requests wait for answers from another process.
    pub(crate) waits_for_answers: bool,
    /// Command line of a program that is started when an approval is requested or a run ends.
    pub(crate) notify: Option<String>,
    /// Settings for web access.
    pub(crate) web: Web,
    /// MCP servers.
    pub(crate) servers: Vec<McpServer>,
    /// Folder that contains the OAuth logins to them.
    pub(crate) logins: PathBuf,
    /// External agents.
    pub(crate) acp: Vec<AcpServer>,
    /// Working folder of the tools.
    pub(crate) folder: PathBuf,
    /// Folders with skills. If two skills have the same name, the one in the earlier folder is used.
    pub(crate) skills: Vec<PathBuf>,
    /// File that contains the memory of agents, if it is enabled.
    pub(crate) memory: Option<PathBuf>,
    /// Whether agents get the instructions of the project, and the lead its environment.
    pub(crate) instructions: Instructions,
    /// Folders with agents, apart from the project.
    pub(crate) agent_folders: AgentFolders,
    /// All values with their origins.
    pub(crate) layers: Layers,
    /// Path of the configuration file.
    pub(crate) config_file: PathBuf,
    /// Project of the working folder, if it is trusted. Its agents and skills may be used.
    pub(crate) project: Option<TrustedProject>,
    /// Values read from the environment.
    pub(crate) environment: Environment,
}

/// Origin of the address of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOrigin {
    /// Default path in the user's data folder.
    Default,
    /// `--store`, or `store` in the configuration.
    Named,
}

/// Whether agents follow the instructions of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instructions {
    /// They do, unless their own definition disables it.
    Project,
    /// They do not.
    None,
}

impl Settings {
    /// Loads the settings of a command that runs agents, including those of the project.
    pub(crate) fn load_for_run(global: &Global, flags: &Flags) -> Result<Settings, CliError> {
        let environment = Environment::read()?;
        let project = trust::load_trusted_project(&environment, &folder(&environment, flags))?;
        Settings::from_layers(environment, project, global, flags)
    }

    /// Loads the settings of a read-only command.
    pub(crate) fn load(global: &Global) -> Result<Settings, CliError> {
        Settings::load_for_run(global, &Flags::default())
    }

    /// Loads the settings without any project. This is enough to find a session, whose folder determines the project.
    pub(crate) fn load_user_only(global: &Global) -> Result<Settings, CliError> {
        Settings::from_layers(Environment::read()?, None, global, &Flags::default())
    }

    /// Loads the default settings and the path of the configuration file, for a user who has no configuration yet.
    pub(crate) fn load_defaults(global: &Global) -> Result<Settings, CliError> {
        let environment = Environment::read()?;
        let paths = DefaultPaths::of(&environment)?;
        let mut layers = Layers::defaults()?;
        layers.add_flags(providers::variables(|name| environment.variable(name)))?;
        layers.add_environment(&environment.config_variables)?;
        layers.add_set(&global.set)?;
        Settings::resolve(environment, paths, layers, global, &Flags::default())
    }

    fn from_layers(
        environment: Environment,
        project: Option<TrustedProject>,
        global: &Global,
        flags: &Flags,
    ) -> Result<Settings, CliError> {
        let mut layers = Layers::defaults()?;
        let paths = DefaultPaths::of(&environment)?;
        layers.add_flags(providers::variables(|name| environment.variable(name)))?;
        layers.add_file(&paths.config)?;
        if let Some(project) = &project
            && let Some(config) = ProjectConfig::read(&project.root, &project.files)?
        {
            layers.add_project(&config)?;
        }
        layers.add_environment(&environment.config_variables)?;
        layers.add_set(&global.set)?;
        layers.add_flags(flag_values(flags))?;
        let settings = Settings::resolve(environment, paths, layers, global, flags)?;
        Ok(Settings { project, ..settings })
    }

    /// Settings that no configuration of the user changes, with a store of the demo's own.
    pub(crate) fn load_for_demo(flags: &Flags, store: PathBuf) -> Result<Settings, CliError> {
        let mut layers = Layers::defaults()?;
        layers.add_flags(flag_values(flags))?;
        Settings::isolated(Environment::read()?, layers, flags, store)
    }

    /// Settings of a run of `eval`: the user's model, providers and prices, and the configuration of the task. Nothing
    /// else of the user's configuration counts, so that results can be compared.
    pub(crate) fn load_for_eval(
        global: &Global,
        flags: &Flags,
        task: Table,
        store: PathBuf,
    ) -> Result<Settings, CliError> {
        let environment = Environment::read()?;
        let section =
            |setting: &String| setting.split(['.', '=']).next().unwrap_or_default().trim().to_owned();
        if let Some(other) = global.set.iter().find(|set| !EVAL_SECTIONS.contains(&section(set).as_str())) {
            return Err(CliError::usage(format!(
                "cannot use --set {other} with eval: only these keys are used: {}. Omit the flag.",
                EVAL_SECTIONS.join(", ")
            )));
        }
        let mut user = Layers::defaults()?;
        user.add_flags(providers::variables(|name| environment.variable(name)))?;
        user.add_file(&DefaultPaths::of(&environment)?.config)?;
        user.add_environment(&environment.config_variables)?;
        user.add_set(&global.set)?;
        let mut layers = user.only(&EVAL_SECTIONS)?;
        layers.add_task(task)?;
        layers.add_flags(flag_values(flags))?;
        let settings = Settings::isolated(environment, layers, flags, store)?;
        // An approval request would wait for a user who watches a report.
        Ok(Settings { approval_policy: ApprovalPolicy::Deny, ..settings })
    }

    /// Settings without the files of the user: sessions, skills, memory, instructions and agents.
    fn isolated(
        environment: Environment,
        layers: Layers,
        flags: &Flags,
        store: PathBuf,
    ) -> Result<Settings, CliError> {
        let paths = DefaultPaths::of(&environment)?;
        let resolved = Settings::resolve(environment, paths, layers, &Global::default(), flags)?;
        Ok(Settings {
            store: StoreAddress::File(store),
            skills: Vec::new(),
            memory: None,
            instructions: Instructions::None,
            agent_folders: AgentFolders::default(),
            ..resolved
        })
    }

    fn resolve(
        environment: Environment,
        paths: DefaultPaths,
        layers: Layers,
        global: &Global,
        flags: &Flags,
    ) -> Result<Settings, CliError> {
        let RawConfig {
            model,
            fallbacks,
            default_agent,
            notify,
            store,
            agents: RawAgents { paths: agent_paths },
            skills: RawSkills { paths: skill_paths },
            memory: RawMemory { enabled: has_memory },
            providers,
            prices,
            delegation,
            mut swarm,
            subagent,
            spawn,
            budget,
            limits,
            permissions,
            shell,
            sandbox,
            web,
            mcp_servers,
            acp,
        } = layers
            .table()
            .clone()
            .try_into()
            .map_err(|error| CliError::usage(format!("cannot read the configuration: {error}")))?;
        let absolute = |model: String| environment.absolute_model(&model);
        let agent = flags.agent.clone().or(default_agent).unwrap_or_else(|| LEAD_AGENT.to_owned());
        let problem = swarm.problem().or_else(|| subagent.as_ref().and_then(SubagentConfig::problem));
        if let Some(problem) = problem.or_else(|| spawn.as_ref().and_then(SpawnConfig::problem)) {
            return Err(CliError::usage(problem));
        }
        swarm.model = swarm.model.map(absolute).transpose()?;
        for role in swarm.roles.values_mut() {
            role.model = role.model.take().map(absolute).transpose()?;
        }
        let delegation_styles = DelegationStyles { swarm, subagent, spawn, delegation };
        let acp = acp::resolve(acp, &layers)?;
        acp::check_names(&delegation_styles, &acp)?;
        let skills = skill_paths.iter().map(|path| environment.absolute(Path::new(path)));
        let other_dirs =
            environment.home().into_iter().flat_map(|home| SKILL_DIRS.map(|name| home.join(name)));
        let user_dirs = Some(paths.skills).into_iter().chain(other_dirs).filter(|folder| folder.is_dir());
        let skills = skills.chain(user_dirs).collect();
        let (store, store_origin) = match (&global.store, store.as_deref()) {
            (Some(address), _) => (StoreAddress::parse(address, &environment)?, StoreOrigin::Named),
            (None, None | Some(DEFAULT_STORE)) => (StoreAddress::File(paths.sessions), StoreOrigin::Default),
            (None, Some(address)) => {
                (StoreAddress::parse(Path::new(address), &environment)?, StoreOrigin::Named)
            }
        };
        let agent_folders = AgentFolders::of(&environment, &agent_paths);
        let sandbox = sandbox.resolve(
            &environment,
            private_paths(&environment, &store),
            configured_paths(&environment, &agent_folders, &skill_paths),
        );
        let providers = Providers::resolve(providers)?;
        let (mut limits, shell_timeout) = limits.resolve();
        // The timeout of the provider ends a call first, and its error names the setting.
        limits.model_silence =
            limits.model_silence.max(providers.max_silence().saturating_add(SILENCE_MARGIN));
        // A model given for this run is used without fallbacks.
        let fallbacks = if flags.model.is_some() { Vec::new() } else { fallbacks };
        let (permissions, questions) = permissions.resolve();
        Ok(Settings {
            model: model.map(absolute).transpose()?,
            fallbacks: fallbacks.into_iter().map(absolute).collect::<Result<_, _>>()?,
            prices: prices::resolve(&prices, &providers, &layers)?,
            providers,
            store,
            store_origin,
            agent,
            delegation_styles,
            limits,
            shell_timeout,
            shell: shell.resolve()?,
            sandbox: Arc::new(sandbox),
            budget: budget.resolve(),
            approval_policy: questions.resolve(),
            waits_for_answers: questions == QuestionsSetting::Wait,
            notify: notify.filter(|command| !command.trim().is_empty()),
            permissions,
            web: web.resolve()?,
            servers: servers::resolve(mcp_servers, &layers),
            acp,
            folder: folder(&environment, flags),
            project: None,
            skills,
            memory: has_memory.then_some(paths.memory),
            logins: paths.logins,
            instructions: Instructions::Project,
            agent_folders,
            layers,
            config_file: paths.config,
            environment,
        })
    }
}

impl Settings {
    /// Origin of the mode: a flag, a layer of the configuration, or the defaults.
    pub(crate) fn mode_origin(&self) -> ModeOrigin {
        match self.layers.origin(&["permissions", "mode"]) {
            "default" => ModeOrigin::Default,
            flag if flag.starts_with("--") => ModeOrigin::Choice,
            _ => ModeOrigin::Configuration,
        }
    }

    /// The user's configuration file: `config.json` if it exists, otherwise `config.toml`.
    pub(crate) fn existing_config_file(&self) -> PathBuf {
        let json_file = self.config_file.with_extension("json");
        if json_file.symlink_metadata().is_ok() { json_file } else { self.config_file.clone() }
    }

    /// Environment of commands.
    pub(crate) fn command_environment(&self) -> Vec<(String, String)> {
        self.shell.variables(&self.environment, |name| self.has_key_in(name))
    }

    /// Whether a variable contains the key of a provider or of the search engine.
    pub(crate) fn has_key_in(&self, variable: &str) -> bool {
        self.providers.has_key_in(variable) || self.web.has_key_in(variable)
    }

    /// Files of the project that are used only as the user trusted them.
    pub(crate) fn pinned_files(&self) -> PinnedFiles {
        self.project.as_ref().map(TrustedProject::pinned).unwrap_or_default()
    }

    /// Folders that are searched for agents.
    pub(crate) fn agent_dirs(&self) -> Vec<PathBuf> {
        let project = self.project.as_ref().map(|project| project.root.as_path());
        agent_dirs(&self.agent_folders, project, &self.agent_folders.paths)
    }
}

/// Files and directories of Brigade itself: configuration, sessions, memory, logins and trust.
fn private_paths(environment: &Environment, store: &StoreAddress) -> Vec<PathBuf> {
    let StoreAddress::File(store) = store;
    let beside = |suffix: &str| {
        let mut file = store.clone().into_os_string();
        file.push(suffix);
        PathBuf::from(file)
    };
    let stores = ["", "-wal", "-shm", "-journal", ".lock", ".waiting"].map(beside);
    environment.config_folder().into_iter().chain(environment.data_folder()).chain(stores).collect()
}

/// Agents and skills that the configuration names, and this program.
fn configured_paths(environment: &Environment, agents: &AgentFolders, skills: &[String]) -> Vec<PathBuf> {
    let skills = skills.iter().map(|path| environment.absolute(Path::new(path)));
    agents.paths.iter().cloned().chain(skills).chain(std::env::current_exe()).collect()
}

/// Default paths of the configuration and the data.
#[derive(Clone)]
struct DefaultPaths {
    config: PathBuf,
    skills: PathBuf,
    sessions: PathBuf,
    memory: PathBuf,
    logins: PathBuf,
}

impl DefaultPaths {
    fn of(environment: &Environment) -> Result<DefaultPaths, CliError> {
        let config = environment.config_folder().ok_or_else(no_home_error)?;
        let data = environment.data_folder().ok_or_else(no_home_error)?;
        Ok(DefaultPaths {
            config: config.join("config.toml"),
            skills: config.join("skills"),
            sessions: data.join("sessions.db"),
            memory: data.join("memory.db"),
            logins: data.join("logins"),
        })
    }
}

/// Working folder.
fn folder(environment: &Environment, flags: &Flags) -> PathBuf {
    environment.absolute(flags.cwd.as_deref().unwrap_or(Path::new(".")))
}

/// Flags that correspond to configuration keys.
fn flag_values(flags: &Flags) -> Vec<(&'static str, &'static [&'static str], Value)> {
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let values: [(&'static str, &'static [&'static str], Option<Value>); 8] = [
        ("--model", &["model"], flags.model.clone().map(Value::String)),
        ("--max-turns", &["limits", "lead_turns"], flags.max_turns.map(|turns| number(turns.into()))),
        ("--budget-tokens", &["budget", "tokens"], flags.budget_tokens.map(number)),
        ("--budget-usd", &["budget", "usd"], flags.budget_usd.map(|nano| units::exact_dollars(nano).into())),
        ("--max-agents", &["budget", "agents"], flags.max_agents.map(number)),
        ("--faces", &["delegation", "faces"], flags.delegation_styles.clone().map(Value::String)),
        ("--mode", &["permissions", "mode"], flags.mode.map(|mode| mode.as_str().into())),
        ("--no-sandbox", &["sandbox", "mode"], flags.no_sandbox.then(|| SandboxMode::Off.as_str().into())),
    ];
    values.into_iter().filter_map(|(flag, path, value)| Some((flag, path, value?))).collect()
}

/// Added to the longest silence of a provider before a run itself gives up on a model.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);
