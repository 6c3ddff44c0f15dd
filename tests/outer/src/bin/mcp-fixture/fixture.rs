//! The server: lists and request handlers.

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::{catalog, input_required, jobs, legacy};

/// State that all clients share.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) tasks: TaskManager,
    changes: broadcast::Sender<Change>,
}

/// A change of a list.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Tools,
    Prompts,
}

/// A tool call with its context.
pub(crate) struct ToolCallRequest {
    pub(crate) request: CallToolRequestParams,
    pub(crate) context: RequestContext<RoleServer>,
}

impl Default for Fixture {
    fn default() -> Fixture {
        Fixture { tasks: TaskManager::new(), changes: broadcast::channel(64).0 }
    }
}

impl Fixture {
    pub(crate) fn notify_change(&self, change: Change) {
        // There may be no subscriber.
        let _ = self.changes.send(change);
    }
}

impl ToolCallRequest {
    pub(crate) fn argument(&self, name: &str) -> Value {
        self.request.arguments.as_ref().and_then(|all| all.get(name)).cloned().unwrap_or_default()
    }

    pub(crate) fn client(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }
}

/// Parses a protocol value from its JSON.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Parses a complete result. Older versions do not know the result type, so it is removed for them later.
pub(crate) fn result<T: serde::de::DeserializeOwned>(mut value: Value) -> T {
    value["resultType"] = json!("complete");
    from_json(value)
}

pub(crate) fn text_result(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true }, "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {}, "completions": {}, "extensions": { TASKS_EXTENSION_ID: {} },
        });
        ServerConfig::new(from_json(capabilities))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(catalog::tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalog::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = ToolCallRequest { request, context };
        let name = call.request.name.to_string();
        if let Some(result) = catalog::fixed_result(&name) {
            return Ok(result.into());
        }
        if name.starts_with("test_input_required_result") || name == "test_tool_with_task" {
            return input_required::call(self, &call);
        }
        match name.as_str() {
            "greet" => {
                let name = call.argument("name");
                Ok(text_result(format!("Hello, {}!", name.as_str().unwrap_or_default())).into())
            }
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                self.notify_change(if name.contains("tool_ch") { Change::Tools } else { Change::Prompts });
                Ok(text_result("changed").into())
            }
            "slow_compute" | "failing_job" | "protocol_error_job" | "confirm_delete" | "multi_input" => {
                jobs::call(self, call).await
            }
            _ => legacy::call(call).await.map(CallToolResponse::from),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(catalog::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(catalog::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = catalog::content(&request.uri);
        let contents = found.ok_or_else(|| {
            ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": request.uri })))
        })?;
        Ok(result::<ReadResourceResult>(json!({ "contents": [contents] })).into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = context.cancelled() => return Ok(()),
            };
            // The sink refuses notifications that the client did not subscribe to, so they are not sent.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(catalog::prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            return Ok(input_required::prompt(request.input_responses.as_ref()));
        }
        let found = catalog::messages(&request.name, &request.arguments.unwrap_or_default());
        let messages = found.ok_or_else(|| ErrorData::invalid_params("Unknown prompt", None))?;
        Ok(result::<GetPromptResult>(json!({ "messages": messages })).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let words = ["paris", "park", "party"].into_iter();
        let fitting: Vec<&str> = words.filter(|word| word.starts_with(&request.argument.value)).collect();
        Ok(result(json!({ "completion": { "values": fitting, "total": fitting.len(), "hasMore": false } })))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
