//! Tools: the actions available to agents besides messages and delegation.
//!
//! A tool that changes nothing, or whose effects are opaque, implements [`Tool`]. A tool that changes one file
//! implements [`EditTool`]: it only plans the new content, and the driver records that intent before it writes. The
//! doc comments of a tool's input are what the model reads.

// Without some features, parts that only their tools use are left over.
#![cfg_attr(
    not(all(feature = "memory", feature = "search", feature = "skills", feature = "web")),
    allow(dead_code, unused_imports)
)]

mod files;
mod host_asker;
#[cfg(feature = "memory")]
pub mod memory;
mod read;
mod remote_loan;
#[cfg(feature = "search")]
mod search;
mod seen;
mod shell;
mod single_call;
pub mod skills;
#[cfg(feature = "web")]
mod web;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_base::sandbox::CommandSandbox;
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

pub use files::escape_controls;
pub use files::{FileError, FileGuard, Files, LoadedFile, Workspace};
pub use host_asker::{HostAsker, OpenRequest};
#[cfg(feature = "memory")]
pub use memory::{Memory, MemoryError};
pub use read::{ListDir, ReadFile, show_file};
pub use remote_loan::RemoteLoan;
#[cfg(feature = "search")]
pub use search::{Glob, Grep};
pub use seen::SeenSlot;
pub use shell::{SandboxedShell, Shell};
#[cfg(feature = "web")]
pub use web::{SearchEngine, SearchError, WebFetch, WebSearch, WebSettings};
pub use write::{EditFile, WriteFile};

/// A tool that an agent can call.
///
/// ```
/// # mod brigade { pub use {brigade_core::ToolOutput, brigade_tools::*, schemars}; }
/// use brigade::schemars::JsonSchema;
/// use brigade::{Tool, ToolContext, ToolOutput};
/// use serde::Deserialize;
///
/// struct Celsius;
///
/// /// Convert a temperature to degrees Celsius.
/// #[derive(Deserialize, JsonSchema)]
/// #[schemars(crate = "brigade::schemars")]
/// struct CelsiusInput {
///     /// Temperature in degrees Fahrenheit
///     fahrenheit: f64,
/// }
///
/// impl Tool for Celsius {
///     const NAME: &'static str = "celsius";
///     type Input = CelsiusInput;
///
///     async fn run(&self, input: CelsiusInput, _context: &ToolContext) -> ToolOutput {
///         ToolOutput::ok(format!("{:.1} °C", (input.fahrenheit - 32.0) / 1.8))
///     }
/// }
/// ```
///
/// The doc comments of the input are what the model reads. [`Toolbox::call`] runs one call in a unit test.
///
/// # Contract
///
/// * `run` may be dropped at any moment; whatever it started must end with it.
/// * A failure is an output with a text for the model, never a panic.
/// * A tool whose [`Effect`] is `Pure` changes nothing outside itself: it runs again after a crash.
/// * Files are accessed only through [`ToolContext::files`]. A protected file, such as `.env`, can be accessed only if it is the
///   [`subject`](Tool::subject) of the call.
/// * A tool that shows a file to the agent puts it into [`ToolContext::seen`]; otherwise the agent cannot change
///   the file.
pub trait Tool: Send + Sync + 'static {
    /// Name that models call and rules match: lower-case letters, digits and `_`.
    const NAME: &'static str;
    /// Arguments of the tool.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Describes to the model what the tool does and when to use it. The default is the doc comment of the input type.
    fn description(&self) -> Cow<'static, str> {
        input_description::<Self::Input>().into()
    }

    /// Returns the category of the tool.
    fn category(&self) -> Category {
        Category::Other
    }

    /// Returns the effect of a call, which decides whether it may run twice and whether it requires approval. The
    /// default is [`Effect::Opaque`]: the call requires approval unless a rule or [`Mode::Auto`] allows it, and it never
    /// runs twice.
    ///
    /// [`Mode::Auto`]: brigade_core::permission::Mode::Auto
    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    /// Whether the tool uses the network. It is not offered to agents without network access.
    fn network(&self) -> bool {
        false
    }

    /// Whether everything that the tool does happens in a command that it starts with [`ToolContext::sandbox`]. Then a call
    /// needs no approval in mode `edit` if the agent has a sandbox.
    fn is_sandboxed(&self) -> bool {
        false
    }

    /// Whether a call needs more access than the sandbox gives. It always requires approval.
    fn leaves_sandbox(&self, _input: &Self::Input) -> bool {
        false
    }

    /// Returns the part of the arguments that permission rules match. It decides what the specifier of a rule for this
    /// tool is: a path pattern, a command or a host.
    fn subject<'a>(&self, _input: &'a Self::Input) -> Subject<'a> {
        Subject::Nothing
    }

    /// Describes a call to the user, for example as "Read src/lib.rs". The default is the name of the tool.
    fn title(&self, _input: &Self::Input) -> Option<CallTitle> {
        None
    }

    /// Runs the tool.
    fn run(&self, input: Self::Input, context: &ToolContext) -> impl Future<Output = ToolOutput> + Send;
}

/// A tool that changes one file of the workspace.
pub trait EditTool: Send + Sync + 'static {
    /// Name that models call and rules match.
    const NAME: &'static str;
    /// Arguments of the tool.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Describes to the model what the tool does and when to use it.
    fn description(&self) -> Cow<'static, str>;

    /// Verb in the title of a call, before the path.
    const VERB: &'static str = "Edit";

    /// Returns the path of the file that the tool changes, for permission rules.
    fn path<'a>(&self, input: &'a Self::Input) -> &'a str;

    /// Plans the new content of the file. Nothing is written yet.
    fn plan(&self, input: Self::Input, files: &Files) -> Result<EditPlan, ToolOutput>;
}

/// Title of a call: a verb and its object, such as "Read" and "src/lib.rs".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTitle {
    /// Imperative with a capital letter.
    pub verb: &'static str,
    /// Argument of the call, as the model wrote it.
    pub object: String,
}

impl CallTitle {
    /// Creates a title.
    pub fn new(verb: &'static str, object: impl Into<String>) -> CallTitle {
        CallTitle { verb, object: object.into() }
    }
}

/// Planned change of one file.
#[derive(Debug, Clone)]
pub struct EditPlan {
    /// Path of the file, relative to the workspace.
    pub path: String,
    /// Hash of the current content; `None` if the file does not exist.
    pub before: Option<Hash>,
    /// Part of the current content that the agent must have seen.
    pub needs: Extent,
    /// New content.
    pub content: Vec<u8>,
    /// Number of added and removed lines, if they were counted.
    pub lines: Option<ChangedLines>,
    /// Result for the model once the change is made.
    pub report: String,
}

/// Context of a running call.
#[derive(Clone)]
pub struct ToolContext {
    /// Session that made the call.
    pub session: SessionId,
    /// Id of the call.
    pub call: CallId,
    /// Files of the workspace that this agent may access.
    pub files: Files,
    /// Settings of `shell`.
    pub shell: Option<ShellSettings>,
    /// Sandbox of the commands that the call starts.
    pub sandbox: CommandSandbox,
    /// Asks the user about hosts that no setting allows.
    pub hosts: HostAsker,
    /// Becomes true when the call should stop; a tool that is dropped need not check it.
    pub stop: watch::Receiver<bool>,
    /// Limits and lineage of the session, for tools that delegate work to another process.
    pub remote_context: RemoteContext,
    /// Budget that the call may pass on to remote work.
    pub loan: RemoteLoan,
    /// Reporter of the call's progress.
    pub progress: ProgressReporter,
    /// Slot for the file that the call shows to its agent.
    pub seen: SeenSlot,
}

/// Reports the progress of a call to subscribers. Progress is not stored.
#[derive(Clone, Default)]
pub struct ProgressReporter(Option<Arc<dyn Fn(String) + Send + Sync>>);

impl ProgressReporter {
    /// Creates a reporter that calls `report`. It is called from the task of the call and must not block.
    pub fn new(report: impl Fn(String) + Send + Sync + 'static) -> ProgressReporter {
        ProgressReporter(Some(Arc::new(report)))
    }

    /// Reports progress as a short line.
    pub fn report(&self, line: String) {
        if let Some(report) = &self.0 {
            report(line);
        }
    }
}

/// Difference between a tool's current definition and the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// Identifies this change.
    pub id: Hash,
    /// Complete definition when it was approved.
    pub before: Arc<str>,
    /// Complete current definition.
    pub current: Arc<str>,
}

impl ToolChange {
    /// Maximum size of a diff that is shown to the user.
    const MAX_DIFF_BYTES: usize = 16 << 10;
    /// Time limit of the search for the shortest diff; after it a longer diff is used.
    const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

    /// Computes a line diff for the user. The diff is not cached.
    pub fn diff(&self) -> String {
        let mut config = similar::TextDiff::configure();
        let lines = config.timeout(ToolChange::DIFF_TIMEOUT).diff_lines(&*self.before, &*self.current);
        let mut text = lines.unified_diff().context_radius(2).to_string();
        if text.len() > ToolChange::MAX_DIFF_BYTES {
            let all = text.len();
            text.truncate(text.floor_char_boundary(ToolChange::MAX_DIFF_BYTES));
            text.push_str(&format!("\n(… {} bytes omitted …)", all - text.len()));
        }
        text
    }
}

impl ToolContext {
    /// Asks the user whether the call may connect to a host, and waits for the answer. An IPv6 address has brackets. The
    /// request is denied if the user cannot be asked, and when its deadline passes. An answer holds for the rest of the
    /// call.
    pub async fn ask_host(&self, host: &str, port: u16) -> bool {
        self.hosts.ask(host, port).await
    }

    /// Waits until the call should stop.
    pub async fn stop_requested(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| *stop).await.is_err() {
            // The sender is gone, so no stop request can arrive.
            std::future::pending::<()>().await;
        }
    }
}

/// Settings for running commands.
#[derive(Debug, Clone)]
pub struct ShellSettings {
    /// Guard program that runs the commands.
    pub guard: GuardCommand,
    /// Working directory of the commands.
    pub directory: PathBuf,
    /// Complete environment of the commands; nothing is inherited.
    pub environment: Vec<(String, String)>,
    /// Maximum duration of a command.
    pub time_limit: Duration,
    /// Maximum number of output bytes that are kept.
    pub output_limit: usize,
}

/// Type-erased tool. Tools whose arguments are only known at run time implement it directly.
pub trait AnyTool: Send + Sync + 'static {
    /// Returns the name, description and schema for the model.
    fn spec(&self) -> &ToolSpec;

    /// Returns the effect of a call, which decides whether it may run twice.
    fn effect(&self) -> Effect;

    /// Whether the tool uses the network. It is not offered to agents without network access.
    fn network(&self) -> bool {
        false
    }

    /// Whether the tool acts only through commands in a sandbox.
    fn is_sandboxed(&self) -> bool {
        false
    }

    /// Whether another Brigade process does the work. The call passes on a part of the budget, and the remote side
    /// reports its usage. Such a tool is [`Effect::Opaque`]: if the outcome of a loan is unknown, the call is not
    /// repeated.
    fn delegates_remotely(&self) -> bool {
        false
    }

    /// Returns the difference from the approved definition. If there is one, a call requires that the user has seen
    /// it.
    fn change(&self) -> Option<ToolChange> {
        None
    }

    /// Accepts a change that the user has seen and approved.
    fn accept(&self, _change: &ToolChange) {}

    /// Reports the actions of a call to the permission rules. Invalid arguments are returned as an output for the
    /// model.
    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput>;

    /// Describes a call to the user. `None` if the arguments are invalid, or if the name of the tool says enough.
    fn title(&self, _arguments: &Value) -> Option<CallTitle> {
        None
    }

    /// Runs the tool; not called if its effect is [`Effect::Edit`].
    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput>;

    /// Plans the new content of a file; only called if the effect is [`Effect::Edit`].
    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(ToolOutput::error(format!("`{}` does not edit files", self.spec().name)))
    }
}

/// Tools of a runtime, by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn AnyTool>>,
}

impl Toolbox {
    /// Creates a toolbox without tools.
    pub fn new() -> Toolbox {
        Toolbox::default()
    }

    /// Creates a toolbox with the built-in tools. `shell` works only if the runtime has [`ShellSettings`].
    pub fn standard() -> Toolbox {
        let tools = Toolbox::new()
            .with(ReadFile)
            .with(ListDir)
            .with(Shell)
            .with(Echo)
            .with_edit(WriteFile)
            .with_edit(EditFile);
        #[cfg(feature = "search")]
        let tools = tools.with(Grep).with(Glob);
        tools
    }

    /// Adds a tool and replaces one of the same name.
    pub fn with<T: Tool>(self, tool: T) -> Toolbox {
        self.with_any(Arc::new(Erased::new(tool)))
    }

    /// Adds a tool that changes a file.
    pub fn with_edit<T: EditTool>(self, tool: T) -> Toolbox {
        self.with_any(Arc::new(ErasedEdit::new(tool)))
    }

    /// Adds a tool that is already type-erased.
    pub fn with_any(mut self, tool: Arc<dyn AnyTool>) -> Toolbox {
        self.tools.insert(tool.spec().name.clone(), tool);
        self
    }

    /// Adds the tools of connected servers.
    pub fn with_servers(self, servers: &impl AsRef<[Arc<dyn AnyTool>]>) -> Toolbox {
        servers.as_ref().iter().cloned().fold(self, Toolbox::with_any)
    }

    /// Removes a tool.
    pub fn without(mut self, name: &str) -> Toolbox {
        self.tools.remove(name);
        self
    }

    /// Returns the tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.get(name)
    }

    /// Iterates over all tools by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn AnyTool>> {
        self.tools.values()
    }

    /// Returns the specs of the tools that an authority includes, for the model.
    pub fn specs(&self, authority: &Authority) -> Vec<ToolSpec> {
        let usable = |name: &str, tool: &dyn AnyTool| {
            authority.tools.contains(name) && (authority.network == Access::Allowed || !tool.network())
        };
        let offered = self.tools.iter().filter(|(name, tool)| usable(name, tool.as_ref()));
        offered.map(|(_, tool)| tool.spec().clone()).collect()
    }
}

/// Name of a tool that returns its argument. Every agent can call it, as scripts of [`brigade_base::model::script`] do, but it is
/// offered only to an agent whose definition names it.
pub const ECHO: &str = "echo";

/// Returns its argument.
struct Echo;

/// The arguments of `echo`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EchoInput {
    /// Text to return
    text: String,
}

impl Tool for Echo {
    const NAME: &'static str = ECHO;
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

fn input_schema<I: JsonSchema>() -> Value {
    schemars::generate::SchemaSettings::draft07().into_generator().into_root_schema_for::<I>().to_value()
}

/// Doc comment of an input type.
fn input_description<I: JsonSchema>() -> String {
    let schema = input_schema::<I>();
    schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn spec<I: JsonSchema>(name: &str, description: Cow<'static, str>, category: Category) -> ToolSpec {
    let mut schema = input_schema::<I>();
    shorten_schema(&mut schema);
    ToolSpec { name: name.to_owned(), description: description.into_owned(), schema, category }
}

/// Removes the keys of a schema that cost tokens and tell the model nothing. Null counts as absent and unknown arguments
/// are refused, whether the schema says so or not.
fn shorten_schema(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for key in ["$schema", "title", "description", "additionalProperties"] {
        object.remove(key);
    }
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        property.remove("format");
        property.retain(|key, value| match key.as_str() {
            "default" => !matches!(value, Value::Null | Value::Bool(false)),
            "minimum" => value.as_u64() != Some(0),
            _ => true,
        });
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|kind| kind != "null");
            if let [kind] = types.as_slice() {
                let kind = kind.clone();
                property.insert("type".to_owned(), kind);
            }
        }
    }
}

fn parse_input<I: DeserializeOwned>(spec: &ToolSpec, mut arguments: Value) -> Result<I, ToolOutput> {
    // A null counts as absent.
    drop_nulls(&mut arguments, &spec.schema, |_| true);
    let name = &spec.name;
    serde_json::from_value(arguments)
        .map_err(|cause| ToolOutput::error(format!("Invalid arguments for {name}: {cause}")))
}

/// Parses the arguments that a tool knows. External agents add others to calls of the same name.
fn parse_known<I: DeserializeOwned>(spec: &ToolSpec, arguments: &Value) -> Option<I> {
    parse_input(spec, known_arguments(spec, arguments)?).ok()
}

/// Returns the arguments that a tool knows, if they are an object.
pub fn known_arguments(spec: &ToolSpec, arguments: &Value) -> Option<Value> {
    let properties = spec.schema.get("properties")?;
    let known = arguments.as_object()?.iter().filter(|(name, _)| properties.get(name).is_some());
    Some(Value::Object(known.map(|(name, value)| (name.clone(), value.clone())).collect()))
}

/// Removes optional arguments that are null although the schema requires another type. Other null values stay,
/// because null may have a meaning for a tool of another program.
pub fn drop_invalid_nulls(arguments: &mut Value, schema: &Value) {
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

    fn is_sandboxed(&self) -> bool {
        self.tool.is_sandboxed()
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let input: T::Input = parse_input(&self.spec, arguments.clone())?;
        let subject = self.tool.subject(&input);
        let kind = match self.tool.leaves_sandbox(&input) {
            true => ActionKind::Unconfined,
            false => kind(self.tool.effect()),
        };
        judge(&Action { tool: T::NAME, kind, subject });
        Ok(())
    }

    fn title(&self, arguments: &Value) -> Option<CallTitle> {
        self.tool.title(&parse_known(&self.spec, arguments)?)
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        match parse_input(&self.spec, arguments) {
            Ok(input) => Box::pin(self.tool.run(input, context)),
            Err(output) => Box::pin(std::future::ready(output)),
        }
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

    fn title(&self, arguments: &Value) -> Option<CallTitle> {
        let input: T::Input = parse_known(&self.spec, arguments)?;
        Some(CallTitle::new(T::VERB, self.tool.path(&input)))
    }

    fn run<'a>(&'a self, _arguments: Value, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::error(format!(
            "`{}` cannot be run directly; use `plan`",
            T::NAME
        ))))
    }

    fn plan(&self, arguments: Value, files: &Files) -> Result<EditPlan, ToolOutput> {
        self.tool.plan(parse_input(&self.spec, arguments)?, files)
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::tool_names::Specifier;
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_tools_have_the_subjects_that_rules_expect() {
        let arguments = |tool: &dyn AnyTool| match tool.spec().name.as_str() {
            "write_file" => json!({ "path": "a", "content": "" }),
            "edit_file" => json!({ "path": "a", "old": "b", "new": "c" }),
            "shell" => json!({ "command": "ls" }),
            "grep" | "glob" => json!({ "pattern": "a" }),
            "echo" => json!({ "text": "a" }),
            _ => json!({ "path": "a" }),
        };
        for tool in Toolbox::standard().iter().filter(|tool| tool.spec().name != ECHO) {
            let mut kinds = Vec::new();
            let judge = &mut |action: &Action<'_>| {
                kinds.push(match action.subject {
                    Subject::Path(_) => Specifier::Path,
                    Subject::Command(_) => Specifier::Command,
                    Subject::Host(_) => Specifier::Host,
                    Subject::Nothing => Specifier::None,
                });
            };
            assert!(tool.check(&arguments(tool.as_ref()), judge).is_ok());
            let expected = brigade_core::tool_names::specifier(&tool.spec().name);
            assert_eq!(kinds, expected.into_iter().collect::<Vec<_>>(), "{}", tool.spec().name);
        }
    }

    #[test]
    fn title_ignores_arguments_that_the_tool_does_not_know() {
        let tools = Toolbox::standard();
        let title = |tool: &str, arguments| tools.get(tool).and_then(|tool| tool.title(&arguments));
        let run = json!({ "command": "ls -l", "directory": "/tmp" });
        assert_eq!(title("shell", run), Some(CallTitle::new("Run", "ls -l")));
        assert_eq!(title("list_dir", json!({})), Some(CallTitle::new("List", ".")));
        assert_eq!(title("shell", json!({ "command": 7 })), None);
        assert_eq!(title("echo", json!({ "text": "a" })), None);
    }

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
