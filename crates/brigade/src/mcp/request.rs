//! One request to a server: what goes with it, and what becomes of it when nobody waits any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_core::account::Account;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientRequest, ErrorCode, InputRequest, InputRequiredResult, InputResponses,
    JsonObject, MetaObject, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::json;

use super::connect::Connection;
use super::patience::Listener;
use crate::task::spawn;
use crate::tool::{Purse, ToolContext};

/// How often a server may ask back within one call.
const MOST_ROUNDS: usize = 8;

/// Why a call did not end in a result.
pub(super) enum Failure {
    Service(ServiceError),
    Words(&'static str),
}

/// Calls a tool. Questions of the server to the person are declined; what it wants to be reminded of is.
pub(super) async fn call_tool(
    connection: &Connection,
    tool: &str,
    arguments: JsonObject,
    context: &ToolContext,
    listener: &Arc<Listener>,
) -> Result<CallToolResult, Failure> {
    let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let mut meta = JsonObject::new();
    context.hop.put(&mut meta);
    context.purse.hand_on();
    for _ in 0..MOST_ROUNDS {
        let answer = ask(connection, params.clone(), meta.clone(), listener).await;
        match answer.inspect_err(|error| refused(error, &context.purse)).map_err(Failure::Service)? {
            ServerResult::CallToolResult(result) => {
                settle(&result, &context.purse);
                return Ok(result);
            }
            ServerResult::InputRequiredResult(asked) => {
                params.input_responses = declined(&asked)?;
                params.request_state = asked.request_state;
            }
            _ => return Err(Failure::Service(ServiceError::UnexpectedResponse)),
        }
    }
    Err(Failure::Words("it asked back again and again"))
}

/// Books what the far side says that it used. Where that cannot be read, nobody knows.
fn settle(result: &CallToolResult, purse: &Purse) {
    let account = result.meta.as_ref().map_or(Ok(None), |meta| Account::in_meta(meta));
    if let Ok(account) = account {
        purse.settle(account.as_ref());
    }
}

/// Nothing was begun where the server did not understand the call.
fn refused(error: &ServiceError, purse: &Purse) {
    if let ServiceError::McpError(error) = error
        && matches!(error.code, ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND)
    {
        purse.settle(None);
    }
}

/// Sends a call and waits for the answer. The server is told where nobody waits any more.
async fn ask(
    connection: &Connection,
    params: CallToolRequestParams,
    meta: JsonObject,
    listener: &Arc<Listener>,
) -> Result<ServerResult, ServiceError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(meta)));
    let peer = connection.peer();
    let handle = peer.send_request_with_option(request, options).await?;
    let _listening = connection.listeners.add(handle.progress_token.clone(), listener.clone());
    let mut waiting = Waiting { peer: peer.clone(), request: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    waiting.request = None;
    answer
}

/// Answers to what a server asks back. There is nobody to answer for a model or for folders.
fn declined(asked: &InputRequiredResult) -> Result<Option<InputResponses>, Failure> {
    let mut answers = BTreeMap::new();
    for (key, request) in asked.input_requests.iter().flatten() {
        match request {
            InputRequest::Elicitation(_) => answers.insert(key.clone(), json!({ "action": "decline" })),
            _ => return Err(Failure::Words(super::server::ASKS_BACK)),
        };
    }
    if answers.is_empty() && asked.request_state.is_none() {
        return Err(Failure::Service(ServiceError::UnexpectedResponse));
    }
    Ok((!answers.is_empty()).then_some(answers))
}

/// A request that somebody waits for.
struct Waiting {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let peer = self.peer.clone();
        spawn(async move {
            let params =
                CancelledNotificationParam::new(Some(request), Some("nobody waits any more".to_owned()));
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}
