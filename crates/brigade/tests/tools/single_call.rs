//! One call of a tool outside of a run, and the defaults of a tool.

use brigade::core::event::Effect;
use brigade::schemars::JsonSchema;
use brigade::{Tool, ToolContext, ToolOutput, Toolbox, Workspace};
use serde::Deserialize;
use serde_json::json;

/// Add two numbers.
/// Use it for sums.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "brigade::schemars")]
struct SumInput {
    /// First number
    a: i64,
    /// Second number, 0 by default
    #[serde(default)]
    b: i64,
}

struct Sum;

impl Tool for Sum {
    const NAME: &'static str = "sum";
    type Input = SumInput;

    async fn run(&self, input: SumInput, _context: &ToolContext) -> ToolOutput {
        ToolOutput::ok((input.a + input.b).to_string())
    }
}

#[tokio::test]
async fn call_converts_arguments_and_reports_invalid_ones() {
    let folder = tempfile::tempdir().unwrap();
    let context = ToolContext::standalone(&Workspace::open(folder.path()).unwrap());
    let tools = Toolbox::new().with(Sum);
    for (arguments, text) in [(json!({ "a": 1, "b": 2 }), "3"), (json!({ "a": 1, "b": null }), "1")] {
        let output = tools.call("sum", arguments, &context).await;
        assert_eq!((output.text.as_str(), output.is_error()), (text, false));
    }
    let invalid = tools.call("sum", json!({ "b": 2 }), &context).await;
    assert!(invalid.is_error() && invalid.text.as_str().contains("missing field `a`"), "{}", invalid.text);
    assert!(tools.call("product", json!({}), &context).await.is_error());
}

#[tokio::test]
async fn call_of_an_edit_tool_writes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let context = ToolContext::standalone(&Workspace::open(folder.path()).unwrap());
    let tools = Toolbox::standard();
    let arguments = json!({ "path": "notes/a.txt", "content": "tea" });
    let output = tools.call("write_file", arguments, &context).await;
    assert!(!output.is_error(), "{}", output.text);
    assert_eq!(std::fs::read_to_string(folder.path().join("notes/a.txt")).unwrap(), "tea");
    let outside = tools.call("write_file", json!({ "path": "../a.txt", "content": "tea" }), &context).await;
    assert!(outside.is_error(), "{}", outside.text);
}

#[test]
fn tool_without_declarations_is_opaque_and_described_by_its_input() {
    assert_eq!(Sum.effect(), Effect::Opaque);
    let tools = Toolbox::new().with(Sum);
    let spec = tools.get("sum").unwrap().spec();
    assert_eq!(spec.description, "Add two numbers.\nUse it for sums.");
    assert_eq!(spec.schema["properties"]["a"]["description"], "First number");
    assert!(spec.schema.get("description").is_none(), "the description is not sent twice");
}
