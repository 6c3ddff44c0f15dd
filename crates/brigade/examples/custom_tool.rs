//! A custom tool: a typed input whose doc comments the model reads, and a function that returns the result.

use std::borrow::Cow;
use std::error::Error;

use brigade::core::ToolOutput;
use brigade::core::event::Effect;
use brigade::model::script::Script;
use brigade::{Models, Runtime, Settings, Task, Tool, ToolContext, Toolbox, Workspace};

struct Celsius;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct CelsiusInput {
    /// The temperature in degrees Fahrenheit
    fahrenheit: f64,
}

impl Tool for Celsius {
    const NAME: &'static str = "celsius";
    type Input = CelsiusInput;

    fn description(&self) -> Cow<'static, str> {
        "Convert a temperature to degrees Celsius.".into()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

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
    let mut settings = Settings::new("script", Workspace::open(&std::env::temp_dir())?);
    settings.tools = Toolbox::new().with(Celsius);
    let runtime = Runtime::in_memory(settings, Models::default().with("script", Script::parse(SCRIPT)?));
    let result = runtime.start(Task::new("When does water boil?")).await?.await?;
    assert_eq!(result.outcome.text.as_str(), "Water boils at 100.0 degrees Celsius.");
    Ok(())
}
