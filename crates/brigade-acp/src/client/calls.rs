//! Details of an agent's own tool calls. A permission request may only name a call; it is judged by these
//! details.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use agent_client_protocol_schema::v1::{ToolCallContent, ToolCallStatus, ToolCallUpdateFields, ToolKind};
use brigade::core::text::truncate_bytes;
use brigade_sandbox::shell_quoted;
use serde_json::Value;

use super::sanitize;

/// Maximum size of a call's input that is shown to the user.
const MAX_INPUT_BYTES: usize = 16 << 10;
/// Maximum length of a command that can be judged.
const MAX_COMMAND_BYTES: usize = 64 << 10;
/// Maximum number of files per call, and maximum total length of their paths.
const MAX_PATHS: usize = 100;
const MAX_PATH_BYTES: usize = 64 << 10;
/// Maximum number of remembered calls per session, and their maximum total size.
const MAX_CALLS: usize = 256;
const MAX_TOTAL_BYTES: usize = 1 << 20;
/// Maximum length of the id of a remembered call.
const MAX_ID_BYTES: usize = 256;
/// Maximum number of paths in the short description of a call.
const MAX_NAMED_PATHS: usize = 3;

/// Reported details of an agent's tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CallDetails {
    pub(super) kind: Option<ToolKind>,
    pub(super) title: Option<String>,
    pub(super) paths: BTreeSet<String>,
    pub(super) command: Option<String>,
    /// The input, truncated for display.
    pub(super) input: Option<Value>,
    /// Whether the call has more paths or a longer command than can be judged.
    pub(super) is_too_large: bool,
}

impl CallDetails {
    /// Reads the details from an update.
    pub(super) fn of(fields: &ToolCallUpdateFields) -> CallDetails {
        let mut details = CallDetails {
            kind: fields.kind,
            title: fields.title.as_deref().map(sanitize).filter(|title| !title.is_empty()),
            command: fields.raw_input.as_ref().and_then(command_in),
            input: fields.raw_input.as_ref().map(truncated_input),
            ..CallDetails::default()
        };
        let locations = fields.locations.iter().flatten().map(|location| &location.path);
        let diffs = fields.content.iter().flatten().filter_map(|content| match content {
            ToolCallContent::Diff(diff) => Some(&diff.path),
            _ => None,
        });
        for path in locations.chain(diffs) {
            details.paths.insert(path.display().to_string());
            if details.check_size() {
                break;
            }
        }
        details.check_size();
        details
    }

    /// Merges a later update. Its values take precedence, but no reported path or command is dropped.
    pub(super) fn and_then(mut self, later: CallDetails) -> CallDetails {
        self.kind = later.kind.or(self.kind);
        self.title = later.title.or(self.title);
        self.command = later.command.or(self.command);
        self.input = later.input.or(self.input);
        self.paths.extend(later.paths);
        self.is_too_large |= later.is_too_large;
        self.check_size();
        self
    }

    /// Short description for the user: the title, and the command or files that it does not contain.
    pub(super) fn brief(&self, root: &Path) -> String {
        let title = self.title.as_deref().unwrap_or_default();
        let addition = match &self.command {
            Some(command) => sanitize(command),
            None => self.named_paths(title, root),
        };
        match (title, addition.as_str()) {
            ("", addition) => addition.to_owned(),
            (title, addition) if addition.is_empty() || title.contains(addition) => title.to_owned(),
            (title, addition) => sanitize(&format!("{title}: {addition}")),
        }
    }

    /// The first paths that the title does not contain, relative to the workspace.
    fn named_paths(&self, title: &str, root: &Path) -> String {
        let below = |path: &String| match Path::new(path).strip_prefix(root) {
            Ok(below) => sanitize(&below.display().to_string()),
            Err(_) => sanitize(path),
        };
        let unnamed: Vec<String> =
            self.paths.iter().map(below).filter(|path| !path.is_empty() && !title.contains(path)).collect();
        let named = unnamed.iter().take(MAX_NAMED_PATHS).map(String::as_str).collect::<Vec<_>>().join(", ");
        match unnamed.len().saturating_sub(MAX_NAMED_PATHS) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    /// Marks details over the limits and drops their contents.
    fn check_size(&mut self) -> bool {
        let command = self.command.as_ref().map_or(0, String::len);
        let paths: usize = self.paths.iter().map(String::len).sum();
        if self.is_too_large
            || command > MAX_COMMAND_BYTES
            || paths > MAX_PATH_BYTES
            || self.paths.len() > MAX_PATHS
        {
            *self = CallDetails {
                is_too_large: true,
                kind: self.kind,
                title: self.title.take(),
                ..CallDetails::default()
            };
        }
        self.is_too_large
    }

    fn bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(|path| path.len() + 64).sum();
        let texts = [&self.title, &self.command].into_iter().flatten().map(String::len).sum::<usize>();
        paths + texts + self.input.as_ref().map_or(0, |_| MAX_INPUT_BYTES) + MAX_ID_BYTES
    }
}

/// Calls that the agent has reported, oldest first.
#[derive(Default)]
pub(super) struct KnownCalls {
    known: VecDeque<(String, CallDetails)>,
    bytes: usize,
}

impl KnownCalls {
    /// Remembers an update of a call until the call ends, and returns the merged details.
    pub(super) fn learn(&mut self, id: &str, fields: &ToolCallUpdateFields) -> CallDetails {
        let details = self.forget(id).unwrap_or_default().and_then(CallDetails::of(fields));
        let is_over = matches!(fields.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        if is_over || id.len() > MAX_ID_BYTES {
            return details;
        }
        self.bytes += details.bytes();
        self.known.push_back((id.to_owned(), details.clone()));
        while self.known.len() > MAX_CALLS || self.bytes > MAX_TOTAL_BYTES {
            let Some((_, oldest)) = self.known.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
        details
    }

    pub(super) fn get(&self, id: &str) -> Option<&CallDetails> {
        self.known.iter().find(|(known, _)| known == id).map(|(_, details)| details)
    }

    fn forget(&mut self, id: &str) -> Option<CallDetails> {
        let index = self.known.iter().position(|(known, _)| known == id)?;
        let (_, details) = self.known.remove(index)?;
        self.bytes = self.bytes.saturating_sub(details.bytes());
        Some(details)
    }
}

fn truncated_input(input: &Value) -> Value {
    let text = input.to_string();
    match text.len() > MAX_INPUT_BYTES {
        true => Value::String(format!("{}…", truncate_bytes(&text, MAX_INPUT_BYTES))),
        false => input.clone(),
    }
}

/// Returns the command lines in a tool's input. Any value counts as a command. A rule that cannot parse it
/// requires an approval.
fn command_in(input: &Value) -> Option<String> {
    let line = |command: &Value| match command {
        Value::Null => None,
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            let line = words.map(|words| words.into_iter().map(shell_quoted).collect::<Vec<_>>().join(" "));
            Some(line.unwrap_or_else(|| command.to_string()))
        }
        other => Some(other.to_string()),
    };
    let lines: Vec<String> =
        ["command", "cmd", "script"].iter().filter_map(|key| line(input.get(key)?)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> ToolCallUpdateFields {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn call_details_are_kept_until_the_call_ends() {
        let mut calls = KnownCalls::default();
        calls.learn("1", &fields(json!({"kind": "execute", "rawInput": {}})));
        calls.learn("1", &fields(json!({"rawInput": {"command": "rm x"}, "locations": [{"path": "/a"}]})));
        calls.learn("2", &fields(json!({"kind": "read"})));
        let known = calls.get("1").unwrap().clone();
        assert_eq!((known.kind, known.command.as_deref()), (Some(ToolKind::Execute), Some("rm x")));
        let asked = CallDetails::of(&fields(json!({"kind": "read", "locations": [{"path": "/b"}]})));
        let both = known.and_then(asked);
        assert_eq!((both.kind, both.command.as_deref()), (Some(ToolKind::Read), Some("rm x")));
        assert_eq!(both.paths.into_iter().collect::<Vec<_>>(), ["/a", "/b"]);
        calls.learn("1", &fields(json!({"status": "completed"})));
        assert!(calls.get("1").is_none() && calls.get("2").is_some());
    }

    #[test]
    fn known_calls_are_bounded() {
        let mut calls = KnownCalls::default();
        for id in 0..100 {
            let input = json!({"command": "x".repeat(60_000), "content": "y".repeat(60_000)});
            calls.learn(&id.to_string(), &fields(json!({"rawInput": input})));
        }
        let held: usize = calls.known.iter().map(|(_, details)| details.bytes()).sum();
        assert!(calls.bytes == held && held <= MAX_TOTAL_BYTES && calls.get("99").is_some());
        for id in 0..1000 {
            calls.learn(&id.to_string(), &fields(json!({"kind": "read"})));
        }
        assert!(calls.known.len() <= MAX_CALLS);
        calls.learn(&"i".repeat(300), &fields(json!({"kind": "read"})));
        assert!(calls.get(&"i".repeat(300)).is_none());
    }

    #[test]
    fn oversized_calls_are_marked_too_large() {
        let many = |count: usize| -> Value {
            (0..count).map(|index| json!({"path": format!("/project/{index}")})).collect()
        };
        assert!(!CallDetails::of(&fields(json!({"locations": many(100)}))).is_too_large);
        let details = CallDetails::of(&fields(json!({"locations": many(101)})));
        assert!(details.is_too_large && details.paths.is_empty());
        assert!(details.and_then(CallDetails::default()).is_too_large);
        let long = json!({"rawInput": {"command": "x".repeat(MAX_COMMAND_BYTES + 1)}});
        assert!(CallDetails::of(&fields(long)).is_too_large);
    }

    #[test]
    fn brief_uses_the_latest_update_of_a_call() {
        let root = Path::new("/project");
        let mut calls = KnownCalls::default();
        let mut brief_after = |value: Value| calls.learn("1", &fields(value)).brief(root);
        assert_eq!(brief_after(json!({"title": "Terminal", "kind": "execute"})), "Terminal");
        assert_eq!(brief_after(json!({"rawInput": {"command": "cargo test"}})), "Terminal: cargo test");
        assert_eq!(brief_after(json!({"title": "`cargo test`"})), "`cargo test`");
        assert_eq!(brief_after(json!({"title": ""})), "`cargo test`", "an empty title replaces nothing");
        assert_eq!(brief_after(json!({"status": "completed"})), "`cargo test`");
        let edit = |title: &str, paths: &[&str]| {
            let paths: Value = paths.iter().map(|path| json!({"path": path})).collect();
            CallDetails::of(&fields(json!({"title": title, "locations": paths}))).brief(root)
        };
        assert_eq!(edit("Edit", &["/project/src/a.rs"]), "Edit: src/a.rs");
        assert_eq!(edit("Edit src/a.rs", &["/project/src/a.rs"]), "Edit src/a.rs");
        assert_eq!(edit("", &["/etc/x"]), "/etc/x");
        assert_eq!(
            edit("Read", &["/project/1", "/project/2", "/project/3", "/project/4"]),
            "Read: 1, 2, 3 and 1 more"
        );
        assert_eq!(edit("Look", &["/project"]), "Look");
    }

    #[test]
    fn command_in_returns_every_command() {
        let line = |input: Value| command_in(&input);
        assert_eq!(line(json!({"command": ["ls", "a b"]})).as_deref(), Some("ls 'a b'"));
        assert_eq!(line(json!({"command": "ls", "script": "rm x"})).as_deref(), Some("ls\nrm x"));
        assert_eq!(line(json!({"command": {"line": "rm"}})).as_deref(), Some(r#"{"line":"rm"}"#));
        assert_eq!(line(json!({"command": null, "path": "a"})), None);
    }
}
