//! A tool of one's own: a typed input whose doc comments the model reads, and a function that returns the result.

use std::error::Error;

use brigade::model::script::Script;
use brigade::schemars::JsonSchema;
use brigade::{Brigade, Tool, ToolContext, ToolOutput, Toolbox, Workspace};
use serde::Deserialize;
use serde_json::json;

struct Celsius;

/// Convert a temperature to degrees Celsius.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "brigade::schemars")]
struct CelsiusInput {
    /// Temperature in degrees Fahrenheit
    fahrenheit: f64,
}

impl Tool for Celsius {
    const NAME: &'static str = "celsius";
    type Input = CelsiusInput;

    async fn run(&self, input: CelsiusInput, _context: &ToolContext) -> ToolOutput {
        ToolOutput::ok(format!("{:.1} degrees Celsius", (input.fahrenheit - 32.0) / 1.8))
    }
}

const SCRIPT: &str = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "celsius"
arguments = { fahrenheit = 212.0 }
[[reply]]
text = "Water boils at {result:0}."
"#;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;

    // One call of the tool alone, as in a unit test.
    let context = ToolContext::standalone(&Workspace::open(folder.path())?);
    let output = Toolbox::new().with(Celsius).call("celsius", json!({ "fahrenheit": 32 }), &context).await;
    assert_eq!(output.text.as_str(), "0.0 degrees Celsius");

    // The tool declares no effect, so its calls require approval. This rule gives it.
    let brigade = Brigade::builder()
        .custom_model("script", Script::parse(SCRIPT)?)
        .workspace(folder.path())
        .tool(Celsius)
        .allow("celsius")
        .build()?;
    let result = brigade.run("When does water boil?").await?;
    assert_eq!(result.text(), "Water boils at 100.0 degrees Celsius.");
    Ok(())
}
