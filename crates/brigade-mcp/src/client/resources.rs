//! Resources and prompts of a server.

use std::time::Duration;

use brigade_core::ToolOutput;
use rmcp::ServiceError;
use rmcp::model::{
    ErrorCode, GetPromptRequestParams, GetPromptResponse, JsonObject, ReadResourceRequestParams,
    ReadResourceResponse,
};

use super::connect::Connection;
use super::server::{INPUT_UNSUPPORTED, Server, pages, request_error};
use super::{McpError, content};
use brigade_tools::ToolContext;

/// Maximum number of resources or prompts of a server.
const MAX_LISTED: usize = 2_000;
/// Timeout for listing resources and prompts before the server's tools are offered.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a server has resources and prompts. Each kind that it has gets a tool.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServerFeatures {
    pub(super) resources: bool,
    pub(super) prompts: bool,
}

impl ServerFeatures {
    /// Queries the server. Many servers announce the capability and have no entries. If the server does not
    /// answer, its announcement is trusted.
    pub(super) async fn of(connection: &Connection) -> ServerFeatures {
        let capabilities = connection.peer().peer_info().map(|info| info.capabilities.clone());
        let capabilities = capabilities.unwrap_or_default();
        let (resources, prompts) = futures::join!(
            within_time(capabilities.resources.is_some(), has_resources(connection)),
            within_time(capabilities.prompts.is_some(), has_prompts(connection)),
        );
        ServerFeatures { resources, prompts }
    }
}

async fn within_time(is_announced: bool, has_any: impl Future<Output = bool>) -> bool {
    is_announced && tokio::time::timeout(FIRST_LIST_TIMEOUT, has_any).await.unwrap_or(true)
}

async fn has_resources(connection: &Connection) -> bool {
    let fixed = connection.peer().list_resources(None).await;
    if has_entries(fixed.map(|page| page.resources.is_empty() && page.next_cursor.is_none())) {
        return true;
    }
    let templates = connection.peer().list_resource_templates(None).await;
    has_entries(templates.map(|page| page.resource_templates.is_empty() && page.next_cursor.is_none()))
}

async fn has_prompts(connection: &Connection) -> bool {
    let prompts = connection.peer().list_prompts(None).await;
    has_entries(prompts.map(|page| page.prompts.is_empty() && page.next_cursor.is_none()))
}

/// Whether a list has entries, given whether its first page is the whole list and empty. A list that the
/// server does not support is empty. A list that cannot be read may have entries.
fn has_entries(is_empty: Result<bool, ServiceError>) -> bool {
    match is_empty {
        Ok(is_empty) => !is_empty,
        Err(ServiceError::McpError(error)) => error.code != ErrorCode::METHOD_NOT_FOUND,
        Err(_) => true,
    }
}

impl Server {
    /// Lists the resources, or reads one of them.
    pub(super) async fn resource(&self, uri: Option<String>, context: &ToolContext) -> ToolOutput {
        let work = async {
            let connection = self.connection().await?;
            let Some(uri) = uri else { return resources(&connection).await };
            match connection.peer().read_resource_once(ReadResourceRequestParams::new(uri)).await {
                Ok(ReadResourceResponse::Complete(result)) => {
                    let parts: Vec<String> = result.contents.iter().map(content::resource).collect();
                    Ok(ToolOutput::ok(content::truncate(parts.join("\n"))))
                }
                Ok(_) => Err(McpError::Request(INPUT_UNSUPPORTED.to_owned())),
                Err(error) => Err(request_error(&connection, error).await),
            }
        };
        self.within_time(work, context).await
    }

    /// Lists the prompts, or expands one of them.
    pub(super) async fn prompt(
        &self,
        name: Option<String>,
        arguments: JsonObject,
        context: &ToolContext,
    ) -> ToolOutput {
        let work = async {
            let connection = self.connection().await?;
            let Some(name) = name else { return prompts(&connection).await };
            let params = GetPromptRequestParams::new(name).with_arguments(arguments);
            match connection.peer().get_prompt_once(params).await {
                Ok(GetPromptResponse::Complete(result)) => Ok(content::prompt(&result)),
                Ok(_) => Err(McpError::Request(INPUT_UNSUPPORTED.to_owned())),
                Err(error) => Err(request_error(&connection, error).await),
            }
        };
        self.within_time(work, context).await
    }
}

async fn resources(connection: &Connection) -> Result<ToolOutput, McpError> {
    let peer = connection.peer();
    let fixed = pages(connection, MAX_LISTED, |params| async {
        let page = peer.list_resources(Some(params)).await?;
        Ok((page.resources, page.next_cursor))
    });
    let templates = pages(connection, MAX_LISTED, |params| async {
        let page = peer.list_resource_templates(Some(params)).await?;
        Ok((page.resource_templates, page.next_cursor))
    });
    let (fixed, templates) = (fixed.await?, templates.await?);
    let fixed = fixed.iter().map(|one| content::entry(&one.uri, &one.name, one.description.as_deref()));
    let templates = templates.iter();
    let templates =
        templates.map(|one| content::entry(&one.uri_template, &one.name, one.description.as_deref()));
    Ok(content::list(fixed.chain(templates)))
}

async fn prompts(connection: &Connection) -> Result<ToolOutput, McpError> {
    let peer = connection.peer();
    let prompts = pages(connection, MAX_LISTED, |params| async {
        let page = peer.list_prompts(Some(params)).await?;
        Ok((page.prompts, page.next_cursor))
    });
    let prompts = prompts.await?;
    Ok(content::list(prompts.iter().map(|prompt| {
        let arguments = prompt.arguments.iter().flatten().map(|argument| match argument.required {
            Some(true) => argument.name.clone(),
            Some(false) | None => format!("{}?", argument.name),
        });
        let arguments: Vec<String> = arguments.collect();
        content::entry(&prompt.name, &arguments.join(", "), prompt.description.as_deref())
    })))
}
