//! What a runtime is told once.

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
use crate::skills::Skills;
use crate::tool::{ShellSettings, Toolbox, Workspace};

/// Everything that a runtime is told once. Nothing here is read from the environment.
#[derive(Clone)]
pub struct Settings {
    /// The model of agents that name none: `provider/model`.
    pub model: String,
    /// Models that take over, one after the other, where that one fails for good.
    pub fallbacks: Vec<String>,
    /// The agent that takes a task from a person.
    pub lead: Agent,
    /// The agents that can be named.
    pub agents: AgentCatalog,
    /// How agents delegate.
    pub faces: DelegationStyles,
    /// Limits of single sessions and of the tree.
    pub limits: Limits,
    /// What a tree may use up.
    pub budget: Budget,
    /// Which calls are allowed.
    pub permissions: Permissions,
    /// Where the mode of `permissions` comes from. It decides what a resume remembers.
    pub mode_origin: ModeOrigin,
    /// Who is asked about calls that a rule or the mode wants to be asked about.
    pub approval_policy: ApprovalPolicy,
    /// Which models agents may choose.
    pub models: Names,
    /// The folder that tools work in.
    pub workspace: Workspace,
    /// The tools there are.
    pub tools: Toolbox,
    /// How commands are run; without it `shell` is not offered.
    pub shell: Option<ShellSettings>,
    /// Agents that other programs run.
    pub external: Option<Arc<dyn ExternalAgents>>,
    /// The skills that agents with `allow_skills` are offered.
    pub skills: Skills,
    /// What the project tells all agents that do not ignore it.
    pub instructions: Option<Arc<str>>,
    /// Environment that the agent at the top is told of.
    pub environment: Option<Environment>,
}

/// Origin of the mode that is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModeOrigin {
    /// The configuration sets it. A round that is resumed takes it if it is narrower than the recorded mode.
    #[default]
    Configuration,
    /// The user chose it for this run. Sessions that start with it keep it when they are resumed.
    Choice,
    /// The user did not set it. A session whose configured mode was freer than `edit` is narrowed to `edit`.
    Default,
}

/// Who is asked about a call before it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Nobody: the call is refused at once, and the agent reads what would permit it.
    #[default]
    Deny,
    /// A person, who answers with [`Runtime::answer`](crate::Runtime::answer) from this or any other process.
    AskUser,
}

/// Limits of single sessions and of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Model calls of the lead.
    pub lead_turns: u32,
    /// Model calls of a child.
    pub child_turns: u32,
    /// How long a child may take.
    pub child_timeout: Duration,
    /// How long a question waits for a person before the answer is no.
    pub question_timeout: Duration,
    /// How deep a tree may get, over all faces.
    pub max_depth: u32,
    /// Active sessions at once in a tree.
    pub concurrency: usize,
    /// The longest result of a child that its parent reads whole.
    pub result_bytes: usize,
    /// Output tokens of one reply, at most; the model's own maximum if that is smaller.
    pub max_tokens: u64,
    /// After how many turns with the same calls and results an agent is told that it repeats itself; 0 for never.
    pub loop_warning: u32,
    /// After how many such turns it is stopped; 0 for never.
    pub loop_limit: u32,
    /// How long a model may stay silent.
    pub model_silence: Duration,
    /// The pause after the first fault of a model; it doubles with each that follows, up to 8 seconds.
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

/// The budget of a tree where nobody says otherwise.
pub const DEFAULT_BUDGET: Budget =
    Budget { tokens: Limit::AtMost(2_000_000), usd: Limit::Unlimited, agents: Limit::AtMost(100) };

const LEAD_PROMPT: &str = "You are the lead agent: the user's task comes to you. Work out what the task needs, do it, \
and answer with the finished result.";

impl Settings {
    /// Settings with the defaults: the standard tools, mode `edit`, no `shell`.
    pub fn new(model: impl Into<String>, workspace: Workspace) -> Settings {
        Settings {
            model: model.into(),
            fallbacks: Vec::new(),
            lead: Settings::lead(),
            agents: AgentCatalog::default(),
            faces: DelegationStyles::default(),
            limits: Limits::default(),
            budget: DEFAULT_BUDGET,
            permissions: Permissions { mode: Mode::Edit, ..Permissions::default() },
            mode_origin: ModeOrigin::default(),
            approval_policy: ApprovalPolicy::Deny,
            models: Names::Any,
            workspace,
            tools: Toolbox::standard(),
            shell: None,
            external: None,
            skills: Skills::default(),
            instructions: None,
            environment: None,
        }
    }

    /// The built-in lead agent. It is offered the skills there are.
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
