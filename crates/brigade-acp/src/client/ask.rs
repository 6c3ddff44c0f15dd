//! What an agent asks of us, as a call of its reply, and the answer that it gets.

use std::path::Path;

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, PermissionOption, PermissionOptionKind, ReadTextFileRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
    ToolCallUpdate, ToolKind, WriteTextFileRequest,
};
use brigade::core::text::cut;
use brigade_core::ToolOutput;
use serde_json::{Value, json};

use super::calls::Doing;
use super::peer::{Link, REFUSED};
use super::process::quoted;
use super::short;

/// How much of a refusal an agent reads.
const MOST_WORDS: usize = 2000;

/// A request of an agent that waits for its answer.
pub(super) struct Question {
    id: Value,
    what: What,
    /// The sub-agent that asks, if it is not the agent itself.
    sub_agent: Option<String>,
    /// What is answered where the call works.
    pub(super) answer: Option<Value>,
}

enum What {
    Read(ReadTextFileRequest),
    Write(WriteTextFileRequest),
    Terminal(CreateTerminalRequest),
    Permission(Box<RequestPermissionRequest>),
}

impl Question {
    /// Reads a request; none where the method is not one of these.
    pub(super) fn read(
        method: &str,
        id: Value,
        params: Value,
        sub_agent: Option<String>,
    ) -> Option<Result<Question, String>> {
        fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, String> {
            serde_json::from_value(params).map_err(|cause| short(&cause.to_string()))
        }
        let what = match method {
            "fs/read_text_file" => read(params).map(What::Read),
            "fs/write_text_file" => read(params).map(What::Write),
            "terminal/create" => read(params).map(What::Terminal),
            "session/request_permission" => read(params).map(|asked| What::Permission(Box::new(asked))),
            _ => return None,
        };
        Some(what.map(|what| Question { id, what, sub_agent, answer: None }))
    }

    /// The sub-agent that asks, if it is not the agent itself.
    pub(super) fn sub_agent(&self) -> Option<&str> {
        self.sub_agent.as_deref()
    }

    /// The tool that is called for it and its arguments. `name` is what the call is known by here.
    /// `doing` is all that was told of the tool call that it is about, and `asker` the name of the sub-agent that asks. A
    /// reason is one to refuse it for.
    pub(super) fn call(
        &self,
        server: &str,
        name: &str,
        root: &Path,
        doing: Option<Doing>,
        asker: Option<String>,
    ) -> Result<(String, Value), String> {
        Ok(match &self.what {
            What::Read(asked) => {
                let path = asked.path.display().to_string();
                let arguments =
                    json!({ "path": path, "line": asked.line, "limit": asked.limit, "request": name });
                ("read_file".to_owned(), arguments)
            }
            What::Write(asked) => {
                let path = asked.path.display().to_string();
                ("write_file".to_owned(), json!({ "path": path, "content": asked.content }))
            }
            What::Terminal(asked) => {
                let directory = asked.cwd.as_deref().unwrap_or(root).display().to_string();
                let arguments = json!({
                    "command": command_line(asked),
                    "directory": directory,
                    "output_limit": asked.output_byte_limit,
                    "request": name,
                });
                ("shell".to_owned(), arguments)
            }
            What::Permission(_) => return permission(server, name, doing.unwrap_or_default(), asker),
        })
    }

    /// The agent's own tool call that it asks a permission for.
    pub(super) fn about(&self) -> Option<&ToolCallUpdate> {
        match &self.what {
            What::Permission(asked) => Some(&asked.tool_call),
            What::Read(_) | What::Write(_) | What::Terminal(_) => None,
        }
    }

    /// Answers as the call went.
    pub(super) fn settle(self, link: &Link, output: &ToolOutput) {
        if output.is_error() {
            return self.refuse(link, cut(output.text.as_str(), MOST_WORDS));
        }
        match (&self.what, self.answer) {
            (What::Permission(asked), _) => link.answer(&self.id, &chosen(&asked.options, ALLOW)),
            (What::Write(_), _) => link.answer(&self.id, &json!({})),
            (What::Read(_) | What::Terminal(_), Some(answer)) => link.answer(&self.id, &answer),
            (What::Read(_) | What::Terminal(_), None) => {
                link.refuse(&self.id, REFUSED, "there is no answer to this any more");
            }
        }
    }

    /// Says no.
    pub(super) fn refuse(&self, link: &Link, why: &str) {
        match &self.what {
            What::Permission(asked) => link.answer(&self.id, &chosen(&asked.options, REJECT)),
            What::Read(_) | What::Write(_) | What::Terminal(_) => link.refuse(&self.id, REFUSED, why),
        }
    }

    /// Says that the prompt was cancelled.
    pub(super) fn cancel(&self, link: &Link) {
        match &self.what {
            What::Permission(_) => {
                let answer = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
                link.answer(&self.id, &answer);
            }
            What::Read(_) | What::Write(_) | What::Terminal(_) => {
                link.refuse(&self.id, REFUSED, "the prompt was cancelled");
            }
        }
    }
}

/// Our own rules remember: an agent is never told to.
const ALLOW: PermissionOptionKind = PermissionOptionKind::AllowOnce;
const REJECT: PermissionOptionKind = PermissionOptionKind::RejectOnce;

fn chosen(options: &[PermissionOption], kind: PermissionOptionKind) -> RequestPermissionResponse {
    let option = options.iter().find(|option| option.kind == kind);
    RequestPermissionResponse::new(match option {
        Some(option) => {
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
        }
        None => RequestPermissionOutcome::Cancelled,
    })
}

/// The kinds by the words of the protocol.
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

/// The kind of this word.
pub(super) fn kind(word: &str) -> Option<ToolKind> {
    KINDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
}

fn word(kind: ToolKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("other", |(_, word)| word)
}

/// What a person and the rules see of a request for permission. A command is one of `execute`, whatever it is called.
fn permission(
    server: &str,
    name: &str,
    doing: Doing,
    asker: Option<String>,
) -> Result<(String, Value), String> {
    if doing.is_too_much {
        return Err("it names more files, or a longer command, than can be judged".to_owned());
    }
    let kind = doing.kind.unwrap_or_default();
    let judged = if doing.command.is_some() { ToolKind::Execute } else { kind };
    let mut arguments =
        json!({ "title": doing.title.unwrap_or_default(), "kind": word(kind), "request": name });
    let more = [
        ("paths", (!doing.paths.is_empty()).then(|| doing.paths.into_iter().collect())),
        ("command", doing.command.map(Value::String)),
        ("input", doing.input),
        ("sub_agent", asker.map(Value::String)),
    ];
    if let Some(object) = arguments.as_object_mut() {
        object.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    Ok((format!("acp__{server}__{}", word(judged)), arguments))
}

/// The command line that a terminal is to run. A command without arguments is a line already.
fn command_line(asked: &CreateTerminalRequest) -> String {
    let variables = asked.env.iter().map(|variable| format!("{}={}", variable.name, quoted(&variable.value)));
    let command = match asked.args.is_empty() {
        true => vec![asked.command.clone()],
        false => {
            std::iter::once(&asked.command).chain(&asked.args).map(|word| plain_or_quoted(word)).collect()
        }
    };
    variables.chain(command).collect::<Vec<_>>().join(" ")
}

/// A word as a person would write it, so that rules that people write fit.
pub(super) fn plain_or_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { quoted(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, params: Value) -> (String, Value) {
        let question = Question::read(method, json!(1), params, None).unwrap().unwrap();
        let doing = question.about().map(|call| Doing::of(&call.fields));
        question.call("zed", "q1", Path::new("/project"), doing, None).unwrap()
    }

    #[test]
    fn a_terminal_is_a_command_line_that_rules_can_read() {
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
    fn a_permission_shows_what_is_to_be_done() {
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
    fn a_command_is_one_whatever_the_agent_calls_it() {
        for kind in ["read", "think", "edit", "other"] {
            let told = json!({"toolCallId": "1", "kind": kind, "rawInput": {"command": "rm -rf ."}});
            let params = json!({"sessionId": "s", "toolCall": told, "options": []});
            let (tool, arguments) = call("session/request_permission", params);
            assert_eq!((tool.as_str(), &arguments["kind"]), ("acp__zed__execute", &kind.into()));
        }
        let bare = json!({"sessionId": "s", "toolCall": {"toolCallId": "1"}, "options": []});
        let question = Question::read("session/request_permission", json!(1), bare, None).unwrap().unwrap();
        let known = Doing { command: Some("rm x".to_owned()), ..Doing::default() };
        let asker = Some("Scout".to_owned());
        let (tool, arguments) =
            question.call("zed", "q1", Path::new("/project"), Some(known), asker).unwrap();
        assert_eq!((tool.as_str(), &arguments["command"]), ("acp__zed__execute", &"rm x".into()));
        assert_eq!(arguments["sub_agent"], "Scout");
        let known = Doing { is_too_much: true, ..Doing::default() };
        assert!(question.call("zed", "q1", Path::new("/project"), Some(known), None).is_err());
    }

    #[test]
    fn an_agent_is_never_told_to_remember_a_yes() {
        let options: Vec<PermissionOption> = serde_json::from_value(json!([
            {"optionId": "a", "name": "Always", "kind": "allow_always"},
            {"optionId": "n", "name": "No", "kind": "reject_once"},
        ]))
        .unwrap();
        let written = |kind| serde_json::to_value(chosen(&options, kind)).unwrap();
        assert_eq!(written(ALLOW), json!({"outcome": {"outcome": "cancelled"}}));
        assert_eq!(written(REJECT), json!({"outcome": {"outcome": "selected", "optionId": "n"}}));
    }
}
