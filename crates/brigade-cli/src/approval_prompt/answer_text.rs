//! Answers as text: the choices for an approval, and parsing of typed lines.

use std::fmt::{self, Display, Formatter};

use brigade_core::event::Answer;
use brigade_core::permission::{Rule, RuleError};
use brigade_core::view::PendingApproval;

use crate::render::wrap_items;
use crate::sanitize;

/// Message for a call that cannot always be allowed.
pub(super) const NO_RULE: &str = "No rule can match only this call. Press y to allow it once.";

/// Approvals that an answer applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The current one.
    One,
    /// Every pending approval.
    All,
}

/// Reason why a line is not an answer. `Display` uses the terms of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InvalidAnswer {
    /// The call cannot always be allowed.
    NoRule,
    /// The rule is invalid.
    InvalidRule(RuleError),
    /// The first word is not a known answer.
    Unknown {
        word: String,
        /// Whether the call can always be allowed.
        has_rule: bool,
    },
}

impl InvalidAnswer {
    /// Error text in the terms of `brigade answer`.
    pub(crate) fn for_command(&self) -> String {
        match self {
            InvalidAnswer::NoRule => {
                "No rule can match only this call. Use `yes` to allow it once.".to_owned()
            }
            InvalidAnswer::InvalidRule(error) => error.to_string(),
            InvalidAnswer::Unknown { word, has_rule } => {
                let always = if *has_rule { "`always`, " } else { "" };
                format!(
                    "'{}' is not an answer. Use `yes`, {always}`no` or `no REASON`.",
                    sanitize::line(word)
                )
            }
        }
    }
}

impl Display for InvalidAnswer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InvalidAnswer::NoRule => f.write_str(NO_RULE),
            InvalidAnswer::InvalidRule(error) => error.fmt(f),
            InvalidAnswer::Unknown { word, has_rule } => {
                let choices = if *has_rule { "y, a or n" } else { "y or n" };
                write!(f, "'{}' is not an answer. Type {choices} and press Enter.", sanitize::line(word))
            }
        }
    }
}

/// Kind of input that answers an approval prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    /// Single keys.
    Keys,
    /// Lines, each submitted with Enter.
    Lines,
}

/// Possible answers, wrapped to `columns`.
pub(crate) fn choices(
    open: &PendingApproval,
    count: usize,
    input: InputKind,
    is_cut: bool,
    columns: usize,
) -> Vec<String> {
    let once = if open.host.is_some() { "y allow for this call" } else { "y allow once" };
    let mut choices = vec![once.to_owned()];
    if let Some(rule) = &open.always {
        let every = if rule == open.tool() { " (every call)" } else { "" };
        choices.push(format!("a always allow {}{every}", sanitize::line(rule)));
    }
    choices.push("n deny".to_owned());
    let (reason, rest) = match input {
        InputKind::Keys => {
            ("r deny with a reason", ["Y allow all", "N deny all", "Tab next request"].as_slice())
        }
        InputKind::Lines => ("n REASON deny with a reason", ["y all", "n all"].as_slice()),
    };
    choices.push(reason.to_owned());
    if open.always.is_some() && open.host.is_none() && input == InputKind::Keys {
        choices.push("e edit the rule".to_owned());
    }
    if is_cut {
        choices.push("v view the whole diff".to_owned());
    }
    if count > 1 {
        choices.extend(rest.iter().map(|choice| (*choice).to_owned()));
    }
    wrap_items(choices.iter().map(String::as_str), " · ", columns)
}

/// Parses an answer: `y`, `y all`, `a`, `a RULE`, `n`, `n all`, `n REASON`, `r REASON`.
pub(crate) fn answer(line: &str, always: Option<&str>) -> Result<(Answer, Scope), InvalidAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let scope = if rest == "all" { Scope::All } else { Scope::One };
    match (word.to_lowercase().trim_end_matches([',', '.', ':', '!']), rest) {
        ("y" | "yes" | "once", "" | "all") => Ok((Answer::Once, scope)),
        ("a" | "always", "") => match always {
            Some(rule) => Ok((Answer::Always(rule.to_owned()), Scope::One)),
            None => Err(InvalidAnswer::NoRule),
        },
        ("a" | "always", rule) if Some(rule) == always => Ok((Answer::Always(rule.to_owned()), Scope::One)),
        ("a" | "always", rule) => match rule.parse::<Rule>() {
            Ok(rule) => Ok((Answer::Always(rule.to_string()), Scope::One)),
            Err(error) => Err(InvalidAnswer::InvalidRule(error)),
        },
        ("n" | "no", "" | "all") => Ok((Answer::Deny { word: None }, scope)),
        ("n" | "no", reason) => Ok((Answer::Deny { word: Some(reason.to_owned()) }, Scope::One)),
        ("r" | "reason", reason) if !reason.is_empty() => {
            Ok((Answer::Deny { word: Some(reason.to_owned()) }, Scope::One))
        }
        _ => Err(InvalidAnswer::Unknown { word: word.to_owned(), has_rule: always.is_some() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_from_words() {
        let no = |word: &str| Ok((Answer::Deny { word: Some(word.to_owned()) }, Scope::One));
        assert_eq!(answer(" Yes ", None), Ok((Answer::Once, Scope::One)));
        assert_eq!(answer("y all", None), Ok((Answer::Once, Scope::All)));
        assert_eq!(answer("n all", None), Ok((Answer::Deny { word: None }, Scope::All)));
        assert_eq!(answer("no use make", None), no("use make"));
        assert_eq!(answer("No, use make", None), no("use make"));
        assert_eq!(answer("r use make", None), no("use make"));
        assert_eq!(answer("a", Some("shell(x)")), Ok((Answer::Always("shell(x)".to_owned()), Scope::One)));
        assert_eq!(
            answer("a shell(git *)", None),
            Ok((Answer::Always("shell(git *)".to_owned()), Scope::One))
        );
        assert_eq!(
            answer("always a.example:443", Some("a.example:443")),
            Ok((Answer::Always("a.example:443".to_owned()), Scope::One))
        );
        assert!(answer("a", None).unwrap_err().to_string().contains("Press y to allow it once"));
        assert!(answer("a shell(", None).is_err());
        // A user who was in the middle of a sentence has not answered.
        for line in ["yesterday", "y please", "yes, but", "not now", "also", "all", "ok", "r"] {
            assert!(answer(line, Some("shell(x)")).is_err(), "{line}");
        }
    }
}
