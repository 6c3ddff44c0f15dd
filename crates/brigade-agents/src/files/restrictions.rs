//! Keys that take authority away. None of them ever adds any.

use std::collections::BTreeSet;

use brigade_core::delegation_styles::DELEGATION_TOOLS;
use brigade_core::permission::{Mode, Rule};
use brigade_core::sandbox::SandboxMode;
use brigade_core::tool_names;
use serde_json::{Map, Value};

use super::problem::KeyError;
use super::value;

/// Restrictions that a file places on an agent.
#[derive(Debug, Default)]
pub(super) struct Restrictions {
    /// Widest permitted mode.
    pub(super) mode: Option<Mode>,
    /// Widest permitted sandbox.
    pub(super) sandbox: Option<SandboxMode>,
    /// Deny rules.
    pub(super) deny: BTreeSet<Rule>,
    /// Only permitted tools, if everything else is denied.
    pub(super) allowed_only: Option<BTreeSet<&'static str>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PermissionEffect {
    Allow,
    Ask,
    Deny,
}

impl Restrictions {
    /// Limits the mode to at most this one.
    pub(super) fn limit_mode(&mut self, mode: Mode) {
        self.mode = Some(self.mode.map_or(mode, |other| other.min(mode)));
    }

    /// Limits the sandbox of commands to at most this one.
    pub(super) fn limit_sandbox(&mut self, sandbox: SandboxMode) {
        self.sandbox = Some(self.sandbox.map_or(sandbox, |other| other.min(sandbox)));
    }

    /// Denies a whole tool.
    pub(super) fn deny_tool(&mut self, tool: &str) {
        self.deny.extend(tool.parse::<Rule>());
    }

    /// Whether a whole tool is denied.
    pub(super) fn denies(&self, tool: &str) -> bool {
        self.deny.iter().any(|rule| {
            let prefix = rule.tool().strip_suffix('*');
            rule.specifier().is_none()
                && (rule.tool() == tool || prefix.is_some_and(|prefix| tool.starts_with(prefix)))
        })
    }

    /// Reads `disallowedTools` and returns the unknown names.
    pub(super) fn disallow(&mut self, value: &Value) -> Result<Vec<String>, KeyError> {
        let names = match value {
            Value::Null => Vec::new(),
            _ => value::names(value)?,
        };
        let mut unknown = Vec::new();
        for name in names {
            if name == "*" {
                return Err("denies every tool".into());
            }
            if !self.disallow_one(&name) {
                unknown.push(name);
            }
        }
        Ok(unknown)
    }

    fn disallow_one(&mut self, name: &str) -> bool {
        let name = &*tool_names::canonical(name);
        if name.starts_with("mcp__") {
            let server = name.matches("__").count() == 1;
            let rule = if server { format!("{name}__*") } else { name.to_owned() };
            return rule.parse::<Rule>().map(|rule| self.deny.insert(rule)).is_ok();
        }
        let (tool, part) = match name.split_once('(') {
            Some((tool, part)) => (tool, part.trim_end_matches(')')),
            None => (name, ""),
        };
        let tools = tools(tool);
        tools.iter().for_each(|tool| self.deny_part(tool, part));
        !tools.is_empty()
    }

    /// Denies a part of a tool, or the whole tool if the part cannot be expressed as a rule.
    fn deny_part(&mut self, tool: &str, part: &str) {
        let part = part.trim().replace(":*", " *");
        let part = part.strip_prefix("./").unwrap_or(&part);
        let rule = match part {
            "" | "*" | "**" => None,
            part => format!("{tool}({part})").parse::<Rule>().ok(),
        };
        match rule {
            Some(rule) => drop(self.deny.insert(rule)),
            None => self.deny_tool(tool),
        }
    }

    /// Reads `permission` (effects by tool, optionally by pattern) and returns remarks about it.
    pub(super) fn permission(&mut self, value: &Value) -> Result<Vec<String>, KeyError> {
        let mut remarks = Vec::new();
        match value {
            Value::Null => {}
            Value::String(_) => self.tool_effect("*", effect(value)?, &mut remarks),
            Value::Object(map) => self.permission_map(map, &mut remarks)?,
            Value::Array(items) => {
                for item in items {
                    self.permission_item(item, &mut remarks)?;
                }
                self.allowed_only =
                    self.allowed_only.take().map(|_| items.iter().flat_map(allowed_by_item).collect());
            }
            _ => return Err("must be `allow`, `ask` or `deny` for each tool".into()),
        }
        if self.allowed_only.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err("denies every tool".into());
        }
        Ok(remarks)
    }

    fn permission_map(
        &mut self,
        map: &Map<String, Value>,
        remarks: &mut Vec<String>,
    ) -> Result<(), KeyError> {
        for (key, value) in map {
            match value {
                Value::Object(patterns) => self.patterns(key, patterns, remarks)?,
                _ => self.tool_effect(key, effect(value)?, remarks),
            }
        }
        if map.get("*").is_some_and(|value| matches!(effect(value), Ok(PermissionEffect::Deny))) {
            let open =
                |value: &Value| matches!(effect(value), Ok(PermissionEffect::Allow | PermissionEffect::Ask));
            let kept = map.iter().filter(|(key, value)| *key != "*" && open(value));
            self.allowed_only = Some(kept.flat_map(|(key, _)| allowed_tools(key)).collect());
        }
        Ok(())
    }

    fn patterns(
        &mut self,
        key: &str,
        patterns: &Map<String, Value>,
        remarks: &mut Vec<String>,
    ) -> Result<(), KeyError> {
        let base = patterns.get("*").map(effect).transpose()?.unwrap_or(PermissionEffect::Allow);
        self.tool_effect(key, base, remarks);
        for (pattern, value) in patterns.iter().filter(|(pattern, _)| *pattern != "*") {
            match (effect(value)?, base) {
                (PermissionEffect::Allow, PermissionEffect::Allow)
                | (PermissionEffect::Ask | PermissionEffect::Deny, PermissionEffect::Deny) => {}
                (PermissionEffect::Allow, _) => {
                    remarks.push(format!("`allow` is ignored for `{key}` with `{pattern}`"))
                }
                (PermissionEffect::Ask, PermissionEffect::Ask) => {}
                (PermissionEffect::Ask, PermissionEffect::Allow) => {
                    remarks.push(format!(
                        "`{key}` with `{pattern}` is denied, because an agent file cannot require approval for it"
                    ));
                    tools(key).iter().for_each(|tool| self.deny_part(tool, pattern));
                }
                (PermissionEffect::Deny, _) => {
                    tools(key).iter().for_each(|tool| self.deny_part(tool, pattern))
                }
            }
        }
        Ok(())
    }

    /// Reads one list entry: an action, a resource and an effect.
    fn permission_item(&mut self, item: &Value, remarks: &mut Vec<String>) -> Result<(), KeyError> {
        let of = |key: &str| item.get(key).and_then(Value::as_str);
        let (Some(action), Some(given)) = (of("action"), item.get("effect")) else {
            return Err("must have an `action` and an `effect` in each entry".into());
        };
        let resource = of("resource").unwrap_or("*");
        let patterns = Map::from_iter([(resource.to_owned(), given.clone())]);
        self.patterns(action, &patterns, remarks)
    }

    /// Applies an effect to all calls of a tool.
    fn tool_effect(&mut self, key: &str, effect: PermissionEffect, remarks: &mut Vec<String>) {
        match (key, effect) {
            (_, PermissionEffect::Allow) => {}
            ("*", PermissionEffect::Ask) => self.limit_mode(Mode::Ask),
            ("*", PermissionEffect::Deny) => drop(self.allowed_only.get_or_insert_default()),
            ("bash" | "shell", PermissionEffect::Ask) => self.limit_mode(Mode::Edit),
            ("edit" | "write", PermissionEffect::Ask) => self.limit_mode(Mode::Ask),
            (_, effect) => {
                let tools = tools(key);
                match (tools.is_empty(), effect) {
                    (true, _) => remarks.push(format!("`{key}` is not a known tool")),
                    (false, PermissionEffect::Ask) => {
                        remarks.push(format!(
                            "`{key}` is denied, because an agent file cannot require approval for it"
                        ));
                    }
                    (false, _) => {}
                }
                tools.iter().for_each(|tool| self.deny_tool(tool));
            }
        }
    }
}

fn effect(value: &Value) -> Result<PermissionEffect, KeyError> {
    match value.as_str().map(str::trim) {
        Some("allow") => Ok(PermissionEffect::Allow),
        Some("ask") => Ok(PermissionEffect::Ask),
        Some("deny") => Ok(PermissionEffect::Deny),
        _ => Err("must be `allow`, `ask` or `deny` for each tool".into()),
    }
}

/// Returns the tools that a list entry allows as a whole.
fn allowed_by_item(item: &Value) -> Vec<&'static str> {
    let of = |key: &str| item.get(key).and_then(Value::as_str);
    match (of("action"), of("resource").unwrap_or("*"), of("effect")) {
        (Some(action), "*", Some("allow" | "ask")) => allowed_tools(action),
        _ => Vec::new(),
    }
}

/// Returns the tools that a name allows.
fn allowed_tools(name: &str) -> Vec<&'static str> {
    match name {
        "edit" => vec!["edit_file", "write_file"],
        _ => tool_names::resolve(name),
    }
}

/// Returns the tools that a name denies. Denied names are interpreted broadly.
fn tools(name: &str) -> Vec<&'static str> {
    let tools = allowed_tools(name);
    if tools.iter().any(|tool| DELEGATION_TOOLS.contains(tool)) { DELEGATION_TOOLS.to_vec() } else { tools }
}
