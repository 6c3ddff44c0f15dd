//! Permission rules: syntax, errors and compiled form.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::PreparedSubject;
use super::host::HostRule;
use super::path::PathRule;
use super::shell::CommandRule;
use crate::tool_names::{self, Specifier};

/// Maximum length of a tool name.
const MAX_TOOL_NAME_BYTES: usize = 64;
/// Maximum length of a specifier in bytes, which bounds the work of compiling a pattern.
const MAX_SPECIFIER_BYTES: usize = 1024;
/// Prefix of the names of MCP tools.
const MCP_PREFIX: &str = "mcp__";

/// Permission rule, written `tool` or `tool(specifier)`.
///
/// The name is exact; only `mcp__server__*` may end in a star, which matches every tool of that server. The letter
/// case of names that begin with `mcp__` is ignored.
///
/// The specifier of `shell` is one simple command. Its words are compared with those of the call after quotes are
/// resolved, and a final ` *` permits any further arguments. For `deny` and `ask` the final star is implied, since
/// a rule that one more argument escapes would protect nothing: `shell(git clean)` also denies `git clean -fd`, and
/// options before a word (`git -C dir clean`) do not hide it.
///
/// The specifier of `web_fetch` is a host, `example.com`, or all of its subdomains, `*.example.com`. For `deny` and
/// `ask` the latter includes the host itself. `web_search` takes no specifier.
///
/// The specifier of any other built-in tool is a glob over paths relative to the workspace. `*` stays within one directory
/// and `**` crosses directories. A pattern without `/` matches the file name at any depth; in an `allow` rule one
/// that begins with `./` does not. A pattern that ends in `/` matches everything below. For `deny` and `ask`, a
/// pattern whose last component has no wildcard also matches everything below that name, and case is ignored.
///
/// For other tools, the specifier is a path pattern, a command or a host, depending on the
/// [`Subject`](super::Subject) of the call.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    tool: String,
    specifier: Option<String>,
    compiled: Compiled,
}

/// Compiled specifier; shared, because permissions are copied for every agent.
#[derive(Clone)]
enum Compiled {
    Any,
    Path(Arc<PathRule>),
    Command(Arc<CommandRule>),
    Host(Arc<HostRule>),
    /// Every form that the specifier has.
    BySubject(Arc<Forms>),
}

/// Forms of a specifier whose meaning depends on the subject of the call.
struct Forms {
    path: Option<PathRule>,
    command: Option<CommandRule>,
    host: Option<HostRule>,
}

/// Compiled specifier for calls with subjects of one kind.
#[derive(Clone, Copy)]
pub(super) enum Matcher<'a> {
    /// The rule has no specifier.
    Any,
    Path(&'a PathRule),
    Command(&'a CommandRule),
    Host(&'a HostRule),
    /// The specifier cannot be compared with such a subject.
    Other,
}

/// Reason why a text is not a permission rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text is empty.
    #[error(
        "a permission rule is empty. Use a tool such as `read_file`, or a rule such as `shell(git log *)`"
    )]
    Empty,
    /// The name contains invalid characters, or is too long.
    #[error(
        "`{name}` is not a valid tool name. Use 1 to 64 characters from `a-z`, `0-9`, `_` and `-`, as in `read_file`; only a name such as `mcp__server__*` may end with `*`"
    )]
    Name {
        /// Name as written.
        name: String,
    },
    /// The name belongs to a tool of another program.
    #[error("`{name}` is not a tool name. Use {instead}")]
    Foreign {
        /// Name as written.
        name: String,
        /// Equivalent rule for Brigade's tools.
        instead: String,
    },
    /// The closing parenthesis is missing or is not the last character.
    #[error("`{rule}` does not end with `)`. Use a form such as `shell(git log *)`")]
    Unclosed {
        /// Rule as written.
        rule: String,
    },
    /// The parentheses are empty.
    #[error(
        "`{tool}()` has an empty specifier. Use `{tool}` for every call, or add a specifier as in `shell(git log *)`"
    )]
    NoSpecifier {
        /// Name of the tool.
        tool: String,
    },
    /// The tool takes no specifier.
    #[error(
        "`{tool}` does not take a specifier. Use only the tool name, as in `mcp__server__tool` or `web_search`"
    )]
    Unspecific {
        /// Name of the tool.
        tool: String,
    },
    /// The specifier is too long.
    #[error(
        "the specifier of `{tool}` is longer than {MAX_SPECIFIER_BYTES} bytes. Shorten it, as in `shell(git log *)`"
    )]
    TooLong {
        /// Name of the tool.
        tool: String,
    },
    /// The specifier is not a path pattern.
    #[error("`{pattern}` is not a valid path pattern ({reason}). Use a rule such as `read_file(**/.env*)`")]
    Path {
        /// Pattern as written.
        pattern: String,
        /// Description of the problem.
        reason: String,
    },
    /// The specifier is not one simple command.
    #[error("`{command}` is not a valid command pattern ({reason}). Use a rule such as `shell(git log *)`")]
    Command {
        /// Command as written.
        command: String,
        /// Description of the problem.
        reason: &'static str,
    },
    /// The specifier is not a host.
    #[error("`{host}` is not a valid host pattern ({reason}). Use a rule such as `web_fetch(*.example.com)`")]
    Host {
        /// Host as written.
        host: String,
        /// Description of the problem.
        reason: &'static str,
    },
}

impl Rule {
    /// Returns the name of the tool, possibly with a final star.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the text in the parentheses, if the rule has any.
    pub fn specifier(&self) -> Option<&str> {
        self.specifier.as_deref()
    }

    /// Returns the specifier as it is compared with this subject.
    pub(super) fn matcher(&self, subject: &PreparedSubject) -> Matcher<'_> {
        match (&self.compiled, subject) {
            (Compiled::Any, _) => Matcher::Any,
            (Compiled::Path(rule), _) => Matcher::Path(rule),
            (Compiled::Command(rule), _) => Matcher::Command(rule),
            (Compiled::Host(rule), _) => Matcher::Host(rule),
            (Compiled::BySubject(forms), PreparedSubject::Path(_)) => {
                forms.path.as_ref().map_or(Matcher::Other, Matcher::Path)
            }
            (Compiled::BySubject(forms), PreparedSubject::Command(_)) => {
                forms.command.as_ref().map_or(Matcher::Other, Matcher::Command)
            }
            (Compiled::BySubject(forms), PreparedSubject::Host(_)) => {
                forms.host.as_ref().map_or(Matcher::Other, Matcher::Host)
            }
            (Compiled::BySubject(_), PreparedSubject::Nothing) => Matcher::Other,
        }
    }

    /// Whether the rule applies to every call of its tool.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.compiled, Compiled::Any)
    }

    /// Returns the rule to write instead if this one names a built-in tool by a name of another program, such as
    /// `bash` for `shell`.
    ///
    /// ```
    /// use brigade_core::permission::Rule;
    /// let rule: Rule = "bash".parse().unwrap();
    /// assert_eq!(rule.builtin_equivalent().as_deref(), Some("`shell`"));
    /// ```
    pub fn builtin_equivalent(&self) -> Option<String> {
        let is_builtin = tool_names::BUILTIN.contains(&self.tool.as_str());
        let rest = self.specifier.as_ref().map(|specifier| format!("{specifier})"));
        if is_builtin { None } else { translated(&self.tool, rest.as_deref()) }
    }

    /// Whether the rule names this tool.
    pub fn names(&self, tool: &str) -> bool {
        match self.tool.strip_suffix('*') {
            Some(prefix) => tool.starts_with(prefix),
            None => self.tool == tool,
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(RuleError::Empty);
        }
        let (tool, rest) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest)),
            None => (text, None),
        };
        let tool = tool_names::canonical(tool);
        if !is_tool(&tool) {
            let name = tool.into_owned();
            return Err(match translated(&name, rest) {
                Some(instead) => RuleError::Foreign { name, instead },
                None => RuleError::Name { name },
            });
        }
        let tool = tool.into_owned();
        let Some(rest) = rest else {
            return Ok(Rule { tool, specifier: None, compiled: Compiled::Any });
        };
        let Some(specifier) = rest.strip_suffix(')') else {
            return Err(RuleError::Unclosed { rule: text.to_owned() });
        };
        let specifier = specifier.trim();
        let compiled = compile(&tool, specifier)?;
        Ok(Rule { tool, specifier: Some(specifier.to_owned()), compiled })
    }
}

/// Translates a rule of another program to Brigade's tools. `None` if the tool or its specifier has no counterpart.
fn translated(name: &str, rest: Option<&str>) -> Option<String> {
    let rule = |tool: &str| -> Option<String> {
        let Some(rest) = rest else { return Some(format!("`{tool}`")) };
        let specifier = rest.strip_suffix(')')?.trim();
        let specifier = match tool_names::specifier(tool) {
            Some(Specifier::Command) => specifier
                .strip_suffix(":*")
                .map_or_else(|| specifier.to_owned(), |command| format!("{command} *")),
            Some(Specifier::Host) => specifier.strip_prefix("domain:").unwrap_or(specifier).to_owned(),
            _ => specifier.to_owned(),
        };
        compile(tool, &specifier).ok()?;
        Some(format!("`{tool}({specifier})`"))
    };
    let rules: Vec<String> = tool_names::resolve(name).into_iter().map(rule).collect::<Option<_>>()?;
    (!rules.is_empty()).then(|| rules.join(", "))
}

fn compile(tool: &str, specifier: &str) -> Result<Compiled, RuleError> {
    let kind = tool_names::specifier(tool);
    if tool.starts_with(MCP_PREFIX) || kind == Some(Specifier::None) {
        // The form of a foreign tool's arguments is unknown, so a specifier could never match.
        return Err(RuleError::Unspecific { tool: tool.to_owned() });
    }
    if specifier.is_empty() {
        return Err(RuleError::NoSpecifier { tool: tool.to_owned() });
    }
    if specifier.len() > MAX_SPECIFIER_BYTES {
        return Err(RuleError::TooLong { tool: tool.to_owned() });
    }
    let command = || {
        CommandRule::parse(specifier)
            .map_err(|reason| RuleError::Command { command: specifier.to_owned(), reason })
    };
    let host = || {
        HostRule::parse(specifier).map_err(|reason| RuleError::Host { host: specifier.to_owned(), reason })
    };
    Ok(match kind {
        Some(Specifier::Command) => Compiled::Command(Arc::new(command()?)),
        Some(Specifier::Host) => Compiled::Host(Arc::new(host()?)),
        Some(Specifier::Path | Specifier::None) => Compiled::Path(Arc::new(PathRule::parse(specifier)?)),
        None => {
            let (path, command, host) = (PathRule::parse(specifier), command().ok(), host().ok());
            let path = match path {
                Err(error) if command.is_none() && host.is_none() => return Err(error),
                path => path.ok(),
            };
            Compiled::BySubject(Arc::new(Forms { path, command, host }))
        }
    })
}

fn is_tool(name: &str) -> bool {
    let plain = match name.strip_suffix('*') {
        Some(prefix) if prefix.len() > MCP_PREFIX.len() && prefix.starts_with(MCP_PREFIX) => prefix,
        _ => name,
    };
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    (1..=MAX_TOOL_NAME_BYTES).contains(&plain.len()) && plain.bytes().all(known)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.specifier {
            Some(specifier) => write!(f, "{}({specifier})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({self})")
    }
}

// The compiled form follows from the text, so comparing the text is enough.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rule {}

impl PartialOrd for Rule {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rule {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.tool, &self.specifier).cmp(&(&other.tool, &other.specifier))
    }
}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.tool, &self.specifier).hash(state);
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests;
