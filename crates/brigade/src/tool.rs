//! Tools: what agents can do beside talking and delegating.
//!
//! A tool that changes nothing or does something opaque implements [`Tool`]. A tool that changes one file implements
//! [`EditTool`]: it only says what the file is to become, and the driver records that intent before it writes. The
//! doc comments of a tool's input are what the model reads.

mod files;
pub mod memory;
mod read;
mod remote_loan;
mod search;
mod seen;
mod shell;
pub(crate) mod skill;
mod web;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_core::event::{ChangedLines, Effect};
use brigade_core::grant::{Access, Authority};
use brigade_core::message::Category;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{CallId, Extent, Hash, RemoteContext, SessionId, ToolOutput, ToolSpec};
use brigade_sandbox::GuardCommand;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use files::escape_controls;
pub use files::{FileError, Files, LoadedFile, Workspace};
pub use memory::{Memory, MemoryError};
pub(crate) use read::show_file;
pub use read::{ListDir, ReadFile};
pub use remote_loan::RemoteLoan;
pub use search::{Glob, Grep};
pub use seen::SeenSlot;
pub use shell::Shell;
pub use web::{SearchEngine, SearchError, WebFetch, WebSearch, WebSettings};
pub use write::{EditFile, WriteFile};

/// A tool.
///
/// # Contract
///
/// * `run` may be dropped at any moment; what it started must end with it.
/// * Failure is an output in words for the model, never a panic.
/// * A tool whose [`Effect`] is `Pure` changes nothing outside itself: after a crash it runs again.
/// * Files are reached through [`ToolContext::files`] only.
/// * A tool that shows a file to the agent puts it into [`ToolContext::seen`]; otherwise the agent cannot change it.
pub trait Tool: Send + Sync + 'static {
    /// The name that models call and rules match: lower-case letters, digits and `_`.
    const NAME: &'static str;
    /// The arguments.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// What the tool does and when to use it, for the model.
    fn description(&self) -> Cow<'static, str>;

    /// What kind of work it is.
    fn category(&self) -> Category {
        Category::Other
    }

    /// What running it twice would mean.
    fn effect(&self) -> Effect;

    /// Whether it reaches the network: an agent that may not do so is not offered it.
    fn network(&self) -> bool {
        false
    }

    /// What permission rules look at.
    fn subject<'a>(&self, _input: &'a Self::Input) -> Subject<'a> {
        Subject::Nothing
    }

    /// Does the work.
    fn run(&self, input: Self::Input, context: &ToolContext) -> impl Future<Output = ToolOutput> + Send;
}

/// A tool that changes one file of the workspace.
pub trait EditTool: Send + Sync + 'static {
    /// The name that models call and rules match.
    const NAME: &'static str;
    /// The arguments.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// What the tool does and when to use it, for the model.
    fn description(&self) -> Cow<'static, str>;

    /// The file that it changes, as permission rules see it.
    fn path<'a>(&self, input: &'a Self::Input) -> &'a str;

    /// Says what the file is to become. Nothing is written yet.
    fn plan(&self, input: Self::Input, files: &Files) -> Result<EditPlan, ToolOutput>;
}

/// What a file is to become.
#[derive(Debug, Clone)]
pub struct EditPlan {
    /// The file, relative to the workspace.
    pub path: String,
    /// The hash of what it holds now; none where it does not exist.
    pub before: Option<Hash>,
    /// How much of what it holds now the agent has to have seen.
    pub needs: Extent,
    /// What it is to hold.
    pub content: Vec<u8>,
    /// The lines that this adds and removes, if they were counted.
    pub lines: Option<ChangedLines>,
    /// What the model reads when it is done.
    pub report: String,
}

/// What a running call can reach.
#[derive(Clone)]
pub struct ToolContext {
    /// The session that called.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// The files of the workspace, as far as this agent may see them.
    pub files: Files,
    /// What `shell` needs.
    pub shell: Option<ShellSettings>,
    /// Becomes true when the call is to stop; a tool that is dropped need not look.
    pub stop: watch::Receiver<bool>,
    /// Where the session stands and what is left for it, for tools that hand work on.
    pub remote_context: RemoteContext,
    /// What the call is lent for work that it hands on.
    pub loan: RemoteLoan,
    /// Who is told how far the call is.
    pub progress: ProgressReporter,
    /// Takes the file that the call shows to its agent.
    pub seen: SeenSlot,
}

/// Tells whoever watches how far a call is. Nothing of it is kept.
#[derive(Clone, Default)]
pub struct ProgressReporter(Option<Arc<dyn Fn(String) + Send + Sync>>);

impl ProgressReporter {
    /// Tells this. It is called from the task of the call and must not wait.
    pub fn new(report: impl Fn(String) + Send + Sync + 'static) -> ProgressReporter {
        ProgressReporter(Some(Arc::new(report)))
    }

    /// Says how far the call is, in a short line.
    pub fn report(&self, line: String) {
        if let Some(report) = &self.0 {
            report(line);
        }
    }
}

/// How a tool differs from what it was when it was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// Tells this change from others.
    pub id: Hash,
    /// All that was said about it when it was approved.
    pub before: Arc<str>,
    /// All that is said about it now.
    pub current: Arc<str>,
}

impl ToolChange {
    /// How much of a difference a person is shown.
    const MAX_DIFF_BYTES: usize = 16 << 10;
    /// How long the shortest difference is looked for. After that a longer one does.
    const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

    /// What is different, line by line, for a person. It is worked out anew each time.
    pub fn diff(&self) -> String {
        let mut config = similar::TextDiff::configure();
        let lines = config.timeout(ToolChange::DIFF_TIMEOUT).diff_lines(&*self.before, &*self.current);
        let mut text = lines.unified_diff().context_radius(2).to_string();
        if text.len() > ToolChange::MAX_DIFF_BYTES {
            let all = text.len();
            text.truncate(text.floor_char_boundary(ToolChange::MAX_DIFF_BYTES));
            text.push_str(&format!("\n(… {} bytes left out …)", all - text.len()));
        }
        text
    }
}

impl ToolContext {
    /// Waits until the call is to stop.
    pub(crate) async fn stop_requested(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }
}

/// How commands are run.
#[derive(Debug, Clone)]
pub struct ShellSettings {
    /// The program that guards them.
    pub guard: GuardCommand,
    /// The folder that they start in.
    pub directory: PathBuf,
    /// Exactly the environment that they get.
    pub environment: Vec<(String, String)>,
    /// How long one may take.
    pub time_limit: Duration,
    /// How much of its output is kept.
    pub output_limit: usize,
}

/// A tool with its types erased. Tools whose arguments are only known at run time implement it directly.
pub trait AnyTool: Send + Sync + 'static {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What running it twice would mean.
    fn effect(&self) -> Effect;

    /// Whether it reaches the network: an agent that may not do so is not offered it.
    fn network(&self) -> bool {
        false
    }

    /// Whether another Brigade does the work. It is lent a part of the budget, and says what it used. Such a tool is
    /// [`Effect::Opaque`]: a loan of which nobody knows what became is not made again.
    fn delegates_remotely(&self) -> bool {
        false
    }

    /// How it differs from what was approved. A call is then only made after a person has seen the difference.
    fn change(&self) -> Option<ToolChange> {
        None
    }

    /// A person has seen the change and wants the tool as it is now.
    fn accept(&self, _change: &ToolChange) {}

    /// What the call would do, for the permission rules. Arguments that do not fit are an output for the model.
    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput>;

    /// Does the work; not called for a tool whose effect is [`Effect::Edit`].
    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput>;

    /// Says what a file is to become; only called for a tool whose effect is [`Effect::Edit`].
    fn plan(&self, arguments: Value, files: &Files) -> Result<EditPlan, ToolOutput>;
}

/// The tools that a runtime has, by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn AnyTool>>,
}

impl Toolbox {
    /// No tools.
    pub fn new() -> Toolbox {
        Toolbox::default()
    }

    /// The tools that come with the library. `shell` works only where the runtime has [`ShellSettings`].
    pub fn standard() -> Toolbox {
        Toolbox::new()
            .with(ReadFile)
            .with(ListDir)
            .with(Grep)
            .with(Glob)
            .with(Shell)
            .with(Echo)
            .with_edit(WriteFile)
            .with_edit(EditFile)
    }

    /// Adds a tool; one of the same name is replaced.
    pub fn with<T: Tool>(self, tool: T) -> Toolbox {
        self.with_any(Arc::new(Erased::new(tool)))
    }

    /// Adds a tool that changes a file.
    pub fn with_edit<T: EditTool>(self, tool: T) -> Toolbox {
        self.with_any(Arc::new(ErasedEdit::new(tool)))
    }

    /// Adds a tool whose types are erased already.
    pub fn with_any(mut self, tool: Arc<dyn AnyTool>) -> Toolbox {
        self.tools.insert(tool.spec().name.clone(), tool);
        self
    }

    /// Takes a tool away.
    pub fn without(mut self, name: &str) -> Toolbox {
        self.tools.remove(name);
        self
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.get(name)
    }

    /// All tools, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn AnyTool>> {
        self.tools.values()
    }

    /// What a model is told about the tools that an authority has.
    pub fn specs(&self, authority: &Authority) -> Vec<ToolSpec> {
        let usable = |name: &str, tool: &dyn AnyTool| {
            authority.tools.contains(name) && (authority.network == Access::Allowed || !tool.network())
        };
        let offered = self.tools.iter().filter(|(name, tool)| usable(name, tool.as_ref()));
        offered.map(|(_, tool)| tool.spec().clone()).collect()
    }
}

/// Says back what it is told.
struct Echo;

/// The arguments of `echo`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EchoInput {
    /// What to say back
    text: String,
}

impl Tool for Echo {
    const NAME: &'static str = "echo";
    type Input = EchoInput;

    fn description(&self) -> Cow<'static, str> {
        "Return the given text unchanged.".into()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, input: EchoInput, _context: &ToolContext) -> ToolOutput {
        ToolOutput::ok(input.text)
    }
}

struct Erased<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: Tool> Erased<T> {
    fn new(tool: T) -> Erased<T> {
        let spec = spec::<T::Input>(T::NAME, tool.description(), tool.category());
        Erased { tool, spec }
    }
}

fn spec<I: JsonSchema>(name: &str, description: Cow<'static, str>, category: Category) -> ToolSpec {
    let mut schema =
        schemars::generate::SchemaSettings::draft07().into_generator().into_root_schema_for::<I>().to_value();
    if let Some(object) = schema.as_object_mut() {
        // They cost tokens and tell the model nothing.
        object.remove("$schema");
        object.remove("title");
        object.remove("description");
    }
    ToolSpec { name: name.to_owned(), description: description.into_owned(), schema, category }
}

fn parse_input<I: DeserializeOwned>(spec: &ToolSpec, mut arguments: Value) -> Result<I, ToolOutput> {
    drop_optional_nulls(&mut arguments, &spec.schema);
    let name = &spec.name;
    serde_json::from_value(arguments)
        .map_err(|cause| ToolOutput::error(format!("The arguments of {name} do not fit: {cause}")))
}

/// Removes the arguments that are null and optional: null counts as absent.
fn drop_optional_nulls(arguments: &mut Value, schema: &Value) {
    drop_nulls(arguments, schema, |_| true);
}

/// Removes the arguments that are null although the schema asks for another type, and that are optional. For a tool of
/// another program null may have a meaning of its own.
pub(crate) fn drop_invalid_nulls(arguments: &mut Value, schema: &Value) {
    drop_nulls(arguments, schema, |property| match property.get("type") {
        Some(Value::String(kind)) => kind != "null",
        Some(Value::Array(kinds)) => !kinds.iter().any(|kind| kind == "null"),
        _ => false,
    });
}

fn drop_nulls(arguments: &mut Value, schema: &Value, is_absence: impl Fn(&Value) -> bool) {
    let Some(arguments) = arguments.as_object_mut() else { return };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|required| required.iter().any(|key| key == name));
    let property = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
    let counts_as_absent =
        |name: &str| property(name).is_some_and(|property| !is_required(name) && is_absence(property));
    arguments.retain(|name, value| !value.is_null() || !counts_as_absent(name));
}

fn kind(effect: Effect) -> ActionKind {
    match effect {
        Effect::Pure => ActionKind::Pure,
        Effect::Edit => ActionKind::Edit,
        Effect::Keyed | Effect::Opaque => ActionKind::Other,
    }
}

impl<T: Tool> AnyTool for Erased<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        self.tool.effect()
    }

    fn network(&self) -> bool {
        self.tool.network()
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let input: T::Input = parse_input(&self.spec, arguments.clone())?;
        let subject = self.tool.subject(&input);
        judge(&Action { tool: T::NAME, kind: kind(self.tool.effect()), subject });
        Ok(())
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        match parse_input(&self.spec, arguments) {
            Ok(input) => Box::pin(self.tool.run(input, context)),
            Err(output) => Box::pin(std::future::ready(output)),
        }
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(ToolOutput::error(format!("{} does not change a file", T::NAME)))
    }
}

struct ErasedEdit<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: EditTool> ErasedEdit<T> {
    fn new(tool: T) -> ErasedEdit<T> {
        let spec = spec::<T::Input>(T::NAME, tool.description(), Category::Edit);
        ErasedEdit { tool, spec }
    }
}

impl<T: EditTool> AnyTool for ErasedEdit<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Edit
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let input: T::Input = parse_input(&self.spec, arguments.clone())?;
        judge(&Action {
            tool: T::NAME,
            kind: ActionKind::Edit,
            subject: Subject::Path(self.tool.path(&input)),
        });
        Ok(())
    }

    fn run<'a>(&'a self, _arguments: Value, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::error(format!("{} is written by the runtime", T::NAME))))
    }

    fn plan(&self, arguments: Value, files: &Files) -> Result<EditPlan, ToolOutput> {
        self.tool.plan(parse_input(&self.spec, arguments)?, files)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drop_invalid_nulls_keeps_nulls_that_the_schema_allows() {
        let schema = json!({
            "properties": {
                "text": { "type": "string" },
                "count": { "type": ["integer", "null"] },
                "any": {},
                "needed": { "type": "string" }
            },
            "required": ["needed"]
        });
        let mut arguments =
            json!({ "text": null, "count": null, "any": null, "needed": null, "other": null });
        drop_invalid_nulls(&mut arguments, &schema);
        assert_eq!(arguments, json!({ "count": null, "any": null, "needed": null, "other": null }));
    }
}
