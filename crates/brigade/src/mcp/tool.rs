//! A server's tool as a `Tool`.

use std::sync::Arc;

use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{ToolOutput, ToolSpec, usage_report};
use futures::future::BoxFuture;
use rmcp::model::Tool;
use serde_json::Value;

use super::server::Server;
use crate::tool::{AnyTool, ToolChange, ToolContext, drop_invalid_nulls};

/// A tool of a server.
pub(super) struct ServerTool {
    server: Arc<Server>,
    /// The tool's name at the server.
    remote_name: String,
    spec: ToolSpec,
    effect: Effect,
    /// Whether the server marks it as a delegation tool of another Brigade, which accepts a loan.
    delegates_remotely: bool,
}

impl ServerTool {
    pub(super) fn new(server: Arc<Server>, name: String, tool: Tool) -> ServerTool {
        let description =
            tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().to_owned();
        let mut schema = Value::Object(tool.input_schema.as_ref().clone());
        if let Some(object) = schema.as_object_mut() {
            object.remove("$schema");
            object.entry("type").or_insert_with(|| "object".into());
        }
        let is_read_only = tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true));
        ServerTool {
            server,
            delegates_remotely: !is_read_only && tool.meta.as_deref().is_some_and(usage_report::accepts_loan),
            remote_name: tool.name.into_owned(),
            spec: ToolSpec { name, description, schema, category: Category::Other },
            effect: if is_read_only { Effect::Pure } else { Effect::Opaque },
        }
    }
}

impl AnyTool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn network(&self) -> bool {
        self.server.is_remote()
    }

    fn delegates_remotely(&self) -> bool {
        self.delegates_remotely
    }

    fn change(&self) -> Option<ToolChange> {
        self.server.change(&self.remote_name)
    }

    fn accept(&self, change: &ToolChange) {
        self.server.accept(&self.remote_name, change);
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let name = &self.spec.name;
        if !arguments.is_object() {
            return Err(ToolOutput::error(format!("Invalid arguments for {name}: expected an object")));
        }
        // The server's read-only hint decides whether a call may be repeated, not whether it is allowed.
        judge(&Action { tool: name, kind: ActionKind::Other, subject: Subject::Nothing });
        Ok(())
    }

    fn run<'a>(&'a self, mut arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        drop_invalid_nulls(&mut arguments, &self.spec.schema);
        let arguments = match arguments {
            Value::Object(object) => object,
            _ => serde_json::Map::new(),
        };
        Box::pin(self.server.call(&self.spec.name, &self.remote_name, arguments, context))
    }
}
