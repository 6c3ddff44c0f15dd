//! One permission rule: its text, its errors, and what it was compiled to.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::host::HostRule;
use super::path::PathRule;
use super::shell::CommandRule;
use crate::tool_names;

/// The longest name of a tool.
const MAX_TOOL_NAME_BYTES: usize = 64;
/// The longest specifier in bytes, which bounds the work of compiling a pattern.
const MAX_SPECIFIER_BYTES: usize = 1024;
/// The tool whose specifier is a command; that of every other tool is a path pattern, but for these two.
const SHELL_TOOL: &str = "shell";
/// The tool whose specifier is a host.
const FETCH_TOOL: &str = "web_fetch";
/// A tool whose calls have nothing that a specifier could name.
const SEARCH_TOOL: &str = "web_search";
/// Names of tools that come from MCP servers start like this.
const MCP_PREFIX: &str = "mcp__";

/// A permission rule, written `tool` or `tool(specifier)`.
///
/// The name is exact; only `mcp__server__*` may end in a star, which stands for every tool of that server. The letter
/// case of names that begin with `mcp__` does not matter.
///
/// The specifier of `shell` is one simple command. Its words are compared with those of the call after quotes
/// are resolved, and a final ` *` permits any further arguments. For `deny` and `ask` the final star is
/// implied, since a rule that one more argument escapes would protect nothing: `shell(git clean)` also denies
/// `git clean -fd`, and options before a word (`git -C dir clean`) do not hide it.
///
/// The specifier of `web_fetch` is a host, `example.com`, or all hosts below one, `*.example.com`, where `deny` and
/// `ask` mean that one too. `web_search` takes no specifier.
///
/// The specifier of any other tool is a glob over paths relative to the workspace. `*` stays within one
/// directory, `**` crosses them, a pattern without `/` matches the file name at any depth, in an `allow` rule one
/// that begins with `./` does not, and one that ends in `/` matches everything below. For `deny` and `ask`, a pattern whose last part has no wildcard also
/// matches everything below that name, and case does not matter.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    tool: String,
    specifier: Option<String>,
    matcher: Matcher,
}

/// What a specifier was compiled to; shared, as permissions are copied for every agent.
#[derive(Clone)]
pub(super) enum Matcher {
    Any,
    Path(Arc<PathRule>),
    Command(Arc<CommandRule>),
    Host(Arc<HostRule>),
}

/// Why a text is not a permission rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// There is nothing to read.
    #[error("a permission rule is empty: write a tool such as `read_file`, or `shell(git log *)`")]
    Empty,
    /// The name has characters that no tool has, or is too long.
    #[error(
        "`{name}` is not the name of a tool: use 1 to 64 of `a-z`, `0-9`, `_`, `-`, as in `read_file`; \
         only a name such as `mcp__server__*` may end in a star"
    )]
    Name {
        /// The name as written.
        name: String,
    },
    /// The name is that of a tool of another program.
    #[error("`{name}` is not the name of a tool: write {instead}")]
    Foreign {
        /// The name as written.
        name: String,
        /// The same rule for our tools.
        instead: String,
    },
    /// The parenthesis is missing or is not the last character.
    #[error("`{rule}` does not end with `)`: write the specifier as in `shell(git log *)`")]
    Unclosed {
        /// The rule as written.
        rule: String,
    },
    /// The parentheses hold nothing.
    #[error(
        "`{tool}()` has an empty specifier: write `{tool}` for every call, or one as in `shell(git log *)`"
    )]
    NoSpecifier {
        /// The name of the tool.
        tool: String,
    },
    /// The tool takes no specifier.
    #[error("`{tool}` takes no specifier: name the tool alone, as in `mcp__server__tool` or `web_search`")]
    Unspecific {
        /// The name of the tool.
        tool: String,
    },
    /// The specifier is too long.
    #[error(
        "the specifier of `{tool}` is longer than {MAX_SPECIFIER_BYTES} bytes: shorten it, as in `shell(git log *)`"
    )]
    TooLong {
        /// The name of the tool.
        tool: String,
    },
    /// The specifier is not a path pattern.
    #[error("`{pattern}` is not a path pattern ({reason}): write one such as `read_file(**/.env*)`")]
    Path {
        /// The pattern as written.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The specifier is not one simple command.
    #[error("`{command}` cannot be a shell rule ({reason}): write one such as `shell(git log *)`")]
    Command {
        /// The command as written.
        command: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The specifier is not a host.
    #[error("`{host}` is not a host ({reason}): write one such as `web_fetch(*.example.com)`")]
    Host {
        /// The host as written.
        host: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Rule {
    /// The name of the tool, perhaps with a final star.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// What stands in the parentheses, if the rule has any.
    pub fn specifier(&self) -> Option<&str> {
        self.specifier.as_deref()
    }

    /// Whether the rule speaks of one command or host, and of none that it does not name.
    pub(super) fn is_exact(&self) -> bool {
        match &self.matcher {
            Matcher::Any | Matcher::Path(_) => true,
            Matcher::Command(rule) => rule.is_exact(),
            Matcher::Host(rule) => rule.is_exact(),
        }
    }

    pub(super) fn matcher(&self) -> &Matcher {
        &self.matcher
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
            return Ok(Rule { tool, specifier: None, matcher: Matcher::Any });
        };
        let Some(specifier) = rest.strip_suffix(')') else {
            return Err(RuleError::Unclosed { rule: text.to_owned() });
        };
        let specifier = specifier.trim();
        let matcher = compile(&tool, specifier)?;
        Ok(Rule { tool, specifier: Some(specifier.to_owned()), matcher })
    }
}

/// The rule for our tools that a rule of another program stands for. None if the tool or its specifier has no
/// counterpart.
fn translated(name: &str, rest: Option<&str>) -> Option<String> {
    let rule = |tool: &str| -> Option<String> {
        let Some(rest) = rest else { return Some(format!("`{tool}`")) };
        let specifier = rest.strip_suffix(')')?.trim();
        let specifier = match tool {
            SHELL_TOOL => specifier
                .strip_suffix(":*")
                .map_or_else(|| specifier.to_owned(), |command| format!("{command} *")),
            FETCH_TOOL => specifier.strip_prefix("domain:").unwrap_or(specifier).to_owned(),
            _ => specifier.to_owned(),
        };
        compile(tool, &specifier).ok()?;
        Some(format!("`{tool}({specifier})`"))
    };
    let rules: Vec<String> = tool_names::resolve(name).into_iter().map(rule).collect::<Option<_>>()?;
    (!rules.is_empty()).then(|| rules.join(", "))
}

fn compile(tool: &str, specifier: &str) -> Result<Matcher, RuleError> {
    if tool.starts_with(MCP_PREFIX) || tool == SEARCH_TOOL {
        // The arguments of a foreign tool have no form that is known here, so a specifier could never bind.
        return Err(RuleError::Unspecific { tool: tool.to_owned() });
    }
    if specifier.is_empty() {
        return Err(RuleError::NoSpecifier { tool: tool.to_owned() });
    }
    if specifier.len() > MAX_SPECIFIER_BYTES {
        return Err(RuleError::TooLong { tool: tool.to_owned() });
    }
    if tool == SHELL_TOOL {
        let rule = CommandRule::parse(specifier)
            .map_err(|reason| RuleError::Command { command: specifier.to_owned(), reason })?;
        return Ok(Matcher::Command(Arc::new(rule)));
    }
    if tool == FETCH_TOOL {
        let rule = HostRule::parse(specifier)
            .map_err(|reason| RuleError::Host { host: specifier.to_owned(), reason })?;
        return Ok(Matcher::Host(Arc::new(rule)));
    }
    let rule = PathRule::parse(specifier)
        .map_err(|reason| RuleError::Path { pattern: specifier.to_owned(), reason })?;
    Ok(Matcher::Path(Arc::new(rule)))
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

// What a rule was compiled to follows from its text, so the text alone tells rules apart.
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
