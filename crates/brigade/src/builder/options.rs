//! Options of a [`Brigade`].

#[cfg(feature = "models")]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use brigade_core::Agent;
use brigade_core::delegation_styles::DelegationStyles;
use brigade_core::grant::BudgetBuilder;
use brigade_core::permission::{Mode, Permissions, Rule};

use super::{Brigade, BuildError, checks};
#[cfg(feature = "agent-files")]
use crate::agents::AgentCatalog;
#[cfg(feature = "models")]
use crate::model::EndpointOverride;
#[cfg(feature = "models")]
use crate::provider::Provider;
use crate::store::MemoryStore;
use crate::tool::EditTool;
use crate::{
    ApprovalPolicy, DEFAULT_BUDGET, Limits, Model, Models, Observer, Observers, Runtime, Secret, Settings,
    Store, SubagentCallbacks, Tool, Toolbox, Workspace,
};

/// Change of the default settings.
type SettingsChange = Box<dyn FnOnce(&mut Settings) + Send>;

/// Options of a [`Brigade`]. They are checked by [`BrigadeBuilder::build`].
#[derive(Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BrigadeBuilder {
    model: Option<DefaultModel>,
    #[cfg(feature = "models")]
    providers: Vec<Provider>,
    custom_models: Models,
    custom_names: BTreeSet<String>,
    store: Option<Arc<dyn Store>>,
    workspace: Option<PathBuf>,
    tools: Toolbox,
    agents: Vec<Agent>,
    #[cfg(feature = "agent-files")]
    agent_folders: Vec<PathBuf>,
    budget: Option<BudgetBuilder>,
    callbacks: Option<SubagentCallbacks>,
    observers: Observers,
    changes: Vec<SettingsChange>,
    /// First error of an option.
    error: Option<BuildError>,
}

/// Default model of agents.
enum DefaultModel {
    Named(String),
    /// A provider without a model name.
    #[cfg(feature = "models")]
    Unnamed(String),
}

/// Models.
impl BrigadeBuilder {
    /// Sets the default model of agents and adds its provider. Required, unless
    /// [`custom_model`](BrigadeBuilder::custom_model) sets one.
    #[cfg(feature = "models")]
    pub fn model(mut self, provider: Provider) -> BrigadeBuilder {
        let unnamed = || DefaultModel::Unnamed(provider.provider_name().to_owned());
        self.model = Some(provider.model_name().map_or_else(unnamed, DefaultModel::Named));
        self.provider(provider)
    }

    /// Adds a provider whose models agents and fallbacks can name, as `provider/model`.
    #[cfg(feature = "models")]
    pub fn provider(mut self, provider: Provider) -> BrigadeBuilder {
        self.providers.push(provider);
        self
    }

    /// Sets the default model to your own implementation of [`Model`], such as a scripted model. The name is `provider`
    /// or `provider/model`.
    pub fn custom_model(mut self, name: impl Into<String>, model: impl Model) -> BrigadeBuilder {
        let name = name.into();
        let provider = name.split_once('/').map_or(name.as_str(), |(provider, _)| provider).to_owned();
        if !self.custom_names.insert(provider.clone()) {
            self.fail(BuildError::DuplicateProvider(provider.clone()));
        }
        self.custom_models = self.custom_models.with(provider, model);
        self.model = Some(DefaultModel::Named(name));
        self
    }

    /// Adds a fallback model, as `provider/model`, for when the models before it fail permanently.
    pub fn fallback(self, model: impl Into<String>) -> BrigadeBuilder {
        let model = model.into();
        self.configure(|settings| settings.fallbacks.push(model))
    }
}

/// Agents and their tools.
impl BrigadeBuilder {
    /// Sets the directory that the tools work in. Required.
    pub fn workspace(mut self, path: impl AsRef<Path>) -> BrigadeBuilder {
        self.workspace = Some(path.as_ref().to_path_buf());
        self
    }

    /// Adds a tool to the standard ones. A tool with the name of a standard one replaces it.
    pub fn tool<T: Tool>(mut self, tool: T) -> BrigadeBuilder {
        self.check_tool_name(T::NAME);
        self.tools = self.tools.with(tool);
        self
    }

    /// Adds a tool that changes a file.
    pub fn edit_tool<T: EditTool>(mut self, tool: T) -> BrigadeBuilder {
        self.check_tool_name(T::NAME);
        self.tools = self.tools.with_edit(tool);
        self
    }

    fn check_tool_name(&mut self, name: &str) {
        if !checks::is_tool_name(name) {
            self.fail(BuildError::ToolName(name.to_owned()));
        } else if self.tools.get(name).is_some() {
            self.fail(BuildError::DuplicateTool(name.to_owned()));
        }
    }

    /// Adds an agent that others can delegate to by its id.
    pub fn agent(mut self, agent: Agent) -> BrigadeBuilder {
        self.agents.push(agent);
        self
    }

    /// Adds the agents of the files beneath a directory. Files that cannot be used are skipped and reported by
    /// [`Brigade::agent_problems`]. If two directories define the same agent, the first one wins.
    #[cfg(feature = "agent-files")]
    pub fn agents_from(mut self, directory: impl AsRef<Path>) -> BrigadeBuilder {
        self.agent_folders.push(directory.as_ref().to_path_buf());
        self
    }

    /// Sets the agent that receives the tasks. The default is [`Settings::lead`].
    pub fn lead(self, lead: Agent) -> BrigadeBuilder {
        self.configure(|settings| settings.lead = lead)
    }

    /// Sets the delegation styles: an array of [`DelegationStyle`](crate::core::DelegationStyle), or
    /// [`DelegationStyles`] with their settings. The default is `delegate`, and `subagent_dispatch` if there are agents.
    pub fn delegation(self, styles: impl Into<DelegationStyles>) -> BrigadeBuilder {
        let styles = styles.into();
        self.configure(|settings| settings.delegation_styles = styles)
    }

    /// Sets instructions for all agents, such as the conventions of a project.
    pub fn instructions(self, text: impl Into<Arc<str>>) -> BrigadeBuilder {
        let text = text.into();
        self.configure(|settings| settings.instructions = Some(text))
    }
}

/// Limits and permissions.
impl BrigadeBuilder {
    /// Sets the budget of each run, sub-agents included: `Budget::usd(2.50).tokens(500_000).agents(20)`. A limit that is
    /// not named keeps its default, see [`DEFAULT_BUDGET`].
    pub fn budget(mut self, budget: impl Into<BudgetBuilder>) -> BrigadeBuilder {
        self.budget = Some(budget.into());
        self
    }

    /// Sets the limits of sessions and of the tree.
    pub fn limits(self, limits: Limits) -> BrigadeBuilder {
        self.configure(|settings| settings.limits = limits)
    }

    /// Sets the permission mode and replaces all rules.
    pub fn permissions(self, permissions: Permissions) -> BrigadeBuilder {
        self.configure(|settings| settings.permissions = permissions)
    }

    /// Sets the permission mode. The default is [`Mode::Edit`]: agents may read and edit files of the workspace.
    /// Everything else requires approval.
    pub fn mode(self, mode: Mode) -> BrigadeBuilder {
        self.configure(move |settings| settings.permissions.mode = mode)
    }

    /// Allows calls without approval: a tool such as `celsius`, or a rule such as `shell(cargo test *)`.
    pub fn allow(self, rule: &str) -> BrigadeBuilder {
        self.rule(rule, |permissions| &mut permissions.allow)
    }

    /// Requires approval for calls, whatever the mode.
    pub fn ask(self, rule: &str) -> BrigadeBuilder {
        self.rule(rule, |permissions| &mut permissions.ask)
    }

    /// Denies calls, whatever the mode and other rules.
    pub fn deny(self, rule: &str) -> BrigadeBuilder {
        self.rule(rule, |permissions| &mut permissions.deny)
    }

    fn rule(mut self, text: &str, list: fn(&mut Permissions) -> &mut Vec<Rule>) -> BrigadeBuilder {
        match text.parse() {
            Ok(rule) => self.configure(move |settings| list(&mut settings.permissions).push(rule)),
            Err(cause) => {
                self.fail(BuildError::Rule { rule: text.to_owned(), cause });
                self
            }
        }
    }

    /// Adds secrets, such as keys that your tools use. Their values are redacted in tool results, replies and errors, and a
    /// call whose arguments contain one is refused. Keys of providers and keys of known shapes are redacted in any case.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> BrigadeBuilder {
        let secrets: Vec<Secret> = secrets.into_iter().collect();
        self.configure(|settings| settings.redactor = settings.redactor.clone().with_secrets(secrets))
    }

    /// Sets the handling of calls that require approval. The default is [`ApprovalPolicy::Deny`]. With
    /// [`ApprovalPolicy::AskUser`] the run emits an [`Event::Asked`](crate::Event::Asked), which
    /// [`Runtime::answer`] answers. A running call that connects to a host which its sandbox does not allow emits an
    /// [`Event::HostAsked`](crate::Event::HostAsked); its connection waits for the answer.
    pub fn approvals(self, policy: ApprovalPolicy) -> BrigadeBuilder {
        self.configure(move |settings| settings.approval_policy = policy)
    }
}

/// Storage and observation.
impl BrigadeBuilder {
    /// Sets the store. The default store is in memory; its sessions are lost when the process exits.
    pub fn store(mut self, store: Arc<dyn Store>) -> BrigadeBuilder {
        self.store = Some(store);
        self
    }

    /// Sets the callbacks for the lifecycle of sub-agents. They are called by the task that awaits the run or reads its
    /// events. All calls are made before the result is returned.
    pub fn callbacks(mut self, callbacks: SubagentCallbacks) -> BrigadeBuilder {
        self.callbacks = Some(callbacks);
        self
    }

    /// Adds an observer of all runs, for metrics and traces. Its thread starts at once.
    pub fn observer(mut self, observer: impl Observer) -> BrigadeBuilder {
        if let Err(error) = self.observers.add(observer) {
            self.fail(BuildError::Observer(error));
        }
        self
    }

    /// Changes any other setting. Changes apply in the order of the calls.
    pub fn configure(mut self, change: impl FnOnce(&mut Settings) + Send + 'static) -> BrigadeBuilder {
        self.changes.push(Box::new(change));
        self
    }

    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }
}

impl BrigadeBuilder {
    /// Checks the options and creates the runtime. Nothing is sent to a provider.
    pub fn build(mut self) -> Result<Brigade, BuildError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let model = match self.model.take() {
            Some(DefaultModel::Named(name)) => name,
            #[cfg(feature = "models")]
            Some(DefaultModel::Unnamed(provider)) => return Err(BuildError::NoModelName(provider)),
            None => return Err(BuildError::NoModel),
        };
        #[cfg(feature = "models")]
        let keys: Vec<Secret> = self.providers.iter().filter_map(Provider::own_key).cloned().collect();
        #[cfg(not(feature = "models"))]
        let keys: Vec<Secret> = Vec::new();
        #[cfg(feature = "models")]
        let models = self.connect_providers()?;
        #[cfg(not(feature = "models"))]
        let models = std::mem::take(&mut self.custom_models);
        let mut settings = Settings::new(model, self.open_workspace()?);
        for tool in self.tools.iter() {
            settings.tools = settings.tools.with_any(tool.clone());
        }
        if let Some(budget) = self.budget {
            settings.budget = budget.build_with_defaults(DEFAULT_BUDGET)?;
        }
        #[cfg(feature = "agent-files")]
        if let Some(missing) = self.agent_folders.iter().find(|folder| !folder.is_dir()) {
            return Err(BuildError::AgentFolder(missing.clone()));
        }
        #[cfg(feature = "agent-files")]
        let agent_problems = {
            let (catalog, problems) = AgentCatalog::from_folders(&self.agent_folders);
            settings.agents = catalog;
            problems
        };
        #[cfg(not(feature = "agent-files"))]
        let agent_problems = Vec::new();
        settings.observers = self.observers;
        settings.redactor = settings.redactor.with_secrets(keys.into_iter().filter(Secret::is_distinctive));
        self.changes.into_iter().for_each(|change| change(&mut settings));
        for agent in self.agents {
            checks::check_agent(&agent, &settings, &models)?;
            settings.agents = settings.agents.with(agent);
        }
        checks::check_settings(&settings, &models)?;
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        Ok(Brigade {
            runtime: Runtime::new(store, settings, models),
            callbacks: self.callbacks.map(|callbacks| Arc::new(Mutex::new(callbacks))),
            agent_problems: agent_problems.into(),
        })
    }

    fn open_workspace(&self) -> Result<Workspace, BuildError> {
        let path = self.workspace.clone().ok_or(BuildError::NoWorkspace)?;
        if !path.is_dir() {
            return Err(BuildError::NotAWorkspace(path));
        }
        Workspace::open(&path).map_err(|cause| BuildError::Workspace { path, cause })
    }

    /// Connects the providers, so that an invalid address or key is found now.
    #[cfg(feature = "models")]
    fn connect_providers(&mut self) -> Result<Models, BuildError> {
        let mut connected: BTreeMap<String, (Provider, Arc<dyn Model>)> = BTreeMap::new();
        for provider in self.providers.drain(..) {
            let name = provider.provider_name().to_owned();
            if name.is_empty() || name.contains('/') {
                return Err(BuildError::ProviderName(name));
            }
            let model = provider.connect(&EndpointOverride::default())?;
            if self.custom_names.contains(&name) || connected.contains_key(&name) {
                return Err(BuildError::DuplicateProvider(name));
            }
            connected.insert(name, (provider, model));
        }
        let names: Vec<String> = connected.keys().cloned().collect();
        let custom = std::mem::take(&mut self.custom_models);
        Ok(custom.with_providers(names, move |name, overrides| match connected.get(name) {
            Some((_, model)) if *overrides == EndpointOverride::default() => Ok(model.clone()),
            Some((provider, _)) => provider.connect(overrides).map_err(|error| error.to_string().into()),
            None => Err("unknown provider".into()),
        }))
    }
}
