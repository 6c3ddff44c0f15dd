//! Style B: `subagent`, a recursive helper that reports at its end, and `parallel_subagent`, several at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::delegate::{Retention, fold};
use super::results::{failure_cause, last_line, render_helper, truncate_with_handle};
use super::style::{Caller, ChildResult, ChildSpec, DelegationPlan, ParallelTool, Style, StyleInfo};
use super::titles::{Title, sanitize_title};
use crate::agent::{Agent, Guidance};
use crate::delegation::{Delegation, DelegationStyle, LimitKind, Outcome, Status};
use crate::grant::AuthorityRequest;
use crate::json;
use crate::message::{Refusal, ToolOutput, ToolSpec};
use crate::text::{Text, truncate_bytes};
use crate::tool_names;

/// Name of the tool.
pub const NAME: &str = "subagent";
/// Tool that starts several helpers.
pub const PARALLEL_NAME: &str = "parallel_subagent";

/// Default prompt that requests the report.
const DEFAULT_SUMMARY_PROMPT: &str = "Summarize your findings concisely";
/// Maximum number of turns that a call may request.
const MAX_TURNS: u64 = 50;
/// Default number of tasks of a parallel call that run at once.
const DEFAULT_MAX_CONCURRENT: u64 = 5;
/// Maximum number of tasks of a parallel call.
const MAX_TASKS: usize = 1_000;
/// Minimum size of each report of a parallel call, however many there are.
const MIN_REPORT_BYTES: usize = 256;
/// Suffix of a truncated report.
const TRUNCATION_MARKER: &str = "\n... (truncated)";

const SYSTEM_PROMPT: &str = "You are a sub-agent working on one task for another agent. Work until it is done, and check your \
work. You are then asked for a report, which is all that your caller sees.";

/// Section `subagent` of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SubagentConfig {
    /// Maximum depth, including the root.
    pub max_depth: u32,
    /// Default maximum number of model calls of a sub-agent.
    #[cfg_attr(feature = "schemars", schemars(range(min = 1, max = 50)))]
    pub default_max_turns: u32,
    /// Maximum bytes of a report that the caller reads.
    #[cfg_attr(feature = "schemars", schemars(range(min = 1)))]
    pub output_max_size: usize,
    /// Retention of sub-agent sessions: as long as the root session (root), or only until it ends (none).
    pub keep: Retention,
}

/// Settings of a style without a section.
pub(super) static DEFAULT: SubagentConfig =
    SubagentConfig { max_depth: 3, default_max_turns: 10, output_max_size: 4096, keep: Retention::Root };

impl Default for SubagentConfig {
    fn default() -> SubagentConfig {
        DEFAULT.clone()
    }
}

/// Arguments as a model writes them.
#[derive(Debug, Deserialize)]
struct Input {
    label: String,
    task_prompt: String,
    #[serde(default)]
    summary_prompt: Option<String>,
    #[serde(default)]
    allowed_tools: Option<Vec<String>>,
    #[serde(default)]
    max_turns: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct ParallelInput {
    tasks: Vec<Value>,
    #[serde(default)]
    max_concurrent: Option<u64>,
    #[serde(default)]
    fail_fast: Option<bool>,
}

impl SubagentConfig {
    /// Returns the problem of the section for the user, if it has one.
    pub fn problem(&self) -> Option<String> {
        if !(1..=MAX_TURNS).contains(&u64::from(self.default_max_turns)) {
            return Some("`subagent.default_max_turns` must be between 1 and 50".to_owned());
        }
        if self.output_max_size == 0 {
            return Some("`subagent.output_max_size` must be at least 1".to_owned());
        }
        None
    }

    /// Returns the spec of `subagent` for the model.
    pub fn spec(&self) -> ToolSpec {
        let description = "Run a helper on one task in its own conversation. When it is done, it answers `summary_prompt`, and \
that answer is the result. Use it for large or separable work; do small tasks yourself.";
        ToolSpec::delegation(NAME, description, self.task_schema())
    }

    /// Returns the spec of `parallel_subagent` for the model.
    pub fn parallel_spec(&self) -> ToolSpec {
        let description = "Run several independent `subagent` tasks in parallel. Returns all reports as JSON, in the order \
of the tasks.";
        let task = self.task_schema();
        let schema = json!({
            "type": "object",
            "properties": {
                "tasks": { "type": "array", "items": task, "minItems": 1, "description": "One helper per task" },
                "max_concurrent": { "type": "integer", "minimum": 1, "default": DEFAULT_MAX_CONCURRENT },
                "fail_fast": {
                    "type": "boolean",
                    "default": false,
                    "description": "Stop the other tasks when one fails"
                }
            },
            "required": ["tasks"]
        });
        ToolSpec::delegation(PARALLEL_NAME, description, schema)
    }

    fn task_schema(&self) -> Value {
        let properties = json!({
            "label": { "type": "string", "description": "Short name of the task" },
            "task_prompt": { "type": "string", "description": "Complete briefing: the helper sees nothing of this conversation" },
            "summary_prompt": {
                "type": "string",
                "default": DEFAULT_SUMMARY_PROMPT,
                "description": "Final prompt; the reply to it is the result"
            },
            "allowed_tools": {
                "type": ["array", "null"],
                "items": { "type": "string" },
                "default": null,
                "description": "Allowed tools (default: yours)"
            },
            "max_turns": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_TURNS,
                "default": self.default_max_turns,
                "description": "Maximum number of replies before the report"
            }
        });
        json!({ "type": "object", "properties": properties, "required": ["label", "task_prompt"] })
    }

    fn parse_parallel(&self, caller: &Caller<'_>, value: Value) -> Result<DelegationPlan, Refusal> {
        let input: ParallelInput = serde_json::from_value(value).map_err(invalid)?;
        if input.tasks.is_empty() {
            return Err("`tasks` cannot be empty".into());
        }
        if input.tasks.len() > MAX_TASKS {
            return Err(format!(
                "`tasks` has {} entries, more than the limit of {MAX_TASKS}",
                input.tasks.len()
            )
            .into());
        }
        let delegation = |(index, task): (usize, Value)| {
            self.parse_task(caller, task).map_err(|cause| format!("tasks[{index}]: {cause}"))
        };
        let delegations =
            input.tasks.into_iter().enumerate().map(delegation).collect::<Result<Vec<_>, _>>()?;
        let max_concurrent = usize::try_from(input.max_concurrent.unwrap_or(DEFAULT_MAX_CONCURRENT).max(1))
            .unwrap_or(usize::MAX);
        Ok(DelegationPlan { delegations, max_concurrent, fail_fast: input.fail_fast.unwrap_or_default() })
    }

    fn parse_task(&self, caller: &Caller<'_>, value: Value) -> Result<Delegation, Refusal> {
        let input: Input = serde_json::from_value(value).map_err(invalid)?;
        let task = input.task_prompt.trim();
        if task.is_empty() {
            return Err("task_prompt cannot be empty".into());
        }
        let label = Title::of(&input.label).ok_or("label cannot be empty")?;
        let turns = input.max_turns.unwrap_or(i64::from(self.default_max_turns));
        let turns = u64::try_from(turns).ok().filter(|turns| (1..=MAX_TURNS).contains(turns));
        let turns = turns.ok_or("max_turns must be between 1 and 50")?;
        let tools = input.allowed_tools.map(|tools| whitelist(caller, &tools)).transpose()?;
        let report = input.summary_prompt.filter(|prompt| !prompt.trim().is_empty());
        Ok(Delegation {
            style: DelegationStyle::Subagent,
            role: Some(label.display),
            title: label.original,
            task: Text::from(task),
            tools,
            turns: u32::try_from(turns).ok(),
            report: Some(report.map_or_else(|| Text::from(DEFAULT_SUMMARY_PROMPT), Text::from)),
            report_bytes: Some(self.output_max_size),
            ..Delegation::default()
        })
    }

    fn report_bytes(&self, delegation: &Delegation) -> usize {
        delegation.report_bytes.unwrap_or(self.output_max_size)
    }

    fn report(&self, delegation: &Delegation, outcome: &Outcome, limit: usize) -> String {
        let (whole, limit) = (outcome.text.as_str(), self.report_bytes(delegation).min(limit));
        let mut text = truncate_bytes(whole, limit).to_owned();
        if whole.len() > limit {
            text.push_str(TRUNCATION_MARKER);
        }
        text
    }
}

impl Style for SubagentConfig {
    fn info(&self) -> StyleInfo {
        StyleInfo {
            keeps_tools_at_limit: true,
            retention: self.keep,
            extends_titles: true,
            // The limit counts the root.
            ..StyleInfo::new(
                DelegationStyle::Subagent,
                &[NAME, PARALLEL_NAME],
                self.max_depth.saturating_sub(1),
            )
        }
    }

    fn specs(&self, _caller: &Caller<'_>) -> Vec<ToolSpec> {
        vec![self.spec(), self.parallel_spec()]
    }

    /// The depth is checked before the arguments.
    fn plan(&self, tool: &str, caller: &Caller<'_>, arguments: &str) -> Result<DelegationPlan, Refusal> {
        if !self.may_start(caller) {
            return Err(format!(
                "Maximum recursion depth exceeded (subagent limit {}, current depth {})",
                self.max_depth, caller.depth
            )
            .into());
        }
        let value = json::parse(arguments).map_err(invalid)?;
        if tool == PARALLEL_NAME {
            return self.parse_parallel(caller, value);
        }
        self.parse_task(caller, value).map(DelegationPlan::one)
    }

    fn parallel(&self, tool: &str) -> Option<&dyn ParallelTool> {
        (tool == PARALLEL_NAME).then_some(self)
    }

    /// A helper requests its whitelist, or what its caller may use, and this style's own tools always.
    fn child(&self, delegation: &Delegation, caller: &Caller<'_>, _definition: Option<Agent>) -> ChildSpec {
        let label = delegation.role.clone().unwrap_or_default();
        let (id, prompt, guidance) = (fold(&label), SYSTEM_PROMPT.to_owned(), Guidance::Helper);
        let agent = Agent { id, name: label, prompt, guidance, ..Agent::default() };
        let mut tools = match &delegation.tools {
            Some(tools) => tools.clone(),
            None => caller.authority.own_tools().into_iter().collect(),
        };
        for own in [NAME, PARALLEL_NAME] {
            let is_callers = caller.authority.tools.contains(own) && caller.authority.lend.contains(own);
            if is_callers && !tools.iter().any(|tool| tool == own) {
                tools.push(own.to_owned());
            }
        }
        (agent, AuthorityRequest { tools: Some(tools), ..AuthorityRequest::default() })
    }

    fn render(&self, delegation: &Delegation, outcome: &Outcome, limit: usize, handle: &str) -> ToolOutput {
        let label = delegation.role.as_deref().unwrap_or_default();
        let text = if self.report_bytes(delegation) <= limit {
            self.report(delegation, outcome, limit)
        } else {
            truncate_with_handle(outcome.text.as_str(), limit, handle)
        };
        render_helper(label, outcome, &text, handle)
    }
}

impl ParallelTool for SubagentConfig {
    /// Reports that exceed the limit of one result together share its size.
    fn render_parallel(
        &self,
        delegations: &[(Arc<Delegation>, ChildResult)],
        total_ms: u64,
        limit: usize,
    ) -> ToolOutput {
        let sizes = delegations
            .iter()
            .map(|(delegation, end)| self.report_bytes(delegation).min(end.outcome.text.len()));
        let room = if sizes.sum::<usize>() > limit {
            (limit / delegations.len().max(1)).max(MIN_REPORT_BYTES)
        } else {
            limit
        };
        let result = |(delegation, end): &(Arc<Delegation>, ChildResult)| {
            let error = failure_cause(&end.outcome.status);
            TaskResult {
                label: delegation.full_title().to_owned(),
                success: error.is_none(),
                output: self.report(delegation, &end.outcome, room) + &last_line(&end.outcome),
                duration_ms: end.duration_ms,
                error,
                tokens_used: end.tokens,
            }
        };
        let results: Vec<TaskResult> = delegations.iter().map(result).collect();
        let failed = results.iter().filter(|result| !result.success).count();
        let successful = results.len() - failed;
        let whole = ParallelResult { results, total_duration_ms: total_ms, successful, failed };
        // Strings and numbers always serialise.
        ToolOutput::ok(serde_json::to_string(&whole).unwrap_or_default())
    }
}

/// Result of a parallel call for the caller, in this key order.
#[derive(Serialize)]
struct ParallelResult {
    results: Vec<TaskResult>,
    total_duration_ms: u64,
    successful: usize,
    failed: usize,
}

/// Result of one of its tasks.
#[derive(Serialize)]
struct TaskResult {
    label: String,
    success: bool,
    output: String,
    duration_ms: u64,
    error: Option<String>,
    tokens_used: u64,
}

fn invalid(cause: serde_json::Error) -> String {
    format!("Invalid subagent input: {cause}")
}

fn whitelist(caller: &Caller<'_>, tools: &[String]) -> Result<Vec<String>, Refusal> {
    let mut allowed = Vec::new();
    let own_tools = caller.authority.own_tools();
    for requested in tools {
        if let Some(own) =
            [NAME, PARALLEL_NAME].into_iter().find(|own| tool_names::resolve(requested).contains(own))
        {
            return Err(format!("Subagent cannot have '{own}' in allowed_tools").into());
        }
        for name in tool_names::resolve_list(std::slice::from_ref(requested), &own_tools) {
            if !own_tools.contains(&name) {
                return Err(format!("Unknown tool in allowed_tools: {}", sanitize_title(&name, 64)).into());
            }
            allowed.push(name);
        }
    }
    Ok(allowed)
}

/// Data about a helper that has ended.
#[derive(Debug, Clone, Copy)]
pub struct SubagentStats<'a> {
    /// Label of the helper.
    pub label: &'a str,
    /// Depth of the helper.
    pub depth: u32,
    /// Model calls of both phases.
    pub turns: u64,
    /// Turn limit of the task phase.
    pub max_turns: u32,
    /// Terminal status.
    pub status: &'a Status,
    /// Input and output tokens of both phases.
    pub tokens: (u64, u64),
    /// Size of the report in bytes.
    pub size: usize,
    /// Maximum number of bytes of a report that its caller reads: `output_max_size`.
    pub max_size: usize,
}

/// Returns the metadata of a helper, as strings.
pub fn metadata(stats: &SubagentStats<'_>) -> BTreeMap<&'static str, String> {
    let (prompt, completion) = stats.tokens;
    let complete = *stats.status == Status::Done;
    let mut metadata = BTreeMap::from([
        ("subagent_label", stats.label.to_owned()),
        ("recursion_depth", stats.depth.saturating_sub(1).to_string()),
        ("child_depth", stats.depth.to_string()),
        ("turns_used", stats.turns.to_string()),
        ("completion_status", if complete { "complete" } else { "incomplete" }.to_owned()),
        ("tokens_used", prompt.saturating_add(completion).to_string()),
        ("prompt_tokens", prompt.to_string()),
        ("completion_tokens", completion.to_string()),
    ]);
    if *stats.status == (Status::Incomplete { limit: LimitKind::Turns }) {
        metadata.insert("max_turns_reached", "true".to_owned());
        metadata.insert("max_turns", stats.max_turns.to_string());
    }
    if stats.size > stats.max_size {
        metadata.insert("truncated", "true".to_owned());
    }
    metadata
}

#[cfg(test)]
mod tests;
