//! Requests of an external agent: converted to calls of its reply, then answered.

use std::path::Path;

use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, PermissionOption, PermissionOptionKind, ReadTextFileRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    ToolCallUpdate, ToolKind, WriteTextFileRequest,
};
use brigade::core::text::truncate_bytes;
use brigade_core::ToolOutput;
use brigade_core::message::Refusal;
use brigade_sandbox::{shell_quoted, single_quoted};
use serde_json::{Value, json};

use super::calls::CallDetails;
use super::peer::{AgentConnection, REFUSED};
use super::sanitize;

/// Maximum length of a refusal that is sent to the agent.
const MAX_REFUSAL_BYTES: usize = 2000;

/// A request of an agent that has not been answered.
pub(super) struct AgentRequest {
    id: Value,
    request: RequestKind,
    /// The requesting sub-agent, if it is not the agent itself.
    sub_agent: Option<String>,
    /// The response to send if the call succeeds.
    pub(super) answer: Option<Value>,
}

enum RequestKind {
    Read(ReadTextFileRequest),
    Write(WriteTextFileRequest),
    Terminal(CreateTerminalRequest),
    Permission(Box<RequestPermissionRequest>),
}

impl AgentRequest {
    /// Parses a request, or returns `None` for another method.
    pub(super) fn parse(
        method: &str,
        id: Value,
        params: Value,
        sub_agent: Option<String>,
    ) -> Option<Result<AgentRequest, Refusal>> {
        fn parse<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, Refusal> {
            serde_json::from_value(params).map_err(|cause| sanitize(&cause.to_string()).into())
        }
        let request = match method {
            "fs/read_text_file" => parse(params).map(RequestKind::Read),
            "fs/write_text_file" => parse(params).map(RequestKind::Write),
            "terminal/create" => parse(params).map(RequestKind::Terminal),
            "session/request_permission" => {
                parse(params).map(|request| RequestKind::Permission(Box::new(request)))
            }
            _ => return None,
        };
        Some(request.map(|request| AgentRequest { id, request, sub_agent, answer: None }))
    }

    /// The requesting sub-agent, if it is not the agent itself.
    pub(super) fn sub_agent(&self) -> Option<&str> {
        self.sub_agent.as_deref()
    }

    /// Returns the tool to call and its arguments. `name` identifies the call. `details` is what the agent
    /// has reported about the tool call in question. `requester` is the name of the requesting sub-agent. An
    /// error is the reason for a refusal.
    pub(super) fn call(
        &self,
        server: &str,
        name: &str,
        root: &Path,
        details: Option<CallDetails>,
        requester: Option<String>,
    ) -> Result<(String, Value), Refusal> {
        Ok(match &self.request {
            RequestKind::Read(request) => {
                let path = request.path.display().to_string();
                let arguments =
                    json!({ "path": path, "line": request.line, "limit": request.limit, "request": name });
                ("read_file".to_owned(), arguments)
            }
            RequestKind::Write(request) => {
                let path = request.path.display().to_string();
                ("write_file".to_owned(), json!({ "path": path, "content": request.content }))
            }
            RequestKind::Terminal(request) => {
                let directory = request.cwd.as_deref().unwrap_or(root).display().to_string();
                let arguments = json!({
                    "command": command_line(request),
                    "directory": directory,
                    "output_limit": request.output_byte_limit,
                    "request": name,
                });
                ("shell".to_owned(), arguments)
            }
            RequestKind::Permission(_) => {
                return permission(server, name, details.unwrap_or_default(), requester);
            }
        })
    }

    /// The agent's own tool call for which it requests permission.
    pub(super) fn about(&self) -> Option<&ToolCallUpdate> {
        match &self.request {
            RequestKind::Permission(request) => Some(&request.tool_call),
            RequestKind::Read(_) | RequestKind::Write(_) | RequestKind::Terminal(_) => None,
        }
    }

    /// Responds with the result of the call.
    pub(super) fn respond(self, connection: &AgentConnection, output: &ToolOutput) {
        if output.is_error() {
            return self.refuse(connection, truncate_bytes(output.text.as_str(), MAX_REFUSAL_BYTES));
        }
        match (&self.request, self.answer) {
            (RequestKind::Permission(request), _) => {
                connection.answer(&self.id, &select_option(&request.options, ALLOW))
            }
            (RequestKind::Write(_), _) => connection.answer(&self.id, &json!({})),
            (RequestKind::Read(_) | RequestKind::Terminal(_), Some(answer)) => {
                connection.answer(&self.id, &answer)
            }
            (RequestKind::Read(_) | RequestKind::Terminal(_), None) => {
                connection.refuse(
                    &self.id,
                    REFUSED,
                    "cannot answer this request: its result is no longer available",
                );
            }
        }
    }

    /// Responds with a refusal.
    pub(super) fn refuse(&self, connection: &AgentConnection, why: &str) {
        match &self.request {
            RequestKind::Permission(request) => {
                connection.answer(&self.id, &select_option(&request.options, REJECT))
            }
            RequestKind::Read(_) | RequestKind::Write(_) | RequestKind::Terminal(_) => {
                connection.refuse(&self.id, REFUSED, why)
            }
        }
    }

    /// Responds that the prompt was cancelled.
    pub(super) fn cancel(&self, connection: &AgentConnection) {
        match &self.request {
            RequestKind::Permission(_) => {
                let answer = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
                connection.answer(&self.id, &answer);
            }
            RequestKind::Read(_) | RequestKind::Write(_) | RequestKind::Terminal(_) => {
                connection.refuse(&self.id, REFUSED, "the prompt was cancelled");
            }
        }
    }
}

/// Permanent approvals are kept as Brigade rules, so the agent is never told to remember one.
const ALLOW: PermissionOptionKind = PermissionOptionKind::AllowOnce;
const REJECT: PermissionOptionKind = PermissionOptionKind::RejectOnce;

fn select_option(options: &[PermissionOption], kind: PermissionOptionKind) -> RequestPermissionResponse {
    let option = options.iter().find(|option| option.kind == kind);
    RequestPermissionResponse::new(match option {
        Some(option) => {
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
        }
        None => RequestPermissionOutcome::Cancelled,
    })
}

/// Tool kinds and their names in the protocol.
pub(super) const KINDS: [(ToolKind, &str); 10] = [
    (ToolKind::Read, "read"),
    (ToolKind::Edit, "edit"),
    (ToolKind::Delete, "delete"),
    (ToolKind::Move, "move"),
    (ToolKind::Search, "search"),
    (ToolKind::Execute, "execute"),
    (ToolKind::Think, "think"),
    (ToolKind::Fetch, "fetch"),
    (ToolKind::SwitchMode, "switch_mode"),
    (ToolKind::Other, "other"),
];

pub(super) fn kind(word: &str) -> Option<ToolKind> {
    KINDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
}

fn kind_name(kind: ToolKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("other", |(_, word)| word)
}

/// Returns the call that permission rules and the user see. A call with a command counts as `execute`,
/// whatever kind the agent reports.
fn permission(
    server: &str,
    name: &str,
    details: CallDetails,
    requester: Option<String>,
) -> Result<(String, Value), Refusal> {
    if details.is_too_large {
        return Err("cannot check this call: it lists too many files, or its command is too long".into());
    }
    let kind = details.kind.unwrap_or_default();
    let judged = if details.command.is_some() { ToolKind::Execute } else { kind };
    let mut arguments =
        json!({ "title": details.title.unwrap_or_default(), "kind": kind_name(kind), "request": name });
    let more = [
        ("paths", (!details.paths.is_empty()).then(|| details.paths.into_iter().collect())),
        ("command", details.command.map(Value::String)),
        ("input", details.input),
        ("sub_agent", requester.map(Value::String)),
    ];
    if let Some(object) = arguments.as_object_mut() {
        object.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    Ok((format!("acp__{server}__{}", kind_name(judged)), arguments))
}

/// The command line that a terminal runs. A command without arguments is already a command line.
fn command_line(request: &CreateTerminalRequest) -> String {
    let variables =
        request.env.iter().map(|variable| format!("{}={}", variable.name, single_quoted(&variable.value)));
    let command = match request.args.is_empty() {
        true => vec![request.command.clone()],
        false => {
            // Words that need no quotes have none, so that rules written by users match.
            std::iter::once(&request.command).chain(&request.args).map(|word| shell_quoted(word)).collect()
        }
    };
    variables.chain(command).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, params: Value) -> (String, Value) {
        let request = AgentRequest::parse(method, json!(1), params, None).unwrap().unwrap();
        let details = request.about().map(|call| CallDetails::of(&call.fields));
        request.call("zed", "q1", Path::new("/project"), details, None).unwrap()
    }

    #[test]
    fn terminal_request_becomes_a_command_line_that_rules_match() {
        let line = |command: &str, args: &[&str], env: Value| {
            let params = json!({"sessionId": "s", "command": command, "args": args, "env": env});
            call("terminal/create", params).1["command"].as_str().unwrap().to_owned()
        };
        assert_eq!(line("git", &["status", "--short"], json!([])), "git status --short");
        assert_eq!(line("npm test && ls", &[], json!([])), "npm test && ls");
        assert_eq!(line("sh", &["-c", "rm -rf 'x'"], json!([])), r"sh -c 'rm -rf '\''x'\'''");
        assert_eq!(line("make", &[], json!([{"name": "A", "value": "b c"}])), "A='b c' make");
    }

    #[test]
    fn permission_call_shows_the_command_and_paths() {
        let params = json!({
            "sessionId": "s",
            "toolCall": {
                "toolCallId": "1", "kind": "execute", "title": "Run\u{1b}[31m it",
                "rawInput": {"command": ["ls", "a b"]},
                "locations": [{"path": "/project/a"}],
            },
            "options": [],
        });
        let (tool, arguments) = call("session/request_permission", params);
        assert_eq!(tool, "acp__zed__execute");
        assert_eq!(arguments["command"], "ls 'a b'");
        assert_eq!(arguments["paths"], json!(["/project/a"]));
        assert_eq!(arguments["title"], "Run [31m it");
    }

    #[test]
    fn command_is_judged_as_execute_whatever_its_kind() {
        for kind in ["read", "think", "edit", "other"] {
            let tool_call = json!({"toolCallId": "1", "kind": kind, "rawInput": {"command": "rm -rf ."}});
            let params = json!({"sessionId": "s", "toolCall": tool_call, "options": []});
            let (tool, arguments) = call("session/request_permission", params);
            assert_eq!((tool.as_str(), &arguments["kind"]), ("acp__zed__execute", &kind.into()));
        }
        let bare = json!({"sessionId": "s", "toolCall": {"toolCallId": "1"}, "options": []});
        let request =
            AgentRequest::parse("session/request_permission", json!(1), bare, None).unwrap().unwrap();
        let known = CallDetails { command: Some("rm x".to_owned()), ..CallDetails::default() };
        let requester = Some("Scout".to_owned());
        let (tool, arguments) =
            request.call("zed", "q1", Path::new("/project"), Some(known), requester).unwrap();
        assert_eq!((tool.as_str(), &arguments["command"]), ("acp__zed__execute", &"rm x".into()));
        assert_eq!(arguments["sub_agent"], "Scout");
        let known = CallDetails { is_too_large: true, ..CallDetails::default() };
        assert!(request.call("zed", "q1", Path::new("/project"), Some(known), None).is_err());
    }

    #[test]
    fn allow_always_is_never_selected() {
        let options: Vec<PermissionOption> = serde_json::from_value(json!([
            {"optionId": "a", "name": "Always", "kind": "allow_always"},
            {"optionId": "n", "name": "No", "kind": "reject_once"},
        ]))
        .unwrap();
        let response = |kind| serde_json::to_value(select_option(&options, kind)).unwrap();
        assert_eq!(response(ALLOW), json!({"outcome": {"outcome": "cancelled"}}));
        assert_eq!(response(REJECT), json!({"outcome": {"outcome": "selected", "optionId": "n"}}));
    }
}
