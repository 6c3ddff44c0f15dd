//! Raw configuration. A field is a key, its doc comment is the description of the key, and `Default` has its default
//! value. The checks, the environment variables, the schema and `docs/configuration.md` are derived from these structs
//! and those of the other sections. Each struct is destructured where it is resolved, so that no key goes unread.

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::{ApprovalPolicy, Limits};
use brigade_core::Budget;
use brigade_core::delegation_styles::DelegationConfig;
use brigade_core::delegation_styles::delegate::SwarmConfig;
use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use brigade_core::permission::{Mode, Permissions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::values::{MaxCount, MaxDollars, Rules, Time};
use super::{LEAD_AGENT, acp, prices, providers, sandbox, servers, shell, web};
use crate::terminal;

/// Name of the default store.
pub(super) const DEFAULT_STORE: &str = "sqlite";

/// All keys.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    /// Default model of agents: PROVIDER/MODEL, or script:FILE for a scripted model.
    pub(super) model: Option<String>,
    /// Fallback models, tried in order if the model fails permanently.
    pub(super) fallbacks: Vec<String>,
    /// Agent that receives a task by default.
    pub(super) default_agent: Option<String>,
    /// Command to run when an approval is requested or a run ends; environment variables NOTIFY_… describe the event.
    pub(super) notify: Option<String>,
    /// File that stores the sessions: `sqlite` for the default location, or a path.
    pub(super) store: Option<String>,
    /// Agent definitions.
    pub(super) agents: RawAgents,
    /// Skills.
    pub(super) skills: RawSkills,
    /// Memory that agents keep across sessions.
    pub(super) memory: RawMemory,
    /// Model providers by name: new ones, and changes to the built-in ones.
    #[serde(skip_serializing)]
    pub(super) providers: BTreeMap<String, providers::RawProvider>,
    /// Model prices by PROVIDER/MODEL, to correct or extend the built-in table.
    #[serde(skip_serializing)]
    #[schemars(
        with = "BTreeMap<String, prices::RawPrice>",
        title = "a section with one entry per model, as in `[prices.\"openai/gpt-4.1\"]`",
        extend("propertyNames" = { "pattern": "^[^/]+/.+$" })
    )]
    pub(super) prices: BTreeMap<prices::ModelName, prices::RawPrice>,
    /// Delegation: its styles and additional parameters.
    pub(super) delegation: DelegationConfig,
    /// Delegation style `delegate`.
    pub(super) swarm: SwarmConfig,
    /// Delegation style `subagent`; enabled if this section exists, even if it is empty.
    pub(super) subagent: Option<SubagentConfig>,
    /// Delegation style `spawn`; enabled if this section exists, even if it is empty.
    pub(super) spawn: Option<SpawnConfig>,
    /// Budget of one task, including all sub-agents.
    pub(super) budget: RawBudget,
    /// Limits of single sessions and of the whole tree.
    pub(super) limits: RawLimits,
    /// Permissions of agents; deny overrides ask, and ask overrides allow.
    pub(super) permissions: RawPermissions,
    /// Environment variables of commands: yours without secrets, adjusted by these lists.
    pub(super) shell: shell::RawShell,
    /// Sandbox of commands that agents run.
    pub(super) sandbox: sandbox::RawSandbox,
    /// Web access.
    pub(super) web: web::RawWeb,
    /// MCP servers by name.
    #[serde(rename = "mcpServers", skip_serializing)]
    pub(super) mcp_servers: BTreeMap<String, servers::RawMcpServer>,
    /// External agents (Agent Client Protocol).
    #[serde(skip_serializing)]
    pub(super) acp: acp::RawAcp,
}

/// Section `agents`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAgents {
    /// Additional directories with agent files.
    pub(super) paths: Vec<String>,
}

/// Section `skills`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSkills {
    /// Additional directories with skills.
    pub(super) paths: Vec<String>,
}

/// Section `memory`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawMemory {
    /// Whether agents have the memory tools.
    pub(super) enabled: bool,
}

impl Default for RawMemory {
    fn default() -> RawMemory {
        RawMemory { enabled: true }
    }
}

/// Section `budget`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBudget {
    /// Maximum tokens, input and output together.
    tokens: MaxCount,
    /// Maximum cost in dollars.
    usd: MaxDollars,
    /// Maximum number of sub-agents.
    agents: MaxCount,
}

impl Default for RawBudget {
    fn default() -> RawBudget {
        let Budget { tokens, usd, agents } = brigade::DEFAULT_BUDGET;
        RawBudget { tokens: MaxCount(tokens), usd: MaxDollars(usd), agents: MaxCount(agents) }
    }
}

impl RawBudget {
    pub(super) fn resolve(self) -> Budget {
        let RawBudget { tokens: MaxCount(tokens), usd: MaxDollars(usd), agents: MaxCount(agents) } = self;
        Budget { tokens, usd, agents }
    }
}

/// Section `limits`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLimits {
    /// Maximum number of model calls of the lead agent.
    lead_turns: u32,
    /// Maximum number of model calls of a sub-agent.
    child_turns: u32,
    /// Timeout of a sub-agent.
    child_timeout: Time,
    /// Time after which an unanswered approval request is denied.
    question_timeout: Time,
    /// Pause before a failed model call is retried; doubles with each failure.
    retry_pause: Time,
    /// Timeout of a command.
    shell_timeout: Time,
    /// Maximum depth of the tree, across all delegation styles.
    max_depth: u32,
    /// Maximum concurrent agents of a tree.
    concurrency: u32,
    /// Maximum bytes of a result that the caller reads at once.
    result_bytes: u32,
    /// Default maximum number of output tokens of a reply.
    max_tokens: u32,
    /// Number of turns with the same calls and results after which an agent is warned; 0: never.
    loop_warning: u32,
    /// Number of turns with the same calls and results after which an agent is stopped; 0: never.
    loop_limit: u32,
}

impl Default for RawLimits {
    fn default() -> RawLimits {
        let limits = Limits::default();
        RawLimits {
            lead_turns: limits.lead_turns,
            child_turns: limits.child_turns,
            child_timeout: Time(limits.child_timeout),
            question_timeout: Time(limits.question_timeout),
            retry_pause: Time(limits.retry_pause),
            shell_timeout: Time(Duration::from_secs(120)),
            max_depth: limits.max_depth,
            concurrency: saturating(limits.concurrency),
            result_bytes: saturating(limits.result_bytes),
            max_tokens: saturating(limits.max_tokens),
            loop_warning: limits.loop_warning,
            loop_limit: limits.loop_limit,
        }
    }
}

/// Number in 32 bits, or the maximum if it does not fit.
pub(super) fn saturating(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

impl RawLimits {
    /// Limits of sessions, and the timeout of a command.
    pub(super) fn resolve(self) -> (Limits, Duration) {
        let RawLimits {
            lead_turns,
            child_turns,
            child_timeout: Time(child_timeout),
            question_timeout: Time(question_timeout),
            retry_pause: Time(retry_pause),
            shell_timeout: Time(shell_timeout),
            max_depth,
            concurrency,
            result_bytes,
            max_tokens,
            loop_warning,
            loop_limit,
        } = self;
        let limits = Limits {
            lead_turns,
            child_turns,
            child_timeout,
            question_timeout,
            retry_pause,
            max_depth,
            concurrency: concurrency.max(1) as usize,
            result_bytes: result_bytes as usize,
            max_tokens: max_tokens.into(),
            loop_warning,
            loop_limit,
            ..Limits::default()
        };
        (limits, shell_timeout)
    }
}

/// Section `permissions`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPermissions {
    /// Calls that run without approval: plan (reads, and commands whose changes are discarded; all others are denied), ask
    /// (reads), edit (reads, file edits, and commands in a sandbox), auto (all calls that no deny or ask rule matches). By
    /// default ask at a terminal, otherwise edit.
    mode: Option<Mode>,
    /// Handling of approval requests: prompt at the terminal, and deny without one (auto); wait for an answer from any
    /// terminal (wait); or deny (refuse).
    pub(super) questions: QuestionsSetting,
    /// Calls to allow, such as shell(cargo test *).
    allow: Rules,
    /// Calls that need approval.
    ask: Rules,
    /// Calls to deny, even if another rule allows them, such as read_file(**/.env*).
    deny: Rules,
}

impl RawPermissions {
    pub(super) fn resolve(self) -> (Permissions, QuestionsSetting) {
        let RawPermissions { mode, questions, allow: Rules(allow), ask: Rules(ask), deny: Rules(deny) } =
            self;
        (Permissions { mode: mode.unwrap_or_else(default_mode), allow, ask, deny }, questions)
    }
}

/// Policy for approval requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum QuestionsSetting {
    /// Ask at a terminal.
    #[default]
    Auto,
    /// Always ask. Without a terminal, the user answers from another one.
    Wait,
    /// Never ask.
    Refuse,
}

impl QuestionsSetting {
    pub(super) fn resolve(self) -> ApprovalPolicy {
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
pub(super) fn default_table() -> Result<Table, toml::ser::Error> {
    fn remove_empty_sections(table: &mut Table) {
        table.retain(|_, value| match value {
            Value::Table(inner) => {
                remove_empty_sections(inner);
                !inner.is_empty()
            }
            _ => true,
        });
    }
    let mut table = Table::try_from(RawConfig {
        default_agent: Some(LEAD_AGENT.to_owned()),
        store: Some(DEFAULT_STORE.to_owned()),
        permissions: RawPermissions { mode: Some(default_mode()), ..RawPermissions::default() },
        ..RawConfig::default()
    })?;
    remove_empty_sections(&mut table);
    Ok(table)
}
