//! Reasons why a [`Brigade`](crate::Brigade) cannot be built.

use std::path::PathBuf;

use brigade_core::grant::InvalidBudget;
use brigade_core::permission::RuleError;

#[cfg(feature = "models")]
use crate::model::EndpointError;
use crate::model::UnknownModel;
use crate::tool::FileError;

/// Reason why a [`Brigade`](crate::Brigade) cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No model is set.
    #[error("cannot build the runtime: no model is set. Set one with `model` or `custom_model`.")]
    NoModel,
    /// The provider of the default model has no model name.
    #[error(
        "cannot use the provider '{0}' as the default model: no model is set. Set one with `Provider::model`."
    )]
    NoModelName(String),
    /// Two providers have the same name.
    #[error(
        "cannot add a second provider named '{0}': provider names must be unique. Rename one with `Provider::name`."
    )]
    DuplicateProvider(String),
    /// The name of a provider is empty or contains `/`.
    #[error(
        "cannot use the provider name '{0}': it is empty or contains `/`. Choose another with `Provider::name`."
    )]
    ProviderName(String),
    /// A provider cannot be used.
    #[cfg(feature = "models")]
    #[error(transparent)]
    Provider(#[from] EndpointError),
    /// A fallback or the model of an agent is not known.
    #[error(
        "cannot use the model of {user}: {cause}. Use PROVIDER/MODEL, and add the provider with `provider` if it is missing."
    )]
    Model {
        /// The agent, or the list of fallbacks.
        user: String,
        /// Cause of the failure.
        cause: UnknownModel,
    },
    /// No workspace is set.
    #[error(
        "cannot build the runtime: no workspace is set. Set the working directory of the tools with `workspace`."
    )]
    NoWorkspace,
    /// The workspace is not a directory.
    #[error("cannot open the workspace {}: it does not exist or is not a directory. Choose an existing directory.", .0.display())]
    NotAWorkspace(PathBuf),
    /// The workspace cannot be opened.
    #[error("cannot open the workspace {}: {cause}", path.display())]
    Workspace {
        /// Path as given.
        path: PathBuf,
        /// Cause of the failure.
        cause: FileError,
    },
    /// Two agents have the same id, or an agent has the id of the lead.
    #[error("cannot add the agent '{0}': its id is already in use. Choose another id.")]
    DuplicateAgent(String),
    /// The id of an agent is invalid.
    #[error(
        "cannot use '{0}' as the id of an agent: it is not valid. Use 1 to 64 characters from `a-z`, `0-9`, `.`, `_` and `-`."
    )]
    AgentId(String),
    /// An agent or a rule names a tool that does not exist.
    #[error(
        "cannot use the tool '{tool}' of {user}: it does not exist. Add it with `tool`, or use one of: {known}."
    )]
    UnknownTool {
        /// The agent, or the kind of rule.
        user: String,
        /// Name as written.
        tool: String,
        /// The known tools.
        known: String,
    },
    /// A directory of agent files does not exist.
    #[error("cannot read agents from {}: it does not exist or is not a directory. Choose an existing directory.", .0.display())]
    AgentFolder(PathBuf),
    /// Two tools have the same name.
    #[error("cannot add a second tool named '{0}': tool names must be unique. Rename one of them.")]
    DuplicateTool(String),
    /// The name of a tool is invalid or reserved.
    #[error(
        "cannot use '{0}' as the name of a tool: it is invalid or reserved. Choose another name of 1 to 64 characters from `a-z`, `0-9` and `_`."
    )]
    ToolName(String),
    /// The budget is invalid.
    #[error(transparent)]
    Budget(#[from] InvalidBudget),
    /// A permission rule is invalid.
    #[error("cannot use the permission rule `{rule}`: {cause}.")]
    Rule {
        /// Rule as written.
        rule: String,
        /// Cause of the failure.
        cause: RuleError,
    },
    /// The settings of the delegation styles are invalid.
    #[error("cannot use the delegation styles: {0}.")]
    Delegation(String),
    /// The thread of an observer cannot be started.
    #[error(
        "cannot start the thread of an observer: {0}. Raise the thread limit of the process, or remove the observer."
    )]
    Observer(std::io::Error),
}
