//! The key `tools`: the tools that an agent may use.

use brigade_core::permission::Rule;
use brigade_core::tool_names;
use serde_json::{Map, Value};

use super::format::Format;
use super::problem::KeyError;
use super::value;

/// Parsed value of `tools`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolsKey {
    /// Granted tools; `None` grants all available ones.
    pub(super) tools: Option<Vec<String>>,
    /// Disabled tools.
    pub(super) disabled: Vec<String>,
    /// Names of unknown tools, which are not granted.
    pub(super) unknown: Vec<String>,
    /// Names that request a part of a tool. A part cannot be granted, and the whole tool is more than was
    /// requested.
    pub(super) partial: Vec<String>,
    /// Whether a name is not one of Brigade's own tool names.
    pub(super) is_translated: bool,
}

enum ToolEntry {
    All,
    Tools(Vec<String>),
    Partial,
    Unknown,
}

impl ToolsKey {
    /// Reads the value of `tools`. A value that names no tool is an error and never means all tools.
    pub(super) fn read(value: &Value, format: Format) -> Result<ToolsKey, KeyError> {
        let list = match value {
            Value::Null => {
                return Err("is empty. List tools, or remove the key to inherit the parent's.".into());
            }
            Value::Object(map) => ToolsKey::from_map(map, format)?,
            _ => ToolsKey::from_names(value::names(value)?, format),
        };
        let is_empty = list.disabled.is_empty() && list.tools.as_ref().is_some_and(Vec::is_empty);
        if is_empty { Err(format!("grants no tools{}", list.remarks()).into()) } else { Ok(list) }
    }

    /// Reads the value of `lend`, where an empty list means no tools.
    pub(super) fn read_lend(value: &Value, format: Format) -> Result<ToolsKey, KeyError> {
        match value {
            Value::Array(items) if items.is_empty() => {
                Ok(ToolsKey { tools: Some(Vec::new()), ..ToolsKey::default() })
            }
            Value::Null => Err("is empty. List tools, or write `[]` for none.".into()),
            Value::Object(_) => Err("must be a list of names".into()),
            _ => ToolsKey::read(value, format),
        }
    }

    fn from_names(names: Vec<String>, format: Format) -> ToolsKey {
        let mut list = ToolsKey { tools: Some(Vec::new()), ..ToolsKey::default() };
        let mut all = false;
        for name in names {
            all |= list.add(name, format);
        }
        if all {
            list.tools = None;
        }
        list
    }

    /// Reads a map of switches. Only the enabled tools are granted, unless the map only disables tools.
    fn from_map(map: &Map<String, Value>, format: Format) -> Result<ToolsKey, KeyError> {
        let mut on = Vec::new();
        let mut disabled = Vec::new();
        for (name, value) in map {
            let wrong = |_| format!("`{name}` must be true or false");
            match value::flag(value).map_err(wrong)? {
                true => on.push(name.clone()),
                false => disabled.push(name.clone()),
            }
        }
        let nothing_else = on.is_empty() && !disabled.iter().any(|name| name == "*") && !disabled.is_empty();
        let mut list = ToolsKey::from_names(on, format);
        list.is_translated = true;
        if nothing_else {
            list.tools = None;
        }
        for name in disabled {
            match parse_entry(&name, format) {
                ToolEntry::Tools(tools) => list.disabled.extend(tools),
                ToolEntry::All => {}
                ToolEntry::Partial | ToolEntry::Unknown => list.unknown.push(name),
            }
        }
        Ok(list)
    }

    /// Adds a name and returns whether it means all tools.
    fn add(&mut self, name: String, format: Format) -> bool {
        match parse_entry(&name, format) {
            ToolEntry::All => {
                self.is_translated = true;
                return true;
            }
            ToolEntry::Tools(tools) => {
                self.is_translated |= tools != [name];
                let list = self.tools.get_or_insert_default();
                for tool in tools {
                    if !list.contains(&tool) {
                        list.push(tool);
                    }
                }
            }
            ToolEntry::Partial => self.partial.push(name),
            ToolEntry::Unknown => self.unknown.push(name),
        }
        false
    }

    /// Describes the names that are not granted.
    pub(super) fn remarks(&self) -> String {
        let mut remarks = String::new();
        if !self.unknown.is_empty() {
            remarks.push_str(&format!("; unknown tools, not granted: {}", list_names(&self.unknown)));
        }
        if !self.partial.is_empty() {
            remarks.push_str(&format!(
                "; not granted, because a tool can only be granted as a whole: {}",
                list_names(&self.partial)
            ));
        }
        remarks
    }
}

/// Returns the built-in tools that a name means in a file of this format.
fn tools_of(name: &str, format: Format) -> Vec<&'static str> {
    match format {
        Format::Copilot => tool_names::resolve_copilot(name),
        _ => tool_names::resolve(name),
    }
}

fn parse_entry(name: &str, format: Format) -> ToolEntry {
    if matches!(name, "*" | "all") {
        return ToolEntry::All;
    }
    let name = &*tool_names::canonical(name);
    if name.starts_with("mcp__") {
        let whole_server = name.matches("__").count() == 1;
        let tool = if whole_server { format!("{name}__*") } else { name.to_owned() };
        // A name that is not a valid rule is not a valid tool name either.
        return match tool.parse::<Rule>() {
            Ok(rule) if rule.specifier().is_none() => ToolEntry::Tools(vec![tool]),
            _ => ToolEntry::Unknown,
        };
    }
    let owned = |tools: Vec<&str>| ToolEntry::Tools(tools.into_iter().map(str::to_owned).collect());
    if let Some((tool, part)) = name.split_once('(') {
        let tools = tools_of(tool, format);
        return match part.trim_end_matches(')').trim() {
            _ if tools.is_empty() => ToolEntry::Unknown,
            "" | "*" => owned(tools),
            _ => ToolEntry::Partial,
        };
    }
    // Some programs put the tool set before the tool: `search/codebase`.
    let (set, tool) = name.rsplit_once('/').unwrap_or(("", name));
    let tools = tools_of(tool, format);
    match tools.is_empty() || (!set.is_empty() && tool_names::resolve(set).is_empty()) {
        true => ToolEntry::Unknown,
        false => owned(tools),
    }
}

/// Formats the first few names.
pub(super) fn list_names(names: &[String]) -> String {
    const MAX_SHOWN_NAMES: usize = 12;
    let mut shown: Vec<String> =
        names.iter().take(MAX_SHOWN_NAMES).map(|name| name.chars().take(64).collect()).collect();
    if names.len() > MAX_SHOWN_NAMES {
        shown.push(format!("and {} more", names.len() - MAX_SHOWN_NAMES));
    }
    shown.join(", ")
}
