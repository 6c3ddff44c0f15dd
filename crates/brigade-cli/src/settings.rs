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
mod schema;
mod servers;
mod shell;
mod store_address;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade::model::PriceList;
use brigade::tool::WebSettings;
use brigade::{ApprovalPolicy, Limits, ModeOrigin};
use brigade_core::delegation_styles::delegate::SwarmConfig;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::delegation_styles::{DelegationConfig, DelegationStyles};
use brigade_core::permission::{Mode, Permissions, Rule};
use brigade_core::{Budget, Limit};
use serde::Deserialize;
use toml::{Table, Value};

use crate::args::{Flags, Global};
use crate::error::CliError;
use crate::terminal;
use crate::trust::{self, TrustedProject};
use crate::units;

use environment::no_home_error;

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
pub(crate) use shell::{ShellEnv, Withheld};
pub(crate) use store_address::StoreAddress;
pub(crate) use web::Web;

/// Prefix of scripted models, which are read from a file.
pub(crate) const SCRIPT_PREFIX: &str = "script:";
/// Folders in which other programs keep skills, in a project and in the home folder.
pub(crate) const OTHER_SKILL_DIRS: [&str; 2] = [".claude/skills", ".agents/skills"];
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
        let raw: RawConfig = layers
            .table()
            .clone()
            .try_into()
            .map_err(|error| CliError::usage(format!("cannot read the configuration: {error}")))?;
        let absolute = |model: String| environment.absolute_model(&model);
        let agent = flags.agent.clone().or(raw.default_agent).unwrap_or_else(|| LEAD_AGENT.to_owned());
        let mut swarm = raw.swarm;
        let problem = swarm.problem().or_else(|| raw.subagent.as_ref().and_then(SubagentConfig::problem));
        if let Some(problem) = problem.or_else(|| raw.spawn.as_ref().and_then(SpawnConfig::problem)) {
            return Err(CliError::usage(problem));
        }
        swarm.model = swarm.model.map(absolute).transpose()?;
        for role in swarm.roles.values_mut() {
            role.model = role.model.take().map(absolute).transpose()?;
        }
        let delegation_styles =
            DelegationStyles { swarm, subagent: raw.subagent, spawn: raw.spawn, delegation: raw.delegation };
        let acp = acp::resolve(raw.acp, &layers)?;
        acp::check_names(&delegation_styles, &acp)?;
        let skills = raw.skills.paths.iter().map(|path| environment.absolute(Path::new(path)));
        let other_dirs =
            environment.home().into_iter().flat_map(|home| OTHER_SKILL_DIRS.map(|name| home.join(name)));
        let user_dirs = Some(paths.skills).into_iter().chain(other_dirs).filter(|folder| folder.is_dir());
        let skills = skills.chain(user_dirs).collect();
        let (store, store_origin) = match (&global.store, raw.store.as_deref()) {
            (Some(address), _) => (StoreAddress::parse(address, &environment)?, StoreOrigin::Named),
            (None, None | Some("sqlite")) => (StoreAddress::File(paths.sessions), StoreOrigin::Default),
            (None, Some(address)) => {
                (StoreAddress::parse(Path::new(address), &environment)?, StoreOrigin::Named)
            }
        };
        let providers = Providers::resolve(raw.providers)?;
        let mut limits = raw.limits.resolve()?;
        // The timeout of the provider ends a call first, and its error names the setting.
        limits.model_silence =
            limits.model_silence.max(providers.max_silence().saturating_add(SILENCE_MARGIN));
        // A model given for this run is used without fallbacks.
        let fallbacks = if flags.model.is_some() { Vec::new() } else { raw.fallbacks };
        Ok(Settings {
            model: raw.model.map(absolute).transpose()?,
            fallbacks: fallbacks.into_iter().map(absolute).collect::<Result<_, _>>()?,
            prices: prices::resolve(&raw.prices, &providers, &layers)?,
            providers,
            store,
            store_origin,
            agent,
            delegation_styles,
            limits,
            shell_timeout: duration(raw.limits.shell_timeout.as_ref(), Duration::from_secs(120))?,
            shell: raw.shell.resolve()?,
            budget: raw.budget.resolve()?,
            approval_policy: raw.permissions.questions.resolve(),
            waits_for_answers: raw.permissions.questions == QuestionsSetting::Wait,
            notify: raw.notify.filter(|command| !command.trim().is_empty()),
            permissions: raw.permissions.resolve(),
            web: raw.web.resolve()?,
            servers: servers::resolve(raw.mcp_servers, &layers)?,
            acp,
            folder: folder(&environment, flags),
            project: None,
            skills,
            memory: raw.memory.enabled.unwrap_or(true).then_some(paths.memory),
            logins: paths.logins,
            instructions: Instructions::Project,
            agent_folders: AgentFolders::of(&environment, &raw.agents.paths),
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

    /// Folders that are searched for agents.
    pub(crate) fn agent_dirs(&self) -> Vec<PathBuf> {
        let project = self.project.as_ref().map(|project| project.root.as_path());
        agent_dirs(&self.agent_folders, project, &self.agent_folders.paths)
    }
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
    let mut values: Vec<(&'static str, &'static [&'static str], Value)> = Vec::new();
    if let Some(model) = &flags.model {
        values.push(("--model", &["model"], Value::String(model.clone())));
    }
    if let Some(turns) = flags.max_turns {
        values.push(("--max-turns", &["limits", "lead_turns"], number(turns.into())));
    }
    if let Some(tokens) = flags.budget_tokens {
        values.push(("--budget-tokens", &["budget", "tokens"], number(tokens)));
    }
    if let Some(nano) = flags.budget_usd {
        values.push(("--budget-usd", &["budget", "usd"], Value::String(units::exact_dollars(nano))));
    }
    if let Some(agents) = flags.max_agents {
        values.push(("--max-agents", &["budget", "agents"], number(agents)));
    }
    if let Some(delegation_styles) = &flags.delegation_styles {
        values.push(("--faces", &["delegation", "faces"], Value::String(delegation_styles.clone())));
    }
    if let Some(mode) = flags.mode {
        values.push(("--mode", &["permissions", "mode"], Value::String(mode.to_string())));
    }
    values
}

/// Raw configuration, in which every value is optional. Each layer was checked before, with the file and the nearest
/// key in the error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConfig {
    model: Option<String>,
    fallbacks: Vec<String>,
    default_agent: Option<String>,
    providers: BTreeMap<String, providers::RawProvider>,
    prices: BTreeMap<String, prices::RawPrice>,
    store: Option<String>,
    notify: Option<String>,
    swarm: SwarmConfig,
    subagent: Option<SubagentConfig>,
    spawn: Option<SpawnConfig>,
    delegation: DelegationConfig,
    agents: RawAgents,
    budget: RawBudget,
    limits: RawLimits,
    permissions: RawPermissions,
    skills: RawSkills,
    memory: RawMemory,
    web: web::RawWeb,
    shell: shell::RawShell,
    #[serde(rename = "mcpServers")]
    mcp_servers: BTreeMap<String, servers::RawMcpServer>,
    acp: acp::RawAcp,
    /// Accepted for sections that are read elsewhere.
    #[serde(flatten)]
    _later: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawAgents {
    paths: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawSkills {
    paths: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMemory {
    enabled: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawBudget {
    tokens: Option<Value>,
    usd: Option<Value>,
    agents: Option<Value>,
}

impl RawBudget {
    fn resolve(&self) -> Result<Budget, CliError> {
        let limit = |value: &Option<Value>, read: fn(&Value) -> Result<u64, String>| match value {
            None => Ok(Limit::Unlimited),
            Some(Value::String(word)) if word == keys::UNLIMITED => Ok(Limit::Unlimited),
            Some(value) => read(value).map(Limit::AtMost).map_err(CliError::usage),
        };
        Ok(Budget {
            tokens: limit(&self.tokens, keys::count)?,
            usd: limit(&self.usd, keys::dollars)?,
            agents: limit(&self.agents, keys::count)?,
        })
    }
}

/// Added to the longest silence of a provider before a run itself gives up on a model.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawLimits {
    lead_turns: Option<u32>,
    child_turns: Option<u32>,
    child_timeout: Option<Value>,
    question_timeout: Option<Value>,
    retry_pause: Option<Value>,
    shell_timeout: Option<Value>,
    max_depth: Option<u32>,
    concurrency: Option<u32>,
    result_bytes: Option<u32>,
    max_tokens: Option<u32>,
    loop_warning: Option<u32>,
    loop_limit: Option<u32>,
}

impl RawLimits {
    fn resolve(&self) -> Result<Limits, CliError> {
        let defaults = Limits::default();
        Ok(Limits {
            lead_turns: self.lead_turns.unwrap_or(defaults.lead_turns),
            child_turns: self.child_turns.unwrap_or(defaults.child_turns),
            child_timeout: duration(self.child_timeout.as_ref(), defaults.child_timeout)?,
            question_timeout: duration(self.question_timeout.as_ref(), defaults.question_timeout)?,
            retry_pause: duration(self.retry_pause.as_ref(), defaults.retry_pause)?,
            max_depth: self.max_depth.unwrap_or(defaults.max_depth),
            concurrency: self.concurrency.map_or(defaults.concurrency, |number| number.max(1) as usize),
            result_bytes: self.result_bytes.map_or(defaults.result_bytes, |number| number as usize),
            max_tokens: self.max_tokens.map_or(defaults.max_tokens, u64::from),
            loop_warning: self.loop_warning.unwrap_or(defaults.loop_warning),
            loop_limit: self.loop_limit.unwrap_or(defaults.loop_limit),
            ..defaults
        })
    }
}

fn duration(value: Option<&Value>, default: Duration) -> Result<Duration, CliError> {
    value.map_or(Ok(default), |value| keys::duration(value).map_err(CliError::usage))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPermissions {
    mode: Option<Mode>,
    questions: QuestionsSetting,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
}

impl RawPermissions {
    fn resolve(self) -> Permissions {
        Permissions {
            mode: self.mode.unwrap_or_else(default_mode),
            allow: self.allow,
            ask: self.ask,
            deny: self.deny,
        }
    }
}

/// Policy for approval requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QuestionsSetting {
    /// Ask at a terminal.
    #[default]
    Auto,
    /// Always ask. Without a terminal, the user answers from another one.
    Wait,
    /// Never ask.
    Refuse,
}

impl QuestionsSetting {
    fn resolve(self) -> ApprovalPolicy {
        match self {
            QuestionsSetting::Auto if terminal::can_prompt() => ApprovalPolicy::AskUser,
            QuestionsSetting::Wait => ApprovalPolicy::AskUser,
            QuestionsSetting::Auto | QuestionsSetting::Refuse => ApprovalPolicy::Deny,
        }
    }
}

/// Default mode. If a user can be asked, everything but reading needs approval; elsewhere that would stop all work.
fn default_mode() -> Mode {
    if terminal::can_prompt() { Mode::Ask } else { Mode::Edit }
}

/// Default values, as a table like any other layer.
fn default_table(mode: Mode) -> Result<Table, toml::ser::Error> {
    let limits = Limits::default();
    let swarm = SwarmConfig::default();
    let budget = brigade::DEFAULT_BUDGET;
    let web = WebSettings::default();
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let text = |text: &str| Value::String(text.to_owned());
    let limit = |limit: Limit| match limit {
        Limit::AtMost(most) => number(most),
        Limit::Unlimited => text(keys::UNLIMITED),
    };
    let time = |time: Duration| {
        Value::String(units::format_duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    };
    let section = |entries: Vec<(&str, Value)>| {
        Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let empty = || Value::Array(Vec::new());
    let mut swarm = Value::try_from(&swarm)?;
    if let Some(table) = swarm.as_table_mut() {
        table.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
    }
    Ok(Table::from_iter([
        ("fallbacks".to_owned(), empty()),
        ("default_agent".to_owned(), text(LEAD_AGENT)),
        ("store".to_owned(), text("sqlite")),
        ("swarm".to_owned(), swarm),
        ("delegation".to_owned(), section(vec![("faces", text("auto")), ("extras", empty())])),
        ("agents".to_owned(), section(vec![("paths", empty())])),
        ("skills".to_owned(), section(vec![("paths", empty())])),
        ("memory".to_owned(), section(vec![("enabled", Value::Boolean(true))])),
        (
            "budget".to_owned(),
            section(vec![
                ("tokens", limit(budget.tokens)),
                ("usd", limit(budget.usd)),
                ("agents", limit(budget.agents)),
            ]),
        ),
        (
            "limits".to_owned(),
            section(vec![
                ("lead_turns", number(limits.lead_turns.into())),
                ("child_turns", number(limits.child_turns.into())),
                ("child_timeout", time(limits.child_timeout)),
                ("question_timeout", time(limits.question_timeout)),
                ("retry_pause", time(limits.retry_pause)),
                ("shell_timeout", text("2m")),
                ("max_depth", number(limits.max_depth.into())),
                ("concurrency", number(limits.concurrency as u64)),
                ("result_bytes", number(limits.result_bytes as u64)),
                ("max_tokens", number(limits.max_tokens)),
                ("loop_warning", number(limits.loop_warning.into())),
                ("loop_limit", number(limits.loop_limit.into())),
            ]),
        ),
        (
            "permissions".to_owned(),
            section(vec![
                ("mode", text(mode.as_str())),
                ("questions", text("auto")),
                ("allow", empty()),
                ("ask", empty()),
                ("deny", empty()),
            ]),
        ),
        ("shell".to_owned(), section(vec![("env", empty()), ("deny_env", empty())])),
        (
            "web".to_owned(),
            section(vec![
                ("allow_loopback", Value::Boolean(web.allow_loopback)),
                ("timeout", time(web.timeout)),
                ("max_bytes", number(web.max_bytes as u64)),
            ]),
        ),
    ]))
}
