//! The key `tools`: what an agent may use.

use brigade_core::alias;
use brigade_core::permission::Rule;
use serde_json::{Map, Value};

use super::format::Format;
use super::value;

/// What `tools` comes to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Whitelist {
    /// The tools; all that there are where absent.
    pub(super) tools: Option<Vec<String>>,
    /// Tools that are switched off.
    pub(super) off: Vec<String>,
    /// Names that stand for no tool of ours, and are not granted.
    pub(super) unknown: Vec<String>,
    /// Names that ask for a part of a tool. A part cannot be granted, and the whole is more than was asked for.
    pub(super) partial: Vec<String>,
    /// Whether a name was not ours.
    pub(super) translated: bool,
}

enum Entry {
    All,
    Tools(Vec<String>),
    Partial,
    Unknown,
}

impl Whitelist {
    /// Reads the value of `tools`. Nothing that is left empty is all tools.
    pub(super) fn read(value: &Value, format: Format) -> Result<Whitelist, String> {
        let list = match value {
            Value::Null => return Err("is empty; leave the key out to inherit, or name tools".to_owned()),
            Value::Object(map) => Whitelist::of_map(map, format)?,
            _ => Whitelist::of_names(value::names(value)?, format),
        };
        let is_empty = list.off.is_empty() && list.tools.as_ref().is_some_and(Vec::is_empty);
        match is_empty {
            true => Err(format!("comes to no tool at all{}", list.remarks())),
            false => Ok(list),
        }
    }

    /// Reads the value of `lend`, where an empty list is an answer.
    pub(super) fn read_lent(value: &Value, format: Format) -> Result<Whitelist, String> {
        match value {
            Value::Array(items) if items.is_empty() => {
                Ok(Whitelist { tools: Some(Vec::new()), ..Whitelist::default() })
            }
            Value::Object(_) => Err("has to be a list of names".to_owned()),
            _ => Whitelist::read(value, format),
        }
    }

    fn of_names(names: Vec<String>, format: Format) -> Whitelist {
        let mut list = Whitelist { tools: Some(Vec::new()), ..Whitelist::default() };
        let mut all = false;
        for name in names {
            all |= list.add(name, format);
        }
        if all {
            list.tools = None;
        }
        list
    }

    /// A map of switches. What is on is the whole of it, unless things are only switched off.
    fn of_map(map: &Map<String, Value>, format: Format) -> Result<Whitelist, String> {
        let mut on = Vec::new();
        let mut off = Vec::new();
        for (name, value) in map {
            let wrong = |_| format!("`{name}` has to be true or false");
            match value::flag(value).map_err(wrong)? {
                true => on.push(name.clone()),
                false => off.push(name.clone()),
            }
        }
        let nothing_else = on.is_empty() && !off.iter().any(|name| name == "*") && !off.is_empty();
        let mut list = Whitelist::of_names(on, format);
        list.translated = true;
        if nothing_else {
            list.tools = None;
        }
        for name in off {
            match entry(&name, format) {
                Entry::Tools(tools) => list.off.extend(tools),
                Entry::All => {}
                Entry::Partial | Entry::Unknown => list.unknown.push(name),
            }
        }
        Ok(list)
    }

    /// Adds a name; says whether it stands for all tools.
    fn add(&mut self, name: String, format: Format) -> bool {
        match entry(&name, format) {
            Entry::All => {
                self.translated = true;
                return true;
            }
            Entry::Tools(tools) => {
                self.translated |= tools != [name];
                let list = self.tools.get_or_insert_default();
                for tool in tools {
                    if !list.contains(&tool) {
                        list.push(tool);
                    }
                }
            }
            Entry::Partial => self.partial.push(name),
            Entry::Unknown => self.unknown.push(name),
        }
        false
    }

    /// What is not granted, in words.
    pub(super) fn remarks(&self) -> String {
        let mut remarks = String::new();
        if !self.unknown.is_empty() {
            remarks.push_str(&format!("; not granted, as no tool is called so: {}", some(&self.unknown)));
        }
        if !self.partial.is_empty() {
            remarks
                .push_str(&format!("; not granted, as a part of a tool cannot be: {}", some(&self.partial)));
        }
        remarks
    }
}

/// Our tools that a name stands for in a file of this format.
fn tools_of(name: &str, format: Format) -> Vec<&'static str> {
    match format {
        Format::Copilot => alias::copilot_tools(name),
        _ => alias::tools(name),
    }
}

fn entry(name: &str, format: Format) -> Entry {
    if matches!(name, "*" | "all") {
        return Entry::All;
    }
    let name = &*alias::canonical(name);
    if name.starts_with("mcp__") {
        let whole_server = name.matches("__").count() == 1;
        let tool = if whole_server { format!("{name}__*") } else { name.to_owned() };
        // What cannot be a rule cannot be the name of a tool either.
        return match tool.parse::<Rule>() {
            Ok(rule) if rule.specifier().is_none() => Entry::Tools(vec![tool]),
            _ => Entry::Unknown,
        };
    }
    let owned = |tools: Vec<&str>| Entry::Tools(tools.into_iter().map(str::to_owned).collect());
    if let Some((tool, part)) = name.split_once('(') {
        let tools = tools_of(tool, format);
        return match part.trim_end_matches(')').trim() {
            _ if tools.is_empty() => Entry::Unknown,
            "" | "*" => owned(tools),
            _ => Entry::Partial,
        };
    }
    // Some programs write the set before the tool: `search/codebase`.
    let (set, tool) = name.rsplit_once('/').unwrap_or(("", name));
    let tools = tools_of(tool, format);
    match tools.is_empty() || (!set.is_empty() && alias::tools(set).is_empty()) {
        true => Entry::Unknown,
        false => owned(tools),
    }
}

/// A few of the names.
pub(super) fn some(names: &[String]) -> String {
    const MOST: usize = 12;
    let mut shown: Vec<String> =
        names.iter().take(MOST).map(|name| name.chars().take(64).collect()).collect();
    if names.len() > MOST {
        shown.push(format!("and {} more", names.len() - MOST));
    }
    shown.join(", ")
}
