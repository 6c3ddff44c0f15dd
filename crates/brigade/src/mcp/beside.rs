//! What a server has beside tools: resources and prompts.

use brigade_core::ToolOutput;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResponse, JsonObject, ReadResourceRequestParams, ReadResourceResponse,
};

use super::connect::Connection;
use super::content;
use super::server::{ASKS_BACK, Server, pages, words};
use crate::tool::ToolContext;

/// The most resources or prompts of a server.
const MOST: usize = 2_000;

impl Server {
    /// The resources there are, or one of them.
    pub(super) async fn resource(&self, uri: Option<String>, context: &ToolContext) -> ToolOutput {
        let work = async {
            let connection = self.connection().await?;
            let Some(uri) = uri else { return resources(&connection).await };
            match connection.peer().read_resource_once(ReadResourceRequestParams::new(uri)).await {
                Ok(ReadResourceResponse::Complete(result)) => {
                    let parts: Vec<String> = result.contents.iter().map(content::resource).collect();
                    Ok(ToolOutput::ok(content::bounded(parts.join("\n"))))
                }
                Ok(_) => Err(ASKS_BACK.to_owned()),
                Err(error) => Err(words(&connection, error).await),
            }
        };
        self.within_time(work, context).await
    }

    /// The prompts there are, or one of them.
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
                Ok(_) => Err(ASKS_BACK.to_owned()),
                Err(error) => Err(words(&connection, error).await),
            }
        };
        self.within_time(work, context).await
    }
}

async fn resources(connection: &Connection) -> Result<ToolOutput, String> {
    let peer = connection.peer();
    let fixed = pages(connection, MOST, |params| async {
        let page = peer.list_resources(Some(params)).await?;
        Ok((page.resources, page.next_cursor))
    });
    let open = pages(connection, MOST, |params| async {
        let page = peer.list_resource_templates(Some(params)).await?;
        Ok((page.resource_templates, page.next_cursor))
    });
    let (fixed, open) = (fixed.await?, open.await?);
    let fixed = fixed.iter().map(|one| content::entry(&one.uri, &one.name, one.description.as_deref()));
    let open = open.iter();
    let open = open.map(|one| content::entry(&one.uri_template, &one.name, one.description.as_deref()));
    Ok(content::list(fixed.chain(open)))
}

async fn prompts(connection: &Connection) -> Result<ToolOutput, String> {
    let peer = connection.peer();
    let prompts = pages(connection, MOST, |params| async {
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
