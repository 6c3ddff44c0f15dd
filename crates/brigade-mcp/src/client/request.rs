//! One tool call to a server: its metadata, its settlement and its cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientRequest, ErrorCode, InputRequest, InputRequiredResult, InputResponses,
    JsonObject, MetaObject, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::json;

use super::call_timeout::ProgressListener;
use super::connect::Connection;
use brigade_base::task::spawn;
use brigade_tools::ToolContext;

/// Maximum number of input requests by the server within one call.
const MAX_INPUT_ROUNDS: usize = 8;

/// Reasons why a call has no result.
pub(super) enum CallFailure {
    Service(ServiceError),
    Message(&'static str),
}

/// Calls a tool. The server's questions to the user are declined; its request state is returned to it.
pub(super) async fn call_tool(
    connection: &Connection,
    tool: &str,
    arguments: JsonObject,
    context: &ToolContext,
    listener: &Arc<ProgressListener>,
) -> Result<CallToolResult, CallFailure> {
    let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let mut meta = JsonObject::new();
    context.attach_remote_context(&mut meta);
    for _ in 0..MAX_INPUT_ROUNDS {
        let answer = send_call(connection, params.clone(), meta.clone(), listener).await;
        if answer.as_ref().is_err_and(is_rejection) {
            context.loan.settle(None);
        }
        match answer.map_err(CallFailure::Service)? {
            ServerResult::CallToolResult(result) => {
                context.loan.settle_with(result.meta.as_deref());
                return Ok(result);
            }
            ServerResult::InputRequiredResult(input_required) => {
                params.input_responses = decline_input(&input_required)?;
                params.request_state = input_required.request_state;
            }
            _ => return Err(CallFailure::Service(ServiceError::UnexpectedResponse)),
        }
    }
    Err(CallFailure::Message("it kept requesting user input, which is not supported"))
}

/// Whether the server rejected the call, so that it did no work.
fn is_rejection(error: &ServiceError) -> bool {
    matches!(error, ServiceError::McpError(error)
        if matches!(error.code, ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND))
}

/// Sends a call and waits for the answer. If the future is dropped, the server receives a cancellation.
async fn send_call(
    connection: &Connection,
    params: CallToolRequestParams,
    meta: JsonObject,
    listener: &Arc<ProgressListener>,
) -> Result<ServerResult, ServiceError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(meta)));
    let peer = connection.peer();
    let handle = peer.send_request_with_option(request, options).await?;
    let _listening = connection.listeners.add(handle.progress_token.clone(), listener.clone());
    let mut cancel_guard = CancelOnDrop { peer: peer.clone(), request: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    cancel_guard.request = None;
    answer
}

/// Answers input requests. Sampling and file system roots are not supported.
fn decline_input(input_required: &InputRequiredResult) -> Result<Option<InputResponses>, CallFailure> {
    let mut answers = BTreeMap::new();
    for (key, request) in input_required.input_requests.iter().flatten() {
        match request {
            InputRequest::Elicitation(_) => answers.insert(key.clone(), json!({ "action": "decline" })),
            _ => return Err(CallFailure::Message(super::server::INPUT_UNSUPPORTED)),
        };
    }
    if answers.is_empty() && input_required.request_state.is_none() {
        return Err(CallFailure::Service(ServiceError::UnexpectedResponse));
    }
    Ok((!answers.is_empty()).then_some(answers))
}

/// Cancels its request on drop.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let peer = self.peer.clone();
        spawn(async move {
            let params = CancelledNotificationParam::new(
                Some(request),
                Some("the client is no longer waiting for the response".to_owned()),
            );
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}
