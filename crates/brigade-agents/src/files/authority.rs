//! Keys about authority: the tools that a file grants and the ones that it takes away.

use brigade_core::delegation_styles::DELEGATION_TOOLS;
use brigade_core::permission::{Mode, Rule};
use brigade_core::sandbox::SandboxMode;
use serde_json::Value;

use super::build::{Builder, KeyResult, honoured};
use super::format::Format;
use super::problem::KeyStatus;
use super::tools_key::{ToolsKey, list_names};
use super::value;

impl Builder {
    pub(super) fn tools(&mut self, value: &Value, format: Format) -> KeyResult {
        let list = ToolsKey::read(value, format)?;
        list.disabled.iter().for_each(|tool| self.restrictions.deny_tool(tool));
        let remarks = list.remarks();
        let disabled = if list.disabled.is_empty() {
            String::new()
        } else {
            format!(", without {}", list_names(&list.disabled))
        };
        let named = match &list.tools {
            Some(tools) => list_names(tools),
            None => "all tools that the parent can pass on".to_owned(),
        };
        let status = match list.is_translated || !remarks.is_empty() {
            true => KeyStatus::Translated,
            false => KeyStatus::Honoured,
        };
        self.agent.tools = list.tools;
        Ok((status, format!("{named}{disabled}{remarks}")))
    }

    pub(super) fn lend(&mut self, value: &Value, format: Format) -> KeyResult {
        let list = ToolsKey::read_lend(value, format)?;
        let remarks = list.remarks();
        self.agent.lend = list.tools;
        let status = if list.is_translated { KeyStatus::Translated } else { KeyStatus::Honoured };
        Ok((status, remarks.trim_start_matches("; ").to_owned()))
    }

    /// Reads rules in Brigade's own syntax. A rule that cannot be parsed is an error, because it would protect
    /// nothing.
    pub(super) fn deny(&mut self, value: &Value) -> KeyResult {
        for rule in value::names(value)? {
            let rule: Rule = rule.parse().map_err(|error| format!("{error}"))?;
            self.restrictions.deny.insert(rule);
        }
        honoured()
    }

    pub(super) fn disallowed(&mut self, value: &Value) -> KeyResult {
        let unknown = self.restrictions.disallow(value)?;
        let text = match unknown.is_empty() {
            true => "applied as deny rules".to_owned(),
            false => format!("applied as deny rules; unknown tools: {}", list_names(&unknown)),
        };
        Ok((KeyStatus::Translated, text))
    }

    pub(super) fn permission(&mut self, value: &Value) -> KeyResult {
        let mut remarks = self.restrictions.permission(value)?;
        remarks.insert(
            0,
            "only `ask` and `deny` are applied; an agent file cannot grant permissions".to_owned(),
        );
        Ok((KeyStatus::Translated, remarks.join("; ")))
    }

    fn limit_mode(&mut self, mode: Mode) -> KeyResult {
        self.restrictions.limit_mode(mode);
        Ok((KeyStatus::Translated, format!("limits the mode to `{mode}`")))
    }

    pub(super) fn permission_mode(&mut self, value: &Value) -> KeyResult {
        match value::text(value)?.as_deref() {
            Some("plan") => {
                self.restrictions.limit_sandbox(SandboxMode::ReadOnly);
                self.limit_mode(Mode::Plan)
            }
            Some("dontAsk") => self.limit_mode(Mode::Ask),
            Some("acceptEdits") => self.limit_mode(Mode::Edit),
            Some("auto") => self.limit_mode(Mode::Auto),
            None | Some("default" | "manual") => {
                Ok((KeyStatus::Ignored, "the parent's mode is used".to_owned()))
            }
            Some("bypassPermissions") => {
                Ok((KeyStatus::Ignored, "an agent file cannot widen permissions".to_owned()))
            }
            Some(_) => Err("must be `plan`, `dontAsk`, `acceptEdits`, `auto` or `default`".into()),
        }
    }

    pub(super) fn sandbox(&mut self, value: &Value) -> KeyResult {
        let word = value::text(value)?.unwrap_or_default();
        let mode: SandboxMode = word.parse().map_err(|error| format!("{error}"))?;
        if mode == SandboxMode::Off {
            return Ok((KeyStatus::Ignored, "an agent file cannot widen permissions".to_owned()));
        }
        self.restrictions.limit_sandbox(mode);
        honoured()
    }

    pub(super) fn sandbox_mode(&mut self, value: &Value) -> KeyResult {
        match value::text(value)?.as_deref() {
            Some("read-only") => {
                self.restrictions.limit_sandbox(SandboxMode::ReadOnly);
                self.limit_mode(Mode::Plan)
            }
            Some("workspace-write") => {
                self.restrictions.limit_sandbox(SandboxMode::Workspace);
                self.limit_mode(Mode::Edit)
            }
            Some("danger-full-access") => {
                Ok((KeyStatus::Ignored, "an agent file cannot widen permissions".to_owned()))
            }
            _ => Err("must be `read-only`, `workspace-write` or `danger-full-access`".into()),
        }
    }

    pub(super) fn approval_policy(&mut self, value: &Value) -> KeyResult {
        match value {
            Value::String(word) if word == "untrusted" => self.limit_mode(Mode::Ask),
            _ => Ok((KeyStatus::Ignored, "your own permissions decide what requires approval".to_owned())),
        }
    }

    pub(super) fn read_only(&mut self, value: &Value) -> KeyResult {
        if !value::flag(value)? {
            return honoured();
        }
        self.restrictions.limit_sandbox(SandboxMode::ReadOnly);
        self.limit_mode(Mode::Plan)
    }

    /// A selection of agents cannot be enforced, so an agent that may delegate to a few of them may not delegate at
    /// all.
    pub(super) fn agents(&mut self, value: &Value) -> KeyResult {
        if value::names(value)?.iter().any(|name| name == "*") {
            return honoured();
        }
        DELEGATION_TOOLS.iter().for_each(|tool| self.restrictions.deny_tool(tool));
        Ok((
            KeyStatus::Translated,
            "delegation is denied, because it cannot be limited to certain agents".to_owned(),
        ))
    }

    pub(super) fn mode(&mut self, value: &Value, format: Format) -> KeyResult {
        let word = value::text(value)?.unwrap_or_default();
        match word.parse::<Mode>() {
            Ok(mode) => {
                self.restrictions.limit_mode(mode);
                honoured()
            }
            Err(_) if matches!(word.as_str(), "primary" | "subagent" | "all") => {
                Ok((KeyStatus::Ignored, "every agent can be started by users and by other agents".to_owned()))
            }
            Err(error) if format.is_native() => Err(error.to_string().into()),
            Err(_) => Ok((
                KeyStatus::Ignored,
                "applies only to the program that the file was written for".to_owned(),
            )),
        }
    }

    /// Removes denied tools from the list. If no tool is left, the file is refused.
    pub(super) fn resolve_tools(&mut self) {
        if let Some(allowed_only) = &self.restrictions.allowed_only {
            let kept = allowed_only.iter().map(|tool| (*tool).to_owned());
            match &mut self.agent.tools {
                Some(tools) => tools.retain(|tool| allowed_only.contains(tool.as_str())),
                None => self.agent.tools = Some(kept.collect()),
            }
        }
        let Some(tools) = &mut self.agent.tools else { return };
        let restrictions = &self.restrictions;
        let before = tools.len();
        tools.retain(|tool| !restrictions.denies(tool));
        let is_nothing = tools.is_empty() && (before > 0 || restrictions.allowed_only.is_some());
        if is_nothing && !self.notes.iter().any(|note| note.status == KeyStatus::Refused) {
            self.refuse("tools", None, "grants no tools, because the file denies all of them".to_owned());
        }
    }
}
