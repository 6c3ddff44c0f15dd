//! The keys about authority: what an agent may use, and what a file takes away.

use brigade_core::faces::DELEGATION_TOOLS;
use brigade_core::permission::{Mode, Rule};
use serde_json::Value;

use super::build::{Builder, Said, honoured};
use super::format::Format;
use super::problem::Class;
use super::value;
use super::whitelist::{Whitelist, some};

impl Builder {
    pub(super) fn tools(&mut self, value: &Value, format: Format) -> Said {
        let list = Whitelist::read(value, format)?;
        list.off.iter().for_each(|tool| self.narrow.without(tool));
        let remarks = list.remarks();
        let off = if list.off.is_empty() { String::new() } else { format!(", without {}", some(&list.off)) };
        let named = match &list.tools {
            Some(tools) => some(tools),
            None => "all that the parent lends".to_owned(),
        };
        let class = match list.translated || !remarks.is_empty() {
            true => Class::Translated,
            false => Class::Honoured,
        };
        self.agent.tools = list.tools;
        Ok((class, format!("{named}{off}{remarks}")))
    }

    pub(super) fn lend(&mut self, value: &Value, format: Format) -> Said {
        let list = Whitelist::read_lent(value, format)?;
        let remarks = list.remarks();
        self.agent.lend = list.tools;
        let class = if list.translated { Class::Translated } else { Class::Honoured };
        Ok((class, remarks.trim_start_matches("; ").to_owned()))
    }

    /// Rules of ours; one that cannot be read would protect nothing.
    pub(super) fn deny(&mut self, value: &Value) -> Said {
        for rule in value::names(value)? {
            let rule: Rule = rule.parse().map_err(|error| format!("{error}"))?;
            self.narrow.deny.insert(rule);
        }
        honoured()
    }

    pub(super) fn disallowed(&mut self, value: &Value) -> Said {
        let unknown = self.narrow.disallow(value)?;
        let text = match unknown.is_empty() {
            true => "as rules of `deny`".to_owned(),
            false => format!("as rules of `deny`; there is no tool called {}", some(&unknown)),
        };
        Ok((Class::Translated, text))
    }

    pub(super) fn permission(&mut self, value: &Value) -> Said {
        let mut remarks = self.narrow.permission(value)?;
        remarks.insert(0, "what it denies or asks about; it never widens".to_owned());
        Ok((Class::Translated, remarks.join("; ")))
    }

    fn at_most(&mut self, mode: Mode) -> Said {
        self.narrow.at_most(mode);
        Ok((Class::Translated, format!("works in mode `{mode}` at most")))
    }

    pub(super) fn permission_mode(&mut self, value: &Value) -> Said {
        match value::text(value)?.as_deref() {
            Some("plan") => self.at_most(Mode::Plan),
            Some("dontAsk") => self.at_most(Mode::Ask),
            Some("acceptEdits") => self.at_most(Mode::Edit),
            Some("auto") => self.at_most(Mode::Auto),
            None | Some("default" | "manual") => Ok((Class::Ignored, "the parent's mode is used".to_owned())),
            Some("bypassPermissions") => {
                Ok((Class::Ignored, "a file never widens what is allowed".to_owned()))
            }
            Some(_) => Err("is no mode that is known; write plan, acceptEdits or dontAsk".to_owned()),
        }
    }

    pub(super) fn sandbox_mode(&mut self, value: &Value) -> Said {
        match value::text(value)?.as_deref() {
            Some("read-only") => self.at_most(Mode::Plan),
            Some("workspace-write") => self.at_most(Mode::Edit),
            Some("danger-full-access") => {
                Ok((Class::Ignored, "a file never widens what is allowed".to_owned()))
            }
            _ => Err("has to be read-only, workspace-write or danger-full-access".to_owned()),
        }
    }

    pub(super) fn approval_policy(&mut self, value: &Value) -> Said {
        match value {
            Value::String(word) if word == "untrusted" => self.at_most(Mode::Ask),
            _ => Ok((Class::Ignored, "the person's permissions decide what is asked".to_owned())),
        }
    }

    pub(super) fn read_only(&mut self, value: &Value) -> Said {
        match value::flag(value)? {
            true => self.at_most(Mode::Plan),
            false => honoured(),
        }
    }

    /// A choice of agents cannot be kept, so whoever may hand work to a few hands it to none.
    pub(super) fn agents(&mut self, value: &Value) -> Said {
        if value::names(value)?.iter().any(|name| name == "*") {
            return honoured();
        }
        DELEGATION_TOOLS.iter().for_each(|tool| self.narrow.without(tool));
        Ok((Class::Translated, "hands no work to others, as a choice of agents cannot be kept".to_owned()))
    }

    pub(super) fn mode(&mut self, value: &Value, format: Format) -> Said {
        let word = value::text(value)?.unwrap_or_default();
        match word.parse::<Mode>() {
            Ok(mode) => {
                self.narrow.at_most(mode);
                honoured()
            }
            Err(_) if matches!(word.as_str(), "primary" | "subagent" | "all") => {
                Ok((Class::Ignored, "every agent can be started and dispatched to".to_owned()))
            }
            Err(error) if format.has_our_defaults() => Err(error.to_string()),
            Err(_) => Ok((Class::Ignored, "about the program that the file was written for".to_owned())),
        }
    }

    /// What is taken away is taken out of the list as well, and nothing left is no list at all.
    pub(super) fn settle_tools(&mut self) {
        if let Some(only) = &self.narrow.only {
            let kept = only.iter().map(|tool| (*tool).to_owned());
            match &mut self.agent.tools {
                Some(tools) => tools.retain(|tool| only.contains(tool.as_str())),
                None => self.agent.tools = Some(kept.collect()),
            }
        }
        let Some(tools) = &mut self.agent.tools else { return };
        let narrow = &self.narrow;
        let before = tools.len();
        tools.retain(|tool| !narrow.denies(tool));
        let is_nothing = tools.is_empty() && (before > 0 || narrow.only.is_some());
        if is_nothing && !self.notes.iter().any(|note| note.class == Class::Refused) {
            self.refuse("tools", None, "comes to no tool at all after what the file denies".to_owned());
        }
    }
}
