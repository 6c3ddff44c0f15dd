//! Rendering of tool calls for clients.

use std::path::{Component, Path, PathBuf};

use agent_client_protocol_schema::v1 as acp;
use brigade::Toolbox;
use brigade::tool::{AnyTool, known_arguments};
use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::Subject;
use brigade_core::{CallId, Hash, SessionId, ToolCall, ToolOutput, text};
use serde_json::Value;

/// Maximum length of an argument in a title.
const MAX_TITLE_BYTES: usize = 100;
/// Maximum size of a file whose old content is shown in a diff.
const MAX_DIFF_FILE_BYTES: u64 = 256 * 1024;
/// Maximum length of a result that is shown.
const MAX_RESULT_BYTES: usize = 16 * 1024;

/// A tool call as clients show it.
#[derive(Debug, Clone)]
pub(super) struct ToolCallView {
    pub(super) name: String,
    pub(super) arguments: Value,
    /// One-line title.
    pub(super) title: String,
    pub(super) kind: acp::ToolKind,
    /// The file that the call reads or changes, as the model wrote it.
    path: Option<String>,
    /// The content of a file before `write_file` replaces it, if known.
    old_content: Option<String>,
}

impl ToolCallView {
    /// Describes a call by its tool. If the runtime no longer has the tool, the title is its name.
    pub(super) fn new(call: &ToolCall, tools: &Toolbox) -> ToolCallView {
        // Arguments that are not JSON are shown as the model wrote them.
        let arguments = serde_json::from_str(call.arguments.as_str())
            .unwrap_or_else(|_| Value::String(call.arguments.as_str().to_owned()));
        let tool = tools.get(&call.name);
        let title = tool.and_then(|tool| Some((tool.spec().category, tool.title(&arguments)?)));
        let title = match title {
            Some((Category::Execute, title)) => format!("`{}`", brief(&title.object)),
            Some((_, title)) => format!("{} {}", title.verb, title.object),
            None => call.name.clone(),
        };
        let kind = tool.map_or(acp::ToolKind::Other, |tool| kind(tool.as_ref()));
        let mut path = None;
        if let (Some(tool), acp::ToolKind::Read | acp::ToolKind::Edit) = (tool, kind) {
            // External agents add arguments of their own. Arguments that the tool refuses name no file.
            let known = known_arguments(tool.spec(), &arguments).unwrap_or_default();
            let _ = tool.check(&known, &mut |action| {
                if let Subject::Path(subject) = action.subject {
                    path = Some(subject.to_owned());
                }
            });
        }
        let name = call.name.clone();
        ToolCallView { name, arguments, title: brief(&title), kind, path, old_content: None }
    }

    /// Reads the file that the call is about to replace, so that the client can show a diff.
    pub(super) fn read_old_content(&mut self, workspace: &Path) {
        let path =
            self.path(workspace).filter(|path| self.name == "write_file" && path.starts_with(workspace));
        // Reading anything but a regular file might never end.
        let file = path.filter(|path| {
            path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_DIFF_FILE_BYTES)
        });
        self.old_content = file.and_then(|file| std::fs::read_to_string(file).ok());
    }

    /// Discards the old content if it differs from the content that the running call found.
    pub(super) fn check_old_content(&mut self, before: Option<Hash>) {
        self.old_content.take_if(|old| Some(Hash::of(old.as_bytes())) != before);
    }

    fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str).filter(|value| !value.is_empty())
    }

    /// Absolute path of the file that the call reads or changes.
    fn path(&self, workspace: &Path) -> Option<PathBuf> {
        self.path.as_ref().map(|path| absolute_path(workspace, path))
    }

    pub(super) fn locations(&self, workspace: &Path) -> Vec<acp::ToolCallLocation> {
        self.path(workspace).map(acp::ToolCallLocation::new).into_iter().collect()
    }

    /// The change that an edit makes.
    pub(super) fn diff(&self, workspace: &Path) -> Option<acp::ToolCallContent> {
        let path = self.path(workspace)?;
        let diff = match self.name.as_str() {
            "edit_file" => acp::Diff::new(path, self.argument("new").unwrap_or_default())
                .old_text(self.argument("old")?.to_owned()),
            "write_file" => acp::Diff::new(path, self.arguments.get("content")?.as_str()?)
                .old_text(self.old_content.clone()),
            _ => return None,
        };
        Some(acp::ToolCallContent::Diff(diff))
    }

    /// Content to show after the call has ended.
    pub(super) fn content(&self, output: &ToolOutput, workspace: &Path) -> Vec<acp::ToolCallContent> {
        let diff = if output.is_error() { None } else { self.diff(workspace) };
        let shown = text::truncate_bytes(output.text.as_str(), MAX_RESULT_BYTES);
        let mut text = shown.to_owned();
        if shown.len() < output.text.len() {
            text.push_str(&format!("\n(truncated; {} bytes in total)", output.text.len()));
        }
        let text = (!text.is_empty()).then(|| text.into());
        diff.into_iter().chain(text).collect()
    }
}

fn kind(tool: &dyn AnyTool) -> acp::ToolKind {
    match tool.spec().category {
        Category::Read => acp::ToolKind::Read,
        Category::Memory if tool.effect() == Effect::Pure => acp::ToolKind::Read,
        Category::Edit => acp::ToolKind::Edit,
        Category::Search => acp::ToolKind::Search,
        Category::Fetch => acp::ToolKind::Fetch,
        Category::Execute => acp::ToolKind::Execute,
        Category::Memory | Category::Vfs | Category::Task | Category::Subagent | Category::Other => {
            acp::ToolKind::Other
        }
    }
}

/// Returns the protocol's id of a call, which is unique in its tree.
pub(super) fn id(session: &SessionId, call: CallId) -> acp::ToolCallId {
    acp::ToolCallId::new(format!("{session}:{call}"))
}

/// Shortens a text to one line of at most `MAX_TITLE_BYTES`.
pub(super) fn brief(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = text::truncate_bytes(&line, MAX_TITLE_BYTES);
    if cut.len() < line.len() { format!("{cut}…") } else { line }
}

/// Absolute form of a workspace path. The file system is not accessed, because the path is only shown.
fn absolute_path(workspace: &Path, path: &str) -> PathBuf {
    let mut full = workspace.to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                full.pop();
            }
            Component::CurDir => {}
            component => full.push(component),
        }
    }
    full
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> ToolCallView {
        let arguments = arguments.to_string().into();
        ToolCallView::new(
            &ToolCall { name: name.to_owned(), arguments, provider_id: None },
            &Toolbox::standard(),
        )
    }

    #[test]
    fn diff_shows_the_old_content_only_if_the_call_replaced_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "old").unwrap();
        let mut write = call("write_file", json!({"path": "a", "content": "new"}));
        let old = |call: &ToolCallView| match call.diff(folder.path()) {
            Some(acp::ToolCallContent::Diff(diff)) => diff.old_text,
            _ => panic!(),
        };
        write.read_old_content(folder.path());
        assert_eq!(old(&write).as_deref(), Some("old"));
        write.check_old_content(Some(Hash::of(b"old")));
        assert_eq!(old(&write).as_deref(), Some("old"));
        write.check_old_content(Some(Hash::of(b"other")));
        assert_eq!(old(&write), None);
        for outside in ["../a", "/etc/hostname", "."] {
            let mut write = call("write_file", json!({"path": outside, "content": "new"}));
            write.read_old_content(folder.path());
            assert_eq!(old(&write), None, "{outside}");
        }
    }

    #[test]
    fn title_names_the_action_and_its_target() {
        assert_eq!(call("read_file", json!({"path": "a.rs"})).title, "Read a.rs");
        assert_eq!(call("shell", json!({"command": "make\n  test"})).title, "`make test`");
        assert_eq!(call("list_dir", json!({})).title, "List .");
        assert_eq!(call("read_file", json!({"path": 7})).title, "read_file");
        assert!(call("shell", json!({"command": "x".repeat(500)})).title.len() < 120);
    }

    #[test]
    fn locations_are_absolute_and_edits_have_diffs() {
        let folder = Path::new("/project");
        let edit = call("edit_file", json!({"path": "./src/../a.rs", "old": "x", "new": ""}));
        assert_eq!(edit.locations(folder)[0].path, Path::new("/project/a.rs"));
        let Some(acp::ToolCallContent::Diff(diff)) = edit.diff(folder) else { panic!() };
        assert_eq!((diff.old_text.as_deref(), diff.new_text.as_str()), (Some("x"), ""));
        assert!(call("shell", json!({"path": "a"})).locations(folder).is_empty());
        // An external agent adds arguments of its own.
        let read = call("read_file", json!({"path": "a.rs", "line": 3, "request": "1"}));
        assert_eq!(read.locations(folder)[0].path, Path::new("/project/a.rs"));
        let failed = edit.content(&ToolOutput::error("no"), folder);
        assert!(matches!(&failed[..], [acp::ToolCallContent::Content(_)]));
        assert_eq!(edit.content(&ToolOutput::ok("done"), folder).len(), 2);
    }
}
