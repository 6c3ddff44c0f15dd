//! Tools that read a server's resources and prompts.

use std::sync::Arc;

use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::server::Server;
use crate::tool::{AnyTool, ToolContext};

/// A tool that reads a server's resources or prompts.
pub(super) struct ResourceTool {
    server: Arc<Server>,
    resource_kind: ResourceKind,
    spec: ToolSpec,
}

#[derive(Clone, Copy)]
enum ResourceKind {
    Resources,
    Prompts,
}

impl ResourceTool {
    /// Returns a tool for each kind that the server has.
    pub(super) fn of(server: &Arc<Server>, name: &str) -> Vec<ResourceTool> {
        let features = server.features();
        let mut tools = Vec::new();
        if features.resources {
            tools.push(ResourceTool::new(server, ResourceKind::Resources, name));
        }
        if features.prompts {
            tools.push(ResourceTool::new(server, ResourceKind::Prompts, name));
        }
        tools
    }

    fn new(server: &Arc<Server>, resource_kind: ResourceKind, name: &str) -> ResourceTool {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let (tool, does, without, properties) = match resource_kind {
            ResourceKind::Resources => (
                "read_resource",
                format!("Read a resource from the MCP server {name}."),
                "Omit `uri` to list all resources.",
                json!({ "uri": text("URI of the resource") }),
            ),
            ResourceKind::Prompts => (
                "get_prompt",
                format!("Get a prompt from the MCP server {name}, with its arguments filled in."),
                "Omit `name` to list all prompts.",
                json!({
                    "name": text("Name of the prompt"),
                    "arguments": { "type": "object", "description": "Values of its arguments, as strings" },
                }),
            ),
        };
        let spec = ToolSpec {
            name: format!("mcp__{name}__{tool}"),
            description: format!("{does} {without}"),
            schema: json!({ "type": "object", "properties": properties }),
            category: Category::Read,
        };
        ResourceTool { server: server.clone(), resource_kind, spec }
    }
}

impl AnyTool for ResourceTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn network(&self) -> bool {
        self.server.is_remote()
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        let tool = self.spec.name.as_str();
        let fits = |(key, value): (&String, &Value)| match (self.resource_kind, key.as_str()) {
            (ResourceKind::Resources, "uri") | (ResourceKind::Prompts, "name") => {
                value.is_string() || value.is_null()
            }
            (ResourceKind::Prompts, "arguments") => value.is_object() || value.is_null(),
            _ => false,
        };
        if !arguments.as_object().is_some_and(|object| object.iter().all(fits)) {
            return Err(ToolOutput::error(format!(
                "Invalid arguments for {tool}: they do not match its schema"
            )));
        }
        judge(&Action { tool, kind: ActionKind::Other, subject: Subject::Nothing });
        Ok(())
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).map(str::to_owned);
        match self.resource_kind {
            ResourceKind::Resources => Box::pin(self.server.resource(text("uri"), context)),
            ResourceKind::Prompts => {
                let prompt_arguments = arguments.get("arguments").and_then(Value::as_object).cloned();
                Box::pin(self.server.prompt(text("name"), prompt_arguments.unwrap_or_default(), context))
            }
        }
    }
}
