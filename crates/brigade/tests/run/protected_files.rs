//! Protected files in a run: the decision, the approval, and tools that do not declare what they access.

use std::borrow::Cow;

use brigade::Effect;
use brigade::core::permission::{Mode, Permissions};
use brigade::tool::{EditPlan, EditTool, Files};
use brigade::{Tool, ToolContext, ToolOutput};
use brigade_testing::{Script, reply};
use serde_json::json;

use crate::run::support::Harness;

/// The arguments of both tools.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoteInput {
    /// Name of a note
    name: String,
}

/// Tool that reads a file and does not declare it.
struct ReadNote;

impl Tool for ReadNote {
    const NAME: &'static str = "read_note";
    type Input = NoteInput;

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, input: NoteInput, context: &ToolContext) -> ToolOutput {
        match context.files.read(&input.name, 1 << 20) {
            Ok(content) => ToolOutput::ok(String::from_utf8_lossy(&content).into_owned()),
            Err(error) => error.into(),
        }
    }
}

/// Tool that declares one file and changes another one.
struct WriteNote;

impl EditTool for WriteNote {
    const NAME: &'static str = "write_note";
    type Input = NoteInput;

    fn description(&self) -> Cow<'static, str> {
        "Write a note.".into()
    }

    fn path<'a>(&self, _input: &'a NoteInput) -> &'a str {
        "notes"
    }

    fn plan(&self, input: NoteInput, files: &Files) -> Result<EditPlan, ToolOutput> {
        let before = files.hash(&input.name)?;
        let (content, report) = (b"written".to_vec(), "written".to_owned());
        Ok(EditPlan {
            path: input.name,
            before,
            needs: brigade::core::Extent::Part,
            content,
            lines: None,
            report,
        })
    }
}

/// Answers of a run that makes these calls in mode `auto`, with the files that it leaves.
async fn answers(
    calls: &[(&str, serde_json::Value)],
    rules: &'static [&'static str],
) -> (Vec<String>, Harness) {
    let turn = calls.iter().fold(reply(""), |turn, (tool, arguments)| turn.call(tool, arguments.clone()));
    let harness = Harness::with(Script::new().turns([turn, reply("done")]), |settings| {
        let allow = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        settings.permissions = Permissions { mode: Mode::Auto, allow, ..Permissions::default() };
        settings.tools = settings.tools.clone().with(ReadNote).with_edit(WriteNote);
    });
    std::fs::write(harness.path().join(".env"), "CANARY").unwrap();
    let result = harness.run().await;
    (harness.answers(&result.session).await, harness)
}

#[tokio::test]
async fn tool_that_does_not_declare_a_protected_file_cannot_access_it() {
    let calls = [
        ("read_note", json!({ "name": ".env" })),
        ("write_note", json!({ "name": "AGENTS.md" })),
        ("write_note", json!({ "name": ".git/config" })),
        ("write_note", json!({ "name": "other" })),
    ];
    for rules in [&[][..], &["read_note", "write_note", "read_file(.env)", "write_note(AGENTS.md)"]] {
        let (answers, harness) = answers(&calls, rules).await;
        let granted = !rules.is_empty();
        assert_eq!(answers[0].contains("CANARY"), granted, "{answers:?}");
        for answer in &answers[1..3] {
            assert!(answer.contains("cannot request approval for it"), "{answers:?}");
        }
        assert_eq!(answers[3], "written");
        assert!(!harness.path().join("AGENTS.md").exists() && !harness.path().join(".git").exists());
    }
}

#[tokio::test]
async fn refusal_of_a_protected_file_names_the_reason_and_the_rule() {
    let write = |path: &str| ("write_file", json!({ "path": path, "content": "x" }));
    let calls = [write("AGENTS.md"), write("sub/.git/hooks/a"), ("read_file", json!({ "path": ".env" }))];
    let (answers, _) = answers(&calls, &["write_file"]).await;
    insta::assert_snapshot!(answers.join("\n"));
}
