//! Tools that carry out the requests of external agents. They are judged under the tool names that permission
//! rules use.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use agent_client_protocol_schema::v1::{ReadTextFileResponse, ToolKind};
use brigade::external::ExternalTool;
use brigade::process::guard_tag;
use brigade::tool::{AnyTool, EditPlan, Files};
use brigade::{Redactor, ToolContext};
use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{Extent, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::agent_request::{KINDS, kind};
use super::lock;
use super::pool::Pool;
use super::session::ExternalSession;
use super::terminal::TerminalRequest;

/// Maximum size of a file that is read for an agent.
const MAX_READ_BYTES: u64 = 4 << 20;

const READS: &[&str] = &["read_file", "list_dir", "grep", "glob"];
const WRITES: &[&str] = &["write_file", "edit_file"];
const RUNS: &[&str] = &["shell"];

/// All tools by name, except for writing, which uses the standard `write_file`.
pub(super) fn tools(
    pool: &Weak<Pool>,
    servers: impl Iterator<Item = (String, PathBuf)>,
) -> BTreeMap<String, ExternalTool> {
    let mut tools = BTreeMap::new();
    let mut add = |tool: Arc<dyn AnyTool>, needs| {
        tools.insert(tool.spec().name.clone(), ExternalTool { tool, needs });
    };
    add(
        Arc::new(ReadFileTool { spec: spec("read_file", Category::Read), pool: pool.clone() }),
        &["read_file"],
    );
    add(Arc::new(TerminalTool { spec: spec("shell", Category::Execute), pool: pool.clone() }), RUNS);
    for (server, root) in servers {
        for (kind, word) in KINDS {
            let needs = match kind {
                ToolKind::Read | ToolKind::Search => READS,
                ToolKind::Edit | ToolKind::Delete | ToolKind::Move => WRITES,
                ToolKind::Execute => RUNS,
                _ => &[],
            };
            let spec = spec(&format!("acp__{server}__{word}"), Category::Other);
            add(Arc::new(PermissionTool { spec, kind, root: root.clone() }), needs);
        }
    }
    tools
}

fn spec(name: &str, category: Category) -> ToolSpec {
    let description = "Request from an external agent".to_owned();
    ToolSpec { name: name.to_owned(), description, schema: json!({ "type": "object" }), category }
}

fn text<'a>(arguments: &'a Value, key: &str) -> &'a str {
    arguments.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The session that made the request.
fn requesting_session(pool: &Weak<Pool>, context: &ToolContext) -> Result<Arc<ExternalSession>, ToolOutput> {
    let session = pool.upgrade().and_then(|pool| pool.session(&context.session));
    session.ok_or_else(|| {
        ToolOutput::error("cannot carry out the request: the external agent that sent it has ended")
    })
}

/// Redactor of what agents are sent.
fn redactor(pool: &Weak<Pool>) -> Redactor {
    pool.upgrade().map(|pool| pool.redactor.clone()).unwrap_or_default()
}

fn store_response(session: &ExternalSession, arguments: &Value, answer: &impl serde::Serialize) {
    if let Some(request) = lock(&session.state).open_requests.get_mut(text(arguments, "request")) {
        request.answer = serde_json::to_value(answer).ok();
    }
}

fn no_edit(name: &str) -> ToolOutput {
    ToolOutput::error(format!("`{name}` does not edit files"))
}

/// `fs/read_text_file`.
struct ReadFileTool {
    spec: ToolSpec,
    pool: Weak<Pool>,
}

impl AnyTool for ReadFileTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let subject = Subject::Path(text(arguments, "path"));
        judge(&Action { tool: "read_file", kind: ActionKind::Pure, subject });
        Ok(())
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let session = match requesting_session(&self.pool, context) {
                Ok(session) => session,
                Err(output) => return output,
            };
            let (files, path) = (context.files.clone(), text(&arguments, "path").to_owned());
            let shown = path.clone();
            let read = tokio::task::spawn_blocking(move || files.load(&path, MAX_READ_BYTES)).await;
            let found = match read {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return ToolOutput::error(error.to_string()),
                Err(error) => return ToolOutput::error(format!("cannot read {shown}: {error}")),
            };
            let number = |key: &str| arguments.get(key).and_then(Value::as_u64);
            let content = String::from_utf8_lossy(&found.content);
            let selected = lines(&content, number("line"), number("limit"));
            let extent = if selected.len() == content.len() { Extent::Whole } else { Extent::Part };
            found.seen(extent).into_iter().for_each(|file| context.seen.put(file));
            let report = format!("Read {} bytes of {shown}", selected.len());
            let shown = redactor(&self.pool).redact(&selected).into_owned();
            store_response(&session, &arguments, &ReadTextFileResponse::new(shown));
            ToolOutput::ok(report)
        })
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(no_edit("read_file"))
    }
}

/// Returns at most `limit` lines, starting with line `first`, counted from 1.
fn lines(text: &str, first: Option<u64>, limit: Option<u64>) -> String {
    let skip = usize::try_from(first.unwrap_or(1).saturating_sub(1)).unwrap_or(usize::MAX);
    let take = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    text.split_inclusive('\n').skip(skip).take(take).collect()
}

/// `terminal/create`.
struct TerminalTool {
    spec: ToolSpec,
    pool: Weak<Pool>,
}

impl AnyTool for TerminalTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    fn is_sandboxed(&self) -> bool {
        true
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let subject = Subject::Command(text(arguments, "command"));
        judge(&Action { tool: "shell", kind: ActionKind::Other, subject });
        Ok(())
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let Some(settings) = &context.shell else {
                return ToolOutput::error("cannot run the command: `shell` is not available");
            };
            let session = match requesting_session(&self.pool, context) {
                Ok(session) => session,
                Err(output) => return output,
            };
            let directory = PathBuf::from(text(&arguments, "directory"));
            if !is_inside(&directory, context.files.workspace().root()) {
                return ToolOutput::error(format!(
                    "cannot run the command in {}: it is outside the workspace. Use a directory in the workspace.",
                    directory.display()
                ));
            }
            let request = TerminalRequest {
                command: text(&arguments, "command").to_owned(),
                directory,
                output_limit: arguments.get("output_limit").and_then(Value::as_u64),
                tag: guard_tag(&context.session, context.call),
                sandbox: context.sandbox.clone(),
                redactor: redactor(&self.pool),
            };
            match session.terminals.start(request, settings) {
                Ok(name) => {
                    store_response(&session, &arguments, &json!({ "terminalId": name }));
                    ToolOutput::ok(format!("Started terminal {name}"))
                }
                Err(refusal) => ToolOutput::error(refusal.to_string()),
            }
        })
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(no_edit("shell"))
    }
}

fn is_inside(path: &Path, root: &Path) -> bool {
    path.starts_with(root) && !path.components().any(|part| part == Component::ParentDir)
}

/// `session/request_permission`.
struct PermissionTool {
    spec: ToolSpec,
    kind: ToolKind,
    root: PathBuf,
}

impl PermissionTool {
    /// Judges a command as a command and each file by the kind of access. A call with neither may do
    /// anything.
    fn judge(
        &self,
        kind: ToolKind,
        paths: &[&str],
        command: Option<&str>,
        judge: &mut dyn FnMut(&Action<'_>),
    ) {
        let name = self.spec.name.as_str();
        if let Some(command) = command {
            judge(&Action { tool: "shell", kind: ActionKind::Other, subject: Subject::Command(command) });
        }
        let (kind, tool) = match kind {
            ToolKind::Read | ToolKind::Search => (ActionKind::Pure, "read_file"),
            ToolKind::Edit => (ActionKind::Edit, "write_file"),
            ToolKind::Delete | ToolKind::Move => (ActionKind::Other, "write_file"),
            // The files are only shown as read. The rules for commands decide what the command may do to
            // them.
            ToolKind::Execute if command.is_some() => (ActionKind::Pure, "read_file"),
            ToolKind::Execute => (ActionKind::Other, "shell"),
            _ => (ActionKind::Other, name),
        };
        for path in paths {
            let subject = Subject::Path(path);
            judge(&match is_inside(&self.root.join(path), &self.root) {
                true => Action { tool, kind, subject },
                false => Action { tool: name, kind: ActionKind::Other, subject },
            });
        }
        if paths.is_empty() && command.is_none() {
            let tool = if tool == "shell" { tool } else { name };
            judge(&Action { tool, kind: ActionKind::Other, subject: Subject::Nothing });
        }
    }
}

impl AnyTool for PermissionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        // Repeating it would send an approval for a request that no longer exists.
        Effect::Opaque
    }

    fn network(&self) -> bool {
        self.kind == ToolKind::Fetch
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let paths = arguments.get("paths").and_then(Value::as_array);
        let paths: Vec<&str> = paths.into_iter().flatten().filter_map(Value::as_str).collect();
        let command = arguments.get("command").and_then(Value::as_str);
        self.judge(kind(text(arguments, "kind")).unwrap_or(self.kind), &paths, command, judge);
        Ok(())
    }

    fn run<'a>(&'a self, _arguments: Value, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::ok("Allowed once")))
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(no_edit(&self.spec.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_requests_are_judged_by_their_effect() {
        let judged = |kind: ToolKind, paths: &[&str], command: Option<&str>| {
            let tool = PermissionTool { spec: spec("own", Category::Other), kind, root: "/project".into() };
            let mut all = Vec::new();
            tool.judge(kind, paths, command, &mut |action| {
                let subject = match action.subject {
                    Subject::Nothing => "",
                    Subject::Path(text) | Subject::Command(text) | Subject::Host(text) => text,
                };
                all.push(format!("{} {:?} {subject}", action.tool, action.kind));
            });
            all
        };
        assert_eq!(judged(ToolKind::Read, &["/project/a"], None), ["read_file Pure /project/a"]);
        assert_eq!(judged(ToolKind::Read, &[], None), ["own Other "]);
        assert_eq!(judged(ToolKind::Read, &["/etc/passwd"], None), ["own Other /etc/passwd"]);
        assert_eq!(judged(ToolKind::Think, &[], None), ["own Other "]);
        assert_eq!(judged(ToolKind::Edit, &["/project/a"], None), ["write_file Edit /project/a"]);
        assert_eq!(judged(ToolKind::Edit, &["/project/../a"], None), ["own Other /project/../a"]);
        assert_eq!(
            judged(ToolKind::Edit, &["/project/a", "/b"], None),
            ["write_file Edit /project/a", "own Other /b"]
        );
        assert_eq!(judged(ToolKind::Delete, &["/project/a"], None), ["write_file Other /project/a"]);
        assert_eq!(judged(ToolKind::Execute, &[], Some("ls")), ["shell Other ls"]);
        assert_eq!(judged(ToolKind::Execute, &[], None), ["shell Other "]);
        assert_eq!(
            judged(ToolKind::Edit, &["/project/a"], Some("ls")),
            ["shell Other ls", "write_file Edit /project/a"]
        );
        assert_eq!(judged(ToolKind::Fetch, &["/project/a"], None), ["own Other /project/a"]);
    }

    #[test]
    fn lines_returns_the_exact_range() {
        assert_eq!(lines("a\r\nb\nc", None, None), "a\r\nb\nc");
        assert_eq!(lines("a\nb\nc", Some(2), Some(1)), "b\n");
        assert_eq!(lines("a\nb\nc", Some(3), Some(9)), "c");
        assert_eq!(lines("a", Some(7), None), "");
    }
}
