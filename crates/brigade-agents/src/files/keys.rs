//! Keys of all formats, in one table.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    DisplayName,
    Description,
    /// Prompt outside of the body.
    Prompt,
    Model,
    Provider,
    Credential,
    ApiBase,
    Temperature,
    MaxTokens,
    Tokens,
    Usd,
    /// Section with `tokens` and `usd`.
    Budget,
    Tools,
    Lend,
    Deny,
    DisallowedTools,
    PermissionMode,
    Permission,
    Sandbox,
    SandboxMode,
    ApprovalPolicy,
    ReadOnly,
    /// Agents that it may delegate to.
    Agents,
    Mode,
    MaxTurns,
    Timeout,
    TimeoutMinutes,
    MaxConcurrency,
    /// External ACP agent that runs in its place.
    Acp,
    Fallbacks,
    AllowSkills,
    IgnoreInstructions,
    /// Section that contains keys of this table.
    Section,
    Disable,
    Kind,
    /// Key without effect, with the reason.
    Ignored(&'static str),
}

use Key::Ignored;

const STYLE: Key = Ignored("only describes the file or how it is displayed");
const SERVERS: Key = Ignored("MCP servers are defined in your configuration, not in agent files");
const HOOKS: Key = Ignored("agent files cannot run commands");
const HOST: Key = Ignored("applies only to the program that the file was written for");
const TUNING: Key = Ignored("only `temperature` and `max_tokens` are supported");
const RECIPE: Key = Ignored("only the instructions of a recipe are used");

/// Keys by their usual spellings.
const KEYS: &[(&[&str], Key)] = &[
    (&["name"], Key::Name),
    (&["display_name", "title"], Key::DisplayName),
    (&["description"], Key::Description),
    (&["prompt", "system", "system_prompt", "instructions", "developer_instructions"], Key::Prompt),
    (&["model", "goose_model"], Key::Model),
    (&["fallbacks"], Key::Fallbacks),
    (&["provider", "goose_provider"], Key::Provider),
    (&["api_key"], Key::Credential),
    (&["api_base", "base_url"], Key::ApiBase),
    (&["temperature"], Key::Temperature),
    (&["max_tokens"], Key::MaxTokens),
    (&["tokens"], Key::Tokens),
    (&["usd"], Key::Usd),
    (&["budget"], Key::Budget),
    (&["tools", "allowed_tools"], Key::Tools),
    (&["lend"], Key::Lend),
    (&["deny"], Key::Deny),
    (&["disallowedTools"], Key::DisallowedTools),
    (&["permissionMode"], Key::PermissionMode),
    (&["permission", "permissions"], Key::Permission),
    (&["sandbox"], Key::Sandbox),
    (&["sandbox_mode"], Key::SandboxMode),
    (&["approval_policy"], Key::ApprovalPolicy),
    (&["readonly"], Key::ReadOnly),
    (&["mode"], Key::Mode),
    (&["max_turns", "steps", "maxSteps", "max_iterations"], Key::MaxTurns),
    (&["timeout"], Key::Timeout),
    (&["timeout_mins"], Key::TimeoutMinutes),
    (&["max_concurrency"], Key::MaxConcurrency),
    (&["acp"], Key::Acp),
    (&["allow_skills"], Key::AllowSkills),
    (&["ignore_instructions", "omitClaudeMd"], Key::IgnoreInstructions),
    (&["llm", "settings"], Key::Section),
    (&["disable", "disabled"], Key::Disable),
    (&["kind"], Key::Kind),
    (
        &["color", "emoji", "vibe", "icon", "tags", "category", "version", "author", "metadata", "license"],
        STYLE,
    ),
    (&["mcpServers", "mcp_servers", "extensions"], SERVERS),
    (&["hooks"], HOOKS),
    (&["skills"], Ignored("skills cannot be selected individually; `allow_skills` enables all of them")),
    (&["memory"], Ignored("memory is shared by all agents")),
    (&["background", "is_background"], Ignored("the calling agent decides whether to wait for the result")),
    (&["isolation"], Ignored("every agent works in its parent's workspace")),
    (
        &["hidden", "user_invocable", "disable_model_invocation"],
        Ignored("every agent is available to all other agents"),
    ),
    (&["initialPrompt", "argument_hint", "handoffs", "target", "nickname_candidates"], HOST),
    (&["observer", "observerMessage", "criticalSystemReminder_EXPERIMENTAL", "autoCompactWindow"], HOST),
    (&["agents"], Key::Agents),
    (&["effort", "variant", "top_p", "options", "request", "personality", "service_tier"], TUNING),
    (&["model_reasoning_effort", "model_reasoning_summary", "model_verbosity"], TUNING),
    (&["activities", "parameters", "response", "sub_recipes", "retry"], RECIPE),
];

/// Keys whose misspelling would widen the authority of an agent.
const AUTHORITY_KEYS: [&str; 12] = [
    "tools",
    "allowedtools",
    "disallowedtools",
    "permission",
    "permissions",
    "permissionmode",
    "sandbox",
    "sandboxmode",
    "readonly",
    "lend",
    "deny",
    "mode",
];

/// Keys that also begin lines of a dialogue, so they are not recognised in Markdown.
const NOT_IN_MARKDOWN: [&str; 12] = [
    "system",
    "instructions",
    "title",
    "version",
    "author",
    "settings",
    "options",
    "request",
    "activities",
    "parameters",
    "response",
    "retry",
];

/// Looks up a key; case, `-` and `_` are ignored.
pub(super) fn lookup(name: &str) -> Option<Key> {
    static FOLDED: LazyLock<HashMap<String, Key>> = LazyLock::new(|| {
        let entries =
            KEYS.iter().flat_map(|(spellings, key)| spellings.iter().map(|name| (fold(name), *key)));
        entries.collect()
    });
    FOLDED.get(&fold(name)).copied()
}

/// Whether a line that begins with this name begins a field.
pub(super) fn is_markdown_key(name: &str) -> bool {
    if name.starts_with(char::is_uppercase) || NOT_IN_MARKDOWN.contains(&name) {
        return false;
    }
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') && lookup(name).is_some()
}

/// Whether the key narrows or widens the authority of an agent.
pub(super) fn is_authority_key(name: &str) -> bool {
    AUTHORITY_KEYS.contains(&fold(name).as_str())
}

/// Whether the key contains prose.
pub(super) fn is_prose(name: &str) -> bool {
    matches!(lookup(name), Some(Key::Description | Key::Prompt))
}

/// Suggests the authority key that an unknown key was probably meant to be.
pub(super) fn suggest_authority_key(name: &str) -> Option<&'static str> {
    // No key is this long, and comparing takes time in proportion to the length.
    let folded: String = fold(name).chars().take(24).collect();
    let near = |known: &&&str| {
        known.len() > 4 && strsim::levenshtein(&folded, known) <= if known.len() > 5 { 2 } else { 1 }
    };
    AUTHORITY_KEYS.iter().find(near).copied()
}

/// Normalises the spelling of a key.
pub(super) fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_ignores_case_and_separators() {
        for name in ["max_turns", "maxTurns", "max-turns", "MaxTurns"] {
            assert_eq!(lookup(name), Some(Key::MaxTurns));
        }
        assert_eq!(lookup("mcp-servers"), Some(SERVERS));
        assert_eq!(lookup("apiKey"), Some(Key::Credential));
        assert_eq!(lookup("colour"), None);
    }

    #[test]
    fn misspelled_authority_key_is_recognised() {
        assert_eq!(suggest_authority_key("tool"), Some("tools"));
        assert_eq!(suggest_authority_key("toolz"), Some("tools"));
        assert_eq!(suggest_authority_key("dissallowed_tools"), Some("disallowedtools"));
        assert_eq!(suggest_authority_key("read_olny"), Some("readonly"));
        for other in ["roles", "rules", "skill", "expertise_level", "model_tier", "x", ""] {
            assert_eq!(suggest_authority_key(other), None, "{other}");
        }
    }

    #[test]
    fn dialogue_lines_are_not_keys() {
        for word in ["user", "assistant", "Context", "system", "Name", "<example>", "- model"] {
            assert!(!is_markdown_key(word), "{word}");
        }
        assert!(is_markdown_key("tools") && is_markdown_key("permissionMode"));
    }
}
