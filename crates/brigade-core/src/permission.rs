//! Permission checks: decide on a tool call from a mode and three lists of rules.
//!
//! Everything here is pure. A tool declares its call as an [`Action`], and the check returns a [`Verdict`]. `deny`
//! takes precedence over `ask`, which takes precedence over `allow`, in whatever order the rules were written.
//!
//! Rules err on the safe side. An `allow` rule is read narrowly: exact tool, exact case, one plain command. A
//! `deny` or `ask` rule is read broadly: any case, any tool that accesses the same file, any part of a command
//! line, more arguments than the rule names. If a `deny` rule cannot be decided, the call requires approval. A rule
//! cannot see inside a program: `read_file(**/.env*)` does not bind `cat .env` in a shell. Paths are compared as
//! written, so a tool resolves symbolic links before the check.

mod host;
mod lexer;
mod path;
mod protected;
mod rule;
mod shell;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::tool_names::{self, Specifier};

pub use protected::{Protected, ProtectedKind, ProtectedPaths};
pub use rule::{Rule, RuleError};

use protected::{FileAccess, Protection};
use rule::Matcher;

/// Permission mode: what an agent may do without approval, ordered from narrow to wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Permits only calls that read, and commands whose changes are discarded; no rule widens this.
    #[default]
    Plan,
    /// Permits reading; everything else requires approval unless an `allow` rule matches.
    Ask,
    /// Permits reading, editing files of the workspace, and commands in a sandbox; the rest requires approval unless an
    /// `allow` rule matches.
    Edit,
    /// Permits everything that no `deny` or `ask` rule matches.
    Auto,
}

impl Mode {
    /// Returns the name of the mode in settings and after `--mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Plan => "plan",
            Mode::Ask => "ask",
            Mode::Edit => "edit",
            Mode::Auto => "auto",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Unknown name of a mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode. Use `plan`, `ask`, `edit` or `auto`")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| ModeError(text.to_owned()))
    }
}

/// Mode and rules of one agent. The default is the narrowest: plan mode and no rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Mode for calls that no rule decides.
    pub mode: Mode,
    /// Calls that need no approval. An allow rule names one exact tool and never widens plan mode.
    pub allow: Vec<Rule>,
    /// Calls that always require approval, reads included.
    pub ask: Vec<Rule>,
    /// Calls that are always denied.
    pub deny: Vec<Rule>,
}

/// Kind of a call, as the tool itself declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActionKind {
    /// Reads only.
    Pure,
    /// Edits a file of the workspace.
    Edit,
    /// Runs a command in a sandbox that confines it to the workspace.
    Confined,
    /// Runs a command in a sandbox that discards what it changes. Every mode permits it.
    Discarded,
    /// Runs a command with more access than its sandbox gives. No mode and no `allow` rule permits it.
    Unconfined,
    /// Anything else.
    Other,
}

/// Subject of a call, which specifiers are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    /// Call without a path, command or host.
    Nothing,
    /// Path relative to the workspace, separated by `/`; it is normalised here, without the file system.
    Path(&'a str),
    /// Command line for the shell.
    Command(&'a str),
    /// Host, as written in a URL.
    Host(&'a str),
}

/// Tool call as the permission check sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action<'a> {
    /// Exact name of the tool.
    pub tool: &'a str,
    /// Kind of the call.
    pub kind: ActionKind,
    /// Subject of the call.
    pub subject: Subject<'a>,
}

/// Result of a permission check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// The call requires approval.
    Ask {
        /// Reason why approval is required.
        reason: AskReason,
    },
    /// The call may not run.
    Deny {
        /// Rule or mode that forbids the call, in a text for the model and the user.
        reason: String,
    },
}

/// Reason why a call requires approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskReason {
    /// The mode requires it.
    Mode,
    /// The call requests more access than its sandbox gives. No rule and no mode allows it.
    Access,
    /// `ask` rule that matched, or `deny` rule that could not be decided.
    Rule(Rule),
    /// The file is protected in every mode. Only a rule that names it allows the call.
    Protected(Protected),
}

impl fmt::Display for AskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskReason::Mode => f.write_str("this mode requires approval"),
            AskReason::Access => f.write_str("it requests access beyond the sandbox"),
            AskReason::Rule(rule) => write!(f, "the rule `{rule}` requires approval"),
            AskReason::Protected(protected) => protected.fmt(f),
        }
    }
}

/// Whether a rule applies to a call; ordered, so that the widest of several results is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    /// The rule does not apply.
    No,
    /// Whether the rule applies is known only when the call runs, for example because of a variable.
    Maybe,
    /// The rule applies.
    Yes,
}

/// Subject, prepared once so that every rule can be compared with it cheaply.
enum PreparedSubject {
    Nothing,
    Path(path::NormalizedPath),
    Command(shell::CommandLine),
    Host(host::NormalizedHost),
}

impl PreparedSubject {
    fn of(subject: Subject<'_>) -> Self {
        match subject {
            Subject::Nothing => PreparedSubject::Nothing,
            Subject::Path(path) => PreparedSubject::Path(path::NormalizedPath::new(path)),
            Subject::Command(command) => PreparedSubject::Command(shell::CommandLine::new(command)),
            Subject::Host(host) => PreparedSubject::Host(host::NormalizedHost::new(host)),
        }
    }
}

impl Permissions {
    /// Decides on one call.
    ///
    /// A bare rule `tool` matches every call of exactly that tool. For `deny` and `ask`, a rule with a path on
    /// `read_file` binds every call with a path, since editing a file reveals it; one on `write_file` or
    /// `edit_file` binds every call with a path that does not only read; one with a command on `shell` binds every
    /// call with a command; one with a host on `web_fetch` binds every call with a host. For `allow`, each rule
    /// counts for its own tool alone.
    ///
    /// If several rules match, the verdict contains the smallest of them in the order of [`Rule`], so that the
    /// order in which rules were written has no effect.
    pub fn check(&self, action: &Action<'_>) -> Verdict {
        self.check_with(&[], action)
    }

    /// Decides on one call of a session in which the user has permanently allowed some calls. These rules replace
    /// approvals, except if a `deny` rule may apply.
    pub fn check_with(&self, always: &[Rule], action: &Action<'_>) -> Verdict {
        self.check_in(&ProtectedPaths::default(), always, action)
    }

    /// Decides on one call in a workspace with these protected paths. Access to a protected file requires approval in
    /// every mode, unless an `allow` rule names the file.
    pub fn check_in(&self, place: &ProtectedPaths, always: &[Rule], action: &Action<'_>) -> Verdict {
        let target = PreparedSubject::of(action.subject);
        let denies = || self.deny.iter().map(|rule| (binds(rule, action, &target), rule));
        if let Some((_, rule)) =
            denies().filter(|(found, _)| *found == Match::Yes).min_by_key(|(_, rule)| *rule)
        {
            return Verdict::Deny { reason: format!("the rule `{rule}` in `permissions.deny` forbids it") };
        }
        if self.mode == Mode::Plan && !matches!(action.kind, ActionKind::Pure | ActionKind::Discarded) {
            return Verdict::Deny { reason: plan_reason(action.tool) };
        }
        let protection = protection(action.kind, &target, place);
        if matches!(protection, Protection::Refused) {
            return Verdict::Deny { reason: GIT_REASON.to_owned() };
        }
        let is_allowed = |rules: &[Rule]| is_allowed(rules, action, &target, &protection);
        let may_be_free = action.kind != ActionKind::Unconfined;
        let doubts = denies().any(|(found, _)| found != Match::No);
        if may_be_free && !doubts && is_allowed(always) {
            return Verdict::Allow;
        }
        let asks = self.ask.iter().map(|rule| (binds(rule, action, &target), rule));
        let doubt = denies().chain(asks).filter(|(found, _)| *found != Match::No).map(|(_, rule)| rule).min();
        if let Some(rule) = doubt {
            return Verdict::Ask { reason: AskReason::Rule(rule.clone()) };
        }
        if may_be_free && is_allowed(&self.allow) {
            return Verdict::Allow;
        }
        if let PreparedSubject::Path(path) = &target
            && let Some(protected) = protection.reason(path)
        {
            return Verdict::Ask { reason: AskReason::Protected(protected) };
        }
        match may_be_free {
            true if self.is_free(action.kind, &target) => Verdict::Allow,
            true => Verdict::Ask { reason: AskReason::Mode },
            false => Verdict::Ask { reason: AskReason::Access },
        }
    }

    /// Whether a `deny` rule forbids every call of a tool.
    pub fn denies(&self, tool: &str) -> bool {
        self.deny.iter().any(|rule| rule.is_bare() && rule.names(tool))
    }

    /// Returns the rule with which the user can permanently allow this exact call. `None` if no rule expresses
    /// exactly this: a command line of several parts or with expansions, a folder, or a call that a `deny` rule may
    /// apply to. For a tool whose calls have neither path, command nor host, the rule covers every call.
    pub fn exact_rule(&self, action: &Action<'_>) -> Option<Rule> {
        self.exact_rule_in(&ProtectedPaths::default(), action)
    }

    /// Returns the rule with which the user can permanently allow this exact call in a workspace with these protected
    /// paths.
    pub fn exact_rule_in(&self, place: &ProtectedPaths, action: &Action<'_>) -> Option<Rule> {
        let target = PreparedSubject::of(action.subject);
        let is_denied = || self.deny.iter().any(|rule| binds(rule, action, &target) != Match::No);
        if action.kind == ActionKind::Unconfined || is_denied() {
            return None;
        }
        let text = match action.subject {
            Subject::Nothing => action.tool.to_owned(),
            Subject::Path(path) => format!("{}({})", action.tool, path::literal(path)?),
            Subject::Command(text) | Subject::Host(text) => format!("{}({text})", action.tool),
        };
        let rule: Rule = text.parse().ok()?;
        let is_exact = match rule.matcher(&target) {
            Matcher::Any | Matcher::Path(_) => true,
            Matcher::Command(rule) => rule.is_exact(),
            Matcher::Host(rule) => rule.is_exact(),
            Matcher::Other => false,
        };
        let protection = protection(action.kind, &target, place);
        (is_exact && is_allowed(std::slice::from_ref(&rule), action, &target, &protection)).then_some(rule)
    }

    /// Whether a tool that visits many files may show this one: false if a `deny` or `ask` rule with a path on
    /// `read_file` matches. A bare `read_file` rule does not count here, because it names that tool alone.
    pub fn may_read(&self, path: &str) -> bool {
        let target = PreparedSubject::of(Subject::Path(path));
        !self.deny.iter().chain(&self.ask).any(|rule| match (rule.matcher(&target), &target) {
            (Matcher::Path(glob), PreparedSubject::Path(path)) if rule.tool() == READ_TOOL => {
                glob.binds(path) != Match::No
            }
            _ => false,
        })
    }

    /// Whether an `allow` rule on `read_file` names this file with secrets. Then all tools and commands may read it.
    pub fn grants_secret(&self, place: &ProtectedPaths, path: &str) -> bool {
        let target = PreparedSubject::of(Subject::Path(path));
        let action = Action { tool: READ_TOOL, kind: ActionKind::Pure, subject: Subject::Path(path) };
        match protection(action.kind, &target, place) {
            Protection::None => true,
            protection => is_allowed(&self.allow, &action, &target, &protection),
        }
    }

    /// Whether a command may change this file: false if a `deny` or `ask` rule with a path on a tool that edits files
    /// matches.
    pub fn may_edit(&self, path: &str) -> bool {
        let target = PreparedSubject::of(Subject::Path(path));
        !self.deny.iter().chain(&self.ask).any(|rule| match (rule.matcher(&target), &target) {
            (Matcher::Path(glob), PreparedSubject::Path(path)) if rule.tool() != READ_TOOL => {
                glob.binds(path) != Match::No
            }
            _ => false,
        })
    }

    /// Returns the same rules under the narrower of the two modes. No verdict of the result is wider than before.
    #[must_use]
    pub fn narrowed_to(&self, mode: Mode) -> Permissions {
        Permissions { mode: self.mode.min(mode), ..self.clone() }
    }

    /// Whether the mode alone permits a call that no `deny` or `ask` rule binds.
    fn is_free(&self, kind: ActionKind, target: &PreparedSubject) -> bool {
        match kind {
            ActionKind::Pure | ActionKind::Discarded => true,
            // Edit mode permits edits of the workspace, so a path that leads out of it is not covered.
            ActionKind::Edit if matches!(target, PreparedSubject::Path(path) if path.is_outside()) => {
                self.mode >= Mode::Auto
            }
            ActionKind::Edit | ActionKind::Confined => self.mode >= Mode::Edit,
            ActionKind::Unconfined => false,
            ActionKind::Other => self.mode >= Mode::Auto,
        }
    }
}

/// Protection of the subject of a call.
fn protection(kind: ActionKind, target: &PreparedSubject, place: &ProtectedPaths) -> Protection {
    let access = if kind == ActionKind::Pure { FileAccess::Read } else { FileAccess::Write };
    match target {
        PreparedSubject::Path(path) => Protection::of(path, access, place),
        PreparedSubject::Nothing | PreparedSubject::Command(_) | PreparedSubject::Host(_) => Protection::None,
    }
}

/// Whether a file or directory of a workspace is one that programs act upon at any depth. The path is relative, without `.`
/// and `..`.
pub fn is_acted_upon(path: &str) -> bool {
    protected::is_protected_root(path)
}

/// Whether `allow` rules cover a call. Only rules that name a protected file count for it.
fn is_allowed(
    rules: &[Rule],
    action: &Action<'_>,
    target: &PreparedSubject,
    protection: &Protection,
) -> bool {
    let reads = action.kind == ActionKind::Pure;
    if let Protection::Ask(_) = protection {
        // A secret that may be read may be read by every tool.
        let mut rules = rules
            .iter()
            .filter(|rule| rule.names(action.tool) || (reads && rule.tool() == READ_TOOL))
            .map(|rule| rule.matcher(target));
        return rules.any(|matcher| match (matcher, target) {
            (Matcher::Path(glob), PreparedSubject::Path(path)) => {
                glob.allows(path) && protection.is_named_by(glob, path)
            }
            _ => false,
        });
    }
    let rules = || rules.iter().filter(|rule| rule.names(action.tool)).map(|rule| rule.matcher(target));
    rules().any(|matcher| match (matcher, target) {
        (Matcher::Any, _) => true,
        (Matcher::Path(glob), PreparedSubject::Path(path)) => glob.allows(path),
        (Matcher::Host(rule), PreparedSubject::Host(host)) => rule.allows(host),
        _ => false,
    }) || match target {
        // The parts of one command line may each be allowed by another rule.
        PreparedSubject::Command(command) => command.is_allowed(|words| {
            rules().any(|matcher| matches!(matcher, Matcher::Command(rule) if rule.allows(words)))
        }),
        _ => false,
    }
}

/// Reason why a file below `.git` is not written.
const GIT_REASON: &str = "file tools never write below `.git`, except to its configuration and hooks";

const READ_TOOL: &str = "read_file";
const WRITE_TOOLS: [&str; 2] = ["write_file", "edit_file"];

/// Whether a `deny` or `ask` rule applies to a call.
fn binds(rule: &Rule, action: &Action<'_>, target: &PreparedSubject) -> Match {
    let names_call = rule.names(action.tool);
    // A rule on a built-in tool applies to the subjects of other tools too.
    let applies = |kind| names_call || tool_names::specifier(rule.tool()) == Some(kind);
    match (rule.matcher(target), target) {
        (Matcher::Any, _) if names_call => Match::Yes,
        (Matcher::Path(glob), PreparedSubject::Path(path)) if applies_to(rule.tool(), action) => {
            glob.binds(path)
        }
        (Matcher::Command(words), PreparedSubject::Command(command)) if applies(Specifier::Command) => {
            command.matches(words)
        }
        (Matcher::Host(rule), PreparedSubject::Host(host))
            if applies(Specifier::Host) && rule.binds(host) =>
        {
            Match::Yes
        }
        (Matcher::Any, _)
        | (Matcher::Path(_), PreparedSubject::Path(_))
        | (Matcher::Command(_), PreparedSubject::Command(_))
        | (Matcher::Host(_), PreparedSubject::Host(_)) => Match::No,
        // The rule requires a path, a command or a host and the call has none, so the result is unknown.
        _ if names_call => Match::Maybe,
        _ => Match::No,
    }
}

/// Whether a path rule on `tool` applies to this call, which has a path.
fn applies_to(tool: &str, action: &Action<'_>) -> bool {
    let writes = action.kind != ActionKind::Pure || WRITE_TOOLS.contains(&action.tool);
    tool == action.tool || tool == READ_TOOL || (WRITE_TOOLS.contains(&tool) && writes)
}

fn plan_reason(tool: &str) -> String {
    format!(
        "plan mode is read-only, and `{tool}` is not. Describe the change in your plan instead. The user can choose \
         `--mode ask`, `--mode edit` or `--mode auto`"
    )
}
