//! Settings of a runtime.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::agent::Guidance;
use brigade_core::delegation::Environment;
use brigade_core::delegation_styles::DelegationStyles;
use brigade_core::grant::Names;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::{Agent, Budget, Limit};

use crate::agents::AgentCatalog;
use crate::external::ExternalAgents;
use crate::observer::Observers;
use crate::redactor::Redactor;
use crate::sandbox::SandboxSettings;
use crate::skills::Skills;
use crate::tool::{ShellSettings, Toolbox, Workspace};

/// Settings of a runtime. Nothing here is read from the environment.
#[derive(Clone)]
pub struct Settings {
    /// Default model of agents that name none, as `provider/model`.
    pub model: String,
    /// Fallback models, in order.
    pub fallbacks: Vec<String>,
    /// Agent that receives the user's tasks.
    pub lead: Agent,
    /// Agents that can be referred to by id.
    pub agents: AgentCatalog,
    /// Delegation styles.
    pub delegation_styles: DelegationStyles,
    /// Limits of sessions and of the tree.
    pub limits: Limits,
    /// Budget of a tree.
    pub budget: Budget,
    /// Permission mode and rules.
    pub permissions: Permissions,
    /// Origin of the mode in `permissions`. It decides which mode a resumed session uses.
    pub mode_origin: ModeOrigin,
    /// Handling of calls that a rule or the mode requires approval for.
    pub approval_policy: ApprovalPolicy,
    /// Models that agents may choose.
    pub models: Names,
    /// Working directory of the tools.
    pub workspace: Workspace,
    /// Available tools.
    pub tools: Toolbox,
    /// Settings of the `shell` tool. Without them it is not offered.
    pub shell: Option<ShellSettings>,
    /// Sandbox of the commands that agents run.
    pub sandbox: Arc<SandboxSettings>,
    /// Agents that other programs run.
    pub external: Option<Arc<dyn ExternalAgents>>,
    /// Skills for agents with `allow_skills`.
    pub skills: Skills,
    /// Project instructions for all agents that do not ignore them.
    pub instructions: Option<Arc<str>>,
    /// Environment information for the root agent.
    pub environment: Option<Environment>,
    /// Observers of all trees that are run with these settings or a clone of them.
    pub observers: Observers,
    /// Redactor of tool results, of what models write, and of errors. The default knows the shapes of common keys.
    pub redactor: Redactor,
}

/// Origin of the permission mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModeOrigin {
    /// Set in the configuration. A resumed round uses it if it is narrower than the recorded mode.
    #[default]
    Configuration,
    /// Chosen by the user for this run. Sessions that start with it keep it when they are resumed.
    Choice,
    /// Not set by the user. A session whose configured mode was more permissive than `edit` is narrowed to
    /// `edit`.
    Default,
}

/// Handling of calls that require approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// The call is refused at once, and the agent reads which setting would permit it.
    #[default]
    Deny,
    /// The user is asked, and answers with [`Runtime::answer`](crate::Runtime::answer) from this or any other
    /// process.
    AskUser,
}

/// Limits of sessions and of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of model calls of the lead.
    pub lead_turns: u32,
    /// Maximum number of model calls of a child.
    pub child_turns: u32,
    /// Time limit of a child.
    pub child_timeout: Duration,
    /// Time after which an unanswered approval request is denied.
    pub question_timeout: Duration,
    /// Maximum depth of a tree, over all delegation styles.
    pub max_depth: u32,
    /// Maximum number of active sessions in a tree.
    pub concurrency: usize,
    /// Maximum size of a child's result that its parent reads in full.
    pub result_bytes: usize,
    /// Maximum number of output tokens of one reply. The model's own maximum applies if it is smaller.
    pub max_tokens: u64,
    /// Number of turns with the same calls and results after which an agent is warned that it repeats itself. 0
    /// disables the warning.
    pub loop_warning: u32,
    /// Number of such turns after which the agent is stopped. 0 disables the limit.
    pub loop_limit: u32,
    /// Time that a model may be silent.
    pub model_silence: Duration,
    /// Pause after the first fault of a model. It doubles with each further fault, up to 8 seconds.
    pub retry_pause: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lead_turns: 50,
            child_turns: 50,
            child_timeout: Duration::from_secs(600),
            question_timeout: Duration::from_secs(600),
            max_depth: 10,
            concurrency: 64,
            result_bytes: 16_384,
            max_tokens: 32_000,
            loop_warning: 3,
            loop_limit: 6,
            model_silence: Duration::from_secs(300),
            retry_pause: Duration::from_millis(250),
        }
    }
}

/// Default budget of a tree.
pub const DEFAULT_BUDGET: Budget =
    Budget { tokens: Limit::AtMost(2_000_000), usd: Limit::Unlimited, agents: Limit::AtMost(100) };

const LEAD_PROMPT: &str = "You are the lead agent and work for the user. Complete the task, check the result, and report it: \
what you found or changed, how you verified it, and what is still open.";

impl Settings {
    /// Creates settings with defaults: the standard tools, mode `edit`, no `shell`.
    pub fn new(model: impl Into<String>, workspace: Workspace) -> Settings {
        Settings {
            model: model.into(),
            fallbacks: Vec::new(),
            lead: Settings::lead(),
            agents: AgentCatalog::default(),
            delegation_styles: DelegationStyles::default(),
            limits: Limits::default(),
            budget: DEFAULT_BUDGET,
            permissions: Permissions { mode: Mode::Edit, ..Permissions::default() },
            mode_origin: ModeOrigin::default(),
            approval_policy: ApprovalPolicy::Deny,
            models: Names::Any,
            workspace,
            tools: Toolbox::standard(),
            shell: None,
            sandbox: Arc::default(),
            external: None,
            skills: Skills::default(),
            instructions: None,
            environment: None,
            observers: Observers::default(),
            redactor: Redactor::default(),
        }
    }

    /// Returns the built-in lead agent. It may use all skills.
    pub fn lead() -> Agent {
        Agent {
            id: "lead".to_owned(),
            name: "lead".to_owned(),
            prompt: LEAD_PROMPT.to_owned(),
            guidance: Guidance::Lead,
            allow_skills: true,
            ..Agent::default()
        }
    }
}
